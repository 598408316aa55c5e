//! Private pages that go to swap and come back, with every reverse-mapping design
//! (invariants 8 and 14).

use std::sync::atomic::Ordering;

use super::*;
use crate::rmap::ReverseMap;
use crate::swap::{SwapArea, SwapOnError, SwapOutError};
use crate::sync::Unpinned;

const STORE: u64 = 77;
const SLOTS: u64 = 200;
const AT: u64 = 1000;

fn area(store: u64, slots: u64, priority: i32) -> SwapArea {
    SwapArea {
        store,
        slots,
        priority,
    }
}

fn swapping_vm<R: ReverseMap>(design: &str) -> TestVm<R> {
    let vm = vm_with::<R>(design, 2048);
    vm.swap_on(area(STORE, SLOTS, 0)).unwrap();
    vm
}

with_each_design! {
    a_page_comes_back_as_it_was_and_is_its_spaces_alone => out_and_in;
    what_fork_shared_comes_back_to_each => out_after_fork;
    fork_counts_the_entries_of_pages_in_swap => fork_after_out;
    unmapping_advice_and_exit_give_up_slots => slots_given_up;
    a_page_in_swap_moves_with_its_mapping => moved;
    rights_that_change_meanwhile_hold_when_the_page_comes_back => protected;
    pinned_pages_stay => pinned;
    a_page_that_is_pinned_after_it_was_looked_at_stays => pinned_late;
    a_page_that_cannot_be_written_is_not_lost => write_fails;
    the_last_who_uses_a_page_that_cannot_be_written_needs_no_memory => unwritten;
    a_page_that_cannot_be_read_is_an_error_of_its_fault_alone => read_fails;
    copies_past_the_end_of_a_file_leave_swap => truncated;
    pages_stay_when_there_is_no_slot => full;
    a_page_for_which_there_is_no_room_is_not_lost_and_its_slot_is_used_again => no_room;
    pages_go_to_the_next_area_when_one_says_that_it_has_no_room => next_area;
}

/// A space with `pages` private pages, each full of its number.
fn filled<R: ReverseMap>(vm: &TestVm<R>, pages: u64) -> SpaceId {
    let space = vm.begin_space().unwrap();
    map(vm, space, AT, MapRequest::anonymous(pages, RW));
    for page in 0..pages {
        write(vm, space, AT + page, page as u8 + 1);
    }
    space
}

/// What a program does that fills a page.
fn write<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64, byte: u8) {
    touch(vm, space, page, Access::Write);
    let (frame, prot) = vm.translate(space, Vpn(page)).unwrap();
    assert!(prot.can_write());
    vm.platform().scribble(frame, byte);
}

/// What a program reads from a page.
fn read<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64) -> u8 {
    touch(vm, space, page, Access::Read);
    let (frame, _) = vm.translate(space, Vpn(page)).unwrap();
    let bytes = vm.platform().peek(frame);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
    bytes[0]
}

fn out<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, pages: u64) {
    vm.advise(space, Vpn(AT), pages, Advice::PageOut).unwrap();
    vm.audit().unwrap();
}

fn swapped<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> u64 {
    vm.space_stats(space).unwrap().swapped
}

/// Ends the spaces; nothing is left anywhere.
fn finish<R: ReverseMap>(vm: &TestVm<R>, spaces: &[SpaceId]) {
    vm.audit().unwrap();
    for &space in spaces {
        assert_eq!(vm.exit(space), Ok(true));
        vm.audit().unwrap();
    }
    let stats = vm.swap_stats();
    assert_eq!(stats.free + stats.bad, stats.slots);
    for area in vm.swap_areas() {
        let left = vm.platform().stored_pages(area.store);
        assert_eq!(left, 0, "the store was not told of slots that are free");
    }
    let report = vm.audit().unwrap();
    assert_eq!((report.swapped, report.frames.of(Kind::Anonymous)), (0, 0));
}

