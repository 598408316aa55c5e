//! Reads, writes and syncs of objects beside faults, stores, truncations and each other.

use std::sync::Arc;
use vellum::space::{FileRequest, ReadRequest, WriteRequest};

use super::*;

swept! {
    a_write_beside_a_fault_in_its_pages_is_all_there => write_fault;
    a_write_beside_a_fault_that_reads_its_pages_is_all_there => write_read;
    a_write_beside_a_fault_that_cannot_read_its_page_is_all_there => write_refused;
    appends_follow_each_other => append_append;
    a_write_beside_a_cut_is_before_or_after_it => write_cut;
    a_read_beside_a_cut_is_before_or_after_it => read_cut;
    a_sync_beside_a_store_leaves_it_for_the_next => sync_store;
    a_sync_beside_an_unmapping_misses_no_store => sync_unmap;
    what_is_stored_past_the_end_beside_a_growth_does_not_appear => tail_growth;
    a_hole_beside_the_end_of_its_tree_looks_into_no_other => punch_punch;
    a_cut_beside_the_end_of_its_tree_looks_into_no_other => cut_punch;
}

/// Words that are not zero, `pages` pages of them.
fn words(value: u64, pages: u64) -> Vec<u8> {
    value.to_le_bytes().repeat((pages * SIZE / 8) as usize)
}

fn word_of(bytes: &[u8], word: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * word..8 * word + 8].try_into().unwrap())
}

fn write_beside_fault<R: ReverseMap>(preemption: &Preemption, is_file: bool) {
    let shared = Shared::<R>::new(is_file, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let data = words(9, PAGES);
    let write = |_| {
        let written = vm
            .file(shared.object)
            .write(WriteRequest::bytes(0, &[&data]));
        assert_eq!(written, Ok(data.len()));
    };
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(FIRST + 1, 0));
        let before = if is_file { pristine(3, 1) } else { 0 };
        assert!(seen == Ok(9) || seen == Ok(before));
    };
    world.run_preempted(preemption, [&write, &load]);
    for page in 0..PAGES {
        for place in [FIRST, SECOND] {
            assert_eq!(shared.load_alone(place + page, 511), Ok(9));
        }
    }
    world.alone(|| {
        assert_eq!(vm.file(shared.object).stats().unwrap().cached, PAGES);
        vm.file(shared.object).sync().unwrap();
    });
    if is_file {
        let stored = |page| vm.platform().store().stored_word(3, page * SIZE);
        assert_eq!([0, 1, 2].map(stored), [Some(9); 3]);
    }
    shared.finish();
}

fn write_fault<R: ReverseMap>(preemption: &Preemption) {
    write_beside_fault::<R>(preemption, false);
}

fn write_read<R: ReverseMap>(preemption: &Preemption) {
    write_beside_fault::<R>(preemption, true);
}

/// The write covers the page that the store does not give.
fn write_refused<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "faultaround=1");
    let (world, vm) = (&shared.world, &shared.world.vm);
    world.store.faults().fail_range(Transfer::Read, 1..2);
    let data = words(9, PAGES);
    let write = |_| {
        let written = vm
            .file(shared.object)
            .write(WriteRequest::bytes(0, &[&data]));
        assert_eq!(written, Ok(data.len()));
    };
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(FIRST + 1, 0));
        assert!(matches!(seen, Ok(9) | Err(FaultError::Io)), "{seen:?}");
    };
    world.run_preempted(preemption, [&write, &load]);
    assert_eq!(shared.load_alone(FIRST + 1, 511), Ok(9));
    shared.finish();
}

fn append_append<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(false, "");
    let vm = &shared.world.vm;
    shared
        .world
        .alone(|| vm.file(shared.object).set_size(16).unwrap());
    let append = |cpu: CpuId| {
        let value = (6 + u64::from(cpu.0)).to_le_bytes();
        let (_, put) = vm
            .file(shared.object)
            .write(WriteRequest::append(&[&value]))
            .unwrap();
        assert_eq!(put, 8);
    };
    shared.world.run_preempted(preemption, [&append, &append]);
    shared.world.alone(|| {
        let mut bytes = [0; 40];
        let read = vm
            .file(shared.object)
            .read(ReadRequest::bytes(0, &mut [&mut bytes]));
        assert_eq!(read, Ok(32));
        let mut both = [word_of(&bytes, 2), word_of(&bytes, 3)];
        both.sort_unstable();
        assert_eq!(both, [6, 7], "one is lost");
    });
    shared.finish();
}

