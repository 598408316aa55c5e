//! Per-CPU lists, alone and with two threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::sync::Pin;

#[test]
fn the_frame_freed_last_is_handed_out_first() {
    let memory = simple(1, 4096);
    let pin = memory.pin();
    let [a, _, b] = [(); 3].map(|()| memory.alloc(&pin, Request::page(SITE)).unwrap());
    memory.put(&pin, a);
    memory.put(&pin, b);
    assert_eq!(memory.alloc(&pin, Request::page(SITE)), Ok(b));
    assert_eq!(memory.alloc(&pin, Request::page(SITE)), Ok(a));
}

/// A memory with one CPU, and a pin of another one to a CPU that it does not have.
fn with_pin_of_another(work: impl FnOnce(&Memory, &Pin<'_>)) {
    let (memory, other) = (simple(1, 4096), simple(2, 4096));
    run_on(1);
    let pin = other.pin();
    run_on(0);
    work(&memory, &pin);
    drop(pin);
    assert_eq!(other.stats().used(), 0);
    assert_whole(&memory, 3);
}

#[test]
fn a_pin_of_another_memory_is_not_relied_on() {
    with_pin_of_another(|memory, foreign| {
        for order in [0, 1] {
            let request = Request::page(SITE).order(order);
            let held = [(); 3].map(|()| memory.alloc(foreign, request).unwrap());
            assert_eq!(memory.stats().used(), 3 << order);
            for pfn in held {
                memory.put_order(foreign, pfn, order);
            }
            assert_eq!(memory.stats().used(), 0);
        }
        assert!(memory.stats().cached > 0);
        memory.drain(foreign);
        assert_eq!(memory.stats().cached, 0);
        let pfn = memory.alloc(foreign, Request::page(SITE)).unwrap();
        memory.retire(foreign, pfn, false);
        assert_eq!(memory.stats().limbo, 1);
        memory.send_home(foreign);
        assert_eq!(memory.zero_idle(foreign, 4), 0);
    });
}

#[test]
fn frames_freed_in_a_row_are_handed_out_in_ascending_order() {
    let memory = simple(1, 4096);
    let pin = memory.pin();
    for descending in [false, true] {
        let mut row = [(); 8].map(|()| memory.alloc(&pin, Request::page(SITE)).unwrap());
        assert!(row.is_sorted_by(|a, b| a.offset(1) == *b), "{row:?}");
        let lowest = row[0];
        if descending {
            row.reverse();
        }
        for pfn in row {
            memory.put(&pin, pfn);
        }
        for index in 0..8 {
            let next = memory.alloc(&pin, Request::page(SITE));
            assert_eq!(next, Ok(lowest.offset(index)));
        }
        for index in 0..8 {
            memory.put(&pin, lowest.offset(index));
        }
        census(&memory);
    }
}

#[test]
fn a_list_of_runs_loses_and_repeats_no_frame() {
    let mut rng = Rng::new(11);
    let ring = Ring::boxed(64, 256);
    let (mut outside, mut inside): (Vec<u32>, Vec<u32>) = ((0..300).collect(), Vec::new());
    for _ in 0..20_000 {
        let taken = match rng.below(5) {
            0 => ring.pop_oldest(),
            1 | 2 => {
                let expected = ring.after(0);
                assert_eq!(expected.is_none(), inside.is_empty());
                let taken = ring.pop();
                assert_eq!(taken, expected);
                taken
            }
            _ => {
                if !outside.is_empty() && ring.len() < 256 {
                    // Often neighbours of what was added before.
                    let at = rng.below(outside.len().min(3));
                    let pfn = outside.remove(at);
                    ring.push(Pfn(pfn));
                    inside.push(pfn);
                }
                None
            }
        };
        if let Some(pfn) = taken {
            let at = inside.iter().position(|&one| one == pfn.0);
            inside.remove(at.expect("a frame that is in the list"));
            let place = outside.partition_point(|&one| one < pfn.0);
            outside.insert(place, pfn.0);
        }
        assert_eq!(ring.len() as usize, inside.len());
    }
    let mut left: Vec<u32> = ring.frames().map(|pfn| pfn.0).collect();
    left.sort_unstable();
    inside.sort_unstable();
    assert_eq!(left, inside);
}

#[test]
fn single_frames_move_in_batches() {
    let memory = simple(1, 1 << 15);
    let pin = memory.pin();
    let held: Vec<Pfn> = (0..10_000)
        .map(|_| memory.alloc(&pin, Request::page(SITE)).unwrap())
        .collect();
    for pfn in held {
        memory.put(&pin, pfn);
    }
    let stats = memory.stats();
    let batches = 10_000u64.div_ceil(256);
    assert_eq!(stats.refills, batches);
    assert!(stats.drains <= batches, "{} drains", stats.drains);
    assert!(stats.cached <= 4 * 256 && stats.cached > 0);
}

#[test]
fn single_frames_come_in_runs_while_half_of_the_memory_is_whole() {
    let memory = simple(1, 1 << 15);
    let pin = memory.pin();
    let one = || memory.alloc(&pin, Request::page(SITE)).unwrap();
    let whole = || memory.zone_stats(0, &pin).blocks[10];
    // Every other frame of the first quarter stays in use: holes of one frame.
    let quarter: Vec<Pfn> = (0..1 << 13).map(|_| one()).collect();
    let (kept, freed): (Vec<Pfn>, Vec<Pfn>) = quarter.iter().partition(|pfn| pfn.0 % 2 == 0);
    for &pfn in &freed {
        memory.put(&pin, pfn);
    }
    memory.drain(&pin);
    let before = whole();
    let row: Vec<Pfn> = (0..256).map(|_| one()).collect();
    assert!(row.is_sorted_by(|a, b| a.offset(1) == *b));
    assert!(whole() < before);
    // When half is left, the holes are used up before it is broken up.
    let mut rest: Vec<Pfn> = Vec::new();
    while memory.zone_stats(0, &pin).blocks[..10]
        .iter()
        .any(|&blocks| blocks > 0)
    {
        rest.push(one());
    }
    assert_eq!(whole(), 16);
    let is_free = |pfn: &&Pfn| memory.frame(**pfn).kind() == Kind::Free;
    assert_eq!(freed.iter().find(is_free), None);
    for pfn in rest.into_iter().chain(row).chain(kept) {
        memory.put(&pin, pfn);
    }
    assert_whole(&memory, 31);
}

#[test]
fn a_small_machine_does_not_hide_its_frames_in_lists() {
    let memory = simple(4, 256);
    for cpu in 0..4 {
        run_on(cpu);
        let held: Vec<Pfn> = (0..60)
            .map(|_| memory.alloc(&memory.pin(), Request::page(SITE)).unwrap())
            .collect();
        for pfn in held {
            release(&memory, pfn, 0);
        }
    }
    assert!(memory.stats().cached <= 256 / 8);
}

#[test]
fn a_shortage_makes_other_cpus_give_back() {
    let memory = simple(2, 1 << 14);
    let page = Request::page(SITE).urgent();
    run_on(1);
    let held: Vec<Pfn> = (0..300)
        .map(|_| memory.alloc(&memory.pin(), page).unwrap())
        .collect();
    for &pfn in &held[..200] {
        release(&memory, pfn, 0);
    }
    let hidden = memory.stats().cached;
    assert!(hidden > 100);
    run_on(0);
    let block = memory.alloc(&memory.pin(), page.order(1)).unwrap();
    let mut count = 2;
    while memory.alloc(&memory.pin(), page).is_ok() {
        count += 1;
    }
    assert_eq!(count, (1 << 14) - 100 - hidden);
    // The other CPU hears of it when it next asks for more than its lists have,
    // even if it finds that.
    release(&memory, block, 1);
    run_on(1);
    assert!(memory.alloc(&memory.pin(), page.order(1)).is_ok());
    assert_eq!(memory.stats().cached, 0);
    run_on(0);
    assert!(memory.alloc(&memory.pin(), page).is_ok());
}

#[test]
fn a_request_that_finds_no_block_has_the_cpus_own_lists_given_back() {
    let memory = simple(1, 1 << 14);
    let pin = memory.pin();
    let page = Request::page(SITE).urgent();
    // All of it, and no request that fails: a failure makes the next one give back.
    let mut held: Vec<Pfn> = (0..1 << 14)
        .map(|_| memory.alloc(&pin, page).unwrap())
        .collect();
    held.sort();
    for &pfn in &held[..64] {
        memory.put(&pin, pfn);
    }
    assert_eq!(memory.stats().cached, 64);
    assert!(memory.alloc(&pin, page.order(4)).is_ok());
}

#[test]
fn ordinary_blocks_leave_the_reserve_to_urgent_ones() {
    let memory = simple(1, 1 << 14);
    let pin = memory.pin();
    let block = Request::page(SITE).order(3);
    while memory.alloc(&pin, block).is_ok() {}
    assert!(memory.alloc(&pin, block.urgent()).is_ok());
    assert!(memory.alloc(&pin, block).is_err());
}

#[test]
fn two_threads_never_get_the_same_frame() {
    let memory = simple(2, 2048);
    let owners: Vec<AtomicU64> = (0..2048).map(|_| AtomicU64::new(0)).collect();
    let seed = Rng::new(3).next();
    let work = |cpu: u16| {
        run_on(cpu);
        let mut rng = Rng::new(seed ^ u64::from(cpu) << 32);
        let me = u64::from(cpu) + 1;
        let place = |pfn: Pfn| &owners[(pfn.0 - 0x100) as usize];
        let mut held: Vec<(Pfn, u32)> = Vec::new();
        for step in 0..30_000 {
            let pin = memory.pin();
            if rng.below(1600) > held.len() {
                let order = if rng.below(10) == 0 {
                    rng.below(4) as u32
                } else {
                    0
                };
                let Ok(pfn) = memory.alloc(&pin, Request::page(SITE).order(order)) else {
                    continue;
                };
                for frame in 0..1 << order {
                    let before = place(pfn.offset(frame)).swap(me, Ordering::Relaxed);
                    assert_eq!(before, 0, "step {step}: {pfn:?} is in use");
                }
                held.push((pfn, order));
            } else if let Some((pfn, order)) = held.pop() {
                for frame in 0..1 << order {
                    assert_eq!(place(pfn.offset(frame)).swap(0, Ordering::Relaxed), me);
                }
                if order == 0 && rng.below(4) == 0 {
                    memory.retire(&pin, pfn, false);
                } else {
                    memory.put_order(&pin, pfn, order);
                }
            }
        }
        for (pfn, order) in held {
            for frame in 0..1 << order {
                assert_eq!(place(pfn.offset(frame)).swap(0, Ordering::Relaxed), me);
            }
            release(&memory, pfn, order);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| work(0));
        scope.spawn(|| work(1));
    });
    assert_whole(&memory, 1);
    let stats = memory.stats();
    assert_eq!(stats.allocs, stats.frees);
}

