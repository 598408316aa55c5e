//! Defects of the platform, to show that the tests notice: `defect=NAME` on the command
//! line. Each breaks condition 4 of `Machine` in its own way.

use core::sync::atomic::{AtomicU8, Ordering};

/// What the platform does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// The CPU that changes a table does not forget.
    LocalFlush = 1,
    /// Other CPUs are not asked.
    RemoteFlush,
    /// They answer and do not forget.
    Acknowledge,
    /// The last page of a range is left out.
    LastPage,
    /// Requests for all of a space, or for many pages, are ignored.
    WholeSpace,
}

/// By their names on the command line.
const NAMES: [(&str, Defect); 5] = [
    ("local-flush", Defect::LocalFlush),
    ("remote-flush", Defect::RemoteFlush),
    ("acknowledge", Defect::Acknowledge),
    ("last-page", Defect::LastPage),
    ("whole-space", Defect::WholeSpace),
];

static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Switches the defect of this name on.
pub fn choose(name: &str) {
    let known = NAMES.iter().find(|(known, _)| *known == name);
    let Some((_, defect)) = known else {
        panic!("there is no defect `{name}`")
    };
    CHOSEN.store(*defect as u8, Ordering::Relaxed);
}

/// Whether this one is on.
#[inline]
pub fn is(defect: Defect) -> bool {
    CHOSEN.load(Ordering::Relaxed) == defect as u8
}
