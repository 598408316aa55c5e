//! Pages of shared memory that go to swap and come back, with every reverse-mapping design.

use std::sync::atomic::Ordering;
use std::vec;

use super::*;
use crate::design::variants;
use crate::frame::{FailAt, Site};
use crate::rmap::ReverseMap;
use crate::space::{FileError, FileRequest};
use crate::swap::SwapArea;

const SLOTS: u64 = 200;
const AT: u64 = 1000;
const PAGE: u64 = 4096;

/// Calls a test of one design for each.
macro_rules! with_each_design {
    ($($name:ident => $check:ident;)*) => {$(
        #[test]
        fn $name() {
            for text in variants("rmap") {
                let design = Design::parse(&text).unwrap();
                crate::with_rmap!(design.rmap, R => $check::<R>(&text));
            }
            #[cfg(feature = "published")]
            $check::<ByRegions>("fileio=pages");
        }
    )*};
}

with_each_design! {
    a_page_comes_back_for_all_who_map_it => out_and_in;
    calls_find_what_is_in_swap => by_calls;
    cutting_and_punching_give_up_slots => cut;
    a_private_copy_is_made_of_a_page_in_swap => private_copy;
    a_page_that_cannot_be_written_stays => write_fails;
    a_page_that_cannot_be_read_is_an_error_of_its_caller_alone => read_fails;
    a_page_for_which_there_is_no_room_stays => no_room;
    pinned_pages_stay => pinned;
    memory_that_runs_out_leaves_pages_in_swap => no_memory;
}

/// Shared memory of which each page is full of its number and one.
struct World<R: ReverseMap> {
    vm: TestVm<R>,
    object: ObjectId,
    /// A space that maps it from [`AT`] on.
    space: SpaceId,
    pages: u64,
}

fn world<R: ReverseMap>(design: &str, pages: u64) -> World<R> {
    let vm = vm_with::<R>(design, 2048);
    // The first is full after two pages: numbers are counted on into the next.
    for (store, slots, priority) in [(76, 2, 1), (77, SLOTS - 2, 0)] {
        let area = SwapArea {
            store,
            slots,
            priority,
        };
        vm.swap_on(area).unwrap();
    }
    let object = vm.memory_pages(pages).unwrap();
    let space = vm.begin_space().unwrap();
    map(
        &vm,
        space,
        AT,
        MapRequest::object(object, 0, pages, RW).shared(),
    );
    for page in 0..pages {
        touch(&vm, space, AT + page, Access::Write);
        let (frame, _) = vm.translate(space, Vpn(AT + page)).unwrap();
        vm.platform().scribble(frame, page as u8 + 1);
    }
    World {
        vm,
        object,
        space,
        pages,
    }
}

impl<R: ReverseMap> World<R> {
    /// Has all pages go to swap that can.
    fn out(&self) {
        let (start, pages) = (Vpn(AT), self.pages);
        (0..pages).for_each(|page| touch(&self.vm, self.space, AT + page, Access::Read));
        (self.vm)
            .advise(self.space, start, pages, Advice::PageOut)
            .unwrap();
        self.vm.audit().unwrap();
    }

    fn counts(&self) -> (u64, u64) {
        let stats = self.vm.page_cache().object_stats(self.object).unwrap();
        (stats.cached, stats.swapped)
    }

    /// What a program reads from a page of a space that maps the object.
    fn load(&self, space: SpaceId, page: u64) -> u8 {
        touch(&self.vm, space, AT + page, Access::Read);
        let (frame, _) = self.vm.translate(space, Vpn(AT + page)).unwrap();
        let bytes = self.vm.platform().peek(frame);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
        bytes[0]
    }

