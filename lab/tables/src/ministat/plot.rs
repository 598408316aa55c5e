//! The plot: where the points of each set lie, and mean, median and standard
//! deviation below them.

use super::{SYMBOLS, Set};

/// How the plot is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plot {
    /// Columns between the borders.
    pub width: u16,
    /// Whether each set has a line of its own for mean, median and deviation.
    pub separate_bars: bool,
}

/// 74 columns and one line for all sets.
impl Default for Plot {
    fn default() -> Self {
        Self {
            width: 74,
            separate_bars: false,
        }
    }
}

/// Columns of values.
struct Scale {
    begin: f64,
    step: f64,
    columns: usize,
}

impl Scale {
    fn column(&self, value: f64) -> usize {
        // Saturates at 0.
        (((value - self.begin) / self.step) as usize).min(self.columns - 1)
    }
}

/// The plot, bordered.
pub(super) fn draw(plot: &Plot, sets: &[Set], compat: bool) -> String {
    let columns = usize::from(plot.width).max(2);
    let marks = sets.iter().flat_map(|set| {
        let (mean, deviation) = (set.mean, set.deviation());
        let ends = [set.points[0], set.points[set.points.len() - 1]];
        [ends[0], ends[1], mean - deviation, mean + deviation]
    });
    let (least, most) = marks.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), mark| {
        (mark.min(least), mark.max(most))
    });
    let span = most - least;
    // A span that is not finite has no columns either.
    if !(span > 0.0 && span.is_finite()) {
        return "[no plot, span is zero width]\n".to_owned();
    }
    let step = span / (columns - 1) as f64;
    let scale = Scale {
        begin: least - 0.5 * step,
        step,
        columns,
    };
    let border = format!("+{}+\n", "-".repeat(columns));
    let mut text = border.clone();
    for row in points(sets, &scale, compat).iter().rev() {
        text.push('|');
        text.extend(row.iter().map(|cell| symbol(*cell)));
        text += "|\n";
    }
    for bar in bars(plot, sets, &scale) {
        text.push('|');
        text.extend(bar);
        text += "|\n";
    }
    text + &border
}

/// What is in each cell, from the lowest row up. The points of a set that fall
/// into one column are piled up. Where several sets have a point, the cell holds
/// their numbers combined by "or", so that it looks like another set's: that of
/// the first and the second (`x` and `+`) is shown as the third's (`*`).
fn points(sets: &[Set], scale: &Scale, compat: bool) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for (index, set) in sets.iter().enumerate() {
        let mut pile = vec![0; scale.columns];
        for point in &set.points {
            let column = scale.column(*point);
            if pile[column] == rows.len() {
                rows.push(vec![0; scale.columns]);
            }
            rows[pile[column]][column] |= index + 1;
            pile[column] += 1;
        }
        if compat {
            rows.truncate(pile.into_iter().max().unwrap_or(0));
        }
    }
    rows
}

fn symbol(cell: usize) -> char {
    match cell {
        0 => ' ',
        some => SYMBOLS[some - 1],
    }
}

/// The lines of mean (`A`), median (`M`) and standard deviation (`|___|`).
fn bars(plot: &Plot, sets: &[Set], scale: &Scale) -> Vec<Vec<char>> {
    let lines = if plot.separate_bars { sets.len() } else { 1 };
    let mut bars = vec![vec![' '; scale.columns]; lines];
    for (index, set) in sets.iter().enumerate() {
        let bar = &mut bars[if plot.separate_bars { index } else { 0 }];
        let low = scale.column(set.mean - set.deviation());
        let high = scale.column(set.mean + set.deviation());
        bar[high] = '|';
        bar[low] = '|';
        for cell in bar.iter_mut().take(high).skip(low + 1) {
            if *cell == ' ' {
                *cell = '_';
            }
        }
        bar[scale.column(set.median)] = 'M';
        bar[scale.column(set.mean)] = 'A';
    }
    bars
}
