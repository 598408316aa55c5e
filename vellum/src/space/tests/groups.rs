//! Groups of spaces: who is charged for which page, what a limit does, and what is left of a group.

mod random;
mod within;

use crate::rmap::ReverseMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::vec;

use super::*;
use crate::frame::{FailAt, GroupLimits, Site};
use crate::platform::{GroupId, NodeId, Rescue};
use crate::space::{FileError, GroupError, GroupStats};
use crate::swap::SwapArea;

const AT: u64 = 1000;
const STORE: u64 = 3;
const SWAP: SwapArea = SwapArea::new(77, 4000);
const AGINGS: [&str; 2] = ["lru", "generations"];

/// A manager with groups and a swap area.
fn grouping_vm(aging: &str, frames: u32) -> TestVm {
    let vm = vm_with::<ByRegions>(&std::format!("reclaim=on,groups=on,aging={aging}"), frames);
    vm.swap_on(SWAP).unwrap();
    vm
}

/// The same without a place for private pages to leave to.
fn tight_vm(frames: u32) -> TestVm {
    vm_with::<ByRegions>("reclaim=on,groups=on", frames)
}

/// A space of a group with a region of private memory.
fn space_in(vm: &TestVm, group: GroupId) -> SpaceId {
    let space = vm.begin_space().unwrap();
    vm.set_group(space, group).unwrap();
    map(vm, space, AT, MapRequest::anonymous(1000, RW));
    space
}

fn fill(vm: &TestVm, space: SpaceId, pages: core::ops::Range<u64>) {
    for page in pages {
        store(vm, space, page, page as u8 | 1);
    }
}

fn store(vm: &TestVm, space: SpaceId, page: u64, byte: u8) {
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, Vpn(AT + page), Access::Write, &mut frames)
        .unwrap();
    vm.platform().scribble(frames[0], byte);
    // SAFETY: pinned above.
    unsafe { vm.unpin(&frames) };
}

fn check(vm: &TestVm, space: SpaceId, pages: core::ops::Range<u64>) {
    for page in pages {
        touch(vm, space, AT + page, Access::Read);
        let (frame, _) = vm.translate(space, Vpn(AT + page)).unwrap();
        let bytes = vm.platform().peek(frame);
        assert!(bytes.iter().all(|&byte| byte == page as u8 | 1), "{page}");
    }
}

fn stats<R: ReverseMap>(vm: &TestVm<R>, group: GroupId) -> GroupStats {
    vm.audit().unwrap();
    vm.page_cache().group_stats(group).unwrap()
}

fn usage<R: ReverseMap>(vm: &TestVm<R>, group: GroupId) -> u64 {
    stats(vm, group).usage
}

fn tries(vm: &TestVm, space: SpaceId, page: u64) -> Result<Resolved, FaultError> {
    vm.fault(space, (AT + page) << 12, Access::Write)
}

#[test]
fn who_touches_a_page_first_is_charged_until_it_is_freed() {
    let vm = tight_vm(2000);
    let (one, other) = (
        vm.page_cache().new_group(u64::MAX).unwrap(),
        vm.page_cache().new_group(u64::MAX).unwrap(),
    );
    let parent = space_in(&vm, one);
    touch(&vm, parent, AT + 900, Access::Read);
    assert_eq!(usage(&vm, one), 0, "the zero page is nobody's");
    fill(&vm, parent, 0..10);
    touch(&vm, parent, AT + 900, Access::Write);
    assert_eq!(usage(&vm, one), 11);
    let child = vm.fork(parent).unwrap();
    assert_eq!(vm.group_of(child), Some(one), "a child begins there");
    assert_eq!(usage(&vm, one), 11, "shared pages are charged once");
    vm.set_group(child, other).unwrap();
    assert_eq!(
        (usage(&vm, one), usage(&vm, other)),
        (11, 0),
        "charges stay"
    );
    fill(&vm, child, 0..4);
    assert_eq!((usage(&vm, one), usage(&vm, other)), (11, 4), "copies");
    vm.advise(child, Vpn(AT), 4, Advice::DontNeed).unwrap();
    assert_eq!(usage(&vm, other), 0);
    vm.exit(parent).unwrap();
    assert_eq!(usage(&vm, one), 7, "the child maps six and the last");
    vm.exit(child).unwrap();
    assert_eq!((usage(&vm, one), usage(&vm, other)), (0, 0));
    assert_eq!(stats(&vm, other).spaces, 0);
}

