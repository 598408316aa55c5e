//! Ranges that are taken out of memory and made in between, by the sentences of fallocate(2), and
//! beside a model.

use super::*;
use crate::object::Seals;
use crate::space::{Allocation, File, FileError, FileRequest, ReadRequest, WriteRequest};
use Allocation::{Collapse, Insert};

with_each_design_and_format! {
    what_follows_moves_when_pages_are_taken_out_or_made_in_between => moved;
    ranges_that_cannot_be_taken_out_are_refused => refused;
    a_shift_that_lacks_memory_has_moved_nothing => lacking;
    pages_are_where_a_model_says_after_random_shifts => random;
    no_store_is_lost_beside_a_shift => raced;
}

type AnyFile<'a, F, R> = File<'a, TestMachine, F, R>;
const PAGE: u64 = 1 << 12;

fn write<F: Format, R: ReverseMap>(file: AnyFile<'_, F, R>, page: u64, byte: u8) {
    let answer = file.write(WriteRequest::bytes(page * PAGE, &[&[byte; 16]]));
    assert_eq!(answer, Ok(16));
}

/// The first byte of each page.
fn bytes<F: Format, R: ReverseMap>(file: AnyFile<'_, F, R>) -> Vec<u8> {
    let pages = file.size().unwrap().div_ceil(PAGE);
    let byte = |page: u64| {
        let mut byte = [0xff];
        let answer = file.read(ReadRequest::bytes(page * PAGE, &mut [&mut byte]));
        assert_eq!(answer, Ok(1), "page {page}");
        byte[0]
    };
    (0..pages).map(byte).collect()
}

/// Memory of 8 pages, each of which but page 4 holds its number and one.
fn eight<F: Format, R: ReverseMap>(vm: &AnyVm<F, R>) -> AnyFile<'_, F, R> {
    let request = FileRequest::shared_memory(8 * PAGE).sealable();
    let file = vm.create_file(request).unwrap();
    for page in (0..8).filter(|&page| page != 4) {
        write(file, page, page as u8 + 1);
    }
    file
}

fn moved<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    vm.swap_on(SwapArea::new(SWAP, 100)).unwrap();
    let (space, file) = (vm.create_space().unwrap(), eight(&vm));
    map_at(space, AT, MapRequest::object(file.id(), 0, 12, RW).shared());
    map_at(space, AT + 20, MapRequest::object(file.id(), 0, 12, RW));
    for page in [1, 4, 6] {
        put(space, AT + 20 + page, 0x80 + page as u8);
    }
    space.advise(Vpn(AT + 5), 1, Advice::PageOut).unwrap();
    file.allocate(Collapse, 2 * PAGE, 2 * PAGE).unwrap();
    assert_eq!(file.size(), Ok(6 * PAGE), "{design}");
    assert_eq!(bytes(file), [1, 2, 0, 6, 7, 8], "{design}");
    let some = |bytes: &[u8]| bytes.iter().map(|&byte| Some(byte)).collect::<Vec<_>>();
    assert_eq!(all(space, 6), some(&[1, 2, 0, 6, 7, 8]), "{design}");
    assert_eq!(get(space, AT + 6), Err(FaultError::PastEnd), "{design}");
    // Copies before the range stay, and others go, as on Linux.
    let private = [1, 4].map(|page| get(space, AT + 20 + page));
    assert_eq!(private, [Ok(0x81), Ok(7)], "{design}");
    vm.audit().unwrap();
    put(space, AT + 5, 9);
    file.allocate(Insert, PAGE, 3 * PAGE).unwrap();
    assert_eq!(file.size(), Ok(9 * PAGE), "{design}");
    assert_eq!(bytes(file), [1, 0, 0, 0, 2, 0, 6, 7, 9], "{design}");
    assert_eq!(get(space, AT + 8), Ok(9), "{design}");
    assert_eq!(get(space, AT + 21), Ok(0), "{design}");
    // The bytes of a pinned page are those that its place has, and the last page may be a part.
    file.set_size(9 * PAGE - 100).unwrap();
    let mut frames = [Pfn(0)];
    let pinned = space
        .pin_pages(Vpn(AT + 6), Access::Read, &mut frames)
        .unwrap();
    file.allocate(Collapse, PAGE, 2 * PAGE).unwrap();
    assert_eq!(file.size(), Ok(7 * PAGE - 100), "{design}");
    assert_eq!(bytes(file), [1, 0, 2, 0, 6, 7, 9], "{design}");
    drop(pinned);
    assert_eq!(get(space, AT + 6), Ok(9), "{design}");
    file.allocate(Insert, 0, PAGE).unwrap();
    assert_eq!(bytes(file), [0, 1, 0, 2, 0, 6, 7, 9], "{design}");
    let mut tail = [9; 200];
    let answer = file.read(ReadRequest::bytes(8 * PAGE - 110, &mut [&mut tail]));
    assert_eq!(answer, Ok(10), "{design}");
    finish(&vm, &[space]);
}

