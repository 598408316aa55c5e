//! Profiles: the differential flame graph, and functions whose time changed.

use std::sync::Arc;

use maud::{Markup, PreEscaped, html};
use vellum_profile::{Profile as Ticks, flame};

use super::Section;
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::profile::{Difference, Profile, Stacks};

/// Functions of a difference that are shown.
const MOST: usize = 40;

/// A section for each design against the first.
pub fn sections(profile: &Profile) -> Vec<Section> {
    let several = profile.differences.len() > 1;
    let section = |(number, difference): (usize, &Difference)| {
        let heading = match several {
            true => format!(
                "Where the time goes: {} against {}",
                difference.new, difference.old
            ),
            false => "Where the time goes, by function".to_owned(),
        };
        let picture = profile.stacks.as_ref();
        let picture = picture.and_then(|stacks| graph(stacks, number + 1));
        Section::new(heading, body(profile, difference, picture))
    };
    profile
        .differences
        .iter()
        .enumerate()
        .map(section)
        .collect()
}

fn body(profile: &Profile, difference: &Difference, picture: Option<Markup>) -> Markup {
    html! {
        p {
            "A tick is a sample; about " (words::number(profile.rate_hz.into()))
            " a second on each thread were taken at random moments. "
            "A is " b { (difference.old) } ", B is " b { (difference.new) } ". "
            @if profile.lost > 0 {
                (words::plural(profile.lost, "sample was", "samples were")) " lost."
            }
        }
        @if let Some(picture) = picture { (picture) }
        (changes(difference))
    }
}

/// The flame graph of two profiles.
pub fn figure(old: &Ticks, new: &Ticks, caption: &str) -> Markup {
    let picture = flame::svg(old, new, "");
    // The declaration belongs to a file of its own.
    let start = picture.find("<svg").unwrap_or(0);
    html! {
        figure.flame {
            figcaption { (caption) }
            div.scroll tabindex="0" role="region" aria-label="differential flame graph" {
                // Made by a library of this project, which escapes what it is given.
                (PreEscaped(&picture[start..]))
            }
        }
    }
}

/// A profile of stacks, outermost first, with their ticks.
pub fn profile<'s>(name: &str, stacks: impl Iterator<Item = (&'s [String], u64)>) -> Ticks {
    let mut profile = Ticks::new(name);
    for (stack, ticks) in stacks {
        let names = stack.iter().map(|name| Arc::from(name.as_str()));
        profile.add(names.collect(), ticks);
    }
    profile
}

fn changes(difference: &Difference) -> Markup {
    let mut grid = Grid::new(format!(
        "functions and groups of functions whose ticks changed, up to {MOST}, largest change first; \
         a change of more than twice its error is marked"
    ))
    .text("function")
    .number("A ticks")
    .number("B ticks")
    .number("B \u{2212} A")
    .number("error")
    .text("marked");
    let mut all: Vec<_> = difference
        .groups
        .iter()
        .map(|change| (format!("all of {}", change.name), change))
        .chain(
            difference
                .changes
                .iter()
                .map(|change| (change.name.clone(), change)),
        )
        .collect();
    all.sort_by_key(|(_, change)| std::cmp::Reverse(change.delta.unsigned_abs()));
    for (name, change) in all.into_iter().take(MOST) {
        grid.row(
            "",
            vec![
                Cell::text(name),
                Cell::number(change.old as f64, words::number(change.old as f64)),
                Cell::number(change.new as f64, words::number(change.new as f64)),
                Cell::number(change.delta as f64, words::signed(change.delta as f64)),
                Cell::number(change.error, format!("{:.0}", change.error)),
                Cell::text(match (change.is_significant(), change.delta < 0) {
                    (false, _) => "",
                    (true, true) => "\u{25bc} less in B",
                    (true, false) => "\u{25b2} more in B",
                }),
            ],
        );
    }
    grid.render()
}

/// The flame graph of profile `new` against the first; none if a number of a name is wrong.
fn graph(stacks: &Stacks, new: usize) -> Option<Markup> {
    let profile = |number: usize| {
        let mut profile = Ticks::new(stacks.profiles.get(number)?.clone());
        for (frames, ticks) in &stacks.stacks {
            let name = |number: &str| stacks.names.get(number.parse::<usize>().ok()?);
            let names = frames
                .split(';')
                .map(|number| Some(Arc::from(name(number)?.as_str())));
            let names: Option<Vec<Arc<str>>> = names.collect();
            match ticks.get(number) {
                Some(0) | None => {}
                Some(ticks) => profile.add(names?, *ticks),
            }
        }
        Some(profile)
    };
    let caption = "A box is a function in the context of its callers, which lie below it; its width is its \
                   ticks in both profiles together. Red: more in B. Blue: more in A. Grey: no more than \
                   twice the statistical error.";
    Some(figure(&profile(0)?, &profile(new)?, caption))
}
