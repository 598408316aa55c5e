//! Fault hooks of a range, as an embedder holds them.

use crate::addr::Vpn;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::path::supply::Supply;
use crate::space::state::error::MapError;
use crate::space::state::hooks::HookError;
use crate::space::state::manager::Vm;
use crate::space::state::region::Traits;
use crate::space::state::spaces::SpaceId;
use crate::table::Format;

/// Fault hooks of a range of a space (userfaultfd): from [`Space::hooks`](crate::space::Space::hooks).
///
/// With [`FaultHooks::register`] a range gets hooks, which say what is handed to
/// [`Policy::fault_hook`](crate::platform::Policy::fault_hook):
///
/// | hook | catches | which is resolved by |
/// |---|---|---|
/// | [`Traits::HOOK_MISSING`] | any access to a page that is not there: of private memory, one without an entry; of shared memory, one that the object has not | [`Supply::Bytes`], [`Supply::Zeroes`] |
/// | [`Traits::HOOK_MINOR`] | any access to a page that the shared memory has and this space does not map | [`Supply::Present`] |
/// | [`Traits::HOOK_STORES`] | stores to pages that [`FaultHooks::protect`] or [`Supply::Protected`] protects | [`FaultHooks::unprotect`] |
///
/// Every access is caught: faults, [`Space::populate`](crate::space::Space::populate),
/// [`Space::pin_pages`](crate::space::Space::pin_pages) and the calls that read and write a space's
/// memory. The task waits or the call fails, as the platform answers. Calls that go on page by page
/// keep what they did before.
///
/// Hooks are properties of the memory: `mremap` moves them, and what it or a stack adds has them,
/// too. A forked child has none, and none of the protection; an embedder who wants them registers
/// the child's range before the child runs (`UFFD_FEATURE_EVENT_FORK`). What `munmap`,
/// [`Advice::DontNeed`](crate::space::Advice::DontNeed) or a cut of the object takes away is missing
/// afterwards, and not protected. Protection goes to swap with a private page and comes back; pages of shared
/// memory stay in memory while they are protected. There are no superpages over protected pages, and
/// [`Space::collapse`](crate::space::Space::collapse) leaves ranges with hooks alone.
///
/// The calls that resolve something wake those who wait for it, unless the handle is a
/// [`FaultHooks::quiet`] one. Unmapping, moving and unregistering a range wake those who wait in it,
/// too: their faults begin again.
pub struct FaultHooks<'vm, P: Platform, F: Format, R: ReverseMap> {
    pub(super) vm: &'vm Vm<P, F, R>,
    pub(super) id: SpaceId,
    pub(super) range: (Vpn, u64),
    pub(super) wakes: bool,
}

impl<P: Platform, F: Format, R: ReverseMap> Clone for FaultHooks<'_, P, F, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Copy for FaultHooks<'_, P, F, R> {}

impl<P: Platform, F: Format, R: ReverseMap> core::fmt::Debug for FaultHooks<'_, P, F, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("FaultHooks")
            .field(&self.id)
            .field(&self.range)
            .finish()
    }
}

impl<P: Platform, F: Format, R: ReverseMap> FaultHooks<'_, P, F, R> {
    /// Gives the regions of the range these hooks, and no others (`UFFDIO_REGISTER`): some of
    /// [`Traits::HOOK_MISSING`], [`Traits::HOOK_STORES`] and [`Traits::HOOK_MINOR`]. Pages that were
    /// protected stay so if stores are still caught. With [`Traits::NONE`] it takes all hooks and all
    /// protection off the range (`UFFDIO_UNREGISTER`), which may be of any kind then.
    ///
    /// # Errors
    /// [`MapError::BadRange`], [`MapError::NotMapped`] if the range has a hole; [`MapError::WrongKind`]
    /// if part of it is a private mapping of an object or a file of a store, or private memory for
    /// [`Traits::HOOK_MINOR`], if the traits are others, if the format has no room for the mark of
    /// protected pages ([`Format::WATCHES`]), or if the platform leaves hooks out
    /// ([`Parts`](crate::platform::Parts)); [`MapError::Rights`] if part of it may never be stored to;
    /// [`MapError::Limit`] and [`MapError::OutOfMemory`] if a region cannot be cut. Nothing changed.
    pub fn register(self, hooks: Traits) -> Result<(), MapError> {
        self.vm.set_hooks(self.id, self.range, hooks)
    }

    /// The same range; calls do not wake anybody (`UFFDIO_COPY_MODE_DONTWAKE` and the like):
    /// [`FaultHooks::wake`] does, once for several of them.
    #[must_use]
    pub fn quiet(self) -> Self {
        FaultHooks {
            wakes: false,
            ..self
        }
    }

    /// Puts pages into the range where there are none. Nobody sees one before it is full. Returns how
    /// many pages were put there: all, or those before the first that could not be.
    ///
    /// # Errors
    /// [`HookError`] if that was the first: [`HookError::Exists`] if there is a page, also one that
    /// somebody supplied through another mapping of the memory; [`HookError::NotHooked`] where there
    /// are no hooks, or stores are not caught ([`Supply::Protected`]); [`HookError::NoPage`] if the
    /// memory has none ([`Supply::Present`]); [`HookError::BadRange`] if the bytes are not as long as
    /// the range.
    pub fn supply(self, supply: Supply<'_>) -> Result<u64, HookError> {
        let done = self.vm.supply(self.id, self.range, supply)?;
        self.wake_if_loud(done)?;
        Ok(done)
    }

    /// Protects all pages of the range: the next store to each is caught (`UFFDIO_WRITEPROTECT` with
    /// `MODE_WP`, as with `UFFD_FEATURE_WP_UNPOPULATED`). No store gets through that begins when this
    /// has returned. Pages that nobody has touched are protected, too: they are mapped, unless another
    /// hook catches them, which takes page tables, and for shared memory pages. Not protected is what lies
    /// past the end of the memory. Superpages are split.
    ///
    /// # Errors
    /// [`HookError::NotHooked`] unless stores are caught in all of the range; nothing changed.
    /// [`HookError::Fault`] without memory for an entry; some pages are protected.
    pub fn protect(self) -> Result<(), HookError> {
        let (start, pages) = self.range;
        self.vm.watch(self.id, start, pages)
    }

    /// Ends the protection of the range (`UFFDIO_WRITEPROTECT` without `MODE_WP`).
    ///
    /// # Errors
    /// [`HookError::NotHooked`] unless stores are caught in all of the range; nothing changed.
    pub fn unprotect(self) -> Result<(), HookError> {
        let (start, pages) = self.range;
        self.vm.end_watch(self.id, start, pages)?;
        self.wake_if_loud(pages)
    }

    /// Wakes the tasks that wait for a page of the range (`UFFDIO_WAKE`). Their faults begin again,
    /// and are caught again if nothing has changed.
    ///
    /// # Errors
    /// [`HookError::BadRange`], [`HookError::NoSpace`].
    pub fn wake(self) -> Result<(), HookError> {
        let (start, pages) = self.range;
        self.vm.wake_range(self.id, start, pages)
    }

    fn wake_if_loud(self, pages: u64) -> Result<(), HookError> {
        match self.wakes && pages > 0 {
            true => self.vm.wake_range(self.id, self.range.0, pages),
            false => Ok(()),
        }
    }
}
