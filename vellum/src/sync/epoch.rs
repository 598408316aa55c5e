//! Pins and epochs: proof of being on a CPU, and of what nobody can still see.
//!
//! A pinned CPU announces the epoch it entered in. The epoch moves on only
//! when every pinned CPU has announced the present one, so whatever was
//! unlinked in epoch `e` is invisible to everybody from epoch `e + 2` on.
//! Readers write one line, their own.
//!
//! # Whose a pin is
//! A [`Pin`] is made by [`Epochs::enter`], which is unsafe: whoever calls it has
//! bound the CPU. Safe code gets pins from a manager, which asks its
//! [`Platform`](crate::platform::Platform), whose implementation promises that a
//! CPU has one caller at a time. Two managers may number their CPUs alike, so a
//! pin also says whose it is, [`Pin::is_of`]; layers that take pins from outside
//! ask. A pin stays with its thread:
//!
//! ```
//! use vellum::sync::Pin;
//! fn tell(pin: Pin<'_>) {
//!     let cpu = pin.cpu();
//!     std::thread::scope(|scope| { scope.spawn(move || println!("{cpu:?}")); });
//! }
//! ```
//! ```compile_fail,E0277
//! use vellum::sync::Pin;
//! fn tell(pin: Pin<'_>) {
//!     let cpu = pin;
//!     std::thread::scope(|scope| { scope.spawn(move || println!("{:?}", cpu.cpu())); });
//! }
//! ```
//!
//! A CPU announces one epoch for all pins that are nested there, and counts
//! them, because the outer one may end before those taken inside it.

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::atomic::{AtomicBool, AtomicU64, Ordering, fence, fence_after_exchange, spin_hint};
use super::bytes::prefetch;
use super::percpu::CachePadded;
use super::queue::Queues;
use super::report::name;
use super::turns::Turns;
use super::unpinned::Unpinned;
use crate::platform::{CpuId, WindowSlot};

/// What a pin asks of the platform. Implemented once, by the manager, for every platform.
pub trait PinHost {
    /// The platform's `unpin`.
    fn unpin(&self, cpu: CpuId);
    /// The platform's `relax`, by a caller pinned to `cpu`.
    fn relax(&self, cpu: CpuId, spins: u32);
    /// The platform's `close_window`, by a caller pinned to `cpu` who has opened it. Hosts
    /// that open none are not asked.
    fn close_window(&self, cpu: CpuId, slot: WindowSlot) {
        let _ = (cpu, slot);
    }
}

/// When something was unlinked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EpochStamp(pub(crate) u64);

/// Bits of an announcement that count the pins of its CPU. A thread that does
/// nothing but take pins and leak them fills them in some years at the earliest.
/// The bits left for the epoch suffice to tell whether it is the present one: a
/// pinned CPU lets the epoch move on once at most.
const DEPTH_BITS: u32 = 56;

/// Announcements that are on their way while others are looked at.
const AHEAD: usize = 16;

/// The announcement of a CPU with one pin, taken in `epoch`.
#[inline]
const fn announcement(epoch: u64) -> u64 {
    epoch << DEPTH_BITS | 1
}

/// The number of pins in an announcement; 0 if the CPU is not pinned.
#[inline]
const fn depth(announced: u64) -> u64 {
    announced & ((1 << DEPTH_BITS) - 1)
}

/// Whether two announcements are of one epoch.
#[inline]
const fn same_epoch(one: u64, other: u64) -> bool {
    (one ^ other) >> DEPTH_BITS == 0
}

/// The epoch and every CPU's announcement of it.
pub struct Epochs {
    now: CachePadded<AtomicU64>,
    /// Whether a pinned CPU is at moving the epoch on. Not in here, where it would push what every
    /// fault reads of the memory it belongs to onto other lines.
    advancing: Box<CachePadded<AtomicBool>>,
    /// For each CPU, its number of pins and, if it has one, their epoch.
    announced: Box<[CachePadded<AtomicU64>]>,
    /// Where CPUs wait for spin locks.
    queues: Queues,
    /// Where they wait to change words that many change.
    turns: Turns,
    /// How many spin locks each CPU holds.
    #[cfg(debug_assertions)]
    held: Box<[super::held::HeldLocks]>,
}

