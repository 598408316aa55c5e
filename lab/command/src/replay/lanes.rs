//! Executes a slice on all its CPUs, each on a thread, in the order that the
//! workload's waits demand.
//!
//! One CPU runs on the caller's thread. With several, a CPU announces its
//! progress after each segment (release) and reads others' before a segment
//! with waits (acquire), so everything the work wrote before a wait is visible
//! after it. Since waits point backwards in one global order, some CPU can
//! always go on.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use super::workload::{Slice, Wait, Workload};

/// What is done with a stretch of operations of one CPU between which nothing is
/// waited for.
pub trait Work: Sync {
    /// State of one CPU, made afresh for every slice.
    type Lane: Send;

    /// The state that `cpu` starts a slice with.
    fn lane(&self, cpu: usize) -> Self::Lane;

    /// Does operations `ops` of `lane`'s CPU. `segment` is their segment's
    /// number; several stretches may lie in one segment if there is one CPU.
    fn stretch(&self, lane: &mut Self::Lane, segment: usize, ops: Range<usize>);

    /// `lane` begins the slice, or has what it waited for.
    fn resume(&self, _lane: &mut Self::Lane) {}

    /// `lane` is about to wait for another CPU, or ends the slice.
    fn pause(&self, _lane: &mut Self::Lane) {}
}

/// Executes `slice` of `workload` and returns the lanes, by CPU. Everything in
/// earlier slices must have been done.
pub fn drive<W: Work>(workload: &Workload, slice: &Slice, work: &W) -> Vec<W::Lane> {
    if workload.cpus() == 1 {
        let mut lane = work.lane(0);
        work.resume(&mut lane);
        work.stretch(&mut lane, 0, slice.ops[0].clone());
        work.pause(&mut lane);
        return vec![lane];
    }
    let progress = Progress::new(slice);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workload.cpus())
            .map(|cpu| {
                let progress = &progress;
                let wait = |waits: &[Wait]| progress.wait(waits);
                scope.spawn(move || lane((workload, slice), work, progress, cpu, wait))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(lane) => lane,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

/// Executes what `cpu` has to do of a slice, and calls `wait` where others are not far enough.
pub(crate) fn lane<W: Work>(
    (workload, slice): (&Workload, &Slice),
    work: &W,
    progress: &Progress,
    cpu: usize,
    wait: impl Fn(&[Wait]),
) -> W::Lane {
    let _abandon = Abandon(progress);
    let stream = &workload.streams()[cpu];
    let mut lane = work.lane(cpu);
    work.resume(&mut lane);
    for index in stream.segments_in(&slice.ops[cpu]) {
        let waits = stream.waits(index);
        if !progress.holds(waits) {
            work.pause(&mut lane);
            wait(waits);
            work.resume(&mut lane);
        }
        let segment = &stream.segments()[index];
        let ops = segment.start as usize..segment.end as usize;
        work.stretch(&mut lane, index, ops);
        progress.announce(cpu, segment.end);
    }
    work.pause(&mut lane);
    lane
}

/// How many operations each CPU has completed.
pub(crate) struct Progress {
    done: Vec<Counter>,
    /// A thread panicked: nobody must wait for it.
    abandoned: AtomicBool,
}

/// Padded, so that announcing progress on one CPU does not slow another.
#[repr(align(128))]
struct Counter(AtomicU32);

impl Progress {
    pub(crate) fn new(slice: &Slice) -> Self {
        Self {
            done: slice
                .ops
                .iter()
                .map(|ops| Counter(AtomicU32::new(ops.start as u32)))
                .collect(),
            abandoned: AtomicBool::new(false),
        }
    }

    pub(crate) fn announce(&self, cpu: usize, done: u32) {
        self.done[cpu].0.store(done, Ordering::Release);
    }

    pub(crate) fn holds(&self, waits: &[Wait]) -> bool {
        waits
            .iter()
            .all(|wait| self.done[wait.stream as usize].0.load(Ordering::Acquire) >= wait.ops)
    }

    pub(crate) fn wait(&self, waits: &[Wait]) {
        let mut turns = 0u32;
        while !self.holds(waits) {
            if self.abandoned.load(Ordering::Relaxed) {
                panic!("the thread of another simulated CPU panicked");
            }
            turns += 1;
            match turns {
                // About a microsecond; then others may need the host's CPU.
                0..64 => std::hint::spin_loop(),
                _ => thread::yield_now(),
            }
        }
    }
}

/// Tells the others when its thread unwinds.
pub(crate) struct Abandon<'p>(pub(crate) &'p Progress);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abandoned.store(true, Ordering::Relaxed);
        }
    }
}
