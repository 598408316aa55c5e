//! The system calls about memory and files.

use super::protocol::*;
use super::work::{PAGE, note};
use super::{give_up, sys};
use core::sync::atomic::Ordering::Relaxed;

/// Pages that one read or write of a file moves at most: a vector for each lies on
/// the stack, which is short.
const AT_ONCE: usize = 64;

pub fn memory(slot: &Slot, first: u64, rest: [u64; 3], mode: u32) {
    let empty = mode & MODE_EMPTY != 0;
    let address = page_of(first) as usize * PAGE;
    let bytes = rest[0] as usize * PAGE;
    let result = match op_of(first) {
        op::MAP => map(mode, first, rest),
        op::FILE_READ | op::FILE_WRITE | op::TRUNCATE => file(slot, first, rest, empty),
        _ if empty => 0,
        op::UNMAP => {
            // SAFETY: nothing of the stub lies in the range; the driver refuses
            // workloads that reach into its area.
            unsafe { sys::call(sys::MUNMAP, [address, bytes, 0, 0, 0, 0]) }
        }
        op::PROTECT => {
            let prot = usize::from(flags_of(first) & FLAG_PROT);
            // SAFETY: as above.
            unsafe { sys::call(sys::MPROTECT, [address, bytes, prot, 0, 0, 0]) }
        }
        op::REMAP => {
            const MAYMOVE_FIXED: usize = 3;
            let target = rest[1] as usize * PAGE;
            let flags = if target == address { 0 } else { MAYMOVE_FIXED };
            let arguments = [address, bytes, rest[2] as usize * PAGE, flags, target, 0];
            // SAFETY: as above.
            unsafe { sys::call(sys::MREMAP, arguments) }
        }
        op => {
            // The numbers of `MADV_DONTNEED` and so on.
            let advice = match op {
                op::DROP => 4,
                op::FREE => 8,
                op::COLD => 20,
                _ => 21,
            };
            // SAFETY: as above.
            unsafe { sys::call(sys::MADVISE, [address, bytes, advice, 0, 0, 0]) }
        }
    };
    if result < 0 {
        let words = [first, rest[0], rest[1], rest[2]];
        note(slot, words, result);
        const EXISTS: isize = -17;
        if op_of(first) == op::MAP && result == EXISTS {
            for (kept, word) in slot.failed_words.iter().zip(words) {
                kept.store(word, Relaxed);
            }
            give_up(slot, FATAL_COLLISION, result);
        }
    }
}

/// Says whether a mapping is to have huge pages, if that is asked for.
fn advise_huge(mode: u32, address: usize, bytes: usize) -> isize {
    const HUGE: usize = 14;
    const NO_HUGE: usize = 15;
    let advice = match mode & (MODE_HUGE | MODE_SMALL) {
        0 => return 0,
        MODE_HUGE => HUGE,
        _ => NO_HUGE,
    };
    // SAFETY: changes no contents.
    unsafe { sys::call(sys::MADVISE, [address, bytes, advice, 0, 0, 0]) }
}

fn map(mode: u32, first: u64, rest: [u64; 3]) -> isize {
    let empty = mode & MODE_EMPTY != 0;
    const SHARED: usize = 1;
    const PRIVATE: usize = 2;
    const FIXED: usize = 0x10;
    const ANONYMOUS: usize = 0x20;
    const GROWS_DOWN: usize = 0x100;
    const FIXED_NOREPLACE: usize = 0x10_0000;
    let flag = |flag: u8| flags_of(first) & flag != 0;
    let fd = match flag(FLAG_FILE) {
        true => open(rest[1]),
        false => -1,
    };
    if flag(FLAG_FILE) && fd < 0 {
        return fd;
    }
    let mut flags = if flag(FLAG_SHARED) { SHARED } else { PRIVATE };
    flags |= if flag(FLAG_FILE) { 0 } else { ANONYMOUS };
    flags |= if flag(FLAG_GROWS_DOWN) { GROWS_DOWN } else { 0 };
    flags |= if flag(FLAG_REPLACES) {
        FIXED
    } else {
        FIXED_NOREPLACE
    };
    let mut result = 0;
    if !empty {
        let address = page_of(first) as usize * PAGE;
        let prot = usize::from(flags_of(first) & FLAG_PROT);
        let offset = rest[2] as usize * PAGE;
        let arguments = [
            address,
            rest[0] as usize * PAGE,
            prot,
            flags,
            fd as usize,
            offset,
        ];
        // SAFETY: nothing of the stub lies in the range; the driver sees to that.
        result = unsafe { sys::call(sys::MMAP, arguments) };
        if result >= 0 && flags & (PRIVATE | ANONYMOUS) == PRIVATE | ANONYMOUS {
            result = advise_huge(mode, address, arguments[1]);
        }
    }
    if flag(FLAG_FILE) {
        close(fd);
    }
    result
}

/// Opens the file of a number, by its name: eight letters.
fn open(file: u64) -> isize {
    const READ_WRITE: usize = 2;
    let mut name = [0u8; 9];
    letters(file, &mut name);
    let arguments = [
        FD_FILES as usize,
        name.as_ptr() as usize,
        READ_WRITE,
        0,
        0,
        0,
    ];
    // SAFETY: the name ends with a zero byte and outlives the call.
    unsafe { sys::call(sys::OPENAT, arguments) }
}

/// `number` as letters `a` to `p`, of which the last byte of `name` is none.
pub fn letters(number: u64, name: &mut [u8; 9]) {
    let mut left = number;
    for letter in name[..8].iter_mut().rev() {
        *letter = b'a' + (left & 15) as u8;
        left >>= 4;
    }
}

fn close(fd: isize) {
    // SAFETY: the descriptor is the caller's.
    unsafe { sys::call(sys::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Reads, writes or cuts a file. All data goes to and comes from one page.
fn file(slot: &Slot, first: u64, rest: [u64; 3], empty: bool) -> isize {
    let base = core::ptr::from_ref(slot) as u64 - HEADER_OFFSET;
    // SAFETY: the first page of the task's slot; touched in an empty replay, too,
    // so that the page itself is no part of the difference.
    unsafe { (base as *mut u8).write_volatile(0) };
    let fd = open(rest[0]);
    if fd < 0 {
        return fd;
    }
    let result = match op_of(first) {
        _ if empty => 0,
        op::TRUNCATE => {
            let length = page_of(first) as usize * PAGE;
            // SAFETY: takes integers only.
            unsafe { sys::call(sys::FTRUNCATE, [fd as usize, length, 0, 0, 0, 0]) }
        }
        op => transfer(op, fd, page_of(first) as usize, rest[1] as usize, base),
    };
    close(fd);
    result
}

fn transfer(op: u8, fd: isize, mut page: usize, mut pages: usize, buffer: u64) -> isize {
    let number = match op {
        op::FILE_READ => sys::PREADV,
        _ => sys::PWRITEV,
    };
    while pages > 0 {
        let count = pages.min(AT_ONCE);
        let vectors = [[buffer as usize, PAGE]; AT_ONCE];
        let arguments = [
            fd as usize,
            vectors.as_ptr() as usize,
            count,
            page * PAGE,
            0,
            0,
        ];
        // SAFETY: every vector names the one page of the buffer, which is nobody
        // else's; the vectors outlive the call.
        let moved = unsafe { sys::call(number, arguments) };
        if moved < 0 {
            return moved;
        }
        page += count;
        pages -= count;
    }
    0
}
