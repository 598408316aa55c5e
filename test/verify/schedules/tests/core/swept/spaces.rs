//! Stores to private pages beside changes of their regions, fork, exit and each other.

use std::sync::Arc;

use vellum::addr::Access;
use vellum::space::RemapPlacement;

use super::*;

swept! {
    a_store_beside_protect_is_before_or_after_it => store_protect;
    a_store_beside_unmap_is_before_or_after_it => store_unmap;
    a_store_beside_an_unmapping_of_a_part_is_before_or_after_it => store_cut;
    a_store_beside_a_move_is_where_its_page_is => store_move;
    a_store_beside_fork_is_before_or_after_it => store_fork;
    a_first_store_beside_fork_is_before_or_after_it => first_store_fork;
    a_store_beside_a_mapping_in_its_place_is_before_or_after_it => store_replace;
    a_store_beside_the_end_of_its_space_leaves_nothing => store_exit;
    a_store_beside_dropped_pages_is_before_or_after_it => store_advise;
    a_store_beside_a_region_that_grows_is_kept => store_grow;
    two_first_stores_are_both_kept => store_store;
    two_copies_of_one_page_are_one => copy_copy;
    a_fault_below_a_region_beside_a_change_finds_nothing => below_change;
    a_first_store_beside_a_cut_reaches_children => first_store_cut;
    first_stores_beside_a_merge_are_both_kept => stores_merge;
    a_first_store_beside_the_end_of_the_next_region_is_kept => store_end;
    a_mapping_beside_the_end_of_its_space_leaves_nothing => map_exit;
    a_store_beside_a_change_of_rights_leaves_its_marks => store_marks;
    a_listing_beside_the_end_of_its_space_shows_no_other => list_exit;
    a_write_by_the_kernel_beside_fork_is_before_or_after_it => kernel_fork;
    a_write_by_the_kernel_beside_unmap_is_before_or_after_it => kernel_unmap;
}

#[test]
fn a_store_beside_a_mapping_in_the_place_of_its_region_leaves_nothing() {
    vellum_schedules::sweep_task(0, 0.., store_replace_all::<vellum::rmap::Family>);
}

/// What regions share is given up by the last.
#[test]
fn a_first_store_beside_the_end_of_a_related_region_is_kept() {
    vellum_schedules::sweep_task(0, 0.., store_end::<vellum::rmap::AnonVma>);
}

/// Two CPUs store to two regions for the first time, one before it knows of the other, while a
/// third makes one region of the two.
#[test]
fn first_stores_to_both_regions_beside_a_merge_are_both_kept() {
    for more in (0..160).step_by(4) {
        vellum_schedules::sweep_task(2, (0..40).step_by(5), move |preemption| {
            both_stores_merge::<vellum::rmap::AnonVma>(preemption, more);
        });
    }
}

/// Two tasks in a space with private pages at [`FIRST`], of which the second task has
/// stored 1 to the first word of those that `touched` names.
fn private<R: ReverseMap>(touched: &[u64]) -> (World<R>, SpaceId) {
    let world = World::<R>::new(2, 300, "");
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, FIRST, 4);
        space
    });
    vellum_schedules::undisturbed(|| {
        let cpu = CpuId(1);
        world.machine().run_on(cpu, || {
            for &page in touched {
                world.store(cpu, space, at(FIRST + page, 0), 1).unwrap();
            }
        });
    });
    (world, space)
}

/// Task 0 stores 2 to the second page, and task 1 does `change`. Returns whether the
/// store was made, and the world for what is left to check.
fn beside_store<R: ReverseMap>(
    preemption: &Preemption,
    touched: &[u64],
    change: impl Fn(&World<R>, SpaceId, CpuId) + Sync,
) -> (Result<(), FaultError>, World<R>, SpaceId) {
    let (world, space) = private::<R>(touched);
    let stored = std::sync::Mutex::new(Ok(()));
    let store = |cpu| {
        let done = world.store(cpu, space, at(FIRST + 1, 0), 2);
        *stored.lock().unwrap() = done;
    };
    let other = |cpu| change(&world, space, cpu);
    world.run_preempted(preemption, [&store, &other]);
    let stored = stored.into_inner().unwrap();
    (stored, world, space)
}

