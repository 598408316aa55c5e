//! From the kernel's records to the events of a trace.
//!
//! The records come in order of time. A task is known by its thread id from its
//! creation to its exit; ids that are used again get a new [`TaskId`]. Records
//! from before the command's `exec`, and of tasks that do not descend from it,
//! are passed over.

use std::collections::HashMap;
use std::time::SystemTime;

use super::error::RecordError;
use super::files::Files;
use super::raw::{Body, Mmap, Record};
use super::syscalls::{self, Call, Segment, Unseen, number};
use super::tracepoint::{Layout, Tracepoint};
use crate::trace::{Access, Event, EventKind, FileId, MapOrigin, Prot, Task, TaskId, TraceWriter};

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
    unborn: Option<TaskId>,
    /// The file whose pages it is dropping from the page cache.
    dropping: Option<FileId>,
    /// Pages looked up for a read whose length is not known yet.
    reading: Option<Reading>,
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
    fn new(id: TaskId, process: u32, unborn: Option<TaskId>) -> Live {
        Live {
            id,
            process,
            call: Call::None,
            unborn,
            dropping: None,
            reading: None,
        }
    }
}

/// Translates records and writes the events.
pub struct Translator<'a> {
    layouts: &'a [Layout],
    writer: &'a mut TraceWriter,
    live: HashMap<u32, Live>,
    /// Threads of each process that are alive.
    threads: HashMap<u32, Vec<u32>>,
    /// The task that ended last under an id.
    ended: HashMap<u32, TaskId>,
    /// The child that a task created last, until its flags are known.
    newborn: HashMap<u32, u32>,
    names: HashMap<String, u32>,
    files: Files,
    /// Lengths of attached shared-memory segments, by process and address.
    attached: HashMap<(u32, u64), u64>,
    root: u32,
    began_ns: Option<u64>,
    last_us: u64,
    unseen: Unseen,
    lost: u64,
}

/// What the translation noticed besides events.
pub struct Noticed {
    /// Events that the kernel dropped.
    pub lost: u64,
    /// Tasks that had not ended when the recording did.
    pub still_running: u64,
    pub unseen: Unseen,
}

impl<'a> Translator<'a> {
    /// A translator for the command whose process id is `root`.
    pub fn new(layouts: &'a [Layout], writer: &'a mut TraceWriter, root: u32) -> Self {
        writer.header_mut().tasks.push(Task {
            pid: root,
            process: root,
            parent: None,
        });
        let live = Live::new(TaskId(0), root, None);
        Translator {
            layouts,
            writer,
            live: HashMap::from([(root, live)]),
            threads: HashMap::from([(root, vec![root])]),
            ended: HashMap::new(),
            newborn: HashMap::new(),
            names: HashMap::new(),
            files: Files::default(),
            attached: HashMap::new(),
            root,
            began_ns: None,
            last_us: 0,
            unseen: Unseen::default(),
            lost: 0,
        }
    }

    /// Ends the translation: settles the file table. `began` is when the
    /// command started.
    pub fn finish(self, began: SystemTime) -> Noticed {
        self.files
            .settle(&mut self.writer.header_mut().files, began);
        Noticed {
            lost: self.lost,
            still_running: self.live.len() as u64,
            unseen: self.unseen,
        }
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        let begins = matches!(record.body, Body::Comm { exec: true, .. });
        if begins && record.tid == self.root && self.began_ns.is_none() {
            self.began_ns = Some(record.time_ns);
        }
        if let Body::Lost { count } = record.body {
            self.lost += count;
        }
        let Some(began) = self.began_ns else {
            return Ok(());
        };
        let now = record.time_ns.saturating_sub(began) / 1000;
        self.last_us = self.last_us.max(now);
        match &record.body {
            Body::Fork { ptid } => self.fork(record.pid, record.tid, *ptid),
            Body::Comm { name, exec: true } => {
                self.end_reading(record.tid, None)?;
                return self.exec(record, name);
            }
            Body::Mmap(mmap) => return self.mmap(record.tid, mmap),
            Body::Exit => return self.exit(record.tid),
            Body::Sample { id, raw } => {
                let layouts = self.layouts;
                match layouts.iter().find(|layout| layout.id == *id) {
                    Some(layout) => return self.sample(record.tid, layout, raw),
                    None => return Err(RecordError::BadRecord(format!("event number {id}"))),
                }
            }
            Body::Comm { .. } | Body::Lost { .. } | Body::Other => {}
        }
        Ok(())
    }

