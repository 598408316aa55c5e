//! Proof that the core, and the compressed store, need no standard library: a static library with a
//! panic handler and an allocator of its own links it whole. If the core, or
//! anything it depends on, pulled in `std`, there would be two panic handlers
//! and the build would fail.
#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::RefCell;
use core::panic::PanicInfo;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};

use vellum::addr::{Access, Pfn, Prot, Vpn};
use vellum::frame::{PhysicalMemory, Request, Site};
use vellum::platform::{CpuId, CpuSet, Flush, Machine, MemoryRange, Policy, Sleep, TaskToken};
use vellum::rmap::{Chains, Partial, ReverseMap};
use vellum::slab::{Arena, ArenaMaker, Item};
use vellum::space::MapRequest;
use vellum::table::{Cursor, Format, Fresh, Marks, Tables, X86_64};
use vellum::tree::{RangeNode, RangeTree};
use vellum::{Design, Vm};
use vellum_compressed::{Exclusive, Loaded, Nowhere, Pool, Scratch, Store};

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
unsafe impl Machine for Board {
    fn cpus(&self) -> usize {
        1
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
}

impl Sleep for Board {
    fn current_task(&self) -> TaskToken {
        TaskToken(0)
    }
    fn park(&self) {}
    fn unpark(&self, _: TaskToken) {}
}

impl vellum::platform::Store for Board {}

impl Policy for Board {}

fn use_core<R: ReverseMap>() -> Option<()> {
    let vm: Vm<Board, X86_64, R> = Vm::new(Board, Design::default()).ok()?;
    let space = vm.create_space().ok()?;
    space
        .map(&MapRequest::anonymous(1, Prot::READ_WRITE))
        .ok()?;
    space.fault(0x1000, Access::Write).ok()?;
    let child = space.fork().ok()?;
    child.exit().ok()?;
    vm.audit().ok().map(|_| ())
}

/// Something to keep in a tree.
#[derive(Default)]
#[repr(align(8))]
struct Thing {
    link: AtomicU32,
}

impl Item for Thing {
    const SITE: Site = Site::Region;
    fn vacant() -> Self {
        Thing::default()
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// Frames, page tables and a tree of ranges, without a manager.
fn use_parts() -> Option<()> {
    let memory = PhysicalMemory::new(Board).ok()?;
    let pin = memory.pin();
    let request = Request::page(Site::AnonymousPage).order(2);
    memory
        .view()
        .alloc(&pin, request)
        .ok()?
        .into_frames()
        .for_each(drop);
    let root = Tables::<Board, X86_64>::make_root(&memory, &Fresh, &pin, 1).ok()?;
    // SAFETY: the root was made for this, and only a leaf is put into its tables.
    let tables: Tables<'_, Board, X86_64> = unsafe { Tables::new(&memory, &Fresh, &pin, root, 1) };
    let leaf = X86_64::leaf(Pfn(1), 1, Prot::READ, Marks::default());
    Cursor::new(&tables).map(Vpn(1), leaf).ok()?;
    // SAFETY: the arenas are used with this memory, and dropped before it.
    let maker = unsafe { ArenaMaker::new(1, memory.frame_count(), 4096) };
    let (nodes, things): (Arena<RangeNode>, Arena<Thing>) = (maker.make(), maker.make());
    let first = AtomicU64::new(0);
    // SAFETY: the root belongs to these arenas, which have no other tree.
    let tree = unsafe { RangeTree::new(&nodes, &things, &first) };
    let room = tree.make_room(&pin, &memory).ok()?;
    tree.insert(&pin, room, things.alloc(&pin, &memory).ok()?, 1, 2);
    tree.first_ending_after(0).map(|_| ())
}

/// The parts, as the whole below.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_parts_no_std() -> bool {
    use_parts().is_some()
}

/// A lock for a program of one thread.
struct Alone<T>(RefCell<T>);

// SAFETY: nobody starts a thread here.
unsafe impl<T> Sync for Alone<T> {}

impl<T> Exclusive<T> for Alone<T> {
    fn new(value: T) -> Self {
        Alone(RefCell::new(value))
    }
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.0.borrow_mut())
    }
}

/// A page goes to a compressed store, and comes back.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_compressed_no_std() -> bool {
    type Memory = [u8; 8192];
    let store = Store::<Alone<Pool<Memory>>, Memory, Nowhere>::new([0; 8192], 4096, 8, None);
    let Ok(store) = store else { return false };
    let (mut page, mut scratch) = ([0; 4096], Scratch::new(4096));
    page[7] = 1;
    let is_put = store.put(3, &page, &mut scratch).is_ok();
    is_put && store.get(3, &mut scratch) == Ok(Loaded::Page(&page))
}

/// Uses both designs, so that all of the core is compiled.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_no_std() -> bool {
    use_core::<Chains>().is_some() | use_core::<Partial>().is_some()
}
