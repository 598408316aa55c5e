//! A batch: words from the ring, one system call or one touch for each operation.

use core::sync::atomic::Ordering::Relaxed;

use super::memory::{letters, memory};
use super::protocol::*;
use super::{end, give_up, sys};

unsafe extern "C" {
    fn vellum_clone(flags: usize, child: *const Slot) -> isize;
    fn vellum_load(address: usize) -> usize;
    fn vellum_store(address: usize) -> usize;
}

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// The class index of what has no class.
const OTHER: usize = TIMES - 1;

/// Where the header of slot `number` lies.
pub fn header(number: u64) -> *const Slot {
    (SLOTS + number * SLOT_BYTES + HEADER_OFFSET) as *const Slot
}

const CLOCK_PROCESS: usize = 2;
const CLOCK_THREAD: usize = 3;

fn clock(which: usize) -> u64 {
    let mut time = [0u64; 2];
    let arguments = [which, time.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes the two words of `time`.
    unsafe { sys::call(sys::CLOCK_GETTIME, arguments) };
    time[0] * 1_000_000_000 + time[1]
}

fn add(slot: &Slot, class: usize, ns: u64, intervals: u64, ops: u64) {
    let Some(time) = slot.times.get(class) else {
        return;
    };
    for (sum, value) in [
        (&time.ns, ns),
        (&time.intervals, intervals),
        (&time.ops, ops),
    ] {
        // Nobody else writes while this task runs.
        sum.store(sum.load(Relaxed) + value, Relaxed);
    }
}

/// What the task has used since its birth is part of that.
pub fn born(slot: &Slot) {
    add(
        slot,
        slot.birth.load(Relaxed) as usize,
        clock(CLOCK_THREAD),
        1,
        0,
    );
}

/// What it has used since it called `execve` is part of that; a first program
/// has no such beginning.
pub fn arrived(slot: &Slot) {
    let begun = slot.clock.load(Relaxed);
    add(slot, EXEC_CLASS, clock(CLOCK_THREAD) - begun, 1, 0);
}

/// The class of `execve`, which its word has, but the new program has not.
const EXEC_CLASS: usize = 3;

/// Runs of operations of one class, timed.
struct Laps<'s> {
    slot: &'s Slot,
    on: bool,
    class: usize,
    begun: u64,
    ops: u64,
}

impl Laps<'_> {
    /// The next operation is of `class`.
    #[inline]
    fn next(&mut self, class: usize) {
        if !self.on {
            return;
        }
        if class != self.class {
            self.settle();
            self.class = class;
        }
        self.ops += 1;
    }

    /// Ends the interval; the next one begins.
    fn settle(&mut self) {
        if self.on {
            let now = clock(CLOCK_THREAD);
            if self.ops > 0 {
                add(self.slot, self.class, now - self.begun, 1, self.ops);
            }
            self.begun = now;
            self.ops = 0;
        }
    }
}

/// Executes the words in the ring.
pub fn batch(slot: &'static Slot) {
    let count = (slot.words.load(Relaxed) as usize).min(RING_WORDS);
    let mode = slot.mode.load(Relaxed);
    let empty = mode & MODE_EMPTY != 0;
    let mut laps = Laps {
        slot,
        on: mode & MODE_TIMED != 0,
        class: OTHER,
        begun: 0,
        ops: 0,
    };
    laps.settle();
    let mut place = 0;
    while place < count {
        let first = ring(place);
        let op = op_of(first);
        let rest = [ring(place + 1), ring(place + 2), ring(place + 3)];
        laps.next(class_of(first));
        match op {
            op::READ | op::WRITE if empty => {}
            op::READ | op::WRITE => touch(slot, first),
            op::CREATE => create(slot, rest),
            op::EXEC => {
                laps.settle();
                exec(slot, laps.begun);
            }
            op::EXIT => {
                add(slot, class_of(first), 0, 0, u64::from(laps.on));
                exit(slot, &mut laps);
            }
            op::WAIT => wait(rest[0] as usize),
            op::REAP => while wait4(usize::MAX, 1) > 0 {},
            op::QUIT => {
                while wait4(usize::MAX, 0) > 0 {}
                end(0);
            }
            op::MAP..=op::TRUNCATE => memory(slot, first, rest, mode),
            _ => give_up(slot, FATAL_WORD, -22),
        }
        place += op::words(op);
    }
    laps.settle();
}

