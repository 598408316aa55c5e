//! Physical memory as one object. What it does stands in files of its own:
//! handing out (`alloc`), taking back (`free`), giving back to the zones
//! (`give_back`), zero frames (`zeroed`), bytes (`content`).
//!
//! A single frame comes from and goes to the CPU's own list with plain loads
//! and stores. Only when that is empty or full is a zone's lock taken, and then
//! a batch of frames moves. Locks: at most one zone's at a time, and nothing
//! else is taken under it.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::commit::Commit;
use super::cpu::CpuFrames;
use super::dirty::DirtyPages;
use super::group::Groups;
use super::inject::Injection;
use super::keeper::{Keeper, KeepsFrames};
use super::policy::NodeSet;
use super::record::Frame;
use super::report::SetupError;
use super::request::FailAt;
use super::reservation::Reservations;
use super::site::Site;
use super::table::FrameTable;
use super::table_zone::{LowNeed, TableZone};
use super::zeroed::FreedTables;
use super::zones::{self, ZoneFrames, Zones};
use crate::addr::Pfn;
use crate::platform::{CpuId, IoError, Machine, NodeId, Platform, WindowSlot};
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::limbo::ChainLinks;
#[cfg(vellum_instrumented)]
use crate::sync::report::name;
use crate::sync::{CachePadded, Epochs, PerCpu, Pin, PinHost, SleepHost, SleepLock, Unpinned};

/// Retirements of one CPU after which it tries to move the epoch on, at least.
const ADVANCE_INTERVAL: u32 = 32;

/// All frames of a machine: who has them and who may get them.
pub struct PhysicalMemory<P: Machine> {
    pub(crate) platform: P,
    pub(crate) table: FrameTable,
    pub(crate) zones: Zones,
    pub(crate) cpus: PerCpu<CpuFrames>,
    pub(super) frame_shift: u32,
    pub(super) advance_interval: u32,
    pub(super) injection: Injection,
    pub(super) epochs: Epochs,
    /// Where page tables of the lowest level are taken from.
    pub(super) table_zone: TableZone,
    /// Whether others than tables lack low memory.
    pub(super) low_need: LowNeed,
    /// What is known of a freed page table.
    pub(super) freed_tables: FreedTables,
    /// Who keeps all free frames instead of the lists here, which are then empty.
    pub(crate) other_lists: Option<Box<dyn KeepsFrames<P>>>,
    /// Runs set aside, if the design does that.
    pub(super) reservations: Option<Box<Reservations>>,
    /// Who else keeps free frames.
    pub(super) keeper: Option<Arc<dyn Keeper<P>>>,
    /// For each node 1 if its reclaim has been woken and has not begun, if there is reclaim.
    pub(super) woken: Option<Box<[CachePadded<AtomicU32>]>>,
    /// How many pages of files are dirty, if somebody asks.
    pub(super) dirty: Option<Box<DirtyPages>>,
    /// Whether somebody counts them, these or the lists of published kernels.
    pub(crate) counts_dirty: bool,
    /// Who is charged for frames, if there are groups.
    pub(super) groups: Option<Arc<Groups>>,
    /// What has been promised, if somebody counts.
    pub(super) commit: Option<Box<Commit>>,
    /// For each node that a policy can name, pages in a row.
    pub(super) weights: Box<[AtomicU8]>,
    /// Frames that are out of use.
    pub(super) withdrawn: AtomicU64,
    /// Counts failures. A CPU that has not seen the last one gives its lists
    /// back the next time it takes a lock for them.
    pub(super) shortage: CachePadded<AtomicU32>,
    /// Frames that may wait for their epoch on a CPU before calls wait for them.
    pub(super) most_waiting: u32,
    /// Not 0 if more do on some CPU.
    pub(super) crowd: CachePadded<AtomicU32>,
}

impl<P: Machine> PinHost for PhysicalMemory<P> {
    #[inline]
    fn unpin(&self, cpu: CpuId) {
        self.platform.unpin(cpu);
    }

    #[inline]
    fn relax(&self, cpu: CpuId, spins: u32) {
        // First: a platform may wait for a change of what the caller loaded last.
        self.platform.relax(spins);
        if spins == 0 {
            self.cpus.of(cpu).counters.waits.bump();
        }
    }

    fn close_window(&self, cpu: CpuId, slot: WindowSlot) {
        self.end_window(cpu, slot);
    }
}

impl<P: Platform> SleepHost for PhysicalMemory<P> {
    type Platform = P;

    fn platform(&self) -> &P {
        &self.platform
    }

    fn pin(&self) -> Pin<'_> {
        self.pin()
    }
}

/// Page tables that are free or retired, by their frames.
impl<P: Machine> ChainLinks for PhysicalMemory<P> {
    const END: u32 = FrameTable::END;

