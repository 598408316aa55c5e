//! Where the data is.

use crate::ObjectId;
use crate::object::Object;
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::error::FileError;
use crate::space::manager::Vm;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The first byte at or after `offset` that may be other than zero (`SEEK_DATA`): one
    /// in a page that takes memory. All of a file is data, as its store may hold it.
    ///
    /// # Errors
    /// [`FileError::NoData`] if there is none, or `offset` is at the end or past it.
    pub fn seek_data(&self, id: ObjectId, offset: u64) -> Result<u64, FileError> {
        self.seek(id, offset, |object, size| {
            if object.is_file() {
                return Ok(offset);
            }
            let _pin = self.pin();
            let next = self.objects.radix(object).next(self.page_of(offset));
            next.map(|(index, _)| self.bytes_in(index).max(offset))
                .filter(|&place| place < size)
                .ok_or(FileError::NoData)
        })
    }

    /// The first byte at or after `offset` from which on everything up to the next data
    /// is zero and takes no memory (`SEEK_HOLE`); the end if there is no such.
    ///
    /// # Errors
    /// [`FileError::NoData`] if `offset` is at the end or past it.
    pub fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<u64, FileError> {
        self.seek(id, offset, |object, size| {
            if object.is_file() {
                return Ok(size);
            }
            let _pin = self.pin();
            let hole = self.objects.next_hole(object, self.page_of(offset));
            Ok(self.bytes_in(hole).max(offset).min(size))
        })
    }

    /// Asks `look` what it finds below the object's end, until nothing was cut off while
    /// it looked.
    fn seek(
        &self,
        id: ObjectId,
        offset: u64,
        look: impl Fn(&Object<R::Object>, u64) -> Result<u64, FileError>,
    ) -> Result<u64, FileError> {
        let object = self.objects.find(id).ok_or(FileError::NoObject)?;
        let find = || {
            let size = object.size();
            if offset >= size {
                return Err(FileError::NoData);
            }
            look(object, size)
        };
        if let Some(begun) = object.cuts.begin() {
            let found = find();
            if object.cuts.valid(begun) {
                return found;
            }
        }
        self.with_object_held(object, find)
    }
}
