//! From the kernel's records to the events of a trace.
//!
//! The records come in order of time. A task is known by its thread id from its
//! creation to its exit; ids that are used again get a new [`TaskId`]. Records
//! from before the command's `exec`, and of tasks that do not descend from it,
//! are passed over; or, if the records come from elsewhere, every task counts.

mod io;
mod maps;
mod running;
mod stopwatch;
mod tasks;

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use crate::accesses::Used;
use crate::error::RecordError;
use crate::files::Files;
use crate::raw::{Body, Record};
use crate::sample::{Identity, Sample, Transfer};
use crate::sink::Sink;
use crate::syscalls::{self, Call, Unseen, number};
use crate::tracepoint::Layout;
use crate::transfers;
use stopwatch::Stopwatch;
use vellum_trace::{Access, Event, EventKind, FileId, TaskId};

const PAGE: u64 = 4096;
/// User addresses end here, with four or five levels of page tables.
const USER_END: u64 = 1 << 56;
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;

/// Bits of a page fault's error code on x86.
const FAULT_PRESENT: u64 = 1;
const FAULT_WRITE: u64 = 2;
const FAULT_FETCH: u64 = 16;

/// A live task.
struct Live {
    id: TaskId,
    process: u32,
    call: Call,
    /// Its creator, until its creation was written.
    unborn: Option<Creator>,
    /// The file whose pages it is dropping from the page cache.
    dropping: Option<FileId>,
    /// Pages looked up for a read whose length is not known yet.
    reading: Option<Reading>,
    /// It runs a program of 32 bits. Its system calls have other numbers, and are passed
    /// over.
    narrow: bool,
    /// Files on tmpfs that the call that began last reads or writes: the first and the
    /// second that it names.
    transfers: [Option<Transfer>; 2],
}

/// Who created a task.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Creator {
    task: TaskId,
    tid: u32,
}

/// A read in progress.
#[derive(Clone, Copy)]
struct Reading {
    file: FileId,
    /// Bytes: where the first page begins and where the last one asked for ends.
    offset: u64,
    end: u64,
}

impl Live {
    fn new(id: TaskId, process: u32, unborn: Option<Creator>) -> Live {
        Live {
            id,
            process,
            call: Call::None,
            unborn,
            dropping: None,
            reading: None,
            narrow: false,
            transfers: [None; 2],
        }
    }
}

/// Whose records count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// Those of this process and its descendants, from its `exec` on.
    Command(u32),
    /// Those of processes that ran when the recording began, and of their descendants.
    Running,
    /// Everybody's, from the first record on.
    Everyone,
}

/// Translates records and writes the events.
pub struct Translator<'a> {
    layouts: &'a [Layout],
    sink: &'a mut dyn Sink,
    scope: Scope,
    live: HashMap<u32, Live>,
    /// Threads of each process that are alive.
    threads: HashMap<u32, Vec<u32>>,
    /// The task that ended last under an id.
    ended: HashMap<u32, TaskId>,
    /// The child that a task created last, until its flags are known.
    newborn: HashMap<u32, u32>,
    /// The children of each live task; their creation may not have been written.
    owed: HashMap<TaskId, Vec<u32>>,
    names: HashMap<String, u32>,
    /// Processes whose state has not been read yet: what they do to their memory is in it.
    unread: HashSet<u32>,
    files: Files,
    /// Lengths of attached shared-memory segments, by process and address.
    attached: HashMap<(u32, u64), u64>,
    /// How long tasks run, if the trace is to have CPU times.
    stopwatch: Option<Stopwatch>,
    began_ns: Option<u64>,
    /// Nanoseconds from the beginning to the last record.
    now_ns: u64,
    /// Microseconds that all tasks ran.
    ran_us: u64,
    unseen: Unseen,
    /// Calls are known by their names, which programs of 32 bits share.
    named_calls: bool,
    lost: u64,
    late: u64,
}

/// What the translation noticed besides events.
pub struct Noticed {
    /// Events that the kernel dropped.
    pub lost: u64,
    /// Tasks that had not ended when the recording did.
    pub still_running: u64,
    /// Microseconds that all tasks ran, as far as that is known.
    pub ran_us: u64,
    pub unseen: Unseen,
}

