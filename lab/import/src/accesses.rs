//! Every access of a process, collapsed to page touches.
//!
//! Of all accesses a demand-paged system would notice the first touch of each page, and the first
//! write to a page that was only read or executed before: these become faults. Texts of accesses say
//! nothing of mappings, so they are inferred: each run of touched pages that were used in the same ways
//! is one anonymous mapping with the rights that took, made when the program starts.

use std::collections::BTreeMap;

use crate::ImportError;
use crate::feed::ABSURD;
use crate::report::Report;
use vellum_record::Sink;
use vellum_trace::{Event, EventKind, MapOrigin, Prot, Task, TaskId};

pub use vellum_trace::Access as Kind;

const PAGE: u64 = 4096;
/// Pages that are touched at most where each is an event, 64 GiB of them: a line can tell more than
/// memory has.
pub const MOST_PAGES: u64 = 1 << 24;
/// No instruction accesses more bytes at once.
const MOST_BYTES: u64 = 1 << 16;
/// What `pthread_create` asks for: a thread of the same process.
const THREAD: u64 = 0x3d_0f00;

pub const READ: u8 = 1;
pub const WRITE: u8 = 2;
pub const EXECUTE: u8 = 4;

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub kind: Kind,
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl Access {
    /// Whether a program can do that.
    pub fn is_sane(self) -> bool {
        self.address < ABSURD && (1..=MOST_BYTES).contains(&self.size)
    }
}

/// What a trace shows of it.
enum What {
    /// The thread begins.
    Begins,
    Touch {
        page: u64,
        kind: Kind,
        present: bool,
    },
}

struct Happening {
    time_us: u64,
    thread: usize,
    what: What,
}

/// Accesses of one process.
#[derive(Default)]
pub struct Process {
    /// Its id, where a text tells it.
    pub pid: Option<u32>,
    pub command: Vec<String>,
    /// Ids of its threads, the first one first.
    threads: Vec<u32>,
    /// Which of them was asked for last.
    last_thread: usize,
    /// Ways in which each page was used.
    pages: BTreeMap<u64, u8>,
    happenings: Vec<Happening>,
    touches: u64,
    accesses: u64,
    last_us: u64,
}

impl Process {
    /// The number of accesses so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The thread of this id, which begins where it is new.
    pub fn thread(&mut self, id: u32, time_us: u64) -> usize {
        if self.threads.get(self.last_thread) == Some(&id) {
            return self.last_thread;
        }
        let known = self.threads.iter().position(|known| *known == id);
        let thread = known.unwrap_or_else(|| {
            self.threads.push(id);
            let thread = self.threads.len() - 1;
            if thread > 0 {
                self.note(time_us, thread, What::Begins);
            }
            thread
        });
        self.last_thread = thread;
        thread
    }

    /// The process is there until then at least.
    pub fn lasts_until(&mut self, time_us: u64) {
        self.last_us = self.last_us.max(time_us);
    }

    /// An access that [is sane](Access::is_sane).
    pub fn take(&mut self, thread: usize, time_us: u64, access: Access) {
        self.accesses += 1;
        let way = match access.kind {
            Kind::Read => READ,
            Kind::Write => WRITE,
            Kind::Execute => EXECUTE,
        };
        let last = access.address + (access.size - 1);
        for page in access.address / PAGE..=last / PAGE {
            let ways = self.pages.entry(page).or_default();
            let present = *ways != 0;
            let faults = !present || (way == WRITE && *ways & WRITE == 0);
            *ways |= way;
            if faults {
                self.touches += 1;
                let kind = access.kind;
                self.note(
                    time_us,
                    thread,
                    What::Touch {
                        page,
                        kind,
                        present,
                    },
                );
            }
        }
    }

    fn note(&mut self, time_us: u64, thread: usize, what: What) {
        let last = self.happenings.last().map_or(0, |last| last.time_us);
        self.happenings.push(Happening {
            time_us: time_us.max(last),
            thread,
            what,
        });
    }

