//! Clearing the entries of a range.

use crate::addr::{PageRange, Vpn};
use crate::frame::{Kind, PageFlags};
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::state::account::Resident;
use crate::space::state::manager::Vm;
use crate::space::state::region::Region;
use crate::space::state::spaces::Live;
use crate::sync::Pin;
use crate::table::{Entry, Format, Gather, LockedTable, Span, Users};

/// How many entries of each kind were cleared.
#[derive(Default)]
struct Zapped {
    anonymous: u64,
    file: u64,
    shared_memory: u64,
    zero: u64,
    swapped: u64,
}

impl Zapped {
    fn total(&self) -> u64 {
        self.anonymous + self.file + self.shared_memory + self.zero + self.swapped
    }
}

/// The clearing of entries of one region.
pub(in crate::space) struct Zap<'a, P: Platform, F: Format, R: ReverseMap> {
    pub(in crate::space) vm: &'a Vm<P, F, R>,
    pub(in crate::space) pin: &'a Pin<'a>,
    pub(in crate::space) space: Live<'a, R>,
    pub(in crate::space) region: &'a Region<R>,
    /// Who else may use the entries meanwhile.
    pub(in crate::space) users: Users,
}

impl<P: Platform, F: Format, R: ReverseMap> Zap<'_, P, F, R> {
    /// Clears every entry of `range`, which lies in the region and has all pages or none of each
    /// superpage, and frees the tables that become empty. The caller holds the space's lock and no
    /// other; what became free is in `gather`.
    pub(in crate::space) fn range(&self, range: PageRange, gather: &mut Gather<'_, P>) {
        self.spans(range, gather, |span, gather| {
            self.span(span, gather, |_| true)
        });
    }

    /// The same of all entries but guards.
    pub(in crate::space) fn pages(&self, range: PageRange, gather: &mut Gather<'_, P>) {
        self.spans(range, gather, |span, gather| {
            self.some(span, gather, &|entry| entry != Entry::Guard)
        });
    }

    #[inline]
    fn spans<'p>(
        &self,
        range: PageRange,
        gather: &mut Gather<'p, P>,
        clear: impl Fn(&Span<'_, F>, &mut Gather<'p, P>) -> Option<Vpn>,
    ) {
        let tables = self.vm.tables(self.pin, self.space);
        let freed_before = gather.tables_freed();
        let is_unmanaged = self.region.is_unmanaged();
        let mut spans = tables.spans(range);
        while let Some(span) = spans.next() {
            let rest = match is_unmanaged {
                false => clear(&span, gather),
                true => self.unmanaged(&span, gather),
            };
            tables.unlink_if_empty(span.table, gather);
            if let Some(page) = rest {
                gather.flush();
                spans.rewind(page);
            }
        }
        Vm::<P, F, R>::note_unflushed(self.space, range, gather);
        let freed = gather.tables_freed() - freed_before;
        self.vm.count_tables(self.pin, self.space, 0, freed);
    }

    /// Clears those entries of a span that `takes` accepts. Returns the
    /// page to go on from if the gather became full.
    #[inline(never)]
    pub(in crate::space) fn some(
        &self,
        span: &Span<'_, F>,
        gather: &mut Gather<'_, P>,
        takes: &dyn Fn(Entry) -> bool,
    ) -> Option<Vpn> {
        self.span(span, gather, takes)
    }

    /// The same.
    fn span(
        &self,
        span: &Span<'_, F>,
        gather: &mut Gather<'_, P>,
        takes: impl Fn(Entry) -> bool,
    ) -> Option<Vpn> {
        let vm = self.vm;
        if span.table.level() > 1 {
            return self.large(&span.table, span.first, gather);
        }
        let mut zapped = Zapped::default();
        let table = &span.table;
        vm.end_cut_runs(
            self.pin,
            self.space,
            table,
            span.first..span.first + span.count,
        );
        let env = vm.env(self.pin);
        let mut ctx = R::Ctx::default();
        let place = self.region.place(self.space);
        let mut rest = None;
        for index in vm.live_entries(&env, span) {
            if !takes(F::decode(table.load(index), 1)) {
                continue;
            }
            // A contiguous run goes whole, or a processor could use what is free already. Its
            // frames lie in a row, and take one place.
            let goes_on = vm.has_runs() && table.continues_run(index);
            if gather.room() == 0 && !goes_on {
                rest = Some(table.page(index));
                break;
            }
            self.entry(table, index, gather, &mut zapped, |run| {
                vm.rmap.remove(&env, &mut ctx, run, place);
            });
        }
        table.count_cleared(zapped.total() as u32);
        vm.end_reservation(self.pin, table);
        vm.rmap.finish(&env, ctx);
        vm.events(self.pin).zapped_entries.add(zapped.total());
        for (kind, count) in [
            (Resident::Anonymous, zapped.anonymous),
            (Resident::File, zapped.file),
            (Resident::SharedMemory, zapped.shared_memory),
            (Resident::Zero, zapped.zero),
        ] {
            if count != 0 {
                vm.count_resident(self.pin, self.space, kind, count.wrapping_neg());
            }
        }
        rest
    }

    /// Clears the large leaf at `index`. Returns its page if the gather is full.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn large(
        &self,
        table: &LockedTable<'_, F>,
        index: usize,
        gather: &mut Gather<'_, P>,
    ) -> Option<Vpn> {
        let Zap { vm, pin, space, .. } = *self;
        let page = table.page(index);
        if gather.room() == 0 {
            return Some(page);
        }
        let tables = vm.tables(pin, space);
        let first = F::frame(table.load(index), table.level());
        let run = Vm::<P, F, R>::large_run(table, index, first);
        let is_huge = P::PARTS.superpages && vm.memory.frame(first).kind() == Kind::Object;
        let env = vm.env(pin);
        if !is_huge && vm.has_reservations() {
            vm.unite(&env, &run, self.region.place(space));
        }
        let entry = table.clear(index, self.users);
        gather.stale_leaf(page, 1 << run.order);
        if is_huge {
            self.huge(table, &run, entry, gather);
            return None;
        }
        let mut ctx = R::Ctx::default();
        let is_whole = vm.unmap_run(&env, &mut ctx, self.region, space, &run);
        // The context may hold a lock that comes after those of runs.
        vm.rmap.finish(&env, ctx);
        if is_whole {
            gather.run(run.frame, run.order);
        } else {
            run.parts().for_each(|part| gather.frame(part.frame));
        }
        table.count_cleared(1);
        if let Some(spare) = tables.take_spare(table) {
            tables.unmake_spare(spare);
            vm.count_tables(pin, space, 0, 1);
        }
        vm.events(pin).zapped_entries.bump();
        let pages = 1u64 << run.order;
        vm.count_resident(pin, space, Resident::Anonymous, pages.wrapping_neg());
        None
    }

    /// Clears one entry; `remove` tells reverse mapping.
    #[inline]
    fn entry(
        &self,
        table: &LockedTable<'_, F>,
        index: usize,
        gather: &mut Gather<'_, P>,
        zapped: &mut Zapped,
        remove: impl FnOnce(&Run),
    ) {
        let Zap { vm, pin, .. } = *self;
        let old = table.clear_any(index, self.users);
        let page = table.page(index);
        if !F::is_mapped(old) {
            zapped.swapped += 1;
            vm.drop_swapped(pin, self.space, old);
            return;
        }
        gather.stale(page);
        let pfn = F::frame(old, table.level());
        if pfn == vm.zero_page {
            zapped.zero += 1;
            return;
        }
        let frame = vm.memory.frame(pfn);
        let run = Run::single(pfn, table.pte(index), page);
        if frame.kind() == Kind::Object {
            let dirty = F::marks(old).dirty;
            if dirty {
                // Before the entry leaves the reverse mapping: a sync finds
                // the mark there or here.
                frame.page().set_if_clear(PageFlags::DIRTY);
            }
            remove(&run);
            match vm.objects.get(frame.owner()).is_file() {
                true => zapped.file += 1,
                false => zapped.shared_memory += 1,
            }
            if gather.needs_no_flush() {
                if frame.put_mapping() {
                    vm.memory.free_unreferenced(pin, pfn, 0);
                }
                return;
            }
            frame.remove_mapping();
            if dirty {
                gather.dirty_frame(pfn);
                return;
            }
        } else {
            remove(&run);
            zapped.anonymous += 1;
            if gather.needs_no_flush() && frame.take_last() {
                vm.rmap.unmapped(&vm.env(pin), pfn);
                vm.note_removed(pin, pfn);
                vm.memory.free(pin, pfn, 0);
                return;
            }
            // Not by references: those of entries cleared elsewhere last until
            // their flush.
            if frame.remove_mapping().maps() == 1 {
                vm.rmap.unmapped(&vm.env(pin), pfn);
                vm.note_removed(pin, pfn);
            }
        }
        gather.frame(pfn);
    }
}
