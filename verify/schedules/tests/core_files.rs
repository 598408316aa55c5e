//! Pages of objects: truncation, filling and writing back beside faults,
//! forks, moves and exits.

mod core_world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use core_world::{RW, World, at, pristine};
use vellum::ObjectId;
use vellum::addr::{Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, Placement, SpaceId};
use vellum_machine::store::Transfer;

const ZERO: CpuId = CpuId(0);
const SHARED: u64 = 0x1000;
const PRIVATE: u64 = 0x1010;
/// Where [`Files`] has the file mapped a second time.
const PAGES: u64 = 6;

explored! {
    truncation_beside_faults: 150 => truncate_faults;
    truncation_beside_faultaround: 150 => truncate_around;
    truncation_beside_fork: 150 => truncate_fork;
    truncation_beside_mremap: 150 => truncate_remap;
    truncation_beside_munmap: 150 => truncate_unmap;
    truncation_beside_mprotect: 200 => truncate_protect;
    truncation_beside_exit: 100 => truncate_exit;
    truncated_frames_are_used_anew: 200 => truncate_reuse;
    truncation_of_shared_memory_beside_first_faults: 200 => truncate_memory;
    a_file_cut_and_extended_shows_its_new_pages: 200 => truncate_extend;
    pages_are_filled_once_and_waited_for: 60 => fill;
    a_failed_read_is_reported_and_tried_again: 60 => failing_reads;
    what_was_stored_before_a_sync_is_in_the_store: 150 => sync_stores;
    sync_beside_unmap_loses_no_store: 200 => sync_unmap;
    sync_beside_mprotect_misses_no_mapping: 200 => sync_protect;
    writes_and_truncations_take_effect_one_after_the_other: 200 => write_truncate;
    the_last_user_ends_an_object_once: 80 => last_user;
}

struct Files<R: ReverseMap> {
    world: World<R>,
    space: SpaceId,
    file: ObjectId,
}

/// A space with a file of [`PAGES`] pages, shared at [`SHARED`] and private at
/// [`PRIVATE`].
fn files<R: ReverseMap>(cpus: usize, design: &str) -> Files<R> {
    let world = World::<R>::new(cpus, 300, design);
    let (space, file) = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        let file = world.vm.create_file(3, PAGES).unwrap();
        world.object(space, file, 0, SHARED, PAGES, true);
        world.object(space, file, 0, PRIVATE, PAGES, false);
        (space, file)
    });
    Files { world, space, file }
}

impl<R: ReverseMap> Files<R> {
    /// Loads and stores in both mappings; what lies past the end may fail.
    fn use_pages(&self, cpu: CpuId, pages: std::ops::Range<u64>) {
        let word = 1 + u64::from(cpu.0);
        for page in pages {
            for base in [SHARED, PRIVATE] {
                for done in [
                    self.world
                        .load(cpu, self.space, at(base + page, 0))
                        .map(|seen| assert_eq!(seen, pristine(3, page))),
                    self.world
                        .store(cpu, self.space, at(base + page, word), page),
                ] {
                    assert!(
                        matches!(
                            done,
                            Ok(()) | Err(FaultError::PastEnd | FaultError::NoRegion)
                        ),
                        "{done:?}"
                    );
                }
            }
        }
    }

    /// After a truncation to `end` and everything else: pages past it are gone
    /// from the mappings of `space` at both places.
    fn check_end(&self, space: SpaceId, end: u64, bases: &[u64]) {
        let world = &self.world;
        world.alone(|| {
            for page in 0..PAGES {
                for &base in bases {
                    let seen = world.load(ZERO, space, at(base + page, 0));
                    if page >= end {
                        assert_eq!(seen, Err(FaultError::PastEnd), "page {page} at {base:#x}");
                    } else {
                        assert_eq!(seen, Ok(pristine(3, page)), "page {page} at {base:#x}");
                    }
                }
            }
        });
    }

    fn finish(&self, more: &[SpaceId]) {
        self.world.audit();
        self.world
            .finish(&[&[self.space], more].concat(), &[self.file]);
    }
}

fn truncate_faults<R: ReverseMap>() {
    let files = files::<R>(3, "faultaround=1");
    let truncate = |_| files.world.vm.truncate(files.file, 2).unwrap();
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
            .read_pages(files.file, 0, PAGES, |_, _| {})
            .unwrap()
    });
    let truncate = |_| files.world.vm.truncate(files.file, 2).unwrap();
    let work = |cpu: CpuId| files.use_pages(cpu, u64::from(cpu.0)..4);
    files.world.run(&[&truncate, &work, &work]);
    files.check_end(files.space, 2, &[SHARED, PRIVATE]);
    files.finish(&[]);
}

