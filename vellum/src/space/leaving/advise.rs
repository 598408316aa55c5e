//! madvise.

use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::leaves::zap::Zap;
use crate::space::locks::lock::{Beside, Goal};
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{RegionView, Traits};
use crate::space::state::spaces::SpaceId;
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, Users};

/// Advice that changes what is resident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Advice {
    /// Unmap the pages now: private ones read as zero or as the object
    /// afterwards, pages of objects stay cached.
    DontNeed,
    /// Private pages that no other space shares may be dropped until they are stored to again:
    /// they read as they were or as zero. Reclaim needs no swap for them. A range with memory
    /// that shows an object is refused, as Linux does.
    Free,
    /// Pages are not needed soon: those that no other space shares count as not used, and leave
    /// before those that are when memory is short. What they hold stays.
    Cold,
    /// Write private pages and those of shared memory to swap now, as far as there is room and
    /// they are not in use, those too that other spaces share.
    PageOut,
    /// Log2 of the pages of the largest folio that a store maps in the range, or what the
    /// design says (`folio=`). 0 is one page. It is a property of the memory from now on, kept
    /// by `fork` and `mremap`, and tells it from memory beside it with another; more than 1 MiB
    /// is as 1 MiB. With `folio=off` it changes nothing.
    Folio(Option<u32>),
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::advise`](crate::space::Space::advise).
    pub(crate) fn advise(
        &self,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        advice: Advice,
    ) -> Result<(), MapError> {
        let mut unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        if let Advice::Folio(order) = advice {
            return self.advise_folio(unpinned, id, range, order);
        }
        let advise = |pin: &Pin<'_>, space: LockedSpace<'_, R>| {
            self.advise_locked(pin, space, range, advice)?;
            Ok(self.is_covered(space, range))
        };
        let goal = Goal::Range(range);
        let (lent, beside) = (unpinned.reborrow(), Beside::Nobody);
        let here =
            self.with_range_locked(lent, id, goal, beside, |pin, space, _| advise(pin, space))?;
        let is_covered = match here {
            Some(is_covered) => is_covered,
            None => self.with_locked(unpinned.reborrow(), id, |pin, space| advise(pin, *space))?,
        };
        self.memory.heed_crowd(unpinned.reborrow());
        if advice == Advice::PageOut && self.swap().is_some() {
            self.page_out(unpinned, id, range);
        }
        match is_covered {
            true => Ok(()),
            false => Err(MapError::NotMapped),
        }
    }

    /// What of [`Space::advise`](crate::space::Space::advise) the space's lock is held for, in the parts that are mapped.
    fn advise_locked(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
        advice: Advice,
    ) -> Result<(), MapError> {
        self.for_regions(space, range, |_, view| {
            if view.traits.has(Traits::LOCKED) {
                Err(MapError::Locked)
            } else if view.traits.has(Traits::SEALED) && loses(&view, advice) {
                Err(MapError::Sealed)
            } else if view.is_unmanaged() || advice == Advice::Free && view.object != 0 {
                Err(MapError::WrongKind)
            } else {
                Ok(())
            }
        })?;
        if advice == Advice::DontNeed {
            // Superpages that the range has a part of; the others go whole.
            for edge in [range.start, range.end] {
                if self.is_boundary(space, edge) {
                    continue;
                }
                let region = self.region_from(space, edge);
                if !region.is_none() && self.region(region).range().contains(edge) {
                    self.demote_across(pin, *space, self.region(region), edge)?;
                }
            }
        }
        let delayed = self.delay_flush(pin);
        let mut gather = self.gather(pin, *space);
        let _ = self.for_regions::<()>(space, range, |handle, view| {
            let part = view.range.intersection(range);
            match advice {
                Advice::DontNeed => {
                    let zap = Zap {
                        vm: self,
                        pin,
                        space: *space,
                        region: self.region(handle),
                        users: Users::Hardware,
                    };
                    zap.range(part, &mut gather);
                }
                Advice::PageOut if self.swap().is_none() => {}
                Advice::Free | Advice::PageOut if view.object == 0 => {
                    // Superpages that cannot be demoted stay, as if they were in use.
                    let region = self.region(handle);
                    let _ = self.demote_range(pin, *space, region, part);
                    if advice == Advice::Free {
                        self.mark_free(pin, *space, part, &mut gather);
                    }
                }
                Advice::Cold => self.mark_cold(pin, *space, part, &mut gather),
                Advice::Free | Advice::PageOut | Advice::Folio(_) => {}
            }
            Ok(())
        });
        drop(gather);
        drop(delayed);
        Ok(())
    }
}

/// Whether advice drops pages of private memory that the space could not store to, and so not empty.
fn loses(view: &RegionView, advice: Advice) -> bool {
    let drops = matches!(advice, Advice::DontNeed | Advice::Free);
    drops && !view.is_shared() && !view.prot.can_write()
}
