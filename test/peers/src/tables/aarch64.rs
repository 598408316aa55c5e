//! aarch64-paging: tables of the AArch64 format, which no CPU here walks.

use std::ptr::NonNull;

use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{Descriptor, El1Attributes, PhysicalAddress, UpdatableDescriptor};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, PageTable, Translation, VaRange};

use super::{FIRST, Owner, PageTables, pool};
use crate::measure::Timed;

struct Pool;

impl Translation<El1Attributes> for Pool {
    #[inline]
    fn allocate_table(&mut self) -> (NonNull<PageTable<El1Attributes>>, PhysicalAddress) {
        let page = pool::take_zeroed();
        (
            self.physical_to_virtual(PhysicalAddress(page)),
            PhysicalAddress(page),
        )
    }
    // SAFETY: the pool notes the address and touches nothing; what the caller
    // promises, that nobody uses the page any more, is what lets it be handed out.
    #[inline]
    unsafe fn deallocate_table(&mut self, table: NonNull<PageTable<El1Attributes>>) {
        pool::give(table.as_ptr().addr());
    }
    #[inline]
    fn physical_to_virtual(&self, pa: PhysicalAddress) -> NonNull<PageTable<El1Attributes>> {
        let table = std::ptr::with_exposed_provenance_mut(pa.0);
        NonNull::new(table).expect("no table lies at address 0")
    }
}

pub struct Aarch64(Mapping<Pool, El1And0>);

impl Aarch64 {
    pub fn new() -> Aarch64 {
        Aarch64(Mapping::with_asid_and_va_range(
            Pool,
            1,
            0,
            El1And0,
            VaRange::Lower,
        ))
    }

    #[inline]
    fn set(
        &mut self,
        page: u64,
        frame: u64,
        pages: u64,
        flags: El1Attributes,
        limits: Constraints,
    ) {
        let at = PhysicalAddress((frame << 12) as usize);
        let mapped = self.0.map_range(&region(page, pages), at, flags, limits);
        mapped.expect("mapped");
    }
}

fn region(page: u64, pages: u64) -> MemoryRegion {
    MemoryRegion::new((page << 12) as usize, ((page + pages) << 12) as usize)
}

fn rights() -> El1Attributes {
    El1Attributes::VALID | El1Attributes::ACCESSED | El1Attributes::USER
}

const PAGES: Constraints = Constraints::NO_BLOCK_MAPPINGS.union(Constraints::NO_CONTIGUOUS_HINT);

impl PageTables for Aarch64 {
    #[inline]
    fn map(&mut self, page: u64, frame: u64) {
        self.set(page, frame, 1, rights(), PAGES);
    }

    fn map_range(&mut self, page: u64, frame: u64, pages: u64) {
        self.set(page, frame, pages, rights(), PAGES);
    }

    #[inline]
    fn translate(&mut self, page: u64) -> Option<u64> {
        let mut found = None;
        let mut look = |_: &MemoryRegion, entry: &Descriptor<El1Attributes>, level: usize| {
            if entry.is_valid() {
                let within = page & ((1 << (9 * (3 - level))) - 1);
                found = Some((entry.output_address().0 as u64 >> 12) + within);
            }
            Ok(())
        };
        self.0
            .walk_range(&region(page, 1), &mut look)
            .expect("walked");
        found
    }

    #[inline]
    fn protect(&mut self, page: u64, writable: bool) {
        let change = |_: &MemoryRegion, entry: &mut UpdatableDescriptor<El1Attributes>| {
            let none = El1Attributes::empty();
            let (set, clear) = if writable {
                (none, El1Attributes::READ_ONLY)
            } else {
                (El1Attributes::READ_ONLY, none)
            };
            entry.modify_flags(set, clear)
        };
        self.0
            .modify_range(&region(page, 1), &change)
            .expect("changed");
    }

    #[inline]
    fn unmap(&mut self, page: u64) {
        self.set(page, 0, 1, El1Attributes::empty(), PAGES);
    }

    fn unmap_range(&mut self, page: u64, pages: u64) {
        self.set(page, 0, pages, El1Attributes::empty(), Constraints::empty());
    }

    #[inline]
    fn map_large(&mut self, page: u64, frame: u64) {
        self.set(page, frame, 512, rights(), Constraints::NO_CONTIGUOUS_HINT);
    }

    #[inline]
    fn unmap_large(&mut self, page: u64) {
        self.set(page, 0, 512, El1Attributes::empty(), Constraints::empty());
    }

    fn tidy(&mut self) {
        self.0.compact_subtables();
    }
}

impl Owner for Aarch64 {
    type View<'a> = Aarch64;

    fn with<T>(&mut self, work: impl FnOnce(&mut Aarch64) -> T) -> T {
        work(self)
    }

    fn life(count: u64, _: &mut Aarch64) -> Timed {
        Timed::of(count, || {
            for _ in 0..count {
                let mut tables = Aarch64::new();
                tables.map(FIRST, FIRST);
                tables.unmap(FIRST);
            }
        })
    }
}
