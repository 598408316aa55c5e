//! The tree of relatives against who can really have inherited a page.

use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use crate::frame::PhysicalMemory;
use crate::rmap::family::LAST_STAMP;
use crate::rmap::family::kin::{Families, Kin, NOBODY, Nodes, found};
use crate::sync::Pin;
use crate::testing::{Rng, TestMachine, run_on};

/// Nodes in a vector; handle 0 is none.
struct Slots(Vec<Kin>);

impl Nodes for Slots {
    fn node(&self, handle: u32) -> &Kin {
        &self.0[handle as usize]
    }
}

struct Space {
    node: u32,
    forks: u32,
    /// Numbers of the pages that it may map.
    pages: BTreeSet<u64>,
}

struct Page {
    owner: u32,
    stamp: u32,
}

/// A family tree, and beside it each space's pages as sets.
struct World<'p> {
    slots: Slots,
    families: Families,
    pin: &'p Pin<'p>,
    vacant: Vec<u32>,
    in_use: BTreeSet<u32>,
    spaces: BTreeMap<u32, Space>,
    pages: BTreeMap<u64, Page>,
    next_space: u32,
    next_page: u64,
    last_stamp: u32,
    left: usize,
}

impl<'p> World<'p> {
    fn new(pin: &'p Pin<'p>, last_stamp: u32) -> Self {
        const SLOTS: u32 = 3000;
        World {
            slots: Slots((0..SLOTS).map(|_| Kin::vacant()).collect()),
            families: Families::new(1),
            pin,
            vacant: (1..SLOTS).collect(),
            in_use: BTreeSet::new(),
            spaces: BTreeMap::new(),
            pages: BTreeMap::new(),
            next_space: 0,
            next_page: 0,
            last_stamp,
            left: 0,
        }
    }

    fn take(&mut self) -> (u32, u32) {
        let node = self.vacant.pop().expect("nodes leak");
        self.in_use.insert(node);
        self.next_space += 1;
        (node, self.next_space)
    }

    fn exec(&mut self) -> u32 {
        let (node, space) = self.take();
        found(self.slots.node(node), node, space);
        let pages = BTreeSet::new();
        let forks = 0;
        self.spaces.insert(space, Space { node, forks, pages });
        space
    }

    fn fork(&mut self, parent: u32) -> u32 {
        let (node, space) = self.take();
        let above = self.spaces.get_mut(&parent).unwrap();
        let family = self.families.lock(&self.slots, above.node, self.pin);
        family.unwrap().fork(above.node, node, space, above.forks);
        above.forks = (above.forks + 1).min(self.last_stamp);
        let (forks, pages) = (0, above.pages.clone());
        self.spaces.insert(space, Space { node, forks, pages });
        space
    }

    fn make_page(&mut self, space: u32) {
        let maker = self.spaces.get_mut(&space).unwrap();
        self.next_page += 1;
        maker.pages.insert(self.next_page);
        let (owner, stamp) = (maker.node, maker.forks);
        self.pages.insert(self.next_page, Page { owner, stamp });
        self.count(owner, 1);
    }

    fn count(&self, node: u32, change: u64) {
        let pages = &self.slots.node(node).pages;
        pages.hold();
        assert!(!pages.settle(change), "the last page leaves a node in use");
    }

    fn drop_page(&mut self, space: u32, page: u64) {
        self.spaces.get_mut(&space).unwrap().pages.remove(&page);
        self.forget_if_unmapped(page);
    }

    /// Forgets a page that no space maps any more.
    fn forget_if_unmapped(&mut self, page: u64) {
        if !self
            .spaces
            .values()
            .any(|space| space.pages.contains(&page))
        {
            let owner = self.pages.remove(&page).unwrap().owner;
            self.count(owner, u64::MAX);
        }
    }

    fn end(&mut self, space: u32) {
        let ended = self.spaces.remove(&space).unwrap();
        for page in ended.pages {
            self.forget_if_unmapped(page);
        }
        let (mut gone, mut freed) = (0, vec![]);
        self.families
            .lock(&self.slots, ended.node, self.pin)
            .unwrap()
            .end(ended.node, || gone += 1, |node| freed.push(node));
        assert_eq!(gone, freed.len(), "nobody counts: all can go at once");
        self.left += gone;
        for node in freed {
            assert!(self.in_use.remove(&node), "freed twice");
            assert_eq!(self.slots.node(node).family(), NOBODY);
            self.vacant.push(node);
        }
    }

    /// Every space that maps a page is found, and none that cannot map it.
    fn check(&self) {
        for (number, page) in &self.pages {
            let mapped: BTreeSet<u32> = self
                .spaces
                .iter()
                .filter(|(_, space)| space.pages.contains(number))
                .map(|(&handle, _)| handle)
                .collect();
            let mut found = BTreeSet::new();
            let family = self.families.lock(&self.slots, page.owner, self.pin);
            let family = family.expect("the owner of a page is in a family");
            family.spaces(page.owner, page.stamp, |space| {
                assert!(found.insert(space), "met twice");
                true
            });
            assert!(mapped.is_subset(&found), "{mapped:?} not in {found:?}");
        }
        for &node in &self.in_use {
            let family = self.families.lock(&self.slots, node, self.pin);
            family.expect("in use").check(node).unwrap();
        }
    }
}

fn with_pin(test: impl FnOnce(&Pin<'_>)) {
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::simple(1, 64)).unwrap();
    let pin = memory.pin();
    test(&pin);
}

