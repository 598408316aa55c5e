//! Folios: what one store maps, and that each page is by itself afterwards.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "a space that maps one range of pages has a list of one"
)]

use core::ops::Range;
use std::format;

use super::*;
use crate::frame::{FailAt, OwnedBlock, Request, Site};
use crate::rmap::{Family, ReverseMap};
use crate::swap::SwapArea;
use crate::table::{Aarch64_16K, Aarch64_64K, Format, Marks};

/// First page of a range that is aligned to every folio.
const BASE: u64 = 0x10000;

fn folios<R: ReverseMap>(design: &str) -> TestVm<R> {
    vm_with(&format!("folio=64k,{design}"), 4096)
}

/// A space with a region of these pages, counted from `BASE`.
fn with_region<R: ReverseMap>(vm: &TestVm<R>, pages: Range<u64>) -> SpaceId {
    let space = vm.begin_space().unwrap();
    let request = MapRequest::anonymous(pages.end - pages.start, RW);
    map(vm, space, BASE + pages.start, request);
    space
}

fn store<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64) {
    touch(vm, space, BASE + page, Access::Write);
}

fn frame_of<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64) -> Option<Pfn> {
    vm.translate(space, Vpn(BASE + page))
        .map(|(frame, _)| frame)
}

/// The pages that are mapped, counted from `BASE`, as ranges.
fn mapped<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (page, _) in leaves(vm, space) {
        let page = page - BASE;
        match ranges.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => ranges.push(page..page + 1),
        }
    }
    ranges
}

/// Everything ends, and all frames are free again.
fn end<R: ReverseMap>(vm: &TestVm<R>, spaces: &[SpaceId]) {
    vm.audit().unwrap();
    for &space in spaces {
        assert_eq!(vm.exit(space), Ok(true));
        vm.audit().unwrap();
    }
    assert_eq!(vm.audit().unwrap().frames.of(Kind::Anonymous), 0);
}

#[test]
fn a_first_store_maps_the_aligned_pages_around_it_from_one_block() {
    let vm = folios::<Family>("");
    let space = with_region(&vm, 0..100);
    store(&vm, space, 37);
    let first = frame_of(&vm, space, 32).unwrap();
    assert_eq!(first.0 % 16, 0);
    for step in 0..16 {
        let frame = first.offset(step as u32);
        assert_eq!(frame_of(&vm, space, 32 + step), Some(frame));
        assert_eq!(vm.platform().peek(frame), [0; 4096]);
        let record = vm.memory().frame(frame);
        assert_eq!((record.counts().refs(), record.counts().maps()), (1, 1));
    }
    assert_eq!(mapped(&vm, space), [32..48]);
    let events = vm.stats().events;
    assert_eq!((events.folio_maps, events.folio_pages), (1, 16));
    assert_eq!((events.zero_fills, events.faults), (16, 1));
    assert_eq!(vm.space_stats(space).unwrap().rss.anonymous, 16);
    end(&vm, &[space]);
}

#[test]
fn only_the_page_that_is_stored_to_is_marked_and_not_of_the_folio() {
    let vm = folios::<Family>("");
    let space = with_region(&vm, 0..100);
    store(&vm, space, 37);
    let pin = vm.pin();
    let tables = vm.tables(&pin, vm.find_space(space).unwrap());
    for page in 32..48 {
        let marks = X86_64::marks(tables.peek(Vpn(BASE + page)).0);
        let wanted = if page == 37 {
            Marks::DIRTY
        } else {
            Marks::default()
        };
        assert_eq!(marks, wanted, "page {page}");
        let came = vm.came_in_folio(space, Vpn(BASE + page));
        assert_eq!(came, page != 37, "page {page}");
    }
    drop(pin);
    for page in [31, 48] {
        assert!(!vm.came_in_folio(space, Vpn(BASE + page)), "page {page}");
    }
    end(&vm, &[space]);
}

