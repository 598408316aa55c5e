//! What a space uses, and how much it may.
//!
//! Resident pages are counted without touching a line that the space's CPUs
//! share: each CPU keeps what it added since it loaded the space, and adds it
//! to the space when it loads another one. A question adds up both.

use crate::addr::{Prot, Vpn};
use crate::frame::NodePolicy;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Counter, Pin};
use crate::table::Format;

use super::locked::LockedSpace;
use super::manager::{Vm, VmCpu};
use super::region::{Traits, is_data};
use super::spaces::{Live, SpaceId};

/// Most that a space may have.
///
/// What counts is what is there after a call: what a mapping takes the place of makes room for it.
/// Each call that would leave more is refused
/// ([`MapError::Limit`](crate::space::MapError::Limit)), and has changed nothing; a call that leaves
/// no more than was there is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Pages of all regions together (Linux's `RLIMIT_AS`).
    pub pages: u64,
    /// Regions (Linux's `max_map_count`).
    /// [`Space::unmap`](crate::space::Space::unmap) needs one more for a hole in a region, and calls
    /// for a part of a region need some for the other parts (`protect`, `lock`, `unlock`, `remap`,
    /// and `advise` with [`Advice::Folio`](crate::space::Advice::Folio)), unless what changes then
    /// matches its neighbours. With `rmap=anon_vma` and `rmap=anon_vma_chain` private memory is
    /// relied upon to match its neighbours only if it has had private pages.
    pub regions: u32,
    /// Pages of all regions together that are private, can be written and do not grow down (Linux's
    /// `RLIMIT_DATA`).
    pub data_pages: u64,
    /// Pages a stack may grow to (`RLIMIT_STACK`).
    pub stack_pages: u64,
    /// Pages that stay free below a region that grows down (Linux's
    /// `stack_guard_gap`, 2017), so that an access past its end does not reach
    /// another mapping. Faults do not extend the region closer than this to a
    /// mapping that can be accessed and does not grow down itself; what is
    /// mapped without a fixed place, and the heap, keep away as far. 0 keeps
    /// nothing free.
    pub stack_gap_pages: u64,
    /// Pages of all locked regions together (Linux's `RLIMIT_MEMLOCK`).
    pub locked_pages: u64,
    /// Whether the space may have what is reserved for administrators
    /// ([`CommitLimits::admin_reserve`](crate::frame::CommitLimits::admin_reserve)).
    pub is_admin: bool,
}

impl Default for Limits {
    /// No limit on pages, data and locked pages, a million regions; 8 MiB of stack and a gap of 1 MiB
    /// below it, in 4 KiB pages, as on Linux.
    fn default() -> Self {
        Limits {
            pages: u64::MAX,
            regions: 1 << 20,
            data_pages: u64::MAX,
            stack_pages: 2048,
            stack_gap_pages: 256,
            locked_pages: u64::MAX,
            is_admin: false,
        }
    }
}

/// Resident pages by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rss {
    /// Private pages.
    pub anonymous: u64,
    /// Pages of files.
    pub file: u64,
    /// Pages of shared memory.
    pub shared_memory: u64,
    /// Entries that show the shared zero page: no memory of their own.
    pub zero: u64,
}

impl Rss {
    /// Resident pages that take memory.
    pub fn total(&self) -> u64 {
        self.anonymous + self.file + self.shared_memory
    }
}

/// What a space uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SpaceStats {
    /// Resident pages.
    pub rss: Rss,
    /// Entries of pages that are in swap.
    pub swapped: u64,
    /// Pages of all regions together.
    pub pages: u64,
    /// Pages of all locked regions together, in memory or not.
    pub locked: u64,
    /// Pages of all regions together that [`Limits::data_pages`] is for.
    pub data: u64,
    /// Pages that are charged with `commit=`, of private memory.
    pub committed: u64,
    /// Regions.
    pub regions: u32,
    /// Bytes of page tables, the root included.
    pub table_bytes: u64,
    /// Tasks that use the space.
    pub users: u32,
    /// On which nodes pages come to lie that no other policy is about, if it was said
    /// ([`Space::set_node_policy`](crate::space::Space::set_node_policy)).
    pub node_policy: Option<NodePolicy>,
}

/// Which count an entry belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::space) enum Resident {
    Anonymous,
    File,
    SharedMemory,
    Zero,
    Table,
    Swap,
}

const KINDS: usize = 6;

/// Counts of a space.
#[derive(Debug, Default)]
pub(in crate::space) struct Account {
    resident: [AtomicU64; KINDS],
    /// Of the regions; without those in tracts of the space, unless all their locks are held.
    pub(in crate::space) counts: RegionCounts,
}

/// What may still come.
#[derive(Clone, Copy)]
pub(in crate::space) struct Left {
    pub(in crate::space) pages: u64,
    pub(in crate::space) regions: u64,
    /// Pages of data.
    pub(in crate::space) data: u64,
}

