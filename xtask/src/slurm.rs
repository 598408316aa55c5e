//! The test of `vellum sweep --slurm` on a real cluster: a controller and two nodes on this
//! machine.

use std::path::Path;
use std::process::Command;

use crate::command::{cargo, succeed};

/// Debian's packages, and a program of each.
const PACKAGES: [(&str, &str); 4] = [
    ("slurmctld", "/usr/sbin/slurmctld"),
    ("slurmd", "/usr/sbin/slurmd"),
    ("slurm-client", "/usr/bin/sbatch"),
    ("munge", "/usr/sbin/munged"),
];

/// Installs what is missing, and runs the test, which must not be skipped.
pub fn run() -> Result<(), String> {
    let missing = PACKAGES
        .iter()
        .filter(|(_, path)| !Path::new(path).exists());
    let missing: Vec<&str> = missing.map(|(package, _)| *package).collect();
    if !missing.is_empty() {
        apt(&["update", "--quiet"])?;
        let install = ["install", "--yes", "--quiet", "--no-install-recommends"];
        apt(&[&install[..], &missing].concat())?;
    }
    let mut test = cargo();
    test.args([
        "test",
        "-p",
        "vellum-lab",
        "--features",
        "full",
        "--test",
        "slurm",
        "--",
        "--nocapture",
    ])
    .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
    .env("VELLUM_REQUIRE_SLURM", "1");
    succeed(&mut test)
}

fn apt(arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    succeed(
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}
