//! Groups that are charged for frames, each up to a limit.
//!
//! A byte beside each frame says which group is charged for it. It is not in the frame's record,
//! whose words change by plain stores until others can find the page: a charge that moves when its
//! group ends must move in one step.
//!
//! **Charging writes no shared line.** A CPU takes a batch of pages from a group at once and keeps
//! those that it has not used, its stock, in a word of its own, which it changes by plain stores.
//! So a group is charged for what its frames are and what lies in stocks; the limit holds for both.
//! A batch is a 16th of what the limit has for each CPU, at most 32, so that stocks are an eighth
//! of the limit at most.
//!
//! **Whoever needs stocks back** (because the limit is reached, is to change, or because the group
//! ends) says that the group has no batches any more and waits until every pin that was there has
//! ended. From then on CPUs charge and uncharge it by atomic steps, and its stocks and charges can
//! be taken from elsewhere.
//!
//! **Groups lie within groups** (`group_tree.rs`). What a group is charged for, all those around it
//! are charged for, too, and the limit of each holds. A batch, a stock and a frame's byte are those
//! of the innermost group; what lies in stocks is charged to all.

use alloc::boxed::Box;

use super::group_tree::Places;
use crate::addr::Pfn;
use crate::platform::GroupId;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::report::name;
use crate::sync::{BatchedCounts, CachePadded, PerCpu, Pin, Unpinned};

/// Groups that there are at most, the root among them.
const GROUPS: usize = GroupId::MOST;
/// Most pages that a CPU takes from a group at once.
const BATCH: u64 = 32;
/// One in so many pages of a CPU's share of the limit may be in its batch.
const BATCH_SHARE: u64 = 16;
/// A group that has less than one in so many pages of its limit left is short of memory.
const SPARE_SHARE: u64 = 64;
/// Instead of members: there is no such group.
const VACANT: u32 = u32::MAX;
/// Instead of members: it begins or ends, and none can join.
const CLOSED: u32 = u32::MAX - 1;
/// Shift of a group's place in a word of a stock; below it are the pages.
const PLACE_SHIFT: u32 = 32;

/// What a group may have and keep, in pages, with those within it; as in Linux's memory control
/// groups of version 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// More than this it never has: calls have pages of it leave, or fail (`memory.max`).
    pub max: u64,
    /// Above this, calls have pages of it leave first, but do not fail (`memory.high`).
    pub high: u64,
    /// Up to this, its pages leave for the shortage of others only if nothing else can
    /// (`memory.low`).
    pub low: u64,
    /// Up to this, they never do (`memory.min`).
    pub min: u64,
}

impl GroupLimits {
    /// No limit and no protection.
    pub const NONE: GroupLimits = GroupLimits {
        max: u64::MAX,
        high: u64::MAX,
        low: 0,
        min: 0,
    };
}

impl Default for GroupLimits {
    fn default() -> Self {
        GroupLimits::NONE
    }
}

/// What a group is charged for.
#[derive(Default)]
struct Charged {
    /// Pages, those in stocks among them.
    usage: AtomicU64,
    peak: AtomicU64,
    /// Pages above `high` that may be charged, since others have left for them.
    allowance: AtomicU64,
}

/// One group. What charging reads lies apart from what it sometimes writes.
pub(super) struct Group {
    name: AtomicU32,
    /// Pages that a CPU takes at once; 0 if there are no stocks.
    batch: AtomicU32,
    limit: AtomicU64,
    /// Above this, a call that charges it has pages of it leave first.
    pub(super) high: AtomicU64,
    /// Up to this, its pages do not leave for others; see `group_tree.rs`.
    pub(super) min: AtomicU64,
    /// The same as long as others have pages that can leave.
    pub(super) low: AtomicU64,
    /// The place of the group that it is in, 0 for the root.
    pub(super) parent: AtomicU32,
    /// Spaces, or one of the values above.
    members: AtomicU32,
    charged: CachePadded<Charged>,
}

/// Pages of one group that are charged and not used yet: its place, and how many.
#[derive(Default)]
struct Stock(AtomicU64);

const fn stock_of(place: usize, pages: u64) -> u64 {
    (place as u64) << PLACE_SHIFT | pages
}

