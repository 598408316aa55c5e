//! What an operation changes in the model of one space.

use vellum_engine::{Advice, FileSlot};

use super::Space;
use crate::replay::regions::Region;
use crate::verify::word::Page;

impl Space {
    /// Ranges where pages of `file` from `pages` on are mapped.
    pub fn mapped_past(&self, file: FileSlot, pages: u64) -> Vec<(u64, u64)> {
        let past = |region: &Region| {
            let (mapped, first) = region.file_page(region.start)?;
            let last = first + (region.end - region.start);
            if mapped != file || last <= pages {
                return None;
            }
            Some((region.start + pages.saturating_sub(first), region.end))
        };
        self.regions.iter().filter_map(past).collect()
    }

    /// Touched pages in `start..end`, ascending.
    pub fn touched_in(&self, start: u64, end: u64) -> Vec<u64> {
        self.touched.range(start..end).copied().collect()
    }

    pub(super) fn drop_pages(&mut self, start: u64, end: u64) {
        for page in self.touched_in(start, end) {
            self.touched.remove(&page);
            self.private.remove(&page);
        }
    }

    pub(super) fn remap(&mut self, old: (u64, u64), new: (u64, u64)) {
        let kept = (new.1 - new.0).min(old.1 - old.0);
        self.drop_pages(old.0 + kept, old.1);
        self.regions.remove(old.0 + kept, old.1);
        let moved = self.regions.remove(old.0, old.0 + kept);
        let pages: Vec<(u64, Option<Page>)> = self
            .touched_in(old.0, old.0 + kept)
            .into_iter()
            .map(|page| (page, self.private.remove(&page)))
            .collect();
        for (page, _) in &pages {
            self.touched.remove(page);
        }
        self.drop_pages(new.0, new.1);
        let last = moved.len().saturating_sub(1);
        for (index, part) in moved.iter().enumerate() {
            let mut part = part.moved_to(new.0 + (part.start - old.0));
            if index == last {
                part.end = new.1;
            }
            self.regions.insert(part);
        }
        for (page, content) in pages {
            let page = new.0 + (page - old.0);
            self.touched.insert(page);
            if let Some(content) = content {
                self.private.insert(page, content);
            }
        }
    }

    /// The heap's last known end, or `start` if it has none yet.
    pub fn heap_end(&self, start: u64) -> u64 {
        self.heap.map_or(start, |(_, end)| end)
    }

    pub(super) fn brk(&mut self, start: u64, end: u64) {
        let before = self.heap_end(start);
        self.heap = Some((start, end));
        let (low, high) = (before.min(end), before.max(end));
        self.drop_pages(low, high);
        self.regions.remove(low, high);
        if end > before {
            self.regions.insert(Region::anonymous(before, end));
        }
    }

    pub(super) fn advise(&mut self, start: u64, end: u64, advice: Advice) {
        match advice {
            Advice::DontNeed => self.drop_pages(start, end),
            Advice::Free => {
                for (_, page) in self.private.range_mut(start..end) {
                    for word in &mut page.words {
                        word.allow_zero();
                    }
                }
            }
            // What pages hold is what it was.
            Advice::Cold | Advice::PageOut | Advice::Folio(_) => {}
        }
    }
}
