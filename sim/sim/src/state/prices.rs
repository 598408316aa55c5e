//! Prices of what a simulated CPU does beside fetching lines.

use vellum_description::{Description, Rate, Time, WorkKind};

/// Prices that are not those of lines, in picoseconds.
#[derive(Debug)]
pub(crate) struct Prices {
    pub(super) hit: u64,
    pub(super) update: u64,
    pub(super) work: u64,
    /// The same by kind of operation, hits included, where it is known.
    pub(super) work_of: [Option<u64>; WorkKind::ALL.len()],
    pub(super) store_buffer: usize,
    /// Time of a thread whose sibling is busy, in thousandths of its time alone.
    shared_time: u64,
    /// From memory, and from the core's caches.
    pub(super) zero: [f64; 2],
    pub(super) copy: [f64; 2],
    pub(super) node: f64,
    pub(super) send: u64,
    pub(super) arrive: u64,
    pub(super) handle: u64,
    pub(super) page: u64,
    pub(super) full: u64,
    pub(super) full_from: u64,
    pub(crate) trap: u64,
    pub(crate) syscall: u64,
    pub(super) sleep: u64,
    pub(super) wake: u64,
    pub(super) wake_latency: u64,
}

impl Prices {
    pub(super) fn new(machine: &Description) -> Prices {
        let Description {
            lines,
            bandwidth,
            processor,
            flush,
            system,
            ..
        } = machine;
        let shared = processor.shared_speed.as_ref();
        fn cached<'r>(rate: &'r Option<Rate>, memory: &'r Rate) -> &'r Rate {
            rate.as_ref().unwrap_or(memory)
        }
        Prices {
            hit: lines.hit.ps(),
            update: lines.update.ps(),
            work: processor.work.ps(),
            work_of: WorkKind::ALL.map(|kind| machine.work.of(kind).map(Time::ps)),
            store_buffer: processor.store_buffer.count as usize,
            shared_time: shared.map_or(1000, |speed| (1000.0 / speed.share).round() as u64),
            zero: [
                &bandwidth.zero,
                cached(&bandwidth.zero_cached, &bandwidth.zero),
            ]
            .map(|rate| rate.gb_per_s),
            copy: [
                &bandwidth.copy,
                cached(&bandwidth.copy_cached, &bandwidth.copy),
            ]
            .map(|rate| rate.gb_per_s),
            node: bandwidth.node.gb_per_s,
            send: flush.send.ps(),
            arrive: flush.arrive.ps(),
            handle: flush.handle.ps(),
            page: flush.page.ps(),
            full: flush.full.ps(),
            full_from: flush.full_from.count as u64,
            trap: system.trap.ps(),
            syscall: system.syscall.ps(),
            sleep: system.sleep.ps(),
            wake: system.wake.ps(),
            wake_latency: system.wake_latency.ps(),
        }
    }

    /// How long a CPU takes for what it computes in a time alone, when its core `is_shared` with the
    /// other thread or not.
    #[inline]
    pub(super) fn taken(&self, ps: u64, is_shared: bool) -> u64 {
        match is_shared {
            true => ps * self.shared_time / 1000,
            false => ps,
        }
    }

    /// Time to forget the translations of some pages, or of all.
    pub(super) fn invalidation(&self, pages: Option<u64>) -> u64 {
        match pages {
            Some(pages) if pages < self.full_from => pages * self.page,
            _ => self.full,
        }
    }
}

/// Time to move `bytes` at a rate.
pub(super) fn bulk(bytes: u64, gb_per_s: f64) -> u64 {
    (bytes as f64 * 1000.0 / gb_per_s).round() as u64
}
