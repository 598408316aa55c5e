//! `write`, `read`, `readonce` and `pft` on the host's kernel: the calls and stores that
//! the core makes, in the same rows.

use std::path::Path;

use super::entries;
use super::measure::Times;
use super::memory::{Processes, Threads};
use super::plan::{Step, Timed, What, Work, cut};
use super::sides::{Side, Tmpfs};
use crate::bench::findings::{Findings, Run};
use crate::bench::host;
use crate::bench::host::tmpfs::{mount_tmpfs, on_ext4, with_own_mounts};
use crate::bench::request::Request;
use crate::bench::sweep::{self, blocks, cpu_counts, size_name};
use crate::compare::HostClock;
use crate::failure::Failure;
use crate::host::forkfault::{Helper, TrapCost};
use crate::host::{HostError, cpus};
use vellum_terminal::progress::Interrupt;
use vellum_terminal::text::plural;

const MIB: u64 = 1 << 20;

/// Bytes that one CPU moves in a piece.
const PIECE: u64 = 4 * MIB;

/// Pages that one CPU stores to in a piece.
const PAGES: u64 = 512;

const PAGE: u64 = 4096;

/// What is not in files.
const SPARE: u64 = 64 * MIB;

/// Writes of every block size.
///
/// # Errors
/// As [`Linux::run`].
pub fn write(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    Linux::run(request, interrupt, |linux| linux.sweep("writes", writes))
}

/// Reads of every block size.
///
/// # Errors
/// As [`Linux::run`].
pub fn read(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    Linux::run(request, interrupt, |linux| linux.sweep("reads", reads))
}

/// Files of a store, each read once.
///
/// # Errors
/// As [`Linux::run`].
pub fn readonce(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    Linux::run(request, interrupt, |linux| linux.files_read_once())
}

/// First stores to private memory.
///
/// # Errors
/// As [`Linux::run`].
pub fn pft(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    Linux::run(request, interrupt, |linux| linux.faults())
}

struct Linux<'l> {
    request: &'l Request,
    interrupt: &'l Interrupt,
    trap: TrapCost,
    findings: Findings,
}

