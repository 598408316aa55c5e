//! Loads whose CPUs are simulated and all else is as the hosted machine has it: the core's time
//! alone, without traps and without a scheduler.

use std::collections::BTreeMap;

use vellum_description::Description;
use vellum_scale::hosted::{KINDS, Lane, Part, Request, Spent, run};

use crate::compare::Load;
use crate::failure::Failure;
use crate::replay::Slice;

/// Share of operations that may go otherwise than the plain core had them.
const DIVERGENCE_LIMIT: f64 = 0.05;

/// What such a simulation found.
pub struct Lanes {
    /// Time in the core of all CPUs in the timed phases, in nanoseconds.
    pub total_ns: f64,
    /// By kind of operation, set-up included.
    pub by_kind: [Spent; KINDS],
    /// Of phases that are timed in laps: their time of all CPUs, in nanoseconds.
    pub by_lap: BTreeMap<u16, f64>,
    /// Table pages that CPUs keep at the end on another node than their own.
    pub trapped_tables: u64,
}

/// Simulates a load under `design` with so much memory.
///
/// # Errors
/// It cannot be simulated, or went otherwise than on the hosted machine.
pub fn lanes(
    machine: &Description,
    load: &dyn Load,
    (design, ram_bytes): (&str, u64),
    seed: u64,
    timed: &[u16],
) -> Result<Lanes, Failure> {
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
    Ok(Lanes {
        total_ns: total as f64 / 1e3,
        by_kind: measured.by_kind,
        trapped_tables: measured.trapped_tables,
        by_lap: measured
            .by_lap
            .iter()
            .map(|(&phase, &ps)| (phase, ps as f64 / 1e3))
            .collect(),
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
