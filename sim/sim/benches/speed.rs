//! How fast simulations are: accesses a second that a host core simulates.
//!
//! Words that all CPUs use move their line with each access, and a CPU hands over to another at
//! each. Words of a CPU's own are what most accesses of a program are to.
//!
//! `cargo bench -p vellum-sim --bench speed`, or only the loads with a text in their name:
//! `cargo bench -p vellum-sim --bench speed -- "each moves a line, 16"`

use std::sync::atomic::Ordering;
use std::time::Instant;

use vellum::platform::NodeId;
use vellum::sync::atomic::AtomicU64;
use vellum_sim::{Description, Homes, Simulation};

/// Words of a line.
const WORDS: usize = 8;
/// Lines of a CPU's own.
const OWN: usize = 64;
const ROUNDS: usize = 5;

/// One of `own` accesses is to a word that all use; 0 for all.
struct Load {
    name: &'static str,
    cpus: usize,
    machine: &'static str,
    own: usize,
    accesses: usize,
    bar: f64,
}

const LOADS: [Load; 4] = [
    Load {
        name: "each moves a line",
        cpus: 16,
        machine: "numa-q-16",
        own: 0,
        accesses: 400_000,
        bar: 20e6,
    },
    Load {
        name: "each moves a line",
        cpus: 512,
        machine: "generated-512",
        own: 0,
        accesses: 10_000,
        bar: 10e6,
    },
    Load {
        name: "one in 64 moves a line",
        cpus: 16,
        machine: "numa-q-16",
        own: 64,
        accesses: 1_500_000,
        bar: 60e6,
    },
    Load {
        name: "one in 64 moves a line",
        cpus: 512,
        machine: "generated-512",
        own: 64,
        accesses: 50_000,
        bar: 60e6,
    },
];

fn main() {
    println!("accesses a second of one core of the host, median of {ROUNDS} (range)");
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let is_wanted = |load: &&Load| {
        let name = format!("{}, {} CPUs", load.name, load.cpus);
        wanted.as_ref().is_none_or(|wanted| name.contains(wanted))
    };
    for load in LOADS.iter().filter(is_wanted) {
        let mut rates: Vec<f64> = (0..ROUNDS).map(|_| rate(load)).collect();
        rates.sort_by(f64::total_cmp);
        let middle = rates[ROUNDS / 2];
        let verdict = if middle >= load.bar {
            "reached"
        } else {
            "missed"
        };
        println!(
            "{:<24} {:>3} CPUs {:>7.1} M/s  ({:.1} .. {:.1})  bar {:.0} {verdict}",
            load.name,
            load.cpus,
            middle / 1e6,
            rates[0] / 1e6,
            rates[ROUNDS - 1] / 1e6,
            load.bar / 1e6
        );
    }
}

fn rate(load: &Load) -> f64 {
    let machine = Description::named(load.machine).expect("it comes with the program");
    // As many words for all as there are CPUs, each in a line of its own, and then the CPUs' own.
    let lines = load.cpus * (1 + OWN);
    let words: Vec<AtomicU64> = (0..(lines + 1) * WORDS)
        .map(|_| AtomicU64::new(0))
        .collect();
    let skip = words.as_ptr().align_offset(64);
    let words = &words[skip..];
    let mut simulation = Simulation::new(&machine, load.cpus).expect("it has so many");
    let start = words.as_ptr().cast::<u8>();
    simulation
        .place("words", start, lines * 64, Homes::Node(NodeId(0)))
        .expect("nothing else is placed");
    let begun = Instant::now();
    let outcome = simulation
        .run(|cpu| {
            let me = usize::from(cpu.id().0);
            for access in 0..load.accesses {
                let line = match load.own {
                    own if own > 0 && access % own != 0 => load.cpus + me * OWN + access % OWN,
                    _ => (me + access) % load.cpus,
                };
                words[line * WORDS].fetch_add(1, Ordering::Relaxed);
            }
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let seconds = begun.elapsed().as_secs_f64();
    let accesses: u64 = outcome.cpus.iter().map(|cpu| cpu.accesses).sum();
    assert_eq!(accesses, (load.cpus * load.accesses) as u64);
    accesses as f64 / seconds
}
