//! Limits of mounts, and memory that runs out.

use super::*;
use crate::space::FileRequest;

#[test]
fn a_mount_has_no_page_more_than_its_limit() {
    in_each_way(|| {
        const LIMIT: u64 = 20;
        let mut world = world::<X86_64>(false, LIMIT);
        let page: &[u8] = &[7; 4096];
        let vm = &world.vm;
        // Twelve pages with a hole of three, and eight are left.
        assert_eq!(
            vm.page_cache().write_at(world.id, 0, &[page; 12]),
            Ok(12 * 4096)
        );
        vm.page_cache()
            .punch_hole(world.id, 4096, 3 * 4096)
            .unwrap();
        vm.page_cache()
            .write_at(world.id, 4096, &[page; 3])
            .unwrap();
        let other = vm
            .page_cache()
            .begin_file(&FileRequest::in_mount(world.mount))
            .unwrap();
        assert_eq!(
            vm.page_cache().write_at(other, 9, &[page; 10]),
            Ok(8 * 4096 - 9)
        );
        assert_eq!(
            vm.page_cache().append(other, &[b"one more"]),
            Err(FileError::Full)
        );
        assert_eq!(vm.page_cache().size(other), Some(8 * 4096));
        assert_eq!(
            vm.page_cache().mount_stats(world.mount).unwrap().used,
            LIMIT
        );
        // Overwriting takes nothing, and reading a hole neither.
        assert_eq!(
            vm.page_cache().write_at(world.id, 5, &[page; 11]),
            Ok(11 * 4096)
        );
        vm.page_cache().set_size(world.id, 30 * 4096).unwrap();
        assert_eq!(
            vm.page_cache()
                .read_at(world.id, 20 * 4096, &mut [&mut [1; 9000]]),
            Ok(9000)
        );
        let fault = vm.fault(world.space, (PLACE + 20) << 12, Access::Write);
        assert_eq!(fault.err(), Some(FaultError::Full));
        // What is let go of can be had by another, in whatever way it goes.
        vm.page_cache().set_size(world.id, 10 * 4096 + 1).unwrap();
        assert_eq!(
            vm.page_cache().mount_stats(world.mount).unwrap().used,
            LIMIT - 1
        );
        vm.page_cache().set_mount_limit(world.mount, 3).unwrap();
        assert_eq!(vm.page_cache().append(other, &[&[1]]), Err(FileError::Full));
        vm.page_cache().release_object(other).unwrap();
        assert_eq!(vm.page_cache().mount_stats(world.mount).unwrap().used, 11);
        vm.page_cache().set_mount_limit(world.mount, 12).unwrap();
        vm.page_cache()
            .write_at(world.id, 15 * 4096, &[page])
            .unwrap();
        assert_eq!(
            vm.page_cache().write_at(world.id, 16 * 4096, &[page]),
            Err(FileError::Full)
        );
        world.vm.exit(world.space).unwrap();
        // A mount lives as long as its files.
        world.vm.page_cache().release_mount(world.mount).unwrap();
        assert_eq!(vm_answers(&world), [true; 4]);
        world.vm.page_cache().release_object(world.id).unwrap();
        world.vm.audit().unwrap();
        world.mount = world.vm.page_cache().begin_mount(5).unwrap();
        assert_eq!(
            world.vm.page_cache().mount_stats(world.mount).unwrap().used,
            0
        );
    });
}

/// Whether each call refuses the name of a mount that was released.
fn vm_answers<F: Format>(world: &World<F>) -> [bool; 4] {
    let vm = &world.vm;
    [
        vm.page_cache()
            .begin_file(&FileRequest::in_mount(world.mount))
            == Err(FileError::NoMount),
        vm.page_cache().set_mount_limit(world.mount, 1) == Err(FileError::NoMount),
        vm.page_cache().mount_stats(world.mount).is_none(),
        vm.page_cache().release_mount(world.mount) == Err(FileError::NoMount),
    ]
}

