//! CPUs, nodes, memory maps, windows, arenas and sleep.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::common::*;
use vellum::addr::Pfn;
use vellum::platform::{CpuId, Machine as _, MemoryRange, NodeId, Sleep, WindowSlot, Zone};
use vellum_machine::{Arena, Hole, Machine, MachineConfig, MachineError};

const MIB: u64 = 1 << 20;

/// The message of the panic that `work` ends in.
fn panic_of<R>(work: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).err().expect("a panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast::<&str>()
            .map(|text| text.to_string())
            .unwrap(),
    }
}

#[test]
fn pinning_names_the_cpu_that_was_entered() {
    let machine = machine(4, MIB);
    for cpu in [3, 0, 2] {
        machine.run_on(CpuId(cpu), || {
            let outer = machine.pin();
            let inner = machine.pin();
            assert_eq!((outer, inner), (CpuId(cpu), CpuId(cpu)));
            machine.unpin(inner);
            machine.unpin(outer);
        });
    }
    assert_eq!(machine.current_cpu(), None);
}

#[test]
fn misuse_of_cpus_is_reported_with_what_to_do() {
    let machine = machine(2, MIB);
    assert!(panic_of(|| machine.pin()).contains("run_on"));
    assert!(panic_of(|| machine.run_on(CpuId(2), || ())).contains("CPUs 0 to 1"));
    machine.run_on(CpuId(0), || {
        assert!(panic_of(|| machine.run_on(CpuId(0), || ())).contains("already"));
        let cpu = machine.pin();
        assert!(panic_of(|| machine.run_on(CpuId(1), || ())).contains("while pinned"));
        assert!(panic_of(|| machine.park()).contains("while pinned"));
        machine.unpin(cpu);
    });
    let guard = machine.enter(CpuId(1));
    machine.pin();
    assert!(panic_of(move || drop(guard)).contains("left while pinned"));
}

#[test]
fn two_machines_serve_one_thread() {
    let one = machine(2, MIB);
    let two = machine(2, MIB);
    let outer = one.enter(CpuId(1));
    two.run_on(CpuId(0), || {
        assert_eq!((one.pin(), two.pin()), (CpuId(1), CpuId(0)));
        // Both pins end before their CPUs are left.
        two.unpin(CpuId(0));
        one.unpin(CpuId(1));
        word(&one, Pfn(0x100), 0).store(1, Ordering::Relaxed);
        word(&two, Pfn(0x100), 0).store(2, Ordering::Relaxed);
        assert_eq!(one.ram_word(Pfn(0x100), 0), Some(1));
    });
    let inner = two.enter(CpuId(0));
    // Left in another order than entered.
    drop(outer);
    assert_eq!(
        (one.current_cpu(), two.current_cpu()),
        (None, Some(CpuId(0)))
    );
    drop(inner);
    assert_eq!(two.current_cpu(), None);
}

#[test]
fn a_cpu_has_one_user_at_a_time() {
    let machine = machine(1, MIB);
    let users = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    machine.run_on(CpuId(0), || {
                        assert_eq!(users.fetch_add(1, Ordering::SeqCst), 0);
                        users.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
        }
    });
}

#[test]
fn one_thread_can_drive_512_cpus() {
    let machine = build(MachineConfig {
        cpus: 512,
        nodes: 8,
        ..MachineConfig::new(64 * MIB)
    });
    for cpu in 0..512 {
        let named = machine.run_on(CpuId(cpu), || {
            let cpu = machine.pin();
            machine.unpin(cpu);
            cpu
        });
        assert_eq!(named, CpuId(cpu));
        assert_eq!(machine.node_of(CpuId(cpu)), NodeId(cpu / 64));
    }
}

#[test]
fn spawned_cpus_run_at_the_same_time_each_on_its_own() {
    let machine = machine(3, MIB);
    let together = std::sync::Barrier::new(3);
    let cpus = machine.spawn_cpus(|cpu| {
        together.wait();
        let pinned = machine.pin();
        machine.unpin(pinned);
        assert_eq!(pinned, cpu);
        pinned
    });
    assert_eq!(cpus, [CpuId(0), CpuId(1), CpuId(2)]);
}

