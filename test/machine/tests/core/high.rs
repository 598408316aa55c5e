//! Page tables in high memory, reached through windows that are there only while they
//! are open: where tables lie, what happens when low memory is used up, and how many
//! windows an operation opens.

use vellum::addr::{Access, Pfn, Prot, Vpn};
use vellum::platform::{CpuId, Zone};
use vellum::rmap::{Chains, Family, ReverseMap};
use vellum::space::{FaultError, MapRequest, Placement, Space};
use vellum::table::X86Pae;
use vellum::{Design, SpaceId, Vm};
use vellum_machine::mmu::{AccessError, X86_PAE};
use vellum_machine::{Arena, Machine, MachineConfig};

use crate::support;

const CPU: CpuId = CpuId(0);
/// Pages that one page table maps.
const TABLE: u64 = 512;

struct World<R: ReverseMap> {
    vm: Vm<Machine, X86Pae, R>,
}

impl<R: ReverseMap> World<R> {
    /// A machine with so many frames of low and of high memory.
    fn new(user_tables: &str, low: u32, high: u32) -> Self {
        let config = MachineConfig {
            high_from: Some(Pfn(0x100 + low)),
            biting_windows: true,
            ..MachineConfig::new(u64::from(low + high) << 12).with_walker(&X86_PAE)
        };
        let arena = Arena::shared(config.arena_bytes().unwrap()).unwrap();
        let machine = Machine::new(config, arena).unwrap();
        let design = format!("format=x86-pae,rmap={},userpte={user_tables}", R::NAME);
        let vm = Vm::new(machine, Design::parse(&design).unwrap()).unwrap();
        World { vm }
    }

    fn on<T>(&self, work: impl FnOnce() -> T) -> T {
        self.vm.platform().run_on(CPU, work)
    }

    /// A space in which everything from the second table on may be used.
    fn space(&self) -> SpaceId {
        self.on(|| {
            let space = self.vm.create_space().unwrap().id();
            let request = MapRequest::anonymous((3 << 18) - 2 * TABLE, Prot::READ_WRITE);
            let request = request.at(Placement::Fixed(Vpn(TABLE)));
            self.vm.space(space).map(&request).unwrap();
            space
        })
    }

    /// A store to the first page of a table, or a load of what was stored.
    fn access(&self, space: SpaceId, table: u64, access: Access) -> Result<u64, FaultError> {
        let address = (table * TABLE) << 12;
        let done = self.on(|| support::access(&self.vm, CPU, space, address, access, table));
        done.map_err(|error| match error {
            AccessError::Refused(error) => error,
            AccessError::Unresolved { fault, .. } | AccessError::Conflict(fault) => {
                panic!("still faults: {fault}")
            }
        })
    }

    /// Stores to the first page of each of `tables`; how many that were before memory
    /// ran out.
    fn fill(&self, space: SpaceId, tables: std::ops::Range<u64>) -> u64 {
        let first = tables.start;
        for table in tables.clone() {
            match self.access(space, table, Access::Write) {
                Ok(_) => {}
                Err(FaultError::OutOfMemory) => return table - first,
                Err(error) => panic!("table {table}: {error}"),
            }
        }
        tables.end - first
    }

    fn check(&self, space: SpaceId, tables: std::ops::Range<u64>) {
        for table in tables {
            assert_eq!(self.access(space, table, Access::Read), Ok(table));
        }
    }

    fn unmap(&self, space: SpaceId, tables: std::ops::Range<u64>) {
        let pages = (tables.end - tables.start) * TABLE;
        self.on(|| {
            self.vm
                .space(space)
                .unmap(Vpn(tables.start * TABLE), pages)
                .unwrap()
        });
    }

    /// Frames in use in low and in high memory.
    fn used(&self) -> [u64; 2] {
        self.on(|| {
            let (memory, pin) = (self.vm.memory(), self.vm.pin());
            // Frames in the CPU's lists are free, too.
            for _ in 0..4 {
                memory.drain(&pin);
            }
            let mut used = [0; 2];
            for zone in 0..memory.zone_count() {
                let stats = memory.zone_stats(zone, &pin);
                used[usize::from(stats.zone == Zone::High)] += stats.total - stats.free;
            }
            used
        })
    }

    /// Tables that were moved from low to high memory.
    fn moved(&self) -> u64 {
        self.on(|| self.vm.stats().events.tables_moved)
    }

    fn windows(&self) -> [u64; 2] {
        let stats = self.vm.platform().stats();
        [stats.table_windows, stats.table_windows_nested]
    }

