//! Pages of shared memory that go to swap and come back beside stores through several
//! mappings, calls that read and write, cutting, and the end of the object. A slot has one
//! name, in its object, which changes under a lock of its own (invariant 14).

use crate::world::{World, at};
use vellum::addr::Vpn;
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, ReadRequest, WriteRequest};
use vellum::{ObjectId, SpaceId};

const ZERO: CpuId = CpuId(0);
const PAGE: u64 = 4096;
const BASE: u64 = 0x1000;
const PAGES: u64 = 3;

explored! {
    counters_agree_that_two_mappings_bump_while_a_third_cpu_pages_out: 32 => counters;
    calls_and_mappings_agree_on_pages_that_are_paged_out: 50 => calls;
    pages_are_cut_off_while_they_are_paged_out_and_come_back: 24 => cut;
    an_object_ends_while_its_pages_are_paged_out: 20 => end;
    a_slot_passes_from_shared_memory_to_a_private_page_and_back: 24 => slot_used_anew;
    a_store_that_does_not_take_a_page_loses_nothing: 20 => write_fails;
}

struct Shared<R: ReverseMap> {
    world: World<R>,
    /// Both map the object at the same place.
    spaces: [SpaceId; 2],
    object: ObjectId,
}

/// Three pages of shared memory, with a page's number in its first word, and `slots` slots.
fn shared<R: ReverseMap>(cpus: usize, slots: u64) -> Shared<R> {
    let mut world = World::<R>::new(cpus, 320, "");
    world.swap_on(slots);
    let (spaces, object) = world.alone(|| {
        let object = world.memory(PAGES);
        let space = world.space();
        world.object(space, object, 0, BASE, PAGES, true);
        for page in 0..PAGES {
            world.store(ZERO, space, at(BASE + page, 0), page).unwrap();
        }
        ([space, world.vm.space(space).fork().unwrap().id()], object)
    });
    Shared {
        world,
        spaces,
        object,
    }
}

impl<R: ReverseMap> Shared<R> {
    fn page_out(&self, space: SpaceId) {
        self.world.page_out(space, BASE, PAGES);
    }

    fn finish(&self, objects: &[ObjectId]) {
        self.world.finish_swap(&self.spaces, objects);
    }
}

fn counters<R: ReverseMap>() {
    const ROUNDS: u64 = 4;
    let shared = shared::<R>(3, PAGES + 1);
    let (world, spaces) = (&shared.world, shared.spaces);
    let out = |_| {
        for _ in 0..ROUNDS {
            shared.page_out(spaces[0]);
            shared.page_out(spaces[1]);
        }
    };
    let bump = |cpu: CpuId| {
        let word = u64::from(cpu.0);
        let space = spaces[usize::from(cpu.0) - 1];
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
                for space in spaces {
                    assert_eq!(world.load(ZERO, space, at(BASE + page, word)), Ok(value));
                }
            }
        }
    });
    shared.finish(&[shared.object]);
}

/// One CPU writes words by calls, and another others by its mapping; each reads what it wrote
/// the other way.
fn calls<R: ReverseMap>() {
    let shared = shared::<R>(3, PAGES);
    let (world, object) = (&shared.world, shared.object);
    let out = |_| {
        for space in [0, 1, 0] {
            shared.page_out(shared.spaces[space]);
        }
    };
    let by_call = |cpu: CpuId| {
        for page in 0..PAGES {
            let place = page * PAGE + 8;
            let word = (100 + page).to_le_bytes();
            assert_eq!(
                world
                    .vm
                    .file(object)
                    .write(WriteRequest::bytes(place, &[&word])),
                Ok(8)
            );
            let seen = world.load(cpu, shared.spaces[0], at(BASE + page, 1));
            assert_eq!(seen, Ok(100 + page));
        }
    };
    let by_mapping = |cpu: CpuId| {
        for page in (0..PAGES).rev() {
            let address = at(BASE + page, 2);
            world
                .store(cpu, shared.spaces[1], address, 200 + page)
                .unwrap();
            let mut words = [0; 24];
            let read = world
                .vm
                .file(object)
                .read(ReadRequest::bytes(page * PAGE, &mut [&mut words]));
            assert_eq!(read, Ok(24));
            let word = |nth: usize| u64::from_le_bytes(words[8 * nth..][..8].try_into().unwrap());
            assert_eq!((word(0), word(2)), (page, 200 + page));
        }
    };
    world.run(&[&out, &by_call, &by_mapping]);
    world.alone(|| {
        for page in 0..PAGES {
            for (word, value) in [(0, page), (1, 100 + page), (2, 200 + page)] {
                let seen = world.load(ZERO, shared.spaces[0], at(BASE + page, word));
                assert_eq!(seen, Ok(value));
            }
        }
    });
    shared.finish(&[object]);
}

