//! The bytes of frames: reached directly, or through one of the CPU's windows.

use core::ptr::NonNull;

use super::cpu::CpuFrames;
use super::memory::PhysicalMemory;
use super::record::Frame;
use crate::addr::Pfn;
use crate::platform::{Machine, WindowSlot, Zone};
use crate::sync::Pin;
use crate::sync::bytes::FrameBytes;

impl<P: Machine> PhysicalMemory<P> {
    /// Calls `f` with the frame's bytes. High memory takes a window for pages
    /// meanwhile.
    #[inline]
    pub(crate) fn with_bytes<T>(
        &self,
        pin: &Pin<'_>,
        pfn: Pfn,
        f: impl FnOnce(FrameBytes<'_>) -> T,
    ) -> T {
        if self.is_direct(pfn) {
            return f(self.direct_bytes(pfn));
        }
        let (window, bytes) = self.open_window(pin, WindowSlot::PAGES, pfn);
        // SAFETY: the address is that of a whole frame, aligned to its size, until
        // the window closes (condition 2 of `Machine`), and whoever touches it
        // without a lock does so through `FrameBytes` or from outside of the program
        // (condition 5).
        let result = f(unsafe { FrameBytes::new(bytes, self.frame_size()) });
        drop(window);
        result
    }

    /// The bytes of a low frame.
    #[inline]
    pub(crate) fn direct_bytes(&self, pfn: Pfn) -> FrameBytes<'_> {
        // SAFETY: as in `with_bytes`, for as long as the platform lives.
        unsafe { FrameBytes::new(self.direct(pfn), self.frame_size()) }
    }

    /// Address of the bytes of a low frame.
    #[inline]
    pub(crate) fn direct(&self, pfn: Pfn) -> NonNull<u8> {
        debug_assert!(
            self.is_direct(pfn),
            "{pfn:?} is reached through windows only"
        );
        self.platform.frame(pfn)
    }

    /// Whether the frame is in the direct map.
    #[inline]
    pub(crate) fn is_direct(&self, pfn: Pfn) -> bool {
        self.is_before_high(pfn) || self.is_low(pfn)
    }

    /// Whether the frame is in the direct map because all before it are. Most that are
    /// low lie there, and that takes no look at a record.
    #[inline]
    pub(crate) fn is_before_high(&self, pfn: Pfn) -> bool {
        pfn < self.zones.first_high
    }

    /// The same of a frame that lies among those of high memory, or after them.
    #[inline(never)]
    fn is_low(&self, pfn: Pfn) -> bool {
        self.zones.all[self.head_of(pfn).1.zone()].info.zone == Zone::Low
    }

    /// First frame of the block that `pfn` is in, and its record. A frame that
    /// is in no block is its own head.
    #[inline]
    pub(crate) fn head_of(&self, pfn: Pfn) -> (Pfn, &Frame) {
        let frame = self.frame(pfn);
        if !frame.is_tail() {
            return (pfn, frame);
        }
        // A block starts at a multiple of its size, and the frames between its
        // start and us are tails too.
        (1..=super::MAX_ORDER)
            .map(|order| Pfn(pfn.0 >> order << order))
            .find_map(|at| {
                let head = self.table.get(at)?;
                (!head.is_tail()).then_some((at, head))
            })
            .unwrap_or((pfn, frame))
    }

    /// Fills a frame with zeroes. The caller is its only user.
    #[inline]
    pub(crate) fn zero(&self, pin: &Pin<'_>, pfn: Pfn) {
        let size = self.frame_size();
        let cpu = self.cpus.get(pin);
        cpu.counters.bytes_zeroed.add(size as u64);
        // The processor fetches what lies after the frame by itself.
        let next = self.upcoming(cpu).filter(|&next| next != pfn.offset(1));
        self.with_bytes(pin, pfn, |frame| match next {
            None => frame.zero(),
            Some(next) => frame.zero_towards(self.platform.frame(next).as_ptr()),
        });
    }

    /// The same for a frame of a block, after which the next is handed out.
    pub(super) fn zero_of_block(&self, pin: &Pin<'_>, pfn: Pfn) {
        let size = self.frame_size();
        self.cpus.get(pin).counters.bytes_zeroed.add(size as u64);
        self.with_bytes(pin, pfn, |frame| frame.zero());
    }

    /// The frame that the CPU will probably be handed next for a page, unless that
    /// is one of high memory.
    #[inline]
    fn upcoming(&self, cpu: &CpuFrames) -> Option<Pfn> {
        if cpu.high.exist() {
            None
        } else {
            cpu.low.frames.peek()
        }
    }

    /// Copies the bytes of one frame to another, which the caller is the only
    /// user of. Tasks may store to the first meanwhile.
    #[inline]
    pub(crate) fn copy(&self, pin: &Pin<'_>, from: Pfn, to: Pfn) {
        debug_assert!(from != to, "a frame copied to itself");
        let size = self.frame_size();
        self.cpus.get(pin).counters.bytes_copied.add(size as u64);
        self.with_bytes(pin, from, |from| {
            self.with_bytes(pin, to, |to| to.copy_from(from));
        });
    }
}
