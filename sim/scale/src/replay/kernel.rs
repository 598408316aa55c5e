//! What all CPUs know of the tasks: how far they are, and what they wait for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vellum_engine::op::{Divergence, OpError, SpaceSlot};

use super::account::Account;
use super::program::{Program, Wait};
use super::queue::{Nearness, Queues};
use super::stop::{Blocked, Stop};

/// How far a task is.
#[derive(Default)]
pub(crate) struct Task {
    /// The step that it is in, or waits to begin.
    pub(crate) step: usize,
    /// Operations completed.
    pub(crate) done: u32,
    /// What is left of the step's computing, in picoseconds of a core of its own. `None`
    /// before the step has begun.
    pub(crate) user_left: Option<u64>,
    /// The space that it runs in.
    pub(crate) space: Option<SpaceSlot>,
    /// Where it ran last.
    last_cpu: Option<usize>,
    /// The wait that it is blocked at.
    blocked: Option<Wait>,
    /// Who is blocked until it has completed so many operations.
    waiters: BinaryHeap<Reverse<(u32, u32)>>,
    /// When it ended.
    ended_at: Option<u64>,
}

/// The scheduler's data. It is the host's: CPUs use it at their turn, and it takes them no
/// time but what they pass for it.
pub(crate) struct Kernel<'p> {
    program: &'p Program,
    pub(crate) tasks: Vec<Task>,
    pub(crate) queues: Queues,
    pub(crate) accounts: Vec<Account>,
    /// The task that each CPU ran last.
    ran: Vec<Option<u32>>,
    /// Tasks that CPUs are running.
    running: usize,
    unfinished: usize,
    /// Steps of the beginning that are not done.
    ahead: usize,
    /// Tasks that have done theirs, or have none.
    held: Vec<u32>,
    /// When the last of them was done.
    pub(crate) began: u64,
    /// When the last task ended.
    pub(crate) end: Option<u64>,
    pub(crate) stop: Option<Stop>,
    pub(crate) ops: u64,
    pub(crate) context_switches: u64,
    pub(crate) migrations: u64,
    pub(crate) preemptions: u64,
    pub(crate) sleeps: u64,
    pub(crate) divergences: Vec<(Divergence, u64)>,
}

/// Whom an event made runnable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// An idle CPU is to be woken for it.
    On(usize),
    /// It is queued.
    Queued,
}

impl<'p> Kernel<'p> {
    /// The tasks that have nothing to wait for are distributed over the CPUs; nobody runs
    /// yet.
    pub(crate) fn new(program: &'p Program, cpus: usize, near: Nearness) -> Kernel<'p> {
        let count = program.tasks.len();
        let mut kernel = Kernel {
            program,
            tasks: (0..count).map(|_| Task::default()).collect(),
            queues: Queues::new(cpus, near),
            accounts: vec![Account::default(); cpus],
            ran: vec![None; cpus],
            running: 0,
            unfinished: count,
            ahead: program.tasks.iter().map(|task| task.beginning).sum(),
            held: Vec::new(),
            began: 0,
            end: (count == 0).then_some(0),
            stop: None,
            ops: 0,
            context_switches: 0,
            migrations: 0,
            preemptions: 0,
            sleeps: 0,
            divergences: Vec::new(),
        };
        let mut next = 0;
        for task in 0..count as u32 {
            if !kernel.blocks(task) {
                kernel.queues.push(next % cpus, task);
                next += 1;
            }
        }
        kernel.stop_if_stuck();
        kernel
    }

    /// Whether CPUs are to end what they do.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some() || self.stop.is_some()
    }

    /// The task that a CPU runs from now on, if there is one, and whether it is another
    /// than the CPU ran before.
    pub(crate) fn take(&mut self, cpu: usize) -> Option<(u32, bool)> {
        let task = self.queues.take(cpu)?;
        self.running += 1;
        let is_other = self.ran[cpu].replace(task) != Some(task);
        self.context_switches += u64::from(is_other);
        let last = self.tasks[task as usize].last_cpu.replace(cpu);
        self.migrations += u64::from(last.is_some_and(|last| last != cpu));
        Some((task, is_other))
    }

    /// The task that the CPU runs gives way to another that waits for the CPU.
    pub(crate) fn preempt(&mut self, cpu: usize, task: u32) {
        self.running -= 1;
        self.preemptions += 1;
        self.queues.push(cpu, task);
    }

    /// The running task gives its CPU up, having been blocked.
    pub(crate) fn leave(&mut self) {
        self.running -= 1;
        self.sleeps += 1;
        self.stop_if_stuck();
    }

