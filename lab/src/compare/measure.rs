//! The measurement: calibration, the pass that counts atomic operations
//! (`atomics.rs`), warming up, the pass by class, and the passes that count.
//!
//! Order (`order.rs`) and memory are balanced: the arenas move on by one arm
//! with each pass. Only complete passes are kept.

use std::sync::Arc;

use vellum_engine::{Engine, EngineError};

use super::atomics::Counters;
use super::clock::{Clock, empty_interval_ns};
use super::crew::{CLASSES, ClassTime, Crew, Grain, Tally};
use super::error::CompareError;
use super::order::orders;
use super::workload::{Load, join};
use crate::progress::{Interrupt, Progress, Style};
use crate::replay::Slice;

/// Number of engines that live side by side: A, B and the control.
pub const ARMS: usize = 3;

/// Operations in the pieces from which slices are joined.
const PIECE_OPS: usize = 32;

/// Makes the engines of a comparison.
pub trait Builder {
    /// An engine of `design` whose simulated memory is arena `arena`
    /// (`0..ARMS`). The previous engine in that arena has been dropped.
    ///
    /// # Errors
    /// The design is refused, or the machine cannot be set up.
    fn build(&self, design: &str, arena: usize) -> Result<Box<dyn Engine>, EngineError>;

    /// An engine of `design` in memory of its own, whose counters go on, after
    /// those of an engine from [`Builder::build`], with counts of the atomic
    /// operations it needed. `None` if they are not to be counted.
    ///
    /// # Errors
    /// As [`Builder::build`].
    fn build_counting(&self, _design: &str) -> Result<Option<Box<dyn Engine>>, EngineError> {
        Ok(None)
    }
}

impl<F: Fn(&str, usize) -> Result<Box<dyn Engine>, EngineError>> Builder for F {
    fn build(&self, design: &str, arena: usize) -> Result<Box<dyn Engine>, EngineError> {
        self(design, arena)
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Design A, in option syntax.
    pub a: String,
    /// Design B.
    pub b: String,
    /// Passes over the workload.
    pub passes: usize,
    /// Length of a slice, in microseconds of CPU time on each CPU.
    pub slice_us: u64,
    /// Decides in which order the arms execute each slice.
    pub seed: u64,
    /// How to show progress.
    pub style: Style,
    /// Share of unexplained divergences above which the run is refused.
    pub divergence_limit: f64,
}

/// One complete pass.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// CPU time of each slice, in nanoseconds, by arm.
    pub cpu_ns: [Vec<u64>; ARMS],
    /// Wall-clock time of each slice, in nanoseconds, by arm.
    pub wall_ns: [Vec<u64>; ARMS],
    /// Event counts at the end of the pass, by arm.
    pub counters: [Counters; ARMS],
    /// Memory at the end of the pass, by arm: name, bytes now, bytes at the peak.
    pub memory: [Vec<(&'static str, u64, u64)>; ARMS],
    /// Divergences, by arm.
    pub tallies: [Tally; ARMS],
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The design of each arm as the engine states it, complete.
    pub designs: [String; ARMS],
    /// Operations in the workload.
    pub ops: usize,
    /// Simulated CPUs.
    pub cpus: usize,
    /// Slices in the workload.
    pub slices: usize,
    /// Complete passes, in order.
    pub passes: Vec<Pass>,
    /// Time by class, from a pass of its own, by arm.
    pub classes: [[ClassTime; CLASSES]; ARMS],
    /// Event counts of A and B with those of atomic operations, from a pass of
    /// their own; none if the builder has no engines for it.
    pub atomics: Option<[Counters; 2]>,
    /// What an empty interval measures, in nanoseconds.
    pub clock_ns: u64,
    /// Whether the user stopped the run before the last pass.
    pub interrupted: bool,
}

/// Measures designs A and B on `load`.
///
/// # Errors
/// An engine cannot be built, a replay diverges, or the user interrupts before
/// the first pass is complete. An interruption later ends the run early.
pub fn measure(
    load: &dyn Load,
    builder: &dyn Builder,
    clock: &dyn Clock,
    settings: &Settings,
    interrupt: &Interrupt,
) -> Result<Measurement, CompareError> {
    if load.is_empty() {
        return Err(CompareError::Empty);
    }
    let run = Run {
        load,
        builder,
        settings,
        interrupt,
        clock_ns: empty_interval_ns(clock),
    };
    Crew::with(load, clock, |crew| run.all(crew))
}

/// What every stage of a measurement knows.
pub(super) struct Run<'r> {
    load: &'r dyn Load,
    pub(super) builder: &'r dyn Builder,
    pub(super) settings: &'r Settings,
    pub(super) interrupt: &'r Interrupt,
    /// What an empty interval measures.
    clock_ns: u64,
}

impl Run<'_> {
    fn all(&self, crew: &mut Crew<'_>) -> Result<Measurement, CompareError> {
        // A design that is refused is refused before any time is spent.
        drop(self.build(super::B, 1)?);
        let slices = self.calibrate(crew)?;
        let atomics = self.count_atomics(crew, &slices)?;
        let steps = (slices.len() * (self.settings.passes + 2)) as u64;
        let mut progress = Progress::new(self.settings.style, "warming up", steps, "slices");
        self.warm_up(crew, &slices, &mut progress)?;
        progress.relabel("time by class");
        let (designs, classes) = self.by_class(crew, &slices, &mut progress)?;
        let mut passes = Vec::with_capacity(self.settings.passes);
        for number in 0..self.settings.passes {
            progress.relabel(format!("pass {} of {}", number + 1, self.settings.passes));
            match self.pass(crew, &slices, number, &mut progress)? {
                Some(pass) => passes.push(pass),
                None => break,
            }
        }
        progress.finish();
        if passes.is_empty() {
            return Err(CompareError::Interrupted);
        }
        Ok(Measurement {
            designs,
            ops: self.load.len(),
            cpus: self.load.cpus(),
            slices: slices.len(),
            interrupted: passes.len() < self.settings.passes,
            passes,
            classes,
            atomics,
            clock_ns: self.clock_ns,
        })
    }

