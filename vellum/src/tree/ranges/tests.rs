//! The tree of ranges against an ordered map (invariant 9, of the tree).

use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;
use crate::frame::{FailAt, PhysicalMemory, Site};
use crate::slab::{ArenaMaker, Handle};
use crate::sync::atomic::AtomicU32;
use crate::testing::{Rng, TestMachine, run_on};

#[derive(Default)]
#[repr(align(8))]
struct Thing {
    start: AtomicU64,
    end: AtomicU64,
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

impl Thing {
    fn range(&self) -> (u64, u64) {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        (load(&self.start), load(&self.end))
    }

    fn set(&self, start: u64, end: u64) {
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }
}

/// Arenas go before the memory when they are dropped.
struct Setup {
    nodes: Arena<RangeNode>,
    items: Arena<Thing>,
    root: AtomicU64,
    memory: PhysicalMemory<TestMachine>,
}

/// A tree and what should be in it: end and handle by start.
struct Pair<'a> {
    setup: &'a Setup,
    tree: RangeTree<'a, Thing>,
    model: BTreeMap<u64, (u64, Handle<Thing>)>,
}

impl Setup {
    fn new() -> Setup {
        run_on(0);
        let memory = PhysicalMemory::new(TestMachine::simple(1, 8192)).unwrap();
        // SAFETY: the arenas are used with the memory beside them, which is
        // dropped after them. For more frames than there are, their share is all of memory.
        let maker = unsafe { ArenaMaker::new(1, 8 * memory.frame_count(), 4096) };
        Setup {
            nodes: maker.make(),
            items: maker.make(),
            root: AtomicU64::new(0),
            memory,
        }
    }

    fn pair(&self) -> Pair<'_> {
        Pair {
            setup: self,
            // SAFETY: `root` has no other trees, and the arenas belong together.
            tree: unsafe { RangeTree::new(&self.nodes, &self.items, &self.root) },
            model: BTreeMap::new(),
        }
    }
}

impl Pair<'_> {
    fn insert(&mut self, start: u64, end: u64) {
        let pin = self.setup.memory.pin();
        let room = self.tree.make_room(&pin, &self.setup.memory).unwrap();
        self.insert_with(&pin, room, start, end);
    }

    fn insert_with(&mut self, pin: &Pin<'_>, room: Room<'_>, start: u64, end: u64) {
        let item = self.setup.items.alloc(pin, &self.setup.memory).unwrap();
        self.insert_item(pin, room, item, start, end);
    }

    fn insert_item(
        &mut self,
        pin: &Pin<'_>,
        room: Room<'_>,
        item: Handle<Thing>,
        start: u64,
        end: u64,
    ) {
        self.setup.items.get(item).set(start, end);
        self.tree.insert(pin, room, item, start, end);
        assert_eq!(self.model.insert(start, (end, item)), None);
    }

    fn remove(&mut self, start: u64) {
        let pin = self.setup.memory.pin();
        self.tree.remove(&pin, start);
        let (_, item) = self.model.remove(&start).unwrap();
        self.setup.items.free(&pin, item);
    }

    fn resize(&mut self, old: u64, start: u64, end: u64) {
        let (_, item) = self.model.remove(&old).unwrap();
        self.setup.items.get(item).set(start, end);
        self.tree.resize(old, start, end);
        self.model.insert(start, (end, item));
    }

    /// The free numbers around `at`, if it is free.
    fn hole(&self, at: u64, limit: u64) -> Option<(u64, u64)> {
        let before = self.model.range(..=at).next_back();
        let start = before.map_or(0, |(_, value)| value.0);
        let end = self.model.range(at..).next().map_or(limit, |next| *next.0);
        (start <= at && at < end).then_some((start, end))
    }

    fn listed(&self, from: u64) -> Vec<(u64, u64)> {
        let list = self.model.iter().map(|(&start, &(end, _))| (start, end));
        list.filter(|&(_, end)| end > from).collect()
    }

    fn walked(&self, from: u64) -> Vec<(u64, u64)> {
        let walk = self.tree.walk(from);
        walk.map(|found| {
            assert_eq!(found.item.range(), (found.start, found.end));
            (found.start, found.end)
        })
        .collect()
    }

    /// The highest place by trying every hole.
    fn highest_gap(&self, width: u64, from: u64, to: u64) -> Option<u64> {
        let mut end = to;
        let mut best = None;
        for (&start, &(stop, _)) in self.model.iter().rev() {
            let low = stop.max(from);
            let high = end.min(to);
            if best.is_none() && high > low && high - low >= width {
                best = Some(high - width);
            }
            end = start;
        }
        let high = end.min(to);
        best.or((high > from && high - from >= width).then(|| high - width))
    }

    fn probe(&self, at: u64) {
        let last = self.model.range(..=at).next_back();
        let found = self.tree.last_at_most(at).map(Thing::range);
        assert_eq!(found, last.map(|(&start, &(end, _))| (start, end)));
        let after = self.listed(at).first().copied();
        let found = self.tree.first_ending_after(at);
        assert_eq!(found.map(|found| (found.start, found.end)), after);
    }

    fn check(&self) -> Shape {
        let shape = self.tree.check(Thing::range).unwrap();
        assert_eq!(shape.items, self.model.len() as u64);
        shape
    }

    /// Every node that is in use is in the tree.
    fn check_nodes(&self) {
        let census = self.setup.nodes.audit().unwrap();
        assert_eq!(census.live, self.check().nodes);
    }
}

