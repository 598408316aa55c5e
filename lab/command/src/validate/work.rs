//! What accesses to own lines take with the instructions before them, calibrated: what the plain
//! core takes on one CPU less what the model says for everything else, spread over the accesses
//! by kind of operation.

use std::ops::Range;

use vellum_calibrate::Effort;
use vellum_calibrate::rounds::shortened;
use vellum_description::{Description, Share, Time, Work, WorkKind};
use vellum_engine::Op;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::TraceReader;

use super::cases::BASE;
use super::{Amounts, plain};
use crate::bench::core::script::{SETUP, class_of};
use crate::compare::{Load, Measurement};
use crate::failure::Failure;
use crate::replay::{Class, Expectation, Options, Slice, Wait, Workload, prepare_events};
use crate::simulate::{Lanes, lanes};
use crate::stats::median;

/// What is measured: short programs that are started, map files, store, fork and end. It is
/// a part of the program, so that a machine can be calibrated that has nothing else of it.
const TRACE: &[u8] = include_bytes!("../../../../traces/sdet-like.vellum");

/// The only phase of what has no phases.
const WHOLE: [u16; 1] = [SETUP.0];

/// How often figures are mended by what a simulation with them is off.
const ROUNDS: usize = 3;

/// The least that an access may take.
const LEAST_NS: f64 = 0.01;

/// The least share of the time of lost lines for which a core waits.
const LEAST_EXPOSED: f64 = 0.05;

/// What came out for one kind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OfKind {
    /// The kind.
    pub kind: WorkKind,
    /// Operations.
    pub ops: u64,
    /// What they took, in nanoseconds each.
    pub measured_ns: f64,
    /// What the model says for each without hits and instructions.
    pub modelled_ns: f64,
    /// Accesses of each.
    pub reports: f64,
    /// What is left for each access.
    pub work_ns: f64,
}

/// Work as it was found, with what it is from.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// For the description.
    pub work: Work,
    /// For the description, too, if cores lose lines.
    pub exposed: Option<Share>,
    /// How it came about, by kind.
    pub shares: Vec<OfKind>,
    /// How far the passes of the measurement lie apart, as a share.
    pub spread: f64,
}

