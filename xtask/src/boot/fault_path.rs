//! Instructions of the fault path in the kernel and on the hosted machine.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::cargo_build;

#[allow(dead_code, reason = "the kernel's part of it is not used here")]
#[path = "../../../embed/boot/src/check/path.rs"]
mod path;

/// How much they may differ, in percent.
const MOST_PERCENT: u64 = 10;

/// QEMU for single programs.
const PROGRAM: &str = "qemu-x86_64";

/// Compares what the kernel reported with what the same faults take on the hosted machine.
///
/// # Errors
/// They differ by more than [`MOST_PERCENT`], or could not be counted.
pub fn compare(root: &Path, out: &Path, report: &str) -> Result<(), String> {
    let target = out.join("hosted");
    cargo_build(root, "embed/boot/hosted/Cargo.toml", &target, &[])?;
    let program = target.join("release/vellum-boot-hosted");
    let report: Value =
        serde_json::from_str(report).map_err(|error| format!("no report: {error}"))?;
    println!("instructions of a fault without the trap, zeroing or copying of the page included:");
    let mut far = Vec::new();
    for (kind, name) in path::KINDS.iter().enumerate() {
        let kernel = report[*name]
            .as_u64()
            .ok_or_else(|| format!("the report has no `{name}`"))?;
        // Starting and warming up take the same in both runs.
        let (few, many) = (
            instructions(&program, kind, 1000)?,
            instructions(&program, kind, 3000)?,
        );
        let hosted = (many - few) / 2000;
        let percent = kernel.abs_diff(hosted) * 100 / hosted.max(1);
        println!(
            "    {name:<16} {kernel:>6} in the kernel  {hosted:>6} hosted  ({percent} % apart)"
        );
        if percent > MOST_PERCENT {
            far.push(*name);
        }
    }
    match far.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "more than {MOST_PERCENT} % apart: {}",
            far.join(", ")
        )),
    }
}

/// Instructions that the program takes for so many faults: each is a block of its own, of
/// which QEMU writes a line.
fn instructions(program: &Path, kind: usize, faults: u64) -> Result<u64, String> {
    let mut child = Command::new(PROGRAM)
        .args(["-singlestep", "-d", "exec,nochain", "-D", "/dev/stdout"])
        .arg(program)
        .args([kind.to_string(), faults.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| {
            format!("{PROGRAM}: {error}: apt-get install --no-install-recommends qemu-user")
        })?;
    let output = child.stdout.take().ok_or("no output")?;
    let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
    let count = lines.filter(|line| line.starts_with(b"Trace")).count() as u64;
    let status = child.wait().map_err(|error| error.to_string())?;
    match status.success() && count > 0 {
        true => Ok(count),
        false => Err(format!(
            "{} did not run to its end under {PROGRAM}",
            program.display()
        )),
    }
}