impl Linux<'_> {
    /// Measures as `measure` says. An interruption keeps what is complete.
    ///
    /// # Errors
    /// There are fewer CPUs than asked for, the kernel refused something, or the user stopped
    /// it before anything was complete.
    fn run(
        request: &Request,
        interrupt: &Interrupt,
        measure: fn(&mut Linux<'_>) -> Result<(), Failure>,
    ) -> Result<Findings, Failure> {
        if request.cpus > cpus() {
            return Err(Failure::usage(format!(
                "--cpus {}: this host lets the program use {}",
                request.cpus,
                plural(cpus(), "CPU", "CPUs")
            )));
        }
        let trap = Helper::this()
            .and_then(|helper| helper.trap_cost(interrupt))
            .map_err(HostError::into_failure)?;
        let mut linux = Linux {
            request,
            interrupt,
            trap,
            findings: host::of_this_kernel(),
        };
        match measure(&mut linux) {
            Err(failure)
                if failure.code() == Failure::INTERRUPTED && !linux.findings.runs.is_empty() =>
            {
                linux.findings.interrupted = true;
            }
            done => done?,
        }
        Ok(linux.findings)
    }

    /// Times `steps` on two sides that are alike, and keeps what comes of it.
    fn add(
        &mut self,
        title: String,
        mut facts: Vec<String>,
        steps: Vec<Step>,
        sides: [&dyn Side; 2],
    ) -> Result<(), Failure> {
        let times = Times::take(steps, &sides, self.request, self.interrupt)?;
        facts.push(entries(&self.trap));
        self.findings.runs.push(Run {
            title,
            facts,
            passes: times.passes,
            figures: times.figures(self.request),
            ..Run::default()
        });
        match times.interrupted {
            true => Err(Failure::interrupted("interrupted")),
            false => Ok(()),
        }
    }

    fn sweep(&mut self, what: &str, steps: fn(&Share, &[u64]) -> Vec<Step>) -> Result<(), Failure> {
        let bytes = self.request.sizes.get("mebibytes") * MIB;
        let blocks = blocks(self.request).map_err(Failure::usage)?;
        for variant in &self.request.variants {
            for cpus in cpu_counts(self.request) {
                let share = Share {
                    cpus,
                    shared: variant.name == "shared",
                    bytes,
                };
                let title = sweep::title(what, cpus, share.shared);
                // Both sides have files of this size.
                let room = 2 * bytes * cpus as u64 + SPARE;
                let done = with_own_mounts(|directory| {
                    let place = mount_tmpfs(directory, room)?;
                    let side = |of| Tmpfs::new(directory, of, self.trap, cpus);
                    let (one, again) = (side(0..cpus)?, side(cpus..2 * cpus)?);
                    let facts = vec![
                        format!("{} MiB for each CPU.", bytes / MIB),
                        format!("The files are on {place}."),
                    ];
                    let steps = steps(&share, &blocks);
                    Ok(self.add(title, facts, steps, [&one, &again]))
                });
                done.map_err(HostError::into_failure)??;
            }
        }
        Ok(())
    }

    fn files_read_once(&mut self) -> Result<(), Failure> {
        let bytes = self.request.sizes.get("mebibytes") * MIB;
        let (block, rounds) = (
            self.request.sizes.get("block"),
            self.request.sizes.get("rounds"),
        );
        let most = 2 * bytes * self.request.cpus as u64;
        let measure = |directory: &Path, place: &str| -> Result<(), Failure> {
            let files = 2 * self.request.cpus;
            let all = Tmpfs::new(directory, 0..files, self.trap, 1);
            let all = all.map_err(HostError::into_failure)?;
            for file in 0..files {
                let write = Work {
                    what: What::Write,
                    file,
                    at: 0,
                    bytes,
                    block: MIB,
                };
                all.work(0, &write)?;
            }
            let (one, again) = all.split(self.request.cpus);
            self.readonce_of(place, (bytes, block, rounds), [&one, &again])
        };
        let room = most / 8 * 9 + (128 << 20);
        // What fails in the measurement has its exit code already.
        on_ext4("readonce", room, measure).map_err(HostError::into_failure)?
    }

    fn readonce_of(
        &mut self,
        place: &str,
        (bytes, block, rounds): (u64, u64, u64),
        sides: [&dyn Side; 2],
    ) -> Result<(), Failure> {
        for cpus in cpu_counts(self.request) {
            let work = |what: What| {
                let of_cpu = move |file: usize| Work {
                    what,
                    file,
                    at: 0,
                    bytes,
                    block,
                };
                (0..cpus).map(of_cpu).collect::<Vec<Work>>()
            };
            let read = Step {
                name: "read once".to_owned(),
                per: "MiB",
                units: (bytes / MIB * cpus as u64) as f64,
                timed: how(cpus),
                pieces: vec![work(What::Read)],
            };
            let forget = Step {
                pieces: work(What::Forget)
                    .into_iter()
                    .map(|one| vec![one])
                    .collect(),
                ..cut(0)
            };
            let steps = (0..rounds).flat_map(|_| [forget.clone(), read.clone()]);
            let title = plural(cpus, "CPU, a file for each", "CPUs, a file for each");
            let facts = vec![
                format!(
                    "Files of {} MiB, read in blocks of {}, that the kernel was told to drop from \
                     memory before. CPU time has no part of what reads the device.",
                    bytes / MIB,
                    size_name(block)
                ),
                format!("The files are on {place}."),
            ];
            self.add(title, facts, steps.collect(), sides)?;
        }
        Ok(())
    }

    fn faults(&mut self) -> Result<(), Failure> {
        let (pages, rounds) = (
            self.request.sizes.get("pages"),
            self.request.sizes.get("rounds"),
        );
        let clock = HostClock::new();
        for variant in &self.request.variants {
            for cpus in cpu_counts(self.request) {
                let threads = variant.name == "threads";
                let title = match threads {
                    true => plural(cpus, "thread", "threads"),
                    false => plural(cpus, "process", "processes"),
                };
                let facts = vec![format!(
                    "{pages} pages each, stored to for the first time, in {}; no huge pages.",
                    plural(rounds as usize, "round", "rounds")
                )];
                let side = || -> Result<Box<dyn Side>, HostError> {
                    let bytes = pages * PAGE;
                    Ok(match threads {
                        true => Box::new(Threads::new(cpus, bytes, self.trap)?),
                        false => Box::new(Processes::new(cpus, bytes, self.trap, &clock)?),
                    })
                };
                let made = side().and_then(|one| Ok((one, side()?)));
                let (one, again) = made.map_err(HostError::into_failure)?;
                let steps = (0..rounds).flat_map(|_| faults(cpus, pages)).collect();
                self.add(title, facts, steps, [&*one, &*again])?;
            }
        }
        Ok(())
    }
}

