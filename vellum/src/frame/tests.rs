//! Tests of physical memory on a small machine.

use std::vec::Vec;

use super::*;
use crate::addr::Pfn;
use crate::platform::{Machine, MemoryRange, NodeId, Zone};
use crate::sync::Turn;
use crate::testing::{Rng, TestMachine, range, run_on};

mod cpus;
mod limbo;
#[cfg(feature = "published")]
mod linked;
mod owned;
mod reserved;
mod runs;
mod zeroed;
mod zoned;

const SITE: Site = Site::AnonymousPage;

type Memory = PhysicalMemory<TestMachine>;

fn simple(cpus: usize, frames: u32) -> Memory {
    run_on(0);
    PhysicalMemory::new(TestMachine::simple(cpus, frames)).unwrap()
}

/// Drops the one reference of a block and frees it.
fn release(memory: &Memory, pfn: Pfn, order: u32) {
    memory.put_order(&memory.pin(), pfn, order);
}

fn census(memory: &Memory) -> FrameCensus {
    memory
        .audit_frames()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Everything back in the buddy lists, as blocks as large as can be.
fn assert_whole(memory: &Memory, blocks_of_max_order: u32) {
    for cpu in 0..memory.platform().cpus() {
        run_on(cpu as u16);
        for _ in 0..3 {
            memory.drain(&memory.pin());
        }
    }
    run_on(0);
    let census = census(memory);
    assert_eq!(census.of(Kind::Free), census.total(), "{census:?}");
    let pin = memory.pin();
    let zones = 0..memory.zone_count();
    let largest: u32 = zones
        .map(|zone| memory.zone_stats(zone, &pin).blocks[10])
        .sum();
    assert_eq!(largest, blocks_of_max_order);
}

#[test]
fn a_frame_comes_back_with_a_clean_record() {
    let memory = simple(1, 1024);
    for _ in 0..2 {
        let pin = memory.pin();
        let pfn = memory.alloc(&pin, Request::page(SITE)).unwrap();
        let frame = memory.frame(pfn);
        assert_eq!(frame.kind(), Kind::Allocated);
        assert_eq!((frame.counts().refs(), frame.counts().maps()), (1, 0));
        assert_eq!((frame.owner(), frame.index(), frame.order()), (0, 0, 0));
        assert_eq!(frame.rmap().load(crate::sync::atomic::Ordering::Relaxed), 0);
        // Leave dirt for the next round, which gets the same frame.
        frame.set_kind_with(Kind::Anonymous, PageFlags::DIRTY.or(PageFlags::LRU));
        frame.set_owner(77);
        frame.set_index(1234, 3);
        frame.set_links(Pfn(5), Pfn(6));
        memory.put(&pin, pfn);
    }
}

#[test]
fn the_greatest_counts_are_reached_and_not_passed() {
    let frame = Frame::default();
    frame.init_counts(MAX_MAPPINGS - 1, MAX_MAPPINGS - 1);
    let counts = |frame: &Frame| (frame.counts().refs(), frame.counts().maps());
    assert!(frame.add_mapping().is_some());
    assert_eq!(counts(&frame), (MAX_MAPPINGS, MAX_MAPPINGS));
    assert!(frame.add_mapping().is_none());
    let memory = simple(1, 1024);
    let pin = memory.pin();
    let turn = Turn::at(&pin, 0);
    assert!(!frame.try_map(turn) && !frame.try_get(turn));
    assert_eq!(counts(&frame), (MAX_MAPPINGS, MAX_MAPPINGS));
    let frame = Frame::default();
    frame.init_counts(1, 0);
    for pins in 1..=MAX_PINS {
        assert!(frame.pin());
        assert_eq!(frame.counts().pins(), pins);
    }
    assert!(!frame.pin());
    assert_eq!(frame.counts().pins(), MAX_PINS);
    assert_eq!(frame.counts().refs(), 1 + MAX_PINS);
}

#[test]
fn a_frame_without_references_is_neither_mapped_nor_held() {
    let memory = simple(1, 1024);
    let pin = memory.pin();
    let turn = Turn::at(&pin, 0);
    let frame = Frame::default();
    frame.init_counts(0, 0);
    assert!(!frame.try_map(turn) && !frame.try_get(turn));
    frame.init_counts(1, 0);
    assert!(frame.try_map(turn) && frame.try_get(turn));
    assert_eq!((frame.counts().refs(), frame.counts().maps()), (3, 1));
}

#[test]
fn put_frees_with_the_last_reference() {
    let memory = simple(1, 1024);
    let pin = memory.pin();
    let pfn = memory.alloc(&pin, Request::page(SITE)).unwrap();
    memory.frame(pfn).get();
    memory.put(&pin, pfn);
    assert_eq!(memory.frame(pfn).kind(), Kind::Allocated);
    memory.put(&pin, pfn);
    assert_eq!(memory.frame(pfn).kind(), Kind::Cached);
    assert!(
        !memory.frame(pfn).try_get(Turn::at(&pin, pfn.0)),
        "a free frame cannot be taken hold of"
    );
    assert_eq!(memory.stats().used(), 0);
}

#[test]
fn a_block_splits_down_to_the_order_and_merges_again() {
    let memory = simple(1, 1024);
    let blocks = || memory.zone_stats(0, &memory.pin()).blocks;
    // From 0x100 on: 0x100..0x200, 0x200..0x400, 0x400..0x500.
    let whole = blocks();
    assert_eq!((whole[8], whole[9]), (2, 1));
    let pfn = memory
        .alloc(&memory.pin(), Request::page(SITE).order(3))
        .unwrap();
    assert_eq!(pfn.0 % 8, 0);
    assert_eq!(blocks()[3..9], [1, 1, 1, 1, 1, 1]);
    assert_eq!(census(&memory).of(Kind::Allocated), 8);
    release(&memory, pfn, 3);
    assert_eq!(blocks(), whole);
    census(&memory);
}

#[test]
fn blocks_of_every_order_are_aligned_and_do_not_overlap() {
    let memory = simple(1, 8192);
    let pin = memory.pin();
    let mut taken: Vec<(u32, u32)> = Vec::new();
    for order in (0..=MAX_ORDER).cycle() {
        let Ok(pfn) = memory.alloc(&pin, Request::page(SITE).order(order)) else {
            break;
        };
        assert_eq!(pfn.0 % (1 << order), 0);
        assert!((0..1 << order).all(|frame| memory.contains(pfn.offset(frame))));
        let (start, end) = (pfn.0, pfn.0 + (1 << order));
        assert!(taken.iter().all(|&(s, e)| end <= s || e <= start));
        taken.push((start, end));
    }
    assert!(taken.len() > 11);
}

#[test]
fn an_order_beyond_the_largest_is_refused() {
    let memory = simple(1, 4096);
    let request = Request::page(SITE).order(MAX_ORDER + 1);
    assert_eq!(memory.alloc(&memory.pin(), request), Err(OutOfMemory));
}

#[test]
fn a_split_block_is_freed_frame_by_frame() {
    let memory = simple(1, 4096);
    let pin = memory.pin();
    let pfn = memory.alloc(&pin, Request::page(SITE).order(4)).unwrap();
    assert_eq!(memory.head_of(pfn.offset(11)).0, pfn);
    memory.split(pfn, 4);
    assert_eq!(memory.head_of(pfn.offset(11)).0, pfn.offset(11));
    assert_eq!(census(&memory).of(Kind::Allocated), 16);
    for frame in 0..16 {
        memory.put(&pin, pfn.offset(frame));
    }
    drop(pin);
    assert_whole(&memory, 3);
}

#[test]
fn frames_freed_in_rows_become_the_blocks_they_came_from() {
    let memory = simple(1, 8192);
    let whole = memory.zone_stats(0, &memory.pin()).blocks;
    let mut rng = Rng::new(5);
    for round in 0..20 {
        let pin = memory.pin();
        let mut frames: Vec<Pfn> = (0..3000 + rng.below(2000))
            .map(|_| memory.alloc(&pin, Request::page(SITE)).unwrap())
            .collect();
        // In rows of any length, some of them backwards.
        frames.sort_unstable();
        let mut rest = frames.as_mut_slice();
        while !rest.is_empty() {
            let length = (1 + rng.below(200)).min(rest.len());
            let (row, others) = rest.split_at_mut(length);
            if rng.below(3) == 0 {
                row.reverse();
            }
            for &mut frame in row {
                memory.put(&pin, frame);
            }
            rest = others;
        }
        memory.drain(&pin);
        drop(pin);
        census(&memory);
        assert_eq!(
            memory.zone_stats(0, &memory.pin()).blocks,
            whole,
            "round {round}"
        );
    }
}

#[test]
fn random_sequences_lose_nothing() {
    let mut rng = Rng::new(1);
    let memory = simple(3, 8192);
    let mut held: Vec<(Pfn, u32)> = Vec::new();
    for step in 0..20_000 {
        run_on(rng.below(3) as u16);
        let pin = memory.pin();
        // Half of the time memory is scarce.
        let target = if step / 2500 % 2 == 0 { 300 } else { 6000 };
        if held.len() < rng.below(2 * target) {
            let order = if rng.below(4) == 0 {
                rng.below(11) as u32
            } else {
                0
            };
            let mut request = Request::page(SITE).order(order);
            if rng.below(4) == 0 {
                request = request.zeroed();
            }
            if let Ok(pfn) = memory.alloc(&pin, request) {
                held.push((pfn, order));
            }
        } else if !held.is_empty() {
            let (pfn, order) = held.swap_remove(rng.below(held.len()));
            match rng.below(8) {
                0 if order == 0 => {
                    memory.zero(&pin, pfn);
                    memory.retire(&pin, pfn, true);
                }
                1 if order == 0 => memory.retire(&pin, pfn, false),
                _ => memory.put_order(&pin, pfn, order),
            }
        }
        drop(pin);
        if step % 1000 == 0 {
            let census = census(&memory);
            let in_use: u64 = held.iter().map(|&(_, order)| 1 << order).sum();
            assert_eq!(census.of(Kind::Allocated), in_use, "step {step}");
            assert_eq!(census.total(), 8192);
            assert_eq!(census.limbo, memory.stats().limbo);
            assert_eq!(memory.stats().used(), in_use);
        }
    }
    for (pfn, order) in held {
        release(&memory, pfn, order);
    }
    assert_whole(&memory, 7);
    let stats = memory.stats();
    assert_eq!(stats.allocs, stats.frees);
}

#[test]
fn a_zeroed_request_gets_zeroes_whatever_was_there() {
    let mut rng = Rng::new(2);
    let memory = simple(1, 2048);
    let mut held: Vec<(Pfn, u32)> = Vec::new();
    let mut handed_out = 0u64;
    for _ in 0..4_000 {
        let pin = memory.pin();
        if rng.below(2) == 0 || held.is_empty() {
            let order = if rng.below(8) == 0 {
                rng.below(5) as u32
            } else {
                0
            };
            let request = Request::page(SITE).order(order).zeroed();
            if let Ok(pfn) = memory.alloc(&pin, request) {
                for frame in 0..1 << order {
                    let bytes = memory.platform().peek(pfn.offset(frame));
                    assert!(bytes.iter().all(|&byte| byte == 0), "{pfn:?} is not zero");
                }
                held.push((pfn, order));
                handed_out += 1 << order;
            }
        } else {
            let (pfn, order) = held.swap_remove(rng.below(held.len()));
            if rng.below(2) == 0 {
                memory
                    .platform()
                    .scribble(pfn.offset(rng.below(1 << order) as u32), 0xee);
            } else {
                // Untouched since it came: still zero, and said so.
                memory.frame(pfn).unused().set(FreeFlags::ZEROED);
            }
            memory.put_order(&pin, pfn, order);
        }
    }
    census(&memory);
    let zeroed = memory.stats().bytes_zeroed >> 12;
    assert!(
        zeroed < handed_out * 9 / 10,
        "{zeroed} of {handed_out} were zeroed: no frame was known to be zero"
    );
}

#[test]
fn copy_moves_the_bytes_and_counts_them() {
    let memory = simple(1, 1024);
    let pin = memory.pin();
    let [from, to] = [(); 2].map(|()| memory.alloc(&pin, Request::page(SITE)).unwrap());
    memory.platform().scribble(from, 0x42);
    memory.copy(&pin, from, to);
    assert_eq!(memory.platform().peek(to), [0x42; 4096]);
    assert_eq!(memory.stats().bytes_copied, 4096);
}

#[test]
fn exhaustion_is_an_error_and_passes_when_memory_comes_back() {
    let memory = simple(2, 1000);
    let pin = memory.pin();
    let urgent = Request::page(SITE).urgent();
    let mut held: Vec<Pfn> = Vec::new();
    while let Ok(pfn) = memory.alloc(&pin, Request::page(SITE)) {
        held.push(pfn);
    }
    while let Ok(pfn) = memory.alloc(&pin, urgent) {
        held.push(pfn);
    }
    assert_eq!(held.len(), 1000, "an idle machine gives its last frame");
    assert!(memory.stats().failed >= 2);
    assert!(memory.is_short(&pin));
    memory.put(&pin, held.pop().unwrap());
    held.push(memory.alloc(&pin, urgent).unwrap());
    for pfn in held {
        memory.put(&pin, pfn);
    }
    assert!(
        memory.alloc(&pin, Request::page(SITE).order(8)).is_ok(),
        "lists are given back"
    );
    drop(pin);
    census(&memory);
}

#[test]
fn the_reserve_is_for_urgent_requests() {
    let memory = simple(1, 4096);
    let pin = memory.pin();
    let min = memory.zone_stats(0, &pin).min;
    assert!(min > 0);
    let mut held = 0;
    while memory.alloc(&pin, Request::page(SITE)).is_ok() {
        held += 1;
    }
    assert_eq!(held, 4096 - min);
    for _ in 0..min {
        assert!(memory.alloc(&pin, Request::page(SITE).urgent()).is_ok());
    }
    assert!(memory.alloc(&pin, Request::page(SITE).urgent()).is_err());
    assert!(memory.stats().below_low > 0);
}

#[test]
fn a_planned_failure_happens_once_at_its_place() {
    let memory = simple(1, 1024);
    let pin = memory.pin();
    memory.inject(Some(FailAt {
        site: Site::CopyOnWrite,
        after: 2,
    }));
    let tries = [
        Site::CopyOnWrite,
        Site::TablePage,
        Site::CopyOnWrite,
        Site::CopyOnWrite,
        Site::CopyOnWrite,
    ];
    let results = tries.map(|site| memory.alloc(&pin, Request::page(site)).is_ok());
    assert_eq!(results, [true, true, true, false, true]);
    assert_eq!(
        (
            memory.reached(Site::CopyOnWrite),
            memory.reached(Site::TablePage)
        ),
        (4, 1)
    );
    memory.inject(None);
    assert!(memory.alloc(&pin, Request::page(Site::CopyOnWrite)).is_ok());
    assert_eq!(
        memory.reached(Site::CopyOnWrite),
        4,
        "counted under a plan only"
    );
    assert_eq!(
        memory.stats().failed,
        0,
        "planned failures are not shortages"
    );
}

#[test]
fn the_audit_sees_a_frame_on_two_lists() {
    let memory = simple(1, 1024);
    let pin = memory.pin();
    let pfn = memory.alloc(&pin, Request::page(SITE)).unwrap();
    memory.put(&pin, pfn);
    memory.cpus.get(&pin).low.frames.push(pfn);
    drop(pin);
    let error = memory.audit_frames().unwrap_err();
    assert_eq!(error.place, AuditPlace::Frame(pfn));
    assert_eq!(
        memory.audit_frames().unwrap_err(),
        error,
        "the audit leaves no marks"
    );
}

#[test]
fn the_audit_sees_a_lost_frame() {
    let memory = simple(1, 1024);
    let pin = memory.pin();
    let pfn = memory.alloc(&pin, Request::page(SITE)).unwrap();
    memory.put(&pin, pfn);
    assert_eq!(memory.cpus.get(&pin).low.frames.pop(), Some(pfn));
    drop(pin);
    assert_eq!(
        memory.audit_frames().unwrap_err().place,
        AuditPlace::Frame(pfn)
    );
}

#[test]
fn the_audit_sees_a_free_block_whose_frames_are_in_use() {
    let memory = simple(1, 1024);
    let inside = Pfn(0x203);
    memory.frame(inside).set_kind(Kind::Table);
    assert_eq!(
        memory.audit_frames().unwrap_err().place,
        AuditPlace::Frame(inside)
    );
}

#[test]
fn a_kept_frame_is_accounted_for() {
    let memory = simple(1, 1024);
    let pfn = memory
        .alloc(&memory.pin(), Request::page(SITE).zeroed())
        .unwrap();
    memory.frame(pfn).set_kind(Kind::Reserved);
    let census = census(&memory);
    assert_eq!((census.of(Kind::Reserved), census.total()), (1, 1024));
}
