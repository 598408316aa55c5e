//! One page table under its lock: the only way to change an entry.
//!
//! Each table has a spin lock in its frame record, in whose place that of its whole space
//! can be taken ([`SpaceLock`]), and a count of its live
//! (non-empty) entries that is exact under the lock. Hardware sets accessed
//! and dirty marks without the lock, so an entry that hardware may be using is
//! changed by an atomic exchange; one that hardware cannot be using
//! ([`Users::None`]) by plain stores. Readers without the lock see each
//! entry whole.

use core::ptr::NonNull;

use super::format::{Format, Marks};
use super::pte::PteRef;
use super::reach::{
    OwnerOf, SlotOf, are_zero, close, open_locked, owner_of, uses_windows, words_at,
};
use crate::addr::{Pfn, Vpn};
use crate::frame::{Owner, PhysicalMemory, TableFlags, TableFrame};
use crate::platform::Machine;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{BitGuard, BitLock, Held, NestedLock, Pin, bytes, set_beside};

/// Entries of a cache line of 64 bytes.
pub(crate) const LINE_ENTRIES: usize = 8;

/// Who may be walking the table while it is edited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Users {
    /// Hardware on some CPU: old entries are fetched atomically.
    Hardware,
    /// Nobody: the space is not loaded on any CPU.
    None,
}

/// The lock of all tables of a space, if it has one: it is then taken in place of those of
/// the tables, and everybody takes it. Whoever locks several tables has it several times.
pub type SpaceLock<'a> = Option<&'a NestedLock>;

/// A locked page table. If it lies in high memory, a window of the CPU is open on it.
///
/// It is moved on every fault, so its fields are few, and fill their words.
pub struct LockedTable<'a, F: Format> {
    table: Pfn,
    /// The window, which is closed before the lock is given up.
    slot: SlotOf<F>,
    owner: OwnerOf<'a, F>,
    frame: TableFrame<'a>,
    /// Where the entries are while the window is open.
    address: NonNull<u8>,
    /// What is held in place of the table's own lock, a bit of `frame`'s flag word.
    whole: SpaceLock<'a>,
    _held: Held<'a>,
}

impl<F: Format> Drop for LockedTable<'_, F> {
    #[inline]
    fn drop(&mut self) {
        close::<F>(self.owner, self.slot);
        match self.whole {
            None => self.frame.flag_word().unlock_bit(TableFlags::LOCK.bit()),
            Some(whole) => whole.release(),
        }
    }
}

impl<'a, F: Format> LockedTable<'a, F> {
    /// Locks `table`, or the one that its entries were moved to; `None` if it was
    /// unlinked in the meantime. The caller is pinned since before it found the table.
    /// `whole` is the lock of the space's tables, if they have one together.
    #[inline(always)]
    pub(crate) fn lock<P: Machine>(
        memory: &'a PhysicalMemory<P>,
        pin: &'a Pin<'_>,
        table: Pfn,
        whole: SpaceLock<'a>,
    ) -> Option<Self> {
        let frame = memory.frame(table).table();
        if let Some(whole) = whole {
            whole.acquire(pin);
            return Self::under(memory, pin, (table, frame), whole);
        }
        let guard = frame.flag_word().lock_bit(TableFlags::LOCK.bit(), pin);
        if Self::is_dead(&guard) {
            drop(guard);
            return match uses_windows::<F>() {
                true => Self::lock_successor(memory, pin, frame, None),
                false => None,
            };
        }
        guard.hand_over();
        Some(Self::locked(memory, pin, (table, frame), None))
    }

    /// [`LockedTable::lock`] if that needs no waiting. `Err` if it does.
    #[inline]
    pub(crate) fn try_lock<P: Machine>(
        memory: &'a PhysicalMemory<P>,
        pin: &'a Pin<'_>,
        table: Pfn,
        whole: SpaceLock<'a>,
    ) -> Result<Option<Self>, super::Contended> {
        let frame = memory.frame(table).table();
        if let Some(whole) = whole {
            return match whole.try_acquire(pin) {
                true => Ok(Self::under(memory, pin, (table, frame), whole)),
                false => Err(super::Contended),
            };
        }
        let guard = frame
            .flag_word()
            .try_lock_bit(TableFlags::LOCK.bit(), pin)
            .ok_or(super::Contended)?;
        if Self::is_dead(&guard) {
            drop(guard);
            return match uses_windows::<F>() {
                true => Self::try_lock_successor(memory, pin, frame),
                false => Ok(None),
            };
        }
        guard.hand_over();
        Ok(Some(Self::locked(memory, pin, (table, frame), None)))
    }

