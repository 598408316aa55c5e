//! Several traces as one: their process families run at the same time, on the same
//! files where nobody changes them.

use std::collections::HashMap;

use super::survey::Survey;
use vellum_trace::{
    AccessMarks, Accesses, Event, EventKind, FileId, Header, TaskId, TraceError, TraceReader,
};

/// Traces that begin at the same moment, with one table of tasks and one of files.
pub struct Together<'t> {
    parts: Vec<Part<'t>>,
    header: Header,
}

/// One of the traces, and where its numbers went.
struct Part<'t> {
    trace: &'t TraceReader,
    /// Its task 0 in the common table.
    first_task: u32,
    /// Its command name 0.
    first_string: u32,
    /// Its files.
    files: Vec<FileId>,
}

impl<'t> Together<'t> {
    /// Joins `traces`. A file that several name alike, with the same inode and
    /// length, and that none of them changes, is one file.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn of(traces: &[&'t TraceReader]) -> Result<Self, TraceError> {
        let mut header = Header {
            cpu_times: traces.iter().all(|trace| trace.header().cpu_times),
            accesses: least(traces),
            ..Header::default()
        };
        let mut known: HashMap<(&str, u32, u64, u64), FileId> = HashMap::new();
        let mut parts = Vec::with_capacity(traces.len());
        for &trace in traces {
            let own = trace.header();
            let changed = match traces {
                // Nobody to share a file with.
                [_] => vec![true; own.files.len()],
                _ => Survey::of(own, trace.events())?.written,
            };
            let first_task = header.tasks.len() as u32;
            header.tasks.extend(own.tasks.iter().map(|task| {
                let parent = task.parent.map(|parent| TaskId(parent.0 + first_task));
                vellum_trace::Task { parent, ..*task }
            }));
            let mut files = Vec::with_capacity(own.files.len());
            for (file, changed) in own.files.iter().zip(changed) {
                let next = FileId(header.files.len() as u32);
                let key = (file.name.as_str(), file.device, file.inode, file.size);
                let id = match changed || file.name.is_empty() {
                    true => next,
                    false => *known.entry(key).or_insert(next),
                };
                if id == next {
                    header.files.push(file.clone());
                }
                files.push(id);
            }
            parts.push(Part {
                trace,
                first_task,
                first_string: header.strings.len() as u32,
                files,
            });
            header.strings.extend(own.strings.iter().cloned());
            header.lost += own.lost;
            header.events += own.events;
            header.beginning += own.beginning;
            header.duration_us = header.duration_us.max(own.duration_us);
            header.environment.memory = header.environment.memory.max(own.environment.memory);
        }
        Ok(Self { parts, header })
    }

    /// The common tables.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The events of all and their samples of accessed marks: first those that make what was there
    /// when recordings began, then the others by time; at one time, in the order of the traces.
    pub fn events(&self) -> impl Iterator<Item = Result<Event, TraceError>> + '_ {
        let mut streams: Vec<_> = self
            .parts
            .iter()
            .map(|part| {
                let events = part.trace.events_and_accesses().peekable();
                (part, events, part.trace.header().beginning)
            })
            .collect();
        std::iter::from_fn(move || {
            let time = |next: Option<&Result<Event, TraceError>>| match next? {
                Ok(event) => Some(event.time_us),
                // A trace that cannot be read ends everything at once.
                Err(_) => Some(0),
            };
            let times = streams.iter_mut().enumerate();
            let times = times.filter_map(|(at, (_, events, beginning))| {
                Some((*beginning == 0, time(events.peek())?, at))
            });
            let (_, _, first) = times.min()?;
            let (part, events, beginning) = &mut streams[first];
            *beginning = beginning.saturating_sub(1);
            Some(events.next()?.map(|event| part.renumber(event)))
        })
    }
}

/// What is known of the accesses in all traces: nothing if one has no samples, and no more than
/// of regions if one has no more.
fn least(traces: &[&TraceReader]) -> Option<Accesses> {
    let sampled = traces.iter().map(|trace| trace.header().accesses);
    let sampled = sampled.collect::<Option<Vec<Accesses>>>()?;
    let of_regions = |sampled: &&Accesses| sampled.marks == AccessMarks::Regions;
    let coarsest = sampled.iter().find(of_regions).or(sampled.first())?;
    let interval_us = sampled.iter().map(|sampled| sampled.interval_us).max()?;
    Some(Accesses {
        interval_us,
        ..*coarsest
    })
}

impl Part<'_> {
    fn task(&self, task: TaskId) -> TaskId {
        TaskId(task.0 + self.first_task)
    }

    fn file(&self, file: FileId) -> FileId {
        self.files[file.0 as usize]
    }

    /// An event of the trace, in the common numbers.
    fn renumber(&self, mut event: Event) -> Event {
        event.task = self.task(event.task);
        match &mut event.kind {
            EventKind::Create { child, .. } | EventKind::Wait { child } => {
                *child = self.task(*child)
            }
            EventKind::Exec { name } => *name += self.first_string,
            EventKind::Map {
                file: Some(file), ..
            }
            | EventKind::MapAround { file, .. }
            | EventKind::FileRead { file, .. }
            | EventKind::FileWrite { file, .. }
            | EventKind::Truncate { file, .. } => *file = self.file(*file),
            EventKind::Map { file: None, .. }
            | EventKind::Exit
            | EventKind::Unmap { .. }
            | EventKind::Protect { .. }
            | EventKind::Remap { .. }
            | EventKind::Brk { .. }
            | EventKind::Advise { .. }
            | EventKind::Fault { .. }
            | EventKind::Accessed { .. } => {}
        }
        event
    }
}
