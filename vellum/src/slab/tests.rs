//! Tests of arenas over a small machine.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::vec::Vec;

use super::directory::{Directory, Entry};
use super::*;
use crate::frame::{AuditPlace, FailAt, Kind, OutOfMemory, PhysicalMemory, Request, Site};
use crate::platform::Machine;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::testing::{Rng, TestMachine, run_on};

/// 40 bytes: does not divide a frame, and is no power of two.
struct Node {
    link: AtomicU32,
    owner: AtomicU32,
    rest: [AtomicU64; 4],
}

impl Item for Node {
    const SITE: Site = Site::ChainNode;

    fn vacant() -> Self {
        Node {
            link: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            rest: [const { AtomicU64::new(0) }; 4],
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// Half a frame.
struct Large([AtomicU32; 512]);

impl Item for Large {
    const SITE: Site = Site::Object;

    fn vacant() -> Self {
        Large([const { AtomicU32::new(0) }; 512])
    }

    fn link(&self) -> &AtomicU32 {
        &self.0[511]
    }
}

const SLOTS: usize = 4096 / 40;

/// The arena goes first when it is dropped, and is of one memory.
struct Setup<T: Item, S: Stay = ForGood> {
    arena: Arena<T, S>,
    memory: PhysicalMemory<TestMachine>,
}

fn setup<T: Item>(cpus: usize, frames: u32) -> Setup<T> {
    setup_as(cpus, frames)
}

/// One whose arena gives frames back.
fn returning<T: Item>(cpus: usize, frames: u32) -> Setup<T, WhilePinned> {
    setup_as(cpus, frames)
}

fn setup_as<T: Item, S: Stay>(cpus: usize, frames: u32) -> Setup<T, S> {
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::simple(cpus, frames)).unwrap();
    // SAFETY: used with the memory beside it, which is dropped after it.
    let maker = unsafe { ArenaMaker::new(cpus, memory.frame_count(), 4096) };
    Setup {
        arena: maker.make(),
        memory,
    }
}

impl<T: Item, S: Stay> Setup<T, S> {
    fn alloc(&self) -> Result<Handle<T>, OutOfMemory> {
        self.arena.alloc(&self.memory.pin(), &self.memory)
    }

    fn free(&self, handle: Handle<T>) {
        self.arena.free(&self.memory.pin(), handle);
    }

    fn census(&self) -> ArenaCensus {
        self.memory
            .audit_frames()
            .unwrap_or_else(|error| panic!("{error}"));
        self.arena.audit().unwrap_or_else(|error| panic!("{error}"))
    }
}

#[test]
fn an_arena_has_no_more_chunks_than_its_directory_has_places_for() {
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::simple(1, 64)).unwrap();
    // SAFETY: used with this memory only, which is dropped after it. That the memory has
    // more frames than it says only makes the directory smaller.
    let arena: Arena<Node> = unsafe { ArenaMaker::new(1, 2, 4096) }.make();
    let slots = (0..10 * SLOTS).take_while(|_| arena.alloc(&memory.pin(), &memory).is_ok());
    assert_eq!(slots.count(), 2 * SLOTS);
}

#[test]
fn handles_lead_to_distinct_slots_that_keep_their_values() {
    let setup = setup::<Node>(1, 1024);
    let handles: Vec<_> = (0..1000).map(|_| setup.alloc().unwrap()).collect();
    let distinct: BTreeSet<_> = handles.iter().copied().collect();
    assert_eq!(distinct.len(), 1000);
    assert!(!distinct.contains(&Handle::NONE));
    for (value, handle) in handles.iter().enumerate() {
        let node = setup.arena.get(*handle);
        node.owner.store(value as u32, Ordering::Relaxed);
        node.rest[3].store(value as u64, Ordering::Relaxed);
    }
    for (value, handle) in handles.iter().enumerate() {
        let node = setup.arena.get(*handle);
        assert_eq!(node.owner.load(Ordering::Relaxed), value as u32);
        assert_eq!(node.rest[3].load(Ordering::Relaxed), value as u64);
    }
    let census = setup.census();
    assert_eq!(
        (census.live, census.chunks),
        (1000, 1000usize.div_ceil(SLOTS) as u64)
    );
    let slab = setup.memory.audit_frames().unwrap().of(Kind::Slab);
    assert_eq!(slab, setup.arena.stats().frames);
    for handle in handles {
        setup.free(handle);
    }
    assert_eq!(setup.census().live, 0);
}

#[test]
fn the_slot_freed_last_is_handed_out_first() {
    let setup = setup::<Node>(1, 1024);
    let [a, b] = [(); 2].map(|()| setup.alloc().unwrap());
    setup.free(a);
    setup.free(b);
    assert_eq!(setup.alloc(), Ok(b));
    assert_eq!(setup.alloc(), Ok(a));
}

#[test]
fn a_handle_that_was_never_handed_out_leads_to_nothing() {
    let setup = setup::<Node>(1, 1024);
    let handle = setup.alloc().unwrap();
    for raw in [0, 1, 127, handle.raw() | 127, 0x7fff_ffff, u32::MAX] {
        assert!(
            setup.arena.try_get(Handle::from_raw(raw)).is_none(),
            "{raw:#x}"
        );
    }
    assert!(setup.arena.try_get(handle).is_some());
}

#[test]
fn values_as_large_as_half_a_frame_are_served() {
    let setup = setup::<Large>(1, 1024);
    let handles: Vec<_> = (0..301).map(|_| setup.alloc().unwrap()).collect();
    for (value, handle) in handles.iter().enumerate() {
        setup.arena.get(*handle).0[0].store(value as u32, Ordering::Relaxed);
    }
    for (value, handle) in handles.into_iter().enumerate() {
        assert_eq!(
            setup.arena.get(handle).0[0].load(Ordering::Relaxed),
            value as u32
        );
        setup.free(handle);
    }
    let census = setup.census();
    assert_eq!((census.live, census.vacant, census.chunks), (0, 302, 151));
}

#[test]
fn a_batch_is_all_or_nothing() {
    let setup = setup::<Node>(1, 24);
    let pin = setup.memory.pin();
    let mut batch = Batch::new();
    let most = 23 * SLOTS;
    let all = setup
        .arena
        .alloc_batch(&pin, &setup.memory, most + 1, &mut batch);
    assert_eq!(all, Err(OutOfMemory));
    assert!(batch.is_empty());
    setup
        .arena
        .alloc_batch(&pin, &setup.memory, 17, &mut batch)
        .unwrap();
    setup
        .arena
        .alloc_batch(&pin, &setup.memory, most - 17, &mut batch)
        .unwrap();
    assert_eq!(batch.len(), most);
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        assert!(seen.insert(batch.pop(&setup.arena)));
    }
    setup.arena.free_batch(&pin, batch);
    let mut batch = Batch::new();
    assert!(batch.pop(&setup.arena).is_none());
    for handle in seen {
        batch.push(&setup.arena, handle);
    }
    assert_eq!(batch.len(), 100);
    setup.arena.free_batch(&pin, batch);
    drop(pin);
    assert_eq!(setup.census().vacant, most as u64);
}

