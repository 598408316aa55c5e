//! What stands for commands and options that are not built in.

use std::ffi::OsString;

use clap::Args;

use super::Failure;
use crate::built_in::Part;

/// Whatever is given to a command that is not built in, `--help` too.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct AbsentArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    given: Vec<OsString>,
}

/// What `vellum --help` says of a command that `part` would bring.
pub fn about(part: &Part) -> String {
    format!("Not built in: comes with the feature `{}`", part.feature)
}

/// Refuses a command that `part` would bring.
///
/// # Errors
/// Always: the message says how to get it.
pub fn run(command: &str, part: &Part) -> Result<(), Failure> {
    part.require(&format!("`vellum {command}`"))
}

/// `--on sim` without simulated machines.
#[cfg(not(feature = "simulation"))]
pub mod on_sim {
    use super::Failure;
    use crate::built_in::SIMULATION;

    /// Refuses it.
    ///
    /// # Errors
    /// Always: the message says how to get it.
    pub fn run<A>(_: A) -> Result<(), Failure> {
        SIMULATION.require("`--on sim`")
    }
}
