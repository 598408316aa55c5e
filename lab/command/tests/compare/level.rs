//! How often a comparison is wrong, counted over thousands of simulated ones.
//!
//! A world says what disturbs the machine. Times are drawn from it as a measurement
//! would meet them, slice by slice in the orders of `compare::order`, and go through
//! the same analysis. Every figure follows from a seed.

use crate::synthetic::Noise;
use vellum_lab::compare::order::orders;
use vellum_lab::compare::verdict::judge;
use vellum_lab::compare::{Contrast, Estimate, Method, Verdict};
use vellum_lab::stats::{Interval, Samples};

/// What disturbs the times, as shares of them. Nothing, by default.
#[derive(Clone, Copy, Debug, Default)]
struct World {
    /// Standard deviation of each slice's time.
    jitter: f64,
    /// Standard deviation of a factor on an arm in one pass.
    luck: f64,
    /// Standard deviation of a factor on each arena; arms move on by one with
    /// every pass.
    arena: f64,
    /// What the first arm of a slice takes more.
    first: f64,
    /// Amplitude of a slow swing of the machine's speed, whoever runs.
    drift: f64,
    /// Standard deviation of a disturbance that decays over some tens of slices.
    wander: f64,
    /// Probability that a burst of 5 slices begins, in which times are doubled or
    /// not by the toss of a coin.
    bursts: f64,
    /// What stays with arms for the whole run.
    stray: Stray,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stray {
    #[default]
    None,
    /// Of the first arm.
    First(f64),
    /// Of the control.
    Control(f64),
    /// Of every arm, drawn with this standard deviation.
    Every(f64),
}

const QUIET: World = World {
    jitter: 0.02,
    luck: 0.0,
    arena: 0.0,
    first: 0.0,
    drift: 0.0,
    wander: 0.0,
    bursts: 0.0,
    stray: Stray::None,
};

const LUCKY: World = World {
    luck: 0.01,
    ..QUIET
};

/// Everything at once, as on a shared virtual machine.
const SHARED: World = World {
    luck: 0.003,
    arena: 0.005,
    first: 0.02,
    drift: 0.3,
    wander: 0.05,
    bursts: 0.02,
    ..QUIET
};

const SLICES: usize = 10;

const METHOD: Method = Method {
    confidence: 0.95,
    resamples: 300,
    seed: 1,
};

impl World {
    /// The contrast of designs that take `designs` times what they should, the
    /// first of which is the base.
    fn compare(&self, seed: u64, designs: &[f64], passes: usize) -> Contrast {
        let mut noise = Noise::new(seed.wrapping_mul(6_364_136_223) + 11);
        let arms = designs.len() + 1;
        let stray: Vec<f64> = (0..arms)
            .map(|arm| match self.stray {
                Stray::First(share) if arm == 0 => 1.0 + share,
                Stray::Control(share) if arm == arms - 1 => 1.0 + share,
                Stray::Every(deviation) => (deviation * noise.normal()).exp(),
                _ => 1.0,
            })
            .collect();
        let arenas: Vec<f64> = (0..arms)
            .map(|_| (self.arena * noise.normal()).exp())
            .collect();
        let phase = noise.uniform() * std::f64::consts::TAU;
        let (mut executed, mut wander, mut burst) = (0.0, 0.0, 0);
        let mut times = vec![vec![Vec::with_capacity(SLICES); passes]; arms];
        for pass in 0..passes {
            let luck: Vec<f64> = (0..arms)
                .map(|_| (self.luck * noise.normal()).exp())
                .collect();
            for order in orders(SLICES, arms, pass, seed) {
                burst = match burst {
                    0 if noise.uniform() < self.bursts => 5,
                    left => left.max(1) - 1,
                };
                for (place, &arm) in order.iter().enumerate() {
                    executed += 1.0;
                    wander = 0.98 * wander + 0.2 * self.wander * noise.normal();
                    let mut time = 1e6 * designs.get(arm).unwrap_or(&designs[0]);
                    time *= stray[arm] * luck[arm] * arenas[(arm + pass) % arms];
                    time *= 1.0 + self.drift * (executed / 40.0 + phase).sin();
                    time *= (wander + self.jitter * noise.normal()).exp();
                    if place == 0 {
                        time *= 1.0 + self.first;
                    }
                    if burst > 0 && noise.uniform() < 0.5 {
                        time *= 2.0;
                    }
                    times[arm][pass].push(time as u64);
                }
            }
        }
        let samples: Vec<Samples> = times
            .iter()
            .map(|passes| {
                let rows: Vec<&[u64]> = passes.iter().map(Vec::as_slice).collect();
                Samples::from_passes(&rows)
            })
            .collect();
        Contrast::new(&samples, &METHOD)
    }