    /// A running task has done its step. Returns whether it was the last of the beginning.
    pub(crate) fn advance(&mut self, number: u32) -> bool {
        let task = &mut self.tasks[number as usize];
        let is_of_beginning = task.step < self.program.tasks[number as usize].beginning;
        task.step += 1;
        task.user_left = None;
        self.ahead -= usize::from(is_of_beginning);
        is_of_beginning && self.ahead == 0
    }

    /// Time is counted from here on. The tasks that waited for that are told to `woken`, queued.
    pub(crate) fn begin(&mut self, now: u64, cpu: usize, woken: &mut Vec<Woken>) {
        self.began = now;
        for account in &mut self.accounts {
            account.begin(now);
        }
        (self.context_switches, self.migrations) = (0, 0);
        (self.preemptions, self.sleeps) = (0, 0);
        for task in std::mem::take(&mut self.held) {
            self.make_runnable(cpu, task, woken);
        }
    }

    /// Queues a task, unless it has to wait for others.
    fn make_runnable(&mut self, cpu: usize, number: u32, woken: &mut Vec<Woken>) {
        if !self.blocks(number) {
            let last = self.tasks[number as usize].last_cpu;
            let place = self.queues.place(number, last, cpu);
            woken.push(place.map_or(Woken::Queued, Woken::On));
        }
    }

    /// Whether a task has to wait before it begins its step. Then it is listed with the
    /// task that it waits for, or with those that wait for the beginning to be over.
    pub(crate) fn blocks(&mut self, number: u32) -> bool {
        let step = self.tasks[number as usize].step;
        let stream = &self.program.tasks[number as usize];
        if self.ahead > 0 && step >= stream.beginning {
            self.held.push(number);
            return true;
        }
        let waits = stream.waits_of(step);
        let is_missing = |wait: &&Wait| self.tasks[wait.task as usize].done < wait.ops;
        let first = waits.iter().find(is_missing).copied();
        self.tasks[number as usize].blocked = first;
        if let Some(wait) = first {
            let waiters = &mut self.tasks[wait.task as usize].waiters;
            waiters.push(Reverse((wait.ops, number)));
        }
        first.is_some()
    }

    /// A running task has completed one more operation. Tasks that waited for that are
    /// told to `woken`, queued.
    pub(crate) fn complete(&mut self, cpu: usize, number: u32, woken: &mut Vec<Woken>) {
        self.ops += 1;
        let task = &mut self.tasks[number as usize];
        task.done += 1;
        while let Some(&Reverse((ops, waiter))) = self.tasks[number as usize].waiters.peek() {
            let task = &mut self.tasks[number as usize];
            if ops > task.done {
                break;
            }
            task.waiters.pop();
            self.make_runnable(cpu, waiter, woken);
        }
    }

    /// A running task has done all that it had to.
    pub(crate) fn finish(&mut self, number: u32, now: u64) {
        self.tasks[number as usize].ended_at = Some(now);
        self.unfinished -= 1;
        self.running -= 1;
        if self.unfinished == 0 {
            self.end = Some(now);
        }
        self.stop_if_stuck();
    }

    /// Notes how an operation went, and stops if the machine can do no more.
    pub(crate) fn diverged(&mut self, task: u32, how: Divergence) {
        match self.divergences.iter_mut().find(|(kind, _)| *kind == how) {
            Some((_, count)) => *count += 1,
            None => self.divergences.push((how, 1)),
        }
        if how == Divergence::Failed(OpError::OutOfMemory) {
            let operation = self.tasks[task as usize].done;
            let op = self.program.tasks[task as usize].ops[operation as usize];
            self.stop.get_or_insert(Stop::OutOfMemory {
                task,
                operation,
                op,
            });
        }
    }

    /// When each task ended.
    pub(crate) fn ends(&self) -> Vec<u64> {
        let ends = self.tasks.iter().map(|task| task.ended_at.unwrap_or(0));
        ends.collect()
    }

    fn stop_if_stuck(&mut self) {
        if self.running == 0 && self.queues.queued() == 0 && self.unfinished > 0 {
            let circle = self.circle();
            self.stop.get_or_insert(Stop::Circle(circle));
        }
    }

    /// Tasks each of which waits for the next, and the last for the first. Every task that
    /// is left waits for one that is left.
    fn circle(&self) -> Vec<Blocked> {
        let blocked = |number: u32| {
            let task = &self.tasks[number as usize];
            task.blocked.map(|wait| Blocked {
                task: number,
                done: task.done,
                wait,
            })
        };
        let mut path: Vec<Blocked> = Vec::new();
        let mut place = vec![None; self.tasks.len()];
        let mut next = (0..self.tasks.len() as u32).find_map(blocked);
        while let Some(found) = next {
            if let Some(first) = place[found.task as usize] {
                return path.split_off(first);
            }
            place[found.task as usize] = Some(path.len());
            path.push(found);
            next = blocked(found.wait.task);
        }
        path
    }
}
