//! Traces of drmemtrace: text of its view tool, and records.

use crate::common::{Random, accesses, clone_flags, faults, import, mappings, refusal};
use vellum_import::{Format, Options, import_text};
use vellum_trace::Access;

/// Two threads, in the words of two versions of the view tool.
#[test]
fn drmemtrace_accesses_become_faults_at_the_times_of_their_timestamps() {
    let text = "\
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:        4711 <marker: version 6>
           2           0:        4711 <marker: timestamp 13319413770947383>
           3           0:        4711 <marker: tid 7 on core 10>
           4           1:        4711 ifetch       8 byte(s) @ 0x0000000000401012 48 8d 34 25 00 20 40 lea    0x00402000 -> %rsi
           4           1:        4711                                             00
           5           2:        4711 read         8 byte(s) @ 0x00007fff8044fffc by PC 0x0000000000401016
           6           2:        4711 <marker: timestamp 13319413770947400>
           6           2:        4711 <marker: trace start for system call number 39>
           6           2:        4711 ifetch       1 byte(s) @ 0x00000000deadbe00 90                   nop
           6           2:        4711 read         8 byte(s) @ 0xffffffff81000000 by PC 0x00000000deadbe00
           6           2:        4711 <marker: trace end for system call number 39>
           7           2:        4712 <marker: timestamp 13319413770947390>
           8           3:        4712 write        4 byte(s) @ 0x00007fff80450000 by PC 0x0000000000401016
           9           3:        4712 <thread 8 exited>
          10           3:        4711 <marker: timestamp 13319413770947500>
View tool results:
              3 : total instructions
";
    let workloads = text
        .replace(" 4711 ", " W0.T4711 ")
        .replace(" 4712 ", " W0.T4712 ");
    for text in [text, &workloads] {
        let (format, imported, report) = import(text.as_bytes());
        assert_eq!(
            (format, report.skipped.len()),
            (Format::Drmemtrace, 0),
            "{report:?}"
        );
        let tasks = &imported.header().tasks;
        assert_eq!(tasks.len(), 2);
        assert_eq!((tasks[1].pid, tasks[1].process), (4712, 4711));
        let faults: Vec<_> = faults(&imported)
            .iter()
            .map(|fault| {
                (
                    fault.time_us,
                    fault.task,
                    fault.address,
                    fault.access,
                    fault.present,
                )
            })
            .collect();
        let (stack, next) = (0x7fff_8044_f000, 0x7fff_8045_0000);
        assert_eq!(
            faults,
            [
                (0, 0, 0x40_1000, Access::Execute, false),
                // It lies across two pages.
                (0, 0, stack, Access::Read, false),
                (0, 0, next, Access::Read, false),
                (17, 1, next, Access::Write, true),
            ]
        );
        assert_eq!(clone_flags(&imported), [0x3d_0f00]);
        assert_eq!(imported.events().last().unwrap().time_us, 117);
    }
}

/// Types of records and markers, as `trace_entry.h` of DynamoRIO numbers them.
mod record {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const PREFETCH: u16 = 2;
    pub const INSTR: u16 = 10;
    pub const BUNDLE: u16 = 17;
    pub const THREAD: u16 = 22;
    pub const THREAD_EXIT: u16 = 23;
    pub const PID: u16 = 24;
    pub const HEADER: u16 = 25;
    pub const FOOTER: u16 = 26;
    pub const MARKER: u16 = 28;
    pub const NO_FETCH: u16 = 29;
    pub const ENCODING: u16 = 47;
    pub const TIMESTAMP: u16 = 2;
    pub const FILETYPE: u16 = 9;
    pub const VERSION: u16 = 12;
    pub const PAGE_SIZE: u16 = 18;
    pub const SYSCALL_BEGIN: u16 = 27;
    pub const SYSCALL_END: u16 = 28;
}

const X86_64: u64 = 0x40;
const ENCODINGS: u64 = 0x200;

/// A file of records being written.
struct Recording(Vec<u8>);

impl Recording {
    /// As drmemtrace begins the file of a thread.
    fn begin(version: u64, types: u64, (pid, tid): (u64, u64)) -> Recording {
        let mut recording = Recording(Vec::new());
        recording
            .put(record::HEADER, 0, version)
            .put(record::MARKER, record::VERSION, version)
            .put(record::MARKER, record::FILETYPE, types)
            .put(record::THREAD, 4, tid)
            .put(record::PID, 4, pid)
            .put(record::MARKER, record::PAGE_SIZE, 4096);
        recording
    }

    fn put(&mut self, kind: u16, size: u16, address: u64) -> &mut Recording {
        self.0.extend(kind.to_le_bytes());
        self.0.extend(size.to_le_bytes());
        self.0.extend(address.to_le_bytes());
        self
    }

