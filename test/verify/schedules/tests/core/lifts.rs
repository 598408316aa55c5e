//! Page tables that move to high memory beside everything that uses them (invariant 7).

use crate::world::{World, at, explore_one, pristine};
use vellum::addr::{Access, PageRange, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::{Chains, Family, Partial, ReverseMap};
use vellum::space::{Advice, FaultError, RemapPlacement, SpaceId};
use vellum::table::X86Pae;
use vellum_machine::BackingStore;

const ZERO: CpuId = CpuId(0);
/// Pages that one table of the lowest level maps.
const TABLE: u64 = 512;
const START: u64 = 8 * TABLE;

type Pae<R> = World<R, X86Pae>;

/// Each body with the designs that name entries, and one that does not.
macro_rules! lifted {
    ($($(#[$meta:meta])* $name:ident: $count:expr => $body:ident;)*) => { $(
        $(#[$meta])*
        #[test]
        fn $name() {
            explore_one("family", $count, $body::<Family>);
            explore_one("chains", $count, $body::<Chains>);
            explore_one("partial", $count / 2, $body::<Partial>);
        }
    )* };
}

lifted! {
    stores_and_loads_go_on_while_tables_move: 152 => accesses;
    a_mapped_page_is_never_missing_while_its_table_moves: 152 => lookups;
    what_was_unmapped_stays_unmapped_if_its_table_moves: 152 => unmaps;
    a_truncation_finds_every_entry_while_tables_move: 152 => truncates;
    a_store_is_written_back_though_its_table_moved: 152 => writes_back;
    a_child_has_what_its_parent_had_while_tables_move: 100 => forks;
    entries_that_move_within_a_space_are_kept_while_their_tables_move: 100 => remaps;
    spaces_end_while_their_tables_move: 100 => exits;
}

fn world<R: ReverseMap>() -> Pae<R> {
    World::on(3, 320, "userpte=auto")
}

/// A space with `tables` tables of low memory, of which the first page of each and the
/// one after it hold the table's number.
fn space<R: ReverseMap>(world: &Pae<R>, tables: u64) -> SpaceId {
    world.alone(|| {
        let space = world.space();
        world.anonymous(space, START, tables * TABLE);
        for table in 0..tables {
            for page in 0..2 {
                world
                    .store(ZERO, space, at(START + table * TABLE + page, 0), table)
                    .unwrap();
            }
        }
        space
    })
}

fn moved<R: ReverseMap>(world: &Pae<R>) -> u64 {
    world.alone(|| world.vm.stats().events.tables_moved)
}

/// Moves every table that there is, one at a time.
fn lift<R: ReverseMap>(world: &Pae<R>) {
    for _ in 0..4 {
        world.vm.relieve_low(1);
    }
}

fn accesses<R: ReverseMap>() {
    let world = world::<R>();
    let space = space(&world, 2);
    let touch = |cpu: CpuId| {
        let word = 1 + u64::from(cpu.0);
        for round in 1..4 {
            for table in 0..2 {
                for page in 0..3 {
                    let address = at(START + table * TABLE + page, word);
                    world.store(cpu, space, address, round).unwrap();
                    assert_eq!(world.load(cpu, space, address), Ok(round));
                }
            }
        }
    };
    world.run(&[&touch, &touch, &|_| lift(&world)]);
    assert!(moved(&world) > 0);
    world.alone(|| {
        for table in 0..2 {
            assert_eq!(
                world.load(ZERO, space, at(START + table * TABLE, 0)),
                Ok(table)
            );
            for word in 1..3 {
                let last = world.load(ZERO, space, at(START + table * TABLE + 2, word));
                assert_eq!(last, Ok(3));
            }
        }
    });
    world.finish(&[space], &[]);
}

fn lookups<R: ReverseMap>() {
    let world = world::<R>();
    let space = space(&world, 2);
    let frames = [0, 1].map(|table| {
        world.alone(|| {
            world
                .vm
                .space(space)
                .translate(Vpn(START + table * TABLE))
                .unwrap()
                .0
        })
    });
    let look = |_: CpuId| {
        for _ in 0..6 {
            for (table, frame) in (0..).zip(frames) {
                let page = Vpn(START + table * TABLE);
                let found = world
                    .vm
                    .space(space)
                    .translate(page)
                    .map(|(frame, _)| frame);
                assert_eq!(found, Ok(frame));
                let range = PageRange::new(page, 2);
                assert_eq!(
                    world.vm.space(space).is_accessible(range, Access::Write),
                    Ok(true)
                );
            }
        }
    };
    let pins = |_: CpuId| {
        for (table, frame) in (0..).zip(frames) {
            let mut frames = [frame];
            let page = Vpn(START + table * TABLE);
            let pinned = (world.vm.space(space))
                .pin_pages(page, Access::Write, &mut frames)
                .unwrap();
            assert_eq!(*pinned, [frame]);
        }
    };
    world.run(&[&look, &pins, &|_| lift(&world)]);
    assert!(moved(&world) > 0);
    world.finish(&[space], &[]);
}

fn unmaps<R: ReverseMap>() {
    let world = world::<R>();
    let space = space(&world, 2);
    let unmap = |cpu: CpuId| {
        for table in 0..2 {
            let page = START + table * TABLE;
            world.vm.space(space).unmap(Vpn(page), 1).unwrap();
            assert_eq!(
                world.load(cpu, space, at(page, 0)),
                Err(FaultError::NoRegion)
            );
            let dropped = Advice::DontNeed;
            world
                .vm
                .space(space)
                .advise(Vpn(page + 1), 1, dropped)
                .unwrap();
            assert_eq!(world.load(cpu, space, at(page + 1, 0)), Ok(0));
        }
    };
    let touch = |cpu: CpuId| {
        for table in 0..2 {
            for page in 0..3 {
                let _ = world.load(cpu, space, at(START + table * TABLE + page, 0));
            }
        }
    };
    world.run(&[&unmap, &touch, &|_| lift(&world)]);
    world.finish(&[space], &[]);
}

fn truncates<R: ReverseMap>() {
    let world = world::<R>();
    let (file, spaces) = world.alone(|| {
        let file = world.stored(1, 4);
        let spaces = [(); 2].map(|()| {
            let space = world.space();
            world.object(space, file, 0, START, 4, true);
            for page in 0..4 {
                let word = world.load(ZERO, space, at(START + page, 0));
                assert_eq!(word, Ok(pristine(1, page)));
            }
            space
        });
        (file, spaces)
    });
    let cut = |cpu: CpuId| {
        world.vm.file(file).set_size(2 << 12).unwrap();
        for space in spaces {
            let gone = world.load(cpu, space, at(START + 3, 0));
            assert_eq!(gone, Err(FaultError::PastEnd));
            assert_eq!(world.load(cpu, space, at(START + 1, 0)), Ok(pristine(1, 1)));
        }
    };
    let touch = |cpu: CpuId| {
        for space in spaces {
            for page in 0..4 {
                let _ = world.load(cpu, space, at(START + page, 0));
            }
        }
    };
    world.run(&[&cut, &touch, &|_| lift(&world)]);
    assert!(moved(&world) > 0);
    world.finish(&spaces, &[file]);
}

fn writes_back<R: ReverseMap>() {
    let world = world::<R>();
    let (file, space) = world.alone(|| {
        let file = world.stored(1, 4);
        let space = world.space();
        world.object(space, file, 0, START, 4, true);
        for page in 0..4 {
            world.load(ZERO, space, at(START + page, 0)).unwrap();
        }
        (file, space)
    });
    let touch = |cpu: CpuId| {
        for page in 0..4 {
            world
                .store(cpu, space, at(START + page, 0), 100 + page)
                .unwrap();
        }
    };
    let sync = |_: CpuId| {
        world.vm.file(file).sync().unwrap();
    };
    world.run(&[&touch, &sync, &|_| lift(&world)]);
    assert!(moved(&world) > 0);
    world.alone(|| {
        world.vm.file(file).sync().unwrap();
        for page in 0..4 {
            assert_eq!(world.store.stored_word(1, page << 12), Some(100 + page));
        }
    });
    world.finish(&[space], &[file]);
}

fn forks<R: ReverseMap>() {
    let world = world::<R>();
    let parent = space(&world, 2);
    let fork = |cpu: CpuId| {
        for _ in 0..2 {
            let child = world.vm.space(parent).fork().unwrap().id();
            for table in 0..2 {
                let page = START + table * TABLE;
                assert_eq!(world.load(cpu, child, at(page, 0)), Ok(table));
                world.store(cpu, child, at(page + 1, 0), 99).unwrap();
                assert_eq!(world.load(cpu, child, at(page + 1, 0)), Ok(99));
            }
            world.vm.space(child).exit().unwrap();
        }
    };
    let touch = |cpu: CpuId| {
        for table in 0..2 {
            let page = START + table * TABLE;
            assert_eq!(world.load(cpu, parent, at(page + 1, 0)), Ok(table));
            world.store(cpu, parent, at(page, 1), 7).unwrap();
        }
    };
    world.run(&[&fork, &touch, &|_| lift(&world)]);
    assert!(moved(&world) > 0);
    world.finish(&[parent], &[]);
}

fn remaps<R: ReverseMap>() {
    let world = world::<R>();
    let space = space(&world, 2);
    let away = Vpn(START + 4 * TABLE + 511);
    let go = |cpu: CpuId| {
        for _ in 0..2 {
            for (from, to) in [(Vpn(START), away), (away, Vpn(START))] {
                let to = RemapPlacement::Fixed(to);
                let moved = world.vm.space(space).remap(from, 2, 2, to).unwrap();
                for page in 0..2 {
                    assert_eq!(
                        world.load(cpu, space, at(moved.range.start.0 + page, 0)),
                        Ok(0)
                    );
                }
            }
        }
    };
    let touch = |cpu: CpuId| {
        for page in 0..2 {
            let address = at(START + TABLE + page, 0);
            assert_eq!(world.load(cpu, space, address), Ok(1));
        }
    };
    world.run(&[&go, &touch, &|_| lift(&world)]);
    assert!(moved(&world) > 0);
    world.finish(&[space], &[]);
}

fn exits<R: ReverseMap>() {
    let world = world::<R>();
    let spaces = [(); 2].map(|()| space(&world, 2));
    let exit = |cpu: CpuId| {
        let space = spaces[usize::from(cpu.0)];
        assert_eq!(world.vm.space(space).exit(), Ok(true));
        let next = world.space();
        world.anonymous(next, START, TABLE);
        world.store(cpu, next, at(START + 5, 0), 5).unwrap();
        assert_eq!(world.load(cpu, next, at(START + 5, 0)), Ok(5));
        assert_eq!(world.vm.space(next).exit(), Ok(true));
    };
    world.run(&[&exit, &exit, &|_| lift(&world)]);
    world.finish(&[], &[]);
}
