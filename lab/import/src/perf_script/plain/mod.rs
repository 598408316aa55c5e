//! Texts whose only faults are those that perf counts itself, with addresses:
//! `perf record -e page-faults -d`.
//!
//! They tell no system calls. Mappings are those that the kernel reports (`--show-mmap-events`), read
//! as [`layout`] says; pages used outside of them get mappings that [`fill`] makes. That a text is such
//! a one shows only when it has told enough faults and no system call; until then its lines are kept.

mod fault;
mod fill;
mod layout;

use std::collections::{HashMap, HashSet};

use super::Importer;
use super::event::{self, Event};
use super::line::Line;
use crate::ImportError;
use crate::report::Place;
use fault::Looks;
use layout::{Backing, Change, Layout, Use};
use vellum_record::{Body, Mmap, Sample, number};

pub use fault::PlainFault;
pub use fill::{Filling, Signals};

const PAGE: u64 = 4096;
/// Faults after which a text without system calls is taken to have none.
const ENOUGH: u64 = 4096;
const PROT_READ: u8 = 1;
const PROT_EXECUTE: u8 = 4;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_ANONYMOUS: u64 = 0x20;
/// Bits of a page fault's error code on x86.
const PRESENT: u64 = 1;
const WRITTEN: u64 = 2;
const FETCHED: u64 = 16;

/// What kind of text it is.
pub enum Course {
    /// That has not shown yet.
    Open(Kept),
    /// Faults are told whole, or system calls are there.
    Whole,
    /// Faults are those that perf counts.
    Plain(Box<Plain>),
}

/// Lines that wait until it has shown.
#[derive(Default)]
pub struct Kept {
    lines: Vec<(Place, String)>,
    looks: Looks,
    /// There are `sched:sched_process_exec` lines.
    late_execs: bool,
}

/// What is known while such a text is read.
pub struct Plain {
    signals: Signals,
    looks: Looks,
    late_execs: bool,
    /// By process.
    layouts: HashMap<u32, Layout>,
    /// Tasks that are executing a program, and have not run it.
    starting: HashSet<u32>,
    faults: u64,
    /// Faults that the lines stand for, where they say so.
    counted: u64,
    reports: u64,
    outside: u64,
    forks: u64,
}

impl Default for Course {
    fn default() -> Self {
        Course::Open(Kept::default())
    }
}

impl Course {
    /// A line of a call chain.
    pub fn see_chain(&mut self) {
        if let Course::Open(kept) = self {
            kept.looks.see_chain();
        }
    }

    /// Whether an exec shows only when it is over.
    pub fn execs_show_late(&self) -> bool {
        match self {
            Course::Plain(plain) => plain.late_execs,
            _ => true,
        }
    }
}

