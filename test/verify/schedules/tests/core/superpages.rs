//! Superpages that several CPUs use, share, split and give back at the same time.

use std::cell::Cell;
use std::sync::Arc;

use crate::world::{RW, World, at};
use vellum::SpaceId;
use vellum::addr::{Access, PageRange, Pfn, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError};
use vellum_schedules::Step;

const ZERO: CpuId = CpuId(0);
/// First page of a superpage, and how many it has.
const BASE: u64 = 0x1000;
const PAGES: u64 = 512;
/// A page of it that nobody uses, where a test wants one.
const HOLE: u64 = 300;
const FRAMES: u64 = 8 * PAGES;
const EAGER: &str = "superpage=eager";

explored! {
    the_first_uses_of_a_range_map_one_superpage: 20 => first_uses;
    a_superpage_is_split_while_others_store_to_it: 20 => split_beside_stores;
    two_spaces_split_a_run_that_they_share: 20 => both_split;
    a_run_is_split_in_one_space_while_another_forks_or_ends: 20 => split_beside_fork;
    lookups_find_every_mapping_while_one_is_split: 20 => lookup_beside_split;
    parts_of_a_superpage_are_pinned_beside_stores: 16 => pins;
    rights_of_a_superpage_are_gone_when_protect_returns: 20 => protect;
    stores_beside_a_collapse_are_kept: 32 => collapse;
    lookups_beside_a_collapse_change_nothing: 20 => lookup_beside_collapse;
    the_last_pages_of_a_range_are_stored_to_beside_one_another: 20 => fill_together;
    a_range_is_filled_beside_an_unmapping_of_a_part: 32 => fill_beside_unmap;
    a_range_is_filled_beside_a_fork: 20 => fill_beside_fork;
    a_range_is_filled_beside_a_change_of_rights: 20 => fill_beside_protect;
    a_range_is_filled_beside_a_lookup: 20 => fill_beside_lookup;
    records_become_one_or_stay_beside_a_lookup: 20 => unite_beside_lookup;
    a_reservation_is_broken_beside_faults: 20 => break_beside_faults;
}

scripted! {
    what_is_stored_while_pages_are_copied_for_a_superpage_is_in_it => stored_while_copied;
    a_page_that_a_fault_maps_beside_a_collapse_is_in_the_superpage => filled_while_collapsed;
    what_is_stored_by_a_fault_beside_a_collapse_is_in_the_superpage => allowed_while_collapsed;
    a_page_is_not_mapped_beside_the_superpage_that_it_is_in => promoted_beside_fault;
    a_page_that_is_freed_as_it_fills_a_range_stays_single => freed_as_it_fills;
}

fn world_with_region<R: ReverseMap>(cpus: usize) -> (World<R>, SpaceId) {
    let world = World::<R>::new(cpus, FRAMES, EAGER);
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, BASE, PAGES);
        space
    });
    (world, space)
}

/// A superpage with a word of its own in its first pages.
fn world_with_superpage<R: ReverseMap>(cpus: usize) -> (World<R>, SpaceId) {
    let (world, space) = world_with_region(cpus);
    world.alone(|| {
        for page in 0..8 {
            world.store(ZERO, space, at(BASE + page, 0), page).unwrap();
        }
        assert_eq!(world.vm.stats().events.superpage_maps, 1);
    });
    (world, space)
}

fn first_uses<R: ReverseMap>() {
    let (world, space) = world_with_region::<R>(3);
    let work = |cpu: CpuId| {
        let page = BASE + 100 * u64::from(cpu.0);
        world.store(cpu, space, at(page, 1), page).unwrap();
        assert_eq!(world.load(cpu, space, at(page, 1)), Ok(page));
        assert_eq!(world.load(cpu, space, at(page + 1, 0)), Ok(0));
    };
    world.run(&[&work, &work, &work]);
    world.alone(|| {
        assert_eq!(world.vm.stats().events.superpage_maps, 1);
        for page in [0, 100, 200].map(|page| BASE + page) {
            assert_eq!(world.load(ZERO, space, at(page, 1)), Ok(page));
        }
    });
    world.finish(&[space], &[]);
}

