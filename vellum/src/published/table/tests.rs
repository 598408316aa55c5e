//! Tests of the sources by themselves, on a small machine.

use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use crate::addr::Pfn;
use crate::design::{Design, variants};
use crate::frame::{FailAt, Kind, PhysicalMemory, Request, Site};
use crate::platform::{CpuSet, Zone};
use crate::table::{FlushTarget, Gather, TablePages, Wanted, source_of};
use crate::testing::{TestMachine, range, run_on};

type Memory = PhysicalMemory<TestMachine>;
type Source = Arc<dyn TablePages<TestMachine>>;

fn build(design: &str, machine: TestMachine) -> (Memory, Source) {
    run_on(0);
    let mut memory = PhysicalMemory::new(machine).unwrap();
    let source = source_of(&Design::parse(design).unwrap(), &mut memory);
    (memory, source)
}

/// The designs whose source keeps tables of the lowest level that are given back.
fn keeping() -> Vec<String> {
    let keeps = |design: &String| {
        let (memory, source) = build(design, TestMachine::simple(1, 2048));
        let table = take(&memory, &source, 1);
        retire(&memory, &source, &[table]);
        settle(&memory, &source);
        source.stats(&memory).held > 0
    };
    let designs: Vec<String> = variants("ptepage").into_iter().filter(keeps).collect();
    assert!(designs.len() > 3, "{designs:?}");
    designs
}

fn wanted(level: u32) -> Wanted {
    Wanted {
        site: Site::TablePage,
        level,
        zone: Zone::Low,
        entry: 3,
    }
}

fn take(memory: &Memory, source: &Source, level: u32) -> Pfn {
    let pin = memory.pin();
    let table = source.take(memory, &pin, wanted(level)).unwrap();
    assert_eq!(memory.platform().peek(table), [0; 4096]);
    memory
        .frame(table)
        .init_table(1, level, crate::addr::Vpn(0), 0);
    table
}

fn retire(memory: &Memory, source: &Source, tables: &[Pfn]) {
    let nobody = FlushTarget {
        tag: crate::platform::SpaceTag(1),
        cpus: CpuSet::EMPTY,
    };
    let pin = memory.pin();
    // SAFETY: the tables are the test's own, and were never linked.
    let mut gather = unsafe { Gather::new(memory, &**source, &pin, nobody) };
    for &table in tables {
        gather.table(table);
    }
}

/// Lets every epoch pass that can.
fn settle(memory: &Memory, source: &Source) {
    for _ in 0..3 {
        source.trim(memory, &memory.pin());
    }
}

fn check(memory: &Memory, source: &Source, in_use: u64) {
    let census = memory.audit_frames().unwrap();
    let kept = source.audit(memory).unwrap();
    assert_eq!(census.of(Kind::Table), in_use + kept);
    let stats = source.stats(memory);
    assert_eq!(stats.held + stats.waiting, kept);
}

#[test]
fn a_retired_table_waits_for_a_pinned_reader_and_then_serves_again() {
    for design in keeping() {
        let (memory, source) = build(&design, TestMachine::simple(2, 2048));
        let tables: Vec<Pfn> = (0..8).map(|_| take(&memory, &source, 1)).collect();
        run_on(1);
        let reader = memory.pin();
        run_on(0);
        retire(&memory, &source, &tables);
        settle(&memory, &source);
        for &table in &tables {
            let bytes = memory.platform().peek(table);
            assert_eq!(bytes, [0; 4096], "{design}: linked under a reader");
        }
        let others: Vec<Pfn> = (0..8).map(|_| take(&memory, &source, 1)).collect();
        assert!(
            others.iter().all(|other| !tables.contains(other)),
            "{design}"
        );
        assert_eq!(source.stats(&memory).waiting, 8);
        check(&memory, &source, 8);
        drop(reader);
        settle(&memory, &source);
        assert_eq!(source.stats(&memory).held, 8, "{design}");
        let before = source.stats(&memory);
        let mut again: Vec<Pfn> = (0..8).map(|_| take(&memory, &source, 1)).collect();
        let after = source.stats(&memory);
        assert_eq!(after.hits - before.hits, 8, "{design}");
        assert_eq!(after.bytes_zeroed, before.bytes_zeroed);
        again.sort_unstable();
        let mut sorted = tables.clone();
        sorted.sort_unstable();
        assert_eq!(again, sorted, "{design}");
        check(&memory, &source, 16);
    }
}

