//! A place in the tables of one space that moves with its caller.

use super::format::Format;
use super::gather::Gather;
use super::locked::LockedTable;
use super::walk::Tables;
use crate::addr::{PageRange, Vpn};
use crate::frame::OutOfMemory;
use crate::platform::Machine;

/// Keeps the table it is at locked, so that pages that lie close together cost
/// one walk and one lock for all of a table's pages, although they are asked
/// for one at a time.
///
/// It holds at most one table, and lets go of it before it locks another. When
/// it has unlinked one, it also keeps the table above locked, as long as the
/// pages that follow leave further tables below it empty: each of those then
/// costs one lock and no walk from the root. The lower tables are locked without
/// waiting then, since the order is the lower level first.
///
/// While it holds a table nobody else can lock that, the caller neither:
/// [`Cursor::leave`] before anything that may fault or take long.
pub struct Cursor<'t, 'a, P: Machine, F: Format> {
    tables: &'t Tables<'a, P, F>,
    held: Option<LockedTable<'a, F>>,
    /// The table above the one that was unlinked last, and the pages that it
    /// covers. If a table is held as well, it is one of those below this.
    above: Option<(LockedTable<'a, F>, PageRange)>,
    /// Level of the table held, 0 if there is none, and the pages that it covers.
    level: u32,
    covers: PageRange,
    made: u32,
}

impl<'t, 'a, P: Machine, F: Format> Cursor<'t, 'a, P, F> {
    /// At no table yet.
    pub fn new(tables: &'t Tables<'a, P, F>) -> Self {
        Cursor {
            tables,
            held: None,
            above: None,
            level: 0,
            covers: PageRange::default(),
            made: 0,
        }
    }

    /// The table that holds the leaf for `page`, or would hold it at level 1,
    /// locked; `None` if there is no such table. What [`Tables::lock`] gives.
    #[inline]
    pub fn find(&mut self, page: Vpn) -> Option<&LockedTable<'a, F>> {
        // Of a table further up the page may have a lower one of its own.
        if self.level != 1 || !self.covers.contains(page) {
            let table = match self.step_down(page) {
                Some(table) => table,
                None => {
                    self.leave();
                    self.tables.lock(page)?
                }
            };
            self.note(&table);
            self.held = Some(table);
        }
        self.held.as_ref()
    }

    /// The level-1 table for `page`, locked, if it is below the table that the
    /// last one was unlinked from, and can be had at once.
    #[inline]
    fn step_down(&mut self, page: Vpn) -> Option<LockedTable<'a, F>> {
        self.held = None;
        let (above, covers) = self.above.as_ref()?;
        if !covers.contains(page) {
            return None;
        }
        self.tables.try_lock_below(above, page)
    }

    /// The table for a leaf at `level` for `page`, locked, with the tables
    /// that were missing made. What [`Tables::lock_or_make_at`] gives: the
    /// table may be a higher one, if a larger leaf covers the page already.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing was linked.
    #[inline]
    pub fn find_or_make(
        &mut self,
        page: Vpn,
        level: u32,
    ) -> Result<&LockedTable<'a, F>, OutOfMemory> {
        if self.level != level || !self.covers.contains(page) {
            self.leave();
            let table = self.tables.lock_or_make_at(page, level, &mut self.made)?;
            self.note(&table);
            return Ok(self.held.insert(table));
        }
        // A level is noted of a table that is held only.
        self.held.as_ref().ok_or(OutOfMemory)
    }

    /// Maps `page`, whose entry is empty, by `leaf` at level 1. If its table is
    /// missing, the new one is not locked: it is linked with the entry in it,
    /// and need not be in the cache (`Tables::link_leaf`). `false`, and
    /// nothing was mapped, if the entry is not empty or a larger leaf covers
    /// the page.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing was linked.
    #[inline]
    pub fn map(&mut self, page: Vpn, leaf: u64) -> Result<bool, OutOfMemory> {
        if self.level != 1 || !self.covers.contains(page) {
            self.leave();
            let (entry, lowest) = self.tables.find(page);
            if lowest.1 > 1 && entry == 0 {
                let made = self.tables.link_leaf(page, lowest, leaf)?;
                if made > 0 {
                    self.made += made;
                    return Ok(true);
                }
            }
        }
        let table = self.find_or_make(page, 1)?;
        let index = F::index(page, 1);
        if table.level() != 1 || table.load(index) != 0 {
            return Ok(false);
        }
        table.fill(index, leaf);
        table.count_made(1);
        Ok(true)
    }

    /// Frees the table held if nothing is left in it, and each above that
    /// becomes empty by it.
    #[inline]
    pub fn unlink_if_empty(&mut self, gather: &mut Gather<'_, P>) {
        let Some(table) = &self.held else { return };
        if table.live() > 0 {
            self.above = None;
            return;
        }
        match &self.above {
            Some((above, _)) if above.live() > 1 && table.is_unused() => {
                table.end_reservation(self.tables.memory, self.tables.pin);
                let dead = Tables::<P, F>::unlink(table, above);
                self.held = None;
                self.level = 0;
                gather.table(dead);
            }
            _ => self.unlink_up(gather),
        }
    }

    /// Frees the empty table held, and those above that become empty by it.
    #[inline(never)]
    fn unlink_up(&mut self, gather: &mut Gather<'_, P>) {
        let above = self.above.take().map(|(above, _)| above);
        self.level = 0;
        if let Some(table) = self.held.take() {
            let rest = self.tables.unlink_up(table, above, gather);
            if rest.level() == 2 {
                let covers = self.covered(&rest);
                self.above = Some((rest, covers));
            }
        }
    }

    /// Lets go of what is held.
    #[inline]
    pub fn leave(&mut self) {
        self.held = None;
        self.above = None;
        self.level = 0;
    }

    /// Tables made so far.
    pub fn made(&self) -> u32 {
        self.made
    }

    fn note(&mut self, table: &LockedTable<'a, F>) {
        self.level = table.level();
        self.covers = self.covered(table);
    }

    /// The pages that a table covers.
    fn covered(&self, table: &LockedTable<'a, F>) -> PageRange {
        PageRange::new(table.base(), F::pages_at(table.level() + 1))
    }
}
