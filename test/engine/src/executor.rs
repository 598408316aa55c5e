//! The operations that traces hold, on a core over any platform.
//!
//! `vellum-scale` compiles this file once more, for simulated CPUs.

use std::sync::atomic::Ordering;

use vellum::addr::{PageRange, Vpn};
use vellum::platform::{GroupId, Platform};
use vellum::rmap::ReverseMap;
use vellum::space::{
    FaultError, FileError, MapError, MapRequest, Placement, Resolved, Source, Traits,
};
use vellum::table::Format;
use vellum::{ObjectId, SpaceId, Vm};

use crate::op::{
    Access, Advice, Backing, Divergence, FileSlot, Op, OpError, Prot, Sharing, SpaceSlot,
    written_word,
};
use crate::slots::Names;

pub(crate) fn access(access: Access) -> vellum::addr::Access {
    match access {
        Access::Read => vellum::addr::Access::Read,
        Access::Write => vellum::addr::Access::Write,
        Access::Execute => vellum::addr::Access::Execute,
    }
}

fn prot(prot: Prot) -> vellum::addr::Prot {
    use vellum::addr::Prot as P;
    [
        (prot.read, P::READ),
        (prot.write, P::WRITE),
        (prot.execute, P::EXECUTE),
    ]
    .into_iter()
    .filter(|(allowed, _)| *allowed)
    .fold(P::NONE, |all, (_, right)| all.union(right))
}

pub(crate) fn fault_error(error: FaultError) -> OpError {
    match error {
        FaultError::NoSpace => OpError::BadSpace,
        FaultError::NoObject => OpError::BadFile,
        FaultError::NoRegion => OpError::NoRegion,
        FaultError::Protection => OpError::Protection,
        FaultError::PastEnd => OpError::PastEnd,
        FaultError::OutOfMemory | FaultError::Full => OpError::OutOfMemory,
        FaultError::GroupLimit(_) => OpError::GroupLimit,
        FaultError::Io => OpError::Io,
    }
}

pub(crate) fn file_error(error: FileError) -> OpError {
    match error {
        FileError::NoObject | FileError::NoMount => OpError::BadFile,
        FileError::TooLarge => OpError::Invalid,
        FileError::NoData => OpError::PastEnd,
        FileError::Full | FileError::OutOfMemory => OpError::OutOfMemory,
        FileError::GroupLimit(_) => OpError::GroupLimit,
        FileError::Io => OpError::Io,
    }
}

pub(crate) fn map_error(error: MapError) -> OpError {
    match error {
        MapError::NoSpace => OpError::BadSpace,
        MapError::NoObject => OpError::BadFile,
        MapError::NotMapped => OpError::NoRegion,
        MapError::BadRange
        | MapError::Occupied
        | MapError::NoGap
        | MapError::Locked
        | MapError::WrongKind
        | MapError::Pinned
        | MapError::Loaded => OpError::Invalid,
        MapError::Limit | MapError::OutOfMemory => OpError::OutOfMemory,
        MapError::GroupLimit(_) => OpError::GroupLimit,
    }
}

/// How an operation that succeeded went otherwise than recorded, if it did.
pub(crate) type Executed = Result<Option<Divergence>, OpError>;

pub(crate) const DONE: Executed = Ok(None);

/// A core, and its names for the spaces and files of a workload. Every CPU of the core may
/// execute operations with it at the same time.
pub(crate) struct Executor<'e, P: Platform, F: Format, R: ReverseMap> {
    pub(crate) vm: &'e Vm<P, F, R>,
    pub(crate) names: &'e Names,
}

impl<P: Platform, F: Format, R: ReverseMap> Clone for Executor<'_, P, F, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Copy for Executor<'_, P, F, R> {}

