//! Zeroing a page with ordinary stores and with stores that pass the caches by:
//! nanoseconds a page for the zeroing alone, and with what its user pays then to
//! write one line, or all, of it. Each in sets of pages that fit the near caches,
//! the far one, or none, in random order.
//!
//! Then pages out of the caches in rows of several lengths: zeroed, zeroed while
//! the page that comes next is asked for, and copied to.
//!
//! The rows of a set are interleaved, forth and back.
//!
//! Last, the ways of `FrameBytes` beside the standard library's `memset` and
//! `memcpy`, which they must not be slower than: ratios of the times of turns that
//! follow each other, with the middle half of them and a control, the library
//! against itself. Run with `cargo bench -p vellum --bench zeroing`, and with
//! `-- ratios` for this table alone.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Instant;

use vellum::sync::bytes::FrameBytes;

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// 512 MiB of pages.
const PAGES: usize = 1 << 17;
/// Pages of each set: 256 KiB, 4 MiB, 32 MiB, 512 MiB.
const SETS: [usize; 4] = [64, 1024, 8192, PAGES];
/// Lines of each page that its user writes.
const USES: [usize; 3] = [0, 1, 64];
const ROUNDS: usize = 9;
/// Pages of a round at least.
const ROUND_PAGES: usize = 1 << 15;

/// Memory of the host, in large pages where it has them.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    fn new() -> Memory {
        let layout = Layout::from_size_align(PAGES * PAGE_BYTES, 2 << 20).expect("a valid layout");
        // SAFETY: the layout is not of size 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("512 MiB of memory");
        // Written once: what is measured is not the host's page faults.
        // SAFETY: the memory is of that size, and nobody else's.
        unsafe { start.as_ptr().write_bytes(1, layout.size()) };
        Memory { start, layout }
    }

    fn page(&self, number: u32) -> NonNull<u8> {
        assert!((number as usize) < PAGES);
        // SAFETY: the page lies in the memory.
        unsafe { self.start.add(number as usize * PAGE_BYTES) }
    }

    fn bytes(&self, number: u32) -> FrameBytes<'_> {
        // SAFETY: a page of the memory, aligned to its size, used by nobody else.
        unsafe { FrameBytes::new(self.page(number), PAGE_BYTES) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// How to zero a page.
#[derive(Clone, Copy)]
enum Way {
    Ordinary,
    AroundCaches,
    TowardsNext,
}

/// Zeroes each page of `order` and writes `lines` lines of it; nanoseconds a page.
fn round(memory: &Memory, order: &[u32], way: Way, lines: usize) -> f64 {
    let repeats = ROUND_PAGES.div_ceil(order.len());
    let begun = Instant::now();
    let numbers = || (0..repeats).flat_map(|_| order);
    for (&number, &next) in numbers().zip(numbers().cycle().skip(1)) {
        let page = memory.page(number);
        let bytes = memory.bytes(number);
        match way {
            Way::Ordinary => bytes.zero(),
            Way::AroundCaches => bytes.zero_around_caches(),
            Way::TowardsNext => bytes.zero_towards(memory.page(next).as_ptr()),
        }
        for line in 0..lines {
            // The line of a single write is another one in each page.
            let at = (number as usize * 7 + line) % (PAGE_BYTES / LINE_BYTES) * LINE_BYTES;
            // SAFETY: inside the page, and aligned.
            unsafe { page.add(at).cast::<u64>().write_volatile(1) };
        }
        black_box(page);
    }
    begun.elapsed().as_nanos() as f64 / (repeats * order.len()) as f64
}

/// The numbers below `pages` in a random order, always the same one.
fn shuffled(pages: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..pages as u32).collect();
    let mut state = 1u64;
    for index in (1..pages).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(index, (state >> 33) as usize % (index + 1));
    }
    order
}

/// The numbers below `pages` in rows of `length` in a random order.
fn shuffled_rows(pages: usize, length: usize) -> Vec<u32> {
    let rows = shuffled(pages / length);
    let length = length as u32;
    rows.into_iter()
        .flat_map(|row| row * length..(row + 1) * length)
        .collect()
}

/// Copies each page of `from` to the page of `to` in the same place;
/// nanoseconds a page.
fn copies(memory: &Memory, from: &[u32], to: &[u32]) -> f64 {
    let begun = Instant::now();
    for (&from, &to) in from.iter().zip(to) {
        memory.bytes(to).copy_from(memory.bytes(from));
        black_box(memory.page(to));
    }
    begun.elapsed().as_nanos() as f64 / from.len() as f64
}

/// Pages that follow each other.
const ROWS: [usize; 6] = [1, 2, 4, 8, 64, 512];

