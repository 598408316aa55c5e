//! Puts operations on CPUs and keeps their causes.
//!
//! Operations arrive in one global order, the order of the recording. An
//! operation waits on another CPU for: the last operation of its own task, what
//! its task waited for ([`Place`]s given by the caller), the last change of each
//! [`Resource`] it uses, and, where it changes a resource, everything that used
//! it. A wait that an earlier wait already implies is left out; vector clocks,
//! one row for each operation that waits, tell.

use vellum_engine::Op;

use super::{MAX_CPUS, PrepareError};
use crate::replay::explain::Expectation;
use crate::replay::workload::{Class, Segment, Stream, Wait};

/// Operations between two places where [`crate::replay::Workload::slices`] may
/// cut, when there are several CPUs.
const CUT_INTERVAL: u64 = 256;

/// An operation: its CPU and its position there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) cpu: u32,
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

/// Last accesses to resources of one kind; one row for each resource.
#[derive(Default)]
struct Ledger {
    /// Who changed it last.
    changed: Vec<Option<Place>>,
    /// For each resource and CPU: operations of that CPU up to and including
    /// the last that used it.
    used: Vec<u32>,
}

impl Ledger {
    fn reserve(&mut self, index: usize, cpus: usize) {
        if self.changed.len() <= index {
            self.changed.resize(index + 1, None);
            self.used.resize((index + 1) * cpus, 0);
        }
    }
}

/// The streams while they grow.
struct Growing {
    stream: Stream,
    /// Operations with waits, ascending.
    joints: Vec<Joint>,
    /// Positions where a segment must end, because someone waits or cuts there.
    ends: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Joint {
    position: u32,
    first_wait: u32,
}

/// Assigns operations to streams and collects waits.
pub(super) struct Scheduler {
    growing: Vec<Growing>,
    /// For each CPU and joint a row: operations of every CPU that precede.
    clocks: Vec<Vec<u32>>,
    spaces: Ledger,
    files: Ledger,
    cuts: Vec<u32>,
    emitted: u64,
    /// Reused: what the operation at hand must wait for.
    needs: Vec<Place>,
}

/// What a finished schedule consists of: the streams, and the rows of
/// positions where slices may be cut.
pub(super) struct Schedule {
    pub(super) streams: Vec<Stream>,
    pub(super) cuts: Vec<u32>,
}

impl Scheduler {
    pub(super) fn new(cpus: usize) -> Self {
        let growing = || Growing {
            stream: Stream::default(),
            joints: Vec::new(),
            ends: Vec::new(),
        };
        Self {
            growing: (0..cpus).map(|_| growing()).collect(),
            clocks: vec![Vec::new(); cpus],
            spaces: Ledger::default(),
            files: Ledger::default(),
            cuts: Vec::new(),
            emitted: 0,
            needs: Vec::new(),
        }
    }

    /// Appends `item` to the stream of `cpu` and says where it is.
    pub(super) fn emit(
        &mut self,
        cpu: u32,
        item: Item,
        causes: &[Place],
        uses: &[Use],
    ) -> Result<Place, PrepareError> {
        let stream = &mut self.growing[cpu as usize].stream;
        let position = u32::try_from(stream.ops.len()).map_err(|_| PrepareError::TooLong)?;
        stream.ops.push(item.op);
        stream.classes.push(item.class);
        stream.expectations.push(item.expectation);
        stream.origins.push(item.origin);
        let place = Place { cpu, position };
        if self.growing.len() > 1 {
            self.needs.clear();
            self.needs.extend_from_slice(causes);
            for usage in uses {
                self.account(place, *usage);
            }
            self.join(place);
            self.emitted += 1;
            if self.emitted.is_multiple_of(CUT_INTERVAL) {
                self.cut();
            }
        }
        Ok(place)
    }

    /// Says after the fact that the operation at `place` may race with another.
    pub(super) fn mark_raced(&mut self, place: Place) {
        let stream = &mut self.growing[place.cpu as usize].stream;
        let expectation = &mut stream.expectations[place.position as usize];
        if *expectation == Expectation::AsRecorded {
            *expectation = Expectation::Raced;
        }
    }

