//! Spaces in tracts: of the division itself nothing is to be seen.

use super::*;
use crate::frame::{FailAt, Site};
#[cfg(feature = "published")]
use crate::rmap::{AnonVma, AnonVmaChain, Pv};
use crate::rmap::{Family, ReverseMap};
use crate::slab::{Handle, Item};
use crate::space::state::tract::Tract;

/// A boundary.
const CUT: u64 = 0x8000;

fn request(pages: u64) -> MapRequest {
    MapRequest::anonymous(pages, RW)
}

fn tracts<R: ReverseMap>(vm: &TestVm<R>) -> u64 {
    vm.audit().unwrap().tracts
}

fn divide<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64) {
    assert_eq!(vm.divide_space(space, Vpn(page)), Ok(true), "{page:#x}");
}

/// What makes a space one again and changes nothing else.
fn unite<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId) {
    let heap = vm.heap(space).unwrap();
    vm.set_heap_end(space, heap.end).unwrap();
    assert_eq!(tracts(vm), 0);
}

/// A space with some regions, divided in three.
fn divided(vm: &TestVm) -> SpaceId {
    let space = vm.begin_space().unwrap();
    for at in [CUT - 100, CUT, CUT + 50] {
        map(vm, space, at, request(10));
    }
    divide(vm, space, CUT);
    divide(vm, space, CUT + 50);
    // What would be one region with its neighbour.
    map(vm, space, CUT - 10, request(10));
    assert_eq!(tracts(vm), 3);
    space
}

#[test]
fn each_tract_maps_and_unmaps_its_own() {
    let vm = vm();
    let space = divided(&vm);
    for at in [CUT - 100, CUT - 1, CUT, CUT + 59] {
        touch(&vm, space, at, Access::Write);
    }
    map(&vm, space, CUT + 20, request(5));
    vm.unmap(space, Vpn(CUT + 2), 3).unwrap();
    vm.protect(space, Vpn(CUT - 95), 2, Prot::READ).unwrap();
    let expected = [
        (CUT - 100, CUT - 95),
        (CUT - 95, CUT - 93),
        (CUT - 93, CUT - 90),
        (CUT - 10, CUT),
        (CUT, CUT + 2),
        (CUT + 5, CUT + 10),
        (CUT + 20, CUT + 25),
        (CUT + 50, CUT + 60),
    ];
    assert_eq!(regions(&vm, space), expected);
    let stats = vm.space_stats(space).unwrap();
    assert_eq!((stats.regions, stats.pages), (8, 42));
    assert_eq!(vm.region_at(space, Vpn(CUT + 3)), None);
    let found = vm.region_at(space, Vpn(CUT + 51)).unwrap();
    assert_eq!(found.range, PageRange::new(Vpn(CUT + 50), 10));
    for nowhere in [CUT + 3, 1 << 35, (1 << 52) - 1] {
        let fault = vm.fault(space, nowhere << 12, Access::Read);
        assert_eq!(fault, Err(FaultError::NoRegion), "{nowhere:#x}");
        assert_eq!(vm.region_at(space, Vpn(nowhere)), None);
    }
    assert_eq!(tracts(&vm), 3);
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(tracts(&vm), 0);
    assert_eq!(vm.audit().unwrap().frames.of(Kind::Table), 0);
}

#[test]
fn a_region_is_not_cut_by_a_division() {
    let vm = vm();
    let space = divided(&vm);
    for page in [CUT + 1, CUT - 95, 0, 1 << 35, u64::MAX] {
        assert_eq!(vm.divide_space(space, Vpn(page)), Ok(false), "{page:#x}");
    }
    assert_eq!(tracts(&vm), 3);
    unite(&vm, space);
    assert_eq!(vm.divide_space(space, Vpn(CUT + 1)), Ok(false));
    assert_eq!(vm.exit(space), Ok(true));
    let gone = vm.divide_space(space, Vpn(CUT));
    assert_eq!(gone, Err(MapError::NoSpace));
}

#[test]
fn there_are_no_more_tracts_than_cpus_can_use() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let divided = |nth: u64| vm.divide_space(space, Vpn(CUT + nth)).unwrap();
    assert_eq!((0..100).filter(|&nth| divided(nth)).count(), 7);
    assert_eq!(tracts(&vm), 8);
    unite(&vm, space);
}

