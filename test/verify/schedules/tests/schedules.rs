//! Random schedules find races that are there and none that are not, and
//! recordings list what was accessed.

use std::sync::Arc;

use vellum::addr::{Access, Pfn};
use vellum::platform::{CpuId, CpuSet, Flush, Machine as _, Sleep, SpaceTag};
use vellum::sync::atomic::{AtomicU64, Ordering, fence};
use vellum::sync::{Epochs, PinHost, SpinLock};
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};
use vellum_schedules::{Kind, SCHEDULER, explore, find_failure, record_accesses, run_cpus};

const SEED: u64 = 1;
const FRAMES: u64 = 64;

fn machine(cpus: usize) -> Machine {
    let config = MachineConfig {
        cpus,
        scheduler: Some(&SCHEDULER),
        ..MachineConfig::new(FRAMES * 4096)
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    Machine::new(config, arena).unwrap()
}

/// The machine as what the core's pins need.
struct Host<'m>(&'m Machine);

impl PinHost for Host<'_> {
    fn unpin(&self, cpu: CpuId) {
        self.0.unpin(cpu);
    }
    fn relax(&self, _cpu: CpuId, spins: u32) {
        self.0.relax(spins);
    }
}

#[test]
fn a_lost_update_is_found_and_its_seed_repeats_it() {
    let test = || {
        let machine = machine(2);
        let count = AtomicU64::new(0);
        run_cpus(&machine, |_| {
            let seen = count.load(Ordering::SeqCst);
            count.store(seen + 1, Ordering::SeqCst);
        });
        assert_eq!(count.load(Ordering::SeqCst), 2, "an update was lost");
    };
    let failure = find_failure(SEED, 200, test).expect("a schedule that loses an update");
    assert!(
        failure.message.contains("an update was lost"),
        "{failure:?}"
    );
    assert_eq!(find_failure(failure.seed, 1, test), Some(failure));
}

#[test]
#[should_panic(expected = "failed under schedule 7 (repeat with `explore(7, 1, …)`): always")]
fn a_failed_exploration_names_its_seed() {
    explore(7, 3, || panic!("always"));
}

#[test]
fn a_spin_lock_loses_no_update_under_any_schedule() {
    explore(SEED, 200, || {
        let machine = machine(3);
        let epochs = Epochs::new(3);
        let count = SpinLock::new(0);
        run_cpus(&machine, |_| {
            for _ in 0..2 {
                let host = Host(&machine);
                let cpu = machine.pin();
                // SAFETY: the machine bound the caller to the CPU, until `unpin`.
                let pin = unsafe { epochs.enter(&host, cpu) };
                *count.lock(&pin) += 1;
            }
        });
        let mut count = count;
        assert_eq!(*count.get_mut(), 6);
    });
}

#[test]
fn tasks_that_share_a_cpu_or_sleep_do_not_stop_the_others() {
    explore(SEED, 200, || {
        let machine = machine(1);
        let users = AtomicU64::new(0);
        let sleeper = AtomicU64::new(0);
        shuttle::thread::scope(|scope| {
            scope.spawn(|| {
                machine.run_on(CpuId(0), || {
                    // The token plus one, so that zero means "not there yet".
                    sleeper.store(machine.current_task().0 + 1, Ordering::SeqCst);
                    machine.park();
                });
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    machine.run_on(CpuId(0), || {
                        assert_eq!(users.fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(machine.pin(), CpuId(0));
                        machine.unpin(CpuId(0));
                        users.fetch_sub(1, Ordering::SeqCst);
                    });
                });
            }
            loop {
                let token = sleeper.load(Ordering::SeqCst);
                if token != 0 {
                    machine.unpark(vellum::platform::TaskToken(token - 1));
                    break;
                }
                machine.relax(0);
            }
        });
    });
}

const SPACE: SpaceTag = SpaceTag(3);
const ADDRESS: u64 = 0x1000;
const ROOT: Pfn = Pfn(0x100);
const PAGE: Pfn = Pfn(0x110);

/// Maps `ADDRESS` to `PAGE`, read-write, through tables in the frames from
/// `ROOT` on; returns the last-level entry.
fn map_one_page(machine: &Machine) -> &AtomicU64 {
    let entry = |level: u32| {
        let table = ROOT.offset(4 - level);
        let index = (ADDRESS >> (12 + 9 * (level - 1))) as usize % 512;
        // SAFETY: a whole frame of the machine, which this test accesses as
        // atomic words only.
        unsafe { &*machine.frame(table).cast::<AtomicU64>().as_ptr().add(index) }
    };
    for level in 2..=4 {
        let next = ROOT.offset(5 - level);
        entry(level).store(u64::from(next.0) << 12 | 7, Ordering::Relaxed);
    }
    entry(1).store(u64::from(PAGE.0) << 12 | 7, Ordering::Relaxed);
    entry(1)
}

