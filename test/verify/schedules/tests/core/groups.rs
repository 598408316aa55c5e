//! Charging, uncharging, reclaim of a group, lowering of its limit and its end beside each other:
//! afterwards each group is charged for what there is of it, which the audit counts.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::world::{World, at};
use vellum::SpaceId;
use vellum::addr::{Access, Vpn};
use vellum::platform::{CpuId, GroupId, Machine};
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, GroupError, WriteRequest};

const PRIVATE: u64 = 0x1800;
const SHARED: u64 = 0x1000;
const PAGES: u64 = 6;
const STORE: u64 = 3;
/// With so many pages for three CPUs, each takes two at once.
const STOCKED: u64 = 96;

explored! {
    charges_beside_ends_of_groups_are_right: 32 => ends;
    charges_beside_ends_of_groups_with_generations_are_right: 16 => ends_of_generations;
    stocks_that_are_taken_back_are_not_lost: 32 => stocks;
    a_limit_that_is_lowered_beside_stores_holds: 32 => lowered;
    spaces_that_move_between_groups_leave_none_behind: 32 => moves;
    dirty_pages_beside_ends_of_groups_are_counted_for_those_that_are_left: 32 => dirty;
}

const LISTS: &str = "reclaim=on,groups=on";
const GENERATIONS: &str = "reclaim=on,groups=on,aging=generations";

fn world_with_swap<R: ReverseMap>(design: &str) -> World<R> {
    let mut world = World::<R>::new(3, 256, design);
    world.swap_on(64);
    world
}

impl<R: ReverseMap> World<R> {
    /// A space of a group with private memory.
    fn member(&self, group: GroupId) -> SpaceId {
        self.alone(|| {
            let space = self.vm.create_space().unwrap().id();
            self.vm.space(space).set_group(group).unwrap();
            self.anonymous(space, PRIVATE, PAGES);
            space
        })
    }

    fn usage(&self, group: GroupId) -> u64 {
        self.audit();
        self.alone(|| self.vm.group(group).stats().unwrap().usage)
    }
}

/// Two CPUs store, fork, copy and discard, and read a file, while a third has the group end and
/// another take its place.
fn ends_with<R: ReverseMap>(design: &str) {
    let world = world_with_swap::<R>(design);
    let group = world.alone(|| world.vm.create_group(STOCKED).unwrap().id());
    let spaces = [world.member(group), world.member(group)];
    let file = world.alone(|| {
        let file = world.stored(STORE, PAGES);
        for space in spaces {
            world.object(space, file, 0, SHARED, PAGES, true);
        }
        file
    });
    let work = |cpu: CpuId| {
        let space = spaces[usize::from(cpu.0)];
        for round in 1..4 {
            for page in 0..PAGES {
                world
                    .store(cpu, space, at(PRIVATE + page, 0), round)
                    .unwrap();
                world.load(cpu, space, at(SHARED + page, 0)).unwrap();
            }
            let child = world.vm.space(space).fork().unwrap().id();
            world.store(cpu, space, at(PRIVATE, 0), round + 10).unwrap();
            assert_eq!(world.load(cpu, child, at(PRIVATE, 0)), Ok(round));
            world.vm.space(space).load().unwrap();
            world.vm.space(child).exit().unwrap();
            let advice = [Advice::DontNeed, Advice::PageOut][round as usize % 2];
            world
                .vm
                .space(space)
                .advise(Vpn(PRIVATE), 3, advice)
                .unwrap();
        }
    };
    let end = |_: CpuId| {
        let mut old = group;
        for _ in 0..2 {
            let new = world.vm.create_group(STOCKED).unwrap().id();
            world.vm.reclaim_pages(2);
            loop {
                for space in spaces {
                    world.vm.space(space).set_group(new).unwrap();
                }
                match world.vm.group(old).end() {
                    Ok(()) => break,
                    // A child is in it.
                    Err(GroupError::InUse) => world.machine().relax(0),
                    Err(error) => panic!("{error}"),
                }
                world.vm.reclaim_pages(1);
            }
            old = new;
        }
    };
    world.run(&[&work, &work, &end]);
    world.finish(&spaces, &[file]);
}

fn ends<R: ReverseMap>() {
    ends_with::<R>(LISTS);
}

fn ends_of_generations<R: ReverseMap>() {
    ends_with::<R>(GENERATIONS);
}