fn store_protect<R: ReverseMap>(preemption: &Preemption) {
    for touched in [&[0, 1][..], &[0]] {
        let (stored, world, space) = beside_store::<R>(preemption, touched, |world, space, _| {
            world
                .vm
                .space(space)
                .protect(Vpn(FIRST + 1), 1, Prot::READ)
                .unwrap();
        });
        assert!(matches!(stored, Ok(()) | Err(FaultError::Protection)));
        let before = touched.len() as u64 - 1;
        let value = if stored.is_ok() { 2 } else { before };
        assert_eq!(load(&world, space, FIRST + 1), Ok(value));
        let again = world.alone(|| world.store(ZERO, space, at(FIRST + 1, 0), 3));
        assert_eq!(again, Err(FaultError::Protection));
        world.finish(&[space], &[]);
    }
}

fn store_unmap<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[], |world, space, _| {
        world.vm.space(space).unmap(Vpn(FIRST), 4).unwrap();
    });
    assert!(matches!(stored, Ok(()) | Err(FaultError::NoRegion)));
    assert_eq!(load(&world, space, FIRST + 1), Err(FaultError::NoRegion));
    let shown = world.alone(|| world.vm.space(space).translate(Vpn(FIRST + 1)));
    assert_eq!(shown, Err(MapError::NotMapped));
    world.finish(&[space], &[]);
}

fn store_cut<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0, 2], |world, space, cpu| {
        world.vm.space(space).unmap(Vpn(FIRST + 1), 2).unwrap();
        assert_eq!(world.load(cpu, space, at(FIRST, 0)), Ok(1));
        assert_eq!(world.load(cpu, space, at(FIRST + 3, 0)), Ok(0));
    });
    assert!(matches!(stored, Ok(()) | Err(FaultError::NoRegion)));
    let shown = world.alone(|| world.vm.space(space).translate(Vpn(FIRST + 1)));
    assert_eq!(shown, Err(MapError::NotMapped));
    world.finish(&[space], &[]);
}

fn store_move<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0], |world, space, _| {
        let to = RemapPlacement::Fixed(Vpn(SECOND));
        world.vm.space(space).remap(Vpn(FIRST), 4, 4, to).unwrap();
    });
    assert!(matches!(stored, Ok(()) | Err(FaultError::NoRegion)));
    let value = if stored.is_ok() { 2 } else { 0 };
    assert_eq!(load(&world, space, SECOND + 1), Ok(value));
    assert_eq!(load(&world, space, SECOND), Ok(1));
    world.finish(&[space], &[]);
}

fn fork_beside_store<R: ReverseMap>(preemption: &Preemption, touched: &[u64]) {
    let before = touched.contains(&1) as u64;
    let child = Cell::new(None);
    let child = std::sync::Mutex::new(child);
    let (stored, world, space) = beside_store::<R>(preemption, touched, |world, space, cpu| {
        let forked = world.vm.space(space).fork().unwrap().id();
        let seen = world.load(cpu, forked, at(FIRST + 1, 0));
        assert!(seen == Ok(before) || seen == Ok(2));
        child.lock().unwrap().set(Some((forked, seen)));
    });
    assert_eq!(stored, Ok(()));
    let (child, seen) = child.into_inner().unwrap().get().unwrap();
    world.alone(|| world.store(ZERO, space, at(FIRST + 1, 0), 3).unwrap());
    assert_eq!(load(&world, child, FIRST + 1), seen, "the parent's store");
    assert_eq!(load(&world, space, FIRST + 1), Ok(3));
    world.finish(&[space, child], &[]);
}

fn store_fork<R: ReverseMap>(preemption: &Preemption) {
    fork_beside_store::<R>(preemption, &[0, 1]);
}

fn first_store_fork<R: ReverseMap>(preemption: &Preemption) {
    fork_beside_store::<R>(preemption, &[]);
}

fn store_replace<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0, 1], |world, space, _| {
        let other = MapRequest::anonymous(2, RW.union(Prot::EXECUTE));
        let request = other.at(Placement::Fixed(Vpn(FIRST)));
        world.vm.space(space).map(&request).unwrap();
    });
    assert_eq!(stored, Ok(()));
    assert!(matches!(load(&world, space, FIRST + 1), Ok(0 | 2)));
    assert_eq!(load(&world, space, FIRST), Ok(0));
    world.finish(&[space], &[]);
}

