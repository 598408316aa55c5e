//! Reservations and promotion: who gets which frame of a run, and when a full table becomes
//! one large leaf.

use super::*;
use crate::frame::{FailAt, MAX_ORDER, Site};
use crate::rmap::{Family, ReverseMap};
use crate::table::LockedTable;

/// First page of a range of a superpage's size, and of the region that holds it and more.
const BASE: u64 = 0x10000;
const PAGES: u64 = 512;

fn reserving<R: ReverseMap>(design: &str, frames: u32) -> TestVm<R> {
    vm_with(&std::format!("superpage=reserve,{design}"), frames)
}

/// A space with a region around one range of a superpage's size.
fn one_range<R: ReverseMap>(vm: &TestVm<R>) -> SpaceId {
    let space = vm.begin_space().unwrap();
    map(vm, space, BASE - 40, MapRequest::anonymous(PAGES + 80, RW));
    space
}

fn store_to<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, pages: core::ops::Range<u64>) {
    for page in pages {
        touch(vm, space, BASE + page, Access::Write);
    }
}

fn promoted<R: ReverseMap>(vm: &TestVm<R>) -> SpaceId {
    let space = one_range(vm);
    store_to(vm, space, 0..PAGES);
    space
}

fn frame_of<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64) -> Pfn {
    vm.translate(space, Vpn(BASE + page)).unwrap().0
}

fn leaf_count<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> usize {
    leaves(vm, space).len()
}

/// Everything ends, and all frames are free again.
fn end<R: ReverseMap>(vm: &TestVm<R>, spaces: &[SpaceId]) {
    vm.audit().unwrap();
    for &space in spaces {
        assert_eq!(vm.exit(space), Ok(true));
        vm.audit().unwrap();
    }
    let census = vm.audit().unwrap().frames;
    assert_eq!((census.of(Kind::Anonymous), census.set_aside), (0, 0));
    assert_eq!(vm.stats().frames.reservations.unused, 0);
}

#[test]
fn faults_take_the_frames_at_their_places_in_the_run() {
    let vm = reserving::<Family>("", 8192);
    let space = one_range(&vm);
    let order = [77, 3, 511, 0, 100];
    for page in order {
        touch(&vm, space, BASE + page, Access::Write);
        let frame = frame_of(&vm, space, page);
        assert_eq!(u64::from(frame.0) % PAGES, page);
        assert_eq!(frame.0 - page as u32, frame_of(&vm, space, 77).0 - 77);
        assert_eq!(vm.platform().peek(frame), [0; 4096]);
    }
    // Outside of the range nothing is set aside.
    touch(&vm, space, BASE - 1, Access::Write);
    let stats = vm.stats();
    assert_eq!(stats.events.reservations, 1);
    assert_eq!(stats.frames.reservations.populated, order.len() as u64);
    let census = vm.audit().unwrap().frames;
    assert_eq!(census.set_aside, PAGES - order.len() as u64);
    end(&vm, &[space]);
}

#[test]
fn a_range_that_is_first_loaded_from_is_filled_from_a_run_later() {
    let vm = reserving::<ByEntries>("", 8192);
    let space = one_range(&vm);
    for page in 0..PAGES {
        touch(&vm, space, BASE + page, Access::Read);
    }
    assert_eq!(vm.audit().unwrap().frames.set_aside, PAGES);
    store_to(&vm, space, 0..PAGES);
    assert_eq!(leaf_count(&vm, space), 1);
    end(&vm, &[space]);
}

