//! Dirty tracking, with every reverse-mapping design and some formats (invariant 19).

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::addr::PageRange;
use crate::frame::{FailAt, Site};
use crate::rmap::ReverseMap;
use crate::space::{Space, TakeDirty};
use crate::swap::SwapArea;
use crate::table::{Format, X86Pae};

/// First page of the region.
const AT: u64 = 0x1000;

type On<'a, F, R> = Space<'a, TestMachine, F, R>;

const PROTECTS: TakeDirty = TakeDirty {
    write_protects: true,
    splits: false,
};
const SPLITS: TakeDirty = TakeDirty {
    write_protects: false,
    splits: true,
};

fn vm_of<F: Format, R: ReverseMap>(design: &str) -> Vm<TestMachine, F, R> {
    run_on(0);
    let design = std::format!("{design},format={}", F::NAME);
    let vm = Vm::new(
        TestMachine::simple(2, 2048),
        Design::parse(&design).unwrap(),
    )
    .unwrap();
    vm.swap_on(SwapArea::new(77, 256)).unwrap();
    vm
}

fn map_at<F: Format, R: ReverseMap>(space: On<'_, F, R>, at: u64, request: MapRequest) {
    let placed = request.at(Placement::Fixed(Vpn(at)));
    assert_eq!(space.map(&placed), Ok(Vpn(at)));
}

fn store<F: Format, R: ReverseMap>(space: On<'_, F, R>, page: u64, byte: u8) {
    assert_eq!(space.write(page << 12, &[byte]), Ok(1), "{page:#x}");
}

fn load<F: Format, R: ReverseMap>(space: On<'_, F, R>, page: u64) -> u8 {
    let mut bytes = [0];
    assert_eq!(space.read(page << 12, &mut bytes), Ok(1));
    bytes[0]
}

/// The pages of `count` from `at` on that were written, counted from `at`.
fn taken<F: Format, R: ReverseMap>(
    space: On<'_, F, R>,
    (at, count): (u64, u64),
    how: TakeDirty,
) -> Vec<u64> {
    let mut pages = BTreeSet::new();
    let range = PageRange::new(Vpn(at), count);
    let take = |written: PageRange| {
        assert!(range.start <= written.start && written.end <= range.end);
        pages.extend((written.start.0..written.end.0).map(|page| page - at));
    };
    space.take_dirty(range, how, take).unwrap();
    pages.into_iter().collect()
}

fn take<F: Format, R: ReverseMap>(space: On<'_, F, R>, at: u64, count: u64) -> Vec<u64> {
    taken(space, (at, count), TakeDirty::default())
}

fn all(count: u64) -> Vec<u64> {
    (0..count).collect()
}

mod beside;
mod pins;

with_each_format! {
    a_page_is_told_of_once_for_each_time_that_it_was_written => private;
    pages_in_swap_are_told_of_if_they_were_written => swapped;
    what_becomes_other_memory_is_told_of => replaced;
    a_page_of_an_object_that_was_written_back_or_left_is_told_of => objects;
    a_fork_loses_nothing_and_its_child_is_new => forked;
    random_calls_are_told_of_as_the_model_says => random;
}

fn private<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(600, RW));
    store(space, AT, 1);
    assert_eq!(take(space, AT, 600), all(600), "all is new: {design}");
    assert_eq!(take(space, AT, 600), []);
    for how in [TakeDirty::default(), PROTECTS, SPLITS, PROTECTS] {
        for page in [0, 7, 599] {
            store(space, AT + page, 2);
        }
        load(space, AT + 3);
        assert_eq!(taken(space, (AT, 8), how), [0, 7], "{design}: {how:?}");
        assert_eq!(taken(space, (AT, 600), how), [599]);
        assert_eq!(taken(space, (AT, 600), how), []);
        let may_store = space.translate(Vpn(AT)).unwrap().1.can_write();
        assert_eq!(may_store, !how.write_protects);
    }
    // Rights that go and come back change nothing, and nothing is forgotten.
    store(space, AT + 5, 3);
    for prot in [Prot::READ, RW] {
        space.protect(Vpn(AT), 10, prot).unwrap();
    }
    assert_eq!(take(space, AT, 600), [5]);
    assert_eq!(space.write_forced((AT + 9) << 12, &[1]), Ok(1));
    assert_eq!(space.update_word((AT + 11) << 12, |_| Some(5)), Ok(Ok(0)));
    assert_eq!(take(space, AT, 600), [9, 11]);
    let mut regions = 0;
    space.for_each_region(|_| regions += 1).unwrap();
    assert_eq!(regions, 1, "tracking leaves no cuts");
    vm.audit().unwrap();
    assert_eq!(space.exit(), Ok(true));
    vm.audit().unwrap();
}

