//! The table of a sweep on a terminal.

use std::fmt::Write as _;

use vellum_results::sweep::{Place, Quantity, Row, Sweep};
use vellum_terminal::table::Table;

/// A column of the grid: its title, and what it says of a place.
type Column = (&'static str, fn(&Place) -> Option<String>);

const COLUMNS: [Column; 7] = [
    ("machine", |place| place.machine.clone()),
    ("CPUs", |place| place.cpus.map(|cpus| cpus.to_string())),
    ("copies", |place| {
        place.copies.map(|copies| copies.to_string())
    }),
    ("memory", |place| place.ram.clone()),
    ("scale", |place| place.scale.map(|scale| scale.to_string())),
    ("base", |place| place.base.clone()),
    ("design", |place| place.design.clone()),
];

/// The table.
pub fn render(sweep: &Sweep) -> String {
    let mut text = format!(
        "{}: {} of {} cells finished\n",
        one_line(&sweep.name),
        sweep.finished,
        sweep.cells
    );
    let mut kinds: Vec<&str> = Vec::new();
    for row in &sweep.rows {
        if !kinds.contains(&row.place.run.as_str()) {
            kinds.push(&row.place.run);
        }
    }
    for kind in kinds {
        let rows = sweep.rows.iter().filter(|row| row.place.run == kind);
        let rows: Vec<&Row> = rows.collect();
        let _ = write!(text, "\n{kind}\n{}", table(&rows));
    }
    if sweep.rows.iter().any(|row| row.seeds.len() > 1) {
        text += "\nWith several seeds: medians, and in place of an interval the range over the seeds.\n";
    }
    if sweep.hosts.len() > 1 {
        text += "\nTimes are of the host in their row. Times of different hosts are not comparable, and nothing is \
                 averaged over hosts:\n";
        let hosts = sweep.hosts.iter().map(|host| {
            vec![
                format!("  {}", one_line(&host.name)),
                format!(
                    "{}, {} CPUs, {} MiB, Linux {}",
                    one_line(&host.cpu),
                    host.cpus,
                    host.memory >> 20,
                    one_line(&host.kernel)
                ),
            ]
        });
        text += &Table::lines(hosts);
    }
    if !sweep.failed.is_empty() {
        let _ = writeln!(
            text,
            "\nnot measured (the same command tries again): {}",
            sweep.failed.len()
        );
        for cell in &sweep.failed {
            for line in cell.why.lines() {
                let _ = writeln!(text, "  {}", one_line(line));
            }
        }
    }
    text
}

fn table(rows: &[&Row]) -> String {
    let used = COLUMNS
        .iter()
        .filter(|(_, of)| rows.iter().any(|row| of(&row.place).is_some()));
    let used: Vec<&Column> = used.collect();
    let values: Vec<&Quantity> = rows.iter().filter_map(|row| row.value.as_ref()).collect();
    let quantity = values.first();
    let is_alike = |value: &&Quantity| Some(&value.unit) == quantity.map(|first| &first.unit);
    let alike = values.iter().all(is_alike);
    let ratios = rows.iter().any(|row| row.ratio.is_some());
    let answers = rows
        .iter()
        .any(|row| row.refuted || row.place.run == "verify");
    let seeds = rows.iter().any(|row| row.seeds.len() > 1);
    let mut header = vec!["what".to_owned()];
    header.extend(used.iter().map(|(title, _)| (*title).to_owned()));
    header.push("host".to_owned());
    header.push("seeds".to_owned());
    if let Some(quantity) = quantity {
        header.push(match alike {
            true => format!("{}, {}", quantity.name, quantity.unit),
            false => quantity.name.clone(),
        });
        if seeds {
            header.push("range".to_owned());
        }
    }
    if ratios {
        header.extend([
            "ratio to".to_owned(),
            "ratio".to_owned(),
            "bounds".to_owned(),
        ]);
        header.push("told".to_owned());
    }
    if answers {
        header.push("check".to_owned());
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    for row in rows {
        let name = row.place.subject.rsplit('/').next().unwrap_or_default();
        let mut cells = vec![one_line(name)];
        let places = used.iter().map(|(_, of)| of(&row.place));
        cells.extend(places.map(|place| place.map_or_else(String::new, |text| one_line(&text))));
        cells.push(one_line(&row.host));
        cells.push(row.seeds.len().to_string());
        if quantity.is_some() {
            let value = row.value.as_ref();
            cells.push(value.map_or_else(String::new, |value| match alike {
                true => number(value.median),
                false => format!("{} {}", number(value.median), one_line(&value.unit)),
            }));
            if seeds {
                cells.push(value.map_or_else(String::new, |value| {
                    format!("{} .. {}", number(value.least), number(value.most))
                }));
            }
        }
        if ratios {
            cells.extend(match &row.ratio {
                None => ["-".to_owned(), String::new(), String::new(), String::new()],
                Some(ratio) => {
                    let figure = &ratio.figure;
                    let bounds = match (figure.low, figure.high) {
                        (Some(low), Some(high)) => format!("{low:.4} .. {high:.4}"),
                        _ => String::new(),
                    };
                    let told = ratio
                        .told
                        .map_or_else(String::new, |told| match row.seeds.len() {
                            1 if told == 1 => "yes".to_owned(),
                            1 => "no".to_owned(),
                            several => format!("{told} of {several}"),
                        });
                    [
                        one_line(&ratio.to),
                        format!("{:.4}", figure.value),
                        bounds,
                        told,
                    ]
                }
            });
        }
        if answers {
            cells.push(match row.refuted {
                true => format!("DOES NOT HOLD: {}", one_line(&row.answer)),
                false => one_line(&row.answer),
            });
        }
        table.row(cells);
    }
    table.render(2)
}

/// A number with five digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 => vellum_terminal::table::grouped(value.round() as u64),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// Text that keeps to its line and moves no cursor.
fn one_line(text: &str) -> String {
    let shown = text.chars().map(|letter| match letter.is_control() {
        true => ' ',
        false => letter,
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, unit: &str, value: f64) -> Row {
        Row {
            place: Place {
                run: "scale".to_owned(),
                subject: subject.to_owned(),
                ..Place::default()
            },
            timed: false,
            host: "one\u{1b}[31m".to_owned(),
            seeds: vec![1],
            keys: Vec::new(),
            value: Some(Quantity {
                name: "throughput".to_owned(),
                unit: unit.to_owned(),
                median: value,
                least: value,
                most: value,
            }),
            ratio: None,
            answer: String::new(),
            refuted: false,
            seconds: 1.0,
        }
    }

    fn rendered(rows: Vec<Row>) -> String {
        render(&Sweep {
            name: "test".to_owned(),
            cells: 2,
            finished: 2,
            interrupted: false,
            hosts: Vec::new(),
            rows,
            failed: Vec::new(),
        })
    }

    #[test]
    fn figures_of_different_units_each_have_theirs() {
        let alike = rendered(vec![row("a", "faults/s", 10.0), row("b", "faults/s", 20.0)]);
        assert!(
            alike.contains("throughput, faults/s") && alike.contains(" 20.000\n"),
            "{alike}"
        );
        let mixed = rendered(vec![row("a", "faults/s", 10.0), row("b", "forks/s", 20.0)]);
        assert!(
            !mixed.contains("throughput,") && mixed.contains("20.000 forks/s"),
            "{mixed}"
        );
        assert!(
            !mixed.contains('\u{1b}'),
            "no sequence of a name reaches the terminal"
        );
    }
}
