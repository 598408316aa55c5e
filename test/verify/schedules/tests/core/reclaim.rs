//! Reclaim beside everything that uses the pages it takes: what was stored to a page of a file,
//! by whomever, is in the store or in memory at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{World, at};
use vellum::addr::{Access, Pfn, Prot, Vpn};
use vellum::platform::{CpuId, Machine};
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, ReadRequest, RemapPlacement, WriteRequest};
use vellum::sync::bytes::FrameBytes;
use vellum::{ObjectId, SpaceId};

const PAGE: u64 = 4096;
const SHARED: u64 = 0x1000;
const PRIVATE: u64 = 0x1800;
const PAGES: u64 = 3;
const STORE: u64 = 3;

explored! {
    counters_in_pages_that_leave_and_come_back_lose_nothing: 40 => counters;
    what_a_device_stores_to_a_pinned_page_stays: 32 => pinned;
    a_read_of_several_pages_beside_reclaim_sees_none_that_is_older: 32 => ordered_reads;
    writes_and_truncations_beside_reclaim_lose_nothing: 32 => truncate;
    what_a_sync_took_beside_reclaim_is_in_the_store: 32 => sync;
    private_copies_of_pages_that_leave_are_whole: 32 => copies;
    memory_for_a_part_of_what_is_used_is_enough: 12 => shortage;
    room_that_another_is_making_is_waited_for: 12 => room_of_another;
    what_a_parent_stores_after_a_fork_stays_its_own_beside_reclaim: 48 => stores_after_fork;
    pages_that_stay_where_they_are_listed_are_listed_although_others_are_taken: 48 => rest_ends;
    pages_in_generations_that_stay_where_they_are_listed_are_listed: 24 => rest_of_generations_ends;
    discarded_and_protected_pages_are_so_at_once_beside_reclaim: 48 => discarded;
    what_is_stored_to_freed_pages_stays_beside_reclaim: 48 => stores_to_freed;
    what_is_stored_to_freed_pages_stays_beside_a_fork: 48 => stores_to_freed_beside_fork;
    counters_lose_nothing_beside_walks: 20 => counters_beside_walks;
    what_a_device_stores_stays_beside_walks: 16 => pinned_beside_walks;
    truncations_beside_walks_lose_nothing: 16 => truncate_beside_walks;
    private_copies_beside_walks_are_whole: 16 => copies_beside_walks;
    generations_of_a_part_of_what_is_used_are_enough: 12 => shortage_of_generations;
    spaces_that_fork_move_unmap_and_end_beside_walks_keep_their_pages: 32 => walks;
}

/// The designs.
const LISTS: &str = "reclaim=on";
const GENERATIONS: &str = "reclaim=on,aging=generations";

struct Mapped<R: ReverseMap> {
    world: World<R>,
    space: SpaceId,
    file: ObjectId,
}

/// A file of three pages that are mapped.
fn mapped<R: ReverseMap>(cpus: usize, design: &str) -> Mapped<R> {
    let world = World::<R>::new(cpus, 256, design);
    let (space, file) = world.alone(|| {
        let space = world.space();
        let file = world.stored(STORE, PAGES);
        world.object(space, file, 0, SHARED, PAGES, true);
        (space, file)
    });
    Mapped { world, space, file }
}

impl<R: ReverseMap> Mapped<R> {
    fn reclaim(&self, times: u64) {
        for _ in 0..times {
            self.world.vm.reclaim_pages(2);
        }
    }

    fn finish(&self) {
        self.world.finish(&[self.space], &[self.file]);
    }
}

fn words(word: u64, pages: usize) -> Vec<u8> {
    word.to_le_bytes().repeat(pages * 512)
}

fn write<R: ReverseMap>(world: &World<R>, file: ObjectId, page: u64, word: u64, pages: usize) {
    let data = words(word, pages);
    assert_eq!(
        world
            .vm
            .file(file)
            .write(WriteRequest::bytes(page * PAGE, &[&data])),
        Ok(data.len())
    );
}

