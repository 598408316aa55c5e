//! Pages of objects one at a time, as Linux 3.15 wrote and read files
//! (`fileio=pages`): found, locked, and made locked and empty.

use crate::addr::Pfn;
use crate::design::{AccessMarks, Design, FlagUpdates};
use crate::frame::{Frame, Kind, ObjectFlags, PageFlags, Payer, PhysicalMemory, Request, Site};
use crate::object::{CacheError, Objects, PageLock};
use crate::platform::Platform;
use crate::sync::Pin;

/// A page of an object that somebody asked for, to have it locked.
pub(crate) enum LockedPage {
    /// With a reference.
    Found(PageLock),
    /// The same, and new: the caller has to fill it.
    Made(PageLock),
    /// Locked by somebody else; the caller has a reference and waits.
    Busy(Pfn),
    /// In swap.
    Swapped,
    /// Not there.
    Absent,
}

/// Sets the flags of a page that nobody can find yet.
fn mark_new(frame: &Frame, design: &Design, is_file: bool) {
    if !is_file {
        match design.flag_updates {
            FlagUpdates::Plain => frame.object().set_unshared(ObjectFlags::SWAP_BACKED),
            FlagUpdates::Atomic => {
                frame.object().set(ObjectFlags::SWAP_BACKED);
            }
        }
    }
    if design.access_marks == AccessMarks::Init {
        frame.page().set_unshared(PageFlags::REFERENCED);
    }
}

impl<S: Default + Send + Sync + 'static> Objects<S> {
    /// The page at `index` if it is cached, locked.
    pub(crate) fn find_locked<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        handle: u32,
        index: u64,
    ) -> LockedPage {
        let object = self.get(handle);
        while let Some(page) = self.lookup(memory, pin, object, index) {
            let Some(lock) = self.locks.try_lock(memory, page) else {
                return LockedPage::Busy(page);
            };
            let frame = memory.frame(page);
            if frame.owner() == handle && frame.index() == index {
                return LockedPage::Found(lock);
            }
            self.locks.unlock(memory, pin, lock);
            memory.put(pin, page);
        }
        match self.slot_at(pin, object, index) {
            Some(_) => LockedPage::Swapped,
            None => LockedPage::Absent,
        }
    }

    /// The page at `index`, locked, and made if need be, charged to `payer` then.
    ///
    /// # Errors
    /// [`CacheError`].
    pub(crate) fn find_or_make_locked<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        design: &Design,
        (handle, index): (u32, u64),
        payer: Payer,
    ) -> Result<LockedPage, CacheError> {
        loop {
            let found = self.find_locked(memory, pin, handle, index);
            if !matches!(found, LockedPage::Absent) {
                return Ok(found);
            }
            if let Some(lock) = self.make_locked(memory, pin, design, (handle, index), payer)? {
                return Ok(LockedPage::Made(lock));
            }
        }
    }

    /// Puts a new page, locked and not filled, at `index`; `None` if somebody else was
    /// faster.
    fn make_locked<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        design: &Design,
        (handle, index): (u32, u64),
        payer: Payer,
    ) -> Result<Option<PageLock>, CacheError> {
        let object = self.get(handle);
        if self.charge(memory, pin, object, 1) == 0 {
            return Err(CacheError::Full);
        }
        let request = Request::page(Site::CachePage).dirty(object.is_file());
        let page = self
            .alloc_for(memory, pin, (handle, index), (request, payer))
            .inspect_err(|_| self.uncharge(memory, pin, object, 1))?;
        if let Err(error) = self.prepare_insert(memory, pin, object, index) {
            self.drop_frames(memory, pin, handle, &[page]);
            return Err(error.into());
        }
        let frame = memory.frame(page);
        frame.set_kind_with(Kind::Object, PageFlags::LOCKED);
        mark_new(frame, design, object.is_file());
        let is_in = self.insert_made(memory, pin, (handle, index), page);
        Ok(is_in.then(|| PageLock::held(page)))
    }
}
