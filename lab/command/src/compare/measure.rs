//! The measurement: marking needless faults (`needless.rs`), calibration, the pass that counts
//! atomic operations (`atomics.rs`), warming up, the pass by class, and the passes that count.
//!
//! Order (`order.rs`) and memory are balanced: the arenas move on by one arm
//! with each pass. Only complete passes are kept.

use std::sync::Arc;

use vellum_engine::{Engine, EngineError};

use super::atomics::Counters;
use super::crew::{Arm, CLASSES, ClassTime, Crew, Grain, LapTime, Tally};
use super::entries::{EntryRounds, spaced};
use super::error::CompareError;
use super::needless::{Entered, Needed, mark};
use super::order::{build_order, orders};
use super::workload::{Load, join};
use crate::clock::{Clock, empty_interval_ns};
use crate::replay::Slice;
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// Operations in the pieces from which slices are joined.
const PIECE_OPS: usize = 32;

/// Places of the workload at which memory is looked at, about.
const MEMORY_LOOKS: usize = 200;

/// Makes the engines of a comparison.
pub trait Builder {
    /// An engine of `design` whose simulated memory is arena `arena`, of which
    /// there are as many as arms. The previous engine in that arena has been
    /// dropped.
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

    /// The engine that executes the slices of `arm` in a timed pass: `engine`, or
    /// one around it that watches what it does.
    fn observe(&self, _arm: usize, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        engine
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
    /// The designs, in option syntax. The first is the one that the others are
    /// held against, and the control.
    pub designs: Vec<String>,
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
    /// Whether there is a pass in which the classes of operation are timed
    /// apart.
    pub by_class: bool,
    /// Whether recorded faults that a design does not meet are left out under it.
    pub only_needed: bool,
    /// Whether the price of entering the kernel is measured in each pass.
    pub entries: bool,
}

impl Settings {
    /// Engines that live side by side: one for each design, and the control.
    pub fn arms(&self) -> usize {
        self.designs.len() + 1
    }

    /// The design of `arm`.
    pub fn design(&self, arm: usize) -> &str {
        // The control, beyond the last design, is the first once more.
        self.designs.get(arm).unwrap_or(&self.designs[super::A])
    }
}

/// One complete pass.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// CPU time of each slice, in nanoseconds, by arm.
    pub cpu_ns: Vec<Vec<u64>>,
    /// Wall-clock time of each slice, in nanoseconds, by arm.
    pub wall_ns: Vec<Vec<u64>>,
    /// The laps that the workload timed itself, in order, by arm.
    pub laps: Vec<Vec<LapTime>>,
    /// Event counts at the end of the pass, by arm.
    pub counters: Vec<Counters>,
    /// Memory at the end of the pass, by arm: name, bytes now, bytes at the peak.
    pub memory: Vec<Vec<(&'static str, u64, u64)>>,
    /// Divergences, by arm.
    pub tallies: Vec<Tally>,
    /// What entering the kernel cost in the course of the pass; nothing if that is not asked for.
    pub entries: EntryRounds,
}

/// A place in a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Operations of all CPUs before it.
    pub ops: u64,
    /// The number of the trace's event, from 0, that the last of them came from; none
    /// where the workload is not one trace.
    pub event: Option<u64>,
}

/// Memory at a place of the workload.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryAt {
    /// Where.
    pub place: Place,
    /// Of A and of B: what it holds, bytes now, bytes at the peak.
    pub held: [Vec<(&'static str, u64, u64)>; 2],
}

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// The design of each arm as the engine states it, complete. The last arm
    /// is the control.
    pub designs: Vec<String>,
    /// Operations in the workload.
    pub ops: usize,
    /// Simulated CPUs.
    pub cpus: usize,
    /// Slices in the workload.
    pub slices: usize,
    /// The phase of the workload that each slice lies in ([`Load::phase`]).
    pub phases: Vec<u16>,
    /// Complete passes, in order.
    pub passes: Vec<Pass>,
    /// Where in the workload each slice ends.
    pub ends: Vec<Place>,
    /// Memory of A and B in the course of the pass by class; empty without such a pass.
    pub memory_along: Vec<MemoryAt>,
    /// Time by class, from a pass of its own, by arm; zero without such a pass.
    pub classes: Vec<[ClassTime; CLASSES]>,
    /// What each arm leaves out of the workload.
    pub left_out: Vec<Tally>,
    /// How often programs enter the kernel in each slice, by arm.
    pub entered: Vec<Vec<Entered>>,
    /// Event counts of each design with those of atomic operations, from a pass
    /// of their own; none if the builder has no engines for it.
    pub atomics: Option<Vec<Counters>>,
    /// What an empty interval measures, in nanoseconds.
    pub clock_ns: u64,
    /// Whether the user stopped the run before the last pass.
    pub interrupted: bool,
}

