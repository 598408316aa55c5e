//! Faults in objects beside what takes their pages away, reads them or ends them.

use super::*;

swept! {
    a_fault_beside_a_cut_maps_no_page_that_left => fault_cut;
    a_fault_beside_a_cut_maps_nothing_behind_the_end => fault_end;
    a_fault_beside_a_hole_maps_no_page_that_left => fault_hole;
    a_fault_around_beside_a_hole_maps_no_page_that_left => around_hole;
    a_fault_that_locks_its_page_beside_a_cut_maps_no_page_that_left => locking_fault_cut;
    a_page_read_beside_a_hole_in_its_store_does_not_appear_again => store_hole;
    a_private_copy_beside_a_cut_holds_nothing_that_was_cut_off => private_cut;
    a_page_that_could_not_be_read_is_read_by_the_next => unreadable;
    a_page_is_read_once_beside_a_store => read_once;
    a_page_is_read_once_by_who_comes_while_it_is_read => read_while_reading;
    an_object_is_mapped_or_over => map_release;
    a_fault_around_beside_a_page_being_read_leaves_it => around_reading;
}

fn cut_beside_fault<R: ReverseMap>(preemption: &Preemption, design: &str) {
    let shared = Shared::<R>::stored(design);
    let (world, vm) = (&shared.world, &shared.world.vm);
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND, 0));
        assert!(matches!(seen, Ok(5 | 0) | Err(FaultError::PastEnd)));
    };
    let cut = |_| {
        for pages in [0, PAGES] {
            vm.truncate(shared.object, pages).unwrap();
        }
    };
    world.run_preempted(preemption, [&load, &cut]);
    for place in [FIRST, SECOND, PRIVATE] {
        assert_eq!(shared.load_alone(place, 0), Ok(0), "at {place:#x}");
    }
    shared.finish();
}

fn fault_cut<R: ReverseMap>(preemption: &Preemption) {
    cut_beside_fault::<R>(preemption, "");
}

fn locking_fault_cut<R: ReverseMap>(preemption: &Preemption) {
    cut_beside_fault::<R>(preemption, "fileio=pages");
}

/// What the fault reads, the store may not have discarded yet.
fn store_hole<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "faultaround=1");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND + 1, 0));
        assert!(seen == Ok(0) || seen == Ok(pristine(3, 1)), "{seen:?}");
    };
    let punch = |_| vm.punch_hole(shared.object, SIZE, SIZE).unwrap();
    world.run_preempted(preemption, [&load, &punch]);
    for place in [FIRST, SECOND, PRIVATE] {
        assert_eq!(shared.load_alone(place + 1, 0), Ok(0), "at {place:#x}");
    }
    shared.finish();
}

fn fault_end<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::stored("");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND + 2, 0));
        assert!(matches!(seen, Ok(0) | Err(FaultError::PastEnd)));
    };
    let cut = |_| vm.truncate(shared.object, 1).unwrap();
    world.run_preempted(preemption, [&load, &cut]);
    for page in [1, 2] {
        for place in [FIRST, SECOND, PRIVATE] {
            let seen = shared.load_alone(place + page, 0);
            assert_eq!(seen, Err(FaultError::PastEnd), "at {place:#x}");
        }
    }
    shared.finish();
}

fn hole<R: ReverseMap>(preemption: &Preemption, design: &str) {
    let shared = Shared::<R>::stored(design);
    let (world, vm) = (&shared.world, &shared.world.vm);
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND, 0));
        assert!(matches!(seen, Ok(5 | 0)), "{seen:?}");
    };
    let punch = |_| vm.punch_hole(shared.object, 0, 2 * SIZE).unwrap();
    world.run_preempted(preemption, [&load, &punch]);
    for page in [0, 1] {
        for place in [FIRST, SECOND, PRIVATE] {
            assert_eq!(shared.load_alone(place + page, 0), Ok(0), "at {place:#x}");
        }
    }
    shared.finish();
}

fn fault_hole<R: ReverseMap>(preemption: &Preemption) {
    hole::<R>(preemption, "faultaround=1");
}