#[test]
fn pages_of_objects_are_charged_to_who_brings_them_in() {
    let vm = tight_vm(2000);
    let (one, other) = (
        vm.page_cache().new_group(u64::MAX).unwrap(),
        vm.page_cache().new_group(u64::MAX).unwrap(),
    );
    let file = vm.stored_pages(STORE, 100).unwrap();
    let (reader, mapper) = (space_in(&vm, one), space_in(&vm, other));
    map(
        &vm,
        mapper,
        9000,
        MapRequest::object(file, 0, 100, RW).shared(),
    );
    touch(&vm, mapper, 9000, Access::Write);
    assert_eq!(usage(&vm, other), 1);
    vm.load(reader).unwrap();
    let mut bytes = vec![0; 10 << 12];
    assert_eq!(
        vm.page_cache().read_at(file, 0, &mut [&mut bytes]),
        Ok(10 << 12)
    );
    let read = usage(&vm, one);
    assert!((9..40).contains(&read), "nine, and some ahead: {read}");
    assert_eq!(
        vm.page_cache().write_at(file, 90 << 12, &[&bytes]),
        Ok(10 << 12)
    );
    assert_eq!(usage(&vm, one), read + 10);
    touch(&vm, mapper, 9000 + 95, Access::Write);
    assert_eq!(usage(&vm, other), 1, "that was there");
    let memory = vm.memory_pages(10).unwrap();
    map(
        &vm,
        mapper,
        9500,
        MapRequest::object(memory, 0, 10, RW).shared(),
    );
    (0..10).for_each(|page| touch(&vm, mapper, 9500 + page, Access::Write));
    assert_eq!(usage(&vm, other), 11);
    vm.exit(mapper).unwrap();
    vm.page_cache().release_object(memory).unwrap();
    assert_eq!(usage(&vm, other), 1, "the file keeps its page");
    vm.page_cache().release_object(file).unwrap();
    assert_eq!((usage(&vm, one), usage(&vm, other)), (0, 0));
    vm.exit(reader).unwrap();
}

#[test]
fn frames_set_aside_for_a_file_that_grows_are_charged_when_they_become_pages() {
    let vm = vm_with::<ByRegions>("reclaim=on,groups=on,huge=always", 8192);
    let group = vm.page_cache().new_group(40).unwrap();
    let (inside, outside) = (space_in(&vm, group), space_in(&vm, GroupId::ROOT));
    let file = vm.memory_pages(0).unwrap();
    let page = [7; 4096];
    vm.load(inside).unwrap();
    for index in 0..39 {
        assert_eq!(
            vm.page_cache().append(file, &[&page]),
            Ok((index << 12, 4096))
        );
        assert_eq!(usage(&vm, group), index + 1);
    }
    assert_eq!(vm.stats().frames.reservations.populated, 39);
    let request = MapRequest::object(file, 0, 100, RW).shared();
    map(&vm, inside, 9000, request);
    assert_eq!(
        vm.page_cache().append(file, &[&page[..9]]),
        Ok((39 << 12, 9))
    );
    assert_eq!(usage(&vm, group), 40);
    let refused = Err(FileError::GroupLimit(group));
    assert_eq!(
        vm.page_cache().append(file, &[&page, &page]),
        Ok((39 << 12 | 9, 4087))
    );
    assert_eq!(
        vm.page_cache().append(file, &[&page]),
        refused,
        "whole pages"
    );
    assert_eq!(
        vm.page_cache().append(file, &[&page[..9]]),
        refused,
        "a part"
    );
    vm.page_cache().set_size(file, 60 << 12).unwrap();
    let refused = Err(FaultError::GroupLimit(group));
    assert_eq!(vm.fault(inside, 9050 << 12, Access::Write), refused);
    assert_eq!(usage(&vm, group), 40);
    // The frames that were refused are still where they belong.
    vm.load(outside).unwrap();
    assert_eq!(vm.page_cache().write_at(file, 40 << 12, &[&page]), Ok(4096));
    assert_eq!(vm.stats().frames.reservations.populated, 41);
    assert_eq!(usage(&vm, group), 40);
    vm.page_cache().release_object(file).unwrap();
    vm.unmap(inside, Vpn(9000), 100).unwrap();
    assert_eq!(usage(&vm, group), 0);
}

