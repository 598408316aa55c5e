//! madvise.

use crate::ObjectId;
use crate::addr::{Access, PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::leaves::zap::Zap;
use crate::space::locks::lock::{Beside, Goal};
use crate::space::regions::unmap::DeadObjects;
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, RegionView, Traits};
use crate::space::state::spaces::SpaceId;
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, Users};

/// Advice on a range: what becomes of its pages now, or of its memory from now on.
///
/// What is a property of the memory is kept by `mremap`, and by `fork` if it says nothing of it,
/// and tells the memory from that beside it without it: the range may be cut off.
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
    /// A property: a forked child has nothing there (`MADV_DONTFORK`).
    DontFork,
    /// Ends [`Advice::DontFork`] (`MADV_DOFORK`).
    DoFork,
    /// A property of private memory without an object: a forked child finds zeroes there, and no
    /// guards (`MADV_WIPEONFORK`). Its own children do, too.
    WipeOnFork,
    /// Ends [`Advice::WipeOnFork`] (`MADV_KEEPONFORK`).
    KeepOnFork,
    /// A property: superpages are wanted, for `superpage=advise` (`MADV_HUGEPAGE`). Ends
    /// [`Advice::NoHuge`], and of folios the design decides again.
    Huge,
    /// A property: neither superpages nor folios come into being there (`MADV_NOHUGEPAGE`); those
    /// that are there stay. Ends [`Advice::Huge`], and what [`Advice::Folio`] said.
    NoHuge,
    /// Ends [`Advice::Sequential`] and [`Advice::Random`] (`MADV_NORMAL`).
    Normal,
    /// A property: pages are used in turn, so a fault that has a page of a file read has those
    /// after it read, too (`MADV_SEQUENTIAL`).
    Sequential,
    /// A property: pages are used in no order, so a fault has its page alone read, from a file or
    /// from swap, and no superpage (`MADV_RANDOM`).
    Random,
    /// Pages are needed soon (`MADV_WILLNEED`): those of files are read into the page cache, and
    /// those in swap are brought back. Nobody is told what could not be read.
    WillNeed,
    /// Fault in every page as a load does (`MADV_POPULATE_READ`). No stack grows.
    PopulateRead,
    /// Fault in every page as a store does (`MADV_POPULATE_WRITE`).
    PopulateWrite,
    /// Make a hole in the object that is mapped (`MADV_REMOVE`), as
    /// [`File::punch_hole`](crate::space::File::punch_hole) does. For shared memory that may be
    /// stored to, now or by [`Space::protect`](crate::space::Space::protect).
    Remove,
    /// Make guards of the pages (`MADV_GUARD_INSTALL`): what they held is dropped as by
    /// [`Advice::DontNeed`], and every access is [`FaultError::Protection`] from now on, that of
    /// [`Space::read_forced`](crate::space::Space::read_forced), too. The region stays one, and a
    /// guard takes no memory but its entry of a page table. Guards go with the memory to other
    /// places and to forked children; [`Advice::DontNeed`] and truncation leave them. They end
    /// with the memory, or by [`Advice::RemoveGuards`].
    ///
    /// [`FaultError::Protection`]: crate::space::FaultError::Protection
    InstallGuards,
    /// End guards (`MADV_GUARD_REMOVE`): the pages are as if nobody had used them. Others stay.
    RemoveGuards,
}

