//! What is asked of those who map a page: its entries are found by reverse mapping and cleared, or
//! their marks are taken.
//!
//! Who truncates holds no space's lock. What it reaches of a space it reaches through a region that
//! is in its object's tree, under that tree's lock, or through a table that is linked, under that
//! table's; and it stays pinned until it has flushed, so that the space's record is not used anew
//! (invariant 7). No spin lock is held at a flush.

use core::ops::ControlFlow;

use crate::addr::{PageRange, Pfn};
use crate::frame::{Kind, PageFlags, PrivateFlags};
use crate::object::{PageLock, Pass};
use crate::platform::{GroupId, Platform};
use crate::reclaim::{Used, Walked};
use crate::rmap::{ReverseMap, Verdict};
use crate::slab::AtHand;
use crate::space::leaves::contiguous::FoundRun;
use crate::space::leaves::zap::Zap;
use crate::space::locks::flush::Lost;
use crate::space::locks::stale::{Stale, StaleEntry};
use crate::space::state::account::Resident;
use crate::space::state::common::Mappings;
use crate::space::state::manager::Vm;
use crate::space::state::region::Region;
use crate::space::state::shortage::Lack;
use crate::space::state::spaces::SpaceId;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, Unpinned};
use crate::table::{Entry, Format, Swapped, Users, uses_windows};
use crate::tree::IntervalItem;

/// Times that the entries of a page are looked for. Another fork may have made some where
/// the visit had been.
const VISITS: u32 = 4;

impl<P: Platform, F: Format, R: ReverseMap> Mappings for Vm<P, F, R> {
    #[cold]
    fn group_loaded(&self, pin: &Pin<'_>) -> GroupId {
        let loaded = self.cpus.get(pin).delta.space.load(Ordering::Relaxed);
        let space = self.find_space(SpaceId::from_bits(loaded));
        space.map_or(GroupId::ROOT, |space| space.group())
    }

    fn unmap_page(&self, pin: &Pin<'_>, lock: &PageLock, content_stays: bool) {
        let page = lock.page();
        let env = self.env(pin);
        let frame = self.memory.frame(page);
        let kind = self.cache_kind(frame.owner());
        let mut stale = Stale::new();
        let mut spins = 0;
        while frame.maps_after_lock() > 0 {
            let (mut is_large, mut is_locked) = (false, false);
            let report = self.rmap.visit::<P, F>(&env, self, page, &mut |slot| {
                let space = self.live_at(slot.space());
                is_locked = content_stays && self.is_locked(pin, space, slot.page());
                // The entry alone knows that the page is watched.
                is_locked |= content_stays && Self::is_watched(slot.entry());
                is_large = slot.is_large();
                if stale.is_full() || is_large || is_locked {
                    return Verdict::Stop;
                }
                let taken = self.take_away(space);
                let dirty = self.clear_noted(pin, space, slot, content_stays);
                if content_stays && dirty {
                    frame.page().set_if_clear(PageFlags::DIRTY);
                }
                stale.push(StaleEntry {
                    space: slot.space(),
                    page: slot.page(),
                    emptied: slot.emptied(),
                    taken,
                });
                self.count_resident(pin, space, kind, u64::MAX);
                Verdict::Unmapped
            });
            if content_stays {
                self.count_lookups(pin, 1, &report);
            }
            self.flush_stale(pin, &mut stale);
            for _ in 0..report.unmapped {
                self.memory.put(pin, page);
            }
            if is_locked {
                break;
            }
            let cleared = is_large && self.clear_huge_of(pin, page, content_stays);
            if !cleared && report.unmapped == 0 {
                // Somebody counted a mapping and has not made the entry yet, or is clearing it.
                pin.relax(spins);
                spins += 1;
            }
        }
        self.rmap.wait_for_flushes(&env, page);
    }

    fn take_dirty_marks(&self, pin: &Pin<'_>, page: Pfn) {
        self.clear_dirty_marks(pin, page);
        self.rmap.wait_for_flushes(&self.env(pin), page);
    }

    fn zap_copies(&self, handle: u32, first: u64) {
        let pin = self.pin();
        let regions = self.objects.regions(&self.regions, handle);
        let mut pass = Pass::default();
        loop {
            // What one region lost. It is dropped, and so flushed and freed,
            // when the lock of the regions has been let go of.
            let delayed = self.delay_flush(&pin);
            let mut lost: Option<Lost<'_, P>> = None;
            let done = regions.pass_by_age(&pin, (first, u64::MAX), &mut pass, |_, region| {
                self.zap_copies_in(&pin, region, first, &mut lost)
            });
            drop(lost);
            drop(delayed);
            if done {
                return;
            }
        }
    }

