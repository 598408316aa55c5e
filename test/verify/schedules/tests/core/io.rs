//! Bytes of objects read and written beside writes, truncations, holes, faults, forks and
//! writing back, against what each may have seen.
//!
//! Values only grow from one write to the next, so that a reader who sees less than
//! before, or a zero where there was none, has seen something out of order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{World, at};
use vellum::ObjectId;
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{FileError, FileRequest, ReadRequest, WriteRequest};
use vellum_machine::BackingStore;
use vellum_machine::store::{DeviceModel, PatternStore, TimedStore};

const PAGE: u64 = 4096;
const SHARED: u64 = 0x1000;
const PRIVATE: u64 = 0x1010;

explored! {
    reads_beside_truncation_see_nothing_out_of_order: 40 => read_truncate;
    reads_beside_holes_see_nothing_out_of_order: 32 => read_punch;
    appends_are_whole_and_none_is_lost: 32 => append;
    writes_to_one_range_come_one_after_the_other: 32 => write_write;
    writes_and_stores_beside_each_other_are_all_there: 32 => write_faults;
    private_copies_beside_writes_are_old_or_new: 32 => write_fork;
    a_mount_is_exact_beside_writes_faults_and_truncations: 32 => mount;
    what_a_sync_took_is_in_the_store: 32 => write_sync;
    truncation_waits_for_writing_back: 32 => truncate_write_back;
    throttled_writers_beside_truncation_and_syncs_lose_nothing: 32 => throttled;
    pages_read_ahead_beside_writes_and_truncations: 32 => read_ahead;
    nodes_that_go_from_tree_to_tree_lead_nobody_astray: 24 => nodes;
}

/// `words` times the same word.
fn row(word: u64, words: usize) -> Vec<u8> {
    word.to_le_bytes().repeat(words)
}

fn write<R: ReverseMap>(world: &World<R>, id: ObjectId, place: u64, word: u64, words: usize) {
    let data = row(word, words);
    assert_eq!(
        world
            .vm
            .file(id)
            .write(WriteRequest::bytes(place, &[&data])),
        Ok(data.len())
    );
}

/// The words from `place` on, as many as there are.
fn read<R: ReverseMap>(world: &World<R>, id: ObjectId, place: u64, words: usize) -> Vec<u64> {
    let mut data = row(u64::MAX, words);
    let count = world
        .vm
        .file(id)
        .read(ReadRequest::bytes(place, &mut [&mut data]))
        .unwrap();
    let whole = data[..count].as_chunks().0.iter();
    whole.map(|word| u64::from_le_bytes(*word)).collect()
}

/// Words at the edges of the pages of a row of words.
fn edges(words: &[u64]) -> impl Iterator<Item = (usize, u64)> {
    let is_edge = |place: &usize| place.is_multiple_of(512) || place % 512 == 511;
    let places = (0..words.len()).filter(is_edge);
    places.map(|place| (place, words[place]))
}

/// Checks that no word is less than before, but for those that `may_be_zero`.
fn grows(seen: &mut BTreeMap<usize, u64>, words: &[u64], may_be_zero: bool) {
    for (place, word) in edges(words) {
        let before = seen.entry(place).or_default();
        if word == 0 {
            assert!(may_be_zero, "word {place} is zero after {before}");
            continue;
        }
        assert!(word >= *before, "word {place} is {word} after {before}");
        *before = word;
    }
}

/// The file has pages of one round, or fewer, at any time; never a zero.
fn read_truncate<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let id = world.alone(|| {
        let id = world.memory(0);
        write(&world, id, 0, 1, 3 * 512);
        id
    });
    let change = |_| {
        for round in 2..5 {
            world.vm.file(id).set_size(round % 2 * 100 * 8).unwrap();
            write(&world, id, round % 2 * 100 * 8, round, 3 * 512);
        }
    };
    let read = |_| {
        let mut seen = BTreeMap::new();
        for _ in 0..4 {
            grows(&mut seen, &read(&world, id, 0, 4 * 512), false);
        }
    };
    world.run(&[&change, &read, &read]);
    world.finish(&[], &[id]);
}