fn swapped<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(4, RW));
    for page in 0..4 {
        store(space, AT + page, page as u8);
    }
    assert_eq!(take(space, AT, 4), all(4));
    let out = || space.advise(Vpn(AT), 4, Advice::PageOut).unwrap();
    store(space, AT + 1, 5);
    out();
    assert_eq!(space.stats().unwrap().swapped, 4, "{design}");
    assert_eq!(take(space, AT, 4), [1]);
    assert_eq!(take(space, AT, 4), []);
    assert_eq!(load(space, AT + 1), 5);
    assert_eq!(load(space, AT + 2), 2);
    assert_eq!(take(space, AT, 4), [], "to come back is no change");
    store(space, AT + 2, 6);
    store(space, AT + 3, 7);
    out();
    let child = space.fork().unwrap();
    store(child, AT, 9);
    assert_eq!(take(space, AT, 4), [2, 3]);
    vm.swap_off(77).unwrap();
    assert_eq!(take(space, AT, 4), [], "{design}");
    assert_eq!([load(space, AT + 2), load(space, AT)], [6, 0]);
    vm.audit().unwrap();
}

fn replaced<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(16, RW));
    for page in 0..16 {
        store(space, AT + page, 1);
    }
    assert_eq!(take(space, AT, 16), all(16));
    space.advise(Vpn(AT + 3), 2, Advice::DontNeed).unwrap();
    assert_eq!(take(space, AT, 16), [3, 4], "{design}");
    space.advise(Vpn(AT + 5), 1, Advice::Free).unwrap();
    assert_eq!(take(space, AT, 16), [5]);
    map_at(space, AT + 8, MapRequest::anonymous(2, RW));
    assert_eq!(take(space, AT, 16), [8, 9]);
    // Of a range in parts, the part.
    map_at(space, AT + 8, MapRequest::anonymous(4, RW));
    assert_eq!(take(space, AT + 9, 1), [0]);
    assert_eq!(take(space, AT, 16), [8, 10, 11]);
    let to = AT + 0x700;
    let placed = RemapPlacement::Fixed(Vpn(to));
    space.remap(Vpn(AT), 4, 4, placed).unwrap();
    assert_eq!(take(space, to, 4), all(4), "at another place it is new");
    assert_eq!(take(space, AT, 16), []);
    space.remap(Vpn(to), 4, 6, RemapPlacement::InPlace).unwrap();
    let grown = take(space, to, 6);
    assert!(grown.ends_with(&[4, 5]), "{grown:?}");
    assert_eq!(take(space, to, 6), []);
    // What is not mapped, and what is a device's, is left out.
    space.unmap(Vpn(to), 2).unwrap();
    map_at(space, to, MapRequest::frames(Pfn(0x9000), 2, RW).shared());
    store(space, to + 2, 1);
    assert_eq!(take(space, to - 8, 20), [10]);
    vm.audit().unwrap();
}

