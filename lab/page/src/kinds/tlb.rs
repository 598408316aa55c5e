//! What larger pages would save in TLB misses: `vellum plan tlb`.

use maud::html;
use vellum_terminal::table::grouped;

use super::{Answer, Section, Shown};
use crate::grid::{Cell, Grid};
use vellum_results::tlb::TlbPlan;

/// Shows a plan.
pub fn show(plan: &TlbPlan) -> Shown {
    let mut sections = Vec::new();
    if !plan.rows.is_empty() {
        let mut grid = Grid::new("page walks by what maps the accesses")
            .number("accesses")
            .number("L1 misses")
            .number("walks")
            .number("steps each")
            .number("time, ms");
        for row in &plan.rows {
            let count = |count: u64| Cell::number(count as f64, grouped(count));
            let number =
                |value: f64, digits: usize| Cell::number(value, format!("{value:.digits$}"));
            let cells = vec![
                count(row.accesses),
                count(row.misses[0]),
                count(row.walks),
                number(row.steps as f64 / row.walks.max(1) as f64, 2),
                number(row.ns() / 1e6, 3),
            ];
            grid.row(row.name(), cells);
        }
        sections.push(Section::new("By what maps the accesses", grid.render()));
    }
    let notes = plan.notes();
    if !notes.is_empty() {
        let list = html! { ul { @for note in &notes { li { (note) } } } };
        sections.push(Section::new("What to know of the figures", list));
    }
    Shown {
        title: format!("TLB misses of {}", plan.subject()),
        answer: Answer {
            sentence: plan.answer(),
            ..Answer::default()
        },
        sections,
        facts: vec![
            (
                "Machine".to_owned(),
                format!("{}: {}", plan.machine, plan.title),
            ),
            (
                "Trace".to_owned(),
                plan.trace.clone().unwrap_or_else(|| "none".to_owned()),
            ),
        ],
    }
}
