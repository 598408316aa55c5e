//! Whole simulated machines: `--on sim` of the commands `replay`, `compare` and `bench`.

#[cfg(feature = "simulation")]
mod run;

use std::thread;

use clap::Args;
use clap::builder::ValueHint;

use super::{Failure, refuse};
pub use crate::on::On;
#[cfg(feature = "simulation")]
pub use run::{Request, machine_with, run};

/// The machine if none is named.
pub const MACHINE: &str = "epyc-milan-2s";

/// Seeds unless it is said how many.
pub const SEEDS: u16 = 6;

/// What only simulated machines can be told
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "With --on sim")]
pub struct SimArgs {
    /// A machine of `vellum machines`, or a file that ends in .toml [default: epyc-milan-2s]
    #[arg(long, value_name = "MACHINE", value_hint = ValueHint::FilePath,
          hide_short_help = true)]
    machine: Option<String>,
    /// Number of seeds: of start times, of who goes first [default: 6]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=1000),
          hide_short_help = true)]
    seeds: Option<u16>,
    /// Simulations at a time [default: the host's CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024),
          hide_short_help = true)]
    jobs: Option<u16>,
}

impl SimArgs {
    /// The machine, and how many seeds and jobs.
    pub fn values(self) -> (String, u16, Option<u16>) {
        let machine = self.machine.unwrap_or_else(|| MACHINE.to_owned());
        (machine, self.seeds.unwrap_or(SEEDS), self.jobs)
    }

    /// The machine, if one is named.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// How many seeds, if it is said.
    pub fn seeds(&self) -> Option<u16> {
        self.seeds
    }

    /// Simulations at a time.
    pub fn jobs(&self) -> usize {
        self.jobs.map_or_else(host_cpus, usize::from)
    }

    /// Refuses them where no machine is simulated, and `others` of the command likewise.
    ///
    /// # Errors
    /// One of them is given.
    pub fn refuse(&self, others: &[(bool, &str)]) -> Result<(), Failure> {
        let own = [
            (self.machine.is_some(), "--machine"),
            (self.seeds.is_some(), "--seeds"),
            (self.jobs.is_some(), "--jobs"),
        ];
        let given = [&own[..], others].concat();
        refuse(&given, "only with --on sim: leave it out, or add that")
    }
}

/// CPUs of the host, each of which can simulate.
pub fn host_cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
