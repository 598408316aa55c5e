//! Races that are known, each by a script that makes it happen.

use std::cell::Cell;
use std::sync::Arc;

use crate::world::{RW, World, at};
use vellum::addr::{Prot, Vpn};
use vellum::frame::{FailAt, Site};
use vellum::platform::{CpuId, Machine};
use vellum::rmap::ReverseMap;
use vellum::space::{FaultError, MapError, MapRequest, Placement};
use vellum_schedules::Step;

const ZERO: CpuId = CpuId(0);
const PAGE: u64 = 0x1000;

scripted! {
    a_page_on_its_way_out_of_a_child_is_not_the_parents_yet => unmapped_beside_store;
    a_mapping_that_replaces_another_is_what_every_cpu_sees => replaced_beside_warm_cpu;
    pages_dropped_beside_a_store_of_the_parent_stay_what_they_were => dropped_beside_store;
    an_unmapping_waits_for_the_first_store_to_its_region => unmapped_beside_first_store;
    tables_that_others_free_before_memory_runs_out_are_counted => tables_freed_before_failure;
    a_page_dropped_while_a_store_copies_it_stays_dropped => dropped_beside_copy;
    a_page_that_became_its_threads_own_is_not_copied => own_beside_copy;
}

/// A child on two CPUs: one takes a page out of it and stands still as the flush
/// begins, while the other can still load it. The parent stores: not to that
/// frame, which is in use until the flush is over.
fn taken_beside_store<R: ReverseMap>(take: fn(&World<R>, vellum::SpaceId)) {
    let world = Arc::new(World::<R>::new(3, 256, ""));
    let (parent, child) = world.alone(|| {
        let parent = world.space();
        world.anonymous(parent, PAGE, 1);
        world.store(ZERO, parent, at(PAGE, 0), 1).unwrap();
        let child = world.vm.space(parent).fork().unwrap().id();
        world.vm.space(child).share().unwrap();
        (parent, child)
    });
    let (warm, cold) = (CpuId(2), CpuId(1));
    for cpu in [warm, cold] {
        vellum_schedules::undisturbed(|| {
            world.machine().run_on(cpu, || {
                assert_eq!(world.load(cpu, child, at(PAGE, 0)), Ok(1));
            });
        });
    }
    let flushes = world.machine().stats().flush_requests;
    let flushing = {
        let world = Arc::clone(&world);
        move || world.flushes_since(flushes)
    };
    let store = |cpu| world.store(cpu, parent, at(PAGE, 0), 2).unwrap();
    let unmap = |_| take(&world, child);
    let look = |cpu| {
        let seen = world.load(cpu, child, at(PAGE, 0));
        let gone = [Ok(0), Err(FaultError::NoRegion)].contains(&seen);
        assert!(
            seen == Ok(1) || gone,
            "the child sees {seen:?} of its parent"
        );
    };
    let steps = vec![
        Step::until(1, flushing),
        Step::end(0),
        Step::end(2),
        Step::end(1),
    ];
    world.run_by(steps, &[&store, &unmap, &look]);
    world.finish(&[parent, child], &[]);
}

fn unmapped_beside_store<R: ReverseMap>() {
    taken_beside_store::<R>(|world, child| world.vm.space(child).unmap(Vpn(PAGE), 1).unwrap());
}

fn dropped_beside_store<R: ReverseMap>() {
    taken_beside_store::<R>(|world, child| {
        let advice = vellum::space::Advice::DontNeed;
        world.vm.space(child).advise(Vpn(PAGE), 1, advice).unwrap();
    });
}

