//! What `loopdd` is on the core and on the host's kernel alike.

use crate::stats::median;
use vellum_results::bench::{Block, Operation};

/// What one iteration took, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Iteration {
    /// By the clock of `dd`: without the truncation.
    pub dd: f64,
    /// From its start to its end.
    pub elapsed: f64,
}

/// Each iteration, the median over the passes.
pub fn middle(passes: &[Vec<Iteration>]) -> Vec<Iteration> {
    let count = passes.iter().map(Vec::len).min().unwrap_or(0);
    let of = |number: usize, of: fn(&Iteration) -> f64| {
        let values: Vec<f64> = passes.iter().map(|pass| of(&pass[number])).collect();
        median(&values).unwrap_or(0.0)
    };
    (0..count)
        .map(|number| Iteration {
            dd: of(number, |one| one.dd),
            elapsed: of(number, |one| one.elapsed),
        })
        .collect()
}

/// The tables of mmtests, of the iterations by arm.
pub fn blocks_of(arms: &[Vec<Iteration>], mebibytes: u64) -> Vec<Block> {
    let bytes = (mebibytes << 20) as f64;
    let samples = |of: &dyn Fn(&Iteration) -> f64| -> Vec<Vec<f64>> {
        let arms = arms.iter();
        arms.map(|arm| arm.iter().map(of).collect()).collect()
    };
    let block = |title: &str, operation: &str, higher, samples| Block {
        title: title.to_owned(),
        value: None,
        higher_is_better: higher,
        operations: vec![Operation {
            name: operation.to_owned(),
            samples,
        }],
    };
    vec![
        // What dd calls a MB is a million bytes.
        block(
            "loopdd Throughput, MB/s",
            "",
            true,
            samples(&|one| bytes / 1e6 / one.dd),
        ),
        block(
            "loopdd dd time, seconds",
            "ddtime",
            false,
            samples(&|one| one.dd),
        ),
        block(
            "loopdd elapsed time, seconds",
            "elapsed",
            false,
            samples(&|one| one.elapsed),
        ),
    ]
}
