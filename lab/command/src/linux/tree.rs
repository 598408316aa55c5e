//! One replay: a tree of stubs that carries out a plan.
//!
//! Guarantees: one task works at a time, on the CPU of the driver, and the next
//! one begins when it has finished. Whatever ends the replay, no process of it is
//! left: they form one process group, whose leader (the keeper) takes it along when
//! the driver ends, and every stub looks now and then whether the keeper is there.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use super::LinuxError;
use super::files::ScratchFiles;
use super::memory::Shared;
use super::plan::{Ending, Plan, Step, TaskNumber};
use super::process::{describe, faults_so_far, is_running, mapped_range, spawn};
use super::protocol::{
    self, KEEPER, MODE_EMPTY, MODE_HUGE, MODE_SMALL, MODE_TIMED, Slot, TIMES, op,
};
use super::sys;
use crate::host::HostError;
use crate::replay::Class;
use vellum_terminal::job::{self, Job};
use vellum_terminal::progress::Interrupt;

/// How long a wait goes on before the driver looks whether all is well.
const WATCH: Duration = Duration::from_millis(100);

/// Ended processes after which the keeper takes leave of its orphans.
const REAP_AFTER: u32 = 512;

/// Steps between which the driver looks whether the user wants to stop.
const STEPS_AT_ONCE: usize = 256;

/// Share of the operations that the host may refuse.
const REFUSED_LIMIT: f64 = 0.01;

/// What the tree does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Everything.
    Full,
    /// The same processes, with the same batches, without memory operations.
    Empty,
    /// Everything, with huge pages where they fit into private memory, as far as the host is set
    /// to give them on request.
    Huge,
    /// Everything, with as many calls as [`Mode::Huge`], which ask for no huge pages.
    Small,
}

/// Time of one class of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Time {
    /// CPU time, one reading of the clock in each interval, in nanoseconds.
    pub ns: u64,
    /// Intervals.
    pub intervals: u64,
    /// Operations.
    pub ops: u64,
}

/// What a replay took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// CPU time of all processes, user and system, in nanoseconds.
    pub cpu_ns: u64,
    /// Page faults of all processes.
    pub faults: u64,
    /// Elapsed time in nanoseconds.
    pub wall_ns: u64,
    /// Operations that the host refused.
    pub refused: u64,
    /// Batches handed over.
    pub batches: u64,
    /// By class, and what has none; zero if not asked for.
    pub times: [Time; TIMES],
}

/// Replays `plan`. `timed`: with time by class. `step` is told the steps done.
///
/// # Errors
/// A process could not go on, or the user interrupts. Nothing is left behind.
pub fn replay(
    plan: &Plan,
    files: &ScratchFiles,
    mode: Mode,
    timed: bool,
    interrupt: &Interrupt,
    step: &mut dyn FnMut(u64),
) -> Result<Replayed, LinuxError> {
    if interrupt.requested() {
        return Err(LinuxError::Interrupted);
    }
    files.reset()?;
    let flags = match mode {
        Mode::Full => 0,
        Mode::Empty => MODE_EMPTY,
        Mode::Huge => MODE_HUGE,
        Mode::Small => MODE_SMALL,
    };
    let flags = flags | if timed { MODE_TIMED } else { 0 };
    let mut tree = Tree::start(plan, files, flags, interrupt)?;
    let begun = Instant::now();
    for some in plan.steps.chunks(STEPS_AT_ONCE) {
        if interrupt.requested() {
            return Err(LinuxError::Interrupted);
        }
        some.iter().try_for_each(|one| tree.step(one))?;
        step(some.len() as u64);
    }
    tree.finish(begun)
}

/// A living task.
#[derive(Clone, Copy)]
struct Live {
    slot: u32,
    /// Its thread id.
    tid: u32,
    /// Number of its last batch.
    turn: u32,
    /// The task that leads its process.
    leader: TaskNumber,
    /// Who goes on when it has left its memory.
    releases: Option<TaskNumber>,
}

struct Tree<'p> {
    plan: &'p Plan,
    shared: Shared,
    flags: u32,
    interrupt: &'p Interrupt,
    /// By task; the keeper is the last.
    live: Vec<Option<Live>>,
    /// Process ids by task, kept after its end for whoever waits.
    processes: Vec<u32>,
    /// Living tasks of a process, by leader.
    members: Vec<u32>,
    ended: u32,
    next_wait: usize,
    words: Vec<u64>,
    result: Replayed,
    first_refused: Option<String>,
    keeper: [Job; 1],
    keeper_began_ns: u64,
    keeper_began_faults: u64,
}

