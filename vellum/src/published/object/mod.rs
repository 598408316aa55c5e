//! Pages of objects as Linux 3.15 had them (`fileio=pages`): found and made one at a time,
//! under their locks, and kept in two lists of each zone.

mod single;
mod two_lists;

#[cfg(test)]
mod tests;

pub(crate) use single::LockedPage;
pub use two_lists::{ListLengths, TwoLists};

use alloc::boxed::Box;

use crate::design::{Design, FileIo, PageLocking};
use crate::frame::MemoryView;
use crate::object::{Aging, Objects, PageLocks};
use crate::platform::Platform;

impl<S: Default + Send + Sync + 'static> Objects<S> {
    /// Has pages locked as the design says; returns the lists that are told of them.
    pub(crate) fn keep_pages_of<P: Platform>(
        &mut self,
        design: &Design,
        memory: MemoryView<'_, P>,
    ) -> Option<Box<dyn Aging>> {
        if design.file_io == FileIo::Runs {
            return None;
        }
        if design.page_locking == PageLocking::Hashed {
            self.locks = PageLocks::hashed(memory.frame_count());
        }
        Some(Box::new(TwoLists::new(memory, design.flag_updates)))
    }
}
