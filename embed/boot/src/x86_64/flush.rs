//! Translations: loading a root, forgetting, and making other CPUs forget.
//!
//! A CPU that wants others to forget writes its request to its mailbox, sets a bit in the
//! `asked` word of each, and interrupts them. Each forgets and takes its bit out of the
//! mailbox; the CPU waits until all bits are gone. Kernel code runs with interrupts off, so
//! whoever waits in the kernel, for a lock or for this, answers meanwhile (`answer`).

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vellum::platform::{CpuSet, Flush};
use vellum::space::Loaded;

use super::apic;
use super::cpu::{CPUS, Cpu, cycles, kernel_root};
use crate::check::defect::{self, Defect};

/// No space is loaded.
pub const NO_SPACE: u64 = u64::MAX;
/// Pages above which all of a space is forgotten at once.
const MOST_PAGES: u64 = 32;
/// Tags of spaces that the processor knows: the last is for all others.
const TAGS: usize = 4096;

/// Whether CR4.PCIDE is on. The boot CPU decides.
static TAGGED: AtomicBool = AtomicBool::new(false);

/// What a CPU asks of others, and what it is asked.
pub struct Mailbox {
    request: UnsafeCell<Option<Flush>>,
    /// CPUs that have not answered.
    pending: AtomicU64,
    /// CPUs that ask.
    asked: AtomicU64,
    /// Tags whose translations are out of date here; one bit each.
    stale: [AtomicU64; TAGS / 64],
}

impl Mailbox {
    pub const fn new() -> Mailbox {
        Mailbox {
            request: UnsafeCell::new(None),
            pending: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            stale: [const { AtomicU64::new(u64::MAX) }; TAGS / 64],
        }
    }

    fn mark_stale(&self, tag: usize) {
        self.stale[tag / 64].fetch_or(1 << (tag % 64), Ordering::Relaxed);
    }

    fn take_stale(&self, tag: usize) -> bool {
        let bit = 1 << (tag % 64);
        self.stale[tag / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }
}

/// Switches tags of spaces on, where the processor has them.
pub fn init() {
    const PCID: u32 = 1 << 17;
    if core::arch::x86_64::__cpuid(1).ecx & PCID != 0 {
        // SAFETY: the processor has it, and CR3 has tag 0.
        unsafe {
            asm!("mov {0}, cr4", "bts {0}, 17", "mov cr4, {0}", out(reg) _, options(nostack));
        }
        TAGGED.store(true, Ordering::Relaxed);
    }
}

/// Whether spaces are tagged.
pub fn is_tagged() -> bool {
    TAGGED.load(Ordering::Relaxed)
}

/// The processor's tag of a space; tag 0 is the kernel's, and spaces beyond the last share it.
fn tag_of(space: u32) -> usize {
    (space as usize + 1).min(TAGS - 1)
}

fn write_root(value: u64) {
    // SAFETY: the root maps the kernel as every root does (`Machine::root_made`).
    unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack)) }
}

/// Loads a space on this CPU: programs run in it from now on.
pub fn load(loaded: Loaded) {
    let cpu = Cpu::this();
    let root = u64::from(loaded.root.0) << 12;
    // Before the root: a request that comes in between must not be taken for another's.
    cpu.loaded.store(u64::from(loaded.tag.0), Ordering::Relaxed);
    if !is_tagged() {
        return write_root(root);
    }
    let tag = tag_of(loaded.tag.0);
    let keep = !cpu.mailbox.take_stale(tag) && tag != TAGS - 1;
    write_root(root | tag as u64 | u64::from(keep) << 63);
}

/// Loads the kernel's root: no space is in use on this CPU.
pub fn unload() {
    let cpu = Cpu::this();
    if cpu.loaded.swap(NO_SPACE, Ordering::Relaxed) != NO_SPACE {
        write_root(kernel_root() | u64::from(is_tagged()) << 63);
    }
}

/// Forgets the translation of one page of the space that is loaded.
pub fn invalidate(address: u64) {
    // SAFETY: forgetting is always allowed.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) }
}

/// Forgets on this CPU.
fn forget(request: &Flush) {
    let cpu = Cpu::this();
    if cpu.loaded.load(Ordering::Relaxed) != u64::from(request.space.0) {
        // Without tags, loading the space forgets.
        if is_tagged() {
            cpu.mailbox.mark_stale(tag_of(request.space.0));
        }
        return;
    }
    match request.range {
        Some(range) if range.pages() <= MOST_PAGES => {
            let last = range.pages() > 1 && defect::is(Defect::LastPage);
            for page in range.start.0..range.end.0 - u64::from(last) {
                invalidate(page << 12);
            }
        }
        _ if defect::is(Defect::WholeSpace) => {}
        _ => {
            let root: u64;
            // SAFETY: reads a register; the root stays.
            unsafe { asm!("mov {}, cr3", out(reg) root, options(nostack, nomem)) }
            write_root(root);
        }
    }
}

/// Answers what other CPUs ask of this one. Called while waiting in the kernel, and by
/// their interrupt.
pub fn answer() {
    let cpu = Cpu::this();
    let asked = &cpu.mailbox.asked;
    if asked.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut from = asked.swap(0, Ordering::Acquire);
    while from != 0 {
        let asker = &CPUS[from.trailing_zeros() as usize].mailbox;
        from &= from - 1;
        // SAFETY: the asker wrote it before it set our bit, and does not change it
        // until ours is gone from `pending`.
        let request = unsafe { *asker.request.get() };
        if let Some(request) = request.filter(|_| !defect::is(Defect::Acknowledge)) {
            forget(&request);
        }
        asker
            .pending
            .fetch_and(!(1 << cpu.index()), Ordering::Release);
    }
}

/// Makes CPUs forget, and returns when they have: [`vellum::platform::Machine::flush`].
#[inline(never)]
pub fn flush(cpus: CpuSet, count: usize, request: &Flush) {
    let start = cycles();
    let cpu = Cpu::this();
    let own = cpu.index();
    let mut others = 0u64;
    for target in cpus.iter(count) {
        if usize::from(target.0) != own {
            others |= 1 << target.0;
        } else if !defect::is(Defect::LocalFlush) {
            forget(request);
        }
    }
    if defect::is(Defect::RemoteFlush) || others == 0 {
        cpu.counts.local_flush.add(cycles() - start);
        return;
    }
    // SAFETY: this CPU's, and nobody reads it before a bit in `asked` is set.
    unsafe { *cpu.mailbox.request.get() = Some(*request) };
    cpu.mailbox.pending.store(others, Ordering::Release);
    let mut left = others;
    while left != 0 {
        let target = &CPUS[left.trailing_zeros() as usize];
        left &= left - 1;
        target.mailbox.asked.fetch_or(1 << own, Ordering::Release);
        apic::interrupt(target.apic.load(Ordering::Relaxed), apic::FLUSH);
    }
    while cpu.mailbox.pending.load(Ordering::Acquire) != 0 {
        answer();
        core::hint::spin_loop();
    }
    cpu.counts.shootdown.add(cycles() - start);
}
