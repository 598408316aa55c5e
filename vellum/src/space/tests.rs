//! Tests of spaces through the manager's own interface, on a machine without
//! an MMU: what regions, entries and records say.

/// Tests that call a check of one reverse-mapping design for each, with its options.
macro_rules! with_each_design {
    ($($name:ident => $check:ident;)*) => {$(
        #[test]
        fn $name() {
            for text in crate::design::variants("rmap") {
                let design = crate::Design::parse(&text).unwrap();
                crate::with_rmap!(design.rmap, R => $check::<R>(&text));
            }
        }
    )*};
}

/// The same with formats that differ in the bits which entries have to spare.
macro_rules! with_each_format {
    ($($name:ident => $check:ident;)*) => {$(
        #[test]
        fn $name() {
            for text in crate::design::variants("rmap") {
                let design = crate::Design::parse(&text).unwrap();
                crate::with_rmap!(design.rmap, R => {
                    $check::<crate::table::X86_64, R>(&text);
                    $check::<crate::table::Aarch64_4K, R>(&text);
                    $check::<crate::table::Sv39, R>(&text);
                });
            }
        }
    )*};
}

mod access;
mod collapse;
mod commit;
mod contiguous;
mod dirty;
mod files;
mod folios;
mod groups;
mod handles;
mod hooks;
mod huge;
mod huge_file;
mod huge_growth;
mod limits;
mod many_superpages;
mod pinned;
mod pins;
mod places;
#[cfg(feature = "published")]
mod pmap_lock;
mod properties;
mod reclaim;
mod requests;
mod reservations;
mod returned;
#[cfg(feature = "published")]
mod room;
mod rooms;
mod roots;
mod rules;
mod shares;
mod shortage;
mod stale;
mod stores;
mod superpages;
mod swap;
mod swap_off;
mod swap_shared;
mod throttle;
mod tracts;
mod unmanaged;
mod unpinned;
mod victims;
mod waiting;
mod writeback;

use std::boxed::Box;
use std::sync::Arc;
use std::sync::Mutex;
use std::vec::Vec;

use super::*;
use crate::addr::{Access, PageRange, Pfn, Prot, Vpn};
use crate::frame::{Kind, PrivateFlags};
use crate::object::{AgedPage, Aging, Inserted};
use crate::platform::Zone;
use crate::sync::Pin;
use crate::table::{Format, X86_64};
use crate::testing::{ByEntries, ByRegions};
use crate::testing::{Rng, TestMachine, range, run_on, take_steps};
use crate::{Design, ObjectId};

type TestVm<R = ByRegions> = Vm<TestMachine, X86_64, R>;

const RW: Prot = Prot::READ_WRITE;

fn vm_with<R: crate::rmap::ReverseMap>(design: &str, frames: u32) -> TestVm<R> {
    run_on(0);
    Vm::new(
        TestMachine::simple(2, frames),
        Design::parse(design).unwrap(),
    )
    .unwrap()
}

pub(in crate::space) fn vm() -> TestVm {
    vm_with("", 2048)
}

fn map<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, space: SpaceId, at: u64, request: MapRequest) {
    let placed = request.at(Placement::Fixed(Vpn(at)));
    assert_eq!(vm.map(space, &placed), Ok(Vpn(at)));
}

fn touch<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64, access: Access) {
    vm.fault(space, page << 12, access).unwrap();
}

#[test]
fn the_name_of_nothing_is_refused_by_a_cpu_that_has_loaded_nothing() {
    let vm = vm();
    for bits in [0, u64::MAX] {
        let nobody = SpaceId::from_bits(bits);
        assert_eq!(vm.load(nobody), None, "{bits:#x}");
        let fault = vm.fault(nobody, 0x1000, Access::Read);
        assert_eq!(fault, Err(FaultError::NoSpace), "{bits:#x}");
    }
}

fn leaves<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> Vec<(u64, Pfn)> {
    let mut found = Vec::new();
    vm.for_each_leaf(space, |page, frame, _, _| found.push((page.0, frame)))
        .unwrap();
    found
}

