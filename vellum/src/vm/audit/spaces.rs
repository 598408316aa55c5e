//! Spaces, their regions, and every entry of their page tables (invariants 5, 8 and 9).

use super::{AuditFailure, AuditReport, same, wrong};
use crate::addr::{Pfn, Vpn};
use crate::frame::{Kind, PageFlags, TableFlags, TableFrame};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::{RegionView, Traits, Vm};
use crate::swap::Tally;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::{Format, LockedTable, Tables, with_table_words};

/// Entries of one space by what they map.
#[derive(Default)]
struct Entries {
    anonymous: u64,
    file: u64,
    shared_memory: u64,
    zero: u64,
    tables: u64,
    /// Whether the space keeps empty tables above the lowest level.
    keeps_tables: bool,
    /// Entries of pages in swap.
    slots: Tally,
    /// Mappings that the records of frames count.
    mappings: u64,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Checks all spaces; returns which swap slots their entries name.
    pub(super) fn audit_spaces(&self, report: &mut AuditReport) -> Result<Tally, AuditFailure> {
        let mut result = Ok(());
        let mut slots = Tally::default();
        let (mut spaces, mut regions, mut nodes) = (0, 0, 0);
        self.spaces.each(|handle, space| {
            if result.is_ok() && space.users() > 0 {
                spaces += 1;
                let checked = self.audit_space(handle.raw(), report, &mut slots);
                result = checked.map(|found| {
                    regions += found.0;
                    nodes += found.1;
                });
            }
        });
        result?;
        same("live spaces", 0, report.spaces, spaces)?;
        same("live regions", 0, report.regions, regions)?;
        same("nodes of trees of regions", 0, report.region_nodes, nodes)?;
        report.swapped = slots.entries;
        Ok(slots)
    }

    /// Checks one space; returns its regions and the nodes of their tree.
    fn audit_space(
        &self,
        handle: u32,
        report: &mut AuditReport,
        slots: &mut Tally,
    ) -> Result<(u64, u64), AuditFailure> {
        let number = u64::from(handle);
        let id = self.space_named_by(handle);
        let Some(stats) = self.space_stats(id) else {
            return wrong("a space cannot be found by its name", number);
        };
        let (regions, pages, nodes) = self.audit_regions(handle)?;
        same(
            "regions of space",
            number,
            u64::from(stats.regions),
            regions,
        )?;
        same("pages of space", number, stats.pages, pages)?;
        let (charged, needed) = self.records_of(handle);
        same(
            "pages charged for the regions of space",
            number,
            charged,
            needed,
        )?;
        let mut entries = Entries {
            keeps_tables: self.keeps_tables_of(handle),
            ..Entries::default()
        };
        let root = self.root_of(handle);
        self.audit_table(handle, root, F::LEVELS, Vpn(0), &mut entries)?;
        slots.merge(entries.slots);
        report.tables += entries.tables;
        report.entries += entries.mappings;
        let rss = stats.rss;
        same(
            "anonymous entries of space",
            number,
            rss.anonymous,
            entries.anonymous,
        )?;
        same("file entries of space", number, rss.file, entries.file)?;
        same(
            "shared-memory entries of space",
            number,
            rss.shared_memory,
            entries.shared_memory,
        )?;
        same("zero-page entries of space", number, rss.zero, entries.zero)?;
        same(
            "entries of space of pages in swap",
            number,
            stats.swapped,
            entries.slots.entries,
        )?;
        let bytes = entries.tables << F::FRAME_SHIFT;
        same(
            "bytes of page tables of space",
            number,
            stats.table_bytes,
            bytes,
        )?;
        Ok((regions, nodes))
    }

