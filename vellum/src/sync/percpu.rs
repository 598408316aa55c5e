//! Data that belongs to one CPU.

use alloc::boxed::Box;
use core::ops::Deref;

use super::{Counter, Pin};
use crate::platform::CpuId;

/// A value alone on its cache lines (two of them, because processors fetch pairs).
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// One `T` for each CPU, reached through the [`Pin`] that proves which one is ours.
///
/// `T` is shared between nested pins of one caller, so it holds `Cell`s and
/// atomics rather than plain fields.
pub struct PerCpu<T> {
    slots: Box<[CachePadded<T>]>,
}

// SAFETY: a `T` is only reached through a `Pin` of its CPU, and a platform
// never lets two callers be pinned to one CPU (condition 3 of `Platform`), or
// through `&mut self`. So a `T` is used by one thread at a time and only has
// to be sendable.
unsafe impl<T: Send> Sync for PerCpu<T> {}

impl<T> PerCpu<T> {
    /// One value for each of `cpus` CPUs.
    pub fn new(cpus: usize, mut make: impl FnMut(CpuId) -> T) -> Self {
        PerCpu {
            slots: (0..cpus)
                .map(|cpu| CachePadded(make(CpuId(cpu as u16))))
                .collect(),
        }
    }

    /// The value of the CPU we are pinned to.
    #[inline]
    pub fn get<'a>(&'a self, pin: &'a Pin<'_>) -> &'a T {
        &self.slots[pin.cpu().0 as usize].0
    }

    /// All values, while nobody is pinned.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|slot| &mut slot.0)
    }
}

impl<T: Sync> PerCpu<T> {
    /// The value of any CPU, for types that may be shared.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> &T {
        &self.slots[cpu.0 as usize].0
    }

    /// The sum of one counter over all CPUs; approximate while they run.
    pub fn sum(&self, field: impl Fn(&T) -> &Counter) -> u64 {
        self.iter()
            .fold(0, |total, value| total.wrapping_add(field(value).get()))
    }

    /// Every CPU's value, for types that may be shared.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &slot.0)
    }
}
