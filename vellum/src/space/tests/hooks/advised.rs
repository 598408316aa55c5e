//! Hooks beside advice, guards, moves that leave or duplicate, and pages of objects that move.

use super::*;
use crate::space::{Allocation, FileRequest};

with_each_format! {
    guards_come_before_hooks_and_are_not_protected => guarded;
    advice_on_fork_says_what_a_child_has_of_a_range_with_hooks => inherited;
    what_is_asked_for_ahead_is_caught => ahead;
    a_move_that_leaves_its_place_leaves_the_hooks_there_too => left;
    mappings_made_of_one_with_hooks_have_them => duplicated;
    pages_that_change_places_in_their_object_are_not_protected => shifted;
}

fn with_hooks<F: Format, R: ReverseMap>(vm: &Vm<TestMachine, F, R>) -> On<'_, F, R> {
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(6, RW));
    for page in 0..3 {
        store(space, AT + page, page as u8 + 1).unwrap();
    }
    space.hooks(Vpn(AT), 6).register(ALL).unwrap();
    space.hooks(Vpn(AT), 6).protect().unwrap();
    space
}

fn guarded<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = with_hooks(&vm);
    let guards = |advice| space.advise(Vpn(AT + 2), 2, advice).unwrap();
    guards(Advice::InstallGuards);
    let hooks = space.hooks(Vpn(AT + 2), 1);
    let refused = Err(FaultError::Protection);
    hooks.protect().unwrap();
    for page in [AT + 2, AT + 3] {
        assert_eq!(store(space, page, 9), refused.map(drop::<u8>), "{design}");
        assert_eq!(load(space, page), refused);
    }
    let supplied = hooks.supply(Supply::Bytes(&pages(&[9])));
    assert_eq!(supplied, Err(HookError::Exists));
    hooks.unprotect().unwrap();
    vm.audit().unwrap();
    let child = space.fork().unwrap();
    assert_eq!(load(child, AT + 2), refused);
    assert_eq!(load(child, AT + 4), Ok(0), "{design}");
    guards(Advice::RemoveGuards);
    assert_eq!(load(space, AT + 2), Err(MISSING));
    assert_eq!(hooks.supply(Supply::Bytes(&pages(&[7]))), Ok(1));
    store(space, AT + 2, 8).unwrap();
    assert_eq!(load(child, AT + 2), refused);
    // A guard among pages without entries, to all of which protection comes.
    let all = space.hooks(Vpn(AT), 6);
    all.register(Traits::HOOK_STORES).unwrap();
    space.advise(Vpn(AT + 4), 1, Advice::InstallGuards).unwrap();
    all.protect().unwrap();
    assert_eq!(load(space, AT + 4), refused);
    assert_eq!(store(space, AT + 5, 9), Err(STORE), "{design}");
    vm.audit().unwrap();
}

fn inherited<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = with_hooks(&vm);
    space.advise(Vpn(AT), 2, Advice::WipeOnFork).unwrap();
    space.advise(Vpn(AT + 2), 1, Advice::DontFork).unwrap();
    let child = space.fork().unwrap();
    vm.audit().unwrap();
    assert_eq!(load(child, AT), Ok(0), "{design}");
    store(child, AT + 1, 5).unwrap();
    assert_eq!(load(child, AT + 2), Err(FaultError::NoRegion));
    assert_eq!(store(space, AT, 9), Err(STORE), "{design}");
    assert_eq!([load(space, AT), load(space, AT + 2)], [Ok(1), Ok(3)]);
    let third = child.fork().unwrap();
    assert_eq!(load(third, AT + 1), Ok(0), "{design}");
    vm.audit().unwrap();
}

fn ahead<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = with_hooks(&vm);
    let advise = |page, count, advice| space.advise(Vpn(AT + page), count, advice);
    let caught = |error| Err(MapError::Fault(error));
    assert_eq!(advise(0, 3, Advice::PopulateRead), Ok(()), "{design}");
    assert_eq!(advise(0, 3, Advice::PopulateWrite), caught(STORE));
    assert_eq!(advise(2, 2, Advice::PopulateRead), caught(MISSING));
    assert_eq!(advise(3, 1, Advice::WillNeed), Ok(()));
    assert_eq!(load(space, AT + 3), Err(MISSING), "{design}");
    advise(0, 6, Advice::PageOut).unwrap();
    assert_eq!(space.stats().unwrap().swapped, 3);
    advise(0, 6, Advice::WillNeed).unwrap();
    assert_eq!(space.stats().unwrap().swapped, 0, "{design}");
    assert_eq!(store(space, AT + 1, 9), Err(STORE), "{design}");
    let mut there = [false; 6];
    space.residency(Vpn(AT), &mut there).unwrap();
    assert_eq!(there, [true, true, true, false, false, false]);
    // A hole is missing, and not protected.
    let memory = vm.memory_pages(4).unwrap();
    map_at(space, AT + 8, MapRequest::object(memory, 0, 4, RW).shared());
    store(space, AT + 9, 4).unwrap();
    let hooks = space.hooks(Vpn(AT + 8), 4);
    hooks.register(ALL).unwrap();
    hooks.protect().unwrap();
    advise(9, 1, Advice::Remove).unwrap();
    assert_eq!(load(space, AT + 9), Err(MISSING), "{design}");
    let one = space.hooks(Vpn(AT + 9), 1);
    assert_eq!(one.supply(Supply::Zeroes), Ok(1));
    store(space, AT + 9, 5).unwrap();
    vm.audit().unwrap();
}

