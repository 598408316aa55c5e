//! Mapping, and changing what is mapped.

use core::ffi::c_void;

use vellum::addr::{Geometry, MemoryType, Pfn, Prot, Vpn};
use vellum::object::ObjectKind;
use vellum::space::{
    Advice, Limits as SpaceLimits, MapEntry, MapRequest as Request, Placement, RemapPlacement,
};
use vellum::space::{Source, Traits};

use crate::Paging;
use crate::manager::{Manager, Out, named, page_at, pages_of};
use crate::objects::Object;
use crate::spaces::Space;
use crate::status::Status;

/// The right to load.
pub const VELLUM_PROT_READ: u32 = 1;
/// The right to store.
pub const VELLUM_PROT_WRITE: u32 = 2;
/// The right to fetch instructions.
pub const VELLUM_PROT_EXECUTE: u32 = 4;
/// Write-combining, for frame buffers, instead of write-back.
pub const VELLUM_PROT_WRITE_COMBINING: u32 = 0x10;
/// Uncached, for registers of devices.
pub const VELLUM_PROT_UNCACHED: u32 = 0x20;

/// Stores are seen by all who map the object. Without an object: memory that a fork shares.
pub const VELLUM_MAP_SHARED: u32 = 1;
/// A stack: a fault below it extends it.
pub const VELLUM_MAP_GROWS_DOWN: u32 = 2;
/// The heap that vellum_brk() moves; in `struct vellum_region` only.
pub const VELLUM_MAP_HEAP: u32 = 4;
/// Its pages stay in memory once they are there, as after vellum_lock_pages().
pub const VELLUM_MAP_LOCKED: u32 = 8;
/// It stays as it is, after vellum_seal(); in `struct vellum_region` only.
pub const VELLUM_MAP_SEALED: u32 = 16;
/// A forked child has nothing there, after VELLUM_DONT_FORK; like the next ones in
/// `struct vellum_region` only.
pub const VELLUM_MAP_NOT_FORKED: u32 = 128;
/// A forked child finds zeroes there, after VELLUM_WIPE_ON_FORK.
pub const VELLUM_MAP_WIPED_BY_FORK: u32 = 256;
/// Superpages are wanted, after VELLUM_HUGE.
pub const VELLUM_MAP_HUGE: u32 = 512;
/// Superpages and folios are not wanted, after VELLUM_NO_HUGE.
pub const VELLUM_MAP_NOT_HUGE: u32 = 1024;
/// Pages are used in turn, after VELLUM_SEQUENTIAL.
pub const VELLUM_MAP_SEQUENTIAL: u32 = 8192;
/// Pages are used in no order, after VELLUM_RANDOM.
pub const VELLUM_MAP_RANDOM: u32 = 16384;

/// It shows frames in a row that the manager does not manage, a device's or some of
/// vellum_frames_reserve(): `offset` is the physical address of its first byte, and `object` is
/// none. VELLUM_STATUS_UNMANAGED if they are the manager's. All entries are made at once.
pub const VELLUM_MAP_FRAMES: u32 = 32;
/// Faults make the entries of VELLUM_MAP_FRAMES; in requests only.
pub const VELLUM_MAP_ON_FAULT: u32 = 64;
/// Nothing is charged of what is promised before it is used, unless vellum_commit_never() says so.
pub const VELLUM_MAP_NO_RESERVE: u32 = 2048;
/// Its pages are charged with `commit=`; in `struct vellum_region` only.
pub const VELLUM_MAP_COMMITTED: u32 = 4096;

