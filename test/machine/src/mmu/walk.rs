//! The walk: from the root, or from a cached upper entry, down to a leaf.

use vellum::addr::{Access, Pfn};
use vellum::platform::SpaceTag;
use vellum::sync::atomic::{AtomicU64, Ordering};

use super::tlb::{Leaf, LoadedRoot, Tlb, Upper};
use super::walker::{Entry, FaultReason, Rights};
use crate::machine::Machine;

/// One access.
pub(crate) struct Request {
    pub space: SpaceTag,
    pub root: Pfn,
    pub address: u64,
    pub access: Access,
    /// The word to store.
    pub value: u64,
}

impl Request {
    pub(super) fn new(
        space: SpaceTag,
        root: Pfn,
        address: u64,
        access: Access,
        value: u64,
    ) -> Request {
        Request {
            space,
            root,
            address,
            access,
            value,
        }
    }
}

impl Machine {
    pub(super) fn check_address(&self, request: &Request) -> Result<(), FaultReason> {
        if !self.walker.is_canonical(request.address) {
            return Err(FaultReason::NonCanonical);
        }
        if !request.address.is_multiple_of(8) {
            return Err(FaultReason::Misaligned);
        }
        Ok(())
    }

    /// The cached translation for `request`.
    pub(super) fn cached(&self, tlb: &Tlb, request: &Request) -> Result<Option<Leaf>, FaultReason> {
        let mut found = tlb.found(request.space, request.address);
        let first = found.next();
        if self.walker.has_conflicts() && found.next().is_some() {
            return Err(FaultReason::Conflict);
        }
        Ok(first)
    }

    /// The word of RAM, or of a device, that `address` means under the translation `leaf`.
    pub(super) fn data_word(&self, leaf: &Leaf, address: u64) -> Result<&AtomicU64, FaultReason> {
        let frame_shift = self.walker.frame_shift();
        let within_page = address & ((1 << leaf.shift) - 1);
        let frame = Pfn(leaf
            .frame
            .0
            .wrapping_add((within_page >> frame_shift) as u32));
        let within_frame = within_page & ((1 << frame_shift) - 1);
        let of_device = || {
            let device = self.device.get()?;
            device.word(frame, within_frame as usize)
        };
        self.ram
            .word(frame, within_frame as usize)
            .or_else(of_device)
            .ok_or(FaultReason::NoMemory { frame })
    }

    /// Walks the tables for `request`. With `mark`, entries are marked as
    /// accessed (and the leaf as written, for a store) before they are used,
    /// and upper entries are cached; without, memory and caches stay as they are.
    pub(super) fn walk(
        &self,
        tlb: &mut Tlb,
        request: &Request,
        mark: bool,
    ) -> Result<Leaf, FaultReason> {
        if mark && self.walker.root_registers() > 0 {
            self.load_root(tlb, request)?;
        }
        let mut walk = Walk {
            machine: self,
            request,
            mark,
            level: self.walker.root_level(),
            table: request.root,
            limits: Rights::ALL,
        };
        if let Some((level, upper)) = tlb.find_upper(request.space, request.address, self.walker) {
            (walk.level, walk.table, walk.limits) = (level, upper.table, upper.rights);
            tlb.stats.upper_hits += u64::from(mark);
        }
        loop {
            if let Some(leaf) = walk.step(tlb)? {
                return Ok(leaf);
            }
        }
    }

    /// Loads the root of `request`, unless it is loaded.
    fn load_root(&self, tlb: &mut Tlb, request: &Request) -> Result<(), FaultReason> {
        let (space, frame) = (request.space, request.root);
        if tlb.loaded(space, frame).is_some() {
            return Ok(());
        }
        if self.walker.roots_end().is_some_and(|end| frame >= end) {
            return Err(FaultReason::BadRoot { frame });
        }
        let words = self.ram.words(frame);
        let words = words.and_then(|words| words.get(..self.walker.root_registers()));
        let words = words.ok_or(FaultReason::NoMemory { frame })?;
        let entries: Vec<u64> = words
            .iter()
            .map(|word| word.load(Ordering::Acquire))
            .collect();
        let level = self.walker.root_level();
        for &entry in &entries {
            if let Entry::Reserved(bits) = self.walker.decode(entry, level) {
                return Err(FaultReason::Reserved { level, bits });
            }
        }
        tlb.root = Some(LoadedRoot {
            space,
            frame,
            entries,
        });
        Ok(())
    }
}

