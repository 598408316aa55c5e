//! What every page of a replayed workload must hold: a model that knows nothing of frames
//! and page tables, and is used while the slice is made.
//!
//! Operations come in an order that the waits of the workload allow. What tasks of
//! different spaces do to a file at one time has no order, so words of files are not
//! expected to be one value but one of a set that holds for the whole slice.

use std::collections::{BTreeMap, HashMap};

use vellum_engine::{Access, Advice, Backing, FileSlot, Op, Sharing, SpaceSlot};
use vellum_lab::replay::regions::{Region, Regions, Source};

/// A file, or the number of a shared-memory object behind [`OBJECTS`].
pub type FileNumber = u64;

/// Numbers from here on are shared-memory objects, which are zero at first.
const OBJECTS: FileNumber = 1 << 20;

/// What a file's page may hold besides what it was first.
pub mod may {
    pub const BE_WRITTEN: u64 = 1;
    pub const BE_STORED_TO: u64 = 2;
    pub const BE_ZERO: u64 = 4;
}

/// What one watched word holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Zero, or what the store of this number put there.
    Stamp(u64),
    /// What the page of a file may hold.
    File(FileNumber, u64),
    /// Nobody can tell.
    Unknown,
}

/// The two watched words of a page.
pub type Page = [Word; 2];

/// What the model knows of a space.
#[derive(Clone, Default, Debug)]
struct Space {
    regions: Regions,
    /// Private pages that were stored to.
    private: BTreeMap<u64, Page>,
    heap: Option<(u64, u64)>,
    users: u32,
    was_shared: bool,
    /// Tasks are at work here at the same time: nothing private is certain any more.
    uncertain: bool,
}

/// The whole model.
#[derive(Default)]
pub struct Model {
    spaces: HashMap<u32, Space>,
    /// Sets of [`may`] by file and page; made by [`Model::survey`].
    may: HashMap<(FileNumber, u64), u64>,
    /// First page from which a file may read as zero.
    zero_from: HashMap<FileNumber, u64>,
    objects: u64,
    stamps: u64,
}

/// What an access comes to.
pub enum Verdict {
    /// It is allowed; for stores, to which word, and what it holds then.
    Allowed(Region, Option<(usize, Word)>),
    /// It must be refused.
    Refused,
    /// The hardware does not distinguish this.
    Open,
}

impl Model {
    /// Takes note of what will happen to files, at any time.
    pub fn survey(&mut self, op: &Op) {
        match *op {
            Op::FileOpen { file, pages } | Op::Truncate { file, pages } => {
                // A file that is longer later was filled with zeroes.
                let from = self.zero_from.entry(u64::from(file.0)).or_insert(pages);
                *from = pages.min(*from);
            }
            Op::FileWrite { file, page, pages } => {
                for index in page..page + pages {
                    *self.may.entry((u64::from(file.0), index)).or_default() |= may::BE_WRITTEN;
                }
            }
            _ => {}
        }
    }

    /// Takes note of a store through a shared mapping, at any time.
    pub fn survey_store(&mut self, file: FileNumber, page: u64) {
        *self.may.entry((file, page)).or_default() |= may::BE_STORED_TO;
    }

    /// What a file's page may be besides what it was first.
    pub fn may(&self, file: FileNumber, page: u64) -> u64 {
        let zero = file >= OBJECTS || self.zero_from.get(&file).is_none_or(|from| page >= *from);
        let zero = if zero { may::BE_ZERO } else { 0 };
        self.may.get(&(file, page)).copied().unwrap_or(0) | zero
    }

    fn space(&mut self, slot: SpaceSlot) -> &mut Space {
        self.spaces.entry(slot.0).or_default()
    }

    /// What a page shows, if it may be read: its words.
    pub fn page(&self, slot: SpaceSlot, page: u64) -> Option<Page> {
        let space = self.spaces.get(&slot.0)?;
        let region = space.regions.at(page)?;
        if !region.prot.read {
            return None;
        }
        if let Some(own) = space.private.get(&page) {
            return Some(if space.uncertain {
                [Word::Unknown; 2]
            } else {
                *own
            });
        }
        Some([source(region, page); 2])
    }

    /// Private pages of `start..end` that were stored to and may be read.
    pub fn private(&self, slot: SpaceSlot, start: u64, end: u64) -> Vec<u64> {
        let Some(space) = self.spaces.get(&slot.0) else {
            return Vec::new();
        };
        let pages = space
            .private
            .range(start..end.max(start))
            .map(|(page, _)| *page);
        // A private copy of a page that somebody cuts off the file goes with it.
        let stays = |region: &Region, page| match source(region, page) {
            Word::File(file, index) => self.may(file, index) & may::BE_ZERO == 0,
            _ => true,
        };
        let readable = |page: &u64| {
            let region = space.regions.at(*page);
            region.is_some_and(|region| region.prot.read && stays(region, *page))
        };
        pages.filter(readable).collect()
    }

    /// What an access must come to, and what it changes.
    pub fn access(&mut self, slot: SpaceSlot, page: u64, access: Access) -> Verdict {
        let space = self.space(slot);
        if space.regions.at(page).is_none() {
            space.regions.grow_stack(page);
        }
        let Some(region) = space.regions.at(page).copied() else {
            return Verdict::Refused;
        };
        if !region.allows(access) {
            // On x86 everything that is present can be read, and stores imply loads.
            let open = access == Access::Read && (region.prot.write || region.prot.execute);
            return if open {
                Verdict::Open
            } else {
                Verdict::Refused
            };
        }
        if access != Access::Write {
            return Verdict::Allowed(region, None);
        }
        self.stamps += 1;
        let which = self.stamps as usize % 2;
        if region.shared {
            return match source(&region, page) {
                file @ Word::File(..) => Verdict::Allowed(region, Some((which, file))),
                _ => Verdict::Open,
            };
        }
        let number = self.stamps;
        let before = source(&region, page);
        let space = self.space(slot);
        space.private.entry(page).or_insert([before; 2])[which] = Word::Stamp(number);
        Verdict::Allowed(region, Some((which, Word::Stamp(number))))
    }

