//! Operations on spaces, carried out on the core and on the model.

use std::collections::BTreeSet;

use vellum::addr::{self, PageRange, Pfn, Vpn};
use vellum::frame::NodePolicy;
use vellum::platform::{CpuId, Machine as _, NodeId};
use vellum::rmap::ReverseMap;
use vellum::space::{
    Advice, FaultError, FrameHealth, MapRequest, PinError, Placement, RemapPlacement, Source,
    TakeDirty, Traits, WithdrawError, Withdrawn,
};
use vellum::table::Format;
use vellum::{ObjectId, SpaceId};
use vellum_machine::mmu::AccessError;

use super::drive::{Check, Driver, Pinned, access, fault_answer, map_answer, nth, prot, same};
use super::failed::Allows;
use super::model::{Access, DEVICE, Refusal};
use super::ops::{Aim, What};
use super::space::{Cell, Frames, Space};
use crate::support;

impl<F: Format, R: ReverseMap> Driver<F, R> {
    /// One of the policies that no call fails for that has memory.
    fn node_policy(&self, kind: u8) -> Option<NodePolicy> {
        let count = self.vm.platform().nodes() as u16;
        let nodes = (0..count).map(NodeId).collect();
        let last = Some(NodeId(count - 1));
        Some(match kind {
            0 => return None,
            1 => NodePolicy::Local,
            2 => NodePolicy::Bind { nodes, home: last },
            3 => NodePolicy::Prefer {
                nodes: last.into_iter().collect(),
                home: None,
            },
            4 => NodePolicy::Interleave(nodes),
            _ => NodePolicy::WeightedInterleave(nodes),
        })
    }

