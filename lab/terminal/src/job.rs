//! Programs, each in a process group of its own.
//!
//! The group is what makes an interruption complete: when a [`Job`] ends, or is
//! dropped because the user pressed Ctrl-C, everything that it started and that
//! is still in its group is killed and waited for. This process becomes the
//! reaper of orphaned descendants for that purpose. If a signal ends this process
//! before that, a second Ctrl-C or a hang-up, the group is killed all the same.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus};
use std::ptr;
use std::time::{Duration, Instant};

use vellum_output::unfinished::Group;

use crate::progress::Interrupt;

/// How long a wait goes on before it looks whether the user wants to stop.
pub const WATCH: Duration = Duration::from_millis(100);

/// What a program used, with all descendants that were waited for.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// Seconds in user code.
    pub user_s: f64,
    /// Seconds in the kernel.
    pub system_s: f64,
    /// Page faults that needed no input.
    pub faults: u64,
    /// The largest resident set that one of its processes had, in bytes.
    pub resident_bytes: u64,
    /// Times that a process had to give up its CPU.
    pub preempted: u64,
    /// Times that a process waited for something.
    pub slept: u64,
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// What the whole tree used.
    pub usage: Usage,
    /// When it ended.
    pub at: Instant,
}

/// The user asked to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped;

/// A running program.
#[derive(Debug)]
pub struct Job {
    pid: libc::pid_t,
    /// What it prints, if its command has pipes for that.
    pub stdout: Option<ChildStdout>,
    /// What it says on standard error, likewise.
    pub stderr: Option<ChildStderr>,
    /// Readable when the program has ended.
    pidfd: OwnedFd,
    /// None when it has ended.
    group: Option<Group>,
    ended: Option<Ended>,
}

impl Job {
    /// Starts `command` as the leader of a new process group.
    ///
    /// # Errors
    /// The program cannot be executed.
    pub fn start(command: &mut Command) -> io::Result<Job> {
        // SAFETY: takes integers only.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let mut child = command.process_group(0).spawn()?;
        let pid = child.id() as libc::pid_t;
        let group = Group::new(pid);
        // SAFETY: takes integers only; the child is not waited for yet, so that
        // the id is its own.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            end_group(pid, Some(group));
            return Err(error);
        }
        Ok(Job {
            pid,
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            // SAFETY: the descriptor is new and owned by nobody else.
            pidfd: unsafe { OwnedFd::from_raw_fd(fd as i32) },
            group: Some(group),
            ended: None,
        })
    }

    /// Its process id, and that of its group.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Sends a signal to its whole group, if it runs.
    pub fn signal(&self, signal: libc::c_int) {
        if self.ended.is_none() {
            // SAFETY: takes integers only. `pid` names our child until it is waited for, so the
            // group is its own.
            unsafe { libc::kill(-self.pid, signal) };
        }
    }

    /// Waits until it ends. If the user asks to stop, the group is sent SIGTERM once, and is waited
    /// for all the same.
    pub fn wait(&mut self, interrupt: &Interrupt) -> Ended {
        let mut is_told = false;
        loop {
            if let Some(ended) = self.ended {
                return ended;
            }
            if interrupt.requested() && !is_told {
                is_told = true;
                self.signal(libc::SIGTERM);
            }
            if ready(&[&*self]).contains(&true) {
                self.reap();
            }
        }
    }

    /// Takes note of the end of a program whose descriptor is readable.
    fn reap(&mut self) {
        let at = Instant::now();
        let (status, usage) = end_group(self.pid, self.group.take());
        self.ended = Some(Ended { status, usage, at });
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.ended.is_none() {
            end_group(self.pid, self.group.take());
        }
    }
}

