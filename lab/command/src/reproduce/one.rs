//! Source 1: page-table quicklists, the claim of 2004 and the figures of 2007.

use super::bench::{self, Job};
use super::judge::{Evidence, Factor};
use super::model::{self, Section};
use super::published;
use super::task::{Entry, Task};
use crate::bench::findings::{ArmFigure, Row};
use crate::bench::{Findings, Run};
use crate::failure::Failure;
use crate::on::On;
use crate::report::figures::said;
use vellum_terminal::table::{Table, grouped};

/// Sources of table pages that are shown, in this order, where they exist. The
/// first is what the source complains about.
const SOURCES: &[&str] = &["fresh", "quicklist", "zeroaware", "noted", "warm", "depot"];

/// The kernel whose other options the sources of table pages are compared with,
/// by the format that stands for its pages.
const KERNELS: [(&str, &str); 2] = [
    ("x86-64", "linux-2.6.20"),
    ("aarch64-16k", "linux-2.6.12-ia64"),
];

/// A geometry: format and what to call it.
const GEOMETRIES: [(&str, &str); 2] =
    [("x86-64", "4 KiB tables"), ("aarch64-16k", "16 KiB tables")];

/// Variants of the program and what they stand for.
const VARIANTS: [(&str, &str); 6] = [
    ("read", "one CPU"),
    ("cold", "one CPU, caches emptied"),
    ("cross", "freed on another CPU"),
    ("migrate", "two nodes, freed on the other"),
    ("moved", "two nodes, run on the other"),
    ("after", "run where others have ended"),
];

/// The three problems of 2004, each alone, then together: what it is called, and the
/// options that bring it back.
const PROBLEMS: [(&str, &str); 5] = [
    ("none of them", ""),
    ("levels", "quicklevels=separate"),
    ("node", "quicknode=blind"),
    ("watermark", "quickmark=total"),
    (
        "all",
        "quicklevels=separate,quicknode=blind,quickmark=total",
    ),
];

/// Values of `quicklevels=` that have lists for page tables of the lowest level.
const WITH_LOWEST: [&str; 2] = ["unified", "separate"];

/// Children of the two runs from which the tables that one migration traps are
/// counted: those of the last few still wait for their epoch at the end of a run.
pub(super) const MIGRATIONS: [u64; 2] = [4, 12];

/// The sections in order.
pub const SECTIONS: &[Entry] = &[
    ("forkfault", &[published::AUGUST_2004], forkfault),
    (
        "the three problems",
        &[published::AUGUST_2004],
        three_problems,
    ),
    ("cost of a call", &[published::QUICKLISTS_2007], per_call),
    ("whole workloads", &[published::QUICKLISTS_2007], workloads),
    ("the host's kernel", &[], host),
];

/// `ptepage=` values that this build has, `fresh` first.
pub(super) fn sources(section: &mut Section) -> Result<Vec<&'static str>, Failure> {
    let (there, missing) = bench::available("ptepage", SOURCES);
    for source in missing {
        let why = format!("this build has no ptepage={source}");
        section
            .comparisons
            .push(model::missing(source, "-".to_owned(), why));
    }
    match there.first() {
        Some(&"fresh") if there.len() > 1 => Ok(there),
        _ => Err(Failure::failed(
            "there is nothing to compare ptepage=fresh with",
        )),
    }
}

/// Whether this build has a format; without the option there is x86-64 only.
fn has_format(format: &str) -> bool {
    match bench::values_of("format") {
        [] => format == "x86-64",
        values => values.contains(&format),
    }
}

pub(super) fn designs(format: &str, sources: &[&str]) -> Vec<String> {
    let kernel = KERNELS.iter().find(|kernel| kernel.0 == format);
    let of_format = |source: &&str| match kernel {
        Some((_, kernel)) => format!("as={kernel},ptepage={source}"),
        None => format!("format={format},ptepage={source}"),
    };
    sources.iter().map(of_format).collect()
}

