//! Carries out operations on the core and on the model, and compares what
//! both answer.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use vellum::addr::{self, Pfn, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, MapError, MapRequest, PinError, Placement, Source, Traits};
use vellum::table::X86_64;
use vellum::{ObjectId, SpaceId, Vm};
use vellum_machine::Machine;
use vellum_machine::mmu::AccessError;

use super::model::{Access, Cell, Key, Model, Refusal, Target};
use super::ops::{Aim, HEAP_START, Op, Place, What};

pub type Check = Result<(), String>;

/// Frames pinned by one call. `number` names the private page that a pin for
/// writing has made the space's own.
pub struct Pinned {
    pub frames: Vec<Pfn>,
    pub numbers: Vec<Option<u64>>,
    /// The pages of objects among them.
    pub objects: Vec<(Key, u64)>,
}

/// A core, the model of it, and the names of things in both.
pub struct Driver<R: ReverseMap> {
    pub vm: Arc<Vm<Machine, X86_64, R>>,
    pub model: Model,
    pub ids: BTreeMap<u32, SpaceId>,
    pub objects: BTreeMap<Key, ObjectId>,
    pub pins: Vec<Pinned>,
    next_space: u32,
    next_store: u64,
    pub cpus: u16,
    /// Entries are made only for pages that are accessed.
    pub exact: bool,
    /// Fork copies every entry.
    pub copies_all: bool,
    /// Memory may run out.
    pub tight: bool,
    /// A truncation may have left tables without entries.
    pub truncated: bool,
    pub zero_page: Option<Pfn>,
    /// Operations that ran out of memory.
    pub shortages: u32,
    /// Most spaces, and most objects, at a time.
    pub most: usize,
}

/// An answer of the core in the model's words. `Err(None)`: out of memory.
type Answer<T> = Result<T, Option<Refusal>>;

pub fn fault_answer<T>(result: Result<T, FaultError>) -> Result<Answer<T>, String> {
    Ok(match result {
        Ok(value) => Ok(value),
        Err(FaultError::OutOfMemory) => Err(None),
        Err(FaultError::NoRegion) => Err(Some(Refusal::NoRegion)),
        Err(FaultError::Protection) => Err(Some(Refusal::Protection)),
        Err(FaultError::PastEnd) => Err(Some(Refusal::PastEnd)),
        Err(other) => return Err(format!("unexpected refusal: {other}")),
    })
}

fn map_answer<T>(result: Result<T, MapError>) -> Result<Answer<T>, String> {
    Ok(match result {
        Ok(value) => Ok(value),
        Err(MapError::OutOfMemory) => Err(None),
        Err(MapError::BadRange) => Err(Some(Refusal::BadRange)),
        Err(MapError::NotMapped) => Err(Some(Refusal::NotMapped)),
        Err(MapError::Occupied) => Err(Some(Refusal::Occupied)),
        Err(MapError::NoGap) => Err(Some(Refusal::NoGap)),
        Err(other) => return Err(format!("unexpected refusal: {other}")),
    })
}

fn same<T: PartialEq + Debug>(core: T, model: T) -> Check {
    if core == model {
        Ok(())
    } else {
        Err(format!("the core answers {core:?}, the model {model:?}"))
    }
}

pub fn prot(bits: u8) -> Prot {
    Prot::from_bits(bits)
}

pub fn access(access: Access) -> addr::Access {
    match access {
        Access::Read => addr::Access::Read,
        Access::Write => addr::Access::Write,
        Access::Execute => addr::Access::Execute,
    }
}

fn nth<K: Copy, V>(map: &BTreeMap<K, V>, nth: u8) -> Option<K> {
    let count = map.len();
    (count > 0).then(|| *map.keys().nth(usize::from(nth) % count).expect("below the count"))
}

impl<R: ReverseMap> Driver<R> {
    pub fn new(vm: Vm<Machine, X86_64, R>, cpus: u16, tight: bool) -> Self {
        let exact = vm.design().fault_around == 1;
        let copies_all = vm.design().fork_copy == vellum::design::ForkCopy::All;
        Driver {
            vm: Arc::new(vm),
            model: Model::default(),
            ids: BTreeMap::new(),
            objects: BTreeMap::new(),
            pins: Vec::new(),
            next_space: 0,
            next_store: 0,
            cpus,
            exact,
            copies_all,
            tight,
            truncated: false,
            zero_page: None,
            shortages: 0,
            most: 6,
        }
    }

