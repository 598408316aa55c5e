//! Visits of a page by reverse mapping beside spaces that come and go: a mapping that
//! nobody touches is found.

use vellum::addr::PageRange;

use super::*;
use crate::rmap::{family, finds, put};

swept! {
    a_mapping_is_found_beside_the_end_of_a_relative => visit_exit;
    a_mapping_is_found_beside_the_end_of_the_space_that_made_the_page => visit_first_exit;
    a_mapping_is_found_beside_a_copy_of_a_relative => visit_copy;
}

/// The page names a space that has ended; it is in no list of spaces any more when another visit
/// has let the page name one that maps it.
#[test]
fn a_mapping_is_found_beside_the_end_of_the_member_that_its_page_names() {
    vellum_schedules::sweep_task(0, 0.., visit_turned::<vellum::rmap::Anonmm>);
}

/// Several may look at a list of entries, and nobody changes it meanwhile.
#[test]
fn lists_that_are_looked_at_stay_as_they_are() {
    vellum_schedules::sweep_task(0, 0.., visit_cut::<vellum::rmap::Pv>);
}

/// Task 0 looks for the mapping that `stays` of a family has of a page, of the oldest, its
/// child and its grandchild, while task 1 does `change` to them.
fn beside_visit<R: ReverseMap>(
    preemption: &Preemption,
    stays: usize,
    change: impl Fn(&World<R>, &[SpaceId; 3], CpuId) + Sync,
    left: &[usize],
) {
    let world = World::<R>::new(2, 300, "");
    let (oldest, frames) = family(&world);
    let spaces = world.alone(|| {
        let child = world.vm.space(oldest).fork().unwrap().id();
        [oldest, child, world.vm.space(child).fork().unwrap().id()]
    });
    let visit = |_| {
        let (found, hits) = finds(&world, frames[0], spaces[stays], FIRST);
        assert!(found, "missed, {hits} others found");
    };
    let change = |cpu| change(&world, &spaces, cpu);
    world.run_preempted(preemption, [&visit, &change]);
    let (found, _) = world.alone(|| finds(&world, frames[0], spaces[stays], FIRST));
    assert!(found, "missed afterwards");
    put(&world, &frames);
    let left: Vec<SpaceId> = left.iter().map(|&space| spaces[space]).collect();
    world.finish(&left, &[]);
}

fn visit_exit<R: ReverseMap>(preemption: &Preemption) {
    let exit = |world: &World<R>, spaces: &[SpaceId; 3], _| {
        assert_eq!(world.vm.space(spaces[1]).exit(), Ok(true));
    };
    for (stays, left) in [(0, [0, 2]), (2, [0, 2])] {
        beside_visit(preemption, stays, exit, &left);
    }
}

fn visit_first_exit<R: ReverseMap>(preemption: &Preemption) {
    let exit = |world: &World<R>, spaces: &[SpaceId; 3], cpu| {
        assert_eq!(world.vm.space(spaces[0]).exit(), Ok(true));
        // What it leaves is used anew.
        let other = world.space();
        world.anonymous(other, FIRST, 1);
        world.store(cpu, other, at(FIRST, 0), 3).unwrap();
        assert_eq!(world.vm.space(other).exit(), Ok(true));
    };
    beside_visit(preemption, 2, exit, &[1, 2]);
}

fn visit_copy<R: ReverseMap>(preemption: &Preemption) {
    let copy = |world: &World<R>, spaces: &[SpaceId; 3], cpu| {
        for space in &spaces[..2] {
            world.store(cpu, *space, at(FIRST, 0), 3).unwrap();
        }
    };
    beside_visit(preemption, 2, copy, &[0, 1, 2]);
}

fn visit_turned<R: ReverseMap>(preemption: &Preemption) {
    let world = World::<R>::new(2, 300, "");
    let (spaces, frame) = world.alone(|| {
        let first = world.space();
        world.anonymous(first, FIRST, 1);
        let maker = world.vm.space(first).fork().unwrap().id();
        world.store(ZERO, maker, at(FIRST, 0), 1).unwrap();
        let heir = world.vm.space(maker).fork().unwrap().id();
        let frame = world.vm.space(heir).translate(Vpn(FIRST)).unwrap().0;
        ([first, maker, heir], frame)
    });
    let [first, maker, heir] = spaces;
    let visit = |_| {
        let (found, hits) = finds(&world, frame, heir, FIRST);
        assert!(found, "missed, {hits} others found");
    };
    let others = std::sync::Mutex::new(Vec::new());
    let turn = |cpu| {
        assert_eq!(world.vm.space(maker).exit(), Ok(true));
        visit(cpu);
        // What the member left is used anew.
        let other = world.space();
        others
            .lock()
            .unwrap()
            .extend([other, world.vm.space(other).fork().unwrap().id()]);
    };
    world.run_preempted(preemption, [&visit, &turn]);
    let left = [&[first, heir], &others.into_inner().unwrap()[..]].concat();
    world.finish(&left, &[]);
}

fn visit_cut<R: ReverseMap>(preemption: &Preemption) {
    let world = World::<R>::new(2, 300, "pvlock=byte-shared");
    let (space, object) = world.alone(|| {
        let space = world.space();
        let object = world.memory(PAGES);
        for place in [FIRST, SECOND, PRIVATE] {
            world.object(space, object, 0, place, PAGES, true);
            world.store(ZERO, space, at(place, 0), 1).unwrap();
        }
        (space, object)
    });
    let visit = |_| {
        let report = world.vm.space(space).scan(PageRange::new(Vpn(FIRST), 1));
        assert!(report.unwrap().hits <= 3);
    };
    let cut = |_| world.vm.file(object).set_size(0).unwrap();
    world.run_preempted(preemption, [&visit, &cut]);
    world.finish(&[space], &[object]);
}
