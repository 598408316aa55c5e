//! After `Vm::new` the core asks the global allocator for nothing (invariant 13):
//! neither in its operations, nor in those that fail, nor in its audit.

use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::format;

use crate::addr::{Access, Pfn, Prot, Vpn};
use crate::design::variants;
use crate::platform::Zone;
use crate::rmap::ReverseMap;
use crate::space::{Advice, FaultError, MapRequest, Placement, RemapPlacement};
use crate::table::X86_64;
use crate::testing::{TestMachine, allocations, range, run_on};
use crate::{Design, SpaceId, Vm, with_rmap};

type Manager<R> = Vm<TestMachine, X86_64, R>;

fn touch<R: ReverseMap>(
    vm: &Manager<R>,
    space: SpaceId,
    pages: core::ops::Range<u64>,
    access: Access,
) {
    for page in pages {
        vm.fault(space, page << 12, access).unwrap();
    }
}

/// Every operation, across many tables, with long chains and a tall page tree.
fn scenario<R: ReverseMap>(vm: &Manager<R>) {
    use Access::{Execute, Read, Write};
    let parent = vm.begin_space().unwrap();
    let at = |request: MapRequest, page| request.at(Placement::Fixed(Vpn(page)));
    let file = vm.stored_pages(1, 40).unwrap();
    let memory = vm.memory_pages(30).unwrap();
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
    vm.platform().broken_store.store(true, Ordering::Relaxed);
    assert_eq!(vm.fault(parent, 7013 << 12, Read), Err(FaultError::Io));
    vm.platform().broken_store.store(false, Ordering::Relaxed);
    vm.set_heap_start(parent, Vpn(20_000)).unwrap();
    vm.set_heap_end(parent, Vpn(20_020)).unwrap();
    vm.populate(parent, Vpn(20_000), 20).unwrap();
    let mut frames = [Pfn::NONE; 4];
    vm.pin_pages(parent, Vpn(500), Write, &mut frames).unwrap();
    let mut children = [parent; 9];
    let mut cpu = 0;
    for child in &mut children {
        *child = vm.fork(parent).unwrap();
        cpu = 1 - cpu;
        run_on(cpu);
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
    vm.remap(parent, Vpn(420), 1, 9, RemapPlacement::MayMove)
        .unwrap();
    vm.remap(
        parent,
        Vpn(3000),
        8,
        8,
        RemapPlacement::Fixed(Vpn((1 << 27) - 4)),
    )
    .unwrap();
    vm.remap(parent, Vpn(5000), 20, 12, RemapPlacement::MayMove)
        .unwrap();
    vm.unmap(parent, Vpn(640), 30).unwrap();
    vm.advise(parent, Vpn(6000), 30, Advice::DontNeed).unwrap();
    vm.advise(parent, Vpn(510), 30, Advice::Free).unwrap();
    vm.set_heap_end(parent, Vpn(20_010)).unwrap();
    vm.page_cache()
        .write_pages(file, 1 << 20, 3, |page, bytes| bytes.fill(page))
        .unwrap();
    vm.page_cache()
        .read_pages(memory, 0, 30, |_, bytes| {
            let mut word = [0; 8];
            bytes.read(8, &mut word);
        })
        .unwrap();
    assert!(vm.file(file).sync().unwrap() >= 3);
    vm.page_cache().set_size(file, 5 << 12).unwrap();
    vm.page_cache().set_size(memory, 3 << 12).unwrap();
    let mut regions = 0;
    vm.for_each_region(parent, |_| regions += 1).unwrap();
    assert!(regions > 40);
    vm.share_space(parent).unwrap();
    assert_eq!(vm.exit(parent), Ok(false));
    vm.audit().unwrap();
    let stats = (
        vm.stats(),
        crate::probe::sharing(vm),
        vm.space_stats(parent).unwrap(),
    );
    assert!(stats.0.events.faults > 300);
    let new = vm.exec(parent).unwrap();
    for child in children {
        assert_eq!(vm.exit(child), Ok(true));
    }
    assert_eq!(vm.exit(new), Ok(true));
    vm.page_cache().release_object(file).unwrap();
    vm.page_cache().release_object(memory).unwrap();
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
        run_on(cpu);
        while vm.offline() > 0 {}
    }
}

/// Runs out of memory in every way there is.
fn exhaust<R: ReverseMap>(vm: &Manager<R>) {
    let space = vm.begin_space().unwrap();
    let start = vm
        .map(space, &MapRequest::anonymous(10_000, Prot::READ_WRITE))
        .unwrap();
    assert_eq!(
        vm.populate(space, start, 10_000),
        Err(FaultError::OutOfMemory)
    );
    assert!(vm.fork(space).is_err());
    let file = vm.stored_pages(2, 10_000);
    if let Ok(file) = file {
        assert!(
            vm.page_cache()
                .read_pages(file, 0, 10_000, |_, _| {})
                .is_err()
        );
        vm.page_cache().release_object(file).unwrap();
    }
    assert_eq!(vm.exit(space), Ok(true));
}

fn check(design: &str) {
    let parsed = Design::parse(design).unwrap();
    with_rmap!(parsed.rmap, R => check_one::<R>(design, parsed));
}

fn check_one<R: ReverseMap>(name: &str, design: Design) {
    let map = [
        range(0x100, 1500, 0, Zone::Low),
        range(0x100 + 1500, 548, 0, Zone::High),
    ];
    run_on(0);
    let vm: Manager<R> = Vm::new(TestMachine::new(&[0, 0], &map), design).unwrap();
    let count = allocations(|| {
        scenario(&vm);
        scenario(&vm);
    });
    assert_eq!(
        count, 0,
        "{name}: {count} calls of the global allocator after Vm::new"
    );
}

#[test]
fn no_reverse_mapping_uses_the_global_allocator() {
    for design in variants("rmap") {
        check(&design);
        check(&format!("{design},forkcopy=all,faultaround=1"));
    }
}

#[test]
fn no_source_of_table_pages_uses_the_global_allocator() {
    for design in variants("ptepage") {
        check(&design);
    }
}

#[test]
fn what_kernels_did_with_files_and_frames_does_not_use_the_global_allocator() {
    for option in ["fileio", "framelists"] {
        for design in variants(option) {
            check(&design);
        }
    }
}

#[test]
fn the_count_notices_an_allocation() {
    assert_eq!(allocations(|| drop(core::hint::black_box(Box::new(1)))), 2);
}
