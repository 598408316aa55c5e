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
use vellum_terminal::progress::Interrupt;

pub use findings::{Arm, Figure, Findings, Input, Run};
pub use list::BENCHMARKS;
pub use request::{On, Request, Sizes};

/// A benchmark that `vellum bench` knows.
#[derive(Debug)]
pub struct Benchmark {
    /// Name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Whether it runs on the core.
    pub core: bool,
    /// Whether it runs on the host's kernel.
    pub linux: bool,
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
    /// Whether it runs on simulated machines: if it replays traces.
    pub fn simulated(&self) -> bool {
        matches!(self.name, "kernbench" | "sdet" | "buildkernel")
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
/// What was asked for does not fit, something failed, or the user stopped it before there
/// was anything to report.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    match (request.on, request.benchmark.name) {
        (On::Core, "tmpfs") => tmpfs::files(request, interrupt),
        (On::Core, "tmpfs-calls") => tmpfs::calls(request, interrupt),
        (On::Core, "reclaim") => reclaim::on_core(request, interrupt),
        (On::Core, "rmap-test") => rmap_test(request, interrupt),
        (On::Core, _) => core::run(request, interrupt),
        (On::Linux, "write" | "read" | "readonce" | "pft") => tmpfs::on_linux(request, interrupt),
        (On::Linux, "reclaim") => reclaim::on_linux(request, interrupt),
        (On::Linux, _) => host::run(request, interrupt),
    }
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
            _ => core::rmap_test(request, interrupt),
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