#[test]
fn a_folio_stays_in_its_region_and_off_pages_that_are_there() {
    let vm = folios::<ByEntries>("");
    let space = with_region(&vm, 6..100);
    // Cut off by the start of the region.
    store(&vm, space, 13);
    assert_eq!(mapped(&vm, space), [8..16]);
    store(&vm, space, 7);
    assert_eq!(mapped(&vm, space), [6..16]);
    // Beside a page of zeroes, which takes the other half of the block.
    touch(&vm, space, BASE + 39, Access::Read);
    store(&vm, space, 40);
    assert_eq!(mapped(&vm, space), [6..16, 39..48]);
    store(&vm, space, 34);
    assert_eq!(mapped(&vm, space), [6..16, 32..36, 39..48]);
    // A page that was loaded from first is copied alone.
    store(&vm, space, 39);
    assert_eq!(mapped(&vm, space), [6..16, 32..36, 39..48]);
    // Cut off by the end of the region.
    store(&vm, space, 97);
    assert_eq!(mapped(&vm, space), [6..16, 32..36, 39..48, 96..100]);
    assert_eq!(vm.stats().events.folio_maps, 5);
    end(&vm, &[space]);
}

#[test]
fn what_is_no_private_memory_has_no_folios() {
    let vm = folios::<ByEntries>("");
    let space = vm.begin_space().unwrap();
    map(&vm, space, BASE, MapRequest::anonymous(32, RW).shared());
    let file = vm.stored_pages(1, 32).unwrap();
    map(&vm, space, BASE + 64, MapRequest::object(file, 0, 32, RW));
    store(&vm, space, 3);
    store(&vm, space, 67);
    assert_eq!(mapped(&vm, space), [3..4, 67..68]);
    assert_eq!(vm.stats().events.folio_maps, 0);
    vm.page_cache().release_object(file).unwrap();
    end(&vm, &[space]);
}

#[test]
fn every_size_is_a_number_of_pages_of_the_format() {
    let sizes = [
        ("off", 1, 1, 1),
        ("advise", 1, 1, 1),
        ("16k", 4, 1, 1),
        ("32k", 8, 2, 1),
        ("64k", 16, 4, 1),
        ("128k", 32, 8, 2),
        ("256k", 64, 16, 4),
        ("512k", 128, 32, 8),
        ("1m", 256, 64, 16),
    ];
    fn pages_of<F: Format>(size: &str) -> u64 {
        run_on(0);
        let machine = TestMachine::with_frames(1, 2048, F::FRAME_SHIFT);
        let design = Design::parse(&format!("folio={size}")).unwrap();
        let vm: Vm<_, F, Family> = Vm::new(machine, design).unwrap();
        let space = vm.begin_space().unwrap();
        let request = MapRequest::anonymous(4096, RW).at(Placement::Fixed(Vpn(4096)));
        vm.map(space, &request).unwrap();
        vm.fault(space, 5000 << F::FRAME_SHIFT, Access::Write)
            .unwrap();
        let pages = vm.space_stats(space).unwrap().rss.anonymous;
        assert_eq!(vm.exit(space), Ok(true));
        vm.audit().unwrap();
        pages
    }
    for (size, of_4k, of_16k, of_64k) in sizes {
        assert_eq!(pages_of::<X86_64>(size), of_4k, "{size}");
        assert_eq!(pages_of::<Aarch64_16K>(size), of_16k, "{size}");
        assert_eq!(pages_of::<Aarch64_64K>(size), of_64k, "{size}");
    }
}

