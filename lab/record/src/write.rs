//! From what was recorded to a trace.

use std::path::Path;
use std::time::SystemTime;

use crate::accesses::Used;
use crate::beginning::Beginning;
use crate::error::RecordError;
use crate::merge::merge;
use crate::notes;
use crate::price::{Cost, Prices, Tally};
use crate::run::Options;
use crate::sink::Sink;
use crate::spool::Spool;
use crate::tracepoint::Layout;
use crate::translate::{Noticed, Translator};
use vellum_terminal::progress::Progress;
use vellum_trace::cut::{Copier, Selection};
use vellum_trace::{Event, Header, TraceError, TraceWriter};

/// What a recorded run left.
pub struct Recorded {
    pub spool: Spool,
    /// What an event costs.
    pub prices: Prices,
    /// System calls of no interest, by whatever task.
    pub passed_calls: u64,
    /// CPU time that the recorder spent meanwhile, in seconds.
    pub recorder_seconds: f64,
    /// CPUs in it.
    pub cpus: usize,
    /// Why reads and writes on tmpfs do not show, if they do not.
    pub without_transfers: Option<String>,
    /// Why context switches were not recorded, if they were not.
    pub without_switches: Option<String>,
    /// Pages that were used, in order of time, if accessed marks were sampled.
    pub used: Vec<Used>,
    /// When the events were enabled.
    pub began: SystemTime,
    /// Whose records count.
    pub subject: Subject,
}

/// Whose records count.
pub enum Subject {
    /// Those of a command, from its `exec` on.
    Command { root: u32 },
    /// Those of processes that ran already.
    Running(Attached),
}

/// Processes that ran when the recording began.
pub struct Attached {
    pub beginning: Beginning,
    /// When the events were enabled, by the clock of the records.
    pub began_ns: u64,
    /// What was recorded, for a sentence.
    pub what: String,
    /// Bytes that were in huge pages when the recording ended.
    pub huge_at_end: u64,
}

impl Recorded {
    /// The processes that ran when the recording began, if it is one of such.
    pub fn running(&self) -> Option<&Attached> {
        match &self.subject {
            Subject::Command { .. } => None,
            Subject::Running(attached) => Some(attached),
        }
    }

    /// What recording cost, if there were so many events of what was recorded.
    pub fn cost(&self, tally: Tally) -> Cost {
        Cost {
            prices: self.prices,
            tally: Tally {
                passed_calls: self.passed_calls,
                ..tally
            },
            recorder: self.recorder_seconds,
        }
    }
}

/// What was written.
pub struct Written {
    pub events: u64,
    pub bytes: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Records of what was recorded.
    pub tally: Tally,
    /// Microseconds that its tasks ran.
    pub ran_us: u64,
}

/// A buffer as the kernel takes it.
pub fn buffer_bytes(buffer: usize) -> usize {
    buffer.next_power_of_two().max(1 << 16)
}

fn size_text(bytes: usize) -> String {
    match bytes >> 20 {
        0 => format!("{}K", bytes >> 10),
        mebibytes => format!("{mebibytes}M"),
    }
}

