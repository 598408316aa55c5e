//! Kernel builds on the host: kernbench as Con Kolivas wrote it (0.42).
//!
//! Up to four loads: one job, half as many jobs as CPUs, four times as many, and as
//! many as there are. Each run of a load begins with `make clean`, a sync and a pause,
//! and is measured as GNU time does: the wall clock, and what `wait4` says of the
//! whole tree of processes. Before the first, every file of the tree is read once and
//! one build is not timed. Runs come one after the other, a load at a time; there is
//! no control, because what was published had none.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::tree::{Build, Tree};
use crate::host::HostError;
use vellum_tables::kolivas::{Group, Load, Run};
use vellum_terminal::job::WATCH;
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// Jobs for each CPU under the optimal load.
const OPTIMAL: u32 = 4;

/// Memory below which the maximal load is warned of, in MiB: it may not be enough for
/// as many compilers as there are files.
const ENOUGH_MEBIBYTES: u64 = 4 << 10;

/// Which loads are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// One job.
    pub single: bool,
    /// Half as many jobs as CPUs.
    pub half: bool,
    /// Four times as many jobs as CPUs.
    pub optimal: bool,
    /// As many jobs as there are.
    pub maximal: bool,
    /// Jobs of the optimal load instead of four for each CPU.
    pub optimal_jobs: Option<u32>,
}

/// The loads of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// In the order in which they run.
    pub loads: Vec<Load>,
    /// Jobs of the build that is not timed.
    pub warm_up_jobs: u32,
    /// What a user must know before it begins, one sentence each.
    pub notes: Vec<String>,
}

impl Choice {
    /// The loads on a machine of `cpus` CPUs and `mebibytes` of memory, if that is known.
    pub fn plan(self, cpus: u32, mebibytes: Option<u64>) -> Plan {
        let optimal = self
            .optimal_jobs
            .unwrap_or_else(|| cpus.saturating_mul(OPTIMAL));
        let mut loads = Vec::new();
        let mut notes = Vec::new();
        if self.single {
            loads.push(Load::Single);
        }
        match cpus / 2 {
            _ if !self.half => {}
            0 | 1 => notes.push(format!(
                "the half load is left out: it would be fewer than two jobs (CPUs: {cpus})"
            )),
            // Two jobs wait for each other too often.
            2 => loads.push(Load::Half(3)),
            jobs => loads.push(Load::Half(jobs)),
        }
        if self.optimal {
            loads.push(Load::Optimal(optimal));
        }
        if self.maximal {
            loads.push(Load::Maximal);
            if let Some(mebibytes) = mebibytes.filter(|mebibytes| *mebibytes < ENOUGH_MEBIBYTES) {
                notes.push(format!(
                    "the maximal load runs as many jobs as there are, and {mebibytes} MiB of \
                     memory, less than {ENOUGH_MEBIBYTES}, may not be enough for them: \
                     --no-maximal leaves it out"
                ));
            }
        }
        Plan {
            loads,
            warm_up_jobs: optimal,
            notes,
        }
    }
}

/// What comes before the runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preparation {
    /// Jobs of the build that is not timed.
    pub jobs: u32,
    /// Pause before each run.
    pub pause: Duration,
}

impl Preparation {
    /// As kernbench has it, with the jobs of the optimal load.
    pub fn usual(jobs: u32) -> Self {
        Self {
            jobs,
            pause: Duration::from_secs(5),
        }
    }
}

/// What to build and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// Unpacked and configured kernel tree. It is left as after `make clean`.
    pub tree: PathBuf,
    /// Target of `make`; none for what it builds by itself.
    pub target: Option<String>,
    /// Loads, in order.
    pub loads: Vec<Load>,
    /// Runs of each load.
    pub runs: usize,
    /// None: neither reading nor a build before the first run, nor pauses.
    pub preparation: Option<Preparation>,
    /// How to show progress.
    pub style: Style,
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// The loads that were begun, with the runs that are complete.
    pub groups: Vec<Group>,
    /// What kept the rest from being measured: a build that failed, or the user.
    pub stopped: Option<HostError>,
}

/// Builds the tree as `options` says. Complete runs are kept, whatever ends the rest.
///
/// # Errors
/// The tree is not one that can be built, a tool is missing, or no run was complete
/// when a build failed or the user interrupted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<Measured, HostError> {
    let tree = Tree::open(&options.tree, options.target.as_deref())?;
    let steps = options.loads.len() * options.runs + usize::from(options.preparation.is_some());
    let progress = Progress::new(options.style, "warming up", steps as u64, "builds");
    let mut series = Series {
        tree,
        options,
        interrupt,
        progress,
        groups: Vec::new(),
    };
    let measured = series.all();
    // Whatever happened: nothing half-built stays behind.
    let cleaned = tree.clean(&Interrupt::manual());
    let Series {
        groups, progress, ..
    } = series;
    let stopped = match measured.and(cleaned) {
        Err(error) if groups.iter().all(|group| group.runs.is_empty()) => return Err(error),
        Err(error) => Some(error),
        Ok(()) => None,
    };
    progress.finish();
    Ok(Measured { groups, stopped })
}

