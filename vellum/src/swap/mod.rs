//! Swap: private pages kept outside of memory, in numbered slots.
//!
//! An area is a backing store of the platform, page by page ([`SwapArea`]). Entries of page
//! tables name slots ([`Swapped`]); each slot counts the entries that name it. A slot whose
//! page is in memory names the frame: together these words are the **swap cache**.
//!
//! # Protocol
//! The swap cache is the only way in and out. What a slot's words say changes under the
//! lock of its cluster, and no path takes a page from the store past them. So of two faults
//! that both saw one entry only one gets the page, even if the slot has been given up and
//! taken again in between:
//!
//! * **Out.** `Swap::begin_out` takes a slot for a page whose page lock the caller has,
//!   and puts the page into the cache, *busy*. Then entries take the slot's name one by one,
//!   each counted under the lock of its table (`Swap::add_entry`), CPUs are flushed, and
//!   the page is written. `Swap::end_out` takes it out of the cache, or leaves it there
//!   for good if it could not be written.
//! * **In.** A fault looks the slot up under the cluster's lock, which gives it a reference
//!   (`Swap::find`). If the page is only in the store, a frame enters the cache, busy and
//!   with its page lock held, is filled by a caller who holds no pin, and stays
//!   (`Swap::begin_in`, `Swap::end_in`). Whoever then holds the lock of a table with an
//!   entry of the slot takes the page out of the cache for that entry (`Swap::take`).
//! * **Gone.** An entry that is cleared is no longer counted (`Swap::drop_entry`). The last
//!   one gives up the slot with its frame, or leaves that to whoever keeps it busy.
//!
//! # What holds
//! 1. A slot is in use as long as it is counted or busy. While a table with an entry that
//!    names a slot is locked, the slot keeps its content.
//! 2. A page of the cache does not change: no entry lets anybody store to it. It was unmapped
//!    and flushed before it was written, or is only read where pins kept it mapped; a page
//!    read in is mapped after it has left the cache.
//! 3. A page that was read in leaves the cache for one entry, as a private page of its own.
//!    Entries of other spaces that name the slot read it again: what fork shared is not
//!    shared after it was in swap. So a page read in is new to reverse mapping, whatever the
//!    design, and a store to it needs no copy. Of a page that could not be written, all but
//!    the last get copies, and the last gets the frame if nobody has kept it mapped: it had
//!    no mapping left, and is as new.
//! 4. An entry is marked exclusive if its slot was never named by another. Fork clears the
//!    mark in both spaces.
//!
//! # Counts
//! A slot has a count of 24 bits, as the record of a frame has for its mappings, and it
//! cannot be exceeded: whoever would count more is refused ([`MAX_ENTRIES`]), and fork fails
//! as it does for a page with too many mappings. Counts that saturate would leak slots, and
//! those that overflow into a second counter need memory when there is none.
//!
//! # Locks
//! A cluster's lock comes after all locks of tables and of reverse mapping, and before that
//! of its area's free slots, which guards only itself.

mod area;
mod cache;
mod cluster;
mod report;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::cmp::Reverse;
use core::fmt;
use core::iter::successors;

pub use area::SwapArea;
pub(crate) use cache::{FromSwap, GROUP, InSwap};
pub use cluster::MAX_ENTRIES;
pub(crate) use report::Tally;
pub use report::{SwapAreaStats, SwapStats};

use self::area::Area;
use crate::addr::Pfn;
use crate::platform::{Platform, SlotError};
use crate::sync::OnceBox;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, spin_hint};
use crate::table::Swapped;

/// Why an area could not be taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapOffError {
    /// No area on this store is in use.
    NoArea,
    /// There is not enough memory for what the area holds.
    OutOfMemory,
    /// The store did not give a page.
    Io,
    /// Somebody kept a page on its way to or from the area.
    InUse,
}

impl fmt::Display for SwapOffError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SwapOffError::NoArea => "no swap area on this store is in use",
            SwapOffError::OutOfMemory => "there is not enough memory for what the swap area holds",
            SwapOffError::Io => "the swap area did not give a page",
            SwapOffError::InUse => "a page stayed on its way to or from the swap area",
        })
    }
}

impl core::error::Error for SwapOffError {}

/// Most areas that a manager can have, those among them that are off.
pub const MAX_AREAS: usize = 32;

