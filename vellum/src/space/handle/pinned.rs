//! Pages that stay where they are as long as somebody holds them.

use core::mem::ManuallyDrop;
use core::ops::Deref;

use crate::addr::Pfn;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::manager::Vm;
use crate::table::Format;

/// Pinned frames ([`Space::pin_pages`](crate::space::Space::pin_pages)), in the order of the pages
/// that showed them. They are unpinned when this is dropped; code that reads or writes them by
/// virtue of the pins, such as a device, has ended by then.
#[must_use = "the pages are unpinned at once"]
pub struct PinnedPages<'vm, 'f, P: Platform, F: Format, R: ReverseMap> {
    vm: &'vm Vm<P, F, R>,
    frames: &'f [Pfn],
}

impl<'vm, 'f, P: Platform, F: Format, R: ReverseMap> PinnedPages<'vm, 'f, P, F, R> {
    /// Frames that `vm` has just pinned.
    pub(super) fn of(vm: &'vm Vm<P, F, R>, frames: &'f [Pfn]) -> Self {
        PinnedPages { vm, frames }
    }

    /// Keeps the frames pinned without their holder: for records of requests that lie where no
    /// borrow can, until [`PinnedPages::from_frames`].
    pub fn into_frames(self) -> &'f [Pfn] {
        ManuallyDrop::new(self).frames
    }

    /// Pinned frames whose holder was given up.
    ///
    /// # Safety
    /// `vm` pinned each of the frames, [`PinnedPages::into_frames`] gave its pin up, and nobody
    /// has taken it up again.
    pub unsafe fn from_frames(vm: &'vm Vm<P, F, R>, frames: &'f [Pfn]) -> Self {
        PinnedPages { vm, frames }
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Deref for PinnedPages<'_, '_, P, F, R> {
    type Target = [Pfn];

    fn deref(&self) -> &[Pfn] {
        self.frames
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Drop for PinnedPages<'_, '_, P, F, R> {
    fn drop(&mut self) {
        // SAFETY: `pin_pages` pinned them, as `of` and `from_frames` ask for, and with this ends
        // the only holder of the pins.
        unsafe { self.vm.unpin(self.frames) }
    }
}

impl<P: Platform, F: Format, R: ReverseMap> core::fmt::Debug for PinnedPages<'_, '_, P, F, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("PinnedPages").field(&self.frames).finish()
    }
}
