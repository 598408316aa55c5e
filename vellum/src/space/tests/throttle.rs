//! Throttled writers of files, counted in pages.

mod together;

use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;
use std::vec::Vec;

use crate::object::RUN_PAGES;
use crate::space::{FileError, FileRequest, Vm};
use crate::table::X86_64;
use crate::testing::ByRegions;
use crate::testing::{TestMachine, run_on};
use crate::{Design, ObjectId};

const PAGE: u64 = 4096;
const STORE: u64 = 3;
const FRAMES: u32 = 3000;

/// Pages of a call.
const CALL: u64 = 10;

/// The most that the store is given by a call that makes so many pages dirty.
const fn most(made: u64) -> u64 {
    2 * made + RUN_PAGES as u64 - 1
}

struct World {
    vm: Arc<Vm<TestMachine, X86_64, ByRegions>>,
    id: ObjectId,
}

/// An empty file whose store writes so many pages in a second; 0: nobody knows.
fn world_of(options: &str, speed: u64) -> World {
    world_on(1, options, speed)
}

/// The same on several CPUs.
fn world_on(cpus: usize, options: &str, speed: u64) -> World {
    run_on(0);
    let machine = TestMachine::with_frames(cpus, FRAMES, 12);
    machine.write_speed.store(speed, Ordering::Relaxed);
    let vm: Vm<_, X86_64, ByRegions> = Vm::new(machine, Design::parse(options).unwrap()).unwrap();
    let id = vm
        .page_cache()
        .begin_file(&FileRequest::stored(STORE, 0))
        .unwrap();
    World {
        vm: Arc::new(vm),
        id,
    }
}

fn world(speed: u64) -> World {
    world_of("reclaim=on", speed)
}

impl World {
    fn machine(&self) -> &TestMachine {
        self.vm.platform()
    }

    /// Writes to some pages. Returns how many the store was given meanwhile.
    fn write(&self, first: u64, pages: u64) -> u64 {
        let data = vec![7; (pages * PAGE) as usize];
        let written = self
            .vm
            .page_cache()
            .write_at(self.id, first * PAGE, &[&data]);
        assert_eq!(written, Ok(data.len()));
        self.given()
    }

    /// Pages that the store was given since this was asked last.
    fn given(&self) -> u64 {
        let rows = self.machine().take_written();
        rows.iter().map(|(_, pages)| *pages as u64).sum()
    }

    fn dirty(&self) -> u64 {
        self.vm.page_cache().object_stats(self.id).unwrap().dirty
    }

    fn throttled(&self) -> u64 {
        self.vm.stats().reclaim.throttled
    }

    fn finish(self) {
        self.vm.page_cache().release_object(self.id).unwrap();
        assert_eq!(self.vm.audit().unwrap().objects, 0);
    }
}

#[test]
fn nobody_is_throttled_whose_store_has_no_known_speed() {
    let world = world(0);
    for call in 0..100 {
        assert_eq!(world.write(call * CALL, CALL), 0);
    }
    assert_eq!((world.dirty(), world.throttled()), (100 * CALL, 0));
    world.finish();
}

#[test]
fn nobody_is_throttled_without_reclaim() {
    let world = world_of("reclaim=off", 100);
    for call in 0..100 {
        assert_eq!(world.write(call * CALL, CALL), 0);
    }
    assert_eq!((world.dirty(), world.throttled()), (100 * CALL, 0));
    world.finish();
}

/// Writes a file from its start to its end, by calls of ten pages. Returns what the store was
/// given in each.
fn written_in_a_row(options: &str, speed: u64, limit: u64) -> Vec<u64> {
    let world = world_of(options, speed);
    let mut paid = Vec::new();
    for call in 0..200 {
        let given = world.write(call * CALL, CALL);
        assert!(given <= most(CALL), "call {call} waited for {given} pages");
        assert!(world.dirty() <= limit, "{} after {call}", world.dirty());
        paid.push(given);
    }
    let free = (limit / 2 / CALL) as usize;
    assert!(paid[..free].iter().all(|&given| given == 0), "{paid:?}");
    // From then on as much is written as is made dirty, but for a run.
    let late: u64 = paid[100..].iter().sum();
    assert!(late.abs_diff(100 * CALL) <= RUN_PAGES as u64, "{late}");
    assert_eq!(world.throttled(), paid.iter().sum());
    world.finish();
    paid
}

#[test]
fn a_file_has_no_more_dirty_pages_than_its_store_writes_in_a_second() {
    for options in crate::testing::built_in(["reclaim=on", "reclaim=on,fileio=pages"]) {
        written_in_a_row(options, 400, 400);
    }
}

