//! A space as an embedder holds it.

use super::group::Group;
use super::hooks::FaultHooks;
use super::pinned::PinnedPages;
use crate::addr::{Access, PageRange, Pfn, Prot, Vpn};
use crate::frame::NodePolicy;
use crate::platform::{GroupId, NodeId, Platform};
use crate::rmap::ReverseMap;
use crate::space::files::pin::PinError;
use crate::space::leaves::collapse::Collapse;
use crate::space::leaving::advise::Advice;
use crate::space::leaving::migrate::PagesMoved;
use crate::space::leaving::scan::ScanReport;
use crate::space::life::group::GroupError;
use crate::space::path::access::{Rights, UpdateError};
use crate::space::regions::map_request::MapRequest;
use crate::space::regions::maps::MapEntry;
use crate::space::regions::remap::{RemapPlacement, Remapped};
use crate::space::regions::track::TakeDirty;
use crate::space::state::account::{Limits, SpaceStats};
use crate::space::state::error::{FaultError, MapError};
use crate::space::state::layout::Layout;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::{Loaded, SpaceId};
use crate::space::steps::fault::Resolved;
use crate::table::Format;

/// An address space: its name, and the manager that has it.
///
/// Making one costs nothing and proves nothing: each call looks whether there is such a space, for
/// it may have ended since the last one, and says `NoSpace` if there is none. A call names a space
/// on behalf of a task in it, which keeps it from ending meanwhile.
pub struct Space<'vm, P: Platform, F: Format, R: ReverseMap> {
    pub(crate) vm: &'vm Vm<P, F, R>,
    pub(crate) id: SpaceId,
}

handle!(Space, SpaceId);

impl<'vm, P: Platform, F: Format, R: ReverseMap> Space<'vm, P, F, R> {
    /// The name, to keep where there is no borrow of the manager ([`Vm::space`]).
    #[inline]
    pub fn id(self) -> SpaceId {
        self.id
    }

    /// Maps memory and returns the first page.
    ///
    /// # Errors
    /// [`MapError`]; the space is as it was.
    #[inline]
    pub fn map(self, request: &MapRequest) -> Result<Vpn, MapError> {
        self.vm.map(self.id, request)
    }

    /// Unmaps `pages` pages from `start` on. Holes in the range are no error.
    ///
    /// # Errors
    /// [`MapError::BadRange`], [`MapError::NoSpace`], [`MapError::Limit`] if it would be a hole
    /// in a region that makes one region more than the space may have, and
    /// [`MapError::OutOfMemory`] if a region would have to be cut and cannot; nothing changed.
    #[inline]
    pub fn unmap(self, start: Vpn, pages: u64) -> Result<(), MapError> {
        self.vm.unmap(self.id, start, pages)
    }

    /// Changes the rights of a range, cutting and merging regions. As with
    /// [`MapRequest::prot`](crate::space::MapRequest::prot), what hardware cannot withhold is given.
    ///
    /// # Errors
    /// [`MapError::NotMapped`] if the range has a hole, [`MapError::Limit`] if it takes more
    /// regions than the space may have, [`MapError::OutOfMemory`] if a region cannot be cut;
    /// nothing changed.
    #[inline]
    pub fn protect(self, start: Vpn, pages: u64, prot: Prot) -> Result<(), MapError> {
        self.vm.protect(self.id, start, pages, prot)
    }

    /// Resizes the mapping of `pages` pages at `start` to `new_pages`, and moves it as `placement`
    /// says. It lies in one region, unless that is [`RemapPlacement::AllTo`]. With `pages` 0, what a shared mapping shows from `start` on is mapped once more.
    ///
    /// # Errors
    /// [`MapError`]; the space is as it was, but that of several regions those before the one that
    /// failed have moved. [`MapError::NotMapped`] if the range begins in a gap, or has one and
    /// does not move as a whole; [`MapError::WrongKind`] with `pages` 0 for what is not shared;
    /// [`MapError::BadRange`] also if the range and its target overlap, or what leaves its place
    /// mapped changes in size; [`MapError::Occupied`] if it may not move and cannot stay.
    #[inline]
    pub fn remap(
        self,
        start: Vpn,
        pages: u64,
        new_pages: u64,
        placement: RemapPlacement,
    ) -> Result<Remapped, MapError> {
        (self.vm).remap(self.id, start, pages, new_pages, placement)
    }

