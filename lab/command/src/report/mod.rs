//! What the lab prints: tables for people, JSON for programs.
//!
//! [`Report`] holds everything a comparison found. It is serialised as it is
//! (the schema is in `docs/measuring.md`), and [`text`] lays it out for a
//! terminal. [`kernbench`] and [`sdet`] are the historical formats, byte
//! for byte, and [`published`] prints samples as others publish theirs.

pub mod along;
pub mod buildkernel;
pub mod device;
pub mod json;
pub mod model;
pub mod names;
pub mod published;
pub mod replay;
pub mod text;

pub use model::{About, Report};
pub use vellum_tables::{kernbench, sdet};
