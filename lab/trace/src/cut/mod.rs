//! A part of a trace that is a trace: a time window, or a sub-tree of processes.
//!
//! A [`Copier`] takes the events of a trace one by one and writes those of a
//! [`Selection`].
//!
//! Every event of the trace goes through the model, the selected ones also into
//! the cut. Tasks, files and names are numbered anew as they appear.

mod cpu_time;
mod state;

use std::collections::{BTreeMap, HashMap};

use crate::model::Model;
use crate::{Event, EventKind, File, FileId, Header, Task, TaskId, TraceError, TraceWriter};

use cpu_time::CpuTimes;
use state::rebuild;

const PAGE: u64 = 4096;
const CLONE_VM: u64 = 0x100;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// Only this task and its descendants.
    pub root: Option<TaskId>,
    /// From this time on, in microseconds.
    pub from_us: u64,
    /// Until before this time, in microseconds.
    pub to_us: u64,
}

/// A file in the cut.
struct Copied {
    id: FileId,
    /// Length that the cut's events so far account for.
    have: u64,
    /// The cut set its length, so the first length cannot explain later bytes.
    truncated: bool,
}

/// Copies events into a cut.
pub struct Copier<'a> {
    source: &'a Header,
    selection: Selection,
    writer: &'a mut TraceWriter,
    model: Model,
    /// Which tasks of the trace belong to the selection.
    selected: Vec<bool>,
    /// Flags with which each task was created.
    flags: HashMap<TaskId, u64>,
    running: Vec<bool>,
    /// The beginning of the time window was reached.
    reached: bool,
    /// Time of the trace at which the cut begins.
    began_us: Option<u64>,
    tasks: HashMap<TaskId, TaskId>,
    files: HashMap<FileId, Copied>,
    names: HashMap<u32, u32>,
    /// Length of each file of the trace now.
    sizes: Vec<u64>,
    cpu_times: CpuTimes,
    /// Events of the trace that were taken.
    taken: u64,
    events: u64,
}

impl<'a> Copier<'a> {
    /// A copier into `writer`, whose header is empty and will say what was cut.
    pub fn new(source: &'a Header, selection: Selection, writer: &'a mut TraceWriter) -> Self {
        let copier = Self::silent(source, selection, writer);
        let header = copier.writer.header_mut();
        let cut = describe(source, selection);
        header.environment.cuts.push(cut);
        header.invisible.push(
            "Pages that tasks shared by fork before the cut are separate pages in it; the page \
             cache starts empty."
                .to_owned(),
        );
        copier
    }

    /// The same, without a word of it in the header: for who does not take it for a cut.
    pub fn silent(source: &'a Header, selection: Selection, writer: &'a mut TraceWriter) -> Self {
        let mut selected = vec![selection.root.is_none(); source.tasks.len()];
        for index in 0..selected.len() {
            // Parents come before their children in the table.
            let parent = source.tasks[index].parent;
            selected[index] |= selection.root == Some(TaskId(index as u32))
                || parent.is_some_and(|parent| selected[parent.0 as usize]);
        }
        let header = writer.header_mut();
        header.environment = source.environment.clone();
        header.lost = source.lost;
        header.cpu_times = source.cpu_times;
        header.accesses = source.accesses;
        header.invisible = source.invisible.clone();
        header.groups = source.groups.clone();
        Copier {
            source,
            selection,
            writer,
            model: Model::default(),
            selected,
            flags: HashMap::new(),
            running: source
                .tasks
                .iter()
                .map(|task| task.parent.is_none())
                .collect(),
            reached: false,
            began_us: None,
            tasks: HashMap::new(),
            files: HashMap::new(),
            names: HashMap::new(),
            sizes: source.files.iter().map(|file| file.size).collect(),
            cpu_times: CpuTimes::new(source.cpu_times, source.tasks.len()),
            taken: 0,
            events: 0,
        }
    }

