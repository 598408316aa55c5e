//! Address spaces and faults.

use vellum::SpaceId;
use vellum::addr::{Access, Vpn};
use vellum::space::Resolved as How;

use crate::Paging;
use crate::manager::{Manager, Out, named};
use crate::status::Status;

/// An access that loads.
pub const VELLUM_READ: u32 = 0;
/// An access that stores.
pub const VELLUM_WRITE: u32 = 1;
/// An access that fetches an instruction.
pub const VELLUM_EXECUTE: u32 = 2;

/// Names an address space. All bits are zero in no name.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Space {
    /// To be kept and compared, and for nothing else.
    pub bits: u64,
}

impl Space {
    pub(crate) fn id(self) -> SpaceId {
        SpaceId::from_bits(self.bits)
    }

    fn of(id: SpaceId) -> Space {
        Space { bits: id.to_bits() }
    }
}

/// What a CPU needs to run a task of a space.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Loaded {
    /// The tag of the space, for a PCID or an ASID.
    pub tag: u32,
    /// The frame of the root table.
    pub root: u32,
}

/// What a page shows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Translation {
    /// The frame.
    pub frame: u32,
    /// What the entry allows: VELLUM_PROT_READ and so on.
    pub prot: u32,
}

/// What resolving a fault took.
#[derive(Clone, Copy)]
#[repr(C)]
pub enum Resolved {
    /// The page was mapped.
    Mapped = 0,
    /// The entry was there and got the right that was missing.
    Upgraded,
    /// The page was copied, and the copy mapped.
    Copied,
    /// The entry allowed the access already.
    Spurious,
}

pub(crate) fn access_of(number: u32) -> Result<Access, Status> {
    match number {
        VELLUM_READ => Ok(Access::Read),
        VELLUM_WRITE => Ok(Access::Write),
        VELLUM_EXECUTE => Ok(Access::Execute),
        _ => Err(Status::Argument),
    }
}

/// Makes an empty space, with one user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_space_create(vm: *mut Manager, space: *mut Space) -> Status {
    let create = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(space)?) };
        out.set(Space::of(manager.vm.create_space()?.id()));
        Ok(())
    };
    Status::of(create())
}

/// Copies a space: private pages are shared until one side stores to them. Of a failure,
/// entries of the parent may have become write-protected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_fork(vm: *mut Manager, parent: Space, child: *mut Space) -> Status {
    let fork = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(child)?) };
        out.set(Space::of(manager.vm.space(parent.id()).fork()?.id()));
        Ok(())
    };
    Status::of(fork())
}

/// Adds a user to a space: another thread, or a child of vfork().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_space_share(vm: *mut Manager, space: Space) -> Status {
    let share = || {
        // SAFETY: the head of the header.
        let manager = unsafe { named(vm)? };
        Ok(manager.vm.space(space.id()).share()?)
    };
    Status::of(share())
}

/// A user leaves a space; with the last one the space ends, and no CPU may have it loaded
/// then. `ended`, which may be null, gets whether it did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_exit(vm: *mut Manager, space: Space, ended: *mut bool) -> Status {
    let exit = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(ended)) };
        let last = manager.vm.space(space.id()).exit()?;
        if let Ok(out) = out {
            out.set(last);
        }
        Ok(())
    };
    Status::of(exit())
}

/// Loads a space on this CPU, as far as the manager is concerned: from now on this CPU is
/// among those that are flushed. Called before the processor gets the root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_load(
    vm: *mut Manager,
    space: Space,
    loaded: *mut Loaded,
) -> Status {
    let load = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(loaded)?) };
        let loaded = manager.vm.space(space.id()).load()?;
        out.set(Loaded {
            tag: loaded.tag.0,
            root: loaded.root.0,
        });
        Ok(())
    };
    Status::of(load())
}

/// Resolves a page fault of a program: what the trap handler calls. VELLUM_STATUS_OK says that
/// the access is to be tried again. `access` is VELLUM_READ, VELLUM_WRITE or VELLUM_EXECUTE.
/// `resolved`, which may be null, gets what it took. Of a failure, a stack may have been
/// extended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_fault(
    vm: *mut Manager,
    space: Space,
    address: u64,
    access: u32,
    resolved: *mut Resolved,
) -> Status {
    let fault = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(resolved)) };
        let how = manager
            .vm
            .space(space.id())
            .fault(address, access_of(access)?)?;
        if let Ok(out) = out {
            out.set(match how {
                How::Mapped => Resolved::Mapped,
                How::Upgraded => Resolved::Upgraded,
                How::Copied => Resolved::Copied,
                How::Spurious => Resolved::Spurious,
            });
        }
        Ok(())
    };
    Status::of(fault())
}

/// What the page of an address shows, by a walk of the page tables as the processor does it.
/// VELLUM_STATUS_NOT_MAPPED if no entry is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_translate(
    vm: *mut Manager,
    space: Space,
    address: u64,
    translation: *mut Translation,
) -> Status {
    let translate = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(translation)?) };
        let page = Vpn::of::<Paging>(address);
        // The same for both: it is asked of addresses.
        let found = manager.vm.space(space.id()).translate(page);
        let (frame, prot) = found.map_err(|_| Status::NotMapped)?;
        out.set(Translation {
            frame: frame.0,
            prot: crate::regions::bits_of(prot),
        });
        Ok(())
    };
    Status::of(translate())
}
