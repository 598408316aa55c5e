//! What this machine can do for the laboratory, each thing tried for real on a small
//! scale, and what mends it where it cannot.

#[cfg(feature = "bench")]
mod programs;
#[cfg(feature = "simulation")]
mod simulated;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use vellum_profile::sample::DEFAULT_RATE_HZ;
use vellum_terminal::progress::Interrupt;

use crate::failure::Failure;
use crate::host;
use crate::host::forkfault::Helper;
use crate::linux::entry;
use crate::linux::files::ScratchFiles;
use crate::linux::{LinuxError, supported};
use crate::replay::ram;
use crate::sampled;
use crate::shipped::shipped_trace;
#[cfg(feature = "simulation")]
use simulated::simulate;

/// Memory that a comparison on the largest shipped trace needs, its three machines and the
/// workload together, in MiB.
const COMPARISON_MIB: u64 = 3 << 10;

/// Part of the CPUs that may be busy with other things while something is timed.
const QUIET: f64 = 0.25;

/// Something that the laboratory does with a machine.
#[derive(Clone, Copy, Debug)]
pub struct Capability {
    /// What it is called in arguments.
    pub name: &'static str,
    /// What works if it is there.
    pub enables: &'static str,
    probe: fn() -> Result<String, Missing>,
}

/// What is missing, and what mends it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Missing {
    what: String,
    /// Commands or advice; empty where `what` says it already, or nothing helps.
    mend: String,
}

/// What was found out about a capability.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Which.
    pub name: &'static str,
    /// What works if it is there.
    pub enables: &'static str,
    /// Whether it is.
    pub works: bool,
    /// What was seen.
    pub detail: String,
    /// What mends it: a command or advice; empty if it works or nothing is known to help.
    pub mend: String,
}

/// Everything that is looked at, in the order in which it is told.
pub const CAPABILITIES: &[Capability] = &[
    Capability {
        name: "record",
        enables: "vellum record",
        probe: record,
    },
    Capability {
        name: "traces",
        enables: "commands without a trace of your own",
        probe: traces,
    },
    Capability {
        name: "compare",
        enables: "vellum replay, compare, bench on the core",
        probe: compare,
    },
    Capability {
        name: "quiet",
        enables: "narrow intervals",
        probe: quiet,
    },
    Capability {
        name: "linux",
        enables: "replay --on linux, compare --a linux",
        probe: linux,
    },
    Capability {
        name: "profile",
        enables: "--profile",
        probe: profile,
    },
    Capability {
        name: "simulate",
        enables: "--on sim, vellum scale",
        probe: simulate,
    },
    Capability {
        name: "builds",
        enables: "bench kernbench --on linux",
        probe: programs::builds,
    },
    Capability {
        name: "scripts",
        enables: "bench sdet --on linux",
        probe: programs::scripts,
    },
];

impl Capability {
    /// Tries it.
    pub fn examine(&self) -> Finding {
        let (works, detail, mend) = match (self.probe)() {
            Ok(detail) => (true, detail, String::new()),
            Err(missing) => (false, missing.what, missing.mend),
        };
        Finding {
            name: self.name,
            enables: self.enables,
            works,
            detail,
            mend,
        }
    }
}

impl Missing {
    fn new(what: impl Into<String>, mend: impl Into<String>) -> Missing {
        Missing {
            what: what.into(),
            mend: mend.into(),
        }
    }

    /// Of an error whose message may end with the command that mends it.
    fn of(error: impl Into<Failure>) -> Missing {
        let text = error.into().message().to_owned();
        match text.split_once(" with: ") {
            Some((what, command)) => Missing::new(what, command),
            None => Missing::new(text, ""),
        }
    }
}

fn record() -> Result<String, Missing> {
    vellum_record::check_permission().map_err(Missing::of)?;
    Ok("every event can be opened".to_owned())
}

fn traces() -> Result<String, Missing> {
    let found = shipped_trace("kernel-build.vellum").map_err(|_| {
        Missing::new(
            "no shipped trace is here or where the program lies",
            "install the package vellum-traces, or run vellum in its source tree",
        )
    })?;
    let directory = found.parent().unwrap_or(Path::new("."));
    Ok(format!("in {}", directory.display()))
}

fn compare() -> Result<String, Missing> {
    let (cpus, free) = (host::cpus(), ram::host_has_left().map(|bytes| bytes >> 20));
    match free {
        Some(free) if free < COMPARISON_MIB => Err(Missing::new(
            format!(
                "{free} MiB of memory are free; the largest shipped trace needs about {COMPARISON_MIB}"
            ),
            "end other programs, or compare on traces/snapshot-server.vellum with --ram 512M",
        )),
        Some(free) => Ok(format!("{cpus} CPUs, {free} MiB of memory free")),
        None => Ok(format!("{cpus} CPUs")),
    }
}

fn quiet() -> Result<String, Missing> {
    let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let governor = governor.unwrap_or_default();
    match governor.trim() {
        "" | "performance" => {}
        other => {
            return Err(Missing::new(
                format!("the frequency of the CPUs varies (governor {other})"),
                "cpupower frequency-set --governor performance",
            ));
        }
    }
    let (before, began) = (busy_ticks(), Instant::now());
    thread::sleep(Duration::from_millis(200));
    let (Some(before), Some(after)) = (before, busy_ticks()) else {
        return Ok("the kernel does not say how busy it is".to_owned());
    };
    // Ticks are hundredths of a second on every Linux.
    let busy = (after - before) as f64 / 100.0 / began.elapsed().as_secs_f64();
    match busy <= QUIET * host::cpus() as f64 {
        true => Ok(format!("{busy:.1} CPUs are busy")),
        false => Err(Missing::new(
            format!(
                "{busy:.1} of {} CPUs are busy with other programs",
                host::cpus()
            ),
            "end them, or take more passes: intervals say how much it matters",
        )),
    }
}

/// Ticks that all CPUs were busy since the machine started.
fn busy_ticks() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    // User, nice, system, and interrupts; idle and waiting are the fourth and fifth.
    let busy = [0, 1, 2, 5, 6];
    busy.iter().map(|&index| ticks.get(index).copied()).sum()
}

fn linux() -> Result<String, Missing> {
    let failed = |error: LinuxError| Missing::of(error);
    supported().map_err(failed)?;
    ScratchFiles::new(None, &[1]).map_err(|error| {
        let missing = failed(error);
        Missing::new(missing.what, "name another directory with --scratch DIR")
    })?;
    let helper = Helper::this().map_err(Missing::of)?;
    let entry = entry::measure(&helper, &Interrupt::manual()).map_err(failed)?;
    Ok(format!(
        "{}; a system call takes {:.0} ns, a trap {:.0} ns",
        host::kernel_release(),
        entry.syscall_ns,
        entry.trap_ns
    ))
}

fn profile() -> Result<String, Missing> {
    let profiler = sampled::profiler(DEFAULT_RATE_HZ).map_err(Missing::of)?;
    drop(profiler);
    Ok(format!("{DEFAULT_RATE_HZ} samples a second"))
}

#[cfg(not(feature = "simulation"))]
fn simulate() -> Result<String, Missing> {
    Err(Missing::new("not built in", crate::built_in::FULL))
}

#[cfg(not(feature = "bench"))]
mod programs {
    use super::Missing;

    pub(super) fn builds() -> Result<String, Missing> {
        Err(Missing::new("not built in", crate::built_in::FULL))
    }

    pub(super) use builds as scripts;
}
