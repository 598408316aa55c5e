//! The page cache of one object: a radix tree from page index to frame.
//!
//! A node at the bottom holds 64 frames, one above it the addresses of 32
//! nodes, in the same words: a search waits for one load a level and one for
//! the frame. Writers hold the object's lock; readers hold only a pin: nodes
//! are retired through the epoch, and a reader that takes a reference to a
//! frame it found looks whether the node still names it. A [`Radix`] borrows its
//! user's pin, and what it finds lives no longer: without one, a node that was a root
//! could be a leaf of another tree by now, whose cells are no addresses.
//!
//! The place of a page that is in swap names its slot instead of a frame ([`Cell`]).

use core::ops::Range;

use crate::addr::Pfn;
use crate::frame::{OutOfMemory, PhysicalMemory, Relief, Site};
use crate::platform::Platform;
use crate::slab::{Arena, Handle, Item, WhilePinned};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{DirtyMarks, Pin};

/// Words of a node.
const WORD_BITS: u32 = 5;
const WORDS: usize = 1 << WORD_BITS;
/// Frames that a node at height 1 holds, two to a word.
const FRAME_BITS: u32 = WORD_BITS + 1;
/// Bits of an index.
const INDEX_BITS: u32 = 48;
/// Levels that such indices need.
const MAX_HEIGHT: u32 = 1 + (INDEX_BITS - FRAME_BITS).div_ceil(WORD_BITS);

/// First index that a tree cannot hold.
pub const INDEX_END: u64 = 1 << INDEX_BITS;

/// What the place of a page holds: nothing (0), a frame (its number plus one), or from
/// `FIRST_SLOT` on the number of a swap slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell(u32);

const FIRST_SLOT: u32 = Pfn::END.0 + 1;

/// Slots from this number on cannot hold pages of objects.
pub(crate) const SLOTS_END: u32 = u32::MAX - FIRST_SLOT;

/// Stands for the slot of a page that is lost, because the memory that held it has failed.
pub(crate) const LOST_SLOT: u32 = SLOTS_END;

impl Cell {
    pub(crate) const EMPTY: Cell = Cell(0);

    /// The place of a page in a frame.
    pub(crate) fn of_frame(frame: Pfn) -> Cell {
        debug_assert!(frame < Pfn::END, "a frame that is too high");
        Cell(frame.0 + 1)
    }

    /// The place of a page in swap.
    pub(crate) fn of_slot(slot: u32) -> Cell {
        debug_assert!(slot <= LOST_SLOT, "a slot that is too high");
        Cell(FIRST_SLOT + slot)
    }

    /// Whether there is no page.
    pub(crate) fn is_empty(self) -> bool {
        self == Cell::EMPTY
    }

    /// The frame, if there is one.
    #[inline]
    pub(crate) fn frame(self) -> Option<Pfn> {
        (self.0.wrapping_sub(1) < Pfn::END.0).then(|| Pfn(self.0 - 1))
    }

    /// The swap slot, if the page is there.
    #[inline]
    pub(crate) fn slot(self) -> Option<u32> {
        self.0.checked_sub(FIRST_SLOT)
    }
}

/// A node: at height 1 cells, higher up the addresses of nodes.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct RadixNode {
    /// Pages or nodes that it holds.
    used: AtomicU32,
    link: AtomicU32,
    handle: AtomicU32,
    /// Of a root: nodes of its tree.
    nodes: AtomicU32,
    words: [AtomicU64; WORDS],
    /// Of a node at height 1: a bit for each frame that is newer than its backing
    /// store. Set and taken away with or without the lock.
    dirty: DirtyMarks,
}

impl Item for RadixNode {
    const SITE: Site = Site::RadixNode;
    /// Enough for files that have all of memory, even if each node holds one page.
    const SHARE: usize = 8;
    const RELIEF: Relief = Relief::Files;

