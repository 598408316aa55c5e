//! What an engine counts beside the core and its machine: here nothing.
//!
//! `vellum-engine-counted` has a meter of its own in this place.

/// Watches the execution of operations.
pub(crate) struct Meter;

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter
    }

    /// Does `work`, which executes operations on the calling thread.
    #[inline]
    pub(crate) fn during(&self, work: impl FnOnce()) {
        work();
    }

    /// Counts since the engine was built, by name, in a fixed order.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 0] {
        []
    }
}
