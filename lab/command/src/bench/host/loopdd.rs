//! `loopdd` on the host's kernel: the real `dd`, on a tmpfs of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::interleave::Interleaved;
use super::tmpfs::{mount_tmpfs, with_own_mounts};
use super::tools::{self, Tool};
use super::{HostError, memory_mebibytes, scratch};
use crate::bench::loopdd::Iteration;
use vellum_terminal::job::{self, Job};
use vellum_terminal::progress::{Interrupt, Progress, Style};

const TOOLS: &[Tool] = &[Tool {
    program: "dd",
    package: "coreutils",
}];

/// Room that the file system has beside the file.
const SPARE: u64 = 64 << 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the variants.
    pub variants: Vec<&'static str>,
    /// Iterations of a pass.
    pub iterations: u64,
    /// Size of the file; 0 for a tenth of memory.
    pub mebibytes: u64,
    /// Passes.
    pub passes: usize,
    /// Seed of the order.
    pub seed: u64,
    /// How to show progress.
    pub style: Style,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Size of the file.
    pub mebibytes: u64,
    /// What it was on.
    pub place: String,
    /// By variant: the iterations of each arm and pass.
    pub runs: Vec<Interleaved<Vec<Iteration>>>,
}

/// Runs `dd` over and over. An interruption keeps complete passes.
///
/// # Errors
/// Nothing can be mounted, `dd` failed, or the user interrupted before the first pass.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<Outcome, HostError> {
    tools::require(TOOLS)?;
    let mebibytes = match options.mebibytes {
        0 => all_memory()? / 10,
        given => given,
    };
    let steps = options.variants.len() * 2 * options.passes;
    let mut progress = Progress::new(options.style, "loopdd", steps as u64, "runs");
    with_own_mounts(|directory| {
        let place = mount_tmpfs(directory, (mebibytes << 20) + SPARE)?;
        let mut runs = Vec::new();
        for variant in &options.variants {
            let pass = |_| {
                let pass = one_pass(
                    directory,
                    variant,
                    (options.iterations, mebibytes),
                    interrupt,
                )?;
                progress.advance(1);
                Ok(pass)
            };
            match Interleaved::collect(options.passes, options.seed, pass) {
                Ok(run) => runs.push(run),
                Err(HostError::Interrupted) if !runs.is_empty() => break,
                Err(error) => return Err(error),
            }
            if runs.last().is_some_and(|run| run.interrupted) {
                break;
            }
        }
        Ok(Outcome {
            mebibytes,
            place,
            runs,
        })
    })
}

fn all_memory() -> Result<u64, HostError> {
    memory_mebibytes().ok_or_else(|| {
        HostError::Unsupported(
            "/proc/meminfo does not say how much memory there is: give --size mebibytes="
                .to_owned(),
        )
    })
}

/// The iterations of one pass, on a file that is new.
fn one_pass(
    directory: &Path,
    variant: &str,
    (iterations, mebibytes): (u64, u64),
    interrupt: &Interrupt,
) -> Result<Vec<Iteration>, HostError> {
    let mut done = Vec::new();
    for _ in 0..iterations {
        done.push(dd(directory, variant == "fsync", mebibytes, interrupt)?);
        if variant == "sync" {
            // SAFETY: it has no arguments.
            unsafe { libc::sync() };
        }
    }
    // The next pass begins with a file that is new, as this one did.
    fs::remove_file(directory.join("1")).map_err(HostError::io("removing what dd wrote"))?;
    Ok(done)
}

fn dd(
    directory: &Path,
    sync: bool,
    mebibytes: u64,
    interrupt: &Interrupt,
) -> Result<Iteration, HostError> {
    let doing = || HostError::io("running dd");
    let says = scratch::unnamed_file().map_err(doing())?;
    let mut command = Command::new("dd");
    command
        .args(["if=/dev/zero", "of=1", "bs=1M"])
        .arg(format!("count={mebibytes}"))
        .args(sync.then_some("conv=fsync"))
        .current_dir(directory)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(says.try_clone().map_err(doing())?);
    let begun = Instant::now();
    let mut jobs = [Job::start(&mut command).map_err(doing())?];
    let failed = |ending: String| HostError::Command {
        command: "dd if=/dev/zero of=1 bs=1M, on a tmpfs".to_owned(),
        ending,
        output: scratch::last_lines(says.try_clone()),
    };
    let mut ended_at = begun;
    job::finish(&mut jobs, interrupt, |_, ended| {
        ended_at = ended.at;
        match ended.status.success() {
            true => Ok(()),
            false => Err(failed(ended.status.to_string())),
        }
    })?;
    let text = scratch::contents(says.try_clone().map_err(doing())?).map_err(doing())?;
    let dd =
        seconds(&text).ok_or_else(|| failed("expected a line of bytes and seconds".to_owned()))?;
    Ok(Iteration {
        dd,
        elapsed: (ended_at - begun).as_secs_f64(),
    })
}

/// The seconds in `1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.000512 s, 2.0 GB/s`.
fn seconds(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains(" copied, "))?;
    let (_, rest) = line.split_once(" copied, ")?;
    let (seconds, _) = rest.split_once(" s")?;
    seconds.parse().ok().filter(|seconds| *seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seconds_of_dd_are_read() {
        let text = "2+0 records in\n2+0 records out\n\
                    2097152 bytes (2.1 MB, 2.0 MiB) copied, 0.00119 s, 1.8 GB/s\n";
        assert_eq!(seconds(text), Some(0.00119));
        assert_eq!(
            seconds("dd: failed to open '1': No such file or directory\n"),
            None
        );
    }
}
