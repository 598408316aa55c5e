//! `perf script` text with the events that the recorder uses, and text of ftrace with the same.
//!
//! Lines may come with or without the process id, with `PERF_RECORD_…` lines
//! (`--show-task-events --show-mmap-events`) or with `sched:` events only, with
//! system calls as `syscalls:` or as `raw_syscalls:` events. Task lines of one
//! kind make those of another redundant; which kinds a text has shows as it is
//! read.

mod calls;
mod comment;
mod doubt;
mod event;
mod exec;
mod ftrace;
mod line;
mod plain;
mod write;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::feed::Feed;
use crate::report::Report;
use crate::{ImportError, Input, Watch, each_line, notes};
use calls::creation;
use comment::Comments;
use doubt::{Ends, PlainFaults, Times};
use event::{Event, Not};
use exec::Held;
use ftrace::Told;
use line::Line;
use plain::{Course, Filling, Signals};
use vellum_record::{Body, Record, Sample, Sink};

pub use write::{Losses, Writer};

const CLONE_THREAD: u64 = 0x1_0000;
const VFORK_FLAGS: u64 = 0x4100;
/// The lowest byte of `clone`'s flags is a signal.
const SIGNAL: u64 = 0xff;

/// Nanoseconds, if a word is a time with the colon that follows it.
pub(crate) fn time_of(word: &str) -> Option<u64> {
    line::time(word)
}

/// DAMON's events stand in lines like others, and are read as what they are.
fn is_of_damon(line: &str) -> bool {
    line.contains("damon_aggregated: ")
}

/// Whether a line is one of `perf script`.
pub(crate) fn looks_like(line: &str) -> bool {
    !is_of_damon(line) && (line::split(line).is_some() || line::lacking(line).is_some())
}

/// Whether a line is one of ftrace.
pub(crate) fn looks_like_ftrace(line: &str) -> bool {
    !is_of_damon(line) && ftrace::looks_like(line)
}

/// Who printed the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Printer {
    Perf,
    Ftrace,
}

/// Imports the inputs as one text.
pub(crate) fn import(
    inputs: Vec<Input>,
    printer: Printer,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    let mut filling = Filling::new(sink);
    let mut importer = Importer {
        signals: filling.signals(),
        feed: Feed::new(&mut filling),
        printer,
        course: match printer {
            Printer::Perf => Course::default(),
            Printer::Ftrace => Course::Whole,
        },
        rereading: false,
        comments: Comments::default(),
        origin_ns: None,
        last_ns: 0,
        disorder: 0,
        task_records: false,
        pids: HashMap::new(),
        fresh: HashSet::new(),
        creating: HashMap::new(),
        held: HashMap::new(),
        replaying: false,
        unknown_flags: 0,
        lost: 0,
        times: Times::default(),
        ends: Ends::default(),
        plain_faults: PlainFaults::default(),
    };
    let lines = each_line(inputs, watch, |place, text, cut| {
        importer.feed.place = place;
        if cut {
            importer.feed.skip("a line longer than 65536 bytes");
            return Ok(());
        }
        importer.line(text)
    })?;
    let Finished {
        mut report,
        comments,
        lost,
        course,
    } = importer.finish(lines)?;
    let filled = filling.finish()?;
    if let Course::Plain(plain) = course {
        report.notes.extend(plain.notes(comments.sampled, filled));
    }
    let own = comments.own;
    let header = sink.header_mut();
    header.lost = lost;
    comments.apply(header);
    if !own {
        header.invisible.extend(report.notes.iter().cloned());
        let source = match printer {
            Printer::Perf => "perf script text",
            Printer::Ftrace => "ftrace text",
        };
        notes::fill_in(header, source, &report);
    }
    Ok(report)
}

/// What is left when all lines were read.
struct Finished {
    report: Report,
    comments: Comments,
    lost: u64,
    course: Course,
}

