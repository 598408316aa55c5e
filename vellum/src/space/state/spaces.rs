//! Address spaces as the manager keeps them, and how they are named.

use core::mem::offset_of;
use core::ops::Deref;

use super::account::{Account, LimitWords};
use super::layout::LayoutWords;
use super::tract::Waits;
use crate::addr::Pfn;
use crate::frame::{Payer, PolicyWord, Site};
use crate::platform::{GroupId, SpaceTag};
use crate::rmap::ReverseMap;
use crate::slab::Item;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::report::Fields;
use crate::sync::{ActiveCpus, ManyActiveCpus, SeqCount, SleepLock, Underway};

/// Names an address space. Stale names are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceId {
    pub(in crate::space) handle: u32,
    pub(in crate::space) generation: u32,
}

impl SpaceId {
    /// The name as a number that is never 0, to keep in a task's record.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.handle as u64
    }

    /// From [`SpaceId::to_bits`]. A number that names no space is noticed
    /// where it is used.
    pub const fn from_bits(bits: u64) -> SpaceId {
        SpaceId {
            handle: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// What a CPU needs to run a task of a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// The hardware tag of the space.
    pub tag: SpaceTag,
    /// The root table.
    pub root: Pfn,
}

/// An address space in its arena.
///
/// The first line is read by every fault and written by none.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SpaceRecord<R: ReverseMap> {
    pub(in crate::space) handle: AtomicU32,
    pub(in crate::space) generation: AtomicU32,
    /// The root table, or `Pfn::NONE`.
    pub(in crate::space) root: AtomicU32,
    /// Advances with every change of the tree.
    pub(in crate::space) seq: SeqCount,
    /// Tasks that use the space. 0: vacant or ending.
    pub(in crate::space) users: AtomicU32,
    /// The name of the space's group, and [`Payer::BY_POLICY`].
    pub(in crate::space) group: AtomicU32,
    /// Root of the tree of regions.
    pub(in crate::space) tree: AtomicU64,
    /// Root of the tree of tracts, if the space is divided (`tract.rs`).
    pub(in crate::space) tracts: AtomicU64,
    /// 1 if there have been tracts: empty page tables above the lowest level stay until the end.
    pub(in crate::space) keeps_tables: AtomicU32,
    /// CPUs that may hold translations or faults of the space, if there are up to 64.
    pub(in crate::space) active: ActiveCpus,
    /// Held by whoever changes regions.
    pub(in crate::space) lock: SleepLock,
    /// Regions that are being unmapped without the lock, their gates closed.
    pub(in crate::space) unmappings: Underway,
    /// 1 while the holder of the lock has those of all tracts, too.
    pub(in crate::space) whole: AtomicU32,
    pub(in crate::space) tract_count: AtomicU32,
    pub(in crate::space) waits: Waits,
    pub(in crate::space) heap_start: AtomicU64,
    pub(in crate::space) heap_end: AtomicU64,
    /// 1 from before the first entry of a move appears at its new place until
    /// the CPUs have forgotten the old ones: whoever takes an entry away flushes
    /// the whole space then, since its page may be known by the old place too.
    pub(in crate::space) moving: AtomicU32,
    /// Entries that were taken away by who holds no lock of the space, and whose CPUs are
    /// still to be flushed (`flush.rs`).
    pub(in crate::space) unflushed: AtomicU32,
    /// Not 0 once dirty tracking has looked at a region (`regions/track.rs`). [`LOST`]: some region
    /// has lost something, and it is not known which.
    pub(in crate::space) tracked: AtomicU32,
    /// [`Rules`] that hold.
    rules: AtomicU32,
    /// 1 if a region that grows down was ever mapped in the space.
    pub(in crate::space) has_stack: AtomicU32,
    /// The policy of nodes of what has none of its own.
    pub(in crate::space) policy: AtomicU64,
    link: AtomicU32,
    /// 1 if there may be large leaves that were made of single pages, whose records fork makes
    /// one (`promote.rs`).
    pub(in crate::space) has_promoted: AtomicU32,
    /// Held by each fault with `faultlock=space`.
    pub(in crate::space) fault_lock: SleepLock,
    pub(in crate::space) limits: LimitWords,
    pub(in crate::space) layout: LayoutWords,
    pub(in crate::space) account: Account,
    /// What the reverse-mapping design keeps here.
    pub rmap: R::Space,
    /// The CPUs of `active`, if there are more.
    pub(in crate::space) many_active: ManyActiveCpus,
}

