//! Counts of what the machine did. Each is written by one CPU at a time, so
//! counting is a plain load and store.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count with one writer at a time and any number of readers.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn bump(&self) {
        self.add(1);
    }

    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.get() + amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What whoever is on the CPU counts.
#[derive(Default, Debug)]
pub(crate) struct CpuCounters {
    pub(crate) flush_requests: Counter,
    pub(crate) flush_full: Counter,
    pub(crate) flush_tables: Counter,
    pub(crate) flush_pages: Counter,
    pub(crate) flush_local: Counter,
    pub(crate) flush_remote: Counter,
    pub(crate) flush_dropped: Counter,
    pub(crate) windows_opened: Counter,
    pub(crate) windows_nested: Counter,
    pub(crate) table_windows: Counter,
    pub(crate) table_windows_nested: Counter,
    pub(crate) pages_read: Counter,
    pub(crate) pages_written: Counter,
    pub(crate) io_errors: Counter,
}

/// Counts of one CPU, or of a whole machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuStats {
    /// Accesses that a TLB entry served.
    pub tlb_hits: u64,
    /// Accesses that no TLB entry served.
    pub tlb_misses: u64,
    /// Walks of the tables: one for each miss, and one for each store that
    /// found an entry without the dirty bit.
    pub walks: u64,
    /// Table entries read by walks.
    pub entries_read: u64,
    /// Walks that a cached upper-level entry shortened.
    pub upper_hits: u64,
    /// Valid TLB entries replaced by others.
    pub evictions: u64,
    /// TLB entries dropped by flushes.
    pub flushed_entries: u64,
    /// Accessed bits set in table entries.
    pub accessed_set: u64,
    /// Dirty bits set in table entries.
    pub dirty_set: u64,
    /// Accesses that ended in a fault.
    pub faults: u64,
    /// Flush requests made by this CPU.
    pub flush_requests: u64,
    /// Of these, those for a whole space.
    pub flush_full: u64,
    /// Of these, those that also covered upper-level entries.
    pub flush_tables: u64,
    /// Pages covered by the requests that name a range.
    pub flush_pages: u64,
    /// CPUs flushed that made the request themselves.
    pub flush_local: u64,
    /// Other CPUs flushed: the interrupts a real machine would send.
    pub flush_remote: u64,
    /// Flush requests ignored by a seeded defect.
    pub flush_dropped: u64,
    /// Windows to pages opened.
    pub windows_opened: u64,
    /// Of these, those opened while the CPU's other one was open.
    pub windows_nested: u64,
    /// Windows to page tables opened.
    pub table_windows: u64,
    /// Of these, those opened while the CPU's other one was open.
    pub table_windows_nested: u64,
    /// Pages read from the backing store.
    pub pages_read: u64,
    /// Pages written to the backing store.
    pub pages_written: u64,
    /// Reads and writes that the backing store refused.
    pub io_errors: u64,
}

/// Counts of all CPUs together.
pub type MachineStats = CpuStats;

/// Every count by name: one list for adding up and for reports.
macro_rules! fields {
    ($($name:ident),* $(,)?) => {
        impl CpuStats {
            /// The counts by name, in a fixed order.
            pub fn by_name(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }

        impl AddAssign for CpuStats {
            fn add_assign(&mut self, other: CpuStats) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

fields!(
    tlb_hits,
    tlb_misses,
    walks,
    entries_read,
    upper_hits,
    evictions,
    flushed_entries,
    accessed_set,
    dirty_set,
    faults,
    flush_requests,
    flush_full,
    flush_tables,
    flush_pages,
    flush_local,
    flush_remote,
    flush_dropped,
    windows_opened,
    windows_nested,
    table_windows,
    table_windows_nested,
    pages_read,
    pages_written,
    io_errors,
);

impl CpuCounters {
    /// Copies the counts into `stats`.
    pub(crate) fn read_into(&self, stats: &mut CpuStats) {
        stats.flush_requests = self.flush_requests.get();
        stats.flush_full = self.flush_full.get();
        stats.flush_tables = self.flush_tables.get();
        stats.flush_pages = self.flush_pages.get();
        stats.flush_local = self.flush_local.get();
        stats.flush_remote = self.flush_remote.get();
        stats.flush_dropped = self.flush_dropped.get();
        stats.windows_opened = self.windows_opened.get();
        stats.windows_nested = self.windows_nested.get();
        stats.table_windows = self.table_windows.get();
        stats.table_windows_nested = self.table_windows_nested.get();
        stats.pages_read = self.pages_read.get();
        stats.pages_written = self.pages_written.get();
        stats.io_errors = self.io_errors.get();
    }
}
