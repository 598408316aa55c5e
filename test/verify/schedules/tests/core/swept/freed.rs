//! Stores to pages that were freed: nobody drops a page that was stored to since.

use super::*;

swept! {
    a_store_to_a_freed_page_beside_reclaim_stays => store_reclaim;
    a_store_to_a_freed_page_beside_a_fork_by_another_task_stays => store_fork;
    a_store_to_a_freed_page_beside_a_fork_from_outside_stays => store_fork_outside;
}

/// A space with one user and a page at [`PRIVATE`] that holds 1 and was freed. Behind it is one
/// that has the table stay.
fn freed<R: ReverseMap>() -> (World<R>, SpaceId) {
    let world = World::<R>::new(2, 300, "reclaim=on");
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, PRIVATE, 2);
        for page in [PRIVATE, PRIVATE + 1] {
            world.store(ZERO, space, at(page, 0), 1).unwrap();
        }
        let freed = (world.vm)
            .space(space)
            .advise(Vpn(PRIVATE), 1, Advice::Free);
        freed.unwrap();
        space
    });
    (world, space)
}

/// Task 0 does `change`, and task 1 stores to the page, which reclaim leaves from then on.
fn beside_store<R: ReverseMap>(
    preemption: &Preemption,
    (world, space): (World<R>, SpaceId),
    change: impl Fn(&World<R>, SpaceId) + Sync,
) {
    let change = |_| change(&world, space);
    let store = |cpu| world.store(cpu, space, at(PRIVATE, 0), 2).unwrap();
    world.run_preempted(preemption, [&change, &store]);
    assert_eq!(world.alone(|| world.vm.reclaim_pages(1)), 0);
    assert_eq!(load(&world, space, PRIVATE), Ok(2));
    world.alone(|| while world.vm.space(space).exit() == Ok(false) {});
    world.finish(&[], &[]);
}

fn store_reclaim<R: ReverseMap>(preemption: &Preemption) {
    beside_store(preemption, freed::<R>(), |world, _| {
        world.vm.reclaim_pages(1);
    });
}

fn fork_and_end<R: ReverseMap>(world: &World<R>, space: SpaceId) {
    let child = world.vm.space(space).fork().unwrap().id();
    assert_eq!(world.vm.space(child).exit(), Ok(true));
}

fn store_fork<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = freed::<R>();
    world.alone(|| world.vm.space(space).share().unwrap());
    beside_store(preemption, (world, space), fork_and_end);
}

/// The only task of the space, which runs already when the other CPU begins to copy it.
fn store_fork_outside<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = freed::<R>();
    vellum_schedules::undisturbed(|| {
        world.machine().run_on(CpuId(1), || {
            world.vm.space(space).load().unwrap();
        });
    });
    beside_store(preemption, (world, space), fork_and_end);
}
