//! Pairs of operations, one of which is preempted at each of its accesses in turn while
//! the other does all it has to do.
//!
//! One preemption is enough for most races that need no third task. There are as many
//! runs as a pair makes accesses, and no luck is needed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{RW, World, at, pristine};
use vellum::ObjectId;
use vellum::addr::{Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, MapRequest, Placement, SpaceId};
use vellum_machine::store::Transfer;
use vellum_schedules::Preemption;

const ZERO: CpuId = CpuId(0);
const SIZE: u64 = 4096;
/// Where an object is shared.
const FIRST: u64 = 0x1000;
/// Where it is shared a second time, without entries at first.
const SECOND: u64 = 0x1200;
/// Where it is private.
const PRIVATE: u64 = 0x1400;
/// How many pages it has.
const PAGES: u64 = 3;

swept! {
    a_fault_beside_a_cut_maps_no_page_that_left => fault_cut;
    a_fault_beside_a_cut_maps_nothing_behind_the_end => fault_end;
    a_fault_beside_a_hole_maps_no_page_that_left => fault_hole;
    a_fault_around_beside_a_hole_maps_no_page_that_left => around_hole;
    a_private_copy_beside_a_cut_holds_nothing_that_was_cut_off => private_cut;
    a_page_that_could_not_be_read_is_read_by_the_next => unreadable;
    a_page_is_read_once_beside_a_store => read_once;
    a_write_beside_a_fault_in_its_pages_is_all_there => write_fault;
    a_write_beside_a_fault_that_reads_its_pages_is_all_there => write_read;
    appends_follow_each_other => append_append;
    a_write_beside_a_cut_is_before_or_after_it => write_cut;
    a_read_beside_a_cut_is_before_or_after_it => read_cut;
    a_sync_beside_a_store_leaves_it_for_the_next => sync_store;
    a_sync_beside_an_unmapping_misses_no_store => sync_unmap;
    an_object_is_mapped_or_over => map_release;
    a_store_beside_protect_is_before_or_after_it => store_protect;
    a_store_beside_unmap_is_before_or_after_it => store_unmap;
    a_store_beside_an_unmapping_of_a_part_is_before_or_after_it => store_cut;
    a_store_beside_a_move_is_where_its_page_is => store_move;
    a_store_beside_fork_is_before_or_after_it => store_fork;
    a_first_store_beside_fork_is_before_or_after_it => first_store_fork;
    a_store_beside_a_mapping_in_its_place_is_before_or_after_it => store_replace;
    a_store_beside_the_end_of_its_space_leaves_nothing => store_exit;
    a_store_beside_dropped_pages_is_before_or_after_it => store_advise;
    a_store_beside_a_region_that_grows_is_kept => store_grow;
    two_first_stores_are_both_kept => store_store;
    two_copies_of_one_page_are_one => copy_copy;
    a_fault_below_a_region_beside_a_change_finds_nothing => below_change;
    a_fault_around_beside_a_page_being_read_leaves_it => around_reading;
    what_is_stored_past_the_end_beside_a_growth_does_not_appear => tail_growth;
}

struct Shared<R: ReverseMap> {
    world: World<R>,
    space: SpaceId,
    object: ObjectId,
}

impl<R: ReverseMap> Shared<R> {
    /// Two tasks in a space with an object of [`PAGES`] pages.
    fn new(is_file: bool, design: &str) -> Self {
        let world = World::<R>::new(2, 300, design);
        let (space, object) = world.alone(|| {
            let space = world.vm.create_space().unwrap();
            assert!(world.vm.share_space(space));
            let object = match is_file {
                true => world.vm.create_file(3, PAGES).unwrap(),
                false => world.vm.create_shared_memory(PAGES).unwrap(),
            };
            for (place, shared) in [(FIRST, true), (SECOND, true), (PRIVATE, false)] {
                world.object(space, object, 0, place, PAGES, shared);
            }
            (space, object)
        });
        Shared {
            world,
            space,
            object,
        }
    }

    /// The same with 5 in the first word of the first two pages.
    fn stored(design: &str) -> Self {
        let shared = Self::new(false, design);
        for page in 0..2 {
            shared.store_alone(FIRST + page, 0, 5);
        }
        shared
    }