/// One of `below`, chosen by number.
fn pick<K: Copy>(rng: &mut Rng, mut from: impl ExactSizeIterator<Item = K>) -> K {
    let count = from.len();
    from.nth(rng.below(count)).unwrap()
}

fn random_families(last_stamp: u32) {
    with_pin(|pin| {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let mut world = World::new(pin, last_stamp);
            for step in 0..400 {
                let crowd = [3, 12, 40][step / 50 % 3];
                if world.spaces.is_empty() {
                    world.exec();
                }
                let space = pick(&mut rng, world.spaces.keys().copied());
                match rng.below(9) {
                    0..=2 if world.spaces.len() < crowd => {
                        world.fork(space);
                    }
                    3 if world.spaces.len() < crowd => {
                        world.exec();
                    }
                    0..=4 => world.end(space),
                    5 | 6 => world.make_page(space),
                    _ if !world.spaces[&space].pages.is_empty() => {
                        let pages = world.spaces[&space].pages.iter().copied();
                        let page = pick(&mut rng, pages.collect::<Vec<_>>().into_iter());
                        world.drop_page(space, page);
                    }
                    _ => {}
                }
                world.check();
            }
            for space in world.spaces.keys().copied().collect::<Vec<_>>() {
                world.end(space);
            }
            assert!(world.in_use.is_empty(), "nodes left, seed {seed}");
        }
    });
}

#[test]
fn lookups_see_every_heir_of_a_page() {
    random_families(LAST_STAMP);
}

#[test]
fn stamps_that_have_run_out_leave_nobody_out() {
    random_families(2);
}

#[test]
fn without_stamps_nobody_is_left_out() {
    random_families(0);
}

/// The searched spaces are those that have the page, and no others, while its
/// owner has a place of its own in the tree.
#[test]
fn children_born_before_a_page_are_not_searched() {
    with_pin(|pin| {
        let mut world = World::new(pin, LAST_STAMP);
        let parent = world.exec();
        let before: Vec<u32> = (0..3).map(|_| world.fork(parent)).collect();
        world.make_page(parent);
        let after: Vec<u32> = (0..2).map(|_| world.fork(parent)).collect();
        world.make_page(before[0]);
        world.make_page(before[2]);
        let child = world.fork(after[0]);
        let searched = |world: &World<'_>, number: u64| {
            let page = &world.pages[&number];
            let family = world.families.lock(&world.slots, page.owner, pin).unwrap();
            let mut spaces = vec![];
            family.spaces(page.owner, page.stamp, |space| {
                spaces.push(space);
                true
            });
            spaces
        };
        assert_eq!(searched(&world, 1), [parent, after[1], after[0], child]);
        assert_eq!(searched(&world, 2), [before[0]], "no siblings");
        assert_eq!(searched(&world, 3), [before[2]], "nor older ones");
        world.end(after[0]);
        assert_eq!(searched(&world, 1), [parent, after[1], child]);
        world.end(parent);
        assert_eq!(searched(&world, 1), [after[1], child]);
        world.check();
        // One subtree is left that can have the page.
        for space in [before[0], before[1], before[2], child] {
            world.end(space);
        }
        assert_eq!(searched(&world, 1), [after[1]]);
        world.end(after[1]);
        assert!(world.in_use.is_empty());
    });
}

#[test]
fn a_line_of_parents_that_exit_keeps_as_many_nodes_as_pages_name() {
    with_pin(|pin| {
        let mut world = World::new(pin, LAST_STAMP);
        let mut last = world.exec();
        world.make_page(last);
        for generation in 0..10_000 {
            let next = world.fork(last);
            world.make_page(last);
            world.make_page(next);
            world.end(last);
            last = next;
            // The page of the first and one of each of the last ten stay.
            let page = world.spaces[&last].pages.iter().copied().nth(1);
            if world.spaces[&last].pages.len() > 11 {
                world.drop_page(last, page.unwrap());
            }
            assert!(
                world.in_use.len() <= world.pages.len() + 2,
                "generation {generation}: {} nodes",
                world.in_use.len()
            );
        }
        world.check();
        world.end(last);
        assert!(world.in_use.is_empty());
    });
}

/// Two of a line live at a time, so that no generation is ever alone.
#[test]
fn a_line_of_overlapping_generations_keeps_no_more() {
    with_pin(|pin| {
        let mut world = World::new(pin, LAST_STAMP);
        let mut older = world.exec();
        let mut newer = world.fork(older);
        for _ in 0..2_000 {
            let next = world.fork(newer);
            world.make_page(newer);
            world.end(older);
            (older, newer) = (newer, next);
            assert!(world.in_use.len() <= world.pages.len() + 4);
        }
        world.check();
    });
}

#[test]
fn a_node_waits_for_the_cpu_that_counts_for_it() {
    with_pin(|pin| {
        let mut world = World::new(pin, LAST_STAMP);
        let space = world.exec();
        let node = world.spaces[&space].node;
        world.slots.node(node).pages.hold();
        let (mut gone, mut freed) = (0, 0);
        world.families.lock(&world.slots, node, pin).unwrap().end(
            node,
            || gone += 1,
            |_| freed += 1,
        );
        assert_eq!((gone, freed), (1, 0));
        assert!(world.families.lock(&world.slots, node, pin).is_none());
        assert!(
            world.slots.node(node).pages.settle(0),
            "the CPU is the last that knows the node"
        );
    });
}
