//! Going over the live entries of a table, while what they lead to is on its way.

use super::manager::Vm;
use crate::addr::{Pfn, set_bits};
use crate::frame::{Frame, Kind};
use crate::platform::Platform;
use crate::rmap::{Env, ReverseMap};
use crate::sync::bytes;
use crate::table::{Format, LINE_ENTRIES, Span};

/// Lines of entries that are looked at before the one the caller is at.
const AHEAD: usize = 2;

/// The live entries of a span, ascending.
///
/// Entries are looked at a cache line at a time: the records of the frames that
/// the line after the next maps are fetched, and what the records of the next
/// line lead to. Most tables hold few entries: nothing is looked at after the
/// last. The table is locked, so that only the caller changes entries meanwhile,
/// and none but the one it is at.
pub(in crate::space) struct LiveEntries<'s, 'a, 't, P: Platform, F: Format, R: ReverseMap> {
    vm: &'s Vm<P, F, R>,
    env: &'s Env<'a, P>,
    span: &'s Span<'t, F>,
    /// First entry of the line the caller is at.
    line: usize,
    /// Live entries of that line still to come, and those of the lines ahead.
    masks: [u64; 1 + AHEAD],
    /// Live entries of the table still to come, at most.
    left: u32,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The entries of `span` that are not empty, what they lead to brought near.
    #[inline]
    pub(in crate::space) fn live_entries<'s, 'a, 't>(
        &'s self,
        env: &'s Env<'a, P>,
        span: &'s Span<'t, F>,
    ) -> LiveEntries<'s, 'a, 't, P, F, R> {
        let mut entries = LiveEntries {
            vm: self,
            env,
            span,
            line: span.first & !(LINE_ENTRIES - 1),
            masks: [0; 1 + AHEAD],
            left: span.table.live(),
        };
        for ahead in 0..=AHEAD {
            entries.masks[ahead] = entries.look_at(entries.line + ahead * LINE_ENTRIES);
        }
        entries.fetch_what_is_next();
        entries
    }

    /// The record of a frame that an entry maps; `None` of the zero page and of frames that are not
    /// managed, which nobody counts.
    #[inline]
    pub(crate) fn managed(&self, frame: Pfn) -> Option<&Frame> {
        let record = self.memory.table.get(frame);
        record.filter(|record| record.kind() != Kind::Reserved)
    }

    /// Whether a page is private to the one entry that maps it (invariant 8). A yes stays true
    /// while a fault is inside the entry's region: only a fork of this space could
    /// map the page again, and it closes the region's gate and waits first. Reclaim may take the
    /// page away meanwhile, and a pin may come: whoever relies on that looks again under the
    /// table's lock.
    ///
    /// Pins come while the page is exclusive, and no mapping comes while it is pinned: they are
    /// those of the space that maps it. It keeps the page whoever looks at it meanwhile.
    pub(in crate::space) fn is_exclusive(&self, page: Pfn) -> bool {
        let frame = self.memory.frame(page);
        let counts = frame.counts();
        frame.kind() == Kind::Anonymous
            && counts.maps() == 1
            && (counts.refs() == 1 || counts.pins() > 0)
    }
}

impl<P: Platform, F: Format, R: ReverseMap> LiveEntries<'_, '_, '_, P, F, R> {
    /// Which entries of the span are live in the line that begins at `line`; the
    /// records of their frames are fetched.
    #[inline]
    fn look_at(&self, line: usize) -> u64 {
        let (first, end) = (self.span.first, self.span.first + self.span.count);
        let mut live = 0;
        for index in line.max(first)..(line + LINE_ENTRIES).min(end) {
            live |= u64::from(self.span.table.load(index) != 0) << (index - line);
        }
        for place in set_bits(live) {
            if let Some(pfn) = self.frame_at(line + place as usize) {
                bytes::prefetch(self.vm.memory.frame(pfn));
            }
        }
        live
    }

    /// Fetches what the records of the next line's frames lead to.
    #[inline]
    fn fetch_what_is_next(&self) {
        for place in set_bits(self.masks[1]) {
            if let Some(pfn) = self.frame_at(self.line + LINE_ENTRIES + place as usize) {
                self.vm.rmap.prefetch(self.env, pfn);
            }
        }
    }

    /// The frame that an entry maps, if it maps one.
    #[inline]
    fn frame_at(&self, index: usize) -> Option<Pfn> {
        let table = &self.span.table;
        let entry = table.load(index);
        F::is_mapped(entry).then(|| F::frame(entry, table.level()))
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Iterator for LiveEntries<'_, '_, '_, P, F, R> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        while self.masks[0] == 0 {
            self.line += LINE_ENTRIES;
            if self.line >= self.span.first + self.span.count {
                return None;
            }
            self.masks.rotate_left(1);
            self.masks[AHEAD] = self.look_at(self.line + AHEAD * LINE_ENTRIES);
            self.fetch_what_is_next();
        }
        let place = self.masks[0].trailing_zeros();
        self.masks[0] &= self.masks[0] - 1;
        self.left -= 1;
        Some(self.line + place as usize)
    }
}
