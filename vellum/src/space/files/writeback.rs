//! Writing pages of files back to their stores.
//!
//! A page is written under its page lock, so that a truncation waits for it and nobody
//! writes it twice at once. Its marks are taken away first: the mark in the object's
//! tree, left by calls that write; the flag in its record, left by entries that were
//! taken away and by devices; the marks in the entries that map it, whose CPUs are
//! flushed. What is stored after that marks it again, what was stored before is
//! written. Pages in a row go to the store in one transfer.
//!
//! **Errors.** What the store refuses stays dirty, and everybody who has the file open is
//! told once, by their next sync, whoever caused the write (`object/errors.rs`).

use core::ops::Range;

use super::open::OpenFile;
use super::truncate::NextPage;
use crate::addr::Pfn;
use crate::frame::PageFlags;
use crate::object::{ObjectId, ObjectKind, PageLock, RUN_PAGES, run_length};
use crate::platform::{IoError, Platform};
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::{Pin, Unpinned};

/// Pages looked at under one pin.
const PAGES_A_PIN: usize = 64;

/// Which pages of a range to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Selection {
    /// Those that calls have written: found by their marks in the object's tree.
    Marked,
    /// Those that mappings and devices have written, too: every cached page is looked at.
    All,
}

/// What a write-back has done.
#[derive(Default)]
pub(super) struct WrittenBack {
    /// Pages that the store took.
    pub pages: u64,
    /// Pages that it was given, those that it refused among them.
    given: u64,
    /// Index of the first page that was not looked at.
    next: u64,
    /// If the store refused a page.
    pub error: Option<IoError>,
}

/// Why a run of dirty pages ended.
enum Ended {
    /// There is no page left.
    All,
    /// Somebody else has the next one; a reference comes with it.
    Busy(Pfn),
    /// Look again.
    Again,
    /// The next one is not of this run, or enough were looked at.
    Here,
}

/// Pages in a row, locked, with a reference each, and not dirty any more.
struct DirtyRun {
    first: u64,
    frames: [Pfn; RUN_PAGES],
    /// Bit `n` is set if page `n` was pinned when its marks were taken: a device may store to it
    /// until it is unpinned, which may be before the store has the page and after it was read.
    pinned: u64,
    len: usize,
}

const _: () = assert!(RUN_PAGES <= u64::BITS as usize);

impl DirtyRun {
    fn new() -> DirtyRun {
        DirtyRun {
            first: 0,
            frames: [Pfn::NONE; RUN_PAGES],
            pinned: 0,
            len: 0,
        }
    }

    fn frames(&self) -> &[Pfn] {
        &self.frames[..self.len]
    }

    /// Whether page `index` would come next.
    fn goes_on_with(&self, index: u64) -> bool {
        self.len == 0 || self.first + self.len as u64 == index
    }

