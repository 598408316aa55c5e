//! Counters and memory use by name.

use std::sync::atomic::Ordering;

use vellum::rmap::ReverseMap;
use vellum::table::{Format, Tables};
use vellum_machine::Machine;

use crate::core_engine::CoreEngine;

impl<F: Format, R: ReverseMap> CoreEngine<F, R> {
    fn table_bytes(&self) -> u64 {
        // Those that a live space has from its beginning are not counted as made.
        let stats = self.vm.stats();
        let linked = stats.events.tables_made - stats.events.tables_freed;
        let roots = stats.memory.spaces.live * u64::from(Tables::<Machine, F>::ROOT_TABLES);
        (linked + roots) << F::FRAME_SHIFT
    }

    /// Takes the present memory use for the peak, if it is.
    pub(crate) fn note_peaks(&self) {
        let used = self.vm.memory().stats().used() << F::FRAME_SHIFT;
        self.peaks.frames.fetch_max(used, Ordering::Relaxed);
        self.peaks
            .tables
            .fetch_max(self.table_bytes(), Ordering::Relaxed);
    }

    pub(crate) fn list_counters(&self) -> Vec<(&'static str, u64)> {
        let stats = self.vm.stats();
        let machine = self.machine().stats();
        let (events, rmap, frames) = (stats.events, stats.rmap, stats.frames);
        vec![
            ("faults", events.faults),
            ("spurious faults", events.spurious_faults),
            ("fault retries", events.fault_retries),
            ("zero-page maps", events.zero_maps),
            ("zero fills", events.zero_fills),
            ("file maps", events.file_maps),
            ("fault-around maps", events.around_maps),
            ("copies on write", events.cow_copies),
            ("exclusive reuses", events.cow_reuses),
            ("tables made", events.tables_made),
            ("tables freed", events.tables_freed),
            ("table pages taken", stats.tables.taken),
            ("table pages not zeroed", stats.tables.hits),
            ("bytes zeroed for tables", stats.tables.bytes_zeroed),
            ("table pages freed remotely", stats.tables.remote_frees),
            ("table pages trimmed", stats.tables.trimmed),
            ("table pages trapped", stats.tables.trapped),
            ("forks", events.forks),
            ("entries copied by fork", events.fork_entries),
            ("maps", events.maps),
            ("unmaps", events.unmaps),
            ("entries cleared", events.zapped_entries),
            ("exits", events.exits),
            ("pages read", events.page_reads),
            ("pages written", events.page_writes),
            ("pages looked up", events.lookups),
            ("lookup hits", events.lookup_hits),
            ("lookup false probes", events.lookup_misses),
            ("lookup lock failures", events.lookup_retries),
            ("rmap adds", rmap.adds),
            ("rmap duplicates", rmap.duplicates),
            ("rmap removes", rmap.removes),
            ("rmap moves", rmap.moves),
            ("rmap turns", rmap.turns),
            ("rmap node allocations", rmap.node_allocs),
            ("rmap node frees", rmap.node_frees),
            ("rmap nodes searched", rmap.nodes_searched),
            ("rmap locks", rmap.locks),
            ("waits for another CPU", frames.waits),
            ("frame allocations", frames.allocs),
            ("frame frees", frames.frees),
            ("bytes zeroed", frames.bytes_zeroed),
            ("bytes zeroed in idle time", frames.idle_bytes_zeroed),
            ("zero frames handed out", frames.zero_hits),
            ("bytes copied", frames.bytes_copied),
            ("flushes", machine.flush_requests),
            ("flushes of whole spaces", machine.flush_full),
            ("flushes with tables", machine.flush_tables),
            ("flushes of other CPUs", machine.flush_remote),
            ("windows opened", machine.windows_opened),
            ("TLB hits", machine.tlb_hits),
            ("TLB misses", machine.tlb_misses),
        ]
    }

    pub(crate) fn list_memory(&self) -> Vec<(&'static str, u64, u64)> {
        self.note_peaks();
        let stats = self.vm.stats();
        let used = stats.frames.used() << F::FRAME_SHIFT;
        let peak = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let arena = |stats: vellum::slab::ArenaStats| (stats.bytes, stats.bytes);
        let (spaces, regions) = (arena(stats.memory.spaces), arena(stats.memory.regions));
        let region_nodes = arena(stats.memory.region_nodes);
        let (objects, nodes) = (arena(stats.memory.objects), arena(stats.memory.radix_nodes));
        vec![
            ("all frames", used, peak(&self.peaks.frames)),
            ("page tables", self.table_bytes(), peak(&self.peaks.tables)),
            (
                "free table pages kept",
                stats.tables.held << F::FRAME_SHIFT,
                stats.tables.held_peak << F::FRAME_SHIFT,
            ),
            ("rmap nodes", stats.rmap.bytes, stats.rmap.peak_bytes),
            ("space arena", spaces.0, spaces.1),
            ("region arena", regions.0, regions.1),
            ("region-tree arena", region_nodes.0, region_nodes.1),
            ("object arena", objects.0, objects.1),
            ("cache-tree arena", nodes.0, nodes.1),
        ]
    }
}
