//! The page cache of one object: a radix tree from page index to frame.
//!
//! A node at the bottom holds 64 frames, one above it the addresses of 32
//! nodes, in the same words: a search waits for one load a level and one for
//! the frame. Writers hold the object's lock; readers hold only a pin: nodes
//! are retired through the epoch, and a reader that takes a reference to a
//! frame it found looks whether the node still names it.

use crate::addr::Pfn;
use crate::frame::{OutOfMemory, PhysicalMemory, Site};
use crate::platform::Platform;
use crate::slab::{Arena, Handle, Item};
use crate::sync::Pin;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

/// A node: at height 1 frames (plus one, so that 0 is empty), higher up the
/// addresses of nodes.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct RadixNode {
    /// Frames or nodes that it holds.
    used: AtomicU32,
    link: AtomicU32,
    handle: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl Item for RadixNode {
    const SITE: Site = Site::RadixNode;

    fn vacant() -> Self {
        RadixNode {
            used: AtomicU32::new(0),
            link: AtomicU32::new(0),
            handle: AtomicU32::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

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

    /// The frame at `index`, in a node at height 1.
    #[inline]
    pub(super) fn frame(&self, index: u64) -> Option<Pfn> {
        let (word, shift) = half(index);
        let frame = (self.words[word].load(Ordering::Acquire) >> shift) as u32;
        (frame != 0).then(|| Pfn(frame - 1))
    }

    /// Sets what [`RadixNode::frame`] returns, under the object's lock.
    fn set_frame(&self, index: u64, frame: Option<Pfn>) {
        let (word, shift) = half(index);
        let word = &self.words[word];
        let other = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        let frame = frame.map_or(0, |frame| u64::from(frame.0 + 1) << shift);
        word.store(other | frame, Ordering::Release);
    }

    /// One frame or node more; the caller then stores it.
    fn count_one(&self) {
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(used + 1, Ordering::Relaxed);
    }

    fn handle(&self) -> Node {
        Handle::from_raw(self.handle.load(Ordering::Relaxed))
    }
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

/// A tree: its nodes' arena and its root word, height and address in one: a
/// search that begins with an address has a load less to wait for.
pub struct Radix<'a> {
    nodes: &'a Arena<RadixNode>,
    root: &'a AtomicU64,
}

type Node = Handle<RadixNode>;

impl<'a> Radix<'a> {
    /// The tree whose root stands in `root`; 0 is the empty tree.
    ///
    /// # Safety
    /// `root` is 0 or was last changed by a tree of the same arena.
    #[inline]
    pub unsafe fn new(nodes: &'a Arena<RadixNode>, root: &'a AtomicU64) -> Self {
        Radix { nodes, root }
    }

    /// The root and its height, if there is one.
    #[inline]
    fn root(&self) -> Option<(&'a RadixNode, u32)> {
        let word = self.root.load(Ordering::Acquire);
        if word == 0 {
            return None;
        }
        // SAFETY: `set_root` had the address from `nodes`, says `new`, and a node
        // stays one (invariant 7).
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
        // SAFETY: `link` had the address from `nodes`, and a node stays one
        // (invariant 7).
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

    /// The frame at `index`. Needs no lock.
    #[inline]
    pub fn get(&self, index: u64) -> Option<Pfn> {
        self.leaf(index)?.frame(index)
    }

    /// Calls `each` for the frames at `range`, ascending, walking once for all
    /// that one node holds. Needs no lock.
    #[inline]
    pub fn each_in(&self, range: core::ops::Range<u64>, mut each: impl FnMut(u64, Pfn)) {
        let mut index = range.start;
        while index < range.end {
            let next = range.end.min((index | (reach(1) - 1)) + 1);
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

    /// The first frame at or after `from`, with its index. Needs no lock.
    pub fn next(&self, from: u64) -> Option<(u64, Pfn)> {
        let mut index = from;
        loop {
            let (mut node, mut height) = self.root()?;
            if index >= reach(height) {
                return None;
            }
            // Of an empty place: how many indices lead there.
            let step = loop {
                if height == 1 {
                    match node.frame(index) {
                        Some(frame) => return Some((index, frame)),
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

    /// Makes sure that one insertion cannot fail, as long as the caller stays
    /// pinned and takes no other node.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn prepare<P: Platform>(
        nodes: &Arena<RadixNode>,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
    ) -> Result<(), OutOfMemory> {
        // A higher root for each level, and a path below it.
        nodes.reserve(pin, memory, 2 * MAX_HEIGHT as usize)
    }

    /// Puts `frame` at `index`, after [`Radix::prepare`] and under the
    /// object's lock. Returns the frame that is there already, if one is.
    pub fn insert(&self, pin: &Pin<'_>, index: u64, frame: Pfn) -> Result<(), Pfn> {
        let (mut root, mut height) = self.root().unwrap_or_else(|| {
            // As high as it has to be, so that no empty node is left below.
            let height = (1..MAX_HEIGHT).find(|&height| index < reach(height));
            let height = height.unwrap_or(MAX_HEIGHT);
            let root = self.take(pin);
            self.set_root(root, height);
            (root, height)
        });
        while index >= reach(height) {
            let above = self.take(pin);
            height += 1;
            self.link(above, above.below(0, height), root);
            root = above;
            self.set_root(root, height);
        }
        let mut node = root;
        while height > 1 {
            let word = node.below(index, height);
            node = self.follow(word).unwrap_or_else(|| {
                let below = self.take(pin);
                self.link(node, word, below);
                below
            });
            height -= 1;
        }
        if let Some(present) = node.frame(index) {
            return Err(present);
        }
        node.count_one();
        node.set_frame(index, Some(frame));
        Ok(())
    }

    fn take(&self, pin: &Pin<'_>) -> &'a RadixNode {
        let handle = self.nodes.take_reserved(pin);
        let node = self.nodes.get(handle);
        node.handle.store(handle.raw(), Ordering::Relaxed);
        node.used.store(0, Ordering::Relaxed);
        node
    }

    /// Takes out what is at `index`, and every node that becomes empty by it,
    /// under the object's lock.
    pub fn remove(&self, pin: &Pin<'_>, index: u64) -> Option<Pfn> {
        let (root, height) = self.root()?;
        if index >= reach(height) {
            return None;
        }
        let mut path = [root; MAX_HEIGHT as usize + 1];
        for level in (2..=height).rev() {
            path[level as usize - 1] = self.follow(path[level as usize].below(index, level))?;
        }
        let frame = path[1].frame(index)?;
        for level in 1..=height {
            let node = path[level as usize];
            if level == 1 {
                node.set_frame(index, None);
            } else {
                node.below(index, level).store(0, Ordering::Release);
            }
            let used = node.used.load(Ordering::Relaxed) - 1;
            node.used.store(used, Ordering::Relaxed);
            if used > 0 {
                return Some(frame);
            }
            if level == height {
                self.root.store(0, Ordering::Release);
            }
            self.nodes.retire(pin, node.handle());
        }
        Some(frame)
    }
}
