//! Private superpages that leave for swap while others use, share, unmap and unite them: a word
//! that is missing afterwards was in a frame that was given back or copied too early.

use crate::world::{World, at};
use vellum::SpaceId;
use vellum::addr::{PageRange, Vpn};
use vellum::platform::{CpuId, GroupId};
use vellum::rmap::ReverseMap;
use vellum::space::Advice;

const ZERO: CpuId = CpuId(0);
/// First page of a superpage, and how many it has.
const BASE: u64 = 0x1000;
const PAGES: u64 = 512;
/// Pages of it that are used.
const USED: [u64; 5] = [0, 1, 2, 30, PAGES - 1];
const FRAMES: u64 = 6 * PAGES;
const SLOTS: u64 = 2 * PAGES;
const EAGER: &str = "reclaim=on,superpage=eager";
const RESERVE: &str = "reclaim=on,superpage=reserve";
const GENERATIONS: &str = "reclaim=on,aging=generations,superpage=eager";
const GROUPS: &str = "reclaim=on,groups=on,superpage=eager";

explored! {
    what_is_stored_to_a_superpage_that_leaves_stays: 20 => stores;
    what_is_stored_to_a_superpage_that_leaves_beside_walks_stays: 12 => stores_beside_walks;
    forks_of_a_superpage_that_leaves_have_what_it_had: 20 => forks;
    a_superpage_is_unmapped_while_it_leaves: 20 => unmapped;
    spaces_that_share_a_superpage_end_while_it_leaves: 20 => exits;
    a_superpage_is_split_while_it_leaves: 20 => split;
    a_promoted_superpage_becomes_one_record_or_leaves: 20 => united;
    a_superpage_leaves_a_group_that_others_leave: 16 => moved;
    what_was_stored_is_in_the_superpage_that_pages_are_collapsed_to_while_they_leave: 32 => collapsed;
}

fn world_with_space<R: ReverseMap>(design: &str) -> (World<R>, SpaceId) {
    let mut world = World::<R>::new(3, FRAMES, design);
    world.swap_on(SLOTS);
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, BASE, PAGES);
        space
    });
    (world, space)
}

/// A superpage with a number in the first word of each page that is used.
fn world_with_superpage<R: ReverseMap>(design: &str) -> (World<R>, SpaceId) {
    let (world, space) = world_with_space::<R>(design);
    world.alone(|| {
        for page in USED {
            world.store(ZERO, space, at(BASE + page, 0), page).unwrap();
        }
        assert_eq!(world.vm.stats().events.superpage_maps, 1);
    });
    (world, space)
}

/// Has pages leave, whether they were used or not.
fn reclaim<R: ReverseMap>(world: &World<R>, space: SpaceId) {
    for _ in 0..3 {
        // The space may have ended.
        let _ = (world.vm).space(space).scan(PageRange::new(Vpn(BASE), 1));
        world.vm.reclaim_pages(2);
    }
}

/// Stores to one word of each page that is used, and finds the first as it was.
fn use_pages<R: ReverseMap>(world: &World<R>, cpu: CpuId, space: SpaceId) {
    let word = 1 + u64::from(cpu.0);
    for page in USED {
        world
            .store(cpu, space, at(BASE + page, word), page)
            .unwrap();
        assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
    }
}

fn stores_with<R: ReverseMap>(design: &str) {
    let (world, space) = world_with_superpage::<R>(design);
    let store = |cpu: CpuId| use_pages(&world, cpu, space);
    world.run(&[&|_| reclaim(&world, space), &store, &store]);
    world.alone(|| {
        for page in USED {
            for word in [0, 2, 3] {
                assert_eq!(world.load(ZERO, space, at(BASE + page, word)), Ok(page));
            }
        }
    });
    world.finish_swap(&[space], &[]);
}

fn stores<R: ReverseMap>() {
    stores_with::<R>(EAGER);
}

fn stores_beside_walks<R: ReverseMap>() {
    stores_with::<R>(GENERATIONS);
}

fn forks<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(EAGER);
    let fork = |cpu: CpuId| {
        let child = world.vm.space(space).fork().unwrap().id();
        for page in USED {
            assert_eq!(world.load(cpu, child, at(BASE + page, 0)), Ok(page));
            world.store(cpu, child, at(BASE + page, 0), 77).unwrap();
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
        }
        world.vm.space(child).exit().unwrap();
    };
    world.run(&[&|_| reclaim(&world, space), &fork]);
    world.finish_swap(&[space], &[]);
}

