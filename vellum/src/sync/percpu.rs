//! Data that belongs to one CPU.
//!
//! Two things keep it so. Its types may be shared between threads: they are
//! relaxed atomics, whose loads and stores are the instructions of plain ones, and
//! which statistics read from anywhere. So two threads on one CPU's data are no
//! undefined behaviour here. They would still take the same frame from a list, and
//! what is made of that frame would be. So a [`Pin`] is made only by who has bound
//! the CPU ([`Epochs::enter`](super::Epochs::enter) is unsafe), and the memory and the
//! sources of table pages ask a pin from outside whose it is ([`Pin::is_of`]).
//! They ask at the calls that change their lists and not here, where each of a dozen
//! accesses of a fault would pay: one comparison for a frame taken or freed. A
//! manager pins for itself, and its arenas are made under the promise that they
//! are used with its pins ([`ArenaMaker::new`](crate::slab::ArenaMaker::new)).

use alloc::boxed::Box;
use core::ops::Deref;

use super::report::name;
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
/// `T` is shared between nested pins of one caller and with readers of
/// statistics, so it holds atomics rather than plain fields:
///
/// ```
/// # use vellum::sync::PerCpu;
/// fn share(data: impl Sync) {}
/// share(PerCpu::new(2, |_| std::sync::atomic::AtomicU32::new(0)));
/// ```
/// ```compile_fail,E0277
/// # use vellum::sync::PerCpu;
/// fn share(data: impl Sync) {}
/// share(PerCpu::new(2, |_| std::cell::Cell::new(0)));
/// ```
pub struct PerCpu<T> {
    slots: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// One value for each of `cpus` CPUs.
    pub fn new(cpus: usize, mut make: impl FnMut(CpuId) -> T) -> Self {
        let slots = (0..cpus).map(|cpu| CachePadded(make(CpuId(cpu as u16))));
        let slots: Box<[CachePadded<T>]> = slots.collect();
        name(core::any::type_name::<T>(), &[], slots.as_ptr(), cpus);
        PerCpu { slots }
    }

    /// The same for values that are too large for a stack, which may have no more than
    /// a few thousand bytes where a manager is made: `make` is called with memory for
    /// each, all of whose bytes are zero.
    ///
    /// # Safety
    /// `make` leaves a value there.
    pub(crate) unsafe fn new_in_place(cpus: usize, mut make: impl FnMut(CpuId, *mut T)) -> Self {
        let mut slots = Box::<[CachePadded<T>]>::new_uninit_slice(cpus);
        for (cpu, slot) in slots.iter_mut().enumerate() {
            let place = slot.as_mut_ptr();
            // SAFETY: the memory is there, and nobody else's.
            unsafe {
                place.write_bytes(0, 1);
                make(CpuId(cpu as u16), &raw mut (*place).0);
            }
        }
        // SAFETY: `make` left a value in each, which is all that a padded one has.
        let slots = unsafe { slots.assume_init() };
        name(core::any::type_name::<T>(), &[], slots.as_ptr(), cpus);
        PerCpu { slots }
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
