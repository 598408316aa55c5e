//! Compares everything visible of the core with the model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use vellum::addr::{Pfn, Prot, Vpn};
use vellum::frame::Kind;
use vellum::object::ObjectKind;
use vellum::platform::CpuId;
use vellum::probe;
use vellum::rmap::ReverseMap;
use vellum::space::{MapEntry, PinnedPages, Traits};
use vellum::table::Format;

use super::drive::{Check, Driver, prot};
use super::model::{Access, Content, DEVICE, Key};
use super::space::{Cell, Clean, Frames, Hooks, Run};

/// Objects of more pages are read at both ends only. With reclaim, reading all of one that is
/// far larger than memory goes on for hours.
const LONG: u64 = 1024;
const ENDS: u64 = 32;

/// A leaf entry as the core reports it.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    frame: Pfn,
    prot: Prot,
    /// Whether it is a part of one that maps several pages.
    is_large: bool,
}

/// Leaf entries of a space by page, ascending.
struct Leaves(Vec<(u64, Leaf)>);

impl Leaves {
    fn contains(&self, page: u64) -> bool {
        self.0
            .binary_search_by_key(&page, |(page, _)| *page)
            .is_ok()
    }

    fn pages(&self) -> impl Iterator<Item = u64> + Clone {
        self.0.iter().map(|(page, _)| *page)
    }
}

fn named<T>(what: &str, core: T, model: T) -> Check
where
    T: PartialEq + std::fmt::Debug,
{
    if core == model {
        return Ok(());
    }
    Err(format!(
        "{what}: the core has {core:?}, the model {model:?}"
    ))
}

/// Runs with neighbours joined that look alike from outside.
fn joined(runs: Vec<Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::new();
    for mut run in runs {
        let shows_pages = run.first.object.is_some() || run.first.frames.is_some();
        if !shows_pages {
            run.first.index = 0;
        }
        if let Some(last) = joined.last_mut() {
            let step = if shows_pages {
                last.end - last.start
            } else {
                0
            };
            let next = Cell {
                index: last.first.index + step,
                ..last.first
            };
            if last.end == run.start && next == run.first {
                last.end = run.end;
                continue;
            }
        }
        joined.push(run);
    }
    joined
}

impl<F: Format, R: ReverseMap> Driver<F, R> {
    fn entries(&self, slot: u32) -> Result<Vec<MapEntry>, String> {
        let mut entries = Vec::new();
        self.vm
            .space(self.ids[&slot])
            .for_each_region(|entry| entries.push(*entry))
            .map_err(|error| error.to_string())?;
        Ok(entries)
    }

    fn leaves(&self, slot: u32) -> Result<Leaves, String> {
        let mut leaves = Vec::new();
        self.vm
            .space(self.ids[&slot])
            .for_each_leaf(|page, frame, pages, prot| {
                for step in 0..pages {
                    let leaf = Leaf {
                        frame: frame.offset(step as u32),
                        prot,
                        is_large: pages > 1,
                    };
                    leaves.push((page.0 + step, leaf));
                }
            })
            .map_err(|error| error.to_string())?;
        match leaves.is_sorted_by_key(|(page, _)| *page) {
            true => Ok(Leaves(leaves)),
            false => Err(format!("leaves out of order: {leaves:?}")),
        }
    }

    /// Pages of a range whose entries map pinned frames.
    pub fn pinned_pages(&self, slot: u32, range: Range<u64>) -> Result<BTreeSet<u64>, String> {
        let frames = self.pins.iter().flat_map(|pinned| &pinned.frames);
        let frames: BTreeSet<Pfn> = frames.copied().collect();
        let leaves = self.leaves(slot)?.0.into_iter();
        let pinned =
            leaves.filter(|(page, leaf)| range.contains(page) && frames.contains(&leaf.frame));
        Ok(pinned.map(|(page, _)| page).collect())
    }

    fn key_of(&self, bits: u64) -> Option<Key> {
        let mut objects = self.objects.iter();
        objects
            .find(|(_, id)| id.to_bits() == bits)
            .map(|(&key, _)| key)
    }

