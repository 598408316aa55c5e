//! Rights that a region never gets, seals, and spaces that make no code.

use super::*;
use crate::space::{RemapPlacement, Space};

const AT: u64 = 0x1000;
const CODE: Prot = Prot::READ_EXECUTE;
const ALL: Prot = Prot::READ_WRITE.union(Prot::EXECUTE);

type TestSpace<'a> = Space<'a, TestMachine, X86_64, ByRegions>;

/// A space with 8 pages at [`AT`].
fn with_region(vm: &TestVm, request: MapRequest) -> TestSpace<'_> {
    let space = vm.create_space().unwrap();
    map(vm, space.id(), AT, request);
    space
}

fn map_at(space: TestSpace<'_>, at: Placement, pages: u64, prot: Prot) -> Result<Vpn, MapError> {
    space.map(&MapRequest::anonymous(pages, prot).at(at))
}

#[test]
fn a_mapping_gets_no_more_rights_than_it_may_ever_have() {
    let vm = vm();
    let file = vm.stored_pages(1, 8).unwrap();
    let request = MapRequest::object(file, 0, 8, Prot::READ).shared();
    let space = with_region(&vm, request.at_most(CODE));
    for refused in [RW, Prot::WRITE, ALL] {
        assert_eq!(
            space.protect(Vpn(AT), 8, refused),
            Err(MapError::Rights),
            "{refused:?}"
        );
        assert_eq!(
            space.protect(Vpn(AT + 2), 1, refused),
            Err(MapError::Rights),
            "{refused:?}"
        );
    }
    assert_eq!(regions(&vm, space.id()), [(AT, AT + 8)], "nothing was cut");
    for given in [Prot::NONE, Prot::READ, CODE] {
        assert_eq!(space.protect(Vpn(AT + 2), 1, given), Ok(()), "{given:?}");
    }
    let shown = space.region_at(Vpn(AT + 5)).unwrap();
    assert_eq!(shown.traits.most(), CODE);
    // It goes where the mapping goes, to children and other places.
    let moved = space
        .remap(Vpn(AT), 1, 1, RemapPlacement::Fixed(Vpn(AT + 100)))
        .unwrap();
    let child = space.fork().unwrap();
    for space in [space, child] {
        assert_eq!(
            space.protect(moved.range.start, 1, RW),
            Err(MapError::Rights)
        );
    }
    let more = MapRequest::anonymous(1, ALL).at_most(RW);
    assert_eq!(space.map(&more), Err(MapError::Rights));
    // Beside one of other bounds it stays a region of its own.
    map(
        &vm,
        space.id(),
        AT + 200,
        MapRequest::anonymous(1, RW).at_most(RW),
    );
    map(&vm, space.id(), AT + 201, MapRequest::anonymous(1, RW));
    assert_eq!(space.protect(Vpn(AT + 200), 2, CODE), Err(MapError::Rights));
    assert_eq!(space.protect(Vpn(AT + 201), 1, CODE), Ok(()));
    vm.audit().unwrap();
}

#[test]
fn a_sealed_region_stays_as_it_is() {
    let vm = vm();
    let space = with_region(&vm, MapRequest::anonymous(8, RW));
    assert_eq!(space.seal(Vpn(AT + 7), 2), Err(MapError::NotMapped));
    space.seal(Vpn(AT + 2), 2).unwrap();
    let there = [(AT, AT + 2), (AT + 2, AT + 4), (AT + 4, AT + 8)];
    assert_eq!(regions(&vm, space.id()), there);
    let child = space.fork().unwrap();
    for space in [space, child] {
        let fixed = |page| Placement::Fixed(Vpn(page));
        let changes: [(&str, Result<(), MapError>); 9] = [
            ("unmap", space.unmap(Vpn(AT), 8)),
            ("unmap a part", space.unmap(Vpn(AT + 3), 1)),
            ("unmap it", space.unmap(Vpn(AT + 2), 2)),
            ("map over", map_at(space, fixed(AT + 3), 1, RW).map(drop)),
            ("protect", space.protect(Vpn(AT + 1), 2, Prot::READ)),
            (
                "move",
                space
                    .remap(Vpn(AT + 2), 1, 1, RemapPlacement::Fixed(Vpn(AT + 50)))
                    .map(drop),
            ),
            (
                "move over",
                space
                    .remap(Vpn(AT), 1, 1, RemapPlacement::Fixed(Vpn(AT + 2)))
                    .map(drop),
            ),
            (
                "shrink",
                space
                    .remap(Vpn(AT + 2), 2, 1, RemapPlacement::MayMove)
                    .map(drop),
            ),
            (
                "grow",
                space
                    .remap(Vpn(AT + 2), 2, 3, RemapPlacement::MayMove)
                    .map(drop),
            ),
        ];
        for (what, answer) in changes {
            assert_eq!(answer, Err(MapError::Sealed), "{what}");
        }
        assert_eq!(regions(&vm, space.id()), there);
        // What it holds may change.
        space.write((AT + 2) << 12, &[1; 8]).unwrap();
        space.lock(Vpn(AT + 2), 1).unwrap();
        space.unlock(Vpn(AT + 2), 1).unwrap();
        space.advise(Vpn(AT + 2), 1, Advice::DontNeed).unwrap();
        assert_eq!(regions(&vm, space.id()), there);
    }
    // The neighbours are not sealed.
    space.unmap(Vpn(AT), 2).unwrap();
    space.unmap(Vpn(AT + 4), 4).unwrap();
    assert_eq!(regions(&vm, space.id()), [(AT + 2, AT + 4)]);
    vm.audit().unwrap();
    for space in [space, child] {
        assert_eq!(space.exit(), Ok(true));
    }
    vm.audit().unwrap();
}

