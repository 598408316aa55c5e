//! Source 0: reverse mapping, partial against full object-based (March 2003), and
//! the four schemes of March 2004.

use std::path::PathBuf;

use super::bench::{self, Job};
use super::model::{self, Section};
use super::published::{self, KERNELS_2003, ProfileLine};
use super::schemes::{self, Schemes};
use super::task::{Entry, Task};
use super::{formats, profiles, rmap_test};
use crate::bench::{Findings, Run};
use crate::failure::Failure;
use crate::on::On;
use vellum_terminal::table::grouped;
use vellum_trace::TraceReader;
use vellum_trace::model::Model;

/// Memory of each simulated machine in the replays, in bytes; less of it where
/// only a part is replayed.
const RAM: u64 = 2 << 30;
const QUICK_RAM: u64 = RAM / 2;

/// The sections in order.
pub const SECTIONS: &[Entry] = &[
    (
        "kernbench, March 2003",
        &[published::MARCH_2003],
        schemes::kernbench_2003,
    ),
    (
        "kernbench, March 2004",
        &[published::MARCH_2004],
        schemes::kernbench_2004,
    ),
    (
        "SDET, March 2003",
        &[published::MARCH_2003],
        schemes::sdet_2003,
    ),
    (
        "SDET, March 2004",
        &[published::MARCH_2004],
        schemes::sdet_2004,
    ),
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

/// Kernbench under each load, replayed on the core.
pub(super) fn kernbench(
    task: &Task<'_>,
    section: &mut Section,
    schemes: &Schemes,
) -> Result<(), Failure> {
    section.method.push(
        "copies of the recorded kernel build at once stand for the load; System is CPU time in \
         the core, Elapsed the wall clock of the replay; no user code runs"
            .to_owned(),
    );
    let mut job = Job::new("kernbench", &schemes.designs);
    job.traces = vec![task.build()?];
    job.ram_bytes = Some(if task.setting.quick { QUICK_RAM } else { RAM });
    let findings = task.setting.run(&job, On::Core, task.interrupt)?;
    let labels: Vec<String> = schemes
        .names
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    for (load, run) in findings.runs.iter().enumerate() {
        let block = bench::kernbench_block(published::LOADS[load.min(2)], run, &labels);
        section.tables.push((format!("ours: {}", run.title), block));
        for arm in 1..schemes.names.len() {
            let ours = bench::change(main_arm(run, arm)?);
            schemes.system_time(section, load, arm, ours);
        }
    }
    interrupted(&findings)
}

/// SDET with each number of scripts, replayed on the core.
pub(super) fn sdet(
    task: &Task<'_>,
    section: &mut Section,
    schemes: &Schemes,
    scripts: Vec<PathBuf>,
) -> Result<(), Failure> {
    section.method.push(format!(
        "up to {} different recorded scripts at once, then copies of them; sdet-like and not SDET \
         (a registered benchmark of SPEC); throughput is scripts for CPU time in the core",
        scripts.len()
    ));
    let mut job = Job::new("sdet", &schemes.designs);
    job.traces = scripts;
    let most = if task.setting.quick { 2 } else { 128 };
    job.sizes = vec![format!("most={most}")];
    job.ram_bytes = task.setting.quick.then_some(QUICK_RAM);
    let findings = task.setting.run(&job, On::Core, task.interrupt)?;
    let rows = published::SDET_SCRIPTS.into_iter().zip(&findings.runs);
    for (row, (at_once, run)) in rows.enumerate() {
        let ours = schemes.names.iter().enumerate().map(|(arm, design)| {
            let arm = main_arm(run, arm)?;
            let percent = 100.0 / arm.ratio;
            Ok(((*design).to_owned(), percent, bench::deviation_percent(arm)))
        });
        let ours = ours.collect::<Result<Vec<_>, Failure>>()?;
        let beside = formats::beside(
            &formats::sdet("SDET", at_once, &schemes.published_sdet(row)),
            &formats::sdet("SDET-like", at_once, &ours),
        );
        section
            .tables
            .push(("published, and ours".to_owned(), beside));
        for arm in 1..schemes.names.len() {
            let ours = bench::throughput_change(main_arm(run, arm)?);
            let what = format!("N = {at_once}: ");
            schemes.throughput(section, (row, &what), arm, ours);
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
    let wanted = schemes::schemes(KERNELS_2003);
    let there = schemes::designs(&wanted, section);
    let ours = match there.len() {
        2 => profiles::take(task, &schemes::options(&there, KERNELS_2003)),
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