impl Epochs {
    /// Epochs for `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        let announced = (0..cpus).map(|_| CachePadded(AtomicU64::new(0)));
        let announced: Box<[CachePadded<AtomicU64>]> = announced.collect();
        name("Epochs.announced", &[], announced.as_ptr(), cpus);
        // Loom would try every order of the steps of queues around every lock.
        let in_queues = if cfg!(vellum_loom) { 0 } else { cpus };
        Epochs {
            now: CachePadded(AtomicU64::new(2)),
            advancing: Box::new(CachePadded(AtomicBool::new(false))),
            announced,
            queues: Queues::new("nodes of spinners", in_queues),
            turns: Turns::new(in_queues),
            #[cfg(debug_assertions)]
            held: (0..cpus).map(|_| Default::default()).collect(),
        }
    }

    /// Names the epoch itself.
    #[cfg(vellum_instrumented)]
    pub(crate) fn name_parts(&self) {
        name("Epochs.now", &[], &raw const self.now, 1);
        name("Epochs.advancing", &[], &raw const *self.advancing, 1);
    }

    /// Announces `cpu`, which the caller has pinned through `host`, and returns
    /// the proof. Nested pins keep the announced epoch.
    ///
    /// # Panics
    /// If `cpu` is none of those the epochs were made for.
    ///
    /// # Safety
    /// The caller is bound to `cpu` until the pin calls `host.unpin`, once, when
    /// it is dropped. Until then nobody else is bound to it, in these epochs.
    ///
    /// ```
    /// use vellum::platform::CpuId;
    /// use vellum::sync::{Epochs, PinHost};
    /// fn pin(epochs: &Epochs, host: &dyn PinHost) {
    ///     // SAFETY: the caller's thread is the only one, and has one CPU.
    ///     unsafe { epochs.enter(host, CpuId(0)) };
    /// }
    /// ```
    /// ```compile_fail,E0133
    /// use vellum::platform::CpuId;
    /// use vellum::sync::{Epochs, PinHost};
    /// fn pin(epochs: &Epochs, host: &dyn PinHost) {
    ///     // SAFETY: the caller's thread is the only one, and has one CPU.
    ///     epochs.enter(host, CpuId(0));
    /// }
    /// ```
    #[inline]
    pub unsafe fn enter<'a>(&'a self, host: &'a dyn PinHost, cpu: CpuId) -> Pin<'a> {
        // SAFETY: the caller's promise.
        unsafe { self.enter_with(host, cpu, || ()) }
    }

    /// The same, with something else announced under the same fence, unless
    /// the pin is nested: then `announce` is not called.
    ///
    /// # Safety
    /// As for [`Epochs::enter`].
    #[inline]
    pub(crate) unsafe fn enter_with<'a>(
        &'a self,
        host: &'a dyn PinHost,
        cpu: CpuId,
        announce: impl FnOnce(),
    ) -> Pin<'a> {
        let announce_all = || {
            announce();
            // Orders the announcements before every read of the pinned section:
            // `try_advance` has the matching fence between its unlinks and its
            // scan of the announcements.
            fence(Ordering::SeqCst);
        };
        // SAFETY: the caller's promise.
        unsafe { self.enter_then(host, cpu, announce_all) }
    }

    /// The same with an atomic exchange, that of a lock taken together with the pin,
    /// in the place of the fence. `exchange` is not called if the pin is nested.
    ///
    /// # Safety
    /// As for [`Epochs::enter`]. The last access to memory that `exchange` makes is
    /// an atomic exchange.
    #[inline]
    pub(crate) unsafe fn enter_by_exchange<'a>(
        &'a self,
        host: &'a dyn PinHost,
        cpu: CpuId,
        exchange: impl FnOnce(),
    ) -> Pin<'a> {
        let announce_all = || {
            exchange();
            // As in `enter_with`.
            fence_after_exchange();
        };
        // SAFETY: the caller's promise.
        unsafe { self.enter_then(host, cpu, announce_all) }
    }

    /// Announces `cpu`, and does `fence` after it unless the pin is nested.
    ///
    /// # Safety
    /// As for [`Epochs::enter`]. `fence` ends with a full fence.
    #[inline]
    unsafe fn enter_then<'a>(
        &'a self,
        host: &'a dyn PinHost,
        cpu: CpuId,
        fence: impl FnOnce(),
    ) -> Pin<'a> {
        let slot = &self.announced[cpu.0 as usize].0;
        let announced = slot.load(Ordering::Relaxed);
        if depth(announced) == 0 {
            let now = self.now.load(Ordering::Relaxed);
            // Release: a CPU that reads this value may never have read the one
            // that ended the pin before. It must still see that pin's reads as done.
            slot.store(announcement(now), Ordering::Release);
            fence();
        } else {
            // Release for the same reason.
            slot.store(announced + 1, Ordering::Release);
        }
        Pin {
            cpu,
            announced: slot,
            host,
            epochs: self,
            not_send: PhantomData,
        }
    }

    /// The stamp of what is unlinked now.
    #[inline]
    pub fn stamp(&self) -> EpochStamp {
        // The unlinking stores must be visible before the epoch is read, so
        // that a reader of a later epoch cannot have missed them.
        fence(Ordering::SeqCst);
        EpochStamp(self.now.load(Ordering::Relaxed))
    }

    /// Whether nobody can still see what was unlinked at `stamp`.
    #[inline]
    pub fn passed(&self, stamp: EpochStamp) -> bool {
        self.now.load(Ordering::Acquire) >= stamp.0 + 2
    }

    /// [`Epochs::try_advance`] by a pinned CPU, unless another is at it. To look at what every CPU
    /// has announced takes long where there are many, the longer the more do so at once.
    ///
    /// Nobody waits longer for this: a pinned CPU that stops in the middle would keep the epoch
    /// from moving on all the same.
    pub(crate) fn try_advance_alone(&self, pin: &Pin<'_>) -> bool {
        debug_assert!(pin.is_of(self), "a pin of other epochs");
        let advancing = &self.advancing.0;
        if advancing.load(Ordering::Relaxed) || advancing.swap(true, Ordering::Acquire) {
            return false;
        }
        let has_moved = self.try_advance();
        advancing.store(false, Ordering::Release);
        has_moved
    }

    /// Moves the epoch on if every pinned CPU has seen the present one.
    pub fn try_advance(&self) -> bool {
        let now = self.now.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for (cpu, slot) in self.announced.iter().enumerate() {
            // Each is the line of another CPU; asked for ahead, they come together.
            if let Some(later) = self.announced.get(cpu + AHEAD) {
                prefetch(&later.0);
            }
            let announced = slot.0.load(Ordering::Relaxed);
            if depth(announced) != 0 && !same_epoch(announced, announcement(now)) {
                return false;
            }
        }
        fence(Ordering::Acquire);
        self.now
            .compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether a CPU is pinned. If not, the caller sees what it did in its pins before.
    pub(super) fn is_pinned(&self, cpu: CpuId) -> bool {
        depth(self.announced[usize::from(cpu.0)].load(Ordering::Acquire)) != 0
    }

    /// Waits, with `relax` and the number of rounds so far, until every pin has ended that is there
    /// now. Whoever is pinned later sees what the caller stored before.
    pub(crate) fn wait_for_pins(&self, _unpinned: Unpinned<'_>, relax: impl Fn(u32)) {
        let stamp = self.stamp();
        let mut spins = 0;
        loop {
            self.try_advance();
            if self.passed(stamp) {
                break;
            }
            relax(spins);
            spins += 1;
        }
    }
}

