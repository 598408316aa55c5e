//! What the kernel is for: running the programs, and checking the manager.

pub mod calls;
pub mod defect;
mod device;
#[cfg(target_arch = "x86_64")]
mod display;
mod path;
pub mod report;

use core::sync::atomic::Ordering;

use crate::arch::cpu::{Cpu, cycles};
use crate::arch::{flush, io};
use crate::protocol::{self, program};
use crate::{disk, number, option, say, task, vm};

/// The kernel's own task: runs everything, checks, and reports.
pub extern "C" fn run() -> ! {
    let seed = number("seed").unwrap_or(1);
    let tests = option("tests").unwrap_or("all");
    for (index, name) in program::TESTS.iter().enumerate() {
        if tests != "all" && tests.split(',').all(|wanted| wanted != *name) {
            continue;
        }
        let argument = match *name {
            "random" => number("random").unwrap_or(100_000) << 16 | seed & 0xffff,
            _ => seed,
        };
        let task = crate::calls::spawn(program::FIRST_TEST + index as u64, argument, 0);
        let code = task.and_then(task::wait_for);
        say!(
            "test {name}: {}",
            if code == Some(0) { "ok" } else { "FAILED" }
        );
        if code != Some(0) {
            report::fail(format_args!("test {name} ended with {code:?}"));
        }
        audit(name);
    }
    if tests == "all" || tests.split(',').any(|wanted| wanted == "replay") {
        replay();
    }
    costs();
    let path = fault_path();
    let written_back = crate::calls::close_files();
    let unexpected = disk::unexpected(disk::file_word(protocol::DISK_SLICE, 2));
    if unexpected != 0 {
        report::fail(format_args!(
            "{unexpected} pages of the RAM disk hold what nobody wrote"
        ));
    }
    let report = audit("the end");
    let left = report.spaces + report.entries;
    if left != 0 {
        report::fail(format_args!("{left} spaces or entries are left"));
    }
    report::print(number("icount") == Some(1), written_back, &path, &report);
    io::end(if report::failures() == 0 { 16 } else { 1 })
}

/// Checks the manager's invariants while no program runs.
fn audit(after: &str) -> vellum::vm::AuditReport {
    let report = vm().audit();
    report.unwrap_or_else(|error| {
        report::fail(format_args!("audit after {after}: {error}"));
        Default::default()
    })
}

/// Runs the slice: the tasks that nobody creates are started, and create the others.
fn replay() {
    let word = |index| disk::file_word(protocol::DISK_SLICE, index);
    let (tasks, roots) = (word(1), word(3));
    let first = protocol::SLICE_HEAD + tasks;
    for index in 0..roots {
        let task = word(first + index);
        if crate::calls::spawn(program::REPLAY, task, task).is_none() {
            report::fail(format_args!("task {task} of the slice does not start"));
        }
    }
    task::wait_for_all_others();
    say!(
        "replay of {tasks} processes: {} failures so far",
        report::failures()
    );
}

/// Single instructions: what no program shows.
fn costs() {
    const TIMES: u32 = 1000;
    let counts = &Cpu::this().counts;
    let page = alloc::boxed::Box::new(core::sync::atomic::AtomicU64::new(0));
    for _ in 0..TIMES {
        let start = cycles();
        flush::invalidate(0x1000);
        counts.invlpg.add(cycles() - start);
        let start = cycles();
        page.store(start, Ordering::Relaxed);
        flush::invalidate(0x1000);
        counts.window.add(cycles() - start);
    }
}

/// The fault path without traps: the mean of each kind.
fn fault_path() -> [u64; path::KINDS.len()] {
    let mut kind = 0;
    [(); path::KINDS.len()].map(|()| {
        let spaces = path::prepare(vm(), kind);
        let mean = spaces.map(|(space, other)| {
            let warmed = path::faults(vm(), space, kind, 0, path::WARM);
            let start = cycles();
            let done = path::faults(vm(), space, kind, path::WARM, path::PAGES);
            let mean = (cycles() - start) / (path::PAGES - path::WARM);
            let ended = vm().space(space).exit().is_ok()
                && other.is_none_or(|other| vm().space(other).exit().is_ok());
            if warmed && done && ended { mean } else { 0 }
        });
        kind += 1;
        mean.unwrap_or_else(|| {
            report::fail(format_args!("the fault path cannot be measured"));
            0
        })
    })
}
