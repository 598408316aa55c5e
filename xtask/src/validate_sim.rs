//! Holds simulations against this machine: describes it, and lets `vellum` do the rest.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// What is handed on.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Options of `vellum calibrate --against`, such as `--json FILE` and `--quick`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Measures this machine into `target/this.toml`, and holds that against runs.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map(std::path::PathBuf::from);
    let target = target.unwrap_or_else(|| root.join("target"));
    let described = target.join("this.toml");
    let quick = args.options.iter().any(|option| option == "--quick");
    let mut calibrate = vellum(&root);
    calibrate.args(["calibrate", "-o"]).arg(&described);
    if quick {
        calibrate.arg("--quick");
    }
    succeed(calibrate)?;
    let mut against = vellum(&root);
    against.args(["calibrate", "--against"]).arg(&described);
    against.args(&args.options);
    succeed(against)
}

/// The command, built for release.
fn vellum(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo.args([
        "run",
        "--quiet",
        "--release",
        "--locked",
        "-p",
        "vellum-lab",
        "--",
    ]);
    cargo
}

fn succeed(mut command: Command) -> Result<(), String> {
    let status = command.status();
    let status = status.map_err(|error| format!("running {command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}")),
    }
}