#[test]
fn what_a_sealed_region_could_not_overwrite_is_not_dropped() {
    let vm = vm();
    let space = with_region(&vm, MapRequest::anonymous(2, RW));
    space.write(AT << 12, &[7; 8]).unwrap();
    space.protect(Vpn(AT), 1, Prot::READ).unwrap();
    space.seal(Vpn(AT), 2).unwrap();
    for advice in [Advice::DontNeed, Advice::Free] {
        assert_eq!(
            space.advise(Vpn(AT), 2, advice),
            Err(MapError::Sealed),
            "{advice:?}"
        );
        assert_eq!(space.advise(Vpn(AT + 1), 1, advice), Ok(()), "{advice:?}");
    }
    assert_eq!(space.advise(Vpn(AT), 2, Advice::Cold), Ok(()));
    let mut kept = [0; 8];
    space.read(AT << 12, &mut kept).unwrap();
    assert_eq!(kept, [7; 8]);
}

#[test]
fn a_sealed_stack_grows_and_a_sealed_heap_does_not_shrink() {
    let vm = vm();
    let space = with_region(&vm, MapRequest::anonymous(2, RW).growing_down());
    space.seal(Vpn(AT), 2).unwrap();
    assert!(space.fault((AT - 1) << 12, Access::Write).is_ok());
    assert_eq!(regions(&vm, space.id()), [(AT - 1, AT + 2)]);
    space.set_heap_start(Vpn(0x4000)).unwrap();
    space.set_heap_end(Vpn(0x4004)).unwrap();
    space.seal(Vpn(0x4000), 4).unwrap();
    assert_eq!(space.set_heap_end(Vpn(0x4002)), Err(MapError::Sealed));
    assert_eq!(space.set_heap_end(Vpn(0x4006)), Ok(()));
    assert_eq!(space.heap().unwrap().end, Vpn(0x4006));
    assert_eq!(space.set_heap_end(Vpn(0x4004)), Ok(()));
    vm.audit().unwrap();
}

#[test]
fn a_space_that_refuses_new_code_gets_none() {
    let vm = vm();
    let space = with_region(&vm, MapRequest::anonymous(2, RW));
    map(&vm, space.id(), AT + 8, MapRequest::anonymous(2, ALL));
    space.refuse_new_code().unwrap();
    let child = space.fork().unwrap();
    for space in [space, child] {
        assert_eq!(
            map_at(space, Placement::Anywhere, 1, ALL),
            Err(MapError::Rights)
        );
        assert_eq!(space.protect(Vpn(AT), 1, CODE), Err(MapError::Rights));
        assert_eq!(space.protect(Vpn(AT + 8), 2, ALL), Err(MapError::Rights));
        // What is code may stay so, and be mapped as such.
        assert_eq!(space.protect(Vpn(AT + 8), 2, CODE), Ok(()));
        assert_eq!(space.protect(Vpn(AT + 8), 1, RW), Ok(()));
        assert_eq!(space.protect(Vpn(AT + 8), 1, CODE), Err(MapError::Rights));
        assert!(map_at(space, Placement::Anywhere, 1, CODE).is_ok());
        assert!(map_at(space, Placement::Anywhere, 1, RW).is_ok());
    }
    let next = child.exec().unwrap();
    assert_eq!(
        map_at(next, Placement::Anywhere, 1, ALL),
        Err(MapError::Rights)
    );
    let other = vm.create_space().unwrap();
    assert!(map_at(other, Placement::Anywhere, 1, ALL).is_ok());
    vm.audit().unwrap();
}

#[test]
fn rules_hold_in_tracts_too() {
    let vm = vm();
    let space = with_region(&vm, MapRequest::anonymous(2, RW));
    map(
        &vm,
        space.id(),
        AT + 100,
        MapRequest::anonymous(2, RW).at_most(RW),
    );
    space.seal(Vpn(AT), 2).unwrap();
    assert_eq!(space.divide(Vpn(AT + 50)), Ok(true));
    assert_eq!(space.unmap(Vpn(AT + 1), 1), Err(MapError::Sealed));
    assert_eq!(space.protect(Vpn(AT + 100), 1, CODE), Err(MapError::Rights));
    assert_eq!(space.unmap(Vpn(AT + 1), 100), Err(MapError::Sealed));
    assert_eq!(space.unmap(Vpn(AT + 101), 1), Ok(()));
    vm.audit().unwrap();
}
