//! Room for pv entries: entries that a fault makes again are cleared for others.

use super::*;
use crate::frame::{OwnedBlock, Request, Site};
use crate::rmap::Pv;

const PAGES: u64 = 200;
/// Where spaces show the object: all of it lies in one table.
const AT: u64 = 4 << 9;

/// Takes all frames but so many.
fn take_all_but(vm: &TestVm<Pv>, left: usize) -> Vec<OwnedBlock<'_, TestMachine>> {
    let pin = vm.pin();
    let request = Request::page(Site::AnonymousPage);
    let mut taken = Vec::new();
    while let Ok(block) = vm.memory().alloc(&pin, request) {
        taken.push(block);
    }
    for _ in 0..left {
        taken.pop().unwrap().free(&pin);
    }
    taken
}

/// A space that has stored to the first `pages` pages of the object, and nothing else.
fn user(vm: &TestVm<Pv>, object: ObjectId, pages: u64) -> SpaceId {
    let space = vm.begin_space().unwrap();
    map(
        vm,
        space,
        AT,
        MapRequest::object(object, 0, PAGES, RW).shared(),
    );
    for page in 0..pages {
        touch(vm, space, AT + page, Access::Write);
    }
    space
}

#[test]
fn entries_of_locked_ranges_make_no_room() {
    let vm = vm_with::<Pv>("rmap=pv,faultaround=1", 1024);
    let object = vm.memory_pages(PAGES).unwrap();
    let first = user(&vm, object, 160);
    let second = user(&vm, object, PAGES);
    let third = user(&vm, object, 168);
    for space in [first, second, third] {
        vm.lock_pages(space, Vpn(AT), PAGES).unwrap();
    }
    let taken = take_all_but(&vm, 0);
    // Its chunk is full, and no entry may go.
    let full = vm.fault(third, (AT + 168) * 4096, Access::Write);
    assert_eq!(full, Err(FaultError::OutOfMemory));
    let resident = |space| vm.space_stats(space).unwrap().rss.shared_memory;
    assert_eq!([first, second, third].map(resident), [160, PAGES, 168]);
    vm.unlock_pages(first, Vpn(AT), PAGES).unwrap();
    touch(&vm, third, AT + 168, Access::Write);
    assert!(resident(first) < 160);
    let pin = vm.pin();
    taken.into_iter().for_each(|block| block.free(&pin));
    drop(pin);
    vm.audit().unwrap();
}

#[test]
fn entries_of_another_space_make_room_for_a_chunk() {
    for order in ["domain", "global", "pmap"] {
        let design = std::format!("rmap=pv,faultaround=1,pvlru={order}");
        let vm = vm_with::<Pv>(&design, 1024);
        let object = vm.memory_pages(PAGES).unwrap();
        let first = user(&vm, object, 160);
        let second = user(&vm, object, PAGES);
        let third = user(&vm, object, 168);
        let before = vm.stats().rmap;
        assert_eq!(before.reclaimed, 0);
        let taken = take_all_but(&vm, 0);
        // Its chunk is full, and there is no frame for another.
        touch(&vm, third, AT + 168, Access::Write);
        let after = vm.stats().rmap;
        assert!(after.reclaimed >= 160, "{order}: {after:?}");
        let pin = vm.pin();
        taken.into_iter().for_each(|block| block.free(&pin));
        drop(pin);
        vm.audit().unwrap();
        let lost = [first, second, third].map(|space| {
            let shown = leaves(&vm, space);
            shown.len() as u64
        });
        assert_eq!(
            lost.iter().sum::<u64>(),
            160 + PAGES + 169 - after.reclaimed
        );
        // What was cleared comes back, and what was stored is still dirty.
        for page in 0..160 {
            touch(&vm, first, AT + page, Access::Read);
        }
        for space in [first, second, third] {
            vm.exit(space).unwrap();
        }
        vm.page_cache().release_object(object).unwrap();
        vm.audit().unwrap();
    }
}

#[test]
fn a_page_whose_entry_is_taken_back_stays_dirty() {
    let vm = vm_with::<Pv>("rmap=pv,faultaround=1", 1024);
    let object = vm.stored_pages(7, PAGES).unwrap();
    let first = user(&vm, object, 1);
    let frame = vm.translate(first, Vpn(AT)).unwrap().0;
    let second = user(&vm, object, 168);
    let taken = take_all_but(&vm, 0);
    let third = AT + 168;
    // The page is not cached, so the call fails in the end, but not for want of a chunk.
    let failed = vm.fault(second, third << 12, Access::Write);
    assert!(failed.is_err());
    assert!(
        vm.translate(first, Vpn(AT))
            .is_none_or(|(now, _)| now == frame)
    );
    let pin = vm.pin();
    taken.into_iter().for_each(|block| block.free(&pin));
    drop(pin);
    touch(&vm, second, third, Access::Write);
    assert_eq!(
        vm.file(object).sync(),
        Ok(169),
        "every page that was stored to is written"
    );
    for space in [first, second] {
        vm.exit(space).unwrap();
    }
    vm.page_cache().release_object(object).unwrap();
    vm.audit().unwrap();
}

#[test]
fn private_pages_are_not_taken_back() {
    let vm = vm_with::<Pv>("rmap=pv,faultaround=1", 1024);
    let space = vm.begin_space().unwrap();
    map(&vm, space, AT, MapRequest::anonymous(300, RW));
    for page in 0..168 {
        touch(&vm, space, AT + page, Access::Write);
    }
    let taken = take_all_but(&vm, 1);
    let failed = vm.fault(space, (AT + 168) << 12, Access::Write);
    assert_eq!(failed, Err(FaultError::OutOfMemory));
    assert_eq!(vm.stats().rmap.reclaimed, 0);
    assert_eq!(leaves(&vm, space).len(), 168);
    let pin = vm.pin();
    taken.into_iter().for_each(|block| block.free(&pin));
    drop(pin);
    touch(&vm, space, AT + 168, Access::Write);
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}
