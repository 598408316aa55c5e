//! The same seed gives the same virtual time, wherever the host has put things; and what
//! is not reported, or not placed, is found.

mod common;

use std::sync::atomic::{AtomicU64 as Unreported, Ordering};

use common::flat;
use vellum::platform::{CpuId, NodeId};
use vellum::sync::atomic::AtomicU64;
use vellum::sync::bytes::{FrameBytes, prefetch, prefetch_to_write};
use vellum::sync::report::Kind;
use vellum::sync::{CachePadded, Epochs, PinHost, SpinLock};
use vellum_sim::{
    Description, Homes, Outcome, PlaceError, PlacedHeap, RunError, Simulation, with_cpu,
};

#[global_allocator]
static HEAP: PlacedHeap = PlacedHeap;

struct Host;

impl PinHost for Host {
    fn unpin(&self, _cpu: CpuId) {}
    fn relax(&self, _cpu: CpuId, spins: u32) {
        with_cpu(|cpu| cpu.relax(spins));
    }
}

/// What the CPUs of [`mixed`] share.
struct Shared {
    epochs: Box<Epochs>,
    lock: Box<SpinLock<[u64; 20]>>,
    words: Vec<AtomicU64>,
    page: Box<[CachePadded<AtomicU64>; 512]>,
}