/// In the highest gap that is wide enough.
pub const VELLUM_ANYWHERE: u32 = 0;
/// At the address if that is free, or else in the highest gap.
pub const VELLUM_HINT: u32 = 1;
/// At the address, in place of whatever is mapped there.
pub const VELLUM_FIXED: u32 = 2;
/// At the address, if nothing is mapped there.
pub const VELLUM_FIXED_FREE: u32 = 3;
/// In the highest gap, at a multiple of the address, which is a power of two.
pub const VELLUM_ALIGNED: u32 = 4;
/// Of vellum_remap(): in a gap, and what the pages leave stays mapped (MREMAP_DONTUNMAP).
pub const VELLUM_LEAVE: u32 = 5;
/// Of vellum_remap(): the same, at the address.
pub const VELLUM_LEAVE_FOR: u32 = 6;
/// Of vellum_remap(): all regions of the range go to the address, with the gaps between them.
pub const VELLUM_ALL_TO: u32 = 7;

/// Unmap the pages of a range: private ones read as zeroes, or as the object, afterwards.
pub const VELLUM_DONT_NEED: u32 = 0;
/// Private pages may be dropped until they are stored to again: they then read as zeroes.
pub const VELLUM_FREE: u32 = 1;
/// Pages are not needed soon: they count as not used, and leave memory before those that are.
pub const VELLUM_COLD: u32 = 2;
/// Write private pages and those of shared memory to swap now.
pub const VELLUM_PAGE_OUT: u32 = 3;
/// From now on a forked child has nothing there (MADV_DONTFORK).
pub const VELLUM_DONT_FORK: u32 = 4;
/// Ends VELLUM_DONT_FORK.
pub const VELLUM_DO_FORK: u32 = 5;
/// From now on a forked child finds zeroes there: private memory without an object.
pub const VELLUM_WIPE_ON_FORK: u32 = 6;
/// Ends VELLUM_WIPE_ON_FORK.
pub const VELLUM_KEEP_ON_FORK: u32 = 7;
/// Superpages are wanted, for the design superpage=advise.
pub const VELLUM_HUGE: u32 = 8;
/// Superpages and folios are not wanted.
pub const VELLUM_NO_HUGE: u32 = 9;
/// Ends VELLUM_SEQUENTIAL and VELLUM_RANDOM.
pub const VELLUM_NORMAL: u32 = 10;
/// Pages are used in turn: a fault has those after its own read from the file, too.
pub const VELLUM_SEQUENTIAL: u32 = 11;
/// Pages are used in no order: a fault has its page alone read.
pub const VELLUM_RANDOM: u32 = 12;
/// Pages are needed soon: those of files are read, and those in swap.
pub const VELLUM_WILL_NEED: u32 = 13;
/// Map every page as a load does.
pub const VELLUM_POPULATE_READ: u32 = 14;
/// Map every page as a store does.
pub const VELLUM_POPULATE_WRITE: u32 = 15;
/// Make a hole in the object that is mapped, shared.
pub const VELLUM_REMOVE: u32 = 16;
/// Drop the pages and have every access to them fail, without a region of their own.
pub const VELLUM_GUARD_INSTALL: u32 = 17;
/// End guards.
pub const VELLUM_GUARD_REMOVE: u32 = 18;

/// What to map, and where. Zero in every field but `bytes` and `prot` asks for private zeroes
/// anywhere.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MapRequest {
    /// How much.
    pub bytes: u64,
    /// VELLUM_PROT_READ and so on.
    pub prot: u32,
    /// VELLUM_MAP_SHARED and so on.
    pub flags: u32,
    /// VELLUM_ANYWHERE, VELLUM_HINT, VELLUM_FIXED, VELLUM_FIXED_FREE or VELLUM_ALIGNED.
    pub placement: u32,
    /// For all but VELLUM_ANYWHERE.
    pub address: u64,
    /// What is shown; zeroes if `bits` is 0.
    pub object: Object,
    /// From which byte of the object on; with VELLUM_MAP_FRAMES, the physical address.
    pub offset: u64,
    /// A word of the caller's own: regions are united only if theirs are equal.
    pub tag: u64,
    /// Rights that it never gets, VELLUM_PROT_READ and so on, whatever vellum_protect() is asked:
    /// those without which a file was opened.
    pub barred: u32,
}