    /// Writes the process, which begins at `begin_us`. Returns when it ends.
    fn write(&self, sink: &mut dyn Sink, begin_us: u64, tool: &str) -> Result<u64, ImportError> {
        let header = sink.header_mut();
        let first = header.tasks.len() as u32;
        let process = self.pid.or(self.threads.first().copied());
        let process = process.filter(|pid| *pid != 0).unwrap_or(first + 1);
        for thread in 0..self.threads.len().max(1) {
            header.tasks.push(Task {
                pid: match thread {
                    0 => process,
                    _ => self.threads[thread],
                },
                process,
                parent: (thread > 0).then_some(TaskId(first)),
            });
        }
        let program = self.command.first().map_or(tool, String::as_str);
        let program = program.rsplit('/').next().unwrap_or(program);
        header.strings.push(program.chars().take(15).collect());
        let name = header.strings.len() as u32 - 1;
        let mut put = |time_us, task, kind| {
            sink.push(&Event {
                time_us,
                task,
                kind,
                ran_us: None,
            })
        };
        let task = |thread: usize| TaskId(first + thread as u32);
        put(begin_us, task(0), EventKind::Exec { name })?;
        for (page, end, ways) in runs(&self.pages) {
            put(begin_us, task(0), mapping(page, end, ways))?;
        }
        for happening in &self.happenings {
            let of = task(happening.thread);
            let (by, kind) = match happening.what {
                What::Begins => {
                    let creation = EventKind::Create {
                        child: of,
                        clone_flags: THREAD,
                    };
                    (task(0), creation)
                }
                What::Touch {
                    page,
                    kind,
                    present,
                } => {
                    let fault = EventKind::Fault {
                        address: page * PAGE,
                        access: kind,
                        kernel: false,
                        present,
                    };
                    (of, fault)
                }
            };
            put(begin_us + happening.time_us, by, kind)?;
        }
        let last = self.happenings.last().map_or(0, |last| last.time_us);
        let end = begin_us + self.last_us.max(last);
        for thread in (0..self.threads.len().max(1)).rev() {
            put(end, task(thread), EventKind::Exit)?;
        }
        Ok(end)
    }
}

/// More pages than that.
pub fn too_many_pages(source: &str, pages: u64) -> ImportError {
    ImportError::Format(format!(
        "{source} with {pages} pages that were used: a trace has an event for each, and at most \
         {MOST_PAGES} are made"
    ))
}

/// Writes processes, one after the other, and what had to be assumed.
pub fn write(
    processes: Vec<Process>,
    sink: &mut dyn Sink,
    tool: &str,
    report: &mut Report,
) -> Result<(), ImportError> {
    let (mut accesses, mut touches, mut time_us) = (0, 0, 0);
    for process in &processes {
        if process.accesses > 0 {
            time_us = process.write(sink, time_us, tool)?;
        }
        accesses += process.accesses;
        touches += process.touches;
    }
    report.notes.push(format!(
        "{accesses} accesses were collapsed to {touches} first touches of pages and first writes to \
         them."
    ));
    report.notes.push(
        "Mappings are inferred from the pages touched: anonymous, with the rights that the accesses \
         took, there from the start."
            .to_owned(),
    );
    let command = processes.into_iter().map(|process| process.command);
    sink.header_mut().environment.command = command
        .into_iter()
        .find(|command| !command.is_empty())
        .unwrap_or_default();
    Ok(())
}

/// An anonymous mapping of pages `first..end`, with the rights that its use took.
pub fn mapping(first: u64, end: u64, ways: u8) -> EventKind {
    EventKind::Map {
        address: first * PAGE,
        length: (end - first) * PAGE,
        // What can be written or executed can be read on x86.
        prot: Prot(ways | READ),
        shared: false,
        grows_down: false,
        file: None,
        offset: 0,
        origin: MapOrigin::Exec,
    }
}

/// Runs of neighbouring pages that were used in the same ways: first page, page
/// after the last, ways.
pub fn runs(pages: &BTreeMap<u64, u8>) -> Vec<(u64, u64, u8)> {
    let mut runs: Vec<(u64, u64, u8)> = Vec::new();
    for (&page, &ways) in pages {
        match runs.last_mut() {
            Some((_, end, before)) if *end == page && *before == ways => *end += 1,
            _ => runs.push((page, page + 1, ways)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_collapse_to_first_touches_and_first_writes() {
        let mut process = Process::default();
        for (kind, address, size) in [
            (Kind::Execute, 0x1000, 3),
            (Kind::Read, 0x1ffc, 8),
            (Kind::Read, 0x2000, 8),
            (Kind::Write, 0x2000, 4),
            (Kind::Write, 0x2000, 4),
            (Kind::Write, 0x1000, 1),
        ] {
            let access = Access {
                kind,
                address,
                size,
            };
            process.take(0, 0, access);
        }
        let touches: Vec<_> = process
            .happenings
            .iter()
            .map(|happening| match happening.what {
                What::Touch {
                    page,
                    kind,
                    present,
                } => (page, kind, present),
                What::Begins => panic!("a thread"),
            })
            .collect();
        assert_eq!(
            touches,
            [
                (1, Kind::Execute, false),
                (2, Kind::Read, false),
                (2, Kind::Write, true),
                (1, Kind::Write, true),
            ]
        );
        assert_eq!(runs(&process.pages), [(1, 2, 7), (2, 3, 3)]);
    }
}
