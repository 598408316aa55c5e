//! What each process of a replay on the host does, in which order.
//!
//! Guarantees: every operation of the workload is in the plan once, as words for
//! the stub (`lab/stub/src/protocol.rs`), except for accesses that the recording
//! refused. The operations of one address space keep their order. Across spaces
//! the recorded order is kept where it can matter: creation, program, end and wait
//! of processes; spaces that a fork made and that still share pages; changes of a
//! file and everything else done with it. Elsewhere the operations of a space are
//! put off and handed to it together, because a change of the running process
//! costs more than most operations.
//!
//! Threads of a process share a space; what they do to memory is done by the one of
//! them whose turn it is. Heaps are mappings that grow.

mod calls;
mod check;
mod files;
mod space;
mod steps;
mod vfork;

use std::collections::BTreeMap;

use vellum_engine::Op;

use super::LinuxError;
use super::protocol::{self, op, word};
use crate::replay::{Class, Expectation, Workload};
use files::Files;
use space::{Queue, Space};
use vellum_trace::{Event, EventKind, TraceReader};

pub use steps::{CLASSES, Ending, Entries, Plan, Step, TaskNumber};

/// Plans `workload`, which was prepared from `trace` for one CPU and one copy.
///
/// # Errors
/// The trace cannot be read, or the workload needs the stub's own addresses.
pub fn plan(trace: &TraceReader, workload: &Workload) -> Result<Plan, LinuxError> {
    let tasks = trace.header().tasks.len();
    let loosened = vfork::loosened(trace, tasks)?;
    let [stream] = workload.streams() else {
        return Err(LinuxError::Unsupported(
            "the host's kernel replays workloads of one CPU and one copy".into(),
        ));
    };
    let mut planner = Planner::new(workload, stream.ops(), tasks, &loosened);
    let mut next = 0;
    for (number, event) in (0u32..).zip(trace.events()) {
        let event = event?;
        let begin = next;
        while stream.origins().get(next) == Some(&number) {
            let refused = stream.expectations()[next] == Expectation::Refused;
            let class = stream.classes()[next];
            planner.op(&event, &stream.ops()[next], class, refused, number)?;
            next += 1;
        }
        if let EventKind::Wait { child } = event.kind {
            planner.wait(event.task.0, child.0);
        }
        planner.plan.ops += (next - begin) as u64;
    }
    Ok(planner.finish())
}

/// A task as the planner sees it.
#[derive(Clone, Default)]
struct Task {
    alive: bool,
    /// It was ended by another task's `execve`.
    killed: bool,
    /// The leader of its process.
    process: TaskNumber,
    /// The process that created this one.
    parent: TaskNumber,
    space: u32,
    /// Living tasks, in the entry of a leader.
    members: u32,
    waited: bool,
}

struct Planner<'w> {
    plan: Plan,
    tasks: Vec<Task>,
    spaces: Vec<Space>,
    /// Spaces that a fork made from one another, by group.
    kin: BTreeMap<u32, Vec<u32>>,
    files: Files,
    loosened: &'w [bool],
    alive: usize,
}

impl<'w> Planner<'w> {
    fn new(workload: &Workload, ops: &[Op], tasks: usize, loosened: &'w [bool]) -> Self {
        let files = Files::new(workload.files().len(), ops);
        Self {
            plan: Plan {
                steps: Vec::new(),
                words: Vec::new(),
                waits: Vec::new(),
                files: files.first_lengths().to_vec(),
                keeper: tasks as u32,
                most_tasks: 1,
                ops: 0,
                entries: [Entries::default(); CLASSES],
                ops_by_class: [0; CLASSES],
                refused: 0,
                waits_left_out: 0,
                vforks_loosened: loosened.iter().filter(|loose| **loose).count() as u64,
            },
            tasks: vec![Task::default(); tasks],
            spaces: vec![Space::default(); workload.spaces() as usize],
            kin: BTreeMap::new(),
            files,
            loosened,
            alive: 1,
        }
    }

    /// One operation of the task of `event`.
    fn op(
        &mut self,
        event: &Event,
        op: &Op,
        class: Class,
        refused: bool,
        number: u32,
    ) -> Result<(), LinuxError> {
        let task = event.task.0;
        if self.tasks[task as usize].killed {
            return Ok(());
        }
        self.plan.ops_by_class[class as usize] += 1;
        check::apart(op, number)?;
        match *op {
            Op::Create { space } => self.begin(task, space.0),
            Op::Fork { .. } | Op::Share { .. } => self.create(event, op, class),
            Op::Exec { old, new } => self.exec(task, old.0, new.0),
            Op::Exit { space } => self.exit(task, space.0),
            Op::Touch { .. } if refused => self.plan.refused += 1,
            Op::Touch {
                space,
                page,
                access,
            } => self.touch(task, space, page, access, class),
            Op::Map { .. } | Op::Brk { .. } => self.map(task, op, class),
            _ => self.change(task, op, class),
        }
        Ok(())
    }

