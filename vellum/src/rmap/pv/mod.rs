//! Page-to-mapping entries: each frame lists the mappings of it (`rmap=pv`).
//!
//! FreeBSD's design. An entry of 24 bytes says at which page of which address space the
//! frame is mapped, and stands in the list of its frame. Entries come in chunks of one
//! frame that belong to a space ([`entry`]), so that an entry need not name it. A page
//! is found in its tables again by walking them.
//!
//! * **Getting an entry** ([`spaces`]): the first chunk of the space that has a free one;
//!   else a new chunk. `prepare` does this, under the lock of the space.
//! * **Adding and removing** ([`locks`]): under the lock of the page's list, which is one
//!   of 256, one for each 2 MiB, or the page's own. A lock that pages share is kept from
//!   one page of an operation to the next.
//! * **Freeing**: what an operation removed goes back at its end, under one hold of the
//!   lock of the space; chunks that are empty then leave the list of their node under
//!   one hold of that list's ([`order`]).
//! * **Visiting** goes against the order of locks, which is tables before lists. So it
//!   tries the table's lock. If that is not free, it remembers the generation of the
//!   list, lets go of it, waits for the table, and takes the list again: if the
//!   generation is the same, the entry is still there, and otherwise it starts over.
//! * **Taking chunks back** ([`reclaim`]) when there is no frame for another.

mod check;
mod entry;
mod list;
mod locks;
mod order;
mod reclaim;
mod spaces;

#[cfg(test)]
mod tests;

use core::ops::Deref;

use self::entry::{Chunk, Name, PvEntry, SlabEntry};
use self::locks::{LockName, PageHead, PageLocks};
use self::order::Order;
use self::spaces::PvSpace;
use super::counts::{self, RmapCounts};
use super::{
    ClearsEntries, Env, Place, ReverseMap, RmapStats, Run, Slot, Topology, Verdict, VisitReport,
};
use crate::addr::{Pfn, Vpn};
use crate::design::{Design, PvAlloc};
use crate::frame::{AuditError, Kind, OutOfMemory, Request, Site};
use crate::platform::Platform;
use crate::slab::{Arena, ArenaMaker, Handle};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Counter, PerCpu, Pin, Waited};
use crate::table::Format;

/// Chunks made by a CPU after which it looks how many there are, for the highest number.
const PEAK_INTERVAL: u64 = 16;

#[derive(Default)]
struct PvCpu {
    counts: RmapCounts,
    chunks_made: Counter,
    chunks_freed: Counter,
    /// A chunk could not be had since room was last made.
    missed: AtomicU32,
}

impl Deref for PvCpu {
    type Target = RmapCounts;

    #[inline]
    fn deref(&self) -> &RmapCounts {
        &self.counts
    }
}

/// Where entries come from.
enum Entries {
    Chunks(Order),
    Slab(Arena<SlabEntry>),
}

/// The `pv` design.
pub struct Pv {
    locks: PageLocks,
    entries: Entries,
    spaces: Arena<PvSpace>,
    cpus: PerCpu<PvCpu>,
    peak_chunks: AtomicU64,
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

/// Entries of one operation, each linked to the next.
#[derive(Default)]
struct Chain {
    first: Name,
    count: usize,
}

/// An operation.
#[derive(Default)]
pub struct PvContext {
    /// The lock that the last page was under, if it is still held.
    held: Option<LockName>,
    /// Whose the entries in `spare` are.
    owner: u32,
    /// Entries to be used.
    spare: Chain,
    /// Entries that were.
    freed: Chain,
}

/// The list of a page, under its lock.
struct Listed<'a> {
    head: &'a PageHead,
    frame: Pfn,
}

impl Pv {
    #[inline]
    fn note(&self, pin: &Pin<'_>, waited: Waited) {
        let counts = self.cpus.get(pin);
        counts.locks.bump();
        if waited.contended {
            counts.contended.bump();
            counts.parked.add(u64::from(waited.parked));
            counts.woken_in_vain.add(u64::from(waited.in_vain));
        }
    }

    #[inline]
    fn lock(&self, pin: &Pin<'_>, frame: Pfn) -> LockName {
        let lock = self.locks.of(frame);
        self.note(pin, self.locks.acquire(lock, pin));
        lock
    }

