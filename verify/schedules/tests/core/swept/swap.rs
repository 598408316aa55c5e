//! Pages that go to swap or leave memory beside faults, reads and pins of the same pages.

use std::sync::{Arc, Mutex};

use super::*;
use crate::world::SWAP;
use vellum::addr::{Access, Pfn};
use vellum_machine::store::{CompressedArea, CompressedStore};

swept! {
    a_fault_maps_the_page_that_it_found_only_while_its_slot_has_it => found_before;
    a_fault_maps_a_page_only_for_the_entry_that_it_found => entry_changed;
    a_copy_of_a_page_that_could_not_be_written_is_whole => copied;
    a_page_of_shared_memory_comes_back_from_the_slot_that_it_is_in => slot_changed;
    a_page_of_shared_memory_that_is_pinned_stays => shared_pinned;
    a_page_of_a_file_that_is_pinned_stays => file_pinned;
    a_read_beside_pages_that_go_to_swap_is_in_order => shared_read;
    a_read_beside_pages_that_leave_is_in_order => file_read;
    a_slot_that_is_used_again_keeps_its_page_in_the_store => slot_used_again;
}

/// A space of two tasks with two private pages at [`PRIVATE`], which hold 1 and 2.
fn private<R: ReverseMap>(mut world: World<R>, slots: u64) -> (World<R>, SpaceId) {
    world.swap_on(slots);
    let space = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        assert!(world.vm.share_space(space));
        world.anonymous(space, PRIVATE, 2);
        for page in 0..2 {
            let stored = world.store(ZERO, space, at(PRIVATE + page, 0), page + 1);
            stored.unwrap();
        }
        space
    });
    (world, space)
}

/// Two others who share a page take it and have it read anew, as the neighbour of another.
fn found_before<R: ReverseMap>(preemption: &Preemption) {
    // So much memory that neighbours are read, too.
    let (world, space) = private(World::<R>::new(2, 2000, "reclaim=on"), 8);
    let (one, other) = world.alone(|| {
        let children = (world.vm.fork(space).unwrap(), world.vm.fork(space).unwrap());
        world.page_out(space, PRIVATE, 2);
        children
    });
    let load = |cpu| assert_eq!(world.load(cpu, space, at(PRIVATE, 0)), Ok(1));
    let take_and_read = |cpu| {
        assert_eq!(world.load(cpu, one, at(PRIVATE, 0)), Ok(1));
        assert_eq!(world.load(cpu, other, at(PRIVATE + 1, 0)), Ok(2));
    };
    world.run_preempted(preemption, [&load, &take_and_read]);
    for space in [space, one, other] {
        assert_eq!(self::load(&world, space, PRIVATE), Ok(1));
    }
    world.finish_swap(&[space, one, other], &[]);
}

/// A space and its child, which share a page that could not be written.
fn unwritten<R: ReverseMap>() -> (World<R>, SpaceId, SpaceId) {
    let (world, space) = private(World::<R>::new(2, 300, ""), 8);
    let child = world.alone(|| {
        let child = world.vm.fork(space).unwrap();
        let faults = world.store.faults();
        faults.fail_range(Transfer::Write, 0..8);
        world.page_out(space, PRIVATE, 1);
        faults.heal();
        child
    });
    (world, space, child)
}

/// The one who comes last gets the frame, and stores to it.
fn copied<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, child) = unwritten::<R>();
    let copy = |cpu| assert_eq!(world.load(cpu, child, at(PRIVATE, 0)), Ok(1));
    let store = |cpu| world.store(cpu, space, at(PRIVATE, 0), 7).unwrap();
    world.run_preempted(preemption, [&copy, &store]);
    assert_eq!(self::load(&world, child, PRIVATE), Ok(1));
    assert_eq!(self::load(&world, space, PRIVATE), Ok(7));
    world.finish_swap(&[space, child], &[]);
}

/// Who shares the page copies it; then one of two tasks stores to its copy and pages that out.
fn entry_changed<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, child) = unwritten::<R>();
    let load = |cpu| {
        let seen = world.load(cpu, space, at(PRIVATE, 0));
        assert!(matches!(seen, Ok(1 | 7)), "{seen:?}");
    };
    let change = |cpu| {
        world.store(cpu, space, at(PRIVATE, 0), 7).unwrap();
        world.page_out(space, PRIVATE, 1);
    };
    world.run_preempted(preemption, [&load, &change]);
    assert_eq!(self::load(&world, space, PRIVATE), Ok(7));
    assert_eq!(self::load(&world, child, PRIVATE), Ok(1));
    world.finish_swap(&[space, child], &[]);
}

