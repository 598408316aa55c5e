//! A part of a trace, written as a trace.

use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::cut::{Copier, Selection};
use vellum_trace::{EventKind, TraceReader, TraceWriter};

use crate::failure::{Failure, OrFail};

/// Copies what `selection` selects of `trace` to `writer`. Returns the number of
/// events written, and of bytes.
///
/// # Errors
/// The trace is damaged, nothing is selected, the file cannot be written, or the
/// user interrupted; then there is no file.
pub fn write(
    trace: &TraceReader,
    selection: Selection,
    mut writer: TraceWriter,
    style: Style,
    interrupt: &Interrupt,
) -> Result<(u64, u64), Failure> {
    let header = trace.header();
    let to_us = selection.to_us;
    let mut progress = Progress::new(style, "cutting", header.events, "events");
    let mut copier = Copier::new(header, selection, &mut writer);
    for event in trace.events_and_accesses() {
        let event = event.blame_input()?;
        if interrupt.requested() {
            return Err(Failure::interrupted("interrupted; nothing was written"));
        }
        let is_event = !matches!(event.kind, EventKind::Accessed { .. });
        progress.advance(u64::from(is_event));
        if event.time_us >= to_us {
            break;
        }
        copier.take(&event)?;
    }
    progress.finish();
    if copier.finish() == 0 {
        return Err(Failure::usage(
            "nothing of the selected tasks happens in that time",
        ));
    }
    Ok(writer.finish()?)
}
