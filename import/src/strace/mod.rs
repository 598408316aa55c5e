//! `strace -f` text: what processes asked of memory, by system calls.
//!
//! The calls become the records that the recorder knows and go through its
//! translation. What strace does not see is modelled or missing, and the trace
//! says which: faults are made up as first touches ([`touch`]); the maps that
//! exec makes (text, data, stack) are missing; reads and writes of files are
//! passed over.

mod calls;
mod files;
mod line;
mod merge;
mod names;
mod touch;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::feed::Feed;
use crate::report::{Place, Report};
use crate::{Format, ImportError, Input, Watch, notes};
use files::Files;
use line::{Line, What};
use touch::Touching;
use vellum_record::{Body, Record, Sink};

/// The process of lines that name none, until one of its lines does.
const NAMELESS: u32 = 1;
/// Calls in progress whose text is kept, and the text of each.
const MOST_PENDING: usize = 1 << 16;

/// Whether a line is one of strace's.
pub fn looks_like(line: &str) -> bool {
    match line::split(line) {
        Some(line) => !matches!(line.what, What::Message) || line.pid.is_some(),
        None => false,
    }
}

/// Imports the inputs, which are files of one run.
pub fn import(
    inputs: Vec<Input>,
    touch_limit: u64,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    let mut touching = Touching::new(sink, touch_limit);
    let from_end = touching.end_first();
    let mut importer = Importer::new(&mut touching, from_end);
    let lines = merge::each_line(inputs, watch, |place, pid, text, cut| {
        importer.feed.place = place;
        if cut {
            importer.feed.skip("a line longer than 65536 bytes");
            return Ok(());
        }
        importer.line(pid, text)
    })?;
    let (mut report, command) = importer.finish(lines)?;
    report.notes.extend(touching.notes());
    report.notes.push(
        "The maps that exec makes (text, data, stack, vdso) do not show, nor do reads and writes of \
         files; lengths of files are those that the mappings need."
            .to_owned(),
    );
    let header = sink.header_mut();
    header.environment.command = command;
    header.invisible.extend(report.notes.iter().cloned());
    notes::fill_in(header, Format::Strace, &report);
    Ok(report)
}

/// The beginning of a call that goes on.
struct Pending {
    name: String,
    args: String,
}

struct Importer<'a> {
    feed: Feed<'a>,
    files: Files,
    pending: HashMap<u32, Pending>,
    /// Tasks in the middle of making another one, in the order of their calls.
    creating: Vec<u32>,
    /// Children that acted before their creator's call ended.
    early: HashSet<u32>,
    /// Lines of tasks that several others may have made.
    orphans: HashMap<u32, Vec<(Place, String)>>,
    /// The process that lines without an id are about.
    nameless: Option<u32>,
    origin_ns: Option<u64>,
    last_ns: u64,
    /// Nanoseconds that midnight has added to times of day.
    days_ns: u64,
    command: Vec<String>,
    without_time: u64,
    /// The beginning of a line that a message of strace's interrupted.
    broken: Option<String>,
    /// Tells the touches that a mapping is a stack.
    from_end: Rc<Cell<bool>>,
}

impl<'a> Importer<'a> {
    fn new(sink: &'a mut dyn Sink, from_end: Rc<Cell<bool>>) -> Self {
        Importer {
            feed: Feed::new(sink),
            files: Files::default(),
            pending: HashMap::new(),
            creating: Vec::new(),
            early: HashSet::new(),
            orphans: HashMap::new(),
            nameless: None,
            origin_ns: None,
            last_ns: 0,
            days_ns: 0,
            command: Vec::new(),
            without_time: 0,
            broken: None,
            from_end,
        }
    }

    fn line(&mut self, file_pid: Option<u32>, text: &str) -> Result<(), ImportError> {
        if text.trim().is_empty() {
            return Ok(());
        }
        // On a terminal strace's messages can stand in the middle of a call.
        let whole;
        let text = match (self.broken.take(), text.split_once("strace: Process ")) {
            (_, Some((begin, message))) if !begin.is_empty() && message.ends_with(" attached") => {
                self.broken = Some(begin.to_owned());
                return Ok(());
            }
            (Some(begin), _) => {
                whole = begin + text;
                &whole
            }
            (None, _) => text,
        };
        let Some(line) = line::split(text) else {
            self.feed
                .skip("not a line of strace, or one that ends early");
            return Ok(());
        };
        if line.what == What::Message {
            self.feed.pass_over("strace's own messages");
            return Ok(());
        }
        let tid = self.task(line.pid.or(file_pid), &line.what);
        if tid == 0 {
            self.feed.skip("a task without a usable id");
            return Ok(());
        }
        let time = self.time(line.time_ns);
        if !self.adopt_child(tid, time, text)? {
            return Ok(());
        }
        self.take(tid, time, &line)
    }

    /// Which task a line is about. The first process has lines without its id
    /// until there is a second one.
    fn task(&mut self, told: Option<u32>, what: &What<'_>) -> u32 {
        let Some(told) = told else {
            return *self.nameless.get_or_insert(NAMELESS);
        };
        if self.nameless == Some(NAMELESS)
            && told != NAMELESS
            && !self.feed.translator.is_live(told)
        {
            // In the middle of a call it does nothing but end it.
            let own = match self.pending.get(&NAMELESS) {
                Some(call) => matches!(what, What::Resumed { name, .. } if *name == call.name),
                None => true,
            };
            if own {
                self.feed.translator.rename(NAMELESS, told);
                self.nameless = Some(told);
                if let Some(pending) = self.pending.remove(&NAMELESS) {
                    self.pending.insert(told, pending);
                }
                for creator in &mut self.creating {
                    *creator = if *creator == NAMELESS { told } else { *creator };
                }
            }
        }
        told
    }

