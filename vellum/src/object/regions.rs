//! Which regions map an object: an interval tree by page index.
//!
//! Truncation needs it for copies that private mappings made, and
//! object-based reverse mapping finds everything through it. A region's
//! interval is where its pages lie in the object; a stabbing query costs
//! O(log n + hits).

use core::ops::ControlFlow;

use crate::slab::{Arena, Handle};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{BitLock, Pin};
use crate::tree::IntervalTree;

pub use crate::tree::{Interval, Spans as MappedBy};

const LOCK_BIT: u32 = 0;

/// The regions of one object: the regions' arena, the object's lock and root.
pub struct ObjectRegions<'a, T: MappedBy> {
    lock: &'a AtomicU32,
    tree: IntervalTree<'a, T>,
    /// The region at which the last search ended, under the lock: consecutive
    /// pages are mostly looked for in turn.
    last: &'a AtomicU32,
    /// How often a region has left the tree, under the lock.
    departures: &'a AtomicU32,
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
    pub(super) fn new(
        arena: &'a Arena<T>,
        lock: &'a AtomicU32,
        root: &'a AtomicU32,
        last: &'a AtomicU32,
        departures: &'a AtomicU32,
    ) -> Self {
        ObjectRegions {
            lock,
            tree: IntervalTree::new(arena, root),
            last,
            departures,
        }
    }

    fn take_out(&self, region: Handle<T>) {
        if self.last.load(Ordering::Relaxed) == region.raw() {
            self.last.store(0, Ordering::Relaxed);
        }
        let departures = self.departures.load(Ordering::Relaxed);
        self.departures
            .store(departures.wrapping_add(1), Ordering::Relaxed);
        self.tree.remove(region);
    }

    /// A region maps the object from now on.
    pub fn insert(&self, pin: &Pin<'_>, region: Handle<T>) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.tree.insert(region);
    }

    /// A region maps the object no more.
    pub fn remove(&self, pin: &Pin<'_>, region: Handle<T>) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.take_out(region);
    }

    /// Changes the part of the object that a region maps.
    pub fn change(&self, pin: &Pin<'_>, region: Handle<T>, change: impl FnOnce()) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.take_out(region);
        change();
        self.tree.insert(region);
    }

    /// Cuts a region: `change` leaves `head` its first part and makes `tail`
    /// the second. Whoever looks finds each page in one region.
    pub fn split(&self, pin: &Pin<'_>, head: Handle<T>, tail: Handle<T>, change: impl FnOnce()) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.take_out(head);
        change();
        self.tree.insert(head);
        self.tree.insert(tail);
    }

    /// The reverse of [`ObjectRegions::split`]: `change` makes `head` map what
    /// both mapped.
    pub fn join(&self, pin: &Pin<'_>, head: Handle<T>, tail: Handle<T>, change: impl FnOnce()) {
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        self.take_out(tail);
        self.take_out(head);
        change();
        self.tree.insert(head);
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
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        let departures = self.departures.load(Ordering::Relaxed);
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
            self.tree.overlapping(first, end, each);
        } else {
            self.tree.overlapping_after(begun_after, first, end, each);
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
        let _guard = self.lock.lock_bit(LOCK_BIT, pin);
        let mut last = Handle::from_raw(self.last.load(Ordering::Relaxed));
        if !last.is_none() {
            let region = self.tree.item(last);
            if region.first_index() >= end || region.end_index() <= first {
                last = Handle::NONE;
            } else if visit(last, region).is_break() {
                return;
            }
        }
        self.tree.overlapping(first, end, |handle, region| {
            if handle == last {
                return ControlFlow::Continue(());
            }
            let flow = visit(handle, region);
            if flow.is_break() {
                self.last.store(handle.raw(), Ordering::Relaxed);
            }
            flow
        });
    }

    /// Checks the tree while nothing else runs; returns its size.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<u64, &'static str> {
        self.tree.check(|_| Ok(()))
    }
}
