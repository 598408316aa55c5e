//! What is kept of which slot, and which pages are the oldest.
//!
//! The table of slots has two levels: one number for each eight slots, and a block with their
//! entries where any of them has one. So a slot without a page takes half a byte, and blocks
//! of the table count against the limit like those of pages.
//!
//! Pages that take blocks stand in a list by age. A page that is being written back, *in
//! flight*, is not on it. If its slot is freed meanwhile, what is being written is *stale*: the
//! entry stays until the write has ended, so that nobody else writes the same page below.

use crate::blocks::{BLOCK, Blocks, NONE, PAYLOAD, set_u32_at, set_u64_at, u32_at, u64_at};

const ENTRY: usize = 2 * size_of::<u64>();
/// Slots that share a block of entries.
const LEAF: u32 = (BLOCK / ENTRY) as u32;

/// How a page is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// Every word of it is this one.
    Same(u64),
    /// Compressed to so many bytes.
    Compressed(usize),
    /// As it is.
    Plain,
}

/// There are not enough free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Nothing,
    Same,
    Compressed,
    Plain,
}

/// What is known of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    kind: Kind,
    /// Its page is being written back.
    in_flight: bool,
    /// The page that is being written back is not this one any more.
    is_stale: bool,
    /// Bytes in its blocks.
    len: u32,
    /// The first of its blocks.
    head: u32,
    /// The word of a page that is all the same; otherwise the slots before and after in the
    /// list by age.
    word: u64,
}

const IN_FLIGHT: u64 = 1 << 2;
const STALE: u64 = 1 << 3;
const LEN_SHIFT: u32 = 8;
const HEAD_SHIFT: u32 = 32;

/// Most bytes of a page: its length has 24 bits in an entry.
pub(crate) const MOST_BYTES: usize = (1 << (HEAD_SHIFT - LEN_SHIFT)) - 1;

impl Entry {
    const NOTHING: Entry = Entry {
        kind: Kind::Nothing,
        in_flight: false,
        is_stale: false,
        len: 0,
        head: 0,
        word: 0,
    };

    fn decode(state: u64, word: u64) -> Entry {
        Entry {
            kind: match state & 3 {
                0 => Kind::Nothing,
                1 => Kind::Same,
                2 => Kind::Compressed,
                _ => Kind::Plain,
            },
            in_flight: state & IN_FLIGHT != 0,
            is_stale: state & STALE != 0,
            len: (state as u32) >> LEN_SHIFT,
            head: (state >> HEAD_SHIFT) as u32,
            word,
        }
    }

    fn encode(self) -> u64 {
        let kind = match self.kind {
            Kind::Nothing => 0,
            Kind::Same => 1,
            Kind::Compressed => 2,
            Kind::Plain => 3,
        };
        let mut state =
            kind | u64::from(self.len) << LEN_SHIFT | u64::from(self.head) << HEAD_SHIFT;
        if self.in_flight {
            state |= IN_FLIGHT;
        }
        if self.is_stale {
            state |= STALE;
        }
        state
    }

    fn has_blocks(self) -> bool {
        matches!(self.kind, Kind::Compressed | Kind::Plain)
    }

    /// Whether it is on the list by age.
    fn is_listed(self) -> bool {
        self.has_blocks() && !self.in_flight
    }

    fn before(self) -> u32 {
        self.word as u32
    }

    fn after(self) -> u32 {
        (self.word >> 32) as u32
    }

    fn set_links(&mut self, before: u32, after: u32) {
        self.word = u64::from(before) | u64::from(after) << 32;
    }
}

