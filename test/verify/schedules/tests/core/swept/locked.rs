//! A range that is locked while another space has its pages leave: what is in memory when the call
//! returns stays there.

use std::sync::Mutex;

use super::*;
use vellum::addr::Pfn;
use vellum::space::RemapPlacement;

swept! {
    a_private_page_of_a_range_that_was_locked_stays => private_page;
    shared_memory_in_a_range_that_was_locked_stays => shared_memory;
    a_locked_page_that_moves_stays => moved;
}

#[test]
fn a_locked_private_page_that_moves_stays() {
    // Its entry is found wherever it is.
    vellum_schedules::sweep_task(1, 0.., moved_private::<vellum::rmap::Pv>);
}

#[test]
fn a_page_that_could_not_be_written_is_copied_if_a_locked_range_kept_it() {
    for locks_child in [false, true] {
        let body = move || kept_by_lock::<vellum::rmap::Family>(locks_child);
        vellum_schedules::run_scripted(body);
    }
}

fn frame<R: ReverseMap>(world: &World<R>, space: SpaceId, page: u64) -> Option<Pfn> {
    let found = world.vm.space(space).translate(Vpn(page));
    found.ok().map(|(frame, _)| frame)
}

/// Two spaces map the page; one locks it, and the other has it leave.
fn lock_beside<R: ReverseMap>(
    world: &World<R>,
    preemption: &Preemption,
    [space, other]: [SpaceId; 2],
    page: u64,
) {
    let locked = Mutex::new(None);
    let lock = |_| {
        world.vm.space(space).lock(Vpn(page), 1).unwrap();
        *locked.lock().unwrap() = frame(world, space, page);
    };
    let take = |_| {
        let advice = Advice::PageOut;
        world.vm.space(other).advise(Vpn(page), 1, advice).unwrap();
    };
    world.run_preempted(preemption, [&take, &lock]);
    let after = world.alone(|| frame(world, space, page));
    let locked = *locked.lock().unwrap();
    assert!(locked.is_none() || locked == after, "{locked:?}, {after:?}");
    for space in [space, other] {
        assert_eq!(load(world, space, page), Ok(5));
    }
}

/// A space and its child, which share a page of private memory.
fn private<R: ReverseMap>() -> (World<R>, SpaceId, SpaceId) {
    let mut world = World::<R>::new(2, 300, "");
    world.swap_on(8);
    let (space, child) = world.alone(|| {
        let space = world.space();
        world.anonymous(space, PRIVATE, 1);
        world.store(ZERO, space, at(PRIVATE, 0), 5).unwrap();
        (space, world.vm.space(space).fork().unwrap().id())
    });
    (world, space, child)
}

fn private_page<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, child) = private::<R>();
    lock_beside(&world, preemption, [space, child], PRIVATE);
    world.finish_swap(&[space, child], &[]);
}

/// Two spaces that map shared memory.
fn shared<R: ReverseMap>() -> (Shared<R>, SpaceId) {
    let mut shared = Shared::<R>::stored("");
    shared.world.swap_on(8);
    let world = &shared.world;
    let other = world.alone(|| {
        let other = world.space();
        world.object(other, shared.object, 0, FIRST, PAGES, true);
        other
    });
    assert_eq!(load(world, other, FIRST), Ok(5));
    (shared, other)
}

fn shared_memory<R: ReverseMap>(preemption: &Preemption) {
    let (shared, other) = shared::<R>();
    let (world, space) = (&shared.world, shared.space);
    lock_beside(world, preemption, [space, other], FIRST);
    world.finish_swap(&[space, other], &[shared.object]);
}

/// The entry is at its new place before the region is.
fn moved<R: ReverseMap>(preemption: &Preemption) {
    const TO: u64 = PRIVATE + 0x200;
    let (shared, other) = shared::<R>();
    let (world, space) = (&shared.world, shared.space);
    let before = world.alone(|| {
        world.vm.space(space).lock(Vpn(FIRST), 1).unwrap();
        frame(world, space, FIRST)
    });
    let remap = |_| {
        let place = RemapPlacement::Fixed(Vpn(TO));
        world
            .vm
            .space(space)
            .remap(Vpn(FIRST), 1, 1, place)
            .unwrap();
    };
    let take = |_| {
        let advice = Advice::PageOut;
        world.vm.space(other).advise(Vpn(FIRST), 1, advice).unwrap();
    };
    world.run_preempted(preemption, [&take, &remap]);
    assert_eq!(world.alone(|| frame(world, space, TO)), before);
    assert_eq!(load(world, other, FIRST), Ok(5));
    world.finish_swap(&[space, other], &[shared.object]);
}

/// The same of a page of private memory. Before the new place lies memory that is not locked.
fn moved_private<R: ReverseMap>(preemption: &Preemption) {
    const TO: u64 = PRIVATE + 0x200;
    let (world, space, child) = private::<R>();
    let before = world.alone(|| {
        world.anonymous(space, PRIVATE + 0x100, 1);
        world.vm.space(space).lock(Vpn(PRIVATE), 1).unwrap();
        frame(&world, space, PRIVATE)
    });
    let remap = |_| {
        let place = RemapPlacement::Fixed(Vpn(TO));
        world
            .vm
            .space(space)
            .remap(Vpn(PRIVATE), 1, 1, place)
            .unwrap();
    };
    let take = |_| world.page_out(child, PRIVATE, 1);
    world.run_preempted(preemption, [&take, &remap]);
    assert_eq!(world.alone(|| frame(&world, space, TO)), before);
    assert_eq!(load(&world, child, PRIVATE), Ok(5));
    world.finish_swap(&[space, child], &[]);
}

/// The area refuses the page, which stays in its frame, and the other space wants it back.
fn kept_by_lock<R: ReverseMap>(locks_child: bool) {
    let (world, space, child) = private::<R>();
    let (locked, other) = match locks_child {
        true => (child, space),
        false => (space, child),
    };
    world.store.faults().fail_range(Transfer::Write, 0..8);
    world.alone(|| {
        world.vm.space(locked).lock(Vpn(PRIVATE), 1).unwrap();
        world.page_out(other, PRIVATE, 1);
        world.store(ZERO, other, at(PRIVATE, 0), 6).unwrap();
    });
    assert_eq!(load(&world, locked, PRIVATE), Ok(5));
    assert_eq!(load(&world, other, PRIVATE), Ok(6));
    world.finish_swap(&[space, child], &[]);
}
