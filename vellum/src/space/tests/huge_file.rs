//! Superpages of files of a backing store: what is read, who may map it whole, and what a store
//! does to a leaf.

use super::*;
use crate::frame::{FailAt, Site};
use crate::rmap::{Family, ReverseMap};
use crate::sync::atomic::Ordering;

const STORE: u64 = 5;
const BASE: u64 = 0x10000;
const PAGES: u64 = 512;
const PAGE: u64 = 4096;
/// Of the file: two superpages and some pages.
const LENGTH: u64 = 2 * PAGES + 9;
const RX: Prot = Prot::READ_EXECUTE;

with_each_design! {
    a_store_to_a_shared_mapping_has_single_pages_from_then_on => stores;
    pages_that_leave_a_file_leave_private_mappings_too => cuts;
    forks_and_calls_about_a_part_find_the_pages_again => parts;
    reclaim_takes_the_leaf_first_and_then_page_by_page => reclaims;
}

/// A file of a store, each page of which begins with its index, and a space.
struct World<R: ReverseMap> {
    vm: TestVm<R>,
    file: ObjectId,
    space: SpaceId,
}

fn world<R: ReverseMap>(design: &str) -> World<R> {
    let vm = vm_with::<R>(&std::format!("filehuge=always,{design}"), 8192);
    let file = vm.stored_pages(STORE, LENGTH).unwrap();
    for index in 0..LENGTH {
        let bytes = index.to_le_bytes();
        assert_eq!(
            vm.page_cache().write_at(file, index * PAGE, &[&bytes]),
            Ok(8)
        );
    }
    vm.file(file).sync().unwrap();
    vm.page_cache().release_object(file).unwrap();
    let file = vm.stored_pages(STORE, LENGTH).unwrap();
    let space = vm.begin_space().unwrap();
    World { vm, file, space }
}

impl<R: ReverseMap> World<R> {
    /// Maps all of the file.
    fn map(&self, at: u64, prot: Prot, is_shared: bool) {
        let request = MapRequest::object(self.file, 0, LENGTH, prot);
        let request = match is_shared {
            true => request.shared(),
            false => request,
        };
        map(&self.vm, self.space, at, request);
    }

    fn cached(&self) -> u64 {
        self.vm.objects.find(self.file).unwrap().cached()
    }

    fn resident(&self) -> u64 {
        self.vm.space_stats(self.space).unwrap().rss.file
    }

    /// The first pages of the large leaves of a space.
    fn large(&self, space: SpaceId) -> Vec<u64> {
        large_leaves(&self.vm, space)
    }

    /// Checks what pages that the space shows begin with.
    fn shows(&self, space: SpaceId, at: u64, indices: &[u64]) {
        for &index in indices {
            touch(&self.vm, space, at + index, Access::Read);
            let (frame, _) = self.vm.translate(space, Vpn(at + index)).unwrap();
            let bytes = self.vm.platform().peek(frame);
            assert_eq!(bytes[..8], index.to_le_bytes(), "page {index}");
        }
    }

    fn end(self) {
        self.vm.audit().unwrap();
        self.vm.exit(self.space).unwrap();
        self.vm.page_cache().release_object(self.file).unwrap();
        let report = self.vm.audit().unwrap();
        assert_eq!(report.frames.of(Kind::Object), 0);
    }
}

#[test]
fn the_first_load_reads_a_range_whole_and_maps_it_so() {
    for is_shared in [false, true] {
        let world = world::<Family>("");
        world.map(BASE, RX, is_shared);
        touch(&world.vm, world.space, BASE + PAGES + 3, Access::Execute);
        assert_eq!(world.large(world.space), [BASE + PAGES]);
        assert_eq!((world.cached(), world.resident()), (PAGES, PAGES));
        assert!(world.vm.came_in_superpage(world.space, Vpn(BASE + PAGES)));
        world.shows(world.space, BASE, &[PAGES, PAGES + 77, 2 * PAGES - 1]);
        // What the last pages are of is no superpage.
        world.shows(world.space, BASE, &[2 * PAGES, 2 * PAGES + 8]);
        assert_eq!(world.large(world.space), [BASE + PAGES]);
        assert_eq!(world.cached(), PAGES + 2);
        world.end();
    }
}

