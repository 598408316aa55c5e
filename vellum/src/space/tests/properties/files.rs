//! Seals by the sentences of fcntl(2), fallocate(2) and mincore(2).

use super::*;
use crate::object::Seals;
use crate::space::{Allocation, File, FileError, FileRequest, ReadRequest, WriteRequest};

with_each_design_and_format! {
    seals_forbid_what_they_say => sealed_memory;
    memory_that_somebody_may_store_to_is_not_sealed_against_stores => busy;
    pages_are_made_and_zeroed_where_they_are_asked_for => allocated;
    what_is_in_memory_is_told_mapped_or_not => resident;
}

type AnyFile<'a, F, R> = File<'a, TestMachine, F, R>;

/// 4 pages of memory that can be sealed.
fn sealable<F: Format, R: ReverseMap>(vm: &AnyVm<F, R>) -> AnyFile<'_, F, R> {
    let request = FileRequest::shared_memory(4 << 12).sealable();
    vm.create_file(request).unwrap()
}

fn write<F: Format, R: ReverseMap>(
    file: AnyFile<'_, F, R>,
    offset: u64,
    data: &[u8],
) -> Result<usize, FileError> {
    file.write(WriteRequest::bytes(offset, &[data]))
}

fn byte<F: Format, R: ReverseMap>(file: AnyFile<'_, F, R>, offset: u64) -> u8 {
    let mut byte = [0xff];
    assert_eq!(
        file.read(ReadRequest::bytes(offset, &mut [&mut byte])),
        Ok(1)
    );
    byte[0]
}

fn sealed_memory<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let file = sealable(&vm);
    let refused = Err(FileError::Sealed);
    assert_eq!(file.seal(Seals(64)), Err(FileError::WrongKind), "{design}");
    assert_eq!(write(file, 0, &[1; 100]), Ok(100), "{design}");
    file.seal(Seals::SHRINK).unwrap();
    assert_eq!(file.set_size(3 << 12), refused, "{design}");
    assert_eq!(file.set_size(5 << 12), Ok(()), "{design}");
    file.seal(Seals::GROW).unwrap();
    assert_eq!(file.set_size(6 << 12), refused, "{design}");
    assert_eq!(
        file.set_size(5 << 12),
        Ok(()),
        "the same length is no change"
    );
    assert_eq!(
        write(file, (5 << 12) - 10, &[2; 100]),
        Ok(10),
        "up to the end"
    );
    assert_eq!(
        write(file, 5 << 12, &[2; 100]),
        Err(FileError::Sealed),
        "{design}"
    );
    for how in [Allocation::Extend, Allocation::KeepSize] {
        assert_eq!(file.allocate(how, 5 << 12, 1), refused, "{how:?}");
        assert_eq!(file.allocate(how, 4 << 12, 1), Ok(()), "{how:?}");
    }
    file.seal(Seals::WRITE).unwrap();
    assert_eq!(write(file, 0, &[3]), Err(FileError::Sealed), "{design}");
    assert_eq!(write(file, 0, &[]), Ok(0), "{design}");
    assert_eq!(file.punch_hole(0, 1 << 12), refused, "{design}");
    assert_eq!(file.allocate(Allocation::Zero, 0, 10), refused, "{design}");
    assert_eq!(byte(file, 3), 1, "{design}");
    let space = vm.create_space().unwrap();
    let request = MapRequest::object(file.id(), 0, 4, RW);
    assert_eq!(
        space.map(&request.shared()),
        Err(MapError::Sealed),
        "{design}"
    );
    // Private mappings may be stored to, and shared ones for loads stay so.
    map_at(space, AT, request);
    put(space, AT, 9);
    assert_eq!(byte(file, 0), 1, "{design}");
    map_at(
        space,
        AT + 10,
        MapRequest::object(file.id(), 0, 4, Prot::READ).shared(),
    );
    assert_eq!(get(space, AT + 10), Ok(1), "{design}");
    assert_eq!(
        space.protect(Vpn(AT + 10), 4, RW),
        Err(MapError::Rights),
        "{design}"
    );
    assert_eq!(
        advise(space, (10, 1), Advice::Remove),
        Err(MapError::Rights)
    );
    file.seal(Seals::SEAL | Seals::EXEC).unwrap();
    assert_eq!(file.seal(Seals::NONE), refused, "{design}");
    assert_eq!(
        file.stats().unwrap().seals.0,
        1 + 2 + 4 + 8 + 32,
        "{design}"
    );
    // What can be sealed.
    let plain = vm.create_file(FileRequest::shared_memory(4 << 12)).unwrap();
    assert_eq!(plain.seal(Seals::GROW), refused, "{design}");
    let stored = vm.create_file(FileRequest::stored(1, 4 << 12)).unwrap();
    assert_eq!(
        stored.seal(Seals::GROW),
        Err(FileError::WrongKind),
        "{design}"
    );
    let request = FileRequest::stored(1, 4 << 12).sealable();
    assert_eq!(vm.create_file(request).err(), Some(FileError::WrongKind));
    finish(&vm, &[space]);
}

