//! Places for the parts of every program of a recording, in a space so small that they
//! must be known before the first one is placed.
//!
//! The recorded space is seen in chunks of 2 MiB. A first reading of the trace notes
//! which of them each program uses in all its life; those that it forks, until they
//! execute another, count as the same program, since they have its places. Runs of
//! such chunks stay together and in order. The gaps between them become smaller, none
//! of them to nothing, and the large ones alike.

use std::collections::HashMap;

use super::relocate::{DoesNotFit, RECORDED_PAGES, Relocation};
use super::spaces::{Begun, Spaces};
use vellum_trace::{EventKind, TaskId};

/// Log2 of the 4 KiB pages of a chunk: what a page table of x86 covers.
const CHUNK_SHIFT: u32 = 9;
const PAGE_SHIFT: u32 = 12;

/// Chunks `start..end` of the recording that a program uses, ascending, and not
/// adjoining one another.
type Runs = Vec<(u64, u64)>;

/// A program: where it began, and the heap that its space has so far.
#[derive(Clone, Debug)]
struct Program {
    begun: Begun,
    /// First and last chunk of the heap.
    heap: Option<(u64, u64)>,
}

/// A first reading of a trace.
#[derive(Debug)]
pub struct Planner {
    places: u64,
    spaces: Spaces<Program>,
    programs: HashMap<Begun, Runs>,
}

/// Where the chunks of each program go.
#[derive(Debug)]
pub struct Plan {
    places: u64,
    programs: HashMap<Begun, Runs>,
}

impl Planner {
    /// For spaces of `room` 4 KiB pages, and a trace with `tasks` tasks.
    pub(super) fn new(room: u64, tasks: usize) -> Planner {
        Planner {
            places: room >> CHUNK_SHIFT,
            spaces: Spaces::new(tasks),
            programs: HashMap::new(),
        }
    }

    /// Notes what an event of `task` uses.
    pub fn event(&mut self, task: TaskId, kind: EventKind) {
        let begin = |begun| Program { begun, heap: None };
        if self.spaces.follow(task, kind, begin) {
            return;
        }
        let program = self.spaces.of(task, begin);
        let runs = self.programs.entry(program.begun).or_default();
        let mut note = |address, length| {
            if let Some((first, last)) = chunks(address, length) {
                insert(runs, first, last + 1);
            }
        };
        match kind {
            EventKind::Map {
                address, length, ..
            } => note(address, length),
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => {
                note(address, length.max(1));
                note(new_address, new_length.max(1));
            }
            EventKind::Fault { address, .. } => note(address, 1),
            EventKind::Brk { end } => {
                if let Some((end, _)) = chunks(end.saturating_sub(1), 1) {
                    let (first, last) = program.heap.unwrap_or((end, end));
                    let heap = (first.min(end), last.max(end));
                    program.heap = Some(heap);
                    insert(runs, heap.0, heap.1 + 1);
                }
            }
            _ => {}
        }
    }

    /// The plan.
    ///
    /// # Errors
    /// A program uses more than there is.
    pub fn finish(self) -> Result<Plan, DoesNotFit> {
        for runs in self.programs.values() {
            let used: u64 = runs.iter().map(|(start, end)| end - start).sum();
            // One place is left free between runs, and at both ends.
            if used + runs.len() as u64 + 1 > self.places {
                return Err(DoesNotFit::Program {
                    megabytes: used << CHUNK_SHIFT >> 8,
                    parts: runs.len(),
                    room: self.places << CHUNK_SHIFT >> 8,
                });
            }
        }
        Ok(Plan {
            places: self.places,
            programs: self.programs,
        })
    }
}

impl Plan {
    /// The places of a program.
    pub(super) fn relocation(&self, begun: Begun) -> Relocation {
        let runs = self.programs.get(&begun).map_or(&[][..], Vec::as_slice);
        let mut chunks = Vec::new();
        let mut next = 1;
        for ((start, end), gap) in runs.iter().zip(gaps(runs, self.places)) {
            next += gap;
            chunks.extend((*start..*end).zip(next..));
            next += end - start;
        }
        Relocation::planned(CHUNK_SHIFT, self.places, chunks)
    }
}

/// The gaps before each of `runs`, so that all fit between the first and the last of
/// `places`: no larger than they were, and of one size if they must be smaller.
fn gaps(runs: &[(u64, u64)], places: u64) -> Vec<u64> {
    let used: u64 = runs.iter().map(|(start, end)| end - start).sum();
    let mut left = places.saturating_sub(2 + used);
    let mut gaps: Vec<u64> = std::iter::once(0)
        .chain(runs.windows(2).map(|pair| pair[1].0 - pair[0].1))
        .collect();
    let mut by_size: Vec<usize> = (1..gaps.len()).collect();
    by_size.sort_by_key(|&run| gaps[run]);
    for (done, &run) in by_size.iter().enumerate() {
        let share = left / (by_size.len() - done) as u64;
        gaps[run] = gaps[run].min(share);
        left -= gaps[run];
    }
    gaps
}

/// The first and the last chunk of a byte range of a program's addresses.
fn chunks(address: u64, length: u64) -> Option<(u64, u64)> {
    let end = address.checked_add(length)?.div_ceil(1 << PAGE_SHIFT);
    let start = address >> PAGE_SHIFT;
    (length > 0 && end <= RECORDED_PAGES)
        .then_some((start >> CHUNK_SHIFT, (end - 1) >> CHUNK_SHIFT))
}

