//! Checking everything against everything, while nothing else runs.

mod commit;
mod mappings;
mod objects;
mod spaces;
mod swap;

use core::fmt;

use crate::frame::{AuditError, FrameCensus, Kind};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::Vm;
use crate::table::Format;

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
    /// Tracts.
    pub tracts: u64,
    /// Live objects.
    pub objects: u64,
    /// Page tables in use.
    pub tables: u64,
    /// Free page tables that their source keeps, or that wait there for their
    /// epoch.
    pub free_tables: u64,
    /// Leaf entries that map frames, the zero page aside.
    pub entries: u64,
    /// Entries of pages that are in swap.
    pub swapped: u64,
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
        let mut slots = self.audit_spaces(&mut report)?;
        let cached = self.audit_objects(&mut report, &mut slots)?;
        self.audit_swap(slots)?;
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
        self.audit_commit()?;
        self.audit_reclaim()?;
        Ok(report)
    }

    /// Checks that reclaim finds every page that it may take.
    fn audit_reclaim(&self) -> Result<(), AuditFailure> {
        let Some(reclaim) = self.reclaim() else {
            return Ok(());
        };
        if let Err(place) = self.memory.audit_groups() {
            return wrong(
                "a group is charged for more or less than there is of it, in place",
                place as u64,
            );
        }
        let checked = reclaim.audit(&self.pin());
        checked.map_err(inner("lists of reclaim"))?;
        let mut result = Ok(());
        self.for_each_frame(|pfn| {
            let frame = self.memory.frame(pfn);
            let what = match frame.kind() {
                Kind::Object if frame.owner() != 0 => "a cached page is on no list of reclaim",
                Kind::Anonymous if frame.counts().maps() > 0 => {
                    "a private page is on no list of reclaim"
                }
                _ => return,
            };
            if result.is_ok() && !reclaim.is_known(pfn) {
                result = wrong(what, u64::from(pfn.0));
            }
        });
        result
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
        let tracts = self.tracts.items.audit();
        let tracts = tracts.map_err(inner("arena of tracts"))?;
        report.tracts = tracts.live;
        let tract_nodes = self.tracts.audit_nodes();
        let tract_nodes = tract_nodes.map_err(inner("arena of the nodes of tracts"))?;
        let region_sets = self.objects.region_sets().audit();
        let region_sets = region_sets.map_err(inner("arena of further sets of regions"))?;
        let own = [
            spaces,
            regions,
            objects,
            nodes,
            mounts,
            region_nodes,
            tracts,
            tract_nodes,
            region_sets,
        ];
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
}
