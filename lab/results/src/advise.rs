//! Results of `vellum advise`.

use serde::{Deserialize, Serialize};

use crate::{Figure, Kind, Whole};

/// What could be changed for a workload, and what it would come to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// Path of the trace.
    pub trace: String,
    /// The command that was recorded.
    pub command: Vec<String>,
    /// What part of the trace was replayed.
    pub part: Part,
    /// CPU time of all of the workload; null if the recording has none.
    pub whole: Option<Whole>,
    /// The same of the part that was replayed.
    pub whole_of_part: Option<Whole>,
    /// This machine's kernel, and its settings for huge pages.
    pub host: Host,
    /// What the workload asks of memory management.
    pub asked: Asked,
    /// What single things cost on this machine.
    pub prices: Vec<Price>,
    /// What could be changed, what helps most first.
    pub rows: Vec<Row>,
    /// What was tried by running the command itself; null without `--check`.
    pub checked: Option<Checked>,
    /// What no row has, a sentence each.
    pub unseen: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Kind for Advice {
    const SCHEMA: &'static str = "vellum-advise/1";
}

/// The part of a trace that was replayed: its beginning, or all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Events in it.
    pub events: u64,
    /// Events of the trace.
    pub of_events: u64,
}

impl Part {
    /// Whether it is the whole trace.
    pub fn is_all(&self) -> bool {
        self.events >= self.of_events
    }
}

/// This machine.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Release of its kernel.
    pub kernel: String,
    /// Transparent huge pages (THP) as they are set: `always`, `madvise` or `never`; empty where
    /// there are none.
    pub thp: String,
    /// Sizes of large folios (mTHP) as they are set, as in `64kB never`.
    pub mthp: Vec<String>,
}

/// What a workload asks of memory management: counts of the whole trace.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Microseconds from the first event to the last.
    pub duration_us: u64,
    /// Tasks: processes and threads.
    pub tasks: u64,
    /// Page faults.
    pub faults: Faults,
    /// System calls about memory and processes.
    pub calls: Calls,
    /// Most pages in use at one time, in bytes, as `vellum info` estimates it.
    pub peak_bytes: u64,
    /// The same of private memory alone.
    pub peak_anonymous_bytes: u64,
    /// Memory of page tables at their peak in the replayed part, in bytes, as the core makes them.
    pub tables_bytes: Option<u64>,
    /// All frames in use at the peak of the replayed part, in bytes, page tables included.
    pub frames_bytes: Option<u64>,
    /// Where most faults are.
    pub places: Vec<Place>,
}

/// Page faults by what they found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Faults {
    /// All.
    pub all: u64,
    /// First touches of private memory, and touches after it was given up.
    pub anonymous: u64,
    /// Of files and shared memory.
    pub file: u64,
    /// Stores to a page that was there, most of them after a fork.
    pub present: u64,
    /// Of these all, those in a system call.
    pub kernel: u64,
}

/// System calls.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Calls {
    /// `mmap`.
    pub mmap: u64,
    /// `munmap`.
    pub munmap: u64,
    /// `mprotect`.
    pub mprotect: u64,
    /// `mremap`.
    pub mremap: u64,
    /// `brk`.
    pub brk: u64,
    /// `madvise`.
    pub madvise: u64,
    /// Reads of files.
    pub read: u64,
    /// Writes of files.
    pub write: u64,
    /// `fork`.
    pub fork: u64,
    /// `vfork`, `posix_spawn`, and other processes that wait in their creator's memory.
    pub vfork: u64,
    /// Threads.
    pub thread: u64,
    /// `execve`.
    pub execve: u64,
}

/// Where something is in a program.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The command, as the kernel names it.
    pub command: String,
    /// The mapping: heap, stack, anonymous memory, or a file.
    pub mapping: String,
    /// Faults there.
    pub faults: u64,
}

/// What one thing costs on this machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Price {
    /// What.
    pub what: String,
    /// Nanoseconds of CPU time, with the interval at 95 %.
    pub ns: Figure,
}

/// Who can change it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audience {
    /// The person who runs the program, by a setting of the system.
    User,
    /// Someone who can change the program.
    Author,
    /// Someone who builds a kernel.
    Builder,
}

/// What an effect follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Replays on this machine's kernel with and without it, in turn.
    HostReplay,
    /// Replays on the memory manager of Vellum with and without it, in turn.
    CoreReplay,
    /// Exact counts times prices that were measured on this machine.
    Counted,
    /// A device whose time is modelled.
    Modelled,
}

impl Basis {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Basis::HostReplay => "replays on this machine's kernel",
            Basis::CoreReplay => "replays on Vellum's memory manager",
            Basis::Counted => "counts in the trace x prices measured here",
            Basis::Modelled => "replay with a modelled device",
        }
    }
}

/// What is said of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// It takes less CPU time.
    Less,
    /// It takes more.
    More,
    /// No difference that matters: none larger than the row's bound.
    Nothing,
    /// A model says what it costs; nothing was measured that would have an interval.
    Modelled,
    /// It could not be found out.
    Unknown,
}

/// One thing that could be changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What.
    pub what: String,
    /// Who can do it.
    pub audience: Audience,
    /// What is said.
    pub said: Said,
    /// What the effect on CPU time follows from.
    pub basis: Basis,
    /// Change of the workload's CPU time, as a share of all of it, with its interval at 95 %;
    /// negative is less. Null if it could not be found out.
    pub cpu: Option<Figure>,
    /// The largest change, as a share of the workload's CPU time, that would not have been told.
    pub bound: Option<f64>,
    /// Change of memory at the peak, as a share of it: a count.
    pub peak: Option<f64>,
    /// Change of page faults, as a share of them: a count.
    pub faults: Option<f64>,
    /// Where it shows in the program.
    pub place: String,
    /// How to try it: commands, or what to change.
    pub how: Vec<String>,
    /// What the effect does not have, or why there is none.
    pub note: String,
    /// The same change measured by running the command, with `--check`.
    pub measured: Option<Measured>,
}

/// A change as it was measured by running the command.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Change of user and system CPU time of the process tree, as a share, with its interval at
    /// 95 %.
    pub cpu: Figure,
    /// Whether its interval holds neither 0 nor a value of the interval of the control.
    #[serde(default)]
    pub told: bool,
    /// Change of the largest resident set of one process, as a share.
    pub resident: f64,
    /// Change of page faults, as a share.
    pub faults: f64,
}

/// How the command was run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Checked {
    /// Runs with each setting.
    pub rounds: u64,
    /// CPU time of a run with the settings of A, in nanoseconds: the median.
    pub cpu_ns: f64,
    /// How far the command's time strays where nothing is changed, with its interval.
    pub control: Figure,
    /// The settings that everything is held against.
    pub against: String,
}
