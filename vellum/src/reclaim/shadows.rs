//! Shadows of pages that have left: when each did, in a table of bounded size.

use super::lists::SideRecord;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Counts the pages of a group that leave; 0 as long as none has.
#[derive(Default)]
pub(super) struct EvictionClock(AtomicU32);

/// What is known of a page that left: one of the two, as [`EvictionClock::leave`] was told.
pub(super) struct Shadow {
    /// Pages that have left since.
    pub(super) distance: u32,
    /// The interval in which it was used last.
    pub(super) last_use: u32,
}

/// A page of an object as the table knows it: a place, and what tells it from others there.
/// An object that takes the place of another in its arena may be taken for that one, which
/// makes a page active too early and nothing worse.
fn place_of(owner: u32, index: u64, places: usize) -> (usize, u32) {
    let key = index ^ u64::from(owner) << 40 ^ u64::from(owner) >> 3;
    // The finalizer of MurmurHash3.
    let key = (key ^ key >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ key >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    let key = key ^ key >> 33;
    let place = ((key >> 32) * places as u64) >> 32;
    (place as usize, key as u32)
}

impl EvictionClock {
    /// A page leaves. What is remembered is when, or else the interval in which it was used
    /// last.
    pub(super) fn leave(
        &self,
        table: &[SideRecord],
        (owner, index): (u32, u64),
        last_use: Option<u32>,
    ) {
        let now = self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (place, tag) = place_of(owner, index, table.len());
        let what = last_use.map_or(now, |interval| interval.wrapping_add(1));
        let word = u64::from(tag) << 32 | u64::from(what.max(1));
        table[place].shadow.store(word, Ordering::Relaxed);
    }

    /// A page is back: what is remembered of when it left; `None` if nobody knows that it ever
    /// did.
    pub(super) fn returns(
        &self,
        table: &[SideRecord],
        (owner, index): (u32, u64),
    ) -> Option<Shadow> {
        let now = self.0.load(Ordering::Relaxed);
        if now == 0 {
            return None;
        }
        let (place, tag) = place_of(owner, index, table.len());
        let shadow = &table[place].shadow;
        let word = shadow.load(Ordering::Relaxed);
        if word as u32 == 0 || (word >> 32) as u32 != tag {
            return None;
        }
        // Two that return at once are both told, at worst.
        shadow.store(0, Ordering::Relaxed);
        Some(Shadow {
            distance: now.wrapping_sub(word as u32),
            last_use: (word as u32).wrapping_sub(1),
        })
    }
}