/// One CPU puts a mapping in the place of another; as its flush begins, a second
/// stores to the new one if it finds it. A third, which has the old page in its
/// TLB, must not go on reading that once the store is done.
fn replaced_beside_warm_cpu<R: ReverseMap>() {
    let world = Arc::new(World::<R>::new(3, 256, ""));
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, PAGE, 1);
        space
    });
    let warm = CpuId(2);
    vellum_schedules::undisturbed(|| {
        world.machine().run_on(warm, || {
            world.store(warm, space, at(PAGE, 0), 1).unwrap();
        });
    });
    let flushes = world.machine().stats().flush_requests;
    let flushing = {
        let world = Arc::clone(&world);
        move || world.flushes_since(flushes)
    };
    let replace = |_| {
        let other = MapRequest::anonymous(1, RW.union(Prot::EXECUTE));
        let request = other.at(Placement::Fixed(Vpn(PAGE)));
        world.vm.space(space).map(&request).unwrap();
    };
    let store = |cpu| world.store(cpu, space, at(PAGE, 0), 2).unwrap();
    let look = |cpu| assert_eq!(world.load(cpu, space, at(PAGE, 0)), Ok(2), "an old page");
    let steps = vec![
        Step::until(0, flushing),
        Step::end(1),
        Step::end(2),
        Step::end(0),
    ];
    world.run_by(steps, &[&replace, &store, &look]);
    world.finish(&[space], &[]);
}

/// A region that nobody has touched. A store has its frame and has not filled the
/// entry yet when the region is unmapped: the unmapping may not take the region for
/// an untouched one, after which nobody would clear the entry.
fn unmapped_beside_first_store<R: ReverseMap>() {
    let world = Arc::new(World::<R>::new(2, 256, ""));
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        // Keeps the table that both use.
        world.anonymous(space, PAGE + 8, 1);
        world.store(ZERO, space, at(PAGE + 8, 0), 1).unwrap();
        world.anonymous(space, PAGE, 1);
        space
    });
    let allocs = |world: &World<R>| world.vm.memory().stats().allocs;
    let before = allocs(&world);
    let has_frame = {
        let world = Arc::clone(&world);
        move || allocs(&world) > before
    };
    let store = |cpu| {
        let stored = world.store(cpu, space, at(PAGE, 0), 2);
        assert!(stored.is_ok() || stored == Err(FaultError::NoRegion));
    };
    let unmap = |_| world.vm.space(space).unmap(Vpn(PAGE), 1).unwrap();
    let steps = vec![Step::until(0, has_frame), Step::end(1), Step::end(0)];
    world.run_by(steps, &[&store, &unmap]);
    world.alone(|| {
        assert_eq!(
            world.vm.space(space).translate(Vpn(PAGE)),
            Err(MapError::NotMapped),
            "a page stayed"
        );
    });
    world.finish(&[space], &[]);
}

/// A store links the tables for its page and stands still before it locks the
/// lowest. Another thread uses that for a page of its own, unmaps it, and frees the
/// empty tables. The store makes tables again, and there is no memory for them: those
/// that it made first count as made, as they count as freed.
fn tables_freed_before_failure<R: ReverseMap>() {
    let world = Arc::new(World::<R>::new(2, 256, ""));
    let (space, root) = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, PAGE, 1);
        world.anonymous(space, PAGE + 8, 1);
        (space, world.vm.space(space).load().unwrap().root)
    });
    world.vm.memory().inject(Some(FailAt {
        site: Site::TablePage,
        after: 3,
    }));
    let accesses = Cell::new(0);
    let has_linked = {
        let world = Arc::clone(&world);
        move || {
            let first = world.machine().frame(root).cast::<u64>();
            // SAFETY: the root stays for as long as the space, and no task runs
            // while a condition is looked at.
            let is_linked = unsafe { first.read_volatile() } != 0;
            accesses.set(accesses.get() + u32::from(is_linked));
            // With the next two it counts the entry and lets go of the root.
            accesses.get() > 2
        }
    };
    let store = |cpu| {
        let stored = world.store(cpu, space, at(PAGE, 0), 2);
        assert_eq!(stored, Err(FaultError::OutOfMemory));
    };
    let pass = |cpu| {
        world.store(cpu, space, at(PAGE + 8, 0), 2).unwrap();
        world.vm.space(space).unmap(Vpn(PAGE + 8), 1).unwrap();
    };
    let steps = vec![Step::until(0, has_linked), Step::end(1), Step::end(0)];
    world.run_by(steps, &[&store, &pass]);
    world.vm.memory().inject(None);
    let bytes = world.vm.space(space).stats().unwrap().table_bytes;
    assert_eq!(bytes, 4096, "the root is left");
    world.finish(&[space], &[]);
}

