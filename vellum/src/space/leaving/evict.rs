//! Pages that leave memory because it is short.
//!
//! A page of a file leaves as a page that is cut off does (`truncate.rs`): under its page lock,
//! unmapped and flushed first, with its range of the object held (invariant 10). Unlike
//! there, what it holds must be in the store. So whoever could still store to it keeps it:
//! * entries: they are cleared, and their dirty marks go to the page;
//! * those whose entry was cleared elsewhere and whose CPUs are still to be flushed, and
//!   devices: they have references, and a page with other references than the cache's and ours
//!   stays;
//! * calls that write: they hold its range.
//!
//! Private pages and those of shared memory go to swap (`swap_out.rs`). A superpage is judged by
//! its first page, since one mark is about all of them. If nobody used it, its mappings are
//! demoted, and from then on each page is judged by itself; the others stay until then.
//!
//! Every lock is only tried, so that nobody waits here for who may wait for memory. References
//! that others take later do not matter: who has one looks whether the page is still attached
//! before it uses the page as its object's.

use crate::addr::Pfn;
use crate::frame::{Kind, PageFlags, PrivateFlags};
use crate::object::{Object, PageLock};
use crate::platform::Platform;
use crate::reclaim::{Cooled, Evictor, Judgement, PageKind, Rule, Taken, Walked, judge};
use crate::space::state::common::{Common, PageCache};
use crate::space::state::page::FoundPage;
use crate::swap::SwapOutError;
use crate::sync::{Pin, Turn, Unpinned};

/// What a reference to a private page keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference {
    Page,
    /// All frames of the superpage whose first this is, as they have one record.
    Run,
}

/// What came of an attempt.
enum Attempt {
    Done(Taken),
    /// The page with this index of the object with this handle is to be written first.
    Dirty(u32, u64),
}