    fn run_of(&self, entry: &MapEntry) -> Result<Run, String> {
        let mut frames = None;
        let (object, index) = match entry.object {
            None => (None, 0),
            Some((id, ObjectKind::Unmanaged { first, at_once }, index)) => {
                let mapping = *self
                    .mappings
                    .get(&id.to_bits())
                    .ok_or("a region maps unknown frames")?;
                frames = Some(Frames {
                    mapping,
                    first: first.0 - DEVICE,
                    at_once,
                });
                (None, index)
            }
            Some((id, kind, index)) => {
                let key = self
                    .key_of(id.to_bits())
                    .ok_or("a region maps an unknown object")?;
                let store = match kind {
                    ObjectKind::File { store } => Some(store),
                    _ => None,
                };
                named(
                    "backing store of an object",
                    store,
                    self.model.objects[&key].store,
                )?;
                (Some(key), index)
            }
        };
        Ok(Run {
            start: entry.range.start.0,
            end: entry.range.end.0,
            first: Cell {
                prot: entry.prot.bits(),
                shared: entry.traits.has(Traits::SHARED),
                grows: entry.traits.has(Traits::GROWS_DOWN),
                heap: entry.traits.has(Traits::HEAP),
                locked: entry.traits.has(Traits::LOCKED),
                stays: entry.traits.has(Traits::NOT_FORKED),
                hooks: Hooks {
                    missing: entry.traits.has(Traits::HOOK_MISSING),
                    stores: entry.traits.has(Traits::HOOK_STORES),
                },
                folio: entry.traits.folio(),
                policy: entry.node_policy,
                object,
                frames,
                index,
            },
        })
    }

    /// The child of a fork that leaves entries to faults has at most the
    /// parent's; which ones is the core's choice.
    pub fn adopt_lazy_fork(&mut self, slot: u32) -> Check {
        let leaves = self.leaves(slot)?;
        let space = self.model.spaces.get_mut(&slot).expect("live");
        let (cells, clean) = (&space.cells, &mut space.clean);
        let stays = |page: &u64| cells[page].frames.is_some_and(|frames| frames.at_once);
        clean.retain(|page, _| stays(page) || leaves.contains(*page));
        Ok(())
    }

    /// A fault that ran out of memory may have extended a stack and mapped the
    /// page for reading.
    pub fn adopt_after_shortage(&mut self, slot: u32, page: u64) -> Check {
        let entries = self.entries(slot)?;
        let grown = entries.iter().any(|entry| entry.range.contains(Vpn(page)));
        if grown && !self.model.spaces[&slot].cells.contains_key(&page) {
            // The model grows it by an access, which is then undone.
            let clean = self.model.spaces[&slot].clean.clone();
            let private = self.model.spaces[&slot].private.clone();
            let _ = self.model.access(slot, page, super::model::Access::Read);
            let space = self.model.spaces.get_mut(&slot).expect("live");
            (space.clean, space.private) = (clean, private);
        }
        self.adopt_clean(slot)
    }

    /// Takes over entries that the core made beside those asked for.
    pub fn adopt_clean(&mut self, slot: u32) -> Check {
        let leaves = self.leaves(slot)?;
        for page in leaves.pages() {
            let space = self.model.spaces.get_mut(&slot).expect("live");
            if space.private.contains_key(&page) || space.clean.contains_key(&page) {
                continue;
            }
            let Some(cell) = space.cells.get(&page) else {
                continue;
            };
            let entry = if cell.frames.is_some() {
                Clean::Unmanaged
            } else if cell.object.is_some() {
                Clean::Cached
            } else {
                Clean::Zero
            };
            space.clean.insert(page, entry);
        }
        Ok(())
    }

    /// Compares one space: regions, entries, contents, counts.
    pub fn check_space(&mut self, slot: u32) -> Check {
        self.check_space_inner(slot)
            .map_err(|error| format!("space {slot}: {error}"))
    }