#[test]
fn a_frame_that_goes_back_to_a_growing_file_is_charged_no_more() {
    for after in 0..3 {
        let vm = vm_with::<ByRegions>("reclaim=on,groups=on,huge=always", 8192);
        let group = vm.page_cache().new_group(u64::MAX).unwrap();
        vm.load(space_in(&vm, group)).unwrap();
        let file = vm.memory_pages(0).unwrap();
        let site = Site::RadixNode;
        vm.memory().inject(Some(FailAt { site, after }));
        let pages = [7; 9 << 12];
        let written = vm
            .page_cache()
            .append(file, &[&pages])
            .map_or(0, |(_, bytes)| bytes);
        let made = written.div_ceil(4096) as u64;
        assert_eq!(usage(&vm, group), made, "{after}");
        vm.memory().inject(None);
        vm.page_cache().append(file, &[&pages]).unwrap();
        vm.page_cache().release_object(file).unwrap();
        assert_eq!(usage(&vm, group), 0);
    }
}

#[test]
fn a_group_at_its_limit_gives_its_own_pages_and_nobody_elses() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 2000);
        let group = vm.page_cache().new_group(60).unwrap();
        let (inside, outside) = (space_in(&vm, group), space_in(&vm, GroupId::ROOT));
        fill(&vm, outside, 0..200);
        for _ in 0..2 {
            fill(&vm, inside, 0..240);
            assert!(usage(&vm, group) <= 60, "{aging}");
            check(&vm, inside, 0..240);
        }
        let outside_stats = vm.space_stats(outside).unwrap();
        assert_eq!(outside_stats.rss.anonymous, 200, "{aging}");
        assert_eq!(outside_stats.swapped, 0, "{aging}");
        let stats = stats(&vm, group);
        assert!(stats.peak <= 60 && stats.peak > 50, "{aging}: {stats:?}");
        assert!(stats.reclaimed > 700 && stats.limit_hits > 10, "{stats:?}");
        assert_eq!(stats.failures, 0);
        assert!(stats.scanned <= 4 * stats.reclaimed, "{aging}: {stats:?}");
        check(&vm, outside, 0..200);
    }
}

#[test]
fn files_that_a_group_reads_stay_within_its_limit_with_what_is_read_ahead() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 2000);
        let group = vm.page_cache().new_group(40).unwrap();
        let file = vm.stored_pages(STORE, 500).unwrap();
        vm.load(space_in(&vm, group)).unwrap();
        let mut byte = [0];
        for index in 0..500 {
            vm.page_cache()
                .read_at(file, index << 12, &mut [&mut byte])
                .unwrap();
            assert!(
                vm.page_cache().group_stats(group).unwrap().usage <= 40,
                "{aging}"
            );
        }
        let bytes = vec![7; 100 << 12];
        assert_eq!(
            vm.page_cache().write_at(file, 0, &[&bytes]),
            Ok(100 << 12),
            "{aging}"
        );
        let stats = stats(&vm, group);
        assert!(stats.peak <= 40 && stats.reclaimed > 500, "{stats:?}");
        assert!(stats.refaults <= stats.reclaimed, "{stats:?}");
    }
}

