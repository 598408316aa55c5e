//! Files in memory that grow, and are to have superpages: frames that are set aside for the
//! range in which such a file ends.
//!
//! A write at the end of an object makes a few pages of a range of a superpage's size, and more
//! come with the next. The first sets a run of frames aside; each page gets the frame at its
//! place in the run when it is made, whoever makes it. So pages that are all there lie as a
//! superpage needs them ([`crate::frame::reservation`](crate::frame)). An object has one run
//! at a time, for the range that its writer is at: the word that names it may be out of
//! date, and then leads to a run of somebody else, or of nobody, which says so.

use core::ops::Range;

use super::{Object, Objects};
use crate::addr::Pfn;
use crate::frame::{NoPage, Owner, Payer, PhysicalMemory, Request};
use crate::platform::Platform;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

impl<S> Object<S> {
    /// The run that is or was set aside for shared memory.
    fn run(&self) -> Option<Pfn> {
        if self.is_file() {
            return None;
        }
        Self::run_of(self.next.load(Ordering::Relaxed))
    }

    /// Names another run. Returns the one before.
    fn set_run(&self, run: Pfn) -> Option<Pfn> {
        let word = u64::from(run.0) + 1;
        Self::run_of(self.next.swap(word, Ordering::Relaxed))
    }

    fn run_of(word: u64) -> Option<Pfn> {
        word.checked_sub(1).map(|frame| Pfn(frame as u32))
    }
}

impl<S: Default + Send + Sync + 'static> Objects<S> {
    /// Sets a run of frames aside for the pages from `first` on, in place of the one that the
    /// object had. False if there is no run.
    pub(crate) fn set_run_aside<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (handle, first): (u32, u64),
    ) -> bool {
        let Some(run) = memory.reserve_run(pin) else {
            return false;
        };
        memory.grant_run(pin, run, Owner::Object { handle, first });
        if let Some(old) = self.get(handle).set_run(run) {
            memory.end_run_of(pin, old, handle, &(0..u64::MAX));
        }
        true
    }

    /// Gives back what is set aside for pages of an object that are cut off or punched out.
    pub(crate) fn end_run<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        handle: u32,
        cut: &Range<u64>,
    ) {
        if memory.pages_of_runs().is_some()
            && let Some(run) = self.get(handle).run()
        {
            memory.end_run_of(pin, run, handle, cut);
        }
    }

    /// A frame for the page at `index`, charged to `payer`: the one that is set aside for it, or
    /// any. Its bytes are unspecified.
    ///
    /// # Errors
    /// [`NoPage`].
    #[inline]
    pub(crate) fn alloc_for<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (handle, index): (u32, u64),
        (request, payer): (Request, Payer),
    ) -> Result<Pfn, NoPage> {
        match self.take_reserved(memory, pin, (handle, index), payer)? {
            Some(frame) => Ok(frame),
            None => memory.alloc_page(pin, request, payer, || index),
        }
    }

    /// The frame that is set aside for the page at `index`, if there is one that nobody has
    /// taken, charged to `payer`. Its bytes are unspecified.
    ///
    /// # Errors
    /// [`NoPage`].
    #[inline]
    pub(super) fn take_reserved<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (handle, index): (u32, u64),
        payer: Payer,
    ) -> Result<Option<Pfn>, NoPage> {
        let Some(pages) = memory.pages_of_runs() else {
            return Ok(None);
        };
        let Some(run) = self.get(handle).run() else {
            return Ok(None);
        };
        let place = index & (pages - 1);
        let first = index - place;
        let owner = Owner::Object { handle, first };
        memory.charge_page(pin, payer, || {
            memory.take_reserved(pin, run, owner, place as u32)
        })
    }

    /// Gives back a frame that no page was made of: to the object's run, if it came from there.
    #[inline]
    pub(super) fn give_back<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        handle: u32,
        frame: Pfn,
    ) {
        let kept = memory.pages_of_runs();
        match kept.and_then(|_| self.get(handle).run()) {
            Some(run) => memory.give_back_to(pin, run, handle, frame),
            None => memory.put(pin, frame),
        }
    }

    /// Whether the object names the run.
    pub(crate) fn has_run(&self, handle: u32, run: Pfn) -> bool {
        let object = self.owner(handle).filter(|object| object.users() > 0);
        object.and_then(Object::run) == Some(run)
    }
}
