//! `anonmm2003` and `anonmm` under a manager: families of spaces, moves,
//! takeovers, and members that outlive their spaces.

use std::vec::Vec;

use super::{Anonmm, Anonmm2003};
use crate::addr::{Access, Pfn, Prot, Vpn};
use crate::design::Design;
use crate::frame::{FailAt, Site};
use crate::rmap::{Audited, Env, ReverseMap, Slot, Verdict, VisitReport};
use crate::space::{MapError, MapRequest, Placement, RemapPlacement, SpaceId, Vm};
use crate::table::X86_64;
use crate::testing::{TestMachine, run_on};

const START: u64 = 0x1000;
const PAGES: u64 = 3;

struct World<R: ReverseMap>(Vm<TestMachine, X86_64, R>);

impl<R: ReverseMap> World<R> {
    /// A manager, and a space with private pages.
    fn new() -> (Self, SpaceId) {
        run_on(0);
        let vm = Vm::new(TestMachine::simple(1, 2048), Design::default()).unwrap();
        let space = vm.begin_space().unwrap();
        let request = MapRequest::anonymous(PAGES, Prot::READ_WRITE);
        vm.map(space, &request.at(Placement::Fixed(Vpn(START))))
            .unwrap();
        let world = World(vm);
        world.store(space, START, PAGES);
        (world, space)
    }

    fn store(&self, space: SpaceId, page: u64, pages: u64) {
        for page in page..page + pages {
            self.0.fault(space, page << 12, Access::Write).unwrap();
        }
    }

    fn frame(&self, space: SpaceId, page: u64) -> Pfn {
        self.0.translate(space, Vpn(page)).unwrap().0
    }

    fn shift(&self, space: SpaceId, from: u64, to: u64) -> Result<(), MapError> {
        let to = RemapPlacement::Fixed(Vpn(to));
        self.0.remap(space, Vpn(from), PAGES, PAGES, to).map(|_| ())
    }

    /// Spaces and pages at which a visit finds a frame, and its report.
    fn visit(&self, frame: Pfn) -> (Vec<(SpaceId, u64)>, VisitReport) {
        let pin = self.0.pin();
        let env = Env {
            memory: &self.0.memory,
            pin: &pin,
        };
        let mut found = Vec::new();
        let visitor = &mut |slot: &Slot<'_, X86_64>| {
            found.push((self.0.space_named_by(slot.space()), slot.page().0));
            Verdict::Keep
        };
        let rmap = &self.0.rmap;
        let report = rmap.visit::<_, X86_64>(&env, &self.0, frame, visitor);
        found.sort_unstable_by_key(|(space, page)| (space.to_bits(), *page));
        (found, report)
    }

    fn visit_all(&self, space: SpaceId) {
        for page in START..START + PAGES {
            self.visit(self.frame(space, page));
        }
    }

    fn nodes(&self) -> u64 {
        self.0.rmap.live_nodes()
    }

    fn exit(&self, space: SpaceId) {
        assert_eq!(self.0.exit(space), Ok(true));
    }

    /// Audits, which visits every page, and ends the spaces.
    fn finish(&self, spaces: &[SpaceId]) {
        self.0.audit().unwrap();
        spaces.iter().for_each(|&space| self.exit(space));
        self.0.audit().unwrap();
        assert_eq!((self.nodes(), self.0.rmap.stats().bytes), (0, 0));
    }
}

fn at(space: SpaceId, page: u64) -> (SpaceId, u64) {
    (space, page)
}

#[test]
fn pages_moved_while_shared_have_two_addresses_in_2003() {
    let (world, parent) = World::<Anonmm2003>::new();
    let child = world.0.fork(parent).unwrap();
    world.shift(child, START, 0x2000).unwrap();
    assert_eq!(world.nodes(), PAGES, "a chain for each page moved");
    let (found, _) = world.visit(world.frame(parent, START + 1));
    let both = [at(parent, START + 1), at(child, 0x2001)];
    assert_eq!(found.len(), 2);
    assert!(both.iter().all(|place| found.contains(place)), "{found:?}");
    world.exit(parent);
    let (found, _) = world.visit(world.frame(child, 0x2001));
    assert_eq!(found, [at(child, 0x2001)]);
    assert_eq!(world.nodes(), PAGES, "the bundle needs its head");
    world.store(child, 0x2000, PAGES);
    assert_eq!(world.nodes(), 0, "a page taken over has one address");
    let (found, report) = world.visit(world.frame(child, 0x2002));
    assert_eq!(found, [at(child, 0x2002)]);
    assert_eq!(report.false_probes, 0);
    world.finish(&[child]);
}

