//! `cargo xtask mutants`, without what the other chores need.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: vellum_mutants::Args,
}

fn main() -> ExitCode {
    match vellum_mutants::run(&Cli::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("mutants: {message}");
            ExitCode::FAILURE
        }
    }
}