/// Bits of a slot's number that say where in its area it is.
const OFFSET_BITS: u32 = Swapped::SLOT_BITS - MAX_AREAS.trailing_zeros();

/// Why a page was not written to swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapOutError {
    /// There is no area, or no free slot. The page is as it was.
    NoSlot,
    /// The page is no private page by itself, is locked or pinned, or somebody else has a
    /// reference to it. Some of its entries may name a slot now; the others still map it.
    InUse,
    /// The area did not take the page. Nothing is lost: the page stays in memory until its
    /// owners use it again or end; a single owner needs no memory for that.
    Io,
}

impl fmt::Display for SwapOutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SwapOutError::NoSlot => "there is no free swap slot",
            SwapOutError::InUse => "the page is in use",
            SwapOutError::Io => "the swap area did not take the page",
        })
    }
}

impl core::error::Error for SwapOutError {}

/// Why an area could not be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapOnError {
    /// The platform leaves swap out ([`Machine::PARTS`](crate::platform::Machine::PARTS)).
    LeftOut,
    /// There are [`MAX_AREAS`] areas.
    TooMany,
    /// The area has no slots, or more than a slot's number can tell apart.
    BadSize,
    /// The store is an area already, in use or on its way out.
    InUse,
}

impl fmt::Display for SwapOnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwapOnError::LeftOut => f.write_str("the platform leaves swap out"),
            SwapOnError::TooMany => write!(f, "there are {MAX_AREAS} swap areas already"),
            SwapOnError::BadSize => {
                write!(f, "a swap area has 1 to {} slots", Swap::MAX_SLOTS)
            }
            SwapOnError::InUse => f.write_str("the store is a swap area already"),
        }
    }
}

impl core::error::Error for SwapOnError {}

/// The swap areas of a manager, and the swap cache.
pub struct Swap {
    /// In which order they were added, which is the number that an entry has of each.
    areas: [OnceBox<Area>; MAX_AREAS],
    /// 1 while somebody adds one.
    adding: AtomicU32,
    events: Events,
}

/// Event counts. Swapping costs a transfer each time: one line for all CPUs will do.
#[derive(Default)]
struct Events {
    outs: AtomicU64,
    ins: AtomicU64,
    copies: AtomicU64,
    ahead: AtomicU64,
    ahead_used: AtomicU64,
    write_errors: AtomicU64,
    no_room: AtomicU64,
    read_errors: AtomicU64,
}

