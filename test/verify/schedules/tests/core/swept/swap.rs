//! Pages that go to swap or leave memory beside faults, reads and pins of the same pages.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::*;
use crate::world::{SWAP, Task};
use vellum::addr::{Access, Pfn};
use vellum::platform::{IoError, SlotError};
use vellum::space::{PinnedPages, ReadRequest};
use vellum::sync::bytes::FrameBytes;
use vellum_machine::BackingStore;
use vellum_machine::store::{CompressedArea, CompressedStore};
use vellum_schedules::SCHEDULER;

swept! {
    a_fault_maps_a_page_only_for_the_entry_that_it_found => entry_changed;
    a_copy_of_a_page_that_could_not_be_written_is_whole => copied;
    a_page_of_shared_memory_comes_back_from_the_slot_that_it_is_in => slot_changed;
    a_page_of_shared_memory_that_is_pinned_stays => shared_pinned;
    a_read_beside_pages_that_go_to_swap_is_in_order => shared_read;
    a_slot_that_is_used_again_keeps_its_page_in_the_store => slot_used_again;
}

/// A space of two tasks with two private pages at [`PRIVATE`], which hold 1 and 2.
fn private<R: ReverseMap>(mut world: World<R>, slots: u64) -> (World<R>, SpaceId) {
    world.swap_on(slots);
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, PRIVATE, 2);
        for page in 0..2 {
            let stored = world.store(ZERO, space, at(PRIVATE + page, 0), page + 1);
            stored.unwrap();
        }
        space
    });
    (world, space)
}

#[test]
fn a_fault_maps_the_page_that_it_found_only_while_its_slot_has_it() {
    vellum_schedules::sweep_task(0, 0.., found_before::<vellum::rmap::Family>);
}

/// Two others who share both pages take the first, and have it read anew as the neighbour of
/// the second.
fn found_before<R: ReverseMap>(preemption: &Preemption) {
    // So much memory that neighbours are read, too.
    let (world, space) = private(World::<R>::new(2, 2000, "reclaim=on"), 8);
    let (one, other) = world.alone(|| {
        let children = (
            world.vm.space(space).fork().unwrap().id(),
            world.vm.space(space).fork().unwrap().id(),
        );
        world.page_out(space, PRIVATE, 2);
        children
    });
    let load = |cpu| assert_eq!(world.load(cpu, space, at(PRIVATE, 0)), Ok(1));
    let take_and_read = |cpu| {
        assert_eq!(world.load(cpu, one, at(PRIVATE, 0)), Ok(1));
        for space in [other, one] {
            assert_eq!(world.load(cpu, space, at(PRIVATE + 1, 0)), Ok(2));
        }
    };
    world.run_preempted(preemption, [&load, &take_and_read]);
    for space in [space, one, other] {
        assert_eq!(self::load(&world, space, PRIVATE), Ok(1));
    }
    world.finish_swap(&[space, one, other], &[]);
}

/// A space and its child, which share a page that could not be written.
fn unwritten<R: ReverseMap>() -> (World<R>, SpaceId, SpaceId) {
    let (world, space) = private(World::<R>::new(2, 300, ""), 8);
    let child = world.alone(|| {
        let child = world.vm.space(space).fork().unwrap().id();
        let faults = world.store.faults();
        faults.fail_range(Transfer::Write, 0..8);
        world.page_out(space, PRIVATE, 1);
        faults.heal();
        child
    });
    (world, space, child)
}

/// The one who comes last gets the frame, and stores to it.
fn copied<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, child) = unwritten::<R>();
    let copy = |cpu| assert_eq!(world.load(cpu, child, at(PRIVATE, 0)), Ok(1));
    let store = |cpu| world.store(cpu, space, at(PRIVATE, 0), 7).unwrap();
    world.run_preempted(preemption, [&copy, &store]);
    assert_eq!(self::load(&world, child, PRIVATE), Ok(1));
    assert_eq!(self::load(&world, space, PRIVATE), Ok(7));
    world.finish_swap(&[space, child], &[]);
}