fn print_rows(memory: &Memory) {
    println!();
    println!(
        "{:>12}{:>16}{:>24}{:>12}",
        "in a row", "zeroing", "towards the next", "copying"
    );
    let half = PAGES / 2;
    let rows = ROWS.map(|length| shuffled_rows(half, length));
    // What is copied comes from anywhere.
    let mut sources = shuffled(half);
    sources.truncate(ROUND_PAGES);
    sources.iter_mut().for_each(|page| *page += half as u32);
    let mut times = ROWS.map(|_| [const { Vec::new() }; 3]);
    for number in 0..=ROUNDS {
        for index in 0..ROWS.len() {
            let index = if number % 2 == 0 {
                index
            } else {
                ROWS.len() - 1 - index
            };
            let (zeroed, copied) = rows[index].split_at(ROUND_PAGES);
            let taken = [
                round(memory, zeroed, Way::Ordinary, 0),
                round(memory, zeroed, Way::TowardsNext, 0),
                copies(memory, &sources, copied),
            ];
            if number > 0 {
                for (times, time) in times[index].iter_mut().zip(taken) {
                    times.push(time);
                }
            }
        }
    }
    for (row, times) in ROWS.iter().zip(&mut times) {
        let [zeroing, towards, copying] = times.each_mut().map(|times| median(times));
        println!("{row:>12}{zeroing:>16.1}{towards:>24.1}{copying:>12.1}");
    }
}

/// What a turn of the last table does to the page `to`; `from` is another.
type Work = fn(memory: &Memory, from: u32, to: u32);

fn library_zero(memory: &Memory, _from: u32, to: u32) {
    // SAFETY: a page of the memory, used by nobody else.
    unsafe { memory.page(to).as_ptr().write_bytes(0, PAGE_BYTES) };
}

fn library_copy(memory: &Memory, from: u32, to: u32) {
    let [from, to] = [from, to].map(|number| memory.page(number));
    // SAFETY: two pages of the memory, used by nobody else.
    unsafe { from.copy_to_nonoverlapping(to, PAGE_BYTES) };
}

fn library_towards(memory: &Memory, from: u32, to: u32) {
    zero_lines(
        memory.page(to).as_ptr(),
        memory.page(from).as_ptr(),
        PAGE_BYTES,
    );
}

/// Zeroing by lines as the compiler makes it of ordinary stores, for any size.
#[inline(never)]
fn zero_lines(page: *mut u8, next: *const u8, bytes: usize) {
    for line in (0..black_box(bytes)).step_by(LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching has no effect on memory.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(line).cast());
        }
        // SAFETY: a line of a page of the memory, used by nobody else.
        unsafe { page.add(line).write_bytes(0, LINE_BYTES) };
    }
}

/// Name, the library's way, and ours.
const PAIRS: [(&str, Work, Work); 4] = [
    ("control", library_zero, library_zero),
    ("zero", library_zero, |memory, _, to| {
        memory.bytes(to).zero()
    }),
    ("zero towards", library_towards, |memory, from, to| {
        memory.bytes(to).zero_towards(memory.page(from).as_ptr());
    }),
    ("copy", library_copy, |memory, from, to| {
        memory.bytes(to).copy_from(memory.bytes(from));
    }),
];

/// Pages of one turn, and turns of each way.
const TURN_PAGES: usize = 64;
const TURNS: usize = 4000;

fn print_ratios(memory: &Memory) {
    println!();
    println!(
        "{:>12}{:>16}{:>12}{:>8}   middle half of the ratios",
        "pages in use", "", "library, ns", "ratio"
    );
    for set in [4, 64, 1024, 8192, PAGES / 2] {
        let order = shuffled(set);
        for (name, library, ours) in PAIRS {
            let mut at = 0;
            let mut turn = |work: Work| {
                let begun = Instant::now();
                for _ in 0..TURN_PAGES {
                    let to = order[at % set];
                    // For zeroing, the page that comes next; for copying, one of the
                    // other half.
                    at += 1;
                    let next = order[at % set];
                    let from = if name == "copy" {
                        next + (PAGES / 2) as u32
                    } else {
                        next
                    };
                    work(memory, black_box(from), black_box(to));
                }
                begun.elapsed().as_nanos() as f64 / TURN_PAGES as f64
            };
            let (mut times, mut ratios) = (Vec::new(), Vec::new());
            for number in 0..TURNS {
                let [theirs, mine] = if number % 2 == 0 {
                    [library, ours].map(&mut turn)
                } else {
                    let [mine, theirs] = [ours, library].map(&mut turn);
                    [theirs, mine]
                };
                times.push(theirs);
                ratios.push(mine / theirs);
            }
            let (time, ratio) = (median(&mut times), median(&mut ratios));
            let [low, high] = [TURNS / 4, TURNS * 3 / 4].map(|place| ratios[place]);
            println!("{set:>12}{name:>16}{time:>12.1}{ratio:>8.3}   {low:.3}..{high:.3}");
        }
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let memory = Memory::new();
    if std::env::args().any(|argument| argument == "ratios") {
        print_ratios(&memory);
        return;
    }
    println!("ns a page, median of {ROUNDS} rounds");
    println!(
        "{:>12}{:>16}{:>12}{:>16}",
        "pages in use", "lines written", "ordinary", "around caches"
    );
    for set in SETS {
        let order = shuffled(set);
        for lines in USES {
            let mut times = [Vec::new(), Vec::new()];
            let ways = [Way::Ordinary, Way::AroundCaches];
            // The first round warms up.
            for number in 0..=ROUNDS {
                for which in [number % 2, 1 - number % 2] {
                    let time = round(&memory, &order, ways[which], lines);
                    if number > 0 {
                        times[which].push(time);
                    }
                }
            }
            let [ordinary, around] = times.each_mut().map(|times| median(times));
            println!("{set:>12}{lines:>16}{ordinary:>12.1}{around:>16.1}");
        }
    }
    print_rows(&memory);
    print_ratios(&memory);
}
