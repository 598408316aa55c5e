//! What spaces, objects and backing stores must look like, kept page by page
//! in ordered maps. Shares no code and no structure with the core: a region is
//! a run of equal cells, copy-on-write is a copy, and nothing is cached.

use std::collections::{BTreeMap, BTreeSet};

use super::shape::Shape;
use super::space::{Cell, Clean, Hooks, Private, Space, Target};

/// The lowest page that is handed out unasked, as the core documents it.
pub const LOWEST: u64 = 16;
/// Pages a stack may grow to by default.
const STACK_PAGES: u64 = 2048;
/// Pages that spaces are told to keep free below stacks: few, so that mappings
/// in one area come that close.
pub const STACK_GAP: u64 = 5;

pub const READ: u8 = 1;
pub const WRITE: u8 = 2;
pub const EXECUTE: u8 = 4;

/// Names an object of the model.
pub type Key = u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    Execute,
}

/// What a fault hook catches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caught {
    Missing,
    Store,
}

/// Why a call must fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    NoRegion,
    Protection,
    PastEnd,
    BadRange,
    NotMapped,
    Occupied,
    NoGap,
    Locked,
    WrongKind,
    Rights,
    Unmanaged,
    Caught(Caught),
    NotHooked,
    Exists,
}

/// What a page holds: one word everywhere, but for the words written since.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    pub base: u64,
    pub words: BTreeMap<u16, u64>,
}

impl Content {
    pub fn of(base: u64) -> Content {
        Content {
            base,
            words: BTreeMap::new(),
        }
    }

    pub fn word(&self, index: u16) -> u64 {
        *self.words.get(&index).unwrap_or(&self.base)
    }

    /// Every word that differs from its neighbours, and some that do not.
    pub fn samples(&self) -> impl Iterator<Item = (u16, u64)> {
        let plain = [0, 255, 511].map(|index| (index, self.word(index)));
        self.words.iter().map(|(&i, &w)| (i, w)).chain(plain)
    }
}

#[derive(Clone, Debug)]
pub struct Object {
    /// Number of the backing store, for a file.
    pub store: Option<u64>,
    pub pages: u64,
    /// Whether its maker still has it.
    pub open: bool,
    /// Pages of a file that are newer than the store; pages of shared memory
    /// that were written.
    pub changed: BTreeMap<u64, Content>,
}

/// Everything.
pub struct Model {
    pub shape: Shape,
    pub spaces: BTreeMap<u32, Space>,
    pub objects: BTreeMap<Key, Object>,
    /// What the stores hold.
    pub stores: BTreeMap<(u64, u64), Content>,
    /// From which page on a store's pages are zero until they are written: the least at which
    /// its file was cut.
    cuts: BTreeMap<u64, u64>,
    /// Pages of files that the core may take for newer than the store, though
    /// they hold the same.
    pub maybe: BTreeSet<(Key, u64)>,
    /// What frames of the device hold that were stored to.
    device: BTreeMap<u32, Content>,
    next_private: u64,
    pub next_key: Key,
}

/// The first frame of the device.
pub const DEVICE: u32 = 0x20_0000;

/// What a frame of the device holds that was never stored to.
fn pristine_frame(frame: u32) -> u64 {
    0xde71_ce00_0000_0000 | u64::from(DEVICE + frame)
}

/// What a page of a store holds that was never written.
pub fn pristine(store: u64, page: u64) -> u64 {
    0xf11e_0000_0000_0000 | store << 32 | page
}

impl Model {
    pub fn new(shape: Shape) -> Model {
        Model {
            shape,
            spaces: BTreeMap::new(),
            objects: BTreeMap::new(),
            stores: BTreeMap::new(),
            cuts: BTreeMap::new(),
            maybe: BTreeSet::new(),
            device: BTreeMap::new(),
            next_private: 0,
            next_key: 0,
        }
    }

    /// What a frame of the device holds.
    pub fn on_device(&self, frame: u32) -> Content {
        let stored = self.device.get(&frame).cloned();
        stored.unwrap_or_else(|| Content::of(pristine_frame(frame)))
    }

    pub fn content(&self, key: Key, index: u64) -> Content {
        let object = &self.objects[&key];
        if let Some(content) = object.changed.get(&index) {
            return content.clone();
        }
        match object.store {
            None => Content::of(0),
            Some(store) => self.stored(store, index),
        }
    }

