//! A place in the tables of one space that moves with its caller.

use super::format::Format;
use super::gather::Gather;
use super::locked::LockedTable;
use super::walk::Tables;
use crate::addr::{PageRange, Vpn};
use crate::frame::OutOfMemory;
use crate::platform::Platform;

/// Keeps the table it is at locked, so that pages that lie close together cost
/// one walk and one lock for all of a table's pages, although they are asked
/// for one at a time.
///
/// It holds at most one table, and lets go of it before it locks another.
/// While it holds one nobody else can lock that table, the caller neither:
/// [`Cursor::leave`] before anything that may fault or take long.
pub struct Cursor<'t, 'a, P: Platform, F: Format> {
    tables: &'t Tables<'a, P, F>,
    held: Option<LockedTable<'a, F>>,
    /// Level of the table held, and the pages that it covers.
    level: u32,
    covers: PageRange,
    made: u32,
}

impl<'t, 'a, P: Platform, F: Format> Cursor<'t, 'a, P, F> {
    /// At no table yet.
    pub fn new(tables: &'t Tables<'a, P, F>) -> Self {
        Cursor {
            tables,
            held: None,
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
            self.leave();
            let table = self.tables.lock(page)?;
            self.note(&table);
            self.held = Some(table);
        }
        self.held.as_ref()
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
            let (table, made) = self.tables.lock_or_make_at(page, level)?;
            self.made += made;
            self.note(&table);
            return Ok(self.held.insert(table));
        }
        // A level is noted of a table that is held only.
        self.held.as_ref().ok_or(OutOfMemory)
    }

    /// Maps `page`, whose entry is empty, by `leaf` at level 1. If its table is
    /// missing, the new one is not locked: it is linked with the entry in it,
    /// and need not be in the cache ([`Tables::link_leaf`]). `false`, and
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
        if self.held.as_ref().is_some_and(|table| table.live() == 0)
            && let Some(table) = self.held.take()
        {
            self.forget();
            self.tables.unlink_if_empty(table, gather);
        }
    }

    /// Lets go of the table held.
    #[inline]
    pub fn leave(&mut self) {
        self.held = None;
        self.forget();
    }

    /// Tables made so far.
    pub fn made(&self) -> u32 {
        self.made
    }

    fn note(&mut self, table: &LockedTable<'a, F>) {
        self.level = table.level();
        self.covers = PageRange::new(table.page(0), F::pages_at(self.level + 1));
    }

    fn forget(&mut self) {
        self.level = 0;
        self.covers = PageRange::default();
    }
}
