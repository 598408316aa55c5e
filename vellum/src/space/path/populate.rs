//! Faulting in before anybody asks: the second half of mlock, and `MAP_POPULATE`.

use crate::addr::{Access, PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::{FaultError, MapError};
use crate::space::state::manager::Vm;
use crate::space::state::region::{Region, RegionView};
use crate::space::state::spaces::SpaceId;
use crate::sync::Unpinned;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::populate`](crate::space::Space::populate).
    pub(crate) fn populate(&self, id: SpaceId, start: Vpn, pages: u64) -> Result<(), FaultError> {
        let mut unpinned = Unpinned::at_door();
        let range = Self::checked_range(start, pages).map_err(|_| FaultError::NoRegion)?;
        let mut page = range.start;
        while page < range.end {
            let (access, end) = self.population_of(id, page)?;
            let end = end.min(range.end);
            while page < end {
                match self.fault_in(unpinned.reborrow(), id, page.address::<F>(), access) {
                    // The region may be another one by now, or a stack that grew without the right.
                    Err(FaultError::Protection) if access == Access::Write => {
                        self.fault_in(unpinned.reborrow(), id, page.address::<F>(), Access::Read)?;
                    }
                    other => {
                        other?;
                    }
                }
                page = page.offset(1);
            }
        }
        Ok(())
    }

    /// Faults in every page of a range as an access of its own would
    /// (`MADV_POPULATE_READ`, `MADV_POPULATE_WRITE`). Stacks do not grow.
    pub(in crate::space) fn populate_for(
        &self,
        mut unpinned: Unpinned<'_>,
        id: SpaceId,
        range: PageRange,
        access: Access,
    ) -> Result<(), MapError> {
        let mut page = range.start;
        while page < range.end {
            let view = self.view_at(id, page)?.ok_or(MapError::NotMapped)?;
            if !view.prot.allows(access) {
                return Err(MapError::Rights);
            }
            while page < view.range.end.min(range.end) {
                self.fault_in(unpinned.reborrow(), id, page.address::<F>(), access)?;
                page = page.offset(1);
            }
        }
        Ok(())
    }

    /// How the pages from `page` on are faulted in, and the first one that it is not known of.
    fn population_of(&self, id: SpaceId, page: Vpn) -> Result<(Access, Vpn), FaultError> {
        Ok(match self.view_at(id, page)? {
            Some(view) if view.is_shared() || !view.prot.can_write() => {
                (Access::Read, view.range.end)
            }
            Some(view) => (Access::Write, view.range.end),
            // Nothing is there, or a stack grows to it.
            None => (Access::Write, page.offset(1)),
        })
    }

    /// The region that holds a page.
    fn view_at(&self, id: SpaceId, page: Vpn) -> Result<Option<RegionView>, FaultError> {
        let mut spins = 0;
        loop {
            let looked = {
                let pin = self.pin();
                let space = self.find_space(id).ok_or(FaultError::NoSpace)?;
                self.look(&pin, space, page, |tree| {
                    let view = tree.last_at_most(page.0).map(Region::view);
                    view.filter(|view| view.range.contains(page))
                })
            };
            match looked {
                Some(found) => return Ok(found),
                None => {
                    self.memory.platform().relax(spins);
                    spins += 1;
                }
            }
        }
    }
}
