//! What the stub and the program that drives it agree on: where everything lies,
//! and how work is handed over. Both compile this very file.
//!
//! One area of the address space belongs to the stub, the same in every process;
//! the workload has all the rest:
//!
//! ```text
//! AREA   image      the stub: code and constants, never written
//! RING   ring       words of the batch at hand, read-only, shared
//! SLOTS  slots      one for each live task: buffer, stack, header; shared
//! ```
//!
//! Stacks and headers are shared memory: the stub has no private page that it
//! writes, so that a fork of it copies none.
//!
//! Handing over: the driver writes words to the ring and their number to the
//! header of one task, raises `turn`, and wakes it; the task executes them, sets
//! `done` to the same number, and wakes the driver. One task runs at a time.

#![allow(dead_code, reason = "each side uses its half")]

use core::sync::atomic::{AtomicU32, AtomicU64};

/// First address of the stub's area: 16 TiB.
pub const AREA: u64 = 0x1000_0000_0000;

/// First address of the ring.
pub const RING: u64 = AREA + (1 << 20);

/// Words in the ring: 64 KiB, which is one fault-around window.
pub const RING_WORDS: usize = 8192;

/// First address of the slots.
pub const SLOTS: u64 = AREA + (2 << 20);

/// Bytes of a slot: a page for file data, two that only a signal's frame reaches,
/// and one with the stack and, at its end, the header.
pub const SLOT_BYTES: u64 = 16 << 10;

/// Slots that there is room for.
pub const SLOTS_MOST: u64 = 1 << 16;

/// One past the stub's area.
pub const AREA_END: u64 = SLOTS + SLOTS_MOST * SLOT_BYTES;

/// Where user space ends with four levels of tables.
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// The slot of the keeper, the first process of a tree.
pub const KEEPER: u32 = 0;

/// Descriptors of every stub: the slots, the ring, the stub itself, and the
/// directory of the files.
pub const FD_SLOTS: i32 = 3;
/// See [`FD_SLOTS`].
pub const FD_RING: i32 = 4;
/// See [`FD_SLOTS`].
pub const FD_STUB: i32 = 5;
/// See [`FD_SLOTS`].
pub const FD_FILES: i32 = 6;

/// The driver hands the keeper the four from this number on; it moves them down.
pub const FD_HANDED: i32 = 200;

/// Classes of operation, and one for what has none.
pub const TIMES: usize = 15;

/// Memory operations are skipped: what is left is the stub's own cost.
pub const MODE_EMPTY: u32 = 1;
/// Time is taken by class.
pub const MODE_TIMED: u32 = 2;
/// Each private anonymous mapping is to have huge pages, wherever they fit.
pub const MODE_HUGE: u32 = 4;
/// Each private anonymous mapping is to have none; with a call for it, as for [`MODE_HUGE`].
pub const MODE_SMALL: u32 = 8;

/// What a word asks for. The words behind the first are named in brackets.
pub mod op {
    /// Load from the page.
    pub const READ: u8 = 1;
    /// Store to the page.
    pub const WRITE: u8 = 2;
    /// `mmap` [pages, file, page of the file].
    pub const MAP: u8 = 3;
    /// `munmap` (a range of pages).
    pub const UNMAP: u8 = 4;
    /// `mprotect` (a range of pages).
    pub const PROTECT: u8 = 5;
    /// `mremap` [pages, new page, new pages].
    pub const REMAP: u8 = 6;
    /// `madvise`: drop (a range of pages).
    pub const DROP: u8 = 7;
    /// `madvise`: may be dropped (a range of pages).
    pub const FREE: u8 = 8;
    /// `madvise`: not needed soon (a range of pages).
    pub const COLD: u8 = 9;
    /// `madvise`: to swap (a range of pages).
    pub const PAGE_OUT: u8 = 10;
    /// Read pages of a file; the page is the file's [file, pages].
    pub const FILE_READ: u8 = 11;
    /// Write pages of a file likewise [file, pages].
    pub const FILE_WRITE: u8 = 12;
    /// Set the length of a file in pages [file].
    pub const TRUNCATE: u8 = 13;
    /// `clone` [flags, slot of the child].
    pub const CREATE: u8 = 14;
    /// `execve` of the stub.
    pub const EXEC: u8 = 15;
    /// The task ends.
    pub const EXIT: u8 = 16;
    /// `wait4` for a process [its id].
    pub const WAIT: u8 = 17;
    /// The keeper takes leave of every orphan that has ended.
    pub const REAP: u8 = 18;
    /// The keeper waits for all and ends.
    pub const QUIT: u8 = 19;

