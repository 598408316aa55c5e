//! A trace made ready to run: operations, in order, CPU by CPU or task by task.
//!
//! Guarantees: [`super::prepare()`] did everything that costs time. A
//! [`Stream`] is a plain slice of [`Op`]s with two bytes about each in parallel
//! slices (its [`Class`], and the [`Expectation`] that explains a divergence),
//! so that a timed loop does nothing but hand slices to the engine.
//!
//! Order across CPUs: a stream is cut into [`Segment`]s. A segment may start
//! when every [`Wait`] of it holds. Waits only ever point backwards in one
//! global order (the order of the recording), so they cannot form a circle.
//! With one CPU there is one segment without waits.
//!
//! Streams by task are for simulated CPUs, whose scheduler chooses where each task
//! runs. Their segments say how long the task computed, too.

use std::ops::Range;

use vellum_engine::{Op, Pages};

use vellum_trace::{Accesses, FileId};

use super::explain::Expectation;
use super::repairs::Repairs;
use super::service::Service;

/// Memory of the smallest simulated machine that is chosen unasked.
const LEAST_RAM: u64 = 256 << 20;

/// What an operation is part of, for tables of time by kind. The maps that the
/// kernel makes while it executes a program are part of [`Class::Exec`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Class {
    /// Page faults.
    Fault,
    /// Creation of a space, by fork or from nothing.
    Fork,
    /// A further user of a space (thread, vfork).
    Share,
    /// Replacing a program, with the maps the kernel makes for it.
    Exec,
    /// End of a task.
    Exit,
    /// `mmap`.
    Map,
    /// `munmap`.
    Unmap,
    /// `mprotect`.
    Protect,
    /// `mremap`.
    Remap,
    /// `brk`.
    Brk,
    /// `madvise`.
    Advise,
    /// Opening, reading, writing and truncating files.
    File,
    /// The idle loop of a CPU.
    Idle,
    /// Pages that were used again, as samples of accessed marks have it.
    Use,
}

impl Class {
    /// Every class, in the order of its number.
    pub const ALL: [Class; 14] = [
        Class::Fault,
        Class::Fork,
        Class::Share,
        Class::Exec,
        Class::Exit,
        Class::Map,
        Class::Unmap,
        Class::Protect,
        Class::Remap,
        Class::Brk,
        Class::Advise,
        Class::File,
        Class::Idle,
        Class::Use,
    ];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Class::Fault => "fault",
            Class::Fork => "fork",
            Class::Share => "share",
            Class::Exec => "exec",
            Class::Exit => "exit",
            Class::Map => "map",
            Class::Unmap => "unmap",
            Class::Protect => "protect",
            Class::Remap => "remap",
            Class::Brk => "brk",
            Class::Advise => "advise",
            Class::File => "file",
            Class::Idle => "idle",
            Class::Use => "use",
        }
    }
}

/// "Stream `stream` has completed its first `ops` operations."
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Which CPU or task must have got there.
    pub stream: u32,
    /// How many operations it must have completed.
    pub ops: u32,
}

/// Operations of one stream that run without waiting. Only streams by task have segments
/// without operations, for what the task computed before it waited again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First operation.
    pub start: u32,
    /// One past the last operation. Progress is announced here.
    pub end: u32,
    /// First of its waits in [`Stream::waits`]; they end where the next
    /// segment's begin.
    pub first_wait: u32,
}

/// What one CPU or one task does.
#[derive(Debug, Default)]
pub struct Stream {
    pub(super) ops: Vec<Op>,
    pub(super) classes: Vec<Class>,
    pub(super) expectations: Vec<Expectation>,
    pub(super) origins: Vec<u32>,
    pub(super) segments: Vec<Segment>,
    pub(super) waits: Vec<Wait>,
    /// For each segment; empty for a stream of a CPU.
    pub(super) user_ns: Vec<u64>,
}

