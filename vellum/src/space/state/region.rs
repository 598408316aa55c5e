//! A region: a range of pages with one backing, sharing and protection.
//!
//! Faults read a region without a lock of its own being written: they announce
//! it (see [`crate::sync::Announcements`]) and check its gate. Whoever changes
//! a region holds the space's lock, closes the gate, waits the readers out,
//! and opens it again.

use super::spaces::Live;
use crate::addr::{Access, PageRange, Prot, Vpn};
use crate::frame::{PolicyWord, Site};
use crate::object::{Interval, MappedBy};
use crate::rmap::{Place, RegionRef, ReverseMap};
use crate::slab::{Handle, Item};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{CarriedMark, RegionGate};
use crate::tree::IntervalItem;

/// Properties of a region that are not rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traits(u32);

impl Traits {
    /// None of them.
    pub const NONE: Traits = Traits(0);
    /// Writes go to the object.
    pub const SHARED: Traits = Traits(1 << 8);
    /// A fault below it extends it downwards (stack).
    pub const GROWS_DOWN: Traits = Traits(1 << 9);
    /// The heap that `set_heap_end` manages.
    pub const HEAP: Traits = Traits(1 << 10);
    /// Private pages have been made in it: fork must copy its entries.
    pub(in crate::space) const HAS_PRIVATE: Traits = Traits(1 << 11);
    /// Guards, or pages that are lost, may be among its entries: fork must copy them.
    pub(crate) const GUARDED: Traits = Traits(1 << 3);
    /// What a region has become by itself: regions merge whatever they have of it.
    pub(in crate::space) const GROWN: Traits = Traits::HAS_PRIVATE.union(Traits::GUARDED);
    /// Reclaim leaves its pages in memory ([`Space::lock`](crate::space::Space::lock)).
    pub const LOCKED: Traits = Traits(1 << 16);

    /// What is stored to it may take memory that is charged already: private, and can be written or
    /// could once (Linux's `VM_ACCOUNT`). Only with `commit=`.
    pub const COMMITTED: Traits = Traits(1 << 6);
    /// Nothing is charged before it is used ([`MapRequest::no_reserve`]). Only with `commit=`.
    ///
    /// [`MapRequest::no_reserve`]: crate::space::MapRequest::no_reserve
    pub const NO_RESERVE: Traits = Traits(1 << 7);

    /// The region stays as it is until its space ends ([`Space::seal`](crate::space::Space::seal)).
    pub const SEALED: Traits = Traits(1 << 17);

    /// It shows frames that the manager does not manage
    /// ([`MapRequest::frames`](crate::space::MapRequest::frames)).
    pub const UNMANAGED: Traits = Traits(1 << 21);
    /// A forked child has nothing there ([`Advice::DontFork`](crate::space::Advice::DontFork)).
    pub const NOT_FORKED: Traits = Traits(1 << 25);
    /// A forked child finds zeroes there ([`Advice::WipeOnFork`](crate::space::Advice::WipeOnFork)).
    pub const WIPED_BY_FORK: Traits = Traits(1 << 26);
    /// Large pages are wanted ([`Advice::Huge`](crate::space::Advice::Huge)).
    pub const HUGE: Traits = Traits(1 << 27);
    /// Large pages are not wanted ([`Advice::NoHuge`](crate::space::Advice::NoHuge)).
    pub const NOT_HUGE: Traits = Traits(1 << 28);
    /// Pages are used in turn ([`Advice::Sequential`](crate::space::Advice::Sequential)).
    pub const SEQUENTIAL: Traits = Traits(1 << 29);
    /// Pages are used in no order ([`Advice::Random`](crate::space::Advice::Random)).
    pub const RANDOM: Traits = Traits(1 << 30);

    /// A page that is not there is not made: the fault is handed to the embedder
    /// ([`Space::hooks`](crate::space::Space::hooks)).
    pub const HOOK_MISSING: Traits = Traits(1 << 22);
    /// So is a store to a page that was write-protected for that.
    pub const HOOK_STORES: Traits = Traits(1 << 23);
    /// So is an access to a page of shared memory that is there and not mapped yet.
    pub const HOOK_MINOR: Traits = Traits(1 << 24);
    /// Those three.
    pub(in crate::space) const HOOKS: Traits = Traits::HOOK_MISSING
        .union(Traits::HOOK_STORES)
        .union(Traits::HOOK_MINOR);
    /// Dirty tracking has looked at it ([`Space::take_dirty`](crate::space::Space::take_dirty)):
    /// pages without an entry have not been written since.
    pub(in crate::space) const TRACKED: Traits = Traits(1 << 31);
    /// What an embedder is not shown.
    pub(in crate::space) const HIDDEN: Traits = Traits::GROWN.union(Traits::TRACKED);

