//! Sdet-like scripts on the host: N at once, throughput in scripts an hour.
//!
//! SDET (057.sdet of SPEC's SDM suite) runs N scripts at the same time, each the
//! same multiset of commands in an order of its own, each in a private,
//! populated directory, and stops the clock when the last has finished. This
//! workload has that shape and the published list of commands, and nothing else
//! of SDET: [`DISCLAIMER`].

pub mod home;
pub mod script;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Host, Interleaved, RUSAGE, WALL, row_label};
use crate::bench;
use crate::host::scratch::{Scratch, last_lines};
use crate::host::{HostError, tools};
use crate::report;
use vellum_terminal::job::{self, Job, Usage};
use vellum_terminal::progress::Interrupt;

/// What this workload is not.
pub const DISCLAIMER: &str = "\
Disclaimer: this workload is sdet-like and not SDET. SDET(tm) and SPEC(tm) are registered
trademarks of the Standard Performance Evaluation Corporation. None of SPEC's code is in it, nobody
at SPEC has seen it, and its figures must not be compared with any SDET result, published or not.";

/// Numbers of scripts at once in the published tables.
pub const PUBLISHED: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// The shipped recordings of scripts 0, 1, … with seed 1.
pub const SHIPPED: [&str; 8] = [
    "sdet-like.vellum",
    "sdet-like-1.vellum",
    "sdet-like-2.vellum",
    "sdet-like-3.vellum",
    "sdet-like-4.vellum",
    "sdet-like-5.vellum",
    "sdet-like-6.vellum",
    "sdet-like-7.vellum",
];

/// One run of N scripts at once.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// From the start of the first script to the end of the last, in seconds.
    elapsed_s: f64,
    /// CPU time of all of them.
    usage: Usage,
}

impl Run {
    /// Scripts in an hour, of a run of `scripts` at once.
    fn throughput(&self, scripts: usize) -> f64 {
        scripts as f64 * 3600.0 / self.elapsed_s
    }
}

/// Runs 1, 2, 4 … scripts at once, up to the number asked for. Whatever ends it, the
/// directories are removed.
///
/// # Errors
/// A program is missing, a script fails, a directory cannot be made, or the user
/// interrupted.
pub fn measure(host: &mut Host<'_>) -> Result<(), HostError> {
    below(&std::env::temp_dir(), host)
}

/// The same in directories below `parent`.
fn below(parent: &Path, host: &mut Host<'_>) -> Result<(), HostError> {
    let notes = &mut host.findings.notes;
    notes.push(DISCLAIMER.replace('\n', " "));
    tools::require(script::TOOLS)?;
    let doing = HostError::io(format!("making a directory in {}", parent.display()));
    let scratch = Scratch::new(parent, "sdet-like").map_err(doing)?;
    let (seed, interrupt) = (host.request.method.seed, host.interrupt);
    let most = host.request.sizes.get("most") as usize;
    let numbers = std::iter::successors(Some(1), |n| Some(2 * n));
    let numbers: Vec<usize> = numbers.take_while(|n| *n <= most).collect();
    let steps = 1 + 2 * numbers.iter().sum::<usize>() * host.request.passes;
    let mut progress = host.progress("warming up", steps, "scripts");
    // Programs and libraries are in memory when the clock starts.
    together(1, &scratch, seed, interrupt)?;
    progress.advance(1);
    for scripts in numbers {
        progress.relabel(format!("{scripts} scripts at once"));
        let runs = host.collect(|| {
            let run = together(scripts, &scratch, seed, interrupt)?;
            progress.advance(scripts as u64);
            Ok(run)
        })?;
        keep(host, scripts, &runs)?;
    }
    progress.finish();
    Ok(())
}

