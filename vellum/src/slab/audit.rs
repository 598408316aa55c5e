//! What an arena tells about itself, and the proof that no slot is lost.

use super::arena::{Arena, Item};
use super::cache::Slots;
use super::directory::HANDLE_BITS;
use super::handle::Handle;
use super::home::Home;
use super::numbers::Taken;
use super::pinned::{ForGood, Stay};
use crate::frame::{AuditError, AuditPlace};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::limbo::Chain;

/// Set in the link of each vacant slot that the audit has met.
const MET: u32 = 1 << HANDLE_BITS;

/// Counts of an arena, exact when nobody is at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Slots in use, those of batches included.
    pub live: u64,
    /// Vacant slots, in caches, in the depot and at home.
    pub cached: u64,
    /// Retired slots that wait for their epoch.
    pub limbo: u64,
    /// Slots handed out, ever.
    pub allocs: u64,
    /// Slots taken back, ever.
    pub frees: u64,
    /// Frames of slots and of the directory.
    pub frames: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// Bytes of the most frames that there were.
    pub peak_bytes: u64,
    /// Most slots that were in use or in a CPU's cache at one time: all there were, since more
    /// are made only when no CPU finds any elsewhere.
    pub peak: u64,
    /// Frames of slots that were given back to the memory, ever.
    pub returned: u64,
}

/// Where every slot was found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArenaCensus {
    /// Slots in use, those of batches included.
    pub live: u64,
    /// Vacant slots, each found on exactly one list.
    pub vacant: u64,
    /// Retired slots, each found on exactly one list.
    pub limbo: u64,
    /// Frames of slots.
    pub chunks: u64,
    /// Frames of the directory.
    pub directory: u64,
}

impl<T: Item, S: Stay> Arena<T, S> {
    /// Counts now. Walks all CPUs.
    pub fn stats(&self) -> ArenaStats {
        let (mut allocs, mut frees, mut limbo, mut cached) = (0, 0, 0, 0);
        for cache in self.caches.iter() {
            let totals = cache.totals();
            allocs += totals.0;
            frees += totals.1;
            limbo += cache
                .retired()
                .map(|list| u64::from(list.count))
                .iter()
                .sum::<u64>();
            cached += cache
                .vacant()
                .map(|list| u64::from(list.count))
                .iter()
                .sum::<u64>();
        }
        cached += u64::from(self.depot.depth()) * u64::from(self.slots);
        let home = self.home();
        cached += u64::from(home.map_or(0, Home::slots));
        let chunks = self.chunks();
        let without = home.map_or(0, Home::numbers);
        let leaves = self.growth.leaf_frames.load(Ordering::Relaxed);
        let frames = u64::from(chunks) + u64::from(leaves);
        ArenaStats {
            live: allocs.saturating_sub(frees).saturating_sub(limbo),
            cached,
            limbo,
            allocs,
            frees,
            frames,
            bytes: frames * self.frame_size as u64,
            peak_bytes: (frames + u64::from(without)) * self.frame_size as u64,
            // Chunks are made when the depot is empty, and get new numbers when no others are left.
            peak: u64::from(chunks + without) * u64::from(self.slots),
            returned: home.map_or(0, |home| home.returned().into()),
        }
    }

    /// Chunks there are, or are being made.
    fn chunks(&self) -> u32 {
        let unused: u32 = self.taken.iter().map(Taken::count).sum();
        let without = self.home().map_or(0, Home::numbers);
        (self.growth.numbers.taken()).saturating_sub(unused + without)
    }

    /// Finds every slot in exactly one place: in use, vacant on one list, or
    /// waiting for its epoch. Nobody may be at work on the arena meanwhile, on
    /// any CPU.
    ///
    /// # Errors
    /// The first slot found on two lists, or a list that is broken, or a
    /// number of slots that does not add up.
    pub fn audit(&self) -> Result<ArenaCensus, AuditError> {
        let mut census = ArenaCensus::default();
        let link = |slot| {
            // SAFETY: nobody is at work who would give a chunk back.
            Some(unsafe { self.slot(Handle::from_raw(slot)) }?.link())
        };
        let result = self.each_list(&mut |list, retired| {
            meet(list, &link)?;
            let place = if retired {
                &mut census.limbo
            } else {
                &mut census.vacant
            };
            *place += u64::from(list.count);
            Ok(())
        });
        let cleared = self.each_list(&mut |list, _| {
            forget(list, &link);
            Ok(())
        });
        result.and(cleared)?;
        let stats = self.stats();
        census.live = stats.live;
        census.chunks = u64::from(self.chunks());
        census.directory = stats.frames - census.chunks;
        if S::RETURNS && self.entries() != census.chunks {
            return Err(AuditError {
                place: AuditPlace::Arena,
                what: "chunks are found under another number of entries than there are",
            });
        }
        if census.live + census.vacant + census.limbo == census.chunks * u64::from(self.slots) {
            Ok(census)
        } else {
            Err(AuditError {
                place: AuditPlace::Arena,
                what: "slots in use and slots found vacant do not add up to all slots",
            })
        }
    }

