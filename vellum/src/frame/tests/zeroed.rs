//! Zero frames kept apart, and what becomes of freed page tables.

use super::*;
use crate::addr::Vpn;
use crate::sync::limbo::Chain;

fn kept_apart(cpus: usize, frames: u32) -> Memory {
    let mut memory = simple(cpus, frames);
    memory.set_freed_tables(FreedTables::KeptApart);
    memory
}

/// Frees a table as its space would, and waits for its epoch.
fn retire_table(memory: &Memory, table: Pfn) {
    memory.frame(table).init_table(1, 1, Vpn(0), 0);
    memory.retire_tables(&memory.pin(), Chain::of(memory, table.0));
    for _ in 0..2 {
        assert!(memory.epochs().try_advance());
    }
    // Let the list that the table waits in be looked at.
    let other = memory.alloc(&memory.pin(), Request::page(SITE)).unwrap();
    memory.retire(&memory.pin(), other, false);
}

const ZEROED: Request = Request::page(SITE).zeroed();

#[test]
fn a_freed_table_serves_the_next_zeroed_request_and_no_other() {
    for (freed, saves) in [
        (FreedTables::Plain, false),
        (FreedTables::Noted, true),
        (FreedTables::KeptApart, true),
    ] {
        let mut memory = simple(1, 1024);
        memory.set_freed_tables(freed);
        let table = memory.alloc(&memory.pin(), ZEROED).unwrap();
        retire_table(&memory, table);
        if freed == FreedTables::KeptApart {
            // A request without zeroes gets no such frame while others are free.
            let plain: Vec<Pfn> = (0..500)
                .map(|_| memory.alloc(&memory.pin(), Request::page(SITE)).unwrap())
                .collect();
            assert!(!plain.contains(&table));
            for pfn in plain {
                release(&memory, pfn, 0);
            }
            assert_eq!(memory.stats().zeroed, 1);
        }
        let before = memory.stats().bytes_zeroed;
        assert_eq!(memory.alloc(&memory.pin(), ZEROED), Ok(table), "{freed:?}");
        let zeroed = memory.stats().bytes_zeroed - before;
        assert_eq!(zeroed == 0, saves, "{freed:?}");
        assert_eq!(memory.platform().peek(table), [0; 4096]);
        census(&memory);
    }
}

#[test]
fn freed_tables_fill_no_list_beyond_its_share() {
    let mut memory = simple(4, 256);
    memory.set_freed_tables(FreedTables::Noted);
    let tables: Vec<Pfn> = (0..60)
        .map(|_| memory.alloc(&memory.pin(), ZEROED).unwrap())
        .collect();
    for table in tables {
        retire_table(&memory, table);
    }
    assert!(memory.stats().cached <= 256 / 8);
    census(&memory);
}

#[test]
fn many_tables_freed_at_once_fill_no_list_beyond_its_share() {
    let mut memory = simple(4, 256);
    memory.set_freed_tables(FreedTables::Noted);
    let mut tables = Chain::EMPTY;
    for _ in 0..30 {
        let table = memory.alloc(&memory.pin(), ZEROED).unwrap();
        memory.frame(table).init_table(1, 1, Vpn(0), 0);
        tables.append(&memory, table.0);
    }
    memory.retire_tables(&memory.pin(), tables);
    for _ in 0..2 {
        assert!(memory.epochs().try_advance());
    }
    memory.release_passed(&memory.pin());
    let stats = memory.stats();
    // An eighth of what there is for one of the CPUs.
    assert!(stats.limbo == 0 && stats.cached <= 256 / 4 / 8, "{stats:?}");
    census(&memory);
}

#[test]
fn zero_frames_are_free_memory_to_everybody() {
    let memory = kept_apart(1, 1024);
    let all: Vec<Pfn> =
        core::iter::from_fn(|| memory.alloc(&memory.pin(), ZEROED.urgent()).ok()).collect();
    for &pfn in &all {
        memory.frame(pfn).init_counts(0, 0);
        memory.free_zeroed(&memory.pin(), pfn);
    }
    let stats = memory.stats();
    assert_eq!(stats.zeroed, all.len() as u64);
    assert_eq!(stats.free + stats.cached, stats.total);
    census(&memory);
    // Blocks of every order, too: zero frames merge with their like.
    let block = memory.alloc(&memory.pin(), Request::page(SITE).order(8));
    let block = block.expect("a block of zero frames");
    assert_eq!(memory.stats().used(), 256);
    release(&memory, block, 8);
    assert_whole(&memory, 0);
}

#[test]
fn zero_frames_of_the_reserve_are_left_to_urgent_requests() {
    let memory = kept_apart(1, 4096);
    let pin = memory.pin();
    let all: Vec<Pfn> = core::iter::from_fn(|| memory.alloc(&pin, ZEROED.urgent()).ok()).collect();
    for &pfn in &all {
        memory.frame(pfn).init_counts(0, 0);
        memory.free_zeroed(&pin, pfn);
    }
    while memory.alloc(&pin, ZEROED).is_ok() {}
    assert!(memory.alloc(&pin, ZEROED.urgent()).is_ok());
}