fn forkfault(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "the published program on the core: 32 read faults a table apart in each of 128 children; \
         no traps in the times; of each child the median over the passes"
            .to_owned(),
    );
    let sources = sources(section)?;
    for (format, name) in GEOMETRIES {
        if !has_format(format) {
            let what = format!("{name} ({format})");
            let why = "this build has no such format";
            section
                .comparisons
                .push(model::missing(what, "9 x".to_owned(), why));
            continue;
        }
        let mut job = Job::new("forkfault", &designs(format, &sources));
        job.variants = VARIANTS
            .iter()
            .map(|(variant, _)| (*variant).to_owned())
            .collect();
        if task.setting.quick {
            job.sizes = vec!["forks=4".to_owned()];
        }
        let findings = task.setting.run(&job, On::Core, task.interrupt)?;
        section
            .tables
            .push((format!("ours: {name}"), times(&findings, &sources)?));
        for ((variant, place), run) in VARIANTS.iter().zip(&findings.runs) {
            let arms = &bench::figure(run, "fault")?.arms;
            for (arm, source) in sources.iter().enumerate().skip(1) {
                let ours = bench::times_as_fast(&arms[arm]);
                let what = format!("{name}, {place}: fresh / {source}");
                // The claim is of quicklists on a machine with 16 KiB tables.
                let claimed = format == "aarch64-16k" && *source == "quicklist";
                section.comparisons.push(
                    match claimed && !["migrate", "moved", "after"].contains(variant) {
                        true => model::of_times(what, published::FORKFAULT_CLAIM, ours),
                        false => model::beside(
                            what,
                            "-".to_owned(),
                            ours.to_string(),
                            &format!("{}; not published", said(arms[arm].standing)),
                        ),
                    },
                );
            }
        }
        if findings.interrupted {
            return Err(Failure::interrupted("interrupted"));
        }
    }
    Ok(())
}

/// Nanoseconds of a fault by variant and source.
fn times(findings: &Findings, sources: &[&str]) -> Result<String, Failure> {
    let mut header = vec!["ns per fault"];
    header.extend(sources);
    header.push("control");
    let mut table = Table::new(&header);
    for ((_, place), run) in VARIANTS.iter().zip(&findings.runs) {
        for (figure, name) in [("fault", ""), ("fork", ", fork"), ("exit", ", exit")] {
            let mut cells = vec![format!("{place}{name}")];
            let arms = bench::figure(run, figure)?.arms.iter();
            cells.extend(arms.map(|arm| format!("{:.1}", arm.value)));
            table.row(cells);
        }
    }
    Ok(table.render(0))
}

/// The states of quicklists that the source tells apart, with their designs on `format`.
pub(super) fn problems(format: &str) -> Vec<(String, String)> {
    let design = |options: &str| {
        let quick = designs(format, &["quicklist"]).remove(0);
        match options {
            "" => quick,
            options => format!("{quick},{options}"),
        }
    };
    let mut states: Vec<(String, String)> = PROBLEMS
        .iter()
        .map(|(name, options)| ((*name).to_owned(), design(options)))
        .collect();
    let levels = bench::values_of("quicklevels").iter();
    for value in levels.filter(|value| !WITH_LOWEST.contains(value)) {
        let options = format!("quicklevels={value},quicknode=blind,quickmark=total");
        states.push(("as 2.6.8".to_owned(), design(&options)));
    }
    states
}

