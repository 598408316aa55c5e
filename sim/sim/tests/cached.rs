//! What caches have room for: pages that were zeroed or copied in a cluster lately, and lines of a
//! core's own.

mod common;

use vellum::sync::atomic::AtomicU64;

use common::{flat, parse, text};
use vellum::platform::NodeId;
use vellum::sync::bytes::FrameBytes;
use vellum_sim::{Count, Description, Homes, Rate, Share, Simulation, Time};

const PAGE: usize = 4096;
/// Picoseconds of a page at 10 GB/s from memory, and at 40 GB/s from caches.
const FAR: u64 = 409_600;
const NEAR: u64 = 102_400;
/// Picoseconds of a line that a core has lost, of one that nobody has, and of one that it has.
const LOST: u64 = 12_000;
const MEMORY: u64 = 100_000;
const HIT: u64 = 1_000;

fn cached(mut machine: Description, kib: f64) -> Description {
    let source = "assumed: test";
    machine.bandwidth.zero_cached = Some(Rate::new(40.0, source));
    machine.bandwidth.copy_cached = Some(Rate::new(20.0, source));
    machine.processor.cache = Some(Count::new(kib, source));
    machine
}

/// Memory aligned to pages.
fn pages(count: usize) -> Vec<AtomicU64> {
    (0..(count + 1) * PAGE / 8)
        .map(|_| AtomicU64::new(0))
        .collect()
}

/// What zeroing pages one after the other takes on CPU 0, and then on CPU 1.
fn zeroed(machine: &Description, order: &[usize], others: &[usize]) -> Vec<u64> {
    let words = pages(16);
    let skip = words.as_ptr().align_offset(PAGE);
    let words = &words[skip..];
    let mut simulation = Simulation::new(machine, 2).expect("there are two");
    let start = words.as_ptr().cast::<u8>();
    let homes = Homes::Node(NodeId(0));
    simulation
        .place("pages", start, 16 * PAGE, homes)
        .expect("nothing else is placed");
    let zero = |cpu: &vellum_sim::Cpu<'_>, page: usize| {
        let begun = cpu.now();
        let words = &words[page * PAGE / 8..][..PAGE / 8];
        FrameBytes::of_words(words).zero();
        // The report comes before the access.
        cpu.compute_ps(0);
        cpu.now() - begun
    };
    let outcome = simulation.run(|cpu| match cpu.id().0 {
        0 => order.iter().map(|&page| zero(cpu, page)).collect(),
        _ => {
            cpu.compute_ns(100_000);
            others
                .iter()
                .map(|&page| zero(cpu, page))
                .collect::<Vec<u64>>()
        }
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    outcome.results.concat()
}

#[test]
fn a_page_is_cached_until_as_much_as_fits_was_moved_since() {
    // Four pages.
    let machine = cached(flat(2), 16.0);
    let order = [0, 0, 1, 2, 0, 3, 4, 5, 6, 0];
    let expected = [FAR, NEAR, FAR, FAR, NEAR, FAR, FAR, FAR, FAR, FAR];
    assert_eq!(zeroed(&machine, &order, &[]), expected);
}

#[test]
fn cores_of_a_cluster_share_its_caches_and_others_do_not() {
    let found = zeroed(&cached(flat(2), 1024.0), &[0], &[0]);
    assert_eq!(found, [FAR, NEAR]);
    let two = parse(&text(1, 1, 2, ""));
    let found = zeroed(&cached(two, 1024.0), &[0], &[0]);
    assert_eq!(found[0], FAR);
    assert!(found[1] >= FAR, "{found:?}");
}

#[test]
fn without_the_figures_all_pages_come_from_memory() {
    assert_eq!(zeroed(&flat(2), &[0, 0], &[0]), [FAR; 3]);
}

/// What a load of each of some lines takes, one after the other, in the second round.
fn loaded(machine: &Description, lines: usize) -> Vec<u64> {
    let words = pages(lines / 64);
    let skip = words.as_ptr().align_offset(PAGE);
    let words = &words[skip..];
    let mut simulation = Simulation::new(machine, 1).expect("there are two");
    let start = words.as_ptr().cast::<u8>();
    simulation
        .place("lines", start, lines * 64, Homes::Node(NodeId(0)))
        .expect("nothing else is placed");
    let outcome = simulation.run(|cpu| {
        let round = || {
            let load = |line: usize| {
                let begun = cpu.now();
                words[line * 8].load(std::sync::atomic::Ordering::Relaxed);
                cpu.compute_ps(0);
                cpu.now() - begun
            };
            (0..lines).map(load).collect::<Vec<u64>>()
        };
        round();
        round()
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    outcome.results.concat()
}

/// 64 lines in a core's own caches, 256 in those of its cluster.
fn with_own(mut machine: Description) -> Description {
    let source = "assumed: test";
    machine.lines.cached = Some(Time::new(LOST as f64 / 1000.0, source));
    machine.processor.own_cache = Some(Count::new(4.0, source));
    cached(machine, 16.0)
}

#[test]
fn lines_beyond_what_a_core_has_room_for_come_from_its_cluster_and_then_from_memory() {
    let machine = with_own(flat(2));
    let all = |lines, price| {
        let found = loaded(&machine, lines);
        assert_eq!(found, vec![price; lines], "{lines} lines");
    };
    all(64, HIT);
    all(128, LOST);
    all(192, LOST);
    all(320, MEMORY);
    assert_eq!(loaded(&flat(2), 320), vec![HIT; 320]);
}

#[test]
fn a_core_waits_for_a_share_of_the_time_that_lost_lines_take() {
    let mut machine = with_own(flat(2));
    machine.processor.exposed = Some(Share::new(0.5, "assumed: test"));
    assert_eq!(loaded(&machine, 64), vec![HIT; 64]);
    assert_eq!(loaded(&machine, 128), vec![LOST / 2; 128]);
    assert_eq!(loaded(&machine, 320), vec![MEMORY / 2; 320]);
    machine.processor.exposed = Some(Share::new(0.05, "assumed: test"));
    assert_eq!(loaded(&machine, 128), vec![HIT.max(LOST / 20); 128]);
}

/// Pages that were moved in bulk take the room of lines.
#[test]
fn a_line_is_lost_to_a_page_that_was_zeroed_since() {
    let machine = with_own(flat(2));
    let words = pages(2);
    let skip = words.as_ptr().align_offset(PAGE);
    let words = &words[skip..];
    let mut simulation = Simulation::new(&machine, 1).expect("there are two");
    let start = words.as_ptr().cast::<u8>();
    simulation
        .place("pages", start, 2 * PAGE, Homes::Node(NodeId(0)))
        .expect("nothing else is placed");
    let outcome = simulation.run(|cpu| {
        let load = || {
            let begun = cpu.now();
            words[0].load(std::sync::atomic::Ordering::Relaxed);
            cpu.compute_ps(0);
            cpu.now() - begun
        };
        load();
        let before = load();
        FrameBytes::of_words(&words[PAGE / 8..][..PAGE / 8]).zero();
        [before, load(), load()]
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(outcome.results, [[HIT, LOST, HIT]]);
}
