//! The floor: what has to be done and nothing else. No counts, no checks, no
//! locks; empty tables stay.

use super::{FIRST, LARGE, Owner, PageTables, pool};
use crate::measure::Timed;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const LARGE_LEAF: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

pub struct Floor {
    root: *mut u64,
}

fn index(page: u64, level: u32) -> usize {
    (page >> (9 * (level - 1))) as usize & 511
}

fn table(entry: u64) -> *mut u64 {
    std::ptr::with_exposed_provenance_mut((entry & ADDRESS) as usize)
}

impl Floor {
    pub fn new() -> Floor {
        Floor {
            root: table(pool::take_zeroed() as u64),
        }
    }

    /// The entry for `page` in the table at `lowest`, whose tables are made.
    #[inline]
    fn make(&mut self, page: u64, lowest: u32) -> *mut u64 {
        let mut at = self.root;
        for level in (lowest + 1..=4).rev() {
            // SAFETY: `at` is a table of ours, of 512 entries.
            unsafe {
                let entry = at.add(index(page, level));
                if *entry == 0 {
                    *entry = pool::take_zeroed() as u64 | PRESENT | WRITABLE;
                }
                at = table(*entry);
            }
        }
        // SAFETY: as above.
        unsafe { at.add(index(page, lowest)) }
    }

    /// The entry that maps `page`, and its level.
    #[inline]
    fn find(&self, page: u64) -> (*mut u64, u32) {
        let mut at = self.root;
        let mut level = 4;
        loop {
            // SAFETY: `at` is a table of ours, of 512 entries.
            let entry = unsafe { at.add(index(page, level)) };
            // SAFETY: as above.
            let word = unsafe { *entry };
            if level == 1 || word & PRESENT == 0 || word & LARGE_LEAF != 0 {
                return (entry, level);
            }
            at = table(word);
            level -= 1;
        }
    }

    fn free_below(at: *mut u64, level: u32) {
        for index in 0..512 {
            // SAFETY: `at` is a table of ours that nobody else uses.
            let word = unsafe { *at.add(index) };
            if word & PRESENT != 0 && word & LARGE_LEAF == 0 && level > 1 {
                Self::free_below(table(word), level - 1);
                pool::give(table(word).addr());
                // SAFETY: as above.
                unsafe { *at.add(index) = 0 };
            }
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        Self::free_below(self.root, 4);
        pool::give(self.root.addr());
    }
}

impl PageTables for Floor {
    #[inline]
    fn map(&mut self, page: u64, frame: u64) {
        let entry = self.make(page, 1);
        // SAFETY: an entry of a table of ours.
        unsafe { *entry = frame << 12 | PRESENT | WRITABLE };
    }

    fn map_range(&mut self, page: u64, frame: u64, pages: u64) {
        let mut done = 0;
        while done < pages {
            let entry = self.make(page + done, 1);
            let count = (512 - index(page + done, 1) as u64).min(pages - done);
            for step in 0..count {
                // SAFETY: as many entries are left in the table.
                unsafe {
                    *entry.add(step as usize) = (frame + done + step) << 12 | PRESENT | WRITABLE
                };
            }
            done += count;
        }
    }

    #[inline]
    fn translate(&mut self, page: u64) -> Option<u64> {
        let (entry, level) = self.find(page);
        // SAFETY: an entry of a table of ours.
        let word = unsafe { *entry };
        let within = page & ((1 << (9 * (level - 1))) - 1);
        (word & PRESENT != 0).then_some(((word & ADDRESS) >> 12) + within)
    }

    #[inline]
    fn protect(&mut self, page: u64, writable: bool) {
        let (entry, _) = self.find(page);
        // SAFETY: an entry of a table of ours.
        unsafe { *entry = *entry & !WRITABLE | if writable { WRITABLE } else { 0 } };
    }

    #[inline]
    fn unmap(&mut self, page: u64) {
        let (entry, _) = self.find(page);
        // SAFETY: an entry of a table of ours.
        unsafe { *entry = 0 };
    }

    fn unmap_range(&mut self, page: u64, pages: u64) {
        let mut done = 0;
        while done < pages {
            let (entry, level) = self.find(page + done);
            let count = (512 - index(page + done, 1) as u64).min(pages - done);
            if level == 1 {
                // SAFETY: as many entries are left in the table.
                unsafe { std::ptr::write_bytes(entry, 0, count as usize) };
            }
            done += count;
        }
    }

    #[inline]
    fn map_large(&mut self, page: u64, frame: u64) {
        let entry = self.make(page, 2);
        // SAFETY: an entry of a table of ours.
        unsafe { *entry = frame << 12 | PRESENT | WRITABLE | LARGE_LEAF };
    }

    #[inline]
    fn unmap_large(&mut self, page: u64) {
        self.unmap(page);
    }

    fn tidy(&mut self) {
        debug_assert!((FIRST..FIRST + LARGE).all(|page| self.translate(page).is_none()));
        Self::free_below(self.root, 4);
    }
}

impl Owner for Floor {
    type View<'a> = Floor;

    fn with<T>(&mut self, work: impl FnOnce(&mut Floor) -> T) -> T {
        work(self)
    }

    fn life(count: u64, _: &mut Floor) -> Timed {
        Timed::of(count, || {
            for _ in 0..count {
                let mut tables = Floor::new();
                tables.map(FIRST, FIRST);
                tables.unmap(FIRST);
            }
        })
    }
}