#[test]
fn a_smaller_folio_or_a_page_does_where_there_is_no_block() {
    let vm = folios::<Family>("");
    let space = with_region(&vm, 0..100);
    let fail = |after| {
        let site = Site::Folio;
        vm.memory().inject(Some(FailAt { site, after }));
    };
    fail(0);
    store(&vm, space, 5);
    assert_eq!(mapped(&vm, space), [0..8]);
    vm.memory().inject(None);
    // Then there is none of two frames either.
    let mut held = blocks(&vm, 1);
    assert!(held.len() > 1000);
    held.extend(blocks(&vm, 0));
    // Of one of two frames, one is free.
    let page = Request::page(Site::SwapIn);
    let is_two = |block: &OwnedBlock<'_, TestMachine>| block.order() == 1;
    let two = held.iter().position(is_two).unwrap();
    held.swap_remove(two).free(&vm.pin());
    held.push(vm.memory().alloc(&vm.pin(), page).unwrap());
    store(&vm, space, 40);
    assert_eq!(mapped(&vm, space), [0..8, 40..41]);
    let events = vm.stats().events;
    assert_eq!((events.folio_maps, events.folio_failures), (1, 1));
    for block in held {
        block.free(&vm.pin());
    }
    store(&vm, space, 60);
    assert_eq!(mapped(&vm, space), [0..8, 40..41, 48..64]);
    end(&vm, &[space]);
}

#[test]
fn memory_that_is_short_is_not_spent_on_folios() {
    let vm = vm_with::<ByEntries>("folio=16k", 16384);
    let space = with_region(&vm, 0..100);
    // Has the tables made.
    store(&vm, space, 64);
    let mut held = blocks(&vm, 2);
    let spared = held.pop().unwrap();
    held.extend(blocks(&vm, 0));
    // A block that is large enough, below the low watermark.
    spared.free(&vm.pin());
    assert!(vm.memory.is_short(&vm.pin()));
    store(&vm, space, 5);
    assert_eq!(mapped(&vm, space), [5..6, 64..68]);
    for block in held {
        block.free(&vm.pin());
    }
    end(&vm, &[space]);
}

/// All blocks that there are of a size.
fn blocks<R: ReverseMap>(vm: &TestVm<R>, order: u32) -> Vec<OwnedBlock<'_, TestMachine>> {
    let request = Request::page(Site::SwapIn).order(order);
    core::iter::from_fn(|| vm.memory().alloc(&vm.pin(), request).ok()).collect()
}

#[test]
fn advice_holds_for_its_range_and_goes_with_it() {
    let vm = vm_with::<Family>("folio=advise", 4096);
    let space = with_region(&vm, 0..200);
    store(&vm, space, 3);
    vm.advise(space, Vpn(BASE + 32), 64, Advice::Folio(Some(3)))
        .unwrap();
    assert_eq!(vm.space_stats(space).unwrap().regions, 3);
    for page in [33, 50, 110] {
        store(&vm, space, page);
    }
    assert_eq!(mapped(&vm, space), [3..4, 32..40, 48..56, 110..111]);
    // Fork keeps it, and a move.
    let child = vm.fork(space).unwrap();
    store(&vm, child, 66);
    assert_eq!(mapped(&vm, child)[3], 64..72);
    let to = RemapPlacement::Fixed(Vpn(BASE + 512));
    vm.remap(space, Vpn(BASE + 32), 64, 64, to).unwrap();
    store(&vm, space, 512 + 48);
    assert_eq!(
        mapped(&vm, space),
        [3..4, 110..111, 512..520, 528..536, 560..568]
    );
    end(&vm, &[space, child]);
}