/// The first pages of the leaves that map more than a page.
fn large_leaves<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> Vec<u64> {
    let mut found = Vec::new();
    let mut note = |page: Vpn, _, pages, _| {
        if pages > 1 {
            found.push(page.0);
        }
    };
    vm.for_each_leaf(space, &mut note).unwrap();
    found
}

fn regions(vm: &TestVm, space: SpaceId) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    vm.for_each_region(space, |entry| {
        found.push((entry.range.start.0, entry.range.end.0))
    })
    .unwrap();
    found
}

#[test]
fn a_design_that_names_another_reverse_mapping_or_format_than_the_types_is_refused() {
    for (named, option) in [
        #[cfg(feature = "published")]
        ("rmap=partial", "rmap=chains"),
        ("format=x86-pae", "format=x86-64"),
        ("format=sv39", "format=x86-64"),
    ] {
        let machine = TestMachine::simple(2, 2048);
        let refused = TestVm::<ByEntries>::new(machine, Design::parse(named).unwrap());
        let message = refused.err().map(|error| error.0).unwrap_or_default();
        assert!(message.contains(option), "{named}: {message}");
    }
}

#[test]
fn the_types_decide_what_the_design_says() {
    run_on(0);
    let given = Design::parse("rmap=family,format=x86-64,faultaround=4").unwrap();
    let machine = TestMachine::simple(2, 2048);
    let vm: Vm<_, crate::table::Aarch64_4K, ByEntries> = Vm::new(machine, given).unwrap();
    let says = std::format!(
        "rmap={},format=aarch64-4k,faultaround=4",
        <ByEntries as crate::rmap::ReverseMap>::NAME
    );
    assert_eq!(vm.design(), &Design::parse(&says).unwrap());
}

/// The highest place for `pages` pages, by trying every border.
fn highest_gap(regions: &[(u64, u64)], pages: u64) -> Option<u64> {
    let mut end = X86_64::USER_END.0 - 1;
    for &(start, stop) in regions.iter().rev() {
        if end >= stop + pages {
            return Some(end - pages);
        }
        end = start;
    }
    (end >= 16 + pages).then(|| end - pages)
}

#[test]
fn the_highest_gap_is_found_among_random_regions() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let mut rng = Rng::new(8);
    for step in 0..3000 {
        let pages = 1 + rng.below(30) as u64;
        let at = (1 << 35) - 1500 + rng.below(1400) as u64;
        match rng.below(6) {
            0 => vm.unmap(space, Vpn(at), pages).unwrap(),
            1 | 2 => map(&vm, space, at, MapRequest::anonymous(pages, RW)),
            _ => {
                let wanted = highest_gap(&regions(&vm, space), pages);
                let found = vm.map(space, &MapRequest::anonymous(pages, RW));
                assert_eq!(found.ok().map(|page| page.0), wanted, "step {step}");
            }
        }
        if step % 500 == 499 {
            vm.unmap(space, Vpn((1 << 35) - 5000), 5000 - 700).unwrap();
        }
    }
    vm.audit().unwrap();
}

#[test]
fn a_gap_among_100_000_regions_is_found_in_logarithmic_steps() {
    const REGIONS: u64 = 100_000;
    // So large that a space may have as many.
    let vm = vm_with::<ByRegions>("", 128_000);
    let space = vm.begin_space().unwrap();
    // One page each, two apart; every thousandth gap is one wider than before.
    let mut at = 16;
    for number in 0..REGIONS {
        map(&vm, space, at, MapRequest::anonymous(1, RW));
        at += 2 + number / 1000;
    }
    let top = MapRequest::anonymous(X86_64::USER_END.0 - 1 - at, Prot::READ);
    map(&vm, space, at, top);
    assert_eq!(vm.space_stats(space).unwrap().regions, REGIONS as u32 + 1);
    let list = regions(&vm, space);
    let mut worst = 0;
    for pages in 1..=120 {
        let wanted = highest_gap(&list, pages);
        take_steps();
        let found = vm.map(space, &MapRequest::anonymous(pages, Prot::EXECUTE));
        worst = worst.max(take_steps());
        assert_eq!(found.ok().map(|page| page.0), wanted);
        if let Some(page) = wanted {
            vm.unmap(space, Vpn(page), pages).unwrap();
        }
    }
    // 2501 full leaves, 63 nodes above them, two above those, and the root;
    // two nodes of each level, because the gap may lie across a bound.
    assert!(worst <= 2 * 4, "{worst} nodes looked at");
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
}

