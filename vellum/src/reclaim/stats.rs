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
    /// Inactive pages looked at.
    scanned;
    /// Of these, pages that left memory.
    reclaimed;
    /// Pages that were used, or could not leave, and became active.
    activated;
    /// Active pages that became inactive.
    deactivated;
    /// Pages that stayed inactive: used once, locked, held, or stored to meanwhile.
    kept;
    /// Places of pages that were there no more.
    stale;
    /// Pages of files written to their stores so that they could leave.
    written;
    /// Private pages written to swap.
    swapped;
    /// Pages that a store or swap area refused.
    refused;
    /// Pages of files read again after they had left.
    refaults;
    /// Of these, pages that would have stayed if they had been active, and are so now.
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
}