fn truncate_fork<R: ReverseMap>() {
    let files = files::<R>(3, "forkcopy=all,faultaround=4");
    files.world.alone(|| files.use_pages(ZERO, 0..PAGES));
    let child = AtomicU64::new(0);
    let truncate = |_| files.world.vm.truncate(files.file, 2).unwrap();
    let fork = |cpu: CpuId| {
        let id = files.world.vm.fork(files.space).unwrap();
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
    let truncate = |_| files.world.vm.truncate(files.file, 2).unwrap();
    let remap = |_| {
        for (from, to) in [(SHARED, 0x11fe), (PRIVATE, 0x2000)] {
            files
                .world
                .vm
                .remap(
                    files.space,
                    Vpn(from),
                    PAGES,
                    PAGES,
                    Placement::Fixed(Vpn(to)),
                )
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
    let truncate = |_| files.world.vm.truncate(files.file, 1).unwrap();
    let unmap = |_| {
        for base in [SHARED, PRIVATE] {
            files.world.vm.unmap(files.space, Vpn(base + 2), 2).unwrap();
            files
                .world
                .vm
                .advise(files.space, Vpn(base), 2, Advice::DontNeed)
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
    let truncate = |_| files.world.vm.truncate(files.file, 1).unwrap();
    let protect = |_| {
        for prot in [RW.union(Prot::EXECUTE), RW] {
            for base in [SHARED, PRIVATE] {
                files
                    .world
                    .vm
                    .protect(files.space, Vpn(base + 2), 2, prot)
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
        let child = files.world.vm.fork(files.space).unwrap();
        for page in 0..PAGES {
            files.world.load(ZERO, child, at(SHARED + page, 0)).unwrap();
            files
                .world
                .store(ZERO, child, at(PRIVATE + page, 1), 1)
                .unwrap();
        }
        child
    });
    let truncate = |_| files.world.vm.truncate(files.file, 1).unwrap();
    let exit = |_| assert_eq!(files.world.vm.exit(child), Ok(true));
    let fork = |cpu: CpuId| {
        let id = files.world.vm.fork(files.space).unwrap();
        let _ = files.world.store(cpu, id, at(SHARED + 2, 1), 1);
        assert_eq!(files.world.vm.exit(id), Ok(true));
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
            .read_pages(files.file, 0, PAGES, |_, _| {})
            .unwrap()
    });
    let truncate = |cpu: CpuId| {
        for end in [4, 2, 0] {
            world.vm.truncate(files.file, end).unwrap();
            let space = world.vm.create_space().unwrap();
            world.anonymous(space, 0x4_0000 + end, 1);
            world.store(cpu, space, at(0x4_0000 + end, 0), end).unwrap();
            assert_eq!(world.load(cpu, space, at(0x4_0000 + end, 0)), Ok(end));
            assert_eq!(world.vm.exit(space), Ok(true));
        }
    };
    let work = |cpu: CpuId| {
        for _ in 0..2 {
            for page in [5, 3, 4] {
                let _ = world.load(cpu, files.space, at(SHARED + page, 0));
                let _ = world.vm.read_pages(files.file, page, 1, |_, _| {});
            }
        }
    };
    world.run(&[&truncate, &work, &work]);
    files.finish(&[]);
}

/// Shared memory needs no filling: a page may be made and mapped while the
/// object shrinks.
fn truncate_memory<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "faultaround=4");
    let (space, memory) = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        let memory = world.vm.create_shared_memory(4).unwrap();
        world.object(space, memory, 0, SHARED, 4, true);
        (space, memory)
    });
    let truncate = |_| world.vm.truncate(memory, 1).unwrap();
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
        let seen = files.world.vm.read_pages(files.file, 0, 2, |_, _| {});
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

impl<R: ReverseMap> Files<R> {
    fn stored(&self, page: u64, word: u64) -> u64 {
        self.world
            .machine()
            .store()
            .stored_word(3, page << 12 | word << 3)
            .unwrap()
    }
}

/// One CPU stores and syncs; others store too, sync too, fork and exit.
fn sync_stores<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    let work = |cpu: CpuId| {
        let word = 1 + u64::from(cpu.0);
        for round in 1..4 {
            world
                .store(cpu, files.space, at(SHARED + 1, word), round)
                .unwrap();
            world
                .store(cpu, files.space, at(SHARED + 2, word), round)
                .unwrap();
            world.vm.sync(files.file).unwrap();
            for page in [1, 2] {
                assert_eq!(
                    files.stored(page, word),
                    round,
                    "not in the store after a sync"
                );
            }
        }
    };
    let fork = |cpu: CpuId| {
        for round in 1..3 {
            let child = world.vm.fork(files.space).unwrap();
            world.store(cpu, child, at(SHARED + 1, 9), round).unwrap();
            world.vm.exit(child).unwrap();
            world.vm.sync(files.file).unwrap();
            assert_eq!(
                files.stored(1, 9),
                round,
                "lost with the child that stored it"
            );
        }
    };
    world.run(&[&work, &work, &fork]);
    files.finish(&[]);
}

/// A thread stores and syncs while another unmaps: what was stored is in the
/// store, if not from the entry then from what the unmap took over.
fn sync_unmap<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    let unmap = |_| {
        for _ in 0..3 {
            world.vm.unmap(files.space, Vpn(SHARED), PAGES).unwrap();
            world.object(files.space, files.file, 0, SHARED, PAGES, true);
        }
    };
    let store = |cpu: CpuId| {
        let word = u64::from(cpu.0);
        let mut last = 0;
        for round in 1..8 {
            match world.store(cpu, files.space, at(SHARED + 1, word), round) {
                Ok(()) => last = round,
                Err(error) => assert_eq!(error, FaultError::NoRegion),
            }
            if round % 3 == 0 {
                world.vm.sync(files.file).unwrap();
                assert!(
                    last == 0 || files.stored(1, word) == last,
                    "not in the store after a sync"
                );
            }
        }
    };
    world.run(&[&unmap, &store, &store]);
    files.finish(&[]);
}