#[test]
fn a_read_by_a_call_reads_a_range_whole() {
    for nth in 0..3 {
        let world = world::<Family>("");
        let mut bytes = [0; 8];
        let (vm, file) = (&world.vm, world.file);
        match nth {
            0 => vm.page_cache().prefetch(file, 700 * PAGE, PAGE).unwrap(),
            1 => {
                _ = vm
                    .page_cache()
                    .read_at(file, 700 * PAGE, &mut [&mut bytes])
                    .unwrap()
            }
            _ => {
                let read = vm
                    .page_cache()
                    .read_pages(file, 700, 1, |_, page| _ = page.read(0, &mut bytes));
                assert_eq!(read, Ok(1));
            }
        }
        assert_eq!(u64::from_le_bytes(bytes), [0, 700, 700][nth]);
        assert_eq!(world.cached(), PAGES);
        world.end();
    }
    let world = world::<Family>("");
    assert_eq!(
        world.vm.page_cache().prefetch(world.file, 700 * PAGE, 1),
        Ok(())
    );
    // Not all of the last range lies before the end.
    let mut byte = [0];
    let last = (LENGTH - 5) * PAGE;
    assert_eq!(
        world
            .vm
            .page_cache()
            .read_at(world.file, last, &mut [&mut byte]),
        Ok(1)
    );
    assert_eq!(world.cached(), PAGES + 1);
    world.map(BASE, Prot::READ, false);
    world.shows(world.space, BASE, &[PAGES]);
    assert_eq!(world.large(world.space), [BASE + PAGES]);
    // A range of which a page is there already stays one of single pages.
    for (told, page) in [(Some(false), 3), (None, 4)] {
        world.vm.page_cache().set_huge(world.file, told).unwrap();
        world.shows(world.space, BASE, &[page]);
    }
    assert_eq!(world.large(world.space), [BASE + PAGES]);
    assert_eq!(world.cached(), PAGES + 3);
    world.end();
}

#[test]
fn files_say_for_themselves_what_the_design_lets_them() {
    for (design, told, expected) in [
        ("filehuge=never,huge=always", Some(true), false),
        ("filehuge=advise", None, false),
        ("filehuge=advise", Some(true), true),
        ("filehuge=always", Some(false), false),
        ("filehuge=always", None, true),
    ] {
        let vm = vm_with::<Family>(design, 8192);
        let file = vm.stored_pages(STORE, PAGES).unwrap();
        vm.page_cache().set_huge(file, told).unwrap();
        let space = vm.begin_space().unwrap();
        let request = MapRequest::object(file, 0, PAGES, Prot::READ);
        map(&vm, space, BASE, request);
        touch(&vm, space, BASE, Access::Read);
        let resident = vm.space_stats(space).unwrap().rss.file;
        assert_eq!(resident == PAGES, expected, "{design}, told {told:?}");
        // Memory that no store is behind has an option of its own.
        let object = vm.memory_pages(PAGES).unwrap();
        let request = MapRequest::object(object, 0, PAGES, Prot::READ).shared();
        map(&vm, space, BASE + PAGES, request);
        touch(&vm, space, BASE + PAGES, Access::Read);
        let resident = vm.space_stats(space).unwrap().rss.shared_memory;
        assert_eq!(resident == PAGES, design.contains(",huge=always"));
        vm.audit().unwrap();
    }
}

#[test]
fn what_an_object_was_told_is_not_for_one_that_takes_its_place() {
    let vm = vm_with::<Family>("filehuge=always", 8192);
    let make = || vm.stored_pages(STORE, PAGES).unwrap();
    let read = |file| {
        let mut byte = [0];
        assert_eq!(vm.page_cache().read_at(file, 0, &mut [&mut byte]), Ok(1));
        vm.objects.find(file).unwrap().cached()
    };
    let first = make();
    let mut next = first;
    for _ in 0..10_000 {
        vm.page_cache().set_huge(next, Some(false)).unwrap();
        assert!(read(next) < PAGES);
        vm.page_cache().release_object(next).unwrap();
        vm.relieve();
        next = make();
        if next.handle == first.handle {
            break;
        }
    }
    assert_eq!(next.handle, first.handle, "no place was used again");
    assert_eq!(read(next), PAGES);
    vm.page_cache().release_object(next).unwrap();
    vm.audit().unwrap();
}

