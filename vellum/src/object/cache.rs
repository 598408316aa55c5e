//! The page cache: finding, making and dropping pages of objects.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::AtomicU64;

use super::mount::MountRecord;
use super::page_lock::{PageLock, PageLocks};
use super::radix::{INDEX_END, Radix, RadixNodes};
use super::regions::{MappedBy, ObjectRegions};
use super::spread::{Spread, SpreadRoots};
use super::{AT_ONCE_BIT, Object, ObjectId, ObjectKind, STORE_BIT, Seals, UNMANAGED_BIT};
use crate::addr::Pfn;
use crate::design::RegionIndex;
use crate::frame::{
    Kind, MappingsCounted, NoPage, OutOfMemory, PageFlags, Payer, PhysicalMemory, Relief, Request,
    Site,
};
use crate::platform::{GroupId, Platform};
use crate::slab::{Arena, ArenaMaker, Handle};
use crate::sync::atomic::Ordering;
use crate::sync::users::join;
use crate::sync::{Pin, SeqCount, Turn, bytes};

/// Why a page could not be put into the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheError {
    /// No frame or node could be had.
    OutOfMemory,
    /// The object's mount has as many pages as it may, or no more may be promised.
    Full,
    /// The group that would be charged has as many pages as it may.
    GroupLimit(GroupId),
    /// [`NoPage::Unplaced`].
    Unplaced,
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::OutOfMemory => fmt::Display::fmt(&OutOfMemory, f),
            CacheError::Full => {
                f.write_str("the mount has as many pages as it may, or as may be promised")
            }
            CacheError::GroupLimit(group) => fmt::Display::fmt(&NoPage::GroupLimit(*group), f),
            CacheError::Unplaced => fmt::Display::fmt(&NoPage::Unplaced, f),
        }
    }
}

impl core::error::Error for CacheError {}

impl From<OutOfMemory> for CacheError {
    fn from(_: OutOfMemory) -> Self {
        CacheError::OutOfMemory
    }
}

impl From<NoPage> for CacheError {
    fn from(error: NoPage) -> Self {
        match error {
            NoPage::OutOfMemory => CacheError::OutOfMemory,
            NoPage::GroupLimit(group) => CacheError::GroupLimit(group),
            NoPage::Unplaced => CacheError::Unplaced,
        }
    }
}

/// A page of an object that somebody asked for.
#[derive(PartialEq, Eq, Debug)]
pub enum CachedPage {
    /// Up to date; the caller has a reference.
    Ready(Pfn),
    /// The same, and new: the caller has made it.
    Made(Pfn),
    /// New or not up to date, and locked by the caller, who has a reference
    /// and must fill it ([`Objects::filled`]) unpinned.
    Fill(PageLock),
    /// Locked by somebody else; the caller has a reference and waits.
    Locked(Pfn),
    /// In swap, in this slot.
    Swapped(u32),
}

/// Managers that have been made.
static MANAGERS: AtomicU64 = AtomicU64::new(0);

/// The objects of one manager, with their pages.
pub struct Objects<S: Default + Send + Sync + 'static = ()> {
    arena: Arena<Object<S>>,
    pub(super) nodes: RadixNodes,
    /// By itself: those who look for pages have nothing to do with it.
    pub(super) mounts: Box<Arena<MountRecord>>,
    spread: Box<Spread>,
    /// Page locks and who waits for them.
    pub locks: PageLocks,
    /// A number that no other manager of the program has.
    manager: u64,
}

/// Somebody who holds a range of an object's pages: nobody else writes to them or takes them out of
/// the cache.
pub(crate) trait HoldsPages<S = ()> {
    /// Whose pages they are.
    fn object(&self) -> &Object<S>;
}