    /// Windows to tables that `work` opens, and those of them that were nested.
    fn windows_of(&self, work: impl FnOnce()) -> [u64; 2] {
        let before = self.windows();
        self.on(work);
        let after = self.windows();
        [after[0] - before[0], after[1] - before[1]]
    }

    fn audit(&self) {
        self.on(|| {
            if let Err(failure) = self.vm.audit() {
                panic!("audit: {failure}");
            }
        });
    }

    fn finish(&self, spaces: &[SpaceId]) {
        self.audit();
        self.on(|| {
            for &space in spaces {
                self.vm.space(space).exit().unwrap();
            }
            let report = self.vm.audit().unwrap();
            assert_eq!((report.tables, report.entries), (0, 0));
        });
    }
}

/// 250 frames of low memory are used up by tables; 3000 of high memory are there.
fn low_memory_is_used_up<R: ReverseMap>() {
    let world = World::<R>::new("nohigh", 400, 3000);
    let space = world.space();
    let filled = world.fill(space, 1..1000);
    assert!((200..400).contains(&filled), "{filled}");
    let refused = world.access(space, filled + 1, Access::Write);
    assert_eq!(refused, Err(FaultError::OutOfMemory));
    world.audit();
    world.check(space, 1..filled + 1);
    assert_eq!(world.windows(), [0, 0], "tables of low memory need none");
    // What is given back serves again.
    world.unmap(space, 1..filled / 2);
    world.on(|| (0..3).for_each(|_| world.vm.relieve()));
    world.check(space, filled / 2..filled + 1);
    let again = world.fill(space, filled + 1..1000);
    assert!(again + 20 > filled / 2, "{again} of {filled}");
    world.finish(&[space]);

    for user_tables in ["high", "auto"] {
        let world = World::<R>::new(user_tables, 400, 3000);
        let space = world.space();
        assert_eq!(world.fill(space, 1..1000), 999, "{user_tables} goes on");
        world.audit();
        world.check(space, 1..1000);
        world.unmap(space, 1..500);
        world.check(space, 500..1000);
        world.finish(&[space]);
    }
}

#[test]
fn tables_of_low_memory_only_fail_where_others_go_on_and_nothing_is_lost() {
    low_memory_is_used_up::<Family>();
    low_memory_is_used_up::<Chains>();
}

#[test]
fn tables_lie_where_the_design_says() {
    let used = |user_tables: &str| {
        let world = World::<Family>::new(user_tables, 4000, 4000);
        let space = world.space();
        let before = world.used();
        assert_eq!(world.fill(space, 1..1401), 1400);
        let after = world.used();
        world.finish(&[space]);
        [0, 1].map(|zone| after[zone] - before[zone])
    };
    // Pages are in high memory, with some of the manager's own in low memory.
    let [low, high] = used("high");
    assert!(low < 50 && high >= 2800, "{low} {high}");
    let [low, high] = used("nohigh");
    assert!(
        (1400..1450).contains(&low) && (1400..1450).contains(&high),
        "{low} {high}"
    );
    let [low, high] = used("auto");
    assert!(
        (1400..1450).contains(&low) && (1400..1450).contains(&high),
        "{low} {high}"
    );
}

/// With `auto` tables take low memory while there is some, and give it up to others who
/// can use no other.
#[test]
fn tables_make_room_in_low_memory_for_those_who_have_no_other() {
    tables_make_room::<Family>();
    tables_make_room::<Chains>();
}

fn tables_make_room<R: ReverseMap>() {
    let world = World::<R>::new("auto", 1000, 5000);
    let space = world.space();
    assert_eq!(world.fill(space, 1..1401), 1400);
    let [low, _] = world.used();
    assert!((900..1000).contains(&low), "{low} of 1000");
    assert_eq!(world.moved(), 0);
    // Roots and directories, 5 frames a space with one page.
    let others: Vec<SpaceId> = (0..120).map(|_| world.space()).collect();
    for (number, &other) in (1..).zip(&others) {
        world.access(other, number, Access::Write).unwrap();
    }
    let moved = world.moved();
    assert!(moved >= 400, "{moved} tables moved");
    world.audit();
    world.check(space, 1..1401);
    for (number, &other) in (1..).zip(&others) {
        assert_eq!(world.access(other, number, Access::Read), Ok(number));
    }
    // What is free again, tables may have.
    world.unmap(space, 1..1401);
    world.on(|| {
        others[60..].iter().for_each(|&other| {
            world.vm.space(other).exit().unwrap();
        })
    });
    world.on(|| (0..3).for_each(|_| world.vm.relieve()));
    let fresh = world.space();
    let [before, _] = world.used();
    assert_eq!(world.fill(fresh, 1..101), 100);
    let [after, _] = world.used();
    assert!(after >= before + 100, "{before} {after}");
    world.finish(&[&[space, fresh], &others[..60]].concat());
}

