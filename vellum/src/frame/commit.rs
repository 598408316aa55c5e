//! Commit accounting: how many pages have been promised, and how many may be (Linux's
//! `vm.overcommit_memory`).
//!
//! What is charged is what a caller may store to without asking again: private memory that can be
//! written, and shared memory by its length. Whether there are frames for it is another question,
//! which faults ask.
//!
//! **A CPU keeps a stock** of pages that are charged and not used, in a word of its own, so that
//! CPUs which map at once seldom write a line that they share. The stock belongs to one group.
//! Other CPUs take it only by exchanging the word for an empty one.
//!
//! **Near a limit nothing is kept in stock.** A call that does not fit takes back all stocks and
//! tries once more. So what is refused is what would exceed the limit, and not what a stock hides.

use alloc::boxed::Box;

use super::memory::PhysicalMemory;
use crate::design::CommitMode;
use crate::platform::{GroupId, Machine};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{CachePadded, PerCpu, Pin};

/// Most pages that a CPU puts into its stock at once.
const BATCH: u64 = 256;
/// One in so many pages of a CPU's share of the limit may be in its batch.
const BATCH_SHARE: u64 = 16;
/// Bits of a group's word that count pages; above them is its generation.
const PAGE_BITS: u32 = 44;
/// Bytes that only administrators may commit, unless somebody says otherwise.
const ADMIN_RESERVE: u64 = 8 << 20;
/// Bytes that one space leaves at most, likewise.
const USER_RESERVE: u64 = 128 << 20;
/// Neither is more than one in so many pages of the memory.
const RESERVE_SHARE: u64 = 32;

/// What is refused when memory is promised ([`Group::set_commit_policy`]). Each mode of Linux's
/// `vm.overcommit_memory` is one.
///
/// [`Group::set_commit_policy`]: crate::space::Group::set_commit_policy
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitPolicy {
    /// A call that alone asks for more than there are frames and swap slots (0).
    Heuristic,
    /// Nothing (1).
    Always,
    /// What would be more than a limit (2). The request
    /// [`MapRequest::no_reserve`](crate::space::MapRequest::no_reserve) is ignored.
    Never(CommitLimits),
}

/// Most that may be promised with [`CommitPolicy::Never`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitLimits {
    /// The limit, without swap slots, which are added.
    pub most: CommitShare,
    /// Pages of the limit that only spaces may have with [`Limits::is_admin`]
    /// (`vm.admin_reserve_kbytes`).
    ///
    /// [`Limits::is_admin`]: crate::space::Limits::is_admin
    pub admin_reserve: u64,
    /// Pages of the limit that a space leaves, but no more than a 32nd of its own
    /// (`vm.user_reserve_kbytes`).
    pub user_reserve: u64,
}

/// A part of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitShare {
    /// So many in a hundred of its frames (`vm.overcommit_ratio`).
    Percent(u32),
    /// So many pages (`vm.overcommit_kbytes`).
    Pages(u64),
}

/// What has been promised and may be. Approximate while CPUs are at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CommitStats {
    /// Pages promised (`Committed_AS`).
    pub committed: u64,
    /// Pages that may be with [`CommitPolicy::Never`] (`CommitLimit`), in force or not.
    pub limit: u64,
    /// Pages charged that CPUs have in stock, and that nobody was promised.
    pub stocked: u64,
}

/// A group's generation and pages, and its limit.
struct CommitGroup {
    word: AtomicU64,
    limit: AtomicU64,
}

/// What is charged in all.
pub(crate) struct Commit {
    /// A [`CommitMode`].
    mode: AtomicU32,
    /// Pages that may be promised, without swap.
    most: AtomicU64,
    admin_reserve: AtomicU64,
    user_reserve: AtomicU64,
    /// Slots of swap areas in use.
    swap: AtomicU64,
    /// Frames that there are.
    memory: u64,
    cpus: u64,
    /// Pages promised, and those in stocks.
    total: CachePadded<AtomicU64>,
    groups: Option<Box<[CachePadded<CommitGroup>]>>,
    /// Of each CPU the place of a group, and pages.
    stocks: PerCpu<AtomicU64>,
}

/// Who is charged, and how much of the limit is not for it.
#[derive(Clone, Copy)]
pub(crate) struct Committer {
    pub(crate) group: GroupId,
    pub(crate) reserve: u64,
}

const fn stock_of(place: usize, pages: u64) -> u64 {
    (place as u64) << PAGE_BITS | pages
}

