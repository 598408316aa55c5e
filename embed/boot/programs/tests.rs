//! The tests, each a program of its own. `sys::fail` codes name the place.

use crate::protocol::{
    FLAG_GROWS_DOWN, FLAG_SHARED, GROUND, REFUSED, STACK_PAGES, advice, call, device, pristine,
    program, stamp, written,
};
use crate::sys::{Kind, ask, bare_probe, expect, expect_refusal, fail, must, probe, store};
use crate::{leave, random, replay};

const PAGE: u64 = 1 << crate::protocol::PAGE_SHIFT;
const BASE: u64 = GROUND / PAGE;
const READ: u64 = 1;
const WRITE: u64 = 2;
const EXECUTE: u64 = 4;
const READ_WRITE: u64 = READ | WRITE;

fn at(page: u64) -> u64 {
    GROUND + page * PAGE
}

fn map(code: u64, page: u64, pages: u64, flags: u64) {
    must(code, call::MAP, [BASE + page, pages, flags]);
}

/// Pages are zero, keep what is stored, and are gone after they are unmapped.
pub fn touch() {
    map(1, 0, 600, READ_WRITE);
    for page in 0..600 {
        expect(2, at(page) + page % 512 * 8, 0);
        store(3, at(page), stamp(page));
    }
    for page in 0..600 {
        expect(4, at(page), stamp(page));
    }
    must(5, call::UNMAP, [BASE + 100, 400]);
    for page in 0..600 {
        match (100..500).contains(&page) {
            true => expect_refusal(6, Kind::Load, at(page)),
            false => expect(7, at(page), stamp(page)),
        }
    }
}

/// Copies made by fork are apart, over several generations, whoever stores first.
pub fn fork() {
    map(10, 0, 64, READ_WRITE);
    for page in 0..64 {
        store(11, at(page), stamp(page));
    }
    for generation in 1..6 {
        let child = must(12, call::FORK, [0]);
        let mine = generation * 1000 + if child == 0 { 500 } else { 0 };
        // Every page must still be what it was when the two parted, wherever the other is.
        for page in 0..64 {
            expect(13, at(page), stamp((generation - 1) * 1000 + page));
            store(14, at(page), stamp(mine + page));
        }
        for page in 0..64 {
            expect(15, at(page), stamp(mine + page));
        }
        if child == 0 {
            leave(generation);
        }
        let code = must(16, call::WAIT, [child]);
        if code != generation {
            fail(17, [code, generation, 0]);
        }
    }
    // A page that nobody else has any more is stored to without a copy.
    for page in 0..64 {
        store(18, at(page), stamp(page));
        expect(19, at(page), stamp(page));
    }
}

unsafe extern "C" {
    fn thread_start();
}

/// Starts a thread on a new stack below `GROUND`'s page `place`.
pub fn start_thread(code: u64, place: u64, argument: u64) -> u64 {
    map(code, place, STACK_PAGES, READ_WRITE);
    let end = at(place + STACK_PAGES);
    must(
        code,
        call::THREAD,
        [thread_start as *const () as u64, end, argument],
    )
}

/// A child that shares the space until it executes a program, as after vfork.
pub fn vfork() {
    map(20, 0, 4, READ_WRITE);
    store(21, at(0), stamp(1));
    let child = start_thread(22, 1000, 1 << 32 | 7);
    let code = must(23, call::WAIT, [child]);
    if code != 7 {
        fail(24, [code, 0, 0]);
    }
    // What the child stored before it left is here.
    expect(25, at(0), stamp(2));
}

/// That child.
pub fn vforked(code: u32) -> ! {
    expect(26, at(0), stamp(1));
    store(27, at(0), stamp(2));
    ask(call::EXEC, [program::LEAVE, u64::from(code), 1]);
    fail(28, [0; 3])
}

