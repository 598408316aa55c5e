//! Memory of a space that the kernel reads and writes.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::frame::{FailAt, Site};
use crate::rmap::ReverseMap;
use crate::space::{Space, UpdateError};

/// First page of a region.
const AT: u64 = 0x1000;

fn address(page: u64, offset: u64) -> u64 {
    page << 12 | offset
}

/// Bytes of which none is like its neighbours.
fn bytes(count: usize, seed: u8) -> Vec<u8> {
    (0..count)
        .map(|at| (at as u8).wrapping_mul(7) ^ seed)
        .collect()
}

/// `count` bytes of a space's memory, all of which can be read.
fn read<R: ReverseMap>(
    space: Space<'_, TestMachine, X86_64, R>,
    address: u64,
    count: usize,
) -> Vec<u8> {
    let mut read = vec![0; count];
    assert_eq!(space.read(address, &mut read), Ok(count));
    read
}

fn frame_at<R: ReverseMap>(space: Space<'_, TestMachine, X86_64, R>, page: u64) -> Pfn {
    space.translate(Vpn(page)).unwrap().0
}

with_each_design! {
    what_is_written_is_what_is_read => write_and_read;
    a_write_by_the_kernel_reaches_one_of_parent_and_child => write_beside_fork;
    what_cannot_be_reached_is_an_error_or_the_end => holes_and_rights;
    a_debugger_writes_private_memory_of_any_rights => forced;
    memory_that_runs_out_leaves_a_write_short => out_of_memory;
}

fn write_and_read<R: ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 1024);
    let space = vm.create_space().unwrap();
    map(&vm, space.id(), AT, MapRequest::anonymous(4, RW));
    let data = bytes(9000, 1);
    assert_eq!(space.write(address(AT, 4001), &data), Ok(9000));
    assert_eq!(read(space, address(AT, 4001), 9000), data);
    assert_eq!(read(space, address(AT, 4000), 1), [0], "{design}");
    assert_eq!(space.write(address(AT, 4005), &[]), Ok(0));
    // Nobody has stored to the first page's neighbour: reading it costs no frame.
    let other = vm.create_space().unwrap();
    map(&vm, other.id(), AT, MapRequest::anonymous(1, RW));
    assert_eq!(read(other, address(AT, 100), 50), [0; 50]);
    assert_eq!(other.stats().unwrap().rss.anonymous, 0);
    vm.audit().unwrap();
    for space in [space, other] {
        assert_eq!(space.exit(), Ok(true));
    }
    assert_eq!(vm.audit().unwrap().frames.of(Kind::Anonymous), 0);
}

fn write_beside_fork<R: ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 1024);
    let parent = vm.create_space().unwrap();
    map(&vm, parent.id(), AT, MapRequest::anonymous(2, RW));
    parent.write(address(AT, 0), &[1; 16]).unwrap();
    let child = parent.fork().unwrap();
    // A look copies nothing.
    let copies = vm.stats().events.cow_copies;
    assert_eq!(read(child, address(AT, 0), 16), [1; 16]);
    assert_eq!(frame_at(child, AT), frame_at(parent, AT));
    assert_eq!(vm.stats().events.cow_copies, copies);
    parent.write(address(AT, 8), &[2; 8]).unwrap();
    child.write(address(AT, 0), &[3; 8]).unwrap();
    assert_eq!(read(parent, address(AT, 0), 16), [[1; 8], [2; 8]].concat());
    assert_eq!(read(child, address(AT, 0), 16), [[3; 8], [1; 8]].concat());
    vm.audit().unwrap();
}

