//! Pages that their owner does not want: `Advice::Free` and `Advice::Cold` (invariant 15).

use std::sync::atomic::Ordering;
use std::vec::Vec;

use super::{RW, SWAP, TestVm, aging, fault, is_cached, private_world_of, stats, store, vm_of};
use crate::addr::{Access, Pfn, Vpn};
use crate::rmap::{Family, ReverseMap};
use crate::space::{Advice, MapRequest, Placement, SpaceId};
use crate::table::{Format, Marks, Users, X86_64};

/// What a processor does that stores to a page whose entry lets it: the entry gets its marks.
fn mark_stored<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: Vpn, byte: u8) {
    let pin = vm.pin();
    let live = vm.find_space(space).unwrap();
    let table = vm.tables(&pin, live).lock(page).unwrap();
    let index = X86_64::index(page, 1);
    let entry = table.load(index);
    assert!(X86_64::is_writable(entry), "a store would fault");
    table.update(index, Users::Hardware, |entry| {
        X86_64::with_marks(entry, Marks::DIRTY)
    });
    vm.platform().scribble(X86_64::frame(entry, 1), byte);
}

fn bytes<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, start: Vpn, pages: u64) -> Vec<u8> {
    let read = |index| {
        let frame = fault(vm, space, start.offset(index), Access::Read);
        vm.platform().peek(frame)[0]
    };
    (0..pages).map(read).collect()
}

fn fill<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, start: Vpn, pages: u64) {
    (0..pages).for_each(|index| store(vm, space, start.offset(index), index as u8 + 1));
}

/// Freed pages are dropped, but for those that were stored to since: by way of their entry, or by
/// a device. Nothing is written to swap for those that are dropped.
fn freed_pages_are_dropped<R: ReverseMap>() {
    for options in aging() {
        let (vm, space, start) = private_world_of::<R>(&options, 40);
        fill(&vm, space, start, 40);
        vm.advise(space, start, 8, Advice::Free).unwrap();
        mark_stored(&vm, space, start.offset(1), 101);
        store(&vm, space, start.offset(2), 102);
        assert_eq!(vm.reclaim_pages(40), 40, "{options}");
        let (stats, swap) = (stats(&vm), vm.swap_stats());
        assert_eq!((stats.dropped, swap.outs), (6, 34), "{options}");
        vm.audit().unwrap();
        let found = bytes(&vm, space, start, 40);
        assert_eq!(found[..8], [0, 101, 102, 0, 0, 0, 0, 0], "{options}");
        let others: Vec<u8> = (9..=40).collect();
        assert_eq!(found[8..], others, "{options}");
        vm.audit().unwrap();
    }
}

/// A page that was stored to after it was freed is the child's as it is, whatever entry shows it.
fn a_fork_keeps_what_was_stored_after_the_page_was_freed<R: ReverseMap>() {
    for options in aging() {
        let (vm, space, start) = private_world_of::<R>(&options, 40);
        fill(&vm, space, start, 4);
        vm.advise(space, start, 4, Advice::Free).unwrap();
        (0..4).for_each(|index| mark_stored(&vm, space, start.offset(index), 50 + index as u8));
        let first = vm.fork(space).unwrap();
        let second = vm.fork(space).unwrap();
        vm.exit(space).unwrap();
        vm.exit(first).unwrap();
        while vm.reclaim_pages(4) > 0 {}
        assert_eq!(bytes(&vm, second, start, 4), [50, 51, 52, 53], "{options}");
        assert_eq!(stats(&vm).dropped, 0, "{options}");
        vm.audit().unwrap();
    }
}

/// A page that was to go to swap, and could not be written, is one that nobody may drop.
fn a_page_that_swap_has_refused_is_not_dropped<R: ReverseMap>() {
    for options in aging() {
        let (vm, space, start) = private_world_of::<R>(&options, 40);
        fill(&vm, space, start, 4);
        vm.advise(space, start, 4, Advice::Free).unwrap();
        let breaks = |is_broken| (vm.platform().broken_store).store(is_broken, Ordering::Relaxed);
        breaks(true);
        vm.advise(space, start, 4, Advice::PageOut).unwrap();
        breaks(false);
        assert_eq!(bytes(&vm, space, start, 4), [1, 2, 3, 4], "{options}");
        while vm.reclaim_pages(4) > 0 {}
        assert_eq!(bytes(&vm, space, start, 4), [1, 2, 3, 4], "{options}");
        assert_eq!(stats(&vm).dropped, 0, "{options}");
        vm.audit().unwrap();
    }
}