const fn place_in(stock: u64) -> usize {
    (stock >> PAGE_BITS) as usize
}

const fn pages_in(word: u64) -> u64 {
    word & ((1 << PAGE_BITS) - 1)
}

/// The word of a group without pages.
const fn empty_of(id: GroupId) -> u64 {
    (id.generation() as u64) << PAGE_BITS
}

/// Adds pages, if that leaves no more than `most`.
fn add_below(count: &AtomicU64, pages: u64, most: u64) -> bool {
    change(count, |old| {
        old.checked_add(pages).filter(|&new| new <= most)
    })
}

/// Changes a word to what `new` makes of it, in one step. False if that is nothing.
fn change(word: &AtomicU64, new: impl Fn(u64) -> Option<u64>) -> bool {
    let mut old = word.load(Ordering::Relaxed);
    while let Some(next) = new(old) {
        match word.compare_exchange_weak(old, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => old = now,
        }
    }
    false
}

impl Commit {
    fn new(mode: CommitMode, (frames, shift): (u64, u32), cpus: usize, groups: bool) -> Commit {
        let reserve = |bytes: u64| (bytes >> shift).min(frames / RESERVE_SHARE);
        let group = |_| {
            CachePadded(CommitGroup {
                word: AtomicU64::new(0),
                limit: AtomicU64::new(u64::MAX),
            })
        };
        Commit {
            mode: AtomicU32::new(mode as u32),
            most: AtomicU64::new(frames / 2),
            admin_reserve: AtomicU64::new(reserve(ADMIN_RESERVE)),
            user_reserve: AtomicU64::new(reserve(USER_RESERVE)),
            swap: AtomicU64::new(0),
            memory: frames,
            cpus: cpus as u64,
            total: CachePadded::default(),
            groups: groups.then(|| (0..GroupId::MOST).map(group).collect()),
            stocks: PerCpu::new(cpus, |_| AtomicU64::new(0)),
        }
    }

    fn is(&self, mode: CommitMode) -> bool {
        self.mode.load(Ordering::Relaxed) == mode as u32
    }

    /// Whether memory that asks for it is not charged.
    pub(crate) fn may_be_unreserved(&self) -> bool {
        !self.is(CommitMode::Never)
    }

    /// Changes what is refused.
    pub(crate) fn set_policy(&self, policy: CommitPolicy) {
        let mode = match policy {
            CommitPolicy::Heuristic => CommitMode::Heuristic,
            CommitPolicy::Always => CommitMode::Always,
            CommitPolicy::Never(limits) => {
                let most = match limits.most {
                    CommitShare::Percent(percent) => {
                        let hundredths = u128::from(self.memory) * u128::from(percent) / 100;
                        u64::try_from(hundredths).unwrap_or(u64::MAX)
                    }
                    CommitShare::Pages(pages) => pages,
                };
                self.most.store(most, Ordering::Relaxed);
                (self.admin_reserve).store(limits.admin_reserve, Ordering::Relaxed);
                (self.user_reserve).store(limits.user_reserve, Ordering::Relaxed);
                CommitMode::Never
            }
        };
        self.mode.store(mode as u32, Ordering::Release);
        self.take_stocks(None);
    }

    /// Swap areas have so many slots.
    pub(crate) fn set_swap(&self, slots: u64) {
        self.swap.store(slots, Ordering::Relaxed);
    }

    fn limit(&self) -> u64 {
        let swap = self.swap.load(Ordering::Relaxed);
        self.most.load(Ordering::Relaxed).saturating_add(swap)
    }

    /// What of the limit is not for a space with so many pages.
    pub(crate) fn reserve(&self, is_admin: bool, pages: impl FnOnce() -> u64) -> u64 {
        if !self.is(CommitMode::Never) {
            return 0;
        }
        let admin = match is_admin {
            true => 0,
            false => self.admin_reserve.load(Ordering::Relaxed),
        };
        let user = self.user_reserve.load(Ordering::Relaxed);
        admin.saturating_add(user.min(pages() / RESERVE_SHARE))
    }

    fn group(&self, id: GroupId) -> Option<&CommitGroup> {
        match id {
            GroupId::ROOT => None,
            _ => Some(&self.groups.as_ref()?[id.place()].0),
        }
    }

