//! A trace printed as `perf script` would print it comes back as it was.

use std::collections::HashMap;
use std::path::Path;

use vellum_import::perf_script::{Losses, Writer};
use vellum_import::{Format, Imported, Options, import_text};
use vellum_testing::{Scratch, generate};
use vellum_trace::cut::{Copier, Selection};
use vellum_trace::{Event, EventKind, FileId, Header, TaskId, TraceReader, TraceWriter};

const PAGE: u64 = 4096;

type Trace = (Header, Vec<Event>);

/// One-to-one and the same throughout.
#[derive(Default)]
struct Renaming(HashMap<u32, u32>, HashMap<u32, u32>);

impl Renaming {
    fn same(&mut self, a: u32, b: u32) -> bool {
        *self.0.entry(a).or_insert(b) == b && *self.1.entry(b).or_insert(a) == a
    }
}

/// Whether two traces are the same but for the numbers of tasks, files and names.
fn assert_equal((header_a, a): &Trace, (header_b, b): &Trace) {
    let (mut tasks, mut files, mut names) = (
        Renaming::default(),
        Renaming::default(),
        Renaming::default(),
    );
    assert_eq!(a.len(), b.len());
    for (index, (x, y)) in a.iter().zip(b).enumerate() {
        assert_eq!(x.time_us, y.time_us, "event {index}: {x:?} {y:?}");
        assert!(tasks.same(x.task.0, y.task.0), "event {index}: {x:?} {y:?}");
        let mut file = |file: FileId| {
            let back = *files.1.entry(file.0).or_insert_with(|| {
                let wanted = &header_b.files[file.0 as usize];
                let found = header_a
                    .files
                    .iter()
                    .position(|other| (other.device, other.inode) == (wanted.device, wanted.inode));
                found.expect("the file was there before") as u32
            });
            FileId(back)
        };
        let kind = match y.kind {
            EventKind::Create { child, clone_flags } => {
                let EventKind::Create { child: other, .. } = x.kind else {
                    panic!("event {index}: {x:?} {y:?}");
                };
                assert!(tasks.same(other.0, child.0), "event {index}");
                EventKind::Create {
                    child: other,
                    clone_flags,
                }
            }
            EventKind::Wait { child } => EventKind::Wait {
                child: TaskId(tasks.1[&child.0]),
            },
            EventKind::Exec { name } => {
                let EventKind::Exec { name: other } = x.kind else {
                    panic!("event {index}: {x:?} {y:?}");
                };
                assert!(names.same(other, name), "event {index}");
                assert_eq!(
                    header_a.strings[other as usize],
                    header_b.strings[name as usize]
                );
                x.kind
            }
            EventKind::Map {
                address,
                length,
                prot,
                shared,
                grows_down,
                file: Some(of),
                offset,
                origin,
            } => EventKind::Map {
                address,
                length,
                prot,
                shared,
                grows_down,
                file: Some(file(of)),
                offset,
                origin,
            },
            EventKind::MapAround {
                file: of,
                first,
                last,
            } => EventKind::MapAround {
                file: file(of),
                first,
                last,
            },
            EventKind::FileRead {
                file: of,
                offset,
                length,
            } => EventKind::FileRead {
                file: file(of),
                offset,
                length,
            },
            EventKind::FileWrite {
                file: of,
                offset,
                length,
            } => EventKind::FileWrite {
                file: file(of),
                offset,
                length,
            },
            EventKind::Truncate { file: of, size } => EventKind::Truncate {
                file: file(of),
                size,
            },
            other => other,
        };
        assert_eq!(x.kind, kind, "event {index}");
    }
    for (of_b, of_a) in &files.1 {
        assert_eq!(
            header_b.files[*of_b as usize],
            header_a.files[*of_a as usize]
        );
    }
    for (of_a, of_b) in &tasks.0 {
        let (a, b) = (
            &header_a.tasks[*of_a as usize],
            &header_b.tasks[*of_b as usize],
        );
        assert_eq!((a.pid, a.process), (b.pid, b.process));
    }
    assert_eq!(header_a.environment, header_b.environment);
    assert_eq!(header_a.invisible, header_b.invisible);
    assert_eq!(
        (header_a.lost, header_a.duration_us),
        (header_b.lost, header_b.duration_us)
    );
}

