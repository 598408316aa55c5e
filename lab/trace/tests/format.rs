//! Trace files: what is written is read back, and whatever else is read is
//! refused with file, place and reason.

use std::path::PathBuf;

use vellum_trace::{
    Access, AccessMarks, Accesses, Environment, Event, EventKind, File, FileId, Header, MapOrigin,
    MemoryGroup, Prot, Task, TaskId, TraceError, TraceReader, TraceWriter,
};

const PAGE: u64 = 4096;

/// A small reproducible random-number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn path(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("vellum-trace-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

fn header() -> Header {
    let file = |name: &str, inode| File {
        name: name.to_owned(),
        device: 254 << 20,
        inode,
        size: inode % 1000 * 1000,
    };
    Header {
        environment: Environment {
            kernel: "6.18".into(),
            architecture: "x86_64".into(),
            cpus: 4,
            memory: 8 << 30,
            command: vec!["make".into(), "-j4".into()],
            thp_off: true,
            cuts: vec!["0 s to 1 s".into()],
        },
        tasks: (0..40)
            .map(|index| Task {
                pid: 1000 + index * 7 % 50,
                process: 1000 + index,
                parent: (index > 0).then(|| TaskId((index - 1) / 2)),
            })
            .collect(),
        files: vec![file("/bin/cc", 9), file("", u64::MAX), file("/lib/ü.so", 3)],
        strings: vec!["cc".into(), "sh".into()],
        lost: 3,
        invisible: vec!["Pinned pages do not show.".into()],
        cpu_times: true,
        accesses: Some(Accesses {
            interval_us: 100_000,
            marks: AccessMarks::Pages,
        }),
        beginning: 7,
        groups: vec![MemoryGroup {
            path: "/sys/fs/cgroup/memory/a b".into(),
            limit: 512 << 20,
            used: 4096,
        }],
        events: 0,
        duration_us: 0,
    }
}

/// Any event but those that begin and end tasks.
fn random_kind(random: &mut Random) -> EventKind {
    let address = (random.below(3) << 40) + random.below(500) * PAGE;
    let length = random.below(1 << 20);
    let file = FileId(random.below(3) as u32);
    let offset = random.below(1 << 30);
    let access = [Access::Read, Access::Write, Access::Execute][random.below(3) as usize];
    match random.below(12) {
        0 => EventKind::Exec {
            name: random.below(2) as u32,
        },
        1 => {
            let file = (random.below(2) == 0).then_some(file);
            EventKind::Map {
                address,
                length,
                prot: Prot(random.below(8) as u8),
                shared: random.below(2) == 0,
                grows_down: random.below(2) == 0,
                file,
                offset: file.map_or(0, |_| offset / PAGE * PAGE),
                origin: [MapOrigin::Mmap, MapOrigin::Exec][random.below(2) as usize],
            }
        }
        2 => EventKind::Unmap { address, length },
        3 => EventKind::Protect {
            address,
            length,
            prot: Prot(5),
        },
        4 => EventKind::Remap {
            address,
            length,
            new_address: address + (1 << 41),
            new_length: length * 2,
        },
        5 => EventKind::Brk {
            end: address + length,
        },
        6 => EventKind::Advise {
            address,
            length,
            advice: random.below(200) as u32,
        },
        7 => EventKind::MapAround {
            file,
            first: offset,
            last: offset + random.below(16),
        },
        8 => EventKind::FileRead {
            file,
            offset,
            length,
        },
        9 => EventKind::FileWrite {
            file,
            offset,
            length,
        },
        10 => EventKind::Truncate { file, size: length },
        _ => EventKind::Fault {
            address,
            access,
            kernel: random.below(9) == 0,
            present: random.below(9) == 0,
        },
    }
}

