//! The rows of a table.

use super::{Edition, Options, gain, saving};
use crate::Series;
use crate::summary;

/// A statistic of an operation.
pub(super) struct Row<'s> {
    /// What the statistic is called.
    pub statistic: String,
    /// The operation.
    pub operation: &'s str,
    /// By kernel.
    pub cells: Vec<Cell>,
}

/// A value under a kernel.
pub(super) struct Cell {
    pub value: f64,
    /// Against the first kernel, in percent.
    pub change: f64,
    pub is_significant: bool,
}

/// What computes a statistic of samples. NaN is what is not defined.
type Function = Box<dyn Fn(&[f64]) -> f64>;

/// How a statistic is called, computed and compared.
struct Statistic {
    name: String,
    of: Function,
    higher_is_better: bool,
    /// Whether its changes are marked as significant.
    is_marked: bool,
}

/// All rows: the statistics one after the other, each for all operations.
pub(super) fn rows<'s>(series: &'s [Series], options: &Options) -> Vec<Row<'s>> {
    let mut rows = Vec::new();
    for statistic in statistics(options) {
        for operation in &series[0].operations {
            let samples = series.iter().map(|series| {
                let samples = series.samples(&operation.name).unwrap_or(&[]);
                sorted(samples, options)
            });
            let samples: Vec<Vec<f64>> = samples.collect();
            rows.push(Row {
                statistic: statistic.name.clone(),
                operation: &operation.name,
                cells: cells(&statistic, &samples, options),
            });
        }
    }
    rows
}

/// The statistics of 2025 are computed of sorted samples, best first, which decides
/// the last digits of sums; those of 2014 in the order in which samples were taken.
fn sorted(samples: &[f64], options: &Options) -> Vec<f64> {
    match options.edition {
        Edition::Of2014 => samples.to_vec(),
        Edition::Of2025 => match samples {
            [] => Vec::new(),
            some => summary::best(some, 100, options.higher_is_better),
        },
    }
}

fn cells(statistic: &Statistic, samples: &[Vec<f64>], options: &Options) -> Vec<Cell> {
    let change = match statistic.higher_is_better {
        true => gain,
        false => saving,
    };
    let base = (statistic.of)(&samples[0]);
    let left_out = |value: f64| match options.edition {
        Edition::Of2014 => false,
        // -1 is a mark of its own in mmtests.
        Edition::Of2025 => value.is_nan() || options.compat && value == -1.0,
    };
    let cell = |samples: &Vec<f64>| {
        let value = (statistic.of)(samples);
        // With a base of -1 mmtests leaves all out; NaN it takes.
        if left_out(value) || !base.is_nan() && left_out(base) {
            return Cell {
                value: 0.0,
                change: 0.0,
                is_significant: false,
            };
        }
        Cell {
            value,
            change: match (options.edition, statistic.higher_is_better) {
                // What is not defined counts as 0.
                (Edition::Of2025, true) if base.is_nan() => 100.0,
                (_, false) if base.is_nan() && !options.compat => change(value, 0.0),
                _ => change(value, base),
            },
            is_significant: false,
        }
    };
    let mut cells: Vec<Cell> = samples.iter().map(cell).collect();
    if statistic.is_marked {
        for (cell, samples_of) in cells.iter_mut().zip(samples).skip(1) {
            cell.is_significant = differ(&samples[0], samples_of, options);
        }
    }
    cells
}

fn statistics(options: &Options) -> Vec<Statistic> {
    let higher = options.higher_is_better;
    if let Some(name) = &options.value {
        return vec![Statistic {
            name: name.clone(),
            of: defined(summary::mean),
            higher_is_better: higher,
            is_marked: false,
        }];
    }
    match options.edition {
        Edition::Of2014 => of_2014(higher, options.compat),
        Edition::Of2025 => of_2025(higher, &options.best),
    }
}

fn defined(of: fn(&[f64]) -> Option<f64>) -> Function {
    Box::new(move |samples| of(samples).unwrap_or(f64::NAN))
}

fn of_2014(higher_is_better: bool, compat: bool) -> Vec<Statistic> {
    let trimmed = match compat {
        true => summary::trimmed_mean_of_2014,
        false => summary::trimmed_mean,
    };
    let statistic = |name: &str, of| Statistic {
        name: name.to_owned(),
        of: defined(of),
        higher_is_better,
        is_marked: false,
    };
    vec![
        statistic("Min", summary::least),
        statistic("Mean", summary::mean),
        statistic("TrimMean", trimmed),
        statistic("Stddev", summary::population_deviation),
        statistic("Max", summary::most),
    ]
}

fn of_2025(higher: bool, best: &[u8]) -> Vec<Statistic> {
    let prefix = if higher { "H" } else { "A" };
    let of_deviation = |name: &str| match higher {
        true => format!("H{name}"),
        false => name.to_owned(),
    };
    let statistic = |name: &str, of, higher_is_better| Statistic {
        name: name.to_owned(),
        of,
        higher_is_better,
        is_marked: name.ends_with("mean"),
    };
    let mut all = vec![
        statistic("Min", defined(summary::least), higher),
        statistic(&format!("{prefix}mean"), defined(mean(higher)), higher),
        statistic(&of_deviation("Stddev"), defined(deviation(higher)), false),
        statistic(
            &of_deviation("CoeffVar"),
            Box::new(move |samples| variation(samples, higher)),
            false,
        ),
        statistic("Max", defined(summary::most), higher),
    ];
    all.extend(best.iter().map(|&percent| {
        let of = move |samples: &[f64]| match samples {
            [] => f64::NAN,
            some => mean(higher)(&summary::best(some, percent, higher)).unwrap_or(f64::NAN),
        };
        statistic(&format!("B{prefix}mean-{percent}"), Box::new(of), higher)
    }));
    all
}

/// Harmonic for what is better if it is higher, which is taken to be a rate.
fn mean(higher: bool) -> fn(&[f64]) -> Option<f64> {
    match higher {
        true => summary::harmonic_mean,
        false => summary::mean,
    }
}

fn deviation(higher: bool) -> fn(&[f64]) -> Option<f64> {
    match higher {
        true => summary::harmonic_deviation,
        false => summary::deviation,
    }
}

/// The deviation in percent of the mean; 0 without either.
fn variation(samples: &[f64], higher: bool) -> f64 {
    match (deviation(higher)(samples), mean(higher)(samples)) {
        (Some(deviation), Some(mean)) if mean != 0.0 => deviation * 100.0 / mean,
        _ => 0.0,
    }
}

/// Standard deviations on either side of a mean that are taken for its interval:
/// the quantile of the normal distribution for 95 %.
const INTERVAL: f64 = 1.959_963_984_540_054;

/// Whether the means are farther apart than what both spread.
fn differ(base: &[f64], new: &[f64], options: &Options) -> bool {
    let higher = options.higher_is_better;
    let of = |samples| Some((mean(higher)(samples)?, deviation(higher)(samples)?));
    let (Some((base, base_deviation)), Some((new, new_deviation))) = (of(base), of(new)) else {
        return false;
    };
    let apart = (new - base).abs();
    match INTERVAL * (base_deviation + new_deviation) {
        0.0 if options.compat => apart > 1.0,
        spread => apart > spread,
    }
}