/// Prints a trace and reads it back.
fn there_and_back((header, events): &Trace) -> (Trace, Losses) {
    let mut text = Vec::new();
    let mut writer = Writer::new(&mut text, header).unwrap();
    for event in events {
        writer.take(event).unwrap();
    }
    let losses = writer.finish().unwrap();
    let (format, imported, report) = import_text(&text, &Options::default()).unwrap();
    assert_eq!(format, Format::PerfScript);
    assert_eq!(report.skipped, []);
    (whole(&imported), losses)
}

fn whole(imported: &Imported) -> Trace {
    let events = imported.events().to_vec();
    let header = Header {
        events: events.len() as u64,
        duration_us: events.last().map_or(0, |event| event.time_us),
        ..imported.header().clone()
    };
    (header, events)
}

/// A part of a shipped trace, in percent of its time.
fn cut(percent: [u64; 2]) -> Trace {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/sdet-like.vellum");
    let trace = TraceReader::open(shipped).unwrap();
    let [from_us, to_us] = percent.map(|part| trace.header().duration_us * part / 100);
    let scratch = Scratch::new(&format!("perf-script-{from_us}"));
    let path = scratch.path("part.vellum");
    let mut writer = TraceWriter::create(&path, 1).unwrap();
    let selection = Selection {
        root: None,
        from_us,
        to_us,
    };
    let mut copier = Copier::new(trace.header(), selection, &mut writer);
    for event in trace.events() {
        let event = event.unwrap();
        if event.time_us >= to_us {
            break;
        }
        copier.take(&event).unwrap();
    }
    assert!(copier.finish() > 0);
    writer.finish().unwrap();
    let part = TraceReader::open(&path).unwrap();
    let events = part.events().map(|event| event.unwrap()).collect();
    (part.header().clone(), events)
}

#[test]
fn cuts_of_a_shipped_trace_come_back_equal() {
    // But for the first, cuts begin with tasks that have a heap, mappings and
    // resident pages.
    for part in [[0, 200], [20, 32], [66, 78]] {
        let trace = cut(part);
        let (again, losses) = there_and_back(&trace);
        assert_eq!(losses, Losses::default(), "{part:?} %");
        assert_equal(&trace, &again);
        // What was numbered anew keeps its numbers.
        assert_eq!(there_and_back(&again).0, again, "{part:?} %");
    }
}

/// Makes of a transfer one that the kernel could report: pages are read, and
/// folios of a power of two pages written.
fn as_the_kernel_does(event: &mut Event) {
    match &mut event.kind {
        EventKind::FileRead { offset, length, .. } => {
            *length += *offset % PAGE;
            *offset -= *offset % PAGE;
        }
        EventKind::FileWrite { offset, length, .. } => {
            *offset -= *offset % PAGE;
            *length = length.div_ceil(PAGE).next_power_of_two() * PAGE;
        }
        _ => {}
    }
}

#[test]
fn random_workloads_come_back_equal() {
    for seed in 0..12 {
        let mut recording = generate::workload(seed, 1500);
        for (number, file) in recording.header.files.iter_mut().enumerate() {
            file.inode = 1 + number as u64;
        }
        recording.events.iter_mut().for_each(as_the_kernel_does);
        recording.header.duration_us = recording.events.last().map_or(0, |event| event.time_us);
        let trace = (recording.header, recording.events);
        let (again, losses) = there_and_back(&trace);
        eprintln!("seed {seed}");
        assert_eq!(losses, Losses::default());
        assert_equal(&trace, &again);
    }
}