    /// Checks a table and those below it.
    fn audit_table(
        &self,
        space: u32,
        table: Pfn,
        level: u32,
        base: Vpn,
        entries: &mut Entries,
    ) -> Result<(), AuditFailure> {
        let number = u64::from(table.0);
        let frame = self.memory.frame(table);
        let is_right = |frame: &TableFrame<'_>| {
            frame.level() == level && frame.owner() == space && frame.base() == base
        };
        let Some(frame) = frame.as_table().filter(is_right) else {
            return wrong("a page table's record is not that of the table", number);
        };
        if frame.has_any(TableFlags::LOCK.or(TableFlags::DEAD)) {
            return wrong("a page table is locked or dead", number);
        }
        if frame.has(TableFlags::KEPT) {
            return wrong("a page table is kept for a move that is over", number);
        }
        entries.tables += 1;
        let pin = self.pin();
        let live = with_table_words::<F, P, _>(&self.memory, &pin, (table, level), |words| {
            let seen =
                |(index, word): (usize, &AtomicU64)| F::seen(word.load(Ordering::Relaxed), index);
            if level == 1 {
                let words = words.iter().enumerate().map(seen);
                self.audit_contiguous(words, base)?;
            }
            let words = words.iter().enumerate().map(seen);
            self.audit_entries(space, (table, level, base), words, entries)
        })?;
        same(
            "live entries of page table",
            number,
            u64::from(frame.live()),
            live,
        )?;
        self.audit_spares(space, table, level, entries)?;
        Self::audit_links(table, level, live, entries.keeps_tables)
    }

    /// Checks that a table keeps a spare one for each large leaf of private memory in it.
    fn audit_spares(
        &self,
        space: u32,
        table: Pfn,
        level: u32,
        entries: &mut Entries,
    ) -> Result<(), AuditFailure> {
        if level == 1 {
            // What a level-1 table names there is a run, which the audit of frames looks at.
            return Ok(());
        }
        let mut spares = 0;
        let mut next = self.memory.frame(table).table().spare();
        while let Some(spare) = next {
            let frame = self.memory.frame(spare);
            let is_right = |frame: &TableFrame<'_>| {
                frame.level() + 1 == level && frame.owner() == space && frame.live() == 0
            };
            let frame = frame.as_table().filter(is_right);
            let Some(frame) = frame.filter(|_| spares <= F::ENTRIES as u64) else {
                return wrong("a spare page table is not one", u64::from(spare.0));
            };
            spares += 1;
            next = frame.spare();
        }
        entries.tables += spares;
        let pin = self.pin();
        let is_large = |entry: u64| {
            let frame = || self.managed(F::frame(entry, level));
            F::is_mapped(entry)
                && F::is_leaf(entry, level)
                && frame().is_some_and(|frame| frame.kind() != Kind::Object)
        };
        let large = with_table_words::<F, P, _>(&self.memory, &pin, (table, level), |words| {
            let entries = words.iter().map(|word| word.load(Ordering::Relaxed));
            // The kernel half of a root is the platform's.
            let own = entries.take(match level == F::LEVELS {
                true => F::index(Vpn(F::USER_END.0 - 1), level) + 1,
                false => F::ENTRIES,
            });
            own.filter(|&entry| is_large(entry)).count() as u64
        });
        same(
            "spare tables of page table",
            u64::from(table.0),
            large,
            spares,
        )
    }

    /// Checks what the entries of a table lead to; returns how many are live.
    fn audit_entries(
        &self,
        space: u32,
        (table, level, base): (Pfn, u32, Vpn),
        words: impl Iterator<Item = u64>,
        entries: &mut Entries,
    ) -> Result<u64, AuditFailure> {
        let mut live = 0;
        for (index, entry) in words.enumerate().filter(|(_, entry)| *entry != 0) {
            let page = base.offset(index as u64 * F::pages_at(level));
            if page >= F::USER_END {
                // The kernel half of a root is the platform's.
                break;
            }
            live += 1;
            self.audit_watched(space, entry, (level, page))?;
            if !F::is_mapped(entry) {
                if level > 1 {
                    return wrong(
                        "a page table has an entry that is neither empty nor mapped",
                        u64::from(table.0),
                    );
                }
                if F::is_of_no_page(entry) {
                    self.audit_guard((space, page))?;
                    continue;
                }
                entries.slots.add(F::swapped(entry).slot, 1);
                self.audit_swapped(entry, (space, page))?;
                continue;
            }
            if F::is_leaf(entry, level) {
                self.audit_leaf(space, entry, level, page, entries)?;
            } else {
                self.audit_table(space, F::frame(entry, level), level - 1, page, entries)?;
            }
        }
        Ok(live)
    }

    /// Checks an entry that a fault hook watches: no stores get through, and the region catches them.
    fn audit_watched(
        &self,
        space: u32,
        entry: u64,
        (level, page): (u32, Vpn),
    ) -> Result<(), AuditFailure> {
        if level > 1 || !F::is_watched(entry) {
            return Ok(());
        }
        if F::is_mapped(entry) && F::is_writable(entry) {
            return wrong("a watched page may be stored to, at page", page.0);
        }
        let view = self.region_view_at(space, page);
        match view.is_some_and(|view| view.traits.has(Traits::HOOK_STORES)) {
            true => Ok(()),
            false => wrong("a page is watched that no hook wants, at page", page.0),
        }
    }

    /// Checks the entries of a table that have the hint of a contiguous run: all of the run
    /// have it, and map frames in a row, which one entry maps, with the same rights.
    fn audit_contiguous(
        &self,
        words: impl Iterator<Item = u64>,
        base: Vpn,
    ) -> Result<(), AuditFailure> {
        if F::CONTIGUOUS_ORDER == 0 {
            return Ok(());
        }
        let mut before = 0;
        for (index, entry) in words.enumerate() {
            let page = base.offset(index as u64);
            let step = (index & (LockedTable::<F>::RUN - 1)) as u32;
            let is_one = F::is_mapped(entry) && F::is_contiguous(entry);
            if is_one {
                let frame = F::frame(entry, 1);
                let first = frame.0 & !(LockedTable::<F>::RUN as u32 - 1);
                let record = self.memory.frame(frame);
                let is_private = record.kind() == Kind::Anonymous && record.counts().maps() == 1;
                if frame.0 != first + step || !is_private || !self.design.contiguous {
                    return wrong(
                        "a contiguous run maps a frame that is not its, at page",
                        page.0,
                    );
                }
            }
            if step > 0 {
                let is_alike = is_one == F::is_contiguous(before)
                    && (!is_one
                        || F::prot(entry, 1) == F::prot(before, 1)
                            && F::frame(before, 1).offset(1) == F::frame(entry, 1));
                if !is_alike {
                    return wrong("a contiguous run is not one, at page", page.0);
                }
            }
            before = entry;
        }
        Ok(())
    }

    /// Checks that a table with `live` entries is linked for a reason: it is not empty,
    /// or belongs to the root, which has all the tables that it was made with, or to a
    /// space that has been divided.
    fn audit_links(table: Pfn, level: u32, live: u64, keeps: bool) -> Result<(), AuditFailure> {
        let number = u64::from(table.0);
        let made = u64::from(Tables::<P, F>::ROOT_TABLES - 1);
        if level == F::LEVELS && live < made {
            return wrong("a root has lost a table that it was made with", number);
        }
        if live == 0 && level < Tables::<P, F>::kept_from(keeps) {
            return wrong("an empty page table was not freed", number);
        }
        Ok(())
    }

    fn audit_leaf(
        &self,
        space: u32,
        entry: u64,
        level: u32,
        page: Vpn,
        entries: &mut Entries,
    ) -> Result<(), AuditFailure> {
        let first = F::frame(entry, level);
        if first == self.zero_page {
            entries.zero += 1;
            if F::is_writable(entry) {
                return wrong("the shared zero page is mapped writable at page", page.0);
            }
            return Ok(());
        }
        let Some(view) = self.region_view_at(space, page) else {
            return wrong("a page is mapped outside of any region", page.0);
        };
        if F::is_writable(entry) && !view.prot.can_write() {
            return wrong(
                "an entry allows stores that its region does not, at page",
                page.0,
            );
        }
        if view.is_unmanaged() {
            return self.audit_unmanaged((entry, level), first, page, &view);
        }
        let Some(head) = self.managed(first) else {
            return wrong(
                "a frame is mapped that is not the manager's, at page",
                page.0,
            );
        };
        let is_page_of_object = level == 1 && head.kind() == Kind::Object;
        if entry & F::SOFT_DIRTY != 0 && !is_page_of_object {
            return wrong("a page that is no object's is soft-dirty, at page", page.0);
        }
        if level > 1 && head.kind() == Kind::Anonymous && head.order() > 0 {
            return self.audit_whole_run((entry, level), first, page, entries);
        }
        for step in 0..F::pages_at(level) {
            let pfn = first.offset(step as u32);
            entries.mappings += 1;
            let frame = self.memory.frame(pfn);
            match frame.kind() {
                Kind::Anonymous => {
                    entries.anonymous += 1;
                    let shared = frame.counts().maps() > 1;
                    if shared && F::is_writable(entry) {
                        return wrong("a private page mapped twice is writable at page", page.0);
                    }
                }
                Kind::Object => {
                    if frame.owner() != view.object || frame.index() != view.index_of(page) + step {
                        return wrong("a page shows another page of its object, at page", page.0);
                    }
                    if F::is_writable(entry) && !view.is_shared() {
                        return wrong("a private mapping may store to its object, at page", page.0);
                    }
                    match self.objects.get(frame.owner()).is_file() {
                        true => entries.file += 1,
                        false => entries.shared_memory += 1,
                    }
                }
                _ => return wrong("a frame is mapped that is not a page", u64::from(pfn.0)),
            }
        }
        Ok(())
    }

    /// Checks a leaf of frames that are not managed: they are those that the region shows, with its
    /// memory type, and no page of the manager's is among them.
    fn audit_unmanaged(
        &self,
        (entry, level): (u64, u32),
        first: Pfn,
        page: Vpn,
        view: &RegionView,
    ) -> Result<(), AuditFailure> {
        let shown = self.unmanaged_frames(view).map(|(frame, _)| frame);
        let offset = (page.0 - view.range.start.0) as u32;
        if shown.map(|frame| frame.offset(offset)) != Some(first)
            || page.0 + F::pages_at(level) > view.range.end.0
        {
            return wrong("a page shows another frame than was named, at page", page.0);
        }
        if F::prot(entry, level).memory_type() != view.prot.memory_type() {
            return wrong(
                "an entry has another memory type than its region, at page",
                page.0,
            );
        }
        let is_managed = |step: u64| self.managed(first.offset(step as u32)).is_some();
        if (0..F::pages_at(level)).any(is_managed) {
            return wrong("a frame that was named is the manager's, at page", page.0);
        }
        Ok(())
    }

    /// Checks a large leaf that maps a run whose frames have one record.
    fn audit_whole_run(
        &self,
        (entry, level): (u64, u32),
        first: Pfn,
        page: Vpn,
        entries: &mut Entries,
    ) -> Result<(), AuditFailure> {
        let pages = F::pages_at(level);
        let head = self.memory.frame(first);
        if 1 << head.order() != pages {
            return wrong("a superpage's run is of another size, at page", page.0);
        }
        if head.page().has(PageFlags::RUN_LOCK) {
            return wrong("a superpage's run is locked, at page", page.0);
        }
        let is_tail = |step: u64| self.memory.frame(first.offset(step as u32)).is_tail();
        if !(1..pages).all(is_tail) {
            return wrong("a frame of a whole superpage has a record, at page", page.0);
        }
        if F::is_writable(entry) && head.counts().maps() > 1 {
            return wrong("a superpage mapped twice is writable at page", page.0);
        }
        entries.anonymous += pages;
        entries.mappings += 1;
        Ok(())
    }
}
