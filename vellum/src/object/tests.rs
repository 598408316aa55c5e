//! Tests of the page tree, the interval tree of regions, and page locks.

use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

use core::cell::Cell;
use core::ops::ControlFlow;

use super::radix::{Radix, RadixNodes};
use super::*;
use crate::addr::Pfn;
use crate::design::RegionIndex;
use crate::frame::{FailAt, PageFlags, PhysicalMemory, Request};
use crate::platform::GroupId;
use crate::slab::{Arena, ArenaMaker, Handle};
use crate::sync::atomic::AtomicBool;
use crate::sync::{Pin, Unpinned};
use crate::testing::{Rng, TestMachine, run_on};
use crate::tree::IntervalItem;

mod cache;
mod regions;
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

fn tree_at<'a>(nodes: &'a RadixNodes, root: &'a AtomicU64, pin: &'a Pin<'a>) -> Radix<'a> {
    // SAFETY: a test has one arena of nodes.
    unsafe { Radix::new(nodes, root, pin) }
}

/// A tree beside a map.
struct Pages<'a> {
    memory: &'a Memory,
    nodes: &'a RadixNodes,
    root: AtomicU64,
    model: BTreeMap<u64, u32>,
}

impl Pages<'_> {
    fn tree<'a>(&'a self, pin: &'a Pin<'a>) -> Radix<'a> {
        tree_at(self.nodes, &self.root, pin)
    }

    fn insert(&mut self, index: u64, frame: u32) {
        let pin = self.memory.pin();
        Radix::prepare(self.nodes, &pin, self.memory).unwrap();
        let inserted = self.tree(&pin).insert(index, Pfn(frame));
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
        assert_eq!(self.tree(&pin).remove(index), wanted);
    }

    fn check(&self, index: u64) {
        let pin = self.memory.pin();
        let tree = self.tree(&pin);
        assert_eq!(tree.get(index), self.model.get(&index).copied().map(Pfn));
        let next = self.model.range(index..).next();
        let next = next.map(|(&index, &frame)| (index, Pfn(frame)));
        assert_eq!(tree.next(index), next);
        assert_eq!(tree.node_count(), self.nodes.stats().live);
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
            assert_eq!(pages.tree(&memory.pin()).next(0), None);
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
    let tree = tree_at(&nodes, &root, &pin);
    for index in [INDEX_END - 1, 0] {
        Radix::prepare(&nodes, &pin, &memory).unwrap();
        assert_eq!(tree.insert(index, Pfn(0)), Ok(()), "frame 0 is a frame");
    }
    assert_eq!(tree.next(1), Some((INDEX_END - 1, Pfn(0))));
    assert_eq!(tree.get(INDEX_END), None);
    assert_eq!(tree.next(INDEX_END), None);
    assert_eq!(tree.remove(INDEX_END - 1), Some(Pfn(0)));
    assert_eq!(tree.next(1), None);
}

#[test]
fn one_preparation_is_enough_for_the_deepest_insertion() {
    let memory = memory(512);
    let nodes = arenas(&memory).make();
    let root = AtomicU64::new(0);
    let pin = memory.pin();
    Radix::prepare(&nodes, &pin, &memory).unwrap();
    tree_at(&nodes, &root, &pin).insert(0, Pfn(1)).unwrap();
    Radix::prepare(&nodes, &pin, &memory).unwrap();
    memory.inject(Some(FailAt {
        site: Site::RadixNode,
        after: 0,
    }));
    let tree = tree_at(&nodes, &root, &pin);
    assert_eq!(tree.insert(INDEX_END - 1, Pfn(2)), Ok(()));
    assert!(Radix::prepare(&nodes, &pin, &memory).is_err());
}

#[test]
fn a_page_lock_has_one_holder_and_waiters_that_look_again() {
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::without_preemption(64)).unwrap();
    let page = (memory.alloc(&memory.pin(), Request::page(Site::CachePage))).unwrap();
    let locks = PageLocks::default();
    let lock = Mutex::new(locks.try_lock(&memory, page));
    let unlock = || {
        let lock = lock.lock().unwrap().take();
        locks.unlock(&memory, &memory.pin(), lock.expect("it is held"));
    };
    assert_eq!(locks.try_lock(&memory, page), None);
    let wait = || locks.wait(Unpinned::at_door(), &memory, page);
    let machine = memory.platform();
    machine.run(&[&|| assert!(wait(), "the lock is held"), &|| {
        assert!(memory.frame(page).page().has(PageFlags::WAITERS));
        unlock();
        assert!(
            !memory.frame(page).page().has(PageFlags::WAITERS),
            "they were woken"
        );
    }]);
    machine.run(&[&|| assert!(!wait(), "nothing to wait for")]);
    *lock.lock().unwrap() = locks.try_lock(&memory, page);
    unlock();
    assert!(!memory.frame(page).page().has(PageFlags::LOCKED));
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
    let frames: Vec<Pfn> = (1..=20).map(Pfn).collect();
    for first in [3, 1000] {
        let pin = memory.pin();
        let tree = tree_at(&nodes, &root, &pin);
        Radix::prepare(&nodes, &pin, &memory).unwrap();
        assert_eq!(tree.insert_run(first, &frames, false), 20);
        tree.remove_run(first..first + 20, |_| true);
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
            .page(&memory, &pin, (file.handle, index), GroupId::ROOT.into())
            .unwrap()
    };
    let CachedPage::Fill(first) = page(4) else {
        panic!("a new page has to be filled");
    };
    assert_eq!(page(4), CachedPage::Locked(first.page()));
    memory.put(&pin, first.page());
    objects.fill_failed(&memory, &pin, first);
    assert_eq!(objects.find(file).unwrap().cached(), 0);
    let CachedPage::Fill(second) = page(4) else {
        panic!("the next one tries again");
    };
    let filled = second.page();
    objects.filled(&memory, &pin, second);
    assert_eq!(page(4), CachedPage::Ready(filled));
    let shared = objects
        .create(&memory, &pin, ObjectKind::SharedMemory, 1 << 12, 0)
        .unwrap();
    let found = objects
        .page(&memory, &pin, (shared.handle, 0), GroupId::ROOT.into())
        .unwrap();
    assert!(matches!(found, CachedPage::Made(frame)
        if memory.platform().peek(frame).iter().all(|&byte| byte == 0)));
}
