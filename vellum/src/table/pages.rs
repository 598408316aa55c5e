//! Where page-table pages come from.
//!
//! A page table is all zero when its last entry is gone, so a freed one can
//! serve again without being zeroed. Whether it pays to keep such pages, and
//! where, is the question that the designs here answer in their own ways; see
//! docs/table-pages.md.
//!
//! | `ptepage=` | a table comes from | and goes to |
//! |---|---|---|
//! | `fresh` | the allocator, zeroed | the allocator, which forgets that it is zero |
//! | `noted` | the allocator, zeroed unless its record says that it is zero | the allocator, which notes it |
//! | `quicklist` | a list of this CPU, through the pages' first words | that list |
//! | `zeroaware` | the allocator's zero frames | those |
//! | `warm` | a stack of this CPU | it, and its coldest go to the allocator |
//! | `depot` | a stack of this CPU, else a batch of the node's depot | it, and its coldest go to the depot |
//!
//! None of them makes a table available before the translations through it
//! have been flushed (that is the gather's part) and its epoch has passed: until
//! then a walker without a lock may read it, and must not take the link of a
//! list for an entry.

pub use crate::sync::limbo::Chain;

use alloc::sync::Arc;

use super::Fresh;
use crate::addr::Pfn;
use crate::design::{Design, TableSource, UserTables};
use crate::frame::{AuditError, FreedTables, Keeper, OutOfMemory, PhysicalMemory, Site, TableZone};
use crate::platform::{Machine, Zone};
use crate::sync::Pin;

/// What a table is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Who asks.
    pub site: Site,
    /// Level of the table.
    pub level: u32,
    /// Where it may lie. High memory is asked for if there is some, only for tables of
    /// the lowest level, and low memory may be given all the same.
    pub zone: Zone,
    /// The entry that will be filled first. The table after this one will
    /// probably be wanted for the same: regular strides are what makes many
    /// tables in a row.
    pub entry: usize,
}

/// A source of zero-filled frames for page tables.
///
/// Sources keep tables of low memory only. One of high memory comes from the allocator
/// and goes back there: listing it would take a window each time, and zeroing is a
/// small part of what it costs to use.
///
/// As a [`Keeper`] it frees everything it keeps for the CPU.
pub trait TablePages<P: Machine>: Keeper<P> {
    /// A frame whose every byte is zero, in a zone that is wanted. Of the record, whatever it
    /// holds, all is for the caller to set ([`crate::frame::Frame::init_table`]).
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn take(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        wanted: Wanted,
    ) -> Result<Pfn, OutOfMemory>;

    /// Takes back a table that was never linked.
    ///
    /// # Safety
    /// The table came from [`TablePages::take`] of this source, nobody else has seen
    /// it, and all its entries are zero. The caller gives it up.
    unsafe fn give_back(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn, level: u32);

    /// Takes back tables that were unlinked and flushed. Walkers without a
    /// lock may still read them until their epoch has passed.
    ///
    /// # Safety
    /// The tables came from [`TablePages::take`] of this source, no entry leads to
    /// them, and all their entries are zero. The caller gives them up.
    unsafe fn retire(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, tables: Chain);

    /// For a CPU that idles: frees some of what is kept beyond the design's
    /// watermark. Returns how many tables were freed; 0 if nothing is left to do.
    fn trim(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) -> u32;

    /// What was done so far and is kept now. Approximate while CPUs are at work.
    fn stats(&self, memory: &PhysicalMemory<P>) -> TablePageStats;

    /// Checks every table kept or waiting for its epoch, and returns how many
    /// there are. All are frames of kind `Table`, and neither linked nor
    /// referenced. Nobody may be at work meanwhile.
    ///
    /// # Errors
    /// The first one that is not as it should be.
    fn audit(&self, memory: &PhysicalMemory<P>) -> Result<u64, AuditError>;
}

/// Counts of one source. Tables, unless it says bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TablePageStats {
    /// Handed out.
    pub taken: u64,
    /// Of those, handed out without zeroing.
    pub hits: u64,
    /// Bytes zeroed for the others.
    pub bytes_zeroed: u64,
    /// Given to the allocator by a CPU of another node than the frame's.
    pub remote_frees: u64,
    /// Given to the allocator because the source kept too many.
    pub trimmed: u64,
    /// Kept now, beside the allocator's free memory.
    pub held: u64,
    /// The sum over CPUs and depots of the most that each has kept.
    pub held_peak: u64,
    /// Kept now by CPUs of other nodes than the frames'.
    pub trapped: u64,
    /// Waiting now for their epoch, in the source.
    pub waiting: u64,
}

impl TablePageStats {
    /// The counts that every source has. A CPU at work may have counted a miss and not yet
    /// what it took.
    pub(crate) fn counted<P: Machine>(memory: &PhysicalMemory<P>) -> TablePageStats {
        let mut stats = TablePageStats::default();
        for counters in memory.all_table_counters() {
            stats.taken += counters.taken.get();
            stats.hits += counters.taken.get().saturating_sub(counters.misses.get());
            stats.bytes_zeroed += counters.bytes_zeroed.get();
            stats.remote_frees += counters.remote_frees.get();
            stats.trimmed += counters.trimmed.get();
        }
        stats
    }
}

/// The source that a design names, made known to the memory it works on.
pub fn source_of<P: Machine>(
    design: &Design,
    memory: &mut PhysicalMemory<P>,
) -> Arc<dyn TablePages<P>> {
    memory.set_freed_tables(match design.table_source {
        TableSource::Noted => FreedTables::Noted,
        TableSource::ZeroAware => FreedTables::KeptApart,
        _ => FreedTables::Plain,
    });
    memory.set_table_zone(match design.user_tables {
        UserTables::NoHigh => TableZone::Low,
        UserTables::High => TableZone::High,
        UserTables::Auto => TableZone::LowWhileFree,
    });
    #[cfg(feature = "published")]
    if let Some(source) = crate::published::table::source_of(design, memory) {
        memory.set_keeper(Arc::clone(&source) as Arc<dyn Keeper<P>>);
        return source;
    }
    Arc::new(Fresh)
}