/// A region of a space.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Region {
    /// Address of its first byte.
    pub start: u64,
    /// How much.
    pub bytes: u64,
    /// VELLUM_PROT_READ and so on.
    pub prot: u32,
    /// VELLUM_MAP_SHARED and so on.
    pub flags: u32,
    /// What it shows; `bits` is 0 for private zeroes.
    pub object: Object,
    /// Which byte of the object is the region's first; with VELLUM_MAP_FRAMES, its physical address.
    pub offset: u64,
    /// The backing store of the object, if it is a file.
    pub store: u64,
    /// Whether it is.
    pub is_file: bool,
    /// The word that its request had.
    pub tag: u64,
    /// Rights that it never gets, VELLUM_PROT_READ and so on.
    pub barred: u32,
}

/// What a space may have at most.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Limits {
    /// Bytes of all regions together.
    pub bytes: u64,
    /// Bytes that a stack may grow to.
    pub stack_bytes: u64,
    /// Bytes that stay free below a stack.
    pub stack_gap_bytes: u64,
    /// Bytes of all locked regions together.
    pub locked_bytes: u64,
    /// Bytes of all regions together that are private, can be written and are no stack.
    pub data_bytes: u64,
    /// Regions.
    pub regions: u32,
    /// Whether what vellum_commit_never() reserves for administrators is for the space, too.
    pub is_admin: bool,
}

pub(crate) fn bits_of(prot: Prot) -> u32 {
    u32::from(prot.bits())
}

fn prot_of(bits: u32) -> Result<Prot, Status> {
    let memory = match bits & !RIGHTS {
        0 => MemoryType::WriteBack,
        VELLUM_PROT_WRITE_COMBINING => MemoryType::WriteCombining,
        VELLUM_PROT_UNCACHED => MemoryType::Uncached,
        _ => return Err(Status::Argument),
    };
    Ok(Prot::from_bits((bits & RIGHTS) as u8).with_type(memory))
}

fn placement_of(number: u32, address: u64) -> Result<Placement, Status> {
    match number {
        VELLUM_ANYWHERE => Ok(Placement::Anywhere),
        VELLUM_HINT => Ok(Placement::Hint(page_at(address)?)),
        VELLUM_FIXED => Ok(Placement::Fixed(page_at(address)?)),
        VELLUM_FIXED_FREE => Ok(Placement::FixedFree(page_at(address)?)),
        VELLUM_ALIGNED if address.is_power_of_two() => {
            Ok(Placement::Aligned(page_at(address)?.0.trailing_zeros()))
        }
        _ => Err(Status::Argument),
    }
}

fn remap_placement_of(number: u32, address: u64) -> Result<RemapPlacement, Status> {
    match number {
        VELLUM_ANYWHERE => Ok(RemapPlacement::MayMove),
        VELLUM_HINT | VELLUM_FIXED_FREE => Ok(RemapPlacement::InPlace),
        VELLUM_FIXED => Ok(RemapPlacement::Fixed(page_at(address)?)),
        VELLUM_LEAVE => Ok(RemapPlacement::Leave),
        VELLUM_LEAVE_FOR => Ok(RemapPlacement::LeaveFor(page_at(address)?)),
        VELLUM_ALL_TO => Ok(RemapPlacement::AllTo(page_at(address)?)),
        _ => Err(Status::Argument),
    }
}

/// All rights.
const RIGHTS: u32 = VELLUM_PROT_READ | VELLUM_PROT_WRITE | VELLUM_PROT_EXECUTE;

