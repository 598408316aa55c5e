//! Verified replay accepts a memory manager that is right and refuses each kind
//! that is wrong, by name.

use std::sync::{Condvar, Mutex};

use crate::support::reference::{Defect, Moment, Reference};
use vellum_engine::{Engine, Op};
use vellum_lab::replay::{Options, Streams, Workload, prepare_events, run};
use vellum_lab::verify::{Refutation, Symptom, Verification, end_state, verify};
use vellum_testing::generate::{self, Recording, seeds};
use vellum_trace::{Access, EventKind, FileId, MapOrigin, Prot, TaskId};

const PAGE: u64 = 4096;

/// Defects that show in random workloads on several CPUs.
pub const ON_SEVERAL_CPUS: [Defect; 11] = [
    Defect::CowWithoutCopy,
    Defect::CowCopiesNothing,
    Defect::LostWrite,
    Defect::MissingFlush,
    Defect::LostDirty,
    Defect::DroppedTruncation,
    Defect::KeptWhatWasCut,
    Defect::RightsKept,
    Defect::RemapLosesPages,
    Defect::LostFileWrite,
    Defect::ExitTakesAll,
];

pub fn prepared(recording: &Recording, cpus: usize, copies: u32) -> Workload {
    let options = Options {
        streams: Streams::ByCpu(cpus),
        copies,
        ..Options::default()
    };
    prepare_events(&recording.header, || recording.events(), &options).expect("a valid recording")
}

fn verified(workload: &Workload, defect: Option<Defect>) -> Result<Verification, Box<Refutation>> {
    let engine = Reference::new(workload.cpus(), defect);
    verify(workload, &engine, |_| true).map(|verified| verified.expect("not interrupted"))
}

fn map(page: u64, pages: u64, prot: u8, shared: bool, file: Option<u32>) -> EventKind {
    EventKind::Map {
        address: page * PAGE,
        length: pages * PAGE,
        prot: Prot(prot),
        shared,
        grows_down: false,
        file: file.map(FileId),
        offset: 0,
        origin: MapOrigin::Mmap,
    }
}

