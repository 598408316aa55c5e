//! Values with their bounds, by arm.

use serde::{Deserialize, Deserializer, Serialize};
use vellum_tables::summary::{least, median, most};

/// A value with the bounds of its interval, which are null with too few passes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// The value.
    #[serde(deserialize_with = "number")]
    pub value: f64,
    /// Lower bound.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
}

impl Figure {
    /// The value and its bounds divided by `divisor`.
    #[must_use]
    pub fn in_units_of(self, divisor: f64) -> Figure {
        Figure {
            value: self.value / divisor,
            low: self.low.map(|low| low / divisor),
            high: self.high.map(|high| high / divisor),
        }
    }
}

/// A number, where `null` stands for one that is not defined, as the ratio to nothing.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

/// One value for each arm of a comparison of two designs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Arms<T> {
    /// Design A.
    pub a: T,
    /// Design B.
    pub b: T,
    /// Design A in an engine of its own.
    pub control: T,
}

impl<T> Arms<T> {
    /// By the number of the arm: 0 is A, 1 is B, 2 the control.
    pub fn of(value: impl FnMut(usize) -> T) -> Self {
        let [a, b, control] = [0, 1, 2].map(value);
        Self { a, b, control }
    }

    /// The values in the order in which they are shown: A, B, control.
    pub fn list(&self) -> [&T; 3] {
        [&self.a, &self.b, &self.control]
    }
}

/// A median with the least and the most.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    #[serde(deserialize_with = "number")]
    pub median: f64,
    /// The least.
    #[serde(deserialize_with = "number")]
    pub least: f64,
    /// The most.
    #[serde(deserialize_with = "number")]
    pub most: f64,
}

impl Spread {
    /// Of these values; of none nothing is a number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.into_iter().collect();
        let or_none = |figure: Option<f64>| figure.unwrap_or(f64::NAN);
        Spread {
            median: or_none(median(&values)),
            least: or_none(least(&values)),
            most: or_none(most(&values)),
        }
    }
}
