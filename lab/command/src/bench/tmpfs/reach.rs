//! Bytes a second side by side, and what two CPUs gain.

use super::plan::{AGAIN, BLOCKS, Place, together_name};
use crate::bench::Figure;
use crate::bench::findings::ArmFigure;
use crate::bench::request::Request;
use crate::stats::{Bootstrap, Samples, median};
use vellum_terminal::table::Table;

/// The table of bytes a second of the sides `ours`, tmpfs and copying, which come in this
/// order in each figure.
pub fn rates(figures: &[Figure]) -> String {
    let mut table = Table::new(&[
        "GB/s",
        "ours",
        "tmpfs",
        "memcpy",
        "ours / tmpfs",
        "ours / memcpy",
        "3 x tmpfs or 0.8 of memcpy",
    ]);
    for figure in figures {
        let [ours, tmpfs, copying] = &figure.arms[..3] else {
            continue;
        };
        let rate = |arm: &ArmFigure| format!("{:.2}", (1 << 20) as f64 / arm.value);
        let reached = tmpfs.ratio >= 3.0 || copying.ratio >= 0.8;
        table.row(vec![
            figure.name.clone(),
            rate(ours),
            rate(tmpfs),
            rate(copying),
            with_interval(tmpfs),
            with_interval(copying),
            yes(reached),
        ]);
    }
    table.render(0)
}

/// How much faster the first arm is than this one.
fn with_interval(arm: &ArmFigure) -> String {
    interval(arm.ratio, arm.ratio_low.zip(arm.ratio_high))
}

fn interval(value: f64, bounds: Option<(f64, f64)>) -> String {
    match bounds {
        Some((low, high)) => format!("{value:.2} ({low:.2} .. {high:.2})"),
        None => format!("{value:.2}"),
    }
}

fn yes(reached: bool) -> String {
    if reached { "yes" } else { "no" }.to_owned()
}

/// What two CPUs do in the time in which one does 1, of ours, tmpfs and copying, and
/// ours as a share of copying's. Empty without figures of two CPUs.
pub fn gains(figures: &[Figure], request: &Request) -> String {
    let mut table = Table::new(&[
        "gain of a second CPU",
        "ours",
        "tmpfs",
        "memcpy",
        "ours / memcpy",
        "wanted",
        "",
    ]);
    let find = |name: String| figures.iter().find(|figure| figure.name == name);
    let mut any = false;
    for block in BLOCKS {
        for what in AGAIN {
            for (place, wanted) in [(Place::Files, 0.9), (Place::Halves, 0.8)] {
                let of = |place| find(together_name(what, block, place));
                let (Some(one), Some(two)) = (of(Place::One), of(place)) else {
                    continue;
                };
                let gain = |side: usize| one.arms[side].value / two.arms[side].value;
                let (share, bounds) = share(one, two, request);
                any = true;
                table.row(vec![
                    together_name(what, block, place),
                    format!("{:.2}", gain(0)),
                    format!("{:.2}", gain(1)),
                    format!("{:.2}", gain(2)),
                    interval(share, bounds),
                    format!("{wanted:.1}"),
                    yes(share >= wanted),
                ]);
            }
        }
    }
    if any { table.render(0) } else { String::new() }
}

/// The gain of the first side by that of the third, pass by pass.
fn share(one: &Figure, two: &Figure, request: &Request) -> (f64, Option<(f64, f64)>) {
    let passes = |figure: &Figure, side: usize| figure.arms[side].passes.clone();
    let (ours, theirs) = (
        passes(one, 0).into_iter().zip(passes(two, 0)),
        passes(one, 2).into_iter().zip(passes(two, 2)),
    );
    let shares: Vec<f64> = ours
        .zip(theirs)
        .map(|((one, two), (copy_one, copy_two))| (one / two) / (copy_one / copy_two))
        .collect();
    // The statistics take whole numbers.
    let millionths: Vec<[u64; 1]> = shares.iter().map(|share| [(share * 1e6) as u64]).collect();
    let samples: Vec<&[u64]> = millionths.iter().map(|one| &one[..]).collect();
    let method = &request.method;
    let bootstrap = Bootstrap::new(
        &[&Samples::from_passes(&samples)],
        method.resamples,
        method.confidence,
        method.seed,
    );
    let bounds = bootstrap.ok().map(|bootstrap| {
        let interval = bootstrap.total(0);
        (interval.low / 1e6, interval.high / 1e6)
    });
    (median(&shares).unwrap_or(f64::NAN), bounds)
}
