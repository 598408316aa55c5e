//! A lock on ranges of one thing, whose waiters sleep.
//!
//! Ranges that do not overlap are held together, so that writers to different parts
//! of a file do not wait for each other. Whoever asks is given a place in a small
//! table, with a ticket, and waits until no range that overlaps has an older one:
//! the lock is fair, and a truncation is not kept waiting by writers that come
//! after it. (Jan Kara proposed such locks for the page cache of Linux in 2013.)
//!
//! Whoever holds a range can **lend** it: those who only try take parts of it then, as if
//! nobody had it, and everybody else goes on waiting. So a writer that has run out of memory
//! lets reclaim have pages that it has written, and no other writer gets between its parts.

use core::ops::Range;

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use super::queue::{SPINS, Tail};
use super::report::{Kind, report_lock};
use super::wait::key_of;
use super::{MaybePinned, Pin, SleepHost, SpinLock, Unpinned, WaitTable};
use crate::addr::set_bits;
use crate::platform::Platform;

/// Ranges that are held or waited for at once; who finds no place waits for one.
const PLACES: usize = 8;

/// In the word of places: a bit for each that is taken, from here on for each whose range is
/// lent, and from here on for each that was taken by who only tried.
const LENT: u32 = PLACES as u32;
const TRIED: u32 = 2 * PLACES as u32;

/// The bits of one kind.
fn places_from(word: u32, shift: u32) -> u32 {
    word >> shift & ((1 << PLACES) - 1)
}

#[derive(Debug, Default)]
struct Place {
    start: AtomicU64,
    end: AtomicU64,
    ticket: AtomicU32,
}

/// The lock. Taken by a caller that holds no other range of it.
///
/// Its own words and the first two places share a cache line, of which nothing else is a
/// part: two CPUs at work on two ranges exchange that line and no other.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RangeLock {
    /// The lock of what follows.
    lock: SpinLock<()>,
    /// A bit for each place that is taken, and what is said of it.
    taken: AtomicU32,
    /// 1 if somebody sleeps until a range is let go of.
    waiters: AtomicU32,
    next_ticket: AtomicU32,
    /// Those who have found no place, of whom the first looks for one.
    queue: Tail,
    places: [Place; PLACES],
}

/// A range that is held; it must be given to [`RangeLock::unlock`].
#[must_use = "a range that is not let go of stays locked"]
#[derive(Debug)]
pub struct HeldRange(usize);

impl RangeLock {
    /// Where reports of ranges are about, which have the lock's own bit at offset 0.
    #[cfg_attr(vellum_loom, allow(dead_code, reason = "no model has objects"))]
    pub(crate) const RANGES_AT: usize = core::mem::offset_of!(RangeLock, waiters);

