//! What a comparison says of designs whose true difference is known.

use crate::synthetic::{Bench, Disturbance, FlatLoad, Noise, op};
use vellum_lab::compare::Verdict;
use vellum_lab::stats::{Bootstrap, Samples};

const QUIET: Disturbance = Disturbance {
    jitter: 0.02,
    tail: 0.0,
    luck: 0.0005,
    drift: 0.0,
};

/// Like a shared virtual machine: jitter, and slices that take many times as long.
const HEAVY_TAILED: Disturbance = Disturbance {
    jitter: 0.02,
    tail: 0.01,
    luck: 0.0005,
    drift: 0.0,
};

fn assert_close(found: f64, truth: f64, tolerance: f64, seed: u64) {
    assert!(
        (found / truth - 1.0).abs() < tolerance,
        "seed {seed}: found {found}, truth {truth}"
    );
}

#[test]
fn a_slow_down_in_8_percent_of_the_slices_is_found() {
    let load = FlatLoad::with_affected_slices(250, None);
    let truth = load.truth(1.25);
    assert!((truth - 1.02).abs() < 1e-12);
    for seed in 0..20 {
        let found = Bench::new(seed, QUIET).analyse(&load, "1.0", "1.25", 12);
        assert_close(found.ratio.value, truth, 0.003, seed);
        assert_eq!(
            found.judged.verdict,
            Verdict::More,
            "seed {seed}: {found:?}"
        );
        let better = Bench::new(seed, QUIET).analyse(&load, "1.25", "1.0", 12);
        assert_close(better.ratio.value, 1.0 / truth, 0.003, seed);
        assert_eq!(
            better.judged.verdict,
            Verdict::Less,
            "seed {seed}: {better:?}"
        );
    }
}

#[test]
fn the_slow_down_is_found_under_heavy_tailed_noise() {
    let load = FlatLoad::with_affected_slices(250, None);
    let truth = load.truth(1.25);
    for seed in 0..20 {
        let found = Bench::new(seed, HEAVY_TAILED).analyse(&load, "1.0", "1.25", 12);
        assert_close(found.ratio.value, truth, 0.005, seed);
        assert_eq!(
            found.judged.verdict,
            Verdict::More,
            "seed {seed}: {found:?}"
        );
    }
}

#[test]
fn rare_heavy_slices_count_with_their_weight() {
    // One operation of 10 ms after every 25 ms: 4 % of the slices, 29 % of the
    // time, and the only thing that B is slow at. The median of the slices' own
    // ratios would say that nothing differs.
    let mut ops = Vec::new();
    for slice in 0..250 {
        ops.extend(std::iter::repeat_n(op(3125, false), 320));
        if slice % 25 == 1 {
            ops.push(op(10_000_000, true));
        }
    }
    let classes = vec![vellum_lab::replay::Class::Exit; ops.len()];
    let load = FlatLoad::new(ops, classes);
    let truth = load.truth(1.25);
    assert!(truth > 1.07, "{truth}");
    for seed in 0..20 {
        let found = Bench::new(seed, HEAVY_TAILED).analyse(&load, "1.0", "1.25", 12);
        assert_close(found.ratio.value, truth, 0.01, seed);
        assert_eq!(
            found.judged.verdict,
            Verdict::More,
            "seed {seed}: {found:?}"
        );
    }
}

#[test]
fn heavy_slices_elsewhere_do_not_hide_the_slow_down() {
    let load = FlatLoad::with_affected_slices(250, Some(10));
    let truth = load.truth(1.25);
    for seed in 0..20 {
        let found = Bench::new(seed, HEAVY_TAILED).analyse(&load, "1.0", "1.25", 12);
        assert_close(found.ratio.value, truth, 0.01, seed);
    }
}

#[test]
fn a_design_against_itself_proves_no_difference() {
    const SEEDS: u64 = 200;
    for disturbance in [
        QUIET,
        HEAVY_TAILED,
        Disturbance {
            luck: 0.01,
            ..QUIET
        },
    ] {
        let load = FlatLoad::with_affected_slices(20, Some(5));
        let unproven = (0..SEEDS)
            .filter(|&seed| {
                let found = Bench::new(seed, disturbance).analyse(&load, "1.0", "1.0", 6);
                matches!(found.judged.verdict, Verdict::NotProven(_))
            })
            .count() as u64;
        assert!(
            unproven * 100 >= SEEDS * 95,
            "{unproven} of {SEEDS} seeds proved no difference"
        );
    }
}

#[test]
fn a_drift_common_to_both_arms_cancels() {
    let load = FlatLoad::with_affected_slices(250, None);
    let truth = load.truth(1.25);
    // The machine's speed swings by 40 % either way; nothing else disturbs.
    let drifting = Disturbance {
        drift: 0.4,
        ..Disturbance::default()
    };
    for seed in 0..10 {
        let found = Bench::new(seed, drifting).analyse(&load, "1.0", "1.25", 12);
        assert_close(found.ratio.value, truth, 0.002, seed);
        assert_close(found.control.value, 1.0, 0.002, seed);
        assert_eq!(
            found.judged.verdict,
            Verdict::More,
            "seed {seed}: {found:?}"
        );
    }
}

/// Times of `slices` slices in `passes` passes for two arms whose true ratio is
/// `ratio`, with a disturbance of each arm in each pass beside that of each slice.
fn two_arms(seed: u64, slices: usize, passes: usize, ratio: f64, tail: f64) -> [Samples; 2] {
    let mut noise = Noise::new(seed.wrapping_mul(7_919) + 17);
    [1.0, ratio].map(|factor| {
        let times: Vec<Vec<u64>> = (0..passes)
            .map(|_| {
                let luck = (0.01 * noise.normal()).exp();
                (0..slices)
                    .map(|_| {
                        let jitter = (0.03 * noise.normal()).exp();
                        let tail = if tail > 0.0 {
                            tail * noise.half_cauchy()
                        } else {
                            0.0
                        };
                        (1e6 * factor * luck * (jitter + tail)) as u64
                    })
                    .collect()
            })
            .collect();
        let rows: Vec<&[u64]> = times.iter().map(Vec::as_slice).collect();
        Samples::from_passes(&rows)
    })
}

#[test]
fn intervals_cover_the_truth_at_about_their_nominal_rate() {
    const SEEDS: u64 = 400;
    for (passes, tail) in [(6, 0.0), (12, 0.0), (24, 0.0), (24, 0.01)] {
        let covered = (0..SEEDS)
            .filter(|&seed| {
                let arms = two_arms(seed, 20, passes, 1.02, tail);
                let drawn =
                    Bootstrap::new(&[&arms[0], &arms[1]], 400, 0.95, seed).expect("several passes");
                drawn.ratio(1, 0).contains(1.02)
            })
            .count() as f64;
        let rate = covered / SEEDS as f64;
        assert!(
            (0.925..=0.985).contains(&rate),
            "{passes} passes, tail {tail}: a 95 % interval covered the truth in {rate} of the seeds"
        );
    }
}
