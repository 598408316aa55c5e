//! Results as the commands write them with `--json`.
//!
//! [`Loaded::parse`] reads one, whatever command wrote it. The types here hold what
//! is shown of it, under the names of the JSON schemas (`docs/measuring.md` and the
//! documents of the other commands); fields they do not know are ignored, and a
//! field that came to a schema later may be absent. So results of older and newer
//! versions of the program can be read as long as the name of their schema stays.

pub mod bench;
pub mod compare;
pub mod kolivas;
pub mod linux;
pub mod memory;
pub mod plan;
pub mod profile;
pub mod replay;
pub mod reproduce;
pub mod run;
pub mod scale;
pub mod sim;
pub mod sweep;

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use thiserror::Error;

pub use run::Run;

/// A value with the bounds of its interval, which are absent with too few passes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// The value.
    #[serde(deserialize_with = "number")]
    pub value: f64,
    /// Lower bound.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
}

impl Figure {
    /// The value and its bounds divided by `divisor`.
    #[must_use]
    pub fn in_units_of(self, divisor: f64) -> Figure {
        Figure {
            value: self.value / divisor,
            low: self.low.map(|low| low / divisor),
            high: self.high.map(|high| high / divisor),
        }
    }
}

/// A number, where `null` stands for one that is not defined, as the ratio to nothing.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

/// One value for each arm of a comparison of two designs.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct Arms<T> {
    /// Design A.
    pub a: T,
    /// Design B.
    pub b: T,
    /// Design A once more.
    pub control: T,
}

impl<T> Arms<T> {
    /// The values in the order in which they are shown: A, B, control.
    pub fn list(&self) -> [&T; 3] {
        [&self.a, &self.b, &self.control]
    }
}

/// What is said of B against A.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct Verdict {
    /// `difference` or `not-proven`.
    pub outcome: String,
    /// With a difference, who needs less: `a` or `b`.
    pub less: Option<String>,
    /// Without: why.
    #[serde(default)]
    pub reasons: Vec<String>,
}

impl Verdict {
    /// Whether a difference is proven.
    pub fn is_difference(&self) -> bool {
        self.outcome == "difference"
    }
}

/// What one kind of result holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// `vellum compare`: two designs of the core.
    Compare(compare::Compare),
    /// `vellum bench`.
    Bench(bench::Bench),
    /// `vellum bench kernbench --format kolivas`.
    Kolivas(kolivas::Kolivas),
    /// `vellum reproduce`.
    Reproduce(reproduce::Reproduction),
    /// `vellum replay` on the core.
    Replay(replay::Replay),
    /// `vellum replay --on linux`.
    Host(linux::Saved),
    /// `vellum compare --a linux --b DESIGN`.
    HostCompare(linux::HostComparison),
    /// `vellum compare --a linux:FILE --b linux:FILE`.
    SavedCompare(linux::SavedComparison),
    /// `vellum scale WORKLOAD`.
    Scale(scale::Scale),
    /// `vellum replay` and `vellum compare` with `--on sim`.
    Sim(sim::Findings),
    /// `vellum scale TRACE`.
    SimSweep(sim::Sweep),
    /// `vellum bench --on sim`.
    SimBench(sim::Bench),
    /// `vellum plan memory`.
    Memory(memory::MemoryPlan),
    /// `vellum plan userpte`.
    Plan(plan::Plan),
    /// `vellum sweep`.
    Sweep(sweep::Sweep),
}

/// A result that was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What to call it: the name of its file, or the command that has just made it.
    pub name: String,
    /// The name of its schema.
    pub schema: String,
    /// How it was made; empty in results of versions that did not write it.
    pub run: Run,
    /// The result.
    pub content: Content,
}

/// Why a file is no result that can be shown.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It is not JSON.
    #[error("{name}: no result: expected the JSON that a command writes with --json ({error})")]
    NotJson {
        /// The file.
        name: String,
        /// Where and why.
        error: serde_json::Error,
    },
    /// It is JSON without the name of a schema.
    #[error(
        "{name}: JSON without a `schema`: expected a result that a command of this version wrote \
         with --json; run the command again"
    )]
    NoSchema {
        /// The file.
        name: String,
    },
    /// Its schema is another one.
    #[error("{name}: its schema is `{schema}`; results that can be shown have one of {}", KNOWN.join(", "))]
    UnknownSchema {
        /// The file.
        name: String,
        /// What it says.
        schema: String,
    },
    /// A field is missing or of another type.
    #[error("{name}: damaged, or not what `{schema}` is: {error}")]
    Damaged {
        /// The file.
        name: String,
        /// The schema it claims.
        schema: String,
        /// What is wrong.
        error: serde_json::Error,
    },
}