fn split_beside_stores<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(3);
    let split = |_| {
        world.vm.space(space).unmap(Vpn(BASE + 300), 2).unwrap();
        let rest = Vpn(BASE + 400);
        world
            .vm
            .space(space)
            .advise(rest, 3, Advice::DontNeed)
            .unwrap();
    };
    let store = |cpu: CpuId| {
        let word = 1 + u64::from(cpu.0);
        for page in 0..8 {
            world
                .store(cpu, space, at(BASE + page, word), page)
                .unwrap();
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
        }
    };
    world.run(&[&split, &store, &store]);
    world.alone(|| {
        for page in 0..8 {
            for (word, value) in [(0, page), (2, page), (3, page)] {
                assert_eq!(world.load(ZERO, space, at(BASE + page, word)), Ok(value));
            }
        }
        let gone = world.load(ZERO, space, at(BASE + 300, 0));
        assert_eq!(gone, Err(FaultError::NoRegion));
    });
    world.finish(&[space], &[]);
}

fn both_split<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(2);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let work = |cpu: CpuId| {
        let own = [space, child][usize::from(cpu.0)];
        let value = 50 + u64::from(cpu.0);
        for page in [1, 2] {
            world.store(cpu, own, at(BASE + page, 0), value).unwrap();
        }
        for (page, seen) in [(0, 0), (1, value), (2, value), (3, 3)] {
            assert_eq!(world.load(cpu, own, at(BASE + page, 0)), Ok(seen));
        }
    };
    world.run(&[&work, &work]);
    world.finish(&[space, child], &[]);
}

fn split_beside_fork<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(3);
    let (child, other) = world.alone(|| {
        let child = world.vm.space(space).fork().unwrap().id();
        (child, world.vm.space(space).fork().unwrap().id())
    });
    let store = |cpu: CpuId| {
        world.store(cpu, space, at(BASE + 1, 0), 99).unwrap();
        assert_eq!(world.load(cpu, space, at(BASE + 2, 0)), Ok(2));
    };
    let fork = |cpu: CpuId| {
        let grandchild = world.vm.space(child).fork().unwrap().id();
        world.store(cpu, grandchild, at(BASE + 2, 0), 77).unwrap();
        assert_eq!(world.load(cpu, child, at(BASE + 2, 0)), Ok(2));
        assert_eq!(world.load(cpu, grandchild, at(BASE + 1, 0)), Ok(1));
        world.vm.space(grandchild).exit().unwrap();
    };
    let end = |_| {
        world.vm.space(other).exit().unwrap();
    };
    world.run(&[&store, &fork, &end]);
    world.finish(&[space, child], &[]);
}

fn lookup_beside_split<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(2);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let split = |cpu: CpuId| {
        world.store(cpu, child, at(BASE + 100, 0), 1).unwrap();
    };
    let look = |_| {
        let pages = PageRange::new(Vpn(BASE), 4);
        let report = world.vm.space(space).scan(pages).unwrap();
        // Both spaces go on mapping these pages, whole or one by one.
        assert_eq!(report.hits, 2 * report.pages, "{report:?}");
    };
    world.run(&[&split, &look]);
    world.finish(&[space, child], &[]);
}

fn pins<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(2);
    let pin = |_| {
        let mut frames = [Pfn::NONE; 2];
        let start = Vpn(BASE + 1);
        let pinned = (world.vm.space(space))
            .pin_pages(start, Access::Write, &mut frames)
            .unwrap();
        let shown = world
            .vm
            .space(space)
            .translate(start)
            .map(|(frame, _)| frame);
        assert_eq!(shown, Ok(pinned[0]));
    };
    let store = |cpu: CpuId| {
        for page in 0..8 {
            world.store(cpu, space, at(BASE + page, 1), page).unwrap();
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
        }
    };
    world.run(&[&pin, &store]);
    world.finish(&[space], &[]);
}