#[test]
fn advice_sets_the_largest_folio_and_what_is_equal_is_one_region() {
    let vm = folios::<ByEntries>("");
    let space = with_region(&vm, 0..2048);
    let advise =
        |start: u64, pages, order| vm.advise(space, Vpn(BASE + start), pages, Advice::Folio(order));
    let regions = || vm.space_stats(space).unwrap().regions;
    advise(64, 64, Some(0)).unwrap();
    advise(128, 64, Some(2)).unwrap();
    advise(1024, 1024, Some(99)).unwrap();
    assert_eq!(regions(), 5);
    for page in [0, 70, 140, 300, 1100] {
        store(&vm, space, page);
    }
    assert_eq!(
        mapped(&vm, space),
        [0..16, 70..71, 140..144, 288..304, 1024..1280]
    );
    let shown = vm.region_at(space, Vpn(BASE + 64)).unwrap().traits.folio();
    assert_eq!(shown, Some(0));
    advise(64, 64, Some(2)).unwrap();
    assert_eq!(regions(), 4);
    advise(0, 2048, None).unwrap();
    assert_eq!(regions(), 1);
    store(&vm, space, 80);
    assert_eq!(mapped(&vm, space)[1..3], [70..71, 80..96]);
    // All or nothing.
    assert_eq!(advise(2000, 100, Some(1)), Err(MapError::NotMapped));
    assert_eq!(regions(), 1);
    end(&vm, &[space]);
}

#[test]
fn without_the_option_advice_changes_nothing() {
    let vm = vm_with::<ByEntries>("", 2048);
    let space = with_region(&vm, 0..100);
    let advise = |pages| vm.advise(space, Vpn(BASE), pages, Advice::Folio(Some(4)));
    assert_eq!(advise(50), Ok(()));
    assert_eq!(advise(101), Err(MapError::NotMapped));
    assert_eq!(vm.space_stats(space).unwrap().regions, 1);
    store(&vm, space, 3);
    assert_eq!(mapped(&vm, space), [3..4]);
    end(&vm, &[space]);
}

#[test]
fn a_region_that_cannot_be_cut_keeps_what_it_was_advised() {
    let vm = folios::<ByEntries>("");
    let space = with_region(&vm, 0..100);
    let site = Site::Region;
    let mut failed = 0;
    for after in 0.. {
        vm.memory().inject(Some(FailAt { site, after }));
        let advised = vm.advise(space, Vpn(BASE + 10), 20, Advice::Folio(Some(1)));
        vm.memory().inject(None);
        vm.audit().unwrap();
        if advised.is_ok() {
            break;
        }
        failed += 1;
        assert_eq!(advised, Err(MapError::OutOfMemory));
        assert_eq!(vm.space_stats(space).unwrap().regions, 1);
    }
    assert_eq!(failed, 2);
    end(&vm, &[space]);
}

with_each_design! {
    calls_about_a_part_leave_the_rest_as_it_was => parts;
    a_store_after_fork_copies_one_page => forked;
    pages_of_a_folio_go_to_swap_one_by_one => swapped;
    without_memory_for_its_entries_one_page_does => unlisted;
}

fn parts<R: ReverseMap>(design: &str) {
    let vm = folios::<R>(design);
    let space = with_region(&vm, 0..64);
    for page in [0, 16, 32, 48] {
        store(&vm, space, page);
    }
    let before: Vec<_> = (0..64).map(|page| frame_of(&vm, space, page)).collect();
    vm.unmap(space, Vpn(BASE + 5), 3).unwrap();
    vm.advise(space, Vpn(BASE + 14), 4, Advice::DontNeed)
        .unwrap();
    vm.protect(space, Vpn(BASE + 24), 4, Prot::READ).unwrap();
    let mut pinned = [Pfn::NONE; 2];
    vm.pin_pages(space, Vpn(BASE + 40), Access::Write, &mut pinned)
        .unwrap();
    vm.audit().unwrap();
    let to = RemapPlacement::Fixed(Vpn(BASE + 100));
    vm.remap(space, Vpn(BASE + 44), 8, 8, to).unwrap();
    assert_eq!(
        mapped(&vm, space),
        [0..5, 8..14, 18..44, 52..64, 100..108],
        "{design}"
    );
    for (page, &frame) in (0..64).zip(&before) {
        let now = if (44..52).contains(&page) {
            page + 56
        } else {
            page
        };
        let found = frame_of(&vm, space, now);
        assert!(found.is_none() || found == frame, "{design}: page {page}");
    }
    vm.audit().unwrap();
    // What was given up comes back, with what is empty around it.
    store(&vm, space, 15);
    assert_eq!(mapped(&vm, space)[1], 8..16, "{design}");
    // SAFETY: `pin_pages` pinned them.
    unsafe { vm.unpin(&pinned) };
    end(&vm, &[space]);
}