impl Stream {
    /// The operations, in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The class of each operation.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// What explains a divergence of each operation.
    pub fn expectations(&self) -> &[Expectation] {
        &self.expectations
    }

    /// The number of the event, counted from 0 along the trace, that each
    /// operation came from.
    pub fn origins(&self) -> &[u32] {
        &self.origins
    }

    /// The segments, in order, covering every operation once.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The operations, to be kept without the rest.
    pub fn into_ops(self) -> Vec<Op> {
        self.ops
    }

    /// How long the task computed between the waits of segment `index` and its
    /// operations, in nanoseconds, if the recording knows.
    pub fn user_ns(&self, index: usize) -> u64 {
        self.user_ns.get(index).copied().unwrap_or(0)
    }

    /// What must hold before segment `index` may start.
    pub fn waits(&self, index: usize) -> &[Wait] {
        let start = self.segments[index].first_wait as usize;
        let end = match self.segments.get(index + 1) {
            Some(next) => next.first_wait as usize,
            None => self.waits.len(),
        };
        &self.waits[start..end]
    }

    /// The segments that begin in `ops`, a range that starts and ends where
    /// segments do (see [`Workload::slices`]).
    pub fn segments_in(&self, ops: &Range<usize>) -> Range<usize> {
        let at = |op: usize| self.segments.partition_point(|s| (s.start as usize) < op);
        at(ops.start)..at(ops.end)
    }
}

/// A piece of a workload that can run once the pieces before it have: for each
/// CPU a range of its operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Ranges of operations, by CPU. A range may be empty.
    pub ops: Vec<Range<usize>>,
}

