//! fork: a copy-on-write copy of a space.
//!
//! Private pages are mapped a second time, without the right to store in
//! either space. Pages that a fault would find again (those of objects, and
//! the zero page) are left to faults unless `forkcopy=all`. Pinned pages are
//! copied at once, because whoever pinned them writes to the parent's.

use crate::addr::{Pfn, Vpn};
use crate::design::ForkCopy;
use crate::frame::{Kind, NoPage, OutOfMemory, Request, Site};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{Place, ReverseMap, Run};
use crate::space::locks::closed::ClosedRegions;
use crate::space::regions::unmap::DeadObjects;
use crate::space::state::account::Resident;
use crate::space::state::closed::Closed;
use crate::space::state::error::MapError;
use crate::space::state::locked::{HoldsSpace, LockedSpace, WholeSpace};
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, RegionView, Tagged, Traits};
use crate::space::state::spaces::SpaceId;
use crate::sync::atomic::Ordering;
use crate::sync::{CpuRoom, Pin, Unpinned};
use crate::table::{Format, Gather, LockedTable, Marks, Span, Spares, Users};

/// How far large leaves were copied.
struct LargeCopied {
    /// The page behind the last.
    next: Vpn,
    /// There is a large leaf whose run is divided.
    met_divided: bool,
}

/// Large leaves whose records are looked at together.
const LARGE_AT_ONCE: usize = 32;

/// The counts of entries copied.
#[derive(Clone, Copy, Default)]
struct Copied {
    anonymous: u64,
    cached: u64,
    zero: u64,
    swapped: u64,
    guards: u64,
}

/// A child being made.
struct Fork<'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    pin: &'a Pin<'a>,
    parent: LockedSpace<'a, R>,
    /// All regions of the parent.
    regions: &'a ClosedRegions<'a, P, F, R>,
    child: LockedSpace<'a, R>,
}

/// The entries of one region on their way into the child.
struct Copying<'a, P: Platform, F: Format, R: ReverseMap> {
    fork: &'a Fork<'a, P, F, R>,
    /// The parent's region.
    parent_region: Closed<'a, R>,
    /// The child's region.
    region: &'a Region<R>,
    view: RegionView,
    /// Who else may use the parent's entries meanwhile.
    users: Users,
}

