//! Page-to-mapping entries: each frame lists the mappings of it (`rmap=pv`).
//!
//! FreeBSD's design. An entry of 24 bytes says at which page of which address space the
//! frame is mapped, and stands in the list of its frame. Entries come in chunks of one
//! frame that belong to a space ([`entry`]), so that an entry need not name it. A page
//! is found in its tables again by walking them.
//!
//! * **Getting an entry** ([`supply`], [`spaces`]): the first chunk of the space that has a free one;
//!   else a new chunk. `prepare` does this, under the lock of the space.
//! * **Adding and removing** ([`lists`], [`locks`]): under the lock of the page's list, which is one
//!   of 256, one for each 2 MiB, or the page's own. A lock that pages share is kept from
//!   one page of an operation to the next.
//! * **Freeing**: what an operation removed goes back at its end, under one hold of the
//!   lock of the space; chunks that are empty then leave the list of their node under
//!   one hold of that list's ([`order`]).
//! * **Visiting** ([`visit`]) goes against the order of locks, which is tables before lists. So it
//!   tries the table's lock. If that is not free, it remembers the generation of the
//!   list, lets go of it, waits for the table, and takes the list again: if the
//!   generation is the same, the entry is still there, and otherwise it starts over.
//! * **Superpages** ([`large`]) have lists of their own, by 2 MiB.
//! * **Taking chunks back** ([`reclaim`]) when there is no frame for another.

mod check;
mod delayed;
mod entry;
mod large;
mod lists;
mod locks;
mod order;
mod reclaim;
mod spaces;
mod supply;
mod visit;

#[cfg(test)]
mod tests;

use self::delayed::Delayed;
use self::entry::{Chunk, EntryName, PvEntry, SlabEntry};
use self::locks::{LockName, PvListLocks};
use self::order::Order;
use self::spaces::PvSpace;
use self::supply::EntryChain;
use crate::addr::Pfn;
use crate::design::{Design, Di, PmapLock, PvAlloc};
use crate::frame::{AuditError, OutOfMemory};
use crate::platform::Platform;
use crate::rmap::counts::{self, RmapCounts};
use crate::rmap::{
    Audited, ClearsEntries, DelaysFlushes, Env, Place, ReverseMap, RmapStats, Run, Slot, Topology,
    TracksEntries, TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use crate::slab::{Arena, ArenaMaker, AtHand, Handle, WhilePinned};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Counter, PerCpu};
use crate::table::{Format, PteRef, SpaceLock};

#[derive(Default)]
struct PvCpu {
    counts: RmapCounts,
    chunks_made: Counter,
    chunks_freed: Counter,
    /// Of the chunks made, those after which the highest number was noted.
    chunks_noted: Counter,
    /// A chunk could not be had since room was last made.
    missed: AtomicU32,
}

counts::count_in!(PvCpu);

/// Where entries come from.
enum Entries {
    Chunks(Order),
    Slab(Arena<SlabEntry, WhilePinned>),
}

/// The `pv` design.
pub struct Pv {
    locks: PvListLocks,
    entries: Entries,
    spaces: Arena<PvSpace>,
    /// What is cleared and not flushed, if anybody waits for that.
    delayed: Option<Delayed>,
    cpus: PerCpu<PvCpu>,
    peak_chunks: AtomicU64,
    /// Whether spaces have one lock for all their tables.
    locks_spaces: bool,
}

/// What spaces embed: what is kept of them, by its handle.
#[derive(Debug, Default)]
pub struct PvOfSpace(AtomicU32);

impl PvOfSpace {
    #[inline]
    fn handle(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An operation.
#[derive(Default)]
pub struct PvContext {
    /// The lock that the last page was under, if it is still held.
    held: Option<LockName>,
    /// Whose the entries in `spare` are.
    owner: u32,
    /// Entries to be used.
    spare: EntryChain,
    /// Entries that were.
    freed: EntryChain,
}

impl Pv {
    #[inline]
    fn entry<'a, P: Platform>(&'a self, env: &Env<'a, P>, name: EntryName) -> &'a PvEntry {
        match &self.entries {
            Entries::Chunks(_) => Chunk::at(env.memory, name.chunk()).entry(name),
            Entries::Slab(arena) => {
                &arena
                    .under(env.pin)
                    .get(Handle::from_raw(name.0 as u32))
                    .entry
            }
        }
    }

    /// Whose an entry in use is.
    #[inline]
    fn owner<P: Platform>(&self, env: &Env<'_, P>, name: EntryName) -> u32 {
        match &self.entries {
            Entries::Chunks(_) => Chunk::at(env.memory, name.chunk()).owner(),
            Entries::Slab(arena) => {
                let entry = arena.under(env.pin).get(Handle::from_raw(name.0 as u32));
                entry.owner.load(Ordering::Relaxed)
            }
        }
    }

    /// The lock of all tables of a space, if it has one.
    #[inline]
    fn tables_of<'a>(&self, space: &'a PvSpace) -> SpaceLock<'a> {
        match self.locks_spaces {
            true => Some(&space.tables),
            false => None,
        }
    }

