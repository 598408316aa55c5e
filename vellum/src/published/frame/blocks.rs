//! The kind of each page block: a few bits for each 512 frames, read whenever a frame is
//! freed.
//!
//! Until 2014 Linux read and wrote them bit by bit (`blockflags=bits`); since then the
//! word that has them is read once, and written by an atomic exchange.

use alloc::boxed::Box;

use super::list::Mobility;
use crate::addr::Pfn;
use crate::design::BlockFlags;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Log2 of the frames in a page block.
pub(super) const BLOCK_ORDER: u32 = 9;
/// Bits of a block: three for its kind, and one that compaction has in Linux.
const BITS: u32 = 4;
/// Those for its kind.
const KIND_BITS: u32 = 3;

/// The bits of one zone's blocks.
pub(super) struct BlockKinds {
    first: u32,
    words: Box<[AtomicU64]>,
    access: BlockFlags,
}

impl BlockKinds {
    /// For the frames from `first` to before `end`, of which all may be moved.
    pub(super) fn new(first: Pfn, end: Pfn, access: BlockFlags) -> BlockKinds {
        let first = first.0 >> BLOCK_ORDER;
        let blocks = (end.0 >> BLOCK_ORDER) - first + 1;
        let words = blocks.div_ceil(u64::BITS / BITS);
        let movable = u64::MAX / ((1 << BITS) - 1) * Mobility::Movable as u64;
        BlockKinds {
            first,
            words: (0..words).map(|_| AtomicU64::new(movable)).collect(),
            access,
        }
    }

    /// The word that has the bits of a frame's block, and where they begin in it.
    #[inline]
    fn place(&self, pfn: Pfn) -> (&AtomicU64, u32) {
        let bit = ((pfn.0 >> BLOCK_ORDER) - self.first) * BITS;
        let word = &self.words[(bit / u64::BITS) as usize];
        (word, bit % u64::BITS)
    }

    /// The kind of a frame's block.
    #[inline]
    pub(super) fn get(&self, pfn: Pfn) -> Mobility {
        let bits = match self.access {
            BlockFlags::Word => {
                let (word, shift) = self.place(pfn);
                (word.load(Ordering::Relaxed) >> shift) as u32 & ((1 << KIND_BITS) - 1)
            }
            BlockFlags::Bits => self.get_by_bits(pfn),
        };
        Mobility::from_bits(bits)
    }

    fn get_by_bits(&self, pfn: Pfn) -> u32 {
        let mut bits = 0;
        for bit in 0..KIND_BITS {
            let (word, shift) = self.place(pfn);
            if word.load(Ordering::Relaxed) >> (shift + bit) & 1 != 0 {
                bits |= 1 << bit;
            }
        }
        bits
    }

    /// Sets the kind of a frame's block, under the zone's lock.
    pub(super) fn set(&self, pfn: Pfn, kind: Mobility) {
        let (word, shift) = self.place(pfn);
        let kind = kind as u64;
        if self.access == BlockFlags::Bits {
            for bit in 0..KIND_BITS {
                let mask = 1 << (shift + bit);
                let old = word.load(Ordering::Relaxed);
                let new = if kind >> bit & 1 != 0 {
                    old | mask
                } else {
                    old & !mask
                };
                word.store(new, Ordering::Relaxed);
            }
            return;
        }
        let mask = ((1 << KIND_BITS) - 1) << shift;
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) = word.compare_exchange(
            old,
            old & !mask | kind << shift,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            old = now;
        }
    }
}