    /// The table, of a space whose lock has just been taken; `None`, and the lock given up,
    /// if it was unlinked in the meantime.
    #[cold]
    #[inline(never)]
    fn under<P: Machine>(
        memory: &'a PhysicalMemory<P>,
        pin: &'a Pin<'_>,
        (table, frame): (Pfn, TableFrame<'a>),
        whole: &'a NestedLock,
    ) -> Option<Self> {
        if frame.has(TableFlags::DEAD) {
            whole.release();
            return match uses_windows::<F>() {
                true => Self::lock_successor(memory, pin, frame, Some(whole)),
                false => None,
            };
        }
        Some(Self::locked(memory, pin, (table, frame), Some(whole)))
    }

    /// The table that has the entries of one that is dead, locked, if there is one. A call
    /// of its own, so that [`LockedTable::lock`] is none.
    #[cold]
    #[inline(never)]
    fn lock_successor<P: Machine>(
        memory: &'a PhysicalMemory<P>,
        pin: &'a Pin<'_>,
        dead: TableFrame<'_>,
        whole: SpaceLock<'a>,
    ) -> Option<Self> {
        Self::lock(memory, pin, Self::moved_to(dead)?, whole)
    }

    /// The same if that needs no waiting.
    #[cold]
    #[inline(never)]
    fn try_lock_successor<P: Machine>(
        memory: &'a PhysicalMemory<P>,
        pin: &'a Pin<'_>,
        dead: TableFrame<'_>,
    ) -> Result<Option<Self>, super::Contended> {
        match Self::moved_to(dead) {
            Some(table) => Self::try_lock(memory, pin, table, None),
            None => Ok(None),
        }
    }

    /// Where the entries of a dead table went, if they went anywhere: formats without
    /// windows have no reason to move any. Whoever is pinned finds the answer still there.
    fn moved_to(dead: TableFrame<'_>) -> Option<Pfn> {
        dead.has(TableFlags::MOVED).then(|| dead.moved_to())
    }

    /// Whether the table was unlinked before it was locked.
    #[inline]
    fn is_dead(guard: &BitGuard<'_, AtomicU32>) -> bool {
        guard.value() & TableFlags::DEAD.bits() != 0
    }

    /// The table, whose lock, or `whole`, has been taken under the pin.
    #[inline]
    fn locked<P: Machine>(
        memory: &'a PhysicalMemory<P>,
        pin: &'a Pin<'_>,
        (table, frame): (Pfn, TableFrame<'a>),
        whole: SpaceLock<'a>,
    ) -> Self {
        let (address, slot) = open_locked::<F, P>(memory, pin, table);
        LockedTable {
            table,
            slot,
            owner: owner_of::<F>(pin),
            frame,
            address,
            whole,
            _held: Held::by(pin),
        }
    }

    /// The entries. They are not handed out, because the window may close.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: a locked table is one until its epoch has passed, which the pin of the
        // guard keeps from happening; it is reached at this address until the window is
        // closed, and it is open as long as this borrow.
        unsafe { words_at::<F>(self.address) }
    }

    /// The table.
    #[inline]
    pub fn table(&self) -> Pfn {
        self.table
    }

    /// Level of the table's entries.
    #[inline]
    pub fn level(&self) -> u32 {
        self.frame.level()
    }

    /// Handle of the space the table belongs to.
    #[inline]
    pub fn owner(&self) -> u32 {
        self.frame.owner()
    }

    /// Entries that are not empty.
    #[inline]
    pub(crate) fn live(&self) -> u32 {
        self.frame.live()
    }

    /// Names the entry at `index`.
    #[inline]
    pub(crate) fn pte(&self, index: usize) -> PteRef {
        PteRef {
            table: self.table,
            index: index as u16,
        }
    }

    /// First page that the table covers.
    #[inline]
    pub(super) fn base(&self) -> Vpn {
        self.frame.base()
    }

    /// First page that the entry at `index` covers.
    #[inline]
    pub fn page(&self, index: usize) -> Vpn {
        self.frame
            .base()
            .offset(index as u64 * F::pages_at(self.level()))
    }

    /// The entry at `index`.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        F::seen(self.words()[index].load(Ordering::Relaxed), index)
    }

