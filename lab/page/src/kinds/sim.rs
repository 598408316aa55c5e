//! Traces on simulated machines: `vellum replay`, `vellum compare` and `vellum bench` with
//! `--on sim`, and `vellum scale TRACE`.

use maud::{Markup, html};

use super::scale::{lines, locks, names, seeds};
use super::{Answer, Named, Section, Shown, arms, flame};
use crate::draw::chart::{Chart, Series, Style};
use crate::draw::{Axis, forest};
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::sim::{Bench, Comparison, Control, Findings, Loaded, Ratio, Side, Sweep};
use vellum_results::{Figure, Reason, Verdict};

/// The figures that are shown, under their titles.
const FIGURES: [(&str, &str, usize); 7] = [
    ("elapsed_s", "elapsed, s", 6),
    ("user_s", "user, s", 6),
    ("system_s", "system, s", 6),
    ("idle_s", "idle, s", 6),
    ("percent_cpu", "CPU, %", 1),
    ("context_switches", "context switches", 0),
    ("migrations", "migrations", 0),
];

fn title_of(name: &str) -> &str {
    let found = FIGURES.iter().find(|figure| figure.0 == name);
    found.map_or(name, |figure| figure.1)
}

/// Shows one machine.
pub fn show(findings: &Findings) -> Shown {
    let names = named(findings);
    let mut sections = Vec::new();
    if let Some(comparison) = &findings.comparison {
        sections.push(Section::new(
            "B against A, seed by seed",
            ratios(comparison, "B", 1),
        ));
    }
    sections.push(Section::new("Figures", figures(findings, &names)));
    sections.push(Section::new("Seeds", by_seed(findings, &names)));
    sections.push(Section::new(
        "Where the system time goes",
        system(findings, &names),
    ));
    let against = match &names[..] {
        [a, b] if findings.comparison.is_some() => format!("{} against {}", b.name, a.name),
        all => all
            .iter()
            .map(|one| one.name.clone())
            .collect::<Vec<_>>()
            .join(", "),
    };
    Shown {
        title: format!(
            "{against}: {} on {} of {}",
            words::file_name(&findings.trace),
            words::plural(findings.cpus as u64, "CPU", "CPUs"),
            findings.machine
        ),
        answer: answer(findings, &names),
        sections,
        facts: facts(findings),
    }
}

fn named(findings: &Findings) -> Vec<Named> {
    names(findings.sides.iter().map(|side| side.design.as_str()))
}

fn warning(interrupted: bool, control: Option<Control>) -> Option<String> {
    match (interrupted, control) {
        (_, Some(Control { repeats: false, .. })) => Some(
            "The same seed did not give the same result: a defect of the simulator.".to_owned(),
        ),
        (true, _) => Some("Interrupted: what was complete is shown.".to_owned()),
        _ => None,
    }
}

fn answer(findings: &Findings, names: &[Named]) -> Answer {
    let elapsed = |comparison: &Comparison| {
        let ratios = &comparison.ratios;
        ratios
            .iter()
            .find(|ratio| ratio.name == "elapsed_s")
            .cloned()
    };
    let warning = warning(findings.interrupted, findings.control);
    match (findings.comparison.as_ref().and_then(elapsed), names) {
        (Some(ratio), [a, b]) => {
            let figure = ratio.figure();
            let verdict = match (ratio.differs(), ratio.ratio < 1.0) {
                (false, _) => Verdict::NotProven(Reason::WithinChance),
                (true, true) => Verdict::Less,
                (true, false) => Verdict::More,
            };
            Answer {
                sentence: arms::sentence((&a.name, &b.name), &figure, verdict, "elapsed time"),
                ratio: Some(figure),
                control: findings.control.map(|control| Figure {
                    value: control.ratio,
                    ..Figure::default()
                }),
                resolution: None,
                told: Some(verdict.is_difference()),
                warning,
            }
        }
        _ => Answer {
            sentence: findings
                .sides
                .iter()
                .zip(names)
                .filter_map(|(side, named)| {
                    let elapsed = side.figure("elapsed_s")?;
                    Some(format!(
                        "{} takes {:.6} s with {} ({:.6} to {:.6} over the seeds).",
                        named.name,
                        elapsed.median,
                        words::plural(findings.cpus as u64, "CPU", "CPUs"),
                        elapsed.least,
                        elapsed.most
                    ))
                })
                .collect::<Vec<_>>()
                .join(" "),
            warning,
            ..Answer::default()
        },
    }
}

