//! The independent model: what every page must hold.
//!
//! It follows operations by their meaning in POSIX and Linux, over ordered maps,
//! and shares no code with the core. It knows nothing of frames or page tables:
//! a private page that was not written shows its source; one that was written
//! has words of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vellum_engine::{
    Access, Backing, FileSlot, Op, OpError, Sharing, SpaceSlot, pristine_word, written_word,
};

mod space;

use super::clocks::{Clocks, Place};
use super::word::{Page, Word};
use crate::replay::regions::{Region, Regions, Source};

/// What the model knows of one space.
#[derive(Clone, Default, Debug)]
pub struct Space {
    /// Its regions.
    pub regions: Regions,
    /// Private pages that were written, by page number.
    pub private: BTreeMap<u64, Page>,
    /// Pages that were touched since they were mapped.
    pub touched: BTreeSet<u64>,
    /// Spaces that may share frames with this one since a fork.
    pub relatives: Vec<(u32, u64)>,
    /// Tells apart the spaces that use one slot one after the other.
    pub generation: u64,
    /// Tasks in it.
    pub users: u32,
    heap: Option<(u64, u64)>,
}

/// What the model knows of one file.
#[derive(Debug)]
pub struct File {
    /// Length in pages.
    pub pages: u64,
    /// Pages that were written. What is cut off then is written as well: by zeroes.
    pub written: HashMap<u64, Page>,
    /// The last operation that wrote or truncated it.
    pub changed: Option<Place>,
    /// It has no store: what was not written, or was cut off, is zero.
    in_memory: bool,
    /// Its length when it was opened. What the store holds past that is its own business.
    opened: u64,
    /// Truncations, by ascending first page that they cut off; none was followed by one that cut
    /// off as much.
    cuts: Vec<(u64, Place)>,
}

impl File {
    /// A page that was never written, and held `pristine` when the file was opened.
    fn unwritten(&self, page: u64, pristine: u64) -> Page {
        let covering = self.cuts.partition_point(|(first, _)| *first <= page);
        match self.cuts[..covering].last() {
            Some((_, by)) => Page::cut(pristine, *by),
            None => Page::initial(pristine, page >= self.opened && !self.in_memory),
        }
    }

    /// `by` cuts off everything from page `first` on.
    fn cut(&mut self, first: u64, by: Place, clocks: &Clocks, barrier: &[u32]) {
        self.cuts.retain(|(other, _)| *other < first);
        self.cuts.push((first, by));
        for (_, content) in self.written.iter_mut().filter(|(page, _)| **page >= first) {
            for word in &mut content.words {
                word.write(0, by, clocks, barrier);
            }
            content.counted = false;
        }
    }
}

/// The whole model.
pub struct Model {
    /// Spaces by slot; `None` where there is none.
    pub spaces: Vec<Option<Space>>,
    /// Files by slot.
    pub files: Vec<Option<File>>,
    /// Written pages of shared anonymous memory, by object and page.
    objects: HashMap<(u32, u64), Page>,
    next_object: u32,
    next_generation: u64,
    /// Where each CPU's stream was when the slice began.
    pub barrier: Vec<u32>,
}

impl Model {
    /// An empty model for so many slots and CPUs.
    pub fn new(spaces: usize, files: usize, cpus: usize) -> Self {
        Self {
            spaces: (0..spaces).map(|_| None).collect(),
            files: (0..files).map(|_| None).collect(),
            objects: HashMap::new(),
            next_object: 0,
            next_generation: 1,
            barrier: vec![0; cpus],
        }
    }

    /// The space in `slot`, if there is one.
    pub fn space(&self, slot: SpaceSlot) -> Option<&Space> {
        self.spaces.get(slot.0 as usize)?.as_ref()
    }

    /// As [`Model::space`], to change it.
    pub fn space_mut(&mut self, slot: SpaceSlot) -> Option<&mut Space> {
        self.spaces.get_mut(slot.0 as usize)?.as_mut()
    }

    fn fresh(&mut self) -> Space {
        self.next_generation += 1;
        Space {
            users: 1,
            generation: self.next_generation,
            ..Space::default()
        }
    }

    /// What an access must come to, after growing the stack as it would.
    pub fn access(
        &mut self,
        slot: SpaceSlot,
        page: u64,
        access: Access,
    ) -> Result<Region, OpError> {
        let space = self.space_mut(slot).ok_or(OpError::BadSpace)?;
        if space.regions.at(page).is_none() {
            space.regions.grow_stack(page);
        }
        let region = *space.regions.at(page).ok_or(OpError::NoRegion)?;
        if !region.allows(access) {
            return Err(OpError::Protection);
        }
        match region.file_page(page) {
            Some((file, file_page)) if file_page >= self.file_pages(file) => Err(OpError::PastEnd),
            _ => Ok(region),
        }
    }

    /// Length of `file` in pages.
    pub fn file_pages(&self, file: FileSlot) -> u64 {
        match self.files.get(file.0 as usize) {
            Some(Some(file)) => file.pages,
            _ => 0,
        }
    }

