//! Files that appear only when they are complete.
//!
//! The bytes of a [`PartialFile`] go to a temporary file beside its target, which
//! takes the target's name at the end: a reader of the name sees the old file or
//! the new one. Whatever ends the work before that removes the temporary file: an
//! error, or an interruption that the work obeys, drops the value; a signal that
//! ends the program at once goes through the list of what is [`unfinished`]. Only
//! what cannot be caught (SIGKILL, a loss of power) leaves it behind.

pub mod unfinished;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use unfinished::Unfinished;

/// A file that will have its name when it is complete. It is there from the
/// beginning of the work on, so that a path that cannot be written is refused
/// before time is spent.
#[derive(Debug)]
pub struct PartialFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    _unfinished: Unfinished,
}

impl PartialFile {
    /// Creates a temporary file beside `path`.
    ///
    /// # Errors
    /// `path` names no file, or its directory cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"))?
            .to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        // First: from its first moment on the file is one that a signal removes.
        let unfinished = Unfinished::new(&temporary)?;
        Ok(Self {
            path: path.to_owned(),
            file: File::create(&temporary)?,
            temporary,
            _unfinished: unfinished,
        })
    }

    /// Gives the file its name, when all of it is on the disk.
    ///
    /// # Errors
    /// The file cannot be written or renamed. Nothing is left behind then.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }

    /// Writes `text`, which is the whole file, and gives it its name.
    ///
    /// # Errors
    /// As [`PartialFile::finish`].
    pub fn commit(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.finish()
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Once it has its name there is no such file any more; and nothing can be
        // done about one that cannot be removed.
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(test: &str) -> PathBuf {
        let name = format!("vellum-output-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let directory = scratch("complete");
        let path = directory.join("file");
        fs::write(&path, "old").unwrap();
        let mut file = PartialFile::create(&path).unwrap();
        file.write_all(b"ne").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.commit("w").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_that_is_given_up_or_cannot_be_named_leaves_nothing_behind() {
        let directory = scratch("dropped");
        drop(PartialFile::create(&directory.join("file")).unwrap());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        let in_the_way = directory.join("directory");
        fs::create_dir(&in_the_way).unwrap();
        let file = PartialFile::create(&in_the_way).unwrap();
        file.commit("text").unwrap_err();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_path_that_names_no_file_is_refused() {
        for path in ["/", "..", "a/.."] {
            assert!(PartialFile::create(Path::new(path)).is_err(), "{path}");
        }
    }
}