/// A valid sequence over the tasks of [`header`], with many equal times.
fn random_events(seed: u64, count: usize) -> Vec<Event> {
    let mut random = Random(seed);
    let (mut running, mut ended) = (vec![TaskId(0)], Vec::new());
    let mut unborn: Vec<(TaskId, TaskId)> = (1..40)
        .map(|index| (TaskId((index - 1) / 2), TaskId(index)))
        .collect();
    let mut time_us = 0;
    let mut spent = [0; 40];
    let mut events = Vec::new();
    while events.len() < count {
        time_us += random.below(4) * random.below(2);
        let at = random.below(running.len() as u64) as usize;
        let task = running[at];
        let child = unborn.iter().position(|(parent, _)| *parent == task);
        let kind = match (random.below(60), child) {
            (0, Some(child)) => {
                let (_, child) = unborn.remove(child);
                running.push(child);
                EventKind::Create {
                    child,
                    clone_flags: random.next() >> random.below(64),
                }
            }
            (1, None) if running.len() > 1 => {
                ended.push(running.swap_remove(at));
                EventKind::Exit
            }
            (2, _) if !ended.is_empty() => EventKind::Wait {
                child: ended[random.below(ended.len() as u64) as usize],
            },
            _ => random_kind(&mut random),
        };
        let spent = &mut spent[task.0 as usize];
        let ran_us = (random.below(4) > 0).then(|| random.below(time_us - *spent + 1));
        *spent += ran_us.unwrap_or(0);
        events.push(Event {
            time_us,
            task,
            kind,
            ran_us,
        });
    }
    events
}

fn write(name: &str, events: &[Event]) -> Vec<u8> {
    let path = path(name);
    let mut writer = TraceWriter::create(&path, 3).unwrap();
    *writer.header_mut() = header();
    for event in events {
        writer.push(event).unwrap();
    }
    let (count, bytes) = writer.finish().unwrap();
    let samples = |event: &&Event| matches!(event.kind, EventKind::Accessed { .. });
    let samples = events.iter().filter(samples).count();
    assert_eq!(count, (events.len() - samples) as u64);
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len() as u64, bytes);
    std::fs::remove_file(path).unwrap();
    content
}

/// Opens and reads everything.
fn read_all(bytes: Vec<u8>) -> Result<(Header, Vec<Event>), TraceError> {
    let trace = TraceReader::from_bytes("test.vellum", bytes)?;
    let events: Result<Vec<Event>, TraceError> = trace.events().collect();
    Ok((trace.header().clone(), events?))
}

#[test]
fn a_trace_reads_back_in_the_order_it_was_written() {
    for seed in 0..6 {
        // More events than one block holds, for one of the seeds.
        let count = if seed == 0 { 300_000 } else { 5_000 };
        let written = random_events(seed, count);
        let (read_header, read) = read_all(write(&format!("order-{seed}"), &written)).unwrap();
        let what = |event: &Event| (event.task, event.kind, event.ran_us);
        assert!(
            written.iter().map(what).eq(read.iter().map(what)),
            "seed {seed}: order or contents differ"
        );
        let pairs = written.iter().zip(&read);
        let drift = pairs.map(|(a, b)| b.time_us.checked_sub(a.time_us).unwrap());
        assert!(drift.max().unwrap() < 50_000, "seed {seed}: times drift");
        assert!(read.is_sorted_by_key(|event| event.time_us), "seed {seed}");
        let expected = Header {
            events: written.len() as u64,
            duration_us: read.last().unwrap().time_us,
            ..header()
        };
        assert_eq!(read_header, expected, "seed {seed}");
    }
}

#[test]
fn times_with_room_between_them_are_kept_exactly() {
    let mut events = random_events(7, 4_000);
    for (index, event) in events.iter_mut().enumerate() {
        event.time_us = index as u64 * 3;
    }
    assert_eq!(read_all(write("times", &events)).unwrap().1, events);
}

#[test]
fn streams_hold_each_tasks_events_in_its_own_order() {
    let events = random_events(11, 3_000);
    let trace = TraceReader::from_bytes("t", write("streams", &events)).unwrap();
    let streams = trace.streams().unwrap();
    assert_eq!(streams.tasks(), 40);
    for task in (0..40).map(TaskId) {
        let expected = events.iter().filter(|event| event.task == task);
        let got = streams.task(task).iter();
        assert!(expected.map(|e| e.kind).eq(got.map(|e| e.kind)), "{task:?}");
    }
    assert!(streams.task(TaskId(40)).is_empty());
}