#[test]
fn what_lies_across_makes_the_space_one_again() {
    let vm = vm();
    let space = divided(&vm);
    touch(&vm, space, CUT + 5, Access::Write);
    map(&vm, space, CUT - 5, request(8));
    assert_eq!(tracts(&vm), 0);
    let expected = [
        (CUT - 100, CUT - 90),
        (CUT - 10, CUT + 10),
        (CUT + 50, CUT + 60),
    ];
    assert_eq!(regions(&vm, space), expected);
    divide(&vm, space, CUT + 30);
    vm.protect(space, Vpn(CUT + 9), 1, Prot::READ).unwrap();
    assert_eq!(tracts(&vm), 2);
    let hole = vm.protect(space, Vpn(CUT + 9), 42, Prot::READ);
    assert_eq!(hole, Err(MapError::NotMapped));
    assert_eq!(tracts(&vm), 0);
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn what_meets_at_a_boundary_is_one_region_when_there_is_none() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    map(&vm, space, CUT - 10, request(10));
    divide(&vm, space, CUT);
    map(&vm, space, CUT, request(10));
    for page in [CUT - 1, CUT] {
        touch(&vm, space, page, Access::Write);
    }
    let two = [(CUT - 10, CUT), (CUT, CUT + 10)];
    assert_eq!(regions(&vm, space), two);
    // Which is told by nothing that regions are asked for.
    let moved = vm.remap(space, Vpn(CUT - 10), 20, 30, RemapPlacement::MayMove);
    assert_eq!(
        moved,
        Ok(Remapped {
            range: PageRange::new(Vpn(CUT - 10), 30),
            moved: false
        })
    );
    assert_eq!(regions(&vm, space), [(CUT - 10, CUT + 20)]);
    assert_eq!(tracts(&vm), 0);
}

#[test]
fn tracts_have_no_more_together_than_the_limits_allow() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let limits = Limits {
        pages: 100,
        regions: 20,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    divide(&vm, space, CUT);
    divide(&vm, space, CUT + 1000);
    let mut rng = Rng::new(3);
    let mut refused = 0;
    for step in 0..2000u64 {
        let at = CUT - 1000 + 10 * rng.below(300) as u64;
        let pages = 1 + rng.below(9) as u64;
        if rng.below(3) == 0 {
            let before = vm.space_stats(space).unwrap().regions;
            match vm.unmap(space, Vpn(at), pages) {
                Ok(()) => {}
                Err(error) => assert_eq!((error, before), (MapError::Limit, 20)),
            }
        } else {
            let before = vm.space_stats(space).unwrap();
            let placed = request(pages).at(Placement::FixedFree(Vpn(at)));
            match vm.map(space, &placed) {
                Ok(_) | Err(MapError::Occupied) => {}
                Err(error) => {
                    assert_eq!(error, MapError::Limit);
                    assert!(before.pages + pages > 100 || before.regions == 20);
                    refused += 1;
                }
            }
        }
        let stats = vm.space_stats(space).unwrap();
        assert!(stats.pages <= 100 && stats.regions <= 20, "{stats:?}");
        if step % 50 == 0 {
            let _ = vm.divide_space(space, Vpn(CUT)).unwrap();
            let _ = vm.divide_space(space, Vpn(CUT + 1000)).unwrap();
            vm.audit().unwrap();
        }
    }
    assert!(refused > 100, "{refused}");
    // Each may have what others gave back.
    vm.unmap(space, Vpn(0), 1 << 34).unwrap();
    divide(&vm, space, CUT);
    map(&vm, space, CUT, request(100));
    let more = request(1).at(Placement::FixedFree(Vpn(CUT - 5)));
    assert_eq!(vm.map(space, &more), Err(MapError::Limit));
}

#[test]
fn locked_pages_are_counted_in_whichever_tract_they_go() {
    let vm = vm();
    let space = divided(&vm);
    let limits = Limits {
        locked_pages: 12,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    let locked = MapRequest {
        traits: Traits::LOCKED,
        ..request(10)
    };
    map(&vm, space, CUT + 100, locked);
    divide(&vm, space, CUT + 80);
    assert_eq!(vm.space_stats(space).unwrap().locked, 10);
    vm.unmap(space, Vpn(CUT + 100), 4).unwrap();
    assert_eq!((vm.space_stats(space).unwrap().locked, tracts(&vm)), (6, 2));
    let more = locked.at(Placement::FixedFree(Vpn(CUT + 200)));
    assert_eq!(vm.map(space, &more), Err(MapError::Limit));
    vm.lock_pages(space, Vpn(CUT), 6).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().locked, 12);
    vm.audit().unwrap();
}