    /// Whether a file is on a tmpfs.
    pub fn is_in_memory(&self, file: FileSlot) -> bool {
        let known = self.files.get(file.0 as usize).and_then(Option::as_ref);
        known.is_some_and(|file| file.in_memory)
    }

    /// What a watched word of a file holds that nobody has written.
    pub fn pristine(&self, file: FileSlot, page: u64) -> u64 {
        match self.is_in_memory(file) {
            true => 0,
            false => pristine_word(u64::from(file.0), page),
        }
    }

    /// Whether the page was ever cut off the file.
    pub fn was_cut(&self, file: FileSlot, page: u64) -> bool {
        let known = self.files.get(file.0 as usize).and_then(Option::as_ref);
        known.is_some_and(|file| file.cuts.iter().any(|(first, _)| *first <= page))
    }

    /// The page of a file as the page cache must have it.
    pub fn file_content(&self, file: FileSlot, page: u64) -> Page {
        let pristine = self.pristine(file, page);
        match self.files.get(file.0 as usize) {
            Some(Some(known)) => match known.written.get(&page) {
                Some(content) => content.clone(),
                None => known.unwritten(page, pristine),
            },
            _ => Page::initial(pristine, true),
        }
    }

    /// What page `page` of `region` shows if it has no words of its own.
    fn source_content(&self, region: &Region, page: u64) -> Page {
        let offset = page - region.start;
        match region.source {
            Source::Anonymous => Page::initial(0, false),
            Source::Object {
                object,
                page: first,
            } => self
                .objects
                .get(&(object, first + offset))
                .cloned()
                .unwrap_or_else(|| Page::initial(0, false)),
            Source::File { file, page: first } => self.file_content(file, first + offset),
        }
    }

    /// What `page` of the space in `slot` must hold.
    pub fn content(&self, slot: SpaceSlot, page: u64) -> Option<Page> {
        let space = self.space(slot)?;
        let region = space.regions.at(page)?;
        match space.private.get(&page) {
            Some(content) => Some(content.clone()),
            None => Some(self.source_content(region, page)),
        }
    }

    /// `by` is about to store `value` in watched word `index` of `page`, which
    /// lies in `region`. Says whether the page was never written before.
    pub fn store(
        &mut self,
        slot: SpaceSlot,
        region: &Region,
        page: u64,
        (index, value): (usize, u64),
        by: Place,
        clocks: &Clocks,
    ) -> bool {
        let source = self.source_content(region, page);
        let barrier = std::mem::take(&mut self.barrier);
        let content = match (region.shared, region.source) {
            (false, _) => self.space_mut(slot).map(|space| {
                let copy = || source.copied(by, clocks);
                space.private.entry(page).or_insert_with(copy)
            }),
            (true, Source::File { file, page: first }) => match &mut self.files[file.0 as usize] {
                Some(file) => {
                    let page = first + (page - region.start);
                    Some(file.written.entry(page).or_insert(source))
                }
                None => None,
            },
            (
                true,
                Source::Object {
                    object,
                    page: first,
                },
            ) => {
                let key = (object, first + (page - region.start));
                Some(self.objects.entry(key).or_insert(source))
            }
            (true, Source::Anonymous) => None,
        };
        let first = content.is_some_and(|content| {
            content.words[index].write(value, by, clocks, &barrier);
            !std::mem::replace(&mut content.counted, true)
        });
        self.barrier = barrier;
        first
    }

    /// The store at `page` may have copied something that was written to its
    /// source at the same time: takes that in.
    pub fn absorb_source(
        &mut self,
        slot: SpaceSlot,
        region: &Region,
        page: u64,
        (index, by): (usize, Place),
        clocks: &Clocks,
    ) {
        if region.shared || region.source == Source::Anonymous {
            return;
        }
        let source = self.source_content(region, page);
        if let Some(content) = self.space_mut(slot).and_then(|s| s.private.get_mut(&page)) {
            let other = 1 - index;
            content.words[other].merge(&source.words[other], by, clocks);
        }
    }

    /// Follows an operation that is not a touch.
    pub fn apply(&mut self, op: &Op, by: Place, clocks: &Clocks) {
        match *op {
            Op::Create { space } => {
                let fresh = self.fresh();
                self.put(space, Some(fresh));
            }
            Op::Fork { parent, child } => self.fork(parent, child),
            Op::Share { space } => {
                if let Some(space) = self.space_mut(space) {
                    space.users += 1;
                }
            }
            Op::Exec { old, new } => {
                self.leave(old);
                let fresh = self.fresh();
                self.put(new, Some(fresh));
            }
            Op::Exit { space } => self.leave(space),
            Op::Map { .. } => self.map(op),
            Op::Unmap { space, page, pages } => self.unmap(space, page, page + pages),
            Op::Protect {
                space,
                page,
                pages,
                prot,
            } => {
                if let Some(space) = self.space_mut(space) {
                    space.regions.protect(page, page + pages, prot);
                }
            }
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => {
                if let Some(space) = self.space_mut(space) {
                    space.remap((page, page + pages), (new_page, new_page + new_pages));
                }
            }
            Op::Brk { space, start, end } => {
                if let Some(space) = self.space_mut(space) {
                    space.brk(start, end);
                }
            }
            Op::Advise {
                space,
                page,
                pages,
                advice,
            } => {
                if let Some(space) = self.space_mut(space) {
                    space.advise(page, page + pages, advice);
                }
            }
            Op::FileOpen { file, pages } => self.open(file, pages, false),
            Op::TmpfsOpen { file, pages } => self.open(file, pages, true),
            Op::FileWrite { file, page, pages } => self.file_write(file, page, page + pages, by),
            Op::Truncate { file, pages } => self.truncate(file, pages, by, clocks),
            Op::Touch { .. }
            | Op::FileRead { .. }
            | Op::ScanSpace { .. }
            | Op::ScanFile { .. }
            | Op::EmptyCaches
            | Op::Idle { .. }
            | Op::Call(_)
            | Op::Lap { .. } => {}
        }
    }