    pub fn on_space(&mut self, cpu: CpuId, slot: u32, what: What) -> Check {
        let id = self.ids[&slot];
        self.remember(match what {
            What::Fork { .. } => Allows::WriteProtection,
            What::Pin { .. } | What::Watch { .. } => Allows::FaultedIn,
            What::Supply { .. } => Allows::Growth,
            _ => Allows::Nothing,
        })?;
        match what {
            What::Fork { .. } if self.ids.len() < self.most => return self.fork(slot),
            What::Fork { .. } => return Ok(()),
            What::Share { .. } => {
                same(self.vm.space(id).share(), Ok(()))?;
                self.model.spaces.get_mut(&slot).expect("live").users += 1;
            }
            What::Exec { .. } => return self.exec(slot),
            What::Exit { .. } => return self.exit(slot),
            What::MapAnonymous {
                aim,
                pages,
                prot,
                shared,
                grows,
                ..
            } => {
                let cell = Cell {
                    prot,
                    shared,
                    grows: grows && !shared,
                    ..Cell::default()
                };
                return self.map(slot, aim, pages, cell);
            }
            What::MapObject {
                object,
                index,
                aim,
                pages,
                prot,
                shared,
                ..
            } => {
                let Some(key) = nth(&self.objects, object) else {
                    return Ok(());
                };
                let cell = Cell {
                    prot,
                    shared,
                    object: Some(key),
                    index,
                    ..Cell::default()
                };
                return self.map(slot, aim, pages, cell);
            }
            What::MapFrames {
                first,
                aim,
                pages,
                prot,
                shared,
                at_once,
                ..
            } => {
                let frames = Frames {
                    mapping: self.mappings.len() as u32 + 1,
                    first,
                    at_once,
                };
                let cell = Cell {
                    prot,
                    shared,
                    frames: Some(frames),
                    ..Cell::default()
                };
                return self.map(slot, aim, pages, cell);
            }
            What::Unmap { place, pages, .. } => {
                let start = self.page(slot, place);
                let answer = map_answer(self.vm.space(id).unmap(Vpn(start), pages))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                let space = self.space(slot);
                same(answer, space.check_range(start, pages).map_err(Some))?;
                if answer.is_ok() {
                    self.space(slot).unmap(start, pages);
                }
            }
            What::Remap {
                place,
                pages,
                new_pages,
                aim,
                leaves,
                ..
            } => {
                let start = self.page(slot, place);
                return self.remap(slot, (start, pages), new_pages, (aim, leaves));
            }
            What::Protect {
                place,
                pages,
                prot: bits,
                ..
            } => {
                let start = self.page(slot, place);
                let answer = map_answer(self.vm.space(id).protect(Vpn(start), pages, prot(bits)))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                same(
                    answer,
                    self.space(slot)
                        .protect(start, pages, F::given(prot(bits)).bits())
                        .map_err(Some),
                )?;
            }
            What::Brk { pages, .. } => {
                let end = self.shape.heap_start() + pages;
                let answer = map_answer(self.vm.space(id).set_heap_end(Vpn(end)))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                same(answer, self.space(slot).set_heap_end(end).map_err(Some))?;
            }
            What::DontNeed { place, pages, .. }
            | What::Free { place, pages, .. }
            | What::Cold { place, pages, .. }
            | What::PageOut { place, pages, .. } => {
                let start = self.page(slot, place);
                if matches!(what, What::Free { .. }) && self.has_hooks(slot, start, pages) {
                    // Whether a page that was freed is missing, the model cannot tell.
                    return Ok(());
                }
                let advice = match what {
                    What::DontNeed { .. } => Advice::DontNeed,
                    What::Free { .. } => Advice::Free,
                    What::Cold { .. } => Advice::Cold,
                    _ => Advice::PageOut,
                };
                let answer = map_answer(self.vm.space(id).advise(Vpn(start), pages, advice))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                let space = self.space(slot);
                let wanted = space.check_range(start, pages).and_then(|()| {
                    space.refuses_advice(start, pages, matches!(advice, Advice::Free))?;
                    match advice {
                        Advice::DontNeed => space.dont_need(start, pages),
                        Advice::Free => space.free(start, pages),
                        _ => {}
                    }
                    let covered = space.is_covered(start, pages);
                    covered.then_some(()).ok_or(Refusal::NotMapped)
                });
                same(answer, wanted.map_err(Some))?;
            }
            What::AdviseFolio {
                place,
                pages,
                order,
                ..
            } => {
                let start = self.page(slot, place);
                let advice = Advice::Folio(order);
                let answer = map_answer(self.vm.space(id).advise(Vpn(start), pages, advice))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                let most = self.has_folios.then(|| 20 - self.shape.page_shift);
                let wanted = self.space(slot).advise_folio(start, pages, order, most);
                same(answer, wanted.map_err(Some))?;
            }
            What::Inherit {
                place,
                pages,
                forks,
                ..
            } => {
                let start = self.page(slot, place);
                let advice = [Advice::DontFork, Advice::DoFork][usize::from(forks)];
                let answer = map_answer(self.vm.space(id).advise(Vpn(start), pages, advice))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                let wanted = self.space(slot).inherit(start, pages, forks);
                same(answer, wanted.map_err(Some))?;
            }
            What::NodePolicy {
                place, pages, kind, ..
            } => {
                let start = self.page(slot, place);
                let policy = self.node_policy(kind);
                let range = PageRange {
                    start: Vpn(start),
                    end: Vpn(start.saturating_add(pages)),
                };
                let range = (kind < 6).then_some(range);
                let answer = self.vm.space(id).set_node_policy(range, policy);
                let answer = map_answer(answer)?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                let wanted = match range {
                    Some(_) => self.space(slot).place(start, pages, policy),
                    None => Ok(()),
                };
                same(answer, wanted.map_err(Some))?;
            }
            What::MovePages {
                place, pages, node, ..
            } => {
                let start = self.page(slot, place);
                let range = PageRange {
                    start: Vpn(start),
                    end: Vpn(start.saturating_add(pages)),
                };
                let nodes = self.vm.platform().nodes() as u16;
                let to = (node < 2).then_some(NodeId(u16::from(node) % nodes));
                self.moves += 1;
                let answer = map_answer(self.vm.space(id).move_pages(range, to).map(|_| ()))?;
                let space = self.space(slot);
                let wanted = space.check_range(start, pages).and_then(|()| {
                    let covered = space.is_covered(start, pages);
                    covered.then_some(()).ok_or(Refusal::NotMapped)
                });
                same(answer, wanted.map_err(Some))?;
            }
            What::Withdraw { place, .. } => {
                let page = Vpn(self.page(slot, place));
                let found = self.vm.space(id).translate(page).ok();
                if let Some((frame, _)) = found.filter(|(frame, _)| frame.0 < DEVICE) {
                    self.moves += 1;
                    let done = self.vm.set_frame_health(frame, FrameHealth::Failing);
                    let is_fine = match done {
                        Ok(done) => done != Withdrawn::Lost,
                        Err(WithdrawError::OutOfMemory) => self.tight,
                        Err(error) => error != WithdrawError::Withdrawn,
                    };
                    if !is_fine {
                        return Err(format!("{frame:?} at {page:?}: {done:?}"));
                    }
                    // Half of them come back.
                    if done.is_ok() && frame.0.is_multiple_of(2) {
                        let back = self.vm.set_frame_health(frame, FrameHealth::Good);
                        same(back, Ok(Withdrawn::Readmitted))?;
                    }
                }
            }
            What::Lock {
                place,
                pages,
                locks,
                ..
            } => {
                let start = self.page(slot, place);
                let answer = map_answer(match locks {
                    true => self.vm.space(id).lock(Vpn(start), pages),
                    false => self.vm.space(id).unlock(Vpn(start), pages),
                })?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                let wanted = self.space(slot).lock(start, pages, locks);
                same(answer, wanted.map_err(Some))?;
            }
            What::Collapse { place, least, .. } => {
                // Shows nothing but pages that are resident now.
                let mut start = self.page(slot, place);
                // What was made before a range for which there is no memory stays.
                let (calls, ranges) = if self.tight { (3, 1) } else { (1, 3) };
                for call in 0..calls {
                    if call > 0 {
                        self.check_space(slot)?;
                        self.remember(Allows::Nothing)?;
                    }
                    let answer = self.vm.space(id).collapse(Vpn(start), ranges, least);
                    if map_answer(answer)?.is_err() {
                        return self.short(Some(slot));
                    }
                    start += self.shape.table_pages(1);
                }
            }
            What::Populate { place, pages, .. } => {
                let start = self.page(slot, place);
                let calls = if self.tight { pages } else { 1 };
                for call in 0..calls {
                    let (start, pages) = if self.tight {
                        (start + call, 1)
                    } else {
                        (start, pages)
                    };
                    self.populate(slot, start, pages)?;
                }
            }
            What::Touch {
                place,
                access,
                word,
                value,
                ..
            } => {
                let page = self.page(slot, place);
                self.touch(cpu, slot, page, access, word, value)?;
            }
            What::Sweep {
                place,
                pages,
                step,
                access,
                value,
                ..
            } => {
                let start = self.page(slot, place);
                for nth in 0..pages {
                    let page = start + nth * step;
                    let word = (value.wrapping_add(nth) % self.shape.words()) as u16;
                    self.touch(cpu, slot, page, access, word, value ^ nth)?;
                }
            }
            What::Pin {
                place,
                pages,
                writes,
                ..
            } => {
                let start = self.page(slot, place);
                let pages = if self.tight { 1 } else { pages };
                // Whether one that is watched has to be copied for that, the model cannot tell.
                let watched = &self.model.spaces[&slot].watched;
                if watched
                    .range(start..start.saturating_add(pages))
                    .next()
                    .is_none()
                {
                    self.pin(slot, start, pages, writes)?;
                }
            }
            What::TakeDirty {
                place, pages, how, ..
            } => {
                let start = self.page(slot, place);
                self.take_dirty(slot, (start, pages), how)?;
            }
            What::Hook { .. } | What::Supply { .. } | What::Watch { .. } => {
                self.on_hooks(slot, what)?;
            }
            _ => {}
        }
        self.check_space(slot)
    }

