//! Tests of `anon_vma` and `anon_vma_chain` through a manager: what lookups
//! find and how far they look, and what regions share.

use std::vec::Vec;

use super::{AnonVma, AnonVmaChain};
use crate::addr::{Access, Pfn, Prot, Vpn};
use crate::design::Design;
use crate::frame::{FailAt, Site};
use crate::rmap::{Audited, Env, ReverseMap, TracksRegions, Verdict, VisitReport};
use crate::space::{MapError, MapRequest, Placement, RemapPlacement, SpaceId};
use crate::table::X86_64;
use crate::testing::{Rng, TestMachine, run_on};
use crate::{ObjectId, Vm};

const RW: Prot = Prot::READ_WRITE;

struct World<R: ReverseMap> {
    vm: Vm<TestMachine, X86_64, R>,
}

impl<R: ReverseMap> World<R> {
    fn new(frames: u32) -> Self {
        run_on(0);
        let machine = TestMachine::simple(1, frames);
        World {
            vm: Vm::new(machine, Design::default()).unwrap(),
        }
    }

    fn space(&self) -> SpaceId {
        self.vm.begin_space().unwrap()
    }

    fn map(&self, space: SpaceId, at: u64, pages: u64) {
        let request = MapRequest::anonymous(pages, RW).at(Placement::Fixed(Vpn(at)));
        assert_eq!(self.vm.map(space, &request), Ok(Vpn(at)));
    }

    fn store(&self, space: SpaceId, page: u64) -> Pfn {
        self.vm.fault(space, page << 12, Access::Write).unwrap();
        self.frame(space, page).unwrap()
    }

    fn frame(&self, space: SpaceId, page: u64) -> Option<Pfn> {
        let mut found = None;
        let see = |at: Vpn, frame, _, _| {
            if at.0 == page {
                found = Some(frame);
            }
        };
        self.vm.for_each_leaf(space, see).unwrap();
        found
    }

    fn regions(&self, space: SpaceId) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let see = |entry: &crate::space::MapEntry| {
            found.push((entry.range.start.0, entry.range.end.0));
        };
        self.vm.for_each_region(space, see).unwrap();
        found
    }

    /// Where a visit finds the frame, sorted.
    fn visit(&self, frame: Pfn) -> (Vec<(u32, u64)>, VisitReport) {
        let pin = self.vm.pin();
        let env = Env {
            memory: &self.vm.memory,
            pin: &pin,
        };
        let mut found = Vec::new();
        let report = self
            .vm
            .rmap
            .visit::<_, X86_64>(&env, &self.vm, frame, &mut |slot| {
                found.push((slot.space(), slot.page().0));
                Verdict::Keep
            });
        found.sort_unstable();
        (found, report)
    }

    /// Asserts that the frame is found in just these places.
    fn assert_at(&self, frame: Pfn, places: &[(SpaceId, u64)]) -> VisitReport {
        let mut places: Vec<_> = places
            .iter()
            .map(|&(space, page)| (handle(space), page))
            .collect();
        places.sort_unstable();
        let (found, report) = self.visit(frame);
        assert_eq!(found, places);
        report
    }

    fn finish(&self, spaces: &[SpaceId]) {
        self.vm.audit().unwrap();
        for &space in spaces {
            assert_eq!(self.vm.exit(space), Ok(true));
            self.vm.audit().unwrap();
        }
        assert_eq!(self.vm.rmap.live_groups(), 0);
    }
}

fn handle(space: SpaceId) -> u32 {
    space.to_bits() as u32
}

/// A test of both designs.
macro_rules! both {
    ($($name:ident: $body:ident;)*) => { $(
        #[test]
        fn $name() {
            $body::<AnonVma>();
            $body::<AnonVmaChain>();
        }
    )* };
}

