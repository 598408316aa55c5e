//! Tests of arenas over a small machine.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::vec::Vec;

use super::directory::Directory;
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
struct Setup<T: Item> {
    arena: Arena<T>,
    memory: PhysicalMemory<TestMachine>,
}

fn setup<T: Item>(cpus: usize, frames: u32) -> Setup<T> {
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::simple(cpus, frames)).unwrap();
    // SAFETY: used with the memory beside it, which is dropped after it.
    let maker = unsafe { ArenaMaker::new(cpus, memory.frame_count(), 4096) };
    Setup {
        arena: maker.make(),
        memory,
    }
}

impl<T: Item> Setup<T> {
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
    let directory = Directory::new(1000, 12);
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
