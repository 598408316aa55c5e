//! What is found through names that somebody has kept: nothing of what has ended.

use super::*;
use crate::space::state::locked::HoldsSpace;
use crate::sync::Unpinned;

#[test]
fn a_region_that_ended_holds_no_page() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 0x100, MapRequest::anonymous(4, RW));
    touch(&vm, space, 0x101, Access::Write);
    let guard = vm.lock_named(Unpinned::at_door(), space).unwrap();
    let handle = vm.region_from(guard.locked(), Vpn(0x100));
    drop(guard);
    assert_eq!(vm.region(handle).range(), PageRange::new(Vpn(0x100), 4));
    vm.unmap(space, Vpn(0x100), 4).unwrap();
    assert!(vm.region(handle).range().is_empty());
    assert_eq!(vm.exit(space), Ok(true));
}

#[test]
fn a_space_that_ended_has_no_tables() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let handle = vm.find_space(space).unwrap().handle();
    assert_ne!(vm.live_at(handle).root(), Pfn::NONE);
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(vm.live_at(handle).root(), Pfn::NONE);
}
