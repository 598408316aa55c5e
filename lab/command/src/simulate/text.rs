//! Findings as tables.

use std::fmt::Write;

use super::account::FIGURES;
use super::{elapsed_to_base, limit};
use crate::report::Detail;
use crate::report::names::letter;
use crate::scale::text::{lines_table, percent, spread_is};
use crate::scale::waits::locks_table;
use vellum_results::sim::{
    About, Bench, Comparison, Control, Findings, Loaded, Ratio, ServicePrice, Side, Sweep,
    TakenService,
};
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::{plural, wrapped};

/// The findings; with `profile`, what the system time was lost on.
pub fn render(findings: &Findings, profile: bool, detail: Detail) -> String {
    let cpus = plural(findings.cpus, "CPU", "CPUs");
    let mut text = header(findings, &format!("{cpus} of "));
    match &findings.comparison {
        Some(comparison) => text += &compared(findings, comparison),
        None => text.extend(findings.sides.iter().map(alone)),
    }
    for (number, side) in findings.sides.iter().enumerate() {
        text += &divergences(findings, side, number, detail);
    }
    if profile {
        for (number, side) in findings.sides.iter().enumerate() {
            text += &lines(&name(findings, side, number), side);
        }
    }
    text
}

/// A benchmark under several loads.
pub fn render_bench(bench: &Bench, detail: Detail) -> String {
    let Some(first) = bench.loads.first() else {
        return String::new();
    };
    let findings = &first.findings;
    let mut text = format!(
        "{} on {} of {}: {}\n{}\n",
        bench.benchmark,
        plural(findings.cpus, "CPU", "CPUs"),
        findings.machine,
        findings.title,
        spread_is(findings.seeds.len()),
    );
    text += &wrapped(&user_time(&findings.about));
    if bench.interrupted {
        text += "INTERRUPTED: what was not complete is left out\n";
    }
    for (number, side) in findings.sides.iter().enumerate() {
        let _ = writeln!(text, "{}", name(findings, side, number));
    }
    for load in &bench.loads {
        let _ = write!(text, "\n{}", load.block);
        text.extend(load.findings.control.as_ref().map(control));
        text += &against_base(load);
        for (number, side) in load.findings.sides.iter().enumerate() {
            text += &divergences(&load.findings, side, number, detail);
        }
    }
    text
}

/// The designs of a load against the first.
fn against_base(load: &Loaded) -> String {
    let Some(first) = load.against_base.first() else {
        return String::new();
    };
    let interval = format!("{:.0} % interval", first.confidence * 100.0);
    let mut table = Table::new(&["", "/ A", &interval, "proven"]);
    for (number, comparison) in load.against_base.iter().enumerate() {
        for figure in &FIGURES {
            let Some(ratio) = comparison.ratio(figure.name) else {
                continue;
            };
            table.row(vec![
                format!("{} {}", letter(number + 1), figure.title),
                format!("{:.4}", ratio.ratio),
                format!("{:.4} .. {:.4}", ratio.low, ratio.high),
                if ratio.differs() { "yes" } else { "no" }.to_owned(),
            ]);
        }
    }
    table.render(0)
}

/// The findings with more and more CPUs; with `profile`, what the system time was lost on
/// with the most of them.
pub fn render_sweep(sweep: &Sweep, profile: bool, detail: Detail) -> String {
    let Some(last) = sweep.points.last() else {
        return String::new();
    };
    let mut text = header(last, "");
    text.extend(sweep.worst_control().as_ref().map(control));
    if sweep.interrupted {
        text += "INTERRUPTED: numbers of CPUs that were not complete are left out\n";
    }
    for (number, side) in last.sides.iter().enumerate() {
        let name = name(last, side, number);
        let _ = write!(text, "\n{name}\n{}", by_cpus(sweep, number));
        text += &limit::sentence(sweep, number);
        if profile {
            let cpus = plural(last.cpus, "CPU", "CPUs");
            text += &lines(&format!("{name} with {cpus}"), side);
        }
    }
    for (number, side) in last.sides.iter().enumerate() {
        text += &divergences(last, side, number, detail);
    }
    text
}