/// Writes the trace of a run to `path`, with a header that begins as `header`.
pub fn write(
    path: &Path,
    options: &Options,
    recorded: &Recorded,
    layouts: &[Layout],
    mut header: Header,
) -> Result<Written, RecordError> {
    header.environment.cpus = recorded.cpus as u32;
    header.cpu_times = recorded.without_switches.is_none();
    let mut writer = TraceWriter::create(path, options.level)?;
    let label = "writing the trace";
    let bytes = recorded.spool.record_bytes();
    let (noticed, tally) = match &recorded.subject {
        Subject::Command { root } => {
            *writer.header_mut() = header;
            let mut progress = Progress::new(options.style, label, bytes, "bytes");
            let translator = Translator::new(layouts, &mut writer, *root);
            let (noticed, tally) = translate(translator, recorded, layouts, &mut progress)?;
            progress.finish();
            settle(writer.header_mut(), &noticed, recorded, options)?;
            (noticed, tally)
        }
        Subject::Running(attached) => {
            let mut progress = Progress::new(options.style, label, 2 * bytes, "bytes");
            let started = attached.began_ns;
            // Once to know the tables.
            let mut tables = Tables(header.clone());
            let translator = Translator::of_running(layouts, &mut tables, started);
            let found = translate(translator, recorded, layouts, &mut progress)?;
            settle(&mut tables.0, &found.0, recorded, options)?;
            let selection = Selection {
                root: None,
                from_us: attached.beginning.whole_ns.saturating_sub(started) / 1000,
                to_us: u64::MAX,
            };
            let mut whole = FromWhole {
                tables: Tables(header),
                copier: Copier::silent(&tables.0, selection, &mut writer),
            };
            let translator = Translator::of_running(layouts, &mut whole, started);
            translate(translator, recorded, layouts, &mut progress)?;
            whole.copier.reach_window()?;
            progress.finish();
            found
        }
    };
    let (events, bytes) = writer.finish()?;
    Ok(Written {
        events,
        bytes,
        lost: noticed.lost,
        tally,
        ran_us: noticed.ran_us,
    })
}

/// Gives the records of all CPUs to the translator, and counts those of tasks that it knows.
fn translate(
    mut translator: Translator<'_>,
    recorded: &Recorded,
    layouts: &[Layout],
    progress: &mut Progress,
) -> Result<(Noticed, Tally), RecordError> {
    let snapshots = recorded
        .running()
        .map(|attached| &attached.beginning.snapshots[..]);
    let snapshots = snapshots.unwrap_or_default();
    for snapshot in snapshots {
        translator.expect(snapshot)?;
    }
    let mut snapshots = snapshots.iter().peekable();
    let mut used = recorded.used.iter().peekable();
    let mut tally = Tally::default();
    merge(&recorded.spool, recorded.cpus, |record, bytes| {
        progress.advance(bytes as u64);
        while let Some(read) = snapshots.next_if(|read| read.read_ns <= record.time_ns) {
            translator.was_read(read)?;
        }
        while let Some(used) = used.next_if(|used| used.time_ns <= record.time_ns) {
            translator.accessed(used)?;
        }
        if translator.is_live(record.tid) {
            tally.count(record, layouts);
        }
        translator.take(record)
    })?;
    for read in snapshots {
        translator.was_read(read)?;
    }
    let mut noticed = translator.finish(Some(recorded.began));
    noticed.lost += recorded.spool.missed_events();
    Ok((noticed, tally))
}

/// Fills in what is known at the end.
fn settle(
    header: &mut Header,
    noticed: &Noticed,
    recorded: &Recorded,
    options: &Options,
) -> Result<(), RecordError> {
    if noticed.lost > 0 && !options.allow_lost {
        return Err(RecordError::Lost {
            lost: noticed.lost,
            suggestion: size_text(buffer_bytes(options.buffer) * 4),
        });
    }
    header.lost = noticed.lost;
    header.invisible = notes::invisible(noticed, recorded, header.accesses);
    Ok(())
}

/// The tables of a trace without its events.
struct Tables(Header);

impl Sink for Tables {
    fn header_mut(&mut self) -> &mut Header {
        &mut self.0
    }

    fn push(&mut self, _: &Event) -> Result<(), TraceError> {
        Ok(())
    }
}

/// Writes what comes after the state at the beginning is whole, and that state before it.
struct FromWhole<'a> {
    tables: Tables,
    copier: Copier<'a>,
}

impl Sink for FromWhole<'_> {
    fn header_mut(&mut self) -> &mut Header {
        self.tables.header_mut()
    }

    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        self.copier.take(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_sizes_are_powers_of_two_and_read_like_the_option() {
        assert_eq!(buffer_bytes(5 << 20), 8 << 20);
        assert_eq!(buffer_bytes(1), 1 << 16);
        assert_eq!(size_text(8 << 20), "8M");
        assert_eq!(size_text(1 << 16), "64K");
    }
}