/// Proof that the caller is bound to one CPU and has announced an epoch.
///
/// Pinned code cannot sleep. Per-CPU data and spin locks are reached only
/// with a pin.
pub struct Pin<'a> {
    cpu: CpuId,
    /// Where the epoch is announced, and how many pins share the announcement.
    announced: &'a AtomicU64,
    host: &'a dyn PinHost,
    epochs: &'a Epochs,
    not_send: PhantomData<*mut ()>,
}

impl Pin<'_> {
    /// The CPU.
    #[inline]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Where CPUs wait for spin locks.
    pub(super) fn queues(&self) -> &Queues {
        &self.epochs.queues
    }

    /// Where they wait to change words that many change.
    pub(super) fn turns(&self) -> &Turns {
        &self.epochs.turns
    }

    /// The spin locks that this CPU holds.
    #[cfg(debug_assertions)]
    pub(super) fn held(&self) -> &super::held::HeldLocks {
        &self.epochs.held[usize::from(self.cpu.0)]
    }

    /// Checks in debug builds that the CPU holds exactly `locks` spin locks.
    #[inline]
    pub(crate) fn assert_holds(&self, locks: u32) {
        #[cfg(debug_assertions)]
        {
            let held = self.held().count();
            assert!(held == locks, "{held} spin locks held instead of {locks}");
        }
        #[cfg(not(debug_assertions))]
        let _ = locks;
    }

    /// The epochs this pin is announced in.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        self.epochs
    }

    /// Whether the CPU was pinned already when this pin was taken, or has been since.
    pub(crate) fn is_nested(&self) -> bool {
        depth(self.announced.load(Ordering::Relaxed)) > 1
    }

    /// For a call that sleeps when this pin has ended.
    ///
    /// # Panics
    /// If the CPU then goes on being pinned, by whoever calls the manager: it would sleep on a CPU
    /// that cannot do anything else.
    pub(crate) fn assert_ends(&self) {
        assert!(!self.is_nested(), "a call sleeps under the caller's pin");
    }

    /// Whether the pin is announced in these epochs, those of one manager, and so
    /// proves to be on a CPU of that manager.
    #[inline]
    pub(crate) fn is_of(&self, epochs: &Epochs) -> bool {
        core::ptr::eq(self.epochs, epochs)
    }

    /// One round of waiting for somebody else.
    #[inline]
    pub fn relax(&self, spins: u32) {
        spin_hint();
        self.host.relax(self.cpu, spins);
    }

    /// Closes a window that the caller has opened under this pin.
    #[cfg(not(vellum_loom))]
    pub(crate) fn close_window(&self, slot: WindowSlot) {
        self.host.close_window(self.cpu, slot);
    }

    /// Announces the present epoch in place of the one entered in: everything
    /// read so far may be freed. For long operations, between independent steps.
    /// Does nothing while other pins share the announcement.
    #[inline]
    pub fn refresh(&mut self) {
        let now = announcement(self.epochs.now.load(Ordering::Relaxed));
        let announced = self.announced.load(Ordering::Relaxed);
        if announced != now && depth(announced) == 1 {
            self.announced.store(now, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        // One pin less; where that was the last, the epoch beside the count means
        // nothing any more.
        let announced = self.announced.load(Ordering::Relaxed);
        self.announced.store(announced - 1, Ordering::Release);
        self.host.unpin(self.cpu);
    }
}
