//! Cache lines: a core's own, another core's, and those that several read.

use std::hint::{black_box, spin_loop};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use vellum_description::Time;

use crate::Effort;
use crate::host::{Host, HostCpu, pin};
use crate::rounds::{Rounds, nanoseconds};

/// Keeps a value out of other values' lines, and out of the lines that are fetched along
/// with them.
#[repr(align(256))]
struct Alone<T>(T);

/// Pairs of CPUs that are measured for each distance.
const PAIRS: usize = 8;

pub(crate) fn hit(host: &Host, effort: Effort) -> io::Result<Time> {
    const LOADS: u32 = 1 << 18;
    // 16 KiB, in a circle with a stride that no prefetcher expects.
    const ITEMS: usize = 2048;
    pin(host.first().cpu)?;
    let next: Vec<usize> = (0..ITEMS).map(|place| (place + 1237) % ITEMS).collect();
    let rounds = Rounds::take(effort, 25, || {
        let mut place = 0;
        let all = nanoseconds(|| {
            for _ in 0..LOADS {
                place = next[black_box(place)];
            }
        });
        black_box(place);
        all / f64::from(LOADS)
    });
    Ok(rounds.time("loads that depend on one another, in 16 KiB"))
}

pub(crate) fn update(host: &Host, effort: Effort) -> io::Result<Time> {
    const UPDATES: u32 = 1 << 17;
    pin(host.first().cpu)?;
    let word = Alone(AtomicU64::new(0));
    let rounds = Rounds::take(effort, 25, || {
        let all = nanoseconds(|| {
            for _ in 0..UPDATES {
                word.0.fetch_add(1, Ordering::SeqCst);
            }
        });
        all / f64::from(UPDATES)
    });
    Ok(rounds.time("additions to one word"))
}

/// Whether two CPUs are at one.
type Distance = fn(HostCpu, HostCpu) -> bool;

/// Lines of other cores, by distance; a distance that there is not has no figure.
pub(crate) struct Between {
    pub sibling: Option<Time>,
    pub cluster: Option<Time>,
    pub socket: Option<Time>,
    pub board: Option<Time>,
}

pub(crate) fn between(host: &Host, effort: Effort) -> io::Result<Between> {
    let at = |holds: Distance| at_a_distance(host.pairs(PAIRS, holds), effort);
    Ok(Between {
        sibling: at(|a, b| a.core == b.core)?,
        cluster: at(in_a_cluster)?,
        socket: at(in_a_socket)?,
        board: at(on_a_board)?,
    })
}

/// Between one pair of cores, the nearest to each other that there is, with the key of their
/// distance.
pub(crate) fn nearest(host: &Host, effort: Effort) -> io::Result<Option<(&'static str, Time)>> {
    let distances: [(&str, Distance); 3] = [
        ("cluster", in_a_cluster),
        ("socket", in_a_socket),
        ("board", on_a_board),
    ];
    for (key, holds) in distances {
        if let Some(time) = at_a_distance(host.pairs(1, holds), effort)? {
            return Ok(Some((key, time)));
        }
    }
    Ok(None)
}

fn in_a_cluster(a: HostCpu, b: HostCpu) -> bool {
    a.core != b.core && a.cluster == b.cluster
}

fn in_a_socket(a: HostCpu, b: HostCpu) -> bool {
    a.cluster != b.cluster && a.socket == b.socket
}

fn on_a_board(a: HostCpu, b: HostCpu) -> bool {
    a.socket != b.socket
}

/// Between all of these pairs; `None` if there are none.
fn at_a_distance(pairs: Vec<(HostCpu, HostCpu)>, effort: Effort) -> io::Result<Option<Time>> {
    if pairs.is_empty() {
        return Ok(None);
    }
    let mut all = Vec::new();
    for &(one, other) in &pairs {
        all.extend(ping_pong(one.cpu, other.cpu, effort)?);
    }
    let count = pairs.len();
    let s = if count == 1 { "" } else { "s" };
    Ok(Some(Rounds::of(all).time(&format!(
        "compare-and-swap ping-pong one way, {count} pair{s} of CPUs"
    ))))
}

