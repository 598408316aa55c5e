//! Sources and readers that end early, places at the edge, holes, names of nothing.

use super::*;
use crate::space::FileRequest;

/// A source that ends early, as a program's memory does that is not there.
#[test]
fn an_interrupted_write_leaves_old_bytes_or_new_ones() {
    in_each_way(|| {
        let mut rng = Rng::new(176);
        for is_file in [false, true] {
            let mut world = world::<X86_64>(is_file, u64::MAX);
            for _ in 0..150 {
                let place = world.place(&mut rng);
                let length = world.length(&mut rng, place);
                let data = random(&mut rng, length);
                let ends = rng.below(data.len() + 1);
                let answer =
                    world
                        .vm
                        .page_cache()
                        .write_with(world.id, place, data.len(), |at, part| {
                            let end = ends.min(at + part.room());
                            part.put(&data[at.min(end)..end]);
                        });
                assert_eq!(answer, Ok(ends.min(data.len())));
                world.wrote(place, &data[..ends]);
                if rng.below(6) == 0 {
                    world.punch(&mut rng);
                    world.resize(&mut rng);
                }
                world.check();
            }
            world.finish();
        }
    });
}

#[test]
fn a_reader_that_takes_less_is_not_given_more() {
    in_each_way(|| {
        let mut world = world::<X86_64>(false, u64::MAX);
        let data = random(&mut Rng::new(177), 3 * 4096);
        world
            .vm
            .page_cache()
            .write_at(world.id, 0, &[&data])
            .unwrap();
        world.wrote(0, &data);
        let mut seen = Vec::new();
        let read = world
            .vm
            .page_cache()
            .read_with(world.id, 100, 9000, |at, part| {
                assert_eq!(at, seen.len());
                let mut bytes = vec![0; part.len().min(5000 - at)];
                let count = part.read(0, &mut bytes);
                seen.extend_from_slice(&bytes);
                count
            });
        assert_eq!(read, Ok(5000));
        assert!(seen == data[100..5100]);
    });
}

#[test]
fn places_at_the_end_of_what_a_file_can_hold_are_refused_or_work() {
    in_each_way(|| {
        for is_file in [false, true] {
            let world = world::<X86_64>(is_file, u64::MAX);
            let (vm, id) = (&world.vm, world.id);
            for place in [MAX_SIZE, MAX_SIZE + 1, u64::MAX - 1, u64::MAX] {
                assert_eq!(
                    vm.page_cache().write_at(id, place, &[b"x"]),
                    Err(FileError::TooLarge)
                );
                assert_eq!(vm.page_cache().write_at(id, place, &[]), Ok(0));
                assert_eq!(
                    vm.page_cache().read_at(id, place, &mut [&mut [0; 3]]),
                    Ok(0)
                );
                let open = vm.page_cache().open(id).unwrap();
                assert_eq!(
                    vm.page_cache().read_open(&open, place, &mut [&mut [0; 3]]),
                    Ok(0)
                );
                vm.close(open).unwrap();
                let read = vm
                    .page_cache()
                    .read_with(id, place, usize::MAX, |_, _| panic!("no page is there"));
                assert_eq!(read, Ok(0));
                for len in [1, usize::MAX] {
                    let written = vm
                        .page_cache()
                        .write_with(id, place, len, |_, _| panic!("no page can be there"));
                    assert_eq!(written, Err(FileError::TooLarge));
                }
                assert_eq!(vm.page_cache().seek_data(id, place), Err(FileError::NoData));
                assert_eq!(vm.page_cache().seek_hole(id, place), Err(FileError::NoData));
                vm.page_cache().punch_hole(id, place, u64::MAX).unwrap();
            }
            for size in [MAX_SIZE + 1, u64::MAX] {
                assert_eq!(vm.page_cache().set_size(id, size), Err(FileError::TooLarge));
            }
            assert_eq!(vm.page_cache().object_stats(id).unwrap().cached, 0);
            // The last bytes that there can be.
            assert_eq!(
                vm.page_cache().write_at(id, MAX_SIZE - 3, &[b"abcdef"]),
                Ok(3)
            );
            assert_eq!(
                vm.page_cache().append(id, &[b"g"]),
                Err(FileError::TooLarge)
            );
            assert_eq!(vm.page_cache().size(id), Some(MAX_SIZE));
            let mut end = [9; 8];
            assert_eq!(
                vm.page_cache().read_at(id, MAX_SIZE - 4, &mut [&mut end]),
                Ok(4)
            );
            assert_eq!(&end, b"\0abc\x09\x09\x09\x09");
            vm.page_cache()
                .punch_hole(id, MAX_SIZE - 2, u64::MAX)
                .unwrap();
            vm.page_cache()
                .read_at(id, MAX_SIZE - 4, &mut [&mut end])
                .unwrap();
            assert_eq!(&end[..4], b"\0a\0\0");
            vm.page_cache().punch_hole(id, 1, u64::MAX).unwrap();
            vm.page_cache().set_size(id, 0).unwrap();
            vm.page_cache().set_size(id, MAX_SIZE).unwrap();
            vm.audit().unwrap();
            world.finish();
        }
    });
}