/// The first words of some pages.
fn read<R: ReverseMap>(world: &World<R>, file: ObjectId, pages: usize) -> Vec<u64> {
    let mut data = words(u64::MAX, pages);
    let count = world
        .vm
        .file(file)
        .read(ReadRequest::bytes(0, &mut [&mut data]))
        .unwrap();
    let pages = data[..count].chunks(PAGE as usize);
    pages
        .map(|page| u64::from_le_bytes(page[..8].try_into().unwrap()))
        .collect()
}

/// Two CPUs count in words of their own in each page, in opposite order, while a third has the
/// pages leave: the oracle that found Linux's swap cache losing stores (2024).
fn counters<R: ReverseMap>() {
    counters_of::<R>(LISTS);
}

fn counters_beside_walks<R: ReverseMap>() {
    counters_of::<R>(GENERATIONS);
}

fn counters_of<R: ReverseMap>(design: &str) {
    const ROUNDS: u64 = 6;
    let mapped = mapped::<R>(3, design);
    let world = &mapped.world;
    let count = |cpu: CpuId| {
        for round in 0..ROUNDS {
            for step in 0..PAGES {
                let page = if cpu.0 == 0 { step } else { PAGES - 1 - step };
                let address = at(SHARED + page, 8 + u64::from(cpu.0));
                let before = world.load(cpu, mapped.space, address).unwrap();
                let expected = match round {
                    0 => crate::world::pristine(STORE, page),
                    _ => round,
                };
                assert_eq!(before, expected, "page {page}, CPU {}", cpu.0);
                world.store(cpu, mapped.space, address, round + 1).unwrap();
            }
        }
    };
    let reclaim = |_| mapped.reclaim(12);
    world.run(&[&count, &count, &reclaim]);
    world.alone(|| {
        world.vm.file(mapped.file).sync().unwrap();
        for (page, cpu) in [(0, 0), (0, 1), (2, 0), (2, 1)] {
            let stored = world.machine().store();
            let stored = stored.stored_word(STORE, page * PAGE + (8 + cpu) * 8);
            assert_eq!(stored, Some(ROUNDS), "page {page}, CPU {cpu}");
        }
    });
    mapped.finish();
}

/// A device stores to a page for as long as it is pinned.
fn pinned<R: ReverseMap>() {
    pinned_of::<R>(LISTS);
}

fn pinned_beside_walks<R: ReverseMap>() {
    pinned_of::<R>(GENERATIONS);
}

fn pinned_of<R: ReverseMap>(design: &str) {
    let mapped = mapped::<R>(3, design);
    let world = &mapped.world;
    let device = |cpu: CpuId| {
        for round in 1..5 {
            let mut frames = [Pfn::NONE];
            let page = Vpn(SHARED + 1);
            let pinned = world
                .vm
                .space(mapped.space)
                .pin_pages(page, Access::Write, &mut frames);
            let pinned = pinned.unwrap();
            let address = world.machine().frame(pinned[0]);
            // SAFETY: a frame of the machine, pinned; others touch it as words, too.
            let bytes = unsafe { FrameBytes::new(address, PAGE as usize) };
            bytes.write(80, &u64::to_le_bytes(round));
            world.machine().relax(0);
            bytes.write(88, &u64::to_le_bytes(round));
            drop(pinned);
            for word in [10, 11] {
                let seen = world.load(cpu, mapped.space, at(SHARED + 1, word));
                assert_eq!(seen, Ok(round), "what the device has stored");
            }
        }
    };
    let reclaim = |_| mapped.reclaim(10);
    world.run(&[&device, &reclaim, &reclaim]);
    mapped.finish();
}

