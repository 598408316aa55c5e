//! The one way to a flush of translations.

use crate::frame::PhysicalMemory;
use crate::platform::{CpuSet, Flush, Machine};
use crate::sync::Pin;

impl<P: Machine> PhysicalMemory<P> {
    /// Makes `cpus` forget what `request` names. The caller holds no spin lock,
    /// which debug builds check: a CPU that spins for one with interrupts off would
    /// not answer.
    pub(crate) fn flush(&self, pin: &Pin<'_>, cpus: CpuSet<'_>, request: &Flush) {
        pin.assert_holds(0);
        self.platform().flush(pin.cpu(), cpus, request);
    }

    /// The same under the locks of `tables` tables whose entries are flushed, and no other:
    /// for a private page that is replaced, whose entry nobody may see empty, and for a
    /// superpage that is made or split, whose pages nobody may see without rights.
    pub(crate) fn flush_under_table_lock(
        &self,
        pin: &Pin<'_>,
        cpus: CpuSet<'_>,
        request: &Flush,
        tables: u32,
    ) {
        pin.assert_holds(tables);
        self.platform().flush(pin.cpu(), cpus, request);
    }
}
