//! A dump of `/proc/PID/smaps`: the mappings of a process at one moment, and how many of their pages
//! were there.
//!
//! ```text
//! 7f54028bf000-7f54028c1000 rw-p 00031000 fe:00 325835   /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
//! Rss:                   8 kB
//! Anonymous:             4 kB
//! ```
//!
//! It becomes a process that makes the mappings and touches so many pages of each: as many are written
//! as are private memory, or dirty where the mapping is shared; the others are read. Which pages those
//! are does not show: they are taken to be the first of a mapping, or the last of a stack.

use std::collections::HashMap;

use crate::feed::ABSURD;
use crate::report::{Place, Report};
use crate::{Format, ImportError, Input, Watch, each_as, notes};
use vellum_record::Sink;
use vellum_trace::{Access, Event, EventKind, File, FileId, MapOrigin, Prot, Task, TaskId};

const PAGE: u64 = 4096;
/// Pages that are touched at most, 64 GiB of them: a line can tell more than memory has, and each page
/// is an event.
const MOST_PAGES: u64 = 1 << 24;
/// Where addresses of programs end.
const USER_END: u64 = 1 << 56;

const READ: u8 = 1;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;

/// A mapping, and sizes of what is there of it, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Mapping {
    start: u64,
    end: u64,
    prot: u8,
    shared: bool,
    offset: u64,
    device: u32,
    inode: u64,
    name: String,
    resident: u64,
    anonymous: u64,
    dirty: u64,
    huge: u64,
    hugetlb: u64,
    swapped: u64,
}

impl Mapping {
    /// The first line of one.
    fn parse(line: &str) -> Option<Mapping> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let mut words = rest.splitn(5, ' ');
        let rights = words.next()?.as_bytes();
        let right = |at: usize, letter, bit| match rights.get(at) {
            Some(found) if *found == letter => Some(bit),
            Some(b'-') => Some(0),
            _ => None,
        };
        let prot = right(0, b'r', READ)? | right(1, b'w', WRITE)? | right(2, b'x', EXECUTE)?;
        let shared = match rights.get(3..) {
            Some(b"s") => true,
            Some(b"p") => false,
            _ => return None,
        };
        let offset = number(words.next()?).filter(|offset| *offset < ABSURD)?;
        let (major, minor) = words.next()?.split_once(':')?;
        let (major, minor) = (number(major)?, number(minor)?);
        let inode = words.next()?.parse().ok()?;
        let name = words.next().unwrap_or("").trim().to_owned();
        let is_whole = start < end && (start | end | offset) % PAGE == 0;
        let is_device = major < 1 << 12 && minor < 1 << 20;
        (is_whole && is_device).then(|| Mapping {
            start,
            end,
            prot,
            shared,
            offset,
            device: (major << 20 | minor) as u32,
            inode,
            name,
            ..Mapping::default()
        })
    }

    /// A line about it. False: it is none.
    fn take(&mut self, line: &str) -> bool {
        let Some((key, value)) = size(line) else {
            return false;
        };
        let part = match key {
            "Rss" => &mut self.resident,
            "Anonymous" => &mut self.anonymous,
            "Shared_Dirty" | "Private_Dirty" => &mut self.dirty,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => &mut self.huge,
            "Shared_Hugetlb" | "Private_Hugetlb" => &mut self.hugetlb,
            "Swap" => &mut self.swapped,
            _ => return true,
        };
        *part = part.saturating_add(value);
        true
    }

    fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }

    /// How many pages were written, and how many only read.
    fn touched(&self) -> (u64, u64) {
        let written = match self.shared {
            true => self.dirty,
            false => self.anonymous,
        };
        let written = (written.saturating_add(self.hugetlb) / PAGE).min(self.pages());
        let there = (self.resident.saturating_add(self.hugetlb) / PAGE).min(self.pages());
        (written, there.saturating_sub(written))
    }

    fn is_stack(&self) -> bool {
        self.name == "[stack]"
    }

    fn is_of_file(&self) -> bool {
        self.inode != 0
    }
}

