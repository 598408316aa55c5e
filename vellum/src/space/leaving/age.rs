//! Walks of the page tables of all spaces, which find the pages that were used.
//!
//! A walk holds nothing from one table to the next. Spaces may begin, fork, end, and move their
//! tables beside it: a table that is unlinked is passed by, one that was moved is looked at where
//! it is, and what a walk misses shows in the next, or when reclaim looks the page up.

use crate::addr::{Pfn, Vpn};
use crate::platform::Platform;
use crate::reclaim::{Reclaim, Walked};
use crate::rmap::{ReverseMap, Slot};
use crate::space::state::manager::Vm;
use crate::sync::Unpinned;
use crate::table::{Format, Step};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Takes the accessed marks of single pages of a group's spaces, in its walk of this number,
    /// and tells which frames they are. The caller holds no lock. CPUs are not
    /// flushed: one that has a translation cached need not mark the entry again.
    pub(super) fn walk_tables(
        &self,
        unpinned: Unpinned<'_>,
        (group, number): (usize, u32),
        used: &mut dyn FnMut(Pfn),
    ) -> Walked {
        let mut walked = Walked::default();
        self.spaces.each(|handle, space| {
            let is_one = space.users() > 0 && space.group().place() == group;
            let key = is_one.then(|| self.live_at(handle.raw()).key());
            let mut next = Vpn(0);
            while next < F::USER_END {
                let pin = self.pin_by(&unpinned);
                let space = self.live_at(handle.raw());
                if key != Some(space.key()) || space.users() == 0 {
                    return;
                }
                let Some(tables) = self.tables_if_any(&pin, space) else {
                    return;
                };
                let (step, behind) = tables.take_used(next, number, used);
                next = behind;
                match step {
                    Step::Nothing => {}
                    Step::Skipped => walked.skipped += 1,
                    Step::Looked(count) => {
                        walked.tables += 1;
                        walked.used += count;
                    }
                }
            }
        });
        walked
    }

    /// Takes the accessed marks beside an entry that was used: what lies side by side is used
    /// together.
    pub(super) fn look_around(&self, reclaim: &Reclaim, slot: &Slot<'_, F>) {
        let around = slot.take_used_around(&mut |page| reclaim.note_use(page));
        reclaim.counts.uses_around.add(around);
    }
}
