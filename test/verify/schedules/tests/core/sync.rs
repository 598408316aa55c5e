//! Writing back, writing and the end of objects beside everything else.

use crate::world::files::{PAGES, SHARED, files};
use crate::world::{RW, World, at};
use vellum::addr::{Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, WriteRequest};

const ZERO: CpuId = CpuId(0);

explored! {
    what_was_stored_before_a_sync_is_in_the_store: 76 => sync_stores;
    sync_beside_unmap_loses_no_store: 100 => sync_unmap;
    sync_beside_dropped_entries_loses_no_store: 100 => sync_drop;
    sync_beside_mprotect_misses_no_mapping: 100 => sync_protect;
    writes_and_truncations_take_effect_one_after_the_other: 100 => write_truncate;
    the_last_user_ends_an_object_once: 40 => last_user;
    a_mark_set_while_its_entry_is_cleared_is_kept: 32 => mark_beside_drop;
}

/// An entry that can be stored through and is not marked: one CPU stores, so that the
/// hardware marks it, while another clears the entry.
fn mark_beside_drop<R: ReverseMap>() {
    let files = files::<R>(2, "");
    let world = &files.world;
    for round in 0..4 {
        let address = at(SHARED + 1, 1);
        world.alone(|| {
            world.store(ZERO, files.space, address, 100).unwrap();
            world.vm.file(files.file).sync().unwrap();
        });
        let store = |cpu| world.store(cpu, files.space, address, round).unwrap();
        let drop_page = |_| {
            let (space, dropped) = (files.space, Advice::DontNeed);
            world
                .vm
                .space(space)
                .advise(Vpn(SHARED + 1), 1, dropped)
                .unwrap();
        };
        world.run(&[&store, &drop_page]);
        world.alone(|| world.vm.file(files.file).sync().unwrap());
        assert_eq!(files.stored(1, 1), round, "not in the store after a sync");
    }
    files.finish(&[]);
}

/// One CPU stores and syncs; others store too, sync too, fork and exit.
fn sync_stores<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    let work = |cpu: CpuId| {
        let word = 1 + u64::from(cpu.0);
        for round in 1..4 {
            world
                .store(cpu, files.space, at(SHARED + 1, word), round)
                .unwrap();
            world
                .store(cpu, files.space, at(SHARED + 2, word), round)
                .unwrap();
            world.vm.file(files.file).sync().unwrap();
            for page in [1, 2] {
                assert_eq!(
                    files.stored(page, word),
                    round,
                    "not in the store after a sync"
                );
            }
        }
    };
    let fork = |cpu: CpuId| {
        for round in 1..3 {
            let child = world.vm.space(files.space).fork().unwrap().id();
            world.store(cpu, child, at(SHARED + 1, 9), round).unwrap();
            world.vm.space(child).exit().unwrap();
            world.vm.file(files.file).sync().unwrap();
            assert_eq!(
                files.stored(1, 9),
                round,
                "lost with the child that stored it"
            );
        }
    };
    world.run(&[&work, &work, &fork]);
    files.finish(&[]);
}

/// A thread stores and syncs while another unmaps: what was stored is in the
/// store, if not from the entry then from what the unmap took over.
fn sync_unmap<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    let unmap = |_| {
        for _ in 0..3 {
            world
                .vm
                .space(files.space)
                .unmap(Vpn(SHARED), PAGES)
                .unwrap();
            world.object(files.space, files.file, 0, SHARED, PAGES, true);
        }
    };
    let store = |cpu: CpuId| {
        let word = u64::from(cpu.0);
        let mut last = 0;
        for round in 1..8 {
            match world.store(cpu, files.space, at(SHARED + 1, word), round) {
                Ok(()) => last = round,
                Err(error) => assert_eq!(error, FaultError::NoRegion),
            }
            if round % 3 == 0 {
                world.vm.file(files.file).sync().unwrap();
                assert!(
                    last == 0 || files.stored(1, word) == last,
                    "not in the store after a sync"
                );
            }
        }
    };
    world.run(&[&unmap, &store, &store]);
    files.finish(&[]);
}

