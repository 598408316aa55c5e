//! What physical memory tells about itself: statistics, census, errors.

use core::fmt;

use super::record::Kind;
use super::reservation::ReservationStats;
use crate::addr::Pfn;
use crate::platform::{CpuId, NodeId, Zone};

/// Why a platform's description of itself cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// [`crate::platform::Machine::cpus`] is outside 1..=4096.
    CpuCount(usize),
    /// [`crate::platform::Machine::nodes`] is outside 1..=1024.
    NodeCount(usize),
    /// [`crate::platform::Machine::frame_shift`] is outside 12..=21.
    FrameShift(u32),
    /// A CPU's node does not exist.
    CpuNode {
        /// The CPU.
        cpu: CpuId,
        /// The node that the platform named.
        node: NodeId,
    },
    /// The memory map has no frame.
    NoMemory,
    /// There is no low memory, which page tables and the manager's own nodes need.
    NoLowMemory,
    /// A range of the memory map has no frames.
    EmptyRange {
        /// Where the range stands in the map.
        range: usize,
    },
    /// A range of the memory map starts before the one ahead of it ends.
    RangeOrder {
        /// Where the later range stands in the map.
        range: usize,
    },
    /// A range of the memory map reaches beyond the last frame number, which comes before
    /// [`Pfn::END`].
    RangeEnd {
        /// Where the range stands in the map.
        range: usize,
    },
    /// A range of the memory map names a node that does not exist.
    RangeNode {
        /// Where the range stands in the map.
        range: usize,
        /// The node.
        node: NodeId,
    },
    /// A frame of low memory has an address that is no multiple of the frame size.
    Misaligned {
        /// The frame.
        frame: Pfn,
        /// Its address.
        address: usize,
    },
    /// The frame table could not be allocated.
    FrameTable {
        /// Its size.
        bytes: usize,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SetupError::CpuCount(cpus) => write!(f, "{cpus} CPUs; a machine has 1 to 4096"),
            SetupError::NodeCount(nodes) => write!(f, "{nodes} nodes; a machine has 1 to 1024"),
            SetupError::FrameShift(shift) => {
                write!(f, "frames of 2^{shift} bytes; 2^12 to 2^21 can be managed")
            }
            SetupError::CpuNode { cpu, node } => {
                write!(
                    f,
                    "CPU {} is on node {}, which does not exist",
                    cpu.0, node.0
                )
            }
            SetupError::NoMemory => f.write_str("the memory map is empty"),
            SetupError::NoLowMemory => {
                f.write_str("the memory map has no low memory, which page tables need")
            }
            SetupError::EmptyRange { range } => {
                write!(f, "range {range} of the memory map has no frames")
            }
            SetupError::RangeOrder { range } => write!(
                f,
                "range {range} of the memory map starts before range {} ends; \
                 ranges must ascend and not overlap",
                range - 1
            ),
            SetupError::RangeEnd { range } => write!(
                f,
                "range {range} of the memory map reaches beyond frame {:#x}, the last one",
                Pfn::NONE.0 - 1
            ),
            SetupError::RangeNode { range, node } => write!(
                f,
                "range {range} of the memory map is on node {}, which does not exist",
                node.0
            ),
            SetupError::Misaligned { frame, address } => write!(
                f,
                "frame {:#x} has the address {address:#x}, which is no multiple of the frame size",
                frame.0
            ),
            SetupError::FrameTable { bytes } => {
                write!(f, "no {bytes} bytes for the frame table")
            }
        }
    }
}

impl core::error::Error for SetupError {}

