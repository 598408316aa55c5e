//! An entry found by a visit, with its table locked.

use super::types::Env;
use crate::addr::{Pfn, Vpn};
use crate::frame::PhysicalMemory;
use crate::platform::Platform;
use crate::sync::bytes;
use crate::table::{
    Contended, Format, LockedTable, Marks, PteRef, SpaceLock, Swapped, Users, table_words,
    uses_windows,
};

/// A page-table entry that maps the visited frame. Whoever edits it does so here.
pub struct Slot<'a, F: Format> {
    table: LockedTable<'a, F>,
    index: usize,
}

impl<'a, F: Format> Slot<'a, F> {
    /// Asks for what [`Slot::open`] will need. Locking keeps a processor from
    /// running ahead, so that it pays to ask for several before the first lock.
    #[inline]
    pub(super) fn prefetch<P: Platform>(memory: &'a PhysicalMemory<P>, pte: PteRef) {
        bytes::prefetch(memory.frame(pte.table));
        if uses_windows::<F>() {
            // Opening a window would cost more than is gained.
            return;
        }
        bytes::prefetch(&table_words::<F, P>(memory, pte.table)[pte.index as usize]);
    }

    /// Locks the table of `pte`, or all of its space if those have one lock, if that needs no
    /// waiting, and checks that the entry maps `frame`; `Ok(None)` if it does not.
    pub(crate) fn open<P: Platform>(
        env: &Env<'a, P>,
        (pte, whole): (PteRef, SpaceLock<'a>),
        frame: Pfn,
    ) -> Result<Option<Self>, Contended> {
        match Self::lock(env, pte, whole)? {
            Some(slot) if slot.maps(frame) => Ok(Some(slot)),
            Some(slot) => match slot.split_entry(frame) {
                Some(pte) => {
                    // The lower table's lock comes first.
                    drop(slot);
                    Ok(Self::lock(env, pte, whole)?.filter(|slot| slot.maps(frame)))
                }
                None => Ok(None),
            },
            None => Ok(None),
        }
    }

    /// [`Slot::open`], waiting for tables, as [`Slot::wait`] does.
    #[cfg(feature = "published")]
    pub(crate) fn open_waiting<P: Platform>(
        env: &Env<'a, P>,
        pte: PteRef,
        frame: Pfn,
        contended: &mut u32,
    ) -> Option<Self> {
        let slot = Self::wait(env, (pte, None), contended)?;
        if slot.maps(frame) {
            return Some(slot);
        }
        let pte = slot.split_entry(frame)?;
        drop(slot);
        Self::wait(env, (pte, None), contended).filter(|slot| slot.maps(frame))
    }

    /// The entry that maps `frame` if this one was a large leaf that did and has been split
    /// since.
    #[cold]
    fn split_entry(&self, frame: Pfn) -> Option<PteRef> {
        let (entry, level) = (self.entry(), self.table.level());
        if level == 1 || !F::is_mapped(entry) || F::is_leaf(entry, level) {
            return None;
        }
        // Large leaves map aligned runs.
        let page = Vpn(u64::from(frame.0));
        Some(PteRef {
            table: F::frame(entry, level),
            index: F::index(page, level - 1) as u16,
        })
    }

    /// Locks the table of `pte` if that needs no waiting; `Ok(None)` if it is
    /// not linked any more. What the entry maps is still to be checked.
    #[inline]
    pub(super) fn lock<P: Platform>(
        env: &Env<'a, P>,
        pte: PteRef,
        whole: SpaceLock<'a>,
    ) -> Result<Option<Self>, Contended> {
        let index = pte.index as usize;
        let locked = LockedTable::try_lock(env.memory, env.pin, pte.table, whole)?;
        Ok(locked.map(|table| Slot { table, index }))
    }

    /// [`Slot::lock`], waiting for the table. The caller holds no lock that comes
    /// after table locks. `contended` counts the tables that were not free.
    #[inline]
    pub(crate) fn wait<P: Platform>(
        env: &Env<'a, P>,
        (pte, whole): (PteRef, SpaceLock<'a>),
        contended: &mut u32,
    ) -> Option<Self> {
        Self::lock(env, pte, whole).unwrap_or_else(|Contended| {
            *contended += 1;
            let index = pte.index as usize;
            let locked = LockedTable::lock(env.memory, env.pin, pte.table, whole);
            locked.map(|table| Slot { table, index })
        })
    }

    /// Goes on to the next entry of the table, which has one.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.index += 1;
    }

    /// Whether the entry maps `frame`.
    #[inline]
    pub(crate) fn maps(&self, frame: Pfn) -> bool {
        let entry = self.table.load(self.index);
        let level = self.table.level();
        F::is_mapped(entry)
            && F::is_leaf(entry, level)
            && u64::from(frame.0.wrapping_sub(F::frame(entry, level).0)) < F::pages_at(level)
    }

    /// The entry.
    pub fn entry(&self) -> u64 {
        self.table.load(self.index)
    }

    /// Which entry it is.
    pub(crate) fn pte(&self) -> PteRef {
        self.table.pte(self.index)
    }

    /// Handle of the space that the entry belongs to.
    pub fn space(&self) -> u32 {
        self.table.owner()
    }

    /// The page that the entry maps; the first, if it is a large leaf.
    pub fn page(&self) -> Vpn {
        self.table.page(self.index)
    }

    /// Clears the entry, which is none of a large leaf: those keep a table, and go through
    /// calls of their own. The visitor answers [`super::Verdict::Unmapped`].
    pub fn clear(&self) -> Marks {
        debug_assert!(self.table.level() == 1, "a large leaf cleared by a visit");
        let old = self.table.clear(self.index, Users::Hardware);
        self.table.count_cleared(1);
        F::marks(old)
    }

    /// Clears the entry, which is none of a large leaf, if nobody has stored to the page by way of
    /// it; returns whether it did. Then the visitor answers [`super::Verdict::Unmapped`].
    pub(crate) fn clear_if_clean(&self) -> bool {
        debug_assert!(self.table.level() == 1, "a large leaf cleared by a visit");
        if F::marks(self.entry()).dirty {
            return false;
        }
        let old = self.table.clear(self.index, Users::Hardware);
        if F::marks(old).dirty {
            // A processor that has found no entry meanwhile waits for the table.
            self.table.fill(self.index, old);
            return false;
        }
        self.table.count_cleared(1);
        true
    }

    /// Puts the entry of a private page in swap in the place of this one, which is none of a large
    /// leaf. If this one was marked dirty, that of the page in swap is not clean. The visitor answers
    /// [`super::Verdict::Unmapped`].
    pub(crate) fn swap_out(&self, page: Swapped) {
        debug_assert!(!self.is_large(), "a large leaf swapped out");
        self.table.update(self.index, Users::Hardware, |old| {
            let clean = page.clean && !F::marks(old).dirty;
            F::with_watch(F::swap(Swapped { clean, ..page }), F::is_watched(old))
        });
    }

    /// Whether it is that of a large leaf.
    pub fn is_large(&self) -> bool {
        self.table.level() > 1
    }

    /// Whether it is one of a contiguous run, whose marks are about all of it.
    #[inline]
    pub(crate) fn is_in_run(&self) -> bool {
        self.table.is_in_run(self.index)
    }

    /// The table, if no entry of it is live now. Whoever cleared the last one
    /// unlinks the table after the visit (invariant 5).
    pub(crate) fn emptied(&self) -> Option<Pfn> {
        (self.table.live() == 0).then_some(self.table.table())
    }

    /// Takes the right to store; returns the marks.
    pub fn write_protect(&self) -> Marks {
        let (old, _) = self
            .table
            .update(self.index, Users::Hardware, F::write_protect);
        F::marks(old)
    }

    /// Clears the dirty mark of a page of an object; returns whether it was set. If so,
    /// [`Format::SOFT_DIRTY`] is set instead.
    pub(crate) fn take_dirty(&self) -> bool {
        if !F::marks(self.entry()).dirty {
            return false;
        }
        let (old, _) = self.table.update(self.index, Users::Hardware, |entry| {
            let marks = F::marks(entry);
            let soft = if marks.dirty { F::SOFT_DIRTY } else { 0 };
            F::with_marks(
                entry,
                Marks {
                    dirty: false,
                    ..marks
                },
            ) | soft
        });
        F::marks(old).dirty
    }

    /// Clears the accessed marks of the entries around this one in its table, and tells what they
    /// map. Returns how many were set.
    pub(crate) fn take_used_around(&self, used: &mut dyn FnMut(Pfn)) -> u64 {
        self.table.take_used_around(self.index, used)
    }

    /// Clears the accessed mark of an entry that is none of a contiguous run; returns whether
    /// it was set.
    pub(crate) fn take_accessed(&self) -> bool {
        self.table.take_accessed(self.index)
    }
}
