//! The command line: one module per command, and what they share.
//!
//! A command is a module with `pub struct XxxArgs` (its doc comment is the help
//! text) and `pub fn run(args: XxxArgs) -> Result<(), Failure>`. To add one,
//! declare the module and add a line to `commands!`.
//!
//! Results go to standard output through `writeln!` and `?`, never `println!`,
//! so that a reader who closes the pipe ends the command quietly. Progress and
//! messages go to standard error.

mod host;

use std::process::ExitCode;

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::built_in;
pub use crate::failure::{Failure, OrFail, refuse};
use vellum_terminal::progress::say;

#[cfg(not(all(feature = "bench", feature = "history", feature = "sweep")))]
mod absent;
pub mod advise;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "simulation")]
mod bench_sim;
#[cfg(feature = "simulation")]
pub mod calibrate;
pub mod compare;
pub mod completions;
pub mod cut;
pub mod designs;
pub mod diffprofile;
pub mod doctor;
pub mod dump;
pub mod export;
mod given;
#[cfg(feature = "history")]
pub mod history;
pub mod host_forkfault;
pub mod import;
pub mod info;
pub mod kept;
#[cfg(feature = "bench")]
pub mod kolivas;
pub mod machines;
pub mod outputs;
pub mod plan;
pub mod profiling;
pub mod record;
pub mod replay;
pub mod report;
#[cfg(feature = "simulation")]
pub mod reproduce;
pub mod results;
#[cfg(feature = "simulation")]
pub mod scale;
pub mod simulated;
pub mod size;
pub mod stats;
#[cfg(feature = "sweep")]
pub mod sweep;
#[cfg(feature = "sweep")]
pub mod sweep_cell;
#[cfg(feature = "simulation")]
mod waits;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the work could not be done (no permission, no memory, I/O error)
  2    unusable arguments or input
  3    a check did not hold (the replay diverged, verification or audit failed)
  4    slower than a saved result by more than is allowed (compare --against)
  130  interrupted by Ctrl-C; what was finished has been printed

Run `vellum COMMAND --help` for a command's options and examples.";

/// Records what a Linux workload asks of memory management, replays it under
/// one memory-manager design or another, and says which wins
#[derive(Parser, Debug)]
#[command(name = "vellum", version, after_help = built_in::help() + EXIT_CODES, max_term_width = 100)]
#[command(
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Declares the subcommands and their dispatch: `Variant => module::Args`, and of one that can
/// be left out the feature and the part that brings it. Without it the command stays known.
macro_rules! commands {
    ($($(#[$attribute:meta])* $variant:ident => $module:ident :: $args:ident $(if $feature:tt $part:ident)?,)+) => {
        #[derive(Subcommand, Debug)]
        enum Command {
            $(
                #[cfg(all($(feature = $feature)?))]
                $(#[$attribute])*
                $variant($module::$args),
                #[cfg(not(all($(feature = $feature)?)))]
                $(#[$attribute])*
                #[command($(about = absent::about(&built_in::$part))?)]
                $variant(absent::AbsentArgs),
            )+
        }

        impl Command {
            fn run(self) -> Result<(), Failure> {
                match self {
                    $(
                        #[cfg(all($(feature = $feature)?))]
                        Command::$variant(args) => $module::run(args),
                        #[cfg(not(all($(feature = $feature)?)))]
                        Command::$variant(_) => {
                            absent::run(stringify!($module), $(&built_in::$part)?)
                        }
                    )+
                }
            }
        }
    };
}

// In the order of `vellum --help`.
commands! {
    Record => record::RecordArgs,
    Info => info::InfoArgs,
    Dump => dump::DumpArgs,
    Cut => cut::CutArgs,
    Import => import::ImportArgs,
    Export => export::ExportArgs,
    Advise => advise::AdviseArgs,
    Replay => replay::ReplayArgs,
    Compare => compare::CompareArgs,
    Bench => bench::BenchArgs if "bench" BENCH,
    Reproduce => reproduce::ReproduceArgs if "simulation" SIMULATION,
    Report => report::ReportArgs,
    History => history::HistoryArgs if "history" HISTORY,
    Scale => scale::ScaleArgs if "simulation" SIMULATION,
    Sweep => sweep::SweepArgs if "sweep" SWEEP,
    Plan => plan::PlanArgs,
    Diffprofile => diffprofile::DiffprofileArgs,
    Stats => stats::StatsArgs,
    Designs => designs::DesignsArgs,
    Machines => machines::MachinesArgs,
    Calibrate => calibrate::CalibrateArgs if "simulation" SIMULATION,
    Doctor => doctor::DoctorArgs,
    Completions => completions::CompletionsArgs,
    HostForkfault => host_forkfault::HostForkfaultArgs,
    #[command(hide = true)]
    SweepCell => sweep_cell::SweepCellArgs if "sweep" SWEEP,
}

/// A command whose help has a line or two for each option: `-h` those that are used most, and
/// with `all` every one, and the examples.
fn with_help(command: clap::Command, all: bool) -> clap::Command {
    // One that is not built in has no options.
    if command.is_disable_help_flag_set() {
        return command;
    }
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::HelpShort)
        .help("Print help: -h the options that are used most, --help all of them")
        .help_heading(None::<&str>)
        .display_order(usize::MAX);
    let command = command.disable_help_flag(true).arg(help);
    let command = command.mut_subcommands(|subcommand| with_help(subcommand, all));
    let examples = command.get_after_long_help().cloned();
    match (all, examples) {
        (false, _) => command,
        (true, None) => command.mut_args(|argument| argument.hide_short_help(false)),
        (true, Some(examples)) => command
            .mut_args(|argument| argument.hide_short_help(false))
            .after_help(examples),
    }
}

/// Parses the arguments, looks at what is to be written, runs the command.
fn run() -> Result<(), Failure> {
    let all = std::env::args_os().any(|argument| argument == "--help");
    let mut command = with_help(Cli::command(), all);
    let matches = command.get_matches_mut();
    let cli = Cli::from_arg_matches(&matches);
    let cli = cli.unwrap_or_else(|error| error.format(&mut command).exit());
    outputs::check(&command, &matches)?;
    cli.command.run()
}

/// Runs the command that the arguments name, reports its failure.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message().is_empty() {
                say(&format!("vellum: {}", failure.message()));
            }
            ExitCode::from(failure.code())
        }
    }
}