both! {
    pages_are_found_where_mremap_took_them: moved;
    a_region_cut_and_merged_keeps_its_pages: cut_and_merged;
    regions_with_unrelated_anon_vmas_stay_apart: unrelated;
    an_untouched_region_takes_over_what_is_behind_it: taken_over;
    a_stack_that_grew_is_searched_as_far_down: grown_stack;
    copies_of_file_pages_are_found_by_file_page: file_copies;
    a_child_uses_the_region_state_of_its_parent_only: children_end_first;
    mappings_cost_no_nodes: no_nodes;
    forks_that_fail_leave_everything_as_it_was: failing_forks;
    random_edits_keep_every_page_findable: random_edits;
}

fn moved<R: ReverseMap>() {
    let world = World::<R>::new(2048);
    let parent = world.space();
    world.map(parent, 100, 10);
    let pages: Vec<_> = (100..110).map(|page| world.store(parent, page)).collect();
    let child = world.vm.fork(parent).unwrap();
    let remap = |space, from, to| {
        let fixed = RemapPlacement::Fixed(Vpn(to));
        world.vm.remap(space, Vpn(from), 4, 4, fixed).unwrap();
    };
    remap(child, 103, 5000);
    for (page, &frame) in (100..).zip(&pages) {
        let there = if (103..107).contains(&page) {
            page - 103 + 5000
        } else {
            page
        };
        world.assert_at(frame, &[(parent, page), (child, there)]);
    }
    // And once more, to where pages of other linear indices were.
    remap(parent, 103, 900);
    remap(parent, 900, 100);
    world.assert_at(pages[0], &[(child, 100)]);
    world.assert_at(pages[3], &[(parent, 100), (child, 5000)]);
    world.assert_at(pages[7], &[(parent, 107), (child, 107)]);
    let copy = world.store(child, 5001);
    world.assert_at(copy, &[(child, 5001)]);
    world.assert_at(pages[4], &[(parent, 101)]);
    world.finish(&[parent, child]);
}

fn cut_and_merged<R: ReverseMap>() {
    let world = World::<R>::new(2048);
    let space = world.space();
    world.map(space, 100, 30);
    let middle = world.store(space, 115);
    let child = world.vm.fork(space).unwrap();
    for owner in [space, child] {
        let protect = |pages, prot| world.vm.protect(owner, Vpn(110), pages, prot).unwrap();
        protect(10, Prot::READ);
        assert_eq!(world.regions(owner), [(100, 110), (110, 120), (120, 130)]);
        world.vm.audit().unwrap();
        world.store(owner, 105);
        world.store(owner, 125);
        protect(10, RW);
        assert_eq!(world.regions(owner), [(100, 130)]);
        world.vm.audit().unwrap();
    }
    world.assert_at(middle, &[(space, 115), (child, 115)]);
    world.finish(&[child, space]);

    // Cut before there are private pages: neighbours share what they get then.
    let space = world.space();
    world.map(space, 100, 30);
    world
        .vm
        .protect(space, Vpn(110), 10, Prot::READ.union(Prot::EXECUTE))
        .unwrap();
    world
        .vm
        .protect(space, Vpn(110), 10, RW.union(Prot::EXECUTE))
        .unwrap();
    let pages = [105, 115, 125].map(|page| (page, world.store(space, page)));
    assert_eq!(world.regions(space).len(), 3);
    world.vm.protect(space, Vpn(110), 10, RW).unwrap();
    assert_eq!(world.regions(space), [(100, 130)]);
    for (page, frame) in pages {
        world.assert_at(frame, &[(space, page)]);
    }
    world.finish(&[space]);
}

fn unrelated<R: ReverseMap>() {
    let world = World::<R>::new(2048);
    let space = world.space();
    world.map(space, 100, 10);
    world.map(space, 120, 10);
    let low = world.store(space, 109);
    let high = world.store(space, 120);
    // Extends the first region, which then touches the second.
    world.map(space, 110, 10);
    assert_eq!(world.regions(space), [(100, 120), (120, 130)]);
    let between = world.store(space, 119);
    for (frame, page) in [(low, 109), (high, 120), (between, 119)] {
        world.assert_at(frame, &[(space, page)]);
    }
    world.finish(&[space]);
}

