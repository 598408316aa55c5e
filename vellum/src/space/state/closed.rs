//! Proof that nobody is inside a region.
//!
//! Faults enter a region ([`crate::sync::Announcements`]) and find it as it is. Who changes what they
//! see closes its gate, waits until none is inside, and has a [`Closed`] then; the gate opens
//! when what made the proof is dropped. `locks/closed.rs` makes them.

use core::ops::Deref;

use super::region::{Region, Traits};
use crate::addr::Prot;
use crate::rmap::ReverseMap;

/// A region whose gate is closed. Faults may still be inside.
#[must_use = "the gate opens when this is dropped"]
pub(in crate::space) struct Closing<'r, R: ReverseMap> {
    region: &'r Region<R>,
}

impl<'r, R: ReverseMap> Closing<'r, R> {
    /// Closes the gate. Nobody else does so meanwhile.
    #[inline]
    pub(in crate::space) fn new(region: &'r Region<R>) -> Self {
        region.gate.close();
        Closing { region }
    }

    /// The region.
    #[inline]
    pub(in crate::space) fn region(&self) -> &'r Region<R> {
        self.region
    }
}

impl<R: ReverseMap> Drop for Closing<'_, R> {
    #[inline]
    fn drop(&mut self) {
        self.region.gate.open();
    }
}

/// A closed region that no fault is inside of.
#[must_use = "the gate opens when this is dropped"]
pub(in crate::space) struct ClosedRegion<'r, R: ReverseMap> {
    closing: Closing<'r, R>,
}

impl<'r, R: ReverseMap> ClosedRegion<'r, R> {
    /// Of a region that has been waited for.
    #[inline]
    pub(in crate::space) fn waited_for(closing: Closing<'r, R>) -> Self {
        ClosedRegion { closing }
    }

    /// The proof.
    #[inline]
    pub(in crate::space) fn closed(&self) -> Closed<'_, R> {
        Closed {
            region: self.closing.region,
        }
    }

    /// The region has left the space, so that its gate stays closed.
    #[inline]
    pub(in crate::space) fn left(self) {
        core::mem::forget(self);
    }
}

/// A region that no fault is inside of, and that is the holder's to change.
pub(in crate::space) struct Closed<'r, R: ReverseMap> {
    region: &'r Region<R>,
}

impl<R: ReverseMap> Clone for Closed<'_, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: ReverseMap> Copy for Closed<'_, R> {}

impl<R: ReverseMap> Deref for Closed<'_, R> {
    type Target = Region<R>;
    #[inline]
    fn deref(&self) -> &Region<R> {
        self.region
    }
}

impl<'r, R: ReverseMap> Closed<'r, R> {
    /// Of one of several regions that were closed and waited for together.
    #[inline]
    pub(in crate::space) fn one_of(region: &'r Region<R>) -> Self {
        Closed { region }
    }

    /// Gives the region other rights and traits.
    #[inline]
    pub(in crate::space) fn set_word(self, prot: Prot, traits: Traits) {
        self.region.set_word(prot, traits);
    }
}
