//! Frame allocators: 1 GiB in frames of 4 KiB.

mod peers;

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use spin::Mutex;
use vellum::addr::Pfn;
use vellum::frame::{OwnedBlock, Request, Site};
use vellum::platform::CpuId;
use vellum::sync::Pin;

use self::peers::{Bitmap, BuddySlab, BuddySystem, Stack};
use crate::measure::{Arm, Timed};
use crate::ours::{self, Memory, NAMES};
use crate::rows::Rows;
use crate::{Failure, random};

const FRAMES: usize = 1 << 18;
const RAM: u64 = (FRAMES as u64) << 12;
/// Frames held at once by a bulk: several times what a CPU's list of ours keeps,
/// so that it is the allocator behind the list that works.
const BULK: usize = 8192;
const BLOCK: usize = 512;
const PAGE: Request = Request::page(Site::AnonymousPage);

/// An allocator in the hands of one thread.
trait Frames {
    fn alloc(&mut self) -> usize;
    fn free(&mut self, frame: usize);
}

/// The same for blocks of 512 frames.
trait Blocks {
    fn alloc_block(&mut self) -> usize;
    fn free_block(&mut self, frame: usize);
}

/// Ours, for a pinned caller.
struct Pinned<'a> {
    memory: &'a Memory,
    pin: Pin<'a>,
}

impl Frames for Pinned<'_> {
    #[inline]
    fn alloc(&mut self) -> usize {
        let frame = self.memory.alloc_owned(&self.pin, PAGE);
        frame.expect("a frame is free").into_raw().index()
    }
    /// By the only user, as with the others.
    #[inline]
    fn free(&mut self, frame: usize) {
        let frame = Pfn(frame as u32);
        // SAFETY: the rows give back what `alloc` took, once.
        let owned = unsafe { OwnedBlock::from_raw(self.memory, frame, 0) };
        owned.free(&self.pin);
    }
}

/// The same with a reference dropped, which may or may not be the last.
struct Counted<'a>(Pinned<'a>);

impl Frames for Counted<'_> {
    #[inline]
    fn alloc(&mut self) -> usize {
        self.0.alloc()
    }
    #[inline]
    fn free(&mut self, frame: usize) {
        // SAFETY: as above; the reference that the frame was handed out with.
        unsafe { self.0.memory.put_raw(&self.0.pin, Pfn(frame as u32), 0) };
    }
}

impl Blocks for Pinned<'_> {
    #[inline]
    fn alloc_block(&mut self) -> usize {
        let block = self.memory.alloc_owned(&self.pin, PAGE.order(9));
        block.expect("a block is free").into_raw().index()
    }
    #[inline]
    fn free_block(&mut self, frame: usize) {
        let first = Pfn(frame as u32);
        // SAFETY: the rows give back what `alloc_block` took, once.
        let owned = unsafe { OwnedBlock::from_raw(self.memory, first, 9) };
        owned.free(&self.pin);
    }
}

/// Ours, pinned for every call.
struct PinnedEachTime<'a>(&'a Memory);

impl Frames for PinnedEachTime<'_> {
    #[inline]
    fn alloc(&mut self) -> usize {
        let frame = self.0.alloc(&self.0.pin(), PAGE);
        frame.expect("a frame is free").index()
    }
    #[inline]
    fn free(&mut self, frame: usize) {
        // SAFETY: the rows give back what `alloc` took, once.
        unsafe { self.0.put_raw(&self.0.pin(), Pfn(frame as u32), 0) };
    }
}

impl<T: Frames> Frames for &Mutex<T> {
    #[inline]
    fn alloc(&mut self) -> usize {
        self.lock().alloc()
    }
    #[inline]
    fn free(&mut self, frame: usize) {
        self.lock().free(frame);
    }
}

fn pairs(frames: &mut impl Frames, count: u64) -> Timed {
    Timed::of(count, || {
        for _ in 0..count {
            let frame = frames.alloc();
            frames.free(black_box(frame));
        }
    })
}

fn bulks(frames: &mut impl Frames, held: &mut Vec<usize>, count: u64) -> Timed {
    Timed::of(count * BULK as u64, || {
        for _ in 0..count {
            held.extend((0..BULK).map(|_| frames.alloc()));
            for frame in held.drain(..) {
                frames.free(frame);
            }
        }
    })
}

fn churn(frames: &mut impl Frames, pool: &mut [usize], state: &mut u64, count: u64) -> Timed {
    Timed::of(count, || {
        for _ in 0..count {
            let slot = random::below(state, pool.len());
            frames.free(pool[slot]);
            pool[slot] = frames.alloc();
        }
    })
}

