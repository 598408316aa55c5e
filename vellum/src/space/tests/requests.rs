//! What requests ask for that cannot be, or that hardware cannot withhold: the answer is the same
//! whatever is in memory.

use super::*;
use crate::table::{Format, Sv39, X86_64La57, X86Pae};

fn limits_of(vm: &TestVm, space: SpaceId) -> Limits {
    vm.live_at(space.handle).limits.get()
}

#[test]
fn a_new_program_has_the_limits_of_the_old_one() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let limits = Limits {
        pages: 7,
        regions: 3,
        stack_pages: 5,
        stack_gap_pages: 2,
        locked_pages: 1,
        data_pages: 6,
        is_admin: true,
    };
    vm.set_limits(space, limits).unwrap();
    let new = vm.exec(space).unwrap();
    assert_eq!(limits_of(&vm, new), limits);
    let anywhere = MapRequest::anonymous(8, RW);
    assert_eq!(vm.map(new, &anywhere), Err(MapError::Limit));
    // A child has them as well, and its program.
    let child = vm.fork(new).unwrap();
    let of_child = vm.exec(child).unwrap();
    assert_eq!(limits_of(&vm, of_child), limits);
    vm.audit().unwrap();
}

/// What becomes of each access to a page that is not there, and then to one that is.
fn allowed<F: Format>(asked: Prot) -> (Prot, [[bool; 3]; 2]) {
    run_on(0);
    let machine = TestMachine::with_frames(1, 256, F::FRAME_SHIFT);
    let vm: Vm<TestMachine, F, ByRegions> = Vm::new(machine, Design::default()).unwrap();
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, 8).unwrap();
    let request = MapRequest::object(file, 0, 8, asked);
    let start = vm.map(space, &request).unwrap();
    let kinds = [Access::Read, Access::Write, Access::Execute];
    let access = |page: Vpn, access| vm.fault(space, page.address::<F>(), access).is_ok();
    let absent = [0, 1, 2].map(|nth| access(start.offset(nth), kinds[nth as usize]));
    let mut answers = [absent, [false; 3]];
    // One page for all, brought in by whoever may do so.
    let page = start.offset(5);
    assert!(kinds.iter().any(|&kind| access(page, kind)));
    let mut given = Prot::NONE;
    vm.for_each_leaf(space, |at, _, _, prot| {
        if at == page {
            given = prot;
        }
    })
    .unwrap();
    for (nth, kind) in kinds.into_iter().enumerate() {
        answers[1][nth] = given.allows(kind) || access(page, kind);
    }
    let region = vm.region_at(space, page).unwrap();
    vm.audit().unwrap();
    (region.prot, answers)
}

fn rights_are_the_same_whether_a_page_is_there_or_not<F: Format>() {
    for bits in 1..8 {
        let asked = Prot::from_bits(bits);
        let (shown, [absent, present]) = allowed::<F>(asked);
        assert_eq!(absent, present, "{}: {asked:?}", F::NAME);
        let kinds = [Access::Read, Access::Write, Access::Execute];
        assert_eq!(absent, kinds.map(|kind| shown.allows(kind)), "{asked:?}");
        assert_eq!(shown, F::given(asked), "{asked:?}");
    }
}

#[test]
fn rights_that_hardware_cannot_withhold_are_given_in_memory_or_not() {
    rights_are_the_same_whether_a_page_is_there_or_not::<X86_64>();
    rights_are_the_same_whether_a_page_is_there_or_not::<Sv39>();
    assert_eq!(X86_64::given(Prot::WRITE), RW);
    assert_eq!(X86_64::given(Prot::EXECUTE), Prot::READ_EXECUTE);
    assert_eq!(Sv39::given(Prot::EXECUTE), Prot::EXECUTE);
    assert_eq!(Sv39::given(Prot::NONE), Prot::NONE);
}

#[test]
fn protection_gives_what_hardware_cannot_withhold() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 100, MapRequest::anonymous(2, RW));
    touch(&vm, space, 100, Access::Write);
    vm.protect(space, Vpn(100), 2, Prot::WRITE).unwrap();
    for page in [100, 101] {
        touch(&vm, space, page, Access::Read);
        assert_eq!(vm.region_at(space, Vpn(page)).unwrap().prot, RW);
    }
    vm.audit().unwrap();
}