#[test]
fn a_chain_of_addresses_grows_by_new_ones_only() {
    let (world, parent) = World::<Anonmm2003>::new();
    let child = world.0.fork(parent).unwrap();
    let mut from = START;
    for round in 0..2 {
        for step in 1..=20 {
            let to = 0x2000 + step * 0x100;
            world.shift(child, from, to).unwrap();
            from = to;
            let (found, _) = world.visit(world.frame(parent, START));
            assert_eq!(found.len(), 2, "round {round}, step {step}");
        }
    }
    // Six addresses beside the count, then seven a node.
    assert_eq!(world.nodes(), PAGES * 3);
    world.shift(child, from, START).unwrap();
    assert_eq!(world.nodes(), PAGES * 3, "an address stays while shared");
    world.exit(parent);
    world.shift(child, START, 0x5000).unwrap();
    assert_eq!(world.nodes(), 0, "a page moved by its only space has one");
    assert_eq!(
        world.visit(world.frame(child, 0x5000)).0,
        [at(child, 0x5000)]
    );
    world.finish(&[child]);
}

#[test]
fn a_move_without_memory_for_addresses_changes_nothing() {
    let (world, parent) = World::<Anonmm2003>::new();
    let child = world.0.fork(parent).unwrap();
    world.0.memory().inject(Some(FailAt {
        site: Site::AddressChain,
        after: 0,
    }));
    let moved = world.shift(child, START, 0x2000);
    assert_eq!(moved, Err(MapError::OutOfMemory));
    world.0.memory().inject(None);
    assert_eq!(world.nodes(), 0);
    assert_eq!(world.frame(child, START), world.frame(parent, START));
    world.shift(child, START, 0x2000).unwrap();
    assert_eq!(world.nodes(), PAGES);
    world.finish(&[parent, child]);
}

#[test]
fn pages_are_copied_before_they_move_in_the_merged_form() {
    let (world, parent) = World::<Anonmm>::new();
    let child = world.0.fork(parent).unwrap();
    world.shift(child, START, 0x2000).unwrap();
    for step in 0..PAGES {
        let (old, new) = (START + step, 0x2000 + step);
        assert_ne!(world.frame(parent, old), world.frame(child, new));
        assert_eq!(world.visit(world.frame(parent, old)).0, [at(parent, old)]);
        assert_eq!(world.visit(world.frame(child, new)).0, [at(child, new)]);
    }
    let kept = world.frame(child, 0x2000);
    world.shift(child, 0x2000, 0x3000).unwrap();
    assert_eq!(world.frame(child, 0x3000), kept, "copied although its own");
    assert_eq!(world.visit(kept).0, [at(child, 0x3000)]);
    world.finish(&[parent, child]);
}

/// A family whose first space and one in the middle have ended.
fn dead_heads<R: ReverseMap>() -> (World<R>, [SpaceId; 2]) {
    let (world, first) = World::<R>::new();
    let middle = world.0.fork(first).unwrap();
    world.store(middle, START, 1);
    let last = world.0.fork(middle).unwrap();
    let sibling = world.0.fork(first).unwrap();
    world.exit(first);
    world.exit(middle);
    (world, [last, sibling])
}

fn entries_outlive_the_spaces_that_made_the_pages<R: ReverseMap>() {
    let (world, [last, sibling]) = dead_heads::<R>();
    let copied = world.frame(last, START);
    assert_eq!(world.visit(copied).0, [at(last, START)]);
    let (found, _) = world.visit(world.frame(last, START + 1));
    let mut both = [at(last, START + 1), at(sibling, START + 1)];
    both.sort_unstable_by_key(|(space, _)| space.to_bits());
    assert_eq!(found, both);
    world.exit(sibling);
    let (found, _) = world.visit(world.frame(last, START + 2));
    assert_eq!(found, [at(last, START + 2)]);
    world.finish(&[last]);
}

#[test]
fn entries_outlive_the_spaces_that_made_the_pages_in_2003() {
    entries_outlive_the_spaces_that_made_the_pages::<Anonmm2003>();
}

#[test]
fn entries_outlive_the_spaces_that_made_the_pages_in_the_merged_form() {
    entries_outlive_the_spaces_that_made_the_pages::<Anonmm>();
}

#[test]
fn a_visit_takes_pages_over_from_spaces_that_ended() {
    let (world, [last, sibling]) = dead_heads::<Anonmm>();
    assert_eq!(world.nodes(), 1, "the middle's member; the head is needed");
    let copied = world.frame(last, START);
    world.visit(copied);
    assert_eq!(world.nodes(), 0, "nothing names the middle's member");
    let (_, first) = world.visit(copied);
    assert_eq!((first.hits, first.false_probes), (1, 0));
    world.exit(sibling);
    world.visit_all(last);
    let (_, again) = world.visit(world.frame(last, START + 1));
    assert_eq!((again.hits, again.false_probes), (1, 0));
    world.finish(&[last]);
}

#[test]
fn members_of_2003_stay_until_their_last_page_goes() {
    let (world, [last, sibling]) = dead_heads::<Anonmm2003>();
    world.visit_all(last);
    assert_eq!(world.nodes(), 1);
    world.0.unmap(last, Vpn(START), 1).unwrap();
    assert_eq!(world.nodes(), 0);
    world.finish(&[last, sibling]);
}

