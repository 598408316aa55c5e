//! Proof that the lock of a space is held.
//!
//! What changes the regions of a space, or must not see them change, takes a [`LockedSpace`]. It
//! borrows from the guard that holds the lock, so it ends before the lock is free; and only what
//! [holds the space](HoldsSpace) makes one.

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