impl Importer<'_> {
    /// Keeps the line while it has not shown what text it is of. False: it has.
    pub(super) fn keep(&mut self, text: &str, event: &Event<'_>) -> Result<bool, ImportError> {
        let Course::Open(kept) = &mut self.course else {
            return Ok(false);
        };
        match event {
            Event::PlainFault(fault) => kept.looks.see(fault),
            Event::SchedExec { .. } => kept.late_execs = true,
            _ => {}
        }
        if matches!(event, Event::Sample(_)) || self.comments.own {
            self.settle(false)?;
            return Ok(false);
        }
        kept.lines.push((self.feed.place, text.to_owned()));
        if kept.looks.faults >= ENOUGH {
            self.settle(true)?;
        }
        Ok(true)
    }

    /// At the end of the text it has shown.
    pub(super) fn settle_at_the_end(&mut self) -> Result<(), ImportError> {
        match &self.course {
            Course::Open(kept) => self.settle(kept.looks.faults > 0),
            _ => Ok(()),
        }
    }

    /// Reads what was kept.
    fn settle(&mut self, plain: bool) -> Result<(), ImportError> {
        let Course::Open(kept) = std::mem::replace(&mut self.course, Course::Whole) else {
            return Ok(());
        };
        if plain {
            self.signals.waits.set(true);
            self.feed.translator.calls_by_name();
            self.course = Course::Plain(Box::new(Plain {
                signals: self.signals.clone(),
                looks: kept.looks,
                late_execs: kept.late_execs,
                layouts: HashMap::new(),
                starting: HashSet::new(),
                faults: 0,
                counted: 0,
                reports: 0,
                outside: 0,
                forks: 0,
            }));
        }
        let place = self.feed.place;
        self.rereading = true;
        let done = kept.lines.into_iter().try_for_each(|(place, text)| {
            self.feed.place = place;
            self.line(&text)
        });
        self.rereading = false;
        self.feed.place = place;
        done
    }

    /// A fault that perf counted.
    pub(super) fn plain_fault(
        &mut self,
        line: &Line<'_>,
        time: u64,
        who: (u32, u32),
        fault: PlainFault<'_>,
    ) -> Result<(), ImportError> {
        let place = self.feed.place;
        let Course::Plain(plain) = &mut self.course else {
            self.plain_faults.see(place, fault.name);
            return Ok(());
        };
        if plain.looks.every_kind && !fault.is_of_every_kind() {
            let what = "faults of one kind, which page-faults tell as well";
            self.feed.pass_over(what);
            return Ok(());
        }
        let address = fault.first.filter(|_| plain.looks.has_addresses());
        let Some(address) = address else {
            self.feed.skip(
                "faults without their address (perf record -d records it, perf script -F +addr \
                 prints it)",
            );
            return Ok(());
        };
        if address >= 1 << 56 {
            self.feed.pass_over("faults at the kernel's own addresses");
            return Ok(());
        }
        plain.faults += 1;
        let period = event::period(line.rest).unwrap_or(0);
        plain.counted = plain.counted.saturating_add(period);
        let kernel = fault::is_in_kernel(fault.second);
        if !kernel {
            plain.starting.remove(&who.1);
        }
        let used = plain
            .layouts
            .entry(who.0)
            .or_default()
            .touch(address / PAGE);
        let is_outside = used == Use::Outside;
        plain.outside += u64::from(is_outside);
        let code = code(used, address, fault.second);
        let outside = plain.signals.outside.clone();
        outside.set(is_outside);
        let done = self.feed.sample(
            time,
            who,
            Sample::Fault {
                address,
                code,
                kernel,
            },
        );
        outside.set(false);
        done
    }

    /// The kernel reports a mapping.
    pub(super) fn report_mapping(
        &mut self,
        time: u64,
        who: (u32, u32),
        mmap: Mmap<'_>,
    ) -> Result<(), ImportError> {
        let Course::Plain(plain) = &mut self.course else {
            return self.give(time, who, Body::Mmap(mmap));
        };
        plain.reports += 1;
        let first = mmap.address / PAGE;
        let end = (mmap.address + mmap.length).div_ceil(PAGE);
        if first >= end {
            self.feed.skip("a mapping without pages");
            return Ok(());
        }
        let layout = plain.layouts.entry(who.0).or_default();
        let changes = layout.report((first, end), mmap.prot as u8 & 7, backing(&mmap));
        if plain.starting.contains(&who.1) {
            return self.give(time, who, Body::Mmap(mmap));
        }
        for (from, to, change) in changes {
            let part = Mmap {
                address: from * PAGE,
                length: (to - from) * PAGE,
                offset: mmap.offset / PAGE * PAGE + (from - first) * PAGE,
                ..mmap
            };
            match change {
                Change::Map => self.map(time, who, part)?,
                Change::Protect => {
                    let args = [part.address, part.length, u64::from(part.prot), 0, 0, 0];
                    self.call(time, who, (number::MPROTECT, args, 0), None)?;
                }
            }
        }
        Ok(())
    }

    fn map(&mut self, time: u64, who: (u32, u32), part: Mmap<'_>) -> Result<(), ImportError> {
        let kind = match part.flags as u64 & MAP_SHARED {
            0 => MAP_PRIVATE,
            _ => MAP_SHARED,
        };
        let file = if part.is_of_file() { 0 } else { MAP_ANONYMOUS };
        let args = [
            part.address,
            part.length,
            u64::from(part.prot),
            kind | file,
            0,
            part.offset,
        ];
        self.call(time, who, (number::MMAP, args, part.address), Some(part))
    }

    /// The system call that a report comes from.
    fn call(
        &mut self,
        time: u64,
        who: (u32, u32),
        (number, args, result): (u64, [u64; 6], u64),
        mmap: Option<Mmap<'_>>,
    ) -> Result<(), ImportError> {
        self.feed
            .sample(time, who, Sample::Enter { number, args })?;
        if let Some(mmap) = mmap {
            self.give(time, who, Body::Mmap(mmap))?;
        }
        self.feed.sample(time, who, Sample::Exit { number, result })
    }

    /// A task executes a program, or was there from the start: what is reported next belongs to it.
    pub(super) fn program_starts(&mut self, (pid, tid): (u32, u32)) {
        if let Course::Plain(plain) = &mut self.course {
            plain.layouts.insert(pid, Layout::default());
            plain.starting.insert(tid);
        }
    }

    /// A task is made, with a copy of its creator's memory unless it is a thread.
    pub(super) fn memory_is_copied(&mut self, child: (u32, u32), ptid: u32) {
        let creator = self.ids(None, ptid.into());
        if let Course::Plain(plain) = &mut self.course
            && let Some((parent, _)) = creator
            && parent != child.0
        {
            plain.forks += 1;
            let copy = plain.layouts.get(&parent).cloned();
            plain.layouts.insert(child.0, copy.unwrap_or_default());
        }
    }
}