    #[inline]
    fn space(&self, handle: u32) -> &PvSpace {
        self.spaces.get(Handle::from_raw(handle))
    }
}

// SAFETY: each entry is in the list of its page, or of its superpage, from `add` to `remove`,
// both under the list's lock; a visit goes through both lists, and finds the entry by the space
// and the page there.
unsafe impl ReverseMap for Pv {
    const NAME: &'static str = "pv";

    fn new(options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        let entries = match options.pv_alloc {
            PvAlloc::Chunks => Entries::Chunks(Order::new(options.pv_lru, arenas.nodes())),
            PvAlloc::Slab => Entries::Slab(arenas.make()),
        };
        Pv {
            locks: PvListLocks::new(options.pv_lock, options.di != Di::Epoch, arenas),
            entries,
            delayed: match options.di {
                Di::Epoch => None,
                kind => Some(Delayed::new(cpus, kind == Di::Locked)),
            },
            spaces: arenas.make(),
            cpus: PerCpu::new(cpus, |_| PvCpu::default()),
            peak_chunks: AtomicU64::new(0),
            locks_spaces: options.pmap_lock == PmapLock::Space,
        }
    }

    #[inline]
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
        _fresh: bool,
    ) {
        self.cpus.get(env.pin).adds.add(u64::from(run.count));
        self.insert_run(env, ctx, run, place);
    }

    #[inline]
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) {
        self.cpus.get(env.pin).duplicates.add(u64::from(run.count));
        self.insert_run(env, ctx, run, place);
    }

    #[inline]
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) {
        self.cpus.get(env.pin).removes.add(u64::from(run.count));
        self.remove_run(env, ctx, run, place);
    }

    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        from: &Run,
        to: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) {
        self.cpus.get(env.pin).moves.add(u64::from(from.count));
        self.move_run(env, ctx, (from, to), place);
    }

    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        _ctx: &mut PvContext,
        run: &Run,
        _place: Place<'_, (), PvOfSpace>,
    ) {
        self.cpus.get(env.pin).turns.add(u64::from(run.count));
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        self.visit_page(env, topology, frame, visitor)
    }
}

impl TracksSpaces for Pv {
    type Space = PvOfSpace;

    #[inline]
    fn tables_lock<'a>(&'a self, space: &'a PvOfSpace) -> SpaceLock<'a> {
        match space.handle() {
            0 => None,
            own => self.tables_of(self.space(own)),
        }
    }

    fn space_executed<P: Platform>(
        &self,
        env: &Env<'_, P>,
        space: &PvOfSpace,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        let own = self.spaces.alloc(env.pin, env.memory)?;
        self.spaces.get(own).space.store(handle, Ordering::Relaxed);
        space.0.store(own.raw(), Ordering::Relaxed);
        if let Entries::Chunks(order) = &self.entries {
            order.begin(&self.spaces, own.raw(), env.pin);
        }
        Ok(())
    }

    fn space_ended<P: Platform>(&self, env: &Env<'_, P>, space: &PvOfSpace) {
        let own = space.0.swap(0, Ordering::Relaxed);
        if own == 0 {
            return;
        }
        if let Entries::Chunks(order) = &self.entries {
            order.end(&self.spaces, own, env.pin);
        }
        let kept = self.space(own);
        debug_assert!(
            kept.chunks.lock(env.pin).is_empty(),
            "a space ends that has entries"
        );
        kept.space.store(0, Ordering::Relaxed);
        self.spaces.free(env.pin, Handle::from_raw(own));
    }
}

impl TracksRegions for Pv {
    type Region = ();
}

impl TracksEntries for Pv {
    const MAKES_ROOM: bool = true;
    type Ctx = PvContext;

