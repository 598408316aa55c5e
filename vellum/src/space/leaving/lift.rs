//! Low memory that page tables hold for those who can use no other (`userpte=auto`).
//!
//! Nothing that allocates moves tables itself: it may hold locks. A call that fails for
//! want of low memory is over when tables are moved, and then made once more.

use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::state::manager::Vm;
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, MovedEntry, uses_windows};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Moves up to `most` page tables from low to high memory, with `userpte=auto` on a
    /// machine that has both; returns how many. What they leave free is for those who can
    /// use low memory only: page tables leave as much to them from now on. The caller is
    /// not pinned and holds no lock.
    ///
    /// Calls of the manager do this by themselves when low memory is lacking. It is here
    /// for embedders who need low memory for other things.
    pub fn relieve_low(&self, most: u32) -> u32 {
        self.move_tables_up(Unpinned::at_door(), most)
    }

    /// [`Vm::relieve_low`] for a call that goes on.
    pub(super) fn move_tables_up(&self, unpinned: Unpinned<'_>, most: u32) -> u32 {
        if !uses_windows::<F>() || !self.memory.tables_make_room() {
            return 0;
        }
        let moved = self.move_tables(most);
        if moved > 0 {
            let pin = self.pin_by(&unpinned);
            self.memory.leave_to_others(&pin, u64::from(moved));
            drop(pin);
            self.memory.wait_for_frames(unpinned);
        }
        moved
    }

    /// Moves tables of one space after the other, beginning with the space after the
    /// one that gave tables last.
    fn move_tables(&self, most: u32) -> u32 {
        let first = self.memory.low_hand();
        let mut moved = 0;
        for lower in [false, true] {
            self.spaces.each(|handle, _| {
                if moved < most && (handle.raw() < first) == lower {
                    moved += self.move_tables_of(handle.raw(), most - moved);
                    self.memory.set_low_hand(handle.raw());
                }
            });
        }
        moved
    }

    /// Moves tables of the space in this place of the arena, if there is one.
    fn move_tables_of(&self, handle: u32, most: u32) -> u32 {
        let pin = self.pin();
        let space = self.live_at(handle);
        let Some(tables) = self.tables_if_any(&pin, space) else {
            return 0;
        };
        let whole = PageRange {
            start: Vpn(0),
            end: F::USER_END,
        };
        let mut gather = self.gather(&pin, space);
        let mut ctx = R::Ctx::default();
        let (moved, _) = tables.lift(whole, most, &mut gather, |entry| {
            self.rename_entry(&pin, &mut ctx, entry);
        });
        drop(gather);
        self.rmap.finish(&self.env(&pin), ctx);
        self.events(&pin).tables_moved.add(u64::from(moved));
        moved
    }

    /// Tells reverse mapping that an entry is in another table now.
    fn rename_entry(&self, pin: &Pin<'_>, ctx: &mut R::Ctx, entry: &MovedEntry) {
        if self.managed(entry.frame).is_some() {
            let run = Run::single(entry.frame, entry.from, entry.page);
            (self.rmap).entry_moved(&self.env(pin), ctx, &run, entry.to);
        }
    }
}
