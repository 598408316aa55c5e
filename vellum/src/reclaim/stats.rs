//! What reclaim counts.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A count that several reclaimers change, each a lot of pages at a time.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        if more > 0 {
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counts {
    ($($(#[$about:meta])* $name:ident;)+) => {
        /// What reclaim has done since the manager was made; nothing with `reclaim=off`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct ReclaimStats {
            $($(#[$about])* pub $name: u64,)+
        }

        /// The counts while they change.
        #[derive(Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: Count,)+
        }

        impl Counts {
            /// As they are now.
            pub(crate) fn get(&self) -> ReclaimStats {
                ReclaimStats { $($name: self.$name.get(),)+ }
            }
        }
    };
}

counts! {
    /// Pages looked at that could leave: inactive ones, newcomers, those of the oldest generation.
    scanned;
    /// Of these, pages that left memory.
    reclaimed;
    /// Pages that were used, or could not leave, and became active, or of the youngest generation.
    activated;
    /// Active pages that became inactive.
    deactivated;
    /// Pages that a walk or a call was known to have used, and that only changed their
    /// generation (`aging=generations`).
    sorted;
    /// Walks of the page tables of all spaces that looked for used pages.
    walks;
    /// Tables of the lowest level that they looked at.
    tables_walked;
    /// Tables that they passed by: those of few entries, and those in which walks had found
    /// nothing.
    tables_skipped;
    /// Entries that they found used.
    uses_walked;
    /// Entries that were found used beside one that reverse mapping led to.
    uses_around;
    /// Pages that stayed inactive: used once, locked, held, or stored to meanwhile.
    kept;
    /// Places of pages that were there no more.
    stale;
    /// Pages of files written to their stores so that they could leave.
    written;
    /// Private pages written to swap.
    swapped;
    /// Private pages that were dropped, because their owner had freed them.
    dropped;
    /// Pages that a store or swap area refused.
    refused;
    /// Pages of files read again after they had left; with `aging=generations`, also private
    /// ones and those of shared memory.
    refaults;
    /// Of these, pages that would have stayed if they had been active, and are so now, or of the
    /// youngest generation.
    restored;
    /// Times that a call that ran out of memory reclaimed.
    direct;
    /// Pages that those reclaimed.
    direct_reclaimed;
    /// Times that a node's task reclaimed.
    background;
    /// Pages that those reclaimed.
    background_reclaimed;
    /// Calls that ran out of memory although they had reclaimed.
    failures;
    /// Pages that writers wrote back because too many of their file were dirty.
    throttled;
}

macro_rules! group_counts {
    ($($name:ident)+) => {
        /// What reclaim has done with the pages of one group.
        #[derive(Default)]
        pub(crate) struct GroupCounts {
            $(pub(crate) $name: Count,)+
        }

        impl GroupCounts {
            fn all(&self) -> impl Iterator<Item = &Count> {
                [$(&self.$name),+].into_iter()
            }
        }
    };
}

group_counts! { scanned reclaimed refaults limit_hits failures low_events high_events }

impl GroupCounts {
    /// Begins anew.
    pub(super) fn reset(&self) {
        for count in self.all() {
            count.0.store(0, Ordering::Relaxed);
        }
    }

    /// Adds what another has counted.
    pub(crate) fn add(&self, other: &GroupCounts) {
        for (count, more) in self.all().zip(other.all()) {
            count.add(more.get());
        }
    }
}
