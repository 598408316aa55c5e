//! Source 0: reverse mapping, partial against full object-based (March 2003), and
//! the four schemes of March 2004.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bench::{self, Job, Setting};
use super::judge::Change;
use super::model::{self, Section};
use super::published::{self, KERNELS_2003, KERNELS_2004, Kernbench, Kernels, ProfileLine};
use super::{
    BUILD, QUICK_BUILD, QUICK_SERVER, QUICK_SIMULATED_BUILD, SERVER, SIMULATED_BUILD, Traces,
    formats, profiles, rmap_test,
};
use crate::bench::{Findings, On, Run};
use crate::failure::Failure;
use crate::scale::Kept;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::table::grouped;
use vellum_trace::TraceReader;
use vellum_trace::model::Model;

/// Changes of a published kernbench below this are taken as noise, in percent:
/// the posts give no deviation, and their author calls such changes none.
pub(super) const KERNBENCH_NOISE: f64 = 1.0;

/// Changes of a throughput whose deviation was not published that are noise, in
/// percent: what SDET deviated by from 4 scripts on in 2003.
pub(super) const SDET_NOISE: f64 = 1.5;

/// Memory of each simulated machine in the replays, in bytes; less of it where
/// only a part is replayed.
const RAM: u64 = 2 << 30;
const QUICK_RAM: u64 = RAM / 2;

/// Designs that came later or are ours, shown beside the published four.
pub(super) const LATER: &[&str] = &["anon_vma_chain"];

/// What a section works with.
pub struct Task<'t> {
    /// How to measure.
    pub setting: &'t Setting,
    /// Whether to stop.
    pub interrupt: &'t Interrupt,
    /// Simulations that need not be run again.
    pub(super) all_kept: &'t Mutex<Kept>,
    /// Where the other traces are.
    pub(super) traces: &'t Traces<'t>,
}

impl Task<'_> {
    /// Simulations that need not be run again. Nobody leaves them half changed.
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.all_kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel build's trace, or the part of it that is replayed.
    ///
    /// # Errors
    /// It is missing or cannot be read. Only the sections that need it fail by that.
    pub fn build(&self) -> Result<std::path::PathBuf, Failure> {
        self.traces.get(BUILD, QUICK_BUILD)
    }

    /// The part of the kernel build that is replayed on simulated machines.
    ///
    /// # Errors
    /// As [`Task::build`].
    pub fn simulated_build(&self) -> Result<std::path::PathBuf, Failure> {
        let part = match self.setting.quick {
            true => QUICK_SIMULATED_BUILD,
            false => SIMULATED_BUILD,
        };
        self.traces.get(BUILD, part)
    }

    /// The snapshot server's trace, or the part of it that is replayed.
    ///
    /// # Errors
    /// It is missing or cannot be read. Only the sections that need it fail by that.
    pub fn server(&self) -> Result<std::path::PathBuf, Failure> {
        self.traces.get(SERVER, QUICK_SERVER)
    }
}

