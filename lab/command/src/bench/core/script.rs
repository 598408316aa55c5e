//! A workload written by a program: operations in phases, each phase timed by
//! itself.
//!
//! A [`Script`] is a sequence of *pieces*. A piece lies in one phase, runs as a
//! whole, and ends with a barrier for all CPUs. Slices are made of whole pieces
//! of one phase. Phases are timed in one of two ways:
//!
//! * by *slices*: thread CPU time around whole slices of about a millisecond, as
//!   traces are. For phases that are long or that can be gathered into long ones;
//! * by *laps*: the workload notes the time within its pieces ([`Op::Lap`]). For
//!   phases of microseconds that alternate with others, as in a program that
//!   forks, touches, exits, and does it again. A note costs some 25 ns; its cost,
//!   measured in the same pass, is taken off.

use std::ops::Range;

use vellum_engine::{Call, Op, SpaceSlot};
use vellum_terminal::table::grouped;

use super::used::Used;
use crate::compare::Load;
use crate::replay::{Class, Expectation, Slice, Wait};

/// Laps from which the cost of a note is taken.
const NOTES: usize = 256;

/// Phase of what is not timed.
pub const SETUP: Phase = Phase(0);

/// Phase of the laps in which nothing happens.
pub const NOTE: u16 = 1;

/// Number of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase(pub u16);

/// How a phase is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Thread CPU time of its slices.
    Slices,
    /// Laps that the workload notes.
    Laps,
}

/// What is told about a phase.
#[derive(Clone, Debug)]
pub struct PhaseInfo {
    /// Its name.
    pub name: String,
    /// What one unit of it is.
    pub per: &'static str,
    /// Units of it in the whole script.
    pub units: u64,
    /// How it is timed.
    pub timing: Timing,
}

/// Operations of one CPU.
#[derive(Debug, Default)]
struct Lane {
    ops: Vec<Op>,
    classes: Vec<Class>,
    segments: Vec<Part>,
    waits: Vec<Wait>,
}

/// Operations of one CPU between two handovers.
#[derive(Debug)]
struct Part {
    ops: Range<u32>,
    waits: Range<u32>,
}

/// The end of a piece.
#[derive(Debug)]
struct Cut {
    /// Operations that each CPU has done by then.
    ends: Vec<u32>,
    phase: u16,
}

/// A workload in phases.
#[derive(Debug)]
pub struct Script {
    lanes: Vec<Lane>,
    cuts: Vec<Cut>,
    phases: Vec<PhaseInfo>,
    tolerant: bool,
    apart: bool,
}

/// Writes a [`Script`].
#[derive(Debug)]
pub struct Writer {
    script: Script,
    cpu: usize,
}

impl Writer {
    /// A script for `cpus` CPUs; what follows is done by CPU 0.
    pub fn new(cpus: usize) -> Self {
        let cpus = cpus.max(1);
        let info = |name: &str| PhaseInfo {
            name: name.to_owned(),
            per: "",
            units: 0,
            timing: Timing::Slices,
        };
        let mut writer = Self {
            script: Script {
                lanes: (0..cpus).map(|_| Lane::default()).collect(),
                cuts: Vec::new(),
                phases: vec![info("set-up"), info("note of the time")],
                tolerant: false,
                apart: false,
            },
            cpu: 0,
        };
        (0..=NOTES).for_each(|_| writer.op(Op::Lap { phase: NOTE }));
        writer.cut(SETUP);
        writer
    }

    /// A phase of which one unit is one `per`.
    pub fn phase(&mut self, name: impl Into<String>, per: &'static str, timing: Timing) -> Phase {
        self.script.phases.push(PhaseInfo {
            name: name.into(),
            per,
            units: 0,
            timing,
        });
        Phase((self.script.phases.len() - 1) as u16)
    }

    /// Accesses may find their page mapped already: an earlier fault may have
    /// mapped it with its neighbours.
    pub fn tolerate_mapped(&mut self) {
        self.script.tolerant = true;
    }

    /// The phases are not parts of a whole: their sum means nothing.
    pub fn phases_apart(&mut self) {
        self.script.apart = true;
    }

    /// What follows is done by `cpu`, at the same time as what other CPUs do in this
    /// piece, and in others of its phase.
    pub fn beside(&mut self, cpu: usize) {
        self.end_part();
        self.cpu = cpu;
    }

    /// What follows is done by `cpu`, after what came before.
    pub fn on(&mut self, cpu: usize) {
        if cpu != self.cpu {
            let done = self.script.lanes[self.cpu].ops.len() as u32;
            self.end_part();
            let wait = Wait {
                stream: self.cpu as u32,
                ops: done,
            };
            self.script.lanes[cpu].waits.push(wait);
            self.cpu = cpu;
        }
    }

