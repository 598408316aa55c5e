//! Generations of pages (`aging=generations`). There is no MMU here: an entry has the accessed
//! mark that its fault gives it, until somebody takes it.

use super::*;

fn world(pages: u64) -> (TestVm<Partial>, SpaceId, Vpn) {
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
