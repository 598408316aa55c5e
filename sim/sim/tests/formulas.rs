//! What comes out of the simulator must be what its prices say, at 2 to 512 CPUs.

mod common;

use std::cell::Cell;

use common::{CLUSTER, HIT, MEMORY, SLOT, UPDATE, assert_near, flat, parse, text};
use vellum::platform::{CpuId, NodeId};
use vellum::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use vellum::sync::bytes::FrameBytes;
use vellum::sync::{CachePadded, Epochs, PinHost, SpinLock};
use vellum_sim::{Cpu, Homes, Outcome, PlacedHeap, Random, RunError, Simulation, with_cpu};

#[global_allocator]
static HEAP: PlacedHeap = PlacedHeap;

const SIZES: [usize; 9] = [2, 4, 8, 16, 32, 64, 128, 256, 512];

/// A simulation of `cpus` CPUs in one cluster, which share `shared`.
fn sharing<T>(cpus: usize, shared: &T) -> Simulation {
    let mut simulation = Simulation::new(&flat(cpus), cpus).expect("as many as there are");
    simulation
        .place_value("shared", shared, NodeId(0))
        .expect("nothing else is placed");
    simulation
}

fn run<R>(simulation: Simulation, program: impl Fn(&Cpu<'_>) -> R) -> Outcome<R> {
    match simulation.run(program) {
        Ok(outcome) => outcome,
        Err(error) => panic!("{error}"),
    }
}

fn ns<R>(outcome: &Outcome<R>) -> f64 {
    outcome.elapsed as f64 / 1000.0
}

#[test]
fn a_shared_counter_takes_a_transfer_for_each_update() {
    const UPDATES: u64 = 200;
    for cpus in SIZES {
        let counter = CachePadded(AtomicU64::new(0));
        let outcome = run(sharing(cpus, &counter), |_| {
            for _ in 0..UPDATES {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        let updates = cpus as u64 * UPDATES;
        assert_eq!(counter.load(Ordering::Relaxed), updates);
        // The first comes from memory.
        let expected = MEMORY + (updates - 1) * CLUSTER;
        assert_eq!(outcome.elapsed, expected * 1000, "{cpus} CPUs");
    }
}

/// The most that a CPU runs ahead of the others, in nanoseconds.
const RUN_AHEAD: u64 = 500;

#[test]
fn who_takes_a_line_that_another_had_alone_for_long_is_hardly_late() {
    for start in (100_000..101_000).step_by(97) {
        let counter = CachePadded(AtomicU64::new(0));
        let outcome = run(sharing(2, &counter), |cpu| {
            if cpu.id() == CpuId(0) {
                while cpu.now() < 200_000_000 {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                return 0;
            }
            cpu.compute_ns(start);
            counter.fetch_add(1, Ordering::Relaxed);
            cpu.now() / 1000 - start
        });
        let taken = outcome.results[1];
        let most = RUN_AHEAD + CLUSTER + UPDATE;
        assert!((CLUSTER..=most).contains(&taken), "at {start}: {taken} ns");
    }
}

#[test]
fn readers_of_a_line_that_nobody_wrote_for_long_see_a_write_soon() {
    const READERS: usize = 7;
    const WRITTEN_AT: u64 = 100_000;
    let flag = CachePadded(AtomicU64::new(0));
    let outcome = run(sharing(READERS + 1, &flag), |cpu| {
        if cpu.id() == CpuId(0) {
            cpu.compute_ns(WRITTEN_AT);
            flag.store(1, Ordering::Relaxed);
            return cpu.now() / 1000;
        }
        while flag.load(Ordering::Relaxed) == 0 {
            cpu.compute_ns(3);
        }
        cpu.now() / 1000
    });
    let most = WRITTEN_AT + RUN_AHEAD + 2 * CLUSTER + READERS as u64 * CLUSTER;
    for seen in &outcome.results[1..] {
        assert!((WRITTEN_AT..=most).contains(seen), "seen at {seen} ns");
    }
    // Each fetches the line twice.
    let misses: u64 = outcome.cpus[1..].iter().map(|cpu| cpu.misses).sum();
    assert_eq!(misses, 2 * READERS as u64);
}

#[test]
fn counters_of_their_own_cost_each_cpu_a_hit() {
    const UPDATES: u64 = 200;
    for cpus in SIZES {
        let counters: Box<[CachePadded<AtomicU64>]> =
            (0..cpus).map(|_| CachePadded(AtomicU64::new(0))).collect();
        let mut simulation = Simulation::new(&flat(cpus), cpus).expect("as many as there are");
        simulation
            .place(
                "counters",
                counters.as_ptr(),
                size_of_val(&*counters),
                Homes::Node(NodeId(0)),
            )
            .expect("nothing else is placed");
        let outcome = run(simulation, |cpu| {
            for _ in 0..UPDATES {
                counters[usize::from(cpu.id().0)].fetch_add(1, Ordering::Relaxed);
            }
        });
        // The node hands out one line after the other at first: 64 bytes at 40 GB/s.
        let line = 64.0 / 40.0;
        let expected = (cpus - 1) as f64 * line + (MEMORY + (UPDATES - 1) * UPDATE) as f64;
        assert_near("own counters", ns(&outcome), expected, 0.01);
    }
}

/// Words of one line.
#[repr(align(128))]
struct Words([AtomicU64; 8]);

#[test]
fn words_of_one_line_cost_as_much_as_one_word_and_are_told_to_be_false_sharing() {
    const UPDATES: u64 = 200;
    for cpus in SIZES {
        let lines: Box<[Words]> = (0..cpus.div_ceil(8))
            .map(|_| Words(Default::default()))
            .collect();
        let mut simulation = Simulation::new(&flat(cpus), cpus).expect("as many as there are");
        simulation
            .place(
                "words",
                lines.as_ptr(),
                size_of_val(&*lines),
                Homes::Node(NodeId(0)),
            )
            .expect("nothing else is placed");
        let outcome = run(simulation, |cpu| {
            let number = usize::from(cpu.id().0);
            for _ in 0..UPDATES {
                lines[number / 8].0[number % 8].fetch_add(1, Ordering::Relaxed);
            }
        });
        let sharing = cpus.min(8) as u64;
        let expected = (MEMORY + (sharing * UPDATES - 1) * CLUSTER) as f64;
        assert_near("words of a line", ns(&outcome), expected, 1.0);
        let total = outcome.profile.total();
        let first = cpus.div_ceil(8) as u64;
        assert_eq!(total.write_misses, cpus as u64 * UPDATES);
        assert_eq!(
            total.false_misses,
            total.write_misses - first,
            "{cpus} CPUs"
        );
    }
}

#[test]
fn readers_of_a_line_that_nobody_writes_do_not_slow_each_other() {
    const READS: u64 = 1000;
    for cpus in SIZES {
        let word = CachePadded(AtomicU64::new(0));
        let outcome = run(sharing(cpus, &word), |_| {
            for _ in 0..READS {
                word.load(Ordering::Relaxed);
            }
        });
        // The first reads memory, the second takes from the first, and those after it
        // come at the rate of slots.
        let last = MEMORY + CLUSTER + (cpus as u64 - 2) * SLOT + if cpus > 2 { CLUSTER } else { 0 };
        let expected = last + (READS - 1) * HIT;
        assert_near("reads", ns(&outcome), expected as f64, 0.5);
    }
}

#[test]
fn a_write_to_a_line_that_all_read_costs_each_reader_its_place_in_the_queue() {
    const WRITES: u64 = 20;
    for cpus in SIZES {
        let word = CachePadded(AtomicU64::new(0));
        let readers = cpus as u64 - 1;
        let pause = 1000 + 10 * readers;
        let outcome = run(sharing(cpus, &word), |cpu| {
            if cpu.id() == CpuId(0) {
                for value in 1..=WRITES {
                    cpu.compute_ns(pause);
                    word.store(value, Ordering::Relaxed);
                }
                return;
            }
            let mut seen = 0;
            while seen < WRITES {
                let now = word.load(Ordering::Relaxed);
                if now == seen {
                    cpu.relax(u32::MAX);
                }
                seen = now;
            }
        });
        // After each write the first reader takes the line from the writer, the others
        // from those before them, a slot apart.
        let queue = (1..readers).map(|place| 2 * CLUSTER + SLOT * (place - 1));
        let expected = WRITES * (CLUSTER - HIT + queue.map(|wait| wait - HIT).sum::<u64>());
        let reads = outcome.profile.lines[0].costs;
        // The first reads and the writes are in the profile, too.
        let begun = MEMORY + readers * (MEMORY + 2 * CLUSTER + SLOT * readers);
        let found = reads.lost as f64 / 1000.0;
        assert!(
            found >= expected as f64 && found <= (expected + begun + WRITES * CLUSTER) as f64,
            "{cpus} CPUs: {found}, expected {expected} and at most {begun} more"
        );
    }
}

/// Waits by the simulated CPU.
struct Host;

impl PinHost for Host {
    fn unpin(&self, _cpu: CpuId) {}
    fn relax(&self, _cpu: CpuId, spins: u32) {
        with_cpu(|cpu| cpu.relax(spins));
    }
}

/// Takes a spin lock of the core `rounds` times on each CPU; returns nanoseconds a round
/// of all CPUs.
fn lock_cycle(cpus: usize, rounds: u64, hold: u64, think: u64) -> f64 {
    let make = || {
        let lock = Box::new(CachePadded(SpinLock::new(())));
        (Box::new(Epochs::new(cpus)), lock)
    };
    let ((epochs, lock), heap) = PlacedHeap::fill(1 << 20, make).expect("it is installed");
    let mut simulation = Simulation::new(&flat(cpus), cpus)
        .expect("as many as there are")
        .seed(7, 500);
    simulation
        .place("heap", heap.start, heap.bytes, Homes::Node(NodeId(0)))
        .expect("nothing else is placed");
    let inside = Cell::new(false);
    let outcome = run(simulation, |cpu| {
        for _ in 0..rounds {
            // SAFETY: every CPU has a coroutine of its own, and pins itself.
            let pin = unsafe { epochs.enter(&Host, cpu.id()) };
            let guard = lock.lock(&pin);
            assert!(!inside.replace(true), "two hold the lock");
            cpu.compute_ns(hold);
            inside.set(false);
            drop(guard);
            drop(pin);
            cpu.compute_ns(think);
        }
    });
    ns(&outcome) / rounds as f64
}

#[test]
fn a_lock_that_all_wait_for_is_handed_over_in_the_same_time_however_many_wait() {
    for cpus in SIZES {
        let waiters = cpus as u64 - 1;
        // Long enough that those who tried in vain are back to spinning, and whoever let
        // go is back after the handover and before the next.
        let hold = 500 + 100 * cpus as u64;
        let think = 300 + 10 * cpus as u64;
        let rounds = 10.max(400 / cpus as u64);
        let cycle = lock_cycle(cpus, rounds, hold, think) / cpus as f64;
        // The store that unlocks; the first waiter's load; its exchange. If others wait
        // behind it, it exchanges the state of the next one. Alone it empties the queue, whose
        // end is in the line that it has.
        let handover = 3 * CLUSTER + if waiters > 1 { CLUSTER } else { UPDATE };
        assert_near(
            &format!("a lock for {cpus} CPUs"),
            cycle,
            (hold + handover) as f64,
            2.0,
        );
    }
}

#[test]
fn a_lock_that_is_mostly_free_lets_throughput_grow_with_the_cpus() {
    let hold = 100;
    for cpus in [1, 2, 4, 8] {
        let think = hold * 400;
        let cycle = lock_cycle(cpus, 50, hold, think);
        assert_near("a free lock", cycle, (hold + think) as f64, 2.0);
    }
}

#[test]
fn a_barrier_takes_an_update_for_each_cpu_and_a_wake_up() {
    const ROUNDS: u32 = 20;
    #[derive(Default)]
    struct Barrier {
        arrived: CachePadded<AtomicU64>,
        round: CachePadded<AtomicU32>,
    }
    for cpus in SIZES {
        let barrier = Barrier::default();
        let outcome = run(sharing(cpus, &barrier), |cpu| {
            for round in 1..=ROUNDS {
                let before = barrier.arrived.fetch_add(1, Ordering::AcqRel);
                if before + 1 == u64::from(round) * cpus as u64 {
                    barrier.round.store(round, Ordering::Release);
                    continue;
                }
                while barrier.round.load(Ordering::Acquire) < round {
                    cpu.relax(u32::MAX);
                }
            }
        });
        assert_eq!(
            barrier.arrived.load(Ordering::Relaxed),
            u64::from(ROUNDS) * cpus as u64
        );
        // All arrive one after the other; the store becomes visible; the first waiter
        // fetches it and is the next to arrive, unless the last to arrive is.
        let arrivals = cpus as u64 * CLUSTER;
        let least = (arrivals + CLUSTER) as f64;
        let most = (arrivals + 3 * CLUSTER) as f64;
        let round = ns(&outcome) / f64::from(ROUNDS);
        assert!(
            round > 0.97 * least && round < 1.03 * most,
            "{cpus} CPUs: {round}, expected {least} to {most}"
        );
    }
}

/// Customers a nanosecond of a closed network of one server with exponential service of
/// mean `service` and exponential thinking of mean `think`: exact mean-value analysis.
fn mean_value_analysis(customers: usize, service: f64, think: f64) -> f64 {
    let mut queue = 0.0;
    let mut throughput = 0.0;
    for present in 1..=customers {
        let response = service * (1.0 + queue);
        throughput = present as f64 / (think + response);
        queue = throughput * response;
    }
    throughput
}

#[test]
fn a_queue_for_the_memory_of_a_node_is_as_long_as_queueing_theory_says() {
    let exponential = |random: &mut Random, mean: f64| {
        let uniform = (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
        -mean * (1.0 - uniform).ln()
    };
    // 40 GB/s for all; one core alone is hardly slower than the memory.
    let (bytes, think) = (40_000.0, 16_000.0);
    for cpus in [2, 8, 16, 64, 512] {
        let machine = text(1, cpus, 1, "").replacen("gb_per_s = 10,", "gb_per_s = 10000,", 1);
        let mut simulation = Simulation::new(&parse(&machine), cpus)
            .expect("as many as there are")
            .seed(11, 0);
        let memory: Box<[CachePadded<AtomicU64>]> =
            (0..8192).map(|_| CachePadded::default()).collect();
        simulation
            .place(
                "memory",
                memory.as_ptr(),
                size_of_val(&*memory),
                Homes::Node(NodeId(0)),
            )
            .expect("nothing else is placed");
        let words = memory.as_ptr().cast::<AtomicU64>();
        let rounds = 40_000 / cpus;
        let outcome = run(simulation, |cpu| {
            let mut random = cpu.random();
            for _ in 0..rounds {
                cpu.compute_ps((1000.0 * exponential(&mut random, think)) as u64);
                let count = (exponential(&mut random, bytes / 8.0) as usize).clamp(1, 131_072);
                // SAFETY: there are that many words, and nobody but this thread uses them.
                let words = unsafe { std::slice::from_raw_parts(words, count) };
                FrameBytes::of_words(words).zero();
            }
        });
        let found = (cpus * rounds) as f64 / ns(&outcome);
        let expected = mean_value_analysis(cpus, bytes / 40.0, think);
        assert_near(&format!("{cpus} CPUs"), found, expected, 4.0);
    }
}

#[test]
fn a_line_from_another_socket_costs_what_is_farther_of_owner_and_home() {
    let machine = parse(&text(1, 2, 2, ""));
    // Home of the line, and who use it in turn: CPUs 0 and 1 are on node 0.
    for (home, cpus, expected) in [
        (0, [0, 1], 40),
        (1, [0, 1], 40),
        (0, [0, 2], 200),
        (1, [0, 2], 200),
    ] {
        let word = CachePadded(AtomicU64::new(0));
        let mut simulation = Simulation::new(&machine, 4).expect("there are four");
        simulation
            .place_value("word", &word, NodeId(home))
            .expect("nothing else is placed");
        const ROUNDS: u64 = 1000;
        let outcome = run(simulation, |cpu| {
            if cpus.contains(&cpu.id().0) {
                for _ in 0..ROUNDS {
                    word.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let each = ns(&outcome) / (2 * ROUNDS) as f64;
        assert_near(
            &format!("home {home}, CPUs {cpus:?}"),
            each,
            expected as f64,
            2.0,
        );
    }
}

#[test]
fn memory_of_another_socket_costs_more() {
    let machine = parse(&text(1, 2, 2, ""));
    for (home, expected) in [(0, MEMORY), (1, 300)] {
        let word = CachePadded(AtomicU64::new(0));
        let mut simulation = Simulation::new(&machine, 1).expect("there are four");
        simulation
            .place_value("word", &word, NodeId(home))
            .expect("nothing else is placed");
        let outcome = run(simulation, |_| word.load(Ordering::Relaxed));
        assert_eq!(outcome.elapsed, expected * 1000, "home {home}");
    }
}

#[test]
fn two_threads_of_a_core_share_its_lines_and_its_speed() {
    let machine = parse(&text(2, 4, 1, ""));
    let word = CachePadded(AtomicU64::new(0));
    let mut simulation = Simulation::new(&machine, 8).expect("there are eight");
    simulation
        .place_value("word", &word, NodeId(0))
        .expect("nothing else is placed");
    // CPUs 0 and 4 are one core.
    let outcome = run(simulation, |cpu| match cpu.id().0 {
        0 | 4 => {
            cpu.compute_ns(1000);
            let begun = cpu.now();
            word.fetch_add(1, Ordering::Relaxed);
            cpu.now() - begun
        }
        1 => {
            cpu.compute_ns(1000);
            cpu.now() / 1000
        }
        _ => 0,
    });
    assert_eq!(
        outcome.results[1], 1000,
        "a core with one busy thread has its speed"
    );
    assert!(outcome.results[0].min(outcome.results[4]) >= 8_000);
    let both = outcome.cpus[0].ended_at.min(outcome.cpus[4].ended_at);
    assert!(
        both >= 2_000_000,
        "two busy threads have half of it each: {both}"
    );
}

#[test]
fn stores_wait_for_their_line_in_the_buffer_until_a_fence() {
    let machine = flat(2);
    let words = CachePadded([const { CachePadded(AtomicU64::new(0)) }; 4]);
    let mut simulation = Simulation::new(&machine, 1).expect("there are two");
    simulation
        .place_value("words", &words, NodeId(0))
        .expect("nothing else is placed");
    let outcome = run(simulation, |cpu| {
        for word in &words.0 {
            word.store(1, Ordering::Relaxed);
        }
        let stored = cpu.now();
        fence(Ordering::SeqCst);
        (stored, cpu.now())
    });
    let (stored, fenced) = outcome.results[0];
    assert_eq!(stored, 4 * HIT * 1000, "the stores do not wait");
    // They came from memory at the rate of the node: 64 bytes at 40 GB/s.
    assert_eq!(fenced, 3 * 1600 + (MEMORY + UPDATE) * 1000);
}

#[test]
fn a_shootdown_costs_the_sender_the_slowest_answer_and_each_target_an_interrupt() {
    for cpus in SIZES {
        let simulation = Simulation::new(&flat(cpus), cpus).expect("as many as there are");
        let outcome = run(simulation, |cpu| {
            if cpu.id() == CpuId(0) {
                let begun = cpu.now();
                cpu.flush((0..cpus).map(|cpu| CpuId(cpu as u16)), Some(2));
                cpu.now() - begun
            } else {
                cpu.compute_ns(1_000_000);
                cpu.now()
            }
        });
        let others = cpus as u64 - 1;
        let expected = others * 100 + 1000 + 300 + 2 * 50;
        assert_eq!(outcome.results[0], expected * 1000, "{cpus} CPUs");
        assert_eq!(outcome.cpus[1].interrupts, 1);
        assert_eq!(outcome.cpus[1].interrupted, 400_000);
        assert_eq!(outcome.cpus[1].ended_at, 1_000_400_000);
    }
}

#[test]
fn shootdowns_by_all_at_once_queue_up_at_each_target() {
    for cpus in [2, 8, 64] {
        let rounds = 10;
        let simulation = Simulation::new(&flat(cpus), cpus).expect("as many as there are");
        let outcome = run(simulation, |cpu| {
            for _ in 0..rounds {
                cpu.flush((0..cpus).map(|cpu| CpuId(cpu as u16)), Some(1));
            }
        });
        // Every CPU is interrupted by every other in each round.
        let handled = (cpus - 1) as f64 * 350.0;
        let each = ns(&outcome) / f64::from(rounds);
        let sent = (cpus - 1) as f64 * 100.0 + 50.0;
        assert!(each >= handled, "{cpus} CPUs: {each} ns");
        assert!(each <= handled + sent + 1350.0, "{cpus} CPUs: {each} ns");
    }
}

#[test]
fn a_sleeper_runs_after_the_latency_of_its_waking() {
    let simulation = Simulation::new(&flat(2), 2).expect("there are two");
    let outcome = run(simulation, |cpu| {
        if cpu.id() == CpuId(0) {
            cpu.sleep();
        } else {
            cpu.compute_ns(5000);
            cpu.wake(CpuId(0));
        }
        cpu.now()
    });
    assert_eq!(outcome.results, [7_000_000, 5_500_000]);
    assert_eq!(outcome.cpus[0].slept, 6_000_000);
    // A waking that comes first is kept.
    let simulation = Simulation::new(&flat(2), 2).expect("there are two");
    let outcome = run(simulation, |cpu| {
        if cpu.id() == CpuId(0) {
            cpu.compute_ns(5000);
            cpu.sleep();
        } else {
            cpu.wake(CpuId(0));
        }
        cpu.now()
    });
    assert_eq!(outcome.results[0], 5_000_000);
}

#[test]
fn sleepers_whom_nobody_wakes_are_named() {
    let simulation = Simulation::new(&flat(4), 4).expect("there are four");
    let ended = simulation.run(|cpu| {
        if cpu.id().0 % 2 == 1 {
            cpu.sleep();
        }
    });
    let sleeping = vec![CpuId(1), CpuId(3)];
    assert_eq!(ended.err(), Some(RunError::Deadlock { sleeping }));
}

#[test]
fn a_run_that_never_ends_is_ended_at_its_limit() {
    let word = CachePadded(AtomicU64::new(0));
    let ended = sharing(2, &word).limit_ns(1_000_000).run(|cpu| {
        while word.load(Ordering::Relaxed) == 0 {
            cpu.relax(u32::MAX);
        }
    });
    assert!(matches!(
        ended,
        Err(RunError::TooLong {
            limit_ns: 1_000_000,
            ..
        })
    ));
}

#[test]
fn a_page_that_is_zeroed_as_a_whole_is_its_zeroers_whoever_had_its_lines() {
    const LINES: u64 = 64;
    #[repr(align(4096))]
    struct Page([AtomicU64; 512]);
    let page = Page([const { AtomicU64::new(1) }; 512]);
    let outcome = run(sharing(2, &page), |cpu| {
        let read = |line: usize| {
            let before = cpu.now();
            let value = page.0[line * 8].load(Ordering::Relaxed);
            (value, (cpu.now() - before) / 1000)
        };
        if cpu.id() == CpuId(1) {
            for line in 0..LINES as usize {
                page.0[line * 8].store(2, Ordering::Relaxed);
            }
            cpu.compute_ns(100_000);
            return read(1);
        }
        cpu.compute_ns(50_000);
        FrameBytes::of_words(&page.0).zero();
        read(0)
    });
    assert_eq!(outcome.results, [(0, HIT), (0, CLUSTER)]);
    // What the lines cost before they went is not forgotten.
    let total = outcome.profile.total();
    assert_eq!((total.write_misses, total.read_misses), (LINES, 1));
}

#[test]
fn who_waits_for_its_turn_on_a_line_gets_it_from_who_zeroes_its_page_meanwhile() {
    #[repr(align(4096))]
    struct Shared {
        page: [AtomicU64; 512],
        other: AtomicU64,
    }
    let shared = Shared {
        page: [const { AtomicU64::new(0) }; 512],
        other: AtomicU64::new(0),
    };
    let outcome = run(sharing(2, &shared), |cpu| {
        if cpu.id() == CpuId(0) {
            cpu.compute_ns(2050);
            FrameBytes::of_words(&shared.page).zero();
            return 0;
        }
        shared.page[0].store(1, Ordering::Relaxed);
        cpu.compute_ns(2000);
        // The update waits until this is done, which takes longer than until the other's turn.
        shared.other.store(1, Ordering::Relaxed);
        let before = cpu.now();
        shared.page[0].fetch_add(1, Ordering::Relaxed);
        (cpu.now() - before) / 1000
    });
    assert_eq!(outcome.results[1], MEMORY - HIT + CLUSTER);
}