const fn place_in(stock: u64) -> usize {
    (stock >> PLACE_SHIFT) as usize
}

const fn pages_in(stock: u64) -> u64 {
    stock & ((1 << PLACE_SHIFT) - 1)
}

/// All groups of a memory.
pub(crate) struct Groups {
    first: u32,
    /// Beside each frame: the place of the group that is charged for it, 0 for none.
    of_frames: Box<[AtomicU8]>,
    pub(super) groups: Box<[CachePadded<Group>]>,
    stocks: PerCpu<Stock>,
    cpus: u64,
    /// Page tables that are charged to each, if they are.
    tables: Option<BatchedCounts>,
    /// 1 as soon as there has been a group beside the root.
    in_use: AtomicU32,
    /// 1 as soon as a group has been protected.
    pub(super) are_protected: AtomicU32,
    /// 1 while a group begins, ends or has its stocks taken.
    changing: CachePadded<AtomicU32>,
}

impl Groups {
    /// Only the root, for the frames from `first` to before `end`.
    pub(super) fn new((first, end): (Pfn, Pfn), cpus: usize, with_tables: bool) -> Groups {
        let of_frames: Box<[AtomicU8]> = (first.0..end.0).map(|_| AtomicU8::new(0)).collect();
        let groups: Box<[CachePadded<Group>]> = (0..GROUPS)
            .map(|_| {
                CachePadded(Group {
                    name: AtomicU32::new(0),
                    batch: AtomicU32::new(0),
                    limit: AtomicU64::new(0),
                    high: AtomicU64::new(u64::MAX),
                    min: AtomicU64::new(0),
                    low: AtomicU64::new(0),
                    parent: AtomicU32::new(0),
                    members: AtomicU32::new(VACANT),
                    charged: CachePadded::default(),
                })
            })
            .collect();
        name("groups of frames", &[], of_frames.as_ptr(), of_frames.len());
        name("groups", &[], groups.as_ptr(), groups.len());
        Groups {
            first: first.0,
            of_frames,
            groups,
            stocks: PerCpu::new(cpus, |_| Stock::default()),
            cpus: cpus as u64,
            tables: with_tables.then(|| BatchedCounts::new(GROUPS, cpus, BATCH as u32)),
            in_use: AtomicU32::new(0),
            are_protected: AtomicU32::new(0),
            changing: CachePadded::default(),
        }
    }

    fn byte(&self, frame: Pfn) -> &AtomicU8 {
        &self.of_frames[frame.0.wrapping_sub(self.first) as usize]
    }

    /// The place of the group that is charged for a frame, by the frame's number from the first
    /// on.
    #[inline]
    pub(crate) fn of_frame(&self, number: u32) -> usize {
        let byte = self.of_frames.get(number as usize);
        byte.map_or(0, |byte| usize::from(byte.load(Ordering::Relaxed)))
    }

    /// The group that is charged for a frame.
    pub(crate) fn group_of(&self, frame: Pfn) -> GroupId {
        let place = self.of_frame(frame.0.wrapping_sub(self.first));
        self.at(place).unwrap_or(GroupId::ROOT)
    }

    /// Whether there has been a group beside the root.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) != 0
    }

    /// The name of the group in a place, if there is one.
    pub(crate) fn at(&self, place: usize) -> Option<GroupId> {
        let group = self.groups.get(place)?;
        let is_there = group.members.load(Ordering::Acquire) < CLOSED;
        is_there.then(|| GroupId::from_bits(group.name.load(Ordering::Relaxed)))
    }

    fn find(&self, id: GroupId) -> Option<&Group> {
        (id != GroupId::ROOT && self.at(id.place()) == Some(id)).then(|| &self.groups[id.place()].0)
    }

    /// Pages that a CPU may take at once: a small part of each limit on the way up.
    fn batch_for(&self, place: usize) -> u32 {
        let least = |group: &Group| {
            let limit = group.limit.load(Ordering::Relaxed);
            limit.min(group.high.load(Ordering::Relaxed))
        };
        let limits = self.way_up(place).map(|place| least(&self.groups[place]));
        let limit = limits.min().unwrap_or(0);
        (limit / (BATCH_SHARE * self.cpus)).min(BATCH) as u32
    }

    /// Charges pages to the group of a place and to those around it, if each may have them.
    ///
    /// # Errors
    /// The innermost that may not; then none is charged.
    fn take(&self, place: usize, pages: u64) -> Result<(), GroupId> {
        for at in self.way_up(place) {
            let group = &self.groups[at];
            if !group.take(pages) {
                for undone in self.way_up(place).take_while(|&undone| undone != at) {
                    self.groups[undone].put(pages);
                }
                return Err(GroupId::from_bits(group.name.load(Ordering::Relaxed)));
            }
        }
        Ok(())
    }

    /// The group of a place and those around it are not charged for pages any more.
    fn put(&self, place: usize, pages: u64) {
        for at in self.way_up(place) {
            self.groups[at].put(pages);
        }
    }
}

