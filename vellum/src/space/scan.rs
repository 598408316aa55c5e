//! Lookups through reverse mapping as page aging makes them: who maps this
//! page, and has it been used since the last time?

use super::manager::{SpaceId, Vm};
use crate::addr::{PageRange, Pfn};
use crate::object::ObjectId;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Verdict, VisitReport};
use crate::sync::Pin;
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
    /// Looks up every page of `range` that the space maps: visits all entries
    /// that map it, of whatever space, and takes their accessed marks. CPUs are
    /// not flushed; one that has the translation cached need not set the mark
    /// again. The shared zero page belongs to nobody and is left out.
    ///
    /// `None` if there is no such space. Takes table locks, one at a time.
    pub fn scan_space(&self, id: SpaceId, range: PageRange) -> Option<ScanReport> {
        let mut report = ScanReport::default();
        for page in range.start.0..range.end.0 {
            let page = crate::addr::Vpn(page);
            let pin = self.pin();
            let space = self.find_space(id)?;
            let Some(table) = self.tables(&pin, space).lock(page) else {
                continue;
            };
            let level = table.level();
            let entry = table.load(F::index(page, level));
            if !F::is_mapped(entry) || !F::is_leaf(entry, level) {
                continue;
            }
            let within = page.0 & (F::pages_at(level) - 1);
            let pfn = F::frame(entry, level).offset(within as u32);
            if pfn == self.zero_page {
                continue;
            }
            // The entry, which cannot change while its table is locked, has a
            // reference to the frame.
            self.memory.frame(pfn).get();
            drop(table);
            self.look_up(&pin, pfn, &mut report);
        }
        Some(report)
    }

    /// Looks up every cached page of the object among the `pages` from
    /// `first` on, as [`Vm::scan_space`] does.
    ///
    /// `None` if there is no such object.
    pub fn scan_object(&self, id: ObjectId, first: u64, pages: u64) -> Option<ScanReport> {
        let mut report = ScanReport::default();
        for index in first..first.saturating_add(pages) {
            let pin = self.pin();
            let object = self.objects.find(id)?;
            if index >= object.pages() {
                break;
            }
            if let Some(pfn) = self.objects.lookup(&self.memory, &pin, object, index) {
                self.look_up(&pin, pfn, &mut report);
            }
        }
        Some(report)
    }

    /// Visits the entries of a frame to which the caller has a reference, and
    /// drops the reference.
    fn look_up(&self, pin: &Pin<'_>, pfn: Pfn, report: &mut ScanReport) {
        let env = self.env(pin);
        let mut accessed = 0;
        let visit: VisitReport = self.rmap.visit::<P, F>(&env, self, pfn, &mut |slot| {
            accessed += u64::from(slot.take_accessed());
            Verdict::Keep
        });
        self.memory.put(pin, pfn);
        let events = self.events(pin);
        events.lookups.bump();
        events.lookup_hits.add(u64::from(visit.hits));
        events.lookup_misses.add(u64::from(visit.false_probes));
        events.lookup_retries.add(u64::from(visit.lock_failures));
        report.pages += 1;
        report.hits += u64::from(visit.hits);
        report.false_probes += u64::from(visit.false_probes);
        report.lock_failures += u64::from(visit.lock_failures);
        report.accessed += accessed;
    }
}