/// A store to a page that a child shows too has the frame for its copy, and stands
/// still while another CPU drops the page and reads a zero in its place. The store
/// goes to that, not to a copy of what was dropped.
fn dropped_beside_copy<R: ReverseMap>() {
    let world = Arc::new(World::<R>::new(2, 256, ""));
    let (parent, child) = world.alone(|| {
        let parent = world.space();
        world.vm.space(parent).share().unwrap();
        // The second page keeps the table in its place.
        world.anonymous(parent, PAGE, 2);
        for page in [PAGE, PAGE + 1] {
            world.store(ZERO, parent, at(page, 0), 1).unwrap();
        }
        let child = world.vm.space(parent).fork().unwrap().id();
        (parent, child)
    });
    let allocs = |world: &World<R>| world.vm.memory().stats().allocs;
    let before = allocs(&world);
    let has_frame = {
        let world = Arc::clone(&world);
        move || allocs(&world) > before
    };
    let store = |cpu| world.store(cpu, parent, at(PAGE, 1), 2).unwrap();
    let drop_page = |cpu| {
        let advice = vellum::space::Advice::DontNeed;
        world.vm.space(parent).advise(Vpn(PAGE), 1, advice).unwrap();
        assert_eq!(world.load(cpu, parent, at(PAGE, 0)), Ok(0));
    };
    let steps = vec![Step::until(0, has_frame), Step::end(1), Step::end(0)];
    world.run_by(steps, &[&store, &drop_page]);
    world.alone(|| {
        assert_eq!(world.load(ZERO, parent, at(PAGE, 0)), Ok(0), "it came back");
        assert_eq!(world.load(ZERO, parent, at(PAGE, 1)), Ok(2));
        assert_eq!(world.load(ZERO, child, at(PAGE, 0)), Ok(1));
    });
    world.finish(&[parent, child], &[]);
}

/// A store to a page that a child shows too has the frame for its copy, and stands
/// still while the child ends and another thread stores to the page where it is. The
/// first store follows there: a copy might miss what the other thread stores meanwhile.
fn own_beside_copy<R: ReverseMap>() {
    let world = Arc::new(World::<R>::new(2, 256, ""));
    let (parent, child, frame) = world.alone(|| {
        let parent = world.space();
        world.vm.space(parent).share().unwrap();
        world.anonymous(parent, PAGE, 1);
        world.store(ZERO, parent, at(PAGE, 0), 1).unwrap();
        let (frame, _) = world.vm.space(parent).translate(Vpn(PAGE)).unwrap();
        (parent, world.vm.space(parent).fork().unwrap().id(), frame)
    });
    let allocs = |world: &World<R>| world.vm.memory().stats().allocs;
    let before = allocs(&world);
    let has_frame = {
        let world = Arc::clone(&world);
        move || allocs(&world) > before
    };
    let store = |cpu| world.store(cpu, parent, at(PAGE, 1), 2).unwrap();
    let own = |cpu| {
        assert_eq!(world.vm.space(child).exit(), Ok(true));
        world.store(cpu, parent, at(PAGE, 0), 3).unwrap();
    };
    let steps = vec![Step::until(0, has_frame), Step::end(1), Step::end(0)];
    world.run_by(steps, &[&store, &own]);
    world.alone(|| {
        let (now, _) = world.vm.space(parent).translate(Vpn(PAGE)).unwrap();
        assert_eq!(now, frame, "it was copied");
        assert_eq!(world.load(ZERO, parent, at(PAGE, 0)), Ok(3));
        assert_eq!(world.load(ZERO, parent, at(PAGE, 1)), Ok(2));
    });
    world.finish(&[parent], &[]);
}
