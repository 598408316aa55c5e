//! Executing slices on an engine and timing them.
//!
//! With one simulated CPU everything happens on the calling thread. With more,
//! each CPU has a thread that lives as long as the [`Crew`]; the caller hands
//! every thread its part of a slice and waits for all of them, which is the
//! barrier between slices. Time spent waiting, for work or for another CPU's
//! progress inside a slice, is outside the measured intervals.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};

use vellum_engine::{Divergence, Engine, Outcome};

use super::needless::Needed;
use super::workload::Load;
use crate::clock::Clock;
use crate::replay::lanes::{Abandon, Progress};
use crate::replay::ram::Shortage;
use crate::replay::{Class, Expectation, Slice};

/// Number of classes of operation.
pub const CLASSES: usize = Class::ALL.len();

/// Divergences that a batch has room for without allocating.
const OUTCOME_ROOM: usize = 1 << 12;

/// How finely a slice is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grain {
    /// One interval for everything a CPU does without waiting.
    Whole,
    /// One interval for each run of operations of one class.
    ByClass,
}

/// What was measured of one class of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassTime {
    /// CPU time, the cost of the clock included, in nanoseconds.
    pub cpu_ns: u64,
    /// Intervals timed.
    pub intervals: u64,
    /// Operations of the class, those that are left out included.
    pub ops: u64,
}

/// Time between two notes that the workload itself took ([`vellum_engine::Op::Lap`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LapTime {
    /// The phase that the later note names.
    pub phase: u16,
    /// Wall-clock time, the cost of one note included, in nanoseconds.
    pub ns: u64,
}

/// Operations that did not go as recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The recording explains them.
    pub explained: u64,
    /// Nothing explains them.
    pub unexplained: u64,
    /// Of either, those that failed for lack of memory.
    pub out_of_memory: u64,
    /// The first of these: CPU, index of the operation, what had no memory.
    pub starved: Option<(usize, usize, Shortage)>,
    /// The first that nothing explains: CPU, index of the operation, what happened.
    pub first: Option<(usize, usize, Divergence)>,
}

impl Tally {
    pub(super) fn count(&mut self, cpu: usize, index: usize, what: Divergence, why: Expectation) {
        if let Some(shortage) = Shortage::of(what) {
            self.out_of_memory += 1;
            self.starved.get_or_insert((cpu, index, shortage));
        }
        if why.explains(what) {
            self.explained += 1;
        } else {
            self.unexplained += 1;
            self.first.get_or_insert((cpu, index, what));
        }
    }

    /// Adds what another part of the same run found.
    pub fn add(&mut self, other: &Tally) {
        self.explained += other.explained;
        self.unexplained += other.unexplained;
        self.out_of_memory += other.out_of_memory;
        self.starved = self.starved.or(other.starved);
        self.first = self.first.or(other.first);
    }
}

/// What executing a slice took.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// CPU time in the engine, all CPUs together, in nanoseconds.
    pub cpu_ns: u64,
    /// From handing out the slice to the end of its last part, in nanoseconds.
    pub wall_ns: u64,
    /// By class; filled with [`Grain::ByClass`].
    pub classes: [ClassTime; CLASSES],
    /// Laps, in order, CPU after CPU.
    pub laps: Vec<LapTime>,
    /// What went otherwise than recorded.
    pub tally: Tally,
}

impl Reading {
    fn add(&mut self, other: &Reading) {
        self.cpu_ns += other.cpu_ns;
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.cpu_ns += theirs.cpu_ns;
            mine.intervals += theirs.intervals;
            mine.ops += theirs.ops;
        }
        self.laps.extend_from_slice(&other.laps);
        self.tally.add(&other.tally);
    }
}

/// An engine, and what it executes of the workload.
#[derive(Clone)]
pub struct Arm {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// What its design needs.
    pub needed: Arc<Needed>,
}

impl Arm {
    /// An engine that executes all of the workload.
    pub fn of_everything(engine: Arc<dyn Engine>) -> Arm {
        let needed = Arc::default();
        Arm { engine, needed }
    }
}

/// One simulated CPU's part of the work.
struct Lane<'w> {
    load: &'w dyn Load,
    clock: &'w dyn Clock,
    cpu: usize,
    outcome: Outcome,
    /// First operation of the batch that `outcome` is about.
    batch: usize,
    /// CPU time of the thread when the interval began.
    begun_ns: u64,
    reading: Reading,
}

impl<'w> Lane<'w> {
    fn new(load: &'w dyn Load, clock: &'w dyn Clock, cpu: usize) -> Self {
        Self {
            load,
            clock,
            cpu,
            outcome: Outcome {
                divergences: Vec::with_capacity(OUTCOME_ROOM),
                laps: Vec::with_capacity(OUTCOME_ROOM),
            },
            batch: 0,
            begun_ns: 0,
            reading: Reading::default(),
        }
    }

    /// Executes this CPU's part of a slice. `progress` is what it waits for
    /// where there are several CPUs.
    fn execute(&mut self, arm: &Arm, job: &Part, progress: Option<&Progress>) -> Reading {
        self.resume();
        match progress {
            None => self.stretch(arm, job.ops.clone(), job.grain),
            Some(progress) => self.segments(arm, job, progress),
        }
        self.pause(arm, job.grain);
        std::mem::take(&mut self.reading)
    }

    fn segments(&mut self, arm: &Arm, job: &Part, progress: &Progress) {
        for index in self.load.segments_in(self.cpu, &job.ops) {
            let (segment, waits) = self.load.segment(self.cpu, index);
            if !progress.holds(waits) {
                self.pause(arm, job.grain);
                progress.wait(waits);
                self.resume();
            }
            let end = segment.end as u32;
            self.stretch(arm, segment, job.grain);
            progress.announce(self.cpu, end);
        }
    }

