//! What the core counts, by name.
//!
//! `vellum-scale` compiles this file once more.

use vellum::vm::Stats;

/// The counters of a core, in a fixed order.
pub(crate) fn core_counters(stats: &Stats) -> Vec<(&'static str, u64)> {
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
        ("tables moved", events.tables_moved),
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
        ("rmap locks contended", rmap.contended),
        ("rmap locks parked for", rmap.parked),
        ("rmap waiters woken in vain", rmap.woken_in_vain),
        ("rmap entries taken back", rmap.reclaimed),
        ("rmap flush queue restarts", rmap.flush_queue_restarts),
        ("rmap waits for flushes", rmap.flush_waits),
        ("waits for another CPU", frames.waits),
        ("frame allocations", frames.allocs),
        ("frame frees", frames.frees),
        ("bytes zeroed", frames.bytes_zeroed),
        ("bytes zeroed in idle time", frames.idle_bytes_zeroed),
        ("zero frames handed out", frames.zero_hits),
        ("bytes copied", frames.bytes_copied),
    ]
}
