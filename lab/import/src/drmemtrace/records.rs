//! Records of drmemtrace, as they lie in `drmemtrace.*.dir/trace`: twelve bytes each, of a type, a size
//! and an address, little-endian.
//!
//! A file holds what one thread did (or one CPU, in traces that are sharded by cores): a header with
//! the version, markers that say what was traced and where, then every instruction fetch and every
//! access to data, and a footer. Files are read side by side, each as far as the time of the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::{MADE_UP_TIMES, OF_THE_KERNEL, OF_THE_TIMESTAMPS};
use crate::accesses::{self, Access, Kind, Process};
use crate::report::{Place, Report};
use crate::{Each, ImportError, Input, Streamed, Watch, notes};
use vellum_record::Sink;

/// Bytes of a record.
const RECORD: usize = 12;
/// Versions of the format that are known.
const VERSIONS: std::ops::RangeInclusive<u64> = 1..=7;
/// Types of records.
mod kind {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const FIRST_PREFETCH: u16 = 2;
    pub const LAST_PREFETCH: u16 = 9;
    pub const FETCH: u16 = 10;
    pub const LAST_FETCH: u16 = 16;
    pub const BUNDLE: u16 = 17;
    pub const FIRST_FLUSH: u16 = 18;
    pub const LAST_FLUSH: u16 = 21;
    pub const THREAD: u16 = 22;
    pub const THREAD_EXIT: u16 = 23;
    pub const PROCESS: u16 = 24;
    pub const HEADER: u16 = 25;
    pub const FOOTER: u16 = 26;
    pub const HARDWARE_PREFETCH: u16 = 27;
    pub const MARKER: u16 = 28;
    pub const NO_FETCH: u16 = 29;
    pub const MAYBE_FETCH: u16 = 30;
    pub const SYSENTER: u16 = 31;
    pub const FIRST_TYPED_PREFETCH: u16 = 32;
    pub const LAST_TYPED_PREFETCH: u16 = 46;
    pub const ENCODING: u16 = 47;
    pub const TAKEN: u16 = 48;
    pub const UNTAKEN: u16 = 49;
}

/// Markers that matter.
mod marker {
    pub const TIMESTAMP: u16 = 2;
    pub const FILE_TYPE: u16 = 9;
    pub const VERSION: u16 = 12;
    pub const PAGE_SIZE: u16 = 18;
    pub const KERNEL_BEGINS: [u16; 2] = [27, 34];
    pub const KERNEL_ENDS: [u16; 2] = [28, 35];
    /// From here on nothing is defined.
    pub const END: u16 = 100;
}

/// What a file's type says.
mod file_type {
    pub const ARCHITECTURES: [(u64, &str); 3] =
        [(0x8, "AArch64"), (0x10, "32-bit Arm"), (0x20, "32-bit x86")];
    /// Only a share of the accesses is there.
    pub const FILTERED: u64 = 0x1 | 0x80 | 0x100 | 0x2000;
    pub const INSTRUCTIONS_ONLY: u64 = 0x4;
    pub const SYSCALL_TEMPLATES: u64 = 0x4000;
}

/// Whether a file begins like one of records.
pub fn begins(head: &[u8]) -> bool {
    matches!(head, [0x19, 0, 0, 0, ..])
}

/// Whether a file begins like one of the recorder's own, that is not converted to records: of the type
/// "extended" and a header.
pub fn is_raw(head: &[u8]) -> bool {
    matches!(head, [0..=7, 0, 0, 0, 0, 0, 0..=0x7f, 0xc0, ..])
}

/// A record.
#[derive(Clone, Copy)]
struct Record {
    kind: u16,
    size: u16,
    address: u64,
}

/// A file being read.
struct File {
    input: Input,
    index: usize,
    /// Records read.
    records: u64,
    thread: u32,
    process: u64,
    in_kernel: bool,
    /// The last timestamp.
    now_us: u64,
    /// Where the instruction after the last fetch lies, for bundles.
    next: u64,
    ended: bool,
    types: u64,
}