/// Charging, by who is pinned.
impl Groups {
    /// Charges a group for pages that are about to be had. `payer` has not ended since the pin
    /// began.
    ///
    /// # Errors
    /// The group, if it would have more than its limit.
    #[inline]
    pub(super) fn charge(&self, pin: &Pin<'_>, payer: GroupId, pages: u64) -> Result<(), GroupId> {
        let place = payer.place();
        let stock = &self.stocks.get(pin).0;
        let word = stock.load(Ordering::Relaxed);
        let has_stocks = self.groups[place].batch.load(Ordering::Acquire) != 0;
        if has_stocks && place_in(word) == place && pages_in(word) >= pages {
            stock.store(word - pages, Ordering::Relaxed);
            return Ok(());
        }
        self.charge_group(stock, payer, pages)
    }

    #[inline(never)]
    fn charge_group(&self, stock: &AtomicU64, payer: GroupId, pages: u64) -> Result<(), GroupId> {
        let place = payer.place();
        let batch = u64::from(self.groups[place].batch.load(Ordering::Acquire));
        if batch == 0 {
            return self.take(place, pages);
        }
        self.give_up(stock);
        if self.take(place, pages + batch).is_ok() {
            stock.store(stock_of(place, batch), Ordering::Relaxed);
            return Ok(());
        }
        self.take(place, pages)
    }

    /// Gives what is in a CPU's stock back to its group.
    fn give_up(&self, stock: &AtomicU64) {
        // Whoever takes the stocks of that group may be faster.
        let word = stock.swap(0, Ordering::AcqRel);
        if pages_in(word) > 0 {
            self.put(place_in(word), pages_in(word));
        }
    }

    /// The same of the pin's CPU.
    pub(crate) fn settle(&self, pin: &Pin<'_>) {
        self.give_up(&self.stocks.get(pin).0);
    }

    /// Says that a charge is for the frames from `frame` on.
    pub(super) fn set_group(&self, frame: Pfn, pages: u32, payer: GroupId) {
        for step in 0..pages {
            let byte = self.byte(frame.offset(step));
            debug_assert!(byte.load(Ordering::Relaxed) == 0, "a frame charged twice");
            byte.store(payer.place() as u8, Ordering::Relaxed);
        }
    }

    /// Gives a charge back that no frame was had for.
    pub(super) fn refund(&self, pin: &Pin<'_>, payer: GroupId, pages: u64) {
        self.give(pin, payer.place(), pages);
    }

    /// Charges a group for a frame, and no longer the one that was charged before; whatever its
    /// limit is. Both have members that stay until this has ended.
    pub(super) fn recharge(&self, pin: &Pin<'_>, frame: Pfn, payer: GroupId) {
        for at in self.way_up(payer.place()) {
            self.groups[at].add(1);
        }
        let before = self.byte(frame).swap(payer.place() as u8, Ordering::AcqRel);
        self.put(usize::from(before), 1);
        self.count_table(pin, payer.place(), 1);
        self.count_table(pin, usize::from(before), -1);
    }

    /// Nobody is charged for a table any more.
    pub(super) fn uncharge_table(&self, pin: &Pin<'_>, table: Pfn) {
        let byte = self.byte(table);
        let place = usize::from(byte.load(Ordering::Relaxed));
        if place != 0 {
            let place = self.uncharge_frame(pin, byte, place);
            self.count_table(pin, place, -1);
        }
    }

