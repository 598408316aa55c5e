//! Pages that go to swap and come back beside stores, forks, copies, unmapping, moving,
//! truncation and pins of the same pages. A word that a test finds changed has been lost on
//! the way: a slot given up or taken again too early, a store by an old translation after
//! the page was written, a page taken although it was pinned (invariants 2, 6 and 14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::world::{SWAP, World, at};
use vellum::SpaceId;
use vellum::addr::{Access, Pfn, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, RemapPlacement};
use vellum::swap::SwapArea;
use vellum_machine::store::{CompressedArea, CompressedStore};

const ZERO: CpuId = CpuId(0);
const BASE: u64 = 0x1000;
const PAGES: u64 = 3;

explored! {
    counters_agree_that_two_bump_in_opposite_order_while_a_third_pages_out: 32 => counters;
    counters_agree_in_pages_that_go_to_a_compressed_store: 32 => compressed_counters;
    a_fork_has_what_its_parent_had_although_it_is_paged_out: 24 => fork_beside_out;
    copies_of_shared_pages_stay_apart_while_they_are_paged_out: 24 => copies_beside_out;
    unmapping_beside_paging_out_leaves_no_slot_behind: 24 => unmapped_beside_out;
    a_space_ends_while_what_it_shares_comes_back: 20 => exit_beside_in;
    a_page_pinned_for_writing_is_not_taken: 32 => pins_beside_out;
    pages_move_while_they_are_paged_out: 20 => moved_beside_out;
    copies_past_the_end_of_a_file_go_while_they_are_paged_out: 20 => truncated_beside_out;
    a_store_that_does_not_take_a_page_keeps_it_for_all_who_want_it: 20 => write_fails;
    swap_areas_are_added_and_given_up_beside_swapping: 32 => areas_come_and_go;
}

/// A world with a space that has a page's number in the first word of each of its pages,
/// and `slots` swap slots: so few that they are taken again at once.
fn world<R: ReverseMap>(cpus: usize, slots: u64) -> (World<R>, SpaceId) {
    filled(World::new(cpus, 320, ""), slots)
}

fn filled<R: ReverseMap>(mut world: World<R>, slots: u64) -> (World<R>, SpaceId) {
    world.swap_on(slots);
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, BASE, PAGES);
        for page in 0..PAGES {
            world.store(ZERO, space, at(BASE + page, 0), page).unwrap();
        }
        space
    });
    (world, space)
}

fn page_out<R: ReverseMap>(world: &World<R>, space: SpaceId) {
    world.page_out(space, BASE, PAGES);
}

/// Stores to the first word of every page, which holds the page's number so far.
fn change<R: ReverseMap>(world: &World<R>, id: SpaceId, value: u64) -> impl Fn(CpuId) + Sync {
    move |cpu| {
        for page in 0..PAGES {
            let address = at(BASE + page, 0);
            assert_eq!(world.load(cpu, id, address), Ok(page));
            world.store(cpu, id, address, value + page).unwrap();
            assert_eq!(world.load(cpu, id, address), Ok(value + page));
        }
    }
}

/// Checks that every page has what [`change`] stored.
fn are_changed<R: ReverseMap>(world: &World<R>, id: SpaceId, value: u64) {
    for page in 0..PAGES {
        let word = world.load(ZERO, id, at(BASE + page, 0));
        assert_eq!(word, Ok(value + page));
    }
}

fn counters<R: ReverseMap>() {
    let (world, space) = world::<R>(3, PAGES + 1);
    counters_in(&world, space);
}

/// The store gives up what a slot had when the slot is free, and not what it has when it is used
/// again.
fn compressed_counters<R: ReverseMap>() {
    let about = CompressedArea {
        area: SWAP,
        slots: PAGES + 1,
        bytes: 8 << 10,
        writes_back: false,
    };
    let mut store = None;
    let world = World::<R>::with_store(3, 320, "", |stores| {
        let compressed = CompressedStore::new(stores, about).unwrap();
        store.insert(Arc::new(compressed)).clone()
    });
    let (world, space) = filled(world, PAGES + 1);
    counters_in(&world, space);
    let store = store.unwrap();
    store.audit().unwrap();
    let stats = store.stats();
    assert_eq!(stats.pages, 0, "pages of free slots are left: {stats:?}");
}

fn counters_in<R: ReverseMap>(world: &World<R>, space: SpaceId) {
    const ROUNDS: u64 = 4;
    let out = |_| {
        for _ in 0..ROUNDS {
            page_out(world, space);
        }
    };
    let bump = |cpu: CpuId| {
        let word = u64::from(cpu.0);
        for round in 0..ROUNDS {
            for nth in 0..PAGES {
                let nth = if word == 1 { nth } else { PAGES - 1 - nth };
                let counter = at(BASE + nth, word);
                let now = world.load(cpu, space, counter);
                assert_eq!(now, Ok(round), "a count was lost");
                world.store(cpu, space, counter, round + 1).unwrap();
            }
        }
    };
    world.run(&[&out, &bump, &bump]);
    world.alone(|| {
        for page in 0..PAGES {
            for (word, value) in [(0, page), (1, ROUNDS), (2, ROUNDS)] {
                assert_eq!(world.load(ZERO, space, at(BASE + page, word)), Ok(value));
            }
        }
    });
    world.finish_swap(&[space], &[]);
}

