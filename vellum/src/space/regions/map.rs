//! mmap.

use super::limits::Change;
use super::map_request::{MapRequest, Placement, Source};
use super::unmap::{DeadObjects, Unmapping};
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::{Commit, PolicyWord};
use crate::object::{INDEX_END, Object, ObjectKind, Seals};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::locks::lock::{Beside, Goal};
use crate::space::state::error::MapError;
use crate::space::state::extras::LEVEL;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, RegionView, Tagged, Traits};
use crate::space::state::spaces::SpaceId;
use crate::space::state::tree::{RegionHandle, RegionSpot};
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, SeqWrite, Unpinned};
use crate::table::Format;
use crate::tree::Found;

/// The seals of an object that is about to be mapped. None about stores by those who have it mapped
/// is added while this is there.
struct HeldSeals<'a> {
    seals: Seals,
    counted: Option<&'a Object>,
}

impl<'a> HeldSeals<'a> {
    /// Of what cannot be sealed.
    const NONE: HeldSeals<'a> = HeldSeals {
        seals: Seals::SEAL,
        counted: None,
    };

    fn of(object: &'a Object) -> HeldSeals<'a> {
        let (seals, is_counted) = object.begin_mapping();
        HeldSeals {
            seals,
            counted: is_counted.then_some(object),
        }
    }
}

impl Drop for HeldSeals<'_> {
    fn drop(&mut self) {
        if let Some(object) = self.counted {
            object.end_mapping();
        }
    }
}

