//! Memory by its physical addresses.

use crate::arch::{DIRECT_BYTES, DIRECT_MAP, KERNEL_BASE};

/// Where a byte of memory lies for the kernel.
pub fn direct(physical: u64) -> *mut u8 {
    assert!(
        physical < DIRECT_BYTES,
        "{physical:#x} is not in the direct map"
    );
    (DIRECT_MAP + physical) as *mut u8
}

/// A value of memory that the firmware or the boot loader left.
///
/// # Safety
/// There is a `T` at the address, which nothing writes; it need not be aligned.
pub unsafe fn read<T: Copy>(physical: u64) -> T {
    // SAFETY: the caller's promise; the address is checked.
    unsafe { direct(physical).cast::<T>().read_unaligned() }
}

unsafe extern "C" {
    static kernel_end: u8;
}

/// First byte of memory behind the kernel.
pub fn end_of_kernel() -> u64 {
    &raw const kernel_end as u64 - KERNEL_BASE
}

/// Calls `each` with the first byte and the end of every piece of `usable` memory that none of
/// `taken` lies in, which ascend. Below the first MiB is the firmware's, and where processors
/// start.
pub fn each_free(
    usable: impl Iterator<Item = (u64, u64)>,
    taken: &[(u64, u64)],
    mut each: impl FnMut(u64, u64),
) {
    for (start, bytes) in usable {
        let end = (start + bytes).min(DIRECT_BYTES);
        let mut at = start.max(1 << 20);
        for &(from, to) in taken {
            if from < end && at < to {
                if at < from {
                    each(at, from);
                }
                at = to;
            }
        }
        if at < end {
            each(at, end);
        }
    }
}