#[test]
fn an_object_is_as_long_as_any_can_be_and_no_longer() {
    let vm = world::<X86_64>(false, u64::MAX).vm;
    for make in [
        |size| FileRequest::stored(7, size),
        FileRequest::shared_memory,
    ] {
        let id = vm.page_cache().begin_file(&make(MAX_SIZE)).unwrap();
        assert_eq!(vm.page_cache().size(id), Some(MAX_SIZE));
        assert_eq!(vm.page_cache().write_back(id, u64::MAX), Ok(0));
        vm.page_cache().release_object(id).unwrap();
        for size in [MAX_SIZE + 1, u64::MAX] {
            assert_eq!(
                vm.page_cache().begin_file(&make(size)),
                Err(FileError::TooLarge)
            );
        }
    }
}

/// Its maker's second release takes no user from who maps it or has it open.
#[test]
fn an_object_that_is_released_twice_stays_with_its_other_users() {
    let vm = world::<X86_64>(false, u64::MAX).vm;
    let space = vm.begin_space().unwrap();
    let id = vm.memory_pages(1).unwrap();
    let request = MapRequest::object(id, 0, 1, Prot::READ_WRITE).at(Placement::Fixed(Vpn(80)));
    vm.map(space, &request).unwrap();
    vm.page_cache().write_at(id, 0, &[b"kept"]).unwrap();
    vm.page_cache().release_object(id).unwrap();
    assert_eq!(vm.page_cache().release_object(id), Err(FileError::NoObject));
    let open = vm.page_cache().open(id).unwrap();
    assert_eq!(vm.page_cache().release_object(id), Err(FileError::NoObject));
    vm.unmap(space, Vpn(80), 1).unwrap();
    assert_eq!(vm.page_cache().release_object(id), Err(FileError::NoObject));
    let mut bytes = [0; 4];
    assert_eq!(
        vm.page_cache().read_open(&open, 0, &mut [&mut bytes]),
        Ok(4)
    );
    assert_eq!(&bytes, b"kept");
    vm.close(open).unwrap();
    assert_eq!(vm.page_cache().size(id), None, "its last user is gone");
    vm.audit().unwrap();
}

/// The object with the same name here keeps its users.
#[test]
fn a_file_that_another_manager_opened_is_given_back() {
    let [ours, theirs] = [(); 2].map(|()| world::<X86_64>(false, u64::MAX).vm);
    let [id, other] = [&ours, &theirs].map(|vm| {
        let id = vm.memory_pages(1).unwrap();
        vm.page_cache().write_at(id, 0, &[b"kept"]).unwrap();
        id
    });
    assert_eq!(id, other, "names of two managers may be alike");
    let file = theirs.page_cache().open(other).unwrap();
    let mut bytes = [0; 4];
    let read = ours.page_cache().read_open(&file, 0, &mut [&mut bytes]);
    assert_eq!(read, Err(FileError::NoObject));
    assert_eq!(file.on(&ours).sync(), Err(FileError::NoObject));
    let file = ours.close(file).unwrap_err();
    assert_eq!(ours.page_cache().size(id), Some(4096), "it is as it was");
    theirs.close(file).unwrap();
    for vm in [ours, theirs] {
        assert_eq!(vm.page_cache().release_object(id), Ok(()));
        assert_eq!(vm.page_cache().release_object(id), Err(FileError::NoObject));
        vm.audit().unwrap();
    }
}