/// What the files tell together.
#[derive(Default)]
struct Told<'e> {
    /// Who is told of each access, if not the processes.
    each: Option<&'e mut Each<'e>>,
    /// Processes of threads.
    owners: HashMap<u32, u64>,
    processes: BTreeMap<u64, Process>,
    origin_us: Option<u64>,
    timestamps: u64,
    types: u64,
}

/// Imports the inputs, which are files of one run.
pub fn import(
    inputs: Vec<Input>,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    let mut report = of_records();
    let mut told = Told::default();
    read(inputs, &mut told, &mut report, watch)?;
    write(told, sink, &mut report)?;
    Ok(report)
}

/// Hands on every access of the inputs, which are files of one run.
pub fn stream<'e>(
    inputs: Vec<Input>,
    watch: &mut Watch<'_>,
    each: &'e mut Each<'e>,
) -> Result<Report, ImportError> {
    let mut report = of_records();
    let mut told = Told {
        each: Some(each),
        ..Told::default()
    };
    read(inputs, &mut told, &mut report, watch)?;
    Ok(report)
}

fn of_records() -> Report {
    Report {
        unit: "record",
        ..Report::default()
    }
}

fn read(
    inputs: Vec<Input>,
    told: &mut Told<'_>,
    report: &mut Report,
    watch: &mut Watch<'_>,
) -> Result<(), ImportError> {
    let mut files: Vec<File> = Vec::new();
    let mut waiting = BinaryHeap::new();
    for (index, input) in inputs.into_iter().enumerate() {
        let mut file = File::open(input, index, watch)?;
        report.lines += 1;
        let goes_on = file.read_on(told, u64::MAX, true, report, watch)?;
        if goes_on {
            waiting.push(Reverse((file.now_us, index)));
        }
        files.push(file);
    }
    told.origin_us = files
        .iter()
        .map(|file| file.now_us)
        .filter(|time| *time > 0)
        .min();
    while let Some(Reverse((_, index))) = waiting.pop() {
        let until = waiting.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        let file = &mut files[index];
        if file.read_on(told, until, false, report, watch)? {
            waiting.push(Reverse((file.now_us, index)));
        }
    }
    Ok(())
}

fn write(told: Told<'_>, sink: &mut dyn Sink, report: &mut Report) -> Result<(), ImportError> {
    let several = told.processes.len() > 1;
    accesses::write(
        told.processes.into_values().collect(),
        sink,
        "drmemtrace",
        report,
    )?;
    report.notes.push(
        match told.timestamps {
            0 => MADE_UP_TIMES,
            _ => OF_THE_TIMESTAMPS,
        }
        .to_owned(),
    );
    for (applies, what) in [
        (true, "What system calls touch does not show."),
        (
            several,
            "Processes run one after the other, in the order of their ids.",
        ),
        (
            told.types & file_type::FILTERED != 0,
            "Accesses were filtered through small caches as they were recorded: what hit there is \
             missing, but hardly the first touch of a page.",
        ),
        (
            told.types & file_type::INSTRUCTIONS_ONLY != 0,
            "Only instructions were recorded, no accesses to data.",
        ),
    ] {
        if applies {
            report.notes.push(what.to_owned());
        }
    }
    notes::tell(sink, "records of drmemtrace", report);
    Ok(())
}

impl File {
    /// Reads the header.
    fn open(input: Input, index: usize, watch: &mut Watch<'_>) -> Result<File, ImportError> {
        let mut file = File {
            input,
            index,
            records: 0,
            thread: 0,
            process: 0,
            in_kernel: false,
            now_us: 0,
            next: 0,
            ended: false,
            types: 0,
        };
        let header = file.next(watch)?;
        let Some(header) = header.filter(|header| header.kind == kind::HEADER) else {
            return Err(file.error("no header of a trace of drmemtrace"));
        };
        file.check_version(header.address)?;
        Ok(file)
    }

