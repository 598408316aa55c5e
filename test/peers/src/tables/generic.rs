//! page-table-generic with x86-64 entries.

use page_table_generic::{
    FrameAllocator, MapConfig, PageTable, PageTableEntry, PhysAddr, TableMeta, VirtAddr,
};

use super::{FIRST, Owner, PageTables, pool};
use crate::Failure;
use crate::measure::Timed;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const USER: u64 = 4;
const LARGE_LEAF: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

#[derive(Clone, Copy, Debug)]
struct Entry(u64);

impl PageTableEntry for Entry {
    /// The bits beside the address.
    type PteConfig = u64;

    #[inline]
    fn new_page(paddr: PhysAddr, config: u64, is_huge: bool) -> Self {
        let large = if is_huge { LARGE_LEAF } else { 0 };
        Entry(paddr.as_usize() as u64 & ADDRESS | config | large)
    }
    #[inline]
    fn new_table(paddr: PhysAddr) -> Self {
        Entry(paddr.as_usize() as u64 & ADDRESS | PRESENT | WRITABLE | USER)
    }
    #[inline]
    fn paddr(&self, _: bool) -> PhysAddr {
        PhysAddr::from_usize((self.0 & ADDRESS) as usize)
    }
    #[inline]
    fn config(&self, _: bool) -> u64 {
        self.0 & (PRESENT | WRITABLE | USER)
    }
    #[inline]
    fn present(&self) -> bool {
        self.0 & PRESENT != 0
    }
    #[inline]
    fn huge(&self, is_dir: bool) -> bool {
        is_dir && self.0 & LARGE_LEAF != 0
    }
    #[inline]
    fn unused(&self) -> bool {
        self.0 == 0
    }
    #[inline]
    fn clear(&mut self) {
        self.0 = 0;
    }
}

#[derive(Clone, Copy)]
struct Meta;

impl TableMeta for Meta {
    type P = Entry;
    const PAGE_SIZE: usize = 4096;
    const LEVEL_BITS: &[usize] = &[9, 9, 9, 9];
    const MAX_BLOCK_LEVEL: usize = 3;

    #[inline]
    fn flush(_: Option<VirtAddr>) {}
}

#[derive(Clone, Copy)]
struct Pool;

impl FrameAllocator for Pool {
    #[inline]
    fn alloc_frame(&self) -> Option<PhysAddr> {
        Some(PhysAddr::from_usize(pool::take()))
    }
    #[inline]
    fn dealloc_frame(&self, frame: PhysAddr) {
        pool::give(frame.as_usize());
    }
    #[inline]
    fn phys_to_virt(&self, paddr: PhysAddr) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(paddr.as_usize())
    }
}

pub struct Generic(PageTable<Meta, Pool>);

impl Generic {
    pub fn new() -> Result<Generic, Failure> {
        let tables = PageTable::new(Pool);
        tables
            .map(Generic)
            .map_err(|error| Failure(format!("page-table-generic: {error:?}")))
    }

    #[inline]
    fn map_bytes(&mut self, page: u64, frame: u64, bytes: usize, allow_huge: bool) {
        let mapped = self.0.map(&MapConfig {
            vaddr: address(page),
            paddr: PhysAddr::from_usize((frame << 12) as usize),
            size: bytes,
            pte: rights(true),
            allow_huge,
            flush: false,
        });
        mapped.expect("mapped");
    }
}

fn address(page: u64) -> VirtAddr {
    VirtAddr::from_usize((page << 12) as usize)
}

fn rights(writable: bool) -> u64 {
    PRESENT | USER | if writable { WRITABLE } else { 0 }
}

impl PageTables for Generic {
    #[inline]
    fn map(&mut self, page: u64, frame: u64) {
        self.map_bytes(page, frame, 4096, false);
    }

    fn map_range(&mut self, page: u64, frame: u64, pages: u64) {
        self.map_bytes(page, frame, (pages << 12) as usize, false);
    }

    #[inline]
    fn translate(&mut self, page: u64) -> Option<u64> {
        let frame = self.0.translate_phys(address(page)).ok()?;
        Some(frame.as_usize() as u64 >> 12)
    }

    #[inline]
    fn protect(&mut self, page: u64, writable: bool) {
        let changed = self.0.protect_page(address(page), rights(writable));
        changed.expect("changed");
    }

    #[inline]
    fn unmap(&mut self, page: u64) {
        self.0.unmap(address(page), 4096).expect("unmapped");
    }

    fn unmap_range(&mut self, page: u64, pages: u64) {
        let unmapped = self.0.unmap(address(page), (pages << 12) as usize);
        unmapped.expect("unmapped");
    }

    #[inline]
    fn map_large(&mut self, page: u64, frame: u64) {
        self.map_bytes(page, frame, 2 << 20, true);
    }

    #[inline]
    fn unmap_large(&mut self, page: u64) {
        self.0.unmap(address(page), 2 << 20).expect("unmapped");
    }

    fn tidy(&mut self) {}
}

impl Owner for Generic {
    type View<'a> = Generic;

    fn with<T>(&mut self, work: impl FnOnce(&mut Generic) -> T) -> T {
        work(self)
    }

    fn life(count: u64, _: &mut Generic) -> Timed {
        Timed::of(count, || {
            for _ in 0..count {
                let mut tables = Generic::new().expect("a page for the root");
                tables.map(FIRST, FIRST);
                tables.unmap(FIRST);
            }
        })
    }
}
