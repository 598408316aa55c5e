//! Pages that their owner does not want: private ones that may be dropped (`Advice::Free`), and
//! pages that are not needed soon (`Advice::Cold`).
//!
//! A page that may be dropped has a flag, and its entry no dirty mark (invariant 15). Reclaim
//! clears the entry by one exchange, which shows whether anybody has stored to the page since. If
//! so, it is a page like any other from then on. What else could be stored without a mark in the
//! one entry, or take the mark away, ends the permission or cannot come about:
//! * a pin for writing takes the flag, under the lock of the table, as does whoever writes the
//!   page to swap;
//! * while another space maps the page, too, nobody drops it, and a fork gives the child's entry
//!   the dirty mark if the parent's may lack it;
//! * nothing but the advice clears dirty marks of private pages.
//!
//! Pages of locked ranges are refused, and one that was freed before stays while it is locked.

use crate::addr::{PageRange, Pfn};
use crate::frame::{Frame, Kind, PrivateFlags};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::Live;
use crate::sync::Pin;
use crate::table::{Format, Gather, LockedTable, Marks, Span, Users};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Makes the exclusive private pages of a range droppable: clean and unused as far as the
    /// entries say, so that a store shows.
    pub(in crate::space) fn mark_free(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        for span in self.tables(pin, space).spans(range) {
            if span.table.level() != 1 {
                continue;
            }
            for (index, page) in self.single_pages(pin, space, &span) {
                let frame = self.memory.frame(page);
                if frame.kind() != Kind::Anonymous || !Self::is_exclusive_use(frame) {
                    continue;
                }
                span.table.update(index, Users::Hardware, |entry| {
                    F::with_marks(entry, Marks::default())
                });
                frame.private().set_if_clear(PrivateFlags::LAZY_FREE);
                gather.stale(span.table.page(index));
                self.note_unwanted(pin, page, true);
            }
        }
    }

    /// Makes the exclusive pages of a range, and superpages that lie in it as a whole, seem unused.
    pub(in crate::space) fn mark_cold(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        range: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        for span in self.tables(pin, space).spans(range) {
            let (table, level) = (&span.table, span.table.level());
            if level > 1 {
                let first = table.page(span.first);
                let whole = PageRange::new(first, F::pages_at(level));
                let entry = table.load(span.first);
                let frame = F::frame(entry, level);
                let is_whole = whole.intersection(range) == whole;
                if F::is_mapped(entry)
                    && is_whole
                    && Self::is_exclusive_use(self.memory.frame(frame))
                {
                    table.take_accessed(span.first);
                    gather.stale_leaf(first, F::pages_at(level));
                    self.note_unwanted(pin, frame, false);
                }
                continue;
            }
            for (index, page) in self.single_pages(pin, space, &span) {
                if page != self.zero_page && Self::is_exclusive_use(self.memory.frame(page)) {
                    table.take_accessed(index);
                    gather.stale(table.page(index));
                    self.note_unwanted(pin, page, false);
                }
            }
        }
    }

    /// The entries of a span that map pages, with their frames; contiguous runs are ended.
    fn single_pages<'s, 't>(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        span: &'s Span<'t, F>,
    ) -> impl Iterator<Item = (usize, Pfn)> + use<'s, 't, P, F, R> {
        let table: &'s LockedTable<'t, F> = &span.table;
        let entries = span.first..span.first + span.count;
        self.end_runs(pin, space, table, entries.clone());
        entries.filter_map(move |index| {
            let entry = table.load(index);
            F::is_mapped(entry).then(|| (index, F::frame(entry, 1)))
        })
    }

    /// Whether one entry maps the page, which nobody has pinned.
    fn is_exclusive_use(frame: &Frame) -> bool {
        let counts = frame.counts();
        counts.maps() == 1 && counts.pins() == 0
    }
}
