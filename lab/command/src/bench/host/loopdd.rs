//! `loopdd` on the host's kernel: the real `dd`, on a tmpfs of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::tmpfs::{mount_tmpfs, with_own_mounts};
use super::{Host, Interleaved, WALL};
use crate::bench::loopdd::{Iteration, blocks_of, middle};
use crate::bench::{Run, Variant};
use crate::host::tools::{self, Tool};
use crate::host::{HostError, memory_mebibytes, scratch};
use vellum_terminal::job::{self, Job};
use vellum_terminal::progress::Interrupt;

const TOOLS: &[Tool] = &[Tool {
    program: "dd",
    package: "coreutils",
}];

/// Room that the file system has beside the file.
const SPARE: u64 = 64 << 20;

/// Runs `dd` over and over, in every variant. An interruption keeps complete passes.
///
/// # Errors
/// Nothing can be mounted, `dd` failed, or the user interrupted.
pub fn measure(host: &mut Host<'_>) -> Result<(), HostError> {
    tools::require(TOOLS)?;
    let (request, interrupt) = (host.request, host.interrupt);
    host.findings.notes.push(
        "The rows of mmtests have one sample for each iteration, the median over the passes. \
         Elapsed time is that of the process, with its start and its end. The first iteration \
         of a pass writes a new file."
            .to_owned(),
    );
    let iterations = request.sizes.get("iterations");
    let mebibytes = match request.sizes.get("mebibytes") {
        0 => all_memory()? / 10,
        given => given,
    };
    let steps = request.variants.len() * 2 * request.passes;
    let mut progress = host.progress("loopdd", steps, "runs");
    with_own_mounts(|directory| {
        let place = mount_tmpfs(directory, (mebibytes << 20) + SPARE)?;
        for variant in &request.variants {
            let runs = host.collect(|| {
                let sizes = (iterations, mebibytes);
                let pass = one_pass(directory, variant.name, sizes, interrupt)?;
                progress.advance(1);
                Ok(pass)
            })?;
            keep(host, variant, (iterations, mebibytes), &place, &runs)?;
        }
        Ok(())
    })
}

/// Keeps the passes of one variant.
fn keep(
    host: &mut Host<'_>,
    variant: &Variant,
    (iterations, mebibytes): (u64, u64),
    place: &str,
    runs: &Interleaved<Vec<Iteration>>,
) -> Result<(), HostError> {
    let figure = |name: &str, clock, seconds: fn(&Iteration) -> f64| {
        let of = (name, "MiB", (iterations * mebibytes) as f64);
        host.figure_of(of, clock, runs, None, |pass| {
            let iterations = pass.iter();
            iterations.map(|one| (seconds(one) * 1e9) as u64).collect()
        })
    };
    let arms: Vec<Vec<Iteration>> = runs.arms.iter().map(|arm| middle(arm)).collect();
    let run = Run {
        title: format!("{}: {}", variant.name, variant.summary),
        facts: vec![format!(
            "{iterations} times dd if=/dev/zero of=1 bs=1M count={mebibytes} on {place}; the file \
             is truncated by opening it again."
        )],
        figures: vec![
            figure("dd", "the clock of dd", |one| one.dd),
            figure("elapsed", WALL, |one| one.elapsed),
        ],
        blocks: blocks_of(&arms, mebibytes),
        ..Run::default()
    };
    host.keep(runs, run)
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
