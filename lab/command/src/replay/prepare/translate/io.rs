//! Files: first use, reads, writes, lengths.

use vellum_engine::{FileSlot, Op};

use super::{Done, PAGE_SHIFT, Translator, byte_pages, changes_file, uses_file};
use crate::replay::prepare::PrepareError;
use crate::replay::workload::Class;
use vellum_trace::FileId;

/// Pages that a file may have: 2^51 of them would overflow a byte offset, and
/// nobody has a file of an exbibyte.
const FILE_PAGES_MAX: u64 = 1 << 48;

/// Pages that one call can read or write: Linux moves less than 2 GiB at once,
/// which touches one page more if it is not aligned.
const CALL_PAGES_MAX: u64 = (1 << 31 >> PAGE_SHIFT) + 1;

impl Translator<'_> {
    /// The slot of `file`, opened at its first use, and its length in pages.
    pub(super) fn file_slot(
        &mut self,
        task: usize,
        file: FileId,
    ) -> Result<(FileSlot, u64), PrepareError> {
        let recorded = self.header.files[file.0 as usize].pages();
        let pages = recorded.div_ceil(1 << self.fold_shift());
        let (slot, first_use) = self.files.slot(file, self.copy, pages);
        if first_use {
            let op = match self.is_on_tmpfs(file) {
                true => Op::TmpfsOpen { file: slot, pages },
                false => Op::FileOpen { file: slot, pages },
            };
            self.put(task, op, Class::File, &[changes_file(slot)])?;
        }
        Ok((slot, self.files.pages(slot)))
    }

    fn is_on_tmpfs(&self, file: FileId) -> bool {
        self.options.tmpfs == Some(self.header.files[file.0 as usize].device)
    }

    /// Lengthens `file` if the trace proves that it has `pages` pages.
    pub(super) fn ensure_length(&mut self, task: usize, file: FileSlot, pages: u64) -> Done {
        if pages <= self.files.pages(file) {
            return Ok(());
        }
        self.repairs.lengthened += 1;
        self.set_length(task, file, pages)
    }

    fn set_length(&mut self, task: usize, file: FileSlot, pages: u64) -> Done {
        self.files.set_pages(file, pages);
        self.memory.uncache(file.0, pages);
        let op = Op::Truncate { file, pages };
        self.put(task, op, Class::File, &[changes_file(file)])?;
        Ok(())
    }

    pub(super) fn file_read(
        &mut self,
        task: usize,
        file: FileId,
        offset: u64,
        length: u64,
    ) -> Done {
        let (file, _) = self.file_slot(task, file)?;
        let Some((page, end)) = file_pages(offset, length) else {
            self.repairs.meaningless += 1;
            return Ok(());
        };
        self.ensure_length(task, file, end)?;
        self.memory.cache(file.0, page, end);
        let op = Op::FileRead {
            file,
            page,
            pages: end - page,
        };
        self.put(task, op, Class::File, &[uses_file(file)])?;
        Ok(())
    }

    pub(super) fn file_write(
        &mut self,
        task: usize,
        file: FileId,
        offset: u64,
        length: u64,
    ) -> Done {
        let (file, known) = self.file_slot(task, file)?;
        let Some((page, end)) = file_pages(offset, length) else {
            self.repairs.meaningless += 1;
            return Ok(());
        };
        self.files.set_pages(file, known.max(end));
        self.memory.cache(file.0, page, end);
        let op = Op::FileWrite {
            file,
            page,
            pages: end - page,
        };
        self.put(task, op, Class::File, &[changes_file(file)])?;
        Ok(())
    }

    pub(super) fn truncate(&mut self, task: usize, file: FileId, size: u64) -> Done {
        let (file, _) = self.file_slot(task, file)?;
        let pages = size.div_ceil(1 << PAGE_SHIFT);
        if pages > FILE_PAGES_MAX {
            self.repairs.meaningless += 1;
            return Ok(());
        }
        self.set_length(task, file, pages)
    }
}

/// Pages of a byte range of a file; `None` if empty, beyond any file, or longer
/// than one call can be.
fn file_pages(offset: u64, length: u64) -> Option<(u64, u64)> {
    byte_pages(offset, length)
        .filter(|(page, end)| *end <= FILE_PAGES_MAX && end - page <= CALL_PAGES_MAX)
}
