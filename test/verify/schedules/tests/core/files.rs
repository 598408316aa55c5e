//! Pages of objects: truncation, filling and writing back beside faults,
//! forks, moves and exits (invariants 5, 6, 10 and 11).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::world::files::{PAGES, PRIVATE, SHARED, files};
use crate::world::{RW, World, at, pristine};
use vellum::addr::{Access, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{
    Advice, FaultError, PageBytes, ReadRequest, RemapPlacement, SpaceId, WriteRequest,
};
use vellum_machine::Machine;
use vellum_machine::store::Transfer;

const ZERO: CpuId = CpuId(0);
explored! {
    truncation_beside_faults: 76 => truncate_faults;
    truncation_beside_faultaround: 76 => truncate_around;
    truncation_beside_fork: 76 => truncate_fork;
    truncation_beside_mremap: 76 => truncate_remap;
    truncation_beside_munmap: 76 => truncate_unmap;
    truncation_beside_mprotect: 100 => truncate_protect;
    truncation_beside_exit: 48 => truncate_exit;
    truncated_frames_are_used_anew: 100 => truncate_reuse;
    a_page_found_without_a_lock_is_not_another_one: 48 => lookup_reuse;
    truncation_of_shared_memory_beside_first_faults: 100 => truncate_memory;
    a_file_cut_and_extended_shows_its_new_pages: 100 => truncate_extend;
    pages_are_filled_once_and_waited_for: 32 => fill;
    a_failed_read_is_reported_and_tried_again: 32 => failing_reads;
}

fn truncate_faults<R: ReverseMap>() {
    let files = files::<R>(3, "faultaround=1");
    let truncate = |_| files.world.vm.file(files.file).set_size(2 << 12).unwrap();
    let work = |cpu: CpuId| files.use_pages(cpu, 1..4);
    files.world.run(&[&truncate, &work, &work]);
    files.check_end(files.space, 2, &[SHARED, PRIVATE]);
    files.finish(&[]);
}

fn truncate_around<R: ReverseMap>() {
    let files = files::<R>(3, "faultaround=8");
    files.world.alone(|| {
        files
            .world
            .vm
            .file(files.file)
            .read(ReadRequest::pages(0, PAGES, |_, _| {}))
            .unwrap()
    });
    let truncate = |_| files.world.vm.file(files.file).set_size(2 << 12).unwrap();
    let work = |cpu: CpuId| files.use_pages(cpu, u64::from(cpu.0)..4);
    files.world.run(&[&truncate, &work, &work]);
    files.check_end(files.space, 2, &[SHARED, PRIVATE]);
    files.finish(&[]);
}

fn truncate_fork<R: ReverseMap>() {
    let files = files::<R>(3, "forkcopy=all,faultaround=4");
    files.world.alone(|| files.use_pages(ZERO, 0..PAGES));
    let child = AtomicU64::new(0);
    let truncate = |_| files.world.vm.file(files.file).set_size(2 << 12).unwrap();
    let fork = |cpu: CpuId| {
        let id = files.world.vm.space(files.space).fork().unwrap().id();
        child.store(id.to_bits(), Ordering::SeqCst);
        let _ = files.world.store(cpu, id, at(PRIVATE + 3, 5), 1);
    };
    let work = |cpu: CpuId| files.use_pages(cpu, 2..4);
    files.world.run(&[&truncate, &fork, &work]);
    let child = SpaceId::from_bits(child.load(Ordering::SeqCst));
    files.check_end(files.space, 2, &[SHARED, PRIVATE]);
    files.check_end(child, 2, &[SHARED, PRIVATE]);
    files.finish(&[child]);
}

fn truncate_remap<R: ReverseMap>() {
    let files = files::<R>(3, "");
    files.world.alone(|| files.use_pages(ZERO, 0..PAGES));
    let truncate = |_| files.world.vm.file(files.file).set_size(2 << 12).unwrap();
    let remap = |_| {
        for (from, to) in [(SHARED, 0x11fe), (PRIVATE, 0x2000)] {
            files
                .world
                .vm
                .space(files.space)
                .remap(Vpn(from), PAGES, PAGES, RemapPlacement::Fixed(Vpn(to)))
                .unwrap();
        }
    };
    let work = |cpu: CpuId| {
        files.use_pages(cpu, 1..3);
        for base in [0x11fe, 0x2000] {
            let _ = files.world.store(cpu, files.space, at(base + 3, 1), 1);
        }
    };
    files.world.run(&[&truncate, &remap, &work]);
    files.check_end(files.space, 2, &[0x11fe, 0x2000]);
    files.finish(&[]);
}

fn truncate_unmap<R: ReverseMap>() {
    let files = files::<R>(3, "");
    files.world.alone(|| files.use_pages(ZERO, 0..PAGES));
    let truncate = |_| files.world.vm.file(files.file).set_size(1 << 12).unwrap();
    let unmap = |_| {
        for base in [SHARED, PRIVATE] {
            files
                .world
                .vm
                .space(files.space)
                .unmap(Vpn(base + 2), 2)
                .unwrap();
            files
                .world
                .vm
                .space(files.space)
                .advise(Vpn(base), 2, Advice::DontNeed)
                .unwrap();
        }
    };
    let work = |cpu: CpuId| files.use_pages(cpu, 0..4);
    files.world.run(&[&truncate, &unmap, &work]);
    files.world.alone(|| {
        for base in [SHARED, PRIVATE] {
            for page in [1, 4, 5] {
                assert_eq!(
                    files.world.load(ZERO, files.space, at(base + page, 0)),
                    Err(FaultError::PastEnd)
                );
            }
        }
    });
    files.finish(&[]);
}

fn truncate_protect<R: ReverseMap>() {
    let files = files::<R>(3, "");
    files.world.alone(|| files.use_pages(ZERO, 0..PAGES));
    let truncate = |_| files.world.vm.file(files.file).set_size(1 << 12).unwrap();
    let protect = |_| {
        for prot in [RW.union(Prot::EXECUTE), RW] {
            for base in [SHARED, PRIVATE] {
                files
                    .world
                    .vm
                    .space(files.space)
                    .protect(Vpn(base + 2), 2, prot)
                    .unwrap();
            }
        }
    };
    let work = |cpu: CpuId| files.use_pages(cpu, 0..4);
    files.world.run(&[&truncate, &protect, &work]);
    files.check_end(files.space, 1, &[SHARED, PRIVATE]);
    files.finish(&[]);
}

fn truncate_exit<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let child = files.world.alone(|| {
        files.use_pages(ZERO, 0..PAGES);
        let child = files.world.vm.space(files.space).fork().unwrap().id();
        for page in 0..PAGES {
            files.world.load(ZERO, child, at(SHARED + page, 0)).unwrap();
            files
                .world
                .store(ZERO, child, at(PRIVATE + page, 1), 1)
                .unwrap();
        }
        child
    });
    let truncate = |_| files.world.vm.file(files.file).set_size(1 << 12).unwrap();
    let exit = |_| assert_eq!(files.world.vm.space(child).exit(), Ok(true));
    let fork = |cpu: CpuId| {
        let id = files.world.vm.space(files.space).fork().unwrap().id();
        let _ = files.world.store(cpu, id, at(SHARED + 2, 1), 1);
        assert_eq!(files.world.vm.space(id).exit(), Ok(true));
    };
    files.world.run(&[&truncate, &exit, &fork]);
    files.check_end(files.space, 1, &[SHARED, PRIVATE]);
    files.finish(&[]);
}

