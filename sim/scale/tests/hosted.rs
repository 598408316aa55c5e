//! Operations on simulated CPUs as a hosted machine has them: timed without what they wait
//! for, by kind, and refused where they cannot be executed.

use vellum_description::{Description, Time, WorkKind};
use vellum_engine::op::{Access, Backing, Call, FileSlot, Op, Prot, Sharing, SpaceSlot};
use vellum_scale::hosted::{KINDS, Lane, Measured, Part, Request, run};
use vellum_scale::{PlacedHeap, ScaleError};

#[global_allocator]
static HEAP: PlacedHeap = PlacedHeap;

const START: u64 = 1 << 20;
const SPACE: SpaceSlot = SpaceSlot(0);

fn machine() -> Description {
    Description::named("epyc-milan-1s").unwrap_or_else(|error| panic!("{error}"))
}

fn map(page: u64, pages: u64) -> Op {
    Op::Map {
        space: SPACE,
        page,
        pages,
        prot: Prot {
            read: true,
            write: true,
            execute: false,
        },
        sharing: Sharing::Private,
        backing: Backing::Anonymous,
        grows_down: false,
    }
}

fn touch(page: u64) -> Op {
    Op::Touch {
        space: SPACE,
        page,
        access: Access::Write,
    }
}

/// A lane of parts, each with what it waits for.
fn lane<'l>(ops: &'l [Op], parts: &[(u32, &[(u32, u32)])]) -> Lane<'l> {
    let parts = parts.iter().map(|&(end, waits)| Part {
        end,
        waits: waits.to_vec(),
    });
    Lane {
        ops,
        parts: parts.collect(),
    }
}

fn request<'r>(
    machine: &'r Description,
    lanes: &'r [Lane<'r>],
    slices: &'r [Vec<u32>],
) -> Request<'r> {
    Request {
        machine,
        design: "rmap=family",
        lanes,
        slices,
        seed: 3,
        ram_bytes: 256 << 20,
    }
}

/// A little of every kind on one CPU.
fn everything() -> Vec<Op> {
    let file = FileSlot(0);
    let mut ops = vec![Op::Create { space: SPACE }, map(START, 64)];
    ops.extend((0..32).map(|page| touch(START + page)));
    let child = SpaceSlot(1);
    let parent = SPACE;
    ops.extend([
        Op::Fork { parent, child },
        Op::Exit { space: child },
        Op::FileOpen { file, pages: 8 },
        Op::FileRead {
            file,
            page: 0,
            pages: 8,
        },
        Op::Call(Call::Frames {
            order: 0,
            blocks: 2,
            rounds: 3,
        }),
        Op::Lap { phase: 1 },
        Op::Exit { space: SPACE },
    ]);
    ops
}

fn alone(machine: &Description, ops: &[Op]) -> Measured {
    let end = ops.len() as u32;
    let lanes = [lane(ops, &[(end, &[])])];
    let measured = run(&request(machine, &lanes, &[vec![2], vec![end]]));
    measured.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn operations_are_timed_by_kind_and_by_slice() {
    let ops = everything();
    let measured = alone(&machine(), &ops);
    let counts: Vec<u64> = measured.by_kind.iter().map(|spent| spent.ops).collect();
    // Faults and frames, changes of mappings, new spaces, ends, files, and the rest.
    assert_eq!(counts, [33, 1, 2, 2, 2, 1]);
    let by_kind: u64 = measured.by_kind.iter().map(|spent| spent.time).sum();
    assert_eq!(measured.by_slice.iter().sum::<u64>(), by_kind);
    assert!(measured.by_slice.iter().all(|&time| time > 0));
    assert_eq!(measured.divergences, 0);
    let again = alone(&machine(), &ops);
    assert_eq!(measured.by_slice, again.by_slice, "bit for bit");
}

#[test]
fn work_of_a_kind_costs_that_kind_as_much_for_each_access_and_no_other() {
    let ops = everything();
    let bare = alone(&machine(), &ops);
    for kind in WorkKind::ALL {
        let mut machine = machine();
        let more = 1000.0;
        let ns = machine.processor.work.ns + more;
        machine.work.set(kind, Time::new(ns, "assumed: test"));
        let found = alone(&machine, &ops);
        for number in 0..KINDS {
            let (was, is) = (bare.by_kind[number], found.by_kind[number]);
            assert_eq!(was.reports, is.reports, "{}", kind.key());
            if number == kind as usize {
                let added = was.reports as f64 * more * 1e3;
                // What took its time beside instructions may be hidden by them.
                let grown = (is.time as f64 - was.time as f64) / added;
                assert!((0.97..=1.0).contains(&grown), "{}: {grown}", kind.key());
            } else {
                let off = is.time.abs_diff(was.time) as f64 / was.time.max(1) as f64;
                assert!(off < 0.05, "{}: kind {number} by {off}", kind.key());
            }
        }
    }
}

#[test]
fn a_cpu_does_not_begin_before_what_it_waits_for_and_is_not_charged_for_waiting() {
    // The second can touch only what the first has mapped, long after its beginning.
    let mut first = vec![Op::Create { space: SPACE }];
    first.extend((0..200).map(|n| map(START + n * 1024, 1)));
    let second: Vec<Op> = (0..200).map(|n| touch(START + n * 1024)).collect();
    let ends = vec![first.len() as u32, second.len() as u32];
    let lanes = [
        lane(&first, &[(201, &[])]),
        lane(&second, &[(200, &[(0, 201)])]),
    ];
    let machine = machine();
    let slices = [ends];
    let measured =
        run(&request(&machine, &lanes, &slices)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(measured.divergences, 0, "everything was mapped");
    let elapsed = measured.cpus.iter().map(|cpu| cpu.ended_at).max();
    let waited = 2 * elapsed.unwrap_or(0) - measured.by_slice[0];
    assert!(
        waited > elapsed.unwrap_or(0) / 2,
        "one of two waited throughout: {waited}"
    );
}

#[test]
fn what_cannot_be_run_is_refused() {
    let machine = machine();
    let ops = [Op::Create { space: SPACE }];
    let sync = [Op::Call(Call::Sync { file: FileSlot(0) })];
    let cases = [
        (lane(&ops, &[(1, &[])]), vec![0], "the last slice ends"),
        (lane(&ops, &[]), vec![1], "the parts of lane 0 end at 0"),
        (lane(&ops, &[(1, &[(1, 1)])]), vec![1], "lane 1, which has"),
        (lane(&sync, &[(1, &[])]), vec![1], "cannot be executed"),
    ];
    for (lane, slice, said) in cases {
        let lanes = [lane];
        let slices = [slice];
        match run(&request(&machine, &lanes, &slices)) {
            Err(ScaleError::Lanes(text)) => assert!(text.contains(said), "{said}: {text}"),
            other => panic!("{said}: {:?}", other.map(|found| found.by_slice)),
        }
    }
}

#[test]
fn lanes_that_wait_for_each_other_end_with_an_error() {
    let machine = machine();
    let ops = [Op::Create { space: SPACE }];
    let others = [Op::Create {
        space: SpaceSlot(1),
    }];
    let lanes = [
        lane(&ops, &[(1, &[(1, 1)])]),
        lane(&others, &[(1, &[(0, 1)])]),
    ];
    let slices = [vec![1, 1]];
    match run(&request(&machine, &lanes, &slices)) {
        Err(ScaleError::Lanes(text)) => assert!(text.contains("for ever"), "{text}"),
        other => panic!("{:?}", other.map(|found| found.by_slice)),
    }
}
