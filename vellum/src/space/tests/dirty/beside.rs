//! Dirty tracking beside guards, hooks, and moves that leave or duplicate.

use super::*;
use crate::space::{Allocation, FileRequest, Supply};

with_each_format! {
    guards_that_come_and_go_are_told_of => guarded;
    a_move_is_told_of_where_it_came_and_where_it_left => moved;
    what_is_supplied_is_told_of_and_protection_stays => hooked;
    pages_that_change_places_in_their_object_are_told_of_once_they_were_mapped => shifted;
}

fn guarded<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(8, RW));
    store(space, AT + 2, 1);
    take(space, AT, 8);
    for advice in [Advice::InstallGuards, Advice::RemoveGuards] {
        space.advise(Vpn(AT + 2), 2, advice).unwrap();
        assert_eq!(take(space, AT, 8), [2, 3], "{design}: {advice:?}");
        assert_eq!(take(space, AT, 8), [], "{design}");
        vm.audit().unwrap();
    }
    store(space, AT + 3, 1);
    assert_eq!(take(space, AT, 8), [3], "{design}");
    // A guard has no mark to take.
    space.advise(Vpn(AT + 5), 1, Advice::InstallGuards).unwrap();
    taken(space, (AT, 8), PROTECTS);
    assert_eq!(
        space.fault((AT + 5) << 12, Access::Read),
        Err(FaultError::Protection)
    );
    let child = space.fork().unwrap();
    assert_eq!(take(child, AT, 8), all(8), "{design}");
    vm.audit().unwrap();
}

fn moved<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(6, RW));
    store(space, AT + 1, 1);
    take(space, AT, 6);
    let to = AT + 0x100;
    let leaves = RemapPlacement::LeaveFor(Vpn(to));
    space.remap(Vpn(AT), 4, 4, leaves).unwrap();
    assert_eq!(take(space, AT, 6), [0, 1, 2, 3], "{design}");
    assert_eq!(take(space, to, 4), all(4), "{design}");
    assert_eq!((take(space, AT, 6), take(space, to, 4)), (vec![], vec![]));
    let memory = vm.memory_pages(4).unwrap();
    map_at(space, AT + 8, MapRequest::object(memory, 0, 4, RW).shared());
    store(space, AT + 8, 1);
    take(space, AT + 8, 4);
    let again = RemapPlacement::Fixed(Vpn(AT + 0x200));
    space.remap(Vpn(AT + 8), 0, 4, again).unwrap();
    assert_eq!(take(space, AT + 0x200, 4), all(4), "{design}");
    assert_eq!(take(space, AT + 8, 4), [], "{design}");
    vm.audit().unwrap();
}

fn hooked<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let memory = vm.memory_pages(6).unwrap();
    let space = vm.create_space().unwrap();
    let hooks = Traits::HOOK_MISSING.union(Traits::HOOK_STORES);
    for (at, request) in [
        (AT, MapRequest::anonymous(6, RW)),
        (AT + 8, MapRequest::object(memory, 0, 6, RW).shared()),
    ] {
        map_at(space, at, request);
        let range = space.hooks(Vpn(at), 6);
        range.register(hooks).unwrap();
        take(space, at, 6);
        let page = [7; 1 << 12];
        let supply = |step, supply| space.hooks(Vpn(at + step), 1).supply(supply).unwrap();
        supply(1, Supply::Bytes(&page));
        supply(3, Supply::Protected(&page));
        assert_eq!(take(space, at, 6), [1, 3], "{design}: {at:#x}");
        range.protect().unwrap();
        assert_eq!(take(space, at, 6), [], "{design}");
        // In swap, if it is private, where its mark is taken, too.
        space.advise(Vpn(at), 6, Advice::PageOut).unwrap();
        assert_eq!(take(space, at, 6), [], "{design}");
        let caught = space.write((at + 3) << 12, &[1]);
        assert!(matches!(caught, Err(FaultError::Hooked(_))), "{design}");
        assert_eq!(load(space, at + 3), 7);
        range.unprotect().unwrap();
        store(space, at + 3, 1);
        assert_eq!(take(space, at, 6), [3], "{design}");
        vm.audit().unwrap();
    }
}

fn shifted<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let page = 1 << 12;
    let file = vm
        .create_file(FileRequest::shared_memory(6 * page))
        .unwrap();
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::object(file.id(), 0, 6, RW).shared());
    map_at(space, AT + 8, MapRequest::object(file.id(), 0, 6, RW));
    store(space, AT + 3, 1);
    store(space, AT + 8 + 4, 1);
    take(space, AT, 14);
    file.allocate(Allocation::Collapse, page, page).unwrap();
    let told = take(space, AT, 14);
    for moved in [2, 3, 8 + 4] {
        assert!(told.contains(&moved), "{design}: {told:?}");
    }
    assert_eq!(take(space, AT, 14), [], "{design}");
    store(space, AT + 2, 2);
    assert_eq!(take(space, AT, 14), [2], "{design}");
    vm.audit().unwrap();
}