    /// Executes operations between which nothing is waited for.
    fn stretch(&mut self, arm: &Arm, ops: Range<usize>, grain: Grain) {
        if grain == Grain::Whole {
            self.run(arm, ops);
            return;
        }
        let classes = &self.load.classes(self.cpu)[ops.clone()];
        let mut begin = ops.start;
        for run in classes.chunk_by(|a, b| a == b) {
            let ops = begin..begin + run.len();
            begin = ops.end;
            self.reading.classes[run[0] as usize].ops += run.len() as u64;
            if arm.needed.ops(self.load, self.cpu, ops.clone()).is_empty() {
                continue;
            }
            self.settle(arm);
            self.resume();
            self.run(arm, ops);
            let cpu_ns = self.clock.cpu_ns().saturating_sub(self.begun_ns);
            self.reading.cpu_ns += cpu_ns;
            let class = &mut self.reading.classes[run[0] as usize];
            class.cpu_ns += cpu_ns;
            class.intervals += 1;
        }
    }

    fn run(&mut self, arm: &Arm, ops: Range<usize>) {
        self.settle(arm);
        self.batch = ops.start;
        let ops = arm.needed.ops(self.load, self.cpu, ops);
        arm.engine.run(self.cpu, ops, &mut self.outcome);
    }

    fn resume(&mut self) {
        self.begun_ns = self.clock.cpu_ns();
    }

    fn pause(&mut self, arm: &Arm, grain: Grain) {
        if grain == Grain::Whole {
            self.reading.cpu_ns += self.clock.cpu_ns().saturating_sub(self.begun_ns);
        }
        self.settle(arm);
    }

    /// Takes the laps of the last batch, which `arm` executed, and counts its divergences.
    fn settle(&mut self, arm: &Arm) {
        let laps = self.outcome.laps.windows(2);
        self.reading.laps.extend(laps.map(|pair| LapTime {
            phase: pair[1].0,
            ns: pair[1].1.duration_since(pair[0].1).as_nanos() as u64,
        }));
        self.outcome.laps.clear();
        for (index, what) in self.outcome.divergences.drain(..) {
            let index = arm.needed.place(self.cpu, self.batch, index as usize);
            let why = self.load.expectation(self.cpu, index);
            self.reading.tally.count(self.cpu, index, what, why);
        }
    }
}

/// One CPU's part of a slice.
struct Part {
    ops: Range<usize>,
    grain: Grain,
}

struct Job {
    arm: Arm,
    part: Part,
    progress: Arc<Progress>,
}

struct Worker {
    jobs: Sender<Job>,
    readings: Receiver<Reading>,
}

/// The threads that execute slices.
pub struct Crew<'w> {
    clock: &'w dyn Clock,
    /// Does the work if there is one CPU.
    own: Lane<'w>,
    /// One for each CPU if there are several.
    workers: Vec<Worker>,
}

impl Crew<'_> {
    /// Calls `work` with a crew for `load`, and dismisses the crew afterwards.
    pub fn with<R>(load: &dyn Load, clock: &dyn Clock, work: impl FnOnce(&mut Crew<'_>) -> R) -> R {
        thread::scope(|scope| {
            let workers = match load.cpus() {
                1 => Vec::new(),
                cpus => (0..cpus)
                    .map(|cpu| Worker::hire(scope, Lane::new(load, clock, cpu)))
                    .collect(),
            };
            let mut crew = Crew {
                clock,
                own: Lane::new(load, clock, 0),
                workers,
            };
            work(&mut crew)
        })
    }

    /// What times are taken by.
    pub(super) fn clock(&self) -> &dyn Clock {
        self.clock
    }

    /// Executes what `arm` needs of `slice` and returns when all CPUs have.
    ///
    /// # Panics
    /// The engine has panicked.
    pub fn execute(&mut self, arm: &Arm, slice: &Slice, grain: Grain) -> Reading {
        let begin = self.clock.wall_ns();
        let mut reading = match self.workers.is_empty() {
            false => self.hand_out(arm, slice, grain),
            true => {
                let ops = slice.ops[0].clone();
                self.own.execute(arm, &Part { ops, grain }, None)
            }
        };
        reading.wall_ns = self.clock.wall_ns().saturating_sub(begin);
        reading
    }

    fn hand_out(&mut self, arm: &Arm, slice: &Slice, grain: Grain) -> Reading {
        let progress = Arc::new(Progress::new(slice));
        for (worker, ops) in self.workers.iter().zip(&slice.ops) {
            let job = Job {
                arm: arm.clone(),
                part: Part {
                    ops: ops.clone(),
                    grain,
                },
                progress: Arc::clone(&progress),
            };
            // A worker that has panicked is noticed below.
            let _ = worker.jobs.send(job);
        }
        let mut reading = Reading::default();
        for worker in &self.workers {
            match worker.readings.recv() {
                Ok(part) => reading.add(&part),
                Err(_) => panic!("the thread of a simulated CPU panicked"),
            }
        }
        reading
    }
}

impl Worker {
    fn hire<'scope>(scope: &'scope Scope<'scope, '_>, mut lane: Lane<'scope>) -> Self {
        let (jobs, incoming) = channel::<Job>();
        let (outgoing, readings) = channel();
        scope.spawn(move || {
            while let Ok(Job {
                arm,
                part,
                progress,
            }) = incoming.recv()
            {
                let reading = {
                    let _abandon = Abandon(&progress);
                    lane.execute(&arm, &part, Some(&progress))
                };
                // Before the reading is sent: the caller may end the engine then.
                drop(arm);
                if outgoing.send(reading).is_err() {
                    break;
                }
            }
        });
        Self { jobs, readings }
    }
}
