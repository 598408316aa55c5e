//! Memory that runs out: pages of files leave for their stores, and nothing is lost.

mod ahead;
mod generations;
mod mlock;
mod order;
mod superpages;
mod unwanted;

use std::sync::atomic::Ordering;
use std::vec;
use std::vec::Vec;

use crate::addr::{Access, PageRange, Pfn, Prot, Vpn};
use crate::reclaim::ReclaimStats;
use crate::rmap::ReverseMap;
use crate::space::{FaultError, MapRequest, Placement, SpaceId, Vm};
use crate::swap::SwapArea;
use crate::table::X86_64;
use crate::testing::ByRegions;
use crate::testing::{Rng, TestMachine, number, run_on};
use crate::{Design, ObjectId};

const PAGE: u64 = 4096;
const STORE: u64 = 3;
const SWAP: SwapArea = SwapArea::new(77, 8000);
const RW: Prot = Prot::READ_WRITE;

type TestVm<R> = Vm<TestMachine, X86_64, R>;

fn vm_of<R: ReverseMap>(options: &str, frames: u32) -> TestVm<R> {
    run_on(0);
    let machine = TestMachine::with_frames(1, frames, 12);
    let design = Design::parse(options).unwrap();
    Vm::new(machine, design).unwrap()
}

fn vm(frames: u32) -> TestVm<ByRegions> {
    vm_of("reclaim=on", frames)
}

/// Designs that take memory back, each with its way to age pages.
fn aging() -> impl Iterator<Item = std::string::String> {
    let values = crate::design::PageAging::ALL.iter();
    values.map(|aging| std::format!("reclaim=on,aging={}", aging.name()))
}

fn stats<R: ReverseMap>(vm: &TestVm<R>) -> ReclaimStats {
    vm.stats().reclaim
}

/// What page `index` holds in the `turn`th round.
fn content(index: u64, turn: u64) -> Vec<u8> {
    vec![(index * 7 + turn * 31 + 1) as u8; PAGE as usize]
}

fn write<R: ReverseMap>(vm: &TestVm<R>, file: ObjectId, index: u64, turn: u64) {
    let data = content(index, turn);
    let written = vm.page_cache().write_at(file, index * PAGE, &[&data]);
    assert_eq!(written, Ok(PAGE as usize), "page {index}");
}

fn check<R: ReverseMap>(vm: &TestVm<R>, file: ObjectId, index: u64, turn: u64) {
    let mut data = vec![0; PAGE as usize];
    let read = vm
        .page_cache()
        .read_at(file, index * PAGE, &mut [&mut data]);
    assert_eq!(read, Ok(PAGE as usize), "page {index}");
    assert!(data == content(index, turn), "page {index} in turn {turn}");
}

fn map_file<R: ReverseMap>(vm: &TestVm<R>, file: ObjectId, pages: u64) -> (SpaceId, Vpn) {
    let space = vm.begin_space().unwrap();
    let request = MapRequest::object(file, 0, pages, RW).shared();
    let start = Vpn(0x4000);
    vm.map(space, &request.at(Placement::Fixed(start))).unwrap();
    (space, start)
}

fn fault<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: Vpn, access: Access) -> Pfn {
    vm.fault(space, page.0 * PAGE, access).unwrap();
    vm.translate(space, page).unwrap().0
}

/// Stores to a page. There is no MMU here that would mark the entry.
fn store<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: Vpn, byte: u8) {
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, page, Access::Write, &mut frames)
        .unwrap();
    vm.platform().scribble(frames[0], byte);
    // SAFETY: pinned above.
    unsafe { vm.unpin(&frames) };
}

fn is_cached<R: ReverseMap>(vm: &TestVm<R>, file: ObjectId, index: u64) -> bool {
    vm.platform().take_read();
    let mut byte = [0];
    vm.page_cache()
        .read_at(file, index * PAGE, &mut [&mut byte])
        .unwrap();
    vm.platform().take_read().is_empty()
}

fn a_file_of_ten_times_memory_is_written_and_read(options: &str) {
    let vm: TestVm<ByRegions> = vm_of(options, 200);
    let file = vm.stored_pages(STORE, 0).unwrap();
    for turn in 0..2 {
        for index in 0..2000 {
            write(&vm, file, index, turn);
        }
        for index in 0..2000 {
            check(&vm, file, index, turn);
        }
        vm.audit().unwrap();
    }
    let stats = stats(&vm);
    assert!(stats.reclaimed > 7000 && stats.written > 1800, "{stats:?}");
    assert!(stats.direct_reclaimed == stats.reclaimed, "{stats:?}");
    assert!(stats.scanned <= 3 * stats.reclaimed, "{stats:?}");
    vm.page_cache().release_object(file).unwrap();
    vm.audit().unwrap();
}