    fn at(&mut self, time_us: u64) -> &mut Recording {
        self.put(
            record::MARKER,
            record::TIMESTAMP,
            13_000_000_000_000_000 + time_us,
        )
    }

    fn end(&mut self) -> Vec<u8> {
        let tid = 0;
        self.put(record::THREAD_EXIT, 4, tid)
            .put(record::FOOTER, 0, 0);
        self.0.clone()
    }
}

/// One thread of everything.
pub fn recording() -> Vec<u8> {
    let mut recording = Recording::begin(6, X86_64 | ENCODINGS, (4711, 4711));
    recording
        .at(0)
        .put(record::ENCODING, 3, 0x90_9090)
        .put(record::INSTR, 3, 0x40_1ffe)
        .put(record::READ, 8, 0x7fff_8044_f000)
        .put(record::BUNDLE, 2, 0x1003)
        .put(record::PREFETCH, 8, 0x9000)
        .put(record::NO_FETCH, 3, 0x9000)
        .at(20)
        .put(record::MARKER, record::SYSCALL_BEGIN, 1)
        .put(record::READ, 8, 0xa000)
        .put(record::MARKER, record::SYSCALL_END, 1)
        .put(record::READ, 8, 0xffff_8000_0000_0000)
        .put(record::READ, 0, 0xb000)
        .put(record::WRITE, 4, 0x7fff_8044_f010);
    recording.end()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A zip archive of pieces, with check sums and lengths in front of each file or after it, and the
/// list at the end as far as a reader in one go looks at it.
fn zip(pieces: &[&[u8]], sums_follow: bool, stored: bool) -> Vec<u8> {
    use std::io::Write;
    let mut archive = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(piece).unwrap();
        let data = if stored {
            piece.to_vec()
        } else {
            encoder.finish().unwrap()
        };
        let mut crc = flate2::Crc::new();
        crc.update(piece);
        let mut sums = crc.sum().to_le_bytes().to_vec();
        sums.extend((data.len() as u32).to_le_bytes());
        sums.extend((piece.len() as u32).to_le_bytes());
        let name = format!("chunk.{index:04}");
        archive.extend(b"PK\x03\x04\x14\x00");
        archive.extend(if sums_follow { [8, 0] } else { [0, 0] });
        archive.extend(if stored { [0, 0] } else { [8, 0] });
        archive.extend([0; 4]);
        match sums_follow {
            true => archive.extend([0; 12]),
            false => archive.extend(&sums),
        }
        archive.extend((name.len() as u16).to_le_bytes());
        archive.extend([0; 2]);
        archive.extend(name.as_bytes());
        archive.extend(data);
        if sums_follow {
            archive.extend(b"PK\x07\x08");
            archive.extend(sums);
        }
    }
    archive.extend(b"PK\x01\x02");
    archive
}

#[test]
fn records_become_what_they_are_in_text() {
    let plain = recording();
    let (begin, end) = plain.split_at(12 * 9 + 5);
    for packed in [
        plain.clone(),
        gzip(&plain),
        zstd::encode_all(plain.as_slice(), 1).unwrap(),
        zip(&[&plain], false, false),
        zip(&[begin, end], true, false),
        zip(&[begin, end], false, true),
    ] {
        let (format, imported, report) = import(&packed);
        assert_eq!(
            (format, report.skips()),
            (Format::Drmemtrace, 0),
            "{report:?}"
        );
        assert_eq!(report.lines, plain.len() as u64 / 12);
        let found: Vec<_> = faults(&imported)
            .iter()
            .map(|fault| (fault.time_us, fault.address, fault.access, fault.present))
            .collect();
        let stack = 0x7fff_8044_f000;
        assert_eq!(
            found,
            [
                // It lies across two pages.
                (0, 0x40_1000, Access::Execute, false),
                (0, 0x40_2000, Access::Execute, false),
                (0, stack, Access::Read, false),
                (20, stack, Access::Write, true),
            ]
        );
        assert_eq!(mappings(&imported), [(0x40_1000, 2, 5), (stack, 1, 3)]);
        let invisible = &imported.header().invisible;
        assert_eq!(invisible[0], "Imported from records of drmemtrace.");
        let text = report.text(&[]).join("\n");
        assert!(
            text.contains("records: what the kernel does itself (records "),
            "{text}"
        );
    }
}