fn random_edits(seed: u64) {
    const LIMIT: u64 = 1 << 16;
    let setup = Setup::new();
    let mut pair = setup.pair();
    let mut rng = Rng::new(seed);
    for step in 0..12_000u64 {
        let at = rng.below(LIMIT as usize) as u64;
        // It grows, shrinks, and ends empty, more than once.
        let grows = step / 3000 % 2 == 0;
        let choice = rng.below(10);
        let next = pair.model.range(at..).next().map(|(&start, _)| start);
        if choice < if grows { 7 } else { 1 } {
            if let Some((_, end)) = pair.hole(at, LIMIT) {
                let width = 1 + rng.below(6) as u64;
                pair.insert(at, end.min(at + width));
            }
        } else if choice < 9 {
            if let Some(start) = next {
                pair.remove(start);
            }
        } else if let Some(start) = next {
            // Anything that lies between the neighbours.
            let end = pair.model[&start].0;
            let low = start.checked_sub(1).and_then(|at| pair.hole(at, LIMIT));
            let high = pair.hole(end, LIMIT);
            let low = low.map_or(start, |(low, _)| low.max(start.saturating_sub(3)));
            let high = high.map_or(end, |(_, high)| high.min(end + 3));
            let new = low + rng.below((end - low) as usize) as u64;
            pair.resize(start, new, high.max(new + 1));
        }
        pair.probe(rng.below(LIMIT as usize) as u64);
        if step % 8 == 0 {
            let from = rng.below(LIMIT as usize) as u64;
            let to = from + rng.below((LIMIT - from) as usize) as u64;
            let width = 1 + rng.below(120) as u64;
            for (from, to) in [(0, LIMIT), (from, to)] {
                assert_eq!(
                    pair.tree.highest_gap(width, from, to),
                    pair.highest_gap(width, from, to),
                    "seed {seed}, step {step}: {width} in {from}..{to}"
                );
            }
        }
        if step % 100 == 0 {
            let from = rng.below(LIMIT as usize) as u64;
            assert_eq!(pair.walked(from), pair.listed(from), "seed {seed}");
            pair.check_nodes();
        }
    }
    let starts: Vec<u64> = pair.model.keys().copied().collect();
    for start in starts {
        pair.remove(start);
    }
    assert_eq!(setup.root.load(Ordering::Relaxed), 0, "no node is left");
    pair.check_nodes();
}

#[test]
fn random_edits_match_an_ordered_map() {
    for seed in [1, 2] {
        random_edits(seed);
    }
}

#[test]
fn runs_in_either_direction_leave_full_nodes() {
    const ITEMS: u64 = 20_000;
    let full = ITEMS.div_ceil(SLOTS as u64);
    for (ascends, below, most) in [
        (true, 0, full + full / 20),
        (false, 0, full + full / 20),
        // Beside others that stay where they are: a heap, and a stack.
        (true, 5, full * 3 / 2),
        (false, 5, full * 3 / 2),
    ] {
        let setup = Setup::new();
        let mut pair = setup.pair();
        for number in 0..below {
            pair.insert(10 * number, 10 * number + 1);
            pair.insert((1 << 40) + 10 * number, (1 << 40) + 10 * number + 1);
        }
        for number in 0..ITEMS {
            let place = if ascends { number } else { ITEMS - number };
            pair.insert(1000 + 10 * place, 1000 + 10 * place + 4);
        }
        let shape = pair.check();
        assert!(
            shape.nodes <= most && shape.levels == 3,
            "{shape:?}, {ascends}, {below}"
        );
        let pin = setup.memory.pin();
        pair.tree.clear(&pin);
        assert_eq!(pair.tree.check(Thing::range), Ok(Shape::default()));
        assert_eq!(setup.nodes.stats().live, 0);
    }
}

