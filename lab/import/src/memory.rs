//! Sinks of events: one that keeps them in memory, one that counts them.

use vellum_record::Sink;
use vellum_trace::rules::{Rules, check_access};
use vellum_trace::{Event, EventKind, Header, TraceError};

/// A trace in memory that keeps the rules of traces.
#[derive(Default)]
pub struct Imported {
    header: Header,
    events: Vec<Event>,
    accesses: Vec<Event>,
    rules: Rules,
}

impl Imported {
    /// The tables.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Samples of accessed marks in order of time.
    pub fn accesses(&self) -> &[Event] {
        &self.accesses
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
        let is_sample = matches!(event.kind, EventKind::Accessed { .. });
        let checked = match is_sample {
            true => {
                let last_us = self.accesses.last().map_or(0, |last| last.time_us);
                check_access(&self.header, event, last_us)
            }
            false => self.rules.check(&self.header, event),
        };
        checked.map_err(|reason| TraceError::BadEvent {
            path: "memory".into(),
            index: self.events.len() as u64,
            reason,
        })?;
        match is_sample {
            true => self.accesses.push(*event),
            false => self.events.push(*event),
        }
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
