//! Proof that a call has no pin of its own, and so may sleep.
//!
//! What may sleep takes an [`Unpinned`]. A call of the embedder's makes one at its door, hands it
//! down, and pins its CPU by borrowing from it ([`SleepHost::pin_by`]): as long as the pin lives,
//! nothing that may sleep can be called. Functions that take a [`Pin`], and those that pin for
//! themselves and end the pin before they return, have no such proof, and cannot sleep.
//!
//! It says nothing of a pin that the embedder holds beside the call. That is counted on its CPU,
//! and asked for where a call would sleep ([`Pin::assert_ends`], `unless_ends`).

use core::marker::PhantomData;

use super::Pin;
use crate::platform::{Platform, Sleep};

/// The proof: of no size, and the thread's own.
///
/// There is one for a call, and each that is lent of it ([`Unpinned::reborrow`]) takes it away for
/// as long as it lives. Whoever pins by it holds it as long as the pin.
pub struct Unpinned<'a> {
    lent: PhantomData<&'a mut ()>,
    not_send: PhantomData<*mut ()>,
}

impl Unpinned<'_> {
    /// The proof of a call that begins: what is made of it is worth what those are who make one.
    #[inline]
    pub(crate) const fn at_door() -> Self {
        Unpinned {
            lent: PhantomData,
            not_send: PhantomData,
        }
    }

    /// The same for somebody who is called.
    #[inline]
    pub(crate) const fn reborrow(&mut self) -> Unpinned<'_> {
        Unpinned::at_door()
    }

    /// Sleeps until the caller's task is woken, or earlier.
    pub(super) fn park<P: Sleep>(self, platform: &P) {
        platform.park();
    }
}

/// A manager, for those who sleep in its calls: what pins them to their CPU, and the platform that
/// they sleep by. Implemented once, by the manager's memory.
pub trait SleepHost {
    /// The platform's type.
    type Platform: Platform;

    /// The platform.
    fn platform(&self) -> &Self::Platform;

    /// Binds the caller to its CPU.
    fn pin(&self) -> Pin<'_>;

    /// The same for a caller who may sleep, and cannot as long as the pin lives.
    #[inline]
    fn pin_by<'a>(&'a self, _unpinned: &'a Unpinned<'_>) -> Pin<'a> {
        self.pin()
    }

    /// The same for a caller who does not sleep any more.
    #[inline]
    fn pin_instead_of<'a>(&'a self, _unpinned: Unpinned<'a>) -> Pin<'a> {
        self.pin()
    }
}

/// A call that is pinned at times and sleeps at others.
pub struct MaybePinned<'a> {
    pin: Option<Pin<'a>>,
    unpinned: Unpinned<'a>,
}

impl<'a> MaybePinned<'a> {
    /// A call that is not pinned yet.
    #[inline]
    pub(crate) fn not_yet(unpinned: Unpinned<'a>) -> Self {
        MaybePinned {
            pin: None,
            unpinned,
        }
    }

    /// Its pin, which begins if there is none.
    #[inline]
    pub(crate) fn pinned(&mut self, host: &'a impl SleepHost) -> &Pin<'a> {
        self.pin.get_or_insert_with(|| host.pin())
    }

    /// Keeps a pin that was taken together with something else, which is returned.
    #[inline]
    pub(crate) fn pinned_with<T>(&mut self, (pin, taken): (Pin<'a>, T)) -> T {
        self.pin = Some(pin);
        taken
    }

    /// Ends its pin, if there is one: it may sleep.
    #[inline]
    pub(crate) fn unpinned(&mut self) -> Unpinned<'_> {
        self.pin = None;
        self.unpinned.reborrow()
    }

    /// Its pin, as [`MaybePinned::pinned`], for good.
    #[inline]
    pub(crate) fn into_pin(self, host: &'a impl SleepHost) -> Pin<'a> {
        self.pin.unwrap_or_else(|| host.pin())
    }
}