    fn store_alone(&self, page: u64, word: u64, value: u64) {
        let world = &self.world;
        world.alone(|| {
            world
                .store(ZERO, self.space, at(page, word), value)
                .unwrap()
        });
    }

    fn load_alone(&self, page: u64, word: u64) -> Result<u64, FaultError> {
        let world = &self.world;
        world.alone(|| world.load(ZERO, self.space, at(page, word)))
    }

    fn finish(&self) {
        self.world.finish(&[self.space], &[self.object]);
    }
}

fn fault_cut<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::stored("");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND, 0));
        assert!(matches!(seen, Ok(5 | 0) | Err(FaultError::PastEnd)));
    };
    let cut = |_| {
        for pages in [0, PAGES] {
            vm.truncate(shared.object, pages).unwrap();
        }
    };
    world.run_preempted(preemption, [&load, &cut]);
    for place in [FIRST, SECOND, PRIVATE] {
        assert_eq!(shared.load_alone(place, 0), Ok(0), "at {place:#x}");
    }
    shared.finish();
}

fn fault_end<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::stored("");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND + 2, 0));
        assert!(matches!(seen, Ok(0) | Err(FaultError::PastEnd)));
    };
    let cut = |_| vm.truncate(shared.object, 1).unwrap();
    world.run_preempted(preemption, [&load, &cut]);
    for page in [1, 2] {
        for place in [FIRST, SECOND, PRIVATE] {
            let seen = shared.load_alone(place + page, 0);
            assert_eq!(seen, Err(FaultError::PastEnd), "at {place:#x}");
        }
    }
    shared.finish();
}

fn hole<R: ReverseMap>(preemption: &Preemption, design: &str) {
    let shared = Shared::<R>::stored(design);
    let (world, vm) = (&shared.world, &shared.world.vm);
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND, 0));
        assert!(matches!(seen, Ok(5 | 0)), "{seen:?}");
    };
    let punch = |_| vm.punch_hole(shared.object, 0, 2 * SIZE).unwrap();
    world.run_preempted(preemption, [&load, &punch]);
    for page in [0, 1] {
        for place in [FIRST, SECOND, PRIVATE] {
            assert_eq!(shared.load_alone(place + page, 0), Ok(0), "at {place:#x}");
        }
    }
    shared.finish();
}

fn fault_hole<R: ReverseMap>(preemption: &Preemption) {
    hole::<R>(preemption, "faultaround=1");
}

fn around_hole<R: ReverseMap>(preemption: &Preemption) {
    hole::<R>(preemption, "faultaround=4");
}

fn private_cut<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::stored("");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let store = |cpu| {
        let stored = world.store(cpu, shared.space, at(PRIVATE, 1), 7);
        assert!(matches!(stored, Ok(()) | Err(FaultError::PastEnd)));
    };
    let cut = |_| {
        for pages in [0, PAGES] {
            vm.truncate(shared.object, pages).unwrap();
        }
    };
    world.run_preempted(preemption, [&store, &cut]);
    assert_eq!(shared.load_alone(PRIVATE, 0), Ok(0), "it came back");
    shared.finish();
}

/// The store refuses until the first of two has been told so.
fn unreadable<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let world = &shared.world;
    world.store.faults().fail_range(Transfer::Read, 0..1);
    let load = |cpu, place| {
        let seen = world.load(cpu, shared.space, at(place, 0));
        assert!(seen.is_err() || seen == Ok(pristine(3, 0)), "{seen:?}");
    };
    let refused = |cpu| {
        load(cpu, FIRST);
        world.store.faults().heal();
    };
    let other = |cpu| load(cpu, SECOND);
    world.run_preempted(preemption, [&refused, &other]);
    for place in [FIRST, SECOND] {
        assert_eq!(shared.load_alone(place, 0), Ok(pristine(3, 0)));
    }
    shared.finish();
}

