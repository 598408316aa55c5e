//! Our side: benchmarks and replays, as `vellum bench` runs them.

use std::path::PathBuf;
use std::sync::Arc;

use crate::bench::findings::{ArmFigure, Figure, Standing};
use crate::bench::host::sdet::SHIPPED;
use crate::bench::{self, Findings, Request, Run, request};
use crate::compare::{Method, Reason, Verdict};
use crate::failure::Failure;
use crate::on::On;
use crate::report::kernbench;
use vellum_description::Description;
use vellum_profile::sample::Profiler;
use vellum_tables::summary::{deviation, mean};
use vellum_terminal::progress::{Interrupt, Style};

use super::judge::{Change, Evidence, Factor};

/// How everything is measured.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Passes of each measurement.
    pub passes: usize,
    /// Small workloads, to see that everything works.
    pub quick: bool,
    /// Seed of everything drawn.
    pub seed: u64,
    /// How to show progress.
    pub style: Style,
    /// Directory of the shipped traces.
    pub traces: PathBuf,
    /// Parts of the titles of the sections wanted, in any case; empty: all.
    pub only: Vec<String>,
    /// Scripts at once of the rows of SDET that are wanted on a simulated machine; empty: all.
    pub scripts: Vec<u32>,
    /// Where finished simulations are kept.
    pub resume: Option<PathBuf>,
    /// The machine to simulate, if the reproduction is to be on one.
    pub simulated: Option<Simulated>,
}

/// A machine that is simulated.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// What the user called it.
    pub machine_name: String,
    /// What it is.
    pub machine: Description,
    /// How many of its CPUs.
    pub cpus: usize,
    /// Simulations at a time.
    pub jobs: usize,
}

/// One benchmark to run.
#[derive(Clone, Debug)]
pub struct Job<'j> {
    /// Name of the benchmark.
    pub name: &'j str,
    /// Designs in option syntax; the first is the base.
    pub designs: Vec<String>,
    /// Sizes that differ from the benchmark's own, as `name=number`.
    pub sizes: Vec<String>,
    /// Multiplies the sizes that scale.
    pub scale: f64,
    /// Variants; none for the first.
    pub variants: Vec<String>,
    /// Traces to replay.
    pub traces: Vec<PathBuf>,
    /// Simulated CPUs, where the benchmark can use several.
    pub cpus: usize,
    /// Memory of each simulated machine, if not the benchmark's own.
    pub ram_bytes: Option<u64>,
    /// How much of it is low memory, if not all that the format can have.
    pub low_bytes: Option<u64>,
}

impl<'j> Job<'j> {
    /// `name` with its own sizes on `designs`.
    pub fn new(name: &'j str, designs: &[String]) -> Self {
        Self {
            name,
            designs: designs.to_vec(),
            sizes: Vec::new(),
            scale: 1.0,
            variants: Vec::new(),
            traces: Vec::new(),
            cpus: 1,
            ram_bytes: None,
            low_bytes: None,
        }
    }
}

impl Setting {
    /// Runs `job` on the core or on the host.
    ///
    /// # Errors
    /// As the benchmark's.
    pub fn run(&self, job: &Job<'_>, on: On, interrupt: &Interrupt) -> Result<Findings, Failure> {
        self.profiled(job, on, None, interrupt)
    }

    /// The same, with what runs on the core sampled by `profiler`.
    ///
    /// # Errors
    /// As the benchmark's.
    pub fn profiled(
        &self,
        job: &Job<'_>,
        on: On,
        profiler: Option<&Arc<Profiler>>,
        interrupt: &Interrupt,
    ) -> Result<Findings, Failure> {
        if interrupt.requested() {
            return Err(Failure::interrupted("interrupted"));
        }
        let usual = Request::new(job.name, on, (job.scale, &job.sizes)).map_err(Failure::usage)?;
        let variants = request::variants(usual.benchmark, &job.variants);
        let request = Request {
            designs: job.designs.clone(),
            passes: self.passes,
            cpus: job.cpus,
            ram_bytes: job.ram_bytes,
            low_bytes: job.low_bytes,
            method: Method {
                seed: self.seed,
                ..usual.method
            },
            variants: variants.map_err(Failure::usage)?,
            traces: job.traces.clone(),
            style: self.style,
            profiler: profiler.cloned(),
            ..usual
        };
        bench::run(&request, interrupt)
    }

    /// A shipped trace.
    ///
    /// # Errors
    /// It is not where it should be.
    pub fn trace(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.traces.join(name);
        match path.is_file() {
            true => Ok(path),
            false => Err(Failure::usage(format!(
                "{}: there is no such trace; name the directory of the shipped traces with --traces",
                path.display()
            ))),
        }
    }