/// Locks, counters, epochs, pages, sleep and shootdowns, chosen at random.
fn mixed(machine: &str, cpus: usize, seed: u64) -> Outcome<u64> {
    let machine = Description::named(machine).unwrap_or_else(|error| panic!("{error}"));
    let make = || Shared {
        epochs: Box::new(Epochs::new(cpus)),
        lock: Box::new(SpinLock::new([0; 20])),
        words: (0..100).map(|_| AtomicU64::new(0)).collect(),
        page: Box::new([const { CachePadded(AtomicU64::new(0)) }; 512]),
    };
    let (shared, heap) = PlacedHeap::fill(4 << 20, make).expect("it is installed");
    let mut simulation = Simulation::new(&machine, cpus)
        .unwrap_or_else(|error| panic!("{error}"))
        .seed(seed, 1000);
    let homes = Homes::Interleaved(machine.nodes() as u16);
    simulation
        .place("heap", heap.start, heap.bytes, homes)
        .expect("nothing else is placed");
    let run = simulation.run(|cpu| {
        let mut random = cpu.random();
        for _ in 0..4000 / cpus {
            // SAFETY: every CPU has a coroutine of its own, and pins itself.
            let pin = unsafe { shared.epochs.enter(&Host, cpu.id()) };
            match random.below(6) {
                0 => shared.lock.lock(&pin)[random.below(20) as usize] += 1,
                1 => {
                    let word = &shared.words[random.below(100) as usize];
                    word.fetch_add(1, Ordering::Relaxed);
                }
                2 => {
                    shared.epochs.try_advance();
                }
                3 => {
                    let line = &shared.page[random.below(512) as usize];
                    FrameBytes::of_words(std::slice::from_ref(&line.0)).zero();
                }
                4 => cpu.flush((0..cpus as u16 / 2).map(CpuId), Some(1 + random.below(40))),
                _ => cpu.compute_ns(random.below(3000)),
            }
            drop(pin);
        }
        cpu.now()
    });
    run.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_same_seed_gives_the_same_picosecond_wherever_memory_lies() {
    for (machine, cpus, elapsed) in [
        ("epyc-milan-2s", 192, 1_261_577_058u64),
        ("numa-q-16", 16, 15_211_601_253),
        ("altix-512", 512, 2_731_821_663),
    ] {
        let one = mixed(machine, cpus, 42);
        // Whatever the host's allocator and its stack now have where.
        let moved: Vec<Vec<u8>> = (1..200).map(|size| vec![1; size * 977]).collect();
        let other = mixed(machine, cpus, 42);
        drop(moved);
        assert!(one == other, "{machine}: two runs of one seed differ");
        assert_eq!(one.elapsed, elapsed, "{machine}: not what it is elsewhere");
        assert!(
            mixed(machine, cpus, 43).elapsed != elapsed,
            "{machine}: the seed means nothing"
        );
    }
}

/// Words that two CPUs share, and words that nobody reports.
struct Watched {
    words: CachePadded<[AtomicU64; 64]>,
    unreported: CachePadded<[Unreported; 64]>,
}

impl Default for Watched {
    fn default() -> Self {
        Watched {
            words: CachePadded([const { AtomicU64::new(0) }; 64]),
            unreported: CachePadded([const { Unreported::new(0) }; 64]),
        }
    }
}

fn watching(watched: &Watched) -> Simulation {
    let mut simulation = Simulation::new(&flat(2), 2).expect("there are two");
    simulation
        .place_value("watched", watched, NodeId(0))
        .expect("nothing else is placed");
    // SAFETY: `watched` outlives the run, and nobody else knows it.
    unsafe { simulation.check_reports() }
}

/// What CPUs take that use `LINES` lines and, `apart` bytes from the first of them, as many others,
/// often after asking for them ahead.
fn apart(apart: usize) -> u64 {
    const CPUS: usize = 8;
    const LINES: usize = 8;
    let memory: Vec<AtomicU64> = (0..(9 << 20) / 8).map(|_| AtomicU64::new(0)).collect();
    let skip = memory.as_ptr().align_offset(4096);
    let ranges = [skip, skip + apart / 8].map(|start| &memory[start..][..LINES * 8]);
    let machine = Description::named("epyc-milan-2s").expect("it comes with the program");
    let mut simulation = Simulation::new(&machine, CPUS).expect("it has so many");
    for (name, range) in ["one", "other"].into_iter().zip(ranges) {
        simulation
            .place(name, range.as_ptr(), LINES * 64, Homes::Node(NodeId(0)))
            .expect("they lie apart");
    }
    let outcome = simulation.seed(5, 100).run(|cpu| {
        let mut random = cpu.random();
        for _ in 0..20_000 {
            let number = random.below(2 * LINES as u64) as usize;
            let word = &ranges[number % 2][number / 2 * 8];
            if random.below(2) == 0 {
                prefetch(word);
                cpu.compute_ns(random.below(300));
            }
            for _ in 0..random.below(4) {
                word.load(Ordering::Relaxed);
            }
            match random.below(8) {
                0 => prefetch_to_write(word),
                1 => word.store(1, Ordering::Relaxed),
                2 => drop(word.fetch_add(1, Ordering::Relaxed)),
                _ => {}
            }
        }
    });
    outcome.unwrap_or_else(|error| panic!("{error}")).elapsed
}

#[test]
fn it_does_not_matter_which_lines_lie_at_addresses_that_are_alike() {
    let elapsed = [(8 << 20), (4 << 20), (4 << 20) + 4096, (1 << 20) + 64].map(apart);
    assert_eq!(elapsed, [elapsed[0]; 4]);
}

#[test]
fn a_write_that_is_not_reported_is_found_at_its_place() {
    for seed in 0..40 {
        let watched = Watched::default();
        let ended = watching(&watched).seed(seed, 100).run(|cpu| {
            let mut random = cpu.random();
            let when = random.below(2000);
            for turn in 0..2000 {
                let word = &watched.words.0[random.below(64) as usize];
                match random.below(3) {
                    0 => word.store(random.draw(), Ordering::Relaxed),
                    1 => drop(word.fetch_add(1, Ordering::Relaxed)),
                    _ => drop(word.load(Ordering::Relaxed)),
                }
                if turn == when && cpu.id() == CpuId(1) {
                    watched.unreported.0[seed as usize].store(1, Ordering::Relaxed);
                }
            }
        });
        let offset = core::mem::offset_of!(Watched, unreported) + 8 * seed as usize;
        match ended {
            Err(RunError::Unreported {
                place,
                offset: found,
                ..
            }) => {
                assert_eq!((place.as_str(), found), ("watched", offset), "seed {seed}");
            }
            other => panic!(
                "seed {seed}: not found, but {:?}",
                other.map(|run| run.elapsed)
            ),
        }
    }
}

#[test]
fn every_kind_of_reported_write_is_known_to_have_been_made() {
    struct All {
        word: CachePadded<AtomicU64>,
        pages: Vec<CachePadded<[AtomicU64; 64]>>,
        lock: Box<SpinLock<[u64; 9]>>,
        epochs: Box<Epochs>,
    }
    let make = || All {
        word: CachePadded::default(),
        pages: (0..2)
            .map(|_| CachePadded([const { AtomicU64::new(0) }; 64]))
            .collect(),
        lock: Box::new(SpinLock::new([0; 9])),
        epochs: Box::new(Epochs::new(2)),
    };
    let (all, heap) = PlacedHeap::fill(1 << 20, || Box::new(make())).expect("it is installed");
    let mut simulation = Simulation::new(&flat(2), 2).expect("there are two");
    simulation
        .place("heap", heap.start, heap.bytes, Homes::Node(NodeId(0)))
        .expect("nothing else is placed");
    // SAFETY: what is on the heap stays, and nobody else knows it.
    let simulation = unsafe { simulation.check_reports() };
    let ended = simulation.run(|cpu| {
        let [one, other] = [0, 1].map(|page| FrameBytes::of_words(&all.pages[page].0));
        for round in 1..100 {
            // SAFETY: every CPU has a coroutine of its own, and pins itself.
            let pin = unsafe { all.epochs.enter(&Host, cpu.id()) };
            all.lock.lock(&pin)[round as usize % 9] += 1;
            drop(pin);
            all.word.fetch_max(round, Ordering::Relaxed);
            one.fill(round);
            other.copy_from(one);
            other.write(3, &[7; 77]);
            one.zero_towards(all.pages.as_ptr().cast());
            one.zero_around_caches();
            cpu.unreported(|| all.word.store(round, Ordering::Relaxed));
        }
    });
    assert!(
        ended.is_ok(),
        "{}",
        ended
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    );
}

#[test]
fn an_access_to_memory_without_a_place_ends_the_run() {
    let word = CachePadded(AtomicU64::new(0));
    let simulation = Simulation::new(&flat(2), 2).expect("there are two");
    let ended = simulation.run(|cpu| {
        // What is on the CPU's own stack needs no place.
        let own = AtomicU64::new(0);
        own.fetch_add(1, Ordering::Relaxed);
        if cpu.id() == CpuId(1) {
            cpu.compute_ns(10);
            word.store(1, Ordering::Relaxed);
        }
    });
    let unplaced = RunError::Unplaced {
        cpu: CpuId(1),
        kind: Kind::Store,
        bytes: 8,
    };
    assert_eq!(ended.err(), Some(unplaced));
}

#[test]
fn memory_has_one_place_and_begins_a_line() {
    let words = CachePadded([const { AtomicU64::new(0) }; 32]);
    let mut simulation = Simulation::new(&flat(2), 2).expect("there are two");
    let node = || Homes::Node(NodeId(0));
    let unaligned = simulation.place("word", &raw const words.0[1], 8, node());
    assert!(matches!(unaligned, Err(PlaceError::Unaligned { .. })));
    assert_eq!(
        simulation.place("one", &raw const words, 64, node()),
        Ok(())
    );
    let overlap = PlaceError::Overlap {
        name: "two".to_owned(),
        other: "one".to_owned(),
    };
    let again = simulation.place("two", &raw const words, 256, node());
    assert_eq!(again, Err(overlap));
    assert_eq!(
        simulation.place("two", &raw const words.0[8], 64, node()),
        Ok(())
    );
}

#[test]
fn a_panic_on_a_simulated_cpu_is_the_callers_and_the_others_are_unwound() {
    use std::sync::atomic::AtomicUsize;
    struct Counted<'c>(&'c AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let unwound = AtomicUsize::new(0);
    let simulation = Simulation::new(&flat(8), 8).expect("there are eight");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        simulation.run(|cpu| {
            let _counted = Counted(&unwound);
            if cpu.id() == CpuId(5) {
                cpu.compute_ns(100);
                panic!("on purpose");
            }
            cpu.sleep();
        })
    }));
    let message = panicked
        .err()
        .and_then(|panic| panic.downcast_ref::<&str>().copied());
    assert_eq!(message, Some("on purpose"));
    assert_eq!(unwound.load(Ordering::Relaxed), 8);
    assert_eq!(with_cpu(|_| ()), None);
}
