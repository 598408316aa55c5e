//! A directory of results that appear together or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use vellum_output::PartialFile;
use vellum_output::unfinished::Unfinished;

/// A directory that will hold files. They are written beside each other under
/// temporary names and get their own when all of them are complete. What the
/// directory held under those names is replaced; what else it holds stays.
#[derive(Debug)]
pub struct PendingDirectory {
    path: PathBuf,
    /// If it was not there before.
    created: Option<Unfinished>,
}

impl PendingDirectory {
    /// Creates `path` unless it exists, and makes sure that it can be written.
    ///
    /// # Errors
    /// It cannot, or something that is no directory is in its place.
    pub fn create(path: &Path) -> io::Result<Self> {
        let created = match fs::create_dir(path) {
            Ok(()) => Some(Unfinished::new(path)?),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(error),
        };
        let pending = Self {
            path: path.to_owned(),
            created,
        };
        // From here on dropping it leaves nothing behind.
        PartialFile::create(&pending.path.join("writable"))?;
        Ok(pending)
    }

    /// Writes `files`, by name and content.
    ///
    /// # Errors
    /// A file cannot be written or renamed.
    pub fn commit(self, files: &[(String, String)]) -> io::Result<()> {
        let mut written = Vec::new();
        for (name, content) in files {
            let mut file = PartialFile::create(&self.path.join(name))?;
            file.write_all(content.as_bytes())?;
            written.push(file);
        }
        written.into_iter().try_for_each(PartialFile::finish)
    }
}

impl Drop for PendingDirectory {
    fn drop(&mut self) {
        if self.created.is_some() {
            // Fails, as it should, if there are files in it.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(test: &str) -> PathBuf {
        let name = format!("vellum-files-{test}-{}", std::process::id());
        std::env::temp_dir().join(name)
    }

    fn pair((name, content): (&str, &str)) -> (String, String) {
        (name.to_owned(), content.to_owned())
    }

    #[test]
    fn what_is_not_committed_leaves_no_trace() {
        let path = scratch("dropped");
        drop(PendingDirectory::create(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_failure_leaves_what_was_there() {
        let path = scratch("failed");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("a"), "old").unwrap();
        let pending = PendingDirectory::create(&path).unwrap();
        let files = [("a", "new"), ("missing/b", "")].map(pair);
        assert!(pending.commit(&files).is_err());
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "old");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn committed_files_are_all_there() {
        let path = scratch("committed");
        let pending = PendingDirectory::create(&path).unwrap();
        let files = [("a", "1"), ("b", "2")].map(pair);
        pending.commit(&files).unwrap();
        assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "2");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
        fs::remove_dir_all(&path).unwrap();
    }
}
