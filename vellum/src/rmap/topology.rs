//! What designs need of the layers below them, as traits that those implement.

use core::ops::ControlFlow;

use super::{Cleared, RegionRef, Stretch};
use crate::addr::Vpn;
use crate::sync::Pin;
use crate::table::PteRef;

/// How a design reaches what lies in layers below it. Everything is read
/// without locks: what comes back may be of a moment ago, and a region may be
/// another one by now. Whoever uses it checks the entry it leads to.
pub trait Topology<S> {
    /// Calls `visit` for every place that may map pages from `first` to before
    /// `end` of the object with handle `object`, until it breaks: for each region
    /// that shows any of them, table by table. Reads tables without locks.
    fn mappings_of(
        &self,
        pin: &Pin<'_>,
        object: u32,
        pages: (u64, u64),
        visit: &mut dyn FnMut(Stretch) -> ControlFlow<()>,
    );

    /// The entry of a large leaf that covers `page` in the space with handle `space`, or
    /// the level-1 entry for it, if there is a table for that. Reads without locks.
    fn leaf(&self, pin: &Pin<'_>, space: u32, page: Vpn) -> Option<PteRef>;

    /// The region in this place of the arena. One that has ended has no pages.
    fn region(&self, handle: u32) -> RegionRef<'_, S>;

    /// The regions that touch the one that holds `page` of a space, before it
    /// and after it, and could be parts of one mapping with it: same object,
    /// consecutive linear indices, rights aside.
    fn siblings(&self, pin: &Pin<'_>, space: u32, page: Vpn) -> [Option<RegionRef<'_, S>>; 2];
}

/// Who clears entries that a design asks it to, to make room for nodes.
pub trait ClearsEntries {
    /// Clears those entries at `pages` of the space with handle `space` that a fault
    /// would make again, and flushes. The space may be another by now, and the pages may
    /// be mapped anew or not at all. The caller is pinned and holds no lock.
    fn clear(&self, pin: &Pin<'_>, space: u32, pages: &[Vpn]) -> Cleared;
}