    /// Nanoseconds from the first line. A line without a time comes a
    /// microsecond after the line before.
    fn time(&mut self, told: Option<u64>) -> u64 {
        let now = match told {
            Some(time) => {
                let time = time.saturating_add(self.days_ns);
                const DAY: u64 = 86_400 * 1_000_000_000;
                // Times of day begin anew at midnight.
                if time < DAY.saturating_add(self.days_ns) && self.last_ns > time + DAY / 2 {
                    self.days_ns += DAY;
                    time.saturating_add(DAY)
                } else {
                    time
                }
            }
            None => {
                self.without_time += 1;
                self.last_ns + 1000
            }
        };
        let origin = *self.origin_ns.get_or_insert(now);
        self.last_ns = self.last_ns.max(now);
        self.last_ns - origin.min(self.last_ns)
    }

    /// Makes sure that a task's creator is known, if its call is still in
    /// progress. False: several could be it, and the line waits.
    fn adopt_child(&mut self, tid: u32, time: u64, text: &str) -> Result<bool, ImportError> {
        if let Some(lines) = self.orphans.get_mut(&tid) {
            lines.push((self.feed.place, text.to_owned()));
            return Ok(false);
        }
        if self.feed.translator.is_live(tid) || self.creating.is_empty() {
            return Ok(true);
        }
        match self.creating[..] {
            [parent] => {
                let args = self
                    .pending
                    .get(&parent)
                    .map(|p| (p.name.clone(), p.args.clone()));
                if let Some((name, args)) = args {
                    self.early.insert(tid);
                    self.created(time, parent, tid, &name, &args)?;
                }
                Ok(true)
            }
            _ => {
                self.orphans
                    .insert(tid, vec![(self.feed.place, text.to_owned())]);
                Ok(false)
            }
        }
    }

    /// Takes the lines of a task that waited for its creator.
    fn release(&mut self, tid: u32) -> Result<(), ImportError> {
        let place = self.feed.place;
        for (place, text) in self.orphans.remove(&tid).unwrap_or_default() {
            self.feed.place = place;
            if let Some(line) = line::split(&text) {
                let time = self.time(line.time_ns);
                self.take(tid, time, &line)?;
            }
        }
        self.feed.place = place;
        Ok(())
    }

    fn take(&mut self, tid: u32, time: u64, line: &Line<'_>) -> Result<(), ImportError> {
        match line.what {
            What::Call { name, args, result } => self.call(time, tid, name, args, result),
            What::Unfinished { name, args } => {
                if self.pending.len() < MOST_PENDING {
                    let (name, args) = (name.to_owned(), args.to_owned());
                    if calls::creates(&name) {
                        self.creating.push(tid);
                    }
                    self.pending.insert(tid, Pending { name, args });
                }
                Ok(())
            }
            What::Resumed { name, rest } => {
                let Some(pending) = self.pending.remove(&tid) else {
                    self.feed
                        .skip("the end of a call whose beginning is missing");
                    return Ok(());
                };
                self.creating.retain(|creator| *creator != tid);
                if pending.name != name {
                    self.feed
                        .skip("the end of another call than the one in progress");
                    return Ok(());
                }
                let whole = format!("{}{rest}", pending.args);
                match line::end_of_call(&whole) {
                    Some((args, result)) => self.call(time, tid, name, args, result),
                    None => {
                        self.feed
                            .skip("not a line of strace, or one that ends early");
                        Ok(())
                    }
                }
            }
            What::Ended => self.ended(time, tid),
            What::Superseded { by } => {
                // This thread is gone; the other one's exec goes on under its id.
                self.give(time, tid, Body::Exit)?;
                if let Some(pending) = self.pending.remove(&by) {
                    self.pending.insert(tid, pending);
                }
                Ok(())
            }
            What::Signal => {
                self.feed.pass_over("signals and stops");
                Ok(())
            }
            What::Message => Ok(()),
        }
    }

    fn ended(&mut self, time: u64, tid: u32) -> Result<(), ImportError> {
        self.creating.retain(|creator| *creator != tid);
        self.pending.remove(&tid);
        let process = self.process(tid);
        self.give(time, tid, Body::Exit)?;
        if process == tid {
            self.files.forget(process);
        }
        Ok(())
    }

    fn process(&self, tid: u32) -> u32 {
        self.feed.translator.process_of(tid).unwrap_or(tid)
    }

    fn give(&mut self, time_ns: u64, tid: u32, body: Body<'_>) -> Result<(), ImportError> {
        let pid = self.process(tid);
        self.feed.give(&Record {
            time_ns,
            pid,
            tid,
            body,
        })
    }

    fn finish(mut self, lines: u64) -> Result<(Report, Vec<String>), ImportError> {
        let mut orphans: Vec<u32> = self.orphans.keys().copied().collect();
        orphans.sort_unstable();
        for tid in orphans {
            self.release(tid)?;
        }
        let without_time = self.without_time;
        let (noticed, mut report) = self.feed.finish();
        report.lines = lines;
        report.notes.extend(notes::of_noticed(&noticed));
        if without_time > 0 {
            report.notes.push(format!(
                "{without_time} lines have no time: each counts as a microsecond after the one before \
                 (use strace -ttt)."
            ));
        }
        Ok((report, self.command))
    }
}