fn protect<R: ReverseMap>() {
    let (world, space) = world_with_superpage::<R>(2);
    let protect = |cpu: CpuId| {
        for (first, pages) in [(0, PAGES), (0, 3)] {
            let first = Vpn(BASE + first);
            world
                .vm
                .space(space)
                .protect(first, pages, Prot::READ)
                .unwrap();
            let refused = world.store(cpu, space, at(BASE + 1, 3), 1);
            assert_eq!(refused, Err(FaultError::Protection));
            let before = world.load(cpu, space, at(BASE + 1, 1)).unwrap();
            let after = world.load(cpu, space, at(BASE + 1, 1)).unwrap();
            assert_eq!(before, after, "a store without the right");
            world.vm.space(space).protect(first, pages, RW).unwrap();
        }
    };
    let store = |cpu: CpuId| {
        for round in 0..8 {
            match world.store(cpu, space, at(BASE + 1, 1), round) {
                Ok(()) | Err(FaultError::Protection) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    world.run(&[&protect, &store]);
    world.finish(&[space], &[]);
}

/// A superpage that was split, so that its pages can be collapsed again.
fn world_with_singles<R: ReverseMap>(cpus: usize) -> (World<R>, SpaceId) {
    let (world, space) = world_with_superpage(cpus);
    world.alone(|| {
        let last = Vpn(BASE + PAGES - 1);
        world
            .vm
            .space(space)
            .advise(last, 1, Advice::DontNeed)
            .unwrap();
        world
            .store(ZERO, space, at(BASE + PAGES - 1, 0), 9)
            .unwrap();
        assert_eq!(world.vm.stats().events.superpage_demotions, 1);
    });
    (world, space)
}

fn collapse<R: ReverseMap>() {
    let (world, space) = world_with_singles::<R>(2);
    let collapse = |_| {
        let report = world.vm.space(space).collapse(Vpn(BASE), 1, 1).unwrap();
        assert_eq!(report.collapsed, 1);
    };
    let store = |cpu: CpuId| {
        for round in 1..6 {
            for page in [0, 5] {
                world.store(cpu, space, at(BASE + page, 1), round).unwrap();
                assert_eq!(world.load(cpu, space, at(BASE + page, 1)), Ok(round));
                assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
            }
            assert_eq!(
                world
                    .vm
                    .space(space)
                    .is_accessible(PageRange::new(Vpn(BASE), 2), Access::Read),
                Ok(true)
            );
        }
    };
    world.run(&[&collapse, &store]);
    world.alone(|| {
        assert_eq!(world.load(ZERO, space, at(BASE + 5, 1)), Ok(5));
        assert_eq!(world.load(ZERO, space, at(BASE + PAGES - 1, 0)), Ok(9));
    });
    world.finish(&[space], &[]);
}

/// The pages of a range, but for one that nobody has used yet, and what says that a collapse has
/// taken the right to store to them away, and that then `more` accesses were made.
fn to_be_collapsed<R: ReverseMap>(
    cpus: usize,
    more: usize,
) -> (Arc<World<R>>, SpaceId, impl Fn() -> bool + 'static) {
    let (world, space) = world_with_singles::<R>(cpus);
    let world = Arc::new(world);
    world.alone(|| {
        world.vm.space(space).share().unwrap();
        let hole = Vpn(BASE + HOLE);
        world
            .vm
            .space(space)
            .advise(hole, 1, Advice::DontNeed)
            .unwrap();
    });
    let (seen, left) = (Arc::clone(&world), Cell::new(more));
    let is_protected = move || {
        let last = Vpn(BASE + PAGES - 1);
        let mapped = vellum_schedules::undisturbed(|| seen.vm.space(space).translate(last));
        let is_protected = mapped.is_ok_and(|(_, prot)| !prot.allows(Access::Write));
        if is_protected {
            left.set(left.get().saturating_sub(1));
        }
        is_protected && left.get() == 0
    };
    (world, space, is_protected)
}

/// A CPU with the right to store in its TLB stores while pages are copied, which
/// begins with those that it stores to.
fn stored_while_copied<R: ReverseMap>() {
    let (world, space, is_copied) = to_be_collapsed::<R>(2, 60);
    let store = |cpu, value| world.store(cpu, space, at(BASE, 1), value).unwrap();
    vellum_schedules::undisturbed(|| {
        let cpu = CpuId(1);
        world.machine().run_on(cpu, || store(cpu, 1));
    });
    let collapse = |_| {
        let report = world.vm.space(space).collapse(Vpn(BASE), 1, 1).unwrap();
        assert_eq!(report.collapsed, 1);
    };
    let steps = vec![Step::until(0, is_copied), Step::end(1), Step::end(0)];
    world.run_by(steps, &[&collapse, &|cpu| store(cpu, 2)]);
    world.alone(|| assert_eq!(world.load(ZERO, space, at(BASE, 1)), Ok(2)));
    world.finish(&[space], &[]);
}

/// A fault has its frame when the collapse begins, and fills its entry when that has looked at
/// all entries.
fn filled_while_collapsed<R: ReverseMap>() {
    let (world, space, is_protected) = to_be_collapsed::<R>(2, 1);
    let has_frame = {
        let world = Arc::clone(&world);
        let allocs = move || world.vm.memory().stats().allocs;
        let before = allocs();
        move || allocs() > before
    };
    let store = |cpu| world.store(cpu, space, at(BASE + HOLE, 0), 7).unwrap();
    let collapse = |_| {
        let report = world.vm.space(space).collapse(Vpn(BASE), 1, 1).unwrap();
        assert_eq!(report.collapsed, 1);
    };
    let steps = vec![
        Step::until(0, has_frame),
        Step::until(1, is_protected),
        Step::end(0),
        Step::end(1),
    ];
    world.run_by(steps, &[&store, &collapse]);
    world.alone(|| assert_eq!(world.load(ZERO, space, at(BASE + HOLE, 0)), Ok(7)));
    world.finish(&[space], &[]);
}

/// A fault is about to give back the right to store, which a fork has taken, and does so when
/// the page has been copied.
fn allowed_while_collapsed<R: ReverseMap>() {
    let (world, space, is_copied) = to_be_collapsed::<R>(2, 60);
    world.alone(|| {
        let child = world.vm.space(space).fork().unwrap().id();
        assert_eq!(world.vm.space(child).exit(), Ok(true));
        let last = at(BASE + PAGES - 1, 0);
        world.store(ZERO, space, last, 9).unwrap();
    });
    let in_fault = in_fault(&world);
    let store = |cpu| world.store(cpu, space, at(BASE, 1), 2).unwrap();
    let collapse = |_| {
        let report = world.vm.space(space).collapse(Vpn(BASE), 1, 1).unwrap();
        assert_eq!(report.collapsed, 1);
    };
    let steps = vec![
        Step::until(0, in_fault),
        Step::until(1, is_copied),
        Step::end(0),
        Step::end(1),
    ];
    world.run_by(steps, &[&store, &collapse]);
    world.alone(|| assert_eq!(world.load(ZERO, space, at(BASE, 1)), Ok(2)));
    world.finish(&[space], &[]);
}

/// Says that a fault, the next one, has looked at its entry.
fn in_fault<R: ReverseMap>(world: &Arc<World<R>>) -> impl Fn() -> bool + 'static {
    let world = Arc::clone(world);
    let faults = move || vellum_schedules::undisturbed(|| world.vm.stats().events.faults);
    let before = faults();
    move || faults() > before
}

fn lookup_beside_collapse<R: ReverseMap>() {
    let (world, space) = world_with_singles::<R>(2);
    let collapse = |_| {
        // A lookup refers to pages, which then stay as they are.
        let report = world.vm.space(space).collapse(Vpn(BASE), 1, 1).unwrap();
        assert!(report.collapsed <= 1);
    };
    let look = |cpu: CpuId| {
        let pages = PageRange::new(Vpn(BASE), 4);
        let report = world.vm.space(space).scan(pages).unwrap();
        assert!(report.hits <= report.pages, "{report:?}");
        assert_eq!(world.load(cpu, space, at(BASE + 3, 0)), Ok(3));
    };
    world.run(&[&collapse, &look]);
    world.finish(&[space], &[]);
}

const RESERVE: &str = "superpage=reserve";

/// A range of whose pages all but the last `left` are stored to, each with its number.
fn world_nearly_full<R: ReverseMap>(cpus: usize, left: u64) -> (World<R>, SpaceId) {
    let world = World::<R>::new(cpus, FRAMES, RESERVE);
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, BASE, PAGES);
        for page in 0..PAGES - left {
            world.store(ZERO, space, at(BASE + page, 0), page).unwrap();
        }
        assert_eq!(world.vm.stats().events.superpage_promotions, 0);
        space
    });
    (world, space)
}

