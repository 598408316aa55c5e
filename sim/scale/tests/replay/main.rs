//! Programs of tasks on simulated CPUs: how long they take by formula, that waits are kept,
//! and that what cannot go on is an error.

mod beginning;
mod mixed;
mod needless;

use vellum_description::Description;
use vellum_engine::op::{
    Access, Backing, Divergence, FileSlot, Op, OpError, Prot, Sharing, SpaceSlot,
};
use vellum_scale::replay::{
    Program, Replayed, Request, SLICE_NS, Step, Stop, TaskStream, Wait, replay,
};
use vellum_scale::{PlacedHeap, ScaleError};

#[global_allocator]
static HEAP: PlacedHeap = PlacedHeap;

const MS: u64 = 1_000_000;
const PAGE: u64 = 1 << 20;

fn request<'r>(machine: &'r Description, program: &'r Program, cpus: usize) -> Request<'r> {
    Request {
        machine,
        cpus,
        design: "rmap=family",
        program,
        seed: 1,
        slice_ns: SLICE_NS,
        ram_bytes: Some(64 << 20),
    }
}

fn machine() -> Description {
    Description::named("epyc-milan-1s").unwrap_or_else(|error| panic!("{error}"))
}

fn replayed(program: &Program, cpus: usize) -> Replayed {
    replay(&request(&machine(), program, cpus)).unwrap_or_else(|error| panic!("{error}"))
}

/// A task of steps, each with its waits, its computing and its operations.
fn task(steps: &[(&[Wait], u64, &[Op])]) -> TaskStream {
    let mut task = TaskStream::default();
    for &(waits, user_ns, ops) in steps {
        let first_wait = task.waits.len() as u32;
        task.waits.extend(waits);
        task.ops.extend(ops);
        task.steps.push(Step {
            end: task.ops.len() as u32,
            first_wait,
            user_ns,
        });
    }
    task
}

const fn map(space: u32) -> Op {
    map_pages(space, 64)
}