fn accessed(time_us: u64, task: u32, page: u64, pages: u64) -> Event {
    Event {
        time_us,
        task: TaskId(task),
        kind: EventKind::Accessed {
            address: page * PAGE,
            length: pages * PAGE,
        },
        ran_us: None,
    }
}

#[test]
fn samples_of_accessed_marks_lie_between_the_events_for_those_who_ask() {
    let at = |time_us, page| Event {
        time_us,
        task: TaskId(0),
        kind: fault_at(page),
        ran_us: None,
    };
    let all = [
        at(5, 1),
        at(10, 2),
        accessed(10, 0, 1, 2),
        accessed(10, 0, 9, 1),
        // Of a task that is not there any more, or not yet.
        accessed(11, 39, 4, 1),
        at(12, 3),
        accessed(900, 0, 1, 3),
    ];
    let trace = TraceReader::from_bytes("t", write("accesses", &all)).unwrap();
    let read: Result<Vec<Event>, TraceError> = trace.events_and_accesses().collect();
    assert_eq!(read.unwrap(), all);
    let events: Result<Vec<Event>, TraceError> = trace.events().collect();
    assert_eq!(events.unwrap(), [all[0], all[1], all[5]]);
    assert_eq!((trace.header().events, trace.header().duration_us), (3, 12));
}

#[test]
fn more_samples_than_a_section_holds_are_read_back() {
    let count = (1 << 18) + 5;
    let mut all = vec![Event {
        time_us: 0,
        task: TaskId(0),
        kind: fault_at(0),
        ran_us: None,
    }];
    all.extend((0..count).map(|number| accessed(number, 0, number * 7 % 1000, 1 + number % 3)));
    let trace = TraceReader::from_bytes("t", write("many-accesses", &all)).unwrap();
    let read: Result<Vec<Event>, TraceError> = trace.events_and_accesses().collect();
    assert!(read.unwrap() == all);
    assert_eq!(trace.events().count(), 1);
}

#[test]
fn a_reader_that_does_not_know_samples_skips_them() {
    let kind = *b"ACCS";
    let mut bytes = write("unknown", &[accessed(7, 0, 1, 2)]);
    let places: Vec<usize> = (0..bytes.len() - 4)
        .filter(|&at| bytes[at..at + 4] == kind)
        .collect();
    let [section, entry] = places[..] else {
        panic!("a section and its entry in the index, not {places:?}");
    };
    // The same section under a name that nobody knows, checksums renewed.
    bytes[section..section + 4].copy_from_slice(b"ACCT");
    let sum = crc32fast::hash(&bytes[section..section + 20]).to_le_bytes();
    bytes[section + 20..section + 24].copy_from_slice(&sum);
    bytes[entry..entry + 4].copy_from_slice(b"ACCT");
    let index = (0..entry)
        .rev()
        .find(|&at| bytes[at..at + 4] == *b"INDX")
        .expect("an index");
    let payload = crc32fast::hash(&bytes[index + 24..bytes.len() - 24]).to_le_bytes();
    bytes[index + 16..index + 20].copy_from_slice(&payload);
    let sum = crc32fast::hash(&bytes[index..index + 20]).to_le_bytes();
    bytes[index + 20..index + 24].copy_from_slice(&sum);
    let trace = TraceReader::from_bytes("t", bytes).unwrap();
    assert_eq!(trace.events_and_accesses().count(), 0);
}

#[test]
fn an_empty_trace_is_a_trace() {
    let (header, events) = read_all(write("empty", &[])).unwrap();
    assert_eq!((header.events, header.duration_us, events.len()), (0, 0, 0));
}

