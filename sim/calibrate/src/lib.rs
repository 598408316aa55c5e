//! Measures the machine that it runs on, and describes it for `vellum-sim`.
//!
//! Cores and caches come from `/sys`. Prices are measured by small programs on pinned
//! threads: each figure is the median of several rounds, and its source says how it was
//! measured and how far the rounds lay apart. What cannot be measured here, with these
//! CPUs or rights, is assumed, and its source says so. `docs/many-cpus.md` lists the
//! methods.
//!
//! Other programs that run meanwhile make every figure worse. Measure on an idle
//! machine.
#![deny(missing_docs)]

mod bulk;
pub mod entry;
mod flush;
mod host;
mod lines;
mod memory;
pub mod rounds;
mod sleep;
mod threads;
mod translation;

use std::io;
use std::path::Path;

use vellum_description::{
    Bandwidth, Count, Description, Flaw, FlushPrices, Lines, Memory, Processor, Share,
    SystemPrices, Time, Work,
};

pub use host::{Host, HostCpu, HostError};
pub use memory::{Backing, Mapping};
pub use translation::{Reach, reach};

/// How much to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Effort {
    /// So that medians are steady on an idle machine: half a minute.
    #[default]
    Full,
    /// A few rounds of each, to see that everything works. Figures are no good.
    Quick,
}

