//! Where page tables of the lowest level lie, if their format can reach high memory.

use super::memory::PhysicalMemory;
use crate::platform::{Machine, Zone};
use crate::sync::Pin;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Part of a zone of low memory that tables leave to others at most.
const MOST_FOR_OTHERS: u64 = 2;

/// Where they are taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableZone {
    /// Low memory; there are none if that is used up.
    Low,
    /// High memory, and low memory if that is used up.
    High,
    /// Low memory while some is free, then high memory; and tables move to high memory
    /// when something else needs low memory.
    LowWhileFree,
}

/// What is known of the need for low memory.
#[derive(Debug, Default)]
pub(super) struct LowNeed {
    /// Frames that tables leave free, because others had to wait for as many.
    left_to_others: AtomicU64,
    /// 1 if somebody who can use low memory only got none since it was asked last.
    missed: AtomicU64,
    /// Who gave tables up last, by a number of the caller's.
    hand: AtomicU64,
}

impl<P: Machine> PhysicalMemory<P> {
    /// Sets where page tables of the lowest level are taken from, before there are any.
    pub(crate) fn set_table_zone(&mut self, zone: TableZone) {
        self.table_zone = zone;
    }

    /// Where the next one is to be taken from.
    #[inline]
    pub(crate) fn table_zone(&self, pin: &Pin<'_>) -> Zone {
        match self.table_zone {
            _ if !self.zones.any_high => Zone::Low,
            TableZone::Low => Zone::Low,
            TableZone::High => Zone::High,
            TableZone::LowWhileFree => {
                let zone = self.zones.get(self.cpus.get(pin).low.zone);
                let left = self.low_need.left_to_others.load(Ordering::Relaxed);
                // Not the last of them: looking for those takes long.
                match self.home_free(pin) > zone.info.high.max(left) {
                    true => Zone::Low,
                    false => Zone::High,
                }
            }
        }
    }

    /// Whether tables lie in low memory only as long as nobody else needs it.
    #[inline]
    pub(crate) fn tables_make_room(&self) -> bool {
        self.zones.any_high && self.table_zone == TableZone::LowWhileFree
    }

    /// Somebody who can use low memory only got none.
    #[cold]
    pub(super) fn note_low_missed(&self) {
        self.low_need.missed.store(1, Ordering::Relaxed);
    }

    /// Whether that happened since it was asked last.
    pub(crate) fn take_low_missed(&self) -> bool {
        self.low_need.missed.swap(0, Ordering::Relaxed) != 0
    }

    /// Tables have given up `frames` of low memory because others needed it. They leave as
    /// many free from now on, lest they take what was just made free.
    pub(crate) fn leave_to_others(&self, pin: &Pin<'_>, frames: u64) {
        let zone = self.zones.get(self.cpus.get(pin).low.zone);
        let most = zone.info.total / MOST_FOR_OTHERS;
        let left = &self.low_need.left_to_others;
        let sum = left.load(Ordering::Relaxed).saturating_add(frames);
        // Two CPUs at a time may leave less; the next shortage makes up for it.
        left.store(sum.min(most), Ordering::Relaxed);
    }

    /// What [`PhysicalMemory::set_low_hand`] was told last.
    pub(crate) fn low_hand(&self) -> u32 {
        self.low_need.hand.load(Ordering::Relaxed) as u32
    }

    /// Remembers whose tables were moved last, so that others' are moved next.
    pub(crate) fn set_low_hand(&self, hand: u32) {
        (self.low_need.hand).store(u64::from(hand), Ordering::Relaxed);
    }

    /// Tables that are worth moving at a time.
    pub(crate) fn tables_to_move(&self, pin: &Pin<'_>) -> u32 {
        let zone = self.zones.get(self.cpus.get(pin).low.zone);
        (zone.info.total / 64).clamp(4, 64) as u32
    }
}
