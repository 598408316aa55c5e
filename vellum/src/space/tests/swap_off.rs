//! Swap areas that are taken away.

use std::sync::atomic::Ordering;

use super::*;
use crate::design::variants;
use crate::rmap::ReverseMap;
use crate::swap::{SwapArea, SwapOffError, SwapOnError};

const AT: u64 = 1000;
const STORE: u64 = 77;

fn area(store: u64, slots: u64, priority: i32) -> SwapArea {
    SwapArea {
        store,
        slots,
        priority,
    }
}

#[test]
fn a_store_is_one_area_until_it_is_taken_away() {
    let vm: TestVm = vm_with("", 512);
    vm.swap_on(area(STORE, 64, 0)).unwrap();
    for slots in [64, 128] {
        let again = vm.swap_on(area(STORE, slots, 1));
        assert_eq!(again, Err(SwapOnError::InUse), "{slots} slots");
    }
    vm.swap_off(STORE).unwrap();
    assert_eq!(vm.swap_off(STORE), Err(SwapOffError::NoArea));
    vm.swap_on(area(STORE, 64, 1)).unwrap();
    let areas = vm.swap_areas();
    assert_eq!((areas.len(), areas[0].priority), (1, 1), "the same again");
    vm.swap_off(STORE).unwrap();
    vm.swap_on(area(STORE, 128, 0)).unwrap();
    let slots: Vec<u64> = vm.swap_areas().iter().map(|area| area.slots).collect();
    assert_eq!(slots, [64, 128], "another one, beside one that is off");
}

/// A parent and a child that share private pages in swap, one without rights, and an object
/// with pages there.
struct World<R: ReverseMap> {
    vm: TestVm<R>,
    spaces: [SpaceId; 2],
    object: ObjectId,
}

const PAGES: u64 = 30;

fn world<R: ReverseMap>(design: &str, frames: u32) -> World<R> {
    let vm = vm_with::<R>(design, frames);
    vm.swap_on(area(STORE, 200, 1)).unwrap();
    vm.swap_on(area(STORE + 1, 200, 0)).unwrap();
    let object = vm.memory_pages(PAGES).unwrap();
    let parent = vm.begin_space().unwrap();
    map(&vm, parent, AT, MapRequest::anonymous(PAGES, RW));
    map(
        &vm,
        parent,
        AT + PAGES,
        MapRequest::object(object, 0, PAGES, RW).shared(),
    );
    for page in 0..2 * PAGES {
        touch(&vm, parent, AT + page, Access::Write);
        let (frame, _) = vm.translate(parent, Vpn(AT + page)).unwrap();
        vm.platform().scribble(frame, page as u8);
    }
    let child = vm.fork(parent).unwrap();
    vm.advise(parent, Vpn(AT), 2 * PAGES, Advice::PageOut)
        .unwrap();
    vm.protect(parent, Vpn(AT + 3), 1, Prot::NONE).unwrap();
    vm.audit().unwrap();
    World {
        vm,
        spaces: [parent, child],
        object,
    }
}

impl<R: ReverseMap> World<R> {
    /// Every page is as it was; nothing is left at the end.
    fn finish(self) {
        let vm = &self.vm;
        let [parent, child] = self.spaces;
        vm.protect(parent, Vpn(AT + 3), 1, RW).unwrap();
        for space in [parent, child] {
            for page in 0..2 * PAGES {
                touch(vm, space, AT + page, Access::Read);
                let (frame, _) = vm.translate(space, Vpn(AT + page)).unwrap();
                assert!(vm.platform().peek(frame).iter().all(|b| *b == page as u8));
            }
        }
        vm.page_cache().release_object(self.object).unwrap();
        for space in self.spaces {
            assert_eq!(vm.exit(space), Ok(true));
        }
        vm.audit().unwrap();
        let stats = vm.swap_stats();
        assert_eq!(stats.free, stats.slots);
    }
}

