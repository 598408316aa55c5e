//! Checking everything against everything, while nothing else runs.

use core::cell::Cell;
use core::fmt;

use crate::addr::{Pfn, Vpn};
use crate::frame::{AuditError, Flags, FrameCensus, Kind};
use crate::platform::Platform;
use crate::rmap::{Env, ReverseMap, Verdict};
use crate::space::Vm;
use crate::sync::atomic::Ordering;
use crate::table::{Format, Tables, with_table_words};

/// What an audit counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AuditReport {
    /// Where the frames are.
    pub frames: FrameCensus,
    /// Live address spaces.
    pub spaces: u64,
    /// Their regions.
    pub regions: u64,
    /// Nodes of the trees of regions.
    pub region_nodes: u64,
    /// Live objects.
    pub objects: u64,
    /// Page tables in use.
    pub tables: u64,
    /// Free page tables that their source keeps, or that wait there for their
    /// epoch.
    pub free_tables: u64,
    /// Leaf entries that map frames, the zero page aside.
    pub entries: u64,
}

/// What an audit found wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditFailure {
    /// What is wrong.
    pub what: &'static str,
    /// Which frame, space handle or object handle, as `what` says.
    pub number: u64,
    /// The number that should be there, and the one that is.
    pub expected_found: Option<(u64, u64)>,
    /// For failures within frames or arenas.
    pub inner: Option<AuditError>,
}

impl fmt::Display for AuditFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:#x}", self.what, self.number)?;
        if let Some((expected, found)) = self.expected_found {
            write!(f, " (expected {expected}, found {found})")?;
        }
        if let Some(inner) = self.inner {
            write!(f, ": {inner}")?;
        }
        Ok(())
    }
}

impl core::error::Error for AuditFailure {}

fn wrong<T>(what: &'static str, number: u64) -> Result<T, AuditFailure> {
    Err(AuditFailure {
        what,
        number,
        expected_found: None,
        inner: None,
    })
}

fn same(what: &'static str, number: u64, expected: u64, found: u64) -> Result<(), AuditFailure> {
    if expected == found {
        return Ok(());
    }
    Err(AuditFailure {
        what,
        number,
        expected_found: Some((expected, found)),
        inner: None,
    })
}

fn inner(what: &'static str) -> impl Fn(AuditError) -> AuditFailure {
    move |error| AuditFailure {
        what,
        number: 0,
        expected_found: None,
        inner: Some(error),
    }
}

/// Entries of one space by what they map.
#[derive(Default)]
struct Entries {
    anonymous: u64,
    file: u64,
    shared_memory: u64,
    zero: u64,
    tables: u64,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Checks the invariants of the manager; see ARCHITECTURE.md for their
    /// numbers. Nothing else may be at work on it, on any CPU.
    ///
    /// # Errors
    /// [`AuditFailure`]: the first thing found wrong.
    pub fn audit(&self) -> Result<AuditReport, AuditFailure> {
        let frames = self.memory.audit_frames().map_err(inner("frames"))?;
        let mut report = AuditReport {
            frames,
            ..AuditReport::default()
        };
        let slab_frames = self.audit_arenas(&mut report)?;
        self.audit_spaces(&mut report)?;
        let cached = self.audit_objects(&mut report)?;
        let (mapped, detached) = self.audit_mappings()?;
        same("entries that map frames", 0, mapped, report.entries)?;
        let found = |kind| frames.of(kind);
        let kept = self.table_pages.audit(&self.memory);
        report.free_tables = kept.map_err(inner("free page tables"))?;
        same(
            "frames of page tables",
            0,
            report.tables + report.free_tables,
            found(Kind::Table),
        )?;
        same("frames of arenas", 0, slab_frames, found(Kind::Slab))?;
        same(
            "frames of objects",
            0,
            cached + detached,
            found(Kind::Object),
        )?;
        same(
            "frames that belong to nothing",
            0,
            frames.owned,
            found(Kind::Allocated),
        )?;
        if mapped == 0 {
            same("nodes of the rmap design", 0, 0, self.rmap.live_nodes())?;
        }
        if report.spaces == 0 {
            same(
                "what the rmap design keeps for regions and spaces",
                0,
                0,
                self.rmap.live_groups(),
            )?;
        }
        Ok(report)
    }

