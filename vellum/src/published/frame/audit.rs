//! The proof that the frames of linked lists are where their records say.

use super::Linked;
use crate::addr::Pfn;
use crate::frame::Kind;
use crate::frame::MAX_ORDER;
use crate::frame::PhysicalMemory;
use crate::frame::{AuditError, AuditPlace};
use crate::platform::Machine;
use crate::sync::Pin;

fn zone_error(zone: usize, what: &'static str) -> AuditError {
    AuditError {
        place: AuditPlace::Zone(zone),
        what,
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Walks every list and marks the frames found, as the audit of the other lists does.
    pub(super) fn audit_linked(&self, linked: &Linked, pin: &Pin<'_>) -> Result<(), AuditError> {
        for (number, zone) in linked.zones.iter().enumerate() {
            let lists = zone.lists.lock(pin);
            let mut free = 0;
            for order in 0..=MAX_ORDER {
                for list in lists.lists(order) {
                    for pfn in list.frames(&self.table) {
                        let pfn = pfn.ok_or(zone_error(number, "a list's links are broken"))?;
                        self.audit_block(pfn, order, number as u16, &|_, _| false)?;
                        free += 1 << order;
                    }
                }
            }
            if free != lists.free() {
                let what = "the count of free frames is not that of the lists";
                return Err(zone_error(number, what));
            }
        }
        for lists in linked.cpus.iter() {
            for (number, lists) in lists.iter().enumerate() {
                for pfn in lists.kinds.iter().flat_map(|list| list.frames(&self.table)) {
                    let pfn = pfn.ok_or(zone_error(number, "a CPU's links are broken"))?;
                    self.audit_cached(pfn, number)?;
                }
            }
        }
        Ok(())
    }

    fn audit_cached(&self, pfn: Pfn, zone: usize) -> Result<(), AuditError> {
        let frame = self.audited(pfn)?;
        let is_single = frame.kind() == Kind::Cached && frame.cached_block().is_none();
        if !is_single || frame.zone() != zone || frame.counts().refs() != 0 {
            return Err(crate::frame::audit::wrong(
                pfn,
                "on a CPU's list, but the record says otherwise",
            ));
        }
        crate::frame::audit::mark(pfn, frame)
    }
}
