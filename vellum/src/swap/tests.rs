//! Slots: which are free, and what they count (invariant 14).

use super::area::Area;
use super::cluster::{MAX_ENTRIES, SwapSlot};
use super::{Swap, SwapArea, Tally};
use crate::addr::Pfn;
use crate::frame::PhysicalMemory;
use crate::testing::{Rng, TestMachine, run_on};

fn memory() -> PhysicalMemory<TestMachine> {
    run_on(0);
    PhysicalMemory::new(TestMachine::simple(1, 64)).unwrap()
}

fn area(slots: u64) -> Area {
    let about = SwapArea::new(1, slots);
    Area::new(about)
}

#[test]
fn slots_are_taken_side_by_side_and_full_clusters_come_last() {
    let memory = memory();
    let pin = memory.pin();
    let area = area(150);
    let all: std::vec::Vec<u64> = (0..150).map(|_| area.take(&pin).unwrap()).collect();
    assert_eq!(all, (0..150).collect::<std::vec::Vec<_>>());
    assert_eq!((area.take(&pin), area.free()), (None, 0));
    assert!(area.queue_is_right(&pin));
    for offset in [140, 3, 70, 1, 141] {
        area.give(&pin, offset, false);
        assert!(area.queue_is_right(&pin));
    }
    let again: std::vec::Vec<u64> = core::iter::from_fn(|| area.take(&pin)).collect();
    assert_eq!(again, [140, 141, 1, 3, 70]);
}

#[test]
fn a_bad_slot_is_not_taken_again() {
    let memory = memory();
    let pin = memory.pin();
    let area = area(2);
    let first = area.take(&pin).unwrap();
    area.give(&pin, first, true);
    assert_eq!((area.take(&pin), area.take(&pin)), (Some(1), None));
    assert_eq!((area.free(), area.bad()), (0, 1));
}

#[test]
fn random_taking_and_giving_matches_a_set() {
    let memory = memory();
    let pin = memory.pin();
    let area = area(200);
    let mut taken = std::collections::BTreeSet::new();
    let mut rng = Rng::new(5);
    for step in 0..20_000 {
        if rng.below(2) == 0 || taken.is_empty() {
            match area.take(&pin) {
                Some(slot) => assert!(slot < 200 && taken.insert(slot), "step {step}"),
                None => assert_eq!(taken.len(), 200, "step {step}"),
            }
        } else {
            let nth = rng.below(taken.len());
            let slot = *taken.iter().nth(nth).unwrap();
            taken.remove(&slot);
            area.give(&pin, slot, false);
        }
        assert_eq!(area.free(), 200 - taken.len() as u64);
    }
    assert!(area.queue_is_right(&pin));
}

#[test]
fn a_slot_counts_as_many_entries_as_a_frame_and_no_more() {
    let mut slot = SwapSlot::taken_for(Pfn(1));
    for _ in 0..MAX_ENTRIES {
        assert!(slot.add());
    }
    assert!(!slot.add());
    assert_eq!(slot.count(), MAX_ENTRIES);
    assert!(slot.is_busy() && !slot.is_stored() && !slot.is_bad());
    slot.end();
    slot.set_stored();
    for _ in 0..MAX_ENTRIES {
        assert!(slot.give_up().is_none());
        slot.sub();
    }
    assert_eq!(slot.give_up().unwrap().frame(), Some(Pfn(1)));
    assert!(slot.is_unused());
}

#[test]
fn numbers_of_slots_lead_back_to_area_and_place() {
    let swap = Swap::boxed();
    for store in 10..13 {
        let area = SwapArea {
            store,
            slots: 65,
            priority: store as i32,
        };
        swap.add_area(area).unwrap();
    }
    for area in 0..3 {
        for offset in [0, 64] {
            let number = Swap::number(area, offset);
            assert_eq!(swap.place(number), Some((10 + area as u64, offset)));
            let short = 65 * area as u64 + offset;
            assert_eq!(swap.short(number), Some(short));
            assert_eq!(swap.long(short), number);
        }
        assert_eq!(swap.place(Swap::number(area, 65)), None);
    }
    assert_eq!(swap.place(Swap::number(3, 0)), None);
}

#[test]
fn tallies_differ_if_one_slot_has_another_count() {
    let tally = |counts: &[u64]| {
        let mut tally = Tally::default();
        (0..)
            .zip(counts)
            .for_each(|(slot, &count)| tally.add(slot, count));
        tally
    };
    assert_eq!(tally(&[2, 0, 1]), tally(&[2, 0, 1]));
    assert_eq!(tally(&[2, 0, 1]).entries, tally(&[1, 1, 1]).entries);
    assert_ne!(tally(&[2, 0, 1]), tally(&[1, 1, 1]));
    assert_ne!(tally(&[1, 0, 2]), tally(&[2, 0, 1]));
}
