//! Reclaim: which pages leave memory when it runs short.
//!
//! Each node has an inactive and an active list of the pages of files, and the same of
//! pages that only swap could take: private ones, and those of shared memory. A page begins
//! at the young end of the inactive list. When that has come to the old end, it is looked at:
//! whether calls used it (two flags of its record), and whether entries did that map it
//! (their accessed marks, through reverse mapping). A page that was used gets a second
//! chance or becomes active; others leave. The active list gives its oldest pages to the
//! inactive list while it is the longer of the two.
//!
//! **Nothing is removed.** A page that is freed stays listed until whoever looks at its
//! place finds that there is no such page any more, or until its frame begins another life and is
//! listed anew. So a page that comes costs its CPU one store, and one that goes nothing.
//! Whoever takes a frame from a list trusts nothing: an [`Evictor`] finds the page by
//! what its record says it is, and takes a reference there.
//!
//! **Refaults.** An evicted page of a file leaves a shadow: when it went, counted in pages
//! that went. If it comes back after no more have gone than there are active pages, it
//! would have stayed if it had been active, and becomes so at once (Johannes Weiner's
//! refault distance, Linux 3.15). Shadows lie in a table with one place for each frame, in the
//! records beside the links; a younger one takes the place of an older.

mod lists;
mod policy;
mod shadows;
mod shrink;
mod stats;

pub(crate) use lists::Lists;
pub(crate) use policy::{Judgement, Used, judge};
pub use stats::ReclaimStats;

use alloc::boxed::Box;

use crate::addr::Pfn;
use crate::frame::{AuditError, Flags, MemoryView};
use crate::object::{AgedPage, Aging, Inserted};
use crate::platform::Platform;
use crate::sync::Pin;
use crate::sync::atomic::{AtomicU32, Ordering};
use stats::Counts;

/// The whole, of which swappiness is a part: at half of it files and private pages are alike.
const ALL: u32 = 200;
/// Swappiness at first: Linux's.
const SWAPPINESS: u32 = 60;

/// What kind of page a list has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageKind {
    /// Pages of files, which their stores hold.
    File,
    /// Pages that only swap could hold.
    SwapBacked,
}

/// What became of an inactive page that was to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// It has left.
    Freed,
    /// It was used, or cannot leave for long.
    Active,
    /// It stays for now.
    Kept,
    /// It belongs among those that only swap could take.
    SwapBacked,
    /// There is no such page.
    Gone,
}

/// Whether an active page was used since it was looked at last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cooled {
    /// By calls, twice.
    Used,
    /// Not so often.
    Idle,
    /// There is no such page.
    Gone,
}

/// Who takes pages out of memory: what lies below reclaim, as it needs it. The caller of
/// each is not pinned and holds no lock but ranges of objects.
pub(crate) trait Evictor {
    /// Binds the caller to its CPU.
    fn pin(&self) -> Pin<'_>;

    /// Has a page that came to the old end of an inactive list leave, if it may: used or
    /// not, if `forced`.
    fn take(&self, page: Pfn, kind: PageKind, forced: bool) -> Taken;

    /// Takes the accessed marks of the entries that map an active page.
    fn cool(&self, page: Pfn, kind: PageKind) -> Cooled;

    /// Whether pages that only swap could hold can leave.
    fn can_swap(&self) -> bool;

    /// Passes a moment until others may have put back pages that they look at.
    fn relax(&self, spins: u32);
}

/// The lists of a manager, and what was done with them.
pub(crate) struct Reclaim {
    pub(crate) lists: Lists,
    pub(crate) counts: Counts,
    /// See [`Reclaim::set_swappiness`].
    swappiness: AtomicU32,
}

impl Reclaim {
    /// Empty lists for a memory.
    pub(crate) fn new<P: Platform>(memory: MemoryView<'_, P>, platform: &P) -> Reclaim {
        Reclaim {
            lists: Lists::new(memory, platform),
            counts: Counts::default(),
            swappiness: AtomicU32::new(SWAPPINESS),
        }
    }

    /// How much of what leaves are private pages, in 200ths, as long as there are both.
    pub(crate) fn set_swappiness(&self, share: u32) {
        self.swappiness.store(share.min(ALL), Ordering::Relaxed);
    }

    /// Kinds of pages that can leave, with their shares of what does.
    fn shares(&self, evictor: &dyn Evictor) -> [(PageKind, u64); 2] {
        let private = match evictor.can_swap() {
            true => self.swappiness.load(Ordering::Relaxed),
            false => 0,
        };
        [
            (PageKind::File, u64::from(ALL - private)),
            (PageKind::SwapBacked, u64::from(private)),
        ]
    }

    /// A page of an object is about to leave memory for its store.
    pub(crate) fn evicted(&self, owner: u32, index: u64) {
        self.lists.leave_shadow(owner, index);
    }

    /// Checks the lists while nothing else runs. Returns a bit for each frame that is on one, or
    /// waits to be.
    pub(crate) fn audit(&self) -> Result<Box<[bool]>, AuditError> {
        self.lists.audit()
    }
}

impl Aging for Reclaim {
    fn inserted(&self, pin: &Pin<'_>, page: AgedPage<'_>, kind: Inserted) {
        match kind {
            Inserted::Anonymous => self.lists.add(pin, page, PageKind::SwapBacked, false),
            Inserted::Cache => {
                let frame = page.record();
                let is_back = self.lists.returns(frame.owner(), frame.index());
                if is_back.is_some() {
                    self.counts.refaults.add(1);
                }
                let active = is_back == Some(true);
                if active {
                    self.counts.restored.add(1);
                }
                self.lists.add(pin, page, PageKind::File, active);
            }
        }
    }

    fn touched(&self, _pin: &Pin<'_>, page: AgedPage<'_>) {
        if !page.has(Flags::REFERENCED) {
            page.set(Flags::REFERENCED);
        } else if !page.has(Flags::ACTIVE) {
            page.set(Flags::ACTIVE);
        }
    }

    fn removed(&self, _pin: &Pin<'_>, _page: AgedPage<'_>) {}

    fn removed_all(&self, _pin: &Pin<'_>, _pages: &mut dyn Iterator<Item = AgedPage<'_>>) {}
}
