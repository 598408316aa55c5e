//! From a trace to a [`Workload`]: everything that costs time, done once.
//!
//! Guarantees: the same trace and [`Options`] give the same workload, on every
//! machine. The events of each task keep their order; across tasks the order of
//! the recording is the one global order from which a stream is picked, of a CPU
//! or of a task, and its waits are derived.

mod balance;
mod files;
mod memory;
mod merge;
mod presence;
mod schedule;
mod service;
mod space;
mod survey;
mod tasks;
mod tmpfs;
mod together;
mod translate;

use std::sync::Arc;

use thiserror::Error;
use vellum_engine::Pages;

use super::fold::{self, DoesNotFit, Plan};
use super::workload::Workload;
use merge::Merge;
use survey::Survey;
pub use tmpfs::tmpfs_device;
pub use together::Together;
use translate::Translator;
use vellum_trace::{Event, EventKind, Header, TraceError, TraceReader};

/// More simulated CPUs than this are refused.
pub const MAX_CPUS: usize = 256;

/// More copies of a process family than this are refused: two for each CPU of the largest machine
/// that can be simulated.
pub const MAX_COPIES: u32 = 1024;

/// What there is a stream of operations for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streams {
    /// Each of so many CPUs, `1..=MAX_CPUS`, on which the tasks have been put: for engines.
    ByCpu(usize),
    /// Each task: for simulated CPUs, on which a scheduler puts them.
    ByTask,
}

impl Streams {
    /// Whether there may be more than one.
    fn are_several(self) -> bool {
        self != Streams::ByCpu(1)
    }
}

/// How to prepare a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// One stream for what.
    pub streams: Streams,
    /// Copies of the process family that run at once, `1..=MAX_COPIES`. They
    /// share the files that nobody writes; of a file that the workload writes
    /// each copy has its own.
    pub copies: u32,
    /// Decides how far the copies are shifted against each other in time.
    pub seed: u64,
    /// Fault-around window of the design in pages; explains divergences.
    pub fault_around: u64,
    /// Pages of the engine; the recorded ones are folded onto them.
    pub pages: Pages,
    /// A CPU on which nothing happened for this many microseconds of the
    /// recording was idle, and runs the idle loop; none: no CPU ever does. Streams by
    /// task have no idle CPUs.
    pub idle_us: Option<u64>,
    /// Files of this device, as the trace has it, lie on a tmpfs ([`tmpfs_device`]); none:
    /// all of them have a backing store.
    pub tmpfs: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            streams: Streams::ByCpu(1),
            copies: 1,
            seed: 1,
            fault_around: 16,
            pages: Pages::X86_64,
            idle_us: None,
            tmpfs: None,
        }
    }
}

impl Options {
    /// How often [`prepare`] reads the trace.
    pub fn readings(&self) -> u64 {
        let planned = fold::planner(self.pages, 0).is_some();
        u64::from(self.copies) + 1 + u64::from(planned)
    }
}

/// A trace could not be prepared.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// More operations in one stream than a position can count.
    #[error(
        "more than {} operations on one CPU or of one task; use fewer copies, more CPUs, or a `vellum cut` of the trace",
        u32::MAX
    )]
    TooLong,
    /// The engine's address space is too small for a recorded one.
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
    /// An option is out of range.
    #[error("{what} is {given}; it must be between 1 and {most}")]
    Option {
        /// Which option.
        what: &'static str,
        /// What was asked for.
        given: u64,
        /// The largest value that is allowed.
        most: u64,
    },
}

/// Prepares `trace`, with its samples of accessed marks if it has any. It is read once for what
/// must be known of the whole, once for each copy, and once more if the engine's address space is
/// very small.
///
/// # Errors
/// The trace is damaged or an option is out of range.
pub fn prepare(trace: &TraceReader, options: &Options) -> Result<Workload, PrepareError> {
    prepare_events(trace.header(), || trace.events_and_accesses(), options)
}

/// As [`prepare`], from events that need not be in a file. Every call of
/// `events` must give the same ones, in time order.
///
/// # Errors
/// The events give one, or an option is out of range.
pub fn prepare_events<I>(
    header: &Header,
    events: impl Fn() -> I,
    options: &Options,
) -> Result<Workload, PrepareError>
where
    I: Iterator<Item = Result<Event, TraceError>>,
{
    check(options)?;
    let survey = Survey::of(header, events())?;
    let plan = plan(header, &events, options.pages)?;
    let copies = (0..options.copies).map(|_| events()).collect();
    let mut merge = Merge::new(copies, header.duration_us, options.seed)?;
    let mut translator = Translator::new(header, options, &survey, plan.as_ref());
    while let Some(next) = merge.next()? {
        translator.event(&next)?;
    }
    Ok(translator.finish())
}

/// Reads the events once to plan where the parts of each program go, if `pages` are so
/// few that this has to be known beforehand.
fn plan<I>(
    header: &Header,
    events: impl Fn() -> I,
    pages: Pages,
) -> Result<Option<Arc<Plan>>, PrepareError>
where
    I: Iterator<Item = Result<Event, TraceError>>,
{
    let Some(mut planner) = fold::planner(pages, header.tasks.len()) else {
        return Ok(None);
    };
    for event in events() {
        let event = event?;
        if let EventKind::Accessed { .. } = event.kind {
            continue;
        }
        planner.event(event.task, event.kind);
    }
    Ok(Some(Arc::new(planner.finish()?)))
}

fn check(options: &Options) -> Result<(), PrepareError> {
    let cpus = match options.streams {
        Streams::ByCpu(cpus) => cpus as u64,
        Streams::ByTask => 1,
    };
    let limits = [
        ("the number of CPUs", cpus, MAX_CPUS as u64),
        (
            "the number of copies",
            u64::from(options.copies),
            u64::from(MAX_COPIES),
        ),
        ("the fault-around window", options.fault_around, 1 << 20),
    ];
    for (what, given, most) in limits {
        if given == 0 || given > most {
            return Err(PrepareError::Option { what, given, most });
        }
    }
    Ok(())
}