#[test]
fn a_hint_that_cannot_be_followed_is_anywhere() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let hint = |pages, page| {
        let request = MapRequest::anonymous(pages, RW).at(Placement::Hint(Vpn(page)));
        vm.map(space, &request)
    };
    let end = X86_64::USER_END.0;
    let mut top = end - 1;
    for page in [0, 1, 15, end - 1, end, end + 1, u64::MAX - 1, u64::MAX] {
        top -= 2;
        assert_eq!(hint(2, page), Ok(Vpn(top)), "{page:#x}");
    }
    // The first page that is no longer kept free for null pointers.
    assert_eq!(hint(2, 16), Ok(Vpn(16)));
    assert_eq!(hint(0, 100), Err(MapError::BadRange));
    assert_eq!(hint(end, 100), Err(MapError::NoGap));
    // A space in tracts is no exception.
    assert_eq!(vm.divide_space(space, Vpn(1 << 20)), Ok(true));
    for page in [0, u64::MAX] {
        assert!(hint(2, page).unwrap() >= Vpn(16), "{page:#x}");
    }
    assert!(vm.region_at(space, Vpn(0)).is_none());
    vm.audit().unwrap();
}

#[test]
fn nothing_but_private_zeroes_grows_down() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, 8).unwrap();
    let before = vm.audit().unwrap();
    let zeroes = MapRequest::anonymous(2, RW);
    let pages = MapRequest::object(file, 0, 2, RW);
    for request in [zeroes.shared(), pages, pages.shared()] {
        let refused = vm.map(space, &request.growing_down());
        assert_eq!(refused, Err(MapError::WrongKind), "{request:?}");
    }
    assert_eq!(vm.audit().unwrap(), before);
    assert!(vm.map(space, &zeroes.growing_down()).is_ok());
}

/// A heap, the largest folio and private pages come of other calls: a region that only says it
/// has them would be taken for what it is not.
#[test]
fn what_regions_become_is_not_asked_for() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let advised = Traits::NONE.with_folio(Some(2));
    let before = vm.audit().unwrap();
    for traits in [Traits::HEAP, Traits::HAS_PRIVATE, advised] {
        for more in [Traits::NONE, Traits::SHARED] {
            let request = MapRequest {
                traits: traits.union(more),
                ..MapRequest::anonymous(2, RW)
            };
            assert_eq!(vm.map(space, &request), Err(MapError::WrongKind));
        }
    }
    assert_eq!(vm.audit().unwrap(), before);
    let shared = MapRequest::anonymous(2, RW).shared();
    assert!(vm.map(space, &shared).is_ok());
}

#[test]
fn pages_of_objects_are_not_given_up_by_advice() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, 8).unwrap();
    map(&vm, space, 100, MapRequest::anonymous(2, RW));
    map(&vm, space, 102, MapRequest::object(file, 0, 2, RW));
    map(&vm, space, 104, MapRequest::anonymous(2, RW).shared());
    (100..106).for_each(|page| touch(&vm, space, page, Access::Write));
    let before = leaves(&vm, space);
    let free = |page, pages| vm.advise(space, Vpn(page), pages, Advice::Free);
    for (page, pages) in [(102, 2), (104, 1), (100, 3), (101, 5), (103, 90)] {
        assert_eq!(free(page, pages), Err(MapError::WrongKind), "{page}");
    }
    assert_eq!(leaves(&vm, space), before);
    assert_eq!(free(100, 2), Ok(()));
    vm.audit().unwrap();
}

/// A SYSCALL at the end of the last page below the hole in the addresses returns into the hole.
#[test]
fn the_page_below_the_hole_in_the_addresses_cannot_be_mapped() {
    fn ends_below<F: Format>(hole: u64) {
        run_on(0);
        let machine = TestMachine::with_frames(1, 256, F::FRAME_SHIFT);
        let vm: Vm<TestMachine, F, ByRegions> = Vm::new(machine, Design::default()).unwrap();
        let space = vm.begin_space().unwrap();
        let last = hole - 1;
        for (start, pages) in [(last, 1), (last - 1, 2)] {
            for placement in [
                Placement::Fixed(Vpn(start)),
                Placement::FixedFree(Vpn(start)),
            ] {
                let request = MapRequest::anonymous(pages, RW).at(placement);
                assert_eq!(vm.map(space, &request), Err(MapError::BadRange));
            }
        }
        let below = MapRequest::anonymous(1, RW).at(Placement::Fixed(Vpn(last - 1)));
        assert_eq!(vm.map(space, &below), Ok(Vpn(last - 1)));
        let grown = vm.remap(space, Vpn(last - 1), 1, 2, RemapPlacement::InPlace);
        assert!(grown.is_err(), "{grown:?}");
        let moved = vm.remap(space, Vpn(last - 1), 1, 1, RemapPlacement::Fixed(Vpn(last)));
        assert_eq!(moved, Err(MapError::BadRange));
        let fault = vm.fault(space, last << 12, Access::Write);
        assert_eq!(fault, Err(FaultError::NoRegion));
        vm.audit().unwrap();
    }
    ends_below::<X86_64>(1 << 35);
    ends_below::<X86_64La57>(1 << 44);
    // Without a hole, the last page is one as the others.
    assert_eq!(X86Pae::USER_END.0, 3 << 18);
}

