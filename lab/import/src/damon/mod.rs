//! What DAMON saw: how often regions of memory were used in each interval, from `damo record` (JSON),
//! `damo report raw` (text), and the kernel's `damon:damon_aggregated` in text of perf or ftrace.
//!
//! DAMON looks at one page of each region and takes it for all of them. So a region that it found used
//! is one whose pages were used in that interval: samples of accesses as `vellum record --accesses`
//! makes them. A page that is used for the first time is touched then. What is mapped does not show:
//! each run of pages that were ever used is taken for a mapping.

mod json;
mod text;

use std::collections::BTreeMap;

use crate::accesses::{MOST_PAGES, too_many_pages};
use crate::report::Report;
use crate::{ImportError, Input, Watch, notes};
use vellum_record::Sink;
use vellum_trace::{
    Access, AccessMarks, Accesses, Event, EventKind, MapOrigin, Prot, Task, TaskId,
};

pub use json::looks_like as looks_like_json;
pub use text::looks_like;

const PAGE: u64 = 4096;
/// Where addresses of programs end.
const USER_END: u64 = 1 << 56;
/// Programs for x86-64 have something above this, where the kernel chose the places.
const PROGRAMS_BEGIN: u64 = 1 << 46;

/// A region in one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Region {
    /// Bytes, the end excluded.
    start: u64,
    end: u64,
    /// It was found used.
    used: bool,
}

/// What was seen of a target in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
struct Snapshot {
    /// Nanoseconds; `None`: when the one before it ended.
    start_ns: Option<u64>,
    end_ns: u64,
    regions: Vec<Region>,
}

/// What was monitored together: a process, or the machine.
#[derive(Debug, Default)]
struct Target {
    name: String,
    snapshots: Vec<Snapshot>,
}

/// What all inputs told.
#[derive(Debug, Default)]
struct Told {
    targets: Vec<Target>,
}

impl Told {
    /// The target of this name, which may be new.
    fn target(&mut self, name: &str) -> &mut Target {
        let known = self.targets.iter().position(|target| target.name == name);
        let at = known.unwrap_or_else(|| {
            self.targets.push(Target {
                name: name.to_owned(),
                snapshots: Vec::new(),
            });
            self.targets.len() - 1
        });
        &mut self.targets[at]
    }
}

/// Imports the inputs, targets of one name as one process.
pub fn import(
    inputs: Vec<Input>,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    let mut report = Report::default();
    let mut told = Told::default();
    let mut of_text = Vec::new();
    let mut documents = 0;
    for (index, mut input) in inputs.into_iter().enumerate() {
        let head = input.head(64).map_err(|source| ImportError::Read {
            name: input.name.clone(),
            source,
        })?;
        match head.trim_ascii_start().first() {
            Some(b'[' | b'{') => {
                documents += 1;
                json::read(input, index, &mut told, &mut report, watch)?;
            }
            _ => of_text.push(input),
        }
    }
    match (documents, of_text.is_empty()) {
        (0, _) => text::read(of_text, &mut told, &mut report, watch)?,
        (_, true) => report.unit = "region",
        (_, false) => {
            return Err(ImportError::Format(
                "some files are JSON of DAMON and some are text: import them one by one".to_owned(),
            ));
        }
    }
    write(told, sink, &mut report)?;
    notes::tell(sink, "what DAMON saw", &report);
    Ok(report)
}

/// One snapshot among those of all targets.
struct Moment<'a> {
    end_us: u64,
    target: usize,
    snapshot: &'a Snapshot,
}