    fn check_space_inner(&mut self, slot: u32) -> Check {
        let entries = self.entries(slot)?;
        let runs: Result<Vec<Run>, String> =
            entries.iter().map(|entry| self.run_of(entry)).collect();
        let model = self.model.spaces[&slot].runs();
        named("regions", joined(runs?), joined(model))?;
        if !self.exact || self.has_huge {
            self.adopt_around(slot)?;
        }
        if self.has_superpages {
            self.adopt_superpages(slot)?;
        }
        self.adopt_frames(slot)?;
        for page in self.freed_pages(slot) {
            self.adopt_dropped(slot, page, None);
        }
        let leaves = self.leaves(slot)?;
        if self.has_folios {
            for page in leaves.pages() {
                self.adopt_folios(slot, page..page + 1);
            }
        }
        let takes_back = self.taken_back() > 0;
        let space = self.model.spaces.get_mut(&slot).expect("live");
        // A superpage that is taken apart takes the locked pages beside it with it.
        if let Some(page) = space.note_locked(|page| leaves.contains(page))
            && !self.has_huge
        {
            return Err(format!("page {page:#x} is locked, and left memory"));
        }
        if takes_back {
            space
                .clean
                .retain(|page, entry| *entry != Clean::Cached || leaves.contains(*page));
        }
        for &(page, ref leaf) in &leaves.0 {
            self.check_leaf(slot, page, leaf)
                .map_err(|error| format!("page {page:#x}: {error}"))?;
        }
        let space = &self.model.spaces[&slot];
        let is_swapped = |page: &u64| space.private.contains_key(page);
        for page in space
            .clean
            .keys()
            .chain(space.watched.iter().filter(|page| !is_swapped(page)))
        {
            if !leaves.contains(*page) {
                return Err(format!("page {page:#x} is not resident, but should be"));
            }
        }
        self.check_stats(slot, entries.len() as u32, &leaves)
    }

    fn freed_pages(&self, slot: u32) -> Vec<u64> {
        let private = self.model.spaces[&slot].private.iter();
        let freed = private.filter(|(_, private)| private.freed);
        freed.map(|(&page, _)| page).collect()
    }

    /// A page that was freed may have been dropped and be another by now, of zeroes but for the
    /// word that was just `stored`. As long as nothing is mapped nobody knows.
    pub fn adopt_dropped(&mut self, slot: u32, page: u64, stored: Option<u16>) {
        let private = self.model.spaces[&slot].private.get(&page);
        let Some(private) = private.filter(|private| private.freed) else {
            return;
        };
        let Ok((frame, _)) = self.vm.space(self.ids[&slot]).translate(Vpn(page)) else {
            return;
        };
        let record = self.vm.memory().frame(frame);
        // A frame within a superpage has no reference.
        let is_zero_page = record.kind() == Kind::Reserved && record.counts().refs() > 0;
        if is_zero_page {
            let space = self.model.spaces.get_mut(&slot).expect("live");
            space.private.remove(&page);
            space.clean.insert(page, Clean::Zero);
            return;
        }
        let samples: Vec<(u16, u64)> = (private.content.samples())
            .filter(|(word, _)| Some(*word) != stored)
            .collect();
        let found = |word: u16| self.vm.platform().ram_word(frame, usize::from(word) * 8);
        let is_kept = samples
            .iter()
            .all(|&(word, value)| found(word) == Some(value));
        if !is_kept && samples.iter().all(|&(word, _)| found(word) == Some(0)) {
            self.model.own(slot, page, Content::of(0));
        }
    }

    /// Pages of objects that were mapped around a fault, or with it by a superpage.
    fn adopt_around(&mut self, slot: u32) -> Check {
        let leaves = self.leaves(slot)?;
        for page in leaves.pages() {
            let space = self.model.spaces.get_mut(&slot).expect("live");
            let known = space.private.contains_key(&page) || space.clean.contains_key(&page);
            let cell = space.cells.get(&page);
            if !known && cell.is_some_and(|cell| cell.object.is_some()) {
                space.clean.insert(page, Clean::Cached);
            }
        }
        Ok(())
    }