/// What the store has, what is in memory only, and nothing else, is data.
#[test]
fn data_of_a_file_is_what_its_store_has_and_what_is_written_but_not_there_yet() {
    const PAGE: u64 = 4096;
    let world = world::<X86_64>(true, u64::MAX);
    let (vm, id) = (&world.vm, world.id);
    vm.page_cache().set_size(id, 12 * PAGE).unwrap();
    for page in [3, 4, 9] {
        vm.page_cache().write_at(id, page * PAGE, &[b"x"]).unwrap();
    }
    let expect = |from: u64, data: Option<u64>, hole: u64| {
        assert_eq!(
            vm.page_cache().seek_data(id, from).ok(),
            data,
            "from {from}"
        );
        assert_eq!(vm.page_cache().seek_hole(id, from), Ok(hole), "from {from}");
    };
    for written_back in [false, true] {
        if written_back {
            vm.file(id).sync().unwrap();
        }
        expect(5, Some(3 * PAGE), 5);
        expect(3 * PAGE + 1, Some(3 * PAGE + 1), 5 * PAGE);
        expect(5 * PAGE, Some(9 * PAGE), 5 * PAGE);
        expect(9 * PAGE, Some(9 * PAGE), 10 * PAGE);
        expect(10 * PAGE, None, 10 * PAGE);
    }
    vm.page_cache().write_at(id, 6 * PAGE, &[b"y"]).unwrap();
    vm.page_cache().punch_hole(id, 3 * PAGE, PAGE).unwrap();
    expect(0, Some(4 * PAGE), 0);
    expect(5 * PAGE, Some(6 * PAGE), 5 * PAGE);
    vm.page_cache().write_at(id, 11 * PAGE, &[b"z"]).unwrap();
    expect(11 * PAGE + 9, Some(11 * PAGE + 9), 12 * PAGE);
    world.finish();
}

#[test]
fn a_stale_name_is_refused_by_every_call() {
    let world = world::<X86_64>(false, u64::MAX);
    let gone = world
        .vm
        .page_cache()
        .begin_file(&FileRequest::in_mount(world.mount))
        .unwrap();
    world.vm.page_cache().release_object(gone).unwrap();
    let made_up = ObjectId::from_bits(u64::MAX);
    for id in [gone, made_up] {
        let (vm, no) = (&world.vm, FileError::NoObject);
        assert_eq!(vm.page_cache().read_at(id, 0, &mut [&mut [0; 3]]), Err(no));
        assert_eq!(vm.page_cache().write_at(id, 0, &[b"x"]), Err(no));
        assert_eq!(vm.page_cache().append(id, &[b"x"]), Err(no));
        assert_eq!(vm.page_cache().set_size(id, 1), Err(no));
        assert_eq!(vm.page_cache().punch_hole(id, 0, 1), Err(no));
        assert_eq!(vm.page_cache().seek_data(id, 0), Err(no));
        assert_eq!(vm.page_cache().seek_hole(id, 0), Err(no));
        assert_eq!(
            (vm.page_cache().size(id), vm.page_cache().object_stats(id)),
            (None, None)
        );
    }
}

/// The frames of the test machine are garbage at first, so a page that was neither
/// zeroed nor covered would show it; what a write covers whole is not zeroed.
#[test]
fn pages_that_a_write_covers_are_not_zeroed_first() {
    in_each_way(|| {
        let world = world::<X86_64>(false, u64::MAX);
        let zeroed = || world.vm.stats().frames.bytes_zeroed;
        let data = vec![3; 40 * 4096];
        for place in [0, 50 * 4096 + 9] {
            world
                .vm
                .page_cache()
                .write_at(world.id, place, &[&data])
                .unwrap();
            world.vm.page_cache().set_size(world.id, 0).unwrap();
        }
        let before = zeroed();
        world
            .vm
            .page_cache()
            .write_at(world.id, 0, &[&data])
            .unwrap();
        assert_eq!(zeroed(), before);
        let edges = world
            .vm
            .page_cache()
            .write_at(world.id, 50 * 4096 + 9, &[&data]);
        assert_eq!(edges, Ok(data.len()));
        assert_eq!(zeroed(), before, "edges are filled by the write itself");
        let mut seen = vec![1; 42 * 4096];
        world
            .vm
            .page_cache()
            .read_at(world.id, 49 * 4096, &mut [&mut seen])
            .unwrap();
        assert!(seen[..4096 + 9].iter().all(|byte| *byte == 0));
        assert!(seen[4096 + 9..4096 + 9 + data.len()] == data);
    });
}
