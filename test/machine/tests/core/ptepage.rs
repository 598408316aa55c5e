//! Sources of page tables on machines with several CPUs and nodes: what they
//! keep is bounded, accounted for, and at home.

use std::sync::Arc;

use vellum::addr::{Access, Prot, Vpn};
use vellum::design::variants;
use vellum::platform::CpuId;
use vellum::rmap::Partial;
use vellum::space::{MapRequest, Placement};
use vellum::table::X86_64;
use vellum::{Design, SpaceId, Vm};
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};

use crate::support::{Rng, number};

type Manager = Vm<Machine, X86_64, Partial>;

/// Pages that one leaf table maps.
const TABLE: u64 = 512;
const START: u64 = 8 * TABLE;

fn manager(design: &str, cpus: usize, nodes: usize, mib: u64) -> Manager {
    let config = MachineConfig {
        cpus,
        nodes,
        ..MachineConfig::new(mib << 20)
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    Vm::new(machine, Design::parse(design).unwrap()).unwrap()
}

fn on<T>(vm: &Manager, cpu: u16, work: impl FnOnce() -> T) -> T {
    vm.platform().run_on(CpuId(cpu), work)
}

/// A space with a region of `tables` leaf tables.
fn space_of(vm: &Manager, tables: u64) -> SpaceId {
    let space = vm.create_space().unwrap().id();
    let request = MapRequest::anonymous(tables * TABLE, Prot::READ_WRITE);
    let request = request.at(Placement::Fixed(Vpn(START)));
    vm.space(space).map(&request).unwrap();
    space
}

/// A load for each of the tables `tables`, none of them at the first entry.
fn touch(vm: &Manager, space: SpaceId, tables: std::ops::Range<u64>) {
    for table in tables {
        let page = START + table * TABLE + table % TABLE;
        vm.space(space).fault(page << 12, Access::Read).unwrap();
    }
}

/// Every CPU idles until it has nothing left to do.
fn idle_all(vm: &Manager, cpus: u16) {
    for _ in 0..3 {
        for cpu in 0..cpus {
            on(vm, cpu, || while vm.idle() {});
        }
    }
}

/// Numbers from `VELLUM_SEED`, or else from `seed`, which is printed.
fn seeded(seed: u64) -> Rng {
    let seed = number("VELLUM_SEED").unwrap_or(seed);
    println!("seed {seed} (VELLUM_SEED={seed} repeats it)");
    Rng(seed)
}

/// Frames free in the node that has most.
fn most_free(vm: &Manager, nodes: u64) -> u64 {
    let pin = vm.pin();
    let free = |node| vm.memory().zone_stats(node as usize, &pin).free;
    (0..nodes).map(free).max().unwrap_or(0)
}

/// The most that one CPU may keep while its node has `free` frames: a sixteenth,
/// 25 tables at least.
fn bound(free: u64) -> u64 {
    (free / 16).max(25)
}

/// Sources that keep tables, and so may keep those of another node.
fn keeps(design: &str) -> bool {
    !["fresh", "noted", "zeroaware"]
        .iter()
        .any(|name| design.contains(name))
}

/// Tables that the CPUs and depots of a machine keep never exceed what the
/// watermark allows, whatever comes and goes where, and every frame is in one
/// place throughout.
#[test]
fn held_tables_stay_below_the_watermark_on_8_cpus_and_4_nodes() {
    const CPUS: u16 = 8;
    const NODES: u64 = 4;
    for design in variants("ptepage") {
        let vm = manager(&design, usize::from(CPUS), NODES as usize, 24);
        let is_bounded = !design.contains("quickmark=total");
        let mut free = on(&vm, 0, || most_free(&vm, NODES));
        let depots = if design.contains("depot") { NODES } else { 0 };
        let places = u64::from(CPUS) + depots;
        let mut rng = seeded(4);
        let mut spaces: Vec<(SpaceId, u64)> = Vec::new();
        for step in 0..3000 {
            // A space is used wherever it happens to be: it migrates.
            let cpu = rng.below(u64::from(CPUS)) as u16;
            let draw = rng.below(100);
            on(&vm, cpu, || match draw {
                0..20 if spaces.len() < 24 => {
                    let tables = 1 + rng.below(40);
                    spaces.push((space_of(&vm, tables), tables));
                }
                0..40 if !spaces.is_empty() && spaces.len() < 24 => {
                    let (space, tables) = spaces[rng.below(spaces.len() as u64) as usize];
                    spaces.push((vm.space(space).fork().unwrap().id(), tables));
                }
                0..70 if !spaces.is_empty() => {
                    let (space, tables) = spaces[rng.below(spaces.len() as u64) as usize];
                    let first = rng.below(tables);
                    touch(&vm, space, first..tables);
                }
                0..92 if !spaces.is_empty() => {
                    let nth = rng.below(spaces.len() as u64) as usize;
                    vm.space(spaces.swap_remove(nth).0).exit().unwrap();
                }
                92..95 => {
                    vm.idle();
                    vm.zero_idle(16);
                }
                95 => vm.relieve(),
                _ => {}
            });
            let stats = vm.stats().tables;
            if is_bounded {
                // A step frees or takes frames and does not do both.
                free = free.max(on(&vm, 0, || most_free(&vm, NODES)));
                let per_cpu = bound(free);
                assert!(
                    stats.held_peak <= places * per_cpu,
                    "{design}, step {step}: {} tables kept at once, {places} places may keep \
                     {per_cpu} each",
                    stats.held_peak
                );
            }
            if keeps(&design) && !design.contains("blind") {
                assert_eq!(stats.trapped, 0, "{design}, step {step}");
            }
            if step % 100 == 0 {
                on(&vm, 0, || {
                    let report = vm
                        .audit()
                        .unwrap_or_else(|error| panic!("{design}, step {step}: {error}"));
                    assert_eq!(report.free_tables, stats.held + stats.waiting, "{design}");
                });
            }
        }
        for (space, _) in spaces {
            on(&vm, rng.below(u64::from(CPUS)) as u16, || {
                vm.space(space).exit().unwrap()
            });
        }
        idle_all(&vm, CPUS);
        let report = on(&vm, 0, || vm.audit().unwrap());
        let stats = vm.stats().tables;
        assert_eq!((report.tables, report.spaces), (0, 0), "{design}");
        assert_eq!(report.free_tables, stats.held + stats.waiting, "{design}");
        // CPUs that go offline keep nothing.
        for cpu in 0..CPUS {
            on(&vm, cpu, || assert_eq!(vm.offline(), 0, "{design}"));
        }
        let stats = vm.stats();
        assert_eq!(
            (stats.tables.held, stats.tables.waiting),
            (0, 0),
            "{design}"
        );
        let free = on(&vm, 0, || vm.audit().unwrap()).free_tables;
        assert_eq!(free, 0, "{design}");
    }
}

/// What is kept follows what is free, not how much memory there is: with an
/// eighth of it free a CPU keeps a sixteenth of that, and when more is used up,
/// idling gives back what is then too much.
#[test]
fn what_is_kept_follows_the_memory_that_is_free() {
    for design in variants("ptepage") {
        // Nearly all tables here are of the lowest level, which one design has no list for.
        let few = design.contains("quicklevels=upper");
        if !keeps(&design) || few || design.contains("quickmark=total") {
            continue;
        }
        let vm = manager(&design, 1, 1, 64);
        on(&vm, 0, || {
            let leave = |free: u64| {
                let request = vellum::frame::Request::page(vellum::frame::Site::AnonymousPage);
                let mut taken = Vec::new();
                while most_free(&vm, 1) > free {
                    taken.push(vm.memory().alloc(&vm.pin(), request).unwrap());
                }
                taken
            };
            let space = space_of(&vm, 600);
            touch(&vm, space, 0..600);
            let mut taken = leave(2048);
            vm.space(space).exit().unwrap();
            // Another space moves the epochs on and what waits onto the lists.
            for _ in 0..3 {
                let next = space_of(&vm, 40);
                touch(&vm, next, 0..40);
                vm.space(next).exit().unwrap();
            }
            let places = if design.contains("depot") { 2 } else { 1 };
            let most = places * bound(most_free(&vm, 1));
            let stats = vm.stats().tables;
            assert!(stats.held <= most, "{design}: {stats:?}, at most {most}");
            assert!(
                stats.held >= most / 4,
                "{design}: {stats:?}, at most {most}"
            );
            assert!(stats.trimmed > 0, "{design}: {stats:?}");
            taken.extend(leave(512));
            while vm.idle() {}
            let most = places * bound(most_free(&vm, 1));
            let stats = vm.stats().tables;
            assert!(stats.held <= most, "{design}: {stats:?}, at most {most}");
            drop(taken);
        });
    }
}

/// Forks on node 0, exits on node 1: what each design leaves there.
fn migrated(design: &str) -> (Manager, u64) {
    const TABLES: u64 = 40;
    let vm = manager(design, 2, 2, 32);
    for _ in 0..8 {
        let space = on(&vm, 0, || {
            let space = space_of(&vm, TABLES);
            touch(&vm, space, 0..TABLES);
            space
        });
        on(&vm, 1, || vm.space(space).exit().unwrap());
    }
    idle_all(&vm, 2);
    // Frames of the other node, in whatever list of this CPU's.
    let trapped = on(&vm, 1, || {
        let stats = vm.stats();
        vm.audit().unwrap();
        stats.tables.trapped
    });
    (vm, trapped)
}

#[test]
fn tables_of_a_migrated_space_go_home_and_without_the_fix_are_trapped() {
    for design in variants("ptepage") {
        let (vm, trapped) = migrated(&design);
        println!("{design}: {trapped} tables of node 0 kept on node 1");
        if design.contains("blind") {
            assert!(trapped >= 40, "{design}: {trapped} tables trapped");
            continue;
        }
        assert!(
            trapped == 0 || !keeps(&design),
            "{design}: {trapped} tables trapped"
        );
        let stats = vm.stats().tables;
        assert!(stats.remote_frees >= 8 * 40, "{design}: {stats:?}");
        // And nothing of node 0 waits in the lists of CPU 1 either: it can have
        // all of the node's memory.
        on(&vm, 0, || {
            let pin = vm.pin();
            let free = vm.memory().zone_stats(0, &pin).free;
            drop(pin);
            vm.relieve();
            let pin = vm.pin();
            let zone = vm.memory().zone_stats(0, &pin);
            assert!(
                zone.free >= free && zone.total - zone.free < 400,
                "{design}: {zone:?}"
            );
        });
    }
}

/// The loop of the program of 2004: after the first rounds nothing is zeroed
/// for tables, but by the design that has to.
#[test]
fn strided_faults_find_their_tables_zeroed() {
    for design in variants("ptepage") {
        let vm = manager(&design, 1, 1, 32);
        on(&vm, 0, || {
            let parent = space_of(&vm, 32);
            let round = || {
                let child = vm.space(parent).fork().unwrap().id();
                touch(&vm, child, 0..32);
                vm.space(child).exit().unwrap();
            };
            for _ in 0..8 {
                round();
            }
            let before = vm.stats().tables;
            for _ in 0..32 {
                round();
            }
            let after = vm.stats().tables;
            let taken = after.taken - before.taken;
            assert_eq!(taken, 32 * (32 + 3), "{design}");
            let zeroed = after.bytes_zeroed - before.bytes_zeroed;
            if design == "ptepage=fresh" {
                assert_eq!(zeroed, taken * 4096);
                assert_eq!(after.hits, 0);
            } else if design.contains("quicklevels=upper") {
                // The complaint of 2004: no list for the tables of a fault.
                assert_eq!(zeroed, 32 * 32 * 4096, "{design}");
                assert_eq!(after.hits - before.hits, 32 * 3, "{design}");
            } else {
                assert_eq!(zeroed, 0, "{design}");
                assert_eq!(after.hits - before.hits, taken, "{design}");
            }
            vm.space(parent).exit().unwrap();
        });
    }
}

/// An allocation that finds no memory gets what the CPU keeps for tables.
#[test]
fn kept_tables_are_memory_to_whoever_is_short() {
    for design in variants("ptepage") {
        let vm = manager(&design, 1, 1, 16);
        on(&vm, 0, || {
            let space = space_of(&vm, 300);
            touch(&vm, space, 0..300);
            vm.space(space).exit().unwrap();
            let kept = vm.stats().tables;
            assert_eq!(
                kept.held + kept.waiting > 0,
                keeps(&design),
                "{design}: {kept:?}"
            );
            let request = vellum::frame::Request::page(vellum::frame::Site::AnonymousPage);
            let mut frames = Vec::new();
            // The epochs of what waits pass between the pins.
            for _ in 0..3 {
                while let Ok(frame) = vm.memory().alloc(&vm.pin(), request.urgent()) {
                    frames.push(frame);
                }
            }
            let stats = vm.stats();
            assert_eq!(
                (stats.tables.held, stats.tables.waiting),
                (0, 0),
                "{design}"
            );
            assert_eq!(stats.frames.free + stats.frames.cached, 0, "{design}");
            drop(frames);
        });
    }
}

/// Threads on all CPUs fault and unmap, each other's spaces too, while idle
/// work is done between.
#[test]
fn threads_that_unmap_each_others_tables_lose_none() {
    const CPUS: u16 = 4;
    for design in variants("ptepage") {
        let vm = Arc::new(manager(&design, usize::from(CPUS), 2, 64));
        let spaces: Vec<SpaceId> = (0..CPUS)
            .map(|cpu| on(&vm, cpu, || space_of(&vm, 24)))
            .collect();
        std::thread::scope(|scope| {
            for cpu in 0..CPUS {
                let (vm, spaces) = (Arc::clone(&vm), &spaces);
                scope.spawn(move || {
                    let mut rng = Rng(u64::from(cpu));
                    for round in 0..300 {
                        // Pins may not nest over threads: one CPU each.
                        on(&vm, cpu, || {
                            let space = spaces[rng.below(u64::from(CPUS)) as usize];
                            let first = rng.below(24);
                            // While a thread of the host stands still pinned,
                            // nothing that is retired can be used again.
                            for table in first..24 {
                                let address = (START + table * TABLE) << 12;
                                let done = vm.space(space).fault(address, Access::Read);
                                let short = Err(vellum::space::FaultError::OutOfMemory);
                                assert!(done.is_ok() || done == short, "{done:?}");
                            }
                            let pages = (24 - first) * TABLE;
                            let dropped = vellum::space::Advice::DontNeed;
                            vm.space(space)
                                .advise(Vpn(START + first * TABLE), pages, dropped)
                                .unwrap();
                            match round % 16 {
                                0 => drop(vm.idle()),
                                5 => drop(vm.zero_idle(4)),
                                9 => vm.relieve(),
                                _ => {}
                            }
                        });
                    }
                });
            }
        });
        on(&vm, 0, || {
            for space in spaces {
                vm.space(space).exit().unwrap();
            }
            let report = vm
                .audit()
                .unwrap_or_else(|error| panic!("{design}: {error}"));
            assert_eq!((report.tables, report.entries), (0, 0), "{design}");
        });
    }
}
