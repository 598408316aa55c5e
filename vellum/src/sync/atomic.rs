//! Atomic integers.
//!
//! In an ordinary build these are the processor's own. In an instrumented
//! build each operation is first reported with its kind and address
//! (`sync/report.rs`), and the layout stays that of the plain integer, so that
//! page tables and frame records can be viewed through them.

#[cfg(not(any(vellum_instrumented, vellum_loom)))]
pub use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Orders the caller's accesses before it and after it, as
/// [`core::sync::atomic::fence`] does.
#[cfg(not(any(vellum_instrumented, vellum_loom)))]
#[inline]
pub fn fence(order: Ordering) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Ordering::SeqCst = order {
        // A locked instruction orders loads after earlier stores as `mfence`
        // does, and costs about half as much on every processor since 2010.
        // Kernels use it for the same reason. Only streaming stores need more,
        // and code that makes them follows them with a fence of its own. Not the word on
        // top of the stack: it may hold what the caller needs next, and a load from where
        // a locked instruction has stored waits for it.
        // SAFETY: what lies below the stack pointer is free for assembly that does not
        // promise otherwise (`nostack`), and keeps its value.
        unsafe {
            core::arch::asm!("lock or dword ptr [rsp - 4], 0");
        }
        return;
    }
    core::sync::atomic::fence(order);
}

/// What [`fence`] with `SeqCst` does, for a caller whose last access to memory was an
/// atomic exchange of any order, taken or refused. On x86-64 such an instruction is
/// a full fence itself, so that only the compiler is kept from reordering.
#[inline]
pub(crate) fn fence_after_exchange() {
    #[cfg(all(
        target_arch = "x86_64",
        not(any(miri, vellum_instrumented, vellum_loom))
    ))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(
        target_arch = "x86_64",
        not(any(miri, vellum_instrumented, vellum_loom))
    )))]
    fence(Ordering::SeqCst);
}

#[cfg(vellum_loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};

#[cfg(vellum_instrumented)]
pub use instrumented::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Tells the processor, or the model checker, that the caller spins.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(vellum_loom)]
    loom::thread::yield_now();
    #[cfg(not(vellum_loom))]
    core::hint::spin_loop();
}

#[cfg(vellum_instrumented)]
pub mod instrumented {
    //! Atomics that report each access before it happens.

    use core::sync::atomic as real;
    pub use core::sync::atomic::Ordering;

    use crate::sync::report::{Kind, report};

    /// A fence that is reported.
    #[inline]
    pub fn fence(order: Ordering) {
        let kind = match order {
            Ordering::SeqCst => Kind::FullFence,
            _ => Kind::Fence,
        };
        report(kind, core::ptr::null(), 0);
        real::fence(order);
    }

    macro_rules! common {
        ($name:ident, $real:ident, $plain:ty) => {
            /// An atomic whose accesses are reported.
            #[repr(transparent)]
            #[derive(Default, Debug)]
            pub struct $name(real::$real);

            impl $name {
                /// A new atomic.
                pub const fn new(value: $plain) -> Self {
                    Self(real::$real::new(value))
                }
                #[inline]
                fn report(&self, kind: Kind) {
                    report(kind, core::ptr::from_ref(self).cast(), size_of::<Self>());
                }
                /// Exclusive access to the value.
                pub fn get_mut(&mut self) -> &mut $plain {
                    self.0.get_mut()
                }
                /// Loads.
                #[inline]
                pub fn load(&self, order: Ordering) -> $plain {
                    self.report(Kind::Load);
                    self.0.load(order)
                }
                /// Stores.
                #[inline]
                pub fn store(&self, value: $plain, order: Ordering) {
                    self.report(Kind::Store);
                    self.0.store(value, order);
                }
                /// Swaps.
                #[inline]
                pub fn swap(&self, value: $plain, order: Ordering) -> $plain {
                    self.report(Kind::ReadModifyWrite);
                    self.0.swap(value, order)
                }
                /// Compares and exchanges.
                ///
                /// # Errors
                /// The value found, if it was not `current`.
                #[inline]
                pub fn compare_exchange(
                    &self,
                    current: $plain,
                    new: $plain,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$plain, $plain> {
                    self.report(Kind::ReadModifyWrite);
                    self.0.compare_exchange(current, new, success, failure)
                }
                /// Compares and exchanges, and may fail for no reason.
                ///
                /// # Errors
                /// The value found.
                #[inline]
                pub fn compare_exchange_weak(
                    &self,
                    current: $plain,
                    new: $plain,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$plain, $plain> {
                    self.report(Kind::ReadModifyWrite);
                    self.0.compare_exchange_weak(current, new, success, failure)
                }
                /// Ands; returns the old value.
                #[inline]
                pub fn fetch_and(&self, value: $plain, order: Ordering) -> $plain {
                    self.report(Kind::ReadModifyWrite);
                    self.0.fetch_and(value, order)
                }
                /// Ors; returns the old value.
                #[inline]
                pub fn fetch_or(&self, value: $plain, order: Ordering) -> $plain {
                    self.report(Kind::ReadModifyWrite);
                    self.0.fetch_or(value, order)
                }
            }
        };
    }

    macro_rules! arithmetic {
        ($name:ident, $plain:ty) => {
            impl $name {
                /// Adds; returns the old value.
                #[inline]
                pub fn fetch_add(&self, value: $plain, order: Ordering) -> $plain {
                    self.report(Kind::ReadModifyWrite);
                    self.0.fetch_add(value, order)
                }
                /// Subtracts; returns the old value.
                #[inline]
                pub fn fetch_sub(&self, value: $plain, order: Ordering) -> $plain {
                    self.report(Kind::ReadModifyWrite);
                    self.0.fetch_sub(value, order)
                }
                /// Stores the larger; returns the old value.
                #[inline]
                pub fn fetch_max(&self, value: $plain, order: Ordering) -> $plain {
                    self.report(Kind::ReadModifyWrite);
                    self.0.fetch_max(value, order)
                }
            }
        };
    }

    common!(AtomicBool, AtomicBool, bool);
    common!(AtomicU8, AtomicU8, u8);
    common!(AtomicU16, AtomicU16, u16);
    common!(AtomicU32, AtomicU32, u32);
    common!(AtomicU64, AtomicU64, u64);
    arithmetic!(AtomicU8, u8);
    arithmetic!(AtomicU16, u16);
    arithmetic!(AtomicU32, u32);
    arithmetic!(AtomicU64, u64);
}
