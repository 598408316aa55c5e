//! Tests of the parts of pv entries. What the whole must do is tested where all designs
//! are.

use std::boxed::Box;
use std::vec::Vec;

use super::delayed::Delayed;
use super::entry::{Chunk, ENTRIES_PER_CHUNK, EntryName};
use super::locks::PvListLocks;
use super::order::Order;
use super::spaces::SpaceChunks;
use super::{Entries, Pv, PvContext, PvOfSpace};
use crate::addr::{Pfn, Vpn};
use crate::design::{Design, PvLock, PvLru, Rmap, variants};
use crate::frame::{FailAt, Kind, PhysicalMemory, Request, Site};
use crate::rmap::{
    Audited, Env, Place, ReverseMap, Run, TracksEntries, TracksLeaves, TracksSpaces,
};
use crate::slab::ArenaMaker;
use crate::sync::list::{Link, Links, List, NONE};
use crate::table::PteRef;
use crate::testing::{Rng, TestMachine, run_on};

type Memory = PhysicalMemory<TestMachine>;

fn memory() -> Memory {
    run_on(0);
    PhysicalMemory::new(TestMachine::simple(1, 4096)).unwrap()
}

struct Things(Box<[Link]>);

impl Links for Things {
    fn link(&self, name: u32) -> &Link {
        &self.0[name as usize]
    }
}

fn listed(things: &Things, list: &List) -> Vec<u32> {
    let mut names = Vec::new();
    let mut name = list.first();
    let mut before = NONE;
    while name != NONE {
        assert_eq!(things.link(name).previous(), before);
        names.push(name);
        before = name;
        name = things.link(name).next();
    }
    names
}

#[test]
fn lists_do_what_vectors_do() {
    let things = Things((0..20).map(|_| Link::new()).collect());
    let mut rng = Rng::new(19);
    let (mut list, mut model) = (List::default(), Vec::new());
    for _ in 0..5000 {
        let name = rng.below(20) as u32;
        match model.iter().position(|&other| other == name) {
            None if rng.below(2) == 0 => {
                list.push_front(&things, name);
                model.insert(0, name);
            }
            None => {
                list.push_back(&things, name);
                model.push(name);
            }
            Some(at) => match rng.below(4) {
                0 => {
                    list.move_front(&things, name);
                    model.remove(at);
                    model.insert(0, name);
                }
                1 => {
                    list.move_back(&things, name);
                    model.remove(at);
                    model.push(name);
                }
                2 => {
                    list.rotate_to(&things, name);
                    model.rotate_left(at);
                }
                _ => {
                    list.remove(&things, name);
                    model.remove(at);
                }
            },
        }
        assert_eq!(listed(&things, &list), model);
    }
}

/// Makes a chunk of a space.
fn chunk(memory: &Memory, owner: u32) -> Pfn {
    let pin = memory.pin();
    let request = Request::page(Site::PvChunk).low();
    let frame = memory.alloc(&pin, request).unwrap();
    Chunk::make(memory, frame, owner);
    frame
}

#[test]
fn a_space_takes_from_chunks_with_room_and_gives_up_empty_ones() {
    let memory = memory();
    let mut chunks = SpaceChunks::default();
    let frames = [chunk(&memory, 1), chunk(&memory, 1)];
    let mut names = Vec::new();
    for frame in frames {
        assert!(chunks.take(&memory).is_none());
        chunks.add(&memory, frame);
        for _ in 0..ENTRIES_PER_CHUNK {
            names.push(chunks.take(&memory).unwrap());
        }
    }
    let mut distinct: Vec<u64> = names.iter().map(|name| name.0).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 2 * ENTRIES_PER_CHUNK);
    for frame in frames {
        assert!(Chunk::at(&memory, frame).is_full());
    }
    // The one that was freed last is taken first.
    assert_eq!(chunks.give(&memory, names[ENTRIES_PER_CHUNK + 3]), None);
    assert_eq!(chunks.give(&memory, names[5]), None);
    assert_eq!(chunks.take(&memory), Some(names[5]));
    assert_eq!(chunks.take(&memory), Some(names[ENTRIES_PER_CHUNK + 3]));
    let gone: Vec<Pfn> = names
        .into_iter()
        .filter_map(|name| chunks.give(&memory, name))
        .collect();
    assert_eq!(gone, frames);
    assert!(chunks.is_empty());
    assert_eq!(Chunk::at(&memory, frames[0]).owner(), 0);
}