impl<S: Default + Send + Sync + 'static> Objects<S> {
    /// No objects yet. They keep their regions as `region_index` says.
    // Made where it stays: a manager is made on a small stack.
    #[inline(always)]
    pub fn new(arenas: &ArenaMaker, region_index: RegionIndex) -> Self {
        Objects {
            arena: arenas.make(),
            nodes: arenas.make(),
            mounts: Box::new(arenas.make()),
            spread: Spread::new(region_index, arenas),
            locks: PageLocks::default(),
            manager: MANAGERS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Names what lies in the arenas' own parts.
    #[cfg(vellum_instrumented)]
    pub(crate) fn name_parts(&self) {
        let arena = &self.arena;
        arena.name_parts(["arena of objects: depot", "arena of objects: chunks"]);
        let nodes = &self.nodes;
        nodes.name_parts([
            "arena of radix nodes: depot",
            "arena of radix nodes: chunks",
        ]);
        self.spread.arena().name_parts([
            "arena of further region sets: depot",
            "arena of further region sets: chunks",
        ]);
    }

    /// Tells the manager from others.
    pub(crate) fn manager(&self) -> u64 {
        self.manager
    }

    /// The arena of objects.
    pub(crate) fn arena(&self) -> &Arena<Object<S>> {
        &self.arena
    }

    /// The arena of radix nodes.
    pub(crate) fn nodes(&self) -> &RadixNodes {
        &self.nodes
    }

    /// The arena of further sets of regions.
    pub(crate) fn region_sets(&self) -> &Arena<SpreadRoots> {
        self.spread.arena()
    }

    /// The arena of mounts.
    pub(crate) fn mounts(&self) -> &Arena<MountRecord> {
        &self.mounts
    }

    /// The object with this handle, which is in use.
    #[inline]
    pub fn get(&self, handle: u32) -> &Object<S> {
        self.arena.get(Handle::from_raw(handle))
    }

    /// The object that a page's record names as its owner, whatever it is by now; `None` if there
    /// never was one.
    pub(crate) fn owner(&self, handle: u32) -> Option<&Object<S>> {
        self.arena.try_get(Handle::from_raw(handle))
    }

    /// The object with this name, if it still exists, and is one that has pages.
    pub fn find(&self, id: ObjectId) -> Option<&Object<S>> {
        // The name may be another manager's.
        let object = self.arena.try_get(Handle::from_raw(id.handle))?;
        let is_it = object.generation() == id.generation && object.users() > 0;
        (is_it && !object.is_unmanaged()).then_some(object)
    }

    /// Makes an object of `size` bytes with one user. Its pages count against the
    /// mount with handle `mount`, which has one user more then, if it is not 0.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn create<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        kind: ObjectKind,
        size: u64,
        mount: u32,
    ) -> Result<ObjectId, OutOfMemory> {
        let handle = self.arena.alloc(pin, memory)?;
        let object = self.arena.get(handle);
        // A reader may still have a region of the object that was here before.
        SeqCount::before_reuse();
        let store = match kind {
            ObjectKind::SharedMemory => 0,
            ObjectKind::File { store } => store | STORE_BIT,
            ObjectKind::Unmanaged { first, at_once } => {
                let at_once = if at_once { AT_ONCE_BIT } else { 0 };
                UNMANAGED_BIT | at_once | u64::from(first.0)
            }
        };
        object.store.store(store, Ordering::Relaxed);
        object.huge.store(0, Ordering::Relaxed);
        object.end_commit();
        object.begin_seals(Seals::SEAL);
        object.shifting.store(0, Ordering::Relaxed);
        object.size.store(size, Ordering::Relaxed);
        let part = size & (memory.frame_size() as u64 - 1);
        let pages = (size >> memory.frame_shift()) + u64::from(part != 0);
        object.pages.begin(pages.min(INDEX_END));
        object.mount.store(mount, Ordering::Relaxed);
        object.errors.reset();
        object.regions.begin();
        object.next.store(0, Ordering::Relaxed);
        let generation = object.generation().wrapping_add(1);
        object.generation.store(generation, Ordering::Relaxed);
        object.is_owned.store(1, Ordering::Relaxed);
        object.users.store(1, Ordering::Release);
        Ok(ObjectId {
            handle: handle.raw(),
            generation,
        })
    }

    /// One more user of an object that has one.
    #[cfg(test)]
    pub(crate) fn hold(&self, handle: u32) {
        self.get(handle).users.fetch_add(1, Ordering::Relaxed);
    }

    /// One user more of the object with this name, if it has not ended. The caller is
    /// pinned, so that it does not become another object meanwhile (invariant 7).
    pub(crate) fn hold_named(&self, pin: &Pin<'_>, id: ObjectId) -> Option<&Object<S>> {
        let turn = Turn::at(pin, id.handle);
        self.find(id).filter(|object| join(&object.users, turn))
    }

    /// One user more of an object that the caller has found, if it has any. The caller is pinned, as
    /// of [`Objects::hold_named`].
    pub(crate) fn hold_if_used(&self, pin: &Pin<'_>, handle: u32) -> bool {
        join(&self.get(handle).users, Turn::at(pin, handle))
    }

    /// Whoever made the object with this name is a user of it no longer: whether it was the last.
    /// `None` if there is no such object, or its maker has released it before. The caller is
    /// pinned, as of [`Objects::hold_named`].
    pub(crate) fn release_named(&self, _pin: &Pin<'_>, id: ObjectId) -> Option<bool> {
        let object = self.find(id)?;
        let is_owned = object.is_owned.swap(0, Ordering::AcqRel) != 0;
        is_owned.then(|| self.release(id.handle))
    }

    /// One user less; true if it was the last, and the caller must
    /// drop its pages and `Objects::retire` it.
    #[must_use]
    pub(crate) fn release(&self, handle: u32) -> bool {
        self.get(handle).users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The object that was just made is to be none: nobody else has found it.
    pub(crate) fn unmake(&self, pin: &Pin<'_>, handle: u32) {
        let last = self.release(handle);
        debug_assert!(last, "an object that was just made has another user");
        self.retire(pin, handle);
    }

    /// Makes the memory of an object without users, regions or pages reusable.
    pub(crate) fn retire(&self, pin: &Pin<'_>, handle: u32) {
        let object = self.get(handle);
        let generation = object.generation().wrapping_add(1);
        object.generation.store(generation, Ordering::Release);
        self.leave_mount(pin, object);
        self.spread.gather(pin, &object.regions);
        self.arena.retire(pin, Handle::from_raw(handle));
    }

    /// The tree of an object's pages, as long as the caller stays pinned.
    pub(crate) fn radix<'a>(&'a self, pin: &'a Pin<'a>, object: &'a Object<S>) -> Radix<'a> {
        // SAFETY: the words of all objects are changed by nothing but trees
        // made here, with pins of the memory that the manager has.
        unsafe { Radix::new(&self.nodes, &object.cache, pin) }
    }

    /// The object's regions.
    pub fn regions<'a, T: MappedBy>(
        &'a self,
        arena: &'a Arena<T>,
        handle: u32,
    ) -> ObjectRegions<'a, T> {
        let object = self.get(handle);
        ObjectRegions::new(
            &self.spread,
            arena,
            (handle, &object.regions, &object.users),
        )
    }

    /// The page at `index` if it is cached, in whatever state it is, without a
    /// reference. It may leave the cache at once, but its frame is not used
    /// for anything else while the caller, who holds `pin`, stays pinned.
    #[inline]
    pub fn peek(&self, pin: &Pin<'_>, object: &Object<S>, index: u64) -> Option<Pfn> {
        self.radix(pin, object).get(index)
    }

    /// The page at `index` if it is cached and up to date, without a reference, as
    /// [`Objects::peek`]. The record of the page after it is brought near:
    /// programs store to their pages of a file mostly in a row.
    #[inline]
    pub(crate) fn peek_ready<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        index: u64,
    ) -> Option<Pfn> {
        let node = self.radix(pin, object).leaf(index)?;
        let page = node.frame(index)?;
        // For the last page of a node this is the node's first: of no use.
        if let Some(next) = node.frame(index + 1) {
            bytes::prefetch(memory.frame(next));
        }
        (memory.frame(page).page().has(PageFlags::UPTODATE)).then_some(page)
    }

    /// The page at `index` if it is cached, with a reference for the caller,
    /// in whatever state it is.
    #[inline]
    pub fn lookup<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        index: u64,
    ) -> Option<Pfn> {
        // A node leaves the tree empty: its slot tells as much as the tree.
        let node = self.radix(pin, object).leaf(index)?;
        loop {
            let page = node.frame(index)?;
            // It may leave the cache meanwhile, but begins no other life while we are
            // pinned (invariant 7); whoever needs it cached asks for its owner.
            if memory.frame(page).try_get(Turn::at(pin, page.0)) {
                return Some(page);
            }
        }
    }

    /// The page at `index`, made if need be, and then charged to `payer`. A page that is about to
    /// be overwritten as a whole need not be filled first: it is handed out locked for that, as
    /// [`CachedPage::Fill`], only if it is new.
    ///
    /// # Errors
    /// [`CacheError`].
    #[inline]
    pub fn page<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (handle, index): (u32, u64),
        payer: Payer,
    ) -> Result<CachedPage, CacheError> {
        let object = self.get(handle);
        loop {
            let Some(page) = self.lookup(memory, pin, object, index) else {
                if let Some(slot) = self.slot_at(pin, object, index) {
                    return Ok(CachedPage::Swapped(slot));
                }
                match self.make(memory, pin, (handle, index), payer)? {
                    Some(made) => return Ok(made),
                    None => continue,
                }
            };
            if memory.frame(page).page().has(PageFlags::UPTODATE) {
                return Ok(CachedPage::Ready(page));
            }
            let Some(lock) = self.locks.try_lock(memory, page) else {
                return Ok(CachedPage::Locked(page));
            };
            // Locked by us: nobody fills or truncates it meanwhile.
            if memory.frame(page).owner() != handle {
                self.locks.unlock(memory, pin, lock);
                memory.put(pin, page);
                continue;
            }
            if memory.frame(page).page().has(PageFlags::UPTODATE) {
                self.locks.unlock(memory, pin, lock);
                return Ok(CachedPage::Ready(page));
            }
            return Ok(CachedPage::Fill(lock));
        }
    }

    /// Makes sure that the object's tree has nodes for a page at `index`, or for those of a run
    /// there, as long as the caller stays pinned.
    pub(crate) fn prepare_insert<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        index: u64,
    ) -> Result<(), OutOfMemory> {
        // Pages of files leave when nodes are lacking; those that leave for swap keep theirs.
        if !object.is_file() && !self.radix(pin, object).may_have_leaf(index) {
            memory.note_refusal(pin, Relief::Others);
            return Err(OutOfMemory);
        }
        Radix::prepare(&self.nodes, pin, memory)
    }

    /// Puts a new page at `index`; `None` if somebody else was faster.
    #[cold]
    fn make<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (handle, index): (u32, u64),
        payer: Payer,
    ) -> Result<Option<CachedPage>, CacheError> {
        let object = self.get(handle);
        let (granted, payer) = self.charge_payer(memory, pin, object, (1, payer));
        if granted == 0 {
            return Err(CacheError::Full);
        }
        let zeroed = !object.is_file();
        let page = match self.take_reserved(memory, pin, (handle, index), payer) {
            Ok(Some(page)) => {
                memory.zero(pin, page);
                Ok(page)
            }
            Ok(None) => {
                let request = Request::page(Site::CachePage);
                let request = if zeroed { request.zeroed() } else { request };
                memory.alloc_page(pin, request, payer, || index)
            }
            Err(error) => Err(error),
        };
        let page = page.inspect_err(|_| self.uncharge(memory, pin, object, 1))?;
        if let Err(error) = self.prepare_insert(memory, pin, object, index) {
            self.drop_frames(memory, pin, handle, &[page]);
            return Err(error.into());
        }
        let frame = memory.frame(page);
        let state = if zeroed {
            PageFlags::UPTODATE
        } else {
            PageFlags::LOCKED
        };
        frame.set_kind_with(Kind::Object, state);
        let is_in = self.insert_made(memory, pin, (handle, index), page);
        Ok(is_in.then(|| match zeroed {
            true => CachedPage::Made(page),
            false => CachedPage::Fill(PageLock::held(page)),
        }))
    }

    /// Puts a new page, whose flags say what it is, at `index`, which has room in the
    /// tree. False if somebody else was faster; the page is gone then.
    pub(crate) fn insert_made<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        (handle, index): (u32, u64),
        page: Pfn,
    ) -> bool {
        let object = self.get(handle);
        let frame = memory.frame(page);
        frame.set_owner(handle);
        frame.set_index(index, 0);
        // One reference for the cache, one for the caller.
        frame.init_counts(2, 0);
        let inserted = {
            let _guard = object.cache_lock.lock(pin);
            let inserted = self.radix(pin, object).insert(index, page);
            object.count_cached(i64::from(inserted.is_ok()));
            inserted
        };
        if inserted.is_err() {
            frame.init_counts(1, 0);
            frame.set_kind(Kind::Allocated);
            self.drop_frames(memory, pin, handle, &[page]);
            return false;
        }
        true
    }

    /// The caller filled the page that it got as [`CachedPage::Fill`].
    pub fn filled<P: Platform>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, lock: PageLock) {
        memory.frame(lock.page()).page().set(PageFlags::UPTODATE);
        self.locks.unlock(memory, pin, lock);
    }

    /// The caller could not fill the page: it leaves the cache, so that the
    /// next one tries again. The caller's reference goes too.
    pub(crate) fn fill_failed<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        lock: PageLock,
    ) {
        let page = lock.page();
        let frame = memory.frame(page);
        let object = self.get(frame.owner());
        self.detach(memory, pin, object, frame.index(), &lock);
        self.locks.unlock(memory, pin, lock);
        // The cache's and the caller's.
        memory.put(pin, page);
        memory.put(pin, page);
    }

    /// Takes a page out of the cache. The cache's reference passes to the caller.
    pub(crate) fn detach<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        index: u64,
        lock: &PageLock,
    ) {
        let page = lock.page();
        self.mark_clean(memory, pin, object, index..index + 1);
        {
            let _guard = object.cache_lock.lock(pin);
            let removed = self.radix(pin, object).remove(index);
            debug_assert!(
                removed == Some(page),
                "page taken out of a cache it was not in"
            );
            object.count_cached(-1);
        }
        self.uncharge(memory, pin, object, 1);
        memory.frame(page).set_owner(0);
    }

    /// Whether `page`, which was found at `index` of the object under the caller's
    /// pin, is still there, below its end, and nobody is changing it as a whole.
    /// Asked with a mapping counted: a yes stays true until that mapping has been
    /// undone, because whoever drops the page locks it and then looks at the count.
    #[inline]
    pub(crate) fn is_attached<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        page: Pfn,
        (object, handle): (&Object<S>, u32),
        index: u64,
        _counted: MappingsCounted,
    ) -> bool {
        let frame = memory.frame(page);
        // A page may have been put into the cache after a truncation set the
        // length and looked for pages. It would stay mapped for good.
        index < object.pages() && !frame.page().has(PageFlags::LOCKED) && frame.owner() == handle
    }

    /// Sets the length to `size` bytes, which need `pages` pages, and then does `look`,
    /// which finds every page that somebody puts into the cache and maps although it
    /// is after the new end. What is held begins there or before.
    pub(crate) fn set_size_then(
        &self,
        held: &impl HoldsPages<S>,
        (size, pages): (u64, u64),
        look: impl FnOnce(),
    ) {
        let object = held.object();
        object.size.store(size, Ordering::Release);
        object.pages.set_then(pages.min(INDEX_END), look);
    }

    /// Hides all pages from `first` on from faults, which wait then, and does `look`, which finds
    /// every page that one maps nevertheless. Until [`Objects::end_shift`], all of them are held.
    pub(crate) fn begin_shift(&self, held: &impl HoldsPages<S>, first: u64, look: impl FnOnce()) {
        let object = held.object();
        object.shifting.store(1, Ordering::Relaxed);
        object.pages.set_then(first, look);
    }

    /// Sets the length, and shows the pages again.
    pub(crate) fn end_shift(&self, held: &impl HoldsPages<S>, (size, pages): (u64, u64)) {
        let object = held.object();
        object.size.store(size, Ordering::Release);
        object.pages.extend_to(pages.min(INDEX_END));
        object.shifting.store(0, Ordering::Release);
    }

    /// Extends the length to at least `size` bytes, which need `pages` pages, after
    /// what is new below it is in the cache. What is held begins at the old end or before.
    pub(crate) fn extend_to(&self, held: &impl HoldsPages<S>, (size, pages): (u64, u64)) {
        let object = held.object();
        object.pages.extend_to(pages.min(INDEX_END));
        if object.size.load(Ordering::Relaxed) < size {
            object.size.store(size, Ordering::Release);
        }
    }
}
