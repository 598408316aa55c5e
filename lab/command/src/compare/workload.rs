//! What is compared: a prepared workload, seen as slices that every arm executes.
//!
//! A slice gives each simulated CPU a range of its operations. Ranges of one
//! slice run at the same time; within them a segment may have to wait for
//! another CPU's progress. Slices follow each other, so a slice never waits for
//! a later one, and neighbouring slices may be joined.

use std::ops::Range;

use vellum_engine::Op;

use crate::replay::{Class, Expectation, Slice, Wait, Workload};

/// A workload ready to be executed and cut.
pub trait Load: Sync {
    /// Number of simulated CPUs. With one, any cut is allowed and there is
    /// nothing to wait for.
    fn cpus(&self) -> usize;

    /// The operations of `cpu`, in order.
    fn ops(&self, cpu: usize) -> &[Op];

    /// The class of each operation of `cpu`.
    fn classes(&self, cpu: usize) -> &[Class];

    /// What the recording says about a divergence of operation `index` of `cpu`.
    fn expectation(&self, cpu: usize, index: usize) -> Expectation;

    /// The whole workload in slices of about `target` operations.
    fn slices(&self, target: usize) -> Vec<Slice>;

    /// The segments of `cpu` that make up `ops`, by number.
    fn segments_in(&self, cpu: usize, ops: &Range<usize>) -> Range<usize>;

    /// Segment `index` of `cpu`: its operations, and what must hold before.
    fn segment(&self, cpu: usize, index: usize) -> (Range<usize>, &[Wait]);

    /// The number, from 0, of the trace's event that operation `index` of `cpu` came
    /// from; none if the workload is not one trace.
    fn origin(&self, _cpu: usize, _index: usize) -> Option<u64> {
        None
    }

    /// The phase of the workload that `slice` lies in, by a number of the
    /// load's own. Slices are joined only within a phase.
    fn phase(&self, _slice: &Slice) -> u16 {
        0
    }

    /// Whether `slice` only makes what was there when the recording of the workload began. The
    /// first slices do, and are executed, but not timed.
    fn is_beginning(&self, _slice: &Slice) -> bool {
        false
    }

    /// Operations on all CPUs.
    fn len(&self) -> usize {
        (0..self.cpus()).map(|cpu| self.ops(cpu).len()).sum()
    }

    /// Whether there is nothing to do.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Load for Workload {
    fn cpus(&self) -> usize {
        self.cpus()
    }

    fn ops(&self, cpu: usize) -> &[Op] {
        self.streams()[cpu].ops()
    }

    fn classes(&self, cpu: usize) -> &[Class] {
        self.streams()[cpu].classes()
    }

    fn expectation(&self, cpu: usize, index: usize) -> Expectation {
        self.streams()[cpu].expectations()[index]
    }

    fn slices(&self, target: usize) -> Vec<Slice> {
        self.slices(target)
    }

    fn is_beginning(&self, slice: &Slice) -> bool {
        self.is_beginning(slice)
    }

    fn origin(&self, cpu: usize, index: usize) -> Option<u64> {
        let origins = self.streams()[cpu].origins();
        let origin = (self.copies() == 1).then(|| origins.get(index)).flatten();
        origin.map(|event| u64::from(*event))
    }

    fn segments_in(&self, cpu: usize, ops: &Range<usize>) -> Range<usize> {
        self.streams()[cpu].segments_in(ops)
    }

    fn segment(&self, cpu: usize, index: usize) -> (Range<usize>, &[Wait]) {
        let stream = &self.streams()[cpu];
        let segment = stream.segments()[index];
        (
            segment.start as usize..segment.end as usize,
            stream.waits(index),
        )
    }
}

/// Appends `next` to `slice`, which it follows immediately.
pub(super) fn join(slice: &mut Slice, next: &Slice) {
    for (ops, next) in slice.ops.iter_mut().zip(&next.ops) {
        debug_assert_eq!(ops.end, next.start, "slices follow each other");
        ops.end = next.end;
    }
}
