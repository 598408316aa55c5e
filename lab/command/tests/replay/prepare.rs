//! What `prepare` makes of a recording: spaces, order, explanations, repairs.

use crate::support::reference::Reference;
use vellum_engine::{Access, Advice, Op, SpaceSlot};
use vellum_lab::replay::{
    Class, Expectation, Options, PrepareError, Streams, Workload, prepare_events, run,
};
use vellum_testing::generate::{self, Recording};
use vellum_trace::{EventKind, FileId, MapOrigin, Prot, TaskId};

const PAGE: u64 = 4096;
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

fn prepared(recording: &Recording, options: Options) -> Workload {
    prepare_events(&recording.header, || recording.events(), &options).expect("a valid recording")
}

fn plain(recording: &Recording) -> Workload {
    prepared(recording, Options::default())
}

fn on_cpus(cpus: usize) -> Options {
    Options {
        streams: Streams::ByCpu(cpus),
        ..Options::default()
    }
}

fn map_of(page: u64, pages: u64, shared: bool, file: Option<u32>) -> EventKind {
    EventKind::Map {
        address: page * PAGE,
        length: pages * PAGE,
        prot: Prot(3),
        shared,
        grows_down: false,
        file: file.map(FileId),
        offset: 0,
        origin: MapOrigin::Mmap,
    }
}

fn touch(page: u64, access: vellum_trace::Access) -> EventKind {
    EventKind::Fault {
        address: page * PAGE,
        access,
        kernel: false,
        present: false,
    }
}

fn create(child: u32, clone_flags: u64) -> EventKind {
    EventKind::Create {
        child: TaskId(child),
        clone_flags,
    }
}

const READ: vellum_trace::Access = vellum_trace::Access::Read;
const WRITE: vellum_trace::Access = vellum_trace::Access::Write;

/// Spaces of the touches, in order.
fn touched_spaces(workload: &Workload) -> Vec<u32> {
    let ops = workload.streams()[0].ops().iter();
    ops.filter_map(|op| match op {
        Op::Touch { space, .. } => Some(space.0),
        _ => None,
    })
    .collect()
}

/// Expectations of the touches, in order.
fn touch_expectations(workload: &Workload) -> Vec<Expectation> {
    let stream = &workload.streams()[0];
    let touches = stream.ops().iter().zip(stream.expectations());
    touches
        .filter(|(op, _)| matches!(op, Op::Touch { .. }))
        .map(|(_, expectation)| *expectation)
        .collect()
}

#[test]
fn a_vfork_child_acts_on_its_parents_space_until_exec() {
    let workload = plain(&Recording::of(
        &[None, Some(0)],
        &[],
        &[
            (0, map_of(0x100, 4, false, None)),
            (0, create(1, CLONE_VM | CLONE_VFORK)),
            (1, touch(0x100, WRITE)),
            (1, EventKind::Exec { name: 0 }),
            (1, map_of(0x100, 4, false, None)),
            (1, touch(0x100, WRITE)),
            (0, touch(0x101, WRITE)),
        ],
    ));
    assert_eq!(touched_spaces(&workload), [0, 1, 0]);
    let share = Op::Share {
        space: SpaceSlot(0),
    };
    assert!(workload.streams()[0].ops().contains(&share));
}

#[test]
fn advice_about_residence_is_given_on_what_is_mapped() {
    let advise = |page: u64, pages: u64, advice| EventKind::Advise {
        address: page * PAGE,
        length: pages * PAGE,
        advice,
    };
    let workload = plain(&Recording::of(
        &[None],
        &[8],
        &[
            (0, map_of(0x100, 4, false, None)),
            (0, map_of(0x108, 4, false, Some(0))),
            (0, advise(0x102, 4, libc::MADV_COLD as u32)),
            (0, advise(0x100, 12, libc::MADV_PAGEOUT as u32)),
            (0, advise(0x100, 12, libc::MADV_FREE as u32)),
            (0, advise(0x100, 4, libc::MADV_HUGEPAGE as u32)),
        ],
    ));
    let ops = workload.streams()[0].ops().iter();
    let given: Vec<(u64, u64, Advice)> = ops
        .filter_map(|op| match *op {
            Op::Advise {
                page,
                pages,
                advice,
                ..
            } => Some((page, pages, advice)),
            _ => None,
        })
        .collect();
    let file = 0x108;
    let expected = [
        (0x102, 2, Advice::Cold),
        (0x100, 4, Advice::PageOut),
        (file, 4, Advice::PageOut),
        (0x100, 4, Advice::Free),
    ];
    assert_eq!(given, expected);
}