#[test]
fn lists_by_level_serve_their_level_only() {
    for (design, hits) in [("quicklevels=separate", 0), ("quicklevels=unified", 1)] {
        let design = std::format!("ptepage=quicklist,{design}");
        let (memory, source) = build(&design, TestMachine::simple(1, 2048));
        let table = take(&memory, &source, 2);
        retire(&memory, &source, &[table]);
        settle(&memory, &source);
        let other = take(&memory, &source, 1);
        assert_eq!(source.stats(&memory).hits, hits, "{design}");
        assert_eq!(other == table, hits == 1, "{design}");
        assert_eq!(take(&memory, &source, 2) == table, hits == 0, "{design}");
    }
}

#[test]
fn watermarks_bound_what_is_kept() {
    // 2048 frames: a sixteenth of what is free is below 128; the old mark is
    // 10 % of it; a depot has a sixteenth of its own beside the stack's.
    for (design, most) in [
        ("ptepage=quicklist", 128),
        ("ptepage=quicklist,quickmark=total", 205),
        ("ptepage=warm", 128),
        ("ptepage=depot", 4 * 16 + 128),
    ] {
        let (memory, source) = build(design, TestMachine::simple(1, 2048));
        let tables: Vec<Pfn> = (0..400).map(|_| take(&memory, &source, 1)).collect();
        retire(&memory, &source, &tables);
        settle(&memory, &source);
        let stats = source.stats(&memory);
        assert!(stats.held_peak <= most, "{design}: {stats:?}");
        assert!(stats.held >= 25 && stats.trimmed > 0, "{design}: {stats:?}");
        assert_eq!(stats.held + stats.trimmed, 400, "{design}: {stats:?}");
        check(&memory, &source, 0);
    }
}

#[test]
fn statistics_do_not_wrap_while_a_cpu_is_at_work() {
    let (memory, source) = build("ptepage=fresh", TestMachine::simple(1, 256));
    memory.table_counters(&memory.pin()).misses.bump();
    assert_eq!(source.stats(&memory).hits, 0);
}

#[test]
fn the_old_mark_is_a_tenth_of_what_was_free_to_the_table() {
    let design = "ptepage=quicklist,quickmark=total";
    let (memory, source) = build(design, TestMachine::simple(1, 2048));
    let most = memory.stats().free / 10;
    let tables: Vec<Pfn> = (0..400).map(|_| take(&memory, &source, 1)).collect();
    retire(&memory, &source, &tables);
    settle(&memory, &source);
    assert_eq!(source.stats(&memory).held_peak, most);
}

#[test]
fn a_trim_frees_sixteen_tables_when_free_memory_has_shrunk() {
    for design in ["ptepage=quicklist", "ptepage=warm"] {
        let (memory, source) = build(design, TestMachine::simple(1, 2048));
        let tables: Vec<Pfn> = (0..100).map(|_| take(&memory, &source, 1)).collect();
        retire(&memory, &source, &tables);
        settle(&memory, &source);
        let held = source.stats(&memory).held;
        assert!(held > 60, "{design}: {held}");
        // Blocks, so that no list of the CPU's is in the way; not so many that
        // memory is short, which would free all that is kept.
        let pin = memory.pin();
        let block = Request::page(Site::AnonymousPage).order(5);
        while memory.home_free(&pin) > 400 {
            memory.alloc(&pin, block).unwrap();
        }
        assert_eq!(source.trim(&memory, &pin), 16, "{design}");
        while source.trim(&memory, &pin) > 0 {}
        let left = source.stats(&memory).held;
        // What the last trim freed may have reached the zone since.
        let bound = (memory.home_free(&pin) / 16).max(25);
        assert!(
            (bound - 1..=bound).contains(&left),
            "{design}: {left} of {bound}"
        );
    }
}

