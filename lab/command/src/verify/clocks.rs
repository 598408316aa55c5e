//! What had happened before what: vector clocks over the CPUs' streams.
//!
//! A verified replay runs slice by slice with a barrier between slices, so an
//! operation comes after everything in earlier slices, after what its own CPU
//! did, and after what its waits imply.

use crate::replay::{Slice, Workload};

/// An operation: CPU and position in its stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Simulated CPU.
    pub cpu: u32,
    /// Position in the CPU's stream.
    pub position: u32,
}

impl Place {
    /// After every operation.
    pub const END: Place = Place {
        cpu: 0,
        position: u32::MAX,
    };
}

/// The clocks of every segment of a workload.
pub struct Clocks {
    /// For each CPU: positions where a row begins, and the rows.
    lanes: Vec<Lane>,
    cpus: usize,
}

#[derive(Default)]
struct Lane {
    starts: Vec<u32>,
    /// `cpus` figures for each start: operations of each CPU that come before.
    rows: Vec<u32>,
}

impl Clocks {
    /// The clocks of `workload` when it is run in `slices`.
    pub fn new(workload: &Workload, slices: &[Slice]) -> Self {
        let cpus = workload.cpus();
        let mut clocks = Self {
            lanes: (0..cpus).map(|_| Lane::default()).collect(),
            cpus,
        };
        if cpus > 1 {
            for slice in slices {
                clocks.add_slice(workload, slice);
            }
        }
        clocks
    }

    /// Adds the rows of one slice: CPUs in turn, each as far as its waits allow.
    fn add_slice(&mut self, workload: &Workload, slice: &Slice) {
        let barrier: Vec<u32> = slice.ops.iter().map(|ops| ops.start as u32).collect();
        let mut todo: Vec<_> = workload
            .streams()
            .iter()
            .zip(&slice.ops)
            .map(|(stream, ops)| stream.segments_in(ops))
            .collect();
        let mut done = barrier.clone();
        let mut latest = vec![barrier; self.cpus];
        let mut moved = true;
        while moved {
            moved = false;
            for cpu in 0..self.cpus {
                let stream = &workload.streams()[cpu];
                while !todo[cpu].is_empty() {
                    let waits = stream.waits(todo[cpu].start);
                    if waits
                        .iter()
                        .any(|wait| done[wait.stream as usize] < wait.ops)
                    {
                        break;
                    }
                    for wait in waits {
                        let theirs = self.row(wait.stream, wait.ops - 1).to_vec();
                        join(&mut latest[cpu], &theirs);
                        let other = wait.stream as usize;
                        latest[cpu][other] = latest[cpu][other].max(wait.ops);
                    }
                    let segment = stream.segments()[todo[cpu].start];
                    self.lanes[cpu].starts.push(segment.start);
                    self.lanes[cpu].rows.extend_from_slice(&latest[cpu]);
                    done[cpu] = segment.end;
                    todo[cpu].start += 1;
                    moved = true;
                }
            }
        }
    }

    fn row(&self, cpu: u32, position: u32) -> &[u32] {
        let lane = &self.lanes[cpu as usize];
        match lane.starts.partition_point(|start| *start <= position) {
            0 => &[],
            index => &lane.rows[(index - 1) * self.cpus..index * self.cpus],
        }
    }

    /// Whether `first` is certain to have happened before `second`.
    pub fn precedes(&self, first: Place, second: Place) -> bool {
        if first.cpu == second.cpu || second == Place::END {
            return first.position < second.position;
        }
        self.row(second.cpu, second.position)
            .get(first.cpu as usize)
            .is_some_and(|done| *done > first.position)
    }
}

fn join(mine: &mut [u32], theirs: &[u32]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(*theirs);
    }
}
