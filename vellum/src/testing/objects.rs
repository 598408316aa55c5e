//! Objects by pages, as most tests count them.

use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::{FileError, FileRequest};
use crate::table::Format;
use crate::{ObjectId, Vm};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// A file of so many pages of a store.
    pub(crate) fn stored_pages(&self, store: u64, pages: u64) -> Result<ObjectId, FileError> {
        self.page_cache()
            .begin_file(&FileRequest::stored(store, pages << F::FRAME_SHIFT))
    }

    /// So many pages of shared memory.
    pub(crate) fn memory_pages(&self, pages: u64) -> Result<ObjectId, FileError> {
        self.page_cache()
            .begin_file(&FileRequest::shared_memory(pages << F::FRAME_SHIFT))
    }
}
