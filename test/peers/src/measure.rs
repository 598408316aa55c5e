//! Interleaved timing of one row's arms.
//!
//! A pass runs a slice of about 100 us of every arm, in a random order, and
//! then of every arm again in the reverse order, so that whatever happens to
//! the machine happens to all of them. What is compared is the two slices of
//! an arm with the two slices of arm 0 of the same pass; the ratio of a row is
//! the median over the passes, with an interval from resampling them. Arm 1 is
//! arm 0 once more, in memory of its own: the control.
//!
//! A slice is preceded by a part that does not count, which brings back into the
//! caches what the other arms drove out. It is an eighth of the slice, but never
//! less than the arm's cycle: the repetitions after which it uses the same memory
//! again. Both arms of ours have slices of the same length. Slices of one or two
//! repetitions, chosen for each arm by how long it took in a moment, had one arm
//! timed mostly with cold caches and the other with warm ones, and told them apart
//! by up to a half.

use std::sync::OnceLock;

use vellum_lab::clock::{Clock, HostClock, empty_interval_ns};
use vellum_lab::stats::paired::{Paired, against_first};
use vellum_lab::stats::{Interval, Random, median};
use vellum_terminal::progress::Interrupt;

use crate::Failure;

/// What a slice is meant to take.
const SLICE_NS: u64 = 100_000;
/// Passes below which an interrupted row is dropped.
const LEAST_PASSES: usize = 8;

/// What a slice did: time that counts, and operations in it.
#[derive(Clone, Copy, Default)]
pub struct Timed {
    pub ns: u64,
    pub count: u64,
}

impl Timed {
    /// Times `work`, which does `count` operations.
    pub fn of(count: u64, work: impl FnOnce()) -> Timed {
        Timed {
            ns: cpu_time(work),
            count,
        }
    }

    fn per_operation(self) -> f64 {
        self.ns as f64 / self.count as f64
    }
}

impl std::ops::AddAssign for Timed {
    fn add_assign(&mut self, other: Timed) {
        self.ns += other.ns;
        self.count += other.count;
    }
}

/// CPU time of the calling thread in `work`, less what reading the clock takes.
/// At least 1, so that it can be divided by.
pub fn cpu_time(work: impl FnOnce()) -> u64 {
    static CLOCK: OnceLock<(HostClock, u64)> = OnceLock::new();
    let (clock, empty) = CLOCK.get_or_init(|| {
        let clock = HostClock::new();
        let empty = empty_interval_ns(&clock);
        (clock, empty)
    });
    let begun = clock.cpu_ns();
    work();
    clock.cpu_ns().saturating_sub(begun + empty).max(1)
}

/// One implementation under a row's operation.
pub struct Arm {
    pub name: &'static str,
    work: Box<dyn FnMut(u64) -> Result<Timed, Failure>>,
    cycle: u64,
}

impl Arm {
    /// An arm whose `work` does its operation that many times, or that many
    /// batches of it.
    pub fn new(name: &'static str, mut work: impl FnMut(u64) -> Timed + 'static) -> Self {
        Arm::fallible(name, move |count| Ok(work(count)))
    }

    /// The same with work that may fail, which ends the run.
    pub fn fallible(
        name: &'static str,
        work: impl FnMut(u64) -> Result<Timed, Failure> + 'static,
    ) -> Self {
        Arm {
            name,
            work: Box::new(work),
            cycle: 1,
        }
    }

    /// The same arm, which uses the same memory again after so many repetitions.
    pub fn cycling(self, cycle: u64) -> Self {
        Arm { cycle, ..self }
    }

    /// Repetitions before a slice of `repeats` that bring near what it uses.
    fn warm_up(&self, repeats: u64) -> u64 {
        (repeats / 8).max(self.cycle)
    }
}

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Plan {
    pub passes: usize,
    pub seed: u64,
}

/// What became of one arm. The first is the one the others are compared with.
#[derive(Clone, serde::Serialize)]
pub struct Figure {
    pub name: &'static str,
    /// Median over the passes, nanoseconds an operation.
    pub ns: f64,
    /// Time of this arm divided by that of the first.
    pub ratio: f64,
    /// Bounds of the ratio, 95 %.
    pub low: f64,
    pub high: f64,
}

impl Figure {
    pub fn interval(&self) -> Interval {
        Interval {
            low: self.low,
            high: self.high,
        }
    }
}

