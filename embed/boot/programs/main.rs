//! Programs that run in user mode on the kernel: tests of what a memory manager promises,
//! and the replayer. They have no library and no writable data; the kernel maps this file
//! as it is, and passes a number (`protocol::program`) and an argument.
#![no_std]
#![no_main]

#[path = "../src/protocol.rs"]
mod protocol;

mod random;
mod replay;
mod sys;
mod tests;

use core::panic::PanicInfo;

use protocol::{call, program};

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let line = info.location().map_or(0, |location| location.line());
    sys::fail(999, [u64::from(line), 0, 0])
}

/// Ends the program.
fn leave(code: u64) -> ! {
    loop {
        sys::ask(call::EXIT, [code]);
    }
}

/// Where every program begins.
#[unsafe(no_mangle)]
extern "C" fn begin(number: u64, argument: u64) -> ! {
    sys::prepare_probes();
    match number {
        program::LEAVE => leave(argument),
        program::REPLAY => replay::run(argument),
        _ => {}
    }
    match program::TESTS.get((number - program::FIRST_TEST) as usize) {
        Some(&"touch") => tests::touch(),
        Some(&"fork") => tests::fork(),
        Some(&"vfork") => tests::vfork(),
        Some(&"files") => tests::files(),
        Some(&"protect") => tests::protect(),
        Some(&"remap") => tests::remap(),
        Some(&"stack") => tests::stack(),
        Some(&"threads") => tests::threads(),
        Some(&"device") => tests::device(),
        Some(&"random") => random::run(argument >> 16, argument & 0xffff),
        _ => sys::fail(998, [number, 0, 0]),
    }
    leave(0)
}

/// Where every thread begins.
#[unsafe(no_mangle)]
extern "C" fn thread_begin(argument: u64) -> ! {
    match argument >> 32 {
        0 => replay::run_thread(argument),
        1 => tests::vforked(argument as u32),
        _ => random::help(argument as u32),
    }
}
