//! Two designs of the core: `vellum compare`.

mod along;

use maud::{Markup, html};

use super::arms::{self, CountRow, RatioRow};
use super::{Answer, Named, Section, Shown, flame};
use crate::draw::marks::Arm;
use crate::draw::standalone::Picture;
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::Arms;
use vellum_results::compare::{
    ClassTime, Compare, Conclusion, Count, KernbenchRow, MemoryRow, WithEntries,
};

/// Shows a comparison.
pub fn show(compare: &Compare) -> Shown {
    let names = names(compare);
    let mut sections = vec![
        Section::new("CPU time", ratios(compare, &names)),
        Section::new("Passes", passes(compare, &names)),
    ];
    if !compare.classes.is_empty() {
        sections.push(Section::new(
            "Time by class of operation",
            classes(compare, &names),
        ));
    }
    if let Some(along) = &compare.along {
        sections.extend(along::sections(along, &names));
    }
    sections.push(Section::new("Memory", memory(compare, &names)));
    sections.push(Section::new(
        "Events that were counted",
        counters(compare, &names),
    ));
    sections.push(Section::new(
        "Kernbench block",
        kernbench(&compare.kernbench),
    ));
    if let Some(profile) = &compare.profile {
        sections.extend(flame::sections(profile));
    }
    let about = &compare.about;
    Shown {
        title: format!(
            "{} against {}: {}",
            words::design(&about.b),
            words::design(&about.a),
            words::file_name(&about.trace)
        ),
        answer: answer(compare),
        sections,
        facts: facts(compare),
    }
}

fn names(compare: &Compare) -> [Named; 3] {
    let about = &compare.about;
    [
        Named::new(Arm::Number(0), "A", words::design(&about.a)),
        Named::new(Arm::Number(1), "B", words::design(&about.b)),
        Named::new(Arm::Control, "A'", "A once more, the control"),
    ]
}

fn answer(compare: &Compare) -> Answer {
    let about = &compare.about;
    let found = compare.conclusion();
    Answer {
        sentence: arms::sentence(
            (words::design(&about.a), words::design(&about.b)),
            found.ratio,
            found.verdict,
            compare.what_is_compared(),
        ),
        ratio: Some(*found.ratio),
        control: Some(*found.control_ratio),
        resolution: found.resolution,
        told: Some(found.verdict.is_difference()),
        warning: compare.interrupted.then(|| {
            format!(
                "Interrupted: the figures are of the {} that were complete, of {}.",
                words::plural(compare.passes as u64, "pass", "passes"),
                about.passes
            )
        }),
    }
}

fn ratios(compare: &Compare, names: &[Named; 3]) -> Markup {
    let core = Conclusion {
        cpu_ns: &compare.cpu_ns,
        ratio: &compare.ratio,
        control_ratio: &compare.control_ratio,
        resolution: compare.resolution,
        verdict: compare.verdict,
    };
    html! {
        @if let Some(with) = &compare.entries {
            (table_of_ratios(&compare.conclusion(), names, &entries_caption(with)))
        }
        (table_of_ratios(
            &core,
            names,
            "CPU time in the core, all simulated CPUs together. Shaded: what is too near to 1 to be told \
             from it in this run."
        ))
        @if compare.whole.is_some() {
            p { "Of the whole: " (compare.of_the_whole()) }
        }
        @if let Some(said) = compare.translation() {
            p { (said) }
        }
        p.note { "Not in any of these figures: " (compare.not_modelled) "." }
    }
}

fn entries_caption(with: &WithEntries) -> String {
    let (traps, calls) = (&with.traps, &with.calls);
    let [a, b, met, made] =
        [traps.a, traps.b, calls.a, calls.b].map(vellum_terminal::table::grouped);
    format!(
        "CPU time in the core and of entering the kernel, at {} ns a fault and {} ns a call as measured in \
         this run: A {a} faults and {met} calls, B {b} and {made}.",
        words::number(with.price.trap_ns),
        words::number(with.price.syscall_ns),
    )
}

