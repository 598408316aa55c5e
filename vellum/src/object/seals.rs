//! Seals of shared memory (`F_ADD_SEALS`): promises to those who get it from somebody whom they do not
//! trust.
//!
//! Seals and mappings race: a mapping that could be stored to must not come to memory that is being
//! sealed. So one word of the object has its seals and a count of such mappings that are being made.
//! Where nothing can be sealed any more, mapping reads the word and does not write it.

use core::ops::BitOr;

use super::Object;
use crate::sync::atomic::{AtomicU32, Ordering};

/// What is promised of shared memory from now on ([`File::seal`](crate::space::File::seal)). The
/// promises and their bits are those of Linux's `memfd_create`; `|` makes one of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seals(pub u32);

impl BitOr for Seals {
    type Output = Seals;
    fn bitor(self, other: Seals) -> Seals {
        Seals(self.0 | other.0)
    }
}

impl Seals {
    /// Nothing.
    pub const NONE: Seals = Seals(0);
    /// No more seals (`F_SEAL_SEAL`).
    pub const SEAL: Seals = Seals(1);
    /// It does not get shorter.
    pub const SHRINK: Seals = Seals(2);
    /// It does not get longer.
    pub const GROW: Seals = Seals(4);
    /// Its content stays: it is not written, and nobody has it mapped for stores.
    pub const WRITE: Seals = Seals(8);
    /// The same, but that those who have it mapped may go on to store to it.
    pub const FUTURE_WRITE: Seals = Seals(16);
    /// Whether it may be executed stays. The core keeps it for the embedder, who has the modes of
    /// files.
    pub const EXEC: Seals = Seals(32);

    const ALL: u32 = 63;
    const NO_WRITES: u32 = Seals::WRITE.0 | Seals::FUTURE_WRITE.0;

    /// Whether all of `other` are there.
    pub(crate) const fn has(self, other: Seals) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether each bit is one.
    pub(crate) const fn are_known(self) -> bool {
        self.0 & !Seals::ALL == 0
    }

    /// Whether nobody may begin to write.
    #[inline]
    pub(crate) fn refuse_writes(self) -> bool {
        self.0 & Seals::NO_WRITES != 0
    }
}

/// One mapping that is being made.
const MAPPING: u32 = 1 << 8;

/// Seals, and how many mappings are being made that they would concern.
#[derive(Debug)]
pub(super) struct SealWord(AtomicU32);

impl SealWord {
    pub(super) const fn new() -> SealWord {
        SealWord(AtomicU32::new(Seals::SEAL.0))
    }

    pub(super) fn begin(&self, seals: Seals) {
        self.0.store(seals.0, Ordering::Relaxed);
    }
}

impl<S> Object<S> {
    /// What is promised from the beginning on.
    pub(crate) fn begin_seals(&self, seals: Seals) {
        self.seals.begin(seals);
    }

    /// What is promised.
    #[inline]
    pub(crate) fn seals(&self) -> Seals {
        Seals(self.seals.0.load(Ordering::Acquire) & Seals::ALL)
    }

    /// Somebody makes a mapping that stores might reach. Returns the seals that it has to respect,
    /// and whether it is counted: then [`Object::end_mapping`] follows when it is there.
    pub(crate) fn begin_mapping(&self) -> (Seals, bool) {
        let seals = self.seals();
        if seals.has(Seals::SEAL) {
            return (seals, false);
        }
        let word = self.seals.0.fetch_add(MAPPING, Ordering::AcqRel);
        (Seals(word & Seals::ALL), true)
    }

    /// The mapping is there, or will not be.
    pub(crate) fn end_mapping(&self) {
        self.seals.0.fetch_sub(MAPPING, Ordering::AcqRel);
    }

    /// Adds seals, unless a mapping is being made and they are about stores by those who have it
    /// mapped. Returns whether it has done so.
    pub(crate) fn add_seals(&self, seals: Seals) -> bool {
        let word = &self.seals.0;
        let mut found = word.load(Ordering::Relaxed);
        while !(seals.has(Seals::WRITE) && found >= MAPPING) {
            let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            match word.compare_exchange(found, found | seals.0, order, relaxed) {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
        false
    }

    /// Takes seals back that were added by who holds all of the object.
    pub(crate) fn take_back_seals(&self, seals: Seals) {
        self.seals.0.fetch_and(!seals.0, Ordering::AcqRel);
    }
}
