//! Which errors say that memory is lacking, and whose; and calls that are made again after there
//! is room. How room is made is decided further up (`leaving/pressure.rs`).

use super::common::PageCache;
use super::error::{FaultError, FileError, MapError};
use super::manager::Vm;
use crate::frame::NodeSet;
use crate::platform::{GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::sync::Unpinned;
use crate::table::Format;

/// What a call lacks that ran out of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::space) enum Lack {
    /// Frames.
    Memory,
    /// Pages of what a group may have.
    OfGroup(GroupId),
    /// Frames of the nodes that the call may use.
    OnNodes(NodeSet),
}

/// An error of a call that may be for want of memory.
pub(in crate::space) trait Shortage {
    /// What is lacking, if it is.
    fn lack(&self) -> Option<Lack>;

    /// Whether it is.
    #[inline]
    fn is_shortage(&self) -> bool {
        self.lack().is_some()
    }
}

macro_rules! shortage {
    ($($error:ident)*) => {
        $(impl Shortage for $error {
            #[inline]
            fn lack(&self) -> Option<Lack> {
                match *self {
                    $error::OutOfMemory => Some(Lack::Memory),
                    $error::GroupLimit(group) => Some(Lack::OfGroup(group)),
                    _ => None,
                }
            }
        })*
    };
}
shortage! { FaultError FileError MapError }

/// What a call holds and keeps while room is made for it, and lends meanwhile.
pub(in crate::space) trait Lends {
    /// Does `work`, during which reclaim may have pages leave memory that are held.
    fn lend(&self, unpinned: Unpinned<'_>, work: &mut dyn FnMut(Unpinned<'_>) -> bool) -> bool;
}

/// Makes room for a call that has run out of memory.
pub(in crate::space) trait MakesRoom {
    /// Makes room until `call` lacks nothing any more, or there is no way left; under a pin of the
    /// caller's there is none. `call` says what it lacks. (What calls return is of no interest
    /// here, so that this is compiled once.)
    fn make_room_for(
        &self,
        unpinned: Unpinned<'_>,
        lack: Option<Lack>,
        held: Option<&dyn Lends>,
        call: &mut dyn FnMut(Unpinned<'_>) -> Option<Lack>,
    );
}

/// Makes `call` again after room was made, since it failed with `error`.
#[cold]
#[inline(never)]
fn with_room_made<T, E: Shortage>(
    maker: &dyn MakesRoom,
    unpinned: Unpinned<'_>,
    error: E,
    held: Option<&dyn Lends>,
    mut call: impl FnMut(Unpinned<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let lack = error.lack();
    let mut result = Err(error);
    maker.make_room_for(unpinned, lack, held, &mut |unpinned| {
        result = call(unpinned);
        result.as_ref().err().and_then(E::lack)
    });
    result
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Does `call`, and does it again after room was made if it ran out of memory. The caller
    /// holds no lock but ranges of objects; a call that fails leaves nothing behind.
    #[inline(always)]
    pub(in crate::space) fn with_room<T, E: Shortage>(
        &self,
        mut unpinned: Unpinned<'_>,
        mut call: impl FnMut(Unpinned<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        match call(unpinned.reborrow()) {
            Err(error) if error.is_shortage() => with_room_made(self, unpinned, error, None, call),
            result => result,
        }
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// [`Vm::with_room`].
    #[inline(always)]
    pub(in crate::space) fn with_room<T, E: Shortage>(
        &self,
        mut unpinned: Unpinned<'_>,
        mut call: impl FnMut(Unpinned<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        match call(unpinned.reborrow()) {
            Err(error) if error.is_shortage() => self.with_room_made(unpinned, error, None, call),
            result => result,
        }
    }

    /// [`PageCache::with_room`] of a call that holds a range of an object and keeps it: while room
    /// is made, reclaim may take pages there.
    #[inline(always)]
    pub(in crate::space) fn with_room_beside<T, E: Shortage>(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &dyn Lends,
        mut call: impl FnMut(Unpinned<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        match call(unpinned.reborrow()) {
            Err(error) if error.is_shortage() => {
                self.with_room_made(unpinned, error, Some(held), call)
            }
            result => result,
        }
    }

    /// The rest of [`PageCache::with_room_beside`] after a call that failed with `error`.
    pub(in crate::space) fn with_room_made<T, E: Shortage>(
        &self,
        unpinned: Unpinned<'_>,
        error: E,
        held: Option<&dyn Lends>,
        call: impl FnMut(Unpinned<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        with_room_made(self.mappings, unpinned, error, held, call)
    }
}
