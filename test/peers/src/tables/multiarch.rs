//! page_table_multiarch with the x86-64 entries of page_table_entry.

use memory_addr::{PhysAddr, VirtAddr};
use page_table_entry::MappingFlags;
use page_table_entry::x86_64::X64PTE;
use page_table_multiarch::{PageSize, PageTable64, PagingHandler, PagingMetaData};

use super::{FIRST, Owner, PageTables, pool};
use crate::Failure;
use crate::measure::Timed;

/// The metadata of its x86-64 tables without the flush, which is privileged
/// (and which it leaves out itself in hosted builds).
struct Hosted;

impl PagingMetaData for Hosted {
    const LEVELS: usize = 4;
    const PA_MAX_BITS: usize = 52;
    const VA_MAX_BITS: usize = 48;
    type VirtAddr = VirtAddr;

    fn flush_tlb(_: Option<VirtAddr>) {}
}

struct Pool;

impl PagingHandler for Pool {
    #[inline]
    fn alloc_frames(num: usize, _: usize) -> Option<PhysAddr> {
        (num == 1).then(|| PhysAddr::from(pool::take()))
    }
    #[inline]
    fn dealloc_frames(paddr: PhysAddr, _: usize) {
        pool::give(paddr.as_usize());
    }
    #[inline]
    fn phys_to_virt(paddr: PhysAddr) -> VirtAddr {
        VirtAddr::from(paddr.as_usize())
    }
}

type Tables = PageTable64<Hosted, X64PTE, Pool>;

pub struct Multiarch(Tables);

fn new_tables() -> Result<Tables, Failure> {
    Tables::try_new().map_err(|error| Failure(format!("page_table_multiarch: {error:?}")))
}

impl Multiarch {
    pub fn new() -> Result<Multiarch, Failure> {
        new_tables().map(Multiarch)
    }
}

fn address(page: u64) -> VirtAddr {
    VirtAddr::from((page << 12) as usize)
}

fn physical(frame: u64) -> PhysAddr {
    PhysAddr::from((frame << 12) as usize)
}

fn rights(writable: bool) -> MappingFlags {
    let rights = MappingFlags::READ | MappingFlags::USER;
    if writable {
        rights | MappingFlags::WRITE
    } else {
        rights
    }
}

impl PageTables for Multiarch {
    #[inline]
    fn map(&mut self, page: u64, frame: u64) {
        let mapped = self.0.cursor().map(
            address(page),
            physical(frame),
            PageSize::Size4K,
            rights(true),
        );
        mapped.expect("mapped");
    }

    fn map_range(&mut self, page: u64, frame: u64, pages: u64) {
        let bias = frame.wrapping_sub(page) << 12;
        let at = |address: VirtAddr| PhysAddr::from(address.as_usize().wrapping_add(bias as usize));
        let bytes = (pages << 12) as usize;
        let mapped = self
            .0
            .cursor()
            .map_region(address(page), at, bytes, rights(true), false);
        mapped.expect("mapped");
    }

    #[inline]
    fn translate(&mut self, page: u64) -> Option<u64> {
        let (frame, _, _) = self.0.query(address(page)).ok()?;
        Some(frame.as_usize() as u64 >> 12)
    }

    #[inline]
    fn protect(&mut self, page: u64, writable: bool) {
        let changed = self.0.cursor().protect(address(page), rights(writable));
        changed.expect("changed");
    }

    #[inline]
    fn unmap(&mut self, page: u64) {
        self.0.cursor().unmap(address(page)).expect("unmapped");
    }

    fn unmap_range(&mut self, page: u64, pages: u64) {
        let bytes = (pages << 12) as usize;
        let unmapped = self.0.cursor().unmap_region(address(page), bytes);
        unmapped.expect("unmapped");
    }

    #[inline]
    fn map_large(&mut self, page: u64, frame: u64) {
        let mapped = self.0.cursor().map(
            address(page),
            physical(frame),
            PageSize::Size2M,
            rights(true),
        );
        mapped.expect("mapped");
    }

    #[inline]
    fn unmap_large(&mut self, page: u64) {
        self.unmap(page);
    }

    /// It has no call that frees empty tables but its end.
    fn tidy(&mut self) {
        self.0 = new_tables().expect("a page for the root");
    }
}

impl Owner for Multiarch {
    type View<'a> = Multiarch;

    fn with<T>(&mut self, work: impl FnOnce(&mut Multiarch) -> T) -> T {
        work(self)
    }

    fn life(count: u64, _: &mut Multiarch) -> Timed {
        Timed::of(count, || {
            for _ in 0..count {
                let mut tables = Multiarch::new().expect("a page for the root");
                tables.map(FIRST, FIRST);
                tables.unmap(FIRST);
            }
        })
    }
}
