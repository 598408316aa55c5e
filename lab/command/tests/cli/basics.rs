//! What holds for every command of `vellum`.

use std::process::Command;

use crate::command::{text, vellum};
use clap::CommandFactory;
use vellum_lab::cli::Cli;

#[test]
fn every_command_shows_examples_of_itself() {
    let cli = Cli::command();
    let commands = cli.get_subcommands();
    for command in commands.filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let help = command.get_after_long_help();
        let help = help.or(command.get_after_help()).map(ToString::to_string);
        let help = help.unwrap_or_default();
        assert!(help.contains("Examples:"), "{name}");
        assert!(help.contains(&format!("  vellum {name}")), "{name}: {help}");
        assert!(command.get_about().is_some(), "{name} says what it does");
    }
}

#[test]
fn help_explains_the_exit_codes() {
    let output = vellum(&["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    for code in ["  0  ", "  1  ", "  2  ", "  3  ", "  130 "] {
        assert!(help.contains(code), "{code:?} in {help}");
    }
}

#[test]
fn help_of_every_command_fits_two_screens_and_its_short_form_one() {
    let lines = |command: &str, option: &str| {
        let output = vellum(&[command, option]);
        assert!(output.status.success(), "{command} {option}");
        text(&output.stdout).lines().count()
    };
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(lines(name, "--help") <= 130, "{name}");
        assert!(lines(name, "-h") <= 85, "{name}");
    }
    assert!(lines("bench", "-h") <= 60);
    let all = text(&vellum(&["bench", "--help"]).stdout);
    for part in [
        "--optimal-jobs",
        "--profile-rate",
        "With --on sim:",
        "Examples:",
    ] {
        assert!(all.contains(part), "{part} in\n{all}");
    }
}

#[test]
fn unusable_arguments_exit_with_2_and_print_nothing_else() {
    for arguments in [&["no-such-command"][..], &["completions", "no-such-shell"]] {
        let output = vellum(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = vellum(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = text(&output.stdout);
        for command in Cli::command().get_subcommands() {
            assert!(script.contains(command.get_name()), "{shell}: {command}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let command = command.args(["completions", "bash"]).stdout(writer);
    let output = command.output().expect("the program can be started");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}