#[test]
fn takers_pass_each_other_and_see_each_chunk_once() {
    let memory = memory();
    let pin = memory.pin();
    let order = Order::new(PvLru::Domain, 1);
    let frames: Vec<Pfn> = (0..6).map(|number| chunk(&memory, number + 1)).collect();
    for &frame in &frames {
        order.add(&memory, frame, &pin);
    }
    let mut one = order.taker(&memory, 0, &pin).unwrap();
    assert_eq!(one.next(), Some((frames[0], 1)));
    assert!(one.is_still(frames[0], 1) && !one.is_still(frames[0], 2));
    assert_eq!(one.next(), Some((frames[1], 2)));
    let mut other = order.taker(&memory, 0, &pin).unwrap();
    let all: Vec<Pfn> = core::iter::from_fn(|| other.next())
        .map(|(frame, _)| frame)
        .collect();
    assert_eq!(
        all, frames,
        "a marker of another taker is no chunk and no end"
    );
    drop(other);
    // A chunk that goes while a taker is at it.
    order.remove(&memory, [frames[1], frames[2]].into_iter(), &pin);
    assert!(!one.is_still(frames[1], 2));
    assert_eq!(one.next(), Some((frames[3], 4)));
    // What a taker that was alone has been at comes last the next time.
    drop(one);
    let mut next = order.taker(&memory, 0, &pin).unwrap();
    let all: Vec<Pfn> = core::iter::from_fn(|| next.next())
        .map(|(frame, _)| frame)
        .collect();
    assert_eq!(all, [4, 5, 0, 3].map(|number| frames[number]));
}

#[test]
fn chunks_are_in_one_list_for_each_node_or_in_one() {
    let lists = |kind| Order::new(kind, 4).nodes();
    let kinds = [PvLru::Domain, PvLru::Global, PvLru::Pmap];
    assert_eq!(kinds.map(lists), [4, 1, 0]);
}

#[test]
fn too_many_takers_find_no_list() {
    let memory = memory();
    let pin = memory.pin();
    let order = Order::new(PvLru::Domain, 1);
    let takers: Vec<_> = (0..4).map(|_| order.taker(&memory, 0, &pin)).collect();
    assert!(takers.iter().all(Option::is_some));
    assert!(order.taker(&memory, 0, &pin).is_none());
    drop(takers);
    assert!(order.taker(&memory, 0, &pin).is_some());
}

#[test]
fn pages_have_locks_together_as_the_option_says() {
    let memory = memory();
    // SAFETY: the maker makes no arena.
    let arenas = unsafe { ArenaMaker::new(1, memory.frame_count(), memory.frame_size()) };
    let arenas = arenas.spanning(memory.view().span(), 1);
    let (first, end) = memory.view().span();
    let last = Pfn(end.0 - 1);
    let next = Pfn(first.0 ^ 1);
    let together = |kind| {
        let locks = PvListLocks::new(kind, true, &arenas);
        let pin = memory.pin();
        for frame in [first, next, last] {
            locks.acquire(locks.of(frame), &pin);
            assert!(locks.is_held(frame));
            locks.release(locks.of(frame), &pin);
            assert!(!locks.is_held(frame));
        }
        (locks.of(first) == locks.of(next), locks.are_shared())
    };
    assert_eq!(together(PvLock::Hashed), (true, true));
    assert_eq!(together(PvLock::Superpage), (true, true));
    assert_eq!(together(PvLock::Byte), (false, false));
    assert_eq!(together(PvLock::ByteShared), (false, false));
    let locks = PvListLocks::new(PvLock::Hashed, false, &arenas);
    assert_eq!(
        locks.of(Pfn(5 << 9)),
        locks.of(Pfn((256 + 5) << 9)),
        "the locks go by a number of 256"
    );
}

