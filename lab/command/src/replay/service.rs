//! What the recorded kernel's own work took of the CPU times in a trace, as
//! [`super::prepare()`] found it.

use vellum_results::Whole;
use vellum_results::sim::Served;

/// The prices of a trace in nanoseconds, by [`Served`]; 0 where it has too few samples.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Prices([u64; Served::ALL.len()]);

impl Prices {
    /// Prices by [`Served`].
    pub(super) fn of_each(prices: [u64; Served::ALL.len()]) -> Prices {
        Prices(prices)
    }

    /// The price of one.
    pub fn of(&self, served: Served) -> u64 {
        self.0[served as usize]
    }

    /// Those that are known.
    pub fn known(&self) -> impl Iterator<Item = (Served, u64)> + '_ {
        let prices = Served::ALL.map(|served| (served, self.of(served)));
        prices.into_iter().filter(|(_, price)| *price > 0)
    }
}

/// The recorded kernel's service in a workload.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Service {
    /// What it is taken to have cost.
    pub prices: Prices,
    /// How much of the CPU times it was.
    pub taken_ns: u64,
    /// The CPU times themselves.
    pub of_ns: u64,
}

impl Service {
    /// What is said of the whole workload beside a part of it; nothing of one that took no time.
    pub fn whole(&self) -> Option<Whole> {
        let is_known = self.prices.known().next().is_some();
        (self.of_ns > 0).then_some(Whole {
            cpu_ns: self.of_ns,
            memory_ns: is_known.then_some(self.taken_ns),
        })
    }
}
