//! Sealing shared memory.

use core::ops::ControlFlow;

use crate::ObjectId;
use crate::object::{Object, Seals};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::state::error::FileError;
use crate::space::state::manager::Vm;
use crate::sync::Unpinned;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`File::seal`](crate::space::File::seal).
    pub(crate) fn seal_object(&self, id: ObjectId, seals: Seals) -> Result<(), FileError> {
        let mut unpinned = Unpinned::at_door();
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        if object.is_file() || !seals.are_known() {
            return Err(FileError::WrongKind);
        }
        // Who writes to it or changes its length is waited for, and looks at the seals afterwards.
        let _held = self.hold_pages(unpinned.reborrow(), object, 0..u64::MAX);
        let had = object.seals();
        if had.has(Seals::SEAL) {
            return Err(FileError::Sealed);
        }
        if !object.add_seals(seals) {
            return Err(FileError::Busy);
        }
        // A mapping made from now on sees the seal.
        let is_new = seals.has(Seals::WRITE) && !had.has(Seals::WRITE);
        if is_new && self.may_be_stored_to(&unpinned, object, id.handle) {
            object.take_back_seals(Seals(seals.0 & !had.0));
            return Err(FileError::Busy);
        }
        Ok(())
    }

    /// Whether somebody has it mapped so that it may be stored to, or has pinned a page of it.
    fn may_be_stored_to(&self, unpinned: &Unpinned<'_>, object: &Object, handle: u32) -> bool {
        let pin = self.pin_by(unpinned);
        let mut found = false;
        let regions = self.objects.regions(&self.regions, handle);
        regions.overlapping(&pin, 0, u64::MAX, |_, region| {
            let view = region.view();
            found |= view.is_shared() && view.traits.most().can_write();
            match found {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let radix = self.objects.radix(&pin, object);
        radix.each_in(0..object.pages(), |_, frame| {
            found |= self.memory.frame(frame).counts().pins() > 0;
        });
        found
    }
}