/// The runs in progress.
struct Series<'o> {
    tree: Tree<'o>,
    options: &'o Options,
    interrupt: &'o Interrupt,
    progress: Progress,
    groups: Vec<Group>,
}

impl Series<'_> {
    fn all(&mut self) -> Result<(), HostError> {
        if let Some(preparation) = self.options.preparation {
            self.tree.clean(self.interrupt)?;
            self.tree.read(self.interrupt)?;
            let jobs = format!("-j{}", preparation.jobs);
            self.tree.build(&jobs, self.interrupt)?;
            self.progress.advance(1);
        }
        for &load in &self.options.loads {
            let jobs = jobs(load);
            self.progress.relabel(format!("make {jobs}"));
            self.groups.push(Group {
                load,
                runs: Vec::new(),
            });
            for _ in 0..self.options.runs {
                let run = self.one(&jobs)?;
                if let Some(group) = self.groups.last_mut() {
                    group.runs.push(run);
                }
                self.progress.advance(1);
            }
        }
        Ok(())
    }

    /// One build from a clean tree, with nothing left to be written.
    fn one(&self, jobs: &str) -> Result<Run, HostError> {
        self.tree.clean(self.interrupt)?;
        // SAFETY: it has no arguments.
        unsafe { libc::sync() };
        if let Some(preparation) = self.options.preparation {
            rest(preparation.pause, self.interrupt)?;
        }
        Ok(figures(&self.tree.build(jobs, self.interrupt)?))
    }
}

/// The argument for `make`.
fn jobs(load: Load) -> String {
    match load {
        Load::Single => "-j1".to_owned(),
        Load::Half(jobs) | Load::Optimal(jobs) | Load::Custom(jobs) => format!("-j{jobs}"),
        Load::Maximal => "-j".to_owned(),
    }
}

/// What GNU time would say, with all digits.
fn figures(build: &Build) -> Run {
    let usage = &build.usage;
    let elapsed_s = (build.elapsed_s * 1e6).round() / 1e6;
    let busy_s = usage.user_s + usage.system_s;
    [
        elapsed_s,
        usage.user_s,
        usage.system_s,
        match elapsed_s > 0.0 {
            true => 100.0 * busy_s / elapsed_s,
            false => 0.0,
        },
        usage.preempted as f64,
        usage.slept as f64,
    ]
}