    /// What another operation than an access changes.
    pub fn apply(&mut self, op: &Op) {
        match *op {
            Op::Create { space } => {
                self.spaces.insert(
                    space.0,
                    Space {
                        users: 1,
                        ..Space::default()
                    },
                );
            }
            Op::Fork { parent, child } => {
                let copy = Space {
                    users: 1,
                    was_shared: false,
                    ..self.space(parent).clone()
                };
                self.spaces.insert(child.0, copy);
            }
            Op::Share { space } => self.share(space, false),
            Op::Exec { old, new } => {
                self.leave(old);
                self.spaces.insert(
                    new.0,
                    Space {
                        users: 1,
                        ..Space::default()
                    },
                );
            }
            Op::Exit { space } => self.leave(space),
            Op::Map { space, .. } => self.map(space, op),
            Op::Unmap { space, page, pages } => self.space(space).unmap(page, page + pages),
            Op::Protect {
                space,
                page,
                pages,
                prot,
            } => {
                self.space(space).regions.protect(page, page + pages, prot);
            }
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => {
                self.space(space).remap(page, pages, new_page, new_pages);
            }
            Op::Brk { space, start, end } => self.space(space).set_heap(start, end),
            Op::Advise {
                space,
                page,
                pages,
                advice,
            } => {
                let range = page..page + pages;
                let space = self.space(space);
                match advice {
                    Advice::DontNeed => space.private.retain(|page, _| !range.contains(page)),
                    Advice::Free => {
                        for (_, page) in space.private.range_mut(range) {
                            *page = [Word::Unknown; 2];
                        }
                    }
                    Advice::Cold | Advice::PageOut | Advice::Folio(_) => {}
                }
            }
            _ => {}
        }
    }

    /// One more task in a space. Its creator may wait until it has left.
    pub fn share(&mut self, space: SpaceSlot, waits: bool) {
        let space = self.space(space);
        space.users += 1;
        space.was_shared = true;
        space.uncertain |= !waits;
    }

    /// Whether the space ever had several tasks.
    pub fn was_shared(&self, space: SpaceSlot) -> bool {
        self.spaces
            .get(&space.0)
            .is_some_and(|space| space.was_shared)
    }

    fn leave(&mut self, slot: SpaceSlot) {
        let space = self.space(slot);
        space.users -= 1;
        if space.users == 0 {
            self.spaces.remove(&slot.0);
        }
    }

    fn map(&mut self, slot: SpaceSlot, op: &Op) {
        let Op::Map {
            page,
            pages,
            prot,
            sharing,
            backing,
            grows_down,
            ..
        } = *op
        else {
            return;
        };
        let shared = sharing == Sharing::Shared;
        let source = match backing {
            Backing::File { file, page } => Source::File { file, page },
            Backing::Anonymous if shared => {
                self.objects += 1;
                Source::Object {
                    object: self.objects as u32,
                    page: 0,
                }
            }
            Backing::Anonymous => Source::Anonymous,
        };
        let space = self.space(slot);
        space.unmap(page, page + pages);
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

/// What a page of a region holds that nobody has stored to privately.
fn source(region: &Region, page: u64) -> Word {
    match region.behind(page) {
        Source::Anonymous => Word::Stamp(0),
        Source::File {
            file: FileSlot(file),
            page,
        } => Word::File(u64::from(file), page),
        Source::Object { object, page } => Word::File(OBJECTS + u64::from(object), page),
    }
}

impl Space {
    fn unmap(&mut self, start: u64, end: u64) {
        self.regions.remove(start, end);
        self.private.retain(|page, _| !(start..end).contains(page));
    }

    fn remap(&mut self, page: u64, pages: u64, to: u64, new_pages: u64) {
        let Some(region) = self.regions.at(page).copied() else {
            return;
        };
        let kept = pages.min(new_pages);
        let moved: Vec<(u64, Page)> = self
            .private
            .range(page..page + kept)
            .map(|(at, words)| (at - page + to, *words))
            .collect();
        let source = region.behind(page);
        self.unmap(page, page + pages);
        self.unmap(to, to + new_pages);
        self.regions.insert(Region {
            start: to,
            end: to + new_pages,
            source,
            ..region
        });
        self.private.extend(moved);
    }

    fn set_heap(&mut self, start: u64, end: u64) {
        let (_, before) = self.heap.unwrap_or((start, start));
        let before = before.max(start);
        self.heap = Some((start, end));
        if end < before {
            return self.unmap(end, before);
        }
        self.unmap(before, end);
        if before < end {
            let prot = vellum_engine::Prot {
                read: true,
                write: true,
                execute: false,
            };
            self.regions.insert(Region {
                start: before,
                end,
                prot,
                shared: false,
                grows_down: false,
                source: Source::Anonymous,
            });
        }
    }
}

/// Whether a page whose watched words are these begins with a return instruction.
pub fn is_callable(model: &Model, page: &Page) -> bool {
    match page[0] {
        Word::Stamp(number) => number != 0,
        Word::File(file, index) => model.may(file, index) & may::BE_ZERO == 0,
        Word::Unknown => false,
    }
}