const FLAGS: [(u32, Traits); 14] = [
    (VELLUM_MAP_NO_RESERVE, Traits::NO_RESERVE),
    (VELLUM_MAP_COMMITTED, Traits::COMMITTED),
    (VELLUM_MAP_SHARED, Traits::SHARED),
    (VELLUM_MAP_GROWS_DOWN, Traits::GROWS_DOWN),
    (VELLUM_MAP_HEAP, Traits::HEAP),
    (VELLUM_MAP_LOCKED, Traits::LOCKED),
    (VELLUM_MAP_SEALED, Traits::SEALED),
    (VELLUM_MAP_FRAMES, Traits::UNMANAGED),
    (VELLUM_MAP_NOT_FORKED, Traits::NOT_FORKED),
    (VELLUM_MAP_WIPED_BY_FORK, Traits::WIPED_BY_FORK),
    (VELLUM_MAP_HUGE, Traits::HUGE),
    (VELLUM_MAP_NOT_HUGE, Traits::NOT_HUGE),
    (VELLUM_MAP_SEQUENTIAL, Traits::SEQUENTIAL),
    (VELLUM_MAP_RANDOM, Traits::RANDOM),
];

const ADVICE: [(u32, Advice); 19] = [
    (VELLUM_DONT_NEED, Advice::DontNeed),
    (VELLUM_FREE, Advice::Free),
    (VELLUM_COLD, Advice::Cold),
    (VELLUM_PAGE_OUT, Advice::PageOut),
    (VELLUM_DONT_FORK, Advice::DontFork),
    (VELLUM_DO_FORK, Advice::DoFork),
    (VELLUM_WIPE_ON_FORK, Advice::WipeOnFork),
    (VELLUM_KEEP_ON_FORK, Advice::KeepOnFork),
    (VELLUM_HUGE, Advice::Huge),
    (VELLUM_NO_HUGE, Advice::NoHuge),
    (VELLUM_NORMAL, Advice::Normal),
    (VELLUM_SEQUENTIAL, Advice::Sequential),
    (VELLUM_RANDOM, Advice::Random),
    (VELLUM_WILL_NEED, Advice::WillNeed),
    (VELLUM_POPULATE_READ, Advice::PopulateRead),
    (VELLUM_POPULATE_WRITE, Advice::PopulateWrite),
    (VELLUM_REMOVE, Advice::Remove),
    (VELLUM_GUARD_INSTALL, Advice::InstallGuards),
    (VELLUM_GUARD_REMOVE, Advice::RemoveGuards),
];

/// Flags that a request may have.
const REQUESTED: u32 =
    VELLUM_MAP_SHARED | VELLUM_MAP_GROWS_DOWN | VELLUM_MAP_LOCKED | VELLUM_MAP_NO_RESERVE | FRAMES;
/// Those that say what it shows.
const FRAMES: u32 = VELLUM_MAP_FRAMES | VELLUM_MAP_ON_FAULT;

fn request_of(request: &MapRequest) -> Result<Request, Status> {
    if request.flags & !REQUESTED != 0 {
        return Err(Status::Argument);
    }
    if request.barred & !RIGHTS != 0 {
        return Err(Status::Argument);
    }
    let asked = (FLAGS.iter()).filter(|(bit, _)| request.flags & !FRAMES & bit != 0);
    let source = match request.object.bits {
        0 if request.flags & VELLUM_MAP_FRAMES != 0 => Source::Frames {
            first: frame_at(request.offset)?,
            at_once: request.flags & VELLUM_MAP_ON_FAULT == 0,
        },
        _ if request.flags & FRAMES != 0 => return Err(Status::Argument),
        0 if request.offset != 0 => return Err(Status::Argument),
        0 => Source::Anonymous,
        _ => Source::Object {
            id: request.object.id(),
            page: pages_of(request.offset)?,
        },
    };
    let most = Prot::from_bits((RIGHTS & !request.barred) as u8);
    let asked = Request {
        pages: pages_of(request.bytes)?,
        prot: prot_of(request.prot)?,
        traits: asked.fold(Traits::NONE, |all, (_, one)| all.union(*one)),
        source,
        placement: placement_of(request.placement, request.address)?,
        tag: request.tag,
    };
    Ok(asked.at_most(most))
}

