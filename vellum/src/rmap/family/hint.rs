//! One entry remembered in the frame's word (`hint=on`).
//!
//! A hint is exact: the entry it names maps the frame. Only the holder of
//! the lock of an entry's table stores that entry's name, while the entry maps the
//! frame, and clearing the entry takes the name away under the same lock. So
//! plain loads and stores are enough: whoever clears entry `e` finds the name
//! of `e`, or one that was stored later than `e`'s, which never comes back.
//! Two CPUs that store at a time leave one name of the two; one that takes its
//! own away may take another's with it. Then there is no hint, which is always
//! allowed.
//!
//! | bits | |
//! |---|---|
//! | 0..48 | the entry |
//! | 48 | there is one |
//! | 49..64 | stamp of a private page: forks its owner had made before it |

use crate::addr::Vpn;
use crate::frame::Frame;
use crate::sync::atomic::Ordering;
use crate::table::PteRef;

const ENTRY: u64 = (1 << PteRef::BITS) - 1;
const IS_SET: u64 = 1 << PteRef::BITS;
const HINT: u64 = IS_SET | ENTRY;
/// Where the stamp begins.
pub const STAMP_SHIFT: u32 = 49;
/// The highest stamp; forks beyond it are not told apart.
pub const LAST_STAMP: u32 = (1 << (64 - STAMP_SHIFT)) - 1;

/// Whether hints are kept, as a mask.
#[derive(Clone, Copy, Debug)]
pub struct Hints(u64);

impl Hints {
    /// Kept or not.
    pub const fn new(kept: bool) -> Self {
        Hints(if kept { HINT } else { 0 })
    }

    /// Whether there are any.
    #[inline]
    pub const fn are_kept(self) -> bool {
        self.0 != 0
    }

    /// The bits that stand for `pte`.
    #[inline]
    pub fn bits(self, pte: PteRef) -> u64 {
        (IS_SET | pte.pack()) & self.0
    }

    /// An entry was made, beside others perhaps. Its table is locked.
    #[inline]
    pub fn remember(self, frame: &Frame, pte: PteRef) {
        let word = frame.rmap().load(Ordering::Relaxed);
        if word & HINT == 0 {
            frame.rmap().store(word | self.bits(pte), Ordering::Release);
        }
    }

    /// An entry was cleared. Its table is still locked.
    #[inline]
    pub fn forget(self, frame: &Frame, pte: PteRef) {
        let word = frame.rmap().load(Ordering::Relaxed);
        if word & HINT == IS_SET | pte.pack() {
            frame.rmap().store(word & !HINT, Ordering::Relaxed);
        }
    }

    /// An entry took the place of another. The tables of both are locked.
    #[inline]
    pub fn rename(self, frame: &Frame, from: PteRef, to: PteRef) {
        let word = frame.rmap().load(Ordering::Relaxed);
        let renamed = self.renamed(word, from, to);
        if renamed != word {
            frame.rmap().store(renamed, Ordering::Release);
        }
    }

    /// A frame's word with one entry in the place of another, if it names that.
    #[inline]
    pub fn renamed(self, word: u64, from: PteRef, to: PteRef) -> u64 {
        match word & HINT == IS_SET | from.pack() {
            true => word & !HINT | self.bits(to),
            false => word,
        }
    }
}

/// The entry that a frame's word names.
#[inline]
pub fn entry_of(frame: &Frame) -> Option<PteRef> {
    let word = frame.rmap().load(Ordering::Acquire);
    (word & IS_SET != 0).then(|| PteRef::unpack(word & ENTRY))
}

/// The stamp in a frame's word.
#[inline]
fn stamp_of(frame: &Frame) -> u32 {
    (frame.rmap().load(Ordering::Acquire) >> STAMP_SHIFT) as u32
}

/// What names the entries of a private page; all its mappers agree on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// Node of the space that made it.
    pub owner: u32,
    /// Where all show it.
    pub page: Vpn,
    /// Forks the owner had made before.
    pub stamp: u32,
}

impl Name {
    /// What the frame's record says.
    pub fn of(frame: &Frame) -> Name {
        Name {
            // First, because it is stored last.
            stamp: stamp_of(frame),
            owner: frame.owner(),
            page: Vpn(frame.index()),
        }
    }
}
