//! Values with intervals, one below the other, on one axis.

use maud::{Markup, html};

use super::axis::Axis;
use super::marks::{self, Arm};
use super::percent;
use vellum_results::Figure;

/// Height of a row in pixels.
const ROW: u32 = 26;

/// The axis of values and the bounds of their intervals, on which `reference` lies, too.
pub fn axis(figures: &[Figure], reference: f64) -> Axis {
    let values = figures.iter().flat_map(|figure| {
        let bounds = [figure.low, figure.high].into_iter().flatten();
        bounds.chain([figure.value])
    });
    Axis::around(values.chain([reference]))
}

/// The axis with its numbers, for the head of a column.
pub fn head(axis: &Axis) -> Markup {
    html! {
        svg.cell aria-hidden="true" height="18" width="100%" { (numbers(axis)) }
    }
}

/// The numbers at the ticks.
pub fn numbers(axis: &Axis) -> Markup {
    html! {
        @for (value, text) in axis.ticks() {
            text x=(percent(axis.place(value))) y="13" text-anchor="middle" { (text) }
        }
    }
}

/// One value with its interval. `resolution`, if there is one, is shaded around the
/// reference: what lies within it is not told from it.
pub fn row(
    axis: &Axis,
    arm: Arm,
    figure: &Figure,
    reference: f64,
    resolution: Option<f64>,
    title: &str,
) -> Markup {
    html! {
        svg.cell role="img" aria-label=(title) height=(ROW) width="100%" {
            (shaded(axis, reference, resolution))
            (grid(axis))
            line.reference x1=(percent(axis.place(reference))) x2=(percent(axis.place(reference)))
                y1="0" y2="100%" {}
            (interval(axis, arm, figure, 0.5))
            (marks::mark(arm, axis.place(figure.value), 0.5, title))
        }
    }
}

/// Vertical lines at the ticks.
pub fn grid(axis: &Axis) -> Markup {
    html! {
        @for (value, _) in axis.ticks() {
            line.grid x1=(percent(axis.place(value))) x2=(percent(axis.place(value)))
                y1="0" y2="100%" {}
        }
    }
}

/// What is too near to the reference to be told from it.
pub fn shaded(axis: &Axis, reference: f64, resolution: Option<f64>) -> Markup {
    let Some(resolution) = resolution else {
        return html! {};
    };
    let place = |value: f64| axis.place(value).clamp(0.0, 1.0);
    let (from, to) = (place(reference - resolution), place(reference + resolution));
    html! {
        rect.resolution x=(percent(from)) width=(percent(to - from)) y="0" height="100%" {}
    }
}

/// The line of an interval, at a height in shares of the picture.
pub fn interval(axis: &Axis, arm: Arm, figure: &Figure, y: f64) -> Markup {
    let (Some(low), Some(high)) = (figure.low, figure.high) else {
        return html! {};
    };
    html! {
        line class={ "interval " (arm.class()) } x1=(percent(axis.place(low)))
            x2=(percent(axis.place(high))) y1=(percent(y)) y2=(percent(y)) {}
    }
}