#[test]
fn what_may_be_stored_to_privately_has_single_pages() {
    let world = world::<Family>("");
    world.map(BASE, RW, false);
    world.shows(world.space, BASE, &[3]);
    assert!(world.large(world.space).is_empty());
    // A leaf that was there before its region could be stored to is cleared by the store.
    world.map(BASE + 4 * PAGES, Prot::READ, false);
    let at = BASE + 4 * PAGES;
    world.shows(world.space, at, &[PAGES]);
    assert_eq!(world.large(world.space), [at + PAGES]);
    world.vm.protect(world.space, Vpn(at), LENGTH, RW).unwrap();
    assert_eq!(world.large(world.space), [at + PAGES]);
    touch(&world.vm, world.space, at + PAGES + 9, Access::Write);
    assert!(world.large(world.space).is_empty());
    world.shows(world.space, at, &[PAGES + 8, PAGES + 9]);
    let (copy, _) = world
        .vm
        .translate(world.space, Vpn(at + PAGES + 9))
        .unwrap();
    assert_eq!(world.vm.memory.frame(copy).kind(), Kind::Anonymous);
    world.end();
}

#[test]
fn single_pages_do_where_something_is_lacking() {
    for site in [Site::Superpage, Site::RadixNode, Site::TablePage] {
        for after in 0..12 {
            let world = world::<crate::testing::ByEntries>("");
            world.map(BASE, RX, false);
            world.vm.memory().inject(Some(FailAt { site, after }));
            let result = world.vm.fault(world.space, (BASE + 3) << 12, Access::Read);
            world.vm.memory().inject(None);
            world.vm.audit().unwrap();
            if result.is_err() {
                touch(&world.vm, world.space, BASE + 3, Access::Read);
            }
            world.shows(world.space, BASE, &[3, 511]);
            world.end();
        }
    }
}

#[test]
fn pages_that_the_store_does_not_give_are_asked_for_by_themselves() {
    let world = world::<Family>("");
    world.map(BASE, RX, false);
    let broken = &world.vm.platform().broken_reads;
    broken.lock().unwrap().extend([70, 300]);
    let load = |index: u64| {
        world
            .vm
            .fault(world.space, (BASE + index) << 12, Access::Read)
    };
    assert!(load(71).is_ok());
    assert_eq!(load(70), Err(FaultError::Io));
    assert_eq!(world.cached(), PAGES - 2);
    assert!(world.large(world.space).is_empty());
    broken.lock().unwrap().clear();
    world.shows(world.space, BASE, &[70, 71, 300]);
    // None can be had: who asks is told, and asks again.
    world
        .vm
        .platform()
        .broken_store
        .store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(load(PAGES + 1), Err(FaultError::Io));
    }
    let mut byte = [0];
    let read = (world.vm)
        .page_cache()
        .read_at(world.file, PAGES * PAGE, &mut [&mut byte]);
    assert_eq!(read, Err(FileError::Io));
    world
        .vm
        .platform()
        .broken_store
        .store(false, Ordering::Relaxed);
    world.shows(world.space, BASE, &[PAGES + 1]);
    assert_eq!(world.large(world.space), [BASE + PAGES]);
    world.end();
}