    /// What dirty tracking reports lies in the range, and is at least what was written, or is pinned:
    /// more, if an entry is gone, or a page was faulted in for a store that did not come. A pinned page
    /// is reported once more.
    fn take_dirty(&mut self, slot: u32, (start, pages): (u64, u64), how: TakeDirty) -> Check {
        let range = start..start.saturating_add(pages);
        let mut told = BTreeSet::new();
        let pinned = self.pinned_pages(slot, range.clone())?;
        let all = addr::PageRange {
            start: Vpn(range.start),
            end: Vpn(range.end),
        };
        let core = self.vm.space(self.ids[&slot]);
        let each = |pages: addr::PageRange| told.extend(pages.start.0..pages.end.0);
        let answer = map_answer(core.take_dirty(all, how, each))?;
        if answer == Err(None) {
            return self.short(Some(slot));
        }
        same(
            answer,
            self.space(slot).check_range(start, pages).map_err(Some),
        )?;
        if answer.is_err() {
            return Ok(());
        }
        let space = self.space(slot);
        if let Some(page) = told
            .iter()
            .find(|&page| !range.contains(page) || !space.cells.contains_key(page))
        {
            return Err(format!("page {page:#x} was told of, and is not there"));
        }
        let mut written = space.dirty.range(range.clone()).chain(&pinned);
        if let Some(page) = written.find(|&page| !told.contains(page)) {
            return Err(format!("page {page:#x} was written, and not told of"));
        }
        space.dirty.retain(|page| !range.contains(page));
        space.dirty.extend(pinned);
        Ok(())
    }