fn objects<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let (file, memory) = (vm.stored_pages(1, 8).unwrap(), vm.memory_pages(8).unwrap());
    let [space, other] = [(); 2].map(|()| vm.create_space().unwrap());
    for (at, object) in [(AT, file), (AT + 16, memory)] {
        for space in [space, other] {
            map_at(space, at, MapRequest::object(object, 0, 8, RW).shared());
        }
        assert_eq!(take(space, at, 8), all(8));
        for page in 0..8 {
            load(space, at + page);
        }
        store(other, at + 1, 1);
        assert_eq!(take(space, at, 8), [], "another's: {design}");
        store(space, at + 2, 2);
        assert_eq!(take(space, at, 8), [2]);
    }
    // Written back before anybody asked.
    store(space, AT + 3, 3);
    assert_eq!(vm.file(file).sync(), Ok(3));
    let told = take(space, AT, 8);
    match F::SOFT_DIRTY {
        0 => assert_eq!(told, all(8), "{design}"),
        _ => assert_eq!(told, [3], "{design}"),
    }
    assert_eq!(take(space, AT, 8), []);
    // Tracking takes nothing from the file.
    store(space, AT + 4, 4);
    assert_eq!(take(space, AT, 8), [4]);
    assert_eq!(vm.file(file).sync(), Ok(1));
    assert_eq!(take(space, AT, 8), []);
    // It leaves memory before anybody asked, with what was stored.
    for at in [AT, AT + 16] {
        other.unmap(Vpn(at), 8).unwrap();
        store(space, at + 5, 5);
        space.advise(Vpn(at), 8, Advice::PageOut).unwrap();
        assert!(take(space, at, 8).contains(&5), "{design}");
        assert_eq!(take(space, at, 8), []);
        assert_eq!(load(space, at + 5), 5);
        assert_eq!(take(space, at, 8), []);
    }
    // A private copy is a store's.
    map_at(space, AT + 32, MapRequest::object(file, 0, 8, RW));
    take(space, AT + 32, 8);
    load(space, AT + 33);
    store(space, AT + 34, 1);
    assert_eq!(take(space, AT + 32, 8), [2]);
    vm.audit().unwrap();
    for space in [space, other] {
        assert_eq!(space.exit(), Ok(true));
    }
    for object in [file, memory] {
        vm.page_cache().release_object(object).unwrap();
    }
    vm.audit().unwrap();
}

fn forked<F: Format, R: ReverseMap>(design: &str) {
    for forks in ["", ",forkcopy=all"] {
        let vm = vm_of::<F, R>(&std::format!("{design}{forks}"));
        let space = vm.create_space().unwrap();
        map_at(space, AT, MapRequest::anonymous(6, RW));
        for page in 0..4 {
            store(space, AT + page, 1);
        }
        take(space, AT, 6);
        store(space, AT + 1, 2);
        let child = space.fork().unwrap();
        store(child, AT + 2, 3);
        assert_eq!(take(space, AT, 6), [1], "{design}");
        store(space, AT + 3, 4);
        assert_eq!(take(space, AT, 6), [3]);
        assert_eq!(take(child, AT, 6), all(6));
        assert_eq!(take(child, AT, 6), []);
        store(child, AT, 5);
        assert_eq!(take(child, AT, 6), [0]);
        assert_eq!(take(space, AT, 6), []);
        vm.audit().unwrap();
    }
}

fn out_of_memory<R: ReverseMap>(design: &str) {
    for &site in Site::ALL {
        for after in 0.. {
            let vm = vm_of::<X86_64, R>(&std::format!("{design},superpage=off"));
            let space = vm.create_space().unwrap();
            map_at(space, AT, MapRequest::anonymous(0x400, RW));
            for page in [0, 0x100, 0x3ff] {
                store(space, AT + page, 1);
            }
            let mut told = 0;
            vm.memory().inject(Some(FailAt { site, after }));
            let range = PageRange::new(Vpn(AT + 0x80), 0x100);
            let result = space.take_dirty(range, TakeDirty::default(), |_| told += 1);
            vm.memory().inject(None);
            let is_past = vm.memory().reached(site) <= u64::from(after);
            assert!(result.is_ok() || !is_past, "{design}: {site:?} {after}");
            assert!(result.is_ok() || told == 0, "{design}: {site:?} {after}");
            vm.audit().unwrap();
            if result.is_err() {
                assert_eq!(result, Err(MapError::OutOfMemory));
                assert_eq!(take(space, AT + 0x80, 0x100), all(0x100));
            }
            store(space, AT + 0x100, 2);
            assert_eq!(take(space, AT + 0x80, 0x100), [0x80]);
            if is_past {
                break;
            }
        }
    }
}

