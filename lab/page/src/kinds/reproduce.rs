//! Published figures with ours beside them: `vellum reproduce`.

use maud::{Markup, html};

use super::{Answer, Section, Shown};
use crate::aligned;
use crate::draw::marks::{self, Arm};
use crate::draw::{Axis, forest, percent};
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::Figure;
use vellum_results::reproduce::{Comparison, Reproduction, Section as Published};

/// Whose marks are what: the published figure, and ours.
const PUBLISHED: Arm = Arm::Number(3);
const OURS: Arm = Arm::Number(0);

/// Shows a reproduction.
pub fn show(reproduction: &Reproduction) -> Shown {
    let sections = reproduction.sections.iter();
    let mut sections: Vec<Section> = sections
        .map(|section| Section::new(section.title.clone(), body(section)))
        .collect();
    if !reproduction.notes.is_empty() || !reproduction.left_out.is_empty() {
        let notes = html! {
            @if !reproduction.left_out.is_empty() {
                p { "Left out: " (reproduction.left_out.join("; ")) "." }
            }
            ul { @for note in &reproduction.notes { li { (note) } } }
        };
        sections.push(Section::new("Notes", notes));
    }
    Shown {
        title: format!("Source {}, published and ours", reproduction.source),
        answer: answer(reproduction),
        sections,
        facts: vec![
            ("Host".to_owned(), reproduction.host.clone()),
            ("Passes".to_owned(), reproduction.passes.to_string()),
            ("Seed".to_owned(), reproduction.seed.to_string()),
        ],
    }
}

fn answer(reproduction: &Reproduction) -> Answer {
    let all = || {
        reproduction
            .sections
            .iter()
            .flat_map(|section| &section.comparisons)
    };
    let with_ours = all().filter(|row| row.ours.is_some()).count();
    let disagree = all().filter(|row| row.disagrees).count();
    let agree = all()
        .filter(|row| standing(row) == Standing::Agrees)
        .count();
    let mut sentence = format!(
        "Of {} with one of ours beside them {agree} agree and {disagree} disagree in sign or by more than \
         a factor of two; {} are within noise, or are not judged.",
        words::plural(with_ours as u64, "published figure", "published figures"),
        with_ours.saturating_sub(agree + disagree)
    );
    let failed = reproduction
        .sections
        .iter()
        .filter(|section| section.failed.is_some());
    match failed.count() {
        0 => {}
        1 => sentence += " One table could not be measured.",
        several => sentence += &format!(" {several} tables could not be measured."),
    }
    let mut warnings = Vec::new();
    if reproduction.quick {
        warnings.push("Quick: small workloads that show that it works; these are no results.");
    }
    if reproduction.interrupted {
        warnings.push("Interrupted: what follows was complete.");
    }
    Answer {
        sentence,
        told: (with_ours > 0).then_some(disagree == 0),
        warning: (!warnings.is_empty()).then(|| warnings.join(" ")),
        ..Answer::default()
    }
}

/// How a figure stands to the published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Agrees,
    Disagrees,
    Open,
    Missing,
}

fn standing(row: &Comparison) -> Standing {
    match (row.disagrees, &row.ours, row.says.as_str()) {
        (true, ..) => Standing::Disagrees,
        (_, None, _) => Standing::Missing,
        (_, _, "agrees") => Standing::Agrees,
        _ => Standing::Open,
    }
}

impl Standing {
    /// Class, symbol and word: the colour is not all that tells them apart.
    fn shown(self) -> (&'static str, &'static str) {
        match self {
            Standing::Agrees => ("agrees", "\u{2714}"),
            Standing::Disagrees => ("disagrees", "\u{2716}"),
            Standing::Open => ("open", "\u{25cb}"),
            Standing::Missing => ("missing", "\u{2013}"),
        }
    }
}

