//! The page cache of one object: a radix tree from page index to frame.
//!
//! 64 slots a node. Writers hold the object's lock; readers hold only a pin:
//! nodes are retired through the epoch, and a reader that takes a reference to
//! a frame it found looks whether the slot still names it.

use crate::addr::Pfn;
use crate::frame::{OutOfMemory, PhysicalMemory, Site};
use crate::platform::Platform;
use crate::slab::{Arena, Handle, Item};
use crate::sync::Pin;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Levels that 48-bit indices need.
const MAX_HEIGHT: u32 = 8;

/// First index that a tree cannot hold.
pub const INDEX_END: u64 = 1 << (BITS * MAX_HEIGHT);

/// A node: frames (plus one, so that 0 is empty) at height 1, nodes above.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct RadixNode {
    used: AtomicU32,
    link: AtomicU32,
    handle: AtomicU32,
    slots: [AtomicU32; SLOTS],
}

impl Item for RadixNode {
    const SITE: Site = Site::RadixNode;

    fn vacant() -> Self {
        RadixNode {
            used: AtomicU32::new(0),
            link: AtomicU32::new(0),
            handle: AtomicU32::new(0),
            slots: [const { AtomicU32::new(0) }; SLOTS],
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl RadixNode {
    fn slot(&self, index: u64, height: u32) -> &AtomicU32 {
        &self.slots[(index >> (BITS * (height - 1))) as usize & (SLOTS - 1)]
    }

    /// The frame at `index`, in a node at height 1.
    #[inline]
    pub(super) fn frame(&self, index: u64) -> Option<Pfn> {
        let slot = self.slot(index, 1).load(Ordering::Acquire);
        (slot != 0).then(|| Pfn(slot - 1))
    }

    fn handle(&self) -> Node {
        Handle::from_raw(self.handle.load(Ordering::Relaxed))
    }
}

/// Indices below which a tree of `height` ends.
fn reach(height: u32) -> u64 {
    1 << (BITS * height)
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
        // SAFETY: `set_root` had the address from `nodes`, says `new`.
        let node = unsafe { self.nodes.at(word & !HEIGHT_MASK) };
        Some((node, (word & HEIGHT_MASK) as u32 + 1))
    }

    fn set_root(&self, node: &RadixNode, height: u32) {
        let word = self.nodes.address(node.handle()) | u64::from(height - 1);
        self.root.store(word, Ordering::Release);
    }

    /// The node that holds the frames around `index`, if there is one.
    #[inline]
    pub(super) fn leaf(&self, index: u64) -> Option<&'a RadixNode> {
        let (mut node, mut height) = self.root()?;
        if index >= reach(height) {
            return None;
        }
        while height > 1 {
            let below = node.slot(index, height).load(Ordering::Acquire);
            if below == 0 {
                return None;
            }
            node = self.nodes.get(Handle::from_raw(below));
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

    /// The first frame at or behind `from`, with its index. Needs no lock.
    pub fn next(&self, from: u64) -> Option<(u64, Pfn)> {
        let mut index = from;
        loop {
            let (mut node, mut height) = self.root()?;
            if index >= reach(height) {
                return None;
            }
            loop {
                let slot = node.slot(index, height).load(Ordering::Acquire);
                if slot == 0 {
                    // Nothing below this slot: on to the next one.
                    let step = reach(height - 1);
                    index = (index & !(step - 1)).checked_add(step)?;
                    break;
                }
                if height == 1 {
                    return Some((index, Pfn(slot - 1)));
                }
                node = self.nodes.get(Handle::from_raw(slot));
                height -= 1;
            }
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
            fill(above, above.slot(0, height + 1), root.handle().raw());
            root = above;
            height += 1;
            self.set_root(root, height);
        }
        let mut node = root;
        while height > 1 {
            let slot = node.slot(index, height);
            let below = match slot.load(Ordering::Relaxed) {
                0 => {
                    let below = self.take(pin);
                    fill(node, slot, below.handle().raw());
                    below
                }
                below => self.nodes.get(Handle::from_raw(below)),
            };
            node = below;
            height -= 1;
        }
        let slot = node.slot(index, 1);
        match slot.load(Ordering::Relaxed) {
            0 => {
                fill(node, slot, frame.0 + 1);
                Ok(())
            }
            present => Err(Pfn(present - 1)),
        }
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
        let mut found = 0;
        for level in (1..=height).rev() {
            found = path[level as usize]
                .slot(index, level)
                .load(Ordering::Relaxed);
            if found == 0 {
                return None;
            }
            if level > 1 {
                path[level as usize - 1] = self.nodes.get(Handle::from_raw(found));
            }
        }
        let frame = Pfn(found - 1);
        for level in 1..=height {
            let node = path[level as usize];
            node.slot(index, level).store(0, Ordering::Release);
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

/// Fills an empty slot of a node.
fn fill(node: &RadixNode, slot: &AtomicU32, value: u32) {
    let used = node.used.load(Ordering::Relaxed);
    node.used.store(used + 1, Ordering::Relaxed);
    slot.store(value, Ordering::Release);
}