with_each_design! {
    a_call_without_memory_tells_of_nothing_and_loses_nothing => out_of_memory;
}

#[test]
fn calls_that_cannot_be_say_why() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    let take = |start, pages| {
        let range = PageRange::new(Vpn(start), pages);
        space.take_dirty(range, TakeDirty::default(), |_| panic!("nothing is there"))
    };
    assert_eq!(take(AT, 0), Err(MapError::BadRange));
    assert_eq!(take(X86_64::USER_END.0, 1), Err(MapError::BadRange));
    assert_eq!(take(AT, 8), Ok(()), "nothing is mapped");
    let nobody = vm.space(SpaceId::from_bits(u64::MAX));
    let range = PageRange::new(Vpn(AT), 1);
    let told = nobody.take_dirty(range, TakeDirty::default(), |_| ());
    assert_eq!(told, Err(MapError::NoSpace));
    let pin = vm.pin();
    assert_eq!(take(AT, 8), Err(MapError::Pinned));
    drop(pin);
    // A cut that the limits forbid.
    map_at(space, AT, MapRequest::anonymous(8, RW));
    let limits = Limits {
        regions: 1,
        ..Limits::default()
    };
    space.set_limits(limits).unwrap();
    let part = PageRange::new(Vpn(AT + 2), 2);
    let told = space.take_dirty(part, TakeDirty::default(), |_| panic!("it failed"));
    assert_eq!(told, Err(MapError::Limit));
    vm.audit().unwrap();
}

#[test]
fn superpages_are_told_of_as_a_whole_or_split() {
    for design in ["superpage=eager", "superpage=reserve", "folio=64k"] {
        let vm: TestVm = vm_with(design, 8192);
        let space = vm.create_space().unwrap();
        let base = 0x10000;
        map_at(space, base, MapRequest::anonymous(1024, RW));
        for page in 0..512 {
            store(space, base + page, 1);
        }
        let is_large = !design.starts_with("folio");
        assert_eq!(large_leaves(&vm, space.id()).len(), usize::from(is_large));
        assert_eq!(take(space, base, 1024), all(1024));
        store(space, base + 5, 2);
        let whole = if is_large { all(512) } else { vec![5] };
        assert_eq!(taken(space, (base, 1024), PROTECTS), whole, "{design}");
        assert_eq!(take(space, base, 1024), []);
        assert_eq!(large_leaves(&vm, space.id()).len(), usize::from(is_large));
        store(space, base + 6, 2);
        assert!(taken(space, (base, 1024), SPLITS).contains(&6));
        assert!(large_leaves(&vm, space.id()).is_empty());
        for page in [7, 300, 511] {
            store(space, base + page, 3);
        }
        assert_eq!(take(space, base, 1024), [7, 300, 511], "{design}");
        // Made one again, they are told of if one of them was written.
        store(space, base + 8, 4);
        let report = space.collapse(Vpn(base), 1, 1).unwrap();
        assert_eq!(report.collapsed, u64::from(is_large));
        assert_eq!(
            take(space, base, 512),
            if is_large { all(512) } else { vec![8] }
        );
        assert_eq!(take(space, base, 512), []);
        vm.audit().unwrap();
    }
}

#[test]
fn superpages_of_shared_memory_are_told_of() {
    let vm: TestVm = vm_with("huge=always", 4096);
    let memory = vm.memory_pages(1024).unwrap();
    let space = vm.create_space().unwrap();
    let base = 0x10000;
    let request = MapRequest::object(memory, 0, 1024, RW).shared();
    map_at(space, base, request);
    store(space, base, 1);
    assert_eq!(large_leaves(&vm, space.id()), [base]);
    assert_eq!(take(space, base, 1024), all(1024));
    assert_eq!(take(space, base, 1024), []);
    store(space, base + 3, 2);
    assert_eq!(taken(space, (base, 512), SPLITS), all(512));
    store(space, base + 9, 2);
    assert!(take(space, base, 512).contains(&9));
    assert_eq!(take(space, base, 1024), []);
    vm.audit().unwrap();
}