/// The designs, each with its own type.
macro_rules! under_every_design {
    ($($(#[$about:meta])* $module:ident: $design:ident $value:literal;)*) => {
        /// Fills, promotes, forks, splits by a store, and splits by calls; whatever is done, no
        /// more than the pages concerned change frames.
        #[test]
        fn a_full_range_becomes_a_superpage_and_behaves_as_one_under_every_design() {
            $(life_of_a_superpage::<crate::rmap::$design>();)*
        }
    };
}
crate::every_rmap! { [under_every_design] }

fn life_of_a_superpage<R: ReverseMap>() {
    let vm = reserving::<R>("", 8192);
    let space = one_range(&vm);
    store_to(&vm, space, 0..PAGES - 1);
    assert_eq!(leaf_count(&vm, space), PAGES as usize - 1);
    let before: Vec<_> = (0..PAGES - 1)
        .map(|page| frame_of(&vm, space, page))
        .collect();
    store_to(&vm, space, PAGES - 1..PAGES);
    assert_eq!(leaf_count(&vm, space), 1, "{}", R::NAME);
    let stats = vm.stats();
    assert_eq!(stats.events.superpage_promotions, 1);
    assert_eq!(stats.frames.reservations.unused, 0);
    vm.audit().unwrap();
    let same = |space, but: u64| {
        let mut pages = (0..PAGES - 1).filter(|&page| page != but);
        pages.all(|page| frame_of(&vm, space, page) == before[page as usize])
    };
    assert!(same(space, PAGES));
    // Shared whole, with one record, which the first fork makes of those that the pages have.
    let order = || vm.memory.frame(before[0]).order();
    assert_eq!(order(), 0);
    let child = vm.fork(space).unwrap();
    assert_eq!(order(), 9);
    assert_eq!(leaf_count(&vm, child), 1, "{}", R::NAME);
    vm.audit().unwrap();
    touch(&vm, child, BASE + 9, Access::Write);
    assert_eq!(leaf_count(&vm, child), PAGES as usize, "{}", R::NAME);
    assert!(same(child, 9));
    assert_eq!(vm.stats().events.cow_copies, 1);
    vm.audit().unwrap();
    assert_eq!(vm.exit(child), Ok(true));
    // Alone again, in parts.
    touch(&vm, space, BASE + 40, Access::Write);
    vm.unmap(space, Vpn(BASE + 100), 1).unwrap();
    assert_eq!(leaf_count(&vm, space), PAGES as usize - 1);
    assert!(same(space, 100));
    end(&vm, &[space]);
}

/// The order of the free block that a frame lies in, if it lies in one.
fn free_block_around<R: ReverseMap>(vm: &TestVm<R>, frame: Pfn) -> Option<u32> {
    (0..=MAX_ORDER).rev().find(|&order| {
        let head = Pfn(frame.0 >> order << order);
        let record = vm.memory.contains(head).then(|| vm.memory.frame(head));
        record.is_some_and(|head| head.kind() == Kind::Free && head.order() == order)
    })
}

#[test]
fn a_promoted_run_goes_back_as_one_block() {
    let vm = reserving::<Family>("", 8192);
    for is_forked in [false, true] {
        let space = promoted(&vm);
        let first = frame_of(&vm, space, 0);
        if is_forked {
            let child = vm.fork(space).unwrap();
            assert_eq!(vm.exit(child), Ok(true));
        }
        vm.unmap(space, Vpn(BASE), PAGES).unwrap();
        // Frames that go back one by one stay in the CPU's list, the last of them at least.
        let free = free_block_around(&vm, first);
        assert!(
            free >= Some(9),
            "a block of order {free:?}, forked: {is_forked}"
        );
        end(&vm, &[space]);
    }
}

/// What was promoted and is split before its records are made one costs no record anything:
/// the pages are what they were.
#[test]
fn a_superpage_that_is_split_again_has_the_records_of_its_pages() {
    let vm = reserving::<Family>("", 8192);
    let space = promoted(&vm);
    let records = |vm: &TestVm<Family>| -> Vec<_> {
        let pages = (0..PAGES).filter(|&page| page != 7);
        let frames = pages.map(|page| frame_of(vm, space, page));
        let record = |frame: Pfn| {
            let frame = vm.memory.frame(frame);
            (frame.counts(), frame.index(), frame.came_in_run())
        };
        frames.map(record).collect()
    };
    let before = records(&vm);
    assert!(before.iter().all(|&(_, _, came_in_run)| !came_in_run));
    vm.advise(space, Vpn(BASE + 7), 1, Advice::DontNeed)
        .unwrap();
    touch(&vm, space, BASE + 7, Access::Read);
    assert_eq!(leaf_count(&vm, space), PAGES as usize);
    assert_eq!(records(&vm), before);
    end(&vm, &[space]);
}

/// One page of a superpage is another space's as well: the others leave one by one, and that
/// one stays.
#[test]
fn a_superpage_of_which_one_page_is_shared_is_not_freed_as_one() {
    for shared in [0, 1, 300, PAGES - 1] {
        let vm = reserving::<Family>("", 8192);
        let space = promoted(&vm);
        let frame = frame_of(&vm, space, shared);
        let child = vm.fork(space).unwrap();
        for (from, to) in [(0, shared), (shared + 1, PAGES)] {
            if from < to {
                vm.unmap(child, Vpn(BASE + from), to - from).unwrap();
            }
        }
        assert_eq!((leaf_count(&vm, space), leaf_count(&vm, child)), (1, 1));
        vm.audit().unwrap();
        vm.unmap(space, Vpn(BASE), PAGES).unwrap();
        let census = vm.audit().unwrap().frames;
        assert_eq!(census.of(Kind::Anonymous), 1);
        assert_eq!(frame_of(&vm, child, shared), frame);
        end(&vm, &[child, space]);
    }
}

#[test]
fn unmapping_a_part_gives_the_unused_frames_back() {
    let vm = reserving::<ByEntries>("", 8192);
    for (at, pages) in [(3, 1), (300, 10), (PAGES - 1, 41)] {
        let space = one_range(&vm);
        store_to(&vm, space, 0..8);
        assert_eq!(vm.audit().unwrap().frames.set_aside, PAGES - 8);
        vm.unmap(space, Vpn(BASE + at), pages).unwrap();
        assert_eq!(vm.audit().unwrap().frames.set_aside, 0, "unmapped at {at}");
        touch(&vm, space, BASE + 20, Access::Write);
        end(&vm, &[space]);
    }
    assert_eq!(vm.stats().frames.reservations.broken, 0);
}

#[test]
fn moving_pages_away_or_dropping_them_ends_the_reservation() {
    let vm = reserving::<ByEntries>("", 8192);
    let space = one_range(&vm);
    store_to(&vm, space, 0..8);
    let to = RemapPlacement::Fixed(Vpn(BASE * 2));
    vm.remap(space, Vpn(BASE + 2), 3, 3, to).unwrap();
    assert_eq!(vm.audit().unwrap().frames.set_aside, 0);
    store_to(&vm, space, 5..PAGES);
    assert_eq!(vm.stats().events.superpage_promotions, 0);
    map(&vm, space, BASE + 2, MapRequest::anonymous(3, RW));
    vm.advise(space, Vpn(BASE), PAGES, Advice::DontNeed)
        .unwrap();
    // The range has no table any more: it is filled anew.
    store_to(&vm, space, 0..8);
    assert_eq!(vm.audit().unwrap().frames.set_aside, PAGES - 8);
    vm.advise(space, Vpn(BASE), 4, Advice::DontNeed).unwrap();
    assert_eq!(vm.audit().unwrap().frames.set_aside, 0);
    end(&vm, &[space]);
}

/// Frames that nobody uses do not make an allocation fail, and the oldest run goes first.
#[test]
fn the_oldest_reservations_are_broken_when_memory_is_used_up() {
    for lists in crate::testing::built_in(["framelists=runs", "framelists=linked"]) {
        let vm = reserving::<Family>(lists, 4096);
        let space = vm.begin_space().unwrap();
        map(&vm, space, BASE, MapRequest::anonymous(8 * PAGES, RW));
        let mut ranges = Vec::new();
        for range in 0..8 {
            touch(&vm, space, BASE + range * PAGES, Access::Write);
            ranges.push(vm.stats().events.reservations);
        }
        let made = vm.stats().events.reservations;
        assert!(made > 3, "{ranges:?}");
        vm.audit().unwrap();
        let mut page = BASE * 8;
        map(&vm, space, page, MapRequest::anonymous(8 * PAGES, RW));
        // One page each in ranges that would be set aside: there is no run any more.
        let mut kept = 0;
        while vm.fault(space, page << 12, Access::Write).is_ok() {
            page += 1;
            let stats = vm.stats().frames.reservations;
            if stats.broken == 1 && kept == 0 {
                kept = stats.unused;
                // The second page of the first range is an ordinary one now, that of the
                // last range its run's.
                touch(&vm, space, BASE + 1, Access::Write);
                let first = frame_of(&vm, space, 0);
                touch(&vm, space, BASE + (made - 1) * PAGES + 1, Access::Write);
                let last = frame_of(&vm, space, (made - 1) * PAGES);
                assert_eq!(frame_of(&vm, space, (made - 1) * PAGES + 1).0, last.0 + 1);
                assert_ne!(frame_of(&vm, space, 1).0, first.0 + 1);
            }
        }
        let stats = vm.stats().frames.reservations;
        assert!(kept > 0, "{lists}");
        assert_eq!((stats.broken, stats.unused), (stats.made, 0), "{lists}");
        assert!(vm.stats().frames.free < 64, "{lists}");
        end(&vm, &[space]);
    }
}

/// Every frame is somebody's once: contents survive a break.
#[test]
fn a_broken_run_keeps_the_pages_that_were_taken_and_no_frame_is_given_out_twice() {
    let vm = reserving::<Family>("", 2048);
    let space = one_range(&vm);
    for page in (0..PAGES).step_by(3) {
        touch(&vm, space, BASE + page, Access::Write);
    }
    map(&vm, space, BASE * 4, MapRequest::anonymous(4096, RW));
    for page in 0.. {
        if vm
            .fault(space, (BASE * 4 + page) << 12, Access::Write)
            .is_err()
        {
            break;
        }
    }
    let mut frames: Vec<_> = leaves(&vm, space)
        .into_iter()
        .map(|(_, frame)| frame)
        .collect();
    frames.sort_by_key(|frame| frame.0);
    let count = frames.len();
    frames.dedup();
    assert_eq!(frames.len(), count);
    end(&vm, &[space]);
}

#[test]
fn a_run_of_the_page_cache_does_not_wait_for_reservations() {
    // Where there is no run, single pages do, and no reservation is broken for it.
    let vm = reserving::<ByEntries>("", 1500);
    let space = vm.begin_space().unwrap();
    map(&vm, space, BASE, MapRequest::anonymous(8 * PAGES, RW));
    for range in 0..8 {
        touch(&vm, space, BASE + range * PAGES, Access::Write);
    }
    let stats = vm.stats();
    assert_eq!(stats.frames.reservations.broken, 0);
    assert_eq!(
        stats.events.reservations + stats.events.superpage_failures,
        8
    );
    assert!(stats.events.superpage_failures > 4);
    end(&vm, &[space]);
}

#[test]
fn entries_that_differ_are_not_promoted_until_they_are_alike() {
    let vm = reserving::<ByEntries>("", 8192);
    let space = one_range(&vm);
    store_to(&vm, space, 0..PAGES / 2);
    vm.protect(space, Vpn(BASE + 5), 1, Prot::READ).unwrap();
    store_to(&vm, space, PAGES / 2..PAGES);
    assert_eq!(leaf_count(&vm, space), PAGES as usize);
    vm.audit().unwrap();
    vm.protect(space, Vpn(BASE + 5), 1, RW).unwrap();
    // The fault that gives the last page its right back.
    touch(&vm, space, BASE + 5, Access::Write);
    let events = vm.stats().events;
    assert_eq!(
        (leaf_count(&vm, space), events.superpage_promotions),
        (1, 1)
    );
    end(&vm, &[space]);
}

/// `mremap` keeps a table to which it moves entries, and finds it there.
#[test]
fn a_table_that_is_kept_is_not_promoted() {
    let vm = reserving::<ByEntries>("", 8192);
    let space = one_range(&vm);
    store_to(&vm, space, 0..PAGES - 1);
    let with_table = |work: &dyn Fn(&LockedTable<'_, X86_64>)| {
        let pin = vm.pin();
        let tables = vm.tables(&pin, vm.find_space(space).unwrap());
        work(&tables.lock(Vpn(BASE)).unwrap());
    };
    with_table(&|table| table.keep());
    store_to(&vm, space, PAGES - 1..PAGES);
    assert_eq!(leaf_count(&vm, space), PAGES as usize);
    with_table(&|table| table.release());
    vm.protect(space, Vpn(BASE + 5), 1, Prot::READ).unwrap();
    vm.protect(space, Vpn(BASE + 5), 1, RW).unwrap();
    touch(&vm, space, BASE + 5, Access::Write);
    assert_eq!(leaf_count(&vm, space), 1);
    end(&vm, &[space]);
}

/// A page that left and came back has a frame from elsewhere.
#[test]
fn a_page_that_lies_elsewhere_keeps_its_range_from_being_promoted() {
    let vm = reserving::<Family>("", 8192);
    let space = promoted(&vm);
    let advice = Advice::DontNeed;
    vm.advise(space, Vpn(BASE + 5), 1, advice).unwrap();
    // Takes the frame that the page had.
    touch(&vm, space, BASE - 1, Access::Write);
    store_to(&vm, space, 5..6);
    assert_ne!(frame_of(&vm, space, 5).0, frame_of(&vm, space, 0).0 + 5);
    assert_eq!(leaf_count(&vm, space), PAGES as usize + 1);
    assert_eq!(vm.stats().events.superpage_promotions, 1);
    end(&vm, &[space]);
}

#[test]
fn a_superpage_counts_as_accessed_if_all_of_its_pages_were() {
    for unused in [None, Some(0), Some(5), Some(PAGES - 1)] {
        let vm = reserving::<Family>("", 8192);
        let space = one_range(&vm);
        let last = 200;
        store_to(&vm, space, 0..last);
        store_to(&vm, space, last + 1..PAGES);
        let taken = |page, pages| {
            let range = PageRange::new(Vpn(BASE + page), pages);
            vm.scan_space(space, range).unwrap().accessed
        };
        if let Some(page) = unused {
            assert_eq!(taken(page, 1), 1);
        }
        store_to(&vm, space, last..last + 1);
        assert_eq!(leaf_count(&vm, space), 1);
        let is_accessed = taken(0, PAGES) > 0;
        assert_eq!(is_accessed, unused.is_none(), "unused: {unused:?}");
        end(&vm, &[space]);
    }
}

#[test]
fn a_superpage_that_was_split_is_made_again_when_its_pages_are_alike() {
    let vm = reserving::<Family>("", 8192);
    let space = promoted(&vm);
    vm.protect(space, Vpn(BASE + 5), 1, Prot::READ).unwrap();
    assert_eq!(leaf_count(&vm, space), PAGES as usize);
    vm.protect(space, Vpn(BASE + 5), 1, RW).unwrap();
    touch(&vm, space, BASE + 5, Access::Write);
    assert_eq!(leaf_count(&vm, space), 1);
    assert_eq!(vm.stats().events.superpage_promotions, 2);
    end(&vm, &[space]);
}

/// A page that may be stored to and is clean loses the right first: the store that comes
/// after makes one page dirty, and with the last of them all are alike.
#[test]
fn clean_pages_are_protected_before_they_are_compared() {
    let vm = reserving::<Family>("", 8192);
    let space = one_range(&vm);
    store_to(&vm, space, 0..PAGES - 1);
    vm.advise(space, Vpn(BASE), PAGES - 1, Advice::Free)
        .unwrap();
    store_to(&vm, space, PAGES - 1..PAGES);
    assert_eq!(leaf_count(&vm, space), PAGES as usize);
    vm.audit().unwrap();
    let can_write = |page| vm.translate(space, Vpn(BASE + page)).unwrap().1.can_write();
    // Seen from the end: the first difference ended the attempt.
    assert!(can_write(PAGES - 1) && !can_write(0));
    end(&vm, &[space]);
}

/// The parent has copied a page that it shared with its child, and has all others to itself.
#[test]
fn a_page_that_was_copied_keeps_its_range_from_being_promoted() {
    let vm = reserving::<Family>("", 8192);
    let space = one_range(&vm);
    store_to(&vm, space, 0..100);
    let child = vm.fork(space).unwrap();
    store_to(&vm, space, 100..PAGES);
    store_to(&vm, space, 5..6);
    let copy = frame_of(&vm, space, 5);
    assert_ne!(copy.0, frame_of(&vm, space, 0).0 + 5);
    assert_eq!(vm.exit(child), Ok(true));
    store_to(&vm, space, 0..PAGES);
    assert_eq!(leaf_count(&vm, space), PAGES as usize);
    assert_eq!(frame_of(&vm, space, 5), copy);
    end(&vm, &[space]);
}

#[test]
fn pages_that_fork_shares_or_that_are_pinned_are_not_given_one_record() {
    let vm = reserving::<ByEntries>("", 8192);
    let space = one_range(&vm);
    store_to(&vm, space, 0..100);
    let child = vm.fork(space).unwrap();
    store_to(&vm, space, 100..PAGES);
    assert_eq!(leaf_count(&vm, space), PAGES as usize);
    // Its copies come from elsewhere.
    store_to(&vm, child, 0..50);
    vm.audit().unwrap();
    assert_eq!(vm.exit(child), Ok(true));
    store_to(&vm, space, 0..PAGES);
    assert_eq!(leaf_count(&vm, space), 1);
    vm.audit().unwrap();
    end(&vm, &[space]);
}

/// Moved by one page, the frames of two runs that follow one another fill a table in order, but
/// begin where no superpage may.
#[test]
fn frames_that_begin_elsewhere_than_a_superpage_are_not_promoted() {
    let vm = reserving::<Family>("", 8192);
    let space = vm.begin_space().unwrap();
    map(&vm, space, BASE, MapRequest::anonymous(2 * PAGES, RW));
    store_to(&vm, space, 0..2 * PAGES);
    assert_eq!(leaf_count(&vm, space), 2);
    let runs = [0, PAGES].map(|page| frame_of(&vm, space, page).0);
    assert_eq!(runs[1], runs[0] + PAGES as u32);
    let to = RemapPlacement::Fixed(Vpn(BASE * 2 + 1));
    vm.remap(space, Vpn(BASE), 2 * PAGES, 2 * PAGES, to)
        .unwrap();
    let page = BASE + PAGES + 5;
    vm.protect(space, Vpn(BASE + page), 1, Prot::READ).unwrap();
    vm.protect(space, Vpn(BASE + page), 1, RW).unwrap();
    touch(&vm, space, BASE + page, Access::Write);
    assert_eq!(leaf_count(&vm, space), 2 * PAGES as usize);
    assert_eq!(vm.stats().events.superpage_promotions, 2);
    end(&vm, &[space]);
}

/// Whoever pinned a page writes to the parent's, so a child must not have it: a superpage that
/// was made with the page is not shared whole.
#[test]
fn a_superpage_with_a_pinned_page_is_not_shared_by_fork() {
    for pinned in [0, 5] {
        let vm = reserving::<Family>("", 8192);
        let space = one_range(&vm);
        store_to(&vm, space, 0..PAGES - 1);
        let mut frames = [Pfn::NONE];
        let at = Vpn(BASE + pinned);
        vm.pin_pages(space, at, Access::Write, &mut frames).unwrap();
        store_to(&vm, space, PAGES - 1..PAGES);
        assert_eq!(leaf_count(&vm, space), 1);
        let child = vm.fork(space).unwrap();
        assert_eq!(frame_of(&vm, space, pinned), frames[0]);
        assert_ne!(frame_of(&vm, child, pinned), frames[0]);
        assert_eq!(frame_of(&vm, child, 9), frame_of(&vm, space, 9));
        // SAFETY: pinned above, once.
        unsafe { vm.unpin(&frames) };
        end(&vm, &[child, space]);
    }
}

#[test]
fn without_a_table_to_keep_nothing_is_promoted_and_nothing_else_fails() {
    let vm = reserving::<Family>("", 8192);
    let space = one_range(&vm);
    store_to(&vm, space, 0..PAGES - 1);
    let plan = |site| {
        let after = 0;
        vm.memory().inject(Some(FailAt { site, after }));
    };
    plan(Site::TablePage);
    store_to(&vm, space, PAGES - 1..PAGES);
    assert_eq!(leaf_count(&vm, space), PAGES as usize);
    vm.audit().unwrap();
    vm.memory().inject(None);
    let other = one_range(&vm);
    plan(Site::Reservation);
    touch(&vm, other, BASE, Access::Write);
    assert_eq!(vm.stats().events.superpage_failures, 1);
    vm.memory().inject(None);
    end(&vm, &[space, other]);
}

#[test]
fn a_range_that_one_region_does_not_hold_is_not_set_aside() {
    let vm = reserving::<Family>("", 8192);
    let space = vm.begin_space().unwrap();
    map(&vm, space, BASE, MapRequest::anonymous(PAGES - 1, RW));
    let shared = MapRequest {
        traits: Traits::SHARED,
        ..MapRequest::anonymous(PAGES, RW)
    };
    map(&vm, space, BASE * 2, shared);
    touch(&vm, space, BASE, Access::Write);
    touch(&vm, space, BASE * 2, Access::Write);
    assert_eq!(vm.stats().events.reservations, 0);
    end(&vm, &[space]);
}
