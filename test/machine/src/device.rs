//! A device with memory of its own: frames outside of RAM that nobody but programs reaches, through
//! page tables that lead there.

use std::sync::OnceLock;

use vellum::addr::Pfn;
use vellum::sync::atomic::AtomicU64;

/// The words of one frame.
type Words = Box<[AtomicU64]>;

/// Memory of a device. Frames come to be when they are used.
pub(crate) struct Device {
    first: Pfn,
    frames: Box<[OnceLock<Words>]>,
    frame_bytes: usize,
}

impl Device {
    pub(crate) fn new(first: Pfn, frames: u32, frame_shift: u32) -> Device {
        Device {
            first,
            frames: (0..frames).map(|_| OnceLock::new()).collect(),
            frame_bytes: 1 << frame_shift,
        }
    }

    /// What every word of a frame holds before it is stored to.
    pub(crate) fn pristine(frame: Pfn) -> u64 {
        0xde71_ce00_0000_0000 | u64::from(frame.0)
    }

    /// The word at byte `offset` of `frame`; `None` if there is no such word.
    pub(crate) fn word(&self, frame: Pfn, offset: usize) -> Option<&AtomicU64> {
        let place = frame.0.checked_sub(self.first.0)?;
        let words = self.frames.get(place as usize)?.get_or_init(|| {
            let pristine = || AtomicU64::new(Device::pristine(frame));
            (0..self.frame_bytes / 8).map(|_| pristine()).collect()
        });
        words.get(offset / 8).filter(|_| offset.is_multiple_of(8))
    }
}
