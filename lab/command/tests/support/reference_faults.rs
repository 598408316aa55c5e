//! The fault path and the MMU of the reference memory manager.

use vellum_engine::{Access, OpError, SpaceSlot};

use super::reference::{Defect, Machine};
use super::reference_state::{Entry, Frame, Object, Region};

impl Machine<'_> {
    /// Makes `page` accessible; says whether it was already.
    pub(super) fn fault(
        &mut self,
        slot: SpaceSlot,
        page: u64,
        access: Access,
    ) -> Result<bool, OpError> {
        let region = self.region_for(slot, page)?;
        let entry = self.space(slot)?.entries.get(&page).copied();
        if !region.allows(access) {
            // The defect is in the MMU: an entry that is there still works.
            return match (self.has(Defect::RightsKept), entry) {
                (true, Some(entry)) if access != Access::Write || entry.writable => Ok(true),
                _ => Err(OpError::Protection),
            };
        }
        let write = access == Access::Write;
        if let Some(entry) = entry
            && (entry.writable || !write)
        {
            return Ok(true);
        }
        let entry = match region.shared {
            true => self.shared_entry(&region, page, write)?,
            false => self.private_entry(&region, page, entry, write)?,
        };
        self.space(slot)?.entries.insert(page, entry);
        if !self.has(Defect::MissingFlush) {
            self.state.tlb.remove(&(slot.0, page));
        }
        Ok(false)
    }

    fn region_for(&mut self, slot: SpaceSlot, page: u64) -> Result<Region, OpError> {
        let space = self.space(slot)?;
        if let Some(region) = space.region(page) {
            return Ok(*region);
        }
        let above = space.regions.iter_mut().find(|r| r.start > page);
        match above {
            Some(stack) if stack.grows_down => {
                stack.start = page;
                Ok(*stack)
            }
            _ => Err(OpError::NoRegion),
        }
    }

    fn object_at(region: &Region, page: u64) -> Option<(Object, u64)> {
        let (object, first) = region.object?;
        Some((object, first + (page - region.start)))
    }

    fn shared_entry(&mut self, region: &Region, page: u64, write: bool) -> Result<Entry, OpError> {
        let (object, index) = Self::object_at(region, page).ok_or(OpError::Invalid)?;
        Ok(Entry {
            frame: self.object_page(object, index)?,
            writable: write,
        })
    }

    fn private_entry(
        &mut self,
        region: &Region,
        page: u64,
        present: Option<Entry>,
        write: bool,
    ) -> Result<Entry, OpError> {
        let source = match (present, Self::object_at(region, page)) {
            (Some(entry), _) => entry.frame,
            (None, Some((object, index))) => self.object_page(object, index)?,
            (None, None) => self.frame(zeroed()),
        };
        if !write {
            return Ok(Entry {
                frame: source,
                writable: false,
            });
        }
        let copy = match self.has(Defect::CowCopiesNothing) {
            true => zeroed(),
            false => self.state.frames[source].clone(),
        };
        Ok(Entry {
            frame: self.frame(copy),
            writable: true,
        })
    }

    /// The translation that the MMU uses: the TLB's if a flush was missed.
    fn translate(&mut self, slot: SpaceSlot, page: u64) -> Option<Entry> {
        if self.has(Defect::MissingFlush)
            && let Some(stale) = self.state.tlb.get(&(slot.0, page))
        {
            return Some(*stale);
        }
        let entry = *self.space(slot).ok()?.entries.get(&page)?;
        if self.has(Defect::MissingFlush) {
            self.state.tlb.insert((slot.0, page), entry);
        }
        Some(entry)
    }

    pub(super) fn load(
        &mut self,
        slot: SpaceSlot,
        address: u64,
        access: Access,
    ) -> Result<u64, OpError> {
        let page = address >> 12;
        if !self.has(Defect::MissingFlush) || self.translate(slot, page).is_none() {
            self.fault(slot, page, access)?;
        }
        let entry = self.translate(slot, page).ok_or(OpError::NoRegion)?;
        Ok(self.word(entry.frame, address & 4095))
    }

    pub(super) fn store(
        &mut self,
        slot: SpaceSlot,
        address: u64,
        value: u64,
    ) -> Result<(), OpError> {
        let page = address >> 12;
        let cached = self.has(Defect::MissingFlush)
            && self.translate(slot, page).is_some_and(|e| e.writable);
        if !cached {
            let breaks = self.space(slot)?.entries.contains_key(&page);
            self.state.tlb.remove(&(slot.0, page));
            let mapped = self.fault(slot, page, Access::Write)?;
            if self.has(Defect::LostWrite) && breaks && !mapped {
                return Ok(());
            }
        }
        let entry = self.translate(slot, page).ok_or(OpError::NoRegion)?;
        self.set_word(entry.frame, address & 4095, value);
        self.mark_dirty(slot, page);
        Ok(())
    }

    fn mark_dirty(&mut self, slot: SpaceSlot, page: u64) {
        if self.has(Defect::LostDirty) {
            return;
        }
        let Ok(space) = self.space(slot) else { return };
        let Some(region) = space.region(page).copied().filter(|r| r.shared) else {
            return;
        };
        if let Some((object, index)) = Self::object_at(&region, page)
            && let Some(content) = self.state.objects.get_mut(&object)
        {
            content.dirty.insert(index);
        }
    }

    pub(super) fn peek(&mut self, slot: SpaceSlot, address: u64) -> Option<u64> {
        let page = address >> 12;
        let entry = self.translate(slot, page)?;
        let readable = match self.space(slot).ok()?.region(page) {
            Some(region) => region.prot.read,
            // Only a stale translation gets here.
            None => true,
        };
        readable.then(|| self.word(entry.frame, address & 4095))
    }
}

fn zeroed() -> Frame {
    Frame::filled(0)
}
