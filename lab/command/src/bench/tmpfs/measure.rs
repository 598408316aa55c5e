//! Takes times: every side does every piece in turn.

use crate::bench::findings::figure_of;
use std::sync::Barrier;
use std::thread;

use super::plan::{Step, Timed, Work};
use super::sides::{Side, Span};
use crate::bench::request::Request;
use crate::bench::{Figure, Input};
use crate::compare::HostClock;
use crate::compare::order::orders;
use crate::failure::Failure;
use vellum_terminal::progress::{Interrupt, Progress};

/// Nanoseconds of the pieces of a step, by side and pass: CPU time of all that work, and
/// time elapsed.
type Taken = [Vec<Vec<Vec<u64>>>; 2];

/// Times of the steps that are timed.
#[derive(Debug)]
pub struct Times {
    steps: Vec<(Step, Taken)>,
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
                .map(|step| (step, [(); 2].map(|()| vec![Vec::new(); sides.len()])))
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
                let mut taken = [(); 2].map(|()| vec![Vec::new(); sides.len()]);
                for (piece, order) in step.pieces.iter().zip(orders) {
                    for side in order {
                        let ns = timed(step.timed, piece, sides[side], &clock)?;
                        for (taken, ns) in taken.iter_mut().zip(ns) {
                            taken[side].push(ns);
                        }
                    }
                }
                of_pass.push(taken);
                progress.advance(1);
            }
            if pass > 0 {
                for ((_, times), taken) in times.steps.iter_mut().zip(of_pass) {
                    for (times, taken) in times.iter_mut().zip(taken) {
                        for (side, taken) in times.iter_mut().zip(taken) {
                            side.push(taken);
                        }
                    }
                }
                times.passes = pass;
            }
        }
        Ok(times)
    }

    /// The figures.
    pub fn figures(&self, request: &Request) -> Vec<Figure> {
        let figure = |step: &Step, elapsed: bool, times: &Vec<Vec<Vec<u64>>>| {
            let name = match elapsed && step.timed == Timed::Both {
                true => format!("{}, elapsed", step.name),
                false => step.name.clone(),
            };
            let input = Input {
                name: &name,
                per: step.per,
                units: step.units,
                clock: match elapsed {
                    true => "monotonic clock",
                    false => "thread CPU time",
                },
                times: times.clone(),
                spread_units: None,
            };
            figure_of(&input, &request.method)
        };
        let mut figures = Vec::new();
        for (step, [cpu, elapsed]) in self.by_name() {
            if matches!(step.timed, Timed::Cpu | Timed::Both) {
                figures.push(figure(&step, false, &cpu));
            }
            if matches!(step.timed, Timed::Elapsed | Timed::Both) {
                figures.push(figure(&step, true, &elapsed));
            }
        }
        figures
    }
}

impl Times {
    /// The steps that are timed; those of one name are one.
    fn by_name(&self) -> Vec<(Step, Taken)> {
        let mut named: Vec<(Step, Taken)> = Vec::new();
        let timed = self.steps.iter();
        for (step, taken) in timed.filter(|(step, _)| step.timed != Timed::Not) {
            let same = named.iter_mut().find(|(other, _)| other.name == step.name);
            let Some((whole, all)) = same else {
                named.push((step.clone(), taken.clone()));
                continue;
            };
            whole.units += step.units;
            for (all, more) in all.iter_mut().zip(taken) {
                for (all, more) in all.iter_mut().zip(more) {
                    for (pass, more) in all.iter_mut().zip(more) {
                        pass.extend(more);
                    }
                }
            }
        }
        named
    }
}

/// Nanoseconds that a side needs for a piece, entries into a kernel taken off: CPU time of
/// all that work, and time elapsed.
fn timed(
    timed: Timed,
    piece: &[Work],
    side: &dyn Side,
    clock: &HostClock,
) -> Result<[u64; 2], Failure> {
    let spans = match (timed, piece) {
        // On threads of their own even if it is one: so are those of several.
        (Timed::Elapsed, _) | (_, [_, _, ..]) => at_once(piece, side, clock)?,
        (_, works) => works
            .iter()
            .map(|work| side.timed(0, work, clock))
            .collect::<Result<_, _>>()?,
    };
    let entries: Vec<f64> = piece.iter().map(|work| side.entry_ns(work)).collect();
    let less = |ns: u64, entries: f64| (ns as f64 - entries).max(1.0) as u64;
    let cpu = spans.iter().map(|span| span.cpu_ns).sum();
    let begun = spans.iter().map(|span| span.begun).min().unwrap_or(0);
    let ended = spans.iter().map(|span| span.ended).max().unwrap_or(0);
    // Of several CPUs each enters the kernel for itself, at the same time.
    let longest = entries.iter().copied().fold(0.0, f64::max);
    Ok([
        less(cpu, entries.iter().sum()),
        less(ended - begun, longest),
    ])
}

/// Has every CPU do its work at the same time.
fn at_once(piece: &[Work], side: &dyn Side, clock: &HostClock) -> Result<Vec<Span>, Failure> {
    let barrier = Barrier::new(piece.len());
    let one = |(cpu, work): (usize, &Work)| {
        barrier.wait();
        side.timed(cpu, work, clock)
    };
    thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = piece
            .iter()
            .enumerate()
            .map(|of_cpu| scope.spawn(move || one(of_cpu)))
            .collect();
        let ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect()
    })
}
