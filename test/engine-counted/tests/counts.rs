//! Counting engines do what the plain ones do, and count what that needs.

use std::sync::Arc;
use std::thread;

use vellum_engine::{
    Access, Arena, Backing, Config, Engine, FileSlot, Op, Outcome, Prot, Sharing, SpaceSlot, build,
};
use vellum_engine_counted::build_counting;

const DESIGNS: [&str; 3] = ["rmap=chains", "rmap=chains,direct=off", "rmap=partial"];

const ATOMICS: [&str; 4] = [
    "atomic loads",
    "atomic stores",
    "atomic read-modify-writes",
    "full fences",
];

fn config(design: &str) -> Config {
    Config::new(design, 2, 64 << 20)
}

fn counting(design: &str) -> Box<dyn Engine> {
    build_counting(&config(design)).expect("built")
}

fn map(space: SpaceSlot, page: u64, backing: Backing) -> Op {
    Op::Map {
        space,
        page,
        pages: 64,
        prot: Prot {
            read: true,
            write: true,
            execute: false,
        },
        sharing: Sharing::Private,
        backing,
        grows_down: false,
    }
}

fn touch(space: SpaceSlot, page: u64, access: Access) -> Op {
    Op::Touch {
        space,
        page,
        access,
    }
}

/// A process writes anonymous pages, reads a file, and forks a child that
/// writes half of what it inherits. Both exit. `cpu` keeps the slots of
/// several such families apart.
fn family(cpu: u32) -> Vec<Op> {
    let (parent, child) = (SpaceSlot(2 * cpu), SpaceSlot(2 * cpu + 1));
    let file = FileSlot(cpu);
    let mut ops = vec![
        Op::Create { space: parent },
        Op::FileOpen { file, pages: 64 },
        map(parent, 100, Backing::Anonymous),
        map(parent, 200, Backing::File { file, page: 0 }),
    ];
    ops.extend((100..164).map(|page| touch(parent, page, Access::Write)));
    ops.extend(
        (200..264)
            .step_by(16)
            .map(|page| touch(parent, page, Access::Read)),
    );
    ops.push(Op::Fork { parent, child });
    ops.extend((100..132).map(|page| touch(child, page, Access::Write)));
    ops.extend([Op::Exit { space: child }, Op::Exit { space: parent }]);
    ops
}

fn run(engine: &dyn Engine, cpu: usize, ops: &[Op]) {
    let mut outcome = Outcome::default();
    engine.run(cpu, ops, &mut outcome);
    assert_eq!(outcome.divergences, [], "{}", engine.design());
}

/// The counts of atomic operations, in the order of [`ATOMICS`].
fn atomics(engine: &dyn Engine) -> [u64; 4] {
    let counters = engine.counters();
    ATOMICS.map(|name| {
        let found = counters.iter().find(|counter| counter.0 == name);
        found.unwrap_or_else(|| panic!("{name} is counted")).1
    })
}

#[test]
fn events_are_those_of_the_plain_engine_followed_by_the_atomic_operations() {
    for design in DESIGNS {
        let arena = Arena::new(64 << 20).expect("memory");
        let plain = build(&config(design), arena).expect("built");
        let counted = counting(design);
        for engine in [&plain, &counted] {
            run(&**engine, 0, &family(0));
        }
        assert_eq!(counted.design(), plain.design());
        let (plain, counted) = (plain.counters(), counted.counters());
        let (events, atomics) = counted.split_at(plain.len());
        assert_eq!(events, plain, "{design}");
        assert!(atomics.iter().map(|counter| counter.0).eq(ATOMICS));
        assert!(atomics.iter().all(|counter| counter.1 > 0), "{atomics:?}");
    }
}

#[test]
fn cutting_a_workload_and_asking_for_statistics_changes_no_count() {
    for design in DESIGNS {
        let (whole, cut) = (counting(design), counting(design));
        assert_eq!(atomics(&*cut), [0; 4], "building an engine counts nothing");
        let ops = family(0);
        run(&*whole, 0, &ops);
        for op in &ops {
            run(&*cut, 0, std::slice::from_ref(op));
            cut.memory();
            cut.mapping_histogram();
        }
        cut.audit().expect("consistent");
        assert_eq!(atomics(&*cut), atomics(&*whole), "{design}");
        cut.clear(0);
        assert_eq!(atomics(&*cut), atomics(&*whole), "{design}");
    }
}

#[test]
fn an_engine_counts_its_own_operations_on_whatever_threads_they_run() {
    for design in DESIGNS {
        let (one, other): (Arc<dyn Engine>, _) = (counting(design).into(), counting(design));
        run(&*one, 0, &family(0));
        let alone = atomics(&*one);
        run(&*other, 0, &family(0));
        assert_eq!(atomics(&*one), alone, "{design}: another engine's count");
        let threads = [0, 1].map(|cpu: u32| {
            let engine = Arc::clone(&one);
            thread::spawn(move || run(&*engine, cpu as usize, &family(cpu + 1)))
        });
        for thread in threads {
            thread.join().expect("no panic");
        }
        // The first family also filled the engine's caches; two more need more
        // than it did all the same.
        for (now, alone) in atomics(&*one).into_iter().zip(alone) {
            assert!(now > 2 * alone, "{design}: {now} after {alone}");
        }
    }
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    let refused = build_counting(&config("rmap=telepathy")).err();
    let text = refused.expect("an error").to_string();
    assert!(text.contains("chains"), "{text}");
    let vast = Config {
        ram_bytes: u64::MAX,
        ..config("rmap=chains")
    };
    let refused = build_counting(&vast).err();
    let text = refused.expect("an error").to_string();
    assert!(text.contains("no memory for a machine of"), "{text}");
}
