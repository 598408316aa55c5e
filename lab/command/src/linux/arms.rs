//! Passes of replays that differ in what the host is to do, interleaved.
//!
//! The first arm is the one that the others are held against; the control is the first once more.
//! What a replay itself takes is in every arm alike and cancels in their differences.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::files::ScratchFiles;
use super::plan::Plan;
use super::sys::Pinned;
use super::tree::{self, Mode};
use super::{LinuxError, supported};
use crate::compare::order::orders;
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What each arm does; the control is not among them.
    pub arms: Vec<Mode>,
    /// Passes at most.
    pub passes: usize,
    /// Time after which no pass begins that is not needed for an interval.
    pub budget: Duration,
    /// Seed of the order of the arms.
    pub seed: u64,
    /// Where scratch files go.
    pub scratch: Option<PathBuf>,
    /// How to show progress.
    pub style: Style,
}

/// What was measured, by arm; the control is the last.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Measured {
    /// CPU time of the whole tree in each pass, in nanoseconds.
    pub cpu_ns: Vec<Vec<u64>>,
    /// Page faults of the tree in the last pass.
    pub faults: Vec<u64>,
    /// The user stopped before the last pass.
    pub interrupted: bool,
}

/// Prepares the host for an arm, by its number.
pub type Prepare<'p> = &'p mut dyn FnMut(usize) -> Result<(), LinuxError>;

/// Replays `plan` as each arm does, in turn.
///
/// # Errors
/// A replay failed, or the user interrupts before the first pass is complete. An
/// interruption later ends the series early.
pub fn measure(
    plan: &Plan,
    settings: &Settings,
    prepare: Prepare<'_>,
    interrupt: &Interrupt,
) -> Result<Measured, LinuxError> {
    supported()?;
    let _pinned = Pinned::here().map_err(LinuxError::io("staying on one CPU"))?;
    let files = ScratchFiles::new(settings.scratch.as_deref(), &plan.files)?;
    let arms = settings.arms.len() + 1;
    let steps = (plan.steps.len() * arms * (settings.passes + 1)) as u64;
    let mut progress = Progress::new(settings.style, "warming up, on the host", steps, "steps");
    let mut measured = Measured {
        cpu_ns: vec![Vec::new(); arms],
        faults: vec![0; arms],
        interrupted: false,
    };
    let begun = Instant::now();
    // The pass that warms up the kernel's caches does not count.
    for pass in 0..=settings.passes {
        if pass > LEAST_PASSES && begun.elapsed() > settings.budget {
            break;
        }
        progress.relabel(format!("on the host, pass {pass} of {}", settings.passes));
        let mut times = vec![(0, 0); arms];
        let order = orders(1, arms, pass, settings.seed).remove(0);
        let done = order.into_iter().try_for_each(|arm| {
            let mode = settings.arms.get(arm).unwrap_or(&settings.arms[0]);
            prepare(if arm < settings.arms.len() { arm } else { 0 })?;
            let step = &mut |steps| progress.advance(steps);
            let replayed = tree::replay(plan, &files, *mode, false, interrupt, step)?;
            times[arm] = (replayed.cpu_ns, replayed.faults);
            Ok(())
        });
        match done {
            Ok(()) if pass == 0 => {}
            Ok(()) => {
                for (arm, (cpu_ns, faults)) in times.into_iter().enumerate() {
                    measured.cpu_ns[arm].push(cpu_ns);
                    measured.faults[arm] = faults;
                }
            }
            Err(LinuxError::Interrupted) if pass > 1 => {
                measured.interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    progress.finish();
    Ok(measured)
}