fn table_of_ratios(found: &Conclusion<'_>, names: &[Named; 3], caption: &str) -> Markup {
    let (unit, divisor) = words::time_unit(found.cpu_ns.a.value);
    let one = vellum_results::Figure {
        value: 1.0,
        ..Default::default()
    };
    let says = ["base", arms::says(found.verdict), "control"];
    let ratios = [one, *found.ratio, *found.control_ratio];
    let resolutions = [None, found.resolution, None];
    let rows: Vec<RatioRow> = names
        .iter()
        .zip(found.cpu_ns.list())
        .enumerate()
        .map(|(arm, (named, time))| RatioRow {
            named: named.clone(),
            time: time.in_units_of(divisor),
            ratio: ratios[arm],
            resolution: resolutions[arm],
            says: says[arm].to_owned(),
        })
        .collect();
    arms::ratios(&rows, &format!("CPU time, {unit}"), caption)
}

/// The answer, ratios, passes and the difference along the trace as one picture.
pub fn picture(compare: &Compare) -> Picture {
    let names = names(compare);
    let about = &compare.about;
    let answer = answer(compare);
    let (arms, unit) = times_of_passes(compare, &names);
    let charts = [
        arms::passes_chart(
            &arms,
            &format!("each pass: CPU time in the core, {unit}"),
            "passes",
        ),
        compare
            .along
            .as_ref()
            .map(|along| along::chart(along, &names)),
    ];
    let found = compare.conclusion();
    let resolution = found.resolution.map_or_else(String::new, |share| {
        format!("; differences above {} are told", words::percent(share))
    });
    Picture {
        title: answer.sentence,
        lines: vec![format!(
            "{}, {}{resolution}",
            words::file_name(&about.trace),
            words::plural(compare.passes as u64, "pass", "passes")
        )],
        ratios: vec![
            (names[1].arm, "B / A".to_owned(), *found.ratio),
            (names[2].arm, "A' / A".to_owned(), *found.control_ratio),
        ],
        resolution: found.resolution,
        charts: charts.into_iter().flatten().collect(),
    }
}

fn passes(compare: &Compare, names: &[Named; 3]) -> Markup {
    let (arms, unit) = times_of_passes(compare, names);
    arms::passes(
        &arms,
        &format!("CPU time, {unit}"),
        "CPU time of each pass under each arm",
    )
}

/// The times of the passes of each arm, and their unit.
fn times_of_passes(
    compare: &Compare,
    names: &[Named; 3],
) -> (Vec<(Named, Vec<f64>)>, &'static str) {
    let (unit, divisor) = words::time_unit(compare.cpu_ns.a.value);
    let arms = names.iter().zip(compare.pass_cpu_ns.list());
    let scaled = arms.map(|(named, passes)| {
        let times = passes.iter().map(|&ns| ns as f64 / divisor);
        (named.clone(), times.collect())
    });
    (scaled.collect(), unit)
}

fn classes(compare: &Compare, names: &[Named; 3]) -> Markup {
    let most = |row: &ClassTime<'_>| row.ns.a.max(row.ns.b);
    let mut rows = compare.class_times();
    let largest = rows.iter().map(most).fold(0.0, f64::max);
    // The smaller ones are to be read, too.
    let (unit, divisor) = words::time_unit(largest / 100.0);
    rows.sort_by(|one, other| most(other).total_cmp(&most(one)));
    let mut grid = Grid::new(
        "time by class of operation: shares of the time in the core, taken from a pass of its own that is \
         timed finely. They have no interval",
    )
    .text("class")
    .number("operations");
    for named in &names[..2] {
        grid = grid.number(format!("{}, {unit}", named.label));
    }
    grid = grid
        .number(format!("B \u{2212} A, {unit}"))
        .picture(html! { "A and B as bars" });
    for row in &rows {
        let list = [row.ns.a / divisor, row.ns.b / divisor];
        let change = list[1] - list[0];
        let mut cells = vec![
            Cell::text(row.class),
            Cell::number(row.ops as f64, vellum_terminal::table::grouped(row.ops)),
        ];
        cells.extend(list.map(|time| Cell::number(time, words::number(time))));
        cells.push(Cell::number(change, words::signed(change)));
        let title = format!(
            "{}: A {}, B {} {unit}",
            row.class,
            words::number(list[0]),
            words::number(list[1]),
        );
        let bars: Vec<(Arm, f64)> = names.iter().zip(list).map(|(n, t)| (n.arm, t)).collect();
        cells.push(arms::bar_cell(&bars, largest / divisor, &title));
        grid.row("", cells);
    }
    grid.render()
}