    /// Carries out one operation on both sides.
    pub fn apply(&mut self, op: &Op) -> Check {
        let vm = Arc::clone(&self.vm);
        let cpu = CpuId(u16::from(op.cpu) % self.cpus);
        let _guard = vm.platform().enter(cpu);
        self.carry_out(cpu, op.what)?;
        for key in self.model.bury_objects() {
            self.objects.remove(&key);
        }
        Ok(())
    }

    fn page(&self, space: u32, place: Place) -> u64 {
        match place {
            Place::At(page) => page,
            Place::Mapped(nth) => {
                let cells = &self.model.spaces[&space].cells;
                let count = cells.len() as u64;
                let found = nth.checked_rem(count).and_then(|nth| cells.keys().nth(nth as usize));
                *found.unwrap_or(&480)
            }
        }
    }

    fn target(&self, space: u32, aim: Aim) -> (Target, Placement) {
        let page = |place| self.page(space, place);
        match aim {
            Aim::Anywhere => (Target::Anywhere, Placement::Anywhere),
            Aim::Hint(place) => {
                let at = page(place);
                (Target::Hint(at), Placement::Hint(Vpn(at)))
            }
            Aim::Fixed(place) => {
                let at = page(place);
                (Target::Fixed(at), Placement::Fixed(Vpn(at)))
            }
            Aim::FixedFree(place) => {
                let at = page(place);
                (Target::FixedFree(at), Placement::FixedFree(Vpn(at)))
            }
        }
    }

    fn carry_out(&mut self, cpu: CpuId, what: What) -> Check {
        match what {
            What::Create if self.ids.len() < self.most => self.create(),
            What::OpenFile { pages } if self.objects.len() < self.most => self.open(Some(pages), None),
            What::OpenMemory { pages } if self.objects.len() < self.most => self.open(None, Some(pages)),
            What::Create | What::OpenFile { .. } | What::OpenMemory { .. } => Ok(()),
            What::Unpin { nth } => self.unpin(nth),
            What::Audit => self.check_all(),
            What::Release { object }
            | What::Truncate { object, .. }
            | What::Write { object, .. }
            | What::Read { object, .. }
            | What::Sync { object } => {
                let open = self.model.objects.iter().filter(|(_, object)| object.open);
                let open: BTreeMap<Key, ()> = open.map(|(&key, _)| (key, ())).collect();
                match nth(&open, object) {
                    Some(key) => self.on_object(key, what),
                    None => Ok(()),
                }
            }
            What::Fork { space }
            | What::Share { space }
            | What::Exec { space }
            | What::Exit { space }
            | What::MapAnonymous { space, .. }
            | What::MapObject { space, .. }
            | What::Unmap { space, .. }
            | What::Remap { space, .. }
            | What::Protect { space, .. }
            | What::Brk { space, .. }
            | What::DontNeed { space, .. }
            | What::Free { space, .. }
            | What::Populate { space, .. }
            | What::Touch { space, .. }
            | What::Sweep { space, .. }
            | What::Pin { space, .. } => match nth(&self.ids, space) {
                Some(slot) => self.on_space(cpu, slot, what),
                None => Ok(()),
            },
        }
    }

    /// Notes that memory ran out, which must be possible and have changed nothing.
    fn short(&mut self, slot: Option<u32>) -> Check {
        if !self.tight {
            return Err("out of memory, with plenty of it".into());
        }
        self.shortages += 1;
        match slot {
            Some(slot) => self.check_space(slot),
            None => Ok(()),
        }
    }

    fn name_space(&mut self, id: SpaceId) -> u32 {
        self.next_space += 1;
        self.ids.insert(self.next_space, id);
        self.next_space
    }

