//! The name of a slot in an arena.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

/// A slot of the arena of `T`, or [`Handle::NONE`].
///
/// A handle is a name, not a claim: its slot may have been freed and used anew
/// since. Whoever follows one re-verifies what it finds.
pub struct Handle<T>(u32, PhantomData<fn() -> T>);

impl<T> Handle<T> {
    /// No slot.
    pub const NONE: Handle<T> = Handle(0, PhantomData);

    /// From [`Handle::raw`].
    #[inline]
    pub const fn from_raw(raw: u32) -> Handle<T> {
        Handle(raw, PhantomData)
    }

    /// The handle as a plain number, to be kept in an atomic word; 0 is
    /// [`Handle::NONE`].
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Whether this is [`Handle::NONE`].
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl<T> Clone for Handle<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Default for Handle<T> {
    fn default() -> Self {
        Handle::NONE
    }
}

impl<T> PartialEq for Handle<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Handle<T> {}

impl<T> PartialOrd for Handle<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Handle<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T> Hash for Handle<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            f.write_str("handle:none")
        } else {
            write!(f, "handle:{:#x}", self.0)
        }
    }
}