    /// What a request to map may ask for. The others say what a region has become.
    pub(in crate::space) const REQUESTED: Traits = Traits::SHARED
        .union(Traits::GROWS_DOWN)
        .union(Traits::LOCKED)
        .union(Traits::NO_RESERVE)
        .union(Traits::BARRED);

    /// The bits of a region's word that are not rights.
    const ALL: u32 = !(Prot::from_bits(u8::MAX).bits() as u32);

    /// Where the rights are kept that a region never gets.
    const BARRED_SHIFT: u32 = 18;
    /// All of them.
    const BARRED: Traits = Traits(7 << Traits::BARRED_SHIFT);
    /// What calls that change regions ask before they do.
    pub(in crate::space) const RULED: Traits = Traits::SEALED.union(Traits::BARRED);

    /// The most rights that a region may get
    /// ([`MapRequest::at_most`](crate::space::MapRequest::at_most)).
    pub const fn most(self) -> Prot {
        Prot::from_bits(7 & !(self.0 >> Traits::BARRED_SHIFT) as u8)
    }

    /// The same with at most these.
    pub(in crate::space) const fn at_most(self, most: Prot) -> Traits {
        let barred = (7 & !most.bits()) as u32;
        Traits(self.0 & !Traits::BARRED.0 | barred << Traits::BARRED_SHIFT)
    }

    /// Where the largest folio of a region is kept: log2 of its pages and one, or 0.
    const FOLIO_SHIFT: u32 = 12;
    const FOLIO_MASK: u32 = 15 << Traits::FOLIO_SHIFT;
    /// All of it.
    pub(in crate::space) const FOLIO: Traits = Traits(Traits::FOLIO_MASK);

    /// Log2 of the pages of the largest folio that a fault maps in the region, if it was
    /// advised ([`Advice::Folio`](crate::space::Advice::Folio)).
    pub const fn folio(self) -> Option<u32> {
        ((self.0 & Traits::FOLIO_MASK) >> Traits::FOLIO_SHIFT).checked_sub(1)
    }

    /// The same with what was advised. Orders are below 15.
    pub(in crate::space) const fn with_folio(self, order: Option<u32>) -> Traits {
        let bits = match order {
            Some(order) => order + 1,
            None => 0,
        };
        Traits(self.0 & !Traits::FOLIO_MASK | bits << Traits::FOLIO_SHIFT)
    }

    /// The same of a region that has these rights, if what is promised is counted.
    pub(in crate::space) fn committed_for(self, prot: Prot) -> Traits {
        match prot.can_write() && !self.has_any(Traits::SHARED.union(Traits::NO_RESERVE)) {
            true => self.union(Traits::COMMITTED),
            false => self,
        }
    }

    /// Both.
    pub const fn union(self, other: Traits) -> Traits {
        Traits(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub const fn has(self, other: Traits) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those that are also in `other`.
    pub(in crate::space) const fn only(self, other: Traits) -> Traits {
        Traits(self.0 & other.0)
    }

    /// Whether any of `other` is set.
    pub(in crate::space) const fn has_any(self, other: Traits) -> bool {
        self.0 & other.0 != 0
    }

    /// The same without `other`.
    pub const fn without(self, other: Traits) -> Traits {
        Traits(self.0 & !other.0)
    }
}

/// A region as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionView {
    /// The pages.
    pub range: PageRange,
    /// The rights.
    pub prot: Prot,
    /// Other properties.
    pub traits: Traits,
    /// Handle of the object, or 0.
    pub object: u32,
    /// Page of the object at the region's start; for a region without object,
    /// the page it was first mapped at.
    pub offset: u64,
}

impl RegionView {
    /// The object's page that `page` shows.
    #[inline]
    pub(crate) fn index_of(&self, page: Vpn) -> u64 {
        self.offset + (page.0 - self.range.start.0)
    }

