//! Superpages of shared memory that several spaces map, that calls cut and that swap takes
//! pages from, beside stores. The leaves are cleared without the locks of the spaces.

use crate::world::{World, at};
use vellum::addr::{PageRange, Prot, Vpn};
use vellum::frame::{Request, Site};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, FileError, WriteRequest};
use vellum::{ObjectId, SpaceId};

const ZERO: CpuId = CpuId(0);
const PAGE: u64 = 4096;
/// First page of a superpage, and how many it has.
const BASE: u64 = 0x1000;
const PAGES: u64 = 512;
const FRAMES: u64 = 8 * PAGES;

explored! {
    the_first_uses_of_a_range_by_two_spaces_make_one_block: 20 => first_uses;
    pages_are_cut_out_of_a_superpage_beside_stores: 20 => cut;
    counters_in_a_superpage_are_kept_while_a_third_cpu_pages_out: 20 => counters;
    one_space_loses_a_part_while_another_stores_and_forks: 20 => part;
    an_object_ends_beside_the_first_uses_of_its_range: 20 => end;
    a_file_grows_beside_cuts_uses_and_breaking: 20 => grow;
}

struct Shared<R: ReverseMap> {
    world: World<R>,
    /// Both map the object at the same place.
    spaces: [SpaceId; 2],
    object: ObjectId,
}

fn shared<R: ReverseMap>() -> Shared<R> {
    let mut world = World::<R>::new(3, FRAMES, "huge=always");
    world.swap_on(40);
    let (spaces, object) = world.alone(|| {
        let object = world.memory(PAGES);
        let spaces = [(); 2].map(|()| {
            let space = world.space();
            world.object(space, object, 0, BASE, PAGES, true);
            space
        });
        (spaces, object)
    });
    Shared {
        world,
        spaces,
        object,
    }
}

/// The same, mapped whole in both, with its number in the first word of each of eight pages.
fn used<R: ReverseMap>() -> Shared<R> {
    let shared = shared::<R>();
    let (world, spaces) = (&shared.world, shared.spaces);
    world.alone(|| {
        for page in 0..8 {
            let space = spaces[page as usize % 2];
            world.store(ZERO, space, at(BASE + page, 0), page).unwrap();
        }
        assert_eq!(world.vm.stats().events.superpage_maps, 2);
    });
    shared
}

impl<R: ReverseMap> Shared<R> {
    fn check(&self, words: impl IntoIterator<Item = (u64, u64, u64)>) {
        self.world.alone(|| {
            for (page, word, value) in words {
                for space in self.spaces {
                    let seen = self.world.load(ZERO, space, at(BASE + page, word));
                    assert_eq!(seen, Ok(value), "word {word} of page {page}");
                }
            }
        });
    }
}

fn first_uses<R: ReverseMap>() {
    let shared = shared::<R>();
    let (world, spaces) = (&shared.world, shared.spaces);
    let use_one = |cpu: CpuId| {
        let (space, page) = (spaces[usize::from(cpu.0)], 100 * u64::from(cpu.0));
        world.store(cpu, space, at(BASE + page, 1), page).unwrap();
        assert_eq!(world.load(cpu, space, at(BASE + page, 1)), Ok(page));
        assert_eq!(world.load(cpu, space, at(BASE + page + 1, 0)), Ok(0));
    };
    let write = |_| {
        let word = 200_u64.to_le_bytes();
        let written = (world.vm)
            .file(shared.object)
            .write(WriteRequest::bytes(200 * PAGE + 8, &[&word]));
        assert_eq!(written, Ok(8));
    };
    world.run(&[&use_one, &use_one, &write]);
    shared.check([0, 100, 200].map(|page| (page, 1, page)));
    world.finish(&spaces, &[shared.object]);
}

fn cut<R: ReverseMap>() {
    let shared = used::<R>();
    let (world, object) = (&shared.world, shared.object);
    let cut = |_| {
        world.vm.file(object).punch_hole(PAGE, PAGE).unwrap();
        world.vm.file(object).set_size(6 * PAGE).unwrap();
        world.vm.file(object).set_size(PAGES * PAGE).unwrap();
    };
    let store = |cpu: CpuId| {
        let (word, space) = (u64::from(cpu.0), shared.spaces[usize::from(cpu.0) - 1]);
        for page in 0..8 {
            let stored = world.store(cpu, space, at(BASE + page, word), page);
            let is_past = page >= 6 && stored == Err(FaultError::PastEnd);
            assert!(is_past || stored == Ok(()), "page {page}: {stored:?}");
            let seen = world.load(cpu, space, at(BASE + page, 0));
            let is_cut = page == 1 || page >= 6;
            let is_past = page >= 6 && seen == Err(FaultError::PastEnd);
            let is_zero = is_cut && seen == Ok(0);
            assert!(
                is_past || is_zero || seen == Ok(page),
                "page {page}: {seen:?}"
            );
        }
    };
    world.run(&[&cut, &store, &store]);
    shared.check([0, 2, 3, 4, 5].map(|page| (page, 0, page)));
    shared.check([0, 2, 3, 4, 5].map(|page| (page, 1, page)));
    shared.check([1, 6, 7].map(|page| (page, 0, 0)));
    world.finish(&shared.spaces, &[object]);
}

