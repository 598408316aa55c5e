//! Where spaces are divided into tracts, and how they are united again.
//!
//! The holder of a lock who had to wait for it knows which page it was going to change, and which
//! the one who waited before. Between the two lies the cut: a multiple of the largest power of two
//! that lies there, so that further cuts halve what is left, and never within a region.

use crate::addr::{PageRange, Vpn};
use crate::frame::OutOfMemory;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::{Item, Stay};
use crate::space::state::error::MapError;
use crate::space::state::locked::HoldsSpace;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::{Live, SpaceId};
use crate::space::state::tract::{Tract, Waits};
use crate::space::state::tree::RegionTree;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, Unpinned};
use crate::table::Format;
use crate::tree::RangeTree;

/// How often somebody must have waited before a space is divided: dividing takes as long as many
/// changes do, and threads that meet by chance gain nothing by it.
const PATIENCE: u32 = 16;

/// The same for a tract, which has shown by then that its space is one that many change.
const TRACT_PATIENCE: u32 = 2;

/// Regions that it takes as long to move as one that waits has waited.
const REGIONS_A_WAIT: u64 = 16;

/// Most tracts of a space for each CPU.
const TRACTS_A_CPU: u32 = 4;

/// Where to cut so that `one` and `other` come to lie apart: at the multiple of the largest
/// power of two between them.
fn cut_between(one: Vpn, other: Vpn) -> Option<Vpn> {
    let (low, high) = (one.min(other).0, one.max(other).0);
    let highest = (low ^ high).checked_ilog2()?;
    Some(Vpn(high >> highest << highest))
}

/// The cut, moved to an edge of the region that it would go through.
fn beside_regions<T: Item, S: Stay>(
    tree: RangeTree<'_, T, S>,
    cut: Vpn,
    (low, high): (Vpn, Vpn),
) -> Option<Vpn> {
    let Some(found) = tree
        .first_ending_after(cut.0)
        .filter(|found| found.start < cut.0)
    else {
        return Some(cut);
    };
    if found.start > low.0 {
        Some(Vpn(found.start))
    } else if found.end <= high.0 {
        Some(Vpn(found.end))
    } else {
        None
    }
}

