//! What is asked of physical memory, and what it answers when it cannot.

use core::fmt;

use super::site::Site;
use crate::platform::{NodeId, Zone};

/// No frame could be had, after every zone the request allows was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory")
    }
}

impl core::error::Error for OutOfMemory {}

/// What an allocation wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Log2 of the frames, at most [`super::MAX_ORDER`].
    pub order: u32,
    /// Who asks.
    pub site: Site,
    /// The node to prefer; `None` is the pin's.
    pub node: Option<NodeId>,
    /// [`Zone::High`] prefers high memory and falls back to low;
    /// [`Zone::Low`] takes low memory only.
    pub zone: Zone,
    /// Every byte must be zero.
    pub zeroed: bool,
    /// Fail rather than take another node.
    pub exact_node: bool,
    /// May use the reserve below the zones' minimum: for allocations that free
    /// memory in the end.
    pub urgent: bool,
    /// For a page of a file that is written at once, so that it is newer than its store
    /// (Linux's `__GFP_WRITE`): zones that limit such pages are asked last.
    pub dirty: bool,
}

impl Request {
    /// One frame, of high memory if there is any, with unspecified content.
    pub const fn page(site: Site) -> Self {
        Request {
            order: 0,
            site,
            node: None,
            zone: Zone::High,
            zeroed: false,
            exact_node: false,
            urgent: false,
            dirty: false,
        }
    }

    /// The same, with every byte zero.
    pub const fn zeroed(self) -> Self {
        Request {
            zeroed: true,
            ..self
        }
    }

    /// The same, of low memory.
    pub const fn low(self) -> Self {
        Request {
            zone: Zone::Low,
            ..self
        }
    }

    /// The same, for `1 << order` frames.
    pub const fn order(self, order: u32) -> Self {
        Request { order, ..self }
    }

    /// The same, preferring `node`.
    pub const fn on_node(self, node: NodeId) -> Self {
        Request {
            node: Some(node),
            ..self
        }
    }

    /// The same, refusing every node but the preferred one.
    pub(crate) const fn exact(self) -> Self {
        Request {
            exact_node: true,
            ..self
        }
    }

    /// The same, for a page that is written at once if `dirty`.
    pub const fn dirty(self, dirty: bool) -> Self {
        Request { dirty, ..self }
    }

    /// The same, allowed to use the reserve.
    pub const fn urgent(self) -> Self {
        Request {
            urgent: true,
            ..self
        }
    }
}

/// A planned failure: the allocation at `site` after `after` others fails, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailAt {
    /// Where.
    pub site: Site,
    /// How many allocations at the site are let through first.
    pub after: u32,
}