    /// The list of a page, whose lock the operation holds from now on, in the place of
    /// another that it may hold (FreeBSD: `CHANGE_PV_LIST_LOCK_TO_PHYS`).
    #[inline]
    fn hold(&self, pin: &Pin<'_>, ctx: &mut PvContext, frame: Pfn) -> Listed<'_> {
        if ctx.held != Some(self.locks.of(frame)) {
            self.let_go(pin, ctx);
            ctx.held = Some(self.lock(pin, frame));
        }
        self.listed(frame)
    }

    /// The page is done. A lock that the next page may be under is kept.
    #[inline]
    fn done(&self, pin: &Pin<'_>, ctx: &mut PvContext) {
        if !self.locks.are_shared() {
            self.let_go(pin, ctx);
        }
    }

    #[inline]
    fn let_go(&self, pin: &Pin<'_>, ctx: &mut PvContext) {
        if let Some(lock) = ctx.held.take() {
            self.locks.release(lock, pin);
        }
    }

    #[inline]
    fn listed(&self, frame: Pfn) -> Listed<'_> {
        Listed {
            head: self.locks.head(frame),
            frame,
        }
    }

    #[inline]
    fn entry<'a, P: Platform>(&'a self, env: &Env<'a, P>, name: Name) -> &'a PvEntry {
        match &self.entries {
            Entries::Chunks(_) => Chunk::at(env.memory, name.chunk()).entry(name),
            Entries::Slab(arena) => &arena.get(Handle::from_raw(name.0 as u32)).entry,
        }
    }

    /// Whose an entry in use is.
    #[inline]
    fn owner<P: Platform>(&self, env: &Env<'_, P>, name: Name) -> u32 {
        match &self.entries {
            Entries::Chunks(_) => Chunk::at(env.memory, name.chunk()).owner(),
            Entries::Slab(arena) => {
                let entry = arena.get(Handle::from_raw(name.0 as u32));
                entry.owner.load(Ordering::Relaxed)
            }
        }
    }

    #[inline]
    fn space(&self, handle: u32) -> &PvSpace {
        self.spaces.get(Handle::from_raw(handle))
    }

    #[inline]
    fn push<P: Platform>(&self, env: &Env<'_, P>, chain: &mut Chain, name: Name) {
        self.entry(env, name).set_next(chain.first);
        chain.first = name;
        chain.count += 1;
    }

    #[inline]
    fn pop<P: Platform>(&self, env: &Env<'_, P>, chain: &mut Chain) -> Option<Name> {
        let name = chain.first;
        if name.is_none() {
            return None;
        }
        chain.first = self.entry(env, name).next();
        chain.count -= 1;
        Some(name)
    }

    /// Gives the operation `count` entries of a space (FreeBSD: `get_pv_entry`,
    /// `reserve_pv_entries`).
    fn take<P: Platform>(
        &self,
        env: &Env<'_, P>,
        order: &Order,
        ctx: &mut PvContext,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        let owner = ctx.owner;
        let space = self.space(owner);
        let mut fresh = None;
        loop {
            let before = ctx.spare.count;
            let mut chunks = space.chunks.lock(env.pin);
            if let Some(frame) = fresh {
                Chunk::make(env.memory, frame, owner);
                chunks.add(env.memory, frame);
            }
            while ctx.spare.count < count {
                let Some(name) = chunks.take(env.memory) else {
                    break;
                };
                self.push(env, &mut ctx.spare, name);
            }
            drop(chunks);
            let taken = ctx.spare.count - before;
            self.cpus.get(env.pin).node_allocs.add(taken as u64);
            if let Some(frame) = fresh {
                // Entries of it are the caller's, so it stays.
                order.add(env.memory, frame, env.pin);
            }
            if ctx.spare.count >= count {
                return Ok(());
            }
            fresh = Some(self.new_chunk(env)?);
        }
    }

    /// A frame for a chunk.
    fn new_chunk<P: Platform>(&self, env: &Env<'_, P>) -> Result<Pfn, OutOfMemory> {
        let cpu = self.cpus.get(env.pin);
        let request = Request::page(Site::PvChunk).low();
        let frame = env.memory.alloc(env.pin, request).inspect_err(|_| {
            cpu.missed.store(1, Ordering::Relaxed);
        })?;
        env.memory.frame(frame).set_kind(Kind::Slab);
        cpu.chunks_made.bump();
        if cpu.chunks_made.get() % PEAK_INTERVAL == 1 {
            self.peak_chunks
                .fetch_max(self.live_chunks(), Ordering::Relaxed);
        }
        Ok(frame)
    }

    fn live_chunks(&self) -> u64 {
        let made = self.cpus.sum(|cpu| &cpu.chunks_made);
        made.wrapping_sub(self.cpus.sum(|cpu| &cpu.chunks_freed))
    }

