//! `strace -f` text: what processes asked of memory, by system calls.
//!
//! The calls become the records that the recorder knows and go through its
//! translation. What strace does not see is modelled or missing, and the trace
//! says which: faults are made up as first touches ([`touch`]); the maps that
//! exec makes (text, data, stack) are missing; reads and writes of files are
//! passed over.

mod calls;
mod clock;
mod files;
mod line;
mod merge;
mod names;
mod space;
mod tasks;
mod text;
mod touch;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::feed::Feed;
use crate::report::{Place, Report};
use crate::{ImportError, Input, Watch, notes};
use clock::Clock;
use files::Files;
use line::{Line, What};
use tasks::Tasks;
use touch::Touching;
use vellum_record::{Body, Record, Sink};

/// The process of lines that name none, until one of its lines does.
const NAMELESS: u32 = 1;
/// Calls in progress whose text is kept, and the text of each.
const MOST_PENDING: usize = 1 << 16;

const TABLE: &str = "the table of counts (strace -c, -C)";
const EARLY_END: &str = "not a line of strace, or one that ends early";

/// Whether a line is one of strace's.
pub fn looks_like(text: &str) -> bool {
    match line::split(&line::plain(text)) {
        Some(line) => match line.what {
            What::Message => line.pid.is_some(),
            What::Stack | What::Dump => false,
            _ => true,
        },
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
    importer.separate = inputs.len() > 1;
    let lines = merge::each_line(inputs, watch, &mut importer)?;
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
    notes::fill_in(header, "strace text", &report);
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
    tasks: Tasks,
    clock: Clock,
    pending: HashMap<u32, Pending>,
    /// The inputs are files of one task each.
    separate: bool,
    /// The task that was made last.
    newborn: Option<u32>,
    command: Vec<String>,
    /// The beginning of a line that a message of strace's interrupted.
    broken: Option<String>,
    /// The lines are those of a table.
    in_table: bool,
    /// Calls whose ends showed.
    calls: u64,
    /// Those that changed memory or made tasks.
    told: u64,
    /// `mmap2` has its offsets in pages, as strace showed them once.
    offsets_in_pages: bool,
    /// Tells the touches that a mapping is a stack.
    from_end: Rc<Cell<bool>>,
}

impl<'a> Importer<'a> {
    fn new(sink: &'a mut dyn Sink, from_end: Rc<Cell<bool>>) -> Self {
        Importer {
            feed: Feed::new(sink),
            files: Files::default(),
            tasks: Tasks::default(),
            clock: Clock::default(),
            pending: HashMap::new(),
            separate: false,
            newborn: None,
            command: Vec::new(),
            broken: None,
            in_table: false,
            calls: 0,
            told: 0,
            offsets_in_pages: false,
            from_end,
        }
    }

    /// Takes a line of the task that its file's name tells.
    fn take_line(
        &mut self,
        place: Place,
        file_pid: Option<u32>,
        text: &str,
        cut: bool,
    ) -> Result<(), ImportError> {
        self.feed.place = place;
        if cut {
            self.feed.skip("a line longer than 65536 bytes");
            return Ok(());
        }
        let text = line::plain(text);
        if text.trim().is_empty() {
            return Ok(());
        }
        // On a terminal strace's messages can stand in the middle of a call.
        if let Some(begin) = line::interrupted(&text) {
            let before = self.broken.take().unwrap_or_default();
            self.broken = Some(before + begin);
            self.feed.pass_over("strace's own messages");
            return Ok(());
        }
        match self.broken.take() {
            Some(begin) => self.line(file_pid, &(begin + &*text)),
            None => self.line(file_pid, &text),
        }
    }

    fn line(&mut self, file_pid: Option<u32>, text: &str) -> Result<(), ImportError> {
        let Some(line) = line::split(text) else {
            match self.in_table {
                true => self.feed.pass_over(TABLE),
                false => self.feed.skip(EARLY_END),
            }
            return Ok(());
        };
        self.in_table = line.what == What::Table;
        let beside = match line.what {
            What::Message => Some("strace's own messages"),
            What::Stack => Some("stack traces (strace -k)"),
            What::Dump => Some("what was read or written (strace -e read, -e write)"),
            What::Table => Some(TABLE),
            _ => None,
        };
        if let Some(beside) = beside {
            self.feed.pass_over(beside);
            return Ok(());
        }
        let tid = self.task(line.pid.or(file_pid), &line.what);
        if tid == 0 {
            self.feed.skip("a task without a usable id");
            return Ok(());
        }
        let time = self.clock.take(line.time);
        if self.separate && self.clock.is_relative() {
            return Err(ImportError::Format(
                "the times of strace -r count from the line before, in whichever file that is: \
                 record with strace -ff -ttt, without -r"
                    .to_owned(),
            ));
        }
        if !self.adopt_child(tid, time, text)? {
            return Ok(());
        }
        self.take(tid, time, &line)
    }

    fn take_what(&mut self, tid: u32, time: u64, line: &Line<'_>) -> Result<(), ImportError> {
        match line.what {
            What::Call { name, args, result } => self.call(time, tid, name, args, result),
            What::Unfinished { name, args } => self.begin_call(time, tid, name, args),
            What::Resumed { name, rest } => self.end_call(time, tid, name, rest),
            What::Ended => self.ended(time, tid),
            What::Superseded { by } => self.superseded(time, tid, by),
            What::Signal => {
                self.feed.pass_over("signals and stops");
                Ok(())
            }
            What::Message | What::Stack | What::Dump | What::Table => Ok(()),
        }
    }

    fn begin_call(
        &mut self,
        time: u64,
        tid: u32,
        name: &str,
        args: &str,
    ) -> Result<(), ImportError> {
        if self.pending.len() < MOST_PENDING {
            let (name, args) = (name.to_owned(), args.to_owned());
            if calls::creates(&name) {
                self.begins_creation(tid);
            }
            self.pending.insert(tid, Pending { name, args });
        }
        match calls::leaves(name) {
            Some(whole) => self.leaves(time, tid, whole),
            None => Ok(()),
        }
    }

    fn end_call(&mut self, time: u64, tid: u32, name: &str, rest: &str) -> Result<(), ImportError> {
        self.find_executing(time, tid, name)?;
        let Some(pending) = self.pending.remove(&tid) else {
            match calls::tells(name) {
                true => self
                    .feed
                    .skip("the end of a call whose beginning is missing"),
                false => self.feed.pass_over(calls::UNCONCERNED),
            }
            return Ok(());
        };
        if calls::creates(&pending.name) {
            self.ends_call(tid);
        }
        if pending.name != name {
            self.feed
                .skip("the end of another call than the one in progress");
            return Ok(());
        }
        let whole = format!("{}{rest}", pending.args);
        match line::end_of_call(&whole) {
            Some((args, result)) => self.call(time, tid, name, args, result),
            None => {
                self.feed.skip(EARLY_END);
                Ok(())
            }
        }
    }

    fn process(&self, tid: u32) -> u32 {
        self.feed.translator.process_of(tid).unwrap_or(tid)
    }

    fn give(&mut self, time_ns: u64, tid: u32, body: Body<'_>) -> Result<(), ImportError> {
        let pid = self.process(tid);
        let done = self.feed.give(&Record {
            time_ns,
            pid,
            tid,
            body,
        });
        self.follow(tid);
        done
    }

    fn finish(mut self, lines: u64) -> Result<(Report, Vec<String>), ImportError> {
        self.settle(self.clock.now())?;
        if self.told == 0 {
            self.refuse_useless()?;
        }
        let guessed = self.tasks.guessed;
        let (noticed, mut report) = self.feed.finish();
        report.lines = lines;
        report.notes.extend(notes::of_noticed(&noticed));
        report.notes.extend(self.clock.notes());
        if guessed > 0 {
            report.notes.push(format!(
                "{guessed} tasks of other PID namespaces were recognised by when they appeared (use \
                 strace --pidns-translation)."
            ));
        }
        Ok((report, self.command))
    }

    /// Lines that are no calls, or calls that failed, make no trace.
    fn refuse_useless(&self) -> Result<(), ImportError> {
        let passed = &self.feed.report.passed_over;
        let why = if self.calls == 0 && passed.iter().any(|reason| reason.what == TABLE) {
            "it is a table of counts, without the calls: leave out strace's -c, or use -C"
        } else if self.calls > 0 && self.feed.report.skips() == 0 {
            "none of its calls changed memory or made a task: leave out strace's -Z and -P, and \
             record with -e trace=%memory,%process,%desc or all calls"
        } else {
            return Ok(());
        };
        Err(ImportError::Format(format!("nothing to import: {why}")))
    }
}
