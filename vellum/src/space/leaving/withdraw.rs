//! Frames that are taken out of use because their memory fails (Linux's `memory_failure` and
//! `soft_offline_page`).
//!
//! What the frame holds leaves it first, in the way in which it would move to another node
//! (`migrate.rs`), or is given up. A private page has its entries looked up by reverse mapping, and each
//! replaced with its space locked and the region closed: by a copy, which is each space's own from then
//! on, or by one that says that the page is lost. Locks are only tried, and a page that others refer to
//! stays: the call says so, and can be made again. The reference that the caller of these has becomes
//! the one that keeps the frame.

use core::fmt;

use super::evict::Reference;
use crate::addr::{Pfn, Vpn};
use crate::frame::{Kind, PageFlags, Payer, PolicyWord, Request, Site};
use crate::object::{LOST_SLOT, PageLock};
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Verdict};
use crate::space::state::common::PageCache;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::page::FoundPage;
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

/// Times that a frame is tried whose page others refer to.
const TRIES: u32 = 4;

/// What is known of the memory of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameHealth {
    /// A frame that is out of use can be used: memory that comes back, or that is added.
    Good,
    /// Errors were corrected: what it holds is good (`MADV_SOFT_OFFLINE`).
    Failing,
    /// What it holds is lost (`MADV_HWPOISON`, a machine check).
    Failed,
}

/// What became of a frame, and of what it held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Withdrawn {
    /// It was out of use, and is free now.
    Readmitted,
    /// Nobody used it.
    Unused,
    /// It held a page of a file, which is read anew when it is needed.
    Dropped,
    /// What it held is elsewhere.
    Moved,
    /// What it held is lost. Accesses to a private page are
    /// [`FaultError::Lost`](crate::space::FaultError::Lost) from now on, in each space that mapped it,
    /// and those to a page of shared memory everywhere; reads and writes by bytes are
    /// [`FileError::Io`](crate::space::FileError::Io).
    /// Of a page of a file, what was stored since it was written last is lost: who has the file open
    /// is told by its next `sync`, as of any page that could not be written.
    Lost,
}

/// Why a frame is what it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WithdrawError {
    /// It is none of the memory map.
    NoFrame,
    /// It is out of use already.
    Withdrawn,
    /// It is in use, or free, already.
    InUse,
    /// It cannot leave: a page table, the manager's own memory, that of the embedder, or the zero page.
    Kept,
    /// A device, or a caller, has its page pinned.
    Pinned,
    /// Others refer to the page at this moment, its space is being changed, its memory is locked and
    /// an object's, or the frame is in a list of another CPU, or set aside. Of several spaces that map a
    /// page, some may have another by now.
    Busy,
    /// There is no frame for what it holds.
    OutOfMemory,
    /// The caller has pinned its CPU, and the call may sleep.
    CallerPinned,
}

impl fmt::Display for WithdrawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WithdrawError::NoFrame => "no frame of the memory map",
            WithdrawError::Withdrawn => "the frame is out of use already",
            WithdrawError::InUse => "the frame is not out of use",
            WithdrawError::Kept => "what the frame holds cannot leave it",
            WithdrawError::Pinned => "the page in the frame is pinned",
            WithdrawError::Busy => "the frame is in use at this moment, or in a list",
            WithdrawError::OutOfMemory => "no frame for what the frame holds",
            WithdrawError::CallerPinned => "the caller's CPU is pinned",
        })
    }
}

impl core::error::Error for WithdrawError {}

/// Why a page of a file stays in its frame.
enum Stays {
    /// It is newer than its store.
    Dirty,
    /// For this reason.
    Because(WithdrawError),
}