/// The object is cut off before the append has its pages, and the page in which it ends then goes
/// to swap while the append writes there, or not.
#[test]
fn an_append_beside_a_cut_is_in_the_page_that_the_object_has() {
    for more in 0..40 {
        vellum_schedules::sweep_task(0, 0..24, move |preemption| {
            append_cut_out::<vellum::rmap::Family>(preemption, more);
        });
    }
}

fn append_cut_out<R: ReverseMap>(preemption: &Preemption, more: usize) {
    let mut shared = Shared::<R>::stored("");
    shared.world.swap_on(8);
    let (world, vm) = (&shared.world, &shared.world.vm);
    let (appended, is_cut) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let append = |_| {
        let (place, put) = vm
            .file(shared.object)
            .write(WriteRequest::append(&[&[9; 8]]))
            .unwrap();
        assert_eq!(put, 8);
        appended.store(place, Ordering::Relaxed);
    };
    let cut = |_| {
        vm.file(shared.object).set_size(16).unwrap();
        is_cut.store(1, Ordering::Relaxed);
        world.page_out(shared.space, FIRST, 1);
    };
    let seen = Arc::clone(&is_cut);
    let steps = vec![
        Step::preempted(preemption),
        Step::until(1, move || seen.load(Ordering::Relaxed) != 0).or_end(),
        Step::until(0, after(more)).or_end(),
        Step::end(1),
        Step::end(0),
    ];
    world.run_by(steps, &[&append, &cut]);
    world.alone(|| {
        let mut bytes = [0; 32];
        let read = vm
            .file(shared.object)
            .read(ReadRequest::bytes(0, &mut [&mut bytes]));
        match appended.load(Ordering::Relaxed) {
            16 => assert_eq!((read, &bytes[16..24]), (Ok(24), &[9; 8][..])),
            _ => assert_eq!(read, Ok(16)),
        }
    });
    world.finish_swap(&[shared.space], &[shared.object]);
}

fn write_cut<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::stored("");
    let vm = &shared.world.vm;
    let data = words(9, 2);
    let write = |_| {
        let written = vm
            .file(shared.object)
            .write(WriteRequest::bytes(SIZE / 2, &[&data]));
        assert_eq!(written, Ok(data.len()));
    };
    let cut = |_| vm.file(shared.object).set_size(64).unwrap();
    shared.world.run_preempted(preemption, [&write, &cut]);
    shared.world.alone(|| {
        let mut bytes = vec![1; 3 * SIZE as usize];
        let read = vm
            .file(shared.object)
            .read(ReadRequest::bytes(0, &mut [&mut bytes]))
            .unwrap();
        assert_eq!(word_of(&bytes, 0), 5);
        if read == 64 {
            return;
        }
        assert_eq!(read as u64, SIZE / 2 + 2 * SIZE);
        for word in [8, 9, 255] {
            assert_eq!(word_of(&bytes, word), 0, "cut off");
        }
        for word in [256, 511, 512, 1279] {
            assert_eq!(word_of(&bytes, word), 9);
        }
    });
    shared.finish();
}

fn read_cut<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(false, "");
    let vm = &shared.world.vm;
    let data = words(5, PAGES);
    shared.world.alone(|| {
        assert_eq!(
            vm.file(shared.object)
                .write(WriteRequest::bytes(0, &[&data])),
            Ok(data.len())
        );
    });
    let read = |_| {
        let mut bytes = vec![1; data.len()];
        let read = vm
            .file(shared.object)
            .read(ReadRequest::bytes(0, &mut [&mut bytes]))
            .unwrap();
        let seen: Vec<u64> = (0..read / 8).map(|word| word_of(&bytes, word)).collect();
        let is_one = |value: u64| seen.iter().all(|&word| word == value);
        assert!(is_one(5) || is_one(6), "neither before nor after");
    };
    let change = |_| {
        vm.file(shared.object).set_size(0).unwrap();
        let data = words(6, 2);
        assert_eq!(
            vm.file(shared.object)
                .write(WriteRequest::bytes(0, &[&data])),
            Ok(data.len())
        );
    };
    shared.world.run_preempted(preemption, [&read, &change]);
    shared.finish();
}

fn sync_store<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    shared.store_alone(FIRST, 1, 6);
    let sync = |_| {
        vm.file(shared.object).sync().unwrap();
    };
    let store = |cpu| {
        for place in [FIRST, SECOND] {
            world.store(cpu, shared.space, at(place, 1), 7).unwrap();
        }
    };
    world.run_preempted(preemption, [&sync, &store]);
    world.alone(|| vm.file(shared.object).sync().unwrap());
    assert_eq!(vm.platform().store().stored_word(3, 8), Some(7));
    shared.finish();
}

