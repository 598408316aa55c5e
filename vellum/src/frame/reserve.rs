//! Frames kept for good, taken before the memory is in use.

use super::memory::PhysicalMemory;
use super::record::Kind;
use crate::addr::Pfn;
use crate::platform::{Machine, Zone};

impl<P: Machine> PhysicalMemory<P> {
    /// Takes a zero-filled low frame out of circulation. Needs no CPU.
    pub(crate) fn reserve_zeroed(&mut self) -> Option<Pfn> {
        let table = &self.table;
        let pfn = self.zones.all.iter_mut().find_map(|zone| {
            if zone.info.zone != Zone::Low {
                return None;
            }
            let lists = zone.lists.0.get_mut();
            let pfn = lists.take(table, 0, false)?;
            let free = &zone.published.free;
            free.store(lists.free(), crate::sync::atomic::Ordering::Relaxed);
            Some(pfn)
        })?;
        let frame = self.table.frame(pfn);
        frame.set_kind(Kind::Reserved);
        frame.init_counts(1, 0);
        self.direct_bytes(pfn).zero();
        Some(pfn)
    }
}
