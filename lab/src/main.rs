//! The `vellum` command. Everything it does is in `vellum_lab::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    vellum_lab::cli::main()
}