fn refused<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let file = eight(&vm);
    let wrong = Err(FileError::WrongKind);
    for how in [Collapse, Insert] {
        for (offset, len) in [
            (0, 0),
            (1, PAGE),
            (PAGE, 1),
            (8 * PAGE, PAGE),
            (PAGE, u64::MAX),
        ] {
            let answer = file.allocate(how, offset, len);
            assert_eq!(answer, wrong, "{how:?} {offset} {len} {design}");
        }
    }
    let to_the_end = file.allocate(Collapse, 6 * PAGE, 2 * PAGE);
    assert_eq!(to_the_end, wrong, "that is truncation: {design}");
    let long = (1 << 63) - PAGE;
    assert_eq!(file.allocate(Insert, PAGE, long), Err(FileError::TooLarge));
    let stored = vm.create_file(FileRequest::stored(1, 8 * PAGE)).unwrap();
    assert_eq!(stored.allocate(Collapse, 0, PAGE), wrong, "{design}");
    file.seal(Seals::GROW).unwrap();
    let sealed = Err(FileError::Sealed);
    assert_eq!(file.allocate(Insert, 0, PAGE), sealed, "{design}");
    assert_eq!(file.allocate(Collapse, 0, PAGE), Ok(()), "{design}");
    assert_eq!(file.stats().unwrap().cached, 6, "a hole stays one");
    file.seal(Seals::SHRINK).unwrap();
    assert_eq!(file.allocate(Collapse, 0, PAGE), sealed, "{design}");
    assert_eq!(bytes(file), [2, 3, 4, 0, 6, 7, 8], "{design}");
    let open = eight(&vm);
    open.seal(Seals::FUTURE_WRITE).unwrap();
    for how in [Collapse, Insert] {
        assert_eq!(open.allocate(how, 0, PAGE), sealed, "{design}");
    }
    open.release().unwrap();
    let gone = open.allocate(Collapse, 0, PAGE);
    assert_eq!(gone, Err(FileError::NoObject), "{design}");
    vm.audit().unwrap();
}

fn lacking<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = vm.create_space().unwrap();
    let mut lacked = 0;
    for &site in Site::ALL {
        for (after, how) in [(0, Collapse), (1, Collapse), (0, Insert), (2, Insert)] {
            let file = eight(&vm);
            let request = MapRequest::object(file.id(), 0, 12, RW);
            map_at(space, AT, request.shared());
            map_at(space, AT + 20, request);
            put(space, AT + 27, 0x80);
            // Pages come where none is.
            file.punch_hole(2 * PAGE, PAGE).unwrap();
            let before = (bytes(file), file.stats().unwrap());
            vm.memory().inject(Some(FailAt { site, after }));
            let answer = file.allocate(how, PAGE, PAGE);
            vm.memory().inject(None);
            if let Err(error) = answer {
                assert_eq!(error, FileError::OutOfMemory, "{site:?} {design}");
                assert_eq!((bytes(file), file.stats().unwrap()), before, "{design}");
                assert_eq!(get(space, AT + 7), Ok(8), "{design}");
                assert_eq!(get(space, AT + 27), Ok(0x80), "copies stay: {design}");
                lacked += 1;
            } else if how == Collapse {
                assert_eq!(bytes(file), [1, 0, 4, 0, 6, 7, 8], "{site:?} {design}");
            } else {
                assert_eq!(
                    bytes(file),
                    [1, 0, 2, 0, 4, 0, 6, 7, 8],
                    "{site:?} {design}"
                );
            }
            vm.audit().unwrap();
            space.unmap(Vpn(AT), 40).unwrap();
            file.release().unwrap();
        }
    }
    assert!(lacked > 0, "{design}");
    // A mount that is full has no room for what is made, and one page more for what moves.
    let mount = vm.create_mount(3).unwrap();
    let file = vm.create_file(FileRequest::in_mount(mount.id())).unwrap();
    for page in [0, 1, 5] {
        write(file, page, page as u8 + 1);
    }
    assert_eq!(file.allocate(Insert, 0, PAGE), Err(FileError::Full));
    assert_eq!(bytes(file), [1, 2, 0, 0, 0, 6], "{design}");
    assert_eq!(mount.stats().unwrap().used, 3, "{design}");
    file.punch_hole(0, PAGE).unwrap();
    file.allocate(Insert, 0, PAGE).unwrap_err();
    file.set_size(2 * PAGE).unwrap();
    file.allocate(Insert, 0, PAGE).unwrap();
    assert_eq!(bytes(file), [0, 0, 2], "{design}");
    assert_eq!(mount.stats().unwrap().used, 1, "{design}");
    file.release().unwrap();
    finish(&vm, &[space]);
}