    /// Takes the next event of the trace.
    pub fn take(&mut self, event: &Event) -> Result<(), TraceError> {
        if let EventKind::Accessed { .. } = event.kind {
            return self.copy_access(event);
        }
        if event.time_us >= self.selection.from_us {
            self.reach_window()?;
        }
        let makes_beginning = self.taken < self.source.beginning;
        self.taken += 1;
        let began_us = self.began_us;
        let began_us = began_us.filter(|_| self.tasks.contains_key(&event.task));
        if let Some(began_us) = began_us {
            self.cpu_times.count(event, began_us);
            self.copy(event)?;
            if makes_beginning {
                self.writer.header_mut().beginning = self.events;
            }
        }
        self.follow(event);
        let created_root = matches!(event.kind, EventKind::Create { child, .. }
            if self.selection.root == Some(child));
        if created_root && self.reached && began_us.is_none() {
            self.begin(event.time_us)?;
        }
        Ok(())
    }

    /// Begins the time window, if no event has done so.
    pub fn reach_window(&mut self) -> Result<(), TraceError> {
        if self.reached {
            return Ok(());
        }
        self.reached = true;
        self.begin(self.selection.from_us)
    }

    /// Ends the cut. Returns the number of its events.
    pub fn finish(self) -> u64 {
        self.events
    }

    /// Keeps up with the trace outside and inside the cut.
    fn follow(&mut self, event: &Event) {
        self.model.take(event);
        self.cpu_times.pass(event.task.0 as usize, event.time_us);
        match event.kind {
            EventKind::Create { child, clone_flags } => {
                self.cpu_times.pass(child.0 as usize, event.time_us);
                self.flags.insert(child, clone_flags);
                self.running[child.0 as usize] = true;
            }
            EventKind::Exit => self.running[event.task.0 as usize] = false,
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => {
                let size = &mut self.sizes[file.0 as usize];
                *size = (*size).max(offset + length);
            }
            EventKind::Truncate { file, size } => self.sizes[file.0 as usize] = size,
            _ => {}
        }
    }

    /// Begins the cut, if a selected task is there: makes the state of all that
    /// are. The first user of a space brings it, the others join.
    fn begin(&mut self, time_us: u64) -> Result<(), TraceError> {
        let mut spaces: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        let mut leaders = HashMap::new();
        for index in 0..self.selected.len() {
            let task = TaskId(index as u32);
            if !self.selected[index] || !self.running[index] {
                continue;
            }
            let leader = match self.model.space_of(task) {
                Some((space, _)) => *leaders.entry(space).or_insert(task),
                None => task,
            };
            spaces.entry(leader).or_default().push(task);
        }
        if spaces.is_empty() {
            return Ok(());
        }
        self.began_us = Some(time_us);
        for (leader, users) in spaces {
            self.add_task(leader, None);
            let events = self.model.space_of(leader).map(|(_, space)| rebuild(space));
            for kind in events.unwrap_or_default() {
                self.write(leader, time_us, kind)?;
            }
            for user in users.into_iter().filter(|user| *user != leader) {
                self.add_task(user, Some(leader));
                let clone_flags = self.flags.get(&user).copied().unwrap_or(0) | CLONE_VM;
                let child = user;
                self.write(leader, time_us, EventKind::Create { child, clone_flags })?;
            }
        }
        self.writer.header_mut().beginning = self.events;
        Ok(())
    }

    fn add_task(&mut self, task: TaskId, parent: Option<TaskId>) {
        let tasks = &mut self.writer.header_mut().tasks;
        let id = TaskId(tasks.len() as u32);
        tasks.push(Task {
            parent: parent.map(|parent| self.tasks[&parent]),
            ..self.source.tasks[task.0 as usize]
        });
        self.tasks.insert(task, id);
    }

    /// Copies an event of a task that is in the cut.
    fn copy(&mut self, event: &Event) -> Result<(), TraceError> {
        match event.kind {
            EventKind::Create { child, .. } => self.add_task(child, Some(event.task)),
            // It ended before the cut began.
            EventKind::Wait { child } if !self.tasks.contains_key(&child) => return Ok(()),
            EventKind::Fault { address, .. } => self.note_faulted(event, address / PAGE)?,
            EventKind::MapAround { file, last, .. } => {
                self.note_used(event, file, (last + 1) * PAGE)?;
            }
            EventKind::FileRead {
                file,
                offset,
                length,
            } => self.note_used(event, file, offset + length)?,
            _ => {}
        }
        self.write(event.task, event.time_us, event.kind)
    }