    fn take_marks(&self, pin: &Pin<'_>, page: Pfn) -> Used {
        let frame = self.memory.frame(page);
        let (mut entries, mut in_superpage, mut is_locked) = (0, false, false);
        while frame.counts().maps() > 0 {
            let env = self.env(pin);
            let ages = self.reclaim().filter(|reclaim| reclaim.has_generations());
            let mut is_large = false;
            let mut run = None;
            let visit = self.rmap.visit::<P, F>(&env, self, page, &mut |slot| {
                is_locked = self.is_locked(pin, self.live_at(slot.space()), slot.page());
                if is_locked {
                    return Verdict::Stop;
                }
                if slot.is_large() {
                    // Its mark is about 512 pages.
                    is_large = true;
                    if frame.kind() == Kind::Object || !self.begins_superpage(page) {
                        return Verdict::Keep;
                    }
                }
                run = FoundRun::of(slot);
                if run.is_some() {
                    return Verdict::Stop;
                }
                if slot.take_accessed() {
                    entries += 1;
                    if let Some(reclaim) = ages {
                        self.look_around(reclaim, slot);
                    }
                }
                Verdict::Keep
            });
            self.count_lookups(pin, 1, &visit);
            if is_locked {
                break;
            }
            if is_large && frame.kind() != Kind::Object {
                in_superpage = true;
            } else if is_large {
                // From here on each page is judged by itself; those of one that was used
                // begin as pages that were.
                self.clear_huge_of(pin, page, true);
            }
            let Some(run) = run else { break };
            // The same of the pages of a contiguous run, of which this is the only entry.
            self.end_found_run(pin, run);
        }
        let twice = frame.page().clear_if_set(PageFlags::ACTIVE);
        let once = frame.page().clear_if_set(PageFlags::REFERENCED);
        Used {
            entries,
            once,
            twice,
            is_large: in_superpage,
            is_locked,
        }
    }

    fn swap_entries(&self, pin: &Pin<'_>, page: Pfn, slot: u64) -> u32 {
        let Some(swap) = self.swap() else { return 0 };
        let env = self.env(pin);
        let frame = self.memory.frame(page);
        let mut stale = Stale::new();
        let (mut replaced, mut visits, mut is_refused) = (0, 0, false);
        while frame.counts().maps() > 0 && visits < VISITS && !is_refused {
            let mut is_full = false;
            let mut run = None;
            let report = self.rmap.visit::<P, F>(&env, self, page, &mut |entry| {
                is_full = stale.is_full();
                // Whoever pins the page through this entry has its table locked.
                let counts = frame.counts();
                let space = self.live_at(entry.space());
                is_refused = entry.is_large()
                    || counts.pins() > 0
                    || self.is_locked(pin, space, entry.page());
                run = FoundRun::of(entry);
                let stops = is_full || is_refused || run.is_some();
                if stops || !swap.add_entry(pin, slot) {
                    return Verdict::Stop;
                }
                let taken = self.take_away(space);
                entry.swap_out(Swapped {
                    slot,
                    // This entry's was the only mapping, and nobody can fork it meanwhile.
                    exclusive: counts.maps() == 1 && replaced == 0,
                    clean: space.is_tracked(),
                });
                replaced += 1;
                stale.push(StaleEntry {
                    space: entry.space(),
                    page: entry.page(),
                    emptied: None,
                    taken,
                });
                self.count_resident(pin, space, Resident::Anonymous, u64::MAX);
                self.count_resident(pin, space, Resident::Swap, 1);
                Verdict::Unmapped
            });
            self.count_lookups(pin, 1, &report);
            self.flush_stale(pin, &mut stale);
            for _ in 0..report.unmapped {
                self.memory.put(pin, page);
            }
            if let Some(run) = run {
                self.end_found_run(pin, run);
                continue;
            }
            visits += u32::from(!is_full);
        }
        self.rmap.wait_for_flushes(&env, page);
        replaced
    }

    fn drop_freed(&self, page: Pfn) -> bool {
        let pin = self.pin();
        let frame = self.memory.frame(page);
        let env = self.env(&pin);
        let mut stale = Stale::new();
        let report = self.rmap.visit::<P, F>(&env, self, page, &mut |entry| {
            // Whoever pins, forks or frees the page has the table locked.
            let counts = frame.counts();
            let is_ours = counts.maps() == 1 && counts.pins() == 0 && counts.refs() == 2;
            let is_single = !entry.is_large() && FoundRun::of(entry).is_none();
            if !is_ours || !is_single || !frame.private().has(PrivateFlags::LAZY_FREE) {
                return Verdict::Stop;
            }
            let space = self.live_at(entry.space());
            if self.is_locked(&pin, space, entry.page()) || Self::is_watched(entry.entry()) {
                return Verdict::Stop;
            }
            let taken = self.take_away(space);
            if !entry.clear_if_clean() {
                return Verdict::Stop;
            }
            stale.push(StaleEntry {
                space: entry.space(),
                page: entry.page(),
                emptied: entry.emptied(),
                taken,
            });
            self.note_lost(&pin, space, entry.page());
            self.count_resident(&pin, space, Resident::Anonymous, u64::MAX);
            Verdict::Unmapped
        });
        self.count_lookups(&pin, 1, &report);
        self.flush_stale(&pin, &mut stale);
        for _ in 0..report.unmapped {
            self.memory.put(&pin, page);
        }
        self.rmap.wait_for_flushes(&env, page);
        if report.unmapped == 0 {
            return false;
        }
        self.note_removed(&pin, page);
        true
    }