#[test]
fn without_reclaim_a_full_memory_is_an_error() {
    let vm: TestVm<ByRegions> = vm_of("", 200);
    let file = vm.stored_pages(STORE, 2000).unwrap();
    let mut data = vec![0; 2000 * PAGE as usize];
    let read = vm.page_cache().read_at(file, 0, &mut [&mut data]).unwrap();
    assert!(read < data.len());
    assert_eq!(vm.reclaim_pages(10), 0);
    assert_eq!(stats(&vm), ReclaimStats::default());
}

fn what_mappings_stored_is_in_the_store_before_the_page_leaves(options: &str) {
    let vm: TestVm<ByRegions> = vm_of(options, 200);
    let file = vm.stored_pages(STORE, 50).unwrap();
    let (space, start) = map_file(&vm, file, 50);
    for index in 0..50 {
        let frame = fault(&vm, space, start.offset(index), Access::Write);
        vm.platform().scribble(frame, index as u8);
    }
    assert_eq!(vm.reclaim_pages(50), 50);
    vm.audit().unwrap();
    assert_eq!(vm.translate(space, start), None, "no longer mapped");
    for index in 0..50 {
        let frame = fault(&vm, space, start.offset(index), Access::Read);
        let expected = vec![index as u8; PAGE as usize];
        assert!(vm.platform().peek(frame) == expected, "page {index}");
    }
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}

fn a_pinned_page_stays(options: &str) {
    let vm: TestVm<ByRegions> = vm_of(options, 200);
    let file = vm.stored_pages(STORE, 2).unwrap();
    let (space, start) = map_file(&vm, file, 2);
    let mut frames = [Pfn::NONE];
    vm.pin_pages(space, start, Access::Write, &mut frames)
        .unwrap();
    fault(&vm, space, start.offset(1), Access::Read);
    assert_eq!(vm.reclaim_pages(2), 1);
    assert_eq!(vm.translate(space, start).unwrap().0, frames[0]);
    vm.platform().scribble(frames[0], 9);
    // SAFETY: pinned above.
    unsafe { vm.unpin(&frames) };
    assert_eq!(vm.reclaim_pages(2), 1);
    let frame = fault(&vm, space, start, Access::Read);
    assert_eq!(vm.platform().peek(frame)[0], 9, "what the device stored");
    vm.audit().unwrap();
}

fn a_page_that_its_store_refuses_stays_and_leaves_later(options: &str) {
    let vm: TestVm<ByRegions> = vm_of(options, 200);
    let file = vm.stored_pages(STORE, 3).unwrap();
    for index in 0..3 {
        write(&vm, file, index, 0);
    }
    vm.platform().broken_pages.lock().unwrap().insert(1);
    assert_eq!(vm.reclaim_pages(3), 2);
    assert!(stats(&vm).refused > 0);
    check(&vm, file, 1, 0);
    vm.platform().broken_pages.lock().unwrap().clear();
    assert_eq!(vm.reclaim_pages(3), 1);
    for index in 0..3 {
        check(&vm, file, index, 0);
    }
    vm.audit().unwrap();
}

fn memory_without_pages_that_can_leave_is_an_error_and_goes_on_afterwards(options: &str) {
    let vm: TestVm<ByRegions> = vm_of(options, 200);
    let file = vm.stored_pages(STORE, 100).unwrap();
    for index in 0..100 {
        write(&vm, file, index, 0);
    }
    let space = vm.begin_space().unwrap();
    let request = MapRequest::anonymous(400, RW);
    let start = vm.map(space, &request).unwrap();
    vm.platform().broken_store.store(true, Ordering::Relaxed);
    let touch = |index| vm.fault(space, (start.0 + index) * PAGE, Access::Write);
    let first = (0..400).find(|&index| touch(index).is_err()).unwrap();
    assert_eq!(touch(first), Err(FaultError::OutOfMemory));
    vm.audit().unwrap();
    vm.platform().broken_store.store(false, Ordering::Relaxed);
    let second = (0..400).find(|&index| touch(index).is_err()).unwrap();
    assert!(second > first + 90, "the pages of the file have left");
    assert!(stats(&vm).failures > 0);
    vm.exit(space).unwrap();
    for index in 0..100 {
        check(&vm, file, index, 0);
    }
    vm.audit().unwrap();
}

