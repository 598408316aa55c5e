//! From a handle to an address: a root made once, and leaves of one frame each.
//!
//! A handle is `chunk << slot_bits | slot`. Chunks are numbered from 1, so that
//! 0 names nothing. A leaf's entry holds its chunk's address, and two words that
//! are lent to the depot: there are never more full batches than chunks, because
//! a batch is as large as a chunk.

use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::{NonNull, with_exposed_provenance};

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most bits of a handle; the audit marks slots in the one above.
pub(super) const HANDLE_BITS: u32 = 31;

/// One chunk, and one place of the depot.
#[repr(C)]
pub(super) struct Entry {
    /// Address of the chunk's first slot; 0 if there is no chunk.
    base: AtomicU64,
    pub(super) head: AtomicU32,
    pub(super) tail: AtomicU32,
}

/// What a directory has for each number.
///
/// # Safety
/// Bytes that are all zero are a value.
pub(super) unsafe trait Zeroable: Sync {}

// SAFETY: it is made of atomic integers.
unsafe impl Zeroable for Entry {}

/// A value for each number of an arena's chunks: [`Entry`], their addresses.
pub(super) struct Directory<E> {
    /// Entries of the first leaf, which most arenas never outgrow; 0 if it is
    /// not there yet.
    near: AtomicU32,
    /// Its address: to read it the handle need not be known yet.
    first: AtomicU64,
    /// Addresses of the other leaves, in their places; 0 if there is no leaf.
    root: Box<[AtomicU64]>,
    leaf_bits: u32,
    entry: PhantomData<fn() -> E>,
}

impl<E: Zeroable> Directory<E> {
    /// A directory of `1 << frame_shift` bytes a leaf, for chunks numbered 1 to
    /// `chunks`.
    pub(super) fn new(chunks: u32, frame_shift: u32) -> Self {
        const { assert!(size_of::<E>().is_power_of_two()) };
        let leaf_bits = frame_shift - size_of::<E>().ilog2();
        let leaves = (chunks >> leaf_bits) as usize + 1;
        Directory {
            near: AtomicU32::new(0),
            first: AtomicU64::new(0),
            root: (0..leaves).map(|_| AtomicU64::new(0)).collect(),
            leaf_bits,
            entry: PhantomData,
        }
    }

    /// The entry of a number, if its leaf is there.
    #[inline]
    pub(super) fn entry(&self, number: u32) -> Option<&E> {
        if number >= self.near.load(Ordering::Acquire) {
            return self.far_entry(number);
        }
        let first = self.first.load(Ordering::Relaxed);
        // SAFETY: `install` stored the address of the first leaf before it
        // stored the number of its entries, which `number` is below.
        Some(unsafe { entry_at(first, number) })
    }

    #[cold]
    fn far_entry(&self, number: u32) -> Option<&E> {
        let leaf = self.leaf(number)?.load(Ordering::Acquire);
        if leaf == 0 {
            return None;
        }
        let index = number & ((1 << self.leaf_bits) - 1);
        // SAFETY: `install` stored the address of a leaf, which has
        // `1 << leaf_bits` entries; `index` is smaller than that.
        Some(unsafe { entry_at(leaf, index) })
    }

    /// The word for the leaf of a number.
    fn leaf(&self, number: u32) -> Option<&AtomicU64> {
        match number >> self.leaf_bits {
            0 => Some(&self.first),
            place => self.root.get(place as usize),
        }
    }

    /// The first number of the leaf behind that of a number.
    pub(super) fn next_leaf(&self, number: u32) -> u32 {
        ((number >> self.leaf_bits) + 1) << self.leaf_bits
    }

    /// Adds the leaf of a number; `false` if somebody else has, and the frame is still the
    /// caller's.
    ///
    /// # Safety
    /// `frame` is the address of a zeroed frame of the size given to
    /// [`Directory::new`], aligned to it, that is this directory's for as long
    /// as the directory is used if it was added.
    pub(super) unsafe fn install(&self, number: u32, frame: NonNull<u8>) -> bool {
        let Some(leaf) = self.leaf(number) else {
            unreachable!("a chunk's number has a leaf");
        };
        let address = frame.as_ptr().expose_provenance() as u64;
        let added = leaf.compare_exchange(0, address, Ordering::Release, Ordering::Relaxed);
        if added.is_ok() && number >> self.leaf_bits == 0 {
            self.near.store(1 << self.leaf_bits, Ordering::Release);
        }
        added.is_ok()
    }
}

/// An entry of a leaf.
///
/// # Safety
/// `leaf` is the address of a frame of more than `index` entries, all zero when
/// it was stored, that stays the directory's own for as long as `'a`.
#[inline]
unsafe fn entry_at<'a, E: Zeroable>(leaf: u64, index: u32) -> &'a E {
    let entries = with_exposed_provenance::<E>(leaf as usize);
    // SAFETY: the caller's promise.
    unsafe { &*entries.add(index as usize) }
}

impl Entry {
    /// Address of the chunk's first slot; null if there is no chunk.
    #[inline]
    pub(super) fn base<T>(&self) -> *const T {
        with_exposed_provenance(self.base.load(Ordering::Acquire) as usize)
    }

    /// Publishes a chunk whose slots are initialised.
    pub(super) fn set_base(&self, chunk: NonNull<u8>) {
        let address = chunk.as_ptr().expose_provenance() as u64;
        self.base.store(address, Ordering::Release);
    }

    /// The chunk is none any more. A pinned CPU may have its address still.
    pub(super) fn clear(&self) {
        self.base.store(0, Ordering::Relaxed);
    }
}