    /// Writes an event of a live task, after its creation.
    fn emit(&mut self, tid: u32, kind: EventKind) -> Result<(), RecordError> {
        let Some(live) = self.live.get_mut(&tid) else {
            return Ok(());
        };
        let task = live.id;
        if let Some(parent) = live.unborn.take() {
            // Its flags were lost: a member of its creator's process is a thread.
            let process =
                |task: TaskId, header: &crate::trace::Header| header.tasks[task.0 as usize].process;
            let header = self.writer.header_mut();
            let thread = process(task, header) == process(parent, header);
            let clone_flags = if thread { CLONE_VM | CLONE_THREAD } else { 0 };
            self.write(
                parent,
                EventKind::Create {
                    child: task,
                    clone_flags,
                },
            )?;
        }
        self.write(task, kind)
    }

    fn write(&mut self, task: TaskId, kind: EventKind) -> Result<(), RecordError> {
        self.writer.push(&Event {
            time_us: self.last_us,
            task,
            kind,
        })?;
        Ok(())
    }

    fn fork(&mut self, pid: u32, tid: u32, ptid: u32) {
        let Some(parent) = self.live.get(&ptid).map(|live| live.id) else {
            return;
        };
        let tasks = &mut self.writer.header_mut().tasks;
        let id = TaskId(tasks.len() as u32);
        tasks.push(Task {
            pid: tid,
            process: pid,
            parent: Some(parent),
        });
        self.live.insert(tid, Live::new(id, pid, Some(parent)));
        self.threads.entry(pid).or_default().push(tid);
        self.newborn.insert(ptid, tid);
    }

    fn created(&mut self, ptid: u32, clone_flags: u64) -> Result<(), RecordError> {
        let newborn = self.newborn.remove(&ptid);
        let child = newborn.and_then(|tid| self.live.get_mut(&tid));
        match child.map(|live| (live.id, live.unborn.take())) {
            Some((child, Some(_))) => self.emit(ptid, EventKind::Create { child, clone_flags }),
            _ => Ok(()),
        }
    }

