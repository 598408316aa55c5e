//! fork: a copy-on-write copy of a space.
//!
//! Private pages are mapped a second time, without the right to store in
//! either space. Pages that a fault would find again (those of objects, and
//! the zero page) are left to faults unless `forkcopy=all`. Pinned pages are
//! copied at once, because whoever pinned them writes to the parent's.

use super::account::Resident;
use super::error::MapError;
use super::manager::{Live, SpaceId, Vm};
use super::region::{Region, RegionView, Traits};
use super::unmap::DeadObjects;
use crate::addr::{PageRange, Pfn, Vpn};
use crate::design::ForkCopy;
use crate::frame::{Kind, OutOfMemory, Request, Site};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::table::{Format, Gather, LockedTable, Span, Users};

/// The counts of entries copied.
#[derive(Default)]
struct Copied {
    anonymous: u64,
    cached: u64,
    zero: u64,
}

/// One region on its way into the child.
struct Copying<'a, R: ReverseMap> {
    parent: Live<'a, R>,
    child: Live<'a, R>,
    region: &'a Region<R>,
    view: RegionView,
    users: Users,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Makes a copy-on-write copy of a space, with one user.
    ///
    /// # Errors
    /// [`MapError::OutOfMemory`]; there is no child, and the parent shows the
    /// same memory as before (it may fault on stores where it did not).
    pub fn fork(&self, id: SpaceId) -> Result<SpaceId, MapError> {
        let mut dead = DeadObjects::default();
        let result = self.with_locked(id, |pin, parent| {
            self.events(pin).forks.bump();
            Ok(self.fork_locked(pin, parent, &mut dead)?)
        });
        self.destroy_objects(dead);
        Ok(result?.id())
    }

    fn fork_locked<'a>(
        &'a self,
        pin: &Pin<'_>,
        parent: Live<'a, R>,
        dead: &mut DeadObjects,
    ) -> Result<Live<'a, R>, OutOfMemory> {
        let child = self.make_space(pin)?;
        child.limits.set(parent.limits.get());
        for (from, to) in [
            (&parent.get().heap_start, &child.get().heap_start),
            (&parent.get().heap_end, &child.get().heap_end),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let whole = PageRange {
            start: Vpn(0),
            end: F::USER_END,
        };
        self.close_gates(pin, parent, whole);
        let env = self.env(pin);
        let begun = self
            .rmap
            .space_forked(&env, &parent.rmap, &child.rmap, child.handle());
        let copied = begun.and_then(|()| {
            self.copy_regions(pin, parent, child, whole)
                .inspect_err(|_| self.tear_down(pin, child, dead))
        });
        self.open_gates(parent, whole);
        if let Err(error) = copied {
            self.unmake_space(pin, child);
            return Err(error);
        }
        self.publish(child);
        Ok(child)
    }

    /// Copies regions and entries. What was copied when it fails is in the
    /// child, for the caller to tear down.
    fn copy_regions(
        &self,
        pin: &Pin<'_>,
        parent: Live<'_, R>,
        child: Live<'_, R>,
        whole: PageRange,
    ) -> Result<(), OutOfMemory> {
        // Entries lose the right to store: flushed once, at the end or early.
        let mut gather = self.gather(pin, parent);
        // A CPU that is in here stores to no page of the parent, so if no
        // other has it loaded, and no other task could load it meanwhile,
        // nobody sets a dirty mark.
        let is_alone = parent.users() == 1 && self.active(parent).has_no_other_than(pin.cpu());
        let users = if is_alone {
            Users::None
        } else {
            Users::Hardware
        };
        self.for_regions(parent, whole, |handle, view| {
            let spare = self.make_region(pin, child)?;
            let region = spare.handle;
            let forked = self.rmap.region_forked(
                &self.env(pin),
                self,
                self.region_ref(handle),
                self.region(region).region_ref_with(child.handle(), &view),
            );
            if let Err(error) = forked {
                self.regions.free(pin, region);
                return Err(error);
            }
            if view.object != 0 {
                self.objects.hold(view.object);
            }
            let write = child.seq.write(pin);
            self.link_region(pin, child, &write, spare, &view);
            drop(write);
            let copies =
                view.traits.has(Traits::HAS_PRIVATE) || self.design.fork_copy == ForkCopy::All;
            if !copies {
                return Ok(());
            }
            let copying = Copying {
                parent,
                child,
                region: self.region(region),
                view,
                users,
            };
            self.copy_entries(pin, &copying, &mut gather)
        })
    }

    fn copy_entries(
        &self,
        pin: &Pin<'_>,
        copying: &Copying<'_, R>,
        gather: &mut Gather<'_, P>,
    ) -> Result<(), OutOfMemory> {
        let from = self.tables(pin, copying.parent);
        let to = self.tables(pin, copying.child);
        for span in from.spans(copying.view.range) {
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
            drop(span);
            let env = self.env(pin);
            let mut ctx = R::Ctx::default();
            let prepared = self.rmap.prepare(&env, &mut ctx, live);
            let (target, made) = match prepared.and_then(|()| to.lock_or_make_at(first, level)) {
                Ok(found) => found,
                Err(error) => {
                    self.rmap.finish(&env, ctx);
                    return Err(error);
                }
            };
            self.count_tables(pin, copying.child, made, 0);
            // The space's lock is ours and the gates are closed: only truncation
            // may have emptied the table meanwhile, and then unlinked it.
            let Some(table) = from.lock(first) else {
                self.leave_table(pin, copying.child, target);
                self.rmap.finish(&env, ctx);
                continue;
            };
            let end =
                copying.view.range.end.min(Vpn(first.0
                    + (F::ENTRIES as u64 - F::index(first, level) as u64) * F::pages_at(level)));
            let source = Span {
                first: F::index(first, level),
                count: (end.0 - first.0).div_ceil(F::pages_at(level)) as usize,
                table,
            };
            let result = self.copy_span(pin, copying, &source, &target, &mut ctx, gather);
            drop(source);
            if target.live() == 0 {
                self.leave_table(pin, copying.child, target);
            } else {
                drop(target);
            }
            self.rmap.finish(&env, ctx);
            result?;
        }
        Ok(())
    }

    fn copy_span(
        &self,
        pin: &Pin<'_>,
        copying: &Copying<'_, R>,
        source: &Span<'_, F>,
        target: &LockedTable<'_, F>,
        ctx: &mut R::Ctx,
        gather: &mut Gather<'_, P>,
    ) -> Result<(), OutOfMemory> {
        let mut copied = Copied::default();
        let mut result = Ok(());
        let env = self.env(pin);
        for index in self.live_entries(&env, source) {
            result = self.copy_entry(
                pin,
                copying,
                source,
                index,
                target,
                ctx,
                gather,
                &mut copied,
            );
            if result.is_err() {
                break;
            }
        }
        let total = copied.anonymous + copied.cached + copied.zero;
        target.count_made(total as u32);
        self.events(pin).fork_entries.add(total);
        let child = copying.child;
        self.count_resident(pin, child, Resident::Anonymous, copied.anonymous);
        self.count_resident(pin, child, Resident::Zero, copied.zero);
        if copied.cached != 0 {
            let kind = self.cache_kind(copying.view.object);
            self.count_resident(pin, child, kind, copied.cached);
        }
        result
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one copied entry")]
    #[inline]
    fn copy_entry(
        &self,
        pin: &Pin<'_>,
        copying: &Copying<'_, R>,
        source: &Span<'_, F>,
        index: usize,
        target: &LockedTable<'_, F>,
        ctx: &mut R::Ctx,
        gather: &mut Gather<'_, P>,
        copied: &mut Copied,
    ) -> Result<(), OutOfMemory> {
        let entry = source.table.load(index);
        let level = source.table.level();
        let pfn = F::frame(entry, level);
        if pfn == self.zero_page {
            target.fill(index, entry);
            copied.zero += 1;
            return Ok(());
        }
        let frame = self.memory.frame(pfn);
        let page = source.table.page(index);
        let is_private = frame.kind() == Kind::Anonymous;
        if is_private && frame.counts().pins() > 0 {
            return self.copy_pinned(pin, copying, pfn, page, index, entry, target, ctx, copied);
        }
        frame.add_mapping().ok_or(OutOfMemory)?;
        let run = Run::single(pfn, target.pte(index), page);
        let place = copying.region.place(copying.child);
        self.rmap.duplicate(&self.env(pin), ctx, &run, place);
        if copying.view.is_shared() || !F::is_writable(entry) {
            // A shared page is written by both; marks stay with the parent.
            target.fill(index, F::with_marks(entry, crate::table::Marks::ACCESSED));
        } else {
            let (_, protected) = source.table.update(index, copying.users, F::write_protect);
            gather.stale(page);
            target.fill(index, protected);
        }
        if is_private {
            copied.anonymous += 1;
        } else {
            copied.cached += 1;
        }
        Ok(())
    }

    /// Gives the child its own copy of a page that somebody has pinned.
    #[expect(clippy::too_many_arguments, reason = "the parts of one copied entry")]
    #[cold]
    fn copy_pinned(
        &self,
        pin: &Pin<'_>,
        copying: &Copying<'_, R>,
        old: Pfn,
        page: Vpn,
        index: usize,
        entry: u64,
        target: &LockedTable<'_, F>,
        ctx: &mut R::Ctx,
        copied: &mut Copied,
    ) -> Result<(), OutOfMemory> {
        let new = self.memory.alloc(pin, Request::page(Site::ForkCopy))?;
        self.memory.copy(pin, old, new);
        self.own_privately(self.memory.frame(new), copying.child.handle(), page);
        let run = Run::single(new, target.pte(index), page);
        let place = copying.region.place(copying.child);
        self.rmap.add(&self.env(pin), ctx, &run, place, true);
        target.fill(index, F::leaf(new, 1, F::prot(entry, 1), F::marks(entry)));
        self.note_inserted(pin, new, Inserted::Anonymous);
        copied.anonymous += 1;
        Ok(())
    }
}