/// Adds chunks `start..end`.
fn insert(runs: &mut Runs, start: u64, end: u64) {
    let first = runs.partition_point(|run| run.1 < start);
    let after = runs.partition_point(|run| run.0 <= end);
    let joined = runs[first..after].iter();
    let joined = joined.fold((start, end), |all, run| {
        (all.0.min(run.0), all.1.max(run.1))
    });
    runs.splice(first..after, [joined]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_trace::{Access, MapOrigin, Prot};

    const MIB: u64 = 1 << 20;
    /// 3 GiB.
    const ROOM: u64 = 3 << 18;

    fn map(address: u64, length: u64) -> EventKind {
        EventKind::Map {
            address,
            length,
            prot: Prot(3),
            shared: false,
            grows_down: false,
            file: None,
            offset: 0,
            origin: MapOrigin::Mmap,
        }
    }

    fn fault(address: u64) -> EventKind {
        EventKind::Fault {
            address,
            access: Access::Write,
            kernel: false,
            present: false,
        }
    }

    fn fork(child: u32) -> EventKind {
        EventKind::Create {
            child: TaskId(child),
            clone_flags: 0,
        }
    }

    fn plan(events: &[(u32, EventKind)]) -> Result<Plan, DoesNotFit> {
        let mut planner = Planner::new(ROOM, 4);
        for &(task, kind) in events {
            planner.event(TaskId(task), kind);
        }
        planner.finish()
    }

    /// Places of addresses in the space that the task began at first.
    fn places(plan: &Plan, task: u32, addresses: &[u64]) -> Vec<u64> {
        let mut spaces = Spaces::new(4);
        let relocation: &mut Relocation = spaces.of(TaskId(task), |begun| plan.relocation(begun));
        let moved = |address: &u64| relocation.place(*address, 1).unwrap();
        addresses.iter().map(moved).collect()
    }

    #[test]
    fn what_adjoins_stays_together_and_the_rest_in_order() {
        let recorded = [
            0x40_0000,
            0x3ea0_0000,
            0x7f7e_c040_0000,
            0x7f7e_c040_0000 + 374 * MIB - 1,
            0x7ffc_b300_0000,
        ];
        let plan = plan(&[
            (0, map(0x7ffc_b300_0000, 2 * MIB)),
            (0, map(0x40_0000, 34 * MIB)),
            (0, EventKind::Brk { end: 0x3ea0_0001 }),
            (0, map(0x7f7e_c040_0000, 300 * MIB)),
            (0, map(0x7f7e_c040_0000 + 300 * MIB, 74 * MIB)),
        ])
        .unwrap();
        let found = places(&plan, 0, &recorded);
        assert!(
            found.is_sorted() && *found.last().unwrap() < 3 << 30,
            "{found:x?}"
        );
        assert!(found[0] >= 2 * MIB, "the first chunk stays empty");
        assert_eq!(found[3] - found[2], recorded[3] - recorded[2]);
        let same = |(new, old): (&u64, u64)| new % (2 * MIB) == old % (2 * MIB);
        assert!(found.iter().zip(recorded).all(same));
    }

    #[test]
    fn a_space_without_gaps_to_spare_is_filled_and_no_further() {
        let gap = 10 << 30;
        let full = |megabytes: u64| {
            plan(&[
                (0, map(gap, 1024 * MIB)),
                (0, map(2 * gap, 1024 * MIB)),
                (0, map(3 * gap, megabytes * MIB)),
            ])
        };
        // Of 1536 places of 2 MiB two at the ends and two between the parts stay free.
        let plan = full(1024 - 8).unwrap();
        let found = places(&plan, 0, &[gap, 2 * gap, 3 * gap]);
        assert_eq!(found, [1, 514, 1027].map(|chunk| chunk * 2 * MIB));
        let error = full(1024 - 6).unwrap_err().to_string();
        assert!(
            error.contains("3 parts") && error.contains("format="),
            "{error}"
        );
    }

    #[test]
    fn forked_processes_have_the_places_of_the_program_and_new_programs_their_own() {
        let (low, high) = (1 << 30, 1 << 40);
        let plan = plan(&[
            (0, map(low, 2000 * MIB)),
            (0, fork(1)),
            (1, fault(high)),
            (1, EventKind::Exec { name: 0 }),
            (1, map(low, 2000 * MIB)),
            (1, map(high, 1000 * MIB)),
        ])
        .unwrap();
        let chunk = 2 * MIB;
        assert_eq!(places(&plan, 0, &[low, high])[0], chunk);
        assert_eq!(
            places(&plan, 0, &[high]),
            [(1536 - 2) * chunk],
            "the child's page"
        );
        assert_eq!(
            places(&plan, 1, &[low, high]),
            [chunk, (1536 - 1 - 500) * chunk]
        );
    }

    #[test]
    fn a_heap_has_room_for_what_it_skips() {
        let heap = 0x5000_0000;
        let brk = |end| (0, EventKind::Brk { end });
        let plan = plan(&[brk(heap + 1), (0, map(1 << 40, 1)), brk(heap + 40 * MIB)]).unwrap();
        let found = places(&plan, 0, &[heap, heap + 20 * MIB, heap + 40 * MIB - 1]);
        assert_eq!(found[2] - found[0], 40 * MIB - 1);
        assert_eq!(found[1] - found[0], 20 * MIB);
    }
}