fn read_once<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    let store = |cpu| world.store(cpu, shared.space, at(FIRST, 1), 7).unwrap();
    let load = |cpu| {
        let seen = world.load(cpu, shared.space, at(SECOND, 0));
        assert_eq!(seen, Ok(pristine(3, 0)));
    };
    world.run_preempted(preemption, [&store, &load]);
    assert_eq!(shared.load_alone(SECOND, 1), Ok(7), "read over a store");
    world.alone(|| vm.sync(shared.object).unwrap());
    assert_eq!(vm.platform().store().stored_word(3, 8), Some(7));
    shared.finish();
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
        let written = vm.write_at(shared.object, 0, &[&data]);
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
        assert_eq!(vm.object_stats(shared.object).unwrap().cached, PAGES);
        vm.sync(shared.object).unwrap();
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

fn append_append<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(false, "");
    let vm = &shared.world.vm;
    shared
        .world
        .alone(|| vm.set_size(shared.object, 16).unwrap());
    let append = |cpu: CpuId| {
        let value = (6 + u64::from(cpu.0)).to_le_bytes();
        let (_, put) = vm.append(shared.object, &[&value]).unwrap();
        assert_eq!(put, 8);
    };
    shared.world.run_preempted(preemption, [&append, &append]);
    shared.world.alone(|| {
        let mut bytes = [0; 40];
        let read = vm.read_at(shared.object, 0, &mut [&mut bytes]);
        assert_eq!(read, Ok(32));
        let mut both = [word_of(&bytes, 2), word_of(&bytes, 3)];
        both.sort_unstable();
        assert_eq!(both, [6, 7], "one is lost");
    });
    shared.finish();
}

fn write_cut<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::stored("");
    let vm = &shared.world.vm;
    let data = words(9, 2);
    let write = |_| {
        let written = vm.write_at(shared.object, SIZE / 2, &[&data]);
        assert_eq!(written, Ok(data.len()));
    };
    let cut = |_| vm.set_size(shared.object, 64).unwrap();
    shared.world.run_preempted(preemption, [&write, &cut]);
    shared.world.alone(|| {
        let mut bytes = vec![1; 3 * SIZE as usize];
        let read = vm.read_at(shared.object, 0, &mut [&mut bytes]).unwrap();
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
        assert_eq!(vm.write_at(shared.object, 0, &[&data]), Ok(data.len()));
    });
    let read = |_| {
        let mut bytes = vec![1; data.len()];
        let read = vm.read_at(shared.object, 0, &mut [&mut bytes]).unwrap();
        let seen: Vec<u64> = (0..read / 8).map(|word| word_of(&bytes, word)).collect();
        let is_one = |value: u64| seen.iter().all(|&word| word == value);
        assert!(is_one(5) || is_one(6), "neither before nor after");
    };
    let change = |_| {
        vm.set_size(shared.object, 0).unwrap();
        let data = words(6, 2);
        assert_eq!(vm.write_at(shared.object, 0, &[&data]), Ok(data.len()));
    };
    shared.world.run_preempted(preemption, [&read, &change]);
    shared.finish();
}

fn sync_store<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    shared.store_alone(FIRST, 1, 6);
    let sync = |_| {
        vm.sync(shared.object).unwrap();
    };
    let store = |cpu| {
        for place in [FIRST, SECOND] {
            world.store(cpu, shared.space, at(place, 1), 7).unwrap();
        }
    };
    world.run_preempted(preemption, [&sync, &store]);
    world.alone(|| vm.sync(shared.object).unwrap());
    assert_eq!(vm.platform().store().stored_word(3, 8), Some(7));
    shared.finish();
}

/// The space is loaded by another CPU, whose translation lasts until the flush.
fn sync_unmap<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    shared.store_alone(FIRST, 1, 6);
    world.alone(|| vm.sync(shared.object).unwrap());
    let stored = AtomicU64::new(6);
    let sync = |_| {
        vm.sync(shared.object).unwrap();
    };
    let unmap = |cpu| {
        world.store(cpu, shared.space, at(FIRST, 1), 7).unwrap();
        stored.store(7, Ordering::Relaxed);
        vm.unmap(shared.space, Vpn(FIRST), PAGES).unwrap();
    };
    world.run_preempted(preemption, [&sync, &unmap]);
    world.alone(|| vm.sync(shared.object).unwrap());
    let word = vm.platform().store().stored_word(3, 8);
    assert_eq!(word, Some(stored.load(Ordering::Relaxed)));
    shared.finish();
}

