//! Locked ranges: their pages stay in memory, whoever else maps them (invariant 16).

use super::{
    RW, STORE, SWAP, TestVm, aging, fault, is_cached, map_file, private_world_of, stats, store,
    vm_of,
};
use std::vec::Vec;

use crate::ObjectId;
use crate::addr::{Access, Pfn, Prot, Vpn};
use crate::rmap::{Family, ReverseMap};
use crate::space::{
    Advice, FaultError, Limits, MapError, MapRequest, Placement, RemapPlacement, SpaceId, Traits,
};
use crate::testing::ByRegions;

fn frame_of<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: Vpn) -> Option<Pfn> {
    vm.translate(space, page).map(|(frame, _)| frame)
}

/// The frames of mapped pages, of those that are.
fn frames<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, start: Vpn, pages: u64) -> Vec<Pfn> {
    (0..pages)
        .filter_map(|index| frame_of(vm, space, start.offset(index)))
        .collect()
}

fn reclaim_all<R: ReverseMap>(vm: &TestVm<R>) {
    // The first passes only find out that pages are not used.
    for _ in 0..4 {
        vm.reclaim_pages(1000);
    }
}

/// Private pages of a locked range stay, also where a child maps them, and until it is unlocked.
fn private_pages_stay<R: ReverseMap>() {
    for options in aging() {
        let (vm, space, start) = private_world_of::<R>(&options, 40);
        (0..40).for_each(|index| store(&vm, space, start.offset(index), index as u8 + 1));
        let locked = start.offset(8);
        vm.lock_pages(space, locked, 8).unwrap();
        let before = frames(&vm, space, locked, 8);
        reclaim_all(&vm);
        assert_eq!(stats(&vm).reclaimed, 32, "{options}");
        assert_eq!(frames(&vm, space, start, 40), before, "{options}");
        let child = vm.fork(space).unwrap();
        reclaim_all(&vm);
        assert_eq!(frames(&vm, space, locked, 8), before, "{options}");
        assert_eq!(frames(&vm, child, locked, 8), before, "{options}");
        let refused = vm.advise(space, start, 40, Advice::PageOut);
        assert_eq!(refused, Err(MapError::Locked), "{options}");
        vm.advise(child, start, 40, Advice::PageOut).unwrap();
        assert_eq!(frames(&vm, space, locked, 8), before, "{options}");
        vm.audit().unwrap();
        vm.unlock_pages(space, locked, 8).unwrap();
        reclaim_all(&vm);
        assert_eq!(frames(&vm, space, start, 40), [], "{options}");
        for index in 0..40 {
            let frame = fault(&vm, space, start.offset(index), Access::Read);
            assert_eq!(vm.platform().peek(frame)[0], index as u8 + 1, "{options}");
        }
        vm.audit().unwrap();
    }
}

/// Maps `object` in two spaces, of which the second locks half of it.
fn half_locked<R: ReverseMap>(vm: &TestVm<R>, object: ObjectId) -> [(SpaceId, Vpn); 2] {
    let worlds = [map_file(vm, object, 16), map_file(vm, object, 16)];
    for (space, start) in worlds {
        vm.populate(space, start, 16).unwrap();
    }
    let (second, start) = worlds[1];
    vm.lock_pages(second, start, 8).unwrap();
    worlds
}

/// A page of an object stays in memory if one of the spaces that map it has locked it.
fn pages_of_objects_stay<R: ReverseMap>() {
    for options in aging() {
        let vm: TestVm<R> = vm_of(&options, 400);
        vm.swap_on(SWAP).unwrap();
        let file = vm.stored_pages(STORE, 16).unwrap();
        let memory = vm.memory_pages(16).unwrap();
        for object in [file, memory] {
            let [(first, start), (second, _)] = half_locked(&vm, object);
            reclaim_all(&vm);
            assert_eq!(frames(&vm, first, start, 16).len(), 8, "{options}");
            vm.advise(first, start, 16, Advice::PageOut).unwrap();
            assert_eq!(frames(&vm, second, start, 16).len(), 8, "{options}");
            assert_eq!(frames(&vm, second, start, 8).len(), 8, "{options}");
            vm.audit().unwrap();
        }
        assert!((0..8).all(|index| is_cached(&vm, file, index)), "{options}");
        let is_cut = vm.page_cache().set_size(file, 4 << 12);
        assert_eq!(is_cut, Ok(()), "{options}: a locked page may be cut off");
        vm.audit().unwrap();
    }
}

