//! Text of `valgrind --tool=lackey --trace-mem=yes`, collapsed to page touches.
//!
//! Lackey prints every access: `I  addr,size` an instruction fetch, ` L` a load,
//! ` S` a store, ` M` a load and store. Of those a demand-paged system would
//! notice the first touch of each page, and the first write to a page that was
//! only read or executed before: these become faults. The text says nothing of
//! mappings, so they are inferred: each run of touched pages that were used in
//! the same ways is one anonymous mapping with the rights that took, made when
//! the program starts. There are no times either; an access counts as a
//! nanosecond.

use std::collections::BTreeMap;

use crate::feed::ABSURD;
use crate::report::{Place, Report};
use crate::{Format, ImportError, Input, Watch, each_line, notes};
use vellum_record::Sink;
use vellum_trace::{Access, Event, EventKind, MapOrigin, Prot, Task, TaskId};

const PAGE: u64 = 4096;
/// No instruction accesses more bytes at once.
const MOST_BYTES: u64 = 1 << 16;

const READ: u8 = 1;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;

/// An access as a line shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    access: Access,
    address: u64,
    size: u64,
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let access = match words.next()? {
        "I" => Access::Execute,
        "L" => Access::Read,
        "S" | "M" => Access::Write,
        _ => return None,
    };
    let (address, size) = words.next()?.split_once(',')?;
    let line = Line {
        access,
        address: u64::from_str_radix(address, 16).ok()?,
        size: size.parse().ok()?,
    };
    let sane = line.address < ABSURD && (1..=MOST_BYTES).contains(&line.size);
    (sane && words.next().is_none()).then_some(line)
}

/// Whether a line is one of lackey's.
pub fn looks_like(line: &str) -> bool {
    parse(line).is_some() || message(line).is_some_and(|(_, text)| text.starts_with("Lackey"))
}

/// `==4711== text`.
fn message(line: &str) -> Option<(u32, &str)> {
    let (pid, text) = line.strip_prefix("==")?.split_once("==")?;
    Some((pid.parse().ok()?, text.trim()))
}

/// A touch that becomes a fault.
struct Touch {
    access: u64,
    page: u64,
    kind: Access,
    present: bool,
}

/// Accesses of one process.
#[derive(Default)]
struct Process {
    pid: Option<u32>,
    command: Vec<String>,
    /// Ways in which each page was used.
    pages: BTreeMap<u64, u8>,
    touches: Vec<Touch>,
    accesses: u64,
}

impl Process {
    fn take(&mut self, line: Line) {
        self.accesses += 1;
        let way = match line.access {
            Access::Read => READ,
            Access::Write => WRITE,
            Access::Execute => EXECUTE,
        };
        let last = line.address + (line.size - 1);
        for page in line.address / PAGE..=last / PAGE {
            let ways = self.pages.entry(page).or_default();
            let faults = *ways == 0 || (way == WRITE && *ways & WRITE == 0);
            if faults {
                self.touches.push(Touch {
                    access: self.accesses,
                    page,
                    kind: line.access,
                    present: *ways != 0,
                });
            }
            *ways |= way;
        }
    }

    /// Writes the process as a task of its own.
    fn write(&self, sink: &mut dyn Sink, begin_us: u64) -> Result<u64, ImportError> {
        let header = sink.header_mut();
        let task = TaskId(header.tasks.len() as u32);
        let pid = self.pid.unwrap_or(task.0 + 1);
        header.tasks.push(Task {
            pid,
            process: pid,
            parent: None,
        });
        let program = self.command.first().map_or("lackey", String::as_str);
        let program = program.rsplit('/').next().unwrap_or(program);
        header.strings.push(program.chars().take(15).collect());
        let name = header.strings.len() as u32 - 1;
        let mut put = |time_us, kind| {
            sink.push(&Event {
                time_us,
                task,
                kind,
                ran_us: None,
            })
        };
        put(begin_us, EventKind::Exec { name })?;
        for (first, end, ways) in runs(&self.pages) {
            put(
                begin_us,
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
                },
            )?;
        }
        for touch in &self.touches {
            put(
                begin_us + touch.access / 1000,
                EventKind::Fault {
                    address: touch.page * PAGE,
                    access: touch.kind,
                    kernel: false,
                    present: touch.present,
                },
            )?;
        }
        let end = begin_us + self.accesses.div_ceil(1000);
        put(end, EventKind::Exit)?;
        Ok(end)
    }
}

