//! Dirty tracking.

use core::ffi::c_void;

use vellum::addr::PageRange;
use vellum::space::TakeDirty;

use crate::Paging;
use crate::manager::Manager;
use crate::regions::on_range;
use crate::spaces::Space;
use crate::status::Status;

/// Pages that were written lose the right to store, so that the next store faults.
pub const VELLUM_DIRTY_PROTECTS: u32 = 1;
/// Superpages are made single pages, as far as there is memory for tables.
pub const VELLUM_DIRTY_SPLITS: u32 = 2;

/// Calls `each`, with `context`, for the pages of a range that were written since the call before, and
/// clears the marks that say so. The first call reports everything, and later ones also what was mapped,
/// moved or dropped since. `flags` is a sum of VELLUM_DIRTY_PROTECTS and VELLUM_DIRTY_SPLITS. `each` may
/// get a page twice. The space's lock is held meanwhile: `each` must not call the manager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_dirty_take(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    flags: u32,
    each: Option<unsafe extern "C" fn(context: *mut c_void, address: u64, bytes: u64)>,
    context: *mut c_void,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            let each = each.ok_or(Status::Argument)?;
            if flags & !(VELLUM_DIRTY_PROTECTS | VELLUM_DIRTY_SPLITS) != 0 {
                return Err(Status::Argument);
            }
            start.0.checked_add(pages).ok_or(Status::BadRange)?;
            let range = PageRange::new(start, pages);
            let how = TakeDirty {
                write_protects: flags & VELLUM_DIRTY_PROTECTS != 0,
                splits: flags & VELLUM_DIRTY_SPLITS != 0,
            };
            let tell = |pages: PageRange| {
                let bytes = pages.pages() << <Paging as vellum::addr::Geometry>::FRAME_SHIFT;
                // The caller's function.
                each(context, pages.start.address::<Paging>(), bytes);
            };
            Ok((manager.vm.space(space.id())).take_dirty(range, how, tell)?)
        })
    }
}