#[test]
fn names_lead_to_their_chunks() {
    for frame in [Pfn(0), Pfn(7), Pfn(u32::MAX - 20)] {
        for place in [0, 1, ENTRIES_PER_CHUNK - 1] {
            let name = EntryName::in_chunk(frame, place);
            assert!(!name.is_none());
            assert_eq!(name.chunk(), frame);
        }
    }
}

#[test]
fn readers_share_a_lock_of_one_byte_and_change_what_it_guards_alone() {
    let memory = memory();
    let pin = memory.pin();
    // SAFETY: the maker makes no arena.
    let arenas = unsafe { ArenaMaker::new(1, memory.frame_count(), memory.frame_size()) };
    let arenas = arenas.spanning(memory.view().span(), 1);
    let locks = PvListLocks::new(PvLock::ByteShared, false, &arenas);
    for lock in [locks.of(Pfn(700)), locks.of_large(Pfn(700))] {
        for _ in 0..2 {
            let waited = locks.acquire_to_read(lock, &pin);
            assert!(!waited.contended);
        }
        assert!(!locks.try_to_change(lock), "another reads");
        locks.release_read(lock, &pin);
        assert!(locks.try_to_change(lock) && !locks.try_to_change(lock));
        locks.read_on(lock);
        assert!(locks.is_held(Pfn(700)));
        locks.release_read(lock, &pin);
        assert!(!locks.is_held(Pfn(700)));
        assert!(!locks.acquire(lock, &pin).contended);
        locks.release(lock, &pin);
    }
    // Who cannot share a lock has it alone from the beginning.
    let locks = PvListLocks::new(PvLock::Byte, false, &arenas);
    let lock = locks.of(Pfn(700));
    locks.acquire_to_read(lock, &pin);
    assert!(locks.try_to_change(lock) && locks.try_to_change(lock));
    locks.read_on(lock);
    locks.release_read(lock, &pin);
    assert!(!locks.is_held(Pfn(700)));
}

/// The design with each of its options' values, and who uses it.
fn with_each(test: impl Fn(&str, &Pv, &Env<'_, TestMachine>)) {
    for text in variants("rmap") {
        let design = Design::parse(&text).unwrap();
        if design.rmap != Rmap::Pv {
            continue;
        }
        let memory = memory();
        let pin = memory.pin();
        let env = Env {
            memory: &memory,
            pin: &pin,
        };
        // SAFETY: the arenas are used with `memory` only, in this call.
        let arenas = unsafe { ArenaMaker::new(1, memory.frame_count(), memory.frame_size()) };
        let arenas = arenas.spanning(memory.view().span(), 1);
        let pv = Pv::new(&design, 1, &arenas);
        test(&text, &pv, &env);
        assert_eq!((pv.live_nodes(), pv.live_groups()), (0, 0), "{text}");
        pin.assert_holds(0);
        let slabs = memory.audit_frames().unwrap().of(Kind::Slab);
        assert_eq!(pv.audit_nodes(), Ok(slabs), "{text}");
    }
}

fn place(space: u32, state: &PvOfSpace) -> Place<'_, (), PvOfSpace> {
    Place {
        space,
        space_state: state,
        region: &(),
        linear_offset: 0,
    }
}

const PTE: PteRef = PteRef {
    table: Pfn(3),
    index: 0,
};

/// 512 frames, aligned, and the pages that show them.
fn superpage(env: &Env<'_, TestMachine>) -> Run {
    let request = Request::page(Site::AnonymousPage).order(9);
    Run {
        count: 512,
        ..Run::single(
            env.memory.alloc(env.pin, request).unwrap(),
            PTE,
            Vpn(1 << 9),
        )
    }
}

