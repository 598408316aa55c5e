//! The system calls that change a space: mmap, munmap, mprotect, mremap, brk,
//! madvise.

use vellum_engine::{Advice, Backing, Op, Prot, Sharing};

use super::{
    Done, PAGE_SHIFT, Translator, USER_PAGES, changes_space, prot_of, slot, user_pages, uses_file,
};
use crate::replay::prepare::schedule::Use;
use crate::replay::regions::{Region, Source};
use crate::replay::workload::Class;
use vellum_trace::{EventKind, MapOrigin};

/// `MADV_*` numbers with a meaning for what is resident.
const MADV_DONTNEED: u32 = 4;
const MADV_FREE: u32 = 8;
const MADV_COLD: u32 = 20;
const MADV_PAGEOUT: u32 = 21;
const MADV_POPULATE_READ: u32 = 22;
const MADV_POPULATE_WRITE: u32 = 23;
const MADV_DONTNEED_LOCKED: u32 = 24;

/// Pages that one call may populate at most: 64 GiB.
const POPULATE_MOST: u64 = 1 << 24;

impl Translator<'_> {
    pub(super) fn map(&mut self, task: usize, kind: EventKind) -> Done {
        let EventKind::Map {
            address,
            length,
            prot,
            shared,
            grows_down,
            file,
            offset,
            origin,
        } = kind
        else {
            return Ok(());
        };
        let Some((start, end)) = user_pages(address, length) else {
            self.repairs.meaningless += 1;
            return Ok(());
        };
        if grows_down && self.is_stack_growth(task, start, end) {
            self.repairs.stack_regrown += 1;
            return Ok(());
        }
        let source = match file {
            Some(file) => Source::File {
                file: self.file_slot(task, file)?.0,
                page: offset >> PAGE_SHIFT,
            },
            None if shared => {
                self.objects += 1;
                Source::Object {
                    object: self.objects,
                    page: 0,
                }
            }
            None => Source::Anonymous,
        };
        let region = Region {
            start,
            end,
            prot: prot_of(prot),
            shared,
            grows_down,
            source,
        };
        let class = match origin {
            MapOrigin::Mmap => Class::Map,
            MapOrigin::Exec => Class::Exec,
        };
        self.put_map(task, region, class)
    }

    /// Maps `region` in the space of `task`.
    fn put_map(&mut self, task: usize, region: Region, class: Class) -> Done {
        let space = self.tasks[task].space;
        let mut uses: Vec<Use> = vec![changes_space(space)];
        let backing = match region.source {
            Source::File { file, page } => {
                uses.push(uses_file(file));
                Backing::File { file, page }
            }
            Source::Anonymous | Source::Object { .. } => Backing::Anonymous,
        };
        let op = Op::Map {
            space: slot(space),
            page: region.start,
            pages: region.end - region.start,
            prot: region.prot,
            sharing: match region.shared {
                true => Sharing::Shared,
                false => Sharing::Private,
            },
            backing,
            grows_down: region.grows_down,
        };
        self.put(task, op, class, &uses)?;
        let state = self.space(task);
        state.unmap(region.start, region.end);
        state.regions.insert(region);
        Ok(())
    }

    /// The kernel reports a stack again, with its whole range, when it grows.
    fn is_stack_growth(&mut self, task: usize, start: u64, end: u64) -> bool {
        let parts = self.space(task).regions.parts(start, end);
        !parts.is_empty() && parts.iter().all(|part| part.grows_down)
    }

    pub(super) fn unmap(&mut self, task: usize, address: u64, length: u64) -> Done {
        let Some((start, end)) = user_pages(address, length) else {
            self.repairs.meaningless += 1;
            return Ok(());
        };
        if self.space(task).regions.parts(start, end).is_empty() {
            self.repairs.unknown_range += 1;
            return Ok(());
        }
        self.put_unmap(task, start, end, Class::Unmap)
    }

    /// Unmaps `start..end`, where something is mapped.
    fn put_unmap(&mut self, task: usize, start: u64, end: u64, class: Class) -> Done {
        let space = self.tasks[task].space;
        let op = Op::Unmap {
            space: slot(space),
            page: start,
            pages: end - start,
        };
        self.put(task, op, class, &[changes_space(space)])?;
        self.space(task).unmap(start, end);
        Ok(())
    }

    /// The known stretches of `start..end` without gaps, after counting a
    /// repair if there is a gap.
    fn stretches(&mut self, task: usize, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for part in self.space(task).regions.parts(start, end) {
            match stretches.last_mut() {
                Some(last) if last.1 == part.start => last.1 = part.end,
                _ => stretches.push((part.start, part.end)),
            }
        }
        if stretches[..] != [(start, end)] {
            self.repairs.unknown_range += 1;
        }
        stretches
    }

    pub(super) fn protect(
        &mut self,
        task: usize,
        address: u64,
        length: u64,
        prot: vellum_trace::Prot,
    ) -> Done {
        let Some((start, end)) = user_pages(address, length) else {
            self.repairs.meaningless += 1;
            return Ok(());
        };
        let prot: Prot = prot_of(prot);
        let space = self.tasks[task].space;
        for (start, end) in self.stretches(task, start, end) {
            let op = Op::Protect {
                space: slot(space),
                page: start,
                pages: end - start,
                prot,
            };
            self.put(task, op, Class::Protect, &[changes_space(space)])?;
            self.space(task).regions.protect(start, end, prot);
        }
        Ok(())
    }

    pub(super) fn remap(&mut self, task: usize, from: (u64, u64), to: (u64, u64)) -> Done {
        let (Some((start, end)), Some((to, to_end))) =
            (user_pages(from.0, from.1), user_pages(to.0, to.1))
        else {
            self.repairs.meaningless += 1;
            return Ok(());
        };
        let parts = self.space(task).regions.parts(start, end);
        let known: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let Some(last) = parts.last().copied().filter(|_| known == end - start) else {
            return self.remap_unknown(task, (start, end), (to, to_end));
        };
        // The kernel has one region here; ours may be in pieces, which move
        // one by one. What is cut off goes first, growth comes last.
        let kept = (to_end - to).min(end - start);
        if kept < end - start {
            self.put_unmap(task, start + kept, end, Class::Remap)?;
        }
        self.clear_target(task, (start, end), (to, to_end))?;
        for part in parts.iter().filter(|part| part.start < start + kept) {
            let pages = part.end.min(start + kept) - part.start;
            let grown = match part.start == last.start {
                true => to_end - (to + (part.start - start)),
                false => pages,
            };
            let target = to + (part.start - start);
            if target != part.start || grown != pages {
                self.put_remap(task, part, pages, target, grown)?;
            }
        }
        Ok(())
    }

    /// Unmaps what the trace knows at the target of a move or a growth.
    fn clear_target(&mut self, task: usize, old: (u64, u64), new: (u64, u64)) -> Done {
        let target = match old.0 == new.0 {
            true => (old.1, new.1),
            false => new,
        };
        if target.0 < target.1
            && !self
                .space(task)
                .regions
                .parts(target.0, target.1)
                .is_empty()
        {
            self.put_unmap(task, target.0, target.1, Class::Remap)?;
        }
        Ok(())
    }

    /// Moves or grows `pages` pages of `part`, which lie in one region.
    fn put_remap(&mut self, task: usize, part: &Region, pages: u64, to: u64, grown: u64) -> Done {
        let space = self.tasks[task].space;
        let op = Op::Remap {
            space: slot(space),
            page: part.start,
            pages,
            new_page: to,
            new_pages: grown,
        };
        self.put(task, op, Class::Remap, &[changes_space(space)])?;
        let state = self.space(task);
        let end = part.start + pages;
        state.regions.remove(part.start, end);
        if to != part.start {
            state.presence.relocate(part.start, end, to);
        }
        let mut moved = part.moved_to(to);
        moved.end = to + grown;
        state.regions.insert(moved);
        Ok(())
    }

    /// Something unknown moved: its new place is mapped anonymously.
    fn remap_unknown(&mut self, task: usize, old: (u64, u64), new: (u64, u64)) -> Done {
        self.repairs.unknown_range += 1;
        if !self.space(task).regions.parts(old.0, old.1).is_empty() {
            self.put_unmap(task, old.0, old.1, Class::Remap)?;
        }
        let region = Region::anonymous(new.0, new.1);
        self.put_map(task, region, Class::Remap)
    }

    pub(super) fn brk(&mut self, task: usize, end: u64) -> Done {
        let end = end.div_ceil(1 << PAGE_SHIFT);
        // The first call asks where the heap is.
        let (start, before) = *self.space(task).heap.get_or_insert((end, end));
        if end < start || end > USER_PAGES {
            self.repairs.meaningless += 1;
            return Ok(());
        }
        if end == before {
            return Ok(());
        }
        let space = self.tasks[task].space;
        let op = Op::Brk {
            space: slot(space),
            start,
            end,
        };
        self.put(task, op, Class::Brk, &[changes_space(space)])?;
        let state = self.space(task);
        state.heap = Some((start, end));
        if end < before {
            state.unmap(end, before);
        } else {
            state.unmap(before, end);
            state.regions.insert(Region::anonymous(before, end));
        }
        Ok(())
    }

    pub(super) fn advise(&mut self, task: usize, address: u64, length: u64, advice: u32) -> Done {
        let Some((start, end)) = user_pages(address, length) else {
            self.repairs.meaningless += 1;
            return Ok(());
        };
        match advice {
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => self.drop_now(task, start, end),
            MADV_FREE => self.drop_later(task, start, end),
            MADV_COLD => self.put_advice_on_mapped(task, start, end, Advice::Cold),
            MADV_PAGEOUT => self.put_advice_on_mapped(task, start, end, Advice::PageOut),
            MADV_POPULATE_READ => self.populate(task, start, end, vellum_engine::Access::Read),
            MADV_POPULATE_WRITE => self.populate(task, start, end, vellum_engine::Access::Write),
            _ => Ok(()),
        }
    }

    fn drop_now(&mut self, task: usize, start: u64, end: u64) -> Done {
        for (start, end) in self.stretches(task, start, end) {
            self.put_advise(task, start, end, Advice::DontNeed)?;
            self.space(task).presence.forget(start, end);
        }
        Ok(())
    }

    fn drop_later(&mut self, task: usize, start: u64, end: u64) -> Done {
        self.stretches(task, start, end);
        // The call is only valid for private anonymous memory.
        let parts = self.space(task).regions.parts(start, end);
        for part in parts.iter().filter(|p| p.source == Source::Anonymous) {
            self.put_advise(task, part.start, part.end, Advice::Free)?;
        }
        Ok(())
    }

    fn put_advice_on_mapped(&mut self, task: usize, start: u64, end: u64, advice: Advice) -> Done {
        for (start, end) in self.stretches(task, start, end) {
            self.put_advise(task, start, end, advice)?;
        }
        Ok(())
    }

    fn put_advise(&mut self, task: usize, start: u64, end: u64, advice: Advice) -> Done {
        let space = self.tasks[task].space;
        let op = Op::Advise {
            space: slot(space),
            page: start,
            pages: end - start,
            advice,
        };
        self.put(task, op, Class::Advise, &[changes_space(space)])?;
        Ok(())
    }

    /// The kernel touched every page of the range, without recorded faults. It
    /// cannot have touched more pages than its machine had.
    fn populate(
        &mut self,
        task: usize,
        start: u64,
        end: u64,
        access: vellum_engine::Access,
    ) -> Done {
        let most = (self.header.environment.memory >> PAGE_SHIFT).min(POPULATE_MOST);
        if end - start > most {
            self.repairs.meaningless += 1;
            return Ok(());
        }
        for (start, end) in self.stretches(task, start, end) {
            for page in start..end {
                self.fault(task, page, access, Class::Advise)?;
            }
        }
        Ok(())
    }
}