/// Keeps the runs of so many scripts at once.
fn keep(host: &mut Host<'_>, n: usize, runs: &Interleaved<Run>) -> Result<(), HostError> {
    let arms = host.findings.arms.iter().zip(&runs.arms);
    let arms = arms.map(|(arm, runs)| {
        let throughputs = runs.iter().map(|run| run.throughput(n));
        (row_label(arm), throughputs.collect::<Vec<f64>>())
    });
    let throughputs: Vec<_> = arms.collect();
    let title = format!("SDET-like {n}  (see disclaimer)");
    let block = report::sdet::block(&title, &report::sdet::rows(&throughputs));
    host.findings.blocks.push(block);
    let mean = throughputs[0].1.iter().sum::<f64>() / throughputs[0].1.len().max(1) as f64;
    let of = |name, clock, seconds: fn(&Run) -> f64| {
        host.figure((name, "script", n as f64), clock, runs, seconds)
    };
    let run = bench::Run {
        title: match n {
            1 => "1 script".to_owned(),
            n => format!("{n} scripts at once"),
        },
        facts: vec![format!("{mean:.0} scripts an hour")],
        figures: vec![
            of("elapsed", WALL, |run| run.elapsed_s),
            of("system", RUSAGE, |run| run.usage.system_s),
            of("user", RUSAGE, |run| run.usage.user_s),
        ],
        ..bench::Run::default()
    };
    host.keep(runs, run)
}

/// Runs `scripts` scripts at once, each in a new directory below `parent`, which
/// is empty before and after.
fn together(
    scripts: usize,
    parent: &Scratch,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Run, HostError> {
    let run = parent.below("run");
    let run = run.map_err(HostError::io("making the directory of a run"))?;
    let homes: Vec<PathBuf> = (0..scripts)
        .map(|number| prepare(run.path(), seed, number))
        .collect::<io::Result<_>>()
        .map_err(HostError::io("filling the directories of the scripts"))?;
    let begun = Instant::now();
    let mut jobs = Vec::with_capacity(scripts);
    for home in &homes {
        if interrupt.requested() {
            return Err(HostError::Interrupted);
        }
        jobs.push(start(home).map_err(HostError::io("starting a script with sh"))?);
    }
    job::finish(&mut jobs, interrupt, |number, ended| {
        match ended.status.success() {
            true => Ok(()),
            false => Err(HostError::Command {
                command: format!("script {number} of {scripts} (seed {seed})"),
                ending: ended.status.to_string(),
                output: last_lines(File::open(homes[number].join(ERRORS))),
            }),
        }
    })?;
    let ended: Vec<_> = jobs.iter().filter_map(Job::ended).collect();
    let last = ended.iter().map(|ended| ended.at).max().unwrap_or(begun);
    let mut usage = Usage::default();
    for ended in &ended {
        usage.user_s += ended.usage.user_s;
        usage.system_s += ended.usage.system_s;
    }
    Ok(Run {
        elapsed_s: (last - begun).as_secs_f64(),
        usage,
    })
}

/// File for what a script's commands write to standard error.
const ERRORS: &str = "errors";

/// Makes and fills the private directory of script `number` below `parent`, and
/// writes the script into it as `script`.
///
/// # Errors
/// A file cannot be written.
pub fn prepare(parent: &Path, seed: u64, number: usize) -> io::Result<PathBuf> {
    let home = parent.join(format!("home{number}"));
    fs::create_dir(&home)?;
    home::populate(&home, seed)?;
    fs::write(home.join("script"), script::script(seed, number))?;
    Ok(home)
}

/// How `sh` is called in a directory that [`prepare`] made: the script ends at
/// the first command that fails.
pub fn shell(home: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-e", "script"])
        .current_dir(home)
        .env("HOME", home)
        .env("TMPDIR", home.join("tmp"))
        .env("LC_ALL", "C")
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .stdin(Stdio::null());
    command
}

fn start(home: &Path) -> io::Result<Job> {
    let output = File::create(home.join("output"))?;
    let errors = File::create(home.join(ERRORS))?;
    Job::start(shell(home).stdout(output).stderr(errors))
}

#[cfg(test)]
mod tests;