fn body(section: &Published) -> Markup {
    html! {
        @if let Some(failed) = &section.failed { p.warning { "\u{26a0} Not measured: " (failed) } }
        @if !section.comparisons.is_empty() { (comparisons(section)) }
        @for (heading, lines) in &section.tables {
            figure { figcaption { b { (heading) } } (aligned::shown(lines)) }
        }
        @if !section.source.is_empty() {
            h4 { "Published in" }
            ul { @for source in &section.source { li { (source) } } }
        }
        @if !section.method.is_empty() {
            h4 { "How ours were made" }
            ul { @for method in &section.method { li { (method) } } }
        }
    }
}

/// Figure beside figure; those that are numbers of one unit on one axis.
fn comparisons(section: &Published) -> Markup {
    let units = ["%", "x", "count"];
    let axes = units.map(|unit| axis(section, unit));
    let mut grid = Grid::new(
        "published figures and ours; \u{2714} agrees, \u{2716} disagrees in sign or by more than a factor of \
         two, \u{25cb} within noise or not judged",
    )
    .text("figure")
    .column(html! { (marks::sample(PUBLISHED)) "published" }, crate::grid::Kind::Number)
    .column(html! { (marks::sample(OURS)) "ours" }, crate::grid::Kind::Number)
    .text("agreement")
    .picture(match axes.iter().flatten().collect::<Vec<_>>()[..] {
        [only] => forest::head(only),
        _ => html! { "on an axis for each unit" },
    });
    for row in &section.comparisons {
        let (class, symbol) = standing(row).shown();
        let picture = row.numbers.as_ref().and_then(|numbers| {
            let place = units.iter().position(|unit| *unit == numbers.unit)?;
            Some(picture(
                axes[place].as_ref()?,
                row,
                &numbers.published,
                &numbers.ours,
                &numbers.unit,
            ))
        });
        let ours = row.ours.as_deref().unwrap_or("\u{2013}");
        grid.row(
            "",
            vec![
                Cell::text(&row.what),
                number(
                    &row.published,
                    row.numbers.as_ref().map(|numbers| numbers.published.value),
                ),
                number(ours, row.numbers.as_ref().map(|numbers| numbers.ours.value)),
                Cell::markup(html! {
                    span class=(class) { span.symbol aria-hidden="true" { (symbol) } (row.says) }
                }),
                picture.map_or_else(Cell::empty, Cell::markup),
            ],
        );
    }
    grid.render()
}

fn number(shown: &str, value: Option<f64>) -> Cell {
    match value {
        Some(value) => Cell::number(value, shown),
        None => Cell::text(shown),
    }
}

/// What nothing would have changed to, in each unit.
fn reference(unit: &str) -> f64 {
    match unit {
        "x" => 1.0,
        _ => 0.0,
    }
}

fn axis(section: &Published, unit: &str) -> Option<Axis> {
    let numbers = section
        .comparisons
        .iter()
        .filter_map(|row| row.numbers.as_ref());
    let numbers: Vec<_> = numbers.filter(|numbers| numbers.unit == unit).collect();
    let values = numbers.iter().flat_map(|numbers| {
        [numbers.published, numbers.ours]
            .into_iter()
            .flat_map(|one| [Some(one.value), one.low, one.high])
    });
    let values: Vec<f64> = values.flatten().collect();
    (!values.is_empty()).then(|| Axis::around(values.into_iter().chain([reference(unit)])))
}

fn picture(axis: &Axis, row: &Comparison, published: &Figure, ours: &Figure, unit: &str) -> Markup {
    let place = percent(axis.place(reference(unit)));
    let said = row.ours.as_deref().unwrap_or("-");
    let title = format!(
        "{}: published {}, ours {said}: {}",
        row.what, row.published, row.says
    );
    html! {
        svg.cell role="img" aria-label=(title) width="100%" height="34" {
            (forest::grid(axis))
            line.reference x1=(place) x2=(place) y1="0" y2="100%" {}
            (forest::interval(axis, PUBLISHED, published, 0.28))
            (marks::mark(PUBLISHED, axis.place(published.value), 0.28, &format!("published: {}", row.published)))
            (forest::interval(axis, OURS, ours, 0.72))
            (marks::mark(OURS, axis.place(ours.value), 0.72, &format!("ours: {said}")))
        }
    }
}