    #[inline]
    fn next(&self, frame: u32) -> u32 {
        self.table.next(frame)
    }

    #[inline]
    fn set_next(&self, frame: u32, next: u32) {
        self.table.set_next(frame, next);
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// The lists of published kernels, where they are in use.
    #[inline]
    pub(super) fn other_lists(&self) -> Option<&dyn KeepsFrames<P>> {
        match P::PARTS.published {
            true => self.other_lists.as_deref(),
            false => None,
        }
    }

    /// The runs that are set aside, where any may be.
    #[inline]
    pub(super) fn reservations(&self) -> Option<&Reservations> {
        match P::PARTS.superpages {
            true => self.reservations.as_deref(),
            false => None,
        }
    }

    /// Names what lies in the memory's own parts.
    #[cfg(vellum_instrumented)]
    pub(crate) fn name_parts(&self) {
        self.epochs.name_parts();
        name("shortage", &[], &raw const self.shortage, 1);
    }

    /// Takes over the memory of a platform, every frame free. This and the
    /// other constructors are where the global allocator is used.
    ///
    /// # Errors
    /// What cannot be right about the platform's CPUs, nodes or memory map.
    pub fn new(platform: P) -> Result<Self, SetupError> {
        zones::check(&platform)?;
        let (table, zones) = zones::build(&platform)?;
        let cpus = zones::cpu_lists(&platform, &zones);
        let advance_interval = ADVANCE_INTERVAL.max(platform.cpus() as u32);
        let frames = zones.all.iter().map(|zone| zone.info.total).sum();
        Ok(PhysicalMemory {
            frame_shift: platform.frame_shift(),
            most_waiting: Self::share_of_waiting(frames, platform.cpus(), advance_interval),
            crowd: CachePadded(AtomicU32::new(0)),
            advance_interval,
            injection: Injection::new(),
            epochs: Epochs::new(platform.cpus()),
            table_zone: TableZone::Low,
            low_need: LowNeed::default(),
            freed_tables: FreedTables::Plain,
            other_lists: None,
            reservations: None,
            keeper: None,
            woken: None,
            dirty: None,
            counts_dirty: false,
            groups: None,
            commit: None,
            weights: Self::even_weights(&platform),
            withdrawn: AtomicU64::new(0),
            shortage: CachePadded(AtomicU32::new(0)),
            platform,
            table,
            zones,
            cpus,
        })
    }

    /// Each node that a policy can name gets a page in turn.
    fn even_weights(platform: &P) -> Box<[AtomicU8]> {
        let nodes = match P::PARTS.nodes {
            true => platform.nodes().min(usize::from(NodeSet::MOST)),
            false => 0,
        };
        (0..nodes).map(|_| AtomicU8::new(1)).collect()
    }

    /// The platform.
    #[inline]
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// The epochs that pins announce themselves in.
    #[cfg(any(test, feature = "published"))]
    #[inline]
    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Binds the caller to its CPU.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        let cpu = self.platform.pin();
        // SAFETY: the platform bound the caller to the CPU and to nobody else's
        // (condition 3 of `Machine`), until the pin calls `unpin`.
        unsafe { self.epochs.enter(self, cpu) }
    }

