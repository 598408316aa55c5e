//! The mappings of address spaces, each with what a program did with it.
//!
//! A mapping is what one `mmap` made, what `brk` has grown, or what the kernel mapped for a new
//! program, wherever it is moved and whatever of it is unmapped. Units are pages of 4 KiB.

use std::collections::BTreeMap;

use vellum_trace::FileId;

/// The page of an address.
pub const PAGE: u64 = 4096;

/// What a mapping is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum What {
    /// What `brk` moves.
    Heap,
    /// The stack of a process.
    Stack,
    /// Private memory that was mapped with this many pages, in powers of two rounded up.
    Anonymous(u32),
    /// Memory that processes share.
    Shared,
    /// A file.
    File(FileId),
}

/// Why a page that was touched is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// `brk` gave it up.
    Brk,
    /// It was unmapped.
    Unmapped,
    /// `madvise` gave it up.
    Advised,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    There,
    Gone(Gone),
}

/// A mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// What it is.
    pub what: What,
    /// Its command, by number.
    pub command: usize,
    /// Pages that it was made with, or grew to.
    pub pages: u64,
    /// Pages of it that were touched first.
    pub touched: u64,
}

#[derive(Clone, Copy, Debug)]
struct Area {
    end: u64,
    mapping: usize,
}

/// One address space.
#[derive(Clone, Default, Debug)]
pub struct Space {
    areas: BTreeMap<u64, Area>,
    /// Private pages that this space has touched, since it is not a copy.
    pages: BTreeMap<u64, Page>,
    heap: Option<u64>,
    /// Mappings from here on are its own; those before it has from a fork.
    own_from: usize,
    /// Private pages that it has, those that it was forked with included.
    pub resident: u64,
    /// The command that runs in it, by number.
    pub command: usize,
    /// The last anonymous mapping that was made: pages and rights.
    last: Option<(u64, u8)>,
}

/// What a first touch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The mapping.
    pub what: What,
    /// Whether the page had been touched, and why it was gone.
    pub again: Option<Gone>,
}

/// All mappings that ever were, and what is made of them.
#[derive(Default, Debug)]
pub struct Mappings(Vec<Mapping>);

impl Mappings {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.0.iter()
    }

    fn add(&mut self, what: What, command: usize, pages: u64) -> usize {
        self.0.push(Mapping {
            what,
            command,
            pages,
            touched: 0,
        });
        self.0.len() - 1
    }
}

impl Space {
    /// An empty one, in which command number `command` runs.
    pub fn running(command: usize) -> Space {
        Space {
            command,
            ..Space::default()
        }
    }

    /// A copy by fork: its mappings are those of the original, and what it does with them is
    /// not counted as theirs.
    pub fn fork(&self, mappings: &Mappings) -> Space {
        Space {
            areas: self.areas.clone(),
            pages: BTreeMap::new(),
            heap: self.heap,
            own_from: mappings.0.len(),
            resident: self.resident,
            command: self.command,
            last: None,
        }
    }

    /// Maps `first..end`. Whether the mapping before was private memory, too, of the same size
    /// and rights.
    pub fn map(
        &mut self,
        mappings: &mut Mappings,
        (first, end): (u64, u64),
        what: What,
        prot: u8,
    ) -> bool {
        self.remove(first, end, Gone::Unmapped);
        let mapping = mappings.add(what, self.command, end - first);
        self.areas.insert(first, Area { end, mapping });
        let now = matches!(what, What::Anonymous(_)).then_some((end - first, prot));
        let is_another = now.is_some() && self.last == now;
        self.last = now;
        is_another
    }

    /// Nothing is mapped in `first..end` any more. Whether private pages were touched there.
    pub fn remove(&mut self, first: u64, end: u64, why: Gone) -> bool {
        self.cut(first);
        self.cut(end);
        let inside: Vec<u64> = self.areas.range(first..end).map(|area| *area.0).collect();
        for start in inside {
            self.areas.remove(&start);
        }
        self.give_up(first, end, why) > 0
    }

    /// Private pages in `first..end` are given up: how many.
    pub fn give_up(&mut self, first: u64, end: u64, why: Gone) -> u64 {
        let mut given = 0;
        for (_, page) in self.pages.range_mut(first..end.max(first)) {
            if *page == Page::There {
                *page = Page::Gone(why);
                given += 1;
            }
        }
        self.resident = self.resident.saturating_sub(given);
        given
    }

    /// The mapping at `from` is moved.
    pub fn relocate(&mut self, mappings: &mut Mappings, from: (u64, u64), to: (u64, u64)) {
        let Some(area) = self.area(from.0) else {
            return;
        };
        let mapping = area.mapping;
        let kept = (to.1 - to.0).min(from.1 - from.0);
        let moved: Vec<(u64, Page)> = self
            .pages
            .range(from.0..from.0 + kept)
            .map(|(page, state)| (*page, *state))
            .collect();
        self.remove(from.0, from.1, Gone::Unmapped);
        self.remove(to.0, to.1, Gone::Unmapped);
        for (page, state) in moved {
            self.pages.remove(&page);
            if state == Page::There {
                self.resident += 1;
                self.pages.insert(page - from.0 + to.0, state);
            }
        }
        self.areas.insert(to.0, Area { end: to.1, mapping });
        if mapping >= self.own_from {
            let mapping = &mut mappings.0[mapping];
            mapping.pages = mapping.pages.max(to.1 - to.0);
        }
    }