    /// Most that is charged in all, and to a group, while pages are kept in stock.
    fn stock_bounds(&self, group: Option<&CommitGroup>) -> (u64, u64, u64) {
        let all = match self.is(CommitMode::Never) {
            true => {
                let reserves = [&self.admin_reserve, &self.user_reserve];
                let reserves = reserves.map(|word| word.load(Ordering::Relaxed));
                (self.limit()).saturating_sub(reserves[0].saturating_add(reserves[1]))
            }
            false => u64::MAX,
        };
        let own = group.map_or(u64::MAX, |group| group.limit.load(Ordering::Relaxed));
        let batch = (all.min(own) / (BATCH_SHARE * self.cpus)).min(BATCH);
        // Every CPU may have two batches.
        let margin = 2 * batch * self.cpus;
        (
            all.saturating_sub(margin),
            own.saturating_sub(margin),
            batch,
        )
    }

    /// Charges pages. False if that is refused.
    pub(crate) fn charge(&self, pin: &Pin<'_>, who: Committer, pages: u64) -> bool {
        if pages == 0 {
            return true;
        }
        let most = match self.mode.load(Ordering::Relaxed) {
            mode if mode == CommitMode::Never as u32 => self.limit().saturating_sub(who.reserve),
            mode if mode == CommitMode::Heuristic as u32 => {
                let swap = self.swap.load(Ordering::Relaxed);
                if pages > self.memory.saturating_add(swap) {
                    return false;
                }
                u64::MAX
            }
            _ => u64::MAX,
        };
        let stock = self.stocks.get(pin);
        let place = who.group.place();
        let is_enough = |word| place_in(word) == place && pages_in(word) >= pages;
        let take = |word| is_enough(word).then(|| word - pages);
        // A stock that was filled under another limit may hide that this one is exceeded.
        if self.total.load(Ordering::Relaxed) <= most && change(stock, take) {
            return true;
        }
        self.give_up(stock);
        let group = self.group(who.group);
        let (all, own, batch) = self.stock_bounds(group);
        if pages <= BATCH && batch > 0 && self.take(who.group, pages + batch, (all.min(most), own))
        {
            stock.store(stock_of(place, batch), Ordering::Release);
            return true;
        }
        let bounds = || {
            (
                most,
                group.map_or(u64::MAX, |group| group.limit.load(Ordering::Relaxed)),
            )
        };
        if self.take(who.group, pages, bounds()) {
            return true;
        }
        self.take_stocks(None);
        self.take(who.group, pages, bounds())
    }

    /// Charges pages to the memory and a group, if neither has more than is said then.
    fn take(&self, id: GroupId, pages: u64, (all, own): (u64, u64)) -> bool {
        if !add_below(&self.total, pages, all) {
            return false;
        }
        let Some(group) = self.group(id) else {
            return true;
        };
        let generation = empty_of(id);
        let add = |word: u64| {
            let new = pages_in(word).checked_add(pages)?;
            // The word has room for fewer pages than a number has.
            let fits = new <= own && new <= pages_in(u64::MAX);
            (word - pages_in(word) == generation && fits).then_some(generation | new)
        };
        let taken = change(&group.word, add);
        if !taken {
            self.total.fetch_sub(pages, Ordering::AcqRel);
        }
        taken
    }

    /// Charges a group, and nobody else, for pages, whatever its limit is (or, wrapping, takes a
    /// charge back). Nothing happens if it has ended.
    fn add_to_group(&self, id: GroupId, pages: u64) {
        let Some(group) = self.group(id) else {
            return;
        };
        let generation = empty_of(id);
        let add = |word: u64| {
            let new = pages_in(pages_in(word).wrapping_add(pages));
            (word - pages_in(word) == generation).then_some(generation | new)
        };
        change(&group.word, add);
    }

    /// The group, or the root in place of one that has ended.
    pub(crate) fn if_there(&self, id: GroupId) -> GroupId {
        let is_there = self.group(id).is_some_and(|group| {
            let word = group.word.load(Ordering::Acquire);
            word - pages_in(word) == empty_of(id)
        });
        if is_there { id } else { GroupId::ROOT }
    }

    /// Nobody is promised these pages any more.
    pub(crate) fn put(&self, id: GroupId, pages: u64) {
        self.add_to_group(id, pages.wrapping_neg());
        self.total.fetch_sub(pages, Ordering::AcqRel);
    }

