//! What single things cost on this machine, and what a number of them comes to.
//!
//! Prices are measured in rounds. An effect is computed for each round from all prices of that
//! round; the median is the value, and resampling rounds gives the interval.

use crate::host::forkfault::Round;
use crate::stats::{Random, median, quantile};
use vellum_results::Figure;
use vellum_results::advise::Price;

const RESAMPLES: usize = 1000;
const TAIL: f64 = 0.025;
const SEED: u64 = 1;

/// Prices by round.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Prices {
    rounds: Vec<Round>,
}

/// A price: what it is of, and its place in a round.
type Named = (&'static str, fn(&Round) -> f64);

const NAMED: [Named; 8] = [
    ("first touch of a page of private memory", |round| {
        round.touch
    }),
    ("the same page made by MADV_POPULATE_WRITE", |round| {
        round.populate
    }),
    ("return of a touched page by munmap", |round| round.free),
    ("fork and end of a child without private pages", |round| {
        round.fork
    }),
    (
        "each private page in a fork and the end of its child",
        |round| round.fork_page,
    ),
    (
        "store to a page that was shared with an ended child",
        |round| round.copy,
    ),
    ("vfork and end of a child", |round| round.vfork),
    ("mmap and munmap of memory that is not touched", |round| {
        round.mapping
    }),
];

impl Prices {
    /// Of these rounds.
    pub fn new(rounds: Vec<Round>) -> Prices {
        Prices { rounds }
    }

    /// Whether pages can be made before they are touched.
    pub fn can_populate(&self) -> bool {
        !self.rounds.is_empty() && self.rounds.iter().all(|round| round.populate >= 0.0)
    }

    /// The prices, as they are told.
    pub fn list(&self) -> Vec<Price> {
        let known = NAMED.iter().filter_map(|(what, of)| {
            let ns = self.value(of)?;
            let what = (*what).to_owned();
            (ns.value > 0.0).then_some(Price { what, ns })
        });
        known.collect()
    }

    /// What `of` says of a round, over all rounds; none if there are no rounds.
    pub fn value(&self, of: impl Fn(&Round) -> f64) -> Option<Figure> {
        let values: Vec<f64> = self.rounds.iter().map(of).collect();
        resampled(&values)
    }
}

/// The median of `values` with its interval.
fn resampled(values: &[f64]) -> Option<Figure> {
    let value = median(values)?;
    let mut random = Random::seeded(SEED);
    let mut draw = |_| {
        let drawn: Vec<f64> = values
            .iter()
            .map(|_| values[random.below(values.len())])
            .collect();
        median(&drawn).unwrap_or(value)
    };
    let mut medians: Vec<f64> = (0..RESAMPLES).map(&mut draw).collect();
    medians.sort_by(f64::total_cmp);
    Some(Figure {
        value,
        low: Some(quantile(&medians, TAIL)),
        high: Some(quantile(&medians, 1.0 - TAIL)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(touches: &[f64]) -> Prices {
        let round = |touch: &f64| Round {
            touch: *touch,
            populate: touch / 2.0,
            ..Round::default()
        };
        Prices::new(touches.iter().map(round).collect())
    }

    #[test]
    fn what_a_round_does_to_both_prices_cancels() {
        let prices = prices(&[200.0, 220.0, 210.0, 900.0, 205.0]);
        let share = prices.value(|round| round.populate / round.touch);
        let half = Figure {
            value: 0.5,
            low: Some(0.5),
            high: Some(0.5),
        };
        assert_eq!(share, Some(half));
        let touch = prices.value(|round| round.touch).expect("rounds");
        assert_eq!(touch.value, 210.0);
        assert!(touch.low >= Some(200.0) && touch.high <= Some(900.0));
        assert!(prices.can_populate());
        assert_eq!(prices.list().len(), 2, "what is zero was not measured");
    }

    #[test]
    fn without_rounds_there_are_no_prices() {
        let none = Prices::default();
        assert_eq!(none.value(|round| round.touch), None);
        assert!(none.list().is_empty() && !none.can_populate());
    }
}