    pub fn stored(&self, store: u64, index: u64) -> Content {
        let written = self.stores.get(&(store, index)).cloned();
        let is_cut = self.cuts.get(&store).is_some_and(|first| index >= *first);
        written.unwrap_or_else(|| Content::of(if is_cut { 0 } else { pristine(store, index) }))
    }

    pub fn add_object(&mut self, store: Option<u64>, pages: u64, open: bool) -> Key {
        self.next_key += 1;
        let object = Object {
            store,
            pages,
            open,
            changed: BTreeMap::new(),
        };
        self.objects.insert(self.next_key, object);
        self.next_key
    }

    /// The page of an object, about to be written.
    pub fn change(&mut self, key: Key, index: u64) -> &mut Content {
        let content = self.content(key, index);
        let object = self.objects.get_mut(&key).expect("object of the model");
        object.changed.entry(index).or_insert(content)
    }

    /// Makes a page one of the space's own.
    pub fn own(&mut self, space: u32, page: u64, content: Content) {
        self.next_private += 1;
        let number = self.next_private;
        let space = self.spaces.get_mut(&space).expect("space of the model");
        space.clean.remove(&page);
        let private = Private {
            number,
            content,
            freed: false,
        };
        space.private.insert(page, private);
    }

    /// A page that nobody asked for is resident, of zeroes, unless the model has one there or
    /// an object.
    pub fn adopt_private(&mut self, id: u32, page: u64) {
        let space = &self.spaces[&id];
        let is_anonymous = space
            .cells
            .get(&page)
            .is_some_and(|cell| cell.object.is_none() && cell.frames.is_none());
        if is_anonymous && !space.private.contains_key(&page) {
            self.own(id, page, Content::of(0));
        }
    }

    /// What an access, or the fault it causes, does to what is resident.
    pub fn access(&mut self, id: u32, page: u64, access: Access) -> Result<(), Refusal> {
        if page >= self.shape.user_end {
            return Err(Refusal::NoRegion);
        }
        self.grow_stack(id, page)?;
        let space = self.spaces.get_mut(&id).expect("space of the model");
        let cell = space.cells[&page];
        if !cell.allows(access) {
            return Err(Refusal::Protection);
        }
        if let Some(caught) = space.caught(page, access) {
            return Err(Refusal::Caught(caught));
        }
        if space.private.contains_key(&page) {
            return Ok(());
        }
        if cell.frames.is_some() {
            space.clean.insert(page, Clean::Unmanaged);
            return Ok(());
        }
        let writes = access == Access::Write;
        let Some(key) = cell.object else {
            if writes {
                self.own(id, page, Content::of(0));
            } else {
                space.clean.insert(page, Clean::Zero);
            }
            return Ok(());
        };
        if cell.index >= self.objects[&key].pages {
            return Err(Refusal::PastEnd);
        }
        if writes && !cell.shared {
            let content = self.content(key, cell.index);
            self.own(id, page, content);
            return Ok(());
        }
        space.clean.insert(page, Clean::Cached);
        if writes {
            self.change(key, cell.index);
        }
        Ok(())
    }

    /// What an access by the kernel does: a device's memory is not the kernel's to reach.
    pub fn access_by_kernel(&mut self, id: u32, page: u64, access: Access) -> Result<(), Refusal> {
        if page < self.shape.user_end {
            self.grow_stack(id, page)?;
            let cell = self.spaces[&id].cells[&page];
            if cell.frames.is_some() && cell.allows(access) {
                return Err(Refusal::Unmanaged);
            }
        }
        self.access(id, page, access)
    }

    /// What faulting a page in for a pin does: whatever the access, a page of a private mapping
    /// becomes the space's own.
    pub fn pin(&mut self, id: u32, page: u64, access: Access) -> Result<(), Refusal> {
        self.access_by_kernel(id, page, access)?;
        let space = &self.spaces[&id];
        let cell = space.cells[&page];
        if !cell.shared && !space.private.contains_key(&page) {
            let content = match cell.object {
                Some(key) => self.content(key, cell.index),
                None => Content::of(0),
            };
            self.own(id, page, content);
        }
        Ok(())
    }