/// The second page is always written before the first.
fn ordered_reads<R: ReverseMap>() {
    let mapped = mapped::<R>(3, LISTS);
    let (world, file) = (&mapped.world, mapped.file);
    world.alone(|| {
        write(world, file, 1, 1, 1);
        write(world, file, 0, 1, 1);
    });
    let change = |_| {
        for round in 2..8 {
            write(world, file, 1, round, 1);
            write(world, file, 0, round, 1);
        }
    };
    let look = |_| {
        for _ in 0..8 {
            let seen = read(world, file, 2);
            assert!(seen[0] <= seen[1], "{seen:?}: the second page is older");
        }
    };
    let reclaim = |_| mapped.reclaim(10);
    world.run(&[&change, &look, &reclaim]);
    mapped.finish();
}

fn truncate<R: ReverseMap>() {
    truncate_of::<R>(LISTS);
}

fn truncate_beside_walks<R: ReverseMap>() {
    truncate_of::<R>(GENERATIONS);
}

fn truncate_of<R: ReverseMap>(design: &str) {
    let mapped = mapped::<R>(3, design);
    let (world, file) = (&mapped.world, mapped.file);
    let change = |cpu: CpuId| {
        for round in 1..5 {
            write(world, file, 0, round, 3);
            world
                .store(cpu, mapped.space, at(SHARED + 1, 7), round + 100)
                .unwrap();
            assert_eq!(read(world, file, 3), [round; 3]);
            world.vm.file(file).set_size(PAGE).unwrap();
            world.vm.file(file).set_size(3 * PAGE).unwrap();
            assert_eq!(read(world, file, 3), [round, 0, 0]);
            world.vm.file(file).punch_hole(0, PAGE).unwrap();
            assert_eq!(read(world, file, 3), [0, 0, 0]);
        }
    };
    let reclaim = |_| mapped.reclaim(10);
    world.run(&[&change, &reclaim, &reclaim]);
    mapped.finish();
}

fn sync<R: ReverseMap>() {
    let mapped = mapped::<R>(3, LISTS);
    let (world, file) = (&mapped.world, mapped.file);
    let done = AtomicU64::new(0);
    let change = |cpu: CpuId| {
        for round in 1..6 {
            write(world, file, 0, round, 1);
            world
                .store(cpu, mapped.space, at(SHARED + 2, 100), round)
                .unwrap();
            done.store(round, Ordering::SeqCst);
        }
    };
    let sync = |_| {
        for _ in 0..4 {
            let before = done.load(Ordering::SeqCst);
            world.vm.file(file).sync().unwrap();
            for place in [8, 2 * PAGE + 800] {
                let word = world.machine().store().stored_word(STORE, place);
                let is_new = word.is_some_and(|word| (before..6).contains(&word));
                assert!(before == 0 || is_new, "{word:?} after {before}");
            }
        }
    };
    let reclaim = |_| mapped.reclaim(10);
    world.run(&[&change, &sync, &reclaim]);
    mapped.finish();
}

/// A private copy is made of a page that may leave at any time, while the file is written.
fn copies<R: ReverseMap>() {
    copies_of::<R>(LISTS);
}

fn copies_beside_walks<R: ReverseMap>() {
    copies_of::<R>(GENERATIONS);
}

fn copies_of<R: ReverseMap>(design: &str) {
    const PRIVATE: u64 = 0x1010;
    let mapped = mapped::<R>(3, design);
    let (world, file) = (&mapped.world, mapped.file);
    world.alone(|| {
        world.object(mapped.space, file, 0, PRIVATE, PAGES, false);
        write(world, file, 0, 1, 3);
    });
    let change = |_| {
        for round in 2..6 {
            write(world, file, 0, round, 3);
        }
    };
    let copy = |cpu: CpuId| {
        for page in 0..PAGES {
            world
                .store(cpu, mapped.space, at(PRIVATE + page, 0), 99)
                .unwrap();
            let ends = [1, 511].map(|word| world.load(cpu, mapped.space, at(PRIVATE + page, word)));
            let ends = ends.map(Result::unwrap);
            assert!(ends.iter().all(|word| (1..6).contains(word)), "{ends:?}");
            let shared = world.load(cpu, mapped.space, at(SHARED + page, 0));
            assert!((1..6).contains(&shared.unwrap()), "the file keeps its own");
        }
    };
    let reclaim = |_| mapped.reclaim(10);
    world.run(&[&change, &copy, &reclaim]);
    mapped.finish();
}

