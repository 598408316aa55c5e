//! Trees of spaces that descend from each other by fork.
//!
//! Every space has a node. A node stays while its space lives or while two or
//! more of its children's subtrees have living spaces, so that
//!
//! > **(K)** whoever can have inherited a page that a space made is that space
//! > or in the subtree of its node.
//!
//! When a space ends without living descendants its node goes. When it ends
//! and one child's subtree is left, all that can have its pages is in there:
//! the child takes the node's place among its siblings, and the node becomes a
//! **legacy** of the child, its *heir*, for as long as pages name it. Legacies
//! name their heir directly; when an heir becomes a legacy itself, its own
//! pass on with it, and those that no page names any more go. So a line of
//! processes in which each forks and exits keeps no more nodes than there are
//! pages that name them.
//!
//! Children stand in the order of their forks, the latest first. A child's
//! `born` is how many forks its parent had made before it: a page made after
//! that is not in the child, nor in any that stand after it. An heir keeps the
//! `born` of the node whose place it took.
//!
//! # Locks
//! Families share some spin locks; a node's `family` says which is its,
//! and [`NOBODY`] once the node has gone. All else in a node is read and
//! written under that lock, except `pages` (see [`PageCount`]) and reads of
//! `space` that verify what they lead to. The lock is taken with no table lock
//! held, and table locks may be taken under it. Whoever follows a stale
//! handle locks by [`Families::lock`], which checks that the node still
//! belongs to the family it locked.

use alloc::boxed::Box;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::report::name;
use crate::sync::{CachePadded, Pin, SpinGuard, SpinLock};

/// The fewest and the most locks that all families share.
const LOCKS: (usize, usize) = if cfg!(vellum_loom) {
    (2, 2)
} else {
    (64, 4096)
};
/// Locks for each CPU, so that two CPUs at work on two families seldom share one.
const LOCKS_PER_CPU: usize = 8;

/// The family of a node that is not in use.
pub const NOBODY: u32 = u32::MAX;

/// A space's place among its relatives: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Kin {
    /// Pages that name the node; see [`PageCount`].
    pub pages: PageCount,
    /// Handle of the space, 0 once it has ended.
    space: AtomicU32,
    family: AtomicU32,
    parent: AtomicU32,
    first_child: AtomicU32,
    next: AtomicU32,
    previous: AtomicU32,
    born: AtomicU32,
    /// Of a legacy: the node in the tree that took its place.
    heir: AtomicU32,
    legacies: AtomicU32,
    next_legacy: AtomicU32,
    /// The arena's.
    pub(super) link: AtomicU32,
}

impl Kin {
    /// A node that is not in use.
    pub fn vacant() -> Self {
        Kin {
            pages: PageCount(AtomicU64::new(0)),
            space: AtomicU32::new(0),
            family: AtomicU32::new(NOBODY),
            parent: AtomicU32::new(0),
            first_child: AtomicU32::new(0),
            next: AtomicU32::new(0),
            previous: AtomicU32::new(0),
            born: AtomicU32::new(0),
            heir: AtomicU32::new(0),
            legacies: AtomicU32::new(0),
            next_legacy: AtomicU32::new(0),
            link: AtomicU32::new(0),
        }
    }

    /// Handle of the space, 0 if it has ended. Without the lock it may be of a
    /// moment ago.
    #[inline]
    pub fn space(&self) -> u32 {
        self.space.load(Ordering::Relaxed)
    }

    /// Which lock guards the node, [`NOBODY`] if it is not in use.
    #[inline]
    pub fn family(&self) -> u32 {
        self.family.load(Ordering::Acquire)
    }

    /// The node that stands for this one in the tree.
    #[inline]
    fn standing(&self, own: u32) -> u32 {
        match get(&self.heir) {
            0 => own,
            heir => heir,
        }
    }
}

#[inline]
fn get(field: &AtomicU32) -> u32 {
    field.load(Ordering::Relaxed)
}

#[inline]
fn set(field: &AtomicU32, value: u32) {
    field.store(value, Ordering::Relaxed);
}

const HOLDER: u64 = 1 << 48;
const GONE: u64 = 1 << 63;

/// How many pages name a node, and how many CPUs are still counting.
///
/// A CPU collects what it counts for one node at a time; while it does, it is
/// a holder. The word is the sum of what has been settled and of 2^48 a
/// holder, and bit 63 says that the node has gone. So below that bit it is zero
/// exactly if no page names the node and nobody counts for it: a page is
/// counted until a holder has settled its going.
#[derive(Debug)]
pub struct PageCount(AtomicU64);

impl PageCount {
    /// A CPU begins to count.
    pub fn hold(&self) {
        self.0.fetch_add(HOLDER, Ordering::Relaxed);
    }