/// A table's entries on their way into the child's table. Both are locked.
struct TableCopy<'c, 'a, P: Platform, F: Format, R: ReverseMap> {
    vm: &'a Vm<P, F, R>,
    pin: &'a Pin<'a>,
    copying: &'c Copying<'a, P, F, R>,
    source: &'c Span<'a, F>,
    target: &'c LockedTable<'a, F>,
    /// Where the copies are.
    place: Place<'a, R::Region, R::Space>,
    ctx: &'c mut R::Ctx,
    copied: Copied,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::fork`](crate::space::Space::fork).
    pub(crate) fn fork(&self, id: SpaceId) -> Result<SpaceId, MapError> {
        let unpinned = Unpinned::at_door();
        self.with_room(unpinned, |unpinned| self.fork_once(unpinned, id))
    }

    fn fork_once(&self, mut unpinned: Unpinned<'_>, id: SpaceId) -> Result<SpaceId, MapError> {
        let mut dead = DeadObjects::default();
        let result = self.with_locked(unpinned.reborrow(), id, |pin, parent| {
            self.events(pin).forks.bump();
            self.fork_locked(pin, *parent, &mut dead)
        });
        self.after_removal(unpinned, dead);
        result
    }

    fn fork_locked<'a>(
        &'a self,
        pin: &Pin<'_>,
        parent: LockedSpace<'a, R>,
        dead: &mut DeadObjects,
    ) -> Result<SpaceId, MapError> {
        let new = self.make_space(pin)?;
        let child = new.locked();
        child.limits.set(parent.limits.get());
        child.layout.set(&parent.layout.get());
        child.begin_rules(parent.rules().inherited());
        self.inherit_group(pin, parent.get(), *child);
        child.inherit_policies(parent.get());
        let inherited = self.inherited_commit(parent);
        let counts = &child.account.counts;
        let charged = self.commit_pages(parent, counts, inherited);
        let charged = charged.map_err(MapError::from).and_then(|()| {
            let regions = self.region_counts(*parent).regions.get();
            Ok(self.charge_regions(child, counts, regions)?)
        });
        if let Err(error) = charged {
            self.unmake_space(pin, *child);
            return Err(error);
        }
        for (from, to) in [
            (&parent.get().heap_start, &child.get().heap_start),
            (&parent.get().heap_end, &child.get().heap_end),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let whole = Self::all_pages();
        let closed = self.close_regions(pin, parent, whole);
        // Before the child begins: to some designs pages that get an owner from then on are
        // none of the child's.
        self.unite_promoted(pin, parent, whole);
        let env = self.env(pin);
        let begun = self
            .rmap
            .space_forked(&env, &parent.rmap, &child.rmap, child.handle());
        let copied = begun.map_err(NoPage::from).and_then(|()| {
            let fork = Fork {
                vm: self,
                pin,
                parent,
                regions: &closed,
                child,
            };
            fork.copy_regions()
                .inspect_err(|_| self.tear_down(pin, WholeSpace::with_all_locks(child), dead))
        });
        drop(closed);
        if let Err(error) = copied {
            self.unmake_space(pin, *child);
            return Err(error.into());
        }
        self.settle_records(*child, None);
        Ok(self.publish(new).id())
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Fork<'_, P, F, R> {
    /// Copies regions and entries. What was copied when it fails is in the
    /// child, for the caller to tear down.
    fn copy_regions(&self) -> Result<(), NoPage> {
        let (vm, pin, parent) = (self.vm, self.pin, self.parent);
        // Entries lose the right to store: flushed once, at the end or early.
        let mut gather = vm.gather(pin, *parent);
        // A CPU that is in here stores to no page of the parent, so if no
        // other has it loaded, and no other task could load it meanwhile,
        // nobody sets a dirty mark.
        let mut room = CpuRoom::new();
        let is_alone =
            parent.users() == 1 && vm.active(*parent, &mut room).has_no_other_than(pin.cpu());
        let users = if is_alone {
            Users::None
        } else {
            Users::Hardware
        };
        let mut spares = Spares::default();
        let result = self.regions.try_for_each(|original, view| {
            if view.traits.has(Traits::NOT_FORKED) {
                return Ok(());
            }
            let region = self.copy_region(original, &view)?;
            if view.is_unmanaged() {
                return Ok(vm.map_unmanaged(pin, self.child, &view)?);
            }
            let copies = view.traits.has_any(Traits::GROWN) || vm.design.fork_copy == ForkCopy::All;
            if !copies || view.traits.has(Traits::WIPED_BY_FORK) {
                return Ok(());
            }
            let copying = Copying {
                fork: self,
                parent_region: original,
                region,
                view,
                users,
            };
            copying.entries(&mut gather, &mut spares)
        });
        vm.tables(pin, *self.child).unmake_spares(spares);
        result
    }

    /// Gives the child a region like one of the parent's, in which nothing is
    /// mapped yet.
    fn copy_region(
        &self,
        original: Closed<'_, R>,
        view: &RegionView,
    ) -> Result<&Region<R>, OutOfMemory> {
        let (vm, pin, child) = (self.vm, self.pin, self.child);
        let spare = vm.make_region(pin, child, view.range.start)?;
        let region = vm.region(spare.handle);
        let forked = vm.rmap.region_forked(
            &vm.env(pin),
            vm,
            original.region_ref(),
            region.region_ref_with(child.handle(), view),
        );
        if let Err(error) = forked {
            vm.regions.free(pin, spare.handle);
            return Err(error);
        }
        if view.object != 0 {
            vm.hold_for_copy(pin, view.object, original.handle());
        }
        let write = child.seq.write(pin);
        let not_inherited = Traits::LOCKED.union(Traits::HOOKS).union(Traits::TRACKED);
        let mut traits = view.traits.without(not_inherited);
        if traits.has(Traits::WIPED_BY_FORK) {
            traits = traits.without(Traits::GROWN);
        }
        let view = RegionView { traits, ..*view };
        let tagged = Tagged {
            view,
            ..original.tagged()
        };
        vm.link_region(
            pin,
            child,
            &write,
            (spare, &tagged),
            Some(original.handle()),
        );
        drop(write);
        Ok(region)
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Copying<'_, P, F, R> {
    fn entries(&self, gather: &mut Gather<'_, P>, spares: &mut Spares) -> Result<(), NoPage> {
        let Fork {
            vm,
            pin,
            parent,
            child,
            ..
        } = *self.fork;
        let from = vm.tables(pin, *parent);
        let to = vm.tables(pin, *child);
        let mut spans = from.spans(self.view.range);
        while let Some(span) = spans.next() {
            if span.table.level() > 1 {
                if self.view.object != 0 {
                    // A superpage of an object: a fault finds it again.
                    continue;
                }
                let copied = self.large(&span, gather, spares);
                drop(span);
                let copied = copied?;
                if copied.met_divided {
                    vm.demote(pin, *parent, &self.parent_region, copied.next)?;
                }
                spans.rewind(copied.next);
                continue;
            }
            // Counts this region's entries. The table's own count includes those of
            // other regions, and a child's table made for them would stay empty.
            let entries = span.first..span.first + span.count;
            let live = entries.filter(|&index| span.table.load(index) != 0);
            let live = live.take(span.table.live() as usize).count();
            let first = span.table.page(span.first);
            let level = span.table.level();
            if live == 0 {
                continue;
            }
            vm.end_runs(
                pin,
                *parent,
                &span.table,
                span.first..span.first + span.count,
            );
            // All of this under the lock of the parent's table: it need not be counted
            // again. Nobody waits for that lock who has one of the child's, and the gates
            // are closed, so that no fault waits for it.
            let env = vm.env(pin);
            let mut ctx = R::Ctx::default();
            let place = self.region.place(*child);
            let prepared = vm.rmap.prepare(&env, &mut ctx, place, live);
            let mut made = 0;
            let found = prepared.and_then(|()| to.lock_or_make_at(first, level, &mut made));
            vm.count_tables(pin, *child, made, 0);
            let target = match found {
                Ok(target) => target,
                Err(error) => {
                    drop(span);
                    vm.rmap.finish(&env, ctx);
                    return Err(error.into());
                }
            };
            let copy = TableCopy {
                vm,
                pin,
                copying: self,
                source: &span,
                target: &target,
                place: self.region.place(*child),
                ctx: &mut ctx,
                copied: Copied::default(),
            };
            let result = copy.run(gather);
            drop(span);
            if target.live() == 0 {
                vm.leave_table(pin, *child, target);
            } else {
                drop(target);
            }
            vm.rmap.finish(&env, ctx);
            result?;
        }
        // What the parent stores after the fork must not reach a page that leaves for swap,
        // which the child will have.
        Vm::<P, F, R>::note_unflushed(*parent, self.view.range, gather);
        Ok(())
    }

    /// An entry as the child has it, whose region has no hooks.
    #[inline]
    fn unwatched(&self, entry: u64) -> u64 {
        match P::PARTS.hooks && self.view.traits.has(Traits::HOOK_STORES) {
            true => F::with_watch(entry, false),
            false => entry,
        }
    }

    /// Maps the runs of large leaves in the child too: of those in a row that begins with the
    /// span.
    ///
    /// # Errors
    /// [`OutOfMemory`]; those before are in the child.
    #[cold]
    #[inline(never)]
    fn large(
        &self,
        span: &Span<'_, F>,
        gather: &mut Gather<'_, P>,
        spares: &mut Spares,
    ) -> Result<LargeCopied, OutOfMemory> {
        let Fork { vm, pin, child, .. } = *self.fork;
        let (tables, source) = (vm.tables(pin, *child), &span.table);
        let (level, page) = (source.level(), source.page(span.first));
        // No leaf lies on both sides of a region's end.
        let rest = (self.view.range.end.0 - page.0) / F::pages_at(level);
        let rest = span.first..F::ENTRIES.min(span.first + rest as usize);
        let is_large = |entry: u64| F::is_mapped(entry) && F::is_leaf(entry, level);
        let leaves = rest.take_while(|&index| is_large(source.load(index)));
        let end = span.first + leaves.count();
        let mut made = 0;
        let target = tables.lock_or_make_at(page, level, &mut made);
        vm.count_tables(pin, *child, made, 0);
        let target = target?;
        let mut next = span.first;
        let mut result = Ok(true);
        while next < end && result == Ok(true) {
            if (next - span.first).is_multiple_of(LARGE_AT_ONCE) {
                // Their records are far from each other, and to reach one takes long: so none
                // waits for another. Loaded, since processors need not look up a page for a
                // prefetch.
                for index in next..end.min(next + LARGE_AT_ONCE) {
                    vm.memory.frame(F::frame(source.load(index), level)).kind();
                }
            }
            let spare = tables.make_spare_of(spares, (page, level - 1), end - next);
            result =
                spare.and_then(|spare| self.large_leaf(source, &target, (next, spare), gather));
            next += usize::from(result == Ok(true));
        }
        let copied = (next - span.first) as u64;
        target.count_made(copied as u32);
        vm.leave_table(pin, *child, target);
        vm.count_tables(pin, *child, copied as u32, 0);
        let pages = copied * F::pages_at(level);
        vm.count_resident(pin, *child, Resident::Anonymous, pages);
        vm.events(pin).fork_entries.add(copied);
        Ok(LargeCopied {
            met_divided: !result?,
            next: source.page(next),
        })
    }

    /// Maps the run of a large leaf in the child too, with a spare table. `false`, and nothing
    /// was mapped, if the frames of the run have records of their own.
    #[inline]
    fn large_leaf(
        &self,
        source: &LockedTable<'_, F>,
        target: &LockedTable<'_, F>,
        (index, spare): (usize, Pfn),
        gather: &mut Gather<'_, P>,
    ) -> Result<bool, OutOfMemory> {
        let Fork { vm, pin, child, .. } = *self.fork;
        let tables = vm.tables(pin, *child);
        let (level, entry) = (source.level(), source.load(index));
        let env = vm.env(pin);
        let mut ctx = R::Ctx::default();
        let place = self.region.place(*child);
        let shared = vm.rmap.prepare(&env, &mut ctx, place, 1).and_then(|()| {
            let run = Vm::<P, F, R>::large_run(target, index, F::frame(entry, level));
            vm.share_run(&env, &run, || {
                vm.rmap.duplicate(&env, &mut ctx, &run, place);
            })
        });
        if shared == Ok(true) {
            let (_, protected) = source.update(index, self.users, F::write_protect);
            if F::is_writable(entry) {
                gather.stale_leaf(source.page(index), F::pages_at(level));
            }
            tables.keep_spare(target, spare);
            target.fill(index, protected);
        } else {
            tables.unmake_spare(spare);
        }
        // The context may hold a lock that comes after those of runs.
        vm.rmap.finish(&env, ctx);
        shared
    }

    /// Gives the child its own copy of the page that `entry` maps at `index`, `old`,
    /// which somebody has pinned.
    #[cold]
    fn pinned(
        &self,
        index: usize,
        (old, entry): (Pfn, u64),
        target: &LockedTable<'_, F>,
        ctx: &mut R::Ctx,
    ) -> Result<(), NoPage> {
        let Fork { vm, pin, child, .. } = *self.fork;
        let page = target.page(index);
        let request = Request::page(Site::ForkCopy);
        let at = (*child, self.region, page);
        let new = vm.alloc_private(pin, request, at)?;
        vm.memory.copy(pin, old, new);
        vm.own_privately(vm.memory.frame(new), child.handle(), page);
        let run = Run::single(new, target.pte(index), page);
        let place = self.region.place(*child);
        vm.rmap.add(&vm.env(pin), ctx, &run, place, true);
        target.fill(index, F::leaf(new, 1, F::prot(entry, 1), F::marks(entry)));
        vm.note_inserted(pin, new, Inserted::Anonymous);
        Ok(())
    }
}

impl<P: Platform, F: Format, R: ReverseMap> TableCopy<'_, '_, P, F, R> {
    /// Copies the entries, those before the first that cannot be copied if one
    /// cannot, and counts them.
    fn run(mut self, gather: &mut Gather<'_, P>) -> Result<(), NoPage> {
        let (vm, pin, child) = (self.vm, self.pin, self.copying.fork.child);
        let mut result = Ok(());
        for index in vm.live_entries(&vm.env(pin), self.source) {
            result = self.entry(index, gather);
            if result.is_err() {
                break;
            }
        }
        let copied = self.copied;
        let total = copied.anonymous + copied.cached + copied.zero + copied.swapped + copied.guards;
        self.target.count_made(total as u32);
        vm.events(pin).fork_entries.add(total);
        vm.count_resident(pin, *child, Resident::Anonymous, copied.anonymous);
        vm.count_resident(pin, *child, Resident::Zero, copied.zero);
        if copied.swapped != 0 {
            vm.count_resident(pin, *child, Resident::Swap, copied.swapped);
        }
        if copied.cached != 0 {
            let kind = vm.cache_kind(self.copying.view.object);
            vm.count_resident(pin, *child, kind, copied.cached);
        }
        result
    }

    #[inline]
    fn entry(&mut self, index: usize, gather: &mut Gather<'_, P>) -> Result<(), NoPage> {
        let (vm, pin, copying) = (self.vm, self.pin, self.copying);
        let (source, target) = (&self.source.table, self.target);
        let entry = source.load(index);
        if !F::is_mapped(entry) {
            if F::is_of_no_page(entry) {
                target.fill(index, entry);
                self.copied.guards += 1;
                return Ok(());
            }
            if !vm.fork_swapped(pin, source, target, index) {
                return Err(NoPage::OutOfMemory);
            }
            self.copied.swapped += 1;
            return Ok(());
        }
        let pfn = F::frame(entry, source.level());
        if pfn == vm.zero_page {
            target.fill(index, copying.unwatched(entry));
            self.copied.zero += 1;
            return Ok(());
        }
        let frame = vm.memory.frame(pfn);
        let page = source.page(index);
        let is_private = frame.kind() == Kind::Anonymous;
        if is_private && frame.counts().pins() > 0 {
            copying.pinned(index, (pfn, entry), target, self.ctx)?;
            self.copied.anonymous += 1;
            return Ok(());
        }
        frame.add_mapping().ok_or(OutOfMemory)?;
        let run = Run::single(pfn, target.pte(index), page);
        vm.rmap.duplicate(&vm.env(pin), self.ctx, &run, self.place);
        if copying.view.is_shared() || !F::is_writable(entry) {
            // A shared page is written by both; marks stay with the parent. A private one may
            // have been stored to before by way of another entry, which knows it.
            let marks = match is_private {
                true => Marks::DIRTY,
                false => Marks::ACCESSED,
            };
            target.fill(index, F::with_marks(copying.unwatched(entry), marks));
        } else {
            let (_, protected) = source.update(index, copying.users, F::write_protect);
            gather.stale(page);
            target.fill(index, protected);
        }
        if is_private {
            self.copied.anonymous += 1;
        } else {
            self.copied.cached += 1;
        }
        Ok(())
    }
}