#[test]
fn a_page_finds_its_region_with_rights_and_object() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(9, 30).unwrap();
    map(&vm, space, 100, MapRequest::anonymous(10, RW));
    map(&vm, space, 110, MapRequest::object(file, 4, 6, Prot::READ));
    touch(&vm, space, 103, Access::Write);
    let at = |page| vm.region_at(space, Vpn(page));
    for page in [99, 116, 0] {
        assert_eq!(at(page), None, "page {page}");
    }
    for page in 100..116 {
        let mut listed = None;
        vm.for_each_region(space, |entry| {
            if entry.range.contains(Vpn(page)) {
                listed = Some(*entry);
            }
        })
        .unwrap();
        assert_eq!(at(page), listed, "page {page}");
    }
    let object = at(115).unwrap().object.unwrap();
    assert_eq!((object.0, object.2), (file, 4));
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(vm.region_at(space, Vpn(100)), None);
}

#[test]
fn limits_refuse_and_change_nothing() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let limits = Limits {
        pages: 20,
        regions: 3,
        stack_pages: 6,
        stack_gap_pages: 86,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    map(&vm, space, 100, MapRequest::anonymous(10, RW));
    map(&vm, space, 200, MapRequest::anonymous(2, RW).growing_down());
    let at = |page| Placement::FixedFree(Vpn(page));
    let request = |pages, page| MapRequest::anonymous(pages, Prot::READ).at(at(page));
    assert_eq!(vm.map(space, &request(9, 300)), Err(MapError::Limit));
    assert_eq!(vm.map(space, &request(8, 300)), Ok(Vpn(300)));
    assert_eq!(vm.map(space, &request(1, 400)), Err(MapError::Limit));
    assert_eq!(
        vm.remap(space, Vpn(100), 10, 11, RemapPlacement::MayMove),
        Err(MapError::Limit)
    );
    vm.unmap(space, Vpn(300), 8).unwrap();
    touch(&vm, space, 196, Access::Write);
    assert_eq!(
        vm.fault(space, 195 << 12, Access::Write),
        Err(FaultError::NoRegion)
    );
    assert_eq!(regions(&vm, space), [(100, 110), (196, 202)]);
    vm.audit().unwrap();
}

#[test]
fn the_limit_of_regions_counts_the_one_that_would_come() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let limits = Limits {
        regions: 2,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    map(&vm, space, 100, MapRequest::anonymous(10, RW));
    map(&vm, space, 200, MapRequest::anonymous(10, RW));
    let third = MapRequest::anonymous(1, RW).at(Placement::FixedFree(Vpn(300)));
    assert_eq!(vm.map(space, &third), Err(MapError::Limit));
    assert_eq!(regions(&vm, space), [(100, 110), (200, 210)]);
    vm.unmap(space, Vpn(100), 10).unwrap();
    assert_eq!(vm.map(space, &third), Ok(Vpn(300)));
    vm.audit().unwrap();
}

