//! The list of related regions, threaded through what regions embed.
//!
//! A ring in the order in which the regions joined, its oldest named by the
//! anon_vma. All links are read and written under the anon_vma's lock. Which
//! anon_vma a region has is read without it: it is set once, under that
//! anon_vma's lock, by one of the CPUs that race to set it, and cleared under
//! that lock when the region ends.
//!
//! Regions are named by number, so that this is the same over an arena and
//! over the memory of a model checker.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{BitGuard, BitLock, Pin};

const LOCK_BIT: u32 = 0;

/// What related regions share and their private pages name.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Relatives {
    lock: AtomicU32,
    /// The region that joined first, or 0: nobody has this anon_vma.
    oldest: AtomicU32,
    /// Regions in the list.
    regions: AtomicU32,
    /// The arena's while nobody has the anon_vma.
    pub(super) link: AtomicU32,
}

/// What a region embeds.
#[derive(Debug, Default)]
pub struct Relation {
    anon_vma: AtomicU32,
    /// Neighbours in the ring.
    next: AtomicU32,
    previous: AtomicU32,
}

/// Where regions are.
pub trait Relations {
    /// What the region with this handle embeds.
    fn relation(&self, region: u32) -> &Relation;
}

impl Relation {
    /// The region's anon_vma, or 0. Once a CPU has seen one, it stays until the
    /// region ends.
    #[inline]
    pub fn anon_vma(&self) -> u32 {
        self.anon_vma.load(Ordering::Acquire)
    }

    /// The regions that joined after and before this one.
    pub(super) fn neighbours(&self) -> (u32, u32) {
        (
            self.next.load(Ordering::Relaxed),
            self.previous.load(Ordering::Relaxed),
        )
    }

    fn set_next(&self, region: u32) {
        self.next.store(region, Ordering::Relaxed);
    }

    fn set_previous(&self, region: u32) {
        self.previous.store(region, Ordering::Relaxed);
    }
}

impl Relatives {
    /// One that nobody has.
    pub fn new() -> Self {
        Relatives {
            lock: AtomicU32::new(0),
            oldest: AtomicU32::new(0),
            regions: AtomicU32::new(0),
            link: AtomicU32::new(0),
        }
    }

    /// Takes the lock. Possible at any time, also when the anon_vma has ended:
    /// its list is then empty, or another's.
    #[inline]
    pub fn lock<'a>(&'a self, pin: &'a Pin<'_>) -> LockedAnonVma<'a> {
        LockedAnonVma {
            _guard: self.lock.lock_bit(LOCK_BIT, pin),
            anon_vma: self,
        }
    }

    /// Whether the lock is held.
    pub(super) fn is_locked(&self) -> bool {
        self.lock.load(Ordering::Relaxed) != 0
    }

    /// Regions in the list.
    pub(super) fn regions(&self) -> u32 {
        self.regions.load(Ordering::Relaxed)
    }

    /// Whether no region is in the list.
    pub(super) fn is_unused(&self) -> bool {
        self.oldest.load(Ordering::Relaxed) == 0
    }
}

/// A locked anon_vma.
pub struct LockedAnonVma<'a> {
    anon_vma: &'a Relatives,
    _guard: BitGuard<'a, AtomicU32>,
}

impl LockedAnonVma<'_> {
    /// The region that joined first, or 0.
    #[inline]
    pub fn first(&self) -> u32 {
        self.anon_vma.oldest.load(Ordering::Relaxed)
    }

    /// The one after `region`, or 0 at the end.
    #[inline]
    pub fn next(&self, relations: &impl Relations, region: u32) -> u32 {
        let next = relations.relation(region).next.load(Ordering::Relaxed);
        if next == self.first() { 0 } else { next }
    }

    /// Makes this anon_vma, with handle `own`, that of `region`, which joins
    /// behind the region `behind`, or at the end if that is 0. False, with
    /// nothing changed, if it has one already.
    pub fn join(&self, relations: &impl Relations, own: u32, region: u32, behind: u32) -> bool {
        let relation = relations.relation(region);
        if relation
            .anon_vma
            .compare_exchange(0, own, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        let count = self.anon_vma.regions.load(Ordering::Relaxed);
        self.anon_vma.regions.store(count + 1, Ordering::Relaxed);
        let first = self.first();
        if first == 0 {
            relation.set_next(region);
            relation.set_previous(region);
            self.anon_vma.oldest.store(region, Ordering::Relaxed);
            return true;
        }
        let before = match behind {
            0 => relations.relation(first).previous.load(Ordering::Relaxed),
            behind => behind,
        };
        let after = relations.relation(before).next.load(Ordering::Relaxed);
        relation.set_previous(before);
        relation.set_next(after);
        relations.relation(before).set_next(region);
        relations.relation(after).set_previous(region);
        true
    }

    /// Takes a region out, which then has no anon_vma. True if it was the last.
    pub fn leave(&self, relations: &impl Relations, region: u32) -> bool {
        let relation = relations.relation(region);
        let (next, previous) = relation.neighbours();
        let last = next == region;
        if last {
            self.anon_vma.oldest.store(0, Ordering::Relaxed);
        } else {
            relations.relation(previous).set_next(next);
            relations.relation(next).set_previous(previous);
            if self.first() == region {
                self.anon_vma.oldest.store(next, Ordering::Relaxed);
            }
        }
        let count = self.anon_vma.regions.load(Ordering::Relaxed);
        self.anon_vma
            .regions
            .store(count.wrapping_sub(1), Ordering::Relaxed);
        relation.set_next(0);
        relation.set_previous(0);
        relation.anon_vma.store(0, Ordering::Relaxed);
        last
    }
}