macro_rules! under_every_design {
    ($($(#[$about:meta])* $name:ident: $design:ident $value:literal;)*) => {
        $(#[test]
        fn $name() {
            freed_pages_are_dropped::<crate::rmap::$design>();
            a_fork_keeps_what_was_stored_after_the_page_was_freed::<crate::rmap::$design>();
            a_page_that_swap_has_refused_is_not_dropped::<crate::rmap::$design>();
        })*
    };
}
crate::every_rmap! { [under_every_design] }

#[test]
fn freed_pages_leave_without_swap() {
    for options in aging() {
        let vm: TestVm<Family> = vm_of(&options, 300);
        let space = vm.begin_space().unwrap();
        let start = Vpn(0x4000);
        let request = MapRequest::anonymous(40, RW).at(Placement::Fixed(start));
        vm.map(space, &request).unwrap();
        fill(&vm, space, start, 40);
        assert_eq!(vm.reclaim_pages(40), 0, "{options}");
        vm.advise(space, start, 10, Advice::Free).unwrap();
        mark_stored(&vm, space, start, 99);
        assert_eq!(vm.reclaim_pages(40), 9, "{options}");
        assert_eq!(bytes(&vm, space, start, 2), [99, 0], "{options}");
        vm.audit().unwrap();
    }
}

#[test]
fn a_page_that_a_child_has_too_is_not_freed() {
    let (vm, space, start) = private_world_of::<Family>("reclaim=on", 40);
    fill(&vm, space, start, 4);
    vm.advise(space, start, 2, Advice::Free).unwrap();
    let child = vm.fork(space).unwrap();
    vm.advise(space, start.offset(2), 2, Advice::Free).unwrap();
    while vm.reclaim_pages(4) > 0 {}
    assert_eq!(stats(&vm).dropped, 0);
    for space in [space, child] {
        assert_eq!(bytes(&vm, space, start, 4), [1, 2, 3, 4]);
    }
    vm.audit().unwrap();
}

/// What the program stores later is what the device reads.
#[test]
fn a_freed_page_that_a_device_reads_is_not_dropped() {
    for options in aging() {
        let (vm, space, start) = private_world_of::<Family>(&options, 4);
        fill(&vm, space, start, 4);
        vm.advise(space, start, 4, Advice::Free).unwrap();
        let mut frames = [Pfn::NONE];
        vm.pin_pages(space, start, Access::Read, &mut frames)
            .unwrap();
        while vm.reclaim_pages(4) > 0 {}
        assert_eq!(stats(&vm).dropped, 3, "{options}");
        let mapped = vm.translate(space, start).map(|mapped| mapped.0);
        assert_eq!(mapped, Some(frames[0]), "{options}");
        // SAFETY: pinned above.
        unsafe { vm.unpin(&frames) };
        assert_eq!(bytes(&vm, space, start, 4), [1, 0, 0, 0], "{options}");
        vm.audit().unwrap();
    }
}

#[test]
fn pages_that_calls_have_used_often_are_cold_when_their_owner_says_so() {
    for options in aging() {
        let (vm, space, start) = private_world_of::<Family>(&options, 4);
        let file = vm.stored_pages(3, 16).unwrap();
        for _ in 0..3 {
            (0..16).for_each(|index| _ = is_cached(&vm, file, index));
        }
        let mapped = Vpn(0x9000);
        let request = MapRequest::object(file, 12, 4, RW).shared();
        vm.map(space, &request.at(Placement::Fixed(mapped)))
            .unwrap();
        for index in 0..4 {
            fault(&vm, space, mapped.offset(index), Access::Read);
        }
        fill(&vm, space, start, 4);
        vm.advise(space, mapped, 4, Advice::Cold).unwrap();
        assert_eq!(vm.reclaim_pages(4), 4, "{options}");
        for index in 12..16 {
            assert!(!is_cached(&vm, file, index), "{options}: page {index}");
        }
        for index in 0..12 {
            assert!(is_cached(&vm, file, index), "{options}: page {index}");
        }
        vm.audit().unwrap();
    }
}

#[test]
fn cold_pages_leave_before_others_and_stay_as_they_are() {
    for options in aging() {
        let (vm, space, start) = private_world_of::<Family>(&options, 64);
        fill(&vm, space, start, 64);
        let file = vm.stored_pages(3, 8).unwrap();
        let mapped = Vpn(0x9000);
        let request = MapRequest::object(file, 0, 8, RW).shared();
        vm.map(space, &request.at(Placement::Fixed(mapped)))
            .unwrap();
        (0..8).for_each(|index| store(&vm, space, mapped.offset(index), 70));
        vm.advise(space, start.offset(32), 32, Advice::Cold)
            .unwrap();
        vm.advise(space, mapped, 8, Advice::Cold).unwrap();
        // All others are used, and the cold ones not.
        for index in 0..32 {
            mark_stored(&vm, space, start.offset(index), index as u8 + 1);
        }
        let left = vm.reclaim_pages(16);
        assert!((16..=40).contains(&left), "{options}: {left}");
        // One use does not tell newcomers apart, as all of them have been used to come.
        if !options.contains("generations") {
            let is_in = |index| vm.translate(space, start.offset(index)).is_some();
            assert!((0..32).all(is_in), "{options}");
        }
        let expected: Vec<u8> = (1..=64).collect();
        assert_eq!(bytes(&vm, space, start, 64), expected, "{options}");
        assert_eq!(bytes(&vm, space, mapped, 8), [70; 8], "{options}");
        assert!(is_cached(&vm, file, 0), "{options}");
        vm.audit().unwrap();
    }
}

#[test]
fn advice_about_what_is_not_needed_refuses_holes() {
    let (vm, space, start) = private_world_of::<Family>("", 4);
    assert_eq!(SWAP.priority, 0);
    fill(&vm, space, start, 4);
    for advice in [Advice::Free, Advice::Cold] {
        let refused = vm.advise(space, start, 5, advice);
        assert_eq!(
            refused,
            Err(crate::space::MapError::NotMapped),
            "{advice:?}"
        );
        vm.advise(space, start, 4, advice).unwrap();
    }
    assert_ne!(fault(&vm, space, start, Access::Read), Pfn::NONE);
    vm.audit().unwrap();
}