#[test]
fn a_fork_gets_a_space_and_a_thread_does_not() {
    let workload = plain(&Recording::of(
        &[None, Some(0), Some(0)],
        &[],
        &[
            (0, map_of(0x100, 4, false, None)),
            (0, create(1, 0)),
            (0, create(2, CLONE_VM)),
            (1, touch(0x100, WRITE)),
            (2, touch(0x100, WRITE)),
        ],
    ));
    assert_eq!(touched_spaces(&workload), [1, 0]);
    assert_eq!(workload.spaces(), 2);
}

#[test]
fn the_slot_of_an_ended_space_is_used_again() {
    let mut events = Vec::new();
    for child in 1..20 {
        events.push((0, create(child, 0)));
        events.push((child, EventKind::Exit));
    }
    let mut parents = vec![Some(0); 20];
    parents[0] = None;
    assert_eq!(plain(&Recording::of(&parents, &[], &events)).spaces(), 2);
}

#[test]
fn a_second_fault_is_explained_by_what_the_trace_says_of_the_first() {
    let workload = plain(&Recording::of(
        &[None, Some(0)],
        &[64 * PAGE],
        &[
            (0, map_of(0x100, 64, false, Some(0))),
            (0, touch(0x101, READ)),
            (0, touch(0x102, READ)),
            (0, touch(0x120, READ)),
            (0, touch(0x101, READ)),
            (0, touch(0x101, WRITE)),
            (0, create(1, 0)),
            (1, touch(0x120, READ)),
            (1, touch(0x101, WRITE)),
        ],
    ));
    let expected = [
        Expectation::AsRecorded,
        Expectation::FaultAround,
        Expectation::AsRecorded,
        Expectation::Repeated,
        // A write to a private page has to fault, whatever was read before.
        Expectation::AsRecorded,
        Expectation::InheritedAtFork,
        Expectation::AsRecorded,
    ];
    assert_eq!(touch_expectations(&workload), expected);
}

#[test]
fn what_the_kernel_offered_around_is_told_from_its_events() {
    let around = EventKind::MapAround {
        file: FileId(0),
        first: 0x20,
        last: 0x2f,
    };
    let workload = plain(&Recording::of(
        &[None],
        &[64 * PAGE],
        &[
            (0, map_of(0x100, 64, true, Some(0))),
            (0, touch(0x121, READ)),
            (0, around),
            (0, touch(0x12f, READ)),
            (0, touch(0x121, WRITE)),
        ],
    ));
    let expected = [
        Expectation::AsRecorded,
        Expectation::OfferedAround,
        Expectation::SharedWrite,
    ];
    assert_eq!(touch_expectations(&workload), expected);
}

#[test]
fn unmapping_forgets_and_moving_keeps_what_was_mapped() {
    let workload = plain(&Recording::of(
        &[None],
        &[],
        &[
            (0, map_of(0x100, 4, false, None)),
            (0, touch(0x100, WRITE)),
            (
                0,
                EventKind::Remap {
                    address: 0x100 * PAGE,
                    length: 4 * PAGE,
                    new_address: 0x1f0 * PAGE,
                    new_length: 64 * PAGE,
                },
            ),
            (0, touch(0x1f0, WRITE)),
            (
                0,
                EventKind::Unmap {
                    address: 0x1f0 * PAGE,
                    length: 64 * PAGE,
                },
            ),
            (0, map_of(0x1f0, 4, false, None)),
            (0, touch(0x1f0, WRITE)),
        ],
    ));
    let expected = [
        Expectation::AsRecorded,
        Expectation::Repeated,
        Expectation::AsRecorded,
    ];
    assert_eq!(touch_expectations(&workload), expected);
}