fn around_hole<R: ReverseMap>(preemption: &Preemption) {
    hole::<R>(preemption, "faultaround=4");
}

fn private_cut<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::stored("");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let store = |cpu| {
        let stored = world.store(cpu, shared.space, at(PRIVATE, 1), 7);
        assert!(matches!(stored, Ok(()) | Err(FaultError::PastEnd)));
    };
    let cut = |_| {
        for pages in [0, PAGES] {
            vm.truncate(shared.object, pages).unwrap();
        }
    };
    world.run_preempted(preemption, [&store, &cut]);
    assert_eq!(shared.load_alone(PRIVATE, 0), Ok(0), "it came back");
    shared.finish();
}

/// The store refuses until the first of two has been told so.
fn unreadable<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let world = &shared.world;
    world.store.faults().fail_range(Transfer::Read, 0..1);
    let load = |cpu, place| {
        let seen = world.load(cpu, shared.space, at(place, 0));
        assert!(seen.is_err() || seen == Ok(pristine(3, 0)), "{seen:?}");
    };
    let refused = |cpu| {
        load(cpu, FIRST);
        world.store.faults().heal();
    };
    let other = |cpu| load(cpu, SECOND);
    world.run_preempted(preemption, [&refused, &other]);
    for place in [FIRST, SECOND] {
        assert_eq!(shared.load_alone(place, 0), Ok(pristine(3, 0)));
    }
    shared.finish();
}

fn read_once<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let store = |cpu| world.store(cpu, shared.space, at(FIRST, 1), 7).unwrap();
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND, 0));
        assert_eq!(seen, Ok(pristine(3, 0)));
    };
    world.run_preempted(preemption, [&store, &load]);
    assert_eq!(shared.load_alone(SECOND, 1), Ok(7), "read over a store");
    world.alone(|| vm.sync(shared.object).unwrap());
    assert_eq!(vm.platform().store().stored_word(3, 8), Some(7));
    shared.finish();
}

/// The store's fault has read the page and not said so yet when the other comes.
fn read_while_reading<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    world.store.faults().set_delay(1);
    let store = |cpu| world.store(cpu, shared.space, at(FIRST, 1), 7).unwrap();
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND, 0));
        assert_eq!(seen, Ok(pristine(3, 0)));
    };
    let was_read = {
        let store = std::sync::Arc::clone(&world.store);
        move || store.faults().delay_spent() > 0
    };
    let mut steps = vec![Step::until(1, was_read)];
    steps.extend(preemption.steps());
    world.run_by(steps, &[&load, &store]);
    assert_eq!(shared.load_alone(SECOND, 1), Ok(7), "read over a store");
    world.alone(|| vm.sync(shared.object).unwrap());
    assert_eq!(vm.platform().store().stored_word(3, 8), Some(7));
    shared.finish();
}

fn map_release<R: ReverseMap>(preemption: &Preemption) {
    let world = World::<R>::new(2, 300, "");
    let (space, object) = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        (space, world.vm.create_shared_memory(PAGES).unwrap())
    });
    let map = |cpu| {
        let request = MapRequest::object(object, 0, PAGES, RW)
            .shared()
            .at(Placement::Fixed(Vpn(FIRST)));
        if world.vm.map(space, &request).is_ok() {
            world.store(cpu, space, at(FIRST, 0), 7).unwrap();
        }
    };
    let release = |_| world.vm.release_object(object).unwrap();
    world.run_preempted(preemption, [&map, &release]);
    world.finish(&[space], &[]);
}

fn around_reading<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "faultaround=4");
    let world = &shared.world;
    world.store.faults().fail_range(Transfer::Read, 1..2);
    let read = |cpu, page| world.load(cpu, shared.space, at(FIRST + page, 0));
    let reader = |cpu| assert!(read(cpu, 1).is_err());
    let other = |cpu| assert_eq!(read(cpu, 0), Ok(pristine(3, 0)));
    world.run_preempted(preemption, [&reader, &other]);
    world.store.faults().heal();
    for page in 0..PAGES {
        assert_eq!(shared.load_alone(FIRST + page, 0), Ok(pristine(3, page)));
    }
    shared.finish();
}