/// Waits for `time`, unless the user asks to stop.
fn rest(time: Duration, interrupt: &Interrupt) -> Result<(), HostError> {
    let end = Instant::now() + time;
    loop {
        if interrupt.requested() {
            return Err(HostError::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(WATCH));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::scratch::Scratch;

    const USUAL: Choice = Choice {
        single: false,
        half: true,
        optimal: true,
        maximal: true,
        optimal_jobs: None,
    };

    #[test]
    fn loads_follow_from_the_number_of_cpus() {
        let plan = |cpus| USUAL.plan(cpus, Some(8 << 10));
        for (cpus, half) in [(4, 3), (5, 3), (6, 3), (8, 4), (64, 32)] {
            let expected = [Load::Half(half), Load::Optimal(4 * cpus), Load::Maximal];
            assert_eq!(plan(cpus).loads, expected, "{cpus} CPUs");
            assert_eq!(plan(cpus).warm_up_jobs, 4 * cpus);
            assert!(plan(cpus).notes.is_empty(), "{:?}", plan(cpus).notes);
        }
        for cpus in 1..4 {
            let plan = plan(cpus);
            assert_eq!(plan.loads, [Load::Optimal(4 * cpus), Load::Maximal]);
            assert!(plan.notes[0].contains("half load is left out"));
        }
    }

    #[test]
    fn loads_are_added_and_left_out_in_the_order_of_jobs() {
        let all = Choice {
            single: true,
            optimal_jobs: Some(7),
            ..USUAL
        };
        let plan = all.plan(16, None);
        let expected = [Load::Single, Load::Half(8), Load::Optimal(7), Load::Maximal];
        assert_eq!((plan.loads, plan.warm_up_jobs), (expected.to_vec(), 7));
        let none = Choice {
            half: false,
            optimal: false,
            maximal: false,
            ..USUAL
        };
        let plan = none.plan(2, Some(512));
        assert_eq!((plan.loads, plan.notes), (vec![], vec![]), "nothing to say");
    }

    #[test]
    fn the_maximal_load_is_warned_of_with_little_memory() {
        let notes = |mebibytes| USUAL.plan(4, mebibytes).notes;
        assert!(
            notes(Some(4095))[0].contains("4095 MiB"),
            "{:?}",
            notes(None)
        );
        assert!(notes(Some(4096)).is_empty() && notes(None).is_empty());
        let without = Choice {
            maximal: false,
            ..USUAL
        };
        assert!(without.plan(4, Some(100)).notes.is_empty());
    }

    #[test]
    fn percent_is_that_of_the_cpu_time_in_the_elapsed() {
        let usage = vellum_terminal::job::Usage {
            user_s: 3.0,
            system_s: 0.5,
            preempted: 12,
            slept: 34,
            ..Default::default()
        };
        let build = Build {
            elapsed_s: 1.250_000_04,
            usage,
        };
        assert_eq!(figures(&build), [1.25, 3.0, 0.5, 280.0, 12.0, 34.0]);
    }

    /// A tree that looks like a kernel's and notes what `make` is asked for.
    fn tree(scratch: &Scratch, recipe: &str) -> PathBuf {
        let tree = scratch.path().join("tree");
        fs::create_dir(&tree).expect("made");
        let makefile = format!(
            "# KERNELRELEASE\nall:\n\t@echo build $(MAKEFLAGS) >> ../log\n\t{recipe}\n\
             clean:\n\t@echo clean >> ../log\n"
        );
        fs::write(tree.join("Makefile"), makefile).expect("written");
        fs::write(tree.join(".config"), "").expect("written");
        tree
    }

    /// What was measured, and the order in which `make` was asked; none where no
    /// kernel can be built.
    fn measured(name: &str, recipe: &str, options: Options) -> Option<(Measured, String)> {
        let scratch = Scratch::new(&std::env::temp_dir(), name).expect("made");
        let options = Options {
            tree: tree(&scratch, recipe),
            ..options
        };
        match run(&options, &Interrupt::manual()) {
            Err(error @ HostError::Missing(_)) => {
                eprintln!("skipped: {error}");
                None
            }
            measured => {
                let log = fs::read_to_string(scratch.path().join("log")).expect("a log");
                // Of the flags only the jobs are of interest.
                let word = |line: &str| {
                    let jobs = line.split(' ').find(|flag| flag.starts_with("-j"));
                    jobs.or(line.split(' ').next()).unwrap_or("").to_owned()
                };
                let words: Vec<String> = log.lines().map(word).collect();
                Some((measured.expect("it builds"), words.join(" ")))
            }
        }
    }

    fn options(loads: &[Load], runs: usize, preparation: Option<Preparation>) -> Options {
        Options {
            tree: PathBuf::new(),
            target: None,
            loads: loads.to_vec(),
            runs,
            preparation,
            style: Style::Quiet,
        }
    }

    #[test]
    fn every_run_begins_clean_after_a_build_that_does_not_count() {
        let preparation = Preparation {
            jobs: 5,
            pause: Duration::ZERO,
        };
        let options = options(&[Load::Half(3), Load::Maximal], 2, Some(preparation));
        let Some((measured, log)) = measured("kolivas-order", "@true", options) else {
            return;
        };
        assert_eq!(log, "clean -j5 clean -j3 clean -j3 clean -j clean -j clean");
        assert!(measured.stopped.is_none());
        let runs = measured.groups.iter().map(|group| group.runs.len());
        assert_eq!(runs.collect::<Vec<_>>(), [2, 2]);
        for run in measured.groups.iter().flat_map(|group| &group.runs) {
            assert!(
                run[0] > 0.0 && run[5] > 0.0,
                "it waits for a shell: {run:?}"
            );
        }
    }

    #[test]
    fn without_preparation_the_first_build_counts() {
        let options = options(&[Load::Optimal(2)], 3, None);
        if let Some((measured, log)) = measured("kolivas-fast", "@true", options) {
            assert_eq!(log, "clean -j2 clean -j2 clean -j2 clean");
            assert_eq!(measured.groups[0].runs.len(), 3);
        }
    }

    #[test]
    fn a_build_that_fails_leaves_the_runs_before_it() {
        let options = options(&[Load::Half(3), Load::Maximal], 2, None);
        // Three builds, and three times that the tree was cleaned.
        let recipe = "@test $$(wc -l < ../log) -lt 6 || { echo no memory >&2; exit 1; }";
        if let Some((measured, log)) = measured("kolivas-fails", recipe, options) {
            assert_eq!(log, "clean -j3 clean -j3 clean -j clean");
            let runs = measured.groups.iter().map(|group| group.runs.len());
            assert_eq!(runs.collect::<Vec<_>>(), [2, 0]);
            let why = measured.stopped.map(|error| error.to_string());
            assert!(
                why.as_ref().is_some_and(|why| why.contains("no memory")),
                "{why:?}"
            );
        }
    }

    #[test]
    fn a_pause_ends_when_the_user_wants_it() {
        let interrupt = Interrupt::manual();
        assert!(rest(Duration::ZERO, &interrupt).is_ok());
        interrupt.request();
        let ended = rest(Duration::from_secs(1000), &interrupt);
        assert!(matches!(ended, Err(HostError::Interrupted)));
    }
}