/// Files of the RAM disk: private views, shared views, writes by call, and a child.
pub fn files() {
    // One that the slice has not.
    let file = replay::files();
    let pages = 40;
    must(30, call::FILE_OPEN, [file, pages]);
    must(
        31,
        call::MAP,
        [BASE, pages, READ_WRITE | FLAG_SHARED, file + 1, 0],
    );
    must(31, call::MAP, [BASE + 100, pages, READ_WRITE, file + 1, 0]);
    for page in 0..pages {
        expect(32, at(page), pristine(file, page));
        expect(33, at(100 + page) + PAGE - 8, pristine(file, page));
    }
    store(34, at(3), stamp(3)); // seen by all
    store(35, at(100 + 5), stamp(5)); // by nobody
    expect(36, at(100 + 3), stamp(3));
    expect(37, at(5), pristine(file, 5));
    must(38, call::FILE_WRITE, [file, 4, 4]);
    for page in 4..8 {
        expect(39, at(page), written(file, page));
        let private = if page == 5 {
            stamp(5)
        } else {
            written(file, page)
        };
        expect(40, at(100 + page), private);
    }
    let child = must(41, call::FORK, [0]);
    if child == 0 {
        store(42, at(9), stamp(9));
        store(43, at(100 + 10), stamp(10));
        leave(0);
    }
    must(44, call::WAIT, [child]);
    expect(45, at(9), stamp(9));
    expect(46, at(100 + 10), pristine(file, 10));
    // A page cut off is gone from every view, though it was just used.
    expect(47, at(25), pristine(file, 25));
    expect(47, at(125), pristine(file, 25));
    must(47, call::TRUNCATE, [file, 20]);
    expect_refusal(48, Kind::Load, at(25));
    expect_refusal(49, Kind::Load, at(125));
    // What was cut off does not come back, and what is left is as it was.
    must(49, call::TRUNCATE, [file, 0]);
    must(49, call::TRUNCATE, [file, pages]);
    for page in [0, 3, 4, 9, 19, 25] {
        expect(49, at(page), 0);
        expect(49, at(100 + page) + PAGE - 8, 0);
    }
    must(50, call::UNMAP, [BASE, 200]);
    expect_refusal(51, Kind::Store, at(3));
}

/// Rights, one by one and back.
pub fn protect() {
    map(60, 0, 64, READ_WRITE);
    for page in 0..64 {
        store(61, at(page), stamp(page));
    }
    must(62, call::PROTECT, [BASE + 8, 8, READ]);
    must(63, call::PROTECT, [BASE + 16, 8, 0]);
    must(64, call::PROTECT, [BASE + 24, 8, READ | EXECUTE]);
    for page in 0..32 {
        let rights = [READ_WRITE, READ, 0, READ | EXECUTE][page as usize / 8];
        check_rights(65, page, rights, stamp(page));
    }
    must(66, call::PROTECT, [BASE, 64, READ_WRITE]);
    for page in 0..64 {
        check_rights(67, page, READ_WRITE, stamp(page));
    }
}

/// The page allows what `rights` says and no more, and holds `value`, which it keeps.
fn check_rights(code: u64, page: u64, rights: u64, value: u64) {
    for (kind, right) in [
        (Kind::Load, READ),
        (Kind::Store, WRITE),
        (Kind::Fetch, EXECUTE),
    ] {
        match rights & right != 0 {
            true if probe(kind, at(page), value).is_none() => {
                fail(code, [at(page), kind as u64, 1])
            }
            true => {}
            false => expect_refusal(code, kind, at(page)),
        }
    }
    if rights & READ != 0 {
        expect(code, at(page), value);
    }
}

/// Memory moves and grows with what it holds; the old place is empty.
pub fn remap() {
    map(70, 0, 32, READ_WRITE);
    for page in 0..32 {
        store(71, at(page), stamp(page));
    }
    must(72, call::REMAP, [BASE, 32, BASE + 5000, 48]);
    for page in 0..48 {
        expect(73, at(5000 + page), if page < 32 { stamp(page) } else { 0 });
    }
    for page in 0..32 {
        expect_refusal(74, Kind::Load, at(page));
    }
    // In place: shorter, and longer again.
    must(75, call::REMAP, [BASE + 5000, 48, BASE + 5000, 16]);
    expect_refusal(76, Kind::Load, at(5016));
    must(77, call::REMAP, [BASE + 5000, 16, BASE + 5000, 20]);
    expect(78, at(5015), stamp(15));
    expect(79, at(5016), 0);
    // A heap, too.
    must(80, call::BRK, [BASE + 9000, BASE + 9010]);
    store(81, at(9009), stamp(1));
    must(82, call::BRK, [BASE + 9000, BASE + 9005]);
    expect_refusal(83, Kind::Store, at(9009));
    // And advice: dropped pages read as zero.
    must(84, call::ADVISE, [BASE + 5000, 4, advice::DONT_NEED]);
    expect(85, at(5003), 0);
    expect(86, at(5004), stamp(4));
}

