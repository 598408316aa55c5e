//! The operations that traces hold, on a core over any platform.
//!
//! `vellum-scale` compiles this file once more, for simulated CPUs.

use std::sync::atomic::Ordering;

use vellum::addr::{PageRange, Vpn};
use vellum::platform::{GroupId, Platform};
use vellum::rmap::ReverseMap;
use vellum::space::{
    FaultError, File, FileError, FileRequest, Layout, MapError, MapRequest, Placement, ReadRequest,
    RemapPlacement, Resolved, Source, Space, Traits, WriteRequest,
};
use vellum::table::Format;
use vellum::{ObjectId, SpaceId, Vm, probe};

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
        FaultError::Unmanaged => OpError::Invalid,
        FaultError::PastEnd => OpError::PastEnd,
        FaultError::OutOfMemory | FaultError::Full => OpError::OutOfMemory,
        FaultError::GroupLimit(_) => OpError::GroupLimit,
        FaultError::Io | FaultError::Lost => OpError::Io,
        // No operation gives a range hooks.
        FaultError::Hooked(_) => OpError::Protection,
    }
}

pub(crate) fn file_error(error: FileError) -> OpError {
    match error {
        FileError::NoObject | FileError::NoMount => OpError::BadFile,
        FileError::TooLarge
        | FileError::Sealed
        | FileError::Busy
        | FileError::WrongKind
        | FileError::BadNodes
        | FileError::Pinned => OpError::Invalid,
        FileError::NoData => OpError::PastEnd,
        FileError::Full | FileError::OutOfMemory | FileError::CommitLimit => OpError::OutOfMemory,
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
        | MapError::BadNodes
        | MapError::Rights
        | MapError::Sealed
        | MapError::Managed
        | MapError::Pinned
        | MapError::Loaded => OpError::Invalid,
        MapError::Limit | MapError::OutOfMemory | MapError::CommitLimit => OpError::OutOfMemory,
        MapError::GroupLimit(_) => OpError::GroupLimit,
        MapError::Fault(error) => fault_error(error),
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

impl<'e, P: Platform, F: Format, R: ReverseMap> Executor<'e, P, F, R> {
    #[inline]
    pub(crate) fn space(self, slot: SpaceSlot) -> Result<Space<'e, P, F, R>, OpError> {
        match self.names.spaces.get(slot.0) {
            0 => Err(OpError::BadSpace),
            bits => Ok(self.vm.space(SpaceId::from_bits(bits))),
        }
    }

    #[inline]
    pub(crate) fn file(self, slot: FileSlot) -> Result<File<'e, P, F, R>, OpError> {
        match self.names.files.get(slot.0) {
            0 => Err(OpError::BadFile),
            bits => Ok(self.vm.file(ObjectId::from_bits(bits))),
        }
    }

    /// Ends every space and file that is left.
    pub(crate) fn clear(self) {
        for (slot, bits) in self.names.spaces.each() {
            while self.vm.space(SpaceId::from_bits(bits)).exit() == Ok(false) {}
            if let Some(word) = self.names.spaces.word(slot) {
                word.store(0, Ordering::Release);
            }
        }
        for (slot, bits) in self.names.files.each() {
            let _ = self.vm.file(ObjectId::from_bits(bits)).release();
            if let Some(word) = self.names.files.word(slot) {
                word.store(0, Ordering::Release);
            }
        }
    }

    fn create_space(self) -> Result<Space<'e, P, F, R>, OpError> {
        let space = self.vm.create_space().map_err(map_error)?;
        if self.names.group != GroupId::ROOT {
            let moved = space.set_group(self.names.group);
            moved.map_err(|_| OpError::BadSpace)?;
        }
        Ok(space)
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
                let space = self.space(space)?;
                let address = Vpn(page).address::<F>();
                match space.fault(address, access(kind)) {
                    Ok(Resolved::Spurious) => Ok(Some(Self::mapped_by(space, Vpn(page)))),
                    Ok(_) => DONE,
                    Err(error) => Err(fault_error(error)),
                }
            }
            Op::Create { space } => {
                let made = self.create_space()?;
                self.name_space(space, made)
            }
            Op::Fork { parent, child } => {
                let made = self.space(parent)?.fork().map_err(map_error)?;
                self.name_space(child, made)
            }
            Op::Share { space } => {
                self.space(space)?.share().map_err(map_error)?;
                DONE
            }
            Op::Exec { old, new } => {
                let made = self.create_space()?;
                self.leave(old)?;
                self.name_space(new, made)
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
                let advised = self.space(space)?.advise(Vpn(page), pages, advice);
                advised.map_err(map_error)?;
                DONE
            }
            Op::FileOpen { file, pages } => self.open_file(
                file,
                FileRequest::stored(u64::from(file.0), Self::bytes(pages)),
            ),
            Op::TmpfsOpen { file, pages } => {
                self.open_file(file, FileRequest::shared_memory(Self::bytes(pages)))
            }
            Op::FileRead { file, page, pages } => {
                let request = ReadRequest::pages(page, pages, |_, _| {});
                self.file(file)?.read(request).map_err(file_error)?;
                DONE
            }
            Op::FileWrite { file, page, pages } => {
                let (key, file) = (u64::from(file.0), self.file(file)?);
                let mut written = 0;
                while written < pages {
                    let (first, left) = (page + written, pages - written);
                    let request = WriteRequest::pages(first, left, |index, bytes| {
                        bytes.fill(written_word(key, index));
                    });
                    written += file.write(request).map_err(file_error)?;
                }
                DONE
            }
            Op::Truncate { file, pages } => {
                let cut = self.file(file)?.set_size(Self::bytes(pages));
                cut.map_err(file_error)?;
                DONE
            }
            Op::ScanSpace { space, page, pages } => {
                let range = PageRange::new(Vpn(page), pages);
                self.space(space)?.scan(range).map_err(map_error)?;
                DONE
            }
            Op::ScanFile { file, page, pages } => {
                let scanned = self.file(file)?.scan(page, pages);
                scanned.map_err(file_error)?;
                DONE
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
    pub(crate) fn mapped_by(space: Space<'e, P, F, R>, page: Vpn) -> Divergence {
        if probe::came_in_superpage(space, page) {
            Divergence::MappedLarge
        } else if probe::came_in_folio(space, page) {
            Divergence::MappedFolio
        } else {
            Divergence::AlreadyMapped
        }
    }

    /// The space, which maps something at `page`: where null pointers lead, too, if a recording's
    /// kernel let its program.
    fn at_any_page(space: Space<'e, P, F, R>, page: u64) -> Result<Space<'e, P, F, R>, OpError> {
        let layout = Layout::fixed::<F>();
        if Vpn(page) < layout.lowest {
            let lowest = Vpn(0);
            let set = space.set_layout(&Layout { lowest, ..layout });
            set.map_err(map_error)?;
        }
        Ok(space)
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
                        id: self.file(file)?.id(),
                        page,
                    },
                };
                let request = MapRequest {
                    pages,
                    prot: prot(rights),
                    traits,
                    source,
                    placement: Placement::Fixed(Vpn(page)),
                    tag: 0,
                };
                let space = Self::at_any_page(self.space(space)?, page)?;
                space.map(&request).map_err(map_error)?;
            }
            Op::Unmap { space, page, pages } => {
                let unmapped = self.space(space)?.unmap(Vpn(page), pages);
                unmapped.map_err(map_error)?;
            }
            Op::Protect {
                space,
                page,
                pages,
                prot: rights,
            } => {
                let space = self.space(space)?;
                let protected = space.protect(Vpn(page), pages, prot(rights));
                protected.map_err(map_error)?;
            }
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => {
                let placement = if new_page == page {
                    RemapPlacement::InPlace
                } else {
                    RemapPlacement::Fixed(Vpn(new_page))
                };
                let space = Self::at_any_page(self.space(space)?, new_page)?;
                let moved = space.remap(Vpn(page), pages, new_pages, placement);
                moved.map_err(map_error)?;
            }
            _ => return Err(OpError::Invalid),
        }
        DONE
    }

    fn name_space(self, slot: SpaceSlot, space: Space<'e, P, F, R>) -> Executed {
        let Some(word) = self.names.spaces.word(slot.0) else {
            let _ = space.exit();
            return Err(OpError::BadSpace);
        };
        let bits = space.id().to_bits();
        let taken = word.compare_exchange(0, bits, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            let _ = space.exit();
            return Err(OpError::BadSpace);
        }
        DONE
    }

    /// A task leaves the space in a slot, which is empty after the last one.
    fn leave(self, slot: SpaceSlot) -> Executed {
        if self.space(slot)?.exit().map_err(map_error)?
            && let Some(word) = self.names.spaces.word(slot.0)
        {
            word.store(0, Ordering::Release);
        }
        DONE
    }

    fn set_heap(self, space: SpaceSlot, start: Vpn, end: Vpn) -> Executed {
        let space = self.space(space)?;
        if space.heap().map_err(map_error)?.start != start {
            space.set_heap_start(start).map_err(map_error)?;
        }
        space.set_heap_end(end).map_err(map_error)?;
        DONE
    }

    /// Bytes in so many pages. A recorded file may be longer than an object can be, and is then
    /// as long as that.
    fn bytes(pages: u64) -> u64 {
        let most = Vm::<P, F, R>::MAX_SIZE;
        match pages > most >> F::FRAME_SHIFT {
            true => most,
            false => pages << F::FRAME_SHIFT,
        }
    }

    fn open_file(self, slot: FileSlot, request: FileRequest) -> Executed {
        let word = self.names.files.word(slot.0).ok_or(OpError::BadFile)?;
        if word.load(Ordering::Acquire) != 0 {
            return DONE;
        }
        let file = self.vm.create_file(request).map_err(file_error)?;
        let bits = file.id().to_bits();
        let taken = word.compare_exchange(0, bits, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            let _ = file.release();
        }
        DONE
    }
}
