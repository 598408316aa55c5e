//! The same on simulated CPUs.

use vellum_description::Description;
use vellum_scale::hosted::{KINDS, Lane, Part, Request, Spent, run};

use super::cases::Case;
use crate::bench::core::script::SETUP;
use crate::compare::Load;
use crate::failure::Failure;
use crate::replay::Slice;

/// Share of operations that may go otherwise than the plain core had them.
const DIVERGENCE_LIMIT: f64 = 0.05;

/// What a simulation found.
pub struct Simulated {
    /// Time in the core of all CPUs in the timed phases, in nanoseconds.
    pub total_ns: f64,
    /// By kind of operation, set-up included.
    pub by_kind: [Spent; KINDS],
}

/// Simulates a case under one of its designs.
pub fn simulate(
    machine: &Description,
    case: &Case,
    design: usize,
    seed: u64,
) -> Result<Simulated, Failure> {
    let found = of_load(
        machine,
        &*case.load,
        (case.designs[design], case.ram_bytes),
        seed,
        &case.timed,
    );
    found.map_err(|failure| failure.context(case.name))
}

/// Simulates a load.
pub fn of_load(
    machine: &Description,
    load: &dyn Load,
    (design, ram_bytes): (&str, u64),
    seed: u64,
    timed: &[u16],
) -> Result<Simulated, Failure> {
    let slices = load.slices(usize::MAX);
    let lanes: Vec<Lane<'_>> = (0..load.cpus()).map(|cpu| lane(load, cpu)).collect();
    let end = |ops: &std::ops::Range<usize>| ops.end as u32;
    let ends: Vec<Vec<u32>> = slices
        .iter()
        .map(|slice| slice.ops.iter().map(end).collect())
        .collect();
    let request = Request {
        machine,
        design,
        lanes: &lanes,
        slices: &ends,
        seed,
        ram_bytes,
    };
    let measured = run(&request).map_err(|error| Failure::failed(error.to_string()))?;
    let ops = load.len() as f64;
    if measured.divergences as f64 > ops * DIVERGENCE_LIMIT {
        return Err(Failure::refuted(format!(
            "{} of {ops} operations went otherwise on simulated CPUs",
            measured.divergences
        )));
    }
    let phase = |slice: &Slice| load.phase(slice);
    let times = slices.iter().map(phase).zip(&measured.by_slice);
    let total: u64 = times
        .filter(|(phase, _)| timed.contains(phase))
        .map(|(_, ps)| ps)
        .sum();
    Ok(Simulated {
        total_ns: total as f64 / 1e3,
        by_kind: measured.by_kind,
    })
}

fn lane(load: &dyn Load, cpu: usize) -> Lane<'_> {
    let ops = load.ops(cpu);
    let all = 0..ops.len();
    let parts = match load.cpus() {
        1 => vec![Part {
            end: ops.len() as u32,
            waits: Vec::new(),
        }],
        _ => load
            .segments_in(cpu, &all)
            .map(|index| {
                let (segment, waits) = load.segment(cpu, index);
                Part {
                    end: segment.end as u32,
                    waits: waits.iter().map(|wait| (wait.stream, wait.ops)).collect(),
                }
            })
            .collect(),
    };
    Lane { ops, parts }
}

/// The only phase of what has no phases.
pub const WHOLE: [u16; 1] = [SETUP.0];
