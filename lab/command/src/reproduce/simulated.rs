//! Source 0 on a whole simulated machine: kernbench, SDET and where the time went, with as
//! many CPUs as the published figures were taken on.

use std::path::PathBuf;

use super::bench::Simulated;
use super::formats;
use super::judge::{Change, Evidence};
use super::model::Section;
use super::published;
use super::schemes::{Schemes, loads};
use super::task::{Entry, Task};
use super::zero;
use crate::failure::Failure;
use crate::report::kernbench;
use crate::scale::waits::profile;
use crate::simulate::{Purpose, Wanted, load, measure_others, text, to_base, trusted};
use vellum_profile::diffprofile::{self, diffprofile};
use vellum_results::sim::{Findings, Ratio};
use vellum_terminal::text::plural;

/// Copies of the part of the kernel build that stand for the three loads: jobs beside the
/// CPUs as in the published ones, as far as one can have them.
const COPIES: [u32; 3] = [2, 8, 16];
const QUICK_COPIES: [u32; 3] = [1, 1, 2];

/// Scripts at once at the most.
const SCRIPTS: u64 = 128;
const QUICK_SCRIPTS: u64 = 2;

/// Samples of seeds that intervals are from.
const RESAMPLES: usize = 2000;

/// The sections in order: those that replay traces.
pub const SECTIONS: &[Entry] = zero::SECTIONS.split_at(4).0;

/// What is replayed in a section, under which designs.
pub(super) struct Compared<'c> {
    pub task: &'c Task<'c>,
    /// Names of the designs, the base first.
    pub names: Vec<&'static str>,
    pub designs: Vec<String>,
}

impl<'c> Compared<'c> {
    /// The schemes of a published comparison.
    fn of(task: &'c Task<'c>, schemes: &Schemes) -> Compared<'c> {
        Compared {
            task,
            names: schemes.names.clone(),
            designs: schemes.designs.clone(),
        }
    }

    /// Replays `traces` at once, each so many times.
    pub(super) fn on(
        &self,
        on: &Simulated,
        traces: &[PathBuf],
        copies: u32,
    ) -> Result<Findings, Failure> {
        let setting = self.task.setting;
        let wanted = Wanted {
            traces: traces.to_vec(),
            designs: self.designs.clone(),
            machine_name: on.machine_name.clone(),
            machine: on.machine.clone(),
            cpus: on.cpus,
            copies,
            ram: None,
            seeds: setting.passes as u16,
            seed: setting.seed,
            purpose: Purpose::Sweep,
            jobs: on.jobs,
        };
        let plan = load(wanted, setting.style)?;
        let mut kept = self.task.kept();
        let findings = measure_others(&plan, &mut kept, setting.style, self.task.interrupt)?;
        match findings.interrupted {
            true => Err(Failure::interrupted("interrupted")),
            false => trusted(&findings).map(|()| findings),
        }
    }

    /// What a figure of design `number` is to that of the first.
    pub(super) fn ratio(
        &self,
        findings: &Findings,
        number: usize,
        figure: &str,
    ) -> Result<Ratio, Failure> {
        let comparison = to_base(findings, number, RESAMPLES);
        let ratio = comparison.and_then(|comparison| comparison.ratio(figure).cloned());
        ratio.ok_or_else(|| {
            Failure::usage("a reproduction on a simulated machine needs 5 seeds at least")
        })
    }
}

/// A change of time, or with `inverted` one of throughput.
pub(super) fn change(ratio: &Ratio, inverted: bool) -> Change {
    let Ratio {
        ratio: value,
        low,
        high,
        ..
    } = *ratio;
    let (value, low, high) = match inverted {
        true => (1.0 / value, 1.0 / high, 1.0 / low),
        false => (value, low, high),
    };
    Change::of_ratio(value, Some((low, high))).judged(Evidence::of(ratio), (high - low) / 2.0)
}

/// What is said of each section: where, what of, and what is not in it.
pub(super) fn method(section: &mut Section, findings: &Findings, of: &str) {
    section.method.push(format!(
        "{of}, on {} of {} ({}), in virtual time, with {} of starts and order; tasks under a \
         scheduler",
        plural(findings.cpus, "CPU", "CPUs"),
        findings.machine,
        findings.title,
        plural(findings.seeds.len(), "seed", "seeds"),
    ));
    section
        .method
        .push(text::user_time(&findings.about).trim_end().to_owned());
}

