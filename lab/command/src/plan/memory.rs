//! How much memory a workload needs: `vellum plan memory`.
//!
//! The workload is replayed on machines with less and less memory, whose pages leave for a
//! device of a stated speed (`--device`). What it takes is the CPU time in the core and
//! the time for which it waits for the device.

use vellum_engine::{EngineError, reclaims};

use super::session::{Replay, once};
use crate::compare::Arenas;
use crate::designs::with_reclaim;
use crate::failure::Failure;
use crate::replay::ram::too_small;
use crate::replay::{Service, Workload};
use crate::report::device;
use crate::report::replay::FRAMES;
use vellum_results::memory::{Compressed, Cost, MemoryPlan, Row, Sampled};
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::AccessMarks;

/// Bytes that memory is a multiple of.
const UNIT: u64 = 64 << 10;

/// Elapsed time up to which memory is called enough, by that with all memory.
const ENOUGH: f64 = 1.1;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Path of the trace.
    pub trace: String,
    /// Options of the design; `reclaim=on` is added.
    pub design: String,
    /// Sizes of memory, in parts of the peak, from the largest.
    pub parts: Vec<f64>,
    /// What the device is called.
    pub device: String,
    /// Memory of the machine that the peak is measured on.
    pub ram_bytes: u64,
    /// How much of the memory is set aside for a compressed store in front of swap, in percent.
    pub compressed: Option<u8>,
}

/// Answers `question` by replays of `workload`.
///
/// # Errors
/// The design is refused, a replay went otherwise than recorded, or the user interrupted before
/// the peak was known.
pub fn plan(
    question: &Question,
    workload: &Workload,
    style: Style,
    interrupt: &Interrupt,
) -> Result<MemoryPlan, Failure> {
    let refused = |error: EngineError| Failure::usage(error.to_string());
    let device = device::named(&question.device)
        .ok_or_else(|| Failure::usage(format!("{}: no such device", question.device)))?;
    let replay = |design: &str, ram_bytes: u64, compressed: Option<u8>| {
        // Each is replayed once: what the host does at the first touch would show.
        let arenas = Arenas::new(1, workload.cpus(), ram_bytes).prefaulted();
        let arenas = arenas
            .with_device(Some(device::model(&device)))
            .with_compressed(compressed);
        let label = format!("{} KiB", ram_bytes >> 10);
        once(workload, &arenas, design, label, (style, interrupt))
    };
    let design = with_reclaim(&question.design);
    if !reclaims(&design).map_err(refused)? {
        return Err(Failure::usage(
            "--design: nothing can leave with reclaim=off; leave it out",
        ));
    }
    // Memory at its peak is asked of a machine on which nothing leaves.
    let plain = replay(&question.design, question.ram_bytes, None)?;
    if let Some(place) = plain.failed(workload) {
        let text = too_small(&place, question.ram_bytes, workload.ram_bytes());
        return Err(Failure::failed(text));
    }
    plain.trusted()?;
    let unlimited = cost(&plain);
    let mut answer = MemoryPlan {
        trace: question.trace.clone(),
        copies: workload.copies(),
        design,
        device: device.clone(),
        compressed_percent: question.compressed,
        peak_bytes: peak(&plain),
        unlimited,
        whole: workload.service().and_then(Service::whole),
        first_touches_only: workload.accesses().is_none(),
        accesses: workload.accesses().map(|accesses| Sampled {
            interval_us: accesses.interval_us,
            of_regions: accesses.marks == AccessMarks::Regions,
        }),
        rows: Vec::new(),
        enough_bytes: None,
        interrupted: false,
    };
    drop(plain);
    for &part in &question.parts {
        let ram_bytes = (answer.peak_bytes as f64 * part) as u64;
        let ram_bytes = ram_bytes.next_multiple_of(UNIT);
        match replay(&answer.design, ram_bytes, question.compressed) {
            Ok(replay) => {
                let mut row = row(&replay, workload, (ram_bytes, part), unlimited)?;
                row.compressed = question.compressed.map(|_| compressed(&replay));
                answer.rows.push(row);
            }
            Err(failure) if failure.code() == Failure::INTERRUPTED => {
                answer.interrupted = true;
                break;
            }
            Err(failure) => return Err(failure),
        }
    }
    answer.enough_bytes = enough(&answer.rows);
    Ok(answer)
}

/// The least memory from which on all rows are fast enough.
fn enough(rows: &[Row]) -> Option<u64> {
    let is_enough = |row: &&Row| row.failed.is_none() && row.slowdown <= ENOUGH;
    let last = rows.iter().take_while(is_enough).last();
    last.map(|row| row.ram_bytes)
}

fn row(
    replay: &Replay,
    workload: &Workload,
    (ram_bytes, part): (u64, f64),
    unlimited: Cost,
) -> Result<Row, Failure> {
    let failed = replay.failed(workload);
    if failed.is_none() {
        replay.trusted()?;
    }
    let cost = cost(replay);
    Ok(Row {
        ram_bytes,
        part,
        failed,
        cost,
        slowdown: cost.elapsed_ns() as f64 / unlimited.elapsed_ns().max(1) as f64,
        scanned: replay.counter("reclaim: pages scanned"),
        reclaimed: replay.counter("reclaim: pages reclaimed"),
        refaults: replay.counter("reclaim: refaults"),
        pages_read: replay.counter("device: pages read"),
        pages_written: replay.counter("device: pages written"),
        compressed: None,
    })
}

fn compressed(replay: &Replay) -> Compressed {
    Compressed {
        taken: replay.counter("compressed: pages taken"),
        same: replay.counter("compressed: same-filled pages"),
        bytes_each: replay.counter("compressed: bytes for each other page"),
        incompressible: replay.counter("compressed: pages that do not compress"),
        written_back: replay.counter("compressed: pages written back"),
        set_aside: replay.counter("compressed: bytes set aside"),
    }
}

fn peak(replay: &Replay) -> u64 {
    let peaks = replay.peaks();
    let mut frames = peaks.iter().filter(|peak| peak.0 == FRAMES);
    frames.next().map_or(0, |peak| peak.1)
}

fn cost(replay: &Replay) -> Cost {
    Cost {
        core_ns: replay.replayed.core_ns,
        device_ns: replay.counter("device: ns of reads") + replay.counter("device: ns of writes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ram_bytes: u64, slowdown: f64, fails: bool) -> Row {
        Row {
            ram_bytes,
            part: 1.0,
            failed: fails.then(|| "event 1".to_owned()),
            cost: Cost::default(),
            slowdown,
            scanned: 0,
            reclaimed: 0,
            refaults: 0,
            pages_read: 0,
            pages_written: 0,
            compressed: None,
        }
    }

    #[test]
    fn enough_is_the_least_from_which_on_nothing_is_slow() {
        let rows = [
            row(4, 1.0, false),
            row(3, 1.09, false),
            row(2, 1.2, false),
            row(1, 1.0, false),
        ];
        assert_eq!(enough(&rows), Some(3));
        assert_eq!(enough(&[row(4, 1.0, true)]), None);
        assert_eq!(enough(&[]), None);
    }
}
