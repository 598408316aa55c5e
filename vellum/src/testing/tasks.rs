//! Tasks that share one CPU and are not preempted: one runs until it sleeps or ends. That they
//! wait for a moment gives the CPU to nobody.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{TASK, run_on, this_task};

/// Moments that one task may wait for in a row.
const PATIENCE: u64 = 1 << 14;

/// Who runs, and who may.
#[derive(Default)]
struct State {
    running: Option<u64>,
    ready: VecDeque<u64>,
    asleep: BTreeSet<u64>,
    /// Were woken while they were awake.
    woken: BTreeSet<u64>,
    ended: BTreeSet<u64>,
    /// Moments that the running task has waited for.
    waits: u64,
    /// What has gone wrong.
    failure: Option<&'static str>,
}

/// The tasks of a machine.
#[derive(Default)]
pub(crate) struct Tasks {
    state: Mutex<State>,
    turn: Condvar,
}

/// Ends a task, or all of them if it has failed.
struct End<'a>(&'a Tasks, u64);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ended.insert(self.1);
        if thread::panicking() {
            state.failure.get_or_insert("another task has failed");
        }
        self.0.next(&mut state);
    }
}

impl Tasks {
    /// Runs tasks on CPU 0, which begin in this order, until all have ended.
    pub(crate) fn run(&self, works: &[&(dyn Fn() + Sync)]) {
        let names = (0..works.len()).map(|_| {
            TASK.set(0);
            this_task()
        });
        let names: std::vec::Vec<u64> = names.collect();
        self.state().ready.extend(&names);
        thread::scope(|scope| {
            for (&name, work) in names.iter().zip(works) {
                scope.spawn(move || {
                    TASK.set(name);
                    run_on(0);
                    let _end = End(self, name);
                    self.wait_for_turn(self.state());
                    work();
                });
            }
            self.next(&mut self.state());
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next one run.
    fn next(&self, state: &mut State) {
        state.running = state.ready.pop_front();
        state.waits = 0;
        if state.running.is_none() && !state.asleep.is_empty() {
            state.failure.get_or_insert("all are asleep");
        }
        self.turn.notify_all();
    }

    fn wait_for_turn(&self, mut state: MutexGuard<'_, State>) {
        while state.running != Some(this_task()) {
            if let Some(failure) = state.failure {
                drop(state);
                panic!("{failure}");
            }
            state = (self.turn.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The running task sleeps.
    pub(super) fn park(&self) {
        let mut state = self.state();
        if !state.woken.remove(&this_task()) {
            state.asleep.insert(this_task());
            self.next(&mut state);
            self.wait_for_turn(state);
        }
    }

    /// Wakes a task.
    pub(super) fn unpark(&self, task: u64) {
        let mut state = self.state();
        assert!(
            !state.ended.contains(&task),
            "a task is woken that has ended"
        );
        if state.asleep.remove(&task) {
            state.ready.push_back(task);
        } else {
            state.woken.insert(task);
        }
    }

    /// Has all others run that can, as if the running task slept for a moment.
    pub(crate) fn step_back(&self) {
        let mut state = self.state();
        state.ready.push_back(this_task());
        self.next(&mut state);
        self.wait_for_turn(state);
    }

    /// The running task waits for a moment.
    pub(super) fn relax(&self) {
        let mut state = self.state();
        state.waits += 1;
        let waits = state.waits;
        drop(state);
        assert!(waits < PATIENCE, "it waits for somebody who never runs");
    }
}
