//! Calls that only tests need.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use vellum::SpaceId;
use vellum::addr::Vpn;

use super::{device, report};
use crate::arch::cpu::{self, Cpu};
use crate::lock::{Once, SpinLock};
use crate::protocol::{call, count};
use crate::{task, vm};

/// How many operations each task of the slice has done.
static DONE: Once<Vec<AtomicU64>> = Once::new();
/// Tasks that sleep until one of the slice has done something: its number, and theirs.
static SLEEPERS: SpinLock<Vec<(u64, u64)>> = SpinLock::new(Vec::new());
/// Prepares for so many tasks of a slice.
///
/// # Safety
/// No other CPU runs, and no program has.
pub unsafe fn init(tasks: u64) {
    // SAFETY: the caller's promise.
    unsafe { DONE.set((0..tasks).map(|_| AtomicU64::new(0)).collect()) };
    SLEEPERS.lock().reserve(1024);
}

/// A task of the slice has ended, after so many operations.
pub fn ended(number: u64, done: u64) {
    report::count(count::REPLAYED, 1);
    progress(number, done);
}

/// A task of the slice has done so many operations.
fn progress(number: u64, done: u64) -> Option<u64> {
    DONE.get()
        .get(number as usize)?
        .store(done, Ordering::Release);
    SLEEPERS.lock().retain(|&(wanted, sleeper)| {
        if wanted == number {
            task::unpark(sleeper);
        }
        wanted != number
    });
    Some(0)
}

/// Sleeps until a task of the slice has done so many.
fn await_progress(number: u64, wanted: u64) -> Option<u64> {
    let done = DONE.get().get(number as usize)?;
    while done.load(Ordering::Acquire) < wanted {
        let mut sleepers = SLEEPERS.lock();
        if done.load(Ordering::Acquire) >= wanted {
            break;
        }
        sleepers.push((number, task::current().number()));
        drop(sleepers);
        task::park();
    }
    Some(0)
}

/// Pokes of a place, and the CPU that naps there plus 1.
struct Place {
    pokes: AtomicU64,
    cpu: AtomicU64,
}

static PLACES: [Place; 16] = [const {
    Place {
        pokes: AtomicU64::new(0),
        cpu: AtomicU64::new(0),
    }
}; 16];

fn nap(place: u64, seen: u64) -> Option<u64> {
    let place = PLACES.get(place as usize)?;
    task::give_way();
    place
        .cpu
        .store(Cpu::this().index() as u64 + 1, Ordering::SeqCst);
    if place.pokes.load(Ordering::SeqCst) == seen {
        cpu::halt();
    }
    place.cpu.store(0, Ordering::SeqCst);
    Some(place.pokes.load(Ordering::SeqCst))
}

fn poke(place: u64) -> Option<u64> {
    let place = PLACES.get(place as usize)?;
    place.pokes.fetch_add(1, Ordering::SeqCst);
    match place.cpu.load(Ordering::SeqCst) {
        0 => {}
        number => cpu::wake(&cpu::CPUS[number as usize - 1]),
    }
    Some(0)
}

fn translate(space: SpaceId, page: u64) -> u64 {
    match vm().space(space).translate(Vpn(page)) {
        Ok((frame, prot)) => u64::from(frame.0) << 4 | 8 | u64::from(prot.bits() & 7),
        Err(_) => 0,
    }
}

/// One of these calls of a program in `space`.
pub fn call(space: SpaceId, number: u64, arguments: [u64; 6]) -> Option<u64> {
    let [first, second, ..] = arguments;
    match number {
        call::DEVICE => device::map(space, arguments),
        call::PROGRESS => progress(first, second),
        call::AWAIT => await_progress(first, second),
        call::TRANSLATE => Some(translate(space, first)),
        call::CPUS => Some(cpu::running() as u64),
        call::COUNT => {
            report::count(first, second);
            Some(0)
        }
        call::NAP => nap(first, second),
        call::POKE => poke(first),
        _ => None,
    }
}
