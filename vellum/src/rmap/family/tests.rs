//! The tree of relatives against who can really have inherited a page.

use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use super::Family;
use super::kin::{Families, Kin, NOBODY, Nodes, found};
use crate::addr::{Access, Prot, Vpn};
use crate::frame::{Kind, PhysicalMemory, Request, Site};
use crate::rmap::{ReverseMap, Slot, Verdict};
use crate::space::{MapRequest, Placement, SpaceId, Vm};
use crate::sync::Pin;
use crate::table::X86_64;
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

/// Each CPU takes its first node from a frame of its own.
#[test]
fn families_that_begin_on_different_cpus_seldom_share_a_lock() {
    let node = Kin::vacant();
    let lock = |cpu: u32| {
        found(&node, (cpu + 1) << 6, 1);
        node.family() % 512
    };
    let locks: BTreeSet<u32> = (0..64).map(lock).collect();
    assert!(locks.len() > 56, "{} locks for 64 families", locks.len());
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
    random_families(super::LAST_STAMP);
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
        let mut world = World::new(pin, super::LAST_STAMP);
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
        let mut world = World::new(pin, super::LAST_STAMP);
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

type FamilyVm = Vm<TestMachine, X86_64, Family>;

fn family_vm() -> FamilyVm {
    run_on(0);
    let design = crate::Design::parse("rmap=family").unwrap();
    Vm::new(TestMachine::simple(2, 1024), design).unwrap()
}

/// Maps a private page and stores to it.
fn store_anew(vm: &FamilyVm, space: SpaceId, page: u64) {
    map(vm, space, page, MapRequest::anonymous(1, Prot::READ_WRITE));
    vm.fault(space, page << 12, Access::Write).unwrap();
}

/// What a visit of the page at `page` of the space finds.
fn visit(
    vm: &FamilyVm,
    space: SpaceId,
    page: u64,
    mut each: impl FnMut(&Slot<'_, X86_64>) -> Verdict,
) {
    let (frame, _) = vm.translate(space, Vpn(page)).unwrap();
    let pin = vm.pin();
    let env = crate::rmap::Env {
        memory: &vm.memory,
        pin: &pin,
    };
    vm.rmap.visit(&env, vm, frame, &mut each);
}

/// Nodes that are in use, whether they stand in a tree or not.
fn nodes_in_use(vm: &FamilyVm) -> u64 {
    vm.rmap.nodes.audit().unwrap().live
}

fn map(vm: &FamilyVm, space: SpaceId, page: u64, request: MapRequest) {
    vm.map(space, &request.at(Placement::Fixed(Vpn(page))))
        .unwrap();
}

/// Stamps end before forks do: children born after the last one are told apart
/// no more, but none is missed.
#[test]
fn children_are_found_after_more_forks_than_there_are_stamps() {
    let vm = family_vm();
    let space = vm.create_space().unwrap();
    for _ in 0..super::LAST_STAMP {
        let child = vm.fork(space).unwrap();
        vm.exit(child).unwrap();
    }
    store_anew(&vm, space, 100);
    let children = [(); 3].map(|()| vm.fork(space).unwrap());
    // A visit of the page finds its entry in each.
    vm.audit().unwrap();
    for id in children.into_iter().chain([space]) {
        vm.exit(id).unwrap();
    }
}

/// Unmapping a page through a visit takes away the hint to its entry.
#[test]
fn an_entry_that_a_visit_unmapped_is_no_hint_any_more() {
    for in_a_run in [false, true] {
        let vm = family_vm();
        let space = vm.create_space().unwrap();
        let object = vm.create_shared_memory(1).unwrap();
        let request = MapRequest::object(object, 0, 1, Prot::READ_WRITE).shared();
        map(&vm, space, 100, request);
        vm.fault(space, 100 << 12, Access::Write).unwrap();
        let (page, _) = vm.translate(space, Vpn(100)).unwrap();
        let frame = vm.memory.frame(page);
        assert!(super::entry_of(frame).is_some());
        let pin = vm.pin();
        let env = crate::rmap::Env {
            memory: &vm.memory,
            pin: &pin,
        };
        let mut clear = |slot: &Slot<'_, X86_64>| {
            slot.clear();
            Verdict::Unmapped
        };
        let report = if in_a_run {
            (vm.rmap).visit_run(&env, &vm, &[page], &mut |_, slot| clear(slot))
        } else {
            vm.rmap.visit(&env, &vm, page, &mut clear)
        };
        assert_eq!(report.unmapped, 1);
        assert_eq!(super::entry_of(frame), None);
    }
}

/// A frame becomes a private page before it is told whose: reclaim, which knows it from an
/// earlier life, may look for its entries in between.
#[test]
fn a_page_that_names_no_node_yet_is_found_nowhere() {
    let vm = family_vm();
    let space = vm.create_space().unwrap();
    store_anew(&vm, space, 100);
    let pin = vm.pin();
    let page = vm.memory.alloc(&pin, Request::page(Site::AnonymousPage));
    let page = page.unwrap();
    let frame = vm.memory.frame(page);
    for owner in [0, 0x11, u32::MAX] {
        frame.set_kind(Kind::Anonymous);
        frame.set_owner(owner);
        frame.set_index(100, 0);
        frame.init_counts(1, 1);
        let env = crate::rmap::Env {
            memory: &vm.memory,
            pin: &pin,
        };
        let mut seen = 0;
        vm.rmap
            .visit::<_, X86_64>(&env, &vm, page, &mut |_: &Slot<'_, X86_64>| {
                seen += 1;
                Verdict::Keep
            });
        assert_eq!(seen, 0, "owner {owner}");
    }
    frame.init_counts(1, 0);
    vm.memory.put(&pin, page);
}

