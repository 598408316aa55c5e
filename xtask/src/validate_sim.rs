//! Holds simulations against this machine: describes it, and lets `vellum` do the rest.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::command::{cargo, succeed, target};

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
    let described = target(&root).join("this.toml");
    let quick = args.options.iter().any(|option| option == "--quick");
    let mut calibrate = vellum(&root);
    calibrate.args(["calibrate", "-o"]).arg(&described);
    if quick {
        calibrate.arg("--quick");
    }
    succeed(&mut calibrate)?;
    let mut against = vellum(&root);
    against.args(["calibrate", "--against"]).arg(&described);
    against.args(&args.options);
    succeed(&mut against)
}

/// The command, built for release.
fn vellum(root: &Path) -> Command {
    let mut cargo = cargo();
    cargo.current_dir(root);
    cargo.args([
        "run",
        "--quiet",
        "--release",
        "--locked",
        "-p",
        "vellum-lab",
        "--features",
        "full",
        "--",
    ]);
    cargo
}