    /// Entries of the directory that lead to a chunk.
    fn entries(&self) -> u64 {
        let numbers = 1..=self.growth.numbers.taken();
        let entries = numbers.filter_map(|number| self.directory.entry(number));
        let there = entries.filter(|entry| !entry.base::<T>().is_null());
        there.count() as u64
    }

    /// The list of `count` slots at home from `head` on; its tail is where its links end.
    fn at_home(&self, head: u32, count: u32) -> Chain {
        let mut tail = head;
        for _ in 1..count {
            // SAFETY: nobody is at work who would give a chunk back.
            let Some(slot) = (unsafe { self.slot(Handle::from_raw(tail)) }) else {
                break;
            };
            tail = slot.link().load(Ordering::Relaxed) & !MET;
        }
        Chain { head, tail, count }
    }

    /// Calls `f` with every list of vacant slots and whether they are retired.
    #[inline(never)]
    fn each_list(
        &self,
        f: &mut dyn FnMut(Chain, bool) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        for cache in self.caches.iter() {
            cache
                .vacant()
                .into_iter()
                .try_for_each(|list| f(list, false))?;
            cache
                .retired()
                .into_iter()
                .try_for_each(|list| f(list, true))?;
        }
        if let Some(home) = self.home() {
            (1..=self.growth.numbers.taken()).try_for_each(|number| {
                let (count, head) = home.vacant_of(number, self.slot_bits);
                f(self.at_home(head, count), false)
            })?;
        }
        (0..self.depot.depth()).try_for_each(|index| {
            let (head, tail) = self.place(index);
            let list = Chain {
                head: head.load(Ordering::Relaxed),
                tail: tail.load(Ordering::Relaxed),
                count: self.slots,
            };
            f(list, false)
        })
    }
}

impl<T: Item> Arena<T, ForGood> {
    /// Calls `each` with every slot there is, in use or vacant: the value tells
    /// which, not the arena.
    pub fn each(&self, mut each: impl FnMut(Handle<T>, &T)) {
        for chunk in 1..=self.growth.numbers.taken() {
            for slot in 0..self.slots {
                let handle = Handle::from_raw(chunk << self.slot_bits | slot);
                if let Some(value) = self.try_get(handle) {
                    each(handle, value);
                }
            }
        }
    }
}

/// Marks the slots of a list as met. `link` finds the link of a slot that there is.
fn meet<'a>(list: Chain, link: &dyn Fn(u32) -> Option<&'a AtomicU32>) -> Result<(), AuditError> {
    let wrong = |slot, what| {
        Err(AuditError {
            place: AuditPlace::Slot(slot),
            what,
        })
    };
    let mut slot = list.head;
    for index in 0..list.count {
        let Some(link) = link(slot) else {
            return wrong(slot, "on a list, but there is no such slot");
        };
        let next = link.load(Ordering::Relaxed);
        if next & MET != 0 {
            return wrong(slot, "found on two lists, or twice on one");
        }
        link.store(next | MET, Ordering::Relaxed);
        if (index + 1 == list.count) != (slot == list.tail) {
            return wrong(slot, "the list's last slot is another than its tail");
        }
        slot = next;
    }
    if list.count > 0 && slot != 0 {
        return wrong(slot, "the list goes on beyond its count");
    }
    Ok(())
}

/// Takes the marks off again.
fn forget<'a>(list: Chain, link: &dyn Fn(u32) -> Option<&'a AtomicU32>) {
    let mut slot = list.head;
    while let Some(link) = link(slot) {
        let next = link.load(Ordering::Relaxed);
        if next & MET == 0 {
            break;
        }
        link.store(next & !MET, Ordering::Relaxed);
        slot = next & !MET;
    }
}
