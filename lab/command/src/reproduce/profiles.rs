//! Sampling profiles of two designs, beside the published diffprofiles.

use std::path::PathBuf;

use super::task::Task;
use crate::compare::{Arenas, HostClock, Settings, attached, measure};
use crate::designs;
use crate::failure::Failure;
use crate::replay;
use crate::sampled;
use vellum_profile::diffprofile::{self, diffprofile};
use vellum_profile::sample::DEFAULT_RATE_HZ;
use vellum_terminal::text::plural;

/// Memory of each simulated machine, in bytes.
const RAM: u64 = 2 << 30;

/// Copies of each of the eight scripts under the profile of sdet: sixteen at
/// once.
const COPIES: u32 = 2;

/// Passes of a quick reproduction at least. One takes so little time that now and then no sample
/// of it is taken.
const QUICK_PASSES: usize = 12;

/// Our profile of one workload.
pub struct Ours {
    /// Heading of the table.
    pub heading: String,
    /// The lines, in the published format.
    pub lines: String,
    /// What became of the rmap group.
    pub rmap: String,
    /// What to make of it.
    pub says: String,
}

/// Profiles `designs`, old and new, on a kernel build and on scripts.
///
/// # Errors
/// A trace is missing, the replay failed, or sampling is refused.
pub fn take(task: &Task<'_>, designs: &[String]) -> Result<[Ours; 2], Failure> {
    let scripts = task.setting.scripts()?;
    let build = [task.build()?];
    Ok([
        of_workload(task, designs, "kernbench", &build, 1)?,
        match task.setting.quick {
            true => of_workload(task, designs, "sdet", &scripts[..2], 1)?,
            false => of_workload(task, designs, "sdet", &scripts, COPIES)?,
        },
    ])
}

fn of_workload(
    task: &Task<'_>,
    designs: &[String],
    name: &str,
    traces: &[PathBuf],
    copies: u32,
) -> Result<Ours, Failure> {
    let setting = task.setting;
    let passes = match setting.quick {
        true => setting.passes.max(QUICK_PASSES),
        false => setting.passes,
    };
    let options = replay::Options {
        copies,
        seed: setting.seed,
        ..replay::Options::default()
    };
    let (_, workload) = designs::load(traces, designs, options, setting.style)?;
    let settings = Settings {
        designs: designs.to_vec(),
        passes,
        slice_us: 1000,
        seed: setting.seed,
        style: setting.style,
        divergence_limit: 0.01,
        by_class: false,
        only_needed: false,
        entries: false,
    };
    let arenas = Arenas::new(settings.arms(), 1, RAM);
    let profiler = sampled::profiler(DEFAULT_RATE_HZ)?;
    measure(
        &workload,
        &attached(&arenas, Some(&profiler)),
        &HostClock::new(),
        &settings,
        task.interrupt,
    )
    .map_err(|error| match task.interrupt.requested() {
        true => Failure::interrupted("interrupted"),
        false => Failure::from(error),
    })?;
    let mut names = designs.to_vec();
    names.push("control".to_owned());
    let samples = profiler.finish(&names)?;
    let short = super::bench::short(&designs[1]).to_owned();
    let options = diffprofile::Options {
        title: name.to_owned(),
        ..diffprofile::Options::new(short)
    };
    let difference = diffprofile(&samples.profiles[0], &samples.profiles[1], &options);
    let rmap = difference.group("rmap");
    Ok(Ours {
        heading: format!(
            "ours: {} samples a second; {}",
            samples.rate_hz,
            plural(passes, "pass", "passes")
        ),
        lines: diffprofile::text(&difference, &options),
        rmap: match rmap {
            Some(rmap) => format!(
                "{:+} ticks of {} (+/- {:.0})",
                rmap.delta, difference.total.old, rmap.error
            ),
            None => "no ticks".to_owned(),
        },
        says: match rmap.is_some_and(|rmap| rmap.is_significant()) {
            true => "ours more than two standard errors".to_owned(),
            false => "ours within two standard errors".to_owned(),
        },
    })
}
