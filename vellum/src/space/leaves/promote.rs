//! Promotion (`superpage=reserve`): a full table of single pages gives way to one large leaf
//! that maps the same frames.
//!
//! Rules as in FreeBSD's `pmap_promote_pde`. The frames are consecutive and begin where a
//! superpage may, and the entries are equal in rights and in whether they are dirty. A page
//! that may be stored to and is clean first loses that right: otherwise one store would make
//! all pages dirty, or one page that was clean keep 511 dirty ones small. The next store comes
//! back through a fault, which tries again. The superpage counts as accessed only if all pages
//! were. It keeps a table to be split into, as each superpage does, which is had before
//! anything changes; without one nothing is promoted.
//!
//! A promotion changes entries, and no record of a frame: the run is divided, as one of which
//! a mapping was split is ([`crate::frame::run`](crate::frame)), and a superpage that is split
//! again before anything else happens to it costs no more than the entries of a table. The
//! records become one ([`Vm::unite`]) where that saves going over them: when the space forks,
//! and when the superpage is unmapped whole, if nobody else maps or refers to one of the
//! frames by then.

use core::convert::Infallible;

use crate::addr::{PageRange, Pfn, Prot, Vpn};
use crate::frame::{OutOfMemory, Owner};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{Env, Place, ReverseMap, Run};
use crate::space::state::extras::LEVEL;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::Traits;
use crate::space::steps::fault::Fault;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::table::{Format, LockedTable, Marks, Tables, Users};

/// What the entries of a table have in common.
#[derive(Clone, Copy)]
struct Uniform {
    first: Pfn,
    prot: Prot,
    marks: Marks,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Maps the range around the fault's page by a superpage, if its table is full and its
    /// entries suit. The fault is resolved.
    #[inline]
    pub(in crate::space) fn promote_if_full(&self, fault: &Fault<'_, P, F, R>) {
        let (table, level) = fault.lowest;
        let is_full = level == 1 && self.memory.frame(table).table().live() == F::ENTRIES as u32;
        if is_full && self.has_reservations() && self.may_be_superpage(fault) {
            // Without memory for a table it stays as it is.
            let _ = self.promote(fault);
        }
    }

    #[cold]
    fn promote(&self, fault: &Fault<'_, P, F, R>) -> Result<(), OutOfMemory> {
        let range = Self::range_around(fault.page);
        if fault.view().traits.has_any(Traits::HOOKS) {
            // Pages may be watched.
            return Ok(());
        }
        let looked = fault
            .lock_found()
            .and_then(|table| self.uniform(fault, &table, range));
        if looked.is_none() {
            return Ok(());
        }
        let tables = self.tables(fault.pin, fault.space);
        let spare = tables.make_spare(range.start, LEVEL - 1)?;
        if !self.promote_with(fault, &tables, range, spare) {
            tables.unmake_spare(spare);
        }
        Ok(())
    }

    /// Promotes with a table to keep, if the entries still suit. Returns whether they did.
    fn promote_with(
        &self,
        fault: &Fault<'_, P, F, R>,
        tables: &Tables<'_, P, F>,
        range: PageRange,
        spare: Pfn,
    ) -> bool {
        let (pin, space, place) = (fault.pin, fault.space, fault.place());
        let Some(table) = fault.lock_found() else {
            return false;
        };
        let Some(found) = self.uniform(fault, &table, range) else {
            return false;
        };
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        let parent = tables.lock_above(&table);
        let leaf_at = parent.pte(F::index(range.start, LEVEL));
        let singles = Run {
            count: F::ENTRIES as u32,
            ..Run::single(found.first, table.pte(0), range.start)
        };
        let leaf = F::leaf(found.first, LEVEL, found.prot, found.marks);
        let flush = || self.flush_locked_table(pin, space, range);
        let dead = Tables::<P, F>::promote(&table, &parent, leaf, flush, || {
            // No CPU walks the table any more.
            table.clear_all();
            (self.rmap).promote(&env, &mut ctx, &singles, leaf_at, place);
            tables.keep_spare(&parent, spare);
        });
        // The frames are the superpage's now, and none of the run is unused.
        self.memory
            .end_run(pin, found.first, Owner::Table(table.table()));
        space.has_promoted.store(1, Ordering::Relaxed);
        drop((table, parent));
        // Before a flush: the context may hold a lock.
        self.rmap.finish(&env, ctx);
        let mut gather = self.gather(pin, space);
        gather.table(dead);
        drop(gather);
        self.count_tables(pin, space, 1, 1);
        fault.cpu.events.superpage_promotions.bump();
        true
    }