    pub fn grow_stack(&mut self, id: u32, page: u64) -> Result<(), Refusal> {
        let space = self.spaces.get_mut(&id).expect("space of the model");
        if space.cells.contains_key(&page) {
            return Ok(());
        }
        let (&above, &cell) = space.cells.range(page..).next().ok_or(Refusal::NoRegion)?;
        let runs = space.runs();
        let run = runs.iter().find(|run| run.start == above);
        let end = run.map_or(above, |run| run.end);
        let growth = above - page;
        let below = space.cells.range(..page).next_back();
        let too_close = below.is_some_and(|(&last, below)| {
            !below.grows && below.prot != 0 && page - (last + 1) < STACK_GAP
        });
        if !cell.grows || too_close || end - page > STACK_PAGES || cell.index < growth {
            return Err(Refusal::NoRegion);
        }
        let first = Cell {
            index: cell.index - growth,
            ..cell
        };
        space.fill(page, growth, first);
        Ok(())
    }

    /// The word that a load from `page`, which is mapped, must give.
    pub fn word(&self, id: u32, page: u64, word: u16) -> u64 {
        let space = &self.spaces[&id];
        if let Some(private) = space.private.get(&page) {
            return private.content.word(word);
        }
        let cell = &space.cells[&page];
        if let Some(frame) = cell.frame() {
            return self.on_device(frame).word(word);
        }
        cell.object
            .map_or(0, |key| self.content(key, cell.index).word(word))
    }

    /// A store to `page` after a successful [`Model::access`].
    pub fn store(&mut self, id: u32, page: u64, word: u16, value: u64) {
        let space = self.spaces.get_mut(&id).expect("space of the model");
        space.soil(page, 1);
        if let Some(private) = space.private.get_mut(&page) {
            private.content.words.insert(word, value);
            private.freed = false;
            return;
        }
        let cell = space.cells[&page];
        if let Some(frame) = cell.frame() {
            let content = self.on_device(frame);
            let content = self.device.entry(frame).or_insert(content);
            content.words.insert(word, value);
        }
        if let Some(key) = cell.object {
            self.change(key, cell.index).words.insert(word, value);
        }
    }

    /// Where a request for memory goes.
    pub fn place(&self, id: u32, pages: u64, target: Target) -> Result<u64, Refusal> {
        let space = &self.spaces[&id];
        let anywhere = || {
            if pages == 0 {
                return Err(Refusal::BadRange);
            }
            space.highest_gap(pages).ok_or(Refusal::NoGap)
        };
        match target {
            Target::Anywhere => anywhere(),
            Target::Fixed(start) => space.check_range(start, pages).map(|()| start),
            Target::FixedFree(start) => {
                space.check_range(start, pages)?;
                let free = space.is_free(start, pages);
                free.then_some(start).ok_or(Refusal::Occupied)
            }
            Target::Hint(start) => {
                let is_usable = start >= LOWEST && space.check_range(start, pages).is_ok();
                if is_usable && space.is_free(start, pages) && space.keeps_off_stacks(start + pages)
                {
                    Ok(start)
                } else {
                    anywhere()
                }
            }
        }
    }

    /// Where frames of the device from `first` on go: anywhere, where they lie as large leaves do if
    /// they can.
    pub fn place_frames(
        &self,
        id: u32,
        pages: u64,
        target: Target,
        first: u32,
    ) -> Result<u64, Refusal> {
        let large = self.shape.table_pages(1);
        let placed = self.place(id, pages, target)?;
        let is_anywhere = match target {
            Target::Anywhere => true,
            Target::Hint(start) => start != placed,
            _ => false,
        };
        let gap = self.spaces[&id].highest_gap(pages + large - 1);
        Ok(match gap.filter(|_| is_anywhere && pages >= large) {
            Some(gap) => gap + (u64::from(DEVICE + first).wrapping_sub(gap) & (large - 1)),
            None => placed,
        })
    }

    pub fn map(&mut self, id: u32, start: u64, pages: u64, first: Cell) {
        let space = self.spaces.get_mut(&id).expect("space of the model");
        space.unmap(start, pages);
        space.fill(start, pages, first);
        if first.frames.is_some_and(|frames| frames.at_once) {
            let entries = (start..start + pages).map(|page| (page, Clean::Unmanaged));
            space.clean.extend(entries);
        }
    }

