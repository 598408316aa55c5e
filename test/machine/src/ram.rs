//! The machine's RAM: which frames exist, where they lie, and their words.
//!
//! Frame `base + n` lies `n` frames into the arena, holes included, so that
//! finding a frame is one subtraction and one shift.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use vellum::addr::Pfn;
use vellum::platform::{MemoryRange, NodeId, Zone};
use vellum::sync::atomic::AtomicU64;
use vellum::sync::bytes::FrameBytes;

use crate::arena::{Arena, ArenaClaim};
use crate::config::{MachineConfig, MachineError};

/// Which frames a machine has.
#[derive(Debug)]
pub(crate) struct Layout {
    base: u32,
    shift: u32,
    high_from: u32,
    /// First frame number after RAM.
    end: u32,
    ranges: Vec<MemoryRange>,
}

impl Layout {
    /// Lays out the RAM of `config`: ascending ranges, cut at holes, node
    /// borders and the start of high memory.
    pub(crate) fn new(config: &MachineConfig) -> Result<Layout, MachineError> {
        let shift = config.frame_shift;
        if !(12..=16).contains(&shift) {
            return Err(MachineError::FrameShift(shift));
        }
        let frame_bytes = 1u64 << shift;
        let frames = config.ram_bytes >> shift;
        if frames == 0 || !config.ram_bytes.is_multiple_of(frame_bytes) {
            return Err(MachineError::RamBytes {
                ram_bytes: config.ram_bytes,
                frame_bytes,
            });
        }
        let nodes = config.nodes as u64;
        if !(1..=1024).contains(&nodes) || nodes > frames {
            return Err(MachineError::Nodes {
                nodes: config.nodes,
                frames,
            });
        }
        let high_from = config.high_from.map_or(u32::MAX, |frame| frame.0);
        let mut ranges = Vec::new();
        let mut placed = 0;
        for gap in gaps(config, frames)? {
            let mut at = gap.start;
            while at < gap.end {
                let node = node_of_frame(placed, frames, nodes);
                let node_end = at + (first_of_node(node + 1, frames, nodes) - placed);
                let zone_end = if at < u64::from(high_from) {
                    u64::from(high_from)
                } else {
                    u64::MAX
                };
                let end = gap.end.min(node_end).min(zone_end);
                ranges.push(MemoryRange {
                    start: Pfn(at as u32),
                    frames: (end - at) as u32,
                    node: NodeId(node as u16),
                    zone: if at < u64::from(high_from) {
                        Zone::Low
                    } else {
                        Zone::High
                    },
                });
                placed += end - at;
                at = end;
            }
        }
        let end = ranges
            .last()
            .map_or(config.base_pfn.0, |last| last.start.0 + last.frames);
        Ok(Layout {
            base: config.base_pfn.0,
            shift,
            high_from,
            end,
            ranges,
        })
    }

    /// Bytes from the first frame to the last, holes included.
    pub(crate) fn span_bytes(&self) -> usize {
        ((self.end - self.base) as usize) << self.shift
    }

    /// Whether `frame` exists.
    pub(crate) fn contains(&self, frame: Pfn) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= frame);
        after > 0 && {
            let range = &self.ranges[after - 1];
            frame.0 - range.start.0 < range.frames
        }
    }
}

/// The runs of existing frame numbers, each `start..end`, in `frames` frames.
fn gaps(config: &MachineConfig, frames: u64) -> Result<Vec<Range<u64>>, MachineError> {
    let mut runs = Vec::new();
    let mut at = u64::from(config.base_pfn.0);
    let mut left = frames;
    for hole in &config.holes {
        let start = u64::from(hole.start.0);
        if start < at {
            return Err(MachineError::Hole {
                start: hole.start.0,
            });
        }
        let run = (start - at).min(left);
        runs.push(at..at + run);
        left -= run;
        if left == 0 {
            break;
        }
        at = start + u64::from(hole.frames);
    }
    runs.push(at..at + left);
    runs.retain(|run| !run.is_empty());
    let end = runs.last().map_or(at, |run| run.end);
    // The all-ones frame number means "no frame".
    if end > u64::from(u32::MAX) {
        return Err(MachineError::TooMuchRam { end });
    }
    Ok(runs)
}