/// What a store holds and has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Pages that are there now, those of one repeated word among them.
    pub pages: u64,
    /// Those of them that are one repeated word.
    pub same: u64,
    /// Bytes that compressed pages take now, rounded up to blocks.
    pub page_bytes: u64,
    /// Bytes in use now, with those of the table of slots.
    pub used: u64,
    /// The most that ever were.
    pub used_peak: u64,
    /// All that there are.
    pub limit: u64,
    /// Pages taken so far.
    pub taken: u64,
    /// Those of them that were one repeated word.
    pub taken_same: u64,
    /// Bytes that the others took, rounded up to blocks.
    pub taken_bytes: u64,
    /// Pages that went below at once: those that do not compress, and those that nobody made
    /// room for.
    pub passed_on: u64,
    /// Those of them that do not compress.
    pub incompressible: u64,
    /// Pages written back, the oldest first, to make room.
    pub written_back: u64,
    /// Pages that could not be written back, and stayed.
    pub refused_below: u64,
    /// Pages for which there was no room.
    pub full: u64,
}

impl Stats {
    /// Bytes that a compressed page took on average so far.
    pub fn bytes_each(&self) -> u64 {
        let pages = self.taken - self.taken_same;
        self.taken_bytes.checked_div(pages).unwrap_or(0)
    }
}