/// Two CPUs write to a file, which one syncs and the other cuts, while the groups that are charged
/// for its pages end, and others take their places.
fn dirty<R: ReverseMap>() {
    const PAGE: u64 = 4096;
    let world = World::<R>::new(3, 256, LISTS);
    let group = world.alone(|| world.vm.create_group(STOCKED).unwrap().id());
    let spaces = [world.member(group), world.member(group)];
    let file = world.alone(|| world.stored(STORE, PAGES));
    let work = |cpu: CpuId| {
        let number = usize::from(cpu.0);
        world.vm.space(spaces[number]).load().unwrap();
        for round in 1..6_u8 {
            for page in 0..PAGES {
                let data = [round; PAGE as usize];
                let written = world
                    .vm
                    .file(file)
                    .write(WriteRequest::bytes(page * PAGE, &[&data]));
                assert_eq!(written, Ok(data.len()));
            }
            match number {
                0 => _ = world.vm.file(file).sync().unwrap(),
                _ => world.vm.file(file).set_size(2 * PAGE).unwrap(),
            }
        }
    };
    let end = |_: CpuId| {
        let mut old = group;
        for _ in 0..3 {
            let new = world.vm.create_group(STOCKED).unwrap().id();
            for space in spaces {
                world.vm.space(space).set_group(new).unwrap();
            }
            world.vm.group(old).end().unwrap();
            old = new;
        }
        old
    };
    let last = AtomicU32::new(0);
    let end_and_tell = |cpu: CpuId| last.store(end(cpu).to_bits(), Ordering::Relaxed);
    world.run(&[&work, &work, &end_and_tell]);
    // What is dirty is counted for the group that is left and for those that ended, who do not ask.
    world.audit();
    world.alone(|| {
        let left = GroupId::from_bits(last.load(Ordering::Relaxed));
        let dirty = world.vm.group(left).stats().unwrap().dirty;
        assert!(dirty <= world.vm.file(file).stats().unwrap().dirty);
        world.vm.file(file).sync().unwrap();
        assert_eq!(world.vm.group(left).stats().unwrap().dirty, 0);
    });
    world.finish(&spaces, &[file]);
}

/// Two CPUs charge and uncharge a group by way of their stocks, which a third takes back.
fn stocks<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, LISTS);
    let group = world.alone(|| world.vm.create_group(STOCKED).unwrap().id());
    let spaces = [world.member(group), world.member(group)];
    let work = |cpu: CpuId| {
        let space = spaces[usize::from(cpu.0)];
        for _ in 0..3 {
            for page in 0..PAGES {
                world.store(cpu, space, at(PRIVATE + page, 0), 1).unwrap();
            }
            world
                .vm
                .space(space)
                .advise(Vpn(PRIVATE + 1), PAGES - 1, Advice::DontNeed)
                .unwrap();
        }
    };
    let take = |_: CpuId| {
        for turn in 0..4 {
            let limit = STOCKED * (1 + turn % 2);
            assert_eq!(world.vm.group(group).set_limit(limit), Ok(0));
        }
    };
    world.run(&[&work, &work, &take]);
    assert_eq!(world.usage(group), 2);
    world.finish(&spaces, &[]);
    assert_eq!(world.usage(group), 0);
    world.alone(|| world.vm.group(group).end().unwrap());
    world.audit();
}

/// Two CPUs store to more than the group may have, and read it again, while a third lowers and
/// raises the limit.
fn lowered<R: ReverseMap>() {
    let world = world_with_swap::<R>(LISTS);
    let group = world.alone(|| world.vm.create_group(8).unwrap().id());
    let spaces = [world.member(group), world.member(group)];
    let work = |cpu: CpuId| {
        let space = spaces[usize::from(cpu.0)];
        for round in 1..4 {
            for page in 0..PAGES {
                let address = at(PRIVATE + page, 0);
                // Others may hold what could leave.
                while world.store(cpu, space, address, round * 8 + page).is_err() {}
            }
            for page in 0..PAGES {
                let address = at(PRIVATE + page, 0);
                let found = loop {
                    if let Ok(found) = world.load(cpu, space, address) {
                        break found;
                    }
                };
                assert_eq!(found, round * 8 + page);
            }
        }
    };
    let lower = |_: CpuId| {
        for limit in [5, 9, 4, 8] {
            world.vm.group(group).set_limit(limit).unwrap();
        }
    };
    world.run(&[&work, &work, &lower]);
    assert!(world.usage(group) <= 8);
    world.finish(&spaces, &[]);
    assert_eq!(world.usage(group), 0);
}

/// A space ends while it moves, and a group while spaces would join it.
fn moves<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, LISTS);
    let groups = world.alone(|| [(); 2].map(|()| world.vm.create_group(50).unwrap().id()));
    let spaces = [world.member(groups[0]), world.member(groups[0])];
    let end = |cpu: CpuId| {
        for page in 0..PAGES {
            world
                .store(cpu, spaces[0], at(PRIVATE + page, 0), 1)
                .unwrap();
        }
        // The CPU must not run in a space that ends.
        world.vm.space(spaces[1]).load().unwrap();
        world.vm.space(spaces[0]).exit().unwrap();
    };
    let moving = |_: CpuId| {
        for turn in 0..4 {
            let moved = world.vm.space(spaces[0]).set_group(groups[turn % 2]);
            assert!(matches!(
                moved,
                Ok(()) | Err(GroupError::NoSpace | GroupError::NoGroup)
            ));
            let _ = world
                .vm
                .space(spaces[1])
                .fault(PRIVATE << 12, Access::Write);
        }
    };
    let ending = |_: CpuId| {
        let _ = world.vm.group(groups[1]).end();
        let _ = world.vm.group(groups[0]).end();
    };
    world.run(&[&end, &moving, &ending]);
    world.finish(&spaces[1..], &[]);
    world.alone(|| {
        for group in groups {
            let stats = world.vm.group(group).stats();
            assert!(
                stats.is_err() || stats.is_ok_and(|stats| stats.spaces == 0 && stats.usage == 0)
            );
            let _ = world.vm.group(group).end();
            let gone = world.vm.group(group).stats();
            assert_eq!(gone, Err(GroupError::NoGroup), "nobody is in it");
        }
    });
    world.audit();
}
