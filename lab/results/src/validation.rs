//! Results of `vellum calibrate --against`.

use serde::{Deserialize, Serialize};

use crate::Kind;

/// Simulations on a described machine held against measurements on it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Validation {
    /// What the user called the description.
    pub machine: String,
    /// What it is.
    pub title: String,
    /// How far totals were to be off at the most, and ratios, as shares.
    pub aims: (f64, f64),
    /// Workloads.
    pub totals: Vec<Total>,
    /// Designs on them.
    pub ratios: Vec<Ratio>,
    /// Keys of the table `work` that the description does not have: instructions between
    /// accesses of these kinds are not calibrated.
    pub uncalibrated: Vec<String>,
    /// How long a line took between two CPUs; null on one core.
    pub line_between: Option<LineBetween>,
}

impl Kind for Validation {
    const SCHEMA: &'static str = "vellum-sim-validation/1";
}

impl Validation {
    /// How many totals are as near as was aimed at, and how many there are.
    pub fn totals_within(&self) -> (usize, usize) {
        let within = self.totals.iter().filter(|total| total.within).count();
        (within, self.totals.len())
    }

    /// The same of the ratios.
    pub fn ratios_within(&self) -> (usize, usize) {
        let within = self.ratios.iter().filter(|ratio| ratio.within).count();
        (within, self.ratios.len())
    }
}

/// One workload on so many CPUs under one design.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Total {
    /// The workload.
    pub workload: String,
    /// CPUs.
    pub cpus: usize,
    /// The design.
    pub design: String,
    /// CPU time in the core of all CPUs, of the plain core on this machine, in nanoseconds:
    /// the median of the passes.
    pub measured_ns: f64,
    /// How far the passes lie apart, as a share of the median.
    pub spread: f64,
    /// The same in simulation.
    pub simulated_ns: f64,
    /// How much more that is than measured, as a share of it.
    pub error: f64,
    /// Whether it is as near as was aimed at.
    pub within: bool,
    /// Where all CPUs of the measurement should have been at work throughout, for how much
    /// of the time they were at once. Others' programs make it less.
    pub overlap: Option<f64>,
    /// Of a miss, what is known of where it comes from.
    pub cause: Option<String>,
}

/// Two designs on one workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// The workload.
    pub workload: String,
    /// CPUs.
    pub cpus: usize,
    /// The design.
    pub design: String,
    /// The one that it is held against.
    pub base: String,
    /// Time of the first divided by that of the second, measured.
    pub measured: f64,
    /// The same in simulation.
    pub simulated: f64,
    /// The second less the first.
    pub difference: f64,
    /// Whether it is as near as was aimed at.
    pub within: bool,
}

/// How long a line took from one CPU to the other during the measurements.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LineBetween {
    /// Key of the description.
    pub key: String,
    /// What that says, in nanoseconds.
    pub described_ns: f64,
    /// The least that was found before and after measurements on two CPUs.
    pub least_ns: f64,
    /// The most.
    pub most_ns: f64,
    /// Measurements that were put away, since a line was not near what the description says
    /// before or after them.
    pub put_away: usize,
    /// Others that were kept although it was not.
    pub kept: usize,
}