/// Two of a line live at a time, so that no generation is ever alone.
#[test]
fn a_line_of_overlapping_generations_keeps_no_more() {
    with_pin(|pin| {
        let mut world = World::new(pin, super::LAST_STAMP);
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
        let mut world = World::new(pin, super::LAST_STAMP);
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

/// The stamp of a page leaves out the children that its owner had before it.
#[test]
fn a_page_remembers_how_many_forks_came_before_it() {
    let vm = family_vm();
    let space = vm.create_space().unwrap();
    for forks in 0..3 {
        store_anew(&vm, space, 100 + forks);
        let (frame, _) = vm.translate(space, Vpn(100 + forks)).unwrap();
        let name = super::hint::Name::of(vm.memory.frame(frame));
        assert_eq!(u64::from(name.stamp), forks);
        vm.fork(space).unwrap();
    }
}

#[test]
fn every_entry_of_a_shared_page_is_found_once() {
    let vm = family_vm();
    let space = vm.create_space().unwrap();
    store_anew(&vm, space, 100);
    let children = [(); 2].map(|()| vm.fork(space).unwrap());
    let mut found = vec![];
    visit(&vm, space, 100, |slot| {
        found.push((slot.pte().table, slot.pte().index));
        Verdict::Keep
    });
    let tables = [space, children[0], children[1]].map(|id| vm.load(id).unwrap().root);
    assert_eq!(found.len(), tables.len());
    assert_eq!(BTreeSet::from_iter(found).len(), tables.len());
}

/// A private page that moved is looked for at its new place, in children as well.
#[test]
fn a_page_that_moved_is_found_where_it_is() {
    let vm = family_vm();
    let space = vm.create_space().unwrap();
    store_anew(&vm, space, 100);
    let to = Placement::Fixed(Vpn(300));
    vm.remap(space, Vpn(100), 1, 1, to).unwrap();
    vm.fork(space).unwrap();
    let mut found = 0;
    visit(&vm, space, 300, |_| {
        found += 1;
        Verdict::Keep
    });
    assert_eq!(found, 2);
    vm.audit().unwrap();
}

/// A child that writes to a page which only it maps makes the page its own: what is
/// left of the parent goes with the child at the latest.
#[test]
fn a_node_goes_when_its_last_page_has_become_anothers() {
    let vm = family_vm();
    let parent = vm.create_space().unwrap();
    store_anew(&vm, parent, 100);
    let child = vm.fork(parent).unwrap();
    vm.exit(parent).unwrap();
    assert_eq!(nodes_in_use(&vm), 2, "the page names the parent");
    vm.fault(child, 100 << 12, Access::Write).unwrap();
    let grandchild = vm.fork(child).unwrap();
    vm.exit(child).unwrap();
    vm.audit().unwrap();
    vm.exit(grandchild).unwrap();
    assert_eq!(nodes_in_use(&vm), 0);
}

/// A page that a visit unmapped, as reclaiming does, names its owner no more.
#[test]
fn a_node_goes_when_visits_have_unmapped_its_pages() {
    let vm = family_vm();
    let space = vm.create_space().unwrap();
    store_anew(&vm, space, 100);
    let (frame, _) = vm.translate(space, Vpn(100)).unwrap();
    visit(&vm, space, 100, |slot| {
        slot.clear();
        Verdict::Unmapped
    });
    vm.memory.put(&vm.pin(), frame);
    vm.exit(space).unwrap();
    assert_eq!(nodes_in_use(&vm), 0);
}

/// The space ends on a CPU while another still counts its pages: that one frees the
/// node when it goes on to the next.
#[test]
fn the_last_cpu_that_counts_for_a_node_frees_it() {
    let vm = family_vm();
    let (space, next) = (vm.create_space().unwrap(), vm.create_space().unwrap());
    run_on(1);
    store_anew(&vm, space, 100);
    run_on(0);
    vm.exit(space).unwrap();
    assert_eq!(nodes_in_use(&vm), 2, "CPU 1 counts for the node");
    run_on(1);
    store_anew(&vm, next, 100);
    assert_eq!(nodes_in_use(&vm), 1);
    run_on(0);
}

/// Pages in a row of two spaces: the last entries are found although there are fewer
/// tables to look into than entries.
#[test]
fn every_entry_of_a_run_of_an_objects_pages_is_found() {
    let vm = family_vm();
    let object = vm.create_shared_memory(4).unwrap();
    for pages in [100..104, 200..204] {
        let space = vm.create_space().unwrap();
        let request = MapRequest::object(object, 0, 4, Prot::READ_WRITE).shared();
        map(&vm, space, pages.start, request);
        for page in pages {
            vm.fault(space, page << 12, Access::Write).unwrap();
        }
    }
    let pin = vm.pin();
    let env = crate::rmap::Env {
        memory: &vm.memory,
        pin: &pin,
    };
    let cached = vm.objects.find(object).unwrap();
    let frames = [0, 1, 2, 3].map(|index| vm.objects.peek(&pin, cached, index).unwrap());
    let mut found = vec![];
    let mut note = |frame, slot: &Slot<'_, X86_64>| {
        found.push((frame, slot.page().0));
        Verdict::Keep
    };
    vm.rmap.visit_run(&env, &vm, &frames, &mut note);
    found.sort_unstable();
    let mut wanted = vec![];
    for (index, frame) in (0..).zip(frames) {
        wanted.extend([100, 200].map(|start| (frame, start + index)));
    }
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}
