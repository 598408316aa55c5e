//! The platform of a manager that runs on simulated CPUs: their numbers and nodes,
//! memory of the host, and the simulator's waiting and flushing.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

use vellum::addr::Pfn;
use vellum::platform::{
    CpuId, CpuSet, Flush, IoError, Machine, MemoryRange, NodeId, Policy, Sleep, Store, TaskToken,
    Zone,
};
use vellum::sync::bytes::FrameBytes;

use crate::names;
use crate::places::{Homes, PlaceError};
use crate::run::{Simulation, TooManyCpus, era, with_cpu};
use crate::topology::{Level, Topology};
use vellum_description::Description;

const FRAME_SHIFT: u32 = 12;
/// Alignment of the memory, so that where the host has it shows in no address bit below.
const ALIGNMENT: usize = 2 << 20;
/// The first frame's number. Frame 0 is nobody's.
const FIRST: u32 = ALIGNMENT as u32 >> FRAME_SHIFT;

/// CPUs and memory of a described machine, for one manager.
///
/// There is no MMU: programs call the manager's `fault` themselves, and a flush costs
/// time but forgets nothing. There is no backing store, so that reading and writing pages
/// fails, but [`with_files`](Board::with_files).
///
/// It can be used by the thread that made it only, outside of a run as CPU 0, and not
/// after a run of that thread has failed.
#[derive(Debug)]
pub struct Board {
    cpus: usize,
    topology: Topology,
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    /// Where frame [`FIRST`] is.
    start: NonNull<u8>,
    ranges: Vec<MemoryRange>,
    has_files: bool,
    is_hosted: bool,
    is_spared: bool,
    era: u64,
}

// SAFETY: the mapping is the board's and stays where it is; whoever pins has to be the
// thread that made the board.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

/// Why there is no board.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// The description has fewer CPUs.
    #[error("{0}")]
    Cpus(#[from] TooManyCpus),
    /// Not whole frames on each node, or more than there are numbers for.
    #[error(
        "{bytes} bytes of memory for each of {nodes} nodes: expected a multiple of 4096, at least 1 MiB, and at most 8 TiB in all"
    )]
    Memory {
        /// Bytes of each node.
        bytes: u64,
        /// Nodes of the CPUs.
        nodes: usize,
    },
    /// The host has no address space for it.
    #[error("no address space for the memory of the machine: {0}")]
    Host(#[from] io::Error),
}

impl Board {
    /// The first `cpus` CPUs of a machine, each node that they are on with
    /// `bytes_per_node` bytes of memory, which the host provides as it is used.
    ///
    /// # Errors
    /// [`BoardError`].
    pub fn new(
        machine: &Description,
        cpus: usize,
        bytes_per_node: u64,
    ) -> Result<Board, BoardError> {
        let nodes = Board::nodes_of(machine, cpus)?;
        let topology = Topology::new(machine);
        let total = bytes_per_node.checked_mul(nodes as u64);
        let whole = bytes_per_node.is_multiple_of(1 << FRAME_SHIFT);
        let total = total
            .filter(|&total| whole && bytes_per_node >= 1 << 20 && total <= 8 << 40)
            .ok_or(BoardError::Memory {
                bytes: bytes_per_node,
                nodes,
            })?;
        let frames = (bytes_per_node >> FRAME_SHIFT) as u32;
        let range = |node: usize| MemoryRange {
            start: Pfn(FIRST + node as u32 * frames),
            frames,
            node: NodeId(node as u16),
            zone: Zone::Low,
        };
        let ranges = (0..nodes).map(range).collect();
        let mapping_bytes = total as usize + ALIGNMENT;
        // SAFETY: a new private mapping at an address of the host's choice.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapping_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let mapping = NonNull::new(mapping.cast::<u8>())
            .ok_or_else(|| io::Error::other("the host mapped memory at address 0"))?;
        let skip = mapping.as_ptr().align_offset(ALIGNMENT);
        // SAFETY: `skip` is less than `ALIGNMENT`, and the mapping is longer than that.
        let start = unsafe { mapping.add(skip) };
        names::begin();
        Ok(Board {
            cpus,
            topology,
            mapping,
            mapping_bytes,
            start,
            ranges,
            has_files: false,
            is_hosted: false,
            is_spared: false,
            era: era(),
        })
    }

