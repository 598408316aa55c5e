//! The bytes of one page, for callers outside of the core.

use crate::addr::Pfn;
use crate::frame::PhysicalMemory;
use crate::object::Object;
use crate::platform::Platform;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
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

    /// Replaces the aligned 4-byte word at byte `offset` by what `update` makes of it, as one atomic
    /// step. Answers with the old word: `Ok` if it was replaced, `Err` if `update` had nothing
    /// for it. `update` is asked anew when the word has changed meanwhile.
    pub(in crate::space) fn update_word(
        &self,
        offset: usize,
        update: &mut dyn FnMut(u32) -> Option<u32>,
    ) -> Result<u32, u32> {
        const WORD: usize = size_of::<u32>();
        self.with(|page| {
            // All accesses to the bytes of frames have one size: that of a word of 8 bytes.
            let word = &page.words()[offset / size_of::<u64>()];
            let at = offset % size_of::<u64>();
            let mut now = word.load(Ordering::Acquire);
            loop {
                let mut bytes = now.to_ne_bytes();
                let mut old = [0; WORD];
                old.copy_from_slice(&bytes[at..at + WORD]);
                let old = u32::from_ne_bytes(old);
                let new = update(old).ok_or(old)?;
                bytes[at..at + WORD].copy_from_slice(&new.to_ne_bytes());
                let new = u64::from_ne_bytes(bytes);
                match word.compare_exchange(now, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return Ok(old),
                    Err(other) => now = other,
                }
            }
        })
    }

    fn with<T>(&self, f: impl FnOnce(FrameBytes<'_>) -> T) -> T {
        self.memory.with_bytes(self.pin, self.frame, f)
    }
}