    /// A task that was there from the start: the keeper makes it.
    fn begin(&mut self, task: TaskNumber, space: u32) {
        let keeper = self.plan.keeper;
        let flags = vfork::flags(0, false);
        let words = [word(op::CREATE, Class::Fork as u8, 0, 0), flags, 0];
        let begin = self.plan.words.len();
        self.plan.words.extend(words);
        self.plan.steps.push(Step {
            task: keeper,
            words: begin..begin + words.len(),
            ending: Ending::Creates {
                child: task,
                class: Class::Fork,
                process: true,
                vfork: false,
            },
        });
        self.arrive(task, keeper, space);
        self.tasks[task as usize].process = task;
        self.tasks[task as usize].members = 1;
        self.spaces[space as usize] = Space::alone();
        self.join(space, space);
    }

    fn arrive(&mut self, task: TaskNumber, parent: TaskNumber, space: u32) {
        let state = &mut self.tasks[task as usize];
        state.alive = true;
        state.parent = parent;
        state.space = space;
        self.alive += 1;
        self.plan.most_tasks = self.plan.most_tasks.max(self.alive);
    }

    /// `space` is kin of those of `group` from now on.
    fn join(&mut self, space: u32, group: u32) {
        // Slots are used again, so that a group is known by a number of its own.
        let group = match self.spaces.get(group as usize).and_then(|of| of.group) {
            Some(group) => group,
            None => {
                let last = self.kin.keys().next_back().copied();
                last.map_or(0, |last| last + 1)
            }
        };
        self.spaces[space as usize].group = Some(group);
        self.kin.entry(group).or_default().push(space);
    }

    fn leave(&mut self, space: u32) {
        let state = &mut self.spaces[space as usize];
        state.users = state.users.saturating_sub(1);
        if state.users > 0 {
            return;
        }
        let group = std::mem::take(state).group;
        if let Some(group) = group
            && let Some(members) = self.kin.get_mut(&group)
        {
            members.retain(|member| *member != space);
            if members.is_empty() {
                self.kin.remove(&group);
            }
        }
    }

    fn create(&mut self, event: &Event, op: &Op, class: Class) {
        let EventKind::Create { child, clone_flags } = event.kind else {
            return;
        };
        let (task, child) = (event.task.0, child.0);
        let from = self.tasks[task as usize].space;
        let loose = self.loosened[child as usize];
        let flags = vfork::flags(clone_flags, loose);
        let thread = flags & vfork::CLONE_THREAD != 0;
        let words = [word(op::CREATE, class as u8, 0, 0), flags, 0];
        let ending = Ending::Creates {
            child,
            class,
            process: !thread,
            vfork: flags & vfork::CLONE_VFORK != 0,
        };
        self.end_step(task, from, &words, ending);
        let process = self.tasks[task as usize].process;
        let space = match *op {
            Op::Fork { child: new, .. } => {
                self.spaces[new.0 as usize] = self.spaces[from as usize].forked();
                self.join(new.0, from);
                new.0
            }
            _ => {
                self.spaces[from as usize].users += 1;
                from
            }
        };
        self.arrive(child, process, space);
        let leader = if thread { process } else { child };
        self.tasks[child as usize].process = leader;
        self.tasks[leader as usize].members += 1;
    }

    fn exec(&mut self, task: TaskNumber, old: u32, new: u32) {
        let process = self.tasks[task as usize].process;
        let others = (0u32..).zip(&self.tasks);
        let ends: Vec<TaskNumber> = match self.tasks[process as usize].members {
            0 | 1 => Vec::new(),
            _ => others
                .filter(|(other, state)| state.alive && state.process == process && *other != task)
                .map(|(other, _)| other)
                .collect(),
        };
        for &other in &ends {
            let state = &mut self.tasks[other as usize];
            (state.alive, state.killed) = (false, true);
            self.alive -= 1;
        }
        self.tasks[process as usize].members = 1;
        let words = [word(op::EXEC, Class::Exec as u8, 0, 0)];
        let killed = ends.len();
        self.end_step(task, old, &words, Ending::Executes { ends });
        for _ in 0..=killed {
            self.leave(old);
        }
        self.tasks[task as usize].space = new;
        self.spaces[new as usize] = Space::alone();
        self.join(new, new);
    }

