//! Whom the lock of a page table keeps out: those of this table, or of all its space.

use super::*;
use crate::rmap::{Env, Pv, ReverseMap, Verdict};
use crate::table::{Contended, LockedTable, SpaceLock};
use crate::testing::run_on;

/// Pages in two tables.
const PAGES: [u64; 2] = [4 << 9, 5 << 9];

fn made(design: &str) -> (TestVm<Pv>, [SpaceId; 2]) {
    let vm = vm_with::<Pv>(design, 4096);
    let spaces = [(); 2].map(|()| {
        let space = vm.begin_space().unwrap();
        for page in PAGES {
            map(&vm, space, page, MapRequest::anonymous(1, RW));
            touch(&vm, space, page, Access::Write);
        }
        space
    });
    (vm, spaces)
}

/// Whether CPU 1 could have the table for a page now.
fn is_free(vm: &TestVm<Pv>, space: SpaceId, page: u64) -> bool {
    run_on(1);
    let pin = vm.pin();
    let space = vm.find_space(space).unwrap();
    let table = vm.tables(&pin, space).leaf_table(Vpn(page)).unwrap();
    let whole = vm.tables_lock(space);
    let locked = LockedTable::<X86_64>::try_lock(&vm.memory, &pin, table, whole);
    let is_free = match locked {
        Ok(table) => {
            assert!(table.is_some(), "the table is linked");
            true
        }
        Err(Contended) => false,
    };
    run_on(0);
    is_free
}

#[test]
fn a_locked_table_keeps_others_from_it_or_from_all_of_its_space() {
    for (design, others) in [("rmap=pv", true), ("rmap=pv,pmaplock=space", false)] {
        let (vm, [one, other]) = made(design);
        let pin = vm.pin();
        let tables = vm.tables(&pin, vm.find_space(one).unwrap());
        let first = tables.lock(Vpn(PAGES[0])).unwrap();
        assert!(!is_free(&vm, one, PAGES[0]), "{design}");
        assert_eq!(is_free(&vm, one, PAGES[1]), others, "{design}");
        assert!(is_free(&vm, other, PAGES[0]), "{design}");
        // Its holder has the other tables, too, and gives up all of them in any order.
        let second = tables.lock(Vpn(PAGES[1])).unwrap();
        drop(first);
        assert_eq!(is_free(&vm, one, PAGES[0]), others, "{design}");
        assert!(!is_free(&vm, one, PAGES[1]), "{design}");
        drop(second);
        assert!(is_free(&vm, one, PAGES[1]), "{design}");
        drop(pin);
        for space in [one, other] {
            vm.exit(space).unwrap();
        }
        vm.audit().unwrap();
    }
}

#[test]
fn a_visit_holds_the_lock_of_the_space_that_it_has_found() {
    let (vm, [one, other]) = made("rmap=pv,pmaplock=space");
    let frame = leaves(&vm, one)[0].1;
    let pin = vm.pin();
    let env = Env {
        memory: &vm.memory,
        pin: &pin,
    };
    let mut seen = 0;
    let report = vm.rmap.visit::<_, X86_64>(&env, &vm, frame, &mut |slot| {
        assert_eq!(slot.page(), Vpn(PAGES[0]));
        assert!(!is_free(&vm, one, PAGES[1]));
        assert!(is_free(&vm, other, PAGES[1]));
        seen += 1;
        Verdict::Keep
    });
    assert_eq!((seen, report.hits, report.lock_failures), (1, 1, 0));
    assert!(is_free(&vm, one, PAGES[1]));
}

#[test]
fn a_table_that_is_gone_leaves_the_lock_of_its_space_free() {
    for design in ["rmap=pv", "rmap=pv,pmaplock=space"] {
        let (vm, [one, _]) = made(design);
        run_on(1);
        let pin = vm.pin();
        let found = vm.find_space(one).unwrap();
        let table = vm.tables(&pin, found).leaf_table(Vpn(PAGES[0])).unwrap();
        run_on(0);
        vm.unmap(one, Vpn(PAGES[0]), 1).unwrap();
        let whole = vm.tables_lock(found);
        let locked = LockedTable::<X86_64>::lock(&vm.memory, &pin, table, whole);
        assert!(locked.is_none(), "{design}");
        drop(locked);
        drop(pin);
        assert!(is_free(&vm, one, PAGES[1]), "{design}");
        touch(&vm, one, PAGES[1], Access::Read);
        vm.audit().unwrap();
    }
}

#[test]
fn a_space_without_reverse_mapping_of_its_own_has_no_lock_for_all_tables() {
    let (vm, [one, _]) = made("rmap=pv,pmaplock=space");
    let has: fn(SpaceLock<'_>) -> bool = |lock| lock.is_some();
    assert!(has(vm.tables_lock(vm.find_space(one).unwrap())));
    let ended = vm.find_space(one).unwrap();
    vm.exit(one).unwrap();
    assert!(!has(vm.tables_lock(ended)));
    let other: TestVm = vm_with("rmap=family,pmaplock=space", 2048);
    let space = other.begin_space().unwrap();
    assert!(!has(other.tables_lock(other.find_space(space).unwrap())));
}