    /// A CPU has counted `change` pages, modulo 2^64. True if the node has gone
    /// and the caller is the last: it frees the node.
    pub fn settle(&self, change: u64) -> bool {
        let change = change.wrapping_sub(HOLDER);
        self.0
            .fetch_add(change, Ordering::AcqRel)
            .wrapping_add(change)
            == GONE
    }

    /// Whether no page names the node and nobody counts for it. Stays true
    /// once the node's space has ended.
    pub fn is_zero(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// No page names the node any more. True if nobody counts for it either:
    /// the caller frees the node; else the last to settle does.
    fn end(&self) -> bool {
        self.0.fetch_or(GONE, Ordering::AcqRel) == 0
    }

    /// Pages settled, for checks while no CPU counts but those whose `holders`
    /// are known.
    pub fn settled(&self, holders: u64) -> u64 {
        self.0
            .load(Ordering::Relaxed)
            .wrapping_sub(holders * HOLDER)
    }

    fn start(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Where nodes are.
pub trait Nodes {
    /// The node of a handle that was a node's once.
    fn node(&self, handle: u32) -> &Kin;
}

/// The locks of all families.
pub struct Families {
    locks: Box<[CachePadded<SpinLock<()>>]>,
}

impl Families {
    /// Locks for any number of families on `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        let locks = (cpus * LOCKS_PER_CPU).next_power_of_two();
        let locks = 0..locks.clamp(LOCKS.0, LOCKS.1);
        let locks: Box<[CachePadded<SpinLock<()>>]> =
            locks.map(|_| CachePadded(SpinLock::new(()))).collect();
        name("locks of families", &[], locks.as_ptr(), locks.len());
        Families { locks }
    }

    fn lock_of(&self, family: u32) -> &SpinLock<()> {
        &self.locks[family as usize & (self.locks.len() - 1)]
    }

    /// The family of a node, locked. `None` if the node is not in use.
    pub fn lock<'a, N: Nodes>(
        &'a self,
        nodes: &'a N,
        handle: u32,
        pin: &'a Pin<'_>,
    ) -> Option<LockedFamily<'a, N>> {
        loop {
            let family = nodes.node(handle).family();
            if family == NOBODY {
                return None;
            }
            let guard = self.lock_of(family).lock(pin);
            if nodes.node(handle).family() == family {
                return Some(LockedFamily {
                    nodes,
                    _guard: guard,
                });
            }
        }
    }
}

/// Makes a vacant node, the caller's alone, the first of a new family.
pub fn found(node: &Kin, handle: u32, space: u32) {
    reset(node, space, 0, 0);
    // Each CPU takes nodes from frames of its own, so that the low bits of the handles
    // of all first nodes are the same.
    let family = handle.wrapping_mul(0x9e37_79b9) >> 16;
    node.family.store(family, Ordering::Release);
}

fn reset(node: &Kin, space: u32, parent: u32, born: u32) {
    node.pages.start();
    set(&node.space, space);
    set(&node.parent, parent);
    set(&node.born, born);
    for link in [
        &node.first_child,
        &node.next,
        &node.previous,
        &node.heir,
        &node.legacies,
        &node.next_legacy,
    ] {
        set(link, 0);
    }
}

/// A family, locked.
pub struct LockedFamily<'a, N> {
    nodes: &'a N,
    _guard: SpinGuard<'a, ()>,
}

