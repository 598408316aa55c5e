//! Runs the peer benchmarks, which are a crate of their own outside of the
//! workspace: nobody who builds Vellum builds the crates it is compared with.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::command::cargo;

/// What is handed on.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Options of the benchmarks; `cargo xtask peers --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Becomes the benchmarks; returns only if that fails.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cargo = cargo();
    cargo
        .args(["run", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(root.join("test/peers/Cargo.toml"))
        // An incremental build does not inline small functions of other crates.
        .env("CARGO_INCREMENTAL", "0");
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        cargo.arg("--target-dir").arg(root.join("target/peers"));
    }
    cargo.arg("--").args(&args.options);
    Err(format!("running {cargo:?}: {}", cargo.exec()))
}
