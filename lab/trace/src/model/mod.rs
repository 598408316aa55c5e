//! What a trace implies: spaces, mappings and resident pages at any moment.
//!
//! `info` takes its estimates from here and `cut` the state at a cut. It follows
//! the recording kernel's rules (copy on write, exclusive reuse) only as far as
//! the events tell; pages that came and went unseen are not in it.

mod cached;
mod regions;

use std::collections::{BTreeMap, HashMap};

use cached::Cached;

pub use regions::{Region, Regions};

use crate::event::{Access, Event, EventKind, FileId, Prot, TaskId};

const PAGE: u64 = 4096;
const CLONE_VM: u64 = 0x100;
const MADV_DONTNEED: u32 = 4;
const WRITE: u8 = 2;

/// A page that a space has in its tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resident {
    /// The shared page of zeroes.
    Zero,
    /// An anonymous page, by number.
    Anonymous(u32),
    /// A page of a file or of shared memory.
    File,
}

/// An entry of a space's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub page: Resident,
    /// A write would not fault.
    pub writable: bool,
}

/// One address space.
#[derive(Clone, Default, Debug)]
pub struct Space {
    /// Tasks that use it now.
    pub users: Vec<TaskId>,
    pub regions: Regions,
    pub entries: BTreeMap<u64, Entry>,
    /// Heap: first byte and end.
    pub heap: Option<(u64, u64)>,
    /// The name of the program that was executed in it last.
    pub name: Option<u32>,
}

/// A number of a space.
pub type SpaceId = usize;

/// Totals over the whole trace so far.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Anonymous pages that ever were.
    pub anonymous: u64,
    /// Of these, pages that two spaces mapped at one time.
    pub shared_by_fork: u64,
    /// Most anonymous pages at one time, and of file pages.
    pub peak_anonymous: u64,
    pub peak_file: u64,
    /// Most pages of both kinds at one time.
    pub peak: u64,
    /// Faults at addresses where the trace shows no mapping.
    pub unmapped_faults: u64,
}

#[derive(Clone, Copy)]
struct AnonymousPage {
    mappers: u32,
    shared: bool,
}

/// The state after the events taken so far.
#[derive(Default)]
pub struct Model {
    spaces: HashMap<SpaceId, Space>,
    next_space: SpaceId,
    of_task: HashMap<TaskId, SpaceId>,
    anonymous: Vec<AnonymousPage>,
    live_anonymous: u64,
    cache: HashMap<FileId, Cached>,
    cached: u64,
    totals: Totals,
}

fn pages(address: u64, length: u64) -> (u64, u64) {
    (address / PAGE, (address + length).div_ceil(PAGE))
}

impl Model {
    /// Totals so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The space that `task` uses, if it has done anything.
    pub fn space_of(&self, task: TaskId) -> Option<(SpaceId, &Space)> {
        let id = *self.of_task.get(&task)?;
        Some((id, self.spaces.get(&id)?))
    }

    /// All spaces in use.
    pub fn spaces(&self) -> impl Iterator<Item = (SpaceId, &Space)> {
        self.spaces.iter().map(|(id, space)| (*id, space))
    }

    /// Takes the next event in time order.
    pub fn take(&mut self, event: &Event) {
        let space = self.enter(event.task);
        match event.kind {
            EventKind::Create { child, clone_flags } => {
                let of_child = if clone_flags & CLONE_VM != 0 {
                    space
                } else {
                    self.fork(space)
                };
                self.of_task.insert(child, of_child);
                self.space(of_child).users.push(child);
            }
            EventKind::Exec { name } => {
                self.leave(event.task);
                let fresh = self.enter(event.task);
                self.space(fresh).name = Some(name);
            }
            EventKind::Exit => self.leave(event.task),
            EventKind::Fault {
                address, access, ..
            } => self.fault(space, address / PAGE, access),
            EventKind::MapAround { file, first, last } => self.cache(file, first, last + 1),
            EventKind::FileRead {
                file,
                offset,
                length,
            }
            | EventKind::FileWrite {
                file,
                offset,
                length,
            } => {
                let (first, end) = pages(offset, length);
                self.cache(file, first, end);
            }
            EventKind::Truncate { file, size } => self.uncache(file, size.div_ceil(PAGE)),
            EventKind::Wait { .. } => {}
            _ => self.change_maps(space, &event.kind),
        }
    }

