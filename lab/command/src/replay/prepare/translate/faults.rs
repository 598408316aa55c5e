//! Faults and fault-around.

use vellum_engine::{Access, Backing, Call, Op, Sharing};

use super::{Done, Translator, USER_PAGES, changes_space, slot, user_pages, uses_file, uses_space};
use crate::replay::explain::Expectation;
use crate::replay::prepare::schedule::Place;
use crate::replay::regions::{Region, Source};
use crate::replay::workload::Class;
use vellum_trace::FileId;

/// Tells numbers of shared-memory objects from those of files.
const SHARED_MEMORY: u32 = 1 << 31;

impl Translator<'_> {
    /// A touch of `page`, in whose place there is a mapping afterwards.
    pub(super) fn fault(&mut self, task: usize, page: u64, access: Access, class: Class) -> Done {
        if page >= USER_PAGES {
            self.repairs.meaningless += 1;
            return Ok(());
        }
        self.tasks[task].last_fault = page;
        let region = match self.region_for(task, page) {
            Some(region) => region,
            None => self.map_touched_page(task, page, access)?,
        };
        let space = self.tasks[task].space;
        let op = Op::Touch {
            space: slot(space),
            page,
            access,
        };
        let expectation = if region.allows(access) {
            let around = self.options.fault_around;
            let state = &mut self.slots.spaces[space as usize];
            let users = state.users;
            state
                .presence
                .fault(page, &state.regions, access, around, users)
        } else {
            Expectation::Refused
        };
        // The page was faulted in when another part of it was touched.
        let known = matches!(expectation, Expectation::Repeated | Expectation::Raced);
        if known && self.fold_shift() > 0 {
            return Ok(());
        }
        if let Source::Object {
            object,
            page: first,
        } = region.source
        {
            let at = first + (page - region.start);
            self.memory.cache(object | SHARED_MEMORY, at, at + 1);
        }
        let place = match region.file_page(page) {
            Some((file, file_page)) => {
                self.ensure_length(task, file, file_page + 1)?;
                self.memory.cache(file.0, file_page, file_page + 1);
                let uses = [uses_space(space), uses_file(file)];
                self.put_expecting(task, op, class, expectation, &uses)?
            }
            None => {
                // Growing the stack changes the space's regions.
                let uses = match region.grows_down && region.start == page {
                    true => changes_space(space),
                    false => uses_space(space),
                };
                self.put_expecting(task, op, class, expectation, &[uses])?
            }
        };
        if self.options.streams.are_several() && self.space(task).users > 1 {
            self.note_races(task, page, &region, place);
        }
        Ok(())
    }

    /// Pages that the task's process used again, loaded from as far as they can be.
    pub(super) fn accessed(&mut self, task: usize, address: u64, length: u64) -> Done {
        let Some((start, end)) = user_pages(address, length) else {
            return Ok(());
        };
        let space = self.tasks[task].space;
        for part in self.space(task).regions.parts(start, end) {
            if !part.allows(Access::Read) {
                continue;
            }
            let op = Op::Call(Call::Access {
                space: slot(space),
                page: part.start,
                pages: part.end - part.start,
                access: Access::Read,
            });
            let place = match part.file_page(part.start) {
                Some((file, first)) => {
                    let end = first + (part.end - part.start);
                    self.ensure_length(task, file, end)?;
                    self.memory.cache(file.0, first, end);
                    let uses = [uses_space(space), uses_file(file)];
                    self.put(task, op, Class::Use, &uses)?
                }
                None => self.put(task, op, Class::Use, &[uses_space(space)])?,
            };
            if let Source::Object { object, page } = part.source {
                let end = page + (part.end - part.start);
                self.memory.cache(object | SHARED_MEMORY, page, end);
            }
            if self.options.streams.are_several() && self.space(task).users > 1 {
                for page in part.start..part.end {
                    self.note_races(task, page, &part, place);
                }
            }
        }
        Ok(())
    }

    /// Touches by tasks in other streams that the touch of `page` at `place` may
    /// overtake, of the page itself or of its neighbours in an object.
    fn note_races(&mut self, task: usize, page: u64, region: &Region, place: Place) {
        let around = match region.source {
            Source::File { .. } | Source::Object { .. } => self.options.fault_around,
            Source::Anonymous => 1,
        };
        let window = page - page % around..page - page % around + around;
        let recent = &mut self.slots.spaces[self.tasks[task].space as usize].recent;
        for (_, touches) in recent.range_mut(window) {
            touches.retain(|other| {
                let own = other.stream == place.stream;
                if !own {
                    self.scheduler.mark_raced(*other);
                }
                own
            });
        }
        recent.entry(page).or_default().push(place);
    }

    /// The region that contains `page`, after the stack has grown to it if it can.
    fn region_for(&mut self, task: usize, page: u64) -> Option<Region> {
        let regions = &mut self.space(task).regions;
        if regions.at(page).is_none() {
            regions.grow_stack(page);
        }
        regions.at(page).copied()
    }

    /// Maps one anonymous page where the trace has no mapping.
    fn map_touched_page(
        &mut self,
        task: usize,
        page: u64,
        access: Access,
    ) -> Result<Region, super::PrepareError> {
        self.repairs.unmapped_touch += 1;
        let mut region = Region::anonymous(page, page + 1);
        region.prot.execute = access == Access::Execute;
        let space = self.tasks[task].space;
        let op = Op::Map {
            space: slot(space),
            page,
            pages: 1,
            prot: region.prot,
            sharing: Sharing::Private,
            backing: Backing::Anonymous,
            grows_down: false,
        };
        self.put(task, op, Class::Map, &[changes_space(space)])?;
        self.space(task).regions.insert(region);
        Ok(region)
    }

    /// Remembers what the kernel's fault-around offered beside the last fault.
    pub(super) fn map_around(&mut self, task: usize, file: FileId, first: u64, last: u64) -> Done {
        let (file, _) = self.file_slot(task, file)?;
        let page = self.tasks[task].last_fault;
        let space = self.space(task);
        let Some(region) = space.regions.at(page).copied() else {
            return Ok(());
        };
        let Some((mapped, base)) = region.file_page(region.start) else {
            return Ok(());
        };
        let from = first.max(base);
        let to = last
            .saturating_add(1)
            .min(base + (region.end - region.start));
        if mapped == file && from < to {
            let at = |file_page| region.start + (file_page - base);
            space.presence.offer(at(from), at(to));
        }
        Ok(())
    }
}
