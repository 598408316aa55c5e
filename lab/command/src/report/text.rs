//! A comparison for people, laid out for a terminal 100 columns wide.

use std::fmt::Write;

use super::figures::{bounds, made_up, told_from, uneven};
use super::names::Names;
use super::published::{self, Format};
use super::replay::FRAMES;
use super::{Detail, device, kernbench};
use crate::compare::{ARMS, Reason, Resolution, Verdict};
use crate::replay::Class;
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_profile::diffprofile;
use vellum_results::Figure;
use vellum_results::compare::{ClassTime, Compare, Count, CountedIn, CounterRow};
use vellum_terminal::table::{Table, grouped, marked};
use vellum_terminal::text::{mib, plural, wrapped};

/// Lines from each end of the profile of differences.
const PROFILE_ENDS: usize = 10;

/// Classes in which a summary says that time differs.
const CLASSES_SHOWN: usize = 3;

/// The report; `resolution` is what its resolution is made of.
pub fn render(report: &Compare, resolution: Option<&Resolution>, detail: Detail) -> String {
    match detail {
        Detail::Summary => summary(report, resolution),
        Detail::Full => {
            let sections = [
                header(report, detail),
                times(report)
                    + &with_entries(report)
                    + &not_in_these(report)
                    + &with_device(report),
                verdict(report, resolution, detail),
                classes(report),
                counters(report),
                memory(report),
                kernbench_block(report),
                profile(report),
            ];
            sections.join("\n")
        }
    }
}

/// The verdict, what it is from, and where the difference is.
fn summary(report: &Compare, resolution: Option<&Resolution>) -> String {
    let sections = [
        header(report, Detail::Summary),
        verdict(report, resolution, Detail::Summary),
        match report.entries {
            Some(_) => with_entries(report),
            None => times(report),
        } + &not_in_these(report)
            + &with_device(report),
        where_it_is(report) + &peaks(report) + MORE,
    ];
    sections.join("\n")
}

/// What a summary leaves out.
const MORE: &str = "--details prints time by class, every count, memory by what it holds, and the \
                    designs completely.\n";

/// The classes whose time differs by more than the control strays, those that differ most first.
fn where_it_is(report: &Compare) -> String {
    let change = |row: &ClassTime<'_>| row.ns.b - row.ns.a;
    let mut differing = report.class_times();
    differing.retain(ClassTime::differs);
    differing.sort_by(|one, other| change(other).abs().total_cmp(&change(one).abs()));
    let shown: Vec<String> = differing
        .iter()
        .take(CLASSES_SHOWN)
        .map(|row| {
            format!(
                "{} {} ms (of {:.2})",
                row.class,
                change_ms(row.ns.a, row.ns.b),
                row.ns.a / 1e6
            )
        })
        .collect();
    match shown.is_empty() {
        true => "No class of operations differs by more than the control strays.\n".to_owned(),
        false => wrapped(&format!(
            "Where in the core, by shares of one separate pass, B - A by class: {}.",
            shown.join(", ")
        )),
    }
}

/// Memory in use at the peak.
fn peaks(report: &Compare) -> String {
    let frames = report.memory.iter().find(|row| row.name == FRAMES);
    frames.map_or_else(String::new, |row| {
        format!(
            "Frames in use at the peak: A {}, B {}.\n",
            mib(row.peak_bytes.a.median),
            mib(row.peak_bytes.b.median)
        )
    })
}

/// The CPU times of the passes as `format` has them.
pub fn render_as(format: Format, report: &Compare, detail: Detail) -> String {
    let names = names(report);
    let arms = [
        published::Arm::new("A", names.alone(0)),
        published::Arm::new("B", names.alone(1)),
        published::Arm::new("A'", None),
    ];
    let sums = &report.pass_cpu_ns;
    let passes = [&sums.a, &sums.b, &sums.control];
    let figure = published::Figure {
        name: "CPU time".to_owned(),
        per: "pass".to_owned(),
        ns: passes
            .map(|ns| ns.iter().map(|ns| *ns as f64).collect())
            .into(),
    };
    format!(
        "{}\n{}",
        header(report, detail),
        published::table(format, &arms, &[figure])
    )
}