/// A walk that has come to a table.
struct Walk<'a> {
    machine: &'a Machine,
    request: &'a Request,
    mark: bool,
    /// Level of the table.
    level: u8,
    table: Pfn,
    /// Limits from the entries that led here.
    limits: Rights,
}

impl Walk<'_> {
    /// Looks at the table's entry: comes to the next table, or to a leaf, or
    /// stays because the entry changed while it was being marked.
    fn step(&mut self, tlb: &mut Tlb) -> Result<Option<Leaf>, FaultReason> {
        let (walker, level, frame) = (self.machine.walker, self.level, self.table);
        let index = walker.index(self.request.address, level);
        if level == walker.root_level()
            && let Some(entries) = tlb.loaded(self.request.space, self.request.root)
        {
            let entry = entries.get(index).copied().unwrap_or(0);
            return match walker.decode(entry, level) {
                Entry::Table { table, rights } => {
                    (self.table, self.limits) = (table, self.limits & rights);
                    self.level -= 1;
                    Ok(None)
                }
                _ => Err(FaultReason::NotPresent { level }),
            };
        }
        let words = self.machine.ram.words(frame);
        let word = words
            .and_then(|words| words.get(index))
            .ok_or(FaultReason::NoMemory { frame })?;
        let entry = word.load(Ordering::Acquire);
        tlb.stats.entries_read += u64::from(self.mark);
        match walker.decode(entry, level) {
            Entry::Absent => Err(FaultReason::NotPresent { level }),
            Entry::Reserved(bits) => Err(FaultReason::Reserved { level, bits }),
            Entry::Table { table, rights } => {
                if self.marked(tlb, word, entry, false)? {
                    self.descend(tlb, table, rights);
                }
                Ok(None)
            }
            Entry::Leaf {
                frame,
                rights,
                dirty,
            } => {
                let rights = self.limits & rights;
                if let Some(reason) = rights.refuse(self.request.access) {
                    return Err(reason);
                }
                let write = self.request.access == Access::Write;
                let order = walker.run_order(entry, level).unwrap_or(0);
                let shift = walker.coverage_shift(level) + order;
                let leaf = Leaf {
                    space: self.request.space,
                    page: self.request.address >> shift,
                    // A run is aligned, and each of its entries leads to the first frame.
                    frame: Pfn(frame.0 >> order << order),
                    shift: shift as u8,
                    rights,
                    dirty: dirty || write,
                };
                Ok(self.marked(tlb, word, entry, write)?.then_some(leaf))
            }
        }
    }

    /// Marks the entry, if this walk marks. False if somebody changed it.
    fn marked(
        &self,
        tlb: &mut Tlb,
        word: &AtomicU64,
        entry: u64,
        write: bool,
    ) -> Result<bool, FaultReason> {
        if !self.mark {
            return Ok(true);
        }
        let walker = self.machine.walker;
        let accessed = walker.mark(entry, self.level, false)?;
        let marked = walker.mark(entry, self.level, write)?;
        if !exchange(word, entry, marked) {
            return Ok(false);
        }
        tlb.stats.accessed_set += u64::from(accessed != entry);
        tlb.stats.dirty_set += u64::from(marked != accessed);
        Ok(true)
    }

    /// Goes on to the table that an upper entry points to.
    fn descend(&mut self, tlb: &mut Tlb, table: Pfn, rights: Rights) {
        self.limits = self.limits & rights;
        self.table = table;
        if self.mark {
            let shift = self.machine.walker.coverage_shift(self.level);
            let upper = Upper {
                space: self.request.space,
                part: self.request.address >> shift,
                table,
                rights: self.limits,
            };
            tlb.insert_upper(self.level, upper);
        }
        self.level -= 1;
    }
}

/// Replaces `old` by `new`, if they differ, unless somebody changed the entry;
/// then the walk has to look at it again.
fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
    old == new
        || word
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}