/// A hole is zero until it is written again, with more than there was.
fn read_punch<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let id = world.alone(|| {
        let id = world.memory(0);
        write(&world, id, 0, 1, 3 * 512);
        id
    });
    let change = |_| {
        for round in 2..4 {
            world.vm.file(id).punch_hole(8, 2 * PAGE).unwrap();
            write(&world, id, 8, round, 2 * 512);
        }
    };
    let read = |_| {
        let mut seen = BTreeMap::new();
        for _ in 0..4 {
            let words = read(&world, id, 0, 4 * 512);
            assert_eq!((words.len(), words[0]), (3 * 512, 1));
            assert_eq!(words[3 * 512 - 1], 1);
            grows(&mut seen, &words, true);
        }
    };
    world.run(&[&change, &read, &read]);
    let words = world.alone(|| read_all(&world, id));
    assert_eq!((words[0], words[1], words[2 * 512 + 1]), (1, 3, 1));
    world.finish(&[], &[id]);
}

fn read_all<R: ReverseMap>(world: &World<R>, id: ObjectId) -> Vec<u64> {
    let size = world.vm.file(id).size().unwrap();
    read(world, id, 0, size as usize / 8)
}

fn append<R: ReverseMap>() {
    const WORDS: usize = 300;
    const EACH: u64 = 4;
    let world = World::<R>::new(3, 256, "");
    let id = world.alone(|| world.memory(0));
    let append = |cpu: CpuId| {
        for number in 1..=EACH {
            let word = u64::from(cpu.0) << 8 | number;
            let data = row(word, WORDS);
            let (place, written) = world
                .vm
                .file(id)
                .write(WriteRequest::append(&[&data[..9], &data[9..]]))
                .unwrap();
            assert_eq!((place % data.len() as u64, written), (0, data.len()));
            assert_eq!(read(&world, id, place, WORDS), vec![word; WORDS]);
        }
    };
    world.run(&[&append, &append, &append]);
    let words = world.alone(|| read_all(&world, id));
    assert_eq!(words.len(), 3 * EACH as usize * WORDS);
    let mut last = [0; 3];
    for record in words.chunks(WORDS) {
        assert!(record.iter().all(|word| *word == record[0]), "{record:?}");
        let (cpu, number) = ((record[0] >> 8) as usize, record[0] & 0xff);
        assert_eq!(number, last[cpu] + 1, "of CPU {cpu}");
        last[cpu] = number;
    }
    world.finish(&[], &[id]);
}

/// Writers of the same pages, new at first and then there, with an edge in a page that a
/// writer to other pages makes the file longer from: of each round one writer's bytes are
/// left, and of each page one's.
fn write_write<R: ReverseMap>() {
    const PLACE: u64 = 2 * PAGE - 8;
    const WORDS: usize = 2 * 512 + 2;
    let world = World::<R>::new(3, 256, "");
    let id = world.alone(|| world.memory(0));
    let write_both = |cpu: CpuId| {
        for round in 1..=2 {
            write(&world, id, PLACE, u64::from(cpu.0) << 8 | round, WORDS);
        }
    };
    let grow = |_| write(&world, id, 6 * PAGE, 7, 512);
    world.run(&[&write_both, &write_both, &grow]);
    world.alone(|| {
        let words = read_all(&world, id);
        let first = PLACE as usize / 8;
        let (written, behind) = words[first..].split_at(WORDS);
        let last = written[0];
        assert_eq!(written, vec![last; WORDS], "two writes are mixed");
        assert!(last == 2 || last == 0x102, "{last:#x} was overwritten");
        let (hole, grown) = behind.split_at(behind.len() - 512);
        assert!(words[..first].iter().chain(hole).all(|word| *word == 0));
        assert_eq!(grown, vec![7; 512]);
        assert_eq!(world.vm.file(id).seek_data(0), Ok(PAGE));
    });
    world.finish(&[], &[id]);
}

