//! Faults of several CPUs beside calls that change their space.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::world::{RW, World, at};
use vellum::addr::{Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, Limits, MapRequest, Placement, RemapPlacement, Space};

const ZERO: CpuId = CpuId(0);
/// Last page that shares its leaf table with those before it.
const EDGE: u64 = 0x11ff;

explored! {
    stores_to_the_same_pages_are_all_kept: 76 => same_pages;
    neighbours_in_one_table_do_not_disturb_each_other: 76 => neighbours;
    a_fault_never_misses_a_region_that_is_split_and_merged: 76 => split_and_merge;
    calls_that_change_a_whole_space_wait_for_unmappings: 76 => whole_beside_unmaps;
    replacing_a_mapping_shows_no_hole: 76 => replace;
    growing_a_mapping_shows_no_hole: 12 => grow;
    moved_pages_keep_their_contents: 76 => move_about;
    nothing_is_seen_of_a_page_after_its_unmap_returned: 76 => late_cpu;
    a_table_freed_without_stale_pages_is_not_walked: 2 => freed_table;
    two_threads_grow_a_stack: 150 => stack;
    dropped_pages_read_as_zero_or_as_stored_later: 76 => dont_need;
    rights_taken_away_are_gone_when_protect_returns: 76 => protect;
    running_out_of_memory_on_several_cpus_leaks_nothing: 10 => out_of_memory;
}

/// Threads of one space write words of the same pages; no store is lost.
fn same_pages<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| world.anonymous(space, 0x1000, 3));
    let work = |cpu: CpuId| {
        for page in 0x1000..0x1003 {
            let word = u64::from(cpu.0);
            let before = world.load(cpu, space, at(page, word));
            assert_eq!(before, Ok(0));
            world
                .store(cpu, space, at(page, word), page + word)
                .unwrap();
            assert_eq!(world.load(cpu, space, at(page, word)), Ok(page + word));
        }
    };
    world.run(&[&work, &work, &work]);
    world.alone(|| {
        for page in 0x1000..0x1003 {
            for word in 0..3 {
                assert_eq!(world.load(ZERO, space, at(page, word)), Ok(page + word));
            }
        }
    });
    world.finish(&[space], &[]);
}

/// Each thread maps, uses and unmaps pages of its own beside the others', so
/// that the table they share is freed and made again.
fn neighbours<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| world.space());
    let work = |cpu: CpuId| {
        let page = 0x1000 + 4 * u64::from(cpu.0);
        for round in 1..4 {
            world.anonymous(space, page, 2);
            assert_eq!(world.load(cpu, space, at(page, 1)), Ok(0));
            world.store(cpu, space, at(page + 1, 0), round).unwrap();
            world.store(cpu, space, at(page, 1), round).unwrap();
            assert_eq!(world.load(cpu, space, at(page + 1, 0)), Ok(round));
            assert_eq!(world.load(cpu, space, at(page, 1)), Ok(round));
            world.vm.space(space).unmap(Vpn(page), 2).unwrap();
            world.drain();
            assert_eq!(
                world.load(cpu, space, at(page, 1)),
                Err(FaultError::NoRegion)
            );
        }
    };
    world.run(&[&work, &work, &work]);
    world.finish(&[space], &[]);
}

fn split_and_merge<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| {
        world.anonymous(space, 0x1000, 12);
        world.anonymous(space, 0x1020, 1);
    });
    let split = |_| {
        let all = RW.union(Prot::EXECUTE);
        for (first, pages) in [(2, 3), (5, 4), (0, 6)] {
            world
                .vm
                .space(space)
                .protect(Vpn(0x1000 + first), pages, all)
                .unwrap();
            world
                .vm
                .space(space)
                .protect(Vpn(0x1000 + first), pages, RW)
                .unwrap();
        }
    };
    let touch = |cpu: CpuId| {
        for page in [
            0x1005, 0x1002, 0x1020, 0x1009, 0x1000, 0x1005, 0x100b, 0x1004,
        ] {
            let word = u64::from(cpu.0);
            world.store(cpu, space, at(page, word), page).unwrap();
            assert_eq!(world.load(cpu, space, at(page, word)), Ok(page));
        }
    };
    world.run(&[&split, &touch, &touch]);
    let maps = world.alone(|| world.vm.space(space).stats().unwrap());
    // Parts that had their first stores at the same moment may have anon_vmas of
    // their own, which keeps them apart.
    if R::NAME.starts_with("anon_vma") {
        assert!((2..=6).contains(&maps.regions), "{} regions", maps.regions);
    } else {
        assert_eq!(maps.regions, 2, "all that was split is merged again");
    }
    world.finish(&[space], &[]);
}

