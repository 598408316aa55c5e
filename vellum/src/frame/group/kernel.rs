//! What groups are charged for beside pages (`groups=all`): page tables, and the records that a
//! space has of its regions.

use super::tree::Places;
use super::{BATCH, GROUPS, Groups};
use crate::addr::Pfn;
use crate::platform::GroupId;
use crate::sync::atomic::Ordering;
use crate::sync::{BatchedCounts, Pin};

/// What the kernel has of each group, in pages.
pub(super) struct Kernel {
    tables: BatchedCounts,
    records: BatchedCounts,
}

impl Kernel {
    /// Nothing, on so many CPUs.
    pub(super) fn new(cpus: usize) -> Kernel {
        let counts = || BatchedCounts::new(GROUPS, cpus, BATCH as u32);
        Kernel {
            tables: counts(),
            records: counts(),
        }
    }
}

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
        if let Some(kernel) = &self.kernel
            && place != 0
        {
            kernel.tables.add(pin, place, change);
        }
    }

    /// What a group that has ended had of tables is of the one around it. (Records are those of its
    /// spaces, which have left.)
    pub(in crate::frame) fn end_tables(&self, pin: &Pin<'_>, place: usize, around: usize) {
        if let Some(kernel) = &self.kernel {
            let left = kernel.tables.sum(place) as i64 as i32;
            self.count_table(pin, around, left);
            self.count_table(pin, place, left.wrapping_neg());
        }
    }

    /// Charges a group for so many pages of records.
    ///
    /// # Errors
    /// The group, if it would have more than its limit.
    pub(crate) fn charge_records(
        &self,
        pin: &Pin<'_>,
        payer: GroupId,
        pages: u64,
    ) -> Result<(), GroupId> {
        self.charge(pin, payer, pages)?;
        self.count_records(pin, payer, pages);
        Ok(())
    }

    /// Charges a group for so many pages of records more, whatever its limit is, or (wrapping) for
    /// fewer.
    pub(crate) fn change_records(&self, pin: &Pin<'_>, payer: GroupId, pages: u64) {
        if (pages as i64) < 0 {
            self.refund(pin, payer, pages.wrapping_neg());
        } else {
            for place in self.way_up(payer.place()) {
                self.groups[place].add(pages);
            }
        }
        self.count_records(pin, payer, pages);
    }

    fn count_records(&self, pin: &Pin<'_>, payer: GroupId, pages: u64) {
        if let Some(kernel) = &self.kernel {
            kernel.records.add(pin, payer.place(), pages as i32);
        }
    }

    /// Pages of page tables, and of records, that the groups of some places are charged for.
    pub(super) fn kernel_of(&self, places: Places) -> (u64, u64) {
        let sum = |counts: &BatchedCounts| {
            let counts = places.into_iter().map(|place| counts.sum(place));
            (counts.fold(0, u64::wrapping_add) as i64).max(0) as u64
        };
        let kernel = self.kernel.as_ref();
        kernel.map_or((0, 0), |kernel| (sum(&kernel.tables), sum(&kernel.records)))
    }

    /// Whether groups are charged for page tables and records, and there has been one.
    #[inline]
    pub(crate) fn charge_kernel(&self) -> bool {
        self.kernel.is_some() && self.are_in_use()
    }
}
