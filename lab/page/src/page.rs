//! The page around the results.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::draw::{forest, marks, marks::Arm};
use crate::grid::{Cell, Grid};
use crate::kinds::{self, Answer, Shown};
use crate::words;
use vellum_results::run::{Run, command_line};
use vellum_results::{Figure, Loaded};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// A table that stands before the results of a page that others put together.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The page's title.
    pub title: String,
    /// What a reader must know, one sentence each.
    pub notes: Vec<String>,
}

/// The answer of a result.
pub fn headline(result: &Loaded) -> Answer {
    kinds::show(result).answer
}

/// A result as one picture in a file of its own, as SVG that is light or dark as its reader
/// has it; none of kinds of results that have no picture that says all.
pub fn picture(result: &Loaded) -> Option<String> {
    kinds::picture(result).map(|picture| picture.svg())
}

/// A page of `results`, in their order. With several it begins with a table of their
/// answers.
pub fn render(results: &[Loaded], overview: &Overview) -> String {
    let shown: Vec<Shown> = results.iter().map(kinds::show).collect();
    let title = match (overview.title.as_str(), shown.as_slice()) {
        ("", [one]) => one.title.clone(),
        ("", several) => words::plural(several.len() as u64, "result", "results"),
        (title, _) => title.to_owned(),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                // Without one a browser asks a server for it.
                link rel="icon" href="data:,";
                title { (title) " \u{2013} vellum" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#results" { "To the results" }
                svg.definitions width="0" height="0" aria-hidden="true" { (marks::definitions()) }
                header {
                    @if shown.len() > 1 || !overview.title.is_empty() { h1 { (title) } }
                    @for note in &overview.notes { p { (note) } }
                    @if shown.len() > 1 { (answers(results, &shown)) }
                }
                main id="results" {
                    @for (number, (result, shown)) in results.iter().zip(&shown).enumerate() {
                        (article(number, result, shown, results.len() == 1))
                    }
                }
                footer {
                    p { "Made by vellum " (env!("CARGO_PKG_VERSION")) ". docs/report.md says how to read it." }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// The answers of all results, with ratios on one axis.
fn answers(results: &[Loaded], shown: &[Shown]) -> Markup {
    let ratios: Vec<Figure> = shown
        .iter()
        .filter_map(|shown| shown.answer.ratio)
        .collect();
    let axis = forest::axis(&ratios, 1.0);
    let mut grid =
        Grid::new("the answers; results of different machines are not comparable with each other")
            .text("result")
            .text("answer")
            .text("host")
            .number("ratio")
            .picture(forest::head(&axis));
    for (number, (result, shown)) in results.iter().zip(shown).enumerate() {
        let answer = &shown.answer;
        let (ratio, picture) = match &answer.ratio {
            Some(ratio) => {
                let title = format!("ratio {}", words::ratio(ratio.value));
                let picture =
                    forest::row(&axis, Arm::Number(1), ratio, 1.0, answer.resolution, &title);
                (
                    Cell::number(ratio.value, words::ratio(ratio.value)),
                    Cell::markup(picture),
                )
            }
            None => (Cell::empty(), Cell::empty()),
        };
        grid.row(
            "",
            vec![
                Cell::markup(html! { a href=(format!("#result-{number}")) { (shown.title) } }),
                Cell::text(&answer.sentence),
                Cell::text(host(&result.run)),
                ratio,
                picture,
            ],
        );
    }
    grid.render()
}

fn article(number: usize, result: &Loaded, shown: &Shown, alone: bool) -> Markup {
    let section_id = |section: usize| format!("result-{number}-{section}");
    html! {
        article id=(format!("result-{number}")) {
            @if alone { h1 { (shown.title) } } @else { h2 { (shown.title) } }
            (answer(&shown.answer))
            nav aria-label=(format!("sections of {}", shown.title)) {
                ul {
                    @for (place, section) in shown.sections.iter().enumerate() {
                        li { a href=(format!("#{}", section_id(place))) { (section.heading) } }
                    }
                    li { a href=(format!("#{}", section_id(shown.sections.len()))) { "How it was made" } }
                }
            }
            @for (place, section) in shown.sections.iter().enumerate() {
                section id=(section_id(place)) {
                    h3 { (section.heading) }
                    (section.body)
                }
            }
            section id=(section_id(shown.sections.len())) {
                h3 { "How it was made" }
                (made(result, shown))
            }
        }
    }
}

/// The answer, beside the control.
fn answer(answer: &Answer) -> Markup {
    let class = match answer.told {
        Some(true) => "answer told",
        Some(false) => "answer open",
        None => "answer",
    };
    html! {
        div class=(class) {
            p.sentence { (answer.sentence) }
            @if let Some(warning) = &answer.warning { p.warning { "\u{26a0} " (warning) } }
            @if let Some(ratio) = &answer.ratio {
                (beside_control(ratio, answer))
            }
        }
    }
}

fn beside_control(ratio: &Figure, answer: &Answer) -> Markup {
    let figures: Vec<Figure> = std::iter::once(*ratio).chain(answer.control).collect();
    let axis = forest::axis(&figures, 1.0);
    let row = |name: &str, arm: Arm, figure: &Figure, resolution: Option<f64>| {
        let title = format!("{name}: {}", words::with_bounds(figure, words::ratio));
        html! {
            dt { (marks::sample(arm)) (name) }
            dd.figures {
                b { (words::ratio(figure.value)) }
                @if figure.low.is_some() { " (" (words::bounds(figure, words::ratio)) ")" }
            }
            dd.drawn { (forest::row(&axis, arm, figure, 1.0, resolution, &title)) }
        }
    };
    html! {
        dl.beside {
            (row("B / A", Arm::Number(1), ratio, answer.resolution))
            @if let Some(control) = &answer.control {
                (row("A' / A (control)", Arm::Control, control, answer.resolution))
            }
            dt { "" } dd.figures { "" } dd.drawn { (forest::head(&axis)) }
        }
        @if let Some(resolution) = answer.resolution {
            p.note {
                "Resolution: " (words::percent(resolution))
                ". A larger difference is told, a smaller one is not (shaded)."
            }
        }
    }
}

fn host(run: &Run) -> String {
    let host = &run.host;
    let parts = [host.name.as_str(), host.cpu.as_str(), host.kernel.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

/// The command, the environment, the traces, the version, and what else is told.
fn made(result: &Loaded, shown: &Shown) -> Markup {
    let run = &result.run;
    let host = &run.host;
    let known = |text: &str| match text.is_empty() {
        true => "not recorded in this result".to_owned(),
        false => text.to_owned(),
    };
    html! {
        dl.made {
            dt { "Command" }
            dd { code { (known(&run.command_line())) } }
            dt { "Version" }
            dd {
                (known(&run.version)) " (" (result.schema)
                @if !run.program.is_empty() { ", program " (run.program) }
                ", read from " (result.name) ")"
            }
            @if !run.started.is_empty() { dt { "Started" } dd { (run.started) } }
            dt { "Machine" }
            dd {
                @if host.cpu.is_empty() && host.kernel.is_empty() { (known("")) } @else {
                    @if !host.name.is_empty() { (host.name) ": " }
                    (host.cpu) ", " (words::plural(host.cpus as u64, "CPU", "CPUs")) ", "
                    (words::bytes(host.memory)) ", Linux " (host.kernel)
                    @if !host.huge_pages.is_empty() { "; huge pages: " (host.huge_pages) }
                }
            }
            @for trace in &run.traces {
                dt { "Trace" }
                dd {
                    code { (trace.path) } ", " (words::bytes(trace.bytes)) ", "
                    (words::plural(trace.events, "event", "events"))
                    @if !trace.sha256.is_empty() { br; "SHA-256 " code { (trace.sha256) } }
                    @if !trace.command.is_empty() {
                        br; "recorded from " code { (command_line(&trace.command)) }
                    }
                }
            }
            @for (name, value) in &shown.facts {
                dt { (name) } dd { (value) }
            }
        }
    }
}