impl<P: Platform> PageCache<'_, P> {
    /// Takes the frame of a page of an object out of use.
    fn withdraw_cached(
        &self,
        unpinned: Unpinned<'_>,
        page: Pfn,
        health: FrameHealth,
    ) -> Result<Withdrawn, WithdrawError> {
        let pin = self.pin_by(&unpinned);
        let found = self.find_cached(&pin, page).ok_or(WithdrawError::Busy)?;
        let (handle, index) = (found.handle, found.index);
        let Some(lock) = self.objects.locks.try_lock(&self.memory, page) else {
            self.memory.put(&pin, page);
            return Err(WithdrawError::Busy);
        };
        let moves = !found.object.is_file() && health != FrameHealth::Failed;
        let left = match moves {
            true => self
                .leave_frame(&pin, &found, &lock)
                .map_err(Stays::Because),
            false => self.leave_cache(&pin, &found, &lock, health),
        };
        self.objects.locks.unlock(&self.memory, &pin, lock);
        if left.is_ok() && self.memory.withdraw_held(&pin, page) {
            return left.map_err(|_| WithdrawError::Busy);
        }
        self.memory.put(&pin, page);
        drop(pin);
        match left {
            Err(Stays::Because(error)) => Err(error),
            Err(Stays::Dirty) => {
                self.write_cluster(unpinned, handle, index);
                Err(WithdrawError::Busy)
            }
            Ok(_) => Err(WithdrawError::Busy),
        }
    }

    /// Has a page of an object, which is locked, leave its frame and the cache: one of a file, or one of
    /// shared memory whose place in the object says then that it is lost. The reference of `found` stays.
    fn leave_cache(
        &self,
        pin: &Pin<'_>,
        found: &FoundPage<'_>,
        lock: &PageLock,
        health: FrameHealth,
    ) -> Result<Withdrawn, Stays> {
        let &FoundPage {
            page,
            object,
            handle,
            index,
        } = found;
        let busy = || Stays::Because(WithdrawError::Busy);
        let frame = self.memory.frame(page);
        if frame.owner() != handle || !frame.page().has(PageFlags::UPTODATE) {
            return Err(busy());
        }
        if frame.counts().pins() > 0 {
            return Err(Stays::Because(WithdrawError::Pinned));
        }
        let held = object
            .writers
            .try_lock(&(index..index + 1), pin)
            .ok_or_else(busy)?;
        if health == FrameHealth::Failed {
            self.mappings.take_dirty_marks(pin, page);
        }
        self.mappings
            .unmap_page(pin, lock, health == FrameHealth::Failing);
        let is_dirty = object.is_file() && self.is_dirty(pin, object, index, page);
        // The cache's, and that of `found`.
        let left = match frame.counts().refs() {
            2 if is_dirty && health == FrameHealth::Failing => Err(Stays::Dirty),
            2 => {
                object.cuts.count_one();
                match object.is_file() {
                    true => (self.objects).detach(&self.memory, pin, object, index, lock),
                    false => {
                        let place = (object, index);
                        (self.objects).move_to_slot(&self.memory, pin, place, page, LOST_SLOT);
                    }
                }
                self.note_removed(pin, page);
                self.memory.put(pin, page);
                if is_dirty {
                    object.errors.record();
                }
                Ok(match is_dirty || !object.is_file() {
                    true => Withdrawn::Lost,
                    false => Withdrawn::Dropped,
                })
            }
            _ => Err(busy()),
        };
        let platform = self.memory.platform();
        object.writers.unlock(held, &self.waits, platform, pin);
        left
    }

    /// Has a page of shared memory, which is locked, be in another frame.
    fn leave_frame(
        &self,
        pin: &Pin<'_>,
        found: &FoundPage<'_>,
        lock: &PageLock,
    ) -> Result<Withdrawn, WithdrawError> {
        let &FoundPage {
            page,
            object,
            index,
            ..
        } = found;
        let frame = self.memory.frame(page);
        if frame.counts().pins() > 0 {
            return Err(WithdrawError::Pinned);
        }
        let payer = Payer::from(self.group_of_frame(pin, page));
        let anywhere = (PolicyWord::NONE, index);
        let new = self
            .memory
            .alloc_to_move(pin, payer, (object.policy(), index), 0);
        let new = new.or_else(|| self.memory.alloc_to_move(pin, payer, anywhere, 0));
        let new = new.ok_or(WithdrawError::OutOfMemory)?;
        // As who moves a page has one beside that of `found`.
        frame.get();
        let is_moved = self.replace_cached(pin, found, lock, new);
        self.memory.put(pin, page);
        if !is_moved {
            self.memory.put(pin, new);
            return Err(WithdrawError::Busy);
        }
        Ok(Withdrawn::Moved)
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Takes a frame out of use whose memory fails or has failed, or is to be taken away; or back
    /// into use, with [`FrameHealth::Good`]. A free frame is withdrawn; a clean page of a file is
    /// dropped; any other page moves, if the frame is still good, and otherwise those who use it are
    /// told ([`Withdrawn`]). Several spaces that share a private page since a fork get a copy each; a
    /// superpage is split. The frame is in
    /// [`FrameStats::withdrawn`](crate::frame::FrameStats::withdrawn) and the audit.
    ///
    /// Locks are only tried. A dirty page of a file is written first if the frame is still good, and the
    /// caller is not pinned: this may sleep.
    ///
    /// # Errors
    /// [`WithdrawError`]: the frame is still in use. After [`WithdrawError::Busy`] the call may be made
    /// again; a frame in the list of an idle CPU comes back by [`Vm::offline`] of that CPU.
    pub fn set_frame_health(
        &self,
        frame: Pfn,
        health: FrameHealth,
    ) -> Result<Withdrawn, WithdrawError> {
        let unpinned = self.memory.unless_pinned();
        let mut unpinned = unpinned.ok_or(WithdrawError::CallerPinned)?;
        if !self.memory.contains(frame) {
            return Err(WithdrawError::NoFrame);
        }
        if health == FrameHealth::Good {
            return match self.memory.readmit(&self.pin_by(&unpinned), frame) {
                true => Ok(Withdrawn::Readmitted),
                false => Err(WithdrawError::InUse),
            };
        }
        for _ in 1..TRIES {
            let done = self.try_withdraw(unpinned.reborrow(), frame, health);
            if done != Err(WithdrawError::Busy) {
                return done;
            }
            self.memory.wait_for_frames(unpinned.reborrow());
        }
        self.try_withdraw(unpinned, frame, health)
    }

    fn try_withdraw(
        &self,
        unpinned: Unpinned<'_>,
        frame: Pfn,
        health: FrameHealth,
    ) -> Result<Withdrawn, WithdrawError> {
        let pin = self.pin_by(&unpinned);
        let record = self.memory.frame(frame);
        match record.kind() {
            Kind::Reserved if record.is_withdrawn() => Err(WithdrawError::Withdrawn),
            Kind::Reserved if record.counts().refs() > 0 => Err(WithdrawError::Kept),
            Kind::Table | Kind::Slab | Kind::Allocated => Err(WithdrawError::Kept),
            Kind::Object => {
                drop(pin);
                self.page_cache().withdraw_cached(unpinned, frame, health)
            }
            Kind::Anonymous => {
                drop(pin);
                self.withdraw_private(unpinned, (frame, frame), health)
            }
            Kind::Free | Kind::Cached | Kind::Reserved => {
                if self.memory.withdraw_free(&pin, frame) {
                    return Ok(Withdrawn::Unused);
                }
                // It may be a part of a superpage, whose first frame has its record.
                let first = Pfn(frame.0 & !((1 << Self::ORDER) - 1));
                let has_record = |first: &crate::frame::Frame| {
                    first.kind() == Kind::Anonymous && first.order() == Self::ORDER
                };
                let is_part =
                    self.has_superpages() && self.memory.table.get(first).is_some_and(has_record);
                drop(pin);
                match is_part {
                    true => self.withdraw_private(unpinned, (first, frame), health),
                    false => Err(WithdrawError::Busy),
                }
            }
        }
    }

    /// Takes the frame of a private page out of use, or one of a superpage, whose first is `first`.
    fn withdraw_private(
        &self,
        mut unpinned: Unpinned<'_>,
        (first, frame): (Pfn, Pfn),
        health: FrameHealth,
    ) -> Result<Withdrawn, WithdrawError> {
        let cache = self.page_cache();
        let held = cache.find_private(&self.pin_by(&unpinned), first);
        let held = held.ok_or(WithdrawError::Busy)?;
        let is_split = self.demote_all_of(unpinned.reborrow(), first);
        cache.put_private(&self.pin_by(&unpinned), first, held);
        if !is_split {
            return Err(WithdrawError::Busy);
        }
        {
            let pin = self.pin_by(&unpinned);
            let held = cache.find_private(&pin, frame).ok_or(WithdrawError::Busy)?;
            if held == Reference::Run {
                cache.put_private(&pin, frame, held);
                return Err(WithdrawError::Busy);
            }
        }
        let left = self.leave_spaces(unpinned.reborrow(), frame, health);
        let pin = self.pin_by(&unpinned);
        let is_out = left.is_ok() && self.memory.withdraw_held(&pin, frame);
        if is_out {
            return Ok(match health {
                FrameHealth::Failed => Withdrawn::Lost,
                _ => Withdrawn::Moved,
            });
        }
        self.memory.put(&pin, frame);
        left.and(Err(WithdrawError::Busy))
    }

    /// Has a private page, to which the caller has a reference, leave its frame in all spaces.
    fn leave_spaces(
        &self,
        mut unpinned: Unpinned<'_>,
        frame: Pfn,
        health: FrameHealth,
    ) -> Result<(), WithdrawError> {
        // Forks beside this may make some more.
        for _ in 0..=self.memory.frame(frame).counts().maps() {
            let found = self.find_entry(&self.pin_by(&unpinned), frame);
            let Some((space, page)) = found else {
                return Ok(());
            };
            let space = self.live_at(space);
            let left = self.try_with_page_locked(unpinned.reborrow(), space, page, |pin, space| {
                self.leave_entry(pin, space, (page, frame), health)
            });
            left.unwrap_or(Err(WithdrawError::Busy))?;
        }
        Err(WithdrawError::Busy)
    }

    /// The space and the page of an entry that maps a frame.
    fn find_entry(&self, pin: &Pin<'_>, frame: Pfn) -> Option<(u32, Vpn)> {
        let mut found = None;
        let visit = (self.rmap).visit::<P, F>(&self.env(pin), self, frame, &mut |slot| {
            found = Some((slot.space(), slot.page()));
            Verdict::Stop
        });
        self.count_lookups(pin, 1, &visit);
        found
    }

    /// Has the private page at a place of a space leave a frame, if it is there.
    fn leave_entry(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        (page, frame): (Vpn, Pfn),
        health: FrameHealth,
    ) -> Result<(), WithdrawError> {
        if self.tables_if_any(pin, *space).is_none() {
            return Ok(());
        }
        let found = self.found_from(space, page);
        let Some(found) = found.filter(|found| found.start <= page.0) else {
            return Ok(());
        };
        let closed = self.close_region(pin, space, found.item);
        let region = closed.closed();
        let mut is_pinned = false;
        let mut may_leave = |old: Pfn| {
            is_pinned = self.memory.frame(old).counts().pins() > 0;
            old == frame && !is_pinned
        };
        if health == FrameHealth::Failed {
            self.lose_private(pin, space, region, page, &mut may_leave);
        } else {
            let shown = region.region_ref_with(space.handle(), &region.view());
            let prepared = self.rmap.prepare_private(&self.env(pin), self, shown);
            prepared.map_err(|_| WithdrawError::OutOfMemory)?;
            let request = Request::page(Site::MovedPage);
            let Ok(new) = self.alloc_private(pin, request, (*space, &region, page)) else {
                // No call of the caller's is to make room for it.
                self.memory.take_lacking(pin);
                return Err(WithdrawError::OutOfMemory);
            };
            self.replace_private(pin, space, region, (page, new), &mut may_leave)
                .map_err(|_| WithdrawError::OutOfMemory)?;
        }
        match is_pinned {
            true => Err(WithdrawError::Pinned),
            false => Ok(()),
        }
    }
}
