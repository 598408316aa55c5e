//! What the lab prints: tables for people, JSON for programs.
//!
//! [`model`] makes what a comparison found the JSON that is written
//! ([`vellum_results`]), and [`text`] lays it out for a terminal. [`kernbench`] and [`sdet`] are the historical formats, byte
//! for byte, and [`published`] prints samples as others publish theirs.

pub mod along;
pub mod buildkernel;
pub mod device;
pub mod figures;
pub mod json;
pub mod model;
pub mod names;
pub mod published;
pub mod replay;
pub mod text;

pub use vellum_tables::{kernbench, sdet};

/// How much of a result is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// What a reader wants first: about a screen, without what is zero.
    Summary,
    /// Every table and every count, and designs with all their options.
    Full,
}

impl Detail {
    /// How a design is named: by what differs from the default, or completely.
    pub fn design(self, design: &str) -> String {
        match self {
            Detail::Summary => names::brief(design),
            Detail::Full => design.to_owned(),
        }
    }
}