fn fork_beside_out<R: ReverseMap>() {
    let (world, space) = world::<R>(3, 2 * PAGES);
    let child = std::sync::Mutex::new(None);
    let fork = |cpu: CpuId| {
        let new = world.vm.space(space).fork().unwrap().id();
        for page in 0..PAGES {
            let address = at(BASE + page, 0);
            assert_eq!(world.load(cpu, new, address), Ok(page), "of the parent");
            world.store(cpu, new, address, 100 + page).unwrap();
        }
        *child.lock().unwrap() = Some(new);
    };
    let out = |_| {
        page_out(&world, space);
        page_out(&world, space);
    };
    let store = |cpu: CpuId| {
        for page in 0..PAGES {
            world.store(cpu, space, at(BASE + page, 1), 7).unwrap();
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
        }
    };
    world.run(&[&fork, &out, &store]);
    let child = child.lock().unwrap().unwrap();
    world.alone(|| {
        for page in 0..PAGES {
            let words = [0, 1].map(|word| world.load(ZERO, space, at(BASE + page, word)));
            assert_eq!(words, [Ok(page), Ok(7)]);
            let word = world.load(ZERO, child, at(BASE + page, 0));
            assert_eq!(word, Ok(100 + page));
        }
    });
    world.finish_swap(&[space, child], &[]);
}

fn copies_beside_out<R: ReverseMap>() {
    let (world, space) = world::<R>(3, 2 * PAGES);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let out = |_| {
        page_out(&world, space);
        page_out(&world, child);
    };
    world.run(&[&out, &change(&world, space, 10), &change(&world, child, 20)]);
    world.alone(|| {
        are_changed(&world, space, 10);
        are_changed(&world, child, 20);
    });
    world.finish_swap(&[space, child], &[]);
}

fn unmapped_beside_out<R: ReverseMap>() {
    let (world, space) = world::<R>(3, PAGES);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let out = |_| page_out(&world, space);
    let unmap = |_| {
        world.vm.space(space).unmap(Vpn(BASE), 1).unwrap();
        let rest = Vpn(BASE + 1);
        world
            .vm
            .space(space)
            .advise(rest, 1, Advice::DontNeed)
            .unwrap();
        world.vm.space(child).unmap(Vpn(BASE), PAGES).unwrap();
    };
    let look = |cpu: CpuId| {
        let first = world.load(cpu, space, at(BASE, 0));
        assert!([Ok(0), Err(FaultError::NoRegion)].contains(&first));
        let second = world.load(cpu, space, at(BASE + 1, 0));
        assert!([Ok(1), Ok(0)].contains(&second), "{second:?}");
        assert_eq!(world.load(cpu, space, at(BASE + 2, 0)), Ok(2));
    };
    world.run(&[&out, &unmap, &look]);
    world.finish_swap(&[space, child], &[]);
}

fn exit_beside_in<R: ReverseMap>() {
    let (world, space) = world::<R>(3, PAGES);
    let child = world.alone(|| {
        let child = world.vm.space(space).fork().unwrap().id();
        page_out(&world, space);
        child
    });
    let end = |_| {
        assert_eq!(world.vm.space(child).exit(), Ok(true));
    };
    let look = |cpu: CpuId| {
        for page in 0..PAGES {
            assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
        }
    };
    let out = |_| page_out(&world, space);
    world.run(&[&end, &look, &out]);
    world.finish_swap(&[space], &[]);
}

/// Whoever has pinned a page for writing stores to its frame, as a device does.
fn pins_beside_out<R: ReverseMap>() {
    let (world, space) = world::<R>(3, 2 * PAGES);
    let pin = |cpu: CpuId| {
        let mut frames = [Pfn::NONE; PAGES as usize];
        let pinned = world
            .vm
            .space(space)
            .pin_pages(Vpn(BASE), Access::Write, &mut frames);
        let pinned = pinned.unwrap();
        for (page, &frame) in (BASE..).zip(&*pinned) {
            // Before a store brings it back.
            let mapped = world.vm.space(space).translate(Vpn(page));
            assert_eq!(mapped.map(|mapped| mapped.0), Ok(frame), "it was taken");
            world.store(cpu, space, at(page, 1), page).unwrap();
            let mapped = world.vm.space(space).translate(Vpn(page));
            assert_eq!(mapped.map(|mapped| mapped.0), Ok(frame), "it was taken");
        }
    };
    let out = |_| {
        page_out(&world, space);
        page_out(&world, space);
    };
    let store = |cpu: CpuId| {
        for page in 0..PAGES {
            world.store(cpu, space, at(BASE + page, 2), 5).unwrap();
        }
    };
    world.run(&[&pin, &out, &store]);
    world.alone(|| {
        for page in BASE..BASE + PAGES {
            for (word, value) in [(0, page - BASE), (1, page), (2, 5)] {
                assert_eq!(world.load(ZERO, space, at(page, word)), Ok(value));
            }
        }
    });
    world.finish_swap(&[space], &[]);
}

