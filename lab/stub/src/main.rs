//! The program that replays a recorded process tree on the host's own kernel.
//!
//! It has no library, no heap and no writable data: code at an address that no
//! workload uses, and in shared memory a stack and a header for each task
//! (`protocol.rs`). After `execve` it unmaps whatever else the kernel put into
//! the process, so that the address space holds the stub and what the recording
//! asks for. Every process and thread of a replay runs it; what they do comes in
//! batches from the driver, `lab/command/src/linux`.
#![no_std]
#![no_main]

mod memory;
mod protocol;
mod sys;
mod work;

use core::panic::PanicInfo;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::*;

core::arch::global_asm!(include_str!("entry.s"));

unsafe extern "C" {
    fn vellum_refused();
    fn vellum_orphaned();
    fn vellum_restore();
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    end(98)
}

/// Ends the process without a word: the driver sees the code.
fn end(code: usize) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { sys::call(sys::EXIT_GROUP, [code, 0, 0, 0, 0, 0]) };
    }
}

/// Tells the driver why there is no going on, and waits to be killed.
fn give_up(slot: &Slot, why: u32, error: isize) -> ! {
    slot.failed_error.store(-error as u64, Relaxed);
    slot.fatal.store(why, Release);
    let turn = slot.turn.load(Relaxed);
    slot.done.store(turn, Release);
    wake(&slot.done);
    loop {
        await_turn(slot, turn);
    }
}

/// Maps slots and ring, and returns the header of the slot that the program's
/// first argument names. Runs on the stack that the kernel made.
#[unsafe(no_mangle)]
extern "C" fn vellum_begin(stack: *const usize) -> *const Slot {
    // SAFETY: the kernel puts the number of arguments there and then pointers to
    // them; the driver and the stub start the stub with one.
    let mut digits = unsafe { *stack.add(1) as *const u8 };
    let mut number = 0u64;
    loop {
        // SAFETY: arguments end with a zero byte.
        let digit = unsafe { *digits };
        if digit == 0 {
            break;
        }
        number = number << 4 | u64::from(digit - b'a');
        digits = digits.wrapping_add(1);
    }
    if number == u64::from(KEEPER) {
        take_descriptors();
    }
    const FIXED_NOREPLACE_SHARED: usize = 0x10_0001;
    let map = |address: u64, bytes: u64, prot, fd: i32| {
        let arguments = [
            address as usize,
            bytes as usize,
            prot,
            FIXED_NOREPLACE_SHARED,
            fd as usize,
            0,
        ];
        // SAFETY: nothing is at that address, or the call fails.
        let mapped = unsafe { sys::call(sys::MMAP, arguments) };
        if mapped as u64 != address {
            end(96);
        }
    };
    map(SLOTS, AREA_END - SLOTS, 3, FD_SLOTS);
    map(RING, RING_WORDS as u64 * 8, 1, FD_RING);
    work::header(number)
}

/// Puts the descriptors that the driver handed over where stubs have them, and
/// closes all others: copying a small table is what a fork costs least.
fn take_descriptors() {
    for (from, to) in (FD_HANDED..).zip([FD_SLOTS, FD_RING, FD_STUB, FD_FILES]) {
        // SAFETY: takes integers only.
        if unsafe { sys::call(sys::DUP3, [from as usize, to as usize, 0, 0, 0, 0]) } < 0 {
            end(95);
        }
    }
    // SAFETY: the stub uses no descriptor beyond.
    unsafe { sys::call(sys::CLOSE_RANGE, [7, u32::MAX as usize, 0, 0, 0, 0]) };
}

/// After `execve`: leaves nothing but the stub, and goes to work.
#[unsafe(no_mangle)]
extern "C" fn vellum_arrive(slot: &'static Slot) -> ! {
    for (from, to) in [(0, AREA), (AREA_END, USER_END)] {
        let arguments = [from as usize, (to - from) as usize, 0, 0, 0, 0];
        // SAFETY: code, stack, ring and slots lie between the two ranges.
        let unmapped = unsafe { sys::call(sys::MUNMAP, arguments) };
        if unmapped < 0 {
            give_up(slot, FATAL_UNMAP, unmapped);
        }
    }
    let keeper = core::ptr::eq(slot, work::header(u64::from(KEEPER)));
    // SAFETY: the kernel writes a zero there when the task ends.
    let tid = unsafe {
        sys::call(
            sys::SET_TID_ADDRESS,
            [&raw const slot.tid as usize, 0, 0, 0, 0, 0],
        )
    };
    slot.tid.store(tid as u32, Relaxed);
    const SIGBUS: usize = 7;
    const SIGSEGV: usize = 11;
    handle(slot, SIGSEGV, vellum_refused);
    handle(slot, SIGBUS, vellum_refused);
    if keeper {
        become_keeper(slot);
    } else if slot.mode.load(Relaxed) & MODE_TIMED != 0 {
        work::arrived(slot);
    }
    work(slot)
}