#[test]
fn room_is_found_in_another_tract_if_there_is_none_here() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let top = X86_64::USER_END.0 - 1;
    let anywhere = |pages| vm.map(space, &request(pages)).unwrap().0;
    assert_eq!(anywhere(100), top - 100);
    divide(&vm, space, top - 200);
    divide(&vm, space, top - 5000);
    // That of the lowest pages, and then that of this CPU's last one.
    assert_eq!(anywhere(10), top - 5010);
    assert_eq!(anywhere(10), top - 5020);
    // Not in tracts, but in what they make together.
    let below = top - 5020;
    assert_eq!(tracts(&vm), 3);
    let all = below - 16 - 10;
    map(&vm, space, 16, request(all));
    assert_eq!(tracts(&vm), 3);
    assert_eq!(anywhere(100), top - 200);
    assert_eq!(anywhere(4000), top - 5000 + 800);
    assert_eq!(anywhere(790), top - 5000 + 10);
    assert_eq!(tracts(&vm), 3);
    vm.unmap(space, Vpn(top - 5010), 10).unwrap();
    assert_eq!(tracts(&vm), 3);
    assert_eq!(anywhere(20), top - 5010, "across a boundary");
    assert_eq!(tracts(&vm), 0);
    let full = vm.map(space, &request(20));
    assert_eq!(full, Err(MapError::NoGap));
    vm.audit().unwrap();
}

#[test]
fn a_stack_keeps_its_gap_across_a_boundary() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let limits = Limits {
        stack_gap_pages: 64,
        ..Limits::default()
    };
    vm.set_limits(space, limits).unwrap();
    map(&vm, space, CUT, request(4).growing_down());
    divide(&vm, space, CUT);
    // Its tract ends where the stack begins.
    let found = vm.map(space, &request(10)).unwrap().0;
    assert_eq!(found, CUT - 64 - 10);
    vm.unmap(space, Vpn(found), 10).unwrap();
    let hint = request(10).at(Placement::Hint(Vpn(CUT - 30)));
    let placed = vm.map(space, &hint).unwrap().0;
    assert!(!(CUT - 73..CUT).contains(&placed), "{placed:#x}");
    vm.unmap(space, Vpn(placed), 10).unwrap();
    divide(&vm, space, CUT);
    touch(&vm, space, CUT - 20, Access::Write);
    let grown = vm.region_at(space, Vpn(CUT - 20)).unwrap();
    assert_eq!(grown.range.end, Vpn(CUT + 4));
    vm.audit().unwrap();
}

#[test]
fn unmapping_across_tracts_needs_no_memory_unless_it_cuts() {
    let vm = vm();
    let space = divided(&vm);
    let fails_for = |site| {
        vm.memory().inject(Some(FailAt { site, after: 0 }));
    };
    let before = regions(&vm, space);
    fails_for(Site::RegionNode);
    let cut = vm.unmap(space, Vpn(CUT - 5), 20);
    vm.memory().inject(None);
    // The nodes may have been there.
    if cut.is_err() {
        assert_eq!((cut, tracts(&vm)), (Err(MapError::OutOfMemory), 3));
        assert_eq!(regions(&vm, space), before);
    }
    assert_eq!(vm.exit(space), Ok(true));
    let space = divided(&vm);
    fails_for(Site::RegionNode);
    vm.unmap(space, Vpn(CUT - 10), 70).unwrap();
    vm.memory().inject(None);
    assert_eq!(regions(&vm, space), [(CUT - 100, CUT - 90)]);
    vm.audit().unwrap();
}

#[test]
fn a_division_for_which_memory_is_short_leaves_the_space_as_it_was() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    for nth in 0..300 {
        map(&vm, space, CUT + 2 * nth, request(1));
    }
    let before = regions(&vm, space);
    let mut failed = 0;
    for site in [Site::Tract, Site::RegionNode, Site::SlabFrame] {
        for after in 0..12 {
            vm.memory().inject(Some(FailAt { site, after }));
            let first = vm.divide_space(space, Vpn(CUT + 100));
            let second = vm.divide_space(space, Vpn(CUT + 301));
            vm.memory().inject(None);
            failed += usize::from(first.is_err()) + usize::from(second.is_err());
            let made = u64::from(first.is_ok()) + u64::from(second.is_ok());
            let expected = if made == 0 { 0 } else { made + 1 };
            assert_eq!(tracts(&vm), expected, "{site:?} {after}");
            assert_eq!(regions(&vm, space), before);
            vm.memory().inject(Some(FailAt { site, after }));
            let united = vm.set_heap_end(space, Vpn(0));
            vm.memory().inject(None);
            if united.is_err() {
                failed += 1;
                assert_eq!(tracts(&vm), expected);
                unite(&vm, space);
            }
            assert_eq!(regions(&vm, space), before);
        }
    }
    assert!(failed > 5, "{failed}");
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

