//! Tasks: who created whom, who runs which program, who is gone.

use super::{Creator, Live, Scope, Translator};
use crate::error::RecordError;
use crate::raw::Record;
use crate::syscalls::Call;
use vellum_trace::{EventKind, Task, TaskId};

impl Translator<'_> {
    pub(super) fn fork(&mut self, pid: u32, tid: u32, ptid: u32) -> Result<(), RecordError> {
        if self.scope == Scope::Everyone {
            // Whose end was not recorded has ended all the same.
            if self.live.contains_key(&tid) && tid != ptid {
                self.exit(tid)?;
            }
            let process = match self.live.get(&ptid) {
                Some(live) => live.process,
                // A new thread's creator is a thread of the same process.
                None if pid != tid => pid,
                None => ptid,
            };
            self.adopt(process, ptid);
        }
        if self.scope == Scope::Running && self.live.contains_key(&tid) {
            // It was there when its process was read.
            self.newborn.remove(&ptid);
            return Ok(());
        }
        let Some(parent) = self.live.get(&ptid).map(|live| live.id) else {
            return Ok(());
        };
        let id = self.new_task(pid, tid, Some(parent));
        let creator = Creator {
            task: parent,
            tid: ptid,
        };
        let narrow = self.is_narrow(ptid);
        let live = Live::new(id, pid, Some(creator));
        self.live.insert(tid, Live { narrow, ..live });
        self.threads.entry(pid).or_default().push(tid);
        self.newborn.insert(ptid, tid);
        self.owed.entry(parent).or_default().push(tid);
        Ok(())
    }

    fn new_task(&mut self, process: u32, pid: u32, parent: Option<TaskId>) -> TaskId {
        let tasks = &mut self.sink.header_mut().tasks;
        tasks.push(Task {
            pid,
            process,
            parent,
        });
        let task = TaskId(tasks.len() as u32 - 1);
        if let Some(stopwatch) = &mut self.stopwatch {
            stopwatch.born(task);
        }
        task
    }

    /// Takes in a task whose creation was not seen: one that was there from the
    /// start. A further thread of a process that is known counts as created by
    /// the first one, because it shares its memory.
    pub(super) fn adopt(&mut self, process: u32, tid: u32) {
        if self.live.contains_key(&tid) {
            return;
        }
        let sibling = self.threads.get(&process).and_then(|all| all.first());
        let creator = sibling.and_then(|tid| {
            let task = self.live.get(tid)?.id;
            Some(Creator { task, tid: *tid })
        });
        let id = self.new_task(process, tid, creator.map(|creator| creator.task));
        if let Some(creator) = creator {
            self.owed.entry(creator.task).or_default().push(tid);
        }
        self.live.insert(tid, Live::new(id, process, creator));
        self.threads.entry(process).or_default().push(tid);
    }

    /// A live task is known under another id from now on.
    pub fn rename(&mut self, from: u32, to: u32) {
        let Some(live) = self.live.remove(&from) else {
            return;
        };
        let process = if live.process == from {
            to
        } else {
            live.process
        };
        let mut threads = self.threads.remove(&live.process).unwrap_or_default();
        threads
            .iter_mut()
            .filter(|tid| **tid == from)
            .for_each(|tid| *tid = to);
        self.sink.header_mut().tasks[live.id.0 as usize].pid = to;
        self.live.insert(to, live);
        for tid in &threads {
            if let Some(live) = self.live.get_mut(tid) {
                live.process = process;
                self.sink.header_mut().tasks[live.id.0 as usize].process = process;
            }
        }
        self.threads.insert(process, threads);
    }

    /// The task was there from the start, whoever its process consists of.
    pub fn was_there(&mut self, process: u32, tid: u32) {
        if !self.live.contains_key(&tid) {
            let id = self.new_task(process, tid, None);
            self.live.insert(tid, Live::new(id, process, None));
            self.threads.entry(process).or_default().push(tid);
        }
    }

    pub(super) fn created(&mut self, ptid: u32, clone_flags: u64) -> Result<(), RecordError> {
        let newborn = self.newborn.remove(&ptid);
        let child = newborn.and_then(|tid| self.live.get_mut(&tid));
        match child.map(|live| (live.id, live.unborn.take())) {
            Some((child, Some(_))) => self.emit(ptid, EventKind::Create { child, clone_flags }),
            _ => Ok(()),
        }
    }

    pub(super) fn exec(&mut self, record: &Record<'_>, name: &[u8]) -> Result<(), RecordError> {
        if !self.live.contains_key(&record.tid) {
            self.take_over(record.pid, record.tid);
        }
        let Some(live) = self.live.get_mut(&record.tid) else {
            return Ok(());
        };
        live.call = Call::Exec;
        live.narrow = false;
        let name = self.name(String::from_utf8_lossy(name).into_owned());
        self.emit(record.tid, EventKind::Exec { name })
    }

    /// The place of a command's name in the table.
    pub(super) fn name(&mut self, name: String) -> u32 {
        let strings = &mut self.sink.header_mut().strings;
        *self.names.entry(name).or_insert_with_key(|name| {
            strings.push(name.clone());
            strings.len() as u32 - 1
        })
    }

    /// A thread that executes a program becomes its process's first thread: the
    /// id is the first thread's, the task is the one survivor.
    pub(super) fn take_over(&mut self, pid: u32, tid: u32) {
        let survivor = self.threads.get(&pid).and_then(|threads| threads.last());
        let Some(survivor) = survivor.copied() else {
            return;
        };
        if let Some(live) = self.live.remove(&survivor) {
            self.live.insert(tid, live);
            self.threads.insert(pid, vec![tid]);
        }
    }

    pub(super) fn exit(&mut self, tid: u32) -> Result<(), RecordError> {
        self.end_reading(tid, None)?;
        self.deliver_children(tid)?;
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

    /// Writes the creations that a task owes before it ends.
    fn deliver_children(&mut self, tid: u32) -> Result<(), RecordError> {
        let Some(parent) = self.live.get(&tid).map(|live| live.id) else {
            return Ok(());
        };
        let owed = self.owed.remove(&parent).unwrap_or_default();
        let owed = owed.into_iter().filter_map(|tid| {
            let live = self.live.get(&tid)?;
            let owes = live.unborn.is_some_and(|by| by.task == parent);
            owes.then_some((live.id, tid))
        });
        let mut owed: Vec<(TaskId, u32)> = owed.collect();
        owed.sort_unstable();
        owed.into_iter().try_for_each(|(_, tid)| self.deliver(tid))
    }
}