/// How what `cpus` do is timed.
fn how(cpus: usize) -> Timed {
    if cpus > 1 { Timed::Both } else { Timed::Cpu }
}

/// Bytes of files that CPUs share out.
struct Share {
    cpus: usize,
    shared: bool,
    /// Bytes of each.
    bytes: u64,
}

impl Share {
    fn step(&self, name: String, what: What, block: u64) -> Step {
        let piece = if self.cpus == 1 {
            PIECE.min(self.bytes)
        } else {
            self.bytes
        };
        let work = |cpu: usize, from: u64| Work {
            what,
            file: if self.shared { 0 } else { cpu },
            at: from
                + if self.shared {
                    cpu as u64 * self.bytes
                } else {
                    0
                },
            bytes: piece.min(self.bytes - from),
            block,
        };
        let pieces = (0..self.bytes).step_by(piece as usize);
        Step {
            name,
            per: "MiB",
            units: (self.bytes / MIB * self.cpus as u64) as f64,
            timed: how(self.cpus),
            pieces: pieces
                .map(|from| (0..self.cpus).map(|cpu| work(cpu, from)).collect())
                .collect(),
        }
    }

    /// Truncates every file, one after the other.
    fn truncate(&self) -> Step {
        let files = if self.shared { 1 } else { self.cpus };
        Step {
            name: "truncate".to_owned(),
            per: "MiB",
            units: (self.bytes / MIB * self.cpus as u64) as f64,
            timed: Timed::Cpu,
            pieces: (0..files).flat_map(|file| cut(file).pieces).collect(),
        }
    }
}

fn writes(share: &Share, blocks: &[u64]) -> Vec<Step> {
    let of_block = |block: &u64| {
        let name = |what: &str| format!("{what}, {}", size_name(*block));
        [
            share.step(name("new pages"), What::Write, *block),
            share.step(name("overwrite"), What::Write, *block),
            share.truncate(),
        ]
    };
    blocks.iter().flat_map(of_block).collect()
}

fn reads(share: &Share, blocks: &[u64]) -> Vec<Step> {
    let fill = Step {
        timed: Timed::Not,
        ..share.step(String::new(), What::Write, MIB)
    };
    let of_block = |block: &u64| {
        let name = format!("read, {}", size_name(*block));
        share.step(name, What::Read, *block)
    };
    std::iter::once(fill)
        .chain(blocks.iter().map(of_block))
        .collect()
}

/// First stores to the pages of each CPU, and the memory given back.
fn faults(cpus: usize, pages: u64) -> [Step; 2] {
    let step = if cpus == 1 { PAGES.min(pages) } else { pages };
    let work = |what: What, at: u64, pages: u64| {
        let of_cpu = |_| Work {
            what,
            file: 0,
            at: at * PAGE,
            bytes: pages * PAGE,
            block: PAGE,
        };
        (0..cpus).map(of_cpu).collect::<Vec<Work>>()
    };
    let touched = (0..pages).step_by(step as usize);
    let units = (pages * cpus as u64) as f64;
    [
        Step {
            name: "fault".to_owned(),
            per: "fault",
            units,
            timed: how(cpus),
            pieces: touched
                .map(|first| work(What::Touch, first, step.min(pages - first)))
                .collect(),
        },
        Step {
            name: "discard".to_owned(),
            per: "page",
            units,
            timed: how(cpus),
            pieces: vec![work(What::Discard, 0, pages)],
        },
    ]
}