/// The pages of a store, in the memory it was given.
pub struct Pool<M> {
    blocks: Blocks<M>,
    slots: u32,
    page_bytes: usize,
    oldest: u32,
    youngest: u32,
    pub(crate) stats: Stats,
}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Pool<M> {
    pub(crate) fn new(memory: M, page_bytes: usize, slots: u32) -> Option<Self> {
        let top = u64::from(slots.div_ceil(LEAF)) * size_of::<u32>() as u64;
        let mut blocks = Blocks::new(memory, top)?;
        blocks.bytes_mut()[..top as usize].fill(0xff);
        let limit = u64::from(blocks.count()) * BLOCK as u64;
        let mut pool = Pool {
            blocks,
            slots,
            page_bytes,
            oldest: NONE,
            youngest: NONE,
            stats: Stats {
                limit,
                ..Stats::default()
            },
        };
        pool.note_use();
        Some(pool)
    }

    /// Blocks that a page of `bytes` takes.
    fn blocks_of(bytes: usize) -> u32 {
        bytes.div_ceil(PAYLOAD) as u32
    }

    /// Whether there is room for any page.
    pub(crate) fn has_room(&self) -> bool {
        self.blocks.free() > Self::blocks_of(self.page_bytes)
    }

    fn note_use(&mut self) {
        let used = self.blocks.count() - self.blocks.free();
        self.stats.used = u64::from(used) * BLOCK as u64;
        self.stats.used_peak = self.stats.used_peak.max(self.stats.used);
    }

    fn leaf(&self, slot: u32) -> Option<u32> {
        let place = (slot / LEAF) as usize * size_of::<u32>();
        let leaf = u32_at(self.blocks.bytes(), place);
        (leaf != NONE).then_some(leaf)
    }

    fn set_leaf(&mut self, slot: u32, leaf: u32) {
        let place = (slot / LEAF) as usize * size_of::<u32>();
        set_u32_at(self.blocks.bytes_mut(), place, leaf);
    }

    fn entry(&self, slot: u32) -> Entry {
        let Some(leaf) = self.leaf(slot) else {
            return Entry::NOTHING;
        };
        let (block, at) = (self.blocks.block(leaf), (slot % LEAF) as usize * ENTRY);
        Entry::decode(u64_at(block, at), u64_at(block, at + ENTRY / 2))
    }

    /// Changes the entry of a slot, whose leaf is there.
    fn set(&mut self, slot: u32, entry: Entry) {
        if let Some(leaf) = self.leaf(slot) {
            let at = (slot % LEAF) as usize * ENTRY;
            let block = self.blocks.block_mut(leaf);
            set_u64_at(block, at, entry.encode());
            set_u64_at(block, at + ENTRY / 2, entry.word);
        }
    }

    /// Forgets a slot, and its leaf if that has no other.
    fn clear(&mut self, slot: u32) {
        self.set(slot, Entry::NOTHING);
        if let Some(leaf) = self.leaf(slot)
            && self.blocks.block(leaf).iter().all(|&byte| byte == 0)
        {
            self.blocks.give(leaf);
            self.set_leaf(slot, NONE);
        }
    }

    /// Makes the leaf of a slot, if there is none. The caller knows that a block is free.
    fn make_leaf(&mut self, slot: u32) -> Result<(), Full> {
        if self.leaf(slot).is_none() {
            let leaf = self.blocks.take().ok_or(Full)?;
            self.blocks.block_mut(leaf).fill(0);
            self.set_leaf(slot, leaf);
        }
        Ok(())
    }

    /// Puts a page at the young end of the list.
    fn link(&mut self, slot: u32, mut entry: Entry) {
        entry.set_links(self.youngest, NONE);
        self.set(slot, entry);
        match self.youngest {
            NONE => self.oldest = slot,
            youngest => {
                let mut before = self.entry(youngest);
                before.set_links(before.before(), slot);
                self.set(youngest, before);
            }
        }
        self.youngest = slot;
    }

    fn unlink(&mut self, entry: Entry) {
        let (before, after) = (entry.before(), entry.after());
        match before {
            NONE => self.oldest = after,
            slot => {
                let mut other = self.entry(slot);
                other.set_links(other.before(), after);
                self.set(slot, other);
            }
        }
        match after {
            NONE => self.youngest = before,
            slot => {
                let mut other = self.entry(slot);
                other.set_links(before, other.after());
                self.set(slot, other);
            }
        }
    }

    /// Gives up the page of a slot, if it has one.
    pub(crate) fn remove(&mut self, slot: u32) {
        let entry = self.entry(slot);
        if entry.kind == Kind::Nothing {
            return;
        }
        if entry.is_listed() {
            self.unlink(entry);
        }
        self.drop_content(entry);
        if entry.in_flight {
            self.set(
                slot,
                Entry {
                    in_flight: true,
                    is_stale: true,
                    ..Entry::NOTHING
                },
            );
        } else {
            self.clear(slot);
        }
        self.note_use();
    }

    fn drop_content(&mut self, entry: Entry) {
        self.stats.pages -= 1;
        if entry.has_blocks() {
            self.blocks.give_chain(entry.head);
            self.stats.page_bytes -= Self::bytes_of(entry.len as usize);
        } else {
            self.stats.same -= 1;
        }
    }

    fn bytes_of(len: usize) -> u64 {
        u64::from(Self::blocks_of(len)) * BLOCK as u64
    }

    /// Keeps a page for a slot in the place of what it had.
    pub(crate) fn put(&mut self, slot: u32, kept: Kept, bytes: &[u8]) -> Result<(), Full> {
        self.remove(slot);
        let needed = match kept {
            Kept::Same(_) => 0,
            _ => Self::blocks_of(bytes.len()),
        };
        let leaf = u32::from(self.leaf(slot).is_none());
        if self.blocks.free() < needed + leaf {
            return Err(Full);
        }
        self.make_leaf(slot)?;
        let old = self.entry(slot);
        let mut entry = Entry {
            in_flight: old.in_flight,
            is_stale: old.is_stale,
            ..Entry::NOTHING
        };
        match kept {
            Kept::Same(word) => {
                entry.kind = Kind::Same;
                entry.word = word;
                self.set(slot, entry);
                self.stats.same += 1;
                self.stats.taken_same += 1;
            }
            Kept::Compressed(_) | Kept::Plain => {
                entry.kind = match kept {
                    Kept::Plain => Kind::Plain,
                    _ => Kind::Compressed,
                };
                entry.len = bytes.len() as u32;
                entry.head = self.blocks.put(bytes).ok_or(Full)?;
                if entry.in_flight {
                    self.set(slot, entry);
                } else {
                    self.link(slot, entry);
                }
                let taken = Self::bytes_of(bytes.len());
                self.stats.page_bytes += taken;
                self.stats.taken_bytes += taken;
            }
        }
        self.stats.pages += 1;
        self.stats.taken += 1;
        self.note_use();
        Ok(())
    }

    /// What is kept for a slot, with its bytes at the beginning of `bytes`, which is as long as
    /// a page.
    pub(crate) fn get(&self, slot: u32, bytes: &mut [u8]) -> Option<Kept> {
        self.kept(self.entry(slot), bytes)
    }

    fn kept(&self, entry: Entry, bytes: &mut [u8]) -> Option<Kept> {
        let len = entry.len as usize;
        Some(match entry.kind {
            Kind::Nothing => return None,
            Kind::Same => Kept::Same(entry.word),
            Kind::Compressed => {
                self.blocks.get(entry.head, &mut bytes[..len]);
                Kept::Compressed(len)
            }
            Kind::Plain => {
                self.blocks.get(entry.head, &mut bytes[..len]);
                Kept::Plain
            }
        })
    }

    /// Whether an older page of the slot is being written back.
    pub(crate) fn is_in_flight(&self, slot: u32) -> bool {
        self.entry(slot).in_flight
    }

    /// Takes the oldest page off the list, to be written back, and copies it.
    pub(crate) fn begin_out(&mut self, bytes: &mut [u8]) -> Option<(u32, Kept)> {
        let slot = self.oldest;
        if slot == NONE {
            return None;
        }
        let mut entry = self.entry(slot);
        let kept = self.kept(entry, bytes)?;
        self.unlink(entry);
        entry.in_flight = true;
        self.set(slot, entry);
        Some((slot, kept))
    }

    /// Ends what [`Pool::begin_out`] began: the page was written, or stays as the youngest.
    pub(crate) fn end_out(&mut self, slot: u32, is_written: bool) {
        let mut entry = self.entry(slot);
        let is_stale = entry.is_stale;
        entry.in_flight = false;
        entry.is_stale = false;
        if is_written && !is_stale {
            self.drop_content(entry);
            entry = Entry::NOTHING;
        }
        match entry.kind {
            Kind::Nothing => self.clear(slot),
            Kind::Same => self.set(slot, entry),
            Kind::Compressed | Kind::Plain => self.link(slot, entry),
        }
        match is_written {
            true => self.stats.written_back += 1,
            false => self.stats.refused_below += 1,
        }
        self.note_use();
    }

    /// Checks counts and lists.
    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        let (mut used, mut pages, mut same, mut bytes, mut listed) = (0, 0, 0, 0, 0_u64);
        for first in (0..self.slots).step_by(LEAF as usize) {
            if self.leaf(first).is_none() {
                continue;
            }
            used += 1;
            let last = self.slots.min(first.saturating_add(LEAF));
            let mut is_empty = true;
            for slot in first..last {
                let entry = self.entry(slot);
                is_empty &= entry == Entry::NOTHING;
                pages += u64::from(entry.kind != Kind::Nothing);
                same += u64::from(entry.kind == Kind::Same);
                listed += u64::from(entry.is_listed());
                if entry.has_blocks() {
                    let blocks = self.blocks.chain(entry.head).count() as u32;
                    if blocks != Self::blocks_of(entry.len as usize) {
                        return Err("a page has another number of blocks than its bytes need");
                    }
                    used += blocks;
                    bytes += u64::from(blocks) * BLOCK as u64;
                }
            }
            if is_empty {
                return Err("a block of the table has no entry");
            }
        }
        let (free, unused) = self.blocks.free_chain();
        let free = free.count() as u32 + (self.blocks.count() - unused);
        let top = (self.slots.div_ceil(LEAF) as usize * size_of::<u32>()).div_ceil(BLOCK);
        if free != self.blocks.free() || free + used + top as u32 != self.blocks.count() {
            return Err("a block is lost, or in two places");
        }
        if (pages, same, bytes) != (self.stats.pages, self.stats.same, self.stats.page_bytes) {
            return Err("pages are not counted right");
        }
        let (mut before, mut at) = (NONE, self.oldest);
        while at != NONE {
            let entry = self.entry(at);
            if !entry.is_listed() || entry.before() != before || listed == 0 {
                return Err("the list by age is broken");
            }
            listed -= 1;
            (before, at) = (at, entry.after());
        }
        if listed != 0 || before != self.youngest {
            return Err("a page is missing in the list by age");
        }
        Ok(())
    }
}