impl<'a> Translator<'a> {
    /// A translator for the command whose process id is `root`. If the sink's
    /// header announces CPU times, it takes them from the records of context
    /// switches.
    pub fn new(layouts: &'a [Layout], sink: &'a mut dyn Sink, root: u32) -> Self {
        let mut translator = Self::with_scope(layouts, sink, Scope::Command(root));
        translator.adopt(root, root);
        translator
    }

    /// A translator for all tasks, of records whose times count from the
    /// beginning of the trace. A task whose creation is not among the records
    /// was there from the start.
    pub fn of_everyone(sink: &'a mut dyn Sink) -> Self {
        let mut translator = Self::with_scope(&[], sink, Scope::Everyone);
        translator.began_ns = Some(0);
        translator
    }

    fn with_scope(layouts: &'a [Layout], sink: &'a mut dyn Sink, scope: Scope) -> Self {
        let stopwatch = sink.header_mut().cpu_times.then(Stopwatch::default);
        Translator {
            layouts,
            sink,
            scope,
            live: HashMap::new(),
            threads: HashMap::new(),
            ended: HashMap::new(),
            newborn: HashMap::new(),
            owed: HashMap::new(),
            names: HashMap::new(),
            unread: HashSet::new(),
            files: Files::default(),
            attached: HashMap::new(),
            stopwatch,
            began_ns: None,
            now_ns: 0,
            ran_us: 0,
            unseen: Unseen::default(),
            named_calls: false,
            lost: 0,
            late: 0,
        }
    }

    /// Ends the translation: settles the file table. `began` is when the
    /// command started; `None`: files cannot be looked at any more, and as long
    /// as a mapping of them is all of it is theirs.
    pub fn finish(self, began: Option<SystemTime>) -> Noticed {
        self.files.settle(&mut self.sink.header_mut().files, began);
        Noticed {
            lost: self.lost,
            still_running: self.live.len() as u64,
            ran_us: self.ran_us + self.stopwatch.map_or(0, |watch| watch.untold_us()),
            unseen: self.unseen,
        }
    }

    /// Whether the task is known and has not ended.
    pub fn is_live(&self, tid: u32) -> bool {
        self.live.contains_key(&tid)
    }

    /// The process of a live task.
    pub fn process_of(&self, tid: u32) -> Option<u32> {
        self.live.get(&tid).map(|live| live.process)
    }

    /// Records of tasks that had ended; nothing came of them.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The mappings that are reported next were there from the start.
    pub fn expect_first_maps(&mut self, pid: u32, tid: u32) {
        if !self.ended.contains_key(&tid) {
            self.adopt(pid, tid);
            self.set_call(tid, Call::Exec);
        }
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        if let Scope::Command(root) = self.scope {
            let begins = matches!(record.body, Body::Comm { exec: true, .. });
            if begins && record.tid == root && self.began_ns.is_none() {
                self.began_ns = Some(record.time_ns);
                let live = self.live.get(&root);
                if let (Some(stopwatch), Some(live)) = (&mut self.stopwatch, live) {
                    stopwatch.runs_from_the_start(live.id);
                }
            }
        }
        if let Body::Lost { count } = record.body {
            self.lost = self.lost.saturating_add(count);
        }
        let Some(began) = self.began_ns else {
            return Ok(());
        };
        self.now_ns = self.now_ns.max(record.time_ns.saturating_sub(began));
        if self.scope == Scope::Everyone && !self.welcome(record) {
            self.late += 1;
            return Ok(());
        }
        self.keep_time(record);
        match &record.body {
            Body::Fork { ptid } => self.fork(record.pid, record.tid, *ptid),
            Body::Comm { name, exec: true } => {
                self.end_reading(record.tid, None)?;
                self.exec(record, name)
            }
            Body::Mmap(mmap) => self.mmap(record.tid, mmap),
            Body::Exit => self.exit(record.tid),
            Body::Sample { id, raw } if *id == transfers::MARK => {
                self.sample(record.tid, &transfers::decode(raw)?)
            }
            Body::Sample { id, raw } => {
                let layouts = self.layouts;
                match layouts.iter().find(|layout| layout.id == *id) {
                    Some(layout) => self.sample(record.tid, &Sample::decode(layout, raw)?),
                    None => Err(RecordError::BadRecord(format!("event number {id}"))),
                }
            }
            Body::Event(sample) => self.sample(record.tid, sample),
            Body::Comm { .. } | Body::SwitchIn | Body::SwitchOut => Ok(()),
            Body::Lost { .. } | Body::Other => Ok(()),
        }
    }

