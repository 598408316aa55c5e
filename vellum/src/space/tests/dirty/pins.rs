//! Dirty tracking of pages that devices store to, which set no marks.

use super::*;

with_each_format! {
    a_page_that_a_device_writes_is_told_of_until_it_cannot_any_more => pinned;
    a_pinned_page_is_told_of_though_its_entry_has_no_mark => unmarked;
}

fn pinned<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let memory = vm.memory_pages(2).unwrap();
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(2, RW));
    map_at(space, AT + 2, MapRequest::object(memory, 0, 2, RW).shared());
    for page in 0..4 {
        store(space, AT + page, 1);
    }
    take(space, AT, 4);
    assert_eq!(take(space, AT, 4), []);
    let mut frames = [Pfn::NONE; 2];
    let pins = space
        .pin_pages(Vpn(AT + 1), Access::Write, &mut frames)
        .unwrap();
    for how in [TakeDirty::default(), PROTECTS] {
        assert_eq!(taken(space, (AT, 4), how), [1, 2], "{design}");
    }
    drop(pins);
    assert_eq!(take(space, AT, 4), [1, 2], "it stored after that: {design}");
    assert_eq!(take(space, AT, 4), []);
    let pins = space
        .pin_pages(Vpn(AT + 1), Access::Write, &mut frames)
        .unwrap();
    drop(pins);
    assert_eq!(take(space, AT, 4), [1, 2], "nobody asked meanwhile");
    vm.audit().unwrap();
}

/// Pins a page of a file, and has its entry lose the mark, or the page its entry.
fn unmarked<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let file = vm.stored_pages(1, 12).unwrap();
    let space = vm.create_space().unwrap();
    let ways = [
        "untracked and written back",
        "written back",
        "dropped",
        "loaded",
        "for loads",
    ];
    for (number, way) in (0..).zip(ways) {
        let at = AT + number * 16;
        let request = MapRequest::object(file, number * 2, 2, RW);
        map_at(space, at, request.shared());
        store(space, at, 1);
        vm.file(file).sync().unwrap();
        if number > 0 {
            take(space, at, 2);
        }
        let access = match way {
            "for loads" => Access::Read,
            _ => Access::Write,
        };
        let mut frames = [Pfn::NONE];
        let pins = space.pin_pages(Vpn(at), access, &mut frames).unwrap();
        match way {
            "for loads" => {}
            "dropped" | "loaded" => space.advise(Vpn(at), 1, Advice::DontNeed).unwrap(),
            _ => {
                space.protect(Vpn(at), 2, Prot::READ).unwrap();
                vm.file(file).sync().unwrap();
            }
        }
        if way == "loaded" {
            load(space, at);
        }
        for how in [TakeDirty::default(), PROTECTS, SPLITS] {
            let told = taken(space, (at, 2), how);
            assert!(told.contains(&0), "{design}: {way}, pinned");
        }
        vm.audit().unwrap();
        drop(pins);
        let told = take(space, at, 2);
        assert!(told.contains(&0), "{design}: {way}, after that");
        assert_eq!(take(space, at, 2), [], "{design}: {way}");
        if way == "for loads" {
            let marked = u64::from(F::SOFT_DIRTY == 0);
            assert_eq!(vm.file(file).sync(), Ok(marked), "{design}");
        }
    }
    vm.audit().unwrap();
}

#[test]
fn a_pinned_page_of_a_superpage_is_told_of_though_the_leaf_goes() {
    let vm: TestVm = vm_with("huge=always", 4096);
    let memory = vm.memory_pages(512).unwrap();
    let space = vm.create_space().unwrap();
    let base = 0x10000;
    let request = MapRequest::object(memory, 0, 512, RW).shared();
    map_at(space, base, request);
    store(space, base, 1);
    take(space, base, 512);
    let mut frames = [Pfn::NONE];
    let pins = space
        .pin_pages(Vpn(base + 3), Access::Write, &mut frames)
        .unwrap();
    let check = |when: &str| {
        for _ in 0..2 {
            assert!(take(space, base, 512).contains(&3), "{when}");
        }
        vm.audit().unwrap();
    };
    check("marked");
    for prot in [Prot::READ, RW] {
        space.protect(Vpn(base + 100), 1, prot).unwrap();
    }
    assert!(large_leaves(&vm, space.id()).is_empty());
    check("without an entry");
    // A load maps the superpage again, and allows no stores.
    load(space, base);
    assert_eq!(large_leaves(&vm, space.id()), [base]);
    check("by a leaf that is not marked");
    assert!(taken(space, (base, 512), SPLITS).contains(&3));
    check("split");
    drop(pins);
    assert!(take(space, base, 512).contains(&3));
    assert_eq!(take(space, base, 512), []);
    vm.audit().unwrap();
}