    /// Gives the frames of a large leaf one record, if each has its own and nobody else maps or
    /// refers to one. The leaf's table is locked.
    pub(in crate::space) fn unite(
        &self,
        env: &Env<'_, P>,
        run: &Run,
        place: Place<'_, R::Region, R::Space>,
    ) {
        let locked = self.memory.lock_run(env.pin, run.frame, run.order);
        let first = self.memory.frame(run.frame);
        if locked.is_whole() || !self.is_exclusive(run.frame) || first.counts().pins() != 0 {
            return;
        }
        if let Err(taken) = self.memory.take_parts(&locked, run.frame) {
            // Reclaim may have looked at one of them in that moment, and not list it again.
            for part in run.parts().skip(1).take(taken) {
                self.note_inserted(env.pin, part.frame, Inserted::Anonymous);
            }
            return;
        }
        self.rmap.unite(env, run, place);
        for part in run.parts().skip(1) {
            self.note_removed(env.pin, part.frame);
        }
        self.memory.unite_records(&locked, run.frame);
    }

    /// [`Vm::unite`] of all superpages of a space that is about to be forked, if any was made of
    /// single pages since it was forked last. Its gates are closed.
    #[inline]
    pub(in crate::space) fn unite_promoted(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        whole: PageRange,
    ) {
        if space.has_promoted.load(Ordering::Relaxed) != 0 {
            space.has_promoted.store(0, Ordering::Relaxed);
            self.unite_all(pin, space, whole);
        }
    }

    #[cold]
    fn unite_all(&self, pin: &Pin<'_>, space: LockedSpace<'_, R>, whole: PageRange) {
        let (env, tables) = (self.env(pin), self.tables(pin, *space));
        let result = self.for_regions(space, whole, |handle, view| {
            if view.object != 0 || !view.traits.has(Traits::HAS_PRIVATE) {
                return Ok::<(), Infallible>(());
            }
            let place = self.region(handle).place(*space);
            for span in tables.spans(view.range) {
                if span.table.level() == LEVEL {
                    let first = F::frame(span.table.load(span.first), LEVEL);
                    let run = Self::large_run(&span.table, span.first, first);
                    self.unite(&env, &run, place);
                }
            }
            Ok(())
        });
        let Ok(()) = result;
    }

    /// What the entries of the table have in common, if a large leaf can take their place.
    /// Clean ones lose the right to store.
    fn uniform(
        &self,
        fault: &Fault<'_, P, F, R>,
        table: &LockedTable<'_, F>,
        range: PageRange,
    ) -> Option<Uniform> {
        // Where entries are about to come, the table stays.
        if table.level() != 1 || table.live() != F::ENTRIES as u32 || table.is_kept() {
            return None;
        }
        self.end_runs(fault.pin, fault.space, table, 0..F::ENTRIES);
        let mut protected = Protected::default();
        let found = Self::compare(table, &mut protected);
        if protected.any {
            // A fork that finds the entries without the right does not flush.
            let (pin, space) = (fault.pin, fault.space);
            for page in (range.start.0..range.end.0).map(Vpn) {
                if protected.has(F::index(page, 1)) {
                    self.flush_locked_page(pin, space, page);
                }
            }
        }
        found
    }

    fn compare(table: &LockedTable<'_, F>, protected: &mut Protected) -> Option<Uniform> {
        let mut settled = |index: usize| {
            let is_clean = |entry| F::is_writable(entry) && !F::marks(entry).dirty;
            let entry = table.load(index);
            if !F::is_mapped(entry) || !is_clean(entry) {
                return entry;
            }
            let (old, new) = table.update(index, Users::Hardware, |entry| {
                // A store may have come first.
                match is_clean(entry) {
                    true => F::write_protect(entry),
                    false => entry,
                }
            });
            if old != new {
                protected.note(index);
            }
            new
        };
        let entry = settled(0);
        let first = F::frame(entry, 1);
        if !F::is_mapped(entry) || first.0 & ((1 << F::INDEX_BITS) - 1) != 0 {
            return None;
        }
        let (prot, mut marks) = (F::prot(entry, 1), F::marks(entry));
        // From the end: pages are mostly filled in ascending order.
        for index in (1..F::ENTRIES).rev() {
            let frame = first.offset(index as u32);
            if table.load(index) == F::leaf(frame, 1, prot, marks) {
                // As most are, and then nothing has to be taken apart.
                continue;
            }
            let entry = settled(index);
            let same = F::is_mapped(entry)
                && F::frame(entry, 1) == frame
                && F::prot(entry, 1) == prot
                && F::marks(entry).dirty == marks.dirty;
            if !same {
                return None;
            }
            marks.accessed &= F::marks(entry).accessed;
        }
        Some(Uniform { first, prot, marks })
    }
}

/// Entries that lost the right to store.
#[derive(Default)]
struct Protected {
    any: bool,
    /// Enough for every format with superpages.
    map: [u64; 16],
}

impl Protected {
    fn note(&mut self, index: usize) {
        self.any = true;
        self.map[index / 64] |= 1 << (index % 64);
    }

    fn has(&self, index: usize) -> bool {
        self.map[index / 64] >> (index % 64) & 1 != 0
    }
}
