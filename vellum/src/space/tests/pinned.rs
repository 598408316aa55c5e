//! Calls that may sleep, made under a pin of the caller's own, and spaces that would end
//! while a CPU runs in them.

use core::sync::atomic::Ordering;

use super::*;
use crate::space::state::locked::HoldsSpace;
use crate::sync::Unpinned;

const PAGE: u64 = 1000;
const STORE: u64 = 3;

/// A manager with a space whose first page is there.
fn world(design: &str) -> (TestVm, SpaceId) {
    let vm = vm_with::<ByRegions>(design, 512);
    let space = vm.begin_space().unwrap();
    map(&vm, space, PAGE, MapRequest::anonymous(2, RW));
    touch(&vm, space, PAGE, Access::Write);
    (vm, space)
}

#[test]
fn calls_that_take_the_lock_of_a_space_are_refused_under_a_pin() {
    let (vm, space) = world("");
    let object = vm.memory_pages(1).unwrap();
    let file = vm.page_cache().open(object).unwrap();
    let request = MapRequest::anonymous(1, RW).at(Placement::Fixed(Vpn(PAGE + 8)));
    let pin = vm.pin();
    let refused = Err(MapError::Pinned);
    assert_eq!(vm.map(space, &request).map(|_| ()), refused);
    assert_eq!(vm.unmap(space, Vpn(PAGE), 1), refused);
    assert_eq!(vm.protect(space, Vpn(PAGE), 1, Prot::READ), refused);
    assert_eq!(vm.fork(space).map(|_| ()), refused);
    assert_eq!(vm.set_heap_start(space, Vpn(PAGE + 16)), refused);
    assert_eq!(vm.exec(space).map(|_| ()), refused);
    assert_eq!(vm.exit(space).map(|_| ()), refused);
    assert_eq!(
        vm.page_cache().release_object(object),
        Err(FileError::Pinned)
    );
    let file = vm.close(file).unwrap_err();
    drop(pin);
    // Nothing has changed.
    assert_eq!(leaves(&vm, space).len(), 1);
    vm.close(file).unwrap();
    vm.page_cache().release_object(object).unwrap();
    vm.unmap(space, Vpn(PAGE), 1).unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn a_store_is_not_asked_under_a_pin() {
    let (vm, space) = world("");
    let file = vm.stored_pages(STORE, 1).unwrap();
    map(
        &vm,
        space,
        PAGE + 8,
        MapRequest::object(file, 0, 1, RW).shared(),
    );
    let fault = |access| vm.fault(space, (PAGE + 8) << 12, access).map(|_| ());
    let pin = vm.pin();
    assert_eq!(fault(Access::Read), Err(FaultError::Io));
    drop(pin);
    assert_eq!(fault(Access::Write), Ok(()));
    let pin = vm.pin();
    assert_eq!(vm.file(file).sync(), Err(FileError::Io));
    assert_eq!(vm.page_cache().seek_data(file, 0), Err(FileError::Io));
    assert_eq!(vm.page_cache().seek_hole(file, 0), Err(FileError::Io));
    drop(pin);
    assert_eq!(vm.file(file).sync(), Ok(1), "the page has stayed dirty");
    vm.exit(space).unwrap();
    vm.page_cache().release_object(file).unwrap();
    vm.audit().unwrap();
}

#[test]
fn nothing_leaves_memory_for_who_is_pinned() {
    let (vm, space) = world("reclaim=on");
    let area = crate::swap::SwapArea::new(77, 1000);
    vm.swap_on(area).unwrap();
    map(&vm, space, PAGE + 8, MapRequest::anonymous(600, RW));
    let touch_all = |pages: u64| {
        let mut faults =
            (0..pages).map(|page| vm.fault(space, (PAGE + 8 + page) << 12, Access::Write));
        faults.find_map(Result::err)
    };
    let pin = vm.pin();
    assert_eq!(touch_all(600), Some(FaultError::OutOfMemory));
    assert_eq!((vm.reclaim_pages(10), vm.swap_stats().outs), (0, 0));
    drop(pin);
    assert_eq!(touch_all(600), None);
    assert!(vm.swap_stats().outs > 0);
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}

#[test]
#[should_panic(expected = "a call sleeps under the caller's pin")]
fn nobody_sleeps_under_a_pin() {
    let (vm, space) = world("");
    let guard = vm.lock_named(Unpinned::at_door(), space).unwrap();
    let _pin = vm.pin();
    let space = guard.locked();
    (space.get().lock).lock(Unpinned::at_door(), &vm.waits, &vm.memory);
}

#[test]
fn a_space_that_is_loaded_does_not_end() {
    let (vm, space) = world("");
    vm.share_space(space).unwrap();
    let tag = vm.load(space).unwrap().tag;
    vm.platform().loaded.store(tag.0, Ordering::Relaxed);
    assert_eq!(vm.exit(space), Ok(false), "another task has it");
    assert_eq!(vm.exit(space), Err(MapError::Loaded));
    assert_eq!(vm.exec(space), Err(MapError::Loaded));
    touch(&vm, space, PAGE + 1, Access::Write);
    vm.platform().loaded.store(0, Ordering::Relaxed);
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(vm.exit(space), Err(MapError::NoSpace));
    vm.audit().unwrap();
}
