//! Frames in the hands of an embedder: blocks that are given back once, by whoever
//! owns them, and the unsafe doors for those who keep frame numbers instead.

use core::fmt;
use core::mem::ManuallyDrop;

use super::memory::PhysicalMemory;
use super::record::{Frame, Kind};
use super::request::{OutOfMemory, Request};
use crate::addr::Pfn;
use crate::platform::Machine;
use crate::sync::{Pin, Turn, bytes};

/// Owner of a frame of kind `Allocated` that an embedder holds in a block: no handle
/// is as large.
pub(super) const EMBEDDER: u32 = u32::MAX;

/// A block of frames that its holder is the only user of, as a `Box` is of its
/// memory. It goes back when it is dropped.
pub struct OwnedBlock<'m, P: Machine> {
    memory: &'m PhysicalMemory<P>,
    first: Pfn,
    order: u32,
}

impl<'m, P: Machine> OwnedBlock<'m, P> {
    /// The block that [`OwnedBlock::into_raw`] gave up, or that
    /// [`PhysicalMemory::alloc`] handed out.
    ///
    /// # Safety
    /// The block is of this memory and this order, its first frame still has the one
    /// reference that it was handed out with, and nobody uses it or gives it back but
    /// through the result.
    #[inline]
    pub unsafe fn from_raw(memory: &'m PhysicalMemory<P>, first: Pfn, order: u32) -> Self {
        // Stores alone do not make the processor fetch ahead, and the next thing to
        // happen to the block is mostly that it is freed.
        let frame = memory.frame(first);
        bytes::prefetch(frame);
        frame.set_owner(EMBEDDER);
        OwnedBlock {
            memory,
            first,
            order,
        }
    }

    /// The number of the block's first frame. It stays taken until
    /// [`OwnedBlock::from_raw`].
    #[inline]
    pub fn into_raw(self) -> Pfn {
        ManuallyDrop::new(self).first
    }

    /// The block's first frame.
    #[inline]
    pub fn first(&self) -> Pfn {
        self.first
    }

    /// Log2 of the block's frames.
    #[inline]
    pub fn order(&self) -> u32 {
        self.order
    }

    /// Bytes in the block.
    #[inline]
    pub fn size(&self) -> usize {
        self.memory.frame_size() << self.order
    }

    /// Copies `data` to byte `offset`, as much of it as fits. Returns the bytes
    /// copied.
    pub fn write(&self, pin: &Pin<'_>, offset: usize, data: &[u8]) -> usize {
        let count = data.len().min(self.size().saturating_sub(offset));
        let mut done = 0;
        while done < count {
            let (frame, within) = self.place(offset + done);
            done += self
                .memory
                .with_bytes(pin, frame, |frame| frame.write(within, &data[done..count]));
        }
        count
    }

    /// Copies from byte `offset` to `data`, as much as there is. Returns the bytes
    /// copied.
    pub fn read(&self, pin: &Pin<'_>, offset: usize, data: &mut [u8]) -> usize {
        let count = data.len().min(self.size().saturating_sub(offset));
        let mut done = 0;
        while done < count {
            let (frame, within) = self.place(offset + done);
            done += self.memory.with_bytes(pin, frame, |frame| {
                frame.read(within, &mut data[done..count])
            });
        }
        count
    }

    /// The frame of a byte of the block, and the byte's place in it.
    fn place(&self, offset: usize) -> (Pfn, usize) {
        let frame = self
            .first
            .offset((offset >> self.memory.frame_shift) as u32);
        (frame, offset & (self.memory.frame_size() - 1))
    }

    /// Keeps the block's frames for good: they leave the manager's memory, and may be mapped by
    /// their numbers ([`MapRequest::frames`](crate::space::MapRequest::frames)), as what the kernel
    /// shows to programs. Returns the first.
    pub fn reserve(self) -> Pfn {
        let block = ManuallyDrop::new(self);
        block.memory.split(block.first, block.order);
        for step in 0..1 << block.order {
            let frame = block.memory.frame(block.first.offset(step));
            frame.set_owner(EMBEDDER);
            frame.set_kind(Kind::Reserved);
        }
        block.first
    }