    /// The nodes that the first `cpus` CPUs of a machine are on.
    ///
    /// # Errors
    /// [`TooManyCpus`] if it has fewer.
    pub fn nodes_of(machine: &Description, cpus: usize) -> Result<usize, TooManyCpus> {
        Simulation::new(machine, cpus)?;
        let topology = Topology::new(machine);
        let last = (0..cpus as u32)
            .map(|cpu| topology.node_of(topology.core_of(cpu)).0)
            .max();
        Ok(usize::from(last.unwrap_or(0)) + 1)
    }

    /// With a device that reads and writes pages of files in no time, as one would that has
    /// read them ahead. It does not keep what is written: what a page holds has no effect on
    /// time.
    #[must_use]
    pub fn with_files(mut self) -> Board {
        self.has_files = true;
        self
    }

    /// For programs that look at no bytes of pages: while they run, pages that are zeroed, filled
    /// or copied to take the time for it, but are zero and take no memory of the host before
    /// words of them are written.
    #[must_use]
    pub fn without_bytes(mut self) -> Board {
        // Huge pages of the host would not be given back page by page.
        // SAFETY: advice about a mapping that is the board's; without effect on what it holds.
        unsafe {
            let mapping = self.mapping.as_ptr().cast();
            libc::madvise(mapping, self.mapping_bytes, libc::MADV_NOHUGEPAGE);
        }
        self.is_spared = true;
        self
    }

    /// As `vellum-machine` is on this machine, for runs that are held against runs of that:
    /// pages of files are made by the CPU that reads them, in its own time, and nobody is
    /// interrupted for a shootdown, since nobody has a TLB that could hold anything.
    #[must_use]
    pub fn hosted(mut self) -> Board {
        self.has_files = true;
        self.is_hosted = true;
        self
    }

    /// How far two CPUs are from each other.
    pub fn level(&self, one: CpuId, other: CpuId) -> Level {
        let core = |cpu: CpuId| self.topology.core_of(u32::from(cpu.0));
        self.topology.between(core(one), core(other))
    }

    fn transfer(&self) -> Result<(), IoError> {
        self.has_files.then_some(()).ok_or(IoError)
    }

    /// Places the memory in a simulation, as `ram`, each node's at that node.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn place(&self, simulation: &mut Simulation) -> Result<(), PlaceError> {
        let offset = |range: &MemoryRange| ((range.start.0 - FIRST) as usize) << FRAME_SHIFT;
        let homes = self.ranges.iter().map(|range| (offset(range), range.node));
        let homes = Homes::Ranges(homes.collect());
        let bytes = self.mapping_bytes - ALIGNMENT;
        simulation.place("ram", self.start.as_ptr(), bytes, homes)?;
        if self.is_spared {
            // SAFETY: the mapping is private and without a file, and its frames are reached as
            // `FrameBytes` and as atomic words (the conditions of `Machine`).
            unsafe { simulation.spare_last() };
        }
        Ok(())
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, and nobody holds the board any more. A
        // failure leaves it mapped, which harms nobody.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

// SAFETY: the conditions of `Machine`, by number:
//
// 1. The ranges follow each other in a mapping that is the board's alone.
// 2. Frame `FIRST + n` is `n` frames into memory aligned to 2 MiB.
// 3. `pin` names the CPU whose coroutine runs, or CPU 0 outside of a run. The era says
//    that it is the thread that made the board, which has one run at a time; in a run
//    each CPU has one coroutine, and nothing outside runs until all coroutines have ended.
//    If they could not end, the era is over, and nobody is pinned any more.
// 4. Nobody translates, so there are no translations to forget.
// 5. What touches frames here is `read_page`, through `FrameBytes`, and only its own.
unsafe impl Machine for Board {
    fn cpus(&self) -> usize {
        self.cpus
    }

