//! A machine for the core's unit tests: memory from the host, any number of
//! CPUs on any number of threads, and a check of what the core promises the
//! platform (one pin a CPU, windows closed, high memory never reached directly).

mod allocator;
mod objects;
mod random;
mod tasks;

use core::cell::Cell;
use core::ops::Range;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc};
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::vec::Vec;

use crate::addr::Pfn;
use crate::platform::{
    CpuId, CpuSet, Flush, HookAnswer, HookedFault, IoError, Machine, MemoryRange, NodeId, Policy,
    Rescue, Sleep, SlotError, SpaceTag, Store, TaskToken, Victim, WindowSlot, Zone,
};
use crate::sync::bytes::FrameBytes;

use allocator::unwatched;

#[cfg(feature = "published")]
pub(crate) use crate::rmap::{Chains as ByEntries, Partial as ByRegions};
/// Designs of tests that are about something else: one that finds pages of files through the
/// regions of the file, and one that keeps something for each entry, if they are built in.
#[cfg(not(feature = "published"))]
pub(crate) use crate::rmap::{Family as ByEntries, Family as ByRegions};

pub(crate) use allocator::allocations;
pub(crate) use random::{Rng, number};
pub(crate) use tasks::Tasks;

std::thread_local! {
    static CURRENT_CPU: Cell<u16> = const { Cell::new(0) };
    static TASK: Cell<u64> = const { Cell::new(0) };
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Of designs, in option syntax, those that this build has.
pub(crate) fn built_in<'a, const N: usize>(
    designs: [&'a str; N],
) -> impl Iterator<Item = &'a str> + use<'a, N> {
    designs.into_iter().filter(|design| {
        let refused = crate::Design::parse(design).err();
        refused.is_none_or(|error| !error.0.contains("a published design"))
    })
}

/// Counts a step of a search.
pub(crate) fn count_step() {
    STEPS.set(STEPS.get() + 1);
}

/// Steps counted on this thread since the last call.
pub(crate) fn take_steps() -> u64 {
    STEPS.replace(0)
}

/// Moves the calling thread to a CPU. It must not be pinned.
pub(crate) fn run_on(cpu: u16) {
    CURRENT_CPU.set(cpu);
}

/// The calling thread as a task token, never 0.
fn this_task() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if TASK.get() == 0 {
        TASK.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    TASK.get()
}

/// Pin depth and owner of one CPU, and the frames in its windows.
#[derive(Default)]
struct Cpu {
    pins: AtomicU64,
    owner: AtomicU64,
    windows: [AtomicU64; WindowSlot::COUNT],
}

/// Answers when a fault hook catches an access.
pub(crate) type Hook = dyn Fn(&HookedFault) -> HookAnswer + Send + Sync;

/// Answers when memory runs out.
pub(crate) type Rescuer = dyn FnMut(Option<Victim>) -> Rescue + Send;

/// The machine. Its memory starts out as garbage, not as zeroes.
pub(crate) struct TestMachine {
    map: Vec<MemoryRange>,
    nodes_of: Vec<NodeId>,
    nodes: usize,
    cpus: Vec<Cpu>,
    memory: NonNull<u8>,
    layout: Layout,
    frame_shift: u32,
    tasks: Mutex<BTreeMap<u64, Thread>>,
    /// Tasks that are not threads of their own, if there are any.
    pub(crate) alone: Option<Tasks>,
    /// Has the running one of them step back as soon as it is no longer pinned.
    pub(crate) preempt: AtomicBool,
    store: Mutex<BTreeMap<(u64, u64), Vec<u8>>>,
    flushes: Mutex<Vec<(Vec<CpuId>, Flush)>>,
    on_flush: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// What is looked at when the backing store takes a page.
    pub(crate) on_write: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// What is done when memory runs out.
    pub(crate) rescue: Mutex<Option<Box<Rescuer>>>,
    /// The most pages that a group was said to have above its `high`.
    pub(crate) above_high: AtomicU64,
    /// What answers when a fault hook catches an access.
    pub(crate) hook: Mutex<Option<Arc<Hook>>>,
    /// Makes the backing store refuse.
    pub(crate) broken_store: AtomicBool,
    /// Pages that the backing store does not take.
    pub(crate) broken_pages: Mutex<BTreeSet<u64>>,
    /// Pages that the backing store does not give.
    pub(crate) broken_reads: Mutex<BTreeSet<u64>>,
    /// Most pages that the store of a swap area has room for.
    pub(crate) swap_limit: AtomicU64,
    /// Pages that stores write in a second; 0: nobody knows.
    pub(crate) write_speed: AtomicU64,
    /// Whether it says so before it is asked to take one.
    pub(crate) tells_room: AtomicBool,
    /// First index and length of each row of pages that was written, and read.
    written: Mutex<Vec<(u64, usize)>>,
    read: Mutex<Vec<(u64, usize)>>,
    /// How often the store was flushed.
    pub(crate) store_flushes: AtomicU64,
    /// How often a task asked to sleep.
    pub(crate) parks: AtomicU64,
    /// How often a task asked to wait for a moment.
    pub(crate) waits: AtomicU64,
    /// What happens in such a moment.
    pub(crate) on_relax: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// How often one may ask before it has waited in vain.
    patience: AtomicU64,
    /// How often a node was said to be short.
    pub(crate) reclaim_wakes: AtomicU64,
    /// Roots get a kernel half: this word in each entry from the middle on.
    pub(crate) kernel_half: Option<u64>,
    /// Bytes between where frames lie and where they should.
    skew: usize,
    /// The tag of the space that a CPU is said to run in; 0: of none.
    pub(crate) loaded: AtomicU32,
    /// Roots that have one.
    pub(crate) roots: AtomicU64,
}

const NO_FRAME: u64 = 0;

// SAFETY: the memory behind the pointer is the machine's own, and is handed
// out frame by frame under the platform's rules; all else is `Sync` itself.
unsafe impl Sync for TestMachine {}
// SAFETY: as above; nothing is bound to a thread.
unsafe impl Send for TestMachine {}

/// A range of the memory map: first frame, frames, node, zone.
pub(crate) const fn range(start: u32, frames: u32, node: u16, zone: Zone) -> MemoryRange {
    MemoryRange {
        start: Pfn(start),
        frames,
        node: NodeId(node),
        zone,
    }
}

impl TestMachine {
    /// `cpus` CPUs, one node, `frames` frames of low memory from frame 0x100 on.
    pub(crate) fn simple(cpus: usize, frames: u32) -> Self {
        Self::new(&std::vec![0; cpus], &[range(0x100, frames, 0, Zone::Low)])
    }

    /// [`TestMachine::simple`] with frames of `1 << frame_shift` bytes.
    pub(crate) fn with_frames(cpus: usize, frames: u32, frame_shift: u32) -> Self {
        let map = [range(0x100, frames, 0, Zone::Low)];
        Self::build(&std::vec![0; cpus], &map, frame_shift)
    }

    /// A CPU for each entry of `nodes_of`, on that node, and this memory map,
    /// which need not be one that the core accepts.
    pub(crate) fn new(nodes_of: &[u16], map: &[MemoryRange]) -> Self {
        Self::build(nodes_of, map, 12)
    }

    fn build(nodes_of: &[u16], map: &[MemoryRange], frame_shift: u32) -> Self {
        let first = map.first().map_or(0, |range| range.start.0);
        let end = map
            .iter()
            .map(|range| range.start.0.saturating_add(range.frames))
            .max();
        let frames = end.unwrap_or(0).saturating_sub(first).clamp(1, 1 << 20);
        let bytes = (frames as usize) << frame_shift;
        let layout = Layout::from_size_align(bytes, 1 << frame_shift).unwrap();
        // SAFETY: the layout is not of size 0.
        let memory = NonNull::new(unsafe { alloc(layout) }).unwrap();
        // SAFETY: `memory` has that many bytes.
        unsafe { memory.as_ptr().write_bytes(0xa5, bytes) };
        let map_nodes = map.iter().map(|range| range.node.0);
        let nodes = nodes_of.iter().copied().chain(map_nodes).max().unwrap_or(0);
        TestMachine {
            map: map.to_vec(),
            nodes_of: nodes_of.iter().copied().map(NodeId).collect(),
            nodes: usize::from(nodes) + 1,
            cpus: nodes_of.iter().map(|_| Cpu::default()).collect(),
            memory,
            layout,
            frame_shift,
            tasks: Mutex::default(),
            alone: None,
            preempt: AtomicBool::new(false),
            store: Mutex::default(),
            flushes: Mutex::default(),
            on_flush: Mutex::default(),
            on_write: Mutex::default(),
            rescue: Mutex::default(),
            above_high: AtomicU64::new(0),
            hook: Mutex::default(),
            broken_store: AtomicBool::new(false),
            broken_pages: Mutex::default(),
            broken_reads: Mutex::default(),
            swap_limit: AtomicU64::new(u64::MAX),
            write_speed: AtomicU64::new(0),
            tells_room: AtomicBool::new(false),
            written: Mutex::default(),
            read: Mutex::default(),
            store_flushes: AtomicU64::new(0),
            parks: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            on_relax: Mutex::default(),
            patience: AtomicU64::new(u64::MAX),
            reclaim_wakes: AtomicU64::new(0),
            kernel_half: None,
            skew: 0,
            loaded: AtomicU32::new(0),
            roots: AtomicU64::new(0),
        }
    }

    /// The same machine with its frames so many bytes, less than a frame, from where they should
    /// lie. It can only be looked at.
    pub(crate) fn askew_by(mut self, bytes: usize) -> Self {
        self.skew = bytes;
        self
    }

    /// The same machine with fewer or more nodes than its ranges name.
    pub(crate) fn with_nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Whoever waits fails when tasks have waited for so many moments more.
    pub(crate) fn give_up_after(&self, waits: u64) {
        let patience = self.waits.load(Ordering::Relaxed).saturating_add(waits);
        self.patience.store(patience, Ordering::Relaxed);
    }

    /// Takes the flushes asked for since the last call.
    #[allow(dead_code, reason = "for the tests of layers above")]
    pub(crate) fn take_flushes(&self) -> Vec<(Vec<CpuId>, Flush)> {
        core::mem::take(&mut self.flushes.lock().unwrap())
    }

    /// Takes the rows of pages that were written since the last call.
    pub(crate) fn take_written(&self) -> Vec<(u64, usize)> {
        core::mem::take(&mut self.written.lock().unwrap())
    }

    /// Takes the rows of pages that were read since the last call.
    pub(crate) fn take_read(&self) -> Vec<(u64, usize)> {
        core::mem::take(&mut self.read.lock().unwrap())
    }

    /// A machine whose tasks share one CPU and are not preempted ([`TestMachine::run`]).
    pub(crate) fn without_preemption(frames: u32) -> Self {
        let mut machine = Self::simple(1, frames);
        machine.alone = Some(Tasks::default());
        machine
    }

    /// Runs the tasks of such a machine.
    pub(crate) fn run(&self, works: &[&(dyn Fn() + Sync)]) {
        if let Some(tasks) = &self.alone {
            tasks.run(works);
        }
    }

    /// Has all other tasks of such a machine run that can.
    pub(crate) fn step_back(&self) {
        if let Some(tasks) = &self.alone {
            tasks.step_back();
        }
    }

    /// Whoever sleeps, or transfers a page and may sleep, is not pinned.
    fn check_unpinned(&self) {
        let cpu = &self.cpus[usize::from(CURRENT_CPU.get())];
        assert_eq!(cpu.pins.load(Ordering::Relaxed), 0, "asleep while pinned");
    }

    fn fill_from_store(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        self.check_unpinned();
        let broken = self.broken_reads.lock().unwrap().contains(&index);
        if broken || self.broken_store.load(Ordering::Relaxed) {
            return Err(IoError);
        }
        let pages = self.store.lock().unwrap();
        let bytes = self.bytes(frame);
        match pages.get(&(store, index)) {
            Some(page) => _ = bytes.write(0, page),
            None => bytes.zero(),
        }
        Ok(())
    }

    fn take_to_store(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        self.check_unpinned();
        if let Some(look) = &*self.on_write.lock().unwrap() {
            look();
        }
        let broken = self.broken_pages.lock().unwrap().contains(&index);
        if broken || self.broken_store.load(Ordering::Relaxed) {
            return Err(IoError);
        }
        let bytes = self.bytes(frame);
        unwatched(|| {
            let mut page = std::vec![0; bytes.size()];
            bytes.read(0, &mut page);
            self.store.lock().unwrap().insert((store, index), page);
        });
        Ok(())
    }

    /// Pages that a store has.
    pub(crate) fn stored_pages(&self, store: u64) -> u64 {
        let pages = self.store.lock().unwrap();
        pages.keys().filter(|(owner, _)| *owner == store).count() as u64
    }

    /// Whether a store has as many pages as it may; without a limit none is counted, which would
    /// take as long as all else that tests of swap do.
    fn is_full(&self, store: u64) -> bool {
        let limit = self.swap_limit.load(Ordering::Relaxed);
        limit != u64::MAX && self.stored_pages(store) >= limit
    }

    /// Has `look` called in each flush from now on, while CPUs may still use
    /// what they are to forget.
    pub(crate) fn on_flush(&self, look: impl Fn() + Send + 'static) {
        *self.on_flush.lock().unwrap() = Some(Box::new(look));
    }

    fn address(&self, frame: Pfn) -> NonNull<u8> {
        let inside =
            |range: &&MemoryRange| range.start <= frame && frame.0 - range.start.0 < range.frames;
        assert!(
            self.map.iter().find(inside).is_some(),
            "{frame:?} is not memory"
        );
        let offset = ((frame.0 - self.map[0].start.0) as usize) << self.frame_shift;
        assert!(
            offset < self.layout.size(),
            "{frame:?} is beyond the test machine"
        );
        // SAFETY: the offset is that of a frame inside of the allocation, and the skew less than one.
        unsafe { self.memory.add(offset + self.skew) }
    }

    fn zone(&self, frame: Pfn) -> Zone {
        let after = self.map.partition_point(|range| range.start <= frame);
        self.map[after - 1].zone
    }

    /// The bytes of a frame of any zone.
    fn bytes(&self, frame: Pfn) -> FrameBytes<'_> {
        // SAFETY: the frame is memory of this size, for as long as the machine
        // lives; the core touches it as we do (condition 5 of `Platform`).
        unsafe { FrameBytes::new(self.address(frame), 1 << self.frame_shift) }
    }

    /// A frame of any zone, for looking at its bytes in a test.
    pub(crate) fn peek(&self, frame: Pfn) -> &[u8] {
        // SAFETY: the frame is memory of this size; the test that looks does
        // so while nobody writes.
        unsafe { core::slice::from_raw_parts(self.address(frame).as_ptr(), 1 << self.frame_shift) }
    }

    /// Overwrites a frame that the test owns.
    pub(crate) fn scribble(&self, frame: Pfn, byte: u8) {
        self.bytes(frame).fill(u64::from_ne_bytes([byte; 8]));
    }
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

// SAFETY: the frames are the machine's own memory, aligned and distinct; pins
// are checked to be one caller's per CPU; there is no TLB, so a flush has
// nothing to do.
unsafe impl Machine for TestMachine {
    fn cpus(&self) -> usize {
        self.cpus.len()
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        self.nodes_of[usize::from(cpu.0)]
    }

    fn frame_shift(&self) -> u32 {
        self.frame_shift
    }

    fn memory_map(&self) -> &[MemoryRange] {
        &self.map
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        10 + 10 * u32::from(from.0.abs_diff(to.0))
    }

    fn pin(&self) -> CpuId {
        let cpu = CpuId(CURRENT_CPU.get());
        let state = &self.cpus[usize::from(cpu.0)];
        if state.pins.fetch_add(1, Ordering::AcqRel) == 0 {
            state.owner.store(this_task(), Ordering::Relaxed);
        }
        assert_eq!(
            state.owner.load(Ordering::Relaxed),
            this_task(),
            "two threads are pinned to one CPU"
        );
        cpu
    }

    fn unpin(&self, cpu: CpuId) {
        let state = &self.cpus[usize::from(cpu.0)];
        let last = state.pins.fetch_sub(1, Ordering::AcqRel) == 1;
        let is_open = |window: &AtomicU64| window.load(Ordering::Relaxed) != NO_FRAME;
        if last && !thread::panicking() {
            assert!(!state.windows.iter().any(is_open), "a window was left open");
            if let Some(tasks) = &self.alone
                && self.preempt.swap(false, Ordering::Relaxed)
            {
                tasks.step_back();
            }
        }
    }

    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        assert_eq!(self.zone(frame), Zone::Low, "{frame:?} needs a window");
        self.address(frame)
    }

    fn window(&self, cpu: CpuId, slot: WindowSlot, frame: Pfn) -> NonNull<u8> {
        let window = &self.cpus[usize::from(cpu.0)].windows[slot.index()];
        let before = window.swap(u64::from(frame.0) + 1, Ordering::Relaxed);
        assert_eq!(before, NO_FRAME, "{slot:?} was open");
        self.address(frame)
    }

    fn close_window(&self, cpu: CpuId, slot: WindowSlot) {
        let window = &self.cpus[usize::from(cpu.0)].windows[slot.index()];
        assert_ne!(
            window.swap(NO_FRAME, Ordering::Relaxed),
            NO_FRAME,
            "{slot:?} was closed"
        );
    }

    fn flush(&self, _from: CpuId, cpus: CpuSet<'_>, request: &Flush) {
        unwatched(|| {
            let cpus = cpus.iter(self.cpus.len()).collect();
            self.flushes.lock().unwrap().push((cpus, *request));
        });
        // Taken out meanwhile: what it does may flush, too.
        let look = self.on_flush.lock().unwrap().take();
        if let Some(look) = look {
            look();
            self.on_flush.lock().unwrap().get_or_insert(look);
        }
    }

    fn root_made(&self, root: Pfn) {
        if let Some(word) = self.kernel_half {
            let words = self.bytes(root).words();
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            for entry in &words[words.len() / 2..] {
                entry.store(word, Ordering::Relaxed);
            }
            self.roots.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn root_ends(&self, root: Pfn) {
        if let Some(word) = self.kernel_half {
            let words = self.bytes(root).words();
            for entry in &words[words.len() / 2..] {
                assert_eq!(
                    entry.swap(0, Ordering::Relaxed),
                    word,
                    "the core changed it"
                );
            }
            self.roots.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn is_loaded(&self, space: SpaceTag) -> bool {
        self.loaded.load(Ordering::Relaxed) == space.0
    }

    fn relax(&self, _spins: u32) {
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        let patience = self.patience.load(Ordering::Relaxed);
        assert!(waits < patience, "a wait that does not end");
        if let Some(happens) = &mut *self.on_relax.lock().unwrap() {
            happens();
        }
        if let Some(tasks) = &self.alone {
            return tasks.relax();
        }
        // Two threads may share a processor.
        thread::yield_now();
    }

    fn wake_reclaim(&self, _node: NodeId) {
        self.reclaim_wakes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Sleep for TestMachine {
    fn current_task(&self) -> TaskToken {
        let task = this_task();
        unwatched(|| {
            let mut tasks = self.tasks.lock().unwrap();
            tasks.entry(task).or_insert_with(thread::current);
        });
        TaskToken(task)
    }

    fn park(&self) {
        self.check_unpinned();
        self.parks.fetch_add(1, Ordering::Relaxed);
        match &self.alone {
            Some(tasks) => tasks.park(),
            None => thread::park(),
        }
    }

    fn unpark(&self, task: TaskToken) {
        if let Some(tasks) = &self.alone {
            return tasks.unpark(task.0);
        }
        if let Some(thread) = self.tasks.lock().unwrap().get(&task.0) {
            thread.unpark();
        }
    }
}

impl Store for TestMachine {
    unsafe fn read_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        unwatched(|| self.read.lock().unwrap().push((index, 1)));
        self.fill_from_store(store, index, frame)
    }

    fn write_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        unwatched(|| self.written.lock().unwrap().push((index, 1)));
        self.take_to_store(store, index, frame)
    }

    unsafe fn read_pages(&self, store: u64, first: u64, frames: &[Pfn]) -> Result<(), IoError> {
        unwatched(|| self.read.lock().unwrap().push((first, frames.len())));
        (first..)
            .zip(frames)
            .try_for_each(|(index, &frame)| self.fill_from_store(store, index, frame))
    }

    fn write_pages(&self, store: u64, first: u64, frames: &[Pfn]) -> Result<(), IoError> {
        unwatched(|| self.written.lock().unwrap().push((first, frames.len())));
        (first..)
            .zip(frames)
            .try_for_each(|(index, &frame)| self.take_to_store(store, index, frame))
    }

    fn write_slot(&self, store: u64, slot: u64, frame: Pfn) -> Result<(), SlotError> {
        if self.is_full(store) {
            return Err(SlotError::NoRoom);
        }
        Ok(self.write_page(store, slot, frame)?)
    }

    fn has_swap_room(&self, store: u64) -> bool {
        !self.tells_room.load(Ordering::Relaxed) || !self.is_full(store)
    }

    fn slot_freed(&self, store: u64, slot: u64) {
        let had = unwatched(|| self.store.lock().unwrap().remove(&(store, slot)).is_some());
        assert!(had, "slot {slot} is free, and had no page");
    }

    fn write_speed(&self, _store: u64) -> Option<u64> {
        let speed = self.write_speed.load(Ordering::Relaxed);
        (speed > 0).then_some(speed)
    }

    fn flush_store(&self, _store: u64) -> Result<(), IoError> {
        self.store_flushes.fetch_add(1, Ordering::Relaxed);
        let broken = self.broken_store.load(Ordering::Relaxed);
        (!broken).then_some(()).ok_or(IoError)
    }

    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        if self.broken_store.load(Ordering::Relaxed) {
            return Err(IoError);
        }
        let gone = |&(owner, index): &(u64, u64)| owner == store && pages.contains(&index);
        unwatched(|| self.store.lock().unwrap().retain(|key, _| !gone(key)));
        Ok(())
    }

    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
        self.check_unpinned();
        let pages = self.store.lock().unwrap();
        if !stored {
            return (index..).find(|&index| !pages.contains_key(&(store, index)));
        }
        let of_store = pages.keys().filter(|(owner, _)| *owner == store);
        let indices = of_store.map(|&(_, page)| page);
        indices.filter(|page| *page >= index).min()
    }
}

impl Policy for TestMachine {
    fn out_of_memory(&self, victim: Option<Victim>) -> Rescue {
        match &mut *self.rescue.lock().unwrap() {
            Some(rescue) => rescue(victim),
            None => Rescue::Fail,
        }
    }

    fn group_above_high(&self, _: crate::platform::GroupId, pages: u64) {
        self.above_high.fetch_max(pages, Ordering::Relaxed);
    }

    fn fault_hook(&self, fault: &HookedFault) -> HookAnswer {
        let hook = self.hook.lock().unwrap().clone();
        hook.map_or(HookAnswer::Fail, |hook| hook(fault))
    }
}