    /// What of it lies in `range`, or begins there and is empty.
    pub(in crate::space) fn part(self, range: PageRange) -> RegionView {
        let range = self.range.intersection(range);
        RegionView {
            range,
            offset: self
                .offset
                .wrapping_add(range.start.0.wrapping_sub(self.range.start.0)),
            ..self
        }
    }

    /// Whether it is sealed, and has private memory that the space could not store to, and so not
    /// empty.
    pub(in crate::space) fn loses_if_sealed(&self) -> bool {
        self.traits.has(Traits::SEALED) && !self.is_shared() && !self.prot.can_write()
    }

    /// Whether stores reach an object.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.traits.has(Traits::SHARED)
    }

    /// Whether it shows frames that the manager does not manage.
    #[inline]
    pub(crate) fn is_unmanaged(&self) -> bool {
        self.traits.has(Traits::UNMANAGED)
    }

    /// Whether it is data, as Linux counts for `RLIMIT_DATA`: private memory that can be written and
    /// is no stack.
    #[inline]
    pub(in crate::space) fn is_data(&self) -> bool {
        is_data(self.prot, self.traits)
    }
}

/// [`RegionView::is_data`] of rights and traits.
#[inline]
pub(in crate::space) fn is_data(prot: Prot, traits: Traits) -> bool {
    prot.can_write() && !traits.has_any(Traits::SHARED.union(Traits::GROWS_DOWN))
}

/// The same with the word that the embedder gave it ([`MapRequest::tag`]).
///
/// [`MapRequest::tag`]: crate::space::MapRequest::tag
#[derive(Clone, Copy)]
pub(in crate::space) struct Tagged {
    pub(in crate::space) view: RegionView,
    pub(in crate::space) tag: u64,
    /// The policy of nodes, if it has one of its own.
    pub(in crate::space) policy: PolicyWord,
}

/// Another word for regions: rights and traits.
#[derive(Clone, Copy)]
pub(in crate::space) struct NewWord {
    /// The rights, if they change.
    pub(in crate::space) prot: Option<Prot>,
    /// Traits that the regions have no longer.
    pub(in crate::space) without: Traits,
    /// Traits that they have then.
    pub(in crate::space) with: Traits,
    /// Whether what can be written then is charged.
    pub(in crate::space) commits: bool,
    /// The policy of nodes, if it changes.
    pub(in crate::space) policy: Option<PolicyWord>,
}

impl NewWord {
    /// Other rights.
    #[inline]
    pub(in crate::space) fn prot(prot: Prot) -> NewWord {
        NewWord {
            prot: Some(prot),
            ..NewWord::traits(Traits::NONE, Traits::NONE)
        }
    }

    /// Other traits.
    #[inline]
    pub(in crate::space) fn traits(without: Traits, with: Traits) -> NewWord {
        NewWord {
            prot: None,
            without,
            with,
            commits: false,
            policy: None,
        }
    }

    /// What it makes of a region's rights and traits. Memory that is not managed keeps its memory
    /// type, and is not locked.
    #[inline]
    pub(in crate::space) fn of(&self, view: &RegionView) -> (Prot, Traits) {
        let prot = self.prot.unwrap_or(view.prot);
        let traits = view.traits.without(self.without).union(self.with);
        let (prot, traits) = match view.is_unmanaged() {
            false => (prot, traits),
            true => (
                prot.with_type(view.prot.memory_type()),
                traits.without(Traits::LOCKED),
            ),
        };
        match self.commits {
            true => (prot, traits.committed_for(prot)),
            false => (prot, traits),
        }
    }
}

/// A region in its arena.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Region<R: ReverseMap> {
    start: AtomicU64,
    end: AtomicU64,
    offset: AtomicU64,
    /// Rights in bits of the low byte, and [`Traits`].
    word: AtomicU32,
    object: AtomicU32,
    space: AtomicU32,
    /// The region's lock, reader side of faults.
    pub gate: RegionGate,
    handle: AtomicU32,
    link: AtomicU32,
    object_set: AtomicU32,
    /// The rights whose accesses a fault makes without asking for hooks: those of the word, or,
    /// with a hook, none. So faults ask one word for both.
    open: AtomicU32,
    /// A write has left no mark in an entry: dirty tracking reports all of the region.
    lost: CarriedMark,
    /// What the reverse-mapping design keeps here.
    pub rmap: R::Region,
    interval: Interval,
    /// Faults do not look at it.
    tag: AtomicU64,
    /// Faults look at it in a space that has policies.
    policy: AtomicU64,
}