/// Kills what there is of the group of our child `pid`, which has not been
/// waited for, and waits for all of it.
fn end_group(pid: libc::pid_t, group: Option<Group>) -> (ExitStatus, Usage) {
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is a valid value of plain integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: takes integers only. `pid` names our child until it is waited for,
    // ended or not, so the group is its own.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
    // Its number may be another group's once the child has been waited for.
    drop(group);
    // SAFETY: `status` and `usage` outlive the calls; a null status is allowed.
    unsafe {
        while libc::wait4(pid, &mut status, 0, &mut usage) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        // Orphans of the group are ours by now, as this process is their reaper.
        while libc::waitpid(-pid, ptr::null_mut(), 0) > 0
            || *libc::__errno_location() == libc::EINTR
        {}
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let count = |count: libc::c_long| count.max(0) as u64;
    let usage = Usage {
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        faults: count(usage.ru_minflt),
        resident_bytes: count(usage.ru_maxrss) << 10,
        preempted: count(usage.ru_nivcsw),
        slept: count(usage.ru_nvcsw),
    };
    (ExitStatus::from_raw(status), usage)
}

/// Which of these running programs have ended, within [`WATCH`].
fn ready(jobs: &[&Job]) -> Vec<bool> {
    let entries = jobs.iter().map(|job| libc::pollfd {
        fd: job.pidfd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let mut entries: Vec<libc::pollfd> = entries.collect();
    // SAFETY: the entries outlive the call, and there are as many as stated.
    let count = unsafe {
        let count = entries.len() as libc::nfds_t;
        libc::poll(entries.as_mut_ptr(), count, WATCH.as_millis() as i32)
    };
    entries
        .iter()
        .map(|entry| count > 0 && entry.revents != 0)
        .collect()
}

/// Waits until all `jobs` have ended. `check` is asked about each that ended
/// and may end the wait with an error.
///
/// # Errors
/// The user asked to stop, or `check` said so. Jobs that still run are killed
/// when they are dropped.
pub fn finish<E: From<Stopped>>(
    jobs: &mut [Job],
    interrupt: &Interrupt,
    mut check: impl FnMut(usize, &Ended) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        let running: Vec<usize> = (0..jobs.len())
            .filter(|&job| jobs[job].ended.is_none())
            .collect();
        if running.is_empty() {
            return Ok(());
        }
        if interrupt.requested() {
            return Err(Stopped.into());
        }
        let are_ready = ready(&running.iter().map(|&job| &jobs[job]).collect::<Vec<_>>());
        for (&job, is_ready) in running.iter().zip(are_ready) {
            if is_ready {
                jobs[job].reap();
                if let Some(ended) = &jobs[job].ended {
                    check(job, ended)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_counted() {
        let mut jobs = [shell("sleep 0.01; sleep 0.01")];
        let nobody = Interrupt::manual();
        finish(&mut jobs, &nobody, |_, _| Ok::<(), Stopped>(())).expect("nobody interrupts");
        let usage = jobs[0].ended().expect("it has ended").usage;
        assert!(usage.slept >= 2, "{usage:?}");
    }

    fn shell(script: &str) -> Job {
        Job::start(Command::new("sh").args(["-c", script])).expect("sh can be started")
    }

    #[test]
    fn the_usage_is_that_of_the_whole_tree() {
        // Arithmetic in a grandchild.
        let work = "sh -c 'i=0; while test $i -lt 20000; do i=$((i+1)); done' & wait";
        let mut jobs = [shell(work)];
        finish(&mut jobs, &Interrupt::manual(), |_, ended| {
            assert!(ended.status.success());
            Ok::<(), Stopped>(())
        })
        .expect("nobody interrupts");
        let usage = jobs[0].ended().expect("it has ended").usage;
        assert!(usage.user_s + usage.system_s > 0.0, "{usage:?}");
    }

    #[test]
    fn dropping_a_job_kills_its_whole_group() {
        let mut reader = {
            let (reader, writer) = io::pipe().expect("a pipe");
            let mut command = Command::new("sh");
            // A grandchild, orphaned at once, holds the pipe open.
            command.args(["-c", "(sleep 1000 & echo started; sleep 1000) & wait"]);
            let job = Job::start(command.stdout(writer)).expect("sh can be started");
            drop(command);
            let mut reader = io::BufReader::new(reader);
            let mut line = String::new();
            io::BufRead::read_line(&mut reader, &mut line).expect("a line");
            assert_eq!(line, "started\n");
            drop(job);
            reader
        };
        // Ends only when nobody has the other end of the pipe any more.
        let mut rest = String::new();
        io::Read::read_to_string(&mut reader, &mut rest).expect("the end");
        assert_eq!(rest, "");
    }

    #[test]
    fn an_interruption_ends_the_wait() {
        let interrupt = Interrupt::manual();
        interrupt.request();
        let mut jobs = [shell("sleep 1000")];
        let ended = finish(&mut jobs, &interrupt, |_, _| Ok::<(), Stopped>(()));
        assert!(ended == Err(Stopped));
    }

    #[test]
    fn a_program_that_is_waited_for_is_asked_to_end_when_the_user_wants_it() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap 'exit 7' TERM; echo; while :; do sleep 0.01; done",
        ]);
        let job = Job::start(command.stdout(std::process::Stdio::piped()));
        let mut job = job.expect("sh can be started");
        // The trap is set when it speaks.
        let mut line = String::new();
        let mut said = io::BufReader::new(job.stdout.take().expect("a pipe"));
        io::BufRead::read_line(&mut said, &mut line).expect("a line");
        let interrupt = Interrupt::manual();
        interrupt.request();
        assert_eq!(job.wait(&interrupt).status.code(), Some(7));
        let mut job = shell("exit 3");
        assert_eq!(job.wait(&Interrupt::manual()).status.code(), Some(3));
    }

    #[test]
    fn several_programs_are_waited_for_together() {
        let mut jobs: Vec<Job> = (0..5).map(|code| shell(&format!("exit {code}"))).collect();
        let mut seen = Vec::new();
        finish(&mut jobs, &Interrupt::manual(), |job, ended| {
            seen.push((job, ended.status.code()));
            Ok::<(), Stopped>(())
        })
        .expect("nobody interrupts");
        seen.sort_unstable();
        let expected: Vec<_> = (0..5).map(|code| (code, Some(code as i32))).collect();
        assert_eq!(seen, expected);
    }
}