fn random<F: Format, R: ReverseMap>(design: &str) {
    const MOST: u64 = 40;
    let vm = any_vm::<F, R>(&std::format!("{design},reclaim=on"), 1024);
    vm.swap_on(SwapArea::new(SWAP, 200)).unwrap();
    let mut rng = Rng::new(588);
    let file = vm
        .create_file(FileRequest::shared_memory(20 * PAGE))
        .unwrap();
    let mut model = std::vec![0u8; 20];
    let space = vm.create_space().unwrap();
    map_at(
        space,
        AT,
        MapRequest::object(file.id(), 0, MOST, RW).shared(),
    );
    let steps = crate::testing::number("VELLUM_STEPS").unwrap_or(200);
    for step in 0..steps {
        let pages = model.len();
        let (at, len) = (rng.below(pages), 1 + rng.below(6));
        let byte = 1 + rng.below(250) as u8;
        let (place, bytes_long) = (at as u64 * PAGE, len as u64 * PAGE);
        match rng.below(10) {
            0..2 => {
                let fits = at + len < pages;
                let answer = file.allocate(Collapse, place, bytes_long);
                assert_eq!(answer.is_ok(), fits, "step {step}: {design}");
                if fits {
                    model.drain(at..at + len);
                }
            }
            2..5 if pages + len <= MOST as usize => {
                file.allocate(Insert, place, bytes_long).unwrap();
                model.splice(at..at, std::iter::repeat_n(0, len));
            }
            5..7 => {
                put(space, AT + at as u64, byte);
                model[at] = byte;
            }
            7 => {
                write(file, at as u64, byte);
                model[at] = byte;
            }
            8 => {
                let len = len.min(pages - at);
                file.punch_hole(place, len as u64 * PAGE).unwrap();
                model[at..at + len].fill(0);
            }
            _ => space.advise(Vpn(AT), MOST, Advice::PageOut).unwrap(),
        }
        if step % 20 == 0 {
            assert_eq!(bytes(file), model, "step {step}: {design}");
            let seen: Vec<_> = all(space, MOST)
                .into_iter()
                .map_while(|page| page)
                .collect();
            assert_eq!(seen, model, "step {step}: {design}");
            vm.audit().unwrap();
        }
    }
    file.release().unwrap();
    finish(&vm, &[space]);
}

/// Two pages that change places under a program that counts in them.
fn raced<F: Format, R: ReverseMap>(design: &str) {
    const STEPS: u32 = 300;
    let vm = any_vm::<F, R>(design, 1024);
    let (space, file) = (vm.create_space().unwrap(), eight(&vm));
    file.punch_hole(0, 8 * PAGE).unwrap();
    map_at(space, AT, MapRequest::object(file.id(), 0, 12, RW).shared());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(1);
            for _ in 0..STEPS {
                let place = (AT + 5) << 12;
                let counted = space.update_word(place, |now| Some(now + 1));
                assert!(counted.unwrap().is_ok(), "{design}");
            }
        });
        run_on(0);
        for _ in 0..STEPS / 4 {
            file.allocate(Insert, 2 * PAGE, PAGE).unwrap();
            file.allocate(Collapse, 2 * PAGE, PAGE).unwrap();
        }
    });
    let word = |page: u64| {
        let mut word = [0; 4];
        space.read((AT + page) << 12, &mut word).unwrap();
        u32::from_ne_bytes(word)
    };
    // Page 4 is what was page 5 for a moment.
    assert_eq!((0..8).map(word).sum::<u32>(), STEPS, "{design}");
    assert_eq!(word(4) + word(5), STEPS, "{design}");
    finish(&vm, &[space]);
}
