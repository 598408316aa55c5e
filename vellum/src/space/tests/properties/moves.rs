//! Moves that leave their place mapped, duplicates of shared mappings, and moves of several regions,
//! by the sentences of mremap(2).

use super::*;

with_each_design_and_format! {
    what_a_move_leaves_stays_mapped_and_empty => left;
    a_shared_mapping_is_mapped_once_more => duplicated;
    several_regions_move_with_their_gaps => together;
    a_move_for_which_there_is_no_memory_changes_nothing => no_memory;
}

fn remap<F: Format, R: ReverseMap>(
    space: AnySpace<'_, F, R>,
    (first, pages): (u64, u64),
    new_pages: u64,
    placement: RemapPlacement,
) -> Result<u64, MapError> {
    let moved = space.remap(Vpn(AT + first), pages, new_pages, placement)?;
    assert_eq!(moved.range.pages(), new_pages);
    Ok(moved.range.start.0)
}

fn left<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW).tagged(7));
    advise(space, (3, 1), Advice::InstallGuards).unwrap();
    let target = RemapPlacement::LeaveFor(Vpn(AT + 100));
    assert_eq!(remap(space, (2, 4), 4, target), Ok(AT + 100), "{design}");
    let moved = [Ok(3), Err(FaultError::Protection), Ok(5), Ok(6)];
    for (page, expected) in (AT + 100..).zip(moved) {
        assert_eq!(get(space, page), expected, "{page} {design}");
    }
    let empty: Vec<_> = [1, 2, 0, 0, 0, 0, 7, 8].map(Some).into();
    assert_eq!(all(space, 8), empty, "{design}");
    assert_eq!(space.region_at(Vpn(AT + 3)).unwrap().tag, 7, "{design}");
    put(space, AT + 2, 33);
    put(space, AT + 100, 44);
    assert_eq!((get(space, AT + 2), get(space, AT + 100)), (Ok(33), Ok(44)));
    vm.audit().unwrap();
    // To a gap, and with a fork.
    let at = remap(space, (0, 8), 8, RemapPlacement::Leave);
    let at = at
        .or_else(|_| remap(space, (0, 2), 2, RemapPlacement::Leave))
        .unwrap();
    assert_eq!(get(space, at), Ok(1), "{design}");
    assert_eq!(get(space, AT), Ok(0), "{design}");
    let child = space.fork().unwrap();
    assert_eq!((get(child, at), get(child, AT)), (Ok(1), Ok(0)), "{design}");
    // What shows an object shows it still.
    let memory = vm.memory_pages(4).unwrap();
    map_at(
        space,
        AT + 200,
        MapRequest::object(memory, 0, 4, RW).shared(),
    );
    map_at(space, AT + 210, MapRequest::object(memory, 0, 4, RW));
    put(space, AT + 201, 51);
    put(space, AT + 212, 52);
    for (first, second) in [(201, Ok(51)), (211, Ok(51))] {
        let target = RemapPlacement::LeaveFor(Vpn(AT + first + 100));
        assert_eq!(remap(space, (first, 2), 2, target), Ok(AT + first + 100));
        assert_eq!(get(space, AT + first), second, "{design}");
        assert_eq!(get(space, AT + first + 100), second, "{design}");
    }
    assert_eq!(
        (get(space, AT + 212), get(space, AT + 312)),
        (Ok(0), Ok(52))
    );
    // Locked pages stay locked where they go, and what stays is not.
    map_at(space, AT + 400, MapRequest::anonymous(2, RW));
    space.lock(Vpn(AT + 400), 2).unwrap();
    let target = RemapPlacement::LeaveFor(Vpn(AT + 410));
    assert_eq!(remap(space, (400, 2), 2, target), Ok(AT + 410), "{design}");
    let locked = |page| {
        let entry = space.region_at(Vpn(AT + page)).unwrap();
        entry.traits.has(Traits::LOCKED)
    };
    assert_eq!((locked(400), locked(410)), (false, true), "{design}");
    assert_eq!(space.stats().unwrap().locked, 2, "{design}");
    // Errors.
    for (first, pages, new, placement, why) in [
        (400, 2, 3, RemapPlacement::Leave, MapError::BadRange),
        (400, 2, 1, RemapPlacement::Leave, MapError::BadRange),
        (401, 2, 2, RemapPlacement::Leave, MapError::NotMapped),
        (
            400,
            2,
            2,
            RemapPlacement::LeaveFor(Vpn(AT + 401)),
            MapError::BadRange,
        ),
    ] {
        assert_eq!(
            remap(space, (first, pages), new, placement),
            Err(why),
            "{design}"
        );
    }
    let stats = space.stats().unwrap();
    let limits = Limits {
        pages: stats.pages + 1,
        ..Limits::default()
    };
    space.set_limits(limits).unwrap();
    assert_eq!(
        remap(space, (400, 2), 2, RemapPlacement::Leave),
        Err(MapError::Limit)
    );
    assert_eq!(space.stats().unwrap().regions, stats.regions, "{design}");
    finish(&vm, &[space, child]);
}