fn a_stream_leaves_the_working_set_alone(options: &str) {
    let vm: TestVm<ByRegions> = vm_of(options, 400);
    let set = vm.stored_pages(STORE, 100).unwrap();
    let stream = vm.stored_pages(STORE + 1, 4000).unwrap();
    let mut buffer = vec![0; PAGE as usize];
    let mut read = |file, index| {
        vm.page_cache()
            .read_at(file, index * PAGE, &mut [&mut buffer])
            .unwrap()
    };
    for _ in 0..3 {
        (0..100).for_each(|index| _ = read(set, index));
    }
    let before = vm.stats().events.page_reads;
    for index in 0..4000 {
        read(stream, index);
        // A tenth of it is used all the time.
        read(set, index % 10);
    }
    for index in 0..100 {
        read(set, index);
    }
    let reads = vm.stats().events.page_reads - before - 4000;
    assert!(reads <= 5, "{reads} pages of the set were read again");
}

#[test]
fn a_page_that_comes_back_soon_becomes_active() {
    let vm = vm(400);
    let file = vm.stored_pages(STORE, 1000).unwrap();
    for index in 0..200 {
        check_zero(&vm, file, index);
    }
    for index in 0..100 {
        check_zero(&vm, file, index);
        check_zero(&vm, file, index);
    }
    // Used twice and so active, when their places are looked at.
    assert_eq!(vm.reclaim_pages(60), 60);
    let before = stats(&vm);
    assert_eq!(before.refaults, 0);
    let gone: Vec<u64> = (100..200).filter(|&i| !is_cached(&vm, file, i)).collect();
    assert_eq!(gone.len(), 60);
    let now = stats(&vm);
    // The table of shadows has a place for a frame, and some pages have the same.
    assert!((50..=60).contains(&now.refaults), "{now:?}");
    assert_eq!(now.restored, now.refaults);
    vm.audit().unwrap();
}

fn check_zero<R: ReverseMap>(vm: &TestVm<R>, file: ObjectId, index: u64) {
    let mut byte = [1];
    vm.page_cache()
        .read_at(file, index * PAGE, &mut [&mut byte])
        .unwrap();
    assert_eq!(byte, [0]);
}

fn the_task_of_a_node_reclaims_up_to_the_high_watermark(options: &str) {
    let vm: TestVm<ByRegions> = vm_of(options, 4000);
    let file = vm.stored_pages(STORE, 8000).unwrap();
    let mut index = 0;
    while vm.platform().reclaim_wakes.load(Ordering::Relaxed) == 0 {
        check_zero(&vm, file, index);
        index += 1;
    }
    assert_eq!(stats(&vm).direct, 0, "before anybody ran out");
    let freed = vm.reclaim_node(crate::platform::NodeId(0));
    assert!(freed > 0);
    let zone = vm.memory().zone_stats(0, &vm.pin());
    assert!(zone.free >= zone.high, "{zone:?}");
    assert_eq!(vm.reclaim_node(crate::platform::NodeId(0)), 0);
    assert_eq!(vm.reclaim_node(crate::platform::NodeId(9)), 0);
    for index in 0..8000 {
        check_zero(&vm, file, index);
        if vm.platform().reclaim_wakes.swap(0, Ordering::Relaxed) > 0 {
            vm.reclaim_node(crate::platform::NodeId(0));
        }
    }
    let stats = stats(&vm);
    assert!(stats.direct == 0 && stats.background > 5, "{stats:?}");
    vm.audit().unwrap();
}

macro_rules! whatever_aging {
    ($($name:ident;)*) => {
        mod with_lists {
            $(#[test]
            fn $name() {
                super::$name("reclaim=on");
            })*
        }
        mod with_generations {
            $(#[test]
            fn $name() {
                super::$name("reclaim=on,aging=generations");
            })*
        }
    };
}
whatever_aging! {
    a_file_of_ten_times_memory_is_written_and_read;
    what_mappings_stored_is_in_the_store_before_the_page_leaves;
    a_pinned_page_stays;
    a_page_that_its_store_refuses_stays_and_leaves_later;
    memory_without_pages_that_can_leave_is_an_error_and_goes_on_afterwards;
    a_stream_leaves_the_working_set_alone;
    the_task_of_a_node_reclaims_up_to_the_high_watermark;
}

