//! Folios (`folio=`): a first store to private memory gets a run of frames for the pages
//! around it, and all of them are mapped, each by an entry of its own.
//!
//! A folio here is how pages come into being, and nothing afterwards. One fault takes one
//! block from the allocator, makes it frames with a record each, tells reverse mapping of one
//! run, and fills the entries under one lock. From then on they are pages like any other:
//! unmapping, fork, copying, reclaim and swap take each by itself, and nothing has to be
//! split when a call is about a part.
//!
//! The largest folio is what the region was advised ([`Advice::Folio`]) or the design says. A
//! fault maps the largest one up to it that is aligned to its size, lies in the region, and has
//! no page yet. If there is no such block, or memory is short, a smaller one does, and in the
//! end one page: nothing is drained or reclaimed for more than was asked for.
//!
//! Only the page that is stored to is marked as accessed and dirty. The others are zero and
//! nobody has used them; the processor marks them when somebody does. So aging sees which
//! pages of a folio are in use. Those of a contiguous run ([`crate::space::leaves::contiguous`]) are marked
//! together.
//!
//! [`Advice::Folio`]: crate::space::Advice::Folio

use crate::addr::{PageRange, Pfn, Vpn};
use crate::design::Folio;
use crate::frame::{MAX_ORDER, OutOfMemory, Payer, Request, Site};
use crate::object::Inserted;
use crate::platform::Platform;
use crate::rmap::{ReverseMap, Run};
use crate::space::state::account::Resident;
use crate::space::state::error::{FaultError, MapError};
use crate::space::state::manager::Vm;
use crate::space::state::region::{NewWord, Traits};
use crate::space::state::spaces::SpaceId;
use crate::space::steps::fault::{Fault, FaultStep, Resolved};
use crate::sync::Unpinned;
use crate::table::{Format, LockedTable, Marks};