/// Splitting and merging regions hides no mapping from sync, neither in the
/// space that does it nor in another, which maps a later part of the file.
fn sync_protect<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    let other = world.alone(|| {
        files.use_pages(ZERO, 0..PAGES);
        let other = world.vm.create_space().unwrap();
        world.object(other, files.file, 4, SHARED + 4, 2, true);
        other
    });
    let protect = |_| {
        for (first, pages) in [(1, 4), (3, 3), (2, 4)] {
            for prot in [RW.union(Prot::EXECUTE), RW] {
                let start = Vpn(SHARED + first);
                world.vm.protect(files.space, start, pages, prot).unwrap();
            }
        }
    };
    let store = |cpu: CpuId| {
        let (id, word) = (
            [files.space, other][usize::from(cpu.0) - 1],
            4 + u64::from(cpu.0),
        );
        for round in 1..4 {
            for page in [4, 5] {
                world
                    .store(cpu, id, at(SHARED + page, word), round)
                    .unwrap();
            }
            world.vm.sync(files.file).unwrap();
            for page in [4, 5] {
                assert_eq!(
                    files.stored(page, word),
                    round,
                    "not in the store after a sync"
                );
            }
        }
    };
    world.run(&[&protect, &store, &store]);
    files.finish(&[other]);
}

/// The file ends and grows again meanwhile: a mapping shows the page that the
/// file has, not one that it had.
fn truncate_extend<R: ReverseMap>() {
    let files = files::<R>(3, "faultaround=4");
    let world = &files.world;
    let change = |_| {
        for round in 1..4 {
            world.vm.truncate(files.file, 1).unwrap();
            world
                .vm
                .write_pages(files.file, 1, 2, |_, bytes| bytes.fill(round))
                .unwrap();
        }
    };
    let work = |cpu: CpuId| {
        for _ in 0..2 {
            for page in [1, 2] {
                let _ = world.load(cpu, files.space, at(SHARED + page, 0));
                let _ = world.store(cpu, files.space, at(PRIVATE + page, 1), 1);
                let _ = world.vm.read_pages(files.file, page, 1, |_, _| {});
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

fn write_truncate<R: ReverseMap>() {
    let files = files::<R>(3, "");
    let world = &files.world;
    world.alone(|| world.vm.truncate(files.file, 0).unwrap());
    let write = |_| {
        for round in 1..3 {
            world
                .vm
                .write_pages(files.file, 0, 2, |index, bytes| {
                    bytes.fill(0x500 + index + 16 * round)
                })
                .unwrap();
        }
    };
    let truncate = |_| {
        for _ in 0..2 {
            world.vm.truncate(files.file, 0).unwrap();
        }
    };
    let sync = |_| {
        world.vm.sync(files.file).unwrap();
    };
    world.run(&[&write, &truncate, &sync]);
    world.alone(|| {
        let end = world.vm.object_pages(files.file).unwrap();
        assert!(end == 0 || end == 2, "half of a write is left: {end} pages");
        for page in 0..end {
            let seen = world.load(ZERO, files.space, at(SHARED + page, 0)).unwrap();
            assert!(
                seen == 0x510 + page || seen == 0x520 + page,
                "a write was lost: {seen:#x}"
            );
        }
    });
    files.finish(&[]);
}

fn last_user<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "forkcopy=all");
    let (spaces, file) = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        let file = world.vm.create_file(3, 4).unwrap();
        world.object(space, file, 0, SHARED, 4, true);
        for page in 0..4 {
            world
                .store(ZERO, space, at(SHARED + page, 1), page)
                .unwrap();
        }
        ([space, world.vm.fork(space).unwrap()], file)
    });
    let work = |cpu: CpuId| {
        let id = spaces[usize::from(cpu.0)];
        world
            .store(cpu, id, at(SHARED + 2, 2 + u64::from(cpu.0)), 8)
            .unwrap();
        if cpu.0 == 0 {
            world.vm.unmap(id, Vpn(SHARED), 4).unwrap();
        }
        assert_eq!(world.vm.exit(id), Ok(true));
    };
    let release = |_| world.vm.release_object(file).unwrap();
    world.run(&[&work, &work, &release]);
    let stored = |page: u64, word: u64| {
        world
            .machine()
            .store()
            .stored_word(3, page << 12 | word << 3)
            .unwrap()
    };
    assert_eq!(
        (stored(2, 2), stored(2, 3), stored(3, 1)),
        (8, 8, 3),
        "an ended file was not written"
    );
    assert!(world.vm.object_pages(file).is_none());
    world.finish(&[], &[]);
}
