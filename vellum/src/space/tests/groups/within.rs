//! Groups within groups: whose limit holds, what is protected, and page tables.

use super::*;

fn limits(vm: &TestVm, group: GroupId, limits: GroupLimits) -> u64 {
    let change = |old: &mut GroupLimits| *old = limits;
    vm.page_cache().set_group_limits(group, &change).unwrap()
}

fn group_in(vm: &TestVm, within: GroupId) -> GroupId {
    vm.page_cache().new_group_in(within, u64::MAX).unwrap()
}

/// A group with a space that has so many pages.
fn filled(vm: &TestVm, within: GroupId, pages: u64) -> (GroupId, SpaceId) {
    let group = group_in(vm, within);
    let space = space_in(vm, group);
    fill(vm, space, 0..pages);
    (group, space)
}

#[test]
fn each_limit_around_a_group_holds_and_the_one_that_refuses_is_named() {
    let vm = tight_vm(2000);
    let outer = vm.page_cache().new_group(60).unwrap();
    let (inner, other) = (group_in(&vm, outer), group_in(&vm, outer));
    let (one, two) = (space_in(&vm, inner), space_in(&vm, other));
    fill(&vm, one, 0..40);
    fill(&vm, two, 0..20);
    let used = [outer, inner, other].map(|group| usage(&vm, group));
    assert_eq!(used, [60, 40, 20]);
    for space in [one, two] {
        let refused = Err(FaultError::GroupLimit(outer));
        assert_eq!(tries(&vm, space, 100), refused);
    }
    let own = GroupLimits {
        max: 10,
        ..GroupLimits::NONE
    };
    assert_eq!(limits(&vm, other, own), 10, "nothing can leave");
    vm.advise(one, Vpn(AT), 30, Advice::DontNeed).unwrap();
    let refused = Err(FaultError::GroupLimit(other));
    assert_eq!(tries(&vm, two, 100), refused, "its own is nearer");
    assert_eq!(tries(&vm, one, 100), Ok(Resolved::Mapped));
    let stats = stats(&vm, outer);
    assert_eq!((stats.spaces, stats.failures), (0, 3), "with those within");
}

#[test]
fn pages_of_all_within_leave_for_a_limit_and_of_nobody_else() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 2000);
        let outer = vm.page_cache().new_group(100).unwrap();
        let (_, beside) = filled(&vm, GroupId::ROOT, 200);
        let (inner, one) = filled(&vm, outer, 80);
        let (other, two) = filled(&vm, outer, 300);
        let swapped = |space| vm.space_stats(space).unwrap().swapped;
        assert_eq!(swapped(beside), 0, "{aging}");
        assert!(swapped(one) > 0, "{aging}");
        assert!(swapped(two) > 0, "{aging}");
        let sum = usage(&vm, inner) + usage(&vm, other);
        assert_eq!(usage(&vm, outer), sum, "{aging}");
        assert!(sum <= 100, "{aging}");
        check(&vm, one, 0..80);
        check(&vm, two, 0..300);
    }
}

#[test]
fn what_a_group_has_is_that_of_the_one_around_it_when_it_ends() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 1000);
        let outer = group_in(&vm, GroupId::ROOT);
        let (inner, space) = filled(&vm, outer, 100);
        let file = vm.stored_pages(STORE, 50).unwrap();
        vm.load(space).unwrap();
        let bytes = vec![9; 50 << 12];
        assert_eq!(vm.page_cache().write_at(file, 0, &[&bytes]), Ok(50 << 12));
        let dirty = stats(&vm, outer).dirty;
        assert_eq!((dirty, stats(&vm, inner).dirty), (50, 50));
        for group in [inner, outer] {
            assert_eq!(vm.page_cache().end_group(group), Err(GroupError::InUse));
        }
        vm.set_group(space, outer).unwrap();
        vm.page_cache().end_group(inner).unwrap();
        let left = stats(&vm, outer);
        assert_eq!((left.usage, left.dirty), (150, 50), "{aging}");
        let gone = vm.page_cache().new_group_in(inner, 10);
        assert_eq!(gone, Err(GroupError::NoGroup));
        // They are on its lists.
        assert!(vm.page_cache().reclaim_pages_of(outer, 150).unwrap() >= 100);
        vm.exit(space).unwrap();
        vm.page_cache().release_object(file).unwrap();
        let left = stats(&vm, outer);
        assert_eq!((left.usage, left.dirty), (0, 0), "{aging}");
        assert!(left.reclaimed >= 100, "{aging}: with what ended: {left:?}");
        vm.page_cache().end_group(outer).unwrap();
        vm.audit().unwrap();
    }
}

