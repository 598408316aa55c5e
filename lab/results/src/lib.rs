//! The JSON that the `vellum` command writes: each kind of result is a type here.
//!
//! A command fills its type and writes it as a [`Document`]; what reads results, whatever
//! command wrote them, uses [`Loaded::parse`]. The documentation of the types is that of the
//! JSON: `cargo xtask json` makes `docs/json.md` of it.
//!
//! The first field of a document is the name and version of its kind ([`Kind::SCHEMA`]).
//! Fields may be added under a version, with `#[serde(default)]`, so that documents without
//! them can still be read; fields that a reader does not know are ignored. To remove or
//! redefine a field takes a new version.

pub mod advise;
pub mod bench;
pub mod compare;
mod document;
mod figure;
pub mod history;
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
pub mod tlb;
pub mod validation;
mod verdict;
pub mod whole;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use document::{Content, Document, KNOWN, Loaded, ReadError};
pub use figure::{Arms, Figure, Spread};
pub use run::Run;
pub use verdict::{Reason, Standing, Verdict};
pub use whole::Whole;

/// One kind of result.
pub trait Kind: Serialize + DeserializeOwned {
    /// Its name and version: the field `schema` of documents.
    const SCHEMA: &'static str;
}
