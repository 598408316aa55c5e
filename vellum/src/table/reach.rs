//! How the entries of a page table are reached.
//!
//! Tables above the lowest level always lie in low memory, which has addresses. Where the
//! lowest may lie is a type of the format ([`Format::Reach`]), so that a format whose
//! tables are always direct has no trace of windows in its code.

use core::ptr::NonNull;

use super::format::Format;
use crate::addr::Pfn;
use crate::frame::PhysicalMemory;
use crate::platform::{Machine, WindowSlot};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Pin, bytes};

/// Where the tables of the lowest level may lie: [`Direct`] or [`Windowed`].
pub trait Reach: sealed::Reach {}

/// All tables lie in low memory.
pub struct Direct;

/// The lowest tables may lie in high memory, and are then reached through windows that
/// are open while the table is locked or read. Those in low memory need none.
pub struct Windowed;

impl Reach for Direct {}
impl Reach for Windowed {}

pub(crate) mod sealed {
    use super::*;

    pub trait Reach: 'static {
        /// Whether there are tables in high memory at all.
        const WINDOWS: bool;
        /// Which window keeps a table reachable, if one does.
        type Slot: Copy;
        /// Whose windows they are.
        type Owner<'a>: Copy;

        /// The address of a table of the lowest level, until the window of the slot is
        /// closed.
        fn open<P: Machine>(
            memory: &PhysicalMemory<P>,
            pin: &Pin<'_>,
            table: Pfn,
        ) -> (NonNull<u8>, Self::Slot);

        /// Whom to give to `close`.
        fn owner<'a>(pin: &'a Pin<'_>) -> Self::Owner<'a>;

        /// Closes the window that `open` has opened, if it has opened one.
        fn close(owner: Self::Owner<'_>, slot: Self::Slot);
    }

    impl Reach for Direct {
        const WINDOWS: bool = false;
        type Slot = ();
        type Owner<'a> = ();

        #[inline]
        fn open<P: Machine>(
            memory: &PhysicalMemory<P>,
            _: &Pin<'_>,
            table: Pfn,
        ) -> (NonNull<u8>, ()) {
            (memory.direct(table), ())
        }

        #[inline]
        fn owner(_: &Pin<'_>) {}

        #[inline]
        fn close((): (), (): ()) {}
    }

    impl Reach for Windowed {
        const WINDOWS: bool = true;
        type Slot = Option<WindowSlot>;
        type Owner<'a> = &'a Pin<'a>;

        #[inline]
        fn open<P: Machine>(
            memory: &PhysicalMemory<P>,
            pin: &Pin<'_>,
            table: Pfn,
        ) -> (NonNull<u8>, Option<WindowSlot>) {
            memory.reach_table(pin, table)
        }

        #[inline]
        fn owner<'a>(pin: &'a Pin<'_>) -> &'a Pin<'a> {
            pin
        }

        #[inline]
        fn close(owner: &Pin<'_>, slot: Option<WindowSlot>) {
            if let Some(slot) = slot {
                owner.close_window(slot);
            }
        }
    }
}

/// Whether tables of the lowest level may need windows.
#[inline]
pub(crate) const fn uses_windows<F: Format>() -> bool {
    <F::Reach as sealed::Reach>::WINDOWS
}

/// The window that keeps a table of the lowest level of `F` reachable.
pub(super) type SlotOf<F> = <<F as Format>::Reach as sealed::Reach>::Slot;

/// Whose window that is.
pub(super) type OwnerOf<'a, F> = <<F as Format>::Reach as sealed::Reach>::Owner<'a>;

/// A table that is reachable until this is dropped.
struct Reached<'a, F: Format> {
    address: NonNull<u8>,
    slot: SlotOf<F>,
    owner: OwnerOf<'a, F>,
}

impl<F: Format> Drop for Reached<'_, F> {
    fn drop(&mut self) {
        close::<F>(self.owner, self.slot);
    }
}

