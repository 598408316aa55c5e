//! Bundles: the spaces forked since one exec, for designs that find a private
//! page's entries by one address in all of them.
//!
//! Hugh Dickins' anonmm (2003, 2004). Each space has a member, apart from the
//! space because it outlives it for as long as pages name it. The member of the
//! space that began with a program is the **head** of its bundle. The head's
//! lock guards the list of members and which of them are alive; the locks of
//! the others are not used.
//!
//! A member is counted once for each page that names it and once for its
//! space; a head once more for itself, and once for each other member. At 0 a
//! member leaves the list; at 1 nothing but itself is left of a head, and the
//! bundle is over. Both are seen under the head's lock only: a CPU that would
//! take the last count but those takes the lock first. Without that, two spaces
//! that are the last and end at one time could each let go of the head, see its
//! count at 1, and free it.
//!
//! Members are named by number, so that this is the same over an arena and
//! over the memory of a model checker.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Pin, SpinGuard, SpinLock};

/// What a space is to its bundle: one cache line, because every fault writes
/// the count.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Member {
    /// The arena's while nobody uses the member.
    pub(crate) link: AtomicU32,
    /// The head's handle; the member's own if it is the head.
    head: AtomicU32,
    /// Handle of the space, or 0 once it has ended.
    space: AtomicU32,
    count: AtomicU32,
    /// Neighbours in the list, which is a ring. 0: not in it.
    next: AtomicU32,
    previous: AtomicU32,
    lock: SpinLock<()>,
}

/// Where members are.
pub(crate) trait Members {
    /// The member with this handle, which was handed out once.
    fn member(&self, handle: u32) -> &Member;
}

/// Members that nobody needs any more: at most one and its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "members that are gone have to be given back"]
pub(crate) struct Gone {
    pub(crate) member: Option<u32>,
    pub(crate) head: Option<u32>,
}

impl Member {
    /// Whether somebody uses the member.
    pub(crate) fn is_used(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Handle of the head.
    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.head.load(Ordering::Relaxed)
    }

    /// Handle of the space, or 0 if it has ended. Stays as it is under the
    /// head's lock.
    #[inline]
    pub(crate) fn space(&self) -> u32 {
        self.space.load(Ordering::Relaxed)
    }

    /// Pages, space, and for a head itself and the others.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The next and the previous member of the ring.
    pub(crate) fn neighbours(&self) -> (u32, u32) {
        let next = self.next.load(Ordering::Relaxed);
        (next, self.previous.load(Ordering::Relaxed))
    }

    /// `pages` more pages name the member, whose space lives.
    #[inline]
    pub(crate) fn hold(&self, pages: u32) {
        self.count.fetch_add(pages, Ordering::Relaxed);
    }

    fn begin(&self, head: u32, space: u32, count: u32) {
        self.head.store(head, Ordering::Relaxed);
        self.space.store(space, Ordering::Relaxed);
        self.count.store(count, Ordering::Release);
    }
}

/// Makes `handle` the head of a new bundle, for the space `space`.
pub(crate) fn found<N: Members>(nodes: &N, handle: u32, space: u32) {
    let member = nodes.member(handle);
    member.next.store(handle, Ordering::Relaxed);
    member.previous.store(handle, Ordering::Relaxed);
    member.begin(handle, space, 2);
}

/// Makes `handle` a member of the bundle of `parent`, whose space lives, for
/// the space `space`.
pub(crate) fn join<N: Members>(nodes: &N, pin: &Pin<'_>, parent: u32, handle: u32, space: u32) {
    let bundle = Bundle::lock(nodes, pin, nodes.member(parent).head());
    let (head, member) = (bundle.head(), nodes.member(handle));
    let last = head.previous.load(Ordering::Relaxed);
    member.next.store(bundle.handle, Ordering::Relaxed);
    member.previous.store(last, Ordering::Relaxed);
    member.begin(bundle.handle, space, 1);
    nodes.member(last).next.store(handle, Ordering::Relaxed);
    head.previous.store(handle, Ordering::Relaxed);
    head.count.fetch_add(1, Ordering::Relaxed);
}

