//! What the workloads on files hand to `vellum bench`.

use super::interleave::Interleaved;
use super::lat_mmap::{self, Sampled};
use super::{HostError, loopdd};
use crate::bench::findings::figure_of;
use crate::bench::lat_mmap::{block_of, sizes};
use crate::bench::loopdd::{Iteration, blocks_of};
use crate::bench::{Figure, Findings, Input, Request, Run};
use crate::stats::median;
use vellum_terminal::progress::Interrupt;

/// `loopdd`.
pub fn of_loopdd(
    request: &Request,
    interrupt: &Interrupt,
    findings: &mut Findings,
) -> Result<(), HostError> {
    let options = loopdd::Options {
        variants: request
            .variants
            .iter()
            .map(|variant| variant.name)
            .collect(),
        iterations: request.sizes.get("iterations"),
        mebibytes: request.sizes.get("mebibytes"),
        passes: request.passes,
        seed: request.method.seed,
        style: request.style,
    };
    let outcome = loopdd::run(&options, interrupt)?;
    for (variant, runs) in request.variants.iter().zip(&outcome.runs) {
        let figure = |name: &str, clock, seconds: fn(&Iteration) -> f64| {
            let pass = |pass: &Vec<Iteration>| -> Vec<u64> {
                pass.iter().map(|one| (seconds(one) * 1e9) as u64).collect()
            };
            let input = Input {
                name,
                per: "MiB",
                units: (options.iterations * outcome.mebibytes) as f64,
                clock,
                times: by_arm(runs, pass),
                spread_units: None,
            };
            figure_of(&input, &request.method)
        };
        let arms: Vec<Vec<Iteration>> = runs.arms.iter().map(|arm| middle(arm)).collect();
        findings.runs.push(Run {
            title: format!("{}: {}", variant.name, variant.summary),
            facts: vec![format!(
                "{} times dd if=/dev/zero of=1 bs=1M count={} on {}; the file is truncated by \
                 opening it again.",
                options.iterations, outcome.mebibytes, outcome.place
            )],
            passes: runs.passes(),
            figures: vec![
                figure("dd", "the clock of dd", |one| one.dd),
                figure("elapsed", "monotonic clock", |one| one.elapsed),
            ],
            blocks: blocks_of(&arms, outcome.mebibytes),
            ..Run::default()
        });
        findings.interrupted |= runs.interrupted;
    }
    findings.interrupted |= outcome.runs.len() < request.variants.len();
    findings.notes.push(
        "The rows of mmtests have one sample for each iteration, the median over the passes. \
         Elapsed time is that of the process, with its start and its end. The first iteration \
         of a pass writes a new file."
            .to_owned(),
    );
    Ok(())
}

fn by_arm<T>(runs: &Interleaved<T>, parts: impl Fn(&T) -> Vec<u64>) -> Vec<Vec<Vec<u64>>> {
    let arms = runs.arms.iter();
    arms.map(|arm| arm.iter().map(&parts).collect()).collect()
}

/// Each iteration, the median over the passes.
fn middle(passes: &[Vec<Iteration>]) -> Vec<Iteration> {
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

/// `lat_mmap`.
pub fn of_lat_mmap(
    request: &Request,
    interrupt: &Interrupt,
    findings: &mut Findings,
) -> Result<(), HostError> {
    let options = lat_mmap::Options {
        sizes: sizes(request.sizes.get("mebibytes")),
        samples: request.sizes.get("samples"),
        passes: request.passes,
        seed: request.method.seed,
        style: request.style,
    };
    let outcome = lat_mmap::run(&options, interrupt)?;
    let trap = &outcome.trap;
    // A fault that is answered at once is the trap; without one it stays in the time.
    let fault_ns = trap.fault_ns.unwrap_or(0.0);
    let runs = &outcome.runs;
    let of = |number: usize| {
        let net = |pass: &Vec<Sampled>| -> Vec<u64> {
            let sampled = &pass[number];
            let faults = sampled.faults as f64 / options.samples as f64;
            let entries = faults * fault_ns + 2.0 * trap.syscall_ns;
            let iterations = sampled.ns.iter();
            iterations
                .map(|ns| (*ns as f64 - entries).max(1.0) as u64)
                .collect()
        };
        let input = Input {
            name: &options.sizes[number].label(),
            per: "iteration",
            units: options.samples as f64,
            clock: "thread CPU time",
            times: by_arm(runs, net),
            spread_units: Some(1.0),
        };
        figure_of(&input, &request.method)
    };
    let figures: Vec<Figure> = (0..options.sizes.len()).map(of).collect();
    let arms = 0..runs.arms.len();
    let middle = |figure: &Figure, arm: usize| {
        let arm = &figure.arms[arm];
        arm.spread.map_or(arm.value, |spread| spread.median) / 1e3
    };
    let arms = arms.map(|arm| figures.iter().map(|figure| middle(figure, arm)).collect());
    let arms: Vec<Vec<f64>> = arms.collect();
    findings.runs.push(Run {
        title: "twenty sizes".to_owned(),
        facts: vec![
            format!(
                "{} times each after one that is not timed: map the file shared, store a byte \
                 every 16 KiB in its first tenth, unmap the whole. The file is on {}.",
                options.samples, outcome.place
            ),
            entry(trap.fault_ns, trap.syscall_ns),
        ],
        passes: runs.passes(),
        blocks: vec![block_of(&options.sizes, &arms)],
        figures,
        ..Run::default()
    });
    findings.interrupted |= runs.interrupted;
    Ok(())
}

/// What was taken off.
fn entry(fault_ns: Option<f64>, syscall_ns: f64) -> String {
    match fault_ns {
        Some(fault) => format!(
            "Taken off: {fault:.0} ns for entering the kernel and returning at each page fault \
             (as a fault takes that is answered at once), {syscall_ns:.0} ns at each of the two \
             system calls (as getppid takes)."
        ),
        None => format!(
            "Taken off: {syscall_ns:.0} ns for entering the kernel and returning at each of the \
             two system calls (as getppid takes). What it takes at a fault cannot be measured on \
             this machine, and is in the times."
        ),
    }
}