/// The entries of a table that has an address, for readers that hold no lock: one above
/// the lowest level, or any if the format's tables are direct. The caller is pinned since
/// before it found the table, so the frame is not used anew.
#[inline]
pub(crate) fn table_words<F: Format, P: Machine>(
    memory: &PhysicalMemory<P>,
    table: Pfn,
) -> &[AtomicU64] {
    // SAFETY: as in `words_at`, for as long as the platform lives.
    unsafe { words_at::<F>(memory.direct(table)) }
}

/// Calls `f` with the entries of a table at `level`, found as for [`table_words`].
#[inline]
pub(crate) fn with_table_words<F: Format, P: Machine, T>(
    memory: &PhysicalMemory<P>,
    pin: &Pin<'_>,
    (table, level): (Pfn, u32),
    f: impl FnOnce(&[AtomicU64]) -> T,
) -> T {
    if !uses_windows::<F>() || level > 1 || memory.is_before_high(table) {
        return f(table_words::<F, P>(memory, table));
    }
    with_reached_words::<F, P, T>(memory, pin, table, f)
}

/// The same of a table of the lowest level that may need a window. A call of its own, so
/// that finding out that it does not is all that is left to the callers.
#[inline(never)]
fn with_reached_words<F: Format, P: Machine, T>(
    memory: &PhysicalMemory<P>,
    pin: &Pin<'_>,
    table: Pfn,
    f: impl FnOnce(&[AtomicU64]) -> T,
) -> T {
    let (address, slot) = <F::Reach as sealed::Reach>::open(memory, pin, table);
    let owner = owner_of::<F>(pin);
    let reached = Reached::<F> {
        address,
        slot,
        owner,
    };
    // SAFETY: as in `words_at`, until the window is closed.
    f(unsafe { words_at::<F>(reached.address) })
}

/// Where the entries of a table are that is locked, until the window of the slot is closed.
/// Whether the table is of the lowest level need not be known: others have addresses too.
#[inline]
pub(super) fn open_locked<F: Format, P: Machine>(
    memory: &PhysicalMemory<P>,
    pin: &Pin<'_>,
    table: Pfn,
) -> (NonNull<u8>, SlotOf<F>) {
    <F::Reach as sealed::Reach>::open(memory, pin, table)
}

/// Whom to give to [`close`].
#[inline]
pub(super) fn owner_of<'a, F: Format>(pin: &'a Pin<'_>) -> OwnerOf<'a, F> {
    <F::Reach as sealed::Reach>::owner(pin)
}

/// Closes the window that [`open_locked`] has opened, if it has opened one.
#[inline]
pub(super) fn close<F: Format>(owner: OwnerOf<'_, F>, slot: SlotOf<F>) {
    <F::Reach as sealed::Reach>::close(owner, slot);
}

/// Whether none of some entries is used. All are looked at, which is fewer instructions than to
/// stop at the first.
#[inline]
pub(super) fn are_zero(words: &[AtomicU64]) -> bool {
    let sum = words.iter().map(|word| word.load(Ordering::Relaxed));
    sum.fold(0, |sum, word| sum | word) == 0
}

/// The entries of the table at `address`.
///
/// # Safety
/// The address is that of a frame of kind `Table`, directly or in a window, and stays so
/// while the entries are used.
#[inline]
pub(super) unsafe fn words_at<'a, F: Format>(address: NonNull<u8>) -> &'a [AtomicU64] {
    const { assert!(F::ENTRIES * size_of::<AtomicU64>() == 1 << F::FRAME_SHIFT) };
    // SAFETY: frames of kind `Table` are accessed through atomic words only,
    // from `TablePages::take` to the end of their epoch (invariant 4); the
    // address is that of a whole frame, aligned to its size (condition 2 of
    // `Machine`), which holds `F::ENTRIES` words (condition 1 of `Geometry`).
    unsafe { bytes::FrameBytes::new(address, F::ENTRIES * size_of::<u64>()) }.words()
}
