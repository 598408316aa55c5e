//! Superpages: what calls do to one of which they have all pages or a part.

use super::*;
use crate::addr::Geometry;
use crate::rmap::Family;
use crate::table::Aarch64_16K;

/// First page of a superpage, and of the region that holds it and more.
const BASE: u64 = 0x10000;
const PAGES: u64 = 512;

fn superpages<R: crate::rmap::ReverseMap>(design: &str, frames: u32) -> TestVm<R> {
    vm_with(&std::format!("superpage=eager,{design}"), frames)
}

/// A space with one superpage in the middle of a region.
fn one_superpage<R: crate::rmap::ReverseMap>(vm: &TestVm<R>) -> SpaceId {
    let space = vm.begin_space().unwrap();
    map(vm, space, BASE - 40, MapRequest::anonymous(PAGES + 80, RW));
    touch(vm, space, BASE + 7, Access::Write);
    space
}

/// First page, first frame and pages of every leaf.
fn sizes<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> Vec<(u64, Pfn, u64)> {
    let mut found = Vec::new();
    vm.for_each_leaf(space, |page, frame, pages, _| {
        found.push((page.0, frame, pages))
    })
    .unwrap();
    found
}

fn frame_of<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64) -> Option<Pfn> {
    vm.translate(space, Vpn(page)).map(|(frame, _)| frame)
}

#[test]
fn the_first_use_maps_a_range_whole_if_one_region_has_it() {
    let vm = superpages::<Family>("", 8192);
    let space = one_superpage(&vm);
    touch(&vm, space, BASE - 1, Access::Read);
    touch(&vm, space, BASE + PAGES, Access::Write);
    let leaves = sizes(&vm, space);
    assert_eq!(leaves.len(), 3);
    let (page, first, pages) = leaves[1];
    assert_eq!((page, pages), (BASE, PAGES));
    assert_eq!(first.0 % PAGES as u32, 0);
    for step in 0..PAGES as u32 {
        assert_eq!(vm.platform().peek(first.offset(step)), [0; 4096]);
    }
    let stats = vm.space_stats(space).unwrap();
    assert_eq!((stats.rss.anonymous, stats.rss.zero), (PAGES + 1, 1));
    assert_eq!(vm.stats().events.superpage_maps, 1);
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    let report = vm.audit().unwrap();
    assert_eq!(report.frames.of(Kind::Anonymous), 0);
}

#[test]
fn without_the_option_and_without_such_blocks_there_are_only_single_pages() {
    let vm = vm_with::<Family>("", 8192);
    let space = one_superpage(&vm);
    assert_eq!(sizes(&vm, space).len(), 1);
    run_on(0);
    let machine = TestMachine::with_frames(2, 4096, 14);
    let design = Design::parse("superpage=eager").unwrap();
    let vm: Vm<_, Aarch64_16K, Family> = Vm::new(machine, design).unwrap();
    let space = vm.begin_space().unwrap();
    let request = MapRequest::anonymous(4096, RW).at(Placement::Fixed(Vpn(4096)));
    vm.map(space, &request).unwrap();
    vm.fault(space, 5000 << Aarch64_16K::FRAME_SHIFT, Access::Write)
        .unwrap();
    assert_eq!(vm.space_stats(space).unwrap().rss.anonymous, 1);
    assert_eq!(vm.stats().events.superpage_failures, 0);
    vm.audit().unwrap();
}

#[test]
fn single_pages_do_where_no_run_is_free() {
    let vm = superpages::<Family>("", 1000);
    let space = vm.begin_space().unwrap();
    map(&vm, space, BASE, MapRequest::anonymous(4 * PAGES, RW));
    for page in 0..4 {
        touch(&vm, space, BASE + page * PAGES, Access::Write);
    }
    let events = vm.stats().events;
    assert_eq!(events.superpage_maps + events.superpage_failures, 4);
    assert!(events.superpage_failures > 2);
    assert_eq!(sizes(&vm, space).len(), 4);
    vm.audit().unwrap();
}