/// Two threads map and unmap regions of their own; a third copies the space, changes
/// rights, and unmaps everything, also what the two are unmapping.
fn whole_beside_unmaps<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| world.space());
    let own = |cpu: CpuId| {
        let page = 0x1000 + 4 * u64::from(cpu.0);
        for round in 1..4 {
            world.anonymous(space, page, 2);
            // It may be gone at once.
            let stored = world.store(cpu, space, at(page + 1, 0), round);
            assert!(matches!(stored, Ok(()) | Err(FaultError::NoRegion)));
            world.vm.space(space).unmap(Vpn(page), 2).unwrap();
            let gone = world.load(cpu, space, at(page + 1, 0));
            assert_eq!(gone, Err(FaultError::NoRegion));
        }
    };
    let whole = |cpu: CpuId| {
        for round in 0..3 {
            let child = world.vm.space(space).fork().unwrap().id();
            for other in 1..3 {
                let copied = world.load(cpu, child, at(0x1001 + 4 * other, 0));
                assert!(matches!(copied, Ok(0..4) | Err(FaultError::NoRegion)));
            }
            world.vm.space(child).exit().unwrap();
            let all = RW.union(Prot::EXECUTE);
            // Some of it is not mapped.
            let _ = world.vm.space(space).protect(Vpn(0x1000), 12, all);
            if round == 1 {
                world.vm.space(space).unmap(Vpn(0x1000), 12).unwrap();
            }
        }
    };
    world.run(&[&whole, &own, &own]);
    world.finish(&[space], &[]);
}

/// A mapping that takes the place of another is there throughout.
fn replace<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| world.anonymous(space, 0x1000, 4));
    let replace = |_| {
        for _ in 0..3 {
            world.anonymous(space, 0x1001, 2);
        }
    };
    let touch = |cpu: CpuId| {
        for _ in 0..4 {
            for page in 0x1000..0x1004 {
                world
                    .store(cpu, space, at(page, u64::from(cpu.0)), page)
                    .unwrap();
            }
            let kept = world.load(cpu, space, at(0x1003, u64::from(cpu.0)));
            assert_eq!(kept, Ok(0x1003));
        }
    };
    world.run(&[&replace, &touch, &touch]);
    world.finish(&[space], &[]);
}

fn grow<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| world.anonymous(space, 0x1000, 2));
    let grow = |_| {
        for _ in 0..2 {
            world
                .vm
                .space(space)
                .remap(Vpn(0x1000), 2, 6, RemapPlacement::InPlace)
                .unwrap();
            world
                .vm
                .space(space)
                .remap(Vpn(0x1000), 6, 2, RemapPlacement::InPlace)
                .unwrap();
            world.anonymous(space, 0x1002, 3);
            world.vm.space(space).unmap(Vpn(0x1002), 3).unwrap();
        }
    };
    let touch = |cpu: CpuId| {
        for round in 0..6 {
            world.store(cpu, space, at(0x1001, 0), round).unwrap();
            let _ = world.store(cpu, space, at(0x1003, 0), round);
            assert_eq!(world.load(cpu, space, at(0x1001, 0)), Ok(round));
        }
    };
    world.run(&[&grow, &touch]);
    world.finish(&[space], &[]);
}

/// Pages go to and fro; whoever finds them finds what was stored.
fn move_about<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| world.space());
    let homes = [EDGE - 2, 0x3000, 0x1204];
    world.alone(|| {
        world.anonymous(space, homes[0], 5);
        for page in [0, 2, 4] {
            world
                .store(ZERO, space, at(homes[0] + page, 0), 70 + page)
                .unwrap();
        }
    });
    let move_pages = |_| {
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            let to = RemapPlacement::Fixed(Vpn(homes[to]));
            world
                .vm
                .space(space)
                .remap(Vpn(homes[from]), 5, 5, to)
                .unwrap();
        }
    };
    let look = |cpu: CpuId| {
        for home in [0, 1, 2, 0, 1, 2, 0] {
            for page in [2, 1, 4] {
                match world.load(cpu, space, at(homes[home] + page, 0)) {
                    Ok(word) => assert_eq!(word, if page == 1 { 0 } else { 70 + page }),
                    Err(error) => assert_eq!(error, FaultError::NoRegion),
                }
            }
            let word = 1 + u64::from(cpu.0);
            let _ = world.store(cpu, space, at(homes[home] + 3, word), 5);
        }
    };
    world.run(&[&move_pages, &look, &look]);
    world.alone(|| {
        for page in [0, 2, 4] {
            assert_eq!(
                world.load(ZERO, space, at(homes[0] + page, 0)),
                Ok(70 + page)
            );
        }
    });
    world.finish(&[space], &[]);
}

/// A CPU that comes to the space in the middle of an unmap is flushed too.
fn late_cpu<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| {
        world.anonymous(space, 0x1000, 1);
        world.store(ZERO, space, at(0x1000, 0), 1).unwrap();
        world.anonymous(space, 0x2000, 3);
    });
    let unmapped = AtomicBool::new(false);
    let unmap = |cpu: CpuId| {
        world.vm.space(space).unmap(Vpn(0x1000), 1).unwrap();
        unmapped.store(true, Ordering::SeqCst);
        for page in 0x2000..0x2003 {
            world.store(cpu, space, at(page, 0), 9).unwrap();
        }
    };
    let look = |cpu: CpuId| {
        for _ in 0..6 {
            let gone = unmapped.load(Ordering::SeqCst);
            match world.load(cpu, space, at(0x1000, 0)) {
                Ok(word) => assert!(!gone && word == 1, "read {word} after the unmap: {gone}"),
                Err(error) => assert_eq!(error, FaultError::NoRegion),
            }
        }
    };
    world.run(&[&unmap, &look]);
    world.finish(&[space], &[]);
}

