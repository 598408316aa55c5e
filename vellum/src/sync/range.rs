//! A lock on ranges of one thing, whose waiters sleep.
//!
//! Ranges that do not overlap are held together, so that writers to different parts
//! of a file do not wait for each other. Whoever asks is given a place in a small
//! table, with a ticket, and waits until no range that overlaps has an older one:
//! the lock is fair, and a truncation is not kept waiting by writers that come
//! after it. (Linux has had such locks since 2013, for a process's mappings and
//! some file systems' inputs and outputs.)

use core::ops::Range;

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use super::{BitLock, Pin, WaitTable};
use crate::platform::Platform;

/// Ranges that are held or waited for at once; who finds no place waits for one.
const PLACES: usize = 8;

const LOCK_BIT: u32 = 0;
/// Somebody sleeps until a range is let go of.
const WAITERS: u32 = 1 << 1;
/// Bit of the first place in the word; the bits tell which are taken.
const FIRST_PLACE: u32 = 2;

#[derive(Debug, Default)]
struct Place {
    start: AtomicU64,
    end: AtomicU64,
    ticket: AtomicU32,
}

/// The lock. Taken unpinned, by a caller that holds no other range of it.
#[derive(Debug, Default)]
pub struct RangeLock {
    /// The lock of the table in a bit, who waits, and which places are taken.
    word: AtomicU32,
    next_ticket: AtomicU32,
    places: [Place; PLACES],
}

/// A range that is held; it must be given to [`RangeLock::unlock`].
#[must_use = "a range that is not let go of stays locked"]
#[derive(Debug)]
pub struct HeldRange(usize);

impl RangeLock {
    /// Takes `range`, when nobody holds a part of it. `pin` pins the caller's CPU
    /// for as long as its result lives.
    pub fn lock<'p, P: Platform>(
        &self,
        range: Range<u64>,
        waits: &WaitTable,
        platform: &P,
        pin: impl Fn() -> Pin<'p>,
    ) -> HeldRange {
        let mut place = None;
        if let Some(held) = self.enter(&mut place, &range, 0, &pin()) {
            return held;
        }
        loop {
            let mut held = None;
            let waiting = {
                let pin = pin();
                let task = platform.current_task();
                waits.prepare(self.key(), task, &pin, || {
                    held = self.enter(&mut place, &range, WAITERS, &pin);
                    held.is_none()
                })
            };
            match (waiting, held) {
                (Some(waiting), _) => waits.sleep(waiting, platform),
                (None, Some(held)) => return held,
                (None, None) => {}
            }
        }
    }

    /// Takes a place, if `place` is none yet, and with it the range, if no other is
    /// before it. Otherwise leaves the mark `waits`.
    fn enter(
        &self,
        place: &mut Option<usize>,
        range: &Range<u64>,
        waits: u32,
        pin: &Pin<'_>,
    ) -> Option<HeldRange> {
        let guard = self.word.lock_bit(LOCK_BIT, pin);
        let others = guard.value();
        if place.is_none() {
            *place = self.take_place(others, range);
        }
        let mine = place.filter(|&mine| self.is_oldest(others, mine));
        if mine.is_none() && waits != 0 {
            let word = self.word.load(Ordering::Relaxed);
            self.word.store(word | waits, Ordering::Relaxed);
        }
        mine.map(HeldRange)
    }

    /// A free place, now taken for `range`, under the lock of the table.
    fn take_place(&self, word: u32, range: &Range<u64>) -> Option<usize> {
        let free = (!(word >> FIRST_PLACE)).trailing_zeros() as usize;
        let place = self.places.get(free)?;
        let ticket = self.next_ticket.load(Ordering::Relaxed);
        self.next_ticket
            .store(ticket.wrapping_add(1), Ordering::Relaxed);
        place.ticket.store(ticket, Ordering::Relaxed);
        place.start.store(range.start, Ordering::Relaxed);
        place.end.store(range.end, Ordering::Relaxed);
        let taken = self.word.load(Ordering::Relaxed) | 1 << (FIRST_PLACE + free as u32);
        self.word.store(taken, Ordering::Relaxed);
        Some(free)
    }

    /// Whether no range that overlaps that of place `mine` has an older ticket, under
    /// the lock of the table.
    fn is_oldest(&self, word: u32, mine: usize) -> bool {
        let this = &self.places[mine];
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let ticket = |place: &Place| place.ticket.load(Ordering::Relaxed);
        (0..).zip(&self.places).all(|(number, other)| {
            let taken = word & 1 << (FIRST_PLACE + number as u32) != 0;
            number == mine
                || !taken
                || load(&other.end) <= load(&this.start)
                || load(&this.end) <= load(&other.start)
                || (ticket(this).wrapping_sub(ticket(other)) as i32) < 0
        })
    }

    /// Lets go of a range.
    pub fn unlock<P: Platform>(
        &self,
        held: HeldRange,
        waits: &WaitTable,
        platform: &P,
        pin: &Pin<'_>,
    ) {
        let word = {
            let guard = self.word.lock_bit(LOCK_BIT, pin);
            let left =
                self.word.load(Ordering::Relaxed) & !(WAITERS | 1 << (FIRST_PLACE + held.0 as u32));
            self.word.store(left, Ordering::Relaxed);
            guard.value()
        };
        if word & WAITERS != 0 {
            waits.wake(self.key(), platform, pin);
        }
    }

    /// Whether somebody holds a range or waits for one.
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) >> FIRST_PLACE != 0
    }

    fn key(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }
}
