//! Workloads on more and more simulated CPUs, under several designs: what is measured,
//! and on how many of the host's CPUs.

mod cell;
mod findings;
mod kept;
pub mod text;
pub mod waits;

use vellum_description::Description;
use vellum_results::scale::{Cell, Scale};
use vellum_scale::Workload;

pub use cell::{LINES, line};
pub use kept::Kept;

use crate::failure::Failure;
use vellum_terminal::jobs::run_all;
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// What is to be measured.
#[derive(Debug)]
pub struct Plan {
    /// What the user called the machine.
    pub machine_name: String,
    /// The machine.
    pub machine: Description,
    /// What each CPU does.
    pub workload: &'static Workload,
    /// Numbers of CPUs, ascending.
    pub cpus: Vec<usize>,
    /// Designs, of which the first is the base.
    pub designs: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// How long nothing counts at first, in virtual nanoseconds.
    pub warm_up_ns: u64,
    /// The window in which things count, in virtual nanoseconds.
    pub window_ns: u64,
    /// Threads of the host that simulate.
    pub jobs: usize,
}

/// One simulation of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Which of the designs.
    pub design: usize,
    /// How many CPUs.
    pub cpus: usize,
    /// The seed.
    pub seed: u64,
    /// The first seed of the base once more.
    pub is_control: bool,
}

impl Plan {
    /// All simulations, the largest first: those that are left at the end are short then.
    fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for &cpus in self.cpus.iter().rev() {
            for &seed in &self.seeds {
                for design in 0..self.designs.len() {
                    tasks.push(Task {
                        design,
                        cpus,
                        seed,
                        is_control: false,
                    });
                }
            }
            tasks.push(Task {
                design: 0,
                cpus,
                seed: self.seeds[0],
                is_control: true,
            });
        }
        tasks
    }

    /// The CPU counts at which each design is measured: one CPU is needed for the ceiling.
    fn run(&self, task: Task) -> Result<Cell, Failure> {
        let design = &self.designs[task.design];
        let request = vellum_scale::Request {
            machine: &self.machine,
            cpus: task.cpus,
            design,
            workload: self.workload,
            seed: task.seed,
            warm_up_ns: self.warm_up_ns,
            window_ns: self.window_ns,
        };
        match vellum_scale::run(&request) {
            Ok(measured) => Ok(cell::cell(&measured)),
            Err(error @ vellum_scale::ScaleError::Design(_)) => {
                Err(Failure::usage(error.to_string()))
            }
            Err(error) => Err(Failure::failed(format!(
                "{}, {design}, {} CPUs: {error}",
                self.workload.name, task.cpus
            ))),
        }
    }
}

/// Runs all simulations of a plan that are not in `kept`, several at a time.
///
/// # Errors
/// A simulation failed, or the user stopped it before any number of CPUs was complete.
pub fn measure(
    plan: &Plan,
    kept: &mut Kept,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Scale, Failure> {
    let tasks = plan.tasks();
    let mut done: Vec<(Task, Cell)> = Vec::with_capacity(tasks.len());
    let mut open = Vec::new();
    for task in tasks {
        match kept.of_workload(plan, task)? {
            Some(cell) => done.push((task, cell)),
            None => open.push(task),
        }
    }
    let label = format!("{} on {}", plan.workload.name, plan.machine_name);
    let mut progress = Progress::new(style, label, open.len() as u64, "simulations");
    let run = |task: &Task| plan.run(*task);
    let finished = run_all(open, plan.jobs, interrupt, run, |task, cell| {
        progress.advance(1);
        kept.add_of_workload(plan, task, &cell)?;
        done.push((task, cell));
        Ok(())
    });
    progress.finish();
    finished?;
    findings::findings(plan, &done).ok_or_else(|| {
        Failure::interrupted("interrupted before all designs were through with one number of CPUs")
    })
}
