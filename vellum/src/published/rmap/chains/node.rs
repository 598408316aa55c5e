//! The nodes of chains, and the word of a frame that leads to them.

use crate::frame::{Relief, Site};
use crate::slab::{Handle, Item};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::table::PteRef;

/// Entries in a node: what a 64-byte line holds beside the link.
pub const ENTRIES_PER_NODE: usize = 7;

pub(super) const LOCK_BIT: u32 = 63;
const DIRECT: u64 = 1 << 60;
const CHAIN: u64 = 1 << 61;
const KIND: u64 = DIRECT | CHAIN;
const PTE_MASK: u64 = (1 << PteRef::BITS) - 1;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u64 = (1 << 28) - 1;

/// A node of a chain: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ChainNode {
    /// Handle of the next node, or 0.
    next: AtomicU32,
    /// Index of the first used entry.
    first: AtomicU32,
    entries: [AtomicU64; ENTRIES_PER_NODE],
}

impl Item for ChainNode {
    const SITE: Site = Site::ChainNode;
    const SHARE: usize = 8;
    const RELIEF: Relief = Relief::Memory;

    fn vacant() -> Self {
        ChainNode {
            next: AtomicU32::new(0),
            first: AtomicU32::new(ENTRIES_PER_NODE as u32),
            entries: [const { AtomicU64::new(0) }; ENTRIES_PER_NODE],
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.next
    }
}

impl ChainNode {
    #[inline]
    pub(super) fn first(&self) -> usize {
        self.first.load(Ordering::Relaxed) as usize
    }

    #[inline]
    pub(super) fn set_first(&self, first: usize) {
        self.first.store(first as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn entry(&self, index: usize) -> PteRef {
        PteRef::unpack(self.entries[index].load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set_entry(&self, index: usize, pte: PteRef) {
        self.entries[index].store(pte.pack(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn next(&self) -> Handle<ChainNode> {
        Handle::from_raw(self.next.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set_next(&self, next: Handle<ChainNode>) {
        self.next.store(next.raw(), Ordering::Relaxed);
    }
}

/// What a frame's word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Unmapped,
    Direct(PteRef),
    Chain(Handle<ChainNode>),
}

#[inline]
pub(super) fn decode(word: u64) -> State {
    match word & KIND {
        DIRECT => State::Direct(PteRef::unpack(word & PTE_MASK)),
        CHAIN => State::Chain(Handle::from_raw(word as u32)),
        _ => State::Unmapped,
    }
}

#[inline]
pub(super) fn direct(pte: PteRef) -> u64 {
    DIRECT | pte.pack()
}

/// A chain word with the generation after that of `old`.
#[inline]
pub(super) fn chain(head: Handle<ChainNode>, old: u64) -> u64 {
    let generation = if old & CHAIN != 0 {
        (old >> GENERATION_SHIFT) + 1
    } else {
        0
    };
    CHAIN | (generation & GENERATION_MASK) << GENERATION_SHIFT | u64::from(head.raw())
}
