//! The bytes of one page, for callers outside of the core.

use crate::addr::Pfn;
use crate::frame::PhysicalMemory;
use crate::object::Object;
use crate::platform::Platform;
use crate::sync::Pin;
use crate::sync::bytes::FrameBytes;

/// A page of an object that was found where its record says it is.
pub(in crate::space) struct FoundPage<'a> {
    pub(in crate::space) page: Pfn,
    pub(in crate::space) object: &'a Object,
    pub(in crate::space) handle: u32,
    pub(in crate::space) index: u64,
}

/// A page that is being read or written through the page cache.
///
/// Tasks that map the page may store to it at the same time, as on any
/// machine: what is read may then be a mix of old and new words (see
/// [`FrameBytes`]).
pub struct PageBytes<'a, P: Platform> {
    memory: &'a PhysicalMemory<P>,
    pin: &'a Pin<'a>,
    frame: Pfn,
}

impl<'a, P: Platform> PageBytes<'a, P> {
    pub(in crate::space) fn new(
        memory: &'a PhysicalMemory<P>,
        pin: &'a Pin<'a>,
        frame: Pfn,
    ) -> Self {
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
        self.with(|page| page.fill(word));
    }

    /// Copies `data` to byte `offset`, as much of it as fits. Returns the bytes
    /// copied.
    pub fn write(&self, offset: usize, data: &[u8]) -> usize {
        self.with(|page| page.write(offset, data))
    }

    /// Puts zeroes into the bytes of `range`, as far as there are such bytes.
    pub fn zero(&self, range: core::ops::Range<usize>) {
        if !range.is_empty() {
            self.with(|page| page.zero_range(range));
        }
    }

    /// Copies from byte `offset` to `data`, as much as there is. Returns the
    /// bytes copied.
    pub fn read(&self, offset: usize, data: &mut [u8]) -> usize {
        self.with(|page| page.read(offset, data))
    }

    fn with<T>(&self, f: impl FnOnce(FrameBytes<'_>) -> T) -> T {
        self.memory.with_bytes(self.pin, self.frame, f)
    }
}