fn map_release<R: ReverseMap>(preemption: &Preemption) {
    let world = World::<R>::new(2, 300, "");
    let (space, object) = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        (space, world.vm.create_shared_memory(PAGES).unwrap())
    });
    let map = |cpu| {
        let request = MapRequest::object(object, 0, PAGES, RW)
            .shared()
            .at(Placement::Fixed(Vpn(FIRST)));
        if world.vm.map(space, &request).is_ok() {
            world.store(cpu, space, at(FIRST, 0), 7).unwrap();
        }
    };
    let release = |_| world.vm.release_object(object).unwrap();
    world.run_preempted(preemption, [&map, &release]);
    world.finish(&[space], &[]);
}

/// Two tasks in a space with private pages at [`FIRST`], of which the second task has
/// stored 1 to the first word of those that `touched` names.
fn private<R: ReverseMap>(touched: &[u64]) -> (World<R>, SpaceId) {
    let world = World::<R>::new(2, 300, "");
    let space = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        assert!(world.vm.share_space(space));
        world.anonymous(space, FIRST, 4);
        space
    });
    vellum_schedules::undisturbed(|| {
        let cpu = CpuId(1);
        world.machine().run_on(cpu, || {
            for &page in touched {
                world.store(cpu, space, at(FIRST + page, 0), 1).unwrap();
            }
        });
    });
    (world, space)
}

/// Task 0 stores 2 to the second page, and task 1 does `change`. Returns whether the
/// store was made, and the world for what is left to check.
fn beside_store<R: ReverseMap>(
    preemption: &Preemption,
    touched: &[u64],
    change: impl Fn(&World<R>, SpaceId, CpuId) + Sync,
) -> (Result<(), FaultError>, World<R>, SpaceId) {
    let (world, space) = private::<R>(touched);
    let stored = std::sync::Mutex::new(Ok(()));
    let store = |cpu| {
        let done = world.store(cpu, space, at(FIRST + 1, 0), 2);
        *stored.lock().unwrap() = done;
    };
    let other = |cpu| change(&world, space, cpu);
    world.run_preempted(preemption, [&store, &other]);
    let stored = stored.into_inner().unwrap();
    (stored, world, space)
}

fn load<R: ReverseMap>(world: &World<R>, space: SpaceId, page: u64) -> Result<u64, FaultError> {
    world.alone(|| world.load(ZERO, space, at(page, 0)))
}

fn store_protect<R: ReverseMap>(preemption: &Preemption) {
    for touched in [&[0, 1][..], &[0]] {
        let (stored, world, space) = beside_store::<R>(preemption, touched, |world, space, _| {
            world
                .vm
                .protect(space, Vpn(FIRST + 1), 1, Prot::READ)
                .unwrap();
        });
        assert!(matches!(stored, Ok(()) | Err(FaultError::Protection)));
        let before = touched.len() as u64 - 1;
        let value = if stored.is_ok() { 2 } else { before };
        assert_eq!(load(&world, space, FIRST + 1), Ok(value));
        let again = world.alone(|| world.store(ZERO, space, at(FIRST + 1, 0), 3));
        assert_eq!(again, Err(FaultError::Protection));
        world.finish(&[space], &[]);
    }
}

fn store_unmap<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[], |world, space, _| {
        world.vm.unmap(space, Vpn(FIRST), 4).unwrap();
    });
    assert!(matches!(stored, Ok(()) | Err(FaultError::NoRegion)));
    assert_eq!(load(&world, space, FIRST + 1), Err(FaultError::NoRegion));
    let shown = world.alone(|| world.vm.translate(space, Vpn(FIRST + 1)));
    assert_eq!(shown, None);
    world.finish(&[space], &[]);
}

fn store_cut<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0, 2], |world, space, cpu| {
        world.vm.unmap(space, Vpn(FIRST + 1), 2).unwrap();
        assert_eq!(world.load(cpu, space, at(FIRST, 0)), Ok(1));
        assert_eq!(world.load(cpu, space, at(FIRST + 3, 0)), Ok(0));
    });
    assert!(matches!(stored, Ok(()) | Err(FaultError::NoRegion)));
    let shown = world.alone(|| world.vm.translate(space, Vpn(FIRST + 1)));
    assert_eq!(shown, None);
    world.finish(&[space], &[]);
}

