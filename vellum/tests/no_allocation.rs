//! After `Vm::new` the core asks the global allocator for nothing (invariant 13):
//! neither in its operations, nor in those that fail, nor in its audit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::NonNull;

use vellum::addr::{Access, Pfn, Prot, Vpn};
use vellum::design::variants;
use vellum::platform::{
    CpuId, CpuSet, Flush, IoError, MemoryRange, NodeId, Platform, TaskToken, Zone,
};
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, MapRequest, Placement};
use vellum::sync::bytes::FrameBytes;
use vellum::table::X86_64;
use vellum::{Design, SpaceId, Vm, with_rmap};

/// Counts what a thread allocates while it says that it must not.
struct Counting;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn note() {
    // A thread that is ending has no flag any more, and is none of ours.
    if FORBIDDEN.try_with(Cell::get).unwrap_or(false) {
        CALLS.set(CALLS.get() + 1);
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FRAMES: u32 = 2048;
const SIZE: usize = 4096;

/// Memory and one page of backing store that every page shares.
struct Bare {
    memory: NonNull<u8>,
    map: [MemoryRange; 2],
    cpu: Cell<u16>,
    written: Cell<u64>,
}

const LAYOUT: Layout = match Layout::from_size_align(FRAMES as usize * SIZE, SIZE) {
    Ok(layout) => layout,
    Err(_) => panic!("a valid layout"),
};

// SAFETY: the test uses it on one thread; the trait asks for the bound.
unsafe impl Sync for Bare {}

impl Bare {
    fn new() -> Bare {
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { std::alloc::alloc(LAYOUT) }).expect("memory");
        let range = |start, frames, zone| MemoryRange {
            start: Pfn(start),
            frames,
            node: NodeId(0),
            zone,
        };
        Bare {
            memory,
            map: [
                range(0, 1500, Zone::Low),
                range(1500, FRAMES - 1500, Zone::High),
            ],
            cpu: Cell::new(0),
            written: Cell::new(0),
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), LAYOUT) };
    }
}

// SAFETY: the frames are this platform's own memory, aligned and distinct; one
// thread uses it, so no two callers are pinned; nothing caches translations.
unsafe impl Platform for Bare {
    fn cpus(&self) -> usize {
        2
    }
    fn nodes(&self) -> usize {
        1
    }
    fn node_of(&self, _cpu: CpuId) -> NodeId {
        NodeId(0)
    }
    fn frame_shift(&self) -> u32 {
        12
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &self.map
    }
    fn pin(&self) -> CpuId {
        CpuId(self.cpu.get())
    }
    fn unpin(&self, _cpu: CpuId) {}
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        assert!(frame.0 < FRAMES);
        // SAFETY: the frame lies inside of the allocation.
        unsafe { self.memory.add(frame.index() * SIZE) }
    }
    fn flush(&self, _from: CpuId, _cpus: CpuSet, _request: &Flush) {}
    fn current_task(&self) -> TaskToken {
        TaskToken(1)
    }
    fn park(&self) {
        unreachable!("one task waits for nobody");
    }
    fn unpark(&self, _task: TaskToken) {}
    unsafe fn read_page(&self, _store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        if index == 13 {
            return Err(IoError);
        }
        // SAFETY: the frame is memory of this size, touched here and by the core.
        let bytes = unsafe { FrameBytes::new(self.frame(frame), SIZE) };
        bytes.fill(u64::from_ne_bytes([index as u8; 8]));
        Ok(())
    }
    fn write_page(&self, _store: u64, _index: u64, _frame: Pfn) -> Result<(), IoError> {
        self.written.set(self.written.get() + 1);
        Ok(())
    }
}

type Manager<R> = Vm<Bare, X86_64, R>;

fn touch<R: ReverseMap>(
    vm: &Manager<R>,
    space: SpaceId,
    pages: std::ops::Range<u64>,
    access: Access,
) {
    for page in pages {
        vm.fault(space, page << 12, access).unwrap();
    }
}

