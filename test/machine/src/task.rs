//! Who runs: host threads as tasks, their sleep, and other schedulers.
//!
//! A task sleeps on a permit of its own. An unpark leaves the permit, a park
//! takes it or waits for it, so an unpark that comes first is kept. The permit
//! is not the host thread's own park token, which other libraries may consume.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, RwLock};

use std::collections::HashMap;

/// How tasks run that are not host threads, for running a machine under a
/// scheduler that explores interleavings.
///
/// All functions are called on the host thread of the task they are about
/// (except that `unpark` names another), and none while the machine holds a
/// lock that would block the host thread.
#[derive(Debug)]
pub struct Scheduler {
    /// Lets other tasks run, because this one waits for them.
    pub yield_now: fn(),
    /// Other tasks may run here: before a flush reaches a CPU, which goes on by its
    /// old translations until then.
    pub step: fn(),
    /// The calling task; unique among live tasks.
    pub current_task: fn() -> u64,
    /// Sleeps until the task is unparked; an unpark that came first is kept.
    pub park: fn(),
    /// Wakes a task that [`Scheduler::current_task`] has named.
    pub unpark: fn(u64),
}

#[derive(Default)]
struct Permit {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Permit {
    fn give(&self) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn take(&self) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        while !*given {
            given = self
                .changed
                .wait(given)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *given = false;
    }
}

/// Host threads that have named themselves, by number.
static TASKS: LazyLock<RwLock<HashMap<u64, Arc<Permit>>>> = LazyLock::new(RwLock::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A host thread's entry in [`TASKS`], there until the thread ends.
struct HostTask {
    number: u64,
    permit: Arc<Permit>,
}

impl HostTask {
    fn new() -> HostTask {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let permit = Arc::<Permit>::default();
        TASKS
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, Arc::clone(&permit));
        HostTask { number, permit }
    }
}

impl Drop for HostTask {
    fn drop(&mut self) {
        TASKS
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.number);
    }
}

thread_local! {
    static ME: OnceCell<HostTask> = const { OnceCell::new() };
}

/// The number of the calling host thread.
pub(crate) fn current() -> u64 {
    ME.with(|me| me.get_or_init(HostTask::new).number)
}

/// Sleeps until [`unpark`] is called for the calling host thread.
pub(crate) fn park() {
    ME.with(|me| me.get_or_init(HostTask::new).permit.take());
}

/// Wakes a host thread. One that has ended needs no waking.
pub(crate) fn unpark(number: u64) {
    let tasks = TASKS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(permit) = tasks.get(&number) {
        permit.give();
    }
}
