//! Puts operations into streams and keeps their causes.
//!
//! Operations arrive in one global order, the order of the recording. An
//! operation waits for operations of other streams: the last operation of its own
//! task, what its task waited for ([`Place`]s given by the caller), the last change
//! of each [`Resource`] it uses, and, where it changes a resource, everything that
//! used it. Waits therefore point backwards in the global order. [`by_cpu`] makes
//! one stream for each CPU, [`by_task`] one for each task.

mod by_cpu;
mod by_task;

use vellum_engine::Op;

use super::PrepareError;
use crate::replay::explain::Expectation;
use crate::replay::workload::{Class, Stream};
use by_cpu::ByCpu;
use by_task::ByTask;

/// An operation: its stream and its position there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) stream: u32,
    pub(super) position: u32,
}

/// Something that operations use together or change alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resource {
    /// A space slot.
    Space(u32),
    /// A file slot.
    File(u32),
}

/// What an operation does to a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Use {
    pub(super) resource: Resource,
    pub(super) changes: bool,
}

/// An operation with what a [`Stream`] says about it.
pub(super) struct Item {
    pub(super) op: Op,
    pub(super) class: Class,
    pub(super) expectation: Expectation,
    pub(super) origin: u32,
}

/// What a finished schedule consists of: the streams, and the rows of
/// positions where slices may be cut.
pub(super) struct Schedule {
    pub(super) streams: Vec<Stream>,
    pub(super) cuts: Vec<u32>,
}

/// Assigns operations to streams and collects waits.
pub(super) enum Scheduler {
    /// One stream for each CPU.
    ByCpu(ByCpu),
    /// One stream for each task.
    ByTask(ByTask),
}

impl Scheduler {
    /// Streams for so many CPUs.
    pub(super) fn by_cpu(cpus: usize) -> Self {
        Self::ByCpu(ByCpu::new(cpus))
    }

    /// Streams for so many tasks.
    pub(super) fn by_task(tasks: usize) -> Self {
        Self::ByTask(ByTask::new(tasks))
    }

    /// Appends `item` to `stream` and says where it is. It comes after `causes`.
    pub(super) fn emit(
        &mut self,
        stream: u32,
        item: Item,
        causes: &[Place],
        uses: &[Use],
    ) -> Result<Place, PrepareError> {
        match self {
            Self::ByCpu(schedule) => schedule.emit(stream, item, causes, uses),
            Self::ByTask(schedule) => schedule.emit(stream, item, causes, uses),
        }
    }

    /// The task computed for so long since what its stream holds. Streams by CPU do
    /// not say.
    pub(super) fn compute(&mut self, stream: u32, ns: u64) {
        if let Self::ByTask(schedule) = self {
            schedule.compute(stream, ns);
        }
    }

    /// The task is about to wait for another: what it computed so far comes before,
    /// and after `causes`. Says whether it did compute, so that `causes` are dealt with.
    pub(super) fn pause(&mut self, stream: u32, causes: &[Place]) -> bool {
        match self {
            Self::ByCpu(_) => false,
            Self::ByTask(schedule) => schedule.pause(stream, causes),
        }
    }

    /// Says after the fact that the operation at `place` may race with another.
    pub(super) fn mark_raced(&mut self, place: Place) {
        let stream = match self {
            Self::ByCpu(schedule) => schedule.stream(place.stream),
            Self::ByTask(schedule) => schedule.stream(place.stream),
        };
        let expectation = &mut stream.expectations[place.position as usize];
        if *expectation == Expectation::AsRecorded {
            *expectation = Expectation::Raced;
        }
    }

    /// Cuts the streams into segments.
    pub(super) fn finish(self) -> Schedule {
        match self {
            Self::ByCpu(schedule) => schedule.finish(),
            Self::ByTask(schedule) => schedule.finish(),
        }
    }
}

/// Appends `item` to `stream` and says at which position.
fn append(stream: &mut Stream, item: Item) -> Result<u32, PrepareError> {
    let position = u32::try_from(stream.ops.len()).map_err(|_| PrepareError::TooLong)?;
    stream.ops.push(item.op);
    stream.classes.push(item.class);
    stream.expectations.push(item.expectation);
    stream.origins.push(item.origin);
    Ok(position)
}
