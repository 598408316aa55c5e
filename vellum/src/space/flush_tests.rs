//! What must not have happened yet when CPUs are made to forget translations
//! (invariant 6): nothing that they may still reach is free.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::vec::Vec;

use super::*;
use crate::addr::{Access, Pfn, Prot, Vpn};
use crate::frame::Kind;
use crate::table::X86_64;
use crate::testing::ByRegions;
use crate::testing::{TestMachine, run_on};
use crate::{Design, ObjectId};

type TestVm = Vm<TestMachine, X86_64, ByRegions>;

const RW: Prot = Prot::READ_WRITE;

/// Private pages, on their own and of a file.
const ANONYMOUS: u64 = 100;
const PRIVATE: u64 = 200;
/// The file, shared.
const SHARED: u64 = 300;
const PAGES: u64 = 6;

/// A space with pages of every kind.
fn space_of(vm: &TestVm) -> (SpaceId, ObjectId) {
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, PAGES).unwrap();
    let object = MapRequest::object(file, 0, PAGES, RW);
    for (at, request) in [
        (ANONYMOUS, MapRequest::anonymous(PAGES, RW)),
        (PRIVATE, object),
        (SHARED, object.shared()),
    ] {
        vm.map(space, &request.at(Placement::Fixed(Vpn(at))))
            .unwrap();
        for page in at..at + PAGES {
            vm.fault(space, page << 12, Access::Write).unwrap();
        }
    }
    (space, file)
}

/// Runs `change` and checks, at each flush it asks for, that every frame that
/// the space mapped before is still what it was, with a reference.
fn frames_outlive_flushes(change: impl FnOnce(&TestVm, SpaceId, ObjectId)) {
    run_on(0);
    let design = Design::parse("faultaround=1").unwrap();
    let vm: Arc<TestVm> = Arc::new(Vm::new(TestMachine::simple(1, 2048), design).unwrap());
    let (space, file) = space_of(&vm);
    let mut frames: Vec<(Pfn, Kind)> = Vec::new();
    vm.for_each_leaf(space, |_, frame, _, _| {
        frames.push((frame, vm.memory.frame(frame).kind()));
    })
    .unwrap();
    assert_eq!(frames.len() as u64, 3 * PAGES);
    // A panic here would be in the middle of a change.
    let wrong: Arc<Mutex<Vec<Pfn>>> = Arc::default();
    let flushes: Arc<AtomicU64> = Arc::default();
    let weak: Weak<TestVm> = Arc::downgrade(&vm);
    let (seen, count) = (Arc::clone(&wrong), Arc::clone(&flushes));
    let freed_before = Mutex::new(Vec::new());
    vm.platform().on_flush(move || {
        let Some(vm) = weak.upgrade() else { return };
        // What an earlier flush of the same change was about may be free now.
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        let mut freed_before = freed_before.lock().unwrap();
        for &(frame, kind) in &frames {
            let record = vm.memory.frame(frame);
            let lives = record.kind() == kind && record.counts().refs() > 0;
            if lives || freed_before.contains(&frame) {
                continue;
            }
            freed_before.push(frame);
            if is_first {
                seen.lock().unwrap().push(frame);
            }
        }
    });
    change(&vm, space, file);
    assert!(flushes.load(Ordering::Relaxed) > 0, "nothing was flushed");
    assert_eq!(*wrong.lock().unwrap(), [], "free at the flush");
    vm.audit().unwrap();
}

#[test]
fn unmapped_frames_are_free_only_after_the_flush() {
    for at in [ANONYMOUS, PRIVATE, SHARED] {
        frames_outlive_flushes(|vm, space, _| vm.unmap(space, Vpn(at), PAGES).unwrap());
    }
}

#[test]
fn replaced_frames_are_free_only_after_the_flush() {
    frames_outlive_flushes(|vm, space, _| {
        let request = MapRequest::anonymous(PAGES, RW);
        vm.map(space, &request.at(Placement::Fixed(Vpn(ANONYMOUS))))
            .unwrap();
    });
    frames_outlive_flushes(|vm, space, _| {
        let to = RemapPlacement::Fixed(Vpn(PRIVATE));
        vm.remap(space, Vpn(ANONYMOUS), PAGES, PAGES, to).unwrap();
    });
}

#[test]
fn dropped_frames_are_free_only_after_the_flush() {
    frames_outlive_flushes(|vm, space, _| {
        vm.advise(space, Vpn(ANONYMOUS), PAGES, Advice::DontNeed)
            .unwrap();
    });
}

#[test]
fn truncated_frames_are_free_only_after_the_flush() {
    // One page, so that the first flush is that of its entry.
    frames_outlive_flushes(|vm, _, file| {
        vm.page_cache().set_size(file, (PAGES - 1) << 12).unwrap()
    });
}

#[test]
fn frames_of_a_space_are_free_only_after_the_flush_of_its_end() {
    frames_outlive_flushes(|vm, space, _| {
        vm.exit(space).unwrap();
    });
}

/// A CPU that waits for a lock may not answer a flush, whose sender holds the lock.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "1 spin locks held instead of 0")]
fn a_flush_under_the_lock_of_a_table_is_noticed() {
    run_on(0);
    let vm: TestVm = Vm::new(TestMachine::simple(1, 2048), Design::default()).unwrap();
    let (id, _) = space_of(&vm);
    let pin = vm.pin();
    let space = vm.find_space(id).unwrap();
    let table = vm.tables(&pin, space).lock(Vpn(ANONYMOUS));
    assert!(table.is_some());
    vm.flush_page(&pin, space, Vpn(ANONYMOUS));
}

#[test]
#[cfg(debug_assertions)]
fn a_lock_counts_as_held_until_it_is_released() {
    use crate::sync::atomic::AtomicU64 as Word;
    use crate::sync::{BitLock, SpinLock};
    run_on(0);
    let vm: TestVm = Vm::new(TestMachine::simple(1, 2048), Design::default()).unwrap();
    let pin = vm.pin();
    let (lock, word) = (SpinLock::new(0), Word::new(0));
    let guard = lock.lock(&pin);
    assert!(lock.try_lock(&pin).is_none());
    let bit = word.lock_bit(63, &pin);
    assert!(word.try_lock_bit(63, &pin).is_none());
    vm.pin().assert_holds(2);
    bit.unlock_with(7);
    pin.assert_holds(1);
    drop(guard);
    pin.assert_holds(0);
}
