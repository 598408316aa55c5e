//! Free frames in linked lists (`framelists=linked`), with each of its switches.

use super::*;
use crate::Design;
use crate::design::{ZoneCache, variants};

/// Pages that may be moved, and nodes of the manager that may not.
const SITES: [Site; 2] = [Site::AnonymousPage, Site::SlabFrame];

fn linked_on(design: &str, machine: TestMachine) -> Memory {
    run_on(0);
    let mut memory = PhysicalMemory::new(machine).unwrap();
    memory.keep_lists_of(&Design::parse(design).unwrap());
    memory
}

fn linked(design: &str, frames: u32) -> Memory {
    linked_on(design, TestMachine::simple(2, frames))
}

/// All that are not runs.
fn designs() -> impl Iterator<Item = std::string::String> {
    let all = variants("framelists").into_iter();
    all.filter(|design| design.starts_with("framelists=linked"))
}

fn two_nodes() -> TestMachine {
    let map = [
        range(0, 1024, 0, Zone::Low),
        range(1024, 1024, 0, Zone::High),
        range(2048, 1024, 1, Zone::Low),
        range(3072, 1024, 1, Zone::High),
    ];
    TestMachine::new(&[0, 1], &map)
}

#[test]
fn random_sequences_lose_nothing_in_linked_lists() {
    for (seed, design) in (0..).zip(designs()) {
        let memory = linked_on(&design, two_nodes());
        let mut rng = Rng::new(900 + seed);
        let mut held: Vec<(Pfn, u32)> = Vec::new();
        for step in 0..4000 {
            run_on(rng.below(2) as u16);
            let pin = memory.pin();
            if rng.below(9) < 4 && !held.is_empty() {
                let (pfn, order) = held.swap_remove(rng.below(held.len()));
                drop(pin);
                release(&memory, pfn, order);
            } else {
                let order = [0, 0, 0, 0, 1, 3, 5, 9][rng.below(8)];
                let request = Request::page(SITES[rng.below(2)]).order(order);
                let request = if rng.below(3) == 0 {
                    request.low()
                } else {
                    request
                };
                let Ok(pfn) = memory.alloc(&pin, request) else {
                    continue;
                };
                assert_eq!(pfn.0 % (1 << order), 0);
                assert!(held.iter().all(|&(other, _)| other != pfn), "{pfn:?} twice");
                assert_eq!(memory.frame(pfn).owner(), 0);
                held.push((pfn, order));
            }
            if step % 100 == 0 {
                let frames: u64 = held.iter().map(|(_, order)| 1 << order).sum();
                assert_eq!(census(&memory).of(Kind::Allocated), frames, "{design}");
                assert_eq!(memory.stats().used(), frames);
            }
        }
        for (pfn, order) in held {
            release(&memory, pfn, order);
        }
        assert_whole(&memory, 4);
    }
}

/// All memory but the reserve can be had by either kind, and by urgent requests the rest.
#[test]
fn either_kind_of_page_can_have_all_memory() {
    for design in designs() {
        for site in SITES {
            let memory = linked(&design, 4096);
            let min = memory.zone_stats(0, &memory.pin()).min;
            let all = |request: Request| {
                let pin = memory.pin();
                let mut frames = Vec::new();
                while let Ok(pfn) = memory.alloc(&pin, request) {
                    frames.push(pfn);
                }
                frames
            };
            let taken = all(Request::page(site));
            let left = memory.stats().free + memory.stats().cached;
            assert!(
                min > 0 && (min..min + 40).contains(&left),
                "{design}: {left}"
            );
            let rest = all(Request::page(site).urgent());
            assert_eq!(taken.len() + rest.len(), memory.frame_count(), "{design}");
            census(&memory);
            for pfn in taken.into_iter().chain(rest) {
                release(&memory, pfn, 0);
            }
            census(&memory);
        }
    }
}

/// While there is room, no page block has pages of both kinds.
#[test]
fn kinds_of_pages_are_kept_in_blocks_of_their_own() {
    for design in designs() {
        let memory = linked(&design, 16384);
        let pin = memory.pin();
        let block = |pfn: Pfn| pfn.0 >> 9;
        let mut blocks = [const { Vec::new() }; 2];
        for round in 0..1500 {
            let pfn = memory.alloc(&pin, Request::page(SITES[round % 2])).unwrap();
            blocks[round % 2].push(block(pfn));
        }
        let [movable, unmovable] = blocks;
        assert!(
            movable.iter().all(|block| !unmovable.contains(block)),
            "{design}"
        );
        let mut fewest = unmovable;
        fewest.dedup();
        assert!(
            fewest.len() <= 4,
            "{design}: {} blocks for 750 pages",
            fewest.len()
        );
    }
}

#[test]
fn a_freed_frame_is_the_next_of_its_kind() {
    for design in designs() {
        let memory = linked(&design, 4096);
        let pin = memory.pin();
        let [a, b] = SITES.map(|site| memory.alloc(&pin, Request::page(site)).unwrap());
        memory.put(&pin, a);
        memory.put(&pin, b);
        let [c, d] = SITES.map(|site| memory.alloc(&pin, Request::page(site)).unwrap());
        assert_eq!((a, b), (c, d), "{design}");
    }
}

