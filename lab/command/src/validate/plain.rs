//! Runs of the plain core.

use super::cases::Case;
use super::{Amounts, Request};
use crate::compare::{
    Arenas, CompareError, HostClock, Load, Measurement, Pass, Settings, measure as compare,
};
use crate::failure::Failure;
use crate::stats::median;
use vellum_terminal::progress::{Interrupt, Style};

/// Length of a slice in microseconds: a pass at least. The designs take turns after each, and what
/// one has in the caches the next one has to replace, which simulations do not know of.
const SLICE_US: u64 = 1_000_000_000;

/// Share of divergences that nothing explains above which a run is refused.
const DIVERGENCE_LIMIT: f64 = 0.01;

/// What a workload took, by design.
pub struct Measured {
    /// In nanoseconds, for each design the times of the passes, the control's among the
    /// first's.
    pub passes: Vec<Vec<f64>>,
    /// The time that went by meanwhile, likewise.
    pub elapsed: Vec<Vec<f64>>,
}

impl Measured {
    /// Of a case that has not been measured.
    pub fn none(case: &Case) -> Measured {
        let none = vec![Vec::new(); case.designs.len()];
        Measured {
            passes: none.clone(),
            elapsed: none,
        }
    }

    /// Further passes of the same designs.
    pub fn add(&mut self, further: Measured) {
        let add = |all: &mut Vec<Vec<f64>>, further: Vec<Vec<f64>>| {
            all.iter_mut()
                .zip(further)
                .for_each(|(all, further)| all.extend(further));
        };
        add(&mut self.passes, further.passes);
        add(&mut self.elapsed, further.elapsed);
    }

    /// The middle of the passes of a design.
    pub fn ns(&self, design: usize) -> f64 {
        median(&self.passes[design]).unwrap_or(0.0)
    }

    /// For how much of the time that went by a second CPU was at work, too, under a design.
    pub fn overlap(&self, design: usize) -> f64 {
        let elapsed = median(&self.elapsed[design]).unwrap_or(0.0).max(1.0);
        (self.ns(design) / elapsed - 1.0).clamp(0.0, 1.0)
    }

    /// How far the passes of a design lie apart, as a share of their middle.
    pub fn spread(&self, design: usize) -> f64 {
        spread(&self.passes[design])
    }
}

/// How far passes lie apart, as a share of their middle.
pub fn spread(passes: &[f64]) -> f64 {
    let most = passes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = passes.iter().copied().fold(f64::INFINITY, f64::min);
    (most - least) / median(passes).unwrap_or(0.0).max(1.0)
}

/// Measures a load under some designs.
pub fn passes(
    load: &dyn Load,
    designs: &[&str],
    ram_bytes: u64,
    (passes, by_class): (usize, bool),
    style: Style,
    interrupt: &Interrupt,
) -> Result<Measurement, Failure> {
    let settings = Settings {
        designs: designs.iter().map(|&design| design.to_owned()).collect(),
        passes,
        slice_us: SLICE_US,
        seed: 1,
        style,
        divergence_limit: DIVERGENCE_LIMIT,
        by_class,
        only_needed: false,
        entries: false,
    };
    let arenas = Arenas::new(settings.arms(), load.cpus(), ram_bytes);
    let measured = compare(load, &arenas, &HostClock::new(), &settings, interrupt);
    let measured = measured.map_err(|error| match error {
        CompareError::Interrupted => Failure::interrupted("interrupted; nothing is known yet"),
        error => error.into(),
    })?;
    match measured.interrupted {
        true => Err(Failure::interrupted("interrupted; nothing is known yet")),
        false => Ok(measured),
    }
}

/// CPU time of the slices of some phases in each pass of an arm, in nanoseconds.
pub fn times(measured: &Measurement, arm: usize, timed: &[u16]) -> Vec<f64> {
    let clock_ns = measured.clock_ns * measured.cpus as u64;
    sums(measured, (arm, timed, clock_ns), |pass| &pass.cpu_ns)
}

/// Sums over the slices of some phases in each pass of an arm, less a time for each.
fn sums(
    measured: &Measurement,
    (arm, timed, less): (usize, &[u16], u64),
    of: fn(&Pass) -> &Vec<Vec<u64>>,
) -> Vec<f64> {
    let passes = measured.passes.iter().map(|pass| {
        let slices = of(pass)[arm].iter().zip(&measured.phases);
        let mine = slices.filter(|(_, phase)| timed.contains(phase));
        let ns: u64 = mine.map(|(ns, _)| ns.saturating_sub(less)).sum();
        ns as f64
    });
    passes.collect()
}

/// Measures a case.
pub fn measure(
    case: &Case,
    request: &Request<'_>,
    interrupt: &Interrupt,
) -> Result<Measured, Failure> {
    let how = (Amounts::of(request.effort).passes, false);
    let load = &*case.load;
    let measured = passes(
        load,
        &case.designs,
        case.ram_bytes,
        how,
        request.style,
        interrupt,
    )
    .map_err(|failure| failure.context(case.name))?;
    let designs = case.designs.len();
    let mut all: Vec<Vec<f64>> = (0..designs)
        .map(|design| times(&measured, design, &case.timed))
        .collect();
    // The control is the first design once more.
    all[0].extend(times(&measured, designs, &case.timed));
    let elapsed = (0..designs)
        .map(|design| sums(&measured, (design, &case.timed, 0), |pass| &pass.wall_ns))
        .collect();
    Ok(Measured {
        passes: all,
        elapsed,
    })
}