/// The signals, orphans and huge pages of the whole tree.
fn become_keeper(slot: &Slot) {
    const SIGTERM: usize = 15;
    const PR_SET_PDEATHSIG: usize = 1;
    const PR_SET_CHILD_SUBREAPER: usize = 36;
    const PR_SET_THP_DISABLE: usize = 41;
    handle(slot, SIGTERM, vellum_orphaned);
    let no_huge_pages = slot.mode.load(Relaxed) & MODE_HUGE == 0;
    for (what, value) in [
        (PR_SET_PDEATHSIG, SIGTERM),
        (PR_SET_CHILD_SUBREAPER, 1),
        (PR_SET_THP_DISABLE, usize::from(no_huge_pages)),
    ] {
        // SAFETY: takes integers only.
        let set = unsafe { sys::call(sys::PRCTL, [what, value, 0, 0, 0, 0]) };
        if set < 0 {
            give_up(slot, FATAL_SETUP, set);
        }
    }
    // The driver may have ended before there was a signal for that.
    // SAFETY: takes nothing.
    let parent = unsafe { sys::call(sys::GETPPID, [0; 6]) };
    if parent as u32 != slot.driver.load(Relaxed) {
        end(94);
    }
}

fn handle(slot: &Slot, signal: usize, handler: unsafe extern "C" fn()) {
    const SA_RESTORER: usize = 0x0400_0000;
    const SA_SIGINFO: usize = 4;
    let action = [
        handler as *const () as usize,
        SA_RESTORER | SA_SIGINFO,
        vellum_restore as *const () as usize,
        0,
    ];
    let arguments = [signal, action.as_ptr() as usize, 0, 8, 0, 0];
    // SAFETY: `action` has the form that the kernel reads, and outlives the call.
    let set = unsafe { sys::call(sys::RT_SIGACTION, arguments) };
    if set < 0 {
        give_up(slot, FATAL_SETUP, set);
    }
}

/// After `clone`: a task with a slot of its own.
#[unsafe(no_mangle)]
extern "C" fn vellum_born(slot: &'static Slot) -> ! {
    if slot.mode.load(Relaxed) & MODE_TIMED != 0 {
        work::born(slot);
    }
    work(slot)
}

/// Says that the task is there, and executes batches for good.
fn work(slot: &'static Slot) -> ! {
    let mut turn = slot.turn.load(Acquire);
    loop {
        slot.done.store(turn, Release);
        wake(&slot.done);
        turn = await_turn(slot, turn);
        work::batch(slot);
    }
}

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;

fn wake(word: &AtomicU32) {
    let arguments = [word.as_ptr() as usize, FUTEX_WAKE, 1, 0, 0, 0];
    // SAFETY: the word outlives the call, which does not write.
    unsafe { sys::call(sys::FUTEX, arguments) };
}

/// The next number in `slot.turn` after `last`.
fn await_turn(slot: &Slot, last: u32) -> u32 {
    /// Seconds after which the task looks whether there is still anybody to wake it.
    static PATIENCE: [i64; 2] = [2, 0];
    const TIMED_OUT: isize = -110;
    loop {
        let turn = slot.turn.load(Acquire);
        if turn != last {
            return turn;
        }
        let word = slot.turn.as_ptr() as usize;
        let patience = PATIENCE.as_ptr() as usize;
        // SAFETY: the word and the time outlive the call, which writes neither.
        let woken = unsafe {
            sys::call(
                sys::FUTEX,
                [word, FUTEX_WAIT, last as usize, patience, 0, 0],
            )
        };
        if woken == TIMED_OUT {
            leave_if_alone();
        }
    }
}

/// Ends the process if the keeper is gone, however that came about.
fn leave_if_alone() {
    const NO_SUCH_PROCESS: isize = -3;
    // SAFETY: slots are mapped.
    let keeper = unsafe { &*work::header(u64::from(KEEPER)) };
    let id = keeper.tid.load(Relaxed);
    // SAFETY: signal 0 only asks.
    let alive = unsafe { sys::call(sys::KILL, [id as usize, 0, 0, 0, 0, 0]) };
    if id == 0 || alive == NO_SUCH_PROCESS {
        end(93);
    }
}