    /// Counts tables of a group that came or went.
    pub(super) fn count_table(&self, pin: &Pin<'_>, place: usize, change: i32) {
        if let Some(tables) = &self.tables
            && place != 0
        {
            tables.add(pin, place, change);
        }
    }

    /// What a group that has ended had of tables is of the one around it.
    pub(super) fn end_tables(&self, pin: &Pin<'_>, place: usize, around: usize) {
        if let Some(tables) = &self.tables {
            let left = tables.sum(place) as i64 as i32;
            self.count_table(pin, around, left);
            self.count_table(pin, place, left.wrapping_neg());
        }
    }

    /// Page tables that the groups of some places are charged for.
    fn tables_of(&self, places: Places) -> u64 {
        let sum = |tables: &BatchedCounts| {
            let tables = places.into_iter().map(|place| tables.sum(place));
            tables.fold(0, u64::wrapping_add) as i64
        };
        self.tables.as_ref().map_or(0, sum).max(0) as u64
    }

    /// Whether groups are charged for page tables, and there has been one.
    #[inline]
    pub(super) fn charge_tables(&self) -> bool {
        self.tables.is_some() && self.are_in_use()
    }

    /// Nobody uses frames any more: whoever is charged for them no longer is.
    #[inline]
    pub(super) fn uncharge(&self, pin: &Pin<'_>, frame: Pfn, pages: u32) {
        if !self.are_in_use() {
            return;
        }
        for step in 0..pages {
            let byte = self.byte(frame.offset(step));
            let place = usize::from(byte.load(Ordering::Relaxed));
            if place != 0 {
                self.uncharge_frame(pin, byte, place);
            }
        }
    }

    /// Returns the place of the group that was charged last.
    #[inline]
    fn uncharge_frame(&self, pin: &Pin<'_>, byte: &AtomicU8, place: usize) -> usize {
        if self.groups[place].batch.load(Ordering::Acquire) != 0 {
            byte.store(0, Ordering::Relaxed);
            self.give(pin, place, 1);
            return place;
        }
        // The group may have ended, and its charge is that of the one around it.
        let place = usize::from(byte.swap(0, Ordering::AcqRel));
        self.put(place, 1);
        place
    }

    /// Gives pages back to a group, by way of the CPU's stock.
    #[inline]
    fn give(&self, pin: &Pin<'_>, place: usize, pages: u64) {
        let batch = u64::from(self.groups[place].batch.load(Ordering::Acquire));
        if batch == 0 {
            return self.put(place, pages);
        }
        let stock = &self.stocks.get(pin).0;
        let word = stock.load(Ordering::Relaxed);
        let has = match place_in(word) == place {
            true => pages_in(word),
            false => {
                self.give_up(stock);
                0
            }
        };
        let keeps = match has + pages <= 2 * batch {
            true => has + pages,
            false => batch,
        };
        stock.store(stock_of(place, keeps), Ordering::Relaxed);
        self.put(place, has + pages - keeps);
    }
}

impl Group {
    /// What it may have.
    fn limits(&self) -> GroupLimits {
        GroupLimits {
            max: self.limit.load(Ordering::Relaxed),
            high: self.high.load(Ordering::Relaxed),
            low: self.low.load(Ordering::Relaxed),
            min: self.min.load(Ordering::Relaxed),
        }
    }

    fn set_limits(&self, limits: GroupLimits) {
        self.limit.store(limits.max, Ordering::Relaxed);
        self.high.store(limits.high, Ordering::Relaxed);
        self.low.store(limits.low, Ordering::Relaxed);
        self.min.store(limits.min, Ordering::Relaxed);
    }