impl Left {
    /// One of so many equal parts.
    pub(in crate::space) fn part(self, parts: u64) -> Left {
        Left {
            pages: self.pages / parts,
            regions: self.regions / parts,
            data: self.data / parts,
        }
    }
}

/// Counts of regions, changed under the lock that guards these. As those of a tract they are
/// changes, which may wrap below zero.
#[derive(Debug, Default)]
pub(in crate::space) struct RegionCounts {
    pub(in crate::space) pages: Counter,
    pub(in crate::space) regions: Counter,
    /// Locked pages; read by reclaim without the lock. No tract counts any that come.
    pub(in crate::space) locked: Counter,
    /// Data ([`RegionView::is_data`](super::region::RegionView::is_data)).
    pub(in crate::space) data: Counter,
    /// Pages of regions with [`Traits::COMMITTED`].
    pub(in crate::space) committed: Counter,
    /// Pages that are charged for them: as many, but while a call is at work.
    pub(in crate::space) charged: Counter,
    /// Pages that the space's group is charged for as records of the regions.
    pub(in crate::space) records: Counter,
}

impl RegionCounts {
    pub(in crate::space) fn reset(&self) {
        self.move_to(&RegionCounts::default());
    }

    /// Counts pages that a region with these rights and traits got (or, wrapping, lost).
    pub(in crate::space) fn count_pages(&self, (prot, traits): (Prot, Traits), pages: u64) {
        self.pages.add(pages);
        if is_data(prot, traits) {
            self.data.add(pages);
        }
        if traits.has(Traits::COMMITTED) {
            self.committed.add(pages);
        }
        if traits.has(Traits::LOCKED) {
            self.locked.add(pages);
        }
    }

    /// Moves them all to `other`.
    pub(in crate::space) fn move_to(&self, other: &RegionCounts) {
        other.pages.add(self.pages.take());
        other.regions.add(self.regions.take());
        other.locked.add(self.locked.take());
        other.data.add(self.data.take());
        other.committed.add(self.committed.take());
        other.charged.add(self.charged.take());
        other.records.add(self.records.take());
    }
}

/// What one CPU added to the space it has loaded.
#[derive(Debug, Default)]
pub(in crate::space) struct Delta {
    /// Key of the loaded space, or 0.
    pub(in crate::space) space: AtomicU64,
    resident: [Counter; KINDS],
}

impl Account {
    pub(in crate::space) fn reset(&self, table_pages: u64) {
        for count in &self.resident {
            count.store(0, Ordering::Relaxed);
        }
        self.resident[Resident::Table as usize].store(table_pages, Ordering::Relaxed);
        self.counts.reset();
    }

    fn add(&self, kind: Resident, count: u64) {
        self.resident[kind as usize].fetch_add(count, Ordering::Relaxed);
    }
}

impl VmCpu {
    /// Counts entries of `space` made (or, wrapping, unmade) on this CPU.
    #[inline]
    pub(in crate::space) fn count_resident<R: ReverseMap>(
        &self,
        space: Live<'_, R>,
        kind: Resident,
        count: u64,
    ) {
        if self.delta.space.load(Ordering::Relaxed) == space.key() {
            self.count_loaded(kind, count);
        } else {
            space.account.add(kind, count);
        }
    }

    /// The same for the space that this CPU has loaded.
    #[inline]
    pub(in crate::space) fn count_loaded(&self, kind: Resident, count: u64) {
        self.delta.resident[kind as usize].add(count);
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`VmCpu::count_resident`] on the CPU of the caller.
    #[inline]
    pub(in crate::space) fn count_resident(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        kind: Resident,
        count: u64,
    ) {
        self.cpus.get(pin).count_resident(space, kind, count);
    }

