//! The state of a space as events that make it.

use crate::model::{Entry, Region, Resident, Space};
use crate::{Access, EventKind};

const PAGE: u64 = 4096;
const READ: u8 = 1;
/// Rights of a heap that nobody changed.
const HEAP_RIGHTS: u8 = 3;

/// Events by which a task with an empty space gets the mappings and resident
/// pages of `space`. File numbers are those of the model's trace.
pub fn rebuild(space: &Space) -> Vec<EventKind> {
    let mut events = Vec::new();
    events.extend(space.name.map(|name| EventKind::Exec { name }));
    heap(space, &mut events);
    for (first, end, region) in space.regions.iter() {
        if !region.heap {
            events.push(map(first, end, region));
        } else if region.prot.0 != HEAP_RIGHTS {
            events.push(EventKind::Protect {
                address: first * PAGE,
                length: (end - first) * PAGE,
                prot: region.prot,
            });
        }
    }
    for (page, entry) in &space.entries {
        let region = space.regions.find(*page);
        events.extend(region.and_then(|(.., region)| touch(*page, *entry, region)));
    }
    events
}

/// The heap through `brk`, less what was unmapped or mapped over.
fn heap(space: &Space, events: &mut Vec<EventKind>) {
    let Some((begin, end)) = space.heap else {
        return;
    };
    events.push(EventKind::Brk { end: begin });
    if end <= begin {
        return;
    }
    events.push(EventKind::Brk { end });
    let mut next = begin.div_ceil(PAGE);
    let last = end.div_ceil(PAGE);
    let mut gap = |from: u64, to: u64| {
        if from < to {
            events.push(EventKind::Unmap {
                address: from * PAGE,
                length: (to - from) * PAGE,
            });
        }
    };
    for (first, end, region) in space.regions.iter() {
        if region.heap {
            gap(next, first.min(last));
            next = next.max(end);
        }
    }
    gap(next, last);
}

fn map(first: u64, end: u64, region: &Region) -> EventKind {
    EventKind::Map {
        address: first * PAGE,
        length: (end - first) * PAGE,
        prot: region.prot,
        shared: region.shared,
        grows_down: region.grows_down,
        file: region.file,
        offset: region.file_page * PAGE,
        origin: region.origin,
    }
}

/// A touch that leaves `page` as `entry` has it: writable or not. A page that a
/// write would copy becomes one that only was read, so that the write faults.
fn touch(page: u64, entry: Entry, region: &Region) -> Option<EventKind> {
    let access = match entry {
        Entry { writable: true, .. } => Access::Write,
        Entry {
            page: Resident::Zero | Resident::Anonymous(_) | Resident::File,
            ..
        } if region.prot.0 & READ != 0 => Access::Read,
        _ => return None,
    };
    Some(EventKind::Fault {
        address: page * PAGE,
        access,
        kernel: false,
        present: false,
    })
}