    /// The share of `seeds` comparisons of `designs` that do not differ in which
    /// any is told to.
    fn false_positives(&self, seeds: u64, designs: usize, passes: usize) -> f64 {
        let wrong = (0..seeds).filter(|&seed| {
            let contrast = self.compare(seed, &vec![1.0; designs], passes);
            contrast.judged.iter().any(|judged| is_told(judged.verdict))
        });
        wrong.count() as f64 / seeds as f64
    }
}

fn is_told(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Less | Verdict::More)
}

const WORLDS: [(&str, World); 3] = [("quiet", QUIET), ("lucky", LUCKY), ("shared", SHARED)];

/// The chance error of a ratio of 6 passes in the world [`LUCKY`], as a standard
/// deviation: what strays are measured in.
const CHANCE: f64 = 0.005 * std::f64::consts::SQRT_2;

#[test]
fn designs_that_do_not_differ_are_told_to_in_at_most_5_percent() {
    for (name, world) in WORLDS {
        for passes in [5, 6, 7, 12] {
            let wrong = world.false_positives(250, 2, passes);
            assert!(wrong <= 0.05, "{name}, {passes} passes: {wrong}");
        }
    }
}

#[test]
fn what_chance_can_come_to_is_exceeded_in_at_most_5_percent() {
    for (name, world) in WORLDS {
        let beyond = (0..400).filter(|&seed| {
            let found = world.compare(seed, &[1.0, 1.0], 6);
            let resolution = found.judged[0].resolution.expect("6 passes");
            (found.ratios[1].value - 1.0).abs() > resolution.chance
        });
        let beyond = beyond.count();
        assert!(beyond <= 20, "{name}: {beyond} of 400");
    }
}

#[test]
fn the_error_of_3_to_7_designs_together_is_held() {
    for (name, world) in WORLDS {
        for designs in 3..=7 {
            let wrong = world.false_positives(100, designs, 6);
            assert!(wrong <= 0.05, "{name}, {designs} designs: {wrong}");
        }
    }
}

/// Those that differ make the others' resolution finer, and not too fine.
#[test]
fn designs_beside_others_that_differ_are_not_told_to() {
    let times = [1.0, 1.0, 1.5, 0.5, 1.0, 2.0];
    let mut wrong = 0;
    for seed in 0..300 {
        let found = LUCKY.compare(seed, &times, 6);
        for (judged, time) in found.judged.iter().zip(&times[1..]) {
            assert!(is_told(judged.verdict) || *time == 1.0, "seed {seed}");
            wrong += u32::from(is_told(judged.verdict) && *time == 1.0);
        }
    }
    assert!(wrong <= 15, "{wrong} of 300");
}

#[test]
fn a_stray_of_the_first_design_or_of_the_control_proves_nothing_of_the_others() {
    for times_chance in [1.0, 3.0, 30.0] {
        for stray in [
            Stray::First(times_chance * CHANCE),
            Stray::Control(times_chance * CHANCE),
        ] {
            let world = World { stray, ..LUCKY };
            let wrong = world.false_positives(200, 2, 6);
            assert!(wrong <= 0.05, "{stray:?}: {wrong}");
        }
    }
}