/// Counts of frames and events, summed over zones and CPUs.
///
/// Each number is exact when nobody is at work; while CPUs allocate they are a
/// moment's reading, each of its own moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FrameStats {
    /// Frames managed.
    pub total: u64,
    /// Frames in the buddy lists.
    pub free: u64,
    /// Frames in the CPUs' lists.
    pub cached: u64,
    /// Retired frames that wait for their epoch.
    pub limbo: u64,
    /// Blocks handed out, of any order.
    pub allocs: u64,
    /// Blocks given back, of any order, retired ones when they are reused.
    pub frees: u64,
    /// Times a CPU's list was refilled from the buddy lists.
    pub refills: u64,
    /// Times frames of a CPU's list were given back to the buddy lists.
    pub drains: u64,
    /// Blocks handed out from another node than the one asked for.
    pub remote_allocs: u64,
    /// Requests refused, injected failures not counted.
    pub failed: u64,
    /// Allocations that took a zone below its low watermark.
    pub below_low: u64,
    /// Bytes written with zeroes for who asked for them.
    pub bytes_zeroed: u64,
    /// Bytes written with zeroes in idle time.
    pub idle_bytes_zeroed: u64,
    /// Free frames, in the buddy lists and in those of CPUs, that are known to
    /// be zero and kept apart.
    pub zeroed: u64,
    /// Requests served from them.
    pub zero_hits: u64,
    /// Frames that are out of use ([`Vm::set_frame_health`](crate::Vm::set_frame_health)).
    pub withdrawn: u64,
    /// Bytes copied from frame to frame.
    pub bytes_copied: u64,
    /// Runs set aside for ranges of pages that are being filled.
    pub reservations: ReservationStats,
    /// Times a pinned caller began to wait for another CPU: for a spin lock, a
    /// region that is being changed, or faults that are still inside one.
    pub waits: u64,
}

impl FrameStats {
    /// Frames that somebody uses.
    pub fn used(&self) -> u64 {
        self.total
            .saturating_sub(self.free + self.cached + self.limbo)
    }
}

/// One zone: the frames of one node that are reached one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ZoneStats {
    /// The node.
    pub node: NodeId,
    /// Low or high.
    pub zone: Zone,
    /// Frames managed.
    pub total: u64,
    /// Frames in the buddy lists.
    pub free: u64,
    /// Those of them that are known to be zero and kept apart.
    pub zeroed: u64,
    /// Free blocks of each order.
    pub blocks: [u32; super::MAX_ORDER as usize + 1],
    /// The reserve that only urgent requests use, in frames.
    pub min: u64,
    /// Free frames below which the zone is short.
    pub low: u64,
    /// Free frames above which the zone is no longer short.
    pub high: u64,
}

/// Where every frame was found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCensus {
    /// Frames by [`Kind`], in order of its numbers; retired frames that wait
    /// for their epoch are not in it. The frames of a block count as its first
    /// frame does.
    pub kinds: [u64; 8],
    /// Retired frames that wait for their epoch.
    pub limbo: u64,
    /// Unused frames of runs that are set aside.
    pub set_aside: u64,
    /// Those of kind `Allocated` that an embedder holds in blocks of its own
    /// ([`OwnedBlock`](super::OwnedBlock)).
    pub owned: u64,
    /// Those of kind `Reserved` that are out of use.
    pub withdrawn: u64,
}

impl FrameCensus {
    /// Frames of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize]
    }

    /// All frames.
    pub fn total(&self) -> u64 {
        self.kinds.iter().sum::<u64>() + self.limbo + self.set_aside
    }
}

/// What an audit found wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditError {
    /// Where.
    pub place: AuditPlace,
    /// What is wrong there.
    pub what: &'static str,
}

/// What an [`AuditError`] is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditPlace {
    /// A frame.
    Frame(Pfn),
    /// A slot of an arena, by its raw handle.
    Slot(u32),
    /// A zone, by number.
    Zone(usize),
    /// An arena as a whole.
    Arena,
}

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            AuditPlace::Frame(pfn) => write!(f, "{pfn:?}: {}", self.what),
            AuditPlace::Slot(slot) => write!(f, "slot {slot:#x}: {}", self.what),
            AuditPlace::Zone(zone) => write!(f, "zone {zone}: {}", self.what),
            AuditPlace::Arena => write!(f, "arena: {}", self.what),
        }
    }
}

impl core::error::Error for AuditError {}
