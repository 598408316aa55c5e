//! What entries of `rmap=pv` take in locked instructions, beside a design that has no entries:
//! the price of finding a page's mappings in a list of its own.

use vellum_engine::{
    Access, Advice, Backing, Config, Engine, Op, Outcome, Prot, Sharing, SpaceSlot,
};
use vellum_engine_counted::build_counting;

const SPACE: SpaceSlot = SpaceSlot(0);
const FIRST: u64 = 0x1000;
const PAGES: u64 = 128;

fn read_modify_writes(engine: &dyn Engine) -> u64 {
    let counters = engine.counters();
    let found = counters
        .iter()
        .find(|counter| counter.0 == "atomic read-modify-writes");
    found.expect("they are counted").1
}

/// Locked instructions that `ops` take.
fn taken(engine: &dyn Engine, ops: &[Op]) -> u64 {
    let before = read_modify_writes(engine);
    let mut outcome = Outcome::default();
    engine.run(0, ops, &mut outcome);
    assert_eq!(outcome.divergences, [], "{}", engine.design());
    read_modify_writes(engine) - before
}

/// Locked instructions of storing to pages that have a table, and of giving them back.
fn hot(design: &str) -> [u64; 2] {
    let engine = build_counting(&Config::new(design, 1, 64 << 20));
    let engine = engine.expect("built");
    let map = |page, pages| Op::Map {
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
    };
    let touch = |page| Op::Touch {
        space: SPACE,
        page,
        access: Access::Write,
    };
    let dropped = |page, pages| Op::Advise {
        space: SPACE,
        page,
        pages,
        advice: Advice::DontNeed,
    };
    // A page in the same table stays, so that neither it nor a chunk goes, and the CPU's lists of
    // frames have what is needed.
    let kept = FIRST + PAGES;
    let begin = [
        Op::Create { space: SPACE },
        map(FIRST, PAGES + 1),
        touch(kept),
    ];
    taken(&*engine, &begin);
    let stores: Vec<Op> = (FIRST..kept).map(touch).collect();
    let mut figures = [0; 2];
    for _ in 0..3 {
        figures = [
            taken(&*engine, &stores),
            taken(&*engine, &[dropped(FIRST, PAGES)]),
        ];
    }
    engine.audit().expect("consistent");
    figures
}

#[test]
fn an_entry_takes_two_locked_instructions_to_add_and_less_than_two_to_remove() {
    let [stores, drops] = hot("rmap=family");
    for lock in ["hashed", "superpage", "byte"] {
        for lru in ["domain", "pmap"] {
            let design = format!("rmap=pv,pvlock={lock},pvlru={lru}");
            let [with_stores, with_drops] = hot(&design);
            let each = |with: u64, without: u64| with.saturating_sub(without) as f64 / PAGES as f64;
            let (add, remove) = (each(with_stores, stores), each(with_drops, drops));
            println!("{design}: {add:.2} to add, {remove:.2} to remove");
            assert!(add <= 2.0 && remove <= 2.0, "{design}: {add}, {remove}");
            // The lock of the page's list at least.
            assert!(add >= 1.0, "{design}: {add}");
        }
    }
}
