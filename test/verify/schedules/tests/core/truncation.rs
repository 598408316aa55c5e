//! Truncation and writing back beside moves and visits: they work from the object,
//! without the locks of the spaces that they reach (invariants 5, 6 and 11).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::files::{PAGES, PRIVATE, SHARED, files};
use crate::world::{World, at};
use vellum::addr::Vpn;
use vellum::platform::CpuId;
use vellum::rmap::{Env, ReverseMap, Verdict};
use vellum::space::{Advice, FaultError, RemapPlacement};
use vellum::table::X86_64;

const ZERO: CpuId = CpuId(0);

explored! {
    a_store_by_where_a_page_moved_from_is_written_back: 76 => moved_from;
    a_move_finds_its_tables_although_truncation_empties_them: 48 => emptied;
    a_move_finds_tables_for_what_faults_make_meanwhile: 48 => made_meanwhile;
    private_copies_of_many_spaces_go_beside_forks_and_exits: 32 => many_spaces;
    entries_that_stay_are_handed_out_once_beside_locked_tables: 32 => once;
}

/// A CPU goes on storing by an old translation until the move has flushed. A
/// sync that finds the page at its new place meanwhile must not take it for
/// clean: the store sets no mark there.
fn moved_from<R: ReverseMap>() {
    let files = files::<R>(3, "faultaround=1");
    let world = &files.world;
    let address = at(SHARED + 1, 1);
    let last = AtomicU64::new(1);
    world.alone(|| world.store(ZERO, files.space, address, 1).unwrap());
    let sync = |_| {
        for _ in 0..3 {
            world.vm.file(files.file).sync().unwrap();
        }
    };
    let remap = |_| {
        let to = RemapPlacement::Fixed(Vpn(0x3000));
        world
            .vm
            .space(files.space)
            .remap(Vpn(SHARED), PAGES, PAGES, to)
            .unwrap();
    };
    let store = |cpu: CpuId| {
        for value in 2..40 {
            match world.store(cpu, files.space, address, value) {
                Ok(()) => last.store(value, Ordering::SeqCst),
                Err(error) => assert_eq!(error, FaultError::NoRegion),
            }
        }
    };
    world.run(&[&sync, &remap, &store]);
    world.alone(|| world.vm.file(files.file).sync().unwrap());
    assert_eq!(files.stored(1, 1), last.load(Ordering::SeqCst));
    files.finish(&[]);
}

/// Private pages move into a table that a file alone has entries in, while the
/// file is truncated.
fn emptied<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "faultaround=1");
    let (space, file) = world.alone(|| {
        let space = world.space();
        let file = world.stored(3, 3);
        world.object(space, file, 0, 0x1200, 3, true);
        world.object(space, file, 0, 0x1203, 3, false);
        world.anonymous(space, 0x1000, 3);
        for page in 0x1000..0x1003 {
            world.store(ZERO, space, at(page, 0), page).unwrap();
        }
        for page in 0x1200..0x1206 {
            world.store(ZERO, space, at(page, 0), page).unwrap();
        }
        (space, file)
    });
    let truncate = |_| {
        for end in [1, 0] {
            world.vm.file(file).set_size(end << 12).unwrap();
        }
    };
    let remap = |_| {
        let to = RemapPlacement::Fixed(Vpn(0x1210));
        world.vm.space(space).remap(Vpn(0x1000), 3, 3, to).unwrap();
    };
    let fault = |cpu: CpuId| {
        for page in [0x1202, 0x1204, 0x1200] {
            let _ = world.load(cpu, space, at(page, 1));
        }
    };
    world.run(&[&truncate, &remap, &fault]);
    world.alone(|| {
        for page in 0..3 {
            let seen = world.load(ZERO, space, at(0x1210 + page, 0));
            assert_eq!(seen, Ok(0x1000 + page));
        }
    });
    world.finish(&[space], &[file]);
}

/// A region over two tables moves, the second of which a fault makes meanwhile.
fn made_meanwhile<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| {
        let space = world.space();
        world.anonymous(space, 0x11fe, 4);
        world.store(ZERO, space, at(0x11fe, 0), 1).unwrap();
        space
    });
    let remap = |_| {
        let to = RemapPlacement::Fixed(Vpn(0x31fe));
        world.vm.space(space).remap(Vpn(0x11fe), 4, 4, to).unwrap();
    };
    let fault = |cpu: CpuId| {
        for page in [0x1201, 0x1200] {
            let _ = world.store(cpu, space, at(page, 0), 2);
        }
    };
    world.run(&[&remap, &fault]);
    world.alone(|| assert_eq!(world.load(ZERO, space, at(0x31fe, 0)), Ok(1)));
    world.finish(&[space], &[]);
}

