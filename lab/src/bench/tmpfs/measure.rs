//! Takes times: every side does every piece in turn.

use std::sync::Barrier;
use std::thread;

use super::plan::{Step, Timed, Work};
use super::sides::Side;
use crate::bench::request::Request;
use crate::bench::{Figure, Input};
use crate::compare::order::orders;
use crate::compare::{Clock, HostClock};
use crate::failure::Failure;
use vellum_terminal::progress::{Interrupt, Progress};

/// Times of the steps that are timed.
#[derive(Debug)]
pub struct Times {
    /// By step, side and pass: nanoseconds of each piece.
    steps: Vec<(Step, Vec<Vec<Vec<u64>>>)>,
    /// Complete passes.
    pub passes: usize,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

impl Times {
    /// Does `steps` as often as `request` says, after a pass that does not count: in it
    /// the host supplies the memory.
    ///
    /// # Errors
    /// A side failed, or the user stopped before the first pass was complete.
    pub fn take(
        steps: Vec<Step>,
        sides: &[&dyn Side],
        request: &Request,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let clock = HostClock::new();
        let total = (steps.len() * (request.passes + 1)) as u64;
        let mut progress = Progress::new(request.style, request.benchmark.name, total, "steps");
        let mut times = Self {
            steps: steps
                .into_iter()
                .map(|step| (step, vec![Vec::new(); sides.len()]))
                .collect(),
            passes: 0,
            interrupted: false,
        };
        for pass in 0..=request.passes {
            let mut of_pass = Vec::new();
            for (number, (step, _)) in times.steps.iter().enumerate() {
                if interrupt.requested() {
                    if times.passes == 0 {
                        return Err(Failure::interrupted("interrupted before the first pass"));
                    }
                    times.interrupted = true;
                    return Ok(times);
                }
                let seed = request.method.seed.wrapping_add((number as u64) << 16);
                let orders = orders(step.pieces.len(), sides.len(), pass, seed);
                let mut taken = vec![Vec::with_capacity(orders.len()); sides.len()];
                for (piece, order) in step.pieces.iter().zip(orders) {
                    for side in order {
                        taken[side].push(timed(step.timed, piece, sides[side], &clock)?);
                    }
                }
                of_pass.push(taken);
                progress.advance(1);
            }
            if pass > 0 {
                for ((_, times), taken) in times.steps.iter_mut().zip(of_pass) {
                    for (side, taken) in times.iter_mut().zip(taken) {
                        side.push(taken);
                    }
                }
                times.passes = pass;
            }
        }
        Ok(times)
    }

    /// The figures.
    pub fn figures(&self, request: &Request) -> Vec<Figure> {
        let timed = self
            .steps
            .iter()
            .filter(|(step, _)| step.timed != Timed::Not);
        let figure = |(step, times): &(Step, Vec<Vec<Vec<u64>>>)| {
            let input = Input {
                name: &step.name,
                per: step.per,
                units: step.units,
                clock: match step.timed {
                    Timed::Elapsed => "monotonic clock",
                    _ => "thread CPU time",
                },
                times: times.clone(),
                spread_units: None,
            };
            Figure::of(&input, &request.method)
        };
        timed.map(figure).collect()
    }
}

/// Nanoseconds that a side needs for a piece, entries into a kernel taken off.
fn timed(timed: Timed, piece: &[Work], side: &dyn Side, clock: &HostClock) -> Result<u64, Failure> {
    let ns = match (timed, piece) {
        (Timed::Elapsed, _) => elapsed(piece, side, clock)?,
        (_, [work]) => {
            let begun = clock.cpu_ns();
            side.work(0, work)?;
            clock.cpu_ns() - begun
        }
        (_, several) => unreachable!("{} CPUs have no CPU time together", several.len()),
    };
    // Of several CPUs each enters the kernel for itself, at the same time.
    let entries = piece.iter().map(|work| side.entry_ns(work));
    let entries = entries.fold(0.0, f64::max);
    Ok((ns as f64 - entries).max(1.0) as u64)
}

/// Time from the beginning of the first CPU's work to the end of the last one's.
fn elapsed(piece: &[Work], side: &dyn Side, clock: &HostClock) -> Result<u64, Failure> {
    let barrier = Barrier::new(piece.len());
    let one = |(cpu, work): (usize, &Work)| {
        barrier.wait();
        let begun = clock.wall_ns();
        side.work(cpu, work)?;
        Ok((begun, clock.wall_ns()))
    };
    let times: Result<Vec<(u64, u64)>, Failure> = thread::scope(|scope| {
        let threads: Vec<_> = piece
            .iter()
            .enumerate()
            .map(|one_work| scope.spawn(move || one(one_work)))
            .collect();
        let ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect()
    });
    let times = times?;
    let begun = times.iter().map(|(begun, _)| *begun).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    Ok(ended.unwrap_or(0) - begun.unwrap_or(0))
}
