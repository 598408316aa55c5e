//! The reference memory manager: simple, slow, and independent of the core and
//! of the verifier's model. It has frames, page tables (an ordered map for each
//! space), regions in a sorted list, and one lock around everything.
//!
//! It can be built with one [`Defect`], which a verifier has to find.

use std::sync::Mutex;

use vellum_engine::{
    Advice, Backing, Divergence, FileSlot, Op, OpError, Prot, Sharing, SpaceSlot, pristine_word,
    written_word,
};

use super::reference_state::{Content, Entry, Frame, Object, Region, Space, State};

/// Something a memory manager can get wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// Fork leaves private pages writable on both sides.
    CowWithoutCopy,
    /// A copy-on-write break takes a zeroed page instead of a copy.
    CowCopiesNothing,
    /// A store that breaks copy on write is forgotten.
    LostWrite,
    /// Unmapping leaves the TLB as it is.
    MissingFlush,
    /// A store through a mapping does not make the page of the file dirty.
    LostDirty,
    /// Truncation does not reach the page tables.
    DroppedTruncation,
    /// Truncation misses the spaces in odd slots, as if an rmap entry were gone.
    DroppedRmapEntry,
    /// What a truncation cut off comes back when the file grows.
    KeptWhatWasCut,
    /// `mprotect` does not take rights away from mapped pages.
    RightsKept,
    /// `mremap` leaves the contents behind.
    RemapLosesPages,
    /// `write` does not reach the page cache.
    LostFileWrite,
    /// Exit of one task takes a space that others still use.
    ExitTakesAll,
}

/// A point in the work of the reference manager, at which a test can make one
/// CPU wait for another.
pub enum Moment<'o> {
    Before(&'o Op),
    After(&'o Op),
    /// A page was looked at: loaded or peeked.
    Looked,
}

pub type Hook = Box<dyn Fn(Moment<'_>) + Send + Sync>;

pub struct Reference {
    pub(super) cpus: usize,
    pub(super) defect: Option<Defect>,
    hook: Option<Hook>,
    state: Mutex<State>,
}

impl Reference {
    pub fn new(cpus: usize, defect: Option<Defect>) -> Self {
        Self {
            cpus,
            defect,
            hook: None,
            state: Mutex::new(State::default()),
        }
    }

    /// One without defect that calls `hook`, never under its own lock.
    pub fn hooked(cpus: usize, hook: Hook) -> Self {
        Self {
            hook: Some(hook),
            ..Self::new(cpus, None)
        }
    }

    pub(super) fn reached(&self, moment: Moment<'_>) {
        if let Some(hook) = &self.hook {
            hook(moment);
        }
    }

    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Machine<'_>) -> R) -> R {
        let mut state = self.state.lock().expect("no test panics inside");
        work(&mut Machine {
            state: &mut state,
            defect: self.defect,
        })
    }
}

/// The state under lock, with the defect.
pub(super) struct Machine<'s> {
    pub(super) state: &'s mut State,
    pub(super) defect: Option<Defect>,
}

