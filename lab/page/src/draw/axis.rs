//! Axes: where a value lies, and at which values there is a mark.

use crate::words::plain;

/// An axis from a low to a high value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

/// Ticks that an axis has, about.
const TICKS: f64 = 6.0;

impl Axis {
    /// An axis on which all of `values` lie, with a little room at both ends. Values that
    /// are no numbers are ignored.
    pub fn around(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values);
        let room = match high > low {
            true => 0.06 * (high - low),
            false => (0.05 * high.abs()).max(1e-9),
        };
        Self {
            low: low - room,
            high: high + room,
            is_log: false,
        }
    }

    /// An axis from 0 to a little more than the largest of `values`.
    pub fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let (_, high) = ends(values);
        Self {
            low: 0.0,
            high: if high > 0.0 { high * 1.05 } else { 1.0 },
            is_log: false,
        }
    }

    /// An axis from `low` to `high`, without more room.
    pub fn between(low: f64, high: f64) -> Self {
        Self {
            low,
            high: if high > low { high } else { low + 1.0 },
            is_log: false,
        }
    }

    /// An axis of doublings from the smallest to the largest of `values`, which are
    /// positive.
    pub fn doublings(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values);
        let low = low.max(f64::MIN_POSITIVE);
        Self {
            low,
            high: high.max(low * 2.0),
            is_log: true,
        }
    }

    /// Where `value` lies: 0 at the low end, 1 at the high end.
    pub fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| match self.is_log {
            true => value.max(f64::MIN_POSITIVE).ln(),
            false => value,
        };
        let (low, high) = (scale(self.low), scale(self.high));
        (scale(value) - low) / (high - low)
    }

    /// The same from the top down, for vertical axes.
    pub fn depth(&self, value: f64) -> f64 {
        1.0 - self.place(value)
    }

    /// The ends and the kind, for scripts.
    pub fn told(&self) -> String {
        let kind = if self.is_log { "log" } else { "linear" };
        format!("{:e} {:e} {kind}", self.low, self.high)
    }

    /// Round values on the axis, and what is written at them.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        if self.is_log {
            return self.powers();
        }
        let raw = (self.high - self.low) / TICKS;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= raw).unwrap_or(raw);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        let ticks = (first..=last).map(|number| number as f64 * step);
        ticks.map(|value| (value, short(value, digits))).collect()
    }

    fn powers(&self) -> Vec<(f64, String)> {
        let first = self.low.log2().ceil() as i32;
        let last = (self.high.log2() + 1e-9).floor() as i32;
        // At least every power of 2, but not more than fit.
        let stride = ((last - first) / 10 + 1).max(1) as usize;
        let powers = (first..=last).step_by(stride).map(|power| 2f64.powi(power));
        powers.map(|value| (value, plain(value))).collect()
    }
}

fn ends(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let values = values.into_iter().filter(|value| value.is_finite());
    let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    });
    ends.unwrap_or((0.0, 1.0))
}

/// A number with `digits` after the point; thousands and more in short.
fn short(value: f64, digits: usize) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{}G", plain(value / 1e9)),
        size if size >= 1e6 => format!("{}M", plain(value / 1e6)),
        size if size >= 1e4 => format!("{}k", plain(value / 1e3)),
        _ => format!("{value:.digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round_and_lie_on_the_axis() {
        assert_eq!(
            labels(&Axis::between(0.94, 1.01)),
            ["0.94", "0.96", "0.98", "1.00"]
        );
        assert_eq!(
            labels(&Axis::between(0.0, 9_800_000.0)),
            ["0", "2M", "4M", "6M", "8M"]
        );
        assert_eq!(labels(&Axis::doublings([1.0, 8.0])), ["1", "2", "4", "8"]);
        assert_eq!(labels(&Axis::doublings([0.5, 4.0]))[0], "0.5");
    }

    #[test]
    fn values_without_extent_have_an_axis_with_some() {
        for axis in [
            Axis::around([3.0]),
            Axis::around([]),
            Axis::from_zero([0.0]),
            Axis::between(1.0, 1.0),
            Axis::doublings([64.0]),
            Axis::around([f64::NAN, 1.0, f64::INFINITY]),
        ] {
            assert!(axis.place(1.0).is_finite(), "{axis:?}");
            assert!(!axis.ticks().is_empty(), "{axis:?}");
        }
    }

    #[test]
    fn doublings_are_evenly_spaced() {
        let axis = Axis::doublings([1.0, 16.0]);
        assert!((axis.place(4.0) - 0.5).abs() < 1e-12);
        assert!((axis.depth(16.0)).abs() < 1e-12);
    }
}