/// Entries are dropped while their marks are looked for.
fn sync_drop<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    let drop_pages = |_| {
        for _ in 0..20 {
            let dropped = Advice::DontNeed;
            world
                .vm
                .space(files.space)
                .advise(Vpn(SHARED + 1), 1, dropped)
                .unwrap();
        }
    };
    let store = |cpu: CpuId| {
        let word = u64::from(cpu.0);
        for round in 1..8 {
            world
                .store(cpu, files.space, at(SHARED + 1, word), round)
                .unwrap();
            world.vm.file(files.file).sync().unwrap();
            assert_eq!(
                files.stored(1, word),
                round,
                "not in the store after a sync"
            );
        }
    };
    world.run(&[&drop_pages, &store, &store]);
    files.finish(&[]);
}

/// Splitting and merging regions hides no mapping from sync, neither in the
/// space that does it nor in another, which maps a later part of the file.
fn sync_protect<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    let other = world.alone(|| {
        files.use_pages(ZERO, 0..PAGES);
        let other = world.space();
        world.object(other, files.file, 4, SHARED + 4, 2, true);
        other
    });
    let protect = |_| {
        for (first, pages) in [(1, 4), (3, 3), (2, 4)] {
            for prot in [RW.union(Prot::EXECUTE), RW] {
                let start = Vpn(SHARED + first);
                world
                    .vm
                    .space(files.space)
                    .protect(start, pages, prot)
                    .unwrap();
            }
        }
    };
    let store = |cpu: CpuId| {
        let (id, word) = (
            [files.space, other][usize::from(cpu.0) - 1],
            4 + u64::from(cpu.0),
        );
        for round in 1..4 {
            for page in [4, 5] {
                world
                    .store(cpu, id, at(SHARED + page, word), round)
                    .unwrap();
            }
            world.vm.file(files.file).sync().unwrap();
            for page in [4, 5] {
                assert_eq!(
                    files.stored(page, word),
                    round,
                    "not in the store after a sync"
                );
            }
        }
    };
    world.run(&[&protect, &store, &store]);
    files.finish(&[other]);
}

fn write_truncate<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    world.alone(|| world.vm.file(files.file).set_size(0).unwrap());
    let write = |_| {
        for round in 1..3 {
            world
                .vm
                .file(files.file)
                .write(WriteRequest::pages(0, 2, |index, bytes| {
                    bytes.fill(0x500 + index + 16 * round)
                }))
                .unwrap();
        }
    };
    let truncate = |_| {
        for _ in 0..2 {
            world.vm.file(files.file).set_size(0).unwrap();
        }
    };
    let sync = |_| {
        world.vm.file(files.file).sync().unwrap();
    };
    world.run(&[&write, &truncate, &sync]);
    world.alone(|| {
        let end = world.vm.file(files.file).size().unwrap() >> 12;
        assert!(end == 0 || end == 2, "half of a write is left: {end} pages");
        for page in 0..end {
            let seen = world.load(ZERO, files.space, at(SHARED + page, 0)).unwrap();
            assert!(
                seen == 0x510 + page || seen == 0x520 + page,
                "a write was lost: {seen:#x}"
            );
        }
    });
    files.finish(&[]);
}

fn last_user<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "forkcopy=all");
    let (spaces, file) = world.alone(|| {
        let space = world.space();
        let file = world.stored(3, 4);
        world.object(space, file, 0, SHARED, 4, true);
        for page in 0..4 {
            world
                .store(ZERO, space, at(SHARED + page, 1), page)
                .unwrap();
        }
        ([space, world.vm.space(space).fork().unwrap().id()], file)
    });
    let work = |cpu: CpuId| {
        let id = spaces[usize::from(cpu.0)];
        world
            .store(cpu, id, at(SHARED + 2, 2 + u64::from(cpu.0)), 8)
            .unwrap();
        if cpu.0 == 0 {
            world.vm.space(id).unmap(Vpn(SHARED), 4).unwrap();
        }
        assert_eq!(world.vm.space(id).exit(), Ok(true));
    };
    let release = |_| world.vm.file(file).release().unwrap();
    world.run(&[&work, &work, &release]);
    let stored = |page: u64, word: u64| {
        world
            .machine()
            .store()
            .stored_word(3, page << 12 | word << 3)
            .unwrap()
    };
    assert_eq!(
        (stored(2, 2), stored(2, 3), stored(3, 1)),
        (8, 8, 3),
        "an ended file was not written"
    );
    assert!(world.vm.file(file).size().is_err());
    world.finish(&[], &[]);
}