/// The region has no page, so that there is nothing to clear.
fn store_replace_all<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[], |world, space, _| {
        let request = MapRequest::anonymous(4, Prot::READ).at(Placement::Fixed(Vpn(FIRST)));
        world.vm.space(space).map(&request).unwrap();
    });
    assert!(matches!(stored, Ok(()) | Err(FaultError::Protection)));
    assert_eq!(load(&world, space, FIRST + 1), Ok(0));
    let again = world.alone(|| world.store(ZERO, space, at(FIRST + 1, 0), 3));
    assert_eq!(again, Err(FaultError::Protection));
    world.finish(&[space], &[]);
}

fn store_exit<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0], |world, space, cpu| {
        while world.vm.space(space).exit() == Ok(false) {}
        // The CPU goes on with another space in the same place.
        let next = world.space();
        world.anonymous(next, FIRST, 4);
        world.store(cpu, next, at(FIRST + 1, 0), 5).unwrap();
        assert_eq!(world.load(cpu, next, at(FIRST, 0)), Ok(0));
        assert_eq!(world.load(cpu, next, at(FIRST + 1, 0)), Ok(5));
        while world.vm.space(next).exit() == Ok(false) {}
    });
    let gone = [FaultError::NoSpace, FaultError::NoRegion].map(Err);
    assert!(stored.is_ok() || gone.contains(&stored), "{stored:?}");
    world.finish(&[], &[]);
    drop((world, space));
}

/// Another page stays, and with it the table: no CPU walks one that is not linked any more
/// until the flush.
fn store_advise<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0, 1, 3], |world, space, _| {
        world
            .vm
            .space(space)
            .advise(Vpn(FIRST), 2, Advice::DontNeed)
            .unwrap();
    });
    assert_eq!(stored, Ok(()));
    assert!(matches!(load(&world, space, FIRST + 1), Ok(0 | 2)));
    assert_eq!(load(&world, space, FIRST), Ok(0));
    world.finish(&[space], &[]);
}

/// The new pages follow, and join the region.
fn store_grow<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0], |world, space, cpu| {
        for place in [FIRST + 4, FIRST - 4] {
            world.anonymous(space, place, 4);
            world.store(cpu, space, at(place, 0), 4).unwrap();
        }
    });
    assert_eq!(stored, Ok(()));
    for (page, value) in [(1, 2), (0, 1), (4, 4), (7, 0)] {
        assert_eq!(load(&world, space, FIRST + page), Ok(value));
    }
    assert_eq!(load(&world, space, FIRST - 4), Ok(4));
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    for (page, value) in [(1, 2), (0, 1), (4, 4)] {
        assert_eq!(load(&world, child, FIRST + page), Ok(value));
    }
    world.finish(&[space, child], &[]);
}

fn store_store<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[], |world, space, cpu| {
        world.load(cpu, space, at(FIRST + 1, 0)).unwrap();
        world.store(cpu, space, at(FIRST + 1, 1), 4).unwrap();
    });
    assert_eq!(stored, Ok(()));
    assert_eq!(load(&world, space, FIRST + 1), Ok(2));
    let other = world.alone(|| world.load(ZERO, space, at(FIRST + 1, 1)));
    assert_eq!(other, Ok(4));
    world.finish(&[space], &[]);
}

/// What a child has seen of a page stays what it sees.
fn kernel_fork<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[1]);
    let (child, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let write = |_| {
        let data = 2u64.to_ne_bytes();
        assert_eq!(world.vm.space(space).write(at(FIRST + 1, 0), &data), Ok(8));
    };
    let fork = |cpu: CpuId| {
        let forked = world.vm.space(space).fork().unwrap().id();
        child.store(forked.to_bits(), Ordering::Relaxed);
        seen.store(
            world.load(cpu, forked, at(FIRST + 1, 0)).unwrap(),
            Ordering::Relaxed,
        );
    };
    world.run_preempted(preemption, [&write, &fork]);
    let child = SpaceId::from_bits(child.into_inner());
    assert_eq!(load(&world, space, FIRST + 1), Ok(2));
    assert_eq!(load(&world, child, FIRST + 1), Ok(seen.into_inner()));
    world.finish(&[space, child], &[]);
}

