//! The AVL tree against an ordered list.

use std::vec::Vec;

use super::*;
use crate::frame::{PhysicalMemory, Site};
use crate::slab::ArenaMaker;
use crate::sync::atomic::AtomicU64;
use crate::testing::{Rng, TestMachine, run_on};

#[derive(Default)]
struct Thing {
    key: AtomicU64,
    /// Items at and below this one.
    size: AtomicU64,
    links: Links,
    link: AtomicU32,
}

impl Item for Thing {
    const SITE: Site = Site::Region;
    const SHARE: usize = 1;
    fn vacant() -> Self {
        Thing::default()
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

struct ByKey;

impl Threaded for ByKey {
    type Item = Thing;
    type Key = u64;
    fn links(item: &Thing) -> &Links {
        &item.links
    }
    fn key(item: &Thing) -> u64 {
        item.key.load(Ordering::Relaxed)
    }
    fn refresh(item: &Thing, left: Option<&Thing>, right: Option<&Thing>) -> bool {
        let below = [left, right].into_iter().flatten();
        let size: u64 = below.map(|child| child.size.load(Ordering::Relaxed)).sum();
        item.size.swap(size + 1, Ordering::Relaxed) != size + 1
    }
}

type Things<'a> = Tree<'a, ByKey>;

/// The same items without sums.
struct Plain;

impl Threaded for Plain {
    type Item = Thing;
    type Key = u64;
    fn links(item: &Thing) -> &Links {
        &item.links
    }
    fn key(item: &Thing) -> u64 {
        ByKey::key(item)
    }
    fn refresh(_: &Thing, _: Option<&Thing>, _: Option<&Thing>) -> bool {
        false
    }
}

fn keys(tree: &Things<'_>) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    let mut place = tree.first();
    while let Some(node) = place {
        found.push((node.key(), node.handle.raw()));
        place = tree.next(node);
    }
    found
}

/// Depth of the tree, with the sums checked on the way.
fn depth<'a>(tree: &Things<'a>, place: Option<Node<'a, ByKey>>) -> (u64, usize) {
    let Some(node) = place else { return (0, 0) };
    let (left, right) = (depth(tree, tree.left(node)), depth(tree, tree.right(node)));
    let size = left.0 + right.0 + 1;
    assert_eq!(
        node.item.size.load(Ordering::Relaxed),
        size,
        "a sum is out of date"
    );
    (size, left.1.max(right.1) + 1)
}

#[test]
fn random_edits_match_an_ordered_list() {
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::simple(1, 1024)).unwrap();
    // SAFETY: the arena is used with `memory` only, in this test.
    let arena: Arena<Thing> = unsafe { ArenaMaker::new(1, 1024, 4096) }.make();
    let root = AtomicU32::new(0);
    let tree = Things::new(&arena, &root);
    let pin = memory.pin();
    let mut rng = Rng::new(4);
    let mut model: Vec<(u64, u32)> = Vec::new();
    for step in 0..8000 {
        let grows = step / 1000 % 2 == 0;
        if model.is_empty() || rng.below(10) < if grows { 7 } else { 3 } {
            let handle = arena.alloc(&pin, &memory).unwrap();
            let key = rng.below(500) as u64;
            arena.get(handle).key.store(key, Ordering::Relaxed);
            let present = tree.insert(tree.node(handle)).map(|node| node.handle);
            match model.binary_search_by_key(&key, |item| item.0) {
                Ok(place) => {
                    let old = Handle::from_raw(model[place].1);
                    assert_eq!(present, Some(old), "step {step}");
                    tree.replace(tree.node(old), tree.node(handle));
                    arena.free(&pin, old);
                    model[place].1 = handle.raw();
                }
                Err(place) => {
                    assert_eq!(present, None, "step {step}");
                    model.insert(place, (key, handle.raw()));
                }
            }
        } else {
            let (_, raw) = model.remove(rng.below(model.len()));
            tree.remove(tree.node(Handle::from_raw(raw)));
            arena.free(&pin, Handle::from_raw(raw));
        }
        assert_eq!(tree.check(), Ok(model.len() as u64), "step {step}");
        if step % 100 == 0 {
            assert_eq!(keys(&tree), model);
            depth(&tree, tree.root());
        }
    }
}

/// An item that takes another's place may be as high there as it was before.
#[test]
fn balance_does_not_depend_on_sums_that_change() {
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::simple(1, 1024)).unwrap();
    // SAFETY: the arena is used with `memory` only, in this test.
    let arena: Arena<Thing> = unsafe { ArenaMaker::new(1, 1024, 4096) }.make();
    let root = AtomicU32::new(0);
    let tree = Tree::<Plain>::new(&arena, &root);
    let pin = memory.pin();
    let mut rng = Rng::new(5);
    let mut present = [None; 24];
    for step in 0..4000 {
        let key = rng.below(present.len());
        match present[key].take() {
            Some(handle) => {
                tree.remove(tree.node(handle));
                arena.free(&pin, handle);
            }
            None => {
                let handle = arena.alloc(&pin, &memory).unwrap();
                arena.get(handle).key.store(key as u64, Ordering::Relaxed);
                assert!(tree.insert(tree.node(handle)).is_none());
                present[key] = Some(handle);
            }
        }
        let count = present.iter().flatten().count() as u64;
        assert_eq!(tree.check(), Ok(count), "step {step}");
    }
}

#[test]
fn ascending_descending_and_alternating_keys_stay_shallow() {
    const ITEMS: u64 = 20_000;
    let orders: [fn(u64) -> u64; 3] = [
        |number| number,
        |number| ITEMS - number,
        |number| {
            if number % 2 == 0 {
                number
            } else {
                2 * ITEMS - number
            }
        },
    ];
    for order in orders {
        run_on(0);
        let memory = PhysicalMemory::new(TestMachine::simple(1, 1024)).unwrap();
        // SAFETY: the arena is used with `memory` only, in this test.
        let arena: Arena<Thing> = unsafe { ArenaMaker::new(1, 1024, 4096) }.make();
        let root = AtomicU32::new(0);
        let tree = Things::new(&arena, &root);
        let pin = memory.pin();
        for number in 0..ITEMS {
            let handle = arena.alloc(&pin, &memory).unwrap();
            arena
                .get(handle)
                .key
                .store(order(number), Ordering::Relaxed);
            tree.insert(tree.node(handle));
        }
        let (size, deepest) = depth(&tree, tree.root());
        // 1.44 log2(n + 2)
        assert!(size == ITEMS && deepest <= 20, "{deepest} levels");
        // Taking out every other item, always at the same end, keeps balance.
        let mut place = tree.first();
        for _ in 0..ITEMS / 2 {
            let node = place.unwrap();
            place = tree.next(node);
            tree.remove(node);
        }
        assert_eq!(tree.check(), Ok(ITEMS / 2));
        assert!(depth(&tree, tree.root()).1 <= 19);
    }
}