#[test]
fn a_reservation_holds_whatever_is_freed_meanwhile() {
    let mut rng = Rng::new(5);
    let setup = setup::<Node>(1, 512);
    let pin = setup.memory.pin();
    let mut held: Vec<_> = Vec::new();
    for _ in 0..500 {
        let count = if rng.below(2) == 0 {
            rng.below(4)
        } else {
            rng.below(4 * SLOTS)
        };
        setup.arena.reserve(&pin, &setup.memory, count).unwrap();
        // No memory can be had from here on.
        setup.memory.inject(Some(FailAt {
            site: Site::SlabFrame,
            after: 0,
        }));
        for _ in 0..count {
            for _ in 0..rng.below(4).min(held.len()) {
                let handle = held.swap_remove(rng.below(held.len()));
                setup.arena.free(&pin, handle);
            }
            held.push(setup.arena.take_reserved(&pin));
        }
        assert_eq!(setup.memory.reached(Site::SlabFrame), 0);
        setup.memory.inject(None);
        assert_eq!(setup.arena.audit().unwrap().live, held.len() as u64);
    }
    let distinct: BTreeSet<_> = held.iter().collect();
    assert_eq!(distinct.len(), held.len());
}

/// What is at hand is enough for a reservation of up to a batch only: a free may
/// send a whole batch to the depot.
#[test]
fn a_reservation_of_more_than_a_batch_outlasts_frees() {
    let setup = setup::<Node>(1, 1024);
    let mut used: Vec<_> = (0..4 * SLOTS).map(|_| setup.alloc().unwrap()).collect();
    for _ in 0..2 * SLOTS {
        setup.free(used.pop().unwrap());
    }
    let pin = setup.memory.pin();
    let count = SLOTS + SLOTS / 2;
    setup.arena.reserve(&pin, &setup.memory, count).unwrap();
    for _ in 0..SLOTS + 2 {
        setup.arena.free(&pin, used.pop().unwrap());
    }
    let taken: BTreeSet<_> = (0..count)
        .map(|_| setup.arena.take_reserved(&pin))
        .collect();
    assert_eq!(taken.len(), count);
    drop(pin);
    let live = (used.len() + count) as u64;
    assert_eq!(setup.census().live, live);
}