/// The frame at a physical address.
fn frame_at(address: u64) -> Result<Pfn, Status> {
    let frame = u32::try_from(pages_of(address)?);
    frame.map(Pfn).map_err(|_| Status::Unmanaged)
}

pub(crate) fn bytes_of(pages: u64) -> u64 {
    pages.saturating_mul(Paging::FRAME_SIZE as u64)
}

fn region_of(entry: &MapEntry) -> Region {
    let set = FLAGS.iter().filter(|(_, one)| entry.traits.has(*one));
    let (object, offset, store) = match entry.object {
        None => (Object { bits: 0 }, 0, None),
        Some((id, ObjectKind::SharedMemory, page)) => (Object::of(id), bytes_of(page), None),
        Some((id, ObjectKind::File { store }, page)) => {
            (Object::of(id), bytes_of(page), Some(store))
        }
        Some((_, ObjectKind::Unmanaged { first, .. }, page)) => (
            Object { bits: 0 },
            bytes_of(u64::from(first.0) + page),
            None,
        ),
    };
    Region {
        start: entry.range.start.address::<Paging>(),
        bytes: bytes_of(entry.range.pages()),
        prot: bits_of(entry.prot),
        flags: set.fold(0, |all, (bit, _)| all | bit),
        object,
        offset,
        store: store.unwrap_or(0),
        is_file: store.is_some(),
        tag: entry.tag,
        barred: RIGHTS & !bits_of(entry.traits.most()),
    }
}

/// Maps memory; `address` gets where.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_map(
    vm: *mut Manager,
    space: Space,
    request: *const MapRequest,
    address: *mut u64,
) -> Status {
    let map = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(address)?) };
        // SAFETY: as above.
        let request = unsafe { request.as_ref() }.ok_or(Status::Argument)?;
        let page = manager.vm.space(space.id()).map(&request_of(request)?)?;
        out.set(page.address::<Paging>());
        Ok(())
    };
    Status::of(map())
}

/// A call for a range of pages.
///
/// # Safety
/// As for all calls from C.
pub(crate) unsafe fn on_range(
    vm: *mut Manager,
    (address, bytes): (u64, u64),
    call: impl FnOnce(&Manager, Vpn, u64) -> Result<(), Status>,
) -> Status {
    let call = || {
        // SAFETY: the caller's promise.
        let manager = unsafe { named(vm)? };
        call(manager, page_at(address)?, pages_of(bytes)?)
    };
    Status::of(call())
}

/// Unmaps whatever is mapped in a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_unmap(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            Ok(manager.vm.space(space.id()).unmap(start, pages)?)
        })
    }
}

/// Sets the rights of a range, all of which is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_protect(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    prot: u32,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            Ok(manager
                .vm
                .space(space.id())
                .protect(start, pages, prot_of(prot)?)?)
        })
    }
}

/// Maps the pages of a range now: as stores would where memory is private and may be stored to,
/// as loads would elsewhere. Of a failure, those before stay mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_populate(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            Ok(manager.vm.space(space.id()).populate(start, pages)?)
        })
    }
}

/// Locks a range: pages that are in memory stay there, and so do those that come later.
/// vellum_populate() brings them in; both calls together are mlock(). vellum_remap() keeps it,
/// unmapping ends it, and a forked child has none of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_lock_pages(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            Ok(manager.vm.space(space.id()).lock(start, pages)?)
        })
    }
}

/// Lets pages of a range leave memory again, however often they were locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_unlock_pages(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            Ok(manager.vm.space(space.id()).unlock(start, pages)?)
        })
    }
}

/// Gives advice on a range: VELLUM_DONT_NEED and so on.
/// VELLUM_STATUS_NOT_MAPPED if the range has a hole; nothing changed by advice for what comes
/// later and on guards, and the mapped parts were treated all the same by other advice.
/// VELLUM_STATUS_LOCKED if part of it is locked, by advice that drops pages; nothing changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_advise(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    advice: u32,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            let found = ADVICE.iter().find(|(number, _)| *number == advice);
            let (_, advice) = *found.ok_or(Status::Argument)?;
            Ok(manager.vm.space(space.id()).advise(start, pages, advice)?)
        })
    }
}

