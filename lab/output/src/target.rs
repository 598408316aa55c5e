//! Where an output goes: the one place that decides what a path may name.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::directory::Directory;

/// As many symbolic links as the kernel follows, too.
const MOST_LINKS: usize = 40;

/// A regular file that is there or can be: a name in a directory that is there. Symbolic
/// links of the path were followed.
#[derive(Debug)]
pub struct Target {
    /// The directory, held open.
    pub(crate) directory: Directory,
    /// The file's name in it.
    pub(crate) name: OsString,
    identity: Identity,
}

/// What tells files from each other, whatever their paths are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A file that is there: its device and inode. Its hard links have the same.
    Present(u64, u64),
    /// One that is not: device and inode of its directory, and its name.
    Absent(u64, u64, OsString),
}

impl Identity {
    /// Of what is there.
    pub fn of(metadata: &Metadata) -> Self {
        Identity::Present(metadata.dev(), metadata.ino())
    }

    /// Of what `path` names, or would name if it were there.
    ///
    /// # Errors
    /// The path cannot be followed, or leads to where nothing can be.
    pub fn at(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Self::of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Target::of(path)?.identity),
            Err(error) => Err(error),
        }
    }
}

impl Target {
    /// The file that `path` names. `-` names none: `./-` does.
    ///
    /// # Errors
    /// The path names no file; something that is no regular file has its name (a
    /// directory, a device, a pipe); or its directory cannot be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if path == Path::new("-") {
            return refused("standard output cannot take this; ./- is a file of that name");
        }
        let present = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return refused("it is a directory"),
            Ok(metadata) if !metadata.is_file() => return refused("not a regular file"),
            Ok(metadata) => Some(Identity::of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let path = followed(path)?;
        let name = match path.file_name() {
            Some(name) if !path.as_os_str().as_bytes().ends_with(b"/") => name.to_owned(),
            _ => return refused("not the name of a file"),
        };
        let directory = Directory::open(path.parent().unwrap_or(Path::new("")))?;
        let identity = match present {
            Some(identity) => identity,
            None => absent(&directory, &name)?,
        };
        Ok(Self {
            directory,
            name,
            identity,
        })
    }

    /// The file's directory, held open.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The file's name in its directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// What tells the file from others.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

fn absent(directory: &Directory, name: &OsStr) -> io::Result<Identity> {
    let metadata = directory.metadata()?;
    Ok(Identity::Absent(
        metadata.dev(),
        metadata.ino(),
        name.to_owned(),
    ))
}

/// Where the symbolic links at the end of `path` lead.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            // No link, or nothing at all.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_the_same_by_every_path() {
        let directory = scratch("same");
        let at = |name: &str| Identity::at(&directory.join(name)).unwrap();
        fs::write(directory.join("file"), "").unwrap();
        fs::hard_link(directory.join("file"), directory.join("hard")).unwrap();
        symlink("file", directory.join("soft")).unwrap();
        fs::create_dir(directory.join("below")).unwrap();
        symlink("../new", directory.join("below/dangling")).unwrap();
        for other in ["hard", "soft", "./below/../file"] {
            assert_eq!(at("file"), at(other), "{other}");
        }
        assert_eq!(at("new"), at("below/dangling"));
        assert_eq!(at("new"), at("below/../new"));
        assert_ne!(at("new"), at("below/new"));
        assert_ne!(at("new"), at("file"));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let directory = scratch("refused");
        symlink("loop", directory.join("loop")).unwrap();
        let inside = |name: &str| directory.join(name);
        for path in [
            PathBuf::from("-"),
            PathBuf::from("/"),
            PathBuf::from(".."),
            PathBuf::from("/dev/null"),
            inside(""),
            inside("new/"),
            inside("missing/new"),
            inside("loop"),
        ] {
            assert!(Target::of(&path).is_err(), "{}", path.display());
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
