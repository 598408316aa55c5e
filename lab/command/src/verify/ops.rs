//! Verified operations other than accesses: what is read back before and after.

use std::ops::Range;

use vellum_engine::{Access, Advice, Call, Divergence, FileSlot, Op, OpError, Outcome, SpaceSlot};

use super::check::{Checked, Occasion, Verifier, count};
use super::clocks::Place;
use super::refute::{Location, Symptom, describe};
use crate::replay::lanes::Work;

impl Work for Verifier<'_> {
    type Lane = usize;

    fn lane(&self, cpu: usize) -> usize {
        cpu
    }

    fn stretch(&self, cpu: &mut usize, _segment: usize, ops: Range<usize>) {
        for position in ops {
            if self.has_failed() {
                return;
            }
            let at = Place {
                cpu: *cpu as u32,
                position: position as u32,
            };
            let op = self.workload.streams()[*cpu].ops()[position];
            if let Err(refutation) = self.op(at, &op) {
                self.record(refutation);
            }
            count(&self.counts.ops);
        }
    }
}

impl Verifier<'_> {
    fn op(&self, at: Place, op: &Op) -> Checked {
        match *op {
            Op::Touch {
                space,
                page,
                access,
            } => self.touch(at, space, page, access),
            Op::Call(Call::Access {
                space,
                page,
                pages,
                access,
            }) => (page..page + pages).try_for_each(|page| self.touch(at, space, page, access)),
            Op::Fork { parent, child } => {
                self.run(at, op)?;
                self.read_back(at, parent)?;
                self.read_back(at, child)
            }
            Op::Exec { old, new } => {
                self.read_back_last(at, old)?;
                self.run(at, op)?;
                self.read_back(at, new)
            }
            Op::Exit { space } => {
                self.read_back_last(at, space)?;
                self.run(at, op)
            }
            Op::Map {
                space, page, pages, ..
            }
            | Op::Unmap { space, page, pages }
            | Op::Advise {
                space,
                page,
                pages,
                advice: Advice::DontNeed,
            } => self.dropping(at, op, space, page..page + pages),
            Op::Brk { space, start, end } => {
                let before = self.model().space(space).map_or(end, |s| s.heap_end(start));
                self.dropping(at, op, space, end..before.max(end))
            }
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => self.remap(
                at,
                op,
                space,
                page..page + pages,
                new_page..new_page + new_pages,
            ),
            Op::Protect {
                space, page, pages, ..
            } => {
                let touched = self.read_back_range(at, space, &(page..page + pages))?;
                self.run(at, op)?;
                self.probe_rights(at, space, &touched)
            }
            Op::Truncate { file, pages } => self.truncate(at, op, file, pages),
            Op::FileRead { file, page, pages } | Op::FileWrite { file, page, pages } => {
                self.run(at, op)?;
                self.probe_file(at, file, page..page + pages)
            }
            Op::Create { .. }
            | Op::Share { .. }
            | Op::Advise { .. }
            | Op::FileOpen { .. }
            | Op::TmpfsOpen { .. }
            | Op::ScanSpace { .. }
            | Op::ScanFile { .. }
            | Op::EmptyCaches
            | Op::Idle { .. }
            | Op::Call(_)
            | Op::Lap { .. } => self.run(at, op),
        }
    }

    /// Lets the model and then the engine execute `op`, which must succeed.
    pub(super) fn run(&self, at: Place, op: &Op) -> Checked {
        self.model().apply(op, at, &self.clocks);
        self.execute(at, op)
    }

    /// Lets the engine execute `op`, which must succeed.
    pub(super) fn execute(&self, at: Place, op: &Op) -> Checked {
        let mut outcome = Outcome::default();
        let ops = std::slice::from_ref(op);
        self.engine.run(at.cpu as usize, ops, &mut outcome);
        match outcome.divergences.first() {
            Some((_, Divergence::Failed(error))) => {
                let location = location_of(op, self.workload.pages().shift);
                let expected = format!("success of {op:?}");
                Err(self.wrongly_refused(*error, location, &expected, at))
            }
            Some((
                _,
                Divergence::AlreadyMapped | Divergence::MappedLarge | Divergence::MappedFolio,
            ))
            | None => Ok(()),
        }
    }

    /// Reads back every page of `space` that is resident or was written.
    pub(super) fn read_back(&self, at: Place, space: SpaceSlot) -> Checked {
        let mut resident = Vec::new();
        self.engine.resident(space, &mut |page| resident.push(page));
        for page in &resident {
            self.check_page(at, space, *page, Occasion::Resident)?;
        }
        let written: Vec<u64> = match self.model().space(space) {
            Some(space) => space.private.keys().copied().collect(),
            None => Vec::new(),
        };
        for page in written {
            if resident.binary_search(&page).is_ok() {
                continue;
            }
            let to = self.word_at(page, 0);
            if let Some(found) = self.engine.peek(at.cpu as usize, space, to) {
                let location = Location::Space(space, to);
                let found = describe(found, self.workload);
                let expected = "no translation: the tables do not map the page";
                let symptom = Symptom::StaleTranslation;
                return Err(self.refute(symptom, location, expected, found, at));
            }
            self.check_page(at, space, page, Occasion::Touched)?;
        }
        Ok(())
    }

    /// Reads back a space that its last task is about to leave.
    fn read_back_last(&self, at: Place, space: SpaceSlot) -> Checked {
        let last = self.model().space(space).is_some_and(|s| s.users == 1);
        match last {
            true => self.read_back(at, space),
            false => Ok(()),
        }
    }

    /// Reads back the touched pages of a range and returns them.
    fn read_back_range(
        &self,
        at: Place,
        space: SpaceSlot,
        range: &Range<u64>,
    ) -> Result<Vec<u64>, Box<super::Refutation>> {
        let touched = match self.model().space(space) {
            Some(space) => space.touched_in(range.start, range.end),
            None => Vec::new(),
        };
        for page in &touched {
            self.check_page(at, space, *page, Occasion::Touched)?;
        }
        Ok(touched)
    }

    /// No access may reach `pages` any longer.
    fn expect_gone(&self, at: Place, space: SpaceSlot, pages: &[u64], symptom: Symptom) -> Checked {
        for page in pages {
            let to = self.word_at(*page, 0);
            if let Some(found) = self.engine.peek(at.cpu as usize, space, to) {
                let location = Location::Space(space, to);
                let found = describe(found, self.workload);
                return Err(self.refute(symptom, location, "no translation", found, at));
            }
        }
        Ok(())
    }

    /// An operation that drops the pages of `range`.
    fn dropping(&self, at: Place, op: &Op, space: SpaceSlot, range: Range<u64>) -> Checked {
        let touched = self.read_back_range(at, space, &range)?;
        self.run(at, op)?;
        self.expect_gone(at, space, &touched, Symptom::StaleTranslation)
    }

    fn remap(
        &self,
        at: Place,
        op: &Op,
        space: SpaceSlot,
        old: Range<u64>,
        new: Range<u64>,
    ) -> Checked {
        let mut gone = self.read_back_range(at, space, &old)?;
        self.run(at, op)?;
        gone.retain(|page| !new.contains(page));
        self.expect_gone(at, space, &gone, Symptom::StaleTranslation)?;
        self.read_back_range(at, space, &new).map(|_| ())
    }

    /// After a change of rights, touched pages must refuse what these forbid. A
    /// page past the end of its file is not asked: another CPU may have told the
    /// model of the truncation and not yet have done it.
    fn probe_rights(&self, at: Place, space: SpaceSlot, touched: &[u64]) -> Checked {
        for page in touched.iter().copied() {
            let forbids = |access| {
                let verdict = self.model().access(space, page, access);
                matches!(verdict, Err(OpError::Protection))
            };
            for access in [Access::Read, Access::Write] {
                if forbids(access) {
                    self.expect_refusal(at, space, page, access)?;
                }
            }
            self.check_page(at, space, page, Occasion::Touched)?;
        }
        Ok(())
    }

    /// A truncation must take the pages past the new end out of every space.
    /// With several CPUs those spaces may be at work; they are read back later.
    fn truncate(&self, at: Place, op: &Op, file: FileSlot, pages: u64) -> Checked {
        let mut cut: Vec<(SpaceSlot, Vec<u64>)> = Vec::new();
        if self.single_cpu() {
            let model = self.model();
            for (slot, space) in model.spaces.iter().enumerate() {
                for (start, end) in space.iter().flat_map(|s| s.mapped_past(file, pages)) {
                    let touched = space.iter().flat_map(|s| s.touched_in(start, end));
                    cut.push((SpaceSlot(slot as u32), touched.collect()));
                }
            }
        }
        self.run(at, op)?;
        for (space, pages) in cut {
            self.expect_gone(at, space, &pages, Symptom::SurvivedTruncation)?;
        }
        Ok(())
    }
}

/// The place an operation is about, with pages of `1 << shift` bytes.
fn location_of(op: &Op, shift: u32) -> Location {
    match *op {
        Op::Map { space, page, .. }
        | Op::Unmap { space, page, .. }
        | Op::Protect { space, page, .. }
        | Op::Remap { space, page, .. }
        | Op::Advise { space, page, .. }
        | Op::Touch { space, page, .. }
        | Op::Call(Call::Access { space, page, .. })
        | Op::ScanSpace { space, page, .. }
        | Op::Brk {
            space, start: page, ..
        } => Location::Space(space, page << shift),
        Op::FileRead { file, page, .. }
        | Op::FileWrite { file, page, .. }
        | Op::ScanFile { file, page, .. } => Location::File(file, page << shift),
        Op::Truncate { file, pages }
        | Op::FileOpen { file, pages }
        | Op::TmpfsOpen { file, pages } => Location::File(file, pages << shift),
        Op::Create { .. } | Op::Fork { .. } | Op::Share { .. } | Op::Exec { .. } => {
            Location::Nowhere
        }
        Op::Exit { .. } | Op::EmptyCaches | Op::Idle { .. } | Op::Call(_) | Op::Lap { .. } => {
            Location::Nowhere
        }
    }
}
