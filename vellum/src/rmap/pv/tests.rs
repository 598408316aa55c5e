//! Tests of the parts of pv entries. What the whole must do is tested where all designs
//! are.

use std::boxed::Box;
use std::vec::Vec;

use super::entry::{Chunk, ENTRIES_PER_CHUNK, Name};
use super::list::{Link, Links, List, NONE};
use super::locks::PageLocks;
use super::order::Order;
use super::spaces::SpaceChunks;
use crate::addr::Pfn;
use crate::design::{PvLock, PvLru};
use crate::frame::{PhysicalMemory, Request, Site};
use crate::slab::ArenaMaker;
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
        let locks = PageLocks::new(kind, &arenas);
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
    let locks = PageLocks::new(PvLock::Hashed, &arenas);
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
            let name = Name::in_chunk(frame, place);
            assert!(!name.is_none());
            assert_eq!(name.chunk(), frame);
        }
    }
}
