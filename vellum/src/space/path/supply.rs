//! What an embedder does about pages that its fault hooks catch (userfaultfd's ioctls): supplying
//! pages, mapping those that are there, and watching for stores.
//!
//! Pages are supplied one at a time, each in an attempt of a fault that asks nothing: what can fail
//! is had before the table is locked, and nobody sees a page, or an entry, before it is as it is
//! meant to be. A page of an object enters the cache locked and full, and is unlocked when it is
//! known to lie before the object's end: who cuts the object waits for the lock, or has set the
//! length before ([`Objects::is_attached`](crate::object::Objects::is_attached)).
//!
//! To watch a range, entries are marked and lose the right to store under the space's lock, with
//! faults out of the regions; when that is let go of, the CPUs have been flushed. Pages without an
//! entry that no other hook catches get one then, and a further round marks those. So no entry that a
//! fault has looked at becomes a watched one before the fault has left.

use core::cell::Cell;

use super::hooks::Asked;
use crate::addr::{Access, PageRange, Pfn, Vpn};
use crate::frame::{Kind, MappingsCounted, PageFlags, Request, Site};
use crate::object::{Inserted, NewPages, PageLock};
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::locks::lock::{Beside, Goal};
use crate::space::state::account::Resident;
use crate::space::state::error::{FaultError, MapError};
use crate::space::state::hooks::HookError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::page::PageBytes;
use crate::space::state::region::{NewWord, RegionView, Traits};
use crate::space::state::spaces::{Live, SpaceId};
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, LockedTable, Marks, Users};

/// What the entry of a page of an object allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    /// What the access asked for.
    ByAccess,
    /// All that the region does.
    Whole,
    /// No stores: it is watched.
    Watched,
}

impl Leaf {
    fn of(is_watched: bool) -> Leaf {
        match is_watched {
            true => Leaf::Watched,
            false => Leaf::Whole,
        }
    }
}