/// Whether no region lies on both sides of the cut.
fn is_between_regions<T: Item, S: Stay>(tree: RangeTree<'_, T, S>, cut: Vpn) -> bool {
    let found = tree.first_ending_after(cut.0);
    found.is_none_or(|found| found.start >= cut.0)
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::divide`](crate::space::Space::divide).
    pub(crate) fn divide_space(&self, id: SpaceId, page: Vpn) -> Result<bool, MapError> {
        let mut unpinned = Unpinned::at_door();
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        if page.0 == 0 || page >= F::USER_END {
            return Ok(false);
        }
        let guard = self.lock_but_tracts(unpinned.reborrow(), space);
        let divided = match (space.named(id), space.is_divided()) {
            (None, _) => Err(MapError::NoSpace),
            (_, false) if is_between_regions(self.tree(guard.locked(), space), page) => {
                let divided = self.begin_tracts(&self.pin_by(&unpinned), space, page);
                divided.map_err(MapError::from)
            }
            (_, false) => Ok(()),
            (_, true) => {
                let divided = self.divide_tract_before(unpinned, space, page);
                divided.map_err(MapError::from)
            }
        };
        let is_divided = space.is_divided() && self.is_boundary(guard.locked(), page);
        divided.map(|()| is_divided)
    }

    /// Where to divide, after somebody has waited for a lock before a change of `page`;
    /// `regions` are in the tree. `None` if it is not time, or there is no such place.
    fn cut_after_wait(
        &self,
        tree: RegionTree<'_, R>,
        (waits, patience): (&Waits, u32),
        page: Vpn,
        regions: u64,
    ) -> Option<Vpn> {
        let (count, before) = waits.note(page);
        let before = before?;
        if u64::from(count) < u64::from(patience) + regions / REGIONS_A_WAIT {
            return None;
        }
        let cut = cut_between(page, before)?;
        beside_regions(tree, cut, (page.min(before), page.max(before)))
    }

    /// Divides a space, whose lock is the caller's, if it is time after a wait for it.
    pub(super) fn divide_after_wait(
        &self,
        mut unpinned: Unpinned<'_>,
        space: Live<'_, R>,
        page: Vpn,
    ) {
        let waits = (&space.get().waits, PATIENCE);
        let regions = space.account.counts.regions.get();
        let pin = self.pin_by(&unpinned);
        let cut = self.cut_after_wait(self.tree(&pin, space), waits, page, regions);
        drop(pin);
        let Some(cut) = cut else {
            return;
        };
        self.wait_until_alone(unpinned.reborrow(), space);
        let pin = self.pin_by(&unpinned);
        if !space.is_divided() && is_between_regions(self.tree(&pin, space), cut) {
            // Without memory it stays as it is.
            let _ = self.begin_tracts(&pin, space, cut);
        }
    }

    /// Where to divide a tract, whose lock is the caller's, after a wait for it. `page` is what
    /// the caller is to change; if that is to be found first, most of the free pages below all
    /// regions are left to others.
    pub(super) fn tract_cut_after_wait(
        &self,
        pin: &Pin<'_>,
        tract: &Tract,
        page: Option<Vpn>,
    ) -> Option<Vpn> {
        let tree = self.tract_tree(pin, tract);
        let waits = &tract.guarded.waits;
        if let Some(page) = page {
            return self.cut_after_wait(tree, (waits, TRACT_PATIENCE), page, 0);
        }
        let range = tract.range();
        let first = tree.first_ending_after(range.start.0);
        let end = first.map_or(range.end.0, |found| found.start);
        let free = end.saturating_sub(range.start.0);
        let share = (free / (2 * self.memory.platform().cpus() as u64)).checked_ilog2()?;
        (share >= F::INDEX_BITS).then(|| Vpn((end - (1 << share)) >> share << share))
    }

    /// Makes two tracts of a space that is not divided.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing has changed.
    pub(super) fn begin_tracts(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        cut: Vpn,
    ) -> Result<(), OutOfMemory> {
        let all = Self::all_pages();
        let halves = [
            PageRange { end: cut, ..all },
            PageRange { start: cut, ..all },
        ];
        let own = self.tree(pin, space);
        let tracts = self.tracts(space);
        let low = self.make_tract(pin, own, halves[0])?;
        let made = self.make_tract(pin, own, halves[1]).and_then(|high| {
            let rooms = tracts.make_room(pin, &self.memory);
            let rooms = rooms.and_then(|room| Ok([room, tracts.make_room(pin, &self.memory)?]));
            rooms
                .map(|rooms| (high, rooms))
                .inspect_err(|_| self.free_tract(pin, high))
        });
        let (high, rooms) = made.inspect_err(|_| self.free_tract(pin, low))?;
        let write = space.seq.write(pin);
        for (tract, room) in [low, high].into_iter().zip(rooms) {
            let range = tract.range();
            tracts.insert(pin, room, tract.handle(), range.start.0, range.end.0);
        }
        own.clear(pin);
        space.keeps_tables.store(1, Ordering::Relaxed);
        space.tract_count.store(2, Ordering::Relaxed);
        space.waits.reset();
        self.deal(space);
        low.publish(space.handle());
        high.publish(space.handle());
        drop(write);
        Ok(())
    }

    /// Divides a tract whose lock is the caller's, if the lock of the space is to be had at once:
    /// it comes first in the order of locks.
    pub(super) fn try_to_divide(&self, pin: &Pin<'_>, space: Live<'_, R>, tract: &Tract, cut: Vpn) {
        if space.lock.try_lock() {
            // Without memory it stays as it is.
            let _ = self.divide_tract(pin, space, tract, cut);
            self.unlock_alone(space);
        }
    }

    /// Divides the tract that a cut lies in, for the holder of the space's lock, if no region lies
    /// on both sides of it.
    fn divide_tract_before(
        &self,
        mut unpinned: Unpinned<'_>,
        space: Live<'_, R>,
        cut: Vpn,
    ) -> Result<(), OutOfMemory> {
        let tract = self.tract_at(space, cut);
        self.lock_tract(unpinned.reborrow(), tract);
        let pin = self.pin_by(&unpinned);
        let is_between = is_between_regions(self.tract_tree(&pin, tract), cut);
        let divided = match tract.range().start < cut && is_between {
            true => self.divide_tract(&pin, space, tract, cut),
            false => Ok(()),
        };
        drop(pin);
        self.unlock_tract(tract);
        divided
    }

    /// Takes the pages from `cut` on off a tract, and makes another one of them.
    fn divide_tract<'a>(
        &'a self,
        pin: &Pin<'_>,
        space: Live<'a, R>,
        tract: &'a Tract,
        cut: Vpn,
    ) -> Result<(), OutOfMemory> {
        let count = space.tract_count.load(Ordering::Relaxed);
        if count >= TRACTS_A_CPU.saturating_mul(self.memory.platform().cpus() as u32) {
            return Ok(());
        }
        let range = tract.range();
        let (kept, rest) = (
            PageRange { end: cut, ..range },
            PageRange {
                start: cut,
                ..range
            },
        );
        let tree = self.tract_tree(pin, tract);
        let new = self.make_tract(pin, tree, rest)?;
        let tracts = self.tracts(space);
        let room = tracts
            .make_room(pin, &self.memory)
            .inspect_err(|_| self.free_tract(pin, new))?;
        let write = space.seq.write(pin);
        for found in self.tract_tree(pin, new).walk(0) {
            tree.remove(pin, found.start);
        }
        tracts.resize(range.start.0, kept.start.0, kept.end.0);
        tracts.insert(pin, room, new.handle(), rest.start.0, rest.end.0);
        tract.set_range(kept);
        space.tract_count.store(count + 1, Ordering::Relaxed);
        tract.guarded.waits.reset();
        tract.halve(new);
        new.publish(space.handle());
        drop(write);
        Ok(())
    }

    /// A tract of these pages with the regions of `from` that lie there, which stay in `from` as
    /// well. It is no space's yet.
    ///
    /// # Errors
    /// [`OutOfMemory`]; there is none.
    fn make_tract<'a>(
        &'a self,
        pin: &Pin<'_>,
        from: RegionTree<'a, R>,
        range: PageRange,
    ) -> Result<&'a Tract, OutOfMemory> {
        let handle = self.tracts.items.alloc(pin, &self.memory)?;
        let tract = self.tracts.items.get(handle);
        tract.begin(handle, range);
        if let Err(error) = self.copy_tree(pin, from, self.tract_tree(pin, tract), range) {
            self.free_tract(pin, tract);
            return Err(error);
        }
        Ok(tract)
    }

    /// Puts the regions of `from` that begin in `range` into `to` as well.
    ///
    /// # Errors
    /// [`OutOfMemory`]; some of them are in it.
    pub(in crate::space) fn copy_tree(
        &self,
        pin: &Pin<'_>,
        from: RegionTree<'_, R>,
        to: RegionTree<'_, R>,
        range: PageRange,
    ) -> Result<(), OutOfMemory> {
        for found in from.walk(range.start.0) {
            if found.start >= range.end.0 {
                break;
            }
            let room = to.make_room(pin, &self.memory)?;
            to.insert(pin, room, found.item.handle(), found.start, found.end);
        }
        Ok(())
    }

    /// Frees a tract that nobody has found yet.
    fn free_tract(&self, pin: &Pin<'_>, tract: &Tract) {
        self.tract_tree(pin, tract).clear(pin);
        tract.end();
        self.tracts.items.free(pin, tract.handle());
    }

    /// Deals out what a space, whose lock is the caller's, may have more to its tracts.
    pub(super) fn deal(&self, space: Live<'_, R>) {
        let tracts = u64::from(space.tract_count.load(Ordering::Relaxed).max(1));
        let share = Self::left(space).part(tracts);
        self.for_tracts(space, |tract| tract.guarded.most.set(share));
    }
}
