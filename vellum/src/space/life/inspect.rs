//! What the audit needs to see of a space.

use crate::addr::{Pfn, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::locked::HoldsSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, RegionView, Traits};
use crate::space::state::spaces::{Live, SpaceId};
use crate::space::state::tract::Tract;
use crate::sync::atomic::Ordering;
use crate::table::Format;
use crate::tree::{Found, Shape};
use crate::vm::{AuditFailure, EventStats};

/// A space that is audited, which is done while nobody is at work in the manager.
struct Audited<'a, R: ReverseMap>(Live<'a, R>);

impl<'a, R: ReverseMap> HoldsSpace<'a, R> for Audited<'a, R> {
    fn live(&self) -> Live<'a, R> {
        self.0
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The space a table belongs to, by handle, for reports.
    pub(crate) fn space_named_by(&self, handle: u32) -> SpaceId {
        self.live_at(handle).id()
    }

    /// The root table of the space with this handle.
    pub(crate) fn root_of(&self, handle: u32) -> Pfn {
        self.live_at(handle).root()
    }

    /// Whether the space with this handle keeps empty tables above the lowest level.
    pub(crate) fn keeps_tables_of(&self, handle: u32) -> bool {
        self.live_at(handle).keeps_tables()
    }

    /// The region of a space that holds `page`, while nothing changes.
    pub(crate) fn region_view_at(&self, handle: u32, page: Vpn) -> Option<RegionView> {
        let region = self.region_from(Audited(self.live_at(handle)).locked(), page);
        if region.is_none() {
            return None;
        }
        let view = self.region(region).view();
        view.range.contains(page).then_some(view)
    }

    /// Checks that a region shows frames which are not managed if it says so, and has all of its
    /// entries if it is to have them from the start.
    fn audit_frames_of(&self, space: Live<'_, R>, view: &RegionView) -> Result<(), &'static str> {
        let frames = self.unmanaged_frames(view);
        if frames.is_some() != view.is_unmanaged() {
            return Err("a region says another thing than its object about whose frames it shows");
        }
        let is_private = !view.is_shared() && view.prot.can_write();
        if frames.is_some() && (is_private || view.traits.has(Traits::LOCKED)) {
            return Err(
                "a region of frames that are not managed is locked, or copied when written",
            );
        }
        let Some((_, true)) = frames else {
            return Ok(());
        };
        let pin = self.pin();
        let tables = self.tables(&pin, space);
        let mut missing = view.range.pages();
        for span in tables.spans(view.range) {
            let entries = span.first..span.first + span.count;
            let live = entries.filter(|&index| F::is_mapped(span.table.load(index)));
            let pages = live.count() as u64 * F::pages_at(span.table.level());
            missing = missing.wrapping_sub(pages);
        }
        match missing {
            0 => Ok(()),
            _ => Err("a page has no entry that is to have one from the start"),
        }
    }

    /// Calls `each` for every region of a space, while nothing changes.
    pub(crate) fn each_region_of(&self, handle: u32, mut each: impl FnMut(&RegionView)) {
        let space = Audited(self.live_at(handle));
        let _ = self.for_regions::<()>(space.locked(), Self::all_pages(), |_, view| {
            each(&view);
            Ok(())
        });
    }

    /// What a space has counted of committed pages, and what it is charged for them.
    pub(crate) fn promised_to(&self, handle: u32) -> [u64; 2] {
        let counts = self.region_counts(self.live_at(handle));
        [counts.committed, counts.charged].map(|count| count.get())
    }

    /// Checks the regions and tracts of a space; returns how many regions there are, their pages,
    /// and the nodes of their tree. The pages of data are as many as are counted.
    pub(crate) fn audit_regions(&self, handle: u32) -> Result<(u64, u64, u64), AuditFailure> {
        let space = self.live_at(handle);
        let failure = |what| AuditFailure {
            what,
            number: u64::from(handle),
            expected_found: None,
            inner: None,
        };
        if space.lock.is_held() {
            return Err(failure("a space is locked"));
        }
        if !space.unmappings.is_none() || space.unmappings.is_awaited() {
            return Err(failure("a region is being unmapped"));
        }
        let shape = self.audit_trees(space).map_err(failure)?;
        let (mut pages, mut data) = (0, 0);
        let checked = self.for_regions(
            Audited(space).locked(),
            Self::all_pages(),
            |region, view| {
                let region = self.region(region);
                if region.space() != handle {
                    return Err(failure(
                        "a region belongs to another space than the one it is in",
                    ));
                }
                let has_policy = !region.policy().is_none();
                if has_policy && !space.payer().is_unplaced() {
                    return Err(failure(
                        "a region has a policy of which its space does not know",
                    ));
                }
                if !self.memory.may_have(region.policy()) {
                    return Err(failure("a region has a policy that there is not"));
                }
                if !region.gate.is_open() {
                    return Err(failure("the gate of a region was left closed"));
                }
                if view.traits.has(Traits::TRACKED) && !space.is_tracked() {
                    return Err(failure("a region is tracked whose space is not"));
                }
                let pin = self.pin();
                let has_private = view.traits.has(Traits::HAS_PRIVATE);
                let reference = self.region_ref(region.handle());
                let checked = self
                    .rmap
                    .check_region(&self.env(&pin), self, reference, has_private);
                if let Err(what) = checked {
                    return Err(failure(what));
                }
                pages += view.range.pages();
                data += if view.is_data() {
                    view.range.pages()
                } else {
                    0
                };
                self.audit_frames_of(space, &view).map_err(failure)
            },
        );
        checked?;
        let counted = self.region_counts(space).data.get();
        if counted != data {
            return Err(AuditFailure {
                expected_found: Some((data, counted)),
                ..failure("pages of data of a space")
            });
        }
        Ok((shape.items, pages, shape.nodes))
    }

    /// Checks the trees of regions of a space, and its tracts.
    fn audit_trees(&self, space: Live<'_, R>) -> Result<Shape, &'static str> {
        let range_of_region = |region: &Region<R>| (region.range().start.0, region.range().end.0);
        let audited = Audited(space);
        let mut shape = self.tree(audited.locked(), space).check(range_of_region)?;
        if space.is_whole() {
            return Err("a space is locked");
        }
        if !space.is_divided() {
            return Ok(shape);
        }
        if shape.items > 0 {
            return Err("a space in tracts has a region that is in none");
        }
        let mut next = Vpn(0);
        let mut tracts = 0;
        let range_of = |tract: &Tract| (tract.range().start.0, tract.range().end.0);
        self.tracts(space).check(range_of)?;
        for found in self.tracts(space).walk(0) {
            let tract = found.item;
            if tract.range().start != next || !tract.covers(space.handle(), next) {
                return Err("a space has pages that are in no tract, or in two");
            }
            if tract.guarded.lock.is_held() {
                return Err("a tract is locked");
            }
            let range = tract.range();
            let is_here = |found: Found<'_, Region<R>>| {
                found.start >= range.start.0 && found.end <= range.end.0
            };
            if !self
                .tract_tree(audited.locked(), tract)
                .walk(0)
                .all(is_here)
            {
                return Err("a region reaches into another tract");
            }
            next = range.end;
            tracts += 1;
            let regions = self
                .tract_tree(audited.locked(), tract)
                .check(range_of_region)?;
            shape.items += regions.items;
            shape.nodes += regions.nodes;
        }
        let is_complete =
            next == F::USER_END && tracts == u64::from(space.tract_count.load(Ordering::Relaxed));
        match is_complete {
            true => Ok(shape),
            false => Err("a space has pages that are in no tract, or miscounts its tracts"),
        }
    }

    /// Event counts, summed over CPUs.
    pub(crate) fn event_stats(&self) -> EventStats {
        let mut stats = EventStats::default();
        for cpu in self.cpus.iter() {
            let events = &cpu.events;
            stats.faults += events.faults.get();
            stats.spurious_faults += events.spurious_faults.get();
            stats.fault_retries += events.fault_retries.get();
            stats.zero_maps += events.zero_maps.get();
            stats.zero_fills += events.zero_fills.get();
            stats.file_maps += events.file_maps.get();
            stats.around_maps += events.around_maps.get();
            stats.cow_copies += events.cow_copies.get();
            stats.cow_reuses += events.cow_reuses.get();
            stats.tables_made += events.tables_made.get();
            stats.tables_freed += events.tables_freed.get();
            stats.tables_moved += events.tables_moved.get();
            stats.forks += events.forks.get();
            stats.fork_entries += events.fork_entries.get();
            stats.maps += events.maps.get();
            stats.unmaps += events.unmaps.get();
            stats.zapped_entries += events.zapped_entries.get();
            stats.exits += events.exits.get();
            stats.page_reads += events.page_reads.get();
            stats.page_writes += events.page_writes.get();
            stats.lost_objects += events.lost_objects.get();
            stats.lookups += events.lookups.get();
            stats.lookup_hits += events.lookup_hits.get();
            stats.lookup_misses += events.lookup_misses.get();
            stats.lookup_retries += events.lookup_retries.get();
            stats.superpage_maps += events.superpage_maps.get();
            stats.superpage_failures += events.superpage_failures.get();
            stats.superpage_demotions += events.superpage_demotions.get();
            stats.superpage_collapses += events.superpage_collapses.get();
            stats.superpage_promotions += events.superpage_promotions.get();
            stats.reservations += events.reservations.get();
            stats.folio_maps += events.folio_maps.get();
            stats.folio_pages += events.folio_pages.get();
            stats.folio_failures += events.folio_failures.get();
            stats.contiguous_runs += events.contiguous_runs.get();
            stats.contiguous_ends += events.contiguous_ends.get();
            stats.swap_ins += events.swap_ins.get();
        }
        stats
    }
}