#[test]
fn what_comes_back_from_swap_is_charged_to_who_wants_it() {
    let vm = grouping_vm("lru", 2000);
    let (one, other) = (
        vm.page_cache().new_group(200).unwrap(),
        vm.page_cache().new_group(30).unwrap(),
    );
    let space = space_in(&vm, one);
    fill(&vm, space, 0..100);
    vm.advise(space, Vpn(AT), 100, Advice::PageOut).unwrap();
    assert_eq!(usage(&vm, one), 0);
    vm.set_group(space, other).unwrap();
    check(&vm, space, 0..100);
    let (one, other) = (stats(&vm, one), stats(&vm, other));
    assert_eq!(one.usage, 0);
    assert!((20..=30).contains(&other.usage), "{other:?}");
    assert!(other.peak <= 30, "also what was read ahead: {other:?}");
}

#[test]
fn what_is_read_ahead_from_swap_is_charged_to_who_wants_the_first() {
    let vm = grouping_vm("lru", 2000);
    let group = vm.page_cache().new_group(200).unwrap();
    let space = space_in(&vm, group);
    fill(&vm, space, 0..64);
    vm.advise(space, Vpn(AT), 64, Advice::PageOut).unwrap();
    check(&vm, space, 20..21);
    let ahead = usage(&vm, group);
    assert!(ahead > 1, "{ahead}");
    check(&vm, space, 0..64);
    assert_eq!(usage(&vm, group), 64);
}

#[test]
fn what_a_group_cannot_have_is_refused_by_its_name_and_nothing_has_changed() {
    let vm = tight_vm(2000);
    let (small, large) = (
        vm.page_cache().new_group(20).unwrap(),
        vm.page_cache().new_group(100).unwrap(),
    );
    let (inside, beside) = (space_in(&vm, small), space_in(&vm, large));
    fill(&vm, inside, 0..20);
    let refused = Err(FaultError::GroupLimit(small));
    for _ in 0..2 {
        assert_eq!(tries(&vm, inside, 20), refused);
        assert_eq!(vm.translate(inside, Vpn(AT + 20)), None);
    }
    let child = vm.fork(inside).unwrap();
    assert_eq!(tries(&vm, child, 0), refused, "a copy");
    check(&vm, child, 0..20);
    vm.exit(child).unwrap();
    vm.load(inside).unwrap();
    let memory = vm.memory_pages(0).unwrap();
    let written = vm.page_cache().write_at(memory, 0, &[&[1; 4096]]);
    assert_eq!(written, Err(FileError::GroupLimit(small)));
    assert_eq!(vm.page_cache().size(memory), Some(0));
    let failed = stats(&vm, small);
    assert_eq!((failed.usage, failed.failures), (20, 4));
    fill(&vm, beside, 0..100);
    assert_eq!(tries(&vm, beside, 100), Err(FaultError::GroupLimit(large)));
    fill(&vm, space_in(&vm, GroupId::ROOT), 0..300);
    vm.advise(inside, Vpn(AT), 1, Advice::DontNeed).unwrap();
    assert_eq!(tries(&vm, inside, 20), Ok(Resolved::Mapped));
    let text = std::format!("{}", FaultError::GroupLimit(small));
    assert!(text.contains("as many pages as it may"), "{text}");
    vm.audit().unwrap();
}

#[test]
fn only_spaces_of_the_group_are_named_when_it_can_have_no_more() {
    let vm = Arc::new(tight_vm(2000));
    let group = vm.page_cache().new_group(60).unwrap();
    let (caller, mate) = (space_in(&vm, group), space_in(&vm, group));
    let outside = space_in(&vm, GroupId::ROOT);
    fill(&vm, outside, 0..500);
    fill(&vm, caller, 0..20);
    fill(&vm, mate, 0..40);
    let named: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (notes, weak) = (Arc::clone(&named), Arc::downgrade(&vm));
    let rescue = move |victim: Option<crate::platform::Victim>| {
        let victim = victim.unwrap();
        notes.lock().unwrap().push(victim.space);
        let vm = weak.upgrade().unwrap();
        match vm.exit(SpaceId::from_bits(victim.space)) {
            Ok(true) => Rescue::Again,
            _ => Rescue::Fail,
        }
    };
    *vm.platform().rescue.lock().unwrap() = Some(Box::new(rescue));
    fill(&vm, caller, 20..60);
    assert_eq!(*named.lock().unwrap(), [mate.to_bits()]);
    assert_eq!(vm.choose_victim().unwrap().space, outside.to_bits());
    assert_eq!(vm.choose_victim_of(group).unwrap().space, caller.to_bits());
    assert_eq!(usage(&vm, group), 60);
}