/// One CPU stores to a page, another takes the page away and hands it to
/// somebody else, who must not see the store. With `flushes`, correctly.
fn unmap_against_store(flushes: bool) {
    let machine = machine(2);
    let entry = map_one_page(&machine);
    run_cpus(&machine, |cpu| {
        // SAFETY: no memory manager lives in this machine.
        let mmu = unsafe { machine.mmu(cpu) };
        if cpu == CpuId(0) {
            for value in 1..4 {
                let _ = mmu.store(SPACE, ROOT, ADDRESS, value);
            }
            return;
        }
        entry.store(0, Ordering::Release);
        if flushes {
            let request = Flush {
                space: SPACE,
                range: None,
                tables: false,
            };
            machine.flush(cpu, CpuSet::from_bits(0b11), &request);
        }
        // SAFETY: as in `map_one_page`.
        let data = unsafe { machine.frame(PAGE).cast::<AtomicU64>().as_ref() };
        data.store(99, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        assert_eq!(
            data.load(Ordering::SeqCst),
            99,
            "a stale translation was used"
        );
    });
    // SAFETY: as in `map_one_page`.
    let data = unsafe { machine.frame(PAGE).cast::<AtomicU64>().as_ref() };
    assert_eq!(
        data.load(Ordering::SeqCst),
        99,
        "a stale translation was used"
    );
    // Marking does not bring back an entry that was cleared meanwhile.
    assert_eq!(entry.load(Ordering::SeqCst), 0, "the entry is back");
}

#[test]
fn a_missing_flush_is_found_and_a_present_one_suffices() {
    let failure = find_failure(SEED, 300, || unmap_against_store(false));
    assert!(
        failure
            .expect("a schedule")
            .message
            .contains("a stale translation")
    );
    explore(SEED, 300, || unmap_against_store(true));
}

#[test]
fn an_endless_wait_is_reported() {
    let exploration = vellum_schedules::Exploration {
        max_steps: 2000,
        ..vellum_schedules::Exploration::new(SEED, 1)
    };
    let failure = exploration.find_failure(|| {
        let machine = machine(1);
        let never = AtomicU64::new(0);
        while never.load(Ordering::Relaxed) == 0 {
            machine.relax(0);
        }
    });
    assert!(failure.is_some());
}

#[test]
fn recordings_list_kinds_and_places_of_this_thread_only() {
    #[repr(align(64))]
    struct Line([AtomicU64; 8]);
    let mine = Line(std::array::from_fn(|_| AtomicU64::new(0)));
    let other = Arc::new(AtomicU64::new(0));
    let (value, accesses) = record_accesses(|| {
        let other = Arc::clone(&other);
        std::thread::spawn(move || other.fetch_add(1, Ordering::Relaxed))
            .join()
            .unwrap();
        mine.0[1].store(4, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        mine.0[2].fetch_add(1, Ordering::Relaxed);
        mine.0[1].load(Ordering::Relaxed)
    });
    assert_eq!(value, 4);
    let kinds: Vec<_> = accesses.0.iter().map(|access| access.kind).collect();
    assert_eq!(
        kinds,
        [
            Kind::Store,
            Kind::FullFence,
            Kind::ReadModifyWrite,
            Kind::Load
        ]
    );
    assert_eq!(accesses.count(Kind::ReadModifyWrite), 1);
    let line = (&raw const mine).addr();
    assert_eq!(accesses.lines(), [line].into());
    // A word of the same line is reached through its neighbours.
    let neighbour = line + 56..line + 64;
    assert_eq!(accesses.on_lines_of(&neighbour).writing().0.len(), 2);
    assert_eq!(accesses.on_lines_of(&(line + 64..line + 72)).0.len(), 0);
    let (_, nothing) = record_accesses(|| ());
    assert_eq!(nothing.0.len(), 0);
}

#[test]
fn accesses_through_the_machine_run_under_any_schedule() {
    explore(SEED, 100, || {
        let machine = machine(2);
        let entry = map_one_page(&machine);
        entry.store(u64::from(PAGE.0) << 12 | 5, Ordering::Relaxed);
        let faults = AtomicU64::new(0);
        run_cpus(&machine, |cpu| {
            // SAFETY: no memory manager lives in this machine.
            let mmu = unsafe { machine.mmu(cpu) };
            let mut handler = |_| {
                faults.fetch_add(1, Ordering::Relaxed);
                entry.fetch_or(2, Ordering::AcqRel);
                Ok::<_, ()>(())
            };
            let address = ADDRESS + 8 * u64::from(cpu.0);
            let stored = mmu.access(SPACE, ROOT, address, Access::Write, 5, &mut handler);
            assert_eq!(stored, Ok(5));
        });
        assert!((1..=2).contains(&faults.load(Ordering::Relaxed)));
        // Accessed and dirty bits set by both CPUs are not lost.
        assert_eq!(entry.load(Ordering::Relaxed) & 0x67, 0x67);
    });
}
