//! Carries out operations on the core and on the model, and compares what
//! both answer.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;

use vellum::addr::{self, Pfn, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{
    Allocation, FaultError, File, FileError, FileRequest, Limits, MapError, PinnedPages, Placement,
    ReadRequest, WriteRequest,
};
use vellum::table::Format;
use vellum::{ObjectId, SpaceId, Vm};
use vellum_machine::Machine;

use super::failed::{Allows, Sight};
use super::groups::Groups;
use super::hooks::caught;
use super::model::{Access, DEVICE, Key, Model, Refusal, STACK_GAP};
use super::ops::{Aim, Op, Place, What};
use super::shape::Shape;
use super::space::{Space, Target};

pub type Check = Result<(), String>;

/// Frames pinned by one call. `number` names the private page that the pin has made the space's
/// own.
pub struct Pinned {
    pub frames: Vec<Pfn>,
    pub numbers: Vec<Option<u64>>,
    /// The pages of objects among them.
    pub objects: Vec<(Key, u64)>,
}

/// A core, the model of it, and the names of things in both.
pub struct Driver<F: Format, R: ReverseMap> {
    pub vm: Arc<Vm<Machine, F, R>>,
    pub shape: Shape,
    pub model: Model,
    pub ids: BTreeMap<u32, SpaceId>,
    pub objects: BTreeMap<Key, ObjectId>,
    /// Mappings of frames of the device, by the name that the core shows them with.
    pub mappings: BTreeMap<u64, u32>,
    pub pins: Vec<Pinned>,
    pub groups: Groups,
    next_space: u32,
    next_store: u64,
    pub cpus: u16,
    /// Entries are made only for pages that are accessed.
    pub exact: bool,
    /// The first use of a page may make others around it resident.
    pub has_superpages: bool,
    /// Whether objects may be mapped in superpages.
    pub has_huge: bool,
    /// A store may make others of its folio resident.
    pub has_folios: bool,
    /// Fork copies every entry.
    pub copies_all: bool,
    /// Memory may run out.
    pub tight: bool,
    pub zero_page: Option<Pfn>,
    /// Operations that ran out of memory.
    pub shortages: u32,
    /// The space of a call for which memory ran out in this operation.
    short_of: Option<u32>,
    /// Whether calls that fail are checked to have changed nothing.
    pub watches: bool,
    /// What was to be seen before the call at work, if it is checked.
    pub before: Option<(Sight, Allows)>,
    /// Most spaces, and most objects, at a time.
    pub most: usize,
    /// The page touched last.
    pub recent: u64,
    /// Operations so far.
    count: usize,
    /// Calls so far that moved pages, of which those of objects lose their entries.
    pub moves: u64,
    /// Whether spaces are divided now and then, and how often that was.
    pub divides: bool,
    pub divisions: u32,
    /// Those that were.
    pub divided: HashSet<SpaceId>,
}

/// An answer of the core in the model's words. `Err(None)`: out of memory.
pub type Answer<T> = Result<T, Option<Refusal>>;

pub fn fault_answer<T>(result: Result<T, FaultError>) -> Result<Answer<T>, String> {
    Ok(match result {
        Ok(value) => Ok(value),
        Err(FaultError::OutOfMemory | FaultError::GroupLimit(_)) => Err(None),
        Err(FaultError::NoRegion) => Err(Some(Refusal::NoRegion)),
        Err(FaultError::Protection) => Err(Some(Refusal::Protection)),
        Err(FaultError::PastEnd) => Err(Some(Refusal::PastEnd)),
        Err(FaultError::Unmanaged) => Err(Some(Refusal::Unmanaged)),
        Err(FaultError::Hooked(kind)) => Err(Some(Refusal::Caught(caught(kind)?))),
        Err(other) => return Err(format!("unexpected refusal: {other}")),
    })
}

pub fn file_answer<T>(result: Result<T, FileError>) -> Result<Answer<T>, String> {
    Ok(match result {
        Ok(value) => Ok(value),
        Err(FileError::OutOfMemory | FileError::GroupLimit(_)) => Err(None),
        Err(other) => return Err(format!("unexpected refusal: {other}")),
    })
}

pub fn map_answer<T>(result: Result<T, MapError>) -> Result<Answer<T>, String> {
    Ok(match result {
        Ok(value) => Ok(value),
        Err(MapError::OutOfMemory | MapError::GroupLimit(_)) => Err(None),
        Err(MapError::BadRange) => Err(Some(Refusal::BadRange)),
        Err(MapError::NotMapped) => Err(Some(Refusal::NotMapped)),
        Err(MapError::Occupied) => Err(Some(Refusal::Occupied)),
        Err(MapError::NoGap) => Err(Some(Refusal::NoGap)),
        Err(MapError::Locked) => Err(Some(Refusal::Locked)),
        Err(MapError::WrongKind) => Err(Some(Refusal::WrongKind)),
        Err(MapError::Rights) => Err(Some(Refusal::Rights)),
        Err(other) => return Err(format!("unexpected refusal: {other}")),
    })
}

pub fn same<T: PartialEq + Debug>(core: T, model: T) -> Check {
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

pub fn nth<K: Copy, V>(map: &BTreeMap<K, V>, nth: u8) -> Option<K> {
    let count = map.len();
    (count > 0).then(|| {
        *map.keys()
            .nth(usize::from(nth) % count)
            .expect("below the count")
    })
}

impl<F: Format, R: ReverseMap> Driver<F, R> {
    pub fn new(vm: Vm<Machine, F, R>, cpus: u16, tight: bool) -> Self {
        let exact = vm.design().fault_around == 1;
        let has_superpages = vm.design().superpages != vellum::design::Superpages::Off;
        let has_huge = vm.design().huge != vellum::design::HugePages::Never
            || vm.design().file_huge != vellum::design::FileHuge::Never;
        let has_folios = vm.design().folio != vellum::design::Folio::Off;
        let copies_all = vm.design().fork_copy == vellum::design::ForkCopy::All;
        let groups = Groups::new(&vm, tight);
        vm.platform().plug_device(Pfn(DEVICE), 3 << 12);
        Driver {
            groups,
            vm: Arc::new(vm),
            shape: Shape::of::<F>(),
            model: Model::new(Shape::of::<F>()),
            ids: BTreeMap::new(),
            objects: BTreeMap::new(),
            mappings: BTreeMap::new(),
            pins: Vec::new(),
            next_space: 0,
            next_store: 0,
            cpus,
            exact,
            has_superpages,
            has_huge,
            has_folios,
            copies_all,
            tight,
            zero_page: None,
            shortages: 0,
            short_of: None,
            watches: tight,
            before: None,
            most: 6,
            recent: 480,
            count: 0,
            moves: 0,
            divides: false,
            divisions: 0,
            divided: HashSet::new(),
        }
    }

    /// Makes a space one again where what follows depends on its tracts.
    pub fn unite(&self, id: SpaceId) {
        if let Ok(heap) = self.vm.space(id).heap() {
            // Changes nothing else. If memory is short, so it will be for what follows.
            let _ = self.vm.space(id).set_heap_end(heap.end);
        }
    }

    /// Divides a space into tracts now and then, of which nothing is to be seen: where a region
    /// begins or ends, mostly. Not where calls that fail are looked at: what they made one region
    /// on their way stays one.
    fn divide_some(&mut self) -> Check {
        self.count += 1;
        let count = self.count;
        if !self.divides || self.watches || !count.is_multiple_of(3) || self.ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<SpaceId> = self.ids.values().copied().collect();
        let id = ids[count / 3 % ids.len()];
        let mut edges = vec![self.recent];
        let listed = self.vm.space(id).for_each_region(|entry| {
            edges.extend([entry.range.start.0, entry.range.end.0]);
        });
        listed.map_err(|error| error.to_string())?;
        let page = edges[count * 7 % edges.len()];
        match self.vm.space(id).divide(Vpn(page)) {
            Ok(true) => {
                self.divisions += 1;
                self.divided.insert(id);
            }
            Ok(false) => {}
            Err(MapError::OutOfMemory) => {}
            Err(error) => return Err(format!("unexpected refusal: {error}")),
        }
        Ok(())
    }

    /// Carries out one operation on both sides.
    pub fn apply(&mut self, op: &Op) -> Check {
        let vm = Arc::clone(&self.vm);
        let cpu = CpuId(u16::from(op.cpu) % self.cpus);
        let _guard = vm.platform().enter(cpu);
        self.divide_some()?;
        self.carry_out(cpu, op.what)?;
        // Once for all pages of an operation that had to do without memory.
        if let Some(slot) = self.short_of.take()
            && self.ids.contains_key(&slot)
        {
            self.check_space(slot)?;
        }
        for key in self.model.end_unused_objects() {
            self.objects.remove(&key);
        }
        Ok(())
    }

    pub fn page(&self, space: u32, place: Place) -> u64 {
        match place {
            Place::At(page) => page,
            Place::Recent => self.recent,
            Place::Mapped(nth) => {
                let cells = &self.model.spaces[&space].cells;
                let count = cells.len() as u64;
                let found = nth
                    .checked_rem(count)
                    .and_then(|nth| cells.keys().nth(nth as usize));
                *found.unwrap_or(&480)
            }
        }
    }

    pub fn target(&self, space: u32, aim: Aim) -> (Target, Placement) {
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
            What::OpenFile { pages } if self.objects.len() < self.most => {
                self.open(Some(pages), None)
            }
            What::OpenMemory { pages } if self.objects.len() < self.most => {
                self.open(None, Some(pages))
            }
            What::Create | What::OpenFile { .. } | What::OpenMemory { .. } => Ok(()),
            What::Unpin { nth } => self.unpin(nth),
            What::Reclaim { pages } => {
                self.vm.reclaim_pages(pages);
                Ok(())
            }
            What::Audit => {
                // What idle CPUs and short ones do changes nothing visible.
                self.vm.idle();
                self.vm.zero_idle(20);
                if self.next_space.is_multiple_of(3) {
                    self.vm.relieve();
                }
                self.groups.check(&self.vm)?;
                self.groups.change(&self.vm, self.ids.values().copied())?;
                self.check_all()
            }
            What::Release { object }
            | What::Truncate { object, .. }
            | What::Shift { object, .. }
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
            | What::MapFrames { space, .. }
            | What::Unmap { space, .. }
            | What::Remap { space, .. }
            | What::Protect { space, .. }
            | What::Brk { space, .. }
            | What::DontNeed { space, .. }
            | What::Inherit { space, .. }
            | What::NodePolicy { space, .. }
            | What::MovePages { space, .. }
            | What::Withdraw { space, .. }
            | What::Free { space, .. }
            | What::Cold { space, .. }
            | What::PageOut { space, .. }
            | What::AdviseFolio { space, .. }
            | What::Lock { space, .. }
            | What::Populate { space, .. }
            | What::Touch { space, .. }
            | What::Collapse { space, .. }
            | What::Sweep { space, .. }
            | What::Hook { space, .. }
            | What::Supply { space, .. }
            | What::Watch { space, .. }
            | What::TakeDirty { space, .. }
            | What::Pin { space, .. } => match nth(&self.ids, space) {
                Some(slot) => self.on_space(cpu, slot, what),
                None => Ok(()),
            },
        }
    }

    /// Notes that memory ran out, which must be possible and have changed nothing, in the
    /// space least of all.
    pub fn short(&mut self, slot: Option<u32>) -> Check {
        if !self.tight {
            return Err("out of memory, with plenty of it".into());
        }
        self.shortages += 1;
        self.short_of = slot.or(self.short_of);
        self.check_unchanged()
    }

    pub fn name_space(&mut self, id: SpaceId) -> u32 {
        self.next_space += 1;
        self.ids.insert(self.next_space, id);
        self.next_space
    }

    fn create(&mut self) -> Check {
        self.remember(Allows::Nothing)?;
        let id = match map_answer(self.vm.create_space().map(vellum::space::Space::id))? {
            Ok(id) => id,
            Err(_) => return self.short(None),
        };
        self.groups.enter(&self.vm, id)?;
        let slot = self.name_space(id);
        self.model.spaces.insert(slot, self.new_space());
        self.start_heap(slot)
    }

    pub fn new_space(&self) -> Space {
        Space {
            user_end: self.shape.user_end,
            ..Space::default()
        }
    }

    pub fn start_heap(&mut self, slot: u32) -> Check {
        let start = self.shape.heap_start();
        let space = self.model.spaces.get_mut(&slot).expect("just made");
        space.users = 1;
        space.heap = (start, start);
        let set = self.vm.space(self.ids[&slot]).set_heap_start(Vpn(start));
        set.map_err(|error| error.to_string())?;
        let limits = Limits {
            stack_gap_pages: STACK_GAP,
            ..Limits::default()
        };
        let set = self.vm.space(self.ids[&slot]).set_limits(limits);
        set.map_err(|error| error.to_string())?;
        self.check_space(slot)
    }

    fn open(&mut self, file: Option<u64>, memory: Option<u64>) -> Check {
        self.remember(Allows::Nothing)?;
        let store = file.map(|_| self.next_store + 1);
        let bytes = |pages| pages << self.shape.page_shift;
        let request = match (store, file, memory) {
            (Some(store), Some(pages), _) => FileRequest::stored(store, bytes(pages)),
            (_, _, pages) => FileRequest::shared_memory(bytes(pages.unwrap_or(1))),
        };
        let made = self.vm.create_file(request).map(File::id);
        let id = match file_answer(made)? {
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
            // SAFETY: `pin` gave the pins up, and they leave the list.
            drop(unsafe { PinnedPages::from_frames(&self.vm, &pinned.frames) });
        }
        Ok(())
    }

    fn on_object(&mut self, key: Key, what: What) -> Check {
        let id = self.objects[&key];
        self.remember(Allows::PagesWritten)?;
        match what {
            What::Release { .. } => {
                self.vm
                    .file(id)
                    .release()
                    .map_err(|error| error.to_string())?;
                let object = self.model.objects.get_mut(&key).expect("an open object");
                object.open = false;
            }
            What::Truncate { pages, .. } => {
                self.vm
                    .file(id)
                    .set_size(pages << self.shape.page_shift)
                    .map_err(|error| error.to_string())?;
                self.model.truncate(key, pages);
                return self.check_spaces();
            }
            What::Shift {
                index, pages, up, ..
            } => {
                let how = [Allocation::Collapse, Allocation::Insert][usize::from(up)];
                let [place, bytes] = [index, pages].map(|pages| pages << self.shape.page_shift);
                let answer = self.vm.file(id).allocate(how, place, bytes);
                if answer == Err(FileError::OutOfMemory) {
                    // Entries come back with faults.
                    self.model.forget_from(key, index, true);
                    self.shortages += 1;
                } else {
                    let refused = Err(FileError::WrongKind);
                    let wanted = self.model.shift(key, index, pages, up);
                    same(answer, if wanted { Ok(()) } else { refused })?;
                }
                return self.check_spaces();
            }
            What::Write {
                index,
                pages,
                value,
                ..
            } => {
                let mut written = Vec::new();
                let result =
                    self.vm
                        .file(id)
                        .write(WriteRequest::pages(index, pages, |page, bytes| {
                            bytes.fill(value ^ page);
                            bytes.write(16, &value.to_ne_bytes());
                            written.push(page);
                        }));
                let answer = file_answer(result)?;
                let end = index + answer.unwrap_or(0);
                for &page in written.iter().filter(|&&page| page < end) {
                    let content = self.model.change(key, page);
                    *content = super::model::Content::of(value ^ page);
                    content.words.insert(2, value);
                    let object = self.model.objects.get_mut(&key).expect("an open object");
                    object.pages = object.pages.max(page + 1);
                }
                match answer {
                    Err(None) => self.short(None)?,
                    Ok(count) if count < pages => self.short(None)?,
                    answer => same(answer, Ok(pages))?,
                }
            }
            What::Read { index, pages, .. } => self.read_object(key, index, pages)?,
            What::Sync { .. } => match file_answer(self.vm.file(id).sync())? {
                Ok(pages) => self.check_sync(key, pages)?,
                Err(refusal) => return Err(format!("sync refused: {refusal:?}")),
            },
            _ => {}
        }
        if let Ok(size) = self.vm.file(id).size() {
            let pages = size.div_ceil(1 << self.shape.page_shift);
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
        // Reclaim may have written some, of whatever object.
        let early = self.vm.stats().reclaim.written;
        if (written.saturating_sub(early)..=written + more).contains(&pages) {
            return Ok(());
        }
        Err(format!(
            "sync wrote {pages} pages; {written} are newer, {more} may count as newer"
        ))
    }

    /// Reads pages through the cache and compares them.
    pub fn read_object(&mut self, key: Key, index: u64, pages: u64) -> Check {
        self.remember(Allows::Nothing)?;
        let model = &self.model;
        let mut wrong = Ok(());
        let result = self.vm.file(self.objects[&key]).read(ReadRequest::pages(
            index,
            pages,
            |page, bytes| {
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
            },
        ));
        wrong?;
        match file_answer(result)? {
            Err(None) => self.short(None),
            answer => {
                let end = (index + pages).min(self.model.objects[&key].pages);
                same(answer, Ok(end.saturating_sub(index)))
            }
        }
    }
}
