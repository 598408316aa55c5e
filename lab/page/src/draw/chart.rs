//! Charts with two axes: lines, marks, or both.

use maud::{Markup, html};

use super::axis::Axis;
use super::marks::{self, Arm};
use super::percent;

/// Steps that a coordinate of a line is rounded to.
const STEPS: f64 = 10_000.0;

/// A chart. It is `Clone` since the page and a file of its own draw the same.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows, for those who do not see it.
    pub told: String,
    /// The horizontal axis, and what it is, with the unit.
    pub x: (Axis, String),
    /// The vertical one.
    pub y: (Axis, String),
    /// Height in pixels without axes.
    pub height: u32,
    /// A horizontal line that the others are seen against.
    pub reference: Option<f64>,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Whether scripts may zoom along the horizontal axis; there are no marks then.
    pub zooms: bool,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub arm: Arm,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// What it is drawn with.
    pub style: Style,
}

/// What a series is drawn with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// A line.
    Line,
    /// A mark at each point, and a thin line between them.
    Marks,
    /// A dotted line without marks: a bound, not a measurement.
    Bound,
}

impl Chart {
    /// The chart as part of a page, with a legend if there are several series.
    pub fn figure(&self, caption: &Markup) -> Markup {
        let hint = if self.zooms { "0" } else { "-1" };
        html! {
            figure.chart {
                figcaption { (caption) }
                @if self.series.len() > 1 { (self.legend()) }
                div.y-title { (self.y.1) }
                div.xy tabindex=(hint) data-x=(self.x.0.told()) data-y=(self.y.0.told())
                    data-zoom[self.zooms] {
                    svg.y-axis aria-hidden="true" width="56" height=(self.height) {
                        (self.y_labels("50", "end"))
                    }
                    svg.area role="img" aria-label=(self.told) width="100%" height=(self.height) {
                        (self.area())
                    }
                    svg.x-axis aria-hidden="true" width="100%" height="20" {
                        (self.x_labels())
                    }
                }
                div.x-title { (self.x.1) }
            }
        }
    }

    fn legend(&self) -> Markup {
        html! {
            ul.legend {
                @for series in &self.series {
                    @if series.style != Style::Bound {
                        li class=(series.arm.class()) { (marks::sample(series.arm)) (series.name) }
                    }
                }
                @if self.series.iter().any(|series| series.style == Style::Bound) {
                    li { svg.sample width="22" height="14" viewBox="0 0 22 14" aria-hidden="true" {
                        path class="line bound" d="M0,7H22" {}
                    } "dotted: the bound" }
                }
            }
        }
    }

    /// The numbers at the vertical axis, which end or begin at `x`.
    pub(super) fn y_labels(&self, x: &str, anchor: &str) -> Markup {
        let axis = &self.y.0;
        html! {
            @for (value, text) in axis.ticks() {
                text x=(x) y=(percent(axis.depth(value))) dy="4" text-anchor=(anchor) { (text) }
            }
        }
    }

    /// The numbers at the horizontal axis.
    pub(super) fn x_labels(&self) -> Markup {
        let axis = &self.x.0;
        html! {
            @for (value, text) in axis.ticks() {
                text x=(percent(axis.place(value))) y="14" text-anchor="middle" { (text) }
            }
        }
    }

    /// What is inside the axes.
    pub(super) fn area(&self) -> Markup {
        let (x, y) = (&self.x.0, &self.y.0);
        html! {
            @for (value, _) in y.ticks() {
                line.grid x1="0" x2="100%" y1=(percent(y.depth(value))) y2=(percent(y.depth(value))) {}
            }
            line.axis x1="0" x2="100%" y1="100%" y2="100%" {}
            @if let Some(value) = self.reference {
                line.reference x1="0" x2="100%" y1=(percent(y.depth(value))) y2=(percent(y.depth(value))) {}
            }
            svg.lines width="100%" height="100%" preserveAspectRatio="none"
                viewBox=(format!("0 0 {STEPS} {STEPS}")) {
                @for series in &self.series {
                    @if series.points.len() > 1 {
                        path class={ (series.style.class()) " " (series.arm.class()) }
                            stroke-dasharray=(series.dashes()) data-name=(series.name)
                            vector-effect="non-scaling-stroke" d=(self.path(series)) {}
                    }
                }
            }
            @for series in &self.series {
                @if series.style == Style::Marks {
                    g class=(series.arm.class()) {
                        @for point in &series.points {
                            @let title = format!("{}: {}", series.name, self.words(*point));
                            (marks::mark(series.arm, x.place(point.0), y.depth(point.1), &title))
                        }
                    }
                }
            }
        }
    }

    /// A point in words.
    fn words(&self, (x, y): (f64, f64)) -> String {
        let number = |value: f64| match value.abs() {
            0.0 => "0".to_owned(),
            size if size >= 1000.0 => format!("{value:.0}"),
            size if size >= 1.0 => format!("{value:.3}"),
            _ => format!("{value:.5}"),
        };
        let x_text = if x.fract() == 0.0 {
            format!("{x:.0}")
        } else {
            number(x)
        };
        format!("{} {} at {} {x_text}", self.y.1, number(y), self.x.1)
    }

    fn path(&self, series: &Series) -> String {
        let mut text = String::with_capacity(series.points.len() * 10);
        for (number, (x, y)) in series.points.iter().enumerate() {
            let letter = if number == 0 { 'M' } else { 'L' };
            let step = |share: f64| (share.clamp(-1.0, 2.0) * STEPS).round() as i64;
            let (x, y) = (step(self.x.0.place(*x)), step(self.y.0.depth(*y)));
            text.push_str(&format!("{letter}{x},{y}"));
        }
        text
    }
}

impl Series {
    fn dashes(&self) -> &'static str {
        match self.style {
            Style::Bound => "1 4",
            Style::Line | Style::Marks => self.arm.dashes(),
        }
    }
}

impl Style {
    fn class(self) -> &'static str {
        match self {
            Style::Line => "line",
            Style::Marks => "line thin",
            Style::Bound => "line bound",
        }
    }
}