    /// Runs design A once in small pieces and joins them into slices of the
    /// wanted length.
    fn calibrate(&self, crew: &mut Crew<'_>) -> Result<Vec<Slice>, CompareError> {
        let wanted_ns = self.settings.slice_us.max(1) * 1000 * self.load.cpus() as u64;
        let engine = self.build(super::A, 0)?;
        let mut progress = Progress::new(
            self.settings.style,
            "cutting into slices",
            self.load.len() as u64,
            "operations",
        );
        let mut tally = Tally::default();
        let mut slices: Vec<Slice> = Vec::new();
        let mut last_ns = wanted_ns;
        for piece in self.load.slices(PIECE_OPS) {
            if self.interrupt.requested() {
                return Err(CompareError::Interrupted);
            }
            let reading = crew.execute(&engine, &piece, Grain::Whole);
            tally.add(&reading.tally);
            progress.advance(piece.len() as u64);
            // Each CPU had an interval of its own, and more where it waited.
            let clock_ns = self.clock_ns * self.load.cpus() as u64;
            let piece_ns = reading.cpu_ns.saturating_sub(clock_ns);
            match slices.last_mut() {
                Some(slice) if last_ns < wanted_ns => {
                    join(slice, &piece);
                    last_ns += piece_ns;
                }
                _ => {
                    slices.push(piece);
                    last_ns = piece_ns;
                }
            }
        }
        progress.finish();
        self.accept(&self.settings.a, &tally)?;
        Ok(slices)
    }

    /// Runs the other two arms once as calibration did design A, so that every
    /// arena has its memory from the host when timing begins, and a design that
    /// diverges is refused early.
    fn warm_up(
        &self,
        crew: &mut Crew<'_>,
        slices: &[Slice],
        progress: &mut Progress,
    ) -> Result<(), CompareError> {
        for arm in [super::B, super::CONTROL] {
            let engine = self.build(arm, arm)?;
            let mut tally = Tally::default();
            for (number, slice) in (0u64..).zip(slices) {
                if self.interrupt.requested() {
                    return Err(CompareError::Interrupted);
                }
                let reading = crew.execute(&engine, slice, Grain::Whole);
                tally.add(&reading.tally);
                // Two arms here, three in a pass: count this as one pass of two.
                progress.advance((number + arm as u64) % 2);
            }
            self.accept(self.design(arm), &tally)?;
        }
        Ok(())
    }

