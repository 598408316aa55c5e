//! Where the data is.

use crate::ObjectId;
use crate::object::{Object, ObjectKind};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::space::state::error::FileError;
use crate::sync::Unpinned;

impl<P: Platform> PageCache<'_, P> {
    /// [`File::seek_data`](crate::space::File::seek_data).
    pub(crate) fn seek_data(&self, id: ObjectId, offset: u64) -> Result<u64, FileError> {
        let unpinned = Unpinned::at_door();
        self.seek(unpinned, id, offset, |unpinned, object, size| {
            let from = self.page_of(offset);
            let cached = {
                let pin = self.pin_by(&unpinned);
                self.objects.radix(&pin, object).next_page(from)
            };
            let stored = match object.kind() {
                ObjectKind::File { store } => {
                    let platform = self.memory.unpinned_platform(unpinned)?;
                    platform.find_page(store, from, true)
                }
                _ => None,
            };
            let next = cached.into_iter().chain(stored).min();
            next.map(|index| self.bytes_in(index).max(offset))
                .filter(|&place| place < size)
                .ok_or(FileError::NoData)
        })
    }

    /// [`File::seek_hole`](crate::space::File::seek_hole).
    pub(crate) fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<u64, FileError> {
        let unpinned = Unpinned::at_door();
        self.seek(unpinned, id, offset, |mut unpinned, object, size| {
            let end = self.page_of(size - 1) + 1;
            let mut page = self.page_of(offset);
            while page < end {
                let hole = {
                    let pin = self.pin_by(&unpinned);
                    self.objects.next_hole(&pin, object, page)
                };
                page = match object.kind() {
                    ObjectKind::File { store } => {
                        let platform = self.memory.unpinned_platform(unpinned.reborrow())?;
                        platform.find_page(store, hole, false).unwrap_or(end)
                    }
                    _ => hole,
                };
                // What the store has not may be in memory only.
                if page == hole {
                    break;
                }
            }
            Ok(self.bytes_in(page.min(end)).max(offset).min(size))
        })
    }

    /// Asks `look` what it finds below the object's end, until nothing was cut off while
    /// it looked.
    fn seek(
        &self,
        mut unpinned: Unpinned<'_>,
        id: ObjectId,
        offset: u64,
        look: impl Fn(Unpinned<'_>, &Object, u64) -> Result<u64, FileError>,
    ) -> Result<u64, FileError> {
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let find = |unpinned: Unpinned<'_>| {
            let size = object.size();
            if offset >= size {
                return Err(FileError::NoData);
            }
            look(unpinned, object, size)
        };
        if let Some(begun) = object.cuts.begin() {
            let found = find(unpinned.reborrow());
            if object.cuts.valid(begun) {
                return found;
            }
        }
        self.with_object_held(unpinned, object, find)
    }
}
