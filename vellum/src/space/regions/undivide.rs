//! How a space that was divided into tracts becomes one again (`locks/divide.rs`).

use crate::frame::OutOfMemory;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::Handle;
use crate::space::state::error::MapError;
use crate::space::state::locked::{UndividedSpace, WholeSpace};
use crate::space::state::manager::Vm;
use crate::space::state::spaces::SpaceId;
use crate::sync::atomic::Ordering;
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Makes one of the tracts of a space.
    ///
    /// # Errors
    /// [`OutOfMemory`]; it stays divided.
    pub(in crate::space) fn undivide<'l>(
        &self,
        pin: &Pin<'_>,
        space: WholeSpace<'l, R>,
    ) -> Result<UndividedSpace<'l, R>, OutOfMemory> {
        if let Some(undivided) = space.undivided() {
            return Ok(undivided);
        }
        // Nobody looks at this tree as long as there are tracts.
        let own = self.tree(*space, **space);
        let mut copied = Ok(());
        self.for_tracts(**space, |tract| {
            if copied.is_ok() {
                let from = self.tract_tree(*space, tract);
                copied = self.copy_tree(pin, from, own, tract.range());
            }
        });
        copied.inspect_err(|_| own.clear(pin))?;
        Ok(self.end_tracts(pin, space))
    }

    /// Ends the tracts of a space. Their regions are in the space's own tree, or have ended.
    pub(in crate::space) fn end_tracts<'l>(
        &self,
        pin: &Pin<'_>,
        space: WholeSpace<'l, R>,
    ) -> UndividedSpace<'l, R> {
        let mut last = Handle::NONE;
        self.for_tracts(**space, |tract| {
            tract.set_below(last);
            last = tract.handle();
        });
        let write = space.seq.write(pin);
        self.tracts(**space).clear(pin);
        drop(write);
        space.tract_count.store(0, Ordering::Relaxed);
        space.whole.store(0, Ordering::Relaxed);
        space.waits.reset();
        while !last.is_none() {
            let tract = self.tracts.items.get(last);
            let boundary = tract.range().start;
            last = tract.below();
            self.tract_tree(*space, tract).clear(pin);
            tract.end();
            self.unlock_tract(tract);
            self.tracts.items.retire(pin, tract.handle());
            self.merge_at(pin, *space, boundary);
        }
        space.without_tracts()
    }

    /// The same without tracts.
    #[inline]
    pub(in crate::space) fn with_undivided<T>(
        &self,
        unpinned: Unpinned<'_>,
        id: SpaceId,
        work: impl FnOnce(&Pin<'_>, UndividedSpace<'_, R>) -> Result<T, MapError>,
    ) -> Result<T, MapError> {
        self.with_locked(unpinned, id, |pin, space| {
            work(pin, self.undivide(pin, space)?)
        })
    }
}
