//! Memory of a space, read and written by the kernel around the manager: what `copy_from_user`,
//! `copy_to_user`, `strncpy_from_user`, `process_vm_readv` and futexes do on Linux.
//!
//! Each page is faulted in as for an access of the space's own, and its bytes are reached under the
//! lock of its page table. The entry stays as long as the table is locked: a fork, reclaim or an
//! unmapping of the page comes before or after. A store through an entry that allows it, which gets
//! the marks that hardware would set, is what a store of the space's own would be; so nothing else
//! has to know of it, and the page need not be pinned.

use core::cell::Cell;
use core::fmt;

use super::hooks::Asked;
use crate::addr::{Access, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::FaultError;
use crate::space::state::manager::Vm;
use crate::space::state::page::PageBytes;
use crate::space::state::spaces::SpaceId;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::Unpinned;
use crate::table::Format;

/// Whether the rights of regions count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rights {
    /// The access is one that the space could make itself.
    Checked,
    /// A debugger's: all that is mapped can be read, and private memory written, whose pages are
    /// copied where others see them.
    Forced,
}

/// Why a word of a space's memory could not be updated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateError {
    /// The address is no multiple of the word's size.
    Unaligned,
    /// The page could not be faulted in.
    Fault(FaultError),
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpdateError::Unaligned => f.write_str("the address is no multiple of 4"),
            UpdateError::Fault(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for UpdateError {}

/// How an access is made.
#[derive(Clone, Copy)]
struct Way {
    access: Access,
    rights: Rights,
}

/// Does something with the bytes of a page, once.
type Work<'a, P> = &'a mut dyn FnMut(&PageBytes<'_, P>);

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::read`](crate::space::Space::read).
    pub(crate) fn read_memory(
        &self,
        id: SpaceId,
        address: u64,
        to: &mut [u8],
        rights: Rights,
    ) -> Result<usize, FaultError> {
        let mut unpinned = Unpinned::at_door();
        let way = Way {
            access: Access::Read,
            rights,
        };
        let mut done = 0;
        let mut failed = Ok(());
        while failed.is_ok() && done < to.len() {
            let part = &mut to[done..];
            let mut count = 0;
            failed = self.with_page_at(
                unpinned.reborrow(),
                id,
                address,
                done,
                way,
                &mut |page, offset| {
                    count = page.read(offset, part);
                },
            );
            done += count;
        }
        moved(done, failed)
    }

    /// [`Space::write`](crate::space::Space::write).
    pub(crate) fn write_memory(
        &self,
        id: SpaceId,
        address: u64,
        data: &[u8],
        rights: Rights,
    ) -> Result<usize, FaultError> {
        let mut unpinned = Unpinned::at_door();
        let way = Way {
            access: Access::Write,
            rights,
        };
        let mut done = 0;
        let mut failed = Ok(());
        while failed.is_ok() && done < data.len() {
            let mut count = 0;
            failed = self.with_page_at(
                unpinned.reborrow(),
                id,
                address,
                done,
                way,
                &mut |page, offset| {
                    count = page.write(offset, &data[done..]);
                },
            );
            done += count;
        }
        moved(done, failed)
    }

    /// [`Space::read_string`](crate::space::Space::read_string).
    pub(crate) fn read_string(
        &self,
        id: SpaceId,
        address: u64,
        to: &mut [u8],
    ) -> Result<usize, FaultError> {
        let mut unpinned = Unpinned::at_door();
        let way = Way {
            access: Access::Read,
            rights: Rights::Checked,
        };
        let mut done = 0;
        while done < to.len() {
            let part = &mut to[done..];
            let mut count = 0;
            self.with_page_at(
                unpinned.reborrow(),
                id,
                address,
                done,
                way,
                &mut |page, offset| {
                    count = page.read(offset, part);
                },
            )?;
            if let Some(end) = part[..count].iter().position(|&byte| byte == 0) {
                return Ok(done + end);
            }
            done += count;
        }
        Ok(done)
    }

    /// [`Space::update_word`](crate::space::Space::update_word).
    pub(crate) fn update_word(
        &self,
        id: SpaceId,
        address: u64,
        update: &mut dyn FnMut(u32) -> Option<u32>,
    ) -> Result<Result<u32, u32>, UpdateError> {
        let unpinned = Unpinned::at_door();
        if !address.is_multiple_of(size_of::<u32>() as u64) {
            return Err(UpdateError::Unaligned);
        }
        let way = Way {
            access: Access::Write,
            rights: Rights::Checked,
        };
        let mut updated = Err(0);
        self.with_page_at(unpinned, id, address, 0, way, &mut |page, offset| {
            updated = page.update_word(offset, update);
        })
        .map_err(UpdateError::Fault)?;
        Ok(updated)
    }

    /// Does `work` with the bytes of the page that holds byte `done` behind an address, and where
    /// that byte lies in it.
    fn with_page_at(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        address: u64,
        done: usize,
        way: Way,
        work: &mut dyn FnMut(&PageBytes<'_, P>, usize),
    ) -> Result<(), FaultError> {
        let place = address.checked_add(done as u64);
        let place = place.ok_or(FaultError::NoRegion)?;
        let page = Vpn::of::<F>(place);
        if page >= F::USER_END {
            return Err(FaultError::NoRegion);
        }
        let offset = (place & (F::FRAME_SIZE as u64 - 1)) as usize;
        let mut bytes = |page: &PageBytes<'_, P>| work(page, offset);
        let work: Cell<Option<Work<'_, P>>> = Cell::new(Some(&mut bytes));
        let attempt = |unpinned: Unpinned<'_>| {
            let asked = match way.rights {
                Rights::Checked => Asked::Access,
                Rights::Forced => Asked::Hooks,
            };
            self.attempt_to(unpinned, id, page, way.access, asked, |fault, entry| {
                self.reach(fault, entry, way.rights, &work)
            })
        };
        self.attempt_until_done(unpinned, id, page, None, &|unpinned| {
            self.by_design(unpinned, id, attempt)
        })?;
        Ok(())
    }

    /// Does the work with the page that `entry` maps, if the entry allows the access. Otherwise
    /// takes the step that leads there.
    fn reach(
        &self,
        fault: &Fault<'_, P, F, R>,
        entry: u64,
        rights: Rights,
        work: &Cell<Option<Work<'_, P>>>,
    ) -> Result<FaultStep, FaultError> {
        if fault.view().is_unmanaged() {
            return Err(FaultError::Unmanaged);
        }
        let level = fault.lowest.1;
        let writes = fault.access == Access::Write;
        let is_forced = rights == Rights::Forced && !fault.view().prot.allows(fault.access);
        if is_forced && writes && fault.view().is_shared() {
            return Err(FaultError::Protection);
        }
        if !F::is_mapped(entry) {
            return Ok(again(self.resolve(fault, entry)?));
        }
        // A page that nobody else sees is the space's to be written, whatever its rights.
        let allows = |entry| match is_forced {
            true => !writes || level == 1 && self.is_exclusive(fault.frame_in(entry)),
            false => F::prot(entry, level).allows(fault.access),
        };
        if !allows(entry) {
            if fault.is_watched_since(entry) {
                return Ok(FaultStep::Again);
            }
            return Ok(again(match is_forced {
                true if level > 1 => {
                    self.demote(fault.pin, fault.space, fault.entered.region, fault.page)?;
                    FaultStep::Again
                }
                true => self.break_cow(fault, entry)?,
                false => self.resolve(fault, entry)?,
            }));
        }
        let Some((table, now, frame)) = fault.lock_leaf() else {
            return Ok(FaultStep::Again);
        };
        if !allows(now) {
            return Ok(FaultStep::Again);
        }
        table.mark_used(F::index(fault.page, level), writes);
        if let Some(work) = work.take() {
            work(&PageBytes::new(&self.memory, fault.pin, frame));
        }
        Ok(FaultStep::Done(Resolved::Spurious))
    }
}

/// What a call that goes on page by page answers: how much it moved, or, if that is nothing, why.
fn moved(done: usize, failed: Result<(), FaultError>) -> Result<usize, FaultError> {
    match failed {
        Err(error) if done == 0 => Err(error),
        _ => Ok(done),
    }
}

/// What to do next after a step on the way to a page.
pub(in crate::space) fn again(step: FaultStep) -> FaultStep {
    match step {
        FaultStep::Done(_) => FaultStep::Again,
        step => step,
    }
}