fn out_and_in<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let space = filled(&vm, 20);
    out(&vm, space, 20);
    assert_eq!(swapped(&vm, space), 20, "{design}");
    assert_eq!(vm.space_stats(space).unwrap().rss.anonymous, 0);
    assert_eq!(vm.translate(space, Vpn(AT)), None);
    assert_eq!(vm.swap_stats().free, SLOTS - 20);
    // Written side by side.
    let rows: Vec<(u64, usize)> = (0..20).map(|slot| (slot, 1)).collect();
    assert_eq!(vm.platform().take_written(), rows);
    for page in 0..20 {
        assert_eq!(read(&vm, space, AT + page), page as u8 + 1, "{design}");
        // A store needs neither a copy nor a fault.
        assert!(vm.translate(space, Vpn(AT + page)).unwrap().1.can_write());
    }
    let events = vm.stats().events;
    assert_eq!((events.swap_ins, events.cow_copies), (20, 0));
    assert_eq!(swapped(&vm, space), 0);
    assert_eq!(vm.swap_stats().free, SLOTS);
    finish(&vm, &[space]);
}

fn out_after_fork<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let parent = filled(&vm, 8);
    let children = [vm.fork(parent).unwrap(), vm.fork(parent).unwrap()];
    out(&vm, parent, 8);
    assert_eq!(vm.swap_stats().outs, 8, "{design}: once for all who share");
    for space in [parent, children[0], children[1]] {
        assert_eq!(swapped(&vm, space), 8, "{design}");
    }
    write(&vm, children[0], AT + 3, 0xaa);
    assert_eq!(read(&vm, parent, AT + 3), 4);
    vm.audit().unwrap();
    assert_eq!(read(&vm, children[1], AT + 3), 4);
    assert_eq!(read(&vm, children[0], AT + 3), 0xaa);
    assert_eq!(vm.swap_stats().free, SLOTS - 7);
    // Once more, now that the pages are each space's own.
    out(&vm, children[0], 8);
    assert_eq!(read(&vm, children[0], AT + 3), 0xaa);
    finish(&vm, &[parent, children[1], children[0]]);
}

fn fork_after_out<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let parent = filled(&vm, 5);
    out(&vm, parent, 5);
    let child = vm.fork(parent).unwrap();
    vm.audit().unwrap();
    assert_eq!(swapped(&vm, child), 5, "{design}");
    assert_eq!(vm.swap_stats().free, SLOTS - 5);
    write(&vm, parent, AT + 1, 0xbb);
    assert_eq!(read(&vm, child, AT + 1), 2);
    assert_eq!(vm.exit(parent), Ok(true));
    vm.audit().unwrap();
    let grandchild = vm.fork(child).unwrap();
    for page in 0..5 {
        assert_eq!(read(&vm, grandchild, AT + page), page as u8 + 1);
        assert_eq!(read(&vm, child, AT + page), page as u8 + 1);
    }
    finish(&vm, &[child, grandchild]);
}

fn slots_given_up<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let space = filled(&vm, 12);
    let child = vm.fork(space).unwrap();
    out(&vm, space, 12);
    vm.unmap(space, Vpn(AT), 4).unwrap();
    vm.advise(space, Vpn(AT + 4), 4, Advice::DontNeed).unwrap();
    vm.audit().unwrap();
    assert_eq!(swapped(&vm, space), 4, "{design}");
    assert_eq!(vm.swap_stats().free, SLOTS - 12, "the child has them");
    assert_eq!(read(&vm, space, AT + 5), 0);
    vm.unmap(child, Vpn(AT), 8).unwrap();
    assert_eq!(vm.swap_stats().free, SLOTS - 4);
    assert_eq!(vm.exit(child), Ok(true));
    assert_eq!(vm.swap_stats().free, SLOTS - 4);
    finish(&vm, &[space]);
}

fn moved<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let space = filled(&vm, 6);
    let child = vm.fork(space).unwrap();
    out(&vm, space, 4);
    let to = Vpn(AT + 5000);
    vm.remap(space, Vpn(AT), 6, 9, RemapPlacement::Fixed(to))
        .unwrap();
    vm.audit().unwrap();
    for page in 0..6 {
        assert_eq!(read(&vm, space, to.0 + page), page as u8 + 1, "{design}");
        vm.audit().unwrap();
        assert_eq!(read(&vm, child, AT + page), page as u8 + 1, "{design}");
    }
    finish(&vm, &[space, child]);
}

fn protected<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let space = filled(&vm, 3);
    out(&vm, space, 3);
    vm.protect(space, Vpn(AT), 3, Prot::NONE).unwrap();
    let fault = vm.fault(space, AT << 12, Access::Read);
    assert_eq!(fault, Err(FaultError::Protection), "{design}");
    vm.protect(space, Vpn(AT), 2, Prot::READ).unwrap();
    assert_eq!(read(&vm, space, AT + 1), 2);
    assert!(!vm.translate(space, Vpn(AT + 1)).unwrap().1.can_write());
    let store = vm.fault(space, (AT + 1) << 12, Access::Write);
    assert_eq!(store, Err(FaultError::Protection));
    finish(&vm, &[space]);
}