/// Where a request goes.
struct MapPlace<'a, R: ReverseMap> {
    range: PageRange,
    /// Where the range begins.
    spot: RegionSpot<'a, R>,
    /// Whether nothing is mapped there.
    is_free: bool,
    /// The policy of nodes that it has of its own.
    policy: PolicyWord,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::map`](crate::space::Space::map).
    pub(crate) fn map(&self, id: SpaceId, request: &MapRequest) -> Result<Vpn, MapError> {
        let unpinned = Unpinned::at_door();
        self.with_room(unpinned, |unpinned| self.map_once(unpinned, id, request))
    }

    fn map_once(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        request: &MapRequest,
    ) -> Result<Vpn, MapError> {
        let request = &self.checked_request(request)?;
        let (object, seals) = self.source_object(id, request)?;
        let request = &match seals.seals.refuse_writes() {
            true => MapRequest {
                traits: (request.traits).at_most(request.traits.most().read_only()),
                ..*request
            },
            false => *request,
        };
        let mut dead = DeadObjects::default();
        let mut counted = false;
        let mut beside = |unpinned: Unpinned<'_>, goal| {
            let others = Beside::Unmappings;
            let mapped =
                self.with_range_locked(unpinned, id, goal, others, |pin, space, within| {
                    if !counted {
                        self.events(pin).maps.bump();
                        counted = true;
                    }
                    if space.is_divided() {
                        return self.map_in_tract(pin, space, request, within, object, &mut dead);
                    }
                    let place = self.place(space, request, within)?;
                    if !place.is_free && !space.unmappings.is_none() {
                        return Ok(None);
                    }
                    let mapped = self.map_placed(pin, space, request, place, object, &mut dead);
                    mapped.map(Some)
                });
            mapped.map(Option::flatten)
        };
        let result = match request.placement {
            Placement::Anywhere | Placement::Aligned(_) => {
                match beside(unpinned.reborrow(), Goal::Anywhere(None)) {
                    Ok(None) => self.try_other_tracts(unpinned.reborrow(), id, beside),
                    done => done,
                }
            }
            Placement::Fixed(start) | Placement::FixedFree(start) | Placement::Hint(start) => {
                // What is no range is refused where it is looked at.
                let range = Self::checked_range(start, request.pages);
                beside(unpinned.reborrow(), Goal::Range(range.unwrap_or_default()))
            }
        };
        let result = match result {
            Ok(Some(mapped)) => Ok(mapped),
            // In place of something that others may be unmapping, or not in one tract.
            Ok(None) => self.with_undivided(unpinned.reborrow(), id, |pin, space| {
                self.map_locked(pin, *space, request, object, &mut dead)
            }),
            Err(error) => Err(error),
        };
        if result.is_err() && object.0 != 0 && self.objects.release(object.0) {
            self.defer_destroy(&mut dead, object.0);
        }
        self.after_removal(unpinned, dead);
        result
    }

    /// The request, with the rights and traits that its region gets and without a hint that cannot be
    /// followed.
    ///
    /// # Errors
    /// [`MapError::WrongKind`], [`MapError::Rights`].
    fn checked_request(&self, request: &MapRequest) -> Result<MapRequest, MapError> {
        let is_plain = request.source == Source::Anonymous && !request.traits.has(Traits::SHARED);
        let is_known = Traits::REQUESTED.has(request.traits);
        if !is_known || request.traits.has(Traits::GROWS_DOWN) && !is_plain {
            return Err(MapError::WrongKind);
        }
        let is_usable = |start: Vpn| {
            start >= Self::bounds().start && Self::checked_range(start, request.pages).is_ok()
        };
        let placement = match request.placement {
            Placement::Hint(start) if !is_usable(start) => Placement::Anywhere,
            placement => placement,
        };
        let prot = F::given(request.prot);
        let mut traits = request.traits;
        if let Source::Frames { .. } = request.source {
            if !traits.has(Traits::SHARED) {
                traits = traits.at_most(traits.most().read_only());
            }
            // As on Linux, they are not locked: they stay anyway.
            traits = traits.without(Traits::LOCKED).union(Traits::UNMANAGED);
        }
        if !traits.most().includes(prot) {
            return Err(MapError::Rights);
        }
        if !(self.memory.commit()).is_some_and(Commit::may_be_unreserved) {
            traits = traits.without(Traits::NO_RESERVE);
        }
        Ok(MapRequest {
            prot,
            traits,
            placement,
            ..*request
        })
    }

    /// The object to map, with a user for the region, and the first page in it; with the seals
    /// that hold until the mapping is there.
    fn source_object(
        &self,
        id: SpaceId,
        request: &MapRequest,
    ) -> Result<((u32, u64), HeldSeals<'_>), MapError> {
        match request.source {
            Source::Anonymous if request.traits.has(Traits::SHARED) => {
                let pin = self.pin();
                let (kind, size) = (ObjectKind::SharedMemory, self.bytes_in(request.pages));
                let made = (self.objects).create(&self.memory, &pin, kind, size, 0)?;
                if self.memory.commit().is_some() && !request.traits.has(Traits::NO_RESERVE) {
                    self.commit_new(&pin, id, made.handle)?;
                }
                Ok(((made.handle, 0), HeldSeals::NONE))
            }
            Source::Anonymous => Ok(((0, 0), HeldSeals::NONE)),
            Source::Frames { first, at_once } => {
                self.check_unmanaged(first, request.pages)?;
                let kind = ObjectKind::Unmanaged { first, at_once };
                let id = (self.objects).create(&self.memory, &self.pin(), kind, 0, 0)?;
                Ok(((id.handle, 0), HeldSeals::NONE))
            }
            Source::Object { id, page } => {
                // No object can have more pages; what is mapped counts on it.
                page.checked_add(request.pages)
                    .filter(|&end| end <= INDEX_END)
                    .ok_or(MapError::BadRange)?;
                let pin = self.pin();
                let object = self.objects.find(id).ok_or(MapError::NoObject)?;
                let seals = match request.traits.has(Traits::SHARED) {
                    true => HeldSeals::of(object),
                    false => HeldSeals::NONE,
                };
                if seals.seals.refuse_writes() && request.prot.can_write() {
                    return Err(MapError::Sealed);
                }
                let regions = self.objects.regions(&self.regions, id.handle);
                if !regions.hold(&pin, None) {
                    return Err(MapError::NoObject);
                }
                Ok(((id.handle, page), seals))
            }
        }
    }

    /// Charges for shared memory that was just made for a space; it ends if that is refused.
    #[inline(never)]
    fn commit_new(&self, pin: &Pin<'_>, id: SpaceId, handle: u32) -> Result<(), MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace);
        let committed = space.and_then(|space| Ok(self.commit_object_of(pin, space, handle)?));
        committed.inspect_err(|_| self.objects.unmake(pin, handle))
    }

    /// [`Space::map`](crate::space::Space::map) in a locked space.
    pub(in crate::space) fn map_locked(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        request: &MapRequest,
        object: (u32, u64),
        dead: &mut DeadObjects,
    ) -> Result<Vpn, MapError> {
        let none = PolicyWord::NONE;
        self.map_as(pin, space, (request, none), object, dead)
    }

    /// The same with a policy of nodes.
    pub(super) fn map_as(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        (request, policy): (&MapRequest, PolicyWord),
        object: (u32, u64),
        dead: &mut DeadObjects,
    ) -> Result<Vpn, MapError> {
        let place = self.place(space, request, Self::all_pages())?;
        let place = MapPlace { policy, ..place };
        self.map_placed(pin, space, request, place, object, dead)
    }

    /// The same in a tract; `None` if it has to be done with all of the
    /// space, or for [`Placement::Anywhere`] in another tract.
    #[cold]
    #[inline(never)]
    fn map_in_tract(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        request: &MapRequest,
        within: PageRange,
        object: (u32, u64),
        dead: &mut DeadObjects,
    ) -> Result<Option<Vpn>, MapError> {
        // What a space has of locked pages is known as a whole, and whether the next tract begins
        // with a stack that a hint comes too close to.
        let is_near_next = |start: Vpn| {
            let gap = space.limits.get().stack_gap_pages;
            let end = start.0.saturating_add(request.pages).saturating_add(gap);
            end > within.end.0 && within.end < F::USER_END
        };
        let needs_all = match request.placement {
            // And tables that are kept for entries are of one caller.
            _ if request
                .traits
                .has_any(Traits::LOCKED.union(Traits::UNMANAGED)) =>
            {
                true
            }
            Placement::Hint(start) => {
                space.has_stack.load(Ordering::Relaxed) != 0 && is_near_next(start)
            }
            _ => false,
        };
        if needs_all {
            return Ok(None);
        }
        let placed = self.place(space, request, within);
        let mapped =
            placed.and_then(|place| self.map_placed(pin, space, request, place, object, dead));
        match mapped {
            Ok(start) => {
                let cpu = self.cpus.get(pin);
                cpu.mapped_at.store(start.0, Ordering::Relaxed);
                cpu.mapped_in.store(space.key(), Ordering::Relaxed);
                Ok(Some(start))
            }
            // There may be more in other tracts.
            Err(MapError::NoGap) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tries to map somewhere: in the tract of the lowest pages, where free ones are left longest,
    /// and then in all others from the highest down.
    #[cold]
    fn try_other_tracts(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        mut attempt: impl FnMut(Unpinned<'_>, Goal) -> Result<Option<Vpn>, MapError>,
    ) -> Result<Option<Vpn>, MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        let mut mapped = attempt(
            unpinned.reborrow(),
            Goal::Anywhere(Some(Self::bounds().start)),
        )?;
        let mut last = F::USER_END.0 - 1;
        while mapped.is_none()
            && let Some(tract) = self.find_tract(space, Vpn(last))
        {
            let start = tract.range().start.0.min(last);
            mapped = attempt(unpinned.reborrow(), Goal::Anywhere(Some(Vpn(start))))?;
            let Some(below) = start.checked_sub(1) else {
                break;
            };
            last = below;
        }
        Ok(mapped)
    }

    /// The same in a place that has been found. Where something has to go first, nothing
    /// is being unmapped without the lock.
    #[inline]
    fn map_placed(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        request: &MapRequest,
        place: MapPlace<'_, R>,
        object: (u32, u64),
        dead: &mut DeadObjects,
    ) -> Result<Vpn, MapError> {
        match request.source {
            Source::Frames {
                first,
                at_once: true,
            } => self.map_at_once(pin, space, request, (place, first), object, dead),
            _ => self.map_region(pin, space, request, place, object, dead),
        }
    }

    /// The same with all entries, which frames have that are not managed.
    #[cold]
    #[inline(never)]
    fn map_at_once(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        request: &MapRequest,
        (place, first): (MapPlace<'_, R>, Pfn),
        object: (u32, u64),
        dead: &mut DeadObjects,
    ) -> Result<Vpn, MapError> {
        let view = self.requested_view(request, place.range, object);
        self.keep_unmanaged(pin, space, view.range, first)?;
        let mapped = self.map_region(pin, space, request, place, object, dead);
        match mapped {
            Ok(_) => self.fill_unmanaged(pin, space, &view, first),
            Err(_) => self.release_unmanaged(pin, space, view.range, first),
        }
        mapped
    }

    /// The region that a request asks for.
    #[inline]
    fn requested_view(
        &self,
        request: &MapRequest,
        range: PageRange,
        (object, page): (u32, u64),
    ) -> RegionView {
        let traits = match self.memory.commit().is_some() {
            true => request.traits.committed_for(request.prot),
            false => request.traits,
        };
        RegionView {
            range,
            prot: request.prot,
            traits,
            object,
            offset: if object == 0 { range.start.0 } else { page },
        }
    }

    /// [`Vm::map_placed`] without entries.
    #[inline]
    fn map_region(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        request: &MapRequest,
        place: MapPlace<'_, R>,
        object: (u32, u64),
        dead: &mut DeadObjects,
    ) -> Result<Vpn, MapError> {
        let MapPlace {
            range,
            spot,
            is_free,
            policy,
        } = place;
        let view = self.requested_view(request, range, object);
        let tagged = Tagged {
            view,
            tag: request.tag,
            policy,
        };
        let may_cut = self.check_limits(space, range.start, &Change::Mapping(&tagged))?;
        if !is_free {
            let spare = self.make_region(pin, space, range.start)?;
            let region = spare.handle;
            let link = |write: &SeqWrite<'_>| {
                self.link_region(pin, space, write, (spare, &tagged), None);
            };
            let unmapping = Unmapping {
                vm: self,
                pin,
                space,
                range,
                may_cut: Some(may_cut),
            };
            if let Err(error) = unmapping.run(spot, dead, link) {
                self.regions.free(pin, region);
                return Err(error);
            }
            self.merge_around(pin, space, region);
            return Ok(range.start);
        }
        // Not one that is being unmapped.
        let touches =
            |found: &Found<'_, Region<R>>| found.end == range.start.0 && found.item.gate.is_open();
        if let Some(before) = spot.before().filter(touches)
            && let Some(extended) = self.extend_region(pin, space, before.item, &tagged)
        {
            self.merge_around(pin, space, extended);
            return Ok(range.start);
        }
        let is_continued = spot.after().is_some_and(|after| {
            after.start == range.end.0 && Self::continues(&tagged, &after.item.tagged())
        });
        let spare = self.make_region(pin, space, range.start)?;
        let write = self.seq_at(space, range.start).write(pin);
        self.link_region_at(spot, pin, space, &write, (spare, &tagged), None);
        drop(write);
        if is_continued {
            self.merge_at(pin, space, range.end);
        }
        Ok(range.start)
    }

    /// Where the request goes: a range in `within`, or what may be found there.
    #[inline]
    fn place<'a>(
        &'a self,
        space: LockedSpace<'a, R>,
        request: &MapRequest,
        within: PageRange,
    ) -> Result<MapPlace<'a, R>, MapError> {
        let start = match request.placement {
            Placement::Anywhere | Placement::Aligned(_) => {
                return self.place_anywhere(space, request, within);
            }
            Placement::Fixed(start) | Placement::FixedFree(start) | Placement::Hint(start) => start,
        };
        let range = Self::checked_range(start, request.pages)?;
        let is_low = start < space.layout.lowest();
        let spot = self.tree_at(space, range.start).spot(range.start.0);
        let is_free = spot.is_free_to(range.end.0);
        match request.placement {
            Placement::Hint(_)
                if !is_free
                    || is_low
                    || self.end_below_stack(space, range.end) != range.end
                    || space.layout.kept_in(range).is_some() =>
            {
                self.place_anywhere(space, request, within)
            }
            _ if is_low => Err(MapError::BadRange),
            Placement::FixedFree(_) if !is_free => Err(MapError::Occupied),
            _ => Ok(MapPlace {
                range,
                spot,
                is_free,
                policy: PolicyWord::NONE,
            }),
        }
    }

    /// The highest place for the request.
    fn place_anywhere<'a>(
        &'a self,
        space: LockedSpace<'a, R>,
        request: &MapRequest,
        within: PageRange,
    ) -> Result<MapPlace<'a, R>, MapError> {
        let pages = request.pages;
        if pages == 0 {
            return Err(MapError::BadRange);
        }
        let within = Self::bounds().intersection(within);
        let aligned = match request.source {
            Source::Frames { first, .. } => self.find_gap_like(space, pages, first, within),
            _ => None,
        };
        let order = match request.placement {
            Placement::Aligned(order) => order,
            _ => 0,
        };
        let start = aligned
            .or_else(|| self.place_in_gap(space, (pages, order), within))
            .ok_or(MapError::NoGap)?;
        let spot = self.tree_at(space, start).spot(start.0);
        Ok(MapPlace {
            range: PageRange::new(start, pages),
            spot,
            is_free: true,
            policy: PolicyWord::NONE,
        })
    }

    /// A place for `pages` pages that lies as the frames from `first` on do, so that large leaves
    /// can map them; none if there are too few, or there is no such gap.
    #[cold]
    fn find_gap_like(
        &self,
        space: LockedSpace<'_, R>,
        pages: u64,
        first: Pfn,
        within: PageRange,
    ) -> Option<Vpn> {
        let large = F::pages_at(LEVEL);
        let more = pages.checked_add(large - 1).filter(|_| pages >= large)?;
        let gap = self.place_in_gap(space, (more, 0), within)?;
        let ahead = u64::from(first.0).wrapping_sub(gap.0) & (large - 1);
        Some(gap.offset(ahead))
    }

    /// Refuses frames of the memory map that no block of the embedder's has reserved, and what is
    /// no frame.
    #[cold]
    fn check_unmanaged(&self, first: Pfn, pages: u64) -> Result<(), MapError> {
        let end = u64::from(first.0).checked_add(pages);
        let end = end.filter(|&end| end <= u64::from(Pfn::NONE.0));
        let end = end.ok_or(MapError::Managed)?;
        for range in self.memory.platform().memory_map() {
            let start = first.0.max(range.start.0);
            let end = end.min(u64::from(range.start.0) + u64::from(range.frames));
            let mut common = u64::from(start)..end;
            if !common.all(|frame| self.memory.is_reserved(Pfn(frame as u32))) {
                return Err(MapError::Managed);
            }
        }
        Ok(())
    }

    /// Whether no region overlaps `range`.
    pub(in crate::space) fn is_free(&self, space: LockedSpace<'_, R>, range: PageRange) -> bool {
        self.found_from(space, range.start)
            .is_none_or(|found| found.start >= range.end.0)
    }

    /// Lets `left`, which ends where the other begins, show it too, if it matches;
    /// returns that region.
    fn extend_region(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        left: &Region<R>,
        tagged: &Tagged,
    ) -> Option<RegionHandle<R>> {
        let (left_tagged, view) = (left.tagged(), &tagged.view);
        if !Self::continues(&left_tagged, tagged) {
            return None;
        }
        let left_view = left_tagged.view;
        let left = left.handle();
        let range = PageRange {
            start: left_view.range.start,
            end: view.range.end,
        };
        let write = self.seq_at(space, range.start).write(pin);
        self.resize_region(pin, space, &write, left, range);
        drop(write);
        // The region's own user keeps the object; the new one's is not needed.
        if view.object != 0 {
            let last = self.objects.release(view.object);
            debug_assert!(!last, "object lost its last user while it is mapped");
        }
        Some(left)
    }
}