    fn create(&mut self) -> Check {
        let id = match map_answer(self.vm.create_space())? {
            Ok(id) => id,
            Err(_) => return self.short(None),
        };
        let slot = self.name_space(id);
        self.model.spaces.insert(slot, Default::default());
        self.start_heap(slot)
    }

    fn start_heap(&mut self, slot: u32) -> Check {
        let space = self.model.spaces.get_mut(&slot).expect("just made");
        space.users = 1;
        space.heap = (HEAP_START, HEAP_START);
        let set = self.vm.set_heap_start(self.ids[&slot], Vpn(HEAP_START));
        set.map_err(|error| error.to_string())?;
        self.check_space(slot)
    }

    fn open(&mut self, file: Option<u64>, memory: Option<u64>) -> Check {
        let store = file.map(|_| self.next_store + 1);
        let made = match (store, file, memory) {
            (Some(store), Some(pages), _) => self.vm.create_file(store, pages),
            (_, _, pages) => self.vm.create_shared_memory(pages.unwrap_or(1)),
        };
        let id = match map_answer(made)? {
            Ok(id) => id,
            Err(_) => return self.short(None),
        };
        self.next_store += 1;
        let pages = file.or(memory).unwrap_or(1);
        let key = self.model.add_object(store, pages, true);
        self.objects.insert(key, id);
        Ok(())
    }

    fn unpin(&mut self, nth: u8) -> Check {
        if !self.pins.is_empty() {
            let pinned = self.pins.swap_remove(usize::from(nth) % self.pins.len());
            self.vm.unpin(&pinned.frames);
        }
        Ok(())
    }

    fn on_object(&mut self, key: Key, what: What) -> Check {
        let id = self.objects[&key];
        match what {
            What::Release { .. } => {
                self.vm.release_object(id).map_err(|error| error.to_string())?;
                let object = self.model.objects.get_mut(&key).expect("an open object");
                object.open = false;
            }
            What::Truncate { pages, .. } => {
                self.vm.truncate(id, pages).map_err(|error| error.to_string())?;
                self.truncated = true;
                self.model.truncate(key, pages);
                return self.check_spaces();
            }
            What::Write { index, pages, value, .. } => {
                let mut written = Vec::new();
                let result = self.vm.write_pages(id, index, pages, |page, bytes| {
                    bytes.fill(value ^ page);
                    bytes.write(16, &value.to_ne_bytes());
                    written.push(page);
                });
                let answer = fault_answer(result)?;
                for &page in &written {
                    let content = self.model.change(key, page);
                    *content = super::model::Content::of(value ^ page);
                    content.words.insert(2, value);
                    let object = self.model.objects.get_mut(&key).expect("an open object");
                    object.pages = object.pages.max(page + 1);
                }
                match answer {
                    Err(None) => self.short(None)?,
                    answer => {
                        same(answer.map_err(|_| ()), Ok(()))?;
                        same(written.len() as u64, pages)?;
                    }
                }
            }
            What::Read { index, pages, .. } => self.read_object(key, index, pages)?,
            What::Sync { .. } => match fault_answer(self.vm.sync(id))? {
                Ok(pages) => self.check_sync(key, pages)?,
                Err(refusal) => return Err(format!("sync refused: {refusal:?}")),
            },
            _ => {}
        }
        if let Some(pages) = self.vm.object_pages(id) {
            same(pages, self.model.objects[&key].pages)?;
        }
        Ok(())
    }

    fn check_sync(&mut self, key: Key, pages: u64) -> Check {
        // Whoever has pinned a page may go on writing to it: it stays dirty.
        let pinned = self.pins.iter().flat_map(|pinned| &pinned.objects);
        let stays: Vec<(Key, u64)> = pinned.filter(|page| page.0 == key).copied().collect();
        let more = self.model.take_maybe(key);
        let written = self.model.sync(key);
        if self.model.objects[&key].store.is_some() {
            self.model.maybe.extend(stays);
        }
        if (written..=written + more).contains(&pages) {
            return Ok(());
        }
        Err(format!("sync wrote {pages} pages; {written} are newer, {more} may count as newer"))
    }