    /// The frames of the block, ascending, each to be given back on its own: for
    /// interfaces that take back parts of what they handed out.
    pub fn into_frames(self) -> OwnedFrames<'m, P> {
        let block = ManuallyDrop::new(self);
        block.memory.split(block.first, block.order);
        OwnedFrames {
            memory: block.memory,
            next: block.first,
            left: 1 << block.order,
        }
    }

    /// Gives the block back, as dropping it does, for a caller that is pinned.
    #[inline]
    pub fn free(self, pin: &Pin<'_>) {
        let block = ManuallyDrop::new(self);
        block.give_back(pin);
    }

    #[inline]
    fn give_back(&self, pin: &Pin<'_>) {
        // Nobody else has a reference: there is no way to one.
        let frame = self.memory.frame(self.first);
        frame.init_counts(0, 0);
        self.memory.free_with(pin, frame, self.first, self.order);
    }
}

impl<P: Machine> Drop for OwnedBlock<'_, P> {
    fn drop(&mut self) {
        self.give_back(&self.memory.pin());
    }
}

/// What [`OwnedBlock::into_frames`] returns. Frames that are not taken from it go back
/// with it.
pub struct OwnedFrames<'m, P: Machine> {
    memory: &'m PhysicalMemory<P>,
    next: Pfn,
    left: u32,
}

impl<'m, P: Machine> Iterator for OwnedFrames<'m, P> {
    type Item = OwnedBlock<'m, P>;

    fn next(&mut self) -> Option<OwnedBlock<'m, P>> {
        self.left = self.left.checked_sub(1)?;
        let first = self.next;
        self.next = first.offset(1);
        // The record was made anew by the split.
        self.memory.frame(first).set_owner(EMBEDDER);
        Some(OwnedBlock {
            memory: self.memory,
            first,
            order: 0,
        })
    }
}

impl<P: Machine> Drop for OwnedFrames<'_, P> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<P: Machine> fmt::Debug for OwnedBlock<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames from {:?}", 1u64 << self.order, self.first)
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Whether a frame of the memory map is one that [`OwnedBlock::reserve`] kept.
    pub(crate) fn is_reserved(&self, pfn: Pfn) -> bool {
        let frame = self.frame(pfn);
        frame.kind() == Kind::Reserved && frame.owner() == EMBEDDER
    }

    /// [`PhysicalMemory::alloc`] for a caller who owns the block and nothing else
    /// does.
    ///
    /// # Errors
    /// [`OutOfMemory`], as there.
    #[inline]
    pub fn alloc_owned(
        &self,
        pin: &Pin<'_>,
        request: Request,
    ) -> Result<OwnedBlock<'_, P>, OutOfMemory> {
        let first = self.alloc_for(pin, request, EMBEDDER)?;
        Ok(OwnedBlock {
            memory: self,
            first,
            order: request.order,
        })
    }

    /// Takes a reference to a block, named by its first frame. False if it has none
    /// or too many.
    ///
    /// # Safety
    /// Whoever frees the block counts its references: it is a page that is mapped or
    /// in a page cache, or one whose references are dropped by
    /// [`PhysicalMemory::put_raw`].
    #[inline]
    pub unsafe fn get_raw(&self, pin: &Pin<'_>, pfn: Pfn) -> bool {
        self.frame(pfn).try_get(Turn::at(pin, pfn.0))
    }

    /// Drops a reference to a block of `1 << order` frames, named by its first frame,
    /// and frees it if that was the last.
    ///
    /// # Safety
    /// The caller holds a reference to the block, which is of this order, and gives it
    /// up. If it is the last, nobody uses the block any more.
    #[inline]
    pub unsafe fn put_raw(&self, pin: &Pin<'_>, pfn: Pfn, order: u32) {
        self.put_order(pin, pfn, order);
    }

    /// The record of a frame, with all that the core does to one, for benchmarks and
    /// tests that play the core's part. [`PhysicalMemory::view`] is for the others.
    ///
    /// # Safety
    /// What the caller changes is the record of a frame that it owns, and the caller
    /// keeps to what the methods ask for.
    #[inline]
    pub unsafe fn record(&self, pfn: Pfn) -> &Frame {
        self.frame(pfn)
    }
}