fn kernel_unmap<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[1]);
    let write = |_| match world.vm.space(space).write(at(FIRST + 1, 0), &[2; 8]) {
        Ok(8) | Err(FaultError::NoRegion) => {}
        other => panic!("{other:?}"),
    };
    let unmap = |cpu: CpuId| {
        world.vm.space(space).unmap(Vpn(FIRST + 1), 1).unwrap();
        world.anonymous(space, FIRST + 1, 1);
        assert_eq!(world.load(cpu, space, at(FIRST + 1, 1)), Ok(0));
    };
    world.run_preempted(preemption, [&write, &unmap]);
    world.finish(&[space], &[]);
}

fn copy_copy<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[1]);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let store = |cpu: CpuId| {
        let word = 1 + u64::from(cpu.0);
        world.store(cpu, space, at(FIRST + 1, word), 7).unwrap();
    };
    world.run_preempted(preemption, [&store, &store]);
    world.alone(|| {
        for (word, value) in [(0, 1), (1, 7), (2, 7)] {
            assert_eq!(world.load(ZERO, space, at(FIRST + 1, word)), Ok(value));
        }
        for (word, value) in [(0, 1), (1, 0), (2, 0)] {
            assert_eq!(world.load(ZERO, child, at(FIRST + 1, word)), Ok(value));
        }
    });
    world.finish(&[space, child], &[]);
}

fn below_change<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[0]);
    let fault = |cpu| {
        let stored = world.store(cpu, space, at(FIRST - 1, 0), 2);
        assert_eq!(stored, Err(FaultError::NoRegion));
    };
    let change = |_| {
        for prot in [Prot::READ, RW] {
            world.vm.space(space).protect(Vpn(FIRST), 1, prot).unwrap();
        }
    };
    world.run_preempted(preemption, [&fault, &change]);
    world.finish(&[space], &[]);
}

/// The store is to the second part of the region that is cut.
fn first_store_cut<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[], |world, space, _| {
        world
            .vm
            .space(space)
            .protect(Vpn(FIRST), 1, Prot::READ)
            .unwrap();
    });
    assert_eq!(stored, Ok(()));
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    assert_eq!(load(&world, child, FIRST + 1), Ok(2));
    world.finish(&[space, child], &[]);
}

/// Two regions, each stored to for the first time, become one.
fn stores_merge<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[]);
    let all = Prot::READ_WRITE.union(Prot::EXECUTE);
    world.alone(|| world.vm.space(space).protect(Vpn(FIRST), 2, all).unwrap());
    let stores = |cpu| {
        for page in [0, 3] {
            world.store(cpu, space, at(FIRST + page, 0), 2).unwrap();
        }
    };
    let merge = |_| world.vm.space(space).protect(Vpn(FIRST), 2, RW).unwrap();
    world.run_preempted(preemption, [&stores, &merge]);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    for page in [0, 3] {
        assert_eq!(load(&world, space, FIRST + page), Ok(2));
        assert_eq!(load(&world, child, FIRST + page), Ok(2));
    }
    world.finish(&[space, child], &[]);
}

fn both_stores_merge<R: ReverseMap>(preemption: &Preemption, more: usize) {
    let world = Arc::new(World::<R>::new(3, 300, ""));
    let all = Prot::READ_WRITE.union(Prot::EXECUTE);
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, FIRST, 4);
        world.vm.space(space).protect(Vpn(FIRST), 2, all).unwrap();
        world.load(ZERO, space, at(FIRST + 1, 0)).unwrap();
        space
    });
    // Right before the regions are looked at that are alike now.
    let is_protected = {
        let world = Arc::clone(&world);
        move || {
            let shown = || world.vm.space(space).translate(Vpn(FIRST + 1));
            let shown = vellum_schedules::undisturbed(shown);
            shown.is_ok_and(|(_, prot)| !prot.allows(Access::Execute))
        }
    };
    let store = |cpu: CpuId| {
        let page = [FIRST + 3, FIRST][usize::from(cpu.0)];
        world.store(cpu, space, at(page, 0), 2).unwrap();
    };
    let merge = |_| world.vm.space(space).protect(Vpn(FIRST), 2, RW).unwrap();
    let steps = vec![
        Step::until(0, after(more)).or_end(),
        Step::until(2, is_protected),
        Step::preempted(preemption),
        Step::end(1),
        Step::end(2),
        Step::end(0),
    ];
    world.run_by(steps, &[&store, &store, &merge]);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    for page in [0, 3] {
        assert_eq!(load(&world, space, FIRST + page), Ok(2));
        assert_eq!(load(&world, child, FIRST + page), Ok(2));
    }
    world.finish(&[space, child], &[]);
}

