//! The right to make arenas.

use super::arena::{Arena, Item};
use super::pinned::Stay;
use crate::addr::Pfn;

/// Makes arenas for one [`PhysicalMemory`](crate::frame::PhysicalMemory).
///
/// An arena keeps the frames that it has taken, or gives them back only when memory is short
/// ([`Stay`]). So that what somebody made a lot of does not take memory from all others, each may take a share of the frames
/// ([`Item::SHARE`]), or 128 of them if that is more, and what CPUs may keep at hand. When it
/// has those, no slot can be had before one is given back.
///
/// Slots live in frames, and nothing but a promise keeps an arena from being
/// used after the frames are gone; the promise is made once, here.
pub struct ArenaMaker {
    cpus: usize,
    frames: usize,
    frame_size: usize,
    span: (Pfn, Pfn),
    nodes: usize,
}

impl ArenaMaker {
    /// For a machine of `cpus` CPUs and `frames` frames of `frame_size` bytes.
    ///
    /// # Safety
    /// Every arena made is used with one and the same
    /// [`PhysicalMemory`](crate::frame::PhysicalMemory), of this size, with pins of
    /// that memory, and not after it was dropped. So is what is made of arenas (objects,
    /// reverse-mapping designs), with handles, pages and records that it handed out
    /// itself or that its methods ask for.
    pub const unsafe fn new(cpus: usize, frames: usize, frame_size: usize) -> Self {
        ArenaMaker {
            cpus,
            frames,
            frame_size,
            span: (Pfn(0), Pfn(frames as u32)),
            nodes: 1,
        }
    }

    /// The same for a memory whose frames are numbered from `first` to before `end`, with
    /// holes, and lie in `nodes` nodes. Without it they are numbered from 0, of one node.
    pub const fn spanning(self, (first, end): (Pfn, Pfn), nodes: usize) -> Self {
        ArenaMaker {
            span: (first, end),
            nodes,
            ..self
        }
    }

    /// The first number that a frame can have, and the one after the last.
    pub const fn span(&self) -> (Pfn, Pfn) {
        self.span
    }

    /// The CPUs of the machine.
    pub const fn cpus(&self) -> usize {
        self.cpus
    }

    /// The nodes that frames lie in.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// An arena without slots.
    ///
    /// # Panics
    /// If a `T` does not fit into a frame.
    pub fn make<T: Item, S: Stay>(&self) -> Arena<T, S> {
        // SAFETY: the promise made to `ArenaMaker::new`.
        unsafe { Arena::new(self.cpus, self.frames, self.frame_size) }
    }
}