/// Measures the arms against the first. `None` if the user stopped it before
/// there was enough.
pub fn measure(
    arms: &mut [Arm],
    plan: Plan,
    interrupt: &Interrupt,
) -> Result<Option<Vec<Figure>>, Failure> {
    let repeats: Result<Vec<u64>, Failure> = arms.iter_mut().map(calibrate).collect();
    let mut repeats = repeats?;
    // The control does what it controls.
    let longer = repeats[..repeats.len().min(2)].iter().max().copied();
    repeats
        .iter_mut()
        .take(2)
        .for_each(|own| *own = longer.unwrap_or(*own));
    let mut random = Random::seeded(plan.seed);
    let mut order: Vec<usize> = (0..arms.len()).collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::with_capacity(plan.passes); arms.len()];
    for _ in 0..plan.passes {
        if interrupt.requested() {
            break;
        }
        random.shuffle(&mut order);
        let mut pass = vec![Timed::default(); arms.len()];
        for &arm in order.iter().chain(order.iter().rev()) {
            // What the others left in the caches is not this arm's business.
            let warm_up = arms[arm].warm_up(repeats[arm]);
            (arms[arm].work)(warm_up)?;
            pass[arm] += (arms[arm].work)(repeats[arm])?;
        }
        for (times, timed) in times.iter_mut().zip(pass) {
            times.push(timed.per_operation());
        }
    }
    let enough = times[0].len() >= LEAST_PASSES.min(plan.passes);
    Ok(enough.then(|| figures(arms, &times, plan.seed)))
}

/// Repetitions that make a slice: whole cycles.
fn calibrate(arm: &mut Arm) -> Result<u64, Failure> {
    let mut repeats = arm.cycle;
    loop {
        let mut shortest = u64::MAX;
        for _ in 0..3 {
            shortest = shortest.min((arm.work)(repeats)?.ns);
        }
        if shortest > SLICE_NS / 2 || repeats >= 1 << 24 {
            return Ok(repeats);
        }
        repeats *= 2;
    }
}

fn figures(arms: &[Arm], times: &[Vec<f64>], seed: u64) -> Vec<Figure> {
    let one = |(place, paired): (usize, Paired)| {
        let ratio = paired.ratio;
        let bounds = |bound: fn(Interval) -> f64| paired.interval.map_or(ratio, bound);
        Figure {
            name: arms[place].name,
            ns: median(&times[place]).unwrap_or(f64::NAN),
            ratio,
            low: bounds(|interval| interval.low),
            high: bounds(|interval| interval.high),
        }
    };
    let paired = against_first(times, seed);
    paired.into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &'static str, ns: u64) -> Arm {
        Arm::new(name, move |count| Timed {
            ns: ns * count,
            count,
        })
    }

    #[test]
    fn ratios_are_to_the_first_arm() {
        let mut arms = [arm("a", 20), arm("again", 20), arm("b", 50)];
        let plan = Plan {
            passes: 10,
            seed: 1,
        };
        let figures = measure(&mut arms, plan, &Interrupt::manual());
        let figures = figures.expect("nothing fails").expect("10 passes");
        let ratios: Vec<f64> = figures.iter().map(|figure| figure.ratio).collect();
        assert_eq!(ratios, [1.0, 1.0, 2.5]);
        assert!(figures[2].interval().contains(2.5) && figures[2].ns == 50.0);
    }

    #[test]
    fn the_control_repeats_as_often_as_what_it_controls() {
        let seen: [std::rc::Rc<std::cell::RefCell<Vec<u64>>>; 2] = Default::default();
        let recorded = |ns: u64, seen: &std::rc::Rc<std::cell::RefCell<Vec<u64>>>| {
            let seen = seen.clone();
            let work = move |count| {
                seen.borrow_mut().push(count);
                Timed {
                    ns: ns * count,
                    count,
                }
            };
            Arm::new("ours", work).cycling(4)
        };
        let mut arms = [recorded(20_000, &seen[0]), recorded(9_000, &seen[1])];
        let plan = Plan { passes: 8, seed: 1 };
        let figures = measure(&mut arms, plan, &Interrupt::manual());
        assert!(figures.expect("nothing fails").is_some());
        for seen in &seen {
            let seen = seen.borrow();
            let (warm_up, slice) = (seen[seen.len() - 2], seen[seen.len() - 1]);
            assert_eq!((warm_up, slice), (4, 8), "a whole cycle before each slice");
        }
    }

    #[test]
    fn a_row_that_was_hardly_begun_is_dropped() {
        let interrupt = Interrupt::manual();
        interrupt.request();
        let plan = Plan {
            passes: 10,
            seed: 1,
        };
        let figures = measure(&mut [arm("a", 1)], plan, &interrupt);
        assert!(figures.expect("nothing fails").is_none());
    }
}
