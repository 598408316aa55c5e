//! Reclaim beside everything that uses the pages it takes: what was stored to a page of a file,
//! by whomever, is in the store or in memory at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{World, at};
use vellum::addr::{Access, Pfn, Vpn};
use vellum::platform::{CpuId, Platform};
use vellum::rmap::ReverseMap;
use vellum::sync::bytes::FrameBytes;
use vellum::{ObjectId, SpaceId};

const PAGE: u64 = 4096;
const SHARED: u64 = 0x1000;
const PAGES: u64 = 3;
const STORE: u64 = 3;

explored! {
    counters_in_pages_that_leave_and_come_back_lose_nothing: 80 => counters;
    what_a_device_stores_to_a_pinned_page_stays: 60 => pinned;
    a_read_of_several_pages_beside_reclaim_sees_none_that_is_older: 60 => ordered_reads;
    writes_and_truncations_beside_reclaim_lose_nothing: 60 => truncate;
    what_a_sync_took_beside_reclaim_is_in_the_store: 60 => sync;
    private_copies_of_pages_that_leave_are_whole: 60 => copies;
    memory_for_a_part_of_what_is_used_is_enough: 24 => shortage;
}

struct Mapped<R: ReverseMap> {
    world: World<R>,
    space: SpaceId,
    file: ObjectId,
}

/// A file of three pages that are mapped.
fn mapped<R: ReverseMap>(cpus: usize) -> Mapped<R> {
    let world = World::<R>::new(cpus, 256, "reclaim=on");
    let (space, file) = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        let file = world.vm.create_file(STORE, PAGES).unwrap();
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
        world.vm.write_at(file, page * PAGE, &[&data]),
        Ok(data.len())
    );
}

/// The first words of some pages.
fn read<R: ReverseMap>(world: &World<R>, file: ObjectId, pages: usize) -> Vec<u64> {
    let mut data = words(u64::MAX, pages);
    let count = world.vm.read_at(file, 0, &mut [&mut data]).unwrap();
    let pages = data[..count].chunks(PAGE as usize);
    pages
        .map(|page| u64::from_le_bytes(page[..8].try_into().unwrap()))
        .collect()
}

/// Two CPUs count in words of their own in each page, in opposite order, while a third has the
/// pages leave: the oracle that found Linux's swap cache losing stores (2024).
fn counters<R: ReverseMap>() {
    const ROUNDS: u64 = 6;
    let mapped = mapped::<R>(3);
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
        world.vm.sync(mapped.file).unwrap();
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
    let mapped = mapped::<R>(3);
    let world = &mapped.world;
    let device = |cpu: CpuId| {
        for round in 1..5 {
            let mut frames = [Pfn::NONE];
            let page = Vpn(SHARED + 1);
            let pinned = world
                .vm
                .pin_pages(mapped.space, page, Access::Write, &mut frames);
            pinned.unwrap();
            let address = world.machine().frame(frames[0]);
            // SAFETY: a frame of the machine, pinned; others touch it as words, too.
            let bytes = unsafe { FrameBytes::new(address, PAGE as usize) };
            bytes.write(80, &u64::to_le_bytes(round));
            world.machine().relax(0);
            bytes.write(88, &u64::to_le_bytes(round));
            // SAFETY: pinned above.
            unsafe { world.vm.unpin(&frames) };
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
    let mapped = mapped::<R>(3);
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
    let mapped = mapped::<R>(3);
    let (world, file) = (&mapped.world, mapped.file);
    let change = |cpu: CpuId| {
        for round in 1..5 {
            write(world, file, 0, round, 3);
            world
                .store(cpu, mapped.space, at(SHARED + 1, 7), round + 100)
                .unwrap();
            assert_eq!(read(world, file, 3), [round; 3]);
            world.vm.set_size(file, PAGE).unwrap();
            world.vm.set_size(file, 3 * PAGE).unwrap();
            assert_eq!(read(world, file, 3), [round, 0, 0]);
            world.vm.punch_hole(file, 0, PAGE).unwrap();
            assert_eq!(read(world, file, 3), [0, 0, 0]);
        }
    };
    let reclaim = |_| mapped.reclaim(10);
    world.run(&[&change, &reclaim, &reclaim]);
    mapped.finish();
}

fn sync<R: ReverseMap>() {
    let mapped = mapped::<R>(3);
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
            world.vm.sync(file).unwrap();
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
    const PRIVATE: u64 = 0x1010;
    let mapped = mapped::<R>(3);
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
    const LARGE: u64 = 160;
    let world = World::<R>::new(2, 72, "reclaim=on");
    let files = world.alone(|| [3, 4].map(|store| world.vm.create_file(store, LARGE).unwrap()));
    let work = |cpu: CpuId| {
        let file = files[usize::from(cpu.0)];
        for page in 0..LARGE {
            write(&world, file, page, page + 1, 1);
        }
        for page in (0..LARGE).rev().step_by(5) {
            let mut data = words(0, 1);
            let read = world.vm.read_at(file, page * PAGE, &mut [&mut data]);
            assert_eq!(read, Ok(PAGE as usize));
            assert!(data == words(page + 1, 1), "page {page}");
        }
    };
    world.run(&[&work, &work]);
    world.finish(&[], &files);
}
