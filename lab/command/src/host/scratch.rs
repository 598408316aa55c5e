//! Directories and files that are gone when what uses them ends, however it ends.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use vellum_output::unfinished::Unfinished;

/// A new directory that is removed with everything in it when it is dropped. If
/// the program ends before that, by a second Ctrl-C or killed, a shell that
/// waits for its end removes the directory.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// None below another one, which goes as a whole. Dropped after the
    /// directory was removed.
    _sweeper: Option<Sweeper>,
}

impl Scratch {
    /// A directory `vellum-NAME-PID` below `parent`.
    ///
    /// # Errors
    /// It cannot be made, or exists, or no shell can be started.
    pub fn new(parent: &Path, name: &str) -> io::Result<Scratch> {
        let path = parent.join(file_name(name));
        // Until the shell is there, a signal that ends the program removes the
        // directory, which is empty.
        let _unfinished = Unfinished::new(&path)?;
        fs::create_dir(&path)?;
        match Sweeper::running(SWEEP, &path) {
            Ok(sweeper) => Ok(Scratch {
                path,
                _sweeper: Some(sweeper),
            }),
            Err(error) => {
                fs::remove_dir(&path)?;
                Err(error)
            }
        }
    }

    /// A directory in this one.
    ///
    /// # Errors
    /// It cannot be made, or exists.
    pub fn below(&self, name: &str) -> io::Result<Scratch> {
        let path = self.path.join(file_name(name));
        fs::create_dir(&path)?;
        Ok(Scratch {
            path,
            _sweeper: None,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn file_name(name: &str) -> String {
    format!("vellum-{name}-{}", std::process::id())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("vellum: removing {}: {error}", self.path.display());
        }
    }
}

/// A shell that removes a directory when this process has ended, however that came.
#[derive(Debug)]
pub struct Sweeper {
    shell: Child,
    /// Closed when this process ends; then the shell goes on.
    _stays_open: Option<ChildStdin>,
}

/// A program that was killed in the middle of a system call may still finish the
/// call and make a file where `rm` has looked already: hence the second `rm`.
const SWEEP: &str = "read -r line; rm -rf -- \"$0\" || exec rm -rf -- \"$0\"";

impl Sweeper {
    /// A shell that runs `script` with the directory as `$0`. The script waits for the end of
    /// its input first.
    ///
    /// # Errors
    /// No shell can be started.
    pub fn running(script: &str, directory: &Path) -> io::Result<Sweeper> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", script])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of the reach of what is meant for this program's group.
            .process_group(0)
            .spawn()?;
        let stdin = shell.stdin.take();
        Ok(Sweeper {
            shell,
            _stays_open: stdin,
        })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // It is ours until it is waited for, and has nothing left to do.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
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
        let below = scratch.below("inner").expect("made");
        assert!(below.path().is_dir());
        drop(below);
        assert_eq!(fs::read_dir(&path).expect("readable").count(), 1);
        assert!(Scratch::new(&std::env::temp_dir(), "scratch-test").is_err());
        drop(scratch);
        assert!(!path.exists());
    }
}