fn counters<R: ReverseMap>() {
    const ROUNDS: u64 = 4;
    let shared = used::<R>();
    let (world, spaces) = (&shared.world, shared.spaces);
    let out = |_| {
        for round in 0..ROUNDS {
            let space = spaces[round as usize % 2];
            let _ = (world.vm)
                .space(space)
                .advise(Vpn(BASE), 3, Advice::PageOut);
        }
    };
    let bump = |cpu: CpuId| {
        let (word, space) = (u64::from(cpu.0), spaces[usize::from(cpu.0) - 1]);
        for round in 0..ROUNDS {
            for page in 0..4 {
                let counter = at(BASE + page, word);
                assert_eq!(world.load(cpu, space, counter), Ok(round), "a lost count");
                world.store(cpu, space, counter, round + 1).unwrap();
            }
        }
    };
    world.run(&[&out, &bump, &bump]);
    for page in 0..4 {
        shared.check([(page, 0, page), (page, 1, ROUNDS), (page, 2, ROUNDS)]);
    }
    world.finish(&spaces, &[shared.object]);
    let stats = world.vm.swap_stats();
    assert_eq!(stats.free + stats.bad, stats.slots, "slots leaked");
}

fn part<R: ReverseMap>() {
    let shared = used::<R>();
    let (world, [space, other]) = (&shared.world, shared.spaces);
    let lose = |cpu: CpuId| {
        world.vm.space(space).unmap(Vpn(BASE + 300), 2).unwrap();
        let read_only = Vpn(BASE + 400);
        world
            .vm
            .space(space)
            .protect(read_only, 3, Prot::READ)
            .unwrap();
        let store = world.store(cpu, space, at(BASE + 401, 0), 1);
        assert_eq!(store, Err(FaultError::Protection));
        assert_eq!(world.load(cpu, space, at(BASE + 5, 0)), Ok(5));
    };
    let store = |cpu: CpuId| {
        for page in [300, 400, 7] {
            world.store(cpu, other, at(BASE + page, 1), page).unwrap();
            assert_eq!(world.load(cpu, other, at(BASE + page, 1)), Ok(page));
        }
        let range = PageRange::new(Vpn(BASE), PAGES);
        let _ = world.vm.space(space).scan(range);
    };
    let fork = |cpu: CpuId| {
        let child = world.vm.space(space).fork().unwrap().id();
        assert_eq!(world.load(cpu, child, at(BASE + 6, 0)), Ok(6));
        world.store(cpu, child, at(BASE + 6, 2), 66).unwrap();
        world.vm.space(child).exit().unwrap();
    };
    world.run(&[&lose, &store, &fork]);
    shared.check([(400, 1, 400), (7, 1, 7), (6, 2, 66), (3, 0, 3)]);
    world.alone(|| {
        let gone = world.load(ZERO, space, at(BASE + 300, 0));
        assert_eq!(gone, Err(FaultError::NoRegion));
    });
    world.finish(&shared.spaces, &[shared.object]);
}

fn end<R: ReverseMap>() {
    let shared = shared::<R>();
    let (world, spaces) = (&shared.world, shared.spaces);
    let use_and_end = |cpu: CpuId| {
        let (space, page) = (spaces[usize::from(cpu.0)], 9 * u64::from(cpu.0));
        world.store(cpu, space, at(BASE + page, 1), page).unwrap();
        assert_eq!(world.load(cpu, space, at(BASE + page, 1)), Ok(page));
        world.vm.space(space).unmap(Vpn(BASE), PAGES).unwrap();
    };
    let release = |_| world.vm.file(shared.object).release().unwrap();
    world.run(&[&use_and_end, &use_and_end, &release]);
    world.finish(&spaces, &[]);
}

/// A writer at the end, one that cuts and writes anew while the frames that are set aside go to
/// somebody else, and a program that uses what there is.
fn grow<R: ReverseMap>() {
    const USED: u64 = 6;
    let shared = shared::<R>();
    let (world, object, [space, _]) = (&shared.world, shared.object, shared.spaces);
    world.alone(|| world.vm.file(object).set_size(0).unwrap());
    // Others may have all memory meanwhile.
    let write = |page: u64| {
        let word = (page + 1).to_le_bytes();
        let written = world
            .vm
            .file(object)
            .write(WriteRequest::bytes(page * PAGE, &[&word]));
        let is_fine = [Ok(8), Err(FileError::OutOfMemory)].contains(&written);
        assert!(is_fine, "page {page}: {written:?}");
    };
    let grow = |_| (0..USED).for_each(write);
    let cut = |_| {
        world.vm.file(object).set_size(0).unwrap();
        write(2);
        // All that there is in large blocks; for the last of them a run is broken.
        let pin = world.vm.pin();
        let request = Request::page(Site::AnonymousPage).order(9);
        let blocks = || world.vm.memory().alloc(&pin, request).ok();
        let blocks: Vec<_> = std::iter::from_fn(blocks).collect();
        blocks.into_iter().for_each(|block| block.free(&pin));
    };
    let use_it = |cpu: CpuId| {
        for page in 0..USED {
            let seen = world.load(cpu, space, at(BASE + page, 0));
            let is_fine = match seen {
                Ok(word) => word == 0 || word == page + 1,
                Err(error) => matches!(error, FaultError::PastEnd | FaultError::OutOfMemory),
            };
            assert!(is_fine, "page {page}: {seen:?}");
        }
    };
    world.run(&[&grow, &cut, &use_it]);
    world.finish(&shared.spaces, &[object]);
}