fn holes_and_rights<R: ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 1024);
    let space = vm.create_space().unwrap();
    map(&vm, space.id(), AT, MapRequest::anonymous(2, RW));
    map(
        &vm,
        space.id(),
        AT + 2,
        MapRequest::anonymous(1, Prot::READ),
    );
    map(
        &vm,
        space.id(),
        AT + 3,
        MapRequest::anonymous(1, Prot::NONE),
    );
    let mut room = [0; 3 * 4096];
    assert_eq!(space.write(address(AT + 1, 4000), &[5; 200]), Ok(96));
    assert_eq!(
        space.write(address(AT + 2, 0), &[5]),
        Err(FaultError::Protection)
    );
    assert_eq!(space.read(address(AT + 1, 4096 - 8), &mut room), Ok(4104));
    assert_eq!(room[..9], [5, 5, 5, 5, 5, 5, 5, 5, 0]);
    assert_eq!(
        space.read(address(AT + 3, 0), &mut room),
        Err(FaultError::Protection)
    );
    for nowhere in [address(AT + 4, 0), X86_64::USER_END.0 << 12, u64::MAX - 3] {
        let read = space.read(nowhere, &mut room);
        assert_eq!(read, Err(FaultError::NoRegion), "{nowhere:#x}");
    }
    space.exit().unwrap();
    assert_eq!(
        space.read(address(AT, 0), &mut room),
        Err(FaultError::NoSpace)
    );
    vm.audit().unwrap();
}

fn forced<R: ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 1024);
    let file = vm.stored_pages(1, 3).unwrap();
    let space = vm.create_space().unwrap();
    let text = Prot::READ.union(Prot::EXECUTE);
    map(&vm, space.id(), AT, MapRequest::object(file, 0, 3, text));
    map(
        &vm,
        space.id(),
        AT + 8,
        MapRequest::object(file, 0, 3, Prot::READ).shared(),
    );
    map(&vm, space.id(), AT + 16, MapRequest::anonymous(2, RW));
    space.write(address(AT + 16, 0), &[1; 8]).unwrap();
    space.protect(Vpn(AT + 16), 2, Prot::NONE).unwrap();
    let child = space.fork().unwrap();
    let before = read(space, address(AT, 0), 32);

    // A breakpoint: the file does not see it, nor who shares the page, and the rights stay.
    assert_eq!(
        space.write(address(AT, 4), &[0xcc]),
        Err(FaultError::Protection)
    );
    assert_eq!(space.write_forced(address(AT, 4), &[0xcc]), Ok(1));
    assert_eq!(read(space, address(AT, 3), 3), [before[3], 0xcc, before[5]]);
    assert_eq!(read(space, address(AT + 8, 0), 32), before);
    assert_eq!(read(child, address(AT, 0), 32), before);
    assert_eq!(space.translate(Vpn(AT)).unwrap().1, text);
    assert_eq!(
        space.fault(address(AT, 4), Access::Write),
        Err(FaultError::Protection)
    );
    let copied = frame_at(space, AT);
    assert_eq!(space.write_forced(address(AT, 4), &[before[4]]), Ok(1));
    assert_eq!(frame_at(space, AT), copied, "it is the space's own by now");

    // Memory without rights, of which the child has the same page.
    let mut word = [0; 8];
    assert_eq!(
        space.read(address(AT + 16, 0), &mut word),
        Err(FaultError::Protection)
    );
    assert_eq!(space.read_forced(address(AT + 16, 0), &mut word), Ok(8));
    assert_eq!(word, [1; 8], "{design}");
    assert_eq!(space.write_forced(address(AT + 16, 4), &[2; 4]), Ok(4));
    assert_eq!(space.write_forced(address(AT + 17, 0), &[4; 4]), Ok(4));
    child.protect(Vpn(AT + 16), 2, RW).unwrap();
    assert_eq!(read(child, address(AT + 16, 0), 8), [1; 8]);
    assert_eq!(read(child, address(AT + 17, 0), 4), [0; 4]);
    space.protect(Vpn(AT + 16), 2, RW).unwrap();
    assert_eq!(
        read(space, address(AT + 16, 0), 8),
        [1, 1, 1, 1, 2, 2, 2, 2]
    );
    assert_eq!(read(space, address(AT + 17, 0), 4), [4; 4]);

    let shared = space.write_forced(address(AT + 8, 0), &[1]);
    assert_eq!(shared, Err(FaultError::Protection));
    vm.audit().unwrap();
    for space in [space, child] {
        assert_eq!(space.exit(), Ok(true));
    }
    vm.audit().unwrap();
}

