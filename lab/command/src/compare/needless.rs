//! Faults that a design does not meet, found before anything is timed.
//!
//! A recorded fault is one because the recorded kernel had not mapped the page. Where the
//! design at hand has, with a larger page or with more pages around a fault, no program would
//! meet the fault, and it is left out. [`mark`] executes the workload once on an engine of the
//! design and keeps as [`Needed`] what did not find its page mapped. Timed passes execute
//! slices of that, and look nothing up but where a slice begins and ends.
//!
//! Several CPUs execute one after the other while faults are marked, in an order that the
//! workload's waits allow. Tasks that race for a page may find it in another order later: then
//! the one that comes first meets the fault at its own place in the trace.

use std::ops::Range;

use vellum_engine::{Call, Engine, Op, Outcome};

use super::crew::Tally;
use super::workload::Load;
use crate::replay::{Class, Slice};

/// Operations that are executed between two looks at what happens outside.
const BATCH_OPS: usize = 1 << 12;

/// The counter of faults, among those of an engine.
const FAULTS: &str = "faults";

/// How often programs enter the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Entered {
    /// By a fault.
    pub traps: u64,
    /// By a system call.
    pub calls: u64,
}

/// What of a workload a design executes.
#[derive(Debug, Default)]
pub struct Needed {
    /// By CPU; none if nothing is left out.
    lanes: Vec<Lane>,
    /// Faults that are left out, by whether the recording explains them.
    left_out: Tally,
}

#[derive(Debug)]
struct Lane {
    /// The operations that are left.
    ops: Vec<Op>,
    needless: Marks,
    /// Operations with accesses that fault under this design, and how often.
    access_faults: Vec<(u32, u32)>,
}

impl Needed {
    /// Operations `ops` of `cpu` without those that are left out.
    pub(super) fn ops<'n>(&'n self, load: &'n dyn Load, cpu: usize, ops: Range<usize>) -> &'n [Op] {
        match self.lanes.get(cpu) {
            Some(lane) => &lane.ops[lane.left(ops.start)..lane.left(ops.end)],
            None => &load.ops(cpu)[ops],
        }
    }

    /// The place in the workload of the operation that has `index` in what is left of
    /// operations from `start` on.
    pub(super) fn place(&self, cpu: usize, start: usize, index: usize) -> usize {
        match self.lanes.get(cpu) {
            Some(lane) => lane.needless.nth_unset(lane.left(start) + index),
            None => start + index,
        }
    }

    /// The recorded faults that are left out: those that the recording explains, and others.
    pub fn left_out(&self) -> &Tally {
        &self.left_out
    }

    /// How often programs enter the kernel in `slice`.
    pub(super) fn entered(&self, load: &dyn Load, slice: &Slice) -> Entered {
        let mut entered = Entered::default();
        for (cpu, ops) in slice.ops.iter().enumerate() {
            let lane = self.lanes.get(cpu);
            let (all, classes) = (load.ops(cpu), load.classes(cpu));
            for index in ops.clone() {
                match all[index] {
                    Op::Touch { .. } => {
                        let is_left_out = lane.is_some_and(|lane| lane.needless.has(index));
                        entered.traps += u64::from(!is_left_out);
                    }
                    op => entered.calls += u64::from(is_call(&op, classes[index])),
                }
            }
            let faults = lane.map_or(&[][..], |lane| &lane.access_faults);
            let in_slice = |at: &&(u32, u32)| ops.contains(&(at.0 as usize));
            let faults = faults.iter().filter(in_slice);
            entered.traps += faults.map(|at| u64::from(at.1)).sum::<u64>();
        }
        entered
    }
}

impl Lane {
    /// How many of the first `end` operations are left.
    fn left(&self, end: usize) -> usize {
        end - self.needless.before(end)
    }
}

