//! Source 1: page-table quicklists, the claim of 2004 and the figures of 2007.

use super::bench::{self, Job};
use super::model::{Comparison, Section};
use super::published;
use super::zero::{Make, Task};
use crate::bench::findings::Row;
use crate::bench::{Findings, On, Run};
use crate::cli::Failure;
use vellum_terminal::table::{Table, grouped};

/// Sources of table pages that are shown, in this order, where they exist. The
/// first is what the source complains about.
const SOURCES: &[&str] = &["fresh", "quicklist", "zeroaware", "noted", "warm", "depot"];

/// A geometry: format and what to call it.
const GEOMETRIES: [(&str, &str); 2] =
    [("x86-64", "4 KiB tables"), ("aarch64-16k", "16 KiB tables")];

/// Variants of the program and what they stand for.
const VARIANTS: [(&str, &str); 4] = [
    ("read", "one CPU"),
    ("cold", "one CPU, caches emptied"),
    ("cross", "freed on another CPU"),
    ("migrate", "two nodes, migrated"),
];

/// The sections in order.
pub const SECTIONS: &[(&str, &[published::Source], Make)] = &[
    ("forkfault", &[published::AUGUST_2004], forkfault),
    ("cost of a call", &[published::QUICKLISTS_2007], per_call),
    ("whole workloads", &[published::QUICKLISTS_2007], workloads),
    ("the host's kernel", &[], host),
];

