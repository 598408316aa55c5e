//! Pages that come back from swap, and entries that name slots.
//!
//! A fault on such an entry looks into the swap cache ([`crate::swap`]). A page that is
//! being written or read is waited for; one that is in its area only is read; and one that
//! is there is mapped, as a private page that this entry has alone, with all rights of its
//! region: a store that comes later needs no fault.

use core::ops::Range;

use crate::addr::{Access, Pfn};
use crate::frame::{Kind, NoPage, PageFlags, Payer, Request, Site};
use crate::object::{Inserted, PageLock};
use crate::platform::{IoError, Platform};
use crate::rmap::{ReverseMap, Run};
use crate::space::state::account::Resident;
use crate::space::state::common::Common;
use crate::space::state::error::FaultError;
use crate::space::state::manager::Vm;
use crate::space::state::region::Traits;
use crate::space::steps::fault::{Fault, FaultStep, ReadAround, Resolved};
use crate::swap::{FromSwap, GROUP, InSwap, Swap};
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, LockedTable, Marks, Users};

/// A page found in the swap cache by a fault on an entry that names its slot.
struct InSwapCache<'s> {
    swap: &'s Swap,
    /// The entry.
    entry: u64,
    slot: u64,
    page: Pfn,
    /// The frame for a copy, if one is needed.
    copy: Option<Pfn>,
}

impl<P: Platform> Common<P> {
    /// Puts a frame into the swap cache for the page of a slot to be read into, with a reference
    /// for the caller. `None` if somebody else was faster.
    pub(super) fn begin_swap_in(
        &self,
        pin: &Pin<'_>,
        swap: &Swap,
        (slot, is_wanted): (u64, bool),
        payer: Payer,
        index: impl FnOnce() -> u64,
    ) -> Result<Option<PageLock>, NoPage> {
        let request = Request::page(Site::SwapIn);
        let page = (self.memory).alloc_page(pin, request, payer, index)?;
        let frame = self.memory.frame(page);
        frame.set_kind_with(Kind::Anonymous, PageFlags::LOCKED);
        // Until the page is mapped, its index is the slot's number.
        frame.set_index(slot, 0);
        if swap.begin_in(&self.memory, pin, (slot, page), is_wanted) {
            return Ok(Some(PageLock::held(page)));
        }
        self.memory.put(pin, page);
        Ok(None)
    }