/// Whether a program made a system call for `op`. What makes files known, what a new program is
/// mapped with, and what the kernel does by itself belongs to others or to nobody.
fn is_call(op: &Op, class: Class) -> bool {
    match op {
        Op::Exec { .. } => true,
        Op::Touch { .. }
        | Op::Create { .. }
        | Op::FileOpen { .. }
        | Op::TmpfsOpen { .. }
        | Op::ScanSpace { .. }
        | Op::ScanFile { .. }
        | Op::EmptyCaches
        | Op::Idle { .. }
        | Op::Call(_)
        | Op::Lap { .. } => false,
        _ => class != Class::Exec,
    }
}

/// A set of operations, by their index.
#[derive(Debug)]
struct Marks {
    words: Vec<u64>,
    /// Marks before each word; filled when all are set.
    before: Vec<u32>,
}

impl Marks {
    fn new(count: usize) -> Marks {
        Marks {
            words: vec![0; count / 64 + 1],
            before: Vec::new(),
        }
    }

    fn set(&mut self, index: usize) {
        self.words[index / 64] |= 1 << (index % 64);
    }

    fn has(&self, index: usize) -> bool {
        self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// All marks are set.
    fn count(&mut self) {
        let mut sum = 0;
        let before = self.words.iter().map(|word| {
            let before = sum;
            sum += word.count_ones();
            before
        });
        self.before = before.collect();
    }

    /// Marks of indices below `end`.
    fn before(&self, end: usize) -> usize {
        let below = self.words[end / 64] & !(u64::MAX << (end % 64));
        (self.before[end / 64] + below.count_ones()) as usize
    }

    /// The index of the `n`th operation, from 0, that has no mark.
    fn nth_unset(&self, n: usize) -> usize {
        let unset_before = |word: usize| word * 64 - self.before[word] as usize;
        // The last word before which there are no more than `n`.
        let (mut low, mut high) = (0, self.words.len());
        while high - low > 1 {
            let middle = low.midpoint(high);
            match unset_before(middle) <= n {
                true => low = middle,
                false => high = middle,
            }
        }
        let mut unset = !self.words[low];
        for _ in unset_before(low)..n {
            unset &= unset - 1;
        }
        low * 64 + unset.trailing_zeros() as usize
    }
}

/// What marking found.
pub(super) struct Marked {
    /// What the design executes.
    pub(super) needed: Needed,
    /// Everything that went otherwise than recorded.
    pub(super) tally: Tally,
}

/// Executes `load` once on `engine`, a fresh one, and marks what was not needed. `goes_on` is
/// told how many operations were executed; `None` if it says no.
pub(super) fn mark(
    load: &dyn Load,
    engine: &dyn Engine,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Option<Marked> {
    let mut marking = Marking {
        load,
        engine,
        lanes: (0..load.cpus())
            .map(|cpu| Marking::lane(load, cpu))
            .collect(),
        done: vec![0; load.cpus()],
        outcome: Outcome::default(),
        tally: Tally::default(),
        left_out: Tally::default(),
        is_beginning: false,
    };
    for slice in load.slices(BATCH_OPS) {
        marking.is_beginning = load.is_beginning(&slice);
        marking.slice(&slice);
        if !goes_on(slice.len() as u64) {
            return None;
        }
        if marking.tally.starved.is_some() {
            break;
        }
    }
    Some(marking.finish())
}

struct Marking<'m> {
    load: &'m dyn Load,
    engine: &'m dyn Engine,
    lanes: Vec<Lane>,
    /// Operations executed, by CPU.
    done: Vec<u32>,
    outcome: Outcome,
    tally: Tally,
    /// Without those of the beginning of the recording, which is not counted.
    left_out: Tally,
    is_beginning: bool,
}

impl Marking<'_> {
    fn lane(load: &dyn Load, cpu: usize) -> Lane {
        Lane {
            ops: Vec::new(),
            needless: Marks::new(load.ops(cpu).len()),
            access_faults: Vec::new(),
        }
    }