#[test]
fn the_writer_refuses_what_breaks_a_rule_and_leaves_no_file() {
    let exit = EventKind::Exit;
    let at = |time_us, task, kind| Event {
        time_us,
        task: TaskId(task),
        kind,
        ran_us: None,
    };
    let ran = |time_us, ran_us| Event {
        ran_us: Some(ran_us),
        ..at(time_us, 0, fault_at(0))
    };
    let fault = EventKind::Fault {
        address: 17,
        access: Access::Read,
        kernel: false,
        present: false,
    };
    let missing_file = EventKind::Truncate {
        file: FileId(3),
        size: 0,
    };
    let cases = [
        ("was not created", vec![at(0, 1, exit)]),
        ("not in the table", vec![at(0, 40, exit)]),
        ("has ended", vec![at(0, 0, exit), at(0, 0, exit)]),
        ("after time", vec![at(9, 0, fault_at(0)), at(8, 0, exit)]),
        ("not page-aligned", vec![at(0, 0, fault)]),
        ("file 3", vec![at(0, 0, missing_file)]),
        ("string 2", vec![at(0, 0, EventKind::Exec { name: 2 })]),
        (
            "has not ended",
            vec![at(0, 0, EventKind::Wait { child: TaskId(1) })],
        ),
        ("no page was accessed", vec![accessed(0, 0, 1, 0)]),
        (
            "after time 9",
            vec![accessed(9, 0, 1, 1), accessed(8, 0, 1, 1)],
        ),
        ("task 40 is not in", vec![accessed(0, 40, 1, 1)]),
        ("ran for 6 us and 4 us", vec![ran(6, 6), ran(9, 4)]),
        ("ran for 1 us", vec![ran(6, 1), ran(9, u64::MAX)]),
    ];
    let mut without = TraceWriter::create(path("without"), 3).unwrap();
    let tasks = header().tasks;
    without.header_mut().tasks = tasks;
    let refused = without.push(&accessed(0, 0, 1, 1)).unwrap_err().to_string();
    assert!(refused.contains("says that there are none"), "{refused}");
    drop(without);
    for (reason, events) in cases {
        let path = path("refused");
        let mut writer = TraceWriter::create(&path, 3).unwrap();
        *writer.header_mut() = header();
        let result: Result<(), TraceError> = events.iter().try_for_each(|e| writer.push(e));
        let text = result.unwrap_err().to_string();
        assert!(text.contains(reason), "{text:?} does not say {reason:?}");
        drop(writer);
        let directory = path.parent().unwrap();
        let left = std::fs::read_dir(directory).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with("refused")
        });
        assert_eq!(left.count(), 0, "a file was left behind");
    }
}

fn fault_at(page: u64) -> EventKind {
    EventKind::Fault {
        address: page * PAGE,
        access: Access::Write,
        kernel: false,
        present: false,
    }
}