/// Writes and stores to different words of pages that either may have to make.
fn write_faults<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "faultaround=1");
    let (space, id) = world.alone(|| {
        let space = world.space();
        let id = world.memory(6);
        world.object(space, id, 0, SHARED, 6, true);
        (space, id)
    });
    let write = |_| {
        // Two pages in part and one whole, then one that is half of two.
        write(&world, id, 100 * 8, 7, 512 * 2);
        write(&world, id, 3 * PAGE + 256 * 8, 8, 512);
    };
    let store = |cpu: CpuId| {
        for page in [2, 0, 3, 4] {
            let word = u64::from(cpu.0);
            world
                .store(cpu, space, at(SHARED + page, word * 9), 90 + word)
                .unwrap();
        }
    };
    world.run(&[&write, &store, &store]);
    world.alone(|| {
        let words = read_all(&world, id);
        let mut wanted = vec![0; 6 * 512];
        wanted[100..100 + 1024].fill(7);
        wanted[3 * 512 + 256..4 * 512 + 256].fill(8);
        for page in [0, 2, 3] {
            for cpu in [1, 2] {
                wanted[page * 512 + cpu * 9] = 90 + cpu as u64;
            }
        }
        // One of the two came last there.
        for cpu in [1, 2] {
            let place = 4 * 512 + cpu * 9;
            assert!([8, 90 + cpu as u64].contains(&words[place]));
            wanted[place] = words[place];
        }
        // The second page's words 9 and 18 were written before or after.
        for cpu in [1, 2] {
            let place = 2 * 512 + cpu * 9;
            if place < 100 + 1024 {
                assert!([7, 90 + cpu as u64].contains(&words[place]));
                wanted[place] = words[place];
            }
        }
        assert!(words == wanted);
    });
    world.finish(&[space], &[id]);
}

/// A private copy of a page shows it as it was at some time; the object keeps nothing of
/// what is stored to the copy.
fn write_fork<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "forkcopy=all");
    let (space, id) = world.alone(|| {
        let space = world.space();
        let id = world.memory(2);
        world.object(space, id, 0, SHARED, 2, true);
        world.object(space, id, 0, PRIVATE, 2, false);
        write(&world, id, 0, 1, 1024);
        (space, id)
    });
    let child = AtomicU64::new(0);
    let write = |_| {
        for round in 2..5 {
            write(&world, id, 0, round, 1024);
        }
    };
    let fork = |cpu: CpuId| {
        let made = world.vm.space(space).fork().unwrap().id();
        child.store(made.to_bits(), Ordering::SeqCst);
        for base in [SHARED, PRIVATE] {
            let word = world.load(cpu, made, at(base + 1, 5)).unwrap();
            assert!((1..5).contains(&word), "{word}");
        }
    };
    let copy = |cpu: CpuId| {
        world.store(cpu, space, at(PRIVATE, 3), 99).unwrap();
        let mut last = 0;
        for _ in 0..3 {
            let shared = world.load(cpu, space, at(SHARED, 4)).unwrap();
            assert!(shared >= last);
            last = shared;
        }
        let copied = world.load(cpu, space, at(PRIVATE, 4)).unwrap();
        assert!((1..5).contains(&copied));
        assert_eq!(world.load(cpu, space, at(PRIVATE, 3)), Ok(99));
    };
    world.run(&[&write, &fork, &copy]);
    let child = vellum::SpaceId::from_bits(child.load(Ordering::SeqCst));
    assert!(world.alone(|| read_all(&world, id)) == vec![4; 1024]);
    world.finish(&[space, child], &[id]);
}

fn mount<R: ReverseMap>() {
    const LIMIT: u64 = 5;
    let world = World::<R>::new(3, 256, "");
    let (mount, space, ids) = world.alone(|| {
        let mount = world.vm.create_mount(LIMIT).unwrap().id();
        let space = world.space();
        let ids = [0, 1].map(|_| {
            world
                .vm
                .create_file(FileRequest::in_mount(mount))
                .unwrap()
                .id()
        });
        world.vm.file(ids[0]).set_size(4 * PAGE).unwrap();
        world.object(space, ids[0], 0, SHARED, 4, true);
        (mount, space, ids)
    });
    let look = || {
        let stats = world.vm.mount(mount).stats().unwrap();
        assert!(stats.used <= LIMIT, "{stats:?}");
    };
    let write = |cpu: CpuId| {
        let id = ids[usize::from(cpu.0)];
        let data = row(3, 3 * 512);
        for _ in 0..2 {
            match world.vm.file(id).write(WriteRequest::bytes(8, &[&data])) {
                Ok(written) => {
                    assert!(world.vm.file(id).size().unwrap() >= 8 + written as u64);
                }
                Err(error) => assert_eq!(error, FileError::Full),
            }
            look();
            world.vm.file(id).set_size(PAGE + 1).unwrap();
            look();
        }
    };
    let fault = |cpu: CpuId| {
        for page in [0, 3, 1] {
            let _ = world.store(cpu, space, at(SHARED + page, 0), 1);
            look();
        }
    };
    world.run(&[&write, &write, &fault]);
    world.audit();
    world.alone(|| {
        assert_eq!(world.vm.space(space).exit(), Ok(true));
        for id in ids {
            world.vm.file(id).release().unwrap();
        }
        assert_eq!(world.vm.mount(mount).stats().unwrap().used, 0);
        world.vm.mount(mount).release().unwrap();
    });
    world.finish(&[], &[]);
}