    pub fn space(&mut self, slot: u32) -> &mut Space {
        self.model.spaces.get_mut(&slot).expect("live")
    }

    fn fork(&mut self, slot: u32) -> Check {
        match map_answer(
            self.vm
                .space(self.ids[&slot])
                .fork()
                .map(vellum::space::Space::id),
        )? {
            Err(_) => self.short(Some(slot)),
            Ok(id) => {
                let child = self.name_space(id);
                self.model.fork(slot, child);
                // Those of superpages of objects are copied by no fork.
                if !self.copies_all || self.has_huge {
                    self.adopt_lazy_fork(child)?;
                }
                self.check_space(slot)?;
                self.check_space(child)
            }
        }
    }

    fn exec(&mut self, slot: u32) -> Check {
        let id = match map_answer(
            self.vm
                .space(self.ids[&slot])
                .exec()
                .map(vellum::space::Space::id),
        )? {
            Err(_) => return self.short(Some(slot)),
            Ok(id) => id,
        };
        self.left(slot);
        let new = self.name_space(id);
        self.model.spaces.insert(new, self.new_space());
        self.start_heap(new)
    }

    fn exit(&mut self, slot: u32) -> Check {
        let ended = map_answer(self.vm.space(self.ids[&slot]).exit())?;
        let last = self.model.spaces[&slot].users == 1;
        same(ended, Ok(last))?;
        self.left(slot);
        Ok(())
    }

    fn left(&mut self, slot: u32) {
        let space = self.space(slot);
        space.users -= 1;
        if space.users == 0 {
            self.model.spaces.remove(&slot);
            self.ids.remove(&slot);
        }
    }

    fn map(&mut self, slot: u32, aim: Aim, pages: u64, cell: Cell) -> Check {
        let (target, placement) = self.target(slot, aim);
        if matches!(placement, Placement::Anywhere | Placement::Hint(_)) {
            // The highest gap is that of all of the space then.
            self.unite(self.ids[&slot]);
        }
        let id = self.ids[&slot];
        let mut traits = Traits::NONE;
        if cell.shared {
            traits = traits.union(Traits::SHARED);
        }
        if cell.grows {
            traits = traits.union(Traits::GROWS_DOWN);
        }
        let source = match (cell.object, cell.frames) {
            (None, None) => Source::Anonymous,
            (None, Some(frames)) => Source::Frames {
                first: Pfn(DEVICE + frames.first),
                at_once: frames.at_once,
            },
            (Some(key), _) => Source::Object {
                id: self.objects[&key],
                page: cell.index,
            },
        };
        let request = MapRequest {
            pages,
            prot: prot(cell.prot),
            traits,
            source,
            placement,
            tag: 0,
        };
        let given = F::given(prot(cell.prot));
        let wanted = match cell.frames {
            None => self.model.place(slot, pages, target),
            Some(_) if !cell.shared && given.can_write() => Err(Refusal::Rights),
            Some(frames) => self.model.place_frames(slot, pages, target, frames.first),
        };
        let answer = map_answer(self.vm.space(id).map(&request))?;
        let start = match answer {
            Err(None) => return self.short(Some(slot)),
            answer => {
                let found = answer.map(|page| page.0);
                same(found, wanted.map_err(Some))?;
                match found {
                    Ok(start) => start,
                    Err(_) => return self.check_space(slot),
                }
            }
        };
        let mut first = Cell {
            prot: given.bits(),
            ..cell
        };
        if let Some(frames) = cell.frames {
            let name = self.object_at(id, start)?.to_bits();
            self.mappings.insert(name, frames.mapping);
        } else if cell.object.is_none() && cell.shared {
            let key = self.model.add_object(None, pages, false);
            let made = self.object_at(id, start)?;
            self.objects.insert(key, made);
            first.object = Some(key);
        } else if cell.object.is_none() {
            first.index = start;
        }
        self.model.map(slot, start, pages, first);
        self.check_space(slot)
    }

