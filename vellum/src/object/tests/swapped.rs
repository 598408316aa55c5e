//! Places of pages that are in swap.

use std::vec::Vec;

use super::super::radix::{Cell, SLOTS_END};
use super::*;

#[test]
fn a_place_holds_a_frame_or_a_slot() {
    for frame in [0, 1, Pfn::END.0 - 1] {
        let cell = Cell::of_frame(Pfn(frame));
        assert_eq!((cell.frame(), cell.slot()), (Some(Pfn(frame)), None));
    }
    for slot in [0, 1, SLOTS_END - 1] {
        let cell = Cell::of_slot(slot);
        assert_eq!((cell.frame(), cell.slot()), (None, Some(slot)));
    }
    let (memory, root) = (memory(512), AtomicU64::new(0));
    let nodes = arenas(&memory).make();
    let pin = memory.pin();
    let tree = tree_at(&nodes, &root, &pin);
    for index in [3, 70] {
        Radix::prepare(&nodes, &pin, &memory).unwrap();
        tree.insert(index, Pfn(9)).unwrap();
    }
    let (old, new) = (Cell::of_frame(Pfn(9)), Cell::of_slot(5));
    assert!(tree.replace(3, old, new) && !tree.replace(3, old, new));
    assert_eq!((tree.get(3), tree.cell(3).slot()), (None, Some(5)));
    assert_eq!(
        (tree.next(0), tree.next_page(0)),
        (Some((70, Pfn(9))), Some(3))
    );
    assert_eq!((tree.next_slot(0), tree.next_slot(4)), (Some((3, 5)), None));
    assert_eq!((tree.next_hole(3), tree.next_hole(2)), (4, 2));
    assert_eq!(tree.insert(3, Pfn(1)), Err(Pfn::NONE));
    assert_eq!(tree.remove(3), None, "it is no frame");
    let mut slots = Vec::new();
    tree.remove_slots(0..64, |slot| slots.push(slot));
    tree.remove_slots(64..128, |slot| slots.push(slot));
    assert_eq!((slots, tree.next_page(0)), (std::vec![5], Some(70)));
    assert_eq!(tree.remove(70), Some(Pfn(9)));
    assert_eq!(root.load(Ordering::Relaxed), 0, "no node is left");
}
