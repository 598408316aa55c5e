//! Times of the frame allocator and of arenas: nanoseconds for each operation,
//! as the median over rounds, with the fastest and the slowest round.
//!
//! Rows are interleaved, one round of each after the other forth and back, so
//! that a disturbance hits all alike. Run with `cargo bench -p vellum --bench
//! frame`, or with a row's name to see it alone.

use std::cell::Cell;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use vellum::addr::Pfn;
use vellum::frame::{PhysicalMemory, Request, Site};
use vellum::platform::{CpuId, CpuSet, Flush, MemoryRange, Policy, Sleep, Store, TaskToken};
use vellum::slab::{Arena, ArenaMaker, Batch, Handle, Item};
use vellum::sync::Pin;

/// Frames of 1 GiB.
const FRAMES: u32 = 1 << 18;
const ROUNDS: usize = 30;
const PAGE: Request = Request::page(Site::AnonymousPage);

std::thread_local! {
    static CPU: Cell<u16> = const { Cell::new(0) };
}

/// Two CPUs, one node, memory that is there but only touched where used.
struct Machine {
    map: [MemoryRange; 1],
    memory: NonNull<u8>,
}

const LAYOUT: std::alloc::Layout =
    match std::alloc::Layout::from_size_align((FRAMES as usize) << 12, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("the machine's memory has a layout"),
    };

impl Machine {
    fn new() -> Machine {
        let range = MemoryRange::new(Pfn(0), FRAMES);
        // SAFETY: the layout is not of size 0.
        let memory = unsafe { std::alloc::alloc(LAYOUT) };
        Machine {
            map: [range],
            memory: NonNull::new(memory).expect("1 GiB of address space"),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), LAYOUT) };
    }
}

// SAFETY: the memory is the machine's own, and handed out by its rules.
unsafe impl Sync for Machine {}