fn taken_over<R: ReverseMap>() {
    let world = World::<R>::new(2048);
    let parent = world.space();
    world.map(parent, 110, 10);
    let page = world.store(parent, 112);
    let child = world.vm.fork(parent).unwrap();
    for space in [parent, child] {
        world.map(space, 100, 10);
        assert_eq!(world.regions(space), [(100, 120)]);
        world.vm.audit().unwrap();
        let new = world.store(space, 101);
        world.assert_at(new, &[(space, 101)]);
    }
    world.assert_at(page, &[(parent, 112), (child, 112)]);
    let grandchild = world.vm.fork(child).unwrap();
    world.assert_at(page, &[(parent, 112), (child, 112), (grandchild, 112)]);
    world.finish(&[parent, grandchild, child]);
}

fn grown_stack<R: ReverseMap>() {
    let world = World::<R>::new(2048);
    let parent = world.space();
    let request = MapRequest::anonymous(4, RW)
        .growing_down()
        .at(Placement::Fixed(Vpn(1000)));
    world.vm.map(parent, &request).unwrap();
    world.store(parent, 1003);
    let first = world.vm.fork(parent).unwrap();
    let deep = world.store(parent, 980);
    world.assert_at(deep, &[(parent, 980)]);
    let second = world.vm.fork(parent).unwrap();
    world.assert_at(deep, &[(parent, 980), (second, 980)]);
    let deeper = world.store(second, 970);
    world.assert_at(deeper, &[(second, 970)]);
    world.finish(&[parent, second, first]);
}

fn file_copies<R: ReverseMap>() {
    let world = World::<R>::new(2048);
    let space = world.space();
    let file: ObjectId = world.vm.stored_pages(1, 40).unwrap();
    let request = MapRequest::object(file, 20, 10, RW).at(Placement::Fixed(Vpn(500)));
    world.vm.map(space, &request).unwrap();
    let copy = world.store(space, 503);
    assert_eq!(world.vm.memory.frame(copy).index(), 23);
    let child = world.vm.fork(space).unwrap();
    let fixed = RemapPlacement::Fixed(Vpn(800));
    world.vm.remap(child, Vpn(502), 3, 3, fixed).unwrap();
    world.assert_at(copy, &[(space, 503), (child, 801)]);
    let shared = {
        world.vm.fault(space, 505 << 12, Access::Read).unwrap();
        world.frame(space, 505).unwrap()
    };
    world.assert_at(shared, &[(space, 505)]);
    world.vm.page_cache().release_object(file).unwrap();
    world.finish(&[space, child]);
}

fn children_end_first<R: ReverseMap>() {
    let world = World::<R>::new(4096);
    let parent = world.space();
    world.map(parent, 100, 4);
    let page = world.store(parent, 100);
    let children: Vec<_> = (0..6).map(|_| world.vm.fork(parent).unwrap()).collect();
    world.vm.exit(children[2]).unwrap();
    world.vm.exit(parent).unwrap();
    world.vm.exit(children[5]).unwrap();
    let rest = [children[0], children[1], children[3], children[4]];
    world.assert_at(page, &rest.map(|space| (space, 100)));
    world.finish(&rest);
}

fn no_nodes<R: ReverseMap>() {
    let world = World::<R>::new(4096);
    let space = world.space();
    world.map(space, 100, 400);
    world.store(space, 100);
    let kept = world.vm.rmap.live_groups();
    for page in 100..500 {
        world.store(space, page);
    }
    assert_eq!(world.vm.rmap.live_groups(), kept);
    assert_eq!(world.vm.stats().rmap.adds, 400);
    world.finish(&[space]);
}

