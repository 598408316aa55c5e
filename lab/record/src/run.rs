//! A recording from beginning to end.

use std::path::PathBuf;
use std::time::Duration;

use crate::accesses::Marks;
use crate::child::Child;
use crate::error::RecordError;
use crate::groups;
use crate::notes;
use crate::place::{Place, directory_of};
use crate::price::Cost;
use crate::session::Session;
use crate::spool::Spool;
use crate::target::{Running, Target};
use crate::tracefs::Tracefs;
use crate::tracepoint;
use crate::watch::{self, Ended, Events, Run};
use crate::write;
use vellum_terminal::progress::{Interrupt, Style, say};
use vellum_trace::{Accesses, DEFAULT_LEVEL, Header, TraceError};

/// What to record and where to.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to record.
    pub target: Target,
    /// After how long the recording ends, if what is recorded has not ended.
    pub duration: Option<Duration>,
    /// Where the trace goes.
    pub output: PathBuf,
    /// Bytes of buffer for each CPU; rounded up to a power of two.
    pub buffer: usize,
    /// Keep a trace although events were lost.
    pub allow_lost: bool,
    /// Compression level of the trace (zstd's scale).
    pub level: i32,
    /// How often accessed marks are sampled, if they are.
    pub accesses: Option<Duration>,
    /// How progress is shown while the trace is written.
    pub style: Style,
}

impl Options {
    /// Bytes of buffer for each CPU that are enough for most.
    pub const BUFFER: usize = 8 << 20;

    /// To record `target` to its end, in silence, with [`Options::BUFFER`].
    pub fn new(target: Target, output: PathBuf) -> Options {
        Options {
            target,
            duration: None,
            output,
            buffer: Options::BUFFER,
            allow_lost: false,
            level: DEFAULT_LEVEL,
            accesses: None,
            style: Style::Quiet,
        }
    }
}

/// What a recording came to.
#[derive(Debug)]
pub struct Recording {
    /// Where the trace is.
    pub path: PathBuf,
    /// Why it is not where it was to be, if it is not.
    pub elsewhere: Option<String>,
    /// Why it ends before what was recorded did, if that is for want of room.
    pub cut_short: Option<String>,
    /// What ended the recording.
    pub ended: Ended,
    /// The command's exit code, as a shell reports it; 0 for processes that ran already.
    pub exit_code: u8,
    /// The command, if it has not ended.
    pub going_on: Option<GoingOn>,
    /// What of running processes was found, in a sentence.
    pub beginning: Option<String>,
    /// What huge pages hide, in a sentence, unless they were switched off.
    pub huge_pages: Option<String>,
    /// Events in the trace.
    pub events: u64,
    /// Length of the trace in bytes.
    pub bytes: u64,
    /// Events that the kernel dropped.
    pub lost: u64,
    /// How long the recording took, in seconds.
    pub seconds: f64,
    /// What recording cost.
    pub cost: Cost,
    /// CPU time of what was recorded, in seconds, if that is known.
    pub ran_seconds: Option<f64>,
    /// Bytes of raw records that the kernel delivered.
    pub record_bytes: u64,
    /// Tracefs was not mounted; the kernel's events were looked up in a mount
    /// for this process alone, which is gone.
    pub own_tracefs: bool,
    /// Why the trace has no CPU times, if it has none.
    pub without_cpu_times: Option<String>,
    /// How accessed marks were sampled, if they were.
    pub accesses: Option<Accesses>,
}

/// A command that goes on after its recording. It ends when this is dropped.
#[derive(Debug)]
pub struct GoingOn(Child);

impl GoingOn {
    /// Waits for its end and gives its exit code, as a shell reports it. Signals that ask this
    /// process to end are passed on to it.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(mut self, interrupt: &Interrupt) -> Result<u8, RecordError> {
        let ending = watch::until_end(&mut self.0, None, interrupt)?;
        Ok(ending.map_or(0, |ending| ending.exit_code()))
    }
}

/// Checks that this process may record, opening every event once.
///
/// # Errors
/// The message names the one thing that is missing and how to grant it.
pub fn check_permission() -> Result<(), RecordError> {
    let layouts = tracepoint::read_layouts(&Tracefs::open()?)?;
    Session::open(&layouts, 1 << 16).map(drop)
}