    fn read(&self, page: u64) -> Result<Vec<u8>, FileError> {
        let mut bytes = vec![0xee; PAGE as usize];
        let read = (self.vm)
            .page_cache()
            .read_at(self.object, page * PAGE, &mut [&mut bytes])?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Ends everything; nothing is left anywhere.
    fn finish(self, others: &[SpaceId]) {
        self.vm.audit().unwrap();
        self.vm.page_cache().release_object(self.object).unwrap();
        for &space in others.iter().chain([&self.space]) {
            assert_eq!(self.vm.exit(space), Ok(true));
            self.vm.audit().unwrap();
        }
        let stats = self.vm.swap_stats();
        assert_eq!(stats.free + stats.bad, stats.slots);
        let left = [76, 77].map(|store| self.vm.platform().stored_pages(store));
        assert_eq!(
            left,
            [0, 0],
            "the store was not told of slots that are free"
        );
        let frames = self.vm.audit().unwrap().frames;
        assert_eq!(
            (frames.of(Kind::Object), frames.of(Kind::Anonymous)),
            (0, 0)
        );
    }
}

fn out_and_in<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 20);
    let child = world.vm.fork(world.space).unwrap();
    world.load(child, 3);
    world.out();
    assert_eq!(world.counts(), (0, 20), "{design}");
    assert_eq!(world.vm.swap_stats().free, SLOTS - 20);
    for space in [world.space, child] {
        let stats = world.vm.space_stats(space).unwrap();
        assert_eq!((stats.rss.shared_memory, stats.swapped), (0, 0));
        assert_eq!(world.vm.translate(space, Vpn(AT + 3)), None);
    }
    // A store through one mapping is seen through the other.
    touch(&world.vm, child, AT + 3, Access::Write);
    let (frame, _) = world.vm.translate(child, Vpn(AT + 3)).unwrap();
    world.vm.platform().scribble(frame, 0x77);
    assert_eq!(world.load(world.space, 3), 0x77, "{design}");
    let grandchild = world.vm.fork(child).unwrap();
    for page in (0..20).filter(|page| *page != 3) {
        for space in [grandchild, world.space, child] {
            assert_eq!(world.load(space, page), page as u8 + 1, "{design}");
        }
    }
    assert_eq!(world.counts(), (20, 0));
    assert_eq!(world.vm.swap_stats().free, SLOTS);
    assert_eq!(world.vm.stats().events.swap_ins, 20);
    world.finish(&[child, grandchild]);
}

fn by_calls<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 12);
    let vm = &world.vm;
    world.out();
    assert!(world.read(4).unwrap() == [5; 4096], "{design}");
    assert_eq!(world.counts(), (1, 11));
    // A part of a page in swap, and of one in memory after it.
    let written = vm
        .page_cache()
        .write_at(world.object, 4 * PAGE - 1, &[&[0x99, 0x98]]);
    assert_eq!(written, Ok(2));
    let page = world.read(3).unwrap();
    assert_eq!((page[0], page[4094], page[4095]), (4, 4, 0x99), "{design}");
    // What is in swap is no hole.
    world.out();
    assert_eq!(
        vm.page_cache().seek_data(world.object, 5 * PAGE),
        Ok(5 * PAGE)
    );
    assert_eq!(vm.page_cache().seek_hole(world.object, 0), Ok(12 * PAGE));
    let mut seen = Vec::new();
    let pages = vm
        .page_cache()
        .read_pages(world.object, 2, 9, |index, bytes| {
            let mut byte = [0];
            bytes.read(8, &mut byte);
            seen.push((index, byte[0]));
        });
    let wanted: Vec<(u64, u8)> = (2..11).map(|page| (page, page as u8 + 1)).collect();
    assert_eq!((pages, seen), (Ok(9), wanted), "{design}");
    world.out();
    let written = vm
        .page_cache()
        .write_pages(world.object, 2, 9, |index, bytes| bytes.fill(index));
    assert_eq!(written, Ok(9));
    world.out();
    let mut all = vec![0; 12 * PAGE as usize];
    assert_eq!(
        vm.page_cache().read_at(world.object, 0, &mut [&mut all]),
        Ok(all.len())
    );
    for (page, bytes) in all.chunks(PAGE as usize).enumerate() {
        let word = u64::from_ne_bytes(bytes[8..16].try_into().unwrap());
        match page {
            2..11 => assert_eq!(word, page as u64, "{design}"),
            _ => assert_eq!(bytes[8], page as u8 + 1, "{design}"),
        }
    }
    world.finish(&[]);
}