/// `ptepage=` values that this build has, `fresh` first.
fn sources(section: &mut Section) -> Result<Vec<&'static str>, Failure> {
    let (there, missing) = bench::available("ptepage", SOURCES);
    for source in missing {
        let why = format!("this build has no ptepage={source}");
        section
            .comparisons
            .push(Comparison::missing(source, "-".to_owned(), why));
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

fn designs(format: &str, sources: &[&str]) -> Vec<String> {
    let of_format = |source: &&str| match bench::values_of("format") {
        [] => format!("ptepage={source}"),
        _ => format!("format={format},ptepage={source}"),
    };
    sources.iter().map(of_format).collect()
}

fn forkfault(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "the published program on the core: 32 read faults a table apart in each of 128 children; \
         no traps in the times; medians"
            .to_owned(),
    );
    let sources = sources(section)?;
    for (format, name) in GEOMETRIES {
        if !has_format(format) {
            let what = format!("{name} ({format})");
            let why = "this build has no such format";
            section
                .comparisons
                .push(Comparison::missing(what, "9 x".to_owned(), why));
            continue;
        }
        let mut job = Job::new("forkfault", &designs(format, &sources));
        job.variants = VARIANTS
            .iter()
            .map(|(variant, _)| (*variant).to_owned())
            .collect();
        if task.setting.quick {
            job.sizes = vec!["forks=16".to_owned()];
        }
        let findings = task.setting.run(&job, On::Core, task.interrupt)?;
        section
            .tables
            .push((format!("ours: {name}"), times(&findings, &sources)?));
        for ((variant, place), run) in VARIANTS.iter().zip(&findings.runs) {
            let arms = &bench::figure(run, "fault")?.arms;
            for (arm, source) in sources.iter().enumerate().skip(1) {
                let ours = bench::typical(&arms[0]) / bench::typical(&arms[arm]);
                let what = format!("{name}, {place}: fresh / {source}");
                // The claim is of quicklists on a machine with 16 KiB tables.
                let claimed = format == "aarch64-16k" && *source == "quicklist";
                section
                    .comparisons
                    .push(match claimed && *variant != "migrate" {
                        true => Comparison::of_times(what, published::FORKFAULT_CLAIM, ours),
                        false => {
                            let ours = format!("{ours:.2} x");
                            Comparison::beside(what, "-".to_owned(), ours, "not published")
                        }
                    });
            }
            if *variant == "migrate" {
                trapped(name, run, &sources, section);
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
            cells.extend(arms.map(|arm| format!("{:.1}", bench::typical(arm))));
            table.row(cells);
        }
    }
    Ok(table.render(0))
}

/// Table pages that were kept on another node than their own.
fn trapped(name: &str, run: &Run, sources: &[&str], section: &mut Section) {
    let about = |row: &&Row| {
        let name = row.name.to_lowercase();
        name.contains("table") && (name.contains("foreign") || name.contains("trapped"))
    };
    for row in run.counters.iter().filter(about) {
        for (source, count) in sources.iter().zip(&row.values) {
            let Some(count) = count else { continue };
            section.comparisons.push(Comparison::beside(
                format!("{name}: {}, {source}", row.name),
                format!("about {} for one migration", published::TRAPPED_PAGES),
                grouped(*count),
                "over all children",
            ));
        }
    }
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
    // By level, nanoseconds of a fault by source.
    let mut levels: Vec<Vec<f64>> = Vec::new();
    for (_, _, stride, faults) in LEVELS {
        let mut job = Job::new("forkfault", &designs);
        job.sizes = vec![format!("stride={stride}"), format!("faults={faults}")];
        if task.setting.quick {
            job.sizes.push("forks=16".to_owned());
        }
        let findings = task.setting.run(&job, On::Core, task.interrupt)?;
        let run = findings.runs.first();
        let run = run.ok_or_else(|| Failure::failed("forkfault gave no run"))?;
        let arms = bench::figure(run, "fault")?.arms.iter();
        levels.push(arms.map(bench::typical).collect());
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
    let forks = bench::figure(run, "fork")?.arms.iter();
    let forks: Vec<f64> = forks.map(bench::typical).collect();
    let mut header = vec!["ns"];
    header.extend(&sources);
    let mut table = Table::new(&header);
    let mut row = |name: &str, values: &[f64]| {
        let mut cells = vec![name.to_owned()];
        let values = values.iter().take(sources.len());
        cells.extend(values.map(|value| format!("{value:.1}")));
        table.row(cells);
    };
    for ((_, needs, _, _), values) in LEVELS.iter().zip(&levels) {
        row(&format!("fault that needs {needs}"), values);
    }
    row("fork without pages (pgd)", &forks);
    section.tables.push(("ours".to_owned(), table.render(0)));
    for (name, without, with) in published::PER_CALL_US {
        let level = LEVELS.iter().position(|level| level.0 == name);
        let ours = |source: usize| match level {
            Some(level) => levels[level][source] - levels[level - 1][source],
            None => forks[source],
        };
        let (fresh, quick) = (ours(0), ours(listed));
        let what = format!("{name}: without / with quicklists");
        let published_text = format!("{:.0} / {:.0} ns", without * 1e3, with * 1e3);
        section.comparisons.push(Comparison::beside(
            what.clone(),
            published_text,
            format!("{fresh:.1} / {quick:.1} ns"),
            "another machine",
        ));
        section.comparisons.push(match fresh > 0.0 && quick > 0.0 {
            true => Comparison::of_times(what, without / with, fresh / quick),
            false => {
                let why = "ours too small to be told from none";
                Comparison::missing(what, format!("{:.2} x", without / with), why)
            }
        });
    }
    Ok(())
}

fn workloads(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "CPU time in the core of whole replays. No end-to-end gain was ever published: on the \
         contrary, its absence was why quicklists were removed (Linux 5.4, 2019)"
            .to_owned(),
    );
    let sources = sources(section)?;
    for (what, trace) in [
        ("kernel build", task.build.to_owned()),
        (
            "snapshot server",
            task.setting.trace("snapshot-server.vellum")?,
        ),
    ] {
        // One copy of the trace, whatever it is of.
        let mut job = Job::new("sdet", &designs("x86-64", &sources));
        job.sizes = vec!["most=1".to_owned()];
        job.traces = vec![trace];
        let findings = task.setting.run(&job, On::Core, task.interrupt)?;
        let run = findings.runs.first();
        let run = run.ok_or_else(|| Failure::failed("the replay gave no run"))?;
        let figure = run.figures.first();
        let figure = figure.ok_or_else(|| Failure::failed("the replay gave no figure"))?;
        for (arm, source) in sources.iter().enumerate().skip(1) {
            section.comparisons.push(Comparison::beside(
                format!("{what}: {source} against fresh"),
                "none".to_owned(),
                bench::change(&figure.arms[arm]).to_string(),
                figure.arms[arm].verdict,
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
        job.sizes = vec!["forks=16".to_owned()];
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
    let heading = format!("ours: Linux {}", crate::bench::host::kernel_release());
    section.tables.push((heading, table.render(0)));
    Ok(())
}
