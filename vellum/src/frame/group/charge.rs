//! Charging groups for frames, and ending that.

use super::{Group, Groups, pages_in, place_in, stock_of};
use crate::addr::Pfn;
use crate::platform::GroupId;
use crate::sync::Pin;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Charging, by who is pinned.
impl Groups {
    /// Charges a group for pages that are about to be had. `payer` has not ended since the pin
    /// began.
    ///
    /// # Errors
    /// The group, if it would have more than its limit.
    #[inline]
    pub(in crate::frame) fn charge(
        &self,
        pin: &Pin<'_>,
        payer: GroupId,
        pages: u64,
    ) -> Result<(), GroupId> {
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
    pub(in crate::frame) fn set_group(&self, frame: Pfn, pages: u32, payer: GroupId) {
        for step in 0..pages {
            let byte = self.byte(frame.offset(step));
            debug_assert!(byte.load(Ordering::Relaxed) == 0, "a frame charged twice");
            byte.store(payer.place() as u8, Ordering::Relaxed);
        }
    }

    /// Gives a charge back that no frame was had for.
    pub(in crate::frame) fn refund(&self, pin: &Pin<'_>, payer: GroupId, pages: u64) {
        self.give(pin, payer.place(), pages);
    }

    /// Nobody uses frames any more: whoever is charged for them no longer is.
    #[inline]
    pub(in crate::frame) fn uncharge(&self, pin: &Pin<'_>, frame: Pfn, pages: u32) {
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
    pub(super) fn uncharge_frame(&self, pin: &Pin<'_>, byte: &AtomicU8, place: usize) -> usize {
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
    pub(super) fn put(&self, place: usize, pages: u64) {
        for at in self.way_up(place) {
            self.groups[at].put(pages);
        }
    }
}

impl Group {
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
    pub(super) fn add(&self, pages: u64) {
        let new = (self.charged.usage).fetch_add(pages, Ordering::AcqRel) + pages;
        self.charged.peak.fetch_max(new, Ordering::Relaxed);
    }

    pub(super) fn put(&self, pages: u64) {
        if pages > 0 {
            let old = self.charged.usage.fetch_sub(pages, Ordering::AcqRel);
            debug_assert!(old >= pages, "a group is charged for less than nothing");
        }
    }
}
