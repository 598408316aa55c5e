//! Locks whose waiters sleep: no wake-up is lost.
//!
//! A lost wake-up leaves a task asleep after the other has ended, which the
//! platform of the model reports.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32 as Tally, Ordering::SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::check;
use crate::addr::Pfn;
use crate::frame::{Kind, PageFlags, PhysicalMemory};
use crate::page_lock::PageLocks;
use crate::platform::{
    CpuId, CpuSet, Flush, Machine, MemoryRange, Policy, Sleep, Store, TaskToken,
};
use crate::sync::{
    Crew, MaybePinned, Queues, RangeLock, SleepHost, SleepLock, Tail, Underway, Unpinned, WaitTable,
};

const PAGE: Pfn = Pfn(1);

loom::thread_local! {
    static TASK: std::cell::Cell<u64> = std::cell::Cell::new(0);
}

/// One task's sleep.
#[derive(Clone, Copy, Default)]
struct Task {
    woken: bool,
    ended: bool,
}

/// Two tasks that can sleep; nothing else of a platform.
struct Sleepers {
    tasks: Mutex<[Task; 2]>,
    sleeps: Tally,
    /// Every sleep ends early.
    naps: bool,
}

// SAFETY: there is no memory, and no TLB.
unsafe impl Machine for Sleepers {
    fn cpus(&self) -> usize {
        2
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &[]
    }
    fn pin(&self) -> CpuId {
        CpuId(this_task() as u16)
    }
    fn unpin(&self, _: CpuId) {}
    fn frame(&self, _: Pfn) -> NonNull<u8> {
        unreachable!("no model looks at bytes")
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {}
    fn relax(&self, _: u32) {}
}

impl Sleep for Sleepers {
    fn current_task(&self) -> TaskToken {
        TaskToken(this_task())
    }
    fn park(&self) {
        self.sleeps.fetch_add(1, SeqCst);
        let me = this_task() as usize;
        if self.naps {
            thread::yield_now();
            return;
        }
        loop {
            let mut tasks = self.tasks.lock().unwrap();
            if core::mem::take(&mut tasks[me].woken) {
                return;
            }
            let alone = tasks[1 - me].ended;
            drop(tasks);
            assert!(!alone, "asleep for good");
            thread::yield_now();
        }
    }
    fn unpark(&self, task: TaskToken) {
        let mut tasks = self.tasks.lock().unwrap();
        assert!(!tasks[task.0 as usize].ended, "woken after its end");
        tasks[task.0 as usize].woken = true;
    }
}

impl Store for Sleepers {}

impl Policy for Sleepers {}

fn this_task() -> u64 {
    TASK.with(|task| task.get())
}

struct Model {
    memory: PhysicalMemory<Sleepers>,
    locks: PageLocks,
    waits: WaitTable,
    sleep_lock: SleepLock,
    underway: Underway,
    crew: Crew,
    /// What there is to do, and what of it is done.
    work: [AtomicU32; 2],
    queues: Queues,
    queue: Tail,
    ranges: RangeLock,
    content: UnsafeCell<u32>,
}

/// Runs `work` as task 0 and as task 1, each on its CPU; returns how often one
/// slept.
fn run(work: fn(&Model, u16)) -> u32 {
    run_with(PageLocks::default(), false, work)
}

fn run_with(locks: PageLocks, naps: bool, work: fn(&Model, u16)) -> u32 {
    let model = Arc::new(Model {
        memory: PhysicalMemory::new(Sleepers {
            tasks: Mutex::new([Task::default(); 2]),
            sleeps: Tally::new(0),
            naps,
        }),
        locks,
        waits: WaitTable::new(),
        sleep_lock: SleepLock::default(),
        underway: Underway::default(),
        crew: Crew::default(),
        work: [1, 0].map(AtomicU32::new),
        queues: Queues::new("nodes", 2),
        queue: Tail::default(),
        ranges: RangeLock::default(),
        content: UnsafeCell::new(0),
    });
    model.memory.frame(PAGE).set_kind(Kind::Object);
    let other = {
        let model = model.clone();
        thread::spawn(move || {
            TASK.with(|task| task.set(1));
            model.run(work, 1);
        })
    };
    model.run(work, 0);
    other.join().unwrap();
    model.memory.platform().sleeps.load(SeqCst)
}

/// Runs `work` as two tasks in every order; in some, one must have slept.
fn two_tasks(work: fn(&Model, u16)) {
    let sleeps = std::sync::Arc::new(Tally::new(0));
    let sum = sleeps.clone();
    check(move || {
        sum.fetch_add(run(work), SeqCst);
    });
    assert!(sleeps.load(SeqCst) > 0, "no task ever slept");
}

impl Model {
    fn run(&self, work: fn(&Model, u16), cpu: u16) {
        work(self, cpu);
        self.memory.platform().tasks.lock().unwrap()[usize::from(cpu)].ended = true;
    }

