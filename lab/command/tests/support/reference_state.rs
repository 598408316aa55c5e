//! What the reference memory manager keeps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vellum_engine::{Access, Prot};

/// A page frame: every word is `fill` except those in `words`.
#[derive(Clone, Debug)]
pub struct Frame {
    pub(super) fill: u64,
    pub(super) words: BTreeMap<u64, u64>,
}

impl Frame {
    pub(super) fn filled(fill: u64) -> Self {
        Self {
            fill,
            words: BTreeMap::new(),
        }
    }

    pub(super) fn word(&self, offset: u64) -> u64 {
        self.words.get(&offset).copied().unwrap_or(self.fill)
    }
}

/// What a page-table entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) frame: usize,
    pub(super) writable: bool,
}

/// What backs a region: an object with pages, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Object {
    File(u32),
    Shared(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) prot: Prot,
    pub(super) shared: bool,
    pub(super) grows_down: bool,
    /// Object and the page of it at `start`.
    pub(super) object: Option<(Object, u64)>,
}

impl Region {
    pub(super) fn allows(&self, access: Access) -> bool {
        match access {
            Access::Read => self.prot.read,
            Access::Write => self.prot.write,
            Access::Execute => self.prot.execute,
        }
    }
}

#[derive(Clone, Default, Debug)]
pub(super) struct Space {
    pub(super) users: u32,
    pub(super) regions: Vec<Region>,
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) heap: Option<(u64, u64)>,
}

impl Space {
    /// Splits regions so that one begins at `page` if any contains it.
    pub(super) fn split(&mut self, page: u64) {
        let Some(index) = self
            .regions
            .iter()
            .position(|r| r.start < page && page < r.end)
        else {
            return;
        };
        let mut upper = self.regions[index];
        upper.object = upper
            .object
            .map(|(object, first)| (object, first + (page - upper.start)));
        upper.start = page;
        self.regions[index].end = page;
        self.regions.insert(index + 1, upper);
    }

    pub(super) fn isolate(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
    }

    pub(super) fn insert(&mut self, region: Region) {
        self.regions.push(region);
        self.regions.sort_by_key(|r| r.start);
    }

    pub(super) fn region(&self, page: u64) -> Option<&Region> {
        self.regions
            .iter()
            .find(|r| r.start <= page && page < r.end)
    }
}

#[derive(Default, Debug)]
pub(super) struct Content {
    /// Pages in memory.
    pub(super) pages: BTreeMap<u64, usize>,
    pub(super) dirty: BTreeSet<u64>,
    /// Length in pages; `None` for shared memory.
    pub(super) length: Option<u64>,
    /// Pages from here on have no original content.
    pub(super) holes_from: u64,
    pub(super) stored: BTreeMap<u64, Frame>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) spaces: BTreeMap<u32, Space>,
    pub(super) objects: BTreeMap<Object, Content>,
    pub(super) frames: Vec<Frame>,
    pub(super) next_shared: u32,
    /// Translations that were used; read only with
    /// [`Defect::MissingFlush`](super::reference::Defect::MissingFlush).
    pub(super) tlb: HashMap<(u32, u64), Entry>,
    pub(super) faults: u64,
}