fn touch(page: u64, access: Access) -> EventKind {
    EventKind::Fault {
        address: page * PAGE,
        access,
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

const READ: Access = Access::Read;
const WRITE: Access = Access::Write;

/// A parent writes, forks; both write again.
fn fork_and_write() -> Recording {
    Recording::of(
        &[None, Some(0)],
        &[],
        &[
            (0, map(0x100, 4, 3, false, None)),
            (0, touch(0x100, WRITE)),
            (0, touch(0x101, WRITE)),
            (0, fork(1)),
            (1, touch(0x100, WRITE)),
            (0, touch(0x101, WRITE)),
            (1, EventKind::Exit),
            (0, EventKind::Exit),
        ],
    )
}

/// A page is written, unmapped, mapped again and read.
fn map_again() -> Recording {
    Recording::of(
        &[None],
        &[],
        &[
            (0, map(0x100, 2, 3, false, None)),
            (0, touch(0x100, WRITE)),
            (
                0,
                EventKind::Unmap {
                    address: 0x100 * PAGE,
                    length: 2 * PAGE,
                },
            ),
            (0, map(0x100, 2, 3, false, None)),
            (0, touch(0x100, READ)),
            (0, EventKind::Exit),
        ],
    )
}

/// A file is written through a shared mapping.
fn shared_write() -> Recording {
    Recording::of(
        &[None],
        &[8 * PAGE],
        &[
            (0, map(0x100, 8, 3, true, Some(0))),
            (0, touch(0x103, WRITE)),
            (0, EventKind::Exit),
        ],
    )
}

/// Parent and child map a file, which is then cut short.
fn truncate_mapped() -> Recording {
    let file = FileId(0);
    Recording::of(
        &[None, Some(0)],
        &[8 * PAGE],
        &[
            (0, map(0x100, 8, 3, false, Some(0))),
            (0, touch(0x105, READ)),
            (0, touch(0x106, WRITE)),
            (0, fork(1)),
            (1, touch(0x105, READ)),
            (
                0,
                EventKind::Truncate {
                    file,
                    size: 2 * PAGE,
                },
            ),
            (1, EventKind::Exit),
            (0, EventKind::Exit),
        ],
    )
}

/// A file that is mapped is cut short, and as long again.
fn cut_and_extend() -> Recording {
    let size = |pages| EventKind::Truncate {
        file: FileId(0),
        size: pages * PAGE,
    };
    Recording::of(
        &[None],
        &[8 * PAGE],
        &[
            (0, map(0x100, 8, 3, true, Some(0))),
            (0, touch(0x105, READ)),
            (0, size(2)),
            (0, size(8)),
            (0, touch(0x105, READ)),
            (0, EventKind::Exit),
        ],
    )
}

/// A page is written, write-protected, and later moved.
fn protect_and_move() -> Recording {
    Recording::of(
        &[None],
        &[],
        &[
            (0, map(0x100, 4, 3, false, None)),
            (0, touch(0x100, WRITE)),
            (0, touch(0x102, WRITE)),
            (
                0,
                EventKind::Protect {
                    address: 0x100 * PAGE,
                    length: PAGE,
                    prot: Prot(1),
                },
            ),
            (
                0,
                EventKind::Remap {
                    address: 0x102 * PAGE,
                    length: 2 * PAGE,
                    new_address: 0x200 * PAGE,
                    new_length: 6 * PAGE,
                },
            ),
            (0, EventKind::Exit),
        ],
    )
}

/// A file is written by call and then read by call.
fn write_and_read() -> Recording {
    let file = FileId(0);
    let (offset, length) = (PAGE, PAGE);
    Recording::of(
        &[None],
        &[0],
        &[
            (
                0,
                EventKind::FileWrite {
                    file,
                    offset,
                    length,
                },
            ),
            (
                0,
                EventKind::FileRead {
                    file,
                    offset,
                    length,
                },
            ),
            (0, EventKind::Exit),
        ],
    )
}

/// A vfork child ends; its parent goes on in the same space.
fn vfork_and_go_on() -> Recording {
    Recording::of(
        &[None, Some(0)],
        &[],
        &[
            (0, map(0x100, 4, 3, false, None)),
            (0, touch(0x100, WRITE)),
            (
                0,
                EventKind::Create {
                    child: TaskId(1),
                    clone_flags: 0x4100,
                },
            ),
            (1, touch(0x101, WRITE)),
            (1, EventKind::Exit),
            (0, touch(0x102, WRITE)),
            (0, EventKind::Exit),
        ],
    )
}

#[test]
fn each_defect_is_found_by_name() {
    let cases = [
        (
            Defect::CowWithoutCopy,
            fork_and_write(),
            Symptom::LeakedWrite,
        ),
        (
            Defect::CowCopiesNothing,
            fork_and_write(),
            Symptom::LostWrite,
        ),
        (Defect::LostWrite, fork_and_write(), Symptom::LostWrite),
        (Defect::MissingFlush, map_again(), Symptom::StaleTranslation),
        (Defect::LostDirty, shared_write(), Symptom::LostDirty),
        (
            Defect::DroppedTruncation,
            truncate_mapped(),
            Symptom::SurvivedTruncation,
        ),
        (
            Defect::DroppedRmapEntry,
            truncate_mapped(),
            Symptom::SurvivedTruncation,
        ),
        (
            Defect::KeptWhatWasCut,
            cut_and_extend(),
            Symptom::SurvivedTruncation,
        ),
        (Defect::RightsKept, protect_and_move(), Symptom::NotRefused),
        (
            Defect::RemapLosesPages,
            protect_and_move(),
            Symptom::LostWrite,
        ),
        (Defect::LostFileWrite, write_and_read(), Symptom::LostWrite),
        (
            Defect::ExitTakesAll,
            vfork_and_go_on(),
            Symptom::WronglyRefused,
        ),
    ];
    for (defect, recording, symptom) in cases {
        let workload = prepared(&recording, 1, 1);
        let clean = verified(&workload, None);
        assert!(clean.is_ok(), "without {defect:?}: {}", clean.unwrap_err());
        let refutation = verified(&workload, Some(defect)).expect_err("the defect must show");
        assert_eq!(refutation.symptom, symptom, "{defect:?}: {refutation}");
    }
}

#[test]
fn each_defect_is_found_in_random_workloads_on_several_cpus() {
    for defect in ON_SEVERAL_CPUS {
        for cpus in [1, 3] {
            let found = (0..6).any(|seed| {
                let recording = generate::workload(seed, 1500);
                verified(&prepared(&recording, cpus, 1), Some(defect)).is_err()
            });
            assert!(found, "{defect:?} on {cpus} CPUs was not found");
        }
    }
}

#[test]
fn a_right_memory_manager_passes_on_random_workloads() {
    for seed in seeds(8) {
        let recording = generate::workload(seed, 1200);
        for (cpus, copies) in [(1, 1), (3, 1), (1, 3), (3, 3)] {
            let workload = prepared(&recording, cpus, copies);
            let what = format!("seed {seed}, {cpus} CPUs, {copies} copies");
            match verified(&workload, None) {
                Ok(Verification { verified, .. }) => {
                    assert_eq!(verified.ops, workload.ops(), "{what}");
                    assert!(verified.written > 0, "{what}: nothing was written");
                    let checked = verified.read_back + verified.stored;
                    assert!(checked >= verified.written, "{what}: {verified:?}");
                }
                Err(refutation) => panic!("{what}: {refutation}"),
            }
        }
    }
}

#[test]
fn random_workloads_replay_without_unexplained_divergence() {
    for seed in seeds(8) {
        let recording = generate::workload(seed, 1200);
        for (cpus, copies) in [(1, 1), (3, 1), (1, 3), (3, 3)] {
            let workload = prepared(&recording, cpus, copies);
            let engine = Reference::new(cpus, None);
            let replayed = run(&workload, &engine, |_| true);
            let what = format!("seed {seed}, {cpus} CPUs, {copies} copies");
            assert_eq!(replayed.ops, workload.ops(), "{what}");
            let divergences = &replayed.divergences;
            let first = divergences.samples.first().map(|sample| {
                let op = workload.streams()[sample.cpu].ops()[sample.position];
                format!("{sample:?} {op:?}")
            });
            assert_eq!(divergences.unexplained(), 0, "{what}: {first:?}");
            assert_eq!(divergences.refused, 0, "{what}");
            assert_eq!(workload.repairs().unmapped_touch, 0, "{what}");
        }
    }
}

#[test]
fn timed_and_verified_replay_end_in_the_same_state() {
    for seed in seeds(8) {
        let mut recording = generate::workload(seed, 800);
        // Without the exits at the end, spaces are left to compare.
        recording.events.truncate(700);
        let workload = prepared(&recording, 1, 1);
        let engine = Reference::new(1, None);
        run(&workload, &engine, |_| true);
        let verified = verified(&workload, None);
        let verified = verified.unwrap_or_else(|refutation| panic!("seed {seed}: {refutation}"));
        assert_eq!(
            verified.end_state,
            end_state(&workload, &engine),
            "seed {seed}"
        );
    }
}

/// The model knows of a truncation a moment before the memory manager has done
/// it. In that moment another CPU, whose change of rights has nothing to do with
/// the file, looks at a page of it: it still reads, and that is right.
#[test]
fn a_page_that_is_being_truncated_elsewhere_may_still_be_read() {
    let recording = Recording::of(
        &[None, Some(0)],
        &[16 * PAGE],
        &[
            (0, map(0x100, 4, 3, false, Some(0))),
            (0, touch(0x101, READ)),
            (0, fork(1)),
            (1, map(0x200, 1, 3, false, None)),
            (
                0,
                EventKind::Protect {
                    address: 0x100 * PAGE,
                    length: 4 * PAGE,
                    prot: Prot(1),
                },
            ),
            (
                1,
                EventKind::Truncate {
                    file: FileId(0),
                    size: 0,
                },
            ),
        ],
    );
    let workload = prepared(&recording, 2, 1);
    let steps = Steps::default();
    let engine = Reference::hooked(
        2,
        Box::new(move |moment| match moment {
            Moment::Before(Op::Truncate { .. }) => {
                steps.take(1);
                steps.wait_for(3);
            }
            Moment::Before(Op::Protect { .. }) => steps.wait_for(1),
            Moment::After(Op::Protect { .. }) => steps.take(2),
            Moment::Looked if steps.taken() >= 2 => steps.take(3),
            _ => {}
        }),
    );
    verify(&workload, &engine, |_| true).unwrap_or_else(|refutation| panic!("{refutation}"));
}

/// The steps of a meeting of two CPUs.
#[derive(Default)]
struct Steps(Mutex<u32>, Condvar);

impl Steps {
    fn take(&self, step: u32) {
        let mut taken = self.0.lock().expect("no holder panics");
        *taken = step.max(*taken);
        self.1.notify_all();
    }

    fn taken(&self) -> u32 {
        *self.0.lock().expect("no holder panics")
    }

    fn wait_for(&self, step: u32) {
        let taken = self.0.lock().expect("no holder panics");
        let reached = self.1.wait_while(taken, |taken| *taken < step);
        drop(reached.expect("no holder panics"));
    }
}

#[test]
fn a_failure_names_place_contents_and_history() {
    let workload = prepared(&fork_and_write(), 1, 1);
    let refutation = verified(&workload, Some(Defect::CowWithoutCopy)).expect_err("defect");
    let text = refutation.to_string();
    for part in [
        "leaked-write",
        "space 0",
        "address 0x100",
        "expected",
        "found",
        "Fork",
        "Touch",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn an_interrupted_verification_claims_nothing() {
    let workload = prepared(&generate::workload(1, 300), 1, 1);
    let engine = Reference::new(1, None);
    let verified = verify(&workload, &engine, |_| false).expect("nothing is wrong");
    assert_eq!(verified, None);
    assert_eq!(engine.cpus(), 1);
}
