//! Source 3: page tables in high memory, 2010.

use super::bench::{self, Job};
use super::judge::{Change, Evidence};
use super::model::{self, Section};
use super::published::{self, KERNBENCH_2010, Kolivas, POOLED_RUNS_2010, TITLE_2010};
use super::task::{Entry, Task};
use super::window::derived_ns;
use crate::bench::Run;
use crate::bench::findings::ArmFigure;
use crate::failure::Failure;
use crate::on::On;
use crate::plan::window::price_on;
use crate::report::figures::said;
use vellum_description::Description;
use vellum_results::plan::Price;
use vellum_tables::number::awk;
use vellum_tables::summary::{deviation, mean};
use vellum_terminal::table::{Table, grouped};

/// The sections in order.
pub const SECTIONS: &[Entry] = &[(
    "kernbench, February 2010",
    &[published::FEBRUARY_2010],
    kernbench,
)];

/// Values of `userpte=`: the published two in their order, then ours.
const VALUES: [&str; 3] = ["high", "nohigh", "auto"];

/// The published machine: CPUs, memory, and low memory.
const CPUS: usize = 4;
const RAM: u64 = 4 << 30;
const LOW: u64 = 768 << 20;

/// The machine of `vellum machines` whose prices a window has: the oldest one on which
/// the flush of an address was measured.
const PRICED: &str = "xeon-e5-2690";

/// One arm: what it took and what its windows add.
struct Charged<'f> {
    figure: &'f ArmFigure,
    windows: u64,
    nested: u64,
    /// Nanoseconds of all windows.
    price_ns: f64,
}

impl Charged<'_> {
    /// Seconds with the windows, average and deviation of the passes.
    fn seconds(&self) -> (f64, Option<f64>) {
        let passes = self.figure.passes.iter();
        let passes: Vec<f64> = passes.map(|ns| (ns + self.price_ns) / 1e9).collect();
        (mean(&passes).unwrap_or(0.0), deviation(&passes))
    }

    /// What the windows take in parts of what all else takes.
    fn share(&self) -> f64 {
        self.price_ns / self.figure.value
    }
}

fn kernbench(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "the recorded kernel build on the core, on the published machine: 4 CPUs, 4 GiB of \
         memory, 768 MiB of it low. Lines of the published blocks but for the elapsed time \
         average the runs of two loads; that is in their deviations"
            .to_owned(),
    );
    let machine = Description::named(PRICED).map_err(|error| Failure::failed(error.to_string()))?;
    let price = price_on(PRICED, &machine);
    section.method.push(format!(
        "the simulated machine only counts windows, and writes and flushes nothing; each is \
         charged {:.1} ns. {}",
        price.ns, price.source
    ));
    for block in KERNBENCH_2010 {
        let heading = format!("published: page tables, userpte={}", block.userpte);
        section.tables.push((heading, published_block(&block)));
    }
    let run = replayed(task)?;
    section.method.extend(run.facts.iter().cloned());
    let arms = charged(&run, &price)?;
    for (value, arm) in VALUES.iter().zip(&arms) {
        let heading = format!("ours: page tables, userpte={value}");
        section.tables.push((heading, our_block(arm)));
    }
    let faults = counter(&run, "faults", 0);
    section
        .tables
        .push(("ours: windows".to_owned(), windows(&arms, faults)));
    compare(&arms, faults, section);
    // Only a whole build opens as many windows as a build.
    if let (false, Some(ns)) = (task.setting.quick, derived_ns(arms[0].windows)) {
        section.comparisons.push(model::beside(
            "ns a window",
            format!("{ns:.0}"),
            format!("{:.0}", price.ns),
            "published: derived, if that build opened as many as ours; not judged",
        ));
    }
    Ok(())
}

/// The build with each value, measured side by side.
fn replayed(task: &Task<'_>) -> Result<Run, Failure> {
    let designs = VALUES.map(|value| format!("format=x86-pae,userpte={value}"));
    let mut job = Job::new("kernbench", &designs);
    job.sizes = ["light=1", "heavy=0", "unlimited=0"]
        .map(str::to_owned)
        .to_vec();
    job.traces = vec![task.build()?];
    job.cpus = CPUS;
    job.ram_bytes = Some(RAM);
    job.low_bytes = Some(LOW);
    let mut findings = task.setting.run(&job, On::Core, task.interrupt)?;
    match findings.runs.pop() {
        Some(run) if !findings.interrupted => Ok(run),
        _ => Err(Failure::interrupted("interrupted")),
    }
}

fn counter(run: &Run, name: &str, arm: usize) -> u64 {
    let mut rows = run.counters.iter().filter(|row| row.name == name);
    let row = rows.next();
    row.and_then(|row| *row.values.get(arm)?).unwrap_or(0)
}

fn charged<'f>(run: &'f Run, price: &Price) -> Result<Vec<Charged<'f>>, Failure> {
    let figures = &bench::figure(run, "build")?.arms;
    let arm = |(index, figure)| {
        let windows = counter(run, "windows to page tables", index);
        Charged {
            figure,
            windows,
            nested: counter(run, "windows to second page tables", index),
            price_ns: price.of(windows),
        }
    };
    let arms = figures.iter().take(VALUES.len()).enumerate();
    Ok(arms.map(arm).collect())
}

