//! Superpages of files of a backing store (`filehuge=`).
//!
//! As for shared memory ([`super::huge`]) only the leaf is large, and each of the pages is one
//! of the file as any other. Two things differ. The pages have to be read: the first fault in a
//! range that lies before the file's end and of which no page is there, or the first read,
//! reads all of it into a block of frames. And nobody stores through a leaf: its one mark would
//! make 512 pages dirty, which the store would have to take. A store to a shared mapping clears
//! the leaf, and from then on pages are mapped, and found dirty, one by one.
//!
//! So private mappings may have such leaves as well: what a program executes is mapped so. Those
//! that may be stored to have single pages, as most of these are copied sooner or later.

use crate::addr::{Access, Pfn};
use crate::design::FileHuge;
use crate::frame::{Request, Site};
use crate::object::{NewPages, Object, ObjectKind, PageLock, RUN_PAGES};
use crate::platform::{IoError, Platform};
use crate::rmap::ReverseMap;
use crate::space::state::common::PageCache;
use crate::space::state::error::FaultError;
use crate::space::state::manager::Vm;
use crate::space::steps::fault::Fault;
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Whether the fault may be resolved by a superpage of its region's object, which is a
    /// file.
    pub(super) fn may_map_file_superpage(
        &self,
        fault: &Fault<'_, P, F, R>,
        object: &Object,
    ) -> bool {
        let view = fault.view();
        fault.access != Access::Write
            && (view.is_shared() || !view.prot.can_write())
            && self.page_cache().reads_superpages(object)
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// Whether the object is a file whose pages are read in superpages.
    fn reads_superpages(&self, object: &Object) -> bool {
        let wanted = match (object.huge(), self.design.file_huge) {
            (_, FileHuge::Never) | (Some(false), _) | (None, FileHuge::Advise) => false,
            (Some(true), _) | (None, FileHuge::Always) => true,
        };
        wanted && object.is_file()
    }

    /// Makes pages of a block of frames for the superpage around page `index` of an object, if it
    /// is a file whose superpages are read whole and none of them is there. Returns the
    /// first: all are locked for the caller, who has a reference to each, and calls
    /// [`Vm::read_superpage`].
    pub(super) fn begin_to_read_superpage(
        &self,
        pin: &Pin<'_>,
        handle: u32,
        index: u64,
    ) -> Option<Pfn> {
        let object = self.objects.get(handle);
        let first = self.huge_start(index);
        let reads = self.reads_superpages(object)
            && self.is_within(object, first)
            && self.is_vacant(pin, object, first);
        reads.then(|| self.lock_superpage(pin, handle, first))?
    }

    #[cold]
    #[inline(never)]
    fn lock_superpage(&self, pin: &Pin<'_>, handle: u32, first: u64) -> Option<Pfn> {
        let request = Request::page(Site::Superpage);
        let Some(block) = self.huge_block(pin, (self.objects.get(handle), first), request) else {
            self.events(pin).superpage_failures.bump();
            return None;
        };
        let mut made = 0;
        self.insert_block(pin, (handle, first), block, NewPages::ToFill, |frames| {
            made += frames.len() as u32;
            frames.len() == RUN_PAGES
        });
        if u64::from(made) == self.superpage() {
            return Some(block);
        }
        // Others made some of them meanwhile, or a node could not be had.
        for step in 0..made {
            let lock = PageLock::held(block.offset(step));
            self.objects.fill_failed(&self.memory, pin, lock);
        }
        None
    }

    /// Has the superpage around page `index` of an object read, as far as
    /// [`Vm::begin_to_read_superpage`] says so. Returns whether there was anything to read.
    ///
    /// # Errors
    /// As [`Vm::read_superpage`].
    #[inline]
    pub(in crate::space) fn read_superpage_around(
        &self,
        unpinned: Unpinned<'_>,
        handle: u32,
        index: u64,
    ) -> Result<bool, FaultError> {
        if !self.has_huge() {
            return Ok(false);
        }
        let begun = self.begin_to_read_superpage(&self.pin_by(&unpinned), handle, index);
        match begun {
            Some(head) => self.read_superpage(unpinned, head).map(|()| true),
            None => Ok(false),
        }
    }

    /// Reads the pages from `head` on, which [`Vm::begin_to_read_superpage`] made, and unlocks
    /// them. Those that the store cannot deliver leave the cache, so that they are asked for one
    /// by one.
    ///
    /// # Errors
    /// [`FaultError::Io`] if it could deliver none.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn read_superpage(
        &self,
        mut unpinned: Unpinned<'_>,
        head: Pfn,
    ) -> Result<(), FaultError> {
        let record = self.memory.frame(head);
        let (object, first) = (self.objects.get(record.owner()), record.index());
        let ObjectKind::File { store } = object.kind() else {
            debug_assert!(false, "shared memory is not read");
            return Ok(());
        };
        let (mut failed, mut error) = (0, None::<IoError>);
        for start in (0..self.superpage() as u32).step_by(RUN_PAGES) {
            let frames: [Pfn; RUN_PAGES] =
                core::array::from_fn(|step| head.offset(start + step as u32));
            let index = first + u64::from(start);
            self.fill_run(
                unpinned.reborrow(),
                object,
                store,
                (index, &frames),
                |_, why| {
                    failed += 1;
                    error.get_or_insert(why);
                },
            );
        }
        match error {
            Some(error) if failed == self.superpage() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