    /// One operation.
    pub fn op(&mut self, op: Op) {
        let lane = &mut self.script.lanes[self.cpu];
        lane.ops.push(op);
        lane.classes.push(class_of(&op));
    }

    /// Starts a lap: what was before is not part of it.
    pub fn lap(&mut self) {
        self.op(Op::Lap { phase: SETUP.0 });
    }

    /// Ends a lap of `phase` that did `units` of it, and starts the next.
    pub fn lapped(&mut self, phase: Phase, units: u64) {
        self.op(Op::Lap { phase: phase.0 });
        self.script.phases[phase.0 as usize].units += units;
    }

    /// Ends a piece of `phase` that does `units` of it.
    pub fn piece(&mut self, phase: Phase, units: u64) {
        self.script.phases[phase.0 as usize].units += units;
        self.cut(phase);
    }

    /// Ends a piece that is not timed, or only in laps.
    pub fn cut(&mut self, phase: Phase) {
        // Pieces that are joined into a slice have no barrier between them.
        self.on(0);
        self.end_part();
        let ends: Vec<u32> = self
            .script
            .lanes
            .iter()
            .map(|l| l.ops.len() as u32)
            .collect();
        if self.script.cuts.last().is_none_or(|cut| cut.ends != ends) {
            let phase = phase.0;
            self.script.cuts.push(Cut { ends, phase });
        }
    }

    fn end_part(&mut self) {
        let lane = &mut self.script.lanes[self.cpu];
        let (op, wait) = match lane.segments.last() {
            Some(part) => (part.ops.end, part.waits.end),
            None => (0, 0),
        };
        let end = lane.ops.len() as u32;
        if end > op {
            let waits = wait..lane.waits.len() as u32;
            lane.segments.push(Part {
                ops: op..end,
                waits,
            });
        }
    }

    /// The script.
    pub fn finish(mut self) -> Script {
        self.cut(SETUP);
        self.script
    }
}

impl Script {
    /// Where operation `index` of `cpu` is, in words.
    pub fn place(&self, cpu: usize, index: usize) -> String {
        let class = self.lanes[cpu].classes[index].name();
        let after = |cut: &&Cut| cut.ends[cpu] as usize > index;
        let phase = self.cuts.iter().find(after).map_or(0, |cut| cut.phase);
        format!(
            "operation {} ({class}) of CPU {cpu}, in the phase `{}`",
            grouped(index as u64),
            self.phases[phase as usize].name,
        )
    }

    /// About how much memory it needs on pages of 4 KiB, in bytes: what is written
    /// and what fork copies, and a quarter more.
    pub fn ram_bytes(&self) -> u64 {
        let mut used = Used::default();
        let ops = self.lanes.iter().flat_map(|lane| &lane.ops);
        ops.for_each(|op| used.take(op));
        (used.peak() * 4096 / 4 * 5 + (64 << 20)).next_multiple_of(64 << 20)
    }

    /// Whether the phases together are the whole workload.
    pub fn phases_make_a_whole(&self) -> bool {
        !self.apart
    }

    /// The phases, by number.
    pub fn phases(&self) -> &[PhaseInfo] {
        &self.phases
    }
}

/// The class of an operation that is part of nothing larger.
pub fn class_of(op: &Op) -> Class {
    match op {
        Op::Create { .. } | Op::Fork { .. } => Class::Fork,
        Op::Share { .. } => Class::Share,
        Op::Exec { .. } => Class::Exec,
        Op::Exit { .. } => Class::Exit,
        Op::Map { .. } => Class::Map,
        Op::Unmap { .. } => Class::Unmap,
        Op::Protect { .. } => Class::Protect,
        Op::Remap { .. } => Class::Remap,
        Op::Brk { .. } => Class::Brk,
        Op::Advise { .. } => Class::Advise,
        Op::Touch { .. } | Op::Call(Call::Access { .. }) => Class::Fault,
        Op::Idle { .. } => Class::Idle,
        _ => Class::File,
    }
}

impl Load for Script {
    fn cpus(&self) -> usize {
        self.lanes.len()
    }

    fn ops(&self, cpu: usize) -> &[Op] {
        &self.lanes[cpu].ops
    }

    fn classes(&self, cpu: usize) -> &[Class] {
        &self.lanes[cpu].classes
    }

    fn expectation(&self, _cpu: usize, _index: usize) -> Expectation {
        match self.tolerant {
            true => Expectation::FaultAround,
            false => Expectation::AsRecorded,
        }
    }

