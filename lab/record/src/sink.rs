//! Where the events of a translation go.

use vellum_trace::{Event, Header, TraceError, TraceWriter};

/// Takes events in order of time. A refused event leaves the sink usable.
pub trait Sink {
    /// The tables; they may grow at any time.
    fn header_mut(&mut self) -> &mut Header;

    /// Adds an event.
    ///
    /// # Errors
    /// [`TraceError::BadEvent`]: it breaks a rule of traces.
    fn push(&mut self, event: &Event) -> Result<(), TraceError>;
}

impl Sink for TraceWriter {
    fn header_mut(&mut self) -> &mut Header {
        TraceWriter::header_mut(self)
    }

    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        TraceWriter::push(self, event)
    }
}
