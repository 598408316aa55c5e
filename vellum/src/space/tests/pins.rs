//! Pinned pages: they outlive their mappings, their object and their space.

use super::*;

#[test]
fn a_pinned_page_survives_truncation_and_exit() {
    for design in ["rmap=partial", "rmap=chains"] {
        if design == "rmap=chains" {
            pinned_page::<Chains>(design);
        } else {
            pinned_page::<Partial>(design);
        }
    }
}

fn pinned_page<R: crate::rmap::ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 1024);
    let space = vm.create_space().unwrap();
    let file = vm.create_file(1, 9).unwrap();
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
    vm.truncate(file, 0).unwrap();
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.release_object(file).unwrap();
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
    let space = vm.create_space().unwrap();
    let file = vm.create_file(1, 9).unwrap();
    map(
        &vm,
        space,
        1000,
        MapRequest::object(file, 0, 9, RW).shared(),
    );
    touch(&vm, space, 1003, Access::Write);
    assert_eq!(vm.sync(file), Ok(1));
    assert_eq!(vm.sync(file), Ok(0));
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, Vpn(1003), Access::Write, &mut frames)
        .unwrap();
    assert_eq!(vm.sync(file), Ok(1), "the entry was writable and clean");
    assert_eq!(vm.sync(file), Ok(1), "the device may have written again");
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    assert_eq!(vm.sync(file), Ok(1));
    assert_eq!(vm.sync(file), Ok(0));
    vm.audit().unwrap();
}

#[test]
fn fork_copies_pinned_pages_and_shares_the_others() {
    let vm = vm();
    let space = vm.create_space().unwrap();
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
