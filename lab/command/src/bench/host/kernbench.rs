//! Kernel builds on the host: kernbench as Martin Bligh posted its results.
//!
//! `make -j N TARGET` of a configured kernel tree, N = 2 and 16 times the CPUs
//! and unlimited, from `make clean` each time. Elapsed time is the wall clock's,
//! system and user time those of the whole tree of processes as `wait4` reports
//! them. One build before the first is not timed: it brings compiler and sources
//! into memory and makes the tools that `make clean` leaves in place.

use super::tree::{Build, Tree};
use super::{Host, Interleaved, RUSAGE, WALL, row_label};
use crate::bench::Run;
use crate::host::{HostError, cpus};
use crate::report::{self, kernbench::Row};
use vellum_terminal::progress::{Interrupt, Progress};

/// How many jobs `make` may run at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    /// This many for each CPU.
    PerCpu(usize),
    /// As many as there are.
    Unlimited,
}

impl Load {
    /// The argument for `make` on a machine with `cpus` CPUs.
    fn jobs(self, cpus: usize) -> String {
        match self {
            Load::PerCpu(jobs) => format!("-j{}", jobs * cpus),
            Load::Unlimited => "-j".to_owned(),
        }
    }

    /// The title of the block for builds of `target`.
    fn title(self, target: &str) -> String {
        match self {
            Load::PerCpu(jobs) => format!("make -j N {target}, where N = {jobs} x num_cpus"),
            Load::Unlimited => format!("make -j {target}, maximal tasks"),
        }
    }
}

/// The loads of the published tables by the sizes of the benchmark that choose them.
const LOADS: [(&str, Load); 3] = [
    ("light", Load::PerCpu(2)),
    ("heavy", Load::PerCpu(16)),
    ("unlimited", Load::Unlimited),
];

/// Builds the tree under every load that is asked for. An interruption ends the running
/// build and keeps the loads that are complete.
///
/// # Errors
/// The tree is not one that can be built, a tool is missing, a build fails, or the user
/// interrupted.
pub fn measure(host: &mut Host<'_>) -> Result<(), HostError> {
    let path = host.tree("a configured tree")?;
    let target = host.request.target.as_deref().unwrap_or("vmlinux");
    let tree = Tree::open(path, Some(target))?;
    let measured = all(host, &tree, target);
    // Whatever happened: nothing half-built stays behind.
    let cleaned = tree.clean(&Interrupt::manual());
    measured.and(cleaned)
}

/// The builds of every load, in order, after one that is not timed.
fn all(host: &mut Host<'_>, tree: &Tree<'_>, target: &str) -> Result<(), HostError> {
    let sizes = &host.request.sizes;
    let loads = LOADS.into_iter().filter(|(name, _)| sizes.get(name) > 0);
    let loads: Vec<Load> = loads.map(|(_, load)| load).collect();
    let steps = 1 + 2 * loads.len() * host.request.passes;
    let mut progress = host.progress("warming up", steps, "builds");
    let interrupt = host.interrupt;
    let build = |jobs: &str, progress: &mut Progress| {
        tree.clean(interrupt)?;
        let build = tree.build(jobs, interrupt)?;
        progress.advance(1);
        Ok(build)
    };
    build(&Load::PerCpu(2).jobs(cpus()), &mut progress)?;
    for load in loads {
        let jobs = load.jobs(cpus());
        progress.relabel(format!("make {jobs} {target}"));
        let builds = host.collect(|| build(&jobs, &mut progress))?;
        keep(host, load.title(target), &builds)?;
    }
    progress.finish();
    Ok(())
}

/// Keeps the builds of one load.
fn keep(host: &mut Host<'_>, title: String, builds: &Interleaved<Build>) -> Result<(), HostError> {
    let arms = host.findings.arms.iter().zip(&builds.arms);
    let rows: Vec<Row> = arms
        .map(|(arm, builds)| row(row_label(arm), builds))
        .collect();
    let block = report::kernbench::block(&title, &rows);
    host.findings.blocks.push(block);
    let of = |name, clock, seconds: fn(&Build) -> f64| {
        host.figure((name, "build", 1.0), clock, builds, seconds)
    };
    let run = Run {
        title,
        facts: vec![format!(
            "each build follows `make clean`; {} CPUs; averages over the passes below",
            cpus()
        )],
        figures: vec![
            of("elapsed", WALL, |build| build.elapsed_s),
            of("system", RUSAGE, |build| build.usage.system_s),
            of("user", RUSAGE, |build| build.usage.user_s),
        ],
        kernbench: rows,
        ..Run::default()
    };
    host.keep(builds, run)
}

/// The row of the block for one arm, averages over its passes.
fn row(label: String, builds: &[Build]) -> Row {
    let mean = |value: &dyn Fn(&Build) -> f64| {
        builds.iter().map(value).sum::<f64>() / builds.len().max(1) as f64
    };
    Row {
        label,
        elapsed_s: mean(&|build| build.elapsed_s),
        system_s: mean(&|build| build.usage.system_s),
        user_s: Some(mean(&|build| build.usage.user_s)),
        cpu_percent: Some(mean(&|build| {
            100.0 * (build.usage.system_s + build.usage.user_s) / build.elapsed_s
        })),
    }
}
