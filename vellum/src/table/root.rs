//! Making and giving back the root of a space's tables.
//!
//! Usually a root is one empty table. Where processors keep the entries of the root
//! that they have loaded ([`Format::FIXED_ROOT`]), an entry that is filled later would
//! not be seen. So a root is made with all the tables that it leads to, and keeps them,
//! empty or not, until it goes.

use super::format::Format;
use super::pages::{Chain, TablePages, Wanted};
use super::reach::table_words;
use super::walk::Tables;
use crate::addr::{Pfn, Vpn};
use crate::frame::{OutOfMemory, PhysicalMemory, Site};
use crate::platform::{Machine, Zone};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

impl<P: Machine, F: Format> Tables<'_, P, F> {
    /// Tables that [`Tables::make_root`] makes: the root, and those that it leads to
    /// for good if processors keep its entries ([`Format::FIXED_ROOT`]).
    pub const ROOT_TABLES: u32 = {
        assert!(
            !F::FIXED_ROOT || F::LEVELS > 2 && F::MAX_LEAF_LEVEL < F::LEVELS,
            "a fixed root has tables with entries for tables below it"
        );
        let covered = 1 << ((F::LEVELS - 1) * F::INDEX_BITS);
        match F::FIXED_ROOT {
            true => 1 + F::USER_END.0.div_ceil(covered) as u32,
            false => 1,
        }
    };

    /// Tables below this level are unlinked when they are empty, unless more of them are kept.
    pub(crate) const KEPT_FROM: u32 = F::LEVELS - F::FIXED_ROOT as u32;

    /// The level below which tables are unlinked when they are empty; `keeps`: those above the
    /// lowest level stay.
    #[inline]
    pub(crate) fn kept_from(keeps: bool) -> u32 {
        if keeps { 2 } else { Self::KEPT_FROM }
    }

    /// Makes a root table. The platform adds the entries of a kernel half, which are
    /// not counted as live.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn make_root(
        memory: &PhysicalMemory<P>,
        source: &dyn TablePages<P>,
        pin: &Pin<'_>,
        owner: u32,
    ) -> Result<Pfn, OutOfMemory> {
        let take = |level, base| {
            let wanted = Wanted {
                site: Site::RootTable,
                level,
                zone: Zone::Low,
                entry: 0,
            };
            let table = source.take(memory, pin, wanted)?;
            memory.frame(table).init_table(owner, level, base, 0);
            Ok(table)
        };
        let root = take(F::LEVELS, Vpn(0))?;
        for index in 0..Self::ROOT_TABLES - 1 {
            let base = Vpn(u64::from(index) * F::pages_at(F::LEVELS));
            let table = take(F::LEVELS - 1, base).inspect_err(|_| {
                let emptied = Self::empty_root(memory, root);
                for (table, level) in emptied.chain([(root, F::LEVELS)]) {
                    // SAFETY: the table was made for this call, and nobody has seen it.
                    unsafe { source.give_back(memory, pin, table, level) };
                }
            })?;
            let word = &table_words::<F, P>(memory, root)[index as usize];
            word.store(F::table_entry(table, F::LEVELS), Ordering::Relaxed);
            memory.frame(root).table().add_live(1);
        }
        memory.platform().root_made(root);
        Ok(root)
    }

    /// Gives back what [`Tables::make_root`] made.
    ///
    /// # Safety
    /// `root` comes from there, with this format, memory and source. No space can be
    /// found that has it, no CPU has it loaded, and it leads to no other tables than
    /// it was made with.
    pub unsafe fn retire_root(
        memory: &PhysicalMemory<P>,
        source: &dyn TablePages<P>,
        pin: &Pin<'_>,
        root: Pfn,
    ) {
        memory.platform().root_ends(root);
        let mut tables = Chain::of(memory, root.0);
        for (table, _) in Self::empty_root(memory, root) {
            tables.append(memory, table.0);
        }
        memory.uncharge_tables(pin, tables);
        // SAFETY: the caller's promise; the entries of the root were cleared.
        unsafe { source.retire(memory, pin, tables) };
    }

    /// Clears the entries that a root was made with; returns the tables they led to,
    /// and their level.
    fn empty_root(memory: &PhysicalMemory<P>, root: Pfn) -> impl Iterator<Item = (Pfn, u32)> + '_ {
        let words = &table_words::<F, P>(memory, root)[..Self::ROOT_TABLES as usize - 1];
        let entries = words.iter().map(|word| word.swap(0, Ordering::Relaxed));
        let made = entries.filter(|&entry| entry != 0);
        made.map(|entry| (F::frame(entry, F::LEVELS), F::LEVELS - 1))
    }
}
