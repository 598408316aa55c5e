//! How a space that was divided into tracts becomes one again (`locks/divide.rs`).

use crate::frame::OutOfMemory;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::Handle;
use crate::space::state::error::MapError;
use crate::space::state::locked::LockedSpace;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::SpaceId;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Makes one of the tracts of a space, whose locks are all the caller's.
    ///
    /// # Errors
    /// [`OutOfMemory`]; it stays divided.
    pub(in crate::space) fn undivide(
        &self,
        pin: &Pin<'_>,
        space: LockedSpace<'_, R>,
    ) -> Result<(), OutOfMemory> {
        if !space.is_divided() {
            return Ok(());
        }
        // Nobody looks at this tree as long as there are tracts.
        let own = self.tree(*space);
        let mut copied = Ok(());
        self.for_tracts(*space, |tract| {
            if copied.is_ok() {
                let from = self.tract_tree(tract);
                copied = self.copy_tree(pin, from, own, tract.range());
            }
        });
        if copied.is_err() {
            own.clear(pin);
            return copied;
        }
        self.end_tracts(pin, space);
        Ok(())
    }

    /// Ends the tracts of a space, whose locks are all the caller's. Their regions are in the
    /// space's own tree, or have ended.
    pub(in crate::space) fn end_tracts(&self, pin: &Pin<'_>, space: LockedSpace<'_, R>) {
        let mut last = Handle::NONE;
        self.for_tracts(*space, |tract| {
            tract.set_below(last);
            last = tract.handle();
        });
        let write = space.seq.write(pin);
        self.tracts(*space).clear(pin);
        drop(write);
        space.tract_count.store(0, Ordering::Relaxed);
        space.whole.store(0, Ordering::Relaxed);
        space.waits.reset();
        while !last.is_none() {
            let tract = self.tracts.items.get(last);
            let boundary = tract.range().start;
            last = tract.below();
            self.tract_tree(tract).clear(pin);
            tract.end();
            self.unlock_tract(tract);
            self.tracts.items.retire(pin, tract.handle());
            self.merge_at(pin, space, boundary);
        }
    }

    /// The same without tracts.
    #[inline]
    pub(in crate::space) fn with_undivided<'a, T>(
        &'a self,
        id: SpaceId,
        work: impl FnOnce(&Pin<'a>, LockedSpace<'_, R>) -> Result<T, MapError>,
    ) -> Result<T, MapError> {
        self.with_locked(id, |pin, space| {
            self.undivide(pin, space)?;
            work(pin, space)
        })
    }
}
