//! Statistics: events, memory, and how frames are shared.

use crate::addr::Pfn;
use crate::frame::{Commit, CommitStats, FrameStats};
use crate::platform::Platform;
use crate::reclaim::ReclaimStats;
use crate::rmap::{ReverseMap, RmapStats};
use crate::slab::ArenaStats;
use crate::space::Vm;
use crate::table::{Format, TablePageStats};

/// Events since the manager was made, summed over CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct EventStats {
    /// Faults that found a region.
    pub faults: u64,
    /// Faults that found nothing to do.
    pub spurious_faults: u64,
    /// Times a fault found its region changing and started over.
    pub fault_retries: u64,
    /// Entries made that show the shared zero page.
    pub zero_maps: u64,
    /// Private pages made of zeroes.
    pub zero_fills: u64,
    /// Pages of objects mapped by the fault that asked for them.
    pub file_maps: u64,
    /// Pages of objects mapped around such a fault.
    pub around_maps: u64,
    /// Private pages made by copying.
    pub cow_copies: u64,
    /// Write-protected private pages that needed no copy.
    pub cow_reuses: u64,
    /// Page tables linked, or kept for superpages to be split into.
    pub tables_made: u64,
    /// Of these, those unlinked or not kept any more.
    pub tables_freed: u64,
    /// Page tables moved from low to high memory, because others needed the low.
    pub tables_moved: u64,
    /// Forks.
    pub forks: u64,
    /// Entries that forks copied.
    pub fork_entries: u64,
    /// Calls that mapped memory.
    pub maps: u64,
    /// Calls that unmapped memory.
    pub unmaps: u64,
    /// Entries cleared.
    pub zapped_entries: u64,
    /// Spaces that ended.
    pub exits: u64,
    /// Pages read from backing stores.
    pub page_reads: u64,
    /// Pages written to backing stores.
    pub page_writes: u64,
    /// Objects that ended with pages their backing store did not take.
    pub lost_objects: u64,
    /// Pages whose entries were looked up by a scan, or by reclaim, which asks first whether a page
    /// is used and once more when it leaves.
    pub lookups: u64,
    /// Entries that these lookups found.
    pub lookup_hits: u64,
    /// Places they looked at that did not map the page.
    pub lookup_misses: u64,
    /// Locks that were not free for them.
    pub lookup_retries: u64,
    /// Superpages mapped at the first use of their range.
    pub superpage_maps: u64,
    /// Times there was no run of frames, or no table, for one.
    pub superpage_failures: u64,
    /// Superpage mappings that were split into single pages.
    pub superpage_demotions: u64,
    /// Superpages made of single pages that were in use.
    pub superpage_collapses: u64,
    /// Superpages that took the place of single pages as those lay.
    pub superpage_promotions: u64,
    /// Runs of frames set aside for a range.
    pub reservations: u64,
    /// Folios mapped by a first store.
    pub folio_maps: u64,
    /// Pages of these folios.
    pub folio_pages: u64,
    /// Times there was no run of frames of any size for a folio, or no memory to map it.
    pub folio_failures: u64,
    /// Contiguous runs whose entries were made with the hint.
    pub contiguous_runs: u64,
    /// Those that lost the hint before they were unmapped whole.
    pub contiguous_ends: u64,
    /// Pages mapped that were in swap.
    pub swap_ins: u64,
}

/// The arenas of the manager's own nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Address spaces.
    pub spaces: ArenaStats,
    /// Regions.
    pub regions: ArenaStats,
    /// Nodes of the trees of regions.
    pub region_nodes: ArenaStats,
    /// Tracts of spaces that many CPUs change at once.
    pub tracts: ArenaStats,
    /// Objects.
    pub objects: ArenaStats,
    /// Nodes of page caches.
    pub radix_nodes: ArenaStats,
    /// Further sets of regions, of objects that many map.
    pub region_sets: ArenaStats,
    /// Mounts of files in memory.
    pub mounts: ArenaStats,
}

/// All statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Events.
    pub events: EventStats,
    /// Frames.
    pub frames: FrameStats,
    /// The reverse-mapping design.
    pub rmap: RmapStats,
    /// The manager's own nodes.
    pub memory: MemoryStats,
    /// The source of page tables.
    pub tables: TablePageStats,
    /// What reclaim has done.
    pub reclaim: ReclaimStats,
    /// What has been promised; all 0 with `commit=off`.
    pub commit: CommitStats,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// All statistics. Approximate while CPUs are at work.
    pub fn stats(&self) -> Stats {
        Stats {
            events: self.event_stats(),
            frames: self.memory.stats(),
            rmap: self.rmap.stats(),
            memory: MemoryStats {
                spaces: self.spaces.stats(),
                regions: self.regions.stats(),
                region_nodes: self.region_nodes.stats(),
                tracts: self.tracts.items.stats(),
                objects: self.objects.arena().stats(),
                radix_nodes: self.objects.nodes().stats(),
                region_sets: self.objects.region_sets().stats(),
                mounts: self.objects.mounts().stats(),
            },
            tables: self.table_pages.stats(&self.memory),
            reclaim: self.reclaim_stats(),
            commit: self
                .memory
                .commit()
                .map_or_else(Default::default, Commit::stats),
        }
    }

    /// Calls `each` for every frame of the memory map.
    pub(crate) fn for_each_frame(&self, mut each: impl FnMut(Pfn)) {
        for range in self.memory.platform().memory_map() {
            for step in 0..range.frames {
                each(range.start.offset(step));
            }
        }
    }
}
