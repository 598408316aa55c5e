//! How the regions of an object are kept: `regions=`.

use core::ops::ControlFlow;

use super::regions::MappedBy;
use crate::design::RegionIndex;
use crate::slab::{Arena, Handle};
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::tree::{IntervalList, IntervalTree};

/// The words that an object keeps for its regions. Its lock is held over every
/// use but that of the lock.
#[derive(Debug, Default)]
pub struct RegionRoots {
    pub(super) lock: SpinLock<()>,
    /// The region at which the last search of the tree ended: consecutive pages
    /// are mostly looked for in turn.
    pub(super) last: AtomicU32,
    /// How often a region has left the set.
    departures: AtomicU32,
    /// The tree's root, or the list of private mappings.
    root: AtomicU32,
    /// The list of shared mappings.
    shared: AtomicU32,
}

/// The regions of one object, by one of the two designs.
pub(super) enum RegionSet<'a, T: MappedBy> {
    /// An interval tree, as Linux has had since 2004.
    Tree(IntervalTree<'a, T>),
    /// The lists `i_mmap` and `i_mmap_shared` of the kernels before.
    Lists {
        private: IntervalList<'a, T>,
        shared: IntervalList<'a, T>,
    },
}

impl<'a, T: MappedBy> RegionSet<'a, T> {
    #[inline]
    pub fn new(index: RegionIndex, arena: &'a Arena<T>, roots: &'a RegionRoots) -> Self {
        match index {
            RegionIndex::Tree => RegionSet::Tree(IntervalTree::new(arena, &roots.root)),
            RegionIndex::List => RegionSet::Lists {
                private: IntervalList::new(arena, &roots.root),
                shared: IntervalList::new(arena, &roots.shared),
            },
        }
    }

    /// Adds a region, as the youngest of those that show the same pages.
    pub fn insert(&self, arena: &Arena<T>, region: Handle<T>) {
        match self {
            RegionSet::Tree(tree) => tree.insert(region),
            RegionSet::Lists { shared, .. } if arena.get(region).is_shared() => {
                shared.insert(region);
            }
            RegionSet::Lists { private, .. } => private.insert(region),
        }
    }

    /// Removes a region that has not changed since it was added.
    pub fn remove(&self, arena: &Arena<T>, region: Handle<T>) {
        match self {
            RegionSet::Tree(tree) => tree.remove(region),
            RegionSet::Lists { shared, .. } if arena.get(region).is_shared() => {
                shared.remove(region);
            }
            RegionSet::Lists { private, .. } => private.remove(region),
        }
    }

    /// Calls `visit` for every region that shows a page in `first..end`, until it
    /// breaks; those that show the same pages by age.
    #[inline]
    pub fn overlapping(
        &self,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) {
        match self {
            RegionSet::Tree(tree) => tree.overlapping(first, end, visit),
            RegionSet::Lists { private, shared } => {
                if private.overlapping(first, end, &mut visit).is_continue() {
                    let _ = shared.overlapping(first, end, visit);
                }
            }
        }
    }

    /// The same for the regions that come after `last`, which is one of them, in
    /// that order.
    pub fn overlapping_after(
        &self,
        arena: &Arena<T>,
        last: Handle<T>,
        (first, end): (u64, u64),
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) {
        match self {
            RegionSet::Tree(tree) => tree.overlapping_after(last, first, end, visit),
            RegionSet::Lists { shared, .. } if arena.get(last).is_shared() => {
                let _ = shared.overlapping_after(last, first, end, visit);
            }
            RegionSet::Lists { private, shared } => {
                let flow = private.overlapping_after(last, first, end, &mut visit);
                if flow.is_continue() {
                    let _ = shared.overlapping(first, end, visit);
                }
            }
        }
    }

    /// Checks the structure; returns the number of regions.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<u64, &'static str> {
        match self {
            RegionSet::Tree(tree) => tree.check(|_| Ok(())),
            RegionSet::Lists { private, shared } => {
                let count = private.check(|region| in_list(region, false))?;
                Ok(count + shared.check(|region| in_list(region, true))?)
            }
        }
    }
}

fn in_list<T: MappedBy>(region: &T, shared: bool) -> Result<(), &'static str> {
    match region.is_shared() == shared {
        true => Ok(()),
        false => Err("a region is in the other list of its object"),
    }
}

impl RegionRoots {
    /// How often a region has left the set.
    pub(super) fn departures(&self) -> u32 {
        self.departures.load(Ordering::Relaxed)
    }

    /// A region leaves the set.
    pub(super) fn left(&self, region: u32) {
        if self.last.load(Ordering::Relaxed) == region {
            self.last.store(0, Ordering::Relaxed);
        }
        let departures = self.departures().wrapping_add(1);
        self.departures.store(departures, Ordering::Relaxed);
    }
}