    /// Charges pages if the limit allows, and if what is above `high` was allowed.
    fn take(&self, pages: u64) -> bool {
        let usage = &self.charged.usage;
        let mut old = usage.load(Ordering::Relaxed);
        let high = self.high.load(Ordering::Relaxed);
        let is_above = old + pages > high && old + pages <= self.limit.load(Ordering::Relaxed);
        if is_above && !self.takes_allowance(pages) {
            return false;
        }
        loop {
            let new = old + pages;
            if new > self.limit.load(Ordering::Relaxed) {
                return false;
            }
            match usage.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    if new > self.charged.peak.load(Ordering::Relaxed) {
                        self.charged.peak.fetch_max(new, Ordering::Relaxed);
                    }
                    return true;
                }
                Err(now) => old = now,
            }
        }
    }

    /// Takes so many pages of what may be charged above `high`.
    fn takes_allowance(&self, pages: u64) -> bool {
        let allowance = &self.charged.allowance;
        let mut allowed = allowance.load(Ordering::Relaxed);
        while let Some(left) = allowed.checked_sub(pages) {
            let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            match allowance.compare_exchange_weak(allowed, left, order, relaxed) {
                Ok(_) => return true,
                Err(now) => allowed = now,
            }
        }
        false
    }

    /// Charges pages whatever the limit is.
    fn add(&self, pages: u64) {
        let new = (self.charged.usage).fetch_add(pages, Ordering::AcqRel) + pages;
        self.charged.peak.fetch_max(new, Ordering::Relaxed);
    }

    fn put(&self, pages: u64) {
        if pages > 0 {
            let old = self.charged.usage.fetch_sub(pages, Ordering::AcqRel);
            debug_assert!(old >= pages, "a group is charged for less than nothing");
        }
    }
}

/// How groups begin and end, and what they may have. `wait` returns when all pins that were there
/// when it was called have ended.
impl Groups {
    /// Does `change` while nobody else changes groups.
    fn alone<T>(&self, relax: &dyn Fn(u32), change: impl FnOnce() -> T) -> T {
        let mut spins = 0;
        while self.changing.swap(1, Ordering::Acquire) != 0 {
            relax(spins);
            spins += 1;
        }
        let result = change();
        self.changing.store(0, Ordering::Release);
        result
    }

    /// A new group within another; `None` if there are as many as can be, or no such other.
    pub(super) fn begin(
        &self,
        within: GroupId,
        limit: u64,
        relax: &dyn Fn(u32),
    ) -> Option<GroupId> {
        self.alone(relax, || {
            if within != GroupId::ROOT {
                self.find(within)?;
            }
            let is_vacant =
                |group: &CachePadded<Group>| group.members.load(Ordering::Acquire) == VACANT;
            let place = (1..GROUPS).find(|&place| is_vacant(&self.groups[place]))?;
            let group = &self.groups[place];
            let last = GroupId::from_bits(group.name.load(Ordering::Relaxed));
            let name = last.next(place);
            group.name.store(name.to_bits(), Ordering::Relaxed);
            group.set_limits(GroupLimits {
                max: limit,
                ..GroupLimits::NONE
            });
            let parent = within.place() as u32;
            group.parent.store(parent, Ordering::Relaxed);
            group.charged.peak.store(0, Ordering::Relaxed);
            group.charged.allowance.store(0, Ordering::Relaxed);
            self.in_use.store(1, Ordering::Relaxed);
            group.batch.store(self.batch_for(place), Ordering::Release);
            group.members.store(0, Ordering::Release);
            Some(name)
        })
    }

