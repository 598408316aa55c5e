//! Time by kind of operation: the host's beside the core's.

use serde::{Deserialize, Serialize};

use super::entry::EntryCost;
use super::plan::{CLASSES, Entries};
use super::protocol::TIMES;
use super::tree::Time;
use crate::compare::ClassTime;
use crate::replay::Class;

/// What was timed by kind, in a full and in an empty replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostKinds {
    /// With memory operations.
    pub full: [Time; TIMES],
    /// Without.
    pub empty: [Time; TIMES],
}

/// One kind of operation on the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostKind {
    /// Its name.
    pub kind: String,
    /// Operations.
    pub ops: u64,
    /// CPU time in a full replay, the clock's own cost taken off, in nanoseconds.
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

/// Rows of the host, one for each kind that the workload has.
pub fn host_rows(
    kinds: &HostKinds,
    ops: &[u64; CLASSES],
    entries: &[Entries; CLASSES],
    entry: &EntryCost,
    clock_ns: u64,
) -> Vec<HostKind> {
    let net = |time: &Time| time.ns.saturating_sub(time.intervals * clock_ns);
    let row = |class: &Class| {
        let index = *class as usize;
        let entered = entries[index];
        HostKind {
            kind: class.name().to_owned(),
            ops: ops[index],
            gross_ns: net(&kinds.full[index]),
            own_ns: net(&kinds.empty[index]),
            entry_ns: entry.of(entered.touches, entered.calls) as u64,
        }
    };
    let rows = Class::ALL.iter().map(row);
    rows.filter(|row| row.ops > 0).collect()
}

/// A kind on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct BothKinds {
    /// On the host.
    #[serde(flatten)]
    pub host: HostKind,
    /// CPU time in the core, the clock's own cost taken off, in nanoseconds.
    pub core_ns: u64,
}

/// Operations below which a kind is not judged: their time is that of the clock.
pub const JUDGED_FROM: u64 = 100;

impl BothKinds {
    /// The core is slower than the host without its entry costs, and there are
    /// enough operations to tell.
    pub fn core_is_slower(&self) -> bool {
        self.host.ops >= JUDGED_FROM && self.core_ns > self.host.after_ns()
    }
}

/// Rows of both.
pub fn both_rows(
    host: Vec<HostKind>,
    core: &[ClassTime; CLASSES],
    clock_ns: u64,
) -> Vec<BothKinds> {
    let of = |host: HostKind| {
        let class = Class::ALL.iter().find(|class| class.name() == host.kind);
        let time = class.map_or_else(ClassTime::default, |class| core[*class as usize]);
        BothKinds {
            host,
            core_ns: time.cpu_ns.saturating_sub(time.intervals * clock_ns),
        }
    };
    host.into_iter().map(of).collect()
}