    /// Words of an operation, the first included.
    pub const fn words(op: u8) -> usize {
        match op {
            MAP | REMAP => 4,
            FILE_READ | FILE_WRITE | CREATE => 3,
            UNMAP | PROTECT | DROP | FREE | COLD | PAGE_OUT | TRUNCATE | WAIT => 2,
            _ => 1,
        }
    }
}

/// Rights of [`op::MAP`] and [`op::PROTECT`], as `PROT_*` has them.
pub const FLAG_PROT: u8 = 7;
/// Writes are seen by others.
pub const FLAG_SHARED: u8 = 8;
/// Touches below extend the mapping.
pub const FLAG_GROWS_DOWN: u8 = 16;
/// There is a file behind it.
pub const FLAG_FILE: u8 = 32;
/// It replaces what the recording had there; otherwise nothing may be there.
pub const FLAG_REPLACES: u8 = 64;

/// The first word of an operation.
pub const fn word(op: u8, class: u8, flags: u8, page: u64) -> u64 {
    op as u64 | (class as u64) << 8 | (flags as u64) << 16 | page << 24
}

/// The operation of a first word.
pub const fn op_of(word: u64) -> u8 {
    word as u8
}

/// Its class.
pub const fn class_of(word: u64) -> usize {
    (word >> 8) as u8 as usize
}

/// Its flags.
pub const fn flags_of(word: u64) -> u8 {
    (word >> 16) as u8
}

/// Its page.
pub const fn page_of(word: u64) -> u64 {
    word >> 24
}

/// Time of one class, summed by the task.
#[repr(C)]
pub struct Time {
    /// CPU time in nanoseconds, one reading of the clock in each interval.
    pub ns: AtomicU64,
    /// Intervals.
    pub intervals: AtomicU64,
    /// Operations.
    pub ops: AtomicU64,
}

/// The header of a slot, at its end.
#[repr(C, align(64))]
pub struct Slot {
    /// Number of the batch that the task is to execute.
    pub turn: AtomicU32,
    /// Number of the batch that it has executed.
    pub done: AtomicU32,
    /// Its id; zero after it has left memory that others still use.
    pub tid: AtomicU32,
    /// `MODE_*`.
    pub mode: AtomicU32,
    /// Words of the batch in the ring.
    pub words: AtomicU32,
    /// Class that its birth counts as.
    pub birth: AtomicU32,
    /// In the keeper's slot: the process id of the driver.
    pub driver: AtomicU32,
    /// Why the stub gave up, one of `FATAL_*`; zero while it has not.
    pub fatal: AtomicU32,
    /// Operations that the kernel refused.
    pub failed: AtomicU64,
    /// The first of them.
    pub failed_words: [AtomicU64; 4],
    /// And its error number.
    pub failed_error: AtomicU64,
    /// CPU time at the beginning of `execve` or of the end.
    pub clock: AtomicU64,
    /// By class.
    pub times: [Time; TIMES],
}

/// A mapping found something in its place.
pub const FATAL_COLLISION: u32 = 1;
/// The stub could not unmap what the kernel gave it.
pub const FATAL_UNMAP: u32 = 2;
/// `execve` of the stub failed.
pub const FATAL_EXEC: u32 = 3;
/// `clone` failed.
pub const FATAL_CREATE: u32 = 4;
/// A handler could not be set, or a property of the keeper.
pub const FATAL_SETUP: u32 = 5;
/// A word that is none.
pub const FATAL_WORD: u32 = 6;

/// Where the header lies in a slot; the stack begins there, too, and goes down.
pub const HEADER_OFFSET: u64 = SLOT_BYTES - size_of::<Slot>() as u64;

const _: () = assert!(size_of::<Slot>() <= 1024);
