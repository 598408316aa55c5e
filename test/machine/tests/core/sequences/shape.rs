//! What a page-table format means to a sequence of operations: how much can be
//! mapped, where tables end, and how large pages are.

use vellum::table::Format;

/// The geometry of a format.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// First page that cannot be mapped.
    pub user_end: u64,
    /// Log2 of the bytes in a page.
    pub page_shift: u32,
    /// Log2 of the entries in a table.
    index_bits: u32,
    levels: u32,
    /// The tables below the root are there from the beginning.
    fixed_root: bool,
}

impl Shape {
    pub fn of<F: Format>() -> Shape {
        Shape {
            user_end: F::USER_END.0,
            page_shift: F::FRAME_SHIFT,
            index_bits: F::INDEX_BITS,
            levels: F::LEVELS,
            fixed_root: F::FIXED_ROOT,
        }
    }

    /// Pages of `1 << page_shift` bytes that a table at `level` covers.
    pub fn table_pages(self, level: u32) -> u64 {
        1 << (level * self.index_bits)
    }

    /// Where most things happen: around the borders of tables at every level.
    pub fn areas(self) -> [u64; 4] {
        [
            self.table_pages(1) - 32,
            self.table_pages(2) - 32,
            self.table_pages(self.levels - 1) - 32,
            self.user_end - 64,
        ]
    }

    /// Where heaps begin: shortly before the end of a table.
    pub fn heap_start(self) -> u64 {
        2 * self.table_pages(1) - 8
    }

    /// Words in a page.
    pub fn words(self) -> u64 {
        1 << (self.page_shift - 3)
    }

    /// Bytes of the tables that lead to `pages`, the root included; those in `large` are mapped by
    /// leaves one level up that keep no table to be split into.
    pub fn table_bytes(
        self,
        pages: impl Iterator<Item = u64> + Clone,
        large: impl Iterator<Item = u64> + Clone,
    ) -> u64 {
        let mut tables = std::collections::BTreeSet::from([(self.levels, 0)]);
        if self.fixed_root {
            let covered = self.table_pages(self.levels - 1);
            let below = (0..self.user_end.div_ceil(covered)).map(|part| (self.levels - 1, part));
            tables.extend(below);
        }
        for level in 1..self.levels {
            let skipped = if level == 1 { usize::MAX } else { 0 };
            let mut parts: Vec<u64> = pages
                .clone()
                .chain(large.clone().skip(skipped))
                .map(|page| page / self.table_pages(level))
                .collect();
            parts.dedup();
            tables.extend(parts.into_iter().map(|part| (level, part)));
        }
        (tables.len() as u64) << self.page_shift
    }
}