/// The pin comes between the look at the page's counts, with which swapping out begins, and that at
/// its entries.
fn pinned_late<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let space = filled(&vm, 1);
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, Vpn(AT), Access::Write, &mut frames)
        .unwrap();
    let [page] = frames;
    let (pin, memory) = (vm.pin(), &vm.memory);
    let lock = vm.objects.locks.try_lock(memory, page).unwrap();
    let cache = vm.page_cache();
    let swap = cache.swap().unwrap();
    let slot = swap.begin_out(memory, &pin, page).unwrap();
    assert_eq!(cache.mappings.swap_entries(&pin, page, slot), 0, "{design}");
    swap.end_out(memory, &pin, slot, None);
    vm.objects.locks.unlock(memory, &pin, lock);
    drop(pin);
    assert_eq!(vm.translate(space, Vpn(AT)).unwrap().0, page, "{design}");
    // SAFETY: pinned above, and used by nobody.
    unsafe { vm.unpin(&frames) };
    finish(&vm, &[space]);
}

fn pinned<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let space = filled(&vm, 4);
    out(&vm, space, 1);
    let mut frames = [Pfn::NONE; 2];
    // The first comes back for that.
    vm.pin_pages(space, Vpn(AT), Access::Write, &mut frames)
        .unwrap();
    out(&vm, space, 4);
    assert_eq!(swapped(&vm, space), 2, "{design}");
    vm.platform().scribble(frames[0], 0x66);
    assert_eq!(read(&vm, space, AT), 0x66);
    // Once several spaces have it, with a pin for reading: none of them loses it.
    let mut shared = [Pfn::NONE];
    let child = vm.fork(space).unwrap();
    vm.pin_pages(child, Vpn(AT + 3), Access::Read, &mut shared)
        .unwrap();
    out(&vm, space, 4);
    assert_eq!(vm.translate(child, Vpn(AT + 3)).unwrap().0, shared[0]);
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    // SAFETY: the same.
    unsafe { vm.unpin(&shared) };
    out(&vm, space, 4);
    assert_eq!(swapped(&vm, space), 4);
    finish(&vm, &[space, child]);
}

fn write_fails<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let parent = filled(&vm, 4);
    let child = vm.fork(parent).unwrap();
    write(&vm, parent, AT, 0x51);
    vm.platform().broken_store.store(true, Ordering::Relaxed);
    out(&vm, parent, 4);
    let stats = vm.swap_stats();
    assert_eq!((stats.outs, stats.write_errors), (0, 4), "{design}");
    // What is in memory needs no store.
    assert_eq!(read(&vm, parent, AT), 0x51);
    assert_eq!(read(&vm, child, AT + 1), 2);
    write(&vm, parent, AT + 1, 0x52);
    assert_eq!(read(&vm, child, AT + 1), 2);
    vm.audit().unwrap();
    let grandchild = vm.fork(parent).unwrap();
    vm.audit().unwrap();
    for (space, pages) in [(parent, [0x51, 0x52, 3, 4]), (child, [1, 2, 3, 4])] {
        for (page, byte) in (AT..).zip(pages) {
            assert_eq!(read(&vm, space, page), byte);
        }
    }
    vm.platform().broken_store.store(false, Ordering::Relaxed);
    // The places that failed are not used again.
    out(&vm, parent, 4);
    vm.platform().take_written();
    assert_eq!(vm.swap_stats().outs, 4);
    assert_eq!(read(&vm, parent, AT), 0x51);
    assert_eq!(read(&vm, grandchild, AT + 2), 3);
    finish(&vm, &[parent, grandchild, child]);
    assert_eq!(vm.swap_stats().bad, 4);
}

