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
//! Whoever takes a frame from a list trusts nothing: an `Evictor` finds the page by
//! what its record says it is, and takes a reference there.
//!
//! **At rest.** A frame that is listed anew becomes the youngest of its list, which costs four
//! records beside frames. Once more pages have come to a group than it has listed, and none has
//! been taken off a list meanwhile, frames that are on the right list stay where they are: their
//! order decides nothing as long as no page has to leave. The first page that is taken ends this.
//! So when memory runs short after such a time, pages that came during it may be looked at before
//! older ones, each once. Without groups, faults see themselves that a node is at rest and that a
//! frame is where it would come to, and do nothing more (`rest.rs`).
//!
//! **Groups.** Each group of spaces has lists of its own on each node, under one lock
//! (`groups.rs`).
//!
//! **Refaults.** An evicted page of a file leaves a shadow: when it went, counted in pages
//! that went. If it comes back after no more have gone than there are active pages, it
//! would have stayed if it had been active, and becomes so at once (Johannes Weiner's
//! refault distance, Linux 3.15). With `aging=generations` there are more lists and other rules
//! (`generations.rs`). Shadows lie in a table with one place for each frame, in the
//! records beside the links; a younger one takes the place of an older.

mod ages;
mod generations;
mod groups;
mod lists;
mod policy;
mod rest;
mod shadows;
mod shrink;
mod stats;

pub(crate) use lists::Lists;
pub(crate) use policy::{Judgement, Rule, Used, judge};
pub(crate) use stats::GroupCounts;
pub use stats::ReclaimStats;

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::addr::Pfn;
use crate::design::PageAging;
use crate::frame::{AuditError, Groups, Kind, MemoryView, ObjectFlags, PageFlags};
use crate::object::{AgedPage, Aging, Inserted};
use crate::platform::Platform;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{CachePadded, Crew, Pin, Unpinned};
use stats::Counts;

/// The whole, of which swappiness is a part: at half of it files and private pages are alike.
const ALL: u32 = 200;
/// Swappiness at first: Linux's.
const SWAPPINESS: u32 = 60;
/// Instead of an object: private pages, which go by the numbers of their slots.
const IN_SWAP: u32 = u32::MAX;

/// What kind of page a list has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageKind {
    /// Pages of files, which their stores hold.
    File,
    /// Pages that only swap could hold.
    SwapBacked,
}

impl PageKind {
    /// Both.
    const ALL: [PageKind; 2] = [PageKind::File, PageKind::SwapBacked];
}

/// Whose pages are to leave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those of every group, in proportion to how many each has.
    All,
    /// The same of pages of files alone.
    Files,
    /// Those of the group in a place, and of those within it.
    Group(usize),
    /// Those of the group in a place alone.
    Only(usize),
}

/// The pages of a group on a node.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Set {
    node: usize,
    /// The group's place.
    group: usize,
}

/// Where a page goes that was looked at and stays.
#[derive(Clone, Copy)]
enum To {
    /// To the list of a number.
    List(usize),
    /// To the generation of its kind that has pages used last in an interval.
    Generation(PageKind, u32),
}

/// What a walk of page tables met.
#[derive(Clone, Copy, Default)]
pub(crate) struct Walked {
    /// Tables of the lowest level looked at.
    pub(crate) tables: u64,
    /// Such tables that were passed by.
    pub(crate) skipped: u64,
    /// Entries that were used.
    pub(crate) used: u64,
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
/// each holds no lock but ranges of objects.
pub(crate) trait Evictor {
    /// Binds the caller to its CPU, who cannot sleep as long as the pin lives.
    fn pin_by<'a>(&'a self, unpinned: &'a Unpinned<'_>) -> Pin<'a>;

