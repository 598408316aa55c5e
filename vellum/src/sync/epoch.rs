//! Pins and epochs: proof of being on a CPU, and of what nobody can still see.
//!
//! A pinned CPU announces the epoch it entered in. The epoch moves on only
//! when every pinned CPU has announced the present one, so whatever was
//! unlinked in epoch `e` is invisible to everybody from epoch `e + 2` on.
//! Readers write one line, their own.

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::atomic::{AtomicU64, Ordering, fence, spin_hint};
use super::percpu::CachePadded;
use crate::platform::CpuId;

/// What a pin asks of the platform. Implemented once, by the manager, for every platform.
pub trait PinHost {
    /// The platform's `unpin`.
    fn unpin(&self, cpu: CpuId);
    /// The platform's `relax`, by a caller pinned to `cpu`.
    fn relax(&self, cpu: CpuId, spins: u32);
}

/// When something was unlinked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EpochStamp(pub u64);

/// The epoch and every CPU's announcement of it.
pub struct Epochs {
    now: CachePadded<AtomicU64>,
    /// 0: not pinned. Otherwise `epoch << 1 | 1`.
    announced: Box<[CachePadded<AtomicU64>]>,
}

impl Epochs {
    /// Epochs for `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        Epochs {
            now: CachePadded(AtomicU64::new(2)),
            announced: (0..cpus).map(|_| CachePadded(AtomicU64::new(0))).collect(),
        }
    }

    /// Announces `cpu`, which the caller has pinned through `host`, and returns
    /// the proof. Nested pins keep the outer announcement.
    #[inline]
    pub fn enter<'a>(&'a self, host: &'a dyn PinHost, cpu: CpuId) -> Pin<'a> {
        self.enter_with(host, cpu, || ())
    }

    /// The same, with something else announced under the same fence, unless
    /// the pin is nested: then `announce` is not called.
    #[inline]
    pub fn enter_with<'a>(
        &'a self,
        host: &'a dyn PinHost,
        cpu: CpuId,
        announce: impl FnOnce(),
    ) -> Pin<'a> {
        let slot = &self.announced[cpu.0 as usize].0;
        let outermost = (slot.load(Ordering::Relaxed) == 0).then_some(slot);
        if outermost.is_some() {
            let now = self.now.load(Ordering::Relaxed);
            // Release, because whoever reads this value, and not the 0 of the
            // pin before it, must still know that pin's reads to be over.
            slot.store(now << 1 | 1, Ordering::Release);
            announce();
            // Orders the announcements before every read of the pinned section:
            // `try_advance` has the matching fence between its unlinks and its
            // scan of the announcements.
            fence(Ordering::SeqCst);
        }
        Pin {
            cpu,
            outermost,
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

    /// Moves the epoch on if every pinned CPU has seen the present one.
    pub fn try_advance(&self) -> bool {
        let now = self.now.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for slot in &self.announced {
            let announced = slot.0.load(Ordering::Relaxed);
            if announced != 0 && announced >> 1 != now {
                return false;
            }
        }
        fence(Ordering::Acquire);
        self.now
            .compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }
}

/// Proof that the caller is bound to one CPU and has announced an epoch.
///
/// Pinned code cannot sleep. Per-CPU data and spin locks are reached only
/// with a pin.
pub struct Pin<'a> {
    cpu: CpuId,
    /// Where the epoch is announced; a nested pin has none.
    outermost: Option<&'a AtomicU64>,
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

    /// The epochs this pin is announced in.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        self.epochs
    }

    /// One round of waiting for somebody else.
    #[inline]
    pub fn relax(&self, spins: u32) {
        spin_hint();
        self.host.relax(self.cpu, spins);
    }

    /// Announces the present epoch in place of the one entered in: everything
    /// read so far may be freed. For long operations, between independent steps.
    #[inline]
    pub fn refresh(&mut self) {
        if let Some(slot) = self.outermost {
            let now = self.epochs.now.load(Ordering::Relaxed);
            if slot.load(Ordering::Relaxed) != now << 1 | 1 {
                slot.store(now << 1 | 1, Ordering::Release);
                fence(Ordering::SeqCst);
            }
        }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.outermost {
            slot.store(0, Ordering::Release);
        }
        self.host.unpin(self.cpu);
    }
}
