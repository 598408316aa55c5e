//! What recording costs: the command with and without, interleaved.

use std::ffi::OsString;
use std::path::Path;

use crate::error::RecordError;
use crate::merge::merge;
use crate::price::{Cost, Tally};
use crate::spool::Spool;
use crate::tracefs::Tracefs;
use crate::tracepoint::{self, Layout};
use crate::watch::{Events, Run, run_plain, run_recorded};
use crate::write::{Recorded, buffer_bytes};
use vellum_terminal::progress::Interrupt;

/// A measured ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Geometric mean over the rounds of recorded / plain.
    pub mean: f64,
    /// Bounds of Student's 95 % interval; `None` with a single round.
    pub interval: Option<(f64, f64)>,
}

/// What recording cost.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// Elapsed time.
    pub elapsed: Ratio,
    /// CPU time of the command and its descendants, time spent in the kernel's
    /// event code included, and of the recorder beside them.
    pub cpu: Ratio,
    /// Mean seconds of the plain and of the recorded runs: elapsed, CPU.
    pub plain: (f64, f64),
    /// See [`Overhead::plain`].
    pub recorded: (f64, f64),
    /// Rounds of four runs.
    pub rounds: usize,
    /// What a recorded run cost by events times prices, all tasks' events counted, in seconds:
    /// the mean.
    pub priced: f64,
    /// The same of the last run, item by item.
    pub last: Option<Cost>,
}

/// Runs `command` in `rounds` rounds of plain, recorded, recorded, plain, after
/// one plain run that is not counted. `prepare` is run through the shell before
/// each. `note` hears how each run went.
///
/// # Errors
/// As [`record`](super::record), or a run failed.
pub fn measure_overhead(
    command: &[OsString],
    prepare: Option<&str>,
    rounds: usize,
    buffer: usize,
    directory: &Path,
    interrupt: &Interrupt,
    mut note: impl FnMut(&str),
) -> Result<Overhead, RecordError> {
    let layouts = tracepoint::read_layouts(&Tracefs::open()?)?;
    let mut costs = Vec::new();
    let mut once = |recorded: bool| -> Result<(f64, f64), RecordError> {
        if let Some(prepare) = prepare {
            let words = ["sh", "-c", prepare].map(OsString::from);
            succeeded(&run_plain(&words, interrupt)?, prepare)?;
        }
        let run = if recorded {
            let spool = Spool::create(directory).map_err(RecordError::io("cannot write"))?;
            let events = Events {
                layouts: &layouts,
                buffer: buffer_bytes(buffer),
                spool,
                marks: None,
                duration: None,
            };
            let mut run = run_recorded(command, events, interrupt)?;
            if let Some(recorded) = &mut run.recorded {
                if let Some(why) = recorded.spool.take_cut() {
                    return Err(RecordError::io("cannot keep the recorded events")(why));
                }
                costs.push(cost(recorded, &layouts)?);
            }
            run
        } else {
            run_plain(command, interrupt)?
        };
        succeeded(&run, &command[0].to_string_lossy())?;
        let name = if recorded { "recorded" } else { "plain" };
        let cpu_seconds = run.ending.map_or(0.0, |ending| ending.cpu_seconds);
        let recorder = run.recorded.as_ref().map_or(0.0, |it| it.recorder_seconds);
        let (elapsed, cpu) = (run.seconds, cpu_seconds + recorder);
        note(&format!(
            "{name:<8} {elapsed:9.3} s elapsed {cpu:9.3} s CPU"
        ));
        Ok((elapsed, cpu))
    };
    once(false)?;
    let (mut elapsed, mut cpu) = (Vec::new(), Vec::new());
    let (mut plain, mut recorded) = ((0.0, 0.0), (0.0, 0.0));
    for _ in 0..rounds {
        let runs = [once(false)?, once(true)?, once(true)?, once(false)?];
        let pair = |a: (f64, f64), b: (f64, f64)| ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0);
        let (without, with) = (pair(runs[0], runs[3]), pair(runs[1], runs[2]));
        elapsed.push(with.0 / without.0);
        cpu.push(with.1 / without.1);
        plain = (plain.0 + without.0, plain.1 + without.1);
        recorded = (recorded.0 + with.0, recorded.1 + with.1);
    }
    let count = rounds as f64;
    Ok(Overhead {
        elapsed: ratio(&elapsed),
        cpu: ratio(&cpu),
        plain: (plain.0 / count, plain.1 / count),
        recorded: (recorded.0 / count, recorded.1 / count),
        rounds,
        priced: costs.iter().map(Cost::seconds).sum::<f64>() / costs.len().max(1) as f64,
        last: costs.last().copied(),
    })
}

/// What a run cost by its events, of whatever task but this process.
fn cost(recorded: &Recorded, layouts: &[Layout]) -> Result<Cost, RecordError> {
    let mut tally = Tally::default();
    merge(&recorded.spool, recorded.cpus, |record, _| {
        if record.pid != std::process::id() {
            tally.count(record, layouts);
        }
        Ok(())
    })?;
    Ok(recorded.cost(tally))
}

fn succeeded(run: &Run, what: &str) -> Result<(), RecordError> {
    match run.ending.map(|ending| ending.exit_code()) {
        None | Some(0) => Ok(()),
        Some(code) => Err(RecordError::Command {
            command: what.to_owned(),
            source: std::io::Error::other(format!("it ended with exit code {code}")),
        }),
    }
}

/// Two-sided 95 % points of Student's t, by degrees of freedom from 1.
const T95: [f64; 12] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
];

/// Geometric mean and interval of ratios: Student's t on their logarithms.
fn ratio(ratios: &[f64]) -> Ratio {
    let count = ratios.len() as f64;
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count;
    let squares = ratios.iter().map(|ratio| (ratio.ln() - mean).powi(2));
    let interval = (ratios.len() > 1).then(|| {
        let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
        let t = T95.get(ratios.len() - 2).copied().unwrap_or(T95[11]);
        let half = t * deviation / count.sqrt();
        ((mean - half).exp(), (mean + half).exp())
    });
    Ratio {
        mean: mean.exp(),
        interval,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_widens_with_scatter_and_holds_the_mean() {
        let tight = ratio(&[1.05, 1.051, 1.049]);
        let wide = ratio(&[1.0, 1.1, 1.05]);
        assert!((tight.mean - 1.05).abs() < 1e-3);
        let width = |ratio: Ratio| ratio.interval.map(|(low, high)| high - low).unwrap();
        assert!(width(tight) < width(wide));
        assert_eq!(ratio(&[1.2]).interval, None);
        let same = ratio(&[1.1, 1.1]);
        let (low, high) = same.interval.unwrap();
        assert!((low - 1.1).abs() < 1e-9 && (high - 1.1).abs() < 1e-9);
    }
}
