//! Which regions map an object: an interval tree by page index, or lists.
//!
//! Truncation needs it for copies that private mappings made, and
//! object-based reverse mapping finds everything through it. A region's
//! interval is where its pages lie in the object; a stabbing query of the tree
//! costs O(log n + hits), of the lists O(n).

use core::ops::ControlFlow;

use super::region_set::{RegionRoots, RegionSet};
use super::spread::Spread;
use crate::frame::PhysicalMemory;
use crate::platform::Platform;
use crate::slab::{Arena, Handle};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::users::join;
use crate::sync::{Pin, Turn};
use crate::tree::IntervalItem;

pub use crate::tree::Interval;

/// A region, as its object sees it: it covers the pages that it shows.
pub trait MappedBy: IntervalItem {
    /// Whether stores reach the object. It does not change while the region
    /// maps the object.
    fn is_shared(&self) -> bool;
    /// A word for the object, in which it keeps the number of the set that the region is in.
    fn set(&self) -> &AtomicU32;
}

/// The regions of one object: the regions' arena, and the object's sets of them.
pub struct ObjectRegions<'a, T: MappedBy> {
    arena: &'a Arena<T>,
    /// The object's handle.
    object: u32,
    own: &'a RegionRoots,
    users: &'a AtomicU32,
    spread: &'a Spread,
}

/// Users that a further set takes for regions to come when it has none.
const KEPT_AT_ONCE: u32 = 15;

/// One of these sets.
struct NumberedSet<'a, T: MappedBy> {
    arena: &'a Arena<T>,
    number: u32,
    roots: &'a RegionRoots,
    items: RegionSet<'a, T>,
}

impl<T: MappedBy> NumberedSet<'_, T> {
    fn put_in(&self, region: Handle<T>) {
        let number = self.arena.get(region).set();
        number.store(self.number, Ordering::Relaxed);
        self.items.insert(self.arena, region);
    }

    fn take_out(&self, region: Handle<T>) {
        self.roots.left(region.raw());
        self.items.remove(self.arena, region);
    }

    /// [`ObjectRegions::overlapping`] for the holder of the set's lock.
    fn overlapping(
        &self,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let RegionSet::Tree(tree) = &self.items else {
            return self.items.overlapping(first, end, visit);
        };
        let last = &self.roots.last;
        let mut known = Handle::from_raw(last.load(Ordering::Relaxed));
        if !known.is_none() {
            let region = tree.item(known);
            if region.first_index() >= end || region.end_index() <= first {
                known = Handle::NONE;
            } else {
                visit(known, region)?;
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
        })
    }
}

/// How far a pass over an object's regions has come; see
/// [`ObjectRegions::pass_by_age`].
pub struct Pass<T> {
    /// The set that it has come to.
    set: u32,
    /// The last region of it that is done, or none.
    done: Handle<T>,
    departures: u32,
}

impl<T> Default for Pass<T> {
    /// No region is done yet.
    fn default() -> Self {
        Pass {
            set: 0,
            done: Handle::NONE,
            departures: 0,
        }
    }
}

impl<'a, T: MappedBy> ObjectRegions<'a, T> {
    pub(super) fn new(
        spread: &'a Spread,
        arena: &'a Arena<T>,
        (object, own, users): (u32, &'a RegionRoots, &'a AtomicU32),
    ) -> Self {
        ObjectRegions {
            arena,
            object,
            own,
            users,
            spread,
        }
    }