    fn vacant() -> Self {
        RadixNode {
            used: AtomicU32::new(0),
            link: AtomicU32::new(0),
            handle: AtomicU32::new(0),
            nodes: AtomicU32::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
            dirty: DirtyMarks::default(),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// The nodes of all trees. Frames of theirs that have become empty go back.
pub type RadixNodes = Arena<RadixNode, WhilePinned>;

/// Where an index stands in a node at height 1: the word, and the bit that its
/// half of the word begins with.
#[inline]
fn half(index: u64) -> (usize, u32) {
    (
        (index >> 1) as usize % WORDS,
        (index & 1) as u32 * u32::BITS,
    )
}

impl RadixNode {
    /// The word for the node below that leads to `index`, in a node at `height`.
    #[inline]
    fn below(&self, index: u64, height: u32) -> &AtomicU64 {
        &self.words[(index >> reach_bits(height - 1)) as usize % WORDS]
    }

    /// What is at `index`, in a node at height 1.
    #[inline]
    pub(super) fn cell(&self, index: u64) -> Cell {
        let (word, shift) = half(index);
        Cell((self.words[word].load(Ordering::Acquire) >> shift) as u32)
    }

    /// The frame at `index`, in a node at height 1.
    #[inline]
    pub(super) fn frame(&self, index: u64) -> Option<Pfn> {
        self.cell(index).frame()
    }

    /// Sets what [`RadixNode::cell`] returns, under the object's lock.
    fn set_cell(&self, index: u64, cell: Cell) {
        let (word, shift) = half(index);
        let word = &self.words[word];
        let other = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(other | u64::from(cell.0) << shift, Ordering::Release);
    }

    /// One frame or node more; the caller then stores it.
    fn count_one(&self) {
        self.count(1);
    }

    /// So many frames or nodes more.
    fn count(&self, more: u32) {
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(used + more, Ordering::Relaxed);
    }

    /// Marks the frames at `range`, which this node at height 1 holds, as newer than
    /// their store, after what is new was stored to them. Returns a bit, as
    /// [`RadixNode::dirty`], for each that was not marked; writes nothing if all were.
    pub(super) fn mark_dirty(&self, range: Range<u64>) -> u64 {
        self.dirty.mark_after_change(bits_of(&range))
    }

    /// Takes away the marks of the frames at `range`, which this node holds, before they
    /// are copied. Returns a bit for each that was marked.
    pub(super) fn mark_clean(&self, range: Range<u64>) -> u64 {
        self.dirty.take_before_copy(bits_of(&range))
    }

    /// The marked frames at `range`, which this node holds: a bit for each, from
    /// that of the node's first frame up.
    pub(super) fn dirty(&self, range: Range<u64>) -> u64 {
        self.dirty.get(bits_of(&range))
    }

    /// So many nodes (or, wrapping, fewer) are in the tree of this root.
    fn count_nodes(&self, more: u32) {
        let nodes = self.nodes.load(Ordering::Relaxed);
        self.nodes
            .store(nodes.wrapping_add(more), Ordering::Relaxed);
    }

    fn handle(&self) -> Node {
        Handle::from_raw(self.handle.load(Ordering::Relaxed))
    }
}

/// Indices that a node at height 1 holds.
pub(super) const LEAF_PAGES: u64 = 1 << FRAME_BITS;
const _: () = assert!(LEAF_PAGES == u64::BITS as u64);

/// First index beyond those of the node at height 1 that holds `index`.
#[inline]
pub(super) const fn leaf_end(index: u64) -> u64 {
    (index | (LEAF_PAGES - 1)) + 1
}

/// A bit for each index of a range that is not empty and within one node at height 1.
#[inline]
fn bits_of(range: &Range<u64>) -> u64 {
    let count = range.end - range.start;
    debug_assert!((1..=LEAF_PAGES).contains(&count) && range.end <= leaf_end(range.start));
    u64::MAX >> (LEAF_PAGES - count) << (range.start % LEAF_PAGES)
}

/// Bits of the indices below a node at `height`, which is at least 1.
#[inline]
fn reach_bits(height: u32) -> u32 {
    FRAME_BITS + WORD_BITS * (height - 1)
}

/// Indices below which a tree of `height` ends.
#[inline]
fn reach(height: u32) -> u64 {
    1 << reach_bits(height)
}

/// Bits of a root word that hold the height, less one; the address of a node
/// leaves them free.
const HEIGHT_MASK: u64 = align_of::<RadixNode>() as u64 - 1;
const _: () = assert!(MAX_HEIGHT as u64 - 1 <= HEIGHT_MASK);

/// A tree, as somebody who is pinned sees it: its nodes' arena and its root word, height
/// and address in one: a search that begins with an address has a load less to wait for.
///
/// ```
/// # use vellum::addr::Pfn;
/// # use vellum::object::{Radix, RadixNodes};
/// # use vellum::sync::{Pin, atomic::AtomicU64};
/// fn first(nodes: &RadixNodes, root: &AtomicU64, pin: Pin<'_>) -> Option<(u64, Pfn)> {
///     // SAFETY: the root is that of a tree of these nodes.
///     let tree = unsafe { Radix::new(nodes, root, &pin) };
///     tree.next(0)
/// }
/// ```
/// ```compile_fail,E0505
/// # use vellum::addr::Pfn;
/// # use vellum::object::{Radix, RadixNodes};
/// # use vellum::sync::{Pin, atomic::AtomicU64};
/// fn first(nodes: &RadixNodes, root: &AtomicU64, pin: Pin<'_>) -> Option<(u64, Pfn)> {
///     // SAFETY: the root is that of a tree of these nodes.
///     let tree = unsafe { Radix::new(nodes, root, &pin) };
///     drop(pin);
///     tree.next(0)
/// }
/// ```
pub struct Radix<'a> {
    nodes: &'a RadixNodes,
    root: &'a AtomicU64,
    /// Holds back the nodes that are found.
    pin: &'a Pin<'a>,
}

type Node = Handle<RadixNode>;

impl<'a> Radix<'a> {
    /// The tree whose root stands in `root`; 0 is the empty tree.
    ///
    /// # Safety
    /// `root` is 0 or was last changed by a tree of the same arena, whose nodes are retired
    /// with pins of the same memory as `pin`.
    #[inline]
    pub unsafe fn new(nodes: &'a RadixNodes, root: &'a AtomicU64, pin: &'a Pin<'a>) -> Self {
        Radix { nodes, root, pin }
    }

    /// The root and its height, if there is one.
    #[inline]
    fn root(&self) -> Option<(&'a RadixNode, u32)> {
        let word = self.root.load(Ordering::Acquire);
        if word == 0 {
            return None;
        }
        // SAFETY: `set_root` had the address from `nodes`, says `new`, and the node was in this
        // tree since we are pinned: so it stays one, at this height (invariant 7).
        let node = unsafe { self.nodes.at(word & !HEIGHT_MASK) };
        Some((node, (word & HEIGHT_MASK) as u32 + 1))
    }

    fn set_root(&self, node: &RadixNode, height: u32) {
        let word = self.nodes.address(node.handle()) | u64::from(height - 1);
        self.root.store(word, Ordering::Release);
    }

    /// The node that a word above it leads to, if there is one.
    #[inline]
    fn follow(&self, word: &AtomicU64) -> Option<&'a RadixNode> {
        let address = word.load(Ordering::Acquire);
        // SAFETY: `word` is of a node above height 1, so `link` had the address from
        // `nodes`. The node above was in the tree since we are pinned, so neither it nor the
        // one below is used anew (invariant 7).
        (address != 0).then(|| unsafe { self.nodes.at(address) })
    }

    /// Makes an empty word lead to a node, under the object's lock.
    fn link(&self, above: &RadixNode, word: &AtomicU64, below: &RadixNode) {
        above.count_one();
        word.store(self.nodes.address(below.handle()), Ordering::Release);
    }

    /// The node that holds the frames around `index`, if there is one.
    #[inline]
    pub(super) fn leaf(&self, index: u64) -> Option<&'a RadixNode> {
        let (mut node, mut height) = self.root()?;
        if index >= reach(height) {
            return None;
        }
        while height > 1 {
            node = self.follow(node.below(index, height))?;
            height -= 1;
        }
        Some(node)
    }