#[test]
fn zones_are_used_in_the_order_of_their_node_in_linked_lists_too() {
    for design in designs() {
        for (request, wanted) in [
            (Request::page(SITE), &[1, 0, 3, 2][..]),
            (Request::page(SITE).low(), &[0, 2]),
            (Request::page(SITE).on_node(NodeId(1)), &[3, 2, 1, 0]),
            (Request::page(SITE).on_node(NodeId(1)).exact(), &[3, 2]),
            (Request::page(SITE).order(3), &[1, 0, 3, 2]),
        ] {
            let memory = linked_on(&design, two_nodes());
            let pin = memory.pin();
            let mut order: Vec<u32> = Vec::new();
            while let Ok(pfn) = memory.alloc(&pin, request) {
                if order.last() != Some(&(pfn.0 / 1024)) {
                    order.push(pfn.0 / 1024);
                }
            }
            // A search that ran out gives the CPU's lists back and goes over the zones
            // once more.
            let mut first = Vec::new();
            order.retain(|zone| {
                !first.contains(zone) && {
                    first.push(*zone);
                    true
                }
            });
            assert_eq!(order, wanted, "{design}");
        }
    }
}

/// What a shortage takes is to be had again, whichever zones were called full.
#[test]
fn a_full_zone_is_used_again_when_it_has_room() {
    for design in designs() {
        let memory = linked_on(&design, two_nodes());
        let pin = memory.pin();
        for _ in 0..3 {
            let mut all = Vec::new();
            while let Ok(pfn) = memory.alloc(&pin, Request::page(SITE)) {
                all.push(pfn);
            }
            assert!(all.len() > 4000, "{design}: {}", all.len());
            for pfn in all {
                memory.put(&pin, pfn);
            }
        }
        census(&memory);
    }
}

/// Three nodes of one zone each. The first is full, and of the second as much is dirty as
/// may be.
fn one_full_and_one_dirty(design: &str) -> (Memory, Vec<Pfn>) {
    let map = [0, 1, 2].map(|node| range(u32::from(node) * 1024, 1024, node, Zone::Low));
    let memory = linked_on(design, TestMachine::new(&[0, 1, 2], &map));
    let pin = memory.pin();
    while memory.alloc(&pin, Request::page(SITE).exact()).is_ok() {}
    let second = Request::page(SITE).on_node(NodeId(1)).exact();
    let dirty: Vec<Pfn> = (0..300)
        .filter_map(|_| memory.alloc(&pin, second).ok())
        .collect();
    assert_eq!(dirty.len(), 300, "{design}");
    memory.count_dirty_pages(&pin, (dirty.iter().copied(), dirty.len()), true);
    assert_eq!(memory.dirty_pages_of_zones(), Some(300), "{design}");
    drop(pin);
    (memory, dirty)
}

fn node_of(memory: &Memory, request: Request) -> u32 {
    let pin = memory.pin();
    memory.alloc(&pin, request).expect("there is room").0 / 1024
}

/// The eager cache of full zones keeps others from a zone that has room for them, which
/// patch 2 of the series of 2014 mended.
#[test]
fn dirty_pages_go_elsewhere_and_others_stay_unless_the_cache_is_eager() {
    for design in designs() {
        let (memory, dirty) = one_full_and_one_dirty(&design);
        let page = Request::page(SITE);
        assert_eq!(node_of(&memory, page), 1, "{design}: nothing is marked yet");
        assert_eq!(node_of(&memory, page.dirty(true)), 2, "{design}");
        let is_eager = Design::parse(&design).unwrap().zone_cache == ZoneCache::Eager;
        let wanted = if is_eager { 2 } else { 1 };
        assert_eq!(node_of(&memory, page), wanted, "{design}");
        // What was written may be followed by more, as soon as no mark says otherwise.
        let count = dirty.len();
        memory.count_dirty_pages(&memory.pin(), (dirty.into_iter(), count), false);
        assert_eq!(memory.dirty_pages_of_zones(), Some(0), "{design}");
        let searches = if is_eager { 2000 } else { 1 };
        let mut last = 2;
        for _ in 0..searches {
            let pin = memory.pin();
            let pfn = memory.alloc(&pin, page.dirty(true)).unwrap();
            last = pfn.0 / 1024;
            memory.put(&pin, pfn);
        }
        assert_eq!(last, 1, "{design}");
    }
}

#[test]
fn a_page_is_had_although_every_zone_has_its_limit_of_dirty_pages() {
    for design in designs() {
        let (memory, _) = one_full_and_one_dirty(&design);
        let third = Request::page(SITE).on_node(NodeId(2)).exact();
        let pin = memory.pin();
        for _ in 0..300 {
            let pfn = memory.alloc(&pin, third.dirty(true)).unwrap();
            memory.count_dirty_pages(&pin, ([pfn].into_iter(), 1), true);
        }
        let pfn = memory.alloc(&pin, Request::page(SITE).dirty(true)).unwrap();
        assert_eq!(pfn.0 / 1024, 1, "{design}: the nearest that has room");
    }
}
