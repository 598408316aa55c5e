//! Workloads on the host's own kernel: `vellum bench NAME --on linux`.
//!
//! Real processes doing real work: kernel builds ([`kernbench`], [`kolivas`], [`buildkernel`]),
//! scripts of small commands ([`sdet`]), the fork-and-fault program ([`forkfault`]), `dd` to a
//! tmpfs ([`loopdd`]), and mappings of a file ([`lat_mmap`]). Times are those of the whole kernel,
//! traps included, and therefore not those of the core; each result says so. A result has two arms,
//! the kernel and the same kernel once more ([`interleave`]).

pub mod buildkernel;
pub mod forkfault;
pub mod interleave;
pub mod kernbench;
pub mod kolivas;
pub mod lat_mmap;
pub mod loopdd;
pub mod sdet;
pub mod tmpfs;
pub mod tree;

use std::path::Path;

use super::findings::{Arm, Figure, Findings, Input, Run, arms_of, figure_of};
use super::request::Request;
use crate::failure::Failure;
use crate::host::{HostError, kernel_release};
use vellum_terminal::progress::{Interrupt, Progress};

pub use interleave::Interleaved;

/// Clock of everything that is timed from outside.
const WALL: &str = "monotonic clock";

/// How the kernel accounts for processes.
const RUSAGE: &str = "CPU time of all processes (wait4)";

/// What every result on a host says.
const ONE_KERNEL: &str = "On a host there is one kernel: A' is the same kernel again, in \
     alternating order. What it differs by is what another kernel's figure must differ by to mean \
     something.";

/// Findings of this kernel beside itself, without a run.
pub fn of_this_kernel() -> Findings {
    Findings {
        arms: arms_of(&[kernel_release()], &[]),
        notes: vec![ONE_KERNEL.to_owned()],
        ..Findings::default()
    }
}

/// A benchmark on the host's kernel while it runs.
#[derive(Debug)]
pub struct Host<'h> {
    /// What is asked for.
    pub request: &'h Request,
    /// Whether to stop.
    pub interrupt: &'h Interrupt,
    /// What is complete.
    pub findings: Findings,
}

/// Measures on the host's kernel as `measure` says. An interruption keeps what is complete.
///
/// # Errors
/// The arguments do not fit or programs are missing, something failed, or the user
/// interrupted before anything was complete.
pub fn run(
    measure: fn(&mut Host<'_>) -> Result<(), HostError>,
    request: &Request,
    interrupt: &Interrupt,
) -> Result<Findings, Failure> {
    let mut host = Host {
        request,
        interrupt,
        findings: of_this_kernel(),
    };
    match measure(&mut host) {
        Ok(()) => {}
        Err(HostError::Interrupted) if !host.findings.runs.is_empty() => {
            host.findings.interrupted = true;
        }
        Err(error) => return Err(error.into_failure()),
    }
    Ok(host.findings)
}

impl<'h> Host<'h> {
    /// What `work` finds for each arm in each pass.
    fn collect<T>(
        &self,
        mut work: impl FnMut() -> Result<T, HostError>,
    ) -> Result<Interleaved<T>, HostError> {
        let request = self.request;
        Interleaved::collect(request.passes, request.method.seed, |_| work())
    }

    /// Progress over so many steps.
    fn progress(&self, label: &str, steps: usize, what: &'static str) -> Progress {
        Progress::new(self.request.style, label, steps as u64, what)
    }

    /// A figure of the times of each arm and pass, in parts.
    fn figure_of<T>(
        &self,
        (name, per, units): (&str, &str, f64),
        clock: &'static str,
        runs: &Interleaved<T>,
        spread_units: Option<f64>,
        parts: impl Fn(&T) -> Vec<u64>,
    ) -> Figure {
        let arms = runs.arms.iter();
        let input = Input {
            name,
            per,
            units,
            clock,
            times: arms.map(|arm| arm.iter().map(&parts).collect()).collect(),
            spread_units,
        };
        figure_of(&input, &self.request.method)
    }

    /// A figure of one value for each arm and pass.
    fn figure<T>(
        &self,
        of: (&str, &str, f64),
        clock: &'static str,
        runs: &Interleaved<T>,
        seconds: impl Fn(&T) -> f64,
    ) -> Figure {
        self.figure_of(of, clock, runs, None, |one| {
            vec![(seconds(one) * 1e9) as u64]
        })
    }

    /// Keeps a run, which `runs` are the passes of.
    ///
    /// # Errors
    /// The user wants no more.
    fn keep<T>(&mut self, runs: &Interleaved<T>, run: Run) -> Result<(), HostError> {
        self.findings.runs.push(Run {
            passes: runs.passes(),
            ..run
        });
        match runs.interrupted {
            true => Err(HostError::Interrupted),
            false => Ok(()),
        }
    }

    /// The tree of a kernel, of which the benchmark wants one that is `what`.
    fn tree(&self, what: &str) -> Result<&'h Path, HostError> {
        self.request.tree.as_deref().ok_or_else(|| {
            HostError::Unsupported(format!(
                "{} on linux builds a kernel: give {what} with --tree PATH",
                self.request.benchmark.name
            ))
        })
    }
}

/// The label of an arm in a historic table: the kernel, marked if it is the
/// control.
fn row_label(arm: &Arm) -> String {
    match arm.label.ends_with('\'') {
        true => format!("{} again", arm.given),
        false => arm.given.clone(),
    }
}