#[test]
fn a_full_group_has_room_as_soon_as_others_free_a_page() {
    let vm = Arc::new(grouping_vm("lru", 2000));
    let group = vm.page_cache().new_group(8).unwrap();
    let (space, other) = (space_in(&vm, group), space_in(&vm, group));
    fill(&vm, space, 0..7);
    fill(&vm, other, 0..1);
    // No page can leave, and while that is tried the other space gives one up.
    let machine = vm.platform();
    machine.broken_store.store(true, Ordering::Relaxed);
    let free = {
        let vm = Arc::clone(&vm);
        move || vm.advise(other, Vpn(AT), 1, Advice::DontNeed).unwrap()
    };
    *machine.on_write.lock().unwrap() = Some(Box::new(free));
    assert!(tries(&vm, space, 7).is_ok());
    // It keeps the manager.
    *machine.on_write.lock().unwrap() = None;
    assert_eq!(usage(&vm, group), 8);
    let failed = tries(&vm, space, 8);
    assert_eq!(failed.unwrap_err(), FaultError::GroupLimit(group));
    check(&vm, space, 0..7);
}

#[test]
fn a_limit_below_what_a_group_has_takes_the_rest_away() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 2000);
        let group = vm.page_cache().new_group(500).unwrap();
        let space = space_in(&vm, group);
        fill(&vm, space, 0..300);
        assert_eq!(vm.page_cache().set_group_limit(group, 50), Ok(0), "{aging}");
        assert!(usage(&vm, group) <= 50, "{aging}");
        check(&vm, space, 0..300);
        assert_eq!(vm.page_cache().set_group_limit(group, u64::MAX), Ok(0));
        check(&vm, space, 0..300);
        assert_eq!(usage(&vm, group), 300, "{aging}");
        let mut frames = [Pfn::NONE; 10];
        vm.pin_pages(space, Vpn(AT), Access::Write, &mut frames)
            .unwrap();
        assert_eq!(
            vm.page_cache().set_group_limit(group, 4),
            Ok(6),
            "pinned pages stay"
        );
        assert_eq!(usage(&vm, group), 10, "{aging}");
        assert_eq!(tries(&vm, space, 500), Err(FaultError::GroupLimit(group)));
        // SAFETY: pinned above.
        unsafe { vm.unpin(&frames) };
        assert_eq!(tries(&vm, space, 500), Ok(Resolved::Mapped), "{aging}");
        assert!(usage(&vm, group) <= 4, "{aging}");
    }
}

#[test]
fn what_a_group_has_is_the_roots_when_it_ends() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 1000);
        let group = vm.page_cache().new_group(300).unwrap();
        let space = space_in(&vm, group);
        let file = vm.stored_pages(STORE, 50).unwrap();
        vm.load(space).unwrap();
        let bytes = vec![9; 50 << 12];
        assert_eq!(vm.page_cache().write_at(file, 0, &[&bytes]), Ok(50 << 12));
        fill(&vm, space, 0..100);
        assert_eq!(vm.page_cache().end_group(group), Err(GroupError::InUse));
        vm.set_group(space, GroupId::ROOT).unwrap();
        assert_eq!(usage(&vm, group), 150, "{aging}");
        vm.page_cache().end_group(group).unwrap();
        vm.audit().unwrap();
        for gone in [vm.page_cache().end_group(group), vm.set_group(space, group)] {
            assert_eq!(gone, Err(GroupError::NoGroup));
        }
        assert_eq!(vm.page_cache().group_stats(group), Err(GroupError::NoGroup));
        assert_eq!(
            vm.page_cache().set_group_limit(group, 9),
            Err(GroupError::NoGroup)
        );
        let next = vm.page_cache().new_group(10).unwrap();
        assert_eq!(usage(&vm, next), 0, "in the same place");
        assert_eq!(vm.reclaim_pages(150), 150, "{aging}: the root's can leave");
        vm.audit().unwrap();
        check(&vm, space, 0..100);
        vm.exit(space).unwrap();
        vm.page_cache().end_group(next).unwrap();
        vm.audit().unwrap();
    }
}

