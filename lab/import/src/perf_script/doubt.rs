//! What shows only over many lines: that times are differences, that system
//! calls have no ends, that faults come from an event that tells too little.

use std::collections::{BTreeMap, HashMap};

use super::calls::{self, creation};
use crate::ImportError;
use crate::report::{Place, Reason, Report};

/// Whether times are times since one moment, as they must be.
#[derive(Default)]
pub struct Times {
    lines: u64,
    /// Lines earlier than the line before them.
    back: u64,
    last_ns: u64,
    begins_at_zero: bool,
}

impl Times {
    /// Lines after which the first judgement is made.
    const ENOUGH: u64 = 1000;

    /// A line has this time.
    pub fn see(&mut self, time_ns: u64) -> Result<(), ImportError> {
        self.begins_at_zero |= self.lines == 0 && time_ns == 0;
        self.lines += 1;
        self.back += u64::from(time_ns < self.last_ns && time_ns != 0);
        self.last_ns = time_ns;
        match self.lines == Self::ENOUGH {
            true => self.check(),
            false => Ok(()),
        }
    }

    /// Differences go up and down and begin with 0; times do so only where
    /// lines were moved.
    pub fn check(&self) -> Result<(), ImportError> {
        let share = match (self.begins_at_zero, self.lines >= 20) {
            (true, _) => 10,
            (false, true) => 3,
            (false, false) => return Ok(()),
        };
        if self.back * share <= self.lines {
            return Ok(());
        }
        Err(ImportError::Format(format!(
            "{} of {} lines are earlier than the line before them: the times are differences; \
             leave out --deltatime, or sort the lines by time",
            self.back, self.lines
        )))
    }
}

/// System calls of which only the beginning or only the end shows, although
/// both are needed.
#[derive(Default)]
pub struct Ends {
    /// Calls that tasks are in.
    open: HashMap<u32, (u64, Place)>,
    whole: u64,
    without_end: Halves,
    without_beginning: Halves,
}

#[derive(Default)]
struct Halves {
    count: u64,
    first: Vec<Place>,
    calls: BTreeMap<u64, u64>,
}

impl Halves {
    fn add(&mut self, number: u64, place: Place) {
        self.count += 1;
        if self.first.len() < 3 {
            self.first.push(place);
        }
        *self.calls.entry(number).or_default() += 1;
    }

    /// The call that is cut in two most often.
    fn most(&self) -> &'static str {
        let most = self.calls.iter().max_by_key(|(_, count)| **count);
        most.and_then(|(number, _)| calls::name_of(*number))
            .unwrap_or("mmap")
    }
}

impl Ends {
    /// A task begins a call.
    pub fn begin(&mut self, tid: u32, number: u64, place: Place) {
        let before = match calls::takes_both_ends(number) {
            true => self.open.insert(tid, (number, place)),
            false => self.open.remove(&tid),
        };
        if let Some((number, place)) = before {
            self.without_end.add(number, place);
        }
    }

    /// A task ends a call. That which creates a task ends in the new one too.
    pub fn end(&mut self, tid: u32, number: u64, place: Place) {
        const CREATIONS: [u64; 4] = [
            creation::CLONE,
            creation::FORK,
            creation::VFORK,
            creation::CLONE3,
        ];
        let begun = self.open.remove(&tid);
        if begun.is_some_and(|(begun, _)| begun == number) {
            self.whole += 1;
            return;
        }
        if let Some((begun, at)) = begun {
            self.without_end.add(begun, at);
        }
        if calls::takes_both_ends(number) && !CREATIONS.contains(&number) {
            self.without_beginning.add(number, place);
        }
    }

    /// Counts them as skipped if they are too many for calls that were cut by
    /// the beginning of the recording, the end of it, or that of a task.
    pub fn tell(mut self, report: &mut Report) {
        for (number, place) in self.open.into_values() {
            // The last call of a task mostly has no end.
            if self.whole == 0 {
                self.without_end.add(number, place);
            }
        }
        for (halves, what, missing) in [
            (self.without_end, "whose ends", "exit"),
            (self.without_beginning, "whose beginnings", "enter"),
        ] {
            if halves.count * 10 > self.whole + halves.count {
                let name = halves.most();
                report.skipped.push(Reason {
                    what: format!(
                        "system calls {what} are missing (record syscalls:sys_{missing}_{name}, \
                         or raw_syscalls:sys_{missing}, as well)"
                    ),
                    count: halves.count,
                    first: halves.first,
                });
            }
        }
    }
}

/// Faults that the software events of perf count.
#[derive(Default)]
pub struct PlainFaults {
    reason: Option<Reason>,
    better: bool,
}

impl PlainFaults {
    /// A line of such an event.
    pub fn see(&mut self, place: Place, name: &str) {
        let reason = self.reason.get_or_insert(Reason {
            what: name.to_owned(),
            count: 0,
            first: Vec::new(),
        });
        reason.count += 1;
        if reason.first.len() < 3 {
            reason.first.push(place);
        }
    }

    /// A line tells a fault whole.
    pub fn seen_better(&mut self) {
        self.better = true;
    }

    /// They say nothing new beside the events that tell faults whole; alone
    /// they leave out what the access was.
    pub fn tell(self, report: &mut Report) {
        let Some(mut reason) = self.reason else {
            return;
        };
        let name = std::mem::take(&mut reason.what);
        if self.better {
            reason.what = format!("events {name}");
            report.passed_over.push(reason);
        } else {
            reason.what = format!(
                "events {name}, which do not tell reads from writes (record \
                 exceptions:page_fault_user,exceptions:page_fault_kernel instead, or page-faults \
                 alone with -d)"
            );
            report.skipped.push(reason);
        }
    }
}