    fn slices(&self, target: usize) -> Vec<Slice> {
        let mut slices = Vec::new();
        let mut from = vec![0u32; self.lanes.len()];
        for (index, cut) in self.cuts.iter().enumerate() {
            let slice = Slice {
                ops: from
                    .iter()
                    .zip(&cut.ends)
                    .map(|(from, to)| *from as usize..*to as usize)
                    .collect(),
            };
            let next = self.cuts.get(index + 1);
            if slice.len() >= target || next.is_none_or(|next| next.phase != cut.phase) {
                slices.push(slice);
                from.clone_from(&cut.ends);
            }
        }
        slices
    }

    fn phase(&self, slice: &Slice) -> u16 {
        let ends_at = |cut: &Cut| {
            let ends = cut.ends.iter().zip(&slice.ops);
            ends.map(|(end, ops)| (*end as usize).cmp(&ops.end))
                .find(|order| order.is_ne())
                .unwrap_or(std::cmp::Ordering::Equal)
        };
        match self.cuts.binary_search_by(ends_at) {
            Ok(index) => self.cuts[index].phase,
            Err(_) => SETUP.0,
        }
    }

    fn segments_in(&self, cpu: usize, ops: &Range<usize>) -> Range<usize> {
        let segments = &self.lanes[cpu].segments;
        let at = |op: usize| segments.partition_point(|part| (part.ops.start as usize) < op);
        at(ops.start)..at(ops.end)
    }

    fn segment(&self, cpu: usize, index: usize) -> (Range<usize>, &[Wait]) {
        let lane = &self.lanes[cpu];
        let Part { ops, waits } = &lane.segments[index];
        (
            ops.start as usize..ops.end as usize,
            &lane.waits[waits.start as usize..waits.end as usize],
        )
    }
}

/// Slots of spaces, given out in order.
#[derive(Debug, Default)]
pub struct Slots(u32);

impl Slots {
    /// A slot that no space has had.
    pub fn fresh(&mut self) -> SpaceSlot {
        self.0 += 1;
        SpaceSlot(self.0 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(page: u64) -> Op {
        Op::Touch {
            space: SpaceSlot(0),
            page,
            access: vellum_engine::Access::Read,
        }
    }

    #[test]
    fn slices_hold_whole_pieces_of_one_phase() {
        let mut writer = Writer::new(1);
        let (one, two) = (
            writer.phase("one", "page", Timing::Slices),
            writer.phase("two", "page", Timing::Slices),
        );
        for phase in [one, one, two, one] {
            (0..10).for_each(|page| writer.op(touch(page)));
            writer.piece(phase, 10);
        }
        let script = writer.finish();
        let notes = NOTES + 1;
        let slices = script.slices(15);
        let found: Vec<_> = slices
            .iter()
            .map(|slice| (slice.ops[0].clone(), script.phase(slice)))
            .collect();
        assert_eq!(
            found,
            [
                (0..notes, SETUP.0),
                (notes..notes + 20, one.0),
                (notes + 20..notes + 30, two.0),
                (notes + 30..notes + 40, one.0)
            ]
        );
        assert_eq!(script.phases()[one.0 as usize].units, 30);
        assert_eq!(script.slices(1).len(), 5);
    }

    #[test]
    fn a_cpu_waits_for_the_one_that_hands_over() {
        let mut writer = Writer::new(2);
        let phase = writer.phase("p", "page", Timing::Slices);
        writer.op(touch(1));
        writer.on(1);
        writer.op(touch(2));
        writer.on(0);
        writer.op(touch(3));
        writer.piece(phase, 3);
        let script = writer.finish();
        let notes = NOTES as u32 + 1;
        let slices = script.slices(1);
        assert_eq!(slices.len(), 2);
        let second = &slices[1];
        let (mine, other) = (&second.ops[0], &second.ops[1]);
        assert_eq!((mine.len(), other.len()), (2, 1));
        let segments = script.segments_in(0, mine);
        assert_eq!(segments.len(), 2);
        let (_, waits) = script.segment(0, segments.start);
        assert!(waits.is_empty());
        let (_, waits) = script.segment(0, segments.start + 1);
        assert_eq!(waits, [Wait { stream: 1, ops: 1 }]);
        let segments = script.segments_in(1, other);
        let (ops, waits) = script.segment(1, segments.start);
        assert_eq!(ops, 0..1);
        assert_eq!(
            waits,
            [Wait {
                stream: 0,
                ops: notes + 1
            }]
        );
    }
}
