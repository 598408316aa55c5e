//! Watching what is recorded, with the events going to a spool: a command that is started for it,
//! or processes that run already.

use std::ffi::OsString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use crate::accesses::{Marks, Sampling};
use crate::beginning::Beginning;
use crate::child::{Child, Ending, own_cpu_seconds};
use crate::clock::monotonic_ns;
use crate::error::RecordError;
use crate::price::{Counts, Prices};
use crate::processes::Tree;
use crate::session::{Drain, Session};
use crate::spool::Spool;
use crate::target::Running;
use crate::tracepoint::Layout;
use crate::write::{Attached, Recorded, Subject};
use vellum_terminal::progress::Interrupt;

/// How often the recorder looks whether it was interrupted.
const WATCH_MS: libc::c_int = 200;

/// What ended a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// What was recorded ended.
    ByItself,
    /// Its time was over.
    Time,
    /// The user asked for it.
    Interrupt,
}

/// The events of a recording and where they go.
pub struct Events<'a> {
    pub layouts: &'a [Layout],
    /// Bytes of buffer for each CPU, a power of two.
    pub buffer: usize,
    pub spool: Spool,
    pub marks: Option<(Marks, Duration)>,
    /// After how long the recording ends at the latest.
    pub duration: Option<Duration>,
}

/// One run of what is recorded.
pub struct Run {
    pub ended: Ended,
    /// How the command ended, if it did.
    pub ending: Option<Ending>,
    /// The command, if it did not.
    pub child: Option<Child>,
    pub seconds: f64,
    /// What was recorded, if the run was.
    pub recorded: Option<Recorded>,
}

/// A session whose events go to a spool.
struct Recorder {
    drain: Drain,
    prices: Prices,
    /// CPU time that the recorder took to begin, and of which the rest counts from, in seconds.
    beginning_seconds: f64,
    after_seconds: f64,
    sampling: Option<Sampling>,
    cpus: usize,
    without_transfers: Option<String>,
    without_switches: Option<String>,
    /// When the events were enabled, by two clocks.
    began: SystemTime,
    began_ns: u64,
}

impl Recorder {
    /// Opens the events and enables them. `tree` gives the processes whose accessed marks are
    /// sampled.
    fn start(events: Events<'_>, tree: impl FnOnce() -> Tree) -> Result<Recorder, RecordError> {
        let measured =
            |counts| Prices::measure(counts).map_err(RecordError::io("cannot measure prices"));
        let without = measured(Counts::LowerQuartile)?;
        let before = own_cpu_seconds();
        let mut session = Session::open(events.layouts, events.buffer)?;
        let cpus = session.cpus();
        let without_transfers = session.without_transfers().map(str::to_owned);
        let without_switches = session.without_switches().map(str::to_owned);
        let (began, began_ns) = (SystemTime::now(), monotonic_ns());
        session
            .enable()
            .map_err(RecordError::io("cannot enable the events"))?;
        let drain = session
            .drain_into(events.spool)
            .map_err(RecordError::io("cannot start the drain thread"))?;
        let beginning_seconds = own_cpu_seconds() - before;
        let prices = measured(Counts::UpperQuartile)?.above(&without);
        let after_seconds = own_cpu_seconds();
        let sampling = events
            .marks
            .map(|(marks, interval)| Sampling::start(tree(), interval, marks));
        let sampling = sampling.transpose();
        Ok(Recorder {
            drain,
            prices,
            beginning_seconds,
            after_seconds,
            sampling: sampling.map_err(RecordError::io("cannot start the sampling thread"))?,
            cpus,
            without_transfers,
            without_switches,
            began,
            began_ns,
        })
    }

    fn finish(self, subject: Subject) -> Recorded {
        let used = self.sampling.map_or_else(Vec::new, Sampling::finish);
        let drained = self.drain.finish();
        let own_calls = Prices::PASSED_CALLS;
        Recorded {
            spool: drained.spool,
            prices: self.prices,
            passed_calls: drained.passed_calls.saturating_sub(own_calls),
            recorder_seconds: self.beginning_seconds + own_cpu_seconds() - self.after_seconds,
            cpus: self.cpus,
            without_transfers: self.without_transfers,
            without_switches: self.without_switches,
            used,
            began: self.began,
            subject,
        }
    }
}