/// The smaller one.
const fn least(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Log2 of the pages of the largest folio: of what the option can ask for, and what one
    /// table maps and the allocator has.
    const MOST_FOLIO: u32 = least(
        Folio::MOST_SHIFT.saturating_sub(F::FRAME_SHIFT),
        least(F::INDEX_BITS, MAX_ORDER),
    );

    /// First store to a private page without object, of a design with [`Extras`].
    #[inline(never)]
    pub(super) fn map_with_extras(
        &self,
        fault: &Fault<'_, P, F, R>,
    ) -> Result<FaultStep, FaultError> {
        if self.extras().runs() && self.has_run(fault) {
            return self.map_of_run(fault);
        }
        let folio = self
            .extras()
            .folios()
            .then(|| self.map_folio(fault))
            .flatten();
        folio.unwrap_or_else(|| self.map_new_page(fault))
    }

    /// Maps the largest folio that there can be around the fault's page. `None` if that is
    /// one page.
    fn map_folio(&self, fault: &Fault<'_, P, F, R>) -> Option<Result<FaultStep, FaultError>> {
        let most = self.largest_folio(fault);
        if most == 0 {
            return None;
        }
        let events = &fault.cpu.events;
        let by = |payer: Payer| {
            (1..=most).rev().find_map(|order| {
                let request = Request::page(Site::Folio).order(order).zeroed();
                let first = (self.memory).alloc_pages_to_spare(fault.pin, request, payer)?;
                Some((first, order))
            })
        };
        let payer = fault.space.payer();
        let block = by(payer).or_else(|| match P::PARTS.nodes && payer.is_unplaced() {
            true => by(fault.private_payer()),
            false => None,
        });
        let Some((first, order)) = block else {
            events.folio_failures.bump();
            return None;
        };
        match self.install_folio(fault, first, order) {
            Ok(true) => {
                let pages = 1 << order;
                fault.entered.region.note_private();
                fault.count_resident(Resident::Anonymous, pages);
                if self.aging.is_some() {
                    for step in 0..1 << order {
                        let frame = first.offset(step);
                        self.note_inserted(fault.pin, frame, Inserted::Anonymous);
                    }
                }
                events.zero_fills.add(pages);
                events.folio_maps.bump();
                events.folio_pages.add(pages);
                Some(Ok(FaultStep::Done(Resolved::Mapped)))
            }
            Ok(false) => {
                self.memory.put_order(fault.pin, first, order);
                Some(Ok(FaultStep::Again))
            }
            Err(OutOfMemory) => {
                self.memory.put_order(fault.pin, first, order);
                events.folio_failures.bump();
                None
            }
        }
    }

    /// Log2 of the pages of the largest folio around the fault's page, as far as can be told
    /// without locks.
    fn largest_folio(&self, fault: &Fault<'_, P, F, R>) -> u32 {
        let region = fault.entered.region;
        let by_design = || {
            let shift = self.design.folio.shift();
            shift.map_or(0, |shift| shift.saturating_sub(F::FRAME_SHIFT))
        };
        let most = region.folio().unwrap_or_else(by_design);
        let (range, page) = (region.range(), fault.page);
        let mut order = least(most, Self::MOST_FOLIO);
        while order > 0 && {
            let folio = Self::folio_around(page, order);
            folio.start < range.start || folio.end > range.end
        } {
            order -= 1;
        }
        if order == 0 {
            return 0;
        }
        let tables = self.tables(fault.pin, fault.space);
        tables.empty_around(page, fault.lowest, order)
    }

    fn folio_around(page: Vpn, order: u32) -> PageRange {
        PageRange::new(Vpn(page.0 >> order << order), 1 << order)
    }

    /// Maps the pages around the fault's by the frames of a block, if there is none there yet.
    /// `Ok(false)` if there is: the block is as it was.
    fn install_folio(
        &self,
        fault: &Fault<'_, P, F, R>,
        first: Pfn,
        order: u32,
    ) -> Result<bool, OutOfMemory> {
        let (count, range) = (1 << order, Self::folio_around(fault.page, order));
        let env = self.env(fault.pin);
        let mut ctx = R::Ctx::default();
        let prepared = self.prepare_privates(fault, &mut ctx, count as usize);
        let table = match prepared.and_then(|()| fault.lock_table()) {
            Ok(found) => found,
            Err(error) => {
                self.rmap.finish(&env, ctx);
                return Err(error);
            }
        };
        let index = F::index(range.start, 1);
        let installs = table.level() == 1 && table.are_empty(index, count as usize);
        if installs {
            let (owner, page) = (fault.space.handle(), range.start);
            let used = fault.index() - index;
            (self.memory).divide_block((first, order), owner, page.0, used);
            let run = Run {
                count,
                ..Run::single(first, table.pte(index), page)
            };
            self.rmap.add(&env, &mut ctx, &run, fault.place(), true);
            let in_runs = self.has_runs() && order >= F::CONTIGUOUS_ORDER;
            self.fill_folio(fault, &table, (first, order), in_runs);
            if in_runs {
                let runs = u64::from(count) >> F::CONTIGUOUS_ORDER;
                fault.cpu.events.contiguous_runs.add(runs);
            }
            table.count_made(count);
            table.fetch_row_behind(index, count as usize);
            drop(table);
        } else {
            self.leave_table(fault.pin, fault.space, table);
        }
        self.rmap.finish(&env, ctx);
        Ok(installs)
    }

    /// Makes the entries of a folio, of which those of `in_runs` are contiguous.
    fn fill_folio(
        &self,
        fault: &Fault<'_, P, F, R>,
        table: &LockedTable<'_, F>,
        (first, order): (Pfn, u32),
        in_runs: bool,
    ) {
        let (count, prot) = (1 << order, fault.entered.region.prot());
        let index = fault.index() >> order << order;
        let used = (fault.index() - index) as u32;
        // The pages that are marked together.
        let alike = if in_runs { F::CONTIGUOUS_ORDER } else { 0 };
        let marked = used >> alike << alike;
        let behind = marked + (1 << alike);
        let fill = |from: u32, to: u32, marks| {
            let (row, count) = (index + from as usize, (to - from) as usize);
            table.fill_row(row, count, |step| {
                let leaf = F::leaf(first.offset(from + step as u32), 1, prot, marks);
                if in_runs { F::contiguous(leaf) } else { leaf }
            });
        };
        fill(0, marked, Marks::default());
        fill(marked, behind, Marks::DIRTY);
        fill(behind, count, Marks::default());
    }

    /// [`Advice::Folio`](crate::space::Advice::Folio): the largest folio in a range from now on.
    pub(in crate::space) fn advise_folio(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
        order: Option<u32>,
    ) -> Result<(), MapError> {
        self.with_covered(unpinned, id, range, |pin, space| {
            if self.extras().folios() {
                let order = order.map(|order| least(order, Self::MOST_FOLIO));
                let word = NewWord::traits(Traits::FOLIO, Traits::NONE.with_folio(order));
                self.change_traits(pin, space, range, &word)?;
            }
            Ok(())
        })
    }
}
