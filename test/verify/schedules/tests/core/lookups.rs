//! Lookups through reverse mapping beside what changes regions and families.

use crate::world::{RW, World, at};
use vellum::addr::{PageRange, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{MapError, RemapPlacement};

const ZERO: CpuId = CpuId(0);
const PAGES: PageRange = PageRange {
    start: Vpn(0x1000),
    end: Vpn(0x1004),
};

explored! {
    pages_are_found_while_relatives_come_and_go: 32 => families;
    pages_are_found_while_their_region_is_cut_and_merged: 32 => cuts;
    a_page_has_a_region_at_every_moment_of_a_cut_and_a_merge: 16 => regions;
    a_space_that_ended_shows_no_region_of_the_next: 32 => successors;
    pages_that_move_are_found_where_they_come_to_rest: 32 => moves;
    first_stores_beside_each_other_share_what_they_set_up: 32 => first_stores;
    nodes_are_whole_for_readers_while_their_frames_are_given_back: 8 => returned;
}

/// A space with four private pages.
fn four_pages<R: ReverseMap>(world: &World<R>) -> vellum::SpaceId {
    world.alone(|| {
        let space = world.space();
        world.anonymous(space, 0x1000, 4);
        for page in 0x1000..0x1004 {
            world.store(ZERO, space, at(page, 0), page).unwrap();
        }
        space
    })
}

/// Every page of a space that keeps its entries is found at least there.
fn scan<R: ReverseMap>(world: &World<R>, space: vellum::SpaceId) {
    for _ in 0..3 {
        let report = world.vm.space(space).scan(PAGES).unwrap();
        assert_eq!(report.pages, 4);
        assert!(report.hits >= 4, "a page was not found: {report:?}");
    }
}

fn families<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "");
    let space = four_pages(&world);
    let look = |_| scan(&world, space);
    let fork = |cpu: CpuId| {
        for _ in 0..2 {
            let child = world.vm.space(space).fork().unwrap().id();
            world.store(cpu, child, at(0x1001, 1), 7).unwrap();
            let grandchild = world.vm.space(child).fork().unwrap().id();
            world.vm.space(child).exit().unwrap();
            world.store(cpu, grandchild, at(0x1001, 1), 8).unwrap();
            let own = PageRange::new(Vpn(0x1001), 1);
            let report = world.vm.space(grandchild).scan(own).unwrap();
            assert!(report.hits >= 1, "{report:?}");
            world.vm.space(grandchild).exit().unwrap();
        }
    };
    world.run(&[&look, &fork, &fork]);
    world.finish(&[space], &[]);
}

fn cuts<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = four_pages(&world);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let look = |_| scan(&world, space);
    let cut = |_| {
        for _ in 0..3 {
            for prot in [RW.union(Prot::EXECUTE), RW] {
                world.vm.space(space).protect(Vpn(0x1001), 2, prot).unwrap();
            }
        }
    };
    world.run(&[&look, &cut]);
    world.finish(&[space, child], &[]);
}

/// Asked without a lock, whatever half-done state the tree is in meanwhile.
fn regions<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = four_pages(&world);
    let ask = |_| {
        for page in [0x1000, 0x1001, 0x1002, 0x1003, 0x1001] {
            let region = world.vm.space(space).region_at(Vpn(page)).unwrap();
            assert!(region.range.contains(Vpn(page)), "{region:?}");
            let whole = region.range.start >= PAGES.start && region.range.end <= PAGES.end;
            assert!(whole && region.object.is_none(), "{region:?}");
            let after = world.vm.space(space).region_at(PAGES.end);
            assert_eq!(after, Err(MapError::NotMapped));
        }
    };
    let cut = |_| {
        for prot in [RW.union(Prot::EXECUTE), RW] {
            world.vm.space(space).protect(Vpn(0x1001), 2, prot).unwrap();
        }
    };
    world.run(&[&ask, &cut, &ask]);
    world.finish(&[space], &[]);
}

/// A space ends while a task that is not pinned asks for its regions, and its
/// places in the arenas are used for other spaces, which map a file there.
fn successors<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let (own, file) = world.alone(|| {
        let own = world.space();
        world.anonymous(own, PAGES.start.0, 4);
        (own, world.stored(3, 8))
    });
    let ask = |_| {
        while let Ok(region) = world.vm.space(own).region_at(Vpn(0x1001)) {
            assert_eq!((region.range, region.object), (PAGES, None));
        }
    };
    let replace = |_| {
        let mut space = own;
        for _ in 0..3 {
            world.vm.space(space).exit().unwrap();
            // Past the epoch of what has just gone.
            world.drain();
            world.drain();
            space = world.space();
            world.object(space, file, 0, 0xffe, 8, false);
        }
        world.vm.space(space).exit().unwrap();
    };
    world.run(&[&ask, &replace]);
    world.finish(&[], &[file]);
}