    /// Whether `count` entries from `first` on are empty.
    pub(crate) fn are_empty(&self, first: usize, count: usize) -> bool {
        are_zero(&self.words()[first..first + count])
    }

    /// Fetches the next line of entries: faults mostly come in ascending order,
    /// and a table that was kept all zero is in no cache when it is used again.
    #[inline]
    pub(crate) fn fetch_behind(&self, index: usize) {
        self.fetch(index + LINE_ENTRIES);
    }

    /// The same behind a row of `count` entries that came at once, for the next such row.
    #[inline]
    pub(crate) fn fetch_row_behind(&self, index: usize, count: usize) {
        for line in (0..count).step_by(LINE_ENTRIES) {
            self.fetch(index + count + line);
        }
    }

    #[inline]
    fn fetch(&self, index: usize) {
        if let Some(word) = self.words().get(index) {
            bytes::prefetch(word);
        }
    }

    /// Fills an empty entry. The caller counts it with [`LockedTable::count_made`],
    /// once for all it fills.
    #[inline]
    pub fn fill(&self, index: usize, entry: u64) {
        debug_assert!(self.load(index) == 0, "entry filled twice");
        self.words()[index].store(F::stored(entry), Ordering::Release);
    }

    /// [`LockedTable::fill`] of `count` entries from `first` on, with what `entry` makes of
    /// their place in the row.
    #[inline]
    pub(crate) fn fill_row(&self, first: usize, count: usize, entry: impl Fn(usize) -> u64) {
        debug_assert!(self.are_empty(first, count), "entry filled twice");
        for (step, word) in self.words()[first..first + count].iter().enumerate() {
            word.store(F::stored(entry(step)), Ordering::Release);
        }
    }

    /// Counts entries filled.
    #[inline]
    pub fn count_made(&self, count: u32) {
        self.frame.add_live(count);
    }

    /// Empties a live entry, which is none of a contiguous run, and returns what it held. The
    /// caller counts it with [`LockedTable::count_cleared`].
    #[inline]
    pub fn clear(&self, index: usize, users: Users) -> u64 {
        let old = self.clear_any(index, users);
        debug_assert!(!F::is_contiguous(old), "an entry of a run cleared alone");
        old
    }

    /// The same of an entry that may be one of a contiguous run, all of which is cleared before
    /// the table is unlocked, and flushed.
    #[inline]
    pub(crate) fn clear_any(&self, index: usize, users: Users) -> u64 {
        match users {
            Users::Hardware => F::seen(self.words()[index].swap(0, Ordering::AcqRel), index),
            Users::None => {
                let old = self.load(index);
                self.words()[index].store(0, Ordering::Relaxed);
                old
            }
        }
    }

    /// Empties all entries of a full table that no CPU walks, and counts them.
    pub(crate) fn clear_all(&self) {
        for word in self.words() {
            word.store(0, Ordering::Relaxed);
        }
        self.count_cleared(F::ENTRIES as u32);
    }

    /// Counts entries cleared; returns how many are live.
    #[inline]
    pub fn count_cleared(&self, count: u32) -> u32 {
        self.frame.sub_live(count)
    }

    /// Rewrites a live leaf, which is none of a contiguous run, keeping marks that hardware
    /// sets meanwhile. Returns the old and the new entry.
    #[inline]
    pub fn update(&self, index: usize, users: Users, change: impl Fn(u64) -> u64) -> (u64, u64) {
        let (old, new) = self.update_any(index, users, change);
        debug_assert!(!F::is_contiguous(old), "an entry of a run changed alone");
        (old, new)
    }

