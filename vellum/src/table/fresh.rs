//! Tables straight from the allocator.

use super::{Chain, TablePageStats, TablePages, Wanted};
use crate::addr::Pfn;
use crate::frame::{AuditError, Keeper, OutOfMemory, PhysicalMemory, Request};
use crate::platform::Machine;
use crate::sync::Pin;

/// A frame of the allocator for each table, zeroed unless the allocator knows
/// it to be zero: `ptepage=fresh`, `noted` and `zeroaware`, which differ in what
/// the allocator remembers ([`crate::frame::FreedTables`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Fresh;

impl Fresh {
    /// Takes a frame and counts whether it had to be zeroed.
    pub(crate) fn zeroed<P: Machine>(
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        wanted: Wanted,
    ) -> Result<Pfn, OutOfMemory> {
        let before = memory.bytes_zeroed(pin);
        let table = memory.alloc(
            pin,
            Request {
                zone: wanted.zone,
                ..Request::page(wanted.site).zeroed()
            },
        )?;
        let zeroed = memory.bytes_zeroed(pin).wrapping_sub(before);
        let counters = memory.table_counters(pin);
        counters.taken.bump();
        if zeroed != 0 {
            counters.misses.bump();
            counters.bytes_zeroed.add(zeroed);
        }
        Ok(table)
    }
}

impl<P: Machine> Keeper<P> for Fresh {
    fn give_up(&self, _: &PhysicalMemory<P>, _: &Pin<'_>) {}
}

impl<P: Machine> TablePages<P> for Fresh {
    fn take(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        wanted: Wanted,
    ) -> Result<Pfn, OutOfMemory> {
        Fresh::zeroed(memory, pin, wanted)
    }

    unsafe fn give_back(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn, _: u32) {
        memory.frame(table).init_counts(0, 0);
        memory.free_table(pin, table);
    }

    unsafe fn retire(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, tables: Chain) {
        memory.retire_tables(pin, tables);
    }

    fn trim(&self, _: &PhysicalMemory<P>, _: &Pin<'_>) -> u32 {
        0
    }

    fn stats(&self, memory: &PhysicalMemory<P>) -> TablePageStats {
        TablePageStats::counted(memory)
    }

    fn audit(&self, _: &PhysicalMemory<P>) -> Result<u64, AuditError> {
        Ok(0)
    }
}