/// Runs the command with its events going to the spool.
pub fn run_recorded(
    command: &[OsString],
    events: Events<'_>,
    interrupt: &Interrupt,
) -> Result<Run, RecordError> {
    let child = Child::hold(command, true)?;
    let root = child.pid() as u32;
    let duration = events.duration;
    let recorder = Recorder::start(events, || Tree::of(&[root]))?;
    let run = watch(child, duration, interrupt);
    let recorded = recorder.finish(Subject::Command { root });
    Ok(Run {
        recorded: Some(recorded),
        ..run?
    })
}

/// Runs the command as it is recorded, huge pages off, but unobserved.
pub fn run_plain(command: &[OsString], interrupt: &Interrupt) -> Result<Run, RecordError> {
    watch(Child::hold(command, true)?, None, interrupt)
}

/// Records processes that run already, until they end, the time is over or the user asks.
pub fn attach(
    running: &mut Running,
    events: Events<'_>,
    interrupt: &Interrupt,
) -> Result<Run, RecordError> {
    let duration = events.duration;
    let recorder = Recorder::start(events, || running.tree())?;
    let beginning = Beginning::read(|| running.processes());
    if beginning.snapshots.is_empty() {
        let why = match beginning.unreadable {
            0 => "the processes to be recorded have ended".to_owned(),
            _ => {
                "none of the processes to be recorded may be read by this user; run vellum as root"
                    .to_owned()
            }
        };
        return Err(RecordError::Target(why));
    }
    let started = Instant::now();
    let until = duration.map(|duration| started + duration);
    let ended = loop {
        if interrupt.requested() {
            break Ended::Interrupt;
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            break Ended::Time;
        }
        if running.wait(patience(until)) {
            break Ended::ByItself;
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    let huge_at_end = beginning.huge_now();
    let began_ns = recorder.began_ns;
    let attached = Attached {
        beginning,
        began_ns,
        what: running.describe().1,
        huge_at_end,
    };
    let recorded = recorder.finish(Subject::Running(attached));
    Ok(Run {
        ended,
        ending: None,
        child: None,
        seconds,
        recorded: Some(recorded),
    })
}

/// Releases the command and waits for its end, or for the end of the time.
fn watch(
    mut child: Child,
    duration: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<Run, RecordError> {
    let started = Instant::now();
    child.release()?;
    let until = duration.map(|duration| started + duration);
    let ending = until_end(&mut child, until, interrupt)?;
    Ok(Run {
        ended: match ending {
            Some(_) => Ended::ByItself,
            None => Ended::Time,
        },
        ending,
        child: ending.is_none().then_some(child),
        seconds: started.elapsed().as_secs_f64(),
        recorded: None,
    })
}

/// Waits for the end of a command; `None`: it goes on after the time is over. A signal that asks
/// this process to end is passed on to the command, and its end awaited all the same.
pub fn until_end(
    child: &mut Child,
    until: Option<Instant>,
    interrupt: &Interrupt,
) -> Result<Option<Ending>, RecordError> {
    // SAFETY: takes two integers.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.pid(), 0) };
    if pidfd < 0 {
        let error = std::io::Error::last_os_error();
        return Err(RecordError::io("cannot watch the command")(error));
    }
    // SAFETY: a new descriptor that nobody else owns.
    let _owned = unsafe { OwnedFd::from_raw_fd(pidfd as libc::c_int) };
    let mut told = None;
    loop {
        let mut wait = libc::pollfd {
            fd: pidfd as libc::c_int,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry that outlives the call.
        unsafe { libc::poll(&mut wait, 1, patience(until)) };
        let ended = child.try_wait();
        if let Some(ending) = ended.map_err(RecordError::io("cannot wait for the command"))? {
            return Ok(Some(ending));
        }
        let signal = interrupt.signal();
        if let Some(signal) = signal.filter(|signal| told != Some(*signal)) {
            told = Some(signal);
            child.pass_on(signal);
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return Ok(None);
        }
    }
}

/// Milliseconds to wait before something is looked at again.
fn patience(until: Option<Instant>) -> libc::c_int {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map_or(u128::MAX, |left| left.as_millis() + 1);
    left.min(WATCH_MS as u128) as libc::c_int
}