/// The space is loaded by another CPU, whose translation lasts until the flush.
fn sync_unmap<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    shared.store_alone(FIRST, 1, 6);
    world.alone(|| vm.file(shared.object).sync().unwrap());
    let stored = AtomicU64::new(6);
    let sync = |_| {
        vm.file(shared.object).sync().unwrap();
    };
    let unmap = |cpu| {
        world.store(cpu, shared.space, at(FIRST, 1), 7).unwrap();
        stored.store(7, Ordering::Relaxed);
        vm.space(shared.space).unmap(Vpn(FIRST), PAGES).unwrap();
    };
    world.run_preempted(preemption, [&sync, &unmap]);
    world.alone(|| vm.file(shared.object).sync().unwrap());
    let word = vm.platform().store().stored_word(3, 8);
    assert_eq!(word, Some(stored.load(Ordering::Relaxed)));
    shared.finish();
}

/// A mapping stores past the end, in the last page, and the object grows.
fn tail_growth<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(false, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    world.alone(|| vm.file(shared.object).set_size(64).unwrap());
    shared.store_alone(FIRST, 500, 7);
    let write = |_| {
        let data = words(9, 1);
        let written = vm
            .file(shared.object)
            .write(WriteRequest::bytes(SIZE, &[&data]));
        assert_eq!(written, Ok(data.len()));
    };
    let grow = |_| {
        let size = vm.file(shared.object).size().unwrap();
        vm.file(shared.object).set_size(size.max(2 * SIZE)).unwrap();
    };
    world.run_preempted(preemption, [&write, &grow]);
    assert_eq!(shared.load_alone(SECOND, 500), Ok(0), "it appeared");
    assert_eq!(shared.load_alone(SECOND + 1, 0), Ok(9));
    shared.finish();
}

/// A page whose index needs a tree of two levels, which is not there.
const FAR: u64 = 500;

/// Looks for a page of a tree from which another CPU takes all that is left. Its nodes are
/// soon those of other trees: what was the root is a leaf, whose words are no addresses.
fn beside_the_end_of_the_tree<R: ReverseMap>(
    preemption: &Preemption,
    look: impl Fn(&World<R>, ObjectId) + Sync,
) {
    let world = World::<R>::new(2, 300, "");
    let vm = &world.vm;
    let [id, first, second, third] = world.alone(|| {
        let objects = [FAR + 1, 64, 64, 64].map(|pages| {
            vm.create_file(FileRequest::shared_memory(pages << 12))
                .unwrap()
                .id()
        });
        for page in [0, FAR] {
            vm.file(objects[0])
                .write(WriteRequest::bytes(page * SIZE, &[&[5; 8]]))
                .unwrap();
        }
        vm.file(objects[0]).punch_hole(FAR * SIZE, SIZE).unwrap();
        objects
    });
    let look = |_| look(&world, id);
    let reuse = |_| {
        vm.file(id).punch_hole(0, 64 * SIZE).unwrap();
        for other in [first, second] {
            vm.file(other)
                .write(WriteRequest::bytes(0, &[&[6; 8]]))
                .unwrap();
            vm.file(other).punch_hole(0, SIZE).unwrap();
            (0..4).for_each(|_| world.drain());
        }
        // In the word that leads to the page that is looked for.
        let place = FAR / 64 * 2 * SIZE;
        for other in [first, second, third] {
            vm.file(other)
                .write(WriteRequest::bytes(place, &[&words(7, 2)]))
                .unwrap();
        }
    };
    world.run_preempted(preemption, [&look, &reuse]);
    world.alone(|| {
        assert_eq!(vm.file(id).stats().unwrap().cached, 0);
        for other in [first, second, third] {
            assert_eq!(vm.file(other).stats().unwrap().cached, 2);
        }
    });
    world.finish(&[], &[id, first, second, third]);
}

fn punch_punch<R: ReverseMap>(preemption: &Preemption) {
    beside_the_end_of_the_tree::<R>(preemption, |world, id| {
        world.vm.file(id).punch_hole(FAR * SIZE + 8, 8).unwrap();
    });
}

fn cut_punch<R: ReverseMap>(preemption: &Preemption) {
    beside_the_end_of_the_tree::<R>(preemption, |world, id| {
        world.vm.file(id).set_size(FAR * SIZE + 8).unwrap();
    });
}