    /// The traces of all recorded scripts, in order.
    ///
    /// # Errors
    /// One is not where it should be.
    pub fn scripts(&self) -> Result<Vec<PathBuf>, Failure> {
        SHIPPED.iter().map(|name| self.trace(name)).collect()
    }
}

/// Values that option `name` can have here.
pub fn values_of(name: &str) -> &'static [&'static str] {
    let option = vellum_engine::options().iter();
    let mut option = option.filter(|option| option.name == name);
    option.next().map_or(&[], |option| option.values)
}

/// The value of option `name` in the default design.
pub fn default_of(name: &str) -> &'static str {
    let option = vellum_engine::options().iter();
    let mut option = option.filter(|option| option.name == name);
    option.next().map_or("", |option| option.default)
}

/// Those of `wanted` that option `name` can have here, and those that not.
pub fn available<'w>(name: &str, wanted: &[&'w str]) -> (Vec<&'w str>, Vec<&'w str>) {
    let known = values_of(name);
    wanted.iter().partition(|value| known.contains(value))
}

/// The figure called `name` of a run.
///
/// # Errors
/// The run has none; the text says which it has.
pub fn figure<'r>(run: &'r Run, name: &str) -> Result<&'r Figure, Failure> {
    let found = run.figures.iter().find(|figure| figure.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = run.figures.iter().map(|f| f.name.as_str()).collect();
        Failure::failed(format!(
            "the run `{}` has no figure `{name}`; it has {}",
            run.title,
            names.join(", ")
        ))
    })
}

/// What a run says of an arm: whether a change is told, and which could have been.
pub fn evidence(arm: &ArmFigure) -> Evidence {
    match arm.standing {
        Standing::Judged(Verdict::Less | Verdict::More) => Evidence::Proven,
        Standing::Judged(Verdict::NotProven(Reason::TooFewPasses)) => Evidence::TooFewPasses,
        _ => Evidence::NotProven,
    }
}

/// The largest change of an arm that could not have been told from none, as a share.
pub fn resolution(arm: &ArmFigure) -> f64 {
    arm.resolution.unwrap_or(0.0)
}

/// By how much an arm's time differs from the first arm's.
pub fn change(arm: &ArmFigure) -> Change {
    Change::of_ratio(arm.ratio, arm.ratio_low.zip(arm.ratio_high))
        .judged(evidence(arm), resolution(arm))
}

/// The same as throughput: less time is more of it.
pub fn throughput_change(arm: &ArmFigure) -> Change {
    let bounds = arm.ratio_low.zip(arm.ratio_high);
    let bounds = bounds.map(|(low, high)| (1.0 / high, 1.0 / low));
    Change::of_ratio(1.0 / arm.ratio, bounds).judged(evidence(arm), resolution(arm) / arm.ratio)
}

/// How many times as long as the first arm an arm takes.
pub fn times(arm: &ArmFigure) -> Factor {
    Factor {
        value: arm.ratio,
        bounds: arm.ratio_low.zip(arm.ratio_high),
        evidence: evidence(arm),
        resolution: resolution(arm),
    }
}

/// How many times as long as an arm the first takes.
pub fn times_as_fast(arm: &ArmFigure) -> Factor {
    let bounds = arm.ratio_low.zip(arm.ratio_high);
    Factor {
        value: 1.0 / arm.ratio,
        bounds: bounds.map(|(low, high)| (1.0 / high, 1.0 / low)),
        evidence: evidence(arm),
        resolution: resolution(arm) / arm.ratio,
    }
}

/// The time of one unit under an arm: the median where single parts were timed,
/// which a preemption does not move, and else the estimate.
pub fn typical(arm: &ArmFigure) -> f64 {
    arm.spread.map_or(arm.value, |spread| spread.median)
}

/// Sample standard deviation of an arm's passes, in percent of their mean.
pub fn deviation_percent(arm: &ArmFigure) -> Option<f64> {
    let (deviation, mean) = (deviation(&arm.passes)?, mean(&arm.passes)?);
    Some(100.0 * deviation / mean)
}

/// `design` without the option it is about: `rmap=chains` as `chains`.
pub fn short(design: &str) -> &str {
    design.split_once('=').map_or(design, |(_, value)| value)
}

/// The kernbench block of a run, its rows named by `labels`.
pub fn kernbench_block(title: &str, run: &Run, labels: &[String]) -> String {
    let rows: Vec<kernbench::Row> = run
        .kernbench
        .iter()
        .zip(labels)
        .map(|(row, label)| kernbench::Row {
            label: label.clone(),
            ..row.clone()
        })
        .collect();
    kernbench::block(title, &rows)
}