/// Orders that leave as little as they can in many nodes, or as many nodes as
/// they can.
#[test]
fn no_order_of_edits_leaves_a_degenerate_tree() {
    const ITEMS: u64 = 30_000;
    const STRIDE: u64 = 64;
    // Which of the items of each round are taken out again, and in which order.
    let slots = SLOTS as u64;
    type Order = fn(u64, u64) -> bool;
    let orders: [Order; 4] = [
        // All but one item of each full node.
        |number, slots| number % slots != 0,
        // All of every other full node, and all but one of the others.
        |number, slots| number / slots % 2 == 0 || number % slots != 3,
        // All but a few at each end.
        |number, _| (5..ITEMS - 5).contains(&number),
        // Every other one.
        |number, _| number % 2 == 1,
    ];
    let mut total = 0;
    for leaves in orders {
        let setup = Setup::new();
        let mut pair = setup.pair();
        for round in 0..3 {
            for number in 0..ITEMS {
                let start = (number * STRIDE) + round;
                if pair.hole(start, u64::MAX).is_some() {
                    pair.insert(start, start + 1);
                }
            }
            let mut gone: Vec<u64> = pair.model.keys().copied().collect();
            gone.retain(|start| leaves(start / STRIDE, slots));
            if round == 1 {
                gone.reverse();
            }
            total += gone.len();
            for start in gone {
                pair.remove(start);
            }
            let shape = pair.check();
            // A third as many nodes on each level as below it.
            let mut most = shape.items;
            let mut levels = 0;
            while most > 1 {
                most = most.div_ceil(3);
                levels += 1;
            }
            assert!(shape.levels <= levels.max(1), "{shape:?}");
            assert!(shape.nodes <= shape.items / 2 + 2, "{shape:?}");
        }
        pair.check_nodes();
    }
    assert!(total >= 100_000, "{total} removals");
}

#[test]
fn three_insertions_prepared_at_once_need_nothing_more() {
    for items in [0u64, 1, 38, 39, 40, 80, 1600, 1601, 5000] {
        let setup = Setup::new();
        let mut pair = setup.pair();
        for number in 0..items {
            pair.insert(number * 10, number * 10 + 1);
        }
        let pin = setup.memory.pin();
        let prepare = || pair.tree.make_room(&pin, &setup.memory).unwrap();
        let rooms = [prepare(), prepare(), prepare()];
        let things: Vec<_> = (0..3)
            .map(|_| setup.items.alloc(&pin, &setup.memory).unwrap())
            .collect();
        setup.memory.inject(Some(FailAt {
            site: Site::SlabFrame,
            after: 0,
        }));
        if items == 1 {
            // The last one goes, and its leaf with it.
            pair.remove(0);
        }
        for ((room, item), at) in rooms.into_iter().zip(things).zip([2, 4, 6]) {
            let start = items / 2 * 10 + at;
            pair.insert_item(&pin, room, item, start, start + 1);
        }
        setup.memory.inject(None);
        drop(pin);
        pair.check_nodes();
    }
}

#[test]
fn room_that_cannot_be_made_is_reported_and_nothing_is_lost() {
    let setup = Setup::new();
    let mut pair = setup.pair();
    for number in 0..200 {
        pair.insert(number * 10, number * 10 + 1);
    }
    let before = pair.walked(0);
    let pin = setup.memory.pin();
    setup.memory.inject(Some(FailAt {
        site: Site::RegionNode,
        after: 0,
    }));
    assert!(pair.tree.make_room(&pin, &setup.memory).is_err());
    assert_eq!(pair.walked(0), before);
    assert!(pair.tree.make_room(&pin, &setup.memory).is_ok());
    drop(pin);
    pair.check_nodes();
}

/// A lookup that has come to a node goes on reading it after it has left its tree.
#[test]
fn a_node_is_not_used_anew_while_a_lookup_may_be_in_it() {
    let setup = Setup::new();
    let other_root = AtomicU64::new(0);
    let mut pair = setup.pair();
    // SAFETY: the root has no other trees, and the arenas belong together.
    let tree = unsafe { RangeTree::new(&setup.nodes, &setup.items, &other_root) };
    let mut other = Pair {
        setup: &setup,
        tree,
        model: BTreeMap::new(),
    };
    let _lookup = setup.memory.pin();
    pair.insert(10, 20);
    let node = setup.root.load(Ordering::Relaxed);
    pair.remove(10);
    other.insert(10, 20);
    assert_ne!(other_root.load(Ordering::Relaxed), node, "used anew");
}

/// A reader beside the first insertions could follow what is left in it.
#[test]
fn a_node_that_was_in_a_tree_that_was_cleared_begins_empty() {
    let setup = Setup::new();
    let mut pair = setup.pair();
    for round in 0..120 {
        let items = if round % 2 == 0 { SLOTS as u64 } else { 1 };
        for item in 0..items {
            pair.insert(10 * item, 10 * item + 5);
        }
        pair.check_nodes();
        pair.tree.clear(&setup.memory.pin());
        pair.model.clear();
        setup.memory.epochs().try_advance();
    }
    assert!(setup.nodes.stats().frames < 40, "nodes are used anew");
}
