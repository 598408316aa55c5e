//! Kernel builds on the host: kernbench as Martin Bligh posted its results.
//!
//! `make -j N TARGET` of a configured kernel tree, N = 2 and 16 times the CPUs
//! and unlimited, from `make clean` each time. Elapsed time is the wall clock's,
//! system and user time those of the whole tree of processes as `wait4` reports
//! them. One build before the first is not timed: it brings compiler and sources
//! into memory and makes the tools that `make clean` leaves in place.

use std::path::PathBuf;

use super::HostError;
use super::interleave::Interleaved;
use super::tree::{Build, Tree};
use crate::report::kernbench::Row;
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// How many jobs `make` may run at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// This many for each CPU.
    PerCpu(usize),
    /// As many as there are.
    Unlimited,
}

impl Load {
    /// The three loads of the published tables.
    pub const PUBLISHED: [Load; 3] = [Load::PerCpu(2), Load::PerCpu(16), Load::Unlimited];

    /// The argument for `make` on a machine with `cpus` CPUs.
    fn jobs(self, cpus: usize) -> String {
        match self {
            Load::PerCpu(jobs) => format!("-j{}", jobs * cpus),
            Load::Unlimited => "-j".to_owned(),
        }
    }

    /// The title of the block for builds of `target`.
    pub fn title(self, target: &str) -> String {
        match self {
            Load::PerCpu(jobs) => format!("make -j N {target}, where N = {jobs} x num_cpus"),
            Load::Unlimited => format!("make -j {target}, maximal tasks"),
        }
    }
}

/// What to build and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// Unpacked and configured kernel tree. It is left as after `make clean`.
    pub tree: PathBuf,
    /// Target of `make`.
    pub target: String,
    /// Loads, in order.
    pub loads: Vec<Load>,
    /// Builds of each arm for each load.
    pub passes: usize,
    /// Decides which arm is built first.
    pub seed: u64,
    /// How to show progress.
    pub style: Style,
}

/// The builds of one load.
#[derive(Clone, Debug)]
pub struct Built {
    /// Jobs at once.
    pub load: Load,
    /// By arm, then by pass.
    pub builds: Interleaved<Build>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Kernbench {
    /// Complete loads.
    pub loads: Vec<Built>,
    /// Whether the user stopped the run early.
    pub interrupted: bool,
}

/// Builds the tree as `options` says. An interruption ends the running build and
/// keeps the loads that are complete.
///
/// # Errors
/// The tree is not one that can be built, a tool is missing, a build fails, or
/// the user interrupted before the first load was complete.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<Kernbench, HostError> {
    let tree = Tree::open(&options.tree, Some(&options.target))?;
    let steps = 1 + 2 * options.loads.len() * options.passes;
    let mut progress = Progress::new(options.style, "warming up", steps as u64, "builds");
    let mut result = Kernbench {
        loads: Vec::new(),
        interrupted: false,
    };
    let measured = all(&tree, options, interrupt, &mut progress, &mut result);
    // Whatever happened: nothing half-built stays behind.
    let cleaned = tree.clean(&Interrupt::manual());
    match measured {
        Err(HostError::Interrupted) if !result.loads.is_empty() => result.interrupted = true,
        other => other?,
    }
    cleaned?;
    progress.finish();
    Ok(result)
}

/// The builds of every load, in order, after one that is not timed.
fn all(
    tree: &Tree<'_>,
    options: &Options,
    interrupt: &Interrupt,
    progress: &mut Progress,
    result: &mut Kernbench,
) -> Result<(), HostError> {
    let build = |load: Load| {
        tree.clean(interrupt)?;
        tree.build(&load.jobs(super::cpus()), interrupt)
    };
    build(Load::PerCpu(2))?;
    progress.advance(1);
    for &load in &options.loads {
        let jobs = load.jobs(super::cpus());
        progress.relabel(format!("make {jobs} {}", options.target));
        let builds = Interleaved::collect(options.passes, options.seed, |_| {
            let build = build(load)?;
            progress.advance(1);
            Ok(build)
        })?;
        let interrupted = builds.interrupted;
        result.loads.push(Built { load, builds });
        if interrupted {
            return Err(HostError::Interrupted);
        }
    }
    Ok(())
}

impl Built {
    /// The row of the block for one arm (an index of [`Interleaved::arms`]),
    /// averages over its passes.
    pub fn row(&self, label: &str, arm: usize) -> Row {
        let builds = &self.builds.arms[arm];
        let mean = |value: &dyn Fn(&Build) -> f64| {
            builds.iter().map(value).sum::<f64>() / builds.len().max(1) as f64
        };
        Row {
            label: label.to_owned(),
            elapsed_s: mean(&|build| build.elapsed_s),
            system_s: mean(&|build| build.usage.system_s),
            user_s: Some(mean(&|build| build.usage.user_s)),
            cpu_percent: Some(mean(&|build| {
                100.0 * (build.usage.system_s + build.usage.user_s) / build.elapsed_s
            })),
        }
    }
}