/// Whoever uses such a page last gets its frame, for which no memory is needed.
fn unwritten<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let parent = filled(&vm, 3);
    let frame = |space, page| vm.translate(space, Vpn(AT + page)).unwrap().0;
    let frames = [0, 1, 2].map(|page| frame(parent, page));
    vm.platform().broken_store.store(true, Ordering::Relaxed);
    out(&vm, parent, 3);
    assert_eq!(swapped(&vm, parent), 3, "{design}");
    let child = vm.fork(parent).unwrap();
    write(&vm, child, AT, 0x61);
    assert_ne!(frame(child, 0), frames[0], "the parent wants it, too");
    write(&vm, parent, AT, 0x62);
    assert_eq!(frame(parent, 0), frames[0], "{design}");
    assert_eq!(read(&vm, child, AT), 0x61);
    vm.exit(child).unwrap();
    for page in 1..3 {
        assert_eq!(read(&vm, parent, AT + page), page as u8 + 1);
        assert_eq!(frame(parent, page), frames[page as usize], "{design}");
    }
    assert_eq!(vm.swap_stats().copies, 1);
    vm.audit().unwrap();
    // It is a page like any other.
    vm.platform().broken_store.store(false, Ordering::Relaxed);
    let child = vm.fork(parent).unwrap();
    out(&vm, parent, 3);
    assert_eq!((swapped(&vm, parent), swapped(&vm, child)), (3, 3));
    vm.platform().take_written();
    assert_eq!(read(&vm, child, AT), 0x62);
    finish(&vm, &[parent, child]);
}

fn read_fails<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let parent = filled(&vm, 4);
    let child = vm.fork(parent).unwrap();
    out(&vm, parent, 3);
    vm.platform().broken_store.store(true, Ordering::Relaxed);
    for access in [Access::Read, Access::Write] {
        let fault = vm.fault(parent, AT << 12, access);
        assert_eq!(fault, Err(FaultError::Io), "{design}");
        vm.audit().unwrap();
    }
    let mut frames = [Pfn::NONE];
    let pinned = vm.pin_pages(child, Vpn(AT), Access::Write, &mut frames);
    assert_eq!(pinned, Err(PinError::Fault(FaultError::Io)));
    assert_eq!(read(&vm, parent, AT + 3), 4, "another page");
    assert_eq!(swapped(&vm, parent), 3);
    vm.platform().broken_store.store(false, Ordering::Relaxed);
    assert_eq!(read(&vm, parent, AT), 1);
    assert_eq!(read(&vm, child, AT), 1);
    assert_eq!(vm.swap_stats().read_errors, 3);
    finish(&vm, &[parent, child]);
}

fn truncated<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let file = vm.stored_pages(1, 9).unwrap();
    let space = vm.begin_space().unwrap();
    map(&vm, space, AT, MapRequest::object(file, 0, 9, RW));
    for page in 0..9 {
        write(&vm, space, AT + page, 0x30 + page as u8);
    }
    let child = vm.fork(space).unwrap();
    out(&vm, space, 8);
    assert_eq!(swapped(&vm, space), 8, "{design}");
    vm.page_cache().set_size(file, 4 << 12).unwrap();
    vm.audit().unwrap();
    assert_eq!(
        (swapped(&vm, space), swapped(&vm, child)),
        (4, 4),
        "{design}"
    );
    let fault = vm.fault(space, (AT + 6) << 12, Access::Read);
    assert_eq!(fault, Err(FaultError::PastEnd));
    assert_eq!(read(&vm, child, AT + 2), 0x32);
    finish(&vm, &[space, child]);
    vm.page_cache().release_object(file).unwrap();
    vm.audit().unwrap();
}

fn full<R: ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 2048);
    let space = filled(&vm, 100);
    out(&vm, space, 100);
    assert_eq!(swapped(&vm, space), 0, "{design}: there is no area");
    vm.swap_on(area(STORE, 70, 0)).unwrap();
    out(&vm, space, 100);
    assert_eq!(swapped(&vm, space), 70, "{design}");
    assert!(!vm.can_swap());
    for page in 0..100 {
        assert_eq!(read(&vm, space, AT + page), page as u8 + 1);
    }
    finish(&vm, &[space]);
}

fn no_room<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    let parent = filled(&vm, 5);
    let child = vm.fork(parent).unwrap();
    vm.platform().swap_limit.store(2, Ordering::Relaxed);
    out(&vm, parent, 5);
    let stats = vm.swap_stats();
    assert_eq!((stats.outs, stats.no_room, stats.write_errors), (2, 3, 0));
    assert_eq!((swapped(&vm, parent), swapped(&vm, child)), (5, 5));
    // Its owners find it in memory, one by one.
    write(&vm, parent, AT + 4, 0x61);
    for (space, last) in [(child, 5), (parent, 0x61)] {
        for (page, byte) in (AT..).zip([1, 2, 3, 4, last]) {
            assert_eq!(read(&vm, space, page), byte, "{design}");
        }
    }
    let stats = vm.swap_stats();
    assert_eq!((stats.free, stats.bad), (SLOTS, 0), "{design}");
    // Each time the same slots.
    for _ in 0..3 {
        out(&vm, child, 3);
        assert_eq!(read(&vm, child, AT + 2), 3);
        let others = [read(&vm, child, AT), read(&vm, child, AT + 1)];
        assert_eq!(others, [1, 2]);
    }
    finish(&vm, &[parent, child]);
}