    /// The frame at `index`.
    #[inline]
    pub fn get(&self, index: u64) -> Option<Pfn> {
        self.leaf(index)?.frame(index)
    }

    /// What is at `index`.
    pub(crate) fn cell(&self, index: u64) -> Cell {
        self.leaf(index)
            .map_or(Cell::EMPTY, |leaf| leaf.cell(index))
    }

    /// Calls `each` for the frames at `range`, ascending, walking once for all
    /// that one node holds.
    #[inline]
    pub(crate) fn each_in(&self, range: Range<u64>, mut each: impl FnMut(u64, Pfn)) {
        let mut index = range.start;
        while index < range.end {
            let next = range.end.min(leaf_end(index));
            if let Some(leaf) = self.leaf(index) {
                for at in index..next {
                    if let Some(frame) = leaf.frame(at) {
                        each(at, frame);
                    }
                }
            }
            index = next;
        }
    }

    /// The first frame at or after `from`, with its index.
    pub fn next(&self, from: u64) -> Option<(u64, Pfn)> {
        self.find_from(from, Cell::frame)
    }

    /// The first page at or after `from`, in memory or in swap: its index.
    pub(crate) fn next_page(&self, from: u64) -> Option<u64> {
        let found = self.find_from(from, |cell| (!cell.is_empty()).then_some(()));
        found.map(|(index, ())| index)
    }

