//! The kernel's description of its trace events: tracefs, wherever it is
//! mounted, or mounted for this process alone.
//!
//! A mount of our own is never attached to a directory. It exists as a file
//! descriptor, in a mount namespace that the kernel makes for it alone, and
//! goes when the descriptor is closed. So no table of mounts changes, neither
//! that of this process nor that of the command it records.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use crate::error::{RecordError, is_root};

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// A mounted tracefs.
#[derive(Debug)]
pub struct Tracefs {
    root: OwnedFd,
    /// Where it is mounted; none if it is for this process alone.
    place: Option<PathBuf>,
}

impl Tracefs {
    /// The one that is mounted, or else one of our own, for which this process
    /// needs the rights of root.
    ///
    /// # Errors
    /// There is none, and none can be mounted; or the one that is there cannot be
    /// opened.
    pub fn open() -> Result<Self, RecordError> {
        let Some(place) = find() else {
            let root = mount().map_err(|why| RecordError::NoTracefs {
                why,
                root: is_root(),
            })?;
            return Ok(Self { root, place: None });
        };
        match File::open(&place) {
            Ok(root) => Ok(Self {
                root: root.into(),
                place: Some(place),
            }),
            Err(_) => Err(RecordError::TracefsUnreadable {
                path: place.clone(),
                mount: place,
            }),
        }
    }

    /// Whether it is mounted for this process alone.
    pub fn is_own(&self) -> bool {
        self.place.is_none()
    }

    /// Where it is mounted; `tracefs` if that is nowhere.
    pub fn place(&self) -> &Path {
        self.place.as_deref().unwrap_or(Path::new("tracefs"))
    }

    /// The content of the file `path` in it.
    ///
    /// # Errors
    /// The file is not there or cannot be read.
    pub fn read(&self, path: &Path) -> io::Result<String> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the descriptor is open and the path ends in a zero byte.
        let file = unsafe { libc::openat(self.root.as_raw_fd(), path.as_ptr(), flags) };
        let mut text = String::new();
        File::from(owned(file.into())?).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Where tracefs is mounted, if it is.
fn find() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "tracefs").then(|| PathBuf::from(place))
    });
    // The usual place first: others may be private mounts.
    places.min_by_key(|place| place != Path::new("/sys/kernel/tracing"))
}

/// Mounts tracefs without attaching it anywhere.
fn mount() -> io::Result<OwnedFd> {
    // SAFETY: the name ends in a zero byte.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC) };
    let context = owned(context)?;
    let null = ptr::null::<libc::c_char>();
    // SAFETY: the command takes neither a key nor a value.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            null,
            null,
            0,
        )
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes integers.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

/// The descriptor that a system call returned.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: the call returned a descriptor that nobody else owns.
        _ => Ok(unsafe { OwnedFd::from_raw_fd(result as libc::c_int) }),
    }
}