    /// Reads pages through the cache and compares them.
    pub fn read_object(&mut self, key: Key, index: u64, pages: u64) -> Check {
        let model = &self.model;
        let mut wrong = Ok(());
        let result = self.vm.read_pages(self.objects[&key], index, pages, |page, bytes| {
            for (word, value) in model.content(key, page).samples() {
                let mut found = [0; 8];
                bytes.read(usize::from(word) * 8, &mut found);
                if u64::from_ne_bytes(found) != value && wrong.is_ok() {
                    wrong = Err(format!(
                        "page {page} of object {key}, word {word}: {:#x} instead of {value:#x}",
                        u64::from_ne_bytes(found)
                    ));
                }
            }
        });
        wrong?;
        match fault_answer(result)? {
            Err(None) => self.short(None),
            answer => {
                let end = (index + pages).min(self.model.objects[&key].pages);
                same(answer, Ok(end.saturating_sub(index)))
            }
        }
    }

    fn on_space(&mut self, cpu: CpuId, slot: u32, what: What) -> Check {
        let id = self.ids[&slot];
        match what {
            What::Fork { .. } if self.ids.len() < self.most => return self.fork(slot),
            What::Fork { .. } => return Ok(()),
            What::Share { .. } => {
                same(self.vm.share_space(id), true)?;
                self.model.spaces.get_mut(&slot).expect("live").users += 1;
            }
            What::Exec { .. } => return self.exec(slot),
            What::Exit { .. } => return self.exit(slot),
            What::MapAnonymous { aim, pages, prot, shared, grows, .. } => {
                let cell = Cell {
                    prot,
                    shared,
                    grows: grows && !shared,
                    heap: false,
                    object: None,
                    index: 0,
                };
                return self.map(slot, aim, pages, cell);
            }
            What::MapObject { object, index, aim, pages, prot, shared, .. } => {
                let Some(key) = nth(&self.objects, object) else {
                    return Ok(());
                };
                let cell = Cell {
                    prot,
                    shared,
                    grows: false,
                    heap: false,
                    object: Some(key),
                    index,
                };
                return self.map(slot, aim, pages, cell);
            }
            What::Unmap { place, pages, .. } => {
                let start = self.page(slot, place);
                let answer = map_answer(self.vm.unmap(id, Vpn(start), pages))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                same(answer, super::model::check_range(start, pages).map_err(Some))?;
                if answer.is_ok() {
                    self.space(slot).unmap(start, pages);
                }
            }
            What::Remap { place, pages, new_pages, aim, .. } => {
                let start = self.page(slot, place);
                return self.remap(slot, start, pages, new_pages, aim);
            }
            What::Protect { place, pages, prot: bits, .. } => {
                let start = self.page(slot, place);
                let answer = map_answer(self.vm.protect(id, Vpn(start), pages, prot(bits)))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                same(answer, self.space(slot).protect(start, pages, bits).map_err(Some))?;
            }
            What::Brk { pages, .. } => {
                let end = HEAP_START + pages;
                let answer = map_answer(self.vm.set_heap_end(id, Vpn(end)))?;
                if answer == Err(None) {
                    return self.short(Some(slot));
                }
                same(answer, self.space(slot).set_heap_end(end).map_err(Some))?;
            }
            What::DontNeed { place, pages, .. } | What::Free { place, pages, .. } => {
                let start = self.page(slot, place);
                let drops = matches!(what, What::DontNeed { .. });
                let advice = if drops { Advice::DontNeed } else { Advice::Free };
                let answer = map_answer(self.vm.advise(id, Vpn(start), pages, advice))?;
                let space = self.space(slot);
                let wanted = super::model::check_range(start, pages).and_then(|()| {
                    if drops {
                        space.dont_need(start, pages);
                    }
                    let covered = space.is_covered(start, pages);
                    covered.then_some(()).ok_or(Refusal::NotMapped)
                });
                same(answer, wanted.map_err(Some))?;
            }
            What::Populate { place, pages, .. } => {
                let start = self.page(slot, place);
                let calls = if self.tight { pages } else { 1 };
                for call in 0..calls {
                    let (start, pages) = if self.tight { (start + call, 1) } else { (start, pages) };
                    self.populate(slot, start, pages)?;
                }
            }
            What::Touch { place, access, word, value, .. } => {
                let page = self.page(slot, place);
                self.touch(cpu, slot, page, access, word, value)?;
            }
            What::Sweep { place, pages, step, access, value, .. } => {
                let start = self.page(slot, place);
                for nth in 0..pages {
                    let page = start + nth * step;
                    let word = (value.wrapping_add(nth) % 512) as u16;
                    self.touch(cpu, slot, page, access, word, value ^ nth)?;
                }
            }
            What::Pin { place, pages, writes, .. } => {
                let start = self.page(slot, place);
                let pages = if self.tight { 1 } else { pages };
                self.pin(slot, start, pages, writes)?;
            }
            _ => {}
        }
        self.check_space(slot)
    }

