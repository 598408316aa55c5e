//! mprotect.

use super::limits::Change;
use crate::addr::{PageRange, Prot, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::locks::lock::{Beside, Goal};
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, RegionView};
use crate::space::state::spaces::SpaceId;
use crate::sync::{Pin, Unpinned};
use crate::table::{Format, Gather, Users};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::protect`](crate::space::Space::protect).
    pub(crate) fn protect(
        &self,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        prot: Prot,
    ) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages)?;
        let prot = F::given(prot);
        self.with_room(unpinned, |mut unpinned| {
            let protect = |pin: &Pin<'_>, space: LockedSpace<'_, R>| {
                self.protect_locked(pin, space, range, prot)
            };
            let goal = Goal::Range(range);
            let here = self.with_range_locked(
                unpinned.reborrow(),
                id,
                goal,
                Beside::Nobody,
                |pin, space, _| protect(pin, space),
            )?;
            match here {
                Some(()) => Ok(()),
                None => self.with_undivided(unpinned, id, |pin, space| protect(pin, *space)),
            }
        })
    }

    /// [`Space::protect`](crate::space::Space::protect) in a locked space.
    fn protect_locked(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        range: PageRange,
        prot: Prot,
    ) -> Result<(), MapError> {
        if !self.is_covered(space, range) {
            return Err(MapError::NotMapped);
        }
        let word = NewWord {
            commits: self.memory.commit().is_some(),
            ..NewWord::prot(prot)
        };
        let may_cut = self.check_limits(space, range.start, &Change::Word(range, &word))?;
        // The cuts stay: nothing can fail any more.
        let _ = self.isolate(pin, space, range, &may_cut)?;
        let closed = self.close_regions(pin, space, range);
        let mut gather = self.gather(pin, *space);
        closed.for_each(|region, view| {
            let prot = self.set_word(space, region, &view, &word);
            if view.prot != prot {
                self.protect_entries(pin, space, &view, prot, &mut gather);
            }
        });
        drop(gather);
        drop(closed);
        self.merge_range(pin, space, range);
        Ok(())
    }

    /// Gives present entries of a region the new rights, except the right to store, which
    /// a fault gives where the page may be stored to. Of frames that are not managed nobody wants
    /// to know that.
    fn protect_entries(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        view: &RegionView,
        prot: Prot,
        gather: &mut Gather<'_, P>,
    ) {
        let tables = self.tables(pin, *space);
        for span in tables.spans(view.range) {
            let level = span.table.level();
            let mut ends_runs = self.has_runs();
            for index in span.first..span.first + span.count {
                let entry = span.table.load(index);
                if !F::is_mapped(entry) {
                    continue;
                }
                let keeps = prot.can_write() && (F::is_writable(entry) || view.is_unmanaged());
                let rights = if keeps { prot } else { prot.read_only() };
                if F::prot(entry, level) == rights {
                    continue;
                }
                if ends_runs {
                    ends_runs = false;
                    let rest = index..span.first + span.count;
                    self.end_runs(pin, *space, &span.table, rest);
                }
                span.table.update(index, Users::Hardware, |entry| {
                    F::with_prot(entry, level, rights)
                });
                gather.stale_leaf(span.table.page(index), F::pages_at(level));
            }
        }
        Self::note_unflushed(*space, view.range, gather);
    }

    /// Merges what can be merged at the edges and inside of a range.
    pub(super) fn merge_range(&self, pin: &Pin<'_>, space: LockedSpace<'_, R>, range: PageRange) {
        let mut next = range.start;
        while next <= range.end {
            self.merge_at(pin, space, next);
            if next == range.end {
                break;
            }
            let region = self.region_from(space, next);
            if region.is_none() {
                break;
            }
            let end = self.region(region).range().end;
            if end <= next {
                break;
            }
            next = end;
        }
    }
}
