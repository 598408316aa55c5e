//! Memory that runs out while frames only wait for their epoch, on other CPUs than the one
//! that needs them; and how many they may be.

use core::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::platform::NodeId;
use crate::swap::SwapArea;
use crate::sync::Unpinned;

const PAGE: u64 = 1000;
const CPUS: u16 = 8;
const FRAMES: u32 = 768;
/// Programs that begin and end on each CPU: not so many that they wait by themselves.
const FORKS: u64 = 15;

fn vm_of(design: &str, frames: u32) -> TestVm {
    run_on(0);
    let machine = TestMachine::simple(CPUS.into(), frames);
    Vm::new(machine, Design::parse(design).unwrap()).unwrap()
}

/// Programs have begun and ended on one CPU after the other, and CPU 0 was pinned meanwhile.
/// Since then all CPUs idle. Returns the parent and how many frames wait.
fn idle_after_forks(vm: &TestVm) -> (SpaceId, u64) {
    let parent = vm.begin_space().unwrap();
    map(vm, parent, PAGE, MapRequest::anonymous(8000, RW));
    touch(vm, parent, PAGE, Access::Write);
    let stalled = vm.pin();
    for cpu in 1..CPUS {
        run_on(cpu);
        for _ in 0..FORKS {
            let child = vm.fork(parent).unwrap();
            vm.exit(child).unwrap();
        }
    }
    run_on(0);
    drop(stalled);
    let waiting = vm.memory().stats().limbo;
    assert!(waiting > u64::from(FRAMES) / 2, "{waiting} frames wait");
    (parent, waiting)
}

/// Touches as many pages as are free in zones and half of those that wait.
fn need_what_waits(vm: &TestVm, parent: SpaceId, waiting: u64) -> Result<(), FaultError> {
    let pages = vm.memory().stats().free + waiting / 2;
    (1..=pages).try_for_each(|page| {
        vm.fault(parent, (PAGE + page) << 12, Access::Write)
            .map(|_| ())
    })
}

#[test]
fn what_waits_on_idle_cpus_is_had_before_a_call_fails() {
    let vm = vm_of("", FRAMES);
    let (parent, waiting) = idle_after_forks(&vm);
    assert_eq!(need_what_waits(&vm, parent, waiting), Ok(()));
    vm.exit(parent).unwrap();
    vm.audit().unwrap();
}

#[cfg(feature = "published")]
#[test]
fn page_tables_that_sources_keep_are_had_as_well() {
    for source in ["quicklist", "warm", "depot"] {
        let vm = vm_of(&std::format!("ptepage={source}"), FRAMES);
        let parent = vm.begin_space().unwrap();
        map(&vm, parent, PAGE, MapRequest::anonymous(1, RW));
        touch(&vm, parent, PAGE, Access::Write);
        run_on(1);
        let child = vm.fork(parent).unwrap();
        vm.exit(child).unwrap();
        let waiting = || vm.memory.waiting();
        let before = waiting();
        run_on(0);
        assert!(before > 0, "{source}");
        assert_eq!(
            vm.memory.wait_for_frames(Unpinned::at_door()),
            before,
            "{source}"
        );
        assert_eq!(waiting(), 0, "{source}");
        vm.exit(parent).unwrap();
        vm.audit().unwrap();
    }
}

#[test]
fn no_page_leaves_memory_while_enough_frames_wait() {
    let vm = vm_of("reclaim=on", FRAMES);
    let area = SwapArea::new(77, 1000);
    vm.swap_on(area).unwrap();
    let (parent, waiting) = idle_after_forks(&vm);
    assert_eq!(need_what_waits(&vm, parent, waiting), Ok(()));
    assert_eq!(vm.swap_stats().outs, 0);
    vm.exit(parent).unwrap();
    vm.audit().unwrap();
}

