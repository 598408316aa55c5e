//! A call that fails has changed nothing that its caller can see (invariant 12).

use std::collections::BTreeMap;
use std::ops::Range;

use vellum::ObjectId;
use vellum::addr::{PageRange, Prot, Vpn};
use vellum::rmap::ReverseMap;
use vellum::space::{MapEntry, SpaceStats, Traits};
use vellum::table::Format;

use super::drive::{Check, Driver};
use super::model::{DEVICE, Key};

/// What a failed call may have changed all the same, as its documentation says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allows {
    Nothing,
    /// `fork`: entries that have lost the right to store.
    WriteProtection,
    /// A fault: the start of a stack.
    Growth,
    /// Pinning: the same, and entries made by the fault before the one that failed.
    FaultedIn,
    /// Writing pages of an object: the length that the pages before gave it.
    PagesWritten,
}

/// Everything about the spaces and objects that a caller can ask for, contents
/// aside, which the model knows.
#[derive(PartialEq, Eq, Debug)]
pub struct Sight {
    spaces: BTreeMap<u32, Shown>,
    objects: BTreeMap<Key, Option<u64>>,
    /// Entries of pages of objects that reverse mapping has taken back so far.
    taken_back: u64,
    /// Private pages that have gone to swap, or were dropped, so far.
    swapped: u64,
}

#[derive(PartialEq, Eq, Debug)]
struct Shown {
    /// As they are, with every boundary between them.
    regions: Vec<MapEntry>,
    leaves: Leaves,
    stats: Option<SpaceStats>,
    heap: Option<PageRange>,
}

/// Pages with entries, as runs in which all have the same rights: a superpage that a call has
/// split shows what it did.
#[derive(Default, PartialEq, Eq, Debug)]
struct Leaves(Vec<(Range<u64>, Prot)>);

impl Leaves {
    /// Adds pages after all that there are.
    fn push(&mut self, pages: Range<u64>, prot: Prot) {
        match self.0.last_mut() {
            Some((last, known)) if last.end == pages.start && *known == prot => {
                last.end = pages.end;
            }
            _ => self.0.push((pages, prot)),
        }
    }

    fn contains(&self, page: u64) -> bool {
        let after = self.0.partition_point(|(pages, _)| pages.end <= page);
        self.0
            .get(after)
            .is_some_and(|(pages, _)| pages.contains(&page))
    }

    fn retain(&mut self, keeps: impl Fn(u64) -> bool) {
        let mut kept = Leaves::default();
        for (pages, prot) in self.0.drain(..) {
            let pages = pages.filter(|&page| keeps(page));
            pages.for_each(|page| kept.push(page..page + 1, prot));
        }
        *self = kept;
    }

    /// As they are without the right to store.
    fn read_only(&self) -> Leaves {
        let mut leaves = Leaves::default();
        for (pages, prot) in &self.0 {
            leaves.push(pages.clone(), prot.read_only());
        }
        leaves
    }
}

impl Shown {
    /// Leaves out where stacks begin, and what follows from it.
    fn forget_stacks(&mut self) {
        for entry in &mut self.regions {
            if entry.traits.has(Traits::GROWS_DOWN) {
                entry.range.start = Vpn(0);
                if let Some(stats) = &mut self.stats {
                    stats.pages = 0;
                }
            }
        }
    }
}

impl Sight {
    /// Leaves out entries that reverse mapping has taken back until `now`, and private pages that
    /// went to swap, and what follows from that: a fault makes them again.
    fn forget_taken_back(&mut self, now: &mut Sight) {
        if self.taken_back == now.taken_back {
            return;
        }
        self.taken_back = now.taken_back;
        let was_swapped = self.swapped != now.swapped;
        self.swapped = now.swapped;
        for (slot, space) in &mut self.spaces {
            let Some(now) = now.spaces.get_mut(slot) else {
                continue;
            };
            let regions = &space.regions;
            let is_of_object = |page: u64| {
                let found = regions.iter().find(|entry| entry.range.contains(Vpn(page)));
                found.is_some_and(|entry| entry.object.is_some())
            };
            space
                .leaves
                .retain(|page| now.leaves.contains(page) || !(was_swapped || is_of_object(page)));
            (space.stats, now.stats) = (None, None);
        }
    }
}