fn moved_beside_out<R: ReverseMap>() {
    const TO: u64 = 0x5000;
    let (world, space) = world::<R>(3, 2 * PAGES);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let to = |_| {
        let to = RemapPlacement::Fixed(Vpn(TO));
        world
            .vm
            .space(space)
            .remap(Vpn(BASE), PAGES, PAGES, to)
            .unwrap();
    };
    let out = |_| {
        page_out(&world, child);
        let _ = world
            .vm
            .space(space)
            .advise(Vpn(TO), PAGES, Advice::PageOut);
    };
    let look = |cpu: CpuId| {
        for page in 0..PAGES {
            let seen = world.load(cpu, space, at(BASE + page, 0));
            assert!([Ok(page), Err(FaultError::NoRegion)].contains(&seen));
        }
    };
    world.run(&[&to, &out, &look]);
    world.alone(|| {
        for page in 0..PAGES {
            assert_eq!(world.load(ZERO, space, at(TO + page, 0)), Ok(page));
            assert_eq!(world.load(ZERO, child, at(BASE + page, 0)), Ok(page));
        }
    });
    world.finish_swap(&[space, child], &[]);
}

fn truncated_beside_out<R: ReverseMap>() {
    const FILE: u64 = 0x3000;
    let (world, space) = world::<R>(3, 2 * PAGES);
    let file = world.alone(|| {
        let file = world.stored(3, PAGES);
        world.object(space, file, 0, FILE, PAGES, false);
        for page in 0..PAGES {
            let address = at(FILE + page, 0);
            world.store(ZERO, space, address, 50 + page).unwrap();
        }
        file
    });
    let out = |_| {
        let _ = world
            .vm
            .space(space)
            .advise(Vpn(FILE), PAGES, Advice::PageOut);
    };
    let truncate = |_| world.vm.file(file).set_size(1 << 12).unwrap();
    let look = |cpu: CpuId| {
        for page in 0..PAGES {
            let seen = world.load(cpu, space, at(FILE + page, 0));
            let gone = page > 0 && seen == Err(FaultError::PastEnd);
            assert!(gone || seen == Ok(50 + page), "page {page}: {seen:?}");
        }
    };
    world.run(&[&out, &truncate, &look]);
    world.alone(|| {
        assert_eq!(world.load(ZERO, space, at(FILE, 0)), Ok(50));
        let gone = world.load(ZERO, space, at(FILE + 1, 0));
        assert_eq!(gone, Err(FaultError::PastEnd));
        assert!(world.vm.audit().unwrap().swapped <= 1);
        world.vm.file(file).release().unwrap();
    });
    world.finish_swap(&[space], &[]);
}

fn write_fails<R: ReverseMap>() {
    let (world, space) = world::<R>(3, 4 * PAGES);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let healed = AtomicBool::new(false);
    let faults = world.store.faults();
    faults.fail_range(vellum_machine::store::Transfer::Write, 0..2);
    let out = |_| {
        page_out(&world, space);
        faults.heal();
        healed.store(true, Ordering::SeqCst);
        page_out(&world, child);
    };
    world.run(&[&out, &change(&world, space, 10), &change(&world, child, 20)]);
    assert!(healed.load(Ordering::SeqCst));
    world.alone(|| {
        are_changed(&world, space, 10);
        are_changed(&world, child, 20);
    });
    world.finish_swap(&[space, child], &[]);
}

/// Three pages, where the area that is always there has one slot.
fn areas_come_and_go<R: ReverseMap>() {
    let (world, space) = world::<R>(3, 1);
    let swap = |cpu| {
        for _ in 0..3 {
            page_out(&world, space);
            for page in 0..PAGES {
                assert_eq!(world.load(cpu, space, at(BASE + page, 0)), Ok(page));
            }
        }
    };
    let add = |cpu: CpuId| {
        let store = SWAP + u64::from(cpu.0);
        let area = SwapArea {
            store,
            slots: 2,
            priority: i32::from(cpu.0),
        };
        world.vm.swap_on(area).unwrap();
        page_out(&world, space);
        world.vm.swap_off(store).unwrap();
        world.vm.swap_on(area).unwrap();
    };
    world.run(&[&swap, &add, &add]);
    assert_eq!(world.vm.swap_stats().slots, 5);
    world.finish_swap(&[space], &[]);
}
