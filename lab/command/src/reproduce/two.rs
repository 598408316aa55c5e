//! Source 2: tmpfs, the page cache and the page allocator, 2014.

use super::bench::{self, Job};
use super::judge::Change;
use super::model::{self, Section};
use super::published::{self, KERNELS_2014, LAT_MMAP, LOOPDD, LOOPDD_ITERATIONS, Loopdd};
use super::shares;
use super::task::{Entry, Task};
use crate::bench::findings::Standing;
use crate::bench::{Findings, Run};
use crate::compare::Verdict;
use crate::failure::Failure;
use crate::on::On;
use crate::report::figures::said;
use crate::report::published::{Arm, block_table};
use vellum_results::bench::Block;
use vellum_tables::mmtests::Edition;
use vellum_terminal::table::Table;

/// The sections in order.
pub const SECTIONS: &[Entry] = &[
    ("loopdd", &[published::MAY_2014], loopdd),
    ("each patch alone", &[published::MAY_2014], alone),
    ("shares of a dd", &[published::MAY_2014], shares),
    ("lat_mmap", &[published::MAY_2014], lat_mmap),
    ("the host's kernel", &[], host),
];

/// The figure of all that an iteration of loopdd does.
const ELAPSED: &str = crate::bench::core::run::ALL_PHASES;

/// The two kernels.
fn kernels() -> Vec<String> {
    let kernels = KERNELS_2014.iter();
    kernels.map(|(_, preset)| format!("as={preset}")).collect()
}

/// The two kernels, and ours.
fn designs() -> Vec<String> {
    let mut designs = kernels();
    designs.push(format!("rmap={}", bench::default_of("rmap")));
    designs
}

/// What stands above the columns of [`designs`] and the control.
fn columns() -> Vec<Arm> {
    let kernels = KERNELS_2014.iter();
    let mut columns: Vec<Arm> = kernels
        .map(|(name, _)| Arm::new("3.15.0-rc3", Some(name)))
        .collect();
    columns.push(Arm::new("ours", Some("vellum")));
    columns.push(Arm::new("vanilla", Some("again")));
    columns
}

fn table(block: &Block, columns: &[Arm]) -> (String, String) {
    let table = block_table(block, Edition::Of2014, columns);
    let (title, lines) = table.split_once('\n').unwrap_or(("", &table));
    (format!("ours: {title}"), lines.to_owned())
}

/// `job` at its own size, or small for a quick look.
fn sized(task: &Task<'_>, mut job: Job<'static>) -> Job<'static> {
    let small: &[&str] = match job.name {
        "lat_mmap" => &["mebibytes=16", "samples=2"],
        _ => &["iterations=3", "mebibytes=2"],
    };
    if task.setting.quick {
        job.sizes = small.iter().map(|size| (*size).to_owned()).collect();
        job.ram_bytes = Some(64 << 20);
    }
    job
}

fn measured(task: &Task<'_>, job: Job<'static>, on: On) -> Result<Findings, Failure> {
    let findings = task.setting.run(&sized(task, job), on, task.interrupt)?;
    match findings.interrupted {
        true => Err(Failure::interrupted("interrupted")),
        false => Ok(findings),
    }
}

fn only(findings: &Findings) -> Result<&Run, Failure> {
    let run = findings.runs.first();
    run.ok_or_else(|| Failure::failed("the benchmark gave no run"))
}

/// A published table, without the percentages.
fn of_2014(loopdd: &Loopdd) -> String {
    let header = ["", KERNELS_2014[0].0, KERNELS_2014[1].0];
    let mut table = Table::new(&header);
    for (name, values) in loopdd.rows {
        let mut cells = vec![format!("{name} {}", loopdd.operation).trim_end().to_owned()];
        cells.extend(values.map(|value| format!("{value:.4}")));
        table.row(cells);
    }
    table.render(0)
}