    /// Reads a page that is in the swap cache from its area, and with it
    /// neighbours if there is much memory; unlocks it and drops the reference that came with
    /// the step. An error is that of this fault alone: others that want the page try for
    /// themselves.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn read_swapped(
        &self,
        mut unpinned: Unpinned<'_>,
        lock: PageLock,
        around: ReadAround,
    ) -> Result<(), FaultError> {
        let page = lock.page();
        let slot = self.memory.frame(page).index();
        let Some(swap) = self.swap() else {
            return Err(FaultError::Io);
        };
        let (group, own) = swap.group(slot);
        let mut frames = [Pfn::NONE; GROUP];
        frames[own] = page;
        let row = match around {
            ReadAround::Allowed => self.begin_ahead(swap, group.clone(), &mut frames, own),
            ReadAround::Refused => own..own + 1,
        };
        let (first, frames) = (group.start + row.start as u64, &frames[row]);
        let place = swap.place(first);
        let whole = match place {
            // SAFETY: nobody uses the pages before their slots are no longer busy, which they
            // are from before others could find them (invariant 14).
            Some((store, index)) if frames.len() > 1 => unsafe {
                (self.memory.unpinned_platform(unpinned.reborrow()))
                    .and_then(|all| all.read_pages(store, index, frames))
            },
            _ => Err(IoError),
        };
        let mut result = Ok(());
        for (step, &frame) in (0..).zip(frames) {
            let read = whole.or_else(|_| match place {
                // SAFETY: as above.
                Some((store, index)) => unsafe {
                    let platform = self.memory.unpinned_platform(unpinned.reborrow());
                    platform?.read_page(store, index + step, frame)
                },
                None => Err(IoError),
            });
            let pin = self.pin_by(&unpinned);
            swap.end_in(&self.memory, &pin, first + step, read.is_ok());
            self.objects
                .locks
                .unlock(&self.memory, &pin, PageLock::held(frame));
            if frame == page {
                result = read.map_err(FaultError::from);
            } else if read.is_ok() {
                // So that reclaim finds it if nobody wants it.
                self.note_inserted(&pin, frame, Inserted::Anonymous);
            }
            self.memory.put(&pin, frame);
        }
        result
    }

    /// Puts frames into the swap cache for neighbours of a page that is about to be read: slots
    /// of its group in a row with its own, as far as their pages are in the area only. Returns
    /// which of `frames`, one for each slot of the group, are to be filled.
    ///
    /// None if memory is short, or what the group may have, or if nothing would take back what
    /// nobody wants.
    fn begin_ahead(
        &self,
        swap: &Swap,
        group: Range<u64>,
        frames: &mut [Pfn; GROUP],
        own: usize,
    ) -> Range<usize> {
        let mut row = own..own + 1;
        let pin = self.pin();
        if self.reclaim().is_none() || self.memory.lacking(self.memory.home(&pin)) > 0 {
            return row;
        }
        // Who wants the page has been charged for it.
        let payer = self.group_of_frame(&pin, frames[own]);
        if (self.memory.groups()).is_some_and(|groups| groups.is_short(payer)) {
            return row;
        }
        let begin = |place: usize| {
            let slot = group.start + place as u64;
            let begun = self.begin_swap_in(&pin, swap, (slot, false), payer.into(), || 0);
            begun.ok().flatten()
        };
        let count = (group.end - group.start) as usize;
        while row.end < count
            && let Some(lock) = begin(row.end)
        {
            frames[row.end] = lock.page();
            row.end += 1;
        }
        while row.start > 0
            && let Some(lock) = begin(row.start - 1)
        {
            row.start -= 1;
            frames[row.start] = lock.page();
        }
        row
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// A fault on the entry of a page that is in swap or lost, or on a guard.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn swap_in(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
    ) -> Result<FaultStep, FaultError> {
        if F::is_guard(entry) {
            return Err(FaultError::Protection);
        }
        if F::is_lost(entry) {
            return Err(FaultError::Lost);
        }
        let Some(swap) = self.swap() else {
            debug_assert!(false, "an entry names a slot, and there are none");
            return Err(FaultError::Io);
        };
        let swapped = F::swapped(entry);
        match swap.find(&self.memory, fault.pin, swapped.slot) {
            InSwap::Nothing => {
                // Whoever takes the page has the lock of the table until the entry maps it.
                drop(fault.lock_found());
                Ok(FaultStep::Again)
            }
            InSwap::Cached {
                page,
                is_busy: true,
            } => Ok(FaultStep::Wait(page)),
            InSwap::Cached { page, .. } => {
                let mut cached = InSwapCache {
                    swap,
                    entry,
                    slot: swapped.slot,
                    page,
                    copy: None,
                };
                let result = self.map_cached(fault, &mut cached);
                for frame in [Some(page), cached.copy].into_iter().flatten() {
                    self.memory.put(fault.pin, frame);
                }
                result
            }
            InSwap::Stored => {
                let begun = {
                    let wanted = (swapped.slot, true);
                    fault.for_private(|payer| {
                        let index = || fault.index_of_page();
                        self.begin_swap_in(fault.pin, swap, wanted, payer, index)
                    })?
                };
                // Those around it would not be placed by the policy.
                let is_alone = P::PARTS.nodes && fault.space.payer().is_unplaced();
                let step = match is_alone || fault.view().traits.has(Traits::RANDOM) {
                    true => FaultStep::SwapInAlone,
                    false => FaultStep::SwapIn,
                };
                Ok(begun.map_or(FaultStep::Again, step))
            }
        }
    }

    /// Maps a page of the swap cache, or a copy, in the place of the entry.
    fn map_cached(
        &self,
        fault: &Fault<'_, P, F, R>,
        cached: &mut InSwapCache<'_>,
    ) -> Result<FaultStep, FaultError> {
        let env = self.env(fault.pin);
        let named = (cached.slot, cached.page);
        if (cached.swap).must_copy(&self.memory, fault.pin, named) {
            cached.copy = Some(fault.alloc_page(Request::page(Site::SwapIn))?);
        }
        let mut ctx = R::Ctx::default();
        let prepared = self.prepare_private(fault, &mut ctx);
        let mapped = match prepared {
            Ok(()) => self.take_cached(fault, cached, &mut ctx),
            Err(_) => None,
        };
        self.rmap.finish(&env, ctx);
        prepared?;
        let Some(frame) = mapped else {
            return Ok(FaultStep::Again);
        };
        fault.count_resident(Resident::Anonymous, 1);
        fault.count_resident(Resident::Swap, u64::MAX);
        fault.entered.region.note_private();
        match self.reclaim() {
            Some(reclaim) => reclaim.swapped_in(fault.pin, self.aged(frame), cached.slot),
            None => self.note_inserted(fault.pin, frame, Inserted::Anonymous),
        }
        fault.cpu.events.swap_ins.bump();
        Ok(FaultStep::Done(Resolved::Mapped))
    }

    /// [`Vm::map_cached`] under the lock of the table. Returns the frame mapped, if the entry
    /// is still there and the page still cached.
    fn take_cached(
        &self,
        fault: &Fault<'_, P, F, R>,
        cached: &mut InSwapCache<'_>,
        ctx: &mut R::Ctx,
    ) -> Option<Pfn> {
        let (pin, index) = (fault.pin, fault.index());
        let table = fault.lock_found()?;
        if table.level() != 1 || table.load(index) != cached.entry {
            return None;
        }
        let named = (cached.slot, cached.page);
        let copies = cached.copy.is_some();
        let frame = match cached.swap.take(&self.memory, pin, named, copies) {
            FromSwap::Nothing | FromSwap::NeedsCopy => return None,
            FromSwap::Frame => {
                // It has counts already: others may have references, who waited for it.
                let frame = self.memory.frame(cached.page);
                frame.set_owner(fault.space.handle());
                frame.set_index(fault.page.0, 0);
                frame.adopt_mapping();
                cached.page
            }
            FromSwap::Copy => {
                let copy = cached.copy.take()?;
                self.memory.copy(pin, cached.page, copy);
                let frame = self.memory.frame(copy);
                self.own_privately(frame, fault.space.handle(), fault.page);
                copy
            }
        };
        let run = Run::single(frame, table.pte(index), fault.page);
        (self.rmap).add(&self.env(pin), ctx, &run, fault.place(), true);
        let is_clean = F::swapped(cached.entry).clean && fault.access != Access::Write;
        let marks = match is_clean {
            true => Marks::ACCESSED,
            false => Marks::DIRTY,
        };
        let leaf = F::leaf(frame, 1, fault.entered.region.prot(), marks);
        let leaf = match Self::is_watched(cached.entry) {
            true => F::with_watch(F::write_protect(leaf), true),
            false => leaf,
        };
        table.update(index, Users::Hardware, |_| leaf);
        Some(frame)
    }

    /// Makes the entry at `index` of a child's table name the slot that the one of the
    /// parent's names, which is not exclusive any more. `false` if too many do.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn fork_swapped(
        &self,
        pin: &Pin<'_>,
        source: &LockedTable<'_, F>,
        target: &LockedTable<'_, F>,
        index: usize,
    ) -> bool {
        let mut swapped = F::swapped(source.load(index));
        let Some(swap) = self.swap() else {
            return false;
        };
        if !swap.add_entry(pin, swapped.slot) {
            return false;
        }
        swapped.exclusive = false;
        source.update(index, Users::Hardware, |old| {
            F::with_watch(F::swap(swapped), Self::is_watched(old))
        });
        target.fill(index, F::swap(swapped));
        true
    }
}