    /// Checks the arenas; returns the frames they have, the rmap design's too.
    fn audit_arenas(&self, report: &mut AuditReport) -> Result<u64, AuditFailure> {
        let spaces = self.spaces.audit().map_err(inner("arena of spaces"))?;
        let regions = self.regions.audit().map_err(inner("arena of regions"))?;
        let objects = self
            .objects
            .arena()
            .audit()
            .map_err(inner("arena of objects"))?;
        let nodes = self
            .objects
            .nodes()
            .audit()
            .map_err(inner("arena of radix nodes"))?;
        report.spaces = spaces.live;
        report.regions = regions.live;
        report.objects = objects.live;
        let mounts = self.objects.mounts().audit();
        let mounts = mounts.map_err(inner("arena of mounts"))?;
        let region_nodes = self.region_nodes.audit();
        let region_nodes = region_nodes.map_err(inner("arena of the nodes of regions"))?;
        report.region_nodes = region_nodes.live;
        let own = [spaces, regions, objects, nodes, mounts, region_nodes];
        let frames: u64 = own
            .iter()
            .map(|census| census.chunks + census.directory)
            .sum();
        Ok(frames
            + self
                .rmap
                .audit_nodes()
                .map_err(inner("arena of the rmap design"))?)
    }

    fn audit_spaces(&self, report: &mut AuditReport) -> Result<(), AuditFailure> {
        let mut result = Ok(());
        let (mut spaces, mut regions, mut nodes) = (0, 0, 0);
        self.spaces.each(|handle, space| {
            if result.is_ok() && space.users() > 0 {
                spaces += 1;
                result = self.audit_space(handle.raw(), report).map(|found| {
                    regions += found.0;
                    nodes += found.1;
                });
            }
        });
        result?;
        same("live spaces", 0, report.spaces, spaces)?;
        same("live regions", 0, report.regions, regions)?;
        same("nodes of trees of regions", 0, report.region_nodes, nodes)
    }