fn write(told: Told, sink: &mut dyn Sink, report: &mut Report) -> Result<(), ImportError> {
    let all = || told.targets.iter().flat_map(|target| &target.snapshots);
    let starts = all().map(|snapshot| snapshot.start_ns.unwrap_or(snapshot.end_ns));
    let origin_ns = starts.min().unwrap_or(0);
    let mut moments = Vec::new();
    for (target, of) in told.targets.iter().enumerate() {
        moments.extend(of.snapshots.iter().map(|snapshot| Moment {
            end_us: snapshot.end_ns.saturating_sub(origin_ns) / 1000,
            target,
            snapshot,
        }));
    }
    moments.sort_by_key(|moment| moment.end_us);
    let used = |target: &Target| Ranges::of(target.snapshots.iter().flat_map(|one| &one.regions));
    let used: Vec<Ranges> = told.targets.iter().map(used).collect();
    let pages = used.iter().map(Ranges::pages).fold(0, u64::saturating_add);
    if pages > MOST_PAGES {
        return Err(too_many_pages("regions of DAMON", pages));
    }
    if pages == 0 {
        report
            .notes
            .push("No region was ever found used.".to_owned());
        return Ok(());
    }
    let interval_us = interval_us(&told);
    sink.header_mut().accesses = Some(Accesses {
        interval_us,
        marks: AccessMarks::Regions,
    });
    let tasks = begin(&told, &used, sink)?;
    let mut touched = vec![Ranges::default(); told.targets.len()];
    let mut samples = 0;
    for moment in &moments {
        let Some(task) = tasks[moment.target] else {
            continue;
        };
        let now = Ranges::of(&moment.snapshot.regions);
        let put = |sink: &mut dyn Sink, kind| event(sink, moment.end_us, task, kind);
        for (first, end) in touched[moment.target].add(&now) {
            for page in first..end {
                put(sink, touch(page))?;
            }
        }
        for (&first, &end) in &now.0 {
            samples += 1;
            let accessed = EventKind::Accessed {
                address: first * PAGE,
                length: (end - first) * PAGE,
            };
            put(sink, accessed)?;
        }
    }
    let last_us = moments.last().map_or(0, |moment| moment.end_us);
    for task in tasks.iter().flatten() {
        event(sink, last_us, *task, EventKind::Exit)?;
    }
    tell(
        &told,
        &used,
        (moments.len(), samples, pages, interval_us),
        report,
    );
    Ok(())
}

/// Begins a process for each target of which something was used, with its mappings.
fn begin(
    told: &Told,
    used: &[Ranges],
    sink: &mut dyn Sink,
) -> Result<Vec<Option<TaskId>>, ImportError> {
    let mut tasks = Vec::new();
    for (target, used) in told.targets.iter().zip(used) {
        if used.0.is_empty() {
            tasks.push(None);
            continue;
        }
        let header = sink.header_mut();
        let task = TaskId(header.tasks.len() as u32);
        // Old kernels name a target by its process.
        let told_pid = target.name.parse().ok().filter(|pid| *pid != 0);
        let pid = told_pid.unwrap_or(task.0 + 1);
        header.tasks.push(Task {
            pid,
            process: pid,
            parent: None,
        });
        header.strings.push("damon".to_owned());
        let name = header.strings.len() as u32 - 1;
        event(sink, 0, task, EventKind::Exec { name })?;
        for (&first, &end) in &used.0 {
            event(sink, 0, task, mapping(first, end))?;
        }
        tasks.push(Some(task));
    }
    Ok(tasks)
}

fn event(
    sink: &mut dyn Sink,
    time_us: u64,
    task: TaskId,
    kind: EventKind,
) -> Result<(), ImportError> {
    sink.push(&Event {
        time_us,
        task,
        kind,
        ran_us: None,
    })?;
    Ok(())
}

fn mapping(first: u64, end: u64) -> EventKind {
    EventKind::Map {
        address: first * PAGE,
        length: (end - first) * PAGE,
        prot: Prot(3),
        shared: false,
        grows_down: false,
        file: None,
        offset: 0,
        origin: MapOrigin::Exec,
    }
}

fn touch(page: u64) -> EventKind {
    EventKind::Fault {
        address: page * PAGE,
        access: Access::Write,
        kernel: false,
        present: false,
    }
}