/// Each allocation of a write fails in turn: what was written before is there, and
/// the rest of the object, its length and its mount are as they were.
#[test]
fn a_write_that_runs_out_of_memory_wrote_what_it_says() {
    in_each_way(|| {
        for is_file in [false, true] {
            let mut failed = 0;
            for site in [Site::CachePage, Site::RadixNode, Site::SlabFrame] {
                for after in 0..40 {
                    failed += u64::from(write_fails_at(is_file, FailAt { site, after }));
                }
            }
            // A frame that is missing within a run only makes the run shorter.
            assert!(failed >= 3, "only {failed} writes failed");
        }
    });
}

#[test]
fn a_mount_that_cannot_be_made_is_an_error() {
    let world = world::<X86_64>(false, 10);
    let plan = |site| {
        let plan = FailAt { site, after: 0 };
        world.vm.memory().inject(Some(plan));
    };
    plan(Site::Mount);
    assert_eq!(
        world.vm.page_cache().begin_mount(3),
        Err(FileError::OutOfMemory)
    );
    plan(Site::Object);
    let made = world
        .vm
        .page_cache()
        .begin_file(&FileRequest::in_mount(world.mount));
    assert_eq!(made, Err(FileError::OutOfMemory));
    world.finish();
}

#[test]
fn a_write_takes_all_memory_there_is_and_gives_it_back() {
    in_each_way(|| {
        run_on(0);
        let machine = TestMachine::with_frames(2, 400, 12);
        let vm: Vm<_, X86_64, ByRegions> = Vm::new(machine, design()).unwrap();
        let data = random(&mut Rng::new(178), 500 * 4096);
        let mount = vm.page_cache().begin_mount(1000).unwrap();
        let used = || vm.page_cache().mount_stats(mount).unwrap().used;
        for _ in 0..3 {
            let file = vm
                .page_cache()
                .begin_file(&FileRequest::in_mount(mount))
                .unwrap();
            let written = vm.page_cache().write_at(file, 123, &[&data]).unwrap();
            assert_eq!(used(), (123 + written as u64).div_ceil(4096));
            assert!((300 * 4096..400 * 4096).contains(&written), "{written}");
            assert_eq!(
                vm.page_cache().append(file, &[&data]),
                Err(FileError::OutOfMemory)
            );
            assert_eq!(vm.page_cache().size(file), Some(123 + written as u64));
            let mut back = vec![0; written];
            assert_eq!(
                vm.page_cache().read_at(file, 123, &mut [&mut back]),
                Ok(written)
            );
            assert!(back == data[..written]);
            vm.audit().unwrap();
            vm.page_cache().release_object(file).unwrap();
            assert_eq!(used(), 0);
            // What left waits for its epoch.
            for _ in 0..3 {
                vm.relieve();
            }
        }
    });
}

fn write_fails_at(is_file: bool, plan: FailAt) -> bool {
    let mut rng = Rng::new(u64::from(plan.after));
    let mut world = world::<X86_64>(is_file, 60);
    for place in [3 * 4096 + 9, 40 * 4096] {
        let data = random(&mut rng, 5000);
        world
            .vm
            .page_cache()
            .write_at(world.id, place, &[&data])
            .unwrap();
        world.wrote(place, &data);
    }
    let data = random(&mut rng, 30 * 4096);
    let place = 37 * 4096 + 77;
    world.vm.memory().inject(Some(plan));
    let answer = world.vm.page_cache().write_at(world.id, place, &[&data]);
    world.vm.memory().inject(None);
    match answer {
        Ok(written) => world.wrote(place, &data[..written]),
        Err(error) => assert_eq!(error, FileError::OutOfMemory),
    }
    world.check();
    let failed = answer != Ok(data.len());
    if let Ok(written) = answer
        && failed
    {
        let rest = &data[written..];
        let place = place + written as u64;
        assert_eq!(
            world.vm.page_cache().write_at(world.id, place, &[rest]),
            Ok(rest.len())
        );
        world.wrote(place, rest);
        world.check();
    }
    world.finish();
    failed
}