/// Two CPUs count up one word in turn: nanoseconds of a turn, round by round.
fn ping_pong(one: usize, other: usize, effort: Effort) -> io::Result<Vec<f64>> {
    // With other programs beside it, a turn may last as long as theirs.
    let (rounds, turns): (u64, u64) = match effort {
        Effort::Full => (25, 4000),
        Effort::Quick => (3, 200),
    };
    let word = Alone(AtomicU64::new(0));
    let all = (rounds + 1) * turns;
    // Takes the turns of one parity.
    let turn = |mut value: u64| {
        let end = value + all;
        let mut begun = Instant::now();
        let mut times = Vec::new();
        while value < end {
            while word
                .0
                .compare_exchange(value, value + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                spin_loop();
            }
            value += 2;
            if value % turns < 2 {
                times.push(begun.elapsed().as_nanos() as f64 / turns as f64);
                begun = Instant::now();
            }
        }
        times
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| pin(other).map(|()| turn(1)));
        let first = scope.spawn(|| pin(one).map(|()| turn(0)));
        // A thread that cannot be pinned would leave the other waiting, but both are
        // pinned to CPUs that this process may use.
        let times = first
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        second
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        // The first round brings caches and clocks up to speed.
        Ok(times.into_iter().skip(1).collect())
    })
}

/// How much later each further reader has a line that was just written. With fewer than
/// three cores in a cluster there is no such figure.
pub(crate) fn slot(host: &Host, effort: Effort) -> io::Result<Option<Time>> {
    const MOST_READERS: usize = 7;
    let first = host.first();
    let mut cores = std::collections::BTreeSet::from([first.core]);
    let others = host
        .cpus()
        .iter()
        .filter(|cpu| cpu.cluster == first.cluster);
    let readers: Vec<usize> = others
        .filter(|cpu| cores.insert(cpu.core))
        .map(|cpu| cpu.cpu)
        .take(MOST_READERS)
        .collect();
    if readers.len() < 2 {
        return Ok(None);
    }
    let (rounds, writes) = match effort {
        Effort::Full => (15, 2000),
        Effort::Quick => (3, 200),
    };
    let per_write = |readers: &[usize]| -> io::Result<f64> {
        let word = Alone(AtomicU64::new(0));
        let seen: Vec<Alone<AtomicU64>> =
            readers.iter().map(|_| Alone(AtomicU64::new(0))).collect();
        thread::scope(|scope| {
            let threads: Vec<_> = readers
                .iter()
                .zip(&seen)
                .map(|(&cpu, seen)| {
                    let word = &word;
                    scope.spawn(move || {
                        let pinned = pin(cpu);
                        for value in 1..=writes {
                            while word.0.load(Ordering::Acquire) < value {
                                spin_loop();
                            }
                            seen.0.store(value, Ordering::Release);
                        }
                        pinned
                    })
                })
                .collect();
            pin(first.cpu)?;
            let all = nanoseconds(|| {
                for value in 1..=writes {
                    word.0.store(value, Ordering::Release);
                    for seen in &seen {
                        while seen.0.load(Ordering::Acquire) < value {
                            spin_loop();
                        }
                    }
                }
            });
            for thread in threads {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(all / writes as f64)
        })
    };
    let mut slots = Vec::new();
    for _ in 0..rounds {
        let (alone, all) = (per_write(&readers[..1])?, per_write(&readers)?);
        // Each reader more also answers in a line of its own, which overlaps.
        slots.push(((all - alone) / (readers.len() - 1) as f64 / 2.0).max(0.1));
    }
    Ok(Some(Rounds::of(slots).time(&format!(
        "half of what each reader more adds to a round of one writer and 1 or {} readers",
        readers.len()
    ))))
}
