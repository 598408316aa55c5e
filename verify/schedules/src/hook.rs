//! The one hook that instrumented atomics call, and whom it serves on each
//! host thread.

use std::cell::Cell;
use std::sync::Once;
use std::time::Duration;

use vellum::sync::atomic::instrumented::{Kind, set_hook};

use crate::{record, script};

thread_local! {
    /// Whether this host thread runs tasks of an exploration.
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hook, once for the process. It costs other threads next to nothing.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| set_hook(Some(on_access)));
}

/// Runs `work` with every access on this host thread a point of preemption.
pub(crate) fn exploring<R>(work: impl FnOnce() -> R) -> R {
    install();
    with_exploring(true, work)
}

fn with_exploring<R>(on: bool, work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            EXPLORING.set(self.0);
        }
    }
    let _restore = Restore(EXPLORING.replace(on));
    work()
}

/// Runs `work` without points of preemption: for checks at the end of a
/// schedule, when only one task is left. What `work` waits for, others must
/// not have to supply.
pub fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    with_exploring(false, work)
}

fn on_access(kind: Kind, address: usize) {
    record::on_access(kind, address);
    if EXPLORING.get() {
        undisturbed(script::before_access);
        preempt();
    }
}

/// Lets the scheduler run another task, if a task is running.
fn preempt() {
    // An unwinding task lets go of what it holds without interruption.
    if std::thread::panicking() || shuttle::current::try_get_current_task().is_none() {
        return;
    }
    // In an exploration time does not exist, and sleeping is a mere switch.
    shuttle::thread::sleep(Duration::ZERO);
}