    fn space(&mut self, slot: u32) -> &mut super::model::Space {
        self.model.spaces.get_mut(&slot).expect("live")
    }

    fn fork(&mut self, slot: u32) -> Check {
        match map_answer(self.vm.fork(self.ids[&slot]))? {
            Err(_) => self.short(Some(slot)),
            Ok(id) => {
                let child = self.name_space(id);
                self.model.fork(slot, child);
                if !self.copies_all {
                    self.adopt_lazy_fork(child)?;
                }
                self.check_space(slot)?;
                self.check_space(child)
            }
        }
    }

    fn exec(&mut self, slot: u32) -> Check {
        let id = match map_answer(self.vm.exec(self.ids[&slot]))? {
            Err(_) => return self.short(Some(slot)),
            Ok(id) => id,
        };
        self.left(slot);
        let new = self.name_space(id);
        self.model.spaces.insert(new, Default::default());
        self.start_heap(new)
    }

    fn exit(&mut self, slot: u32) -> Check {
        let ended = map_answer(self.vm.exit(self.ids[&slot]))?;
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
        let id = self.ids[&slot];
        let mut traits = Traits::NONE;
        if cell.shared {
            traits = traits.union(Traits::SHARED);
        }
        if cell.grows {
            traits = traits.union(Traits::GROWS_DOWN);
        }
        let source = match cell.object {
            None => Source::Anonymous,
            Some(key) => Source::Object { id: self.objects[&key], page: cell.index },
        };
        let request = MapRequest {
            pages,
            prot: prot(cell.prot),
            traits,
            source,
            placement,
        };
        let wanted = self.model.place(slot, pages, target);
        let answer = map_answer(self.vm.map(id, &request))?;
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
        let mut first = cell;
        if cell.object.is_none() && cell.shared {
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
        let listed = self.vm.for_each_region(id, |entry| {
            if entry.range.contains(Vpn(page)) {
                found = entry.object.map(|(object, _, _)| object);
            }
        });
        listed.map_err(|error| error.to_string())?;
        found.ok_or_else(|| format!("shared memory mapped at {page:#x} has no object"))
    }

    fn remap(&mut self, slot: u32, start: u64, pages: u64, new_pages: u64, aim: Aim) -> Check {
        let (target, placement) = self.target(slot, aim);
        let id = self.ids[&slot];
        // Regions that could be one but are not refuse to be moved together.
        let mut single = false;
        let listed = self.vm.for_each_region(id, |entry| {
            let range = entry.range;
            single |= range.start.0 <= start && start + pages <= range.end.0;
        });
        listed.map_err(|error| error.to_string())?;
        let result = self.vm.remap(id, Vpn(start), pages, new_pages, placement);
        let answer = map_answer(result)?;
        if answer == Err(None) {
            // The target of a fixed move may have been unmapped.
            if let Target::Fixed(to) = target {
                let mut empty = true;
                let listed = self.vm.for_each_region(id, |entry| {
                    empty &= entry.range.end.0 <= to || to + new_pages <= entry.range.start.0;
                });
                listed.map_err(|error| error.to_string())?;
                if empty {
                    self.space(slot).unmap(to, new_pages);
                }
            }
            return self.short(Some(slot));
        }
        let wanted = self.space(slot).remap(start, pages, new_pages, target, single);
        let found = answer.map(|remapped| (remapped.range.start.0, remapped.moved));
        same(found, wanted.map_err(Some))?;
        if let Ok(remapped) = answer {
            same(remapped.range.pages(), new_pages)?;
        }
        self.check_space(slot)
    }

    fn populate(&mut self, slot: u32, start: u64, pages: u64) -> Check {
        let answer = fault_answer(self.vm.populate(self.ids[&slot], Vpn(start), pages))?;
        if answer == Err(None) {
            self.adopt_after_shortage(slot, start)?;
            return self.short(Some(slot));
        }
        let wanted = (|| {
            super::model::check_range(start, pages).map_err(|_| Refusal::NoRegion)?;
            for page in start..start + pages {
                match self.model.populate(slot, page) {
                    Err(Refusal::Protection) => self.model.access(slot, page, Access::Read)?,
                    other => other?,
                }
            }
            Ok(())
        })();
        same(answer, wanted.map_err(Some))
    }

    /// One access by a program, with real data.
    fn touch(
        &mut self,
        cpu: CpuId,
        slot: u32,
        page: u64,
        kind: Access,
        word: u16,
        value: u64,
    ) -> Check {
        let id = self.ids[&slot];
        let vm = Arc::clone(&self.vm);
        let loaded = vm.load(id).ok_or("a live space cannot be loaded")?;
        // SAFETY: the root is that of a live space of this machine's manager,
        // loaded on the CPU that this thread is on.
        let mmu = unsafe { vm.platform().mmu(cpu) };
        let address = page << 12 | u64::from(word) * 8;
        let result = mmu.access(
            loaded.tag,
            loaded.root,
            address,
            access(kind),
            value,
            &mut |fault| vm.fault(id, fault.address, fault.access).map(|_| ()),
        );
        let answer = match result {
            Ok(found) => Ok(found),
            Err(AccessError::Refused(error)) => fault_answer::<u64>(Err(error))?,
            Err(error) => return Err(error.to_string()),
        };
        if answer == Err(None) {
            self.adopt_after_shortage(slot, page)?;
            return self.short(Some(slot));
        }
        let wanted = self.model.access(slot, page, kind).map(|()| {
            if kind == Access::Write {
                self.model.store(slot, page, word, value);
            }
            self.model.word(slot, page, word)
        });
        same(answer, wanted.map_err(Some))
            .map_err(|error| format!("{kind:?} of page {page:#x}, word {word}: {error}"))
    }

    fn pin(&mut self, slot: u32, start: u64, pages: u64, writes: bool) -> Check {
        let mut frames = vec![Pfn::NONE; pages as usize];
        let kind = if writes { addr::Access::Write } else { addr::Access::Read };
        let result = self.vm.pin_pages(self.ids[&slot], Vpn(start), kind, &mut frames);
        let answer = fault_answer(result.map_err(|error| match error {
            PinError::Fault(error) => error,
            PinError::TooManyPins => FaultError::NoSpace,
        }))?;
        if answer == Err(None) {
            self.adopt_after_shortage(slot, start)?;
            return self.short(Some(slot));
        }
        let wanted = (start..start + pages).try_for_each(|page| self.model_pin(slot, page, writes));
        same(answer, wanted.map_err(Some))?;
        if answer.is_ok() {
            let space = &self.model.spaces[&slot];
            let number = |page| space.private.get(&page).map(|private| private.number);
            let numbers = (start..start + pages).map(|page| if writes { number(page) } else { None });
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

    /// What faulting a page in for a pin does: a private page takes the place
    /// of the shared zero page if the region can be written.
    fn model_pin(&mut self, slot: u32, page: u64, writes: bool) -> Result<(), Refusal> {
        if writes {
            return self.model.access(slot, page, Access::Write);
        }
        self.model.access(slot, page, Access::Read)?;
        let is_zero = self.model.spaces[&slot].clean.get(&page) == Some(&super::model::Clean::Zero);
        if is_zero {
            match self.model.access(slot, page, Access::Write) {
                Err(Refusal::Protection) => {}
                other => other?,
            }
        }
        Ok(())
    }
}