fn next_area<R: ReverseMap>(design: &str) {
    let vm = swapping_vm::<R>(design);
    vm.swap_on(area(STORE + 1, SLOTS, -1)).unwrap();
    vm.platform().swap_limit.store(3, Ordering::Relaxed);
    vm.platform().tells_room.store(true, Ordering::Relaxed);
    let space = filled(&vm, 8);
    out(&vm, space, 8);
    let stored = [0, 1].map(|more| vm.platform().stored_pages(STORE + more));
    assert_eq!((stored, swapped(&vm, space)), ([3, 3], 6), "{design}");
    assert_eq!((vm.swap_stats().no_room, vm.can_swap()), (0, false));
    assert_eq!(vm.space_stats(space).unwrap().rss.anonymous, 2);
    assert_eq!(read(&vm, space, AT), 1);
    assert!(vm.can_swap());
    out(&vm, space, 1);
    assert_eq!(vm.platform().stored_pages(STORE), 3, "{design}");
    for page in 0..8 {
        assert_eq!(read(&vm, space, AT + page), page as u8 + 1, "{design}");
    }
    finish(&vm, &[space]);
}

#[test]
fn areas_are_filled_by_priority_and_in_the_order_in_which_they_were_added() {
    let vm = vm();
    for (store, slots, priority) in [(1, 3, -1), (2, 4, 7), (3, 5, 7)] {
        vm.swap_on(area(store, slots, priority)).unwrap();
    }
    let order: Vec<u64> = vm.swap_areas().iter().map(|area| area.store).collect();
    assert_eq!(order, [2, 3, 1]);
    let space = filled(&vm, 12);
    for (pages, free) in [(4, [0, 5, 3]), (6, [0, 3, 3]), (10, [0, 0, 2])] {
        out(&vm, space, pages);
        let found: Vec<u64> = vm.swap_areas().iter().map(|area| area.free).collect();
        assert_eq!(found, free);
    }
    for page in 0..12 {
        assert_eq!(read(&vm, space, AT + page), page as u8 + 1);
    }
    finish(&vm, &[space]);
}

#[test]
fn an_area_of_no_size_or_one_too_many_is_refused() {
    let vm = vm();
    for slots in [0, u64::MAX, crate::swap::Swap::MAX_SLOTS + 1] {
        assert_eq!(vm.swap_on(area(1, slots, 0)), Err(SwapOnError::BadSize));
        assert!(!vm.can_swap() && vm.swap_areas().is_empty());
    }
    for store in 0..crate::swap::MAX_AREAS as u64 {
        vm.swap_on(area(store, 1, 0)).unwrap();
    }
    assert_eq!(vm.swap_on(area(99, 1, 0)), Err(SwapOnError::TooMany));
    assert_eq!(vm.swap_stats().slots, 32);
}

#[test]
fn a_page_to_which_somebody_else_has_a_reference_stays() {
    let vm = swapping_vm::<ByRegions>("");
    let space = filled(&vm, 1);
    let (page, _) = vm.translate(space, Vpn(AT)).unwrap();
    let frame = vm.memory.frame(page);
    for others in [1, 0] {
        for _ in 0..=others {
            frame.get();
        }
        let swapped = vm.page_cache().swap_out_page(Unpinned::at_door(), page);
        match others {
            0 => assert!(swapped.is_ok()),
            _ => assert_eq!(swapped, Err(SwapOutError::InUse)),
        }
        for _ in 0..=others {
            vm.memory.put(&vm.pin(), page);
        }
    }
    assert_eq!(vm.memory.frame(page).kind(), Kind::Cached, "free at once");
    // Neither is the zero page one, or a page of a file.
    let file = vm.stored_pages(1, 1).unwrap();
    map(&vm, space, 3000, MapRequest::object(file, 0, 1, RW));
    map(&vm, space, 3001, MapRequest::anonymous(1, RW));
    for at in [3000, 3001] {
        touch(&vm, space, at, Access::Read);
        let (page, _) = vm.translate(space, Vpn(at)).unwrap();
        assert_eq!(
            vm.page_cache().swap_out_page(Unpinned::at_door(), page),
            Err(SwapOutError::InUse)
        );
    }
    vm.advise(space, Vpn(3000), 2, Advice::PageOut).unwrap();
    assert_eq!(read(&vm, space, AT), 1);
    assert_eq!(vm.exit(space), Ok(true));
    vm.page_cache().release_object(file).unwrap();
    vm.audit().unwrap();
}

