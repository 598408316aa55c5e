//! Guards inside regions.

use super::*;

with_each_design_and_format! {
    a_guard_faults_and_splits_no_region => installed;
    guards_stay_where_pages_are_dropped_and_end_with_their_memory => kept;
    guards_go_to_children_and_to_other_places => inherited;
    guards_in_memory_that_shows_an_object => of_objects;
    a_guard_for_which_there_is_no_table_changes_nothing => no_memory;
}

const GUARD: Result<u8, FaultError> = Err(FaultError::Protection);

fn installed<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    advise(space, (2, 3), Advice::InstallGuards).unwrap();
    assert_eq!(ranges(space), [(AT, AT + 8)], "{design}");
    let guarded = [
        Some(1),
        Some(2),
        None,
        None,
        None,
        Some(6),
        Some(7),
        Some(8),
    ];
    assert_eq!(all(space, 8), guarded, "{design}");
    assert_eq!(
        space.stats().unwrap().rss.anonymous,
        5,
        "what they held is gone"
    );
    for access in [Access::Read, Access::Write, Access::Execute] {
        let fault = space.fault((AT + 3) << 12, access);
        assert_eq!(fault, Err(FaultError::Protection), "{access:?} {design}");
    }
    let mut byte = [0];
    let forced = space.read_forced((AT + 3) << 12, &mut byte);
    assert_eq!(forced, Err(FaultError::Protection), "{design}");
    let mut frames = [Pfn(0)];
    assert!(
        space
            .pin_pages(Vpn(AT + 3), Access::Read, &mut frames)
            .is_err()
    );
    let populated = advise(space, (0, 8), Advice::PopulateRead);
    let refused = Err(MapError::Fault(FaultError::Protection));
    assert_eq!(populated, refused, "{design}");
    // A second time is as once, and rights that come later are not theirs.
    advise(space, (1, 3), Advice::InstallGuards).unwrap();
    space.protect(Vpn(AT), 8, Prot::READ).unwrap();
    space.protect(Vpn(AT), 8, RW).unwrap();
    assert_eq!(get(space, AT + 4), GUARD, "{design}");
    vm.audit().unwrap();
    advise(space, (0, 4), Advice::RemoveGuards).unwrap();
    let after = [1, 0, 0, 0].map(Some);
    assert_eq!(all(space, 4), after, "only guards went");
    assert_eq!(get(space, AT + 4), GUARD, "{design}");
    put(space, AT + 2, 22);
    // Errors: holes and locked memory; the guards of the latter can be removed.
    for advice in [Advice::InstallGuards, Advice::RemoveGuards] {
        assert_eq!(advise(space, (6, 4), advice), Err(MapError::NotMapped));
    }
    assert_eq!(all(space, 8)[6..], [Some(7), Some(8)], "nothing changed");
    space.lock(Vpn(AT), 8).unwrap();
    assert_eq!(
        advise(space, (0, 1), Advice::InstallGuards),
        Err(MapError::Locked)
    );
    assert_eq!(
        advise(space, (0, 8), Advice::RemoveGuards),
        Ok(()),
        "{design}"
    );
    assert_eq!(get(space, AT + 4), Ok(0), "{design}");
    finish(&vm, &[space]);
}

fn kept<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    vm.swap_on(SwapArea::new(SWAP, 100)).unwrap();
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    advise(space, (2, 1), Advice::InstallGuards).unwrap();
    for advice in [
        Advice::PageOut,
        Advice::Cold,
        Advice::Free,
        Advice::DontNeed,
        Advice::WillNeed,
    ] {
        assert_eq!(advise(space, (0, 8), advice), Ok(()), "{advice:?}");
        assert_eq!(get(space, AT + 2), GUARD, "{advice:?} {design}");
        vm.audit().unwrap();
    }
    // A guard takes the place of a page in swap, which gives up its slot.
    put(space, AT + 4, 4);
    advise(space, (0, 8), Advice::PageOut).unwrap();
    advise(space, (3, 3), Advice::InstallGuards).unwrap();
    assert_eq!(space.stats().unwrap().swapped, 0, "{design}");
    assert_eq!(vm.swap_off(SWAP), Ok(()), "{design}");
    assert_eq!(get(space, AT + 4), GUARD, "{design}");
    // What is mapped in their place has none, and what is unmapped neither.
    map_at(space, AT + 2, MapRequest::anonymous(2, RW));
    assert_eq!(get(space, AT + 2), Ok(0), "{design}");
    space.unmap(Vpn(AT + 5), 1).unwrap();
    map_at(space, AT + 5, MapRequest::anonymous(1, RW));
    assert_eq!(get(space, AT + 5), Ok(0), "{design}");
    assert_eq!(get(space, AT + 4), GUARD, "{design}");
    let tables = space.stats().unwrap().table_bytes;
    advise(space, (0, 8), Advice::DontNeed).unwrap();
    advise(space, (0, 8), Advice::RemoveGuards).unwrap();
    assert!(
        space.stats().unwrap().table_bytes < tables,
        "a table was for guards alone"
    );
    finish(&vm, &[space]);
}

