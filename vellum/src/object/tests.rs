//! Tests of the page tree, the interval tree of regions, and page locks.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use core::cell::Cell;
use core::ops::ControlFlow;

use super::*;
use crate::addr::Pfn;
use crate::design::RegionIndex;
use crate::frame::{FailAt, Flags, Kind, PhysicalMemory, Request};
use crate::platform::GroupId;
use crate::slab::{Arena, ArenaMaker, Handle};
use crate::sync::atomic::AtomicBool;
use crate::testing::{Rng, TestMachine, run_on};
use crate::tree::IntervalItem;

mod aging;
mod cache;
mod swapped;

type Memory = PhysicalMemory<TestMachine>;

fn memory(frames: u32) -> Memory {
    run_on(0);
    PhysicalMemory::new(TestMachine::simple(1, frames)).unwrap()
}

fn arenas(memory: &Memory) -> ArenaMaker {
    // SAFETY: the arenas made are used with `memory` only, in the same test.
    unsafe { ArenaMaker::new(1, memory.frame_count(), memory.frame_size()) }
}

fn tree_at<'a>(nodes: &'a Arena<RadixNode>, root: &'a AtomicU64) -> Radix<'a> {
    // SAFETY: a test has one arena of nodes.
    unsafe { Radix::new(nodes, root) }
}

/// A tree beside a map.
struct Pages<'a> {
    memory: &'a Memory,
    nodes: &'a Arena<RadixNode>,
    root: AtomicU64,
    model: BTreeMap<u64, u32>,
}

impl Pages<'_> {
    fn tree(&self) -> Radix<'_> {
        tree_at(self.nodes, &self.root)
    }

    fn insert(&mut self, index: u64, frame: u32) {
        let pin = self.memory.pin();
        Radix::prepare(self.nodes, &pin, self.memory).unwrap();
        let inserted = self.tree().insert(&pin, index, Pfn(frame));
        match self.model.get(&index) {
            Some(&there) => assert_eq!(inserted, Err(Pfn(there))),
            None => {
                assert_eq!(inserted, Ok(()));
                self.model.insert(index, frame);
            }
        }
    }

    fn remove(&mut self, index: u64) {
        let pin = self.memory.pin();
        let wanted = self.model.remove(&index).map(Pfn);
        assert_eq!(self.tree().remove(&pin, index), wanted);
    }

    fn check(&self, index: u64) {
        assert_eq!(
            self.tree().get(index),
            self.model.get(&index).copied().map(Pfn)
        );
        let next = self.model.range(index..).next();
        let next = next.map(|(&index, &frame)| (index, Pfn(frame)));
        assert_eq!(self.tree().next(index), next);
    }
}

#[test]
fn the_page_tree_matches_a_map() {
    let memory = memory(4096);
    let nodes = arenas(&memory).make();
    let mut pages = Pages {
        memory: &memory,
        nodes: &nodes,
        root: AtomicU64::new(0),
        model: BTreeMap::new(),
    };
    let mut rng = Rng::new(5);
    for step in 0..6000 {
        let width = [4, 7, 12, 24, 48][rng.below(5)];
        let index = rng.next() & ((1 << width) - 1);
        let near = pages
            .model
            .range(index..)
            .next()
            .map_or(index, |(&near, _)| near);
        match rng.below(5) {
            0 | 1 => pages.insert(index, step),
            2 => pages.insert(near, step),
            _ => pages.remove(near),
        }
        pages.check(index);
        pages.check(near.saturating_sub(1));
        if step % 2000 == 1999 {
            while let Some((&index, _)) = pages.model.first_key_value() {
                pages.remove(index);
            }
            assert_eq!(pages.root.load(Ordering::Relaxed), 0, "no node is left");
            assert_eq!(pages.tree().next(0), None);
        }
    }
    let census = nodes.audit().unwrap();
    assert_eq!(census.live, 0, "every node came back");
}