/// Records the target and writes the trace, which appears under its name only when it is
/// complete. A command is run for it and its end awaited; running processes go on when the
/// recording ends, because they ended, after the duration or when the user asks.
///
/// # Errors
/// The recording cannot begin, the command cannot be run, the processes cannot be recorded,
/// events were lost and that is not allowed, or the trace cannot be written.
pub fn record(options: &Options, interrupt: &Interrupt) -> Result<Recording, RecordError> {
    // A file that grows over its limit is an error, not the end.
    // SAFETY: sets no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut running = match &options.target {
        Target::Command(_) => None,
        Target::Processes(pids) => Some(Running::of_processes(pids)?),
        Target::Group(path) => Some(Running::of_group(path)?),
    };
    let tracefs = Tracefs::open()?;
    let layouts = tracepoint::read_layouts(&tracefs)?;
    let own_tracefs = tracefs.is_own();
    drop(tracefs);
    let place = Place::of(&options.output)?;
    let spool = Spool::create(directory_of(&options.output)).map_err(RecordError::io(format!(
        "cannot write beside {}",
        options.output.display()
    )))?;
    let marks = match options.accesses {
        Some(interval) => Some((Marks::find().map_err(RecordError::NoMarks)?, interval)),
        None => None,
    };
    let accesses = marks.as_ref().map(|(marks, interval)| Accesses {
        interval_us: interval.as_micros() as u64,
        marks: marks.tell(),
    });
    let events = Events {
        layouts: &layouts,
        buffer: write::buffer_bytes(options.buffer),
        spool,
        marks,
        duration: options.duration,
    };
    let mut header = Header {
        environment: notes::environment(),
        accesses,
        ..Header::default()
    };
    let run = match (&options.target, &mut running) {
        (Target::Command(command), _) => {
            header.environment.command = command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            header.environment.thp_off = true;
            header.groups = groups::limited([std::process::id()]);
            watch::run_recorded(command, events, interrupt)?
        }
        (_, Some(running)) => {
            let (command, what) = running.describe();
            header.environment.command = command;
            header.groups = groups::limited(running.processes());
            if options.style != Style::Quiet {
                say(&format!(
                    "vellum: recording {what}; Ctrl-C ends the recording"
                ));
            }
            watch::attach(running, events, interrupt)?
        }
        (_, None) => unreachable!("running processes were looked up above"),
    };
    keep(options, &place, &layouts, header, run, own_tracefs)
}

/// Writes the trace of a run to the first place that takes it.
fn keep(
    options: &Options,
    place: &Place,
    layouts: &[tracepoint::Layout],
    header: Header,
    run: Run,
    own_tracefs: bool,
) -> Result<Recording, RecordError> {
    let recorded = run.recorded.as_ref().expect("the run was recorded");
    let mut elsewhere = None;
    for path in place.candidates() {
        let written = write::write(&path, options, recorded, layouts, header.clone());
        let written = match written {
            Ok(written) => written,
            // The next place may take it.
            Err(error @ RecordError::Trace(TraceError::Io { .. })) => {
                elsewhere.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let running = recorded.running();
        let has_cpu_times = recorded.without_switches.is_none();
        return Ok(Recording {
            path,
            elsewhere: elsewhere.map(|error| error.to_string()),
            cut_short: recorded.spool.why_cut().map(ToString::to_string),
            ended: run.ended,
            exit_code: run.ending.map_or(0, |ending| ending.exit_code()),
            beginning: running.map(|attached| notes::of_beginning(&attached.beginning)),
            huge_pages: running.map(notes::of_huge_pages),
            events: written.events,
            bytes: written.bytes,
            lost: written.lost,
            cost: recorded.cost(written.tally),
            ran_seconds: has_cpu_times.then_some(written.ran_us as f64 / 1e6),
            seconds: run.seconds,
            record_bytes: recorded.spool.record_bytes(),
            own_tracefs,
            without_cpu_times: recorded.without_switches.clone(),
            accesses: header.accesses,
            going_on: run.child.map(GoingOn),
        });
    }
    Err(elsewhere.expect("no candidate took the trace"))
}