    /// Something is wrong with the record read last.
    fn error(&self, what: &str) -> ImportError {
        let record = self.records;
        ImportError::Format(format!(
            "{}: record {record} of drmemtrace: {what}",
            self.input.name
        ))
    }

    fn place(&self) -> Place {
        Place {
            input: self.index,
            line: self.records,
        }
    }

    fn check_version(&self, version: u64) -> Result<(), ImportError> {
        // What follows a header of eight bytes is a record.
        if version >> 32 != 0 && VERSIONS.contains(&(version & 0xffff_ffff)) {
            return Err(self.error("they are those of a 32-bit program, which are not read"));
        }
        match VERSIONS.contains(&version) {
            true => Ok(()),
            false => Err(self.error(&format!(
                "version {version} of the format is not known ({} to {} are); drrun -t drmemtrace \
                 -tool view makes text of it, which can be imported",
                VERSIONS.start(),
                VERSIONS.end()
            ))),
        }
    }

    fn check_types(&mut self, types: u64) -> Result<(), ImportError> {
        for (bit, name) in file_type::ARCHITECTURES {
            if types & bit != 0 {
                return Err(self.error(&format!(
                    "it was recorded on {name}; only traces of x86-64 are read"
                )));
            }
        }
        if types & file_type::SYSCALL_TEMPLATES != 0 {
            return Err(self.error("it holds templates of system calls, not a run"));
        }
        self.types |= types;
        Ok(())
    }

    /// The next record.
    fn next(&mut self, watch: &mut Watch<'_>) -> Result<Option<Record>, ImportError> {
        let before = self.input.bytes();
        let mut bytes = [0; RECORD];
        let read = self.input.next_bytes(&mut bytes);
        self.records += 1;
        match read {
            Ok(RECORD) => {}
            Ok(0) => return Ok(None),
            Ok(_) => return Err(self.error("it is cut off")),
            Err(error) => return Err(self.error(&format!("cannot read: {error}"))),
        }
        watch.line(self.input.bytes() - before)?;
        let [a, b, c, d, address @ ..] = bytes;
        Ok(Some(Record {
            kind: u16::from_le_bytes([a, b]),
            size: u16::from_le_bytes([c, d]),
            address: u64::from_le_bytes(address),
        }))
    }

    /// Reads until a timestamp after `until`, or if it is `first` until the first one. False: the
    /// file has ended.
    fn read_on(
        &mut self,
        told: &mut Told<'_>,
        until: u64,
        first: bool,
        report: &mut Report,
        watch: &mut Watch<'_>,
    ) -> Result<bool, ImportError> {
        while let Some(record) = self.next(watch)? {
            report.lines += 1;
            let is_time = record.kind == kind::MARKER && record.size == marker::TIMESTAMP;
            if is_time {
                self.now_us = record.address;
                told.timestamps += 1;
                report.pass_over(self.place(), "markers");
                if first || self.now_us > until {
                    return Ok(true);
                }
                continue;
            }
            self.take(record, told, report)?;
        }
        match self.ended {
            true => Ok(false),
            false => Err(self.error("the file ends here, without a footer: it is cut off")),
        }
    }

