//! The limits of a space hold in all calls, and what counts is what is there in the end
//! (invariant 17).

mod random;

use super::*;

const AT: u64 = 1000;

fn limited<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, limits: Limits) -> SpaceId {
    let space = vm.begin_space().unwrap();
    vm.set_limits(space, limits).unwrap();
    space
}

fn of_regions(regions: u32) -> Limits {
    Limits {
        regions,
        ..Limits::default()
    }
}

fn entries<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> Vec<MapEntry> {
    let mut found = Vec::new();
    vm.for_each_region(space, |entry| found.push(*entry))
        .unwrap();
    found
}

/// Has each call refused by the limits, and nothing changed.
fn refused<R: crate::rmap::ReverseMap>(
    vm: &TestVm<R>,
    space: SpaceId,
    calls: &[&dyn Fn() -> Result<(), MapError>],
) {
    let before = (entries(vm, space), vm.space_stats(space));
    for (nth, call) in calls.iter().enumerate() {
        assert_eq!(call(), Err(MapError::Limit), "call {nth}");
        assert_eq!((entries(vm, space), vm.space_stats(space)), before);
    }
    vm.audit().unwrap();
}

fn at_the_limit<R: crate::rmap::ReverseMap>(design: &str) {
    let vm = vm_with::<R>(&std::format!("{design},folio=64k"), 2048);
    let space = limited(&vm, of_regions(2));
    map(&vm, space, AT, MapRequest::anonymous(20, RW));
    map(&vm, space, AT + 100, MapRequest::anonymous(20, Prot::READ));
    for page in 0..20 {
        touch(&vm, space, AT + page, Access::Write);
    }
    let fixed = |at, pages| {
        let request = MapRequest::anonymous(pages, Prot::READ).at(Placement::Fixed(Vpn(at)));
        vm.map(space, &request).map(drop)
    };
    let remap = |at, pages, to| {
        let moved = vm.remap(space, Vpn(at), pages, pages, RemapPlacement::Fixed(Vpn(to)));
        moved.map(drop)
    };
    refused(
        &vm,
        space,
        &[
            &|| vm.protect(space, Vpn(AT + 5), 5, Prot::READ),
            &|| vm.protect(space, Vpn(AT), 5, Prot::READ),
            &|| vm.protect(space, Vpn(AT + 15), 5, Prot::READ),
            &|| vm.unmap(space, Vpn(AT + 5), 5),
            &|| vm.lock_pages(space, Vpn(AT + 5), 5),
            &|| vm.lock_pages(space, Vpn(AT), 5),
            &|| vm.advise(space, Vpn(AT + 5), 5, Advice::Folio(Some(2))),
            &|| fixed(AT + 5, 5),
            &|| fixed(AT + 15, 5),
            &|| fixed(AT + 50, 5),
            &|| remap(AT + 5, 5, AT + 50),
            &|| remap(AT + 15, 5, AT + 50),
            &|| remap(AT, 10, AT + 105),
            &|| remap(AT, 5, AT + 100),
            // The tail is a hole in its region.
            &|| {
                let shorter = vm.remap(space, Vpn(AT + 2), 10, 5, RemapPlacement::MayMove);
                shorter.map(drop)
            },
        ],
    );
    // What adds no region is not refused.
    vm.unmap(space, Vpn(AT), 2).unwrap();
    vm.unmap(space, Vpn(AT + 18), 2).unwrap();
    vm.protect(space, Vpn(AT + 2), 16, Prot::READ).unwrap();
    vm.protect(space, Vpn(AT + 2), 16, RW).unwrap();
    vm.lock_pages(space, Vpn(AT + 2), 16).unwrap();
    refused(&vm, space, &[&|| vm.unlock_pages(space, Vpn(AT + 5), 5)]);
    vm.unlock_pages(space, Vpn(AT + 2), 16).unwrap();
    fixed(AT + 100, 20).unwrap();
    fixed(AT + 90, 30).unwrap();
    remap(AT + 2, 16, AT + 90).unwrap();
    remap(AT + 90, 16, AT + 2).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().regions, 2);
    vm.unmap(space, Vpn(AT + 107), 3).unwrap_err();
    // A hole that is one because of what lies around it.
    vm.unmap(space, Vpn(AT + 10), 100).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().regions, 2);
    vm.audit().unwrap();
}