    /// Takes `range`, when nobody holds a part of it. The caller is left with the pin that it was
    /// taken with: most need one at once.
    pub fn lock<'p, H: SleepHost>(
        &self,
        caller: &mut MaybePinned<'p>,
        range: Range<u64>,
        waits: &WaitTable,
        host: &'p H,
    ) -> HeldRange {
        let mut place = None;
        if let Some(held) = self.enter(&mut place, &range, false, caller.pinned(host)) {
            report_lock(Kind::LockTaken, &self.waiters);
            return held;
        }
        report_lock(Kind::LockAwaited, &self.waiters);
        let held = self.wait_and_lock(caller, place, &range, waits, host);
        report_lock(Kind::LockTaken, &self.waiters);
        held
    }

    /// Takes `range` if nobody holds or waits for a part of it, or the one who holds it has
    /// lent it.
    pub fn try_lock(&self, range: &Range<u64>, pin: &Pin<'_>) -> Option<HeldRange> {
        let held = {
            let _guard = self.lock.lock(pin);
            let word = self.taken.load(Ordering::Relaxed);
            let others = match self.is_lent(word, range) {
                // Others who want it wait for who lends it.
                true => places_from(word, TRIED),
                false => places_from(word, 0),
            };
            if self.meets(others, range) {
                return None;
            }
            let place = self.take_place(word, range)?;
            let word = self.taken.load(Ordering::Relaxed);
            self.taken
                .store(word | 1 << (TRIED + place as u32), Ordering::Relaxed);
            Some(HeldRange(place))
        };
        if held.is_some() {
            report_lock(Kind::LockTaken, &self.waiters);
        }
        held
    }

    /// Lets those who only try have parts of a range that is held, until
    /// [`RangeLock::take_back`]. The caller does not touch what it holds meanwhile.
    pub fn lend(&self, held: &HeldRange, pin: &Pin<'_>) {
        let _guard = self.lock.lock(pin);
        let word = self.taken.load(Ordering::Relaxed);
        self.taken
            .store(word | 1 << (LENT + held.0 as u32), Ordering::Relaxed);
    }

    /// Waits until nobody has parts of a range that was lent.
    pub fn take_back<H: SleepHost>(
        &self,
        mut unpinned: Unpinned<'_>,
        held: &HeldRange,
        waits: &WaitTable,
        host: &H,
    ) {
        let mut is_out = |pin: &Pin<'_>| {
            let _guard = self.lock.lock(pin);
            let word = self.taken.load(Ordering::Relaxed);
            let word = word & !(1 << (LENT + held.0 as u32));
            self.taken.store(word, Ordering::Relaxed);
            let place = &self.places[held.0];
            let range = place.start.load(Ordering::Relaxed)..place.end.load(Ordering::Relaxed);
            let is_out = self.meets(places_from(word, TRIED), &range);
            if is_out {
                self.waiters.store(1, Ordering::Relaxed);
            }
            is_out
        };
        while waits.sleep_if(unpinned.reborrow(), self.key(), host, &mut is_out) {}
    }

    /// Whether all of a range is a part of one that is lent, under the lock.
    fn is_lent(&self, word: u32, range: &Range<u64>) -> bool {
        set_bits(u64::from(places_from(word, LENT))).any(|place| {
            let place = &self.places[place as usize];
            place.start.load(Ordering::Relaxed) <= range.start
                && range.end <= place.end.load(Ordering::Relaxed)
        })
    }

    /// Whether one of the `places` has a part of a range, under the lock.
    fn meets(&self, places: u32, range: &Range<u64>) -> bool {
        set_bits(u64::from(places)).any(|place| {
            let place = &self.places[place as usize];
            place.start.load(Ordering::Relaxed) < range.end
                && range.start < place.end.load(Ordering::Relaxed)
        })
    }

    #[cold]
    #[inline(never)]
    fn wait_and_lock<'p, H: SleepHost>(
        &self,
        caller: &mut MaybePinned<'p>,
        mut place: Option<usize>,
        range: &Range<u64>,
        waits: &WaitTable,
        host: &'p H,
    ) -> HeldRange {
        let mut turn = None;
        if place.is_none() {
            turn = (waits.queues()).enter(caller.unpinned(), &self.queue, host);
        }
        // Lets the next one look for a place.
        let mut step_aside = |place: Option<usize>, pin: &Pin<'_>| {
            if let Some(turn) = turn.take_if(|_| place.is_some()) {
                (waits.queues()).leave(&self.queue, turn, host.platform(), pin);
            }
        };
        let mut spins = 0;
        while spins < SPINS {
            // Anew: a pin keeps the epoch from moving on.
            caller.unpinned();
            let pin = caller.pinned(host);
            let held = self.enter(&mut place, range, false, pin);
            step_aside(place, pin);
            if let Some(held) = held {
                return held;
            }
            // Most ranges are let go of sooner than anybody could be woken.
            spins = self.watch(spins, pin);
        }
        loop {
            let mut held = None;
            waits.sleep_if(caller.unpinned(), self.key(), host, &mut |pin| {
                let had_place = place.is_some();
                held = self.enter(&mut place, range, true, pin);
                // Nobody sleeps with a place and a turn.
                held.is_none() && had_place == place.is_some()
            });
            step_aside(place, caller.pinned(host));
            if let Some(held) = held {
                return held;
            }
        }
    }

    /// Waits a little for a range to be let go of, after so many rounds of waiting.
    /// Returns how many there were then.
    fn watch(&self, mut spins: u32, pin: &Pin<'_>) -> u32 {
        let taken = self.taken.load(Ordering::Relaxed);
        loop {
            pin.relax(spins);
            spins += 1;
            if spins >= SPINS || self.taken.load(Ordering::Relaxed) != taken {
                return spins;
            }
        }
    }

    /// Takes a place, if `place` is none yet, and with it the range, if no other is
    /// before it. Otherwise notes that the caller `sleeps`.
    fn enter(
        &self,
        place: &mut Option<usize>,
        range: &Range<u64>,
        sleeps: bool,
        pin: &Pin<'_>,
    ) -> Option<HeldRange> {
        let _guard = self.lock.lock(pin);
        let others = self.taken.load(Ordering::Relaxed);
        if place.is_none() {
            *place = self.take_place(others, range);
        }
        let mine = place.filter(|&mine| self.is_oldest(others, mine));
        if mine.is_none() && sleeps {
            self.waiters.store(1, Ordering::Relaxed);
        }
        mine.map(HeldRange)
    }

    /// A free place, now taken for `range`, under the lock.
    fn take_place(&self, taken: u32, range: &Range<u64>) -> Option<usize> {
        let free = (!taken).trailing_zeros() as usize;
        let place = self.places.get(free)?;
        let ticket = self.next_ticket.load(Ordering::Relaxed);
        self.next_ticket
            .store(ticket.wrapping_add(1), Ordering::Relaxed);
        place.ticket.store(ticket, Ordering::Relaxed);
        place.start.store(range.start, Ordering::Relaxed);
        place.end.store(range.end, Ordering::Relaxed);
        self.taken.store(taken | 1 << free, Ordering::Relaxed);
        Some(free)
    }

    /// Whether no range that overlaps that of place `mine` has an older ticket, under
    /// the lock.
    fn is_oldest(&self, taken: u32, mine: usize) -> bool {
        let taken = places_from(taken, 0);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let ticket = |place: &Place| place.ticket.load(Ordering::Relaxed);
        let this = &self.places[mine];
        set_bits(u64::from(taken & !(1 << mine))).all(|other| {
            let other = &self.places[other as usize];
            load(&other.end) <= load(&this.start)
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
        report_lock(Kind::LockReleased, &self.waiters);
        let sleep = {
            let _guard = self.lock.lock(pin);
            let taken = self.taken.load(Ordering::Relaxed);
            let place = (1 | 1 << LENT | 1 << TRIED) << held.0;
            self.taken.store(taken & !place, Ordering::Relaxed);
            let sleep = self.waiters.load(Ordering::Relaxed) != 0;
            if sleep {
                self.waiters.store(0, Ordering::Relaxed);
            }
            sleep
        };
        if sleep {
            waits.wake(self.key(), platform, pin);
        }
    }

    /// Whether somebody holds a range or waits for one.
    pub(crate) fn is_held(&self) -> bool {
        self.taken.load(Ordering::Relaxed) != 0
    }

    fn key(&self) -> u64 {
        key_of(self)
    }
}
