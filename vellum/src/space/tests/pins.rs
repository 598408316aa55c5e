//! Pinned pages: they outlive their mappings, their object and their space.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn a_pinned_page_survives_truncation_and_exit() {
    pinned_page::<ByRegions>("");
    pinned_page::<ByEntries>("");
}

fn pinned_page<R: crate::rmap::ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 1024);
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, 9).unwrap();
    map(
        &vm,
        space,
        1000,
        MapRequest::object(file, 0, 9, RW).shared(),
    );
    map(&vm, space, 2000, MapRequest::anonymous(9, RW));
    let mut frames = [Pfn::NONE; 2];
    vm.pin_pages(space, Vpn(1003), Access::Write, &mut frames[..1])
        .unwrap();
    vm.pin_pages(space, Vpn(2003), Access::Write, &mut frames[1..])
        .unwrap();
    vm.page_cache().set_size(file, 0).unwrap();
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.page_cache().release_object(file).unwrap();
    let report = vm.audit().unwrap();
    assert_eq!(report.frames.of(Kind::Object), 1, "{design}");
    assert_eq!(report.frames.of(Kind::Anonymous), 1, "{design}");
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    let report = vm.audit().unwrap();
    assert_eq!(
        report.frames.of(Kind::Object) + report.frames.of(Kind::Anonymous),
        0
    );
}

/// A device that writes to a pinned page sets no mark in any entry.
#[test]
fn a_file_page_pinned_for_writing_is_dirty_until_it_is_unpinned_and_written() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, 9).unwrap();
    map(
        &vm,
        space,
        1000,
        MapRequest::object(file, 0, 9, RW).shared(),
    );
    touch(&vm, space, 1003, Access::Write);
    assert_eq!(vm.file(file).sync(), Ok(1));
    assert_eq!(vm.file(file).sync(), Ok(0));
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, Vpn(1003), Access::Write, &mut frames)
        .unwrap();
    assert_eq!(
        vm.file(file).sync(),
        Ok(1),
        "the entry was writable and clean"
    );
    assert_eq!(
        vm.file(file).sync(),
        Ok(1),
        "the device may have written again"
    );
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    assert_eq!(vm.file(file).sync(), Ok(1));
    assert_eq!(vm.file(file).sync(), Ok(0));
    vm.audit().unwrap();
}

#[test]
fn fork_copies_pinned_pages_and_shares_the_others() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(4, RW));
    for page in 1000..1004 {
        touch(&vm, space, page, Access::Write);
    }
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, Vpn(1002), Access::Write, &mut frames)
        .unwrap();
    let child = vm.fork(space).unwrap();
    let pairs: Vec<bool> = leaves(&vm, space)
        .iter()
        .zip(leaves(&vm, child))
        .map(|(mine, theirs)| mine.1 == theirs.1)
        .collect();
    assert_eq!(pairs, [true, true, false, true]);
    touch(&vm, space, 1002, Access::Write);
    assert_eq!(
        leaves(&vm, space)[2].1,
        frames[0],
        "the pinned page stays the parent's"
    );
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    vm.audit().unwrap();
}

/// The frame that a space maps at a page.
fn frame_at<R: crate::rmap::ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64) -> Pfn {
    let found = leaves(vm, space);
    found.iter().find(|leaf| leaf.0 == page).unwrap().1
}

/// Like CVE-2020-29374: who shares a page by fork pins it for reading and gives its mapping up;
/// what the other stores afterwards must not be seen by way of the pin.
#[test]
fn a_read_pin_of_a_page_shared_by_fork_shows_nothing_that_the_other_space_stores_later() {
    fn either_way<R: crate::rmap::ReverseMap>() {
        for (parent_pins, ends) in [(false, true), (false, false), (true, true), (true, false)] {
            let vm = vm_with::<R>("", 1024);
            let parent = vm.begin_space().unwrap();
            map(&vm, parent, 1000, MapRequest::anonymous(1, RW));
            touch(&vm, parent, 1000, Access::Write);
            let child = vm.fork(parent).unwrap();
            let (pinner, other) = match parent_pins {
                true => (parent, child),
                false => (child, parent),
            };
            let mut frames = [Pfn::NONE];
            vm.pin_pages(pinner, Vpn(1000), Access::Read, &mut frames)
                .unwrap();
            assert_eq!(frames[0], frame_at(&vm, pinner, 1000));
            vm.audit().unwrap();
            match ends {
                true => _ = vm.exit(pinner).unwrap(),
                false => vm.unmap(pinner, Vpn(1000), 1).unwrap(),
            }
            touch(&vm, other, 1000, Access::Write);
            assert_ne!(
                frames[0],
                frame_at(&vm, other, 1000),
                "{parent_pins} {ends}"
            );
            // SAFETY: pinned above, and not unpinned since.
            unsafe { vm.unpin(&frames) };
            vm.audit().unwrap();
        }
    }
    either_way::<ByRegions>();
    either_way::<ByEntries>();
    either_way::<crate::rmap::Family>();
    #[cfg(feature = "published")]
    either_way::<crate::rmap::AnonVmaChain>();
}