impl Machine<'_> {
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(super) fn space(&mut self, slot: SpaceSlot) -> Result<&mut Space, OpError> {
        self.state.spaces.get_mut(&slot.0).ok_or(OpError::BadSpace)
    }

    pub(super) fn frame(&mut self, frame: Frame) -> usize {
        self.state.frames.push(frame);
        self.state.frames.len() - 1
    }

    fn new_space(&mut self, slot: SpaceSlot, space: Space) -> Result<(), OpError> {
        match self.state.spaces.insert(slot.0, space) {
            None => Ok(()),
            Some(_) => Err(OpError::BadSpace),
        }
    }

    pub(super) fn run(&mut self, op: &Op) -> Result<Option<Divergence>, OpError> {
        match *op {
            Op::Touch {
                space,
                page,
                access,
            } => {
                let mapped = self.fault(space, page, access)?;
                self.state.faults += u64::from(!mapped);
                return Ok(mapped.then_some(Divergence::AlreadyMapped));
            }
            Op::Create { space } => self.new_space(space, one_user(Space::default()))?,
            Op::Fork { parent, child } => self.fork(parent, child)?,
            Op::Share { space } => self.space(space)?.users += 1,
            Op::Exec { old, new } => {
                self.leave(old)?;
                self.new_space(new, one_user(Space::default()))?;
            }
            Op::Exit { space } => self.leave(space)?,
            Op::Map { .. } => self.map(op)?,
            Op::Unmap { space, page, pages } => self.unmap(space, page, page + pages)?,
            Op::Protect {
                space,
                page,
                pages,
                prot,
            } => self.protect(space, page, page + pages, prot)?,
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => self.remap(
                space,
                (page, page + pages),
                (new_page, new_page + new_pages),
            )?,
            Op::Brk { space, start, end } => self.brk(space, start, end)?,
            Op::Advise {
                space,
                page,
                pages,
                advice,
            } => self.advise(space, page, page + pages, advice)?,
            Op::FileOpen { file, pages } | Op::TmpfsOpen { file, pages } => self.open(file, pages),
            Op::FileRead { file, page, pages } => {
                for page in page..page + pages {
                    self.object_page(Object::File(file.0), page)?;
                }
            }
            Op::FileWrite { file, page, pages } => self.file_write(file, page, page + pages)?,
            Op::Truncate { file, pages } => self.truncate(file, pages)?,
            Op::ScanSpace { .. }
            | Op::ScanFile { .. }
            | Op::EmptyCaches
            | Op::Idle { .. }
            | Op::Call(_)
            | Op::Lap { .. } => {}
        }
        Ok(None)
    }

    fn fork(&mut self, parent: SpaceSlot, child: SpaceSlot) -> Result<(), OpError> {
        let write_protect = !self.has(Defect::CowWithoutCopy);
        let space = self.space(parent)?;
        let regions = space.regions.clone();
        for (page, entry) in &mut space.entries {
            let shared = regions
                .iter()
                .any(|r| r.shared && r.start <= *page && *page < r.end);
            entry.writable &= shared || !write_protect;
        }
        let copy = one_user(space.clone());
        self.new_space(child, copy)
    }

    fn leave(&mut self, slot: SpaceSlot) -> Result<(), OpError> {
        let takes_all = self.has(Defect::ExitTakesAll);
        let space = self.space(slot)?;
        space.users -= 1;
        if space.users == 0 || takes_all {
            self.state.spaces.remove(&slot.0);
            self.state.tlb.retain(|(space, _), _| *space != slot.0);
        }
        Ok(())
    }

    fn map(&mut self, op: &Op) -> Result<(), OpError> {
        let Op::Map {
            space,
            page,
            pages,
            prot,
            sharing,
            backing,
            grows_down,
        } = *op
        else {
            return Err(OpError::Invalid);
        };
        let shared = sharing == Sharing::Shared;
        let object = match backing {
            Backing::File { file, page } => Some((Object::File(file.0), page)),
            Backing::Anonymous if shared => {
                let object = Object::Shared(self.state.next_shared);
                self.state.next_shared += 1;
                self.state.objects.insert(object, Content::default());
                Some((object, 0))
            }
            Backing::Anonymous => None,
        };
        if let Some((object, _)) = object
            && !self.state.objects.contains_key(&object)
        {
            return Err(OpError::BadFile);
        }
        self.drop_range(space, page, page + pages)?;
        let space = self.space(space)?;
        space.isolate(page, page + pages);
        space
            .regions
            .retain(|r| r.end <= page || page + pages <= r.start);
        space.insert(Region {
            start: page,
            end: page + pages,
            prot,
            shared,
            grows_down,
            object,
        });
        Ok(())
    }

    /// Takes the entries of a range out of the page table and the TLB.
    fn drop_range(&mut self, slot: SpaceSlot, start: u64, end: u64) -> Result<(), OpError> {
        let flush = !self.has(Defect::MissingFlush);
        let space = self.space(slot)?;
        space
            .entries
            .retain(|page, _| *page < start || end <= *page);
        if flush {
            self.state
                .tlb
                .retain(|(s, page), _| *s != slot.0 || *page < start || end <= *page);
        }
        Ok(())
    }

    fn unmap(&mut self, slot: SpaceSlot, start: u64, end: u64) -> Result<(), OpError> {
        self.drop_range(slot, start, end)?;
        let space = self.space(slot)?;
        space.isolate(start, end);
        space.regions.retain(|r| r.end <= start || end <= r.start);
        Ok(())
    }

    fn protect(
        &mut self,
        slot: SpaceSlot,
        start: u64,
        end: u64,
        prot: Prot,
    ) -> Result<(), OpError> {
        let keeps = self.has(Defect::RightsKept);
        let space = self.space(slot)?;
        space.isolate(start, end);
        for region in &mut space.regions {
            if start <= region.start && region.end <= end {
                region.prot = prot;
            }
        }
        if !prot.write && !keeps {
            for (_, entry) in space.entries.range_mut(start..end) {
                entry.writable = false;
            }
        }
        Ok(())
    }

    fn remap(&mut self, slot: SpaceSlot, old: (u64, u64), new: (u64, u64)) -> Result<(), OpError> {
        let loses = self.has(Defect::RemapLosesPages);
        let kept = (old.1 - old.0).min(new.1 - new.0);
        self.unmap(slot, old.0 + kept, old.1)?;
        let moves = old.0 != new.0;
        if moves {
            self.unmap(slot, new.0, new.1)?;
        }
        let space = self.space(slot)?;
        space.isolate(old.0, old.0 + kept);
        let region = *space.region(old.0).ok_or(OpError::NoRegion)?;
        if region.end != old.0 + kept {
            return Err(OpError::NoRegion);
        }
        let entries: Vec<(u64, Entry)> = space
            .entries
            .range(old.0..old.0 + kept)
            .map(|(page, entry)| (page - old.0 + new.0, *entry))
            .collect();
        self.unmap(slot, old.0, old.0 + kept)?;
        let space = self.space(slot)?;
        space.insert(Region {
            start: new.0,
            end: new.1,
            ..region
        });
        if !(loses && moves) {
            space.entries.extend(entries);
        }
        Ok(())
    }

    fn brk(&mut self, slot: SpaceSlot, start: u64, end: u64) -> Result<(), OpError> {
        let space = self.space(slot)?;
        let before = space.heap.map_or(start, |(_, end)| end);
        space.heap = Some((start, end));
        if end < before {
            return self.unmap(slot, end, before);
        }
        self.unmap(slot, before, end)?;
        self.space(slot)?.insert(Region {
            start: before,
            end,
            prot: Prot {
                read: true,
                write: true,
                execute: false,
            },
            shared: false,
            grows_down: false,
            object: None,
        });
        Ok(())
    }

    fn advise(
        &mut self,
        slot: SpaceSlot,
        start: u64,
        end: u64,
        advice: Advice,
    ) -> Result<(), OpError> {
        match advice {
            Advice::DontNeed => self.drop_range(slot, start, end),
            Advice::Free => {
                // Some pages are taken at once, some never: both are allowed.
                for page in (start..end).filter(|page| page % 2 == 0) {
                    self.drop_range(slot, page, page + 1)?;
                }
                Ok(())
            }
            Advice::Cold | Advice::PageOut | Advice::Folio(_) => Ok(()),
        }
    }

    fn open(&mut self, file: FileSlot, pages: u64) {
        self.state
            .objects
            .entry(Object::File(file.0))
            .or_insert(Content {
                length: Some(pages),
                holes_from: pages,
                ..Content::default()
            });
    }

    /// The frame of a page of an object, read in if needed.
    pub(super) fn object_page(&mut self, object: Object, page: u64) -> Result<usize, OpError> {
        let content = self.state.objects.get(&object).ok_or(OpError::BadFile)?;
        if content.length.is_some_and(|length| page >= length) {
            return Err(OpError::PastEnd);
        }
        if let Some(frame) = content.pages.get(&page) {
            return Ok(*frame);
        }
        let frame = match (object, content.stored.get(&page)) {
            (_, Some(stored)) => stored.clone(),
            (Object::File(file), None) if page < content.holes_from => {
                Frame::filled(pristine_word(u64::from(file), page))
            }
            _ => Frame::filled(0),
        };
        let frame = self.frame(frame);
        if let Some(content) = self.state.objects.get_mut(&object) {
            content.pages.insert(page, frame);
        }
        Ok(frame)
    }

    fn file_write(&mut self, file: FileSlot, start: u64, end: u64) -> Result<(), OpError> {
        let object = Object::File(file.0);
        let content = self.state.objects.get_mut(&object);
        let content = content.ok_or(OpError::BadFile)?;
        content.length = content.length.map(|length| length.max(end));
        for page in start..end {
            let frame = self.object_page(object, page)?;
            if self.has(Defect::LostFileWrite) {
                continue;
            }
            self.state.frames[frame] = Frame::filled(written_word(u64::from(file.0), page));
            if let Some(content) = self.state.objects.get_mut(&object) {
                content.dirty.insert(page);
            }
        }
        Ok(())
    }

    fn truncate(&mut self, file: FileSlot, pages: u64) -> Result<(), OpError> {
        let keeps = self.has(Defect::KeptWhatWasCut);
        let object = Object::File(file.0);
        let content = self.state.objects.get_mut(&object);
        let content = content.ok_or(OpError::BadFile)?;
        content.length = Some(pages);
        content.pages.retain(|page, _| *page < pages);
        content.dirty.retain(|page| *page < pages);
        if !keeps {
            content.holes_from = content.holes_from.min(pages);
            content.stored.retain(|page, _| *page < pages);
        }
        if self.has(Defect::DroppedTruncation) {
            return Ok(());
        }
        let slots: Vec<u32> = self.state.spaces.keys().copied().collect();
        for slot in slots {
            if self.has(Defect::DroppedRmapEntry) && slot % 2 == 1 {
                continue;
            }
            let regions = self.space(SpaceSlot(slot))?.regions.clone();
            for region in regions {
                if let Some((of, first)) = region.object
                    && of == object
                {
                    let cut = region.start + pages.saturating_sub(first);
                    self.drop_range(SpaceSlot(slot), cut.min(region.end), region.end)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn sync(&mut self) {
        for content in self.state.objects.values_mut() {
            for page in std::mem::take(&mut content.dirty) {
                if let Some(frame) = content.pages.get(&page) {
                    content
                        .stored
                        .insert(page, self.state.frames[*frame].clone());
                }
            }
        }
    }

    /// Every entry lies in a region, and inside its object.
    pub(super) fn audit(&self) -> Result<(), String> {
        for (slot, space) in &self.state.spaces {
            for page in space.entries.keys() {
                if space.region(*page).is_none() {
                    return Err(format!("space {slot}: page {page:#x} is in no region"));
                }
            }
        }
        Ok(())
    }

    /// Reads a word of a frame.
    pub(super) fn word(&self, frame: usize, offset: u64) -> u64 {
        self.state.frames[frame].word(offset)
    }

    /// Writes a word of a frame.
    pub(super) fn set_word(&mut self, frame: usize, offset: u64, value: u64) {
        self.state.frames[frame].words.insert(offset, value);
    }
}

fn one_user(space: Space) -> Space {
    Space { users: 1, ..space }
}
