//! What a workload needs of low memory, measured.

use super::session::Session;
use crate::failure::Failure;
use crate::replay::ram::too_small;
use crate::report::replay::{FRAMES, TABLES};
use vellum_results::plan::{Demand, Held};

/// Replays once with tables in low memory, of which there is as much as there is memory.
///
/// # Errors
/// The machine is too small, the replay is not the recording, or the user interrupted.
pub fn measure(session: &mut Session<'_>) -> Result<Demand, Failure> {
    let replay = session.replay("nohigh", session.ram_bytes())?;
    let workload = session.workload();
    if let Some(starved) = replay.starved {
        let place = starved.place(workload, std::iter::empty());
        let text = too_small(&place, session.ram_bytes(), workload.ram_bytes());
        return Err(Failure::failed(text.replace("--ram", "--machine-ram")));
    }
    replay.trusted()?;
    let peaks = replay.peaks();
    let peak = |wanted: &str| {
        let mut found = peaks.iter().filter(|peak| peak.0 == wanted);
        found.next().map_or(0, |peak| peak.1)
    };
    // The rest of the list is what else lies in low memory.
    let others = peaks
        .iter()
        .filter(|peak| ![TABLES, FRAMES].contains(&peak.0));
    Ok(Demand {
        design: replay.design(),
        copies: workload.copies(),
        cpus: workload.cpus(),
        faults: replay.counter("faults"),
        tables_made: replay.counter("tables made"),
        tables_bytes: peak(TABLES),
        others: others
            .map(|&(name, bytes)| Held {
                name: name.to_owned(),
                bytes,
            })
            .collect(),
        all_bytes: peak(FRAMES),
        core_ns: replay.replayed.core_ns,
    })
}
