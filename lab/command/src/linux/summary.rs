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

use serde::{Deserialize, Serialize, Serializer};

use super::LinuxError;
use super::entry::EntryCost;
use super::plan::Plan;
use super::series::Series;
use crate::compare::apart::{self, Values};
use crate::compare::{A, B, CONTROL, Contrast, Judged, Method};
use crate::report::model::{self, Figure};
use crate::stats::{Samples, median};

/// Times of one replayed arm by pass, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Times {
    /// CPU time of the whole tree.
    pub gross_ns: Vec<u64>,
    /// Without the replay's own.
    pub net_ns: Vec<u64>,
    /// And without entering the kernel.
    pub after_ns: Vec<u64>,
    /// Page faults beyond those of the empty tree.
    pub faults: Vec<u64>,
    /// Elapsed time.
    pub wall_ns: Vec<u64>,
}

/// The host's side of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostTimes {
    /// The host.
    pub host: Times,
    /// The host once more; empty without a control.
    pub control: Times,
    /// The empty tree: the replay's own cost, by pass.
    pub own_ns: Vec<u64>,
    /// System calls about memory and files in one pass.
    pub calls: u64,
    /// Batches handed over in one pass.
    pub batches: u64,
    /// Operations that the host refused in the first pass.
    pub refused: u64,
}

impl HostTimes {
    /// What `series` says.
    pub fn of(series: &Series, plan: &Plan) -> HostTimes {
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
    pub fn entered_ns(&self, entry: &EntryCost) -> f64 {
        middle(&self.host.faults).map_or(0.0, |faults| entry.of(faults as u64, self.calls))
    }
}

/// The median of nanoseconds or counts.
pub fn middle(values: &[u64]) -> Option<f64> {
    let values: Vec<f64> = values.iter().map(|value| *value as f64).collect();
    median(&values)
}

fn samples(passes: &[u64]) -> Samples {
    let rows: Vec<&[u64]> = passes.iter().map(std::slice::from_ref).collect();
    Samples::from_passes(&rows)
}

/// One quantity of the host against the core.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// The host, in nanoseconds.
    pub host_ns: Figure,
    /// The host once more.
    pub control_ns: Figure,
    /// The core.
    pub core_ns: Figure,
    /// Core divided by host.
    pub ratio: Figure,
    /// Host once more divided by host.
    pub control_ratio: Figure,
    /// The largest relative difference that is not told, as a share.
    #[serde(rename = "resolution", serialize_with = "resolution")]
    pub judged: Judged,
}

impl Against {
    /// Of passes of the host, the host once more, and the core.
    pub fn new(host: &[u64], control: &[u64], core: &[u64], method: &Method) -> Against {
        let arms = [samples(host), samples(core), samples(control)];
        let contrast = Contrast::new(&arms, method);
        Against {
            host_ns: contrast.totals[A].into(),
            core_ns: contrast.totals[B].into(),
            control_ns: contrast.totals[CONTROL].into(),
            ratio: contrast.ratios[B].into(),
            control_ratio: contrast.ratios[CONTROL].into(),
            judged: contrast.judged[0],
        }
    }
}

/// Two saved series against each other: nothing of them ran at the same time, so
/// that passes are drawn for each by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Apart {
    /// Of A, in nanoseconds.
    pub a_ns: Figure,
    /// Of B.
    pub b_ns: Figure,
    /// B divided by A.
    pub ratio: Figure,
    /// Each series' control divided by itself.
    pub control_ratios: [Figure; 2],
    /// The largest relative difference that is not told, as a share.
    #[serde(rename = "resolution", serialize_with = "resolution")]
    pub judged: Judged,
}

impl Apart {
    /// Of the times of A and B, each with its control.
    ///
    /// # Errors
    /// A series has no pass or no control.
    pub fn new(a: [&[u64]; 2], b: [&[u64]; 2], method: &Method) -> Result<Apart, LinuxError> {
        let floats = |passes: &[u64]| -> Vec<f64> { passes.iter().map(|&ns| ns as f64).collect() };
        let (a, b) = (a.map(floats), b.map(floats));
        let apart = apart::Apart::new(values(&a), values(&b), &[], method).ok_or_else(|| {
            LinuxError::Unsupported("a saved result has no complete pass with its control".into())
        })?;
        Ok(Apart {
            a_ns: apart.a.into(),
            b_ns: apart.b.into(),
            ratio: apart.ratio.into(),
            control_ratios: apart.controls.map(Figure::from),
            judged: apart.judged,
        })
    }
}

fn values([host, control]: &[Vec<f64>; 2]) -> Values<'_> {
    Values {
        of: host,
        base: host,
        control,
    }
}

fn resolution<S: Serializer>(judged: &Judged, serializer: S) -> Result<S::Ok, S::Error> {
    model::total(&judged.resolution, serializer)
}
