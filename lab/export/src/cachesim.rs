//! The requests that reach the page cache, as CSV for libCacheSim.
//!
//! Columns: `time` (seconds, six decimals), `obj_id` (a number: file + 1 times
//! 2^40, plus the page in the file), `obj_size` (4096), `op` (`read` or
//! `write`). A request is a page that a call read or wrote, or a page of a file
//! that a fault found absent, or present and write-protected in a shared
//! mapping. Not requests: faults on private copies and anonymous memory, and
//! what fault-around mapped, of which nobody knows whether it was used.

use std::io::{self, Write};

use vellum_trace::model::Model;
use vellum_trace::{Access, Event, EventKind, FileId};

const PAGE: u64 = 4096;
/// Bits of an object's number that are the page: files up to 4 PiB.
const PAGE_BITS: u32 = 40;
/// A call that transfers more is cut off: 1 TiB at once is no transfer.
const MOST_PAGES: u64 = 1 << 28;

/// Writes the line of column names.
///
/// # Errors
/// `out` cannot be written to.
pub fn head(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "time,obj_id,obj_size,op")
}

/// Finds the requests in a stream of events.
#[derive(Default)]
pub struct Requests {
    model: Model,
    count: u64,
}

impl Requests {
    /// Requests so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Writes the requests of the next event in order of time.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn take(&mut self, out: &mut impl Write, event: &Event) -> io::Result<()> {
        let found = match event.kind {
            EventKind::FileRead {
                file,
                offset,
                length,
            } => Some((file, span(offset, length), "read")),
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => Some((file, span(offset, length), "write")),
            EventKind::Fault {
                address,
                access,
                present,
                ..
            } => self.fault(event, address / PAGE, access, present),
            _ => None,
        };
        self.model.take(event);
        let Some((file, (first, end), op)) = found else {
            return Ok(());
        };
        for page in first..end {
            self.count += 1;
            writeln!(
                out,
                "{}.{:06},{},{PAGE},{op}",
                event.time_us / 1_000_000,
                event.time_us % 1_000_000,
                u64::from(file.0 + 1) << PAGE_BITS | page & ((1 << PAGE_BITS) - 1),
            )?;
        }
        Ok(())
    }

    fn fault(
        &self,
        event: &Event,
        page: u64,
        access: Access,
        present: bool,
    ) -> Option<(FileId, (u64, u64), &'static str)> {
        let (_, space) = self.model.space_of(event.task)?;
        let (first, _, region) = space.regions.find(page)?;
        let file = region.file?;
        if present && !region.shared {
            return None;
        }
        let at = region.file_page + (page - first);
        let write = region.shared && access == Access::Write;
        Some((file, (at, at + 1), if write { "write" } else { "read" }))
    }
}

fn span(offset: u64, length: u64) -> (u64, u64) {
    let first = offset / PAGE;
    let end = (offset + length).div_ceil(PAGE);
    (first, end.min(first + MOST_PAGES))
}
