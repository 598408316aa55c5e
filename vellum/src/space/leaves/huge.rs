//! Superpages of shared memory and tmpfs (`huge=`).
//!
//! An aligned range of an object that has no page yet, and lies before the object's end, gets a
//! block of frames at its first fault, or where it is written to. Each frame of the block is a
//! page of the object as any other, with a record, a reference of the cache, a page lock and a
//! place in the tree of its own. So reads, writes, holes, pins, swap and private mappings
//! know nothing of superpages, and any of the pages can leave by itself.
//!
//! What is large is the leaf. A fault in a shared mapping that shows all of such a range, where
//! its page table would be, maps the pages by one leaf if their frames are consecutive and
//! aligned, whoever made them. Each page counts the leaf as a mapping.
//!
//! Where an object grows into a range, its pages are made one by one, in place: of a run of
//! frames that is set aside for it ([`crate::object`], `growth`).
//!
//! A call about a part of the range clears the leaf, and so does a page that leaves the
//! object: faults find the pages again, one by one or, if all are still there, by a leaf. That
//! needs no memory, so no table is kept for it, and cannot fail. Fork leaves the leaf to
//! faults of the child. Reclaim clears it before it judges a page, because one mark says
//! nothing of 512 pages.

use core::ops::ControlFlow;

use super::zap::Zap;
use crate::addr::{Access, Pfn};
use crate::design::HugePages;
use crate::frame::{Kind, MappingsCounted, OutOfMemory, PageFlags, Request, Site};
use crate::object::{Inserted, NewPages, NewRun, Object, ObjectId, RUN_PAGES};
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::locks::flush::Lost;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::space::state::extras::LEVEL;
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, Traits};
use crate::space::state::spaces::Live;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::{Pin, Turn};
use crate::table::{Format, Gather, LockedTable, Marks, Users};
use crate::tree::IntervalItem;

/// Which pages of an object come in superpages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InSuperpages {
    None,
    /// Those of ranges that lie before its end.
    WithinSize,
    /// All of them, as far as they come to lie before its end.
    All,
}

