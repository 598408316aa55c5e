//! What a machine consists of, and what can be wrong with that.

use std::fmt;
use std::sync::Arc;

use vellum::addr::Pfn;

use crate::mmu::{TlbGeometry, Walker, X86_64};
use crate::store::{BackingStore, PatternStore};
use crate::task::Scheduler;

/// Frames that do not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// First missing frame.
    pub start: Pfn,
    /// Number of missing frames.
    pub frames: u32,
}

/// A machine to be built. Fields are public: start from [`MachineConfig::new`]
/// and change what matters.
#[derive(Clone)]
pub struct MachineConfig {
    /// CPUs, 1 to 4096.
    pub cpus: usize,
    /// NUMA nodes, 1 to 1024. RAM is divided evenly among them in address
    /// order, and so are the CPUs; with more nodes than CPUs some nodes have
    /// memory only.
    pub nodes: usize,
    /// Bytes of RAM, holes not counted. A multiple of the frame size.
    pub ram_bytes: u64,
    /// Log2 of the frame size.
    pub frame_shift: u32,
    /// Number of the first frame.
    pub base_pfn: Pfn,
    /// Frames from here on are high memory, reached through windows only.
    pub high_from: Option<Pfn>,
    /// Windows are mappings of their own, so that a pointer that was kept beyond one
    /// faults. Takes system calls, and an arena made by [`crate::Arena::shared`].
    pub biting_windows: bool,
    /// Gaps in the frame numbers, ascending, not overlapping. RAM continues
    /// after each.
    pub holes: Vec<Hole>,
    /// Size of the translation caches of each CPU.
    pub tlb: TlbGeometry,
    /// The format of page tables that the MMU walks.
    pub walker: &'static dyn Walker,
    /// Where file pages come from and go to. Its pages are one frame long.
    pub store: Arc<dyn BackingStore>,
    /// Who runs the tasks; `None` means threads of the host.
    pub scheduler: Option<&'static Scheduler>,
}

impl MachineConfig {
    /// One CPU and one node with `ram_bytes` of low memory in 4 KiB frames
    /// from frame 0x100 on, x86-64 tables, and a store whose pages are zero.
    pub fn new(ram_bytes: u64) -> MachineConfig {
        MachineConfig {
            cpus: 1,
            nodes: 1,
            ram_bytes,
            frame_shift: 12,
            base_pfn: Pfn(0x100),
            high_from: None,
            biting_windows: false,
            holes: Vec::new(),
            tlb: TlbGeometry::default(),
            walker: &X86_64,
            store: Arc::new(PatternStore::new(4096, |_, _| 0)),
            scheduler: None,
        }
    }

    /// The same with page tables that `walker` walks: frames of its size, a store
    /// with pages of that size, which are zero, and low memory for roots.
    pub fn with_walker(mut self, walker: &'static dyn Walker) -> MachineConfig {
        self.walker = walker;
        self.frame_shift = walker.frame_shift();
        self.high_from = walker.roots_end();
        self.store = Arc::new(PatternStore::new(1 << self.frame_shift, |_, _| 0));
        self
    }

    /// The end of the first `bytes` bytes of memory, rounded up to a frame: where high
    /// memory begins if there is so much low memory.
    pub fn low_memory(&self, bytes: u64) -> Pfn {
        let frames = bytes.div_ceil(1 << self.frame_shift);
        let end = u64::from(self.base_pfn.0).saturating_add(frames);
        Pfn(u32::try_from(end).unwrap_or(u32::MAX))
    }

    /// Bytes that an arena for this machine must have. Holes count: they take
    /// address space of the host, but no memory.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn arena_bytes(&self) -> Result<usize, MachineError> {
        Ok(crate::ram::Layout::new(self)?.span_bytes())
    }
}

impl fmt::Debug for MachineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineConfig")
            .field("cpus", &self.cpus)
            .field("nodes", &self.nodes)
            .field("ram_bytes", &self.ram_bytes)
            .field("frame_shift", &self.frame_shift)
            .field("base_pfn", &self.base_pfn)
            .field("high_from", &self.high_from)
            .field("biting_windows", &self.biting_windows)
            .field("holes", &self.holes)
            .field("tlb", &self.tlb)
            .field("walker", &self.walker.name())
            .finish_non_exhaustive()
    }
}

/// Why a machine cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MachineError {
    /// Not 1 to 4096 CPUs.
    #[error("a machine has 1 to 4096 CPUs, not {0}")]
    Cpus(usize),
    /// Not 1 to 1024 nodes, or fewer frames than nodes.
    #[error(
        "{nodes} nodes: a machine has 1 to 1024, each with at least one of its {frames} frames"
    )]
    Nodes {
        /// Nodes asked for.
        nodes: usize,
        /// Frames of RAM.
        frames: u64,
    },
    /// The frame size is not one the machine can have.
    #[error("frames of 2^{0} bytes: a frame has 2^12 to 2^16 bytes")]
    FrameShift(u32),
    /// The table format counts in other frames than the machine.
    #[error(
        "{walker} tables have frames of 2^{expected} bytes, but the machine has frames of 2^{found}"
    )]
    WalkerFrames {
        /// Name of the format.
        walker: &'static str,
        /// Log2 of its frame size.
        expected: u32,
        /// Log2 of the machine's frame size.
        found: u32,
    },
    /// The store's pages are not frames.
    #[error("the backing store has pages of {found} bytes, but a frame has {expected}")]
    StorePages {
        /// Frame size in bytes.
        expected: usize,
        /// Page size of the store in bytes.
        found: usize,
    },
    /// RAM is empty or not made of whole frames.
    #[error("{ram_bytes} bytes of RAM are not a positive multiple of the frame size {frame_bytes}")]
    RamBytes {
        /// Bytes asked for.
        ram_bytes: u64,
        /// Frame size in bytes.
        frame_bytes: u64,
    },
    /// RAM ends beyond the largest frame number.
    #[error("RAM would end at frame {end:#x}; the last valid frame number is 0xfffffffe")]
    TooMuchRam {
        /// First frame number after RAM.
        end: u64,
    },
    /// Holes overlap, are out of order, or lie before RAM.
    #[error(
        "the hole at frame {start:#x} overlaps or precedes what comes before it; list holes in ascending order"
    )]
    Hole {
        /// First frame of the offending hole.
        start: u32,
    },
    /// The TLB cannot be built.
    #[error(
        "a TLB of {sets} sets of {ways} ways and {upper} upper entries: sets and upper entries must be powers of two, ways 1 to 64"
    )]
    Tlb {
        /// Sets asked for.
        sets: usize,
        /// Ways asked for.
        ways: usize,
        /// Upper-level entries asked for.
        upper: usize,
    },
    /// The arena is too small.
    #[error("the machine needs an arena of {needed} bytes; this one has {found}")]
    ArenaSize {
        /// Bytes needed.
        needed: usize,
        /// Bytes of the arena.
        found: usize,
    },
    /// There are no windows that bite.
    #[error("windows of their own mappings cannot be had: {0}")]
    Windows(String),
    /// Another machine uses the arena.
    #[error("another machine uses the arena; drop that machine first")]
    ArenaInUse,
}
