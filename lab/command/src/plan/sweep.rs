//! Replays with `high`, `nohigh` and `auto` on machines with little low memory:
//! who fails, who opens how many windows, and where one becomes better than another.

use super::session::Session;
use crate::failure::Failure;
use vellum_results::plan::{Cell, Demand, Findings, Price, Row, Sweep, VALUES};
use vellum_terminal::table::grouped;

/// Numbers of the values in [`VALUES`].
const HIGH: usize = 0;
const NOHIGH: usize = 1;
const AUTO: usize = 2;

/// How far `auto` may be from the better of the others, in percent.
const LIMIT_PERCENT: f64 = 1.0;

/// Replays `session`'s workload with every value on machines whose low memory is each of
/// `parts` of what `demand` says.
///
/// # Errors
/// A design was refused, or the user interrupted before a row was complete.
pub fn sweep(
    session: &mut Session<'_>,
    demand: &Demand,
    parts: &[f64],
    price: &Price,
) -> Result<Sweep, Failure> {
    let mut rows = Vec::new();
    let mut interrupted = false;
    for &part in parts {
        let low_bytes = low_of(part, demand.low_bytes());
        if low_bytes >= session.ram_bytes() {
            return Err(Failure::usage(format!(
                "{part} times the low memory that is needed is all the memory of the simulated \
                 machine: leave it out of --parts, or give the machine more with --machine-ram"
            )));
        }
        match row(session, low_bytes, price) {
            Ok(cells) => rows.push(Row {
                low_bytes,
                part,
                cells,
            }),
            Err(failure) if failure.code() == Failure::INTERRUPTED && !rows.is_empty() => {
                interrupted = true;
                break;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(Sweep {
        findings: findings(&rows, demand.core_ns as f64),
        rows,
        interrupted,
    })
}

/// `part` of `need`, in whole frames.
fn low_of(part: f64, need: u64) -> u64 {
    let bytes = (part * need as f64) as u64;
    bytes.next_multiple_of(super::arithmetic::FRAME)
}

fn row(session: &mut Session<'_>, low_bytes: u64, price: &Price) -> Result<Vec<Cell>, Failure> {
    let cell = |userpte: &&str| {
        let replay = session.replay(userpte, low_bytes)?;
        let windows = replay.counter("windows to page tables");
        let failed = match (&replay.starved, replay.is_whole()) {
            (_, true) => None,
            (Some(starved), _) => Some(format!("event {}", grouped(u64::from(starved.event)))),
            (None, _) => Some("the start".to_owned()),
        };
        Ok(Cell {
            failed,
            windows,
            nested: replay.counter("windows to second page tables"),
            charged_ns: price.of(windows),
        })
    };
    VALUES.iter().map(cell).collect()
}

/// What `rows`, from the least low memory to the most, say; without windows the
/// workload takes `base_ns`.
fn findings(rows: &[Row], base_ns: f64) -> Findings {
    let mut findings = Findings {
        crossing_bytes: from_there_on(rows, |row| row.cells[NOHIGH].failed.is_none()),
        auto_free_bytes: from_there_on(rows, |row| {
            row.cells[AUTO].failed.is_none() && row.cells[AUTO].windows == 0
        }),
        ..Findings::default()
    };
    for row in rows {
        let (high, auto) = (&row.cells[HIGH], &row.cells[AUTO]);
        if auto.failed.is_some() {
            if high.failed.is_none() {
                findings.auto_failed_alone.push(row.low_bytes);
            }
            continue;
        }
        let others = row.cells[..AUTO].iter();
        let others = others.filter(|cell| cell.failed.is_none());
        let best = others.map(|cell| cell.charged_ns).reduce(f64::min);
        let Some(best) = best else { continue };
        let behind = 100.0 * (auto.charged_ns - best) / (base_ns + best);
        if behind > LIMIT_PERCENT {
            findings.auto_behind.push((row.low_bytes, behind));
        }
    }
    findings
}

/// The least low memory from which on `holds` of every row.
fn from_there_on(rows: &[Row], holds: impl Fn(&Row) -> bool) -> Option<u64> {
    let last = rows.iter().rev().take_while(|row| holds(row)).last();
    last.map(|row| row.low_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row of windows, none for a failure; each costs a nanosecond.
    pub fn row(low_bytes: u64, windows: [Option<u64>; 3]) -> Row {
        let cells = windows.map(|windows| Cell {
            failed: windows.is_none().then(|| "event 7".to_owned()),
            windows: windows.unwrap_or(0),
            nested: 0,
            charged_ns: windows.unwrap_or(0) as f64,
        });
        Row {
            low_bytes,
            part: low_bytes as f64 / 100.0,
            cells: cells.to_vec(),
        }
    }

    #[test]
    fn the_curves_cross_where_nohigh_no_longer_fails() {
        let rows = [
            row(50, [None; 3]),
            row(100, [Some(500), None, Some(300)]),
            row(150, [Some(500), Some(0), Some(40)]),
            row(200, [Some(500), Some(0), Some(0)]),
        ];
        let findings = findings(&rows, 1000.0);
        assert_eq!(findings.crossing_bytes, Some(150));
        assert_eq!(findings.auto_free_bytes, Some(200));
        assert_eq!(findings.auto_failed_alone, [0; 0]);
        // Cheaper than the only other one at 100, 4 % dearer at 150.
        assert_eq!(findings.auto_behind, [(150, 4.0)]);
    }

    #[test]
    fn auto_that_fails_alone_is_found() {
        let rows = [row(100, [Some(500), None, None])];
        let findings = findings(&rows, 1000.0);
        assert_eq!(findings.auto_failed_alone, [100]);
        assert_eq!(findings.crossing_bytes, None);
    }

    #[test]
    fn low_memory_is_whole_frames() {
        assert_eq!(low_of(0.5, 10_000), 8192);
        assert_eq!(low_of(1.0, 8192), 8192);
    }
}