/// The leaf is another space's, too, and stays there; what was stored reaches the store.
fn stores<R: ReverseMap>(text: &str) {
    let world = world::<R>(text);
    let (vm, space) = (&world.vm, world.space);
    world.map(BASE, RW, true);
    let other = vm.begin_space().unwrap();
    let request = MapRequest::object(world.file, 0, LENGTH, RX);
    map(vm, other, BASE, request);
    for id in [space, other] {
        world.shows(id, BASE, &[5]);
        assert_eq!(world.large(id), [BASE], "{text}");
    }
    let (frame, prot) = vm.translate(space, Vpn(BASE + 6)).unwrap();
    assert!(!prot.can_write());
    touch(vm, space, BASE + 6, Access::Write);
    assert_eq!(vm.translate(space, Vpn(BASE + 6)), Some((frame, RW)));
    assert!(world.large(space).is_empty());
    assert_eq!(world.large(other), [BASE], "{text}");
    vm.platform().take_written();
    assert_eq!(vm.file(world.file).sync(), Ok(1), "{text}");
    // One page was stored to, and one is written.
    assert_eq!(vm.platform().take_written(), [(6, 1)], "{text}");
    vm.exit(other).unwrap();
    world.end();
}

fn cuts<R: ReverseMap>(text: &str) {
    let world = world::<R>(text);
    let (vm, space) = (&world.vm, world.space);
    world.map(BASE, RX, false);
    world.map(BASE + 4 * PAGES, RX, true);
    for at in [BASE, BASE + 4 * PAGES] {
        world.shows(space, at, &[1, PAGES + 1]);
    }
    assert_eq!(world.large(space).len(), 4, "{text}");
    vm.page_cache()
        .set_size(world.file, (PAGES + 100) * PAGE)
        .unwrap();
    assert_eq!(world.large(space), [BASE, BASE + 4 * PAGES], "{text}");
    let past = vm.fault(space, (BASE + PAGES + 100) << 12, Access::Read);
    assert_eq!(past, Err(FaultError::PastEnd), "{text}");
    world.shows(space, BASE, &[PAGES + 99]);
    assert_eq!(world.large(space), [BASE, BASE + 4 * PAGES], "{text}");
    world.end();
}

fn parts<R: ReverseMap>(text: &str) {
    let world = world::<R>(text);
    let (vm, space) = (&world.vm, world.space);
    world.map(BASE, RX, false);
    world.shows(space, BASE, &[1, PAGES + 1]);
    let child = vm.fork(space).unwrap();
    assert!(world.large(child).is_empty());
    world.shows(child, BASE, &[9]);
    assert_eq!(world.large(child), [BASE], "{text}");
    vm.audit().unwrap();
    vm.unmap(child, Vpn(BASE + 100), 20).unwrap();
    let to = RemapPlacement::Fixed(Vpn(BASE + 8 * PAGES + 4));
    vm.remap(child, Vpn(BASE + PAGES), 30, 30, to).unwrap();
    assert!(world.large(child).is_empty());
    world.shows(child, BASE, &[99, 120]);
    vm.advise(space, Vpn(BASE + 10), 3, Advice::DontNeed)
        .unwrap();
    assert_eq!(world.large(space), [BASE + PAGES], "{text}");
    let mut pinned = [Pfn::NONE; 2];
    vm.pin_pages(space, Vpn(BASE + PAGES + 4), Access::Read, &mut pinned)
        .unwrap();
    // The mapping is private: the space could store to the pages after it may.
    for (step, frame) in pinned.into_iter().enumerate() {
        let page = BASE + PAGES + 4 + step as u64;
        assert!(leaves(vm, space).contains(&(page, frame)), "{text}");
    }
    assert!(world.large(space).is_empty(), "{text}");
    vm.audit().unwrap();
    // SAFETY: pinned above.
    unsafe { vm.unpin(&pinned) };
    vm.exit(child).unwrap();
    world.end();
}

fn reclaims<R: ReverseMap>(text: &str) {
    for options in ["reclaim=on", "reclaim=on,aging=generations"] {
        let world = world::<R>(&std::format!("{options},{text}"));
        let (vm, space) = (&world.vm, world.space);
        world.map(BASE, RX, false);
        world.shows(space, BASE, &[1, PAGES + 1]);
        assert_eq!(world.large(space).len(), 2);
        for _ in 0..4 {
            vm.reclaim_pages(2 * PAGES);
        }
        assert!(world.large(space).is_empty(), "{options},{text}");
        assert!(
            world.cached() < PAGES,
            "{options},{text}: {}",
            world.cached()
        );
        vm.audit().unwrap();
        world.shows(space, BASE, &[1, 400, PAGES + 1]);
        world.end();
    }
}