#[test]
fn a_nodes_task_waits_for_frames_before_it_has_pages_leave() {
    let vm = vm_of("reclaim=on", 10 * FRAMES);
    let area = SwapArea::new(77, 1000);
    vm.swap_on(area).unwrap();
    let (parent, _) = idle_after_forks(&vm);
    let node = NodeId(0);
    let mut page = PAGE;
    while vm.memory.lacking(node) == 0 {
        page += 1;
        touch(&vm, parent, page, Access::Write);
    }
    assert_eq!(vm.reclaim_node(node), 0);
    assert_eq!(vm.swap_stats().outs, 0);
    assert_eq!(vm.memory.lacking(node), 0);
    vm.exit(parent).unwrap();
    vm.audit().unwrap();
}

/// Does `once` again and again while a CPU stays in a pin, until somebody waits for that. `once`
/// retires some frames, and says whether it could be done.
fn retire_beside_a_pin(once: impl Fn(&TestVm, SpaceId) -> bool) {
    const FRAMES: u32 = 4096;
    let vm = vm_with::<ByRegions>("", FRAMES);
    let (is_pinned, is_awaited) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let awaited = Arc::clone(&is_awaited);
    *vm.platform().on_relax.lock().unwrap() = Some(Box::new(move || {
        awaited.store(true, Ordering::Release);
    }));
    let (mut most, mut was_awaited) = (0, false);
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
        for _ in 0..FRAMES / 8 {
            let done = once(&vm, parent);
            most = most.max(vm.memory().stats().limbo);
            if !done || is_awaited.load(Ordering::Acquire) {
                break;
            }
        }
        was_awaited = is_awaited.swap(true, Ordering::AcqRel);
    });
    assert!(was_awaited, "{most} frames wait, and nobody waits for them");
    assert!(most <= u64::from(FRAMES) / 8, "{most} frames wait");
}

#[test]
fn a_share_of_memory_at_most_waits_while_a_cpu_stays_in_a_pin() {
    retire_beside_a_pin(|vm, parent| vm.fork(parent).and_then(|child| vm.exit(child)).is_ok());
}

#[test]
fn calls_that_take_pages_away_wait_for_a_cpu_that_stays_in_a_pin() {
    const PAGES: u64 = 8;
    let start = Vpn(PAGE + 100);
    let fixed = MapRequest::anonymous(PAGES, RW).at(Placement::Fixed(start));
    let store = |vm: &TestVm, space| {
        let mut pages = (0..PAGES).map(|page| (start.0 + page) << 12);
        pages.all(|address| vm.fault(space, address, Access::Write).is_ok())
    };
    retire_beside_a_pin(|vm, space| vm.map(space, &fixed).is_ok() && store(vm, space));
    retire_beside_a_pin(|vm, space| {
        (vm.region_at(space, start).is_some() || vm.map(space, &fixed).is_ok())
            && store(vm, space)
            && (vm.advise(space, start, PAGES, Advice::DontNeed)).is_ok()
    });
}

/// What waits on a CPU is its own as long as it is pinned.
#[test]
fn nothing_is_taken_from_a_cpu_that_is_pinned() {
    let vm = vm_with::<ByRegions>("", 512);
    let parent = vm.begin_space().unwrap();
    map(&vm, parent, PAGE, MapRequest::anonymous(1, RW));
    touch(&vm, parent, PAGE, Access::Write);
    run_on(1);
    let child = vm.fork(parent).unwrap();
    vm.exit(child).unwrap();
    for _ in 0..2 {
        assert!(vm.memory.epochs().try_advance());
    }
    let waiting = vm.memory.waiting();
    let pin = vm.pin();
    run_on(0);
    assert_eq!(vm.memory.wait_for_frames(Unpinned::at_door()), 0);
    assert_eq!(vm.memory.waiting(), waiting);
    drop(pin);
    assert_eq!(vm.memory.wait_for_frames(Unpinned::at_door()), waiting);
    vm.audit().unwrap();
}