#[test]
fn promotion_passes_one_entry_on_and_demotion_makes_the_others_anew() {
    with_each(|text, pv, env| {
        let (one, other) = (PvOfSpace::default(), PvOfSpace::default());
        pv.space_executed(env, &one, 1).unwrap();
        pv.space_forked(env, &one, &other, 2).unwrap();
        let small = superpage(env);
        let large = Run::large(small.frame, 9, PTE, small.page);
        let maps = |own: u32, shared: u32| {
            for step in [0, 1, 511] {
                let frame = small.frame.offset(step);
                assert_eq!(pv.check_frame(env, frame, own + shared), Ok(()), "{text}");
            }
            assert_eq!(pv.live_nodes(), u64::from(own * 512 + shared), "{text}");
        };
        let mut ctx = PvContext::default();
        pv.prepare(env, &mut ctx, place(1, &one), 512).unwrap();
        pv.add(env, &mut ctx, &small, place(1, &one), true);
        pv.finish(env, ctx);
        maps(1, 0);

        let mut ctx = PvContext::default();
        pv.promote(env, &mut ctx, &small, PTE, place(1, &one));
        pv.finish(env, ctx);
        maps(0, 1);
        let mut ctx = PvContext::default();
        pv.prepare(env, &mut ctx, place(2, &other), 1).unwrap();
        pv.duplicate(env, &mut ctx, &large, place(2, &other));
        pv.finish(env, ctx);
        maps(0, 2);

        // One space has single pages, the other the superpage.
        let mut ctx = PvContext::default();
        pv.prepare_demote(env, &mut ctx, &large, place(1, &one))
            .unwrap();
        pv.demote(env, &mut ctx, &small, PTE, place(1, &one));
        pv.finish(env, ctx);
        maps(1, 1);
        let mut ctx = PvContext::default();
        pv.remove(env, &mut ctx, &large, place(2, &other));
        pv.finish(env, ctx);
        maps(1, 0);
        let mut ctx = PvContext::default();
        pv.remove(env, &mut ctx, &small, place(1, &one));
        pv.finish(env, ctx);
        maps(0, 0);
        pv.space_ended(env, &other);
        pv.space_ended(env, &one);
    });
}

#[test]
fn a_demotion_that_was_prepared_asks_for_nothing_more() {
    with_each(|text, pv, env| {
        let one = PvOfSpace::default();
        pv.space_executed(env, &one, 1).unwrap();
        let small = superpage(env);
        let large = Run::large(small.frame, 9, PTE, small.page);
        let mut ctx = PvContext::default();
        pv.prepare(env, &mut ctx, place(1, &one), 1).unwrap();
        pv.add(env, &mut ctx, &large, place(1, &one), true);
        for site in [Site::PvChunk, Site::PvEntry] {
            env.memory.inject(Some(FailAt { site, after: 0 }));
            let failed = pv.prepare_demote(env, &mut ctx, &large, place(1, &one));
            env.memory.inject(None);
            let its_own = match pv.entries {
                Entries::Chunks(_) => Site::PvChunk,
                Entries::Slab(_) => Site::PvEntry,
            };
            assert_eq!(failed.is_err(), site == its_own, "{text}");
            if failed.is_ok() {
                break;
            }
        }
        pv.prepare_demote(env, &mut ctx, &large, place(1, &one))
            .unwrap();
        let frames = env.memory.stats();
        pv.demote(env, &mut ctx, &small, PTE, place(1, &one));
        assert_eq!(env.memory.stats(), frames, "{text}");
        pv.remove(env, &mut ctx, &small, place(1, &one));
        pv.finish(env, ctx);
        pv.space_ended(env, &one);
    });
}