fn header(report: &Compare, detail: Detail) -> String {
    let about = &report.about;
    let mut text = format!("{}\n", about.trace);
    let control = "as A, in an engine of its own: the control";
    text += &names(report).lines(["A", "B"], control, detail);
    let parts = (report.slices * report.cpus).max(1);
    let per_slice = report.cpu_ns.a.value / 1e3 / parts as f64;
    let _ = writeln!(
        text,
        "{} operations of {} on {} ({} MiB), in {} slices of {per_slice:.0} us; {}; seed {}",
        grouped(report.ops as u64),
        plural(about.copies as usize, "copy", "copies"),
        plural(report.cpus, "CPU", "CPUs"),
        grouped(about.ram_bytes >> 20),
        grouped(report.slices as u64),
        plural(report.passes, "pass", "passes"),
        about.seed,
    );
    if report.interrupted {
        let _ = writeln!(
            text,
            "INTERRUPTED: {} of {} passes are complete, and the figures are of those",
            report.passes, about.passes
        );
    }
    text += &uneven(report.passes, ARMS);
    let (a, b) = (&report.divergences.a, &report.divergences.b);
    if a.explained + a.unexplained + b.explained + b.unexplained > 0 {
        let _ = writeln!(
            text,
            "Divergences from the recording, explained + unexplained: A {} + {}, B {} + {}",
            grouped(a.explained),
            grouped(a.unexplained),
            grouped(b.explained),
            grouped(b.unexplained),
        );
    }
    text + &left_out(report)
}

/// Recorded faults that are not executed, if there are any.
fn left_out(report: &Compare) -> String {
    let (a, b) = (&report.divergences.a, &report.divergences.b);
    if a.needless + b.needless == 0 {
        return String::new();
    }
    let mut classes = report.classes.iter();
    let faults = classes.find(|row| row.class == Class::Fault.name());
    wrapped(&format!(
        "Left out, because the design has mapped the page: A {}, B {}{} recorded faults.",
        grouped(a.needless),
        grouped(b.needless),
        faults.map_or_else(String::new, |row| format!(" of {}", grouped(row.ops))),
    ))
}

fn names(report: &Compare) -> Names {
    Names::of([report.designs.a.as_str(), &report.designs.b])
}

/// A table of figures for A and B, some of them marked, and what is between them.
fn between(title: &str, report: &Compare) -> Table {
    let names = names(report);
    // Room for the mark behind a figure.
    let [a, b] = [(0, "A"), (1, "B")].map(|(arm, label)| names.named(arm, label) + "  ");
    Table::new(&[title, &a, &b, "B - A"])
}

fn times(report: &Compare) -> String {
    let interval = format!("{:.0} % interval", report.about.confidence * 100.0);
    let mut table = Table::new(&["CPU time in the core", "seconds", &interval]);
    let (arms, names) = (&report.cpu_ns, names(report));
    for (name, figure, better) in [
        (
            names.named(0, "A"),
            &arms.a,
            report.verdict == Verdict::More,
        ),
        (
            names.named(1, "B"),
            &arms.b,
            report.verdict == Verdict::Less,
        ),
        ("A'".to_owned(), &arms.control, false),
    ] {
        let figure = figure.in_units_of(1e9);
        let value = marked(format!("{:.4}", figure.value), better);
        table.row(vec![name, value, bounds(&figure, 4)]);
    }
    let mut ratios = Table::new(&["Ratio of CPU times", "", &interval]);
    for (name, figure) in [
        ("B / A", &report.ratio),
        ("A' / A (control)", &report.control_ratio),
    ] {
        let value = marked(format!("{:.4}", figure.value), false);
        ratios.row(vec![name.to_owned(), value, bounds(figure, 4)]);
    }
    let legend = match report.verdict {
        Verdict::NotProven(_) => "",
        _ => "* less; the verdict says how surely.\n",
    };
    format!("{}{legend}\n{}", table.render(0), ratios.render(0))
}

