//! How the regions of an object are kept: `regions=`.

use core::ops::ControlFlow;

use super::regions::MappedBy;
use crate::design::RegionIndex;
use crate::slab::{Arena, Handle};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Pin, SpinGuard, SpinLock};
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
    /// In an object's own: the handle of its further sets, or 0, and how often somebody has
    /// waited for the lock before there were any.
    further: AtomicU32,
    waits: AtomicU32,
    /// In a further set: users of the object for regions that come.
    users: AtomicU32,
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
            RegionIndex::Auto | RegionIndex::Spread | RegionIndex::Tree => {
                RegionSet::Tree(IntervalTree::new(arena, &roots.root))
            }
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

    /// Whether there is no region.
    pub fn is_empty(&self) -> bool {
        match self {
            RegionSet::Tree(tree) => tree.is_empty(),
            RegionSet::Lists { private, shared } => private.is_empty() && shared.is_empty(),
        }
    }

    /// Calls `visit` for every region that shows a page in `first..end`, until it
    /// breaks; those that show the same pages by age.
    #[inline]
    pub(crate) fn overlapping(
        &self,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            RegionSet::Tree(tree) => tree.overlapping(first, end, visit),
            RegionSet::Lists { private, shared } => {
                private.overlapping(first, end, &mut visit)?;
                shared.overlapping(first, end, visit)
            }
        }
    }

    /// The same for the regions that come after `last`, which is one of them, in
    /// that order.
    pub(crate) fn overlapping_after(
        &self,
        arena: &Arena<T>,
        last: Handle<T>,
        (first, end): (u64, u64),
        mut visit: impl FnMut(Handle<T>, &'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            RegionSet::Tree(tree) => tree.overlapping_after(last, first, end, visit),
            RegionSet::Lists { shared, .. } if arena.get(last).is_shared() => {
                shared.overlapping_after(last, first, end, visit)
            }
            RegionSet::Lists { private, shared } => {
                private.overlapping_after(last, first, end, &mut visit)?;
                shared.overlapping(first, end, visit)
            }
        }
    }

    /// Checks the structure, and each region by `check`; returns the number of regions.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(
        &self,
        check: impl Fn(&T) -> Result<(), &'static str>,
    ) -> Result<u64, &'static str> {
        match self {
            RegionSet::Tree(tree) => tree.check(check),
            RegionSet::Lists { private, shared } => {
                let in_list = |region: &T, is_shared| match region.is_shared() == is_shared {
                    true => check(region),
                    false => Err("a region is in the other list of its object"),
                };
                let count = private.check(|region| in_list(region, false))?;
                Ok(count + shared.check(|region| in_list(region, true))?)
            }
        }
    }
}

/// Users of an object that a set keeps.
const MOST_KEPT: u32 = 1 << 12;

/// Waits for the lock of an object's regions after which `regions=auto` spreads them.
const CROWD: u32 = 4;

impl RegionRoots {
    /// Takes the lock.
    pub(super) fn lock<'a>(&'a self, pin: &'a Pin<'_>) -> SpinGuard<'a, ()> {
        if let Some(guard) = self.lock.try_lock(pin) {
            return guard;
        }
        let guard = self.lock.lock(pin);
        let waits = self.waits.load(Ordering::Relaxed).saturating_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        guard
    }

    /// Whether so many have waited for the lock, which is ours, that further sets would help.
    pub(super) fn is_crowded(&self) -> bool {
        self.waits.load(Ordering::Relaxed) >= CROWD
    }

    /// The handle of the further sets, or 0. Who looks with the lock, and finds none, is
    /// before all who use them.
    pub(super) fn further(&self) -> u32 {
        self.further.load(Ordering::Acquire)
    }

    /// Notes the further sets. The lock is ours.
    pub(super) fn set_further(&self, further: u32) {
        self.further.store(further, Ordering::Release);
    }

    /// Who has waited is forgotten. The lock is ours.
    pub(super) fn forget_waits(&self) {
        self.waits.store(0, Ordering::Relaxed);
    }

    /// Keeps the user of a region that left the set, whose lock is ours, for the next that
    /// comes, if there is room. Other regions are in the set.
    pub(super) fn keep_user(&self) -> bool {
        let users = self.users.load(Ordering::Relaxed);
        let has_room = users < MOST_KEPT;
        if has_room {
            self.users.store(users + 1, Ordering::Relaxed);
        }
        has_room
    }

    /// Takes one of the users that were kept.
    pub(super) fn take_user(&self) -> bool {
        let users = self.users.load(Ordering::Relaxed);
        if users != 0 {
            self.users.store(users - 1, Ordering::Relaxed);
        }
        users != 0
    }

    /// Takes all of them.
    pub(super) fn take_users(&self) -> u32 {
        let users = self.users.load(Ordering::Relaxed);
        self.users.store(0, Ordering::Relaxed);
        users
    }

    /// Adds as many.
    pub(super) fn add_users(&self, more: u32) {
        let users = self.users.load(Ordering::Relaxed);
        self.users.store(users + more, Ordering::Relaxed);
    }

    /// Begins anew, for an object whose regions have all gone.
    pub(super) fn begin(&self) {
        self.further.store(0, Ordering::Relaxed);
        self.forget_waits();
    }

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
