//! The RAM disk: the files that the boot loader brought, and pages that were written.
//!
//! Files that are replayed have a content by rule until they are written
//! ([`protocol::pristine`]), so that they need no memory. What is written is kept in a
//! table of pages by file and index, and where files were cut off in another.

use core::ops::Range;
use core::ptr::NonNull;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vellum::platform::IoError;
use vellum::sync::bytes::FrameBytes;

use crate::arch::{self, direct};
use crate::lock::{Once, SpinLock};
use crate::protocol::{self, DISK_MAGIC, STORES};

const PAGE: usize = 1 << protocol::PAGE_SHIFT;

/// The disk as the boot loader left it: first byte and bytes.
static DISK: Once<(u64, u64)> = Once::new();

/// Pages that were written, by a hash of their place; a page lies where its key does.
struct Written {
    /// Store + 1 and index, or zero.
    keys: Vec<(u64, u64)>,
    /// First byte of the memory for the pages.
    pages: u64,
    used: usize,
    /// From which page on a store holds zeroes, and what was written since.
    cuts: BTreeMap<u64, u64>,
}

static WRITTEN: SpinLock<Option<Written>> = SpinLock::new(None);

/// The disk lies in `disk`; what is written goes to `memory`.
///
/// # Safety
/// No other CPU runs, and nobody else uses the memory of either: first byte and bytes.
pub unsafe fn init(disk: (u64, u64), memory: (u64, u64)) {
    // SAFETY: the caller's promise.
    unsafe { DISK.set(disk) };
    assert!(
        word(0) == DISK_MAGIC,
        "the RAM disk is not one of `cargo xtask boot`"
    );
    *WRITTEN.lock() = Some(Written {
        keys: alloc::vec![(0, 0); memory.1 as usize / PAGE],
        pages: memory.0,
        used: 0,
        cuts: BTreeMap::new(),
    });
}

/// A word of the disk.
fn word(index: u64) -> u64 {
    let (start, bytes) = *DISK.get();
    assert!(index * 8 + 8 <= bytes, "past the end of the RAM disk");
    // SAFETY: the disk lies there, and nothing writes to it.
    unsafe { arch::read(start + index * 8) }
}

/// A file that the boot loader brought: its offset and length in bytes.
pub fn file(number: u64) -> (u64, u64) {
    assert!(number < word(1), "the RAM disk has no file {number}");
    (word(2 + 2 * number), word(3 + 2 * number))
}

/// Word `index` of such a file.
pub fn file_word(number: u64, index: u64) -> u64 {
    word(file(number).0 / 8 + index)
}

impl Written {
    /// Where a page is, or would be put.
    fn slot(&self, store: u64, index: u64) -> usize {
        let key = (store + 1, index);
        let hash = protocol::pristine(key.0, key.1) >> 8;
        let mut slot = hash as usize % self.keys.len();
        while self.keys[slot] != (0, 0) && self.keys[slot] != key {
            slot = (slot + 1) % self.keys.len();
        }
        slot
    }

    fn bytes(&self, slot: usize) -> FrameBytes<'static> {
        let at = direct(self.pages + (slot * PAGE) as u64);
        // SAFETY: memory for the disk alone, whose lock is held; not null.
        unsafe { FrameBytes::new(NonNull::new_unchecked(at), PAGE) }
    }
}

/// Reads a page.
pub fn read(store: u64, index: u64, to: FrameBytes<'_>) -> Result<(), IoError> {
    if let Some(written) = &*WRITTEN.lock() {
        let slot = written.slot(store, index);
        if written.keys[slot] != (0, 0) {
            to.copy_from(written.bytes(slot));
            return Ok(());
        }
        if written.cuts.get(&store).is_some_and(|cut| index >= *cut) {
            to.fill(0);
            return Ok(());
        }
    }
    if store >= STORES {
        to.fill(protocol::pristine(store - STORES, index));
        return Ok(());
    }
    let (start, _) = *DISK.get();
    let (offset, bytes) = file(store);
    let from = index * PAGE as u64;
    if from >= bytes {
        return Err(IoError);
    }
    // SAFETY: files begin at pages, and the disk is padded to whole ones; nothing writes to
    // it; not null.
    let page =
        unsafe { FrameBytes::new(NonNull::new_unchecked(direct(start + offset + from)), PAGE) };
    to.copy_from(page);
    Ok(())
}

/// Writes a page. A disk that is nearly full takes no more.
pub fn write(store: u64, index: u64, from: FrameBytes<'_>) -> Result<(), IoError> {
    let mut written = WRITTEN.lock();
    let written = written.as_mut().ok_or(IoError)?;
    let slot = written.slot(store, index);
    if written.keys[slot] == (0, 0) {
        if written.used + written.keys.len() / 8 >= written.keys.len() {
            return Err(IoError);
        }
        written.keys[slot] = (store + 1, index);
        written.used += 1;
    }
    written.bytes(slot).copy_from(from);
    Ok(())
}

/// Makes the pages of a file zero that were cut off. The kernel makes no holes.
pub fn discard(store: u64, pages: &Range<u64>) -> Result<(), IoError> {
    if pages.end != u64::MAX {
        return Err(IoError);
    }
    let mut written = WRITTEN.lock();
    let written = written.as_mut().ok_or(IoError)?;
    let cut = written.cuts.entry(store).or_insert(pages.start);
    *cut = pages.start.min(*cut);
    for (slot, (key, index)) in written.keys.iter().enumerate() {
        if *key == store + 1 && pages.contains(index) {
            written.bytes(slot).fill(0);
        }
    }
    Ok(())
}

/// Written pages of the first `files` replayed files that hold a word that no rule allows.
pub fn unexpected(files: u64) -> usize {
    let written = WRITTEN.lock();
    let Some(written) = &*written else { return 0 };
    let replayed = STORES + 1..STORES + 1 + files;
    let keys = written.keys.iter().enumerate();
    let wrong = keys.filter(|(slot, (key, index))| {
        let file = key.wrapping_sub(STORES + 1);
        let rule = [
            0,
            protocol::pristine(file, *index),
            protocol::written(file, *index),
            protocol::stored(file, *index),
        ];
        if !replayed.contains(key) {
            return false;
        }
        let mut page = [0; PAGE];
        written.bytes(*slot).read(0, &mut page);
        let (words, _) = page.as_chunks::<8>();
        !words
            .iter()
            .all(|word| rule.contains(&u64::from_le_bytes(*word)))
    });
    wrong.count()
}