    /// Sets the marks of a live leaf that hardware sets for an access: of one entry alone, also of
    /// a contiguous run, and only if they are missing.
    pub(crate) fn mark_used(&self, index: usize, writes: bool) {
        let marks = F::marks(self.load(index));
        if marks.accessed && (marks.dirty || !writes) {
            return;
        }
        self.update_any(index, Users::Hardware, |entry| {
            let dirty = F::marks(entry).dirty || writes;
            let marks = Marks {
                accessed: true,
                dirty,
            };
            F::with_marks(entry, marks)
        });
    }

    /// Clears the accessed mark of a live leaf, which is none of a contiguous run; returns whether
    /// it was set.
    pub(crate) fn take_accessed(&self, index: usize) -> bool {
        // Most entries have not been used since the last time, and an atomic
        // update would cost more than all the rest.
        if !F::marks(self.load(index)).accessed {
            return false;
        }
        let (old, _) = self.update(index, Users::Hardware, |entry| {
            let marks = F::marks(entry);
            F::with_marks(
                entry,
                Marks {
                    accessed: false,
                    ..marks
                },
            )
        });
        F::marks(old).accessed
    }

    /// [`LockedTable::update`] of a leaf that may be one of a contiguous run.
    #[inline]
    pub(super) fn update_any(
        &self,
        index: usize,
        users: Users,
        change: impl Fn(u64) -> u64,
    ) -> (u64, u64) {
        let word = &self.words()[index];
        let mut found = word.load(Ordering::Relaxed);
        if users == Users::None {
            let old = F::seen(found, index);
            let new = change(old);
            word.store(F::stored(new), Ordering::Release);
            return (old, new);
        }
        loop {
            let old = F::seen(found, index);
            let new = change(old);
            let stored = F::stored(new);
            match word.compare_exchange_weak(found, stored, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return (old, new),
                Err(now) => found = now,
            }
        }
    }

    /// Ends the reservation for the pages of the table, which is one of level 1, if it has
    /// one.
    pub(crate) fn end_reservation<P: Machine>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) {
        if let Some(first) = self.frame.reserved() {
            self.frame.set_reserved(None);
            memory.end_run(pin, first, Owner::Table(self.table));
        }
    }

    /// How many walks in a row found no entry of the table used, as far as that matters.
    pub(super) fn idle(&self) -> u32 {
        self.frame.idle()
    }

    /// Says how many walks in a row found no entry of the table used.
    pub(super) fn set_idle(&self, times: u32) {
        self.frame.set_idle(times);
    }

    /// Keeps the table linked even if it is empty, until [`LockedTable::release`]:
    /// the caller is about to move entries there. One caller at a time, under the
    /// lock of the space.
    pub fn keep(&self) {
        self.frame.set(TableFlags::KEPT);
    }

    /// Ends [`LockedTable::keep`].
    pub fn release(&self) {
        self.frame.clear(TableFlags::KEPT);
    }

    /// Whether somebody is about to move or make entries there ([`LockedTable::keep`]).
    pub(crate) fn is_kept(&self) -> bool {
        self.frame.has(TableFlags::KEPT)
    }

    /// Whether the table may be unlinked, as it holds nothing and nothing is
    /// about to move there.
    #[inline]
    pub(super) fn is_unused(&self) -> bool {
        self.live() == 0 && !self.is_kept()
    }

    /// Marks the table unlinked, so that whoever locks it next looks again. The
    /// flags of a linked table change under its lock only.
    #[inline]
    pub(super) fn mark_dead(&self) {
        set_beside(self.frame.flag_word(), TableFlags::DEAD.bits());
    }

    /// Marks the table, which is empty, unlinked in favour of `to`, which has its entries:
    /// whoever locks it next gets that one.
    pub(super) fn mark_moved(&self, to: &LockedTable<'_, F>) {
        if self.is_kept() {
            to.keep();
        }
        self.frame.set_moved_to(to.table);
        set_beside(
            self.frame.flag_word(),
            TableFlags::DEAD.or(TableFlags::MOVED).bits(),
        );
    }
}
