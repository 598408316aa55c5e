//! Runs set aside: who may take a frame of one.

use super::*;
use crate::frame::Owner;

const ORDER: u32 = 9;

/// A memory with one run set aside for an owner.
fn set_aside(owner: Owner) -> (Memory, Pfn) {
    run_on(0);
    let mut memory = PhysicalMemory::new(TestMachine::simple(1, 4096)).unwrap();
    memory.keep_reservations(ORDER);
    let pin = memory.pin();
    let first = memory.reserve_run(&pin).unwrap();
    memory.grant_run(&pin, first, owner);
    drop(pin);
    (memory, first)
}

fn file(handle: u32, first: u64) -> Owner {
    Owner::Object { handle, first }
}

/// Whoever still names a run that became another's does not get its frames, and does not end it.
#[test]
fn only_its_owner_takes_frames_of_a_run_or_ends_it() {
    for (owner, others) in [
        (
            Owner::Table(Pfn(77)),
            [Owner::Table(Pfn(78)), file(77, 0), Owner::Maker],
        ),
        (
            file(3, 512),
            [file(3, 0), file(4, 512), Owner::Table(Pfn(3))],
        ),
    ] {
        let (memory, first) = set_aside(owner);
        let pin = memory.pin();
        for other in others {
            let taken = memory.take_reserved(&pin, first, other, 5);
            assert_eq!(taken, None, "{other:?} takes of {owner:?}");
            memory.end_run(&pin, first, other);
            assert_eq!(memory.reservation_stats().unused, 512, "{other:?}");
        }
        let taken = memory.take_reserved(&pin, first, owner, 5);
        assert_eq!(taken, Some(first.offset(5)));
        assert_eq!(memory.take_reserved(&pin, first, owner, 5), None);
        // Of what another gives back, nothing becomes the owner's again.
        memory.give_back_reserved(&pin, first, others[0], first.offset(5));
        assert_eq!(memory.take_reserved(&pin, first, owner, 5), None);
        memory.end_run(&pin, first, owner);
        assert_eq!(memory.reservation_stats().unused, 0);
        drop(pin);
        assert_whole(&memory, 3);
    }
}

/// What a reservation lacked is there for all CPUs when it has been broken, and not only for the
/// one that has broken it.
#[test]
fn frames_of_a_broken_run_are_found_by_other_cpus() {
    run_on(0);
    let mut memory = PhysicalMemory::new(TestMachine::simple(2, 4096)).unwrap();
    memory.keep_reservations(ORDER);
    let pin = memory.pin();
    let owner = file(3, 0);
    let first = memory.reserve_run(&pin).unwrap();
    memory.grant_run(&pin, first, owner);
    // As many are left as a CPU keeps, no two side by side.
    let ring = &memory.cpus.get(&pin).low.frames;
    let (left, batch) = (ring.high - 1, ring.batch);
    assert!(batch < left && left < 1 << (ORDER - 1), "{batch}, {left}");
    let mut held: Vec<Pfn> = (0..1 << ORDER)
        .filter(|index| index % 2 == 0 || *index >= 2 * left)
        .map(|index| memory.take_reserved(&pin, first, owner, index).unwrap())
        .collect();
    while memory.reservation_stats().broken == 0 {
        held.push(memory.alloc(&pin, Request::page(SITE)).unwrap());
    }
    drop(pin);
    run_on(1);
    let pin = memory.pin();
    held.push(memory.alloc(&pin, Request::page(SITE)).unwrap());
    for pfn in held {
        memory.put(&pin, pfn);
    }
    drop(pin);
    assert_whole(&memory, 3);
}