    fn fill(&self) {
        self.content.with_mut(|content| {
            // SAFETY: the model checker verifies that nobody else is in here.
            unsafe { *content += 1 }
        });
    }

    /// Fills with a range held.
    fn fill_range(&self, range: std::ops::Range<u64>) {
        let (memory, platform) = (&self.memory, self.memory.platform());
        let mut caller = MaybePinned::not_yet(Unpinned::at_door());
        let held = self.ranges.lock(&mut caller, range, &self.waits, memory);
        self.fill();
        (self.ranges).unlock(held, &self.waits, platform, caller.pinned(memory));
    }
}

#[test]
fn a_range_that_is_lent_has_one_user_and_comes_back() {
    two_tasks(|model, cpu| {
        let platform = model.memory.platform();
        let (memory, pinned) = (&model.memory, || model.memory.pin());
        if cpu == 0 {
            let mut caller = MaybePinned::not_yet(Unpinned::at_door());
            let held = (model.ranges).lock(&mut caller, 0..9, &model.waits, memory);
            caller.unpinned();
            model.fill();
            model.ranges.lend(&held, &pinned());
            (model.ranges).take_back(caller.unpinned(), &held, &model.waits, memory);
            model.fill();
            (model.ranges).unlock(held, &model.waits, platform, &pinned());
        } else if let Some(held) = model.ranges.try_lock(&(3..4), &pinned()) {
            model.fill();
            (model.ranges).unlock(held, &model.waits, platform, &pinned());
        }
    });
}

#[test]
fn a_page_lock_admits_one_and_wakes_the_other() {
    two_tasks(fill_locked);
}

fn fill_locked(model: &Model, _cpu: u16) {
    let lock = loop {
        if let Some(lock) = model.locks.try_lock(&model.memory, PAGE) {
            break lock;
        }
        (model.locks).wait(Unpinned::at_door(), &model.memory, PAGE);
    };
    // Pinned before: to pin is a fence, which would order what the lock must.
    let pin = model.memory.pin();
    model.fill();
    model.locks.unlock(&model.memory, &pin, lock);
}

/// The table of queues of `pagelock=hashed` is looked at after the lock is free, by
/// whoever frees it, and entered before the lock is looked at, by whoever waits.
#[test]
fn a_page_lock_with_hashed_queues_admits_one_and_wakes_the_other() {
    let sleeps = std::sync::Arc::new(Tally::new(0));
    let sum = sleeps.clone();
    check(move || {
        sum.fetch_add(run_with(PageLocks::hashed(1), false, fill_locked), SeqCst);
    });
    assert!(sleeps.load(SeqCst) > 0, "no task ever slept");
}

#[test]
#[should_panic(expected = "asleep for good")]
fn a_waiter_that_looks_before_it_says_so_sleeps_for_good() {
    two_tasks(|model, _| {
        while model.locks.try_lock(&model.memory, PAGE).is_none() {
            let frame = model.memory.frame(PAGE);
            // The lock is looked at first, and the flag set afterwards.
            let locked = frame.page().has(PageFlags::LOCKED);
            let (unpinned, key) = (Unpinned::at_door(), u64::from(PAGE.0));
            (model.waits).sleep_if(unpinned, key, &model.memory, &mut |_| {
                frame.page().set(PageFlags::WAITERS);
                locked
            });
        }
        let pin = model.memory.pin();
        let frame = model.memory.frame(PAGE);
        frame.page().clear(PageFlags::LOCKED);
        if frame.page().has(PageFlags::WAITERS) {
            frame.page().clear(PageFlags::WAITERS);
            let key = u64::from(PAGE.0);
            model.waits.wake(key, model.memory.platform(), &pin);
        }
    });
}

#[test]
#[should_panic(expected = "asleep for good")]
fn a_wake_up_for_nobody_listed_is_lost() {
    two_tasks(|model, _| {
        let lock = loop {
            if let Some(lock) = model.locks.try_lock(&model.memory, PAGE) {
                break lock;
            }
            model.memory.frame(PAGE).page().set(PageFlags::WAITERS);
            // Asleep without being in the table.
            model.memory.platform().park();
        };
        model.locks.unlock(&model.memory, &model.memory.pin(), lock);
    });
}

#[test]
fn a_sleeping_lock_admits_one_and_wakes_the_other() {
    two_tasks(|model, _| {
        let (memory, platform) = (&model.memory, model.memory.platform());
        (model.sleep_lock).lock(Unpinned::at_door(), &model.waits, memory);
        model.fill();
        (model.sleep_lock).unlock(&model.waits, platform, || memory.pin());
    });
}

#[test]
fn a_queue_has_one_first_who_wakes_the_next() {
    two_tasks(fill_in_turn);
}

fn fill_in_turn(model: &Model, _cpu: u16) {
    let (memory, queue) = (&model.memory, &model.queue);
    let first = (model.queues).enter(Unpinned::at_door(), queue, memory);
    model.fill();
    (model.queues).leave(queue, first.unwrap(), memory.platform(), &memory.pin());
}

/// A sleep may end early, and the task after it: nobody wakes it then.
#[test]
fn who_has_left_a_queue_and_ended_is_not_woken() {
    check(|| {
        run_with(PageLocks::default(), true, fill_in_turn);
    });
}

#[test]
#[should_panic(expected = "asleep for good")]
fn those_in_a_queue_wait_for_the_first_to_leave() {
    two_tasks(|model, _| {
        let first = (model.queues).enter(Unpinned::at_door(), &model.queue, &model.memory);
        assert!(first.is_some());
    });
}

#[test]
fn a_queue_of_spinners_has_one_first() {
    check(|| {
        run(|model, _| {
            let pin = model.memory.pin();
            let first = model.queues.enter_pinned(&model.queue, &pin);
            model.fill();
            model
                .queues
                .leave_pinned(&model.queue, first.unwrap(), &pin);
        });
    });
}

/// Task 0 goes on after it has let go of the lock; task 1 needs to be alone.
fn fill_beside(model: &Model, cpu: u16, is_alone: impl Fn(&Underway) -> bool) {
    let (memory, platform) = (&model.memory, model.memory.platform());
    let pinned = || memory.pin();
    let lock = || (model.sleep_lock).lock(Unpinned::at_door(), &model.waits, memory);
    let unlock = || model.sleep_lock.unlock(&model.waits, platform, pinned);
    let underway = &model.underway;
    lock();
    if cpu == 0 {
        if underway.is_awaited() {
            unlock();
            return;
        }
        underway.begin();
        unlock();
        model.fill();
        lock();
        underway.end(&model.waits, platform, &pinned());
    } else {
        while !is_alone(underway) {
            underway.await_end(true);
            unlock();
            underway.wait(Unpinned::at_door(), &model.waits, memory);
            lock();
            underway.await_end(false);
        }
        model.fill();
    }
    unlock();
}

#[test]
fn whoever_has_to_be_alone_waits_for_what_goes_on_without_the_lock() {
    two_tasks(|model, cpu| fill_beside(model, cpu, Underway::is_none));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn whoever_has_the_lock_alone_is_not_alone() {
    check(|| {
        run(|model, cpu| fill_beside(model, cpu, |_| true));
    });
}

/// Does the work that there is; whoever finds none waits for the other one.
fn work_together(model: &Model, wait: impl Fn(&Model, u32) -> bool) {
    let platform = model.memory.platform();
    let [left, done] = &model.work;
    loop {
        model.crew.begin();
        if left.swap(0, Ordering::Relaxed) != 0 {
            done.store(1, Ordering::Relaxed);
        }
        let ended = model.crew.end(&model.waits, platform, &model.memory.pin());
        if done.load(Ordering::Relaxed) != 0 {
            return;
        }
        assert!(wait(model, ended), "it gave up, and the work was done");
    }
}

#[test]
fn whoever_finds_nothing_to_do_learns_what_others_had_in_hand() {
    two_tasks(|model, _| {
        work_together(model, |model, ended| {
            let (unpinned, memory) = (Unpinned::at_door(), &model.memory);
            (model.crew).wait_for_another(unpinned, ended, &model.waits, memory)
        });
    });
}

#[test]
#[should_panic(expected = "it gave up")]
fn whoever_does_not_wait_for_others_gives_up_too_early() {
    check(|| {
        run(|model, _| work_together(model, |_, _| false));
    });
}

#[test]
fn ranges_that_overlap_are_held_one_after_the_other() {
    two_tasks(|model, cpu| {
        let first = u64::from(cpu);
        model.fill_range(first..first + 2);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn ranges_apart_are_held_together() {
    check(|| {
        run(|model, cpu| {
            let first = u64::from(cpu);
            model.fill_range(first..first + 1);
        });
    });
}
