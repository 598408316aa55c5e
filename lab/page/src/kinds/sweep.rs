//! Grids of measurements: `vellum sweep`.

use maud::{Markup, html};
use vellum_terminal::table::grouped;

use super::{Answer, Section, Shown};
use crate::draw::forest;
use crate::draw::marks::Arm;
use crate::grid::{Cell, Grid, Kind};
use crate::words;
use vellum_results::Figure;
use vellum_results::run::Host;
use vellum_results::sweep::{FailedCell, Place, Quantity, Row, Sweep};

/// Shows a sweep.
pub fn show(sweep: &Sweep) -> Shown {
    let mut kinds: Vec<&str> = Vec::new();
    for row in &sweep.rows {
        if !kinds.contains(&row.place.run.as_str()) {
            kinds.push(&row.place.run);
        }
    }
    let mut sections: Vec<Section> = kinds
        .into_iter()
        .map(|kind| {
            let rows = sweep.rows.iter().filter(|row| row.place.run == kind);
            let rows: Vec<&Row> = rows.collect();
            Section::new(heading(kind), body(&rows))
        })
        .collect();
    if !sweep.failed.is_empty() {
        let heading = words::plural(
            sweep.failed.len() as u64,
            "cell was not measured",
            "cells were not measured",
        );
        sections.push(Section::new(heading, failures(&sweep.failed)));
    }
    if !sweep.hosts.is_empty() {
        sections.push(Section::new("Hosts", hosts(&sweep.hosts)));
    }
    Shown {
        title: match sweep.name.is_empty() {
            true => "A sweep".to_owned(),
            false => format!("Sweep {}", sweep.name),
        },
        answer: answer(sweep),
        sections,
        facts: vec![(
            "Cells".to_owned(),
            format!(
                "{} of {} finished",
                grouped(sweep.finished),
                grouped(sweep.cells)
            ),
        )],
    }
}

fn heading(kind: &str) -> String {
    match kind {
        "verify" => "Verified replays".to_owned(),
        "replay" => "Replays, timed".to_owned(),
        "compare" => "Comparisons".to_owned(),
        "simulate" => "Traces on simulated machines".to_owned(),
        "scale" => "Workloads on simulated machines".to_owned(),
        "bench" => "Benchmarks".to_owned(),
        "linux" => "Replays on hosts\u{2019} kernels".to_owned(),
        other => other.to_owned(),
    }
}

fn answer(sweep: &Sweep) -> Answer {
    let refuted = sweep.rows.iter().filter(|row| row.refuted).count() as u64;
    let cells = words::plural(sweep.cells, "cell", "cells");
    let mut sentence = match sweep.finished == sweep.cells {
        true => format!("{cells} finished"),
        false => format!("{} of {cells} finished", grouped(sweep.finished)),
    };
    let judged = sweep.rows.iter().filter_map(|row| {
        let ratio = row.ratio.as_ref()?;
        Some((row, ratio, ratio.told?))
    });
    let judged: Vec<_> = judged.collect();
    let told = judged
        .iter()
        .filter(|(row, _, told)| *told as usize == row.seeds.len());
    if !judged.is_empty() {
        sentence += &format!(
            "; {} of {} tell a difference with every seed",
            grouped(told.count() as u64),
            words::plural(judged.len() as u64, "comparison", "comparisons")
        );
    }
    if refuted > 0 {
        sentence += &format!(
            "; {} did not hold",
            words::plural(refuted, "check", "checks")
        );
    }
    sentence.push('.');
    let mut warnings = Vec::new();
    if sweep.interrupted {
        warnings.push("Interrupted: finished cells are shown.".to_owned());
    }
    if !sweep.failed.is_empty() {
        warnings.push(format!(
            "{} not measured.",
            words::plural(sweep.failed.len() as u64, "cell was", "cells were")
        ));
    }
    if sweep.hosts.len() > 1 {
        warnings.push(
            "Results are of several hosts: times of different hosts are not comparable, and nothing is averaged \
             over them."
                .to_owned(),
        );
    }
    Answer {
        sentence,
        warning: (!warnings.is_empty()).then(|| warnings.join(" ")),
        ..Answer::default()
    }
}