#[test]
fn a_stack_keeps_its_gap_from_what_is_mapped_below() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let grow = |page: u64| vm.fault(space, page << 12, Access::Write);
    map(
        &vm,
        space,
        2000,
        MapRequest::anonymous(4, RW).growing_down(),
    );
    map(&vm, space, 1000, MapRequest::anonymous(1, Prot::READ));
    assert!(grow(1001 + 256).is_ok());
    assert_eq!(grow(1001 + 255), Err(FaultError::NoRegion));
    // A mapping that nobody can access is a guard already.
    vm.protect(space, Vpn(1000), 1, Prot::NONE).unwrap();
    assert!(grow(1001 + 255).is_ok());
    vm.unmap(space, Vpn(1000), 1).unwrap();
    let start = 1001 + 255;
    assert_eq!(regions(&vm, space), [(start, 2004)]);

    // The highest gap is the one below the stack.
    let above = <X86_64 as crate::table::Format>::USER_END.0 - 1 - 2004;
    map(&vm, space, 2004, MapRequest::anonymous(above, Prot::READ));
    let request = MapRequest::anonymous(10, Prot::READ);
    assert_eq!(vm.map(space, &request), Ok(Vpn(start - 256 - 10)));
    vm.unmap(space, Vpn(start - 256 - 10), 10).unwrap();
    let hint = |page| vm.map(space, &request.at(Placement::Hint(Vpn(page))));
    assert_eq!(hint(start - 256 - 9), Ok(Vpn(start - 256 - 10)));
    assert_eq!(hint(start - 256 - 30), Ok(Vpn(start - 256 - 30)));
    vm.unmap(space, Vpn(start - 256 - 30), 30).unwrap();

    vm.set_heap_start(space, Vpn(800)).unwrap();
    assert_eq!(
        vm.set_heap_end(space, Vpn(start - 255)),
        Err(MapError::Occupied)
    );
    assert_eq!(vm.set_heap_end(space, Vpn(start - 256)), Ok(()));

    // Whoever names a place gets it.
    map(&vm, space, start - 1, MapRequest::anonymous(1, Prot::READ));
    vm.audit().unwrap();
}

#[test]
fn names_of_what_has_ended_are_refused() {
    let vm = vm();
    let old = vm.begin_space().unwrap();
    assert_eq!(vm.exit(old), Ok(true));
    let new = vm.begin_space().unwrap();
    assert_ne!(old, new);
    for id in [
        old,
        SpaceId::from_bits(u64::MAX),
        SpaceId::from_bits(7 << 32 | 0xffff),
    ] {
        assert_eq!(vm.exit(id), Err(MapError::NoSpace));
        assert_eq!(vm.fork(id), Err(MapError::NoSpace));
        assert_eq!(vm.fault(id, 0, Access::Read), Err(FaultError::NoSpace));
        assert_eq!(
            vm.map(id, &MapRequest::anonymous(1, RW)),
            Err(MapError::NoSpace)
        );
        assert_eq!(vm.share_space(id), Err(MapError::NoSpace));
        assert!(vm.load(id).is_none() && vm.space_stats(id).is_none());
    }
    let file = vm.stored_pages(1, 4).unwrap();
    vm.page_cache().release_object(file).unwrap();
    for id in [file, ObjectId::from_bits(u64::MAX)] {
        assert_eq!(vm.page_cache().set_size(id, 0), Err(FileError::NoObject));
        assert_eq!(vm.file(id).sync(), Err(FileError::NoObject));
        let request = MapRequest::object(id, 0, 1, RW);
        assert_eq!(vm.map(new, &request), Err(MapError::NoObject));
    }
    vm.audit().unwrap();
}

#[test]
fn a_lock_around_faults_is_free_after_each_of_them() {
    let vm: TestVm = vm_with("faultlock=space", 2048);
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(4, RW));
    touch(&vm, space, 1000, Access::Write);
    let outside = vm.fault(space, 999 << 12, Access::Write);
    assert_eq!(outside, Err(FaultError::NoRegion));
    touch(&vm, space, 1001, Access::Write);
    vm.exit(space).unwrap();
    let ended = vm.fault(space, 1000 << 12, Access::Write);
    assert_eq!(ended, Err(FaultError::NoSpace));
    let next = vm.begin_space().unwrap();
    map(&vm, next, 1000, MapRequest::anonymous(4, RW));
    touch(&vm, next, 1000, Access::Write);
    vm.audit().unwrap();
}

