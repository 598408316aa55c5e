//! Spaces in tracts (invariant 9): changes on two sides of a boundary beside each other, and beside
//! those who make and end boundaries.

use crate::world::{RW, World, at};
use vellum::SpaceId;
use vellum::addr::{Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{FaultError, MapError, MapRequest, Placement};

/// Where the pages of each CPU begin.
const PAGE: u64 = 0x1000;
const APART: u64 = 0x400;
const GONE: Result<u64, FaultError> = Err(FaultError::NoRegion);

explored! {
    each_cpu_changes_its_own_tract: 48 => apart;
    a_space_is_divided_beside_its_changes: 100 => divided;
    a_space_becomes_one_again_beside_its_changes: 100 => united;
    who_waits_for_a_tract_that_ends_gets_no_other: 200 => reborn;
    regions_that_cross_a_boundary_come_and_go_beside_others: 48 => across;
    a_space_in_tracts_is_forked_as_it_was_at_one_time: 48 => forked;
    faults_find_their_regions_while_tracts_come_and_go: 100 => faulting;
    tracts_share_one_limit: 100 => limited;
    tracts_share_one_limit_of_regions: 100 => limited_regions;
}

/// A space whose CPUs each have pages of their own.
fn shared<R: ReverseMap>(cpus: usize) -> (World<R>, SpaceId) {
    let world = World::<R>::new(cpus, 512, "");
    let space = world.alone(|| {
        let space = world.space();
        for _ in 1..cpus {
            world.vm.space(space).share().unwrap();
        }
        space
    });
    (world, space)
}

fn divide<R: ReverseMap>(world: &World<R>, space: SpaceId, page: u64) {
    match world.vm.space(space).divide(Vpn(page)) {
        Ok(_) => {}
        Err(error) => panic!("{error}"),
    }
}

fn unite<R: ReverseMap>(world: &World<R>, space: SpaceId) {
    world.vm.space(space).set_heap_end(Vpn(0)).unwrap();
}

fn own(cpu: CpuId) -> u64 {
    PAGE + u64::from(cpu.0) * APART
}

/// Maps, uses, protects and unmaps some pages of the CPU's own.
fn change<R: ReverseMap>(world: &World<R>, space: SpaceId, cpu: CpuId, rounds: u64) {
    for round in 1..=rounds {
        let page = own(cpu) + round % 2;
        world.anonymous(space, page, 3);
        world.store(cpu, space, at(page + 1, 0), round).unwrap();
        world
            .vm
            .space(space)
            .protect(Vpn(page + 2), 1, Prot::READ)
            .unwrap();
        assert_eq!(world.load(cpu, space, at(page + 1, 0)), Ok(round));
        let denied = world.store(cpu, space, at(page + 2, 0), round);
        assert_eq!(denied, Err(FaultError::Protection));
        world.vm.space(space).unmap(Vpn(page), 3).unwrap();
        assert_eq!(world.load(cpu, space, at(page + 1, 0)), GONE);
    }
}

fn apart<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    world.alone(|| (1..3).for_each(|cpu| divide(&world, space, own(CpuId(cpu)))));
    let task = |cpu| change(&world, space, cpu, 3);
    world.run(&[&task, &task, &task]);
    world.finish(&[space], &[]);
}

fn divided<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    let task = |cpu| change(&world, space, cpu, 2);
    let divides = |_| {
        for page in [PAGE + APART, PAGE + 1, PAGE + APART + 2] {
            divide(&world, space, page);
        }
    };
    world.run(&[&task, &task, &divides]);
    world.finish(&[space], &[]);
}

fn united<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    world.alone(|| divide(&world, space, PAGE + APART));
    let task = |cpu| change(&world, space, cpu, 2);
    let unites = |_| {
        unite(&world, space);
        divide(&world, space, PAGE + APART);
        unite(&world, space);
    };
    world.run(&[&task, &task, &unites]);
    world.finish(&[space], &[]);
}

/// Tracts end and begin so often that one is another by the time that who waited for its lock has it.
fn reborn<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    world.alone(|| divide(&world, space, PAGE + APART));
    let task = |cpu| change(&world, space, cpu, 2);
    let divides = |_| {
        for round in 0..6 {
            unite(&world, space);
            // What has ended may begin again.
            world.vm.relieve();
            divide(&world, space, PAGE + APART);
            if round % 2 == 0 {
                divide(&world, space, PAGE + 2 * APART);
            }
        }
    };
    world.run(&[&task, &task, &divides]);
    world.finish(&[space], &[]);
}