#[test]
fn a_read_pin_stays_what_its_space_sees_when_the_space_stores() {
    fn stays<R: crate::rmap::ReverseMap>() {
        let vm = vm_with::<R>("", 1024);
        let space = vm.begin_space().unwrap();
        let file = vm.stored_pages(1, 4).unwrap();
        map(&vm, space, 1000, MapRequest::anonymous(2, Prot::READ));
        map(&vm, space, 2000, MapRequest::object(file, 0, 2, Prot::READ));
        map(&vm, space, 3000, MapRequest::anonymous(1, RW));
        touch(&vm, space, 1001, Access::Read);
        touch(&vm, space, 2001, Access::Read);
        touch(&vm, space, 3000, Access::Write);
        let child = vm.fork(space).unwrap();
        let pages = [1000, 1001, 2000, 2001, 3000];
        let pinned = pages.map(|page| {
            let mut frames = [Pfn::NONE];
            vm.pin_pages(space, Vpn(page), Access::Read, &mut frames)
                .unwrap();
            frames[0]
        });
        vm.audit().unwrap();
        for (start, count) in [(1000, 2), (2000, 2)] {
            vm.protect(space, Vpn(start), count, RW).unwrap();
        }
        for (page, frame) in pages.into_iter().zip(pinned) {
            touch(&vm, space, page, Access::Write);
            assert_eq!(frame_at(&vm, space, page), frame, "page {page}");
        }
        let grandchild = vm.fork(space).unwrap();
        for (page, frame) in pages.into_iter().zip(pinned) {
            assert_ne!(frame_at(&vm, grandchild, page), frame, "page {page}");
        }
        // SAFETY: pinned above, and not unpinned since.
        unsafe { vm.unpin(&pinned) };
        for id in [child, grandchild, space] {
            vm.exit(id).unwrap();
        }
        vm.audit().unwrap();
    }
    stays::<ByRegions>();
    stays::<ByEntries>();
    stays::<crate::rmap::Family>();
    #[cfg(feature = "published")]
    stays::<crate::rmap::AnonVmaChain>();
}

/// The device stores after the store has taken the page, and is done before the write is.
#[test]
fn a_page_unpinned_while_it_is_written_back_is_still_dirty() {
    run_on(0);
    let vm: Arc<TestVm> = Arc::new(vm());
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(1, 9).unwrap();
    map(
        &vm,
        space,
        1000,
        MapRequest::object(file, 0, 9, RW).shared(),
    );
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, Vpn(1003), Access::Write, &mut frames)
        .unwrap();
    let (other, is_pinned) = (Arc::clone(&vm), AtomicBool::new(true));
    let unpin = move || {
        if is_pinned.swap(false, Ordering::Relaxed) {
            // SAFETY: pinned above, and unpinned once.
            unsafe { other.unpin(&frames) };
        }
    };
    *vm.platform().on_write.lock().unwrap() = Some(Box::new(unpin));
    assert_eq!(vm.file(file).sync(), Ok(1));
    assert_eq!(
        vm.file(file).sync(),
        Ok(1),
        "what the device stored meanwhile"
    );
    assert_eq!(vm.file(file).sync(), Ok(0));
    *vm.platform().on_write.lock().unwrap() = None;
    vm.audit().unwrap();
}

/// What reclaim has meanwhile is a reference.
#[test]
fn a_pinned_page_stays_while_reclaim_looks_at_it() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1000, MapRequest::anonymous(4, RW));
    touch(&vm, space, 1001, Access::Write);
    vm.protect(space, Vpn(1000), 4, Prot::READ).unwrap();
    let mut first = [Pfn::NONE];
    let mut second = [Pfn::NONE];
    vm.pin_pages(space, Vpn(1001), Access::Read, &mut first)
        .unwrap();
    vm.memory.frame(first[0]).get();
    vm.pin_pages(space, Vpn(1001), Access::Read, &mut second)
        .unwrap();
    assert_eq!(first, second);
    vm.protect(space, Vpn(1000), 4, RW).unwrap();
    touch(&vm, space, 1001, Access::Write);
    assert_eq!(vm.translate(space, Vpn(1001)).unwrap().0, first[0]);
    vm.memory.put(&vm.pin(), first[0]);
    for frames in [first, second] {
        // SAFETY: pinned above, each once.
        unsafe { vm.unpin(&frames) };
    }
    vm.audit().unwrap();
}
