//! Statistics of repeated, interleaved measurements.
//!
//! The unit of repetition is a *pass*: the whole workload once under every arm.
//! A pass is cut into *slices*. The time of a slice is its median over the
//! passes, the time of an arm is the sum over its slices, and uncertainty comes
//! from resampling passes ([`bootstrap`]).

pub mod bootstrap;
pub mod paired;
pub mod random;
pub mod samples;

pub use bootstrap::{Bootstrap, Interval, TooFewPasses};
pub use random::Random;
pub use samples::Samples;
pub use vellum_tables::summary::median;

/// A value and the bounds of its uncertainty; none with too few passes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The best value.
    pub value: f64,
    /// Where the true value lies with the stated confidence.
    pub interval: Option<Interval>,
}

impl Estimate {
    /// How far the interval reaches from the value, on its longer side.
    pub fn reach(&self) -> Option<f64> {
        let interval = self.interval?;
        Some((self.value - interval.low).max(interval.high - self.value))
    }
}

/// The `p`-quantile (`0.0..=1.0`) of an ascending, non-empty slice, linearly
/// interpolated between the neighbouring order statistics.
///
/// # Panics
/// `sorted` is empty.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let place = p.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_between_order_statistics() {
        let sorted = [0.0, 10.0, 20.0, 30.0, 40.0];
        assert_eq!(quantile(&sorted, 0.0), 0.0);
        assert_eq!(quantile(&sorted, 1.0), 40.0);
        assert_eq!(quantile(&sorted, 0.5), 20.0);
        assert_eq!(quantile(&sorted, 0.125), 5.0);
    }
}