fn bump(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Swap {
    /// Most slots of an area. The number that is left says that an entry is a guard.
    pub const MAX_SLOTS: u64 = (1 << OFFSET_BITS) - 1;

    /// No areas. (Not inlined: the manager's creation would have it on its stack.)
    #[inline(never)]
    pub(crate) fn boxed() -> Box<Swap> {
        Box::new(Swap {
            areas: [(); MAX_AREAS].map(|()| OnceBox::default()),
            adding: AtomicU32::new(0),
            events: Events::default(),
        })
    }

    /// The areas, by number.
    fn areas(&self) -> impl Iterator<Item = &Area> {
        self.areas.iter().map_while(OnceBox::get)
    }

    /// The area with a number that a slot has.
    fn area(&self, number: usize) -> &Area {
        match self.areas[number].get() {
            Some(area) => area,
            None => unreachable!("a slot of an area that was never added"),
        }
    }

    /// Whether there has been an area.
    #[inline]
    pub(crate) fn has_areas(&self) -> bool {
        self.areas[0].get().is_some()
    }

    /// The areas with their numbers, by falling priority. Of areas alike in priority the first
    /// that was added comes first. Each is looked for when it is asked for: mostly the first will do.
    fn by_priority(&self) -> impl Iterator<Item = (usize, &Area)> {
        let after = |last| {
            let areas = self.areas().enumerate();
            let ranks = areas.map(|(number, area)| (Reverse(area.priority()), number));
            ranks.filter(|rank| Some(*rank) > last).min()
        };
        let ranks = successors(after(None), move |rank| after(Some(*rank)));
        ranks.map(|(_, number)| (number, self.area(number)))
    }

    /// Adds an area, or uses one again that is off. Takes no pin: the caller may be on no CPU yet.
    ///
    /// # Errors
    /// [`SwapOnError`].
    pub(crate) fn add_area(&self, about: SwapArea) -> Result<(), SwapOnError> {
        if about.slots == 0 || about.slots > Self::MAX_SLOTS {
            return Err(SwapOnError::BadSize);
        }
        if self.alone(|| self.use_again(about)) {
            return Ok(());
        }
        // Made before the others are kept out: the global allocator may take its time.
        let mut new = Box::new(Area::new(about));
        self.alone(|| {
            if self.use_again(about) {
                return Ok(());
            }
            if self.areas().any(|area| area.holds(about.store)) {
                return Err(SwapOnError::InUse);
            }
            let last = self.areas().last();
            new.begin_at(last.map_or(0, |last| last.base() + last.slots()));
            match self.areas.get(self.areas().count()) {
                Some(place) if place.set(new) => Ok(()),
                _ => Err(SwapOnError::TooMany),
            }
        })
    }

    fn use_again(&self, about: SwapArea) -> bool {
        self.areas().any(|area| area.use_again(about))
    }

    /// Runs a short step of adding an area while nobody else does.
    fn alone<T>(&self, step: impl FnOnce() -> T) -> T {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        while (self.adding.compare_exchange(0, 1, order.0, order.1)).is_err() {
            spin_hint();
        }
        let result = step();
        self.adding.store(0, Ordering::Release);
        result
    }

    /// Slots of the areas that are not off.
    pub(crate) fn slots_in_use(&self) -> u64 {
        let areas = self.areas().filter(|area| !area.is_off());
        areas.map(Area::slots).sum()
    }

    /// Whether there is a free slot, and room for its page. It may be gone at once.
    pub(crate) fn can_swap(&self, platform: &impl Platform) -> bool {
        let can_take =
            |area: &Area| area.free() > 0 && !area.is_off() && platform.has_swap_room(area.store());
        self.areas().any(can_take)
    }

    /// Has no slot of the area on a store be taken any more. Returns which area it is.
    pub(crate) fn begin_off(&self, store: u64) -> Option<usize> {
        self.areas()
            .position(|area| area.store() == store && area.begin_off())
    }

    /// What [`Swap::begin_off`] began is done, or is given up and the area used on.
    pub(crate) fn end_off(&self, area: usize, done: bool) {
        self.area(area).end_off(done);
    }

    /// Whether no slot of an area is in use.
    pub(crate) fn is_empty(&self, area: usize) -> bool {
        let area = self.area(area);
        area.free() + area.bad() == area.slots()
    }

    /// Whether a slot is one of an area.
    pub(crate) fn is_of(&self, area: usize, slot: u64) -> bool {
        slot >> OFFSET_BITS == area as u64
    }

    /// Where a slot's page lies: the store, and the index there. `None` if a stale entry
    /// named a slot that never was.
    pub(crate) fn place(&self, slot: u64) -> Option<(u64, u64)> {
        let (area, offset) = self.area_of(slot)?;
        Some((area.store(), offset))
    }

    /// Writes a page to a slot. The caller may sleep.
    ///
    /// # Errors
    /// [`SlotError`] of the store, or if a stale entry named a slot that never was.
    pub(crate) fn write(
        &self,
        platform: &impl Platform,
        slot: u64,
        page: Pfn,
    ) -> Result<(), SlotError> {
        let (store, index) = self.place(slot).ok_or(SlotError::Io)?;
        platform.write_slot(store, index, page)
    }

    /// The slot's number counted on over all areas, in which order they were added: a small
    /// number, if areas are small.
    pub(crate) fn short(&self, slot: u64) -> Option<u64> {
        let (area, offset) = self.area_of(slot)?;
        Some(area.base() + offset)
    }

    /// The slot with a number from [`Swap::short`].
    pub(crate) fn long(&self, short: u64) -> u64 {
        let begun = self.areas().map(Area::base).enumerate();
        let area = begun.take_while(|(_, base)| *base <= short).last();
        let (area, base) = area.unwrap_or((0, 0));
        Self::number(area, short - base)
    }

    fn area_of(&self, slot: u64) -> Option<(&Area, u64)> {
        let area = self.areas.get((slot >> OFFSET_BITS) as usize)?.get()?;
        let offset = slot & Self::MAX_SLOTS;
        (offset < area.slots()).then_some((area, offset))
    }

    fn number(area: usize, offset: u64) -> u64 {
        (area as u64) << OFFSET_BITS | offset
    }
}