/// Every operation, across many tables, with long chains and a tall page tree.
fn scenario<R: ReverseMap>(vm: &Manager<R>) {
    use Access::{Execute, Read, Write};
    let parent = vm.create_space().unwrap();
    let at = |request: MapRequest, page| request.at(Placement::Fixed(Vpn(page)));
    let file = vm.create_file(1, 40).unwrap();
    let memory = vm.create_shared_memory(30).unwrap();
    let rw = Prot::READ_WRITE;
    vm.map(parent, &at(MapRequest::anonymous(300, rw), 400))
        .unwrap();
    vm.map(
        parent,
        &at(MapRequest::anonymous(8, rw).growing_down(), 3000),
    )
    .unwrap();
    vm.map(parent, &at(MapRequest::anonymous(20, rw).shared(), 5000))
        .unwrap();
    vm.map(
        parent,
        &at(MapRequest::object(file, 2, 30, rw).shared(), 6000),
    )
    .unwrap();
    vm.map(
        parent,
        &at(
            MapRequest::object(file, 0, 30, rw.union(Prot::EXECUTE)),
            7000,
        ),
    )
    .unwrap();
    vm.map(
        parent,
        &at(MapRequest::object(memory, 0, 40, rw).shared(), 8000),
    )
    .unwrap();
    vm.map(parent, &MapRequest::anonymous(5000, rw)).unwrap();
    touch(vm, parent, 400..700, Write);
    touch(vm, parent, 2990..3008, Write);
    touch(vm, parent, 5000..5020, Read);
    touch(vm, parent, 5000..5010, Write);
    touch(vm, parent, 6000..6010, Write);
    touch(vm, parent, 7000..7012, Execute);
    touch(vm, parent, 7004..7008, Write);
    touch(vm, parent, 8000..8030, Write);
    assert_eq!(vm.fault(parent, 8035 << 12, Read), Err(FaultError::PastEnd));
    assert_eq!(vm.fault(parent, 7013 << 12, Read), Err(FaultError::Io));
    vm.set_heap_start(parent, Vpn(20_000)).unwrap();
    vm.set_heap_end(parent, Vpn(20_020)).unwrap();
    vm.populate(parent, Vpn(20_000), 20).unwrap();
    let mut frames = [Pfn::NONE; 4];
    vm.pin_pages(parent, Vpn(500), Write, &mut frames).unwrap();
    let mut children = [parent; 9];
    for child in &mut children {
        *child = vm.fork(parent).unwrap();
        vm.platform().cpu.set(1 - vm.platform().cpu.get());
        touch(vm, *child, 400..410, Write);
        touch(vm, *child, 6000..6004, Read);
    }
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    for step in 0..40 {
        vm.protect(parent, Vpn(400 + step * 7), 3, Prot::READ)
            .unwrap();
    }
    touch(vm, parent, 450..451, Read);
    vm.remap(parent, Vpn(420), 1, 9, Placement::Anywhere)
        .unwrap();
    vm.remap(
        parent,
        Vpn(3000),
        8,
        8,
        Placement::Fixed(Vpn((1 << 27) - 4)),
    )
    .unwrap();
    vm.remap(parent, Vpn(5000), 20, 12, Placement::Anywhere)
        .unwrap();
    vm.unmap(parent, Vpn(640), 30).unwrap();
    vm.advise(parent, Vpn(6000), 30, Advice::DontNeed).unwrap();
    vm.advise(parent, Vpn(7000), 30, Advice::Free).unwrap();
    vm.set_heap_end(parent, Vpn(20_010)).unwrap();
    vm.write_pages(file, 1 << 20, 3, |page, bytes| bytes.fill(page))
        .unwrap();
    vm.read_pages(memory, 0, 30, |_, bytes| {
        let mut word = [0; 8];
        bytes.read(8, &mut word);
    })
    .unwrap();
    assert!(vm.sync(file).unwrap() >= 3);
    vm.truncate(file, 5).unwrap();
    vm.truncate(memory, 3).unwrap();
    let mut regions = 0;
    vm.for_each_region(parent, |_| regions += 1).unwrap();
    assert!(regions > 40);
    assert!(vm.share_space(parent));
    assert_eq!(vm.exit(parent), Ok(false));
    vm.audit().unwrap();
    let stats = (vm.stats(), vm.sharing(), vm.space_stats(parent).unwrap());
    assert!(stats.0.events.faults > 300);
    let new = vm.exec(parent).unwrap();
    for child in children {
        assert_eq!(vm.exit(child), Ok(true));
    }
    assert_eq!(vm.exit(new), Ok(true));
    vm.release_object(file).unwrap();
    vm.release_object(memory).unwrap();
    rest(vm);
    exhaust(vm);
    vm.audit().unwrap();
}

/// What an idle CPU does, one under pressure, and one that goes.
fn rest<R: ReverseMap>(vm: &Manager<R>) {
    while vm.idle() {}
    vm.zero_idle(16);
    vm.relieve();
    for cpu in [0, 1] {
        vm.platform().cpu.set(cpu);
        while vm.offline() > 0 {}
    }
}

/// Runs out of memory in every way there is.
fn exhaust<R: ReverseMap>(vm: &Manager<R>) {
    let space = vm.create_space().unwrap();
    let start = vm
        .map(space, &MapRequest::anonymous(10_000, Prot::READ_WRITE))
        .unwrap();
    assert_eq!(
        vm.populate(space, start, 10_000),
        Err(FaultError::OutOfMemory)
    );
    assert!(vm.fork(space).is_err());
    let file = vm.create_file(2, 10_000);
    if let Ok(file) = file {
        assert!(vm.read_pages(file, 0, 10_000, |_, _| {}).is_err());
        vm.release_object(file).unwrap();
    }
    assert_eq!(vm.exit(space), Ok(true));
}

/// Calls of the global allocator by `work` on this thread.
fn calls(work: impl FnOnce()) -> u64 {
    CALLS.set(0);
    FORBIDDEN.set(true);
    work();
    FORBIDDEN.set(false);
    CALLS.get()
}

fn run(design: &str) {
    let parsed = Design::parse(design).unwrap();
    with_rmap!(parsed.rmap, R => run_on::<R>(design, parsed));
}

fn run_on<R: ReverseMap>(name: &str, design: Design) {
    let vm: Manager<R> = Vm::new(Bare::new(), design).unwrap();
    let count = calls(|| {
        scenario(&vm);
        scenario(&vm);
    });
    assert_eq!(
        count, 0,
        "{name}: {count} calls of the global allocator after Vm::new"
    );
    assert!(vm.platform().written.get() > 0);
}

#[test]
fn no_reverse_mapping_uses_the_global_allocator() {
    for design in variants("rmap") {
        run(&design);
        run(&format!("{design},forkcopy=all,faultaround=1"));
    }
}

#[test]
fn no_source_of_table_pages_uses_the_global_allocator() {
    for design in variants("ptepage") {
        run(&design);
    }
}

#[test]
fn the_count_notices_an_allocation() {
    assert_eq!(calls(|| drop(std::hint::black_box(Box::new(1)))), 2);
}