fn between_neighbours<R: crate::rmap::ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 2048);
    let space = limited(&vm, of_regions(3));
    map(&vm, space, AT, MapRequest::anonymous(30, RW));
    for page in 0..30 {
        touch(&vm, space, AT + page, Access::Write);
    }
    vm.protect(space, Vpn(AT + 10), 10, Prot::READ).unwrap();
    let shapes = |cut: [u64; 4]| {
        let found: Vec<_> = entries(&vm, space).iter().map(|view| view.range).collect();
        let wanted = [0, 1, 2].map(|nth| PageRange {
            start: Vpn(AT + cut[nth]),
            end: Vpn(AT + cut[nth + 1]),
        });
        assert_eq!(found, wanted);
    };
    // Neighbours with the same rights take what one loses.
    vm.protect(space, Vpn(AT + 10), 3, RW).unwrap();
    shapes([0, 13, 20, 30]);
    vm.protect(space, Vpn(AT + 18), 2, RW).unwrap();
    shapes([0, 13, 18, 30]);
    vm.protect(space, Vpn(AT + 11), 2, Prot::READ).unwrap();
    shapes([0, 11, 18, 30]);
    // But not if it is in between.
    refused(
        &vm,
        space,
        &[
            &|| vm.protect(space, Vpn(AT + 13), 2, RW),
            &|| vm.protect(space, Vpn(AT + 13), 10, Prot::NONE),
            &|| vm.protect(space, Vpn(AT + 5), 3, Prot::READ),
        ],
    );
    vm.protect(space, Vpn(AT + 13), 2, Prot::READ).unwrap();
    vm.protect(space, Vpn(AT + 5), 20, RW).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().regions, 1);
    vm.audit().unwrap();
}

with_each_design! {
    calls_that_would_make_too_many_regions_are_refused_and_change_nothing => at_the_limit;
    rights_that_move_from_one_region_to_the_next_need_no_room_for_another => between_neighbours;
}

#[cfg(feature = "published")]
#[test]
fn regions_without_pages_count_as_what_faults_may_make_of_them() {
    // Faults give regions what keeps them apart while they are cut, so nothing relies on
    // their becoming one again.
    let vm = vm_with::<crate::rmap::AnonVma>("rmap=anon_vma", 2048);
    let space = limited(&vm, of_regions(1));
    map(&vm, space, AT, MapRequest::anonymous(30, RW));
    refused(&vm, space, &[&|| vm.protect(space, Vpn(AT + 5), 5, RW)]);
    touch(&vm, space, AT, Access::Write);
    vm.protect(space, Vpn(AT + 5), 5, RW).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().regions, 1);
}

#[test]
fn a_mapping_that_extends_another_is_no_further_region() {
    let vm = vm();
    let space = limited(&vm, of_regions(2));
    map(&vm, space, AT, MapRequest::anonymous(10, RW));
    map(&vm, space, AT + 30, MapRequest::anonymous(10, RW));
    map(&vm, space, AT + 10, MapRequest::anonymous(5, RW));
    map(&vm, space, AT + 25, MapRequest::anonymous(5, RW));
    let other = MapRequest::anonymous(5, Prot::READ).at(Placement::FixedFree(Vpn(AT + 15)));
    refused(&vm, space, &[&|| vm.map(space, &other).map(drop)]);
    map(&vm, space, AT + 15, MapRequest::anonymous(10, RW));
    assert_eq!(regions(&vm, space), [(AT, AT + 40)]);
    // Neither is a heap that grows.
    vm.set_heap_start(space, Vpn(AT + 100)).unwrap();
    for end in [105, 110, 120] {
        vm.set_heap_end(space, Vpn(AT + end)).unwrap();
    }
    assert_eq!(vm.space_stats(space).unwrap().regions, 2);
    vm.audit().unwrap();
}