/// Two CPUs use files that are several times as large as memory.
fn shortage<R: ReverseMap>() {
    shortage_of::<R>(LISTS);
}

fn shortage_of_generations<R: ReverseMap>() {
    shortage_of::<R>(GENERATIONS);
}

fn shortage_of<R: ReverseMap>(design: &str) {
    const LARGE: u64 = 160;
    let world = World::<R>::new(2, 72, design);
    let files = world.alone(|| [3, 4].map(|store| world.stored(store, LARGE)));
    let work = |cpu: CpuId| {
        let file = files[usize::from(cpu.0)];
        for page in 0..LARGE {
            write(&world, file, page, page + 1, 1);
        }
        for page in (0..LARGE).rev().step_by(5) {
            let mut data = words(0, 1);
            let read = world
                .vm
                .file(file)
                .read(ReadRequest::bytes(page * PAGE, &mut [&mut data]));
            assert_eq!(read, Ok(PAGE as usize));
            assert!(data == words(page + 1, 1), "page {page}");
        }
    };
    world.run(&[&work, &work]);
    world.finish(&[], &files);
}

/// One CPU has all pages in hand that could leave while the other one needs memory.
fn room_of_another<R: ReverseMap>() {
    const ALL: u64 = 30;
    let world = World::<R>::new(2, 36, LISTS);
    let files = world.alone(|| [3, 4].map(|store| world.stored(store, ALL)));
    world.alone(|| {
        for page in 0..ALL {
            write(&world, files[0], page, page + 1, 1);
        }
    });
    let reclaim = |_| {
        for _ in 0..3 {
            world.vm.reclaim_pages(ALL);
        }
    };
    let change = |_| {
        for page in 0..ALL {
            write(&world, files[1], page, page + 1, 1);
        }
    };
    world.run(&[&reclaim, &change]);
    world.finish(&[], &files);
}

fn swapping<R: ReverseMap>(cpus: usize, design: &str) -> World<R> {
    let mut world = World::<R>::new(cpus, 320, design);
    world.swap_on(200);
    world
}

/// A world with a space that has private pages, whose numbers are in their first words.
fn private<R: ReverseMap>() -> (World<R>, SpaceId) {
    private_of(LISTS)
}

fn private_of<R: ReverseMap>(design: &str) -> (World<R>, SpaceId) {
    let world = swapping::<R>(2, design);
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, PRIVATE, PAGES);
        space
    });
    (world, space)
}

fn store_all<R: ReverseMap>(world: &World<R>, cpu: CpuId, space: SpaceId, value: u64) {
    for page in 0..PAGES {
        let stored = world.store(cpu, space, at(PRIVATE + page, 0), value);
        stored.unwrap();
    }
}

/// Entries name swap slots already, and the CPU of the parent has not been flushed.
fn stores_after_fork<R: ReverseMap>() {
    let (world, space) = private::<R>();
    let work = |cpu: CpuId| {
        for round in 0..4 {
            store_all(&world, cpu, space, round);
            let child = world.vm.space(space).fork().unwrap().id();
            store_all(&world, cpu, space, 100);
            for page in 0..PAGES {
                let word = world.load(cpu, child, at(PRIVATE + page, 0));
                assert_eq!(word, Ok(round), "page {page}");
            }
            world.vm.space(space).load().unwrap();
            world.vm.space(child).exit().unwrap();
        }
    };
    world.run(&[&work, &|_| reclaim_private(&world)]);
    world.finish(&[space], &[]);
}