#[test]
fn when_memory_is_short_groups_give_in_proportion() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 3000);
        let groups = [100, 400].map(|pages| {
            let group = vm.page_cache().new_group(u64::MAX).unwrap();
            fill(&vm, space_in(&vm, group), 0..pages);
            group
        });
        fill(&vm, space_in(&vm, GroupId::ROOT), 0..500);
        assert!(vm.reclaim_pages(200) >= 200);
        let left = groups.map(|group| stats(&vm, group).reclaimed);
        let all = vm.stats().reclaim.reclaimed;
        assert!((1..=60).contains(&left[0]), "{aging}: {left:?}");
        assert!((25..=140).contains(&left[1]), "{aging}: {left:?}");
        assert!(left[1] > 2 * left[0], "{aging}: {left:?}");
        assert!(all - left[0] - left[1] >= 60, "{aging}: {left:?} of {all}");
        assert_eq!(vm.reclaim_node(NodeId(5)), 0);
    }
}

#[test]
fn stocks_are_found_again_when_the_limit_is_reached() {
    let vm = tight_vm(4000);
    let group = vm.page_cache().new_group(1000).unwrap();
    let (one, other) = (space_in(&vm, group), space_in(&vm, group));
    fill(&vm, one, 0..500);
    let stocked = stats(&vm, group).stocked;
    assert!(stocked > 0, "a CPU takes more than a page");
    // Another CPU has none, and the last that there is lies there.
    run_on(1);
    fill(&vm, other, 0..500);
    assert_eq!(stats(&vm, group).usage, 1000);
    assert_eq!(tries(&vm, other, 500), Err(FaultError::GroupLimit(group)));
    vm.exit(one).unwrap();
    assert_eq!(usage(&vm, group), 500);
    fill(&vm, other, 500..1000);
    assert_eq!(usage(&vm, group), 1000);
}

#[test]
fn there_are_as_many_groups_as_there_are_places() {
    let vm = tight_vm(1000);
    let groups: Vec<GroupId> = (0..Vm::<TestMachine, X86_64, ByRegions>::MAX_GROUPS)
        .map(|_| vm.page_cache().new_group(10).unwrap())
        .collect();
    assert_eq!(vm.page_cache().new_group(10), Err(GroupError::TooMany));
    for &group in &groups {
        assert_eq!(GroupId::from_bits(group.to_bits()), group);
        vm.page_cache().end_group(group).unwrap();
    }
    let again = vm.page_cache().new_group(10).unwrap();
    assert!(!groups.contains(&again));
    assert_eq!(
        vm.page_cache().end_group(groups[0]),
        Err(GroupError::NoGroup)
    );
    assert_eq!(
        vm.page_cache().end_group(GroupId::ROOT),
        Err(GroupError::NoGroup)
    );
    let gone = vm.begin_space().unwrap();
    vm.exit(gone).unwrap();
    assert_eq!(vm.set_group(gone, again), Err(GroupError::NoSpace));
    assert_eq!(stats(&vm, again).spaces, 0);
}

#[test]
fn a_manager_without_groups_says_so() {
    let vm = vm_with::<ByRegions>("reclaim=on", 300);
    assert_eq!(vm.page_cache().new_group(10), Err(GroupError::Off));
    let space = vm.begin_space().unwrap();
    assert_eq!(vm.set_group(space, GroupId::ROOT), Err(GroupError::Off));
    assert_eq!(vm.group_of(space), Some(GroupId::ROOT));
}