fn three_problems(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "the three problems that the post names, each brought back alone, then all together: \
         levels (a list for each level of table, none for the lowest in 2.6.8), node (tables are \
         kept on whatever node they are freed), watermark (from all memory, for every CPU). Each \
         child is forked and faults on one node, migrates, and exits on the other"
            .to_owned(),
    );
    for (format, name) in GEOMETRIES {
        if !has_format(format) {
            continue;
        }
        let states = problems(format);
        let mut all = designs(format, &["fresh"]);
        all.extend(states.iter().map(|state| state.1.clone()));
        let mut labels = vec!["fresh"];
        labels.extend(states.iter().map(|state| state.0.as_str()));
        let mut job = Job::new("forkfault", &all);
        job.variants = ["read", "migrate"].map(str::to_owned).to_vec();
        if task.setting.quick {
            job.sizes = vec!["forks=4".to_owned()];
        }
        let findings = task.setting.run(&job, On::Core, task.interrupt)?;
        let [read, migrated] = findings.runs.as_slice() else {
            return Err(Failure::interrupted("interrupted"));
        };
        let mut runs = Vec::new();
        for forks in MIGRATIONS {
            job.variants = vec!["migrate".to_owned()];
            job.sizes = vec![format!("forks={forks}")];
            let mut findings = task.setting.run(&job, On::Core, task.interrupt)?;
            let run = findings.runs.pop();
            runs.push(run.ok_or_else(|| Failure::failed("forkfault gave no run"))?);
        }
        let by_one: Vec<u64> = (0..all.len())
            .map(|arm| {
                let more = trapped(&runs[1], arm).saturating_sub(trapped(&runs[0], arm));
                more / (MIGRATIONS[1] - MIGRATIONS[0])
            })
            .collect();
        let mut header = vec![""];
        header.extend(&labels);
        let mut table = Table::new(&header);
        for (what, run) in [("one node", read), ("migrated", migrated)] {
            let mut cells = vec![format!("{what}: ns per fault")];
            let arms = bench::figure(run, "fault")?.arms.iter().take(all.len());
            cells.extend(arms.map(|arm| format!("{:.1}", arm.value)));
            table.row(cells);
        }
        let mut cells = vec!["trapped by one migration".to_owned()];
        cells.extend(by_one.iter().map(|count| grouped(*count)));
        table.row(cells);
        for row in migrated.counters.iter().filter(is_of_tables) {
            let mut cells = vec![format!("migrated: {}", row.name)];
            let values = row.values.iter().take(all.len());
            cells.extend(values.map(|count| count.map_or_else(|| "-".to_owned(), grouped)));
            table.row(cells);
        }
        section
            .tables
            .push((format!("ours: {name}"), table.render(0)));
        for (arm, label) in labels.iter().enumerate().skip(1) {
            let what = format!("{name}, {label}: table pages trapped by a migration");
            let published = published::TRAPPED_PAGES.into();
            // Of the pages that the post counts, 2.6.8 kept those of upper levels.
            section.comparisons.push(match label {
                &"node" | &"all" => model::of_counts(what, published, by_one[arm]),
                _ => model::beside(
                    what,
                    format!("about {published}"),
                    grouped(by_one[arm]),
                    match by_one[arm] {
                        0 => "none is kept away from its node",
                        _ => "the lowest level has no list",
                    },
                ),
            });
            for (place, run) in [("one node", read), ("migrated", migrated)] {
                let arm = &bench::figure(run, "fault")?.arms[arm];
                section.comparisons.push(model::beside(
                    format!("{name}, {label}, {place}: fresh / quicklist"),
                    "-".to_owned(),
                    bench::times_as_fast(arm).to_string(),
                    &format!("{}; not published", said(arm.standing)),
                ));
            }
        }
        if findings.interrupted {
            return Err(Failure::interrupted("interrupted"));
        }
    }
    Ok(())
}

/// Table pages that CPUs keep on another node than their own at the end of a pass.
fn trapped(run: &Run, arm: usize) -> u64 {
    let mut rows = run.counters.iter();
    let row = rows.find(|row| row.name == "table pages trapped");
    row.and_then(|row| row.values[arm]).unwrap_or(0)
}

fn is_of_tables(row: &&Row) -> bool {
    row.name.starts_with("table pages") && row.values.iter().any(|count| *count > Some(0))
}

