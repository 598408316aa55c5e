//! Pictures as files of their own, light or dark as the reader has it.

use maud::{Markup, PreEscaped, html};

use super::axis::Axis;
use super::chart::{Chart, Style};
use super::marks::{self, Arm};
use super::{forest, percent};
use vellum_results::Figure;

/// Width of the drawing, in pixels.
const WIDTH: u32 = 880;
const MARGIN: u32 = 20;
/// Room for the numbers at a vertical axis.
const AXIS: u32 = 56;
/// Height of a line of text.
const LINE: u32 = 18;
/// Letters that fit into a line of the title.
const LETTERS: usize = 82;

/// A picture of one result.
#[derive(Clone, Debug)]
pub struct Picture {
    /// What stands above it: the answer.
    pub title: String,
    /// What stands below that, a line each.
    pub lines: Vec<String>,
    /// Ratios on one axis: whose, what they are called, and the interval.
    pub ratios: Vec<(Arm, String, Figure)>,
    /// What is too near to 1 to be told from it.
    pub resolution: Option<f64>,
    /// Charts, from above to below.
    pub charts: Vec<Chart>,
}

impl Picture {
    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let title = wrapped(&self.title);
        let mut y = MARGIN;
        let mut body = Vec::new();
        for (class, line) in title
            .iter()
            .map(|line| ("title", line))
            .chain(self.lines.iter().map(|line| ("soft", line)))
        {
            y += LINE + 2;
            body.push(text(class, MARGIN, y, line));
        }
        y += LINE + 8;
        if !self.ratios.is_empty() {
            body.push(self.forest(&mut y));
        }
        for chart in &self.charts {
            body.push(placed(chart, &mut y));
        }
        let style = include_str!("standalone.css");
        let picture = html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(y)
                viewBox=(format!("0 0 {WIDTH} {y}")) role="img" aria-label=(self.title) {
                style { (PreEscaped(style)) }
                (marks::definitions())
                rect.paper width="100%" height="100%" {}
                @for part in body { (part) }
            }
        };
        picture.into_string() + "\n"
    }

    fn forest(&self, y: &mut u32) -> Markup {
        const NAMES: u32 = 250;
        const ROW: u32 = 26;
        let figures: Vec<Figure> = self.ratios.iter().map(|ratio| ratio.2).collect();
        let axis = forest::axis(&figures, 1.0);
        let width = WIDTH - 2 * MARGIN - NAMES;
        let top = *y;
        let rows = ROW * self.ratios.len() as u32;
        *y += rows + 2 * LINE + 10;
        let share = |row: usize| (row as f64 + 0.5) / self.ratios.len() as f64;
        html! {
            @for (row, (arm, name, figure)) in self.ratios.iter().enumerate() {
                @let middle = top + ROW * row as u32 + ROW / 2;
                (sample(*arm, MARGIN + 7, middle))
                (text("ink", MARGIN + 20, middle + 4,
                    &format!("{name}  {}", crate::words::with_bounds(figure, crate::words::ratio))))
            }
            svg x=(MARGIN + NAMES) y=(top) width=(width) height=(rows) overflow="visible" {
                (forest::shaded(&axis, 1.0, self.resolution))
                (forest::grid(&axis))
                (reference(&axis))
                @for (row, (arm, name, figure)) in self.ratios.iter().enumerate() {
                    (forest::interval(&axis, *arm, figure, share(row)))
                    (marks::mark(*arm, axis.place(figure.value), share(row), name))
                }
            }
            svg x=(MARGIN + NAMES) y=(top + rows) width=(width) height="18" overflow="visible" {
                (forest::numbers(&axis))
            }
        }
    }
}

fn reference(axis: &Axis) -> Markup {
    let place = percent(axis.place(1.0));
    html! { line.reference x1=(place) x2=(place) y1="0" y2="100%" {} }
}

fn text(class: &str, x: u32, y: u32, words: &str) -> Markup {
    html! { text class=(class) x=(x) y=(y) { (words) } }
}

fn sample(arm: Arm, x: u32, y: u32) -> Markup {
    html! { svg x=(x) y=(y) overflow="visible" { (marks::at_origin(arm)) } }
}

/// A chart with its legend and axes, below what is there already.
fn placed(chart: &Chart, y: &mut u32) -> Markup {
    let legend: Vec<_> = chart
        .series
        .iter()
        .filter(|series| series.style != Style::Bound)
        .collect();
    let has_bounds = legend.len() < chart.series.len();
    let top = *y;
    let lines = legend.len() + usize::from(has_bounds);
    let area = top + LINE * (lines as u32 + 1) + 10;
    let width = WIDTH - 2 * MARGIN - AXIS - 10;
    *y = area + chart.height + 3 * LINE + 8;
    html! {
        @for (row, series) in (0u32..).zip(&legend) {
            (sample(series.arm, MARGIN + 7, top + LINE * row))
            (text("ink", MARGIN + 20, top + LINE * row + 4, &series.name))
        }
        @if has_bounds {
            (text("soft", MARGIN + 20, top + LINE * legend.len() as u32 + 4, "dotted: the bound"))
        }
        (text("soft", MARGIN, area - 12, &chart.y.1))
        svg x=(MARGIN) y=(area) width=(AXIS) height=(chart.height) overflow="visible" {
            (chart.y_labels("50", "end"))
        }
        svg x=(MARGIN + AXIS) y=(area) width=(width) height=(chart.height) overflow="visible" {
            (chart.area())
        }
        svg x=(MARGIN + AXIS) y=(area + chart.height) width=(width) height="20" overflow="visible" {
            (chart.x_labels())
        }
        text.soft x=(MARGIN + AXIS + width / 2) y=(area + chart.height + 2 * LINE) text-anchor="middle" {
            (chart.x.1)
        }
    }
}

/// Words in lines that fit the picture.
fn wrapped(words: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        if let Some(line) = lines.last_mut() {
            if line.is_empty() {
                word.clone_into(line);
            } else if line.chars().count() + 1 + word.chars().count() <= LETTERS {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_title_has_several_lines_and_loses_no_word() {
        let title = "some words ".repeat(30);
        let lines = wrapped(title.trim_end());
        assert!(lines.len() > 2);
        assert!(lines.iter().all(|line| line.chars().count() <= LETTERS));
        assert_eq!(lines.join(" "), title.trim_end());
    }
}
