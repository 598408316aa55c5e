//! Results on the host's kernel: schemas `vellum-replay-linux/1`, `vellum-linux/1`,
//! `vellum-compare-linux/1` and `vellum-compare-saved/1`.

use serde::Deserialize;

use super::run::Host;
use super::{Figure, Verdict};

/// A replay on a host.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Saved {
    /// Version of the program.
    pub version: String,
    /// What was replayed.
    pub trace: TraceId,
    /// Operations in one pass.
    pub ops: u64,
    /// Where.
    pub environment: Host,
    /// The CPU that everything ran on.
    pub cpu: usize,
    /// What entering the kernel costs there.
    pub entry: EntryCost,
    /// Times by pass.
    pub times: HostTimes,
    /// Time by kind.
    pub kinds: Vec<Kind>,
}

/// The trace behind a result.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct TraceId {
    /// Its path as it was given.
    pub path: String,
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the file.
    pub crc32: String,
    /// Events in it.
    pub events: u64,
}

/// What entering the kernel costs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct EntryCost {
    /// A system call, in nanoseconds.
    pub syscall_ns: f64,
    /// A trap.
    pub trap_ns: f64,
}

/// Times of a series by pass.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct HostTimes {
    /// The host.
    pub host: Times,
    /// The host once more; empty without a control.
    pub control: Times,
    /// The empty tree: the replay's own cost.
    pub own_ns: Vec<f64>,
}

/// Times of one arm by pass, in nanoseconds.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Times {
    /// CPU time of the whole tree.
    pub gross_ns: Vec<f64>,
    /// Without the replay's own.
    pub net_ns: Vec<f64>,
    /// And without entering the kernel.
    pub after_ns: Vec<f64>,
    /// Page faults.
    pub faults: Vec<f64>,
    /// Elapsed time.
    pub wall_ns: Vec<f64>,
}

/// One kind of operation. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Kind {
    /// Its name.
    pub kind: String,
    /// Operations.
    pub ops: u64,
    /// CPU time in a full replay.
    pub gross_ns: f64,
    /// CPU time in an empty replay.
    pub own_ns: f64,
    /// What entering the kernel for it costs.
    pub entry_ns: f64,
    /// CPU time in the core, in a comparison with it.
    #[serde(default)]
    pub core_ns: Option<f64>,
}

impl Kind {
    /// Time of the operations: without the replay's own.
    pub fn net_ns(&self) -> f64 {
        (self.gross_ns - self.own_ns).max(0.0)
    }

    /// The same without entering the kernel.
    pub fn after_ns(&self) -> f64 {
        (self.net_ns() - self.entry_ns).max(0.0)
    }
}

/// The host's kernel beside a design of the core.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct HostComparison {
    /// The host's side.
    pub host: Saved,
    /// The design, complete.
    pub design: String,
    /// CPU time of the core, by pass.
    pub core_ns: Vec<f64>,
    /// Before subtracting what entering the kernel costs.
    pub before: Against,
    /// After.
    pub after: Against,
    /// The answer, from `before`: `a` is the host.
    pub verdict: Verdict,
    /// By kind.
    pub kinds: Vec<Kind>,
    /// What each side does that the other does not.
    pub coverage: Vec<Coverage>,
    /// The user stopped early.
    pub interrupted: bool,
    /// Seed.
    pub seed: u64,
}

/// One quantity of the host against the core.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Against {
    /// The host, in nanoseconds.
    pub host_ns: Figure,
    /// The host once more.
    pub control_ns: Figure,
    /// The core.
    pub core_ns: Figure,
    /// Core divided by host.
    pub ratio: Figure,
    /// Host once more divided by host.
    pub control_ratio: Figure,
    /// Largest relative difference that is not told, as a share.
    pub resolution: Option<f64>,
}

/// What each side does that the other does not, in one respect.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Coverage {
    /// What it is about.
    pub subject: String,
    /// What the host does.
    pub host: String,
    /// What the core does.
    pub core: String,
}

/// Two saved results of hosts.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct SavedComparison {
    /// A.
    pub a: Saved,
    /// B.
    pub b: Saved,
    /// The events' time.
    pub apart: Apart,
    /// The answer.
    pub verdict: Verdict,
}

/// Two series that did not run at the same time.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Apart {
    /// Of A, in nanoseconds.
    pub a_ns: Figure,
    /// Of B.
    pub b_ns: Figure,
    /// B divided by A.
    pub ratio: Figure,
    /// Each series' control divided by itself.
    pub control_ratios: [Figure; 2],
    /// Largest relative difference that is not told, as a share.
    pub resolution: Option<f64>,
}
