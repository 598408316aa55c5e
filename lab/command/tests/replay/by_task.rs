//! Streams by task: order, causes, and that any scheduler may choose among tasks whose
//! waits hold.

use vellum_engine::{Arena, Config, Engine, build};
use vellum_lab::replay::{Class, Options, Stream, Streams, Workload, prepare_events};
use vellum_lab::verify::verify;
use vellum_testing::generate::{self, Recording};
use vellum_trace::{Access, EventKind, FileId, MapOrigin, Prot, TaskId};

const PAGE: u64 = 4096;
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

fn prepared(recording: &Recording, streams: Streams, copies: u32) -> Workload {
    let options = Options {
        streams,
        copies,
        ..Options::default()
    };
    prepare_events(&recording.header, || recording.events(), &options).expect("a valid recording")
}

/// The core with so many CPUs.
fn core(cpus: usize) -> Box<dyn Engine> {
    let ram_bytes = 256 << 20;
    let config = Config::new("rmap=chains", cpus, ram_bytes);
    let arena = Arena::new(ram_bytes as usize).expect("the host has it");
    build(&config, arena).expect("the design exists")
}

fn by_task(recording: &Recording) -> Workload {
    prepared(recording, Streams::ByTask, 1)
}

fn create(child: u32, clone_flags: u64) -> EventKind {
    EventKind::Create {
        child: TaskId(child),
        clone_flags,
    }
}

fn map(page: u64) -> EventKind {
    EventKind::Map {
        address: page * PAGE,
        length: PAGE,
        prot: Prot(3),
        shared: false,
        grows_down: false,
        file: None,
        offset: 0,
        origin: MapOrigin::Mmap,
    }
}

fn touch(page: u64) -> EventKind {
    EventKind::Fault {
        address: page * PAGE,
        access: Access::Write,
        kernel: false,
        present: false,
    }
}

/// What must be done of other tasks before the operation at `position` may be: each task
/// with its operations.
fn waits_before(stream: &Stream, position: u32) -> Vec<(u32, u32)> {
    let up_to = stream
        .segments()
        .partition_point(|segment| segment.start <= position);
    let waits = (0..up_to).flat_map(|index| stream.waits(index));
    waits.map(|wait| (wait.stream, wait.ops)).collect()
}

/// The position of the first operation of `class`.
fn first(stream: &Stream, class: Class) -> u32 {
    let mut classes = stream.classes().iter();
    classes.position(|other| *other == class).expect("there") as u32
}

#[test]
fn segments_cover_every_operation_once_and_in_the_tasks_order() {
    for seed in 0..20 {
        let workload = by_task(&generate::workload(seed, 1500));
        for stream in workload.streams() {
            assert!(stream.origins().is_sorted(), "seed {seed}");
            let mut done = 0;
            for segment in stream.segments() {
                assert_eq!(segment.start, done, "seed {seed}");
                done = segment.end;
            }
            assert_eq!(done as usize, stream.ops().len(), "seed {seed}");
        }
    }
}

#[test]
fn waits_point_backwards_and_to_the_end_of_a_segment() {
    for seed in 0..20 {
        let workload = by_task(&generate::workload(seed, 1500));
        for (task, stream) in workload.streams().iter().enumerate() {
            for (index, segment) in stream.segments().iter().enumerate() {
                for wait in stream.waits(index) {
                    assert_ne!(wait.stream as usize, task);
                    let other = &workload.streams()[wait.stream as usize];
                    let mut segments = other.segments().iter();
                    assert!(segments.any(|segment| segment.end == wait.ops));
                    let awaited = other.origins()[wait.ops as usize - 1];
                    let own = stream.origins()[segment.start as usize];
                    assert!(awaited <= own, "seed {seed}: {own} waits for {awaited}");
                }
            }
        }
    }
}

#[test]
fn a_task_does_the_same_as_when_it_is_on_a_cpu() {
    for seed in 0..10 {
        let recording = generate::workload(seed, 1500);
        for copies in [1, 3] {
            let by_cpu = prepared(&recording, Streams::ByCpu(1), copies);
            let by_task = prepared(&recording, Streams::ByTask, copies);
            assert_eq!(by_task.ops(), by_cpu.ops(), "seed {seed}");
            assert_eq!(by_task.ops_by_class(), by_cpu.ops_by_class());
            assert_eq!(by_task.files(), by_cpu.files());
            let tasks = recording.header.tasks.len() * copies as usize;
            assert_eq!(by_task.streams().len(), tasks);
        }
    }
}