#[test]
fn every_truncation_is_refused_with_the_place_named() {
    let bytes = write("cut-short", &random_events(3, 300));
    for length in 0..bytes.len() {
        let error = read_all(bytes[..length].to_vec()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("test.vellum: "), "{length}: {text}");
        match error {
            TraceError::Foreign { .. } => assert_eq!(length, 0, "{text}"),
            TraceError::Damaged { offset, .. } => assert!(offset <= length as u64, "{text}"),
            other => panic!("{length}: {other}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = write("flipped", &random_events(5, 200));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(read_all(damaged).is_err(), "byte {at}");
    }
}

#[test]
fn foreign_and_future_files_are_told_apart() {
    let elf = b"\x7fELF\x02\x01\x01 and so on".to_vec();
    assert!(matches!(read_all(elf), Err(TraceError::Foreign { .. })));
    // A trace that went through a transfer that rewrites line ends.
    let mut text = write("foreign", &[]);
    text.remove(4);
    assert!(matches!(read_all(text), Err(TraceError::Foreign { .. })));
    let mut future = write("future", &[]);
    future[8] = 2;
    let checksum = crc32fast::hash(&future[..12]).to_le_bytes();
    future[12..16].copy_from_slice(&checksum);
    let error = read_all(future).unwrap_err();
    assert!(
        matches!(error, TraceError::Future { offset: 8, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("later version"), "{error}");
    let missing = TraceReader::open("/nonexistent/file.vellum").err().unwrap();
    assert!(
        missing.to_string().contains("/nonexistent/file.vellum"),
        "{missing}"
    );
    let directory = TraceReader::open(std::env::temp_dir()).err().unwrap();
    assert!(
        matches!(directory, TraceError::Foreign { .. }),
        "{directory}"
    );
}

/// Makes every checksum of a damaged trace right again, so that damage reaches
/// the code behind the checksums.
fn repair_checksums(bytes: &mut [u8]) {
    let put = |bytes: &mut [u8], at: usize, checksum: u32| {
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    };
    if bytes.len() < 64 {
        return;
    }
    let prefix = crc32fast::hash(&bytes[..12]);
    put(bytes, 12, prefix);
    let end = bytes.len() - 24;
    let mut at = 16;
    while at + 24 <= end {
        let length = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
        let Some(payload_end) = (at as u64 + 24).checked_add(length) else {
            break;
        };
        let payload_end = payload_end.min(end as u64) as usize;
        let payload = crc32fast::hash(&bytes[at + 24..payload_end]);
        put(bytes, at + 16, payload);
        let head = crc32fast::hash(&bytes[at..at + 20]);
        put(bytes, at + 20, head);
        at = payload_end;
    }
    let checksum = crc32fast::hash(&bytes[end..end + 16]);
    put(bytes, end + 16, checksum);
}

#[test]
fn mutations_behind_right_checksums_never_panic() {
    // Level 1 and short columns leave many bytes uncompressed, so mutations
    // reach every decoder; compressed ones reach the column checks.
    let seeds = [
        write("m1", &random_events(21, 40)),
        write("m2", &random_events(22, 900)),
    ];
    let mut refused = 0;
    let rounds = 20_000;
    for round in 0..rounds {
        let mut random = Random(round);
        let mut bytes = seeds[random.below(2) as usize].clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
                2 => bytes[at] = random.next() as u8,
                _ => {
                    let from = random.below(bytes.len() as u64) as usize;
                    let length = random.below(16) as usize;
                    let length = length.min(bytes.len() - from.max(at));
                    bytes.copy_within(from..from + length, at);
                }
            }
        }
        repair_checksums(&mut bytes);
        refused += u64::from(read_all(bytes).is_err());
    }
    // Some mutations make another valid trace; most must be noticed.
    assert!(
        refused > rounds / 2,
        "only {refused} of {rounds} were refused"
    );
}

#[test]
fn reading_ends_at_the_first_event_that_the_header_does_not_promise() {
    // A block of 200,000 exits takes some hundred bytes of a file.
    let events: Vec<Event> = (0..200_000)
        .map(|index| Event {
            time_us: index,
            task: TaskId(0),
            kind: EventKind::Brk { end: 0 },
            ran_us: None,
        })
        .collect();
    let whole = write("promised", &events);
    let few = write("promised-few", &events[..10]);
    let section = |bytes: &[u8], at: usize| -> Vec<u8> {
        let length = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
        bytes[at..at + 24 + length as usize].to_vec()
    };
    // The long trace's block with the short one's header.
    let block = section(&whole, 16);
    let head = section(&few, 16 + section(&few, 16).len());
    let mut bytes = whole[..16].to_vec();
    let mut index = Vec::new();
    for part in [&block, &head] {
        index.extend_from_slice(&part[..8]);
        index.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        index.extend_from_slice(&part[8..16]);
        bytes.extend_from_slice(part);
    }
    let index_at = bytes.len() as u64;
    bytes.extend_from_slice(b"INDX\x01\0\0\0");
    bytes.extend_from_slice(&(index.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&index);
    bytes.extend_from_slice(&index_at.to_le_bytes());
    bytes.extend_from_slice(&(bytes.len() as u64 + 16).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(b"VLME");
    repair_checksums(&mut bytes);
    let trace = TraceReader::from_bytes("test.vellum", bytes).unwrap();
    assert_eq!(trace.events().filter(Result::is_ok).count(), 10);
    let error = trace.streams().unwrap_err().to_string();
    assert!(
        error.contains("11 or more events, the header promises 10"),
        "{error}"
    );
}