/// Fails each allocation of a fork in turn, where the child's regions reuse an
/// anon_vma and where they get one.
fn failing_forks<R: ReverseMap>() {
    for line in [false, true] {
        let world = World::<R>::new(4096);
        let mut parent = world.space();
        for at in [100, 200, 300] {
            world.map(parent, at, 10);
            world.store(parent, at);
        }
        if line {
            let child = world.vm.fork(parent).unwrap();
            world.vm.exit(parent).unwrap();
            parent = child;
        }
        let before = world.vm.rmap.live_groups();
        for site in [Site::AnonVma, Site::AnonVmaChain] {
            for after in 0.. {
                world.vm.memory.inject(Some(FailAt { site, after }));
                let forked = world.vm.fork(parent);
                world.vm.memory.inject(None);
                world.vm.audit().unwrap();
                if let Ok(child) = forked {
                    world.vm.exit(child).unwrap();
                    break;
                }
                assert_eq!(forked, Err(MapError::OutOfMemory));
                assert_eq!(world.vm.rmap.live_groups(), before, "{site:?} {after}");
            }
        }
        let child = world.vm.fork(parent).unwrap();
        let grown = world.vm.rmap.live_groups() - before;
        if R::NAME == "anon_vma_chain" {
            // Three regions: a link to each anon_vma of the parent, and where
            // nothing could be reused an anon_vma with a link.
            assert_eq!(grown, if line { 3 * 2 } else { 3 * (1 + 2) });
        } else {
            assert_eq!(grown, 0, "the list is threaded through the regions");
        }
        world.finish(&[parent, child]);
    }
}

fn random_edits<R: ReverseMap>() {
    let world = World::<R>::new(6000);
    let mut rng = Rng::new(11);
    let mut spaces = Vec::from([world.space()]);
    for step in 0..4000 {
        let nth = rng.below(spaces.len());
        let space = spaces[nth];
        let at = 100 + rng.below(60) as u64;
        let pages = 1 + rng.below(12) as u64;
        match rng.below(12) {
            0 | 1 => world.map(space, at, pages),
            2 => world.vm.unmap(space, Vpn(at), pages).unwrap(),
            3 | 4 => {
                let prot = [RW, Prot::READ][rng.below(2)];
                let _ = world.vm.protect(space, Vpn(at), pages, prot);
            }
            5 => {
                let to = RemapPlacement::Fixed(Vpn(100 + rng.below(60) as u64));
                let longer = pages + rng.below(4) as u64;
                let _ = world.vm.remap(space, Vpn(at), pages, longer, to);
            }
            6 if spaces.len() < 8 => spaces.push(world.vm.fork(space).unwrap()),
            7 if spaces.len() > 1 => {
                world.vm.exit(spaces.swap_remove(nth)).unwrap();
            }
            _ => {
                let _ = world.vm.fault(space, at << 12, Access::Write);
            }
        }
        if step % 16 == 0 {
            let found = world.vm.audit();
            assert!(found.is_ok(), "seed 11, step {step}: {found:?}");
        }
    }
    world.finish(&spaces);
}

/// Each generation ends when the next has begun: the chain does not grow.
#[test]
fn a_line_of_twenty_processes_needs_two_anon_vmas_a_region() {
    let world = World::<AnonVmaChain>::new(4096);
    let mut last = world.space();
    world.map(last, 100, 30);
    let first_page = world.store(last, 100);
    for generation in 1..20 {
        let child = world.vm.fork(last).unwrap();
        world.vm.exit(last).unwrap();
        let own = world.store(child, 100 + generation);
        world.assert_at(own, &[(child, 100 + generation)]);
        world.assert_at(first_page, &[(child, 100)]);
        // Two anon_vmas, and links of the one region to both.
        assert!(world.vm.rmap.live_groups() <= 4, "generation {generation}");
        world.vm.audit().unwrap();
        last = child;
    }
    world.finish(&[last]);
}