    /// Takes a sample of accessed marks, in its place among the records.
    pub(crate) fn accessed(&mut self, used: &Used) -> Result<(), RecordError> {
        let Some(since) = self
            .began_ns
            .and_then(|began| used.time_ns.checked_sub(began))
        else {
            return Ok(());
        };
        let thread = self
            .threads
            .get(&used.pid)
            .and_then(|threads| threads.first());
        let Some(&tid) = thread else {
            return Ok(());
        };
        self.deliver(tid)?;
        let Some(task) = self.live.get(&tid).map(|live| live.id) else {
            return Ok(());
        };
        for &(page, pages) in &used.runs {
            self.sink.push(&Event {
                time_us: since / 1000,
                task,
                kind: EventKind::Accessed {
                    address: page * PAGE,
                    length: pages * PAGE,
                },
                ran_us: None,
            })?;
        }
        Ok(())
    }

    /// Tells the stopwatch what the record says about its task.
    fn keep_time(&mut self, record: &Record<'_>) {
        let Some(stopwatch) = &mut self.stopwatch else {
            return;
        };
        if let Body::Lost { .. } = record.body {
            stopwatch.lost();
        }
        let Some(task) = self.live.get(&record.tid).map(|live| live.id) else {
            return;
        };
        match record.body {
            Body::SwitchIn => stopwatch.switched_in(task, self.now_ns),
            Body::SwitchOut => stopwatch.switched_out(task, self.now_ns),
            // The creator made the first; the second can be on any CPU.
            Body::Fork { .. } | Body::Lost { .. } | Body::Other => {}
            _ => stopwatch.acts(task, self.now_ns),
        }
    }

    /// Makes sure that the record's task is known. False if it has ended.
    fn welcome(&mut self, record: &Record<'_>) -> bool {
        let (pid, tid) = (record.pid, record.tid);
        match record.body {
            Body::Fork { .. } | Body::Lost { .. } | Body::Other => return true,
            Body::SwitchIn | Body::SwitchOut => return true,
            Body::Comm { exec: false, .. } => return true,
            _ if self.live.contains_key(&tid) => return true,
            // A thread takes over its process's first id.
            Body::Comm { exec: true, .. } if self.threads.contains_key(&pid) => return true,
            _ if self.ended.contains_key(&tid) => return false,
            _ => self.adopt(pid, tid),
        }
        true
    }

    /// Writes an event of a live task, after its creation.
    fn emit(&mut self, tid: u32, kind: EventKind) -> Result<(), RecordError> {
        let Some((task, process)) = self.live.get(&tid).map(|live| (live.id, live.process)) else {
            return Ok(());
        };
        let is_of_tasks = matches!(
            kind,
            EventKind::Create { .. } | EventKind::Exit | EventKind::Wait { .. }
        );
        if !is_of_tasks && self.unread.contains(&process) {
            return Ok(());
        }
        self.deliver(tid)?;
        self.write(task, kind)
    }

    /// Writes the creation of a live task, if that was not done, after that of
    /// its creator. The flags were lost: a member of its creator's process is a
    /// thread.
    fn deliver(&mut self, mut tid: u32) -> Result<(), RecordError> {
        let mut owed = Vec::new();
        while let Some(live) = self.live.get_mut(&tid)
            && let Some(creator) = live.unborn.take()
        {
            owed.push((creator.task, live.id));
            tid = creator.tid;
        }
        for (parent, child) in owed.into_iter().rev() {
            let tasks = &self.sink.header_mut().tasks;
            let thread = tasks[child.0 as usize].process == tasks[parent.0 as usize].process;
            let clone_flags = if thread { CLONE_VM | CLONE_THREAD } else { 0 };
            self.write(parent, EventKind::Create { child, clone_flags })?;
        }
        Ok(())
    }

