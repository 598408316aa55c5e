//! No operation may reach into the stub's own part of the address space.

use vellum_engine::Op;

use crate::linux::LinuxError;
use crate::linux::protocol::{AREA, AREA_END};

const SHIFT: u32 = 12;

/// Refuses `op`, of event `event`, if it lies in the stub's area.
pub(super) fn apart(op: &Op, event: u32) -> Result<(), LinuxError> {
    let (what, page, pages) = match *op {
        Op::Map { page, pages, .. } => ("mapping", page, pages),
        Op::Unmap { page, pages, .. } => ("munmap", page, pages),
        Op::Protect { page, pages, .. } => ("mprotect", page, pages),
        Op::Advise { page, pages, .. } => ("madvise", page, pages),
        Op::Brk { start, end, .. } => ("heap", start, end.saturating_sub(start)),
        Op::Touch { page, .. } => ("access", page, 1),
        Op::Remap {
            page,
            pages,
            new_page,
            new_pages,
            ..
        } => {
            refuse("mremap of", page, pages, event)?;
            ("mremap to", new_page, new_pages)
        }
        _ => return Ok(()),
    };
    refuse(what, page, pages, event)
}

fn refuse(what: &'static str, page: u64, pages: u64, event: u32) -> Result<(), LinuxError> {
    let start = page << SHIFT;
    let end = page.saturating_add(pages) << SHIFT;
    match start < AREA_END && end > AREA {
        false => Ok(()),
        true => Err(LinuxError::Collision {
            what: format!("{what} of event {event} of the trace"),
            wanted: (start, end),
            found: (AREA, AREA_END),
            name: "the replay's own stub".into(),
        }),
    }
}
