//! What must be known about the whole trace before its first event is placed.

use super::service::Samples;
use crate::replay::Prices;
use vellum_trace::{Event, EventKind, Header, TraceError};

/// Figures of a first reading.
pub(super) struct Survey {
    /// Events of each task.
    pub(super) events: Vec<u32>,
    /// Files that the workload changes; each copy gets its own.
    pub(super) written: Vec<bool>,
    /// What the recorded kernel's service took of the CPU times.
    pub(super) service: Prices,
}

impl Survey {
    pub(super) fn of(
        header: &Header,
        events: impl Iterator<Item = Result<Event, TraceError>>,
    ) -> Result<Self, TraceError> {
        let mut survey = Self {
            events: vec![0; header.tasks.len()],
            written: vec![false; header.files.len()],
            service: Prices::default(),
        };
        let mut samples = Samples::new(header.tasks.len());
        let mut number = 0;
        for event in events {
            let event = event?;
            if let EventKind::Accessed { .. } = event.kind {
                continue;
            }
            // What was there when the recording began is no work of the recorded kernel's.
            if number >= header.beginning {
                samples.take(event.task.0 as usize, event.kind, event.ran_us);
            }
            number += 1;
            if let Some(count) = survey.events.get_mut(event.task.0 as usize) {
                *count = count.saturating_add(1);
            }
            let changed = match event.kind {
                EventKind::FileWrite { file, .. } | EventKind::Truncate { file, .. } => Some(file),
                EventKind::Map {
                    file: Some(file),
                    shared: true,
                    prot,
                    ..
                } if prot.0 & 2 != 0 => Some(file),
                _ => None,
            };
            let flag = changed.and_then(|file| survey.written.get_mut(file.0 as usize));
            if let Some(flag) = flag {
                *flag = true;
            }
        }
        survey.service = samples.prices();
        Ok(survey)
    }
}