    fn slice(&mut self, slice: &Slice) {
        if let [ops] = &slice.ops[..] {
            return self.run(0, ops.clone());
        }
        let segments = |(cpu, ops)| self.load.segments_in(cpu, ops);
        let mut open: Vec<Range<usize>> = slice.ops.iter().enumerate().map(segments).collect();
        // Waits point backwards in one order, so one CPU can always go on.
        let mut goes_on = true;
        while std::mem::take(&mut goes_on) {
            for (cpu, segments) in open.iter_mut().enumerate() {
                while let Some(segment) = self.ready(cpu, segments) {
                    segments.start += 1;
                    goes_on = true;
                    self.done[cpu] = segment.end as u32;
                    self.run(cpu, segment);
                }
            }
        }
    }

    /// The operations of the first of `segments`, if what they wait for has been done.
    fn ready(&self, cpu: usize, segments: &Range<usize>) -> Option<Range<usize>> {
        let index = segments.clone().next()?;
        let (ops, waits) = self.load.segment(cpu, index);
        let is_done = waits
            .iter()
            .all(|wait| self.done[wait.stream as usize] >= wait.ops);
        is_done.then_some(ops)
    }

    fn run(&mut self, cpu: usize, ops: Range<usize>) {
        let load = self.load;
        let mut start = ops.start;
        // The faults of each operation with accesses are counted by themselves.
        for batch in load.ops(cpu)[ops].chunk_by(|one, other| !accesses(one) && !accesses(other)) {
            let before = accesses(&batch[0]).then(|| self.faults());
            self.engine.run(cpu, batch, &mut self.outcome);
            if let Some(before) = before {
                let faults = self.faults() - before;
                let list = &mut self.lanes[cpu].access_faults;
                list.extend((faults > 0).then_some((start as u32, faults as u32)));
            }
            self.settle(cpu, start);
            start += batch.len();
        }
    }

    fn faults(&self) -> u64 {
        let counters = self.engine.counters().into_iter();
        let mut faults = counters.filter(|counter| counter.0 == FAULTS);
        faults.next().map_or(0, |counter| counter.1)
    }

    fn settle(&mut self, cpu: usize, start: usize) {
        self.outcome.laps.clear();
        for (index, what) in self.outcome.divergences.drain(..) {
            let index = start + index as usize;
            let why = self.load.expectation(cpu, index);
            self.tally.count(cpu, index, what, why);
            if what.is_needless() {
                if !self.is_beginning {
                    self.left_out.count(cpu, index, what, why);
                }
                self.lanes[cpu].needless.set(index);
            }
        }
    }

    fn finish(mut self) -> Marked {
        for (cpu, lane) in self.lanes.iter_mut().enumerate() {
            lane.needless.count();
            let ops = self.load.ops(cpu).iter().enumerate();
            let left = ops.filter(|(index, _)| !lane.needless.has(*index));
            lane.ops = left.map(|(_, op)| *op).collect();
        }
        Marked {
            needed: Needed {
                lanes: self.lanes,
                left_out: self.left_out,
            },
            tally: self.tally,
        }
    }
}

fn accesses(op: &Op) -> bool {
    matches!(op, Op::Call(Call::Access { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(count: usize, set: impl Fn(usize) -> bool) -> Marks {
        let mut marks = Marks::new(count);
        (0..count)
            .filter(|index| set(*index))
            .for_each(|index| marks.set(index));
        marks.count();
        marks
    }

    #[test]
    fn what_is_left_is_found_from_both_sides() {
        let rules: [fn(usize) -> bool; 4] = [
            |_| false,
            |index| index % 3 == 0,
            |index| (60..300).contains(&index),
            |index| index < 64 || index % 7 == 1,
        ];
        for (number, rule) in rules.into_iter().enumerate() {
            let marks = marks(500, rule);
            let mut left = 0;
            for index in 0..500 {
                assert_eq!(index - marks.before(index), left, "rule {number}, {index}");
                assert_eq!(marks.has(index), rule(index));
                if !rule(index) {
                    assert_eq!(marks.nth_unset(left), index, "rule {number}");
                    left += 1;
                }
            }
            assert_eq!(500 - marks.before(500), left, "rule {number}");
        }
    }
}