/// A fork needs more low memory at once than the first tables that move leave.
#[test]
fn tables_make_room_as_often_as_a_call_needs() {
    let world = World::<Family>::new("auto", 300, 3000);
    let parent = world.space();
    // A page in each of the three directories.
    for table in [1, 513, 1025] {
        world.access(parent, table, Access::Write).unwrap();
    }
    let other = world.space();
    assert_eq!(world.fill(other, 1..601), 600);
    let fork = || world.on(|| world.vm.space(parent).fork().map(Space::id));
    let children: Vec<SpaceId> = (0..25).map(|_| fork().unwrap()).collect();
    assert!(world.moved() > 0);
    world.check(other, 1..601);
    world.finish(&[&[parent, other], &children[..]].concat());
}

#[test]
fn tables_do_not_take_the_low_memory_that_they_had_to_give_up() {
    let world = World::<Family>::new("auto", 1000, 5000);
    let space = world.space();
    assert_eq!(world.fill(space, 1..1201), 1200);
    assert_eq!(world.on(|| world.vm.relieve_low(300)), 300);
    let [before, _] = world.used();
    assert_eq!(world.fill(space, 1201..1401), 200);
    let [after, _] = world.used();
    assert!(after < before + 50, "{before} {after}");
    world.finish(&[space]);
}

#[test]
fn tables_move_on_demand_if_the_design_lets_them() {
    for (user_tables, expected) in [("auto", 7), ("high", 0), ("nohigh", 0)] {
        let world = World::<Family>::new(user_tables, 1000, 1000);
        let space = world.space();
        world.fill(space, 1..21);
        let [before, _] = world.used();
        assert_eq!(
            world.on(|| world.vm.relieve_low(7)),
            expected,
            "{user_tables}"
        );
        let [after, _] = world.used();
        assert_eq!(before - after, u64::from(expected));
        world.check(space, 1..21);
        world.finish(&[space]);
    }
    // Without high memory there is nowhere to move to.
    let world = World::<Family>::new("auto", 1000, 40);
    let space = world.space();
    world.fill(space, 1..61);
    assert_eq!(
        world.on(|| world.vm.relieve_low(30)),
        0,
        "high memory is full of pages"
    );
    world.check(space, 1..61);
    world.finish(&[space]);
}

/// One window where Linux had one `pte_offset_map`: for the entry that a fault looks at
/// first, and for the table that it locks; two in fork, one inside the other, for the
/// two tables; and one for each table that is zapped.
#[test]
fn an_operation_opens_as_many_windows_as_it_uses_tables() {
    for (user_tables, factor) in [("high", 1), ("nohigh", 0)] {
        let world = World::<Family>::new(user_tables, 1500, 3000);
        let (vm, space) = (&world.vm, world.space());
        let times = |counts: [u64; 2]| counts.map(|count| count * factor);
        let fault = |page: u64| vm.space(space).fault(page << 12, Access::Write).unwrap();
        let first = world.windows_of(|| {
            fault(8 * TABLE);
        });
        assert_eq!(
            first,
            times([1, 0]),
            "a first fault writes one entry to a new table"
        );
        let next = world.windows_of(|| {
            fault(8 * TABLE + 1);
        });
        assert_eq!(next, times([2, 0]), "a fault looks, and locks");
        for page in 2..40 {
            world.on(|| {
                fault(8 * TABLE + page);
            });
        }
        for table in 9..12 {
            world.on(|| {
                fault(table * TABLE);
            });
        }
        let mut child = None;
        let forked = world.windows_of(|| child = Some(vm.space(space).fork().unwrap().id()));
        assert_eq!(
            forked,
            times(FORKED.map(|count| 4 * count)),
            "however many entries"
        );
        let child = child.unwrap();
        let exited = world.windows_of(|| {
            vm.space(child).exit().unwrap();
        });
        assert_eq!(
            exited,
            times(ZAPPED.map(|count| 4 * count)),
            "however many entries"
        );
        world.finish(&[space]);
    }
}

/// Windows opened for each table that fork copies, and nested ones.
const FORKED: [u64; 2] = [2, 1];
/// For each table that is zapped.
const ZAPPED: [u64; 2] = [1, 0];