/// The published change of the mean, which is one if it is more than 1.96 standard
/// errors.
fn change_of_mean(loopdd: &Loopdd) -> Change {
    let row = |wanted: &str| {
        let mut rows = loopdd.rows.iter();
        rows.find(|row| row.0 == wanted)
            .map_or([0.0; 2], |row| row.1)
    };
    let ([old, new], [a, b]) = (row("Mean"), row("Stddev"));
    let error = (a * a + b * b).sqrt() / LOOPDD_ITERATIONS.sqrt();
    Change::between(old, new, 196.0 * error / old)
}

fn loopdd(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "the same on the core, under the options of the two kernels, and under ours: thirty times \
         a tenth of the machine's memory; of each iteration the median over the passes. Published \
         means are taken to differ by more than 1.96 standard errors of theirs"
            .to_owned(),
    );
    let findings = measured(task, Job::new("loopdd", &designs()), On::Core)?;
    let run = only(&findings)?;
    section.method.extend(run.facts.iter().cloned());
    for (published, title) in LOOPDD
        .iter()
        .zip(["throughput, MB/s", "elapsed time, seconds"])
    {
        let table = (format!("published: loopdd {title}"), of_2014(published));
        section.tables.push(table);
    }
    let columns = columns();
    let tables = run.blocks.iter().map(|block| table(block, &columns));
    section.tables.extend(tables);
    let dd = &bench::figure(run, "dd")?.arms;
    let elapsed = &bench::figure(run, ELAPSED)?.arms;
    section.comparisons.push(model::of_changes(
        "mean throughput, lockpage against vanilla",
        change_of_mean(&LOOPDD[0]),
        bench::throughput_change(&dd[1]),
    ));
    section.comparisons.push(model::of_changes(
        "mean elapsed time, lockpage against vanilla",
        change_of_mean(&LOOPDD[1]),
        bench::change(&elapsed[1]),
    ));
    let rate = of_rate(dd[2].standing);
    for (what, change, standing) in [
        ("throughput", bench::throughput_change(&dd[2]), rate),
        (
            "elapsed time",
            bench::change(&elapsed[2]),
            elapsed[2].standing,
        ),
    ] {
        section.comparisons.push(model::beside(
            format!("{what}, ours against vanilla"),
            "-".to_owned(),
            change.to_string(),
            &format!("{}; came later", said(standing)),
        ));
    }
    Ok(())
}

/// What is said of a rate where this is said of the time.
fn of_rate(of_time: Standing) -> Standing {
    match of_time {
        Standing::Judged(Verdict::Less) => Standing::Judged(Verdict::More),
        Standing::Judged(Verdict::More) => Standing::Judged(Verdict::Less),
        other => other,
    }
}

/// What the second kernel sets otherwise than the first: an option and its value each.
fn changes() -> Vec<&'static str> {
    let settings = |preset: &str| {
        let mut presets = vellum_engine::presets().iter();
        presets
            .find(|known| known.name == preset)
            .map_or("", |known| known.settings)
    };
    let before: Vec<&str> = settings(KERNELS_2014[0].1).split(',').collect();
    let after = settings(KERNELS_2014[1].1).split(',');
    after.filter(|setting| !before.contains(setting)).collect()
}

fn alone(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "loopdd on the core: each option in which the two kernels differ, set alone as the \
         patches set it, against the kernel without them. Profiles gave single patches at most \
         3 % of a dd"
            .to_owned(),
    );
    let changes = changes();
    let mut designs = kernels();
    designs.truncate(1);
    let base = designs[0].clone();
    designs.extend(changes.iter().map(|change| format!("{base},{change}")));
    let findings = measured(task, Job::new("loopdd", &designs), On::Core)?;
    let run = only(&findings)?;
    let dd = &bench::figure(run, "dd")?.arms;
    for (arm, change) in dd.iter().skip(1).zip(&changes) {
        section.comparisons.push(model::beside(
            format!("time of dd, {change}"),
            "-".to_owned(),
            bench::change(arm).to_string(),
            &said(arm.standing),
        ));
    }
    Ok(())
}

fn shares(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let kernels = kernels();
    let mut job = Job::new("loopdd", &[]);
    if task.setting.quick {
        // Large enough that each kernel is met by samples.
        job.sizes = vec!["iterations=4".to_owned(), "mebibytes=16".to_owned()];
        job.ram_bytes = Some(64 << 20);
    }
    shares::take(task, section, job, (&kernels[0], &kernels[1]))
}

