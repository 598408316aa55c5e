//! What is done to one entry of a page table, by faults and by calls.

use crate::addr::Pfn;
use crate::frame::Kind;
use crate::platform::Platform;
use crate::rmap::{Place, ReverseMap, Run};
use crate::space::state::account::Resident;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::Live;
use crate::sync::Pin;
use crate::table::{Format, LockedTable, Users};

/// A page that takes the place of another in one entry of a table.
pub(in crate::space) struct Replaced {
    pub(in crate::space) index: usize,
    pub(in crate::space) old: Pfn,
    pub(in crate::space) new: Pfn,
    /// The entry that maps the new page.
    pub(in crate::space) leaf: u64,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Lets go of a table in which the caller has made no entry after all. The
    /// caller may have made the table, which must not stay linked if it is empty
    /// (invariant 5).
    #[cold]
    pub(in crate::space) fn leave_table<'a>(
        &'a self,
        pin: &'a Pin<'a>,
        space: Live<'a, R>,
        table: LockedTable<'a, F>,
    ) {
        if table.live() > 0 {
            return;
        }
        let mut gather = self.gather(pin, space);
        self.tables(pin, space).unlink_if_empty(table, &mut gather);
        self.count_tables(pin, space, 0, gather.tables_freed());
    }

    /// Puts the copy in the place of the old page, whose reference passes to the
    /// caller. No CPU uses the old page any more when the new one appears:
    /// otherwise one thread could go on reading the old one after another has
    /// stored to the new one and told it so.
    pub(in crate::space) fn replace_page(
        &self,
        pin: &Pin<'_>,
        place: Place<'_, R::Region, R::Space>,
        table: &LockedTable<'_, F>,
        replaced: &Replaced,
        ctx: &mut R::Ctx,
    ) {
        let Replaced {
            index,
            old,
            new,
            leaf,
        } = *replaced;
        let env = self.env(pin);
        let pte = table.pte(index);
        let page = table.page(index);
        self.own_privately(self.memory.frame(new), place.space, page);
        table.clear(index, Users::Hardware);
        self.flush_locked_page(pin, self.live_at(place.space), page);
        if old != self.zero_page {
            let gone = Run::single(old, pte, page);
            self.rmap.remove(&env, ctx, &gone, place);
            let before = self.memory.frame(old).remove_mapping();
            if before.maps() == 1 && self.memory.frame(old).kind() == Kind::Anonymous {
                self.rmap.unmapped(&env, old);
                self.note_removed(pin, old);
            }
        }
        let run = Run::single(new, pte, page);
        self.rmap.add(&env, ctx, &run, place, true);
        table.fill(index, leaf);
    }

    /// An entry of `space` that named a slot, or no page, was cleared, under the lock of its
    /// table.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn drop_swapped(&self, pin: &Pin<'_>, space: Live<'_, R>, entry: u64) {
        if F::is_of_no_page(entry) {
            return;
        }
        if let Some(swap) = self.swap() {
            swap.drop_entry(&self.memory, pin, F::swapped(entry).slot);
        }
        self.count_resident(pin, space, Resident::Swap, u64::MAX);
    }
}
