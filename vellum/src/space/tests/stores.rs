//! Private pages that are stored to, pinned, unmapped in great number, and objects that
//! end with the last of their mappings.

use super::*;

/// The frame that a page shows.
fn frame(vm: &TestVm, space: SpaceId, page: u64) -> Pfn {
    vm.translate(space, Vpn(page)).unwrap().0
}

#[test]
fn a_pinned_page_that_nobody_shares_is_stored_to_where_it_is() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(1, RW));
    let mut pinned = [Pfn::NONE];
    vm.pin_pages(space, Vpn(1000), Access::Write, &mut pinned)
        .unwrap();
    // The entry loses the right to store, and the region gets it back.
    for prot in [Prot::READ, RW] {
        vm.protect(space, Vpn(1000), 1, prot).unwrap();
    }
    touch(&vm, space, 1000, Access::Write);
    assert_eq!(frame(&vm, space, 1000), pinned[0], "taken from its device");
    // SAFETY: pinned above, once.
    unsafe { vm.unpin(&pinned) };
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}

#[test]
fn a_child_may_have_as_much_as_its_parent() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let limits = Limits {
        regions: 1,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(1, RW));
    let child = vm.fork(space).unwrap();
    let more = MapRequest::anonymous(1, Prot::READ).at(Placement::FixedFree(Vpn(2000)));
    for id in [space, child] {
        assert_eq!(vm.map(id, &more), Err(MapError::Limit));
        vm.exit(id).unwrap();
    }
    vm.audit().unwrap();
}

#[test]
fn a_page_pinned_before_it_is_stored_to_is_the_one_stored_to() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(2, RW));
    for page in [1000, 1001] {
        if page == 1001 {
            touch(&vm, space, page, Access::Read);
        }
        let mut pinned = [Pfn::NONE];
        vm.pin_pages(space, Vpn(page), Access::Read, &mut pinned)
            .unwrap();
        touch(&vm, space, page, Access::Write);
        assert_eq!(frame(&vm, space, page), pinned[0]);
        // SAFETY: pinned above, once.
        unsafe { vm.unpin(&pinned) };
    }
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}

#[test]
fn pins_that_fail_leave_none_behind() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(2, RW));
    let mut pinned = [Pfn::NONE; 3];
    let error = vm.pin_pages(space, Vpn(1000), Access::Write, &mut pinned);
    assert_eq!(error, Err(PinError::Fault(FaultError::NoRegion)));
    for page in [1000, 1001] {
        let frame = vm.memory().frame(frame(&vm, space, page));
        assert_eq!(frame.counts().pins(), 0);
    }
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}

/// More runs of frames than are gathered at once, while another CPU has the space.
#[test]
fn a_range_in_more_pieces_than_are_gathered_at_once_is_unmapped_whole() {
    const PAGES: u64 = 700;
    let vm = vm();
    let space = vm.begin_space().unwrap();
    vm.share_space(space).unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(PAGES, RW));
    // Neighbours in the range are no neighbours in memory.
    for first in 0..7 {
        for page in (first..PAGES).step_by(7) {
            touch(&vm, space, 1000 + page, Access::Write);
        }
    }
    run_on(1);
    touch(&vm, space, 1000, Access::Write);
    run_on(0);
    vm.advise(space, Vpn(1000), PAGES, Advice::DontNeed)
        .unwrap();
    assert_eq!(leaves(&vm, space), []);
    vm.audit().unwrap();
}

#[test]
fn an_object_ends_with_the_last_of_its_mappings_touched_or_not_joined_or_not() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    for touched in [false, true] {
        // The places are mapped in this order; neighbours become one region.
        for order in [&[0][..], &[0, 1], &[1, 0], &[0, 2, 1], &[2, 0, 1]] {
            let object = vm.memory_pages(9).unwrap();
            for &place in order {
                let request = MapRequest::object(object, 3 * place, 3, RW).shared();
                map(&vm, space, 1000 + 3 * place, request);
                if touched {
                    touch(&vm, space, 1000 + 3 * place, Access::Write);
                }
            }
            assert_eq!(regions(&vm, space).len(), 1, "{order:?}");
            vm.page_cache().release_object(object).unwrap();
            assert_eq!(vm.audit().unwrap().objects, 1);
            vm.unmap(space, Vpn(1000), 3 * order.len() as u64).unwrap();
            assert_eq!(vm.audit().unwrap().objects, 0, "{order:?} {touched}");
        }
    }
}

/// The CPU remembers the region of its last fault, whatever space that was in.
#[test]
fn a_fault_enters_no_region_of_the_space_that_was_loaded_before() {
    let vm = vm();
    let [first, second] = [(); 2].map(|()| vm.begin_space().unwrap());
    map(&vm, first, 1000, MapRequest::anonymous(9, RW));
    touch(&vm, first, 1003, Access::Write);
    let fault = vm.fault(second, 1003 << 12, Access::Write);
    assert_eq!(fault, Err(FaultError::NoRegion));
    vm.exit(first).unwrap();
    vm.exit(second).unwrap();
    vm.audit().unwrap();
}
