//! Files: which pages were read, written, offered and dropped.

use super::{PAGE, Reading, Translator};
use crate::error::RecordError;
use crate::sample::{Sample, Transfer};
use crate::syscalls::{self, Call};
use vellum_trace::{EventKind, FileId};

impl Translator<'_> {
    pub(super) fn file_sample(&mut self, tid: u32, sample: &Sample<'_>) -> Result<(), RecordError> {
        let Some(live) = self.live.get(&tid) else {
            return Ok(());
        };
        let (call, dropping) = (live.call, live.dropping);
        let table = &mut self.sink.header_mut().files;
        let mut identify =
            |file: super::Identity| self.files.identify(table, file.device, file.inode);
        match *sample {
            Sample::AddToCache { file, page, order } => {
                let file = identify(file);
                self.files.note_order(file, page, order);
                Ok(())
            }
            Sample::MapPages { file, first, last } => {
                let file = identify(file);
                self.files.used(file, (last + 1) * PAGE);
                self.emit(tid, EventKind::MapAround { file, first, last })
            }
            Sample::GetPages { file, first, last } => {
                let reading = Reading {
                    file: identify(file),
                    offset: first * PAGE,
                    end: (last.max(first) + 1) * PAGE,
                };
                self.go_on_reading(tid, reading)
            }
            Sample::Drop { file, page } => {
                let file = identify(file);
                self.dropped(tid, file, page, call, dropping)
            }
            // Pages that a mapping dirtied are known from their faults.
            Sample::Dirty { disk, inode, page } if call == Call::Write => {
                self.written(tid, disk, inode, page)
            }
            _ => Ok(()),
        }
    }

    fn written(&mut self, tid: u32, disk: &[u8], inode: u64, page: u64) -> Result<(), RecordError> {
        let Some(disk) = disk_number(disk) else {
            return Ok(());
        };
        let table = &mut self.sink.header_mut().files;
        let file = self.files.identify_on_disk(table, disk, inode);
        let length = self.files.folio_pages(file, page) * PAGE;
        let offset = page * PAGE;
        self.files.written(file, offset + length);
        self.emit(
            tid,
            EventKind::FileWrite {
                file,
                offset,
                length,
            },
        )
    }

    /// Pages were looked up for a read. What was asked for can lie past the end
    /// of the file; how much was read shows when the call ends.
    fn go_on_reading(&mut self, tid: u32, next: Reading) -> Result<(), RecordError> {
        let live = self.live.get_mut(&tid).expect("the caller looked it up");
        if let Some(reading) = &mut live.reading
            && reading.file == next.file
            && (reading.offset + PAGE..=reading.end).contains(&next.offset)
        {
            reading.end = reading.end.max(next.end);
            return Ok(());
        }
        self.end_reading(tid, None)?;
        if let Some(live) = self.live.get_mut(&tid) {
            live.reading = Some(next);
        }
        Ok(())
    }

    /// A read is over: `read` bytes, or unknown for reads by the kernel itself
    /// (program headers), which are short.
    pub(super) fn end_reading(&mut self, tid: u32, read: Option<u64>) -> Result<(), RecordError> {
        let reading = self.live.get_mut(&tid).and_then(|live| live.reading.take());
        let Some(Reading { file, offset, end }) = reading else {
            return Ok(());
        };
        let length = (end - offset).min(read.unwrap_or(PAGE));
        if length == 0 {
            return Ok(());
        }
        self.files.used(file, offset + length);
        self.emit(
            tid,
            EventKind::FileRead {
                file,
                offset,
                length,
            },
        )
    }

    /// A call reads or writes a file on a tmpfs. How much shows when it ends.
    pub(super) fn begin_transfer(&mut self, tid: u32, transfer: Transfer) {
        let Some(live) = self.live.get_mut(&tid) else {
            return;
        };
        if !transfer.second {
            live.transfers = [None; 2];
        }
        // A read at the end of the file moves nothing, and its end does not show.
        let moves = transfer.writes() || transfer.position < transfer.size;
        if transfer.regular && moves {
            live.transfers[usize::from(transfer.second)] = Some(transfer);
        }
    }

    /// What a call was about to read and write came to nothing.
    pub(super) fn forget_transfers(&mut self, tid: u32) {
        if let Some(live) = self.live.get_mut(&tid) {
            live.transfers = [None; 2];
        }
    }

    /// The call ended: `result` bytes were moved, or it failed.
    pub(super) fn end_transfers(
        &mut self,
        tid: u32,
        number: u64,
        result: u64,
    ) -> Result<(), RecordError> {
        let Some(live) = self.live.get_mut(&tid) else {
            return Ok(());
        };
        let transfers = std::mem::take(&mut live.transfers);
        if syscalls::failed(result) || result == 0 {
            return Ok(());
        }
        for transfer in transfers.into_iter().flatten() {
            if transfer.number == number {
                self.transferred(tid, &transfer, result)?;
            }
        }
        Ok(())
    }

    fn transferred(
        &mut self,
        tid: u32,
        transfer: &Transfer,
        length: u64,
    ) -> Result<(), RecordError> {
        let table = &mut self.sink.header_mut().files;
        let identity = transfer.file;
        let file = self.files.identify(table, identity.device, identity.inode);
        let offset = transfer.position;
        let Some(end) = offset.checked_add(length) else {
            return Ok(());
        };
        if transfer.writes() {
            self.files.written(file, end);
            self.emit(
                tid,
                EventKind::FileWrite {
                    file,
                    offset,
                    length,
                },
            )
        } else {
            self.files.used(file, end);
            self.emit(
                tid,
                EventKind::FileRead {
                    file,
                    offset,
                    length,
                },
            )
        }
    }

    /// A page left the page cache. The first one of a file tells that its
    /// length was set: to the argument of `truncate`, or to 0 when the file was
    /// opened for truncation or removed. Anything else is reclaim.
    fn dropped(
        &mut self,
        tid: u32,
        file: FileId,
        page: u64,
        call: Call,
        dropping: Option<FileId>,
    ) -> Result<(), RecordError> {
        if dropping == Some(file) {
            return Ok(());
        }
        let size = match call {
            Call::Truncate { size } => size,
            _ if page == 0 => 0,
            _ => return Ok(()),
        };
        if let Some(live) = self.live.get_mut(&tid) {
            live.dropping = Some(file);
        }
        self.files.truncated(file, size);
        self.emit(tid, EventKind::Truncate { file, size })
    }
}

/// Device number of a disk's name in writeback events, `major:minor`.
fn disk_number(name: &[u8]) -> Option<u32> {
    let end = name.iter().position(|byte| *byte == 0);
    let (major, minor) = str::from_utf8(&name[..end.unwrap_or(name.len())])
        .ok()?
        .split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}
