//! The frame allocator alone, behind the interfaces that other kernels have for one.
//!
//! [`Injected`] is shaped as the trait that Asterinas's OSTD calls: a layout in, an address
//! out, and parts of what was handed out may come back in any order. [`Counted`] is shaped as
//! the calls of `buddy_system_allocator`'s frame allocator, which kernels of rCore's family
//! use: a number of frames in, and the same number comes back.
//!
//! `cargo run -p vellum --example frames`

#[path = "board/mod.rs"]
mod board;

use std::alloc::Layout;
use std::error::Error;

use board::{Board, PAGE};
use vellum::addr::Pfn;
use vellum::frame::{OwnedBlock, PhysicalMemory, Request, Site};
use vellum::platform::Machine;

/// The other kernel's trait.
pub trait Injected: Sync {
    /// Frames in a row for a layout whose size is a multiple of a page: their address.
    fn alloc(&self, layout: Layout) -> Option<u64>;

    /// Takes back some of them.
    ///
    /// # Safety
    /// They were handed out, were not taken back since, and nobody uses them.
    unsafe fn dealloc(&self, address: u64, bytes: usize);
}

/// What is plugged in. The allocator is told of all memory when it is made.
pub struct Frames<P: Machine> {
    /// The allocator.
    pub memory: PhysicalMemory<P>,
}

impl<P: Machine> Injected for Frames<P> {
    fn alloc(&self, layout: Layout) -> Option<u64> {
        let frames = layout.size().div_ceil(PAGE).max(1);
        let aligned = layout.align().div_ceil(PAGE);
        let order = frames.max(aligned).next_power_of_two().trailing_zeros();
        let request = Request::page(Site::AnonymousPage).order(order);
        let block = self.memory.view().alloc(&self.memory.pin(), request).ok()?;
        let first = block.first();
        if order > 0 {
            // Those beyond the size go back with the iterator.
            let kept = block.into_frames().take(frames);
            kept.for_each(|frame| _ = frame.into_raw());
        } else {
            block.into_raw();
        }
        Some(u64::from(first.0) * PAGE as u64)
    }

    unsafe fn dealloc(&self, address: u64, bytes: usize) {
        let pin = self.memory.pin();
        let first = Pfn((address / PAGE as u64) as u32);
        for step in 0..bytes.div_ceil(PAGE) as u32 {
            // SAFETY: `alloc` gave each frame up as a block of its own; the caller's
            // promise says that it comes back once.
            let frame = unsafe { OwnedBlock::from_raw(&self.memory, first.offset(step), 0) };
            frame.free(&pin);
        }
    }
}

/// Frames by numbers and counts. A block comes back as it was handed out, so that it need not
/// be cut up, and one of a CPU's own kind (2 MiB) is taken and freed without a lock.
pub struct Counted<P: Machine> {
    /// The allocator.
    pub memory: PhysicalMemory<P>,
}

impl<P: Machine> Counted<P> {
    fn order(count: usize) -> u32 {
        count.next_power_of_two().trailing_zeros()
    }

    /// `count` frames, rounded up to a power of two and aligned to that: the first one's
    /// number.
    pub fn alloc(&self, count: usize) -> Option<usize> {
        let request = Request::page(Site::AnonymousPage).order(Self::order(count));
        let block = self.memory.view().alloc(&self.memory.pin(), request).ok()?;
        Some(block.into_raw().index())
    }

    /// Takes them back.
    ///
    /// # Safety
    /// [`Counted::alloc`] returned `first` for this count, they were not taken back since,
    /// and nobody uses them.
    pub unsafe fn dealloc(&self, first: usize, count: usize) {
        let first = Pfn(first as u32);
        // SAFETY: the caller's promise.
        let block = unsafe { OwnedBlock::from_raw(&self.memory, first, Self::order(count)) };
        block.free(&self.memory.pin());
    }
}

fn injected() -> Result<(), Box<dyn Error>> {
    let frames = Frames {
        memory: PhysicalMemory::new(Board::new(4096))?,
    };
    let before = frames.memory.stats().used();
    let page = frames.alloc(Layout::from_size_align(PAGE, PAGE)?);
    let page = page.ok_or("no page")?;
    // Five frames, of which the middle one comes back first; and one aligned to 64 KiB.
    let five = frames.alloc(Layout::from_size_align(5 * PAGE, PAGE)?);
    let five = five.ok_or("no five frames")?;
    let aligned = frames.alloc(Layout::from_size_align(PAGE, 16 * PAGE)?);
    let aligned = aligned.ok_or("no aligned frame")?;
    assert!(aligned.is_multiple_of(16 * PAGE as u64));
    assert_eq!(frames.memory.stats().used(), before + 7);
    // SAFETY: each frame handed out above comes back once.
    unsafe {
        frames.dealloc(five + 2 * PAGE as u64, PAGE);
        frames.dealloc(five, 2 * PAGE);
        frames.dealloc(page, PAGE);
        frames.dealloc(five + 3 * PAGE as u64, 2 * PAGE);
        frames.dealloc(aligned, PAGE);
    }
    assert_eq!(frames.memory.stats().used(), before);
    // More than there is, and more than a block can have, is refused.
    for pages in [5000, 1 << 20] {
        assert_eq!(
            frames.alloc(Layout::from_size_align(pages * PAGE, PAGE)?),
            None
        );
    }
    frames
        .memory
        .audit_frames()
        .map_err(|error| error.to_string())?;
    println!("injected: {:?}", frames.memory.stats());
    Ok(())
}

fn counted() -> Result<(), Box<dyn Error>> {
    let frames = Counted {
        memory: PhysicalMemory::new(Board::new(4096))?,
    };
    let before = frames.memory.stats().used();
    let mut taken = Vec::new();
    for count in [1, 3, 512, 1, 64] {
        let first = frames.alloc(count).ok_or("no frames")?;
        assert!(first.is_multiple_of(count.next_power_of_two()));
        taken.push((first, count));
    }
    assert_eq!(frames.memory.stats().used(), before + 1 + 4 + 512 + 1 + 64);
    for (first, count) in taken {
        // SAFETY: as `alloc` returned them, once.
        unsafe { frames.dealloc(first, count) }
    }
    assert_eq!(frames.memory.stats().used(), before);
    frames
        .memory
        .audit_frames()
        .map_err(|error| error.to_string())?;
    println!("counted: {:?}", frames.memory.stats());
    Ok(())
}

/// Both.
pub fn main() -> Result<(), Box<dyn Error>> {
    injected()?;
    counted()
}
