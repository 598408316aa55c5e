//! Directories and files that are gone when a benchmark ends.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};

/// A new directory that is removed with everything in it when it is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A directory `vellum-NAME-PID` below `parent`.
    ///
    /// # Errors
    /// It cannot be made, or exists.
    pub fn new(parent: &Path, name: &str) -> io::Result<Scratch> {
        let path = parent.join(format!("vellum-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("vellum: removing {}: {error}", self.0.display());
        }
    }
}

/// A file in memory that has no name.
///
/// # Errors
/// The operating system refused it.
pub fn unnamed_file() -> io::Result<File> {
    // SAFETY: the name is a string that ends in a zero byte.
    let fd = unsafe { libc::memfd_create(c"output".as_ptr(), libc::MFD_CLOEXEC) };
    match fd {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new and owned by nobody else.
        _ => Ok(unsafe { File::from_raw_fd(fd) }),
    }
}

/// Lines of a failed program's output that an error quotes.
const QUOTED_LINES: usize = 12;

/// Everything that was written to `file`, read from its beginning.
///
/// # Errors
/// It cannot be read.
pub fn contents(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of what a program wrote to a file, each line after a line break.
pub fn last_lines(file: io::Result<File>) -> String {
    let text = match file.and_then(contents) {
        Ok(text) => text,
        Err(error) => format!("(its output cannot be read: {error})"),
    };
    let lines: Vec<&str> = text.lines().collect();
    let skip = lines.len().saturating_sub(QUOTED_LINES);
    let quoted = lines[skip..].iter().map(|line| format!("\n    {line}"));
    quoted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_goes_with_its_contents() {
        let scratch = Scratch::new(&std::env::temp_dir(), "scratch-test").expect("made");
        let path = scratch.path().to_owned();
        fs::create_dir(path.join("below")).expect("made");
        fs::write(path.join("below/file"), "text").expect("written");
        assert!(Scratch::new(&std::env::temp_dir(), "scratch-test").is_err());
        drop(scratch);
        assert!(!path.exists());
    }
}
