//! What the tasks of a workload do, and what they wait for.

use vellum_engine::op::{Call, Op};

/// A whole workload.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Program {
    /// Its tasks. All are there from the beginning; those that are created by others wait
    /// for that at their first step.
    pub tasks: Vec<TaskStream>,
}

/// What one task does.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TaskStream {
    /// All its operations, in their order.
    pub ops: Vec<Op>,
    /// The stretches that it does them in, which cover each operation once.
    pub steps: Vec<Step>,
    /// What the steps wait for, one step's after the other's.
    pub waits: Vec<Wait>,
    /// How many of its first steps make what was there when the recording began. No task begins
    /// another step before all these are done, and time is counted from then on.
    pub beginning: usize,
}

/// A stretch of a task. It may begin when all its waits hold; then the task computes, and
/// then come the operations from the end of the step before to the end of this one, of which
/// there may be none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Step {
    /// One past its last operation.
    pub end: u32,
    /// Its first wait. The last is before the first of the next step, or is the last of all.
    pub first_wait: u32,
    /// The task's own computing, in nanoseconds of a CPU whose core it has to itself.
    pub user_ns: u64,
}

/// Holds from when a task has completed its first operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wait {
    /// The task's number in the program.
    pub task: u32,
    /// How many operations.
    pub ops: u32,
}

/// Why a program cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Flaw {
    /// More tasks than there are numbers for.
    #[error("a program of {0} tasks: at most {max} are possible", max = u32::MAX - 1)]
    Tasks(usize),
    /// A task's steps are not one after the other, or do not cover its operations.
    #[error(
        "task {task}, step {step}: it ends at operation {end}, expected {least} to {most}; \
         the last step ends where the operations do"
    )]
    Steps {
        /// The task.
        task: usize,
        /// The step.
        step: usize,
        /// Its end.
        end: u32,
        /// The least that it could be.
        least: usize,
        /// The most.
        most: usize,
    },
    /// The waits of a step are not where they could be.
    #[error(
        "task {task}, step {step}: its first wait is number {first}, expected {least} to {most}"
    )]
    Waits {
        /// The task.
        task: usize,
        /// The step.
        step: usize,
        /// The first wait.
        first: u32,
        /// The least that it could be.
        least: u32,
        /// The most.
        most: usize,
    },
    /// A wait that can never hold.
    #[error(
        "task {task}, wait {number}: it is for {} operations of task {}, which {}",
        .wait.ops, .wait.task, length(*.has)
    )]
    Never {
        /// The task that waits.
        task: usize,
        /// The number of the wait among its waits.
        number: usize,
        /// What it is for.
        wait: Wait,
        /// Operations of the task that it is for, if that exists.
        has: Option<usize>,
    },
    /// A wait in the beginning for what comes after it.
    #[error(
        "task {task}, wait {number}: it is in the beginning of the recording, and for {} operations \
         of task {}, of which the beginning has {most}", .wait.ops, .wait.task
    )]
    Beginning {
        /// The task that waits.
        task: usize,
        /// The number of the wait among its waits.
        number: usize,
        /// What it is for.
        wait: Wait,
        /// Operations of the beginning of that task.
        most: u32,
    },
    /// An operation that only engines on a hosted machine can execute.
    #[error("task {task}, operation {number}: {op:?} cannot be executed on simulated CPUs")]
    Op {
        /// The task.
        task: usize,
        /// The operation's number.
        number: usize,
        /// The operation.
        op: Op,
    },
}

fn length(ops: Option<usize>) -> String {
    match ops {
        Some(ops) => format!("has {ops}"),
        None => "does not exist".to_owned(),
    }
}

impl Program {
    /// Operations of all tasks.
    pub fn ops(&self) -> u64 {
        self.tasks.iter().map(|task| task.ops.len() as u64).sum()
    }

    /// Whether it can be replayed, as far as can be seen without doing so.
    ///
    /// # Errors
    /// [`Flaw`], the first that there is.
    pub fn check(&self) -> Result<(), Flaw> {
        if self.tasks.len() >= u32::MAX as usize {
            return Err(Flaw::Tasks(self.tasks.len()));
        }
        let mut tasks = self.tasks.iter().enumerate();
        tasks.try_for_each(|(number, task)| {
            task.check_steps(number)?;
            task.check_ops(number)?;
            self.check_waits(number, task)
        })
    }

    fn check_waits(&self, task: usize, stream: &TaskStream) -> Result<(), Flaw> {
        for (number, &wait) in stream.waits.iter().enumerate() {
            let other = self.tasks.get(wait.task as usize);
            let has = other.map(|other| other.ops.len());
            if has.is_none_or(|has| (wait.ops as usize) > has) {
                return Err(Flaw::Never {
                    task,
                    number,
                    wait,
                    has,
                });
            }
            let most = other.map_or(0, TaskStream::ops_of_beginning);
            if number < stream.waits_of_beginning() && wait.ops > most {
                return Err(Flaw::Beginning {
                    task,
                    number,
                    wait,
                    most,
                });
            }
        }
        Ok(())
    }
}

impl TaskStream {
    /// The waits of a step: none if there is no such step, or it has not got any.
    pub fn waits_of(&self, step: usize) -> &[Wait] {
        let Some(&Step { first_wait, .. }) = self.steps.get(step) else {
            return &[];
        };
        let next = self.steps.get(step + 1);
        let end = next.map_or(self.waits.len(), |next| next.first_wait as usize);
        self.waits.get(first_wait as usize..end).unwrap_or_default()
    }

    /// Waits of the steps of the beginning.
    fn waits_of_beginning(&self) -> usize {
        let next = self.steps.get(self.beginning);
        next.map_or(self.waits.len(), |next| next.first_wait as usize)
    }

    /// Operations of the beginning.
    fn ops_of_beginning(&self) -> u32 {
        let last = self.steps.iter().take(self.beginning).next_back();
        last.map_or(0, |last| last.end)
    }

    fn check_steps(&self, task: usize) -> Result<(), Flaw> {
        let (mut least, mut least_wait) = (0, 0);
        let most = self.ops.len();
        for (
            step,
            &Step {
                end, first_wait, ..
            },
        ) in self.steps.iter().enumerate()
        {
            let is_last = step + 1 == self.steps.len();
            if is_last {
                least = most;
            }
            if !(least..=most).contains(&(end as usize)) {
                return Err(Flaw::Steps {
                    task,
                    step,
                    end,
                    least,
                    most,
                });
            }
            // What is before the first step's waits would belong to no step.
            let most_wait = if step == 0 { 0 } else { self.waits.len() };
            if first_wait < least_wait || first_wait as usize > most_wait {
                return Err(Flaw::Waits {
                    task,
                    step,
                    first: first_wait,
                    least: least_wait,
                    most: most_wait,
                });
            }
            least = end as usize;
            least_wait = first_wait;
        }
        if self.steps.is_empty() && !(self.ops.is_empty() && self.waits.is_empty()) {
            return Err(Flaw::Steps {
                task,
                step: 0,
                end: 0,
                least: most,
                most,
            });
        }
        Ok(())
    }

    fn check_ops(&self, task: usize) -> Result<(), Flaw> {
        let hosted = |op: &Op| match op {
            Op::Call(call) => !matches!(call, Call::Access { .. }),
            Op::Lap { .. } | Op::EmptyCaches => true,
            _ => false,
        };
        match self.ops.iter().position(hosted) {
            None => Ok(()),
            Some(number) => Err(Flaw::Op {
                task,
                number,
                op: self.ops[number],
            }),
        }
    }
}

#[cfg(test)]
mod tests;
