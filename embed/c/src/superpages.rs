//! Superpages and folios: who is to have them, and how many there are.

use vellum::addr::Geometry;
use vellum::space::Advice;

use crate::Paging;
use crate::manager::{Manager, Out, named, page_at, pages_of};
use crate::objects::Object;
use crate::regions::{bytes_of, on_range};
use crate::spaces::Space;
use crate::status::Status;

/// Superpages of an object as the design says (`huge=`, of files with a backing store
/// `filehuge=`).
pub const VELLUM_HUGE_DEFAULT: u32 = 0;
/// An object without superpages.
pub const VELLUM_HUGE_NEVER: u32 = 1;
/// An object with superpages, if the design does not say `never`.
pub const VELLUM_HUGE_ALWAYS: u32 = 2;

/// What vellum_collapse() did.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Collapse {
    /// Ranges of a superpage's size that were looked at.
    pub scanned: u64,
    /// Superpages made.
    pub collapsed: u64,
    /// Where the next call goes on: vellum_user_end() when there is nothing after it.
    pub next: u64,
}

/// Superpages, folios and reservations since the manager was made.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SuperpageStats {
    /// Superpages mapped by faults.
    pub maps: u64,
    /// Times there was no run of frames for a superpage, or no memory to map it.
    pub failures: u64,
    /// Mappings of superpages that became single pages.
    pub demotions: u64,
    /// Superpages made by vellum_collapse().
    pub collapses: u64,
    /// Superpages that faults made of single pages in place.
    pub promotions: u64,
    /// Runs of frames set aside.
    pub reservations: u64,
    /// Of these, those that were broken because memory had run out.
    pub broken_reservations: u64,
    /// Bytes that are set aside and unused now; approximate while CPUs are at work.
    pub reserved_bytes: u64,
    /// Folios mapped.
    pub folios: u64,
    /// Bytes of these folios.
    pub folio_bytes: u64,
    /// Times there was no run of frames of any size for a folio, or no memory to map it.
    pub folio_failures: u64,
}

/// Says whether the pages of shared memory come in superpages from now on:
/// VELLUM_HUGE_DEFAULT, VELLUM_HUGE_NEVER or VELLUM_HUGE_ALWAYS. Pages that are there stay
/// what they are. With `never` it changes nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_huge_set(
    vm: *mut Manager,
    object: Object,
    huge: u32,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let huge = match huge {
            VELLUM_HUGE_DEFAULT => None,
            VELLUM_HUGE_NEVER => Some(false),
            VELLUM_HUGE_ALWAYS => Some(true),
            _ => return Err(Status::Argument),
        };
        Ok(manager.vm.file(object.id()).set_huge(huge)?)
    };
    Status::of(set())
}

/// Says how many bytes the largest folio has that a first store maps in a range: a page or a
/// power of two of them, and more than 1 MiB is as 1 MiB; 0 for what the design says
/// (`folio=`). With `folio=off` there are none all the same. VELLUM_STATUS_NOT_MAPPED, and
/// nothing has changed, if the range has a hole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_folio_advise(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    folio_bytes: u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            let order = match pages_of(folio_bytes)? {
                0 => None,
                pages if pages.is_power_of_two() => Some(pages.trailing_zeros()),
                _ => return Err(Status::Argument),
            };
            let advice = Advice::Folio(order);
            Ok(manager.vm.space(space.id()).advise(start, pages, advice)?)
        })
    }
}

/// Looks at up to `ranges` ranges of a superpage's size from `start` on, and makes a superpage
/// of each that lies in one private region, has at least `least_bytes` bytes of pages in use,
/// and none that somebody shares or holds. Pages of it that were not in use are zero, and in
/// use then. A task that calls this now and then sets the rate. Without `superpage=eager` or
/// `superpage=reserve` it does nothing.
///
/// VELLUM_STATUS_OUT_OF_MEMORY if there is no run of frames, or no page table: what was made
/// before stays, and `done` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_collapse(
    vm: *mut Manager,
    space: Space,
    start: u64,
    ranges: u64,
    least_bytes: u64,
    done: *mut Collapse,
) -> Status {
    let collapse = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(done)?) };
        // No range has more pages than this says.
        let least = u32::try_from(pages_of(least_bytes)?).unwrap_or(u32::MAX);
        let start = page_at(start)?;
        let did = manager
            .vm
            .space(space.id())
            .collapse(start, ranges, least)?;
        out.set(Collapse {
            scanned: did.scanned,
            collapsed: did.collapsed,
            next: did.next.address::<Paging>(),
        });
        Ok(())
    };
    Status::of(collapse())
}

/// Superpages, folios and reservations; approximate while CPUs are at work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_superpage_stats_get(
    vm: *mut Manager,
    stats: *mut SuperpageStats,
) -> Status {
    let get = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(stats)?) };
        let stats = manager.vm.stats();
        let (events, kept) = (stats.events, stats.frames.reservations);
        out.set(SuperpageStats {
            maps: events.superpage_maps,
            failures: events.superpage_failures,
            demotions: events.superpage_demotions,
            collapses: events.superpage_collapses,
            promotions: events.superpage_promotions,
            reservations: events.reservations,
            broken_reservations: kept.broken,
            reserved_bytes: bytes_of(kept.unused),
            folios: events.folio_maps,
            folio_bytes: bytes_of(events.folio_pages),
            folio_failures: events.folio_failures,
        });
        Ok(())
    };
    Status::of(get())
}

/// Bytes of a superpage: what one entry maps of the tables above the lowest.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_superpage_bytes() -> usize {
    Paging::FRAME_SIZE << Paging::INDEX_BITS
}