#[test]
fn tables_of_another_node_are_kept_only_by_blind_lists() {
    for design in keeping() {
        let map = [
            range(0x100, 1024, 0, Zone::Low),
            range(0x1000, 1024, 1, Zone::Low),
        ];
        let (memory, source) = build(&design, TestMachine::new(&[0, 1], &map));
        let tables: Vec<Pfn> = (0..20).map(|_| take(&memory, &source, 1)).collect();
        run_on(1);
        retire(&memory, &source, &tables);
        settle(&memory, &source);
        let stats = source.stats(&memory);
        let blind = design.contains("blind");
        assert_eq!(stats.trapped, if blind { 20 } else { 0 }, "{design}");
        assert_eq!(stats.remote_frees, if blind { 0 } else { 20 }, "{design}");
        memory.send_home(&memory.pin());
        check(&memory, &source, 0);
        run_on(0);
    }
}

#[test]
fn a_table_of_another_node_takes_no_place_from_those_kept() {
    let map = [
        range(0x100, 1024, 0, Zone::Low),
        range(0x1000, 1024, 1, Zone::Low),
    ];
    let (memory, source) = build("ptepage=warm", TestMachine::new(&[0, 1], &map));
    let foreign = take(&memory, &source, 1);
    run_on(1);
    let mut tables: Vec<Pfn> = (0..100).map(|_| take(&memory, &source, 1)).collect();
    let pin = memory.pin();
    let held = || source.stats(&memory).held;
    while held() < (memory.home_free(&pin) / 16).max(25) {
        // SAFETY: taken above, and never linked.
        unsafe { source.give_back(&memory, &pin, tables.pop().unwrap(), 1) };
    }
    let full = held();
    // SAFETY: the same.
    unsafe { source.give_back(&memory, &pin, foreign, 1) };
    assert_eq!(held(), full);
    drop(pin);
    memory.send_home(&memory.pin());
    check(&memory, &source, tables.len() as u64);
    run_on(0);
}

#[test]
fn a_planned_failure_reaches_the_lists_too() {
    for design in keeping() {
        let (memory, source) = build(&design, TestMachine::simple(1, 2048));
        let tables = [take(&memory, &source, 1), take(&memory, &source, 1)];
        retire(&memory, &source, &tables);
        settle(&memory, &source);
        let site = Site::TablePage;
        memory.inject(Some(FailAt { site, after: 1 }));
        let pin = memory.pin();
        let taken = source.take(&memory, &pin, wanted(1)).unwrap();
        assert!(source.take(&memory, &pin, wanted(1)).is_err(), "{design}");
        assert_eq!(memory.reached(site), 2, "{design}");
        memory.inject(None);
        // SAFETY: taken above, and never linked.
        unsafe { source.give_back(&memory, &pin, taken, 1) };
        drop(pin);
        assert_eq!(source.stats(&memory).held, 2);
        check(&memory, &source, 0);
    }
}

#[test]
fn a_depot_hands_tables_from_cpu_to_cpu() {
    let (memory, source) = build("ptepage=depot", TestMachine::simple(2, 4096));
    for _ in 0..40 {
        run_on(0);
        let tables: Vec<Pfn> = (0..32).map(|_| take(&memory, &source, 1)).collect();
        run_on(1);
        retire(&memory, &source, &tables);
        settle(&memory, &source);
        check(&memory, &source, 0);
    }
    let stats = source.stats(&memory);
    assert!(stats.hits * 10 > stats.taken * 8, "{stats:?}");
    for cpu in [0, 1] {
        run_on(cpu);
        source.give_up(&memory, &memory.pin());
    }
    run_on(0);
    assert_eq!(source.stats(&memory).held, 0);
    check(&memory, &source, 0);
}