fn inherited<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    advise(space, (2, 2), Advice::InstallGuards).unwrap();
    let child = space.fork().unwrap();
    assert_eq!(all(child, 4), [Some(1), Some(2), None, None], "{design}");
    advise(child, (2, 1), Advice::RemoveGuards).unwrap();
    assert_eq!(get(space, AT + 2), GUARD, "each has its own");
    // A region that was cut and united again says so as a whole.
    space.protect(Vpn(AT + 3), 1, Prot::READ).unwrap();
    space.protect(Vpn(AT + 3), 1, RW).unwrap();
    let again = space.fork().unwrap();
    assert_eq!(get(again, AT + 3), GUARD, "{design}");
    let to = RemapPlacement::Fixed(Vpn(AT + 1000));
    space.remap(Vpn(AT), 8, 8, to).unwrap();
    assert_eq!(get(space, AT + 1002), GUARD, "{design}");
    assert_eq!(get(space, AT + 1004), Ok(5), "{design}");
    space.advise(Vpn(AT + 1000), 8, Advice::WipeOnFork).unwrap();
    let wiped = space.fork().unwrap();
    assert_eq!(get(wiped, AT + 1002), Ok(0), "{design}");
    finish(&vm, &[child, wiped, space, again]);
}

fn of_objects<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let memory = vm.memory_pages(8).unwrap();
    let space = with_pages(&vm, MapRequest::object(memory, 0, 8, RW).shared());
    map_at(space, AT + 100, MapRequest::object(memory, 0, 8, RW));
    for first in [2, 102] {
        advise(space, (first, 2), Advice::InstallGuards).unwrap();
        assert_eq!(get(space, AT + first), GUARD, "{design}");
    }
    let child = space.fork().unwrap();
    for page in [2, 3, 102, 103] {
        assert_eq!(get(child, AT + page), GUARD, "{page} {design}");
    }
    put(child, AT + 1, 77);
    assert_eq!(get(space, AT + 1), Ok(77), "{design}");
    // The object has its pages, and a truncation leaves the guards.
    vm.file(memory).set_size(0).unwrap();
    vm.file(memory).set_size(8 << 12).unwrap();
    assert_eq!(get(space, AT + 2), GUARD, "{design}");
    assert_eq!(get(space, AT + 103), GUARD, "{design}");
    advise(space, (0, 8), Advice::RemoveGuards).unwrap();
    assert_eq!(get(space, AT + 2), Ok(0), "{design}");
    assert_eq!(get(child, AT + 2), GUARD, "{design}");
    finish(&vm, &[space, child]);
}

fn no_memory<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = vm.create_space().unwrap();
    // From one table to the next, and up to where there is none.
    map_at(space, 500, MapRequest::anonymous(1200, RW));
    put(space, 505, 5);
    let mut refused = 0;
    for after in 0..4 {
        let had = space.stats().unwrap().table_bytes;
        vm.memory().inject(Some(FailAt {
            site: Site::TablePage,
            after,
        }));
        let answer = space.advise(Vpn(504), 1190, Advice::InstallGuards);
        vm.memory().inject(None);
        if answer.is_err() {
            assert_eq!(answer, Err(MapError::OutOfMemory), "{design}");
            assert_eq!(get(space, 505), Ok(5), "{design}");
            assert_eq!(space.stats().unwrap().table_bytes, had, "{design}");
            refused += 1;
        } else {
            assert_eq!(get(space, 505), GUARD, "{design}");
            space.advise(Vpn(500), 1200, Advice::RemoveGuards).unwrap();
            put(space, 505, 5);
        }
        vm.audit().unwrap();
    }
    assert!(refused > 0, "{design}");
    finish(&vm, &[space]);
}

/// A guard in a superpage takes it apart, and one of all of it takes its place.
#[test]
fn guards_take_superpages_apart() {
    for superpages in ["eager", "reserve"] {
        let vm = vm_with::<Family>(&std::format!("superpage={superpages}"), 8192);
        let space = vm.create_space().unwrap();
        map_at(space, 4096, MapRequest::anonymous(1536, RW));
        for page in 0..1536 {
            put(space, 4096 + page, 3);
        }
        assert_eq!(large_leaves(&vm, space.id()).len(), 3, "{superpages}");
        let advise = |first, pages, advice| space.advise(Vpn(first), pages, advice).unwrap();
        advise(4100, 2, Advice::InstallGuards);
        advise(4608, 512, Advice::InstallGuards);
        assert_eq!(large_leaves(&vm, space.id()), [5120], "{superpages}");
        assert_eq!(get(space, 4099), Ok(3));
        for page in [4100, 4101, 4608, 5119] {
            assert_eq!(get(space, page), GUARD, "{page}");
        }
        assert_eq!(space.collapse(Vpn(4096), 3, 1).unwrap().collapsed, 0);
        let child = space.fork().unwrap();
        assert_eq!(get(child, 4700), GUARD);
        vm.audit().unwrap();
        advise(4096, 1536, Advice::RemoveGuards);
        put(space, 4700, 9);
        assert_eq!(get(space, 4100), Ok(0));
        assert!(
            space.collapse(Vpn(4096), 1, 1).unwrap().collapsed == 0,
            "fork shares it"
        );
        finish(&vm, &[child, space]);
    }
}