/// Resizes a mapping of `bytes` bytes at `address`, which lies in one region. VELLUM_FIXED
/// moves it to `to`; VELLUM_ANYWHERE moves it if it cannot grow where it is; VELLUM_HINT and
/// VELLUM_FIXED_FREE keep it in place, whatever `to` is. With VELLUM_LEAVE, VELLUM_LEAVE_FOR and
/// VELLUM_ALL_TO the size stays. If `bytes` is 0, what a shared mapping shows from `address` on is
/// mapped once more. `moved_to` gets where it is afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_remap(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    new_bytes: u64,
    placement: u32,
    to: u64,
    moved_to: *mut u64,
) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (address, bytes), |manager, start, pages| {
            let out = Out::new(moved_to)?;
            let placement = remap_placement_of(placement, to)?;
            let space = manager.vm.space(space.id());
            let remapped = space.remap(start, pages, pages_of(new_bytes)?, placement)?;
            out.set(remapped.range.start.address::<Paging>());
            Ok(())
        })
    }
}

/// Says where the heap of a space begins, which is empty then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_heap_start(vm: *mut Manager, space: Space, start: u64) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (start, 0), |manager, start, _| {
            Ok(manager.vm.space(space.id()).set_heap_start(start)?)
        })
    }
}

/// Moves the end of the heap, which maps or unmaps private zeroes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_brk(vm: *mut Manager, space: Space, end: u64) -> Status {
    // SAFETY: the head of the header.
    unsafe {
        on_range(vm, (end, 0), |manager, end, _| {
            Ok(manager.vm.space(space.id()).set_heap_end(end)?)
        })
    }
}

/// Sets what a space may have. What it has already stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_limits_set(
    vm: *mut Manager,
    space: Space,
    limits: *const Limits,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        // SAFETY: as above.
        let limits = unsafe { limits.as_ref() }.ok_or(Status::Argument)?;
        let pages = |bytes| Vpn::of::<Paging>(bytes).0;
        let limits = SpaceLimits {
            pages: pages(limits.bytes),
            regions: limits.regions,
            stack_pages: pages(limits.stack_bytes),
            stack_gap_pages: pages(limits.stack_gap_bytes),
            locked_pages: pages(limits.locked_bytes),
            data_pages: pages(limits.data_bytes),
            is_admin: limits.is_admin,
        };
        Ok(manager.vm.space(space.id()).set_limits(limits)?)
    };
    Status::of(set())
}

/// The region that holds an address, found without a lock. VELLUM_STATUS_NO_REGION if there is
/// none, or no such space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_region_at(
    vm: *mut Manager,
    space: Space,
    address: u64,
    region: *mut Region,
) -> Status {
    let find = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(region)?) };
        let page = Vpn::of::<Paging>(address);
        // The same for both: it is asked of addresses.
        let found = manager.vm.space(space.id()).region_at(page);
        out.set(region_of(&found.map_err(|_| Status::NoRegion)?));
        Ok(())
    };
    Status::of(find())
}

/// Calls `each` for every region of a space, ascending, with `context`. The space's lock is
/// held meanwhile: `each` must not call the manager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_regions_each(
    vm: *mut Manager,
    space: Space,
    each: Option<unsafe extern "C" fn(context: *mut c_void, region: *const Region)>,
    context: *mut c_void,
) -> Status {
    let visit = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        let each = each.ok_or(Status::Argument)?;
        let visit = |entry: &MapEntry| {
            let region = region_of(entry);
            // SAFETY: the caller's function, with a region that lives until it returns.
            unsafe { each(context, &raw const region) }
        };
        Ok(manager.vm.space(space.id()).for_each_region(visit)?)
    };
    Status::of(visit())
}