/// One design of a sweep.
fn by_cpus(sweep: &Sweep, number: usize) -> String {
    let mut header = vec!["CPUs", "elapsed s", "range", "speed-up"];
    let others = &FIGURES[1..5];
    header.extend(others.iter().map(|figure| figure.title));
    if number > 0 {
        header.extend(["/ A", "range"]);
    }
    let mut table = Table::new(&header);
    let elapsed = |findings: &Findings| findings.sides[number].figures[0].spread;
    for point in &sweep.points {
        let digits = FIGURES[0].digits;
        let spread = elapsed(point);
        let base = elapsed(&sweep.points[0]).median;
        let mut row = vec![
            point.cpus.to_string(),
            format!("{:.digits$}", spread.median),
            format!("{:.digits$} .. {:.digits$}", spread.least, spread.most),
            format!("{:.2}", base / spread.median),
        ];
        let figures = others.iter().zip(&point.sides[number].figures[1..]);
        row.extend(figures.map(|(figure, measured)| {
            let digits = figure.digits;
            format!("{:.digits$}", measured.spread.median)
        }));
        if number > 0 {
            let ratio = elapsed_to_base(point, number);
            row.push(format!("{:.4}", ratio.median));
            row.push(format!("{:.4} .. {:.4}", ratio.least, ratio.most));
        }
        table.row(row);
    }
    table.render(0)
}

/// What was simulated, on `how_many` CPUs.
fn header(findings: &Findings, how_many: &str) -> String {
    let about = &findings.about;
    let mut text = format!(
        "{} on {how_many}{}, {} MiB: {}\n{}, {}, {} operations; {}\n",
        findings.trace,
        findings.machine,
        grouped(findings.ram_bytes >> 20),
        findings.title,
        plural(about.copies as usize, "copy", "copies"),
        plural(about.tasks as usize, "task", "tasks"),
        grouped(about.ops),
        spread_is(findings.seeds.len()),
    );
    text += &wrapped(&user_time(about));
    if findings.interrupted {
        text += "INTERRUPTED: seeds that were not complete are left out\n";
    }
    text
}

/// Where the user time is from.
pub fn user_time(about: &About) -> String {
    match &about.service {
        None => "No user time: the trace does not say how long its tasks computed. Elapsed time \
                 is that of the memory management alone."
            .to_owned(),
        Some(service) => taken(service),
    }
}

/// How much of the recorded CPU times is not user time.
fn taken(service: &TakenService) -> String {
    let price =
        |price: &ServicePrice| format!("{} {:.2} us", price.of.name(), price.ns as f64 / 1e3);
    let prices: Vec<String> = service.prices.iter().map(price).collect();
    match prices.is_empty() {
        true => "User time is the recorded CPU time with all service of the recorded kernel: the \
                 trace has too few faults and calls in a row to tell what that was."
            .to_owned(),
        false => format!(
            "User time is the recorded CPU time less {:.6} s of service by the recorded kernel: \
             {}. Other calls are still in it.",
            service.seconds,
            prices.join(", "),
        ),
    }
}

/// How a side is called where there may be two.
fn name(findings: &Findings, side: &Side, number: usize) -> String {
    match findings.sides.len() {
        1 => design_name(&side.design).to_owned(),
        _ => format!("{} {}", letter(number), design_name(&side.design)),
    }
}

/// A design in option syntax, of which nothing is left if it is the default.
fn design_name(design: &str) -> &str {
    match design {
        "" => "the default design",
        options => options,
    }
}