fn cut<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 100);
    let vm = &world.vm;
    world.out();
    assert_eq!(world.counts(), (0, 100), "{design}");
    // Whole pages, and a part of one on each side that has to come back for that.
    vm.page_cache()
        .punch_hole(world.object, 10 * PAGE + 1, 5 * PAGE)
        .unwrap();
    vm.audit().unwrap();
    assert_eq!(world.counts(), (2, 94), "{design}");
    assert_eq!(vm.swap_stats().free, SLOTS - 94);
    let edges = [world.read(10).unwrap(), world.read(15).unwrap()];
    assert_eq!((edges[0][0], edges[0][1]), (11, 0));
    assert_eq!((edges[1][0], edges[1][1]), (0, 16));
    assert!(world.read(12).unwrap() == [0; 4096], "{design}");
    vm.page_cache()
        .set_size(world.object, 80 * PAGE + 7)
        .unwrap();
    vm.audit().unwrap();
    assert_eq!(vm.swap_stats().free, SLOTS - 74, "{design}");
    assert!(world.read(80).unwrap() == [81; 7], "{design}");
    vm.page_cache().set_size(world.object, 90 * PAGE).unwrap();
    let tail = world.read(80).unwrap();
    assert_eq!((tail[6], tail[7], tail[4095]), (81, 0, 0), "{design}");
    assert_eq!(world.load(world.space, 85), 0);
    assert_eq!(world.load(world.space, 79), 80);
    vm.page_cache().set_size(world.object, 0).unwrap();
    assert_eq!((world.counts(), vm.swap_stats().free), ((0, 0), SLOTS));
    world.finish(&[]);
}

fn private_copy<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 3);
    let other = world.vm.begin_space().unwrap();
    let request = MapRequest::object(world.object, 0, 3, RW);
    map(&world.vm, other, AT, request);
    world.out();
    touch(&world.vm, other, AT + 1, Access::Write);
    let (frame, _) = world.vm.translate(other, Vpn(AT + 1)).unwrap();
    assert_eq!(world.vm.platform().peek(frame), [2; 4096], "{design}");
    world.vm.platform().scribble(frame, 0x41);
    assert_eq!(world.load(world.space, 1), 2, "{design}");
    // The copy and the page that it was made of go separately.
    world.out();
    world.vm.advise(other, Vpn(AT), 3, Advice::PageOut).unwrap();
    assert_eq!(world.vm.space_stats(other).unwrap().swapped, 1);
    assert_eq!(world.counts(), (0, 3));
    assert_eq!((world.load(other, 1), world.load(other, 2)), (0x41, 3));
    assert_eq!(world.load(world.space, 1), 2);
    world.finish(&[other]);
}

fn write_fails<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 4);
    world
        .vm
        .platform()
        .broken_store
        .store(true, Ordering::Relaxed);
    world.out();
    let stats = world.vm.swap_stats();
    assert_eq!((stats.outs, stats.write_errors), (0, 4), "{design}");
    assert_eq!((world.counts(), stats.bad), ((4, 0), 4));
    for page in 0..4 {
        assert_eq!(world.load(world.space, page), page as u8 + 1, "{design}");
    }
    world
        .vm
        .platform()
        .broken_store
        .store(false, Ordering::Relaxed);
    world.out();
    assert_eq!(world.counts(), (0, 4), "{design}: elsewhere");
    assert!(world.read(2).unwrap() == [3; 4096], "{design}");
    world.finish(&[]);
}

fn no_room<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 6);
    let machine = world.vm.platform();
    machine.swap_limit.store(2, Ordering::Relaxed);
    for told in [false, true] {
        machine.tells_room.store(told, Ordering::Relaxed);
        world.out();
        let stats = world.vm.swap_stats();
        assert_eq!((world.counts(), stats.bad), ((2, 4), 0), "{design}");
        assert_eq!((stats.no_room, stats.write_errors), (2, 0), "{design}");
    }
    for page in 0..6 {
        assert_eq!(world.load(world.space, page), page as u8 + 1, "{design}");
    }
    world.finish(&[]);
}

fn read_fails<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 4);
    let vm = &world.vm;
    world.out();
    vm.platform().broken_store.store(true, Ordering::Relaxed);
    for access in [Access::Read, Access::Write] {
        let fault = vm.fault(world.space, AT << 12, access);
        assert_eq!(fault, Err(FaultError::Io), "{design}");
    }
    assert_eq!(world.read(1).err(), Some(FileError::Io));
    let part = vm.page_cache().write_at(world.object, PAGE + 9, &[b"some"]);
    assert_eq!(part, Err(FileError::Io), "{design}");
    let hole = vm.page_cache().punch_hole(world.object, 9, 2 * PAGE);
    assert_eq!(hole, Err(FileError::Io), "{design}");
    let cut = vm.page_cache().set_size(world.object, 2 * PAGE + 5);
    assert_eq!(cut, Err(FileError::Io), "{design}");
    vm.audit().unwrap();
    assert_eq!(world.counts(), (0, 4), "{design}: nothing changed");
    vm.platform().broken_store.store(false, Ordering::Relaxed);
    for page in 0..4 {
        assert_eq!(world.load(world.space, page), page as u8 + 1, "{design}");
    }
    world.finish(&[]);
}

