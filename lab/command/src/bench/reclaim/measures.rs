//! What too little memory cost, in one table.

use crate::bench::core::run::slice_times;
use crate::bench::core::script::{NOTE, SETUP};
use crate::bench::findings::{Run, Share};
use crate::compare::Measurement;
use crate::stats::median;

/// Time of the CPU and of the device in a pass, and what reclaim did, by arm.
pub fn of(run: &Run, measured: &Measurement) -> Vec<Share> {
    let arms = measured.designs.len();
    let count = |name: &str| -> Vec<f64> {
        let row = run.counters.iter().find(|row| row.name == name);
        let value = |arm: usize| row.and_then(|row| row.values[arm]).unwrap_or(0) as f64;
        (0..arms).map(value).collect()
    };
    let cpu = cpu_ms(measured);
    let device = sum(
        &count("device: ns of reads"),
        &count("device: ns of writes"),
    );
    let device: Vec<f64> = device.iter().map(|ns| ns / 1e6).collect();
    let reclaimed = count("reclaim: pages reclaimed");
    let row = |name: &str, values| Share {
        name: name.to_owned(),
        values,
    };
    vec![
        row("CPU time, ms", cpu.clone()),
        row("time of the device, ms", device.clone()),
        row("elapsed, ms", sum(&cpu, &device)),
        row("pages reclaimed", reclaimed.clone()),
        row(
            "pages scanned for each",
            by(&count("reclaim: pages scanned"), &reclaimed),
        ),
        row(
            "lookups for each",
            by(&count("pages looked up"), &reclaimed),
        ),
        row("refaults", count("reclaim: refaults")),
        row("pages read", count("device: pages read")),
        row("pages written", count("device: pages written")),
    ]
}

/// CPU time of all that is timed, by arm: medians over the passes.
fn cpu_ms(measured: &Measurement) -> Vec<f64> {
    let phases: Vec<u16> = measured
        .phases
        .iter()
        .copied()
        .filter(|&phase| phase != SETUP.0 && phase != NOTE)
        .collect();
    let of_arm = |passes: Vec<Vec<u64>>| {
        let sums = passes
            .iter()
            .map(|slices| slices.iter().sum::<u64>() as f64 / 1e6);
        median(&sums.collect::<Vec<f64>>()).unwrap_or(0.0)
    };
    slice_times(measured, &phases)
        .into_iter()
        .map(of_arm)
        .collect()
}

fn sum(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter()
        .zip(other)
        .map(|(one, other)| one + other)
        .collect()
}

/// Each of `counts` by what belongs to it; 0 where there is nothing to divide by.
fn by(counts: &[f64], of: &[f64]) -> Vec<f64> {
    let each = counts.iter().zip(of);
    each.map(|(count, of)| count / of.max(1.0)).collect()
}
