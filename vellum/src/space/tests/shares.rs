//! What one space or object can take of the nodes that the manager keeps, and what is left to
//! others, while it is there and afterwards.

use super::victims::watch;
use super::*;
use crate::frame::Kind;
use crate::platform::Rescue;
use crate::space::FileError;
use crate::swap::SwapArea;

const FRAMES: u32 = 4096;
/// Pages from one to the next of which no two share a node of the lowest three levels.
const FAR: u64 = 1 << 16;

/// A machine whose platform ends nobody; a call that would need that is noted.
fn machine<R: crate::rmap::ReverseMap>(design: &str) -> TestVm<R> {
    let vm = vm_with::<R>(design, FRAMES);
    vm.swap_on(SwapArea::new(7, 20_000)).unwrap();
    vm
}

/// Frames that arenas have taken for good.
fn kept<R: crate::rmap::ReverseMap>(vm: &TestVm<R>) -> u64 {
    vm.memory.audit_frames().unwrap().of(Kind::Slab)
}

/// Stores a byte to each page of `pages` that lie far from each other, until that fails; returns
/// how many it could.
fn spread(vm: &TestVm, object: ObjectId, pages: u64) -> u64 {
    let store = |page: &u64| {
        vm.page_cache()
            .write_at(object, (page * FAR) << 12, &[b"x"])
    };
    let failed = (0..pages).find(|page| store(page).is_err());
    if let Some(failed) = failed {
        assert_eq!(store(&failed), Err(FileError::OutOfMemory));
    }
    failed.unwrap_or(pages)
}

#[test]
fn a_sparse_object_takes_a_part_of_the_nodes_and_leaves_others_theirs() {
    let vm = Arc::new(machine::<ByRegions>("reclaim=on"));
    let named = watch(&vm, |_, _| Rescue::Fail);
    let before = kept(&vm);
    let hog = vm.memory_pages(0).unwrap();
    let stored = spread(&vm, hog, 15_000);
    assert!((300..600).contains(&stored), "{stored}");
    // A fifth of an eighth.
    let taken = kept(&vm) - before;
    assert!(taken <= u64::from(FRAMES) / 40 + 16, "{taken}");
    // What is there can be stored to, and others have their share: each four fifths of the last.
    assert_eq!(vm.page_cache().write_at(hog, 0, &[b"y"]), Ok(1));
    let others = [(); 3].map(|()| vm.memory_pages(0).unwrap());
    let mut last = stored;
    for other in others {
        let stored = spread(&vm, other, 15_000);
        assert!(
            (last * 3 / 4..last).contains(&stored),
            "{stored} after {last}"
        );
        last = stored;
    }
    let small = vm.memory_pages(0).unwrap();
    assert_eq!(
        vm.page_cache().write_at(small, 5 << 12, &[&[1; 8 << 12]]),
        Ok(8 << 12)
    );
    assert_eq!(named.lock().unwrap().len(), 0, "nobody's end would help");
    for object in others.into_iter().chain([hog, small]) {
        vm.page_cache().release_object(object).unwrap();
    }
    vm.audit().unwrap();
    let taken = kept(&vm) - before;
    assert!(taken <= u64::from(FRAMES) / 8 + 16, "{taken}");
}

/// Maps pages that lie apart until that fails; returns how many it could.
fn scatter(vm: &TestVm, space: SpaceId, regions: u64) -> u64 {
    let request = MapRequest::anonymous(1, RW);
    let map = |nth: &u64| vm.map(space, &request.at(Placement::Fixed(Vpn(1000 + 2 * nth))));
    let failed = (0..regions).find(|nth| map(nth).is_err());
    if let Some(failed) = failed {
        assert_eq!(map(&failed), Err(MapError::OutOfMemory));
    }
    failed.unwrap_or(regions)
}

#[test]
fn spaces_with_many_regions_leave_others_theirs() {
    let vm = Arc::new(machine::<ByRegions>("reclaim=on"));
    let named = watch(&vm, |_, _| Rescue::Fail);
    let before = kept(&vm);
    let mut spaces = Vec::new();
    let mut last = None;
    for _ in 0..5 {
        let space = vm.begin_space().unwrap();
        spaces.push(space);
        let mapped = scatter(&vm, space, 16_382);
        let last = last.replace(mapped).unwrap_or(mapped * 5 / 4);
        assert!(
            (last * 3 / 4..last).contains(&mapped),
            "{mapped} after {last}"
        );
    }
    // Whoever comes then can map and store as ever.
    let other = vm.begin_space().unwrap();
    assert_eq!(scatter(&vm, other, 500), 500);
    for nth in 0..500 {
        touch(&vm, other, 1000 + 2 * nth, Access::Write);
    }
    assert_eq!(named.lock().unwrap().len(), 0, "nobody's end would help");
    let taken = kept(&vm) - before;
    assert!(taken <= u64::from(FRAMES) / 4, "{taken}");
    for space in spaces {
        vm.exit(space).unwrap();
    }
    // The rest of the machine is for whoever comes.
    let big = vm.begin_space().unwrap();
    map(&vm, big, 1000, MapRequest::anonymous(3000, RW));
    for page in 0..u64::from(FRAMES) * 2 / 3 {
        touch(&vm, big, 1000 + page, Access::Write);
    }
    assert_eq!(vm.space_stats(big).unwrap().swapped, 0);
    vm.audit().unwrap();
}

#[test]
fn a_space_in_tracts_has_no_more_than_one_that_is_whole() {
    let vm = machine::<ByRegions>("");
    let whole = vm.begin_space().unwrap();
    let most = scatter(&vm, whole, 16_382);
    assert!(most < 16_382, "{most}");
    vm.exit(whole).unwrap();
    let parted = vm.begin_space().unwrap();
    assert_eq!(vm.divide_space(parted, Vpn(1000 + most)), Ok(true));
    let mapped = scatter(&vm, parted, 16_382);
    assert!(mapped <= most + 256, "{mapped} of {most}");
}

#[test]
fn a_space_with_many_regions_is_named() {
    let vm = vm_with::<ByRegions>("", FRAMES);
    let [many, big] = [(); 2].map(|()| vm.begin_space().unwrap());
    assert_eq!(scatter(&vm, many, 2000), 2000);
    map(&vm, big, 1000, MapRequest::anonymous(40, RW));
    for page in 0..40 {
        touch(&vm, big, 1000 + page, Access::Write);
    }
    let victim = vm.choose_victim().unwrap();
    assert_eq!(victim.space, many.to_bits(), "{victim:?}");
    assert!((60..150).contains(&victim.pages), "{victim:?}");
}

#[test]
fn pages_of_a_sparse_file_make_room_for_others_of_it_and_private_pages_stay() {
    let vm = machine::<ByRegions>("reclaim=on");
    vm.set_swappiness(200);
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(300, RW));
    for page in 0..300 {
        touch(&vm, space, 1000 + page, Access::Write);
    }
    let pages = 6000;
    let file = vm.stored_pages(9, pages * FAR).unwrap();
    for page in 0..pages {
        let mut bytes = [0; 1];
        let read = vm
            .page_cache()
            .read_at(file, (page * FAR) << 12, &mut [&mut bytes]);
        assert_eq!(read, Ok(1), "{page}");
    }
    assert_eq!(vm.space_stats(space).unwrap().rss.anonymous, 300);
    assert!(vm.stats().reclaim.reclaimed > 1000);
    assert!(kept(&vm) < u64::from(FRAMES) / 5);
    vm.audit().unwrap();
}