    /// One pass in which runs of operations of the same class are timed by
    /// themselves.
    fn by_class(
        &self,
        crew: &mut Crew<'_>,
        slices: &[Slice],
        progress: &mut Progress,
    ) -> Result<([String; ARMS], [[ClassTime; CLASSES]; ARMS]), CompareError> {
        let engines = self.build_all(1)?;
        let mut classes = [[ClassTime::default(); CLASSES]; ARMS];
        let mut tallies: [Tally; ARMS] = Default::default();
        let orders = orders(slices.len(), 0, self.settings.seed);
        for (slice, order) in slices.iter().zip(orders) {
            if self.interrupt.requested() {
                return Err(CompareError::Interrupted);
            }
            for arm in order {
                let reading = crew.execute(&engines[arm], slice, Grain::ByClass);
                for (sum, part) in classes[arm].iter_mut().zip(&reading.classes) {
                    sum.cpu_ns += part.cpu_ns;
                    sum.intervals += part.intervals;
                    sum.ops += part.ops;
                }
                tallies[arm].add(&reading.tally);
            }
            progress.advance(1);
        }
        for (arm, tally) in tallies.iter().enumerate() {
            self.accept(self.design(arm), tally)?;
        }
        Ok((engines.map(|engine| engine.design()), classes))
    }

    /// One pass, or `None` if the user stopped it.
    fn pass(
        &self,
        crew: &mut Crew<'_>,
        slices: &[Slice],
        number: usize,
        progress: &mut Progress,
    ) -> Result<Option<Pass>, CompareError> {
        let engines = self.build_all(number)?;
        let mut pass = Pass::default();
        let orders = orders(slices.len(), number, self.settings.seed);
        for (slice, order) in slices.iter().zip(orders) {
            if self.interrupt.requested() {
                return Ok(None);
            }
            for arm in order {
                let reading = crew.execute(&engines[arm], slice, Grain::Whole);
                pass.cpu_ns[arm].push(reading.cpu_ns);
                pass.wall_ns[arm].push(reading.wall_ns);
                pass.tallies[arm].add(&reading.tally);
            }
            progress.advance(1);
        }
        for (arm, engine) in engines.iter().enumerate() {
            self.accept(self.design(arm), &pass.tallies[arm])?;
            pass.counters[arm] = engine.counters();
            pass.memory[arm] = engine.memory();
        }
        Ok(Some(pass))
    }

    /// Engines for all arms, arm `i` in arena `(i + pass) % ARMS`.
    fn build_all(&self, pass: usize) -> Result<[Arc<dyn Engine>; ARMS], CompareError> {
        Ok([
            self.build(super::A, (super::A + pass) % ARMS)?,
            self.build(super::B, (super::B + pass) % ARMS)?,
            self.build(super::CONTROL, (super::CONTROL + pass) % ARMS)?,
        ])
    }

    fn build(&self, arm: usize, arena: usize) -> Result<Arc<dyn Engine>, CompareError> {
        let design = self.design(arm);
        match self.builder.build(design, arena) {
            Ok(engine) => Ok(Arc::from(engine)),
            Err(source) => Err(CompareError::Engine {
                design: design.to_owned(),
                source,
            }),
        }
    }

    pub(super) fn design(&self, arm: usize) -> &str {
        match arm {
            super::B => &self.settings.b,
            _ => &self.settings.a,
        }
    }

    /// Refuses a run that did not do what was recorded.
    pub(super) fn accept(&self, design: &str, tally: &Tally) -> Result<(), CompareError> {
        if tally.out_of_memory > 0 {
            return Err(CompareError::OutOfMemory {
                design: design.to_owned(),
                count: tally.out_of_memory,
            });
        }
        let ops = self.load.len();
        let limit = self.settings.divergence_limit * ops as f64;
        match tally.first {
            Some((cpu, index, what)) if tally.unexplained as f64 > limit => {
                Err(CompareError::Diverged {
                    design: design.to_owned(),
                    count: tally.unexplained,
                    ops,
                    cpu,
                    index,
                    what: describe(what),
                })
            }
            _ => Ok(()),
        }
    }
}

fn describe(what: vellum_engine::Divergence) -> String {
    match what {
        vellum_engine::Divergence::AlreadyMapped => "page already mapped".to_owned(),
        vellum_engine::Divergence::Failed(error) => error.to_string(),
    }
}