/// A stack grows to wherever it is touched, down to what lies below it.
pub fn stack() {
    map(90, 0, 1, READ_WRITE);
    map(91, 2000, 2, READ_WRITE | FLAG_GROWS_DOWN);
    for page in (1800..2002).rev() {
        store(92, at(page), stamp(page));
    }
    for page in 1800..2002 {
        expect(93, at(page), stamp(page));
    }
    store(94, at(1700), stamp(1));
    expect(95, at(1750), 0);
}

/// What one CPU takes away, no other can reach: every change is followed by probes of the
/// others, which had the pages in their TLBs.
pub fn threads() {
    random::run(2_000, 7);
}

/// What a program does with a device: nothing faults, what it stores is in the device, and its
/// registers are the device's.
pub fn device() {
    let frame_buffer = [0, 0, 0, device::FRAME_BUFFER];
    let pages = ask(call::DEVICE, frame_buffer);
    if pages != REFUSED {
        pixels(pages);
    }
    map_device(
        120,
        BASE,
        1,
        (READ_WRITE | FLAG_SHARED, device::REGISTERS),
        0,
    );
    // SAFETY: mapped, and whose registers they are does not matter: none of these moves memory.
    unsafe {
        match pages {
            REFUSED => serial_line(at(0)),
            _ => display(at(0)),
        }
    }
    must(121, call::UNMAP, [BASE, 1]);
    expect_refusal(122, Kind::Load, at(0));
}

fn map_device(code: u64, page: u64, pages: u64, (flags, which): (u64, u64), first: u64) {
    must(code, call::DEVICE, [page, pages, flags, which, first]);
}

/// The frame buffer, all of which `pages` are.
fn pixels(pages: u64) {
    let is_let_through = |kind, page| bare_probe(kind, at(page), stamp(page)).is_some();
    let at_once = (READ_WRITE | FLAG_SHARED, device::FRAME_BUFFER);
    map_device(100, BASE, pages, at_once, 0);
    for page in 0..pages {
        if !is_let_through(Kind::Store, page) {
            fail(101, [at(page), 0, 0]);
        }
    }
    // Elsewhere, by faults, and not aligned as before: the device has it.
    let apart = pages + 513;
    map_device(102, BASE + apart, 600, (READ, device::FRAME_BUFFER), 100);
    for page in 0..600 {
        expect(103, at(apart + page), stamp(100 + page));
    }
    expect_refusal(104, Kind::Store, at(apart));
    must(105, call::UNMAP, [BASE + 700, 3]);
    must(106, call::PROTECT, [BASE + 900, 2, READ]);
    let child = must(107, call::FORK, [0]);
    for page in [0, 699, 703, 899, 902, 1300] {
        if !is_let_through(Kind::Store, page) {
            fail(108, [at(page), child, 0]);
        }
    }
    for (kind, page) in [(Kind::Load, 700), (Kind::Load, 702), (Kind::Store, 900)] {
        if is_let_through(kind, page) {
            fail(109, [at(page), child, 0]);
        }
    }
    expect(110, at(901), stamp(901));
    if child == 0 {
        store(111, at(150), stamp(7));
        leave(3);
    }
    if must(112, call::WAIT, [child]) != 3 {
        fail(113, [child, 0, 0]);
    }
    expect(114, at(apart + 50), stamp(7));
    must(115, call::UNMAP, [BASE, apart + 600]);
    expect_refusal(116, Kind::Load, at(0));
}

/// The registers of the display: its version, and the width of the picture, which stays what it is
/// set to.
///
/// # Safety
/// They are there.
unsafe fn display(registers: u64) {
    const VERSION: u64 = 0x500;
    const WIDTH: u64 = 0x502;
    let register = |offset| (registers + offset) as *mut u16;
    // SAFETY: the caller's promise.
    let (version, width) = unsafe {
        register(WIDTH).write_volatile(640);
        (
            register(VERSION).read_volatile(),
            register(WIDTH).read_volatile(),
        )
    };
    if version & 0xfff0 != 0xb0c0 || width != 640 {
        fail(117, [u64::from(version), u64::from(width), 0]);
    }
}

/// Those of the serial line that say what it is.
///
/// # Safety
/// They are there.
unsafe fn serial_line(registers: u64) {
    for (nth, byte) in (0..).zip([0x0d, 0xf0, 0x05, 0xb1]) {
        let register = (registers + 0xff0 + 4 * nth) as *const u32;
        // SAFETY: the caller's promise.
        let found = unsafe { register.read_volatile() };
        if found != byte {
            fail(118, [nth, u64::from(found), 0]);
        }
    }
}
