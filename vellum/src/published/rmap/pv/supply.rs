//! Where entries come from and where they go: chunks of spaces, or the arena.

use super::entry::{Chunk, EntryName};
use super::order::Order;
use super::{Entries, Pv, PvContext};
use crate::addr::Pfn;
use crate::frame::{Kind, OutOfMemory, Request, Site};
use crate::platform::Platform;
use crate::rmap::Env;
use crate::slab::Handle;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

/// Chunks made by a CPU after which it looks how many there are, for the highest number:
/// before it frees one, and at the latest. To count chunks where all CPUs do would cost a
/// shared line for each.
const PEAK_INTERVALS: [u64; 2] = [4, 64];

/// Entries of one operation, each linked to the next.
#[derive(Default)]
pub(super) struct EntryChain {
    first: EntryName,
    pub count: usize,
}

impl Pv {
    #[inline]
    pub(super) fn push<P: Platform>(
        &self,
        env: &Env<'_, P>,
        chain: &mut EntryChain,
        name: EntryName,
    ) {
        self.entry(env, name).set_next(chain.first);
        chain.first = name;
        chain.count += 1;
    }

    #[inline]
    pub(super) fn pop<P: Platform>(
        &self,
        env: &Env<'_, P>,
        chain: &mut EntryChain,
    ) -> Option<EntryName> {
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
    pub(super) fn take<P: Platform>(
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
    pub(super) fn new_chunk<P: Platform>(&self, env: &Env<'_, P>) -> Result<Pfn, OutOfMemory> {
        let cpu = self.cpus.get(env.pin);
        let request = Request::page(Site::PvChunk).low();
        let frame = env.memory.alloc(env.pin, request).inspect_err(|_| {
            cpu.missed.store(1, Ordering::Relaxed);
        })?;
        env.memory.frame(frame).set_kind(Kind::Slab);
        cpu.chunks_made.bump();
        self.note_peak(env.pin, PEAK_INTERVALS[1]);
        Ok(frame)
    }

    fn note_peak(&self, pin: &Pin<'_>, interval: u64) {
        let cpu = self.cpus.get(pin);
        let since = cpu.chunks_made.get() - cpu.chunks_noted.get();
        if since >= interval {
            cpu.chunks_noted.add(since);
            self.peak_chunks
                .fetch_max(self.live_chunks(), Ordering::Relaxed);
        }
    }

    pub(super) fn live_chunks(&self) -> u64 {
        let made = self.cpus.sum(|cpu| &cpu.chunks_made);
        made.wrapping_sub(self.cpus.sum(|cpu| &cpu.chunks_freed))
    }

    /// Frees entries that are in no list. Those of one space in a row go under one hold
    /// of its lock, and the chunks that they leave empty under one hold of their list's
    /// (FreeBSD: `free_pv_chunk_batch`).
    pub(super) fn give<P: Platform>(&self, env: &Env<'_, P>, chain: &mut EntryChain) {
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
    pub(super) fn free_chunks<P: Platform>(&self, env: &Env<'_, P>, first: Pfn) {
        let after = |frame: Pfn| {
            let next = env.memory.frame(frame).links().0;
            (!next.is_none()).then_some(next)
        };
        let chunks = core::iter::successors(Some(first), |&frame| after(frame));
        if let Entries::Chunks(order) = &self.entries {
            order.remove(env.memory, chunks, env.pin);
        }
        self.note_peak(env.pin, PEAK_INTERVALS[0]);
        let mut rest = Some(first);
        while let Some(frame) = rest {
            rest = after(frame);
            self.cpus.get(env.pin).chunks_freed.bump();
            env.memory.put(env.pin, frame);
        }
    }

    /// One of the entries that were prepared: there is always one. Were there none, the
    /// page would not be listed, and a visit of it would miss the mapping.
    #[inline]
    pub(super) fn prepared<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        owner: u32,
    ) -> Option<EntryName> {
        match &self.entries {
            Entries::Chunks(_) => {
                debug_assert!(
                    ctx.owner == owner,
                    "entries were prepared for another space"
                );
                let name = self.pop(env, &mut ctx.spare);
                debug_assert!(name.is_some(), "more entries were added than prepared");
                name
            }
            Entries::Slab(arena) => {
                let handle = arena.take_reserved(env.pin);
                self.cpus.get(env.pin).node_allocs.bump();
                arena
                    .under(env.pin)
                    .get(handle)
                    .owner
                    .store(owner, Ordering::Relaxed);
                Some(EntryName(u64::from(handle.raw())))
            }
        }
    }
}