fn busy<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let (space, file) = (vm.create_space().unwrap(), sealable(&vm));
    let busy = Err(FileError::Busy);
    map_at(space, AT, MapRequest::object(file.id(), 0, 4, RW).shared());
    put(space, AT, 1);
    assert_eq!(file.seal(Seals::WRITE | Seals::GROW), busy, "{design}");
    assert_eq!(file.stats().unwrap().seals, Seals::NONE, "nothing changed");
    assert_eq!(write(file, 1, &[2]), Ok(1), "{design}");
    // One that could get the right counts, too.
    space.protect(Vpn(AT), 4, Prot::READ).unwrap();
    assert_eq!(file.seal(Seals::WRITE), busy, "{design}");
    let child = space.fork().unwrap();
    space.unmap(Vpn(AT), 4).unwrap();
    assert_eq!(file.seal(Seals::WRITE), busy, "{design}");
    child.unmap(Vpn(AT), 4).unwrap();
    // Those who have it may go on.
    map_at(space, AT, MapRequest::object(file.id(), 0, 4, RW).shared());
    file.seal(Seals::FUTURE_WRITE).unwrap();
    put(space, AT, 5);
    assert_eq!(write(file, 0, &[6]), Err(FileError::Sealed), "{design}");
    assert_eq!(byte(file, 0), 5, "{design}");
    let again = MapRequest::object(file.id(), 0, 4, RW).shared();
    assert_eq!(child.map(&again), Err(MapError::Sealed), "{design}");
    let read_only = MapRequest::object(file.id(), 0, 4, Prot::READ).shared();
    map_at(child, AT, read_only);
    let mut frames = [Pfn(0)];
    let pinned = child.pin_pages(Vpn(AT), Access::Read, &mut frames).unwrap();
    space.unmap(Vpn(AT), 4).unwrap();
    assert_eq!(file.seal(Seals::WRITE), busy, "a page is pinned");
    drop(pinned);
    assert_eq!(file.seal(Seals::WRITE), Ok(()), "{design}");
    assert_eq!(get(child, AT), Ok(5), "{design}");
    finish(&vm, &[space, child]);
}

