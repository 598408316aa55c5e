//! Sleeping on one CPU without preemption.

use std::vec::Vec;

use super::*;
use crate::frame::PhysicalMemory;
use crate::platform::Sleep;
use crate::sync::{MaybePinned, RangeLock};
use crate::testing::{TestMachine, run_on};

/// More than there is room for anywhere.
const TASKS: usize = 20;

type Memory = PhysicalMemory<TestMachine>;

fn memory() -> Memory {
    run_on(0);
    PhysicalMemory::new(TestMachine::without_preemption(256)).unwrap()
}

/// Runs as many tasks, each of which holds a lock while all others run.
fn all_hold(memory: &Memory, hold: &(dyn Fn() + Sync)) {
    let works: Vec<&(dyn Fn() + Sync)> = std::vec![hold; TASKS];
    memory.platform().run(&works);
    let parks = memory.platform().parks.load(Ordering::Relaxed);
    assert!(parks >= TASKS as u64 - 1, "only {parks} tasks slept");
}

#[test]
fn however_many_wait_for_a_lock_all_of_them_sleep() {
    let (memory, lock) = (memory(), SleepLock::default());
    let platform = memory.platform();
    for table in [WaitTable::new(), WaitTable::with_queues(1)] {
        all_hold(&memory, &|| {
            lock.lock(Unpinned::at_door(), &table, &memory);
            platform.step_back();
            lock.unlock(&table, platform, || memory.pin());
        });
    }
}

#[test]
fn however_many_wait_for_a_range_all_of_them_sleep() {
    let (memory, lock) = (memory(), RangeLock::default());
    let platform = memory.platform();
    for table in [WaitTable::new(), WaitTable::with_queues(1)] {
        all_hold(&memory, &|| {
            let mut caller = MaybePinned::not_yet(Unpinned::at_door());
            let held = lock.lock(&mut caller, 3..5, &table, &memory);
            caller.unpinned();
            platform.step_back();
            lock.unlock(held, &table, platform, &memory.pin());
        });
    }
}

#[test]
fn whoever_waits_for_another_key_sleeps_on() {
    let (memory, table) = (memory(), WaitTable::new());
    let platform = memory.platform();
    let bucket = |key: u64| ptr::from_ref(table.bucket(key));
    let others = (1..).filter(|&key| ptr::eq(bucket(key), bucket(0)));
    let keys: Vec<u64> = [0].into_iter().chain(others.take(3)).collect();
    let woken = AtomicU32::new(0);
    let wait = |place: usize| {
        table.sleep_if(Unpinned::at_door(), keys[place], &memory, &mut |_| true);
        assert_eq!(woken.fetch_add(1, Ordering::Relaxed), place as u32);
    };
    platform.run(&[&|| wait(2), &|| wait(0), &|| wait(3), &|| wait(1), &|| {
        for (place, &key) in keys.iter().enumerate() {
            table.wake(key, platform, &memory.pin());
            platform.step_back();
            assert_eq!(woken.load(Ordering::Relaxed), place as u32 + 1);
        }
    }]);
}

#[test]
fn a_task_that_has_woken_early_and_ended_is_not_woken() {
    let (memory, table, lock) = (memory(), WaitTable::new(), SleepLock::default());
    let platform = memory.platform();
    let sleeper = AtomicU32::new(0);
    let pin = || memory.pin();
    platform.run(&[
        &|| {
            lock.lock(Unpinned::at_door(), &table, &memory);
            platform.step_back();
            // The lock is free, and whoever waits for it is not woken yet.
            lock.unlock(&table, platform, || {
                let early = u64::from(sleeper.load(Ordering::Relaxed));
                platform.unpark(TaskToken(early));
                platform.step_back();
                memory.pin()
            });
        },
        &|| {
            let name = platform.current_task().0 as u32;
            sleeper.store(name, Ordering::Relaxed);
            lock.lock(Unpinned::at_door(), &table, &memory);
            let bucket = table.bucket(lock.key());
            let is_listed = !bucket.lock(&pin()).first.is_null();
            assert!(!is_listed, "it has left, and its place is still looked at");
        },
    ]);
}
