//! The counts and the reverse mapping of every frame (invariants 2 and 3).

use core::cell::Cell;

use super::{AuditFailure, same, wrong};
use crate::addr::Pfn;
use crate::frame::{Kind, PrivateFlags};
use crate::platform::Platform;
use crate::rmap::{Env, ReverseMap, Verdict};
use crate::space::Vm;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Checks counts and reverse mappings of every frame; returns the sum of the
    /// mapping counts, and how many pages of objects only pins keep. Each visit finds as
    /// many entries as its frame's count says, and every entry found maps the frame; so
    /// if the sum is the number of entries in all tables, visits find exactly those.
    pub(super) fn audit_mappings(&self) -> Result<(u64, u64), AuditFailure> {
        let result = Cell::new(Ok(()));
        let (mut mapped, mut detached) = (0, 0);
        self.for_each_frame(|pfn| {
            if result.get().is_ok() {
                match self.audit_frame(pfn) {
                    Ok(maps) => mapped += u64::from(maps),
                    Err(error) => result.set(Err(error)),
                }
                let frame = self.memory.frame(pfn);
                detached += u64::from(frame.kind() == Kind::Object && frame.owner() == 0);
            }
        });
        result.get()?;
        Ok((mapped, detached))
    }

    fn audit_frame(&self, pfn: Pfn) -> Result<u32, AuditFailure> {
        let frame = self.memory.frame(pfn);
        let is_swap_cached = frame
            .as_private()
            .is_some_and(|page| page.has(PrivateFlags::SWAP_CACHED));
        let own = match frame.kind() {
            // The swap cache's.
            Kind::Anonymous => u32::from(is_swap_cached),
            // Truncation took the cache's reference from a page that is pinned.
            Kind::Object => u32::from(frame.owner() != 0),
            _ => return Ok(0),
        };
        let number = u64::from(pfn.0);
        let counts = frame.counts();
        let expected = own + counts.maps() + counts.pins();
        same(
            "references of frame",
            number,
            u64::from(expected),
            u64::from(counts.refs()),
        )?;
        let pin = self.pin();
        let env = Env {
            memory: &self.memory,
            pin: &pin,
        };
        if counts.maps() == 0 && is_swap_cached {
            // Reverse mapping does not know it.
            return Ok(0);
        }
        // First: a visit follows what the frame names, and may trust it.
        self.rmap
            .check_frame(&env, pfn, counts.maps())
            .or_else(|what| wrong(what, number))?;
        let report = self
            .rmap
            .visit::<P, F>(&env, self, pfn, &mut |_| Verdict::Keep);
        let maps = u64::from(counts.maps());
        same(
            "entries a visit finds for frame",
            number,
            maps,
            u64::from(report.hits),
        )?;
        Ok(counts.maps())
    }
}
