//! Files that appear only when they are complete.
//!
//! The bytes of a [`PartialFile`] go to a temporary file beside its [`Target`], which
//! takes the target's name at the end: a reader of the name sees the old file or
//! the new one. The target is a regular file; a symbolic link is followed to it, and
//! its directory is held open, so that the file appears in it wherever it is moved
//! meanwhile. Whatever ends the work before that removes the temporary file: an
//! error, or an interruption that the work obeys, drops the value; a signal that
//! ends the program at once goes through the list of what is [`unfinished`]. Only
//! what cannot be caught (SIGKILL, a loss of power) leaves it behind.

pub mod directory;
pub mod target;
pub mod unfinished;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use directory::{Directory, c_name};
use target::Target;
use unfinished::Unfinished;

/// A file that will have its name when it is complete. It is there from the
/// beginning of the work on, so that a path that cannot be written is refused
/// before time is spent.
#[derive(Debug)]
pub struct PartialFile {
    directory: Directory,
    name: CString,
    temporary: CString,
    file: File,
    _unfinished: Unfinished,
}

impl PartialFile {
    /// Creates a temporary file beside the one that `path` names.
    ///
    /// # Errors
    /// As [`Target::of`], or the directory cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let Target {
            directory, name, ..
        } = Target::of(path)?;
        let mut temporary = name.clone();
        temporary.push(format!(".{}.partial", std::process::id()));
        let (name, temporary) = (c_name(&name)?, c_name(&temporary)?);
        // First: from its first moment on the file is one that a signal removes.
        let unfinished = Unfinished::within(&directory, &temporary)?;
        Ok(Self {
            file: directory.create(&temporary)?,
            directory,
            name,
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
        self.directory.rename(&self.temporary, &self.name)
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
        // Once it has its name there is no such file any more.
        self.directory.remove(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    pub(crate) fn scratch(test: &str) -> PathBuf {
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
        let file = PartialFile::create(&in_the_way).unwrap();
        fs::create_dir(&in_the_way).unwrap();
        file.commit("text").unwrap_err();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_path_that_names_no_file_is_refused() {
        for path in ["/", "..", "a/..", "-", "/dev/null"] {
            assert!(PartialFile::create(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn a_symbolic_link_is_followed_and_stays() {
        let directory = scratch("links");
        fs::create_dir(directory.join("below")).unwrap();
        let link = directory.join("below/link");
        symlink("../file", &link).unwrap();
        for text in ["new where nothing was", "new in place of the old"] {
            PartialFile::create(&link).unwrap().commit(text).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(directory.join("file")).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_appears_in_a_directory_that_was_moved_meanwhile() {
        let directory = scratch("moved");
        let (old, new) = (directory.join("old"), directory.join("new"));
        fs::create_dir(&old).unwrap();
        let (kept, given_up) = (old.join("kept"), old.join("given-up"));
        let kept = PartialFile::create(&kept).unwrap();
        let given_up = PartialFile::create(&given_up).unwrap();
        fs::rename(&old, &new).unwrap();
        kept.commit("text").unwrap();
        drop(given_up);
        assert_eq!(fs::read_to_string(new.join("kept")).unwrap(), "text");
        assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