impl Advice {
    /// What it makes of regions, if it is a property of theirs.
    fn word(self) -> Option<NewWord> {
        let read_in_order = Traits::SEQUENTIAL.union(Traits::RANDOM);
        let (without, with) = match self {
            Advice::DontFork => (Traits::NONE, Traits::NOT_FORKED),
            Advice::DoFork => (Traits::NOT_FORKED, Traits::NONE),
            Advice::WipeOnFork => (Traits::NONE, Traits::WIPED_BY_FORK),
            Advice::KeepOnFork => (Traits::WIPED_BY_FORK, Traits::NONE),
            Advice::Huge => (Traits::NOT_HUGE.union(Traits::FOLIO), Traits::HUGE),
            Advice::NoHuge => (
                Traits::HUGE.union(Traits::FOLIO),
                Traits::NOT_HUGE.with_folio(Some(0)),
            ),
            Advice::Normal => (read_in_order, Traits::NONE),
            Advice::Sequential => (read_in_order, Traits::SEQUENTIAL),
            Advice::Random => (read_in_order, Traits::RANDOM),
            _ => return None,
        };
        Some(NewWord::traits(without, with))
    }
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
        if let Some(word) = advice.word() {
            return self.advise_property(unpinned, id, range, (advice, word));
        }
        match advice {
            Advice::Folio(order) => return self.advise_folio(unpinned, id, range, order),
            Advice::InstallGuards => return self.install_guards(unpinned, id, range),
            Advice::RemoveGuards => return self.remove_guards(unpinned, id, range),
            Advice::PopulateRead => return self.populate_for(unpinned, id, range, Access::Read),
            Advice::PopulateWrite => return self.populate_for(unpinned, id, range, Access::Write),
            Advice::WillNeed | Advice::Remove => {
                return self.advise_objects(unpinned, id, range, advice);
            }
            _ => {}
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

    /// Advice that is a property of the memory.
    fn advise_property(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
        (advice, word): (Advice, NewWord),
    ) -> Result<(), MapError> {
        self.with_covered(unpinned, id, range, |pin, space| {
            self.for_regions(space, range, |_, view| match advice {
                Advice::WipeOnFork if view.object != 0 => Err(MapError::WrongKind),
                _ if drops(advice) && view.loses_if_sealed() => Err(MapError::Sealed),
                _ => Ok(()),
            })?;
            self.change_traits(pin, space, range, &word)
        })
    }

    /// [`Advice::WillNeed`] and [`Advice::Remove`]: region by region, without the lock, since
    /// pages are read or waited for.
    fn advise_objects(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
        advice: Advice,
    ) -> Result<(), MapError> {
        let mut dead = DeadObjects::default();
        let mut result = Ok(());
        let mut next = range.start;
        while next < range.end {
            let rest = PageRange {
                start: next,
                end: range.end,
            };
            let found = self.with_locked(unpinned.reborrow(), id, |pin, space| {
                let found = self.for_regions(*space, rest, |_, view| Err(view));
                let Err(view) = found else {
                    return Ok(None);
                };
                if advice == Advice::Remove {
                    may_remove(&view)?;
                }
                if view.object != 0 {
                    let regions = self.objects.regions(&self.regions, view.object);
                    let is_held = regions.hold(pin, None);
                    debug_assert!(is_held, "a region maps an object that has ended");
                }
                Ok(Some(view.part(rest)))
            })?;
            let Some(view) = found else {
                break;
            };
            if view.range.start > next {
                result = Err(MapError::NotMapped);
            }
            next = view.range.end;
            let done = self.advise_object(unpinned.reborrow(), id, &view, advice);
            if view.object != 0 && self.objects.release(view.object) {
                self.defer_destroy(&mut dead, view.object);
            }
            if let Err(error) = done {
                result = Err(error);
                break;
            }
        }
        self.after_removal(unpinned, dead);
        match next < range.end {
            true => result.and(Err(MapError::NotMapped)),
            false => result,
        }
    }

    /// The same for a part of a region, whose object is held.
    fn advise_object(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        view: &RegionView,
        advice: Advice,
    ) -> Result<(), MapError> {
        if view.object != 0 {
            let object = ObjectId {
                handle: view.object,
                generation: self.objects.get(view.object).generation(),
            };
            let (offset, len) = (
                self.bytes_in(view.offset),
                self.bytes_in(view.range.pages()),
            );
            let cache = self.page_cache();
            if advice == Advice::Remove {
                return Ok(cache.punch_hole(object, offset, len)?);
            }
            // Whoever needs a page that could not be read finds out.
            let _ = cache.prefetch(object, offset, len);
        }
        if self.swap().is_some() && !view.is_shared() {
            let _ = self.bring_back_range(unpinned.reborrow(), id, view.range);
        }
        Ok(())
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
            } else if drops(advice) && view.loses_if_sealed() {
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
        if matches!(advice, Advice::DontNeed | Advice::Free) {
            self.forget_tracked(pin, space, range);
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
                    zap.pages(part, &mut gather);
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
                _ => {}
            }
            Ok(())
        });
        drop(gather);
        drop(delayed);
        Ok(())
    }
}

/// Why a region's object gets no hole, if it does not.
fn may_remove(view: &RegionView) -> Result<(), MapError> {
    if view.traits.has(Traits::LOCKED) {
        return Err(MapError::Locked);
    }
    match view.object {
        0 => Err(MapError::WrongKind),
        _ if view.is_unmanaged() => Err(MapError::WrongKind),
        _ if view.is_shared() && view.traits.most().can_write() => Ok(()),
        _ => Err(MapError::Rights),
    }
}

/// Whether advice drops pages, in the space itself or in its children.
fn drops(advice: Advice) -> bool {
    matches!(
        advice,
        Advice::DontNeed | Advice::Free | Advice::DontFork | Advice::WipeOnFork
    )
}