    /// Checks one space; returns its regions and the nodes of their tree.
    fn audit_space(
        &self,
        handle: u32,
        report: &mut AuditReport,
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
        let mut entries = Entries::default();
        let root = self.root_of(handle);
        self.audit_table(handle, root, F::LEVELS, Vpn(0), &mut entries)?;
        report.tables += entries.tables;
        report.entries += entries.anonymous + entries.file + entries.shared_memory;
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
        let right = frame.kind() == Kind::Table
            && frame.level() == level
            && frame.owner() == space
            && frame.base() == base;
        if !right {
            return wrong("a page table's record is not that of the table", number);
        }
        if frame.has(Flags::TABLE_LOCK) || frame.has(Flags::DEAD) {
            return wrong("a page table is locked or dead", number);
        }
        if frame.has(Flags::KEPT) {
            return wrong("a page table is kept for a move that is over", number);
        }
        entries.tables += 1;
        let pin = self.pin();
        let live = with_table_words::<F, P, _>(&self.memory, &pin, (table, level), |words| {
            let words = words.iter().map(|word| word.load(Ordering::Relaxed));
            self.audit_entries(space, (table, level, base), words, entries)
        })?;
        same(
            "live entries of page table",
            number,
            u64::from(frame.live()),
            live,
        )?;
        Self::audit_links(table, level, live)
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
            if !F::is_mapped(entry) {
                return wrong(
                    "a page table has an entry that is neither empty nor mapped",
                    u64::from(table.0),
                );
            }
            if F::is_leaf(entry, level) {
                self.audit_leaf(space, entry, level, page, entries)?;
            } else {
                self.audit_table(space, F::frame(entry, level), level - 1, page, entries)?;
            }
        }
        Ok(live)
    }

    /// Checks that a table with `live` entries is linked for a reason: it is not empty,
    /// or belongs to the root, which has all the tables that it was made with.
    fn audit_links(table: Pfn, level: u32, live: u64) -> Result<(), AuditFailure> {
        let number = u64::from(table.0);
        let made = u64::from(Tables::<P, F>::ROOT_TABLES - 1);
        if level == F::LEVELS && live < made {
            return wrong("a root has lost a table that it was made with", number);
        }
        if live == 0 && level < Tables::<P, F>::KEPT_FROM {
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
        for step in 0..F::pages_at(level) {
            let pfn = first.offset(step as u32);
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
                    match self.objects.get(frame.owner()).kind() {
                        crate::object::ObjectKind::File { .. } => entries.file += 1,
                        crate::object::ObjectKind::SharedMemory => entries.shared_memory += 1,
                    }
                }
                _ => return wrong("a frame is mapped that is not a page", u64::from(pfn.0)),
            }
        }
        Ok(())
    }

    /// Checks the objects; returns the frames in their caches.
    fn audit_objects(&self, report: &mut AuditReport) -> Result<u64, AuditFailure> {
        let mut result = Ok(());
        let (mut objects, mut cached, mut dirty) = (0, 0, 0);
        self.objects.arena().each(|handle, object| {
            if result.is_ok() && object.users() > 0 {
                objects += 1;
                dirty += object.dirty();
                result = self.audit_object(handle.raw()).map(|found| cached += found);
            }
        });
        result?;
        same("live objects", 0, report.objects, objects)?;
        if let Some(counted) = self.memory.dirty_pages() {
            same("dirty pages of zones", 0, counted, dirty)?;
        }
        self.audit_mounts()?;
        Ok(cached)
    }

    /// Checks that each mount is charged with the pages of its objects.
    fn audit_mounts(&self) -> Result<(), AuditFailure> {
        let mut result = Ok(());
        self.objects.mounts().each(|handle, mount| {
            if result.is_err() || mount.users() == 0 {
                return;
            }
            let number = handle.raw();
            let mut pages = 0;
            self.objects.arena().each(|_, object| {
                if object.users() > 0 && self.objects.mount_of(object) == number {
                    pages += object.cached();
                }
            });
            let what = "pages charged to mount";
            result = same(what, u64::from(number), pages, mount.used());
        });
        result
    }

    fn audit_object(&self, handle: u32) -> Result<u64, AuditFailure> {
        let number = u64::from(handle);
        let object = self.objects.get(handle);
        let radix = self.objects.radix(object);
        if object.writers.is_held() {
            return wrong("a range is held of object", number);
        }
        let mut cached = 0;
        let mut dirty = 0;
        let mut next = 0;
        while let Some((index, page)) = radix.next(next) {
            let frame = self.memory.frame(page);
            if frame.kind() != Kind::Object || frame.owner() != handle || frame.index() != index {
                return wrong(
                    "a cached frame's record names another page",
                    u64::from(page.0),
                );
            }
            if frame.has(Flags::LOCKED) || !frame.has(Flags::UPTODATE) {
                return wrong(
                    "a cached page is locked or was never filled",
                    u64::from(page.0),
                );
            }
            cached += 1;
            dirty += u64::from(self.objects.is_marked_dirty(object, index));
            next = index + 1;
        }
        same("cached pages of object", number, object.cached(), cached)?;
        same("dirty pages of object", number, object.dirty(), dirty)?;
        let regions = self.objects.regions(&self.regions, handle);
        regions
            .check()
            .map_or_else(|what| wrong(what, number), Ok)?;
        Ok(cached)
    }

    /// Checks counts and reverse mappings of every frame; returns the sum of
    /// the mapping counts, and how many pages of objects only pins keep. Each visit finds as many entries as its frame's
    /// count says, and every entry found maps the frame; so if the sum is the
    /// number of entries in all tables, visits find exactly those.
    fn audit_mappings(&self) -> Result<(u64, u64), AuditFailure> {
        let result = Cell::new(Ok(()));
        let (mut mapped, mut detached) = (0, 0);
        self.for_each_frame(|pfn| {
            if result.get().is_ok() {
                match self.audit_frame(pfn) {
                    Ok(maps) => mapped += u64::from(maps),
                    Err(error) => result.set(Err(error)),
                }
                let frame = self.memory.frame(pfn);
                detached += u64::from(frame.kind() == Kind::Object && frame.owner() == 0);
            }
        });
        result.get()?;
        Ok((mapped, detached))
    }

    fn audit_frame(&self, pfn: Pfn) -> Result<u32, AuditFailure> {
        let frame = self.memory.frame(pfn);
        let own = match frame.kind() {
            Kind::Anonymous => 0,
            // Truncation took the cache's reference from a page that is pinned.
            Kind::Object => u32::from(frame.owner() != 0),
            _ => return Ok(0),
        };
        let number = u64::from(pfn.0);
        let counts = frame.counts();
        let expected = own + counts.maps() + counts.pins();
        same(
            "references of frame",
            number,
            u64::from(expected),
            u64::from(counts.refs()),
        )?;
        let pin = self.pin();
        let env = Env {
            memory: &self.memory,
            pin: &pin,
        };
        // First: a visit follows what the frame names, and may trust it.
        self.rmap
            .check_frame(&env, pfn, counts.maps())
            .or_else(|what| wrong(what, number))?;
        let report = self
            .rmap
            .visit::<P, F>(&env, self, pfn, &mut |_| Verdict::Keep);
        let maps = u64::from(counts.maps());
        same(
            "entries a visit finds for frame",
            number,
            maps,
            u64::from(report.hits),
        )?;
        Ok(counts.maps())
    }
}
