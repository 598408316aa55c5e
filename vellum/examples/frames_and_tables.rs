//! Frames and page tables alone: all that an embedder of these two writes.
//!
//! `cargo run -p vellum --example frames_and_tables`
use std::{alloc, error::Error, ptr::NonNull};
use vellum::addr::{Pfn, Prot, Vpn};
use vellum::frame::{PhysicalMemory, Request, Site};
use vellum::platform::*;
use vellum::table::{Cursor, Format, Fresh, Marks, Tables, X86_64};

struct Board(NonNull<u8>, [MemoryRange; 1]);
// SAFETY: one thread uses the board.
unsafe impl Sync for Board {}
// SAFETY: one CPU and one thread; the RAM is nobody else's, and no TLB knows it.
unsafe impl Machine for Board {
    fn cpus(&self) -> usize {
        1
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &self.1
    }
    fn pin(&self) -> CpuId {
        CpuId(0)
    }
    fn unpin(&self, _: CpuId) {}
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        // SAFETY: the core asks for frames of the memory map only.
        unsafe { self.0.add(frame.index() * 4096) }
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {}
}

/// The example.
pub fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: the layout has a size.
    let ram = unsafe { alloc::alloc_zeroed(alloc::Layout::from_size_align(4 << 20, 4096)?) };
    let ram = NonNull::new(ram).ok_or("no RAM")?;
    let memory = PhysicalMemory::new(Board(ram, [MemoryRange::new(Pfn(0), 1024)]))?;
    let pin = memory.pin();
    let root = Tables::<_, X86_64>::make_root(&memory, &Fresh, &pin, 1)?;
    // SAFETY: the root is of this memory, and only leaves are put into its tables.
    let tables = unsafe { Tables::<_, X86_64>::new(&memory, &Fresh, &pin, root, 1) };
    let request = Request::page(Site::AnonymousPage).zeroed();
    let frame = memory.view().alloc(&pin, request)?;
    let leaf = X86_64::leaf(frame.into_raw(), 1, Prot::READ_WRITE, Marks::default());
    assert!(Cursor::new(&tables).map(Vpn(0x1234), leaf)?);
    println!("page 0x1234 maps {:?}", tables.find(Vpn(0x1234)));
    Ok(())
}
