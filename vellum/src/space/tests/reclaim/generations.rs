//! Generations of pages (`aging=generations`). There is no MMU here: an entry has the accessed
//! mark that its fault gives it, until somebody takes it.

use super::*;

fn world(pages: u64) -> (TestVm<ByRegions>, SpaceId, Vpn) {
    private_world_of("reclaim=on,aging=generations", pages)
}

#[test]
fn pages_used_once_leave_in_the_order_in_which_they_came() {
    let (vm, space, start) = world(1000);
    for index in 0..1000 {
        store(&vm, space, start.offset(index), index as u8);
        if index % 300 == 299 {
            vm.audit().unwrap();
        }
    }
    let stats = stats(&vm);
    assert!(stats.walks > 5, "{stats:?}");
    assert!(stats.scanned <= stats.reclaimed * 11 / 10, "{stats:?}");
    let is_here = |index: &u64| vm.translate(space, start.offset(*index)).is_some();
    let here: Vec<u64> = (0..1000).filter(is_here).collect();
    assert_eq!(here.last(), Some(&999));
    assert_eq!(here[0] + here.len() as u64, 1000, "{here:?}");
}

/// Others are newcomers, which leave first.
#[test]
fn the_copy_of_a_page_that_was_used_again_stays() {
    let (vm, space, start) = world(1000);
    // More than wait on a CPU to be listed.
    (0..100).for_each(|index| store(&vm, space, start.offset(index), 1));
    for index in 0..20 {
        let (frame, _) = vm.translate(space, start.offset(index)).unwrap();
        // Half of the pages, after the use that brought them.
        let uses = 2 - index / 10;
        (0..uses).for_each(|_| vm.reclaim().unwrap().note_use(frame));
    }
    let child = vm.fork(space).unwrap();
    (0..20).for_each(|index| store(&vm, space, start.offset(index), 2));
    assert_eq!(vm.exit(child), Ok(true));
    (100..700).for_each(|index| store(&vm, space, start.offset(index), 3));
    let is_here = |index: &u64| vm.translate(space, start.offset(*index)).is_some();
    let here: Vec<u64> = (0..20).filter(is_here).collect();
    assert_eq!(here, Vec::from_iter(0..10));
    vm.audit().unwrap();
}