#[test]
fn locks_that_pages_share_are_taken_once_for_a_run() {
    with_each(|text, pv, env| {
        let one = PvOfSpace::default();
        pv.space_executed(env, &one, 1).unwrap();
        let small = superpage(env);
        let taken = |work: &dyn Fn(&mut PvContext)| {
            let before = pv.stats().locks;
            let mut ctx = PvContext::default();
            work(&mut ctx);
            pv.finish(env, ctx);
            pv.stats().locks - before
        };
        let added = taken(&|ctx| {
            pv.prepare(env, ctx, place(1, &one), 512).unwrap();
            pv.add(env, ctx, &small, place(1, &one), true);
        });
        let promoted = taken(&|ctx| pv.promote(env, ctx, &small, PTE, place(1, &one)));
        let large = Run::large(small.frame, 9, PTE, small.page);
        let removed = taken(&|ctx| pv.remove(env, ctx, &large, place(1, &one)));
        let expected = match pv.locks.are_shared() {
            true => (1, 1, 1),
            false => (512, 513, 1),
        };
        assert_eq!((added, promoted, removed), expected, "{text}");
        pv.space_ended(env, &one);
    });
}

#[test]
fn entries_of_several_spaces_go_back_to_their_own() {
    with_each(|text, pv, env| {
        let spaces = [PvOfSpace::default(), PvOfSpace::default()];
        for (number, space) in spaces.iter().enumerate() {
            pv.space_executed(env, space, number as u32 + 1).unwrap();
        }
        let small = superpage(env);
        let mut ctx = PvContext::default();
        for (number, space) in spaces.iter().enumerate() {
            pv.prepare(env, &mut ctx, place(number as u32 + 1, space), 512)
                .unwrap();
            pv.add(
                env,
                &mut ctx,
                &small,
                place(number as u32 + 1, space),
                false,
            );
        }
        let peak = pv.stats().bytes;
        for part in 0..512 {
            for (number, space) in spaces.iter().enumerate() {
                let run = Run::single(
                    small.frame.offset(part),
                    PTE,
                    small.page.offset(part.into()),
                );
                pv.remove(env, &mut ctx, &run, place(number as u32 + 1, space));
            }
        }
        pv.finish(env, ctx);
        assert!(pv.stats().bytes < peak / 4, "{text}");
        assert!(pv.stats().peak_bytes >= peak, "{text}");
        spaces.iter().for_each(|space| pv.space_ended(env, space));
    });
}

/// What CPUs do to the queue, one after the other, against a list beside it.
#[test]
fn a_stamp_has_passed_when_all_before_it_have_left_the_queue() {
    let memory = PhysicalMemory::new(TestMachine::simple(4, 4096)).unwrap();
    for locked in [true, false] {
        let delayed = Delayed::new(4, locked);
        let mut rng = Rng::new(20);
        let mut inside: Vec<(u16, u64)> = Vec::new();
        let mut left: Vec<u64> = Vec::new();
        for _ in 0..3000 {
            let cpu = rng.below(4) as u16;
            run_on(cpu);
            let pin = memory.pin();
            match inside.iter().position(|&(other, _)| other == cpu) {
                None => {
                    assert_eq!(delayed.generation(pin.cpu()), 0);
                    delayed.begin(&pin);
                    let generation = delayed.generation(pin.cpu());
                    assert!(left.iter().all(|&other| other < generation));
                    inside.push((cpu, generation));
                }
                Some(_) if rng.below(4) == 0 => {
                    // One within the other is one.
                    delayed.begin(&pin);
                    delayed.end(&pin);
                }
                Some(at) => {
                    delayed.end(&pin);
                    left.push(inside.remove(at).1);
                }
            }
            for &(_, generation) in &inside {
                assert!(!delayed.has_passed(generation), "locked: {locked}");
            }
            let first = inside.iter().map(|&(_, generation)| generation).min();
            for &generation in &left {
                let passed = first.is_none_or(|first| generation < first);
                assert_eq!(delayed.has_passed(generation), passed, "locked: {locked}");
            }
        }
        run_on(0);
    }
}