/// A family with copies in each space: truncation lets go of the object's
/// regions between them, and misses none.
fn many_spaces<R: ReverseMap>() {
    let files = files::<R>(3, "faultaround=4");
    let world = &files.world;
    let children = world.alone(|| {
        files.use_pages(ZERO, 0..4);
        [(); 3].map(|()| {
            let child = world.vm.space(files.space).fork().unwrap().id();
            for page in 0..3 {
                world.store(ZERO, child, at(PRIVATE + page, 1), 1).unwrap();
            }
            child
        })
    });
    let truncate = |_| world.vm.file(files.file).set_size(1 << 12).unwrap();
    let fork = |cpu: CpuId| {
        let child = world.vm.space(children[0]).fork().unwrap().id();
        let _ = world.store(cpu, child, at(PRIVATE + 2, 2), 3);
        for page in 1..4 {
            let _ = world.load(cpu, child, at(PRIVATE + page, 1));
        }
        assert_eq!(world.vm.space(child).exit(), Ok(true));
    };
    let end = |_| {
        assert_eq!(world.vm.space(children[1]).exit(), Ok(true));
        world
            .vm
            .space(children[2])
            .protect(Vpn(PRIVATE + 1), 2, vellum::addr::Prot::READ)
            .unwrap();
    };
    world.run(&[&truncate, &fork, &end]);
    for space in [files.space, children[0]] {
        files.check_end(space, 1, &[SHARED, PRIVATE]);
    }
    files.finish(&[children[0], children[2]]);
}

/// The page's mappings do not change, but its tables are mostly locked by
/// faults on their other pages.
fn once<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "faultaround=1");
    let (spaces, file, frames) = world.alone(|| {
        let space = world.space();
        let file = world.stored(3, 4);
        world.object(space, file, 0, SHARED, 4, true);
        world.anonymous(space, 0x1100, 4);
        world.store(ZERO, space, at(0x1100, 0), 1).unwrap();
        let spaces = [
            space,
            world.vm.space(space).fork().unwrap().id(),
            world.vm.space(space).fork().unwrap().id(),
        ];
        for space in spaces {
            world.load(ZERO, space, at(SHARED, 0)).unwrap();
        }
        let frames = [0x1100, SHARED].map(|page| {
            let (frame, _) = world.vm.space(space).translate(Vpn(page)).unwrap();
            let pin = world.vm.pin();
            // SAFETY: the frame is in use; the reference is dropped at the end.
            assert!(unsafe { vellum::probe::layers(&world.vm).memory.get_raw(&pin, frame) });
            frame
        });
        (spaces, file, frames)
    });
    let visit = |_| {
        for frame in frames.into_iter().cycle().take(8) {
            let pin = world.vm.pin();
            let env = Env {
                // SAFETY: the visit does what one of the manager's own would.
                memory: unsafe { vellum::probe::layers(&world.vm) }.memory,
                pin: &pin,
            };
            let mut seen = BTreeSet::new();
            let visitor = &mut |slot: &vellum::rmap::Slot<'_, X86_64>| {
                assert!(seen.insert(slot.space()), "handed out twice");
                Verdict::Keep
            };
            // SAFETY: the same.
            let rmap = unsafe { vellum::probe::layers(&world.vm) }.rmap;
            let report = rmap.visit::<_, X86_64>(&env, &world.vm, frame, visitor);
            assert_eq!((report.hits, seen.len()), (3, 3), "{frame:?}");
        }
    };
    let fault = |cpu: CpuId| {
        let space = spaces[usize::from(cpu.0)];
        for round in 0..3 {
            for page in [0x1101, SHARED + 1, 0x1102] {
                world.store(cpu, space, at(page, 1), round).unwrap();
            }
            for page in [0x1101, SHARED + 1] {
                world
                    .vm
                    .space(space)
                    .advise(Vpn(page), 1, Advice::DontNeed)
                    .unwrap();
            }
        }
    };
    world.run(&[&visit, &fault, &fault]);
    world.alone(|| {
        let pin = world.vm.pin();
        for frame in frames {
            // SAFETY: the reference taken above.
            unsafe {
                vellum::probe::layers(&world.vm)
                    .memory
                    .put_raw(&pin, frame, 0)
            };
        }
    });
    world.finish(&spaces, &[file]);
}