    /// Records one use and collects what it must wait for.
    fn account(&mut self, place: Place, usage: Use) {
        let cpus = self.growing.len();
        let (ledger, index) = match usage.resource {
            Resource::Space(slot) => (&mut self.spaces, slot as usize),
            Resource::File(slot) => (&mut self.files, slot as usize),
        };
        ledger.reserve(index, cpus);
        self.needs.extend(ledger.changed[index]);
        let used = &mut ledger.used[index * cpus..(index + 1) * cpus];
        if usage.changes {
            for (cpu, count) in used.iter_mut().enumerate() {
                if *count > 0 {
                    self.needs.push(Place {
                        cpu: cpu as u32,
                        position: *count - 1,
                    });
                }
                *count = 0;
            }
            ledger.changed[index] = Some(place);
        } else {
            used[place.cpu as usize] = place.position + 1;
        }
    }

    /// Turns the collected needs of the operation at `place` into waits.
    fn join(&mut self, place: Place) {
        let own = place.cpu as usize;
        let mut clock: Option<Vec<u32>> = None;
        let needs = std::mem::take(&mut self.needs);
        for need in needs.iter().filter(|need| need.cpu != place.cpu) {
            let other = need.cpu as usize;
            let ops = need.position + 1;
            let known = match &clock {
                Some(clock) => clock[other],
                None => self.row_at(own, place.position)[other],
            };
            if known >= ops {
                continue;
            }
            let clock = clock.get_or_insert_with(|| self.row_at(own, place.position).to_vec());
            for (mine, theirs) in clock.iter_mut().zip(self.row_at(other, need.position)) {
                *mine = (*mine).max(*theirs);
            }
            clock[other] = clock[other].max(ops);
        }
        if let Some(clock) = clock {
            self.add_joint(place, &needs, &clock);
            self.clocks[own].extend_from_slice(&clock);
        }
        self.needs = needs;
    }

    /// Waits for the latest of `needs` on each other CPU, unless known before.
    fn add_joint(&mut self, place: Place, needs: &[Place], clock: &[u32]) {
        let own = place.cpu as usize;
        let before = self.row_at(own, place.position).to_vec();
        let first_wait = self.growing[own].stream.waits.len() as u32;
        for (other, known) in before.iter().enumerate() {
            let wanted = needs
                .iter()
                .filter(|need| need.cpu as usize == other && other != own)
                .map(|need| need.position + 1)
                .max()
                .unwrap_or(0);
            // A need below the clock is implied by a wait for a third CPU.
            if wanted > *known && wanted == clock[other] {
                self.growing[own].stream.waits.push(Wait {
                    cpu: other as u32,
                    ops: wanted,
                });
                self.growing[other].ends.push(wanted);
            }
        }
        self.growing[own].joints.push(Joint {
            position: place.position,
            first_wait,
        });
    }

    /// The vector clock of `cpu` at `position`, without its own entry.
    fn row_at(&self, cpu: usize, position: u32) -> &[u32] {
        static ZEROES: [u32; MAX_CPUS] = [0; MAX_CPUS];
        let cpus = self.growing.len();
        let joints = &self.growing[cpu].joints;
        match joints.partition_point(|joint| joint.position <= position) {
            0 => &ZEROES[..cpus],
            row => &self.clocks[cpu][(row - 1) * cpus..row * cpus],
        }
    }

    fn cut(&mut self) {
        for growing in &mut self.growing {
            let position = growing.stream.ops.len() as u32;
            growing.ends.push(position);
            self.cuts.push(position);
        }
    }

    /// Cuts the streams into segments.
    pub(super) fn finish(self) -> Schedule {
        let streams = self.growing.into_iter().map(Growing::finish).collect();
        Schedule {
            streams,
            cuts: self.cuts,
        }
    }
}

impl Growing {
    fn finish(self) -> Stream {
        let mut stream = self.stream;
        let len = stream.ops.len() as u32;
        let mut starts: Vec<u32> = self.ends;
        starts.extend(self.joints.iter().map(|joint| joint.position));
        starts.push(0);
        starts.sort_unstable();
        starts.dedup();
        starts.retain(|start| *start < len);
        let mut joints = self.joints.iter().peekable();
        let waits = stream.waits.len() as u32;
        for (index, start) in starts.iter().enumerate() {
            while joints.next_if(|joint| joint.position < *start).is_some() {}
            let first_wait = joints.peek().map_or(waits, |joint| joint.first_wait);
            stream.segments.push(Segment {
                start: *start,
                end: starts.get(index + 1).copied().unwrap_or(len),
                first_wait,
            });
        }
        stream
    }
}
