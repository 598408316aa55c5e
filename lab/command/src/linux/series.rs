//! Passes of replays, interleaved: the host's kernel, the same once more (the
//! control), the empty tree, and the core if there is one to compare with.
//!
//! A process cannot be stopped in the middle to let another arm run, so that a pass
//! is not cut into slices: passes are the unit of the statistics, and what disturbs
//! the machine for less than a pass does not cancel. In which order the arms run is
//! balanced over the passes as for any comparison ([`crate::compare::order`]).

use std::path::PathBuf;

use super::entry;
use super::files::ScratchFiles;
use super::kinds::HostKinds;
use super::plan::Plan;
use super::sys::Pinned;
use super::tree::{self, Mode, Replayed};
use super::{LinuxError, supported};
use crate::compare::order::orders;
use crate::host::HostError;
use crate::host::forkfault::Helper;
use vellum_results::linux::EntryCost;
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Passes.
    pub passes: usize,
    /// Whether each pass has the host twice.
    pub control: bool,
    /// Seed of the order of the arms.
    pub seed: u64,
    /// Where scratch files go.
    pub scratch: Option<PathBuf>,
    /// How to show progress.
    pub style: Style,
    /// The program that measures what entering the kernel costs.
    pub helper: Helper,
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub struct Series {
    /// The whole workload, by pass.
    pub full: Vec<Replayed>,
    /// Once more; empty without a control.
    pub control: Vec<Replayed>,
    /// The same processes without memory operations.
    pub empty: Vec<Replayed>,
    /// CPU time of the core in nanoseconds; empty without one.
    pub core_ns: Vec<u64>,
    /// By kind of operation, from replays of their own.
    pub kinds: HostKinds,
    /// What entering the kernel costs.
    pub entry: EntryCost,
    /// The CPU that everything ran on.
    pub cpu: usize,
    /// The user stopped before the last pass.
    pub interrupted: bool,
}

/// Replays the workload on the core: its CPU time in nanoseconds.
pub type Core<'c> = &'c mut dyn FnMut() -> Result<u64, LinuxError>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arm {
    Full,
    Empty,
    Control,
    Core,
}

/// Measures `plan`.
///
/// # Errors
/// A replay failed, or the user interrupts before the first pass is complete. An
/// interruption later ends the series early.
pub fn measure(
    plan: &Plan,
    settings: &Settings,
    mut core: Option<Core<'_>>,
    interrupt: &Interrupt,
) -> Result<Series, LinuxError> {
    supported()?;
    let pinned = Pinned::here().map_err(LinuxError::io("staying on one CPU"))?;
    let entry = entry::measure(&settings.helper, interrupt)?;
    let files = ScratchFiles::new(settings.scratch.as_deref(), &plan.files)?;
    let mut arms = vec![Arm::Full, Arm::Empty];
    if settings.control {
        arms.push(Arm::Control);
    }
    if core.is_some() {
        arms.push(Arm::Core);
    }
    let replays = arms.iter().filter(|arm| **arm != Arm::Core).count();
    let steps = plan.steps.len() as u64;
    let total = steps * (replays * settings.passes + 2) as u64;
    let mut progress = Progress::new(settings.style, "by kind, on the host", total, "steps");
    let run = |mode, timed, progress: &mut Progress| {
        let step = &mut |steps| progress.advance(steps);
        tree::replay(plan, &files, mode, timed, interrupt, step)
    };
    // This warms the kernel's caches, too.
    let kinds = HostKinds {
        empty: run(Mode::Empty, true, &mut progress)?.times,
        full: run(Mode::Full, true, &mut progress)?.times,
    };
    let mut series = Series {
        full: Vec::new(),
        control: Vec::new(),
        empty: Vec::new(),
        core_ns: Vec::new(),
        kinds,
        entry,
        cpu: pinned.cpu,
        interrupted: false,
    };
    for pass in 0..settings.passes {
        progress.relabel(format!("pass {} of {}", pass + 1, settings.passes));
        let mut host = [Replayed::default(); 3];
        let mut core_ns = 0;
        let order = orders(1, arms.len(), pass, settings.seed).remove(0);
        let done = order.into_iter().try_for_each(|arm| {
            match arms[arm] {
                Arm::Full => host[0] = run(Mode::Full, false, &mut progress)?,
                Arm::Empty => host[1] = run(Mode::Empty, false, &mut progress)?,
                Arm::Control => host[2] = run(Mode::Full, false, &mut progress)?,
                Arm::Core => {
                    if let Some(core) = &mut core {
                        core_ns = core()?;
                    }
                }
            }
            Ok(())
        });
        match done {
            Ok(()) => {
                series.full.push(host[0]);
                series.empty.push(host[1]);
                if settings.control {
                    series.control.push(host[2]);
                }
                if core.is_some() {
                    series.core_ns.push(core_ns);
                }
            }
            Err(LinuxError::Interrupted | LinuxError::Host(HostError::Interrupted)) if pass > 0 => {
                series.interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    progress.finish();
    Ok(series)
}
