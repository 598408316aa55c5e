//! Calls and faults in a tract beside who makes tracts, ends them, or changes the same one.

use super::*;

swept! {
    a_mapping_whose_tract_ends_is_where_others_find_it => map_beside_union;
    a_mapping_whose_tract_is_divided_is_where_others_find_it => map_beside_division;
    an_unmapping_whose_tract_ends_leaves_nothing => unmap_beside_union;
    a_fault_in_a_tract_that_loses_another_region_finds_its_own => fault_beside_unmapping;
    a_fault_in_a_tract_that_gets_another_region_finds_its_own => fault_beside_mapping;
    a_mapping_in_tracts_beside_the_end_of_the_space_leaves_nothing => map_beside_exit;
}

/// Where a tract begins, and one may.
const CUT: u64 = 0x2000;
const FURTHER: u64 = 0x2200;

/// Two tasks in a space that is divided, with a page on either side.
fn divided<R: ReverseMap>() -> (World<R>, SpaceId) {
    let world = World::<R>::new(2, 300, "");
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        for page in [FIRST, CUT, FURTHER + 8] {
            world.anonymous(space, page, 1);
        }
        assert_eq!(world.vm.space(space).divide(Vpn(CUT)), Ok(true));
        space
    });
    (world, space)
}

fn unite<R: ReverseMap>(world: &World<R>, space: SpaceId) {
    world.vm.space(space).set_heap_end(Vpn(0)).unwrap();
}

/// Whether the pages that are mapped, and no others, can be used.
fn check<R: ReverseMap>(world: World<R>, space: SpaceId, mapped: &[u64]) {
    world.audit();
    for &page in mapped {
        vellum_schedules::undisturbed(|| {
            let task = || world.load(ZERO, space, at(page, 0));
            assert_eq!(world.machine().run_on(ZERO, task), Ok(0), "{page:#x}");
        });
    }
    let regions = world.alone(|| world.vm.space(space).stats().unwrap().regions);
    assert_eq!(regions, mapped.len() as u32);
    world.finish(&[space], &[]);
}

fn map_beside_union<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = divided::<R>();
    let map = |_| world.anonymous(space, FURTHER, 2);
    world.run_preempted(preemption, [&map, &|_| unite(&world, space)]);
    check(world, space, &[FIRST, CUT, FURTHER, FURTHER + 8]);
}

fn map_beside_division<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = divided::<R>();
    let map = |_| world.anonymous(space, FURTHER, 2);
    let divide = |_| {
        assert_eq!(world.vm.space(space).divide(Vpn(FURTHER)), Ok(true));
    };
    world.run_preempted(preemption, [&map, &divide]);
    check(world, space, &[FIRST, CUT, FURTHER, FURTHER + 8]);
}

/// The tract that a mapping is about to lock ends, and becomes one of another space. Another task
/// maps meanwhile in the first space, which has no tracts any more. The window is several accesses
/// wide for both tasks, so not each of them is tried.
#[test]
fn a_mapping_whose_tract_goes_to_another_space_changes_its_own_alone() {
    for more in (0..120).step_by(10) {
        vellum_schedules::sweep_task(0, (0..60).step_by(2), move |preemption| {
            map_beside_reuse::<vellum::rmap::Family>(preemption, more);
        });
    }
}

fn map_beside_reuse<R: ReverseMap>(preemption: &Preemption, more: usize) {
    let world = World::<R>::new(3, 300, "");
    let [space, other] = world.alone(|| {
        [(); 2].map(|()| {
            let space = world.space();
            world.vm.space(space).share().unwrap();
            for page in [FIRST, CUT, FURTHER + 8] {
                world.anonymous(space, page, 1);
            }
            space
        })
    });
    world.alone(|| assert_eq!(world.vm.space(space).divide(Vpn(CUT)), Ok(true)));
    let reuse = |_| {
        unite(&world, space);
        for _ in 0..4 {
            world.drain();
        }
        let cut = Vpn(FURTHER + 0x100);
        assert_eq!(world.vm.space(other).divide(cut), Ok(true));
    };
    let map = |_| world.anonymous(space, FURTHER, 2);
    let map_too = |_| world.anonymous(space, FURTHER + 4, 1);
    let steps = vec![
        Step::preempted(preemption),
        Step::end(1),
        Step::until(2, after(more)).or_end(),
        Step::end(0),
        Step::end(2),
    ];
    world.run_by(steps, &[&map, &reuse, &map_too]);
    world.alone(|| while world.vm.space(other).exit() == Ok(false) {});
    let mapped = [FIRST, CUT, FURTHER, FURTHER + 4, FURTHER + 8];
    check(world, space, &mapped);
}

fn unmap_beside_union<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = divided::<R>();
    let unmap = |_| world.vm.space(space).unmap(Vpn(CUT), 1).unwrap();
    world.run_preempted(preemption, [&unmap, &|_| unite(&world, space)]);
    check(world, space, &[FIRST, FURTHER + 8]);
}

/// Uses the last page, and misses the one before it.
fn use_last<R: ReverseMap>(world: &World<R>, space: SpaceId, cpu: CpuId) {
    let page = FURTHER + 8;
    assert!(world.vm.space(space).region_at(Vpn(page)).is_ok());
    assert_eq!(world.load(cpu, space, at(page, 0)), Ok(0));
    let gone = world.load(cpu, space, at(page - 1, 0));
    assert_eq!(gone, Err(FaultError::NoRegion));
}

/// The tree's slots move when a region before the last one goes, and when one comes.
fn fault_beside_unmapping<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = divided::<R>();
    let unmap = |_| world.vm.space(space).unmap(Vpn(CUT), 1).unwrap();
    let fault = |cpu: CpuId| use_last(&world, space, cpu);
    world.run_preempted(preemption, [&unmap, &fault]);
    check(world, space, &[FIRST, FURTHER + 8]);
}

fn fault_beside_mapping<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = divided::<R>();
    let map = |_| world.anonymous(space, CUT + 4, 1);
    let fault = |cpu: CpuId| use_last(&world, space, cpu);
    world.run_preempted(preemption, [&map, &fault]);
    check(world, space, &[FIRST, CUT, CUT + 4, FURTHER + 8]);
}

fn map_beside_exit<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = divided::<R>();
    let map = |_| {
        let request = MapRequest::anonymous(2, RW).at(Placement::FixedFree(Vpn(FURTHER)));
        match world.vm.space(space).map(&request) {
            Ok(_) | Err(MapError::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
    };
    let exit = |_| while world.vm.space(space).exit() == Ok(false) {};
    world.run_preempted(preemption, [&map, &exit]);
    world.finish(&[], &[]);
}
