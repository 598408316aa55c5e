//! The recorded command: started, held before `exec`, and released when the
//! events are open.
//!
//! Holding it with a pipe rather than a stop signal keeps it an ordinary member
//! of the terminal's foreground group: Ctrl-C reaches it as if it ran alone.

use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::ptr;

use crate::error::RecordError;

const PR_SET_THP_DISABLE: libc::c_int = 41;

/// A started command that waits for [`Child::release`].
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    go: Option<OwnedFd>,
    failure: OwnedFd,
    name: String,
    reaped: bool,
}

/// How the command ended, and what it cost.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// Wait status as the kernel gives it.
    status: libc::c_int,
    /// User and system time of the command and the descendants it waited for,
    /// in seconds.
    pub cpu_seconds: f64,
}

impl Ending {
    /// The exit code as a shell reports it: 128 + n after signal n.
    pub fn exit_code(&self) -> u8 {
        if libc::WIFSIGNALED(self.status) {
            return 128u8.wrapping_add(libc::WTERMSIG(self.status) as u8);
        }
        libc::WEXITSTATUS(self.status) as u8
    }
}

/// User and system time in seconds.
fn cpu_seconds(usage: &libc::rusage) -> f64 {
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// CPU time that this process has used itself, all its threads, in seconds.
pub fn own_cpu_seconds() -> f64 {
    // SAFETY: an all-zero `rusage` is a valid value of plain integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct outlives the call.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    cpu_seconds(&usage)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new and owned by nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

impl Child {
    /// Starts `command` without letting it run. With `thp_off` it and its
    /// descendants get no transparent huge pages.
    pub fn hold(command: &[OsString], thp_off: bool) -> Result<Child, RecordError> {
        let name = command[0].to_string_lossy().into_owned();
        let failed = |source| RecordError::Command {
            command: name.clone(),
            source,
        };
        let words: Result<Vec<CString>, _> = command
            .iter()
            .map(|word| CString::new(word.clone().into_vec()))
            .collect();
        let words = words.map_err(|error| failed(error.into()))?;
        let mut argv: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
        argv.push(ptr::null());
        let (go_read, go_write) = pipe().map_err(failed)?;
        let (failure_read, failure_write) = pipe().map_err(failed)?;
        // SAFETY: the child calls only async-signal-safe functions on data that
        // was made before the fork, until it executes the command or exits.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        if pid == 0 {
            // SAFETY: as above; the pointers in `argv` are live in the copy of
            // this address space, and `argv` ends in a null pointer.
            unsafe {
                // This process ignores these; the command must not inherit that.
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                if thp_off {
                    libc::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
                }
                libc::close(go_write.as_raw_fd());
                let mut byte = 0u8;
                let got = libc::read(go_read.as_raw_fd(), (&raw mut byte).cast(), 1);
                if got == 1 {
                    libc::execvp(argv[0], argv.as_ptr());
                    let error = *libc::__errno_location();
                    libc::write(failure_write.as_raw_fd(), (&raw const error).cast(), 4);
                }
                libc::_exit(127);
            }
        }
        Ok(Child {
            pid,
            go: Some(go_write),
            failure: failure_read,
            name,
            reaped: false,
        })
    }

    /// The command's process id.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Lets the command run. Fails if it cannot be executed.
    pub fn release(&mut self) -> Result<(), RecordError> {
        let failed = |name: &str, source| RecordError::Command {
            command: name.to_owned(),
            source,
        };
        let go = self.go.take().expect("a child is released once");
        let mut go = std::fs::File::from(go);
        go.write_all(&[1])
            .map_err(|error| failed(&self.name, error))?;
        drop(go);
        let copy = self.failure.try_clone();
        let mut failure = std::fs::File::from(copy.map_err(|error| failed(&self.name, error))?);
        let mut bytes = [0; 4];
        // The pipe closes without a word when the command is executed.
        match failure.read_exact(&mut bytes) {
            Ok(()) => {
                let error = io::Error::from_raw_os_error(i32::from_ne_bytes(bytes));
                Err(failed(&self.name, error))
            }
            Err(_) => Ok(()),
        }
    }

    /// Sends a signal to the command.
    pub fn signal(&self, signal: libc::c_int) {
        if !self.reaped {
            // SAFETY: the process is our child and not yet waited for, so the id
            // is still its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Passes a signal on that asks this process to end. One that comes from a key
    /// has reached the command already if it is in the terminal's foreground group, as
    /// this process is.
    pub fn pass_on(&self, signal: libc::c_int) {
        let has_key = matches!(signal, libc::SIGINT | libc::SIGQUIT);
        // SAFETY: takes integers; fails without a terminal.
        let foreground = unsafe { libc::tcgetpgrp(libc::STDERR_FILENO) == libc::getpgrp() };
        if !(has_key && foreground) {
            self.signal(signal);
        }
    }

    /// How the command ended; `None` while it runs.
    pub fn try_wait(&mut self) -> io::Result<Option<Ending>> {
        let mut status = 0;
        // SAFETY: an all-zero `rusage` is a valid value of plain integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: status and usage outlive the call.
        let pid = unsafe { libc::wait4(self.pid, &mut status, libc::WNOHANG, &mut usage) };
        if pid < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        if pid == 0 {
            return Ok(None);
        }
        self.reaped = true;
        Ok(Some(Ending {
            status,
            cpu_seconds: cpu_seconds(&usage),
        }))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.go = None;
        if !self.reaped {
            self.signal(libc::SIGKILL);
            // SAFETY: our own child; a null status is allowed.
            unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
        }
    }
}