fn moves<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = four_pages(&world);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let look = |_| {
        for _ in 0..3 {
            world.vm.space(child).scan(PAGES).unwrap();
            world.vm.space(space).scan(PAGES).unwrap();
        }
    };
    let shift = |_| {
        for (from, to) in [(0x1001, 0x3000), (0x3000, 0x1001)] {
            let fixed = RemapPlacement::Fixed(Vpn(to));
            world.vm.space(space).remap(Vpn(from), 2, 2, fixed).unwrap();
        }
    };
    let store = |cpu: CpuId| {
        for page in 0x1000..0x1004 {
            world.store(cpu, child, at(page, 1), 5).unwrap();
        }
    };
    world.run(&[&look, &shift, &store]);
    world.alone(|| {
        for id in [space, child] {
            let report = world.vm.space(id).scan(PAGES).unwrap();
            assert!(report.pages == 4 && report.hits >= 4, "{report:?}");
        }
    });
    world.finish(&[space, child], &[]);
}

/// First stores to two regions that could be one, one of them cut and merged
/// meanwhile.
fn first_stores<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, 0x1000, 4);
        let prot = RW.union(Prot::EXECUTE);
        world.vm.space(space).protect(Vpn(0x1002), 2, prot).unwrap();
        space
    });
    let merge = |_| {
        world.vm.space(space).protect(Vpn(0x1002), 2, RW).unwrap();
        world
            .vm
            .space(space)
            .protect(Vpn(0x1001), 2, Prot::READ)
            .unwrap();
        world.vm.space(space).protect(Vpn(0x1001), 2, RW).unwrap();
    };
    // Stores that meet the moment without the right are tried again.
    let patient = |cpu: CpuId| {
        for page in 0x1000..0x1004 {
            while world.store(cpu, space, at(page, 2), 4).is_err() {}
        }
    };
    world.run(&[&patient, &patient, &merge]);
    world.alone(|| scan(&world, space));
    world.finish(&[space], &[]);
}

/// Nodes of a tree of regions and of a page cache come and go, their frames are given back and
/// become pages of a third, which fills them. A reader that follows them meanwhile finds what is
/// there.
fn returned<R: ReverseMap>() {
    const REGIONS: u64 = 44;
    /// Those that go and come back.
    const MIDDLE: PageRange = PageRange {
        start: Vpn(0x1000 + 2 * 10),
        end: Vpn(0x1000 + 2 * 40),
    };
    let page_of = |region: u64| 0x1000 + 2 * region;
    let world = World::<R>::new(3, 400, "");
    let map_middle = |space| {
        for region in 10..40 {
            world.anonymous(space, page_of(region), 1);
        }
    };
    // Pages of the file at both ends have nodes of their own.
    let (first, last) = (0x1_0000, 0x1_0000 + 4500);
    let (space, other, file) = world.alone(|| {
        let (space, file) = (world.space(), world.memory(5000));
        for region in (0..10).chain(40..REGIONS) {
            world.anonymous(space, page_of(region), 1);
        }
        map_middle(space);
        world.object(space, file, 0, first, 5000, true);
        world.store(ZERO, space, at(first, 0), 7).unwrap();
        (space, world.space(), file)
    });
    let look = |cpu: CpuId| {
        for _ in 0..3 {
            for region in [0, 9, 40, REGIONS - 1] {
                let page = Vpn(page_of(region));
                let found = world.vm.space(space).region_at(page).unwrap();
                assert_eq!(found.range, PageRange::new(page, 1));
            }
            let middle = world.vm.space(space).region_at(MIDDLE.start);
            assert!(matches!(middle, Ok(_) | Err(MapError::NotMapped)));
            assert_eq!(world.load(cpu, space, at(first, 0)), Ok(7));
            assert_eq!(world.load(cpu, space, at(last, 0)), Ok(0));
        }
    };
    let change = |_| {
        for _ in 0..2 {
            let own = world.vm.space(space);
            own.unmap(MIDDLE.start, MIDDLE.pages()).unwrap();
            let hole = PageRange::new(Vpn(4500), 1);
            world
                .vm
                .file(file)
                .punch_hole(hole.start.0 << 12, 4096)
                .unwrap();
            map_middle(space);
        }
    };
    let take = |cpu: CpuId| {
        for _ in 0..3 {
            world.vm.relieve();
            world.anonymous(other, 0x1000, 12);
            for page in 0x1000..0x100c {
                for word in 0..8 {
                    let filled = world.store(cpu, other, at(page, word * 64), u64::MAX / 3);
                    filled.unwrap();
                }
            }
            world.vm.space(other).unmap(Vpn(0x1000), 12).unwrap();
        }
    };
    world.run(&[&look, &change, &take]);
    world.finish(&[space, other], &[file]);
}
