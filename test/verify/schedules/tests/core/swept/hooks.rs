//! What fault hooks catch, beside others who supply it and swap it out.

use std::sync::Mutex;

use super::*;
use crate::hooks::{finish, hooked, page};
use vellum::space::{HookError, Supply};

swept! {
    a_page_is_supplied_once => once;
    a_protected_page_is_so_when_it_comes_back_from_swap => swapped;
}

fn once<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = hooked::<R>();
    let supplied = Mutex::new(Vec::new());
    let supply = |word| {
        let hooks = world.vm.space(space).hooks(Vpn(PRIVATE), 1);
        match hooks.supply(Supply::Bytes(&page(word))) {
            Ok(1) => supplied.lock().unwrap().push(word),
            other => assert_eq!(other, Err(HookError::Exists)),
        }
    };
    world.run_preempted(preemption, [&|_| supply(5), &|_| supply(6)]);
    let supplied = supplied.into_inner().unwrap();
    assert_eq!(supplied.len(), 1);
    assert_eq!(load(&world, space, PRIVATE), Ok(supplied[0]));
    finish(&world, space);
}

fn swapped<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = hooked::<R>();
    let hooks = world.vm.space(space).hooks(Vpn(PRIVATE), 1);
    world.alone(|| assert_eq!(hooks.supply(Supply::Bytes(&page(5))), Ok(1)));
    let out = |_| {
        let advice = Advice::PageOut;
        world
            .vm
            .space(space)
            .advise(Vpn(PRIVATE), 1, advice)
            .unwrap();
    };
    let protect = |_| hooks.protect().unwrap();
    world.run_preempted(preemption, [&out, &protect]);
    assert_eq!(load(&world, space, PRIVATE), Ok(5));
    let found = world.alone(|| world.vm.space(space).translate(Vpn(PRIVATE)));
    assert!(!found.unwrap().1.can_write());
    world.alone(|| world.vm.audit().unwrap());
    world.alone(|| hooks.unprotect().unwrap());
    world.alone(|| world.store(ZERO, space, at(PRIVATE, 0), 6).unwrap());
    finish(&world, space);
}