#[test]
fn a_faster_store_is_waited_for_later() {
    let first = |paid: Vec<u64>| paid.iter().position(|&given| given > 0);
    let slow = first(written_in_a_row("reclaim=on", 300, 300));
    let fast = first(written_in_a_row("reclaim=on", 500, 500));
    assert_eq!((slow, fast), (Some(16), Some(27)));
}

#[test]
fn a_file_has_no_more_than_a_fifth_of_memory_dirty_however_fast_its_store_is() {
    let world = world(u64::MAX);
    // Some frames are the manager's own.
    let limit = world.vm.stats().frames.total / 5;
    assert!((FRAMES as u64 / 5 - 2..=FRAMES as u64 / 5).contains(&limit));
    world.finish();
    written_in_a_row("reclaim=on", u64::MAX, limit);
}

#[test]
fn runs_stay_long_however_slow_a_store_is() {
    let world = world(1);
    let runs = RUN_PAGES as u64;
    for page in 0..runs {
        assert_eq!(world.write(page, 1), 0, "a store of one page a second");
    }
    world.finish();
}

#[test]
fn a_call_pays_for_the_pages_that_it_makes_dirty_and_no_others() {
    let world = world(400);
    world.write(0, 199);
    // Half of the limit is passed, by less than what makes this call pay.
    assert_eq!(world.write(199, 2), 0);
    for _ in 0..50 {
        assert_eq!(world.write(1, 1), 0, "nothing became dirty");
    }
    assert_eq!(world.dirty(), 201);
    // One page, written a few bytes at a time, is dirty once.
    let before = world.throttled();
    for byte in 0..100 {
        let place = 201 * PAGE + byte;
        assert_eq!(
            world.vm.page_cache().write_at(world.id, place, &[&[1]]),
            Ok(1)
        );
    }
    assert_eq!((world.throttled() - before, world.dirty()), (0, 202));
    world.finish();
}

#[test]
fn a_file_beyond_its_limit_comes_back_to_it_and_no_call_pays_for_all_of_it() {
    let world = world(0);
    world.write(0, 1000);
    world.machine().write_speed.store(400, Ordering::Relaxed);
    let mut calls = 0;
    while world.dirty() > 400 {
        let given = world.write(1000 + calls * CALL, CALL);
        assert!((2 * CALL..=most(CALL)).contains(&given), "{given}");
        calls += 1;
    }
    // Each makes ten pages dirty, and writes twenty and what is left of a run.
    assert!(
        (600 / most(CALL)..=600 / CALL).contains(&calls),
        "{calls} calls"
    );
    world.finish();
}

/// Each page that is refused is given twice: with others, and by itself.
#[test]
fn a_store_that_refuses_pages_neither_fails_nor_stops_a_writer() {
    let world = world(200);
    let file = world.vm.page_cache().open(world.id).unwrap();
    world.machine().broken_store.store(true, Ordering::Relaxed);
    for call in 0..60 {
        let given = world.write(call * CALL, CALL);
        assert!(given <= 2 * most(CALL), "call {call} gave {given} pages");
    }
    assert_eq!(world.dirty(), 60 * CALL, "nothing is lost");
    assert_eq!(world.throttled(), 0);
    world.machine().broken_store.store(false, Ordering::Relaxed);
    assert_eq!(file.on(&world.vm).sync(), Err(FileError::Io), "told once");
    assert_eq!(world.dirty(), 0);
    world.vm.close(file).unwrap();
    world.finish();
}

/// That the CPU is not pinned, the machine checks at each transfer.
#[test]
fn a_writer_holds_nothing_while_it_writes_back() {
    let world = world(200);
    let looks = Arc::new(AtomicU64::new(0));
    let (vm, id, count) = (Arc::clone(&world.vm), world.id, Arc::clone(&looks));
    let look = move || {
        count.fetch_add(1, Ordering::Relaxed);
        let object = vm.objects.find(id).unwrap();
        assert!(!object.writers.is_held(), "others could write meanwhile");
    };
    *world.machine().on_write.lock().unwrap() = Some(Box::new(look));
    for call in 0..30 {
        world.write(call * CALL, CALL);
    }
    for _ in 0..10 {
        world
            .vm
            .page_cache()
            .append(world.id, &[&[1; PAGE as usize]])
            .unwrap();
    }
    // It keeps the manager.
    *world.machine().on_write.lock().unwrap() = None;
    let looks = looks.load(Ordering::Relaxed);
    assert!(looks > 100 && looks == world.throttled(), "{looks}");
    world.finish();
}
