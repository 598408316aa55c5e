//! In which order pages leave.

use super::{PAGE, STORE, TestVm, aging, is_cached, vm_of};
use crate::ObjectId;
use crate::rmap::Partial;

/// A file of `pages` pages, all of them read once.
fn read_file(vm: &TestVm<Partial>, store: u64, pages: u64) -> ObjectId {
    let file = vm.create_file(store, pages).unwrap();
    vm.prefetch(file, 0, pages * PAGE).unwrap();
    file
}

/// Frames that are used anew all the time, while no page has to leave, keep their places on the
/// lists. As soon as pages leave, what comes into such a frame is the youngest again.
#[test]
fn after_a_time_without_reclaim_the_oldest_pages_leave_first() {
    const REUSED: u64 = 64;
    const OLD: u64 = 100;
    for options in aging() {
        let vm: TestVm<Partial> = vm_of(&options, 400);
        for round in 0..20 {
            let file = read_file(&vm, STORE + round, REUSED);
            vm.release_object(file).unwrap();
        }
        let reused = read_file(&vm, STORE + 100, REUSED);
        let old = read_file(&vm, STORE + 101, OLD);
        let left = vm.reclaim_pages(1);
        assert!(left > 0 && left < REUSED, "{options}: {left}");
        vm.release_object(reused).unwrap();
        let young = read_file(&vm, STORE + 102, REUSED);
        let left = vm.reclaim_pages(OLD / 2);
        assert!(left >= OLD / 2, "{options}: {left}");
        let mut cached = (0..REUSED).filter(|&index| is_cached(&vm, young, index));
        assert_eq!(cached.by_ref().count() as u64, REUSED, "{options}");
        assert!(!is_cached(&vm, old, 0), "{options}");
        vm.audit().unwrap();
    }
}
