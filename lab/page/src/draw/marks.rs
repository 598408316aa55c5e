//! Marks of arms: a shape for each, so that they differ without colour.

use maud::{Markup, html};

/// Shapes, drawn around the origin. An arm beyond them starts again.
const SHAPES: [&str; 7] = [
    // Circle, square, triangle, diamond, cross, triangle upside down, bar.
    "M-4.5,0a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0 -9,0z",
    "M-4,-4h8v8h-8z",
    "M0,-5.2L5,4H-5z",
    "M0,-5.6L5.2,0L0,5.6L-5.2,0z",
    "M-4.6,-3L-3,-4.6L0,-1.6L3,-4.6L4.6,-3L1.6,0L4.6,3L3,4.6L0,1.6L-3,4.6L-4.6,3L-1.6,0z",
    "M0,5.2L5,-4H-5z",
    "M-2,-5.5h4v11h-4z",
];

/// Colours that arms have before they start again.
const COLOURS: usize = 7;

/// An arm of a comparison, as far as pictures are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arm {
    /// One of what is compared, by number.
    Number(usize),
    /// The control, which is hollow and grey.
    Control,
}

impl Arm {
    /// The class that gives it its colour, and by which it is hidden.
    pub fn class(self) -> String {
        match self {
            Arm::Number(number) => format!("arm-{}", number % COLOURS),
            Arm::Control => "arm-control".to_owned(),
        }
    }

    fn shape(self) -> String {
        match self {
            Arm::Number(number) => format!("mark-{}", number % SHAPES.len()),
            Arm::Control => "mark-control".to_owned(),
        }
    }

    /// The arms of a list whose last one is the control.
    pub fn of(number: usize, arms: usize) -> Self {
        match number + 1 == arms {
            true => Arm::Control,
            false => Arm::Number(number),
        }
    }

    /// Its dashes as a line, so that lines differ without colour.
    pub fn dashes(self) -> &'static str {
        const DASHES: [&str; 6] = ["none", "8 3", "2 3", "12 3 2 3", "5 2", "1 4"];
        match self {
            Arm::Number(number) => DASHES[number % DASHES.len()],
            Arm::Control => "3 3",
        }
    }
}

/// The shapes, once for a page or picture; [`mark`] and [`sample`] refer to them.
pub fn definitions() -> Markup {
    html! {
        defs {
            @for (number, shape) in SHAPES.iter().enumerate() {
                path id=(format!("mark-{number}")) d=(shape) {}
            }
            path id="mark-control" d=(SHAPES[0]) {}
        }
    }
}

/// A mark at a place in shares of the picture; `title` is shown when it is pointed at.
pub fn mark(arm: Arm, x: f64, y: f64, title: &str) -> Markup {
    if !x.is_finite() || !y.is_finite() {
        return html! {};
    }
    let (shape, class) = (format!("#{}", arm.shape()), arm.class());
    html! {
        use href=(shape) class={ "mark " (class) } x=(super::percent(x)) y=(super::percent(y)) {
            title { (title) }
        }
    }
}

/// A mark where the coordinates begin.
pub fn at_origin(arm: Arm) -> Markup {
    html! {
        use href=(format!("#{}", arm.shape())) class={ "mark " (arm.class()) } {}
    }
}

/// A small picture of the mark, for text.
pub fn sample(arm: Arm) -> Markup {
    html! {
        svg.sample width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true" {
            (at_origin(arm))
        }
    }
}