// SAFETY: frames are distinct parts of the machine's memory, aligned to their
// size; each benchmark thread sets a CPU number of its own; there is no TLB.
unsafe impl vellum::platform::Machine for Machine {
    fn cpus(&self) -> usize {
        2
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &self.map
    }
    fn pin(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn unpin(&self, _: CpuId) {}
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        // SAFETY: frames of the map are inside of the allocation.
        unsafe { self.memory.add(frame.index() << 12) }
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {}
}

impl Sleep for Machine {
    fn current_task(&self) -> TaskToken {
        TaskToken(0)
    }
    fn park(&self) {}
    fn unpark(&self, _: TaskToken) {}
}

impl Store for Machine {}

impl Policy for Machine {}

/// A node of one cache line, as the chains have.
#[repr(align(64))]
struct Node {
    link: AtomicU32,
}

impl Item for Node {
    const SITE: Site = Site::ChainNode;
    fn vacant() -> Self {
        Node {
            link: AtomicU32::new(0),
        }
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// What the rows work on. The arena is dropped before the memory.
struct Bench {
    arena: Arena<Node>,
    memory: PhysicalMemory<Machine>,
}

impl Bench {
    fn new() -> Bench {
        let memory = PhysicalMemory::new(Machine::new()).expect("a machine that can be");
        // SAFETY: used with the memory beside it, which is dropped after it.
        let maker = unsafe { ArenaMaker::new(2, memory.frame_count(), 4096) };
        Bench {
            arena: maker.make(),
            memory,
        }
    }

    /// Drops the only reference to a block that a row has taken.
    #[inline]
    fn put(&self, pin: &Pin<'_>, frame: Pfn, order: u32) {
        // SAFETY: the rows give back what they took, once.
        unsafe { self.memory.put_raw(pin, frame, order) };
    }

    fn pairs(&self, count: u32) {
        let pin = self.memory.pin();
        for _ in 0..count {
            let frame = self.memory.alloc(&pin, PAGE).expect("memory");
            self.put(&pin, black_box(frame), 0);
        }
    }

    fn pinned_pairs(&self, count: u32) {
        for _ in 0..count {
            let pin = self.memory.pin();
            let frame = self.memory.alloc(&pin, PAGE).expect("memory");
            self.put(&pin, black_box(frame), 0);
        }
    }

    fn zeroed_pairs(&self, count: u32) {
        let pin = self.memory.pin();
        for _ in 0..count {
            let frame = self.memory.alloc(&pin, PAGE.zeroed()).expect("memory");
            self.put(&pin, black_box(frame), 0);
        }
    }

    fn bulk(&self, count: u32) {
        let pin = self.memory.pin();
        let frames: Vec<Pfn> = (0..count)
            .map(|_| self.memory.alloc(&pin, PAGE).expect("memory"))
            .collect();
        for frame in frames {
            self.put(&pin, frame, 0);
        }
    }

    fn churn(&self, pool: &mut [Pfn], count: u32) {
        let pin = self.memory.pin();
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..count {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let slot = ((random >> 32) as usize * pool.len()) >> 32;
            self.put(&pin, pool[slot], 0);
            pool[slot] = self.memory.alloc(&pin, PAGE).expect("memory");
        }
    }

    fn half(&self) -> Vec<Pfn> {
        let pin = self.memory.pin();
        let mut pool: Vec<Pfn> = (0..FRAMES / 2)
            .map(|_| self.memory.alloc(&pin, PAGE).expect("memory"))
            .collect();
        let mut random = 1u64;
        for index in (1..pool.len()).rev() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            pool.swap(index, ((random >> 32) as usize * (index + 1)) >> 32);
        }
        pool
    }

    fn block_pairs(&self, count: u32) {
        let pin = self.memory.pin();
        for _ in 0..count {
            let frame = self.memory.alloc(&pin, PAGE.order(9)).expect("memory");
            self.put(&pin, black_box(frame), 9);
        }
    }

    fn slab_pairs(&self, count: u32) {
        let pin = self.memory.pin();
        for _ in 0..count {
            let handle = self.arena.alloc(&pin, &self.memory).expect("memory");
            self.arena.free(&pin, black_box(handle));
        }
    }

    fn slab_bulk(&self, count: u32) {
        let pin = self.memory.pin();
        let handles: Vec<Handle<Node>> = (0..count)
            .map(|_| self.arena.alloc(&pin, &self.memory).expect("memory"))
            .collect();
        for handle in handles {
            self.arena.free(&pin, handle);
        }
    }

    fn slab_batches(&self, count: u32) {
        let pin = self.memory.pin();
        for _ in 0..count / 512 {
            let mut batch = Batch::new();
            let got = self.arena.alloc_batch(&pin, &self.memory, 512, &mut batch);
            got.expect("memory");
            let mut back = Batch::new();
            while !batch.is_empty() {
                let handle = batch.pop(&self.arena);
                back.push(&self.arena, black_box(handle));
            }
            self.arena.free_batch(&pin, back);
        }
    }
}

/// Runs `work` on CPUs 0 and 1 at once; the mean of the two threads' times.
fn on_both(work: impl Fn() + Sync) -> Duration {
    let barrier = Barrier::new(2);
    let run = |cpu: u16| {
        CPU.set(cpu);
        barrier.wait();
        let start = Instant::now();
        work();
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let mine = run(0);
        (mine + other.join().expect("the thread ends")) / 2
    })
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

type Round<'a> = Box<dyn FnMut() -> Duration + 'a>;

/// One line of the table: a name, operations in a round, and the round.
struct Row<'a> {
    name: &'static str,
    count: u32,
    round: Round<'a>,
    times: Vec<f64>,
}

fn row<'a>(name: &'static str, count: u32, round: impl FnMut() -> Duration + 'a) -> Row<'a> {
    Row {
        name,
        count,
        round: Box::new(round),
        times: Vec::new(),
    }
}

fn rows<'a>(bench: &'a Bench, churned: &'a Bench, pool: &'a mut [Pfn]) -> Vec<Row<'a>> {
    let many = 500_000;
    let bulk = 65_536;
    let b = bench;
    vec![
        row("order-0 pair, 1 thread", many, move || {
            timed(|| b.pairs(many))
        }),
        row("order-0 pair, 2 threads", many, move || {
            on_both(|| b.pairs(many))
        }),
        row("order-0 pair, pinned each time", many, move || {
            timed(|| b.pinned_pairs(many))
        }),
        row("order-0 pair, zeroed", 100_000, move || {
            timed(|| b.zeroed_pairs(100_000))
        }),
        row("order-0 bulk 65536, 1 thread", bulk, move || {
            timed(|| b.bulk(bulk))
        }),
        row("order-0 bulk 65536, 2 threads", bulk, move || {
            on_both(|| b.bulk(bulk))
        }),
        row("order-0 random churn, half full", many, move || {
            timed(|| churned.churn(pool, many))
        }),
        row("order-9 pair, 1 thread", 100_000, move || {
            timed(|| b.block_pairs(100_000))
        }),
        row("create for 1 GiB", 1, || {
            let machine = Machine::new();
            let mut made = None;
            let time = timed(|| made = PhysicalMemory::new(machine).ok());
            assert!(made.is_some());
            time
        }),
        row("slab pair, 1 thread", many, move || {
            timed(|| b.slab_pairs(many))
        }),
        row("slab pair, 2 threads", many, move || {
            on_both(|| b.slab_pairs(many))
        }),
        row("slab bulk 65536, 1 thread", bulk, move || {
            timed(|| b.slab_bulk(bulk))
        }),
        row("slab batches of 512, a slot", bulk, move || {
            timed(|| b.slab_batches(bulk))
        }),
    ]
}

fn main() {
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let (bench, churned) = (Bench::new(), Bench::new());
    let mut pool = churned.half();
    let mut rows = rows(&bench, &churned, &mut pool);
    if let Some(wanted) = wanted {
        rows.retain(|row| row.name.contains(&wanted));
    }
    for round in 0..ROUNDS + 2 {
        let count = rows.len();
        for index in 0..count {
            let row = &mut rows[if round % 2 == 0 {
                index
            } else {
                count - 1 - index
            }];
            let time = (row.round)();
            // The first two rounds warm up.
            if round >= 2 {
                row.times
                    .push(time.as_nanos() as f64 / f64::from(row.count));
            }
        }
    }
    println!("median (fastest .. slowest), ns");
    for row in &mut rows {
        row.times.sort_by(f64::total_cmp);
        let (first, last) = (row.times[0], row.times[row.times.len() - 1]);
        let median = row.times[row.times.len() / 2];
        println!("{:<34}{median:>10.1}  ({first:.1} .. {last:.1})", row.name);
    }
    println!("bytes zeroed: {}", bench.memory.stats().bytes_zeroed);
}