/// A design, which is number `number`, against the first.
fn ratios(comparison: &Comparison, label: &str, number: usize) -> Markup {
    let figures: Vec<Figure> = comparison.ratios.iter().map(Ratio::figure).collect();
    let axis = forest::axis(&figures, 1.0);
    let mut grid = Grid::new(format!(
        "{label} / A: the median of the seeds' ratios with its {:.0}\u{a0}% interval",
        comparison.confidence * 100.0
    ))
    .text("figure")
    .number(format!("{label} / A"))
    .number("interval")
    .text("told")
    .picture(forest::head(&axis));
    for ratio in &comparison.ratios {
        let figure = ratio.figure();
        let title = format!("{}: {}", title_of(&ratio.name), words::ratio(ratio.ratio));
        grid.row(
            "",
            vec![
                Cell::text(title_of(&ratio.name)),
                Cell::number(ratio.ratio, words::ratio(ratio.ratio)),
                Cell::text(words::bounds(&figure, words::ratio)),
                Cell::text(match (ratio.differs(), ratio.ratio < 1.0) {
                    (false, _) => "no difference",
                    (true, true) => "\u{25bc} less than A",
                    (true, false) => "\u{25b2} more than A",
                }),
                Cell::markup(forest::row(
                    &axis,
                    crate::draw::marks::Arm::Number(number),
                    &figure,
                    1.0,
                    None,
                    &title,
                )),
            ],
        );
    }
    grid.render()
}

fn figures(findings: &Findings, names: &[Named]) -> Markup {
    let mut grid = Grid::new("medians of the seeds, with the least and the most").text("figure");
    for named in names {
        grid = grid.number(named.whole()).text("range");
    }
    for (name, title, digits) in FIGURES {
        let mut cells = vec![Cell::text(title)];
        for side in &findings.sides {
            match side.figure(name) {
                Some(spread) => {
                    cells.push(Cell::number(
                        spread.median,
                        format!("{:.digits$}", spread.median),
                    ));
                    cells.push(Cell::text(format!(
                        "{:.digits$} .. {:.digits$}",
                        spread.least, spread.most
                    )));
                }
                None => cells.extend([Cell::empty(), Cell::empty()]),
            }
        }
        grid.row("", cells);
    }
    grid.render()
}

fn by_seed(findings: &Findings, names: &[Named]) -> Markup {
    let runs = findings.sides.iter().flat_map(|side| &side.runs);
    let most = runs.map(|run| run.elapsed_ns).max().unwrap_or(0);
    let (unit, divisor) = words::time_unit(most as f64);
    let arms: Vec<(Named, Vec<f64>)> = names
        .iter()
        .zip(&findings.sides)
        .map(|(named, side)| {
            let times = side.runs.iter();
            let times = times.map(|run| run.elapsed_ns as f64 / divisor);
            (named.clone(), times.collect())
        })
        .collect();
    arms::passes(
        &arms,
        &format!("elapsed, {unit}"),
        "elapsed time of the machine with each seed",
    )
}

fn system(findings: &Findings, names: &[Named]) -> Markup {
    html! {
        @if let Some(picture) = waits(findings, names) { (picture) }
        @for (side, named) in findings.sides.iter().zip(names) {
            h4 { (named.whole()) }
            @if let Some(run) = side.middle() {
                p {
                    "Of the system time " (words::percent(run.moving)) " went to moving cache lines, "
                    (words::percent(run.spinning)) " to spinning and " (words::percent(run.flushing))
                    " to shootdowns, in the simulation of the median seed."
                }
                (lines(&run.lines, "share of the system time"))
                (locks(&run.locks, run.system_ns, "share of the system time"))
            }
        }
    }
}