impl<R: ReverseMap> Item for Region<R> {
    const SITE: Site = Site::Region;
    const SHARE: usize = 8;

    fn vacant() -> Self {
        Region {
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            word: AtomicU32::new(0),
            object: AtomicU32::new(0),
            space: AtomicU32::new(0),
            gate: RegionGate::default(),
            handle: AtomicU32::new(0),
            link: AtomicU32::new(0),
            object_set: AtomicU32::new(0),
            open: AtomicU32::new(0),
            lost: CarriedMark::default(),
            rmap: R::Region::default(),
            interval: Interval::default(),
            tag: AtomicU64::new(0),
            policy: AtomicU64::new(0),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl<R: ReverseMap> Region<R> {
    /// The region as a value. Exact while its gate is held or entered.
    #[inline]
    pub(crate) fn view(&self) -> RegionView {
        let word = self.word.load(Ordering::Relaxed);
        RegionView {
            range: self.range(),
            prot: Prot::from_bits(word as u8),
            traits: Traits(word & Traits::ALL),
            object: self.object.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
        }
    }

    /// The same with the embedder's word.
    #[inline]
    pub(in crate::space) fn tagged(&self) -> Tagged {
        Tagged {
            view: self.view(),
            tag: self.tag.load(Ordering::Relaxed),
            policy: self.policy(),
        }
    }

    /// The policy of nodes, if it has one of its own. Exact while its gate is held or entered.
    #[inline]
    pub(in crate::space) fn policy(&self) -> PolicyWord {
        PolicyWord::from_bits(self.policy.load(Ordering::Relaxed))
    }

    /// Sets that. No fault is inside.
    pub(in crate::space) fn set_policy(&self, policy: PolicyWord) {
        self.policy.store(policy.bits(), Ordering::Relaxed);
    }

    /// Rights of its pages.
    #[inline]
    pub(crate) fn prot(&self) -> Prot {
        Prot::from_bits(self.word.load(Ordering::Relaxed) as u8)
    }

    /// Whether a fault may make this access without asking for rights and hooks.
    #[inline]
    pub(in crate::space) fn is_open_to(&self, access: Access) -> bool {
        Prot::from_bits(self.open.load(Ordering::Relaxed) as u8).allows(access)
    }

    /// Log2 of the pages of the largest folio, if it was advised.
    #[inline]
    pub(in crate::space) fn folio(&self) -> Option<u32> {
        Traits(self.word.load(Ordering::Relaxed)).folio()
    }

    /// Whether stores reach an object.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        Traits(self.word.load(Ordering::Relaxed)).has(Traits::SHARED)
    }

    /// Whether it shows frames that the manager does not manage.
    #[inline]
    pub(in crate::space) fn is_unmanaged(&self) -> bool {
        Traits(self.word.load(Ordering::Relaxed)).has(Traits::UNMANAGED)
    }

    /// Handle of the object, or 0.
    #[inline]
    pub(crate) fn object(&self) -> u32 {
        self.object.load(Ordering::Relaxed)
    }

    /// The pages.
    #[inline]
    pub(crate) fn range(&self) -> PageRange {
        PageRange {
            start: Vpn(self.start.load(Ordering::Relaxed)),
            end: Vpn(self.end.load(Ordering::Relaxed)),
        }
    }

    /// The place of an entry in the region, for reverse mapping. Exact while
    /// the region's gate is held or entered.
    #[inline]
    pub(in crate::space) fn place<'a>(
        &'a self,
        space: Live<'a, R>,
    ) -> Place<'a, R::Region, R::Space> {
        let start = self.start.load(Ordering::Relaxed);
        Place {
            space: space.handle(),
            space_state: &space.get().rmap,
            region: &self.rmap,
            linear_offset: self.offset.load(Ordering::Relaxed).wrapping_sub(start),
        }
    }

