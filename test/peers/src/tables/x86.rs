//! The x86_64 crate's `OffsetPageTable`.

use x86_64::structures::paging::mapper::{CleanUp, Translate};
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags,
    PhysFrame, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

use super::{FIRST, Owner, PageTables, pool};
use crate::measure::Timed;

pub struct Offset(OffsetPageTable<'static>);

struct Pool;

// SAFETY: the pool hands out each page to one caller at a time.
unsafe impl FrameAllocator<Size4KiB> for Pool {
    #[inline]
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        Some(frame_at(pool::take() as u64))
    }
}

impl FrameDeallocator<Size4KiB> for Pool {
    // SAFETY: the pool notes the address and touches nothing; what the caller
    // promises, that nobody uses the page any more, is what lets it be handed out.
    #[inline]
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        pool::give(frame.start_address().as_u64() as usize);
    }
}

fn frame_at<S: x86_64::structures::paging::PageSize>(address: u64) -> PhysFrame<S> {
    PhysFrame::containing_address(PhysAddr::new(address))
}

fn page_at<S: x86_64::structures::paging::PageSize>(page: u64) -> Page<S> {
    Page::containing_address(VirtAddr::new(page << 12))
}

fn rights(writable: bool) -> PageTableFlags {
    let rights = PageTableFlags::PRESENT | PageTableFlags::USER_ACCESSIBLE;
    if writable {
        rights | PageTableFlags::WRITABLE
    } else {
        rights
    }
}

impl Offset {
    pub fn new() -> Offset {
        let root = std::ptr::with_exposed_provenance_mut::<PageTable>(pool::take_zeroed());
        // SAFETY: a whole page of zeroes, handed out to nobody else: an empty
        // table. Physical addresses are the host's, so that the offset is 0.
        Offset(unsafe { OffsetPageTable::new(&mut *root, VirtAddr::new(0)) })
    }
}

impl Drop for Offset {
    fn drop(&mut self) {
        pool::give(std::ptr::from_ref(self.0.level_4_table()).addr());
    }
}

impl PageTables for Offset {
    const RANGES: bool = false;

    #[inline]
    fn map(&mut self, page: u64, frame: u64) {
        let (page, frame) = (page_at::<Size4KiB>(page), frame_at(frame << 12));
        // SAFETY: no CPU uses these tables.
        let mapped = unsafe { self.0.map_to(page, frame, rights(true), &mut Pool) };
        mapped.expect("mapped").ignore();
    }

    fn map_range(&mut self, _: u64, _: u64, _: u64) {}

    #[inline]
    fn translate(&mut self, page: u64) -> Option<u64> {
        let address = self.0.translate_addr(VirtAddr::new(page << 12))?;
        Some(address.as_u64() >> 12)
    }

    #[inline]
    fn protect(&mut self, page: u64, writable: bool) {
        let page = page_at::<Size4KiB>(page);
        // SAFETY: no CPU uses these tables.
        let changed = unsafe { self.0.update_flags(page, rights(writable)) };
        changed.expect("changed").ignore();
    }

    #[inline]
    fn unmap(&mut self, page: u64) {
        let (_, flush) = self.0.unmap(page_at::<Size4KiB>(page)).expect("unmapped");
        flush.ignore();
    }

    fn unmap_range(&mut self, _: u64, _: u64) {}

    #[inline]
    fn map_large(&mut self, page: u64, frame: u64) {
        let (page, frame) = (page_at::<Size2MiB>(page), frame_at(frame << 12));
        // SAFETY: no CPU uses these tables.
        let mapped = unsafe { self.0.map_to(page, frame, rights(true), &mut Pool) };
        mapped.expect("mapped").ignore();
    }

    #[inline]
    fn unmap_large(&mut self, page: u64) {
        let (_, flush) = self.0.unmap(page_at::<Size2MiB>(page)).expect("unmapped");
        flush.ignore();
    }

    fn tidy(&mut self) {
        // SAFETY: no leaf is left in tables that come from the pool.
        unsafe { self.0.clean_up(&mut Pool) };
    }
}

impl Owner for Offset {
    type View<'a> = Offset;

    fn with<T>(&mut self, work: impl FnOnce(&mut Offset) -> T) -> T {
        work(self)
    }

    fn life(count: u64, _: &mut Offset) -> Timed {
        Timed::of(count, || {
            for _ in 0..count {
                let mut tables = Offset::new();
                tables.map(FIRST, FIRST);
                tables.unmap(FIRST);
                let page = page_at::<Size4KiB>(FIRST);
                // Of all there is only the page that was in use.
                let range = Page::range_inclusive(page, page);
                // SAFETY: no leaf is left in tables that come from the pool.
                unsafe { tables.0.clean_up_addr_range(range, &mut Pool) };
            }
        })
    }
}