    /// Frames of the device that a fault mapped with the one it was for, by a large leaf.
    fn adopt_frames(&mut self, slot: u32) -> Check {
        let leaves = self.leaves(slot)?;
        let space = self.model.spaces.get_mut(&slot).expect("live");
        for page in leaves.pages() {
            if space
                .cells
                .get(&page)
                .is_some_and(|cell| cell.frames.is_some())
            {
                space.clean.insert(page, Clean::Unmanaged);
            }
        }
        Ok(())
    }

    /// Pages that came with the first use of another in the same superpage.
    fn adopt_superpages(&mut self, slot: u32) -> Check {
        for (page, leaf) in self.leaves(slot)?.0 {
            if leaf.frame.0 >= DEVICE {
                continue;
            }
            // It may have been split since.
            let kind = self.vm.memory().frame(leaf.frame).kind();
            if kind != Kind::Object && (leaf.is_large || kind == Kind::Anonymous) {
                self.model.adopt_private(slot, page);
            }
        }
        Ok(())
    }

    /// Pages that came with a store to another of the same folio.
    pub fn adopt_folios(&mut self, slot: u32, pages: Range<u64>) {
        for page in pages {
            if probe::came_in_folio(self.vm.space(self.ids[&slot]), Vpn(page)) {
                self.model.adopt_private(slot, page);
            }
        }
    }

    fn check_leaf(&mut self, slot: u32, page: u64, leaf: &Leaf) -> Check {
        let space = &self.model.spaces[&slot];
        let cell = *space
            .cells
            .get(&page)
            .ok_or("an entry outside of any region")?;
        let mut allowed = prot(cell.prot);
        if space.watched.contains(&page) {
            allowed = allowed.read_only();
        }
        let content = if let Some(private) = space.private.get(&page) {
            private.content.clone()
        } else if let Some(frame) = cell.frame() {
            named("frame of the device", leaf.frame, Pfn(DEVICE + frame))?;
            named("rights of an entry of the device", leaf.prot, allowed)?;
            self.model.on_device(frame)
        } else {
            match (space.clean.get(&page), cell.object) {
                (Some(Clean::Zero), None) => {
                    allowed = allowed.read_only();
                    let zero = *self.zero_page.get_or_insert(leaf.frame);
                    named("shared zero page", leaf.frame, zero)?;
                    Content::of(0)
                }
                (Some(Clean::Cached), Some(key)) => {
                    if cell.index >= self.model.objects[&key].pages {
                        return Err("an entry behind the end of its object".into());
                    }
                    if !cell.shared {
                        allowed = allowed.read_only();
                    }
                    self.model.content(key, cell.index)
                }
                _ => return Err("an entry for a page that nobody asked for".into()),
            }
        };
        if leaf.prot.union(allowed) != allowed {
            return Err(format!("{:?} in the entry, {allowed:?} allowed", leaf.prot));
        }
        if allowed.can_read() && !leaf.prot.can_read() {
            return Err("the entry forbids what the region allows".into());
        }
        self.check_frame(leaf.frame, &content)
    }

    /// Compares what is in RAM.
    fn check_frame(&self, frame: Pfn, content: &Content) -> Check {
        for (word, value) in content.samples() {
            let (machine, offset) = (self.vm.platform(), usize::from(word) * 8);
            let found = match frame.0 >= DEVICE {
                true => machine.device_word(frame, offset),
                false => machine.ram_word(frame, offset),
            };
            if found != Some(value) {
                return Err(format!(
                    "word {word} of {frame:?} is {found:x?} instead of {value:#x}"
                ));
            }
        }
        Ok(())
    }

