//! Proof that the core needs no standard library: a static library with a
//! panic handler and an allocator of its own links it whole. If the core, or
//! anything it depends on, pulled in `std`, there would be two panic handlers
//! and the build would fail.
#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr::NonNull;

use vellum::addr::{Access, Pfn, Prot};
use vellum::platform::{
    CpuId, CpuSet, Flush, IoError, MemoryRange, NodeId, Platform, TaskToken,
};
use vellum::rmap::{Chains, Partial, ReverseMap};
use vellum::space::MapRequest;
use vellum::table::X86_64;
use vellum::{Design, Vm};

struct NoMemory;

// SAFETY: it never hands out memory.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// A board without memory.
struct Board;

// SAFETY: there is no memory, so there is nothing to misuse.
unsafe impl Platform for Board {
    fn cpus(&self) -> usize {
        1
    }
    fn nodes(&self) -> usize {
        1
    }
    fn node_of(&self, _: CpuId) -> NodeId {
        NodeId(0)
    }
    fn frame_shift(&self) -> u32 {
        12
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &[]
    }
    fn pin(&self) -> CpuId {
        CpuId(0)
    }
    fn unpin(&self, _: CpuId) {}
    fn frame(&self, _: Pfn) -> NonNull<u8> {
        NonNull::dangling()
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {}
    fn current_task(&self) -> TaskToken {
        TaskToken(0)
    }
    fn park(&self) {}
    fn unpark(&self, _: TaskToken) {}
    unsafe fn read_page(&self, _: u64, _: u64, _: Pfn) -> Result<(), IoError> {
        Err(IoError)
    }
    fn write_page(&self, _: u64, _: u64, _: Pfn) -> Result<(), IoError> {
        Err(IoError)
    }
}

fn use_core<R: ReverseMap>() -> Option<()> {
    let vm: Vm<Board, X86_64, R> = Vm::new(Board, Design::default()).ok()?;
    let space = vm.create_space().ok()?;
    vm.map(space, &MapRequest::anonymous(1, Prot::READ_WRITE)).ok()?;
    vm.fault(space, 0x1000, Access::Write).ok()?;
    let child = vm.fork(space).ok()?;
    vm.exit(child).ok()?;
    vm.audit().ok().map(|_| ())
}

/// Uses both designs, so that all of the core is compiled.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_no_std() -> bool {
    use_core::<Chains>().is_some() | use_core::<Partial>().is_some()
}
