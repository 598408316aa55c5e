//! Documents: a result with its schema and how it was made.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::history::Passage;
use crate::{
    Kind, Run, advise, bench, compare, kolivas, linux, memory, plan, replay, reproduce, scale, sim,
    sweep, tlb,
};

/// A result as it is written.
#[derive(Debug, Serialize)]
pub struct Document<'r, R> {
    /// Name and version of the kind.
    schema: &'static str,
    /// The result.
    #[serde(flatten)]
    result: &'r R,
    /// How it stands against earlier results, with `--against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<&'r Passage>,
    /// How it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'r Run>,
}

impl<'r, R: Kind> Document<'r, R> {
    /// Of a result alone.
    pub fn new(result: &'r R) -> Self {
        Self {
            schema: R::SCHEMA,
            result,
            against: None,
            run: None,
        }
    }

    /// With how the result stands against earlier ones, if that was asked.
    #[must_use]
    pub fn against(self, against: Option<&'r Passage>) -> Self {
        Self { against, ..self }
    }

    /// With how the result was made.
    #[must_use]
    pub fn made_by(self, run: &'r Run) -> Self {
        Self {
            run: Some(run),
            ..self
        }
    }
}

/// What one kind of result holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// `vellum advise`.
    Advice(advise::Advice),
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
    /// `vellum plan tlb`.
    Tlb(tlb::TlbPlan),
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
pub const KNOWN: [&str; 19] = [
    advise::Advice::SCHEMA,
    compare::Compare::SCHEMA,
    bench::Bench::SCHEMA,
    kolivas::Kolivas::SCHEMA,
    reproduce::Reproduction::SCHEMA,
    replay::Replay::SCHEMA,
    linux::Saved::SCHEMA,
    linux::SavedFile::SCHEMA,
    linux::HostComparison::SCHEMA,
    linux::SavedComparison::SCHEMA,
    scale::Scale::SCHEMA,
    sim::Findings::SCHEMA,
    sim::Sweep::SCHEMA,
    sim::Bench::SCHEMA,
    memory::MemoryPlan::SCHEMA,
    tlb::TlbPlan::SCHEMA,
    plan::Plan::SCHEMA,
    sweep::Sweep::SCHEMA,
    sweep::CELL_SCHEMA,
];

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
        if schema == sweep::CELL_SCHEMA {
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

fn content(name: &str, schema: &str, value: Value) -> Result<Content, ReadError> {
    Ok(match schema {
        advise::Advice::SCHEMA => Content::Advice(read(name, schema, value)?),
        compare::Compare::SCHEMA => Content::Compare(read(name, schema, value)?),
        bench::Bench::SCHEMA => Content::Bench(read(name, schema, value)?),
        kolivas::Kolivas::SCHEMA => Content::Kolivas(read(name, schema, value)?),
        replay::Replay::SCHEMA => Content::Replay(read(name, schema, value)?),
        reproduce::Reproduction::SCHEMA => Content::Reproduce(read(name, schema, value)?),
        linux::Saved::SCHEMA => Content::Host(read(name, schema, value)?),
        linux::SavedFile::SCHEMA => {
            Content::Host(read::<linux::SavedFile>(name, schema, value)?.result)
        }
        linux::HostComparison::SCHEMA => Content::HostCompare(read(name, schema, value)?),
        linux::SavedComparison::SCHEMA => Content::SavedCompare(read(name, schema, value)?),
        scale::Scale::SCHEMA => Content::Scale(read(name, schema, value)?),
        sim::Findings::SCHEMA => Content::Sim(read(name, schema, value)?),
        sim::Sweep::SCHEMA => Content::SimSweep(read(name, schema, value)?),
        sim::Bench::SCHEMA => Content::SimBench(read(name, schema, value)?),
        memory::MemoryPlan::SCHEMA => Content::Memory(read(name, schema, value)?),
        tlb::TlbPlan::SCHEMA => Content::Tlb(read(name, schema, value)?),
        plan::Plan::SCHEMA => Content::Plan(read(name, schema, value)?),
        sweep::Sweep::SCHEMA => Content::Sweep(read(name, schema, value)?),
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