/// What [`FaultHooks::supply`](crate::space::FaultHooks::supply) puts into a range.
#[derive(Clone, Copy, Debug)]
pub enum Supply<'a> {
    /// Pages with these bytes, as long as the range (`UFFDIO_COPY`).
    Bytes(&'a [u8]),
    /// The same, protected (`UFFDIO_COPY_MODE_WP`).
    Protected(&'a [u8]),
    /// Pages of zeroes (`UFFDIO_ZEROPAGE`): of private memory, that takes no frame before the first
    /// store.
    Zeroes,
    /// The pages that the shared memory has, which the space does not map yet (`UFFDIO_CONTINUE`).
    Present,
}

/// What an attempt at one page came to.
type Outcome<'c> = &'c Cell<Result<(), HookError>>;

/// What is done about one page and its entry.
type AtPage<'w, P, F, R> =
    dyn Fn(&Fault<'_, P, F, R>, u64, Outcome<'_>) -> Result<FaultStep, FaultError> + 'w;

/// What is done about regions that are locked.
type Locked<'w, R> = dyn Fn(&Pin<'_>, LockedSpace<'_, R>) -> Result<Vpn, MapError> + 'w;

const RESOLVED: FaultStep = FaultStep::Done(Resolved::Mapped);

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`FaultHooks::register`](crate::space::FaultHooks::register), and without hooks
    /// what takes them off.
    pub(crate) fn set_hooks(
        &self,
        id: SpaceId,
        (start, pages): (Vpn, u64),
        hooks: Traits,
    ) -> Result<(), MapError> {
        let mut unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        let watches = hooks.has(Traits::HOOK_STORES);
        if hooks != hooks.only(Traits::HOOKS) || watches && !F::WATCHES || !P::PARTS.hooks {
            return Err(MapError::WrongKind);
        }
        self.with_covered(unpinned.reborrow(), id, range, |pin, space| {
            self.for_regions(space, range, |_, view| self.may_have_hooks(&view, hooks))?;
            let word = NewWord::traits(Traits::HOOKS, hooks);
            self.change_traits(pin, space, range, &word)?;
            if !watches {
                self.unwatch(pin, *space, range);
            }
            Ok(())
        })?;
        self.wake_hooked(&self.pin_by(&unpinned), id.handle, range);
        Ok(())
    }

    fn may_have_hooks(&self, view: &RegionView, hooks: Traits) -> Result<(), MapError> {
        let is_private = view.object == 0;
        let is_memory = is_private || view.is_shared() && !self.objects.get(view.object).is_file();
        if hooks == Traits::NONE {
            Ok(())
        } else if !is_memory || view.is_unmanaged() || is_private && hooks.has(Traits::HOOK_MINOR) {
            Err(MapError::WrongKind)
        } else if !view.traits.most().can_write() {
            Err(MapError::Rights)
        } else {
            Ok(())
        }
    }

    /// [`FaultHooks::supply`](crate::space::FaultHooks::supply) and the like: how many pages there
    /// are now that were not there.
    pub(crate) fn supply(
        &self,
        id: SpaceId,
        (start, pages): (Vpn, u64),
        supply: Supply<'_>,
    ) -> Result<u64, HookError> {
        let mut unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        if let Supply::Bytes(bytes) | Supply::Protected(bytes) = supply
            && bytes.len() as u64 != pages << F::FRAME_SHIFT
        {
            return Err(HookError::BadRange);
        }
        let mut done = 0;
        let mut failed = Ok(());
        while failed.is_ok() && done < pages {
            let first = (done as usize) << F::FRAME_SHIFT;
            let of_page = first..first + F::FRAME_SIZE;
            let part = match supply {
                Supply::Bytes(bytes) => Supply::Bytes(&bytes[of_page]),
                Supply::Protected(bytes) => Supply::Protected(&bytes[of_page]),
                other => other,
            };
            let page = range.start.offset(done);
            failed = self.at_page(unpinned.reborrow(), id, page, &|fault, entry, outcome| {
                self.supply_page(fault, entry, part, outcome)
            });
            done += u64::from(failed.is_ok());
        }
        match failed {
            Err(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }

    /// Wakes those who wait for a page of the range.
    pub(crate) fn wake_range(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), HookError> {
        let range = Self::checked_range(start, pages)?;
        let pin = self.pin();
        let space = self.find_space(id).ok_or(HookError::NoSpace)?;
        self.wake_hooked(&pin, space.handle(), range);
        Ok(())
    }

    /// Makes attempts at a page until one comes to something. The region's gate is open, and the
    /// attempt is inside.
    fn at_page(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        page: Vpn,
        work: &AtPage<'_, P, F, R>,
    ) -> Result<(), HookError> {
        let outcome = Cell::new(Ok(()));
        let attempt = |unpinned: Unpinned<'_>| {
            let asked = Asked::Nothing;
            self.attempt_to(unpinned, id, page, Access::Read, asked, |fault, entry| {
                work(fault, entry, &outcome)
            })
        };
        self.attempt_until_done(unpinned, id, page, None, &|unpinned| {
            self.by_design(unpinned, id, attempt)
        })?;
        outcome.get()
    }

    fn supply_page(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
        supply: Supply<'_>,
        outcome: Outcome<'_>,
    ) -> Result<FaultStep, FaultError> {
        let view = fault.view();
        let is_hooked = view.traits.has_any(Traits::HOOKS);
        let is_watched = matches!(supply, Supply::Protected(_));
        let may_be_watched = !is_watched || view.traits.has(Traits::HOOK_STORES);
        let refused = |error| {
            outcome.set(Err(error));
            Ok(RESOLVED)
        };
        if !is_hooked || !may_be_watched {
            return refused(HookError::NotHooked);
        }
        if entry != 0 {
            return refused(HookError::Exists);
        }
        let has_page = self.has_page(fault.pin, &view, fault.page);
        match (supply, has_page) {
            (_, None) => self.past_end(fault),
            (Supply::Present, _) if view.object == 0 => refused(HookError::NotHooked),
            (Supply::Present, Some(false)) => refused(HookError::NoPage),
            (Supply::Present, Some(true)) => self.map_single(fault, Leaf::Whole),
            (_, Some(true)) => refused(HookError::Exists),
            (Supply::Bytes(bytes) | Supply::Protected(bytes), _) if view.object == 0 => {
                self.supply_private(fault, bytes, is_watched)
            }
            (Supply::Bytes(bytes) | Supply::Protected(bytes), _) => {
                self.supply_cached(fault, Some(bytes), Leaf::of(is_watched), outcome)
            }
            (Supply::Zeroes, _) if view.object == 0 => self.supply_zero(fault),
            (Supply::Zeroes, _) => self.supply_cached(fault, None, Leaf::Whole, outcome),
        }
    }

    /// A private page with these bytes.
    fn supply_private(
        &self,
        fault: &Fault<'_, P, F, R>,
        bytes: &[u8],
        is_watched: bool,
    ) -> Result<FaultStep, FaultError> {
        let pin = fault.pin;
        let request = Request::page(Site::Supplied);
        let frame = fault.alloc_page(request)?;
        PageBytes::new(&self.memory, pin, frame).write(0, bytes);
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let prepared = self.prepare_private(fault, &mut ctx);
        let table = prepared.and_then(|()| fault.lock_empty());
        let installed = table.map(|table| {
            let Some(table) = table else {
                return false;
            };
            let index = fault.index();
            self.own_privately(self.memory.frame(frame), fault.space.handle(), fault.page);
            let run = Run::single(frame, table.pte(index), fault.page);
            self.rmap.add(&env, &mut ctx, &run, fault.place(), true);
            let prot = fault.entered.region.prot();
            let leaf = match is_watched {
                true => F::with_watch(F::leaf(frame, 1, prot.read_only(), Marks::DIRTY), true),
                false => F::leaf(frame, 1, prot, Marks::DIRTY),
            };
            table.fill(index, leaf);
            table.count_made(1);
            true
        });
        self.rmap.finish(&env, ctx);
        self.finish_private(fault, frame, installed, Resolved::Mapped)
    }

    /// The shared zero page.
    pub(super) fn supply_zero(&self, fault: &Fault<'_, P, F, R>) -> Result<FaultStep, FaultError> {
        let Some(table) = fault.lock_empty()? else {
            return Ok(FaultStep::Again);
        };
        let prot = fault.entered.region.prot().read_only();
        let leaf = F::leaf(self.zero_page, 1, prot, Marks::ACCESSED);
        table.fill(fault.index(), leaf);
        table.count_made(1);
        drop(table);
        fault.count_resident(Resident::Zero, 1);
        fault.cpu.events.zero_maps.bump();
        Ok(RESOLVED)
    }

    /// A page of the object that it has not: with these bytes, or zeroes.
    fn supply_cached(
        &self,
        fault: &Fault<'_, P, F, R>,
        bytes: Option<&[u8]>,
        leaf: Leaf,
        outcome: Outcome<'_>,
    ) -> Result<FaultStep, FaultError> {
        let (pin, view) = (fault.pin, fault.view());
        let (handle, index) = (view.object, view.index_of(fault.page));
        let mut frames = [Pfn::NONE];
        fault.for_object(|payer| {
            let (place, new) = ((handle, index), (NewPages::ToFill, payer));
            (self.objects).alloc_run(&self.memory, pin, place, new, &mut frames)
        })?;
        let [frame] = frames;
        let page = PageBytes::new(&self.memory, pin, frame);
        match bytes {
            Some(bytes) => drop(page.write(0, bytes)),
            None => page.fill(0),
        }
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let object = self.objects.get(handle);
        let prepared = self.rmap.prepare(&env, &mut ctx, fault.place(), 1);
        let prepared =
            prepared.and_then(|()| (self.objects).prepare_insert(&self.memory, pin, object, index));
        let table = match prepared.and_then(|()| fault.lock_empty()) {
            Ok(Some(table)) => table,
            other => {
                self.rmap.finish(&env, ctx);
                self.objects.drop_frames(&self.memory, pin, handle, &frames);
                other?;
                return Ok(FaultStep::Again);
            }
        };
        let record = self.memory.frame(frame);
        record.set_kind_with(Kind::Object, PageFlags::LOCKED);
        let is_in = (self.objects).insert_made(&self.memory, pin, (handle, index), frame);
        let is_kept = is_in && self.unlock_if_within(pin, handle, index, frame);
        let installed = is_kept && self.install_cached(fault, &table, frame, &mut ctx);
        if installed {
            self.give_rights(fault, &table, leaf);
            table.count_made(1);
            drop(table);
        } else {
            self.leave_table(pin, fault.space, table);
        }
        self.rmap.finish(&env, ctx);
        if is_kept {
            self.note_inserted(pin, frame, Inserted::Cache);
        }
        if installed {
            fault.count_resident(Resident::SharedMemory, 1);
            fault.cpu.events.file_maps.bump();
        } else if is_kept {
            // Somebody is cutting it off, or has it locked: it is there, and not mapped.
            self.memory.put(pin, frame);
        } else if !is_in {
            outcome.set(Err(HookError::Exists));
        } else {
            return self.past_end(fault);
        }
        Ok(RESOLVED)
    }

    /// Unlocks a page that has been put into the cache, full, unless the object ends before it by
    /// now: then it leaves again.
    fn unlock_if_within(&self, pin: &Pin<'_>, handle: u32, index: u64, frame: Pfn) -> bool {
        let lock = PageLock::held(frame);
        // Orders the page in the cache before the look at the length, as for who counts a mapping.
        let _after = MappingsCounted::now();
        let is_within = index < self.objects.get(handle).pages();
        match is_within {
            true => self.objects.filled(&self.memory, pin, lock),
            false => self.objects.fill_failed(&self.memory, pin, lock),
        }
        is_within
    }

    /// Maps a page of the region's object, and none around it.
    pub(super) fn map_single(
        &self,
        fault: &Fault<'_, P, F, R>,
        leaf: Leaf,
    ) -> Result<FaultStep, FaultError> {
        let pin = fault.pin;
        let frame = match self.object_page(fault)? {
            Ok(frame) => frame,
            Err(step) => return Ok(step),
        };
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let prepared = self.rmap.prepare(&env, &mut ctx, fault.place(), 1);
        let table = match prepared.and_then(|()| fault.lock_empty()) {
            Ok(Some(table)) => table,
            other => {
                self.rmap.finish(&env, ctx);
                self.memory.put(pin, frame);
                other?;
                return Ok(FaultStep::Again);
            }
        };
        let installed = self.install_cached(fault, &table, frame, &mut ctx);
        if installed {
            self.give_rights(fault, &table, leaf);
            table.count_made(1);
            drop(table);
        } else {
            self.leave_table(pin, fault.space, table);
        }
        self.rmap.finish(&env, ctx);
        if !installed {
            return Ok(FaultStep::Wait(frame));
        }
        fault.count_resident(Resident::SharedMemory, 1);
        fault.cpu.events.file_maps.bump();
        Ok(RESOLVED)
    }

    /// Gives the entry of a page of an object, which was just made, what is meant for it.
    fn give_rights(&self, fault: &Fault<'_, P, F, R>, table: &LockedTable<'_, F>, leaf: Leaf) {
        let prot = fault.entered.region.prot();
        let change = |entry| match leaf {
            Leaf::ByAccess => entry,
            Leaf::Whole if prot.can_write() => {
                F::with_marks(F::with_prot(entry, 1, prot), Marks::DIRTY)
            }
            Leaf::Whole => entry,
            Leaf::Watched => {
                let entry = F::with_marks(F::write_protect(entry), Marks::DIRTY);
                F::with_watch(entry, true)
            }
        };
        table.update(fault.index(), Users::Hardware, change);
    }

    /// [`FaultHooks::protect`](crate::space::FaultHooks::protect).
    pub(crate) fn watch(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), HookError> {
        let mut unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        let mut from = range.start;
        while from < range.end {
            let rest = PageRange {
                start: from,
                ..range
            };
            let watch = |pin: &Pin<'_>, space: LockedSpace<'_, R>| {
                self.check_watched(space, rest)?;
                self.watch_present(pin, space, rest)
            };
            let gap = self.with_regions_of(unpinned.reborrow(), id, rest, &watch)?;
            from = self.fill_gaps(
                unpinned.reborrow(),
                id,
                PageRange {
                    start: gap,
                    ..range
                },
            )?;
        }
        Ok(())
    }

    /// [`FaultHooks::unprotect`](crate::space::FaultHooks::unprotect).
    pub(crate) fn end_watch(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), HookError> {
        let mut unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        let unwatch = |pin: &Pin<'_>, space: LockedSpace<'_, R>| {
            self.check_watched(space, range)?;
            self.unwatch(pin, *space, range);
            Ok(range.end)
        };
        self.with_regions_of(unpinned.reborrow(), id, range, &unwatch)?;
        Ok(())
    }

    /// Does `work` with what guards the regions of a range locked.
    fn with_regions_of(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
        work: &Locked<'_, R>,
    ) -> Result<Vpn, MapError> {
        self.with_room(unpinned, |mut unpinned| {
            let (goal, beside) = (Goal::Range(range), Beside::Nobody);
            let lent = unpinned.reborrow();
            let here =
                self.with_range_locked(lent, id, goal, beside, |pin, space, _| work(pin, space))?;
            match here {
                Some(done) => Ok(done),
                None => self.with_locked(unpinned, id, |pin, space| work(pin, *space)),
            }
        })
    }

    /// Whether stores can be watched for in all of a range.
    fn check_watched(&self, space: LockedSpace<'_, R>, range: PageRange) -> Result<(), MapError> {
        if !self.is_covered(space, range) {
            return Err(MapError::NotMapped);
        }
        self.for_regions(space, range, |_, view| {
            match view.traits.has(Traits::HOOK_STORES) {
                true => Ok(()),
                false => Err(MapError::WrongKind),
            }
        })
    }

    /// Watches the pages of a range that have entries. Returns the first that has none, and may need
    /// one; the end of the range if there is none.
    fn watch_present(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
    ) -> Result<Vpn, MapError> {
        self.for_regions(space, range, |handle, view| {
            let part = view.range.intersection(range);
            self.demote_range(pin, *space, self.region(handle), part)
        })?;
        let closed = self.close_regions(pin, space, range);
        let mut gather = self.gather(pin, *space);
        let mut gap = range.end;
        closed.for_each(|_, view| {
            let part = view.range.intersection(range);
            let mut next = part.start;
            // Of private memory nothing else is missing.
            let is_caught = view.object == 0 && view.traits.has(Traits::HOOK_MISSING);
            let mut lacks = |from: Vpn, to: Vpn, is_caught: bool| {
                if from < to && !is_caught {
                    gap = gap.min(from);
                }
            };
            for span in self.tables(pin, *space).spans(part) {
                let table = &span.table;
                let first = table.page(span.first);
                if table.level() > 1 {
                    // Made since it was split.
                    lacks(first, first.offset(1), false);
                    continue;
                }
                lacks(next, first, is_caught);
                next = first.offset(span.count as u64);
                self.end_runs(pin, *space, table, span.first..span.first + span.count);
                for index in span.first..span.first + span.count {
                    let entry = table.load(index);
                    let page = table.page(index);
                    if entry == 0 {
                        lacks(page, page.offset(1), is_caught);
                    } else if !F::is_watched(entry) && !F::is_of_no_page(entry) {
                        let (old, _) = table.update(index, Users::Hardware, |entry| {
                            let entry = match F::is_mapped(entry) {
                                true => F::write_protect(entry),
                                false => entry,
                            };
                            F::with_watch(entry, true)
                        });
                        if F::is_mapped(old) && F::is_writable(old) {
                            gather.stale(page);
                        }
                    }
                }
            }
            lacks(next, part.end, is_caught);
            Self::note_unflushed(*space, part, &mut gather);
        });
        drop(gather);
        Ok(gap)
    }

    /// Gives entries to pages without, unless another hook catches the page or its object ends
    /// before it: they are watched in the next round. Returns where that begins.
    fn fill_gaps(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
    ) -> Result<Vpn, HookError> {
        let mut first = range.end;
        for page in (range.start.0..range.end.0).map(Vpn) {
            let filled = self.at_page(unpinned.reborrow(), id, page, &|fault, entry, outcome| {
                let view = fault.view();
                let has_page = self.has_page(fault.pin, &view, fault.page);
                let is_caught = self.caught_missing(fault.pin, &view, fault.page).is_some();
                let is_watched = fault.lowest.1 == 1 && F::is_watched(entry);
                if entry == 0 && has_page.is_none() {
                    return self.past_end(fault);
                }
                if is_watched || entry == 0 && is_caught {
                    // It is done with, or stays without.
                    outcome.set(Err(HookError::NoPage));
                    return Ok(RESOLVED);
                }
                match view.object {
                    _ if entry != 0 => Ok(RESOLVED),
                    0 => self.supply_zero(fault),
                    _ => self.map_single(fault, Leaf::ByAccess),
                }
            });
            match filled {
                Ok(()) => first = first.min(page),
                // Or the object ends before it.
                Err(HookError::NoPage | HookError::PastEnd) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(first)
    }

    /// Takes the marks off the entries of a range. The right to store comes with the next fault.
    fn unwatch(&self, pin: &Pin<'_>, space: Live<'_, R>, range: PageRange) {
        for span in self.tables(pin, space).spans(range) {
            if span.table.level() > 1 {
                continue;
            }
            for index in span.first..span.first + span.count {
                if F::is_watched(span.table.load(index)) {
                    let unwatched = |entry| F::with_watch(entry, false);
                    span.table.update(index, Users::Hardware, unwatched);
                }
            }
        }
    }
}
