//! The listener to the accesses of an instrumented core, and whom it serves on
//! each host thread.

use std::cell::Cell;
use std::sync::Once;
use std::time::Duration;

use vellum::sync::report::{Access, Kind, listen};

use crate::{bursts, record, script};

thread_local! {
    /// What says who runs next among the tasks of this host thread, if it runs tasks.
    static EXPLORING: Cell<Option<By>> = const { Cell::new(None) };
}

/// What says which task runs next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A seed.
    Seed,
    /// A script.
    Script,
}

/// Listens, from the first call on. It costs other threads next to nothing.
pub(crate) fn install() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        if let Err(error) = listen(on_access) {
            panic!("{error}");
        }
    });
}

/// Runs `work` with every access on this host thread a point of preemption.
pub(crate) fn exploring<R>(by: By, work: impl FnOnce() -> R) -> R {
    install();
    with_exploring(Some(by), work)
}

fn with_exploring<R>(by: Option<By>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<By>);
    impl Drop for Restore {
        fn drop(&mut self) {
            EXPLORING.set(self.0);
        }
    }
    let _restore = Restore(EXPLORING.replace(by));
    work()
}

/// Runs `work` without points of preemption: for checks at the end of a
/// schedule, when only one task is left. What `work` waits for, others must
/// not have to supply.
pub fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    with_exploring(None, work)
}

/// Whether an access is a step of a protocol. What locks guard and what is in pages
/// is none.
fn is_step(kind: Kind) -> bool {
    use Kind::{Fence, FullFence, Load, ReadModifyWrite, Store};
    matches!(kind, Load | Store | ReadModifyWrite | Fence | FullFence)
}

fn on_access(access: Access) {
    if !is_step(access.kind) {
        return;
    }
    if record::is_on() {
        record::on_access(access.kind, access.address);
    }
    step();
}

/// A point where another task may run, if this host thread explores.
pub(crate) fn step() {
    match EXPLORING.get() {
        None => return,
        Some(By::Seed) => {}
        Some(By::Script) => undisturbed(script::before_access),
    }
    preempt();
}

/// Lets the scheduler run another task, if a task is running.
fn preempt() {
    // An unwinding task lets go of what it holds without interruption.
    if std::thread::panicking()
        || bursts::goes_on()
        || shuttle::current::try_get_current_task().is_none()
    {
        return;
    }
    // In an exploration time does not exist, and sleeping is a mere switch.
    shuttle::thread::sleep(Duration::ZERO);
}
