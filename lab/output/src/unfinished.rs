//! What a signal that ends the program has to end and to remove first: process
//! groups of its children, and files.
//!
//! A signal handler may neither allocate nor lock. So the names lie, ready for the
//! system call, in a fixed array of places, and each is taken out of its place by
//! one exchange, either by its owner or by the handler: nobody reads a name that
//! somebody else frees. The numbers of groups lie in another such array.
//!
//! These signals end the program only if nothing in it obeys them ([`obeyed`]); they
//! then do what they would have done without a handler. Signals that the program was started to ignore
//! (SIGHUP under `nohup`) stay ignored.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level;

use crate::directory::{Directory, c_name, remove_at};

/// Signals with which users and systems end programs.
const SIGNALS: [c_int; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// More than any command writes at once.
const PLACES: usize = 64;

/// What is to be removed: a name in a directory, or a path.
#[derive(Debug)]
struct Name {
    directory: Option<Directory>,
    name: CString,
}

impl Name {
    fn remove(&self) {
        match &self.directory {
            Some(directory) => directory.remove(&self.name),
            None => remove_at(libc::AT_FDCWD, &self.name),
        }
    }
}

/// The names; null where there is none.
static NAMES: [AtomicPtr<Name>; PLACES] = [const { AtomicPtr::new(ptr::null_mut()) }; PLACES];

/// More groups than this at once are not on the list.
const MOST_GROUPS: usize = 1024;

/// Process groups; 0 where there is none.
static GROUPS: [AtomicI32; MOST_GROUPS] = [const { AtomicI32::new(0) }; MOST_GROUPS];

/// The signals that somebody obeys, a bit for each number.
static OBEYED: AtomicU64 = AtomicU64::new(0);

/// The name of a file, or of an empty directory, that goes with the program if a
/// signal ends it while this value is there. Dropping the value removes nothing.
#[derive(Debug)]
pub struct Unfinished {
    place: &'static AtomicPtr<Name>,
}

impl Unfinished {
    /// Puts `path` on the list. What was put there last is removed first, so a
    /// directory comes before what is in it.
    ///
    /// # Errors
    /// The path cannot be that of a file, there are too many already, or the
    /// operating system refused the handlers.
    pub fn new(path: &Path) -> io::Result<Self> {
        let name = c_name(path.as_os_str())?;
        Self::on_the_list(Name {
            directory: None,
            name,
        })
    }

    /// Puts the file `name` of a directory on the list, wherever the directory is moved.
    ///
    /// # Errors
    /// As [`Unfinished::new`].
    pub(crate) fn within(directory: &Directory, name: &CStr) -> io::Result<Self> {
        Self::on_the_list(Name {
            directory: Some(directory.try_clone()?),
            name: name.to_owned(),
        })
    }

    fn on_the_list(name: Name) -> io::Result<Self> {
        catch_signals()?;
        let name = Box::into_raw(Box::new(name));
        let free = NAMES.iter().find(|place| {
            let null = ptr::null_mut();
            let taken = place.compare_exchange(null, name, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        });
        free.map(|place| Unfinished { place }).ok_or_else(|| {
            // SAFETY: made by `into_raw` above, and in no place.
            drop(unsafe { Box::from_raw(name) });
            io::Error::other(format!("more than {PLACES} unfinished files at once"))
        })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let name = self.place.swap(ptr::null_mut(), Ordering::AcqRel);
        if !name.is_null() {
            // SAFETY: made by `into_raw`, and the exchange made it ours alone.
            drop(unsafe { Box::from_raw(name) });
        }
    }
}

/// A process group that is killed if a signal ends the program while this value is
/// there. Dropping the value kills nothing.
#[derive(Debug)]
pub struct Group {
    /// None if there was no place left.
    place: Option<&'static AtomicI32>,
}

impl Group {
    /// Puts the group of `leader` on the list, a child that is not waited for
    /// while this value is there.
    pub fn new(leader: libc::pid_t) -> Self {
        let place = GROUPS.iter().find(|place| {
            let taken = place.compare_exchange(0, leader, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        });
        Self { place }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.store(0, Ordering::Release);
        }
    }
}

/// From now on `signal` ends the program only through somebody who obeys it, and calls
/// [`remove_all`] if that means to end it at once.
pub fn obeyed(signal: c_int) {
    OBEYED.fetch_or(1 << signal, Ordering::Release);
}

/// Kills and removes everything that is on the lists, for a program that is about
/// to end. Safe in a signal handler.
pub fn remove_all() {
    for place in &GROUPS {
        let leader = place.swap(0, Ordering::AcqRel);
        if leader > 0 {
            // SAFETY: takes integers only, and may be called in a handler.
            unsafe { libc::kill(-leader, libc::SIGKILL) };
        }
    }
    for place in NAMES.iter().rev() {
        let name = place.swap(ptr::null_mut(), Ordering::AcqRel);
        if name.is_null() {
            continue;
        }
        // SAFETY: made by `into_raw`; the exchange made it ours alone, and it is never
        // freed.
        unsafe { &*name }.remove();
    }
}

/// Installs the handlers, once.
fn catch_signals() -> io::Result<()> {
    static CAUGHT: Mutex<bool> = Mutex::new(false);
    let mut caught = CAUGHT.lock().unwrap_or_else(|error| error.into_inner());
    if *caught {
        return Ok(());
    }
    for signal in SIGNALS {
        if is_ignored(signal)? {
            continue;
        }
        let end = move || {
            if OBEYED.load(Ordering::Acquire) & 1 << signal == 0 {
                remove_all();
                // Does not fail for these signals, which end the program.
                let _ = low_level::emulate_default_handler(signal);
            }
        };
        // SAFETY: what the handler does (an atomic load, `remove_all`, the
        // signal's default) is safe in one.
        unsafe { low_level::register(signal, end) }?;
    }
    *caught = true;
    Ok(())
}

/// Whether the program was started to ignore `signal`, or ignores it by now.
///
/// # Errors
/// There is no such signal.
pub fn is_ignored(signal: c_int) -> io::Result<bool> {
    // SAFETY: all zeroes is a valid value of this struct of integers and null
    // pointers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the present action only, which the struct has room for.
    match unsafe { libc::sigaction(signal, ptr::null(), &mut action) } {
        0 => Ok(action.sa_sigaction == libc::SIG_IGN),
        _ => Err(io::Error::last_os_error()),
    }
}