    fn set(&self, number: u32) -> NumberedSet<'a, T> {
        let roots = self.spread.roots(self.own, number);
        NumberedSet {
            arena: self.arena,
            number,
            roots,
            items: RegionSet::new(self.spread.index, self.arena, roots),
        }
    }

    /// The set that a region is in. It stays there while the caller, who has the lock of the
    /// region's space, does not move it.
    fn set_of(&self, region: Handle<T>) -> NumberedSet<'a, T> {
        let number = self.arena.get(region).set();
        self.set(number.load(Ordering::Relaxed))
    }

    /// The set for a region that comes.
    fn set_for(&self, pin: &Pin<'_>) -> NumberedSet<'a, T> {
        match self.spread.last(self.own) {
            0 => self.set(0),
            _ => self.set(self.spread.set_of(pin.cpu())),
        }
    }

    /// One user more of the object, for a region that is about to map it; if it is to be a copy
    /// of `original`, for that. Returns `false` if the object has ended; with an original it
    /// has not. The caller is pinned since it has found the object.
    ///
    /// The count of users is a word for all CPUs. So a further set with regions keeps users
    /// for those that come.
    #[must_use]
    pub fn hold(&self, pin: &Pin<'_>, original: Option<Handle<T>>) -> bool {
        let set = match original {
            Some(original) => self.set_of(original),
            None => self.set_for(pin),
        };
        if set.number != 0 {
            let _guard = set.roots.lock(pin);
            if set.roots.take_user() {
                return true;
            }
            if !set.items.is_empty() {
                // Each of its regions is a user.
                self.users.fetch_add(1 + KEPT_AT_ONCE, Ordering::Relaxed);
                set.roots.add_users(KEPT_AT_ONCE);
                return true;
            }
        }
        if original.is_some() {
            // It is a user for as long as this takes.
            self.users.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        join(self.users, Turn::at(pin, self.object))
    }

    /// A region maps the object from now on.
    pub fn insert<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        region: Handle<T>,
    ) {
        self.put_into(memory, pin, &self.set_for(pin), region);
    }

    /// The same for a copy that fork makes of another region, `original`, whose space's lock
    /// the caller has: they are in one set then, the copy as the younger.
    pub(crate) fn insert_copy<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        original: Handle<T>,
        region: Handle<T>,
    ) {
        let set = self.set_of(original);
        if set.number == 0 && self.spread.last(self.own) != 0 {
            // It came before there were further sets. As many regions may be made of it as of
            // any other.
            let later = self.set_for(pin);
            let _guards = (set.roots.lock(pin), later.roots.lock(pin));
            set.take_out(original);
            later.put_in(original);
            later.put_in(region);
            return;
        }
        self.put_into(memory, pin, &set, region);
    }

    fn put_into<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        set: &NumberedSet<'a, T>,
        region: Handle<T>,
    ) {
        let _guard = set.roots.lock(pin);
        set.put_in(region);
        // With the lock that so many wait for: who asks for it again stands behind them.
        if set.number == 0 && self.spread.would_help(self.own) {
            self.spread.spread(memory, pin, self.own);
        }
    }

    /// A region maps the object no more, which has a user less. Returns whether that was the
    /// last.
    #[must_use]
    pub fn remove(&self, pin: &Pin<'_>, region: Handle<T>) -> bool {
        let set = self.set_of(region);
        let guard = set.roots.lock(pin);
        set.take_out(region);
        let gone = match set.number {
            0 => 1,
            _ if set.items.is_empty() => 1 + set.roots.take_users(),
            _ => u32::from(!set.roots.keep_user()),
        };
        drop(guard);
        gone != 0 && self.users.fetch_sub(gone, Ordering::AcqRel) == gone
    }

    /// Changes the part of the object that a region maps.
    pub fn change(&self, pin: &Pin<'_>, region: Handle<T>, change: impl FnOnce()) {
        let set = self.set_of(region);
        let _guard = set.roots.lock(pin);
        set.take_out(region);
        change();
        set.put_in(region);
    }

    /// Cuts a region: `change` leaves `head` its first part and makes `tail`
    /// the second. Whoever looks finds each page in one region.
    pub fn split(&self, pin: &Pin<'_>, head: Handle<T>, tail: Handle<T>, change: impl FnOnce()) {
        let set = self.set_of(head);
        let _guard = set.roots.lock(pin);
        set.take_out(head);
        change();
        set.put_in(head);
        set.put_in(tail);
    }

    /// The reverse of [`ObjectRegions::split`]: `change` makes `head` map what
    /// both mapped. Who looks for a page that both sets showed finds it in the later of them.
    pub fn join(&self, pin: &Pin<'_>, head: Handle<T>, tail: Handle<T>, change: impl FnOnce()) {
        let sets = [self.set_of(head), self.set_of(tail)];
        let [one, other] = &sets;
        let (first, later) = match one.number <= other.number {
            true => (one, other),
            false => (other, one),
        };
        let _first = first.roots.lock(pin);
        let _later = (first.number != later.number).then(|| later.roots.lock(pin));
        other.take_out(tail);
        one.take_out(head);
        change();
        later.put_in(head);
        if first.number != later.number && first.items.is_empty() {
            later.roots.add_users(first.roots.take_users());
        }
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
    pub(crate) fn pass_by_age(
        &self,
        pin: &Pin<'_>,
        (first, end): (u64, u64),
        pass: &mut Pass<T>,
        mut visit: impl FnMut(Handle<T>, &T) -> ControlFlow<()>,
    ) -> bool {
        loop {
            let set = self.set(pass.set);
            let _guard = set.roots.lock(pin);
            let departures = set.roots.departures();
            if pass.departures != departures {
                pass.done = Handle::NONE;
                pass.departures = departures;
            }
            let begun_after = pass.done;
            let each = |handle, region: &T| {
                let flow = visit(handle, region);
                if flow.is_continue() {
                    pass.done = handle;
                }
                flow
            };
            let flow = match begun_after.is_none() {
                true => set.items.overlapping(first, end, each),
                false => (set.items).overlapping_after(self.arena, begun_after, (first, end), each),
            };
            if flow.is_break() {
                return false;
            }
            // Asked with the lock of the object's own set, if that is this one.
            if pass.set == self.spread.last(self.own) {
                return true;
            }
            pass.set += 1;
            pass.done = Handle::NONE;
        }
    }

    /// Calls `visit` for every region that maps a page in `first..end`, in no
    /// order, until it breaks. The lock is held: `visit` may take table locks, and
    /// nothing else.
    pub(crate) fn overlapping(
        &self,
        pin: &Pin<'_>,
        first: u64,
        end: u64,
        mut visit: impl FnMut(Handle<T>, &T) -> ControlFlow<()>,
    ) {
        let mut number = 0;
        loop {
            let set = self.set(number);
            let _guard = set.roots.lock(pin);
            let flow = set.overlapping(first, end, &mut visit);
            // Asked with the lock of the object's own set, if that is this one.
            if flow.is_break() || number == self.spread.last(self.own) {
                return;
            }
            number += 1;
        }
    }

    /// Checks the trees or lists while nothing else runs; returns the number of regions.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<u64, &'static str> {
        let sets = (0..=self.spread.last(self.own)).map(|number| self.set(number));
        sets.map(|set| {
            set.items.check(|region| {
                let number = region.set().load(Ordering::Relaxed);
                match number == set.number {
                    true => Ok(()),
                    false => Err("a region is in another set of its object"),
                }
            })
        })
        .sum()
    }
}