    /// The same, with something else announced under the pin's fence; see
    /// [`Epochs::enter_with`].
    #[inline]
    pub(crate) fn pin_with(&self, announce: impl FnOnce(CpuId)) -> Pin<'_> {
        let cpu = self.platform.pin();
        // SAFETY: as in `pin`.
        unsafe { self.epochs.enter_with(self, cpu, || announce(cpu)) }
    }

    /// The same, together with a try of a lock whose waiters sleep. Returns whether
    /// the lock was taken, which it is not under a nested pin.
    #[inline]
    pub(crate) fn pin_and_try(&self, lock: &SleepLock) -> (Pin<'_>, bool) {
        let cpu = self.platform.pin();
        let mut taken = false;
        // SAFETY: as in `pin`. The try is an atomic exchange.
        let pin = unsafe {
            self.epochs
                .enter_by_exchange(self, cpu, || taken = lock.try_lock())
        };
        (pin, taken)
    }

    /// [`PhysicalMemory::pin`] for a caller who may sleep, and cannot as long as the pin lives.
    #[inline]
    pub(crate) fn pin_by<'a>(&'a self, _unpinned: &'a Unpinned<'_>) -> Pin<'a> {
        self.pin()
    }

    /// [`PhysicalMemory::pin_and_try`], likewise.
    #[inline]
    pub(crate) fn pin_by_and_try<'a>(
        &'a self,
        _unpinned: &'a Unpinned<'_>,
        lock: &SleepLock,
    ) -> (Pin<'a>, bool) {
        self.pin_and_try(lock)
    }

    /// Whether a pin is this memory's. The CPU of another's may be one that somebody
    /// else is pinned to here, who then uses the same lists.
    #[inline]
    pub(crate) fn is_own_pin(&self, pin: &Pin<'_>) -> bool {
        pin.is_of(&self.epochs)
    }

    /// The record of a frame. Panics if `pfn` lies outside of the lowest to
    /// highest frame of the memory map; a hole's record is `Reserved`.
    #[inline]
    pub(crate) fn frame(&self, pfn: Pfn) -> &Frame {
        self.table.frame(pfn)
    }

    /// The records of consecutive frames, which lie one after the other. Panics as
    /// [`PhysicalMemory::frame`] does.
    #[inline]
    pub(crate) fn frames(&self, first: Pfn, count: u32) -> &[Frame] {
        self.table.frames(first, count)
    }

    /// The proof of a call that begins and may sleep, unless whoever calls the manager is pinned.
    pub(crate) fn unless_pinned(&self) -> Option<Unpinned<'_>> {
        (!self.pin().is_nested()).then(Unpinned::at_door)
    }

    /// Waits until every pin has ended that is there now. Whoever is pinned later sees what the
    /// caller stored before.
    ///
    /// # Panics
    /// If whoever calls the manager is pinned, and would wait for itself.
    pub(crate) fn wait_for_pins(&self, unpinned: Unpinned<'_>) {
        self.pin_by(&unpinned).assert_ends();
        self.epochs
            .wait_for_pins(unpinned, |spins| self.platform.relax(spins));
    }

    /// The platform, to be asked for what may sleep.
    ///
    /// # Errors
    /// [`IoError`] if whoever calls the manager is pinned.
    pub(crate) fn unpinned_platform<'a>(
        &'a self,
        unpinned: Unpinned<'a>,
    ) -> Result<&'a P, IoError> {
        match self.pin_by(&unpinned).is_nested() {
            true => Err(IoError),
            false => Ok(&self.platform),
        }
    }

    /// Whether the memory map has the frame.
    pub fn contains(&self, pfn: Pfn) -> bool {
        let map = self.platform.memory_map();
        let after = map.partition_point(|range| range.start <= pfn);
        after > 0 && pfn.0 - map[after - 1].start.0 < map[after - 1].frames
    }

    /// Frames of the memory map, holes not counted.
    pub fn frame_count(&self) -> usize {
        let frames = |zone: &ZoneFrames| zone.info.total as usize;
        self.zones.all.iter().map(frames).sum()
    }

    /// The node that a frame lies in.
    #[inline]
    pub(crate) fn node_of(&self, pfn: Pfn) -> NodeId {
        self.zones.get(self.frame(pfn).zone() as u16).info.node
    }

    /// Bytes in a frame.
    #[inline]
    pub fn frame_size(&self) -> usize {
        1 << self.frame_shift
    }

    /// Log2 of the bytes in a frame.
    #[inline]
    pub fn frame_shift(&self) -> u32 {
        self.frame_shift
    }

    /// Makes `keeper` give up its frames when memory is short, and when a CPU
    /// gives back its lists.
    #[cfg(feature = "published")]
    pub(crate) fn set_keeper(&mut self, keeper: Arc<dyn Keeper<P>>) {
        self.keeper = Some(keeper);
    }

    /// Whether a zone of the CPU's node is below its low watermark: time to
    /// reclaim.
    pub(crate) fn is_short(&self, pin: &Pin<'_>) -> bool {
        let cpu = self.cpus.get(pin);
        cpu.zones().iter().any(|lists| {
            lists.exist() && {
                let zone = self.zones.get(lists.zone);
                zone.published.free.load(Ordering::Relaxed) < zone.info.low
            }
        })
    }

    /// Whether no zone of low memory has more than its low watermark.
    #[cfg(feature = "published")]
    pub(crate) fn lacks_low(&self) -> bool {
        let mut low = self.zones.all.iter();
        low.all(|zone| {
            zone.info.zone != crate::platform::Zone::Low
                || zone.published.free.load(Ordering::Relaxed) <= zone.info.low
        })
    }

    /// Installs a planned failure and starts counting how often each site is
    /// reached, or removes the plan. A plan with `after: u32::MAX` only counts.
    pub fn inject(&self, plan: Option<FailAt>) {
        self.injection.set(plan);
    }

    /// Allocations at `site` since a plan was last installed.
    pub fn reached(&self, site: Site) -> u64 {
        self.injection.reached(site)
    }

    /// Counts an allocation at `site` under the plan, if there is one, and
    /// says whether it has to fail.
    #[inline]
    pub(crate) fn fail_now(&self, site: Site) -> bool {
        self.injection.fail_now(site)
    }
}
