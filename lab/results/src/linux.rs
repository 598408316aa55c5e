//! Results on the host's kernel.

use serde::{Deserialize, Serialize};

use crate::run::Host;
use crate::{Figure, Kind, Verdict};

/// A replay on a host: `vellum replay --on linux`. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Version of the program.
    pub version: String,
    /// What was replayed.
    pub trace: TraceId,
    /// Operations in one pass.
    pub ops: u64,
    /// Where.
    pub environment: Environment,
    /// The CPU that everything ran on.
    pub cpu: usize,
    /// What entering the kernel costs there.
    pub entry: EntryCost,
    /// Times by pass.
    pub times: HostTimes,
    /// Time by kind.
    pub kinds: Vec<HostKind>,
}

impl Kind for Saved {
    const SCHEMA: &'static str = "vellum-replay-linux/1";
}

/// A replay on a host as `--save` keeps it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavedFile {
    /// Checksum of the result.
    pub crc32: String,
    /// The result.
    pub result: Saved,
}

impl Kind for SavedFile {
    const SCHEMA: &'static str = "vellum-linux/1";
}

/// The trace that a result is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

impl TraceId {
    /// Whether both are the same recording, wherever it lies.
    pub fn is_same(&self, other: &TraceId) -> bool {
        (self.bytes, &self.crc32, self.events) == (other.bytes, &other.crc32, other.events)
    }
}

/// The machine and the kernel that a result belongs to. What could not be found out is an
/// empty text or 0.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Release of the kernel, `uname -r`.
    pub kernel: String,
    /// Its build, `uname -v`.
    pub build: String,
    /// The id of this boot.
    pub boot: String,
    /// Its command line.
    pub command_line: String,
    /// Its configuration: file, bytes, and checksum.
    pub config: String,
    /// Model of the CPUs.
    pub cpu: String,
    /// CPUs online.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// Setting of transparent huge pages, and of those of shared memory.
    pub huge_pages: String,
    /// What is done against faults of the CPU, one line for each.
    pub mitigations: Vec<String>,
    /// Generations of the reclaim lists (`lru_gen`), if the kernel has them.
    pub lru_gen: String,
    /// Memory controllers of the group that the program runs in.
    pub memory_group: String,
}

impl Environment {
    /// As other results have it: a host called `name`.
    pub fn host(&self, name: String) -> Host {
        Host {
            name,
            kernel: self.kernel.clone(),
            cpu: self.cpu.clone(),
            cpus: self.cpus,
            memory: self.memory,
            huge_pages: self.huge_pages.clone(),
        }
    }
}

/// Costs of entering the kernel and returning.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EntryCost {
    /// A system call that does nothing, in nanoseconds.
    pub syscall_ns: f64,
    /// A page fault that is answered at once.
    pub trap_ns: f64,
    /// How the trap was measured.
    pub trap_method: String,
}

impl EntryCost {
    /// Of so many traps and calls, in nanoseconds.
    pub fn of(&self, traps: u64, calls: u64) -> f64 {
        traps as f64 * self.trap_ns + calls as f64 * self.syscall_ns
    }
}

/// The host's side of a series.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostTimes {
    /// The host.
    pub host: Times,
    /// The host once more; empty without a control.
    pub control: Times,
    /// The empty tree of processes: the replay's own cost, by pass.
    pub own_ns: Vec<u64>,
    /// System calls about memory and files in one pass.
    pub calls: u64,
    /// Batches handed over in one pass.
    pub batches: u64,
    /// Operations that the host refused in the first pass.
    pub refused: u64,
}

/// Times of one replayed arm by pass, in nanoseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// CPU time of the whole tree.
    pub gross_ns: Vec<u64>,
    /// Without the replay's own.
    pub net_ns: Vec<u64>,
    /// And without entering the kernel.
    pub after_ns: Vec<u64>,
    /// Page faults beyond those of the empty tree.
    pub faults: Vec<u64>,
    /// Elapsed time.
    pub wall_ns: Vec<u64>,
}

/// The median of times or counts by pass; none without a pass.
pub fn middle(passes: &[u64]) -> Option<f64> {
    let passes: Vec<f64> = passes.iter().map(|&value| value as f64).collect();
    vellum_tables::summary::median(&passes)
}

/// One kind of operation on the host. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostKind {
    /// Its name.
    pub kind: String,
    /// Operations.
    pub ops: u64,
    /// CPU time in a full replay, the clock's own cost taken off.
    pub gross_ns: u64,
    /// CPU time in an empty replay likewise: the replay's own.
    pub own_ns: u64,
    /// What entering the kernel for it costs.
    pub entry_ns: u64,
}

impl HostKind {
    /// Time of the operations: without the replay's own.
    pub fn net_ns(&self) -> u64 {
        self.gross_ns.saturating_sub(self.own_ns)
    }

    /// The same without entering the kernel.
    pub fn after_ns(&self) -> u64 {
        self.net_ns().saturating_sub(self.entry_ns)
    }
}

/// A kind of operation on both sides.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BothKinds {
    /// On the host.
    #[serde(flatten)]
    pub host: HostKind,
    /// CPU time in the core, the clock's own cost taken off, in nanoseconds.
    pub core_ns: u64,
}

/// The host's kernel beside a design of the core: `vellum compare --a linux --b DESIGN`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostComparison {
    /// The host's side.
    pub host: Saved,
    /// The design, complete.
    pub design: String,
    /// CPU time of the core, by pass.
    pub core_ns: Vec<u64>,
    /// Before subtracting what entering the kernel costs: the honest figure.
    pub before: Against,
    /// After.
    pub after: Against,
    /// The answer, from `before`: `a` is the host, `b` the core.
    pub verdict: Verdict,
    /// By kind.
    pub kinds: Vec<BothKinds>,
    /// What each side does that the other does not.
    pub coverage: Vec<Coverage>,
    /// The unit of the statistics.
    pub unit: String,
    /// Whether the user stopped early.
    pub interrupted: bool,
    /// Seed of the order of the arms and of the bootstrap.
    pub seed: u64,
}

impl Kind for HostComparison {
    const SCHEMA: &'static str = "vellum-compare-linux/1";
}

/// One quantity of the host against the core.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
    /// The largest relative difference that is not significant, as a share.
    pub resolution: Option<f64>,
}

/// What each side does that the other does not, in one respect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coverage {
    /// What it is about.
    pub subject: String,
    /// What the host does.
    pub host: String,
    /// What the core does.
    pub core: String,
}

/// Two saved results of hosts: `vellum compare --a linux:FILE --b linux:FILE`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

impl Kind for SavedComparison {
    const SCHEMA: &'static str = "vellum-compare-saved/1";
}

/// Two series that did not run at the same time: passes are drawn for each by itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Apart {
    /// Of A, in nanoseconds.
    pub a_ns: Figure,
    /// Of B.
    pub b_ns: Figure,
    /// B divided by A.
    pub ratio: Figure,
    /// Each series' control divided by itself.
    pub control_ratios: [Figure; 2],
    /// The largest relative difference that is not significant, as a share.
    pub resolution: Option<f64>,
}