/// A column of the grid that some row has: its title, whether it is a number, and what it
/// says of a place.
type Column = (&'static str, Kind, fn(&Place) -> Option<String>);

const COLUMNS: [Column; 7] = [
    ("machine", Kind::Text, |place| place.machine.clone()),
    ("CPUs", Kind::Number, |place| {
        place.cpus.map(|cpus| cpus.to_string())
    }),
    ("copies", Kind::Number, |place| {
        place.copies.map(|copies| copies.to_string())
    }),
    ("memory", Kind::Text, |place| place.ram.clone()),
    ("scale", Kind::Number, |place| {
        place.scale.map(|scale| scale.to_string())
    }),
    ("base", Kind::Text, |place| place.base.clone()),
    ("design", Kind::Text, |place| place.design.clone()),
];

fn body(rows: &[&Row]) -> Markup {
    let timed = rows.iter().any(|row| row.timed);
    let used = COLUMNS
        .iter()
        .filter(|(.., of)| rows.iter().any(|row| of(&row.place).is_some()));
    let used: Vec<&Column> = used.collect();
    let ratios = rows.iter().filter_map(|row| row.ratio.as_ref());
    let ratios: Vec<Figure> = ratios.map(|ratio| ratio.figure).collect();
    let values: Vec<&Quantity> = rows.iter().filter_map(|row| row.value.as_ref()).collect();
    let measured = measured(&values);
    let ranges = !values.is_empty() && rows.iter().any(|row| row.seeds.len() > 1);
    // Of these the columns say all.
    let told_by_columns = ["simulate", "scale", "replay", "linux"];
    let answers = rows.iter().any(|row| {
        row.refuted || !told_by_columns.contains(&row.place.run.as_str()) && !row.answer.is_empty()
    });
    let axis = forest::axis(&ratios, 1.0);
    let mut grid = Grid::new(match timed {
        true => {
            "a row for each place in the grid and host; times of different hosts are not comparable"
        }
        false => "a row for each place in the grid",
    })
    .text("what");
    for (title, kind, _) in &used {
        grid = grid.column(html! { (title) }, *kind);
    }
    grid = grid.text("host").number("seeds");
    if let Some((title, _)) = &measured {
        grid = grid.number(title);
    }
    if ranges {
        grid = grid.text("range");
    }
    if !ratios.is_empty() {
        grid = grid.text("by").number("ratio").picture(forest::head(&axis));
    }
    if answers {
        grid = grid.text("answer");
    }
    for row in rows {
        let place = &row.place;
        let mut cells = vec![Cell::text(words::file_name(&place.subject))];
        cells.extend(used.iter().map(|(_, kind, of)| {
            let shown = of(place).unwrap_or_default();
            match (kind, shown.parse::<f64>()) {
                (Kind::Number, Ok(number)) => Cell::number(number, shown),
                _ => Cell::text(shown),
            }
        }));
        cells.push(Cell::text(&row.host));
        cells.push(Cell::number(
            row.seeds.len() as f64,
            row.seeds.len().to_string(),
        ));
        if let Some((_, units)) = measured {
            cells.push(row.value.as_ref().map_or_else(Cell::empty, |value| {
                let shown = words::number(value.median);
                Cell::number(
                    value.median,
                    match units {
                        true => format!("{shown} {}", value.unit),
                        false => shown,
                    },
                )
            }));
        }
        if ranges {
            cells.push(row.value.as_ref().map_or_else(Cell::empty, |value| {
                let (least, most) = (words::number(value.least), words::number(value.most));
                Cell::text(format!("{least} .. {most}"))
            }));
        }
        if !ratios.is_empty() {
            cells.extend(match &row.ratio {
                Some(ratio) => {
                    let figure = &ratio.figure;
                    let title = format!("ratio {}", words::with_bounds(figure, words::ratio));
                    [
                        Cell::text(&ratio.to),
                        Cell::number(figure.value, words::ratio(figure.value)),
                        Cell::markup(forest::row(
                            &axis,
                            Arm::Number(1),
                            figure,
                            1.0,
                            None,
                            &title,
                        )),
                    ]
                }
                None => [Cell::empty(), Cell::empty(), Cell::empty()],
            });
        }
        if answers {
            cells.push(match row.refuted {
                true => Cell::markup(html! {
                    span.disagrees { span.symbol aria-hidden="true" { "\u{2716}" } (row.answer) }
                }),
                false => Cell::text(&row.answer),
            });
        }
        grid.row("", cells);
    }
    grid.render()
}

/// The title of the column of what was measured, and whether each of its figures needs a
/// unit, since they are not all of the same kind.
fn measured(values: &[&Quantity]) -> Option<(String, bool)> {
    let first = values.first()?;
    let is_alike = |value: &&Quantity| value.name == first.name && value.unit == first.unit;
    Some(match values.iter().all(is_alike) {
        true => (format!("{}, {}", first.name, first.unit), false),
        false => (first.name.clone(), true),
    })
}

fn failures(failed: &[FailedCell]) -> Markup {
    let mut grid = Grid::new("cells that were not measured; the same command tries them again")
        .text("what")
        .text("where")
        .number("seed")
        .text("why");
    for cell in failed {
        let place = &cell.place;
        let parts = COLUMNS.iter().filter_map(|(title, _, of)| {
            let shown = of(place)?;
            Some(format!("{title} {shown}"))
        });
        let parts: Vec<String> = parts.collect();
        grid.row(
            "",
            vec![
                Cell::text(format!(
                    "{} {}",
                    place.run,
                    words::file_name(&place.subject)
                )),
                Cell::text(parts.join(", ")),
                Cell::number(cell.seed as f64, cell.seed.to_string()),
                Cell::text(&cell.why),
            ],
        );
    }
    grid.render()
}

fn hosts(hosts: &[Host]) -> Markup {
    let mut grid = Grid::new("the hosts that cells ran on")
        .text("host")
        .text("processor")
        .number("CPUs")
        .text("memory")
        .text("kernel");
    for host in hosts {
        grid.row(
            "",
            vec![
                Cell::text(&host.name),
                Cell::text(&host.cpu),
                Cell::number(host.cpus as f64, host.cpus.to_string()),
                Cell::text(words::bytes(host.memory)),
                Cell::text(&host.kernel),
            ],
        );
    }
    grid.render()
}