#[test]
fn a_large_request_is_worth_more_than_zero_frames() {
    let memory = kept_apart(1, 2048);
    let mut all: Vec<Pfn> = core::iter::from_fn(|| {
        memory
            .alloc(&memory.pin(), Request::page(SITE).urgent())
            .ok()
    })
    .collect();
    all.sort_unstable();
    // Every other frame zero: no buddies may merge while that is remembered.
    for (nth, &pfn) in all.iter().enumerate() {
        memory.frame(pfn).init_counts(0, 0);
        if nth % 2 == 0 {
            memory.zero(&memory.pin(), pfn);
            memory.free_zeroed(&memory.pin(), pfn);
        } else {
            memory.free(&memory.pin(), pfn, 0);
        }
    }
    memory.drain(&memory.pin());
    let pin = memory.pin();
    assert_eq!(memory.zone_stats(0, &pin).blocks[0], 2048);
    drop(pin);
    census(&memory);
    let block = memory.alloc(&memory.pin(), Request::page(SITE).order(10));
    release(&memory, block.expect("the frames merge when they must"), 10);
    census(&memory);
}

#[test]
fn idle_time_zeroes_half_of_what_is_free() {
    let memory = kept_apart(1, 2048);
    let pin = memory.pin();
    assert_eq!(memory.zero_idle(&pin, 10), 10);
    assert_eq!(memory.stats().idle_bytes_zeroed, 10 * 4096);
    let mut rounds = 0;
    while memory.zero_idle(&pin, 64) > 0 {
        rounds += 1;
        assert!(rounds < 100, "it never ends");
    }
    let stats = memory.stats();
    assert!((1000..=1040).contains(&stats.zeroed), "{stats:?}");
    drop(pin);
    census(&memory);
    for _ in 0..1000 {
        let pfn = memory.alloc(&memory.pin(), ZEROED).unwrap();
        assert_eq!(memory.platform().peek(pfn), [0; 4096]);
    }
    let stats = memory.stats();
    assert_eq!((stats.zero_hits, stats.bytes_zeroed), (1000, 0));
    census(&memory);
    let plain = simple(1, 1024);
    assert_eq!(plain.zero_idle(&plain.pin(), 64), 0, "nobody would use it");
}

#[test]
fn random_sequences_with_zero_frames_lose_nothing() {
    let mut rng = Rng::new(9);
    run_on(0);
    let map = [
        range(0x100, 1500, 0, Zone::Low),
        range(0x900, 700, 0, Zone::High),
        range(0x1000, 1800, 1, Zone::Low),
    ];
    let mut memory = PhysicalMemory::new(TestMachine::new(&[0, 0, 1], &map)).unwrap();
    memory.set_freed_tables(FreedTables::KeptApart);
    let mut held: Vec<(Pfn, u32)> = Vec::new();
    for step in 0..15_000 {
        run_on(rng.below(3) as u16);
        let target = if step / 2500 % 2 == 0 { 300 } else { 3600 };
        if held.len() < rng.below(2 * target) {
            let order = [0, 0, 0, rng.below(9) as u32][rng.below(4)];
            let mut request = Request::page(SITE).order(order);
            if rng.below(2) == 0 {
                request = request.zeroed();
            }
            if rng.below(2) == 0 {
                request = request.low();
            }
            if let Ok(pfn) = memory.alloc(&memory.pin(), request) {
                for frame in 0..1 << order {
                    let bytes = memory.platform().peek(pfn.offset(frame));
                    assert!(!request.zeroed || bytes.iter().all(|&byte| byte == 0));
                    memory.platform().scribble(pfn.offset(frame), 0xee);
                }
                held.push((pfn, order));
            }
        } else if !held.is_empty() {
            let (pfn, order) = held.swap_remove(rng.below(held.len()));
            if order == 0 && rng.below(2) == 0 {
                memory.zero(&memory.pin(), pfn);
                memory.frame(pfn).init_table(1, 1, Vpn(0), 0);
                memory.retire_tables(&memory.pin(), Chain::of(&memory, pfn.0));
            } else {
                memory.put_order(&memory.pin(), pfn, order);
            }
        }
        if rng.below(50) == 0 {
            memory.zero_idle(&memory.pin(), rng.below(40) as u32);
        }
        if step % 500 == 0 {
            let census = census(&memory);
            let in_use: u64 = held.iter().map(|&(_, order)| 1 << order).sum();
            assert_eq!(census.of(Kind::Allocated), in_use, "step {step}");
            assert_eq!(census.total(), 4000);
        }
    }
    assert!(memory.stats().zero_hits > 1000, "{:?}", memory.stats());
    for (pfn, order) in held {
        release(&memory, pfn, order);
    }
    for cpu in 0..3 {
        run_on(cpu);
        for _ in 0..3 {
            memory.drain(&memory.pin());
        }
    }
    run_on(0);
    let census = census(&memory);
    assert_eq!(census.of(Kind::Free), census.total(), "{census:?}");
}