    fn space(&mut self, id: SpaceId) -> &mut Space {
        self.spaces.entry(id).or_default()
    }

    /// The space of `task`, made if it has none.
    fn enter(&mut self, task: TaskId) -> SpaceId {
        if let Some(space) = self.of_task.get(&task) {
            return *space;
        }
        let id = self.next_space;
        self.next_space += 1;
        self.of_task.insert(task, id);
        self.space(id).users.push(task);
        id
    }

    fn leave(&mut self, task: TaskId) {
        let Some(id) = self.of_task.remove(&task) else {
            return;
        };
        let space = self.space(id);
        space.users.retain(|user| *user != task);
        if space.users.is_empty() {
            self.drop_entries(id, 0, u64::MAX);
            self.spaces.remove(&id);
        }
    }

    fn fork(&mut self, parent: SpaceId) -> SpaceId {
        let id = self.next_space;
        self.next_space += 1;
        let space = self.spaces.entry(parent).or_default();
        let mut child = Space {
            users: Vec::new(),
            regions: space.regions.clone(),
            entries: BTreeMap::new(),
            heap: space.heap,
            name: space.name,
        };
        for (page, entry) in &mut space.entries {
            if entry.page == Resident::File {
                continue;
            }
            entry.writable = false;
            child.entries.insert(*page, *entry);
            if let Resident::Anonymous(number) = entry.page {
                let page = &mut self.anonymous[number as usize];
                page.mappers += 1;
                if !page.shared {
                    page.shared = true;
                    self.totals.shared_by_fork += 1;
                }
            }
        }
        self.spaces.insert(id, child);
        id
    }

    fn change_maps(&mut self, id: SpaceId, kind: &EventKind) {
        match *kind {
            EventKind::Map {
                address,
                length,
                prot,
                shared,
                grows_down,
                file,
                offset,
                origin,
            } => {
                let (first, end) = pages(address, length);
                self.drop_entries(id, first, end);
                let region = Region {
                    prot,
                    shared,
                    grows_down,
                    file,
                    file_page: offset / PAGE,
                    origin,
                    heap: false,
                };
                self.space(id).regions.insert(first, end, region);
            }
            EventKind::Unmap { address, length } => {
                let (first, end) = pages(address, length);
                self.drop_entries(id, first, end);
                self.space(id).regions.remove(first, end);
            }
            EventKind::Protect {
                address,
                length,
                prot,
            } => {
                let (first, end) = pages(address, length);
                let space = self.space(id);
                space.regions.protect(first, end, prot);
                if prot.0 & WRITE == 0 {
                    for (_, entry) in space.entries.range_mut(first..end) {
                        entry.writable = false;
                    }
                }
            }
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => self.remap(id, pages(address, length), pages(new_address, new_length)),
            EventKind::Brk { end } => self.brk(id, end),
            EventKind::Advise {
                address,
                length,
                advice: MADV_DONTNEED,
            } => {
                let (first, end) = pages(address, length);
                self.drop_entries(id, first, end);
            }
            _ => {}
        }
    }

    fn remap(&mut self, id: SpaceId, from: (u64, u64), to: (u64, u64)) {
        if from.0 != to.0 {
            self.drop_entries(id, to.0, to.1);
        }
        let kept = from.0 + (to.1 - to.0).min(from.1 - from.0);
        self.drop_entries(id, kept, from.1);
        let space = self.space(id);
        space.regions.relocate(from, to);
        let moved: Vec<(u64, Entry)> = space
            .entries
            .range(from.0..kept)
            .map(|(page, entry)| (*page, *entry))
            .collect();
        for (page, _) in &moved {
            space.entries.remove(page);
        }
        for (page, entry) in moved {
            space.entries.insert(page - from.0 + to.0, entry);
        }
    }

