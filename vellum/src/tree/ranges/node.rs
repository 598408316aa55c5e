//! One node of a tree of ranges: slots in order, and the search in them.

use core::ops::Range;

use crate::frame::Site;
use crate::slab::Item;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::bytes::prefetch;

/// Words in a cache line.
const BLOCK: usize = 8;
/// Cache lines of keys in a node.
const BLOCKS: usize = 5;
/// Slots of a node: three nodes fit into a frame of 4 KiB, most spaces need one,
/// and a search among a thousand regions, which passes two, is faster than with
/// 16, 24, 32, 48 or 64.
pub(super) const SLOTS: usize = BLOCK * BLOCKS;

/// The key of a slot that holds nothing.
const UNUSED: u64 = u64::MAX;

/// A word for each slot, a cache line at a time.
type Words = [[AtomicU64; BLOCK]; BLOCKS];

fn words(value: u64) -> Words {
    core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(value)))
}

/// A node: a leaf, whose slots are items, or one above, whose slots are nodes.
///
/// A search reads the line or two of `starts` and one word of `kids`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RangeNode {
    /// Where what a slot holds begins; [`UNUSED`] after the last slot in use,
    /// so that a search need not know how many there are.
    starts: Words,
    /// What a slot holds, as [`Kid`] has it; nothing after the last slot in use.
    kids: Words,
    /// The end of what a slot holds.
    ends: Words,
    /// The widest gap inside what a slot holds. Leaves do not use it.
    gaps: Words,
    handle: AtomicU32,
    link: AtomicU32,
    /// Slots in use.
    count: AtomicU32,
    /// Nodes between this one and the items.
    level: AtomicU32,
    /// The slot filled last, to see runs.
    filled: AtomicU32,
}

impl Item for RangeNode {
    const SITE: Site = Site::RegionNode;
    const SHARE: usize = 8;