/// Where every arm strays, the control is one look at how far: the level holds while
/// strays are at most three times chance, and is not much worse beyond.
#[test]
fn strays_of_every_arm_are_held_as_far_as_documented() {
    for (times_chance, limit) in [(1.0, 0.05), (3.0, 0.05), (10.0, 0.17), (30.0, 0.17)] {
        // A ratio is of two arms that stray.
        let each = times_chance * CHANCE / std::f64::consts::SQRT_2;
        let world = World {
            stray: Stray::Every(each),
            ..LUCKY
        };
        for designs in [2, 4] {
            let wrong = world.false_positives(300, designs, 6);
            assert!(
                wrong <= limit,
                "{times_chance} times chance, {designs} designs: {wrong}"
            );
        }
    }
}

/// Of the resolution that a run has: how fine it is differs from run to run.
#[test]
fn a_difference_of_twice_the_resolution_is_nearly_always_found() {
    for (name, world) in WORLDS {
        for designs in [2, 5] {
            let found = (0..100).filter(|&seed| {
                let mut times = vec![1.0; designs];
                let same = world.compare(seed, &times, 6);
                let resolution = same.judged[0].resolution.expect("6 passes");
                // The same disturbances again.
                times[1] = 1.0 + 2.0 * resolution.total();
                let found = world.compare(seed, &times, 6);
                found.judged[0].verdict == Verdict::More
            });
            let found = found.count();
            assert!(found >= 95, "{name}, {designs} designs: {found} of 100");
        }
    }
}

#[test]
fn a_verdict_is_a_difference_exactly_beyond_the_resolution() {
    let mut noise = Noise::new(5);
    let mut told = 0;
    for round in 0..20_000 {
        let mut estimate = |far: f64| {
            let value = 1.0 + far * noise.normal();
            let (below, above) = (0.01 * noise.half_cauchy(), 0.01 * noise.half_cauchy());
            Estimate {
                value,
                interval: Some(Interval {
                    low: value - below,
                    high: value + above,
                }),
            }
        };
        let ratios: Vec<Estimate> = (0..1 + round % 7).map(|_| estimate(0.3)).collect();
        let controls: Vec<Estimate> = (0..1 + round % 2).map(|_| estimate(0.02)).collect();
        let passes = 5 + round % 20;
        let judged = judge(&ratios, &controls, passes, 0.95);
        for (ratio, judged) in ratios.iter().zip(&judged) {
            let resolution = judged.resolution.expect("passes suffice").total();
            let difference = ratio.value - 1.0;
            let expected = match difference.abs() > resolution {
                false => None,
                true if difference < 0.0 => Some(Verdict::Less),
                true => Some(Verdict::More),
            };
            let said = is_told(judged.verdict).then_some(judged.verdict);
            assert_eq!(said, expected, "round {round}: {ratio:?}, {judged:?}");
            // And what is told has an interval without 1.
            if is_told(judged.verdict) {
                assert!(!ratio.interval.expect("set above").contains(1.0));
                told += 1;
            }
        }
    }
    assert!(told > 10_000, "both sides are met: {told}");
}

#[test]
fn verdict_and_resolution_agree_on_simulated_times_too() {
    for seed in 0..300 {
        let times = [1.0, 1.0, 1.02, 0.97, 1.2];
        let found = SHARED.compare(seed, &times, 6);
        for (ratio, judged) in found.ratios[1..].iter().zip(&found.judged) {
            let resolution = judged.resolution.expect("6 passes").total();
            let is_beyond = (ratio.value - 1.0).abs() > resolution;
            assert_eq!(is_told(judged.verdict), is_beyond, "seed {seed}");
        }
    }
}

/// B is below 1 by less than the control is above.
#[test]
fn a_difference_smaller_than_the_stray_of_the_control_is_not_told() {
    let of = |value, low, high| Estimate {
        value,
        interval: Some(Interval { low, high }),
    };
    let judged = judge(
        &[of(0.997, 0.996, 0.998)],
        &[of(1.004, 1.001, 1.007)],
        6,
        0.95,
    );
    assert!(!is_told(judged[0].verdict));
}