    /// The first heap end after `exec` is where the heap begins.
    fn brk(&mut self, id: SpaceId, end: u64) {
        let space = self.space(id);
        let Some((begin, old)) = space.heap else {
            space.heap = Some((end, end));
            return;
        };
        space.heap = Some((begin, end));
        let (old, new) = (old.div_ceil(PAGE), end.div_ceil(PAGE));
        if new > old {
            let region = Region {
                prot: Prot(3),
                shared: false,
                grows_down: false,
                file: None,
                file_page: 0,
                origin: crate::event::MapOrigin::Mmap,
                heap: true,
            };
            space.regions.insert(old, new, region);
        } else if new < old {
            self.drop_entries(id, new, old);
            self.space(id).regions.remove(new, old);
        }
    }

    fn fault(&mut self, id: SpaceId, page: u64, access: Access) {
        let space = self.spaces.entry(id).or_default();
        let Some(region) = space.regions.find_or_grow(page) else {
            self.totals.unmapped_faults += 1;
            return;
        };
        let old = space.entries.get(&page).copied();
        let write = access == Access::Write;
        let entry = if region.shared || (region.file.is_some() && !write && old.is_none()) {
            Entry {
                page: Resident::File,
                writable: region.shared && write,
            }
        } else if !write {
            old.unwrap_or(Entry {
                page: Resident::Zero,
                writable: false,
            })
        } else {
            Entry {
                page: self.own_page(old),
                writable: true,
            }
        };
        let old = self.space(id).entries.insert(page, entry);
        if old.map(|old| old.page) != Some(entry.page) {
            self.release(old);
        }
        if let Some(file) = region.file
            && let Some((first, ..)) = self.spaces[&id].regions.find(page)
        {
            let at = region.file_page + (page - first);
            self.cache(file, at, at + 1);
        }
    }

    /// The anonymous page that a write leaves behind: the old one if it is
    /// nobody else's.
    fn own_page(&mut self, old: Option<Entry>) -> Resident {
        if let Some(Entry {
            page: Resident::Anonymous(number),
            ..
        }) = old
            && self.anonymous[number as usize].mappers == 1
        {
            return Resident::Anonymous(number);
        }
        self.anonymous.push(AnonymousPage {
            mappers: 1,
            shared: false,
        });
        self.totals.anonymous += 1;
        self.live_anonymous += 1;
        self.note_peak();
        Resident::Anonymous(self.anonymous.len() as u32 - 1)
    }

    fn release(&mut self, entry: Option<Entry>) {
        if let Some(Entry {
            page: Resident::Anonymous(number),
            ..
        }) = entry
        {
            let page = &mut self.anonymous[number as usize];
            page.mappers -= 1;
            if page.mappers == 0 {
                self.live_anonymous -= 1;
            }
        }
    }

    fn drop_entries(&mut self, id: SpaceId, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let space = self.spaces.entry(id).or_default();
        let gone: Vec<(u64, Entry)> = space
            .entries
            .range(first..end)
            .map(|(page, entry)| (*page, *entry))
            .collect();
        for (page, _) in &gone {
            space.entries.remove(page);
        }
        for (_, entry) in gone {
            self.release(Some(entry));
        }
    }

    fn cache(&mut self, file: FileId, first: u64, end: u64) {
        // No more than any plausible transfer.
        let end = end.min(first.saturating_add(1 << 20));
        self.cached += self.cache.entry(file).or_default().insert(first, end);
        self.note_peak();
    }

    fn uncache(&mut self, file: FileId, first: u64) {
        if let Some(pages) = self.cache.get_mut(&file) {
            self.cached -= pages.truncate(first);
        }
    }

    fn note_peak(&mut self) {
        let totals = &mut self.totals;
        totals.peak_anonymous = totals.peak_anonymous.max(self.live_anonymous);
        totals.peak_file = totals.peak_file.max(self.cached);
        totals.peak = totals.peak.max(self.live_anonymous + self.cached);
    }
}