#[test]
fn failures_are_planned_by_the_site_of_each_allocation() {
    let setup = setup::<Node>(1, 1024);
    for site in [Site::ChainNode, Site::SlabFrame, Site::SlabDirectory] {
        setup.memory.inject(Some(FailAt { site, after: 0 }));
        assert_eq!(setup.alloc(), Err(OutOfMemory), "{site:?}");
        assert_eq!(setup.memory.reached(site), 1, "{site:?}");
        assert_eq!(setup.memory.stats().used(), 0, "{site:?}: nothing is kept");
    }
    assert!(setup.alloc().is_ok());
    setup.memory.inject(None);
    assert_eq!(setup.census().live, 1);
}

#[test]
fn exhaustion_is_an_error_and_passes() {
    let setup = setup::<Node>(1, 64);
    let mut held = Vec::new();
    while let Ok(handle) = setup.alloc() {
        held.push(handle);
    }
    assert_eq!(held.len(), 63 * SLOTS, "one frame is the directory");
    setup.free(held.pop().unwrap());
    held.push(setup.alloc().unwrap());
    assert_eq!(setup.census().live, held.len() as u64);
}

#[test]
fn a_retired_slot_is_not_handed_out_while_a_reader_is_pinned() {
    let setup = setup::<Node>(2, 64);
    let retired = setup.alloc().unwrap();
    run_on(1);
    let reader = setup.memory.pin();
    run_on(0);
    setup.arena.retire(&setup.memory.pin(), retired);
    assert_eq!(setup.arena.stats().limbo, 1);
    let mut held = BTreeSet::new();
    while let Ok(handle) = setup.alloc() {
        held.insert(handle);
    }
    assert!(!held.contains(&retired));
    assert_eq!(setup.census().limbo, 1);
    drop(reader);
    for _ in 0..2 {
        assert!(setup.memory.epochs().try_advance());
    }
    assert_eq!(setup.alloc(), Ok(retired));
    assert_eq!(setup.census().limbo, 0);
}

#[test]
fn many_retirements_need_no_more_memory() {
    let setup = setup::<Node>(1, 1024);
    for _ in 0..50_000 {
        let handle = setup.alloc().unwrap();
        setup.arena.retire(&setup.memory.pin(), handle);
    }
    let stats = setup.arena.stats();
    assert!(stats.frames < 8, "{stats:?}");
    setup.census();
}

#[test]
fn slots_freed_on_one_cpu_are_found_by_another() {
    let setup = setup::<Node>(2, 1024);
    for round in 0..20 {
        run_on(0);
        let held: Vec<_> = (0..2000).map(|_| setup.alloc().unwrap()).collect();
        run_on(1);
        for handle in held {
            setup.free(handle);
        }
        assert!(setup.arena.stats().frames < 30, "round {round}");
    }
    assert!(setup.arena.stats().peak >= 2000);
    setup.census();
}

#[test]
fn retired_slots_of_which_few_fit_into_a_frame_stay_with_their_cpu() {
    let setup = setup::<Large>(1, 1024);
    for _ in 0..5_000 {
        let handle = setup.alloc().unwrap();
        setup.arena.retire(&setup.memory.pin(), handle);
    }
    // Two slots a frame, as many as wait for two epochs, and a list.
    let stats = setup.arena.stats();
    assert!(stats.frames < 110, "{stats:?}");
    assert_eq!(setup.arena.depot.depth(), 0, "batches in the depot");
    setup.census();
}