    fn check_stats(&self, slot: u32, regions: u32, leaves: &Leaves) -> Check {
        let stats = self
            .vm
            .space(self.ids[&slot])
            .stats()
            .map_err(|_| "a live space has no statistics")?;
        let space = &self.model.spaces[&slot];
        // A private page is resident or in swap.
        let absent = |page: &&u64| !leaves.contains(**page);
        let swapped: Vec<u64> = space.private.keys().filter(absent).copied().collect();
        let is_certain = |page: &u64| !space.private[page].freed;
        let certain: Vec<u64> = swapped.iter().copied().filter(is_certain).collect();
        let (least, most) = (certain.len() as u64, swapped.len() as u64);
        if !(least..=most).contains(&stats.swapped) {
            return named("pages in swap", stats.swapped, least);
        }
        named(
            "resident private pages",
            stats.rss.anonymous,
            (space.private.len() - swapped.len()) as u64,
        )?;
        let mut counts = [0; 3];
        for (page, entry) in &space.clean {
            let object = space.cells[page]
                .object
                .map(|key| &self.model.objects[&key]);
            let kind = match (entry, object.and_then(|object| object.store)) {
                (Clean::Unmanaged, _) => continue,
                (Clean::Zero, _) => 0,
                (Clean::Cached, Some(_)) => 1,
                (Clean::Cached, None) => 2,
            };
            counts[kind] += 1;
        }
        named("entries of the zero page", stats.rss.zero, counts[0])?;
        named("resident file pages", stats.rss.file, counts[1])?;
        named("resident shared pages", stats.rss.shared_memory, counts[2])?;
        named("mapped pages", stats.pages, space.cells.len() as u64)?;
        let locked = space.cells.values().filter(|cell| cell.locked);
        named("locked pages", stats.locked, locked.count() as u64)?;
        named("regions counted", stats.regions, regions)?;
        named("users", stats.users, space.users)?;
        let heap = self
            .vm
            .space(self.ids[&slot])
            .heap()
            .map_err(|_| "a live space has no heap")?;
        named("heap", (heap.start.0, heap.end.0), space.heap)?;
        // A superpage of private memory keeps a table, one of an object does not.
        let keeps_none = |leaf: &Leaf| {
            let kind = || self.vm.memory().frame(leaf.frame).kind();
            let is_device = leaf.frame.0 >= DEVICE;
            leaf.is_large && (is_device || self.has_huge && kind() == Kind::Object)
        };
        let of = |large: bool| {
            let leaves = leaves.0.iter();
            let leaves = leaves.filter(move |(_, leaf)| keeps_none(leaf) == large);
            leaves.map(|(page, _)| *page)
        };
        let needed = |are_swapped: &[u64]| {
            let needed = of(false).chain(are_swapped.iter().copied());
            self.shape.table_bytes(needed, of(true))
        };
        let (least, most) = (needed(&certain), needed(&swapped));
        // No more than lead to entries (invariant 5), unless the space was divided once.
        let most = match self.divided.contains(&self.ids[&slot]) {
            true => u64::MAX,
            false => most,
        };
        match (least..=most).contains(&stats.table_bytes) {
            true => Ok(()),
            false => named("bytes of page tables", stats.table_bytes, least),
        }
    }

    pub fn check_spaces(&mut self) -> Check {
        let slots: Vec<u32> = self.ids.keys().copied().collect();
        slots
            .into_iter()
            .try_for_each(|slot| self.check_space(slot))
    }

    /// Compares everything and has the core audit itself
    /// (invariants 1, 2, 3, 5, 8, 9 and 14).
    pub fn check_all(&mut self) -> Check {
        self.check_spaces()?;
        let mut frames: BTreeMap<(Key, u64), Pfn> = BTreeMap::new();
        let mut private: BTreeMap<u64, Pfn> = BTreeMap::new();
        let mut swapped: BTreeSet<u64> = BTreeSet::new();
        for slot in self.ids.keys() {
            let leaves = self.leaves(*slot)?;
            let space = &self.model.spaces[slot];
            let absent = space.private.iter();
            let absent = absent.filter(|(page, own)| !leaves.contains(**page) && !own.freed);
            swapped.extend(absent.map(|(_, own)| own.number));
            for (page, leaf) in &leaves.0 {
                if let Some(own) = space.private.get(page) {
                    private.insert(own.number, leaf.frame);
                } else if let Some(key) = space.cells[page].object {
                    let index = space.cells[page].index;
                    let known = *frames.entry((key, index)).or_insert(leaf.frame);
                    named("frame of an object's page", leaf.frame, known)?;
                }
            }
        }
        for pinned in &self.pins {
            for (&frame, number) in pinned.frames.iter().zip(&pinned.numbers) {
                if let Some(&mapped) = number.and_then(|number| private.get(&number)) {
                    named("frame of a pinned page", mapped, frame)?;
                }
                if number.is_some_and(|number| swapped.contains(&number)) {
                    return Err(format!("{frame:?} is pinned, and its page in swap"));
                }
            }
        }
        self.vm
            .audit()
            .map(|_| ())
            .map_err(|failure| format!("audit: {failure}"))
    }

