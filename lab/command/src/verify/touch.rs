//! Verified accesses: stamps, loads, and refusals.

use vellum_engine::{Access, SpaceSlot};

use super::check::{Checked, Occasion, Verifier, count};
use super::clocks::Place;
use super::refute::{Location, Symptom, describe, stamp};
use crate::replay::regions::Region;

impl Verifier<'_> {
    pub(super) fn touch(&self, at: Place, space: SpaceSlot, page: u64, access: Access) -> Checked {
        let verdict = self.model().access(space, page, access);
        match (verdict, access) {
            (Err(_), _) => self.expect_refusal(at, space, page, access),
            (Ok(region), Access::Write) => self.store(at, space, page, &region),
            (Ok(region), _) => self.load_touch(at, space, page, access, &region),
        }
    }

    /// Which watched word the operation uses.
    fn watched(at: Place) -> usize {
        at.position as usize % 2
    }

    /// An access that must be refused.
    pub(super) fn expect_refusal(
        &self,
        at: Place,
        space: SpaceSlot,
        page: u64,
        access: Access,
    ) -> Checked {
        let cpu = at.cpu as usize;
        let to = self.word_at(page, 0);
        let refused = match access {
            Access::Write => self.engine.store(cpu, space, to, stamp(at)).is_err(),
            _ => self.engine.load(cpu, space, to, access).is_err(),
        };
        if !refused {
            let location = Location::Space(space, to);
            let expected = format!("{access:?} access refused");
            return Err(self.refute(Symptom::NotRefused, location, expected, "it succeeded", at));
        }
        count(&self.counts.refused);
        Ok(())
    }

    fn store(&self, at: Place, space: SpaceSlot, page: u64, region: &Region) -> Checked {
        let index = Self::watched(at);
        let value = stamp(at);
        let mut model = self.model();
        let fresh_copy = model.space_mut(space).is_some_and(|space| {
            space.touched.insert(page);
            !space.private.contains_key(&page)
        });
        let first = model.store(space, region, page, (index, value), at, &self.clocks);
        drop(model);
        if first {
            count(&self.counts.written);
        }
        let to = self.word_at(page, index);
        if let Err(error) = self.engine.store(at.cpu as usize, space, to, value) {
            let location = Location::Space(space, to);
            return Err(self.wrongly_refused(error, location, "Write access allowed", at));
        }
        if fresh_copy && !self.single_cpu() {
            let copied = (index, at);
            self.model()
                .absorb_source(space, region, page, copied, &self.clocks);
        }
        self.check_page(at, space, page, Occasion::Accessed)?;
        if self.single_cpu() && !region.shared {
            self.check_relatives(at, space, page)?;
        }
        Ok(())
    }

    /// The spaces that shared the frame must not see the store. With several
    /// CPUs they may be at work themselves; their own checks find it then.
    fn check_relatives(&self, at: Place, space: SpaceSlot, page: u64) -> Checked {
        let model = self.model();
        let mut relatives = model.relatives(space);
        relatives.retain(|slot| {
            model
                .space(*slot)
                .is_some_and(|space| space.touched.contains(&page))
        });
        drop(model);
        for relative in relatives {
            self.check_page(at, relative, page, Occasion::Touched)?;
        }
        Ok(())
    }

    fn load_touch(
        &self,
        at: Place,
        space: SpaceSlot,
        page: u64,
        access: Access,
        region: &Region,
    ) -> Checked {
        if let Some(space) = self.model().space_mut(space) {
            space.touched.insert(page);
        }
        let index = Self::watched(at);
        let from = self.word_at(page, index);
        let location = Location::Space(space, from);
        let found = match self.engine.load(at.cpu as usize, space, from, access) {
            Ok(found) => found,
            Err(error) => {
                let expected = format!("{access:?} access allowed");
                return Err(self.wrongly_refused(error, location, &expected, at));
            }
        };
        let Some(content) = self.model().content(space, page) else {
            let found = describe(found, self.workload);
            let expected = "nothing mapped";
            return Err(self.refute(Symptom::StrayPage, location, expected, found, at));
        };
        let expected = &content.words[index];
        if !expected.admits(found, at, &self.clocks) {
            let symptom = self.diagnose(region, (space, page), found, expected);
            return Err(self.mismatch(symptom, location, expected, found, at));
        }
        self.check_page(at, space, page, Occasion::Accessed)
    }
}
