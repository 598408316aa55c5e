//! What could be changed for a workload: `vellum advise`.

use maud::{Markup, html};
use vellum_terminal::table::grouped;

use super::{Answer, Section, Shown};
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::Figure;
use vellum_results::advise::{Advice, Audience, Row, Said};
use vellum_results::run::command_line;

/// Shows an advice.
pub fn show(advice: &Advice) -> Shown {
    let is_told = |row: &&Row| matches!(row.said, Said::Less | Said::More);
    let (told, rest): (Vec<&Row>, Vec<&Row>) = advice.rows.iter().partition(is_told);
    let mut sections = vec![Section::new("What it asks", asked(advice))];
    if !told.is_empty() {
        sections.push(Section::new(
            "What makes a difference",
            table(&told, "told"),
        ));
    }
    if !rest.is_empty() {
        sections.push(Section::new(
            "What makes none, or could not be told",
            table(&rest, "not told"),
        ));
    }
    sections.push(Section::new("Not in any figure", list(&advice.unseen)));
    Shown {
        title: format!("Advice for {}", words::file_name(&advice.trace)),
        answer: Answer {
            sentence: sentence(&told),
            warning: advice
                .interrupted
                .then(|| "Interrupted: fewer passes were made.".to_owned()),
            ..Answer::default()
        },
        sections,
        facts: facts(advice),
    }
}

fn sentence(told: &[&Row]) -> String {
    let best = told.iter().find(|row| row.said == Said::Less);
    match best.and_then(|row| Some((row, row.cpu?))) {
        Some((row, cpu)) => format!(
            "Most would be saved by {}: {} of the workload's CPU time ({}).",
            row.what,
            words::percent(-cpu.value),
            row.basis.text()
        ),
        None => "Nothing that was tried or counted saves a thousandth of the workload's CPU time, \
                 as far as it could be told."
            .to_owned(),
    }
}

fn asked(advice: &Advice) -> Markup {
    let (faults, calls) = (&advice.asked.faults, &advice.asked.calls);
    let mut grid = Grid::new("counts in the trace")
        .text("what")
        .number("count");
    for (what, count) in [
        ("page faults", faults.all),
        ("first touches of private memory", faults.anonymous),
        ("faults of files and shared memory", faults.file),
        ("stores to pages that were there", faults.present),
        ("mmap", calls.mmap),
        ("munmap", calls.munmap),
        ("brk", calls.brk),
        ("madvise", calls.madvise),
        ("fork", calls.fork),
        ("vfork", calls.vfork),
        ("execve", calls.execve),
    ] {
        let cells = vec![Cell::text(what), Cell::number(count as f64, grouped(count))];
        grid.row("", cells);
    }
    let mut places = Grid::new("where most faults are")
        .text("command")
        .text("mapping")
        .number("faults");
    for place in &advice.asked.places {
        let faults = Cell::number(place.faults as f64, grouped(place.faults));
        places.row(
            "",
            vec![
                Cell::text(&place.command),
                Cell::text(&place.mapping),
                faults,
            ],
        );
    }
    html! { (grid.render()) (places.render()) }
}

fn table(rows: &[&Row], caption: &str) -> Markup {
    let mut grid = Grid::new(caption)
        .text("what")
        .text("who")
        .number("CPU time")
        .text("95 % interval")
        .number("bound")
        .number("peak memory")
        .number("faults")
        .number("measured")
        .text("95 % interval")
        .text("where, how, and from what");
    for row in rows {
        let share = |share: Option<f64>| match share {
            Some(share) => Cell::number(share, words::percent(share)),
            None => Cell::empty(),
        };
        let bounds = |figure: Option<Figure>| {
            Cell::text(
                figure.map_or_else(String::new, |figure| words::bounds(&figure, words::percent)),
            )
        };
        let measured = row.measured.map(|measured| measured.cpu);
        let cells = vec![
            Cell::text(&row.what),
            Cell::text(who(row.audience)),
            share(row.cpu.map(|cpu| cpu.value)),
            bounds(row.cpu),
            share(row.bound),
            share(row.peak),
            share(row.faults),
            share(measured.map(|cpu| cpu.value)),
            bounds(measured),
            Cell::markup(told(row)),
        ];
        grid.row("", cells);
    }
    grid.render()
}

fn told(row: &Row) -> Markup {
    html! {
        @if !row.place.is_empty() { p { (row.place) } }
        @for how in &row.how { p { code { (how) } } }
        p { (row.basis.text()) ". " (row.note) }
    }
}

fn who(audience: Audience) -> &'static str {
    match audience {
        Audience::User => "user",
        Audience::Author => "program",
        Audience::Builder => "kernel",
    }
}

fn list(texts: &[String]) -> Markup {
    html! { ul { @for text in texts { li { (text) } } } }
}

fn facts(advice: &Advice) -> Vec<(String, String)> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("Workload", advice.trace.clone()),
        fact("Recorded command", command_line(&advice.command)),
        fact(
            "This machine",
            format!("Linux {}, THP {}", advice.host.kernel, advice.host.thp),
        ),
    ];
    if let Some(whole) = &advice.whole {
        let seconds = whole.cpu_ns as f64 / 1e9;
        facts.push(fact("CPU time", format!("{} s", words::number(seconds))));
    }
    if !advice.part.is_all() {
        let (events, all) = (advice.part.events, advice.part.of_events);
        let part = format!("the first {} of {} events", grouped(events), grouped(all));
        facts.push(fact("Replayed", part));
    }
    facts
}
