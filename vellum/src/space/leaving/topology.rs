//! What reverse mapping reads of spaces: regions and tables, without locks.

use core::ops::ControlFlow;

use crate::addr::Vpn;
use crate::platform::Platform;
use crate::rmap::{RegionRef, ReverseMap, Stretch, Topology};
use crate::slab::Handle;
use crate::space::state::manager::Vm;
use crate::space::state::region::RegionView;
use crate::space::state::spaces::Live;
use crate::space::state::tree::RegionTree;
use crate::sync::Pin;
use crate::table::{Format, PteRef};
use crate::tree::IntervalItem;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The region that ends or begins where another does, if it could be part
    /// of one mapping with it.
    fn sibling<'a>(
        &'a self,
        (space, tree): (Live<'_, R>, RegionTree<'_, R>),
        page: Vpn,
        fits: impl Fn(&RegionView) -> bool,
    ) -> Option<RegionRef<'a, R::Region>> {
        let found = tree.last_at_most(page.0)?;
        let view = found.view();
        (view.range.contains(page) && fits(&view))
            .then(|| Vm::region(self, found.handle()).region_ref_with(space.handle(), &view))
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Topology<R::Region> for Vm<P, F, R> {
    fn mappings_of(
        &self,
        pin: &Pin<'_>,
        object: u32,
        (first, end): (u64, u64),
        visit: &mut dyn FnMut(Stretch) -> ControlFlow<()>,
    ) {
        if object == 0 {
            // The pages have left their object, and so every mapping.
            return;
        }
        let regions = self.objects.regions(&self.regions, object);
        regions.overlapping(pin, first, end, |_: Handle<_>, region| {
            let (start, from) = (region.range().start, region.first_index());
            let (mut index, behind) = (first.max(from), end.min(region.end_index()));
            while index < behind {
                let page = start.offset(index - from);
                let in_table = (F::ENTRIES - F::index(page, 1)) as u64;
                let pages = in_table.min(behind - index);
                visit(Stretch {
                    index,
                    pages: pages as u32,
                    entry: self.leaf(pin, region.space(), page),
                })?;
                index += pages;
            }
            ControlFlow::Continue(())
        });
    }

    fn leaf(&self, pin: &Pin<'_>, space: u32, page: Vpn) -> Option<PteRef> {
        if space == 0 {
            // A region that is not yet, or no longer, in a space.
            return None;
        }
        let tables = self.tables_if_any(pin, self.live_at(space))?;
        tables.leaf_entry(page)
    }

    fn region(&self, handle: u32) -> RegionRef<'_, R::Region> {
        self.region_ref(Handle::from_raw(handle))
    }

    fn siblings(
        &self,
        pin: &Pin<'_>,
        space: u32,
        page: Vpn,
    ) -> [Option<RegionRef<'_, R::Region>>; 2] {
        let space = self.live_at(space);
        let found = self.look(pin, space, page, |tree| {
            let Some(middle) = tree.last_at_most(page.0) else {
                return [None, None];
            };
            let view = middle.view();
            let alike = |other: &RegionView| {
                other.object == view.object && other.is_shared() == view.is_shared()
            };
            let before = view.range.start.0.checked_sub(1).and_then(|last| {
                self.sibling((space, tree), Vpn(last), |other| {
                    alike(other) && other.index_of(other.range.end) == view.offset
                })
            });
            let behind = self.sibling((space, tree), view.range.end, |other| {
                alike(other) && view.index_of(view.range.end) == other.offset
            });
            [before, behind]
        });
        found.unwrap_or([None, None])
    }
}