/// The schemas that can be read.
pub const KNOWN: [&str; 17] = [
    "vellum-compare/1",
    "vellum-bench/1",
    "vellum-kolivas/1",
    "vellum-reproduce/1",
    "vellum-replay/1",
    "vellum-replay-linux/1",
    "vellum-linux/1",
    "vellum-compare-linux/1",
    "vellum-compare-saved/1",
    "vellum-scale/1",
    "vellum-sim/1",
    "vellum-sim-sweep/1",
    "vellum-sim-bench/1",
    "vellum-plan-memory/1",
    "vellum-plan-userpte/1",
    "vellum-sweep/1",
    CELL,
];

/// A finished cell of a sweep, which holds the result of the command that it ran.
const CELL: &str = "vellum-sweep-cell/1";

impl Loaded {
    /// Reads a result; `name` is what it is called in errors and on the page.
    ///
    /// # Errors
    /// The text is no result, or one of a schema that is not known.
    pub fn parse(name: impl Into<String>, text: &str) -> Result<Loaded, ReadError> {
        let name = name.into();
        let value: Value = serde_json::from_str(text).map_err(|error| ReadError::NotJson {
            name: name.clone(),
            error,
        })?;
        Self::of_value(name, value)
    }

    /// Reads a result that is JSON already.
    ///
    /// # Errors
    /// As [`Loaded::parse`].
    pub fn of_value(name: impl Into<String>, mut value: Value) -> Result<Loaded, ReadError> {
        let name = name.into();
        let Some(schema) = value.get("schema").and_then(Value::as_str) else {
            return Err(ReadError::NoSchema { name });
        };
        let schema = schema.to_owned();
        if schema == CELL {
            let result = value.get_mut("result").map(Value::take);
            return Self::of_value(name, result.unwrap_or_default());
        }
        let run = match value.get("run") {
            Some(run) => read(&name, &schema, run.clone())?,
            None => Run::default(),
        };
        let content = content(&name, &schema, value)?;
        Ok(Loaded {
            run: run.completed_by(&content),
            name,
            schema,
            content,
        })
    }
}

fn content(name: &str, schema: &str, mut value: Value) -> Result<Content, ReadError> {
    Ok(match schema {
        "vellum-compare/1" => Content::Compare(read(name, schema, value)?),
        "vellum-bench/1" => Content::Bench(read(name, schema, value)?),
        "vellum-kolivas/1" => Content::Kolivas(read(name, schema, value)?),
        "vellum-replay/1" => Content::Replay(read(name, schema, value)?),
        "vellum-reproduce/1" => Content::Reproduce(read(name, schema, value)?),
        "vellum-replay-linux/1" => Content::Host(read(name, schema, value)?),
        // The result lies in it, beside a checksum.
        "vellum-linux/1" => Content::Host(read(name, schema, value["result"].take())?),
        "vellum-compare-linux/1" => Content::HostCompare(read(name, schema, value)?),
        "vellum-compare-saved/1" => Content::SavedCompare(read(name, schema, value)?),
        "vellum-scale/1" => Content::Scale(read(name, schema, value)?),
        "vellum-sim/1" => Content::Sim(read(name, schema, value)?),
        "vellum-sim-sweep/1" => Content::SimSweep(read(name, schema, value)?),
        "vellum-sim-bench/1" => Content::SimBench(read(name, schema, value)?),
        "vellum-plan-memory/1" => Content::Memory(read(name, schema, value)?),
        "vellum-plan-userpte/1" => Content::Plan(read(name, schema, value)?),
        "vellum-sweep/1" => Content::Sweep(read(name, schema, value)?),
        _ => {
            return Err(ReadError::UnknownSchema {
                name: name.to_owned(),
                schema: schema.to_owned(),
            });
        }
    })
}

fn read<T: DeserializeOwned>(name: &str, schema: &str, value: Value) -> Result<T, ReadError> {
    serde_json::from_value(value).map_err(|error| ReadError::Damaged {
        name: name.to_owned(),
        schema: schema.to_owned(),
        error,
    })
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
