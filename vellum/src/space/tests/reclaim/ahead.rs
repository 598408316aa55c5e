//! Neighbours in swap that are read with a page that is wanted.

use super::*;
use crate::space::Advice;

#[test]
fn neighbours_in_swap_are_read_together_and_leave_again_if_nobody_wants_them() {
    let (vm, space, start) = private_world::<ByRegions>(64);
    for index in 0..64 {
        store(&vm, space, start.offset(index), index as u8);
    }
    vm.advise(space, start, 64, Advice::PageOut).unwrap();
    let look = |index: u64| {
        let frame = fault(&vm, space, start.offset(index), Access::Read);
        assert!(vm.platform().peek(frame).iter().all(|&b| b == index as u8));
    };
    vm.platform().take_read();
    look(19);
    // In one transfer, each to its place.
    assert_eq!(vm.platform().take_read(), [(16, 8)]);
    (16..24).for_each(look);
    assert_eq!(vm.platform().take_read(), []);
    let counts = |vm: &TestVm<ByRegions>| {
        let stats = vm.swap_stats();
        (stats.ins, stats.ahead, stats.ahead_used)
    };
    assert_eq!(counts(&vm), (8, 7, 7));
    vm.audit().unwrap();
    // Two neighbours are in memory, and one is nobody's: the row ends there.
    vm.unmap(space, start.offset(37), 1).unwrap();
    look(34);
    assert_eq!(vm.platform().take_read(), [(32, 5)]);
    vm.audit().unwrap();
    let before = stats(&vm);
    let outs = vm.swap_stats().outs;
    // Nine are mapped and have to be written; four are in swap already.
    assert_eq!(vm.reclaim_pages(100), 13);
    assert_eq!(stats(&vm).reclaimed - before.reclaimed, 13);
    assert_eq!(vm.swap_stats().outs, outs + 9);
    for index in (0..64).filter(|index| *index != 37) {
        look(index);
    }
    vm.audit().unwrap();
    vm.exit(space).unwrap();
    assert_eq!(vm.swap_stats().free, vm.swap_stats().slots);
    vm.audit().unwrap();
}

#[test]
fn neighbours_stay_in_swap_when_memory_is_short() {
    let vm = vm(4000);
    vm.swap_on(SWAP).unwrap();
    let (space, start) = (vm.begin_space().unwrap(), Vpn(0x4000));
    let request = MapRequest::anonymous(64, RW).at(Placement::Fixed(start));
    vm.map(space, &request).unwrap();
    for index in 0..64 {
        store(&vm, space, start.offset(index), index as u8);
    }
    vm.advise(space, start, 64, Advice::PageOut).unwrap();
    let file = vm.stored_pages(STORE, 8000).unwrap();
    let mut index = 0;
    // The platform is told below the low watermark, which is below the high one.
    while vm.platform().reclaim_wakes.load(Ordering::Relaxed) == 0 {
        check_zero(&vm, file, index);
        index += 1;
        assert!(index < 8000, "memory is never short");
    }
    fault(&vm, space, start, Access::Read);
    let swap = vm.swap_stats();
    assert_eq!((swap.ins, swap.ahead), (1, 0));
    vm.audit().unwrap();
}

#[test]
fn neighbours_stay_in_swap_when_their_group_is_near_its_limit() {
    let vm: TestVm<ByRegions> = vm_of("reclaim=on,groups=on", 4000);
    vm.swap_on(SWAP).unwrap();
    let group = vm.page_cache().new_group(640).unwrap();
    let (space, start) = (vm.begin_space().unwrap(), Vpn(0x4000));
    vm.set_group(space, group).unwrap();
    let request = MapRequest::anonymous(1000, RW).at(Placement::Fixed(start));
    vm.map(space, &request).unwrap();
    let fill = |pages: core::ops::Range<u64>| {
        pages.for_each(|index| store(&vm, space, start.offset(index), index as u8));
    };
    fill(0..64);
    vm.advise(space, start, 64, Advice::PageOut).unwrap();
    fill(64..64 + 635);
    fault(&vm, space, start, Access::Read);
    let swap = vm.swap_stats();
    assert_eq!((swap.outs, swap.ins, swap.ahead), (64, 1, 0));
    vm.unmap(space, start.offset(600), 64).unwrap();
    fault(&vm, space, start.offset(20), Access::Read);
    let swap = vm.swap_stats();
    assert_eq!((swap.outs, swap.ins, swap.ahead), (64, 9, 7));
    vm.audit().unwrap();
}

#[test]
fn a_neighbour_that_cannot_be_read_is_no_error_of_the_page_that_is_wanted() {
    let (vm, space, start) = private_world::<ByRegions>(16);
    for index in 0..16 {
        store(&vm, space, start.offset(index), index as u8);
    }
    vm.advise(space, start, 16, Advice::PageOut).unwrap();
    vm.platform().broken_reads.lock().unwrap().insert(5);
    let frame = fault(&vm, space, start.offset(3), Access::Read);
    assert_eq!(vm.platform().peek(frame)[0], 3);
    assert_eq!(vm.swap_stats().read_errors, 1);
    vm.audit().unwrap();
    let page = start.offset(5).0 * PAGE;
    let failed = vm.fault(space, page, Access::Read);
    assert_eq!(failed, Err(FaultError::Io));
    vm.platform().broken_reads.lock().unwrap().clear();
    let frame = fault(&vm, space, start.offset(5), Access::Read);
    assert_eq!(vm.platform().peek(frame)[0], 5);
    vm.audit().unwrap();
}
