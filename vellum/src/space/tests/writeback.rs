//! Files of a store: reading ahead, writing back in rows, and who is told of errors.

use std::sync::atomic::Ordering;
use std::vec;
use std::vec::Vec;

use crate::addr::{Access, Prot, Vpn};
use crate::space::{FileError, FileRequest, MapRequest, OpenFile, Placement, Vm};
use crate::table::X86_64;
use crate::testing::ByRegions;
use crate::testing::{TestMachine, run_on};
use crate::{Design, ObjectId};

const PAGE: u64 = 4096;
const STORE: u64 = 3;

struct World {
    vm: Vm<TestMachine, X86_64, ByRegions>,
    id: ObjectId,
    file: OpenFile,
}

/// A file of `pages` pages, opened by one.
fn world(pages: u64) -> World {
    run_on(0);
    let machine = TestMachine::with_frames(2, 1500, 12);
    let vm: Vm<_, X86_64, ByRegions> = Vm::new(machine, Design::default()).unwrap();
    let id = vm
        .page_cache()
        .begin_file(&FileRequest::stored(STORE, pages * PAGE))
        .unwrap();
    let file = vm.page_cache().open(id).unwrap();
    World { vm, id, file }
}

impl World {
    fn machine(&self) -> &TestMachine {
        self.vm.platform()
    }

    /// Writes `byte` to all of some pages.
    fn write(&self, first: u64, pages: u64, byte: u8) {
        let data = vec![byte; (pages * PAGE) as usize];
        let written = self
            .vm
            .page_cache()
            .write_at(self.id, first * PAGE, &[&data]);
        assert_eq!(written, Ok(data.len()));
    }

    fn read(&self, first: u64, pages: u64) -> Vec<(u64, usize)> {
        let mut data = vec![0; (pages * PAGE) as usize];
        let read = self
            .vm
            .page_cache()
            .read_open(&self.file, first * PAGE, &mut [&mut data]);
        assert_eq!(read, Ok(data.len()));
        self.machine().take_read()
    }

    fn dirty(&self) -> u64 {
        self.vm.page_cache().object_stats(self.id).unwrap().dirty
    }

    fn finish(self) {
        self.vm.close(self.file).unwrap();
        self.vm.page_cache().release_object(self.id).unwrap();
        assert_eq!(self.vm.audit().unwrap().objects, 0);
    }
}

#[test]
fn reading_ahead_grows_while_a_reader_goes_on_and_stops_when_it_jumps() {
    let world = world(500);
    assert_eq!(world.read(0, 1), [(0, 4)], "from the start on");
    assert_eq!(world.read(1, 3), []);
    assert_eq!(world.read(4, 1), [(4, 8)]);
    assert_eq!(world.read(5, 8), [(12, 16)]);
    assert_eq!(world.read(13, 15), []);
    assert_eq!(world.read(28, 1), [(28, 32)]);
    assert_eq!(world.read(29, 31), []);
    assert_eq!(world.read(60, 1), [(60, 4)], "as far as one node goes");
    assert_eq!(world.read(61, 4), [(64, 32)], "no wider");
    // A jump reads what is asked for; going on from there grows again.
    assert_eq!(world.read(300, 2), [(300, 2)]);
    assert_eq!(world.read(200, 1), [(200, 1)]);
    assert_eq!(world.read(201, 1), [(201, 4)]);
    assert_eq!(world.read(202, 4), [(205, 8)]);
    // Not beyond the end, and not over what is cached.
    assert_eq!(world.read(498, 1), [(498, 1)]);
    assert_eq!(world.read(499, 1), [(499, 1)]);
    assert_eq!(world.read(298, 1), [(298, 1)]);
    assert_eq!(world.read(299, 1), [(299, 1)]);
    world.vm.audit().unwrap();
    world.finish();
}

