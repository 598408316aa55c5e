//! Where pages enter and leave the sight of page aging.

use crate::addr::Pfn;
use crate::sync::Pin;

/// What kind of page entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// A page of a file or shared memory.
    Cache,
    /// A private page.
    Anonymous,
}

/// Told of every page that aging may look at. The core itself ages nothing;
/// an embedder that reclaims memory keeps its lists here.
pub trait Aging: Send + Sync {
    /// `frame` holds a page that is mapped or cached. It is not locked; its
    /// record's [`crate::frame::Flags::LRU`] belongs to the implementation.
    fn inserted(&self, pin: &Pin<'_>, frame: Pfn, kind: Inserted);

    /// `frame` has lost its last user and is about to be free.
    fn removed(&self, pin: &Pin<'_>, frame: Pfn);
}