/// Truncation, which holds no space's lock, unlinks the tables that it empties:
/// those of shared pages, and those of private copies (invariant 5).
#[test]
fn truncation_frees_the_tables_that_it_empties() {
    let vm = vm();
    let file = vm.stored_pages(1, 9).unwrap();
    let object = MapRequest::object(file, 0, 9, RW);
    for request in [object.shared(), object] {
        let space = vm.begin_space().unwrap();
        map(&vm, space, 1000, request);
        vm.page_cache().set_size(file, 9 << 12).unwrap();
        for page in [1001, 1005] {
            touch(&vm, space, page, Access::Write);
        }
        let tables = vm.space_stats(space).unwrap().table_bytes;
        vm.page_cache().set_size(file, 5 << 12).unwrap();
        assert_eq!(vm.space_stats(space).unwrap().table_bytes, tables);
        vm.platform().take_flushes();
        vm.page_cache().set_size(file, 1 << 12).unwrap();
        assert_eq!(vm.space_stats(space).unwrap().table_bytes, 4096);
        let flushes = vm.platform().take_flushes();
        let (_, last) = flushes.last().unwrap();
        assert!(
            last.tables && last.range.unwrap().contains(Vpn(512)),
            "{last:?}"
        );
        vm.audit().unwrap();
    }
}

/// A region without entries of its own in a table gets no table in the child.
#[test]
fn fork_makes_no_table_that_stays_empty() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 500, MapRequest::anonymous(20, RW));
    map(&vm, space, 490, MapRequest::anonymous(5, Prot::READ));
    touch(&vm, space, 491, Access::Read);
    touch(&vm, space, 515, Access::Write);
    let child = vm.fork(space).unwrap();
    assert_eq!(leaves(&vm, child).len(), 1);
    assert_eq!(vm.space_stats(child).unwrap().table_bytes, 4 * 4096);
    vm.audit().unwrap();
}

/// The first table that a move empties may be the one it moves to.
#[test]
fn a_move_into_the_table_it_starts_in_loses_nothing() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1016, MapRequest::anonymous(16, RW));
    for page in 1024..1030 {
        touch(&vm, space, page, Access::Write);
    }
    let frames: Vec<Pfn> = leaves(&vm, space).iter().map(|leaf| leaf.1).collect();
    vm.remap(space, Vpn(1016), 16, 16, RemapPlacement::Fixed(Vpn(600)))
        .unwrap();
    let moved: Vec<(u64, Pfn)> = (608..614).zip(frames).collect();
    assert_eq!(leaves(&vm, space), moved);
    vm.audit().unwrap();
}

/// Keeps what [`Aging`] was told.
#[derive(Default)]
struct Told(Mutex<Vec<Pfn>>);

impl Aging for Told {
    fn inserted(&self, _pin: &Pin<'_>, page: AgedPage<'_>, _kind: Inserted) {
        let frame = page.frame();
        let mut list = self.0.lock().unwrap();
        assert!(!list.contains(&frame), "{frame:?} was inserted twice");
        list.push(frame);
    }

    fn removed(&self, _pin: &Pin<'_>, page: AgedPage<'_>) {
        let frame = page.frame();
        let mut list = self.0.lock().unwrap();
        let place = list.iter().position(|other| *other == frame);
        list.swap_remove(place.unwrap_or_else(|| panic!("{frame:?} was not there")));
    }
}

#[test]
fn aging_hears_of_every_page_once_when_it_comes_and_once_when_it_goes() {
    let mut vm = vm();
    let told = Arc::<Told>::default();
    vm.set_aging(Box::new(Arc::clone(&told)));
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, 20).unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(9, RW));
    map(&vm, space, 2000, MapRequest::object(file, 0, 20, RW));
    map(&vm, space, 3000, MapRequest::anonymous(9, RW).shared());
    for page in (1000..1009).chain(2000..2005).chain(3000..3004) {
        touch(&vm, space, page, Access::Write);
    }
    vm.page_cache()
        .write_pages(file, 10, 3, |_, bytes| bytes.fill(1))
        .unwrap();
    let mut frames = [Pfn::NONE; 3];
    vm.pin_pages(space, Vpn(1000), Access::Write, &mut frames)
        .unwrap();
    let child = vm.fork(space).unwrap();
    touch(&vm, child, 1005, Access::Write);
    touch(&vm, space, 1006, Access::Write);
    vm.advise(space, Vpn(1001), 1, Advice::DontNeed).unwrap();
    vm.page_cache().set_size(file, 2 << 12).unwrap();
    let mut mapped = leaves(&vm, space);
    mapped.extend(leaves(&vm, child));
    let heard = told.0.lock().unwrap().clone();
    for (page, frame) in mapped {
        assert!(heard.contains(&frame), "page {page} is not known");
    }
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(vm.exit(child), Ok(true));
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    vm.page_cache().release_object(file).unwrap();
    assert_eq!(*told.0.lock().unwrap(), []);
    vm.audit().unwrap();
}