/// The leaf table of a truncated mapping maps nothing when it is freed, but
/// CPUs know its address.
fn freed_table<R: ReverseMap>() {
    let world = World::<R>::new(1, 256, "");
    world.alone(|| {
        let space = world.space();
        let file = world.memory(2);
        world.object(space, file, 0, 0x1000, 2, true);
        world.store(ZERO, space, at(0x1000, 0), 1).unwrap();
        world.vm.file(file).set_size(0).unwrap();
        world.vm.space(space).unmap(Vpn(0x1000), 2).unwrap();
        world.anonymous(space, 0x1000, 2);
        world.store(ZERO, space, at(0x1001, 0), 2).unwrap();
        assert_eq!(world.load(ZERO, space, at(0x1001, 0)), Ok(2));
        world.vm.space(space).exit().unwrap();
        world.vm.file(file).release().unwrap();
    });
    world.finish(&[], &[]);
}

fn stack<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| {
        // The stack grows as close to what lies below it as its limit allows.
        let limits = Limits {
            stack_gap_pages: 3,
            ..Limits::default()
        };
        world.vm.space(space).set_limits(limits).unwrap();
        let stack = MapRequest::anonymous(2, RW).growing_down();
        world
            .vm
            .space(space)
            .map(&stack.at(Placement::Fixed(Vpn(0x1010))))
            .unwrap();
        world.anonymous(space, 0x1000, 1);
    });
    let work = |cpu: CpuId| {
        let first = u64::from(cpu.0);
        for page in (0x1004 + first..0x1012).rev().step_by(3) {
            world.store(cpu, space, at(page, first), page).unwrap();
            assert_eq!(world.load(cpu, space, at(page, first)), Ok(page));
        }
    };
    world.run(&[&work, &work, &work]);
    world.finish(&[space], &[]);
}

fn dont_need<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| world.anonymous(space, 0x1000, 3));
    let drop_pages = |_| {
        for advice in [Advice::DontNeed, Advice::Free, Advice::DontNeed] {
            world
                .vm
                .space(space)
                .advise(Vpn(0x1000), 2, advice)
                .unwrap();
        }
    };
    let work = |cpu: CpuId| {
        let word = u64::from(cpu.0);
        for round in 1..5 {
            for page in 0x1000..0x1003 {
                world.store(cpu, space, at(page, word), round).unwrap();
                let now = world.load(cpu, space, at(page, word)).unwrap();
                assert!(
                    now == round || now == 0 && page < 0x1002,
                    "{now} in round {round}"
                );
            }
        }
    };
    world.run(&[&drop_pages, &work, &work]);
    world.finish(&[space], &[]);
}

fn protect<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| world.anonymous(space, 0x1000, 3));
    let refused = AtomicBool::new(false);
    let protect = |cpu: CpuId| {
        world
            .vm
            .space(space)
            .protect(Vpn(0x1001), 1, Prot::READ)
            .unwrap();
        refused.store(true, Ordering::SeqCst);
        let seen = world.load(cpu, space, at(0x1001, 0)).unwrap();
        world
            .vm
            .space(space)
            .protect(Vpn(0x1000), 3, Prot::READ)
            .unwrap();
        assert_eq!(world.load(cpu, space, at(0x1001, 0)), Ok(seen));
        refused.store(false, Ordering::SeqCst);
        world.vm.space(space).protect(Vpn(0x1000), 3, RW).unwrap();
    };
    let work = |cpu: CpuId| {
        for round in 1..8 {
            let is_refused = refused.load(Ordering::SeqCst);
            let stored = world.store(cpu, space, at(0x1001, 0), round);
            let still = refused.load(Ordering::SeqCst);
            assert!(
                stored != Ok(()) || !is_refused || !still,
                "stored to a read-only page"
            );
            assert!(stored == Ok(()) || stored == Err(FaultError::Protection));
        }
    };
    world.run(&[&protect, &work]);
    world.finish(&[space], &[]);
}

fn out_of_memory<R: ReverseMap>() {
    let world = World::<R>::new(3, 96, "");
    let space = world.alone(|| world.space());
    world.alone(|| world.anonymous(space, 0x1000, 100));
    let work = |cpu: CpuId| {
        let mut children = Vec::new();
        for step in 0..25 {
            let page = 0x1000 + 25 * u64::from(cpu.0) + step;
            match world.store(cpu, space, at(page, 0), page) {
                Ok(()) => assert_eq!(world.load(cpu, space, at(page, 0)), Ok(page)),
                Err(error) => assert_eq!(error, FaultError::OutOfMemory),
            }
            if step % 12 == 5 {
                children.extend(world.vm.space(space).fork().map(Space::id));
            }
        }
        for child in children {
            world.vm.space(child).exit().unwrap();
        }
    };
    world.run(&[&work, &work, &work]);
    world.finish(&[space], &[]);
}
