//! What designs count, each CPU for itself.

use super::RmapStats;
use crate::sync::{Counter, PerCpu};

/// Counts of one CPU, named as in [`RmapStats`]. What a design has none of
/// stays 0.
#[derive(Default)]
pub(crate) struct RmapCounts {
    pub adds: Counter,
    pub duplicates: Counter,
    pub removes: Counter,
    pub moves: Counter,
    pub turns: Counter,
    pub node_allocs: Counter,
    pub node_frees: Counter,
    pub locks: Counter,
    pub nodes_searched: Counter,
    pub contended: Counter,
    pub parked: Counter,
    pub woken_in_vain: Counter,
    pub reclaimed: Counter,
}

/// Lets a type with a field `counts` be read as its [`RmapCounts`].
macro_rules! count_in {
    ($cpu:ty) => {
        impl core::ops::Deref for $cpu {
            type Target = RmapCounts;

            #[inline]
            fn deref(&self) -> &RmapCounts {
                &self.counts
            }
        }
    };
}
pub(crate) use count_in;

/// The counts of all CPUs; `counts` tells where one CPU's are. Bytes are for the
/// design to add.
pub(crate) fn sum<T: Sync>(cpus: &PerCpu<T>, counts: impl Fn(&T) -> &RmapCounts) -> RmapStats {
    let sum = |field: fn(&RmapCounts) -> &Counter| cpus.sum(|cpu| field(counts(cpu)));
    RmapStats {
        adds: sum(|counts| &counts.adds),
        duplicates: sum(|counts| &counts.duplicates),
        removes: sum(|counts| &counts.removes),
        moves: sum(|counts| &counts.moves),
        turns: sum(|counts| &counts.turns),
        node_allocs: sum(|counts| &counts.node_allocs),
        node_frees: sum(|counts| &counts.node_frees),
        locks: sum(|counts| &counts.locks),
        nodes_searched: sum(|counts| &counts.nodes_searched),
        contended: sum(|counts| &counts.contended),
        parked: sum(|counts| &counts.parked),
        woken_in_vain: sum(|counts| &counts.woken_in_vain),
        reclaimed: sum(|counts| &counts.reclaimed),
        ..RmapStats::default()
    }
}