    fn vacant() -> Self {
        RangeNode {
            starts: words(UNUSED),
            kids: words(0),
            ends: words(0),
            gaps: words(0),
            handle: AtomicU32::new(0),
            link: AtomicU32::new(0),
            count: AtomicU32::new(0),
            level: AtomicU32::new(0),
            filled: AtomicU32::new(0),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// What a slot or a root word leads to: nothing, the address of a node, or the
/// address of an item with the lowest bit set. Nodes and items are aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kid(pub(super) u64);

impl Kid {
    pub(super) const NONE: Kid = Kid(0);
    const ITEM: u64 = 1;

    pub(super) fn node(address: u64) -> Kid {
        Kid(address)
    }

    pub(super) fn item(address: u64) -> Kid {
        Kid(address | Kid::ITEM)
    }

    /// The address of the node, if it is one.
    #[inline]
    pub(super) fn as_node(self) -> Option<u64> {
        (self.0 != 0 && self.0 & Kid::ITEM == 0).then_some(self.0)
    }

    /// The address of the item, if it is one.
    #[inline]
    pub(super) fn as_item(self) -> Option<u64> {
        (self.0 & Kid::ITEM != 0).then_some(self.0 & !Kid::ITEM)
    }
}

/// A slot as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RangeSlot {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) gap: u64,
    pub(super) kid: Kid,
}

#[inline]
fn word(words: &Words, slot: usize) -> &AtomicU64 {
    &words[slot / BLOCK][slot % BLOCK]
}

#[inline]
fn load(words: &Words, slot: usize) -> u64 {
    word(words, slot).load(Ordering::Relaxed)
}

#[inline]
fn copy(words: &[AtomicU64], from: usize, to: usize, order: Ordering) {
    words[to].store(words[from].load(Ordering::Relaxed), order);
}

#[inline]
fn store(words: &Words, slot: usize, value: u64) {
    word(words, slot).store(value, Ordering::Relaxed);
}

impl RangeNode {
    /// Makes the node, which nobody can find, an empty one with this name.
    pub(super) fn reset(&self, handle: u32, level: u32) {
        for start in self.starts.as_flattened() {
            start.store(UNUSED, Ordering::Relaxed);
        }
        for kid in self.kids.as_flattened() {
            kid.store(Kid::NONE.0, Ordering::Relaxed);
        }
        self.handle.store(handle, Ordering::Relaxed);
        self.level.store(level, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.filled.store(0, Ordering::Relaxed);
    }

    pub(super) fn handle(&self) -> u32 {
        self.handle.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    pub(super) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() == SLOTS
    }

    /// How many slots begin at or before `key`.
    ///
    /// No branch depends on a key: which line the last of them is in is counted
    /// over the first keys of all lines, then those in that line are.
    #[inline]
    pub(super) fn at_most(&self, key: u64) -> usize {
        let at_most = |start: &AtomicU64| start.load(Ordering::Relaxed) <= key;
        let counts = |start: &AtomicU64| usize::from(at_most(start));
        let line: usize = self.starts[1..].iter().map(|line| counts(&line[0])).sum();
        prefetch(&self.kids[line]);
        let (first, second) = self.starts[line].split_at(BLOCK / 2);
        // One half up and the other down: two short chains of additions, which a
        // compiler does not make into one.
        let within: usize = first.iter().map(counts).sum();
        let above: usize = second
            .iter()
            .map(|start| usize::from(!at_most(start)))
            .sum();
        line * BLOCK + BLOCK / 2 + within - above
    }

    /// What a slot leads to. A reader that follows the address sees everything
    /// that was written there before the address was stored, above all how the
    /// arena's slot was set up.
    #[inline]
    pub(super) fn kid(&self, slot: usize) -> Kid {
        Kid(word(&self.kids, slot).load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn start(&self, slot: usize) -> u64 {
        load(&self.starts, slot)
    }

    #[inline]
    pub(super) fn end(&self, slot: usize) -> u64 {
        load(&self.ends, slot)
    }

    /// The widest gap inside what a slot holds.
    #[inline]
    pub(super) fn gap(&self, slot: usize) -> u64 {
        if self.level() == 0 {
            0
        } else {
            load(&self.gaps, slot)
        }
    }

    pub(super) fn slot(&self, slot: usize) -> RangeSlot {
        RangeSlot {
            start: self.start(slot),
            end: self.end(slot),
            gap: self.gap(slot),
            kid: self.kid(slot),
        }
    }

    /// Changes a slot in use.
    pub(super) fn set(&self, slot: usize, value: RangeSlot) {
        store(&self.starts, slot, value.start);
        store(&self.ends, slot, value.end);
        word(&self.kids, slot).store(value.kid.0, Ordering::Release);
        if self.level() != 0 {
            store(&self.gaps, slot, value.gap);
        }
    }

    /// Puts a value before `slot`. The node is not full.
    pub(super) fn insert(&self, slot: usize, value: RangeSlot) {
        let count = self.count();
        let range = slot..(count + 1).min(SLOTS);
        let [starts, ends, kids] = self.columns(range.clone());
        for at in (1..starts.len()).rev() {
            copy(starts, at - 1, at, Ordering::Relaxed);
            copy(ends, at - 1, at, Ordering::Relaxed);
            copy(kids, at - 1, at, Ordering::Release);
        }
        if self.level() != 0 {
            let gaps = &self.gaps.as_flattened()[range];
            for at in (1..gaps.len()).rev() {
                copy(gaps, at - 1, at, Ordering::Relaxed);
            }
        }
        self.set(slot, value);
        self.count.store(count as u32 + 1, Ordering::Relaxed);
        self.filled.store(slot as u32, Ordering::Relaxed);
    }

    /// Takes a slot out.
    pub(super) fn remove(&self, slot: usize) {
        let count = self.count();
        let range = slot..count.min(SLOTS);
        let [starts, ends, kids] = self.columns(range.clone());
        for at in 1..starts.len() {
            copy(starts, at, at - 1, Ordering::Relaxed);
            copy(ends, at, at - 1, Ordering::Relaxed);
            copy(kids, at, at - 1, Ordering::Release);
        }
        if self.level() != 0 {
            let gaps = &self.gaps.as_flattened()[range];
            for at in 1..gaps.len() {
                copy(gaps, at, at - 1, Ordering::Relaxed);
            }
        }
        self.cut(count - 1);
    }

    /// Those words of the slots in `range` that nodes of all levels use. They are
    /// shifted in one loop, whose end the processor guesses wrong once.
    #[inline]
    fn columns(&self, range: Range<usize>) -> [&[AtomicU64]; 3] {
        if range.len() > BLOCK {
            self.fetch(range.clone());
        }
        [&self.starts, &self.ends, &self.kids].map(|words| &words.as_flattened()[range.clone()])
    }

    /// Asks for the lines of slots that will all be read or shifted: another CPU may have
    /// written each of them, and they come together rather than one after the other.
    #[inline(never)]
    pub(super) fn fetch(&self, range: Range<usize>) {
        let lines = range.start / BLOCK..range.end.div_ceil(BLOCK);
        for words in [&self.starts, &self.ends, &self.kids] {
            words[lines.clone()].iter().for_each(prefetch);
        }
    }

    /// Keeps the first `count` slots. The others lead nowhere: a reader who sees one with the key
    /// that it gets next, before it sees what that leads to, would follow it to what is gone.
    fn cut(&self, count: usize) {
        for at in count..self.count() {
            store(&self.starts, at, UNUSED);
            store(&self.kids, at, Kid::NONE.0);
        }
        self.count.store(count as u32, Ordering::Relaxed);
    }

    /// Appends the slots from `first` on to `other`, where they have room.
    pub(super) fn move_to(&self, first: usize, other: &RangeNode) {
        let begin = other.count();
        for at in first..self.count() {
            other.set(begin + at - first, self.slot(at));
        }
        let count = begin + self.count() - first;
        other.count.store(count as u32, Ordering::Relaxed);
        self.cut(first);
    }

    /// Where a full node that gets a value before `slot` is best divided: at
    /// that place if it follows the one before it in a run, so that the part
    /// that the run does not come back to stays well filled.
    pub(super) fn division(&self, slot: usize) -> usize {
        let filled = self.filled.load(Ordering::Relaxed) as usize;
        if slot == filled || slot == filled + 1 {
            slot.clamp(SLOTS / 4, SLOTS - SLOTS / 4)
        } else {
            SLOTS / 2
        }
    }

    /// The widest gap inside the node.
    pub(super) fn widest(&self) -> u64 {
        let count = self.count();
        let mut widest = 0;
        for slot in 1..count {
            let between = self.start(slot).saturating_sub(self.end(slot - 1));
            widest = widest.max(between);
        }
        if self.level() != 0 {
            for slot in 0..count {
                widest = widest.max(load(&self.gaps, slot));
            }
        }
        widest
    }

    /// Whether the slots in use, and only they, have keys and lead somewhere.
    pub(super) fn keys_match_count(&self) -> bool {
        let count = self.count();
        let is_in_use = |slot| (self.start(slot) != UNUSED, self.kid(slot) != Kid::NONE);
        count <= SLOTS && (0..SLOTS).all(|slot| is_in_use(slot) == (slot < count, slot < count))
    }
}
