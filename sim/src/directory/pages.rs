//! Pages of the directory: lines that are told apart begin there, and end there when their page is
//! written as a whole.

use super::Directory;
use crate::line::{By, Line, LineId, NEW, NOBODY};
use crate::places::{LINE, PAGE_LINES, Places, Slot, Spot};
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
        let home = self.places.home(spot.place, Places::offset(spot));
        let line = Line { owner, ..NEW };
        let page = match self.free_pages.pop() {
            Some(page) => {
                let index = page as usize;
                for before in &mut self.pages[index] {
                    let version = before.version;
                    *before = Line { version, ..line };
                }
                if self.room.is_limited() {
                    self.used[index] = [used; PAGE_LINES];
                }
                self.spots[index] = spot;
                self.homes[index] = home;
                page
            }
            None => {
                if self.room.is_limited() {
                    self.used.push([used; PAGE_LINES]);
                }
                self.pages.push([line; PAGE_LINES]);
                self.spots.push(spot);
                self.homes.push(home);
                self.pages.len() as u32 - 1
            }
        };
        self.costs.begin_page(page, spot);
        *self.places.slot(spot.place, offset) = Slot::Lines(page);
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
        self.places.discard(place, offset);
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
        let page_bytes = PAGE_LINES * LINE;
        let mut from = offset;
        while from < end {
            let to = end.min((from / page_bytes + 1) * page_bytes);
            let is_whole = to - from == page_bytes;
            let is_filled = is_whole
                && match *self.places.slot(place, from) {
                    Slot::Filled(_) => true,
                    Slot::Untouched => {
                        self.places.discard(place, from);
                        true
                    }
                    Slot::Lines(page) => self.end_page(place, from, page),
                };
            if is_filled {
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
