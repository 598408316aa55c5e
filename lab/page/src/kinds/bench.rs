//! Named workloads under several designs: `vellum bench`.

use maud::{Markup, html};

use super::arms::{self, CountRow, RatioRow};
use super::compare::kernbench;
use super::{Answer, Named, Section, Shown, flame};
use crate::aligned;
use crate::draw::marks::Arm;
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::bench::{ArmFigure, Bench, BenchRun, Block, Figure, Row, Share};
use vellum_results::{Standing, Verdict};

/// Shows a benchmark.
pub fn show(bench: &Bench) -> Shown {
    let names = names(bench);
    let mut sections: Vec<Section> = bench
        .runs
        .iter()
        .map(|run| Section::new(run.title.clone(), body(run, &names)))
        .collect();
    if !bench.blocks.is_empty() {
        let blocks = html! { @for block in &bench.blocks { (aligned::shown(block)) } };
        sections.push(Section::new("In the formats of others", blocks));
    }
    if let Some(profile) = &bench.profile {
        sections.extend(flame::sections(profile));
    }
    if !bench.notes.is_empty() {
        let notes = html! { ul { @for note in &bench.notes { li { (note) } } } };
        sections.push(Section::new("Notes", notes));
    }
    Shown {
        title: format!("{} on {}", bench.benchmark, place(&bench.on)),
        answer: answer(bench, &names),
        sections,
        facts: facts(bench),
    }
}

fn place(on: &str) -> &str {
    match on {
        "linux" => "the host's kernel",
        _ => "the core",
    }
}

fn names(bench: &Bench) -> Vec<Named> {
    let arms = bench.arms.len();
    let named = bench.arms.iter().enumerate().map(|(number, arm)| {
        let is_control = number + 1 == arms;
        let name = match is_control {
            true => format!("{} once more, the control", bench.arms[0].label),
            false => words::design(&arm.given).to_owned(),
        };
        Named::new(Arm::of(number, arms), arm.label.clone(), name)
    });
    named.collect()
}

/// The figure with the largest difference that is told, or that there is none.
fn answer(bench: &Bench, names: &[Named]) -> Answer {
    let verdict = |arm: &ArmFigure| match arm.standing {
        Standing::Judged(verdict) => Some(verdict),
        Standing::Base | Standing::Control => None,
    };
    let told = |arm: &&ArmFigure| verdict(arm).is_some_and(|verdict| verdict.is_difference());
    let all = bench.runs.iter().flat_map(|run| {
        let figures = run.figures.iter().map(move |figure| (run, figure));
        figures.flat_map(|(run, figure)| {
            let arms = figure.arms.iter().enumerate();
            arms.map(move |(number, arm)| (run, figure, number, arm))
        })
    });
    let judged: Vec<_> = all.filter(|(.., arm)| verdict(arm).is_some()).collect();
    let differ = judged.iter().filter(|(.., arm)| told(arm)).count();
    let largest = judged
        .iter()
        .filter(|(.., arm)| told(arm))
        .max_by(|one, other| {
            let size = |arm: &ArmFigure| arm.ratio.max(f64::MIN_POSITIVE).ln().abs();
            size(one.3).total_cmp(&size(other.3))
        });
    let shown = largest.or(judged.first());
    let control = shown.and_then(|(_, figure, ..)| figure.arms.last().map(ArmFigure::to_first));
    let count = words::plural(judged.len() as u64, "comparison", "comparisons");
    let sentence = match (largest, judged.is_empty()) {
        (Some((run, figure, number, arm)), _) => {
            let verdict = match arm.ratio < 1.0 {
                true => Verdict::Less,
                false => Verdict::More,
            };
            let base = names.first().map_or("A", |named| named.name.as_str());
            let other = names.get(*number).map_or("B", |named| named.name.as_str());
            let most = arms::sentence(
                (base, other),
                &arm.to_first(),
                verdict,
                &format!("time for {} ({})", figure.name, run.title),
            );
            match judged.len() {
                1 => most,
                _ => format!("{differ} of {count} tell a difference. The largest: {most}"),
            }
        }
        (None, true) => "One design was measured; nothing is compared.".to_owned(),
        (None, false) => format!("None of {count} tells a difference."),
    };
    Answer {
        sentence,
        ratio: shown.map(|(.., arm)| arm.to_first()),
        control,
        resolution: shown.and_then(|(.., arm)| arm.resolution),
        told: (!judged.is_empty()).then_some(differ > 0),
        warning: bench
            .interrupted
            .then(|| "Interrupted: what follows was complete.".to_owned()),
    }
}

fn body(run: &BenchRun, names: &[Named]) -> Markup {
    html! {
        @if !run.facts.is_empty() { ul { @for fact in &run.facts { li { (fact) } } } }
        @for figure in &run.figures {
            h4 { (figure.name) }
            (ratios(figure, names))
            (passes(figure, names))
        }
        @if !run.reclaim.is_empty() {
            h4 { "With too little memory" }
            (pressure(&run.reclaim, &without_control(names)))
        }
        @for block in &run.blocks { (mmtests(block, names)) }
        @if !run.kernbench.is_empty() { h4 { "Kernbench block" } (kernbench(&run.kernbench)) }
        @if !run.counters.is_empty() {
            h4 { "Events that were counted" }
            (arms::counts(&without_control(names), counts(&run.counters, names.len(), 0), "in one pass"))
        }
        @if !run.memory.is_empty() {
            h4 { "Memory at the peak" }
            (arms::counts(&without_control(names), counts(&run.memory, names.len(), 10), "KiB at the peak"))
        }
    }
}

