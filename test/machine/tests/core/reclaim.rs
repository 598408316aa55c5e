//! Reclaim under real threads: the oracle that found Linux's swap cache losing stores (2024).
//! Two threads count in words of their own in every page, in opposite order, while a third has
//! pages leave, and memory is too small for them; all counts must agree.

use std::sync::Arc;

use vellum::addr::{Access, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::{Family, ReverseMap};
use vellum::space::{FileRequest, MapRequest, Placement, SpaceId};
use vellum::swap::SwapArea;
use vellum::table::X86_64;
use vellum::{Design, Vm};
use vellum_machine::mmu::AccessError;
use vellum_machine::store::{CompressedArea, CompressedStore};
use vellum_machine::{Arena, ArenaOptions, BackingStore, Machine, MachineConfig, PatternStore};

use crate::support::{self, number};

const FILE: u64 = 0x1000;
const PRIVATE: u64 = 0x2000;
const PAGES: u64 = 200;
const SWAP: u64 = 1 << 40;
const SLOTS: u64 = 4 * PAGES;
const RW: Prot = Prot::READ_WRITE;
/// The CPU of the thread that reclaims.
const TASK: CpuId = CpuId(2);

fn count<R: ReverseMap>(vm: &Vm<Machine, X86_64, R>, cpu: CpuId, space: SpaceId, rounds: u64) {
    let access = |page: u64, access: Access, value: u64| {
        let address = page << 12 | u64::from(cpu.0) << 3;
        // A page may leave again before the access that it was brought in for.
        for _ in 0..64 {
            match support::access(vm, cpu, space, address, access, value) {
                Err(AccessError::Unresolved { .. }) => std::thread::yield_now(),
                Err(AccessError::Conflict(fault)) => panic!("{fault}"),
                done => return done.expect("memory"),
            }
        }
        panic!("page {page:#x} never stays");
    };
    vm.platform().run_on(cpu, || {
        for round in 0..rounds {
            for step in 0..PAGES {
                let page = if cpu.0 == 0 { step } else { PAGES - 1 - step };
                for page in [FILE + page, PRIVATE + page] {
                    let before = access(page, Access::Read, 0);
                    assert_eq!(before, round, "page {page:#x} of CPU {}", cpu.0);
                    access(page, Access::Write, round + 1);
                }
            }
        }
    });
}

fn counters_agree<R: ReverseMap>(aging: &str) {
    let store = Arc::new(PatternStore::new(4096, |_, _| 0));
    counters_agree_on::<R>(aging, store);
}

fn counters_agree_on<R: ReverseMap>(aging: &str, store: Arc<dyn BackingStore>) {
    let rounds = number("VELLUM_ROUNDS").unwrap_or(6);
    // Half of what the pages need.
    let config = MachineConfig {
        cpus: 3,
        store,
        ..MachineConfig::new(PAGES << 12)
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let design = format!("rmap={},reclaim=on,aging={aging}", R::NAME);
    let design = Design::parse(&design).unwrap();
    let vm: Vm<_, X86_64, R> = Vm::new(machine, design).unwrap();
    // The second is for a store in front of the first that has no room.
    for (store, priority) in [(SWAP, 0), (SWAP + 1, -1)] {
        let slots = SLOTS;
        let area = SwapArea {
            store,
            slots,
            priority,
        };
        vm.swap_on(area).unwrap();
    }
    let vm = &vm;
    let machine = vm.platform();
    let (space, file) = machine.run_on(TASK, || {
        let space = vm.create_space().unwrap().id();
        vm.space(space).share().unwrap();
        let file = vm
            .create_file(FileRequest::stored(1, PAGES << 12))
            .unwrap()
            .id();
        let shared = MapRequest::object(file, 0, PAGES, RW).shared();
        let private = MapRequest::anonymous(PAGES, RW);
        for (request, at) in [(shared, FILE), (private, PRIVATE)] {
            vm.space(space)
                .map(&request.at(Placement::Fixed(Vpn(at))))
                .unwrap();
        }
        (space, file)
    });
    std::thread::scope(|scope| {
        let task = scope.spawn(|| {
            while let Some(node) = machine.next_short_node() {
                machine.run_on(TASK, || vm.reclaim_node(node));
            }
        });
        let counting = [0, 1].map(|cpu| scope.spawn(move || count(vm, CpuId(cpu), space, rounds)));
        let ended = counting.map(std::thread::ScopedJoinHandle::join);
        machine.end_shortages();
        task.join().expect("the task of the node");
        for ended in ended {
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        }
    });
    machine.run_on(TASK, || {
        let stats = vm.stats().reclaim;
        assert!(stats.reclaimed > PAGES && stats.swapped > 0, "{stats:?}");
        vm.audit().unwrap();
        for page in 0..PAGES {
            for cpu in 0..2 {
                let address = (PRIVATE + page) << 12 | cpu << 3;
                let word = support::access(vm, TASK, space, address, Access::Read, 0);
                assert_eq!(word, Ok(rounds), "page {page} of CPU {cpu}");
            }
        }
        vm.file(file).sync().unwrap();
        for (page, cpu) in (0..PAGES).flat_map(|page| [(page, 0), (page, 1)]) {
            let stored = machine.store().stored_word(1, page << 12 | cpu << 3);
            assert_eq!(stored, Some(rounds), "page {page} of the file, CPU {cpu}");
        }
        while vm.space(space).exit() == Ok(false) {}
        vm.file(file).release().unwrap();
        vm.audit().unwrap();
    });
}

/// With a compressed store that is full after some 30 pages, and writes back or has no room.
#[test]
fn counters_in_pages_that_go_to_a_compressed_store_agree() {
    for (aging, writes_back) in [("lru", true), ("generations", false)] {
        let about = CompressedArea {
            area: SWAP,
            slots: SLOTS,
            bytes: 4096 + 5000,
            writes_back,
        };
        let stores = Arc::new(PatternStore::new(4096, |_, _| 0));
        let store = Arc::new(CompressedStore::new(stores, about).unwrap());
        counters_agree_on::<Family>(aging, Arc::clone(&store) as Arc<dyn BackingStore>);
        store.audit().unwrap();
        let stats = store.stats();
        assert_eq!((stats.pages, stats.taken > 100), (0, true), "{stats:?}");
        assert_eq!(stats.written_back > 0, writes_back, "{stats:?}");
    }
}

macro_rules! one_test_each {
    ($($(#[$about:meta])* $name:ident: $design:ident $value:literal;)*) => {
        mod counters_in_pages_that_leave_and_come_back_agree {
            $(#[test]
            fn $name() {
                for aging in vellum::design::PageAging::ALL {
                    super::counters_agree::<vellum::rmap::$design>(aging.name());
                }
            })*
        }
    };
}
vellum::every_rmap! { [one_test_each] }
