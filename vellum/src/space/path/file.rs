//! Faults on pages of objects, and objects as their users see them.

use super::swap_shared::Loading;
use crate::addr::{Access, PageRange, Pfn, Vpn, set_bits};
use crate::frame::{MappingsCounted, PageFlags, Request, Site};
use crate::object::{CachedPage, Inserted, PageLock};
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::regions::unmap::EndsObjects;
use crate::space::state::error::FaultError;
use crate::space::state::manager::Vm;
use crate::space::state::region::Traits;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::{Turn, Unpinned, bytes};
use crate::table::{Format, LockedTable, Marks};

/// Most pages that `faultaround` maps at once.
const MAX_AROUND: usize = u64::BITS as usize;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The page of the region's object that a fault needs, with a reference.
    pub(super) fn object_page(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<Result<Pfn, FaultStep>, FaultError> {
        let view = fault.view();
        let index = view.index_of(fault.page);
        if index >= self.objects.get(view.object).pages() {
            return self.past_end(fault).map(Err);
        }
        let place = (view.object, index);
        let page =
            fault.for_object(|payer| (self.objects).page(&self.memory, fault.pin, place, payer))?;
        Ok(match page {
            #[cfg(feature = "published")]
            CachedPage::Ready(frame) if self.goes_by_page() => self.lock_and_unlock(fault, frame),
            CachedPage::Ready(frame) => Ok(frame),
            CachedPage::Made(frame) => {
                self.note_inserted(fault.pin, frame, Inserted::Cache);
                Ok(frame)
            }
            CachedPage::Fill(lock) => Err(match view.traits.has(Traits::SEQUENTIAL) {
                true => FaultStep::FillAhead(lock),
                false => FaultStep::Fill(lock),
            }),
            CachedPage::Locked(frame) => Err(FaultStep::Wait(frame)),
            CachedPage::Swapped(slot) => {
                let loading =
                    fault.for_object(|payer| self.load_shared(fault.pin, place, slot, payer))?;
                match loading {
                    Loading::Here(frame) => Ok(frame),
                    Loading::Wait(frame) => Err(FaultStep::Wait(frame)),
                    Loading::Read(lock) => Err(FaultStep::SwapIn(lock)),
                    Loading::Again => Err(FaultStep::Again),
                    Loading::Lost => return Err(FaultError::Lost),
                }
            }
        })
    }

    /// Fills a page, and reads what follows it, too.
    #[cold]
    #[inline(never)]
    pub(super) fn fill_ahead(
        &self,
        mut unpinned: Unpinned<'_>,
        lock: PageLock,
    ) -> Result<(), FaultError> {
        let record = self.memory.frame(lock.page());
        let (handle, next) = (record.owner(), record.index() + 1);
        // While the page is locked its object does not end. Then the region may be gone already.
        let is_held = self.objects.hold_if_used(&self.pin_by(&unpinned), handle);
        let filled = self.fill_page(unpinned.reborrow(), lock);
        if is_held {
            if filled.is_ok() {
                let cache = self.page_cache();
                cache.read_after(unpinned.reborrow(), handle, next);
            }
            if self.objects.release(handle) {
                EndsObjects::end_object(self, unpinned, handle);
            }
        }
        filled
    }

    /// A page that the object has not. One that stands for frames which are not managed has none
    /// at all, so that nobody looks for any.
    #[cold]
    #[inline(never)]
    pub(super) fn past_end(&self, fault: &Fault<'_, P, F, R>) -> Result<FaultStep, FaultError> {
        let view = fault.view();
        if view.is_unmanaged() {
            return self.map_unmanaged_page(fault);
        }
        let object = self.objects.get(view.object);
        if object.is_shifting() {
            return Ok(FaultStep::Shift(view.object));
        }
        match view.index_of(fault.page) < object.pages() {
            true => Ok(FaultStep::Again),
            false => Err(FaultError::PastEnd),
        }
    }

    /// What a fault of Linux 3.15 did to the lock of a page that it found, before it
    /// mapped the page; for a store to a page of a file once more (`page_mkwrite`).
    #[cfg(feature = "published")]
    #[cold]
    fn lock_and_unlock(&self, fault: &Fault<'_, P, F, R>, frame: Pfn) -> Result<Pfn, FaultStep> {
        let object = self.objects.get(fault.view().object);
        let again = object.is_file() && fault.access == Access::Write;
        for _ in 0..=u32::from(again) {
            let Some(lock) = self.objects.locks.try_lock(&self.memory, frame) else {
                return Err(FaultStep::Wait(frame));
            };
            self.objects.locks.unlock(&self.memory, fault.pin, lock);
        }
        Ok(frame)
    }

    /// Maps a page of the region's object, and cached ones around it.
    pub(super) fn map_object_page(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<FaultStep, FaultError> {
        if fault.lowest.1 > 1
            && self.has_huge()
            && let Some(step) = self.map_huge(fault)
        {
            return Ok(step);
        }
        let frame = match self.object_page(fault)? {
            Ok(frame) => frame,
            Err(step) => return Ok(step),
        };
        let env = self.env(fault.pin);
        let mut ctx = R::Ctx::default();
        let around = self.window(fault);
        // A truncation meanwhile may have left the window without pages.
        let nodes = around.pages().max(1) as usize;
        let prepared = self.rmap.prepare(&env, &mut ctx, fault.place(), nodes);
        let table = match prepared.and_then(|()| fault.lock_empty()) {
            Ok(Some(table)) => table,
            other => {
                self.rmap.finish(&env, ctx);
                self.memory.put(fault.pin, frame);
                other?;
                return Ok(FaultStep::Again);
            }
        };
        let installed = self.install_cached(fault, &table, frame, &mut ctx);
        let more = if installed {
            self.map_around(fault, &table, around, &mut ctx)
        } else {
            0
        };
        table.count_made(u32::from(installed) + more);
        if installed {
            drop(table);
        } else {
            self.leave_table(fault.pin, fault.space, table);
        }
        self.rmap.finish(&env, ctx);
        if !installed {
            return Ok(FaultStep::Wait(frame));
        }
        let kind = self.cache_kind(fault.entered.region.object());
        fault.count_resident(kind, 1 + u64::from(more));
        let events = &fault.cpu.events;
        events.file_maps.bump();
        events.around_maps.add(u64::from(more));
        Ok(FaultStep::Done(Resolved::Mapped))
    }

    /// Makes the entry for the fault's own page; the caller's reference
    /// becomes the entry's. False, and nothing changed, if somebody is changing
    /// the page as a whole or has truncated it: the caller waits for the page
    /// lock, which may be free already.
    #[inline(always)]
    pub(super) fn install_cached(
        &self,
        fault: &Fault<'_, P, F, R>,
        table: &LockedTable<'_, F>,
        frame: Pfn,
        ctx: &mut R::Ctx,
    ) -> bool {
        let view = fault.view();
        let record = self.memory.frame(frame);
        record.adopt_mapping();
        let counted = MappingsCounted::now();
        let index = view.index_of(fault.page);
        let object = (self.objects.get(view.object), view.object);
        let attached = self
            .objects
            .is_attached(&self.memory, frame, object, index, counted);
        if !attached {
            record.remove_mapping();
            return false;
        }
        let pte = table.pte(fault.index());
        let run = Run::single(frame, pte, fault.page);
        self.rmap
            .add(&self.env(fault.pin), ctx, &run, fault.place(), false);
        let writes = fault.access == Access::Write;
        let leaf = if writes {
            F::leaf(frame, 1, view.prot, Marks::DIRTY)
        } else {
            F::leaf(frame, 1, view.prot.read_only(), Marks::ACCESSED)
        };
        table.fill(fault.index(), leaf);
        true
    }

    /// The pages that a fault may map: an aligned window around its page, in
    /// the region, the object and one table. Stores map their page alone.
    fn window(&self, fault: &Fault<'_, P, F, R>) -> PageRange {
        let view = fault.view();
        let width = u64::from(self.design.fault_around).min(MAX_AROUND as u64);
        if fault.access == Access::Write || width <= 1 {
            return PageRange::new(fault.page, 1);
        }
        let start = Vpn(fault.page.0 & !(width - 1));
        let pages = self.objects.get(view.object).pages();
        let shown = Vpn(view.range.start.0 + pages.saturating_sub(view.offset));
        let mapped = PageRange {
            start: view.range.start,
            end: view.range.end.min(shown),
        };
        PageRange::new(start, width)
            .intersection(mapped)
            .intersection(PageRange::new(
                F::table_base(fault.page, 1),
                F::ENTRIES as u64,
            ))
    }

    /// Maps the cached pages of `window` whose entries are empty. Returns how many.
    fn map_around(
        &self,
        fault: &Fault<'_, P, F, R>,
        table: &LockedTable<'_, F>,
        window: PageRange,
        ctx: &mut R::Ctx,
    ) -> u32 {
        let view = fault.view();
        let object = self.objects.get(view.object);
        let radix = self.objects.radix(fault.pin, object);
        if window.is_empty() {
            return 0;
        }
        // By place in the window, a bit for each that is to be mapped.
        let mut frames = [Pfn::NONE; MAX_AROUND];
        let mut places = 0_u64;
        // All records are asked for before the first is needed.
        let first = view.index_of(window.start);
        radix.each_in(first..first + window.pages(), |index, frame| {
            let page = window.start.offset(index - first);
            if table.load(F::index(page, 1)) == 0 {
                bytes::prefetch_to_write(self.memory.frame(frame));
                frames[(index - first) as usize] = frame;
                places |= 1 << (index - first);
            }
        });
        for place in set_bits(places) {
            let frame = frames[place as usize];
            let turn = Turn::at(fault.pin, frame.0);
            if !self.memory.frame(frame).try_map(turn) {
                places &= !(1 << place);
            }
        }
        if places == 0 {
            return 0;
        }
        let counted = MappingsCounted::now();
        let env = self.env(fault.pin);
        let prot = view.prot.read_only();
        let mut mapped = 0;
        for place in set_bits(places) {
            let (page, frame) = (
                window.start.offset(u64::from(place)),
                frames[place as usize],
            );
            let record = self.memory.frame(frame);
            let index = view.index_of(page);
            let whose = (object, view.object);
            let fits = self
                .objects
                .is_attached(&self.memory, frame, whose, index, counted);
            if !fits {
                record.remove_mapping();
                self.memory.put(fault.pin, frame);
                continue;
            }
            // Whoever fills a page has it locked.
            debug_assert!(
                record.page().has(PageFlags::UPTODATE),
                "a page is mapped unread"
            );
            let index = F::index(page, 1);
            let run = Run::single(frame, table.pte(index), page);
            self.rmap.add(&env, ctx, &run, fault.place(), false);
            table.fill(index, F::leaf(frame, 1, prot, Marks::default()));
            mapped += 1;
        }
        mapped
    }

    /// First store to a page of a private mapping of an object: a copy.
    pub(in crate::space) fn map_private_copy(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<FaultStep, FaultError> {
        let view = fault.view();
        let index = view.index_of(fault.page);
        let object = self.objects.get(view.object);
        if index >= object.pages() {
            return self.past_end(fault);
        }
        // Needs no reference: whatever becomes of the page, its bytes stay what
        // they are while the CPU is pinned.
        let ready = self
            .objects
            .peek_ready(&self.memory, fault.pin, object, index);
        let Some(cached) = ready else {
            return self.object_page(fault).map(|page| match page {
                Ok(frame) => {
                    self.memory.put(fault.pin, frame);
                    FaultStep::Again
                }
                Err(step) => step,
            });
        };
        let request = Request::page(Site::CopyOnWrite);
        let copy = fault.alloc_page(request)?;
        self.memory.copy(fault.pin, cached, copy);
        let installed = self.install_private(fault, copy, |table| {
            // A truncation meanwhile may be over, and the file longer again.
            table.load(fault.index()) == 0
                && index < object.pages()
                && self.memory.frame(cached).owner() == view.object
        });
        let step = self.finish_private(fault, copy, installed, Resolved::Copied)?;
        if matches!(step, FaultStep::Done(_)) {
            fault.cpu.events.cow_copies.bump();
        }
        Ok(step)
    }
}