#[test]
fn protected_pages_do_not_leave_for_others() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 3000);
        let (kept, space) = filled(&vm, GroupId::ROOT, 100);
        let (open, _) = filled(&vm, GroupId::ROOT, 300);
        let min = GroupLimits {
            min: 100,
            ..GroupLimits::NONE
        };
        assert_eq!(limits(&vm, kept, min), 0);
        while vm.reclaim_pages(200) > 0 {}
        assert_eq!(usage(&vm, kept), 100, "{aging}");
        assert_eq!(usage(&vm, open), 0, "{aging}: all others");
        fill(&vm, space, 100..140);
        while vm.reclaim_pages(200) > 0 {}
        assert_eq!(usage(&vm, kept), 100, "{aging}: what is above can leave");
        assert_eq!(stats(&vm, kept).low_events, 0);
        // Nothing is protected from its own limit.
        assert_eq!(limits(&vm, kept, GroupLimits { max: 30, ..min }), 0);
        assert!(usage(&vm, kept) <= 30, "{aging}");
        check(&vm, space, 0..140);
    }
}

#[test]
fn pages_of_low_groups_leave_when_nothing_else_can() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 3000);
        let (kept, _) = filled(&vm, GroupId::ROOT, 100);
        let (open, _) = filled(&vm, GroupId::ROOT, 200);
        let low = GroupLimits {
            low: 100,
            ..GroupLimits::NONE
        };
        limits(&vm, kept, low);
        while usage(&vm, open) > 0 {
            assert!(vm.reclaim_pages(50) > 0);
            assert_eq!(usage(&vm, kept), 100, "{aging}");
        }
        assert_eq!(stats(&vm, kept).low_events, 0, "{aging}");
        assert!(vm.reclaim_pages(50) >= 50, "{aging}");
        let stats = stats(&vm, kept);
        assert!(stats.usage <= 50 && stats.low_events > 0, "{stats:?}");
    }
}

#[test]
fn what_a_group_can_protect_is_divided_among_those_within_by_what_they_use() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 3000);
        let outer = group_in(&vm, GroupId::ROOT);
        let low = GroupLimits {
            low: 120,
            ..GroupLimits::NONE
        };
        limits(&vm, outer, low);
        let inner = [200, 100].map(|pages| {
            let (group, _) = filled(&vm, outer, pages);
            limits(&vm, group, GroupLimits { low: pages, ..low });
            group
        });
        let (none, _) = filled(&vm, outer, 80);
        filled(&vm, GroupId::ROOT, 100);
        let pages = vm
            .page_cache()
            .memory
            .groups()
            .map(|groups| inner.map(|group| groups.protection(0, group.place()).0.low));
        assert_eq!(pages, Some([80, 40]), "{aging}");
        while usage(&vm, none) > 0 {
            assert!(vm.reclaim_pages(20) > 0);
        }
        let used = inner.map(|group| usage(&vm, group));
        assert!(used[0] + used[1] >= 120, "{aging}: {used:?}");
        assert!(used[0] > used[1], "{aging}: {used:?}");
        // When it is short itself, each has what it asks for.
        let pages =
            vm.page_cache().memory.groups().map(|groups| {
                inner.map(|group| groups.protection(outer.place(), group.place()).0.low)
            });
        assert_eq!(pages, Some([200, 100]), "{aging}");
    }
}

#[test]
fn above_its_high_a_group_gives_pages_and_is_not_refused_any() {
    for aging in AGINGS {
        let vm = grouping_vm(aging, 2000);
        let group = group_in(&vm, GroupId::ROOT);
        let high = GroupLimits {
            high: 50,
            ..GroupLimits::NONE
        };
        limits(&vm, group, high);
        let space = space_in(&vm, group);
        fill(&vm, space, 0..300);
        let held = stats(&vm, group);
        assert!(held.peak <= 50 + 32, "{aging}: {held:?}");
        assert!(held.high_events > 5 && held.failures == 0, "{held:?}");
        check(&vm, space, 0..300);
        assert_eq!(held.limit_hits, 0, "{aging}");
    }
    // Not even if none can leave.
    let vm = tight_vm(2000);
    let (group, space) = filled(&vm, GroupId::ROOT, 100);
    let high = GroupLimits {
        high: 50,
        ..GroupLimits::NONE
    };
    assert_eq!(limits(&vm, group, high), 50, "what stays above");
    fill(&vm, space, 100..300);
    assert_eq!(usage(&vm, group), 300);
    assert!(stats(&vm, group).high_events > 5);
    let above = vm.platform().above_high.load(Ordering::Relaxed);
    assert!(above >= 200, "somebody is told how far: {above}");
}