fn left<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = with_hooks(&vm);
    let to = AT + 0x700;
    let leaves = RemapPlacement::LeaveFor(Vpn(to));
    space.remap(Vpn(AT), 4, 4, leaves).unwrap();
    vm.audit().unwrap();
    assert_eq!(store(space, to + 1, 9), Err(STORE), "{design}");
    assert_eq!(
        [load(space, to + 1), load(space, to + 3)],
        [Ok(2), Err(MISSING)]
    );
    for page in [AT, AT + 1, AT + 5] {
        assert_eq!(load(space, page), Err(MISSING), "{design}");
    }
    let hooks = space.hooks(Vpn(AT + 1), 1);
    assert_eq!(hooks.supply(Supply::Protected(&pages(&[7]))), Ok(1));
    assert_eq!(store(space, AT + 1, 9), Err(STORE), "{design}");
    assert_eq!([load(space, AT + 1), load(space, to + 1)], [Ok(7), Ok(2)]);
    vm.audit().unwrap();
}

fn duplicated<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = with_hooks(&vm);
    let memory = vm.memory_pages(4).unwrap();
    map_at(space, AT + 8, MapRequest::object(memory, 0, 4, RW).shared());
    store(space, AT + 8, 4).unwrap();
    let hooks = space.hooks(Vpn(AT + 8), 4);
    hooks.register(ALL.union(Traits::HOOK_MINOR)).unwrap();
    hooks.protect().unwrap();
    let to = Vpn(AT + 0x700);
    let fixed = RemapPlacement::Fixed(to);
    space.remap(Vpn(AT + 8), 0, 4, fixed).unwrap();
    assert_eq!(load(space, to.0), Err(MINOR), "{design}");
    assert_eq!(load(space, to.0 + 1), Err(MISSING), "{design}");
    assert_eq!(space.hooks(to, 1).supply(Supply::Present), Ok(1));
    store(space, to.0, 5).unwrap();
    assert_eq!(store(space, AT + 8, 9), Err(STORE), "{design}");
    assert_eq!(load(space, AT + 8), Ok(5));
    // Of several regions at once, each takes its own along.
    let all = RemapPlacement::AllTo(Vpn(AT + 0x400));
    space.remap(Vpn(AT), 12, 12, all).unwrap();
    vm.audit().unwrap();
    let moved = |page| AT + 0x400 + page;
    for page in [1, 8] {
        assert_eq!(store(space, moved(page), 9), Err(STORE), "{design}");
    }
    assert_eq!(
        [load(space, moved(1)), load(space, moved(8))],
        [Ok(2), Ok(5)]
    );
    vm.audit().unwrap();
}

fn shifted<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let request = FileRequest::shared_memory(4 * PAGE as u64);
    let file = vm.create_file(request).unwrap();
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::object(file.id(), 0, 8, RW).shared());
    for page in 0..3 {
        store(space, AT + page, page as u8 + 1).unwrap();
    }
    let hooks = space.hooks(Vpn(AT), 8);
    hooks.register(ALL.union(Traits::HOOK_MINOR)).unwrap();
    hooks.protect().unwrap();
    let one = PAGE as u64;
    file.allocate(Allocation::Collapse, one, one).unwrap();
    vm.audit().unwrap();
    assert_eq!(store(space, AT, 9), Err(STORE), "{design}");
    assert_eq!(load(space, AT + 1), Err(MINOR), "{design}");
    assert_eq!(load(space, AT + 2), Err(MISSING));
    assert_eq!(load(space, AT + 3), Err(FaultError::PastEnd));
    let page = space.hooks(Vpn(AT + 1), 1);
    assert_eq!(page.supply(Supply::Present), Ok(1));
    store(space, AT + 1, 5).unwrap();
    file.allocate(Allocation::Insert, 0, one).unwrap();
    assert_eq!(load(space, AT), Err(MISSING), "{design}");
    assert_eq!(space.hooks(Vpn(AT), 8).supply(Supply::Zeroes), Ok(1));
    assert_eq!(space.hooks(Vpn(AT + 1), 8).supply(Supply::Present), Ok(2));
    let now = [0, 1, 2].map(|page| load(space, AT + page));
    assert_eq!(now, [Ok(0), Ok(1), Ok(5)], "{design}");
    vm.audit().unwrap();
}
