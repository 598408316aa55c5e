//! What is the processor's own: start, tables that it reads, traps, and interrupts.

pub mod acpi;
pub mod apic;
mod boot;
pub mod cpu;
pub mod flush;
pub mod io;
mod multiboot2;
mod pvh;
pub mod trap;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// The kernel's half begins here: the first 4 GiB of memory.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// What the direct map covers.
pub const DIRECT_BYTES: u64 = 4 << 30;
/// From the kernel's own addresses to its memory.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

pub use crate::physical::{direct, read};
pub use boot::Boot;

/// The page tables.
pub type Paging = vellum::table::X86_64;

/// Where the kernel begins in memory.
pub const KERNEL_BEGIN: u64 = 1 << 20;

/// Prepares this CPU and the devices; returns the others' interrupt controllers.
pub fn init(boot: &Boot) -> Vec<u32> {
    cpu::CPUS[0].install_first();
    io::init_serial();
    io::mask_legacy_interrupts();
    let own = apic::init();
    cpu::Cpu::this().apic.store(own, Ordering::Relaxed);
    let mut others = Vec::new();
    acpi::each_processor(boot.rsdp, |controller| {
        if controller != own && others.len() + 1 < cpu::MOST {
            others.push(controller);
        }
    });
    others
}

/// Gives a new root the kernel's half.
pub fn fill_root(root: &[AtomicU64]) {
    // SAFETY: the kernel's root is there for good; the processor writes whole words.
    let own: &[AtomicU64; 512] = unsafe { &*direct(cpu::kernel_root()).cast() };
    for index in KERNEL_HALF {
        root[index].store(own[index].load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Takes it away.
pub fn clear_root(root: &[AtomicU64]) {
    for entry in &root[KERNEL_HALF] {
        entry.store(0, Ordering::Relaxed);
    }
}

/// The kernel's entries of a root.
const KERNEL_HALF: core::ops::Range<usize> = 256..512;

core::arch::global_asm!(include_str!("boot.s"), options(att_syntax));
core::arch::global_asm!(include_str!("builtins.s"), options(att_syntax));
