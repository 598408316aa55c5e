//! Profiles of designs: the field `profile` of some results.

use serde::{Deserialize, Serialize};

/// The designs' profiles compared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Samples a second on each thread that were aimed at.
    pub rate_hz: u32,
    /// Samples that did not fit into the buffers.
    pub lost: u64,
    /// Each design but the first against the first.
    pub differences: Vec<Difference>,
    /// The control against the first design: what the same design shows.
    pub control: Difference,
    /// The call stacks of every arm.
    #[serde(default)]
    pub stacks: Option<Stacks>,
}

/// A profile against an older one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// The first line that is printed.
    pub heading: String,
    /// Name of the old profile.
    pub old: String,
    /// Name of the new profile.
    pub new: String,
    /// All ticks.
    pub total: Change,
    /// Functions whose ticks changed, by change, descending, without the total.
    pub changes: Vec<Change>,
    /// Sums over groups of functions, by change, descending, without groups that have no
    /// ticks.
    pub groups: Vec<Change>,
}

impl Difference {
    /// The change of a group.
    pub fn group(&self, name: &str) -> Option<&Change> {
        self.groups.iter().find(|change| change.name == name)
    }
}

/// What became of the ticks of one name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Function or group.
    pub name: String,
    /// Ticks in the old profile.
    pub old: u64,
    /// Ticks in the new profile.
    pub new: u64,
    /// New minus old; positive is worse in the new profile.
    pub delta: i128,
    /// `delta` as a percentage of `old`; 0 if `old` is 0.
    pub percent: f64,
    /// Standard error of `delta` if ticks are samples taken at random moments: the square
    /// root of their number.
    pub error: f64,
}

impl Change {
    /// Whether it is more than twice its standard error.
    pub fn is_significant(&self) -> bool {
        self.delta.unsigned_abs() as f64 > 2.0 * self.error
    }
}

/// Call stacks of several profiles. Names are kept once, since stacks repeat them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stacks {
    /// What each profile is of; the control is the last.
    pub profiles: Vec<String>,
    /// Names of functions.
    pub names: Vec<String>,
    /// The stacks: numbers of names from 0, outermost first, with semicolons between
    /// them, and the ticks in each profile.
    pub stacks: Vec<(String, Vec<u64>)>,
}
