//! Locked ranges (mlock): reclaim leaves their pages in memory (invariant 16).
//!
//! Locked is a trait of the region ([`Traits::LOCKED`]). Where reclaim takes an entry away, it
//! holds the lock of the entry's table, and asks there in which region the entry lies
//! ([`Vm::is_locked`]). Whoever locks a range shows the trait first and passes through the locks
//! of its tables then. So an entry that is there afterwards was not taken before, and is not taken
//! later.

use crate::addr::Vpn;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::MapError;
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, Traits};
use crate::space::state::spaces::{Live, SpaceId};
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::lock`](crate::space::Space::lock).
    pub(crate) fn lock_pages(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        self.with_covered(unpinned, id, range, |pin, space| {
            let mut missing = range.pages();
            let _ = self.for_regions::<()>(space, range, |_, view| {
                if view.traits.has(Traits::LOCKED) || view.is_unmanaged() {
                    missing -= view.range.intersection(range).pages();
                }
                Ok(())
            });
            if missing > Self::left_to_lock(space) {
                return Err(MapError::Limit);
            }
            let word = NewWord::traits(Traits::NONE, Traits::LOCKED);
            self.change_traits(pin, space, range, &word)?;
            for span in self.tables(pin, *space).spans(range) {
                drop(span.table);
            }
            Ok(())
        })
    }

    /// [`Space::unlock`](crate::space::Space::unlock).
    pub(crate) fn unlock_pages(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        self.with_covered(unpinned, id, range, |pin, space| {
            let word = NewWord::traits(Traits::LOCKED, Traits::NONE);
            self.change_traits(pin, space, range, &word)
        })
    }

    /// Whether reclaim has to leave the page of an entry in memory. Exact for the holder of the
    /// lock of the entry's table, and a guess for others. While the regions are being changed,
    /// the answer is that it has to.
    #[inline]
    pub(in crate::space) fn is_locked(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn) -> bool {
        space.account.counts.locked.get() != 0 && self.is_in_locked(pin, space, page)
    }

    #[cold]
    fn is_in_locked(&self, pin: &Pin<'_>, space: Live<'_, R>, page: Vpn) -> bool {
        let is_locked = self.look(pin, space, page, |tree| {
            tree.last_at_most(page.0).is_none_or(|region| {
                let view = region.view();
                !view.range.contains(page) || view.traits.has(Traits::LOCKED)
            })
        });
        is_locked.unwrap_or(true)
    }
}