/// Who shares the page copies it; then one of two tasks stores to its copy and pages that out.
fn entry_changed<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, child) = unwritten::<R>();
    let load = |cpu| {
        let seen = world.load(cpu, space, at(PRIVATE, 0));
        assert!(matches!(seen, Ok(1 | 7)), "{seen:?}");
    };
    let change = |cpu| {
        world.store(cpu, space, at(PRIVATE, 0), 7).unwrap();
        world.page_out(space, PRIVATE, 1);
    };
    world.run_preempted(preemption, [&load, &change]);
    assert_eq!(self::load(&world, space, PRIVATE), Ok(7));
    assert_eq!(self::load(&world, child, PRIVATE), Ok(1));
    world.finish_swap(&[space, child], &[]);
}

/// The page is cut off, and another in its place leaves for another slot; nobody has the one
/// that the page was in any more.
fn slot_changed<R: ReverseMap>(preemption: &Preemption) {
    let mut shared = Shared::<R>::stored("");
    shared.world.swap_on(2);
    let (world, space) = (&shared.world, shared.space);
    // Beside it something has the table stay, where the second CPU would walk one that is gone
    // until the other flushes.
    world.alone(|| world.anonymous(space, SECOND + PAGES, 1));
    shared.store_alone(SECOND + PAGES, 0, 1);
    world.alone(|| world.page_out(space, FIRST, 1));
    let load = |cpu| {
        let seen = world.load(cpu, space, at(SECOND, 0));
        assert!(matches!(seen, Ok(5 | 0 | 6) | Err(FaultError::PastEnd)));
    };
    let replace = |cpu| {
        for pages in [0, PAGES] {
            world.vm.file(shared.object).set_size(pages << 12).unwrap();
        }
        for page in [1, 0] {
            world.store(cpu, space, at(FIRST + page, 0), 6).unwrap();
            world.page_out(space, FIRST + page, 1);
        }
        assert_eq!(world.load(cpu, space, at(FIRST + 1, 0)), Ok(6));
    };
    world.run_preempted(preemption, [&load, &replace]);
    for page in 0..2 {
        assert_eq!(shared.load_alone(FIRST + page, 0), Ok(6));
    }
    world.finish_swap(&[space], &[shared.object]);
}

/// Task 0 pins the first page, and finds it where it was.
fn pin_beside_out<R: ReverseMap>(
    shared: &Shared<R>,
    steps: Vec<Step>,
    access: Access,
    out: impl Fn() + Sync,
) {
    let (world, space) = (&shared.world, shared.space);
    let before = shared.load_alone(FIRST, 1).unwrap();
    let pinned = Mutex::new([Pfn::NONE]);
    let pin = |cpu| {
        let mut frames = [Pfn::NONE];
        let done = (world.vm)
            .space(space)
            .pin_pages(Vpn(FIRST), access, &mut frames);
        done.unwrap().into_frames();
        *pinned.lock().unwrap() = frames;
        if access == Access::Write {
            world.store(cpu, space, at(FIRST, 1), 7).unwrap();
        }
    };
    world.run_by(steps, &[&pin, &|_| out()]);
    let after = if access == Access::Write { 7 } else { before };
    assert_eq!(shared.load_alone(FIRST, 1), Ok(after));
    let frames = pinned.into_inner().unwrap();
    let mapped = world.alone(|| world.vm.space(space).translate(Vpn(FIRST)));
    let mapped = mapped.map(|mapped| mapped.0);
    assert_eq!(mapped, Ok(frames[0]), "it was taken");
    // SAFETY: the task gave them up.
    world.alone(|| drop(unsafe { PinnedPages::from_frames(&world.vm, &frames) }));
    world.finish_swap(&[space], &[shared.object]);
}

fn shared_pinned<R: ReverseMap>(preemption: &Preemption) {
    let mut shared = Shared::<R>::stored("");
    shared.world.swap_on(8);
    let out = || shared.world.page_out(shared.space, FIRST, 1);
    pin_beside_out(&shared, preemption.steps(), Access::Write, out);
}