#[test]
fn unmapping_a_part_leaves_the_other_pages_where_they_are() {
    let vm = superpages::<ByEntries>("", 8192);
    let space = one_superpage(&vm);
    let before: Vec<_> = (0..PAGES)
        .map(|step| frame_of(&vm, space, BASE + step).unwrap())
        .collect();
    vm.unmap(space, Vpn(BASE + 100), 20).unwrap();
    for (step, &frame) in (0..PAGES).zip(&before) {
        let expected = (!(100..120).contains(&step)).then_some(frame);
        assert_eq!(frame_of(&vm, space, BASE + step), expected, "page {step}");
    }
    assert_eq!(vm.space_stats(space).unwrap().rss.anonymous, PAGES - 20);
    assert_eq!(vm.stats().events.superpage_demotions, 1);
    let report = vm.audit().unwrap();
    assert_eq!(report.frames.of(Kind::Anonymous), PAGES - 20);
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn a_call_about_all_pages_of_a_superpage_keeps_it_whole() {
    let vm = superpages::<ByEntries>("", 8192);
    let space = one_superpage(&vm);
    let frame = frame_of(&vm, space, BASE);
    vm.protect(space, Vpn(BASE), PAGES, Prot::READ).unwrap();
    vm.protect(space, Vpn(BASE), PAGES, Prot::NONE).unwrap();
    assert_eq!(
        vm.is_accessible(space, PageRange::new(Vpn(BASE), 1), Access::Read),
        Ok(false)
    );
    vm.protect(space, Vpn(BASE), PAGES, RW).unwrap();
    touch(&vm, space, BASE + 3, Access::Write);
    assert_eq!(frame_of(&vm, space, BASE), frame);
    assert_eq!(sizes(&vm, space).len(), 1);
    vm.audit().unwrap();
    vm.advise(space, Vpn(BASE), PAGES, Advice::DontNeed)
        .unwrap();
    assert_eq!(sizes(&vm, space), []);
    assert_eq!(vm.stats().events.superpage_demotions, 0);
    vm.audit().unwrap();
}

#[test]
fn protecting_a_part_changes_the_rights_of_that_part() {
    let vm = superpages::<ByEntries>("", 8192);
    let space = one_superpage(&vm);
    vm.protect(space, Vpn(BASE + 5), 2, Prot::READ).unwrap();
    let rights = |page| vm.translate(space, Vpn(BASE + page)).unwrap().1;
    assert_eq!((rights(4), rights(5), rights(7)), (RW, Prot::READ, RW));
    vm.audit().unwrap();
}

#[test]
fn fork_shares_a_superpage_and_a_store_copies_one_page_of_it() {
    let vm = superpages::<ByEntries>("", 8192);
    let space = one_superpage(&vm);
    let child = vm.fork(space).unwrap();
    assert_eq!(sizes(&vm, child), sizes(&vm, space));
    vm.audit().unwrap();
    touch(&vm, child, BASE + 30, Access::Write);
    let report = vm.audit().unwrap();
    assert_eq!(
        report.frames.of(Kind::Anonymous),
        PAGES + 1,
        "one page is copied"
    );
    assert_eq!(sizes(&vm, space).len(), 1, "the parent's stays large");
    let same = |step| frame_of(&vm, space, BASE + step) == frame_of(&vm, child, BASE + step);
    assert_eq!(
        (0..PAGES).filter(|&step| !same(step)).collect::<Vec<_>>(),
        [30]
    );
    vm.audit().unwrap();
    // What the child has left is still shared, so the parent copies, too.
    touch(&vm, space, BASE + 31, Access::Write);
    touch(&vm, space, BASE + 30, Access::Write);
    assert_eq!(vm.stats().events.cow_copies, 2, "nobody else had page 30");
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
    assert_eq!(vm.exit(child), Ok(true));
    assert_eq!(vm.audit().unwrap().frames.of(Kind::Anonymous), 0);
}

#[test]
fn a_superpage_that_nobody_shares_any_more_is_stored_to_whole() {
    let vm = superpages::<Family>("", 8192);
    let space = one_superpage(&vm);
    let child = vm.fork(space).unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    touch(&vm, child, BASE + 30, Access::Write);
    assert_eq!(sizes(&vm, child).len(), 1);
    let events = vm.stats().events;
    assert_eq!((events.cow_reuses, events.cow_copies), (1, 0));
    vm.audit().unwrap();
    // The same if the other had single pages of it.
    let other = vm.fork(child).unwrap();
    touch(&vm, other, BASE, Access::Write);
    assert_eq!(vm.exit(other), Ok(true));
    touch(&vm, child, BASE + 99, Access::Write);
    assert_eq!(sizes(&vm, child).len(), 1);
    assert_eq!(vm.stats().events.cow_copies, 1);
    vm.audit().unwrap();
    // Its frames have a record each by now; fork has to copy entries.
    let other = vm.fork(child).unwrap();
    assert_eq!(sizes(&vm, other).len(), PAGES as usize);
    vm.audit().unwrap();
    assert_eq!(vm.exit(child), Ok(true));
    assert_eq!(vm.exit(other), Ok(true));
    vm.audit().unwrap();
}

/// Whichever page it is that another space still has, a store to any other does not make it
/// writable.
#[test]
fn a_superpage_of_which_others_have_a_page_is_not_stored_to_whole() {
    for shared in [0, 31, PAGES - 1] {
        let vm = superpages::<Family>("", 8192);
        let space = one_superpage(&vm);
        let child = vm.fork(space).unwrap();
        for (from, to) in [(0, shared), (shared + 1, PAGES)] {
            if from < to {
                vm.unmap(child, Vpn(BASE + from), to - from).unwrap();
            }
        }
        assert_eq!(sizes(&vm, space).len(), 1);
        touch(&vm, space, BASE + 99, Access::Write);
        assert_eq!(sizes(&vm, space).len(), PAGES as usize, "{shared}");
        let prot = |page| vm.translate(space, Vpn(BASE + page)).unwrap().1;
        assert_eq!((prot(99), prot(shared)), (RW, Prot::READ));
        assert_eq!(vm.stats().events.cow_copies, 0);
        vm.audit().unwrap();
    }
}

#[test]
fn an_unmapped_part_of_a_shared_superpage_is_the_other_spaces_alone() {
    let vm = superpages::<ByEntries>("", 8192);
    let space = one_superpage(&vm);
    let child = vm.fork(space).unwrap();
    vm.unmap(space, Vpn(BASE), 256).unwrap();
    assert_eq!(sizes(&vm, child).len(), 1);
    let report = vm.audit().unwrap();
    assert_eq!(report.frames.of(Kind::Anonymous), PAGES);
    vm.unmap(child, Vpn(BASE + 128), 256).unwrap();
    let report = vm.audit().unwrap();
    assert_eq!(report.frames.of(Kind::Anonymous), PAGES - 128);
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(vm.exit(child), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn mappings_move_away_from_superpages_and_into_their_place() {
    let vm = superpages::<Family>("", 8192);
    let space = one_superpage(&vm);
    let frame = frame_of(&vm, space, BASE + 100).unwrap();
    vm.platform().scribble(frame, 0x17);
    let to = RemapPlacement::Fixed(Vpn(0x30000));
    vm.remap(space, Vpn(BASE + 100), 8, 8, to).unwrap();
    assert_eq!(frame_of(&vm, space, 0x30000), Some(frame));
    vm.audit().unwrap();
    let other = one_superpage(&vm);
    map(&vm, other, 0x30000, MapRequest::anonymous(8, RW));
    touch(&vm, other, 0x30003, Access::Write);
    let frame = frame_of(&vm, other, 0x30003);
    let to = RemapPlacement::Fixed(Vpn(BASE + 200));
    vm.remap(other, Vpn(0x30000), 8, 8, to).unwrap();
    assert_eq!(frame_of(&vm, other, BASE + 203), frame);
    assert_eq!(frame_of(&vm, other, BASE + 202), None);
    vm.audit().unwrap();
}

#[test]
fn pins_are_of_single_pages_and_survive_the_rest() {
    let vm = superpages::<ByEntries>("", 8192);
    let space = one_superpage(&vm);
    let child = vm.fork(space).unwrap();
    let mut frames = [Pfn::NONE; 2];
    vm.pin_pages(space, Vpn(BASE + 9), Access::Read, &mut frames)
        .unwrap();
    // What the child sees is not the page that is pinned.
    assert_eq!(frame_of(&vm, space, BASE + 9), Some(frames[0]));
    assert_ne!(frame_of(&vm, child, BASE + 9), Some(frames[0]));
    vm.audit().unwrap();
    // Another child gets copies of the pinned pages, and shares the others.
    let grandchild = vm.fork(space).unwrap();
    assert_ne!(frame_of(&vm, grandchild, BASE + 9), Some(frames[0]));
    assert_eq!(
        frame_of(&vm, grandchild, BASE + 11),
        frame_of(&vm, space, BASE + 11)
    );
    for space in [space, child, grandchild] {
        assert_eq!(vm.exit(space), Ok(true));
    }
    assert_eq!(vm.audit().unwrap().frames.of(Kind::Anonymous), 2);
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    vm.audit().unwrap();
}

#[test]
fn a_scan_looks_a_whole_superpage_up_once_and_finds_every_mapping() {
    let vm = superpages::<Family>("", 8192);
    let space = one_superpage(&vm);
    let child = vm.fork(space).unwrap();
    let whole = PageRange::new(Vpn(BASE - 40), PAGES + 80);
    let report = vm.scan_space(space, whole).unwrap();
    assert_eq!((report.pages, report.hits), (1, 2));
    assert_eq!(report.accessed, 2);
    touch(&vm, child, BASE, Access::Write);
    let report = vm.scan_space(space, whole).unwrap();
    // Each frame has a record now; the child has its own page at one place.
    assert_eq!((report.pages, report.hits), (PAGES, 2 * PAGES - 1));
    vm.audit().unwrap();
}

#[test]
fn free_advice_marks_the_pages_of_a_superpage() {
    let vm = superpages::<Family>("", 8192);
    let space = one_superpage(&vm);
    vm.advise(space, Vpn(BASE + 1), 3, Advice::Free).unwrap();
    let lazy = |page| {
        let frame = frame_of(&vm, space, BASE + page).unwrap();
        vm.memory
            .frame(frame)
            .private()
            .has(PrivateFlags::LAZY_FREE)
    };
    assert_eq!([0, 1, 3, 4].map(lazy), [false, true, true, false]);
    vm.audit().unwrap();
}

#[test]
fn demotion_flushes_before_the_table_is_there() {
    let vm = superpages::<Family>("", 8192);
    let space = one_superpage(&vm);
    let _loaded = vm.load(space).unwrap();
    vm.platform().take_flushes();
    vm.protect(space, Vpn(BASE + 5), 2, Prot::READ).unwrap();
    let flushes = vm.platform().take_flushes();
    let ranges: Vec<_> = flushes.iter().map(|(_, flush)| flush.range).collect();
    let page = |page, pages| Some(PageRange::new(Vpn(page), pages));
    assert_eq!(ranges, [page(BASE, 1), page(BASE + 5, 2)]);
    vm.audit().unwrap();
}

#[test]
fn cpus_forget_the_superpages_that_fork_shares() {
    let vm = superpages::<Family>("", 8192);
    let space = one_superpage(&vm);
    let _loaded = vm.load(space).unwrap();
    vm.platform().take_flushes();
    let child = vm.fork(space).unwrap();
    let flushes = vm.platform().take_flushes();
    let is_covered = |range: PageRange| range.start <= Vpn(BASE) && Vpn(BASE) < range.end;
    let covers = |(_, flush): &(_, crate::platform::Flush)| flush.range.is_none_or(is_covered);
    assert!(flushes.iter().any(covers), "{flushes:?}");
    vm.exit(child).unwrap();
    vm.audit().unwrap();
}

#[test]
fn stacks_heaps_and_cut_regions_keep_their_superpages_inside() {
    let vm = superpages::<ByEntries>("", 8192);
    let space = vm.begin_space().unwrap();
    vm.set_heap_start(space, Vpn(BASE)).unwrap();
    vm.set_heap_end(space, Vpn(BASE + 3 * PAGES)).unwrap();
    for page in 0..3 {
        touch(&vm, space, BASE + page * PAGES + 5, Access::Write);
    }
    assert_eq!(sizes(&vm, space).len(), 3);
    vm.set_heap_end(space, Vpn(BASE + PAGES + 10)).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().rss.anonymous, PAGES + 10);
    vm.audit().unwrap();
    vm.set_heap_end(space, Vpn(BASE + 1)).unwrap();
    assert_eq!(sizes(&vm, space).len(), 1);
    vm.audit().unwrap();
    let child = vm.fork(space).unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(vm.exit(child), Ok(true));
    vm.audit().unwrap();
}

/// A superpage's pages as single ones, with the first byte of the first 8 set.
fn singles<R: crate::rmap::ReverseMap>(vm: &TestVm<R>) -> SpaceId {
    let space = one_superpage(vm);
    vm.advise(space, Vpn(BASE + 400), 100, Advice::DontNeed)
        .unwrap();
    for page in 0..8 {
        let frame = frame_of(vm, space, BASE + page).unwrap();
        vm.platform().scribble(frame, page as u8 + 1);
    }
    touch(vm, space, BASE + 410, Access::Read);
    space
}

#[test]
fn single_pages_become_a_superpage_with_their_contents() {
    let vm = superpages::<ByEntries>("", 8192);
    let space = singles(&vm);
    let report = vm.collapse(space, Vpn(BASE), 8, 1).unwrap();
    assert_eq!((report.scanned, report.collapsed), (1, 1));
    assert_eq!(report.next, <X86_64 as crate::table::Format>::USER_END);
    let leaves = sizes(&vm, space);
    assert_eq!(leaves.len(), 1);
    let (_, first, pages) = leaves[0];
    assert_eq!(pages, PAGES);
    for step in 0..PAGES as u32 {
        let byte = if step < 8 { step as u8 + 1 } else { 0 };
        assert_eq!(
            vm.platform().peek(first.offset(step)),
            [byte; 4096],
            "{step}"
        );
    }
    let stats = vm.space_stats(space).unwrap();
    assert_eq!((stats.rss.anonymous, stats.rss.zero), (PAGES, 0));
    let report = vm.audit().unwrap();
    assert_eq!(report.frames.of(Kind::Anonymous), PAGES);
    // One fault gives the right to store back, and it can be split again.
    touch(&vm, space, BASE + 1, Access::Write);
    assert_eq!(sizes(&vm, space).len(), 1);
    vm.unmap(space, Vpn(BASE + 3), 1).unwrap();
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn pages_that_are_shared_pinned_or_too_few_stay_single() {
    let vm = superpages::<Family>("", 8192);
    let space = singles(&vm);
    let collapsed = |least| vm.collapse(space, Vpn(BASE), 8, least).unwrap().collapsed;
    assert_eq!(collapsed(414), 0, "413 are resident");
    let child = vm.fork(space).unwrap();
    assert_eq!(collapsed(1), 0);
    assert_eq!(vm.exit(child), Ok(true));
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, Vpn(BASE), Access::Write, &mut frames)
        .unwrap();
    assert_eq!(collapsed(1), 0);
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    vm.protect(space, Vpn(BASE + 5), 1, Prot::READ).unwrap();
    assert_eq!(collapsed(1), 0, "two regions and a part of a third");
    vm.protect(space, Vpn(BASE + 5), 1, RW).unwrap();
    assert_eq!(collapsed(413), 1);
    vm.audit().unwrap();
}

#[test]
fn a_collapse_goes_on_where_the_last_one_ended() {
    let vm = superpages::<Family>("", 8192);
    let space = vm.begin_space().unwrap();
    map(&vm, space, BASE, MapRequest::anonymous(3 * PAGES, RW));
    for page in 0..3 {
        touch(&vm, space, BASE + page * PAGES, Access::Write);
        vm.advise(space, Vpn(BASE + page * PAGES), 1, Advice::DontNeed)
            .unwrap();
    }
    let report = vm.collapse(space, Vpn(0), 2, 1).unwrap();
    assert_eq!((report.scanned, report.collapsed), (2, 2));
    assert_eq!(report.next, Vpn(BASE + 2 * PAGES));
    let report = vm.collapse(space, report.next, 2, 1).unwrap();
    assert_eq!((report.scanned, report.collapsed), (1, 1));
    assert_eq!(sizes(&vm, space).len(), 3);
    vm.audit().unwrap();
}