    /// Moves what this CPU counted for its loaded space into the space.
    pub(in crate::space) fn settle(&self, pin: &Pin<'_>) {
        let delta = &self.cpus.get(pin).delta;
        let key = delta.space.load(Ordering::Relaxed);
        if key == 0 {
            return;
        }
        let space = self.live_at(key as u32);
        for (kind, count) in delta.resident.iter().enumerate() {
            let count = count.take();
            if count != 0 && space.key() == key {
                space.account.resident[kind].fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Sum of one count over the space and the CPUs that have it loaded.
    fn resident(&self, space: Live<'_, R>, kind: Resident) -> u64 {
        let settled = space.account.resident[kind as usize].load(Ordering::Relaxed);
        self.cpus
            .iter()
            .filter(|cpu| cpu.delta.space.load(Ordering::Relaxed) == space.key())
            .fold(settled, |sum, cpu| {
                sum.wrapping_add(cpu.delta.resident[kind as usize].get())
            })
    }

    /// [`Space::stats`](crate::space::Space::stats).
    pub(crate) fn space_stats(&self, id: SpaceId) -> Option<SpaceStats> {
        let space = self.find_space(id)?;
        let count = |kind| self.resident(space, kind);
        let regions = self.region_counts(space);
        Some(SpaceStats {
            rss: Rss {
                anonymous: count(Resident::Anonymous),
                file: count(Resident::File),
                shared_memory: count(Resident::SharedMemory),
                zero: count(Resident::Zero),
            },
            swapped: count(Resident::Swap),
            pages: regions.pages.get(),
            locked: regions.locked.get(),
            data: regions.data.get(),
            committed: regions.committed.get(),
            regions: regions.regions.get() as u32,
            table_bytes: count(Resident::Table) << F::FRAME_SHIFT,
            users: space.users(),
            node_policy: space.policy().policy(),
        })
    }

    /// Counts of the regions of a space and its tracts. Exact while nobody changes any.
    pub(in crate::space) fn region_counts(&self, space: Live<'_, R>) -> RegionCounts {
        let sum = RegionCounts::default();
        let add = |counts: &RegionCounts| {
            sum.pages.add(counts.pages.get());
            sum.regions.add(counts.regions.get());
            sum.locked.add(counts.locked.get());
            sum.data.add(counts.data.get());
            sum.committed.add(counts.committed.get());
            sum.charged.add(counts.charged.get());
            sum.records.add(counts.records.get());
        };
        add(&space.account.counts);
        if space.is_divided() {
            let _pin = self.pin();
            let mut page = Vpn(0);
            while let Some(tract) = self.find_tract(space, page) {
                add(&tract.guarded.counts);
                page = tract.range().end;
            }
        }
        sum
    }

    /// What a space in no tracts may still get.
    pub(in crate::space) fn left(space: Live<'_, R>) -> Left {
        let limits = space.limits.get();
        let counts = &space.get().account.counts;
        let regions = u64::from(limits.regions);
        Left {
            pages: limits.pages.saturating_sub(counts.pages.get()),
            regions: regions.saturating_sub(counts.regions.get()),
            data: limits.data_pages.saturating_sub(counts.data.get()),
        }
    }

    /// Locked pages that it may still get.
    pub(in crate::space) fn left_to_lock(space: LockedSpace<'_, R>) -> u64 {
        let most = space.limits.get().locked_pages;
        most.saturating_sub(space.account.counts.locked.get())
    }

    /// Which count a mapped page of an object belongs to.
    pub(in crate::space) fn cache_kind(&self, object: u32) -> Resident {
        match self.objects.get(object).is_file() {
            true => Resident::File,
            false => Resident::SharedMemory,
        }
    }
}

/// Limits as the space keeps them.
#[derive(Debug)]
pub(in crate::space) struct LimitWords {
    pages: AtomicU64,
    regions: AtomicU32,
    /// 0 or 1.
    is_admin: AtomicU32,
    data_pages: AtomicU64,
    stack_pages: AtomicU64,
    stack_gap_pages: AtomicU64,
    locked_pages: AtomicU64,
}

impl Default for LimitWords {
    fn default() -> Self {
        let limits = Limits::default();
        LimitWords {
            pages: AtomicU64::new(limits.pages),
            regions: AtomicU32::new(limits.regions),
            is_admin: AtomicU32::new(limits.is_admin.into()),
            data_pages: AtomicU64::new(limits.data_pages),
            stack_pages: AtomicU64::new(limits.stack_pages),
            stack_gap_pages: AtomicU64::new(limits.stack_gap_pages),
            locked_pages: AtomicU64::new(limits.locked_pages),
        }
    }
}

impl LimitWords {
    pub(in crate::space) fn set(&self, limits: Limits) {
        self.pages.store(limits.pages, Ordering::Relaxed);
        self.regions.store(limits.regions, Ordering::Relaxed);
        self.is_admin
            .store(limits.is_admin.into(), Ordering::Relaxed);
        self.data_pages.store(limits.data_pages, Ordering::Relaxed);
        self.stack_pages
            .store(limits.stack_pages, Ordering::Relaxed);
        self.stack_gap_pages
            .store(limits.stack_gap_pages, Ordering::Relaxed);
        self.locked_pages
            .store(limits.locked_pages, Ordering::Relaxed);
    }

    pub(in crate::space) fn get(&self) -> Limits {
        Limits {
            pages: self.pages.load(Ordering::Relaxed),
            regions: self.regions.load(Ordering::Relaxed),
            is_admin: self.is_admin.load(Ordering::Relaxed) != 0,
            data_pages: self.data_pages.load(Ordering::Relaxed),
            stack_pages: self.stack_pages.load(Ordering::Relaxed),
            stack_gap_pages: self.stack_gap_pages.load(Ordering::Relaxed),
            locked_pages: self.locked_pages.load(Ordering::Relaxed),
        }
    }
}