    /// Takes what CPUs have in stock of groups, and leaves those without batches.
    fn collect(&self, unpinned: Unpinned<'_>, places: Places, wait: &dyn Fn(Unpinned<'_>)) {
        for place in places {
            self.groups[place].batch.store(0, Ordering::SeqCst);
        }
        wait(unpinned);
        for stock in self.stocks.iter() {
            let word = stock.0.load(Ordering::Acquire);
            if !places.has(place_in(word)) || pages_in(word) == 0 {
                continue;
            }
            // Its CPU may be giving it up for another group.
            let taken = stock
                .0
                .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                self.put(place_in(word), pages_in(word));
            }
        }
    }

    /// Changes what a group may have, and takes back what CPUs have in stock of it and of those
    /// within it. False if there is no such group.
    pub(super) fn change(
        &self,
        unpinned: Unpinned<'_>,
        id: GroupId,
        relax: &dyn Fn(u32),
        wait: &dyn Fn(Unpinned<'_>),
        change: &dyn Fn(&mut GroupLimits),
    ) -> bool {
        self.alone(relax, || {
            let Some(group) = self.find(id) else {
                return false;
            };
            let mut limits = group.limits();
            change(&mut limits);
            group.set_limits(limits);
            if limits.min.max(limits.low) > 0 {
                self.are_protected.store(1, Ordering::Relaxed);
            }
            let places = self.within(id.place());
            self.collect(unpinned, places, wait);
            for place in places {
                let batch = self.batch_for(place);
                self.groups[place].batch.store(batch, Ordering::Release);
            }
            true
        })
    }

    /// One more space belongs to the group. False if there is no such group.
    pub(crate) fn join(&self, id: GroupId) -> bool {
        if id == GroupId::ROOT {
            return true;
        }
        let Some(group) = self.find(id) else {
            return false;
        };
        let mut old = group.members.load(Ordering::Acquire);
        while old < CLOSED {
            let joined = group.members.compare_exchange_weak(
                old,
                old + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match joined {
                // The place may have been another group's when it was found.
                Ok(_) if group.name.load(Ordering::Relaxed) == id.to_bits() => return true,
                Ok(_) => {
                    group.members.fetch_sub(1, Ordering::AcqRel);
                    return false;
                }
                Err(now) => old = now,
            }
        }
        false
    }

    /// A space has left the group.
    pub(crate) fn leave(&self, id: GroupId) {
        if id != GroupId::ROOT {
            let old = self.groups[id.place()]
                .members
                .fetch_sub(1, Ordering::AcqRel);
            debug_assert!(old > 0 && old < CLOSED, "a space left a group twice");
        }
    }

    /// Ends a group without spaces or groups in it; its charges are those of the group around it
    /// then. `move_pages` moves what else belongs to it, to the place that it is told, when nothing
    /// is charged to it any more. `Some(false)` if there is something in it, `None` if there is no
    /// such group.
    pub(super) fn end(
        &self,
        mut unpinned: Unpinned<'_>,
        id: GroupId,
        relax: &dyn Fn(u32),
        wait: &dyn Fn(Unpinned<'_>),
        move_pages: impl FnOnce(Unpinned<'_>, usize),
    ) -> Option<bool> {
        self.alone(relax, || {
            let group = self.find(id)?;
            let (place, parent) = (id.place(), self.parent_of(id.place()));
            if self.within(place) != Places::only(place) {
                return Some(false);
            }
            let closed =
                group
                    .members
                    .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
            if closed.is_err() {
                return Some(false);
            }
            self.collect(unpinned.reborrow(), Places::only(place), wait);
            let (from, to) = (place as u8, parent as u8);
            for byte in &self.of_frames {
                if byte.load(Ordering::Relaxed) == from
                    && byte
                        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    // Those around it stay charged.
                    group.put(1);
                }
            }
            // Whoever freed a frame meanwhile has uncharged it, too.
            wait(unpinned.reborrow());
            let usage = group.charged.usage.load(Ordering::Acquire);
            debug_assert!(usage == 0, "a group that has ended is charged for {usage}");
            move_pages(unpinned, parent);
            group.members.store(VACANT, Ordering::Release);
            Some(true)
        })
    }
}

/// What a group has and had, with those within it but for `members`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    /// Frames that it is charged for: of pages, and of page tables.
    pub(crate) used: u64,
    /// Of these, page tables.
    pub(crate) tables: u64,
    /// Pages that lie in stocks of CPUs.
    pub(crate) stocked: u64,
    pub(crate) peak: u64,
    pub(crate) limits: GroupLimits,
    pub(crate) members: u32,
}

impl Groups {
    fn stocked(&self, places: Places) -> u64 {
        let stocks = self
            .stocks
            .iter()
            .map(|stock| stock.0.load(Ordering::Relaxed));
        let own = stocks.filter(|&word| places.has(place_in(word)));
        own.map(pages_in).sum()
    }

    /// What a group is charged for; approximate while CPUs charge it.
    pub(crate) fn usage(&self, id: GroupId) -> Option<Usage> {
        let group = self.find(id)?;
        let stocked = self.stocked(self.within(id.place()));
        Some(Usage {
            used: self.charged(id.place()).saturating_sub(stocked),
            tables: self.tables_of(self.within(id.place())),
            stocked,
            peak: group.charged.peak.load(Ordering::Relaxed),
            limits: group.limits(),
            members: group.members.load(Ordering::Relaxed),
        })
    }

    /// What the group of a place and those within it are charged for, with what lies in stocks.
    pub(super) fn charged(&self, place: usize) -> u64 {
        (self.groups[place].charged.usage).load(Ordering::Relaxed)
    }

    /// The same without what lies in stocks.
    pub(super) fn in_frames(&self, place: usize) -> u64 {
        let stocked = self.stocked(self.within(place));
        self.charged(place).saturating_sub(stocked)
    }

    /// The groups that have a limit of those that a group is in, itself among them: their places
    /// and limits.
    pub(crate) fn limits_around(&self, id: GroupId) -> impl Iterator<Item = (usize, u64)> {
        self.way_up(id.place()).filter_map(|place| {
            let limit = self.groups[place].limit.load(Ordering::Relaxed);
            (limit != u64::MAX).then_some((place, limit))
        })
    }

    /// Whether a group, or one around it, is so near its limit that its calls are about to have
    /// pages leave.
    pub(crate) fn is_short(&self, id: GroupId) -> bool {
        self.way_up(id.place()).any(|place| {
            let group = &self.groups[place];
            let limit = group.limit.load(Ordering::Relaxed);
            let limit = limit.min(group.high.load(Ordering::Relaxed));
            let used = self.in_frames(place);
            limit != u64::MAX && used.saturating_add(limit / SPARE_SHARE) > limit
        })
    }

    /// Pages that a group has above its limit.
    pub(crate) fn excess(&self, id: GroupId) -> u64 {
        self.find(id).map_or(0, |group| {
            let limit = group.limit.load(Ordering::Relaxed);
            self.charged(id.place()).saturating_sub(limit)
        })
    }

    /// Pages that a group has above its `high`.
    pub(crate) fn above_high(&self, id: GroupId) -> u64 {
        self.find(id).map_or(0, |group| {
            let high = group.high.load(Ordering::Relaxed);
            self.charged(id.place()).saturating_sub(high)
        })
    }

    /// Whether `pages` more of a group would be above its `high`, and nobody has made room for
    /// them.
    pub(crate) fn is_held_at_high(&self, id: GroupId) -> bool {
        self.find(id).is_some_and(|group| {
            let charged = self.charged(id.place());
            let has_room = charged < group.limit.load(Ordering::Relaxed);
            let is_above = charged >= group.high.load(Ordering::Relaxed);
            has_room && is_above && group.charged.allowance.load(Ordering::Relaxed) == 0
        })
    }

    /// Whether there is such a group, and it is refused another page.
    pub(crate) fn has_no_room(&self, id: GroupId) -> bool {
        let is_full =
            |group: &Group| self.charged(id.place()) >= group.limit.load(Ordering::Relaxed);
        self.find(id).is_some_and(is_full) || self.is_held_at_high(id)
    }

    /// Lets a group have so many pages above its `high`.
    pub(crate) fn allow_above_high(&self, id: GroupId, pages: u64) {
        if let Some(group) = self.find(id) {
            group.charged.allowance.store(pages, Ordering::Release);
        }
    }

    /// Checks while nothing else runs that each group is charged for as many pages as there are
    /// frames of it and of those within it, with those in stocks, and that there is no frame of a group that is not there.
    /// Returns the place of one that is not so.
    pub(super) fn audit(&self) -> Result<(), usize> {
        let mut frames = [0_u64; GROUPS];
        for byte in &self.of_frames {
            let place = usize::from(byte.load(Ordering::Relaxed));
            *frames.get_mut(place).ok_or(place)? += 1;
        }
        for (place, group) in self.groups.iter().enumerate().skip(1) {
            let is_there = group.members.load(Ordering::Relaxed) < CLOSED;
            let places = match is_there {
                true => self.within(place),
                false => Places::only(place),
            };
            let charged = self.charged(place);
            let of_frames: u64 = places.into_iter().map(|place| frames[place]).sum();
            let fits = of_frames + self.stocked(places) == charged;
            if !fits || !is_there && charged != 0 {
                return Err(place);
            }
        }
        Ok(())
    }
}