    /// Advises on a range.
    ///
    /// # Errors
    /// [`MapError::NotMapped`] if the range has a hole; the mapped parts were
    /// treated all the same, but for [`Advice::Folio`], which changes all or nothing.
    /// [`MapError::Locked`] if part of the range is locked, but for [`Advice::Folio`]; nothing
    /// changed.
    /// [`MapError::WrongKind`] if part of the range shows an object, for [`Advice::Free`]; nothing
    /// changed.
    /// [`MapError::Limit`] if it takes more regions than the space may have, for
    /// [`Advice::Folio`]; nothing changed.
    /// [`MapError::OutOfMemory`] if a superpage has to be split for which the reverse-mapping
    /// design has no memory, or a region cannot be cut; nothing changed.
    #[inline]
    pub fn advise(self, start: Vpn, pages: u64, advice: Advice) -> Result<(), MapError> {
        self.vm.advise(self.id, start, pages, advice)
    }

    /// Looks at up to `ranges` ranges of a superpage's size from `start` on, and makes a
    /// superpage of each that has one private region, at least `least` resident pages, and
    /// only such as nobody shares or has pinned. Pages that were not resident are zero and
    /// resident then. A task that calls this now and then sets the rate.
    ///
    /// Without superpages (`superpage=off`, or a format with larger ones than the allocator's
    /// blocks) it does nothing.
    ///
    /// # Errors
    /// [`MapError::NoSpace`]; [`MapError::OutOfMemory`] if there is no run of frames, or no
    /// table; [`MapError::GroupLimit`]. What was made before stays.
    #[inline]
    pub fn collapse(self, start: Vpn, ranges: u64, least: u32) -> Result<Collapse, MapError> {
        self.vm.collapse(self.id, start, ranges, least)
    }

    /// Resolves a page fault: `access` at byte `address` of the space was not
    /// possible. When it returns `Ok` the access may be tried again.
    ///
    /// # Errors
    /// [`FaultError`]; the space is as it was, but that a stack may have been
    /// extended to the page.
    #[inline]
    pub fn fault(self, address: u64, access: Access) -> Result<Resolved, FaultError> {
        self.vm.fault(self.id, address, access)
    }

    /// Faults in every page of a range (`MAP_POPULATE`, the second half of mlock): for writing where
    /// the memory is private and may be stored to, so that pages are copied now rather than at the
    /// first store; shared memory for reading, which makes no page dirty that nobody has stored to.
    ///
    /// # Errors
    /// [`FaultError`] of the first page that failed; those before stay mapped.
    #[inline]
    pub fn populate(self, start: Vpn, pages: u64) -> Result<(), FaultError> {
        self.vm.populate(self.id, start, pages)
    }

    /// Locks a range of pages, of any backing: those that are in memory stay there, and those that
    /// come later do from then on (mlock2 with `MLOCK_ONFAULT`). [`Space::populate`] brings them in:
    /// both calls together are mlock. A [`MapRequest`] with
    /// [`Traits::LOCKED`](crate::space::Traits::LOCKED) maps memory that is locked from the start.
    ///
    /// It is a property of the memory. `mremap` keeps it, what a stack or `mremap` adds has it,
    /// too, and a forked child has none of it. Unmapping ends it, and a file that is cut off loses
    /// its pages all the same. Locking a locked page changes nothing, and one [`Space::unlock`]
    /// ends it. A locked page may still be copied or moved to another frame, which
    /// [`Space::pin_pages`] prevents. If a superpage of an object loses its leaf because a part of
    /// it is unmapped or cut off, the rest stays from its next use on.
    ///
    /// # Errors
    /// [`MapError::BadRange`], [`MapError::NotMapped`] if the range has a hole,
    /// [`MapError::Limit`] if the space may not have that many locked pages
    /// ([`Limits::locked_pages`](crate::space::Limits::locked_pages)) or regions,
    /// [`MapError::OutOfMemory`] if a region cannot be cut; nothing changed.
    #[inline]
    pub fn lock(self, start: Vpn, pages: u64) -> Result<(), MapError> {
        self.vm.lock_pages(self.id, start, pages)
    }