/// In [`SpaceRecord::tracked`].
pub(in crate::space) const TRACKED: u32 = 1;
/// Likewise.
pub(in crate::space) const LOST: u32 = 2;

/// What no call may do in a space (`regions/rules.rs`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::space) struct Rules(u32);

impl Rules {
    /// Nothing is forbidden.
    pub(in crate::space) const NONE: Rules = Rules(0);
    /// A region is or was sealed, or has a bound of its rights.
    pub(in crate::space) const OF_REGIONS: Rules = Rules(1);
    /// Memory that is no code becomes none.
    pub(in crate::space) const NO_NEW_CODE: Rules = Rules(2);

    /// Whether there are none.
    #[inline]
    pub(in crate::space) fn is_empty(self) -> bool {
        self == Rules::NONE
    }

    /// Whether these are among them.
    pub(in crate::space) fn has(self, rules: Rules) -> bool {
        self.0 & rules.0 == rules.0
    }

    /// Those that spaces have that come of this one.
    pub(in crate::space) fn inherited(self) -> Rules {
        Rules(self.0 & Rules::NO_NEW_CODE.0)
    }
}

impl<R: ReverseMap> Item for SpaceRecord<R> {
    const SITE: Site = Site::Space;
    const SHARE: usize = 16;
    const FIELDS: Fields = &[
        ("name and root", 0),
        ("active", offset_of!(SpaceRecord<R>, active)),
        ("lock", offset_of!(SpaceRecord<R>, lock)),
        ("fault lock", offset_of!(SpaceRecord<R>, fault_lock)),
        ("limits", offset_of!(SpaceRecord<R>, limits)),
        ("account", offset_of!(SpaceRecord<R>, account)),
        ("rmap", offset_of!(SpaceRecord<R>, rmap)),
        ("many active", offset_of!(SpaceRecord<R>, many_active)),
    ];