#[test]
fn what_the_trace_does_not_know_is_repaired_and_counted() {
    let stack = |page: u64, pages: u64| EventKind::Map {
        address: page * PAGE,
        length: pages * PAGE,
        prot: Prot(3),
        shared: false,
        grows_down: true,
        file: None,
        offset: 0,
        origin: MapOrigin::Exec,
    };
    let recording = Recording::of(
        &[None],
        &[2 * PAGE],
        &[
            (0, touch(0x50, READ)),
            (0, map_of(0x100, 8, false, Some(0))),
            (0, touch(0x105, READ)),
            (0, stack(0x700, 4)),
            (0, touch(0x6fe, WRITE)),
            (0, stack(0x6fe, 6)),
            (
                0,
                EventKind::Unmap {
                    address: 0x900 * PAGE,
                    length: PAGE,
                },
            ),
            (
                0,
                EventKind::Unmap {
                    address: 0x900 * PAGE,
                    length: 0,
                },
            ),
            (0, touch(u64::MAX / PAGE, READ)),
        ],
    );
    let workload = plain(&recording);
    let repairs = workload.repairs();
    assert_eq!(repairs.unmapped_touch, 1);
    assert_eq!(repairs.lengthened, 1);
    assert_eq!(repairs.stack_regrown, 1);
    assert_eq!(repairs.unknown_range, 1);
    assert_eq!(repairs.meaningless, 2);
    assert_eq!(repairs.total(), 6);
    let replayed = run(&workload, &Reference::new(1, None), |_| true);
    assert_eq!(replayed.divergences.total(), 0);
}

#[test]
fn a_refused_access_is_kept_and_explained() {
    let protect = EventKind::Protect {
        address: 0x100 * PAGE,
        length: 4 * PAGE,
        prot: Prot(1),
    };
    let workload = plain(&Recording::of(
        &[None],
        &[],
        &[
            (0, map_of(0x100, 4, false, None)),
            (0, protect),
            (0, touch(0x100, WRITE)),
        ],
    ));
    assert_eq!(touch_expectations(&workload), [Expectation::Refused]);
    let replayed = run(&workload, &Reference::new(1, None), |_| true);
    assert_eq!(replayed.divergences.refused, 1);
    assert_eq!(replayed.divergences.unexplained(), 0);
}

#[test]
fn the_first_brk_shows_where_the_heap_begins() {
    let brk = |page: u64| EventKind::Brk { end: page * PAGE };
    let workload = plain(&Recording::of(
        &[None],
        &[],
        &[
            (0, brk(0x10)),
            (0, brk(0x18)),
            (0, brk(0x18)),
            (0, brk(0x12)),
        ],
    ));
    let heaps: Vec<(u64, u64)> = workload.streams()[0]
        .ops()
        .iter()
        .filter_map(|op| match op {
            Op::Brk { start, end, .. } => Some((*start, *end)),
            _ => None,
        })
        .collect();
    assert_eq!(heaps, [(0x10, 0x18), (0x10, 0x12)]);
}

#[test]
fn a_move_of_several_regions_goes_piece_by_piece() {
    let workload = plain(&Recording::of(
        &[None],
        &[],
        &[
            (0, map_of(0x100, 2, false, None)),
            (0, map_of(0x102, 2, false, None)),
            (
                0,
                EventKind::Remap {
                    address: 0x101 * PAGE,
                    length: 3 * PAGE,
                    new_address: 0x200 * PAGE,
                    new_length: 5 * PAGE,
                },
            ),
        ],
    ));
    let moves: Vec<(u64, u64, u64, u64)> = workload.streams()[0]
        .ops()
        .iter()
        .filter_map(|op| match *op {
            Op::Remap {
                page,
                pages,
                new_page,
                new_pages,
                ..
            } => Some((page, pages, new_page, new_pages)),
            _ => None,
        })
        .collect();
    assert_eq!(moves, [(0x101, 1, 0x200, 1), (0x102, 2, 0x201, 4)]);
}

#[test]
fn copies_share_what_is_only_read_and_own_what_is_written() {
    let (offset, length) = (0, PAGE);
    let read = |file| EventKind::FileRead {
        file: FileId(file),
        offset,
        length,
    };
    let write = EventKind::FileWrite {
        file: FileId(1),
        offset,
        length,
    };
    let recording = Recording::of(
        &[None],
        &[PAGE, 0],
        &[(0, read(0)), (0, write), (0, read(1))],
    );
    let options = Options {
        copies: 3,
        ..Options::default()
    };
    let workload = prepared(&recording, options);
    let mut files: Vec<_> = workload
        .files()
        .iter()
        .map(|origin| (origin.file.0, origin.copy))
        .collect();
    files.sort_unstable();
    assert_eq!(files, [(0, None), (1, Some(0)), (1, Some(1)), (1, Some(2))]);
    assert_eq!(workload.events(), 9);
}