impl<F: Format, R: ReverseMap> Driver<F, R> {
    /// Changes whenever reverse mapping, reclaim, swap, a move or a call about a part of a superpage
    /// may have taken back entries of pages of objects.
    pub fn taken_back(&self) -> u64 {
        let stats = self.vm.stats();
        let swap = self.vm.swap_stats();
        let split = match self.has_huge {
            true => stats.events.superpage_demotions,
            false => 0,
        };
        let reclaimed = stats.rmap.reclaimed + stats.reclaim.scanned;
        reclaimed + swap.outs + swap.write_errors + split + self.moves
    }

    fn sight(&self) -> Result<Sight, String> {
        let mut spaces = BTreeMap::new();
        for (&slot, &id) in &self.ids {
            let mut regions = Vec::new();
            let mut leaves = Leaves::default();
            let mut splits_for_good = false;
            self.vm
                .space(id)
                .for_each_region(|entry| regions.push(*entry))
                .and_then(|()| {
                    self.vm.space(id).for_each_leaf(|page, frame, pages, prot| {
                        splits_for_good |= frame.0 >= DEVICE;
                        leaves.push(page.0..page.0 + pages, prot);
                    })
                })
                .map_err(|error| error.to_string())?;
            let mut stats = self.vm.space(id).stats().ok();
            if let Some(stats) = &mut stats
                && splits_for_good
            {
                // A large leaf of a device gets a table when it is split, and has it then.
                stats.table_bytes = 0;
            }
            let shown = Shown {
                regions,
                leaves,
                stats,
                heap: self.vm.space(id).heap().ok(),
            };
            spaces.insert(slot, shown);
        }
        let pages = |(&key, &id): (&Key, &ObjectId)| (key, self.vm.file(id).size().ok());
        Ok(Sight {
            spaces,
            objects: self.objects.iter().map(pages).collect(),
            taken_back: self.taken_back(),
            swapped: self.vm.swap_stats().outs + self.vm.stats().reclaim.dropped,
        })
    }

    /// Remembers what is to be seen before a call that may run out of memory.
    pub fn remember(&mut self, allows: Allows) -> Check {
        if self.watches {
            self.before = Some((self.sight()?, allows));
        }
        Ok(())
    }

    /// Compares that with what is to be seen now that the call has failed.
    pub fn check_unchanged(&mut self) -> Check {
        if !self.watches {
            return Ok(());
        }
        let Some((mut before, allows)) = self.before.take() else {
            return Err("a call failed of which nothing was remembered".into());
        };
        let mut now = self.sight()?;
        before.forget_taken_back(&mut now);
        match allows {
            Allows::Nothing => {}
            Allows::WriteProtection => {
                for sight in [&mut before, &mut now] {
                    for space in sight.spaces.values_mut() {
                        space.leaves = space.leaves.read_only();
                    }
                }
            }
            Allows::Growth | Allows::FaultedIn => {
                for sight in [&mut before, &mut now] {
                    for space in sight.spaces.values_mut() {
                        space.forget_stacks();
                        if allows == Allows::FaultedIn {
                            space.leaves = Leaves::default();
                            space.stats = None;
                        }
                    }
                }
            }
            Allows::PagesWritten => {
                before.objects.clear();
                now.objects.clear();
            }
        }
        for (slot, space) in &before.spaces {
            if now.spaces.get(slot) != Some(space) {
                return Err(format!(
                    "a call that failed changed space {slot}: {space:?}, now {:?}",
                    now.spaces.get(slot)
                ));
            }
        }
        if now != before {
            return Err(format!("a call that failed changed {before:?} to {now:?}"));
        }
        Ok(())
    }
}