#[test]
fn everything_in_an_area_comes_back_whatever_its_rights() {
    for text in variants("rmap") {
        let design = Design::parse(&text).unwrap();
        crate::with_rmap!(design.rmap, R => {
            let world = world::<R>(&text, 2048);
            assert_eq!(world.vm.swap_stats().free, 400 - 2 * PAGES);
            world.vm.swap_off(STORE).unwrap();
            world.vm.audit().unwrap();
            let stats = world.vm.swap_stats();
            assert_eq!((stats.free, stats.ins), (400, 3 * PAGES), "{text}");
            for space in world.spaces {
                assert_eq!(world.vm.space_stats(space).unwrap().swapped, 0, "{text}");
            }
            assert_eq!(world.vm.page_cache().object_stats(world.object).unwrap().swapped, 0);
            let areas = world.vm.swap_areas();
            assert!(areas[0].is_off && !areas[1].is_off);
            assert_eq!(world.vm.swap_off(STORE), Err(SwapOffError::NoArea));
            // Pages go to the other area, until it is there again.
            let start = Vpn(AT);
            world.vm.advise(world.spaces[0], start, 2, Advice::PageOut).unwrap();
            let free = |vm: &TestVm<R>| vm.swap_areas().iter().map(|area| area.free).collect::<Vec<_>>();
            assert_eq!(free(&world.vm), [200, 198], "{text}");
            world.vm.swap_on(area(STORE, 200, 1)).unwrap();
            assert_eq!(world.vm.swap_areas().len(), 2);
            world.vm.advise(world.spaces[0], start, 3, Advice::PageOut).unwrap();
            assert_eq!(free(&world.vm), [199, 198], "{text}");
            world.vm.swap_off(STORE + 1).unwrap();
            world.finish();
        });
    }
}

#[test]
fn an_area_whose_pages_do_not_fit_or_cannot_be_read_is_used_on() {
    let world = world::<ByRegions>("", 300);
    let vm = &world.vm;
    vm.platform().broken_reads.lock().unwrap().insert(20);
    assert_eq!(vm.swap_off(STORE), Err(SwapOffError::Io));
    vm.audit().unwrap();
    vm.platform().broken_reads.lock().unwrap().clear();
    let hog = vm.begin_space().unwrap();
    map(vm, hog, AT, MapRequest::anonymous(300, RW));
    let store = |page: &u64| vm.fault(hog, (AT + page) << 12, Access::Write).is_err();
    let full = (0..300).find(store);
    assert!(full.is_some());
    assert_eq!(vm.swap_off(STORE), Err(SwapOffError::OutOfMemory));
    vm.audit().unwrap();
    assert!(!vm.swap_areas()[0].is_off && vm.can_swap());
    assert_eq!(vm.exit(hog), Ok(true));
    vm.swap_off(STORE).unwrap();
    vm.swap_off(STORE + 1).unwrap();
    assert!(!vm.can_swap());
    assert_eq!(vm.swap_off(99), Err(SwapOffError::NoArea));
    world.finish();
}

#[test]
fn pages_of_an_area_go_to_the_next_when_memory_is_short() {
    let world = world::<ByRegions>("reclaim=on", 200);
    let hog = world.vm.begin_space().unwrap();
    map(&world.vm, hog, AT, MapRequest::anonymous(150, RW));
    (0..150).for_each(|page| touch(&world.vm, hog, AT + page, Access::Write));
    world.vm.swap_off(STORE).unwrap();
    let areas = world.vm.swap_areas();
    assert_eq!(areas[0].free, areas[0].slots);
    assert!(areas[1].free < areas[1].slots);
    world.vm.audit().unwrap();
    assert_eq!(world.vm.exit(hog), Ok(true));
    world.finish();
}

#[test]
fn an_area_goes_while_others_use_its_pages() {
    let world = world::<ByRegions>("", 2048);
    let (vm, [parent, child]) = (&world.vm, world.spaces);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(1);
            for round in 0.. {
                let page = AT + round % PAGES;
                touch(vm, child, page, Access::Write);
                if round % 7 == 0 {
                    let new = vm.fork(child).unwrap();
                    touch(vm, new, page, Access::Read);
                    vm.advise(new, Vpn(AT), PAGES, Advice::PageOut).unwrap();
                    assert_eq!(vm.exit(new), Ok(true));
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        run_on(0);
        vm.swap_off(STORE).unwrap();
        done.store(true, Ordering::Relaxed);
    });
    assert!(vm.swap_areas()[0].free == 200);
    vm.audit().unwrap();
    assert!(vm.space_stats(parent).is_some());
    world.finish();
}
