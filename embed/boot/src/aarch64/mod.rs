//! AArch64, on QEMU's `virt` machine: one CPU, pages of 4 or 16 KiB.
//!
//! What is different from x86-64: the kernel has a root of its own (TTBR1), so roots of
//! spaces have no kernel half; spaces are always tagged; and nothing interrupts, so tasks
//! change only where they sleep or give way.

pub mod cpu;
mod fdt;
pub mod flush;
pub mod io;
pub mod trap;

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

pub use crate::physical::{direct, read};
pub use fdt::Boot;

/// The page tables.
#[cfg(feature = "pages16k")]
pub type Paging = vellum::table::Aarch64_16K;
/// The page tables.
#[cfg(not(feature = "pages16k"))]
pub type Paging = vellum::table::Aarch64_4K;

const GRANULE: u64 = crate::protocol::PAGE_SHIFT as u64;

/// The kernel's half begins here: the first 4 GiB of addresses, the first GiB as devices.
pub const DIRECT_MAP: u64 = 0xffff_0000_0000_0000;
/// What the direct map covers.
pub const DIRECT_BYTES: u64 = 4 << 30;
/// From the kernel's own addresses to its memory.
pub const KERNEL_BASE: u64 = DIRECT_MAP;
/// Where the kernel, or what starts it, begins in memory.
pub const KERNEL_BEGIN: u64 = 0x4000_0000;

/// TCR_EL1: 48 bits of addresses on both sides, write-back walks, 40 bits of memory, tags of
/// 16 bits, and marks set by hardware (HA, HD).
const TRANSLATION: u64 = {
    let granules = if GRANULE == 14 {
        2 << 14 | 1 << 30
    } else {
        2 << 30
    };
    let walks = 1 << 8 | 1 << 10 | 3 << 12;
    granules | 16 | 16 << 16 | walks | walks << 16 | 2 << 32 | 1 << 36 | 3 << 39
};

core::arch::global_asm!(
    ".set GRANULE, {granule}",
    ".set TRANSLATION, {translation}",
    ".set MEMORY_ATTRIBUTES, {attributes}",
    granule = const GRANULE,
    translation = const TRANSLATION,
    attributes = const vellum::table::MAIR,
);
core::arch::global_asm!(include_str!("boot.s"), options(raw));

/// Prepares the CPU; there are no others.
pub fn init(_: &Boot) -> Vec<u32> {
    cpu::init();
    Vec::new()
}

/// Roots have no kernel half here.
pub fn fill_root(_: &[AtomicU64]) {}

/// See [`fill_root`].
pub fn clear_root(_: &[AtomicU64]) {}