/// A page stops naming the member.
#[inline]
pub(crate) fn drop_page<N: Members>(nodes: &N, pin: &Pin<'_>, handle: u32) -> Gone {
    let member = nodes.member(handle);
    let kept = u32::from(member.head() == handle);
    let mut count = member.count.load(Ordering::Relaxed);
    while count > kept + 1 {
        let left = count - 1;
        // Release: whoever takes the last count knows that we are done.
        match member
            .count
            .compare_exchange_weak(count, left, Ordering::Release, Ordering::Relaxed)
        {
            Ok(_) => return Gone::default(),
            Err(now) => count = now,
        }
    }
    let mut bundle = Bundle::lock(nodes, pin, member.head());
    let member = bundle.release(handle);
    Gone {
        member,
        head: bundle.over(),
    }
}

/// The space of a member ends. It maps nothing any more, but pages that other
/// spaces map may go on naming the member.
pub(crate) fn leave<N: Members>(nodes: &N, pin: &Pin<'_>, handle: u32) -> Gone {
    let mut bundle = Bundle::lock(nodes, pin, nodes.member(handle).head());
    let member = bundle.end_space(handle);
    Gone {
        member,
        head: bundle.over(),
    }
}

/// A bundle whose head is locked.
pub(crate) struct Bundle<'a, N> {
    nodes: &'a N,
    handle: u32,
    _guard: SpinGuard<'a, ()>,
}

impl<'a, N: Members> Bundle<'a, N> {
    /// Locks a head. One found without a count of it may be another's by now:
    /// [`Bundle::lists`] tells.
    pub(crate) fn lock(nodes: &'a N, pin: &'a Pin<'_>, head: u32) -> Self {
        Bundle {
            nodes,
            handle: head,
            _guard: nodes.member(head).lock.lock(pin),
        }
    }

    fn head(&self) -> &'a Member {
        self.nodes.member(self.handle)
    }

    /// Whether a member is in this bundle.
    pub(crate) fn lists(&self, handle: u32) -> bool {
        if handle == 0 {
            return false;
        }
        let member = self.nodes.member(handle);
        member.head() == self.handle && member.next.load(Ordering::Relaxed) != 0
    }

    /// The member after one of this bundle, in a ring.
    #[inline]
    pub(crate) fn next(&self, handle: u32) -> u32 {
        self.nodes.member(handle).next.load(Ordering::Relaxed)
    }

    /// The space of a member of this bundle, or 0. It does not end meanwhile.
    #[inline]
    pub(crate) fn space(&self, handle: u32) -> u32 {
        self.nodes.member(handle).space()
    }

    /// A page that named `from` now names `to`, whose space lives. Returns
    /// `from` if that was all it was kept for.
    pub(crate) fn rename(&mut self, from: u32, to: u32) -> Option<u32> {
        self.nodes.member(to).hold(1);
        self.release(from)
    }

    /// The space of a member ends.
    fn end_space(&mut self, handle: u32) -> Option<u32> {
        self.nodes.member(handle).space.store(0, Ordering::Relaxed);
        self.release(handle)
    }

    /// Takes one count of a member. Returns the member if it is not needed
    /// any more.
    pub(crate) fn release(&mut self, handle: u32) -> Option<u32> {
        let member = self.nodes.member(handle);
        let before = member.count.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a member is let go more often than held");
        if before > 1 || handle == self.handle {
            return None;
        }
        let (next, previous) = member.neighbours();
        self.nodes
            .member(previous)
            .next
            .store(next, Ordering::Relaxed);
        self.nodes
            .member(next)
            .previous
            .store(previous, Ordering::Relaxed);
        member.next.store(0, Ordering::Relaxed);
        self.head().count.fetch_sub(1, Ordering::AcqRel);
        Some(handle)
    }

    /// Whether nothing but the head itself is left: the head, which is then
    /// the caller's to give back after unlocking. Only one caller is told so,
    /// because it asks before it unlocks.
    pub(crate) fn over(self) -> Option<u32> {
        let head = self.head();
        if head.count.load(Ordering::Acquire) != 1 {
            return None;
        }
        head.next.store(0, Ordering::Relaxed);
        head.count.store(0, Ordering::Relaxed);
        Some(self.handle)
    }
}