/// Why there is no description.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the machine consists of cannot be read, or cannot be described.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Something that has to be measured cannot be.
    #[error("{what} cannot be measured: {source}")]
    Measure {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The figures contradict one another.
    #[error(
        "the figures contradict one another, as they do when other programs run: {}; measure \
         again on an idle machine",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Contradiction(Vec<Flaw>),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Names what fails.
trait Measuring<T> {
    fn measuring(self, what: &'static str) -> Result<T, Error>;
}

impl<T> Measuring<T> for io::Result<T> {
    fn measuring(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Measure { what, source })
    }
}

/// How long a line takes now from a core to the nearest other, and the key of [`Lines`] that has
/// such a figure; `None` if there is one core. A hypervisor may move its guest's CPUs, so that
/// two of them are near each other at one time and not at another.
///
/// # Errors
/// Any [`Error`].
pub fn nearest_line(effort: Effort) -> Result<Option<(&'static str, Time)>, Error> {
    let host = Host::of_this_thread(Path::new("/sys/devices/system"))?;
    lines::nearest(&host, effort).measuring("a line of another core")
}

/// Measures this machine: the CPUs that the calling thread may run on. Before each step
/// `go_on` is told what comes; measuring ends if it says no.
///
/// # Errors
/// Any [`Error`]. Nothing is left behind.
pub fn calibrate(
    effort: Effort,
    go_on: &mut dyn FnMut(&'static str) -> bool,
) -> Result<Description, Error> {
    let host = Host::of_this_thread(Path::new("/sys/devices/system"))?;
    let mut step = |what: &'static str| go_on(what).then_some(()).ok_or(Error::Interrupted);

    step("lines of a core's own")?;
    let hit = lines::hit(&host, effort).measuring("an access to an own line")?;
    let update = lines::update(&host, effort).measuring("an update of an own line")?;
    step("lines of other cores")?;
    let between = lines::between(&host, effort).measuring("a line of another core")?;
    step("lines that several cores read")?;
    let slot = lines::slot(&host, effort).measuring("a line that several cores read")?;
    step("lines that a core has lost")?;
    let lost = memory::lost(&host, effort).measuring("a line that a core has lost")?;
    step("memory")?;
    let memory = memory::distances(&host, effort).measuring("memory")?;
    step("zeroing and copying")?;
    let zero = bulk::zero(&host, effort).measuring("zeroing")?;
    let copy = bulk::copy(&host, effort).measuring("copying")?;
    let node = bulk::node(&host, effort).measuring("copying on all cores")?;
    let cached = bulk::cached(&host, effort).measuring("zeroing what caches hold")?;
    step("threads of a core")?;
    let shared_speed = threads::shared_speed(&host, effort).measuring("threads of a core")?;
    step("entering the kernel")?;
    let syscall = entry::syscall(&host, effort).measuring("a system call")?;
    let trap = entry::trap(&host, effort).measuring("a trap")?;
    step("sleeping and waking")?;
    let sleep = sleep::prices(&host, effort).measuring("sleeping and waking")?;
    step("shootdowns")?;
    let flush = flush::prices(&host, effort).measuring("shootdowns")?;

    step("TLBs")?;
    let known = translation::Known {
        hit: &hit,
        cached: lost.as_ref().map(|(time, _)| time),
        memory: &memory.own,
    };
    let translated = translation::of_host(&host, &known, effort).measuring("TLBs");
    let (translation, reach) = translated?;

    let topology = host.topology()?;
    // On a busy machine caches hold nothing for long.
    let cached = cached.filter(|cached| {
        cached.zero.gb_per_s >= zero.gb_per_s && cached.copy.gb_per_s >= copy.gb_per_s
    });
    let (zero_cached, copy_cached, cache) = match cached {
        Some(cached) => (Some(cached.zero), Some(cached.copy), Some(cached.cache)),
        None => (None, None, None),
    };
    // On a busy machine it may seem slower than memory.
    let lost = lost.filter(|(time, _)| hit.ns <= time.ns && time.ns <= memory.own.ns);
    let (lost, own_cache) = lost.unzip();
    let or_assumed = |time: Option<Time>, ns: f64, why: &str| {
        time.unwrap_or_else(|| Time::new(rounds::shortened(ns), format!("assumed: {why}")))
    };
    // A hit takes four or five cycles on the processors of today.
    let cycle = hit.ns / 4.5;
    let description = Description {
        title: format!("{}: {}", host.model(), plural_of(&topology)),
        notes: format!(
            "Written by vellum calibrate {} on {}{}. Medians of rounds; the ranges are those of \
             the rounds. {}",
            env!("CARGO_PKG_VERSION"),
            host.kernel(),
            match effort {
                Effort::Full => "",
                Effort::Quick => ", QUICKLY: the figures are no good",
            },
            reached(reach.as_ref()),
        ),
        lines: Lines {
            slot: or_assumed(
                slot,
                13.0 * cycle,
                "a cache serves a line in about 13 cycles",
            ),
            hit,
            update,
            cached: lost,
            sibling: between.sibling,
            cluster: between.cluster,
            socket: between.socket,
            board: between.board,
            system: None,
        },
        memory: Memory {
            own: memory.own,
            socket: memory.socket,
            board: memory.board,
            system: None,
        },
        bandwidth: Bandwidth {
            zero,
            copy,
            node,
            zero_cached,
            copy_cached,
        },
        processor: Processor {
            work: Time::new(
                rounds::shortened(8.0 * cycle),
                "assumed: eight instructions between accesses, one a cycle, and 4.5 cycles to a hit",
            ),
            store_buffer: Count::new(56.0, "assumed: processors of today have 44 to 72 entries"),
            cache,
            own_cache,
            exposed: None,
            shared_speed: shared_speed.map(|(share, source)| Share::new(share, source)),
        },
        flush: FlushPrices {
            send: flush.send,
            arrive: flush.arrive,
            handle: flush.handle,
            page: flush.page,
            full: Time::new(
                700.0,
                "assumed: what Hansen, linux-mm 2014-02, found in a kernel build",
            ),
            full_from: Count::new(
                34.0,
                "assumed: Linux forgets up to 33 pages one by one unless told otherwise",
            ),
        },
        system: SystemPrices {
            trap: or_assumed(
                trap,
                5.0 * syscall.ns,
                "about five system calls; there is no fault here that is answered at once",
            ),
            syscall,
            sleep: sleep.sleep,
            wake: sleep.wake,
            wake_latency: sleep.wake_latency,
        },
        // Needs the core, which is measured by whoever has it.
        work: Work::default(),
        translation: Some(translation),
        topology,
    };
    match description.flaws() {
        flaws if flaws.is_empty() => Ok(description),
        flaws => Err(Error::Contradiction(flaws)),
    }
}

/// Whether pages of 2 MiB reach the TLB, as a sentence.
pub fn reached(reach: Option<&Reach>) -> String {
    match reach {
        None => "Whether pages of 2 MiB reach the TLB is not known: there are none, or none miss."
            .to_owned(),
        Some(reach) => format!(
            "Pages of 2 MiB {} the TLB: {}.",
            match reach.reaches() {
                true => "reach",
                false => "do not reach",
            },
            reach.text()
        ),
    }
}

/// "48 cores, 96 threads".
fn plural_of(topology: &vellum_description::Topology) -> String {
    let cores = topology.cores_per_cluster
        * topology.clusters_per_socket
        * topology.sockets_per_board
        * topology.boards;
    let s = if cores == 1 { "" } else { "s" };
    match topology.threads_per_core {
        1 => format!("{cores} core{s}"),
        threads => format!("{cores} core{s}, {} threads", cores * threads),
    }
}
