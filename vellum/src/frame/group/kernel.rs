//! Page tables that groups are charged for.

use super::Groups;
use super::tree::Places;
use crate::addr::Pfn;
use crate::platform::GroupId;
use crate::sync::atomic::Ordering;
use crate::sync::{BatchedCounts, Pin};

impl Groups {
    /// Charges a group for a frame, and no longer the one that was charged before; whatever its
    /// limit is. Both have members that stay until this has ended.
    pub(in crate::frame) fn recharge(&self, pin: &Pin<'_>, frame: Pfn, payer: GroupId) {
        for at in self.way_up(payer.place()) {
            self.groups[at].add(1);
        }
        let before = self.byte(frame).swap(payer.place() as u8, Ordering::AcqRel);
        self.put(usize::from(before), 1);
        self.count_table(pin, payer.place(), 1);
        self.count_table(pin, usize::from(before), -1);
    }

    /// Nobody is charged for a table any more.
    pub(in crate::frame) fn uncharge_table(&self, pin: &Pin<'_>, table: Pfn) {
        let byte = self.byte(table);
        let place = usize::from(byte.load(Ordering::Relaxed));
        if place != 0 {
            let place = self.uncharge_frame(pin, byte, place);
            self.count_table(pin, place, -1);
        }
    }

    /// Counts tables of a group that came or went.
    pub(in crate::frame) fn count_table(&self, pin: &Pin<'_>, place: usize, change: i32) {
        if let Some(tables) = &self.tables
            && place != 0
        {
            tables.add(pin, place, change);
        }
    }

    /// What a group that has ended had of tables is of the one around it.
    pub(in crate::frame) fn end_tables(&self, pin: &Pin<'_>, place: usize, around: usize) {
        if let Some(tables) = &self.tables {
            let left = tables.sum(place) as i64 as i32;
            self.count_table(pin, around, left);
            self.count_table(pin, place, left.wrapping_neg());
        }
    }

    /// Page tables that the groups of some places are charged for.
    pub(super) fn tables_of(&self, places: Places) -> u64 {
        let sum = |tables: &BatchedCounts| {
            let tables = places.into_iter().map(|place| tables.sum(place));
            tables.fold(0, u64::wrapping_add) as i64
        };
        self.tables.as_ref().map_or(0, sum).max(0) as u64
    }

    /// Whether groups are charged for page tables, and there has been one.
    #[inline]
    pub(in crate::frame) fn charge_tables(&self) -> bool {
        self.tables.is_some() && self.are_in_use()
    }
}
