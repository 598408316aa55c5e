//! Mounts: how many pages a group of objects of shared memory may have together.
//!
//! A page is charged before it enters the cache of its object and given back after
//! it has left, so the count is never less than the pages there are, and equal to
//! them when nothing is under way. An object without a mount writes nothing here.

use super::{Object, Objects};
use crate::frame::{Committer, OutOfMemory, Payer, PhysicalMemory, PolicyWord, Site};
use crate::platform::{GroupId, Platform};
use crate::slab::{Handle, Item};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::users::join;
use crate::sync::{Pin, Turn};

/// In an object's word with the handle of its mount: it has a policy of nodes.
const BY_POLICY: u32 = 1 << 31;

/// Names a mount. Stale names are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MountId {
    handle: u32,
    generation: u32,
}

/// Objects that share a limit.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct MountRecord {
    generation: AtomicU32,
    /// Whoever made it, until it is released, and each of its objects. 0: vacant.
    users: AtomicU32,
    limit: AtomicU64,
    used: AtomicU64,
    link: AtomicU32,
    /// 1 once whoever made it has let go of it.
    released: AtomicU32,
}

/// A mount's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MountStats {
    /// Most pages that its objects may have together; `u64::MAX` if any number.
    pub limit: u64,
    /// Pages that they have.
    pub used: u64,
    /// Its objects.
    pub objects: u32,
}

impl Item for MountRecord {
    const SITE: Site = Site::Mount;

    fn vacant() -> Self {
        MountRecord {
            generation: AtomicU32::new(0),
            users: AtomicU32::new(0),
            limit: AtomicU64::new(0),
            used: AtomicU64::new(0),
            link: AtomicU32::new(0),
            released: AtomicU32::new(0),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl MountRecord {
    /// Charges as many of `pages` as the limit allows; returns how many.
    fn charge(&self, pages: u64) -> u64 {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let room = self.limit.load(Ordering::Relaxed).saturating_sub(used);
            let granted = pages.min(room);
            if granted == 0 {
                return 0;
            }
            match self.used.compare_exchange_weak(
                used,
                used + granted,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return granted,
                Err(now) => used = now,
            }
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn users(&self) -> u32 {
        self.users.load(Ordering::Acquire)
    }

    fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire) != 0
    }
}

impl<S> Object<S> {
    /// Sets the policy of nodes that its pages are placed by, those that nobody has brought in.
    pub(crate) fn set_policy(&self, policy: PolicyWord) {
        self.policy.store(policy.bits(), Ordering::Relaxed);
        match policy.is_none() {
            true => self.mount.fetch_and(!BY_POLICY, Ordering::Release),
            false => self.mount.fetch_or(BY_POLICY, Ordering::Release),
        };
    }

    /// That policy.
    pub(crate) fn policy(&self) -> PolicyWord {
        match self.mount.load(Ordering::Acquire) & BY_POLICY {
            0 => PolicyWord::NONE,
            _ => PolicyWord::from_bits(self.policy.load(Ordering::Relaxed)),
        }
    }

    /// Who pays, with the object's policy unless another counts.
    pub(crate) fn payer_for(&self, payer: Payer) -> Payer {
        let policy = self.policy();
        match payer.is_unplaced() || !payer.policy().is_none() || policy.is_none() {
            true => payer,
            false => payer.placed(policy),
        }
    }
}

impl<S: Default + Send + Sync + 'static> Objects<S> {
    fn mount(&self, handle: u32) -> &MountRecord {
        self.mounts.get(Handle::from_raw(handle))
    }

    /// The mount with this name, if whoever made it has not released it.
    fn find_mount(&self, id: MountId) -> Option<&MountRecord> {
        // The name may be another manager's.
        let mount = self.mounts.try_get(Handle::from_raw(id.handle))?;
        let generation = mount.generation.load(Ordering::Acquire);
        let live = generation == id.generation && mount.users() > 0 && !mount.is_released();
        live.then_some(mount)
    }

    /// Makes a mount of at most `limit` pages, without objects.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn create_mount<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        limit: u64,
    ) -> Result<MountId, OutOfMemory> {
        let handle = self.mounts.alloc(pin, memory)?;
        let mount = self.mounts.get(handle);
        mount.limit.store(limit, Ordering::Relaxed);
        mount.used.store(0, Ordering::Relaxed);
        mount.released.store(0, Ordering::Relaxed);
        let generation = mount.generation.load(Ordering::Relaxed).wrapping_add(1);
        mount.generation.store(generation, Ordering::Relaxed);
        mount.users.store(1, Ordering::Release);
        Ok(MountId {
            handle: handle.raw(),
            generation,
        })
    }

    /// One object more in a mount; its handle, for [`Objects::create`]. The caller is
    /// pinned, so that the mount does not become another one meanwhile (invariant 7).
    pub(crate) fn join_mount(&self, pin: &Pin<'_>, id: MountId) -> Option<u32> {
        let mount = self.find_mount(id)?;
        join(&mount.users, Turn::at(pin, id.handle)).then_some(id.handle)
    }