/// Where the second design's CPUs spent more or less time than the first's, by what they
/// waited for: a tick is a nanosecond of system time.
pub(super) fn difference(section: &mut Section, names: &[&str], findings: &Findings, load: &str) {
    let middle = |number: usize| findings.sides[number].middle();
    let (Some(old), Some(new)) = (middle(0), middle(1)) else {
        return;
    };
    let options = diffprofile::Options {
        title: load.to_owned(),
        ..diffprofile::Options::new(names[1])
    };
    let difference = diffprofile(
        &profile(names[0], &old.waits),
        &profile(names[1], &new.waits),
        &options,
    );
    let heading = format!("ours: where CPUs waited, {} against {}", names[1], names[0]);
    section
        .tables
        .push((heading, diffprofile::text(&difference, &options)));
}

/// Kernbench under each load.
pub(super) fn kernbench(
    task: &Task<'_>,
    on: &Simulated,
    section: &mut Section,
    schemes: &Schemes,
) -> Result<(), Failure> {
    let compared = Compared::of(task, schemes);
    let build = [task.simulated_build()?];
    let copies = match task.setting.quick {
        true => QUICK_COPIES,
        false => COPIES,
    };
    for (load, copies) in copies.into_iter().enumerate() {
        let findings = compared.on(on, &build, copies)?;
        if load == 0 {
            let of = "copies of a part of the recorded kernel build at once stand for the load";
            method(section, &findings, of);
        }
        let rows = findings.sides.iter().zip(&compared.names);
        let rows = rows.map(|(side, name)| kernbench::Row {
            label: (*name).to_owned(),
            elapsed_s: side.median("elapsed_s"),
            system_s: side.median("system_s"),
            user_s: Some(side.median("user_s")),
            cpu_percent: Some(side.median("percent_cpu")),
        });
        let rows: Vec<kernbench::Row> = rows.collect();
        let title = format!(
            "{} ({})",
            published::LOADS[load],
            plural(copies as usize, "copy", "copies")
        );
        let block = kernbench::block(&title, &rows);
        section.tables.push(("ours".to_owned(), block));
        for number in 1..compared.names.len() {
            let ours = change(&compared.ratio(&findings, number, "system_s")?, false);
            schemes.system_time(section, load, number, ours);
        }
        difference(section, &compared.names, &findings, loads(load));
    }
    Ok(())
}

/// SDET with each number of scripts that is wanted.
pub(super) fn sdet(
    task: &Task<'_>,
    on: &Simulated,
    section: &mut Section,
    schemes: &Schemes,
    scripts: &[PathBuf],
) -> Result<(), Failure> {
    let compared = Compared::of(task, schemes);
    let most = match task.setting.quick {
        true => QUICK_SCRIPTS,
        false => SCRIPTS,
    };
    let wanted = &task.setting.scripts;
    let is_wanted = |at_once: u32| {
        u64::from(at_once) <= most && (wanted.is_empty() || wanted.contains(&at_once))
    };
    let rows = published::SDET_SCRIPTS.into_iter().enumerate();
    let rows: Vec<_> = rows.filter(|(_, at_once)| is_wanted(*at_once)).collect();
    let first = rows.first().map(|(_, at_once)| *at_once);
    for (row, at_once) in rows {
        let traces = scripts.len().min(at_once as usize);
        let copies = at_once.div_ceil(traces as u32);
        let findings = compared.on(on, &scripts[..traces], copies)?;
        if Some(at_once) == first {
            let of = format!(
                "up to {} different recorded scripts at once, then copies of them; sdet-like and \
                 not SDET (a registered benchmark of SPEC); throughput is scripts by elapsed time",
                scripts.len()
            );
            method(section, &findings, &of);
        }
        let mut ours = vec![(compared.names[0].to_owned(), 100.0, None)];
        for number in 1..compared.names.len() {
            let ratio = compared.ratio(&findings, number, "elapsed_s")?;
            let name = compared.names[number].to_owned();
            ours.push((name, 100.0 / ratio.ratio, None));
            let what = format!("N = {at_once}, ");
            let change = change(&ratio, true);
            schemes.throughput(section, (row, &what), number, change);
        }
        let beside = formats::beside(
            &formats::sdet("SDET", at_once, &schemes.published_sdet(row)),
            &formats::sdet("SDET-like", at_once, &ours),
        );
        section
            .tables
            .push(("published, and ours".to_owned(), beside));
        if u64::from(at_once) == most.min(64) {
            let load = format!("sdet {at_once}");
            difference(section, &compared.names, &findings, &load);
        }
    }
    Ok(())
}
