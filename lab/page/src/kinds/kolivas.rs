//! Kernbench of Con Kolivas: `vellum bench kernbench --format kolivas`.

use maud::html;

use super::{Answer, Named, Section, Shown, arms};
use crate::draw::marks::Arm;
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::kolivas::{Build, Kolivas};

/// Shows the runs.
pub fn show(kolivas: &Kolivas) -> Shown {
    let mean = |runs: &[Build], of: fn(&Build) -> f64| {
        runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
    };
    let mut grid = Grid::new("means of the runs")
        .text("load")
        .number("runs")
        .number("elapsed, s")
        .number("user, s")
        .number("system, s")
        .number("CPU, %")
        .number("context switches")
        .number("sleeps");
    for load in &kolivas.loads {
        let cell = |of: fn(&Build) -> f64, digits: usize| {
            let value = mean(&load.runs, of);
            Cell::number(value, format!("{value:.digits$}"))
        };
        grid.row(
            "",
            vec![
                Cell::text(&load.load),
                Cell::number(load.runs.len() as f64, load.runs.len().to_string()),
                cell(|run| run.elapsed_s, 2),
                cell(|run| run.user_s, 2),
                cell(|run| run.system_s, 2),
                cell(|run| run.cpu_percent, 1),
                cell(|run| run.context_switches as f64, 0),
                cell(|run| run.sleeps as f64, 0),
            ],
        );
    }
    let passes: Vec<(Named, Vec<f64>)> = kolivas
        .loads
        .iter()
        .enumerate()
        .map(|(number, load)| {
            let named = Named::new(Arm::Number(number), "", load.load.clone());
            (named, load.runs.iter().map(|run| run.elapsed_s).collect())
        })
        .collect();
    let times: Vec<String> = kolivas
        .loads
        .iter()
        .map(|load| {
            format!(
                "{} {:.2} s",
                load.load,
                mean(&load.runs, |run| run.elapsed_s)
            )
        })
        .collect();
    Shown {
        title: format!("kernbench on Linux {}", kolivas.kernel),
        answer: Answer {
            sentence: format!("Mean elapsed time of a build: {}.", times.join("; ")),
            warning: match (&kolivas.failure, kolivas.interrupted) {
                (Some(failure), _) => Some(format!("Ended early: {failure}")),
                (None, true) => Some("Interrupted: what was complete is shown.".to_owned()),
                (None, false) => None,
            },
            ..Answer::default()
        },
        sections: vec![
            Section::new("Loads", grid.render()),
            Section::new(
                "Runs",
                arms::passes(&passes, "elapsed, s", "elapsed time of each run"),
            ),
            Section::new(
                "As kernbench prints it",
                html! {
                    pre { (kolivas.block) }
                    @for note in &kolivas.notes { p.note { (note) } }
                },
            ),
        ],
        facts: vec![
            ("Kernel source tree".to_owned(), kolivas.tree.clone()),
            ("CPUs".to_owned(), words::number(kolivas.cpus as f64)),
        ],
    }
}