/// Whether every pass of one arm counted more than every pass of the other.
fn apart(a: &Count, b: &Count) -> bool {
    a.high < b.low || b.high < a.low
}

fn counters(compare: &Compare, names: &[Named; 3]) -> Markup {
    let rows = compare.counters.iter().map(|row| CountRow {
        name: row.name.clone(),
        values: vec![Some(row.count.a.median), Some(row.count.b.median)],
        differs: apart(&row.count.a, &row.count.b),
    });
    html! {
        p {
            "Counts do not vary with the machine's mood. What is cheap in a replay, as a flush or a lock that \
             nobody else wants, may be dear on a machine with many CPUs."
        }
        (arms::counts(&names[..2], rows.collect(), "in one pass"))
    }
}

fn memory(compare: &Compare, names: &[Named; 3]) -> Markup {
    let rows = |of: fn(&MemoryRow) -> [Count; 2]| {
        let rows = compare.memory.iter().map(move |row| {
            let [a, b] = of(row);
            CountRow {
                name: row.name.clone(),
                values: vec![Some(a.median >> 10), Some(b.median >> 10)],
                differs: apart(&a, &b),
            }
        });
        rows.collect::<Vec<CountRow>>()
    };
    html! {
        h4 { "At the peak" }
        (arms::counts(&names[..2], rows(|row| [row.peak_bytes.a, row.peak_bytes.b]), "KiB at the peak"))
        h4 { "At the end" }
        (arms::counts(&names[..2], rows(|row| [row.end_bytes.a, row.end_bytes.b]), "KiB at the end"))
    }
}

/// A kernbench block as a table.
pub(super) fn kernbench(rows: &[KernbenchRow]) -> Markup {
    let mut grid = Grid::new(
        "as kernbench results are posted; Elapsed is the wall clock of the replay, System the CPU time in \
         the core",
    )
    .text("kernel")
    .number("Elapsed, s")
    .number("System, s")
    .number("User, s")
    .number("CPU, %");
    let optional = |value: Option<f64>| match value {
        Some(value) => Cell::number(value, format!("{value:.2}")),
        None => Cell::empty(),
    };
    for row in rows {
        grid.row(
            "",
            vec![
                Cell::text(&row.label),
                Cell::number(row.elapsed_s, format!("{:.2}", row.elapsed_s)),
                Cell::number(row.system_s, format!("{:.2}", row.system_s)),
                optional(row.user_s),
                optional(row.cpu_percent),
            ],
        );
    }
    grid.render()
}

/// The times of the device, if one was modelled.
fn device_facts(compare: &Compare) -> Vec<(String, String)> {
    let Some(device) = &compare.device else {
        return Vec::new();
    };
    let seconds = |arms: &Arms<f64>| {
        let [a, b] = [arms.a, arms.b].map(|ns| ns / 1e9);
        format!("A {a:.3} s, B {b:.3} s")
    };
    let time = format!("{}: {}", device.device.name, seconds(&device.device_ns));
    let sum = device.elapsed_ns.as_ref().map(seconds);
    let sum = sum.map(|sum| ("Core and device".to_owned(), sum));
    std::iter::once(("Time of the device".to_owned(), time))
        .chain(sum)
        .collect()
}

fn facts(compare: &Compare) -> Vec<(String, String)> {
    let about = &compare.about;
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("Design A", compare.designs.a.clone()),
        fact("Design B", compare.designs.b.clone()),
        fact(
            "Workload",
            format!(
                "{}, {}, {}",
                words::plural(compare.ops as u64, "operation", "operations"),
                words::plural(u64::from(about.copies), "copy", "copies"),
                words::plural(compare.cpus as u64, "simulated CPU", "simulated CPUs")
            ),
        ),
        fact(
            "Method",
            format!(
                "{} over {} of about {} \u{b5}s; {:.0}\u{a0}% intervals from {} resamples",
                words::plural(compare.passes as u64, "pass", "passes"),
                words::plural(compare.slices as u64, "slice", "slices"),
                about.slice_us,
                about.confidence * 100.0,
                about.resamples
            ),
        ),
        fact("Memory of each machine", words::bytes(about.ram_bytes)),
        fact("Seed", about.seed.to_string()),
    ];
    facts.extend(device_facts(compare));
    facts
}