/// A file whose first two pages are in memory, and nobody has used them of late.
fn idle_file<R: ReverseMap>() -> Arc<Shared<R>> {
    let shared = Shared::<R>::on(3, true, "reclaim=on,faultaround=1");
    for page in 0..2 {
        shared.load_alone(FIRST + page, 1).unwrap();
    }
    Arc::new(shared)
}

fn make_idle<R: ReverseMap>(shared: &Shared<R>) {
    let (vm, space) = (&shared.world.vm, shared.space);
    let cold = || vm.space(space).advise(Vpn(FIRST), PAGES, Advice::Cold);
    shared.world.alone(cold).unwrap();
}

/// Has all pages of files leave that are not in use.
fn reclaim<R: ReverseMap>(world: &World<R>) {
    for _ in 0..4 {
        world.vm.reclaim_pages(2);
    }
}

/// Reclaim has just taken a reference to the page when the preemptions begin. The pin says that
/// the page is dirty, or it does not, and then nothing else keeps it.
#[test]
fn a_page_of_a_file_that_is_pinned_stays() {
    for (access, step) in [(Access::Write, 49), (Access::Read, 7)] {
        vellum_schedules::sweep_task(1, (0..600).step_by(step), move |preemption| {
            file_pinned::<vellum::rmap::Family>(preemption, access);
        });
    }
}

fn file_pinned<R: ReverseMap>(preemption: &Preemption, access: Access) {
    let shared = idle_file::<R>();
    let (world, space) = (&shared.world, shared.space);
    let (frame, _) = world.alone(|| world.vm.space(space).translate(Vpn(FIRST)).unwrap());
    let is_claimed = {
        let shared = Arc::clone(&shared);
        let counts = move || shared.world.vm.memory().frame(frame).counts();
        // The cache's, and that of the entry.
        move || vellum_schedules::undisturbed(&counts).refs() > 2
    };
    let steps = vec![
        Step::until(1, is_claimed),
        Step::preempted(preemption),
        Step::end(0),
        Step::end(1),
    ];
    make_idle(&shared);
    pin_beside_out(&shared, steps, access, || reclaim(world));
}