#[test]
fn the_page_tree_holds_the_first_and_the_last_index() {
    let memory = memory(512);
    let nodes = arenas(&memory).make();
    let root = AtomicU64::new(0);
    let pin = memory.pin();
    let tree = tree_at(&nodes, &root);
    for index in [INDEX_END - 1, 0] {
        Radix::prepare(&nodes, &pin, &memory).unwrap();
        assert_eq!(
            tree.insert(&pin, index, Pfn(0)),
            Ok(()),
            "frame 0 is a frame"
        );
    }
    assert_eq!(tree.next(1), Some((INDEX_END - 1, Pfn(0))));
    assert_eq!(tree.get(INDEX_END), None);
    assert_eq!(tree.next(INDEX_END), None);
    assert_eq!(tree.remove(&pin, INDEX_END - 1), Some(Pfn(0)));
    assert_eq!(tree.next(1), None);
}

#[test]
fn one_preparation_is_enough_for_the_deepest_insertion() {
    let memory = memory(512);
    let nodes = arenas(&memory).make();
    let root = AtomicU64::new(0);
    let pin = memory.pin();
    Radix::prepare(&nodes, &pin, &memory).unwrap();
    tree_at(&nodes, &root).insert(&pin, 0, Pfn(1)).unwrap();
    Radix::prepare(&nodes, &pin, &memory).unwrap();
    memory.inject(Some(FailAt {
        site: Site::RadixNode,
        after: 0,
    }));
    let tree = tree_at(&nodes, &root);
    assert_eq!(tree.insert(&pin, INDEX_END - 1, Pfn(2)), Ok(()));
    assert!(Radix::prepare(&nodes, &pin, &memory).is_err());
}

std::thread_local! {
    /// How often a region was asked where it begins.
    static LOOKED: Cell<u64> = const { Cell::new(0) };
}

/// An item that maps pages `first..end`.
#[derive(Default)]
struct Extent {
    first: AtomicU64,
    end: AtomicU64,
    shared: AtomicBool,
    interval: Interval,
    link: AtomicU32,
}

impl Item for Extent {
    const SITE: Site = Site::Region;
    fn vacant() -> Self {
        Extent::default()
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl IntervalItem for Extent {
    fn interval(&self) -> &Interval {
        &self.interval
    }
    fn first_index(&self) -> u64 {
        LOOKED.set(LOOKED.get() + 1);
        self.first.load(Ordering::Relaxed)
    }
    fn end_index(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}

impl MappedBy for Extent {
    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }
}

/// No regions yet, kept as `index` says.
fn regions<'a>(
    index: RegionIndex,
    arena: &'a Arena<Extent>,
    roots: &'a RegionRoots,
) -> ObjectRegions<'a, Extent> {
    ObjectRegions::new(index, arena, roots)
}

#[test]
fn stabbing_finds_what_a_search_of_all_finds() {
    for &index in RegionIndex::ALL {
        stabbing_finds_all(index);
    }
}

