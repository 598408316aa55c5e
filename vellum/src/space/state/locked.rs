//! Proof that the lock of a space is held.
//!
//! What changes the regions of a space, or must not see them change, takes a [`LockedSpace`]. It
//! borrows from the guard that holds the lock, so it ends before the lock is free; and only what
//! [holds the space](HoldsSpace) makes one. What concerns a space as a whole takes a [`WholeSpace`],
//! and what its one tree of regions is for, an [`UndividedSpace`].

use core::ops::Deref;

use super::spaces::Live;
use crate::rmap::ReverseMap;

/// What keeps others from changing the regions of a space for as long as it exists: the guard of
/// the lock (`locks/lock.rs`), and a space that nobody else can name yet (`life/create.rs`).
pub(in crate::space) trait HoldsSpace<'a, R: ReverseMap> {
    /// The space.
    fn live(&self) -> Live<'a, R>;

    /// The proof.
    #[inline]
    fn locked<'l>(&'l self) -> LockedSpace<'l, R>
    where
        'a: 'l,
        R: 'l,
    {
        LockedSpace { live: self.live() }
    }
}

/// A space whose lock the holder of this has: the space's own with those of all tracts, or that
/// of one tract, for what lies there.
pub(in crate::space) struct LockedSpace<'l, R: ReverseMap> {
    live: Live<'l, R>,
}

impl<R: ReverseMap> Clone for LockedSpace<'_, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: ReverseMap> Copy for LockedSpace<'_, R> {}

impl<'l, R: ReverseMap> Deref for LockedSpace<'l, R> {
    type Target = Live<'l, R>;
    #[inline]
    fn deref(&self) -> &Live<'l, R> {
        &self.live
    }
}

/// A space whose lock the holder of this has, with those of all its tracts.
pub(in crate::space) struct WholeSpace<'l, R: ReverseMap> {
    locked: LockedSpace<'l, R>,
}

/// A [`WholeSpace`] that is in no tracts: all its regions are in its own tree.
pub(in crate::space) struct UndividedSpace<'l, R: ReverseMap> {
    locked: LockedSpace<'l, R>,
}

impl<'l, R: ReverseMap> WholeSpace<'l, R> {
    /// The same, for who has the locks of all tracts, or has a space that nobody can name.
    #[inline]
    pub(in crate::space) fn with_all_locks(locked: LockedSpace<'l, R>) -> Self {
        debug_assert!(
            !locked.is_in_tracts(),
            "a tract of a whole space is not locked"
        );
        WholeSpace { locked }
    }

    /// The same, if there are no tracts.
    #[inline]
    pub(in crate::space) fn undivided(self) -> Option<UndividedSpace<'l, R>> {
        (!self.is_divided()).then(|| self.without_tracts())
    }

    /// The same, for who has ended the tracts.
    #[inline]
    pub(in crate::space) fn without_tracts(self) -> UndividedSpace<'l, R> {
        debug_assert!(!self.is_divided(), "an undivided space has tracts");
        UndividedSpace {
            locked: self.locked,
        }
    }
}

macro_rules! more_than_locked {
    ($($space:ident)*) => { $(
        impl<R: ReverseMap> Clone for $space<'_, R> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<R: ReverseMap> Copy for $space<'_, R> {}

        impl<'l, R: ReverseMap> Deref for $space<'l, R> {
            type Target = LockedSpace<'l, R>;
            #[inline]
            fn deref(&self) -> &LockedSpace<'l, R> {
                &self.locked
            }
        }
    )* };
}

more_than_locked!(WholeSpace UndividedSpace);
