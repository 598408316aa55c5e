//! The answer of [`super::tlb`] for a terminal.

use vellum_results::tlb::{Row, TlbPlan};
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::{plural, wrapped};

use crate::report::Detail;

/// The answer as a table and sentences.
pub fn render(plan: &TlbPlan, detail: Detail) -> String {
    let mut text = String::new();
    if let Some(stream) = &plan.stream {
        text += &wrapped(&format!(
            "{} on {} ({}): {} loads and stores and {} instruction fetches, told by {}, of {}, \
             each on a CPU of its own.",
            plan.subject(),
            plan.machine,
            plan.title,
            grouped(stream.data),
            grouped(stream.fetches),
            stream.tool,
            plural(stream.threads as usize, "thread", "threads"),
        ));
        text.push('\n');
        text += &table(plan, detail);
        text.push('\n');
    } else {
        let machine = format!("{} on {} ({}).", plan.subject(), plan.machine, plan.title);
        text += &wrapped(&machine);
    }
    text += &wrapped(&plan.answer());
    for note in plan.notes() {
        text += &wrapped(&note);
    }
    text
}

fn table(plan: &TlbPlan, detail: Detail) -> String {
    let mut table = Table::new(&[
        "mapped by",
        "accesses",
        "L1 misses",
        "walks",
        "per 1,000",
        "steps each",
        "ns each",
        "time ms",
        "less ms",
    ]);
    let base = plan.rows.first().map_or(0.0, Row::ns);
    for row in &plan.rows {
        let name = match &row.design {
            Some(design) if !design.is_empty() => detail.design(design),
            _ => row.name(),
        };
        let walks = row.walks.max(1) as f64;
        table.row(vec![
            name,
            grouped(row.accesses),
            grouped(row.misses[0]),
            grouped(row.walks),
            format!("{:.2}", 1e3 * row.walks as f64 / row.accesses.max(1) as f64),
            format!("{:.2}", row.steps as f64 / walks),
            format!("{:.1}", row.walks_ns / walks),
            format!("{:.3}", row.ns() / 1e6),
            format!("{:.3}", (base - row.ns()) / 1e6),
        ]);
    }
    let mut text = table.render(1);
    let of_designs: Vec<&Row> = plan
        .rows
        .iter()
        .filter(|row| row.design.is_some())
        .collect();
    for row in of_designs {
        let share = |count: u64| 100.0 * count as f64 / row.accesses.max(1) as f64;
        let [small, by_four, by_sixteen, large] = row.by_size.map(share);
        text += &wrapped(&format!(
            "{}: {small:.1} % of accesses are to pages of 4 KiB, {by_four:.1} % to blocks of 16 KiB, \
             {by_sixteen:.1} % to those of 64 KiB, {large:.1} % to pages of 2 MiB.",
            row.name(),
        ));
    }
    text
}
