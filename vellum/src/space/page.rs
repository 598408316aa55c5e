//! The bytes of one page, for callers outside of the core.

use core::ptr::NonNull;

use crate::addr::Pfn;
use crate::frame::PhysicalMemory;
use crate::platform::Platform;
use crate::sync::Pin;
use crate::sync::bytes;

/// A page that is being read or written through the page cache.
///
/// Tasks that map the page may store to it at the same time, as on any
/// machine: what is read may then be a mix of old and new bytes.
pub struct PageBytes<'a, P: Platform> {
    memory: &'a PhysicalMemory<P>,
    pin: &'a Pin<'a>,
    frame: Pfn,
}

impl<'a, P: Platform> PageBytes<'a, P> {
    pub(super) fn new(memory: &'a PhysicalMemory<P>, pin: &'a Pin<'a>, frame: Pfn) -> Self {
        PageBytes { memory, pin, frame }
    }

    /// The frame that holds the page.
    pub fn frame(&self) -> Pfn {
        self.frame
    }

    /// Bytes in the page.
    pub fn size(&self) -> usize {
        self.memory.frame_size()
    }

    /// Puts `word` into every 8-byte word.
    pub fn fill(&self, word: u64) {
        let words = self.size() / 8;
        self.with(|start| {
            // SAFETY: `with` gives the address of a whole frame, aligned to
            // its size, that is used for nothing else while we are pinned.
            unsafe { bytes::fill(start, words, word) }
        });
    }

    /// Copies `data` to byte `offset`, as much of it as fits.
    pub fn write(&self, offset: usize, data: &[u8]) {
        let count = data.len().min(self.size().saturating_sub(offset));
        self.with(|start| {
            // SAFETY: `offset + count` lies within the frame that `with`
            // gives; `data` is memory of the caller, not of a frame's direct
            // map, and has at least `count` bytes.
            unsafe {
                let from = NonNull::from(data).cast::<u8>();
                bytes::copy(from, start.add(offset.min(self.size())), count);
            }
        });
    }

    /// Copies from byte `offset` to `data`, as much as there is. Returns the
    /// bytes copied.
    pub fn read(&self, offset: usize, data: &mut [u8]) -> usize {
        let count = data.len().min(self.size().saturating_sub(offset));
        self.with(|start| {
            // SAFETY: as in `write`, the other way round.
            unsafe {
                let to = NonNull::from(data).cast::<u8>();
                bytes::copy(start.add(offset.min(self.size())), to, count);
            }
        });
        count
    }

    fn with<T>(&self, f: impl FnOnce(NonNull<u8>) -> T) -> T {
        self.memory.with_bytes(self.pin, self.frame, f)
    }
}
