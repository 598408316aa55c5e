//! A small kernel around the Vellum memory manager: it starts under QEMU, runs programs on
//! a real MMU, and says on the serial port whether every page held what it must.
//!
//! `docs/embedding.md` walks through it. `cargo xtask boot` builds and runs it.
#![no_std]
#![no_main]

extern crate alloc;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
mod arch;
mod calls;
mod check;
mod disk;
mod heap;
mod lock;
mod machine;
mod physical;
mod protocol;
mod task;

use core::panic::PanicInfo;
use core::sync::atomic::Ordering;

use vellum::addr::Geometry;
use vellum::rmap::ReverseMap;
use vellum::table::Format;
use vellum::{Design, Vm};

use arch::cpu::{self, STARTED};
use arch::{Paging, flush, io, trap};
use lock::Once;
use machine::Machine;

#[cfg(feature = "chains")]
type Rmap = vellum::rmap::Chains;
#[cfg(feature = "anon_vma_chain")]
type Rmap = vellum::rmap::AnonVmaChain;
#[cfg(not(any(feature = "chains", feature = "anon_vma_chain")))]
type Rmap = vellum::rmap::Family;

/// Bytes of a page.
const PAGE: u64 = 1 << protocol::PAGE_SHIFT;
const _: () = assert!(protocol::PAGE_SHIFT == Paging::FRAME_SHIFT);

/// Name of the reverse-mapping design.
const DESIGN: &str = Rmap::NAME;

/// The manager.
static VM: Once<Vm<Machine, Paging, Rmap>> = Once::new();

#[inline]
fn vm() -> &'static Vm<Machine, Paging, Rmap> {
    VM.get()
}

/// The command line: words `name=value`.
static COMMAND_LINE: Once<&'static str> = Once::new();

fn option(name: &str) -> Option<&'static str> {
    let words = COMMAND_LINE.get().split_ascii_whitespace();
    let mut words = words.filter_map(|word| word.split_once('='));
    words.find_map(|(known, value)| (known == name).then_some(value))
}

fn number(name: &str) -> Option<u64> {
    let value = option(name)?;
    let number = value.parse().ok();
    assert!(number.is_some(), "`{name}={value}` is no number");
    number
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("{info}");
    io::end(1)
}

/// The first CPU comes here from the boot code, with the address of what the boot loader says.
#[unsafe(no_mangle)]
extern "C" fn kernel_start(boot: u64) -> ! {
    let boot = arch::Boot::at(boot);
    let disk = boot.disk().unwrap_or((0, 0));
    // Heap and the RAM disk's pages lie where there is most room.
    let kernel = (arch::KERNEL_BEGIN, physical::end_of_kernel());
    let [busy, more] = boot.busy();
    let mut taken = [kernel, busy, more];
    taken.sort_unstable();
    let (mut start, mut room) = (0, 0);
    physical::each_free(boot.memory(), &taken, |from, to| {
        let from = from.next_multiple_of(1 << 21);
        if to.saturating_sub(from) > room {
            (start, room) = (from, to - from);
        }
    });
    let heap_bytes = (24 << 20) + room / 32;
    let disk_pages = (start + heap_bytes).next_multiple_of(PAGE);
    let disk_end = (disk_pages + room / 4).next_multiple_of(PAGE);
    heap::init(start, heap_bytes);
    // SAFETY: there is one CPU, and nothing has been asked for.
    unsafe { COMMAND_LINE.set(boot.command_line()) };
    let others = arch::init(&boot);
    if let Some(name) = option("defect") {
        check::defect::choose(name);
    }
    assert!(disk.1 > 0, "no RAM disk: give one with -initrd");
    // SAFETY: there is one CPU; the memory manager is told below to leave all this alone.
    unsafe { disk::init(disk, (disk_pages, disk_end - disk_pages)) };

    let mut taken = [kernel, busy, more, (start, disk_end)];
    taken.sort_unstable();
    let machine = Machine::new(others.len() + 1, boot.memory(), &taken);
    let vm = Vm::new(machine, Design::default());
    let tasks = disk::file_word(protocol::DISK_SLICE, 1);
    let files = disk::file_word(protocol::DISK_SLICE, 2);
    // SAFETY: there is one CPU, which has not asked for these.
    unsafe {
        match vm {
            Ok(vm) => VM.set(vm),
            Err(error) => panic!("{error}"),
        }
        calls::init(files + 1, tasks);
    }
    flush::init();
    STARTED.store(1, Ordering::Release);
    cpu::start_others(&others);
    say!("{} CPUs, {} with {}", cpu::running(), DESIGN, Paging::NAME);
    let stack = heap::stack(65536) - trap::BELOW_STACK_END;
    let first = trap::TrapFrame::begin(check::run as *const () as u64, stack, [0; 2], false);
    assert!(task::create(first, None).is_some());
    task::run_cpu()
}