#[test]
fn free_advice_takes_the_marks_of_pages_the_space_has_to_itself() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(3, RW));
    touch(&vm, space, 1000, Access::Write);
    let child = vm.fork(space).unwrap();
    touch(&vm, space, 1001, Access::Write);
    vm.advise(space, Vpn(1000), 3, Advice::Free).unwrap();
    let lazy = |page: usize| {
        vm.memory
            .frame(leaves(&vm, space)[page].1)
            .private()
            .has(PrivateFlags::LAZY_FREE)
    };
    assert!(!lazy(0) && lazy(1));
    assert_eq!(vm.exit(child), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn a_machine_that_does_not_fit_is_refused_with_the_reason() {
    run_on(0);
    let high = TestMachine::new(&[0], &[range(0, 64, 0, Zone::High)]);
    let refused = TestVm::<ByRegions>::new(high, Design::default());
    let error = refused.err().map(|error| error.0);
    assert!(error.is_some_and(|text| text.contains("low memory")));
}

#[test]
fn prot_none_and_back_keeps_pages_and_their_rights() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(6, RW));
    for page in 1000..1006 {
        touch(&vm, space, page, Access::Write);
    }
    let before = leaves(&vm, space);
    vm.protect(space, Vpn(1002), 2, Prot::NONE).unwrap();
    assert_eq!(
        regions(&vm, space),
        [(1000, 1002), (1002, 1004), (1004, 1006)]
    );
    assert_eq!(
        vm.fault(space, 1002 << 12, Access::Read),
        Err(FaultError::Protection)
    );
    let whole = PageRange::new(Vpn(1000), 6);
    assert_eq!(vm.is_accessible(space, whole, Access::Read), Ok(false));
    vm.audit().unwrap();
    vm.protect(space, Vpn(1002), 2, RW).unwrap();
    assert_eq!(regions(&vm, space), [(1000, 1006)], "one region again");
    assert_eq!(leaves(&vm, space), before);
    assert_eq!(vm.is_accessible(space, whole, Access::Read), Ok(true));
    touch(&vm, space, 1002, Access::Write);
    assert_eq!(leaves(&vm, space), before, "nobody shares it: no copy");
    vm.audit().unwrap();
}

#[test]
fn frames_of_the_embedder_are_its_own_until_they_go_back() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(3, RW));
    let request = crate::frame::Request::page(crate::frame::Site::AnonymousPage).order(2);
    let block = vm.memory().alloc(&vm.pin(), request).unwrap();
    assert_eq!(block.write(&vm.pin(), 4090, &[5; 12]), 12);
    for page in 0..3 {
        touch(&vm, space, 1000 + page, Access::Write);
    }
    vm.exit(space).unwrap();
    // The audit knows them from frames that nobody has.
    assert_eq!(vm.audit().unwrap().frames.owned, 4);
    let lost = vm.memory.alloc(&vm.pin(), request).unwrap();
    assert!(vm.audit().is_err());
    vm.memory.put_order(&vm.pin(), lost, 2);
    let mut found = [0; 14];
    block.read(&vm.pin(), 4089, &mut found);
    assert_eq!((found[0], &found[1..13]), (found[13], &[5; 12][..]));
    let first = block.first();
    assert_eq!(vm.memory().frame(first).kind(), Kind::Allocated);
    drop(block);
    assert_ne!(vm.memory().frame(first).kind(), Kind::Allocated);
    assert_eq!(vm.audit().unwrap().frames.owned, 0);
    vm.audit().unwrap();
}
