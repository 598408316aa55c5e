//! Where page-table pages come from.

use crate::addr::Pfn;
use crate::frame::{OutOfMemory, PhysicalMemory, Request, Site};
use crate::platform::Platform;
use crate::sync::Pin;

/// A source of zero-filled frames for page tables.
pub trait TablePages<P: Platform>: Send + Sync {
    /// A frame whose every byte is zero, in the [`crate::platform::Zone::Low`] zone.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn take(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        site: Site,
    ) -> Result<Pfn, OutOfMemory>;

    /// Takes back a table that was never linked: nobody else has seen it.
    fn give_back(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn);

    /// Takes back a table that was unlinked and flushed. Walkers without a
    /// lock may still read it until its epoch has passed; all its entries are
    /// zero.
    fn retire(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn);
}

/// A newly allocated and zeroed frame for each table (`ptepage=fresh`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Fresh;

impl<P: Platform> TablePages<P> for Fresh {
    fn take(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        site: Site,
    ) -> Result<Pfn, OutOfMemory> {
        memory.alloc(pin, Request::page(site).low().zeroed())
    }

    fn give_back(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn) {
        memory.frame(table).init_counts(0, 0);
        memory.free(pin, table, 0);
    }

    fn retire(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn) {
        memory.frame(table).init_counts(0, 0);
        memory.retire(pin, table, true);
    }
}