    fn exec(&mut self, record: &Record<'_>, name: &[u8]) -> Result<(), RecordError> {
        if !self.live.contains_key(&record.tid) {
            self.take_over(record.pid, record.tid);
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let strings = &mut self.writer.header_mut().strings;
        let index = *self.names.entry(name).or_insert_with_key(|name| {
            strings.push(name.clone());
            strings.len() as u32 - 1
        });
        if let Some(live) = self.live.get_mut(&record.tid) {
            live.call = Call::Exec;
        }
        self.emit(record.tid, EventKind::Exec { name: index })
    }

    /// A thread that executes a program becomes its process's first thread: the
    /// id is the first thread's, the task is the one survivor.
    fn take_over(&mut self, pid: u32, tid: u32) {
        let survivor = self.threads.get(&pid).and_then(|threads| threads.last());
        let Some(survivor) = survivor.copied() else {
            return;
        };
        if let Some(live) = self.live.remove(&survivor) {
            self.live.insert(tid, live);
            self.threads.insert(pid, vec![tid]);
        }
    }

    fn exit(&mut self, tid: u32) -> Result<(), RecordError> {
        self.end_reading(tid, None)?;
        self.emit(tid, EventKind::Exit)?;
        if let Some(live) = self.live.remove(&tid) {
            self.ended.insert(tid, live.id);
            if let Some(threads) = self.threads.get_mut(&live.process) {
                threads.retain(|thread| *thread != tid);
                if threads.is_empty() {
                    self.threads.remove(&live.process);
                }
            }
        }
        Ok(())
    }

    /// The file of a reported mapping; `None` for memory without one.
    fn mapped_file(&mut self, mmap: &Mmap<'_>) -> Option<FileId> {
        if mmap.inode == 0 || !mmap.name.starts_with(b"/") || mmap.name.starts_with(b"//anon") {
            return None;
        }
        let table = &mut self.writer.header_mut().files;
        let file = self
            .files
            .identify(table, syscalls::device(mmap), mmap.inode);
        let entry = &mut table[file.0 as usize];
        if entry.name.is_empty() {
            entry.name = String::from_utf8_lossy(mmap.name).into_owned();
        }
        Some(file)
    }

    fn mmap(&mut self, tid: u32, mmap: &Mmap<'_>) -> Result<(), RecordError> {
        // Growing stacks and heaps and changes of rights are reported here too,
        // and known from elsewhere.
        let Some(call) = self.live.get(&tid).map(|live| live.call) else {
            return Ok(());
        };
        if !matches!(call, Call::Exec | Call::Map { .. } | Call::Attach { .. }) {
            return Ok(());
        }
        let file = self.mapped_file(mmap);
        if let Some(file) = file {
            self.files.mapped(file, mmap.offset + mmap.length);
        }
        let live = self.live.get_mut(&tid).expect("looked up above");
        match (&mut live.call, file) {
            (Call::Exec, _) => {
                let event = exec_map(mmap, file);
                return self.emit(tid, event);
            }
            (Call::Map { file: slot, .. }, _) => *slot = file,
            (Call::Attach { segment }, Some(file)) => {
                *segment = Some(Segment {
                    length: mmap.length,
                    prot: Prot(mmap.prot as u8 & 7),
                    file,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, tid: u32, layout: &Layout, raw: &[u8]) -> Result<(), RecordError> {
        let field = |index| {
            let short = || RecordError::BadRecord(format!("a short {:?}", layout.point));
            layout.field(raw, index).ok_or_else(short)
        };
        match layout.point {
            Tracepoint::FaultUser => {
                self.end_reading(tid, None)?;
                self.set_call(tid, Call::None);
                self.fault(tid, field(0)?, field(1)?, false)
            }
            Tracepoint::FaultKernel => self.fault(tid, field(0)?, field(1)?, true),
            Tracepoint::SysEnter => {
                let mut args = [0; 6];
                for (index, arg) in args.iter_mut().enumerate() {
                    *arg = layout.word(raw, 1, index).unwrap_or(0);
                }
                self.end_reading(tid, None)?;
                let call = Call::begin(field(0)?, args, &mut self.unseen);
                self.set_call(tid, call);
                Ok(())
            }
            Tracepoint::SysExit => {
                let (number, result) = (field(0)?, field(1)?);
                self.end_reading(tid, syscalls::reads(number).then_some(result))?;
                self.call_ended(tid, number, result)
            }
            Tracepoint::NewTask => self.created(tid, field(0)?),
            _ => self.file_sample(tid, layout, raw),
        }
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

    fn file_sample(&mut self, tid: u32, layout: &Layout, raw: &[u8]) -> Result<(), RecordError> {
        let short = || RecordError::BadRecord(format!("a short {:?}", layout.point));
        let Some(live) = self.live.get(&tid) else {
            return Ok(());
        };
        let (call, dropping) = (live.call, live.dropping);
        let table = &mut self.writer.header_mut().files;
        if layout.point == Tracepoint::DirtyFolio {
            let name = layout.bytes(raw, 0).ok_or_else(short)?;
            let inode = layout.field(raw, 1).ok_or_else(short)?;
            let page = layout.field(raw, 2).ok_or_else(short)?;
            let Some(disk) = disk_number(name) else {
                return Ok(());
            };
            // Pages that a mapping dirtied are known from their faults.
            if call != Call::Write {
                return Ok(());
            }
            let file = self.files.identify_on_disk(table, disk, inode);
            let length = self.files.folio_pages(file, page) * PAGE;
            let offset = page * PAGE;
            self.files.written(file, offset + length);
            return self.emit(
                tid,
                EventKind::FileWrite {
                    file,
                    offset,
                    length,
                },
            );
        }
        let field = |index| layout.field(raw, index).ok_or_else(short);
        let file = self.files.identify(table, field(0)? as u32, field(1)?);
        let page = field(2)?;
        match layout.point {
            Tracepoint::AddToCache => {
                self.files.note_order(file, page, field(3)? as u8);
                Ok(())
            }
            Tracepoint::MapPages => {
                let last = field(3)?;
                self.files.used(file, (last + 1) * PAGE);
                self.emit(
                    tid,
                    EventKind::MapAround {
                        file,
                        first: page,
                        last,
                    },
                )
            }
            Tracepoint::GetPages => {
                let reading = Reading {
                    file,
                    offset: page * PAGE,
                    end: field(3)?.max(page + 1) * PAGE,
                };
                self.go_on_reading(tid, reading)
            }
            _ => self.dropped(tid, file, page, call, dropping),
        }
    }

    /// Pages were looked up for a read. What was asked for can lie past the end
    /// of the file; how much was read shows when the call ends.
    fn go_on_reading(&mut self, tid: u32, next: Reading) -> Result<(), RecordError> {
        let live = self.live.get_mut(&tid).expect("the caller looked it up");
        if let Some(reading) = &mut live.reading
            && reading.file == next.file
            && (reading.offset + PAGE..=reading.end).contains(&next.offset)
        {
            reading.end = reading.end.max(next.end);
            return Ok(());
        }
        self.end_reading(tid, None)?;
        if let Some(live) = self.live.get_mut(&tid) {
            live.reading = Some(next);
        }
        Ok(())
    }

    /// A read is over: `read` bytes, or unknown for reads by the kernel itself
    /// (program headers), which are short.
    fn end_reading(&mut self, tid: u32, read: Option<u64>) -> Result<(), RecordError> {
        let reading = self.live.get_mut(&tid).and_then(|live| live.reading.take());
        let Some(Reading { file, offset, end }) = reading else {
            return Ok(());
        };
        let length = (end - offset).min(read.unwrap_or(PAGE));
        self.files.used(file, offset + length);
        self.emit(
            tid,
            EventKind::FileRead {
                file,
                offset,
                length,
            },
        )
    }

    /// A page left the page cache. The first one of a file tells that its
    /// length was set: to the argument of `truncate`, or to 0 when the file was
    /// opened for truncation or removed. Anything else is reclaim.
    fn dropped(
        &mut self,
        tid: u32,
        file: FileId,
        page: u64,
        call: Call,
        dropping: Option<FileId>,
    ) -> Result<(), RecordError> {
        if dropping == Some(file) {
            return Ok(());
        }
        let size = match call {
            Call::Truncate { size } => size,
            _ if page == 0 => 0,
            _ => return Ok(()),
        };
        if let Some(live) = self.live.get_mut(&tid) {
            live.dropping = Some(file);
        }
        self.files.truncated(file, size);
        self.emit(tid, EventKind::Truncate { file, size })
    }
}

/// A mapping that the kernel made while it executed a program.
fn exec_map(mmap: &Mmap<'_>, file: Option<FileId>) -> EventKind {
    EventKind::Map {
        address: mmap.address,
        length: mmap.length,
        prot: Prot(mmap.prot as u8 & 7),
        shared: mmap.flags & libc::MAP_SHARED as u32 != 0,
        grows_down: mmap.flags & libc::MAP_GROWSDOWN as u32 != 0 || mmap.name == b"[stack]",
        file,
        offset: if file.is_some() { mmap.offset } else { 0 },
        origin: MapOrigin::Exec,
    }
}

/// Device number of a disk's name in writeback events, `major:minor`.
fn disk_number(name: &[u8]) -> Option<u32> {
    let end = name.iter().position(|byte| *byte == 0)?;
    let (major, minor) = str::from_utf8(&name[..end]).ok()?.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}