fn forked<R: ReverseMap>(design: &str) {
    let vm = folios::<R>(design);
    let space = with_region(&vm, 0..64);
    store(&vm, space, 3);
    let child = vm.fork(space).unwrap();
    for page in 0..16 {
        let shared = frame_of(&vm, space, page);
        assert_eq!(frame_of(&vm, child, page), shared);
        assert_eq!(vm.came_in_folio(child, Vpn(BASE + page)), page != 3);
    }
    store(&vm, child, 7);
    assert_ne!(frame_of(&vm, child, 7), frame_of(&vm, space, 7));
    assert!(!vm.came_in_folio(child, Vpn(BASE + 7)), "{design}");
    assert_eq!(vm.stats().events.cow_copies, 1);
    vm.audit().unwrap();
    assert_eq!(vm.exit(child), Ok(true));
    // Nobody else has them any more.
    store(&vm, space, 8);
    assert_eq!(vm.stats().events.cow_copies, 1);
    assert!(vm.came_in_folio(space, Vpn(BASE + 8)), "{design}");
    end(&vm, &[space]);
}

fn swapped<R: ReverseMap>(design: &str) {
    let vm = folios::<R>(design);
    let area = SwapArea::new(7, 100);
    vm.swap_on(area).unwrap();
    let space = with_region(&vm, 0..64);
    store(&vm, space, 3);
    vm.advise(space, Vpn(BASE + 4), 5, Advice::PageOut).unwrap();
    assert_eq!(mapped(&vm, space), [0..4, 9..16], "{design}");
    assert_eq!(vm.space_stats(space).unwrap().swapped, 5);
    vm.unmap(space, Vpn(BASE + 8), 8).unwrap();
    // Entries of pages in swap are no room for a folio.
    map(&vm, space, BASE + 8, MapRequest::anonymous(8, RW));
    store(&vm, space, 9);
    assert_eq!(mapped(&vm, space), [0..4, 8..16], "{design}");
    touch(&vm, space, BASE + 6, Access::Read);
    let frame = frame_of(&vm, space, 6).unwrap();
    assert_eq!(vm.platform().peek(frame), [0; 4096]);
    assert!(!vm.came_in_folio(space, Vpn(BASE + 6)), "{design}");
    end(&vm, &[space]);
}

fn unlisted<R: ReverseMap>(design: &str) {
    let vm = folios::<R>(design);
    let space = with_region(&vm, 0..64);
    let sites = [
        Site::ChainNode,
        Site::PvChunk,
        Site::PvEntry,
        Site::AnonVma,
        Site::AnonVmaChain,
        Site::TablePage,
    ];
    let mut reached = 0;
    for (number, site) in (0..).zip(sites) {
        let page = number * 8;
        let failed = FailAt { site, after: 0 };
        vm.memory().inject(Some(failed));
        let found = vm.fault(space, (BASE + page) << 12, Access::Write);
        let failed = vm.memory().reached(site) > 0;
        vm.memory().inject(None);
        assert_eq!(found, Ok(Resolved::Mapped), "{design}: {site:?}");
        let count = mapped(&vm, space)
            .iter()
            .find(|range| range.contains(&page))
            .map(|range| range.end - page);
        assert!(count == Some(1) || !failed, "{design}: {site:?} {count:?}");
        reached += u32::from(failed);
        vm.audit().unwrap();
        vm.unmap(space, Vpn(BASE), 64).unwrap();
        map(&vm, space, BASE, MapRequest::anonymous(64, RW));
    }
    assert!(reached > 0, "{design}");
    end(&vm, &[space]);
}