/// Task 0 reads while the second page leaves and comes back, and then both are stored to by
/// another, the first last: who reads what is new there has read what is new in the second, too.
fn read_beside_out<R: ReverseMap>(shared: &Shared<R>, steps: Vec<Step>, others: &[Task<'_>]) {
    let world = &shared.world;
    let read = |_| {
        // The first words of the two pages.
        let mut words = [[0; 8]; 2];
        let len = 2 * SIZE as usize;
        let read =
            (world.vm)
                .file(shared.object)
                .read(ReadRequest::parts(0, len, |place, part| {
                    // Here, too, the task may stand still.
                    (SCHEDULER.step)();
                    part.read(0, &mut words[place / SIZE as usize]);
                    part.len()
                }));
        assert_eq!(read, Ok(len));
        let [first, second] = words.map(u64::from_le_bytes);
        assert!(first != 7 || second == 7, "out of order");
    };
    let mut tasks: Vec<Task<'_>> = vec![&read];
    tasks.extend(others);
    world.run_by(steps, &tasks);
    for page in 0..2 {
        assert_eq!(shared.load_alone(FIRST + page, 0), Ok(7));
    }
}

fn store_to_both<R: ReverseMap>(shared: &Shared<R>, cpu: CpuId) {
    let world = &shared.world;
    for page in [1, 0] {
        let place = at(FIRST + page, 0);
        world.store(cpu, shared.space, place, 7).unwrap();
    }
}

fn shared_read<R: ReverseMap>(preemption: &Preemption) {
    let mut shared = Shared::<R>::stored("");
    shared.world.swap_on(8);
    let out = |cpu| {
        shared.world.page_out(shared.space, FIRST + 1, 1);
        store_to_both(&shared, cpu);
    };
    read_beside_out(&shared, preemption.steps(), &[&out]);
    let world = &shared.world;
    world.finish_swap(&[shared.space], &[shared.object]);
}

#[test]
fn a_read_beside_pages_that_leave_is_in_order() {
    vellum_schedules::sweep_task(0, 0.., file_read::<vellum::rmap::Family>);
}

/// The first page is pinned, and so stays. Reclaim waits for the reader in the end.
fn file_read<R: ReverseMap>(preemption: &Preemption) {
    let shared = idle_file::<R>();
    let (world, space) = (&shared.world, shared.space);
    let mut frames = [Pfn::NONE];
    let pinned = world.alone(|| {
        let here = world.vm.space(space);
        here.pin_pages(Vpn(FIRST), Access::Read, &mut frames)
            .unwrap()
    });
    make_idle(&shared);
    let has_left = {
        let shared = Arc::clone(&shared);
        let stats = move || shared.world.vm.file(shared.object).stats().unwrap();
        move || vellum_schedules::undisturbed(&stats).cached == 1
    };
    let steps = vec![
        Step::preempted(preemption),
        Step::until(1, has_left),
        Step::end(2),
        Step::end(0),
        Step::end(1),
    ];
    let store = |cpu| store_to_both(&shared, cpu);
    read_beside_out(&shared, steps, &[&|_| reclaim(world), &store]);
    world.alone(|| drop(pinned));
    shared.finish();
}

/// A store before which a CPU may stand still when it is told that a slot is free.
struct Preempted(CompressedStore);

impl BackingStore for Preempted {
    fn page_bytes(&self) -> usize {
        self.0.page_bytes()
    }

    fn read_page(&self, store: u64, index: u64, bytes: FrameBytes<'_>) -> Result<(), IoError> {
        self.0.read_page(store, index, bytes)
    }

    fn write_page(&self, store: u64, index: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.0.write_page(store, index, bytes)
    }

    fn write_slot(&self, store: u64, slot: u64, bytes: &[u8]) -> Result<(), SlotError> {
        self.0.write_slot(store, slot, bytes)
    }

    fn has_swap_room(&self, store: u64) -> bool {
        self.0.has_swap_room(store)
    }

    fn slot_freed(&self, store: u64, slot: u64) {
        (SCHEDULER.step)();
        self.0.slot_freed(store, slot);
    }

    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        self.0.discard_pages(store, pages)
    }

    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
        self.0.find_page(store, index, stored)
    }

    fn flush(&self) -> Result<(), IoError> {
        self.0.flush()
    }

    fn stored_word(&self, store: u64, offset: u64) -> Option<u64> {
        self.0.stored_word(store, offset)
    }

    fn discard(&self, store: u64) {
        self.0.discard(store);
    }
}

/// There is one slot, which passes from one page to another.
fn slot_used_again<R: ReverseMap>(preemption: &Preemption) {
    let about = CompressedArea {
        area: SWAP,
        slots: 1,
        bytes: 64 << 10,
        writes_back: false,
    };
    let world = World::<R>::with_store(2, 300, "", |stores| {
        Arc::new(Preempted(CompressedStore::new(stores, about).unwrap()))
    });
    let (world, space) = private(world, 1);
    // Who gives the page up has the lock of the space.
    let other = world.alone(|| {
        let other = world.space();
        world.anonymous(other, PRIVATE, 1);
        world.store(ZERO, other, at(PRIVATE, 0), 2).unwrap();
        world.page_out(space, PRIVATE, 1);
        other
    });
    let give_up = |_| {
        let first = Vpn(PRIVATE);
        world
            .vm
            .space(space)
            .advise(first, 1, Advice::DontNeed)
            .unwrap();
    };
    let out = |_| world.page_out(other, PRIVATE, 1);
    world.run_preempted(preemption, [&give_up, &out]);
    assert_eq!(load(&world, space, PRIVATE), Ok(0));
    assert_eq!(load(&world, other, PRIVATE), Ok(2));
    world.finish_swap(&[space, other], &[]);
}