#[test]
fn what_is_faulted_in_ahead_is_not_dirty_unless_somebody_stores_to_it() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, 8).unwrap();
    let memory = vm.memory_pages(8).unwrap();
    map(&vm, space, 100, MapRequest::object(file, 0, 8, RW).shared());
    map(
        &vm,
        space,
        108,
        MapRequest::object(memory, 0, 8, RW).shared(),
    );
    map(&vm, space, 116, MapRequest::anonymous(8, RW));
    map(&vm, space, 124, MapRequest::object(file, 0, 8, RW));
    map(&vm, space, 132, MapRequest::anonymous(8, Prot::READ));
    vm.lock_pages(space, Vpn(100), 40).unwrap();
    vm.populate(space, Vpn(100), 40).unwrap();
    let rss = vm.space_stats(space).unwrap().rss;
    assert_eq!((rss.file, rss.shared_memory), (8, 8));
    assert_eq!(
        (rss.anonymous, rss.zero),
        (16, 8),
        "private memory is copied now"
    );
    assert_eq!(vm.file(file).sync(), Ok(0), "nobody has stored to the file");
    touch(&vm, space, 103, Access::Write);
    assert_eq!(vm.file(file).sync(), Ok(1));
    let hole = vm.populate(space, Vpn(139), 2);
    assert_eq!(hole, Err(FaultError::NoRegion));
    vm.audit().unwrap();
}

#[test]
fn faulting_in_ahead_extends_a_stack() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(
        &vm,
        space,
        1000,
        MapRequest::anonymous(2, RW).growing_down(),
    );
    vm.populate(space, Vpn(997), 5).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().rss.anonymous, 5);
    vm.audit().unwrap();
}

#[test]
fn regions_with_other_words_of_the_embedder_stay_apart_and_show_them() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let at = |start, tag| {
        let request = MapRequest::anonymous(4, RW).tagged(tag);
        request.at(Placement::Fixed(Vpn(start)))
    };
    let regions = |space| {
        let mut found = Vec::new();
        vm.for_each_region(space, |entry| {
            found.push((entry.range.start.0, entry.range.pages(), entry.tag));
        })
        .unwrap();
        found
    };
    for (start, tag) in [(116, 1), (120, 1), (124, 2), (112, 2)] {
        vm.map(space, &at(start, tag)).unwrap();
    }
    assert_eq!(regions(space), [(112, 4, 2), (116, 8, 1), (124, 4, 2)]);
    // Parts have the word of the whole, and become one again.
    vm.protect(space, Vpn(118), 2, Prot::READ).unwrap();
    let parts = [
        (112, 4, 2),
        (116, 2, 1),
        (118, 2, 1),
        (120, 4, 1),
        (124, 4, 2),
    ];
    assert_eq!(regions(space), parts);
    let child = vm.fork(space).unwrap();
    assert_eq!(regions(child), parts);
    vm.protect(space, Vpn(118), 2, RW).unwrap();
    assert_eq!(regions(space), [(112, 4, 2), (116, 8, 1), (124, 4, 2)]);
    // What takes the place of a region has its own.
    vm.map(space, &at(116, 2)).unwrap();
    assert_eq!(regions(space), [(112, 8, 2), (120, 4, 1), (124, 4, 2)]);
    assert_eq!(
        vm.region_at(space, Vpn(121)).map(|entry| entry.tag),
        Some(1)
    );
    // A place in the arena is used again without the word that it had.
    vm.exit(child).unwrap();
    let new = vm.begin_space().unwrap();
    vm.map(
        new,
        &MapRequest::anonymous(4, RW).at(Placement::Fixed(Vpn(116))),
    )
    .unwrap();
    assert_eq!(regions(new), [(116, 4, 0)]);
    vm.audit().unwrap();
}