fn duplicated<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW).shared().tagged(9));
    let at = remap(space, (2, 0), 4, RemapPlacement::MayMove).unwrap();
    assert_eq!(get(space, at), Ok(3), "{design}");
    put(space, at + 1, 99);
    assert_eq!(get(space, AT + 3), Ok(99), "both show the same");
    assert_eq!(space.region_at(Vpn(at)).unwrap().tag, 9, "{design}");
    let fixed = RemapPlacement::Fixed(Vpn(AT + 50));
    assert_eq!(remap(space, (0, 0), 2, fixed), Ok(AT + 50), "{design}");
    vm.audit().unwrap();
    // What is mapped first may go.
    space.unmap(Vpn(AT), 8).unwrap();
    assert_eq!((get(space, AT + 50), get(space, at + 1)), (Ok(1), Ok(99)));
    map_at(space, AT, MapRequest::anonymous(8, RW));
    let file = vm.stored_pages(1, 8).unwrap();
    map_at(space, AT + 30, MapRequest::object(file, 0, 4, RW));
    for (first, new, placement, why) in [
        (0, 2, RemapPlacement::MayMove, MapError::WrongKind),
        (30, 2, RemapPlacement::MayMove, MapError::WrongKind),
        (20, 2, RemapPlacement::MayMove, MapError::NotMapped),
        (50, 2, RemapPlacement::InPlace, MapError::Occupied),
        (50, 0, RemapPlacement::MayMove, MapError::BadRange),
        (
            50,
            2,
            RemapPlacement::Fixed(Vpn(AT + 49)),
            MapError::BadRange,
        ),
        (
            50,
            2,
            RemapPlacement::Fixed(F::USER_END),
            MapError::BadRange,
        ),
    ] {
        assert_eq!(
            remap(space, (first, 0), new, placement),
            Err(why),
            "{first} {design}"
        );
    }
    finish(&vm, &[space]);
}

fn together<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    space.protect(Vpn(AT + 2), 2, Prot::READ).unwrap();
    space.unmap(Vpn(AT + 5), 1).unwrap();
    let memory = vm.memory_pages(4).unwrap();
    map_at(space, AT + 8, MapRequest::object(memory, 0, 4, RW).shared());
    put(space, AT + 9, 10);
    // Something in the way, and something where a gap comes.
    map_at(space, AT + 101, MapRequest::anonymous(1, RW));
    map_at(space, AT + 104, MapRequest::anonymous(1, RW));
    put(space, AT + 104, 77);
    let all_to = |page| RemapPlacement::AllTo(Vpn(AT + page));
    assert_eq!(
        remap(space, (1, 9), 9, all_to(100)),
        Ok(AT + 100),
        "{design}"
    );
    let found: Vec<_> = (100..110).map(|page| get(space, AT + page).ok()).collect();
    let expected = [2, 3, 4, 5, 77, 7, 8, 0, 10, 0].map(Some);
    assert_eq!(found[..9], expected[..9], "{design}");
    assert_eq!(found[9], None, "{design}");
    assert_eq!(
        space.region_at(Vpn(AT + 101)).unwrap().prot,
        Prot::READ,
        "{design}"
    );
    assert_eq!(
        ranges(space)[..2],
        [(AT, AT + 1), (AT + 10, AT + 12)],
        "{design}"
    );
    for (first, pages, new, placement, why) in [
        (99, 4, 4, all_to(200), MapError::NotMapped),
        (100, 9, 9, all_to(105), MapError::BadRange),
        (100, 9, 8, all_to(200), MapError::BadRange),
        (
            100,
            9,
            9,
            RemapPlacement::Fixed(Vpn(AT + 200)),
            MapError::NotMapped,
        ),
    ] {
        assert_eq!(
            remap(space, (first, pages), new, placement),
            Err(why),
            "{design}"
        );
    }
    // Those before one that is sealed have moved.
    space.seal(Vpn(AT + 108), 1).unwrap();
    assert_eq!(
        remap(space, (100, 9), 9, all_to(300)),
        Err(MapError::Sealed)
    );
    assert_eq!(
        (get(space, AT + 301), get(space, AT + 108)),
        (Ok(3), Ok(10))
    );
    finish(&vm, &[space]);
}

fn no_memory<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let mut far = 1 << 20;
    let mut refused = 0;
    for &site in Site::ALL {
        for after in 0..4 {
            let before = all(space, 8);
            let regions = ranges(space);
            vm.memory().inject(Some(FailAt { site, after }));
            let target = RemapPlacement::LeaveFor(Vpn(AT + far));
            let answer = remap(space, (2, 3), 3, target);
            vm.memory().inject(None);
            match answer {
                Ok(_) => {
                    space.unmap(Vpn(AT + far), 3).unwrap();
                    far += 1 << 20;
                }
                Err(error) => {
                    assert_eq!(error, MapError::OutOfMemory, "{site:?} {design}");
                    assert_eq!(ranges(space), regions, "{site:?} {design}");
                    assert_eq!(all(space, 8), before, "{site:?} {design}");
                    refused += 1;
                }
            }
            vm.audit().unwrap();
        }
    }
    assert!(refused > 0, "{design}");
    finish(&vm, &[space]);
}