/// `Rss:   8 kB`, in bytes. Lines without a unit count as nothing.
fn size(line: &str) -> Option<(&str, u64)> {
    let (key, value) = line.split_once(':')?;
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if key.is_empty() || !key.chars().all(is_key) {
        return None;
    }
    match value.trim().strip_suffix(" kB") {
        Some(kib) => Some((key, kib.trim().parse::<u64>().ok()?.saturating_mul(1024))),
        None => matches!(key, "VmFlags" | "THPeligible" | "ProtectionKey").then_some((key, 0)),
    }
}

/// Whether a line is one of smaps.
pub fn looks_like(line: &str) -> bool {
    Mapping::parse(line).is_some() || size(line).is_some()
}

/// Imports the inputs, each as a process of its own.
pub fn import(
    inputs: Vec<Input>,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    let mut report = Report::default();
    let processes = each_as(inputs, watch, &mut report, Process::take)?;
    let pages = processes.iter().flat_map(|process| &process.mappings);
    let pages = pages
        .map(Mapping::touched)
        .fold(0, |sum: u64, (written, read)| {
            sum.saturating_add(written + read)
        });
    if pages > MOST_PAGES {
        return Err(ImportError::Format(format!(
            "smaps text with {pages} pages that are there: a trace has an event for each, and at most \
             {MOST_PAGES} are made"
        )));
    }
    let mut files = HashMap::new();
    for process in &processes {
        if !process.mappings.is_empty() {
            write(&process.mappings, sink, &mut files)?;
        }
    }
    let all = || processes.iter().flat_map(|process| &process.mappings);
    let sum =
        |part: fn(&Mapping) -> u64| all().fold(0, |sum: u64, one| sum.saturating_add(part(one)));
    report.notes.push(format!(
        "{} mappings with {} KiB of pages, as they were at one moment; which pages they are is made \
         up: the first of each mapping, or the last of a stack.",
        all().count(),
        sum(|one| one.resident.saturating_add(one.hugetlb)) / 1024,
    ));
    for (bytes, what) in [
        (
            sum(|one| one.huge),
            "KiB of them are huge pages, and count as small ones.",
        ),
        (
            sum(|one| one.hugetlb),
            "KiB of them are of hugetlb, and count as small pages.",
        ),
        (
            sum(|one| one.swapped),
            "KiB more are in swap, and count as never touched.",
        ),
    ] {
        if bytes > 0 {
            report.notes.push(format!("{} {what}", bytes / 1024));
        }
    }
    notes::tell(sink, Format::Smaps, &report);
    Ok(report)
}

/// A process, and whether the lines that come are of its last mapping.
#[derive(Default)]
struct Process {
    mappings: Vec<Mapping>,
    is_open: bool,
}

impl Process {
    fn take(&mut self, place: Place, text: &str, report: &mut Report) {
        let Some(mapping) = Mapping::parse(text) else {
            let open = self.mappings.last_mut().filter(|_| self.is_open);
            let is_known = match open {
                Some(mapping) => mapping.take(text),
                None => size(text).is_some(),
            };
            if !is_known && !text.trim().is_empty() {
                report.skip(place, "not a line of smaps, or one that ends early");
            }
            return;
        };
        let last = self.mappings.last().map_or(0, |last| last.end);
        self.is_open = false;
        if mapping.name == "[rollup]" {
            report.skip(
                place,
                "the sums of smaps_rollup, which tell no mappings (dump smaps)",
            );
        } else if mapping.end > USER_END {
            report.pass_over(place, "mappings of the kernel's own");
        } else if mapping.start < last {
            report.skip(
                place,
                "a mapping before the one above it: another process (give each a file)",
            );
        } else {
            self.is_open = true;
            self.mappings.push(mapping);
        }
    }
}