#[test]
fn prefetching_reads_what_is_missing() {
    let world = world(100);
    world.write(10, 2, 7);
    world
        .vm
        .page_cache()
        .prefetch(world.id, 5 * PAGE + 9, 10 * PAGE)
        .unwrap();
    assert_eq!(world.machine().take_read(), [(5, 5), (12, 4)]);
    world
        .vm
        .page_cache()
        .prefetch(world.id, 95 * PAGE, u64::MAX)
        .unwrap();
    assert_eq!(world.machine().take_read(), [(95, 5)]);
    world
        .vm
        .page_cache()
        .prefetch(world.id, u64::MAX, u64::MAX)
        .unwrap();
    assert_eq!(world.machine().take_read(), []);
    assert_eq!(world.dirty(), 2);
    world.finish();
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_of_its_own_reader() {
    let world = world(20);
    world.machine().broken_store.store(true, Ordering::Relaxed);
    let mut data = vec![0; 3 * PAGE as usize];
    let failed = world
        .vm
        .page_cache()
        .read_open(&world.file, 0, &mut [&mut data]);
    assert_eq!(failed, Err(FileError::Io));
    // A write of a whole page needs nothing of the store, one of a part does.
    world.write(2, 1, 9);
    let partly = world
        .vm
        .page_cache()
        .write_at(world.id, 3 * PAGE + 1, &[b"x"]);
    assert_eq!(partly, Err(FileError::Io));
    let shorter = world.vm.page_cache().set_size(world.id, 9 * PAGE + 1);
    assert_eq!(shorter, Err(FileError::Io));
    assert_eq!(world.vm.page_cache().size(world.id), Some(20 * PAGE));
    let stats = world.vm.page_cache().object_stats(world.id).unwrap();
    assert_eq!((stats.cached, stats.dirty), (1, 1));
    world.machine().broken_store.store(false, Ordering::Relaxed);
    world.machine().take_read();
    assert_eq!(world.read(0, 3), [(0, 2)], "what failed is tried again");
    world.finish();
}

#[test]
fn pages_in_a_row_are_written_in_one_transfer() {
    let world = world(0);
    world.write(3, 10, 1);
    world.write(20, 1, 2);
    world.write(60, 10, 3);
    assert_eq!(world.dirty(), 21);
    assert_eq!(world.file.on(&world.vm).sync(), Ok(21));
    let written = world.machine().take_written();
    assert_eq!(written, [(3, 10), (20, 1), (60, 10)]);
    assert_eq!(world.machine().store_flushes.load(Ordering::Relaxed), 1);
    assert_eq!((world.dirty(), world.file.on(&world.vm).sync()), (0, Ok(0)));
    world.finish();
}

#[test]
fn a_sync_of_a_range_writes_its_pages_only() {
    let world = world(0);
    world.write(0, 30, 1);
    let synced = world
        .file
        .on(&world.vm)
        .sync_range(5 * PAGE + 4095, 2 * PAGE);
    assert_eq!(synced, Ok(3));
    assert_eq!(world.machine().take_written(), [(5, 3)]);
    assert_eq!(world.dirty(), 27);
    assert_eq!(world.file.on(&world.vm).sync_range(u64::MAX, 9), Ok(0));
    world.finish();
}

/// A mapping's stores are found by a sync, not by the background.
#[test]
fn the_background_writes_what_calls_wrote_a_bit_at_a_time() {
    let world = world(200);
    let space = world.vm.begin_space().unwrap();
    let request = MapRequest::object(world.id, 0, 200, Prot::READ_WRITE).shared();
    let request = request.at(Placement::Fixed(Vpn(1000)));
    world.vm.map(space, &request).unwrap();
    world.vm.fault(space, 1190 << 12, Access::Write).unwrap();
    for first in [0, 100, 150] {
        world.write(first, 8, 5);
    }
    assert_eq!(world.vm.page_cache().write_back(world.id, 10), Ok(16));
    assert_eq!(world.machine().take_written(), [(0, 8), (100, 8)]);
    assert_eq!(world.dirty(), 8);
    // Goes on where it stopped, and comes round.
    world.write(0, 1, 6);
    assert_eq!(world.vm.page_cache().write_back(world.id, 3), Ok(8));
    assert_eq!(world.vm.page_cache().write_back(world.id, 3), Ok(1));
    assert_eq!(world.vm.page_cache().write_back(world.id, 3), Ok(0));
    assert_eq!(world.machine().take_written(), [(150, 8), (0, 1)]);
    assert_eq!(world.machine().store_flushes.load(Ordering::Relaxed), 0);
    assert_eq!(world.file.on(&world.vm).sync(), Ok(1));
    assert_eq!(world.machine().take_written(), [(190, 1)]);
    world.vm.exit(space).unwrap();
    world.finish();
}

#[test]
fn an_error_is_told_once_to_everybody_who_has_the_file_open() {
    let world = world(0);
    let other = world.vm.page_cache().open(world.id).unwrap();
    world.write(0, 9, 1);
    world.machine().broken_pages.lock().unwrap().insert(4);
    // Whoever causes it.
    assert_eq!(
        world.vm.page_cache().write_back(world.id, 100),
        Err(FileError::Io)
    );
    assert_eq!(world.dirty(), 1, "the page stays dirty, the others do not");
    let later = world.vm.page_cache().open(world.id).unwrap();
    world.machine().broken_pages.lock().unwrap().clear();
    for file in [&world.file, &other, &later] {
        assert_eq!(file.on(&world.vm).sync(), Err(FileError::Io));
        assert!(file.on(&world.vm).sync().is_ok(), "told once");
    }
    assert_eq!(world.dirty(), 0, "and written since");
    let last = world.vm.page_cache().open(world.id).unwrap();
    assert!(
        last.on(&world.vm).sync().is_ok(),
        "opened after it was told"
    );
    // Another error is another.
    world.write(4, 1, 2);
    world.machine().broken_pages.lock().unwrap().insert(4);
    for file in [&world.file, &last] {
        assert_eq!(file.on(&world.vm).sync(), Err(FileError::Io));
    }
    world.machine().broken_pages.lock().unwrap().clear();
    // The second's own attempt failed as well, and was news to the first.
    assert_eq!(world.file.on(&world.vm).sync(), Err(FileError::Io));
    assert_eq!(world.file.on(&world.vm).sync(), Ok(0));
    for file in [other, later, last] {
        world.vm.close(file).unwrap();
    }
    world.finish();
}

#[test]
fn a_store_that_does_not_flush_has_everything_written_again() {
    let world = world(0);
    world.write(0, 5, 1);
    assert_eq!(world.vm.page_cache().write_back(world.id, 100), Ok(5));
    world.machine().broken_store.store(true, Ordering::Relaxed);
    assert_eq!(world.file.on(&world.vm).sync(), Err(FileError::Io));
    assert_eq!(world.dirty(), 5);
    world.machine().broken_store.store(false, Ordering::Relaxed);
    assert_eq!(world.file.on(&world.vm).sync(), Ok(5));
    world.finish();
}

#[test]
fn what_a_store_does_not_discard_is_an_error_and_can_be_tried_again() {
    let world = world(10);
    world.write(0, 10, 7);
    world.file.on(&world.vm).sync().unwrap();
    world.machine().broken_store.store(true, Ordering::Relaxed);
    assert_eq!(
        world.vm.page_cache().set_size(world.id, 4 * PAGE),
        Err(FileError::Io)
    );
    assert_eq!(world.vm.page_cache().size(world.id), Some(4 * PAGE));
    world.machine().broken_store.store(false, Ordering::Relaxed);
    world.vm.page_cache().set_size(world.id, 4 * PAGE).unwrap();
    world.vm.page_cache().set_size(world.id, 10 * PAGE).unwrap();
    let mut data = vec![1; 6 * PAGE as usize];
    world
        .vm
        .page_cache()
        .read_at(world.id, 4 * PAGE, &mut [&mut data])
        .unwrap();
    assert!(data.iter().all(|byte| *byte == 0));
    world.finish();
}

/// More entries than one visit takes the marks of.
#[test]
fn a_sync_takes_the_marks_of_all_mappings_of_a_page() {
    let world = world(1);
    let space = world.vm.begin_space().unwrap();
    let request = MapRequest::object(world.id, 0, 1, Prot::READ_WRITE).shared();
    for place in (0..300).step_by(2) {
        let placed = request.at(Placement::Fixed(Vpn(1000 + place)));
        world.vm.map(space, &placed).unwrap();
        let address = (1000 + place) << 12;
        world.vm.fault(space, address, Access::Write).unwrap();
    }
    assert_eq!(world.file.on(&world.vm).sync(), Ok(1));
    assert_eq!(world.file.on(&world.vm).sync(), Ok(0), "a mark was left");
    world.vm.exit(space).unwrap();
    world.finish();
}
