//! Bars in the cells of a table.

use maud::{Markup, html};

use super::marks::Arm;
use super::percent;

/// Height of one of several bars in a cell, in pixels.
const BAR: usize = 9;

/// One bar for each arm, as shares of `most`.
pub fn of_arms(values: &[(Arm, f64)], most: f64, title: &str) -> Markup {
    let most = if most > 0.0 { most } else { 1.0 };
    html! {
        svg.cell role="img" aria-label=(title) width="100%"
            height=((values.len() * (BAR + 2)).to_string()) {
            title { (title) }
            @for (number, (arm, value)) in values.iter().enumerate() {
                rect class={ "bar " (arm.class()) } x="0" y=(number * (BAR + 2)) height=(BAR)
                    width=(percent((value / most).clamp(0.0, 1.0))) {}
            }
        }
    }
}

/// A bar from the middle: to the left for less, to the right for more. `share` is the
/// part of half the picture that it has, from -1 to 1.
pub fn change(share: f64, title: &str) -> Markup {
    let share = share.clamp(-1.0, 1.0);
    let (from, class) = match share < 0.0 {
        true => (0.5 + share / 2.0, "bar less"),
        false => (0.5, "bar more"),
    };
    html! {
        svg.cell role="img" aria-label=(title) width="100%" height="16" {
            title { (title) }
            rect class=(class) x=(percent(from)) width=(percent(share.abs() / 2.0)) y="3"
                height="10" {}
            line.reference x1="50%" x2="50%" y1="0" y2="100%" {}
        }
    }
}