/// The frames of truncated pages become tables and private pages at once,
/// while others still look for them in the cache.
fn truncate_reuse<R: ReverseMap>() {
    let files = files::<R>(3, "faultaround=8");
    let world = &files.world;
    world.alone(|| {
        world
            .vm
            .file(files.file)
            .read(ReadRequest::pages(0, PAGES, |_, _| {}))
            .unwrap()
    });
    let truncate = |cpu: CpuId| {
        for end in [4, 2, 0] {
            world.vm.file(files.file).set_size(end << 12).unwrap();
            world.drain();
            let space = world.space();
            world.anonymous(space, 0x4_0000 + end, 1);
            world.store(cpu, space, at(0x4_0000 + end, 0), end).unwrap();
            assert_eq!(world.load(cpu, space, at(0x4_0000 + end, 0)), Ok(end));
            assert_eq!(world.vm.space(space).exit(), Ok(true));
        }
    };
    let work = |cpu: CpuId| {
        for _ in 0..2 {
            for page in [5, 3, 4] {
                let _ = world.load(cpu, files.space, at(SHARED + page, 0));
                let _ = world
                    .vm
                    .file(files.file)
                    .read(ReadRequest::pages(page, 1, |_, _| {}));
            }
        }
    };
    world.run(&[&truncate, &work, &work]);
    files.finish(&[]);
}

/// The same, with the frame of one page going to and fro as fast as it can,
/// beside a reader and first stores to a private mapping: both look at the bytes of
/// the page without a reference to it.
fn lookup_reuse<R: ReverseMap>() {
    /// In every word that is stored to the private page, never in the object.
    const SECRET: u64 = 1 << 32;
    let world = World::<R>::new(3, 256, "");
    let (space, memory) = world.alone(|| {
        let space = world.space();
        let memory = world.memory(1);
        world.anonymous(space, 0x1000, 1);
        world.object(space, memory, 0, PRIVATE, 1, false);
        world
            .vm
            .file(memory)
            .read(ReadRequest::pages(0, 1, |_, _| {}))
            .unwrap();
        (space, memory)
    });
    let change = |cpu: CpuId| {
        for round in 1..8 {
            world.vm.file(memory).set_size(0).unwrap();
            let address = at(0x1000, 0);
            world.vm.space(space).fault(address, Access::Write).unwrap();
            world.store(cpu, space, address, SECRET | round).unwrap();
            assert_eq!(world.load(cpu, space, address), Ok(SECRET | round));
            world
                .vm
                .space(space)
                .advise(Vpn(0x1000), 1, Advice::DontNeed)
                .unwrap();
            world
                .vm
                .file(memory)
                .write(WriteRequest::pages(0, 1, |_, bytes| bytes.fill(round)))
                .unwrap();
        }
    };
    let read = |_| {
        for _ in 0..60 {
            let read = |_, bytes: &PageBytes<'_, Machine>| {
                let mut word = [0; 8];
                bytes.read(0, &mut word);
                assert!(u64::from_le_bytes(word) < SECRET, "read of another page");
            };
            world
                .vm
                .file(memory)
                .read(ReadRequest::pages(0, 1, read))
                .unwrap();
        }
    };
    let copy = |cpu: CpuId| {
        for _ in 0..30 {
            let _ = world.store(cpu, space, at(PRIVATE, 1), 1);
            match world.load(cpu, space, at(PRIVATE, 0)) {
                Ok(word) => assert!(word < SECRET, "copy of another page"),
                Err(error) => assert_eq!(error, FaultError::PastEnd),
            }
            world
                .vm
                .space(space)
                .advise(Vpn(PRIVATE), 1, Advice::DontNeed)
                .unwrap();
        }
    };
    world.run(&[&change, &read, &copy]);
    world.finish(&[space], &[memory]);
}