#[test]
fn files_of_threads_are_read_as_far_as_the_time_of_the_others() {
    let mut first = Recording::begin(7, X86_64, (10, 10));
    first.at(0).put(record::READ, 8, 0x1000);
    first
        .at(100)
        .put(record::WRITE, 8, 0x1000)
        .put(record::WRITE, 8, 0x3000);
    let mut second = Recording::begin(7, X86_64, (10, 11));
    second
        .at(50)
        .put(record::READ, 8, 0x1000)
        .put(record::READ, 8, 0x3000);
    let files = [first.end(), second.end()];
    for order in [[0, 1], [1, 0]] {
        let (imported, _) = crate::common::import_files(&order.map(|at| files[at].as_slice()));
        let found: Vec<_> = faults(&imported)
            .iter()
            .map(|fault| (fault.time_us, fault.task, fault.address, fault.access))
            .collect();
        assert_eq!(
            found,
            [
                (0, 0, 0x1000, Access::Read),
                (50, 1, 0x3000, Access::Read),
                (100, 0, 0x1000, Access::Write),
                (100, 0, 0x3000, Access::Write),
            ]
        );
        let tasks: Vec<_> = imported
            .header()
            .tasks
            .iter()
            .map(|task| (task.pid, task.process))
            .collect();
        assert_eq!(tasks, [(10, 10), (11, 10)]);
    }
}

#[test]
fn old_records_without_markers_or_times_are_read() {
    let mut recording = Recording(Vec::new());
    recording
        .put(record::HEADER, 0, 1)
        .put(record::THREAD, 4, 7)
        .put(record::PID, 4, 7)
        .put(record::INSTR, 4, 0x40_1000)
        .put(record::WRITE, 8, 0x5000);
    let (_, imported, report) = import(&recording.end());
    assert_eq!(
        accesses(&imported),
        [(0x40_1000, Access::Execute), (0x5000, Access::Write)]
    );
    assert!(report.notes.iter().any(|note| note.contains("made up")));
}

/// What is wrong with records, and what the error says of it.
#[test]
fn records_that_cannot_be_read_are_an_error_with_their_place() {
    let begin = |version, types| Recording::begin(version, types, (7, 7)).0;
    let whole = recording();
    let then = |mut bytes: Vec<u8>, kind: u16, size: u16, address: u64| {
        let mut recording = Recording(std::mem::take(&mut bytes));
        recording.put(kind, size, address);
        recording.0
    };
    let narrow = [[25, 0, 0, 0, 6, 0, 0, 0], [28, 0, 12, 0, 6, 0, 0, 0]].concat();
    for (bytes, parts) in [
        (
            whole[..whole.len() - 12].to_vec(),
            ["record 22 ", "without a footer"],
        ),
        (whole[..whole.len() - 7].to_vec(), ["record 22 ", "cut off"]),
        (begin(8, X86_64), ["record 1 ", "version 8"]),
        (begin(6, 0x8), ["record 3 ", "AArch64"]),
        (begin(6, 0x20), ["record 3 ", "32-bit x86"]),
        (begin(6, X86_64 | 0x4000), ["record 3 ", "templates"]),
        (narrow, ["record 1 ", "32-bit program"]),
        (then(begin(6, X86_64), 50, 0, 0), ["record 7 ", "type 50"]),
        (
            then(begin(6, X86_64), record::BUNDLE, 9, 0),
            ["record 7 ", "eight"],
        ),
        (
            then(begin(6, X86_64), record::MARKER, 101, 0),
            ["record 7 ", "type 101"],
        ),
        (
            then(begin(6, X86_64), record::MARKER, record::PAGE_SIZE, 65536),
            ["record 7 ", "65536"],
        ),
        (gzip(&whole)[..60].to_vec(), ["text", "cannot read"]),
        (
            zip(&[&whole], false, false)[..90].to_vec(),
            ["text", "cannot read"],
        ),
    ] {
        let error = refusal(&bytes);
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    let mut damaged = zip(&[&whole], false, false);
    damaged[14] ^= 1;
    let error = refusal(&damaged);
    assert!(
        error.contains("file 1 of the zip archive: its check sum"),
        "{error}"
    );
}

#[test]
fn records_of_an_unconverted_recording_are_named() {
    let raw = [
        3, 0, 0, 0, 0, 0, 0x40, 0xc0, 0x72, 0x6d, 8, 0, 0, 0, 0, 0x40,
    ];
    let error = refusal(&gzip(&raw));
    assert!(error.contains("raw"), "{error}");
}

#[test]
fn damaged_records_end_in_a_trace_or_an_error() {
    let whole = recording();
    let zipped = zip(&[&whole], false, false);
    for seed in 1..=300u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for bytes in [&whole, &zipped] {
            let mut bytes = bytes.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            bytes.truncate(bytes.len() - random.below(4));
            if let Err(error) = import_text(&bytes, &Options::default()) {
                assert!(!error.to_string().is_empty(), "seed {seed}");
            }
        }
    }
}