impl<P: Platform, F: Format, R: ReverseMap> Zap<'_, P, F, R> {
    /// The rest of [`Zap::large`] for a leaf that maps pages of an object.
    pub(in crate::space) fn huge(
        &self,
        table: &LockedTable<'_, F>,
        run: &Run,
        entry: u64,
        gather: &mut Gather<'_, P>,
    ) {
        let Zap { vm, pin, space, .. } = *self;
        let marks = F::marks(entry);
        if marks.dirty && space.is_tracked() {
            self.region.lose();
        }
        let ages = vm.reclaim().is_some();
        for part in run.parts() {
            let frame = vm.memory.frame(part.frame).page();
            if marks.dirty {
                frame.set_if_clear(PageFlags::DIRTY);
            }
            if marks.accessed && ages {
                frame.set_if_clear(PageFlags::REFERENCED);
            }
        }
        let env = vm.env(pin);
        let mut ctx = R::Ctx::default();
        let place = self.region.place(space);
        for part in run.told(R::LISTS_LEAVES) {
            vm.rmap.remove(&env, &mut ctx, &part, place);
        }
        // The context may hold a lock, and frames may be freed.
        vm.rmap.finish(&env, ctx);
        let kind = vm.cache_kind(vm.memory.frame(run.frame).owner());
        for part in run.parts() {
            vm.memory.frame(part.frame).remove_mapping();
            match marks.dirty {
                true => gather.dirty_frame(part.frame),
                false => gather.frame(part.frame),
            }
        }
        table.count_cleared(1);
        vm.events(pin).zapped_entries.bump();
        let pages = 1u64 << run.order;
        vm.count_resident(pin, space, kind, pages.wrapping_neg());
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// [`File::set_huge`](crate::space::File::set_huge).
    pub(crate) fn set_huge(&self, id: ObjectId, huge: Option<bool>) -> Result<(), FileError> {
        let pin = self.pin();
        // Pinned, so that it does not become another object meanwhile.
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        object.set_huge(huge);
        drop(pin);
        Ok(())
    }

    /// Which pages of shared memory come in superpages.
    fn wanted_huge(&self, object: &Object) -> InSuperpages {
        if object.is_file() {
            return InSuperpages::None;
        }
        match (object.huge(), self.design.huge) {
            (_, HugePages::Never) | (Some(false), _) | (None, HugePages::Advise) => {
                InSuperpages::None
            }
            (None, HugePages::WithinSize) => InSuperpages::WithinSize,
            (Some(true), _) | (None, HugePages::Always) => InSuperpages::All,
        }
    }

    /// The first index of the range around `index` that a superpage shows.
    pub(super) fn huge_start(&self, index: u64) -> u64 {
        index & !(self.superpage() - 1)
    }

    /// Whether the range from `first` on lies before the object's end.
    pub(super) fn is_within(&self, object: &Object, first: u64) -> bool {
        first + self.superpage() <= object.pages()
    }

    /// Before a page at `index` is written that may be new: has the pages around it made of one
    /// block, if there is none of them yet and they are to come in superpages, or, if the object
    /// grows into their range, has a run set aside for them. Without a block they come one by
    /// one.
    pub(in crate::space) fn make_huge_around(&self, pin: &Pin<'_>, handle: u32, index: u64) {
        let object = self.objects.get(handle);
        let (wanted, first) = (self.wanted_huge(object), self.huge_start(index));
        if wanted == InSuperpages::None || !self.is_vacant(pin, object, first) {
            return;
        }
        if self.is_within(object, first) {
            self.make_huge(pin, handle, first);
        } else if wanted == InSuperpages::All {
            self.grow_huge(pin, handle, first);
        }
    }

    /// Has a run set aside for a range into which an object grows.
    #[cold]
    #[inline(never)]
    fn grow_huge(&self, pin: &Pin<'_>, handle: u32, first: u64) {
        let events = self.events(pin);
        match (self.objects).set_run_aside(&self.memory, pin, (handle, first)) {
            true => events.reservations.bump(),
            false => events.superpage_failures.bump(),
        }
    }

    /// Whether none of the pages of a superpage from `first` on is in memory or in swap.
    pub(super) fn is_vacant(&self, pin: &Pin<'_>, object: &Object, first: u64) -> bool {
        let end = first + self.superpage();
        let page = self.objects.radix(pin, object).next(first);
        page.is_none_or(|(index, _)| index >= end)
            && (self.objects.next_slot(pin, object, first)).is_none_or(|index| index >= end)
    }

    #[cold]
    #[inline(never)]
    fn make_huge(&self, pin: &Pin<'_>, handle: u32, first: u64) {
        let request = Request::page(Site::Superpage).zeroed();
        let Some(block) = self.huge_block(pin, (self.objects.get(handle), first), request) else {
            self.events(pin).superpage_failures.bump();
            return;
        };
        self.insert_block(pin, (handle, first), block, NewPages::Written, |frames| {
            for &frame in frames {
                self.note_inserted(pin, frame, Inserted::Cache);
            }
            // Pages that others have made meanwhile stay.
            true
        });
    }

    /// Makes pages of the frames of a block, those of an object from `first` on, run by run, and
    /// calls `made` with the frames of each that became pages: all before the first page that was
    /// there. No more are made if it says so, or there is no memory for a node.
    pub(super) fn insert_block(
        &self,
        pin: &Pin<'_>,
        (handle, first): (u32, u64),
        block: Pfn,
        pages: NewPages,
        mut made: impl FnMut(&[Pfn]) -> bool,
    ) {
        let mut frames = [Pfn::NONE; RUN_PAGES];
        let mut goes_on = true;
        for part in 0..(self.superpage() / RUN_PAGES as u64) {
            let start = part * RUN_PAGES as u64;
            for (step, frame) in frames.iter_mut().enumerate() {
                *frame = block.offset(start as u32 + step as u32);
            }
            if !goes_on {
                self.objects.drop_frames(&self.memory, pin, handle, &frames);
                continue;
            }
            let run = NewRun {
                object: handle,
                first: first + start,
                frames: &frames,
                pages,
            };
            let inserted = self.objects.insert_run(&self.memory, pin, &run);
            goes_on = inserted.is_ok_and(|count| made(&frames[..count]));
        }
    }

    /// The frames of a superpage of an object, as single frames such as `request` asks for,
    /// charged to its mount.
    pub(super) fn huge_block(
        &self,
        pin: &Pin<'_>,
        (object, first): (&Object, u64),
        request: Request,
    ) -> Option<Pfn> {
        if !(self.objects).charge_all(&self.memory, pin, object, self.superpage()) {
            return None;
        }
        let request = request.order(self.superpage_order);
        let payer = object.payer_for(self.payer(pin));
        match (self.memory).alloc_page(pin, request, payer, || first) {
            Ok(block) => {
                self.memory.split_block(block, self.superpage_order);
                Some(block)
            }
            Err(_) => {
                (self.objects).uncharge(&self.memory, pin, object, self.superpage());
                None
            }
        }
    }

    /// The first frame of the pages from `first` on, if all of a superpage are in memory and lie
    /// as one needs them.
    fn huge_run(&self, pin: &Pin<'_>, object: &Object, first: u64) -> Option<Pfn> {
        let radix = self.objects.radix(pin, object);
        let head = radix.get(first)?;
        if u64::from(head.0) & (self.superpage() - 1) != 0 {
            return None;
        }
        let mut in_place = 0;
        radix.each_in(first..first + self.superpage(), |index, frame| {
            in_place += u64::from(frame == head.offset((index - first) as u32));
        });
        (in_place == self.superpage()).then_some(head)
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Maps the superpage of an object around the fault's page, which no table covers yet. `None`
    /// if there cannot be one: single pages do then.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn map_huge(&self, fault: &Fault<'_, P, F, R>) -> Option<FaultStep> {
        let view = fault.view();
        let range = Self::range_around(fault.page);
        let is_whole = view.range.start <= range.start && range.end <= view.range.end;
        let (cache, object) = (self.page_cache(), self.objects.get(view.object));
        let is_wanted = match object.is_file() {
            true => self.may_map_file_superpage(fault, object),
            false => view.is_shared() && cache.wanted_huge(object) != InSuperpages::None,
        };
        let is_refused = view.traits.has(Traits::NOT_HUGE)
            || object.is_file() && view.traits.has(Traits::RANDOM);
        if !is_wanted || !is_whole || is_refused {
            return None;
        }
        let index = view.index_of(range.start);
        let first = cache.huge_start(index);
        if first != index || !cache.is_within(object, first) {
            return None;
        }
        // What it would be made of has the object's policy of nodes.
        let may_be_made = !fault.has_own_policy();
        if object.is_file() && may_be_made {
            let begun = cache.begin_to_read_superpage(fault.pin, view.object, first);
            if let Some(head) = begun {
                return Some(FaultStep::FillSuperpage(head));
            }
        } else if may_be_made && cache.is_vacant(fault.pin, object, first) {
            cache.make_huge(fault.pin, view.object, first);
        }
        let head = cache.huge_run(fault.pin, object, first)?;
        // Without memory for a table or for reverse mapping, less may do.
        self.install_huge(fault, first, head).ok()?
    }

    /// Makes the leaf. `None` if one of the pages is leaving, or has a lock that somebody holds.
    fn install_huge(
        &self,
        fault: &Fault<'_, P, F, R>,
        first: u64,
        head: Pfn,
    ) -> Result<Option<FaultStep>, OutOfMemory> {
        let (pin, base) = (fault.pin, Self::range_around(fault.page).start);
        let tables = self.tables(pin, fault.space);
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let entries = match R::LISTS_LEAVES {
            true => 1,
            false => Self::SUPERPAGE as usize,
        };
        let mut made = 0;
        let prepared = self.rmap.prepare(&env, &mut ctx, fault.place(), entries);
        let table = prepared.and_then(|()| tables.lock_or_make_at(base, LEVEL, &mut made));
        fault.count_tables(made);
        let table = match table {
            Ok(table) => table,
            Err(error) => {
                self.rmap.finish(&env, ctx);
                return Err(error);
            }
        };
        let index = F::index(base, LEVEL);
        let is_empty = table.level() == LEVEL && table.load(index) == 0;
        let installs = is_empty && self.count_huge(fault, first, head);
        if installs {
            let run = Self::large_run(&table, index, head);
            for part in run.told(R::LISTS_LEAVES) {
                self.rmap.add(&env, &mut ctx, &part, fault.place(), false);
            }
            let prot = fault.view().prot;
            let leaf = match fault.access {
                Access::Write => F::leaf(head, LEVEL, prot, Marks::DIRTY),
                _ => F::leaf(head, LEVEL, prot.read_only(), Marks::ACCESSED),
            };
            table.fill(index, leaf);
            table.count_made(1);
            drop(table);
        } else {
            self.leave_table(pin, fault.space, table);
        }
        self.rmap.finish(&env, ctx);
        if !installs {
            return Ok((!is_empty).then_some(FaultStep::Again));
        }
        fault.count_resident(self.cache_kind(fault.view().object), Self::SUPERPAGE);
        fault.cpu.events.superpage_maps.bump();
        Ok(Some(FaultStep::Done(Resolved::Mapped)))
    }

    /// Counts a mapping of each page of a superpage, with a reference. `false`, and nothing is
    /// counted, if one of them may not be mapped.
    fn count_huge(&self, fault: &Fault<'_, P, F, R>, first: u64, head: Pfn) -> bool {
        let handle = fault.view().object;
        let whose = (self.objects.get(handle), handle);
        let pages = Self::SUPERPAGE;
        let frame = |step: u64| head.offset(step as u32);
        let counts = |step: &u64| {
            let turn = Turn::at(fault.pin, frame(*step).0);
            self.memory.frame(frame(*step)).try_map(turn)
        };
        let counted = (0..pages).take_while(counts);
        let counted = counted.count() as u64;
        let all = MappingsCounted::now();
        let is_attached = |step: u64| {
            (self.objects).is_attached(&self.memory, frame(step), whose, first + step, all)
        };
        if counted == pages && (0..pages).all(is_attached) {
            return true;
        }
        for step in 0..counted {
            self.memory.frame(frame(step)).remove_mapping();
            self.memory.put(fault.pin, frame(step));
        }
        false
    }

    /// Clears a large leaf of a table that maps pages of an object, and flushes.
    pub(super) fn clear_huge<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        space: Live<'a, R>,
        region: &Region<R>,
        leaf: (LockedTable<'a, F>, usize),
    ) {
        let delayed = self.delay_flush(pin);
        let mut gather = self.gather(pin, space);
        self.take_huge(pin, space, region, leaf, &mut gather);
        drop(gather);
        drop(delayed);
    }

    fn take_huge<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        space: Live<'a, R>,
        region: &Region<R>,
        (table, index): (LockedTable<'a, F>, usize),
        gather: &mut Gather<'_, P>,
    ) {
        let zap = Zap {
            vm: self,
            pin,
            space,
            region,
            users: Users::Hardware,
        };
        let rest = zap.large(&table, index, gather);
        debug_assert!(rest.is_none(), "an empty gather is full");
        let freed = gather.tables_freed();
        self.tables(pin, space).unlink_if_empty(table, gather);
        self.count_tables(pin, space, 0, gather.tables_freed() - freed);
        self.events(pin).superpage_demotions.bump();
    }

    /// Clears every large leaf that maps a page of an object, to which the caller has a reference;
    /// not those of locked ranges if what the page holds stays somewhere ([`Mappings::unmap_page`](crate::space::state::common::Mappings::unmap_page)).
    /// Returns whether there was one.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn clear_huge_of(
        &self,
        pin: &Pin<'_>,
        page: Pfn,
        content_stays: bool,
    ) -> bool {
        if !P::PARTS.superpages {
            return false;
        }
        let frame = self.memory.frame(page);
        let (handle, index) = (frame.owner(), frame.index());
        if handle == 0 {
            // It has left its object, and so every mapping.
            return false;
        }
        let regions = self.objects.regions(&self.regions, handle);
        let mut cleared = false;
        loop {
            // What one region lost. It is dropped, and so flushed and freed, when the lock of
            // the regions has been let go of.
            let delayed = self.delay_flush(pin);
            let mut lost = None;
            regions.overlapping(pin, index, index + 1, |_, region| {
                self.clear_huge_in(pin, region, (page, index), content_stays, &mut lost)
            });
            let is_done = lost.is_none();
            drop(lost);
            drop(delayed);
            if is_done {
                return cleared;
            }
            cleared = true;
        }
    }

    /// [`Vm::clear_huge_of`] in one region, the lock of the object's regions held. Breaks if
    /// there was something to clear.
    fn clear_huge_in<'p>(
        &'p self,
        pin: &'p Pin<'p>,
        region: &Region<R>,
        (page, index): (Pfn, u64),
        content_stays: bool,
        lost: &mut Option<Lost<'p, P>>,
    ) -> ControlFlow<()> {
        let space = self.live_at(region.space());
        let at = region.range().start.offset(index - region.first_index());
        let table = self.tables(pin, space).lock(at);
        let Some(table) = table.filter(|table| table.level() == LEVEL) else {
            return ControlFlow::Continue(());
        };
        let place = F::index(at, LEVEL);
        let entry = table.load(place);
        // Asked under the lock of the table ([`Vm::is_locked`]).
        let is_kept = content_stays && region.view().traits.has(Traits::LOCKED);
        if !F::is_mapped(entry) || is_kept {
            return ControlFlow::Continue(());
        }
        let head = F::frame(entry, LEVEL);
        if page.0.wrapping_sub(head.0) >= Self::SUPERPAGE as u32
            || self.memory.frame(head).kind() != Kind::Object
        {
            return ControlFlow::Continue(());
        }
        let gather = &mut lost.insert(self.lose(pin, space)).0;
        self.take_huge(pin, space, region, (table, place), gather);
        Self::note_move(space, gather);
        ControlFlow::Break(())
    }
}
