//! Doubly linked lists of things that are named by numbers.

use crate::sync::atomic::{AtomicU32, Ordering};

/// The number that nothing has.
pub(crate) const NONE: u32 = u32::MAX;

/// The words that link one thing to its neighbours.
#[derive(Debug)]
pub(crate) struct Link {
    next: AtomicU32,
    previous: AtomicU32,
}

impl Default for Link {
    fn default() -> Link {
        Link::new()
    }
}

impl Link {
    pub fn new() -> Link {
        Link {
            next: AtomicU32::new(NONE),
            previous: AtomicU32::new(NONE),
        }
    }

    /// The one after this, or [`NONE`]. Under the list's lock.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// The one before this, or [`NONE`]. Under the list's lock.
    #[inline]
    pub fn previous(&self) -> u32 {
        self.previous.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_next(&self, name: u32) {
        self.next.store(name, Ordering::Relaxed);
    }

    #[inline]
    fn set_previous(&self, name: u32) {
        self.previous.store(name, Ordering::Relaxed);
    }
}

/// Where the links of a list's members are.
pub(crate) trait Links {
    /// The link of a member.
    fn link(&self, name: u32) -> &Link;
}

/// The ends of a list. Whoever has it mutably holds the lock that guards the links.
#[derive(Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> List {
        List {
            first: NONE,
            last: NONE,
        }
    }
}

impl List {
    /// The first member, or [`NONE`].
    #[inline]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// The last member, or [`NONE`].
    #[cfg(feature = "published")]
    pub fn last(&self) -> u32 {
        self.last
    }

    #[cfg(feature = "published")]
    pub fn is_empty(&self) -> bool {
        self.first == NONE
    }

    #[cfg(feature = "published")]
    pub fn push_front(&mut self, links: &(impl Links + ?Sized), name: u32) {
        self.insert_after(links, NONE, name);
    }

    pub fn push_back(&mut self, links: &(impl Links + ?Sized), name: u32) {
        self.insert_after(links, self.last, name);
    }

    /// Inserts a thing behind a member, or in front if that is [`NONE`].
    pub fn insert_after(&mut self, links: &(impl Links + ?Sized), place: u32, name: u32) {
        let next = match place {
            NONE => core::mem::replace(&mut self.first, name),
            place => {
                let before = links.link(place);
                let next = before.next();
                before.set_next(name);
                next
            }
        };
        let link = links.link(name);
        link.set_previous(place);
        link.set_next(next);
        match next {
            NONE => self.last = name,
            next => links.link(next).set_previous(name),
        }
    }

    /// Takes a member out.
    pub fn remove(&mut self, links: &(impl Links + ?Sized), name: u32) {
        let (previous, next) = (links.link(name).previous(), links.link(name).next());
        match previous {
            NONE => self.first = next,
            previous => links.link(previous).set_next(next),
        }
        match next {
            NONE => self.last = previous,
            next => links.link(next).set_previous(previous),
        }
    }

    /// Makes a member the last.
    #[cfg(feature = "published")]
    pub fn move_back(&mut self, links: &(impl Links + ?Sized), name: u32) {
        if self.last != name {
            self.remove(links, name);
            self.push_back(links, name);
        }
    }

    /// Makes a member the first.
    #[cfg(feature = "published")]
    pub fn move_front(&mut self, links: &(impl Links + ?Sized), name: u32) {
        if self.first != name {
            self.remove(links, name);
            self.push_front(links, name);
        }
    }

    /// Moves the members before `name`, which is one, behind the last.
    #[cfg(feature = "published")]
    pub fn rotate_to(&mut self, links: &(impl Links + ?Sized), name: u32) {
        let end = links.link(name).previous();
        if end == NONE {
            return;
        }
        let begin = core::mem::replace(&mut self.first, name);
        links.link(name).set_previous(NONE);
        links.link(self.last).set_next(begin);
        links.link(begin).set_previous(self.last);
        links.link(end).set_next(NONE);
        self.last = end;
    }
}