struct Importer<'a> {
    feed: Feed<'a>,
    printer: Printer,
    course: Course,
    signals: Signals,
    /// The line at hand was kept until the text's kind had shown.
    rereading: bool,
    comments: Comments,
    origin_ns: Option<u64>,
    last_ns: u64,
    disorder: u64,
    /// There are `PERF_RECORD_COMM`, `…_FORK`, `…_EXIT` lines.
    task_records: bool,
    /// Processes of threads, where a line told.
    pids: HashMap<u32, u32>,
    /// Created, and not yet confirmed by `sched:sched_process_fork`.
    fresh: HashSet<u32>,
    /// Flags of the creation that a task is in the middle of.
    creating: HashMap<u32, u64>,
    /// Tasks in the middle of an exec that shows only when it is over.
    held: HashMap<u32, Held>,
    /// The line at hand was held back before.
    replaying: bool,
    /// Creations whose flags do not show.
    unknown_flags: u64,
    /// Events that ftrace had no room for.
    lost: u64,
    times: Times,
    ends: Ends,
    plain_faults: PlainFaults,
}

impl Importer<'_> {
    fn line(&mut self, text: &str) -> Result<(), ImportError> {
        if text.trim().is_empty() {
            return Ok(());
        }
        if text.starts_with('#') {
            if !self.comments.take(text) {
                self.feed
                    .skip("a comment of vellum dump that cannot be read");
            }
            return Ok(());
        }
        let Some(line) = self.split(text) else {
            return Ok(());
        };
        if !self.replaying && !self.rereading {
            self.times.see(line.time_ns)?;
        }
        if line.name.starts_with("VM:") {
            self.feed
                .skip("events inside a virtual machine (perf script -F +machine_pid)");
            return Ok(());
        }
        let words = match self.printer {
            Printer::Perf => Ok(Cow::Borrowed(line.rest)),
            Printer::Ftrace => ftrace::in_words_of_perf(line.rest),
        };
        if words
            .as_ref()
            .is_ok_and(|words| words.starts_with("syscalls:"))
        {
            self.feed.translator.calls_by_name();
        }
        match words.as_deref().map_err(Not::clone).and_then(event::parse) {
            Ok(event) => {
                if !self.keep(text, &event)? {
                    return self.dispatch(text, &line, event);
                }
            }
            Err(Not::Concerned(what)) => self.feed.pass_over(&what),
            Err(Not::Whole(what)) => self.feed.skip(&what),
        }
        Ok(())
    }

    /// Takes a line apart. One that is no event is counted as what it is.
    fn split<'t>(&mut self, text: &'t str) -> Option<Line<'t>> {
        if self.printer == Printer::Perf {
            let line = line::split(text);
            if line.is_none() {
                self.no_event(text);
            }
            return line;
        }
        match ftrace::split(text) {
            Told::Event(line) => return Some(line),
            Told::Lost(count) => self.lost = self.lost.saturating_add(count),
            Told::Lacking(what) => self.feed.skip(what),
            Told::Other(what) => self.feed.pass_over(what),
            Told::Unknown => self
                .feed
                .skip("not a line of ftrace, or one that ends early"),
        }
        None
    }

    /// A line that tells neither who nor when.
    fn no_event(&mut self, text: &str) {
        if let Some(what) = line::lacking(text) {
            self.feed.skip(what);
        } else if ftrace::looks_like(text) {
            self.feed.skip("lines of ftrace (import them on their own)");
        } else if text.starts_with([' ', '\t']) {
            self.course.see_chain();
            self.feed.pass_over("lines of call chains");
        } else if text.starts_with('|') {
            self.feed.pass_over("lines of source code");
        } else {
            self.feed
                .skip("not a line of perf script, or one that ends early");
        }
    }

    /// Nanoseconds from the beginning of the trace. What perf makes up about
    /// tasks that are there at the start has time 0, which is no beginning.
    fn time(&mut self, line: &Line<'_>) -> u64 {
        let origin = match (self.origin_ns, self.comments.begin_ns) {
            (Some(origin), _) | (None, Some(origin)) => origin,
            (None, None) if line.time_ns == 0 => return 0,
            (None, None) => line.time_ns,
        };
        self.origin_ns = Some(origin);
        if line.time_ns < self.last_ns && !self.replaying {
            self.disorder += 1;
        }
        self.last_ns = self.last_ns.max(line.time_ns);
        line.time_ns.saturating_sub(origin)
    }

    /// The thread and its process. `None`: nobody's, the kernel's.
    fn ids(&self, pid: Option<i64>, tid: i64) -> Option<(u32, u32)> {
        let tid = u32::try_from(tid).ok().filter(|tid| *tid != 0)?;
        let told = pid.and_then(|pid| u32::try_from(pid).ok());
        let known = || self.feed.translator.process_of(tid);
        let pid = told.or_else(known).or_else(|| self.pids.get(&tid).copied());
        Some((pid.unwrap_or(tid), tid))
    }

    fn give(
        &mut self,
        time_ns: u64,
        (pid, tid): (u32, u32),
        body: Body<'_>,
    ) -> Result<(), ImportError> {
        self.feed.give(&Record {
            time_ns,
            pid,
            tid,
            body,
        })
    }

    fn dispatch(
        &mut self,
        text: &str,
        line: &Line<'_>,
        event: Event<'_>,
    ) -> Result<(), ImportError> {
        let (pid, tid) = match &event {
            Event::Mmap { pid, tid, .. } | Event::Comm { pid, tid, .. } => (Some(*pid), *tid),
            Event::SchedExec { tid } | Event::SchedExit { tid } => (line.pid, *tid),
            Event::Fork { pid, tid, .. } => (Some(*pid), *tid),
            Event::Exit { tid } => (None, *tid),
            _ => (line.pid, line.tid),
        };
        let Some(who) = self.ids(pid, tid) else {
            if let Event::Lost { count } = event {
                let time = self.time(line);
                return self.give(time, (0, 0), Body::Lost { count });
            }
            self.feed
                .pass_over("the kernel's own mappings and idle tasks");
            return Ok(());
        };
        if pid.is_some() {
            self.pids.insert(who.1, who.0);
        }
        if self.hold(text, line, &event, who)? {
            return Ok(());
        }
        let time = self.time(line);
        match event {
            Event::Sample(_) if matches!(self.course, Course::Plain(_)) => {
                self.feed
                    .skip("system calls and faults told whole, after thousands of page-faults");
                Ok(())
            }
            Event::Sample(sample) => self.sample(time, who, sample),
            Event::PlainFault(fault) => self.plain_fault(line, time, who, fault),
            Event::Mmap { mmap, .. } => {
                let from_the_start = line.time_ns == 0 || matches!(self.course, Course::Plain(_));
                if from_the_start && !self.feed.translator.is_live(who.1) {
                    self.feed.translator.expect_first_maps(who.0, who.1);
                    self.program_starts(who);
                }
                self.report_mapping(time, who, mmap)
            }
            Event::Comm { name, exec, .. } => {
                self.task_records = true;
                if self.comments.own && !exec {
                    self.feed.translator.was_there(who.0, who.1);
                }
                if exec {
                    self.program_starts(who);
                }
                let name = name.as_bytes();
                self.give(time, who, Body::Comm { name, exec })
            }
            Event::Fork { ptid, .. } => {
                self.task_records = true;
                // Perf makes these up for tasks that are there.
                if line.time_ns == 0 && !self.comments.own {
                    return Ok(());
                }
                match u32::try_from(ptid) {
                    Ok(ptid) => self.fork(time, who, ptid),
                    Err(_) => Ok(()),
                }
            }
            Event::Exit { .. } => {
                self.task_records = true;
                self.give(time, who, Body::Exit)
            }
            Event::Lost { count } => self.give(time, who, Body::Lost { count }),
            Event::NewTask { child, flags } => self.new_task(time, who, child, flags),
            Event::SchedFork { child } => self.sched_fork(time, who, child),
            Event::SchedExec { .. } if self.task_records => Ok(()),
            Event::SchedExec { .. } => self.sched_exec(line, time, who),
            Event::SchedExit { .. } if self.task_records => Ok(()),
            Event::SchedExit { .. } => self.give(time, who, Body::Exit),
        }
    }

    fn sample(
        &mut self,
        time: u64,
        who: (u32, u32),
        sample: Sample<'_>,
    ) -> Result<(), ImportError> {
        match sample {
            Sample::Fault { .. } => self.plain_faults.seen_better(),
            Sample::Enter { number, .. } => self.ends.begin(who.1, number, self.feed.place),
            Sample::Exit { number, .. } => self.ends.end(who.1, number, self.feed.place),
            _ => {}
        }
        match sample {
            Sample::Enter { number, args } => {
                let flags = match number {
                    creation::CLONE => Some(args[0] & !SIGNAL),
                    creation::FORK => Some(0),
                    creation::VFORK => Some(VFORK_FLAGS),
                    _ => None,
                };
                match flags {
                    Some(flags) => self.creating.insert(who.1, flags),
                    None => self.creating.remove(&who.1),
                };
            }
            Sample::Exit { .. } => {
                self.creating.remove(&who.1);
            }
            _ => {}
        }
        self.feed.sample(time, who, sample)
    }

    fn fork(&mut self, time: u64, child: (u32, u32), ptid: u32) -> Result<(), ImportError> {
        self.fresh.insert(child.1);
        self.memory_is_copied(child, ptid);
        self.give(time, child, Body::Fork { ptid })
    }

    /// The kernel reports flags after `PERF_RECORD_FORK` and before
    /// `sched:sched_process_fork`.
    fn new_task(
        &mut self,
        time: u64,
        who: (u32, u32),
        child: i64,
        flags: u64,
    ) -> Result<(), ImportError> {
        let Some(child) = u32::try_from(child).ok().filter(|child| *child != 0) else {
            return Ok(());
        };
        if !self.fresh.contains(&child) {
            let pid = if flags & CLONE_THREAD != 0 {
                who.0
            } else {
                child
            };
            self.fork(time, (pid, child), who.1)?;
        }
        self.feed
            .sample(time, who, Sample::NewTask { clone_flags: flags })
    }

    fn sched_fork(&mut self, time: u64, who: (u32, u32), child: i64) -> Result<(), ImportError> {
        let Some(child) = u32::try_from(child).ok().filter(|child| *child != 0) else {
            return Ok(());
        };
        if self.fresh.remove(&child) {
            return Ok(());
        }
        let flags = self.creating.get(&who.1).copied();
        let thread = flags.is_some_and(|flags| flags & CLONE_THREAD != 0);
        let child = (if thread { who.0 } else { child }, child);
        self.memory_is_copied(child, who.1);
        self.give(time, child, Body::Fork { ptid: who.1 })?;
        match flags {
            Some(clone_flags) => self.feed.sample(time, who, Sample::NewTask { clone_flags }),
            None => {
                self.unknown_flags += 1;
                Ok(())
            }
        }
    }

    fn finish(mut self, lines: u64) -> Result<Finished, ImportError> {
        self.settle_at_the_end()?;
        self.release_all()?;
        self.times.check()?;
        let (noticed, mut report) = self.feed.finish();
        report.lines = lines;
        self.ends.tell(&mut report);
        self.plain_faults.tell(&mut report);
        report.notes.extend(notes::of_noticed(&noticed));
        if self.disorder > 0 {
            report.notes.push(format!(
                "{} lines were earlier than the line before them; they count as simultaneous with \
                 it.",
                self.disorder
            ));
        }
        if self.unknown_flags > 0 {
            report.notes.push(format!(
                "{} tasks were created with flags that do not show: they count as forked. Record \
                 task:task_newtask as well.",
                self.unknown_flags
            ));
        }
        Ok(Finished {
            report,
            comments: self.comments,
            lost: noticed.lost.saturating_add(self.lost),
            course: self.course,
        })
    }
}
