//! `vellum compare --on sim`.

use super::super::Failure;
use super::super::host::Side;
use super::super::{refuse, simulated};
use super::{CompareArgs, PASSES, SLICE_US};
use crate::simulate::Purpose;

/// Compares on a simulated machine.
pub fn run(args: CompareArgs) -> Result<(), Failure> {
    let designs = [&args.a, &args.b];
    let others = [
        (args.scratch.is_some(), "--scratch"),
        (args.passes != PASSES, "--passes"),
        (args.idle.is_some(), "--idle"),
        (args.tmpfs.is_some(), "--tmpfs"),
        (args.device.is_some(), "--device"),
        (!args.against.is_empty(), "--against"),
        (args.slice != SLICE_US, "--slice"),
        (args.no_atomics, "--no-atomics"),
        (args.format.is_some(), "--format"),
        (
            designs.iter().any(|side| Side::of(side) != Side::Design),
            "`linux`",
        ),
    ];
    refuse(
        &others,
        "cannot be had on a simulated machine: leave it out with --on sim",
    )?;
    let trace = args.trace()?;
    let (machine, seeds, jobs) = args.sim.values();
    simulated::run(simulated::Request {
        trace,
        designs: vec![args.a, args.b],
        machine,
        cpus: vec![args.cpus],
        purpose: Purpose::Compare {
            resamples: args.resamples as usize,
        },
        copies: args.copies,
        ram: args.ram,
        seeds,
        seed: args.seed,
        jobs,
        profile: args.profiling.wanted(),
        output: args.output,
        svg: None,
        profile_out: args.profiling.output().cloned(),
        quiet: args.quiet,
    })
}