#[test]
fn a_divided_space_is_told_of_in_all_its_tracts() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(64, RW));
    for page in 0..64 {
        store(space, AT + page, 1);
    }
    space.divide(Vpn(AT + 32)).unwrap();
    assert_eq!(take(space, AT, 16), all(16));
    assert_eq!(take(space, AT + 40, 8), all(8));
    store(space, AT + 3, 2);
    store(space, AT + 41, 2);
    assert_eq!(take(space, AT + 40, 8), [1]);
    assert_eq!(take(space, AT, 16), [3]);
    let rest = take(space, AT, 64);
    assert_eq!(rest, (16..40).chain(48..64).collect::<Vec<_>>());
    vm.audit().unwrap();
}

#[test]
fn entries_of_32_bit_machines_are_tracked_too() {
    let vm = vm_of::<X86Pae, ByRegions>("");
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(4, RW));
    store(space, AT, 1);
    take(space, AT, 4);
    space.advise(Vpn(AT), 4, Advice::PageOut).unwrap();
    assert_eq!(take(space, AT, 4), []);
    store(space, AT, 2);
    space.advise(Vpn(AT), 4, Advice::PageOut).unwrap();
    assert_eq!(take(space, AT, 4), [0]);
    vm.audit().unwrap();
}

/// Calls on private memory and on shared memory, whose writes a set knows. Of private memory the
/// answer is that set; of shared memory it may have more once pages have left it.
fn random<F: Format, R: ReverseMap>(design: &str) {
    const PAGES: u64 = 24;
    let vm = vm_of::<F, R>(design);
    let memory = vm.memory_pages(PAGES).unwrap();
    let space = vm.create_space().unwrap();
    let places = [AT, AT + 0x1000];
    map_at(space, places[0], MapRequest::anonymous(PAGES, RW));
    let request = MapRequest::object(memory, 0, PAGES, RW).shared();
    map_at(space, places[1], request);
    let mut written = [(); 2].map(|()| (0..PAGES).collect::<BTreeSet<u64>>());
    let mut rng = Rng::new(11);
    for number in 0..1500 {
        let which = rng.below(2);
        let (at, written) = (places[which], &mut written[which]);
        let page = rng.below(PAGES as usize) as u64;
        let count = 1 + rng.below((PAGES - page) as usize) as u64;
        match rng.below(12) {
            0..=3 => {
                store(space, at + page, number as u8);
                written.insert(page);
            }
            4 => _ = load(space, at + page),
            5 => {
                space
                    .advise(Vpn(at + page), count, Advice::DontNeed)
                    .unwrap();
                written.extend(page..page + count);
            }
            6 => space
                .advise(Vpn(at + page), count, Advice::PageOut)
                .unwrap(),
            7 => {
                let child = space.fork().unwrap();
                store(child, at + page, number as u8);
                assert_eq!(child.exit(), Ok(true));
            }
            8 => {
                space.protect(Vpn(at + page), count, Prot::READ).unwrap();
                space.protect(Vpn(at + page), count, RW).unwrap();
            }
            _ => {
                let how = TakeDirty {
                    write_protects: rng.below(2) == 0,
                    splits: rng.below(2) == 0,
                };
                let told = taken(space, (at + page, count), how);
                let told: BTreeSet<u64> = told.iter().map(|step| page + step).collect();
                let wanted: BTreeSet<u64> = written.range(page..page + count).copied().collect();
                let is_right = match which {
                    0 => told == wanted,
                    _ => told.is_superset(&wanted),
                };
                assert!(
                    is_right,
                    "{design}, step {number}: {told:?}, not {wanted:?}"
                );
                written.retain(|other| !told.contains(other));
            }
        }
        if number % 50 == 0 {
            vm.audit().unwrap();
        }
    }
    assert_eq!(space.exit(), Ok(true));
    vm.page_cache().release_object(memory).unwrap();
    vm.audit().unwrap();
}