/// A function that makes one section.
pub type Make = fn(&Task<'_>, &mut Section) -> Result<(), Failure>;

/// A section: title, sources, how it is made.
pub type Entry = (&'static str, &'static [published::Source], Make);

/// The sections in order.
pub const SECTIONS: &[Entry] = &[
    (
        "kernbench, March 2003",
        &[published::MARCH_2003],
        kernbench_2003,
    ),
    (
        "kernbench, March 2004",
        &[published::MARCH_2004],
        kernbench_2004,
    ),
    ("SDET, March 2003", &[published::MARCH_2003], sdet_2003),
    ("SDET, March 2004", &[published::MARCH_2004], sdet_2004),
    ("diffprofiles", &[published::MARCH_2003], diffprofiles),
    ("singletons", &[published::MARCH_2003], singletons),
    (
        "rmap-test",
        &[published::RMAP_TEST_2003, published::RMAP_TEST_2004],
        rmap_test::under_pressure,
    ),
    (
        "lookups of rmap-test",
        &[published::RMAP_TEST_2003, published::RMAP_TEST_2004],
        rmap_test::by_scanner,
    ),
];

/// The designs of a published table that this build has, in option syntax. Those
/// that it has not become rows without a figure.
fn designs(wanted: &[&'static str], section: &mut Section) -> Vec<&'static str> {
    let (there, missing) = bench::available("rmap", wanted);
    for design in missing {
        let why = format!("this build has no rmap={design}");
        section
            .comparisons
            .push(model::missing(design, "-".to_owned(), why));
    }
    there
}

/// The schemes of a comparison, in its order.
pub(super) fn schemes(kernels: &Kernels) -> Vec<&'static str> {
    kernels.iter().map(|kernel| kernel.0).collect()
}

/// The designs of schemes: the kernel that a comparison has for one, or, for what
/// came later, the base kernel with that scheme and with trees of regions, as all later
/// kernels had them; for ours with the regions as ours has them.
pub(super) fn options(names: &[&str], kernels: &Kernels) -> Vec<String> {
    let of = |name: &&str| match kernels.iter().find(|kernel| kernel.0 == *name) {
        Some((_, kernel)) => format!("as={kernel}"),
        None => {
            let is_ours = *name == bench::default_of("rmap");
            let regions = match is_ours {
                true => bench::default_of("regions"),
                false => "tree",
            };
            format!("as={},rmap={name},regions={regions}", kernels[0].1)
        }
    };
    names.iter().map(of).collect()
}

fn kernbench_2003(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    kernbench(task, section, KERNELS_2003, &[], &|load| {
        published::KERNBENCH_2003[load].to_vec()
    })
}

fn kernbench_2004(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    kernbench(task, section, KERNELS_2004, LATER, &|load| {
        published::KERNBENCH_2004[load].to_vec()
    })
}

/// The wanted designs that exist, then those of `later` and the default.
pub(super) fn with_later(
    wanted: &[&'static str],
    later: &[&'static str],
    section: &mut Section,
) -> Vec<&'static str> {
    let mut all = designs(wanted, section);
    let default = bench::default_of("rmap");
    let (later, _) = bench::available("rmap", later);
    for design in later.into_iter().chain([default]) {
        // The comparison of 2003 is of two kernels; nothing is added to it.
        if wanted.len() > 2 && !all.contains(&design) {
            all.push(design);
        }
    }
    all
}

fn kernbench(
    task: &Task<'_>,
    section: &mut Section,
    kernels: &Kernels,
    later: &[&'static str],
    published: &dyn Fn(usize) -> Vec<Kernbench>,
) -> Result<(), Failure> {
    let wanted = &schemes(kernels);
    for (load, title) in published::LOADS.iter().enumerate() {
        let table = formats::kernbench(title, &published(load));
        section.tables.push(("published".to_owned(), table));
    }
    section.method.push(
        "copies of the recorded kernel build at once stand for the load; System is CPU time in \
         the core, Elapsed the wall clock of the replay; no user code runs"
            .to_owned(),
    );
    let all = with_later(wanted, later, section);
    if all.len() < 2 {
        return Err(Failure::failed(
            "there are not two of the designs to compare",
        ));
    }
    let mut job = Job::new("kernbench", &options(&all, kernels));
    job.traces = vec![task.build()?];
    job.ram_bytes = Some(if task.setting.quick { QUICK_RAM } else { RAM });
    let findings = task.setting.run(&job, On::Core, task.interrupt)?;
    for (load, run) in findings.runs.iter().enumerate() {
        let labels: Vec<String> = all.iter().map(|name| (*name).to_owned()).collect();
        let block = bench::kernbench_block(published::LOADS[load.min(2)], run, &labels);
        section.tables.push((format!("ours: {}", run.title), block));
        let rows = published(load.min(2));
        for (arm, design) in all.iter().enumerate().skip(1) {
            let ours = bench::change(main_arm(run, arm)?);
            let what = format!("{}: System, {design} against {}", loads(load), all[0]);
            let place = wanted.iter().position(|name| name == design);
            let base = wanted.iter().position(|name| *name == all[0]);
            section.comparisons.push(match (place, base) {
                (Some(place), Some(base)) => {
                    let (old, new) = (rows[base].system_s, rows[place].system_s);
                    let published = Change::between(old, new, KERNBENCH_NOISE);
                    model::of_changes(what, published, ours)
                }
                _ => model::beside(what, "-".to_owned(), ours.to_string(), "came later"),
            });
        }
    }
    interrupted(&findings)
}

/// The arm of the first figure of a run: the time of the whole.
fn main_arm(run: &Run, arm: usize) -> Result<&crate::bench::findings::ArmFigure, Failure> {
    let figure = run.figures.first();
    let arm = figure.and_then(|figure| figure.arms.get(arm));
    arm.ok_or_else(|| Failure::failed(format!("the run `{}` has no figure", run.title)))
}

pub(super) fn interrupted(findings: &Findings) -> Result<(), Failure> {
    match findings.interrupted {
        true => Err(Failure::interrupted("interrupted")),
        false => Ok(()),
    }
}

pub(super) fn loads(load: usize) -> &'static str {
    ["2 x CPUs", "16 x CPUs", "unlimited"][load.min(2)]
}

fn sdet_2003(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let published: Vec<Vec<(f64, Option<f64>)>> = published::SDET_2003
        .iter()
        .map(|rows| rows.iter().map(|(mean, sd)| (*mean, Some(*sd))).collect())
        .collect();
    let labels = ["2.5.65-mm2", "2.5.65-mm3"];
    sdet(task, section, KERNELS_2003, &labels, &published)
}

fn sdet_2004(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let published: Vec<Vec<(f64, Option<f64>)>> = published::SDET_2004
        .iter()
        .map(|row| row.iter().map(|mean| (*mean, None)).collect())
        .collect();
    let labels = ["virgin", "partial", "hugh", "anon_vma"];
    sdet(task, section, KERNELS_2004, &labels, &published)
}

fn sdet(
    task: &Task<'_>,
    section: &mut Section,
    kernels: &Kernels,
    labels: &[&str],
    published: &[Vec<(f64, Option<f64>)>],
) -> Result<(), Failure> {
    let wanted = &schemes(kernels);
    let scripts = task.setting.scripts()?;
    section.method.push(format!(
        "up to {} different recorded scripts at once, then copies of them; sdet-like and not SDET \
         (a registered benchmark of SPEC); throughput is scripts for CPU time in the core",
        scripts.len()
    ));
    let all = with_later(wanted, LATER, section);
    if all.len() < 2 {
        return Err(Failure::failed(
            "there are not two of the designs to compare",
        ));
    }
    let mut job = Job::new("sdet", &options(&all, kernels));
    job.traces = scripts;
    let most = if task.setting.quick { 2 } else { 128 };
    job.sizes = vec![format!("most={most}")];
    job.ram_bytes = task.setting.quick.then_some(QUICK_RAM);
    let findings = task.setting.run(&job, On::Core, task.interrupt)?;
    let tables = published.iter().zip(published::SDET_SCRIPTS);
    for ((published, scripts), run) in tables.zip(&findings.runs) {
        let rows = published.iter().zip(labels);
        let rows = rows.map(|((mean, sd), label)| ((*label).to_owned(), *mean, *sd));
        let ours = all.iter().enumerate().map(|(arm, design)| {
            let arm = main_arm(run, arm)?;
            let percent = 100.0 / arm.ratio;
            Ok(((*design).to_owned(), percent, bench::deviation_percent(arm)))
        });
        let ours = ours.collect::<Result<Vec<_>, Failure>>()?;
        let beside = formats::beside(
            &formats::sdet("SDET", scripts, &rows.collect::<Vec<_>>()),
            &formats::sdet("SDET-like", scripts, &ours),
        );
        section
            .tables
            .push(("published, and ours".to_owned(), beside));
        for (arm, design) in all.iter().enumerate().skip(1) {
            let ours = bench::throughput_change(main_arm(run, arm)?);
            let what = format!("N = {scripts}: {design} against {}", all[0]);
            let place = wanted.iter().position(|name| name == design);
            let base = wanted.iter().position(|name| *name == all[0]);
            section.comparisons.push(match (place, base) {
                (Some(place), Some(base)) => {
                    let ((old, old_sd), (new, new_sd)) = (published[base], published[place]);
                    let noise = match old_sd.zip(new_sd) {
                        Some((old, new)) => old.hypot(new),
                        None => SDET_NOISE,
                    };
                    model::of_changes(what, Change::between(old, new, noise), ours)
                }
                _ => model::beside(what, "-".to_owned(), ours.to_string(), "came later"),
            });
        }
    }
    interrupted(&findings)
}

fn diffprofiles(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let (kernbench, sdet) = (
        published::DIFFPROFILE_KERNBENCH,
        published::DIFFPROFILE_SDET,
    );
    for (what, profile) in [("kernbench", kernbench), ("sdet", sdet)] {
        let heading = format!("published: diffprofile ({what}, + worse in -mm3)");
        section
            .tables
            .push((heading, formats::diffprofile(profile)));
    }
    let there = designs(&schemes(KERNELS_2003), section);
    let ours = match there.len() {
        2 => profiles::take(task, &options(&there, KERNELS_2003)),
        _ => Err(Failure::failed("there are not two designs to profile")),
    };
    let share = |profile: &[ProfileLine], group: &[&str]| {
        let ticks = published::group_sum(profile, group);
        let total = published::total_ticks(profile).unwrap_or(f64::NAN);
        (ticks, 100.0 * ticks as f64 / total)
    };
    let mut rows = Vec::new();
    for (what, profile) in [("kernbench", kernbench), ("sdet", sdet)] {
        let (ticks, percent) = share(profile, published::RMAP_GROUP);
        rows.push((what, format!("{ticks:+} ticks ({percent:+.2} % of all)")));
        let (ticks, _) = share(profile, published::SET_PAGE_DIRTY_GROUP);
        let what = format!("{what}: set_page_dirty under both its names");
        let why = "one function that was renamed: no change".to_owned();
        let row = model::missing(what, format!("{ticks:+} ticks"), why);
        section.comparisons.push(row);
    }
    match ours {
        Ok(profiles) => {
            for ((what, published), ours) in rows.into_iter().zip(profiles) {
                section.tables.push((ours.heading, ours.lines));
                section.comparisons.push(model::beside(
                    format!("{what}: sum of the rmap group"),
                    published,
                    ours.rmap,
                    &ours.says,
                ));
            }
            Ok(())
        }
        Err(failure) => {
            for (what, published) in rows {
                let what = format!("{what}: sum of the rmap group");
                let row = model::missing(what, published, "not profiled, see below");
                section.comparisons.push(row);
            }
            Err(failure)
        }
    }
}

/// The share of anonymous pages that never had more than one mapper, in each
/// shipped trace.
fn singletons(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "anonymous pages of a recorded workload that never had a second mapper; the published \
         share is of mappings at one moment"
            .to_owned(),
    );
    let setting = task.setting;
    let traces = [
        task.build()?,
        task.server()?,
        setting.trace("sdet-like.vellum")?,
    ];
    for path in traces {
        let trace = TraceReader::open(&path)?;
        let mut model = Model::default();
        for event in trace.events() {
            if task.interrupt.requested() {
                return Err(Failure::interrupted("interrupted"));
            }
            model.take(&event?);
        }
        let totals = model.totals();
        let single = totals.anonymous - totals.shared_by_fork;
        let share = 100.0 * single as f64 / totals.anonymous.max(1) as f64;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let what = format!("singletons, {name}");
        let published = format!("{:.0} %", 100.0 * published::SINGLETON_SHARE);
        let ours = format!("{share:.1} % of {}", grouped(totals.anonymous));
        // The shares that are not singletons are what designs differ by.
        let others = (100.0 - share) / (100.0 * (1.0 - published::SINGLETON_SHARE));
        let mut row = model::beside(what, published, ours, "agrees");
        if !(0.5..=2.0).contains(&others) {
            row.says = format!("DISAGREES: {others:.2} x as many are shared");
            row.disagrees = true;
        }
        section.comparisons.push(row);
    }
    Ok(())
}