/// The time between two snapshots of a target, in the middle of all.
fn interval_us(told: &Told) -> u64 {
    let mut gaps = Vec::new();
    for target in &told.targets {
        let mut before = None;
        for snapshot in &target.snapshots {
            if let Some(start) = snapshot.start_ns.or(before) {
                gaps.push(snapshot.end_ns.saturating_sub(start) / 1000);
            }
            before = Some(snapshot.end_ns);
        }
    }
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(0).max(1)
}

/// Says what was made up and what is missing.
fn tell(
    told: &Told,
    used: &[Ranges],
    (snapshots, samples, pages, interval_us): (usize, u64, u64, u64),
    report: &mut Report,
) {
    let notes = &mut report.notes;
    notes.push(format!(
        "{samples} runs of pages were used in {snapshots} snapshots, one in {} ms. DAMON looks at one \
         page of each region and takes it for all of them; how often it was used in that time is left \
         out.",
        interval_us as f64 / 1000.0
    ));
    notes.push(format!(
        "{pages} pages were used at some time: they count as written when they are first found used, \
         in anonymous mappings that are there from the start. Reads, files, system calls and what was \
         never found used do not show."
    ));
    let low = |ranges: &&Ranges| {
        ranges
            .0
            .last_key_value()
            .is_some_and(|(first, _)| first * PAGE < PROGRAMS_BEGIN)
    };
    if used.iter().filter(low).count() > 0 {
        notes.push(
            "The addresses look like those of the machine's memory (paddr), not of a process: they \
             count as those of one process all the same."
                .to_owned(),
        );
    }
    if told.targets.len() > 1 {
        notes.push(format!(
            "Each of the {} targets counts as a process.",
            told.targets.len()
        ));
    }
}

/// Pages: the page after the last of each run, by its first page. Runs neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// The pages of the regions that were found used.
    fn of<'a>(regions: impl IntoIterator<Item = &'a Region>) -> Ranges {
        let mut ranges = Ranges::default();
        for region in regions {
            if region.used && region.start < region.end && region.end <= USER_END {
                ranges.put(region.start / PAGE, region.end.div_ceil(PAGE));
            }
        }
        ranges
    }

    fn pages(&self) -> u64 {
        self.0.iter().map(|(first, end)| end - first).sum()
    }

    /// Adds a run; returns the parts that were not there.
    fn put(&mut self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut from, mut to) = (first, end);
        let mut fresh = Vec::new();
        let mut at = first;
        let before = self.0.range(..first).next_back();
        let begin = before
            .filter(|(_, last)| **last >= first)
            .map_or(first, |(begin, _)| *begin);
        let over: Vec<(u64, u64)> = self.0.range(begin..=end).map(|(&a, &b)| (a, b)).collect();
        for (begin, last) in over {
            if at < begin {
                fresh.push((at, begin.min(end)));
            }
            at = at.max(last);
            from = from.min(begin);
            to = to.max(last);
            self.0.remove(&begin);
        }
        if at < end {
            fresh.push((at, end));
        }
        self.0.insert(from, to);
        fresh
    }

    /// Adds all of `others`; returns what was not there.
    fn add(&mut self, others: &Ranges) -> Vec<(u64, u64)> {
        let fresh = others.0.iter().map(|(&first, &end)| self.put(first, end));
        fresh.flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_new_once() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.put(10, 20), [(10, 20)]);
        assert_eq!(ranges.put(12, 18), []);
        assert_eq!(ranges.put(30, 40), [(30, 40)]);
        assert_eq!(ranges.put(15, 35), [(20, 30)]);
        assert_eq!(ranges.0, BTreeMap::from([(10, 40)]));
        assert_eq!(ranges.put(40, 41), [(40, 41)]);
        assert_eq!(ranges.put(5, 50), [(5, 10), (41, 50)]);
        assert_eq!((ranges.pages(), ranges.0.len()), (45, 1));
        assert_eq!(ranges.put(60, 61), [(60, 61)]);
        assert_eq!((ranges.pages(), ranges.0.len()), (46, 2));
    }
}