    fn take(
        &mut self,
        record: Record,
        told: &mut Told<'_>,
        report: &mut Report,
    ) -> Result<(), ImportError> {
        let Record { kind, size, .. } = record;
        self.ended = kind == kind::FOOTER;
        let what = match kind {
            kind::READ | kind::WRITE => {
                let kind = if kind == kind::READ {
                    Kind::Read
                } else {
                    Kind::Write
                };
                return self.access(kind, record.address, size, told, report);
            }
            kind::FETCH..=kind::LAST_FETCH
            | kind::MAYBE_FETCH
            | kind::SYSENTER
            | kind::TAKEN
            | kind::UNTAKEN => {
                self.next = record.address.wrapping_add(u64::from(size));
                return self.access(Kind::Execute, record.address, size, told, report);
            }
            kind::BUNDLE => return self.bundle(record, told, report),
            kind::THREAD => {
                self.thread = record.address as u32;
                self.process = told.owners.get(&self.thread).copied().unwrap_or(0);
                "ids of threads and processes"
            }
            kind::PROCESS => {
                self.process = record.address;
                told.owners.insert(self.thread, self.process);
                "ids of threads and processes"
            }
            kind::MARKER => {
                self.marker(record)?;
                told.types |= self.types;
                "markers"
            }
            kind::HEADER => {
                self.check_version(record.address)?;
                "headers and footers"
            }
            kind::FOOTER => "headers and footers",
            kind::THREAD_EXIT => "ends of threads",
            kind::ENCODING => "encodings of instructions",
            kind::NO_FETCH
            | kind::HARDWARE_PREFETCH
            | kind::FIRST_PREFETCH..=kind::LAST_PREFETCH
            | kind::FIRST_TYPED_PREFETCH..=kind::LAST_TYPED_PREFETCH
            | kind::FIRST_FLUSH..=kind::LAST_FLUSH => {
                "prefetches, flushes and instructions that are not fetched"
            }
            _ => return Err(self.error(&format!("a record of type {kind}, which is not known"))),
        };
        report.pass_over(self.place(), what);
        Ok(())
    }

    fn marker(&mut self, record: Record) -> Result<(), ImportError> {
        match record.size {
            marker::VERSION => self.check_version(record.address),
            marker::FILE_TYPE => self.check_types(record.address),
            marker::PAGE_SIZE if record.address != 4096 => Err(self.error(&format!(
                "pages of {} bytes; only those of 4096 are read",
                record.address
            ))),
            size if marker::KERNEL_BEGINS.contains(&size) => {
                self.in_kernel = true;
                Ok(())
            }
            size if marker::KERNEL_ENDS.contains(&size) => {
                self.in_kernel = false;
                Ok(())
            }
            size if size > marker::END => {
                Err(self.error(&format!("a marker of type {size}, which is not known")))
            }
            _ => Ok(()),
        }
    }

    /// Further instructions after the last one; only their lengths are told.
    fn bundle(
        &mut self,
        record: Record,
        told: &mut Told<'_>,
        report: &mut Report,
    ) -> Result<(), ImportError> {
        let lengths = record.address.to_le_bytes();
        let Some(lengths) = lengths.get(..usize::from(record.size)) else {
            return Err(self.error("more than eight instructions in a bundle"));
        };
        for length in lengths {
            let address = self.next;
            self.next = address.wrapping_add(u64::from(*length));
            self.access(Kind::Execute, address, u16::from(*length), told, report)?;
        }
        Ok(())
    }

    fn access(
        &mut self,
        kind: Kind,
        address: u64,
        size: u16,
        told: &mut Told<'_>,
        report: &mut Report,
    ) -> Result<(), ImportError> {
        let access = Access {
            kind,
            address,
            size: u64::from(size),
        };
        if self.in_kernel || address >= 1 << 63 {
            report.pass_over(self.place(), OF_THE_KERNEL);
        } else if size == 0 {
            report.pass_over(self.place(), "accesses of no bytes");
        } else if !access.is_sane() {
            report.skip(self.place(), "an address that no program has");
        } else if let Some(each) = &mut told.each {
            each(Streamed::new(self.process, self.thread, access));
        } else {
            let process = told.processes.entry(self.process).or_default();
            let time_us = match told.origin_us {
                Some(origin) => self.now_us.saturating_sub(origin),
                None => (process.accesses() + 1) / 1000,
            };
            process.pid = u32::try_from(self.process).ok().filter(|pid| *pid != 0);
            let thread = process.thread(self.thread, time_us);
            process.take(thread, time_us, access);
            process.lasts_until(time_us);
        }
        Ok(())
    }
}