/// A word of the ring, zero beyond its end.
#[inline]
fn ring(place: usize) -> u64 {
    if place >= RING_WORDS {
        return 0;
    }
    // SAFETY: the ring is mapped, and nobody writes it while a task works.
    unsafe { *(RING as *const u64).add(place) }
}

#[inline]
fn touch(slot: &Slot, word: u64) {
    let address = page_of(word) as usize * PAGE;
    // SAFETY: the stub's own memory is in no workload; the driver sees to that.
    // What a store changes is only the workload's, and a refusal comes back as 1.
    let refused = unsafe {
        match op_of(word) {
            op::READ => vellum_load(address),
            _ => vellum_store(address),
        }
    };
    if refused != 0 {
        const BAD_ADDRESS: isize = -14;
        note(slot, [word, 0, 0, 0], BAD_ADDRESS);
    }
}

/// Counts a refusal and keeps the first.
#[cold]
pub fn note(slot: &Slot, words: [u64; 4], error: isize) {
    let failed = slot.failed.load(Relaxed);
    if failed == 0 {
        for (kept, word) in slot.failed_words.iter().zip(words) {
            kept.store(word, Relaxed);
        }
        slot.failed_error.store(-error as u64, Relaxed);
    }
    slot.failed.store(failed + 1, Relaxed);
}

fn create(slot: &Slot, rest: [u64; 3]) {
    // SAFETY: the child has the slot that the driver chose, and nobody else has.
    let id = unsafe { vellum_clone(rest[0] as usize, header(rest[1])) };
    if id < 0 {
        give_up(slot, FATAL_CREATE, id);
    }
}

fn exec(slot: &Slot, now: u64) -> ! {
    const AT_EMPTY_PATH: usize = 0x1000;
    slot.clock.store(now, Relaxed);
    let number = (core::ptr::from_ref(slot) as u64 - HEADER_OFFSET - SLOTS) / SLOT_BYTES;
    let mut name = [0u8; 9];
    letters(number, &mut name);
    let arguments = [name.as_ptr() as usize, 0];
    let none = [0usize];
    let path = c"".as_ptr() as usize;
    let call = [
        FD_STUB as usize,
        path,
        arguments.as_ptr() as usize,
        none.as_ptr() as usize,
        AT_EMPTY_PATH,
        0,
    ];
    // SAFETY: strings and lists end with zero and outlive the call, which returns
    // only if it failed.
    let failed = unsafe { sys::call(sys::EXECVEAT, call) };
    give_up(slot, FATAL_EXEC, failed)
}

fn exit(slot: &Slot, laps: &mut Laps<'_>) -> ! {
    // The exit itself is timed by the driver, which sees its end.
    laps.ops = laps.ops.saturating_sub(1);
    laps.settle();
    if laps.on {
        slot.clock.store(clock(CLOCK_PROCESS), Relaxed);
    }
    loop {
        // SAFETY: does not return.
        unsafe { sys::call(sys::EXIT, [0; 6]) };
    }
}

fn wait(process: usize) {
    wait4(process, 0);
}

fn wait4(process: usize, options: usize) -> isize {
    const INTERRUPTED: isize = -4;
    loop {
        // SAFETY: neither status nor usage is asked for.
        let waited = unsafe { sys::call(sys::WAIT4, [process, 0, options, 0, 0, 0]) };
        if waited != INTERRUPTED {
            return waited;
        }
    }
}