#[test]
fn advice_about_a_hole_or_nobody_is_refused_all_the_same() {
    let vm = swapping_vm::<ByRegions>("");
    let space = filled(&vm, 4);
    let advise = |space, pages| vm.advise(space, Vpn(AT), pages, Advice::PageOut);
    assert_eq!(advise(space, 5), Err(MapError::NotMapped));
    assert_eq!(swapped(&vm, space), 4);
    assert_eq!(advise(space, 0), Err(MapError::BadRange));
    assert_eq!(advise(SpaceId::from_bits(7), 1), Err(MapError::NoSpace));
    finish(&vm, &[space]);
}

#[test]
fn memory_that_runs_out_while_a_page_comes_back_leaves_it_in_swap() {
    let vm = swapping_vm::<ByRegions>("");
    let space = filled(&vm, 2);
    out(&vm, space, 2);
    let plan = crate::frame::FailAt {
        site: crate::frame::Site::SwapIn,
        after: 0,
    };
    vm.memory().inject(Some(plan));
    let fault = vm.fault(space, AT << 12, Access::Read);
    assert_eq!(fault, Err(FaultError::OutOfMemory));
    vm.memory().inject(None);
    vm.audit().unwrap();
    assert_eq!(swapped(&vm, space), 2);
    assert_eq!(read(&vm, space, AT), 1);
    finish(&vm, &[space]);
}

#[test]
fn superpages_are_split_before_they_go_to_swap_and_none_is_made_around_swap() {
    let vm = vm_with::<ByRegions>("superpage=eager", 4096);
    vm.swap_on(area(STORE, 600, 0)).unwrap();
    let space = vm.begin_space().unwrap();
    map(&vm, space, 1024, MapRequest::anonymous(512, RW));
    touch(&vm, space, 1030, Access::Write);
    assert_eq!(vm.stats().events.superpage_maps, 1);
    vm.platform()
        .scribble(vm.translate(space, Vpn(1031)).unwrap().0, 9);
    vm.advise(space, Vpn(1030), 4, Advice::PageOut).unwrap();
    vm.audit().unwrap();
    assert_eq!(swapped(&vm, space), 4);
    let collapsed = vm.collapse(space, Vpn(1024), 1, 1).unwrap();
    assert_eq!((collapsed.scanned, collapsed.collapsed), (1, 0));
    assert_eq!(read(&vm, space, 1031), 9);
    assert_eq!(read(&vm, space, 1033), 0);
    finish(&vm, &[space]);
}

#[test]
fn a_page_that_several_want_is_read_by_one_and_waited_for_by_the_others() {
    let vm = Arc::new(swapping_vm::<ByRegions>(""));
    let space = filled(&vm, 1);
    for round in 0..50u8 {
        assert!(vm.advise(space, Vpn(AT), 1, Advice::PageOut).is_ok());
        std::thread::scope(|scope| {
            for cpu in 0..2 {
                let vm = &vm;
                scope.spawn(move || {
                    run_on(cpu);
                    vm.fault(space, AT << 12, Access::Write).unwrap();
                });
            }
        });
        assert_eq!(vm.swap_stats().ins, u64::from(round) + 1);
        vm.audit().unwrap();
    }
    finish(&vm, &[space]);
}

#[test]
fn swapping_does_not_use_the_global_allocator() {
    let vm = swapping_vm::<ByRegions>("");
    let space = filled(&vm, 10);
    let calls = crate::testing::allocations(|| {
        vm.advise(space, Vpn(AT), 10, Advice::PageOut).unwrap();
        for page in 0..10 {
            touch(&vm, space, AT + page, Access::Write);
        }
    });
    assert_eq!(calls, 0);
    assert_eq!(vm.swap_stats().ins, 10);
    finish(&vm, &[space]);
}