impl<'p> Tree<'p> {
    /// Starts the keeper.
    fn start(
        plan: &'p Plan,
        files: &ScratchFiles,
        flags: u32,
        interrupt: &'p Interrupt,
    ) -> Result<Tree<'p>, LinuxError> {
        let mut shared = Shared::new(plan.most_tasks)?;
        let slot = shared.take()?;
        debug_assert_eq!(slot, KEEPER);
        let header = shared.slot(slot);
        header.mode.store(flags, Relaxed);
        header.driver.store(std::process::id(), Relaxed);
        header.turn.store(1, Release);
        let keeper = spawn(&shared, files)?;
        let tasks = plan.keeper as usize + 1;
        let mut tree = Tree {
            plan,
            shared,
            flags,
            interrupt,
            live: vec![None; tasks],
            processes: vec![0; tasks],
            members: vec![0; tasks],
            ended: 0,
            next_wait: 0,
            words: Vec::with_capacity(protocol::RING_WORDS),
            result: Replayed::default(),
            first_refused: None,
            keeper: [keeper],
            keeper_began_ns: 0,
            keeper_began_faults: 0,
        };
        let pid = tree.keeper[0].pid();
        tree.processes[plan.keeper as usize] = pid;
        tree.live[plan.keeper as usize] = Some(Live {
            slot,
            tid: pid,
            turn: 1,
            leader: plan.keeper,
            releases: None,
        });
        tree.await_done(plan.keeper)?;
        // What went before is the start of any program.
        tree.keeper_began_ns = sys::cpu_ns(pid).unwrap_or(0);
        tree.keeper_began_faults = faults_so_far(pid);
        Ok(tree)
    }

    fn of(&self, task: TaskNumber) -> Result<Live, LinuxError> {
        self.live[task as usize].ok_or_else(|| self.stopped(task, "it is not there".into()))
    }

    fn stopped(&self, task: TaskNumber, what: String) -> LinuxError {
        LinuxError::Stopped {
            task,
            process: self.processes[task as usize],
            what,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), LinuxError> {
        self.words.clear();
        let words = &self.plan.words[step.words.clone()];
        self.words.extend_from_slice(words);
        while let Some(&(place, child)) = self.plan.waits.get(self.next_wait)
            && place < step.words.end
        {
            self.words[place - step.words.start] = u64::from(self.processes[child as usize]);
            self.next_wait += 1;
        }
        match &step.ending {
            Ending::Waits => self.run(step.task),
            Ending::Creates {
                child,
                class,
                process,
                vfork,
            } => self.create(step.task, *child, *class, *process, *vfork),
            Ending::Executes { ends } => self.execute(step.task, ends),
            Ending::Exits => self.exit(step.task),
        }
    }

    /// Hands `task` the words at hand.
    fn hand_over(&mut self, task: TaskNumber) -> Result<(), LinuxError> {
        let words = std::mem::take(&mut self.words);
        self.shared.fill_ring(&words);
        let count = words.len() as u32;
        self.words = words;
        let mut live = self.of(task)?;
        live.turn += 1;
        self.live[task as usize] = Some(live);
        let slot = self.shared.slot(live.slot);
        slot.words.store(count, Relaxed);
        slot.turn.store(live.turn, Release);
        sys::wake(&slot.turn);
        self.result.batches += 1;
        Ok(())
    }

    /// Waits until `task` has done its batch.
    fn await_done(&self, task: TaskNumber) -> Result<(), LinuxError> {
        let live = self.of(task)?;
        let slot = self.shared.slot(live.slot);
        loop {
            let done = slot.done.load(Acquire);
            self.check(task, slot)?;
            if done == live.turn {
                return Ok(());
            }
            sys::wait(&slot.done, done, WATCH);
            if slot.done.load(Acquire) == done {
                self.all_well(task)?;
            }
        }
    }

    /// Nothing happened for a while: is there anything to wait for?
    fn all_well(&self, task: TaskNumber) -> Result<(), LinuxError> {
        if self.interrupt.requested() {
            return Err(LinuxError::Interrupted);
        }
        for watched in [self.plan.keeper, task] {
            if self.is_gone(watched) {
                return Err(self.killed(watched));
            }
        }
        Ok(())
    }

    /// Whether neither the task nor its process is there any more. One of them
    /// is not enough: a thread that executes a program takes its process's id,
    /// and the first thread of a process may end before the others.
    fn is_gone(&self, task: TaskNumber) -> bool {
        let Some(live) = self.live[task as usize] else {
            return false;
        };
        let ids = [live.tid, self.processes[live.leader as usize]];
        ids != [0, 0] && ids.iter().all(|&id| id == 0 || !is_running(id))
    }

    fn killed(&self, task: TaskNumber) -> LinuxError {
        let what = "its process has ended or was killed (is there enough memory?)";
        self.stopped(task, what.into())
    }

    /// Whether the stub of `task` has given up.
    fn check(&self, task: TaskNumber, slot: &Slot) -> Result<(), LinuxError> {
        let why = slot.fatal.load(Acquire);
        if why == 0 {
            return Ok(());
        }
        let error = std::io::Error::from_raw_os_error(slot.failed_error.load(Relaxed) as i32);
        let what = match why {
            protocol::FATAL_COLLISION => return Err(self.collision(task, slot)),
            protocol::FATAL_UNMAP => {
                format!("what the kernel mapped at execve cannot be unmapped: {error}")
            }
            protocol::FATAL_EXEC => format!("execve of the stub: {error}"),
            protocol::FATAL_CREATE => format!("clone: {error}"),
            protocol::FATAL_SETUP => format!("setting up signals or the tree: {error}"),
            _ => "the plan has an operation that the stub does not know".into(),
        };
        Err(self.stopped(task, what))
    }

    /// A mapping found something in its place: what?
    fn collision(&self, task: TaskNumber, slot: &Slot) -> LinuxError {
        let page = protocol::page_of(slot.failed_words[0].load(Relaxed));
        let pages = slot.failed_words[1].load(Relaxed);
        let wanted = (page << 12, page.saturating_add(pages) << 12);
        let tid = self.live[task as usize].map_or(0, |live| live.tid);
        let maps = std::fs::read_to_string(format!("/proc/{tid}/maps")).unwrap_or_default();
        let found = maps.lines().filter_map(mapped_range);
        let mut found = found.filter(|(start, end, _)| *start < wanted.1 && *end > wanted.0);
        let (start, end, name) = found.next().unwrap_or((0, 0, "unknown".into()));
        LinuxError::Collision {
            what: format!("a mapping of task {task} of the trace"),
            wanted,
            found: (start, end),
            name,
        }
    }

    fn run(&mut self, task: TaskNumber) -> Result<(), LinuxError> {
        self.hand_over(task)?;
        self.await_done(task)
    }

    fn create(
        &mut self,
        task: TaskNumber,
        child: TaskNumber,
        class: Class,
        process: bool,
        vfork: bool,
    ) -> Result<(), LinuxError> {
        let slot = self.shared.take()?;
        let header = self.shared.slot(slot);
        header.mode.store(self.flags, Relaxed);
        header.birth.store(class as u32, Relaxed);
        header.turn.store(1, Release);
        if let Some(last) = self.words.last_mut() {
            *last = slot.into();
        }
        self.hand_over(task)?;
        let leader = if process {
            child
        } else {
            self.of(task)?.leader
        };
        self.live[child as usize] = Some(Live {
            slot,
            tid: 0,
            turn: 1,
            leader,
            releases: vfork.then_some(task),
        });
        self.await_birth(task, child)?;
        let tid = self.shared.slot(slot).tid.load(Acquire);
        if let Some(live) = &mut self.live[child as usize] {
            live.tid = tid;
        }
        if process {
            self.processes[child as usize] = tid;
        }
        self.members[leader as usize] += 1;
        match vfork {
            true => Ok(()),
            false => self.await_done(task),
        }
    }

    /// Waits until `child` is there, or `parent` could not create it.
    fn await_birth(&self, parent: TaskNumber, child: TaskNumber) -> Result<(), LinuxError> {
        let (parents, childs) = (self.of(parent)?, self.of(child)?);
        let turn = parents.turn;
        let (parents, childs) = (
            self.shared.slot(parents.slot),
            self.shared.slot(childs.slot),
        );
        while childs.done.load(Acquire) == 0 {
            self.check(parent, parents)?;
            sys::wait(&childs.done, 0, WATCH);
            // A parent that has done its batch has created the child, and after
            // vfork the child has even left its memory.
            let created = parents.done.load(Acquire) == turn;
            let id = childs.tid.load(Acquire);
            let is_there = id != 0 && is_running(id);
            if childs.done.load(Acquire) == 0 {
                self.check(parent, parents)?;
                self.all_well(parent)?;
                if created && !is_there {
                    return Err(self.killed(child));
                }
            }
        }
        Ok(())
    }

    fn execute(&mut self, task: TaskNumber, ends: &[TaskNumber]) -> Result<(), LinuxError> {
        self.run(task)?;
        let live = self.of(task)?;
        let leader = live.leader;
        for &other in ends {
            self.forget(other);
        }
        self.members[leader as usize] = 1;
        if let Some(state) = &mut self.live[task as usize] {
            state.tid = self.shared.slot(live.slot).tid.load(Acquire);
        }
        self.release(task)
    }

    /// Who waited in vfork for `task` goes on.
    fn release(&mut self, task: TaskNumber) -> Result<(), LinuxError> {
        let state = self.live[task as usize].as_mut();
        match state.and_then(|live| live.releases.take()) {
            Some(parent) if self.live[parent as usize].is_some() => self.await_done(parent),
            _ => Ok(()),
        }
    }

    fn exit(&mut self, task: TaskNumber) -> Result<(), LinuxError> {
        let live = self.of(task)?;
        let process = self.processes[live.leader as usize];
        let last = self.members[live.leader as usize] <= 1;
        let end = match last {
            true => Some(sys::pidfd(process).map_err(LinuxError::io("watching a process"))?),
            false => None,
        };
        self.hand_over(task)?;
        self.await_end(task, live, end.as_ref())?;
        if self.flags & MODE_TIMED != 0 {
            let slot = self.shared.slot(live.slot);
            let before = slot.clock.load(Relaxed);
            let after = sys::cpu_ns(process).unwrap_or(before);
            let time = &mut self.result.times[Class::Exit as usize];
            time.ns += after.saturating_sub(before);
            time.intervals += 1;
        }
        self.release(task)?;
        self.forget(task);
        let members = &mut self.members[live.leader as usize];
        *members = members.saturating_sub(1);
        self.ended += 1;
        if self.ended.is_multiple_of(REAP_AFTER) {
            self.words.clear();
            self.words
                .push(protocol::word(op::REAP, TIMES as u8 - 1, 0, 0));
            self.run(self.plan.keeper)?;
        }
        Ok(())
    }

    /// Waits until `task` has ended: its whole process, if it is the last in it;
    /// else until the kernel has cleared its id.
    fn await_end(
        &self,
        task: TaskNumber,
        live: Live,
        end: Option<&OwnedFd>,
    ) -> Result<(), LinuxError> {
        let slot = self.shared.slot(live.slot);
        loop {
            let over = match end {
                Some(end) => sys::readable(end, WATCH),
                None => {
                    let tid = slot.tid.load(Acquire);
                    if tid != 0 {
                        sys::wait(&slot.tid, tid, WATCH);
                    }
                    slot.tid.load(Acquire) == 0
                }
            };
            // The kernel clears the id only for others that share its memory.
            if over || (end.is_none() && self.is_gone(task)) {
                return Ok(());
            }
            self.check(task, slot)?;
            if self.interrupt.requested() {
                return Err(LinuxError::Interrupted);
            }
        }
    }

    /// Takes what the task has counted, and its slot.
    fn forget(&mut self, task: TaskNumber) {
        let Some(live) = self.live[task as usize].take() else {
            return;
        };
        let slot = self.shared.slot(live.slot);
        let refused = slot.failed.load(Relaxed);
        if refused > 0 && self.first_refused.is_none() {
            self.first_refused = Some(describe(slot));
        }
        self.result.refused += refused;
        for (sum, time) in self.result.times.iter_mut().zip(&slot.times) {
            sum.ns += time.ns.load(Relaxed);
            sum.intervals += time.intervals.load(Relaxed);
            sum.ops += time.ops.load(Relaxed);
        }
        self.shared.give_back(live.slot);
    }

    /// The keeper waits for everyone and ends.
    fn finish(mut self, begun: Instant) -> Result<Replayed, LinuxError> {
        self.words.clear();
        self.words
            .push(protocol::word(op::QUIT, TIMES as u8 - 1, 0, 0));
        self.hand_over(self.plan.keeper)?;
        let mut status = None;
        job::finish(&mut self.keeper, self.interrupt, |_, ended| {
            status = Some(*ended);
            Ok::<(), HostError>(())
        })?;
        let Some(ended) = status.filter(|ended| ended.status.success()) else {
            let what = format!("the first process of the tree ended: {status:?}");
            return Err(self.stopped(self.plan.keeper, what));
        };
        self.forget(self.plan.keeper);
        let mut result = self.result;
        let usage = ended.usage;
        let all = ((usage.user_s + usage.system_s) * 1e9).round() as u64;
        result.cpu_ns = all.saturating_sub(self.keeper_began_ns);
        result.faults = usage.faults.saturating_sub(self.keeper_began_faults);
        result.wall_ns = begun.elapsed().as_nanos() as u64;
        match result.refused as f64 > REFUSED_LIMIT * self.plan.ops.max(1) as f64 {
            false => Ok(result),
            true => Err(LinuxError::Refused {
                failed: result.refused,
                ops: self.plan.ops,
                first: self.first_refused.unwrap_or_default(),
            }),
        }
    }
}
