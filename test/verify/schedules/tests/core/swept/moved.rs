//! Pages that move to another node, beside who uses them.

use std::sync::Mutex;

use super::*;
use vellum::addr::{Access, PageRange, Pfn};
use vellum::platform::NodeId;
use vellum::space::WriteRequest;

swept! {
    a_store_beside_a_move_is_not_lost => stored;
    a_page_moves_or_is_shared_by_a_fork => forked;
    a_page_moves_or_goes_to_swap => swapped;
    a_page_moves_or_is_pinned => pinned;
    a_store_to_shared_memory_beside_a_move_is_not_lost => shared_stored;
    what_is_written_to_an_object_beside_a_move_is_not_lost => written;
    a_page_that_moves_may_be_cut_off => cut;
    two_moves_of_a_page_leave_one_page => twice;
}

/// A space with two tasks, a private page at [`PRIVATE`] and one of an object at [`FIRST`], both with 5
/// in the first word, on node 0 of two.
pub(super) fn two_nodes<R: ReverseMap>() -> (World<R>, SpaceId, ObjectId) {
    let mut world = World::<R>::on_nodes(2, 200, "");
    world.swap_on(8);
    let (space, object) = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, PRIVATE, 1);
        let object = world.memory(1);
        world.object(space, object, 0, FIRST, 1, true);
        for page in [PRIVATE, FIRST] {
            world.store(ZERO, space, at(page, 0), 5).unwrap();
        }
        (space, object)
    });
    (world, space, object)
}

pub(super) fn frame<R: ReverseMap>(world: &World<R>, space: SpaceId, page: u64) -> Option<Pfn> {
    let found = world.vm.space(space).translate(Vpn(page));
    found.ok().map(|(frame, _)| frame)
}

fn move_page<R: ReverseMap>(world: &World<R>, space: SpaceId, page: u64, node: u16) {
    let range = PageRange::new(Vpn(page), 1);
    let moved = world.vm.space(space).move_pages(range, Some(NodeId(node)));
    let moved = moved.unwrap();
    assert!(moved.moved <= 1 && moved.no_memory == 0, "{moved:?}");
}

fn beside_store<R: ReverseMap>(preemption: &Preemption, page: u64) {
    let (world, space, object) = two_nodes::<R>();
    let go = |_| move_page(&world, space, page, 1);
    let store = |cpu| world.store(cpu, space, at(page, 1), 7).unwrap();
    world.run_preempted(preemption, [&go, &store]);
    let words = [0, 1].map(|word| world.alone(|| world.load(ZERO, space, at(page, word))));
    assert_eq!(words, [Ok(5), Ok(7)]);
    world.finish_swap(&[space], &[object]);
}

fn stored<R: ReverseMap>(preemption: &Preemption) {
    beside_store::<R>(preemption, PRIVATE);
}

fn shared_stored<R: ReverseMap>(preemption: &Preemption) {
    beside_store::<R>(preemption, FIRST);
}

fn forked<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, object) = two_nodes::<R>();
    let child = Mutex::new(None);
    let go = |_| move_page(&world, space, PRIVATE, 1);
    let fork = |_| *child.lock().unwrap() = Some(world.vm.space(space).fork().unwrap().id());
    world.run_preempted(preemption, [&go, &fork]);
    let child = child.into_inner().unwrap().unwrap();
    assert_eq!(load(&world, child, PRIVATE), Ok(5));
    world.alone(|| world.store(ZERO, child, at(PRIVATE, 0), 6).unwrap());
    assert_eq!(load(&world, space, PRIVATE), Ok(5));
    world.finish_swap(&[space, child], &[object]);
}

fn swapped<R: ReverseMap>(preemption: &Preemption) {
    for page in [PRIVATE, FIRST] {
        let (world, space, object) = two_nodes::<R>();
        let go = |_| move_page(&world, space, page, 1);
        let out = |_| world.page_out(space, page, 1);
        world.run_preempted(preemption, [&go, &out]);
        assert_eq!(load(&world, space, page), Ok(5));
        world.finish_swap(&[space], &[object]);
    }
}

fn pinned<R: ReverseMap>(preemption: &Preemption) {
    for page in [PRIVATE, FIRST] {
        let (world, space, object) = two_nodes::<R>();
        let go = |_| move_page(&world, space, page, 1);
        let pin = |_| {
            let mut frames = [Pfn(0)];
            let space = world.vm.space(space);
            let pins = space.pin_pages(Vpn(page), Access::Write, &mut frames);
            let pins = pins.unwrap();
            let (now, pinned) = (frame(&world, space.id(), page), pins[0]);
            assert!(now.is_none_or(|now| now == pinned), "{now:?}");
            drop(pins);
        };
        world.run_preempted(preemption, [&go, &pin]);
        assert_eq!(load(&world, space, page), Ok(5));
        world.finish_swap(&[space], &[object]);
    }
}

fn written<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, object) = two_nodes::<R>();
    let go = |_| move_page(&world, space, FIRST, 1);
    let write = |_| {
        let data = 7_u64.to_ne_bytes();
        let file = world.vm.file(object);
        file.write(WriteRequest::bytes(8, &[&data])).unwrap();
    };
    world.run_preempted(preemption, [&go, &write]);
    let words = [0, 1].map(|word| world.alone(|| world.load(ZERO, space, at(FIRST, word))));
    assert_eq!(words, [Ok(5), Ok(7)]);
    world.finish_swap(&[space], &[object]);
}

fn cut<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, object) = two_nodes::<R>();
    let go = |_| move_page(&world, space, FIRST, 1);
    let cut = |_| world.vm.file(object).set_size(0).unwrap();
    world.run_preempted(preemption, [&go, &cut]);
    assert_eq!(load(&world, space, FIRST), Err(FaultError::PastEnd));
    world.finish_swap(&[space], &[object]);
}

fn twice<R: ReverseMap>(preemption: &Preemption) {
    for page in [PRIVATE, FIRST] {
        let (world, space, object) = two_nodes::<R>();
        let go = |_| move_page(&world, space, page, 1);
        let back = |_| move_page(&world, space, page, 0);
        world.run_preempted(preemption, [&go, &back]);
        assert_eq!(load(&world, space, page), Ok(5));
        world.finish_swap(&[space], &[object]);
    }
}