    /// Has a page that came to the old end of its list leave, if it may and the rule lets it.
    fn take(&self, unpinned: Unpinned<'_>, page: Pfn, kind: PageKind, rule: Rule) -> Taken;

    /// Takes the accessed marks of the entries that map an active page.
    fn cool(&self, page: Pfn, kind: PageKind) -> Cooled;

    /// Takes the accessed marks of the entries of the spaces of a group, and tells which frames
    /// they map. With the group's place comes the number of its walk.
    fn walk(&self, unpinned: Unpinned<'_>, walk: (usize, u32), used: &mut dyn FnMut(Pfn))
    -> Walked;

    /// Whether a frame has no page that is mapped, cached or in use otherwise.
    fn is_unused(&self, page: Pfn) -> bool;

    /// Whether pages that only swap could hold can leave.
    fn can_swap(&self) -> bool;

    /// Waits until the frames of pages that have left are free.
    fn wait_for_frames(&self, unpinned: Unpinned<'_>);

    /// Waits until every pin has ended that is there now. Whoever is pinned later sees what the
    /// caller stored before.
    fn wait_for_pins(&self, unpinned: Unpinned<'_>);

    /// [`Crew::end`] of those who reclaim.
    fn reclaim_ended(&self) -> u32;

    /// [`Crew::wait_for_another`] of those who reclaim.
    fn wait_for_reclaimer(&self, unpinned: Unpinned<'_>, ended: u32) -> bool;
}

/// The lists of a manager, and what was done with them.
pub(crate) struct Reclaim {
    pub(crate) lists: Lists,
    pub(crate) counts: Counts,
    /// By the places of groups.
    of_groups: Box<[CachePadded<GroupCounts>]>,
    /// Who is at reclaiming.
    pub(crate) reclaimers: Crew,
    /// See [`Reclaim::set_swappiness`].
    swappiness: AtomicU32,
}

impl Reclaim {
    /// Empty lists for a memory. (Not inlined, for `Vm::new` to take little stack.)
    #[inline(never)]
    pub(crate) fn new<P: Platform>(
        memory: MemoryView<'_, P>,
        platform: &P,
        aging: PageAging,
        groups: Option<Arc<Groups>>,
    ) -> Reclaim {
        let lists = Lists::new(memory, platform, aging, groups);
        let places = 0..lists.groups();
        Reclaim {
            lists,
            counts: Counts::default(),
            of_groups: places.map(|_| CachePadded::default()).collect(),
            reclaimers: Crew::default(),
            swappiness: AtomicU32::new(SWAPPINESS),
        }
    }

    /// A private page has come: whether nothing is to be done about that, since its frame may stay
    /// where it is listed.
    #[inline]
    pub(crate) fn stays(&self, _pin: &Pin<'_>, page: Pfn) -> bool {
        self.lists.stays(page)
    }

    /// How much of what leaves are private pages, in 200ths, as long as there are both.
    pub(crate) fn set_swappiness(&self, share: u32) {
        self.swappiness.store(share.min(ALL), Ordering::Relaxed);
    }

    /// Kinds of pages of a scope that can leave, with their shares of what does.
    fn shares(&self, evictor: &dyn Evictor, scope: Scope) -> [(PageKind, u64); 2] {
        let private = match scope != Scope::Files && evictor.can_swap() {
            true => self.swappiness.load(Ordering::Relaxed),
            false => 0,
        };
        [
            (PageKind::File, u64::from(ALL - private)),
            (PageKind::SwapBacked, u64::from(private)),
        ]
    }

    /// A page of an object is about to leave memory for its store.
    pub(crate) fn evicted(&self, owner: u32, index: u64, page: Pfn) {
        self.lists.leave_shadow((owner, index), page);
    }

    /// A private page has left for a swap slot.
    pub(crate) fn swapped_out(&self, slot: u64, page: Pfn) {
        if self.lists.ages().is_some() {
            self.lists.leave_shadow((IN_SWAP, slot), page);
        }
    }

    /// A page of shared memory has left for swap.
    pub(crate) fn swapped_out_of(&self, owner: u32, index: u64, page: Pfn) {
        if self.lists.ages().is_some() {
            self.lists.leave_shadow((owner, index), page);
        }
    }

    /// A private page is back from a swap slot.
    pub(crate) fn swapped_in(&self, pin: &Pin<'_>, page: AgedPage<'_>, slot: u64) {
        let is_kept = self.lists.ages().is_some()
            && self.is_kept((IN_SWAP, slot), page, PageKind::SwapBacked);
        self.lists.add(pin, page, PageKind::SwapBacked, is_kept);
    }

    /// An entry that maps a page was found used.
    pub(crate) fn note_use(&self, page: Pfn) {
        if let Some(ages) = self.lists.ages() {
            let number = self.lists.number(page);
            // An entry may map a frame that is none of the memory map.
            if ages.has(number) {
                ages.note_use(number, self.lists.group_of(number));
            }
        }
    }

    /// Whether uses are to be noted ([`Reclaim::note_use`]).
    pub(crate) fn has_generations(&self) -> bool {
        self.lists.ages().is_some()
    }

    /// Whether a page with a name is back that should stay.
    fn is_kept(&self, name: (u32, u64), page: AgedPage<'_>, kind: PageKind) -> bool {
        let is_back = self.lists.returns(name, page, kind);
        if is_back.is_some() {
            self.counts.refaults.add(1);
            let group = self.lists.group_of(self.lists.number(page.frame()));
            self.of_groups[group].refaults.add(1);
        }
        let is_kept = is_back == Some(true);
        if is_kept {
            self.counts.restored.add(1);
        }
        is_kept
    }

    /// Checks the lists while nothing else runs.
    pub(crate) fn audit(&self, pin: &Pin<'_>) -> Result<(), AuditError> {
        self.lists.audit(pin)
    }

    /// Whether a page is on a list, or waits to be, for the audit.
    pub(crate) fn is_known(&self, page: Pfn) -> bool {
        self.lists.is_known(page)
    }
}

impl Aging for Reclaim {
    fn inserted(&self, pin: &Pin<'_>, page: AgedPage<'_>, kind: Inserted) {
        match kind {
            Inserted::Anonymous => self.lists.add(pin, page, PageKind::SwapBacked, false),
            // Who stores to it has used it before, as the other page.
            Inserted::Copy { of } => {
                let is_kept = self.lists.is_used_again(of);
                self.lists.add(pin, page, PageKind::SwapBacked, is_kept);
            }
            Inserted::Cache => {
                let frame = page.record();
                let name = (frame.owner(), frame.index());
                let active = self.is_kept(name, page, PageKind::File);
                self.lists.add(pin, page, PageKind::File, active);
            }
        }
    }

    fn touched(&self, _pin: &Pin<'_>, page: AgedPage<'_>) {
        if let Some(ages) = self.lists.ages() {
            let number = self.lists.number(page.frame());
            ages.note_use(number, self.lists.group_of(number));
        } else if !page.has(PageFlags::REFERENCED) {
            page.set(PageFlags::REFERENCED);
        } else if !page.has(PageFlags::ACTIVE) {
            page.set(PageFlags::ACTIVE);
        }
    }

    /// Pages that may be dropped need no swap: they are listed among those of files, and go back
    /// to the others if they have been stored to when they are looked at.
    fn unwanted(&self, pin: &Pin<'_>, page: AgedPage<'_>, is_droppable: bool) {
        page.forget_uses();
        let frame = page.record();
        let is_swap_backed = match frame.kind() {
            Kind::Anonymous => !is_droppable,
            _ => frame.object().has(ObjectFlags::SWAP_BACKED),
        };
        let kind = match is_swap_backed {
            true => PageKind::SwapBacked,
            false => PageKind::File,
        };
        self.lists.add(pin, page, kind, false);
    }

    fn removed(&self, _pin: &Pin<'_>, _page: AgedPage<'_>) {}

    fn removed_all(&self, _pin: &Pin<'_>, _pages: &mut dyn Iterator<Item = AgedPage<'_>>) {}
}
