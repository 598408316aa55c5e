//! Sinks of events: one that keeps them in memory, one that counts them.

use vellum_record::Sink;
use vellum_trace::rules::Rules;
use vellum_trace::{Event, Header, TraceError};

/// A trace in memory that keeps the rules of traces.
#[derive(Default)]
pub struct Imported {
    header: Header,
    events: Vec<Event>,
    rules: Rules,
}

impl Imported {
    /// The tables.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The events in order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

impl Sink for Imported {
    fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }

    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        let checked = self.rules.check(&self.header, event);
        checked.map_err(|reason| TraceError::BadEvent {
            path: "memory".into(),
            index: self.events.len() as u64,
            reason,
        })?;
        self.events.push(*event);
        Ok(())
    }
}

/// Counts what goes through.
pub struct Counting<'a> {
    sink: &'a mut dyn Sink,
    events: u64,
}

impl<'a> Counting<'a> {
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        Counting { sink, events: 0 }
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }
}

impl Sink for Counting<'_> {
    fn header_mut(&mut self) -> &mut Header {
        self.sink.header_mut()
    }

    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        self.sink.push(event)?;
        self.events += 1;
        Ok(())
    }
}
