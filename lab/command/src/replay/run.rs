//! The replay proper: hands slices to an engine, measures the CPU time it
//! takes, counts and explains divergences.
//!
//! Between two readings of the clock there is nothing but [`Engine::run`] and,
//! with several CPUs, the loop over segments. Time in which a CPU waits for
//! another is not counted.

use std::ops::Range;

use vellum_engine::{Divergence, Engine, OpError, Outcome};

use super::explain::Expectation;
use super::lanes::{Work, drive};
use super::ram::{Shortage, Starved};
use super::workload::{Slice, Workload};
use crate::clock::{Clock, HostClock};

/// Operations in a slice of a replay that is not cut otherwise: some tens of
/// milliseconds, between which progress is shown.
pub const SLICE_OPS: usize = 1 << 16;

/// The same where memory in use is looked at more closely, since the end of a slice costs next to
/// nothing with one CPU.
pub const CLOSE_OPS: usize = 1 << 12;

/// Slices that a short workload has at least: memory in use is looked at after each.
const LOOKS: usize = 256;

/// Divergences that are reported one by one.
const SAMPLES: usize = 5;

/// Operations whose divergences a batch has room for without allocating.
const OUTCOME_ROOM: usize = 1 << 12;

/// One divergence that nothing explains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// CPU it ran on.
    pub cpu: usize,
    /// Position in the CPU's stream.
    pub position: usize,
    /// What happened.
    pub divergence: Divergence,
}

/// Divergences by kind and explanation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Divergences {
    /// Recorded faults that found their page mapped, by [`Expectation`].
    pub already_mapped: [u64; Expectation::ALL.len()],
    /// Those that nothing in the trace explains, but the engine: a superpage had mapped
    /// the page, because of a fault of another page of it.
    pub mapped_large: u64,
    /// The same of folios: another page of the folio was stored to.
    pub mapped_folio: u64,
    /// Failures that the recording had too: the access was refused there.
    pub refused: u64,
    /// Failures that it did not have, by error in the order of [`ERRORS`].
    pub failed: [u64; ERRORS.len()],
    /// The first that nothing explains.
    pub samples: Vec<Sample>,
    /// Where there was no memory first, by the order of the trace.
    pub starved: Option<Starved>,
}

/// Every error of an operation.
pub const ERRORS: [OpError; 9] = [
    OpError::NoRegion,
    OpError::Protection,
    OpError::PastEnd,
    OpError::OutOfMemory,
    OpError::GroupLimit,
    OpError::BadSpace,
    OpError::BadFile,
    OpError::Invalid,
    OpError::Io,
];

impl Divergences {
    /// All of them.
    pub fn total(&self) -> u64 {
        let mapped = self.already_mapped.iter().sum::<u64>();
        mapped
            + self.mapped_large
            + self.mapped_folio
            + self.refused
            + self.failed.iter().sum::<u64>()
    }

    /// Those that nothing explains.
    pub fn unexplained(&self) -> u64 {
        let mapped = Expectation::ALL
            .iter()
            .zip(self.already_mapped)
            .filter(|(why, _)| !why.explains(Divergence::AlreadyMapped))
            .map(|(_, count)| count);
        mapped.sum::<u64>() + self.failed.iter().sum::<u64>()
    }

    fn count(&mut self, sample: Sample, why: Expectation) {
        let explained = why.explains(sample.divergence);
        match sample.divergence {
            Divergence::MappedLarge if !why.explains(Divergence::AlreadyMapped) => {
                self.mapped_large += 1;
            }
            Divergence::MappedFolio if !why.explains(Divergence::AlreadyMapped) => {
                self.mapped_folio += 1;
            }
            Divergence::AlreadyMapped | Divergence::MappedLarge | Divergence::MappedFolio => {
                self.already_mapped[why as usize] += 1;
            }
            Divergence::Failed(_) if explained => self.refused += 1,
            Divergence::Failed(error) => {
                let index = ERRORS.iter().position(|known| *known == error);
                self.failed[index.unwrap_or(0)] += 1;
            }
        }
        if !explained && self.samples.len() < SAMPLES {
            self.samples.push(sample);
        }
    }

    fn add(&mut self, other: Divergences) {
        for (mine, theirs) in self.already_mapped.iter_mut().zip(other.already_mapped) {
            *mine += theirs;
        }
        self.mapped_large += other.mapped_large;
        self.mapped_folio += other.mapped_folio;
        self.refused += other.refused;
        for (mine, theirs) in self.failed.iter_mut().zip(other.failed) {
            *mine += theirs;
        }
        self.starved = [self.starved, other.starved].into_iter().flatten().min();
        let room = SAMPLES - self.samples.len().min(SAMPLES);
        self.samples.extend(other.samples.into_iter().take(room));
    }
}

/// What a replay took and how it went.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Operations executed.
    pub ops: u64,
    /// Those among them that made what was there when the recording began: no time is of them.
    pub untimed_ops: u64,
    /// CPU time in the engine, all CPUs together, in nanoseconds.
    pub core_ns: u64,
    /// The same by CPU.
    pub core_ns_by_cpu: Vec<u64>,
    /// Elapsed time of the slices in nanoseconds.
    pub wall_ns: u64,
    /// What went otherwise than recorded.
    pub divergences: Divergences,
    /// Positions of recorded faults that found their page mapped, ascending, by CPU: the design
    /// does not meet them ([`Workload::without`]).
    pub needless: Vec<Vec<u32>>,
    /// Private frames by number of mappings, summed over samples between slices.
    pub mapping_histogram: Vec<u64>,
}

