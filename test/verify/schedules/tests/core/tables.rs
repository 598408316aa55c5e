//! Page tables that are unlinked, listed and used anew beside walks, for every
//! source of them (invariants 4 and 7); those of PAE under a root that stays as it is.

use crate::world::{World, at, explore_one};
use vellum::addr::Vpn;
use vellum::design::variants;
use vellum::platform::CpuId;
use vellum::rmap::{Chains, Family, Partial, ReverseMap};
use vellum::space::Advice;
use vellum::table::{Format, X86_64, X86Pae};

const ZERO: CpuId = CpuId(0);
/// Pages that one leaf table maps.
const TABLE: u64 = 512;
const START: u64 = 8 * TABLE;

/// Each source of page tables, with what changes how it works, under the
/// schedules of `$body`, on x86-64 and, fewer of them, on x86-pae.
macro_rules! every_source {
    ($($name:ident: $count:expr => $body:ident;)*) => { $(
        #[test]
        fn $name() {
            let bodies: [(&str, u64, fn(&str)); 3] = [
                ("x86-64", $count, $body::<Partial, X86_64>),
                ("x86-pae, family", $count / 4, $body::<Family, X86Pae>),
                ("x86-pae, chains", $count / 4, $body::<Chains, X86Pae>),
            ];
            for design in variants("ptepage") {
                for (format, count, body) in bodies {
                    let design = design.clone();
                    let name = format!("{format}, {design}");
                    explore_one(&name, count, move || body(&design));
                }
            }
        }
    )* };
}

every_source! {
    a_walk_never_follows_a_listed_table: 32 => walk_and_unmap;
    tables_of_exiting_children_are_used_anew_elsewhere: 20 => exit_and_fault;
}

/// Two CPUs make and drop the same tables, a third walks them with and without
/// the hardware's help: all it ever sees is zeroes, through the zero page or
/// through nothing.
fn walk_and_unmap<R: ReverseMap, F: Format>(design: &str) {
    let world = World::<R, F>::on(3, 256, design);
    let (space, zero_page) = world.alone(|| {
        let space = world.space();
        world.anonymous(space, START, 3 * TABLE);
        // Tables that are listed already, so that links lead somewhere.
        for table in 0..3 {
            world
                .load(ZERO, space, at(START + table * TABLE, 0))
                .unwrap();
        }
        let (zero_page, _) = world.vm.space(space).translate(Vpn(START)).unwrap();
        let dropped = Advice::DontNeed;
        world
            .vm
            .space(space)
            .advise(Vpn(START), 3 * TABLE, dropped)
            .unwrap();
        for _ in 0..3 {
            world.drain();
        }
        (space, zero_page)
    });
    let change = |cpu: CpuId| {
        for round in 0..4 {
            for table in 0..2 {
                let page = START + table * TABLE;
                assert_eq!(world.load(cpu, space, at(page, 1)), Ok(0));
            }
            let dropped = Advice::DontNeed;
            world
                .vm
                .space(space)
                .advise(Vpn(START), 2 * TABLE, dropped)
                .unwrap();
            if round == 2 {
                world.vm.idle();
            }
        }
    };
    let walk = |cpu: CpuId| {
        for _ in 0..6 {
            for table in 0..2 {
                // The first entry: where a quicklist has its link.
                let page = Vpn(START + table * TABLE);
                if let Ok((frame, _)) = world.vm.space(space).translate(page) {
                    assert_eq!(frame, zero_page, "a link was taken for an entry");
                }
            }
            assert_eq!(world.load(cpu, space, at(START + TABLE, 2)), Ok(0));
        }
    };
    world.run(&[&change, &change, &walk]);
    world.finish(&[space], &[]);
}

/// Children end on one CPU while others fault tables in and memory is given back.
fn exit_and_fault<R: ReverseMap, F: Format>(design: &str) {
    let world = World::<R, F>::on(3, 400, design);
    let (parent, children) = world.alone(|| {
        let parent = world.space();
        world.anonymous(parent, START, 4 * TABLE);
        let children = [(); 3].map(|()| {
            let child = world.vm.space(parent).fork().unwrap().id();
            for table in 0..4 {
                world
                    .store(ZERO, child, at(START + table * TABLE, 0), 7)
                    .unwrap();
            }
            child
        });
        (parent, children)
    });
    let exits = |_: CpuId| {
        for child in children {
            assert_eq!(world.vm.space(child).exit(), Ok(true));
        }
    };
    let faults = |cpu: CpuId| {
        for round in 0..3 {
            for table in 0..4 {
                let address = at(START + table * TABLE, u64::from(cpu.0));
                world.store(cpu, parent, address, round).unwrap();
                assert_eq!(world.load(cpu, parent, address), Ok(round));
            }
            world.vm.relieve();
        }
    };
    world.run(&[&exits, &faults, &faults]);
    world.finish(&[parent], &[]);
}