    /// Copies a sample of accessed marks of a task that is in the cut. One that was taken just
    /// after the beginning of the time window tells also of what came before.
    fn copy_access(&mut self, event: &Event) -> Result<(), TraceError> {
        let (Some(began_us), Some(&task)) = (self.began_us, self.tasks.get(&event.task)) else {
            return Ok(());
        };
        self.writer.push(&Event {
            time_us: event.time_us.saturating_sub(began_us),
            task,
            ..*event
        })
    }

    /// A fault on a file's page needs the file to be that long.
    fn note_faulted(&mut self, event: &Event, page: u64) -> Result<(), TraceError> {
        let Some((_, space)) = self.model.space_of(event.task) else {
            return Ok(());
        };
        if let Some((first, _, region)) = space.regions.find(page)
            && let Some(file) = region.file
        {
            let needed = (region.file_page + (page - first)) * PAGE + 1;
            // Faults past the end of a file stay faults past the end.
            if needed <= self.sizes[file.0 as usize] {
                return self.note_used(event, file, needed);
            }
        }
        Ok(())
    }

    /// Bytes up to `end` are used. What did not come from the cut's own writes
    /// was there when it began; after the cut has set the file's length, it was
    /// written by tasks outside, in whose place the user writes it.
    fn note_used(&mut self, event: &Event, file: FileId, end: u64) -> Result<(), TraceError> {
        let id = self.file(file);
        let copied = self.files.get_mut(&file).expect("numbered above");
        let offset = copied.have;
        if end <= offset {
            return Ok(());
        }
        copied.have = end;
        if copied.truncated {
            let length = end - offset;
            let kind = EventKind::FileWrite {
                file,
                offset,
                length,
            };
            return self.write(event.task, event.time_us, kind);
        }
        let entry = &mut self.writer.header_mut().files[id.0 as usize];
        entry.size = entry.size.max(end);
        Ok(())
    }

    /// The file's number in the cut.
    fn file(&mut self, file: FileId) -> FileId {
        let size = self.sizes[file.0 as usize];
        let source = &self.source.files[file.0 as usize];
        let files = &mut self.writer.header_mut().files;
        let copied = self.files.entry(file).or_insert_with(|| {
            files.push(File {
                size,
                ..source.clone()
            });
            Copied {
                id: FileId(files.len() as u32 - 1),
                have: size,
                truncated: false,
            }
        });
        copied.id
    }

    fn name(&mut self, name: u32) -> u32 {
        let strings = &mut self.writer.header_mut().strings;
        *self.names.entry(name).or_insert_with(|| {
            strings.push(self.source.strings[name as usize].clone());
            strings.len() as u32 - 1
        })
    }

    /// Writes an event with the cut's own numbers.
    fn write(&mut self, task: TaskId, time_us: u64, kind: EventKind) -> Result<(), TraceError> {
        let mut kind = kind;
        match &mut kind {
            EventKind::Create { child, .. } | EventKind::Wait { child } => {
                *child = self.tasks[child];
            }
            EventKind::Exec { name } => *name = self.name(*name),
            EventKind::Map {
                file: Some(file), ..
            }
            | EventKind::MapAround { file, .. }
            | EventKind::FileRead { file, .. } => *file = self.file(*file),
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => {
                let id = self.file(*file);
                let copied = self.files.get_mut(file).expect("numbered above");
                copied.have = copied.have.max(*offset + *length);
                *file = id;
            }
            EventKind::Truncate { file, size } => {
                let id = self.file(*file);
                let copied = self.files.get_mut(file).expect("numbered above");
                (copied.have, copied.truncated) = (*size, true);
                *file = id;
            }
            _ => {}
        }
        self.events += 1;
        let time_us = time_us - self.began_us.unwrap_or(0);
        self.writer.push(&Event {
            time_us,
            task: self.tasks[&task],
            kind,
            ran_us: self.cpu_times.give(task.0 as usize, time_us),
        })
    }
}

fn describe(source: &Header, selection: Selection) -> String {
    let seconds = |us: u64| us as f64 / 1e6;
    let to = seconds(selection.to_us.min(source.duration_us));
    let window = format!("{} s to {to} s", seconds(selection.from_us));
    match selection.root {
        None => window,
        Some(TaskId(task)) => {
            let pid = source.tasks[task as usize].pid;
            format!("task {task} (pid {pid}) and its descendants, {window}")
        }
    }
}
