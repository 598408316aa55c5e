//! The workload on the memory manager, under the options that stand for what can be changed, all
//! in one interleaved run.

use std::path::PathBuf;

use super::knobs::Knob;
use crate::compare::{
    Arenas, Contrast, HostClock, Judged, Measurement, Method, Settings, measure, with_entries,
};
use crate::designs::load;
use crate::failure::Failure;
use crate::replay::{Options, Service, Streams, Workload, ram};
use crate::report::replay::FRAMES;
use crate::stats::Estimate;
use vellum_results::Whole;
use vellum_terminal::progress::{Interrupt, Style};

/// Length of a slice in microseconds of CPU time.
const SLICE_US: u64 = 1000;

/// Share of unexplained divergences above which a run is refused.
const DIVERGENCE_LIMIT: f64 = 0.01;

/// Passes at least and at most.
const PASSES: (u64, u64) = (5, 12);

/// Nanoseconds of an operation, about: for the number of passes.
const OPERATION_NS: u64 = 1000;

/// What was found.
#[derive(Clone, Debug)]
pub struct OnCore {
    /// The whole workload, if the recording has CPU times.
    pub whole: Option<Whole>,
    /// Memory of page tables at their peak, in bytes.
    pub tables_bytes: u64,
    /// All frames in use at the peak, in bytes.
    pub frames_bytes: u64,
    /// By knob, in their order.
    pub arms: Vec<Arm>,
    /// Page faults without any of them.
    pub faults: u64,
    /// The user ended it early.
    pub interrupted: bool,
}

/// What one knob does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arm {
    /// CPU time without it, in nanoseconds, entries into the kernel included.
    pub base_ns: f64,
    /// That with it, divided by that without it.
    pub ratio: Estimate,
    /// What is said of it.
    pub judged: Judged,
    /// All frames at the peak, by those without it.
    pub peak: f64,
    /// Page faults, by those without it.
    pub faults: f64,
    /// Recorded faults that are not needed with it, beyond those without it.
    pub needless: u64,
    /// Pages that it makes and nobody touches, for large folios.
    pub unused_pages: u64,
}

/// Measures `knobs` on the trace at `path`, in about `seconds`.
///
/// # Errors
/// The trace cannot be used, it diverges, or the user interrupts before there is a pass.
pub fn run(
    path: &PathBuf,
    knobs: &[Knob],
    (seconds, seed): (u64, u64),
    style: Style,
    interrupt: &Interrupt,
) -> Result<OnCore, Failure> {
    let first = std::iter::once(String::new());
    let designs: Vec<String> = first
        .chain(knobs.iter().map(|knob| knob.design.to_owned()))
        .collect();
    let options = Options {
        streams: Streams::ByCpu(1),
        seed,
        ..Options::default()
    };
    let (_, workload) = load(std::slice::from_ref(path), &designs, options, style)?;
    if workload.ops() == 0 {
        return Err(Failure::usage(format!(
            "{}: the trace has no operations; there is nothing to advise on",
            path.display()
        )));
    }
    let arms = designs.len() as u64 + 1;
    let each = workload.ops() * OPERATION_NS * arms;
    let passes = (seconds * 1_000_000_000 / each.max(1)).clamp(PASSES.0, PASSES.1);
    let settings = Settings {
        designs,
        passes: passes as usize,
        slice_us: SLICE_US,
        seed,
        style,
        divergence_limit: DIVERGENCE_LIMIT,
        by_class: false,
        only_needed: true,
        entries: true,
    };
    let measured = measured(&workload, &settings, interrupt)?;
    Ok(found(&workload, &measured, seed))
}

fn measured(
    workload: &Workload,
    settings: &Settings,
    interrupt: &Interrupt,
) -> Result<Measurement, Failure> {
    let ram = ram::choose(None, workload.ram_bytes(), settings.arms());
    let arenas = Arenas::new(settings.arms(), 1, ram);
    let arenas = match ram::can_be_backed(ram, settings.arms()) {
        true => arenas.prefaulted(),
        false => arenas,
    };
    let measured = measure(workload, &arenas, &HostClock::new(), settings, interrupt);
    measured.map_err(|error| match error {
        crate::compare::CompareError::Interrupted => Failure::interrupted("interrupted"),
        crate::compare::CompareError::Diverged { .. } => {
            Failure::refuted(Failure::from(error).message().to_owned())
        }
        error => Failure::from(error),
    })
}

fn found(workload: &Workload, measured: &Measurement, seed: u64) -> OnCore {
    let arms = measured.entered.len();
    let samples: Vec<_> = (0..arms).map(|arm| with_entries(measured, arm)).collect();
    let method = Method {
        confidence: 0.95,
        resamples: 1000,
        seed,
    };
    let contrast = Contrast::new(&samples, &method);
    let faults = |arm: usize| -> u64 { measured.entered[arm].iter().map(|each| each.traps).sum() };
    let left_out =
        |arm: usize| measured.left_out[arm].explained + measured.left_out[arm].unexplained;
    let base = (peak(measured, 0, FRAMES), faults(0), left_out(0));
    let arm = |arm: usize| {
        let needless = left_out(arm).saturating_sub(base.2);
        let folios = counter(measured, arm, "folios mapped");
        let pages = counter(measured, arm, "pages of folios");
        Arm {
            base_ns: contrast.totals[0].value,
            ratio: contrast.ratios[arm],
            judged: contrast.judged[arm - 1],
            peak: peak(measured, arm, FRAMES) as f64 / base.0.max(1) as f64,
            faults: faults(arm) as f64 / base.1.max(1) as f64,
            needless,
            unused_pages: pages.saturating_sub(folios + needless),
        }
    };
    OnCore {
        whole: workload.service().and_then(Service::whole),
        tables_bytes: peak(measured, 0, "page tables"),
        frames_bytes: base.0,
        arms: (1..arms - 1).map(arm).collect(),
        faults: base.1,
        interrupted: measured.interrupted,
    }
}

fn peak(measured: &Measurement, arm: usize, name: &str) -> u64 {
    let last = measured.passes.last();
    let memory = last.into_iter().flat_map(|pass| &pass.memory[arm]);
    let mut found = memory.filter(|held| held.0 == name);
    found.next().map_or(0, |held| held.2)
}

fn counter(measured: &Measurement, arm: usize, name: &str) -> u64 {
    let last = measured.passes.last();
    let counters = last.into_iter().flat_map(|pass| &pass.counters[arm]);
    let mut found = counters.filter(|counter| counter.0 == name);
    found.next().map_or(0, |counter| counter.1)
}
