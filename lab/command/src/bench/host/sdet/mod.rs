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

use super::interleave::Interleaved;
use super::scratch::{Scratch, last_lines};
use super::{HostError, tools};
use vellum_terminal::job::{self, Job, Usage};
use vellum_terminal::progress::{Interrupt, Progress, Style};

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

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of scripts at once, in order.
    pub scripts: Vec<usize>,
    /// Runs of each arm for each number.
    pub passes: usize,
    /// Decides the order of steps in each script, and the text they work on.
    pub seed: u64,
    /// Where the private directories are made; they are removed at the end.
    pub directory: PathBuf,
    /// How to show progress.
    pub style: Style,
}

/// One run of N scripts at once.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// From the start of the first script to the end of the last, in seconds.
    pub elapsed_s: f64,
    /// CPU time of all of them.
    pub usage: Usage,
}

impl Run {
    /// Scripts in an hour, of a run of `scripts` at once.
    pub fn throughput(&self, scripts: usize) -> f64 {
        scripts as f64 * 3600.0 / self.elapsed_s
    }
}

/// The runs with one number of scripts at once.
#[derive(Clone, Debug)]
pub struct Load {
    /// Scripts at once.
    pub scripts: usize,
    /// By arm, then by pass.
    pub runs: Interleaved<Run>,
}

/// What was measured, and whether the user stopped early.
#[derive(Clone, Debug)]
pub struct Sdet {
    /// Complete loads.
    pub loads: Vec<Load>,
    /// Whether the user stopped the run early.
    pub interrupted: bool,
}

/// Runs the scripts as `options` says. Whatever ends it, the directories are
/// removed.
///
/// # Errors
/// A program is missing, a script fails, a directory cannot be made, or the user
/// interrupted before the first number of scripts was complete.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<Sdet, HostError> {
    tools::require(script::TOOLS)?;
    let directory = options.directory.display();
    let scratch = Scratch::new(&options.directory, "sdet-like")
        .map_err(HostError::io(format!("making a directory in {directory}")))?;
    let steps: usize = options.scripts.iter().map(|n| 2 * n * options.passes).sum();
    let mut progress = Progress::new(options.style, "warming up", 1 + steps as u64, "scripts");
    // Programs and libraries are in memory when the clock starts.
    together(1, &scratch, options.seed, interrupt)?;
    progress.advance(1);
    let mut result = Sdet {
        loads: Vec::new(),
        interrupted: false,
    };
    for &scripts in &options.scripts {
        progress.relabel(format!("{scripts} scripts at once"));
        let runs = Interleaved::collect(options.passes, options.seed, |_| {
            let run = together(scripts, &scratch, options.seed, interrupt)?;
            progress.advance(scripts as u64);
            Ok(run)
        });
        match runs {
            Ok(runs) => {
                let cut_short = runs.interrupted;
                result.loads.push(Load { scripts, runs });
                if cut_short {
                    result.interrupted = true;
                    break;
                }
            }
            Err(HostError::Interrupted) if !result.loads.is_empty() => {
                result.interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    progress.finish();
    Ok(result)
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