/// Whatever the order of writes and of writing back, what was written before a sync began
/// is in the store when it has ended.
fn write_sync<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let (space, id) = world.alone(|| {
        let space = world.space();
        let id = world.stored(3, 3);
        world.object(space, id, 0, SHARED, 3, true);
        (space, id)
    });
    let written = AtomicU64::new(0);
    let stored = |page: u64, word: u64| {
        let store = world.machine().store();
        store.stored_word(3, page * PAGE + word * 8).unwrap()
    };
    let write = |cpu: CpuId| {
        for round in 1..5 {
            write(&world, id, 8, round, 1024);
            written.store(round, Ordering::SeqCst);
            world.store(cpu, space, at(SHARED + 2, 100), round).unwrap();
        }
    };
    let sync = |_| {
        for _ in 0..3 {
            let before = written.load(Ordering::SeqCst);
            world.vm.file(id).sync().unwrap();
            if before > 0 {
                for (page, word) in [(0, 1), (1, 500), (2, 0)] {
                    let word = stored(page, word);
                    assert!((before..5).contains(&word), "{word:#x} in page {page}");
                }
            }
        }
    };
    let background = |_| {
        for _ in 0..4 {
            world.vm.file(id).write_back(2).unwrap();
        }
    };
    world.run(&[&write, &sync, &background]);
    world.alone(|| world.vm.file(id).sync()).unwrap();
    assert_eq!((stored(0, 1), stored(2, 0), stored(2, 100)), (4, 4, 4));
    assert_eq!(world.alone(|| world.vm.file(id).stats()).unwrap().dirty, 0);
    world.finish(&[space], &[id]);
}

/// A page that was cut off is not written to the store afterwards.
fn truncate_write_back<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let id = world.alone(|| world.stored(3, 0));
    let change = |_| {
        for round in 1..4 {
            write(&world, id, 0, round, 4 * 512);
            world.vm.file(id).set_size(PAGE + 80).unwrap();
            world.vm.file(id).set_size(4 * PAGE).unwrap();
            let words = read(&world, id, 0, 4 * 512);
            assert_eq!(
                (words[0], words[512 + 9], words[512 + 10]),
                (round, round, 0)
            );
            assert!(words[522..].iter().all(|word| *word == 0), "{round}");
        }
    };
    let background = |_| {
        for _ in 0..4 {
            world.vm.file(id).write_back(3).unwrap();
        }
    };
    let sync = |_| {
        for _ in 0..2 {
            world.vm.file(id).sync().unwrap();
        }
    };
    world.run(&[&change, &background, &sync]);
    world.alone(|| world.vm.file(id).sync()).unwrap();
    let store = world.machine().store();
    for page in 2..4 {
        assert_eq!(store.stored_word(3, page * PAGE), Some(0), "page {page}");
    }
    world.finish(&[], &[id]);
}

/// Two write more than may be dirty, and write back, while the end is cut off and synced.
fn throttled<R: ReverseMap>() {
    const FRAMES: u64 = 256;
    // A page a second.
    let device = DeviceModel {
        read_ns: 0,
        write_ns: 1_000_000_000,
        bytes_per_s: 4_000_000_000,
    };
    let slow = |store: Arc<PatternStore>| -> Arc<dyn BackingStore> {
        Arc::new(TimedStore::new(store, device).throttling())
    };
    let world = World::<R>::with_store(3, FRAMES, "reclaim=on", slow);
    let id = world.alone(|| world.stored(3, 0));
    let writer = |cpu: CpuId| {
        let own = u64::from(cpu.0) * 40;
        for round in 1..4 {
            for part in 0..5 {
                write(&world, id, (own + 8 * part) * PAGE, round, 8 * 512);
            }
        }
    };
    let cut = |_| {
        for _ in 0..2 {
            write(&world, id, 90 * PAGE, 7, 512);
            world.vm.file(id).set_size(85 * PAGE).unwrap();
            world.vm.file(id).sync().unwrap();
        }
    };
    world.run(&[&writer, &writer, &cut]);
    let throttled = world.alone(|| world.vm.stats()).reclaim.throttled;
    let dirty = world.alone(|| world.vm.file(id).stats()).unwrap().dirty;
    // A fifth of memory, and what a call of each may add before it looks.
    assert!(dirty <= FRAMES / 5 + 17, "{dirty} are dirty");
    assert!(throttled > 0);
    world.alone(|| world.vm.file(id).sync()).unwrap();
    let stored = |page: u64, word: u64| {
        let store = world.machine().store();
        store.stored_word(3, page * PAGE + word * 8)
    };
    for page in 0..80 {
        assert_eq!((stored(page, 0), stored(page, 511)), (Some(3), Some(3)));
    }
    assert_eq!(stored(90, 0), Some(0), "cut off");
    world.finish(&[], &[id]);
}