fn promotions<R: ReverseMap>(world: &World<R>) -> u64 {
    world.vm.stats().events.superpage_promotions
}

/// Stores to the last page, so that the range is full, and to one of the others.
fn fill<R: ReverseMap>(world: &World<R>, cpu: CpuId, space: SpaceId) {
    world.store(cpu, space, at(BASE + PAGES - 1, 0), 7).unwrap();
    world.store(cpu, space, at(BASE + 3, 1), 33).unwrap();
    assert_eq!(world.load(cpu, space, at(BASE + PAGES - 1, 0)), Ok(7));
    assert_eq!(world.load(cpu, space, at(BASE + 3, 1)), Ok(33));
    assert_eq!(world.load(cpu, space, at(BASE + 3, 0)), Ok(3));
}

fn fill_together<R: ReverseMap>() {
    let (world, space) = world_nearly_full::<R>(3, 3);
    let work = |cpu: CpuId| {
        let page = BASE + PAGES - 1 - u64::from(cpu.0);
        world.store(cpu, space, at(page, 1), page).unwrap();
        world.store(cpu, space, at(BASE + 4, 1), 5).unwrap();
        assert_eq!(world.load(cpu, space, at(page, 1)), Ok(page));
        assert_eq!(world.load(cpu, space, at(BASE + 5, 0)), Ok(5));
    };
    world.run(&[&work, &work, &work]);
    world.alone(|| {
        assert_eq!(promotions(&world), 1);
        for page in 0..PAGES - 3 {
            assert_eq!(world.load(ZERO, space, at(BASE + page, 0)), Ok(page));
        }
    });
    world.finish(&[space], &[]);
}

