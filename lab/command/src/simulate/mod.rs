//! A trace on a whole simulated machine: every task under a scheduler, in virtual time.
//!
//! [`program()`] makes a program of a workload whose streams are by task. [`measure`]
//! replays it with several seeds under one design or several, several simulations at a time,
//! and [`Findings`] says how long it took and what the CPUs did meanwhile. [`sweep`] does so
//! on more and more CPUs. [`lanes()`] simulates a program of a few CPUs that has no tasks.

mod account;
pub mod bench;
mod findings;
mod lanes;
mod limit;
mod load;
mod program;
mod sweep;
pub mod text;

use serde::Serialize;
use vellum_description::Description;
use vellum_scale::ScaleError;
use vellum_scale::replay::{Program, Request, SLICE_NS, Stop, replay};

pub use account::{FIGURES, Figure};
pub use findings::{CONFIDENCE, elapsed_to_base, ratio_of, to_base, trusted};
pub use lanes::{Lanes, lanes};
pub use load::{Wanted, load};
pub use program::program;
pub use sweep::sweep;
use vellum_results::sim::{About, Account, Findings};

use crate::failure::Failure;
use crate::replay::ram::too_small;
use crate::scale::Kept;
use vellum_terminal::jobs::run_all;
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// What is to be measured.
#[derive(Debug)]
pub struct Plan {
    /// What the user called the trace.
    pub trace: String,
    /// What the user called the machine.
    pub machine_name: String,
    /// The machine.
    pub machine: Description,
    /// How many of its CPUs.
    pub cpus: usize,
    /// Its memory in bytes.
    pub ram_bytes: u64,
    /// What the tasks do.
    pub program: Program,
    /// What is said of that.
    pub about: About,
    /// Tells the program from others.
    pub checksum: u32,
    /// The designs, of which the first is the base.
    pub designs: Vec<String>,
    /// The seeds, one at least.
    pub seeds: Vec<u64>,
    /// What for.
    pub purpose: Purpose,
    /// Threads of the host that simulate.
    pub jobs: usize,
}

/// What is to be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// How one design does.
    Alone,
    /// How the second of two designs does beside the first.
    Compare {
        /// Samples of seeds that intervals are from.
        resamples: usize,
    },
    /// How designs do, with more and more CPUs or otherwise.
    Sweep,
}

/// One simulation of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Which of the designs.
    pub design: usize,
    /// The seed.
    pub seed: u64,
    /// The first seed of the first design once more.
    pub is_control: bool,
}

impl Plan {
    /// All simulations, seed by seed, so that what is done by an interrupt is of use,
    /// with a control unless one design is replayed alone.
    fn tasks(&self) -> Vec<Task> {
        let task = |design, seed, is_control| Task {
            design,
            seed,
            is_control,
        };
        let mut tasks = Vec::new();
        for &seed in &self.seeds {
            tasks.extend((0..self.designs.len()).map(|design| task(design, seed, false)));
            if seed == self.seeds[0] && self.purpose != Purpose::Alone {
                tasks.push(task(0, seed, true));
            }
        }
        tasks
    }

    fn run(&self, task: &Task) -> Result<Account, Failure> {
        let design = &self.designs[task.design];
        let request = Request {
            machine: &self.machine,
            cpus: self.cpus,
            design,
            program: &self.program,
            seed: task.seed,
            slice_ns: SLICE_NS,
            ram_bytes: Some(self.ram_bytes),
        };
        match replay(&request) {
            Ok(replayed) => Ok(account::account(task.seed, &replayed, &self.about)),
            Err(error @ ScaleError::Design(_)) => Err(Failure::usage(error.to_string())),
            Err(ScaleError::Stopped(Stop::OutOfMemory {
                task, operation, ..
            })) => {
                let place = format!("operation {operation} of task {task}");
                let text = too_small(&place, self.ram_bytes, self.ram_bytes);
                Err(Failure::failed(text))
            }
            Err(error) => Err(Failure::failed(format!(
                "{}, design `{design}`, seed {}: {error}",
                self.trace, task.seed
            ))),
        }
    }
}

/// What determines a simulation, of one program.
#[derive(Serialize)]
struct Key<'k> {
    /// Checksum of the machine's description.
    machine: u32,
    /// Checksum of what is replayed.
    replayed: u32,
    design: &'k str,
    cpus: usize,
    ram_bytes: u64,
    seed: u64,
}

impl Key<'_> {
    fn of(plan: &Plan, task: Task) -> Key<'_> {
        Key {
            machine: crc32fast::hash(plan.machine.to_string().as_bytes()),
            replayed: plan.checksum,
            design: &plan.designs[task.design],
            cpus: plan.cpus,
            ram_bytes: plan.ram_bytes,
            seed: task.seed,
        }
    }
}

/// Runs all simulations of a plan, several at a time.
///
/// # Errors
/// A simulation failed, or the user stopped it before there was anything to tell.
pub fn measure(plan: &Plan, style: Style, interrupt: &Interrupt) -> Result<Findings, Failure> {
    measure_others(plan, &mut Kept::default(), style, interrupt)
}

/// Runs all simulations of a plan that are not in `kept`. A control is always run.
///
/// # Errors
/// As [`measure`], or what is kept cannot be used or added to.
pub fn measure_others(
    plan: &Plan,
    kept: &mut Kept,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Findings, Failure> {
    let tasks = plan.tasks();
    let mut done: Vec<(Task, Account)> = Vec::with_capacity(tasks.len());
    let mut open = Vec::new();
    for task in tasks {
        let found = match task.is_control {
            true => None,
            false => kept.get(&Key::of(plan, task))?,
        };
        match found {
            Some(account) => done.push((task, account)),
            None => open.push(task),
        }
    }
    let label = format!("{} on {}", plan.trace, plan.machine_name);
    let mut progress = Progress::new(style, label, open.len() as u64, "simulations");
    let run = |task: &Task| plan.run(task);
    let finished = run_all(open, plan.jobs, interrupt, run, |task, account| {
        progress.advance(1);
        if !task.is_control {
            kept.add(&Key::of(plan, task), &account)?;
        }
        done.push((task, account));
        Ok(())
    });
    progress.finish();
    finished?;
    findings::findings(plan, &done).ok_or_else(|| {
        Failure::interrupted("interrupted before enough simulations were done to tell anything")
    })
}
