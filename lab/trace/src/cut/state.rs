//! The state of a space as events that make it.

use crate::model::{Entry, Region, Resident, Space};
use crate::{Access, EventKind, Prot};

const PAGE: u64 = 4096;
const READ: u8 = 1;
const WRITE: u8 = 2;
/// Rights of a heap that nobody changed.
const HEAP_RIGHTS: u8 = 3;

/// Events by which a task with an empty space gets the mappings and resident
/// pages of `space`. File numbers are those of the model's trace.
///
/// Rights can have been taken away after pages were touched, so a mapping first gets those
/// that the touches need.
pub fn rebuild(space: &Space) -> Vec<EventKind> {
    let mut events = Vec::new();
    events.extend(space.name.map(|name| EventKind::Exec { name }));
    heap(space, &mut events);
    let mut changed = Vec::new();
    for (first, end, region) in space.regions.iter() {
        let given = match region.heap {
            true => HEAP_RIGHTS,
            false => region.prot.0 | needed(space, first, end, region),
        };
        if !region.heap {
            let prot = Prot(given);
            events.push(map(first, end, &Region { prot, ..*region }));
        }
        if given != region.prot.0 {
            changed.push(EventKind::Protect {
                address: first * PAGE,
                length: (end - first) * PAGE,
                prot: region.prot,
            });
        }
    }
    for (page, entry) in &space.entries {
        if let Some((.., region)) = space.regions.find(*page) {
            events.push(EventKind::Fault {
                address: page * PAGE,
                access: touch(*entry, region),
                kernel: false,
                present: false,
            });
        }
    }
    events.extend(changed);
    events
}

/// The rights that touching the resident pages of a mapping takes.
fn needed(space: &Space, first: u64, end: u64, region: &Region) -> u8 {
    let entries = space.entries.range(first..end);
    let rights = entries.map(|(_, entry)| match touch(*entry, region) {
        Access::Write => WRITE,
        Access::Read | Access::Execute => READ,
    });
    rights.fold(0, |all, right| all | right)
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

/// A touch that leaves a page as `entry` has it: writable or not. A page that a
/// write would copy becomes one that only was read, so that the write faults;
/// one that no write can copy any more stays the process's own.
fn touch(entry: Entry, region: &Region) -> Access {
    let was_written = entry.writable
        || (matches!(entry.page, Resident::Anonymous(_)) && region.prot.0 & WRITE == 0);
    match was_written {
        true => Access::Write,
        false => Access::Read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::{Event, MapOrigin, TaskId};

    fn after(kinds: &[EventKind]) -> Model {
        let mut model = Model::default();
        for &kind in kinds {
            model.take(&Event {
                time_us: 0,
                task: TaskId(0),
                kind,
                ran_us: None,
            });
        }
        model
    }

    fn state(model: &Model) -> Vec<(u64, Resident, u8)> {
        let (_, space) = model.space_of(TaskId(0)).unwrap();
        let kind = |page| match page {
            Resident::Anonymous(_) => Resident::Anonymous(0),
            other => other,
        };
        let entry = |(page, entry): (&u64, &Entry)| {
            let (.., region) = space.regions.find(*page).unwrap();
            (*page, kind(entry.page), region.prot.0)
        };
        space.entries.iter().map(entry).collect()
    }

    #[test]
    fn pages_whose_rights_were_taken_away_are_made_again_with_the_rights_as_they_are() {
        let address = 0x7f00_0000_0000;
        let fault = |page: u64, access| EventKind::Fault {
            address: address + page * PAGE,
            access,
            kernel: false,
            present: false,
        };
        let protect = |page: u64, pages: u64, prot| EventKind::Protect {
            address: address + page * PAGE,
            length: pages * PAGE,
            prot: Prot(prot),
        };
        let model = after(&[
            EventKind::Map {
                address,
                length: 8 * PAGE,
                prot: Prot(3),
                shared: false,
                grows_down: false,
                file: None,
                offset: 0,
                origin: MapOrigin::Mmap,
            },
            fault(0, Access::Write),
            fault(1, Access::Read),
            fault(4, Access::Write),
            fault(6, Access::Write),
            protect(0, 2, 1),
            protect(4, 1, 0),
        ]);
        let (_, space) = model.space_of(TaskId(0)).unwrap();
        let again = after(&rebuild(space));
        assert_eq!(state(&again), state(&model));
        assert_eq!(again.totals().unmapped_faults, 0);
        let (_, space) = again.space_of(TaskId(0)).unwrap();
        assert!(!space.entries[&(address / PAGE)].writable);
        assert!(space.entries[&(address / PAGE + 6)].writable);
    }
}