    fn vacant() -> Self {
        SpaceRecord {
            handle: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            root: AtomicU32::new(Pfn::NONE.0),
            seq: SeqCount::default(),
            users: AtomicU32::new(0),
            group: AtomicU32::new(0),
            tree: AtomicU64::new(0),
            tracts: AtomicU64::new(0),
            keeps_tables: AtomicU32::new(0),
            active: ActiveCpus::default(),
            lock: SleepLock::default(),
            unmappings: Underway::default(),
            whole: AtomicU32::new(0),
            tract_count: AtomicU32::new(0),
            waits: Waits::default(),
            heap_start: AtomicU64::new(0),
            heap_end: AtomicU64::new(0),
            moving: AtomicU32::new(0),
            unflushed: AtomicU32::new(0),
            tracked: AtomicU32::new(0),
            rules: AtomicU32::new(0),
            has_stack: AtomicU32::new(0),
            policy: AtomicU64::new(0),
            link: AtomicU32::new(0),
            has_promoted: AtomicU32::new(0),
            fault_lock: SleepLock::default(),
            limits: LimitWords::default(),
            layout: LayoutWords::default(),
            account: Account::default(),
            rmap: R::Space::default(),
            many_active: ManyActiveCpus::default(),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl<R: ReverseMap> SpaceRecord<R> {
    /// Tasks that use the space.
    pub fn users(&self) -> u32 {
        self.users.load(Ordering::Acquire)
    }

    /// Whether dirty tracking has looked at a region of the space.
    #[inline]
    pub(in crate::space) fn is_tracked(&self) -> bool {
        self.tracked.load(Ordering::Relaxed) != 0
    }

    /// What no call may do in the space. Exact for the holder of its lock, or of a tract's, for what
    /// lies there.
    #[inline]
    pub(in crate::space) fn rules(&self) -> Rules {
        Rules(self.rules.load(Ordering::Relaxed))
    }

    /// Adds some.
    pub(in crate::space) fn add_rules(&self, rules: Rules) {
        self.rules.fetch_or(rules.0, Ordering::Relaxed);
    }

    /// The space begins with these.
    pub(in crate::space) fn begin_rules(&self, rules: Rules) {
        self.rules.store(rules.0, Ordering::Relaxed);
    }

    /// The group that what the space touches is charged to.
    #[inline]
    pub(in crate::space) fn group(&self) -> GroupId {
        GroupId::from_bits(self.group.load(Ordering::Relaxed) & !Payer::BY_POLICY)
    }

    /// That group, and whether there are policies of nodes.
    #[inline]
    pub(in crate::space) fn payer(&self) -> Payer {
        Payer::of_word(self.group.load(Ordering::Relaxed))
    }

    /// Sets the group; returns the one before. The caller has the space's lock.
    pub(in crate::space) fn set_group(&self, id: GroupId) -> GroupId {
        let policies = self.group.load(Ordering::Relaxed) & Payer::BY_POLICY;
        let old = self.group.swap(policies | id.to_bits(), Ordering::AcqRel);
        GroupId::from_bits(old & !Payer::BY_POLICY)
    }

    /// The policy of nodes of what has none of its own.
    pub(in crate::space) fn policy(&self) -> PolicyWord {
        PolicyWord::from_bits(self.policy.load(Ordering::Relaxed))
    }

    /// Sets that.
    pub(in crate::space) fn set_policy(&self, policy: PolicyWord) {
        self.policy.store(policy.bits(), Ordering::Relaxed);
        self.note_policies(policy);
    }

    /// A child begins with the policies of its parent.
    pub(in crate::space) fn inherit_policies(&self, parent: &SpaceRecord<R>) {
        let word = parent.group.load(Ordering::Relaxed);
        self.policy.store(parent.policy().bits(), Ordering::Relaxed);
        (self.group).fetch_or(word & Payer::BY_POLICY, Ordering::Release);
    }

    /// Notes that there is a policy in the space, if it is one. Faults ask from now on which.
    #[inline]
    pub(in crate::space) fn note_policies(&self, policy: PolicyWord) {
        if !policy.is_none() {
            self.group.fetch_or(Payer::BY_POLICY, Ordering::Release);
        }
    }

    /// Whether there are tracts. Stays so for the holder of the lock, or of one of theirs.
    #[inline]
    pub(in crate::space) fn is_divided(&self) -> bool {
        self.tracts.load(Ordering::Acquire) != 0
    }

    /// Whether empty page tables above the lowest level stay.
    #[inline]
    pub(in crate::space) fn keeps_tables(&self) -> bool {
        self.keeps_tables.load(Ordering::Relaxed) != 0
    }

    /// Whether the lock and those of all tracts are one holder's. Exact for who has one of them.
    #[inline]
    pub(in crate::space) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Relaxed) != 0
    }

    /// Whether tracts are changed each under its own lock now. Exact for who has one of them.
    #[inline]
    pub(in crate::space) fn is_in_tracts(&self) -> bool {
        self.is_divided() && !self.is_whole()
    }

    pub(in crate::space) fn root(&self) -> Pfn {
        Pfn(self.root.load(Ordering::Acquire))
    }

    /// The space here, if it has this name and has not ended.
    #[inline]
    pub(in crate::space) fn named(&self, id: SpaceId) -> Option<Live<'_, R>> {
        let generation = self.generation.load(Ordering::Acquire);
        (generation == id.generation && self.users() > 0).then_some(Live {
            space: self,
            key: id.to_bits(),
        })
    }
}

/// A space found by name, with the key that tells it from later spaces in the
/// same memory.
#[derive(Debug)]
pub(in crate::space) struct Live<'a, R: ReverseMap> {
    pub(in crate::space) space: &'a SpaceRecord<R>,
    pub(in crate::space) key: u64,
}

impl<R: ReverseMap> Clone for Live<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: ReverseMap> Copy for Live<'_, R> {}

impl<R: ReverseMap> Deref for Live<'_, R> {
    type Target = SpaceRecord<R>;
    #[inline]
    fn deref(&self) -> &SpaceRecord<R> {
        self.space
    }
}

impl<'a, R: ReverseMap> Live<'a, R> {
    /// Handle and generation in one; never 0.
    #[inline]
    pub(in crate::space) fn key(&self) -> u64 {
        self.key
    }

    #[inline]
    pub(in crate::space) fn handle(&self) -> u32 {
        self.key as u32
    }

    pub(in crate::space) fn id(&self) -> SpaceId {
        SpaceId::from_bits(self.key)
    }

    /// The space for as long as the manager lives.
    #[inline]
    pub(in crate::space) fn get(&self) -> &'a SpaceRecord<R> {
        self.space
    }
}
