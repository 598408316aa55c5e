//! Calls that run out of memory while they cut regions: nothing is left behind, and
//! everything goes on as it was.

use core::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::frame::{FailAt, Site};
use crate::rmap::ReverseMap;

/// The page that is cut out of a region of seven.
const PAGE: u64 = 1003;

/// Lets the first allocation at `site` fail that `change` makes, then the second, and
/// so on until it makes no more.
fn each_fails<R: ReverseMap>(
    site: Site,
    change: impl Fn(&TestVm<R>, SpaceId) -> Result<(), MapError>,
) {
    for after in 0.. {
        let vm = vm_with::<R>("", 1024);
        let space = vm.begin_space().unwrap();
        map(&vm, space, PAGE - 3, MapRequest::anonymous(7, RW));
        touch(&vm, space, PAGE - 3, Access::Write);
        vm.memory().inject(Some(FailAt { site, after }));
        let result = change(&vm, space);
        vm.memory().inject(None);
        vm.audit().unwrap();
        if result.is_ok() {
            assert!(after > 0, "nothing is allocated");
            return;
        }
        assert_eq!(result, Err(MapError::OutOfMemory));
        for page in PAGE - 1..PAGE + 2 {
            touch(&vm, space, page, Access::Write);
        }
        assert_eq!(change(&vm, space), Ok(()));
        vm.exit(space).unwrap();
        vm.audit().unwrap();
    }
}

fn protect<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> Result<(), MapError> {
    vm.protect(space, Vpn(PAGE), 1, Prot::READ)
}

#[test]
fn a_region_that_cannot_be_cut_is_as_it_was() {
    each_fails::<ByRegions>(Site::Region, protect);
    #[cfg(feature = "published")]
    each_fails::<crate::rmap::AnonVmaChain>(Site::AnonVmaChain, protect);
}

#[test]
fn a_mapping_that_cannot_take_anothers_place_leaves_it_there() {
    each_fails::<ByRegions>(Site::Region, |vm, space| {
        let request = MapRequest::anonymous(1, Prot::READ.union(Prot::EXECUTE));
        let placed = request.at(Placement::Fixed(Vpn(PAGE)));
        vm.map(space, &placed).map(|_| ())
    });
}

/// A CPU stays in a pin until another waits for it. Meanwhile what that one has given up cannot be
/// used, however much it is.
#[test]
fn whoever_runs_out_of_memory_waits_for_what_only_waits_for_its_epoch() {
    let vm = vm_with::<ByRegions>("", 512);
    let machine = vm.platform();
    let (is_pinned, is_awaited) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let awaited = Arc::clone(&is_awaited);
    *machine.on_relax.lock().unwrap() = Some(Box::new(move || {
        awaited.store(true, Ordering::Release);
    }));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(1);
            let _stalled = vm.pin();
            is_pinned.store(true, Ordering::Release);
            while !is_awaited.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        while !is_pinned.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let parent = vm.begin_space().unwrap();
        map(&vm, parent, PAGE, MapRequest::anonymous(1, RW));
        touch(&vm, parent, PAGE, Access::Write);
        let mut failed = None;
        for _ in 0..1000 {
            if is_awaited.load(Ordering::Acquire) {
                break;
            }
            match vm.fork(parent) {
                Ok(child) => _ = vm.exit(child).unwrap(),
                Err(error) => failed = Some(error),
            }
        }
        let was_awaited = is_awaited.swap(true, Ordering::AcqRel);
        assert_eq!(failed, None, "frames wait for their epoch");
        assert!(was_awaited, "memory was never short");
    });
}

/// Somebody is preempted when it has begun to unmap a region, and goes on only if others sleep.
#[test]
fn a_fault_sleeps_beside_somebody_who_unmaps_its_region() {
    run_on(0);
    let mut machine = TestMachine::simple(2, 512);
    machine.alone = Some(crate::testing::Tasks::default());
    let vm: TestVm = Vm::new(machine, Design::parse("").unwrap()).unwrap();
    let machine = vm.platform();
    let space = vm.begin_space().unwrap();
    map(&vm, space, PAGE, MapRequest::anonymous(1, RW));
    // Two CPUs have it.
    for cpu in [1, 0] {
        run_on(cpu);
        touch(&vm, space, PAGE, Access::Write);
    }
    let unmap = || {
        machine.preempt.store(true, Ordering::Relaxed);
        vm.unmap(space, Vpn(PAGE), 1).unwrap();
    };
    let fault = || {
        let result = vm.fault(space, PAGE << 12, Access::Write);
        assert_eq!(result, Err(FaultError::NoRegion));
    };
    let works: [&(dyn Fn() + Sync); 3] = [&unmap, &fault, &fault];
    machine.run(&works);
    assert!(machine.parks.load(Ordering::Relaxed) > 0);
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}