/// A design that is not compared.
fn alone(side: &Side) -> String {
    let mut table = Table::new(&["", "median", "range"]);
    for (figure, measured) in FIGURES.iter().zip(&side.figures) {
        let digits = figure.digits;
        let spread = &measured.spread;
        table.row(vec![
            figure.title.to_owned(),
            format!("{:.digits$}", spread.median),
            format!("{:.digits$} .. {:.digits$}", spread.least, spread.most),
        ]);
    }
    format!("\n{}\n{}", design_name(&side.design), table.render(0))
}

fn compared(findings: &Findings, comparison: &Comparison) -> String {
    let mut text = String::new();
    for (number, side) in findings.sides.iter().enumerate() {
        let _ = writeln!(text, "{}", name(findings, side, number));
    }
    text.extend(findings.control.as_ref().map(control));
    let interval = format!("{:.0} % interval", comparison.confidence * 100.0);
    let mut table = Table::new(&["", "A", "B", "B / A", &interval]);
    for (place, figure) in FIGURES.iter().enumerate() {
        let digits = figure.digits;
        let mut row = vec![figure.title.to_owned()];
        let medians = findings.sides.iter().map(|side| &side.figures[place]);
        row.extend(medians.map(|measured| format!("{:.digits$}", measured.spread.median)));
        match comparison.ratio(figure.name) {
            Some(ratio) => row.extend([
                format!("{:.4}", ratio.ratio),
                format!("{:.4} .. {:.4}", ratio.low, ratio.high),
            ]),
            None => row.push("-".to_owned()),
        }
        table.row(row);
    }
    let _ = write!(text, "\n{}", table.render(0));
    text + &verdict(comparison)
}

fn control(control: &Control) -> String {
    match control.repeats {
        true => "Control: A with its first seed once more, ratio 1.000 exactly\n".to_owned(),
        false => format!(
            "CONTROL FAILED: A with its first seed once more has a ratio of {:.6} and is not the \
             same throughout\n",
            control.ratio
        ),
    }
}

/// Which design takes less time, in a sentence.
fn verdict(comparison: &Comparison) -> String {
    let Some(ratio) = comparison.ratio(FIGURES[0].name) else {
        return "Nothing took any time.\n".to_owned();
    };
    let Ratio { low, high, .. } = *ratio;
    if !ratio.differs() {
        return format!(
            "No difference is proven: with B everything takes {low:.4} to {high:.4} of the time.\n"
        );
    }
    let (how, least, most) = match ratio.ratio < 1.0 {
        true => ("less", 1.0 - high, 1.0 - low),
        false => ("more", low - 1.0, high - 1.0),
    };
    format!(
        "B takes {how} time: {} to {} % {how}.\n",
        percent(least),
        percent(most)
    )
}

/// What went otherwise than recorded, in the simulation in the middle.
fn divergences(findings: &Findings, side: &Side, number: usize, detail: Detail) -> String {
    let Some(run) = side.middle().filter(|run| !run.divergences.is_empty()) else {
        return String::new();
    };
    let total: u64 = run.divergences.iter().map(|how| how.count).sum();
    let mut text = format!(
        "\n{}: {} of {} operations went otherwise than recorded, {} of them without an \
         explanation in the trace\n",
        name(findings, side, number),
        grouped(total),
        grouped(run.ops),
        grouped(run.unexplained),
    );
    if detail == Detail::Full {
        for how in &run.divergences {
            let _ = writeln!(text, "  {}: {}", how.how, grouped(how.count));
        }
    }
    text
}

/// Where the system time went.
fn lines(name: &str, side: &Side) -> String {
    let Some(run) = side.middle() else {
        return String::new();
    };
    format!(
        "\n{name}, of the system time with seed {}: {} % moving lines, {} % spinning, {} % shootdowns\n{}",
        run.seed,
        percent(run.moving),
        percent(run.spinning),
        percent(run.flushing),
        lines_table(&run.lines),
    ) + &locks_table(&run.locks, run.system_ns as f64)
}

#[cfg(test)]
mod tests;