/// Runs of neighbouring pages that were used in the same ways: first page, page
/// after the last, ways.
fn runs(pages: &BTreeMap<u64, u8>) -> Vec<(u64, u64, u8)> {
    let mut runs: Vec<(u64, u64, u8)> = Vec::new();
    for (&page, &ways) in pages {
        match runs.last_mut() {
            Some((_, end, before)) if *end == page && *before == ways => *end += 1,
            _ => runs.push((page, page + 1, ways)),
        }
    }
    runs
}

/// Imports the inputs, each as a process of its own.
pub fn import(
    inputs: Vec<Input>,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    let mut report = Report::default();
    let mut processes: Vec<Process> = Vec::new();
    processes.resize_with(inputs.len(), Process::default);
    report.lines = each_line(inputs, watch, |place, text, cut| {
        let process = &mut processes[place.input];
        match cut {
            true => report.skip(place, "a line longer than 65536 bytes"),
            false => take(process, place, text, &mut report),
        }
        Ok(())
    })?;
    let (mut accesses, mut touches, mut time_us) = (0, 0, 0);
    for process in &processes {
        if process.accesses > 0 {
            time_us = process.write(sink, time_us)?;
        }
        accesses += process.accesses;
        touches += process.touches.len() as u64;
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
    report
        .notes
        .push("Times are made up: an access counts as a nanosecond.".to_owned());
    let header = sink.header_mut();
    let command = processes.into_iter().map(|process| process.command);
    header.environment.command = command
        .into_iter()
        .find(|c| !c.is_empty())
        .unwrap_or_default();
    header.invisible.extend(report.notes.iter().cloned());
    notes::fill_in(header, Format::Lackey, &report);
    Ok(report)
}

fn take(process: &mut Process, place: Place, text: &str, report: &mut Report) {
    if let Some(line) = parse(text) {
        process.take(line);
        return;
    }
    match message(text) {
        Some((pid, said)) => {
            match process.pid {
                None => process.pid = Some(pid),
                Some(known) if known != pid => {
                    report.skip(place, "output of another process in the same file: run valgrind with --log-file=NAME.%p");
                    return;
                }
                Some(_) => {}
            }
            if let Some(command) = said.strip_prefix("Command: ") {
                process.command = command.split_whitespace().map(str::to_owned).collect();
            }
        }
        None if text.trim().is_empty() => {}
        None if text.starts_with("--") => report.pass_over(place, "valgrind's own messages"),
        None => report.skip(place, "no access of lackey's, or one that ends early"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_collapse_to_first_touches_and_first_writes() {
        let mut process = Process::default();
        for line in [
            "I  00001000,3",
            " L 00001ffc,8",
            " L 00002000,8",
            " S 00002000,4",
            " M 00002000,4",
            " S 00001000,1",
        ] {
            process.take(parse(line).unwrap());
        }
        let touches: Vec<_> = process
            .touches
            .iter()
            .map(|t| (t.page, t.kind, t.present))
            .collect();
        assert_eq!(
            touches,
            [
                (1, Access::Execute, false),
                (2, Access::Read, false),
                (2, Access::Write, true),
                (1, Access::Write, true),
            ]
        );
        assert_eq!(runs(&process.pages), [(1, 2, 7), (2, 3, 3)]);
    }

    #[test]
    fn nonsense_is_no_access() {
        for line in [
            "",
            "I",
            "I  1000",
            "I  1000,",
            "I  1000,0",
            "I  1000,99999999",
            " L ffffffffffffffff,8",
            " X 1000,4",
            " L 1000,4 more",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