/// A published block as it was posted.
pub fn published_block(block: &Kolivas) -> String {
    let lines = block.lines.iter();
    let lines = lines.map(|(name, average, deviation)| {
        format!("{name} {} ({})\n", awk(*average), awk(*deviation))
    });
    format!("{TITLE_2010}\n{}", lines.collect::<String>())
}

/// Ours in the same shape; of the lines there is one.
fn our_block(arm: &Charged<'_>) -> String {
    let (average, deviation) = arm.seconds();
    let deviation = deviation.map_or(String::new(), |of| format!(" ({})", awk(of)));
    format!("System Time {}{deviation}\n", awk(average))
}

fn windows(arms: &[Charged<'_>], faults: u64) -> String {
    let mut header = vec![""];
    header.extend(VALUES);
    let mut table = Table::new(&header);
    let mut row = |name: &str, cell: &dyn Fn(&Charged<'_>) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(arms.iter().map(cell));
        table.row(cells);
    };
    row("windows to page tables", &|arm| grouped(arm.windows));
    row("while another was open", &|arm| grouped(arm.nested));
    // Each window is flushed when it is closed.
    row("addresses flushed", &|arm| grouped(arm.windows));
    row("windows a fault", &|arm| {
        format!("{:.2}", arm.windows as f64 / faults.max(1) as f64)
    });
    row("charged, s", &|arm| format!("{:.3}", arm.price_ns / 1e9));
    row("measured without, s", &|arm| {
        format!("{:.3}", arm.figure.value / 1e9)
    });
    row("charged, % of that", &|arm| {
        format!("{:.1}", 100.0 * arm.share())
    });
    table.render(0)
}

fn compare(arms: &[Charged<'_>], faults: u64, section: &mut Section) {
    let [high, nohigh, auto] = arms else { return };
    let rows = &mut section.comparisons;
    rows.push(model::of_changes(
        "system time, nohigh against high",
        published_change(),
        change(high, nohigh),
    ));
    let later =
        |arm: &Charged<'_>| format!("without windows {}; came later", said(arm.figure.standing));
    rows.push(model::beside(
        "system time, auto against high",
        "-".to_owned(),
        change(high, auto).to_string(),
        &later(auto),
    ));
    let [with, without] = KERNBENCH_2010.map(|block| block.system_s.0);
    rows.push(model::beside(
        "seconds of system time that windows take",
        format!("{:.3}", with - without),
        format!("{:.3}", high.price_ns / 1e9),
        "another kernel, compiler and number of files: not judged",
    ));
    rows.push(model::beside(
        "windows a fault",
        "-".to_owned(),
        format!("{:.2}", high.windows as f64 / faults.max(1) as f64),
        "not published; Linux 2.6.33 opens 2 for a fault whose table exists",
    ));
    let why = "no user code is replayed, and that is what fills it: not judged";
    let percent = |line: usize| {
        let [high, nohigh] = KERNBENCH_2010.map(|block| block.lines[line].1);
        format!("{:+.1} %", 100.0 * (nohigh / high - 1.0))
    };
    rows.push(model::missing("elapsed time", percent(0), why));
    rows.push(model::missing("user time", percent(1), why));
    for (line, what) in [(4, "context switches"), (5, "sleeps")] {
        let why = "tasks do not switch in a replay: not judged";
        rows.push(model::missing(what, percent(line), why));
    }
}

/// The published change, which is one if it is more than 1.96 standard errors.
fn published_change() -> Change {
    let [(old, a), (new, b)] = KERNBENCH_2010.map(|block| block.system_s);
    let error = ((a * a + b * b) / POOLED_RUNS_2010).sqrt();
    Change::between(old, new, 196.0 * error / old)
}

/// Ours from `high` to `other`: the ratio that was measured without windows, with the
/// windows, which are counted and vary by nothing, added to both.
fn change(high: &Charged<'_>, other: &Charged<'_>) -> Change {
    let with = |ratio: f64| (ratio + other.price_ns / high.figure.value) / (1.0 + high.share());
    let bounds = other.figure.ratio_low.zip(other.figure.ratio_high);
    let bounds = bounds.map(|(low, high)| (with(low), with(high)));
    let ratio = with(other.figure.ratio);
    let resolution = bench::resolution(other.figure) / (1.0 + high.share());
    let evidence = match bench::evidence(other.figure) {
        Evidence::TooFewPasses => Evidence::TooFewPasses,
        _ if (ratio - 1.0).abs() > resolution => Evidence::Proven,
        _ => Evidence::NotProven,
    };
    Change::of_ratio(ratio, bounds).judged(evidence, resolution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_change_is_that_of_the_text() {
        let change = published_change();
        assert_eq!(change.to_string(), "-6.4 % (-8.1 to -4.7)");
        assert_eq!(change.evidence, Evidence::Proven);
    }

    #[test]
    fn a_published_block_is_printed_as_it_was_posted() {
        let posted = "\
Average Optimal load -j 4 Run (std deviation):
Elapsed Time 174.278 (0.831968)
User Time 515.659 (6.07012)
System Time 55.9 (1.07799)
Percent CPU 263.8 (71.266)
Context Switches 39929.6 (4485.13)
Sleeps 42583.7 (373.039)
";
        assert_eq!(published_block(&KERNBENCH_2010[1]), posted);
    }
}