const fn map_pages(space: u32, pages: u64) -> Op {
    Op::Map {
        space: SpaceSlot(space),
        page: PAGE,
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

const fn touch(space: u32, page: u64) -> Op {
    Op::Touch {
        space: SpaceSlot(space),
        page: PAGE + page,
        access: Access::Write,
    }
}

const fn create(space: u32) -> Op {
    Op::Create {
        space: SpaceSlot(space),
    }
}

const fn exit(space: u32) -> Op {
    Op::Exit {
        space: SpaceSlot(space),
    }
}

/// A task that computes for `user_ns` and does a little in a space of its own.
fn alone(space: u32, user_ns: u64) -> TaskStream {
    let mut ops = vec![create(space), map(space)];
    ops.extend((0..8).map(|page| touch(space, page)));
    ops.push(exit(space));
    task(&[(&[], 0, &ops[..5]), (&[], user_ns, &ops[5..])])
}

fn is_about(value: u64, expected: u64, percent: u64) -> bool {
    value.abs_diff(expected) * 100 <= expected * percent
}

/// Checks what is true of every replay: nothing is lost, and all time is accounted for.
fn check(replayed: &Replayed, program: &Program) {
    assert_eq!(replayed.ops, program.ops());
    assert_eq!(replayed.ended_at_ns.len(), program.tasks.len());
    check_times(replayed);
}

/// The same of times alone.
fn check_times(replayed: &Replayed) {
    let last = replayed.ended_at_ns.iter().max();
    assert_eq!(last, Some(&replayed.elapsed_ns));
    for share in &replayed.by_cpu {
        let all = share.user_ns + share.system_ns + share.idle_ns;
        assert_eq!(all, replayed.elapsed_ns, "{share:?}");
    }
}

#[test]
fn independent_tasks_take_half_the_time_on_two_cpus() {
    let program = Program {
        tasks: vec![alone(0, 30 * MS), alone(1, 30 * MS)],
    };
    let (one, two) = (replayed(&program, 1), replayed(&program, 2));
    check(&one, &program);
    check(&two, &program);
    assert!(is_about(one.elapsed_ns, 60 * MS, 1), "{}", one.elapsed_ns);
    assert!(is_about(two.elapsed_ns, 30 * MS, 1), "{}", two.elapsed_ns);
    assert_eq!((one.user_ns, two.user_ns), (60 * MS, 60 * MS));
    assert!(one.busy() > 0.99 && two.busy() > 1.99, "{}", two.busy());
    assert!(one.divergences.is_empty(), "{:?}", one.divergences);
    let faults = |replayed: &Replayed| replayed.counters[0];
    assert_eq!(
        (faults(&one), faults(&two)),
        (("faults", 16), ("faults", 16))
    );
}

/// Each task of a chain begins when the one before has ended.
fn chain(length: u32) -> Program {
    let link = |number: u32| {
        let wait = number.checked_sub(1).map(|task| Wait { task, ops: 2 });
        task(&[
            (wait.as_slice(), 0, &[create(number)]),
            (&[], 5 * MS, &[exit(number)]),
        ])
    };
    Program {
        tasks: (0..length).map(link).collect(),
    }
}

#[test]
fn a_chain_of_waits_takes_the_sum_however_many_cpus_there_are() {
    let program = chain(6);
    for cpus in [1, 2, 8] {
        let replayed = replayed(&program, cpus);
        check(&replayed, &program);
        let elapsed = replayed.elapsed_ns;
        assert!(is_about(elapsed, 30 * MS, 1), "{cpus}: {elapsed}");
        assert_eq!(replayed.user_ns, 30 * MS);
        let in_order = replayed.ended_at_ns.windows(2).all(|pair| {
            let apart = pair[1] - pair[0];
            apart >= 5 * MS
        });
        assert!(in_order, "{:?}", replayed.ended_at_ns);
    }
}

#[test]
fn tasks_that_outnumber_the_cpus_share_them_by_slices() {
    let program = Program {
        tasks: (0..3).map(|space| alone(space, 35 * MS)).collect(),
    };
    let sliced = replayed(&program, 1);
    check(&sliced, &program);
    assert!(is_about(sliced.elapsed_ns, 105 * MS, 1));
    // They take turns of 10 ms, so that the first ends when the others have had three each.
    let first = sliced.ended_at_ns.iter().min().copied();
    assert!(is_about(first.unwrap_or(0), 95 * MS, 1), "{first:?}");
    assert_eq!(sliced.context_switches, 12, "four slices each");

    let machine = machine();
    let whole = Request {
        slice_ns: u64::MAX,
        ..request(&machine, &program, 1)
    };
    let whole = replay(&whole).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(whole.context_switches, 3, "one after the other");

    let shared = replayed(&program, 2);
    check(&shared, &program);
    assert!(
        is_about(shared.elapsed_ns, 105 * MS / 2, 10),
        "{}",
        shared.elapsed_ns
    );
    assert!(
        shared.migrations > 0,
        "an idle CPU takes over a waiting task"
    );
}

/// One task stores to the pages that another has mapped; without the wait it would find no
/// space, and no mapping.
#[test]
fn a_step_begins_when_its_waits_hold() {
    let maker = task(&[
        (&[], 7 * MS, &[create(0)]),
        (&[], 7 * MS, &[map(0)]),
        (&[Wait { task: 1, ops: 2 }], 0, &[exit(0)]),
    ]);
    let waits = [Wait { task: 0, ops: 1 }, Wait { task: 0, ops: 2 }];
    let user = task(&[(&waits, 0, &[touch(0, 1), touch(0, 2)])]);
    for tasks in [vec![maker.clone(), user.clone()], vec![maker, user]] {
        let program = Program { tasks };
        for cpus in [1, 2] {
            let replayed = replayed(&program, cpus);
            check(&replayed, &program);
            assert!(
                replayed.divergences.is_empty(),
                "{:?}",
                replayed.divergences
            );
            let [maker, user] = replayed.ended_at_ns[..] else {
                panic!("two tasks")
            };
            assert!(14 * MS < user && user < maker, "{user} {maker}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_and_another_does_not() {
    let mut program = chain(5);
    program.tasks.extend((5..15).map(|space| alone(space, MS)));
    let machine = machine();
    let seeded = |seed: u64| {
        let request = Request {
            seed,
            ..request(&machine, &program, 4)
        };
        replay(&request).unwrap_or_else(|error| panic!("{error}"))
    };
    let (one, again, other) = (seeded(1), seeded(1), seeded(2));
    assert_eq!(one.ended_at_ns, again.ended_at_ns);
    assert_eq!(one.by_cpu, again.by_cpu);
    assert_eq!(one.cpus, again.cpus);
    assert_eq!(one.profile, again.profile);
    assert_ne!(one.cpus, other.cpus);
}

#[test]
fn threads_of_a_core_compute_slower_together_and_get_cores_of_their_own_first() {
    let machine = machine();
    let cores = machine.cores();
    let speed = machine.processor.shared_speed.as_ref();
    let share = speed.map_or(1.0, |speed| speed.share);
    let program = |count: usize| Program {
        tasks: (0..count).map(|_| task(&[(&[], 5 * MS, &[])])).collect(),
    };
    let elapsed = |count: usize| replayed(&program(count), 2 * cores).elapsed_ns;
    let (few, all) = (elapsed(cores), elapsed(2 * cores));
    // Until the other thread sleeps the core is shared.
    assert!(is_about(few, 5 * MS, 2), "{few}");
    let expected = (5.0 * MS as f64 / share) as u64;
    assert!(is_about(all, expected, 3), "{all}, expected {expected}");
}

#[test]
fn files_are_read_from_the_device_and_written() {
    let file = FileSlot(3);
    let ops = [
        Op::FileOpen { file, pages: 32 },
        Op::FileRead {
            file,
            page: 0,
            pages: 32,
        },
        Op::FileWrite {
            file,
            page: 8,
            pages: 4,
        },
        Op::Truncate { file, pages: 2 },
    ];
    let program = Program {
        tasks: vec![task(&[(&[], 0, &ops)])],
    };
    let replayed = replayed(&program, 2);
    check(&replayed, &program);
    assert!(
        replayed.divergences.is_empty(),
        "{:?}",
        replayed.divergences
    );
    // 32 pages are copied to the reader.
    assert!(replayed.system_ns > 5_000, "{}", replayed.system_ns);
}

#[test]
fn what_goes_otherwise_than_recorded_is_counted() {
    let ops = [
        create(0),
        map(0),
        touch(0, 1),
        touch(0, 1),
        touch(0, 99),
        exit(5),
    ];
    let program = Program {
        tasks: vec![task(&[(&[], 0, &ops)])],
    };
    let replayed = replayed(&program, 1);
    let expected = [
        Divergence::AlreadyMapped,
        Divergence::Failed(OpError::NoRegion),
        Divergence::Failed(OpError::BadSpace),
    ];
    assert_eq!(replayed.divergences, expected.map(|kind| (kind, 1)));
}

#[test]
fn tasks_that_wait_in_a_circle_are_an_error_that_names_them() {
    let other = |task: u32, ops: u32| [Wait { task, ops }];
    let program = Program {
        tasks: vec![
            task(&[(&other(1, 1), 0, &[create(0)])]),
            task(&[(&[], MS, &[]), (&other(2, 2), 0, &[create(1)])]),
            task(&[(&[], 0, &[create(2)]), (&other(1, 1), 0, &[exit(2)])]),
            alone(3, 2 * MS),
        ],
    };
    for cpus in [1, 2, 5] {
        let error = replay(&request(&machine(), &program, cpus)).expect_err("a circle");
        let ScaleError::Stopped(Stop::Circle(circle)) = &error else {
            panic!("{error}");
        };
        let tasks: Vec<u32> = circle.iter().map(|blocked| blocked.task).collect();
        assert_eq!(tasks, [1, 2]);
        let text = error.to_string();
        let expected = "task 1, before its operation 0, waits until task 2 has completed 2";
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn running_out_of_memory_is_an_error_that_says_where() {
    let pages = 1 << 13;
    let mut ops = vec![create(0), map_pages(0, pages)];
    ops.extend((0..pages).map(|page| touch(0, page)));
    let program = Program {
        tasks: vec![task(&[(&[], 0, &ops)]), alone(1, MS)],
    };
    let machine = machine();
    let small = Request {
        ram_bytes: Some(16 << 20),
        ..request(&machine, &program, 2)
    };
    let error = replay(&small).expect_err("32 MiB do not fit into 16");
    let text = error.to_string();
    assert!(
        text.contains("task 0, operation") && text.contains("no memory left"),
        "{text}"
    );
}

#[test]
fn a_program_without_tasks_takes_no_time() {
    let replayed = replayed(&Program::default(), 2);
    assert_eq!((replayed.elapsed_ns, replayed.ops), (0, 0));
}