#[test]
fn memory_is_cut_at_nodes_holes_and_high_memory() {
    let machine = build(MachineConfig {
        cpus: 2,
        nodes: 2,
        base_pfn: Pfn(0x10),
        high_from: Some(Pfn(0x60)),
        holes: vec![
            Hole {
                start: Pfn(0x20),
                frames: 0x10,
            },
            Hole {
                start: Pfn(0x70),
                frames: 1,
            },
        ],
        ..MachineConfig::new(0x60 << 12)
    });
    let range = |start, frames, node, zone| MemoryRange {
        start: Pfn(start),
        frames,
        node: NodeId(node),
        zone,
    };
    assert_eq!(
        machine.memory_map(),
        [
            range(0x10, 0x10, 0, Zone::Low),
            range(0x30, 0x20, 0, Zone::Low),
            range(0x50, 0x10, 1, Zone::Low),
            range(0x60, 0x10, 1, Zone::High),
            range(0x71, 0x10, 1, Zone::High),
        ]
    );
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), 20);
    // Frames are aligned and distinct, across the hole too.
    for frame in [0x1f, 0x30, 0x4f, 0x5f] {
        let address = machine.frame(Pfn(frame));
        assert_eq!(address.as_ptr().align_offset(4096), 0);
        word(&machine, Pfn(frame), 4088).store(u64::from(frame), Ordering::Relaxed);
    }
    for frame in [0x1f, 0x30, 0x4f, 0x5f] {
        assert_eq!(machine.ram_word(Pfn(frame), 4088), Some(u64::from(frame)));
    }
    for missing in [0, 0xf, 0x20, 0x2f, 0x70, 0x81, u32::MAX] {
        assert_eq!(
            machine.ram_word(Pfn(missing), 0),
            None,
            "frame {missing:#x}"
        );
    }
}

#[test]
#[cfg(debug_assertions)]
fn high_memory_and_missing_memory_have_no_direct_address() {
    let machine = build(MachineConfig {
        high_from: Some(Pfn(0x180)),
        ..MachineConfig::new(MIB)
    });
    machine.frame(Pfn(0x17f));
    assert!(panic_of(|| machine.frame(Pfn(0x180))).contains("windows only"));
    assert!(panic_of(|| machine.frame(Pfn(0xff))).contains("does not exist"));
}

#[test]
fn windows_reach_high_memory_and_are_checked_and_counted() {
    let machine = build(MachineConfig {
        high_from: Some(Pfn(0x180)),
        ..MachineConfig::new(MIB)
    });
    let guard = machine.enter(CpuId(0));
    let cpu = machine.pin();
    let [zero, one] = WindowSlot::PAGES;
    let first = machine.window(cpu, zero, Pfn(0x180));
    let second = machine.window(cpu, one, Pfn(0x181));
    // SAFETY: two whole frames of the machine, which nobody else uses.
    unsafe {
        first.cast::<u64>().write(11);
        second.cast::<u64>().write(22);
    }
    assert!(panic_of(|| machine.window(cpu, zero, Pfn(0x182))).contains("while open on pfn:0x180"));
    machine.close_window(cpu, zero);
    machine.window(cpu, zero, Pfn(0x1ff));
    machine.close_window(cpu, one);
    #[cfg(debug_assertions)]
    assert!(panic_of(|| machine.unpin(cpu)).contains("window open"));
    machine.close_window(cpu, zero);
    assert!(panic_of(|| machine.close_window(cpu, zero)).contains("not open"));
    assert!(panic_of(|| machine.window(cpu, zero, Pfn(0x200))).contains("does not exist"));
    let [table, other] = WindowSlot::TABLES;
    machine.window(cpu, table, Pfn(0x180));
    machine.window(cpu, one, Pfn(0x181));
    machine.window(cpu, other, Pfn(0x182));
    for slot in [table, one, other] {
        machine.close_window(cpu, slot);
    }
    machine.unpin(cpu);
    drop(guard);
    assert_eq!(machine.ram_word(Pfn(0x180), 0), Some(11));
    assert_eq!(machine.ram_word(Pfn(0x181), 0), Some(22));
    let stats = machine.stats();
    assert_eq!((stats.windows_opened, stats.windows_nested), (4, 2));
    assert_eq!((stats.table_windows, stats.table_windows_nested), (2, 1));
}

/// What the host lets this process do at an address, as `/proc/self/maps` has it.
fn rights_at(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let found = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        (number(start)?..number(end)?)
            .contains(&address)
            .then_some(&rest[..4])
    });
    found.unwrap_or("none").to_owned()
}