/// The largest change for the worse in the published rows, in percent, which is taken
/// for their noise: no deviation was published, and version 3 had it at other sizes.
fn noise() -> f64 {
    let changes = LAT_MMAP
        .iter()
        .map(|(_, [old, new])| 100.0 * (new / old - 1.0));
    changes.fold(0.0, f64::max)
}

fn lat_mmap(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(format!(
        "the same on the core, for a file whose first tenth is in memory. The published rows are \
         single figures: the largest change for the worse among them, {:.1} %, moved to other \
         sizes in the next version of the patches, and is taken for their noise. Ours is in the \
         column of the control",
        noise()
    ));
    let findings = measured(task, Job::new("lat_mmap", &designs()), On::Core)?;
    let run = only(&findings)?;
    let mut published = Table::new(&["Procs", KERNELS_2014[0].0, KERNELS_2014[1].0]);
    for (size, values) in LAT_MMAP {
        let mut cells = vec![format!("{size}M")];
        cells.extend(values.map(|value| format!("{value:.4}")));
        published.row(cells);
    }
    let heading = "published: lat_mmap, microseconds".to_owned();
    section.tables.push((heading, published.render(0)));
    let columns = columns();
    let tables = run.blocks.iter().map(|block| table(block, &columns));
    section.tables.extend(tables);
    for ((_, [old, new]), figure) in LAT_MMAP.iter().zip(&run.figures) {
        section.comparisons.push(model::of_changes(
            format!("{}, lockpage against vanilla", figure.name),
            Change::between(*old, *new, noise()),
            bench::change(&figure.arms[1]),
        ));
    }
    Ok(())
}

/// Bytes that dd writes on the host, and how often in a pass. A tenth of a machine's memory
/// thirty times takes a minute a pass, and no published figure is held against it.
const HOST_DD: [&str; 2] = ["mebibytes=512", "iterations=10"];

fn host(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "the real dd on a tmpfs, and lat_mmap, of this machine's kernel, for scale: dd writes \
         512 MiB ten times. `vellum bench loopdd --on linux` runs it in full"
            .to_owned(),
    );
    let columns = [Arm::new("Linux", None), Arm::new("Linux", Some("again"))];
    for name in ["loopdd", "lat_mmap"] {
        let mut job = Job::new(name, &["linux".to_owned()]);
        if name == "loopdd" {
            job.sizes = HOST_DD.iter().map(|size| (*size).to_owned()).collect();
        }
        let findings = match measured(task, job, On::Linux) {
            Ok(findings) => findings,
            // Not everybody may mount, and the other one needs no mount.
            Err(failure) if failure.code() == Failure::USAGE => {
                let missing = model::missing(name, "-".to_owned(), failure.message());
                section.comparisons.push(missing);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let run = only(&findings)?;
        section.method.extend(run.facts.iter().cloned());
        let tables = run.blocks.iter().map(|block| table(block, &columns));
        section.tables.extend(tables);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_time_is_a_higher_rate() {
        let less = Standing::Judged(Verdict::Less);
        assert_eq!(said(of_rate(less)), "more");
        assert_eq!(of_rate(of_rate(less)), less);
    }

    #[test]
    fn the_published_changes_are_those_of_the_tables() {
        let percent = LOOPDD.map(|loopdd| change_of_mean(&loopdd).percent);
        assert!((percent[0] - 6.49).abs() < 0.005, "{percent:?}");
        assert!((percent[1] + 12.06).abs() < 0.02, "{percent:?}");
        assert!((noise() - 21.21).abs() < 0.005, "{}", noise());
    }

    #[test]
    fn the_kernels_exist_and_differ_in_options() {
        let changes = changes();
        assert!(changes.contains(&"pagelock=waiters"), "{changes:?}");
        let options = vellum_engine::options();
        for change in changes {
            let (name, _) = change.split_once('=').expect("an option and its value");
            assert!(options.iter().any(|option| option.name == name), "{name}");
        }
    }
}