    fn push(&mut self, index: u64, lock: PageLock, is_pinned: bool) {
        if self.len == 0 {
            self.first = index;
        }
        self.frames[self.len] = lock.page();
        self.pinned |= u64::from(is_pinned) << self.len;
        self.len += 1;
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// [`File::sync_range`](crate::space::File::sync_range), which tells `open` of errors.
    pub(crate) fn sync_range(
        &self,
        id: ObjectId,
        open: Option<&OpenFile>,
        offset: u64,
        len: u64,
    ) -> Result<u64, FileError> {
        let unpinned = Unpinned::at_door();
        if open.is_some_and(|open| !self.has_opened(open)) {
            return Err(FileError::NoObject);
        }
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let end = self.pages_for(offset.saturating_add(len));
        let result = self.sync_pages(unpinned, id.handle, self.page_of(offset)..end);
        if open.is_some_and(|open| object.errors.tell(open.told())) {
            return Err(FileError::Io);
        }
        Ok(result?)
    }

    /// [`File::write_back`](crate::space::File::write_back).
    pub(crate) fn write_back(&self, id: ObjectId, pages: u64) -> Result<u64, FileError> {
        let unpinned = Unpinned::at_door();
        let done = self.write_back_some(unpinned, id, pages)?;
        match done.error {
            Some(error) => Err(error.into()),
            None => Ok(done.pages),
        }
    }

    /// [`File::write_back`](crate::space::File::write_back), which gives the store
    /// fewer than `pages` and [`RUN_PAGES`] together.
    pub(super) fn write_back_some(
        &self,
        mut unpinned: Unpinned<'_>,
        id: ObjectId,
        pages: u64,
    ) -> Result<WrittenBack, FileError> {
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let start = object.write_back_from();
        let mut done = self.write_back_pages(
            unpinned.reborrow(),
            id.handle,
            start..u64::MAX,
            Selection::Marked,
            pages,
        );
        if done.given < pages && done.error.is_none() {
            let rest = pages - done.given;
            let wrapped =
                self.write_back_pages(unpinned, id.handle, 0..start, Selection::Marked, rest);
            done = WrittenBack {
                pages: done.pages + wrapped.pages,
                given: done.given + wrapped.given,
                ..wrapped
            };
        }
        object.set_write_back_from(done.next);
        Ok(done)
    }

    /// Waits until every unmapping that is under way has flushed. Until then a
    /// CPU may have stored through an old translation, and the page is marked
    /// dirty only after the flush; unmappings are pinned from the one to the
    /// other.
    fn wait_for_unmappings(&self, unpinned: Unpinned<'_>) {
        self.memory.wait_for_pins(unpinned);
    }

    /// Writes what is dirty of `range` and has the store make it safe.
    fn sync_pages(
        &self,
        mut unpinned: Unpinned<'_>,
        handle: u32,
        range: Range<u64>,
    ) -> Result<u64, IoError> {
        let object = self.objects.get(handle);
        let ObjectKind::File { store } = object.kind() else {
            return Ok(0);
        };
        // Before anything waits.
        (self.memory).unpinned_platform(unpinned.reborrow())?;
        self.wait_for_unmappings(unpinned.reborrow());
        let written = self.write_back_pages(
            unpinned.reborrow(),
            handle,
            range.clone(),
            Selection::All,
            u64::MAX,
        );
        let platform = self.memory.unpinned_platform(unpinned.reborrow());
        if let Err(error) = platform.and_then(|platform| platform.flush_store(store)) {
            // Nobody knows what the store still has of what it took before.
            self.make_dirty(unpinned, handle, range);
            object.errors.record();
            return Err(error);
        }
        match written.error {
            Some(error) => Err(error),
            None => Ok(written.pages),
        }
    }

    /// Writes a page of a file if it is dirty, and dirty ones in a row after it; waits for
    /// nobody. Returns how many pages the store took, and whether it refused one.
    pub(in crate::space) fn write_cluster(
        &self,
        mut unpinned: Unpinned<'_>,
        handle: u32,
        index: u64,
    ) -> (u64, bool) {
        let mut run = DirtyRun::new();
        let mut next = index;
        let end = index + run_length(index, RUN_PAGES as u64);
        let ended = self.collect(handle, &mut next, end, Selection::All, &mut run);
        let mut done = WrittenBack::default();
        // While pages of it are locked, the object is the one that they were found in.
        if let ObjectKind::File { store } = self.objects.get(handle).kind() {
            self.give_run(unpinned.reborrow(), store, handle, &run, &mut done);
        }
        if let Ended::Busy(page) = ended {
            self.memory.put(&self.pin_by(&unpinned), page);
        }
        (done.pages, done.error.is_some())
    }

    /// Writes what is dirty of an object that has no user any more.
    pub(super) fn write_back_all(&self, unpinned: Unpinned<'_>, handle: u32) -> WrittenBack {
        self.write_back_pages(unpinned, handle, 0..u64::MAX, Selection::All, u64::MAX)
    }

    /// Marks all cached pages of `range` as newer than their store.
    fn make_dirty(&self, mut unpinned: Unpinned<'_>, handle: u32, mut range: Range<u64>) {
        let object = self.objects.get(handle);
        loop {
            let pin = self.pin_by(&unpinned);
            match self.lock_next(&pin, handle, range.clone()) {
                NextPage::End => return,
                NextPage::Again => pin.relax(0),
                NextPage::Busy(page) => {
                    drop(pin);
                    self.wait_for_page(unpinned.reborrow(), page);
                }
                NextPage::Page(index, lock) => {
                    self.objects
                        .mark_dirty(&self.memory, &pin, object, index..index + 1);
                    self.release_page(&pin, lock);
                    range.start = index + 1;
                }
            }
        }
    }

    /// Unlocks a page and drops the reference that came with its lock.
    fn release_page(&self, pin: &Pin<'_>, lock: PageLock) {
        let page = lock.page();
        self.objects.locks.unlock(&self.memory, pin, lock);
        self.memory.put(pin, page);
    }

    /// Writes the wanted pages of `range` that are dirty, until the store has been given about
    /// `limit`.
    fn write_back_pages(
        &self,
        mut unpinned: Unpinned<'_>,
        handle: u32,
        range: Range<u64>,
        wanted: Selection,
        limit: u64,
    ) -> WrittenBack {
        let mut done = WrittenBack {
            next: range.start,
            ..WrittenBack::default()
        };
        let ObjectKind::File { store } = self.objects.get(handle).kind() else {
            return done;
        };
        let mut spins = 0;
        while done.given < limit {
            let mut run = DirtyRun::new();
            let ended = self.collect(handle, &mut done.next, range.end, wanted, &mut run);
            match ended {
                _ if run.len > 0 => {
                    spins = 0;
                    self.give_run(unpinned.reborrow(), store, handle, &run, &mut done);
                }
                Ended::All => {
                    done.next = 0;
                    break;
                }
                Ended::Again => {
                    self.memory.platform().relax(spins);
                    spins += 1;
                }
                Ended::Busy(page) => {
                    self.wait_for_page(unpinned.reborrow(), page);
                    continue;
                }
                Ended::Here => {}
            }
            if let Ended::Busy(page) = ended {
                self.memory.put(&self.pin_by(&unpinned), page);
            }
        }
        done
    }

    /// Locks dirty pages in a row, from `next` on, and takes their marks away. Returns why
    /// it stopped.
    fn collect(
        &self,
        handle: u32,
        next: &mut u64,
        end: u64,
        wanted: Selection,
        run: &mut DirtyRun,
    ) -> Ended {
        let object = self.objects.get(handle);
        let pin = self.pin();
        for _ in 0..PAGES_A_PIN {
            if wanted == Selection::Marked {
                match self.objects.next_marked(&pin, object, *next..end) {
                    Some(index) => *next = index,
                    None => return Ended::All,
                }
            }
            let (index, lock) = match self.lock_next(&pin, handle, *next..end) {
                NextPage::Page(index, lock) => (index, lock),
                NextPage::Busy(page) => return Ended::Busy(page),
                NextPage::Again => return Ended::Again,
                NextPage::End => return Ended::All,
            };
            if !run.goes_on_with(index) {
                self.release_page(&pin, lock);
                return Ended::Here;
            }
            *next = index + 1;
            self.mappings.take_dirty_marks(&pin, lock.page());
            let frame = self.memory.frame(lock.page()).page();
            let marked = frame.clear_if_set(PageFlags::DIRTY);
            let written = self
                .objects
                .mark_clean(&self.memory, &pin, object, index..index + 1);
            if marked || written {
                frame.set(PageFlags::WRITEBACK);
                run.push(index, lock, frame.counts().pins() > 0);
            } else {
                self.release_page(&pin, lock);
                if run.len > 0 {
                    return Ended::Here;
                }
            }
        }
        Ended::Here
    }

    /// Writes a run and releases its pages. If the store refuses the whole, each page is
    /// tried by itself.
    fn give_run(
        &self,
        mut unpinned: Unpinned<'_>,
        store: u64,
        handle: u32,
        run: &DirtyRun,
        done: &mut WrittenBack,
    ) {
        let object = self.objects.get(handle);
        done.given += run.len as u64;
        let whole = match run.len {
            2.. => (self.memory.unpinned_platform(unpinned.reborrow()))
                .and_then(|all| all.write_pages(store, run.first, run.frames())),
            _ => Err(IoError),
        };
        for (step, &page) in run.frames().iter().enumerate() {
            let index = run.first + step as u64;
            let written = whole.or_else(|_| {
                let platform = self.memory.unpinned_platform(unpinned.reborrow());
                platform?.write_page(store, index, page)
            });
            let frame = self.memory.frame(page);
            let pin = self.pin_by(&unpinned);
            // A device may have stored to a page that was pinned; one that is pinned since has a
            // flag in its record.
            let was_pinned = run.pinned >> step & 1 != 0;
            if written.is_err() || was_pinned {
                self.objects
                    .mark_dirty(&self.memory, &pin, object, index..index + 1);
            }
            match written {
                Ok(()) => {
                    done.pages += 1;
                    self.events(&pin).page_writes.bump();
                }
                Err(error) => {
                    object.errors.record();
                    done.error = Some(error);
                }
            }
            frame.page().clear(PageFlags::WRITEBACK);
            self.release_page(&pin, PageLock::held(page));
        }
    }
}