fn not_in_these(report: &Compare) -> String {
    wrapped(&format!("Not in these times: {}.", report.not_modelled))
}

/// What it takes with entries into the kernel, beside the core alone, if they were counted.
fn with_entries(report: &Compare) -> String {
    let Some(with) = &report.entries else {
        return String::new();
    };
    let interval = format!("{:.0} % interval", report.about.confidence * 100.0);
    let columns = [
        "CPU time",
        "core s",
        "faults",
        "calls",
        "with entries",
        &interval,
    ];
    let mut table = Table::new(&columns);
    let names = names(report);
    let labels = [names.named(0, "A"), names.named(1, "B"), "A'".to_owned()];
    for (arm, label) in labels.into_iter().enumerate() {
        let time = with.cpu_ns.list()[arm].in_units_of(1e9);
        table.row(vec![
            label,
            format!("{:.4}", report.cpu_ns.list()[arm].value / 1e9),
            grouped(*with.traps.list()[arm]),
            grouped(*with.calls.list()[arm]),
            format!("{:.4}", time.value),
            bounds(&time, 4),
        ]);
    }
    for (name, core, figure) in [
        ("B / A", &report.ratio, &with.ratio),
        (
            "A' / A (control)",
            &report.control_ratio,
            &with.control_ratio,
        ),
    ] {
        table.row(vec![
            name.to_owned(),
            format!("{:.4}", core.value),
            String::new(),
            String::new(),
            format!("{:.4}", figure.value),
            bounds(figure, 4),
        ]);
    }
    let price = &with.price;
    format!(
        "{}{}",
        table.render(0),
        wrapped(&format!(
            "Entering the kernel and returning counts with {:.0} ns a fault and {:.0} ns a call, as \
             measured in this run ({}).",
            price.trap_ns, price.syscall_ns, price.trap_method
        ))
    )
}

/// What it takes with the device; nothing where none is modelled.
fn with_device(report: &Compare) -> String {
    let Some(with) = &report.device else {
        return String::new();
    };
    let names = names(report);
    let mut table = Table::new(&["With the device", "core s", "device s", "together s", "/ A"]);
    let elapsed = with.elapsed_ns.as_ref();
    let elapsed = elapsed.map(|arms| [arms.a, arms.b, arms.control]);
    let device = [&with.device_ns].map(|arms| [arms.a, arms.b, arms.control])[0];
    let core = [&report.cpu_ns.a, &report.cpu_ns.b, &report.cpu_ns.control];
    let labels = [names.named(0, "A"), names.named(1, "B"), "A'".to_owned()];
    for (arm, label) in labels.into_iter().enumerate() {
        let seconds = |ns: f64| format!("{:.4}", ns / 1e9);
        table.row(vec![
            label,
            seconds(core[arm].value),
            seconds(device[arm]),
            elapsed.map_or_else(|| "-".to_owned(), |elapsed| seconds(elapsed[arm])),
            elapsed.map_or_else(String::new, |elapsed| {
                format!("{:.4}", elapsed[arm] / elapsed[0])
            }),
        ]);
    }
    let alone = match elapsed {
        Some(_) => "The verdict is on CPU time alone.",
        None => {
            "The verdict is on CPU time alone. With several CPUs one may work while another waits."
        }
    };
    let said = wrapped(&format!("{} {alone}", device::sentence(&with.device)));
    format!("\n{}{said}", table.render(0))
}

/// Milliseconds with a sign, except for what rounds to nothing.
fn change_ms(from_ns: f64, to_ns: f64) -> String {
    let text = format!("{:+.2}", (to_ns - from_ns) / 1e6);
    match text.as_str() {
        "+0.00" | "-0.00" => "0.00".to_owned(),
        _ => text,
    }
}

