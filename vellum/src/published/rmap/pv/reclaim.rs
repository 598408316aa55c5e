//! Taking chunks back when there is no frame for another (FreeBSD: `reclaim_pv_chunk`).
//!
//! An entry can be taken back if its page is found again without it: the next access
//! faults and maps the page anew. That is so for pages of objects. Private pages are
//! known by their entries alone and stay, as wired pages do in FreeBSD.
//!
//! Whoever takes back holds no lock. So it waits for the lock of each space, in any
//! order, where FreeBSD's taker, which holds that of its own space, only tries those
//! before it.

use super::entry::{Chunk, ENTRIES_PER_CHUNK};
use super::order::Order;
use super::{Entries, Pv};
use crate::addr::Vpn;
use crate::platform::Platform;
use crate::rmap::{ClearsEntries, Env};
use crate::sync::atomic::Ordering;

/// Turns of one call that are given to spaces, at most (`pvlru=pmap`).
const TURNS: u64 = 4096;

/// The pages of a chunk.
struct Pages {
    /// Handle of the space.
    space: u32,
    pages: [Vpn; ENTRIES_PER_CHUNK],
    count: usize,
}

impl Pages {
    fn of(chunk: &Chunk, space: u32) -> Pages {
        let mut pages = [Vpn(0); ENTRIES_PER_CHUNK];
        let count = chunk.pages(&mut pages);
        Pages {
            space,
            pages,
            count,
        }
    }
}

impl Pv {
    /// Takes back one chunk; returns whether a frame is free now. The caller is pinned
    /// and holds no lock.
    pub(super) fn take_back<P: Platform>(
        &self,
        env: &Env<'_, P>,
        spaces: &dyn ClearsEntries,
    ) -> bool {
        let Entries::Chunks(order) = &self.entries else {
            return false;
        };
        // A failure that was planned, or that has passed, is no reason.
        let missed = self
            .cpus
            .iter()
            .fold(0, |any, cpu| any | cpu.missed.swap(0, Ordering::Relaxed));
        if missed == 0 || !env.memory.lacks_low() {
            return false;
        }
        match order {
            Order::Domain(_) => self.take_back_by_age(env, order, spaces),
            Order::Pmap(_) => self.take_back_in_turn(env, order, spaces),
        }
    }

    fn freed<P: Platform>(&self, env: &Env<'_, P>) -> u64 {
        self.cpus.get(env.pin).chunks_freed.get()
    }

    /// Clears what may be cleared of a chunk's pages; returns whether a frame became free.
    fn clear<P: Platform>(
        &self,
        env: &Env<'_, P>,
        spaces: &dyn ClearsEntries,
        found: &Pages,
    ) -> bool {
        let before = self.freed(env);
        let pages = &found.pages[..found.count];
        let cleared = spaces.clear(env.pin, found.space, pages);
        let counts = self.cpus.get(env.pin);
        counts.reclaimed.add(u64::from(cleared.entries));
        cleared.tables > 0 || self.freed(env) != before
    }

    /// The nearest node's chunks first, and of each node the oldest.
    fn take_back_by_age<P: Platform>(
        &self,
        env: &Env<'_, P>,
        order: &Order,
        spaces: &dyn ClearsEntries,
    ) -> bool {
        let nodes = order.nodes();
        let own = usize::from(env.memory.platform().node_of(env.pin.cpu()).0);
        for step in 0..nodes {
            let Some(mut taker) = order.taker(env.memory, (own + step) % nodes, env.pin) else {
                continue;
            };
            while let Some((frame, owner)) = taker.next() {
                let space = self.space(owner);
                let chunks = space.chunks.lock(env.pin);
                if !taker.is_still(frame, owner) {
                    continue;
                }
                let found = Pages::of(Chunk::at(env.memory, frame), space.handle());
                drop(chunks);
                if self.clear(env, spaces, &found) {
                    return true;
                }
            }
        }
        false
    }

    /// Space by space, each in its turn, and of each the chunk whose turn it is.
    fn take_back_in_turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        order: &Order,
        spaces: &dyn ClearsEntries,
    ) -> bool {
        let most = (2 * self.live_chunks()).min(TURNS);
        for _ in 0..most {
            let Some(owner) = order.next_space(&self.spaces, env.pin) else {
                return false;
            };
            let space = self.space(owner);
            let mut chunks = space.chunks.lock(env.pin);
            let Some(frame) = chunks.next_turn(env.memory) else {
                continue;
            };
            let found = Pages::of(Chunk::at(env.memory, frame), space.handle());
            drop(chunks);
            if self.clear(env, spaces, &found) {
                return true;
            }
        }
        false
    }
}