/// Samples of the mapping histogram that a replay takes.
const HISTOGRAM_SAMPLES: usize = 16;

/// Replays the whole of `workload` on `engine`, calling `after_slice` with the
/// number of operations done each time; it stops early if that says `false`, or
/// if there is no memory left.
pub fn run(
    workload: &Workload,
    engine: &dyn Engine,
    mut after_slice: impl FnMut(u64) -> bool,
) -> Replayed {
    let mut replayed = Replayed {
        core_ns_by_cpu: vec![0; workload.cpus()],
        ..Replayed::default()
    };
    let most = match workload.cpus() {
        1 => CLOSE_OPS,
        _ => SLICE_OPS,
    };
    let slices = workload.slices(slice_ops(workload, most));
    let between_samples = slices.len() / HISTOGRAM_SAMPLES + 1;
    for (number, slice) in slices.iter().enumerate() {
        run_slice(workload, engine, slice, &mut replayed);
        if number % between_samples == between_samples / 2 {
            add_sample(&mut replayed.mapping_histogram, engine.mapping_histogram());
        }
        if !after_slice(slice.len() as u64) || replayed.divergences.starved.is_some() {
            break;
        }
    }
    replayed
}

/// Operations after which a replay of `workload` looks at the memory in use: fewer than `most` if
/// it is short.
pub fn slice_ops(workload: &Workload, most: usize) -> usize {
    (workload.ops() as usize / LOOKS).clamp(1, most)
}

fn add_sample(sum: &mut Vec<u64>, sample: Vec<u64>) {
    sum.resize(sum.len().max(sample.len()), 0);
    for (sum, count) in sum.iter_mut().zip(sample) {
        *sum += count;
    }
}

/// Replays one slice, after those before it, and adds to `replayed`. Of one that makes what was
/// there when the recording began no time is counted.
pub fn run_slice(workload: &Workload, engine: &dyn Engine, slice: &Slice, replayed: &mut Replayed) {
    let clock = HostClock::new();
    let timed = Timed {
        workload,
        engine,
        clock: &clock,
    };
    let lanes = drive(workload, slice, &timed);
    let wall_ns = clock.wall_ns();
    let ops = slice.len() as u64;
    replayed.ops += ops;
    let is_timed = !workload.is_beginning(slice);
    match is_timed {
        true => replayed.wall_ns += wall_ns,
        false => replayed.untimed_ops += ops,
    }
    replayed.core_ns_by_cpu.resize(lanes.len(), 0);
    replayed.needless.resize(lanes.len(), Vec::new());
    for (cpu, lane) in lanes.into_iter().enumerate() {
        if is_timed {
            replayed.core_ns_by_cpu[cpu] += lane.core_ns;
            replayed.core_ns += lane.core_ns;
        }
        replayed.divergences.add(lane.divergences);
        replayed.needless[cpu].extend(lane.needless);
    }
}

struct Timed<'w> {
    workload: &'w Workload,
    engine: &'w dyn Engine,
    clock: &'w HostClock,
}

struct TimedLane {
    cpu: usize,
    outcome: Outcome,
    /// Position of the first operation of the batch that `outcome` is about.
    batch: usize,
    /// CPU time of the thread when the clock was started.
    begun_ns: u64,
    core_ns: u64,
    divergences: Divergences,
    needless: Vec<u32>,
}

impl Timed<'_> {
    fn explain(&self, lane: &mut TimedLane) {
        let expectations = self.workload.streams()[lane.cpu].expectations();
        for (index, divergence) in lane.outcome.divergences.drain(..) {
            let position = lane.batch + index as usize;
            let sample = Sample {
                cpu: lane.cpu,
                position,
                divergence,
            };
            lane.divergences.count(sample, expectations[position]);
            if divergence.is_needless() {
                lane.needless.push(position as u32);
            }
            if let Some(shortage) = Shortage::of(divergence) {
                let here = Starved::at(self.workload, lane.cpu, position, shortage);
                let before = lane.divergences.starved.unwrap_or(here);
                lane.divergences.starved = Some(here.min(before));
            }
        }
    }
}

impl Work for Timed<'_> {
    type Lane = TimedLane;

    fn lane(&self, cpu: usize) -> TimedLane {
        TimedLane {
            cpu,
            outcome: Outcome {
                divergences: Vec::with_capacity(OUTCOME_ROOM),
                ..Outcome::default()
            },
            batch: 0,
            begun_ns: 0,
            core_ns: 0,
            divergences: Divergences::default(),
            needless: Vec::new(),
        }
    }

    fn stretch(&self, lane: &mut TimedLane, _segment: usize, ops: Range<usize>) {
        // Short segments share one interval of the clock, and then this falls
        // into it; with one CPU there is one stretch in an interval.
        self.explain(lane);
        lane.batch = ops.start;
        let ops = &self.workload.streams()[lane.cpu].ops()[ops];
        self.engine.run(lane.cpu, ops, &mut lane.outcome);
    }

    fn resume(&self, lane: &mut TimedLane) {
        lane.begun_ns = self.clock.cpu_ns();
    }

    fn pause(&self, lane: &mut TimedLane) {
        lane.core_ns += self.clock.cpu_ns() - lane.begun_ns;
        self.explain(lane);
    }
}