    fn write(&mut self, task: TaskId, kind: EventKind) -> Result<(), RecordError> {
        let stopwatch = self.stopwatch.as_mut();
        let ran_us = stopwatch.and_then(|stopwatch| stopwatch.read(task, self.now_ns));
        self.ran_us += ran_us.unwrap_or(0);
        self.sink.push(&Event {
            time_us: self.now_ns / 1000,
            task,
            kind,
            ran_us,
        })?;
        Ok(())
    }

    fn sample(&mut self, tid: u32, sample: &Sample<'_>) -> Result<(), RecordError> {
        match *sample {
            Sample::Fault {
                address,
                code,
                kernel,
            } => {
                if !kernel {
                    self.end_reading(tid, None)?;
                    self.set_call(tid, Call::None);
                    self.forget_transfers(tid);
                }
                self.fault(tid, address, code, kernel)
            }
            Sample::Enter { .. } | Sample::Exit { .. } | Sample::Transfer(_)
                if self.is_narrow(tid) =>
            {
                self.set_call(tid, Call::None);
                Ok(())
            }
            Sample::Enter { number, args } => {
                self.end_reading(tid, None)?;
                let call = Call::begin(number, args, &mut self.unseen);
                self.set_call(tid, call);
                Ok(())
            }
            Sample::Exit { number, result } => {
                let read = match syscalls::failed(result) {
                    true => 0,
                    false => result,
                };
                self.end_reading(tid, syscalls::reads(number).then_some(read))?;
                self.end_transfers(tid, number, result)?;
                self.call_ended(tid, number, result)
            }
            Sample::NewTask { clone_flags } => self.created(tid, clone_flags),
            Sample::Transfer(transfer) => {
                self.begin_transfer(tid, transfer);
                Ok(())
            }
            _ => self.file_sample(tid, sample),
        }
    }

    /// From now on calls come by their names, and a number stands for what it stands for in
    /// programs of 64 bits, whoever calls.
    pub fn calls_by_name(&mut self) {
        self.named_calls = true;
    }

    fn is_narrow(&self, tid: u32) -> bool {
        !self.named_calls && self.live.get(&tid).is_some_and(|live| live.narrow)
    }

    fn set_call(&mut self, tid: u32, call: Call) {
        if let Some(live) = self.live.get_mut(&tid) {
            live.call = call;
            live.dropping = None;
        }
    }

    fn fault(
        &mut self,
        tid: u32,
        address: u64,
        code: u64,
        kernel: bool,
    ) -> Result<(), RecordError> {
        if address >= USER_END {
            return Ok(());
        }
        let access = if code & FAULT_FETCH != 0 {
            Access::Execute
        } else if code & FAULT_WRITE != 0 {
            Access::Write
        } else {
            Access::Read
        };
        let kind = EventKind::Fault {
            address: address & !(PAGE - 1),
            access,
            kernel,
            present: code & FAULT_PRESENT != 0,
        };
        self.emit(tid, kind)
    }

    fn call_ended(&mut self, tid: u32, number: u64, result: u64) -> Result<(), RecordError> {
        let Some(live) = self.live.get_mut(&tid) else {
            return Ok(());
        };
        let (call, process) = (std::mem::take(&mut live.call), live.process);
        live.dropping = None;
        if syscalls::failed(result) {
            return Ok(());
        }
        match (number, call) {
            (number::WAIT4, _) if result > 0 => match self.ended.get(&(result as u32)) {
                // Ids count as the caller's namespace numbers them; a stopped
                // child has not ended.
                Some(&child) => self.emit(tid, EventKind::Wait { child }),
                None => Ok(()),
            },
            // `exec` has told of itself; this only ended the call.
            (number::EXECVE | number::EXECVEAT, _) => Ok(()),
            (number::SHMDT, Call::Range { args }) => {
                match self.attached.remove(&(process, args[0])) {
                    Some(length) => self.emit(
                        tid,
                        EventKind::Unmap {
                            address: args[0],
                            length,
                        },
                    ),
                    None => Ok(()),
                }
            }
            _ => {
                if let Call::Attach {
                    segment: Some(segment),
                } = call
                {
                    self.attached.insert((process, result), segment.length);
                }
                match call.outcome(number, result, &mut self.unseen) {
                    Some(kind) => self.emit(tid, kind),
                    None => Ok(()),
                }
            }
        }
    }
}