#[test]
fn a_window_that_bites_is_there_only_while_it_is_open() {
    let config = MachineConfig {
        cpus: 2,
        high_from: Some(Pfn(0x180)),
        biting_windows: true,
        ..MachineConfig::new(MIB)
    };
    let refused = Machine::new(config.clone(), Arena::new(MIB as usize).unwrap());
    assert!(refused.err().unwrap().to_string().contains("Arena::shared"));
    let arena = Arena::shared(config.arena_bytes().unwrap()).unwrap();
    let machine = Machine::new(config, Arc::clone(&arena)).unwrap();
    let mut addresses = Vec::new();
    for cpu in [CpuId(0), CpuId(1)] {
        machine.run_on(cpu, || {
            machine.pin();
            for (slot, frame) in WindowSlot::PAGES
                .into_iter()
                .chain(WindowSlot::TABLES)
                .zip(0x180..)
            {
                let bytes = machine.window(cpu, slot, Pfn(frame));
                assert_eq!(rights_at(bytes.as_ptr() as usize), "rw-s");
                assert_ne!(bytes, machine.frame(Pfn(0x100)));
                let word = u64::from(frame) << 8 | u64::from(cpu.0);
                // SAFETY: a whole frame of the machine, which nobody else uses.
                unsafe { bytes.cast::<u64>().write(word) };
                assert_eq!(machine.ram_word(Pfn(frame), 0), Some(word));
                addresses.push(bytes.as_ptr() as usize);
            }
            for slot in WindowSlot::TABLES.into_iter().chain(WindowSlot::PAGES) {
                machine.close_window(cpu, slot);
            }
            machine.unpin(cpu);
        });
    }
    for address in &addresses {
        assert_eq!(rights_at(*address), "---p");
    }
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 8, "a place for each window of each CPU");
    drop(machine);
    arena.discard().unwrap();
    let machine = Machine::new(MachineConfig::new(MIB), arena).unwrap();
    assert_eq!(machine.ram_word(Pfn(0x180), 0), Some(0));
}

#[test]
fn an_arena_serves_one_machine_at_a_time_and_keeps_its_bytes() {
    let arena = Arena::new(MIB as usize).unwrap();
    let first = Machine::new(MachineConfig::new(MIB), Arc::clone(&arena)).unwrap();
    word(&first, Pfn(0x123), 64).store(0x5a, Ordering::Relaxed);
    let second = Machine::new(MachineConfig::new(MIB), Arc::clone(&arena));
    assert_eq!(second.err(), Some(MachineError::ArenaInUse));
    assert!(arena.discard().is_err());
    drop(first);
    let second = Machine::new(MachineConfig::new(MIB / 2), Arc::clone(&arena)).unwrap();
    assert_eq!(second.ram_word(Pfn(0x123), 64), Some(0x5a));
    drop(second);
    arena.discard().unwrap();
    arena.prefault().unwrap();
    let third = Machine::new(MachineConfig::new(MIB), arena).unwrap();
    assert_eq!(third.ram_word(Pfn(0x123), 64), Some(0));
}

#[test]
fn impossible_machines_are_refused_with_the_reason() {
    let refused = |change: &dyn Fn(&mut MachineConfig)| {
        let mut config = MachineConfig::new(MIB);
        change(&mut config);
        Machine::new(config, Arena::new(MIB as usize).unwrap())
            .err()
            .expect("an error")
            .to_string()
    };
    assert!(refused(&|config| config.cpus = 0).contains("1 to 4096 CPUs"));
    assert!(refused(&|config| config.nodes = 257).contains("256 frames"));
    assert!(refused(&|config| config.ram_bytes = 4097).contains("multiple of the frame size"));
    assert!(refused(&|config| config.frame_shift = 14).contains("x86-64"));
    assert!(refused(&|config| config.frame_shift = 40).contains("2^12 to 2^16"));
    assert!(refused(&|config| config.base_pfn = Pfn(u32::MAX - 5)).contains("RAM would end"));
    assert!(refused(&|config| config.ram_bytes = 2 * MIB).contains("needs an arena of 2097152"));
    assert!(refused(&|config| config.tlb.sets = 3).contains("powers of two"));
    let hole = |start, frames| Hole {
        start: Pfn(start),
        frames,
    };
    assert!(refused(&|config| config.holes = vec![hole(0x10, 1)]).contains("ascending"));
    let overlapping = vec![hole(0x110, 16), hole(0x118, 16)];
    assert!(refused(&|config| config.holes.clone_from(&overlapping)).contains("ascending"));
    // The refusals left the arena free, or the size error would hide this one.
    assert!(Arena::new(0).is_err());
}

#[test]
fn an_unpark_that_comes_first_is_kept_and_sleep_gives_the_cpu_away() {
    let machine = machine(1, MIB);
    machine.run_on(CpuId(0), || {
        machine.unpark(machine.current_task());
        machine.park();
    });
    let token = std::sync::Mutex::new(None);
    let woken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            machine.run_on(CpuId(0), || {
                *token.lock().unwrap() = Some(machine.current_task());
                while !woken.load(Ordering::SeqCst) {
                    machine.park();
                }
                let cpu = machine.pin();
                machine.unpin(cpu);
            });
        });
        let sleeper = loop {
            if let Some(token) = *token.lock().unwrap() {
                break token;
            }
            std::thread::yield_now();
        };
        // The only CPU can be entered because its user sleeps.
        machine.run_on(CpuId(0), || {
            woken.store(true, Ordering::SeqCst);
            machine.unpark(sleeper);
        });
    });
    // A task that has ended needs no waking.
    machine.unpark(token.into_inner().unwrap().unwrap());
}
