//! What page aging is told: which pages come, are used, and go.

use super::common::Common;
use crate::addr::Pfn;
use crate::object::{AgedPage, Aging, Inserted};
use crate::platform::Platform;
use crate::sync::Pin;

impl<P: Platform> Common<P> {
    #[inline]
    pub(in crate::space) fn note_inserted(&self, pin: &Pin<'_>, frame: Pfn, kind: Inserted) {
        if let Some(aging) = &self.aging {
            let is_private = kind == Inserted::Anonymous;
            if is_private && self.reclaim().is_some_and(|it| it.stays(pin, frame)) {
                return;
            }
            self.tell_inserted(&**aging, pin, frame, kind);
        }
    }

    /// A call has read or written a page of an object.
    #[inline]
    pub(in crate::space) fn note_touched(&self, pin: &Pin<'_>, frame: Pfn) {
        if let Some(aging) = &self.aging {
            self.tell_touched(&**aging, pin, frame);
        }
    }

    /// A page is not needed soon, or not at all until it is stored to again.
    pub(in crate::space) fn note_unwanted(&self, pin: &Pin<'_>, frame: Pfn, is_droppable: bool) {
        if let Some(aging) = &self.aging {
            aging.unwanted(pin, self.aged(frame), is_droppable);
        }
    }

    #[inline]
    pub(in crate::space) fn note_removed(&self, pin: &Pin<'_>, frame: Pfn) {
        if let Some(aging) = &self.aging {
            self.tell_removed(&**aging, pin, frame);
        }
    }

    #[inline]
    pub(in crate::space) fn note_removed_all(&self, pin: &Pin<'_>, frames: &[Pfn]) {
        if let Some(aging) = &self.aging {
            aging.removed_all(pin, &mut frames.iter().map(|&frame| self.aged(frame)));
        }
    }

    // Not inlined: without aging there is nothing of it on the paths of faults.
    #[inline(never)]
    fn tell_inserted(&self, aging: &dyn Aging, pin: &Pin<'_>, frame: Pfn, kind: Inserted) {
        aging.inserted(pin, self.aged(frame), kind);
    }

    #[inline(never)]
    fn tell_touched(&self, aging: &dyn Aging, pin: &Pin<'_>, frame: Pfn) {
        aging.touched(pin, self.aged(frame));
    }

    #[inline(never)]
    fn tell_removed(&self, aging: &dyn Aging, pin: &Pin<'_>, frame: Pfn) {
        aging.removed(pin, self.aged(frame));
    }

    pub(in crate::space) fn aged(&self, frame: Pfn) -> AgedPage<'_> {
        AgedPage::new(frame, self.memory.frame(frame))
    }
}
