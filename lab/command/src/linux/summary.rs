//! From passes to figures, intervals and a verdict.
//!
//! Three quantities, each a value for every pass:
//! * *gross*: CPU time of the whole process tree;
//! * *net*: gross without what the same tree took empty in the same pass;
//! * *after*: net without what entering the kernel costs (faults times the cost of
//!   a trap, calls times that of a system call).
//!
//! Totals are medians over the passes; intervals are drawn over passes as for any
//! comparison ([`crate::stats`]).

use vellum_results::Figure;
use vellum_results::linux::{Against, Apart, EntryCost, HostTimes, Times, middle};

use super::LinuxError;
use super::plan::Plan;
use super::series::Series;
use crate::compare::apart::{self, Values};
use crate::compare::{A, B, CONTROL, Contrast, Judged, Method};
use crate::stats::Samples;

/// What `series` says.
pub fn host_times(series: &Series, plan: &Plan) -> HostTimes {
    let calls = plan.entries.iter().map(|entries| entries.calls).sum();
    let times = |arm: &[super::tree::Replayed]| {
        let mut times = Times::default();
        for (one, empty) in arm.iter().zip(&series.empty) {
            let net = one.cpu_ns.saturating_sub(empty.cpu_ns);
            let faults = one.faults.saturating_sub(empty.faults);
            let entered = series.entry.of(faults, calls) as u64;
            times.gross_ns.push(one.cpu_ns);
            times.net_ns.push(net);
            times.after_ns.push(net.saturating_sub(entered));
            times.faults.push(faults);
            times.wall_ns.push(one.wall_ns);
        }
        times
    };
    HostTimes {
        host: times(&series.full),
        control: times(&series.control),
        own_ns: series.empty.iter().map(|empty| empty.cpu_ns).collect(),
        calls,
        batches: series.full.first().map_or(0, |pass| pass.batches),
        refused: series.full.first().map_or(0, |pass| pass.refused),
    }
}

/// What entering the kernel came to, median over the passes, in nanoseconds.
pub fn entered_ns(times: &HostTimes, entry: &EntryCost) -> f64 {
    middle(&times.host.faults).map_or(0.0, |faults| entry.of(faults as u64, times.calls))
}

fn samples(passes: &[u64]) -> Samples {
    let rows: Vec<&[u64]> = passes.iter().map(std::slice::from_ref).collect();
    Samples::from_passes(&rows)
}

/// One quantity of the host against the core, of passes of the host, the host once more, and
/// the core; and what is said of it.
pub fn against(host: &[u64], control: &[u64], core: &[u64], method: &Method) -> (Against, Judged) {
    let arms = [samples(host), samples(core), samples(control)];
    let contrast = Contrast::new(&arms, method);
    let judged = contrast.judged[0];
    let against = Against {
        host_ns: contrast.totals[A].into(),
        core_ns: contrast.totals[B].into(),
        control_ns: contrast.totals[CONTROL].into(),
        ratio: contrast.ratios[B].into(),
        control_ratio: contrast.ratios[CONTROL].into(),
        resolution: judged.resolution.map(|parts| parts.total()),
    };
    (against, judged)
}

/// The times of A and B, which did not run at the same time, each with its control; and what
/// is said of them.
///
/// # Errors
/// A series has no pass or no control.
pub fn apart(
    a: [&[u64]; 2],
    b: [&[u64]; 2],
    method: &Method,
) -> Result<(Apart, Judged), LinuxError> {
    let floats = |passes: &[u64]| -> Vec<f64> { passes.iter().map(|&ns| ns as f64).collect() };
    let (a, b) = (a.map(floats), b.map(floats));
    let apart = apart::Apart::new(values(&a), values(&b), &[], method).ok_or_else(|| {
        LinuxError::Unsupported("a saved result has no complete pass with its control".into())
    })?;
    let judged = apart.judged;
    let apart = Apart {
        a_ns: apart.a.into(),
        b_ns: apart.b.into(),
        ratio: apart.ratio.into(),
        control_ratios: apart.controls.map(Figure::from),
        resolution: judged.resolution.map(|parts| parts.total()),
    };
    Ok((apart, judged))
}

fn values([host, control]: &[Vec<f64>; 2]) -> Values<'_> {
    Values {
        of: host,
        base: host,
        control,
    }
}