fn verdict(report: &Compare, resolution: Option<&Resolution>, detail: Detail) -> String {
    let found = report.conclusion();
    let mut text = match found.verdict {
        Verdict::NotProven(reason) => not_proven(reason, report),
        _ => format!(
            "Verdict: difference. {}.\n",
            difference(found.ratio, report.entries.is_some())
        ),
    };
    text += &in_the_core(report);
    if let Some(resolution) = resolution {
        text += &told_from(resolution);
        if detail == Detail::Full {
            text += &made_up(resolution);
        }
    }
    text += &wrapped(&format!("Of the whole: {}", report.of_the_whole()));
    text + &report.translation().map_or_else(String::new, wrapped)
}

/// What is said of the core alone, where the verdict has entries.
fn in_the_core(report: &Compare) -> String {
    match (&report.entries, report.verdict) {
        (None, _) => String::new(),
        (Some(_), Verdict::NotProven(_)) => "In the core alone: no difference proven.\n".to_owned(),
        (Some(_), _) => format!("In the core alone: {}.\n", difference(&report.ratio, false)),
    }
}

fn difference(ratio: &Figure, has_entries: bool) -> String {
    let percent = |ratio: f64| (ratio - 1.0).abs() * 100.0;
    let word = if ratio.value < 1.0 { "less" } else { "more" };
    let mut text = format!(
        "B needs {:.2} % {word} CPU time than A",
        percent(ratio.value)
    );
    if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
        let (near, far) = match ratio.value < 1.0 {
            true => (high, low),
            false => (low, high),
        };
        let _ = write!(text, " ({:.2} to {:.2} %)", percent(near), percent(far));
    }
    if has_entries {
        text += ", entries included";
    }
    text
}

fn not_proven(reason: Reason, report: &Compare) -> String {
    let sentence = match reason {
        Reason::WithinChance => "B / A is no farther from 1 than chance can come to.".to_owned(),
        Reason::WithinStray => {
            "B / A is farther from 1 than chance can come to, but not if A' / A is considered."
                .to_owned()
        }
        Reason::TooFewPasses => format!(
            "{}, and a verdict needs {LEAST_PASSES} (option -n).",
            plural(report.passes, "pass is complete", "passes are complete")
        ),
    };
    format!("Verdict: no difference proven.\n  {sentence}\n")
}

/// Classes have shares of the times that the verdict is on, so that they add up to them.
fn classes(report: &Compare) -> String {
    let mut table = Table::new(&[
        "Time by class (ms)",
        "operations",
        "A",
        "B",
        "B - A",
        "A %",
        "B %",
        "A ns/op",
        "B ns/op",
    ]);
    let times = report.class_times();
    let (a, b) = (report.cpu_ns.a.value, report.cpu_ns.b.value);
    let mut row = |name: &str, ops: u64, [of_a, of_b]: [f64; 2]| {
        let per_op = |ns: f64| format!("{:.0}", ns / ops.max(1) as f64);
        table.row(vec![
            name.to_owned(),
            grouped(ops),
            format!("{:.2}", of_a / 1e6),
            format!("{:.2}", of_b / 1e6),
            change_ms(of_a, of_b),
            format!("{:.1}", 100.0 * of_a / a),
            format!("{:.1}", 100.0 * of_b / b),
            per_op(of_a),
            per_op(of_b),
        ]);
    };
    for class in &times {
        row(class.class, class.ops, [class.ns.a, class.ns.b]);
    }
    row("total", report.ops as u64, [a, b]);
    let text = wrapped(&format!(
        "Shares of the time in the core, taken from one separate pass, in which each run of \
         operations of one class was timed by itself: {} intervals, {} ns of clock cost taken off \
         each. They have no interval of their own.",
        grouped(report.classes.iter().map(|row| row.intervals).sum()),
        report.clock_ns,
    ));
    table.render(0) + &text
}