    fn exit(&mut self, task: TaskNumber, space: u32) {
        let words = [word(op::EXIT, Class::Exit as u8, 0, 0)];
        self.end_step(task, space, &words, Ending::Exits);
        self.leave(space);
        let state = &mut self.tasks[task as usize];
        state.alive = false;
        let process = state.process;
        self.alive -= 1;
        let members = &mut self.tasks[process as usize].members;
        *members = members.saturating_sub(1);
    }

    /// `task` waits for a process that has ended.
    fn wait(&mut self, task: TaskNumber, child: TaskNumber) {
        let waiter = &self.tasks[task as usize];
        let (alive, process, space) = (waiter.alive, waiter.process, waiter.space);
        let ended = &self.tasks[child as usize];
        let own = ended.process == child && ended.parent == process && !ended.waited;
        if !(alive && own && !ended.alive && !ended.killed && ended.members == 0) {
            self.plan.waits_left_out += 1;
            return;
        }
        self.tasks[child as usize].waited = true;
        let words = [word(op::WAIT, protocol::TIMES as u8 - 1, 0, 0), 0];
        self.put(task, space, &words);
        let queue = &mut self.spaces[space as usize].queue;
        queue.waits.push((queue.words.len() - 1, child));
    }

    /// `space` is about to use `file`: who has to have done something with it before,
    /// does it now.
    fn use_file(&mut self, space: u32, file: u32, changes: bool) {
        for other in self.files.before(file, space, changes) {
            self.flush(other, Ending::Waits);
        }
        if self.files.note(file, space, changes) {
            self.spaces[space as usize].queue.files.push(file);
        }
    }

    /// Appends an operation of `task` to what its space has to do.
    fn put(&mut self, task: TaskNumber, space: u32, words: &[u64]) {
        self.settle_kin(space);
        let queue = &mut self.spaces[space as usize].queue;
        let full = queue.words.len() + words.len() + 4 > protocol::RING_WORDS;
        if full {
            self.flush(space, Ending::Waits);
        }
        let queue = &mut self.spaces[space as usize].queue;
        queue.holder.get_or_insert(task);
        queue.words.extend_from_slice(words);
    }

    /// Spaces that share pages with `space` do what they put off.
    fn settle_kin(&mut self, space: u32) {
        let group = self.spaces[space as usize].group;
        let Some(members) = group.and_then(|group| self.kin.get(&group)) else {
            return;
        };
        if members.len() < 2 {
            return;
        }
        let pending =
            |other: &u32| *other != space && !self.spaces[*other as usize].queue.words.is_empty();
        let pending: Vec<u32> = members.iter().copied().filter(pending).collect();
        for other in pending {
            self.flush(other, Ending::Waits);
        }
    }

    /// `task` does `words` after all that its space has put off, and its step ends.
    fn end_step(&mut self, task: TaskNumber, space: u32, words: &[u64], ending: Ending) {
        let holder = self.spaces[space as usize].queue.holder;
        if holder.is_some_and(|holder| holder != task) {
            self.flush(space, Ending::Waits);
        }
        self.put(task, space, words);
        self.flush(space, ending);
    }

    /// What `space` has put off becomes a step.
    fn flush(&mut self, space: u32, ending: Ending) {
        let queue = std::mem::take(&mut self.spaces[space as usize].queue);
        let Queue {
            words,
            waits,
            holder,
            files,
        } = queue;
        for file in files {
            self.files.done(file, space);
        }
        let Some(task) = holder else {
            return;
        };
        let begin = self.plan.words.len();
        self.plan.words.extend_from_slice(&words);
        let waits = waits
            .into_iter()
            .map(|(place, child)| (begin + place, child));
        self.plan.waits.extend(waits);
        self.plan.steps.push(Step {
            task,
            words: begin..begin + words.len(),
            ending,
        });
    }

    /// Everything that was put off is done, and whoever is left ends: children
    /// before those who created them.
    fn finish(mut self) -> Plan {
        for space in 0..self.spaces.len() as u32 {
            self.flush(space, Ending::Waits);
        }
        for task in (0..self.tasks.len() as u32).rev() {
            if self.tasks[task as usize].alive {
                let space = self.tasks[task as usize].space;
                self.exit(task, space);
            }
        }
        self.plan
    }
}
