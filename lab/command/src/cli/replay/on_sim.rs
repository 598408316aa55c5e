//! `vellum replay --on sim`.

use super::super::Failure;
use super::super::{refuse, simulated};
use super::{ReplayArgs, verified};
use crate::simulate::Purpose;

const NOT_SIMULATED: &str = "cannot be had on a simulated machine: leave it out with --on sim";

/// Replays on a simulated machine, or verifies there.
pub fn run(args: ReplayArgs) -> Result<(), Failure> {
    let others = [
        (args.passes > 1, "--passes"),
        (args.scratch.is_some(), "--scratch"),
        (args.save.is_some(), "--save"),
    ];
    refuse(&others, NOT_SIMULATED)?;
    if args.verify {
        return verified::run(args);
    }
    let others = [
        (args.device.is_some(), "--device"),
        (args.lowmem.is_some(), "--lowmem"),
        (args.compressed.is_some(), "--compressed"),
        (args.group_limit.is_some(), "--group-limit"),
        (args.idle.is_some(), "--idle"),
        (args.tmpfs.is_some(), "--tmpfs"),
    ];
    refuse(&others, NOT_SIMULATED)?;
    let (machine, seeds, jobs) = args.sim.values();
    simulated::run(simulated::Request {
        trace: args.trace,
        designs: vec![args.design],
        machine,
        cpus: vec![usize::from(args.cpus)],
        purpose: Purpose::Alone,
        copies: args.copies,
        ram: args.ram,
        seeds,
        seed: args.seed,
        jobs,
        profile: args.profile,
        output: args.output,
        svg: None,
        profile_out: args.profile_out,
        quiet: args.quiet,
    })
}