    fn object_at(&self, id: SpaceId, page: u64) -> Result<ObjectId, String> {
        let mut found = None;
        let listed = self.vm.space(id).for_each_region(|entry| {
            if entry.range.contains(Vpn(page)) {
                found = entry.object.map(|(object, _, _)| object);
            }
        });
        listed.map_err(|error| error.to_string())?;
        found.ok_or_else(|| format!("shared memory mapped at {page:#x} has no object"))
    }

    fn remap(
        &mut self,
        slot: u32,
        (start, pages): (u64, u64),
        new_pages: u64,
        (aim, leaves): (Aim, bool),
    ) -> Check {
        let (target, placement) = self.target(slot, aim);
        let placement = match placement {
            Placement::Fixed(page) if leaves => RemapPlacement::LeaveFor(page),
            _ if leaves => RemapPlacement::Leave,
            Placement::Anywhere | Placement::Aligned(_) => RemapPlacement::MayMove,
            Placement::Fixed(page) => RemapPlacement::Fixed(page),
            Placement::Hint(_) | Placement::FixedFree(_) => RemapPlacement::InPlace,
        };
        let id = self.ids[&slot];
        self.unite(id);
        // Regions that could be one but are not refuse to be moved together.
        let mut single = false;
        let listed = self.vm.space(id).for_each_region(|entry| {
            let range = entry.range;
            single |= range.start.0 <= start && start + pages <= range.end.0;
        });
        listed.map_err(|error| error.to_string())?;
        let result = self
            .vm
            .space(id)
            .remap(Vpn(start), pages, new_pages, placement);
        let answer = map_answer(result)?;
        if answer == Err(None) {
            return self.short(Some(slot));
        }
        let wanted = self
            .space(slot)
            .remap(start, pages, new_pages, (target, leaves), single);
        let found = answer.map(|remapped| (remapped.range.start.0, remapped.moved));
        same(found, wanted.map_err(Some))?;
        if let Ok(remapped) = answer {
            same(remapped.range.pages(), new_pages)?;
        }
        self.check_space(slot)
    }

    fn populate(&mut self, slot: u32, start: u64, pages: u64) -> Check {
        self.remember(Allows::Growth)?;
        let answer = fault_answer(self.vm.space(self.ids[&slot]).populate(Vpn(start), pages))?;
        if answer == Err(None) {
            self.adopt_after_shortage(slot, start)?;
            return self.short(Some(slot));
        }
        let wanted = (|| {
            let space = self.space(slot);
            space
                .check_range(start, pages)
                .map_err(|_| Refusal::NoRegion)?;
            for page in start..start + pages {
                match self.model.populate(slot, page) {
                    // A stack that grew may not be stored to.
                    Err(Refusal::Protection) => self.model.access(slot, page, Access::Read)?,
                    other => other?,
                }
            }
            Ok(())
        })();
        same(answer, wanted.map_err(Some))
    }

