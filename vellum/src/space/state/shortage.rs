//! Which errors say that memory is lacking, and whose.

use super::error::{FaultError, FileError, MapError};
use crate::platform::GroupId;

/// What a call lacks that ran out of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::space) enum Lack {
    /// Frames.
    Memory,
    /// Pages of what a group may have.
    OfGroup(GroupId),
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
