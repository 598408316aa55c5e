//! Rounds of a measurement, their median, and what a source says of them.

use std::time::Instant;

use vellum_description::{Rate, Time};

use crate::Effort;

/// What rounds gave: each a figure of the same unit.
#[derive(Clone, Debug)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Takes `full` rounds, or a few if the effort is small, after one that does not
    /// count.
    pub fn take(effort: Effort, full: usize, mut round: impl FnMut() -> f64) -> Rounds {
        round();
        let rounds = match effort {
            Effort::Full => full,
            Effort::Quick => 3,
        };
        Rounds::of((0..rounds).map(|_| round()).collect())
    }

    /// Of figures that were measured already; at least one.
    pub fn of(mut figures: Vec<f64>) -> Rounds {
        figures.sort_by(f64::total_cmp);
        Rounds(figures)
    }

    /// The one in the middle.
    pub fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The least of them.
    pub fn least(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    fn source(&self, how: &str) -> String {
        let range = |place: Option<&f64>| shortened(place.copied().unwrap_or(f64::NAN));
        format!(
            "measured: {how}; median of {} rounds from {} to {}",
            self.0.len(),
            range(self.0.first()),
            range(self.0.last())
        )
    }

    /// Rounds of nanoseconds as a figure, measured by `how`.
    pub fn time(&self, how: &str) -> Time {
        Time::new(shortened(self.median()), self.source(how))
    }

    /// Rounds of bytes a nanosecond as a figure.
    pub fn rate(&self, how: &str) -> Rate {
        Rate::new(shortened(self.median()), self.source(how))
    }

    /// Rounds of shares, with their source.
    pub fn share(&self, how: &str) -> (f64, String) {
        (shortened(self.median()), self.source(how))
    }
}

/// A figure with the three digits that mean something.
pub fn shortened(figure: f64) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return figure;
    }
    let digits = 2 - figure.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    (figure * scale).round() / scale
}

/// Nanoseconds that `work` takes.
pub fn nanoseconds(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_kept_whatever_the_size() {
        let cases = [
            (1234.5, 1230.0),
            (0.012_345, 0.0123),
            (99.96, 100.0),
            (0.0, 0.0),
            (-1.2345, -1.23),
        ];
        for (figure, expected) in cases {
            let found = shortened(figure);
            assert!((found - expected).abs() < 1e-9, "{figure}: {found}");
        }
    }

    #[test]
    fn the_median_and_the_range_are_told() {
        let mut rounds = [9.0, 3.0, 1.0, 2.0].into_iter();
        // The first does not count.
        let rounds = Rounds::take(Effort::Full, 3, || rounds.next().unwrap_or(0.0));
        let time = rounds.time("a test");
        assert_eq!(time.ns, 2.0);
        assert_eq!(
            time.source,
            "measured: a test; median of 3 rounds from 1 to 3"
        );
    }
}