/// A file of four times memory, or shared memory of that size, mapped by several spaces, that
/// fork, end, move and cut it: every page that is read is as it was written last.
fn pages_come_back_as_they_were<R: ReverseMap>(options: &str, is_file: bool) {
    const FRAMES: u32 = 300;
    const PAGES: u64 = 4 * FRAMES as u64;
    let mut rng = Rng::new(20);
    let vm: TestVm<R> = vm_of(options, FRAMES);
    let file = match is_file {
        true => vm.stored_pages(STORE, PAGES).unwrap(),
        false => {
            vm.swap_on(SWAP).unwrap();
            vm.memory_pages(PAGES).unwrap()
        }
    };
    let mut model = vec![0u8; PAGES as usize];
    let mut spaces = vec![map_file(&vm, file, PAGES)];
    for step in 0..number("VELLUM_STEPS").unwrap_or(6000) {
        let index = rng.below(PAGES as usize) as u64;
        let byte = (step % 255) as u8 + 1;
        let (space, start) = spaces[rng.below(spaces.len())];
        match rng.below(100) {
            0..30 => {
                let frame = fault(&vm, space, start.offset(index), Access::Read);
                let page = vm.platform().peek(frame);
                assert!(page.iter().all(|&b| b == model[index as usize]));
            }
            30..55 => {
                store(&vm, space, start.offset(index), byte);
                model[index as usize] = byte;
            }
            55..70 => {
                let written =
                    vm.page_cache()
                        .write_at(file, index * PAGE, &[&[byte; PAGE as usize]]);
                assert_eq!(written, Ok(PAGE as usize));
                model[index as usize] = byte;
            }
            70..90 => {
                let mut data = vec![0; PAGE as usize];
                vm.page_cache()
                    .read_at(file, index * PAGE, &mut [&mut data])
                    .unwrap();
                assert!(data.iter().all(|&b| b == model[index as usize]));
            }
            90..92 if spaces.len() < 4 => spaces.push((vm.fork(space).unwrap(), start)),
            92 if spaces.len() > 1 => {
                let at = rng.below(spaces.len());
                vm.exit(spaces.swap_remove(at).0).unwrap();
            }
            93 => {
                let hole = index..(index + 5).min(PAGES);
                let (first, len) = (hole.start, hole.end - hole.start);
                vm.page_cache()
                    .punch_hole(file, first * PAGE, len * PAGE)
                    .unwrap();
                model[first as usize..hole.end as usize].fill(0);
            }
            94 => {
                vm.unmap(space, start.offset(index), 3.min(PAGES - index))
                    .unwrap();
                let request = MapRequest::object(file, index, 3.min(PAGES - index), RW).shared();
                let request = request.at(Placement::Fixed(start.offset(index)));
                vm.map(space, &request).unwrap();
            }
            95 => _ = vm.reclaim_pages(40),
            96 => _ = vm.page_cache().write_back(file, 20).unwrap(),
            97 => _ = vm.file(file).sync().unwrap(),
            _ => {}
        }
        if step % 1000 == 0 {
            vm.audit().unwrap();
        }
    }
    for (index, &byte) in model.iter().enumerate() {
        let mut data = vec![0; PAGE as usize];
        vm.page_cache()
            .read_at(file, index as u64 * PAGE, &mut [&mut data])
            .unwrap();
        assert!(data.iter().all(|&b| b == byte), "page {index}");
    }
    let stats = stats(&vm);
    let written = stats.written + stats.swapped;
    assert!(stats.reclaimed > 1000 && written > 300, "{stats:?}");
    vm.audit().unwrap();
    for (space, _) in spaces {
        vm.exit(space).unwrap();
    }
    vm.page_cache().release_object(file).unwrap();
    vm.audit().unwrap();
}