fn out_of_memory<R: ReverseMap>(design: &str) {
    for site in [Site::AnonymousPage, Site::TablePage, Site::CopyOnWrite] {
        let vm = vm_with::<R>(design, 1024);
        let space = vm.create_space().unwrap();
        map(&vm, space.id(), AT, MapRequest::anonymous(3, RW));
        space.write(address(AT, 0), &[1; 4096]).unwrap();
        let child = space.fork().unwrap();
        vm.memory().inject(Some(FailAt { site, after: 0 }));
        // The first page is copied, the second new.
        let written = space.write(address(AT, 4000), &[2; 200]);
        vm.memory().inject(None);
        match (site, written) {
            (Site::CopyOnWrite, Err(FaultError::OutOfMemory)) => {
                assert_eq!(read(space, address(AT, 4000), 96), [1; 96]);
            }
            (Site::AnonymousPage, Ok(96)) => {
                assert_eq!(read(space, address(AT, 4000), 97)[95..], [2, 0]);
            }
            (Site::TablePage, Ok(200)) => {}
            (site, written) => panic!("{design}: {site:?}: {written:?}"),
        }
        assert_eq!(read(child, address(AT, 4000), 96), [1; 96]);
        vm.audit().unwrap();
    }
}

#[test]
fn what_is_written_to_a_file_is_dirty_and_goes_to_its_store() {
    let vm = vm();
    let file = vm.stored_pages(1, 4).unwrap();
    let space = vm.create_space().unwrap();
    map(
        &vm,
        space.id(),
        AT,
        MapRequest::object(file, 0, 4, RW).shared(),
    );
    map(&vm, space.id(), AT + 8, MapRequest::object(file, 0, 4, RW));
    let before = read(space, address(AT, 0), 8);
    assert_eq!(vm.file(file).sync(), Ok(0), "reading makes nothing dirty");
    space.write(address(AT + 8, 0), &[9; 8]).unwrap();
    assert_eq!(
        vm.file(file).sync(),
        Ok(0),
        "a private page is none of the file's"
    );
    assert_eq!(read(space, address(AT, 0), 8), before);
    for _ in 0..2 {
        // Once through a new entry, and once through one that is writable and clean.
        space.write(address(AT + 1, 0), &[7; 8]).unwrap();
        assert_eq!(vm.file(file).sync(), Ok(1));
    }
    assert_eq!(read(space, address(AT + 9, 0), 8), [7; 8]);
    assert_eq!(space.read(address(AT + 3, 4000), &mut [0; 200]), Ok(96));
    vm.audit().unwrap();
}

#[test]
fn a_page_that_was_freed_and_written_by_the_kernel_stays() {
    let vm: TestVm = vm_with("reclaim=on", 1024);
    let space = vm.create_space().unwrap();
    map(&vm, space.id(), AT, MapRequest::anonymous(2, RW));
    space.write(address(AT, 0), &[1; 8192]).unwrap();
    space.advise(Vpn(AT), 2, Advice::Free).unwrap();
    space.write(address(AT, 8), &[2; 8]).unwrap();
    vm.reclaim_pages(8);
    assert_eq!(read(space, address(AT, 0), 16), [[1; 8], [2; 8]].concat());
    assert_eq!(
        read(space, address(AT + 1, 0), 8),
        [0; 8],
        "the other was dropped"
    );
    vm.audit().unwrap();
}

#[test]
fn strings_end_at_their_zero_byte_wherever_it_lies() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    map(&vm, space.id(), AT, MapRequest::anonymous(2, RW));
    let text = b"/a/path/that/crosses/a/page";
    let at = address(AT + 1, 0) - 9;
    space.write(at, text).unwrap();
    let mut room = [0xff; 64];
    assert_eq!(space.read_string(at, &mut room), Ok(text.len()));
    assert_eq!(&room[..text.len()], text);
    // No room for the end, or just for it.
    assert_eq!(space.read_string(at, &mut room[..8]), Ok(8));
    assert_eq!(
        space.read_string(at, &mut room[..text.len()]),
        Ok(text.len())
    );
    assert_eq!(space.read_string(at, &mut []), Ok(0));
    // What lies behind the end does not matter; without one it does.
    space.write(address(AT + 1, 4092), b"end\0").unwrap();
    assert_eq!(space.read_string(address(AT + 1, 4092), &mut room), Ok(3));
    space.write(address(AT + 1, 4095), b"!").unwrap();
    let unended = space.read_string(address(AT + 1, 4092), &mut room);
    assert_eq!(unended, Err(FaultError::NoRegion));
}

