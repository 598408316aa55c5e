//! Traces as tables for other tools.
//!
//! [`rows`] says what the columns hold; [`csv`] and [`parquet`] write them,
//! [`cachesim`] writes the requests that reach the page cache. [`Output`] gives a file
//! its name only when it is complete.

pub mod cachesim;
pub mod csv;
mod output;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod rows;

pub use output::Output;