/// Two CPUs store to the last page that a range lacks. One has found it missing when the other
/// maps it and makes a superpage.
fn promoted_beside_fault<R: ReverseMap>() {
    let (world, space) = world_nearly_full::<R>(2, 1);
    let world = Arc::new(world);
    let in_fault = in_fault(&world);
    let last = BASE + PAGES - 1;
    let store = |cpu: CpuId| {
        let word = u64::from(cpu.0);
        world.store(cpu, space, at(last, word), 7).unwrap();
    };
    let steps = vec![Step::until(0, in_fault), Step::end(1), Step::end(0)];
    world.run_by(steps, &[&store, &store]);
    world.alone(|| {
        assert_eq!(promotions(&world), 1);
        for word in 0..2 {
            assert_eq!(world.load(ZERO, space, at(last, word)), Ok(7));
        }
    });
    world.finish(&[space], &[]);
}

/// The pages are dirty, and cannot be stored to since a fork. The last one, which comes now, is
/// freed before the fault looks whether they suit each other: it is clean, and loses the right.
fn freed_as_it_fills<R: ReverseMap>() {
    let (world, space) = world_nearly_full::<R>(2, 1);
    let world = Arc::new(world);
    let last = BASE + PAGES - 1;
    world.alone(|| {
        let child = world.vm.space(space).fork().unwrap().id();
        assert_eq!(world.vm.space(child).exit(), Ok(true));
    });
    let is_mapped = {
        let world = Arc::clone(&world);
        move || vellum_schedules::undisturbed(|| world.vm.space(space).translate(Vpn(last)).is_ok())
    };
    let store = |cpu| world.store(cpu, space, at(last, 0), 7).unwrap();
    let free = |_| {
        (world.vm)
            .space(space)
            .advise(Vpn(last), 1, Advice::Free)
            .unwrap()
    };
    let steps = vec![Step::until(0, is_mapped), Step::end(1), Step::end(0)];
    world.run_by(steps, &[&store, &free]);
    assert_eq!(promotions(&world), 0, "clean and dirty pages became one");
    world.finish(&[space], &[]);
}

fn fill_beside_unmap<R: ReverseMap>() {
    let (world, space) = world_nearly_full::<R>(2, 1);
    let unmap = |cpu: CpuId| {
        world.vm.space(space).unmap(Vpn(BASE + 100), 2).unwrap();
        let gone = world.load(cpu, space, at(BASE + 100, 0));
        assert_eq!(gone, Err(FaultError::NoRegion));
    };
    world.run(&[&|cpu| fill(&world, cpu, space), &unmap]);
    world.alone(|| {
        assert!(promotions(&world) <= 1);
        assert_eq!(world.load(ZERO, space, at(BASE + 99, 0)), Ok(99));
        assert_eq!(world.load(ZERO, space, at(BASE + 102, 0)), Ok(102));
    });
    world.finish(&[space], &[]);
}

fn fill_beside_fork<R: ReverseMap>() {
    let (world, space) = world_nearly_full::<R>(2, 1);
    let fork = |cpu: CpuId| {
        let child = world.vm.space(space).fork().unwrap().id();
        world.store(cpu, child, at(BASE + 3, 0), 90).unwrap();
        assert_eq!(world.load(cpu, child, at(BASE + 3, 0)), Ok(90));
        assert_eq!(world.load(cpu, child, at(BASE + 4, 0)), Ok(4));
        assert_eq!(world.load(cpu, space, at(BASE + 3, 0)), Ok(3));
        world.vm.space(child).exit().unwrap();
    };
    world.run(&[&|cpu| fill(&world, cpu, space), &fork]);
    world.finish(&[space], &[]);
}