/// A page of an ended space, mapped by the last of two children only.
fn inherited<R: ReverseMap>() -> (World<R>, SpaceId) {
    let (world, parent) = World::<R>::new();
    let other = world.0.fork(parent).unwrap();
    let heir = world.0.fork(parent).unwrap();
    world.exit(parent);
    world.store(other, START, PAGES);
    (world, heir)
}

#[test]
fn a_write_makes_the_page_the_writers() {
    let (world, heir) = inherited::<Anonmm2003>();
    let frame = world.frame(heir, START);
    for _ in 0..2 {
        let (_, report) = world.visit(frame);
        assert_eq!((report.hits, report.false_probes), (1, 1));
    }
    world.store(heir, START, 1);
    assert_eq!(world.frame(heir, START), frame, "copied instead of reused");
    let (_, report) = world.visit(frame);
    assert_eq!((report.hits, report.false_probes), (1, 0));
    assert_eq!(world.0.rmap.stats().turns, 1);
    assert_eq!(world.nodes(), 0);
}

#[test]
fn in_the_merged_form_the_first_visit_does_what_a_turn_did() {
    let (world, heir) = inherited::<Anonmm>();
    let frame = world.frame(heir, START);
    world.store(heir, START, 1);
    let (_, report) = world.visit(frame);
    assert_eq!((report.hits, report.false_probes), (1, 1));
    let (_, report) = world.visit(frame);
    assert_eq!((report.hits, report.false_probes), (1, 0));
    assert_eq!(world.nodes(), 0);
}

/// A visitor that clears entries, as reclaim does.
fn a_page_whose_entries_are_all_cleared_names_nobody<R: ReverseMap>() {
    let (world, parent) = World::<R>::new();
    let child = world.0.fork(parent).unwrap();
    let page = world.frame(parent, START);
    let (memory, pin) = (&world.0.memory, world.0.pin());
    let env = Env { memory, pin: &pin };
    memory.frame(page).get();
    let rmap = &world.0.rmap;
    let check = |maps| rmap.check_frame(&env, page, maps);
    check(2).unwrap();
    for left in [1, 0] {
        let mut cleared = 0;
        let visitor = &mut |slot: &Slot<'_, X86_64>| {
            if cleared > 0 {
                return Verdict::Stop;
            }
            cleared += 1;
            slot.clear();
            Verdict::Unmapped
        };
        let report = rmap.visit::<_, X86_64>(&env, &world.0, page, visitor);
        assert_eq!((report.unmapped, report.hits), (1, 1 + left));
        memory.put(&pin, page);
        assert_eq!(memory.frame(page).counts().maps(), left);
        check(left).unwrap();
    }
    assert_eq!(memory.frame(page).owner(), 0);
    assert_eq!(world.visit(page).1, VisitReport::default());
    memory.put(&pin, page);
    rmap.audit_nodes().unwrap();
    assert!(world.0.translate(child, Vpn(START)).is_none());
}

#[test]
fn a_page_whose_entries_are_all_cleared_names_nobody_in_2003() {
    a_page_whose_entries_are_all_cleared_names_nobody::<Anonmm2003>();
}

#[test]
fn a_page_whose_entries_are_all_cleared_names_nobody_in_the_merged_form() {
    a_page_whose_entries_are_all_cleared_names_nobody::<Anonmm>();
}

#[test]
fn the_designs_count_of_2003_is_checked_against_the_frames() {
    let (world, parent) = World::<Anonmm2003>::new();
    let pin = world.0.pin();
    let env = Env {
        memory: &world.0.memory,
        pin: &pin,
    };
    let page = world.frame(parent, START);
    world.0.rmap.check_frame(&env, page, 1).unwrap();
    world.0.rmap.check_frame(&env, page, 2).unwrap_err();
    env.memory
        .frame(page)
        .rmap()
        .store(2, crate::sync::atomic::Ordering::Relaxed);
    assert!(world.0.audit().is_err(), "a mapping too many in the count");
}

fn space_without_memory<R: ReverseMap>() {
    let (world, parent) = World::<R>::new();
    for exec in [true, false] {
        world.0.memory().inject(Some(FailAt {
            site: Site::Anonmm,
            after: 0,
        }));
        let made = if exec {
            world.0.exec(parent)
        } else {
            world.0.fork(parent)
        };
        assert_eq!(made, Err(MapError::OutOfMemory));
        world.0.memory().inject(None);
        assert_eq!(world.0.audit().unwrap().spaces, 1);
    }
    world.finish(&[parent]);
}

#[test]
fn without_memory_for_its_member_a_space_does_not_begin() {
    space_without_memory::<Anonmm2003>();
    space_without_memory::<Anonmm>();
}