/// Writes a process that has these mappings.
fn write(
    mappings: &[Mapping],
    sink: &mut dyn Sink,
    files: &mut HashMap<(u32, u64), FileId>,
) -> Result<(), ImportError> {
    let header = sink.header_mut();
    let task = TaskId(header.tasks.len() as u32);
    header.tasks.push(Task {
        pid: task.0 + 1,
        process: task.0 + 1,
        parent: None,
    });
    // The program is the first file that can be executed.
    let is_text = |one: &&Mapping| one.is_of_file() && one.prot & EXECUTE != 0;
    let program = mappings
        .iter()
        .find(is_text)
        .map_or("smaps", |one| &one.name);
    let program = program.rsplit('/').next().unwrap_or(program);
    header.strings.push(program.chars().take(15).collect());
    let name = header.strings.len() as u32 - 1;
    let put = |sink: &mut dyn Sink, kind| {
        sink.push(&Event {
            time_us: 0,
            task,
            kind,
            ran_us: None,
        })
    };
    put(sink, EventKind::Exec { name })?;
    for mapping in mappings {
        let file = mapping.is_of_file().then(|| file_of(mapping, sink, files));
        let (written, read) = mapping.touched();
        // Rights can have been taken away since.
        let needed = if written > 0 { WRITE } else { 0 } | if read > 0 { READ } else { 0 };
        let address = mapping.start;
        let length = mapping.end - mapping.start;
        put(
            sink,
            EventKind::Map {
                address,
                length,
                prot: Prot(mapping.prot | needed),
                shared: mapping.shared,
                grows_down: mapping.is_stack(),
                file,
                offset: if file.is_some() { mapping.offset } else { 0 },
                origin: MapOrigin::Exec,
            },
        )?;
        let first = match mapping.is_stack() {
            true => mapping.pages() - (written + read),
            false => 0,
        };
        for nth in 0..written + read {
            let access = if nth < written {
                Access::Write
            } else {
                Access::Read
            };
            let fault = EventKind::Fault {
                address: address + (first + nth) * PAGE,
                access,
                kernel: false,
                present: false,
            };
            put(sink, fault)?;
        }
        if mapping.prot & needed != needed {
            let prot = Prot(mapping.prot);
            put(
                sink,
                EventKind::Protect {
                    address,
                    length,
                    prot,
                },
            )?;
        }
    }
    Ok(())
}

/// The file of a mapping, at least as long as the mapping needs.
fn file_of(
    mapping: &Mapping,
    sink: &mut dyn Sink,
    files: &mut HashMap<(u32, u64), FileId>,
) -> FileId {
    let table = &mut sink.header_mut().files;
    let id = *files
        .entry((mapping.device, mapping.inode))
        .or_insert_with(|| {
            table.push(File {
                name: mapping.name.clone(),
                device: mapping.device,
                inode: mapping.inode,
                size: 0,
            });
            FileId(table.len() as u32 - 1)
        });
    let file = &mut table[id.0 as usize];
    file.size = file
        .size
        .max(mapping.offset + (mapping.end - mapping.start));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_apart() {
        let line = "7f00a000-7f00c000 r-xp 00002000 fe:01 247278                     /usr/bin/a b";
        let mut mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f00_a000, 0x7f00_c000));
        assert_eq!((mapping.prot, mapping.shared), (READ | EXECUTE, false));
        assert_eq!((mapping.offset, mapping.device), (0x2000, 0xfe << 20 | 1));
        assert_eq!(
            (mapping.inode, mapping.name.as_str()),
            (247_278, "/usr/bin/a b")
        );
        for line in [
            "Rss:      8 kB",
            "Anonymous:   4 kB",
            "VmFlags: rd ex",
            "THPeligible:    0",
        ] {
            assert!(looks_like(line) && mapping.take(line), "{line}");
        }
        assert_eq!(mapping.touched(), (1, 1));
        let anonymous = Mapping::parse("1000-3000 ---s 00000000 00:00 0").unwrap();
        assert_eq!(
            (anonymous.prot, anonymous.shared, anonymous.name.as_str()),
            (0, true, "")
        );
    }

    #[test]
    fn other_lines_do_not() {
        for line in [
            "",
            "1000-3000",
            "3000-1000 rw-p 00000000 00:00 0",
            "1000-3001 rw-p 00000000 00:00 0",
            "1000-3000 rwp 00000000 00:00 0",
            "1000-3000 rw-q 00000000 00:00 0",
            "1000-3000 rw-p 00000000 0000 0",
            "563ebaa00000-563ebc99e000(  31.617 MiB): 1",
            "monitoring_start: 0 ns",
            "Rss: many kB",
        ] {
            assert!(!looks_like(line), "{line}");
        }
    }
}
