//! What every importer hands its records to: the recorder's own translation,
//! and the report of what came of each line.

use crate::ImportError;
use crate::report::{Place, Report};
use vellum_record::{Body, Noticed, Record, RecordError, Sample, Sink, Translator};
use vellum_trace::TraceError;

/// Values from here on are nonsense: no address, length or offset reaches it.
/// Products with the page size stay below the limit of traces.
pub const ABSURD: u64 = 1 << 61;

/// Takes records and accounts for them.
pub struct Feed<'a> {
    pub translator: Translator<'a>,
    pub report: Report,
    /// The line that is being worked on.
    pub place: Place,
}

impl<'a> Feed<'a> {
    /// A feed whose events go to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        Feed {
            translator: Translator::of_everyone(sink),
            report: Report::default(),
            place: Place { input: 0, line: 0 },
        }
    }

    /// Hands a record over. One that a trace cannot hold is a skipped line.
    pub fn give(&mut self, record: &Record<'_>) -> Result<(), ImportError> {
        let late = self.translator.late();
        match self.translator.take(record) {
            Ok(()) if self.translator.late() > late => {
                self.skip("the task had ended before");
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(RecordError::Trace(TraceError::BadEvent { reason, .. })) => {
                self.skip(&format!(
                    "no trace can hold it: {}",
                    without_figures(&reason)
                ));
                Ok(())
            }
            Err(RecordError::BadRecord(what)) => {
                self.skip(&what);
                Ok(())
            }
            Err(RecordError::Trace(error)) => Err(error.into()),
            Err(other) => Err(ImportError::Translation(other.to_string())),
        }
    }

    /// Hands a sample of a task over.
    pub fn sample(
        &mut self,
        time_ns: u64,
        (pid, tid): (u32, u32),
        sample: Sample<'_>,
    ) -> Result<(), ImportError> {
        self.give(&Record {
            time_ns,
            pid,
            tid,
            body: Body::Event(sample),
        })
    }

    /// The line at hand is lost for the trace.
    pub fn skip(&mut self, what: &str) {
        self.report.skip(self.place, what);
    }

    /// The line at hand says nothing about memory.
    pub fn pass_over(&mut self, what: &str) {
        self.report.pass_over(self.place, what);
    }

    /// Ends the translation.
    pub fn finish(self) -> (Noticed, Report) {
        (self.translator.finish(None), self.report)
    }
}

/// A reason without its numbers, so that reasons of one kind count together.
fn without_figures(reason: &str) -> String {
    let word = |word: &str| match word.starts_with(|c: char| c.is_ascii_digit()) {
        true => "N".to_owned(),
        false => word.to_owned(),
    };
    let words: Vec<String> = reason.split(' ').map(word).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_count_together_whatever_their_numbers() {
        assert_eq!(
            without_figures("0x5000 bytes at address 0x7f00"),
            "N bytes at address N"
        );
        assert_eq!(without_figures("task 7 has ended"), "task N has ended");
    }
}