/// Frames of a block that one leaf above the lowest level maps.
const LEAF_ORDER: u32 = 9;

fn leaf_block(memory: &Memory, pin: &Pin<'_>) -> Pfn {
    let request = Request::page(SITE).order(LEAF_ORDER);
    memory.alloc(pin, request).expect("a block is free")
}

fn whole_blocks(memory: &Memory) -> u32 {
    memory.zone_stats(0, &memory.pin()).blocks[MAX_ORDER as usize]
}

#[test]
fn a_cpu_keeps_the_blocks_it_freed_last_and_gives_them_back_when_drained() {
    let memory = simple(1, 1 << 18);
    let free = memory.stats().free;
    let whole = whole_blocks(&memory);
    let pin = memory.pin();
    let blocks = [(); 4].map(|()| leaf_block(&memory, &pin));
    for block in blocks {
        memory.put_order(&pin, block, LEAF_ORDER);
    }
    let stats = memory.stats();
    assert_eq!(stats.cached, 2 << LEAF_ORDER);
    assert_eq!(stats.free + stats.cached, free);
    drop(pin);
    let kept = census(&memory);
    assert_eq!(kept.of(Kind::Cached), 2 << LEAF_ORDER);
    let pin = memory.pin();
    assert_eq!(leaf_block(&memory, &pin), blocks[1]);
    assert_eq!(leaf_block(&memory, &pin), blocks[0]);
    for block in &blocks[..2] {
        memory.put_order(&pin, *block, LEAF_ORDER);
    }
    drop(pin);
    assert_whole(&memory, whole);
    assert_eq!(memory.stats().cached, 0);
}

