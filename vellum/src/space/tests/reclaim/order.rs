//! In which order pages leave.

use super::*;
use crate::space::Advice;

/// A file of `pages` pages, all of them read once.
fn read_file(vm: &TestVm<ByRegions>, store: u64, pages: u64) -> ObjectId {
    let file = vm.stored_pages(store, pages).unwrap();
    vm.page_cache().prefetch(file, 0, pages * PAGE).unwrap();
    file
}

/// Frames that are used anew all the time, while no page has to leave, keep their places on the
/// lists. As soon as pages leave, what comes into such a frame is the youngest again.
#[test]
fn after_a_time_without_reclaim_the_oldest_pages_leave_first() {
    const REUSED: u64 = 64;
    const OLD: u64 = 100;
    for options in aging() {
        let vm: TestVm<ByRegions> = vm_of(&options, 400);
        for round in 0..20 {
            let file = read_file(&vm, STORE + round, REUSED);
            vm.page_cache().release_object(file).unwrap();
        }
        let reused = read_file(&vm, STORE + 100, REUSED);
        let old = read_file(&vm, STORE + 101, OLD);
        let left = vm.reclaim_pages(1);
        assert!(left > 0 && left < REUSED, "{options}: {left}");
        vm.page_cache().release_object(reused).unwrap();
        let young = read_file(&vm, STORE + 102, REUSED);
        let left = vm.reclaim_pages(OLD / 2);
        assert!(left >= OLD / 2, "{options}: {left}");
        let mut cached = (0..REUSED).filter(|&index| is_cached(&vm, young, index));
        assert_eq!(cached.by_ref().count() as u64, REUSED, "{options}");
        assert!(!is_cached(&vm, old, 0), "{options}");
        vm.audit().unwrap();
    }
}

/// Pages of private memory come and go in the same frames. Each stays where it is listed, until
/// one has to leave.
#[test]
fn private_pages_stay_where_they_are_listed_while_a_node_is_at_rest() {
    const PAGES: u64 = 64;
    const START: u64 = 0x1000;
    for options in aging() {
        let vm: TestVm<ByRegions> = vm_of(&options, 400);
        vm.swap_on(SWAP).unwrap();
        let space = vm.begin_space().unwrap();
        let request = MapRequest::anonymous(PAGES, RW).at(Placement::Fixed(Vpn(START)));
        vm.map(space, &request).unwrap();
        let touch = |pages: u64| {
            for page in 0..pages {
                fault(&vm, space, Vpn(START + page), Access::Write);
            }
            vm.audit().unwrap();
        };
        let forget = || {
            vm.advise(space, Vpn(START), PAGES, Advice::DontNeed)
                .unwrap()
        };
        let frame_of = |page| vm.translate(space, Vpn(START + page)).unwrap().0;
        let staying = || {
            let reclaim = vm.reclaim().unwrap();
            let frames = (0..PAGES).map(frame_of);
            frames.filter(|&it| reclaim.stays(&vm.pin(), it)).count() as u64
        };
        touch(PAGES);
        assert_eq!(staying(), 0, "{options}: no more have come than there are");
        for round in 0..3 {
            for _ in 0..4 {
                forget();
                touch(PAGES);
            }
            assert!(staying() >= PAGES / 2, "{options}, round {round}");
            vm.scan_space(space, PageRange::new(Vpn(START), PAGES))
                .unwrap();
            let left = vm.reclaim_pages(PAGES / 4);
            assert!(left >= PAGES / 4, "{options}, round {round}: {left}");
            vm.audit().unwrap();
            touch(PAGES);
            assert_eq!(staying(), 0, "{options}, round {round}: pages have left");
            forget();
        }
        vm.exit(space).unwrap();
        vm.audit().unwrap();
    }
}

/// Frames that pages of files were listed in are among those of files until they are listed anew.
#[test]
fn frames_of_files_are_no_places_for_private_pages_to_stay_in() {
    const PAGES: u64 = 64;
    const START: u64 = 0x1000;
    for options in aging() {
        let vm: TestVm<ByRegions> = vm_of(&options, 400);
        let space = vm.begin_space().unwrap();
        let private = MapRequest::anonymous(PAGES, RW).at(Placement::Fixed(Vpn(START)));
        vm.map(space, &private).unwrap();
        let reclaim = vm.reclaim().unwrap();
        let stays = |frame| reclaim.stays(&vm.pin(), frame);
        let mut at_rest = false;
        for _ in 0..5 {
            for page in 0..PAGES {
                at_rest |= stays(fault(&vm, space, Vpn(START + page), Access::Write));
            }
            vm.advise(space, Vpn(START), PAGES, Advice::DontNeed)
                .unwrap();
        }
        assert!(at_rest, "{options}");
        let file = read_file(&vm, STORE, PAGES);
        let shown = Vpn(START + PAGES);
        let request = MapRequest::object(file, 0, PAGES, Prot::READ).at(Placement::Fixed(shown));
        vm.map(space, &request).unwrap();
        reclaim.lists.settle(&vm.pin());
        for page in 0..PAGES {
            let frame = fault(&vm, space, shown.offset(page), Access::Read);
            assert!(!stays(frame), "{options}, page {page}");
        }
        vm.audit().unwrap();
    }
}