fn store_move<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0], |world, space, _| {
        let to = Placement::Fixed(Vpn(SECOND));
        world.vm.remap(space, Vpn(FIRST), 4, 4, to).unwrap();
    });
    assert!(matches!(stored, Ok(()) | Err(FaultError::NoRegion)));
    let value = if stored.is_ok() { 2 } else { 0 };
    assert_eq!(load(&world, space, SECOND + 1), Ok(value));
    assert_eq!(load(&world, space, SECOND), Ok(1));
    world.finish(&[space], &[]);
}

fn fork_beside_store<R: ReverseMap>(preemption: &Preemption, touched: &[u64]) {
    let before = touched.contains(&1) as u64;
    let child = Cell::new(None);
    let child = std::sync::Mutex::new(child);
    let (stored, world, space) = beside_store::<R>(preemption, touched, |world, space, cpu| {
        let forked = world.vm.fork(space).unwrap();
        let seen = world.load(cpu, forked, at(FIRST + 1, 0));
        assert!(seen == Ok(before) || seen == Ok(2));
        child.lock().unwrap().set(Some((forked, seen)));
    });
    assert_eq!(stored, Ok(()));
    let (child, seen) = child.into_inner().unwrap().get().unwrap();
    world.alone(|| world.store(ZERO, space, at(FIRST + 1, 0), 3).unwrap());
    assert_eq!(load(&world, child, FIRST + 1), seen, "the parent's store");
    assert_eq!(load(&world, space, FIRST + 1), Ok(3));
    world.finish(&[space, child], &[]);
}

fn store_fork<R: ReverseMap>(preemption: &Preemption) {
    fork_beside_store::<R>(preemption, &[0, 1]);
}

fn first_store_fork<R: ReverseMap>(preemption: &Preemption) {
    fork_beside_store::<R>(preemption, &[]);
}

fn store_replace<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0, 1], |world, space, _| {
        let other = MapRequest::anonymous(2, RW.union(Prot::EXECUTE));
        let request = other.at(Placement::Fixed(Vpn(FIRST)));
        world.vm.map(space, &request).unwrap();
    });
    assert_eq!(stored, Ok(()));
    assert!(matches!(load(&world, space, FIRST + 1), Ok(0 | 2)));
    assert_eq!(load(&world, space, FIRST), Ok(0));
    world.finish(&[space], &[]);
}

fn store_exit<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0], |world, space, cpu| {
        while world.vm.exit(space) == Ok(false) {}
        // The CPU goes on with another space in the same place.
        let next = world.vm.create_space().unwrap();
        world.anonymous(next, FIRST, 4);
        world.store(cpu, next, at(FIRST + 1, 0), 5).unwrap();
        assert_eq!(world.load(cpu, next, at(FIRST, 0)), Ok(0));
        assert_eq!(world.load(cpu, next, at(FIRST + 1, 0)), Ok(5));
        while world.vm.exit(next) == Ok(false) {}
    });
    let gone = [FaultError::NoSpace, FaultError::NoRegion].map(Err);
    assert!(stored.is_ok() || gone.contains(&stored), "{stored:?}");
    world.finish(&[], &[]);
    drop((world, space));
}

/// Another page stays, and with it the table: no CPU walks one that is not linked any more
/// until the flush.
fn store_advise<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0, 1, 3], |world, space, _| {
        world
            .vm
            .advise(space, Vpn(FIRST), 2, Advice::DontNeed)
            .unwrap();
    });
    assert_eq!(stored, Ok(()));
    assert!(matches!(load(&world, space, FIRST + 1), Ok(0 | 2)));
    assert_eq!(load(&world, space, FIRST), Ok(0));
    world.finish(&[space], &[]);
}