/// What B waited for and A did not, and the other way round.
fn waits(findings: &Findings, names: &[Named]) -> Option<Markup> {
    let ([a, b], [of_a, of_b]) = (&findings.sides[..], names) else {
        return None;
    };
    let profile = |side: &Side, named: &Named| {
        let stacks = &side.middle()?.waits;
        let stacks = stacks
            .iter()
            .map(|ticks| (ticks.stack.as_slice(), ticks.ns));
        Some(flame::profile(&named.whole(), stacks))
    };
    let (old, new) = (profile(a, of_a)?, profile(b, of_b)?);
    (!old.is_empty() && !new.is_empty()).then(|| {
        let caption = "The system time as boxes, a tick a nanosecond: what CPUs waited for, and the rest as \
                       work. Their width is the time under both designs together. Red: more under B. Blue: \
                       more under A. Grey: alike.";
        flame::figure(&old, &new, caption)
    })
}

fn facts(findings: &Findings) -> Vec<(String, String)> {
    vec![
        (
            "Machine".to_owned(),
            format!("{}: {}", findings.machine, findings.title),
        ),
        ("Its memory".to_owned(), words::bytes(findings.ram_bytes)),
        (
            "Workload".to_owned(),
            format!(
                "{}, {}, {}, {}{}",
                words::plural(u64::from(findings.about.copies), "copy", "copies"),
                words::plural(findings.about.tasks, "task", "tasks"),
                words::plural(findings.about.events, "event", "events"),
                words::plural(findings.about.ops, "operation", "operations"),
                match &findings.about.service {
                    Some(service) => format!(
                        "; {:.3} s of the recorded CPU times were service of the recorded kernel",
                        service.seconds
                    ),
                    None =>
                        "; the recording has no CPU times, so that there is no user time".to_owned(),
                }
            ),
        ),
        ("Seeds".to_owned(), seeds(&findings.seeds)),
    ]
}

/// Shows a benchmark under several loads.
pub fn show_bench(bench: &Bench) -> Shown {
    let Some(first) = bench.loads.first() else {
        return Shown {
            title: format!("{} on a simulated machine", bench.benchmark),
            answer: Answer::default(),
            sections: Vec::new(),
            facts: Vec::new(),
        };
    };
    let names = named(&first.findings);
    let controls = bench.loads.iter().filter_map(|load| load.findings.control);
    let worst = controls.min_by_key(|control| control.repeats);
    let mut sections = Vec::new();
    for load in &bench.loads {
        let findings = &load.findings;
        let body = html! {
            pre { (load.block) }
            @for (place, comparison) in load.against_base.iter().enumerate() {
                @if let Some(other) = names.get(place + 1) {
                    h4 { (other.whole()) " against " (names[0].whole()) }
                    (ratios(comparison, &other.label, place + 1))
                }
            }
            (figures(findings, &names))
            (by_seed(findings, &names))
            (system(findings, &names))
        };
        sections.push(Section::new(load.load.clone(), body));
    }
    Shown {
        title: format!(
            "{} on {} of {}",
            bench.benchmark,
            words::plural(first.findings.cpus as u64, "CPU", "CPUs"),
            first.findings.machine
        ),
        answer: Answer {
            sentence: bench
                .loads
                .iter()
                .flat_map(|load| against_base(load, &names))
                .collect::<Vec<_>>()
                .join(" "),
            warning: warning(bench.interrupted, worst),
            ..Answer::default()
        },
        sections,
        facts: facts(&first.findings),
    }
}

/// What each design's system time is to that of the first under a load, in a sentence.
fn against_base(load: &Loaded, names: &[Named]) -> Vec<String> {
    let others = names.iter().skip(1).zip(&load.against_base);
    let sentences = others.filter_map(|(other, comparison)| {
        let mut ratios = comparison.ratios.iter();
        let ratio = ratios.find(|ratio| ratio.name == "system_s")?;
        Some(format!(
            "{}: {} takes {} of the system time of {} ({}){}.",
            load.load,
            other.name,
            words::ratio(ratio.ratio),
            names[0].name,
            words::bounds(&ratio.figure(), words::ratio),
            if ratio.differs() {
                ""
            } else {
                ", no difference proven"
            },
        ))
    });
    sentences.collect()
}