fn forked_and_ended<R: ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 4096);
    let space = vm.begin_space().unwrap();
    map(&vm, space, CUT - 10, request(20));
    for page in [CUT - 10, CUT - 1, CUT, CUT + 9] {
        touch(&vm, space, page, Access::Write);
    }
    vm.unmap(space, Vpn(CUT - 3), 2).unwrap();
    divide(&vm, space, CUT - 2);
    map(&vm, space, CUT - 3, request(1));
    touch(&vm, space, CUT - 3, Access::Write);
    map(&vm, space, 1 << 30, request(3));
    touch(&vm, space, 1 << 30, Access::Write);
    let pages: Vec<u64> = leaves(&vm, space).iter().map(|leaf| leaf.0).collect();
    let child = vm.fork(space).unwrap();
    assert_eq!(tracts(&vm), 2, "the child has none");
    let of_child: Vec<u64> = leaves(&vm, child).iter().map(|leaf| leaf.0).collect();
    assert_eq!(of_child, pages);
    touch(&vm, child, CUT, Access::Write);
    vm.unmap(space, Vpn(1 << 30), 3).unwrap();
    let tables = vm.space_stats(space).unwrap().table_bytes;
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(tracts(&vm), 0);
    touch(&vm, child, CUT + 9, Access::Write);
    assert!(tables > vm.space_stats(child).unwrap().table_bytes - (4 << 12));
    assert_eq!(vm.exit(child), Ok(true));
    assert_eq!(vm.audit().unwrap().frames.of(Kind::Table), 0);
}

with_each_design! {
    a_space_in_tracts_forks_and_ends_as_a_whole => forked_and_ended;
}

/// On real threads: each maps, uses and unmaps in its own pages, while others divide the space
/// and make it one again.
fn beside_each_other<R: ReverseMap>() {
    const ROUNDS: u64 = 300;
    let vm: TestVm<R> = Vm::new(TestMachine::simple(4, 8192), Design::parse("").unwrap()).unwrap();
    run_on(0);
    let space = vm.begin_space().unwrap();
    std::thread::scope(|scope| {
        for cpu in 0..3u64 {
            let vm = &vm;
            scope.spawn(move || {
                run_on(cpu as u16);
                let own = CUT + cpu * 600;
                for round in 0..ROUNDS {
                    let at = own + round % 7 * 40;
                    map(vm, space, at, request(8));
                    touch(vm, space, at + round % 8, Access::Write);
                    let (start, pages) = (Vpn(at + 3), 1 + round % 5);
                    vm.protect(space, start, pages, Prot::READ).unwrap();
                    let denied = vm.fault(space, (at + 3) << 12, Access::Write);
                    assert_eq!(denied, Err(FaultError::Protection));
                    let found = vm.map(space, &request(2)).unwrap();
                    touch(vm, space, found.0, Access::Write);
                    vm.unmap(space, Vpn(at), 8).unwrap();
                    let gone = vm.fault(space, at << 12, Access::Read);
                    assert_eq!(gone, Err(FaultError::NoRegion));
                    vm.unmap(space, found, 2).unwrap();
                }
            });
        }
        let vm = &vm;
        scope.spawn(move || {
            run_on(3);
            for round in 0..ROUNDS {
                for cpu in 0..4 {
                    let _ = vm.divide_space(space, Vpn(CUT + cpu * 600)).unwrap();
                }
                match round % 4 {
                    0 => vm.set_heap_end(space, Vpn(0)).unwrap(),
                    1 => {
                        let child = vm.fork(space).unwrap();
                        assert_eq!(vm.exit(child), Ok(true));
                    }
                    // Away from the ends of tracts, where the threads find room.
                    2 => vm.unmap(space, Vpn(CUT - 1000), 500).unwrap(),
                    _ => vm.for_each_region(space, |_| ()).unwrap(),
                }
            }
        });
    });
    vm.audit().unwrap();
    assert_eq!(vm.space_stats(space).unwrap().regions, 0);
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn threads_in_tracts_do_not_disturb_each_other() {
    beside_each_other::<ByRegions>();
    beside_each_other::<Family>();
    #[cfg(feature = "published")]
    {
        beside_each_other::<AnonVma>();
        beside_each_other::<AnonVmaChain>();
        beside_each_other::<Pv>();
    }
}

/// Whoever has waited for the lock of a tract asks it by this whether it is still what was waited
/// for; it may have ended meanwhile, and be in the middle of becoming another of the same space.
#[test]
fn a_tract_is_no_spaces_before_it_can_be_found() {
    let tract = Tract::vacant();
    let pages = PageRange::new(Vpn(CUT), 512);
    tract.begin(Handle::from_raw(1), pages);
    assert!(!tract.covers(7, Vpn(CUT)));
    tract.publish(7);
    assert!(tract.covers(7, Vpn(CUT)) && tract.covers(7, Vpn(CUT + 511)));
    assert!(!tract.covers(7, Vpn(CUT + 512)) && !tract.covers(8, Vpn(CUT)));
    tract.end();
    tract.begin(Handle::from_raw(1), pages);
    assert!(!tract.covers(7, Vpn(CUT)));
}