/// The first of `frames` frames that belongs to `node`.
fn first_of_node(node: u64, frames: u64, nodes: u64) -> u64 {
    (node * frames).div_ceil(nodes)
}

/// The node of the `nth` of `frames` frames.
fn node_of_frame(nth: u64, frames: u64, nodes: u64) -> u64 {
    nth * nodes / frames
}

/// RAM that this machine alone uses.
#[derive(Debug)]
pub(crate) struct Ram {
    layout: Layout,
    /// Where frame 0 is or would be: before the memory if its numbers start higher.
    origin: *mut u8,
    /// Keeps the memory mapped and ours.
    _claim: ArenaClaim,
}

// SAFETY: `origin` leads to memory that the claim keeps mapped; RAM is
// shared by nature, and what is done to its bytes is the users' affair.
unsafe impl Send for Ram {}
// SAFETY: as above.
unsafe impl Sync for Ram {}

impl Ram {
    pub(crate) fn new(config: &MachineConfig, arena: Arc<Arena>) -> Result<Ram, MachineError> {
        let layout = Layout::new(config)?;
        let (needed, found) = (layout.span_bytes(), arena.bytes());
        if needed > found {
            return Err(MachineError::ArenaSize { needed, found });
        }
        let claim = ArenaClaim::new(arena).ok_or(MachineError::ArenaInUse)?;
        let before = (layout.base as usize) << layout.shift;
        Ok(Ram {
            layout,
            origin: claim.start().as_ptr().wrapping_sub(before),
            _claim: claim,
        })
    }

    pub(crate) fn ranges(&self) -> &[MemoryRange] {
        &self.layout.ranges
    }

    pub(crate) fn contains(&self, frame: Pfn) -> bool {
        self.layout.contains(frame)
    }

    pub(crate) fn is_high(&self, frame: Pfn) -> bool {
        frame.0 >= self.layout.high_from
    }

    /// Address of a frame. For a frame that does not exist the address means nothing.
    #[inline]
    pub(crate) fn address(&self, frame: Pfn) -> NonNull<u8> {
        let address = (self.origin).wrapping_add((frame.0 as usize) << self.layout.shift);
        // A wild frame number can wrap to anything, so null must be ruled out.
        NonNull::new(address).unwrap_or(NonNull::dangling())
    }

    /// Where a frame begins in the arena, in bytes.
    pub(crate) fn offset(&self, frame: Pfn) -> usize {
        (frame.0.wrapping_sub(self.layout.base) as usize) << self.layout.shift
    }

    /// The bytes of `frame`; `None` if there is no such frame.
    pub(crate) fn bytes(&self, frame: Pfn) -> Option<FrameBytes<'_>> {
        if !self.contains(frame) {
            return None;
        }
        // SAFETY: the frame exists, so it lies in the arena, aligned to its size,
        // which lives as long as `self`. The core touches the bytes of pages and
        // tables as we do (`vellum::sync::bytes`); frames that it holds values of
        // its own in are not reached through tables that it made, which is what
        // `Machine::mmu` demands of roots.
        Some(unsafe { FrameBytes::new(self.address(frame), 1 << self.layout.shift) })
    }

    /// The 8-byte words of `frame`; `None` if there is no such frame.
    pub(crate) fn words(&self, frame: Pfn) -> Option<&[AtomicU64]> {
        self.bytes(frame).map(FrameBytes::words)
    }

    /// The word at byte `offset` of `frame`; `None` if there is no such word.
    pub(crate) fn word(&self, frame: Pfn, offset: usize) -> Option<&AtomicU64> {
        let word = self.words(frame)?.get(offset / 8)?;
        offset.is_multiple_of(8).then_some(word)
    }
}