    /// Frees entries that are in no list. Those of one space in a row go under one hold
    /// of its lock, and the chunks that they leave empty under one hold of their list's
    /// (FreeBSD: `free_pv_chunk_batch`).
    fn give<P: Platform>(&self, env: &Env<'_, P>, chain: &mut Chain) {
        let Some(mut next) = self.pop(env, chain) else {
            return;
        };
        let mut freed = 1;
        let mut emptied = Pfn::NONE;
        match &self.entries {
            Entries::Slab(arena) => loop {
                arena.free(env.pin, Handle::from_raw(next.0 as u32));
                match self.pop(env, chain) {
                    Some(name) => next = name,
                    None => break,
                }
                freed += 1;
            },
            Entries::Chunks(_) => 'spaces: loop {
                let owner = self.owner(env, next);
                let mut chunks = self.space(owner).chunks.lock(env.pin);
                loop {
                    // Before the chunk goes that the name leads to.
                    let after = self.pop(env, chain);
                    if let Some(frame) = chunks.give(env.memory, next) {
                        env.memory.frame(frame).set_next(emptied);
                        emptied = frame;
                    }
                    let Some(name) = after else {
                        break 'spaces;
                    };
                    next = name;
                    freed += 1;
                    if self.owner(env, next) != owner {
                        break;
                    }
                }
            },
        }
        self.cpus.get(env.pin).node_frees.add(freed);
        if !emptied.is_none() {
            self.free_chunks(env, emptied);
        }
    }

    /// Frees chunks that have left their spaces, linked by their records.
    #[cold]
    fn free_chunks<P: Platform>(&self, env: &Env<'_, P>, first: Pfn) {
        let after = |frame: Pfn| {
            let next = env.memory.frame(frame).links().0;
            (!next.is_none()).then_some(next)
        };
        let chunks = core::iter::successors(Some(first), |&frame| after(frame));
        if let Entries::Chunks(order) = &self.entries {
            order.remove(env.memory, chunks, env.pin);
        }
        let mut rest = Some(first);
        while let Some(frame) = rest {
            rest = after(frame);
            self.cpus.get(env.pin).chunks_freed.bump();
            env.memory.put(env.pin, frame);
        }
    }

    /// One of the entries that were prepared.
    #[inline]
    fn prepared<P: Platform>(&self, env: &Env<'_, P>, ctx: &mut PvContext, owner: u32) -> Name {
        match &self.entries {
            Entries::Chunks(_) => {
                debug_assert!(
                    ctx.owner == owner,
                    "entries were prepared for another space"
                );
                let name = self.pop(env, &mut ctx.spare);
                name.expect("more entries were added than prepared")
            }
            Entries::Slab(arena) => {
                let handle = arena.take_reserved(env.pin);
                self.cpus.get(env.pin).node_allocs.bump();
                arena.get(handle).owner.store(owner, Ordering::Relaxed);
                Name(u64::from(handle.raw()))
            }
        }
    }

    /// Puts an entry in front of a page's list.
    #[inline]
    fn insert<P: Platform>(&self, env: &Env<'_, P>, list: &Listed<'_>, name: Name, page: Vpn) {
        let entry = self.entry(env, name);
        let first = list.head.first();
        entry.set_page(page);
        entry.set_previous(Name::NONE);
        entry.set_next(first);
        if !first.is_none() {
            self.entry(env, first).set_previous(name);
        }
        list.head.set_first(name);
        list.head.advance();
    }

    /// Takes an entry out of a page's list.
    #[inline]
    fn unlink<P: Platform>(&self, env: &Env<'_, P>, list: &Listed<'_>, name: Name) {
        let entry = self.entry(env, name);
        let (previous, next) = (entry.previous(), entry.next());
        if previous.is_none() {
            list.head.set_first(next);
        } else {
            self.entry(env, previous).set_next(next);
        }
        if !next.is_none() {
            self.entry(env, next).set_previous(previous);
        }
        list.head.advance();
    }

    /// The entry of a page's list that maps it at `page` of the space `owner`
    /// (FreeBSD: `pmap_pvh_remove`).
    #[inline]
    fn find<P: Platform>(
        &self,
        env: &Env<'_, P>,
        list: &Listed<'_>,
        (owner, page): (u32, Vpn),
    ) -> Option<Name> {
        let searched = &self.cpus.get(env.pin).nodes_searched;
        let mut name = list.head.first();
        while !name.is_none() {
            searched.bump();
            let entry = self.entry(env, name);
            if entry.page() == page && self.owner(env, name) == owner {
                return Some(name);
            }
            name = entry.next();
        }
        None
    }

    /// Adds entries for a run.
    #[inline]
    fn insert_run<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) {
        for step in 0..run.count {
            let name = self.prepared(env, ctx, place.space_state.handle());
            let list = self.hold(env.pin, ctx, run.frame.offset(step << run.order));
            self.insert(env, &list, name, page_of(run, step));
            self.done(env.pin, ctx);
        }
    }

    /// Hands out the entries of a page. Its lock is held when this begins and, unless
    /// false is returned, when it ends: then the list has changed while a table was
    /// waited for.
    fn visit_listed<'a, P: Platform, F: Format>(
        &self,
        env: &Env<'a, P>,
        topology: &dyn Topology<()>,
        list: &Listed<'_>,
        report: &mut VisitReport,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> bool {
        let mut name = list.head.first();
        while !name.is_none() {
            let entry = self.entry(env, name);
            let after = entry.next();
            let space = self.space(self.owner(env, name)).handle();
            let slot = match topology.leaf(env.pin, space, entry.page()) {
                None => None,
                Some(pte) => match Slot::open(env, pte, list.frame) {
                    Ok(slot) => slot,
                    Err(_) => {
                        let generation = list.head.generation();
                        self.locks.release(self.locks.of(list.frame), env.pin);
                        let slot = Slot::wait(env, pte, &mut report.lock_failures);
                        self.lock(env.pin, list.frame);
                        if list.head.generation() != generation {
                            self.locks.release(self.locks.of(list.frame), env.pin);
                            return false;
                        }
                        slot.filter(|slot: &Slot<'_, F>| slot.maps(list.frame))
                    }
                },
            };
            let Some(slot) = slot else {
                report.false_probes += 1;
                name = after;
                continue;
            };
            report.hits += 1;
            match visitor(&slot) {
                Verdict::Keep => {}
                Verdict::Stop => return true,
                Verdict::Unmapped => {
                    report.unmapped += 1;
                    self.unlink(env, list, name);
                    env.memory.frame(list.frame).remove_mapping();
                    self.cpus.get(env.pin).removes.bump();
                    // Before the table is unlocked: its space cannot end earlier.
                    let mut freed = Chain::default();
                    self.push(env, &mut freed, name);
                    self.give(env, &mut freed);
                }
            }
            drop(slot);
            name = after;
        }
        true
    }
}