#[test]
fn a_list_of_several_batches_is_found_by_another_cpu() {
    let setup = setup::<Large>(2, 1024);
    for round in 0..10 {
        run_on(0);
        let held: Vec<_> = (0..600).map(|_| setup.alloc().unwrap()).collect();
        run_on(1);
        for handle in held {
            setup.free(handle);
        }
        assert!(setup.arena.stats().frames < 450, "round {round}");
    }
    setup.census();
}

#[test]
fn the_audit_sees_a_slot_freed_twice() {
    let setup = setup::<Node>(1, 1024);
    let handles: Vec<_> = (0..10).map(|_| setup.alloc().unwrap()).collect();
    for handle in [3, 4, 5, 3] {
        setup.free(handles[handle]);
    }
    assert!(matches!(
        setup.arena.audit().unwrap_err().place,
        AuditPlace::Slot(_)
    ));
}

#[test]
fn the_audit_sees_a_lost_slot() {
    let setup = setup::<Node>(1, 1024);
    let handle = setup.alloc().unwrap();
    setup.free(handle);
    let pin = setup.memory.pin();
    assert_eq!(setup.arena.caches.get(&pin).pop(&setup.arena), handle.raw());
    assert_eq!(setup.arena.audit().unwrap_err().place, AuditPlace::Arena);
}

