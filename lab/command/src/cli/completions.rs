//! `vellum completions`: completion scripts for shells.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failure};

const EXAMPLES: &str = "\
Examples:
  vellum completions bash > ~/.local/share/bash-completion/completions/vellum
  vellum completions zsh > ~/.zfunc/_vellum
  vellum completions fish > ~/.config/fish/completions/vellum.fish";

/// Print the completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// Which shell to write for
    shell: Shell,
}

/// Writes the script to standard output.
pub fn run(args: CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "vellum", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(())
}