    fn put(&mut self, slot: SpaceSlot, space: Option<Space>) {
        if let Some(entry) = self.spaces.get_mut(slot.0 as usize) {
            *entry = space;
        }
    }

    fn fork(&mut self, parent: SpaceSlot, child: SpaceSlot) {
        let generation = self.fresh().generation;
        let Some(space) = self.space(parent) else {
            return;
        };
        let copy = Space {
            users: 1,
            generation,
            relatives: vec![(parent.0, space.generation)],
            ..space.clone()
        };
        let mut family = self.living(space.relatives.clone());
        family.push((child.0, generation));
        if let Some(space) = self.space_mut(parent) {
            space.relatives = family;
        }
        self.put(child, Some(copy));
    }

    /// Those of `relatives` that still are the spaces they were.
    fn living(&self, mut relatives: Vec<(u32, u64)>) -> Vec<(u32, u64)> {
        relatives.retain(|(slot, generation)| {
            self.space(SpaceSlot(*slot))
                .is_some_and(|space| space.generation == *generation)
        });
        relatives
    }

    /// Slots of living spaces that may share frames with the one in `slot`.
    pub fn relatives(&self, slot: SpaceSlot) -> Vec<SpaceSlot> {
        let known = self.space(slot).map(|space| space.relatives.clone());
        self.living(known.unwrap_or_default())
            .into_iter()
            .map(|(slot, _)| SpaceSlot(slot))
            .collect()
    }

    fn leave(&mut self, slot: SpaceSlot) {
        if let Some(space) = self.space_mut(slot) {
            space.users -= 1;
            if space.users == 0 {
                self.put(slot, None);
            }
        }
    }

    fn map(&mut self, op: &Op) {
        let Op::Map {
            space: slot,
            page,
            pages,
            prot,
            sharing,
            backing,
            grows_down,
        } = *op
        else {
            return;
        };
        let shared = sharing == Sharing::Shared;
        let source = match backing {
            Backing::File { file, page } => Source::File { file, page },
            Backing::Anonymous if shared => {
                self.next_object += 1;
                Source::Object {
                    object: self.next_object,
                    page: 0,
                }
            }
            Backing::Anonymous => Source::Anonymous,
        };
        if let Some(space) = self.space_mut(slot) {
            space.drop_pages(page, page + pages);
            space.regions.insert(Region {
                start: page,
                end: page + pages,
                prot,
                shared,
                grows_down,
                source,
            });
        }
    }

    fn unmap(&mut self, slot: SpaceSlot, start: u64, end: u64) {
        if let Some(space) = self.space_mut(slot) {
            space.drop_pages(start, end);
            space.regions.remove(start, end);
        }
    }

    fn open(&mut self, file: FileSlot, pages: u64, in_memory: bool) {
        if let Some(entry @ None) = self.files.get_mut(file.0 as usize) {
            *entry = Some(File {
                pages,
                written: HashMap::new(),
                changed: None,
                in_memory,
                opened: pages,
                cuts: Vec::new(),
            });
        }
    }

    fn file_write(&mut self, file: FileSlot, start: u64, end: u64, by: Place) {
        let key = u64::from(file.0);
        if let Some(Some(file)) = self.files.get_mut(file.0 as usize) {
            file.pages = file.pages.max(end);
            file.changed = Some(by);
            for page in start..end {
                let value = written_word(key, page);
                let content = Page {
                    words: [Word::replaced(value, by), Word::replaced(value, by)],
                    counted: true,
                };
                file.written.insert(page, content);
            }
        }
    }

    /// Pages past the new end vanish from every mapping, written private copies
    /// included, as `truncate` has it, and are zero if the file grows again.
    fn truncate(&mut self, slot: FileSlot, pages: u64, by: Place, clocks: &Clocks) {
        let Some(Some(file)) = self.files.get_mut(slot.0 as usize) else {
            return;
        };
        let grows = pages > file.pages;
        file.pages = pages;
        file.changed = Some(by);
        if grows {
            return;
        }
        file.cut(pages, by, clocks, &self.barrier);
        for space in self.spaces.iter_mut().flatten() {
            for (start, end) in space.mapped_past(slot, pages) {
                space.drop_pages(start, end);
            }
        }
    }
}
