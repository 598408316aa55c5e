//! The parts of linked lists: bits of page blocks, the cache of full zones.

use std::vec::Vec;

use super::blocks::{BLOCK_ORDER, BlockKinds};
use super::full::FullZones;
use super::list::Mobility;
use crate::Design;
use crate::addr::Pfn;
use crate::design::{BlockFlags, ZoneCache};
use crate::frame::{PhysicalMemory, Request, Site};
use crate::platform::{NodeId, Zone};
use crate::testing::{Rng, TestMachine, range, run_on};

#[test]
fn bits_and_words_say_the_same_of_every_block() {
    const BLOCKS: u32 = 70;
    let (first, end) = (Pfn(0x300), Pfn(0x300 + (BLOCKS << BLOCK_ORDER)));
    let kinds = [BlockFlags::Bits, BlockFlags::Word].map(|by| BlockKinds::new(first, end, by));
    let mut model: Vec<Mobility> = (0..=BLOCKS).map(|_| Mobility::Movable).collect();
    let mut rng = Rng::new(5);
    for _ in 0..2000 {
        let block = rng.below(BLOCKS as usize + 1);
        let pfn = Pfn(((first.0 >> BLOCK_ORDER) + block as u32) << BLOCK_ORDER).max(first);
        let kind = Mobility::ALL[rng.below(2)];
        model[block] = kind;
        for kinds in &kinds {
            kinds.set(pfn, kind);
        }
        let at = rng.below(BLOCKS as usize + 1);
        let pfn = Pfn(((first.0 >> BLOCK_ORDER) + at as u32) << BLOCK_ORDER).max(first);
        for kinds in &kinds {
            assert_eq!(kinds.get(pfn), model[at], "block {at}");
        }
    }
}

#[test]
fn marks_of_full_zones_are_made_by_those_who_may_and_forgotten() {
    let node = NodeId(0);
    for (cache, unasked, asked) in [
        (ZoneCache::Eager, true, true),
        (ZoneCache::Lazy, false, true),
        (ZoneCache::Off, false, false),
    ] {
        let full = FullZones::new(cache, 2);
        full.mark(node, 3, false);
        assert_eq!(!full.is_worth(node, 3), unasked, "{cache:?}");
        full.mark(node, 4, true);
        assert_eq!(!full.is_worth(node, 4), asked, "{cache:?}");
        assert!(full.is_worth(node, 5) && full.is_worth(NodeId(1), 3));
        full.mark(node, 64, true);
        assert!(full.is_worth(node, 64), "there is no bit for it");
        for _ in 0..super::full::LIFE {
            full.begin(node);
        }
        assert!(
            full.is_worth(node, 3) && full.is_worth(node, 4),
            "{cache:?}"
        );
    }
    assert!(!FullZones::new(ZoneCache::Eager, 1).is_asked());
}

/// On a machine with one node nobody asks, and only `eager` writes.
#[test]
fn a_machine_of_one_node_has_marks_only_if_they_are_eager() {
    for (design, is_marked) in [("eager", true), ("lazy", false), ("off", false)] {
        run_on(0);
        let map = [
            range(0, 2048, 0, Zone::Low),
            range(2048, 600, 0, Zone::High),
        ];
        let mut memory = PhysicalMemory::new(TestMachine::new(&[0], &map)).unwrap();
        let design = std::format!("framelists=linked,zonecache={design}");
        let linked = memory.lists_of(&Design::parse(&design).unwrap());
        let pin = memory.pin();
        for _ in 0..1000 {
            let page = Request::page(Site::CachePage);
            memory.alloc_linked(&linked, &pin, &page).unwrap();
        }
        assert_eq!(!linked.full.is_worth(NodeId(0), 0), is_marked, "{design}");
    }
}