fn without_control(names: &[Named]) -> Vec<Named> {
    names[..names.len().saturating_sub(1)].to_vec()
}

/// Counts without those of the control, by which `differs` is decided; sizes shifted
/// right by `shift` bits.
fn counts(rows: &[Row], arms: usize, shift: u32) -> Vec<CountRow> {
    let row = |row: &Row| {
        let designs = arms.saturating_sub(1).min(row.values.len());
        let [a, b] = [0, 1].map(|arm| row.values.get(arm).copied().flatten().unwrap_or(0));
        let control = row.values.last().copied().flatten().unwrap_or(a);
        CountRow {
            name: row.name.clone(),
            values: row.values[..designs]
                .iter()
                .map(|count| count.map(|count| count >> shift))
                .collect(),
            differs: designs > 1 && a.abs_diff(b) > a.abs_diff(control),
        }
    };
    rows.iter().map(row).collect()
}

fn ratios(figure: &Figure, names: &[Named]) -> Markup {
    let first = figure.arms.first().map_or(0.0, |arm| arm.value);
    let (unit, divisor) = words::time_unit(first);
    let says = |arm: &ArmFigure| match arm.standing {
        Standing::Base => "base",
        Standing::Control => "control",
        Standing::Judged(verdict) => arms::says(verdict),
    };
    let rows: Vec<RatioRow> = figure
        .arms
        .iter()
        .zip(names)
        .map(|(arm, named)| RatioRow {
            named: named.clone(),
            time: arm.time().in_units_of(divisor),
            ratio: match arm.standing {
                // Its interval is the point.
                Standing::Base => vellum_results::Figure {
                    value: 1.0,
                    ..Default::default()
                },
                _ => arm.to_first(),
            },
            resolution: arm.resolution,
            says: says(arm).to_owned(),
        })
        .collect();
    arms::ratios(
        &rows,
        &format!("{unit} per {}", figure.per),
        &format!(
            "{}, by {}; shaded: what is too near to 1 to be told from it",
            figure.name, figure.clock
        ),
    )
}

fn passes(figure: &Figure, names: &[Named]) -> Markup {
    let first = figure.arms.first().map_or(0.0, |arm| arm.value);
    let (unit, divisor) = words::time_unit(first);
    let arms: Vec<(Named, Vec<f64>)> = figure
        .arms
        .iter()
        .zip(names)
        .map(|(arm, named)| {
            let passes = arm.passes.iter().map(|ns| ns / divisor);
            (named.clone(), passes.collect())
        })
        .collect();
    arms::passes(
        &arms,
        &format!("{}, {unit} per {}", figure.name, figure.per),
        &format!("{} in each pass under each arm", figure.name),
    )
}

/// What too little memory cost.
fn pressure(rows: &[Share], names: &[Named]) -> Markup {
    let mut grid = Grid::new("Times and pages of one pass, medians over the passes".to_owned())
        .text("in one pass");
    for named in names {
        grid = grid.number(named.label.clone());
    }
    for row in rows {
        let values = row.values.iter().take(names.len());
        let cells = values.map(|&value| Cell::number(value, words::number(value)));
        grid.row(
            "",
            std::iter::once(Cell::text(&row.name))
                .chain(cells)
                .collect(),
        );
    }
    grid.render()
}

/// A table of samples as mmtests compares them.
fn mmtests(block: &Block, names: &[Named]) -> Markup {
    let better = match block.higher_is_better {
        true => "higher is better",
        false => "lower is better",
    };
    let mut grid = Grid::new(format!(
        "{} ({better}), as mmtests compares it: means of the samples, and the gain over A in percent, \
         positive if better",
        block.title
    ))
    .text("operation");
    for named in names {
        grid = grid
            .number(format!("{}, mean", named.label))
            .number("deviation")
            .number("gain, %");
    }
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len().max(1) as f64;
    for operation in &block.operations {
        let mut cells = vec![Cell::text(&operation.name)];
        let base = operation
            .samples
            .first()
            .map_or(0.0, |samples| mean(samples));
        for samples in &operation.samples {
            let value = mean(samples);
            let squares = samples
                .iter()
                .map(|sample| (sample - value).powi(2))
                .sum::<f64>();
            let deviation = (squares / (samples.len().saturating_sub(1)).max(1) as f64).sqrt();
            let gain = match block.higher_is_better {
                true => 100.0 * (value / base - 1.0),
                false => 100.0 * (1.0 - value / base),
            };
            cells.push(Cell::number(value, words::number(value)));
            cells.push(Cell::number(deviation, words::number(deviation)));
            cells.push(Cell::number(gain, format!("{gain:+.2}")));
        }
        grid.row("", cells);
    }
    grid.render()
}

fn facts(bench: &Bench) -> Vec<(String, String)> {
    let about = &bench.about;
    let mut facts: Vec<(String, String)> = bench
        .arms
        .iter()
        .map(|arm| (format!("Arm {}", arm.label), arm.full.clone()))
        .collect();
    let sizes: Vec<String> = about
        .sizes
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !sizes.is_empty() {
        facts.push(("Sizes".to_owned(), sizes.join(", ")));
    }
    if let Some(device) = &about.device {
        facts.push(("Device".to_owned(), device.clone()));
    }
    facts.push((
        "Method".to_owned(),
        format!(
            "{}; {:.0}\u{a0}% intervals from {} resamples",
            words::plural(about.passes as u64, "pass", "passes"),
            about.confidence * 100.0,
            about.resamples
        ),
    ));
    facts.push(("Seed".to_owned(), about.seed.to_string()));
    facts
}