    /// Uses every private page that is in swap and may be read, which shows what it holds.
    fn bring_back(&mut self) -> Check {
        for slot in self.ids.keys().copied().collect::<Vec<_>>() {
            let leaves = self.leaves(slot)?;
            let space = &self.model.spaces[&slot];
            let absent = space.private.keys();
            let absent: Vec<u64> = absent
                .filter(|page| !leaves.contains(**page))
                .filter(|page| space.cells[page].allows(Access::Read))
                .copied()
                .collect();
            for page in absent {
                self.touch(CpuId(0), slot, page, Access::Read, 7, 0)?;
                if !self.tight && !self.leaves(slot)?.contains(page) {
                    return Err(format!("page {page:#x} did not come back from swap"));
                }
            }
        }
        Ok(())
    }

    /// Everything ends: nothing may be left, and the stores hold what was written.
    pub fn finish(&mut self) -> Check {
        let vm = std::sync::Arc::clone(&self.vm);
        let _guard = vm.platform().enter(CpuId(0));
        self.bring_back()?;
        self.check_all()?;
        for key in self.objects.keys().copied().collect::<Vec<_>>() {
            let pages = self.model.objects[&key].pages;
            if pages <= LONG {
                self.read_object(key, 0, pages)?;
                continue;
            }
            self.read_object(key, 0, ENDS)?;
            self.read_object(key, pages - ENDS, ENDS)?;
        }
        for pinned in std::mem::take(&mut self.pins) {
            // SAFETY: `pin` gave the pins up, and they leave the list.
            drop(unsafe { PinnedPages::from_frames(&vm, &pinned.frames) });
        }
        for (slot, id) in std::mem::take(&mut self.ids) {
            while vm.space(id).exit() == Ok(false) {}
            self.model.spaces.remove(&slot);
        }
        for (key, object) in &mut self.model.objects {
            if std::mem::replace(&mut object.open, false) {
                vm.file(self.objects[key])
                    .release()
                    .map_err(|error| error.to_string())?;
            }
        }
        self.model.end_unused_objects();
        named("objects left", self.model.objects.len(), 0)?;
        for (&(store, index), content) in &self.model.stores {
            for (word, value) in content.samples() {
                let offset = (index << self.shape.page_shift) + u64::from(word) * 8;
                let found = vm.platform().store().stored_word(store, offset);
                named("word in the backing store", found, Some(value))?;
            }
        }
        let report = vm
            .audit()
            .map_err(|failure| format!("audit after the end: {failure}"))?;
        for kind in [Kind::Table, Kind::Anonymous, Kind::Object, Kind::Allocated] {
            let free = if kind == Kind::Table {
                report.free_tables
            } else {
                0
            };
            named(
                &format!("frames of kind {kind:?} left"),
                report.frames.of(kind),
                free,
            )?;
        }
        let swap = vm.swap_stats();
        named("free swap slots", swap.free + swap.bad, swap.slots)?;
        let live = [
            report.spaces,
            report.regions,
            report.objects,
            report.tables,
            report.entries,
        ];
        named(
            "spaces, regions, objects, tables, entries left",
            live,
            [0; 5],
        )?;
        named(
            "rmap nodes left",
            // SAFETY: nothing is changed.
            vellum::rmap::Audited::live_nodes(unsafe { vellum::probe::layers(&vm) }.rmap),
            0,
        )
    }
}