macro_rules! under_every_design {
    ($($(#[$about:meta])* $name:ident: $design:ident $value:literal;)*) => {
        $(#[test]
        fn $name() {
            private_pages_stay::<crate::rmap::$design>();
            pages_of_objects_stay::<crate::rmap::$design>();
        })*
    };
}
crate::every_rmap! { [under_every_design] }

fn locked_pages(vm: &TestVm<Family>, space: SpaceId) -> u64 {
    vm.space_stats(space).unwrap().locked
}

#[test]
fn locked_is_counted_and_kept_by_what_moves_and_grows() {
    let (vm, space, start) = private_world_of::<Family>("reclaim=on", 40);
    vm.lock_pages(space, start, 10).unwrap();
    vm.lock_pages(space, start.offset(5), 10).unwrap();
    assert_eq!(locked_pages(&vm, space), 15);
    assert_eq!(vm.space_stats(space).unwrap().regions, 2);
    let place = RemapPlacement::Fixed(Vpn(0x9000));
    vm.remap(space, start, 15, 20, place).unwrap();
    assert_eq!(locked_pages(&vm, space), 20);
    let is_locked = |space, page| {
        let entry = vm.region_at(space, page).unwrap();
        entry.traits.has(Traits::LOCKED)
    };
    assert!(is_locked(space, Vpn(0x9000)) && !is_locked(space, start.offset(15)));
    let child = vm.fork(space).unwrap();
    assert_eq!(locked_pages(&vm, child), 0);
    assert!(!is_locked(child, Vpn(0x9000)));
    vm.unmap(space, Vpn(0x9000), 4).unwrap();
    assert_eq!(locked_pages(&vm, space), 16);
    vm.unlock_pages(space, Vpn(0x9004), 16).unwrap();
    assert_eq!(locked_pages(&vm, space), 0);
    vm.audit().unwrap();
}

#[test]
fn a_space_locks_no_more_pages_than_it_may() {
    let (vm, space, start) = private_world_of::<Family>("reclaim=on", 40);
    let limits = Limits {
        locked_pages: 10,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    vm.lock_pages(space, start, 10).unwrap();
    vm.lock_pages(space, start.offset(2), 8).unwrap();
    let refused = vm.lock_pages(space, start, 11);
    assert_eq!(refused, Err(MapError::Limit));
    let place = RemapPlacement::Fixed(Vpn(0x9000));
    let refused = vm.remap(space, start, 10, 11, place);
    assert_eq!(refused, Err(MapError::Limit));
    let grown = vm.remap(space, start, 10, 11, RemapPlacement::MayMove);
    assert_eq!(grown, Err(MapError::Limit));
    let request = MapRequest {
        traits: Traits::LOCKED,
        ..MapRequest::anonymous(1, RW)
    };
    assert_eq!(vm.map(space, &request), Err(MapError::Limit));
    assert_eq!(locked_pages(&vm, space), 10);
    vm.unlock_pages(space, start, 1).unwrap();
    vm.map(space, &request).unwrap();
    assert_eq!(locked_pages(&vm, space), 10);
}

#[test]
fn a_locked_stack_grows_as_far_as_may_be_locked() {
    let vm: TestVm<Family> = vm_of("reclaim=on", 200);
    let space = vm.begin_space().unwrap();
    let top = Vpn(0x8000);
    let request = MapRequest::anonymous(4, RW).growing_down();
    vm.map(space, &request.at(Placement::Fixed(top))).unwrap();
    vm.lock_pages(space, top, 4).unwrap();
    let limits = Limits {
        locked_pages: 6,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    let touch = |below: u64| vm.fault(space, (top.0 - below) * super::PAGE, Access::Write);
    touch(2).unwrap();
    assert_eq!(locked_pages(&vm, space), 6);
    assert_eq!(touch(3), Err(FaultError::NoRegion));
}

#[test]
fn advice_that_takes_locked_pages_away_is_refused_and_changes_nothing() {
    let (vm, space, start) = private_world_of::<Family>("reclaim=on", 40);
    (0..40).for_each(|index| store(&vm, space, start.offset(index), 7));
    vm.lock_pages(space, start.offset(39), 1).unwrap();
    let all = frames(&vm, space, start, 40);
    for advice in [
        Advice::DontNeed,
        Advice::Free,
        Advice::Cold,
        Advice::PageOut,
    ] {
        let refused = vm.advise(space, start, 40, advice);
        assert_eq!(refused, Err(MapError::Locked), "{advice:?}");
        assert_eq!(frames(&vm, space, start, 40), all, "{advice:?}");
    }
    vm.advise(space, start, 40, Advice::Folio(None)).unwrap();
    vm.advise(space, start, 39, Advice::DontNeed).unwrap();
    assert_eq!(frames(&vm, space, start, 40), all[39..]);
}

#[test]
fn pages_that_were_freed_before_they_were_locked_are_not_dropped() {
    for options in aging() {
        let (vm, space, start) = private_world_of::<Family>(&options, 8);
        (0..8).for_each(|index| store(&vm, space, start.offset(index), 7));
        vm.advise(space, start, 8, Advice::Free).unwrap();
        vm.lock_pages(space, start, 4).unwrap();
        let before = frames(&vm, space, start, 4);
        reclaim_all(&vm);
        assert_eq!(frames(&vm, space, start, 8), before, "{options}");
        assert_eq!(stats(&vm).dropped, 4, "{options}");
    }
}

#[test]
fn holes_are_not_locked() {
    let vm: TestVm<ByRegions> = vm_of("reclaim=on", 200);
    let space = vm.begin_space().unwrap();
    let request = MapRequest::anonymous(4, Prot::NONE).at(Placement::Fixed(Vpn(0x4000)));
    vm.map(space, &request).unwrap();
    for lock in [TestVm::lock_pages, TestVm::unlock_pages] {
        assert_eq!(lock(&vm, space, Vpn(0x4000), 5), Err(MapError::NotMapped));
        assert_eq!(lock(&vm, space, Vpn(0x3fff), 1), Err(MapError::NotMapped));
        assert_eq!(lock(&vm, space, Vpn(0x4000), 0), Err(MapError::BadRange));
        let past = lock(&vm, space, Vpn(u64::MAX), 2);
        assert_eq!(past, Err(MapError::BadRange));
        assert_eq!(lock(&vm, space, Vpn(0x4000), 4), Ok(()));
    }
    assert_eq!(vm.space_stats(space).unwrap().locked, 0);
}