/// Shows a trace on more and more CPUs.
pub fn show_sweep(sweep: &Sweep) -> Shown {
    let Some(last) = sweep.points.last() else {
        return Shown {
            title: "A trace on more and more CPUs".to_owned(),
            answer: Answer::default(),
            sections: Vec::new(),
            facts: Vec::new(),
        };
    };
    let names = named(last);
    let speedups = names.iter().enumerate().filter_map(|(number, named)| {
        let elapsed = |point: &Findings| Some(point.sides.get(number)?.figure("elapsed_s")?.median);
        let first = sweep.points.first()?;
        let gain = elapsed(first)? / elapsed(last)?;
        Some(format!(
            "{} is {gain:.2} times as fast with {} as with {}.",
            named.name,
            words::plural(last.cpus as u64, "CPU", "CPUs"),
            first.cpus
        ))
    });
    let controls = sweep.points.iter().filter_map(|point| point.control);
    let worst = controls.min_by_key(|control| control.repeats);
    Shown {
        title: format!(
            "{} on {} by number of CPUs",
            words::file_name(&last.trace),
            last.machine
        ),
        answer: Answer {
            sentence: speedups.collect::<Vec<_>>().join(" "),
            warning: warning(sweep.interrupted, worst),
            ..Answer::default()
        },
        sections: vec![
            Section::new("Times", times(sweep)),
            Section::new("By number of CPUs", by_cpus(sweep, &names)),
            Section::new(
                format!(
                    "Where the system time goes with {}",
                    words::plural(last.cpus as u64, "CPU", "CPUs")
                ),
                system(last, &names),
            ),
        ],
        facts: facts(last),
    }
}

/// Elapsed and system time by number of CPUs.
pub fn charts(sweep: &Sweep) -> [Chart; 2] {
    let names = &sweep.points.last().map_or_else(Vec::new, named);
    let chart = |name: &str, title: &str| {
        let line = |(number, named): (usize, &Named)| Series {
            name: named.whole(),
            arm: named.arm,
            points: sweep
                .points
                .iter()
                .filter_map(|point| {
                    let spread = point.sides.get(number)?.figure(name)?;
                    Some((point.cpus as f64, spread.median))
                })
                .collect(),
            style: Style::Marks,
        };
        let series: Vec<Series> = names.iter().enumerate().map(line).collect();
        let all = || series.iter().flat_map(|series| &series.points);
        Chart {
            told: format!("{title} by number of CPUs"),
            x: (
                Axis::doublings(all().map(|point| point.0)),
                "CPUs".to_owned(),
            ),
            y: (
                Axis::from_zero(all().map(|point| point.1)),
                title.to_owned(),
            ),
            height: 220,
            reference: None,
            series,
            zooms: false,
        }
    };
    [
        chart("elapsed_s", "elapsed, s"),
        chart("system_s", "system, s"),
    ]
}

fn times(sweep: &Sweep) -> Markup {
    let [elapsed, system] = charts(sweep);
    html! {
        div.pair {
            (elapsed.figure(&html! { "Elapsed time." }))
            (system.figure(&html! { "System time of all CPUs: level if it scales." }))
        }
    }
}

fn by_cpus(sweep: &Sweep, names: &[Named]) -> Markup {
    let mut grid = Grid::new("medians of the seeds")
        .text("design")
        .number("CPUs");
    for (_, title, _) in FIGURES {
        grid = grid.number(title);
    }
    for (number, named) in names.iter().enumerate() {
        for point in &sweep.points {
            let mut cells = vec![
                arms::name_cell(named),
                Cell::number(point.cpus as f64, point.cpus.to_string()),
            ];
            for (name, _, digits) in FIGURES {
                let spread = point.sides.get(number).and_then(|side| side.figure(name));
                cells.push(spread.map_or_else(Cell::empty, |spread| {
                    Cell::number(spread.median, format!("{:.digits$}", spread.median))
                }));
            }
            grid.row(named.arm.class(), cells);
        }
    }
    grid.render()
}