#[test]
fn limits_that_are_lowered_refuse_what_adds_and_nothing_else() {
    let vm = vm();
    let space = limited(&vm, Limits::default());
    for nth in 0..4 {
        map(&vm, space, AT + 20 * nth, MapRequest::anonymous(10, RW));
    }
    let stack = MapRequest::anonymous(2, RW).growing_down();
    map(&vm, space, AT + 5000, stack);
    vm.set_limits(space, of_regions(2)).unwrap();
    // A stack that grows is no further region.
    touch(&vm, space, AT + 4990, Access::Write);
    refused(&vm, space, &[&|| vm.unmap(space, Vpn(AT + 2), 2)]);
    vm.unmap(space, Vpn(AT + 5), 20).unwrap();
    vm.protect(space, Vpn(AT), 5, Prot::READ).unwrap();
    vm.unmap(space, Vpn(AT + 40), 40).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().regions, 3);
    let limits = Limits {
        pages: 20,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    vm.remap(space, Vpn(AT), 5, 5, RemapPlacement::Fixed(Vpn(AT + 200)))
        .unwrap();
    map(&vm, space, AT + 200, MapRequest::anonymous(5, RW));
    vm.audit().unwrap();
}

#[test]
fn what_a_mapping_replaces_makes_room_for_it() {
    let vm = vm();
    let limits = Limits {
        pages: 30,
        locked_pages: 10,
        ..Limits::default()
    };
    let space = limited(&vm, limits);
    let locked = MapRequest {
        traits: Traits::LOCKED,
        ..MapRequest::anonymous(10, RW)
    };
    map(&vm, space, AT, locked);
    map(&vm, space, AT + 10, MapRequest::anonymous(20, RW));
    map(&vm, space, AT, MapRequest::anonymous(30, Prot::READ));
    map(&vm, space, AT, locked);
    map(&vm, space, AT, locked);
    let fixed = |request: MapRequest, at| {
        let placed = request.at(Placement::Fixed(Vpn(at)));
        vm.map(space, &placed).map(drop)
    };
    refused(
        &vm,
        space,
        &[
            &|| fixed(locked, AT + 5),
            &|| fixed(locked, AT + 10),
            &|| fixed(MapRequest::anonymous(21, RW), AT + 10),
            &|| fixed(MapRequest::anonymous(1, RW), AT + 30),
        ],
    );
    let moved = |pages, new_pages, to| {
        let moved = vm.remap(
            space,
            Vpn(AT + 10),
            pages,
            new_pages,
            RemapPlacement::Fixed(Vpn(to)),
        );
        moved.map(drop)
    };
    // Ten pages more, of which six were there.
    refused(&vm, space, &[&|| moved(4, 14, AT + 24)]);
    fixed(MapRequest::anonymous(4, RW), AT + 10).unwrap();
    moved(4, 14, AT + 14).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().pages, 10 + 14 + 2);
    vm.audit().unwrap();
}

#[test]
fn a_tract_that_has_no_more_asks_what_the_others_have() {
    let vm = vm();
    let space = limited(&vm, of_regions(8));
    map(&vm, space, AT, MapRequest::anonymous(100, RW));
    assert_eq!(vm.divide_space(space, Vpn(AT + 500)), Ok(true));
    assert_eq!(vm.divide_space(space, Vpn(AT + 1000)), Ok(true));
    // Its share is two.
    vm.protect(space, Vpn(AT + 20), 10, Prot::READ).unwrap();
    vm.protect(space, Vpn(AT + 40), 10, Prot::READ).unwrap();
    assert_eq!(vm.divide_space(space, Vpn(AT + 500)), Ok(true));
    vm.unmap(space, Vpn(AT + 60), 10).unwrap();
    vm.unmap(space, Vpn(AT + 75), 5).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().regions, 7);
    assert_eq!(vm.divide_space(space, Vpn(AT + 500)), Ok(true));
    vm.lock_pages(space, Vpn(AT + 90), 10).unwrap();
    assert_eq!(vm.divide_space(space, Vpn(AT + 500)), Ok(true));
    let request = MapRequest::anonymous(2, Prot::READ);
    let inside = request.at(Placement::Fixed(Vpn(AT + 5)));
    refused(
        &vm,
        space,
        &[
            &|| vm.unmap(space, Vpn(AT + 5), 5),
            &|| vm.protect(space, Vpn(AT + 5), 5, Prot::READ),
            &|| vm.map(space, &inside).map(drop),
        ],
    );
    vm.audit().unwrap();
}