    /// The same by way of the CPU's stock. The group has not ended.
    pub(crate) fn uncharge(&self, pin: &Pin<'_>, id: GroupId, pages: u64) {
        let stock = self.stocks.get(pin);
        let (all, own, batch) = self.stock_bounds(self.group(id));
        let word = stock.load(Ordering::Acquire);
        let has = pages_in(word);
        let charged = self
            .group(id)
            .map_or(0, |group| pages_in(group.word.load(Ordering::Relaxed)));
        let is_own = has == 0 || place_in(word) == id.place();
        let keeps = is_own
            && has.saturating_add(pages) <= 2 * batch
            && self.total.load(Ordering::Relaxed) <= all
            && charged <= own;
        let new = stock_of(id.place(), has.saturating_add(pages));
        let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        if !keeps || stock.compare_exchange(word, new, order, relaxed).is_err() {
            self.put(id, pages);
        }
    }

    /// Gives what is in a stock back.
    fn give_up(&self, stock: &AtomicU64) {
        let word = stock.swap(0, Ordering::AcqRel);
        let (place, pages) = (place_in(word), pages_in(word));
        if pages == 0 {
            return;
        }
        if place != 0
            && let Some(groups) = &self.groups
        {
            // Its group has not ended: that takes its stocks first.
            groups[place].word.fetch_sub(pages, Ordering::AcqRel);
        }
        self.total.fetch_sub(pages, Ordering::AcqRel);
    }

    /// Takes back what CPUs have in stock, of one group or of all.
    fn take_stocks(&self, place: Option<usize>) {
        for stock in self.stocks.iter() {
            let word = stock.load(Ordering::Acquire);
            if place.is_none_or(|place| place == place_in(word)) {
                self.give_up(stock);
            }
        }
    }

    /// A space with so many pages charged goes from one group to another. Neither ends meanwhile.
    pub(crate) fn move_charge(&self, from: GroupId, to: GroupId, pages: u64) {
        self.add_to_group(to, pages);
        self.add_to_group(from, pages.wrapping_neg());
    }

    /// A group begins, without a limit.
    pub(crate) fn begin_group(&self, id: GroupId) {
        if let Some(group) = self.group(id) {
            group.limit.store(u64::MAX, Ordering::Relaxed);
            group.word.store(empty_of(id), Ordering::Release);
        }
    }

    /// A group without spaces ends: what it is charged for is charged to no group any more.
    pub(crate) fn end_group(&self, id: GroupId) {
        if let Some(group) = self.group(id) {
            self.take_stocks(Some(id.place()));
            // No group has this generation.
            group.word.store(0, Ordering::Release);
        }
    }

    /// Gives a group another limit.
    pub(crate) fn set_group_limit(&self, id: GroupId, limit: u64) {
        if let Some(group) = self.group(id) {
            group.limit.store(limit, Ordering::Release);
            self.take_stocks(Some(id.place()));
        }
    }

    /// What a group is charged for, and most of it. Approximate while CPUs are at work.
    pub(crate) fn of_group(&self, id: GroupId) -> (u64, u64) {
        let Some(group) = self.group(id) else {
            return (self.stats().committed, u64::MAX);
        };
        let charged = pages_in(group.word.load(Ordering::Relaxed));
        let limit = group.limit.load(Ordering::Relaxed);
        (
            charged.saturating_sub(self.stocked(Some(id.place()))),
            limit,
        )
    }

    fn stocked(&self, place: Option<usize>) -> u64 {
        let words = self.stocks.iter().map(|word| word.load(Ordering::Relaxed));
        let own = words.filter(|&word| place.is_none_or(|place| place == place_in(word)));
        own.map(pages_in).sum()
    }

    pub(crate) fn stats(&self) -> CommitStats {
        let stocked = self.stocked(None);
        CommitStats {
            committed: self.total.load(Ordering::Relaxed).saturating_sub(stocked),
            limit: self.limit(),
            stocked,
        }
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Keeps account of what is promised from now on. Groups, if there are any, are there.
    pub(crate) fn keep_commit(&mut self, mode: CommitMode) {
        let frames = (self.frame_count() as u64, self.frame_shift());
        let (cpus, groups) = (self.platform.cpus(), self.groups.is_some());
        self.commit = Some(Box::new(Commit::new(mode, frames, cpus, groups)));
    }

    /// What is promised, if that is counted.
    #[inline]
    pub(crate) fn commit(&self) -> Option<&Commit> {
        match P::PARTS.commit {
            true => self.commit.as_deref(),
            false => None,
        }
    }
}