#[test]
fn tasks_may_be_scheduled_in_any_order_that_their_waits_allow() {
    for seed in 0..6 {
        let workload = prepared(&generate::workload(seed, 400), Streams::ByTask, 2);
        let engine = core(workload.streams().len());
        if let Err(refutation) = verify(&workload, engine.as_ref(), |_| true) {
            panic!("seed {seed}: {refutation}");
        }
    }
}

#[test]
fn a_child_comes_after_its_creation_and_its_parent_after_its_end() {
    let workload = by_task(&Recording::of(
        &[None, Some(0)],
        &[],
        &[
            (0, map(0x100)),
            (0, create(1, 0)),
            (1, touch(0x100)),
            (1, EventKind::Exit),
            (0, EventKind::Wait { child: TaskId(1) }),
            (0, touch(0x100)),
        ],
    ));
    let [parent, child] = workload.streams() else {
        panic!("two tasks");
    };
    // Its own space, the map, the fork.
    assert_eq!(waits_before(child, 0), [(0, 3)]);
    assert!(waits_before(parent, first(parent, Class::Fault) - 1).is_empty());
    assert_eq!(waits_before(parent, first(parent, Class::Fault)), [(1, 2)]);
}

#[test]
fn a_parent_in_vfork_goes_on_when_its_child_executes_a_program() {
    let workload = by_task(&Recording::of(
        &[None, Some(0)],
        &[],
        &[
            (0, map(0x100)),
            (0, create(1, CLONE_VM | CLONE_VFORK)),
            (1, EventKind::Exec { name: 0 }),
            (1, map(0x100)),
            (0, touch(0x100)),
        ],
    ));
    let parent = &workload.streams()[0];
    assert_eq!(waits_before(parent, first(parent, Class::Fault)), [(1, 1)]);
}

#[test]
fn a_file_is_used_after_whoever_changed_it_last_and_waited_for_once() {
    let write = |offset| EventKind::FileWrite {
        file: FileId(0),
        offset,
        length: PAGE,
    };
    let read = EventKind::FileRead {
        file: FileId(0),
        offset: 0,
        length: PAGE,
    };
    let workload = by_task(&Recording::of(
        &[None, None],
        &[8 * PAGE],
        &[(0, write(0)), (0, write(PAGE)), (1, read), (1, read)],
    ));
    let [writer, reader] = workload.streams() else {
        panic!("two tasks");
    };
    assert_eq!(waits_before(reader, u32::MAX), [(0, 4)]);
    assert!(waits_before(writer, u32::MAX).is_empty());
}

#[test]
fn a_parent_uses_the_slots_of_children_for_whom_it_waited() {
    let family = |waits: bool| {
        let mut events = Vec::new();
        for child in 1..20 {
            events.push((0, create(child, 0)));
            events.push((child, EventKind::Exit));
            if waits {
                let child = TaskId(child);
                events.push((0, EventKind::Wait { child }));
            }
        }
        let mut parents = vec![Some(0); 20];
        parents[0] = None;
        by_task(&Recording::of(&parents, &[], &events))
    };
    assert_eq!(family(true).spaces(), 2);
    assert_eq!(family(false).spaces(), 20);
    // Nobody is made to end earlier for the sake of a slot.
    let alone = family(false);
    assert!(waits_before(&alone.streams()[0], u32::MAX).is_empty());
}

#[test]
fn a_task_computes_as_long_as_it_was_recorded_to_and_before_it_waits() {
    let mut recording = Recording::of(
        &[None, Some(0)],
        &[],
        &[
            (0, create(1, 0)),
            (1, EventKind::Exit),
            (0, EventKind::Wait { child: TaskId(1) }),
            (0, map(0x100)),
        ],
    );
    for (event, us) in recording.events.iter_mut().zip([10, 20, 30, 40]) {
        event.ran_us = Some(us);
    }
    let workload = by_task(&recording);
    let told: Vec<Vec<(u64, usize)>> = workload.streams().iter().map(computed).collect();
    // The parent's own space; the fork; the wait, for which there is no operation; the map.
    assert_eq!(told[0], [(0, 1), (10_000, 1), (30_000, 0), (40_000, 1)]);
    assert_eq!(told[1], [(20_000, 1)]);
    let parent = &workload.streams()[0];
    assert!(parent.waits(2).is_empty());
    assert_eq!(parent.waits(3).len(), 1);
}

/// How long a task computed before how many operations, segment by segment.
fn computed(stream: &Stream) -> Vec<(u64, usize)> {
    let segments = stream.segments().iter().enumerate();
    segments
        .map(|(index, segment)| {
            let ops = segment.end - segment.start;
            (stream.user_ns(index), ops as usize)
        })
        .collect()
}
