//! Copies of shared private pages made ahead of a store.

use super::manager::{Live, Vm};
use super::region::RegionView;
use super::regions::RegionHandle;
use crate::addr::Vpn;
use crate::frame::{Kind, OutOfMemory, Request, Site};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::sync::Pin;
use crate::table::{Format, Span};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Gives the space its own copy of every private page in a region that
    /// others map too. The caller holds the space's lock and has closed the
    /// region's gate, so that no page becomes shared again.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the space shows the same memory as before.
    pub(super) fn unshare(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        handle: RegionHandle<R>,
        view: &RegionView,
    ) -> Result<(), OutOfMemory> {
        let region = self.region_ref_with(handle, space.handle(), view);
        self.rmap.prepare_private(&self.env(pin), self, region)?;
        let tables = self.tables(pin, space);
        let mut spans = tables.spans(view.range);
        while let Some(span) = spans.next() {
            let Some(page) = self.first_shared(&span) else {
                continue;
            };
            drop(span);
            self.unshare_page(pin, space, handle, page)?;
            spans.rewind(page.offset(1));
        }
        Ok(())
    }

    /// The first page of a span that shows a private page with several mappings.
    fn first_shared(&self, span: &Span<'_, F>) -> Option<Vpn> {
        let is_shared = |&index: &usize| {
            let entry = span.table.load(index);
            if !F::is_mapped(entry) {
                return false;
            }
            let frame = self.memory.frame(F::frame(entry, span.table.level()));
            frame.kind() == Kind::Anonymous && frame.counts().maps() > 1
        };
        let mut indices = span.first..span.first + span.count;
        indices.find(is_shared).map(|index| span.table.page(index))
    }

    fn unshare_page(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        handle: RegionHandle<R>,
        page: Vpn,
    ) -> Result<(), OutOfMemory> {
        let new = self.memory.alloc(pin, Request::page(Site::CopyOnWrite))?;
        let env = self.env(pin);
        let mut ctx = R::Ctx::default();
        if let Err(error) = self.rmap.prepare(&env, &mut ctx, 1) {
            self.rmap.finish(&env, ctx);
            self.memory.put(pin, new);
            return Err(error);
        }
        let mut gone = new;
        if let Some(table) = self.tables(pin, space).lock(page) {
            let index = F::index(page, 1);
            let entry = table.load(index);
            let old = F::frame(entry, 1);
            // Truncation may have taken the page meanwhile.
            if F::is_mapped(entry) && self.memory.frame(old).kind() == Kind::Anonymous {
                self.memory.copy(pin, old, new);
                let leaf = F::leaf(new, 1, F::prot(entry, 1), F::marks(entry));
                let place = self.region(handle).place(space);
                self.replace_page(pin, place, &table, index, (old, new, leaf), &mut ctx);
                gone = old;
            }
        }
        self.rmap.finish(&env, ctx);
        self.memory.put(pin, gone);
        if gone != new {
            self.events(pin).cow_copies.bump();
            self.note_inserted(pin, new, Inserted::Anonymous);
        }
        Ok(())
    }
}