/// The new pages follow, and join the region.
fn store_grow<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[0], |world, space, cpu| {
        for place in [FIRST + 4, FIRST - 4] {
            world.anonymous(space, place, 4);
            world.store(cpu, space, at(place, 0), 4).unwrap();
        }
    });
    assert_eq!(stored, Ok(()));
    for (page, value) in [(1, 2), (0, 1), (4, 4), (7, 0)] {
        assert_eq!(load(&world, space, FIRST + page), Ok(value));
    }
    assert_eq!(load(&world, space, FIRST - 4), Ok(4));
    let child = world.alone(|| world.vm.fork(space).unwrap());
    for (page, value) in [(1, 2), (0, 1), (4, 4)] {
        assert_eq!(load(&world, child, FIRST + page), Ok(value));
    }
    world.finish(&[space, child], &[]);
}

fn store_store<R: ReverseMap>(preemption: &Preemption) {
    let (stored, world, space) = beside_store::<R>(preemption, &[], |world, space, cpu| {
        world.load(cpu, space, at(FIRST + 1, 0)).unwrap();
        world.store(cpu, space, at(FIRST + 1, 1), 4).unwrap();
    });
    assert_eq!(stored, Ok(()));
    assert_eq!(load(&world, space, FIRST + 1), Ok(2));
    let other = world.alone(|| world.load(ZERO, space, at(FIRST + 1, 1)));
    assert_eq!(other, Ok(4));
    world.finish(&[space], &[]);
}

fn copy_copy<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[1]);
    let child = world.alone(|| world.vm.fork(space).unwrap());
    let store = |cpu: CpuId| {
        let word = 1 + u64::from(cpu.0);
        world.store(cpu, space, at(FIRST + 1, word), 7).unwrap();
    };
    world.run_preempted(preemption, [&store, &store]);
    world.alone(|| {
        for (word, value) in [(0, 1), (1, 7), (2, 7)] {
            assert_eq!(world.load(ZERO, space, at(FIRST + 1, word)), Ok(value));
        }
        for (word, value) in [(0, 1), (1, 0), (2, 0)] {
            assert_eq!(world.load(ZERO, child, at(FIRST + 1, word)), Ok(value));
        }
    });
    world.finish(&[space, child], &[]);
}

fn below_change<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = private::<R>(&[0]);
    let fault = |cpu| {
        let stored = world.store(cpu, space, at(FIRST - 1, 0), 2);
        assert_eq!(stored, Err(FaultError::NoRegion));
    };
    let change = |_| {
        for prot in [Prot::READ, RW] {
            world.vm.protect(space, Vpn(FIRST), 1, prot).unwrap();
        }
    };
    world.run_preempted(preemption, [&fault, &change]);
    world.finish(&[space], &[]);
}

fn around_reading<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(true, "faultaround=4");
    let world = &shared.world;
    world.store.faults().fail_range(Transfer::Read, 1..2);
    let read = |cpu, page| world.load(cpu, shared.space, at(FIRST + page, 0));
    let reader = |cpu| assert!(read(cpu, 1).is_err());
    let other = |cpu| assert_eq!(read(cpu, 0), Ok(pristine(3, 0)));
    world.run_preempted(preemption, [&reader, &other]);
    world.store.faults().heal();
    for page in 0..PAGES {
        assert_eq!(shared.load_alone(FIRST + page, 0), Ok(pristine(3, page)));
    }
    shared.finish();
}

/// A mapping stores past the end, in the last page, and the object grows.
fn tail_growth<R: ReverseMap>(preemption: &Preemption) {
    let shared = Shared::<R>::new(false, "");
    let (world, vm) = (&shared.world, &shared.world.vm);
    world.alone(|| vm.set_size(shared.object, 64).unwrap());
    shared.store_alone(FIRST, 500, 7);
    let write = |_| {
        let data = words(9, 1);
        let written = vm.write_at(shared.object, SIZE, &[&data]);
        assert_eq!(written, Ok(data.len()));
    };
    let grow = |_| {
        let size = vm.size(shared.object).unwrap();
        vm.set_size(shared.object, size.max(2 * SIZE)).unwrap();
    };
    world.run_preempted(preemption, [&write, &grow]);
    assert_eq!(shared.load_alone(SECOND, 500), Ok(0), "it appeared");
    assert_eq!(shared.load_alone(SECOND + 1, 0), Ok(9));
    shared.finish();
}
