//! From traces to a plan.

use std::path::PathBuf;

use super::{Plan, Purpose, program};
use crate::designs;
use crate::failure::{Failure, OrFail};
use crate::replay::{Options, Streams};
use vellum_description::Description;
use vellum_terminal::progress::Style;

/// Memory that a simulated machine has at least, so that CPUs take as many frames at a time
/// as they ever do.
const LEAST_RAM: u64 = 4 << 30;
/// The same for each CPU.
const LEAST_RAM_OF_CPU: u64 = 256 << 20;

/// What is to be simulated.
#[derive(Debug)]
pub struct Wanted {
    /// The traces, which run at the same time.
    pub traces: Vec<PathBuf>,
    /// The designs, of which the first is the base.
    pub designs: Vec<String>,
    /// What the user called the machine.
    pub machine_name: String,
    /// The machine.
    pub machine: Description,
    /// The most of its CPUs that are simulated.
    pub cpus: usize,
    /// Copies of the process families.
    pub copies: u32,
    /// Memory of the machine; what the traces need if none is given.
    pub ram: Option<u64>,
    /// How many seeds.
    pub seeds: u16,
    /// The first seed.
    pub seed: u64,
    /// What for.
    pub purpose: Purpose,
    /// Simulations at a time.
    pub jobs: usize,
}

/// Of what is replayed: the traces, how often each, and what is drawn of them.
fn checksum(wanted: &Wanted) -> Result<u32, Failure> {
    let mut sum = crc32fast::Hasher::new();
    for trace in &wanted.traces {
        let bytes = std::fs::read(trace).doing(|| format!("reading {}", trace.display()))?;
        sum.update(&bytes.len().to_le_bytes());
        sum.update(&bytes);
    }
    sum.update(&wanted.copies.to_le_bytes());
    sum.update(&wanted.seed.to_le_bytes());
    Ok(sum.finalize())
}

/// Reads the traces and makes the program of their tasks.
///
/// # Errors
/// A design is refused, or a trace cannot be read, or does nothing.
pub fn load(wanted: Wanted, style: Style) -> Result<Plan, Failure> {
    let options = Options {
        streams: Streams::ByTask,
        copies: wanted.copies,
        seed: wanted.seed,
        ..Options::default()
    };
    let (_, workload) = designs::load(&wanted.traces, &wanted.designs, options, style)?;
    // What cannot be read as a trace has been refused.
    let checksum = checksum(&wanted)?;
    let trace = match &wanted.traces[..] {
        [one] => one.display().to_string(),
        several => format!("{} traces", several.len()),
    };
    if workload.ops() == 0 {
        return Err(Failure::usage(format!(
            "{trace}: the workload has no operations"
        )));
    }
    let needed = workload.ram_bytes_on(wanted.cpus);
    let least = LEAST_RAM.max(wanted.cpus as u64 * LEAST_RAM_OF_CPU);
    let (program, about) = program(workload);
    let seeds = (0..u64::from(wanted.seeds)).map(|seed| wanted.seed.wrapping_add(seed));
    Ok(Plan {
        trace,
        machine_name: wanted.machine_name,
        machine: wanted.machine,
        cpus: wanted.cpus,
        // Never what the host has left: the result is the same on every host.
        ram_bytes: wanted.ram.unwrap_or(needed.max(least)),
        program,
        about,
        checksum,
        designs: wanted.designs,
        seeds: seeds.collect(),
        purpose: wanted.purpose,
        jobs: wanted.jobs,
    })
}