fn reclaim_private<R: ReverseMap>(world: &World<R>) {
    for _ in 0..8 {
        world.vm.reclaim_pages(PAGES);
    }
}

/// Pages come and go in the same frames until the node is at rest; then some are taken.
fn rest_ends<R: ReverseMap>() {
    rest_ends_of::<R>(LISTS);
}

fn rest_of_generations_ends<R: ReverseMap>() {
    rest_ends_of::<R>(GENERATIONS);
}

fn rest_ends_of<R: ReverseMap>(design: &str) {
    let (world, space) = private_of::<R>(design);
    let come_and_go = |cpu: CpuId| {
        store_all(&world, cpu, space, 1);
        let all = Vpn(PRIVATE);
        let discarded = world.vm.space(space).advise(all, PAGES, Advice::DontNeed);
        discarded.unwrap();
    };
    world.alone(|| (0..6).for_each(|_| come_and_go(CpuId(0))));
    let work = |cpu: CpuId| {
        (0..2).for_each(|_| come_and_go(cpu));
        store_all(&world, cpu, space, 2);
    };
    world.run(&[&work, &|_| reclaim_private(&world)]);
    // Every page is on a list.
    world.alone(|| world.vm.audit().unwrap());
    world.finish(&[space], &[]);
}

/// The same, and the space itself has the pages go or takes the right to store to them.
fn discarded<R: ReverseMap>() {
    let (world, space) = private::<R>();
    let all = Vpn(PRIVATE);
    let work = |cpu: CpuId| {
        for _ in 0..3 {
            store_all(&world, cpu, space, 1);
            world
                .vm
                .space(space)
                .protect(all, PAGES, Prot::READ)
                .unwrap();
            for page in 0..PAGES {
                let stored = world.store(cpu, space, at(PRIVATE + page, 0), 2);
                assert_eq!(stored, Err(FaultError::Protection), "page {page}");
            }
            let all_rights = Prot::READ_WRITE;
            world
                .vm
                .space(space)
                .protect(all, PAGES, all_rights)
                .unwrap();
            store_all(&world, cpu, space, 3);
            let discarded = world.vm.space(space).advise(all, PAGES, Advice::DontNeed);
            discarded.unwrap();
            for page in 0..PAGES {
                let word = world.load(cpu, space, at(PRIVATE + page, 0));
                assert_eq!(word, Ok(0), "page {page}");
            }
        }
    };
    world.run(&[&work, &|_| reclaim_private(&world)]);
    world.finish(&[space], &[]);
}

/// Pages that are freed may be of zeroes afterwards, until they are stored to again.
fn stores_to_freed<R: ReverseMap>() {
    let (world, space) = private::<R>();
    let work = |cpu: CpuId| {
        for round in 1..4 {
            store_all(&world, cpu, space, round);
            let freed = (world.vm)
                .space(space)
                .advise(Vpn(PRIVATE), PAGES, Advice::Free);
            freed.unwrap();
            let first = world.load(cpu, space, at(PRIVATE, 0)).unwrap();
            assert!(first == round || first == 0, "{first} in round {round}");
            for page in 1..PAGES {
                let stored = world.store(cpu, space, at(PRIVATE + page, 0), 10 * round);
                stored.unwrap();
            }
            let child = (round == 2).then(|| world.vm.space(space).fork().unwrap().id());
            for space in [Some(space), child].into_iter().flatten() {
                for page in 1..PAGES {
                    let word = world.load(cpu, space, at(PRIVATE + page, 0));
                    assert_eq!(word, Ok(10 * round), "page {page}");
                }
            }
            if let Some(child) = child {
                world.vm.space(space).load().unwrap();
                world.vm.space(child).exit().unwrap();
            }
        }
    };
    world.run(&[&work, &|_| reclaim_private(&world)]);
    world.finish(&[space], &[]);
}

