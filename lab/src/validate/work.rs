//! What accesses to own lines take with the instructions before them, calibrated: what the plain
//! core takes on one CPU less what the model says for everything else, spread over the accesses
//! by kind of operation.

use std::ops::Range;

use vellum_calibrate::rounds::shortened;
use vellum_description::{Description, Time, Work, WorkKind};
use vellum_engine::Op;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::TraceReader;

use super::cases::BASE;
use super::{Effort, plain};
use crate::bench::core::script::{SETUP, class_of};
use crate::compare::{Load, Measurement};
use crate::failure::Failure;
use crate::replay::{Class, Expectation, Options, Slice, Wait, Workload, prepare_events};
use crate::simulate::{Lanes, lanes};
use crate::stats::median;

/// What is measured: short programs that are started, map files, store, fork and end. It is
/// a part of the program, so that a machine can be calibrated that has nothing else of it.
const TRACE: &[u8] = include_bytes!("../../../traces/sdet-like.vellum");

/// The only phase of what has no phases.
const WHOLE: [u16; 1] = [SETUP.0];

/// How often figures are mended by what a simulation with them is off.
const ROUNDS: usize = 3;

/// The least that an access may take.
const LEAST_NS: f64 = 0.01;

/// What came out for one kind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
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
    /// How it came about, by kind.
    pub shares: Vec<Share>,
    /// How far the passes of the measurement lie apart, as a share.
    pub spread: f64,
}

/// Measures the plain core on one CPU of this machine, which `machine` describes but for
/// its work.
///
/// # Errors
/// The core could not be run, or the user stopped it.
pub fn calibrate(
    machine: &Description,
    effort: Effort,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Calibrated, Failure> {
    let load = Programs::new()?;
    let how = (effort.passes() + 2, true);
    let ram_bytes = load.workload.ram_bytes();
    let measured = plain::passes(&load, &[BASE], ram_bytes, how, style, interrupt)?;
    let mut passes = plain::times(&measured, 0, &WHOLE);
    passes.extend(plain::times(&measured, 1, &WHOLE));
    let whole = median(&passes).unwrap_or(0.0);
    let kinds = by_kind(&measured, whole);
    let simulate = |work: &Work| {
        let machine = Description {
            work: work.clone(),
            ..machine.clone()
        };
        lanes(&machine, &load, (BASE, ram_bytes), 1, &WHOLE)
    };
    let time =
        |simulated: &Lanes, kind: WorkKind| simulated.by_kind[kind as usize].time as f64 / 1e3;
    let mut nanoseconds = [LEAST_NS; WorkKind::ALL.len()];
    let bare = simulate(&work_of(&nanoseconds, ""))?;
    let mut found = bare.by_kind;
    for round in 0..ROUNDS {
        for kind in WorkKind::ALL {
            let spent = found[kind as usize];
            let left = kinds[kind as usize] - spent.time as f64 / 1e3;
            let ns = &mut nanoseconds[kind as usize];
            *ns = (*ns + left / (spent.reports as f64).max(1.0)).max(LEAST_NS);
        }
        if round + 1 < ROUNDS {
            found = simulate(&work_of(&nanoseconds, ""))?.by_kind;
        }
    }
    let spread = plain::spread(&passes);
    let shares = WorkKind::ALL.map(|kind| {
        let spent = bare.by_kind[kind as usize];
        let ops = (spent.ops as f64).max(1.0);
        Share {
            kind,
            ops: spent.ops,
            measured_ns: kinds[kind as usize] / ops,
            modelled_ns: time(&bare, kind) / ops,
            reports: spent.reports as f64 / ops,
            work_ns: nanoseconds[kind as usize],
        }
    });
    let how = format!(
        "measured: vellum calibrate {}, {} short programs' operations on one CPU, less what the \
         model says beside hits and instructions; passes {:.1} % apart",
        env!("CARGO_PKG_VERSION"),
        shares.iter().map(|share| share.ops).sum::<u64>(),
        spread * 100.0
    );
    Ok(Calibrated {
        work: work_of(&nanoseconds, &how),
        shares: shares.to_vec(),
        spread,
    })
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
    workload: Workload,
    classes: Vec<Class>,
}

impl Programs {
    fn new() -> Result<Programs, Failure> {
        let trace = TraceReader::from_bytes("sdet-like.vellum", TRACE.to_vec())?;
        let options = Options::default();
        let workload = prepare_events(trace.header(), || trace.events(), &options)?;
        let classes = workload.streams()[0].ops().iter().map(class_of).collect();
        Ok(Programs { workload, classes })
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
        let load = Programs::new().expect("the trace is whole");
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
