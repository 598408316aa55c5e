//! Frames that wait for their epoch, of all CPUs: how many they may be, and how a CPU that
//! needs them gets them.
//!
//! A CPU moves the epoch on while it retires, and again when it needs memory. One that is
//! idle does neither, so a CPU that is out of memory collects what waits there
//! ([`Limbo`]). And if somebody stays in a pin for long, everybody else goes on retiring:
//! a CPU on which more wait than its share says so, and calls that give up many frames
//! then wait, unpinned, before they return.

use super::memory::PhysicalMemory;
use crate::platform::{CpuId, Machine};
use crate::sync::atomic::Ordering;
use crate::sync::limbo::Limbo;
use crate::sync::{Pin, Unpinned};

/// Turns in which a CPU waits for others to end what they are at.
const PATIENCE: u32 = 1 << 16;
/// Times that the epoch moves on until what was given back can be used.
const EPOCHS: u32 = 3;
/// One in so many frames of the machine may wait, in equal shares for its CPUs.
const SHARE: u64 = 8;

impl<P: Machine> PhysicalMemory<P> {
    /// What a CPU retired: frames, and page tables that a source has wait by itself.
    fn limbos(&self, cpu: CpuId) -> impl Iterator<Item = &Limbo> {
        let kept = self.keeper.as_ref().and_then(|keeper| keeper.limbo(cpu));
        [Some(&self.cpus.of(cpu).limbo), kept].into_iter().flatten()
    }

    fn all_cpus(&self) -> impl Iterator<Item = CpuId> {
        (0..self.platform.cpus()).map(|number| CpuId(number as u16))
    }

    fn waiting_on(&self, cpu: CpuId) -> u64 {
        self.limbos(cpu).map(|limbo| u64::from(limbo.len())).sum()
    }

    /// Retired frames that wait for their epoch.
    pub(crate) fn waiting(&self) -> u64 {
        self.all_cpus().map(|cpu| self.waiting_on(cpu)).sum()
    }

    /// Retired frames that wait on this CPU for their epoch.
    pub(crate) fn waiting_here(&self, pin: &Pin<'_>) -> u64 {
        self.waiting_on(pin.cpu())
    }

    /// Waits until frames that wait for their epoch are free: all that do so now on this CPU and
    /// on idle ones, as far as that takes no longer than others take to end what they are at.
    /// Returns how many have become free. Whoever calls the manager pinned would wait for itself,
    /// and gets none.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for_frames(&self, unpinned: Unpinned<'_>) -> u64 {
        let stamp = self.epochs.stamp();
        let before = self.waiting();
        let mut freed = 0;
        for turn in 0..PATIENCE {
            if self.waiting() == 0 {
                break;
            }
            let pin = self.pin_by(&unpinned);
            if pin.is_nested() {
                return 0;
            }
            let all_passed = self.epochs.passed(stamp);
            for cpu in self.all_cpus() {
                for limbo in self.limbos(cpu) {
                    loop {
                        let passed = limbo.passed_of(cpu, &pin);
                        if passed.is_empty() {
                            break;
                        }
                        freed += u64::from(passed.count());
                        self.release(&pin, passed);
                    }
                }
            }
            // The epoch can move on once.
            self.drain(&pin);
            drop(pin);
            if all_passed && freed > 0 {
                break;
            }
            self.platform.relax(turn);
        }
        freed.max(before.saturating_sub(self.waiting()))
    }

    /// Waits until what was given back to arenas can be used, as far as that takes no longer than
    /// others take to end what they are at.
    pub(crate) fn wait_for_epochs(&self, unpinned: Unpinned<'_>) {
        let mut moved = 0;
        for turn in 0..PATIENCE {
            let has_moved = self.pin_by(&unpinned).epochs().try_advance();
            moved += u32::from(has_moved);
            if moved == EPOCHS {
                break;
            }
            if !has_moved {
                self.platform.relax(turn);
            }
        }
    }

    /// Notes that a CPU, which has just tried to move the epoch on, has so many frames waiting.
    pub(crate) fn note_waiting(&self, waiting: u32) {
        if waiting > self.most_waiting {
            self.crowd.store(1, Ordering::Relaxed);
        }
    }

    /// What calls do that have retired frames, without a lock: they wait if too many of
    /// them wait for their epoch.
    #[inline]
    pub(crate) fn heed_crowd(&self, unpinned: Unpinned<'_>) {
        if self.crowd.load(Ordering::Relaxed) != 0 {
            self.crowd.store(0, Ordering::Relaxed);
            self.wait_for_frames(unpinned);
        }
    }

    /// Most frames that wait on a CPU whose calls do not wait.
    pub(super) fn share_of_waiting(frames: u64, cpus: usize, interval: u32) -> u32 {
        let share = frames / SHARE / cpus as u64;
        share.clamp(u64::from(2 * interval), u64::from(u32::MAX)) as u32
    }
}
