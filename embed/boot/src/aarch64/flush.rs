//! Translations: loading a root, and forgetting, both by tag (ASID).

use core::arch::asm;
use core::sync::atomic::Ordering;

use vellum::platform::{CpuSet, Flush};
use vellum::space::Loaded;

use super::cpu::{Cpu, cycles};
use crate::PAGE;
use crate::check::defect::{self, Defect};

/// No space is loaded.
pub const NO_SPACE: u64 = u64::MAX;
/// Pages above which all of a space is forgotten at once.
const MOST_PAGES: u64 = 32;

/// Nothing to prepare.
pub fn init() {}

/// Spaces always have tags.
pub fn is_tagged() -> bool {
    true
}

/// No other CPU asks.
#[inline]
pub fn answer() {}

/// The processor's tag of a space, in its place in registers; 0 is that of no space.
fn tag_of(space: u32) -> u64 {
    assert!(space < u32::from(u16::MAX), "more spaces than tags");
    u64::from(space + 1) << 48
}

fn write_root(value: u64) {
    // SAFETY: the kernel is in the other half.
    unsafe { asm!("dsb ishst", "msr ttbr0_el1, {}", "isb", in(reg) value) }
}

/// Loads a space on this CPU: programs run in it from now on.
pub fn load(loaded: Loaded) {
    Cpu::this()
        .loaded
        .store(u64::from(loaded.tag.0), Ordering::Relaxed);
    write_root((u64::from(loaded.root.0) * PAGE) | tag_of(loaded.tag.0));
}

/// Loads a root that is empty.
pub fn unload() {
    unsafe extern "C" {
        static empty_root: u8;
    }
    Cpu::this().loaded.store(NO_SPACE, Ordering::Relaxed);
    write_root(&raw const empty_root as u64 - super::DIRECT_MAP);
}

/// Forgets what is known of one page of no space.
pub fn invalidate(address: u64) {
    // SAFETY: forgetting is always allowed.
    unsafe { asm!("dsb ishst", "tlbi vae1is, {}", "dsb ish", in(reg) address >> 12) }
}

/// Makes the CPU forget: [`vellum::platform::Machine::flush`]. The instructions reach every
/// CPU by themselves, and upper levels, too.
pub fn flush(_: CpuSet, _: usize, request: &Flush) {
    let start = cycles();
    let tag = tag_of(request.space.0);
    // SAFETY: forgetting is always allowed.
    unsafe {
        asm!("dsb ishst");
        match request.range {
            _ if defect::is(Defect::LocalFlush) => {}
            Some(range) if range.pages() <= MOST_PAGES => {
                let last = range.pages() > 1 && defect::is(Defect::LastPage);
                for page in range.start.0..range.end.0 - u64::from(last) {
                    asm!("tlbi vae1is, {}", in(reg) tag | (page * PAGE) >> 12);
                }
            }
            _ if defect::is(Defect::WholeSpace) => {}
            _ => asm!("tlbi aside1is, {}", in(reg) tag),
        }
        asm!("dsb ish", "isb");
    }
    Cpu::this().counts.local_flush.add(cycles() - start);
}