/// One task of a space stores to freed pages while another forks it. The parent has what was
/// stored when it is alone again, and nobody takes it for a page that may be dropped.
fn stores_to_freed_beside_fork<R: ReverseMap>() {
    let (world, space) = private::<R>();
    world.alone(|| {
        world.vm.space(space).share().unwrap();
        store_all(&world, CpuId(0), space, 1);
        let freed = (world.vm)
            .space(space)
            .advise(Vpn(PRIVATE), PAGES, Advice::Free);
        freed.unwrap();
    });
    let fork = |_| {
        let child = world.vm.space(space).fork().unwrap().id();
        world.vm.space(child).exit().unwrap();
    };
    let store = |cpu: CpuId| store_all(&world, cpu, space, 2);
    world.run(&[&fork, &store]);
    world.alone(|| {
        reclaim_private(&world);
        for page in 0..PAGES {
            let word = world.load(CpuId(0), space, at(PRIVATE + page, 0));
            assert_eq!(word, Ok(2), "page {page}");
        }
        world.vm.space(space).exit().unwrap();
    });
    world.finish(&[space], &[]);
}

/// Private pages, their copies in a child, and pages that move, while two others have pages leave
/// and walk over all tables.
fn walks<R: ReverseMap>() {
    const PRIVATE: [u64; 2] = [0x2000, 0x2200];
    const COUNT: u64 = 10;
    let world = swapping::<R>(3, GENERATIONS);
    let (space, file) = world.alone(|| {
        let space = world.space();
        let file = world.stored(STORE, PAGES);
        world.object(space, file, 0, SHARED, PAGES, true);
        world.anonymous(space, PRIVATE[0], COUNT);
        // So many pages have come that whoever reclaims walks first.
        for page in 0..COUNT {
            let stored = world.store(CpuId(0), space, at(PRIVATE[0] + page, 0), 0);
            stored.unwrap();
        }
        (space, file)
    });
    let check = |cpu: CpuId, space: SpaceId, start: u64, round: u64| {
        for page in 0..COUNT {
            let word = world.load(cpu, space, at(start + page, 0));
            assert_eq!(word, Ok(round + page), "page {page}");
        }
    };
    let store = |cpu: CpuId, space: SpaceId, start: u64, round: u64| {
        for page in 0..COUNT {
            let stored = world.store(cpu, space, at(start + page, 0), round + page);
            stored.unwrap();
        }
    };
    let change = |cpu: CpuId| {
        for round in 1..3 {
            let [here, there] = [
                PRIVATE[(round as usize + 1) % 2],
                PRIVATE[round as usize % 2],
            ];
            store(cpu, space, here, 100 * round);
            let child = world.vm.space(space).fork().unwrap().id();
            store(cpu, space, here, 100 * round + 50);
            check(cpu, child, here, 100 * round);
            store(cpu, child, here, 7);
            world.vm.space(child).unmap(Vpn(here), 3).unwrap();
            world.vm.space(space).load().unwrap();
            world.vm.space(child).exit().unwrap();
            let to = RemapPlacement::Fixed(Vpn(there));
            (world.vm)
                .space(space)
                .remap(Vpn(here), COUNT, COUNT, to)
                .unwrap();
            check(cpu, space, there, 100 * round + 50);
            world.store(cpu, space, at(SHARED + 1, 0), round).unwrap();
        }
    };
    let reclaim = |_| {
        for _ in 0..8 {
            world.vm.reclaim_pages(3);
        }
    };
    world.run(&[&change, &reclaim, &reclaim]);
    world.alone(|| {
        let stats = world.vm.stats().reclaim;
        assert!(stats.walks > 0, "{stats:?}");
        world.vm.file(file).sync().unwrap();
        let stored = world.machine().store();
        assert_eq!(stored.stored_word(STORE, PAGE), Some(2));
    });
    world.finish(&[space], &[file]);
}
