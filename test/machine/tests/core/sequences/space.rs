//! One space of the model: what is mapped at each page, and what is resident.

use std::collections::{BTreeMap, BTreeSet};

use vellum::frame::NodePolicy;

use super::model::{
    Access, Caught, Content, EXECUTE, Key, LOWEST, READ, Refusal, STACK_GAP, WRITE,
};

/// A page that belongs to one space; the number tells it from every other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Private {
    pub number: u64,
    pub content: Content,
    /// Nobody has stored to it since its owner freed it: it may be gone.
    pub freed: bool,
}

/// What is mapped at one page.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Cell {
    pub prot: u8,
    pub shared: bool,
    pub grows: bool,
    pub heap: bool,
    pub locked: bool,
    /// Whether a child has nothing there.
    pub stays: bool,
    /// What fault hooks catch.
    pub hooks: Hooks,
    /// Log2 of the pages of the largest folio that was advised.
    pub folio: Option<u32>,
    /// Where its pages come to lie.
    pub policy: Option<NodePolicy>,
    pub object: Option<Key>,
    /// The frames of the device that it shows, if it does.
    pub frames: Option<Frames>,
    pub index: u64,
}

/// What fault hooks catch.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Hooks {
    pub missing: bool,
    pub stores: bool,
}

impl Hooks {
    pub fn any(self) -> bool {
        self.missing || self.stores
    }
}

/// What a mapping of frames shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frames {
    /// Tells the mapping from others.
    pub mapping: u32,
    /// The frame of the device at index 0.
    pub first: u32,
    pub at_once: bool,
}

impl Cell {
    pub fn allows(&self, access: Access) -> bool {
        let right = match access {
            Access::Read => READ,
            Access::Write => WRITE,
            Access::Execute => EXECUTE,
        };
        self.prot & right != 0
    }

    /// The frame of the device that it shows.
    pub fn frame(&self) -> Option<u32> {
        self.frames.map(|frames| frames.first + self.index as u32)
    }

    /// Whether `next` shows what comes after this.
    fn is_followed_by(&self, next: &Cell) -> bool {
        Cell {
            index: self.index + 1,
            ..*self
        } == *next
    }
}

/// An entry that holds no page of the space's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clean {
    Zero,
    Cached,
    /// A frame of the device.
    Unmanaged,
}

/// A run of equal cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    pub first: Cell,
}

#[derive(Clone, Default, Debug)]
pub struct Space {
    /// First page that cannot be mapped.
    pub user_end: u64,
    pub cells: BTreeMap<u64, Cell>,
    pub private: BTreeMap<u64, Private>,
    pub clean: BTreeMap<u64, Clean>,
    /// Pages whose stores a fault hook catches.
    pub watched: BTreeSet<u64>,
    /// Pages that were written since dirty tracking told of them, or are others.
    pub dirty: BTreeSet<u64>,
    /// Pages that were seen in memory, in locked ranges: they stay there.
    pub stays: BTreeSet<u64>,
    pub heap: (u64, u64),
    pub users: u32,
}

