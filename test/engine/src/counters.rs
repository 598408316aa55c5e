//! Counters and memory use by name.

use std::sync::atomic::Ordering;

use vellum::rmap::ReverseMap;
use vellum::table::{Format, Tables};
use vellum_machine::Machine;

use crate::core_counters::core_counters;
use crate::core_engine::CoreEngine;

impl<F: Format, R: ReverseMap> CoreEngine<F, R> {
    fn table_bytes(&self) -> u64 {
        // Those that a live space has from its beginning are not counted as made.
        let stats = self.vm.stats();
        // While CPUs are at work, some may have freed what was not yet counted as made.
        let events = &stats.events;
        let linked = events.tables_made.saturating_sub(events.tables_freed);
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
        let machine = self.machine().stats();
        let mut counters = core_counters(&self.vm.stats());
        counters.extend([
            ("flushes", machine.flush_requests),
            ("flushes of whole spaces", machine.flush_full),
            ("flushes with tables", machine.flush_tables),
            ("flushes of other CPUs", machine.flush_remote),
            ("windows to pages", machine.windows_opened),
            ("windows to page tables", machine.table_windows),
            (
                "windows to second page tables",
                machine.table_windows_nested,
            ),
            ("TLB hits", machine.tlb_hits),
            ("TLB misses", machine.tlb_misses),
        ]);
        if let Some(stats) = self.machine().store().compressed() {
            counters.extend([
                ("compressed: pages taken", stats.taken),
                ("compressed: same-filled pages", stats.taken_same),
                ("compressed: bytes for each other page", stats.bytes_each()),
                (
                    "compressed: pages that do not compress",
                    stats.incompressible,
                ),
                ("compressed: pages written back", stats.written_back),
                ("compressed: pages at the end", stats.pages),
                ("compressed: bytes used at the peak", stats.used_peak),
                ("compressed: bytes set aside", stats.limit),
            ]);
        }
        if let Ok(stats) = self.vm.group(self.names.group).stats() {
            counters.extend([
                ("group: pages at the end", stats.usage),
                ("group: pages at the peak", stats.peak),
                ("group: pages it may have", stats.limits.max),
                ("group: limit reached", stats.limit_hits),
                ("group: pages scanned", stats.scanned),
                ("group: pages reclaimed", stats.reclaimed),
                ("group: refaults", stats.refaults),
            ]);
        }
        if let Some(used) = self.machine().store().used() {
            counters.extend([
                ("device: pages read", used.pages_read),
                ("device: read requests", used.reads),
                ("device: pages written", used.pages_written),
                ("device: write requests", used.writes),
                ("device: ns of reads", used.read_ns),
                ("device: ns of writes", used.write_ns),
            ]);
        }
        counters
    }

    pub(crate) fn list_memory(&self) -> Vec<(&'static str, u64, u64)> {
        self.note_peaks();
        let stats = self.vm.stats();
        let used = stats.frames.used() << F::FRAME_SHIFT;
        let peak = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let arena = |stats: vellum::slab::ArenaStats| (stats.bytes, stats.peak_bytes);
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