fn cut<R: ReverseMap>() {
    let shared = shared::<R>(3, PAGES);
    let (world, object) = (&shared.world, shared.object);
    let out = |_| {
        shared.page_out(shared.spaces[0]);
        shared.page_out(shared.spaces[1]);
    };
    let cut = |_| {
        world.vm.file(object).punch_hole(PAGE, PAGE).unwrap();
        world.vm.file(object).set_size(2 * PAGE).unwrap();
        world.vm.file(object).set_size(3 * PAGE).unwrap();
    };
    let look = |cpu: CpuId| {
        for page in 0..PAGES {
            let seen = world.load(cpu, shared.spaces[1], at(BASE + page, 0));
            let cut = page == 2 && seen == Err(FaultError::PastEnd);
            let zero = page > 0 && seen == Ok(0);
            assert!(cut || zero || seen == Ok(page), "page {page}: {seen:?}");
        }
    };
    world.run(&[&out, &cut, &look]);
    world.alone(|| {
        for (page, value) in [(0, 0), (1, 0), (2, 0)] {
            let seen = world.load(ZERO, shared.spaces[0], at(BASE + page, 0));
            assert_eq!(seen, Ok(value));
        }
    });
    shared.finish(&[object]);
}

fn end<R: ReverseMap>() {
    let shared = shared::<R>(3, 2 * PAGES);
    let world = &shared.world;
    let out = |_| {
        shared.page_out(shared.spaces[0]);
        shared.page_out(shared.spaces[1]);
    };
    let end = |_| {
        world.vm.file(shared.object).release().unwrap();
        world
            .vm
            .space(shared.spaces[0])
            .unmap(Vpn(BASE), PAGES)
            .unwrap();
    };
    let end_too = |cpu: CpuId| {
        assert_eq!(world.load(cpu, shared.spaces[1], at(BASE, 0)), Ok(0));
        world
            .vm
            .space(shared.spaces[1])
            .unmap(Vpn(BASE), PAGES)
            .unwrap();
    };
    world.run(&[&out, &end, &end_too]);
    shared.finish(&[]);
}

/// There are so few slots that one is taken for the other page at once.
fn slot_used_anew<R: ReverseMap>() {
    const OWN: u64 = 0x3000;
    let shared = shared::<R>(3, 1);
    let (world, [space, other]) = (&shared.world, shared.spaces);
    world.alone(|| {
        world.anonymous(space, OWN, 1);
        world.store(ZERO, space, at(OWN, 0), 77).unwrap();
    });
    let out = |_| {
        for _ in 0..3 {
            shared.page_out(space);
            let _ = world.vm.space(space).advise(Vpn(OWN), 1, Advice::PageOut);
        }
    };
    let look = |cpu: CpuId| {
        for page in 0..PAGES {
            assert_eq!(world.load(cpu, other, at(BASE + page, 0)), Ok(page));
            assert_eq!(world.load(cpu, space, at(OWN, 0)), Ok(77));
        }
    };
    world.run(&[&out, &look, &look]);
    shared.finish(&[shared.object]);
}

fn write_fails<R: ReverseMap>() {
    let shared = shared::<R>(3, 4 * PAGES);
    let world = &shared.world;
    let faults = world.store.faults();
    faults.fail_range(vellum_machine::store::Transfer::Write, 0..2);
    let out = |_| {
        shared.page_out(shared.spaces[0]);
        faults.heal();
        shared.page_out(shared.spaces[1]);
    };
    let change = |cpu: CpuId| {
        for page in 0..PAGES {
            let address = at(BASE + page, u64::from(cpu.0));
            world
                .store(cpu, shared.spaces[1], address, 40 + page)
                .unwrap();
            assert_eq!(world.load(cpu, shared.spaces[0], address), Ok(40 + page));
        }
    };
    world.run(&[&out, &change, &change]);
    world.alone(|| {
        for page in 0..PAGES {
            for (word, value) in [(0, page), (1, 40 + page), (2, 40 + page)] {
                let seen = world.load(ZERO, shared.spaces[0], at(BASE + page, word));
                assert_eq!(seen, Ok(value));
            }
        }
    });
    shared.finish(&[shared.object]);
}
