//! Mappings for pages that are used outside of all that shows.
//!
//! Where each run of such pages ends is known at the end of the text only. So the events wait until
//! then; the mappings are made when the program starts, or with the first event of its first task.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::accesses::{EXECUTE, READ, WRITE, mapping, runs};
use vellum_record::Sink;
use vellum_trace::rules::Rules;
use vellum_trace::{Access, Event, EventKind, Header, TaskId, TraceError};

const PAGE: u64 = 4096;

/// What the importer tells the sink at the other end of the translation.
#[derive(Clone, Default)]
pub struct Signals {
    /// From now on events wait.
    pub waits: Rc<Cell<bool>>,
    /// The next fault is of a page outside of all mappings.
    pub outside: Rc<Cell<bool>>,
}

/// Pages outside of mappings that the tasks of a program used, and when it starts.
struct Program {
    /// Which event the mappings come before.
    begins_at: usize,
    task: TaskId,
    /// Ways in which each page was used.
    pages: BTreeMap<u64, u8>,
}

/// A sink that adds mappings.
pub struct Filling<'a> {
    sink: &'a mut dyn Sink,
    signals: Signals,
    events: Vec<Event>,
    rules: Rules,
    programs: Vec<Program>,
    /// Which program each task runs; forked ones that of their creator.
    runs: HashMap<TaskId, usize>,
}

impl<'a> Filling<'a> {
    /// Everything goes through to `sink` until the signals say otherwise.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        Filling {
            sink,
            signals: Signals::default(),
            events: Vec::new(),
            rules: Rules::default(),
            programs: Vec::new(),
            runs: HashMap::new(),
        }
    }

    /// The signals that it obeys.
    pub fn signals(&self) -> Signals {
        self.signals.clone()
    }

    /// Writes what waits. Returns how many pages were mapped, and in how many mappings.
    pub fn finish(&mut self) -> Result<(u64, u64), TraceError> {
        let (mut pages, mut mappings) = (0, 0);
        self.programs.sort_by_key(|program| program.begins_at);
        let mut programs = std::mem::take(&mut self.programs).into_iter().peekable();
        for (index, event) in std::mem::take(&mut self.events).into_iter().enumerate() {
            while let Some(program) = programs.next_if(|program| program.begins_at <= index) {
                pages += program.pages.len() as u64;
                for (first, end, ways) in runs(&program.pages) {
                    mappings += 1;
                    let kind = mapping(first, end, ways);
                    self.sink.push(&Event {
                        task: program.task,
                        kind,
                        ..event
                    })?;
                }
            }
            self.sink.push(&event)?;
        }
        Ok((pages, mappings))
    }

    /// Notes which program the event's task runs, and what it uses outside of mappings.
    fn follow(&mut self, event: &Event) {
        let at = self.events.len();
        let own = *self.runs.entry(event.task).or_insert_with(|| {
            self.programs.push(Program {
                begins_at: at,
                task: event.task,
                pages: BTreeMap::new(),
            });
            self.programs.len() - 1
        });
        match event.kind {
            EventKind::Create { child, .. } => {
                self.runs.insert(child, own);
            }
            EventKind::Exec { .. } => {
                self.programs.push(Program {
                    begins_at: at + 1,
                    task: event.task,
                    pages: BTreeMap::new(),
                });
                self.runs.insert(event.task, self.programs.len() - 1);
            }
            EventKind::Fault {
                address, access, ..
            } if self.signals.outside.get() => {
                let way = match access {
                    Access::Read => READ,
                    Access::Write => WRITE,
                    Access::Execute => EXECUTE,
                };
                *self.programs[own].pages.entry(address / PAGE).or_default() |= way;
            }
            _ => {}
        }
    }
}

impl Sink for Filling<'_> {
    fn header_mut(&mut self) -> &mut Header {
        self.sink.header_mut()
    }

    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        if !self.signals.waits.get() {
            return self.sink.push(event);
        }
        let checked = self.rules.check(self.sink.header_mut(), event);
        checked.map_err(|reason| TraceError::BadEvent {
            path: "memory".into(),
            index: self.events.len() as u64,
            reason,
        })?;
        self.follow(event);
        self.events.push(*event);
        Ok(())
    }
}