#[test]
fn a_kept_block_comes_back_with_a_clean_record_and_can_be_split() {
    let memory = simple(1, 1 << 18);
    let whole = whole_blocks(&memory);
    let pin = memory.pin();
    let block = leaf_block(&memory, &pin);
    memory.put_order(&pin, block, LEAF_ORDER);
    assert_eq!(leaf_block(&memory, &pin), block);
    let frame = memory.frame(block);
    assert_eq!((frame.kind(), frame.order()), (Kind::Allocated, LEAF_ORDER));
    assert!(!frame.page().has(PageFlags::UPTODATE));
    assert_eq!(frame.counts().refs(), 1);
    memory.split(block, LEAF_ORDER);
    for index in 0..1 << LEAF_ORDER {
        memory.put(&pin, block.offset(index));
    }
    drop(pin);
    assert_whole(&memory, whole);
}

#[test]
fn a_machine_with_little_memory_for_each_cpu_keeps_no_blocks() {
    let memory = simple(1, 1 << 15);
    let pin = memory.pin();
    let block = leaf_block(&memory, &pin);
    memory.put_order(&pin, block, LEAF_ORDER);
    assert_eq!(memory.stats().cached, 0);
}

#[test]
fn the_audit_sees_a_kept_block_whose_frames_are_in_use() {
    let memory = simple(1, 1 << 18);
    let pin = memory.pin();
    let block = leaf_block(&memory, &pin);
    memory.put_order(&pin, block, LEAF_ORDER);
    memory.frame(block.offset(3)).set_kind(Kind::Allocated);
    drop(pin);
    assert!(memory.audit_frames().is_err());
}