fn allocated<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let mount = vm.create_mount(6).unwrap();
    let file = vm.create_file(FileRequest::in_mount(mount.id())).unwrap();
    let (page, used) = (1 << 12, || mount.stats().unwrap().used);
    file.allocate(Allocation::Extend, 0, 2 * page + 1).unwrap();
    assert_eq!((file.size(), used()), (Ok(2 * page + 1), 3), "{design}");
    file.allocate(Allocation::KeepSize, 3 * page, page).unwrap();
    assert_eq!((file.size(), used()), (Ok(2 * page + 1), 4), "{design}");
    vm.audit().unwrap();
    // They are there when the file gets longer, and go when it gets shorter.
    file.set_size(4 * page).unwrap();
    assert_eq!((byte(file, 3 * page), used()), (0, 4), "{design}");
    file.set_size(3 * page).unwrap();
    assert_eq!(used(), 3, "{design}");
    // A second time makes nothing, and what is there stays.
    write(file, 5, &[7; 5000]).unwrap();
    file.allocate(Allocation::Extend, 0, 3 * page).unwrap();
    assert_eq!((byte(file, 6), used()), (7, 3), "{design}");
    file.punch_hole(page, page).unwrap();
    file.allocate(Allocation::Zero, 10, 2 * page).unwrap();
    let found = [9, 10, page, 2 * page + 9].map(|offset| byte(file, offset));
    assert_eq!((found, used()), ([7, 0, 0, 0], 3), "{design}");
    // Too much: the length stays, and so does what was there before the end.
    let full = Err(FileError::Full);
    assert_eq!(
        file.allocate(Allocation::Extend, 2 * page, 9 * page),
        full,
        "{design}"
    );
    assert_eq!((file.size(), used()), (Ok(3 * page), 3), "{design}");
    assert_eq!(byte(file, 6), 7, "{design}");
    let wrong = Err(FileError::WrongKind);
    assert_eq!(file.allocate(Allocation::Extend, 0, 0), wrong, "{design}");
    let beyond = file.allocate(Allocation::Extend, u64::MAX, 2);
    assert_eq!(beyond, Err(FileError::TooLarge), "{design}");
    let stored = vm.create_file(FileRequest::stored(1, 2 * page)).unwrap();
    write(stored, 0, &[3; 8000]).unwrap();
    assert_eq!(
        stored.allocate(Allocation::KeepSize, 0, page),
        wrong,
        "{design}"
    );
    stored.allocate(Allocation::Zero, 4000, 3 * page).unwrap();
    assert_eq!(stored.size(), Ok(4000 + 3 * page), "{design}");
    assert_eq!(
        [3999, 4000, 7999].map(|offset| byte(stored, offset)),
        [3, 0, 0]
    );
    for site in [Site::CachePage, Site::RadixNode] {
        for after in 0..3 {
            vm.memory().inject(Some(FailAt { site, after }));
            let answer = file.allocate(Allocation::KeepSize, 3 * page, 3 * page);
            vm.memory().inject(None);
            assert!(
                matches!(answer, Ok(()) | Err(FileError::OutOfMemory)),
                "{answer:?}"
            );
            assert_eq!(file.size(), Ok(3 * page), "{design}");
            vm.audit().unwrap();
            file.set_size(3 * page - 1).unwrap();
            file.set_size(3 * page).unwrap();
            assert_eq!(used(), 3, "{site:?} {design}");
        }
    }
    file.release().unwrap();
    assert_eq!(used(), 0, "{design}");
}

fn resident<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(&std::format!("{design},faultaround=1"), 1024);
    vm.swap_on(SwapArea::new(SWAP, 100)).unwrap();
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let file = vm.stored_pages(1, 8).unwrap();
    map_at(space, AT + 8, MapRequest::object(file, 2, 4, RW));
    map_at(space, AT + 12, MapRequest::anonymous(2, RW));
    let told = |first: u64, pages: usize| {
        let mut found = std::vec![true; pages];
        let answer = space.residency(Vpn(AT + first), &mut found);
        answer.map(|()| found)
    };
    advise(space, (2, 2), Advice::PageOut).unwrap();
    advise(space, (5, 1), Advice::InstallGuards).unwrap();
    space.protect(Vpn(AT), 1, Prot::NONE).unwrap();
    let private = [true, true, false, false, true, false, true, true];
    assert_eq!(told(0, 8).unwrap(), private, "{design}");
    // A page of the cache that nobody has mapped is there, too.
    assert_eq!(told(8, 4).unwrap(), [false; 4], "{design}");
    vm.file(file).prefetch(3 << 12, 1).unwrap();
    assert_eq!(told(8, 4).unwrap(), [false, true, false, false], "{design}");
    put(space, AT + 10, 1);
    assert_eq!(
        told(8, 6).unwrap(),
        [false, true, true, false, false, false]
    );
    assert!(get(space, AT + 12).is_ok());
    assert_eq!(
        told(10, 4).unwrap(),
        [true, false, true, false],
        "the zero page is one"
    );
    // A private copy that left stands for the page that is cached.
    advise(space, (10, 1), Advice::PageOut).unwrap();
    assert_eq!(told(10, 1).unwrap(), [false], "{design}");
    advise(space, (9, 1), Advice::InstallGuards).unwrap();
    assert_eq!(told(9, 1).unwrap(), [false], "a guard hides what is cached");
    assert_eq!(told(12, 3), Err(MapError::NotMapped), "{design}");
    assert_eq!(told(0, 0), Err(MapError::BadRange), "{design}");
    finish(&vm, &[space]);
}