/// Measures the plain core on one CPU of this machine, which `machine` describes but for
/// its work and [`Processor::exposed`].
///
/// # Errors
/// The core could not be run, or the user stopped it.
///
/// [`Processor::exposed`]: vellum_description::Processor::exposed
pub fn calibrate(
    machine: &Description,
    effort: Effort,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Calibrated, Failure> {
    let programs = Programs::new(1)?;
    let measured = Timed::measure(&programs, effort, true, style, interrupt)?;
    let mut machine = machine.clone();
    if machine.processor.own_cache.is_some() {
        let crowd = Programs::new(Amounts::of(effort).crowd)?;
        let crowded = Timed::measure(&crowd, effort, false, style, interrupt)?;
        machine.processor.exposed = Some(exposed(
            &machine,
            (&programs, &measured),
            (&crowd, &crowded),
            interrupt,
        )?);
    }
    let Fit { nanoseconds, bare } = fit(&machine, &programs, &measured.kinds, interrupt)?;
    let shares = WorkKind::ALL.map(|kind| {
        let spent = bare.by_kind[kind as usize];
        let ops = (spent.ops as f64).max(1.0);
        OfKind {
            kind,
            ops: spent.ops,
            measured_ns: measured.kinds[kind as usize] / ops,
            modelled_ns: spent.time as f64 / 1e3 / ops,
            reports: spent.reports as f64 / ops,
            work_ns: nanoseconds[kind as usize],
        }
    });
    let how = format!(
        "measured: vellum calibrate {}, {} short programs' operations on one CPU, less what the \
         model says beside hits and instructions; passes {:.1} % apart",
        env!("CARGO_PKG_VERSION"),
        shares.iter().map(|share| share.ops).sum::<u64>(),
        measured.spread * 100.0
    );
    Ok(Calibrated {
        work: work_of(&nanoseconds, &how),
        exposed: machine.processor.exposed,
        shares: shares.to_vec(),
        spread: measured.spread,
    })
}

/// For which share of the time of lost lines a core waits: that with which programs whose lines a
/// core's caches do not hold take as long as they do, if fewer programs do. Between shares the
/// time is taken to be linear.
fn exposed(
    machine: &Description,
    (programs, measured): (&Programs, &Timed),
    (crowd, crowded): (&Programs, &Timed),
    interrupt: &Interrupt,
) -> Result<Share, Failure> {
    let with = |share: f64| {
        let mut machine = machine.clone();
        machine.processor.exposed = Some(Share::new(share, ""));
        let fit = fit(&machine, programs, &measured.kinds, interrupt)?;
        machine.work = work_of(&fit.nanoseconds, "");
        Ok::<f64, Failure>(simulate(&machine, crowd, interrupt)?.total_ns)
    };
    let (low, high) = (with(LEAST_EXPOSED)?, with(1.0)?);
    let part = (crowded.whole - low) / (high - low).max(1.0);
    let share = (LEAST_EXPOSED + part * (1.0 - LEAST_EXPOSED)).clamp(LEAST_EXPOSED, 1.0);
    let how = format!(
        "measured: vellum calibrate {}, {} times as many short programs beside one another on one \
         CPU; passes {:.1} % apart",
        env!("CARGO_PKG_VERSION"),
        crowd.copies,
        crowded.spread * 100.0
    );
    Ok(Share::new(shortened(share), how))
}

/// What the plain core took.
struct Timed {
    /// In all, in nanoseconds.
    whole: f64,
    /// By kind.
    kinds: [f64; WorkKind::ALL.len()],
    /// How far the passes lie apart, as a share.
    spread: f64,
}

impl Timed {
    fn measure(
        load: &Programs,
        effort: Effort,
        by_class: bool,
        style: Style,
        interrupt: &Interrupt,
    ) -> Result<Timed, Failure> {
        let how = (Amounts::of(effort).passes + 2, by_class);
        let measured = plain::passes(load, &[BASE], load.ram_bytes(), how, style, interrupt)?;
        let mut passes = plain::times(&measured, 0, &WHOLE);
        passes.extend(plain::times(&measured, 1, &WHOLE));
        let whole = median(&passes).unwrap_or(0.0);
        Ok(Timed {
            whole,
            kinds: by_kind(&measured, whole),
            spread: plain::spread(&passes),
        })
    }
}

/// Time between accesses, by kind, and what a simulation with almost none takes.
struct Fit {
    nanoseconds: [f64; WorkKind::ALL.len()],
    bare: Lanes,
}

/// Finds the time between accesses with which the programs take what was `measured` of each kind.
fn fit(
    machine: &Description,
    programs: &Programs,
    measured: &[f64; WorkKind::ALL.len()],
    interrupt: &Interrupt,
) -> Result<Fit, Failure> {
    let mut machine = machine.clone();
    let mut nanoseconds = [LEAST_NS; WorkKind::ALL.len()];
    machine.work = work_of(&nanoseconds, "");
    let bare = simulate(&machine, programs, interrupt)?;
    let mut found = bare.by_kind;
    for round in 0..ROUNDS {
        for kind in WorkKind::ALL {
            let spent = found[kind as usize];
            let left = measured[kind as usize] - spent.time as f64 / 1e3;
            let ns = &mut nanoseconds[kind as usize];
            *ns = (*ns + left / (spent.reports as f64).max(1.0)).max(LEAST_NS);
        }
        if round + 1 < ROUNDS {
            machine.work = work_of(&nanoseconds, "");
            found = simulate(&machine, programs, interrupt)?.by_kind;
        }
    }
    Ok(Fit { nanoseconds, bare })
}

fn simulate(
    machine: &Description,
    load: &Programs,
    interrupt: &Interrupt,
) -> Result<Lanes, Failure> {
    if interrupt.requested() {
        return Err(Failure::interrupted("interrupted; nothing is known yet"));
    }
    lanes(machine, load, (BASE, load.ram_bytes()), 1, &WHOLE)
}

fn work_of(nanoseconds: &[f64; WorkKind::ALL.len()], source: &str) -> Work {
    let mut work = Work::default();
    for kind in WorkKind::ALL {
        let ns = nanoseconds[kind as usize];
        work.set(kind, Time::new(shortened(ns), source));
    }
    work
}

/// What operations of each kind took in nanoseconds. Times by class come from a pass in
/// which the clock is read between them, which takes its own time and disturbs; so they are
/// scaled to the time of the passes in which it is not.
fn by_kind(measured: &Measurement, whole: f64) -> [f64; WorkKind::ALL.len()] {
    let classes = measured.classes.iter().flat_map(|classes| {
        let pairs = Class::ALL.into_iter().zip(classes);
        pairs.map(|(class, time)| {
            let clock = measured.clock_ns * time.intervals;
            (class, time.cpu_ns.saturating_sub(clock) as f64)
        })
    });
    let classes: Vec<(Class, f64)> = classes.collect();
    let sum: f64 = classes.iter().map(|(_, ns)| ns).sum();
    let mut kinds = [0.0; WorkKind::ALL.len()];
    for (class, ns) in classes {
        if let Some(kind) = kind_of(class) {
            kinds[kind as usize] += ns * whole / sum.max(1.0);
        }
    }
    kinds
}

fn kind_of(class: Class) -> Option<WorkKind> {
    match class {
        Class::Fault => Some(WorkKind::Fault),
        Class::Fork | Class::Share => Some(WorkKind::Fork),
        Class::Exec | Class::Exit => Some(WorkKind::Exit),
        Class::Map | Class::Unmap | Class::Protect | Class::Remap | Class::Brk | Class::Advise => {
            Some(WorkKind::Map)
        }
        Class::File => Some(WorkKind::File),
        Class::Idle | Class::Use => None,
    }
}

/// The programs, each operation by itself in a class, whatever it is a part of.
struct Programs {
    copies: u32,
    workload: Workload,
    classes: Vec<Class>,
}

impl Programs {
    /// So many times, beside one another.
    fn new(copies: u32) -> Result<Programs, Failure> {
        let trace = TraceReader::from_bytes("sdet-like.vellum", TRACE.to_vec())?;
        let options = Options {
            copies,
            ..Options::default()
        };
        let workload = prepare_events(trace.header(), || trace.events(), &options)?;
        let classes = workload.streams()[0].ops().iter().map(class_of).collect();
        Ok(Programs {
            copies,
            workload,
            classes,
        })
    }

    fn ram_bytes(&self) -> u64 {
        self.workload.ram_bytes()
    }
}

impl Load for Programs {
    fn cpus(&self) -> usize {
        1
    }

    fn ops(&self, cpu: usize) -> &[Op] {
        Load::ops(&self.workload, cpu)
    }

    fn classes(&self, _cpu: usize) -> &[Class] {
        &self.classes
    }

    fn expectation(&self, cpu: usize, index: usize) -> Expectation {
        Load::expectation(&self.workload, cpu, index)
    }

    fn slices(&self, target: usize) -> Vec<Slice> {
        Load::slices(&self.workload, target)
    }

    fn segments_in(&self, cpu: usize, ops: &Range<usize>) -> Range<usize> {
        Load::segments_in(&self.workload, cpu, ops)
    }

    fn segment(&self, cpu: usize, index: usize) -> (Range<usize>, &[Wait]) {
        Load::segment(&self.workload, cpu, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_that_are_measured_have_operations_of_every_kind() {
        let load = Programs::new(1).expect("the trace is whole");
        for kind in WorkKind::ALL {
            let mine = load
                .classes
                .iter()
                .filter(|class| kind_of(**class) == Some(kind));
            assert!(mine.count() >= 50, "{}", kind.key());
        }
        assert_eq!(load.classes.len(), load.len());
    }
}