    fn demote_all_of(&self, unpinned: Unpinned<'_>, page: Pfn) -> bool {
        Vm::demote_all_of(self, unpinned, page)
    }

    fn walk_tables(
        &self,
        unpinned: Unpinned<'_>,
        walk: (usize, u32),
        used: &mut dyn FnMut(Pfn),
    ) -> Walked {
        Vm::walk_tables(self, unpinned, walk, used)
    }

    fn give_back_frames(&self, pin: &Pin<'_>) -> u64 {
        Vm::give_back_frames(self, pin, AtHand::Kept)
    }

    fn make_room_for_nodes(&self) -> bool {
        R::MAKES_ROOM && self.rmap.make_room(&self.env(&self.pin()), self)
    }

    fn make_low_room(&self, unpinned: Unpinned<'_>, times: u32) -> Option<bool> {
        if !uses_windows::<F>() || !self.memory.take_low_missed() {
            return None;
        }
        let most = self.memory.tables_to_move(&self.pin_by(&unpinned));
        Some(self.move_tables_up(unpinned, most.saturating_mul(1 << times)) > 0)
    }

    fn is_rescued(&self, unpinned: Unpinned<'_>, lack: Lack) -> bool {
        Vm::is_rescued(self, unpinned, lack)
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Mappings::zap_copies`] of one region, the lock of the object's regions held.
    /// Breaks if there was something to clear, which is in `lost` then: there
    /// may be more.
    fn zap_copies_in<'p>(
        &'p self,
        pin: &'p Pin<'p>,
        region: &Region<R>,
        first: u64,
        lost: &mut Option<Lost<'p, P>>,
    ) -> ControlFlow<()> {
        let view = region.view();
        if view.is_shared() {
            return ControlFlow::Continue(());
        }
        let space = self.live_at(region.space());
        let skipped = first.saturating_sub(region.first_index());
        let range = PageRange {
            start: view.range.start.offset(skipped),
            end: view.range.end,
        };
        let is_copy = |entry| match entry {
            Entry::Leaf(pfn) => {
                pfn != self.zero_page && self.memory.frame(pfn).kind() == Kind::Anonymous
            }
            // Private pages only go to swap.
            Entry::Swap(_) | Entry::Lost => true,
            Entry::Empty | Entry::Table(_) | Entry::Guard => false,
        };
        let zap = Zap {
            vm: self,
            pin,
            space,
            region,
            users: Users::Hardware,
        };
        let tables = self.tables(pin, space);
        for span in tables.spans(range) {
            let (gather, _) = lost.get_or_insert_with(|| self.lose(pin, space));
            let rest = zap.some(&span, gather, &is_copy);
            tables.unlink_if_empty(span.table, gather);
            if rest.is_some() {
                break;
            }
        }
        let Some((gather, _)) = lost else {
            return ControlFlow::Continue(());
        };
        region.lose();
        if gather.is_empty() {
            // The next region may be another space's.
            *lost = None;
            return ControlFlow::Continue(());
        }
        Self::note_move(space, gather);
        self.count_tables(pin, space, 0, gather.tables_freed());
        ControlFlow::Break(())
    }

    fn clear_dirty_marks(&self, pin: &Pin<'_>, page: Pfn) {
        let frame = self.memory.frame(page);
        if frame.counts().maps() == 0 {
            return;
        }
        let env = self.env(pin);
        let mut stale = Stale::new();
        loop {
            let mut more = false;
            self.rmap.visit::<P, F>(&env, self, page, &mut |slot| {
                if stale.is_full() {
                    more = true;
                    return Verdict::Stop;
                }
                let taken = self.take_away(self.live_at(slot.space()));
                if slot.take_dirty() {
                    if F::SOFT_DIRTY == 0 {
                        self.note_lost(pin, self.live_at(slot.space()), slot.page());
                    }
                    frame.page().set_if_clear(PageFlags::DIRTY);
                    stale.push(StaleEntry {
                        space: slot.space(),
                        page: slot.page(),
                        emptied: None,
                        taken,
                    });
                }
                Verdict::Keep
            });
            self.flush_stale(pin, &mut stale);
            if !more {
                return;
            }
        }
    }
}