/// The page is cut off, and another in its place leaves for another slot; nobody has the one
/// that the page was in any more.
fn slot_changed<R: ReverseMap>(preemption: &Preemption) {
    let mut shared = Shared::<R>::stored("");
    shared.world.swap_on(2);
    let (world, space) = (&shared.world, shared.space);
    // Beside it something has the table stay, where the second CPU would walk one that is gone
    // until the other flushes.
    world.alone(|| world.anonymous(space, SECOND + PAGES, 1));
    shared.store_alone(SECOND + PAGES, 0, 1);
    world.alone(|| world.page_out(space, FIRST, 1));
    let load = |cpu| {
        let seen = world.load(cpu, space, at(SECOND, 0));
        assert!(matches!(seen, Ok(5 | 0 | 6) | Err(FaultError::PastEnd)));
    };
    let replace = |cpu| {
        for pages in [0, PAGES] {
            world.vm.truncate(shared.object, pages).unwrap();
        }
        for page in [1, 0] {
            world.store(cpu, space, at(FIRST + page, 0), 6).unwrap();
            world.page_out(space, FIRST + page, 1);
        }
        assert_eq!(world.load(cpu, space, at(FIRST + 1, 0)), Ok(6));
    };
    world.run_preempted(preemption, [&load, &replace]);
    for page in 0..2 {
        assert_eq!(shared.load_alone(FIRST + page, 0), Ok(6));
    }
    world.finish_swap(&[space], &[shared.object]);
}

/// Whoever has pinned the first page for writing finds it where it was.
fn pin_beside_out<R: ReverseMap>(shared: &Shared<R>, preemption: &Preemption) {
    let (world, space) = (&shared.world, shared.space);
    let pinned = Mutex::new([Pfn::NONE]);
    let pin = |cpu| {
        let mut frames = [Pfn::NONE];
        let done = (world.vm).pin_pages(space, Vpn(FIRST), Access::Write, &mut frames);
        done.unwrap();
        *pinned.lock().unwrap() = frames;
        world.store(cpu, space, at(FIRST, 1), 7).unwrap();
    };
    let out = |_| world.page_out(space, FIRST, 1);
    world.run_preempted(preemption, [&pin, &out]);
    assert_eq!(shared.load_alone(FIRST, 1), Ok(7));
    let frames = pinned.into_inner().unwrap();
    let mapped = world.alone(|| world.vm.translate(space, Vpn(FIRST)));
    let mapped = mapped.map(|mapped| mapped.0);
    assert_eq!(mapped, Some(frames[0]), "it was taken");
    // SAFETY: pinned above.
    world.alone(|| unsafe { world.vm.unpin(&frames) });
    world.finish_swap(&[space], &[shared.object]);
}

fn shared_pinned<R: ReverseMap>(preemption: &Preemption) {
    let mut shared = Shared::<R>::stored("");
    shared.world.swap_on(8);
    pin_beside_out(&shared, preemption);
}

fn file_pinned<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    // In memory, and not dirty.
    shared.load_alone(FIRST, 0).unwrap();
    pin_beside_out(&shared, preemption);
}

/// The second page leaves and comes back, and then both are stored to, the first last: who
/// reads what is new there has read what is new in the second, too.
fn read_beside_out<R: ReverseMap>(shared: &Shared<R>, preemption: &Preemption) {
    let (world, space) = (&shared.world, shared.space);
    let read = |_| {
        let mut bytes = [0; 2 * SIZE as usize];
        let read = world.vm.read_at(shared.object, 0, &mut [&mut bytes]);
        assert_eq!(read, Ok(bytes.len()));
        let first_of = |page: usize| {
            let word = &bytes[page * SIZE as usize..][..8];
            u64::from_le_bytes(word.try_into().unwrap())
        };
        assert!(first_of(0) != 7 || first_of(1) == 7, "out of order");
    };
    let out = |cpu| {
        world.page_out(space, FIRST + 1, 1);
        for page in [1, 0] {
            world.store(cpu, space, at(FIRST + page, 0), 7).unwrap();
        }
    };
    world.run_preempted(preemption, [&read, &out]);
    for page in 0..2 {
        assert_eq!(shared.load_alone(FIRST + page, 0), Ok(7));
    }
    world.finish_swap(&[space], &[shared.object]);
}

fn shared_read<R: ReverseMap>(preemption: &Preemption) {
    let mut shared = Shared::<R>::stored("");
    shared.world.swap_on(8);
    read_beside_out(&shared, preemption);
}

fn file_read<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    for page in 0..2 {
        shared.load_alone(FIRST + page, 0).unwrap();
    }
    read_beside_out(&shared, preemption);
}

/// There is one slot, which passes from one page to another.
fn slot_used_again<R: ReverseMap>(preemption: &Preemption) {
    let about = CompressedArea {
        area: SWAP,
        slots: 1,
        bytes: 64 << 10,
        writes_back: false,
    };
    let world = World::<R>::with_store(2, 300, "", |stores| {
        Arc::new(CompressedStore::new(stores, about).unwrap())
    });
    let (world, space) = private(world, 1);
    world.alone(|| world.page_out(space, PRIVATE, 1));
    let give_up = |_| {
        let first = Vpn(PRIVATE);
        world.vm.advise(space, first, 1, Advice::DontNeed).unwrap();
    };
    let out = |_| world.page_out(space, PRIVATE + 1, 1);
    world.run_preempted(preemption, [&give_up, &out]);
    assert_eq!(load(&world, space, PRIVATE), Ok(0));
    assert_eq!(load(&world, space, PRIVATE + 1), Ok(2));
    world.finish_swap(&[space], &[]);
}