    /// One access by a program, or by the kernel for it, with real data.
    pub fn touch(
        &mut self,
        cpu: CpuId,
        slot: u32,
        page: u64,
        kind: Access,
        word: u16,
        value: u64,
    ) -> Check {
        self.recent = page;
        self.remember(Allows::Growth)?;
        let id = self.ids[&slot];
        let address = (page << self.shape.page_shift) | (u64::from(word) * 8);
        let by_kernel = kind != Access::Execute && value & 4 == 0;
        let result = match by_kernel {
            true => self.access_by_kernel(id, address, kind, value),
            false => support::access(&self.vm, cpu, id, address, access(kind), value),
        };
        let answer = match result {
            Ok(found) => Ok(found),
            Err(AccessError::Refused(error)) => fault_answer::<u64>(Err(error))?,
            Err(error) => return Err(error.to_string()),
        };
        if answer == Err(None) {
            self.adopt_after_shortage(slot, page)?;
            return self.short(Some(slot));
        }
        if self.has_folios && kind == Access::Write {
            // Before reclaim or promotion makes other pages of them.
            let around = 1 << (20 - self.shape.page_shift);
            let first = page / around * around;
            self.adopt_folios(slot, first..first + around);
        }
        let stored = (kind == Access::Write).then_some(word);
        self.adopt_dropped(slot, page, stored);
        let accessed = match by_kernel {
            true => self.model.access_by_kernel(slot, page, kind),
            false => self.model.access(slot, page, kind),
        };
        let wanted = accessed.map(|()| {
            if kind == Access::Write {
                self.model.store(slot, page, word, value);
            }
            self.model.word(slot, page, word)
        });
        same(answer, wanted.map_err(Some))
            .map_err(|error| format!("{kind:?} of page {page:#x}, word {word}: {error}"))
    }

    fn access_by_kernel(
        &self,
        id: SpaceId,
        address: u64,
        kind: Access,
        value: u64,
    ) -> Result<u64, AccessError<FaultError>> {
        let space = self.vm.space(id);
        let mut word = value.to_ne_bytes();
        let moved = match kind {
            Access::Write => space.write(address, &word),
            _ => space.read(address, &mut word),
        };
        assert!(
            matches!(moved, Ok(8) | Err(_)),
            "a word in parts: {moved:?}"
        );
        moved.map_err(AccessError::Refused)?;
        Ok(u64::from_ne_bytes(word))
    }

    fn pin(&mut self, slot: u32, start: u64, pages: u64, writes: bool) -> Check {
        let mut frames = vec![Pfn::NONE; pages as usize];
        let (kind, modelled) = match writes {
            true => (addr::Access::Write, Access::Write),
            false => (addr::Access::Read, Access::Read),
        };
        let result = self
            .vm
            .space(self.ids[&slot])
            .pin_pages(Vpn(start), kind, &mut frames);
        // The list keeps them.
        let result = result.map(|pinned| _ = pinned.into_frames());
        let answer = fault_answer(result.map_err(|error| match error {
            PinError::Fault(error) => error,
            PinError::TooManyPins => FaultError::NoSpace,
        }))?;
        if answer == Err(None) {
            self.adopt_after_shortage(slot, start)?;
            return self.short(Some(slot));
        }
        for page in start..start.saturating_add(pages) {
            self.adopt_dropped(slot, page, None);
            if writes && answer.is_ok() {
                self.space(slot).soil(page, 1);
                if let Some(private) = self.space(slot).private.get_mut(&page) {
                    private.freed = false;
                }
            }
        }
        let in_bounds = self.space(slot).check_range(start, pages);
        let wanted = in_bounds.map_err(|_| Refusal::NoRegion).and_then(|()| {
            (start..start + pages).try_for_each(|page| self.model.pin(slot, page, modelled))
        });
        same(answer, wanted.map_err(Some))?;
        if answer.is_ok() {
            let space = &self.model.spaces[&slot];
            let number = |page| space.private.get(&page).map(|private| private.number);
            let numbers = (start..start + pages).map(number);
            let shown = |page| {
                let cell = &space.cells[&page];
                cell.object.map(|key| (key, cell.index))
            };
            self.pins.push(Pinned {
                objects: (start..start + pages).filter_map(shown).collect(),
                numbers: numbers.collect(),
                frames,
            });
        }
        Ok(())
    }
}