    /// The first swap slot at or after `from`, with the index of its page.
    pub(crate) fn next_slot(&self, from: u64) -> Option<(u64, u32)> {
        self.find_from(from, Cell::slot)
    }

    /// The first place at or after `from` of which `accepts` makes something.
    fn find_from<T>(&self, from: u64, accepts: impl Fn(Cell) -> Option<T>) -> Option<(u64, T)> {
        let mut index = from;
        loop {
            let (mut node, mut height) = self.root()?;
            if index >= reach(height) {
                return None;
            }
            // Of an empty place: how many indices lead there.
            let step = loop {
                if height == 1 {
                    match accepts(node.cell(index)) {
                        Some(found) => return Some((index, found)),
                        None => break 1,
                    }
                }
                height -= 1;
                match self.follow(node.below(index, height + 1)) {
                    Some(below) => node = below,
                    None => break reach(height),
                }
            };
            index = (index & !(step - 1)).checked_add(step)?;
        }
    }

    /// The first index at or after `from` without a page, in memory or in swap.
    pub(super) fn next_hole(&self, from: u64) -> u64 {
        let mut index = from;
        while let Some(leaf) = self.leaf(index) {
            let end = leaf_end(index);
            if let Some(hole) = (index..end).find(|&index| leaf.cell(index).is_empty()) {
                return hole;
            }
            index = end;
        }
        index
    }