/// Measures the designs of `settings` on `load`.
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
    let mut run = Run {
        load,
        builder,
        settings,
        interrupt,
        needed: Vec::new(),
        clock_ns: empty_interval_ns(clock),
    };
    run.needed = run.mark_all()?;
    Crew::with(load, clock, |crew| run.all(crew))
}

/// What every stage of a measurement knows.
pub(super) struct Run<'r> {
    load: &'r dyn Load,
    pub(super) builder: &'r dyn Builder,
    pub(super) settings: &'r Settings,
    pub(super) interrupt: &'r Interrupt,
    /// What each design needs of the load.
    needed: Vec<Arc<Needed>>,
    /// What an empty interval measures.
    clock_ns: u64,
}

impl Run<'_> {
    fn all(&self, crew: &mut Crew<'_>) -> Result<Measurement, CompareError> {
        let all = self.calibrate(crew)?;
        let atomics = self.count_atomics(crew, &all)?;
        let (before, slices) = self.without_beginning(&all);
        let stages = self.settings.passes + 1 + usize::from(self.settings.by_class);
        let steps = (all.len() * stages) as u64;
        let mut progress = Progress::new(self.settings.style, "warming up", steps, "slices");
        self.warm_up(crew, &all, &mut progress)?;
        let ends: Vec<Place> = slices.iter().map(|slice| self.end_of(slice)).collect();
        let (classes, memory_along) = match self.settings.by_class {
            true => self.by_class(crew, (before, slices), &ends, &mut progress)?,
            false => (vec![Default::default(); self.settings.arms()], Vec::new()),
        };
        let mut designs = Vec::new();
        let mut passes = Vec::with_capacity(self.settings.passes);
        for number in 0..self.settings.passes {
            progress.relabel(format!("pass {} of {}", number + 1, self.settings.passes));
            let timed = (before, slices);
            match self.pass(crew, timed, number, &mut designs, &mut progress)? {
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
            phases: slices.iter().map(|slice| self.load.phase(slice)).collect(),
            interrupted: passes.len() < self.settings.passes,
            passes,
            ends,
            memory_along,
            classes,
            atomics,
            left_out: self.of_arms(|needed| needed.left_out().clone()),
            entered: self.of_arms(|needed| {
                let slices = slices.iter();
                slices
                    .map(|slice| needed.entered(self.load, slice))
                    .collect()
            }),
            clock_ns: self.clock_ns,
        })
    }

    /// The slices that make what was there when the recording began, which no pass times, and the
    /// others. A load that does nothing else is timed.
    fn without_beginning<'s>(&self, slices: &'s [Slice]) -> (&'s [Slice], &'s [Slice]) {
        let before = slices
            .iter()
            .take_while(|slice| self.load.is_beginning(slice))
            .count();
        match before < slices.len() {
            true => slices.split_at(before),
            false => (&[], slices),
        }
    }

    /// Finds out what each design needs of the load: all of it, unless it is asked for.
    fn mark_all(&self) -> Result<Vec<Arc<Needed>>, CompareError> {
        let designs = self.settings.designs.len();
        // A design that is refused is refused before any time is spent.
        for arm in 1..designs {
            drop(self.build(arm, arm)?);
        }
        if !self.settings.only_needed {
            return Ok(vec![Arc::default(); designs]);
        }
        let steps = (self.load.len() * designs) as u64;
        let style = self.settings.style;
        let mut progress = Progress::new(style, "marking needless faults", steps, "operations");
        let mut needed = Vec::with_capacity(designs);
        for arm in 0..designs {
            let engine = self.build(arm, arm)?;
            let marked = mark(self.load, &*engine, |ops| {
                progress.advance(ops);
                !self.interrupt.requested()
            });
            let marked = marked.ok_or(CompareError::Interrupted)?;
            self.accept(self.settings.design(arm), &marked.tally)?;
            needed.push(Arc::new(marked.needed));
        }
        progress.finish();
        Ok(needed)
    }

    /// What `arm` needs of the load.
    pub(super) fn needed(&self, arm: usize) -> Arc<Needed> {
        // The control, beyond the last design, is the first once more.
        Arc::clone(self.needed.get(arm).unwrap_or(&self.needed[super::A]))
    }

    fn of_arms<T>(&self, of: impl Fn(&Needed) -> T) -> Vec<T> {
        let arms = 0..self.settings.arms();
        arms.map(|arm| of(&self.needed(arm))).collect()
    }

    /// Where `slice` ends.
    fn end_of(&self, slice: &Slice) -> Place {
        let ends = || slice.ops.iter().map(|ops| ops.end).enumerate();
        let last = ends().filter(|(_, end)| *end > 0);
        let origins = last.filter_map(|(cpu, end)| self.load.origin(cpu, end - 1));
        Place {
            ops: ends().map(|(_, end)| end as u64).sum(),
            event: origins.max(),
        }
    }

    /// Runs design A once in small pieces and joins them into slices of the
    /// wanted length.
    fn calibrate(&self, crew: &mut Crew<'_>) -> Result<Vec<Slice>, CompareError> {
        let wanted_ns = self.settings.slice_us.max(1) * 1000 * self.load.cpus() as u64;
        let arm = self.make(super::A, 0)?;
        let mut progress = Progress::new(
            self.settings.style,
            "cutting into slices",
            self.load.len() as u64,
            "operations",
        );
        let mut tally = Tally::default();
        let mut slices: Vec<Slice> = Vec::new();
        let mut last_ns = wanted_ns;
        let mut phase = None;
        for piece in self.load.slices(PIECE_OPS) {
            if self.interrupt.requested() {
                return Err(CompareError::Interrupted);
            }
            let reading = crew.execute(&arm, &piece, Grain::Whole);
            tally.add(&reading.tally);
            if tally.starved.is_some() {
                break;
            }
            progress.advance(piece.len() as u64);
            // Each CPU had an interval of its own, and more where it waited.
            let clock_ns = self.clock_ns * self.load.cpus() as u64;
            let piece_ns = reading.cpu_ns.saturating_sub(clock_ns);
            let is_of = (self.load.phase(&piece), self.load.is_beginning(&piece));
            let previous = phase.replace(is_of);
            match slices.last_mut() {
                Some(slice) if last_ns < wanted_ns && phase == previous => {
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
        self.accept(self.settings.design(super::A), &tally)?;
        Ok(slices)
    }

    /// Runs the other arms once as calibration did design A, so that every arena
    /// has its memory from the host when timing begins, and a design that
    /// diverges is refused early.
    fn warm_up(
        &self,
        crew: &mut Crew<'_>,
        slices: &[Slice],
        progress: &mut Progress,
    ) -> Result<(), CompareError> {
        let others = self.settings.arms() as u64 - 1;
        for arm in 1..self.settings.arms() {
            let warming = self.make(arm, arm)?;
            let mut tally = Tally::default();
            for (number, slice) in (0u64..).zip(slices) {
                if self.interrupt.requested() {
                    return Err(CompareError::Interrupted);
                }
                let reading = crew.execute(&warming, slice, Grain::Whole);
                tally.add(&reading.tally);
                if tally.starved.is_some() {
                    break;
                }
                // All of them together count as one pass.
                progress.advance(u64::from((number + arm as u64).is_multiple_of(others)));
            }
            self.accept(self.settings.design(arm), &tally)?;
        }
        Ok(())
    }

    /// One pass in which runs of operations of the same class are timed by
    /// themselves, and memory is looked at now and then, which no timed pass has to bear.
    fn by_class(
        &self,
        crew: &mut Crew<'_>,
        (before, slices): (&[Slice], &[Slice]),
        ends: &[Place],
        progress: &mut Progress,
    ) -> Result<(Vec<[ClassTime; CLASSES]>, Vec<MemoryAt>), CompareError> {
        progress.relabel("time by class");
        let arms = self.settings.arms();
        let all = self.make_all(1)?;
        let mut classes = vec![[ClassTime::default(); CLASSES]; arms];
        let mut tallies = self.begin(crew, &all, before, progress)?;
        let orders = orders(slices.len(), arms, 0, self.settings.seed);
        let mut memory = Vec::new();
        let stride = slices.len().div_ceil(MEMORY_LOOKS).max(1);
        for (number, (slice, order)) in slices.iter().zip(orders).enumerate() {
            if self.interrupt.requested() {
                return Err(CompareError::Interrupted);
            }
            for arm in order {
                let reading = crew.execute(&all[arm], slice, Grain::ByClass);
                for (sum, part) in classes[arm].iter_mut().zip(&reading.classes) {
                    sum.cpu_ns += part.cpu_ns;
                    sum.intervals += part.intervals;
                    sum.ops += part.ops;
                }
                tallies[arm].add(&reading.tally);
            }
            if (number + 1).is_multiple_of(stride) || number + 1 == slices.len() {
                memory.push(MemoryAt {
                    place: ends[number],
                    held: [super::A, super::B].map(|arm| all[arm].engine.memory()),
                });
            }
            progress.advance(1);
        }
        for (arm, tally) in tallies.iter().enumerate() {
            self.accept(self.settings.design(arm), tally)?;
        }
        Ok((classes, memory))
    }

    /// Executes slices that no pass times, under all arms.
    fn begin(
        &self,
        crew: &mut Crew<'_>,
        all: &[Arm],
        before: &[Slice],
        progress: &mut Progress,
    ) -> Result<Vec<Tally>, CompareError> {
        let mut tallies = vec![Tally::default(); all.len()];
        for slice in before {
            if self.interrupt.requested() {
                return Err(CompareError::Interrupted);
            }
            for (arm, tally) in all.iter().zip(&mut tallies) {
                tally.add(&crew.execute(arm, slice, Grain::Whole).tally);
            }
            progress.advance(1);
        }
        Ok(tallies)
    }

    /// One pass, or `None` if the user stopped it.
    fn pass(
        &self,
        crew: &mut Crew<'_>,
        (before, slices): (&[Slice], &[Slice]),
        number: usize,
        designs: &mut Vec<String>,
        progress: &mut Progress,
    ) -> Result<Option<Pass>, CompareError> {
        let arms = self.settings.arms();
        let mut all = self.make_all(number)?;
        for (number, arm) in all.iter_mut().enumerate() {
            arm.engine = self.builder.observe(number, Arc::clone(&arm.engine));
        }
        *designs = all.iter().map(|arm| arm.engine.design()).collect();
        let mut pass = Pass {
            cpu_ns: vec![Vec::with_capacity(slices.len()); arms],
            wall_ns: vec![Vec::with_capacity(slices.len()); arms],
            laps: vec![Vec::new(); arms],
            ..Pass::default()
        };
        pass.tallies = match self.begin(crew, &all, before, progress) {
            Err(CompareError::Interrupted) => return Ok(None),
            begun => begun?,
        };
        let orders = orders(slices.len(), arms, number, self.settings.seed);
        let (stride, rounds) = spaced(slices.len());
        for (place, (slice, order)) in slices.iter().zip(orders).enumerate() {
            if self.interrupt.requested() {
                return Ok(None);
            }
            if self.settings.entries && place.is_multiple_of(stride) {
                pass.entries.measure(crew.clock(), rounds);
            }
            for arm in order {
                let mut reading = crew.execute(&all[arm], slice, Grain::Whole);
                pass.cpu_ns[arm].push(reading.cpu_ns);
                pass.wall_ns[arm].push(reading.wall_ns);
                pass.laps[arm].append(&mut reading.laps);
                pass.tallies[arm].add(&reading.tally);
            }
            progress.advance(1);
        }
        for (number, arm) in all.iter().enumerate() {
            self.accept(self.settings.design(number), &pass.tallies[number])?;
            pass.counters.push(arm.engine.counters());
            pass.memory.push(arm.engine.memory());
        }
        Ok(Some(pass))
    }

    /// All arms with fresh engines, arm `i` in arena `(i + pass) % arms`, made in an order
    /// drawn for the pass: what lies where in the host's memory follows from it, and
    /// would otherwise stay with an arm through all passes.
    fn make_all(&self, pass: usize) -> Result<Vec<Arm>, CompareError> {
        let arms = self.settings.arms();
        let mut all = vec![None; arms];
        for arm in build_order(arms, pass, self.settings.seed) {
            all[arm] = Some(self.make(arm, (arm + pass) % arms)?);
        }
        Ok(all.into_iter().flatten().collect())
    }

    fn make(&self, arm: usize, arena: usize) -> Result<Arm, CompareError> {
        Ok(Arm {
            engine: self.build(arm, arena)?,
            needed: self.needed(arm),
        })
    }

    fn build(&self, arm: usize, arena: usize) -> Result<Arc<dyn Engine>, CompareError> {
        let design = self.settings.design(arm);
        match self.builder.build(design, arena) {
            Ok(engine) => Ok(Arc::from(engine)),
            Err(source) => Err(CompareError::Engine {
                design: design.to_owned(),
                source,
            }),
        }
    }

    /// Refuses a run that did not do what was recorded.
    pub(super) fn accept(&self, design: &str, tally: &Tally) -> Result<(), CompareError> {
        if let Some((cpu, index, shortage)) = tally.starved {
            return Err(CompareError::OutOfMemory {
                design: design.to_owned(),
                cpu,
                index,
                shortage,
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
        vellum_engine::Divergence::MappedLarge => "page mapped by a superpage".to_owned(),
        vellum_engine::Divergence::MappedFolio => "page mapped by a folio".to_owned(),
        vellum_engine::Divergence::Failed(error) => error.to_string(),
    }
}