impl<P: Platform, F: Format, R: ReverseMap> Executor<'_, P, F, R> {
    pub(crate) fn space(self, slot: SpaceSlot) -> Result<SpaceId, OpError> {
        match self.names.spaces.get(slot.0) {
            0 => Err(OpError::BadSpace),
            bits => Ok(SpaceId::from_bits(bits)),
        }
    }

    pub(crate) fn file(self, slot: FileSlot) -> Result<ObjectId, OpError> {
        match self.names.files.get(slot.0) {
            0 => Err(OpError::BadFile),
            bits => Ok(ObjectId::from_bits(bits)),
        }
    }

    /// Ends every space and file that is left.
    pub(crate) fn clear(self) {
        for (slot, bits) in self.names.spaces.each() {
            while self.vm.exit(SpaceId::from_bits(bits)) == Ok(false) {}
            if let Some(word) = self.names.spaces.word(slot) {
                word.store(0, Ordering::Release);
            }
        }
        for (slot, bits) in self.names.files.each() {
            let _ = self.vm.release_object(ObjectId::from_bits(bits));
            if let Some(word) = self.names.files.word(slot) {
                word.store(0, Ordering::Release);
            }
        }
    }

    fn create_space(self) -> Result<SpaceId, OpError> {
        let id = self.vm.create_space().map_err(map_error)?;
        if self.names.group != GroupId::ROOT {
            let moved = self.vm.set_group(id, self.names.group);
            moved.map_err(|_| OpError::BadSpace)?;
        }
        Ok(id)
    }

    /// Executes one operation.
    #[inline]
    pub(crate) fn execute(self, op: &Op) -> Executed {
        match *op {
            Op::Touch {
                space,
                page,
                access: kind,
            } => {
                let id = self.space(space)?;
                let address = Vpn(page).address::<F>();
                match self.vm.fault(id, address, access(kind)) {
                    Ok(Resolved::Spurious) => Ok(Some(self.mapped_by(id, Vpn(page)))),
                    Ok(_) => DONE,
                    Err(error) => Err(fault_error(error)),
                }
            }
            Op::Create { space } => {
                let id = self.create_space()?;
                self.name_space(space, id)
            }
            Op::Fork { parent, child } => {
                let id = self.vm.fork(self.space(parent)?).map_err(map_error)?;
                self.name_space(child, id)
            }
            Op::Share { space } => {
                let shared = self.vm.share_space(self.space(space)?);
                if shared { DONE } else { Err(OpError::BadSpace) }
            }
            Op::Exec { old, new } => {
                let id = self.create_space()?;
                self.leave(old)?;
                self.name_space(new, id)
            }
            Op::Exit { space } => self.leave(space),
            Op::Map { .. } | Op::Unmap { .. } | Op::Protect { .. } | Op::Remap { .. } => {
                self.change(op)
            }
            Op::Brk { space, start, end } => self.set_heap(space, Vpn(start), Vpn(end)),
            Op::Advise {
                space,
                page,
                pages,
                advice,
            } => {
                let advice = match advice {
                    Advice::DontNeed => vellum::space::Advice::DontNeed,
                    Advice::Free => vellum::space::Advice::Free,
                    Advice::Cold => vellum::space::Advice::Cold,
                    Advice::PageOut => vellum::space::Advice::PageOut,
                    Advice::Folio(order) => vellum::space::Advice::Folio(order),
                };
                let id = self.space(space)?;
                self.vm
                    .advise(id, Vpn(page), pages, advice)
                    .map_err(map_error)?;
                DONE
            }
            Op::FileOpen { file, pages } => {
                self.open_file(file, || self.vm.create_file(u64::from(file.0), pages))
            }
            Op::TmpfsOpen { file, pages } => {
                self.open_file(file, || self.vm.create_shared_memory(pages))
            }
            Op::FileRead { file, page, pages } => {
                self.vm
                    .read_pages(self.file(file)?, page, pages, |_, _| {})
                    .map_err(file_error)?;
                DONE
            }
            Op::FileWrite { file, page, pages } => {
                let (key, id) = (u64::from(file.0), self.file(file)?);
                let mut written = 0;
                while written < pages {
                    written += self
                        .vm
                        .write_pages(id, page + written, pages - written, |index, bytes| {
                            bytes.fill(written_word(key, index));
                        })
                        .map_err(file_error)?;
                }
                DONE
            }
            Op::Truncate { file, pages } => {
                // A recorded file may be longer than an object can be, and is then as long as
                // that, as one that is opened so long.
                let most = Vm::<P, F, R>::MAX_SIZE;
                let size = match pages > most >> F::FRAME_SHIFT {
                    true => most,
                    false => pages << F::FRAME_SHIFT,
                };
                self.vm
                    .set_size(self.file(file)?, size)
                    .map_err(file_error)?;
                DONE
            }
            Op::ScanSpace { space, page, pages } => {
                let range = PageRange::new(Vpn(page), pages);
                let scanned = self.vm.scan_space(self.space(space)?, range);
                scanned.map(|_| None).ok_or(OpError::BadSpace)
            }
            Op::ScanFile { file, page, pages } => {
                let scanned = self.vm.scan_object(self.file(file)?, page, pages);
                scanned.map(|_| None).ok_or(OpError::BadFile)
            }
            Op::Idle { frames } => {
                for _ in 0..frames {
                    if !self.vm.idle() {
                        break;
                    }
                }
                self.vm.zero_idle(frames);
                DONE
            }
            // These are the engine's own: buffers, caches and clocks of the host.
            Op::Call(_) | Op::EmptyCaches | Op::Lap { .. } => Err(OpError::Invalid),
        }
    }

    /// What a fault found that was not needed.
    #[cold]
    fn mapped_by(self, id: SpaceId, page: Vpn) -> Divergence {
        if self.vm.came_in_superpage(id, page) {
            Divergence::MappedLarge
        } else if self.vm.came_in_folio(id, page) {
            Divergence::MappedFolio
        } else {
            Divergence::AlreadyMapped
        }
    }

    /// The calls that change regions.
    fn change(self, op: &Op) -> Executed {
        match *op {
            Op::Map {
                space,
                page,
                pages,
                prot: rights,
                sharing,
                backing,
                grows_down,
            } => {
                let mut traits = Traits::NONE;
                if sharing == Sharing::Shared {
                    traits = traits.union(Traits::SHARED);
                }
                if grows_down {
                    traits = traits.union(Traits::GROWS_DOWN);
                }
                let source = match backing {
                    Backing::Anonymous => Source::Anonymous,
                    Backing::File { file, page } => Source::Object {
                        id: self.file(file)?,
                        page,
                    },
                };
                let request = MapRequest {
                    pages,
                    prot: prot(rights),
                    traits,
                    source,
                    placement: Placement::Fixed(Vpn(page)),
                };
                self.vm
                    .map(self.space(space)?, &request)
                    .map_err(map_error)?;
            }
            Op::Unmap { space, page, pages } => {
                self.vm
                    .unmap(self.space(space)?, Vpn(page), pages)
                    .map_err(map_error)?;
            }
            Op::Protect {
                space,
                page,
                pages,
                prot: rights,
            } => {
                self.vm
                    .protect(self.space(space)?, Vpn(page), pages, prot(rights))
                    .map_err(map_error)?;
            }
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => {
                let placement = if new_page == page {
                    Placement::FixedFree(Vpn(page))
                } else {
                    Placement::Fixed(Vpn(new_page))
                };
                self.vm
                    .remap(self.space(space)?, Vpn(page), pages, new_pages, placement)
                    .map_err(map_error)?;
            }
            _ => return Err(OpError::Invalid),
        }
        DONE
    }

    fn name_space(self, slot: SpaceSlot, id: SpaceId) -> Executed {
        let Some(word) = self.names.spaces.word(slot.0) else {
            let _ = self.vm.exit(id);
            return Err(OpError::BadSpace);
        };
        let taken = word.compare_exchange(0, id.to_bits(), Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            let _ = self.vm.exit(id);
            return Err(OpError::BadSpace);
        }
        DONE
    }

    /// A task leaves the space in a slot, which is empty after the last one.
    fn leave(self, slot: SpaceSlot) -> Executed {
        let id = self.space(slot)?;
        if self.vm.exit(id).map_err(map_error)?
            && let Some(word) = self.names.spaces.word(slot.0)
        {
            word.store(0, Ordering::Release);
        }
        DONE
    }

    fn set_heap(self, space: SpaceSlot, start: Vpn, end: Vpn) -> Executed {
        let id = self.space(space)?;
        let heap = self.vm.heap(id).ok_or(OpError::BadSpace)?;
        if heap.start != start {
            self.vm.set_heap_start(id, start).map_err(map_error)?;
        }
        self.vm.set_heap_end(id, end).map_err(map_error)?;
        DONE
    }

    fn open_file(
        self,
        slot: FileSlot,
        create: impl FnOnce() -> Result<ObjectId, MapError>,
    ) -> Executed {
        let word = self.names.files.word(slot.0).ok_or(OpError::BadFile)?;
        if word.load(Ordering::Acquire) != 0 {
            return DONE;
        }
        let id = create().map_err(map_error)?;
        let taken = word.compare_exchange(0, id.to_bits(), Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            let _ = self.vm.release_object(id);
        }
        DONE
    }
}