fn pinned<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 3);
    let vm = &world.vm;
    world.out();
    let mut frames = [Pfn::NONE];
    vm.pin_pages(world.space, Vpn(AT + 1), Access::Write, &mut frames)
        .unwrap();
    world.out();
    assert_eq!(world.counts(), (1, 2), "{design}");
    vm.platform().scribble(frames[0], 0x66);
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    world.out();
    assert_eq!(world.counts(), (0, 3), "{design}");
    assert!(world.read(1).unwrap() == [0x66; 4096], "{design}");
    world.finish(&[]);
}

fn no_memory<R: ReverseMap>(design: &str) {
    let world = world::<R>(design, 3);
    let vm = &world.vm;
    world.out();
    let short = || {
        vm.memory().inject(Some(FailAt {
            site: Site::SwapIn,
            after: 0,
        }));
    };
    short();
    let fault = vm.fault(world.space, AT << 12, Access::Read);
    assert_eq!(fault, Err(FaultError::OutOfMemory), "{design}");
    short();
    assert_eq!(world.read(1).err(), Some(FileError::OutOfMemory));
    short();
    let part = vm.page_cache().write_at(world.object, PAGE + 9, &[b"some"]);
    assert_eq!(part, Err(FileError::OutOfMemory), "{design}");
    short();
    let cut = vm.page_cache().set_size(world.object, 5);
    assert_eq!(cut, Err(FileError::OutOfMemory), "{design}");
    vm.memory().inject(None);
    vm.audit().unwrap();
    assert_eq!(world.counts(), (0, 3), "{design}: nothing changed");
    assert!(world.read(1).unwrap() == [2; 4096], "{design}");
    world.finish(&[]);
}

#[test]
fn pages_in_swap_count_against_their_mount() {
    let world = world::<ByRegions>("", 1);
    let vm = &world.vm;
    let mount = vm.page_cache().begin_mount(10).unwrap();
    let file = vm
        .page_cache()
        .begin_file(&FileRequest::in_mount(mount))
        .unwrap();
    vm.page_cache()
        .write_at(file, 0, &[&[7; 10 * PAGE as usize]])
        .unwrap();
    map(
        vm,
        world.space,
        5000,
        MapRequest::object(file, 0, 10, RW).shared(),
    );
    (0..10).for_each(|page| touch(vm, world.space, 5000 + page, Access::Read));
    vm.advise(world.space, Vpn(5000), 10, Advice::PageOut)
        .unwrap();
    assert_eq!(vm.page_cache().object_stats(file).unwrap().swapped, 10);
    assert_eq!(vm.page_cache().mount_stats(mount).unwrap().used, 10);
    assert_eq!(
        vm.page_cache().write_at(file, 11 * PAGE, &[&[1]]),
        Err(FileError::Full),
        "as if they were in memory"
    );
    vm.page_cache().punch_hole(file, 0, 4 * PAGE).unwrap();
    assert_eq!(vm.page_cache().mount_stats(mount).unwrap().used, 6);
    vm.audit().unwrap();
    vm.unmap(world.space, Vpn(5000), 10).unwrap();
    vm.page_cache().release_object(file).unwrap();
    vm.page_cache().release_mount(mount).unwrap();
    world.finish(&[]);
}

#[test]
fn a_page_that_several_want_is_read_by_one() {
    let world = world::<ByRegions>("", 1);
    for round in 0..50u8 {
        world.out();
        std::thread::scope(|scope| {
            for cpu in 0..2 {
                let world = &world;
                scope.spawn(move || {
                    run_on(cpu);
                    match cpu {
                        0 => assert_eq!(world.load(world.space, 0), 1),
                        _ => assert!(world.read(0).unwrap() == [1; 4096]),
                    }
                });
            }
        });
        assert_eq!(world.vm.swap_stats().ins, u64::from(round) + 1);
    }
    world.finish(&[]);
}

#[test]
fn swapping_does_not_use_the_global_allocator() {
    let world = world::<ByRegions>("", 10);
    let calls = crate::testing::allocations(|| {
        let (start, pages) = (Vpn(AT), world.pages);
        (world.vm)
            .advise(world.space, start, pages, Advice::PageOut)
            .unwrap();
        (0..10).for_each(|page| touch(&world.vm, world.space, AT + page, Access::Write));
    });
    assert_eq!((calls, world.vm.swap_stats().ins), (0, 10));
    world.finish(&[]);
}
