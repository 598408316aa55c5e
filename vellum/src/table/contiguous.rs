//! Contiguous runs (`contiguous=on`): entries that say that they are some of several in a row
//! which map frames in a row with the same rights.
//!
//! A processor may cache what one of them says as a translation of all. So as long as one entry
//! has the hint, all of its run have it and agree in rights, and before one of them is to say
//! something else, the hint is taken off all. No entry may come to say something else about
//! the size of what is cached while a processor may have the old translation: so all entries of
//! the run first become invalid, then all CPUs forget them, and then they are made without the
//! hint (break before make, as Arm demands; RISC-V lets a hart use either, and is given the
//! same). That happens under the lock of the table, which faults that meet the invalid entries
//! wait for, as they do for a superpage that is being split.
//!
//! Processors keep the marks of a run in whichever of its entries they have come across. So what
//! one says is true of all: without the hint, all are marked as used if one was, and as written
//! if one was.
//!
//! Two things need no such detour. A run of which nothing remains is cleared entry by entry
//! under one hold of the lock. And marks may be cleared in all entries, since they may differ.

use core::ops::Range;

use super::format::{Format, Marks};
use super::locked::{LockedTable, Users};
use crate::addr::{PageRange, Pfn, Prot};

/// Runs of a table, at most.
const MOST_RUNS: usize = 32;

/// What the entries of a run had in common.
#[derive(Clone, Copy)]
struct Ended {
    first: Pfn,
    prot: Prot,
    /// Those of any entry.
    marks: Marks,
}

impl<F: Format> LockedTable<'_, F> {
    /// Entries of a contiguous run.
    pub(crate) const RUN: usize = {
        let run = 1 << F::CONTIGUOUS_ORDER;
        assert!(F::CONTIGUOUS_ORDER == 0 || F::ENTRIES / run <= MOST_RUNS);
        run
    };

    /// The entries that are in a run with this one, if it has the hint.
    #[inline]
    pub(crate) fn run_around(index: usize) -> Range<usize> {
        let first = index & !(Self::RUN - 1);
        first..first + Self::RUN
    }

    /// Whether the entry has the hint.
    #[inline]
    pub(crate) fn is_in_run(&self, index: usize) -> bool {
        F::CONTIGUOUS_ORDER != 0 && self.level() == 1 && F::is_contiguous(self.load(index))
    }

    /// Whether the entry is one of a run, and not the first.
    #[inline]
    pub(crate) fn continues_run(&self, index: usize) -> bool {
        index & (Self::RUN - 1) != 0 && F::is_contiguous(self.load(index))
    }

    /// Takes the hint off every run of which `entries` are a part, or all. `flush` makes all
    /// CPUs forget the pages that it is given; it is called once, if there is such a run.
    /// Returns how many there were.
    #[inline]
    pub(crate) fn end_runs(&self, entries: Range<usize>, flush: impl FnOnce(PageRange)) -> u64 {
        match F::CONTIGUOUS_ORDER != 0 && self.level() == 1 && !entries.is_empty() {
            true => self.end_runs_around(entries, flush),
            false => 0,
        }
    }

    #[inline(never)]
    fn end_runs_around(&self, entries: Range<usize>, flush: impl FnOnce(PageRange)) -> u64 {
        let first = Self::run_around(entries.start).start;
        let mut ended = [None; MOST_RUNS];
        let mut count = 0;
        let mut stale: Option<PageRange> = None;
        for (run, place) in (first..entries.end).step_by(Self::RUN).zip(&mut ended) {
            if !F::is_contiguous(self.load(run)) {
                continue;
            }
            *place = Some(self.break_run(run));
            count += 1;
            let start = stale.map_or(self.page(run), |pages| pages.start);
            let end = self.page(run).offset(Self::RUN as u64);
            stale = Some(PageRange { start, end });
        }
        let Some(stale) = stale else {
            return 0;
        };
        flush(stale);
        for (run, place) in (first..entries.end).step_by(Self::RUN).zip(ended) {
            if let Some(ended) = place {
                self.make_singles(run, ended);
            }
        }
        count
    }

    /// Makes the entries of a run invalid, so that no processor caches it any more.
    fn break_run(&self, first: usize) -> Ended {
        let entry = self.load(first);
        let mut ended = Ended {
            first: F::frame(entry, 1),
            prot: F::prot(entry, 1),
            marks: Marks::default(),
        };
        for index in Self::run_around(first) {
            let (old, _) = self.update_any(index, Users::Hardware, |entry| {
                F::leaf(F::frame(entry, 1), 1, Prot::NONE, Marks::default())
            });
            let marks = F::marks(old);
            ended.marks.accessed |= marks.accessed;
            ended.marks.dirty |= marks.dirty;
        }
        ended
    }

    /// Makes the entries of a broken run single ones.
    fn make_singles(&self, first: usize, ended: Ended) {
        for (step, index) in (0..).zip(Self::run_around(first)) {
            let frame = ended.first.offset(step);
            let leaf = F::leaf(frame, 1, ended.prot, ended.marks);
            self.update_any(index, Users::None, |_| leaf);
        }
    }

    /// Clears the accessed marks of the run around an entry that has the hint, and tells what
    /// it maps. Returns how many pages that are: if one is marked, any may have been used.
    pub(super) fn take_used_run(&self, index: usize, used: &mut dyn FnMut(Pfn)) -> u64 {
        for index in Self::run_around(index) {
            let (entry, _) = self.update_any(index, Users::Hardware, |entry| {
                let mut marks = F::marks(entry);
                marks.accessed = false;
                F::with_marks(entry, marks)
            });
            used(F::frame(entry, 1));
        }
        Self::RUN as u64
    }
}
