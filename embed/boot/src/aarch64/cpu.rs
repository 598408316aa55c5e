//! The CPU: there is one.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::check::report::CpuCounts;
use crate::task::Task;

/// What the CPU has for itself.
pub struct Cpu {
    /// Its number.
    pub number: AtomicU32,
    /// The task that runs, or null.
    pub current: AtomicPtr<Task>,
    /// Stack pointer of the loop that looks for one.
    pub idle_stack: UnsafeCell<u64>,
    /// Tag of the space that is loaded, or `flush::NO_SPACE`.
    pub loaded: AtomicU64,
    pub counts: CpuCounts,
}

// SAFETY: the cell is the CPU's alone; the rest are atomics.
unsafe impl Sync for Cpu {}

/// All CPUs.
pub static CPUS: [Cpu; 1] = [Cpu {
    number: AtomicU32::new(0),
    current: AtomicPtr::new(core::ptr::null_mut()),
    idle_stack: UnsafeCell::new(0),
    loaded: AtomicU64::new(super::flush::NO_SPACE),
    counts: CpuCounts::new(),
}];

/// CPUs that were started.
pub static STARTED: AtomicU32 = AtomicU32::new(0);

/// The same as a number.
pub fn running() -> usize {
    STARTED.load(Ordering::Relaxed) as usize
}

impl Cpu {
    /// The CPU that this runs on.
    #[inline]
    pub fn this() -> &'static Cpu {
        &CPUS[0]
    }

    /// Its number as an index.
    #[inline]
    pub fn index(&self) -> usize {
        0
    }

    /// Traps use the stack that the task left, which is at its end when a program runs.
    pub fn set_trap_stack(&self, _: u64) {}
}

/// Starts the counter of cycles.
pub fn init() {
    // SAFETY: counts, and touches no memory.
    unsafe {
        asm!("msr pmcr_el0, {0}", "msr pmcntenset_el0, {1}", "isb", in(reg) 0x41u64, in(reg) 1u64 << 31);
    }
}

/// There are no others.
pub fn start_others(_: &[u32]) {}

/// Nobody else halts.
pub fn wake(_: &Cpu) {}

/// Nothing interrupts: a CPU that has nothing to do waits for good.
pub fn halt() {
    // SAFETY: waits.
    unsafe { asm!("wfi") }
}

/// Cycles since the counter was started.
#[inline]
pub fn cycles() -> u64 {
    let cycles: u64;
    // SAFETY: reads a register.
    unsafe { asm!("isb", "mrs {}, pmccntr_el0", out(reg) cycles) }
    cycles
}

/// QEMU's machine says what it is by being there.
pub fn hypervisor() -> Option<[u8; 12]> {
    Some(*b"TCGTCGTCGTCG")
}
