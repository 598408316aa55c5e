//! Kernel builds on the host: kernbench as Martin Bligh posted its results.
//!
//! `make -j N TARGET` of a configured kernel tree, N = 2 and 16 times the CPUs
//! and unlimited, from `make clean` each time. Elapsed time is the wall clock's,
//! system and user time those of the whole tree of processes as `wait4` reports
//! them. One build before the first is not timed: it brings compiler and sources
//! into memory and makes the tools that `make clean` leaves in place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Serialize;

use super::interleave::Interleaved;
use super::job::{self, Job, Usage};
use super::{HostError, scratch, tools};
use crate::report::kernbench::Row;
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// What building a kernel needs at least; the tree's own checks name the rest.
const TOOLS: &[tools::Tool] = &[
    tools::Tool {
        program: "make",
        package: "make",
    },
    tools::Tool {
        program: "gcc",
        package: "gcc",
    },
    tools::Tool {
        program: "ld",
        package: "binutils",
    },
    tools::Tool {
        program: "flex",
        package: "flex",
    },
    tools::Tool {
        program: "bison",
        package: "bison",
    },
    tools::Tool {
        program: "bc",
        package: "bc",
    },
];

/// How many jobs `make` may run at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
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

/// One build.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Wall-clock seconds.
    pub elapsed_s: f64,
    /// CPU time of the whole tree of processes.
    pub usage: Usage,
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
    tools::require(TOOLS)?;
    let tree = Tree::open(&options.tree, &options.target)?;
    let steps = 1 + 2 * options.loads.len() * options.passes;
    let mut progress = Progress::new(options.style, "warming up", steps as u64, "builds");
    let mut result = Kernbench {
        loads: Vec::new(),
        interrupted: false,
    };
    let measured = tree.all(options, interrupt, &mut progress, &mut result);
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

/// A kernel tree that can be built.
struct Tree<'o> {
    path: &'o Path,
    target: &'o str,
}

impl<'o> Tree<'o> {
    fn open(path: &'o Path, target: &'o str) -> Result<Self, HostError> {
        let refused = |what: &str| HostError::Tree {
            path: path.to_owned(),
            what: what.to_owned(),
        };
        let makefile = fs::read_to_string(path.join("Makefile")).unwrap_or_default();
        if !makefile.contains("KERNELRELEASE") {
            return Err(refused(
                "not a kernel tree; unpack one, for instance /usr/src/linux-source-*.tar.xz of \
                 Debian's linux-source package, and give its directory",
            ));
        }
        if !path.join(".config").is_file() {
            return Err(refused(
                "not configured; run for instance `make tinyconfig` in it",
            ));
        }
        if target.is_empty() || target.starts_with('-') || target.contains('=') {
            return Err(HostError::Tree {
                path: path.to_owned(),
                what: format!("`{target}` is not a target of make"),
            });
        }
        Ok(Tree { path, target })
    }

    fn all(
        &self,
        options: &Options,
        interrupt: &Interrupt,
        progress: &mut Progress,
        result: &mut Kernbench,
    ) -> Result<(), HostError> {
        self.build(Load::PerCpu(2), interrupt)?;
        progress.advance(1);
        for &load in &options.loads {
            let jobs = load.jobs(super::cpus());
            progress.relabel(format!("make {jobs} {}", self.target));
            let builds = Interleaved::collect(options.passes, options.seed, |_| {
                let build = self.build(load, interrupt)?;
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

    /// One build from a clean tree.
    fn build(&self, load: Load, interrupt: &Interrupt) -> Result<Build, HostError> {
        self.clean(interrupt)?;
        self.make(&[&load.jobs(super::cpus()), self.target], interrupt)
    }

    fn clean(&self, interrupt: &Interrupt) -> Result<(), HostError> {
        self.make(&["clean"], interrupt).map(drop)
    }

    fn make(&self, arguments: &[&str], interrupt: &Interrupt) -> Result<Build, HostError> {
        let text = format!("make {} in {}", arguments.join(" "), self.path.display());
        let failed = || HostError::io(format!("running {text}"));
        let errors = scratch::unnamed_file().map_err(failed())?;
        let mut command = Command::new("make");
        command
            .args(arguments)
            .current_dir(self.path)
            // A make that called this program must not hand on its options.
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors.try_clone().map_err(failed())?);
        let begun = Instant::now();
        let mut jobs = [Job::start(&mut command).map_err(failed())?];
        job::finish(&mut jobs, interrupt, |_, ended| {
            match ended.status.success() {
                true => Ok(()),
                false => Err(HostError::Command {
                    command: text.clone(),
                    ending: ended.status.to_string(),
                    output: scratch::last_lines(errors.try_clone()),
                }),
            }
        })?;
        let ended = jobs[0].ended();
        let ended = ended.expect("a finished job has ended");
        Ok(Build {
            elapsed_s: (ended.at - begun).as_secs_f64(),
            usage: ended.usage,
        })
    }
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
