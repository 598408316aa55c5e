//! Copies of shared private pages made ahead of a store.

use crate::addr::Vpn;
use crate::frame::{Kind, NoPage, Request, Site};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::closed::Closed;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::region::RegionView;
use crate::sync::Pin;
use crate::table::{Format, Span};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Does what the reverse-mapping design needs before the pages of a region move within the
    /// space.
    ///
    /// # Errors
    /// [`NoPage`]; the space shows the same memory as before.
    pub(super) fn prepare_to_move(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
    ) -> Result<(), NoPage> {
        let view = region.view();
        if view.is_unmanaged() {
            return Ok(());
        }
        if R::COPIES_TO_MOVE {
            self.unshare(pin, space, region, &view)?;
        }
        if R::PREPARES_TO_MOVE {
            let tables = self.tables(pin, *space);
            let shared = tables
                .spans(view.range)
                .map(|span| self.shared(&span).count())
                .sum();
            self.rmap.prepare_move(&self.env(pin), shared)?;
        }
        Ok(())
    }

    /// Gives the space its own copy of every private page in a region that others map too. No page
    /// becomes shared again: the region is closed.
    ///
    /// # Errors
    /// [`NoPage`]; the space shows the same memory as before.
    fn unshare(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
        view: &RegionView,
    ) -> Result<(), NoPage> {
        let shown = region.region_ref_with(space.handle(), view);
        self.rmap.prepare_private(&self.env(pin), self, shown)?;
        let tables = self.tables(pin, *space);
        let mut spans = tables.spans(view.range);
        while let Some(span) = spans.next() {
            let Some(page) = self.shared(&span).next() else {
                continue;
            };
            drop(span);
            self.unshare_page(pin, space, region, page)?;
            spans.rewind(page.offset(1));
        }
        Ok(())
    }

    /// The pages of a span that show private pages with several mappings.
    fn shared<'s>(&'s self, span: &'s Span<'_, F>) -> impl Iterator<Item = Vpn> + 's {
        let is_shared = move |&index: &usize| {
            let entry = span.table.load(index);
            if !F::is_mapped(entry) {
                return false;
            }
            let frame = self.memory.frame(F::frame(entry, span.table.level()));
            frame.kind() == Kind::Anonymous && frame.counts().maps() > 1
        };
        let indices = span.first..span.first + span.count;
        let shared = indices.filter(is_shared);
        shared.map(|index| span.table.page(index))
    }

    fn unshare_page(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
        region: Closed<'_, R>,
        page: Vpn,
    ) -> Result<(), NoPage> {
        let request = Request::page(Site::CopyOnWrite);
        let new = self.alloc_private(pin, request, (*space, &region, page))?;
        if self.replace_private(pin, space, region, (page, new), |_| true)? {
            self.events(pin).cow_copies.bump();
        }
        Ok(())
    }
}