macro_rules! random_sequences {
    ($($(#[$about:meta])* $name:ident: $design:ident $value:literal;)*) => {
        mod random {
            $(#[test]
            fn $name() {
                for options in super::aging() {
                    super::pages_come_back_as_they_were::<crate::rmap::$design>(&options, true);
                }
            })*

            mod shared_memory {
                $(#[test]
                fn $name() {
                    use crate::space::tests::reclaim::{aging, pages_come_back_as_they_were};
                    for options in aging() {
                        pages_come_back_as_they_were::<crate::rmap::$design>(&options, false);
                    }
                })*
            }

            #[cfg(feature = "published")]
            #[test]
            fn page_by_page() {
                for is_file in [true, false] {
                    super::pages_come_back_as_they_were::<crate::rmap::Family>(
                        "reclaim=on,fileio=pages,framelists=linked",
                        is_file,
                    );
                }
            }
        }
    };
}
crate::every_rmap! { [random_sequences] }

/// Memory for 300 pages, swap for many, and a space with private pages.
fn private_world<R: ReverseMap>(pages: u64) -> (TestVm<R>, SpaceId, Vpn) {
    private_world_of("reclaim=on", pages)
}

fn private_world_of<R: ReverseMap>(options: &str, pages: u64) -> (TestVm<R>, SpaceId, Vpn) {
    let vm: TestVm<R> = vm_of(options, 300);
    vm.swap_on(SWAP).unwrap();
    let space = vm.begin_space().unwrap();
    let start = Vpn(0x4000);
    let request = MapRequest::anonymous(pages, RW).at(Placement::Fixed(start));
    vm.map(space, &request).unwrap();
    (vm, space, start)
}

/// Private memory of four times what there is, beside a file, with forks: every page that is
/// read is as its space wrote it last.
fn private_pages_come_back_as_they_were<R: ReverseMap>(options: &str) {
    const PAGES: u64 = 1200;
    let (vm, first, start) = private_world_of::<R>(options, PAGES);
    let file = vm.stored_pages(STORE, 0).unwrap();
    let mut rng = Rng::new(21);
    let mut spaces = vec![(first, vec![0u8; PAGES as usize])];
    let look = |space: SpaceId, index: u64, byte: u8| {
        let frame = fault(&vm, space, start.offset(index), Access::Read);
        let page = vm.platform().peek(frame);
        assert!(page.iter().all(|&b| b == byte), "page {index}");
    };
    for step in 0..number("VELLUM_STEPS").unwrap_or(5000) {
        let index = rng.below(PAGES as usize) as u64;
        let count = spaces.len();
        let at = rng.below(count);
        let (space, model) = &mut spaces[at];
        match rng.below(100) {
            0..45 => {
                let byte = (step % 255) as u8 + 1;
                store(&vm, *space, start.offset(index), byte);
                model[index as usize] = byte;
            }
            45..85 => look(*space, index, model[index as usize]),
            85..95 => write(&vm, file, step % 500, 1),
            95 if count < 3 => {
                let child = (vm.fork(*space).unwrap(), model.clone());
                spaces.push(child);
            }
            96 if count > 1 => {
                vm.exit(spaces.swap_remove(at).0).unwrap();
            }
            97 => _ = vm.reclaim_pages(30),
            _ => {}
        }
        if step % 1000 == 0 {
            vm.audit().unwrap();
        }
    }
    for (space, model) in &spaces {
        (0..PAGES).for_each(|index| look(*space, index, model[index as usize]));
    }
    let stats = stats(&vm);
    assert!(stats.swapped > 1000, "{stats:?}");
    vm.audit().unwrap();
    for (space, _) in spaces {
        vm.exit(space).unwrap();
    }
    vm.page_cache().release_object(file).unwrap();
    vm.audit().unwrap();
}

macro_rules! random_private_sequences {
    ($($(#[$about:meta])* $name:ident: $design:ident $value:literal;)*) => {
        mod random_private {
            $(#[test]
            fn $name() {
                for options in super::aging() {
                    super::private_pages_come_back_as_they_were::<crate::rmap::$design>(&options);
                }
            })*
        }
    };
}
crate::every_rmap! { [random_private_sequences] }

#[test]
fn swappiness_says_how_much_of_what_leaves_is_private() {
    for (swappiness, expected) in [(0, 0..1), (100, 60..140), (200, 190..201)] {
        let (vm, space, start) = private_world::<ByRegions>(100);
        let file = vm.stored_pages(STORE, 100).unwrap();
        vm.set_swappiness(swappiness);
        for index in 0..100 {
            check_zero(&vm, file, index);
            store(&vm, space, start.offset(index), 1);
        }
        // What has been used must not be active first.
        vm.scan_space(space, PageRange::new(start, 100)).unwrap();
        let freed = vm.reclaim_pages(60);
        let of_both = stats(&vm);
        let share = of_both.swapped * 200 / freed;
        assert!(expected.contains(&share), "{swappiness}: {of_both:?}");
        vm.audit().unwrap();
    }
}

#[test]
fn an_area_that_refuses_pages_loses_none() {
    let (vm, space, start) = private_world::<ByRegions>(100);
    for index in 0..100 {
        store(&vm, space, start.offset(index), index as u8);
    }
    vm.platform().broken_store.store(true, Ordering::Relaxed);
    assert_eq!(vm.reclaim_pages(10), 0, "the areas take nothing");
    vm.platform().broken_store.store(false, Ordering::Relaxed);
    for index in 0..100 {
        let frame = fault(&vm, space, start.offset(index), Access::Read);
        assert_eq!(vm.platform().peek(frame)[0], index as u8);
    }
    vm.audit().unwrap();
}
