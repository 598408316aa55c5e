//! `family` in a manager; `random` has the tree of relatives alone.

use std::collections::BTreeSet;
use std::vec;

use super::Family;
use super::kin::{Kin, found};
use crate::addr::{Access, Prot, Vpn};
use crate::frame::{Kind, Request, Site};
use crate::rmap::{ReverseMap, Slot, Verdict};
use crate::space::{MapRequest, Placement, RemapPlacement, SpaceId, Vm};
use crate::table::X86_64;
use crate::testing::{TestMachine, run_on};

mod random;

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
    let space = vm.begin_space().unwrap();
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
        let space = vm.begin_space().unwrap();
        let object = vm.memory_pages(1).unwrap();
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
    let space = vm.begin_space().unwrap();
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

/// The stamp of a page leaves out the children that its owner had before it.
#[test]
fn a_page_remembers_how_many_forks_came_before_it() {
    let vm = family_vm();
    let space = vm.begin_space().unwrap();
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
    let space = vm.begin_space().unwrap();
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
    let space = vm.begin_space().unwrap();
    store_anew(&vm, space, 100);
    let to = RemapPlacement::Fixed(Vpn(300));
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
    let parent = vm.begin_space().unwrap();
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
    let space = vm.begin_space().unwrap();
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
    let (space, next) = (vm.begin_space().unwrap(), vm.begin_space().unwrap());
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
    let object = vm.memory_pages(4).unwrap();
    for pages in [100..104, 200..204] {
        let space = vm.begin_space().unwrap();
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
