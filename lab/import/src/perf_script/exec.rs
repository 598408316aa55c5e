//! Execs in texts without `PERF_RECORD_COMM` lines.
//!
//! There an exec shows when it is over, at `sched:sched_process_exec`, after
//! the mappings that it made. So what a task does from the beginning of
//! `execve` on is held back until it is known whether and where the program
//! changed: before the first mapping.

use super::Importer;
use super::event::{self, Event};
use super::line::Line;
use crate::ImportError;
use crate::report::Place;
use vellum_record::{Body, Sample, number};

/// Lines of one exec that are held back at most.
const MOST: usize = 4096;

/// Lines that are held back.
#[derive(Default)]
pub struct Held {
    lines: Vec<(Place, String)>,
    /// The first one with a mapping.
    first_map: Option<usize>,
}

impl Importer<'_> {
    /// Holds the line back if it belongs to an exec in progress.
    pub(super) fn hold(
        &mut self,
        text: &str,
        line: &Line<'_>,
        event: &Event<'_>,
        (_, tid): (u32, u32),
    ) -> Result<bool, ImportError> {
        if self.task_records
            || self.replaying
            || line.time_ns == 0
            || !self.course.execs_show_late()
        {
            return Ok(false);
        }
        let executes = |number| matches!(number, number::EXECVE | number::EXECVEAT);
        let maps = matches!(event, Event::Mmap { .. });
        if !self.held.contains_key(&tid) {
            // The first exec of a recording begins before the recording does.
            let begins = match event {
                Event::Sample(Sample::Enter { number, .. }) => executes(*number),
                Event::Mmap { .. } => !self.feed.translator.is_live(tid),
                _ => false,
            };
            if !begins {
                return Ok(false);
            }
            self.held.insert(tid, Held::default());
        }
        if matches!(event, Event::SchedExec { .. } | Event::Comm { .. }) {
            return Ok(false);
        }
        let held = self.held.get_mut(&tid).expect("just looked up or put in");
        if maps && held.first_map.is_none() {
            held.first_map = Some(held.lines.len());
        }
        held.lines.push((self.feed.place, text.to_owned()));
        let over = matches!(event, Event::Sample(Sample::Exit { number, .. }) if executes(*number));
        if over || held.lines.len() >= MOST {
            // It failed, or is none.
            let held = self.held.remove(&tid).unwrap_or_default();
            self.replay(held.lines)?;
        }
        Ok(true)
    }

    /// The program changed: what was held back happened before and after that.
    pub(super) fn sched_exec(
        &mut self,
        line: &Line<'_>,
        time: u64,
        who: (u32, u32),
    ) -> Result<(), ImportError> {
        let held = self.held.remove(&who.1).unwrap_or_default();
        let first_map = held.first_map.unwrap_or(held.lines.len());
        let place = self.feed.place;
        let mut lines = held.lines;
        let after = lines.split_off(first_map);
        self.replay(lines)?;
        self.feed.place = place;
        let name = match line.name {
            "" => event::program(line.rest),
            name => name,
        };
        let name = name.as_bytes();
        self.program_starts(who);
        self.give(time, who, Body::Comm { name, exec: true })?;
        self.replay(after)?;
        self.feed.place = place;
        Ok(())
    }

    /// Takes lines that were held back.
    fn replay(&mut self, lines: Vec<(Place, String)>) -> Result<(), ImportError> {
        self.replaying = true;
        let done = lines.into_iter().try_for_each(|(place, text)| {
            self.feed.place = place;
            self.line(&text)
        });
        self.replaying = false;
        done
    }

    /// Takes everything that is still held back at the end of the text.
    pub(super) fn release_all(&mut self) -> Result<(), ImportError> {
        let mut held: Vec<(u32, Held)> = self.held.drain().collect();
        held.sort_by_key(|(tid, _)| *tid);
        held.into_iter()
            .try_for_each(|(_, held)| self.replay(held.lines))
    }
}
