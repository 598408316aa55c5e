//! Faults in objects beside what takes their pages away, reads them or ends them.

use std::sync::Arc;

use super::*;
use crate::world::Task;
use vellum::space::WriteRequest;

swept! {
    a_fault_beside_a_cut_maps_no_page_that_left => fault_cut;
    a_fault_beside_a_cut_maps_nothing_behind_the_end => fault_end;
    a_fault_beside_a_hole_maps_no_page_that_left => fault_hole;
    a_fault_around_beside_a_hole_maps_no_page_that_left => around_hole;
    a_fault_that_locks_its_page_beside_a_cut_maps_no_page_that_left => locking_fault_cut;
    a_page_read_beside_a_hole_in_its_store_does_not_appear_again => store_hole;
    a_page_cut_off_beside_a_fault_does_not_come_back_from_its_store => store_cut;
    a_private_copy_beside_a_cut_holds_nothing_that_was_cut_off => private_cut;
    a_page_that_could_not_be_read_is_read_by_the_next => unreadable;
    a_page_is_read_once_beside_a_store => read_once;
    a_page_is_read_once_by_who_comes_while_it_is_read => read_while_reading;
    an_object_is_mapped_or_over => map_release;
    a_fault_around_beside_a_page_being_read_leaves_it => around_reading;
}

/// Accesses that a task makes at most from when it has taken a page out until it has dropped its
/// reference.
const LEAVING: usize = 12;
/// Accesses from the beginning of a write until its first look at a page.
const LOOKING: usize = 60;

/// A writer to a page that is being read waits for it. When the page's lock is free, the page is not
/// the object's any more: it could not be read, and the reader still has a reference.
#[test]
fn a_write_is_not_to_a_page_that_could_not_be_read() {
    for more in 0..LEAVING {
        vellum_schedules::sweep_task(1, 0..LOOKING, move |preemption| {
            write_unreadable::<vellum::rmap::Family>(preemption, more);
        });
    }
}

fn write_unreadable<R: ReverseMap>(preemption: &Preemption, more: usize) {
    let shared = Arc::new(Shared::<R>::new(true, "faultaround=1,fileio=pages"));
    let data = [9; SIZE as usize];
    beside_unreadable(&shared, preemption, more, &|_| {
        let written = (shared.world.vm)
            .file(shared.object)
            .write(WriteRequest::bytes(0, &[&data]));
        assert_eq!(written, Ok(data.len()));
    });
    shared.world.store.faults().heal();
    assert_eq!(shared.load_alone(FIRST, 0), Ok(u64::from_le_bytes([9; 8])));
    shared.finish();
}

/// The same of who cuts the object off.
#[test]
fn a_page_that_could_not_be_read_leaves_once() {
    for more in (0..LEAVING).step_by(2) {
        vellum_schedules::sweep_task(1, 0..160, move |preemption| {
            cut_unreadable::<vellum::rmap::Family>(preemption, more);
        });
    }
}

fn cut_unreadable<R: ReverseMap>(preemption: &Preemption, more: usize) {
    let shared = Arc::new(Shared::<R>::new(true, "faultaround=1"));
    let (vm, object) = (&shared.world.vm, shared.object);
    let cut = |_| vm.file(object).set_size(0).unwrap();
    beside_unreadable(&shared, preemption, more, &cut);
    let cached = || vm.file(object).stats().unwrap().cached;
    assert_eq!(shared.world.alone(cached), 0);
    shared.finish();
}

/// Task 1, with its change, stands still while task 0 finds that it cannot read the first page,
/// until that has left the object and `more` accesses were made.
fn beside_unreadable<R: ReverseMap>(
    shared: &Arc<Shared<R>>,
    preemption: &Preemption,
    more: usize,
    change: Task<'_>,
) {
    let world = &shared.world;
    world.store.faults().fail_range(Transfer::Read, 0..1);
    let was_refused = {
        let store = Arc::clone(&world.store);
        move || store.faults().failures() > 0
    };
    let has_left = {
        let (shared, is_over) = (Arc::clone(shared), after(more));
        let stats = move || shared.world.vm.file(shared.object).stats().unwrap();
        move || vellum_schedules::undisturbed(&stats).cached == 0 && is_over()
    };
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(FIRST, 0));
        let gone = [FaultError::Io, FaultError::PastEnd].map(Err);
        assert!(seen.is_ok() || gone.contains(&seen), "{seen:?}");
    };
    let steps = vec![
        Step::until(0, was_refused),
        Step::preempted(preemption),
        Step::until(0, has_left).or_end(),
        Step::end(1),
        Step::end(0),
    ];
    world.run_by(steps, &[&load, change]);
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
            vm.file(shared.object).set_size(pages << 12).unwrap();
        }
    };
    world.run_preempted(preemption, [&load, &cut]);
    for place in [FIRST, SECOND, PRIVATE] {
        assert_eq!(shared.load_alone(place, 0), Ok(0), "at {place:#x}");
    }
    shared.finish();
}

/// What the store has of a page that was cut off is discarded before the file can grow.
fn store_cut<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "faultaround=1");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND + 1, 0));
        let is_old = seen == Ok(pristine(3, 1));
        let fits = is_old || matches!(seen, Ok(0) | Err(FaultError::PastEnd));
        assert!(fits, "{seen:?}");
    };
    let cut = |_| {
        for pages in [1, PAGES] {
            vm.file(shared.object).set_size(pages << 12).unwrap();
        }
    };
    world.run_preempted(preemption, [&load, &cut]);
    for place in [FIRST, SECOND, PRIVATE] {
        assert_eq!(shared.load_alone(place, 0), Ok(pristine(3, 0)));
        assert_eq!(shared.load_alone(place + 1, 0), Ok(0), "at {place:#x}");
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
    let punch = |_| vm.file(shared.object).punch_hole(SIZE, SIZE).unwrap();
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
    let cut = |_| vm.file(shared.object).set_size(1 << 12).unwrap();
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
    let punch = |_| vm.file(shared.object).punch_hole(0, 2 * SIZE).unwrap();
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
            vm.file(shared.object).set_size(pages << 12).unwrap();
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
    world.alone(|| vm.file(shared.object).sync().unwrap());
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
    world.alone(|| vm.file(shared.object).sync().unwrap());
    assert_eq!(vm.platform().store().stored_word(3, 8), Some(7));
    shared.finish();
}

fn map_release<R: ReverseMap>(preemption: &Preemption) {
    let world = World::<R>::new(2, 300, "");
    let (space, object) = world.alone(|| {
        let space = world.space();
        (space, world.memory(PAGES))
    });
    let map = |cpu| {
        let request = MapRequest::object(object, 0, PAGES, RW)
            .shared()
            .at(Placement::Fixed(Vpn(FIRST)));
        if world.vm.space(space).map(&request).is_ok() {
            world.store(cpu, space, at(FIRST, 0), 7).unwrap();
        }
    };
    let release = |_| world.vm.file(object).release().unwrap();
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