#[test]
fn waits_point_backwards_in_the_recording() {
    for seed in 0..20 {
        let workload = prepared(&generate::workload(seed, 1500), on_cpus(4));
        for stream in workload.streams() {
            for (index, segment) in stream.segments().iter().enumerate() {
                let own = stream.origins()[segment.start as usize];
                for wait in stream.waits(index) {
                    let other = &workload.streams()[wait.stream as usize];
                    let awaited = other.origins()[wait.ops as usize - 1];
                    assert!(
                        awaited <= own,
                        "seed {seed}: event {own} waits for {awaited}"
                    );
                }
            }
        }
    }
}

#[test]
fn several_cpus_share_the_work_and_do_each_operation_once() {
    let recording = generate::workload(3, 4000);
    let single = plain(&recording);
    let several = prepared(&recording, on_cpus(3));
    assert_eq!(several.ops_by_class(), single.ops_by_class());
    let most = several.streams().iter().map(|s| s.ops().len()).max();
    assert!(
        most.unwrap_or(0) * 10 < single.ops() as usize * 8,
        "{most:?}"
    );
}

#[test]
fn slices_cover_every_operation_once_in_order() {
    let recording = generate::workload(5, 3000);
    for cpus in [1, 3] {
        let workload = prepared(&recording, on_cpus(cpus));
        for target in [1, 100, 700, 1 << 20] {
            let slices = workload.slices(target);
            let mut done = vec![0; cpus];
            for slice in &slices {
                for (cpu, ops) in slice.ops.iter().enumerate() {
                    assert_eq!(ops.start, done[cpu]);
                    done[cpu] = ops.end;
                }
            }
            let all: Vec<usize> = workload.streams().iter().map(|s| s.ops().len()).collect();
            assert_eq!(done, all, "{cpus} CPUs, slices of {target}");
            let full = &slices[..slices.len() - 1];
            assert!(full.iter().all(|slice| slice.len() >= target));
        }
    }
}

#[test]
fn the_same_trace_and_seed_give_the_same_workload() {
    let recording = generate::workload(9, 1500);
    let options = |seed| Options {
        streams: Streams::ByCpu(3),
        copies: 2,
        seed,
        ..Options::default()
    };
    let digest = |options| {
        let workload = prepared(&recording, options);
        let streams = workload.streams().iter();
        let ops: Vec<Vec<Op>> = streams.map(|s| s.ops().to_vec()).collect();
        ops
    };
    assert!(digest(options(1)) == digest(options(1)));
    assert!(digest(options(1)) != digest(options(2)));
}

#[test]
fn exec_maps_belong_to_exec() {
    let text = EventKind::Map {
        address: 0x400 * PAGE,
        length: PAGE,
        prot: Prot(5),
        shared: false,
        grows_down: false,
        file: None,
        offset: 0,
        origin: MapOrigin::Exec,
    };
    let execute = touch(0x400, vellum_trace::Access::Execute);
    let workload = plain(&Recording::of(
        &[None],
        &[],
        &[(0, EventKind::Exec { name: 0 }), (0, text), (0, execute)],
    ));
    let stream = &workload.streams()[0];
    let classes = [Class::Fork, Class::Exec, Class::Exec, Class::Fault];
    assert_eq!(stream.classes(), classes);
    let fetch = |op: &Op| {
        matches!(
            op,
            Op::Touch {
                access: Access::Execute,
                ..
            }
        )
    };
    assert!(stream.ops().last().is_some_and(fetch));
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let recording = generate::workload(1, 50);
    for options in [
        on_cpus(0),
        on_cpus(100_000),
        Options {
            copies: 0,
            ..Options::default()
        },
        Options {
            fault_around: 0,
            ..Options::default()
        },
    ] {
        let refused = prepare_events(&recording.header, || recording.events(), &options);
        assert!(
            matches!(refused, Err(PrepareError::Option { .. })),
            "{options:?}"
        );
    }
}