#[test]
fn two_threads_never_get_the_same_slot() {
    let setup = setup::<Node>(2, 512);
    let exchange: Mutex<Vec<Handle<Node>>> = Mutex::default();
    let seed = Rng::new(4).next();
    let work = |cpu: u16| {
        run_on(cpu);
        let mut rng = Rng::new(seed ^ u64::from(cpu) << 32);
        let mut held: Vec<Handle<Node>> = Vec::new();
        for _ in 0..40_000 {
            let pin = setup.memory.pin();
            if rng.below(3000) > held.len() {
                let Ok(handle) = setup.arena.alloc(&pin, &setup.memory) else {
                    continue;
                };
                let owner = &setup.arena.get(handle).owner;
                assert_eq!(owner.swap(1, Ordering::AcqRel), 0, "{handle:?} is in use");
                held.push(handle);
            } else if let Some(handle) = held.pop() {
                match rng.below(4) {
                    // What one CPU allocates another frees.
                    0 => exchange.lock().unwrap().push(handle),
                    choice => {
                        setup.arena.get(handle).owner.store(0, Ordering::Release);
                        match choice {
                            1 => setup.arena.retire(&pin, handle),
                            _ => setup.arena.free(&pin, handle),
                        }
                    }
                }
            }
            if rng.below(8) == 0 {
                held.extend(exchange.lock().unwrap().pop());
            }
        }
        held.len()
    };
    let held: usize = thread::scope(|scope| {
        let threads = [0, 1].map(|cpu| scope.spawn(move || work(cpu)));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let held = held + exchange.lock().unwrap().len();
    assert_eq!(setup.census().live, held as u64);
}

#[test]
fn an_arena_has_leaves_for_the_next_numbers_of_every_cpu() {
    // A leaf has 256 entries. Of 64 CPUs each takes two numbers, of 600 it takes 16.
    for (cpus, leaves) in [(1, 1), (64, 1), (600, 38)] {
        let setup = setup::<Large>(cpus, 2048);
        setup.alloc().unwrap();
        assert_eq!(setup.census().directory, leaves, "{cpus} CPUs");
    }
}

#[test]
fn numbers_that_cpus_have_taken_for_later_are_no_chunks() {
    let setup = setup::<Node>(64, 1024);
    for (cpu, chunks) in [(0, 1), (1, 2), (0, 3), (0, 4), (63, 5)] {
        run_on(cpu);
        for _ in 0..SLOTS {
            setup.alloc().unwrap();
        }
        let census = setup.census();
        assert_eq!((census.chunks, census.vacant), (chunks, 0));
        let mut count = 0;
        setup.arena.each(|_, _| count += 1);
        assert_eq!(count, chunks * SLOTS as u64);
    }
}

#[test]
fn a_directory_keeps_the_leaf_that_was_added_first() {
    let memory = PhysicalMemory::new(TestMachine::simple(1, 64)).unwrap();
    run_on(0);
    let directory: Directory<Entry> = Directory::new(1000, 12);
    let request = Request::page(Site::SlabDirectory).zeroed();
    for number in [300, 2] {
        assert!(directory.entry(number).is_none());
        let leaf = || {
            let frame = memory.alloc(&memory.pin(), request).unwrap();
            // SAFETY: the frame is zeroed, of the directory's size, and outlives it.
            unsafe { directory.install(number, memory.direct(frame)) }
        };
        assert!(leaf());
        assert!(!leaf(), "another leaf for {number}");
        assert!(directory.entry(number).is_some());
        assert!(directory.entry(511).is_some());
        assert!(directory.entry(512).is_none());
    }
}

#[test]
fn the_platform_is_asked_for_frames_only_when_a_chunk_is_made() {
    let setup = setup::<Node>(1, 1024);
    let before = setup.memory.stats().allocs;
    for _ in 0..10 * SLOTS {
        setup.alloc().unwrap();
    }
    assert_eq!(setup.memory.stats().allocs - before, 11);
    assert_eq!(setup.memory.platform().frame_shift(), 12);
    let frame = setup
        .memory
        .alloc(&setup.memory.pin(), Request::page(Site::Space));
    assert!(frame.is_ok());
}

impl<T: Item> Setup<T, WhilePinned> {
    fn give_back(&self) -> u64 {
        self.arena
            .give_back(&self.memory.pin(), &self.memory, AtHand::Given)
    }

    /// Gives back, and waits until the frames are free.
    fn give_back_and_wait(&self) -> u64 {
        let frames = self.give_back();
        for _ in 0..3 {
            self.memory.drain(&self.memory.pin());
        }
        frames
    }

    fn alloc_many(&self, count: usize) -> Vec<Handle<T>> {
        (0..count).map(|_| self.alloc().unwrap()).collect()
    }
}

/// Frames of the directory of an arena that gives frames back: one for chunks, one for their books.
const LEAVES: u64 = 2;

#[test]
fn a_peak_gives_its_frames_back() {
    let setup = returning::<Node>(1, 1024);
    let kept = setup.alloc().unwrap();
    let peak = setup.alloc_many(100 * SLOTS);
    let before = setup.memory.stats().used();
    assert_eq!(setup.arena.stats().frames, 101 + LEAVES);
    for handle in peak {
        setup.free(handle);
    }
    assert_eq!(setup.census().chunks, 101, "nobody asked");
    assert_eq!(setup.give_back_and_wait(), 100);
    let stats = setup.arena.stats();
    assert_eq!(
        (stats.frames, stats.returned, stats.live),
        (1 + LEAVES, 100, 1)
    );
    assert_eq!(stats.peak, 101 * SLOTS as u64);
    assert_eq!(before - setup.memory.stats().used(), 100);
    let census = setup.census();
    assert_eq!((census.live, census.vacant), (1, SLOTS as u64 - 1));
    let pin = setup.memory.pin();
    assert!(setup.arena.under(&pin).try_get(kept).is_some());
}

#[test]
fn frames_with_a_slot_in_use_stay_and_their_other_slots_are_found_again() {
    let setup = returning::<Node>(1, 1024);
    let held = setup.alloc_many(10 * SLOTS);
    let (kept, freed): (Vec<_>, Vec<_>) = (0..).zip(held).partition(|(at, _)| at % SLOTS == 7);
    for (_, handle) in &freed {
        setup.free(*handle);
    }
    assert_eq!(setup.give_back_and_wait(), 0);
    let census = setup.census();
    assert_eq!((census.live, census.chunks), (10, 10));
    let again: BTreeSet<_> = setup.alloc_many(freed.len()).into_iter().collect();
    assert_eq!(again, freed.iter().map(|&(_, handle)| handle).collect());
    assert_eq!(setup.arena.stats().frames, 10 + LEAVES);
    for handle in again
        .into_iter()
        .chain(kept.into_iter().map(|(_, handle)| handle))
    {
        setup.free(handle);
    }
    assert_eq!(setup.give_back_and_wait(), 10);
    assert_eq!(setup.census().chunks, 0);
}

#[test]
fn a_chunk_takes_the_number_of_one_that_went() {
    let setup = returning::<Node>(1, 1024);
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        let held = setup.alloc_many(30 * SLOTS);
        let distinct: BTreeSet<_> = held.iter().copied().collect();
        assert_eq!(distinct.len(), held.len());
        seen.extend(distinct);
        for handle in held {
            setup.free(handle);
        }
        assert_eq!(setup.give_back(), 30);
        setup.census();
    }
    assert_eq!(seen.len(), 30 * SLOTS);
    assert_eq!(setup.arena.stats().returned, 600);
}

#[test]
fn a_reader_in_its_pin_sees_a_slot_that_went_as_it_was() {
    let setup = returning::<Node>(2, 64);
    let handle = setup.alloc().unwrap();
    run_on(1);
    let reader = setup.memory.pin();
    let seen = setup.arena.under(&reader).get(handle);
    seen.rest[3].store(77, Ordering::Relaxed);
    run_on(0);
    setup.free(handle);
    assert_eq!(setup.give_back(), 1);
    assert!(setup.arena.under(&reader).try_get(handle).is_none());
    // All memory that there is becomes somebody else's.
    let mut others = Vec::new();
    let request = Request::page(Site::AnonymousPage).zeroed();
    let take_all = |others: &mut Vec<_>| {
        while let Ok(frame) = setup.memory.alloc(&setup.memory.pin(), request) {
            setup.memory.direct_bytes(frame).fill(0xaaaa_aaaa_aaaa_aaaa);
            others.push(frame);
        }
        others.len()
    };
    assert_eq!(take_all(&mut others), 64 - LEAVES as usize - 1);
    assert_eq!(seen.rest[3].load(Ordering::Relaxed), 77);
    drop(reader);
    for _ in 0..3 {
        setup.memory.drain(&setup.memory.pin());
    }
    assert_eq!(take_all(&mut others), 64 - LEAVES as usize);
}

#[test]
fn a_retired_slot_keeps_its_frame_until_its_epoch_has_passed() {
    let setup = returning::<Node>(2, 64);
    let handle = setup.alloc().unwrap();
    run_on(1);
    let reader = setup.memory.pin();
    run_on(0);
    setup.arena.retire(&setup.memory.pin(), handle);
    assert_eq!(setup.give_back_and_wait(), 0);
    assert!(setup.arena.under(&reader).try_get(handle).is_some());
    assert_eq!(setup.census().limbo, 1);
    drop(reader);
    for _ in 0..2 {
        assert!(setup.memory.epochs().try_advance());
    }
    assert_eq!(setup.give_back(), 1);
    setup.census();
}

#[test]
fn what_an_idle_cpu_retired_goes_with_what_another_gives_back() {
    let setup = returning::<Node>(2, 64);
    let handles = setup.alloc_many(SLOTS);
    run_on(1);
    for &handle in &handles[1..] {
        setup.arena.retire(&setup.memory.pin(), handle);
    }
    run_on(0);
    setup.free(handles[0]);
    let frames: u64 = (0..4).map(|_| setup.give_back()).sum();
    assert_eq!(frames, 1);
    setup.census();
}

#[test]
fn an_arena_may_have_as_many_chunks_after_some_went() {
    let memory = PhysicalMemory::new(TestMachine::simple(1, 64)).unwrap();
    run_on(0);
    // SAFETY: used with this memory only, which is dropped after it. That the memory has
    // more frames than it says only makes the directory smaller.
    let arena: Arena<Node, WhilePinned> = unsafe { ArenaMaker::new(1, 8, 4096) }.make();
    for _ in 0..5 {
        let slots: Vec<_> = (0..20 * SLOTS)
            .map_while(|_| arena.alloc(&memory.pin(), &memory).ok())
            .collect();
        assert_eq!(slots.len(), 8 * SLOTS);
        assert!(!arena.may_have_more(SLOTS as u64));
        for slot in slots {
            arena.free(&memory.pin(), slot);
        }
        arena.give_back(&memory.pin(), &memory, AtHand::Given);
        assert!(arena.may_have_more(SLOTS as u64));
    }
}

#[test]
fn a_number_is_not_lost_when_there_is_no_frame_for_its_chunk() {
    let setup = returning::<Node>(1, 1024);
    for site in [Site::SlabFrame, Site::SlabDirectory] {
        for after in 0..LEAVES as u32 {
            setup.memory.inject(Some(FailAt { site, after }));
            let failed = setup.alloc();
            setup.memory.inject(None);
            let Ok(handle) = failed else { continue };
            setup.free(handle);
            assert_eq!(setup.give_back(), 1);
        }
    }
    setup.memory.inject(Some(FailAt {
        site: Site::SlabFrame,
        after: 0,
    }));
    assert_eq!(setup.alloc(), Err(OutOfMemory));
    setup.memory.inject(None);
    let census = setup.census();
    assert_eq!(
        (census.chunks, census.live, census.directory),
        (0, 0, LEAVES)
    );
    setup.alloc().unwrap();
    assert_eq!(
        (setup.census().chunks, setup.arena.stats().peak),
        (1, SLOTS as u64)
    );
}

#[test]
fn the_audit_sees_a_slot_at_home_that_is_in_use() {
    let setup = returning::<Node>(1, 1024);
    let handles = setup.alloc_many(2);
    setup.free(handles[0]);
    setup.give_back();
    setup.free(handles[0]);
    assert!(setup.arena.audit().is_err());
}

/// Whatever one CPU uses, another gives back beside it.
#[test]
fn frames_are_given_back_while_others_take_slots() {
    let setup = returning::<Node>(2, 512);
    let seed = Rng::new(9).next();
    let work = |cpu: u16| {
        run_on(cpu);
        let mut rng = Rng::new(seed ^ u64::from(cpu) << 32);
        let mut held: Vec<Handle<Node>> = Vec::new();
        let mut most = 0;
        for step in 0..40_000 {
            let pin = setup.memory.pin();
            if step % 1000 == 0 {
                // All of them come and go about together.
                most = step / 1000 % 2 * 3000;
            }
            if rng.below(200) == 0 {
                let at_hand = [AtHand::Kept, AtHand::Given][rng.below(2)];
                setup.arena.give_back(&pin, &setup.memory, at_hand);
            } else if held.len() < most {
                let Ok(handle) = setup.arena.alloc(&pin, &setup.memory) else {
                    continue;
                };
                let node = setup.arena.under(&pin).get(handle);
                assert_eq!(
                    node.owner.swap(1, Ordering::AcqRel),
                    0,
                    "{handle:?} is in use"
                );
                node.rest[0].store(handle.raw().into(), Ordering::Relaxed);
                held.push(handle);
            } else if !held.is_empty() {
                let handle = held.swap_remove(rng.below(held.len()));
                let node = setup.arena.under(&pin).get(handle);
                assert_eq!(node.rest[0].load(Ordering::Relaxed), handle.raw().into());
                assert_eq!(
                    node.owner.swap(0, Ordering::Release),
                    1,
                    "{handle:?} is vacant"
                );
                match rng.below(2) {
                    0 => setup.arena.retire(&pin, handle),
                    _ => setup.arena.free(&pin, handle),
                }
            }
        }
        held.len() as u64
    };
    let held: u64 = thread::scope(|scope| {
        let threads = [0, 1].map(|cpu| scope.spawn(move || work(cpu)));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(setup.census().live, held);
    setup.give_back();
    assert!(setup.arena.stats().returned > 0);
}

#[test]
fn what_a_cpu_has_at_hand_stays_for_what_it_is_at() {
    let setup = returning::<Node>(1, 1024);
    setup
        .arena
        .reserve(&setup.memory.pin(), &setup.memory, 20)
        .unwrap();
    let give_back = |at_hand| {
        let pin = setup.memory.pin();
        setup.arena.give_back(&pin, &setup.memory, at_hand)
    };
    assert_eq!(give_back(AtHand::Kept), 0);
    let pin = setup.memory.pin();
    setup.arena.reserve(&pin, &setup.memory, 20).unwrap();
    assert_eq!(setup.arena.stats().frames, 1 + LEAVES);
    drop(pin);
    assert_eq!(give_back(AtHand::Given), 1);
    setup.census();
}