#[inline]
fn page_of(run: &Run, step: u32) -> Vpn {
    run.page.offset(u64::from(step) << run.order)
}

impl ReverseMap for Pv {
    const NAME: &'static str = "pv";
    const MAKES_ROOM: bool = true;
    type Region = ();
    type Object = ();
    type Space = PvOfSpace;
    type Ctx = PvContext;

    fn new(options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        let entries = match options.pv_alloc {
            PvAlloc::Chunks => Entries::Chunks(Order::new(options.pv_lru, arenas.nodes())),
            PvAlloc::Slab => Entries::Slab(arenas.make()),
        };
        Pv {
            locks: PageLocks::new(options.pv_lock, arenas),
            entries,
            spaces: arenas.make(),
            cpus: PerCpu::new(cpus, |_| PvCpu::default()),
            peak_chunks: AtomicU64::new(0),
        }
    }

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
        for step in 0..run.count {
            let list = self.hold(env.pin, ctx, run.frame.offset(step << run.order));
            let at = (place.space_state.handle(), page_of(run, step));
            let found = self.find(env, &list, at);
            debug_assert!(found.is_some(), "entry removed that the list does not have");
            if let Some(name) = found {
                self.unlink(env, &list, name);
                self.done(env.pin, ctx);
                self.push(env, &mut ctx.freed, name);
            } else {
                self.done(env.pin, ctx);
            }
        }
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
        for step in 0..from.count {
            let list = self.hold(env.pin, ctx, from.frame.offset(step << from.order));
            let at = (place.space_state.handle(), page_of(from, step));
            let found = self.find(env, &list, at);
            debug_assert!(found.is_some(), "entry moved that the list does not have");
            if let Some(name) = found {
                self.entry(env, name).set_page(page_of(to, step));
                list.head.advance();
            }
            self.done(env.pin, ctx);
        }
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

    fn space_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        _parent: &PvOfSpace,
        child: &PvOfSpace,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        self.space_executed(env, child, handle)
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

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        let mut report = VisitReport::default();
        loop {
            let lock = self.lock(env.pin, frame);
            let list = self.listed(frame);
            if self.visit_listed(env, topology, &list, &mut report, visitor) {
                self.locks.release(lock, env.pin);
                return report;
            }
        }
    }

    fn make_room<P: Platform>(&self, env: &Env<'_, P>, spaces: &dyn ClearsEntries) -> bool {
        self.take_back(env, spaces)
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
        RmapStats {
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
