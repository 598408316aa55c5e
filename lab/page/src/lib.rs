//! Results of the `vellum` command as one HTML page that needs nothing else.
//!
//! [`vellum_results::Loaded`] is a result that a command wrote. [`render`] makes a page of
//! one result or several: it opens without a network, holds its pictures as SVG, and
//! reads well without scripts, which only sort tables, hide arms, zoom and point.
//! [`headline`] is the answer of a result alone, for lists of results.
//!
//! Whatever comes from a result is escaped by the templates ([`maud`]), so that names in
//! traces and designs stay text.

mod aligned;
mod draw;
mod grid;
mod kinds;
mod page;
mod words;

pub use kinds::Answer;
pub use page::{Overview, headline, picture, render};
