//! `vellum host-forkfault`: the fork-and-fault program, in the process of its
//! own that `vellum bench forkfault --on linux` starts.

use std::io;

use clap::Args;

use super::{Failure, OrFail};
use crate::host::forkfault::program;
use crate::host::forkfault::{Kind, Placement, Program};

const EXAMPLES: &str = "\
A line for each child: nanoseconds of fork, of all touches together, and of exit. `vellum bench
forkfault --on linux` runs this and prints statistics; there is little reason to run it by hand.

Examples:
  vellum host-forkfault --kind write --placement cross";

/// Run the fork-and-fault program in this process (part of `vellum bench forkfault`)
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, hide = true)]
pub struct HostForkfaultArgs {
    /// What children do
    #[arg(long, value_enum, default_value_t = Kind::Read)]
    kind: Kind,
    /// On which CPUs
    #[arg(long, value_enum, default_value_t = Placement::Same)]
    placement: Placement,
    /// Children, one after the other
    #[arg(long, value_name = "N", default_value_t = program::LOOPS,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    loops: u32,
    /// Touches of each child, a whole page table apart
    #[arg(long, value_name = "N", default_value_t = program::FAULTS,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    faults: u32,
}

/// Runs the program.
pub fn run(args: HostForkfaultArgs) -> Result<(), Failure> {
    let program = Program {
        kind: args.kind,
        placement: args.placement,
        loops: args.loops,
        faults: args.faults,
    };
    program::run(&program, &mut io::stdout().lock()).doing(|| "the fork-and-fault program")
}