fn fill_beside_protect<R: ReverseMap>() {
    let (world, space) = world_nearly_full::<R>(2, 1);
    let protect = |cpu: CpuId| {
        for (first, pages) in [(0, 3), (0, PAGES)] {
            let first = Vpn(BASE + first);
            world
                .vm
                .space(space)
                .protect(first, pages, Prot::READ)
                .unwrap();
            let refused = world.store(cpu, space, at(BASE + 1, 3), 1);
            assert_eq!(refused, Err(FaultError::Protection));
            world.vm.space(space).protect(first, pages, RW).unwrap();
        }
    };
    let store = |cpu: CpuId| {
        for page in [PAGES - 1, 1, 2, 1] {
            match world.store(cpu, space, at(BASE + page, 1), page) {
                Ok(()) => {}
                Err(FaultError::Protection) => continue,
                other => panic!("{other:?}"),
            }
            assert_eq!(world.load(cpu, space, at(BASE + page, 1)), Ok(page));
        }
    };
    world.run(&[&store, &protect]);
    world.finish(&[space], &[]);
}

fn fill_beside_lookup<R: ReverseMap>() {
    let (world, space) = world_nearly_full::<R>(2, 1);
    let look = |_| {
        let report = world
            .vm
            .space(space)
            .scan(PageRange::new(Vpn(BASE), 4))
            .unwrap();
        assert!(report.hits <= report.pages, "{report:?}");
    };
    world.run(&[&|cpu| fill(&world, cpu, space), &look]);
    world.finish(&[space], &[]);
}

/// A promoted superpage is forked, and then unmapped, while somebody has references to pages of
/// it.
fn unite_beside_lookup<R: ReverseMap>() {
    let (world, space) = world_nearly_full::<R>(2, 1);
    world.alone(|| {
        let last = at(BASE + PAGES - 1, 0);
        world.store(ZERO, space, last, PAGES - 1).unwrap();
        assert_eq!(promotions(&world), 1);
    });
    let share = |cpu: CpuId| {
        let child = world.vm.space(space).fork().unwrap().id();
        assert_eq!(world.load(cpu, child, at(BASE + 1, 0)), Ok(1));
        world.vm.space(space).unmap(Vpn(BASE), PAGES).unwrap();
        for page in [0, 2, PAGES - 1] {
            assert_eq!(world.load(cpu, child, at(BASE + page, 0)), Ok(page));
        }
        world.vm.space(child).exit().unwrap();
    };
    let look = |_| {
        for first in [0, 2] {
            let pages = PageRange::new(Vpn(BASE + first), 3);
            let report = world.vm.space(space).scan(pages).unwrap();
            assert!(report.hits <= 2 * report.pages, "{report:?}");
        }
    };
    world.run(&[&share, &look]);
    world.finish(&[space], &[]);
}

fn break_beside_faults<R: ReverseMap>() {
    const FEW: u64 = 3 * PAGES;
    // Pages of regions none of which has a whole range.
    let other_page = |page: u64| 2 * BASE + page / (PAGES - 1) * PAGES + page % (PAGES - 1);
    let world = World::<R>::new(2, FEW, RESERVE);
    let (space, other, filled) = world.alone(|| {
        let space = world.space();
        let other = world.space();
        world.anonymous(space, BASE, PAGES);
        for range in 0..3 {
            world.anonymous(other, 2 * BASE + range * PAGES, PAGES - 1);
        }
        world.store(ZERO, space, at(BASE, 0), 1).unwrap();
        // What is left is used up, but for a few frames.
        let mut filled = 0;
        while world.vm.stats().frames.used() + 12 < FEW {
            world
                .store(ZERO, other, at(other_page(filled), 0), filled)
                .unwrap();
            filled += 1;
        }
        assert_eq!(world.vm.stats().events.reservations, 1);
        (space, other, filled)
    });
    let populate = |cpu: CpuId| {
        for page in 1..12 {
            world.store(cpu, space, at(BASE + page, 0), page).unwrap();
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
        }
    };
    let use_up = |cpu: CpuId| {
        for page in filled..filled + 40 {
            world
                .store(cpu, other, at(other_page(page), 0), page)
                .unwrap();
        }
    };
    world.run(&[&populate, &use_up]);
    world.alone(|| {
        for page in 1..12 {
            assert_eq!(world.load(ZERO, space, at(BASE + page, 0)), Ok(page));
        }
        for page in filled..filled + 40 {
            assert_eq!(world.load(ZERO, other, at(other_page(page), 0)), Ok(page));
        }
        assert_eq!(world.vm.stats().frames.reservations.broken, 1);
    });
    world.finish(&[space, other], &[]);
}