/// All generations live: a page is looked for in those that came after it.
#[test]
fn a_tower_of_twenty_processes_is_searched_upwards() {
    let world = World::<AnonVmaChain>::new(8192);
    let mut tower = Vec::from([world.space()]);
    world.map(tower[0], 100, 30);
    world.store(tower[0], 129);
    let mut pages = Vec::new();
    for generation in 0..20 {
        let own = 100 + generation as u64;
        pages.push(world.store(tower[generation], own));
        tower.push(world.vm.fork(tower[generation]).unwrap());
    }
    for (generation, &page) in pages.iter().enumerate() {
        let own = 100 + generation as u64;
        let places: Vec<_> = tower[generation..]
            .iter()
            .map(|&space| (space, own))
            .collect();
        let report = world.assert_at(page, &places);
        assert_eq!(report.false_probes, 0, "generation {generation}");
    }
    // The region of generation n has n + 1 links.
    assert_eq!(world.vm.rmap.live_groups(), 21 + (1..=21).sum::<u64>());
    world.finish(&tower);
}

/// The page a child made, and one it inherits; how many entries are looked at
/// in vain with this many siblings.
fn probes_among_siblings<R: ReverseMap>(children: usize) -> (u32, u32) {
    let world = World::<R>::new(9000);
    let parent = world.space();
    world.map(parent, 100, 4);
    let inherited = world.store(parent, 100);
    let mut family = Vec::from([parent]);
    for _ in 0..children {
        family.push(world.vm.fork(parent).unwrap());
    }
    let chosen = family[children / 2];
    let own = world.store(chosen, 101);
    let probes = world.assert_at(own, &[(chosen, 101)]).false_probes;
    let everywhere: Vec<_> = family.iter().map(|&space| (space, 100)).collect();
    let inherited_probes = world.assert_at(inherited, &everywhere).false_probes;
    world.vm.audit().unwrap();
    (probes, inherited_probes)
}

#[test]
fn with_a_list_for_all_a_childs_page_is_looked_for_in_its_siblings() {
    assert_eq!(probes_among_siblings::<AnonVma>(1000), (500, 0));
}

#[test]
fn with_lists_of_their_own_a_childs_page_is_found_at_once() {
    for children in [2, 1000] {
        assert_eq!(probes_among_siblings::<AnonVmaChain>(children), (0, 0));
    }
}

/// A store to an inherited page that nobody else has any more takes it out of
/// the siblings' way.
#[test]
fn a_page_kept_by_a_child_becomes_its_own() {
    let world = World::<AnonVmaChain>::new(4096);
    let parent = world.space();
    world.map(parent, 100, 4);
    let page = world.store(parent, 100);
    let named = || world.vm.memory.frame(page).owner();
    let before = named();
    let children: Vec<_> = (0..8).map(|_| world.vm.fork(parent).unwrap()).collect();
    world.vm.unmap(parent, Vpn(100), 1).unwrap();
    for &child in &children[..7] {
        world.vm.unmap(child, Vpn(100), 1).unwrap();
    }
    // The tree of the parent's anon_vma says who may have it by range.
    world.assert_at(page, &[(children[7], 100)]);
    assert_eq!(named(), before);
    assert_eq!(world.store(children[7], 100), page);
    assert_ne!(named(), before);
    assert_eq!(world.assert_at(page, &[(children[7], 100)]).false_probes, 0);
    world.vm.exit(parent).unwrap();
    world.finish(&children);
}

#[test]
fn what_regions_and_families_take_is_small() {
    assert!(size_of::<<AnonVma as TracksRegions>::Region>() <= 12);
    assert!(size_of::<<AnonVmaChain as TracksRegions>::Region>() <= 12);
    assert_eq!(size_of::<super::anon_vma::Relatives>(), 16);
    assert_eq!(size_of::<super::anon_vma_chain::AnonVmaNode>(), 32);
    assert_eq!(size_of::<super::anon_vma_chain::AnonVmaLink>(), 64);
}
