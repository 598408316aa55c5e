//! Folios that several CPUs make, share and take apart at the same time.

use crate::world::{RW, World, at};
use vellum::SpaceId;
use vellum::addr::{PageRange, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError};

const ZERO: CpuId = CpuId(0);
/// First page of two folios.
const BASE: u64 = 0x1000;
const PAGES: u64 = 16;

explored! {
    first_stores_to_one_folio_map_each_page_once: 32 => first_stores;
    folios_of_two_sizes_are_mapped_beside_single_pages: 32 => sizes;
    a_folio_is_mapped_beside_an_unmapping_of_a_part: 32 => beside_unmap;
    a_folio_is_mapped_beside_a_fork: 32 => beside_fork;
    a_folio_is_mapped_beside_a_change_of_rights: 32 => beside_protect;
    a_folio_is_mapped_beside_a_lookup: 32 => beside_lookup;
    advice_is_changed_beside_first_stores: 32 => beside_advice;
    a_folio_is_mapped_beside_a_last_page_given_up: 32 => beside_dont_need;
}

fn world_with_region<R: ReverseMap>(cpus: usize) -> (World<R>, SpaceId) {
    let world = World::<R>::new(cpus, 1024, "folio=32k");
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, BASE, PAGES);
        space
    });
    (world, space)
}

/// Each page that is mapped is one of its own: no frame is lost or mapped twice.
fn end<R: ReverseMap>(world: &World<R>, spaces: &[SpaceId]) {
    world.alone(|| world.vm.audit().unwrap());
    world.finish(spaces, &[]);
}

fn first_stores<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(3);
    let work = |cpu: CpuId| {
        let page = BASE + 2 * u64::from(cpu.0);
        world.store(cpu, space, at(page, 1), page).unwrap();
        assert_eq!(world.load(cpu, space, at(page, 1)), Ok(page));
        assert_eq!(world.load(cpu, space, at(page + 1, 0)), Ok(0));
    };
    world.run(&[&work, &work, &work]);
    world.alone(|| {
        assert_eq!(world.vm.stats().events.folio_maps, 1);
        assert_eq!(world.vm.space(space).stats().unwrap().rss.anonymous, 8);
        for page in [0, 2, 4].map(|page| BASE + page) {
            assert_eq!(world.load(ZERO, space, at(page, 1)), Ok(page));
        }
    });
    end(&world, &[space]);
}

fn sizes<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(3);
    let load = |cpu: CpuId| {
        // A page of zeroes in the middle of a folio, or a page of it.
        assert_eq!(world.load(cpu, space, at(BASE + 5, 0)), Ok(0));
    };
    let store = |cpu: CpuId| {
        let page = BASE + 7 * (u64::from(cpu.0) - 1);
        world.store(cpu, space, at(page, 0), page).unwrap();
        assert_eq!(world.load(cpu, space, at(page, 0)), Ok(page));
    };
    world.run(&[&load, &store, &store]);
    world.alone(|| {
        for (page, value) in [(0, BASE), (7, BASE + 7), (5, 0)] {
            assert_eq!(world.load(ZERO, space, at(BASE + page, 0)), Ok(value));
        }
    });
    end(&world, &[space]);
}

fn beside_unmap<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(2);
    let unmap = |_| world.vm.space(space).unmap(Vpn(BASE + 3), 3).unwrap();
    let store = |cpu: CpuId| {
        for page in [1, 9] {
            world.store(cpu, space, at(BASE + page, 0), page).unwrap();
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
        }
    };
    world.run(&[&unmap, &store]);
    world.alone(|| {
        for page in 3..6 {
            let gone = world.load(ZERO, space, at(BASE + page, 0));
            assert_eq!(gone, Err(FaultError::NoRegion));
        }
        assert_eq!(world.load(ZERO, space, at(BASE + 1, 0)), Ok(1));
    });
    end(&world, &[space]);
}

fn beside_fork<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(2);
    let child = std::sync::Mutex::new(None);
    let fork = |cpu: CpuId| {
        let made = world.vm.space(space).fork().unwrap().id();
        // All of the parent's stores before the fork, and none after.
        let seen = world.load(cpu, made, at(BASE + 1, 0)).unwrap();
        assert!(seen <= 2, "{seen}");
        world.store(cpu, made, at(BASE + 2, 0), 77).unwrap();
        assert_eq!(world.load(cpu, made, at(BASE + 1, 0)), Ok(seen));
        *child.lock().unwrap() = Some(made);
    };
    let store = |cpu: CpuId| {
        for value in 1..3 {
            world.store(cpu, space, at(BASE + 1, 0), value).unwrap();
        }
        assert_eq!(world.load(cpu, space, at(BASE + 2, 0)), Ok(0));
    };
    world.run(&[&fork, &store]);
    let child = child.lock().unwrap().unwrap();
    end(&world, &[space, child]);
}

fn beside_protect<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(2);
    let protect = |cpu: CpuId| {
        let first = Vpn(BASE + 2);
        world.vm.space(space).protect(first, 4, Prot::READ).unwrap();
        let refused = world.store(cpu, space, at(BASE + 2, 0), 1);
        assert_eq!(refused, Err(FaultError::Protection));
        assert_eq!(world.load(cpu, space, at(BASE + 2, 0)), Ok(0));
        world.vm.space(space).protect(first, 4, RW).unwrap();
    };
    let store = |cpu: CpuId| {
        world.store(cpu, space, at(BASE + 1, 0), 5).unwrap();
        assert_eq!(world.load(cpu, space, at(BASE + 1, 0)), Ok(5));
    };
    world.run(&[&protect, &store]);
    end(&world, &[space]);
}

fn beside_lookup<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(2);
    let store = |cpu: CpuId| {
        for page in [1, 9] {
            world.store(cpu, space, at(BASE + page, 0), 5).unwrap();
        }
    };
    let look = |_| {
        let pages = PageRange::new(Vpn(BASE), PAGES);
        let report = world.vm.space(space).scan(pages).unwrap();
        assert_eq!(report.hits, report.pages, "{report:?}");
    };
    world.run(&[&store, &look]);
    end(&world, &[space]);
}

fn beside_advice<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(2);
    let advise = |_| {
        for order in [Some(1), Some(0), None] {
            let advice = Advice::Folio(order);
            world
                .vm
                .space(space)
                .advise(Vpn(BASE + 4), 8, advice)
                .unwrap();
        }
    };
    let store = |cpu: CpuId| {
        for page in [5, 9, 1] {
            world.store(cpu, space, at(BASE + page, 0), page).unwrap();
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
        }
    };
    world.run(&[&advise, &store]);
    world.alone(|| assert_eq!(world.vm.space(space).stats().unwrap().regions, 1));
    end(&world, &[space]);
}

fn beside_dont_need<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(2);
    world.alone(|| world.store(ZERO, space, at(BASE + 9, 0), 9).unwrap());
    // The table becomes empty, and is unlinked, or gets a folio.
    let drop = |_| {
        let first = Vpn(BASE + 8);
        world
            .vm
            .space(space)
            .advise(first, 8, Advice::DontNeed)
            .unwrap();
    };
    let store = |cpu: CpuId| {
        world.store(cpu, space, at(BASE + 1, 0), 5).unwrap();
        assert_eq!(world.load(cpu, space, at(BASE + 1, 0)), Ok(5));
    };
    world.run(&[&drop, &store]);
    world.alone(|| {
        assert_eq!(world.load(ZERO, space, at(BASE + 9, 0)), Ok(0));
        assert_eq!(world.load(ZERO, space, at(BASE + 1, 0)), Ok(5));
    });
    end(&world, &[space]);
}
