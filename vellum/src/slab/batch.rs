//! Vacant slots that a user has set aside.

use core::fmt;
use core::marker::PhantomData;

use super::arena::{Arena, Item};
use super::handle::Handle;
use super::pinned::Stay;
use crate::sync::limbo::Chain;

/// Slots taken from an arena and not used yet, linked through themselves.
///
/// They count as live. What is left is given back with [`Arena::free_batch`];
/// a batch that is dropped leaks its slots.
#[must_use = "the slots of a batch have to be used or given back"]
pub struct Batch<T> {
    pub(super) list: Chain,
    slot: PhantomData<fn() -> T>,
}

impl<T> Batch<T> {
    /// No slots.
    pub const fn new() -> Self {
        Batch {
            list: Chain::EMPTY,
            slot: PhantomData,
        }
    }

    /// Slots in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.count as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.count == 0
    }
}

impl<T: Item> Batch<T> {
    /// Takes a slot out of the batch, or [`Handle::NONE`] if there is none.
    /// `arena` is the one that the batch is of.
    #[inline]
    pub fn pop<S: Stay>(&mut self, arena: &Arena<T, S>) -> Handle<T> {
        self.list.pop(arena).map_or(Handle::NONE, Handle::from_raw)
    }

    /// Adds a slot of `arena`, that the batch is of, which nobody uses any more.
    #[inline]
    pub fn push<S: Stay>(&mut self, arena: &Arena<T, S>, handle: Handle<T>) {
        debug_assert!(!handle.is_none(), "no slot to set aside");
        self.list.push(arena, handle.raw());
    }
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Batch::new()
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch of {} slots", self.list.count)
    }
}