/// Neighbours with different rights share what the design keeps for regions; one ends
/// as the other is stored to for the first time.
fn store_end<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[]);
    let all = Prot::READ_WRITE.union(Prot::EXECUTE);
    world.alone(|| {
        world
            .vm
            .space(space)
            .protect(Vpn(FIRST + 1), 3, all)
            .unwrap();
        world.store(ZERO, space, at(FIRST, 0), 1).unwrap();
        // Keeps the table: no CPU walks one that is not linked any more until the flush.
        world.anonymous(space, FIRST + 8, 1);
        world.store(ZERO, space, at(FIRST + 8, 0), 1).unwrap();
    });
    let store = |cpu| world.store(cpu, space, at(FIRST + 1, 0), 2).unwrap();
    let end = |cpu| {
        world.vm.space(space).unmap(Vpn(FIRST), 1).unwrap();
        // What it leaves is used anew.
        world.anonymous(space, SECOND, 1);
        world.store(cpu, space, at(SECOND, 0), 3).unwrap();
    };
    world.run_preempted(preemption, [&store, &end]);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    assert_eq!(load(&world, child, FIRST + 1), Ok(2));
    assert_eq!(load(&world, child, SECOND), Ok(3));
    world.alone(|| world.vm.audit().unwrap());
    world.finish(&[space, child], &[]);
}

fn map_exit<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[0]);
    let map = |_| {
        let request = MapRequest::anonymous(2, RW).at(Placement::Fixed(Vpn(SECOND)));
        let mapped = world.vm.space(space).map(&request);
        assert!(
            matches!(mapped, Ok(_) | Err(MapError::NoSpace)),
            "{mapped:?}"
        );
    };
    let exit = |_| while world.vm.space(space).exit() == Ok(false) {};
    world.run_preempted(preemption, [&map, &exit]);
    world.finish(&[], &[]);
}

/// The processor marks an entry that no fault has marked, while the right to execute is
/// added: lost marks would have it do so once more.
fn store_marks<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[0]);
    let first = Vpn(FIRST);
    world.alone(|| {
        world
            .vm
            .space(space)
            .advise(first, 1, Advice::Free)
            .unwrap()
    });
    let store = |cpu| world.store(cpu, space, at(FIRST, 0), 2).unwrap();
    let all = RW.union(Prot::EXECUTE);
    let protect = |_| world.vm.space(space).protect(first, 1, all).unwrap();
    world.run_preempted(preemption, [&store, &protect]);
    let marked = || world.machine().stats().dirty_set;
    let before = marked();
    world.alone(|| world.store(ZERO, space, at(FIRST, 0), 3).unwrap());
    assert_eq!(marked(), before, "a mark was lost");
    world.finish(&[space], &[]);
}

fn list_exit<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[0]);
    let list = |_| {
        let mut starts = Vec::new();
        let listed = world
            .vm
            .space(space)
            .for_each_region(|region| starts.push(region.range.start));
        let all: &[Vpn] = if listed.is_ok() { &[Vpn(FIRST)] } else { &[] };
        assert_eq!(starts, all);
        assert!(
            matches!(listed, Ok(()) | Err(MapError::NoSpace)),
            "{listed:?}"
        );
    };
    let next = std::sync::Mutex::new(None);
    let exit = |_| {
        while world.vm.space(space).exit() == Ok(false) {}
        let other = world.space();
        world.anonymous(other, SECOND, 2);
        *next.lock().unwrap() = Some(other);
    };
    world.run_preempted(preemption, [&list, &exit]);
    let next = next.into_inner().unwrap().unwrap();
    world.finish(&[next], &[]);
}
