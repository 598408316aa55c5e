//! Areas that are taken away: every page of one comes back into memory.
//!
//! From the beginning on no page goes to the area. Then the pages of objects are brought
//! back, and those of entries, space by space, in the same steps as faults take, but whatever
//! the rights of the region. Fork may copy entries meanwhile into spaces that have been
//! looked at, and pages may be on their way to the area; so everything is looked at again,
//! until no slot is in use. If memory runs out, what came back stays and the area is used on.

use crate::addr::{Access, PageRange, Vpn};
use crate::object::LOST_SLOT;
use crate::platform::{GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::space::locks::lookup::Lookup;
use crate::space::path::swap_shared::Loading;
use crate::space::state::common::PageCache;
use crate::space::state::error::{FaultError, MapError};
use crate::space::state::manager::Vm;
use crate::space::state::spaces::SpaceId;
use crate::space::steps::fault::{Fault, FaultStep, ReadAround, Resolved};
use crate::swap::{Swap, SwapOffError};
use crate::sync::Unpinned;
use crate::table::{Entry, Format};

/// Rounds without any progress before it is given up.
const PATIENCE: u32 = 1 << 16;

impl<P: Platform> PageCache<'_, P> {
    /// Brings back the pages of objects. Returns how many there were.
    fn objects_back(
        &self,
        mut unpinned: Unpinned<'_>,
        swap: &Swap,
        area: usize,
    ) -> Result<u64, SwapOffError> {
        let mut result = Ok(0);
        self.objects.arena().each(|handle, object| {
            let Ok(back) = &mut result else { return };
            if object.swapped() == 0 {
                return;
            }
            let handle = handle.raw();
            let is_held = (self.objects).hold_if_used(&self.pin_by(&unpinned), handle);
            if !is_held {
                return;
            }
            let more = self.object_back(unpinned.reborrow(), swap, area, handle);
            if self.objects.release(handle) {
                self.end_object(unpinned.reborrow(), handle);
            }
            match more {
                Ok(more) => *back += more,
                Err(error) => result = Err(error),
            }
        });
        result
    }

    fn object_back(
        &self,
        mut unpinned: Unpinned<'_>,
        swap: &Swap,
        area: usize,
        handle: u32,
    ) -> Result<u64, SwapOffError> {
        let object = self.objects.get(handle);
        let (mut back, mut from) = (0, 0);
        loop {
            let found = {
                let pin = self.pin_by(&unpinned);
                self.objects.radix(&pin, object).next_slot(from)
            };
            let Some((index, slot)) = found else {
                return Ok(back);
            };
            if slot != LOST_SLOT && swap.is_of(area, swap.long(u64::from(slot))) {
                self.with_room(unpinned.reborrow(), |unpinned| {
                    self.shared_back(unpinned, handle, index)
                })?;
                back += 1;
            }
            from = index + 1;
        }
    }

    /// Brings back a page of an object, if it is in swap.
    fn shared_back(
        &self,
        mut unpinned: Unpinned<'_>,
        handle: u32,
        index: u64,
    ) -> Result<(), FaultError> {
        loop {
            let loading = {
                let pin = self.pin_by(&unpinned);
                let Some(slot) = self.objects.slot_at(&pin, self.objects.get(handle), index) else {
                    return Ok(());
                };
                self.load_shared(&pin, (handle, index), slot, GroupId::ROOT.into())?
            };
            match loading {
                Loading::Here(frame) => self.memory.put(&self.pin_by(&unpinned), frame),
                Loading::Wait(frame) => self.wait_for_page(unpinned.reborrow(), frame),
                Loading::Read(lock) => {
                    self.read_swapped(unpinned.reborrow(), lock, ReadAround::Allowed)?;
                }
                Loading::Again => {}
                Loading::Lost => return Ok(()),
            }
        }
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Stops using the swap area on a store, and brings everything back that it holds
    /// (`swapoff(2)`). It takes no page any more, unless [`Vm::swap_on`] adds it again. Not called
    /// pinned; everything else goes on meanwhile.
    ///
    /// # Errors
    /// [`SwapOffError`]; the area is used on. Pages that came back before stay in memory.
    pub fn swap_off(&self, store: u64) -> Result<(), SwapOffError> {
        let unpinned = Unpinned::at_door();
        let swap = self.swap().ok_or(SwapOffError::NoArea)?;
        let area = swap.begin_off(store).ok_or(SwapOffError::NoArea)?;
        let emptied = self.empty_area(unpinned, swap, area);
        swap.end_off(area, emptied.is_ok());
        self.recount_swap(swap);
        emptied
    }

    fn empty_area(
        &self,
        mut unpinned: Unpinned<'_>,
        swap: &Swap,
        area: usize,
    ) -> Result<(), SwapOffError> {
        let mut spins = 0;
        while !swap.is_empty(area) {
            let back = self
                .page_cache()
                .objects_back(unpinned.reborrow(), swap, area)?
                + self.spaces_back(unpinned.reborrow(), swap, area)?;
            spins = if back > 0 { 0 } else { spins + 1 };
            if spins > PATIENCE {
                return Err(SwapOffError::InUse);
            }
            self.memory.platform().relax(spins);
        }
        Ok(())
    }

    /// Brings back the pages of entries. Returns how many there were.
    fn spaces_back(
        &self,
        mut unpinned: Unpinned<'_>,
        swap: &Swap,
        area: usize,
    ) -> Result<u64, SwapOffError> {
        let mut result = Ok(0);
        self.spaces.each(|handle, space| {
            let Ok(back) = &mut result else { return };
            if space.users() == 0 {
                return;
            }
            let id = self.live_at(handle.raw()).id();
            match self.space_back(unpinned.reborrow(), swap, area, id) {
                Ok(more) => *back += more,
                Err(error) => result = Err(error),
            }
        });
        result
    }

    fn space_back(
        &self,
        mut unpinned: Unpinned<'_>,
        swap: &Swap,
        area: usize,
        id: SpaceId,
    ) -> Result<u64, SwapOffError> {
        let (mut back, mut from) = (0, Vpn(0));
        let names = |slot| swap.is_of(area, slot);
        while let Some(page) =
            self.next_swapped(unpinned.reborrow(), id, (from, F::USER_END), names)
        {
            match self.page_back(unpinned.reborrow(), id, page) {
                // The space has ended.
                Err(FaultError::NoSpace) => break,
                result => result?,
            }
            back += 1;
            from = page.offset(1);
        }
        Ok(back)
    }

    /// Brings back the pages of a range that are in swap, until one does not come.
    pub(super) fn bring_back_range(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
    ) -> Result<(), FaultError> {
        let mut from = range.start;
        while let Some(page) =
            self.next_swapped(unpinned.reborrow(), id, (from, range.end), |_| true)
        {
            self.page_back(unpinned.reborrow(), id, page)?;
            from = page.offset(1);
        }
        Ok(())
    }

    /// The first page of a space from `start` to `end` whose entry names a slot that `takes`
    /// accepts.
    fn next_swapped(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        (start, end): (Vpn, Vpn),
        takes: impl Fn(u64) -> bool,
    ) -> Option<Vpn> {
        let names = |entry| match F::decode(entry, 1) {
            Entry::Swap(swapped) => takes(swapped.slot),
            Entry::Empty | Entry::Leaf(_) | Entry::Table(_) | Entry::Guard | Entry::Lost => false,
        };
        let rest = PageRange { start, end };
        let found = self.with_locked(unpinned, id, |pin, space| {
            let tables = self.tables(pin, **space);
            let found = self.for_regions(*space, rest, |_, view| {
                for span in tables.spans(view.range.intersection(rest)) {
                    let indices = span.first..span.first + span.count;
                    let is_lowest = span.table.level() == 1;
                    let found = indices
                        .into_iter()
                        .find(|&index| is_lowest && names(span.table.load(index)));
                    if let Some(index) = found {
                        return Err(span.table.page(index));
                    }
                }
                Ok(())
            });
            Ok::<_, MapError>(found.err())
        });
        found.ok().flatten()
    }

    /// Brings the page at a place of a space back, if it is in swap.
    fn page_back(&self, unpinned: Unpinned<'_>, id: SpaceId, page: Vpn) -> Result<(), FaultError> {
        self.with_room(unpinned, |mut unpinned| {
            let mut tries = 0;
            loop {
                match self.attempt_back(unpinned.reborrow(), id, page)? {
                    FaultStep::Wait(frame) => self.wait_for_page(unpinned.reborrow(), frame),
                    FaultStep::SwapIn(lock) => {
                        self.read_swapped(unpinned.reborrow(), lock, ReadAround::Allowed)?;
                    }
                    FaultStep::SwapInAlone(lock) => {
                        self.read_swapped(unpinned.reborrow(), lock, ReadAround::Refused)?;
                    }
                    FaultStep::Again => self.give_way(unpinned.reborrow(), id, &mut tries),
                    FaultStep::Done(_)
                    | FaultStep::Fill(_)
                    | FaultStep::FillAhead(_)
                    | FaultStep::FillSuperpage(_)
                    | FaultStep::Shift(_)
                    | FaultStep::Grow
                    | FaultStep::Hooked(..) => return Ok(()),
                }
            }
        })
    }

    /// One attempt of a fault that asks for no rights.
    fn attempt_back(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        page: Vpn,
    ) -> Result<FaultStep, FaultError> {
        let (pin, expected) = self.pin_for_fault(unpinned, id.handle);
        let pin = &pin;
        let cpu = self.cpus.get(pin);
        let space = self.load_named(pin, cpu, id).ok_or(FaultError::NoSpace)?;
        let inside = match self.enter_region(pin, cpu, expected, space, page) {
            Lookup::Found(inside) => inside,
            Lookup::Busy => return Ok(FaultStep::Again),
            Lookup::Nothing => return Ok(FaultStep::Done(Resolved::Spurious)),
        };
        let (entry, lowest) = self.tables(pin, space).find(page);
        if lowest.1 > 1 || !matches!(F::decode(entry, 1), Entry::Swap(_)) {
            return Ok(FaultStep::Done(Resolved::Spurious));
        }
        let fault = Fault {
            vm: self,
            pin,
            cpu,
            space,
            entered: inside.entered(),
            page,
            access: Access::Read,
            lowest,
        };
        self.swap_in(&fault, entry)
    }
}