    /// Makes sure that one insertion cannot fail, as long as the caller stays
    /// pinned and takes no other node.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn prepare<P: Platform>(
        nodes: &RadixNodes,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
    ) -> Result<(), OutOfMemory> {
        // A higher root for each level, and a path below it.
        nodes.reserve(pin, memory, 2 * MAX_HEIGHT as usize)
    }

    /// Nodes of the tree.
    pub(super) fn node_count(&self) -> u64 {
        let root = self.root();
        root.map_or(0, |(root, _)| root.nodes.load(Ordering::Relaxed).into())
    }

    /// Whether the tree may have the node that is to hold the frame at `index`: it has it, or may
    /// have more ([`Arena::may_have_more`]).
    pub(super) fn may_have_leaf(&self, index: u64) -> bool {
        self.nodes.may_have_more(self.node_count()) || self.leaf(index).is_some()
    }

    /// The node that is to hold the frames around `index`, made if need be after
    /// [`Radix::prepare`] and under the object's lock. The caller then puts a frame
    /// there, or finds one.
    fn make_leaf(&self, index: u64) -> &'a RadixNode {
        let (mut root, mut height) = self.root().unwrap_or_else(|| {
            // As high as it has to be, so that no empty node is left below.
            let height = (1..MAX_HEIGHT).find(|&height| index < reach(height));
            let height = height.unwrap_or(MAX_HEIGHT);
            let root = self.take();
            root.count_nodes(1);
            self.set_root(root, height);
            (root, height)
        });
        while index >= reach(height) {
            let above = self.take();
            above.count_nodes(root.nodes.load(Ordering::Relaxed) + 1);
            height += 1;
            self.link(above, above.below(0, height), root);
            root = above;
            self.set_root(root, height);
        }
        let mut node = root;
        while height > 1 {
            let word = node.below(index, height);
            node = self.follow(word).unwrap_or_else(|| {
                let below = self.take();
                root.count_nodes(1);
                self.link(node, word, below);
                below
            });
            height -= 1;
        }
        node
    }

    /// Puts `frame` at `index`, after [`Radix::prepare`] and under the
    /// object's lock. Returns the frame that is there already, if one is; [`Pfn::NONE`] if
    /// the page is in swap.
    pub fn insert(&self, index: u64, frame: Pfn) -> Result<(), Pfn> {
        let node = self.make_leaf(index);
        let cell = node.cell(index);
        if !cell.is_empty() {
            return Err(cell.frame().unwrap_or(Pfn::NONE));
        }
        node.count_one();
        node.set_cell(index, Cell::of_frame(frame));
        Ok(())
    }

    /// Puts a page that is in a frame or a slot into the other, under the object's lock: what
    /// is at `index` becomes `new` if it is `old`. Neither is empty. Returns whether it was.
    pub(super) fn replace(&self, index: u64, old: Cell, new: Cell) -> bool {
        let node = self.leaf(index).filter(|node| node.cell(index) == old);
        node.inspect(|node| node.set_cell(index, new)).is_some()
    }

    /// Puts frames at `first` and the indices after it, which one node holds, up to the
    /// first where there is a frame already; marks them as dirty if they are to be. After
    /// [`Radix::prepare`], which is enough for all of them, and under the object's
    /// lock. Returns how many there was room for.
    pub(super) fn insert_run(&self, first: u64, frames: &[Pfn], dirty: bool) -> usize {
        let node = self.make_leaf(first);
        let vacant = |&(index, _): &(u64, &Pfn)| node.cell(index).is_empty();
        let count = (first..).zip(frames).take_while(vacant).count();
        if count == 0 {
            return 0;
        }
        node.count(count as u32);
        for (index, &frame) in (first..).zip(&frames[..count]) {
            node.set_cell(index, Cell::of_frame(frame));
        }
        if dirty {
            node.mark_dirty(first..first + count as u64);
        }
        count
    }

    fn take(&self) -> &'a RadixNode {
        let handle = self.nodes.take_reserved(self.pin);
        let node = self.nodes.under(self.pin).get(handle);
        node.handle.store(handle.raw(), Ordering::Relaxed);
        node.used.store(0, Ordering::Relaxed);
        node.nodes.store(0, Ordering::Relaxed);
        node.dirty.begin();
        node
    }

    /// Takes out what is at `index`, and every node that becomes empty by it,
    /// under the object's lock.
    pub fn remove(&self, index: u64) -> Option<Pfn> {
        let mut removed = None;
        self.remove_run(index..index + 1, |frame| {
            removed = Some(frame);
            true
        });
        removed
    }

    /// The same for those frames at `range`, all of which one node holds, that `takes`
    /// accepts; it is asked for each, ascending. The caller has taken away the marks of
    /// dirty frames.
    pub(super) fn remove_run(&self, range: Range<u64>, mut takes: impl FnMut(Pfn) -> bool) {
        let _ = self.try_remove_run(range, |cell| cell.frame().is_some_and(&mut takes));
    }

    /// Takes out the swap slots at `range`, which one node holds, and calls `each` for them,
    /// under the object's lock.
    pub(super) fn remove_slots(&self, range: Range<u64>, mut each: impl FnMut(u32)) {
        let takes = |cell: Cell| cell.slot().map(&mut each).is_some();
        let _ = self.try_remove_run(range, takes);
    }

    fn try_remove_run(&self, range: Range<u64>, mut takes: impl FnMut(Cell) -> bool) -> Option<()> {
        let (root, height) = self.root()?;
        let index = range.start;
        if index >= reach(height) {
            return None;
        }
        let mut path = [root; MAX_HEIGHT as usize + 1];
        for level in (2..=height).rev() {
            path[level as usize - 1] = self.follow(path[level as usize].below(index, level))?;
        }
        let mut gone = 0;
        for index in range {
            if takes(path[1].cell(index)) {
                path[1].set_cell(index, Cell::EMPTY);
                gone += 1;
            }
        }
        if gone == 0 {
            return None;
        }
        // Levels of nodes that become empty, from the lowest up.
        let mut emptied = 0;
        while emptied < height {
            let level = emptied + 1;
            let node = path[level as usize];
            if level > 1 {
                node.below(index, level).store(0, Ordering::Release);
                gone = 1;
            }
            let used = node.used.load(Ordering::Relaxed) - gone;
            node.used.store(used, Ordering::Relaxed);
            if used > 0 {
                break;
            }
            emptied = level;
        }
        match emptied {
            0 => {}
            all if all == height => self.root.store(0, Ordering::Release),
            some => root.count_nodes(some.wrapping_neg()),
        }
        // Nothing leads to them any more: who finds one is pinned already.
        for node in &path[1..=emptied as usize] {
            self.nodes.retire(self.pin, node.handle());
        }
        Some(())
    }
}
