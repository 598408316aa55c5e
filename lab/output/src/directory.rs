//! A directory that is held open, so that its files are reached wherever it is
//! moved meanwhile.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory that is held open.
#[derive(Debug)]
pub struct Directory {
    file: File,
}

impl Directory {
    /// Opens the directory `path`; an empty path is the current one.
    ///
    /// # Errors
    /// It is none, or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        let file = File::open(path)?;
        match file.metadata()?.is_dir() {
            true => Ok(Self { file }),
            false => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        }
    }

    /// What the system says about the directory itself.
    ///
    /// # Errors
    /// The system does not say.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Where the directory is now, wherever it was when it was opened; `None` if it was
    /// removed or cannot be found.
    pub fn path(&self) -> Option<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let path = std::fs::read_link(link).ok()?;
        let (here, there) = (self.metadata().ok()?, std::fs::metadata(&path).ok()?);
        let is_same = (here.dev(), here.ino()) == (there.dev(), there.ino());
        is_same.then_some(path)
    }

    /// The directory once more, for another owner.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        Ok(Self { file })
    }

    /// Creates the file `name` in it, or empties the one that is there; a symbolic
    /// link is not followed.
    pub(crate) fn create(&self, name: &CStr) -> io::Result<File> {
        let flags =
            libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the descriptor is open and the name ends in a zero byte, both for the
        // time of the call.
        let file = unsafe { libc::openat(self.fd(), name.as_ptr(), flags, 0o666 as c_int) };
        succeeded(file)?;
        // SAFETY: the call returned a descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(file) }.into())
    }

    /// Gives the file `from` the name `to`, and takes it from the file that has it.
    pub(crate) fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        let fd = self.fd();
        // SAFETY: the descriptor is open and the names end in zero bytes, for the time of
        // the call.
        succeeded(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) })
    }

    /// Removes the file `name`, or the empty directory. Safe in a signal handler.
    pub(crate) fn remove(&self, name: &CStr) {
        remove_at(self.fd(), name);
    }

    fn fd(&self) -> c_int {
        self.file.as_raw_fd()
    }
}

/// Removes the file `name`, or the empty directory, of the directory `fd` or of the current
/// one. Nothing can be done about what cannot be removed. Safe in a signal handler.
pub(crate) fn remove_at(fd: c_int, name: &CStr) {
    // SAFETY: a name that ends in a zero byte, and a number that the system checks; both
    // calls may be made in a handler.
    unsafe {
        if libc::unlinkat(fd, name.as_ptr(), 0) < 0 {
            libc::unlinkat(fd, name.as_ptr(), libc::AT_REMOVEDIR);
        }
    }
}

/// A name as system calls take it.
pub(crate) fn c_name(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn succeeded(result: c_int) -> io::Result<()> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
