//! What happens to the pages of files.

use std::io::{self, Write};

use super::{DESCRIPTOR, PAGE, Writer};
use vellum_record::number;
use vellum_trace::{EventKind, FileId, TaskId};

impl<W: Write> Writer<'_, W> {
    /// `dev=254:0 ino=4f8cb`.
    pub(super) fn place(&self, file: FileId) -> String {
        let file = &self.header.files[file.0 as usize];
        let (major, minor) = (file.device >> 20, file.device & 0xf_ffff);
        format!("dev={major}:{minor} ino={:x}", file.inode)
    }

    pub(super) fn transfer(&mut self, at: (u64, TaskId), kind: &EventKind) -> io::Result<()> {
        match *kind {
            EventKind::FileRead {
                file,
                offset,
                length,
            } => {
                let place = self.place(file);
                let to = (offset + length.max(1)).next_multiple_of(PAGE) - 1;
                self.unspoken += u64::from(!offset.is_multiple_of(PAGE));
                self.enter(
                    at,
                    number::READ,
                    &[("fd", DESCRIPTOR), ("buf", 0), ("count", length)],
                )?;
                self.line(
                    at.0,
                    at.1,
                    format_args!(
                        "filemap:mm_filemap_get_pages: {place} ofs={}-{to}",
                        offset / PAGE * PAGE
                    ),
                )?;
                self.exit(at, number::READ, length)
            }
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => self.write(at, file, offset, length),
            EventKind::Truncate { file, size } => {
                let place = self.place(file).replace('=', " ");
                let from = size.next_multiple_of(PAGE);
                self.orders
                    .retain(|(other, page), _| *other != file || page * PAGE < size);
                self.enter(
                    at,
                    number::FTRUNCATE,
                    &[("fd", DESCRIPTOR), ("length", size)],
                )?;
                self.line(at.0, at.1, format_args!(
                    "filemap:mm_filemap_delete_from_page_cache: {place} pfn=0x0 ofs={from} order=0"
                ))?;
                self.exit(at, number::FTRUNCATE, 0)
            }
            _ => Ok(()),
        }
    }

    fn write(
        &mut self,
        at: (u64, TaskId),
        file: FileId,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        let pages = length / PAGE;
        if !offset.is_multiple_of(PAGE) || !length.is_multiple_of(PAGE) || !pages.is_power_of_two()
        {
            self.unspoken += 1;
        }
        let order = pages.max(1).ilog2().min(31);
        let page = offset / PAGE;
        self.enter(
            at,
            number::WRITE,
            &[("fd", DESCRIPTOR), ("buf", 0), ("count", length)],
        )?;
        if self.orders.insert((file, page), order) != Some(order) {
            let place = self.place(file).replace('=', " ");
            self.line(
                at.0,
                at.1,
                format_args!(
                    "filemap:mm_filemap_add_to_page_cache: {place} pfn=0x0 ofs={} order={order}",
                    page * PAGE
                ),
            )?;
        }
        let entry = &self.header.files[file.0 as usize];
        let (major, minor, inode) = (entry.device >> 20, entry.device & 0xf_ffff, entry.inode);
        self.line(
            at.0,
            at.1,
            format_args!(
                "writeback:writeback_dirty_folio: bdi {major}:{minor}: ino={inode} index={page}"
            ),
        )?;
        self.exit(at, number::WRITE, length)
    }
}
