//! What programs pay for entering the kernel: the price of an entry on this machine, and what a
//! measurement says with it.
//!
//! A fault traps and a call enters the kernel, and both return. The core in a process does
//! neither. So each fault that a design meets and each call count with the price of an entry
//! that does nothing else, measured on the thread's CPU clock throughout each pass: a machine is
//! faster in one minute than in the next, and what it does to the core it does to the price. How
//! many there are is the same in every pass.

use vellum_calibrate::entry::{answered_fault, null_call};
use vellum_results::linux::EntryCost;

use super::analysis::{Contrast, Method};
use super::verdict::Judged;
use super::{A, ARMS, B, CONTROL, Estimate, Measurement, Pass};
use crate::clock::Clock;
use crate::stats::{Samples, median};

/// Entries in a round.
const ENTRIES: u32 = 500;
/// Rounds in a pass, about.
const ROUNDS: usize = 40;

/// Nanoseconds of an entry, by round.
#[derive(Clone, Debug, Default)]
pub struct EntryRounds {
    calls: Vec<f64>,
    /// None where the machine has no fault that is answered at once.
    traps: Vec<f64>,
}

impl EntryRounds {
    /// Measures some more of them.
    pub(super) fn measure(&mut self, clock: &dyn Clock, rounds: usize) {
        for _ in 0..rounds {
            self.calls.push(round(clock, null_call));
            self.traps
                .extend(answered_fault().map(|fault| round(clock, fault)));
        }
    }

    /// What an entry costs: the median of the rounds.
    fn price(&self) -> EntryCost {
        // To what is worth telling, and what a result in a file gives back as it was.
        let rounded = |rounds: &[f64]| (median(rounds).unwrap_or(0.0) * 10.0).round() / 10.0;
        let syscall_ns = rounded(&self.calls);
        let (trap_ns, trap_method) = match self.traps.is_empty() {
            false => (
                rounded(&self.traps),
                "page fault on the vsyscall page, answered at once",
            ),
            true => (
                syscall_ns,
                "not measurable (no vsyscall page): the system call's, which is a lower bound",
            ),
        };
        EntryCost {
            syscall_ns,
            trap_ns,
            trap_method: trap_method.to_owned(),
        }
    }
}

/// Nanoseconds of a call of `enter`, of which a few come before to warm up.
fn round(clock: &dyn Clock, enter: fn()) -> f64 {
    (0..ENTRIES / 10).for_each(|_| enter());
    let begun = clock.cpu_ns();
    (0..ENTRIES).for_each(|_| enter());
    clock.cpu_ns().saturating_sub(begun) as f64 / f64::from(ENTRIES)
}

/// Before which of a pass's slices prices are measured, and by how many rounds each time.
pub(super) fn spaced(slices: usize) -> (usize, usize) {
    let stride = slices.div_ceil(ROUNDS).max(1);
    (stride, ROUNDS.div_ceil(slices.div_ceil(stride).max(1)))
}

/// What an entry cost in the course of all passes.
fn price(measured: &Measurement) -> EntryCost {
    let mut all = EntryRounds::default();
    for pass in &measured.passes {
        all.calls.extend(&pass.entries.calls);
        all.traps.extend(&pass.entries.traps);
    }
    all.price()
}

/// CPU times of `arm` in the core and of the entries that each slice stands for.
pub fn with_entries(measured: &Measurement, arm: usize) -> Samples {
    let entered = &measured.entered[arm];
    let with = |pass: &Pass| -> Vec<u64> {
        let price = pass.entries.price();
        let slices = pass.cpu_ns[arm].iter().zip(entered);
        slices
            .map(|(core, each)| core + price.of(each.traps, each.calls).round() as u64)
            .collect()
    };
    let passes: Vec<Vec<u64>> = measured.passes.iter().map(with).collect();
    let rows: Vec<&[u64]> = passes.iter().map(Vec::as_slice).collect();
    Samples::from_passes(&rows)
}