impl<P: Platform> PageCache<'_, P> {
    /// The page of an object in a frame, with a reference, if there is one. What the record says
    /// may be of an earlier life, or become false: a page is one if its object has it.
    pub(in crate::space) fn find_cached(&self, pin: &Pin<'_>, page: Pfn) -> Option<FoundPage<'_>> {
        let frame = self.memory.frame(page);
        if frame.kind() != Kind::Object {
            return None;
        }
        let (handle, index) = (frame.owner(), frame.index());
        let object = self.objects.owner(handle)?;
        let found = self.objects.peek(pin, object, index) == Some(page);
        // Found in a cache under a pin, it begins no other life while that lasts.
        (found && frame.try_get(Turn::at(pin, page.0))).then_some(FoundPage {
            page,
            object,
            handle,
            index,
        })
    }

    /// Has a page of a file leave, if nobody needs it.
    fn attempt_eviction(&self, page: Pfn, rule: Rule) -> Attempt {
        let pin = self.pin();
        let Some(found) = self.find_cached(&pin, page) else {
            return Attempt::Done(Taken::Gone);
        };
        let Some(lock) = self.objects.locks.try_lock(&self.memory, page) else {
            self.memory.put(&pin, page);
            return Attempt::Done(Taken::Kept);
        };
        let attempt = self.evict_locked(&pin, &found, &lock, rule);
        self.objects.locks.unlock(&self.memory, &pin, lock);
        self.memory.put(&pin, page);
        if matches!(attempt, Attempt::Done(Taken::Freed)) {
            // The cache's.
            self.memory.put(&pin, page);
        }
        attempt
    }

    /// The same of a page that is locked. If it leaves, the cache's reference passes to the
    /// caller.
    fn evict_locked(
        &self,
        pin: &Pin<'_>,
        found: &FoundPage<'_>,
        lock: &PageLock,
        rule: Rule,
    ) -> Attempt {
        let &FoundPage {
            page,
            object,
            handle,
            index,
        } = found;
        let frame = self.memory.frame(page);
        if frame.owner() != handle {
            return Attempt::Done(Taken::Gone);
        }
        if !object.is_file() {
            return Attempt::Done(Taken::SwapBacked);
        }
        if !frame.page().has(PageFlags::UPTODATE) {
            return Attempt::Done(Taken::Kept);
        }
        if frame.counts().pins() > 0 {
            return Attempt::Done(Taken::Active);
        }
        let used = self.mappings.take_marks(pin, page);
        match judge(used, true, rule) {
            Judgement::Activate => return Attempt::Done(Taken::Active),
            Judgement::Stay => {
                frame.page().set(PageFlags::REFERENCED);
                return Attempt::Done(Taken::Kept);
            }
            Judgement::Leave => {}
        }
        if self.is_dirty(pin, object, index, page) {
            return Attempt::Dirty(handle, index);
        }
        let Some(held) = object.writers.try_lock(&(index..index + 1), pin) else {
            return Attempt::Done(Taken::Kept);
        };
        self.mappings.unmap_page(pin, lock, true);
        let attempt = if frame.counts().refs() != 2 {
            Attempt::Done(Taken::Kept)
        } else if self.is_dirty(pin, object, index, page) {
            Attempt::Dirty(handle, index)
        } else {
            // A read of several pages must not have this one as it was and another as it is
            // after somebody has read this one anew and written to both.
            object.cuts.count_one();
            self.objects.detach(&self.memory, pin, object, index, lock);
            if let Some(reclaim) = self.reclaim() {
                reclaim.evicted(handle, index, page);
            }
            Attempt::Done(Taken::Freed)
        };
        let platform = self.memory.platform();
        object.writers.unlock(held, &self.waits, platform, pin);
        attempt
    }

    /// Whether a page is known to be newer than its store. Marks in entries are not asked.
    pub(super) fn is_dirty(&self, pin: &Pin<'_>, object: &Object, index: u64, page: Pfn) -> bool {
        self.memory.frame(page).page().has(PageFlags::DIRTY)
            || self.objects.is_marked_dirty(pin, object, index)
    }

    /// Has a page of a file leave, written to its store first if it has to be.
    fn evict_file_page(&self, unpinned: Unpinned<'_>, page: Pfn, rule: Rule) -> Taken {
        let (handle, index) = match self.attempt_eviction(page, rule) {
            Attempt::Done(taken) => return taken,
            Attempt::Dirty(handle, index) => (handle, index),
        };
        let (written, refused) = self.write_cluster(unpinned, handle, index);
        if let Some(reclaim) = self.reclaim() {
            reclaim.counts.written.add(written);
            reclaim.counts.refused.add(u64::from(refused));
        }
        if refused {
            return Taken::Active;
        }
        // Whoever uses it meanwhile keeps it.
        match self.attempt_eviction(page, rule) {
            Attempt::Done(taken) => taken,
            Attempt::Dirty(..) => Taken::Kept,
        }
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// The private page in a frame, with a reference, if an entry maps one. Of a superpage whose
    /// frames have one record, that is the first.
    pub(super) fn find_private(&self, pin: &Pin<'_>, page: Pfn) -> Option<Reference> {
        let frame = self.memory.frame(page);
        if frame.kind() != Kind::Anonymous {
            return None;
        }
        let before = frame.try_get_mapped(Turn::at(pin, page.0))?;
        Some(match before.is_whole() {
            true => Reference::Run,
            false => Reference::Page,
        })
    }

    /// Drops the reference of [`Vm::find_private`].
    pub(super) fn put_private(&self, pin: &Pin<'_>, page: Pfn, held: Reference) {
        match held {
            Reference::Page => self.memory.put(pin, page),
            Reference::Run => self.memory.put_run(pin, page, self.superpage_order),
        }
    }

    /// Has a page leave the swap cache that was read ahead, and that nobody wanted.
    fn discard_cached(&self, pin: &Pin<'_>, page: Pfn) -> Taken {
        let frame = self.memory.frame(page);
        let slot = frame.index();
        match self.swap() {
            Some(swap) if swap.discard(&self.memory, pin, slot, page) => Taken::Freed,
            // It is being read, or somebody is about to map it.
            _ if frame.counts().refs() > 1 => Taken::Kept,
            _ => Taken::Gone,
        }
    }

    /// Takes a reference to a private page that nobody needs, and that no superpage has (any
    /// more). Otherwise says what became of what is in the frame.
    fn claim_idle(&self, unpinned: Unpinned<'_>, page: Pfn, rule: Rule) -> Result<(), Taken> {
        let pin = self.pin_by(&unpinned);
        let Some(held) = self.find_private(&pin, page) else {
            let private = self.memory.frame(page).as_private();
            if private.is_some_and(|page| page.has(PrivateFlags::SWAP_CACHED)) {
                return Err(self.discard_cached(&pin, page));
            }
            drop(pin);
            return Err(self.swap_out_shared(unpinned, page, 0, rule));
        };
        let used = self.mappings.take_marks(&pin, page);
        let stays = match judge(used, false, rule) {
            Judgement::Leave if used.is_large && !self.begins_superpage(page) => Some(Taken::Kept),
            Judgement::Leave => None,
            Judgement::Stay | Judgement::Activate => Some(Taken::Active),
        };
        if let Some(stays) = stays {
            self.put_private(&pin, page, held);
            return Err(stays);
        }
        if held == Reference::Page && !used.is_large {
            return Ok(());
        }
        drop(pin);
        self.claim_first(unpinned, page, held)
    }

    /// The rest of [`Vm::claim_idle`] for the first page of an idle superpage.
    #[cold]
    fn claim_first(
        &self,
        mut unpinned: Unpinned<'_>,
        page: Pfn,
        held: Reference,
    ) -> Result<(), Taken> {
        let is_demoted = self.mappings.demote_all_of(unpinned.reborrow(), page);
        let pin = self.pin_by(&unpinned);
        match held {
            Reference::Page if is_demoted => return Ok(()),
            // To each of the pages by now, if it was demoted.
            Reference::Page | Reference::Run => self.put_private(&pin, page, held),
        }
        if !is_demoted {
            return Err(Taken::Kept);
        }
        match self.find_private(&pin, page) {
            Some(Reference::Page) => Ok(()),
            Some(Reference::Run) => {
                self.put_private(&pin, page, Reference::Run);
                Err(Taken::Kept)
            }
            None => Err(Taken::Gone),
        }
    }

    /// Has a private page leave that its owner has freed, used since or not. If it was stored to,
    /// it is one that only swap could take.
    fn evict_freed(&self, page: Pfn) -> Taken {
        let frame = self.memory.frame(page);
        let taken = match self.find_private(&self.pin(), page) {
            None => return Taken::SwapBacked,
            Some(Reference::Page) if self.mappings.drop_freed(page) => Taken::Freed,
            Some(held) => {
                frame.private().clear(PrivateFlags::LAZY_FREE);
                self.put_private(&self.pin(), page, held);
                return Taken::SwapBacked;
            }
        };
        self.memory.put(&self.pin(), page);
        if let Some(reclaim) = self.reclaim() {
            reclaim.counts.dropped.add(1);
        }
        taken
    }

    /// Has a private page, or one of shared memory, go to swap, if nobody needs it.
    fn evict_to_swap(&self, mut unpinned: Unpinned<'_>, page: Pfn, rule: Rule) -> Taken {
        if let Err(taken) = self.claim_idle(unpinned.reborrow(), page, rule) {
            return taken;
        }
        let swapped = self.swap_out_page(unpinned.reborrow(), page);
        if let (Ok(slot), Some(reclaim)) = (swapped, self.reclaim()) {
            reclaim.swapped_out(slot, page);
        }
        self.memory.put(&self.pin_by(&unpinned), page);
        match swapped {
            Ok(_) => {
                if let Some(reclaim) = self.reclaim() {
                    reclaim.counts.swapped.add(1);
                }
                Taken::Freed
            }
            Err(SwapOutError::NoSlot | SwapOutError::InUse) => Taken::Kept,
            // In the swap cache, mapped by nobody, until it is used again.
            Err(SwapOutError::Io) => {
                if let Some(reclaim) = self.reclaim() {
                    reclaim.counts.refused.add(1);
                }
                Taken::Gone
            }
        }
    }
}

impl<P: Platform> Evictor for PageCache<'_, P> {
    fn pin_by<'a>(&'a self, unpinned: &'a Unpinned<'_>) -> Pin<'a> {
        self.memory.pin_by(unpinned)
    }

    fn take(&self, unpinned: Unpinned<'_>, page: Pfn, kind: PageKind, rule: Rule) -> Taken {
        match kind {
            PageKind::File if self.memory.frame(page).kind() == Kind::Anonymous => {
                self.evict_freed(page)
            }
            PageKind::File => self.evict_file_page(unpinned, page, rule),
            PageKind::SwapBacked => self.evict_to_swap(unpinned, page, rule),
        }
    }

    fn walk(
        &self,
        unpinned: Unpinned<'_>,
        walk: (usize, u32),
        used: &mut dyn FnMut(Pfn),
    ) -> Walked {
        self.mappings.walk_tables(unpinned, walk, used)
    }

    fn is_unused(&self, page: Pfn) -> bool {
        !matches!(
            self.memory.frame(page).kind(),
            Kind::Object | Kind::Anonymous
        )
    }

    fn can_swap(&self) -> bool {
        Common::can_swap(self)
    }

    fn cool(&self, page: Pfn, kind: PageKind) -> Cooled {
        let pin = self.pin();
        let private = match kind {
            PageKind::SwapBacked => self.find_private(&pin, page),
            PageKind::File => None,
        };
        if private.is_none() && self.find_cached(&pin, page).is_none() {
            return Cooled::Gone;
        }
        let used = self.mappings.take_marks(&pin, page);
        if private.is_none() && (used.once || used.entries > 0) {
            // It begins on the inactive list as a page that was used once.
            self.memory.frame(page).page().set(PageFlags::REFERENCED);
        }
        self.put_private(&pin, page, private.unwrap_or(Reference::Page));
        if used.twice {
            Cooled::Used
        } else {
            Cooled::Idle
        }
    }

    fn wait_for_frames(&self, unpinned: Unpinned<'_>) {
        self.memory.wait_for_frames(unpinned);
    }

    fn wait_for_pins(&self, unpinned: Unpinned<'_>) {
        self.memory.wait_for_pins(unpinned);
    }

    fn reclaim_ended(&self) -> u32 {
        let platform = self.memory.platform();
        self.reclaim().map_or(0, |reclaim| {
            reclaim.reclaimers.end(&self.waits, platform, &self.pin())
        })
    }

    fn wait_for_reclaimer(&self, unpinned: Unpinned<'_>, ended: u32) -> bool {
        self.reclaim().is_some_and(|reclaim| {
            (reclaim.reclaimers).wait_for_another(unpinned, ended, &self.waits, &self.memory)
        })
    }
}