/// The error code of a fault, as far as it can be known.
fn code(used: Use, address: u64, instruction: Option<u64>) -> u64 {
    let (prot, before) = match used {
        Use::Mapped { prot, before } => (prot, before),
        Use::Stack | Use::Outside => (PROT_READ | layout::WRITE, false),
    };
    // An instruction that lies across two pages faults where the second begins.
    let fetches =
        |at: u64| address == at || (address.is_multiple_of(PAGE) && address.wrapping_sub(at) < 16);
    let may_fetch = used == Use::Outside || prot & PROT_EXECUTE != 0;
    if may_fetch && instruction.is_some_and(fetches) {
        FETCHED
    } else if prot & layout::WRITE != 0 {
        WRITTEN | if before { PRESENT } else { 0 }
    } else if prot == PROT_EXECUTE {
        FETCHED
    } else {
        0
    }
}

fn backing(mmap: &Mmap<'_>) -> Backing {
    if mmap.name == b"[stack]" {
        return Backing::Stack;
    }
    match mmap.is_of_file() {
        false => Backing::Anonymous,
        true => Backing::File {
            device: mmap.major << 20 | mmap.minor & 0xf_ffff,
            inode: mmap.inode,
            shared: mmap.flags as u64 & MAP_SHARED != 0,
            shift: (mmap.offset / PAGE).wrapping_sub(mmap.address / PAGE),
        },
    }
}

impl Plain {
    /// Sentences about what was made up and what is missing.
    pub fn notes(&self, sampled: bool, (pages, mappings): (u64, u64)) -> Vec<String> {
        if self.faults == 0 {
            return Vec::new();
        }
        let mut notes = vec![format!(
            "{} faults are those that perf counts (page-faults): their addresses show, what they were \
             for does not. They count as executions at the instruction's own address, else as writes \
             in mappings that may be written, else as reads.",
            self.faults
        )];
        if sampled || self.counted > self.faults {
            let all = match self.counted > self.faults {
                true => format!(" of about {}", self.counted),
                false => String::new(),
            };
            notes.push(format!(
                "The faults are samples: {}{all}; pages of the others were never touched (perf record \
                 -c 1 records each).",
                self.faults
            ));
        }
        notes.push(match self.reports {
            0 => "The text tells neither mappings nor system calls (perf script --show-mmap-events \
                  shows mappings): all are inferred."
                .to_owned(),
            _ => "Mappings are those that the kernel reported, without system calls: what was \
                  unmapped, moved (mremap) or dropped (MADV_DONTNEED) stays, until something else is \
                  mapped there."
                .to_owned(),
        });
        if self.outside > 0 {
            notes.push(format!(
                "{pages} pages were used where no mapping shows: they count as {mappings} anonymous \
                 mappings, there since the program began, with the rights that this took. Files \
                 among them do not show."
            ));
        }
        if self.forks > 0 {
            notes.push(format!(
                "{} tasks count as forked: vfork does not show.",
                self.forks
            ));
        }
        notes
    }
}
