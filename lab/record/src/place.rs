//! Where a trace goes, and where else if it cannot go there: a recording is not lost
//! because its directory was moved, removed or full when the command ended.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::RecordError;
use vellum_output::target::Target;

/// Where a trace goes: a name in a directory that is held open while the command runs.
pub struct Place {
    wanted: PathBuf,
    target: Target,
}

impl Place {
    /// The file `path`.
    ///
    /// # Errors
    /// It names no file that can be written.
    pub fn of(path: &Path) -> Result<Place, RecordError> {
        let what = format!("cannot write {}", path.display());
        Ok(Place {
            wanted: path.to_owned(),
            target: Target::of(path).map_err(RecordError::io(what))?,
        })
    }

    /// Where to write, in the order in which to try: in the directory, wherever it is now;
    /// at the path, wherever that leads now; in the current directory; where temporary files
    /// go. In the last two no file is replaced.
    pub fn candidates(&self) -> Vec<PathBuf> {
        let name = self.target.name();
        let held = self.target.directory().path();
        let held = held.map(
            |directory| match directory_of(&self.wanted).canonicalize() {
                // As the user wrote it, as long as that is the same.
                Ok(same) if same == directory => self.wanted.clone(),
                _ => directory.join(name),
            },
        );
        let again = Some(self.wanted.clone()).filter(|path| held.as_ref() != Some(path));
        let elsewhere = [PathBuf::new(), std::env::temp_dir()];
        let elsewhere = elsewhere.map(|directory| unused(&directory, name));
        held.into_iter().chain(again).chain(elsewhere).collect()
    }
}

/// The directory of a path.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A path in `directory` that names nothing yet, after `name`.
fn unused(directory: &Path, name: &OsStr) -> PathBuf {
    let path = directory.join(name);
    if path.symlink_metadata().is_err() {
        return path;
    }
    let mut numbered = OsString::from(format!("{}.", std::process::id()));
    numbered.push(name);
    directory.join(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use vellum_testing::Scratch;

    #[test]
    fn a_directory_that_was_moved_is_found_and_one_that_is_gone_is_replaced() {
        let scratch = Scratch::new("record-place");
        let (old, new) = (scratch.path("old"), scratch.path("new"));
        fs::create_dir(&old).unwrap();
        let wanted = Path::new(&old).join("t.vellum");
        let place = Place::of(&wanted).unwrap();
        assert_eq!(place.candidates()[0], wanted);
        fs::rename(&old, &new).unwrap();
        let moved = Path::new(&new).canonicalize().unwrap().join("t.vellum");
        assert_eq!(place.candidates()[..2], [moved, wanted.clone()]);
        fs::remove_dir(&new).unwrap();
        let candidates = place.candidates();
        assert_eq!(candidates[0], wanted);
        assert_eq!(candidates[1], Path::new("t.vellum"));
        assert_eq!(candidates.len(), 3);
    }

    #[test]
    fn the_spool_lies_beside_the_output() {
        assert_eq!(directory_of(Path::new("a.vellum")), Path::new("."));
        assert_eq!(directory_of(Path::new("/tmp/a.vellum")), Path::new("/tmp"));
    }
}
