//! Mounts that nobody else sees and that go with the thread that made them.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::thread;

use crate::host::HostError;
use crate::host::scratch::Scratch;

/// Calls `work` with an empty directory, on a thread whose mounts are its own. Whatever
/// it mounts below the directory is gone when the thread ends, and so when the program
/// does, however that comes.
///
/// # Errors
/// There is no directory, or the kernel lets this user mount nothing, or `work` failed.
pub fn with_own_mounts<T: Send>(
    work: impl FnOnce(&Path) -> Result<T, HostError> + Send,
) -> Result<T, HostError> {
    let parent = std::env::temp_dir();
    let doing = || HostError::io(format!("making a directory in {}", parent.display()));
    // Made before the thread is: who removes it must see it without the mounts.
    let scratch = Scratch::new(&parent, "mount").map_err(doing())?;
    let path = scratch.path();
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            own_mounts()?;
            work(path)
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Gives the calling thread mounts of its own, and those that it will start.
fn own_mounts() -> Result<(), HostError> {
    let refused = |source: io::Error| match source.raw_os_error() {
        Some(libc::EPERM) => HostError::Unsupported(
            "this user may not mount a file system: run it as root, or with \
             `unshare --user --map-root-user --mount`"
                .to_owned(),
        ),
        _ => HostError::Io {
            doing: "making mounts of its own".to_owned(),
            source,
        },
    };
    // SAFETY: takes an integer.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(refused(io::Error::last_os_error()));
    }
    let private = libc::MS_REC | libc::MS_PRIVATE;
    mount(OsStr::new("none"), Path::new("/"), None, private, "").map_err(refused)
}

/// Mounts a tmpfs of at most `bytes` without huge pages. Returns what it is, in words.
///
/// # Errors
/// The kernel refused.
pub fn mount_tmpfs(at: &Path, bytes: u64) -> Result<String, HostError> {
    let size = format!("size={bytes}");
    let without = format!("{size},huge=never");
    let tmpfs = OsStr::new("tmpfs");
    match mount(tmpfs, at, Some("tmpfs"), 0, &without) {
        Ok(()) => Ok("a tmpfs of its own, huge=never".to_owned()),
        // A kernel without huge pages does not know the option.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            mount(tmpfs, at, Some("tmpfs"), 0, &size).map_err(HostError::io("mounting a tmpfs"))?;
            Ok("a tmpfs of its own, of a kernel without huge pages".to_owned())
        }
        Err(source) => Err(HostError::Io {
            doing: "mounting a tmpfs".to_owned(),
            source,
        }),
    }
}

fn mount(
    source: &OsStr,
    target: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    options: &str,
) -> io::Result<()> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let (source, target) = (
        text(source.as_bytes())?,
        text(target.as_os_str().as_bytes())?,
    );
    let kind = kind.map(|kind| text(kind.as_bytes())).transpose()?;
    let options = text(options.as_bytes())?;
    let kind = kind.as_ref().map_or(ptr::null(), |kind| kind.as_ptr());
    // SAFETY: the strings end in a zero byte and outlive the call, which keeps none of
    // them; a null type is allowed where none is needed.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind,
            flags,
            options.as_ptr().cast(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls `work` with a directory on an ext4 of `bytes`, mounted for the purpose, or on
/// whatever there is where that cannot be, and with what it is on, in words. `name` is that
/// of the directory.
///
/// # Errors
/// There is no directory.
pub fn on_ext4<T: Send>(
    name: &str,
    bytes: u64,
    mut work: impl FnMut(&Path, &str) -> T + Send,
) -> Result<T, HostError> {
    let parent = std::env::temp_dir();
    let own = with_own_mounts(|directory| {
        Ok(match mount_ext4(directory, bytes) {
            Ok(ext4) => work(&ext4, "ext4, mounted from a file for the purpose"),
            Err(why) => {
                let (kind, parent) = (file_system(directory), parent.display());
                let place = format!("{kind} ({parent}), as no ext4 can be mounted ({why})");
                work(directory, &place)
            }
        })
    });
    match own {
        Err(HostError::Unsupported(_)) => {
            let doing = HostError::io(format!("making a directory in {}", parent.display()));
            let scratch = Scratch::new(&parent, name).map_err(doing)?;
            let (kind, parent) = (file_system(scratch.path()), parent.display());
            let place = format!("{kind} ({parent}), as this user may mount nothing");
            Ok(work(scratch.path(), &place))
        }
        done => done,
    }
}

/// Mounts an ext4 of `bytes` below `directory`, in a file there. Returns what is in the
/// way if it cannot.
///
/// # Errors
/// What is in the way, in words.
fn mount_ext4(directory: &Path, bytes: u64) -> Result<std::path::PathBuf, String> {
    let (image, at) = (directory.join("image"), directory.join("ext4"));
    let file = std::fs::File::create(&image);
    let made = file.and_then(|file| file.set_len(bytes));
    made.and_then(|()| std::fs::create_dir(&at))
        .map_err(|error| format!("no room for its image: {error}"))?;
    let run = |command: &mut Command, name: &str| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find(|line| !line.trim().is_empty());
            Err(format!("{name}: {}", line.unwrap_or("it failed").trim()))
        }
        Err(error) => Err(format!("{name}: {error}")),
    };
    let mut mkfs = Command::new("mkfs.ext4");
    run(mkfs.args(["-q", "-F"]).arg(&image), "mkfs.ext4")?;
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "ext4", "-o", "loop"])
        .arg(&image)
        .arg(&at);
    run(&mut mount, "mount -o loop")?;
    Ok(at)
}

/// The type of the file system that `path` is on, as `/proc/self/mountinfo` names it.
pub fn file_system(path: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let at = before.split(' ').nth(4)?;
        let kind = after.split(' ').next()?;
        path.starts_with(at).then(|| (at.len(), kind.to_owned()))
    };
    // Of mounts at the same place the last one is seen.
    let found = mounts
        .lines()
        .filter_map(of_line)
        .max_by_key(|found| found.0);
    found.map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tmpfs_is_seen_by_its_thread_alone_and_leaves_nothing() {
        let mounted = with_own_mounts(|directory| {
            mount_tmpfs(directory, 1 << 20)?;
            let file = directory.join("file");
            std::fs::write(&file, "text").map_err(HostError::io("writing"))?;
            assert_eq!(file_system(&file), "tmpfs");
            let seen = thread::scope(|scope| scope.spawn(|| file.exists()).join());
            assert!(seen.is_ok_and(|seen| seen), "its threads see it");
            Ok(directory.to_owned())
        });
        match mounted {
            Ok(directory) => assert!(!directory.exists()),
            // Not everybody may mount.
            Err(HostError::Unsupported(text)) => assert!(text.contains("as root"), "{text}"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_file_system_of_a_path_is_named() {
        assert_eq!(file_system(Path::new("/proc/self")), "proc");
    }
}