    pub fn fork(&mut self, parent: u32, child: u32) {
        let mut space = self.spaces[&parent].clone();
        space.users = 1;
        space
            .cells
            .values_mut()
            .for_each(|cell| (cell.locked, cell.hooks) = (false, Hooks::default()));
        space.stays.clear();
        let lost: Vec<u64> = (space.cells.iter())
            .filter_map(|(&page, cell)| cell.stays.then_some(page))
            .collect();
        for page in lost {
            space.unmap(page, 1);
        }
        // Frames of a device that faults map come to a child by its own faults.
        let cells = &space.cells;
        (space.clean).retain(|page, entry| {
            *entry != Clean::Unmanaged || cells[page].frames.is_some_and(|frames| frames.at_once)
        });
        space.watched.clear();
        space.soil(0, space.user_end);
        for private in space.private.values_mut() {
            self.next_private += 1;
            private.number = self.next_private;
        }
        self.spaces.insert(child, space);
    }

    pub fn truncate(&mut self, key: Key, pages: u64) {
        let object = self.objects.get_mut(&key).expect("object of the model");
        let grows = pages > object.pages;
        object.pages = pages;
        if grows {
            return;
        }
        object.changed.split_off(&pages);
        if let Some(store) = object.store {
            let cut = self.cuts.entry(store).or_insert(pages);
            *cut = pages.min(*cut);
            self.stores
                .retain(|&(owner, index), _| owner != store || index < pages);
        }
        self.forget_from(key, pages, false);
    }

    /// Moves the pages of shared memory from `first` on by so many, up or down. Returns whether it can
    /// be.
    pub fn shift(&mut self, key: Key, first: u64, by: u64, up: bool) -> bool {
        let object = self.objects.get_mut(&key).expect("object of the model");
        let end = if up { first } else { first + by };
        if object.store.is_some() || end >= object.pages {
            return false;
        }
        let moved = object.changed.split_off(&first);
        let to = |index: u64| if up { index + by } else { index - by };
        let moved = moved.into_iter().filter(|(index, _)| *index >= end);
        (object.changed).extend(moved.map(|(index, content)| (to(index), content)));
        object.pages = to(object.pages);
        self.forget_from(key, first, false);
        true
    }

    /// Forgets what spaces have of an object's pages from `first` on: entries alone, or copies, too.
    pub fn forget_from(&mut self, key: Key, first: u64, entries: bool) {
        for space in self.spaces.values_mut() {
            let Space {
                cells,
                private,
                clean,
                stays,
                watched,
                ..
            } = space;
            let gone = |page: &u64| {
                let cell = &cells[page];
                cell.object == Some(key) && cell.index >= first
            };
            private.retain(|page, _| entries || !gone(page));
            clean.retain(|page, _| !gone(page));
            stays.retain(|page| private.contains_key(page) || !gone(page));
            watched.retain(|page| !gone(page));
        }
    }

    /// Faulting a page in, without a store to it: for writing only where that makes a copy.
    pub fn populate(&mut self, id: u32, page: u64) -> Result<(), Refusal> {
        let cell = self.spaces[&id].cells.get(&page);
        let reads = cell.is_some_and(|cell| cell.shared || !cell.allows(Access::Write));
        self.access(id, page, if reads { Access::Read } else { Access::Write })
    }

    /// Pages that may be written by a sync beside those that must be.
    pub fn take_maybe(&mut self, key: Key) -> u64 {
        let changed = &self.objects[&key].changed;
        let mut count = 0;
        self.maybe.retain(|&(other, index)| {
            count += u64::from(other == key && !changed.contains_key(&index));
            other != key
        });
        count
    }

    /// Writes what is newer than the store; returns the pages.
    pub fn sync(&mut self, key: Key) -> u64 {
        let object = self.objects.get_mut(&key).expect("object of the model");
        let Some(store) = object.store else {
            return 0;
        };
        let changed = std::mem::take(&mut object.changed);
        let count = changed.len() as u64;
        for (index, content) in changed {
            self.stores.insert((store, index), content);
        }
        count
    }

    /// Ends the objects that nobody uses; returns their keys.
    pub fn end_unused_objects(&mut self) -> Vec<Key> {
        let spaces = &self.spaces;
        let is_mapped = |key: Key| {
            let mut cells = spaces.values().flat_map(|space| space.cells.values());
            cells.any(|cell| cell.object == Some(key))
        };
        let unused =
            |(&key, object): (&Key, &Object)| (!object.open && !is_mapped(key)).then_some(key);
        let dead: Vec<Key> = self.objects.iter().filter_map(unused).collect();
        for &key in &dead {
            self.sync(key);
            self.objects.remove(&key);
        }
        dead
    }
}
