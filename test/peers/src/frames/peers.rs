//! The peers, and the floor.

use std::ptr::NonNull;

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_slab_allocator::BuddyAllocator;
use buddy_system_allocator::FrameAllocator;

use super::{BLOCK, Blocks, FRAMES, Frames, RAM};
use crate::Failure;

/// The floor: a stack of frame numbers.
pub struct Stack(Vec<usize>);

impl Stack {
    pub fn new() -> Stack {
        Stack((0..FRAMES).rev().collect())
    }
}

impl Frames for Stack {
    #[inline]
    fn alloc(&mut self) -> usize {
        self.0.pop().expect("a frame is free")
    }
    #[inline]
    fn free(&mut self, frame: usize) {
        self.0.push(frame);
    }
}

pub struct Bitmap(Box<BitAlloc1M>);

impl Bitmap {
    pub fn new() -> Bitmap {
        let mut map = Box::new(BitAlloc1M::DEFAULT);
        map.insert(0..FRAMES);
        Bitmap(map)
    }
}

impl Frames for Bitmap {
    #[inline]
    fn alloc(&mut self) -> usize {
        self.0.alloc().expect("a frame is free")
    }
    #[inline]
    fn free(&mut self, frame: usize) {
        assert!(self.0.dealloc(frame));
    }
}

impl Blocks for Bitmap {
    #[inline]
    fn alloc_block(&mut self) -> usize {
        let block = self.0.alloc_contiguous(None, BLOCK, 9);
        block.expect("a block is free")
    }
    #[inline]
    fn free_block(&mut self, frame: usize) {
        assert!(self.0.dealloc_contiguous(frame, BLOCK));
    }
}

pub struct BuddySystem(FrameAllocator);

impl BuddySystem {
    pub fn new() -> BuddySystem {
        let mut frames = FrameAllocator::new();
        frames.add_frame(0, FRAMES);
        BuddySystem(frames)
    }
}

impl Frames for BuddySystem {
    #[inline]
    fn alloc(&mut self) -> usize {
        self.0.alloc(1).expect("a frame is free")
    }
    #[inline]
    fn free(&mut self, frame: usize) {
        self.0.dealloc(frame, 1);
    }
}

impl Blocks for BuddySystem {
    #[inline]
    fn alloc_block(&mut self) -> usize {
        self.0.alloc(BLOCK).expect("a block is free")
    }
    #[inline]
    fn free_block(&mut self, frame: usize) {
        self.0.dealloc(frame, BLOCK);
    }
}

/// It hands out addresses, and keeps its records in front of the memory it
/// manages, of which it touches nothing else.
pub struct BuddySlab {
    buddy: BuddyAllocator,
    region: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the region is this value's own mapping, used through `&mut self` only.
unsafe impl Send for BuddySlab {}

impl BuddySlab {
    pub fn new() -> Result<BuddySlab, Failure> {
        // With room for the records, so that as much is left as the others have.
        let bytes = RAM as usize + (64 << 20);
        // SAFETY: a new mapping at an address of the host's choice.
        let region = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if region == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(Failure::because("memory for buddy-slab-allocator")(error));
        }
        let region = NonNull::new(region.cast::<u8>())
            .ok_or_else(|| Failure("the host mapped memory at address 0".into()))?;
        let mut made = BuddySlab {
            buddy: BuddyAllocator::new(),
            region,
            bytes,
        };
        // SAFETY: the mapping is writable, ours alone, and lives as long as the
        // allocator beside it.
        let begun = unsafe {
            let region = std::slice::from_raw_parts_mut(region.as_ptr(), bytes);
            made.buddy.init(region)
        };
        match begun {
            Ok(()) => Ok(made),
            Err(error) => Err(Failure(format!("buddy-slab-allocator: {error:?}"))),
        }
    }
}

impl Drop for BuddySlab {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { libc::munmap(self.region.as_ptr().cast(), self.bytes) };
    }
}

impl Frames for BuddySlab {
    #[inline]
    fn alloc(&mut self) -> usize {
        let page = self.buddy.alloc_pages(1, 4096);
        page.expect("a frame is free")
    }
    #[inline]
    fn free(&mut self, frame: usize) {
        self.buddy.dealloc_pages(frame, 1);
    }
}

impl Blocks for BuddySlab {
    /// Aligned to where its memory begins, not to an address: asked for more,
    /// it finds nothing unless its memory happens to begin so.
    #[inline]
    fn alloc_block(&mut self) -> usize {
        let block = self.buddy.alloc_pages(BLOCK, 4096);
        block.expect("a block is free")
    }
    #[inline]
    fn free_block(&mut self, frame: usize) {
        self.buddy.dealloc_pages(frame, BLOCK);
    }
}