impl<N: Nodes> LockedFamily<'_, N> {
    fn node(&self, handle: u32) -> &Kin {
        self.nodes.node(handle)
    }

    /// Makes a vacant node, the caller's alone, the latest child of `parent`,
    /// whose space lives.
    pub fn fork(&self, parent: u32, child: u32, space: u32, born: u32) {
        let (above, node) = (self.node(parent), self.node(child));
        reset(node, space, parent, born);
        let next = get(&above.first_child);
        set(&node.next, next);
        if next != 0 {
            set(&self.node(next).previous, child);
        }
        set(&above.first_child, child);
        node.family.store(above.family(), Ordering::Release);
    }

    /// A space ends. `free` takes the nodes that nobody needs any more;
    /// `gone` counts those that have left the family, some of which the last
    /// CPU that counts for them frees.
    pub fn end(&self, handle: u32, mut gone: impl FnMut(), mut free: impl FnMut(u32)) {
        let mut leave = |handle: u32| {
            gone();
            let node = self.node(handle);
            node.family.store(NOBODY, Ordering::Release);
            if node.pages.end() {
                free(handle);
            }
        };
        set(&self.node(handle).space, 0);
        let mut place = handle;
        while place != 0 {
            let node = self.node(place);
            if node.space() != 0 {
                return;
            }
            let (parent, child) = (get(&node.parent), get(&node.first_child));
            if child != 0 {
                if get(&self.node(child).next) == 0 {
                    self.pass_on(place, child, &mut leave);
                }
                return;
            }
            self.unlink(node);
            let mut legacy = get(&node.legacies);
            while legacy != 0 {
                let next = get(&self.node(legacy).next_legacy);
                leave(legacy);
                legacy = next;
            }
            leave(place);
            place = parent;
        }
    }

    /// Takes a node without children out of the tree.
    fn unlink(&self, node: &Kin) {
        let (previous, next) = (get(&node.previous), get(&node.next));
        if next != 0 {
            set(&self.node(next).previous, previous);
        }
        if previous != 0 {
            set(&self.node(previous).next, next);
        } else if get(&node.parent) != 0 {
            set(&self.node(get(&node.parent)).first_child, next);
        }
    }

    /// `heir`, the only child of a node whose space has ended, takes its place.
    fn pass_on(&self, handle: u32, heir: u32, leave: &mut impl FnMut(u32)) {
        let (old, new) = (self.node(handle), self.node(heir));
        let (parent, previous, next) = (get(&old.parent), get(&old.previous), get(&old.next));
        set(&new.parent, parent);
        set(&new.previous, previous);
        set(&new.next, next);
        set(&new.born, get(&old.born));
        if next != 0 {
            set(&self.node(next).previous, heir);
        }
        if previous != 0 {
            set(&self.node(previous).next, heir);
        } else if parent != 0 {
            set(&self.node(parent).first_child, heir);
        }
        let lists = [handle, get(&old.legacies), get(&new.legacies)];
        set(&old.next_legacy, 0);
        set(&new.legacies, 0);
        for mut legacy in lists {
            while legacy != 0 {
                let node = self.node(legacy);
                let next = get(&node.next_legacy);
                if node.pages.is_zero() {
                    leave(legacy);
                } else {
                    set(&node.heir, heir);
                    set(&node.next_legacy, get(&new.legacies));
                    set(&new.legacies, legacy);
                }
                legacy = next;
            }
        }
    }

    /// Calls `visit` with every living space that can have a page that `owner`
    /// made after `stamp` forks, until it returns false: the owner's own
    /// first, then those that descend from its latest child, and so on.
    pub fn spaces(&self, owner: u32, stamp: u32, mut visit: impl FnMut(u32) -> bool) {
        let top = self.node(owner).standing(owner);
        // A legacy's stamps count another space's forks.
        let stamp = if top == owner { stamp } else { 0 };
        let mut place = top;
        while place != 0 {
            let space = self.node(place).space();
            if space != 0 && !visit(space) {
                return;
            }
            place = self.after(place, top, stamp);
        }
    }

    /// The next node of the walk, or 0.
    fn after(&self, place: u32, top: u32, stamp: u32) -> u32 {
        let included =
            |child: u32, parent: u32| child != 0 && (parent != top || self.born(child) >= stamp);
        let child = get(&self.node(place).first_child);
        if included(child, place) {
            return child;
        }
        let mut place = place;
        while place != top {
            let node = self.node(place);
            let (next, parent) = (get(&node.next), get(&node.parent));
            if included(next, parent) {
                return next;
            }
            place = parent;
        }
        0
    }

    fn born(&self, handle: u32) -> u32 {
        get(&self.node(handle).born)
    }

    /// Checks the node and the links around it, while nothing else runs.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, handle: u32) -> Result<(), &'static str> {
        let node = self.node(handle);
        let heir = get(&node.heir);
        if heir != 0 {
            let over = self.node(heir);
            return if node.space() != 0 || get(&over.heir) != 0 || over.family() != node.family() {
                Err("the heir of a space that has ended is not in its family's tree")
            } else {
                self.check_legacy(handle, over)
            };
        }
        let (mut children, mut before, mut born) = (0, 0, u32::MAX);
        let mut child = get(&node.first_child);
        while child != 0 {
            let below = self.node(child);
            if get(&below.parent) != handle || get(&below.previous) != before {
                return Err("a child's links do not lead back");
            }
            if get(&below.born) > born {
                return Err("children do not stand in the order of their forks");
            }
            if below.family() != node.family() || get(&below.heir) != 0 {
                return Err("a child is not in its parent's family");
            }
            (before, born) = (child, get(&below.born));
            children += 1;
            child = get(&below.next);
        }
        if node.space() == 0 && children < 2 {
            return Err("a node of a space that has ended keeps its place needlessly");
        }
        Ok(())
    }

    fn check_legacy(&self, handle: u32, heir: &Kin) -> Result<(), &'static str> {
        let mut legacy = get(&heir.legacies);
        while legacy != 0 && legacy != handle {
            legacy = get(&self.node(legacy).next_legacy);
        }
        if legacy == handle {
            Ok(())
        } else {
            Err("an heir does not list its legacy")
        }
    }
}