/// Pages that are being read are waited for, overwritten, and cut off.
fn read_ahead<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let id = world.alone(|| world.stored(3, 8));
    let pristine = |page: u64| crate::world::pristine(3, page);
    let change = |_| {
        write(&world, id, 2 * PAGE + 8, 5, 512);
        write(&world, id, 4 * PAGE, 6, 512);
        world.vm.file(id).set_size(6 * PAGE).unwrap();
        world.vm.file(id).set_size(8 * PAGE).unwrap();
    };
    let reader = |_| {
        let file = world.vm.file(id).open().unwrap();
        for page in 0..8 {
            let mut data = row(1, 512);
            let place = page * PAGE;
            let count = file
                .on(&world.vm)
                .read(ReadRequest::bytes(place, &mut [&mut data]))
                .unwrap();
            let words = &data.as_chunks().0[..count / 8];
            for word in words.iter().map(|word| u64::from_le_bytes(*word)) {
                let fits = match page {
                    2 | 3 => word == pristine(page) || word == 5,
                    4 => word == pristine(page) || word == 6,
                    6 | 7 => word == pristine(page) || word == 0,
                    _ => word == pristine(page),
                };
                assert!(fits, "{word:#x} in page {page}");
            }
        }
        world.vm.close(file).unwrap();
    };
    world.run(&[&change, &reader, &reader]);
    let words = world.alone(|| read_all(&world, id));
    assert_eq!((words[1024], words[1025]), (pristine(2), 5));
    assert_eq!((words[3 * 512], words[3 * 512 + 1]), (5, pristine(3)));
    assert!(words[6 * 512..].iter().all(|word| *word == 0));
    world.finish(&[], &[id]);
}

/// Trees of two levels lose all they have, and others take their nodes, beside searches for
/// pages that are not there. A page of an object that is seen elsewhere has a wrong word.
fn nodes<R: ReverseMap>() {
    /// In another leaf than the first page.
    const FAR: u64 = 500;
    let world = World::<R>::new(3, 320, "");
    let ids = world.alone(|| [0; 3].map(|_| world.memory(FAR + 1)));
    let own = |cpu: CpuId, page: u64| (u64::from(cpu.0) + 1) << 16 | page;
    // Each has pages of its own object come and go.
    let change = |cpu: CpuId| {
        let id = ids[usize::from(cpu.0)];
        for round in 0..3 {
            for page in [0, FAR, 14, 15] {
                write(&world, id, page * PAGE, own(cpu, page), 512);
            }
            for page in [14, FAR, 0] {
                assert_eq!(read(&world, id, page * PAGE + 8, 1), [own(cpu, page)]);
            }
            world.vm.file(id).punch_hole(FAR * PAGE, PAGE).unwrap();
            match round {
                1 => world.vm.file(id).set_size(0).unwrap(),
                _ => world.vm.file(id).punch_hole(0, 64 * PAGE).unwrap(),
            }
            world.drain();
        }
    };
    let look = |cpu: CpuId| {
        for round in 0..12 {
            let (of, page) = (CpuId(round % 2), [FAR, 0, 15][usize::from(round) % 3]);
            let id = ids[usize::from(of.0)];
            match round % 4 {
                0 => world
                    .vm
                    .file(id)
                    .punch_hole((FAR - 1) * PAGE + 8, 8)
                    .unwrap(),
                1 => {
                    let _ = world.vm.file(id).seek_data(64 * PAGE);
                }
                _ => {}
            }
            let seen = read(&world, id, page * PAGE, 1);
            assert!(
                seen.iter().all(|&word| word == 0 || word == own(of, page)),
                "{seen:?}"
            );
            write(&world, ids[2], page * PAGE, own(cpu, page), 1);
            world.drain();
        }
    };
    world.run(&[&change, &change, &look]);
    world.finish(&[], &ids);
}