impl Space {
    pub fn check_range(&self, start: u64, pages: u64) -> Result<(), Refusal> {
        let end = start.checked_add(pages).ok_or(Refusal::BadRange)?;
        if pages == 0 || end > self.user_end {
            Err(Refusal::BadRange)
        } else {
            Ok(())
        }
    }

    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut before: Option<&Cell> = None;
        for (&page, cell) in &self.cells {
            let follows = before
                .replace(cell)
                .is_some_and(|before| before.is_followed_by(cell));
            if let Some(run) = runs.last_mut()
                && run.end == page
                && follows
            {
                run.end += 1;
                continue;
            }
            runs.push(Run {
                start: page,
                end: page + 1,
                first: *cell,
            });
        }
        runs
    }

    pub fn is_free(&self, start: u64, pages: u64) -> bool {
        self.cells.range(start..start + pages).next().is_none()
    }

    pub fn is_covered(&self, start: u64, pages: u64) -> bool {
        self.cells.range(start..start + pages).count() as u64 == pages
    }

    fn forget_entries(&mut self, start: u64, pages: u64) {
        let pages = || start..start + pages;
        self.private.retain(|page, _| !pages().contains(page));
        self.clean.retain(|page, _| !pages().contains(page));
        self.stays.retain(|page| !pages().contains(page));
        self.watched.retain(|page| !pages().contains(page));
    }

    /// Notes which of the pages that the space maps, which `is_here` tells, stay in memory.
    /// Returns one that should have stayed.
    pub fn note_locked(&mut self, is_here: impl Fn(u64) -> bool) -> Option<u64> {
        let locked = self.cells.iter().filter(|(_, cell)| cell.locked);
        let locked = locked.map(|(&page, _)| page);
        let locked: BTreeSet<u64> = locked.filter(|page| self.has(*page)).collect();
        let (here, gone): (BTreeSet<u64>, BTreeSet<u64>) =
            locked.into_iter().partition(|page| is_here(*page));
        let lost = gone.intersection(&self.stays).next().copied();
        self.stays = here;
        lost
    }

    pub fn unmap(&mut self, start: u64, pages: u64) {
        self.forget_entries(start, pages);
        self.dirty
            .retain(|page| !(start..start + pages).contains(page));
        self.cells
            .retain(|page, _| !(start..start + pages).contains(page));
    }

    /// Why the first page of a range refuses advice that does, which may be to free.
    pub fn refuses_advice(&self, start: u64, pages: u64, frees: bool) -> Result<(), Refusal> {
        for (_, cell) in self.cells.range(start..start + pages) {
            if cell.locked {
                return Err(Refusal::Locked);
            }
            if cell.frames.is_some() || frees && cell.object.is_some() {
                return Err(Refusal::WrongKind);
            }
        }
        Ok(())
    }

    pub fn place(
        &mut self,
        start: u64,
        pages: u64,
        policy: Option<NodePolicy>,
    ) -> Result<(), Refusal> {
        self.change(start, pages, |cell| cell.policy = policy)
    }

    pub fn inherit(&mut self, start: u64, pages: u64, forks: bool) -> Result<(), Refusal> {
        self.change(start, pages, |cell| cell.stays = !forks)
    }

    pub fn lock(&mut self, start: u64, pages: u64, locked: bool) -> Result<(), Refusal> {
        self.change(start, pages, |cell| {
            cell.locked = locked && cell.frames.is_none();
        })
    }

    /// Changes all cells of a range, or none.
    fn change(
        &mut self,
        start: u64,
        pages: u64,
        change: impl Fn(&mut Cell),
    ) -> Result<(), Refusal> {
        self.check_range(start, pages)?;
        if !self.is_covered(start, pages) {
            return Err(Refusal::NotMapped);
        }
        for (_, cell) in self.cells.range_mut(start..start + pages) {
            change(cell);
        }
        Ok(())
    }

    /// Whether there is a page, in memory or in swap, as far as the space's own entries say.
    pub fn has(&self, page: u64) -> bool {
        self.private.contains_key(&page) || self.clean.contains_key(&page)
    }

    /// What a fault hook catches of an access to a page that is mapped.
    pub fn caught(&self, page: u64, access: Access) -> Option<Caught> {
        let cell = &self.cells[&page];
        if cell.hooks.missing && cell.object.is_none() && !self.has(page) {
            return Some(Caught::Missing);
        }
        let is_watched = access == Access::Write && self.watched.contains(&page);
        is_watched.then_some(Caught::Store)
    }

    /// Gives a range fault hooks.
    pub fn register(
        &mut self,
        start: u64,
        pages: u64,
        hooks: Hooks,
        is_memory: impl Fn(&Cell) -> bool,
    ) -> Result<(), Refusal> {
        self.change(start, pages, |_| ())?;
        let mut cells = self.cells.range(start..start + pages);
        if hooks.any() && !cells.all(|(_, cell)| is_memory(cell)) {
            return Err(Refusal::WrongKind);
        }
        if !hooks.stores {
            self.unwatch(start, pages);
        }
        self.change(start, pages, |cell| cell.hooks = hooks)
    }

    pub fn unwatch(&mut self, start: u64, pages: u64) {
        let range = start..start + pages;
        self.watched.retain(|page| !range.contains(page));
    }

    /// Whether stores are caught in a range.
    pub fn may_watch(&self, start: u64, pages: u64) -> Result<(), Refusal> {
        self.check_range(start, pages)?;
        let mut cells = self.cells.range(start..start + pages);
        match self.is_covered(start, pages) && cells.all(|(_, cell)| cell.hooks.stores) {
            true => Ok(()),
            false => Err(Refusal::NotHooked),
        }
    }

    pub fn dont_need(&mut self, start: u64, pages: u64) {
        self.forget_entries(start, pages);
        self.soil(start, pages);
    }

    /// All that is mapped in a range counts as written.
    pub fn soil(&mut self, start: u64, pages: u64) {
        let cells = self.cells.range(start..start + pages);
        let managed = cells.filter(|(_, cell)| cell.frames.is_none());
        self.dirty.extend(managed.map(|(&page, _)| page));
    }

    pub fn free(&mut self, start: u64, pages: u64) {
        for (page, private) in self.private.range_mut(start..start + pages) {
            private.freed |= self.cells[page].object.is_none();
        }
        self.soil(start, pages);
    }

    pub fn fill(&mut self, start: u64, pages: u64, first: Cell) {
        for step in 0..pages {
            let cell = Cell {
                index: first.index + step,
                ..first
            };
            self.cells.insert(start + step, cell);
        }
        self.soil(start, pages);
    }

    /// Whether a mapping that ends at `end` leaves the next stack its gap.
    pub fn keeps_off_stacks(&self, end: u64) -> bool {
        let above = self.cells.range(end..).next();
        above.is_none_or(|(&page, cell)| !cell.grows || page - end >= STACK_GAP)
    }

    /// The highest gap of `pages` pages.
    pub fn highest_gap(&self, pages: u64) -> Option<u64> {
        let mut end = self.user_end - 1;
        for (&page, cell) in self.cells.iter().rev() {
            if page < end && end - (page + 1) >= pages {
                break;
            }
            let gap = if cell.grows { STACK_GAP } else { 0 };
            end = (self.user_end - 1).min(page.saturating_sub(gap));
        }
        (end >= LOWEST + pages).then(|| end - pages)
    }

    pub fn protect(&mut self, start: u64, pages: u64, prot: u8) -> Result<(), Refusal> {
        self.check_range(start, pages)?;
        let is_covered = self.is_covered(start, pages);
        let mut cells = self.cells.range(start..start + pages);
        let is_private = |cell: &Cell| cell.frames.is_some() && !cell.shared;
        if is_covered && prot & WRITE != 0 && cells.any(|(_, cell)| is_private(cell)) {
            return Err(Refusal::Rights);
        }
        // A device keeps its memory type.
        self.change(start, pages, |cell| {
            cell.prot = match cell.frames {
                Some(_) => prot & 7 | cell.prot & !7,
                None => prot,
            }
        })
    }

    /// Advises on folios, whose orders are no more than `most`. `None`: there are none.
    pub fn advise_folio(
        &mut self,
        start: u64,
        pages: u64,
        order: Option<u32>,
        most: Option<u32>,
    ) -> Result<(), Refusal> {
        self.change(start, pages, |cell| {
            if let Some(most) = most {
                cell.folio = order.map(|order| order.min(most));
            }
        })
    }

    pub fn set_heap_end(&mut self, end: u64) -> Result<(), Refusal> {
        let (start, old) = self.heap;
        if end < start {
            return Err(Refusal::BadRange);
        }
        if end > old {
            if !self.is_free(old, end - old) || !self.keeps_off_stacks(end) {
                return Err(Refusal::Occupied);
            }
            let cell = Cell {
                prot: READ | WRITE,
                heap: true,
                index: old,
                ..Cell::default()
            };
            self.fill(old, end - old, cell);
        } else {
            self.unmap(end, old - end);
        }
        self.heap.1 = end;
        Ok(())
    }

    /// What a shared mapping shows from `start` on, once more.
    fn map_again(
        &mut self,
        start: u64,
        pages: u64,
        (target, leaves): (Target, bool),
    ) -> Result<(u64, bool), Refusal> {
        let cell = *self.cells.get(&start).ok_or(Refusal::NotMapped)?;
        if !cell.shared || cell.object.is_none() {
            return Err(Refusal::WrongKind);
        }
        let to = match target {
            Target::Fixed(to) => to,
            Target::Anywhere if !leaves => self.highest_gap(pages).ok_or(Refusal::NoGap)?,
            _ => return Err(Refusal::Occupied),
        };
        self.check_range(to, pages)?;
        if leaves || (to..to + pages).contains(&start) {
            return Err(Refusal::BadRange);
        }
        self.unmap(to, pages);
        self.fill(to, pages, cell);
        Ok((to, true))
    }

    /// mremap; `single` says whether the range lies in one region.
    pub fn remap(
        &mut self,
        start: u64,
        pages: u64,
        new_pages: u64,
        (target, leaves): (Target, bool),
        single: bool,
    ) -> Result<(u64, bool), Refusal> {
        self.check_range(start, pages.max(1))?;
        if new_pages == 0 || pages != 0 && leaves && new_pages != pages {
            return Err(Refusal::BadRange);
        }
        if pages == 0 {
            return self.map_again(start, new_pages, (target, leaves));
        }
        if !single {
            return Err(Refusal::NotMapped);
        }
        let run = *self
            .runs()
            .iter()
            .find(|run| run.start <= start && start < run.end)
            .ok_or(Refusal::NotMapped)?;
        if self.cells[&start].frames.is_some() && (new_pages > pages || leaves) {
            return Err(Refusal::WrongKind);
        }
        let target = match target {
            Target::Fixed(to) => to,
            _ if leaves => self.highest_gap(pages).ok_or(Refusal::NoGap)?,
            _ if new_pages <= pages => {
                self.unmap(start + new_pages, pages - new_pages);
                return Ok((start, false));
            }
            target => {
                let at_end = run.end == start + pages;
                let fits = start + new_pages <= self.user_end;
                if at_end && fits && self.is_free(start + pages, new_pages - pages) {
                    let last = self.cells[&(start + pages - 1)];
                    let first = Cell {
                        index: last.index + 1,
                        ..last
                    };
                    self.fill(start + pages, new_pages - pages, first);
                    return Ok((start, false));
                }
                if target != Target::Anywhere {
                    return Err(Refusal::Occupied);
                }
                self.highest_gap(new_pages).ok_or(Refusal::NoGap)?
            }
        };
        self.check_range(target, new_pages)?;
        if target < start + pages && start < target + new_pages {
            return Err(Refusal::BadRange);
        }
        self.unmap(target, new_pages);
        let first = self.cells[&start];
        for step in 0..pages.min(new_pages) {
            if let Some(page) = self.private.remove(&(start + step)) {
                self.private.insert(target + step, page);
            }
            if let Some(entry) = self.clean.remove(&(start + step)) {
                self.clean.insert(target + step, entry);
            }
            if self.watched.remove(&(start + step)) {
                self.watched.insert(target + step);
            }
        }
        self.unmap(start, pages);
        self.fill(target, new_pages, first);
        if leaves {
            // Private memory is where it is, and begins anew there.
            let index = match first.object {
                Some(_) => first.index,
                None => start,
            };
            let left = Cell {
                locked: false,
                index,
                ..first
            };
            self.fill(start, pages, left);
        }
        Ok((target, true))
    }
}

/// Where something goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Anywhere,
    Hint(u64),
    Fixed(u64),
    FixedFree(u64),
}