fn unmapped<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(EAGER);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let unmap = |cpu: CpuId| {
        world.vm.space(space).unmap(Vpn(BASE), PAGES).unwrap();
        world.anonymous(space, BASE, PAGES);
        for page in USED {
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(0));
        }
        use_pages(&world, cpu, child);
    };
    world.run(&[&|_| reclaim(&world, space), &unmap]);
    world.finish_swap(&[space, child], &[]);
}

fn exits<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(EAGER);
    let children = world.alone(|| [(); 2].map(|()| world.vm.space(space).fork().unwrap().id()));
    let end = |_| assert!(world.vm.space(children[0]).exit().unwrap());
    let end_another = |cpu: CpuId| {
        use_pages(&world, cpu, children[1]);
        world.vm.space(children[1]).exit().unwrap();
    };
    world.run(&[&|_| reclaim(&world, children[0]), &end, &end_another]);
    world.alone(|| use_pages(&world, ZERO, space));
    world.finish_swap(&[space], &[]);
}

fn split<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(EAGER);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let split = |cpu: CpuId| {
        world.vm.space(space).unmap(Vpn(BASE + 40), 2).unwrap();
        use_pages(&world, cpu, space);
    };
    let copy = |cpu: CpuId| use_pages(&world, cpu, child);
    world.run(&[&|_| reclaim(&world, child), &split, &copy]);
    world.finish_swap(&[space, child], &[]);
}

fn united<R: ReverseMap>() {
    let (world, space) = world_with_space::<R>(RESERVE);
    world.alone(|| {
        for page in 0..PAGES {
            world.store(ZERO, space, at(BASE + page, 0), page).unwrap();
        }
        assert_eq!(world.vm.stats().events.superpage_promotions, 1);
    });
    let share = |cpu: CpuId| {
        let child = world.vm.space(space).fork().unwrap().id();
        use_pages(&world, cpu, child);
        world.vm.space(space).unmap(Vpn(BASE), PAGES).unwrap();
        use_pages(&world, cpu, child);
        world.vm.space(child).exit().unwrap();
    };
    world.run(&[&|_| reclaim(&world, space), &share]);
    world.finish_swap(&[space], &[]);
}

fn moved<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(GROUPS);
    let (group, other) = world.alone(|| {
        let group = world.vm.create_group(2 * PAGES).unwrap().id();
        let other = world.space();
        world.vm.space(other).set_group(group).unwrap();
        world.anonymous(other, BASE, PAGES);
        for page in USED {
            world.store(ZERO, other, at(BASE + page, 0), page).unwrap();
        }
        (group, other)
    });
    let store = |cpu: CpuId| {
        use_pages(&world, cpu, other);
        let child = world.vm.space(other).fork().unwrap().id();
        use_pages(&world, cpu, child);
        world.vm.space(child).exit().unwrap();
    };
    let end = |_| {
        world.vm.space(other).set_group(GroupId::ROOT).unwrap();
        world.vm.group(group).end().unwrap();
    };
    world.run(&[&|_| reclaim(&world, other), &store, &end]);
    world.audit();
    world.finish_swap(&[space, other], &[]);
}

/// Single pages, some of which have left before, are collapsed again and again.
fn collapsed<R: ReverseMap>() {
    const GONE: u64 = 200;
    let (world, space) = world_with_superpage::<R>(EAGER);
    world.alone(|| {
        let one = world.vm.space(space);
        one.advise(Vpn(BASE + GONE), 1, Advice::DontNeed).unwrap();
        assert_eq!(world.vm.stats().events.superpage_demotions, 1);
        world.page_out(space, BASE + 1, 1);
    });
    let collapse = |_| {
        for _ in 0..3 {
            let _ = world.vm.space(space).collapse(Vpn(BASE), 1, 1);
        }
    };
    let store = |cpu: CpuId| use_pages(&world, cpu, space);
    let leave = |_| {
        for _ in 0..2 {
            reclaim(&world, space);
            world.page_out(space, BASE, 3);
        }
    };
    world.run(&[&leave, &collapse, &store]);
    world.alone(|| {
        for page in USED {
            assert_eq!(world.load(ZERO, space, at(BASE + page, 0)), Ok(page));
            assert_eq!(world.load(ZERO, space, at(BASE + page, 3)), Ok(page));
        }
        assert_eq!(world.load(ZERO, space, at(BASE + GONE, 0)), Ok(0));
    });
    world.finish_swap(&[space], &[]);
}
