//! One stream for each CPU.
//!
//! A wait that an earlier wait already implies is left out; vector clocks, one row for
//! each operation that waits, tell.

use super::{Item, Place, Resource, Schedule, Use, append};
use crate::replay::prepare::{MAX_CPUS, PrepareError};
use crate::replay::workload::{Segment, Stream, Wait};

/// Operations between two places where [`crate::replay::Workload::slices`] may
/// cut, when there are several CPUs.
const CUT_INTERVAL: u64 = 256;

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
pub(in crate::replay::prepare) struct ByCpu {
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

impl ByCpu {
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

    pub(super) fn emit(
        &mut self,
        cpu: u32,
        item: Item,
        causes: &[Place],
        uses: &[Use],
    ) -> Result<Place, PrepareError> {
        let position = append(&mut self.growing[cpu as usize].stream, item)?;
        let place = Place {
            stream: cpu,
            position,
        };
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

    pub(super) fn stream(&mut self, cpu: u32) -> &mut Stream {
        &mut self.growing[cpu as usize].stream
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
                        stream: cpu as u32,
                        position: *count - 1,
                    });
                }
                *count = 0;
            }
            ledger.changed[index] = Some(place);
        } else {
            used[place.stream as usize] = place.position + 1;
        }
    }

    /// Turns the collected needs of the operation at `place` into waits.
    fn join(&mut self, place: Place) {
        let own = place.stream as usize;
        let mut clock: Option<Vec<u32>> = None;
        let needs = std::mem::take(&mut self.needs);
        for need in needs.iter().filter(|need| need.stream != place.stream) {
            let other = need.stream as usize;
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
        let own = place.stream as usize;
        let before = self.row_at(own, place.position).to_vec();
        let first_wait = self.growing[own].stream.waits.len() as u32;
        for (other, known) in before.iter().enumerate() {
            let wanted = needs
                .iter()
                .filter(|need| need.stream as usize == other && other != own)
                .map(|need| need.position + 1)
                .max()
                .unwrap_or(0);
            // A need below the clock is implied by a wait for a third CPU.
            if wanted > *known && wanted == clock[other] {
                self.growing[own].stream.waits.push(Wait {
                    stream: other as u32,
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
