//! Lookups through reverse mapping as page aging makes them: who maps this
//! page, and has it been used since the last time?

use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::Kind;
use crate::object::ObjectId;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Slot, Verdict, VisitReport};
use crate::space::state::manager::Vm;
use crate::space::state::spaces::{Live, SpaceId};
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

/// What a scan met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanReport {
    /// Pages looked up.
    pub pages: u64,
    /// Entries found that map them.
    pub hits: u64,
    /// Places looked at that did not map the page.
    pub false_probes: u64,
    /// Locks that were not free, each a reason to start over.
    pub lock_failures: u64,
    /// Entries whose accessed mark was set, and is not any more.
    pub accessed: u64,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::scan`](crate::space::Space::scan).
    pub(crate) fn scan_space(&self, id: SpaceId, range: PageRange) -> Option<ScanReport> {
        self.find_space(id)?;
        let range = PageRange {
            end: range.end.min(F::USER_END),
            ..range
        };
        let mut report = ScanReport::default();
        let mut next = range.start;
        while next < range.end {
            let pin = self.pin();
            let space = self.find_space(id)?;
            let mut taken = Referenced::NONE;
            let pages = PageRange {
                start: next,
                end: range.end,
            };
            next = self.take_mapped(&pin, space, pages, &mut taken);
            self.look_up(&pin, &taken, &mut report);
        }
        Some(report)
    }

    /// Calls `each` with every frame that the space maps in `range`, with a reference for as
    /// long as the call takes, and nothing locked. Superpages whose frames have one
    /// record, and the shared zero page, are left out.
    pub(super) fn each_mapped(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
        mut each: impl FnMut(Unpinned<'_>, Pfn),
    ) {
        let mut next = range.start;
        while next < range.end {
            let mut taken = Referenced::NONE;
            {
                let pin = self.pin_by(&unpinned);
                let Some(space) = self.find_space(id) else {
                    return;
                };
                let pages = PageRange {
                    start: next,
                    end: range.end,
                };
                next = self.take_mapped(&pin, space, pages, &mut taken);
                if taken.run_order > 0 {
                    self.memory.put_run(&pin, taken.frames[0], taken.run_order);
                    continue;
                }
            }
            for &page in taken.frames() {
                each(unpinned.reborrow(), page);
                self.memory.put(&self.pin_by(&unpinned), page);
            }
        }
    }

    /// Takes a reference to each of the next frames that one table of the space
    /// maps in `pages`, or to the run that one superpage does. Returns the page to go on with.
    fn take_mapped(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        pages: PageRange,
        taken: &mut Referenced,
    ) -> Vpn {
        let mut page = pages.start;
        let Some(table) = self.tables(pin, space).lock(page) else {
            return page.offset(1);
        };
        let level = table.level();
        let covered = F::pages_at(level);
        let mut index = F::index(page, level);
        if level > 1 {
            let run = Self::large_run(&table, index, F::frame(table.load(index), level));
            if self.managed(run.frame).is_none() {
                return Vpn((page.0 | (covered - 1)) + 1);
            }
            if self.hold_whole_run(pin, &run) {
                taken.push_run(run.frame, run.order);
                return Vpn((page.0 | (covered - 1)) + 1);
            }
        }
        // Marks are asked for page by page.
        let count = (pages.end.0 - page.0).min(F::ENTRIES as u64) as usize;
        self.end_runs(pin, space, &table, index..F::ENTRIES.min(index + count));
        while page < pages.end && index < F::ENTRIES && !taken.is_full() {
            let entry = table.load(index);
            let within = page.0 & (covered - 1);
            if F::is_mapped(entry) && F::is_leaf(entry, level) {
                let pfn = F::frame(entry, level).offset(within as u32);
                if let Some(frame) = self.managed(pfn) {
                    // The entry, which cannot change while its table is locked,
                    // has a reference to the frame.
                    frame.get();
                    taken.push(pfn);
                }
            }
            page = page.offset(1);
            index += usize::from(within + 1 == covered);
        }
        page
    }

    /// [`File::scan`](crate::space::File::scan).
    pub(crate) fn scan_object(&self, id: ObjectId, first: u64, pages: u64) -> Option<ScanReport> {
        let mut report = ScanReport::default();
        let mut index = first;
        let end = first.saturating_add(pages);
        loop {
            let pin = self.pin();
            let object = self.objects.find(id)?;
            let end = end.min(object.pages());
            if index >= end {
                return Some(report);
            }
            let mut taken = Referenced::NONE;
            while index < end && !taken.is_full() {
                if let Some(pfn) = self.objects.lookup(&self.memory, &pin, object, index) {
                    taken.push(pfn);
                }
                index += 1;
            }
            self.look_up(&pin, &taken, &mut report);
        }
    }

    /// Visits the entries of frames to which the caller has references, and
    /// drops the references. Neighbours in a file are looked up together.
    fn look_up(&self, pin: &Pin<'_>, taken: &Referenced, report: &mut ScanReport) {
        let env = self.env(pin);
        let mut accessed = 0;
        let mut visit = VisitReport::default();
        let frames = taken.frames();
        let neighbours = |&left: &Pfn, &right: &Pfn| {
            let (left, right) = (self.memory.frame(left), self.memory.frame(right));
            left.kind() == Kind::Object
                && right.kind() == Kind::Object
                && left.owner() == right.owner()
                && left.index() + 1 == right.index()
        };
        for run in frames.chunk_by(neighbours) {
            let mut take = |slot: &Slot<'_, F>| {
                accessed += u64::from(slot.take_accessed());
                Verdict::Keep
            };
            visit.merge(match *run {
                [pfn] => self.rmap.visit::<P, F>(&env, self, pfn, &mut take),
                _ => (self.rmap).visit_run::<P, F>(&env, self, run, &mut |_, slot| take(slot)),
            });
        }
        match (taken.run_order, frames) {
            (1.., &[first]) => self.memory.put_run(pin, first, taken.run_order),
            _ => frames.iter().for_each(|&pfn| self.memory.put(pin, pfn)),
        }
        self.count_lookups(pin, frames.len() as u64, &visit);
        report.pages += frames.len() as u64;
        report.hits += u64::from(visit.hits);
        report.false_probes += u64::from(visit.false_probes);
        report.lock_failures += u64::from(visit.lock_failures);
        report.accessed += accessed;
    }
}

/// Frames that are looked up together: what two cache lines of entries map.
const TOGETHER: usize = 16;

/// Frames with a reference to each, in the order they were met.
struct Referenced {
    frames: [Pfn; TOGETHER],
    count: usize,
    /// If not 0, the only frame is the first of a run, to which the reference is.
    run_order: u32,
}

impl Referenced {
    const NONE: Referenced = Referenced {
        frames: [Pfn::NONE; TOGETHER],
        count: 0,
        run_order: 0,
    };

    fn push(&mut self, frame: Pfn) {
        self.frames[self.count] = frame;
        self.count += 1;
    }

    fn push_run(&mut self, first: Pfn, order: u32) {
        self.push(first);
        self.run_order = order;
    }

    fn is_full(&self) -> bool {
        self.count == TOGETHER
    }

    fn frames(&self) -> &[Pfn] {
        &self.frames[..self.count]
    }
}
