//! Tasks that wait for a page that a fault hook catches, beside what resolves it or takes it away. A
//! wake-up that is missed leaves all asleep.

use std::sync::Mutex;

use crate::world::{World, at};
use vellum::addr::Vpn;
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{FaultError, SpaceId, Supply, Traits};

const ZERO: CpuId = CpuId(0);
const FIRST: u64 = 0x1000;
const PRIVATE: u64 = 0x1400;
const ALL: Traits = Traits::HOOK_MISSING.union(Traits::HOOK_STORES);

explored! {
    a_task_that_waits_goes_on_beside_who_supplies_its_page: 32 => supplied;
    a_task_that_waits_goes_on_beside_who_maps_its_page: 32 => mapped;
    a_task_that_waits_faults_again_beside_an_unmapping: 32 => unmapped;
    a_task_that_waits_goes_on_when_hooks_end_and_another_leaves: 32 => left;
    no_store_begins_after_its_page_was_protected: 32 => protected;
}

/// A page full of a word.
pub(crate) fn page(word: u64) -> Vec<u8> {
    word.to_le_bytes().repeat(4096 / 8)
}

/// A space of two tasks, with hooks over private memory.
pub(crate) fn hooked<R: ReverseMap>() -> (World<R>, SpaceId) {
    let mut world = World::<R>::new(2, 300, "");
    world.swap_on(8);
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, PRIVATE, 2);
        let hooks = world.vm.space(space).hooks(Vpn(PRIVATE), 2);
        hooks.register(ALL).unwrap();
        space
    });
    (world, space)
}

pub(crate) fn finish<R: ReverseMap>(world: &World<R>, space: SpaceId) {
    world.alone(|| world.vm.audit().unwrap());
    world.finish_swap(&[space], &[]);
}

fn supplied<R: ReverseMap>() {
    let (world, space) = hooked::<R>();
    let wait = |cpu| assert_eq!(world.load(cpu, space, at(PRIVATE, 0)), Ok(5));
    let supply = |_| {
        let hooks = world.vm.space(space).hooks(Vpn(PRIVATE), 1);
        assert_eq!(hooks.supply(Supply::Bytes(&page(5))), Ok(1));
    };
    world.run(&[&wait, &supply]);
    finish(&world, space);
}

fn mapped<R: ReverseMap>() {
    let world = World::<R>::new(2, 300, "");
    let (space, object) = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        let object = world.memory(1);
        for place in [FIRST, PRIVATE] {
            world.object(space, object, 0, place, 1, true);
        }
        world.store(ZERO, space, at(FIRST, 0), 5).unwrap();
        (space, object)
    });
    let hooks = world.vm.space(space).hooks(Vpn(PRIVATE), 1);
    world.alone(|| hooks.register(Traits::HOOK_MINOR).unwrap());
    let wait = |cpu| assert_eq!(world.load(cpu, space, at(PRIVATE, 0)), Ok(5));
    let map = |_| assert_eq!(hooks.supply(Supply::Present), Ok(1));
    world.run(&[&wait, &map]);
    world.finish(&[space], &[object]);
}

fn unmapped<R: ReverseMap>() {
    let (world, space) = hooked::<R>();
    let wait = |cpu| {
        let loaded = world.load(cpu, space, at(PRIVATE, 0));
        assert_eq!(loaded, Err(FaultError::NoRegion));
    };
    let unmap = |_| world.vm.space(space).unmap(Vpn(PRIVATE), 2).unwrap();
    world.run(&[&wait, &unmap]);
    finish(&world, space);
}

fn left<R: ReverseMap>() {
    let (world, space) = hooked::<R>();
    let ended = Mutex::new(0);
    let leave = || {
        let is_last = world.vm.space(space).exit().unwrap();
        *ended.lock().unwrap() += u32::from(is_last);
    };
    let wait = |cpu| {
        assert_eq!(world.load(cpu, space, at(PRIVATE, 0)), Ok(0));
        leave();
    };
    let end = |_| {
        let hooks = world.vm.space(space).hooks(Vpn(PRIVATE), 2);
        hooks.register(Traits::NONE).unwrap();
        leave();
    };
    world.run(&[&wait, &end]);
    assert_eq!(*ended.lock().unwrap(), 1);
    world.alone(|| world.vm.audit().unwrap());
}

fn protected<R: ReverseMap>() {
    let (world, space) = hooked::<R>();
    let hooks = world.vm.space(space).hooks(Vpn(PRIVATE), 1);
    world.alone(|| assert_eq!(hooks.supply(Supply::Bytes(&page(1))), Ok(1)));
    let store = |cpu| {
        for value in 2..4 {
            world.store(cpu, space, at(PRIVATE, 0), value).unwrap();
        }
    };
    let save = |cpu| {
        hooks.protect().unwrap();
        let loads = [(); 2].map(|()| world.load(cpu, space, at(PRIVATE, 0)));
        assert_eq!(loads[0], loads[1]);
        hooks.unprotect().unwrap();
    };
    world.run(&[&store, &save]);
    world.alone(|| assert_eq!(world.load(ZERO, space, at(PRIVATE, 0)), Ok(3)));
    finish(&world, space);
}
