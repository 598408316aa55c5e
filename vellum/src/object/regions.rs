//! Which regions map an object: an interval tree by page index, or lists.
//!
//! Truncation needs it for copies that private mappings made, and
//! object-based reverse mapping finds everything through it. A region's
//! interval is where its pages lie in the object; a stabbing query of the tree
//! costs O(log n + hits), of the lists O(n).

use core::ops::ControlFlow;

use super::region_set::{RegionRoots, RegionSet};
use crate::design::RegionIndex;
use crate::slab::{Arena, Handle};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::tree::IntervalItem;

pub use crate::tree::Interval;

/// A region, as its object sees it: it covers the pages that it shows.
pub trait MappedBy: IntervalItem {
    /// Whether stores reach the object. It does not change while the region
    /// maps the object.
    fn is_shared(&self) -> bool;
}

/// The regions of one object: the regions' arena, the object's lock and roots.
pub struct ObjectRegions<'a, T: MappedBy> {
    arena: &'a Arena<T>,
    roots: &'a RegionRoots,
    set: RegionSet<'a, T>,
}

/// How far a pass over an object's regions has come; see
/// [`ObjectRegions::pass_by_age`].
pub struct Pass<T> {
    /// The last region that is done, or none.
    done: Handle<T>,
    departures: u32,
}

impl<T> Default for Pass<T> {
    /// No region is done yet.
    fn default() -> Self {
        Pass {
            done: Handle::NONE,
            departures: 0,
        }
    }
}

impl<'a, T: MappedBy> ObjectRegions<'a, T> {
    pub(super) fn new(index: RegionIndex, arena: &'a Arena<T>, roots: &'a RegionRoots) -> Self {
        ObjectRegions {
            arena,
            roots,
            set: RegionSet::new(index, arena, roots),
        }
    }

    fn put_in(&self, region: Handle<T>) {
        self.set.insert(self.arena, region);
    }

    fn take_out(&self, region: Handle<T>) {
        self.roots.left(region.raw());
        self.set.remove(self.arena, region);
    }

    /// A region maps the object from now on.
    pub fn insert(&self, pin: &Pin<'_>, region: Handle<T>) {
        let _guard = self.roots.lock.lock(pin);
        self.put_in(region);
    }

    /// A region maps the object no more.
    pub fn remove(&self, pin: &Pin<'_>, region: Handle<T>) {
        let _guard = self.roots.lock.lock(pin);
        self.take_out(region);
    }

    /// Changes the part of the object that a region maps.
    pub fn change(&self, pin: &Pin<'_>, region: Handle<T>, change: impl FnOnce()) {
        let _guard = self.roots.lock.lock(pin);
        self.take_out(region);
        change();
        self.put_in(region);
    }

    /// Cuts a region: `change` leaves `head` its first part and makes `tail`
    /// the second. Whoever looks finds each page in one region.
    pub fn split(&self, pin: &Pin<'_>, head: Handle<T>, tail: Handle<T>, change: impl FnOnce()) {
        let _guard = self.roots.lock.lock(pin);
        self.take_out(head);
        change();
        self.put_in(head);
        self.put_in(tail);
    }

    /// The reverse of [`ObjectRegions::split`]: `change` makes `head` map what
    /// both mapped.
    pub fn join(&self, pin: &Pin<'_>, head: Handle<T>, tail: Handle<T>, change: impl FnOnce()) {
        let _guard = self.roots.lock.lock(pin);
        self.take_out(tail);
        self.take_out(head);
        change();
        self.put_in(head);
    }

    /// Goes on with a pass over every region that maps a page in `first..end`,
    /// those that show the same part of the object in the order in which they
    /// came: a region that a fork makes comes after the one it copies. So what is
    /// taken from all of them is not copied from one that is still to be visited
    /// into one that was (invariant 11).
    ///
    /// `visit` is called with the lock held: it may take table locks, and
    /// nothing else. When it breaks, the lock is let go of, for what must not be
    /// done under a spin lock; the caller then calls again with the same `pass`,
    /// which comes back to that region. If regions left the tree meanwhile, to
    /// change their place or for good, the pass begins anew. So each region was
    /// done when `visit` last saw it, and none has come to lie before it since
    /// that was not. Returns whether the pass is over.
    pub fn pass_by_age(
        &self,
        pin: &Pin<'_>,
        (first, end): (u64, u64),
        pass: &mut Pass<T>,
        mut visit: impl FnMut(Handle<T>, &T) -> ControlFlow<()>,
    ) -> bool {
        let _guard = self.roots.lock.lock(pin);
        let departures = self.roots.departures();
        if pass.departures != departures {
            *pass = Pass {
                done: Handle::NONE,
                departures,
            };
        }
        let mut broke = false;
        let begun_after = pass.done;
        let each = |handle, region: &T| {
            let flow = visit(handle, region);
            match flow {
                ControlFlow::Continue(()) => pass.done = handle,
                ControlFlow::Break(()) => broke = true,
            }
            flow
        };
        if begun_after.is_none() {
            self.set.overlapping(first, end, each);
        } else {
            self.set
                .overlapping_after(self.arena, begun_after, (first, end), each);
        }
        !broke
    }

    /// Calls `visit` for every region that maps a page in `first..end`, in no
    /// order, until it breaks. The lock is held: `visit` may take table locks, and
    /// nothing else.
    pub fn overlapping(
        &self,
        pin: &Pin<'_>,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &T) -> ControlFlow<()>,
    ) {
        let _guard = self.roots.lock.lock(pin);
        let RegionSet::Tree(tree) = &self.set else {
            return self.set.overlapping(first, end, visit);
        };
        let last = &self.roots.last;
        let mut known = Handle::from_raw(last.load(Ordering::Relaxed));
        if !known.is_none() {
            let region = tree.item(known);
            if region.first_index() >= end || region.end_index() <= first {
                known = Handle::NONE;
            } else if visit(known, region).is_break() {
                return;
            }
        }
        tree.overlapping(first, end, |handle, region| {
            if handle == known {
                return ControlFlow::Continue(());
            }
            let flow = visit(handle, region);
            if flow.is_break() {
                last.store(handle.raw(), Ordering::Relaxed);
            }
            flow
        });
    }

    /// Checks the tree or the lists while nothing else runs; returns the number of
    /// regions.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<u64, &'static str> {
        self.set.check()
    }
}