    /// The heap ends at the address `end` now. The first one is where it begins.
    pub fn brk(&mut self, mappings: &mut Mappings, end: u64) {
        let end = end.div_ceil(PAGE);
        let Some(old) = self.heap.replace(end) else {
            return;
        };
        if end < old {
            self.remove(end, old, Gone::Brk);
        } else if end > old {
            let before = old.checked_sub(1).and_then(|page| self.area(page)).copied();
            let is_heap = |area: &Area| mappings.0[area.mapping].what == What::Heap;
            let own = |area: &Area| area.mapping >= self.own_from && is_heap(area);
            let mapping = match before.filter(own) {
                Some(area) => area.mapping,
                None => mappings.add(What::Heap, self.command, 0),
            };
            mappings.0[mapping].pages += end - old;
            self.areas.insert(old, Area { end, mapping });
        }
    }

    /// A page that was not there is touched; `None` where no mapping is known.
    pub fn touch(&mut self, mappings: &mut Mappings, page: u64) -> Option<Touch> {
        let (mapping, what) = match self.area(page) {
            Some(area) => (area.mapping, mappings.0[area.mapping].what),
            // A stack grows down to where it is touched.
            None => {
                let (&start, &area) = self.areas.range(page..).next()?;
                let what = mappings.0[area.mapping].what;
                if what != What::Stack {
                    return None;
                }
                self.areas.remove(&start);
                self.areas.insert(page, area);
                (area.mapping, what)
            }
        };
        if matches!(what, What::File(_) | What::Shared) {
            return Some(Touch { what, again: None });
        }
        let again = match self.pages.insert(page, Page::There) {
            Some(Page::Gone(why)) => Some(why),
            _ => None,
        };
        self.resident += 1;
        if again.is_none() && mapping >= self.own_from {
            mappings.0[mapping].touched += 1;
        }
        Some(Touch { what, again })
    }

    /// What is mapped at `page`.
    pub fn what(&self, mappings: &Mappings, page: u64) -> Option<What> {
        Some(mappings.0[self.area(page)?.mapping].what)
    }

    fn area(&self, page: u64) -> Option<&Area> {
        let (_, area) = self.areas.range(..=page).next_back()?;
        (page < area.end).then_some(area)
    }

    /// No area goes across `page` afterwards.
    fn cut(&mut self, page: u64) {
        let found = self.areas.range_mut(..page).next_back();
        if let Some((_, area)) = found.filter(|found| found.1.end > page) {
            let rest = *area;
            area.end = page;
            self.areas.insert(page, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: What = What::Anonymous(4);

    #[test]
    fn a_mapping_keeps_its_touches_where_it_is_split_and_moved() {
        let (mut space, mut all) = (Space::default(), Mappings::default());
        assert!(!space.map(&mut all, (10, 20), WHAT, 3));
        for page in [10, 11, 15, 19] {
            let touch = space.touch(&mut all, page).expect("mapped");
            assert_eq!((touch.what, touch.again), (WHAT, None));
        }
        space.remove(11, 15, Gone::Unmapped);
        assert_eq!(space.touch(&mut all, 12), None);
        space.relocate(&mut all, (15, 20), (40, 45));
        space.touch(&mut all, 41);
        assert_eq!(space.what(&all, 40), Some(WHAT));
        assert_eq!(space.what(&all, 15), None);
        assert_eq!(all.iter().map(|one| one.touched).sum::<u64>(), 5);
        assert_eq!(space.resident, 4);
    }

    #[test]
    fn a_page_that_was_given_up_is_touched_again() {
        let (mut space, mut all) = (Space::default(), Mappings::default());
        space.brk(&mut all, 100 * PAGE);
        space.brk(&mut all, 110 * PAGE);
        space.touch(&mut all, 105);
        space.brk(&mut all, 104 * PAGE);
        assert_eq!(space.resident, 0);
        space.brk(&mut all, 108 * PAGE);
        let again = |space: &mut Space, all: &mut Mappings, page| {
            space.touch(all, page).expect("mapped").again
        };
        assert_eq!(again(&mut space, &mut all, 105), Some(Gone::Brk));
        assert_eq!(space.give_up(100, 200, Gone::Advised), 1);
        assert_eq!(again(&mut space, &mut all, 105), Some(Gone::Advised));
        assert!(space.remove(100, 108, Gone::Unmapped));
        assert!(
            space.map(&mut all, (100, 104), WHAT, 3) || space.map(&mut all, (104, 108), WHAT, 3)
        );
        assert_eq!(again(&mut space, &mut all, 105), Some(Gone::Unmapped));
    }

    #[test]
    fn what_a_child_touches_is_not_counted_for_its_parents_mapping() {
        let (mut parent, mut all) = (Space::default(), Mappings::default());
        parent.map(&mut all, (0, 8), WHAT, 3);
        parent.touch(&mut all, 1);
        let mut child = parent.fork(&all);
        assert_eq!(child.resident, 1);
        assert!(child.touch(&mut all, 2).is_some());
        child.map(&mut all, (8, 16), WHAT, 3);
        child.touch(&mut all, 9);
        let touched: Vec<u64> = all.iter().map(|one| one.touched).collect();
        assert_eq!(touched, [1, 1]);
    }

    #[test]
    fn a_stack_grows_down_to_a_touch() {
        let (mut space, mut all) = (Space::default(), Mappings::default());
        space.map(&mut all, (100, 110), What::Stack, 3);
        assert!(space.touch(&mut all, 98).is_some());
        assert_eq!(space.what(&all, 99), Some(What::Stack));
        space.map(&mut all, (50, 60), WHAT, 3);
        assert_eq!(space.touch(&mut all, 40), None);
    }
}
