//! Pages of the directory: lines that are told apart begin there, and end there when their page is
//! written as a whole.

use vellum::platform::NodeId;

use super::Directory;
use crate::line::{By, Line, LineId, NEW, NOBODY};
use crate::places::{LINE, PAGE, PAGE_LINES, Places, Slot, Spot};
use crate::room::Stamp;

impl Directory {
    /// The line at an offset of a place.
    #[inline]
    pub(crate) fn line_at(&mut self, place: u16, offset: usize) -> LineId {
        let (spot, line) = Places::spot(place, offset);
        let page = match *self.places.slot(place, offset) {
            Slot::Lines(page) => page,
            Slot::Untouched => self.begin_page(spot, offset, NOBODY),
            Slot::Filled(core) => self.begin_page(spot, offset, core),
        };
        page * PAGE_LINES as u32 + line as u32
    }

    /// Lines of a page are used one by one from now on, all of which a core has, or nobody.
    #[cold]
    #[inline(never)]
    fn begin_page(&mut self, spot: Spot, offset: usize, owner: u16) -> u32 {
        let used = match owner {
            core if core != NOBODY && self.room.is_limited() => {
                let moved = *self.places.moved(spot.place, offset);
                let core = u32::from(core);
                let cluster = self.topology.cluster_of(core);
                self.room.when_moved(moved, core, cluster)
            }
            _ => Stamp::NONE,
        };
        let page = self.free_pages.pop().unwrap_or_else(|| self.add_page(spot));
        let index = page as usize;
        for line in &mut self.pages[index] {
            let version = line.version;
            *line = Line {
                owner,
                version,
                ..NEW
            };
        }
        if self.room.is_limited() {
            self.used[index] = [used; PAGE_LINES];
        }
        self.spots[index] = spot;
        self.homes[index] = self.places.home(spot.place, Places::offset(spot));
        self.costs.begin_page(page, spot);
        *self.places.slot(spot.place, offset) = Slot::Lines(page);
        page
    }

    /// One more page, of which nothing is known but that it is for a page of a place.
    fn add_page(&mut self, spot: Spot) -> u32 {
        let page = self.pages.len() as u32;
        self.pages.push([NEW; PAGE_LINES]);
        if self.room.is_limited() {
            self.used.push([Stamp::NONE; PAGE_LINES]);
        }
        self.spots.push(spot);
        self.homes.push(NodeId(0));
        page
    }

    /// All of a page is written in bulk, so that its lines need not be told apart, unless somebody
    /// spins on one of them. Returns whether that is so.
    fn end_page(&mut self, place: u16, offset: usize, page: u32) -> bool {
        let lines = &mut self.pages[page as usize];
        if lines.iter().any(|line| line.waiters != NOBODY) {
            return false;
        }
        for line in lines {
            // Whoever has loaded it has nothing to wait for there any more.
            line.version = line.version.wrapping_add(1);
            match line.sharers() {
                0 => {}
                set => self.sharers.free(set),
            }
        }
        self.recent.forget_page(self.places.address(place, offset));
        self.free_pages.push(page);
        true
    }

    /// Bytes of a page are moved in bulk by a core. Returns whether its caches have the page.
    /// They have it afterwards, unless it goes `around` them.
    pub(crate) fn is_cached(
        &mut self,
        (place, offset): (u16, usize),
        bytes: u64,
        core: u32,
        around: bool,
    ) -> bool {
        if !around {
            self.room.fetch(core, bytes);
        }
        if !self.room.has_pages() {
            return false;
        }
        let cluster = self.topology.cluster_of(core);
        let page = self.places.moved(place, offset);
        self.room.move_page(page, bytes, cluster, around)
    }

    /// Bytes of a place were written in bulk, until `at`. Calls `woken` with each line
    /// that somebody spins on.
    pub(crate) fn fill(
        &mut self,
        (place, offset): (u16, usize),
        bytes: usize,
        by: By,
        at: u64,
        mut woken: impl FnMut(&mut Directory, LineId),
    ) {
        let end = offset + bytes.min(self.places.left(place, offset));
        let mut from = offset;
        while from < end {
            let to = end.min((from / PAGE + 1) * PAGE);
            let slot = *self.places.slot(place, from);
            let has_no_lines = match slot {
                _ if to - from < PAGE => false,
                Slot::Lines(page) => self.end_page(place, from, page),
                Slot::Untouched | Slot::Filled(_) => true,
            };
            if has_no_lines {
                if !matches!(slot, Slot::Filled(_)) {
                    self.places.discard(place, from);
                }
                *self.places.slot(place, from) = Slot::Filled(by.core as u16);
            } else {
                for offset in (from..to).step_by(LINE) {
                    let id = self.line_at(place, offset);
                    self.take_over(id, by, at);
                    woken(self, id);
                }
            }
            from = to;
        }
    }

    fn take_over(&mut self, id: LineId, by: By, at: u64) {
        let set = self.line_of(id).sharers();
        if set != 0 {
            self.sharers.free(set);
        }
        self.stamp(id, by.core);
        let line = self.line(id);
        line.own(by, by.now);
        line.words = u8::MAX;
        line.version = line.version.wrapping_add(1);
        line.free_at = line.free_at.max(at);
    }
}