#[test]
fn aging_hears_of_every_page_of_a_folio() {
    #[derive(Default)]
    struct Heard(Arc<Mutex<Vec<Pfn>>>);
    impl Aging for Heard {
        fn inserted(&self, _: &Pin<'_>, page: AgedPage<'_>, kind: Inserted) {
            assert_eq!(kind, Inserted::Anonymous);
            self.0.lock().unwrap().push(page.frame());
        }
        fn touched(&self, _: &Pin<'_>, _: AgedPage<'_>) {}
        fn removed(&self, _: &Pin<'_>, page: AgedPage<'_>) {
            let mut heard = self.0.lock().unwrap();
            let at = heard.iter().position(|&frame| frame == page.frame());
            heard.swap_remove(at.unwrap());
        }
    }
    let mut vm = folios::<Family>("");
    let heard = Arc::new(Mutex::new(Vec::new()));
    vm.set_aging(Box::new(Heard(Arc::clone(&heard))));
    let space = with_region(&vm, 0..64);
    store(&vm, space, 3);
    let mut found = heard.lock().unwrap().clone();
    found.sort_unstable_by_key(|frame| frame.0);
    let wanted: Vec<_> = (0..16)
        .map(|page| frame_of(&vm, space, page).unwrap())
        .collect();
    assert_eq!(found, wanted);
    vm.unmap(space, Vpn(BASE + 2), 5).unwrap();
    assert_eq!(heard.lock().unwrap().len(), 11);
    end(&vm, &[space]);
    assert_eq!(heard.lock().unwrap().len(), 0);
}

#[test]
fn a_range_with_a_run_set_aside_takes_the_frames_of_that() {
    let vm = vm_with::<Family>("superpage=reserve,folio=64k", 8192);
    let space = with_region(&vm, 0..1000);
    store(&vm, space, 3);
    store(&vm, space, 17);
    // What lies in no range of a superpage's size has folios.
    store(&vm, space, 600);
    assert_eq!(mapped(&vm, space), [3..4, 17..18, 592..608]);
    let events = vm.stats().events;
    assert_eq!((events.reservations, events.folio_maps), (1, 1));
    end(&vm, &[space]);
}

#[test]
fn a_superpage_made_of_folios_says_so() {
    let vm = vm_with::<ByEntries>("superpage=reserve,folio=1m", 8192);
    let space = with_region(&vm, 0..512);
    // Two folios of one run, as they lie if the allocator has that to cut. It keeps some whole.
    let mut held = blocks(&vm, 9);
    let whole = held.split_off(held.len() - 3);
    held.extend(blocks(&vm, 8));
    for block in whole {
        block.free(&vm.pin());
    }
    let site = Site::Reservation;
    vm.memory().inject(Some(FailAt { site, after: 0 }));
    store(&vm, space, 5);
    vm.memory().inject(None);
    store(&vm, space, 300);
    assert_eq!(mapped(&vm, space), [0..512]);
    let (first, second) = (frame_of(&vm, space, 0), frame_of(&vm, space, 256));
    assert_eq!(second.unwrap(), first.unwrap().offset(256));
    let pages = 0..512;
    vm.protect(space, Vpn(BASE), 512, Prot::READ).unwrap();
    vm.protect(space, Vpn(BASE), 512, RW).unwrap();
    for page in pages.clone() {
        store(&vm, space, page);
    }
    assert_eq!(vm.stats().events.superpage_promotions, 1);
    // As before, each by itself; by one record, when there is one, all of them.
    let came = |page: u64| vm.came_in_folio(space, Vpn(BASE + page));
    for page in pages.clone() {
        assert_eq!(came(page), page != 5 && page != 300, "{page}");
    }
    let child = vm.fork(space).unwrap();
    assert!(pages.clone().all(came));
    vm.exit(child).unwrap();
    for block in held {
        block.free(&vm.pin());
    }
    end(&vm, &[space]);
}
