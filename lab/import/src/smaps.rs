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

use crate::accesses::{MOST_PAGES, too_many_pages};
use crate::report::{Place, Report};
use crate::{ImportError, Input, Watch, each_as, notes};
use vellum_record::Sink;
pub use vellum_record::smaps::looks_like;
use vellum_record::smaps::{Mapping, size};
use vellum_trace::{Event, EventKind, File, FileId, Task, TaskId};

/// Where addresses of programs end.
const USER_END: u64 = 1 << 56;

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
        return Err(too_many_pages("smaps text", pages));
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
    notes::tell(sink, "smaps text", &report);
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
    let program = mappings.iter().find(|one| one.is_text());
    let program = program.map_or("smaps", |one| &one.name);
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
        mapping.tell(file, &mapping.made_up(), &mut |kind| put(sink, kind))?;
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