impl Slice {
    /// Operations on all CPUs.
    pub fn len(&self) -> usize {
        self.ops.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether it has no operation.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A file of the replay and where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileOrigin {
    /// The file in the trace.
    pub file: FileId,
    /// The copy of the process family it belongs to; `None` if all share it.
    pub copy: Option<u32>,
}

/// A trace as sequences of operations, one for each simulated CPU or each task.
#[derive(Debug)]
pub struct Workload {
    pub(super) streams: Vec<Stream>,
    /// Positions, by CPU, after each step of the global order; one row for each
    /// place where every CPU is at the end of a segment. Empty with one CPU.
    pub(super) cuts: Vec<u32>,
    pub(super) spaces: u32,
    pub(super) files: Vec<FileOrigin>,
    pub(super) events: u64,
    pub(super) copies: u32,
    pub(super) fault_around: u64,
    pub(super) pages: Pages,
    pub(super) repairs: Repairs,
    pub(super) peak_pages: u64,
    /// How many operations, by stream, come before the first that does not make what was there
    /// when the recording began.
    pub(super) beginning: Vec<u32>,
    pub(super) service: Option<Service>,
    pub(super) accesses: Option<Accesses>,
}

impl Workload {
    /// Whether all that `slice` does makes what was there when the recording began, which is no
    /// part of the recorded work.
    pub fn is_beginning(&self, slice: &Slice) -> bool {
        let mut ends = slice.ops.iter().zip(&self.beginning);
        ends.all(|(ops, beginning)| ops.end <= *beginning as usize)
    }

    /// How many operations of each stream make what was there when the recording began.
    pub fn beginning(&self) -> &[u32] {
        &self.beginning
    }

    /// How uses of pages after the first were sampled, if they are among the operations.
    pub fn accesses(&self) -> Option<Accesses> {
        self.accesses
    }

    /// Number of CPUs, if there is a stream for each.
    pub fn cpus(&self) -> usize {
        self.streams.len()
    }

    /// What each CPU, or each task of one copy after the other, does.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The same, to be kept without the rest.
    pub fn into_streams(self) -> Vec<Stream> {
        self.streams
    }

    /// Operations of all streams.
    pub fn ops(&self) -> u64 {
        self.streams.iter().map(|s| s.ops.len() as u64).sum()
    }

    /// Recorded events behind the operations, all copies together.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Copies of the process family that run at once.
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// Number of space slots used; slots are `0..spaces`.
    pub fn spaces(&self) -> u32 {
        self.spaces
    }

    /// The files, by slot.
    pub fn files(&self) -> &[FileOrigin] {
        &self.files
    }

    /// The fault-around window, in pages, that divergences are explained for.
    pub fn fault_around(&self) -> u64 {
        self.fault_around
    }

    /// The pages that its operations count.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Where the trace knew too little.
    pub fn repairs(&self) -> &Repairs {
        &self.repairs
    }

    /// What was taken out of the recorded CPU times, so that what tasks computed is left.
    /// `None` if the recording has no CPU times.
    pub fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }

    /// Memory that a simulated machine with a CPU for each stream needs for it, in bytes.
    pub fn ram_bytes(&self) -> u64 {
        self.ram_bytes_on(self.cpus())
    }

    /// Memory that a simulated machine needs for it, in bytes: the most that the
    /// trace shows in use at one time, all copies together, and a quarter more,
    /// beside what the memory manager and each of `cpus` CPUs keep at hand. A multiple
    /// of 64 MiB.
    pub fn ram_bytes_on(&self, cpus: usize) -> u64 {
        let pages = self.peak_pages << self.pages.shift;
        let at_hand = (64 << 20) + cpus as u64 * (4 << 20);
        let bytes = pages.saturating_add(pages / 4).saturating_add(at_hand);
        bytes.max(LEAST_RAM).next_multiple_of(64 << 20)
    }

    /// Operations by class.
    pub fn ops_by_class(&self) -> [u64; Class::ALL.len()] {
        let mut counts = [0; Class::ALL.len()];
        for class in self.streams.iter().flat_map(|s| &s.classes) {
            counts[*class as usize] += 1;
        }
        counts
    }

    /// Cuts the workload into slices of about `target` operations that can run
    /// one after the other, each on all its CPUs at once. With one CPU every
    /// slice but the last has exactly `target` operations; with several the
    /// slices end where the global order allows it. One ends with the beginning of the
    /// recording ([`Workload::is_beginning`]), as far as that order allows.
    pub fn slices(&self, target: usize) -> Vec<Slice> {
        let target = target.max(1);
        if let ([stream], [beginning]) = (&self.streams[..], &self.beginning[..]) {
            let (ops, beginning) = (stream.ops.len(), *beginning as usize);
            let starts = (0..beginning).step_by(target);
            let starts: Vec<usize> = starts.chain((beginning..ops).step_by(target)).collect();
            let ends = starts.iter().skip(1).copied().chain([ops]);
            let ranges = starts.iter().zip(ends);
            return ranges
                .map(|(start, end)| Slice {
                    ops: std::iter::once(*start..end).collect(),
                })
                .collect();
        }
        let mut slices = Vec::new();
        let mut from = vec![0u32; self.streams.len()];
        let cuts = || self.cuts.chunks_exact(self.streams.len());
        let is_beginning = |cut: &[u32]| cut.iter().zip(&self.beginning).all(|(at, end)| at <= end);
        let begun = cuts().take_while(|cut| is_beginning(cut)).last();
        for to in cuts() {
            let slice = between(&from, to);
            let ends_beginning = begun == Some(to) && !slice.is_empty();
            if slice.len() >= target || ends_beginning {
                slices.push(slice);
                from.copy_from_slice(to);
            }
        }
        let end: Vec<u32> = self.streams.iter().map(|s| s.ops.len() as u32).collect();
        let rest = between(&from, &end);
        if !rest.is_empty() {
            slices.push(rest);
        }
        slices
    }
}

fn between(from: &[u32], to: &[u32]) -> Slice {
    Slice {
        ops: from
            .iter()
            .zip(to)
            .map(|(from, to)| *from as usize..*to as usize)
            .collect(),
    }
}