fn stabbing_finds_all(index: RegionIndex) {
    let memory = memory(4096);
    let arena: Arena<Extent> = arenas(&memory).make();
    let roots = RegionRoots::default();
    let regions = regions(index, &arena, &roots);
    let mut rng = Rng::new(6);
    let mut model: Vec<(Handle<Extent>, u64, u64)> = Vec::new();
    for step in 0..3000 {
        let pin = memory.pin();
        // Half of the intervals are one of ten, so that many items share each.
        let (first, end) = if rng.below(2) == 0 {
            let first = rng.below(10) as u64 * 40;
            (first, first + 60)
        } else {
            let first = rng.below(400) as u64;
            let longest = if rng.below(10) == 0 { 400 } else { 20 };
            (first, first + 1 + rng.below(longest) as u64)
        };
        let nth = rng.below(model.len().max(1));
        let set = |region: Handle<Extent>, first: u64, end: u64| {
            arena.get(region).first.store(first, Ordering::Relaxed);
            arena.get(region).end.store(end, Ordering::Relaxed);
        };
        match rng.below(8) {
            0..=2 if model.len() < 300 => {
                let handle = arena.alloc(&pin, &memory).unwrap();
                set(handle, first, end);
                let shared = &arena.get(handle).shared;
                shared.store(rng.below(2) == 0, Ordering::Relaxed);
                regions.insert(&pin, handle);
                model.push((handle, first, end));
            }
            3 if !model.is_empty() => {
                let item = &mut model[nth];
                regions.change(&pin, item.0, || set(item.0, first, end));
                (item.1, item.2) = (first, end);
            }
            4 if !model.is_empty() => {
                let (handle, ..) = model.swap_remove(nth);
                regions.remove(&pin, handle);
                arena.free(&pin, handle);
            }
            5 if !model.is_empty() && model[nth].2 - model[nth].1 > 1 => {
                let (head, from, to) = model[nth];
                let cut = from + 1 + rng.below((to - from - 1) as usize) as u64;
                let tail = arena.alloc(&pin, &memory).unwrap();
                regions.split(&pin, head, tail, || {
                    set(head, from, cut);
                    set(tail, cut, to);
                    let shared = arena.get(head).is_shared();
                    arena.get(tail).shared.store(shared, Ordering::Relaxed);
                });
                model[nth].2 = cut;
                model.push((tail, cut, to));
            }
            6 if !model.is_empty() => {
                let (head, from, middle) = model[nth];
                if let Some(other) = model.iter().position(|item| item.1 == middle) {
                    let (tail, _, to) = model[other];
                    regions.join(&pin, head, tail, || set(head, from, to));
                    arena.free(&pin, tail);
                    model[nth].2 = to;
                    model.swap_remove(other);
                }
            }
            _ => {}
        }
        // A search that ends early must not change what the next one finds.
        regions.overlapping(&pin, first, end, |_, _| match rng.below(3) {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let mut found = Vec::new();
        regions.overlapping(&pin, first, end, |handle, _| {
            found.push(handle.raw());
            ControlFlow::Continue(())
        });
        found.sort_unstable();
        let overlaps = |item: &&(Handle<Extent>, u64, u64)| item.1 < end && first < item.2;
        let mut wanted: Vec<u32> = model
            .iter()
            .filter(overlaps)
            .map(|item| item.0.raw())
            .collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{index:?}, step {step}");
        assert_eq!(regions.check(), Ok(model.len() as u64));
    }
}

#[test]
fn regions_of_one_interval_are_visited_by_age_whatever_was_found_last() {
    for &index in RegionIndex::ALL {
        visited_by_age(index);
    }
}

fn visited_by_age(index: RegionIndex) {
    let memory = memory(4096);
    let arena: Arena<Extent> = arenas(&memory).make();
    let roots = RegionRoots::default();
    let regions = regions(index, &arena, &roots);
    let pin = memory.pin();
    let mut by_age = Vec::new();
    for _ in 0..6 {
        let handle = arena.alloc(&pin, &memory).unwrap();
        arena.get(handle).end.store(8, Ordering::Relaxed);
        regions.insert(&pin, handle);
        by_age.push(handle);
    }
    // Also when the oldest goes, one in the middle, and the youngest.
    for gone in [None, Some(0), Some(2), Some(3)] {
        if let Some(nth) = gone {
            regions.remove(&pin, by_age.remove(nth));
        }
        regions.overlapping(&pin, 0, 1, |handle, _| {
            match Some(&handle) == by_age.last() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let mut visited = Vec::new();
        regions.pass_by_age(&pin, (3, 4), &mut Pass::default(), |handle, _| {
            visited.push(handle);
            ControlFlow::Continue(())
        });
        assert_eq!(visited, by_age);
    }
}

/// However often a pass lets go of the lock, it sees every region that stays,
/// comes back to the one it let go at, and misses none that was moved meanwhile
/// (invariant 11).
#[test]
fn a_pass_that_is_interrupted_sees_every_region() {
    for &index in RegionIndex::ALL {
        interrupted_pass(index);
    }
}

fn interrupted_pass(index: RegionIndex) {
    let memory = memory(4096);
    let arena: Arena<Extent> = arenas(&memory).make();
    let mut rng = Rng::new(11);
    let pin = memory.pin();
    for _ in 0..40 {
        let roots = RegionRoots::default();
        let regions = regions(index, &arena, &roots);
        let place = |handle, rng: &mut Rng| {
            let item: &Extent = arena.get(handle);
            let first = rng.below(6) as u64;
            let end = first + 1 + rng.below(3) as u64;
            item.first.store(first, Ordering::Relaxed);
            item.end.store(end, Ordering::Relaxed);
        };
        let mut all = Vec::new();
        for _ in 0..20 {
            let handle = arena.alloc(&pin, &memory).unwrap();
            place(handle, &mut rng);
            let shared = &arena.get(handle).shared;
            shared.store(rng.below(2) == 0, Ordering::Relaxed);
            regions.insert(&pin, handle);
            all.push(handle);
        }
        // What truncation takes away; nothing else gives a region any.
        let mut full: BTreeMap<u32, u32> = all.iter().map(|handle| (handle.raw(), 2)).collect();
        let mut pass = Pass::default();
        loop {
            let mut seen = 0;
            let done = regions.pass_by_age(&pin, (0, 100), &mut pass, |handle, _| {
                seen += 1;
                let left = full.get_mut(&handle.raw()).unwrap();
                if *left == 0 {
                    return ControlFlow::Continue(());
                }
                *left -= 1;
                ControlFlow::Break(())
            });
            if done {
                break;
            }
            assert!(seen > 0);
            let nth = rng.below(all.len());
            match rng.below(8) {
                0 => regions.change(&pin, all[nth], || place(all[nth], &mut rng)),
                1 => {
                    let gone = all.swap_remove(nth);
                    regions.remove(&pin, gone);
                    full.remove(&gone.raw());
                }
                2 => {
                    let handle = arena.alloc(&pin, &memory).unwrap();
                    place(handle, &mut rng);
                    regions.insert(&pin, handle);
                    all.push(handle);
                    full.insert(handle.raw(), 0);
                }
                _ => {}
            }
        }
        assert!(full.values().all(|&left| left == 0), "{full:?}");
        for handle in all {
            regions.remove(&pin, handle);
            arena.free(&pin, handle);
        }
    }
}

const ITEMS: u64 = 4096;

#[test]
fn stabbing_a_tree_stops_when_told_and_looks_at_few_items() {
    let looked = stabbing_looks_at(RegionIndex::Tree);
    assert!(looked < 100, "{looked}");
}

#[test]
fn stabbing_lists_stops_when_told_and_looks_at_every_item() {
    assert_eq!(stabbing_looks_at(RegionIndex::List), ITEMS);
}

/// How often a search for one page asks a region where it begins.
fn stabbing_looks_at(index: RegionIndex) -> u64 {
    let memory = memory(4096);
    let arena: Arena<Extent> = arenas(&memory).make();
    let roots = RegionRoots::default();
    let regions = regions(index, &arena, &roots);
    let pin = memory.pin();
    for number in 0..ITEMS {
        let handle = arena.alloc(&pin, &memory).unwrap();
        arena
            .get(handle)
            .first
            .store(number * 10, Ordering::Relaxed);
        arena
            .get(handle)
            .end
            .store(number * 10 + 15, Ordering::Relaxed);
        regions.insert(&pin, handle);
    }
    let mut hits = vec![];
    LOOKED.set(0);
    regions.overlapping(&pin, 20_003, 20_004, |_, item| {
        hits.push(item.first.load(Ordering::Relaxed));
        ControlFlow::Continue(())
    });
    let looked = LOOKED.get();
    assert_eq!(hits, [19_990, 20_000]);
    let mut visits = 0;
    regions.overlapping(&pin, 0, u64::MAX, |_, _| {
        visits += 1;
        if visits == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(visits, 3);
    looked
}

#[test]
fn a_page_lock_has_one_holder_and_waiters_that_look_again() {
    let memory = memory(64);
    let pin = memory.pin();
    let page = memory.alloc(&pin, Request::page(Site::CachePage)).unwrap();
    let locks = PageLocks::default();
    assert!(locks.try_lock(&memory, page));
    assert!(!locks.try_lock(&memory, page));
    let waiting = locks.wait(&memory, &pin, page);
    assert!(waiting.is_some(), "the lock is held");
    assert!(memory.frame(page).has(Flags::WAITERS));
    locks.unlock(&memory, &pin, page);
    assert!(!memory.frame(page).has(Flags::WAITERS), "they were woken");
    drop(pin);
    if let Some(waiting) = waiting {
        // The wake-up came first and is kept: this returns.
        locks.sleep(&memory, page, waiting);
    }
    let pin = memory.pin();
    assert!(
        locks.wait(&memory, &pin, page).is_none(),
        "nothing to wait for"
    );
    assert!(locks.try_lock(&memory, page));
    locks.unlock(&memory, &pin, page);
    assert!(!memory.frame(page).has(Flags::LOCKED));
}

#[test]
fn a_name_is_stale_when_its_object_has_ended() {
    let memory = memory(512);
    let objects: Objects<()> = Objects::new(&arenas(&memory), RegionIndex::Tree);
    let pin = memory.pin();
    let kind = ObjectKind::File { store: 3 };
    let id = objects.create(&memory, &pin, kind, 10 << 12, 0).unwrap();
    assert_eq!(objects.find(id).unwrap().kind(), kind);
    objects.hold(id.handle);
    assert!(!objects.release(id.handle));
    assert!(objects.find(id).is_some());
    assert!(objects.release(id.handle));
    assert!(objects.find(id).is_none());
    objects.retire(&pin, id.handle);
    assert!(objects.find(ObjectId::from_bits(u64::MAX)).is_none());
}

#[test]
fn a_stale_name_does_not_find_the_object_that_took_the_place() {
    let memory = memory(512);
    let objects: Objects<()> = Objects::new(&arenas(&memory), RegionIndex::Tree);
    let create = || {
        let pin = memory.pin();
        let kind = ObjectKind::SharedMemory;
        objects.create(&memory, &pin, kind, 1 << 12, 0).unwrap()
    };
    let ended = create();
    assert!(objects.release(ended.handle));
    objects.retire(&memory.pin(), ended.handle);
    let again = (0..1000).map(|_| {
        // What waits for its epoch goes back.
        memory.drain(&memory.pin());
        create()
    });
    let next = again.into_iter().find(|next| next.handle == ended.handle);
    assert!(
        objects
            .find(next.expect("the place is used anew"))
            .is_some()
    );
    assert!(objects.find(ended).is_none());
}

#[test]
fn a_run_that_leaves_the_page_tree_takes_its_nodes_along() {
    let memory = memory(512);
    let nodes = arenas(&memory).make();
    let root = AtomicU64::new(0);
    let tree = tree_at(&nodes, &root);
    let frames: Vec<Pfn> = (1..=20).map(Pfn).collect();
    for first in [3, 1000] {
        let pin = memory.pin();
        Radix::prepare(&nodes, &pin, &memory).unwrap();
        assert_eq!(tree.insert_run(&pin, first, &frames, false), 20);
        tree.remove_run(&pin, first..first + 20, |_| true);
        assert_eq!(tree.next(0), None);
    }
    assert_eq!(nodes.audit().unwrap().live, 0, "a node stayed");
}

#[test]
fn a_page_is_filled_once_and_leaves_when_that_fails() {
    let memory = memory(512);
    let objects: Objects<()> = Objects::new(&arenas(&memory), RegionIndex::Tree);
    let pin = memory.pin();
    let file = objects
        .create(&memory, &pin, ObjectKind::File { store: 0 }, 10 << 12, 0)
        .unwrap();
    let page = |index| {
        objects
            .page(&memory, &pin, (file.handle, index), GroupId::ROOT)
            .unwrap()
    };
    let CachedPage::Fill(first) = page(4) else {
        panic!("a new page has to be filled");
    };
    assert_eq!(page(4), CachedPage::Locked(first));
    memory.put(&pin, first);
    objects.fill_failed(&memory, &pin, first);
    assert_eq!(objects.find(file).unwrap().cached(), 0);
    let CachedPage::Fill(second) = page(4) else {
        panic!("the next one tries again");
    };
    objects.filled(&memory, &pin, second);
    assert_eq!(page(4), CachedPage::Ready(second));
    let shared = objects
        .create(&memory, &pin, ObjectKind::SharedMemory, 1 << 12, 0)
        .unwrap();
    let found = objects
        .page(&memory, &pin, (shared.handle, 0), GroupId::ROOT)
        .unwrap();
    assert!(matches!(found, CachedPage::Made(frame)
        if memory.platform().peek(frame).iter().all(|&byte| byte == 0)));
}