fn counters(report: &Compare) -> String {
    let mut table = between("Events in one pass", report);
    let silent = |row: &&CounterRow| row.count.a.high == 0 && row.count.b.high == 0;
    for row in report.counters.iter().filter(|row| !silent(row)) {
        let (a, b) = (&row.count.a, &row.count.b);
        // One pass in which CPUs race proves nothing.
        let proves = row.pass == CountedIn::Timed || report.cpus == 1;
        table.row(vec![
            row.name.to_owned(),
            marked(spread(a, grouped), proves && a.high < b.low),
            marked(spread(b, grouped), proves && b.high < a.low),
            signed(a.median, b.median),
        ]);
    }
    let hidden = match report.counters.iter().filter(silent).count() {
        0 => String::new(),
        count => format!(
            "{} of what neither design did.\n",
            plural(count, "count is left out", "counts are left out")
        ),
    };
    let in_atomics = |row: &&CounterRow| row.pass == CountedIn::Atomics;
    let atomics: Vec<&str> = report
        .counters
        .iter()
        .filter(in_atomics)
        .map(|row| row.name.as_str())
        .collect();
    let source = match atomics.as_slice() {
        [] => String::new(),
        names => wrapped(&format!(
            "From one separate pass on an instrumented build of the same source, not timed: {}.",
            names.join(", ")
        )),
    };
    format!(
        "{}* fewer{}\n{source}{hidden}",
        table.render(0),
        match report.passes {
            1 => ".".to_owned(),
            n => format!(" in every one of {n} passes; (low .. high) where passes differ."),
        }
    )
}

fn memory(report: &Compare) -> String {
    let mut table = between("Memory at the peak (KiB)", report);
    let kib = |bytes: u64| grouped(bytes.div_ceil(1024));
    for row in &report.memory {
        let (a, b) = (&row.peak_bytes.a, &row.peak_bytes.b);
        table.row(vec![
            row.name.to_owned(),
            marked(spread(a, kib), a.high < b.low),
            marked(spread(b, kib), b.high < a.low),
            signed(a.median.div_ceil(1024), b.median.div_ceil(1024)),
        ]);
    }
    format!("{}* less.\n", table.render(0))
}

fn signed(a: u64, b: u64) -> String {
    match b.checked_sub(a) {
        Some(0) => "0".to_owned(),
        Some(more) => format!("+{}", grouped(more)),
        None => format!("-{}", grouped(a - b)),
    }
}

fn spread(count: &Count, show: impl Fn(u64) -> String) -> String {
    match count.low == count.high {
        true => show(count.median),
        false => format!(
            "{} ({} .. {})",
            show(count.median),
            show(count.low),
            show(count.high)
        ),
    }
}

fn kernbench_block(report: &Compare) -> String {
    let about = &report.about;
    let title = format!(
        "replay, {} on {}",
        plural(about.copies as usize, "copy", "copies"),
        plural(report.cpus, "CPU", "CPUs")
    );
    format!(
        "{}Elapsed: seconds of wall clock in which the slices ran. System: seconds of CPU time in \
         the core.\nUser: 0, because no user code is replayed. CPU: System / Elapsed in percent.\n",
        kernbench::block(&title, &report.kernbench)
    )
}

fn profile(report: &Compare) -> String {
    let times = report.class_times();
    let ticks = |ns: fn(&ClassTime<'_>) -> f64| -> Vec<(&str, u64)> {
        let ticks = times
            .iter()
            .map(|row| (row.class, (ns(row) / 1e3).round() as u64));
        let mut ticks: Vec<(&str, u64)> = ticks.collect();
        ticks.push(("total", ticks.iter().map(|entry| entry.1).sum()));
        ticks
    };
    let lines = diffprofile::lines(&ticks(|row| row.ns.a), &ticks(|row| row.ns.b), PROFILE_ENDS);
    let mut text = "diffprofile (time by class in us, + worse in B)\n".to_owned();
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}
