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

use alloc::boxed::Box;

use crate::addr::Pfn;
use crate::platform::GroupId;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::report::name;
use crate::sync::{CachePadded, PerCpu, Pin, Unpinned};

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

/// What a group is charged for.
#[derive(Default)]
struct Charged {
    /// Pages, those in stocks among them.
    usage: AtomicU64,
    peak: AtomicU64,
}

/// One group. What charging reads lies apart from what it sometimes writes.
struct Group {
    name: AtomicU32,
    /// Pages that a CPU takes at once; 0 if there are no stocks.
    batch: AtomicU32,
    limit: AtomicU64,
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
    groups: Box<[CachePadded<Group>]>,
    stocks: PerCpu<Stock>,
    cpus: u64,
    /// 1 as soon as there has been a group beside the root.
    in_use: AtomicU32,
    /// 1 while a group begins, ends or has its stocks taken.
    changing: CachePadded<AtomicU32>,
}

impl Groups {
    /// Only the root, for the frames from `first` to before `end`.
    pub(super) fn new((first, end): (Pfn, Pfn), cpus: usize) -> Groups {
        let of_frames: Box<[AtomicU8]> = (first.0..end.0).map(|_| AtomicU8::new(0)).collect();
        let groups: Box<[CachePadded<Group>]> = (0..GROUPS)
            .map(|_| {
                CachePadded(Group {
                    name: AtomicU32::new(0),
                    batch: AtomicU32::new(0),
                    limit: AtomicU64::new(0),
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
            in_use: AtomicU32::new(0),
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

    fn batch_for(&self, limit: u64) -> u32 {
        (limit / (BATCH_SHARE * self.cpus)).min(BATCH) as u32
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
        let group = &self.groups[place];
        let batch = u64::from(group.batch.load(Ordering::Acquire));
        if batch == 0 {
            return group.take(pages).then_some(()).ok_or(payer);
        }
        self.give_up(stock);
        if group.take(pages + batch) {
            stock.store(stock_of(place, batch), Ordering::Relaxed);
            return Ok(());
        }
        group.take(pages).then_some(()).ok_or(payer)
    }

    /// Gives what is in a CPU's stock back to its group.
    fn give_up(&self, stock: &AtomicU64) {
        // Whoever takes the stocks of that group may be faster.
        let word = stock.swap(0, Ordering::AcqRel);
        if pages_in(word) > 0 {
            self.groups[place_in(word)].put(pages_in(word));
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

    #[inline]
    fn uncharge_frame(&self, pin: &Pin<'_>, byte: &AtomicU8, place: usize) {
        let group = &self.groups[place];
        if group.batch.load(Ordering::Acquire) != 0 {
            byte.store(0, Ordering::Relaxed);
            self.give(pin, place, 1);
        } else if byte.swap(0, Ordering::AcqRel) != 0 {
            // Otherwise the group has ended, and its charge was moved.
            group.put(1);
        }
    }

    /// Gives pages back to a group, by way of the CPU's stock.
    #[inline]
    fn give(&self, pin: &Pin<'_>, place: usize, pages: u64) {
        let group = &self.groups[place];
        let batch = u64::from(group.batch.load(Ordering::Acquire));
        if batch == 0 {
            return group.put(pages);
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
        group.put(has + pages - keeps);
    }
}

impl Group {
    /// Charges pages if the limit allows.
    fn take(&self, pages: u64) -> bool {
        let usage = &self.charged.usage;
        let mut old = usage.load(Ordering::Relaxed);
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

    /// A new group; `None` if there are as many as can be.
    pub(super) fn begin(&self, limit: u64, relax: &dyn Fn(u32)) -> Option<GroupId> {
        self.alone(relax, || {
            let is_vacant =
                |group: &CachePadded<Group>| group.members.load(Ordering::Acquire) == VACANT;
            let place = (1..GROUPS).find(|&place| is_vacant(&self.groups[place]))?;
            let group = &self.groups[place];
            let last = GroupId::from_bits(group.name.load(Ordering::Relaxed));
            let name = last.next(place);
            group.name.store(name.to_bits(), Ordering::Relaxed);
            group.limit.store(limit, Ordering::Relaxed);
            group.charged.peak.store(0, Ordering::Relaxed);
            self.in_use.store(1, Ordering::Relaxed);
            group.batch.store(self.batch_for(limit), Ordering::Release);
            group.members.store(0, Ordering::Release);
            Some(name)
        })
    }

    /// Takes what CPUs have in stock of a group, and leaves the group without batches.
    fn collect(&self, unpinned: Unpinned<'_>, place: usize, wait: &dyn Fn(Unpinned<'_>)) {
        let group = &self.groups[place];
        group.batch.store(0, Ordering::SeqCst);
        wait(unpinned);
        for stock in self.stocks.iter() {
            let word = stock.0.load(Ordering::Acquire);
            if place_in(word) != place || pages_in(word) == 0 {
                continue;
            }
            // Its CPU may be giving it up for another group.
            let taken = stock
                .0
                .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                group.put(pages_in(word));
            }
        }
    }

    /// Takes back what CPUs have in stock of a group. False if there is no such group.
    pub(super) fn take_stocks(
        &self,
        unpinned: Unpinned<'_>,
        id: GroupId,
        relax: &dyn Fn(u32),
        wait: &dyn Fn(Unpinned<'_>),
    ) -> bool {
        self.alone(relax, || {
            let Some(group) = self.find(id) else {
                return false;
            };
            self.collect(unpinned, id.place(), wait);
            let limit = group.limit.load(Ordering::Relaxed);
            group.batch.store(self.batch_for(limit), Ordering::Release);
            true
        })
    }

    /// Gives a group another limit. False if there is no such group.
    pub(super) fn set_limit(
        &self,
        unpinned: Unpinned<'_>,
        (id, limit): (GroupId, u64),
        relax: &dyn Fn(u32),
        wait: &dyn Fn(Unpinned<'_>),
    ) -> bool {
        self.alone(relax, || {
            let Some(group) = self.find(id) else {
                return false;
            };
            group.limit.store(limit, Ordering::Relaxed);
            self.collect(unpinned, id.place(), wait);
            group.batch.store(self.batch_for(limit), Ordering::Release);
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

    /// Ends a group without spaces; its charges are the root's then. `move_pages` moves what
    /// else belongs to it, when nothing is charged to it any more. `Some(false)` if there are
    /// spaces in it, `None` if there is no such group.
    pub(super) fn end(
        &self,
        mut unpinned: Unpinned<'_>,
        id: GroupId,
        relax: &dyn Fn(u32),
        wait: &dyn Fn(Unpinned<'_>),
        move_pages: impl FnOnce(Unpinned<'_>),
    ) -> Option<bool> {
        self.alone(relax, || {
            let group = self.find(id)?;
            let closed =
                group
                    .members
                    .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
            if closed.is_err() {
                return Some(false);
            }
            self.collect(unpinned.reborrow(), id.place(), wait);
            let place = id.place() as u8;
            for byte in &self.of_frames {
                if byte.load(Ordering::Relaxed) == place
                    && byte
                        .compare_exchange(place, 0, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    group.put(1);
                }
            }
            // Whoever freed a frame meanwhile has uncharged it, too.
            wait(unpinned.reborrow());
            let usage = group.charged.usage.load(Ordering::Acquire);
            debug_assert!(usage == 0, "a group that has ended is charged for {usage}");
            move_pages(unpinned);
            group.members.store(VACANT, Ordering::Release);
            Some(true)
        })
    }
}

/// What a group has and had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    /// Pages of frames that it is charged for.
    pub(crate) used: u64,
    /// Pages that lie in stocks of CPUs.
    pub(crate) stocked: u64,
    pub(crate) peak: u64,
    pub(crate) limit: u64,
    pub(crate) members: u32,
}

impl Groups {
    fn stocked(&self, place: usize) -> u64 {
        let stocks = self
            .stocks
            .iter()
            .map(|stock| stock.0.load(Ordering::Relaxed));
        let own = stocks.filter(|&word| place_in(word) == place);
        own.map(pages_in).sum()
    }

    /// What a group is charged for; approximate while CPUs charge it.
    pub(crate) fn usage(&self, id: GroupId) -> Option<Usage> {
        let group = self.find(id)?;
        let stocked = self.stocked(id.place());
        let charged = group.charged.usage.load(Ordering::Relaxed);
        Some(Usage {
            used: charged.saturating_sub(stocked),
            stocked,
            peak: group.charged.peak.load(Ordering::Relaxed),
            limit: group.limit.load(Ordering::Relaxed),
            members: group.members.load(Ordering::Relaxed),
        })
    }

    /// Pages that a group may be charged for; none if it has no limit.
    pub(crate) fn limit_of(&self, id: GroupId) -> Option<u64> {
        let limit = self.find(id)?.limit.load(Ordering::Relaxed);
        (limit != u64::MAX).then_some(limit)
    }

    /// Whether a group is so near its limit that its calls are about to have pages leave.
    pub(crate) fn is_short(&self, id: GroupId) -> bool {
        self.usage(id)
            .is_some_and(|usage| usage.used.saturating_add(usage.limit / SPARE_SHARE) > usage.limit)
    }

    /// Pages that a group has above its limit.
    pub(crate) fn excess(&self, id: GroupId) -> u64 {
        self.find(id).map_or(0, |group| {
            let usage = group.charged.usage.load(Ordering::Relaxed);
            usage.saturating_sub(group.limit.load(Ordering::Relaxed))
        })
    }

    /// Checks while nothing else runs that each group is charged for as many pages as there are
    /// frames of it, with those in stocks, and that there is no frame of a group that is not there.
    /// Returns the place of one that is not so.
    pub(super) fn audit(&self) -> Result<(), usize> {
        let mut frames = [0_u64; GROUPS];
        for byte in &self.of_frames {
            let place = usize::from(byte.load(Ordering::Relaxed));
            *frames.get_mut(place).ok_or(place)? += 1;
        }
        for (place, group) in self.groups.iter().enumerate().skip(1) {
            let charged = group.charged.usage.load(Ordering::Relaxed);
            let is_there = group.members.load(Ordering::Relaxed) < CLOSED;
            let fits = frames[place] + self.stocked(place) == charged;
            if !fits || !is_there && charged != 0 {
                return Err(place);
            }
        }
        Ok(())
    }
}