fn block_pairs(blocks: &mut impl Blocks, count: u64) -> Timed {
    Timed::of(count, || {
        for _ in 0..count {
            let frame = blocks.alloc_block();
            blocks.free_block(black_box(frame));
        }
    })
}

/// Half of all frames, in random order.
fn half(frames: &mut impl Frames) -> Vec<usize> {
    let mut pool: Vec<usize> = (0..FRAMES / 2).map(|_| frames.alloc()).collect();
    vellum_lab::stats::Random::seeded(1).shuffle(&mut pool);
    pool
}

/// Tries until both threads keep their CPUs for a slice.
const TRIES: u32 = 10;

/// Runs `work` on two threads at once: the mean of their CPU times. Spinning
/// for a lock is CPU time, having lost the CPU is not; but then the other
/// thread was alone, so the slice is tried again.
fn on_both(work: impl Fn(u16) -> Timed + Sync) -> Timed {
    for _ in 1..TRIES {
        if let (timed, true) = on_both_once(&work) {
            return timed;
        }
    }
    on_both_once(&work).0
}

/// One try, and whether neither thread lost its CPU.
fn on_both_once(work: &(impl Fn(u16) -> Timed + Sync)) -> (Timed, bool) {
    let here = AtomicUsize::new(0);
    let run = |cpu| {
        here.fetch_add(1, Ordering::AcqRel);
        while here.load(Ordering::Acquire) < 2 {
            std::hint::spin_loop();
        }
        let begun = Instant::now();
        let timed = work(cpu);
        let wall = begun.elapsed().as_nanos() as u64;
        (timed, wall < timed.ns + timed.ns / 4)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let (mine, kept) = run(0);
        match other.join() {
            Ok((other, kept_too)) => {
                let ns = (mine.ns + other.ns) / 2;
                (Timed { ns, ..mine }, kept && kept_too)
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn with<T>(memory: &Memory, cpu: u16, work: impl FnOnce(Pinned<'_>) -> T) -> T {
    let board = memory.platform();
    board.run_on(CpuId(cpu), || {
        let pin = memory.pin();
        work(Pinned { memory, pin })
    })
}

/// An arm that calls `work` with the allocator.
fn arm<T: 'static>(
    name: &'static str,
    mut frames: T,
    mut work: impl FnMut(&mut T, u64) -> Timed + 'static,
) -> Arm {
    Arm::new(name, move |count| work(&mut frames, count))
}

const FLOOR: &str = "stack behind a lock";
const BITMAP: &str = "bitmap-allocator";
const BUDDY_SYSTEM: &str = "buddy_system_allocator";
const BUDDY_SLAB: &str = "buddy-slab-allocator";

/// Runs the group.
pub fn run(rows: &mut Rows<'_>) -> Result<(), Failure> {
    rows.row("frame: allocate and free", pair_arms)?;
    rows.row("frame: 8192 allocated, then freed", bulk_arms)?;
    rows.row("frame: free one of half of all, allocate one", churn_arms)?;
    rows.row("block of 512 frames: allocate and free", block_arms)?;
    rows.row("two threads: allocate and free a frame", |arms| {
        both_arms(&PairHalf, arms)
    })?;
    rows.row("two threads: 8192 frames each", |arms| {
        both_arms(&BulkHalf, arms)
    })
}

/// Adds both instances of ours.
fn ours_twice(
    arms: &mut Vec<Arm>,
    mut prepare: impl FnMut(&Memory) -> Slice,
) -> Result<(), Failure> {
    for name in NAMES {
        let memory = ours::memory(RAM)?;
        let mut slice = prepare(&memory);
        arms.push(arm(name, memory, move |memory, count| {
            with(memory, 0, |frames| slice(frames, count))
        }));
    }
    Ok(())
}

/// A slice of ours, with what it keeps between slices.
type Slice = Box<dyn FnMut(Pinned<'_>, u64) -> Timed>;

fn floor() -> Mutex<Stack> {
    Mutex::new(Stack::new())
}

fn pair_arms(arms: &mut Vec<Arm>) -> Result<(), Failure> {
    ours_twice(arms, |_| {
        Box::new(|mut frames, count| pairs(&mut frames, count))
    })?;
    let memory = ours::memory(RAM)?;
    arms.push(arm("Vellum, counted", memory, |memory, count| {
        with(memory, 0, |frames| pairs(&mut Counted(frames), count))
    }));
    let memory = ours::memory(RAM)?;
    arms.push(arm("Vellum, pinned for each", memory, |memory, count| {
        let board = memory.platform();
        board.run_on(CpuId(0), || pairs(&mut PinnedEachTime(memory), count))
    }));
    arms.push(arm(FLOOR, floor(), |stack, count| {
        pairs(&mut &*stack, count)
    }));
    arms.push(arm(BITMAP, Bitmap::new(), pairs));
    arms.push(arm(BUDDY_SYSTEM, BuddySystem::new(), pairs));
    arms.push(arm(BUDDY_SLAB, BuddySlab::new()?, pairs));
    Ok(())
}

fn bulk_arms(arms: &mut Vec<Arm>) -> Result<(), Failure> {
    fn bulk<T: Frames>() -> impl FnMut(&mut T, u64) -> Timed {
        let mut held = Vec::with_capacity(BULK);
        move |frames, count| bulks(frames, &mut held, count)
    }
    ours_twice(arms, |_| {
        let mut held = Vec::with_capacity(BULK);
        Box::new(move |mut frames, count| bulks(&mut frames, &mut held, count))
    })?;
    let mut held = Vec::with_capacity(BULK);
    arms.push(arm(FLOOR, floor(), move |stack, count| {
        bulks(&mut &*stack, &mut held, count)
    }));
    arms.push(arm(BITMAP, Bitmap::new(), bulk()));
    arms.push(arm(BUDDY_SYSTEM, BuddySystem::new(), bulk()));
    arms.push(arm(BUDDY_SLAB, BuddySlab::new()?, bulk()));
    Ok(())
}

fn churn_arms(arms: &mut Vec<Arm>) -> Result<(), Failure> {
    fn churning<T: Frames>(mut frames: T) -> (T, impl FnMut(&mut T, u64) -> Timed) {
        let (mut pool, mut state) = (half(&mut frames), random::SEED);
        let work = move |frames: &mut T, count| churn(frames, &mut pool, &mut state, count);
        (frames, work)
    }
    ours_twice(arms, |memory| {
        let mut pool = with(memory, 0, |mut frames| half(&mut frames));
        let mut state = random::SEED;
        Box::new(move |mut frames, count| churn(&mut frames, &mut pool, &mut state, count))
    })?;
    let stack = floor();
    let (mut pool, mut state) = (half(&mut &stack), random::SEED);
    arms.push(arm(FLOOR, stack, move |stack, count| {
        churn(&mut &*stack, &mut pool, &mut state, count)
    }));
    let (frames, work) = churning(Bitmap::new());
    arms.push(arm(BITMAP, frames, work));
    let (frames, work) = churning(BuddySystem::new());
    arms.push(arm(BUDDY_SYSTEM, frames, work));
    let (frames, work) = churning(BuddySlab::new()?);
    arms.push(arm(BUDDY_SLAB, frames, work));
    Ok(())
}

fn block_arms(arms: &mut Vec<Arm>) -> Result<(), Failure> {
    ours_twice(arms, |_| {
        Box::new(|mut frames, count| block_pairs(&mut frames, count))
    })?;
    arms.push(arm(BITMAP, Bitmap::new(), block_pairs));
    arms.push(arm(BUDDY_SYSTEM, BuddySystem::new(), block_pairs));
    arms.push(arm(BUDDY_SLAB, BuddySlab::new()?, block_pairs));
    Ok(())
}

/// What each of two threads does.
trait Half: Sync {
    fn run(&self, frames: &mut impl Frames, count: u64) -> Timed;
}

struct PairHalf;

impl Half for PairHalf {
    fn run(&self, frames: &mut impl Frames, count: u64) -> Timed {
        pairs(frames, count)
    }
}

struct BulkHalf;

impl Half for BulkHalf {
    fn run(&self, frames: &mut impl Frames, count: u64) -> Timed {
        bulks(frames, &mut Vec::with_capacity(BULK), count)
    }
}

fn both_arms(half: &'static impl Half, arms: &mut Vec<Arm>) -> Result<(), Failure> {
    for name in NAMES {
        let memory = ours::memory(RAM)?;
        arms.push(arm(name, memory, |memory, count| {
            let memory = &*memory;
            on_both(|cpu| with(memory, cpu, |mut frames| half.run(&mut frames, count)))
        }));
    }
    fn locked<T: Frames + Send + 'static>(
        name: &'static str,
        half: &'static impl Half,
        frames: Mutex<T>,
    ) -> Arm {
        arm(name, frames, |frames, count| {
            let frames = &*frames;
            on_both(|_| half.run(&mut &*frames, count))
        })
    }
    arms.push(locked(FLOOR, half, floor()));
    arms.push(locked(BITMAP, half, Mutex::new(Bitmap::new())));
    arms.push(locked(BUDDY_SYSTEM, half, Mutex::new(BuddySystem::new())));
    arms.push(locked(BUDDY_SLAB, half, Mutex::new(BuddySlab::new()?)));
    Ok(())
}
