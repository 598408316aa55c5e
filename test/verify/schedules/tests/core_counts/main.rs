//! What a fault in the steady state does to cache lines: nothing is written
//! that another CPU's faults in the same region write too.

mod files;
mod reverse_mapping;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

// Its instances of the core serve these tests too.
use vellum::addr::{Access, Prot, Vpn};
use vellum::design::variants;
use vellum::platform::{CpuId, Machine as _};
use vellum::rmap::{AnonVma, Chains, Family, Partial, ReverseMap};
use vellum::space::{Advice, MapRequest, Resolved, SpaceId};
use vellum::table::X86_64;
use vellum::{Design, Vm};
use vellum_engine_counted as _;
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};
use vellum_schedules::{Accesses, Kind, record_accesses};

const RW: Prot = Prot::READ_WRITE;
/// Pages that one leaf table maps.
const TABLE: u64 = 512;
/// Pages each CPU faults in.
const PAGES: u64 = 40;

type Manager<R> = Vm<Machine, X86_64, R>;

fn manager<R: ReverseMap>(design: &str) -> Manager<R> {
    let config = MachineConfig {
        cpus: 2,
        ..MachineConfig::new(4096 * 4096)
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let design = Design::parse(&format!("rmap={},{design}", R::NAME)).unwrap();
    Vm::new(machine, design).unwrap()
}

/// One fault: what it accessed, and where what it may write for itself lies.
struct Fault {
    accesses: Accesses,
    own: [(&'static str, Range<usize>); 2],
}

impl Fault {
    /// The lines that the fault wrote, its page and the page's record aside.
    fn lines(&self) -> BTreeSet<usize> {
        let mut lines = self.accesses.writing().lines();
        for (_, range) in &self.own {
            lines.retain(|line| line + 64 <= range.start || *line >= range.end);
        }
        lines
    }

    /// One line of text for each access.
    fn list(&self, shared: &BTreeSet<usize>) -> String {
        let mut text = String::new();
        for access in &self.accesses.0 {
            let own = self
                .own
                .iter()
                .find(|(_, range)| range.contains(&access.address));
            let place = match own {
                Some((name, _)) => name,
                None if shared.contains(&(access.address & !63)) => "SHARED",
                None => "",
            };
            let _ = writeln!(text, "  {:?} {:#x} {place}", access.kind, access.address);
        }
        text
    }
}

/// Faults of one CPU on pages that it has had before, its lists warm.
fn steady_faults<R: ReverseMap>(
    vm: &Manager<R>,
    cpu: CpuId,
    space: SpaceId,
    start: Vpn,
) -> Vec<Fault> {
    vm.platform().run_on(cpu, || {
        for _ in 0..3 {
            vm.space(space).populate(start, PAGES).unwrap();
            vm.space(space)
                .advise(start.offset(1), PAGES - 1, Advice::DontNeed)
                .unwrap();
        }
        // The table stays because of the first page, and the region is known
        // to the CPU from the next.
        vm.space(space).populate(start, 2).unwrap();
        let fault = |step| {
            let page = start.offset(step);
            let address = page.address::<X86_64>();
            let (done, accesses) =
                record_accesses(|| vm.space(space).fault(address, Access::Write));
            done.unwrap();
            let (pfn, _) = vm.space(space).translate(page).unwrap();
            let record = vm.memory().frame(pfn).address();
            let bytes = vm.platform().frame(pfn).addr().get();
            Fault {
                accesses,
                own: [
                    ("the page's frame record", record..record + 32),
                    ("the page", bytes..bytes + 4096),
                ],
            }
        };
        (2..PAGES).map(fault).collect()
    })
}

/// Steady faults of two CPUs in one region.
fn both_cpus<R: ReverseMap>(design: &str) -> [Vec<Fault>; 2] {
    let vm = manager::<R>(design);
    let (space, start) = vm.platform().run_on(CpuId(0), || {
        let space = vm.create_space().unwrap().id();
        // Another region, so that there is a tree.
        vm.space(space)
            .map(&MapRequest::anonymous(1, RW).shared())
            .unwrap();
        let start = vm
            .space(space)
            .map(&MapRequest::anonymous(8 * TABLE, RW))
            .unwrap();
        (space, start)
    });
    [1, 4].map(|table| {
        let cpu = CpuId(u16::from(table == 4));
        let page = Vpn((start.0 / TABLE + table) * TABLE);
        steady_faults(&vm, cpu, space, page)
    })
}

fn shares_no_written_line<R: ReverseMap>(design: &str) {
    let faults = both_cpus::<R>(design);
    let [first, second] = [0, 1].map(|cpu: usize| {
        faults[cpu]
            .iter()
            .flat_map(Fault::lines)
            .collect::<BTreeSet<usize>>()
    });
    let shared: BTreeSet<usize> = first.intersection(&second).copied().collect();
    assert!(
        shared.is_empty(),
        "{} {design}: faults of two CPUs write the same lines {shared:x?}; one fault:\n{}",
        R::NAME,
        faults[0][PAGES as usize / 2].list(&shared)
    );
    assert!(!first.is_empty() && !second.is_empty());
}

#[test]
fn steady_anonymous_faults_of_two_cpus_write_no_common_line() {
    shares_no_written_line::<Chains>("");
    shares_no_written_line::<Partial>("");
    shares_no_written_line::<Chains>("direct=off");
    shares_no_written_line::<Family>("");
    for source in variants("ptepage") {
        shares_no_written_line::<Partial>(&source);
    }
}

/// Lines that strided read faults of one CPU write, each in a table of its own,
/// with free tables at hand.
fn strided_lines(vm: &Manager<Partial>, cpu: CpuId, space: SpaceId, start: Vpn) -> BTreeSet<usize> {
    const POOL: u64 = 64;
    vm.platform().run_on(cpu, || {
        let fault = |table: u64| {
            let address = start.offset(table * TABLE + 3).address::<X86_64>();
            vm.space(space).fault(address, Access::Read).unwrap();
        };
        // A table that keeps those above it alive.
        fault(POOL);
        for _ in 0..4 {
            (0..POOL).for_each(fault);
            vm.space(space)
                .advise(start, POOL * TABLE, Advice::DontNeed)
                .unwrap();
        }
        // What was retired last waits for its epoch.
        for _ in 0..3 {
            vm.idle();
        }
        let (_, accesses) = record_accesses(|| (0..8).for_each(fault));
        accesses.writing().lines()
    })
}

#[test]
fn steady_faults_that_make_tables_write_no_common_line() {
    for design in variants("ptepage") {
        let vm = manager::<Partial>(&design);
        // Far apart: tables of one parent share its lock.
        let far = TABLE * TABLE;
        let start = Vpn(4 * far);
        let space = vm.platform().run_on(CpuId(0), || {
            let space = vm.create_space().unwrap().id();
            let request = MapRequest::anonymous(2 * far, RW);
            let request = request.at(vellum::space::Placement::Fixed(start));
            vm.space(space).map(&request).unwrap();
            space
        });
        let [first, second] = [0, 1]
            .map(|cpu| strided_lines(&vm, CpuId(cpu), space, start.offset(u64::from(cpu) * far)));
        let shared: BTreeSet<usize> = first.intersection(&second).copied().collect();
        assert!(
            shared.is_empty(),
            "{design}: faults of two CPUs that make tables write the same lines {shared:x?}"
        );
        assert!(!first.is_empty() && !second.is_empty());
    }
}

#[test]
fn a_write_to_a_shared_line_would_be_found() {
    let vm = manager::<Partial>("");
    let faults = [0, 1].map(|cpu| {
        vm.platform().run_on(CpuId(cpu), || {
            let space = vm.create_space().unwrap().id();
            let page = vm.space(space).map(&MapRequest::anonymous(1, RW)).unwrap();
            // The first fault of a space marks the region and makes tables
            // below the root; exits and creations meet at the arenas.
            let (_, accesses) = record_accesses(|| {
                vm.space(space)
                    .fault(page.address::<X86_64>(), Access::Write)
                    .unwrap();
                vm.memory().drain(&vm.pin());
            });
            accesses.writing().lines()
        })
    });
    let [first, second] = faults;
    assert!(first.intersection(&second).next().is_some());
}

/// Each locked instruction and each full fence takes about 5 ns of the 150 that
/// an anonymous fault may take, the zeroing of its page included.
#[test]
fn a_steady_anonymous_fault_takes_few_locked_instructions() {
    // The kernels that `chains` and `partial` stand for took a lock of the page
    // for every entry.
    few_locked_instructions::<Family>(1);
    few_locked_instructions::<AnonVma>(1);
    few_locked_instructions::<Partial>(2);
    few_locked_instructions::<Chains>(2);
}

fn few_locked_instructions<R: ReverseMap>(most: usize) {
    for fault in both_cpus::<R>("").into_iter().flatten() {
        let count = |kind| fault.accesses.count(kind);
        let counts = [
            Kind::Load,
            Kind::Store,
            Kind::ReadModifyWrite,
            Kind::FullFence,
        ]
        .map(count);
        let text = || {
            format!(
                "loads, stores, read-modify-writes, full fences {counts:?}:\n{}",
                fault.list(&BTreeSet::new())
            )
        };
        assert!(
            counts[2] <= most && counts[3] <= 1,
            "{}: {}",
            R::NAME,
            text()
        );
        if std::env::var_os("VELLUM_LIST").is_some() {
            println!("{}", text());
        }
    }
}

/// What a region costs that nobody touches between being mapped and unmapped.
#[test]
fn mapping_and_unmapping_an_untouched_region_takes_six_locked_instructions() {
    const REGIONS: u64 = 32;
    let vm = manager::<Family>("");
    vm.platform().run_on(CpuId(0), || {
        let space = vm.create_space().unwrap().id();
        let place = |slot| Vpn(slot * 2 * PAGES + TABLE);
        let map = |slot| {
            let request = MapRequest::anonymous(PAGES, RW);
            let request = request.at(vellum::space::Placement::FixedFree(place(slot)));
            vm.space(space).map(&request).unwrap();
        };
        (0..REGIONS).for_each(map);
        let counts = (0..8 * REGIONS).map(|step| {
            let slot = step * 13 % REGIONS;
            let ((), accesses) = record_accesses(|| {
                vm.space(space).unmap(place(slot), PAGES).unwrap();
                map(slot);
            });
            locked_on_x86_64(&accesses)
        });
        // The first pairs fill the CPU's caches of regions, of as many as come out of the
        // limbo at a time.
        let counts: Vec<usize> = counts.skip(2 * REGIONS as usize).collect();
        let usual = counts.iter().filter(|&&count| count == 6).count();
        assert!(16 * usual >= 15 * counts.len(), "not six: {counts:?}");
        // Now and then a batch of regions comes out of the limbo.
        assert!(counts.iter().all(|&count| count <= 9), "{counts:?}");
    });
}

/// Locked instructions and full fences on x86-64, where a fence right behind a
/// read-modify-write is no instruction of its own.
fn locked_on_x86_64(accesses: &Accesses) -> usize {
    let before = [None].into_iter().chain(accesses.0.iter().map(Some));
    let counted = |(before, access): &(
        Option<&vellum_schedules::Recorded>,
        &vellum_schedules::Recorded,
    )| {
        let access: &vellum_schedules::Recorded = access;
        match access.kind {
            Kind::ReadModifyWrite => true,
            Kind::FullFence => before.is_none_or(|it| it.kind != Kind::ReadModifyWrite),
            _ => false,
        }
    };
    before.zip(&accesses.0).filter(counted).count()
}

/// What `docs/reverse-mapping.md` says that `turn` takes in `family`: nothing
/// locked while the page stays with its owner; if it gets another, two locked
/// instructions on the node of each.
#[test]
fn a_page_that_changes_its_owner_takes_four_locked_instructions() {
    let vm = manager::<Family>("");
    vm.platform().run_on(CpuId(0), || {
        let space = vm.create_space().unwrap().id();
        let request = MapRequest::anonymous(PAGES, RW);
        let start = vm.space(space).map(&request).unwrap();
        vm.space(space).populate(start, PAGES).unwrap();
        let locked = |space: SpaceId| -> Vec<usize> {
            let store = |step| {
                let address = start.offset(step).address::<X86_64>();
                let (done, accesses) =
                    record_accesses(|| vm.space(space).fault(address, Access::Write));
                assert_eq!(done, Ok(Resolved::Upgraded), "the page is kept");
                accesses.count(Kind::ReadModifyWrite)
            };
            // The first stores also load the space.
            (0..PAGES).map(store).skip(4).collect()
        };
        let gone = vm.space(space).fork().unwrap().id();
        assert_eq!(vm.space(gone).exit(), Ok(true));
        let kept = locked(space);
        let child = vm.space(space).fork().unwrap().id();
        // The parent gets copies, and the child is left with its pages.
        vm.space(space).populate(start, PAGES).unwrap();
        let changed = locked(child);
        assert!(kept.iter().all(|&count| count == kept[0]), "{kept:?}");
        assert!(
            changed.iter().all(|&count| count == kept[0] + 4),
            "{changed:?} after {kept:?}"
        );
    });
}