    fn nodes(&self) -> usize {
        self.ranges.len()
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        let core = self.topology.core_of(u32::from(cpu.0));
        self.topology.node_of(core)
    }

    fn frame_shift(&self) -> u32 {
        FRAME_SHIFT
    }

    fn memory_map(&self) -> &[MemoryRange] {
        &self.ranges
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to {
            return 10;
        }
        match self.topology.to_memory(self.topology.first_core(from), to) {
            Level::Core | Level::Cluster | Level::Socket => 12,
            Level::Board => 20,
            Level::System => 40,
        }
    }

    #[inline]
    fn pin(&self) -> CpuId {
        assert!(
            self.era == era(),
            "a board is used by the thread that made it, and not after a failed run"
        );
        let cpu = with_cpu(|cpu| cpu.id()).unwrap_or(CpuId(0));
        assert!(
            usize::from(cpu.0) < self.cpus,
            "the simulation has more CPUs than the board"
        );
        cpu
    }

    #[inline]
    fn unpin(&self, _cpu: CpuId) {}

    #[inline]
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        let offset = (frame.0.wrapping_sub(FIRST) as usize) << FRAME_SHIFT;
        debug_assert!(
            offset < self.mapping_bytes - ALIGNMENT,
            "{frame:?} does not exist"
        );
        let address = self.start.as_ptr().wrapping_add(offset);
        // A frame that does not exist can wrap to anything, so null must be ruled out.
        NonNull::new(address).unwrap_or(NonNull::dangling())
    }

    fn flush(&self, _from: CpuId, cpus: CpuSet<'_>, request: &Flush) {
        if self.is_hosted {
            with_cpu(|cpu| cpu.look_at(cpus.iter(self.cpus).count() as u64));
            return;
        }
        let pages = request.range.map(|range| range.pages());
        with_cpu(|cpu| cpu.flush(cpus.iter(self.cpus), pages));
    }

    fn relax(&self, spins: u32) {
        with_cpu(|cpu| cpu.relax(spins));
    }
}

impl Sleep for Board {
    fn current_task(&self) -> TaskToken {
        TaskToken(with_cpu(|cpu| u64::from(cpu.id().0)).unwrap_or(0))
    }

    fn park(&self) {
        with_cpu(|cpu| cpu.sleep());
    }

    fn unpark(&self, task: TaskToken) {
        with_cpu(|cpu| cpu.wake(CpuId(task.0 as u16)));
    }
}

impl Store for Board {
    unsafe fn read_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        self.transfer()?;
        // SAFETY: a frame of the mapping, which nobody else uses until this returns.
        let bytes = unsafe { FrameBytes::new(self.frame(frame), 1 << FRAME_SHIFT) };
        let fill = || bytes.fill(store.rotate_left(u32::BITS) ^ index);
        if self.is_hosted {
            fill();
            return Ok(());
        }
        // No CPU does this.
        match with_cpu(|cpu| cpu.unreported(fill)) {
            Some(()) => {}
            None => fill(),
        }
        Ok(())
    }

    fn write_page(&self, _store: u64, _index: u64, frame: Pfn) -> Result<(), IoError> {
        self.transfer()?;
        if self.is_hosted {
            let mut copy = [0; 1 << FRAME_SHIFT];
            // SAFETY: a frame of the mapping; tasks may store to it meanwhile, of which the
            // copy may have a part.
            let bytes = unsafe { FrameBytes::new(self.frame(frame), copy.len()) };
            bytes.read(0, &mut copy);
        }
        Ok(())
    }

    /// No bytes are kept, so that there is nothing to forget.
    fn discard_pages(&self, _store: u64, _pages: Range<u64>) -> Result<(), IoError> {
        self.transfer()
    }
}

impl Policy for Board {}
