//! Where spaces place mappings, and which of their pages are in memory.

use vellum::addr::{PageRange, Vpn};
use vellum::space::Layout as SpaceLayout;

use crate::Paging;
use crate::manager::{Manager, Out, named, page_at, pages_of};
use crate::regions::{bytes_of, on_range};
use crate::spaces::Space;
use crate::status::Status;

/// How a space is laid out.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Layout {
    /// The lowest address that can be mapped, also at a fixed place (mmap_min_addr).
    pub lowest: u64,
    /// What is mapped anywhere comes below, as long as there is a gap.
    pub base: u64,
    /// Where a range begins in which nothing is placed unless at a fixed place.
    pub kept_free: u64,
    /// How long that range is; 0 if there is none.
    pub kept_free_bytes: u64,
    /// For the caller: the end of the first stack.
    pub stack_end: u64,
    /// For the caller: how far behind the program the heap begins.
    pub heap_gap: u64,
}

/// A layout that nobody can guess who does not know the seed, and the same for the same seed, with
/// room for a stack of `stack_bytes`. 64-bit address spaces have 28 random bits of pages for the
/// base, 22 for the stack and 18 for the heap, or as many as they have room for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_layout_random(
    seed: u64,
    stack_bytes: u64,
    layout: *mut Layout,
) -> Status {
    let draw = || {
        // SAFETY: the head of the header.
        let out = unsafe { Out::new(layout)? };
        let drawn = SpaceLayout::random::<Paging>(seed, pages_of(stack_bytes)?);
        out.set(Layout {
            lowest: drawn.lowest.address::<Paging>(),
            base: drawn.base.address::<Paging>(),
            kept_free: 0,
            kept_free_bytes: 0,
            stack_end: drawn.stack_end.address::<Paging>(),
            heap_gap: bytes_of(drawn.heap_gap),
        });
        Ok(())
    };
    Status::of(draw())
}

/// Lays a space out. What is mapped already stays. A forked child has the same layout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_layout_set(
    vm: *mut Manager,
    space: Space,
    layout: *const Layout,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        // SAFETY: as above.
        let layout = unsafe { layout.as_ref() }.ok_or(Status::Argument)?;
        let start: Vpn = page_at(layout.kept_free)?;
        let kept = match layout.kept_free_bytes {
            0 => PageRange::default(),
            bytes => PageRange {
                start,
                end: Vpn(start.0.saturating_add(pages_of(bytes)?)),
            },
        };
        let none = PageRange::default();
        let layout = SpaceLayout {
            lowest: page_at(layout.lowest)?,
            base: page_at(layout.base)?,
            kept_free: [kept, none, none, none],
            stack_end: page_at(layout.stack_end)?,
            heap_gap: pages_of(layout.heap_gap)?,
        };
        Ok(manager.vm.space(space.id()).set_layout(&layout)?)
    };
    Status::of(set())
}

/// Says of each page of a range, all of which is mapped, whether it is in memory (mincore): of
/// objects also if nobody maps it. `resident` has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_residency(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    resident: *mut bool,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            let count = usize::try_from(pages).map_err(|_| Status::BadRange)?;
            if resident.is_null() || count > isize::MAX as usize {
                return Err(Status::Argument);
            }
            // SAFETY: the caller's promise. What was never written is written first.
            let resident = {
                resident.write_bytes(0, count);
                core::slice::from_raw_parts_mut(resident, count)
            };
            Ok(manager.vm.space(space.id()).residency(start, resident)?)
        })
    }
}
