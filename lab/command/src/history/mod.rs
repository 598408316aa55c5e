//! Results that were kept: what is asked of them later.
//!
//! A [`Kept`] is a result with its [`Series`]: quantities by pass, which can be held
//! against those of another run. [`difference`] does that for two results, [`trend`] for
//! all of a machine, and [`gate`] for a run that must not be slower than a saved one.

pub mod difference;
pub mod gate;
pub mod series;
#[cfg(feature = "history")]
pub mod stored;
pub mod text;
pub mod trend;

use vellum_results::run::Host;
use vellum_results::{Loaded, ReadError};

use crate::compare::Method;
pub use series::Series;

/// How intervals of runs that were made apart are drawn.
pub const METHOD: Method = Method {
    confidence: 0.95,
    resamples: 2000,
    seed: 1,
};

/// Part of its memory in which a machine may differ from itself: kernels reserve more or
/// less of it.
const MEMORY_TOLERANCE: f64 = 0.02;

/// A result, read.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What to call it: the number of a kept one, or the name of its file.
    pub name: String,
    /// The result.
    pub loaded: Loaded,
    /// What it measured by pass.
    pub series: Vec<Series>,
}

impl Kept {
    /// Reads a result.
    ///
    /// # Errors
    /// The text is no result of a version of the program that is known here.
    pub fn parse(name: impl Into<String>, text: &str) -> Result<Kept, ReadError> {
        let name = name.into();
        let loaded = Loaded::parse(name.clone(), text)?;
        Ok(Kept {
            series: series::of(&loaded),
            name,
            loaded,
        })
    }

    /// The machine that it was measured on, if it says.
    pub fn host(&self) -> Option<&Host> {
        Some(&self.loaded.run.host).filter(|host| **host != Host::default())
    }

    /// The designs that it measured, with a blank between two.
    pub fn designs(&self) -> String {
        let mut designs: Vec<&str> = Vec::new();
        for series in &self.series {
            if !designs.contains(&series.design.as_str()) {
                designs.push(&series.design);
            }
        }
        designs.join(" ")
    }
}

/// Whether two results are of one machine: its CPUs and its memory, and its name unless
/// one of them says none. The kernel may have changed meanwhile.
pub fn is_same_host(one: &Host, other: &Host) -> bool {
    is_alike(one, other) && one.name == other.name
}

/// Whether two machines are of the same make: CPUs, and as much memory. Machines of a CI
/// service have another name each time.
pub fn is_alike(one: &Host, other: &Host) -> bool {
    let (more, less) = (one.memory.max(other.memory), one.memory.min(other.memory));
    let is_near = (more - less) as f64 <= MEMORY_TOLERANCE * more as f64;
    one.cpu == other.cpu && one.cpus == other.cpus && is_near
}

/// A machine in a few words.
pub fn host_words(host: &Host) -> String {
    format!(
        "{} ({}, {} CPUs, {} MiB)",
        host.name,
        host.cpu,
        host.cpus,
        host.memory >> 20
    )
}