    /// The region as reverse mapping sees it, with the space and pages that it
    /// has or will have.
    #[inline]
    pub(in crate::space) fn region_ref_with(
        &self,
        space: u32,
        view: &RegionView,
    ) -> RegionRef<'_, R::Region> {
        RegionRef {
            handle: self.handle().raw(),
            space,
            pages: view.range,
            first: view.offset,
            state: &self.rmap,
        }
    }

    /// The same with those it has now.
    #[inline]
    pub(in crate::space) fn region_ref(&self) -> RegionRef<'_, R::Region> {
        self.region_ref_with(self.space(), &self.view())
    }

    /// The region's own name.
    #[inline]
    pub(in crate::space) fn handle(&self) -> Handle<Region<R>> {
        Handle::from_raw(self.handle.load(Ordering::Relaxed))
    }

    /// Tells the region its name, which a place in the arena has for good.
    pub(super) fn set_handle(&self, handle: Handle<Region<R>>) {
        self.handle.store(handle.raw(), Ordering::Relaxed);
    }

    /// Handle of the space.
    #[inline]
    pub(crate) fn space(&self) -> u32 {
        self.space.load(Ordering::Relaxed)
    }

    /// Sets everything of a region that is in no tree.
    pub(in crate::space) fn set(&self, space: u32, Tagged { view, tag, policy }: &Tagged) {
        self.tag.store(*tag, Ordering::Relaxed);
        self.set_policy(*policy);
        self.lost.begin();
        self.space.store(space, Ordering::Relaxed);
        self.object.store(view.object, Ordering::Relaxed);
        self.set_range(view.range, view.offset);
        self.set_word(view.prot, view.traits);
    }

    pub(in crate::space) fn set_range(&self, range: PageRange, offset: u64) {
        self.start.store(range.start.0, Ordering::Relaxed);
        self.end.store(range.end.0, Ordering::Relaxed);
        self.offset.store(offset, Ordering::Relaxed);
    }

    pub(in crate::space) fn set_word(&self, prot: Prot, traits: Traits) {
        let open = match traits.has_any(Traits::HOOKS) {
            true => Prot::NONE,
            false => prot,
        };
        self.open.store(u32::from(open.bits()), Ordering::Relaxed);
        self.word
            .store(u32::from(prot.bits()) | traits.0, Ordering::Relaxed);
    }

    /// Notes that private pages have been made. Written once.
    #[inline]
    pub(in crate::space) fn note_private(&self) {
        if self.word.load(Ordering::Relaxed) & Traits::HAS_PRIVATE.0 == 0 {
            self.word.fetch_or(Traits::HAS_PRIVATE.0, Ordering::Relaxed);
        }
    }

    /// Notes that there are guards, or pages that are lost. No fault is inside.
    pub(in crate::space) fn note_guards(&self) {
        self.word.fetch_or(Traits::GUARDED.0, Ordering::Relaxed);
    }

    /// Notes that something has changed and no entry shows it: dirty tracking reports all of the region.
    /// The caller still holds the lock of the table whose entry showed it, or that of the space.
    pub(in crate::space) fn lose(&self) {
        self.lost.set();
    }

    /// The same, and then does `look`, for a caller without the space's lock.
    pub(in crate::space) fn lose_then<T>(&self, look: impl FnOnce() -> T) -> T {
        self.lost.mark_then(look)
    }

    /// Whether that was noted since [`Region::take_lost`].
    pub(in crate::space) fn has_lost(&self) -> bool {
        self.lost.get()
    }

    /// Notes it if it was noted of `other`, of whose pages this region gets some. The caller has begun
    /// to change the tree of regions.
    pub(in crate::space) fn inherit_lost(&self, other: &Region<R>) {
        if other.lost.get_after_change() {
            self.lose();
        }
    }

    /// Whether it was noted, and forgets it.
    pub(in crate::space) fn take_lost(&self) -> bool {
        self.lost.take()
    }

    /// The region leaves its space: stale handles must not match.
    pub(in crate::space) fn forget(&self) {
        self.space.store(0, Ordering::Relaxed);
        self.set_range(PageRange::default(), 0);
    }
}

impl<R: ReverseMap> IntervalItem for Region<R> {
    fn interval(&self) -> &Interval {
        &self.interval
    }

    fn first_index(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    fn end_index(&self) -> u64 {
        self.first_index() + self.range().pages()
    }
}

impl<R: ReverseMap> MappedBy for Region<R> {
    fn is_shared(&self) -> bool {
        Region::is_shared(self)
    }

    fn set(&self) -> &AtomicU32 {
        &self.object_set
    }
}