/// Shared memory needs no filling: a page may be made and mapped while the
/// object shrinks.
fn truncate_memory<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "faultaround=4");
    let (space, memory) = world.alone(|| {
        let space = world.space();
        let memory = world.memory(4);
        world.object(space, memory, 0, SHARED, 4, true);
        (space, memory)
    });
    let truncate = |_| world.vm.file(memory).set_size(1 << 12).unwrap();
    let work = |cpu: CpuId| {
        for page in [3, 2, 0] {
            let stored = world.store(cpu, space, at(SHARED + page, u64::from(cpu.0)), 7);
            assert!(
                matches!(stored, Ok(()) | Err(FaultError::PastEnd)),
                "{stored:?}"
            );
            let _ = world.load(cpu, space, at(SHARED + page - page.min(1), 0));
        }
    };
    world.run(&[&truncate, &work, &work]);
    world.alone(|| {
        for page in 1..4 {
            assert_eq!(
                world.load(ZERO, space, at(SHARED + page, 0)),
                Err(FaultError::PastEnd)
            );
        }
    });
    world.finish(&[space], &[memory]);
}

fn fill<R: ReverseMap>() {
    let files = files::<R>(4, "");
    let work = |cpu: CpuId| files.use_pages(cpu, 0..2);
    let read = |_| {
        let seen = files
            .world
            .vm
            .file(files.file)
            .read(ReadRequest::pages(0, 2, |_, _| {}));
        assert_eq!(seen, Ok(2));
    };
    files.world.run(&[&work, &read, &work, &work]);
    assert_eq!(
        files
            .world
            .alone(|| files.world.vm.stats().events.page_reads),
        2
    );
    files.check_end(files.space, PAGES, &[SHARED, PRIVATE]);
    files.finish(&[]);
}

fn failing_reads<R: ReverseMap>() {
    let files = files::<R>(3, "");
    files.world.store.faults().fail_range(Transfer::Read, 1..2);
    let heals = AtomicBool::new(false);
    let work = |cpu: CpuId| {
        for _ in 0..2 {
            let healed = heals.load(Ordering::SeqCst);
            for base in [SHARED, PRIVATE] {
                match files.world.load(cpu, files.space, at(base + 1, 0)) {
                    Ok(seen) => assert_eq!(seen, pristine(3, 1)),
                    Err(error) => assert!(error == FaultError::Io && !healed),
                }
            }
        }
    };
    let heal = |cpu: CpuId| {
        work(cpu);
        files.world.store.faults().heal();
        heals.store(true, Ordering::SeqCst);
        work(cpu);
    };
    files.world.run(&[&heal, &work, &work]);
    files.check_end(files.space, PAGES, &[SHARED, PRIVATE]);
    files.finish(&[]);
}

/// The file ends and grows again meanwhile: a mapping shows the page that the
/// file has, not one that it had.
fn truncate_extend<R: ReverseMap>() {
    let files = files::<R>(3, "faultaround=4");
    let world = &files.world;
    let change = |_| {
        for round in 1..4 {
            world.vm.file(files.file).set_size(1 << 12).unwrap();
            world
                .vm
                .file(files.file)
                .write(WriteRequest::pages(1, 2, |_, bytes| bytes.fill(round)))
                .unwrap();
        }
    };
    let work = |cpu: CpuId| {
        for _ in 0..2 {
            for page in [1, 2] {
                let _ = world.load(cpu, files.space, at(SHARED + page, 0));
                let _ = world.store(cpu, files.space, at(PRIVATE + page, 1), 1);
                let _ = world
                    .vm
                    .file(files.file)
                    .read(ReadRequest::pages(page, 1, |_, _| {}));
            }
        }
    };
    world.run(&[&change, &work, &work]);
    world.alone(|| {
        for page in [1, 2] {
            assert_eq!(world.load(ZERO, files.space, at(SHARED + page, 0)), Ok(3));
            assert_eq!(world.load(ZERO, files.space, at(PRIVATE + page, 0)), Ok(3));
        }
    });
    files.finish(&[]);
}