/// Strides that need one more level of table each, in 4 KiB pages of x86-64: the
/// call that the level adds, what a fault then needs, stride, faults.
const LEVELS: [(&str, &str, u64, u64); 4] = [
    ("", "no table", 1, 512),
    ("pte_alloc", "a pte page", 512, 32),
    ("pmd_alloc", "a pmd page, too", 512 * 512, 32),
    ("pud_alloc", "a pud page, too", 512 * 512 * 512, 32),
];

fn per_call(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "what a read fault costs more if it needs one more table: strides of a page, a table, a \
         table of tables, and one level more; for the pgd, fork and exit of a process without \
         pages. The published figures are of the functions alone, with the processor's clock"
            .to_owned(),
    );
    let sources = sources(section)?;
    let Some(listed) = sources.iter().position(|source| *source == "quicklist") else {
        return Err(Failure::failed("this build has no ptepage=quicklist"));
    };
    let designs = designs("x86-64", &sources);
    // By level, a fault by source.
    let mut levels: Vec<Vec<ArmFigure>> = Vec::new();
    for (_, _, stride, faults) in LEVELS {
        let mut job = Job::new("forkfault", &designs);
        job.sizes = vec![format!("stride={stride}"), format!("faults={faults}")];
        if task.setting.quick {
            job.sizes.push("forks=4".to_owned());
        }
        let findings = task.setting.run(&job, On::Core, task.interrupt)?;
        let run = findings.runs.first();
        let run = run.ok_or_else(|| Failure::failed("forkfault gave no run"))?;
        levels.push(bench::figure(run, "fault")?.arms.clone());
        if findings.interrupted {
            return Err(Failure::interrupted("interrupted"));
        }
    }
    let mut job = Job::new("forkfault", &designs);
    job.variants = vec!["fork-exit".to_owned()];
    job.sizes = vec!["resident=0".to_owned()];
    let findings = task.setting.run(&job, On::Core, task.interrupt)?;
    let run = findings.runs.first();
    let run = run.ok_or_else(|| Failure::failed("forkfault gave no run"))?;
    let forks = &bench::figure(run, "fork")?.arms;
    let mut header = vec!["ns"];
    header.extend(&sources);
    let mut table = Table::new(&header);
    let mut row = |name: &str, arms: &[ArmFigure]| {
        let mut cells = vec![name.to_owned()];
        let arms = arms.iter().take(sources.len());
        cells.extend(arms.map(|arm| format!("{:.1}", arm.value)));
        table.row(cells);
    };
    for ((_, needs, _, _), arms) in LEVELS.iter().zip(&levels) {
        row(&format!("fault that needs {needs}"), arms);
    }
    row("fork without pages (pgd)", forks);
    section.tables.push(("ours".to_owned(), table.render(0)));
    for (name, without, with) in published::PER_CALL_US {
        let level = LEVELS.iter().position(|level| level.0 == name);
        let ours = match level {
            Some(level) => Added::between(&levels[level], &levels[level - 1], listed),
            None => Added::alone(forks, listed),
        };
        let (fresh, quick) = (ours.fresh, ours.quick);
        let what = format!("{name}: without / with quicklists");
        let published_text = format!("{:.0} / {:.0} ns", without * 1e3, with * 1e3);
        section.comparisons.push(model::beside(
            what.clone(),
            published_text,
            format!("{fresh:.1} / {quick:.1} ns"),
            "another machine",
        ));
        section.comparisons.push(match fresh > 0.0 && quick > 0.0 {
            true => model::of_times(what, without / with, ours.times()),
            false => {
                let why = "ours too small to be told from none";
                model::missing(what, format!("{:.2} x", without / with), why)
            }
        });
    }
    Ok(())
}

/// What a level of tables adds to a fault, in nanoseconds, from fresh pages and from a
/// list.
struct Added {
    fresh: f64,
    quick: f64,
    /// The largest difference between the two that could not have been told from
    /// none; none with too few passes.
    resolution: Option<f64>,
}

