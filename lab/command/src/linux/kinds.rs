//! Time by kind of operation: the host's beside the core's.

use vellum_results::linux::{BothKinds, EntryCost, HostKind};

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

/// Operations below which a kind is not judged: their time is that of the clock.
pub const JUDGED_FROM: u64 = 100;

/// The core is slower than the host without its entry costs, and there are enough
/// operations to tell.
pub fn core_is_slower(kind: &BothKinds) -> bool {
    kind.host.ops >= JUDGED_FROM && kind.core_ns > kind.host.after_ns()
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