    #[inline]
    fn prepare<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        place: Place<'_, (), PvOfSpace>,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        let order = match &self.entries {
            Entries::Chunks(order) => order,
            Entries::Slab(arena) => return arena.reserve(env.pin, env.memory, count),
        };
        let owner = place.space_state.handle();
        if ctx.owner != owner {
            self.give(env, &mut ctx.spare);
            ctx.owner = owner;
        }
        if ctx.spare.count >= count {
            return Ok(());
        }
        self.take(env, order, ctx, count)
    }

    #[inline]
    fn finish<P: Platform>(&self, env: &Env<'_, P>, mut ctx: PvContext) {
        self.let_go(env.pin, &mut ctx);
        self.give(env, &mut ctx.freed);
        self.give(env, &mut ctx.spare);
    }

    #[inline]
    fn prefetch<P: Platform>(&self, _env: &Env<'_, P>, frame: Pfn) {
        self.locks.prefetch(frame);
    }

    fn give_back<P: Platform>(&self, env: &Env<'_, P>, at_hand: AtHand) -> u64 {
        match &self.entries {
            Entries::Chunks(_) => 0,
            Entries::Slab(arena) => arena.give_back(env.pin, env.memory, at_hand),
        }
    }

    fn make_room<P: Platform>(&self, env: &Env<'_, P>, spaces: &dyn ClearsEntries) -> bool {
        self.take_back(env, spaces)
    }
}

impl TracksLeaves for Pv {
    /// A superpage has one entry, whether its pages have records or not.
    const LISTS_LEAVES: bool = true;

    fn promote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        _leaf: PteRef,
        place: Place<'_, (), PvOfSpace>,
    ) {
        self.promote_run(env, ctx, run, place);
    }

    /// Sets aside what [`TracksLeaves::demote`] needs: were an entry to be had later, taking
    /// back chunks could meet a leaf that has changed and an entry that has not.
    fn prepare_demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) -> Result<(), OutOfMemory> {
        self.prepare(env, ctx, place, (1 << run.order) - 1)
    }

    fn demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        _leaf: PteRef,
        place: Place<'_, (), PvOfSpace>,
    ) {
        self.demote_run(env, ctx, run, place);
    }
}

impl DelaysFlushes for Pv {
    #[inline]
    fn delay_begins<P: Platform>(&self, env: &Env<'_, P>) {
        if let Some(delayed) = &self.delayed {
            delayed.begin(env.pin);
        }
    }

    #[inline]
    fn delay_ends<P: Platform>(&self, env: &Env<'_, P>) {
        if let Some(delayed) = &self.delayed {
            delayed.end(env.pin);
        }
    }

    fn wait_for_flushes<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        if let Some(delayed) = &self.delayed {
            delayed.wait(self.locks.stamped(frame), env.pin);
        }
    }
}

impl Audited for Pv {
    fn kept_bytes(_regions: u64, pages: u64) -> u64 {
        pages * size_of::<PvEntry>() as u64
    }

    fn stats(&self) -> RmapStats {
        let spaces = self.spaces.stats();
        let own = size_of::<PvSpace>() as u64;
        let (bytes, peak) = match &self.entries {
            Entries::Chunks(_) => {
                let live = self.live_chunks();
                let peak = self.peak_chunks.load(Ordering::Relaxed).max(live);
                (
                    live * size_of::<Chunk>() as u64,
                    peak * size_of::<Chunk>() as u64,
                )
            }
            Entries::Slab(arena) => {
                let each = size_of::<SlabEntry>() as u64;
                (self.live_nodes() * each, arena.stats().peak * each)
            }
        };
        let (restarts, waits) = self.delayed.as_ref().map_or((0, 0), Delayed::counts);
        RmapStats {
            flush_queue_restarts: restarts,
            flush_waits: waits,
            bytes: bytes + spaces.live * own,
            peak_bytes: peak + spaces.peak * own,
            ..counts::sum(&self.cpus, |cpu| cpu)
        }
    }

    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        self.check_list(env, frame, maps)
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        self.count_frames()
    }

    fn live_nodes(&self) -> u64 {
        let allocs = self.cpus.sum(|cpu| &cpu.node_allocs);
        allocs.wrapping_sub(self.cpus.sum(|cpu| &cpu.node_frees))
    }

    fn live_groups(&self) -> u64 {
        self.spaces.stats().live + self.live_chunks()
    }
}