#[test]
fn a_word_is_updated_alone_and_only_if_asked() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    map(&vm, space.id(), AT, MapRequest::anonymous(1, RW));
    map(
        &vm,
        space.id(),
        AT + 1,
        MapRequest::anonymous(1, Prot::READ),
    );
    space.write(address(AT, 0), &bytes(16, 3)).unwrap();
    let before = read(space, address(AT, 0), 16);
    let old = u32::from_ne_bytes([before[4], before[5], before[6], before[7]]);
    assert_eq!(
        space.update_word(address(AT, 4), |now| Some(now + 1)),
        Ok(Ok(old))
    );
    let mut after = before.clone();
    after[4..8].copy_from_slice(&(old + 1).to_ne_bytes());
    assert_eq!(read(space, address(AT, 0), 16), after);
    let exchange = |now| (now == old).then_some(0);
    assert_eq!(
        space.update_word(address(AT, 4), exchange),
        Ok(Err(old + 1))
    );
    assert_eq!(read(space, address(AT, 0), 16), after);
    for (place, error) in [
        (address(AT, 2), UpdateError::Unaligned),
        (
            address(AT + 1, 0),
            UpdateError::Fault(FaultError::Protection),
        ),
        (address(AT + 2, 0), UpdateError::Fault(FaultError::NoRegion)),
    ] {
        assert_eq!(space.update_word(place, Some), Err(error), "{place:#x}");
    }
}

#[test]
fn words_that_threads_update_lose_no_step() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    map(&vm, space.id(), AT, MapRequest::anonymous(1, RW));
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                run_on(cpu);
                for step in 0..500 {
                    let place = address(AT, 4 * (step & 1));
                    space
                        .update_word(place, |now| Some(now + 1))
                        .unwrap()
                        .unwrap();
                }
            });
        }
    });
    let words = read(space, address(AT, 0), 8);
    assert_eq!(words, [500u32.to_ne_bytes(), 500u32.to_ne_bytes()].concat());
}

#[test]
fn a_superpage_stays_one_unless_a_debugger_writes_what_it_may_not() {
    let vm: TestVm = vm_with("superpage=eager", 4096);
    let space = vm.create_space().unwrap();
    let base = 0x10000;
    map(&vm, space.id(), base, MapRequest::anonymous(512, RW));
    space.write(address(base + 300, 4090), &[1; 12]).unwrap();
    assert_eq!(large_leaves(&vm, space.id()), [base]);
    assert_eq!(read(space, address(base + 300, 4089), 14)[..2], [0, 1]);
    space.protect(Vpn(base), 512, Prot::READ).unwrap();
    assert_eq!(
        space.write(address(base + 5, 0), &[2]),
        Err(FaultError::Protection)
    );
    assert_eq!(space.write_forced(address(base + 5, 0), &[2]), Ok(1));
    assert!(large_leaves(&vm, space.id()).is_empty());
    assert_eq!(read(space, address(base + 5, 0), 2), [2, 0]);
    assert_eq!(read(space, address(base + 301, 0), 6), [1; 6]);
    vm.audit().unwrap();
}

#[test]
fn pages_in_swap_are_read_and_written_too() {
    let vm: TestVm = vm_with("reclaim=on", 1024);
    vm.swap_on(crate::swap::SwapArea::new(77, 64)).unwrap();
    let space = vm.create_space().unwrap();
    map(&vm, space.id(), AT, MapRequest::anonymous(4, RW));
    let data = bytes(4 * 4096, 5);
    space.write(address(AT, 0), &data).unwrap();
    space.advise(Vpn(AT), 4, Advice::PageOut).unwrap();
    assert_eq!(space.stats().unwrap().rss.anonymous, 0);
    assert_eq!(read(space, address(AT, 0), data.len()), data);
    space.advise(Vpn(AT), 4, Advice::PageOut).unwrap();
    space.write(address(AT + 2, 8), &[0; 8]).unwrap();
    assert_eq!(read(space, address(AT + 2, 0), 8), data[8192..8200]);
    assert_eq!(read(space, address(AT + 2, 8), 8), [0; 8]);
    vm.audit().unwrap();
}