impl Added {
    /// A call by itself.
    fn alone(arms: &[ArmFigure], listed: usize) -> Added {
        let resolution = arms[listed].resolution;
        Added {
            fresh: arms[0].value,
            quick: arms[listed].value,
            resolution: resolution.map(|resolution| resolution * arms[0].value),
        }
    }

    /// What faults `with` the level take more than those `without`. The two were
    /// measured one after the other: what neither can tell of its own adds up.
    fn between(with: &[ArmFigure], without: &[ArmFigure], listed: usize) -> Added {
        let (with, without) = (Added::alone(with, listed), Added::alone(without, listed));
        Added {
            fresh: with.fresh - without.fresh,
            quick: with.quick - without.quick,
            resolution: with.resolution.zip(without.resolution).map(|(a, b)| a + b),
        }
    }

    /// How many times as long fresh pages take.
    fn times(&self) -> Factor {
        Factor {
            value: self.fresh / self.quick,
            bounds: None,
            evidence: match self.resolution {
                None => Evidence::TooFewPasses,
                Some(limit) if (self.fresh - self.quick).abs() > limit => Evidence::Proven,
                Some(_) => Evidence::NotProven,
            },
            resolution: self.resolution.unwrap_or(0.0) / self.quick,
        }
    }
}

fn workloads(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "CPU time in the core of whole replays. No end-to-end gain was ever published: on the \
         contrary, its absence was why quicklists were removed (Linux 5.4, 2019)"
            .to_owned(),
    );
    let sources = sources(section)?;
    for (what, trace) in [
        ("kernel build", task.build()),
        ("snapshot server", task.server()),
    ] {
        // One copy of the trace, whatever it is of.
        let mut job = Job::new("sdet", &designs("x86-64", &sources));
        job.sizes = vec!["most=1".to_owned()];
        job.traces = vec![trace?];
        let findings = task.setting.run(&job, On::Core, task.interrupt)?;
        let run = findings.runs.first();
        let run = run.ok_or_else(|| Failure::failed("the replay gave no run"))?;
        let figure = run.figures.first();
        let figure = figure.ok_or_else(|| Failure::failed("the replay gave no figure"))?;
        for (arm, source) in sources.iter().enumerate().skip(1) {
            section.comparisons.push(model::beside(
                format!("{what}: {source} against fresh"),
                "none".to_owned(),
                bench::change(&figure.arms[arm]).to_string(),
                &said(figure.arms[arm].standing),
            ));
        }
        if findings.interrupted {
            return Err(Failure::interrupted("interrupted"));
        }
    }
    Ok(())
}

fn host(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "the same program as real processes of this machine's kernel, huge pages off, traps \
         included"
            .to_owned(),
    );
    let mut job = Job::new("forkfault", &["linux".to_owned()]);
    job.variants = ["read", "write", "cross"].map(str::to_owned).to_vec();
    if task.setting.quick {
        job.sizes = vec!["forks=4".to_owned()];
    }
    let findings = task.setting.run(&job, On::Linux, task.interrupt)?;
    let mut table = Table::new(&["ns, medians", "fault", "95 %", "fork", "exit"]);
    for run in &findings.runs {
        let arm = &bench::figure(run, "fault")?.arms[0];
        let spread = arm.spread;
        let cell = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.0}"));
        table.row(vec![
            run.title.clone(),
            cell(spread.map(|spread| spread.median)),
            cell(spread.map(|spread| spread.p95)),
            cell(Some(bench::typical(&bench::figure(run, "fork")?.arms[0]))),
            cell(Some(bench::typical(&bench::figure(run, "exit")?.arms[0]))),
        ]);
    }
    if let Some(run) = findings.runs.first() {
        section.method.extend(run.facts.iter().cloned());
    }
    section.method.extend(findings.notes.iter().cloned());
    let heading = format!("ours: Linux {}", crate::host::kernel_release());
    section.tables.push((heading, table.render(0)));
    Ok(())
}