    /// An object that could not be made, or has ended, is in the mount no more.
    pub(crate) fn quit_mount(&self, pin: &Pin<'_>, handle: u32) {
        let mount = self.mount(handle);
        if mount.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            debug_assert!(mount.used() == 0, "a mount ended with pages");
            self.mounts.retire(pin, Handle::from_raw(handle));
        }
    }

    /// The object ends.
    pub(super) fn leave_mount(&self, pin: &Pin<'_>, object: &Object<S>) {
        let mount = object.mount.swap(0, Ordering::Relaxed) & !BY_POLICY;
        if mount != 0 {
            self.quit_mount(pin, mount);
        }
    }

    /// Whoever made the mount is done with it: nothing can be made in it any more, and
    /// it ends with its last object. False if there is no such mount.
    pub(crate) fn release_mount(&self, pin: &Pin<'_>, id: MountId) -> bool {
        let released = self
            .find_mount(id)
            .is_some_and(|mount| mount.released.swap(1, Ordering::AcqRel) == 0);
        if released {
            self.quit_mount(pin, id.handle);
        }
        released
    }

    /// A mount's limit and pages.
    pub(crate) fn mount_stats(&self, id: MountId) -> Option<MountStats> {
        let mount = self.find_mount(id)?;
        Some(MountStats {
            limit: mount.limit.load(Ordering::Relaxed),
            used: mount.used(),
            objects: mount.users().saturating_sub(1),
        })
    }

    /// Sets a mount's limit. A limit below what is in use stands, and keeps pages from
    /// being made until enough have gone. False if there is no such mount.
    pub(crate) fn set_mount_limit(&self, id: MountId, limit: u64) -> bool {
        let mount = self.find_mount(id);
        mount
            .inspect(|mount| mount.limit.store(limit, Ordering::Relaxed))
            .is_some()
    }

    /// Charges the object's mount with as many of `pages` as it allows, before they
    /// enter the cache; returns how many, which is all without a mount.
    #[inline]
    pub(crate) fn charge<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        pages: u64,
    ) -> u64 {
        match object.mount.load(Ordering::Relaxed) {
            0 => pages,
            word => self.charge_word(memory, pin, word, pages),
        }
    }

    /// The same of pages that `payer` is charged for, and who is, with the object's policy if that
    /// is the one that counts.
    #[inline]
    pub(super) fn charge_payer<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        (pages, payer): (u64, Payer),
    ) -> (u64, Payer) {
        match object.mount.load(Ordering::Relaxed) {
            0 => (pages, payer),
            word => {
                let granted = self.charge_word(memory, pin, word, pages);
                match P::PARTS.nodes {
                    true => (granted, object.payer_for(payer)),
                    false => (granted, payer),
                }
            }
        }
    }

    fn charge_word<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        word: u32,
        pages: u64,
    ) -> u64 {
        match word & !BY_POLICY {
            0 => pages,
            mount => Self::charge_mount(memory, pin, self.mount(mount), pages),
        }
    }

    /// Files in a mount are promised page by page, and not by their length.
    fn charge_mount<P: Platform>(
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        mount: &MountRecord,
        pages: u64,
    ) -> u64 {
        let granted = mount.charge(pages);
        let Some(commit) = memory.commit() else {
            return granted;
        };
        let who = Committer {
            group: GroupId::ROOT,
            reserve: commit.reserve(false, || 0),
        };
        // One page is more than none for who can go on with it.
        let promised = [granted, granted.min(1)];
        let promised = promised
            .into_iter()
            .find(|&pages| commit.charge(pin, who, pages));
        let promised = promised.unwrap_or(0);
        mount.used.fetch_sub(granted - promised, Ordering::Relaxed);
        promised
    }

    /// The same for all of them or none. Returns whether it allows them.
    pub(crate) fn charge_all<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        pages: u64,
    ) -> bool {
        let granted = self.charge(memory, pin, object, pages);
        if granted < pages {
            self.uncharge(memory, pin, object, granted);
        }
        granted == pages
    }

    /// Pages left the cache, or did not enter it.
    #[inline]
    pub(crate) fn uncharge<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        object: &Object<S>,
        pages: u64,
    ) {
        let mount = object.mount.load(Ordering::Relaxed) & !BY_POLICY;
        if mount != 0 && pages != 0 {
            self.mount(mount).used.fetch_sub(pages, Ordering::Relaxed);
            if let Some(commit) = memory.commit() {
                commit.uncharge(pin, GroupId::ROOT, pages);
            }
        }
    }

    /// Handle of the object's mount, or 0.
    pub(crate) fn mount_of(&self, object: &Object<S>) -> u32 {
        object.mount.load(Ordering::Relaxed) & !BY_POLICY
    }
}
