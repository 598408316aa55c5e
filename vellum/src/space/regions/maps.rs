//! What a space shows, region by region and page by page.

#[cfg(any(test, feature = "probe"))]
use crate::addr::Access;
use crate::addr::{PageRange, Pfn, Prot, Vpn};
#[cfg(any(test, feature = "probe"))]
use crate::design::Superpages;
#[cfg(any(test, feature = "probe"))]
use crate::frame::Kind;
use crate::frame::{NodePolicy, PageFlags};
use crate::object::{ObjectId, ObjectKind};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::MapError;
use crate::space::state::locked::HoldsSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, RegionView, Tagged, Traits};
use crate::space::state::spaces::{Live, SpaceId};
use crate::swap::InSwap;
use crate::sync::{Pin, Unpinned};
use crate::table::{Entry, Format};

/// One region in a `maps` view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapEntry {
    /// The pages.
    pub range: PageRange,
    /// The rights.
    pub prot: Prot,
    /// Other properties.
    pub traits: Traits,
    /// The object, what it is made of, and its page at the region's start.
    pub object: Option<(ObjectId, ObjectKind, u64)>,
    /// The embedder's word ([`MapRequest::tag`](crate::space::MapRequest::tag)).
    pub tag: u64,
    /// The policy of nodes that it has of its own
    /// ([`Space::set_node_policy`](crate::space::Space::set_node_policy)).
    pub node_policy: Option<NodePolicy>,
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::region_at`](crate::space::Space::region_at).
    pub(crate) fn region_at(&self, id: SpaceId, page: Vpn) -> Option<MapEntry> {
        let slot = self.slot_of(id)?;
        let mut spins = 0;
        loop {
            // The region that is read here may be freed and used anew meanwhile, but keeps
            // its type; and whoever uses it anew has seen it leave this space,
            // which the count tells (ARCHITECTURE.md, invariant 7).
            let space = slot.named(id)?;
            let pin = self.pin();
            let found = self.look(&pin, space, page, |tree| {
                // Asked after the count: a space that ends from now on changes it.
                slot.named(id)?;
                let found = tree.last_at_most(page.0).map(Region::tagged);
                let found = found.filter(|found| found.view.range.contains(page));
                Some(found.map(|found| self.map_entry(&found)))
            });
            if let Some(found) = found {
                return found?;
            }
            self.memory.platform().relax(spins);
            spins += 1;
        }
    }

    /// A region as its space shows it to others.
    #[inline]
    fn map_entry(&self, Tagged { view, tag, policy }: &Tagged) -> MapEntry {
        let object = (view.object != 0).then(|| {
            let object = self.objects.get(view.object);
            let id = ObjectId {
                handle: view.object,
                generation: object.generation(),
            };
            (id, object.kind(), view.offset)
        });
        MapEntry {
            range: view.range,
            prot: view.prot,
            traits: view.traits.without(Traits::HIDDEN),
            object,
            tag: *tag,
            node_policy: policy.policy(),
        }
    }

    /// [`Space::for_each_region`](crate::space::Space::for_each_region).
    pub(crate) fn for_each_region(
        &self,
        id: SpaceId,
        mut each: impl FnMut(&MapEntry),
    ) -> Result<(), MapError> {
        let unpinned = Unpinned::at_door();
        let guard = self.lock_named(unpinned, id)?;
        let space = guard.locked();
        self.for_regions(space, Self::all_pages(), |handle, _| {
            each(&self.map_entry(&self.region(handle).tagged()));
            Ok(())
        })
    }

    /// [`Space::translate`](crate::space::Space::translate).
    pub(crate) fn translate(&self, id: SpaceId, page: Vpn) -> Option<(Pfn, Prot)> {
        // Tables are indexed with the low bits of a page number.
        if page >= F::USER_END {
            return None;
        }
        let pin = self.pin();
        let space = self.find_space(id)?;
        let (entry, level) = self.tables(&pin, space).peek_settled(page);
        let within = page.0 & (F::pages_at(level) - 1);
        F::is_mapped(entry).then(|| {
            let frame = F::frame(entry, level).offset(within as u32);
            (frame, F::prot(entry, level))
        })
    }

    /// [`Space::residency`](crate::space::Space::residency).
    pub(crate) fn residency(
        &self,
        id: SpaceId,
        start: Vpn,
        resident: &mut [bool],
    ) -> Result<(), MapError> {
        let range = Self::checked_range(start, resident.len() as u64)?;
        self.with_locked(Unpinned::at_door(), id, |pin, space| {
            if !self.is_covered(*space, range) {
                return Err(MapError::NotMapped);
            }
            resident.fill(false);
            self.for_regions(*space, range, |_, view| {
                let view = view.part(range);
                let first = (view.range.start.0 - start.0) as usize;
                let part = &mut resident[first..first + view.range.pages() as usize];
                if view.object != 0 {
                    self.find_cached(pin, &view, part);
                }
                self.find_mapped(pin, **space, &view, part);
                Ok(())
            })
        })
    }

    /// Which pages of its object a part of a region could show that are in memory.
    fn find_cached(&self, pin: &Pin<'_>, view: &RegionView, part: &mut [bool]) {
        let radix = self.objects.radix(pin, self.objects.get(view.object));
        let (first, pages) = (view.offset, view.range.pages());
        radix.each_in(first..first + pages, |index, frame| {
            let page = self.memory.frame(frame).page();
            part[(index - first) as usize] = page.has(PageFlags::UPTODATE);
        });
    }

    /// What the entries of a part of a region say: what an entry does not name may be cached.
    fn find_mapped(&self, pin: &Pin<'_>, space: Live<'_, R>, view: &RegionView, part: &mut [bool]) {
        let range = view.range;
        for span in self.tables(pin, space).spans(range) {
            let level = span.table.level();
            for index in span.first..span.first + span.count {
                let is_here = match F::decode(span.table.load(index), level) {
                    Entry::Empty | Entry::Table(_) => continue,
                    Entry::Leaf(_) => true,
                    Entry::Guard | Entry::Lost => false,
                    Entry::Swap(swapped) => self.is_in_swap_cache(pin, swapped.slot),
                };
                let shown = PageRange::new(span.table.page(index), F::pages_at(level));
                let shown = shown.intersection(range);
                let first = (shown.start.0 - range.start.0) as usize;
                part[first..first + shown.pages() as usize].fill(is_here);
            }
        }
    }

    fn is_in_swap_cache(&self, pin: &Pin<'_>, slot: u64) -> bool {
        let found = self.swap().map(|swap| swap.find(&self.memory, pin, slot));
        match found {
            Some(InSwap::Cached { page, is_busy }) => {
                self.memory.put(pin, page);
                !is_busy
            }
            _ => false,
        }
    }

    /// [`is_mapped_for`](crate::probe::is_mapped_for).
    #[cfg(any(test, feature = "probe"))]
    pub(crate) fn is_mapped_for(&self, id: SpaceId, page: Vpn, access: Access) -> bool {
        if page >= F::USER_END {
            return false;
        }
        let pin = self.pin();
        let Some(space) = self.find_space(id) else {
            return false;
        };
        let (entry, level) = self.tables(&pin, space).peek(page);
        F::is_mapped(entry) && F::prot(entry, level).allows(access)
    }

    /// [`came_in_superpage`](crate::probe::came_in_superpage).
    #[cfg(any(test, feature = "probe"))]
    pub(crate) fn came_in_superpage(&self, id: SpaceId, page: Vpn) -> bool {
        let is_eager = matches!(self.superpages(), Superpages::Eager | Superpages::Advise);
        if !is_eager && !self.has_huge() || page >= F::USER_END {
            return false;
        }
        let pin = self.pin();
        let Some(space) = self.find_space(id) else {
            return false;
        };
        let (entry, level) = self.tables(&pin, space).peek_settled(page);
        if !F::is_mapped(entry) {
            return false;
        }
        let Some(record) = self.managed(F::frame(entry, level)) else {
            return false;
        };
        match record.kind() {
            Kind::Anonymous => is_eager && (level > 1 || record.came_in_run()),
            _ => level > 1,
        }
    }

    /// [`came_in_folio`](crate::probe::came_in_folio).
    #[cfg(any(test, feature = "probe"))]
    pub(crate) fn came_in_folio(&self, id: SpaceId, page: Vpn) -> bool {
        if !self.extras().folios() || page >= F::USER_END {
            return false;
        }
        let pin = self.pin();
        let Some(space) = self.find_space(id) else {
            return false;
        };
        let (entry, level) = self.tables(&pin, space).peek_settled(page);
        if !F::is_mapped(entry) {
            return false;
        }
        let first = F::frame(entry, level);
        let Some(mut record) = self.managed(first) else {
            return false;
        };
        if level > 1 && record.order() == 0 {
            // Single pages that became one leaf, and have their records still.
            let step = page.0 & (F::pages_at(level) - 1);
            record = self.memory.frame(first.offset(step as u32));
        }
        record.kind() == Kind::Anonymous && record.came_in_folio()
    }

    /// [`Space::for_each_leaf`](crate::space::Space::for_each_leaf).
    pub(crate) fn for_each_leaf(
        &self,
        id: SpaceId,
        mut each: impl FnMut(Vpn, Pfn, u64, Prot),
    ) -> Result<(), MapError> {
        let mut unpinned = Unpinned::at_door();
        let guard = self.lock_named(unpinned.reborrow(), id)?;
        let pin = self.pin_by(&unpinned);
        let tables = self.tables(&pin, *guard.locked());
        for span in tables.spans(Self::all_pages()) {
            let level = span.table.level();
            for index in span.first..span.first + span.count {
                let entry = span.table.load(index);
                if F::is_mapped(entry) {
                    each(
                        span.table.page(index),
                        F::frame(entry, level),
                        F::pages_at(level),
                        F::prot(entry, level),
                    );
                }
            }
        }
        Ok(())
    }
}