#[test]
fn a_group_is_charged_for_its_page_tables() {
    let vm = vm_with::<ByRegions>("reclaim=on,groups=all", 2000);
    let outer = vm.page_cache().new_group(30).unwrap();
    let inner = group_in(&vm, outer);
    let space = vm.begin_space().unwrap();
    vm.set_group(space, inner).unwrap();
    let root = stats(&vm, outer);
    assert_eq!((root.usage, root.tables), (1, 1));
    let far = 64 << 9;
    map(&vm, space, 1 << 20, MapRequest::anonymous(far, RW));
    // A table each, for the page of zeroes, which is nobody's.
    let read = |page: u64| vm.fault(space, ((1 << 20) + (page << 9)) << 12, Access::Read);
    let made = (0..64).take_while(|&page| read(page).is_ok()).count();
    assert!((24..29).contains(&made), "{made}");
    assert_eq!(read(made as u64), Err(FaultError::OutOfMemory));
    let full = stats(&vm, outer);
    assert_eq!((full.usage, full.tables, full.records), (30, 29, 1));
    assert!(full.failures > 0 && full.limit_hits > 0, "{full:?}");
    // A space takes its root and the record of its region along, and nothing else.
    let beside = vm.page_cache().new_group(100).unwrap();
    vm.set_group(space, beside).unwrap();
    assert_eq!((usage(&vm, outer), usage(&vm, beside)), (28, 2));
    assert!(read(made as u64).is_ok());
    assert_eq!((usage(&vm, outer), usage(&vm, beside)), (28, 3));
    vm.page_cache().end_group(inner).unwrap();
    assert_eq!((usage(&vm, outer), stats(&vm, outer).tables), (28, 28));
    let child = vm.fork(space).unwrap();
    assert_eq!(vm.group_of(child), Some(beside));
    let forked = stats(&vm, beside);
    assert!(
        forked.tables > 2 && forked.tables + forked.records == forked.usage,
        "{forked:?}"
    );
    for space in [space, child] {
        vm.exit(space).unwrap();
    }
    for group in [outer, beside] {
        assert_eq!((usage(&vm, group), stats(&vm, group).tables), (0, 0));
    }
}

#[test]
fn a_group_is_charged_for_the_regions_of_its_spaces() {
    for text in [
        "",
        "rmap=chains",
        "regions=list,rmap=pv",
        "forkcopy=all,rmap=anon_vma",
    ] {
        let design = std::format!("{text},reclaim=on,groups=all");
        let rmap = Design::parse(&design).unwrap().rmap;
        crate::with_rmap!(rmap, R => charges_for_regions::<R>(&design));
    }
}

fn charges_for_regions<R: ReverseMap>(design: &str) {
    const PIECES: u64 = 300;
    let vm = vm_with::<R>(design, 3000);
    let group = vm.page_cache().new_group(20).unwrap();
    let space = vm.begin_space().unwrap();
    let one = |at: u64, rights| map(&vm, space, at, MapRequest::anonymous(PIECES, rights));
    // What a space has before it comes, it brings, even if that is more than the limit.
    one(AT, RW);
    let piece = |page: u64, rights| vm.protect(space, Vpn(AT + page), 1, rights);
    for page in (0..PIECES).step_by(2) {
        piece(page, Prot::READ).unwrap();
    }
    vm.page_cache().set_group_limit(group, 2).unwrap();
    vm.set_group(space, group).unwrap();
    let of = || stats(&vm, group).records;
    let brought = of();
    assert!(brought > 2, "{design}: {brought}");
    // Regions that would take another page are refused; those that go are given back.
    let more = (PIECES..40 * PIECES).find_map(|at| {
        let request = MapRequest::anonymous(1, RW).at(Placement::Fixed(Vpn(AT + 2 * at)));
        vm.map(space, &request).err()
    });
    assert_eq!(more, Some(MapError::GroupLimit(group)), "{design}");
    vm.unmap(space, Vpn(AT + 1), 1)
        .expect("not refused, although nothing may be charged");
    vm.audit().unwrap();
    vm.page_cache().set_group_limit(group, 1000).unwrap();
    let child = vm.fork(space).unwrap();
    assert_eq!(of(), 2 * brought, "{design}");
    vm.audit().unwrap();
    vm.unmap(space, Vpn(0), 1 << 20).unwrap();
    assert_eq!(of(), brought, "{design}");
    vm.set_group(child, GroupId::ROOT).unwrap();
    assert_eq!(of(), 0, "{design}");
    vm.set_group(child, group).unwrap();
    assert_eq!(of(), brought, "{design}");
    vm.audit().unwrap();
    for space in [space, child] {
        vm.exit(space).unwrap();
    }
    assert_eq!((of(), usage(&vm, group)), (0, 0), "{design}");
    vm.page_cache().end_group(group).unwrap();
    vm.audit().unwrap();
}

#[test]
fn victims_are_those_within_a_group() {
    let vm = tight_vm(2000);
    let outer = group_in(&vm, GroupId::ROOT);
    let (inner, space) = filled(&vm, outer, 30);
    filled(&vm, GroupId::ROOT, 50);
    for group in [outer, inner] {
        let victim = vm.choose_victim_of(group).unwrap();
        assert_eq!(victim.space, space.to_bits());
    }
}