/// What a measurement of two designs says if entries count.
#[derive(Clone, Debug)]
pub struct WithEntries {
    /// What one costs.
    pub price: EntryCost,
    /// Faults that each arm meets in a pass.
    pub traps: [u64; ARMS],
    /// System calls.
    pub calls: [u64; ARMS],
    /// CPU time in the core and of the entries, in nanoseconds.
    pub cpu_ns: [Estimate; ARMS],
    /// That of B divided by that of A.
    pub ratio: Estimate,
    /// That of the control divided by that of A.
    pub control: Estimate,
    /// The answer, and what could have been told.
    pub judged: Judged,
}

impl WithEntries {
    /// Of a measurement that has at least one pass.
    ///
    /// # Panics
    /// The measurement is of another number of designs.
    pub fn new(measured: &Measurement, method: &Method) -> WithEntries {
        let arms = [A, B, CONTROL];
        let samples = arms.map(|arm| with_entries(measured, arm));
        let contrast = Contrast::new(&samples, method);
        WithEntries {
            price: price(measured),
            traps: arms.map(|arm| measured.entered[arm].iter().map(|each| each.traps).sum()),
            calls: arms.map(|arm| measured.entered[arm].iter().map(|each| each.calls).sum()),
            cpu_ns: arms.map(|arm| contrast.totals[arm]),
            ratio: contrast.ratios[B],
            control: contrast.ratios[CONTROL],
            judged: contrast.judged[0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Entered, HostClock, Verdict};

    const METHOD: Method = Method {
        confidence: 0.95,
        resamples: 200,
        seed: 1,
    };

    /// Six passes of two slices of 1000 and 2000 ns in the core under each arm, each with the
    /// price of a trap.
    fn measured(traps_of_b: u64, prices: [f64; 6]) -> Measurement {
        let pass = |trap_ns: f64| Pass {
            cpu_ns: vec![vec![1000, 2000]; ARMS],
            entries: EntryRounds {
                calls: vec![90.0, 100.0, 300.0],
                traps: vec![trap_ns],
            },
            ..Pass::default()
        };
        let entered = |traps| vec![Entered { traps, calls: 1 }, Entered { traps: 0, calls: 2 }];
        Measurement {
            passes: prices.map(pass).to_vec(),
            entered: vec![entered(4), entered(traps_of_b), entered(4)],
            ..Measurement::default()
        }
    }

    #[test]
    fn faults_and_calls_count_with_their_price() {
        let with = WithEntries::new(&measured(0, [250.0; 6]), &METHOD);
        assert_eq!((with.price.syscall_ns, with.price.trap_ns), (100.0, 250.0));
        assert_eq!(with.traps, [4, 0, 4]);
        assert_eq!(with.calls, [3, 3, 3]);
        let times = with.cpu_ns.map(|time| time.value);
        assert_eq!(times, [4300.0, 3300.0, 4300.0]);
        assert!((with.ratio.value - 3300.0 / 4300.0).abs() < 1e-12);
        assert_eq!(with.judged.verdict, Verdict::Less);
        let same = WithEntries::new(&measured(4, [250.0; 6]), &METHOD);
        assert!(!same.judged.verdict.is_difference());
    }

    #[test]
    fn what_the_price_strays_by_is_in_the_interval() {
        let width = |prices| {
            let with = WithEntries::new(&measured(0, prices), &METHOD);
            let interval = with.ratio.interval.expect("six passes");
            assert!(interval.contains(3300.0 / 4300.0), "{interval:?}");
            interval.high - interval.low
        };
        assert_eq!(width([250.0; 6]), 0.0);
        assert!(width([200.0, 220.0, 250.0, 250.0, 280.0, 300.0]) > 0.01);
    }

    #[test]
    fn prices_are_measured_throughout_a_pass() {
        for (slices, stride, rounds) in [
            (1, 1, 40),
            (7, 1, 6),
            (40, 1, 1),
            (41, 2, 2),
            (4000, 100, 1),
        ] {
            assert_eq!(spaced(slices), (stride, rounds), "{slices}");
        }
    }

    #[test]
    fn an_entry_costs_something_on_every_machine() {
        let mut rounds = EntryRounds::default();
        rounds.measure(&HostClock::new(), 5);
        let price = rounds.price();
        assert!(price.syscall_ns > 0.0 && price.trap_ns > 0.0, "{price:?}");
        let is_bound = price.trap_method.contains("lower bound");
        assert_eq!(is_bound, answered_fault().is_none());
    }
}