    /// Has the regions of a range stay as they are until the space ends (mseal): they are not
    /// unmapped, replaced, moved, resized or given other rights, and advice does not drop what the
    /// space itself could not overwrite. Their pages are stored to, locked, swapped and truncated as
    /// before. A forked child has the seals, too.
    ///
    /// # Errors
    /// [`MapError::BadRange`], [`MapError::NotMapped`] if the range has a hole,
    /// [`MapError::Limit`] and [`MapError::OutOfMemory`] if a region cannot be cut; nothing changed.
    pub fn seal(self, start: Vpn, pages: u64) -> Result<(), MapError> {
        self.vm.seal(self.id, start, pages)
    }

    /// From now on nothing in the space becomes code that was none, and nothing is mapped that can
    /// be both stored to and executed (`PR_SET_MDWE`): [`MapError::Rights`]. Spaces that come of it
    /// by fork and exec are the same.
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::Pinned`].
    pub fn refuse_new_code(self) -> Result<(), MapError> {
        self.vm.refuse_new_code(self.id)
    }

    /// The fault hooks of `pages` pages from `start` on (userfaultfd): to register them, and to supply
    /// what they catch.
    #[inline]
    pub fn hooks(self, start: Vpn, pages: u64) -> FaultHooks<'vm, P, F, R> {
        FaultHooks {
            vm: self.vm,
            id: self.id,
            range: (start, pages),
            wakes: true,
        }
    }

    /// Calls `each` for the pages of a range that were written since the call before, and clears the
    /// marks that say so (soft-dirty and `PAGEMAP_SCAN` on Linux, the dirty log of KVM). These are the
    /// pages that a migration copies again, and the next checkpoint has. The first call about a
    /// mapping reports all of it. `each` gets ranges, mostly ascending, and a page may be among them
    /// twice.
    ///
    /// The CPUs are flushed before `each` is called: a store that comes later is reported by the next
    /// call. The space's lock is held meanwhile, so `each` must not call the manager.
    ///
    /// Reported are stores of programs and of [`Space::write`]; pages that are pinned, and once more
    /// after the last pin has ended; and what has other content for another reason: mappings that are
    /// new, have grown or moved, and ranges that advice dropped. A page that was written and went to
    /// swap is reported. If a page of an object was written and left memory, its whole mapping is.
    /// Stores through other mappings are not, nor is what cuts an object. A page of a file stays dirty
    /// for its store. A child of `fork` is new.
    ///
    /// A superpage has one mark, and is reported as a whole; [`TakeDirty::splits`] makes single pages of
    /// it. Regions that have to be reported whole are cut at the edges of the range first.
    ///
    /// # Errors
    /// [`MapError::BadRange`], [`MapError::NoSpace`] and [`MapError::Pinned`]; [`MapError::Limit`] and
    /// [`MapError::OutOfMemory`] if a region cannot be cut. `each` was not called.
    pub fn take_dirty(
        self,
        range: PageRange,
        how: TakeDirty,
        mut each: impl FnMut(PageRange),
    ) -> Result<(), MapError> {
        self.vm.take_dirty(self.id, range, how, &mut each)
    }

    /// Lets reclaim take the pages of a range again (munlock).
    ///
    /// # Errors
    /// As [`Space::lock`], but for the limit of locked pages.
    #[inline]
    pub fn unlock(self, start: Vpn, pages: u64) -> Result<(), MapError> {
        self.vm.unlock_pages(self.id, start, pages)
    }

    /// Copies memory of the space to `to` (`copy_from_user`, `process_vm_readv`), from any CPU and
    /// whatever runs in the space. Pages are faulted in as for loads of its own. Returns how many
    /// bytes it copied: fewer than there is room for if a page could not be read. What others
    /// store meanwhile is there or not, each aligned word of 8 bytes as a whole.
    ///
    /// # Errors
    /// [`FaultError`] if nothing was copied: [`FaultError::Protection`] unless the region may be
    /// read, [`FaultError::NoRegion`] where there is none.
    pub fn read(self, address: u64, to: &mut [u8]) -> Result<usize, FaultError> {
        self.vm.read_memory(self.id, address, to, Rights::Checked)
    }

    /// Copies `data` to memory of the space (`copy_to_user`, `process_vm_writev`), as stores of
    /// its own would: pages are copied, get dirty and are counted as by those. Returns how many
    /// bytes it copied.
    ///
    /// # Errors
    /// As [`Space::read`], for stores.
    pub fn write(self, address: u64, data: &[u8]) -> Result<usize, FaultError> {
        self.vm
            .write_memory(self.id, address, data, Rights::Checked)
    }

    /// Copies a string that ends with a zero byte (`strncpy_from_user`). Returns its length
    /// without that byte, or the size of `to` if it is longer than the bytes before the last.
    ///
    /// # Errors
    /// [`FaultError`] of the first page that cannot be read before the string ends.
    pub fn read_string(self, address: u64, to: &mut [u8]) -> Result<usize, FaultError> {
        self.vm.read_string(self.id, address, to)
    }

    /// Replaces the 4-byte word at `address` by what `update` makes of it, in one atomic step
    /// beside stores and atomic operations of the space's own (futexes). Answers with the
    /// old word: `Ok` if it was replaced, `Err` if `update` has nothing for it. `update` is
    /// called under a spin lock, and again if the word changes meanwhile.
    ///
    /// # Errors
    /// [`UpdateError`]. A page that may not be stored to is an error even if `update` would
    /// not store.
    pub fn update_word(
        self,
        address: u64,
        mut update: impl FnMut(u32) -> Option<u32>,
    ) -> Result<Result<u32, u32>, UpdateError> {
        self.vm.update_word(self.id, address, &mut update)
    }

    /// [`Space::read`] for a debugger: what is mapped can be read, whatever its rights.
    ///
    /// # Errors
    /// As [`Space::read`], but for rights.
    pub fn read_forced(self, address: u64, to: &mut [u8]) -> Result<usize, FaultError> {
        self.vm.read_memory(self.id, address, to, Rights::Forced)
    }

    /// [`Space::write`] for a debugger: private memory can be written, whatever its rights, and
    /// keeps them. Pages that others see, or that are a file's, are copied first.
    ///
    /// # Errors
    /// As [`Space::write`]; [`FaultError::Protection`] for shared memory that may not be stored
    /// to.
    pub fn write_forced(self, address: u64, data: &[u8]) -> Result<usize, FaultError> {
        self.vm.write_memory(self.id, address, data, Rights::Forced)
    }

    /// Faults in the pages from `start` on, as many as `frames` has room for,
    /// and pins their frames, which are written to `frames`. Whatever the access, the space has
    /// them to itself or shares them on purpose: a page of a private mapping that others can see
    /// is copied first, as a store would copy it (Linux's `FAULT_FLAG_UNSHARE`, 2022). So what is
    /// read by virtue of the pin is what the space sees, and nobody else's. A pinned frame stays
    /// allocated until [`PinnedPages`] is dropped, whatever happens to its mapping; fork gives the
    /// child a copy of a pinned page.
    ///
    /// # Errors
    /// [`PinError`]; nothing stays pinned. Pages that were faulted in before the
    /// failing one stay mapped. [`FaultError::NoRegion`] if a page is none that a
    /// user space can map.
    pub fn pin_pages<'f>(
        self,
        start: Vpn,
        access: Access,
        frames: &'f mut [Pfn],
    ) -> Result<PinnedPages<'vm, 'f, P, F, R>, PinError> {
        self.vm.pin_pages(self.id, start, access, frames)?;
        Ok(PinnedPages::of(self.vm, frames))
    }

    /// Makes a copy-on-write copy of the space, with one user.
    ///
    /// # Errors
    /// [`MapError::OutOfMemory`]; there is no child, and the parent shows the
    /// same memory as before (it may fault on stores where it did not).
    #[inline]
    pub fn fork(self) -> Result<Space<'vm, P, F, R>, MapError> {
        Ok(self.vm.space(self.vm.fork(self.id)?))
    }

    /// One more task uses the space (a thread, or a vfork child).
    ///
    /// # Errors
    /// [`MapError::NoSpace`]: its last task may have left meanwhile.
    #[inline]
    pub fn share(self) -> Result<(), MapError> {
        self.vm.share_space(self.id)
    }

    /// A task of the space begins a new program: it leaves for the new, empty
    /// space that is returned, which has the limits and the group of this one.
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::OutOfMemory`], [`MapError::Pinned`],
    /// [`MapError::Loaded`]; the task stays in this one.
    #[inline]
    pub fn exec(self) -> Result<Space<'vm, P, F, R>, MapError> {
        Ok(self.vm.space(self.vm.exec(self.id)?))
    }

    /// One task leaves the space; the last one ends it. By then no CPU runs in
    /// it: the embedder has loaded another space wherever it was loaded.
    /// Returns whether the space ended.
    ///
    /// # Errors
    /// [`MapError::NoSpace`], and, if the space would end, [`MapError::Pinned`] and
    /// [`MapError::Loaded`]: the task stays in it.
    #[inline]
    pub fn exit(self) -> Result<bool, MapError> {
        self.vm.exit(self.id)
    }

    /// Loads the space on this CPU: the context switch of the embedder. Faults
    /// do it by themselves; it must happen before hardware walks the space's
    /// tables on this CPU.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    #[inline]
    pub fn load(self) -> Result<Loaded, MapError> {
        self.vm.load(self.id).ok_or(MapError::NoSpace)
    }

    /// Start and end of the heap.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    #[inline]
    pub fn heap(self) -> Result<PageRange, MapError> {
        self.vm.heap(self.id).ok_or(MapError::NoSpace)
    }

    /// Says where the heap begins. It is empty until [`Space::set_heap_end`].
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::BadRange`] if no user space can map `start`.
    #[inline]
    pub fn set_heap_start(self, start: Vpn) -> Result<(), MapError> {
        self.vm.set_heap_start(self.id, start)
    }

    /// Moves the end of the heap: private zeroes are mapped or unmapped (brk).
    ///
    /// # Errors
    /// [`MapError::BadRange`] below the start, [`MapError::Occupied`] if something is in the way or
    /// a stack would come too close, [`MapError::Limit`], [`MapError::OutOfMemory`].
    #[inline]
    pub fn set_heap_end(self, end: Vpn) -> Result<(), MapError> {
        self.vm.set_heap_end(self.id, end)
    }

    /// Whether every page of `range` is mapped with the right to `access`:
    /// what a prober of user memory asks before it copies. No page is missing in
    /// an empty range; none beyond what a user space can map is accessible.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    #[inline]
    pub fn is_accessible(self, range: PageRange, access: Access) -> Result<bool, MapError> {
        self.vm.is_accessible(self.id, range, access)
    }

    /// The frame that `page` shows and what its entry allows: a walk of the tables
    /// without a lock, as hardware does it.
    ///
    /// # Errors
    /// [`MapError::NotMapped`] if no entry shows anything, also of a page that no user space can
    /// map; [`MapError::NoSpace`].
    #[inline]
    pub fn translate(self, page: Vpn) -> Result<(Pfn, Prot), MapError> {
        let found = self.vm.translate(self.id, page);
        found.ok_or_else(|| self.nothing_found())
    }

    /// Which pages from `start` on are in memory (mincore): those that an entry shows, and of objects
    /// also those in the page cache that no entry shows yet. A page that this says of may be gone
    /// when the call returns, unless it is locked. Who may not write to a file should not be told of
    /// its pages: that is for the embedder to know.
    ///
    /// # Errors
    /// [`MapError::NotMapped`] if the range has a hole, [`MapError::BadRange`],
    /// [`MapError::NoSpace`]; `resident` is as it was.
    pub fn residency(self, start: Vpn, resident: &mut [bool]) -> Result<(), MapError> {
        self.vm.residency(self.id, start, resident)
    }

    /// The region that holds `page`, found without a lock, and without pinning:
    /// no line is written. It may change as soon as it was found.
    ///
    /// # Errors
    /// [`MapError::NotMapped`] if no region holds the page, [`MapError::NoSpace`].
    #[inline]
    pub fn region_at(self, page: Vpn) -> Result<MapEntry, MapError> {
        let found = self.vm.region_at(self.id, page);
        found.ok_or_else(|| self.nothing_found())
    }

    /// Why nothing was found in the space.
    #[cold]
    fn nothing_found(self) -> MapError {
        match self.vm.find_space(self.id) {
            Some(_) => MapError::NotMapped,
            None => MapError::NoSpace,
        }
    }

    /// Calls `each` for every region of the space, ascending. The space's lock
    /// is held: `each` must not change it.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    #[inline]
    pub fn for_each_region(self, each: impl FnMut(&MapEntry)) -> Result<(), MapError> {
        self.vm.for_each_region(self.id, each)
    }

    /// Calls `each` with page, first frame, pages and rights of every leaf of the
    /// space, ascending, while its lock is held.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    #[inline]
    pub fn for_each_leaf(self, each: impl FnMut(Vpn, Pfn, u64, Prot)) -> Result<(), MapError> {
        self.vm.for_each_leaf(self.id, each)
    }

    /// What the space uses. Exact when none of its tasks runs.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    #[inline]
    pub fn stats(self) -> Result<SpaceStats, MapError> {
        self.vm.space_stats(self.id).ok_or(MapError::NoSpace)
    }

    /// Looks up every page of `range` that the space maps: visits all entries
    /// that map it, of whatever space, and takes their accessed marks. CPUs are
    /// not flushed; one that has the translation cached need not set the mark
    /// again. The shared zero page belongs to nobody and is left out. A superpage whose
    /// frames have one record is one page here.
    ///
    /// Pages that no user space can map are left out too. Takes table locks, one at a time.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    #[inline]
    pub fn scan(self, range: PageRange) -> Result<ScanReport, MapError> {
        self.vm.scan_space(self.id, range).ok_or(MapError::NoSpace)
    }

    /// Sets what the space may have. What it has already stays.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    #[inline]
    pub fn set_limits(self, limits: Limits) -> Result<(), MapError> {
        self.vm.set_limits(self.id, limits)
    }

    /// Sets where the space places what is mapped without a place of its own, and what it keeps free:
    /// at the beginning [`Layout::fixed`]. What is mapped already stays. A forked child has the same,
    /// and what follows [`Space::exec`] begins anew.
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::BadRange`] if a page of it is beyond what a user space can
    /// map.
    pub fn set_layout(self, layout: &Layout) -> Result<(), MapError> {
        self.vm.set_layout(self.id, layout)
    }

    /// The group of the space; that of [`GroupId::ROOT`] if it was moved to none.
    ///
    /// # Errors
    /// [`GroupError::NoSpace`].
    #[inline]
    pub fn group(self) -> Result<Group<'vm, P, F, R>, GroupError> {
        let id = self.vm.group_of(self.id).ok_or(GroupError::NoSpace)?;
        Ok(self.vm.group(id))
    }

    /// Moves the space to a group ([`GroupId::ROOT`]: to none): what it touches from now on is
    /// charged there. What was charged before stays where it is. A child of fork begins in its
    /// parent's group, and what follows [`Space::exec`] in that of the space before.
    ///
    /// # Errors
    /// [`GroupError::NoSpace`], [`GroupError::NoGroup`], [`GroupError::Off`].
    #[inline]
    pub fn set_group(self, group: GroupId) -> Result<(), GroupError> {
        self.vm.set_group(self.id, group)
    }

    /// Says on which nodes pages of a range come to lie from now on (`mbind`), or, without a range,
    /// those of the space that no other policy is about (`set_mempolicy`); `None` takes the policy
    /// away. Pages that are there stay where they are.
    ///
    /// A page has the policy of its region; a page of an object, or else, that of the object
    /// ([`File::set_node_policy`](crate::space::File::set_node_policy)); or else that of the space
    /// that first touches it; or else it is [`NodePolicy::Local`]. Moves and cuts keep a region's,
    /// a child of fork has the same and what follows [`Space::exec`] the space's. What is read back:
    /// [`Space::region_at`], [`Space::stats`].
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::BadRange`], [`MapError::NotMapped`], [`MapError::Limit`],
    /// [`MapError::OutOfMemory`]; [`MapError::BadNodes`] if the policy names no node, or one that
    /// there is not, or if the platform leaves policies out
    /// ([`Parts::with_nodes`](crate::platform::Parts::with_nodes)).
    pub fn set_node_policy(
        self,
        range: Option<PageRange>,
        policy: Option<NodePolicy>,
    ) -> Result<(), MapError> {
        self.vm.set_node_policy(self.id, range, policy)
    }

    /// Moves the pages of a range that are in memory to a node (`move_pages`, `migrate_pages`), or,
    /// without one, to where the policy that counts wants them (`mbind` with `MPOL_MF_MOVE`). Pages of
    /// objects that the range shows move for all who map them, whether this space has touched them or
    /// not; newer ones than their stores are written first. Private pages that other spaces map, too,
    /// stay. What is in swap, device memory and the zero page are not counted. A superpage of private
    /// memory moves whole if the range has all of it and there is a block of frames for it, and is
    /// split otherwise; one of an object comes back page by page. A page goes on being charged to its
    /// space's group, or, if it is an object's, to the one that was charged.
    ///
    /// The space is locked for a few hundred pages at a time, and pages of objects have their own
    /// locks. The caller is not pinned. May sleep while a store is written to. Pages that come
    /// meanwhile may be where their policy says, or anywhere.
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::BadRange`], [`MapError::NotMapped`] if not all of the range
    /// is mapped, [`MapError::Pinned`], [`MapError::BadNodes`] if there is no such node, or no policy
    /// can name it. Nothing moved.
    pub fn move_pages(self, range: PageRange, to: Option<NodeId>) -> Result<PagesMoved, MapError> {
        self.vm.migrate_pages(self.id, range, to)
    }

    /// Divides the space before `page`, so that changes of regions on one side do not wait for those
    /// on the other. Spaces divide themselves where CPUs wait for each other again and again; this
    /// is for who knows that they will. Returns whether the space is divided there now. It is not
    /// if `page` lies within a region, or if there are too many tracts already.
    ///
    /// A call that concerns pages on both sides makes the space one again.
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::OutOfMemory`].
    #[inline]
    pub fn divide(self, page: Vpn) -> Result<bool, MapError> {
        self.vm.divide_space(self.id, page)
    }
}
