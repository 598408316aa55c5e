//! Room for the nodes of reverse mapping: entries that a fault would make again are
//! cleared, because their nodes are needed for others.

use crate::addr::{Pfn, Vpn};
use crate::frame::{Kind, PageFlags};
use crate::platform::Platform;
use crate::rmap::{Cleared, ClearsEntries, ReverseMap, Verdict};
use crate::space::locks::stale::{Stale, StaleEntry};
use crate::space::state::manager::Vm;
use crate::sync::{Pin, Turn};
use crate::table::Format;

/// Entries that are cleared before their CPUs are flushed.
const BATCH: usize = 32;

/// Pages whose entries were cleared and that still have the entries' references.
struct Lost<'a> {
    pages: [(Pfn, bool); BATCH],
    count: usize,
    stale: Stale<'a>,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Clears the entry at `page` of a space if it maps a page of an object that nobody
    /// has pinned, in no locked range. Its reference to the page goes to `lost`.
    fn clear_entry<'a>(&'a self, pin: &Pin<'_>, handle: u32, page: Vpn, lost: &mut Lost<'a>) {
        let space = self.live_at(handle);
        let Some(tables) = self.tables_if_any(pin, space) else {
            return;
        };
        let (entry, (_, level)) = tables.find(page);
        if level != 1 || !F::is_mapped(entry) {
            return;
        }
        let pfn = F::frame(entry, level);
        let Some(frame) = self.managed(pfn) else {
            return;
        };
        if !frame.try_get(Turn::at(pin, pfn.0)) {
            return;
        }
        if frame.kind() == Kind::Object && frame.counts().pins() == 0 {
            let mut dirty = false;
            let report = self
                .rmap
                .visit::<P, F>(&self.env(pin), self, pfn, &mut |slot| {
                    let is_other = slot.space() != handle || slot.page() != page;
                    let stays = self.is_locked(pin, space, page) || Self::is_watched(slot.entry());
                    if is_other || slot.is_large() || stays {
                        return Verdict::Keep;
                    }
                    let taken = self.take_away(space);
                    dirty = self.clear_noted(pin, space, slot, true);
                    if dirty {
                        // Before the entry leaves the reverse mapping: a sync finds the mark
                        // there or here.
                        frame.page().set_if_clear(PageFlags::DIRTY);
                    }
                    lost.stale.push(StaleEntry {
                        space: handle,
                        page,
                        emptied: slot.emptied(),
                        taken,
                    });
                    let kind = self.cache_kind(frame.owner());
                    self.count_resident(pin, space, kind, u64::MAX);
                    Verdict::Unmapped
                });
            if report.unmapped > 0 {
                lost.pages[lost.count] = (pfn, dirty);
                lost.count += 1;
            }
        }
        self.memory.put(pin, pfn);
    }

    /// Flushes what was cleared and lets go of the pages.
    fn let_go_of(&self, pin: &Pin<'_>, lost: &mut Lost<'_>) {
        self.flush_stale(pin, &mut lost.stale);
        for &(pfn, dirty) in &lost.pages[..lost.count] {
            if dirty {
                // A CPU may have stored to the page until the flush.
                self.memory.frame(pfn).page().set_if_clear(PageFlags::DIRTY);
            }
            self.memory.put(pin, pfn);
        }
        lost.count = 0;
    }
}

impl<P: Platform, F: Format, R: ReverseMap> ClearsEntries for Vm<P, F, R> {
    fn clear(&self, pin: &Pin<'_>, space: u32, pages: &[Vpn]) -> Cleared {
        let tables_before = self.events(pin).tables_freed.get();
        let mut lost = Lost {
            pages: [(Pfn::NONE, false); BATCH],
            count: 0,
            stale: Stale::new(),
        };
        let mut entries = 0;
        for &page in pages {
            self.clear_entry(pin, space, page, &mut lost);
            if lost.count == BATCH {
                entries += BATCH as u32;
                self.let_go_of(pin, &mut lost);
            }
        }
        entries += lost.count as u32;
        self.let_go_of(pin, &mut lost);
        let tables = self.events(pin).tables_freed.get() - tables_before;
        Cleared {
            entries,
            tables: tables as u32,
        }
    }
}
