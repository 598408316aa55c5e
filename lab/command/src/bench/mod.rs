//! Synthetic workloads with a name, on the core and on the host's kernel.
//!
//! [`BENCHMARKS`] lists them. A benchmark on the core is a [`Load`](crate::compare::Load)
//! like a trace: operations, cut into slices that all designs execute in turn
//! ([`core`]). On the host's kernel it is a real program ([`host`]). Both hand raw
//! times to [`findings`], which makes figures with intervals, a control and a
//! verdict of them; [`text`] and JSON print those.

pub mod buildkernel;
pub mod core;
pub mod findings;
pub mod host;
mod lat_mmap;
mod list;
mod loopdd;
mod reclaim;
pub mod request;
mod sweep;
pub mod text;
mod tmpfs;

use crate::failure::Failure;
use crate::on::On;
use vellum_terminal::progress::Interrupt;

pub use findings::{Arm, Figure, Findings, Input, Run};
pub use list::BENCHMARKS;
pub use request::{Request, Sizes};

/// Runs a benchmark.
///
/// # Errors
/// What was asked for does not fit, something failed, or the user stopped it before there
/// was anything to report.
pub type Runner = fn(&Request, &Interrupt) -> Result<Findings, Failure>;

/// The benchmarks that replay traces, in place of the programs that were recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replayed {
    /// Copies of a kernel build under several loads.
    Kernbench,
    /// Scripts, more and more of them at once.
    Sdet,
    /// Copies of a kernel build on tmpfs.
    Buildkernel,
}

/// A benchmark that `vellum bench` knows.
#[derive(Debug)]
pub struct Benchmark {
    /// Name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// How it runs on the core, if it does.
    pub core: Option<Runner>,
    /// How it runs on the host's kernel, if it does.
    pub linux: Option<Runner>,
    /// What is replayed on whole simulated machines, if anything is.
    pub sim: Option<Replayed>,
    /// Designs that it compares if none are named.
    pub designs: &'static [&'static str],
    /// Memory of each simulated machine if none is named, in bytes. A workload that
    /// is thought to need more gets more; replays of traces get what they need.
    pub ram_bytes: u64,
    /// Numbers that make it smaller or larger.
    pub sizes: &'static [Size],
    /// Variants; [`Benchmark::default_variants`] run if none is named.
    pub variants: &'static [Variant],
}

impl Benchmark {
    /// Whether it runs in such a place.
    pub fn runs(&self, on: On) -> bool {
        match on {
            On::Core => self.core.is_some(),
            On::Linux => self.linux.is_some(),
            On::Sim => self.sim.is_some(),
        }
    }

    /// The variants that run if none is named: the first, or all if they are programs of
    /// their own.
    pub fn default_variants(&self) -> &'static [Variant] {
        match self.name {
            "reclaim" => self.variants,
            _ => &self.variants[..self.variants.len().min(1)],
        }
    }
}

/// A number that makes a benchmark smaller or larger.
#[derive(Debug)]
pub struct Size {
    /// Name on the command line.
    pub name: &'static str,
    /// Value if none is given.
    pub default: u64,
    /// Smallest value that has a meaning.
    pub least: u64,
    /// Whether `--scale` changes it.
    pub scales: bool,
    /// What it counts.
    pub summary: &'static str,
}

/// A way of running a benchmark.
#[derive(Debug)]
pub struct Variant {
    /// Name on the command line.
    pub name: &'static str,
    /// What is different.
    pub summary: &'static str,
}

/// Runs what `request` asks for, where it asks for it.
///
/// # Errors
/// It does not run there, or as [`Runner`].
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let benchmark = request.benchmark;
    let runner = match request.on {
        On::Core => benchmark.core,
        On::Linux => benchmark.linux,
        On::Sim => None,
    };
    let runner = runner.ok_or_else(|| {
        let place = request.on.place();
        Failure::usage(format!("{} does not run {place}", benchmark.name))
    })?;
    runner(request, interrupt)
}

/// The variant of `rmap-test` with too little memory.
pub const PRESSURE: &str = "pressure";

/// `rmap-test` in the variants wanted. Figures under `pressure` are of the designs with
/// `reclaim=on`.
fn rmap_test(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let mut together: Option<Findings> = None;
    for variant in &request.variants {
        let more = match variant.name {
            PRESSURE => reclaim::under_pressure(request, interrupt),
            _ => core::files::rmap_test(request, interrupt),
        };
        let more = match (more, &mut together) {
            (Err(failure), Some(so_far)) if failure.code() == Failure::INTERRUPTED => {
                so_far.interrupted = true;
                break;
            }
            (more, _) => more?,
        };
        match &mut together {
            None => together = Some(more),
            Some(so_far) => {
                so_far.runs.extend(more.runs);
                so_far.notes.extend(more.notes);
                if variant.name != PRESSURE {
                    so_far.arms = more.arms;
                }
                so_far.interrupted = more.interrupted;
            }
        }
        if together
            .as_ref()
            .is_some_and(|findings| findings.interrupted)
        {
            break;
        }
    }
    Ok(together.unwrap_or_default())
}

/// The benchmark called `name`.
///
/// # Errors
/// There is none; the text names those that there are.
pub fn find(name: &str) -> Result<&'static Benchmark, String> {
    BENCHMARKS
        .iter()
        .find(|benchmark| benchmark.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = BENCHMARKS.iter().map(|b| b.name).collect();
            format!(
                "there is no benchmark `{name}`; there are {}",
                names.join(", ")
            )
        })
}