fn across<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    let boundary = own(CpuId(2));
    world.alone(|| divide(&world, space, boundary));
    let task = |cpu| change(&world, space, cpu, 2);
    let crosses = |cpu: CpuId| {
        for round in 0..2 {
            world.anonymous(space, boundary - 2, 5);
            world.store(cpu, space, at(boundary, 0), round).unwrap();
            world.vm.space(space).unmap(Vpn(boundary - 1), 2).unwrap();
            assert_eq!(world.load(cpu, space, at(boundary, 0)), GONE);
            assert_eq!(world.load(cpu, space, at(boundary - 2, 0)), Ok(0));
            divide(&world, space, boundary);
            world.vm.space(space).unmap(Vpn(boundary - 5), 10).unwrap();
            assert_eq!(world.load(cpu, space, at(boundary - 2, 0)), GONE);
        }
    };
    world.run(&[&task, &task, &crosses]);
    world.finish(&[space], &[]);
}

/// Two pages on two sides of a boundary are stored to one after the other; no child has the second
/// store without the first.
fn forked<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    let boundary = own(CpuId(1));
    world.alone(|| {
        world.anonymous(space, PAGE, 1);
        world.anonymous(space, boundary, 1);
        divide(&world, space, boundary);
    });
    let stores = |cpu: CpuId| {
        for round in 1..5 {
            for page in [PAGE, boundary] {
                world.store(cpu, space, at(page, 0), round).unwrap();
            }
        }
    };
    let changes = |cpu| change(&world, space, cpu, 1);
    let forks = |cpu: CpuId| {
        for _ in 0..2 {
            let child = world.vm.space(space).fork().unwrap().id();
            let [second, first] =
                [boundary, PAGE].map(|page| world.load(cpu, child, at(page, 0)).unwrap());
            assert!(first == second || first == second + 1, "{first} {second}");
            assert_eq!(world.vm.space(child).exit(), Ok(true));
        }
    };
    let elsewhere = |_| changes(CpuId(2));
    world.run(&[&stores, &forks, &elsewhere]);
    world.finish(&[space], &[]);
}

fn faulting<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    let second = own(CpuId(1));
    world.alone(|| {
        world.anonymous(space, PAGE, 1);
        world.anonymous(space, second, 1);
    });
    let faults = |cpu: CpuId| {
        for round in 1..4 {
            // Each from the tree: the CPU's last region is the other one.
            for page in [PAGE, second] {
                let word = u64::from(cpu.0);
                world.store(cpu, space, at(page, word), round).unwrap();
                assert_eq!(world.load(cpu, space, at(page, word)), Ok(round));
                assert!(world.vm.space(space).region_at(Vpn(page)).is_ok());
            }
            assert!(world.vm.space(space).region_at(Vpn(PAGE + 1)).is_err());
            assert_eq!(world.load(cpu, space, at(second - 1, 0)), GONE);
        }
    };
    let divides = |_| {
        for _ in 0..2 {
            divide(&world, space, second);
            divide(&world, space, PAGE + 1);
            unite(&world, space);
        }
    };
    world.run(&[&faults, &faults, &divides]);
    world.finish(&[space], &[]);
}

/// Three CPUs map a page each, where two may.
fn limited<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    world.alone(|| {
        let limits = vellum::space::Limits {
            pages: 2,
            ..Default::default()
        };
        world.vm.space(space).set_limits(limits).unwrap();
        (1..3).for_each(|cpu| divide(&world, space, own(CpuId(cpu))));
    });
    let maps = |cpu: CpuId| {
        let request = MapRequest::anonymous(1, RW).at(Placement::FixedFree(Vpn(own(cpu))));
        match world.vm.space(space).map(&request) {
            Ok(_) | Err(MapError::Limit) => {}
            Err(error) => panic!("{error}"),
        }
    };
    world.run(&[&maps, &maps, &maps]);
    let pages = world.alone(|| world.vm.space(space).stats().unwrap().pages);
    assert_eq!(pages, 2);
    world.finish(&[space], &[]);
}

/// Each of three CPUs takes the middle out of a region of its own, by rights or by unmapping, where
/// there may be two regions more.
fn limited_regions<R: ReverseMap>() {
    let (world, space) = shared::<R>(3);
    let all = world.vm.space(space);
    world.alone(|| {
        for cpu in (0..3).map(CpuId) {
            world.anonymous(space, own(cpu), 3);
            divide(&world, space, own(cpu));
        }
        let regions = all.stats().unwrap().regions + 2;
        let limits = vellum::space::Limits {
            regions,
            ..Default::default()
        };
        all.set_limits(limits).unwrap();
    });
    let most = world.alone(|| all.stats().unwrap().regions) + 2;
    let middle = |cpu: CpuId| Vpn(own(cpu) + 1);
    let protects = |cpu| match all.protect(middle(cpu), 1, Prot::READ) {
        Ok(_) | Err(MapError::Limit) => {}
        Err(error) => panic!("{error}"),
    };
    let unmaps = |cpu| match all.unmap(middle(cpu), 1) {
        Ok(_) | Err(MapError::Limit) => {}
        Err(error) => panic!("{error}"),
    };
    world.run(&[&protects, &protects, &unmaps]);
    let regions = world.alone(|| all.stats().unwrap().regions);
    assert!(regions <= most, "{regions} regions where {most} may be");
    world.finish(&[space], &[]);
}
